"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math

import einops
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.checks import embeddings as checks
from vit_helpers.embeddings import TokenEmbed, resize_positions, sincos_1d, sincos_positions
from vit_helpers.patches import patchify


def module(init, forward):
    """A module class from two functions, to keep the museum short"""

    class Made(nn.Module):
        def __init__(self, *sizes):
            super().__init__()
            init(self, *sizes)

        def forward(self, x):
            return forward(self, x)

    return Made


def not_written(*sizes):
    raise NotImplementedError


# Projection


def linear(self, P, C, D):
    self.P, self.D = P, D
    self.proj = nn.Linear(C * P * P, D)


def conv(self, P, C, D):
    self.P, self.D = P, D
    self.proj = nn.Conv2d(C, D, P, stride=P)


def lazy(self, P, C, D):
    self.P, self.proj = P, nn.LazyLinear(D)


def plain_weights(self, P, C, D):
    self.P = P
    self.E, self.b = nn.Parameter(torch.randn(C * P * P, D) * 0.02), nn.Parameter(torch.zeros(D))


def normed(self, P, C, D):
    linear(self, P, C, D)
    self.before, self.after = nn.LayerNorm(C * P * P), nn.LayerNorm(D)


def rows_of(x, P):
    return einops.rearrange(x, "b c (r p) (s q) -> b (r s) (c p q)", p=P, q=P)


def by_view(self, x):
    return self.proj(x.reshape(len(x), -1, x.shape[1] * self.P * self.P))


def by_loop(self, x):
    P, (_, _, H, W) = self.P, x.shape
    cut = [x[:, :, r : r + P, c : c + P].flatten(1) for r in range(0, H, P) for c in range(0, W, P)]
    return torch.stack([self.proj(patch) for patch in cut], dim=1)


def column_by_column(self, x):
    return self.proj(einops.rearrange(x, "b c (r p) (s q) -> b (s r) (c p q)", p=self.P, q=self.P))


def lazy_conv(self, P, C, D):
    self.proj = nn.Sequential(nn.LazyConv2d(D, P, stride=P), nn.Flatten(2))


def padded(self, P, C, D):
    self.proj = nn.Conv2d(C, D, P, stride=P, padding=1)


def frozen_too(init):
    """A module that keeps something more, which never learns"""

    def more(self, *sizes):
        init(self, *sizes)
        self.more = nn.Parameter(torch.zeros(3), requires_grad=False)

    return more


def kept(forward):
    """A module that gives its first result for ever"""

    def first(self, x):
        if not hasattr(self, "first"):
            self.first = forward(self, x)
        return self.first

    return first


def project(self, x):
    return self.proj(patchify(x, self.P))


def made_in_forward(self, x):
    patches = patchify(x, self.P)
    return nn.Linear(patches.shape[2], self.D)(patches)


