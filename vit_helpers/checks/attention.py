"""The exercises of notebook 03."""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vit_helpers.attention import MultiHeadAttention, attention
from vit_helpers.checks.compare import same
from vit_helpers.checks.contract import contract
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.modules import (
    ModuleExercise,
    apart,
    every_gradient,
    made,
    numbers,
    other_sizes,
    output,
    parameters,
    shapes,
)
from vit_helpers.checks.report import reject_if

# Functions: attention and its mask


def table(q: Tensor, k: Tensor) -> Tensor:
    """Every query with every key, (..., T, T), not yet divided."""
    return q @ k.transpose(-2, -1)


def ratio(q: Tensor, k: Tensor) -> Tensor:
    return table(q, k) / math.sqrt(q.shape[-1])


def weights(wrong: Callable) -> Callable:
    """A whole wrong answer from wrong weights."""
    return lambda q, k, v, *mask: (wrong(q, k, v, *mask) @ v, wrong(q, k, v, *mask))


def values(wrong: Callable) -> Callable:
    """A whole wrong answer from wrong values, with the right weights."""
    return lambda q, k, v, *mask: (wrong(attention(q, k, v, *mask)[1], q, k, v), attention(q, k, v, *mask)[1])


WEIGHTS = {  # wrong weights
    "the scores are not divided by sqrt(d) before the softmax": lambda q, k, v: table(q, k).softmax(-1),
    "divides by sqrt(d) after the softmax; divide the scores first, or a row no longer sums to 1":
        lambda q, k, v: table(q, k).softmax(-1) / math.sqrt(q.shape[-1]),
    "divides by d; the scores are divided by its square root": lambda q, k, v: (table(q, k) / q.shape[-1]).softmax(-1),
    "divides by the root of T, the number of tokens; d is the last axis of q":
        lambda q, k, v: (table(q, k) / math.sqrt(q.shape[-2])).softmax(-1),
    "divides by sqrt(D), the width of all heads together; d is the width of one head, the last axis of q":
        lambda q, k, v: (table(q, k) / math.sqrt(q.shape[-1] * (q.shape[-3] if q.ndim > 3 else 1))).softmax(-1),
    "multiplies the scores by sqrt(d); they are divided by it":
        lambda q, k, v: (table(q, k) * math.sqrt(q.shape[-1])).softmax(-1),
    "the scores have the wrong sign": lambda q, k, v: (-ratio(q, k)).softmax(-1),
    "the softmax runs over the queries: columns sum to 1; it belongs on the last axis, so that rows do":
        lambda q, k, v: ratio(q, k).softmax(-2),
    "the softmax runs over the images or heads; it belongs on the last axis, the keys":
        lambda q, k, v: ratio(q, k).softmax(-3 if q.ndim > 2 else -1),
    "the softmax runs over the first axis; it belongs on the last one, the keys": lambda q, k, v: ratio(q, k).softmax(0),
    "the softmax runs over the whole table at once; every row has its own":
        lambda q, k, v: ratio(q, k).flatten().softmax(0).reshape(table(q, k).shape),
    "these are scores, not weights: the softmax is missing": lambda q, k, v: ratio(q, k),
    "these are scores, not weights: the softmax and sqrt(d) are missing": lambda q, k, v: table(q, k),
    "e to the scores is only half of a softmax: divide each row by its sum": lambda q, k, v: ratio(q, k).exp(),
    "these are logarithms of weights: softmax, not log_softmax": lambda q, k, v: ratio(q, k).log_softmax(-1),
    "a sigmoid looks at each score alone; the softmax makes a row sum to 1": lambda q, k, v: ratio(q, k).sigmoid(),
    "queries and keys have changed places: row t belongs to query t": lambda q, k, v: ratio(k, q).softmax(-1),
    "k is reshaped where it should be transposed: swap its last two axes":
        lambda q, k, v: (q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]) / math.sqrt(q.shape[-1])).softmax(-1),
    "compares queries with values; they are compared with keys": lambda q, k, v: ratio(q, v).softmax(-1),
    "compares queries with queries; they are compared with keys": lambda q, k, v: ratio(q, q).softmax(-1),
    "compares keys with keys; queries are compared with keys": lambda q, k, v: ratio(k, k).softmax(-1),
    "each row must be divided by its own sum: sum(-1, keepdim=True)":
        lambda q, k, v: ratio(q, k).exp() / ratio(q, k).exp().sum(-1),
    "compares directions alone; queries and keys keep their length":
        lambda q, k, v: ratio(normalize(q, dim=-1), normalize(k, dim=-1)).softmax(-1),
    "hides the tokens that come later; nothing is hidden here":
        lambda q, k, v: ratio(q, k).masked_fill(torch.ones_like(table(q, k)).triu(1) > 0, -math.inf).softmax(-1),
    "every token gets the same weight: the scores are not used": lambda q, k, v: torch.ones_like(table(q, k)) / q.shape[-2],
}  # fmt: skip
VALUES = {  # wrong values from right weights
    "averages with the transposed weights; row t of the weights belongs to token t": lambda w, q, k, v: w.mT @ v,
    "averages the queries; what is handed over are the values v": lambda w, q, k, v: w @ q,
    "averages the keys; what is handed over are the values v": lambda w, q, k, v: w @ k,
    "gives v back as it came: the weights are not used": lambda w, q, k, v: v,
    "takes the plain mean of v: the weights are not used": lambda w, q, k, v: v.mean(-2, keepdim=True).expand(v.shape),
    "divides once too often: the values are weights @ v and nothing else": lambda w, q, k, v: w @ v / math.sqrt(q.shape[-1]),
    "adds v to the values; the residual belongs to the block of notebook 04": lambda w, q, k, v: w @ v + v,
}


