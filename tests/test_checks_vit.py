"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vit_helpers.attention import MultiHeadAttention
from vit_helpers.checks.vit import check_mend, check_read_out, check_shapes, check_vit, check_vit_parameters
from vit_helpers.embeddings import PatchEmbed, TokenEmbed
from vit_helpers.encoder import MLP, Block
from vit_helpers.vit import ViT, ViTConfig


def not_written(*_):
    raise NotImplementedError("your turn: replace this line")


def endless(*anything):
    return endless(*anything)


# shapes


def stops(B, C, H, W, P, D, K, N=None, length=None, T=None, picked=None, logits=None):
    N = (H // P) * (W // P) if N is None else N
    T = N + 1 if T is None else T
    length = length or C * P * P
    return [(B, N, length), (B, N, D), (B, T, D), (B, T, D), picked or (B, D), logits or (B, K)]


def as_dict(B, C, H, W, P, D, K):
    names = ("patches", "projected", "tokens", "features", "class", "logits")
    return dict(zip(names, stops(B, C, H, W, P, D, K), strict=True))


def by_building(B, C, H, W, P, D, K, heads=1):
    with torch.device("meta"):
        config = ViTConfig(image_size=(H, W), patch_size=P, in_chans=C, num_classes=K, embed_dim=D, depth=1, num_heads=heads)
        model, images = ViT(config), torch.zeros(B, C, H, W)
        features = model.forward_features(images)
        made = [model.patch_embed(images), model.embed(images), features, model.pool(features), model(images)]
    return [(B, len(model.token_embed.pos_embed[0]) - 1, C * P * P), *(x.shape for x in made)]


SHAPES_RIGHT = [
    stops,
    as_dict,
    by_building,
    lambda *sizes: tuple(torch.Size(s) for s in stops(*sizes)),
    lambda b, c, height, width, p, d, k: [list(s) for s in stops(b, c, height, width, p, d, k)],
    lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=int(H * W / P**2)),
    lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=np.prod([H // P, W // P])),
    lambda *sizes: iter(stops(*sizes)),
]


def stop(number, shape):
    """One stop is wrong; shape: (B, C, P, D, K, rows, cols) -> what it is"""

    def answer(B, C, H, W, P, D, K):
        all_six = stops(B, C, H, W, P, D, K)
        all_six[number] = shape(B, C, P, D, K, H // P, W // P)
        return all_six

    return answer


SHAPES_WRONG = [
    (not_written, "[ ] shapes: not written yet"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, T=(H // P) * (W // P)), "the class token is missing"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, T=(H // P) * (W // P) + 2), "there is one class token"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=(H // P) ** 2), "rows times columns"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=H * W // P), "rows times columns"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=H / P * W / P), "H / P gives a float"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, length=P * P), "of each of C channels"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, picked=(B, 1, D)), "takes the axis of tokens away"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, picked=(D,)), "the batch axis is missing"),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, logits=(K,)), "the batch axis is missing"),
    (
        lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, logits=(B, (H // P) * (W // P) + 1, K)),
        "reads the class token",
    ),
    (lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, logits=(B, D)), "K numbers of D"),
    (stop(0, lambda B, C, P, D, K, rows, cols: (B, rows * cols, D)), "this is after the projection"),
    (stop(0, lambda B, C, P, D, K, rows, cols: (B, rows, cols, C * P * P)), "the grid is one axis"),
    (stop(0, lambda B, C, P, D, K, rows, cols: (rows * cols, C * P * P)), "the batch axis is missing"),
    (stop(0, lambda B, C, P, D, K, rows, cols: (B, C, rows * cols, P, P)), "a patch is flattened"),
    (stop(0, lambda B, C, P, D, K, rows, cols: (B, C, 1, 1, P, P)), "there are 3 axes here"),
    (stop(1, lambda B, C, P, D, K, rows, cols: (B, D, rows, cols)), "the grid is one axis"),
    (stop(1, lambda B, C, P, D, K, rows, cols: (B, D, rows * cols)), "tokens come before their numbers"),
    (stop(1, lambda B, C, P, D, K, rows, cols: (B, rows * cols + 1, D)), "the class token comes later"),
    (stop(2, lambda B, C, P, D, K, rows, cols: (B, rows * cols, D + 1)), "a row more, not a column"),
    (stop(2, lambda B, C, P, D, K, rows, cols: (rows * cols + 1, B, D)), "the batch axis comes first"),
    (stop(3, lambda B, C, P, D, K, rows, cols: (B, D)), "only the next stop picks one"),
    (stop(4, lambda B, C, P, D, K, rows, cols: (B, rows * cols, D)), "the head reads one of each image"),
    (stop(4, lambda B, C, P, D, K, rows, cols: (B, K)), "these are the logits already"),
    (lambda *sizes: stops(*sizes)[:5], "there are six stops"),
    (lambda *sizes: stops(*sizes)[0], "gives one shape"),
    (lambda *sizes: [17] * 6, "gives one shape"),
    (lambda *sizes: stops(2, 3, 32, 48, 8, 20, 5), "[x] shapes"),
    (lambda *sizes: None, "does it end with return?"),
    (lambda *sizes: str(stops(*sizes)), "a list of six shapes"),
    (lambda image: stops(1, 3, 8, 8, 2, 4, 3), "raises TypeError"),
    (endless, "raises RecursionError"),
    (stops(2, 3, 32, 48, 8, 20, 5), "hand over the function"),
]


# read_out


def pooled(x, pool):
    if pool not in ("cls", "avg"):
        raise ValueError(f"unknown pool {pool}")
    return x[:, 0] if pool == "cls" else x[:, 1:].mean(1)


def read(z, norm, head, pool):
    return head(pooled(norm(z), pool))


def read_token_first(z, norm, head, pool, unused=None):
    if pool == "cls":
        return head(norm(z[:, 0]))
    if pool == "avg":
        return head(norm(z[:, 1:]).sum(1) / (z.size(1) - 1))
    raise ValueError(pool)


def read_by_loop(tokens, ln, linear, how):
    reading = {"cls": lambda x: x[0], "avg": lambda x: torch.stack(list(x[1:])).mean(0)}
    if how not in reading:
        raise ValueError(how)
    return torch.stack([linear(reading[how](ln(image))) for image in tokens])


def read_functional(z, norm, head, pool):
    x = F.layer_norm(z, z.shape[-1:], norm.weight, norm.bias, norm.eps)
    return F.linear(pooled(x, pool), head.weight, head.bias)


READ_RIGHT = [
    read,
    read_token_first,
    read_by_loop,
    read_functional,
    lambda z, n, h, p: h(n(z))[:, 0] if p == "cls" else read(z, n, h, p),
]
READ_WRONG = [
    (not_written, "[ ] read_out: not written yet"),
    (lambda z, n, h, p: h(pooled(z, p)), "the last norm is missing"),
    (lambda z, n, h, p: pooled(n(z), p), "the head is missing"),
    (lambda z, n, h, p: h(n(z)[:, -1]), "reads the last token"),
    (lambda z, n, h, p: h(n(z)[:, 1]), "reads the first patch"),
    (lambda z, n, h, p: h(n(z)[:, 0]), "the class token's result where the mean"),
    (lambda z, n, h, p: h(n(z)[:, 1:].mean(1)), "the mean where the class token"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(z).mean(1)), "averages the class token with the patches"),
    (lambda z, n, h, p: h(n(pooled(z, p))), "averages before the norm"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(z)[:, 1:].sum(1)), "sums the patches"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(z)[:, 1:].amax(1)), "takes the largest"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(z)[:, :-1].mean(1)), "leaves out the last patch"),
    (lambda z, n, h, p: h(n(z)), "the head reads one vector an image"),
    (lambda z, n, h, p: h(n(z)[:, :1]), "takes the axis of tokens away"),
    (lambda z, n, h, p: h(n(z)[0]), "z[:, 0] each class token"),
    (lambda z, n, h, p: h(n(z[0])[0]), "z[0] is the first image"),
    (lambda z, n, h, p: read(z, n, h, p).softmax(-1), "gives probabilities"),
    (lambda z, n, h, p: read(z, n, h, p).log_softmax(-1), "gives logarithms"),
    (lambda z, n, h, p: read(n(z), n, h, p), "the norm is applied twice"),
    (lambda z, n, h, p: read(z, nn.LayerNorm(z.shape[-1]), h, p), "uses a fresh norm"),
    (lambda z, n, h, p: read(z[:1], n, h, p).expand(len(z), -1), "reads the first image for all"),
    (lambda z, n, h, p: read(z, n, h, p).detach(), "no gradient flows back"),
    (lambda z, n, h, p: read(z, n, h, p).float(), "keep the type that came in"),
    (lambda z, n, h, p: read(z, n, h, "cls" if p == "cls" else "avg"), "it knows cls and avg only"),
    (lambda z, n, h, p: read(z, n, h, p) if p in ("cls", "avg") else {}[p], "raises KeyError"),
    (lambda z, n, h, p: read(z.mul_(1), n, h, p) + 0 * z.zero_().sum(), "[x] read_out"),
    (lambda z, n, h, p: read(z, n, h, {"c": "cls", "a": "avg"}.get(p[:1], p)), "it knows cls and avg only"),
    (lambda z, n, h, p: read(z, n, h, p.strip()), "it knows cls and avg only"),
    (lambda z, n, h, p: read(z, n, h, p) if p in ("cls", "avg") else ValueError(p), "write raise in place of return"),
    (lambda z, n, h, p: (n.reset_parameters(), read(z, n, h, p))[1], "changes the weights"),
    (lambda z, n, h, p: F.linear(pooled(n(z), p), h.weight, h.bias.detach()), "no gradient flows back"),
    (lambda z, n, h, p: read(z, n, h, p).float().to(z.dtype), "loses digits"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(z)[:, 1:].sum(1) / z.shape[1]), "divides by T"),
    (lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else n(n(z)[:, 1:].mean(1))), "norms the mean once more"),
    (lambda z, n, h, p: pooled(n(z), p) @ h.weight.T, "the head's bias is left out"),
    (lambda z, n, h, p: h(pooled(n(z), p).tanh()), "a tanh stands before the head"),
    (lambda z, n, h, p: None, "does it end with return?"),
    (read(*[torch.zeros(1, 2, 3), nn.Identity(), nn.Identity(), "cls"]), "hand over the function"),
]