PATCH_RIGHT = [
    module(linear, lambda self, x: self.proj(patchify(x, self.P))),
    module(linear, by_loop),
    module(lazy, lambda self, x: self.proj(patchify(x, self.P))),
    module(linear, lambda self, x: self.proj(F.unfold(x, self.P, stride=self.P).transpose(1, 2))),
    module(conv, lambda self, x: self.proj(x).flatten(2).transpose(1, 2)),
    module(conv, lambda self, x: einops.rearrange(self.proj(x), "b d r s -> b (r s) d")),
    module(plain_weights, lambda self, x: rows_of(x, self.P) @ self.E + self.b),
    module(lazy_conv, lambda self, x: self.proj(x).mT),
]
PATCH_WRONG = [
    (not_written, "[ ] patch_embed: not written yet"),
    (module(linear, lambda self, x: not_written()), "[ ] patch_embed: not written yet"),
    (PATCH_RIGHT[0](2, 3, 8), "without brackets behind its name"),
    (module(linear, lambda self, x: None), "does it end with return?"),
    (module(conv, lambda self, x: self.proj(x)), "flatten the grid, then move D to the end"),
    (module(conv, lambda self, x: self.proj(x).flatten(2)), "N and D changed places"),
    (module(linear, lambda self, x: patchify(x, self.P)), "not yet projected"),
    (
        module(
            lambda self, P, C, D: setattr(self, "proj", nn.Conv2d(C, D, P)),
            lambda self, x: self.proj(x).flatten(2).transpose(1, 2),
        ),
        "the patches overlap",
    ),
    (module(linear, by_view), "Did you reshape without a permute?"),
    (module(linear, column_by_column), "top to bottom first"),
    (module(linear, made_in_forward), "drawn at random inside forward"),
    (
        module(
            lambda self, P, C, D: (linear(self, P, C, D), setattr(self, "proj", nn.Linear(C * P * P, D, bias=False)))[0],
            lambda self, x: self.proj(patchify(x, self.P)),
        ),
        "a bias of D",
    ),
    (module(normed, lambda self, x: self.after(self.proj(self.before(patchify(x, self.P))))), "no LayerNorm here"),
    (module(linear, lambda self, x: F.gelu(self.proj(patchify(x, self.P)))), "is not linear"),
    (
        module(
            linear, lambda self, x: self.proj(einops.rearrange(x, "b c (r p) (s q)->b (r s) (p q c)", p=self.P, q=self.P))
        ),
        "channel by channel (C, P, P)",
    ),
    (
        module(
            linear, lambda self, x: self.proj(einops.rearrange(x, "b c (r p) (s q)->b (r s) (c q p)", p=self.P, q=self.P))
        ),
        "column by column",
    ),
    (module(linear, lambda self, x: self.proj(patchify(x, self.P)).detach()), "no gradient flows back"),
    (module(linear, lambda self, x: F.dropout(self.proj(patchify(x, self.P)), 0.5, self.training)), "in training mode"),
    (module(linear, lambda self, x: self.proj(patchify(x, self.P)) + x.mean()), "images must not mix"),
    (module(linear, kept(project)), "was the first one kept?"),
    (module(linear, lambda self, x: project(self, x.sub_(x.mean()))), "changes its input"),
    (module(frozen_too(linear), project), "requires_grad=False (3 numbers)"),
    (module(linear, lambda self, x: project(self, x) * 1j), "gives complex numbers"),
    (
        module(plain_weights, lambda self, x: (rows_of(x, self.P).float() @ self.E.float() + self.b).to(x.dtype)),
        "loses digits",
    ),
    (module(padded, lambda self, x: self.proj(x).flatten(2).mT), "has a padding"),
    (
        module(
            lambda self, P, C, D: setattr(self, "proj", [nn.Conv2d(C, D, P, P)]),
            lambda self, x: self.proj[0](x).flatten(2).mT,
        ),
        "A layer in a plain list",
    ),
    (module(linear, lambda self, x: project(self, x) * self.P), "other numbers than PatchEmbed"),
    (nn.Linear, "raises"),
    (7, "hand over the function or class itself"),
]


# Class token


def token(self, D):
    self.cls = nn.Parameter(torch.zeros(1, 1, D))


def front(self, x):
    return torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)


def flat_token(self, D):
    self.cls = nn.Parameter(torch.randn(D))


def plain_token(self, D):
    self.cls = torch.zeros(1, 1, D)


def batch_token(self, D):
    self.cls = nn.Parameter(torch.zeros(4, 1, D))


def big_token(self, D):
    self.cls = nn.Parameter(torch.randn(32, 1, D))


def embedding(self, D):
    self.cls = nn.Embedding(1, D)


def loop_front(self, x):
    return torch.stack([torch.cat([self.cls[None], image]) for image in x])


def random_front(self, x):
    return torch.cat([torch.randn(x.shape[0], 1, x.shape[2]), x], dim=1)


def zeros(x, *shape):
    return torch.zeros(*shape, dtype=torch.long, device=x.device)


