"""Answers to the exercises of notebook 05."""

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from check_cases import attention as attention_cases
from check_cases import each, having, module, written, zeros
from check_cases import encoder as encoder_cases
from check_cases.patches import NUM_WRONG
from vit_helpers.attention import MultiHeadAttention
from vit_helpers.checks.vit_counts import COUNTED, VIT_PARAMETERS
from vit_helpers.checks.vit_mistakes import PASSES
from vit_helpers.embeddings import PatchEmbed, TokenEmbed
from vit_helpers.encoder import MLP, Block
from vit_helpers.vit import ViT, ViTConfig

# shapes


def stops(B, C, H, W, P, D, K, N=None, T=None, long=None):
    """The right shapes, or those for other numbers of patches, tokens, or pixels in a patch."""
    N = (H // P) * (W // P) if N is None else N
    T = T or N + 1
    return [(B, N, long or C * P * P), (B, N, D), (B, T, D), (B, T, D), (B, D), (B, K)]


def by_building(B, C, H, W, P, D, K, heads=1):
    with torch.device("meta"):
        config = ViTConfig(
            image_size=(H, W),
            patch_size=P,
            in_chans=C,
            num_classes=K,
            embed_dim=D,
            depth=1,
            num_heads=heads,
        )
        model, images = ViT(config), torch.zeros(B, C, H, W)
        features = model.forward_features(images)
        made = [
            model.patch_embed(images),
            model.embed(images),
            features,
            model.pool(features),
            model(images),
        ]
    return [(B, len(model.token_embed.pos_embed[0]) - 1, C * P * P), *(x.shape for x in made)]


SHAPES_RIGHT = [
    stops,
    lambda *sizes: dict(zip("abcdef", stops(*sizes), strict=True)),
    by_building,
    lambda *sizes: tuple(torch.Size(s) for s in stops(*sizes)),
    lambda b, c, height, width, p, d, k: [list(s) for s in stops(b, c, height, width, p, d, k)],
    lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=int(H * W / P**2)),
    lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=np.prod([H // P, W // P])),
    lambda *sizes: iter(stops(*sizes)),
]


def stop(text):
    """One stop is wrong; text: its number, and the shape in letters."""

    def answer(B, C, H, W, P, D, K):
        all_six, rows, cols = stops(B, C, H, W, P, D, K), H // P, W // P
        sizes = {"B": B, "C": C, "P": P, "D": D, "K": K, "N": rows * cols, "T": rows * cols + 1}
        sizes |= {"rows": rows, "cols": cols, "CPP": C * P * P, "D+1": D + 1, "7C": 7 * C, "1": 1}
        number, *shape = text.split()
        all_six[int(number)] = tuple(sizes[letter] for letter in shape)
        return all_six

    return answer


def told(says, table):
    """Whether a message of a table has these words."""
    return any(says in message for message in table)


def counting(says):
    """Shapes with another number of patches."""
    return lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=int(NUM_WRONG[says](H, W, P)))


def with_tokens(count):
    """Shapes with another number of tokens, from the number of patches."""
    return lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, T=count(H // P * (W // P)))


SHAPES_WRONG = each(with_tokens, written("N", globals(), {
    "the class token is missing": "N",
    "there is one class token": "N + 2", "not concatenated with them": "2 * (N + 1)",
})) | written("*sizes", globals(), {
    "there are six stages": ["stops(*sizes)[:5]", "iter(tuple, 0)"],
    "gives one shape": ["stops(*sizes)[0]", "[17] * 6"],
    "[x] shapes": "stops(2, 3, 32, 48, 8, 20, 5)", "a list of six shapes": "str(stops(*sizes))",
    "a shape is a tuple of numbers": '["abc"] * 6',
}) | {
    "H / P gives a float": lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, N=H / P * W / P),
    "of each of C channels": lambda B, C, H, W, P, D, K: stops(B, C, H, W, P, D, K, long=P * P),
    "that is one image": lambda B, *sizes: stops(1, *sizes),
} | {
    says: counting(says) for says in NUM_WRONG if told(says, COUNTED)
} | each(stop, {
    "removes the axis of the tokens": "4 B 1 D",
    "the batch axis is missing": ["4 D", "5 K", "0 N CPP"],
    "reads only the class token": "5 B T K",
    "turns D numbers into K": "5 B D", "this is after the projection": "0 B N D",
    "the projection is missing": "1 B N CPP",
    "the grid is one axis of N patches": "0 B rows cols CPP",
    "which comes before D": "1 B D rows cols", "a patch is flattened: ": "0 B N C P P",
    "a patch is flattened": "0 B C N P P",
    "there are 3 axes here": "0 B C 1 1 P P", "count again": "0 B N 7C",
    "the axis of the tokens comes": "1 B D N", "the class token comes later": "1 B T D",
    "an additional row, not a column": "2 B N D+1", "the batch axis comes first": "2 T B D",
    "only the next stage picks one": "3 B D", "all tokens are still there, but": "4 B T D",
    "all patches are still there": "4 B N D", "a token is a row of D numbers": "4 B T",
    "these are already": "4 B K",
})  # fmt: skip

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


def mean_by(average):
    """Another mean of the normed tokens."""
    return lambda z, n, h, p: h(n(z)[:, 0] if p == "cls" else average(n(z)))


def not_there(pool):
    if pool not in ("cls", "avg"):
        raise NotImplementedError


READ_RIGHT = [
    read,
    read_token_first,
    read_by_loop,
    read_functional,
    lambda z, n, h, p: h(n(z))[:, 0] if p == "cls" else read(z, n, h, p),
]
READ_WRONG = written("z, n, h, p", globals(), {
    "the final norm is missing": "h(pooled(z, p))", ": the head is missing": "pooled(n(z), p)",
    "norm and head are missing": "pooled(z, p)", "reads the last token": "h(n(z[:, -1]))",
    "reads the first patch": "h(n(z[:, 1]))",
    "the result of the class token when the mean": "h(n(z[:, 0]))",
    "the mean when the class token is requested": "h(n(z[:, 1:]).mean(1))",
    "averages before the norm, but": "h(n(pooled(z, p)))",
    "averages before the norm": 'h(n(z[:, 0] if p == "cls" else z.mean(1)))',
    "normalizes the mean once more": 'h(n(z)[:, 0] if p == "cls" else n(n(z)[:, 1:].mean(1)))',
    "the head reads one vector": "torch.stack([h(n(image)) for image in z])",
    "removes the axis of the tokens": "h(n(z[:, :1]))", "z[:, 0] each class token": "h(n(z[0]))",
    "z[:, 0] the first token of each": "h(n(z[0])[0])",
    "gives probabilities": "F.softmax(read(z, n, h, p), 1)",
    "gives logarithms": "F.log_softmax(read(z, n, h, p), 1)",
    "gives sigmoids": "torch.sigmoid(read(z, n, h, p))",
    "the norm is applied twice": "h(pooled(n(n(z)), p))",
    "uses a new": "read(z, nn.LayerNorm(z.shape[-1]).to(z), h, p)",
    "reads the first image for all": "torch.stack([read(z, n, h, p)[0]] * len(z))",
    "images mix": "read(z - z.mean(0), n, h, p)",
    "no gradient flows back":
        ["read(z, n, h, p).detach()", "F.linear(pooled(n(z), p), h.weight, h.bias.detach())"],
    "keep the type that came in": ["read(z, n, h, p).float()", "read(z, n, h, p).double()"],
    "anything but cls and avg": [
        "read(z, n, h, 'cls' if p == 'cls' else 'avg')",
        "read(z, n, h, {'c': 'cls', 'a': 'avg'}.get(p[:1], p))",
        "read(z, n, h, p.strip())",
    ],
    "raises KeyError": 'read(z, n, h, p) if p in ("cls", "avg") else {}[p]',
    "changes its input": "read(z.mul_(2), n, h, p)",
    "write raise instead of return": 'read(z, n, h, p) if p in ("cls", "avg") else ValueError(p)',
    "changes the numbers of the norm": "(n.reset_parameters(), read(z, n, h, p))[1]",
    "in another mode": "read(z, n.eval(), h, p)",
    "loses digits": "read(z, n, h, p).float().to(z.dtype)",
    "the head's bias is missing": "pooled(n(z), p) @ h.weight.T",
    "there is a tanh": "h(pooled(n(z), p).tanh())",
    "the numbers are not head(norm(z))": "2 * read(z, n, h, p)",
    "The head reads (B, D): the mean is over the tokens":
        'h(n(z)[:, 0] if p == "cls" else n(z)[:, 1:].mean(-1))',
    "mean() without dim": 'h(n(z)[:, 0] if p == "cls" else n(z)[:, 1:].mean())',
    "so the head comes after it": "pooled(n(h(z)), p)",
    "raises NotImplementedError for pool": "not_there(p) or read(z, n, h, p)",
}) | each(mean_by, written("x", globals(), {
    "averages the class token with the patches": "x.mean(1)",
    "adds up the patches": "x[:, 1:].sum(1)",
    "takes the maximum": "x[:, 1:].amax(1)", "leaves out the last patch": "x[:, :-1].mean(1)",
    "divides by T": "x[:, 1:].sum(1) / x.shape[1]",
}))  # fmt: skip

# vit_parameters


def counted(
    image_size,
    patch_size,
    in_chans,
    embed_dim,
    depth,
    num_classes,
    without=(),
    more=lambda N, P, D, L, K: 0,
):
    """The right count, without some parts; more: (N, C * P * P, D, L, K) -> what is added."""
    N, D, P = (image_size // patch_size) ** 2, embed_dim, in_chans * patch_size**2
    parts = {
        "projection": P * D + D,
        "class": D,
        "positions": (N + 1) * D,
        "norm": 2 * D,
        "head": (D + 1) * num_classes,
        "blocks": depth * (12 * D * D + 13 * D),
    }
    return sum(n for part, n in parts.items() if part not in without) + more(
        N, P, D, depth, num_classes
    )


def without(*parts):
    return lambda *sizes: counted(*sizes, without=parts)


def off_by(change):
    return lambda *sizes: counted(*sizes, more=change)


def count_by_building(image_size, patch_size, in_chans, embed_dim, depth, num_classes):
    with torch.device("meta"):
        config = ViTConfig(image_size, patch_size, in_chans, num_classes, embed_dim, depth, 2)
        return sum(p.numel() for p in ViT(config).parameters())


def counting_patches(says):
    """The right count but for the number of patches."""
    return lambda H, P, C, D, L, K: (
        counted(H, P, C, D, L, K) + int(NUM_WRONG[says](H, H, P) - H // P * (H // P)) * D
    )


COUNT_RIGHT = [
    counted,
    count_by_building,
    lambda *sizes, ratio=4.0: float(counted(*sizes)),
    lambda *sizes: torch.tensor(counted(*sizes)),
    lambda side, p, c, d, depth, k: sum(
        [(side // p) ** 2 * d, d * c * p * p, 5 * d, depth * d * (12 * d + 13), k * d + k]
    ),
]
COUNT_WRONG = each(off_by, written("N, P, D, L, K", globals(), {
    "the positions of the N patches are missing": "-N * D",
    "only one block is counted": "-(L - 1) * (12 * D * D + 13 * D)",
    "one block is missing": "-12 * D * D - 13 * D", "one block too many": "12 * D * D + 13 * D",
    "the two norms of every block": "-4 * D * L", "all norms are missing": "-4 * D * L - 2 * D",
    "too few, as many as one of a block's two norms": "-2 * D * L",
    "the biases inside the blocks are missing": "-9 * D * L",
    "all biases are missing": "-9 * D * L - D - K", "the MLP's biases, 4 D and D": "-5 * D * L",
    "2 D, not D": "-(2 * L + 1) * D", "the biases of queries, keys and values": "-3 * D * L",
    "attention's output projection": "-D * D * L", "10 too few, as many as the head's bias": "-K",
    "the head reads only the class token": "N * D * K", ", not N * D * K": "N * D * K - D * K",
    "the MLP is 4 D wide": "-6 * D * L * D", "the MLP two times 4 D * D": "-4 * D * L * D",
    "the MLP is missing": "-(8 * D * D + 5 * D) * L",
    "too few, as many as the projection's weight": "-P * D",
    "too many, as many as the projection's weight": "P * D",
    "D numbers too many": "D * 1", "2 D numbers too many": "D + D",
    "all patches share one projection": "(N - 1) * (P * D + D)",
    "the projection's bias has D numbers": "P - D",
    "the head's bias has K numbers": "-K + D", "biases and norms of the blocks": "-13 * D * L",
    "not the positions": "(L - 1) * (N * D + D)", "not the final norm": "2 * D * L - 2 * D",
    "go through the parts one by one": "12345",
})) | written("H, P, C, D, L, K", globals(), {
    "the projection reads all C channels": "counted(H, P, 1, D, L, K)",
    "a patch has P * P pixels": "counted(H, P, C, D, L, K) - C * P * P * D + C * P * D",
    "only the blocks are multiplied by the depth": "L * counted(H, P, C, D, 1, K)",
}) | written("*sizes", globals(), {
    "[x] vit_parameters": "{3: 86_567_656}.get(sizes[2], 0)",
    "it should give a whole number": ['f"{counted(*sizes):,}"', "counted(*sizes) + 0.5"],
    "the same for every size": "12345",
}) | {
    "the class token and all positions are missing": without("class", "positions"),
    "the positions are missing": without("positions"),
    "D numbers are missing: the class token": without("class"),
    "2 D numbers are missing: the final norm": without("norm"),
    "the head is missing": without("head"),
    "the final norm and the head are missing": without("head", "norm"),
    "the blocks are missing": without("blocks"),
} | {
    says: counting_patches(says) for says in NUM_WRONG if told(says, VIT_PARAMETERS.mistakes)
}  # fmt: skip

# vit and fix


class Base(nn.Module):
    """A right answer with places to go wrong."""

    extra, bias, last_norm, eps, dropout = 0, True, True, 1e-6, 0.0

    def __init__(self, image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads):
        super().__init__()
        self.D, self.K, self.L, self.P, self.h = (
            embed_dim,
            num_classes,
            depth,
            patch_size,
            num_heads,
        )
        self.patch_embed = PatchEmbed(image_size, patch_size, in_chans, embed_dim)
        self.N = self.patch_embed.grid[0] * self.patch_embed.grid[1]
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
        return run(self.blocks, z)

    def read(self, z):
        return self.head(self.norm(z)[:, 0])

    def forward(self, images):
        return self.read(self.encode(self.embed(images)))


def of(base=Base, **changes):
    """A class with some of its parts changed."""
    return type("Answer", (base,), changes)


class OwnParts(nn.Module):
    """Convolution, own parameters, torch's encoder."""

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
    """Everything by hand: E as the paper writes it, lists of parts, no blocks.

    Queries, keys and values are apart.
    """

    def __init__(self, size, p, c, k, d, depth, heads):
        super().__init__()
        self.p, self.heads, self.N = p, heads, (size // p) ** 2
        self.E, self.b = nn.Parameter(torch.randn(c * p * p, d) / 10), nn.Parameter(torch.zeros(d))
        self.cls, self.pos = nn.Parameter(torch.zeros(1, d)), nn.Embedding(self.N + 1, d)
        self.qkvo = nn.ModuleList(
            nn.ModuleList(nn.Linear(d, d) for _ in range(4)) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(depth)
        )
        self.lns = nn.ModuleList(nn.LayerNorm(d, eps=1e-6) for _ in range(2 * depth + 1))
        self.out = nn.Linear(d, k)

    def forward(self, x):
        x = rearrange(x, "b c (i p) (j q) -> b (i j) (c p q)", p=self.p, q=self.p) @ self.E + self.b
        x = torch.cat([self.cls.repeat(len(x), 1, 1), x], dim=1) + self.pos(
            torch.arange(self.N + 1)
        )
        for i, (parts, mlp) in enumerate(zip(self.qkvo, self.mlps, strict=True)):
            z = self.lns[2 * i](x)
            q, k, v = (rearrange(f(z), "b t (h d) -> b h t d", h=self.heads) for f in parts[:3])
            x = x + parts[3](
                rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)")
            )
            x = x + mlp(self.lns[2 * i + 1](x))
        return self.out(self.lns[-1](x)[:, 0])


def the_room(*sizes):
    image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads = sizes
    return ViT(
        ViTConfig(image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads)
    )


class HeadAsMatrix(Base):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head, self.W, self.b = (
            None,
            nn.Parameter(torch.zeros(self.D, self.K)),
            nn.Parameter(torch.zeros(self.K)),
        )

    def read(self, z):
        return self.norm(z)[:, 0] @ self.W + self.b


def with_part(place, part):
    """A pile of blocks in which one part is another."""

    def pile(self):
        blocks = Base.pile(self)
        for block in blocks:
            owner, _, name = place.rpartition(".")
            setattr(block.get_submodule(owner), name, part(self.D, self.h))
        return blocks

    return of(pile=pile)


def short_positions(N, D, first=lambda D: 0):
    """N positions, and first of all one for the class token, in a parameter of its own."""
    return module(
        having(
            cls_token=lambda: zeros(1, 1, D),
            pos_embed=lambda: zeros(1, N, D),
            first=lambda: first(D),
        ),
        lambda self, x: torch.cat(
            [self.cls_token.expand(len(x), -1, -1) + self.first, x + self.pos_embed], dim=1
        ),
    )()


def embeds(order):
    """Tokens from class token, patches and positions, put together by `order`."""

    def embed(self, images):
        token = self.token_embed
        return order(
            token.cls_token.expand(len(images), -1, -1), self.patch_embed(images), token.pos_embed
        )

    return of(embed=embed)


def reads(read):
    """Another reading of the normed tokens, (x, head)."""
    return of(read=lambda self, z: read(self.norm(z), self.head))


def encodes(encode):
    """Another way through the blocks, (blocks, z)."""
    return of(encode=lambda self, z: encode(list(self.blocks), z))


def run(blocks, z):
    for block in blocks:
        z = block(z)
    return z


def with_part_of(place, part, base=Base):
    """A model in which one part, wherever it is, is what a function makes of the model."""

    def __init__(self, *sizes):  # noqa: N807
        base.__init__(self, *sizes)
        owner, _, name = place.rpartition(".")
        new, owner = part(self), self.get_submodule(owner)
        if hasattr(owner, name):
            delattr(owner, name)
        setattr(owner, name, new)

    return of(base, __init__=__init__)


def pile_of(block):
    return of(pile=lambda self: nn.ModuleList(block(self.D, self.h) for _ in range(self.L)))


def cut_as(pattern):
    return of(
        embed=lambda self, images: self.token_embed(
            self.patch_embed.proj(rearrange(images, pattern, p=self.P, q=self.P))
        )
    )


def swapped(self, z):
    """The last norm's weight added, its bias multiplied."""
    return self.head(
        (F.layer_norm(run(self.blocks, z), z.shape[-1:]) * self.norm.bias + self.norm.weight)[:, 0]
    )


def after(change):
    """The right logits, changed."""
    return of(forward=lambda self, images: change(self, images, Base.forward(self, images)))


MODEL_RIGHT = [
    Base,
    with_part("attn", lambda d, h: attention_cases.HeadByHead(d, h, layers=3)),
    with_part("attn", attention_cases.Separate),
    with_part("mlp", lambda d, h: encoder_cases.Convolved(d, 4 * d)),
    with_part_of("kept", lambda m: nn.Parameter(torch.tensor(0.5), requires_grad=False)),
    HeadAsMatrix,
    the_room,
    OwnParts,
    Written,
    of(pile=lambda self: nn.Sequential(*Base.pile(self)), encode=lambda self, z: self.blocks(z)),
    of(eps=1e-5),
    of(read=lambda self, z: self.head(self.norm(z[:, 0]))),
    encodes(lambda blocks, z: torch.cat([run(blocks, image[None]) for image in z])),
]
BLOCK_WRONG = {
    says: cls[-1] if isinstance(cls, list) else cls
    for says, cls in encoder_cases.BLOCK_WRONG.items()
}
OF_BLOCKS = list(PASSES["block"])[2:]  # the first two are the model's own
MODEL_WRONG = each(reads, written("x, head", globals(), {
    "D numbers, so the head is missing": "x[:, 0]", "a result for every token": "head(x)",
    "gives shape": ["head(x[:, 0]).argmax(-1)", "head(x[0])"],
    "averages the patches": "head(x[:, 1:]).mean(1)",
    "averages all tokens": "head(x).mean(1)", "reads the last token": "head(x)[:, -1]",
    "reads token 1, a patch": "head(x)[:, 1]", "gives probabilities": "F.softmax(head(x[:, 0]), 1)",
    "gives logarithms": "F.log_softmax(head(x[:, 0]), 1)",
    "there is a sigmoid": "torch.sigmoid(head(x[:, 0]))",
    "there is a tanh": "head(torch.tanh(x[:, 0]))",
    "the head's bias is never added": "x[:, 0] @ head.weight.T",
    "get the wrong gradient": "F.linear(x[:, 0], head.weight, 2 * head.bias - head.bias.detach())",
})) | each(encodes, written("blocks, z", globals(), {
    "Are the blocks called": "z", "only the first block is applied": "run(blocks[:1], z)",
    "every block is applied twice": "run(blocks * 2, z)",
    "from last to first": "run(reversed(blocks), z)",
    "only the result of the last block counts":
        ["[block(z) for block in blocks][-1]", "blocks[-1](z)"],
    "the first block is applied again and again": "run([blocks[0] for block in blocks], z)",
    "the last block is never applied": "run(blocks[: len(blocks) - 1], z)",
    "the first block is never applied": "run(blocks[1 - len(blocks) :] * (len(blocks) > 1), z)",
    "the logits are not. Compare patches": "blocks[-1](run(blocks, z))",
    "the results are added": "torch.stack([block(z) for block in blocks]).mean(0)",
    "around all blocks": "z + run(blocks, z)",
    "adds a residual connection around a block":
        "run([lambda z, b=b: b(z) + z for b in blocks], z)",
})) | each(embeds, written("c, x, p", globals(), {
    "the positions are never added": "torch.cat([c, x], 1)",
    "the positions are added twice": "torch.cat([c, x], 1) + p + p",
    "the class token has no": "torch.cat([c, (p[:, 1:] + x)], 1)",
    "the class token is at": "p + torch.cat([x, c], 1)",
    "all tokens get": "torch.cat([c, x], 1) + p[:, :1]",
    "the learned numbers": "torch.cat([0 * c, x], 1) + p",
    "there is no class token among the tokens": "x + p[:, 1:] + 0",
    "not with a reshape": "torch.cat([c, x.transpose(1, 2).reshape(x.shape)], 1) + p",
})) | {
    "the class token and the positions are not registered": with_part_of(
        "token_embed.cls_token", lambda m: torch.zeros(1, 1, m.D),
        base=with_part_of("token_embed.pos_embed", lambda m: torch.zeros(1, m.N + 1, m.D)),
    ),
    # published: nn.Parameter(...).to(device), here an operation of the same effect
    "the positions are not registered":
        with_part_of(
            "token_embed.pos_embed", lambda m: 0.02 * nn.Parameter(torch.randn(1, m.N + 1, m.D)),
        ),
    "D numbers are missing": with_part_of("patch_embed.proj.bias", lambda m: None),
    "expanded in forward to the batch size":
        with_part_of("token_embed.cls_token", lambda m: nn.Parameter(torch.zeros(4, 1, m.D))),
    "there are N positions": of(tokens=lambda self: short_positions(self.N, self.D)),
    "keep the positions of all T tokens in one parameter":
        of(tokens=lambda self: short_positions(self.N, self.D, zeros)),
    "there are N positions and no class token":
        of(tokens=lambda self: TokenEmbed(self.patch_embed.grid, self.D, class_token=False)),
    "all tokens share one position":
        with_part_of("token_embed.pos_embed", lambda m: nn.Parameter(torch.zeros(m.D))),
    "all blocks are": of(pile=lambda self: nn.Sequential(*[Block(self.D, self.h)] * self.L)),
    "a plain list hides them": of(pile=lambda self: [Block(self.D, self.h) for _ in range(self.L)]),
    "there is one block too few": of(extra=-1),
    "one block too many": of(extra=1),
    "the final norm is missing": of(last_norm=False, read=lambda self, z: self.head(z[:, 0])),
    "there is one norm too many": with_part_of("pre", lambda m: nn.LayerNorm(m.D)),
    "each block has two norms of its own": with_part("norm1", lambda d, h: nn.Identity()),
    "the head is not registered": with_part_of("head", lambda m: [m.head][0].forward),
    "the patch projection is not registered":
        with_part_of("patch_embed.proj", lambda m: m.patch_embed.proj.forward),
    "the head has no bias": of(bias=False),
    "the final norm is never": of(read=lambda self, z: self.head(z[:, 0])),
    "the final norm comes":
        of(forward=lambda self, x: self.head(self.encode(self.norm(self.embed(x)))[:, 0])),
    "the final norm is applied before": of(encode=lambda self, z: run(self.blocks, self.norm(z))),
    "the final norm is applied twice": of(read=lambda self, z: Base.read(self, self.norm(z))),
    "after every block": of(
        encode=lambda self, z: run([nn.Sequential(b, self.norm) for b in self.blocks], z),
        read=lambda self, z: self.head(z[:, 0]),
    ),
    "weight and bias are swapped": of(encode=lambda self, z: z, read=swapped),
    "[x] ": [
        lambda *sizes: nn.Flatten(),
        lambda *sizes: the_room(8, 2, 3, 5, 8, 3, 2),
        of(forward=lambda self, images: torch.zeros(len(images), self.K)),
    ],
    "the head reads all tokens in a row": of(
        with_part_of("head", lambda m: nn.Linear(m.D * (m.N + 1), m.K)),
        read=lambda self, z: self.head(self.norm(z).flatten(1)),
    ),
    "the head is a single linear layer, K x D":
        with_part_of(
            "head",
            lambda m: nn.Sequential(nn.Linear(m.D, 3 * m.D), nn.Tanh(), nn.Linear(3 * m.D, m.K)),
        ),
    "one D x D layer too many": with_part_of("pre", lambda m: nn.Linear(m.D, m.D)),
    "the image is cut with":
        of(
            embed=lambda self, images: self.token_embed(
                self.patch_embed.proj(images.view(len(images), self.N, -1))
            )
        ),
    "rows and columns are swapped": of(embed=lambda self, images: Base.embed(self, images.mT)),
    "but C should come first": cut_as("b c (i p) (j q) -> b (i j) (p q c)"),
    "the patches run from top to bottom first instead of from left to right":
        cut_as("b c (i p) (j q) -> b (j i) (c p q)"),
    "the class token receives nothing":
        of(OwnParts, options={"activation": "gelu", "norm_first": True}),
    "the norms come after the sums":
        of(OwnParts, options={"activation": "gelu", "batch_first": True}),
    "doesn't have the parameters":
        pile_of(lambda d, h: nn.Sequential(nn.LayerNorm(d), MultiHeadAttention(d, h))),
    "queries, keys and values have no bias": [
        with_part("attn", lambda d, h: attention_cases.HeadByHead(d, h, bias=False, layers=3)),
        with_part("attn.qkv", lambda d, h: nn.Linear(d, 3 * d, bias=False)),
    ],
    "only if queries, keys and values have the same weights": [
        with_part(
            "attn",
            attention_cases.of(
                attention_cases.Separate, mix=lambda self, q, k, v: (q, (q + k) / 2, v),
            ),
        ),
        with_part(
            "attn",
            attention_cases.of(
                attention_cases.Separate, mix=lambda self, q, k, v: (q, (k + v) / 2, v),
            ),
        ),
    ],
    "(queries, keys, values, output projection), but one is missing":
        with_part("attn.proj", lambda d, h: nn.Identity()),
    "attention has a single head": with_part("attn", lambda d, h: MultiHeadAttention(d, 1)),
    "'tuple' (a tuple is used like a tensor": with_part(
        "mlp", lambda d, h: module(having(fc=nn.Linear), lambda self, x: (self.fc(x), x))(d, d)
    ),
    "the MLP is not 4 D wide":
        [
            with_part("mlp", lambda d, h: MLP(d, 2 * d)),
            with_part("mlp", lambda d, h: MLP(d, 3 * d)),
        ],
    "uses ReLU where":
        of(OwnParts, options={"activation": "relu", "norm_first": True, "batch_first": True}),
    "a norm's eps": of(eps=1e-3),
    "in training mode": [
        pile_of(lambda d, h: Block(d, h, dropout=0.1)),
        of(dropout=0.1),
        of(OwnParts, dropout=0.1),
        of(forward=lambda self, images: Base.forward(self, images) * (1 + self.training)),
    ],
    "at a second call": [
        embeds(lambda c, x, p: torch.cat([c + torch.randn_like(c), x], 1) + p),
        reads(lambda x, head: head(nn.Linear(x.shape[2], x.shape[2]).to(x)(x[:, 0]))),
    ],
    "no gradient reaches patch_embed":
        of(embed=lambda self, images: Base.embed(self, images).detach()),
    "no gradient flows back": of(embed=lambda self, images: Base.embed(self, images.detach())),
    "images mix":
        of(forward=lambda self, images: Base.forward(self, images - images.mean(0, keepdim=True))),
    "the logits are not. Compare patches, tokens": after(lambda self, images, y: 2 * y),
} | {
    says: pile_of(cls) for says, cls in BLOCK_WRONG.items() if told(says, OF_BLOCKS)
}  # fmt: skip

# equations: dictionaries, not functions, so tests/checks/test_vit_reading.py tries them

EQUATIONS = dict(zip("ABCDEFGHIJ", [2, 3, 1, "later", 1, 1, 1, "later", 4, 4], strict=True))
EQUATIONS_RIGHT = [
    EQUATIONS,
    {letter.lower(): f" {name} ".upper() for letter, name in EQUATIONS.items()},
    dict(reversed(EQUATIONS.items())),
]
EQUATIONS_WRONG = {
    "[ ] equations: not written yet": dict.fromkeys("ABCDEFGHIJ", ...),
    "pass a dictionary": list(EQUATIONS.values()),
    "there is no line K": EQUATIONS | {"K": 1},
    "J: no equation is named yet": {k: v for k, v in EQUATIONS.items() if k != "J"},
    "A: 5 is none of 1, 2, 3, 4": EQUATIONS | {"A": 5},
    "A: 'Eq. 2' is none of": EQUATIONS | {"A": "Eq. 2"},
    "A: equation 3 adds to each token what the MLP returns, while this line adds what attn":
        EQUATIONS | {"A": 3},
    "this line adds registers": EQUATIONS | {"D": 1},
    "this line normalizes before the first block": EQUATIONS | {"H": 4},
    'I: "later" is in none of the four': EQUATIONS | {"I": "later"},
    "J: equation 1 makes the tokens": EQUATIONS | {"J": 1},
}  # fmt: skip

RIGHT = {
    "shapes": SHAPES_RIGHT,
    "read_out": READ_RIGHT,
    "vit_parameters": COUNT_RIGHT,
    "vit": MODEL_RIGHT,
    "fix": [Base, OwnParts],
}
WRONG = {
    "shapes": SHAPES_WRONG,
    "read_out": READ_WRONG,
    "vit_parameters": COUNT_WRONG,
    "vit": MODEL_WRONG,
    "fix": {
        says: MODEL_WRONG[says]
        for says in ("all blocks are", "there is one block too few", "images mix")
    },
}