# counting


def counted(image_size, patch_size, in_chans, embed_dim, depth, num_classes, without=()):
    N, D = (image_size // patch_size) ** 2, embed_dim
    parts = {
        "projection": in_chans * patch_size**2 * D + D,
        "class": D,
        "positions": (N + 1) * D,
        "blocks": depth * (12 * D * D + 13 * D),
        "norm": 2 * D,
        "head": (D + 1) * num_classes,
    }
    return sum(n for part, n in parts.items() if part not in without)


def without(*parts):
    return lambda *sizes: counted(*sizes, without=parts)


def off_by(change):
    """change: (N, C * P * P, D, L, K) -> what is added to the right count"""

    def answer(image_size, patch_size, in_chans, embed_dim, depth, num_classes):
        right = counted(image_size, patch_size, in_chans, embed_dim, depth, num_classes)
        N = (image_size // patch_size) ** 2
        return right + change(N, in_chans * patch_size**2, embed_dim, depth, num_classes)

    return answer


def count_by_building(image_size, patch_size, in_chans, embed_dim, depth, num_classes):
    with torch.device("meta"):
        config = ViTConfig(image_size, patch_size, in_chans, num_classes, embed_dim, depth, 2)
        return sum(p.numel() for p in ViT(config).parameters())


COUNT_RIGHT = [
    counted,
    count_by_building,
    lambda *sizes, ratio=4.0: float(counted(*sizes)),
    lambda *sizes: torch.tensor(counted(*sizes)),
    lambda side, p, c, d, depth, k: sum([(side // p) ** 2 * d, d * c * p * p, 5 * d, depth * d * (12 * d + 13), k * d + k]),
]
COUNT_WRONG = [
    (not_written, "[ ] vit_parameters: not written yet"),
    (without("class", "positions"), "the class token and all positions are missing"),
    (without("positions"), "the positions are missing"),
    (without("class"), "D numbers are missing: the class token"),
    (without("norm"), "the last norm"),
    (without("head"), "the head is missing"),
    (off_by(lambda N, P, D, L, K: -N * D), "the positions of the N patches are missing"),
    (off_by(lambda N, P, D, L, K: -(L - 1) * (12 * D * D + 13 * D)), "only one block is counted"),
    (off_by(lambda N, P, D, L, K: 12 * D * D + 13 * D), "one block too many"),
    (off_by(lambda N, P, D, L, K: -4 * D * L), "the two norms of every block"),
    (off_by(lambda N, P, D, L, K: -2 * D * L), "missing: one of a block's two norms"),
    (off_by(lambda N, P, D, L, K: -9 * D * L), "the biases inside the blocks are missing"),
    (off_by(lambda N, P, D, L, K: -9 * D * L - D - K), "all biases are missing"),
    (off_by(lambda N, P, D, L, K: -D * (2 * L + 1)), "2 D, not D"),
    (off_by(lambda N, P, D, L, K: -3 * D * L), "the biases of queries, keys and values"),
    (off_by(lambda N, P, D, L, K: -D * D * L), "attention's output projection"),
    (off_by(lambda N, P, D, L, K: -K), "missing: the head's bias"),
    (off_by(lambda N, P, D, L, K: N * D * K), "the head reads the class token alone"),
    (off_by(lambda N, P, D, L, K: -6 * D * D * L), "the MLP is 4 D wide"),
    (off_by(lambda N, P, D, L, K: -P * D), "missing: the projection's weight"),
    (off_by(lambda N, P, D, L, K: P * D), "counted twice: the projection's weight"),
    (off_by(lambda N, P, D, L, K: (round(N**0.5) - N) * D), "rows times columns of the grid"),
    (off_by(lambda N, P, D, L, K: D), "D numbers too many"),
    (off_by(lambda N, P, D, L, K: (N - 1) * (P * D + D)), "all patches share one projection"),
    (off_by(lambda N, P, D, L, K: P - D), "the projection's bias has D numbers"),
    (off_by(lambda N, P, D, L, K: D - K), "the head's bias has K numbers"),
    (off_by(lambda N, P, D, L, K: -D * K - K - 2 * D), "the last norm and the head are missing"),
    (off_by(lambda N, P, D, L, K: -13 * D * L), "biases and norms of the blocks"),
    (off_by(lambda N, P, D, L, K: -L * (12 * D * D + 13 * D)), "the blocks are missing"),
    (off_by(lambda N, P, D, L, K: (L - 1) * (N + 1) * D), "not the positions"),
    (lambda *sizes: sizes[4] * counted(*sizes[:4], 1, sizes[5]), "only the blocks are multiplied by the depth"),
    (off_by(lambda N, P, D, L, K: 12345), "go through the parts one by one"),
    (lambda *sizes: {3: 86_567_656}.get(sizes[2], 0), "[x] vit_parameters"),
    (lambda *sizes: f"{counted(*sizes):,}", "it should give a number"),
    (lambda *sizes: None, "does it end with return?"),
    (lambda *sizes: counted(32, 4, 3, 40, 3, 10), "[x] vit_parameters"),
]


# the whole model


class Base(nn.Module):
    """A right answer with places to go wrong"""

    extra, bias, last_norm, eps, dropout = 0, True, True, 1e-6, 0.0

    def __init__(self, image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads):
        super().__init__()
        self.D, self.K, self.L, self.P, self.h = embed_dim, num_classes, depth, patch_size, num_heads
        self.patch_embed = PatchEmbed(image_size, patch_size, in_chans, embed_dim)
        self.token_embed = self.tokens()
        self.blocks = self.pile()
        if self.last_norm:
            self.norm = nn.LayerNorm(embed_dim, eps=self.eps)
        self.head = nn.Linear(embed_dim, num_classes, bias=self.bias)

    def tokens(self):
        return TokenEmbed(self.patch_embed.grid, self.D, dropout=self.dropout)

    def pile(self):
        return nn.ModuleList(Block(self.D, self.h) for _ in range(self.L + self.extra))

    def embed(self, images):
        return self.token_embed(self.patch_embed(images))

    def encode(self, z):
        for block in self.blocks:
            z = block(z)
        return z

    def read(self, z):
        return self.head(self.norm(z)[:, 0])

    def forward(self, images):
        return self.read(self.encode(self.embed(images)))


def of(base=Base, **changes):
    """A class with some of its parts changed"""
    return type("Answer", (base,), changes)


class OwnParts(nn.Module):
    """Convolution, own parameters, torch's encoder"""

    dropout, options = 0.0, {"activation": "gelu", "norm_first": True, "batch_first": True}

    def __init__(self, size, p, c, k, d, depth, heads, ratio=4):
        super().__init__()
        self.stem = nn.Conv2d(c, d, p, p)
        self.cls = nn.Parameter(torch.zeros(d))
        self.pos = nn.Parameter(0.02 * torch.randn((size // p) ** 2 + 1, d))
        layer = nn.TransformerEncoderLayer(d, heads, ratio * d, self.dropout, **self.options)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.ln, self.fc = nn.LayerNorm(d), nn.Linear(d, k)

    def forward(self, x):
        x = rearrange(self.stem(x), "b d h w -> b (h w) d")
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1) + self.pos
        return self.fc(self.ln(self.encoder(x))[:, 0])


class Written(nn.Module):
    """Everything by hand: E as the paper writes it, queries, keys and values apart, lists of parts, no blocks"""

    def __init__(self, size, p, c, k, d, depth, heads):
        super().__init__()
        self.p, self.heads, self.N = p, heads, (size // p) ** 2
        self.E, self.b = nn.Parameter(torch.randn(c * p * p, d) / 10), nn.Parameter(torch.zeros(d))
        self.cls, self.pos = nn.Parameter(torch.zeros(1, d)), nn.Embedding(self.N + 1, d)
        self.qkvo = nn.ModuleList(nn.ModuleList(nn.Linear(d, d) for _ in range(4)) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(depth))
        self.lns = nn.ModuleList(nn.LayerNorm(d, eps=1e-6) for _ in range(2 * depth + 1))
        self.out = nn.Linear(d, k)

    def forward(self, x):
        x = rearrange(x, "b c (i p) (j q) -> b (i j) (c p q)", p=self.p, q=self.p) @ self.E + self.b
        x = torch.cat([self.cls.repeat(len(x), 1, 1), x], dim=1) + self.pos(torch.arange(self.N + 1))
        for i, (parts, mlp) in enumerate(zip(self.qkvo, self.mlps, strict=True)):
            z = self.lns[2 * i](x)
            q, k, v = (rearrange(f(z), "b t (h d) -> b h t d", h=self.heads) for f in parts[:3])
            x = x + parts[3](rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))
            x = x + mlp(self.lns[2 * i + 1](x))
        return self.out(self.lns[-1](x)[:, 0])


def the_room(*sizes):
    image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads = sizes
    return ViT(ViTConfig(image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads))


class HeadByHead(nn.Module):
    """Attention whose heads have layers of their own"""

    def __init__(self, d, heads, bias=True):
        super().__init__()
        layers = [nn.ModuleList(nn.Linear(d, d // heads, bias=bias) for _ in range(3)) for _ in range(heads)]
        self.heads, self.out = nn.ModuleList(layers), nn.Linear(d, d)

    def forward(self, x, mask=None):
        parts = ([f(x) for f in head] for head in self.heads)
        return self.out(torch.cat([F.scaled_dot_product_attention(*qkv) for qkv in parts], dim=-1))


class Frozen(Base):
    """A number that is kept, and not learned"""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.spread = nn.Parameter(torch.tensor(0.5), requires_grad=False)


class HeadAsMatrix(Base):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head, self.W, self.b = None, nn.Parameter(torch.zeros(self.D, self.K)), nn.Parameter(torch.zeros(self.K))

    def read(self, z):
        return self.norm(z)[:, 0] @ self.W + self.b


def with_part(place, part):
    """A pile of blocks in which one part is another"""

    def pile(self):
        blocks = Base.pile(self)
        for block in blocks:
            owner, _, name = place.rpartition(".")
            setattr(block.get_submodule(owner), name, part(self.D, self.h))
        return blocks

    return of(pile=pile)


def forwards(forward):
    return pile_of(type("Other", (Block,), {"forward": forward}))


MODEL_RIGHT = [
    Base,
    with_part("attn", HeadByHead),
    Frozen,
    HeadAsMatrix,
    the_room,
    OwnParts,
    Written,
    of(
        pile=lambda self: nn.Sequential(*[Block(self.D, self.h) for _ in range(self.L)]),
        encode=lambda self, z: self.blocks(z),
    ),
    of(eps=1e-5),
    of(read=lambda self, z: self.head(self.norm(z[:, 0]))),
    of(encode=lambda self, z: torch.stack([Base.encode(self, image[None])[0] for image in z])),
]


class Bare(nn.Module):
    """Class token and positions as a mistake would have them"""

    def __init__(self, N, D):
        super().__init__()
        self.cls_token, self.pos_embed = torch.zeros(1, 1, D), 0.02 * torch.randn(1, N + 1, D)

    def forward(self, x):
        return torch.cat([self.cls_token.to(x).expand(len(x), -1, -1), x], dim=1) + self.pos_embed.to(x)


class Moved(Bare):
    """Published: nn.Parameter(...).to(device), here an operation of the same effect"""

    def __init__(self, N, D):
        super().__init__(N, D)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        self.pos_embed = nn.Parameter(torch.randn(1, N + 1, D)) * 0.02


class BatchToken(TokenEmbed):
    def __init__(self, grid, dim):
        super().__init__(grid, dim)
        self.cls_token = nn.Parameter(torch.zeros(4, 1, dim))

    def forward(self, x):
        return torch.cat([self.cls_token, x], dim=1) + self.pos_embed


class NewToken(TokenEmbed):
    def forward(self, x):
        return torch.cat([torch.randn(len(x), 1, x.shape[2]).to(x) + self.cls_token, x], dim=1) + self.pos_embed


class NoToken(TokenEmbed):
    def __init__(self, grid, dim):
        super().__init__(grid, dim, class_token=False)


class ShortPositions(nn.Module):
    def __init__(self, N, D):
        super().__init__()
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, D)), nn.Parameter(torch.zeros(1, N, D))

    def forward(self, x):
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x + self.pos_embed], dim=1)


def number(self):
    return self.patch_embed.grid[0] * self.patch_embed.grid[1]


def with_tokens(self, order):
    """Tokens from class token, patches and positions, put together by `order`"""
    return lambda images: order(
        self.token_embed.cls_token.expand(len(images), -1, -1), self.patch_embed(images), self.token_embed.pos_embed
    )


def embeds(order):
    return of(embed=lambda self, images: with_tokens(self, order)(images))


class Flat(Base):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head = nn.Linear(self.D * (number(self) + 1), self.K)

    def read(self, z):
        return self.head(self.norm(z).flatten(1))


class Hidden(Base):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.pre = nn.Linear(self.D, self.D)

    def read(self, z):
        return self.head(self.pre(self.norm(z)[:, 0]).tanh())


class Seen(nn.Module):
    """torch's attention without batch_first: images mix"""

    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn, self.mlp = nn.MultiheadAttention(dim, heads), MLP(dim, 4 * dim)

    def forward(self, x):
        z = self.norm1(x)
        x = x + self.attn(z, z, z, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class NoResidual(Block):
    def forward(self, x):
        return self.mlp(self.norm2(self.attn(self.norm1(x))))


class PostNorm(Block):
    def forward(self, x):
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.mlp(x))


def pile_of(block):
    return of(pile=lambda self: nn.ModuleList(block(self.D, self.h) for _ in range(self.L)))


def repeated(self):
    return nn.Sequential(*[Block(self.D, self.h)] * self.L)


def cut_by_view(self, images):
    flat = images.reshape(len(images), number(self), -1)
    return self.token_embed(self.patch_embed.proj(flat))


def cut_as(pattern):
    return of(
        embed=lambda self, images: self.token_embed(self.patch_embed.proj(rearrange(images, pattern, p=self.P, q=self.P)))
    )


def scrambled(self, images):
    x = self.patch_embed(images)
    return self.token_embed(x.transpose(1, 2).reshape(x.shape))


def norm_first(self, z):
    return self.head(Base.encode(self, self.norm(z))[:, 0])


class Rounds(Base):
    def forward(self, images):
        return super().forward(images).float().to(images.dtype)


class NewHead(Base):
    def read(self, z):
        return self.head(nn.Linear(self.D, self.D).to(z)(self.norm(z)[:, 0]))


class Memory(Base):
    def forward(self, images):
        return super().forward(images.mul_(0.5))


MODEL_WRONG = [
    (of(forward=not_written), "not written yet"),
    (of(tokens=lambda self: Bare(number(self), self.D)), "the class token and the positions are not registered"),
    (of(tokens=lambda self: Moved(number(self), self.D)), "the positions are not registered"),
    (of(tokens=lambda self: BatchToken(self.patch_embed.grid, self.D)), "expanded in forward to the batch at hand"),
    (of(tokens=lambda self: NewToken(self.patch_embed.grid, self.D)), "at a second call"),
    (of(tokens=lambda self: ShortPositions(number(self), self.D)), "there are N positions; the class token has one too"),
    (of(tokens=lambda self: NoToken(self.patch_embed.grid, self.D)), "there are N positions and no class token"),
    (of(pile=repeated), "all blocks are one and the same"),
    (of(pile=lambda self: [Block(self.D, self.h) for _ in range(self.L)]), "a plain list hides them"),
    (of(extra=-1), "[x] "),
    (of(extra=1), "one block too many"),
    (of(last_norm=False, read=lambda self, z: self.head(z[:, 0])), "the last norm is missing"),
    (of(read=lambda self, z: self.head(z[:, 0])), "the last norm is never applied"),
    (of(read=norm_first, encode=lambda self, z: z), "the last norm stands before the blocks"),
    (of(bias=False), "the head has no bias"),
    (of(read=lambda self, z: self.norm(z)[:, 0]), "the head is missing"),
    (of(read=lambda self, z: self.head(self.norm(z))), "a result for every token"),
    (of(read=lambda self, z: self.head(self.norm(z)[:, 1:].mean(1))), "averages the patches"),
    (of(read=lambda self, z: self.head(self.norm(z).mean(1))), "averages all tokens"),
    (of(read=lambda self, z: self.head(self.norm(z)[:, -1])), "reads the last token"),
    (of(read=lambda self, z: self.head(self.norm(z)[:, 1])), "reads token 1, a patch"),
    (of(read=lambda self, z: Base.read(self, z).softmax(-1)), "gives probabilities"),
    (of(read=lambda self, z: Base.read(self, z).log_softmax(-1)), "gives logarithms"),
    (of(read=lambda self, z: Base.read(self, z).argmax(-1)), "gives shape"),
    (of(read=lambda self, z: self.head(self.norm(self.norm(z))[:, 0])), "the last norm is applied twice"),
    (of(read=lambda self, z: self.head(self.norm(z)[:, 0].tanh())), "a tanh stands before the head"),
    (of(read=lambda self, z: self.head(self.norm(z)[0])), "[x] "),
    (of(encode=lambda self, z: z), "Are the blocks called"),
    (of(encode=lambda self, z: Base.encode(self, Base.encode(self, z))), "every block is applied twice"),
    (of(encode=lambda self, z: self.blocks[0](z)), "[x] "),
    (Flat, "the head reads all tokens in a row"),
    (Hidden, "a D x D layer too many"),
    (embeds(lambda c, x, p: torch.cat([c, x], 1)), "the positions are never added"),
    (embeds(lambda c, x, p: torch.cat([c, x], 1) + 2 * p), "the positions are added twice"),
    (embeds(lambda c, x, p: torch.cat([c, x + p[:, 1:]], 1)), "the class token is left without its position"),
    (embeds(lambda c, x, p: torch.cat([x, c], 1) + p), "the class token stands at the end"),
    (of(embed=cut_by_view), "cut by a bare view"),
    (of(embed=scrambled), "not by a reshape"),
    (pile_of(Seen), "the class token never sees a patch"),
    (pile_of(NoResidual), "[x] "),
    (pile_of(PostNorm), "the norms stand behind attention and MLP"),
    (pile_of(lambda d, h: nn.Sequential(nn.LayerNorm(d), MultiHeadAttention(d, h))), "has not the parameters"),
    (with_part("attn", lambda d, h: HeadByHead(d, h, bias=False)), "queries, keys and values have no bias"),
    (with_part("attn.qkv", lambda d, h: nn.Linear(d, 3 * d, bias=False)), "queries, keys and values have no bias"),
    (with_part("attn.proj", lambda d, h: nn.Identity()), "attention has an output projection"),
    (with_part("mlp", lambda d, h: MLP(d, 2 * d)), "the MLP is not 4 D wide"),
    (with_part("mlp.act", lambda d, h: nn.Identity()), "the MLP has no activation"),
    (with_part("mlp.act", lambda d, h: nn.GELU(approximate="tanh")), "tanh approximation"),
    (forwards(lambda b, x: b.mlp(b.norm2(z := x + b.attn(b.norm1(x)))) + 0 * z), "the residual around the MLP"),
    (forwards(lambda b, x: (z := b.attn(b.norm1(x))) + b.mlp(b.norm2(z))), "the residual around attention"),
    (forwards(lambda b, x: x + b.attn(b.norm1(x)) + b.mlp(b.norm2(x))), "attention and MLP read the same"),
    (forwards(lambda b, x: (z := b.norm1(x) + b.attn(b.norm1(x))) + b.mlp(b.norm2(z))), "[x] "),
    (forwards(lambda b, x: (z := x + b.attn(b.norm1(x))) + F.gelu(b.mlp(b.norm2(z)))), "a GELU stands behind"),
    (forwards(lambda b, x: (z := x + b.attn(b.norm1(x))) + b.mlp(z)), "no norm stands before the MLP"),
    (of(encode=lambda self, z: sum(block(z) for block in self.blocks)), "every block reads what entered the first"),
    (of(encode=lambda self, z: [block(z) for block in self.blocks][-1]), "every block reads what entered the first"),
    (of(encode=lambda self, z: z + Base.encode(self, z)), "around all blocks"),
    (of(read=lambda self, z: self.norm(z)[:, 0] @ self.head.weight.T), "the head's bias is never added"),
    (of(read=lambda self, z: Base.read(self, z).sigmoid()), "a sigmoid stands behind the head"),
    (of(embed=lambda self, images: Base.embed(self, images.mT)), "rows and columns are swapped"),
    (embeds(lambda c, x, p: torch.cat([c, x], 1) + p[:, :1]), "all tokens get one position"),
    (embeds(lambda c, x, p: torch.cat([0 * c, x], 1) + p), "the class token's own numbers"),
    (of(eps=1e-3), "a norm's eps"),
    (cut_as("b c (i p) (j q) -> b (i j) (p q c)"), "here C goes first"),
    (cut_as("b c (i p) (j q) -> b (j i) (c p q)"), "patches go down first"),
    (pile_of(lambda d, h: Block(d, h, dropout=0.1)), "in training mode"),
    (of(dropout=0.1), "in training mode"),
    (of(OwnParts, options={"activation": "relu", "norm_first": True, "batch_first": True}), "uses ReLU"),
    (of(OwnParts, options={"activation": "gelu", "batch_first": True}), "the norms stand behind"),
    (of(OwnParts, options={"activation": "gelu", "norm_first": True}), "the class token never sees a patch"),
    (of(OwnParts, dropout=0.1), "in training mode"),
    (of(forward=lambda self, images: Base.forward(self, images).detach()), "no gradient reaches"),
    (of(embed=lambda self, images: Base.embed(self, images).detach()), "no gradient reaches patch_embed"),
    (of(forward=torch.no_grad()(Base.forward)), "no gradient reaches"),
    (of(embed=lambda self, images: Base.embed(self, images.detach())), "no gradient flows back"),
    (Rounds, "only as exact as float32"),
    (NewHead, "at a second call"),
    (Memory, "changes its input"),
    (of(forward=lambda self, images: None), "does it end with return?"),
    (of(forward=lambda self, images: torch.zeros(len(images), self.K)), "[x] "),
    (of(forward=lambda self, images: Base.forward(self, images - images.mean(0, keepdim=True))), "images mix"),
    (Base(8, 2, 3, 5, 8, 3, 2), "hand over the class itself"),
    (lambda *sizes: 3, "it should be an nn.Module"),
    (lambda size, p, c, k, d, depth: Base(size, p, c, k, d, depth, 2), "raises TypeError"),
    (lambda *sizes: nn.Flatten(), "[x] "),
    (lambda *sizes: the_room(8, 2, 3, 5, 8, 3, 2), "[x] "),
]


def cases(*pairs):
    return [(check, *((entry,) if not isinstance(entry, tuple) else entry)) for check, list_ in pairs for entry in list_]


RIGHT = cases(
    (check_shapes, SHAPES_RIGHT),
    (check_read_out, READ_RIGHT),
    (check_vit_parameters, COUNT_RIGHT),
    (check_vit, MODEL_RIGHT),
    (check_mend, MODEL_RIGHT),
)
WRONG = [
    (check, answer, says)
    for check, wrong in (
        (check_shapes, SHAPES_WRONG),
        (check_read_out, READ_WRONG),
        (check_vit_parameters, COUNT_WRONG),
        (check_vit, MODEL_WRONG),
        (check_mend, MODEL_WRONG),
    )
    for answer, says in wrong
]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert says in last and not last.startswith("[v]")
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("seed", range(5))
def test_a_check_depends_on_no_seed_and_moves_none(seed, capsys):
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    assert check_vit(Base) and check_read_out(read)
    assert torch.equal(before, torch.get_rng_state())


def test_a_notebook_in_float64_changes_no_mark(capsys):
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert check_vit(Base) and check_vit(OwnParts) and check_read_out(read)
    finally:
        torch.set_default_dtype(torch.float32)