def halves(self, D):
    self.one, self.two = nn.Parameter(torch.zeros(D // 2)), nn.Parameter(torch.zeros(D - D // 2))


def zero_front(self, x):
    return torch.cat([torch.zeros(x.shape[0], 1, x.shape[2]), x], dim=1)


def in_place(self, x):
    x += 1
    return front(self, x - 1)


CLASS_RIGHT = [
    module(token, front),
    module(token, lambda self, x: torch.cat((self.cls.repeat(len(x), 1, 1), x), 1)),
    module(flat_token, loop_front),
    module(flat_token, lambda self, x: F.pad(x, (0, 0, 1, 0)) + F.pad(self.cls.expand(1, 1, -1), (0, 0, 0, x.shape[1]))),
    module(embedding, lambda self, x: torch.cat([self.cls(zeros(x, len(x), 1)), x], dim=1)),
    module(token, lambda self, x: torch.cat([einops.repeat(self.cls, "1 1 d -> b 1 d", b=len(x)), x], dim=-2)),
]
CLASS_WRONG = [
    (module(token, lambda self, x: not_written()), "not written yet"),
    (module(token, lambda self, x: x + self.cls), "a token more"),
    (module(token, lambda self, x: torch.cat([self.cls.expand(1, x.shape[1], -1), x], dim=0)), "joined along the batch"),
    (module(token, lambda self, x: torch.cat([x, self.cls.expand(len(x), -1, -1)], dim=1)), "should be token 0"),
    (module(batch_token, lambda self, x: torch.cat([self.cls, x], dim=1)), "expand it to the batch at hand"),
    (module(token, lambda self, x: torch.cat([self.cls, x], dim=1)), "expand it to the batch at hand"),
    (module(big_token, lambda self, x: torch.cat([self.cls[: len(x)], x], dim=1)), "different class tokens"),
    (
        module(lambda self, D: setattr(self, "cls", nn.Parameter(torch.zeros(32, 1, D))), lambda self, x: front2(self, x)),
        "whatever the batch size",
    ),
    (module(lambda self, D: None, random_front), "drawn at random inside forward"),
    (module(lambda self, D: None, zero_front), "no registered parameter"),
    (module(plain_token, front), "no registered parameter"),
    (module(lambda self, D: self.register_buffer("cls", torch.zeros(1, 1, D)), front), "no registered parameter"),
    (
        module(lambda self, D: setattr(self, "cls", nn.Parameter(torch.zeros(1, 1, D), requires_grad=False)), front),
        "requires_grad=False",
    ),
    (module(token, lambda self, x: torch.cat([self.cls.detach().expand(len(x), -1, -1), x], 1)), "no gradient reaches"),
    (module(token, lambda self, x: torch.cat([self.cls.data.expand(len(x), -1, -1), x], 1)), "no gradient reaches"),
    (module(token, lambda self, x: front(self, x.detach())), "no gradient flows back"),
    (module(token, lambda self, x: torch.cat([x.mean(1, keepdim=True) + 0 * self.cls, x], dim=1)), "different class tokens"),
    (module(token, lambda self, x: front(self, x) + 1), "came out changed"),
    (module(lambda self, D: (token(self, D), setattr(self, "fc", nn.Linear(D, D)))[0], front), "is one vector of D"),
    (module(token, lambda self, x: front(self, x).float()), "keep the type"),
    (module(token, lambda self, x: list(front(self, x))), "it should give a tensor"),
    (module(token, in_place), "changes its input"),
    (module(token, kept(front)), "was the first one kept?"),
    (module(frozen_too(token), front), "requires_grad=False (3 numbers)"),
    (module(token, lambda self, x: front(self, x.float()).to(x.dtype)), "loses digits"),
    (module(token, lambda self, x: front(self, x) * 1j), "gives complex numbers"),
    (module(halves, lambda self, x: torch.cat([torch.cat([self.one, self.two]).expand(len(x), 1, -1), x], 1)), "in 2 parts"),
    (module(token, lambda self, x: torch.cat([self.cls.expand_as(x), x], dim=1)), "not one a patch"),
    (module(token, lambda self, x: torch.cat([self.cls.squeeze(), x], dim=1)), "expand it to the batch at hand"),
    (module(token, lambda self, x: torch.cat([nn.Parameter(self.cls).expand(len(x), -1, -1), x], 1)), "no gradient reaches"),
    (lambda D: torch.zeros(1, 1, D), "it should be a class of nn.Module"),
    (None, "hand over the function or class itself"),
]


def front2(self, x):
    return torch.cat([self.cls[:1].expand(len(x), -1, -1), x], dim=1)


# Class token and positions


def both(self, N, D):
    token(self, D)
    self.pos = nn.Parameter(torch.randn(1, N + 1, D) * 0.02)


def one_position(self, N, D):
    token(self, D)
    self.pos = nn.Parameter(torch.randn(1, 1, D) * 0.02)


def patch_positions(self, N, D):
    token(self, D)
    self.pos = nn.Parameter(torch.randn(1, N, D) * 0.02)


def plain_positions(self, N, D):
    token(self, D)
    self.pos = torch.randn(1, N + 1, D) * 0.02


def loud(self, N, D):
    token(self, D)
    self.pos = nn.Parameter(torch.randn(1, N + 1, D))


def by_table(self, N, D):
    flat_token(self, D)
    self.pos = nn.Embedding(N + 1, D)
    nn.init.zeros_(self.pos.weight)


class Subclass(TokenEmbed):
    def __init__(self, num_patches, embed_dim, extra=None):
        super().__init__((1, num_patches), embed_dim)


def positions_only(self, N, D):
    self.cls, self.pos = torch.zeros(1, 1, D), nn.Parameter(torch.zeros(1, N + 1, D))


TOKEN_RIGHT = [
    module(both, lambda self, x: front(self, x) + self.pos),
    module(by_table, lambda self, x: loop_front(self, x) + self.pos(torch.arange(x.shape[1] + 1, device=x.device))),
    module(both, lambda self, x: torch.cat([(self.cls + self.pos[:, :1]).expand(len(x), -1, -1), x + self.pos[:, 1:]], 1)),
    Subclass,
]
TOKEN_WRONG = [
    (module(both, lambda self, x: not_written()), "not written yet"),
    (module(one_position, lambda self, x: front(self, x) + self.pos), "one position for all patches"),
    (module(patch_positions, lambda self, x: front(self, x + self.pos)), "one too few"),
    (module(plain_positions, lambda self, x: front(self, x) + self.pos), "no registered parameter"),
    (module(positions_only, lambda self, x: front(self, x) + self.pos), "learns the positions alone"),
    (module(both, lambda self, x: random_front(self, x) + self.pos), "drawn at random inside forward"),
    (module(loud, lambda self, x: front(self, x) + self.pos), "drown the patches"),
    (module(both, lambda self, x: front(self, x) + self.pos.detach()), "no gradient reaches"),
    (module(both, lambda self, x: front(self, x)), "never added"),
    (module(both, lambda self, x: front(self, x) + self.pos[:, :1]), "each token has its own"),
    (module(both, lambda self, x: front(self, x + self.pos[:, 1:])), "add after the cat"),
    (module(both, lambda self, x: torch.cat([x, self.cls.expand(len(x), -1, -1)], 1) + self.pos), "should be token 0"),
    (module(both, lambda self, x: front(self, x) * self.pos), "multiplied"),
    (module(both, lambda self, x: front(self, x) + 2 * self.pos), "added twice"),
    (module(both, lambda self, x: front(self, x) + self.pos.roll(-1, 1)), "off by one"),
    (module(both, lambda self, x: F.dropout(front(self, x) + self.pos + 1, 0.5, self.training)), "in training mode"),
    (module(both, lambda self, x: x + self.pos[:, 1:]), "a token more"),
    (module(both, lambda self, x: front(self, x.add_(self.pos[:, 1:]))), "changes its input"),
    (module(both, kept(lambda self, x: front(self, x) + self.pos)), "was the first one kept?"),
    (module(frozen_too(both), lambda self, x: front(self, x) + self.pos), "requires_grad=False (3 numbers)"),
    (module(both, lambda self, x: (front(self, x) + self.pos).float().to(x.dtype)), "loses digits"),
    (module(both, lambda self, x: front(self, x) + self.pos.flip(1)), "is not [class token; patches] + positions"),
]


# Sines and cosines


def sincos_loop(grid, dim):
    rows, cols = grid
    out, m = torch.zeros(rows * cols, dim), dim // 2
    if dim % 4:
        raise ValueError("no multiple of 4")
    for r in range(rows):
        for c in range(cols):
            for i in range(m // 2):
                for start, place in ((0, r), (m, c)):
                    angle = place / 10000 ** (2 * i / m)
                    out[r * cols + c, start + i] = math.sin(angle)
                    out[r * cols + c, start + m // 2 + i] = math.cos(angle)
    return out


def sincos_mesh(size, width, base=10000.0):
    if width % 4:
        raise ValueError(width)
    r, c = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    w = base ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    halves = [torch.cat([(x.flatten()[:, None] * w).sin(), (x.flatten()[:, None] * w).cos()], 1) for x in (r, c)]
    return torch.cat(halves, 1)


def sincos_wrong(grid, dim, exponent=None, first=0, base=10000.0, alternate=False, cosines_first=False):
    m = dim // 2
    w = base ** -(torch.arange(m // 2).double() * (exponent(dim) if exponent else 2 / m))

    def one(n):
        a = torch.outer(torch.arange(n).double() + first, w)
        if alternate:
            return torch.stack([a.sin(), a.cos()], 2).flatten(1)
        return torch.cat([a.cos(), a.sin()] if cosines_first else [a.sin(), a.cos()], 1)

    return torch.cat([one(grid[0]).repeat_interleave(grid[1], 0), one(grid[1]).repeat(grid[0], 1)], 1).float()


def full_width(grid, dim):
    return sincos_1d(grid[0], dim).repeat_interleave(grid[1], dim=0) + sincos_1d(grid[1], dim).repeat(grid[0], 1)


def one_wave(wave):
    """Sines alone or cosines alone fill the half of an axis"""

    def answer(grid, dim):
        frequencies = 10000 ** (-torch.arange(dim // 2) / (dim // 2))
        row, col = (wave(torch.outer(torch.arange(n).float(), frequencies)) for n in grid)
        return torch.cat([row.repeat_interleave(grid[1], dim=0), col.repeat(grid[0], 1)], dim=1)

    return answer


def swapped(grid, dim):
    return sincos_positions(grid, dim).roll(dim // 2, 1)


def downwards(grid, dim):
    return sincos_positions(grid, dim).reshape(*grid, dim).transpose(0, 1).reshape(-1, dim)


SINCOS_RIGHT = [sincos_loop, sincos_mesh, lambda grid, dim, base=10000: sincos_positions(grid, dim).double()]
SINCOS_WRONG = [
    (not_written, "not written yet"),
    (lambda grid, dim: None, "does it end with return?"),
    (swapped, "row and column changed places"),
    (downwards, "left to right, then down"),
    (lambda grid, dim: sincos_1d(grid[0] * grid[1], dim), "one-dimensional form"),
    (lambda grid, dim: sincos_wrong(grid, dim, lambda D: 4 / (D // 2)), "the exponent slipped"),
    (lambda grid, dim: sincos_wrong(grid, dim, lambda D: 2 / D), "the exponent slipped"),
    (lambda grid, dim: sincos_wrong(grid, dim, base=1000.0), "the base slipped"),
    (lambda grid, dim: sincos_wrong(grid, dim, first=1), "places are counted from 0"),
    (lambda grid, dim: sincos_wrong(grid, dim, alternate=True), "sines and cosines alternate"),
    (lambda grid, dim: sincos_wrong(grid, dim, cosines_first=True), "sines come first"),
    (lambda grid, dim: sincos_positions(grid, dim)[None], "no batch axis"),
    (lambda grid, dim: sincos_positions(grid, dim).reshape(*grid, dim), "flatten the grid"),
    (lambda grid, dim: F.pad(sincos_positions(grid, dim), (0, 0, 1, 0)), "no class token here"),
    (lambda grid, dim: nn.Parameter(sincos_positions(grid, dim)), "these positions are fixed"),
    (lambda grid, dim: sincos_positions(grid, dim)[:, : dim // 2], "do not add"),
    (lambda grid, dim: torch.randn(grid[0] * grid[1], dim), "place (0, 0)"),
    (full_width, "adds row and column at full width"),
    (one_wave(torch.sin), "holds only sines"),
    (one_wave(torch.cos), "holds only cosines"),
    (lambda grid, dim: one_wave(torch.sin)(grid, dim)[:, ::2], "holds only sines"),
    (lambda grid, dim: sincos_positions(grid, dim) * 1j, "gives complex numbers"),
    (sincos_wrong, "need a multiple of 4"),
    (lambda grid, dim: sincos_positions(grid, dim).tolist(), "it should give a tensor"),
]


# Resizing


def resized(pos, grid, new, keep=True, mode="bicubic", back=True, permute=True, nocls=False, **extra):
    n = pos.shape[1] - grid[0] * grid[1]
    if n not in (0, 1):
        raise ValueError("does not fit")
    first, x = pos[:, :n], pos[:, n:]
    D = pos.shape[2]
    x = x.reshape(1, *grid, D).permute(0, 3, 1, 2) if permute else x.reshape(1, D, *grid)
    x = F.interpolate(x, size=new, mode=mode, **extra)
    x = x.permute(0, 2, 3, 1).reshape(1, -1, D) if back else x.reshape(1, -1, D)
    return torch.cat([first, x], 1) if keep else x


def resized_einops(weights, old, new, antialias=False):
    if weights.shape[1] - old[0] * old[1] not in (0, 1):
        raise ValueError
    prefix, x = weights.split([weights.shape[1] - old[0] * old[1], old[0] * old[1]], dim=1)
    x = einops.rearrange(x, "1 (r c) d -> 1 d r c", r=old[0])
    x = F.interpolate(x, new, mode="bilinear", antialias=antialias)
    return torch.cat([prefix, einops.rearrange(x, "1 d r c -> 1 (r c) d")], dim=1)


def by_scale(pos, grid, new):
    if pos.shape[1] - grid[0] * grid[1] not in (0, 1):
        raise ValueError
    first, x = pos[:, : -grid[0] * grid[1]], pos[:, -grid[0] * grid[1] :]
    x = x.transpose(1, 2).unflatten(2, grid)
    x = F.interpolate(x, scale_factor=(new[0] / grid[0], new[1] / grid[1]), mode="bicubic")
    return torch.cat([first, x.flatten(2).mT], 1)


def one_long_row(pos, grid, new):
    n = pos.shape[1] - grid[0] * grid[1]
    x = F.interpolate(pos[:, n:].transpose(1, 2), size=new[0] * new[1], mode="linear").transpose(1, 2)
    return torch.cat([pos[:, :n], x], 1)


def class_token_too(pos, grid, new):
    n = pos.shape[1] - grid[0] * grid[1]
    return F.interpolate(pos.transpose(1, 2), size=new[0] * new[1] + n, mode="linear").transpose(1, 2)


def tiled(pos, grid, new):
    n, N = pos.shape[1] - grid[0] * grid[1], new[0] * new[1]
    return torch.cat([pos[:, :n], pos[:, n:].repeat(1, N, 1)[:, :N]], 1)


def at_end(pos, grid, new):
    good = resize_positions(pos, grid, new)
    return good.roll(-1, 1) if pos.shape[1] > grid[0] * grid[1] else good


def any_count(pos, grid, new):
    N = grid[0] * grid[1]
    n = int(pos.shape[1] > N)
    x = F.pad(pos[:, n:], (0, 0, 0, N))[:, :N]
    return torch.cat([pos[:, :n], resize_positions(x, grid, new)], 1)


def in_place_resized(pos, grid, new):
    pos *= 2
    return resized(pos, grid, new) / 2


def only_without_gradient(pos, grid, new):
    """Other numbers where a gradient is wanted"""
    return resized(pos, grid, new, mode="nearest" if pos.requires_grad and grid != new else "bicubic")


def through_numpy(pos, grid, new):
    return torch.from_numpy(resize_positions(pos.detach(), grid, new).numpy())


RESIZE_RIGHT = [
    resize_positions,
    resized,
    lambda pos, grid, new: resized(pos, grid, new, align_corners=True),
    lambda pos, grid, new: resized(pos, grid, new, mode="bilinear", antialias=True),
    resized_einops,
    by_scale,
    lambda pos, grid, new: resized(pos, grid, new, align_corners=True, antialias=True),
    lambda pos, grid, new: resized(pos, grid, new, mode="bilinear", align_corners=True, antialias=True),
    lambda pos, grid, new: resized(pos.float(), grid, new).to(pos.dtype),
]
RESIZE_WRONG = [
    (not_written, "not written yet"),
    (lambda pos, grid, new: None, "does it end with return?"),
    (lambda pos, grid, new: resized(pos, grid, new, keep=False), "the class token lost its position"),
    (lambda pos, grid, new: resized(pos, grid, new, mode="nearest"), "copies the nearest position"),
    (lambda pos, grid, new: resized(pos, grid, new, mode="nearest-exact"), "copies the nearest position"),
    (lambda pos, grid, new: resized(pos, grid, new, mode="area"), "takes the mean of an area"),
    (in_place_resized, "changes its input"),
    (lambda pos, grid, new: nn.Parameter(resized(pos, grid, new)), "without nn.Parameter"),
    (lambda pos, grid, new: resized(pos, grid, new) * 1j, "gives complex numbers"),
    (lambda pos, grid, new: next(iter(())), "StopIteration (next() found nothing left)"),
    (only_without_gradient, "for learned positions of torch.float32"),
    (lambda pos, grid, new: resized(pos, grid, new[::-1]), "rows and columns of the new grid changed places"),
    (lambda pos, grid, new: resized(pos, grid, new, permute=False), "without moving axes"),
    (lambda pos, grid, new: resized(pos, grid, new, back=False), "by a reshape alone"),
    (lambda pos, grid, new: resized(pos, grid[::-1], new), "rows and columns changed places"),
    (one_long_row, "one long row"),
    (class_token_too, "the class token's position changed"),
    (tiled, "stretch the grid instead"),
    (at_end, "moved to the end"),
    (through_numpy, "no gradient flows back"),
    (lambda pos, grid, new: resize_positions(pos, grid, new).float(), "keep the type"),
    (lambda pos, grid, new: resize_positions(pos, grid, new)[0], "leading axis"),
    (any_count, "raise ValueError"),
    (lambda pos, grid, new: torch.randn(1, new[0] * new[1] + pos.shape[1] - grid[0] * grid[1], pos.shape[2]), "changed"),
    (lambda pos, grid, new: 2 * resize_positions(pos, grid, new) - pos[:, :1], "other numbers than bicubic"),
    (3, "hand over the function or class itself"),
]


def cases(which):
    kinds = {
        checks.check_patch_embed: (PATCH_RIGHT, PATCH_WRONG),
        checks.check_add_class_token: (CLASS_RIGHT, CLASS_WRONG),
        checks.check_token_embed: (TOKEN_RIGHT, TOKEN_WRONG),
        checks.check_sincos: (SINCOS_RIGHT, SINCOS_WRONG),
        checks.check_resize_positions: (RESIZE_RIGHT, RESIZE_WRONG),
    }
    return [(check, answer) for check, answers in kinds.items() for answer in answers[which]]


@pytest.mark.parametrize(("check", "answer"), cases(0))
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True, capsys.readouterr().out
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "case"), cases(1))
def test_wrong_answers_are_told_what_slipped(check, case, capsys):
    answer, says = case
    assert check(answer) is False
    out, err = capsys.readouterr()
    assert says in out.splitlines()[-1] and not err, out


def test_a_check_leaves_the_random_generator_alone(capsys):
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    for check, answer in cases(0):
        check(answer)
    assert torch.equal(torch.rand(4), wanted)