def qkv(*shape: int, when: str = "", mask: Callable[[], Tensor] | None = None, batch: bool = False) -> Case:
    """Queries, keys and values of different sizes, so that none is taken for another, and a mask where one is asked."""
    when = when or f"for shape {shape}"
    hint = f"right for one image, but {when} it {{error}}. Count axes from the end: the last two are T and d, " * batch

    def draw() -> tuple:
        return *(size * torch.randn(shape) for size in (1.5, 1.2, 1.0)), *([mask()] if mask else [])

    return Case(draw, when, hint and hint + "k.transpose(-2, -1)")


def odd_weights(got: Tensor, right: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> str | None:
    """What is odd about wrong weights under a mask."""
    if got.isnan().any():
        return "gives NaN: is a row all minus infinity, or 0 times infinity computed?"
    if right.shape[-1] != right.shape[-2] or not same(right.sum(-1), torch.ones_like(right[..., 0])):
        return None
    leak = got.masked_select(~mask).abs().max() if not mask.all() else 0
    return f"a hidden token still gets weight {leak:.2g}: fill its score with minus infinity" if leak > 1e-12 else None


def row_sums(got: Tensor, *given: Tensor) -> str:
    """What to say of weights that no known mistake gives."""
    sums = same(got.sum(-1), torch.ones_like(got[..., 0]))
    return "the rows sum to 1, but the scores are not q k^T / sqrt(d)" if sums else "the rows do not sum to 1"


UNKNOWN = {"weights": row_sums, "values": "the weights are right, the values are not weights @ v"}
ATTENTION = Exercise(
    name="attention",
    reference=attention,
    returns=("values", "weights"),
    compared=("weights", "values"),
    when=lambda *given: f"for shape {tuple(given[0].shape)}",
    unknown=UNKNOWN,
    batch=3,
    contract_case=qkv(2, 5, 4),  # the root of 4 is exact: torch.sqrt(torch.tensor(d)) is welcome
    ideas={
        "one image: every row a weighted average of the values": [qkv(5, 3, when="for one image, T = 5 and d = 3")],
        "a batch: images do not mix": [
            qkv(4, 5, 3, when="for a batch of 4 images", batch=True),
            qkv(5, 5, 5, when="for a batch of 5 images, T = 5, d = 5", batch=True),
        ],
        "several heads at once": [qkv(2, 3, 5, 4, when="for 2 images with 3 heads, (B, h, T, d)", batch=True)],
        "any number of tokens, any width, float64 too":
            [qkv(*shape) for shape in ((1, 6), (7, 1), (3, 5), (1, 1, 1), (3, 2, 11, 5), (3, 2, 5, 4))],
        "gradients flow to q, k and v": [contract],
    },
    mistakes={words: weights(wrong) for words, wrong in WEIGHTS.items()}
    | {words: values(wrong) for words, wrong in VALUES.items()},
)  # fmt: skip
check_attention = ATTENTION.check


MASKS = {  # wrong weights under a mask
    "the mask is not used": lambda q, k, v, m: ratio(q, k).softmax(-1),
    "the mask is turned round: True means may be looked at":
        lambda q, k, v, m: ratio(q, k).masked_fill(m, -math.inf).softmax(-1),
    "hides after the softmax, so the rows no longer sum to 1; hide the scores before it":
        lambda q, k, v, m: ratio(q, k).softmax(-1) * m,
    "fills after the softmax; the scores must be filled before it":
        lambda q, k, v, m: ratio(q, k).softmax(-1).masked_fill(~m, -math.inf),
    "a score of 0 is no hiding place, e^0 = 1: fill with minus infinity": lambda q, k, v, m: (ratio(q, k) * m).softmax(-1),
    "adds the mask to the scores; True and False are only 1 and 0 there: fill with minus infinity":
        lambda q, k, v, m: (ratio(q, k) + m.to(q.dtype)).softmax(-1),
    "the mask is transposed: a row says what one query may look at":
        lambda q, k, v, m: ratio(q, k).masked_fill(~m.transpose(-2, -1), -math.inf).softmax(-1),
    "the scores are not divided by sqrt(d)": lambda q, k, v, m: table(q, k).masked_fill(~m, -math.inf).softmax(-1),
    "the softmax runs over the queries; it belongs on the last axis, the keys":
        lambda q, k, v, m: ratio(q, k).masked_fill(~m, -math.inf).softmax(-2),
    "these are scores, not weights: the softmax is missing": lambda q, k, v, m: ratio(q, k).masked_fill(~m, -math.inf),
    "fills with plus infinity; what is hidden needs minus infinity":
        lambda q, k, v, m: ratio(q, k).masked_fill(~m, math.inf).softmax(-1),
}  # fmt: skip


def some_mask(*shape: int) -> Tensor:
    """A random mask that no transposing, shifting or negating leaves as it is, with a True in every row."""
    mask = torch.rand(*shape) < 0.5
    mask[..., 0] = True
    mask[..., -1, -1] = mask[..., -2, -1] = False
    mask[..., -1, 1] = True
    return mask


def square_mask() -> Tensor:
    return some_mask(5, 5)


def key_mask() -> Tensor:
    """A (B, 1, 1, T) mask for two images"""
    return torch.tensor([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], dtype=torch.bool)[:, None, None, :]


MASK = Exercise(
    name="mask",
    reference=attention,
    batch=3,
    returns=("values", "weights"),
    compared=("weights", "values"),
    odd=odd_weights,
    unknown=UNKNOWN,
    contract_case=qkv(2, 5, 4, mask=square_mask),
    ideas={
        "a hidden token gets weight 0, and the rows still sum to 1":
            [qkv(5, 3, mask=square_mask, when="for one image with a (T, T) mask")],
        "row t of the mask belongs to query t":
            [qkv(6, 4, mask=lambda: torch.ones(6, 6, dtype=torch.bool).tril(), when="when token t sees tokens 0 to t")],
        "masks for batches and heads broadcast": [
            qkv(2, 3, 5, 4, mask=key_mask, when="for 2 images, 3 heads and a (B, 1, 1, T) mask"),
            qkv(4, 5, 3, mask=square_mask, when="for a batch that shares one (T, T) mask"),
            qkv(3, 5, 4, mask=square_mask),
        ],
        "a mask that hides nothing changes nothing, float64 too":
            [qkv(2, 5, 3, mask=lambda: torch.ones(5, 5, dtype=torch.bool), when="when the mask hides nothing")],
        "gradients flow past the mask": [contract],
    },
    mistakes={words: weights(wrong) for words, wrong in MASKS.items()}
    | {words: values(wrong) for words, wrong in VALUES.items()},
)  # fmt: skip
check_mask = MASK.check


# Heads


def heads_of(x: Tensor, h: int) -> Tensor:
    """(B, T, D) -> (B, h, T, d)"""
    return x.unflatten(-1, (h, -1)).transpose(-3, -2)


def tokens(B: int, T: int, D: int, h: int) -> Case:
    return Case(lambda: (torch.randn(B, T, D), h))


SPLIT_HEADS = Exercise(
    name="split_heads",
    reference=heads_of,
    when=lambda x, h: f"for {tuple(x.shape)} and {h} heads",
    says="{words}",
    unknown="the shape is right, the numbers are not: head i holds numbers i*d to (i+1)*d of a token",
    contract_case=tokens(2, 5, 12, 4),
    ideas={
        "one image: a head holds d numbers of every token": [tokens(1, 5, 12, 3)],
        "a batch, and other numbers of heads": [tokens(2, 5, 12, 3), tokens(4, 6, 16, 2), tokens(2, 12, 5, 5)],
        "one token, one head, d = 1, equal sides, float64":
            [tokens(*sizes) for sizes in ((3, 1, 6, 2), (2, 7, 5, 1), (2, 3, 4, 4), (4, 4, 16, 4), (1, 17, 64, 8))],
        "gradients flow back": [contract],
    },
    mistakes={
        "a bare view or reshape mixes tokens: head 0 holds whole early tokens. First (B, T, h, d), then swap T and h":
            lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1),
        "head 0 takes every h-th number; a head's d numbers stand side by side, so the last axis opens as (h, d)":
            lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
        "the heads come in reverse order": lambda x, h: heads_of(x, h).flip(1),
        "every head holds the same slice": lambda x, h: heads_of(x, h)[:, :1].expand(-1, h, -1, -1),
        "the tokens come in reverse order": lambda x, h: heads_of(x, h).flip(2),
        "the heads still stand behind the tokens: swap T and h": lambda x, h: x.unflatten(-1, (h, -1)),
        "the heads stand before the images; batch first: (B, h, T, d)": lambda x, h: heads_of(x, h).transpose(0, 1),
        "the last two axes are swapped: (B, h, T, d)": lambda x, h: heads_of(x, h).mT,
        "that is h and d swapped: num_heads says how many, d = D / h how wide":
            lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2),
        "images and heads have run into one axis: keep (B, h, T, d)": lambda x, h: heads_of(x, h).flatten(0, 1),
        "every head has the whole width D; it gets d = D / h of it": lambda x, h: x[:, None].expand(-1, h, -1, -1),
        "only one image of the batch was split": lambda x, h: heads_of(x[:1], h),
    },
)  # fmt: skip
check_split_heads = SPLIT_HEADS.check


