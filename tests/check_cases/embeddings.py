"""Answers to the exercises of notebook 02."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import nn

from check_cases import each, having, module, written, zeros
from check_cases.patches import square_only
from vit_helpers.embeddings import TokenEmbed, resize_positions, sincos_1d, sincos_positions
from vit_helpers.patches import patchify


def frozen(*sizes):
    return nn.Parameter(torch.zeros(1, 1, sizes[-1]), requires_grad=False)


def nothing(*sizes):
    return nn.Identity()


# Projection

LINEAR = {"proj": lambda P, C, D: nn.Linear(C * P * P, D)}
linear = having(**LINEAR)
lazy = having(proj=lambda P, C, D: nn.LazyLinear(D))
lazy_conv = having(proj=lambda P, C, D: nn.Sequential(nn.LazyConv2d(D, P, stride=P), nn.Flatten(2)))
listed_conv = having(proj=lambda P, C, D: [nn.Conv2d(C, D, P, stride=P)])
plain_weights = having(E=lambda P, C, D: zeros(C * P * P, D), b=lambda P, C, D: zeros(D))
in_one = having(w=lambda P, C, D: zeros(1, (C * P * P + 1) * D))  # weight and bias


def cut(order):
    return lambda x, P: rearrange(x, f"b c (r p) (s q) -> {order}", p=P, q=P)


def linear_of(change=lambda self, y: y, cut=patchify, init=linear):
    """A Linear on patches, cut in one way or another, and what is done with the result."""
    return module(init, lambda self, x: change(self, self.proj(cut(x, self.sizes[0]))))


def conv_of(change=lambda x: x.flatten(2).mT, **options):
    init = having(proj=lambda P, C, D: nn.Conv2d(C, D, P, **{"stride": P, **options}))
    return module(init, lambda self, x: change(self.proj(x)))


def by_loop(self, x):
    P, (_, _, H, W) = self.sizes[0], x.shape
    rows = [
        x[:, :, r : r + P, c : c + P].flatten(1) for r in range(0, H, P) for c in range(0, W, P)
    ]
    return torch.stack([self.proj(patch) for patch in rows], dim=1)


def normed(**norms):
    init = having(**LINEAR | {"before": nothing, "after": nothing} | norms)
    return module(
        init, lambda self, x: self.after(self.proj(self.before(patchify(x, self.sizes[0]))))
    )


def center(x):
    return x - x.mean(-1, keepdim=True)


by_channel = module(
    having(
        convs=lambda P, C, D: nn.ModuleList(nn.Conv2d(1, D, P, stride=P) for _ in range(C)),
    ),
    lambda self, x: sum(
        conv(channel).flatten(2).mT for conv, channel in zip(self.convs, x.split(1, 1), strict=True)
    ),
)
twice_linear = module(
    having(proj=lambda P, C, D: nn.Sequential(nn.Linear(C * P * P, D), nn.Linear(D, D))),
    lambda self, x: self.proj(patchify(x, self.sizes[0])),
)


def before(P, C, D):
    return nn.LayerNorm(C * P * P)


def after(P, C, D):
    return nn.LayerNorm(D)


PATCH_RIGHT = [
    linear_of(),
    linear_of(init=lazy),
    linear_of(cut=lambda x, P: F.unfold(x, P, stride=P).transpose(1, 2)),
    conv_of(),
    conv_of(lambda x: rearrange(x, "b d r s -> b (r s) d")),
    module(linear, by_loop),
    module(
        plain_weights, lambda self, x: cut("b (r s) (c p q)")(x, self.sizes[0]) @ self.E + self.b
    ),
    module(lazy_conv, lambda self, x: self.proj(x).mT),
]
PATCH_WRONG = each(conv_of, written("x", globals(), {
    "flatten the grid, then move D to the end": "x", "N and D": "x.flatten(2)",
    "put the rows": "x.movedim(1, -1)",
    "it moves no numbers; use transpose(1, 2)":
        ["x.flatten(2).view(len(x), -1, x.shape[1])", "x.reshape(len(x), -1, x.shape[1])"],
    "top to bottom first, but": "x.permute(0, 3, 2, 1).reshape(len(x), -1, x.shape[1])",
})) | each(linear_of, written("self, y", globals(), {
    "the class token is added later":
        "torch.cat([y[:, :1], y], 1)",
    "the tokens are not in the order of the patches": "y.flip(1)",
    "it moves no numbers": "y.transpose(1, 2).contiguous().view(y.shape)",
    "the bias is never added": "y - self.proj.bias",
    "is random inside forward":
        "nn.Linear(self.proj.in_features, y.shape[2])(torch.ones(self.proj.in_features)) + y",
    "is not linear": "F.gelu(y)", "gives different numbers from PatchEmbed": "y * self.sizes[0]",
})) | {
    "not yet projected": module(linear, lambda self, x: patchify(x, self.sizes[0])),
    "the patches overlap": conv_of(stride=1),
    "has padding": conv_of(padding=1),
    "the pieces are rows of pixels and not squares":
        linear_of(cut=lambda x, P: x.flatten(1).unflatten(1, (-1, x.shape[1] * P * P))),
    "right for square images only": linear_of(cut=square_only),
    "subtracts each patch's mean": linear_of(cut=lambda x, P: center(cut("b (r s) (c p q)")(x, P))),
    "changing one patch changes several tokens":
        linear_of(cut=lambda x, P: patchify(x - x.mean((1, 2, 3), keepdim=True), P)),
    "changing a patch changes no token":
        linear_of(cut=lambda x, P: F.pad(patchify(x, P)[:, :-1], (0, 0, 0, 1))),
    "each channel has a projection with its own bias": by_channel,
    "learns 176 numbers, but should learn 104": twice_linear,
    "top to bottom first": linear_of(cut=cut("b (s r) (c p q)")),
    "a bias of D": conv_of(bias=False),
    "no norm here, before the": normed(before=before),
    "no norm here, after the": normed(after=after),
    "no norm here, before and after the": normed(before=before, after=after),
    "learns 11 numbers, but should": module(
        having(proj=lambda *sizes: nn.Linear(10, 1), D=lambda *sizes: sizes[2]),
        lambda self, x: patchify(x, self.sizes[0]).mean(-1, keepdim=True).expand(-1, -1, self.D),
    ),
    "channel by channel (C, P, P)": linear_of(cut=cut("b (r s) (p q c)")),
    "column by column": linear_of(cut=cut("b (r s) (c q p)")),
    "images must not mix":
        module(linear, lambda self, x: self.proj(patchify(x, self.sizes[0])) + x.mean()),
    "let them learn, or remove them": linear_of(init=having(more=frozen, **LINEAR)),
    "A layer in a plain list": module(listed_conv, lambda self, x: self.proj[0](x).flatten(2).mT),
    "fits no published weights": module(
        in_one,
        lambda self, x: (
            F.pad(patchify(x, self.sizes[0]), (0, 1), value=1.0) @ self.w.view(-1, self.sizes[2])
        )
    ),
    "raises": nn.Linear,
}  # fmt: skip


# Class token


TOKEN = {"cls": lambda *sizes: zeros(1, 1, sizes[-1])}
token = having(**TOKEN)
flat_token = having(cls=lambda *sizes: zeros(sizes[-1]))
plain_token = having(cls=lambda *sizes: torch.zeros(1, 1, sizes[-1]))
embedding = having(cls=lambda D: nn.Embedding(1, D))
halves = having(one=lambda D: zeros(D // 2), two=lambda D: zeros(D - D // 2))


def tokens_for(images):
    """A class token for each image of a batch."""
    return having(cls=lambda D: zeros(images, 1, D))


def front(self, x):
    return torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)


def loop_front(self, x):
    return torch.stack([torch.cat([self.cls[None], image]) for image in x])


def at_end(self, x):
    return torch.cat([x, self.cls.expand(len(x), -1, -1)], dim=1)


def tokens_of(forward, init=token):
    """A module around one class token."""
    return module(init, forward)


SHAPES_WRONG = written("self, x", globals(), {
    "an additional token": "x + self.cls",
    "concatenated along the batch": "torch.cat([self.cls.expand(1, x.shape[1], -1), x], dim=0)",
    "concatenated along the batch, one copy":
        "torch.cat([self.cls.repeat(len(x), x.shape[1], 1), x], dim=0)",
    "not B of them": "torch.cat([self.cls.expand(len(x), len(x), -1), x], dim=1)",
    "not one for each patch": "torch.cat([self.cls.expand_as(x), x], dim=1)",
    "concatenated along the width": "torch.cat([x, (x * self.cls).sum(-1, keepdim=True)], dim=-1)",
})  # fmt: skip
CLASS_RIGHT = [
    tokens_of(front),
    tokens_of(lambda self, x: torch.cat((self.cls.repeat(len(x), 1, 1), x), 1)),
    tokens_of(loop_front, flat_token),
    tokens_of(
        lambda self, x: (
            F.pad(x, (0, 0, 1, 0)) + F.pad(self.cls.expand(1, 1, -1), (0, 0, 0, x.shape[1]))
        ),
        flat_token,
    ),
    tokens_of(
        lambda self, x: torch.cat([self.cls(x.new_zeros(len(x), 1, dtype=torch.long)), x], dim=1),
        embedding,
    ),
    tokens_of(lambda self, x: torch.cat([repeat(self.cls, "1 1 d -> b 1 d", b=len(x)), x], dim=-2)),
]
CLASS_WRONG = each(tokens_of, SHAPES_WRONG) | each(tokens_of, written("self, x", globals(), {
    "something is random inside forward":
        "torch.cat([torch.randn(x.shape[0], 1, x.shape[2]), x], dim=1)",
    "no gradient reaches": [
        f"torch.cat([{token}.expand(len(x), -1, -1), x], 1)"
        for token in ("self.cls.detach()", "self.cls.data", "nn.Parameter(self.cls)")
    ],
    "no gradient flows back": "front(self, x.detach())",
    "have changed, but nothing": "front(self, x) + 1",
    "token 0 is not the learned vector": "torch.cat([2 * self.cls.expand(len(x), -1, -1), x], 1)",
})) | {
    "should be token 0": tokens_of(at_end),
    "expand it to the size of the batch": [
        tokens_of(lambda self, x: torch.cat([self.cls, x], dim=1), tokens_for(4)),
        tokens_of(lambda self, x: torch.cat([self.cls, x], dim=1)),
        tokens_of(lambda self, x: torch.cat([self.cls.squeeze(), x], dim=1)),
    ],
    "different class tokens": [
        tokens_of(lambda self, x: torch.cat([self.cls[: len(x)], x], dim=1), tokens_for(32)),
        tokens_of(lambda self, x: torch.cat([x.mean(1, keepdim=True) + 0 * self.cls, x], dim=1)),
    ],
    "as many as 32 vectors, but the class token is one vector of D = 6, whatever the batch size":
        tokens_of(
            lambda self, x: torch.cat([self.cls[:1].expand(len(x), -1, -1), x], dim=1),
            tokens_for(32),
        ),
    "learns 48 numbers, as many as 8 vectors":
        tokens_of(front, having(**TOKEN, fc=lambda D: nn.Linear(D, D))),
    "not a registered parameter": [
        tokens_of(lambda self, x: F.pad(x, (0, 0, 1, 0)), having()),
        tokens_of(front, plain_token),
        tokens_of(front, lambda self, D: self.register_buffer("cls", torch.zeros(1, 1, D))),
    ],
    "has parameters with requires_grad=False": tokens_of(front, having(cls=frozen)),
    "let them learn, or remove them": tokens_of(front, having(more=frozen, **TOKEN)),
    "in several parts":
        tokens_of(
            lambda self, x: torch.cat(
                [torch.cat([self.one, self.two]).expand(len(x), 1, -1), x], 1
            ),
            halves,
        ),
}  # fmt: skip


# Class token and positions


def both(rows=lambda N: N + 1, std=0.02, make=nn.Parameter, **more):
    """A class token and so many positions."""
    return having(**TOKEN, pos=lambda N, D: make(torch.randn(1, rows(N), D) * std), **more)


def embed_of(forward=front, add=lambda self, y: y + self.pos, init=None):
    return module(init or both(), lambda self, x: add(self, forward(self, x)))


by_table = having(
    cls=lambda N, D: zeros(D),
    pos=lambda N, D: nn.Embedding.from_pretrained(torch.zeros(N + 1, D), freeze=False),
)
positions_only = having(cls=lambda N, D: torch.zeros(1, 1, D), pos=lambda N, D: zeros(1, N + 1, D))


class Subclass(TokenEmbed):
    def __init__(self, num_patches, embed_dim, extra=None):
        super().__init__((1, num_patches), embed_dim)


class Renamed(TokenEmbed):
    def __init__(self, num_patches, embed_dim):
        super().__init__((1, num_patches), embed_dim)
        self.pos_embed = nn.Embedding(num_patches + 1, embed_dim)


TOKEN_RIGHT = [
    embed_of(),
    embed_of(
        loop_front,
        lambda self, y: y + self.pos(torch.arange(y.shape[1], device=y.device)),
        by_table,
    ),
    module(
        both(),
        lambda self, x: torch.cat(
            [(self.cls + self.pos[:, :1]).expand(len(x), -1, -1), x + self.pos[:, 1:]], 1
        ),
    ),
    Subclass,
    embed_of(init=both(std=1)),
]
TOKEN_WRONG = {says: module(both(), forward) for says, forward in SHAPES_WRONG.items()} | {
    "neither class token nor positions":
        embed_of(lambda self, x: F.pad(x, (0, 0, 1, 0)), lambda self, y: y, having()),
    "learns only the class token, or one position; the other":
        embed_of(init=both(make=lambda x: x)),
    "learns only the positions: the class token": embed_of(init=positions_only),
    "learns two vectors of D numbers, but besides the class token it should learn positions": [
        embed_of(init=both(lambda N: 1)),
        embed_of(
            add=lambda self, y: y + torch.arange(y.shape[1])[:, None] * self.pos,
            init=both(lambda N: 1),
        ),
    ],
    "one too few": module(both(lambda N: N), lambda self, x: front(self, x + self.pos)),
    "learns three vectors": module(
        both(lambda N: 2),
        lambda self, x: (
            front(self, x + self.pos[:, 1:]) + F.pad(self.pos[:, :1], (0, 0, 0, x.shape[1]))
        )
    ),
    "the positions are (1, N + 1, D)": [
        embed_of(init=both(lambda N: N)),
        embed_of(init=both(lambda N: N - 1)),
        embed_of(init=both(lambda N: 25)),
        embed_of(add=lambda self, y: y + self.pos[:, : len(y)]),
        embed_of(add=lambda self, y: y + self.pos.mT),
        embed_of(add=lambda self, y: y + self.pos.transpose(0, 1)),
        embed_of(lambda self, x: front(self, x + self.pos)),
        embed_of(lambda self, x: torch.cat([self.cls.expand_as(x), x], dim=2)),
    ],
    "create the tensor in its full shape":
        embed_of(
            init=having(
                **TOKEN, pos=lambda N, D: nn.Parameter(torch.randn(1, 1, D).expand(1, N + 1, D))
            )
        ),
    "Give the new one another name": Renamed,
    "no gradient reaches": embed_of(add=lambda self, y: y + self.pos.detach()),
    "never added": embed_of(add=lambda self, y: y),
    "each token has its own": embed_of(add=lambda self, y: y + self.pos[:, :1]),
    "add the positions after the cat":
        embed_of(lambda self, x: front(self, x + self.pos[:, 1:]), lambda self, y: y),
    "should be token 0": embed_of(at_end),
    "subtracted": embed_of(add=lambda self, y: y - self.pos),
    "multiplied": embed_of(add=lambda self, y: y * self.pos),
    "added twice": embed_of(add=lambda self, y: y + 2 * self.pos),
    "off by one": embed_of(add=lambda self, y: y + self.pos.roll(-1, 1)),
    "let them learn, or remove them": embed_of(init=both(more=frozen)),
    "is not [class token; patches] + positions": embed_of(add=lambda self, y: y + self.pos.flip(1)),
}  # fmt: skip


# Sines and cosines


def sincos_loop(grid, dim):
    rows, cols = grid
    out, m = torch.zeros(rows * cols, dim), dim // 2
    if dim % 4:
        raise ValueError("not a multiple of 4")
    for r in range(rows):
        for c in range(cols):
            for i in range(m // 2):
                for start, place in ((0, r), (m, c)):
                    angle = place / 10000 ** (2 * i / m)
                    out[r * cols + c, start + i] = math.sin(angle)
                    out[r * cols + c, start + m // 2 + i] = math.cos(angle)
    return out


def sincos_mesh(size, width, base=10000.0, refuses=True, power=lambda m: 2 / m, first=0):
    if width % 4 and refuses:
        raise ValueError(width)
    r, c = torch.meshgrid(
        torch.arange(size[0]) + first, torch.arange(size[1]) + first, indexing="ij"
    )
    w = base ** -(torch.arange(width // 4, dtype=torch.float64) * power(width // 2))
    parts = [
        torch.cat([(x.flatten()[:, None] * w).sin(), (x.flatten()[:, None] * w).cos()], 1)
        for x in (r, c)
    ]
    return torch.cat(parts, 1)


def reordered(order):
    """The right positions with the columns, as (axis, wave, frequency), in another order."""
    return lambda grid, dim: rearrange(
        sincos_positions(grid, dim), f"n (a w i) -> {order}", a=2, w=2
    )


def one_wave(wave):
    """Sines alone or cosines alone fill the half of an axis."""

    def answer(grid, dim):
        frequencies = 10000 ** (-torch.arange(dim // 2) / (dim // 2))
        row, col = (wave(torch.outer(torch.arange(n).float(), frequencies)) for n in grid)
        return torch.cat([row.repeat_interleave(grid[1], dim=0), col.repeat(grid[0], 1)], dim=1)

    return answer


def full_width(grid, dim):
    return sincos_1d(grid[0], dim).repeat_interleave(grid[1], dim=0) + sincos_1d(
        grid[1], dim
    ).repeat(grid[0], 1)


EXPONENTS = written("m", globals(), {
    "-2i/D": "2 / (m + m)", "-4i/m": "1 / (m / 4)", "-i/D": "0.5 / m", "2i/m": "-1 / (m / 2)",
    "-2i/(m-2)": "1 / (m // 2 - 1)",
})  # fmt: skip
SINCOS_RIGHT = [
    sincos_loop,
    sincos_mesh,
    lambda grid, dim, base=10000: sincos_positions(grid, dim).double(),
]
SINCOS_WRONG = {
    f"the exponent is {name}, but":
        lambda grid, dim, power=power: sincos_mesh(grid, dim, power=power).float()
    for name, power in EXPONENTS.items()
} | written("grid, dim", globals(), {
    "row and column are": "sincos_positions(grid, dim).roll(dim // 2, 1)",
    "left to right, then down":
        'rearrange(sincos_loop(grid, dim), "(r c) d -> (c r) d", r=grid[0])',
    "one-dimensional form": "sincos_1d(grid[0] * grid[1], dim)",
    "the base is wrong": "sincos_mesh(grid, dim, base=1000.0)",
    "positions are counted": "sincos_mesh(grid, dim, first=1)",
    "sines come first":
        "torch.cat([x.roll(dim // 4, 1) for x in sincos_loop(grid, dim).chunk(2, 1)], 1)",
    "no batch axis": "sincos_loop(grid, dim)[None]",
    "flatten the grid": "sincos_positions(grid, dim).reshape(*grid, dim)",
    "there are only patches here, no class token":
        "torch.cat([torch.zeros(1, dim), sincos_positions(grid, dim)])",
    "these positions are fixed": "nn.Parameter(sincos_positions(grid, dim))",
    "instead of adding them": "sincos_positions(grid, dim)[:, : dim // 2]",
    "each axis gets half of the width": "sincos_loop(grid, 2 * dim)",
    "(0, 0) should contain only sin 0 = 0 and cos 0 = 1, each": "sincos_loop(grid, dim) + 0.5",
    "gives the wrong numbers for grid": "sincos_positions((9, 9), dim)[: grid[0] * grid[1]]",
    "gives complex numbers": "sincos_positions(grid, dim) * 1j",
    "gives whole numbers": "sincos_positions(grid, dim).round().int()",
    "need a multiple of 4": "sincos_mesh(grid, dim, refuses=False)",
    "it should give one tensor": "sincos_positions(grid, dim).tolist()",
}) | {
    "sines and cosines alternate": reordered("n (a i w)"),
    "contains the right numbers in a different order": reordered("n (w a i)"),
    "adds row and column at full width": full_width,
    "is all zeros, as if there were no cosines":
        [one_wave(torch.sin), lambda grid, dim: one_wave(torch.sin)(grid, dim)[:, ::2]],
    "is all ones, as if there were no sines": one_wave(torch.cos),
}  # fmt: skip


# Resizing


def parts_of(pos, grid):
    n = pos.shape[1] - grid[0] * grid[1]
    if n not in (0, 1):
        raise ValueError("does not fit")
    return pos[:, :n], pos[:, n:]


def resized(
    pos, grid, new, to="1 r c d -> 1 d r c", back="1 d r c -> 1 (r c) d", method=None, **options
):
    first, x = parts_of(pos, grid)
    x = rearrange(x.reshape(1, *grid, -1), to)
    x = (method or F.interpolate)(x, size=new, **({"mode": "bicubic"} | options))
    return torch.cat([first, rearrange(x, back)], 1)


def by_scale(pos, grid, new):
    first, x = parts_of(pos, grid)
    x = F.interpolate(
        x.mT.unflatten(2, grid), scale_factor=(new[0] / grid[0], new[1] / grid[1]), mode="bicubic"
    )
    return torch.cat([first, x.flatten(2).mT], 1)


def with_options(**options):
    return lambda pos, grid, new: resized(pos, grid, new, **options)


def scrambled(pos, grid, new):
    first, x = parts_of(pos, grid)
    x = F.interpolate(x.contiguous().view(1, -1, *grid), new, mode="bilinear")
    return torch.cat([first, x.permute(0, 2, 3, 1).reshape(1, -1, pos.shape[2])], 1)


def back_scrambled(pos, grid, new):
    first, x = parts_of(pos, grid)
    x = F.interpolate(x.mT.reshape(1, -1, *grid), new, mode="bicubic")
    return torch.cat([first, x.view(1, -1, pos.shape[2])], 1)


def one_long_row(pos, grid, new):
    first, x = parts_of(pos, grid)
    return torch.cat([first, F.interpolate(x.mT, size=new[0] * new[1], mode="linear").mT], 1)


def class_token_too(pos, grid, new):
    n = pos.shape[1] - grid[0] * grid[1]
    return F.interpolate(pos.transpose(1, 2), size=new[0] * new[1] + n, mode="linear").transpose(
        1, 2
    )


def listed(more):
    """A list of positions, cut off or continued."""

    def answer(pos, grid, new):
        first, x = parts_of(pos, grid)
        return torch.cat(
            [first, torch.cat([x, *[more(x)] * new[0] * new[1]], 1)[:, : new[0] * new[1]]], 1
        )

    return answer


def at_the_end(pos, grid, new):
    good = resize_positions(pos, grid, new)
    return good.roll(-1, 1) if pos.shape[1] > grid[0] * grid[1] else good


def any_count(pos, grid, new):
    N = grid[0] * grid[1]
    n = int(pos.shape[1] > N)
    x = F.pad(pos[:, n:], (0, 0, 0, N))[:, :N]
    return torch.cat([pos[:, :n], resize_positions(x, grid, new)], 1)


def in_place(pos, grid, new):
    pos *= 2
    return resized(pos, grid, new) / 2


def always_splits(pos, grid, new):
    """As published for models that have a class token."""
    first, x = pos[:, :1], pos[:, 1:]
    x = F.interpolate(x.reshape(1, *grid, -1).permute(0, 3, 1, 2), new, mode="bicubic")
    return torch.cat([first, x.permute(0, 2, 3, 1).flatten(1, 2)], 1)


def always_checked(pos, grid, new):
    if pos.shape[1] != grid[0] * grid[1] + 1:
        raise ValueError("the grid does not fit")
    return always_splits(pos, grid, new)


def never_splits(pos, grid, new):
    x = F.interpolate(pos.reshape(1, *grid, -1).movedim(3, 1), new, mode="bicubic")
    return x.flatten(2).mT


def square_grid(pos, grid, new):
    """The grid is guessed from the number of positions."""
    first, x = parts_of(pos, grid)
    side = int(x.shape[1] ** 0.5)
    x = F.interpolate(x.mT.unflatten(2, (side, side)), new, mode="bicubic")
    return torch.cat([first, x.flatten(2).mT], 1)


def number_unchanged(pos, grid, new):
    """A shortcut seen in the wild: nothing to do where the NUMBER of patches stays the same."""
    return pos if pos.shape[1] - new[0] * new[1] in (0, 1) else resized(pos, grid, new)


RESIZE_RIGHT = [
    resize_positions,
    resized,
    by_scale,
    lambda pos, grid, new: resized(pos.float(), grid, new).to(pos.dtype),
] + [
    with_options(mode=mode, antialias=antialias, align_corners=corners)
    for mode in ("bicubic", "bilinear")
    for antialias in (False, True)
    for corners in (False, True)
]
RESIZE_WRONG = written(
    "pos, grid, new",
    globals(),
    {
        "the class token's position is": "resized(parts_of(pos, grid)[1], grid, new)",
        "a class token has": "torch.cat([torch.zeros(1, 1, pos.shape[2]), "
        "resized(parts_of(pos, grid)[1], grid, new)], 1)",
        "leading axis": "resize_positions(pos, grid, new).squeeze(0)",
        "turn the image": "resized(pos, grid, new)[:, -new[0] * new[1] :].mT.unflatten(2, new)",
        "without nn.Parameter": "nn.Parameter(resized(pos, grid, new))",
        "gives complex numbers": "resized(pos, grid, new) * 1j",
        "StopIteration (next() found nothing left)": "next(iter(()))",
        "rows and columns of the new": [
            "resized(pos, grid, new[::-1])",
            'resized(pos, grid, new[::-1], mode="bilinear", antialias=True)',
        ],
        "rows and columns are swapped": "resized(pos, grid[::-1], new)",
        "no gradient flows back": "torch.from_numpy(resize_positions("
        "pos.detach(), grid, new).numpy())",
        "keep the type": "resize_positions(pos, grid, new).float()",
        "changed": "torch.randn_like(resized(pos, grid, new))",
        "gives different numbers than bicubic interpolation": "2 * resize_positions("
        "pos, grid, new) - pos[:, :1]",
    },
) | {
    "copies the nearest position": with_options(mode="nearest"),
    "(that is nearest-exact)": with_options(mode="nearest-exact"),
    "averages an area": with_options(method=lambda x, size, mode: F.adaptive_avg_pool2d(x, size)),
    "changes its input": in_place,
    "for learned positions of torch.float32": lambda pos, grid, new: resized(
        pos, grid, new, mode="nearest" if pos.requires_grad and grid != new else "bicubic"
    ),
    "without moving axes": scrambled,
    "with a reshape alone": back_scrambled,
    "column by column": with_options(back="1 d r c -> 1 (c r) d", antialias=True),
    "one long row": one_long_row,
    "where the new grid has as many, but its rows": number_unchanged,
    "the class token's position has changed": class_token_too,
    "repeats or truncates": listed(lambda x: x),
    "fills it with zeros": listed(torch.zeros_like),
    "moved to the end": at_the_end,
    "has the right shape with a class token, but from (4, 4)": always_splits,
    "without a class token it raises ValueError: the grid does not fit": always_checked,
    "has the right shape without a class token, but from (4, 4)": never_splits,
    "[x] resize_positions: from (3, 5) to (6, 4) with a class token it raises": square_grid,
    "raise a ValueError": any_count,
}

RIGHT = {
    "patch_embed": PATCH_RIGHT,
    "add_class_token": CLASS_RIGHT,
    "token_embed": TOKEN_RIGHT,
    "sincos": SINCOS_RIGHT,
    "resize_positions": RESIZE_RIGHT,
}
WRONG = {
    "patch_embed": PATCH_WRONG,
    "add_class_token": CLASS_WRONG,
    "token_embed": TOKEN_WRONG,
    "sincos": SINCOS_WRONG,
    "resize_positions": RESIZE_WRONG,
}