# Modules


def layers(module: nn.Module) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Weight and bias of every linear map, in the order they were made; nn.MultiheadAttention keeps three in one."""
    for part in module.modules():
        own = dict(part.named_parameters(recurse=False))
        weight = own.get("in_proj_weight", own.get("weight"))
        if weight is not None and weight.ndim == 2:
            yield weight, own.get("in_proj_bias", own.get("bias"))


def readings(module: nn.Module, dim: int, heads: int) -> Iterator[tuple]:
    """Every way to read the layers as queries, keys, values and output projection: w (3, h, d, D), b, weight, bias.

    The equations name no order for the 3D rows: of the axes q/k/v, h and d any may come first.
    """
    maps, sizes = list(layers(module)), {"k": 3, "h": heads, "d": dim // heads}
    if any(bias is None for _, bias in maps):
        return
    for i, (weight, bias) in enumerate(maps):
        rest = [pair for j, pair in enumerate(maps) if j != i]
        if weight.shape != (dim, dim) or sum(len(w) for w, _ in rest) != 3 * dim:
            continue
        if any(w.shape[1] != dim for w, _ in rest):
            continue
        w, b = (torch.cat(parts) for parts in zip(*rest, strict=True))
        for order in permutations("khd"):
            axes = [order.index(name) for name in "khd"]
            one, two = (rows.unflatten(0, [sizes[name] for name in order]) for rows in (w, b))
            for roles in permutations(range(3)):
                yield one.permute(*axes, 3)[list(roles)], two.permute(axes)[list(roles)], weight, bias


def multi_head(
    x: Tensor,
    w: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    mix: Callable = lambda q, k, v: ratio(q, k).softmax(-1) @ v,
    split: Callable = lambda q: q,
    join: Callable = lambda values: values.transpose(1, 2).flatten(2),
    project: Callable = lambda x, values, weight, bias: values @ weight.T + bias,
) -> Tensor:
    """Equations 5 to 8 in one line each; a mistake is another way to mix tokens, to split or join heads, or to project."""
    q, k, v = torch.einsum("btD,chdD->cbhtd", x, w) + b[:, None, :, None]
    values = mix(*(split(z) for z in (q, k, v)))
    return project(x, join(values), weight, bias)


def mixing(weights: Callable, values: Callable = lambda w, q, k, v: w @ v) -> Callable:
    """`multi_head` with other weights or values."""
    return partial(multi_head, mix=lambda q, k, v: values(weights(q, k, v), q, k, v))


SEEN_BEFORE = (  # what a check of modules sees in another way, or cannot tell from another mistake
    "first axis|whole table|come later|changed places|with values|keys with keys|v back|plain mean|scores are not used"
    "|reshaped|own sum|transposed weights"
)
HEADS = {words: mixing(wrong) for words, wrong in WEIGHTS.items() if not re.search(SEEN_BEFORE, words)}
HEADS |= {
    words: mixing(lambda q, k, v: ratio(q, k).softmax(-1), wrong)
    for words, wrong in VALUES.items()
    if not re.search(f"{SEEN_BEFORE}|queries", words)
}
HEADS |= {
    "divides by T, the number of tokens; the scores are divided by the root of d":
        mixing(lambda q, k, v: (table(q, k) / q.shape[-2]).softmax(-1)),
    "a token may not attend to itself; in a ViT every token sees itself too":
        mixing(lambda q, k, v: ratio(q, k).masked_fill(torch.eye(q.shape[-2], dtype=torch.bool), -math.inf).softmax(-1)),
    "all numbers are right for a single head: the width is never split into num_heads heads":
        partial(multi_head, split=lambda q: q.transpose(1, 2).flatten(2)[:, None]),
    "the heads come back interleaved; in equation 8 they stand side by side: (B, T, h, d), then flatten(2)":
        partial(multi_head, join=lambda values: values.permute(0, 2, 3, 1).flatten(2)),
    "the heads come back in reverse order":
        partial(multi_head, join=lambda values: values.flip(1).transpose(1, 2).flatten(2)),
    "the output projection is never applied": partial(multi_head, project=lambda x, values, weight, bias: values),
    "the output projection's bias is never added":
        partial(multi_head, project=lambda x, values, weight, bias: values @ weight.T),
    "adds its input; the residual belongs to the block of notebook 04":
        partial(multi_head, project=lambda x, values, weight, bias: values @ weight.T + bias + x),
}  # fmt: skip


def with_layers(
    qkv_bias: bool = True, proj: int = 1, proj_bias: bool = True, norm: bool = False, listed: bool = False
) -> type:
    """A whole wrong class: with other layers than asked, all else right."""

    class Answer(nn.Module):
        def __init__(self, dim: int, heads: int) -> None:
            super().__init__()
            self.heads, maps = heads, nn.Linear(dim, 3 * dim, bias=qkv_bias)
            self.maps = [maps] if listed else nn.ModuleList([maps])
            self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
            self.proj = nn.Sequential(*(nn.Linear(dim, dim, bias=proj_bias) for _ in range(proj)))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (heads_of(z, self.heads) for z in self.maps[0](self.norm(x)).chunk(3, -1))
            return self.proj(attention(q, k, v)[0].transpose(1, 2).flatten(2))

    return Answer


def tokens_meet(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless every token sees every other one, and tokens in another order give the same in that order."""
    module, x = made(answer, (12, 3), (2, 7, 12))
    order = torch.randperm(7)

    def misses(token: int, changed: int) -> bool:
        other = x.clone()
        other[:, changed] += 3 * torch.randn(12)
        return same(before[:, token], output(module, other)[:, token], atol=1e-7)

    with torch.no_grad():
        before, moved = output(module.eval(), x), output(module, x[:, order])
        missing = misses(0, 6), misses(6, 0)
    never = "the tokens never meet: another token 6 leaves the output of token 0 as it was. Along which axis do scores run?"
    reject_if(missing == (True, True), never)
    every = "In a ViT every token sees every other one"
    reject_if(missing[0], f"a token sees only earlier tokens and itself: a causal mask? {every}")
    reject_if(missing[1], f"a token sees only later tokens and itself: a mask? {every}")
    torn = "tokens are torn apart by a bare view: tokens in another order must give the same outputs in that order. "
    way_out = "Open D as (h, d), then swap T and h; swap back before you close it again"
    reject_if(not same(before[:, order], moved), torn + way_out)


def whole_tokens(exercise: ModuleExercise, answer: object) -> None:
    """Mistake when a head reads only its own slice of a token."""
    module, _ = made(answer, (12, 3), (2, 5, 12))
    sliced = any(w.shape[1] == 4 for w, _ in layers(module))
    reject_if(sliced, "a head projects only its own slice of the token; in the paper every head reads all D numbers")


MULTI_HEAD_IDEAS = {
    "(B, T, D) in, (B, T, D) out": [shapes],
    "heads that read the whole token, and an output projection": [whole_tokens, parameters],
    "images in a batch do not mix, in training and evaluation": [apart],
    "every token sees every token, whatever their order": [tokens_meet],
    "4 D^2 + 4 D parameters, and the numbers of equations 5 to 8": [parameters, numbers],
    "any number of heads and tokens, float64 too": [other_sizes],
    "gradients flow to the tokens and to every parameter": [every_gradient],
}
MULTI_HEAD = ModuleExercise(
    name="multi_head",
    module=MultiHeadAttention,
    function=multi_head,
    readings=readings,
    ideas=MULTI_HEAD_IDEAS,
    mistakes=HEADS,
    structures={
        "the output projection is missing": with_layers(proj=0),
        "the output projection and the biases are missing": with_layers(qkv_bias=False, proj=0),
        "the biases are missing": with_layers(qkv_bias=False, proj_bias=False),
        "queries, keys and values have no bias": with_layers(qkv_bias=False),
        "the output projection has no bias": with_layers(proj_bias=False),
        "only one of four D x D maps is registered; layers in a plain list are not, use nn.ModuleList":
            with_layers(listed=True),
        "that is one D x D map too many": with_layers(proj=2),
        "that is a LayerNorm too many; it belongs to the block of notebook 04": with_layers(norm=True),
    },
    cases=[
        ((12, 3), (2, 5, 12)),
        ((8, 2), (1, 1, 8)),
        ((6, 1), (3, 4, 6)),
        ((5, 5), (2, 7, 5)),
        ((16, 4), (4, 4, 16)),
        ((24, 6), (2, 17, 24)),
    ],
    count="4 D^2 + 4 D",
    advice="count the weights and biases of q, k, v and the projection",
    unknown="shapes and parameters are right, the numbers are not: softmax(q k^T / sqrt(d)) v, then the projection",
)  # fmt: skip
check_multi_head = MULTI_HEAD.check


FIX = MULTI_HEAD.renamed("mend", [idea for idea in MULTI_HEAD_IDEAS if not idea.startswith("heads that")])
check_mend = FIX.check
