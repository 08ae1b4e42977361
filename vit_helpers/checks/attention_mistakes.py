"""What can go wrong in attention.

The tables hold wrong weights, with a mask and without, and wrong outputs from right weights.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vit_helpers.checks.engine.report import Function, variants


def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def weigh(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    table: Callable[..., Tensor] = lambda q, k, v: q @ k.mT,
    scale: Callable[[Tensor], float] = lambda q: q.shape[-1] ** -0.5,
    hide: Callable[..., Tensor] = hide,
    soft: Callable[..., Tensor] = lambda s: s.softmax(-1),
) -> Tensor:
    """Return attention weights (..., T, T).

    A mistake is another product of q and k, another scale, masking or softmax.
    """
    return soft(hide(table(q, k, v) * scale(q), mask))


def one(q: Tensor) -> float:
    return 1.0


def heads(q: Tensor) -> int:
    """Return the number of heads of (B, h, T, d); 1 if there is no such axis."""
    return q.shape[-3] if q.ndim > 3 else 1


def unit(x: Tensor) -> Tensor:
    return normalize(x, dim=-1)


WEIGHTS = variants(weigh, {
    "your scores are not divided by sqrt(d) before the softmax": {"scale": one},
    "divides the scores by d instead of its square root": {"scale": lambda q: 1 / q.shape[-1]},
    "divides by the square root of T, the number of tokens, but d is the last axis of q":
        {"scale": lambda q: q.shape[-2] ** -0.5},
    "divides by the square root of the first axis's length, but d is the last axis of q":
        {"scale": lambda q: q.shape[0] ** -0.5},
    "divides by sqrt(D), the width of all heads together, "
    "but d is the width of one head, the last axis of q":
        {"scale": lambda q: (q.shape[-1] * heads(q)) ** -0.5},
    "multiplies the scores by sqrt(d) instead of dividing by it":
        {"scale": lambda q: q.shape[-1] ** 0.5},
    "the scores have the wrong sign": {"scale": lambda q: -(q.shape[-1] ** -0.5)},
    "your softmax normalizes over the queries (each column sums to 1). "
    "Apply it over the keys, dim=-1":
        {"soft": lambda s: s.softmax(-2)},
    "your softmax normalizes over the images or heads. Apply it over the keys, dim=-1":
        {"soft": lambda s: s.softmax(-3 if s.ndim > 2 else -1)},
    "your softmax normalizes over the first axis. Apply it over the last one, the keys":
        {"soft": lambda s: s.softmax(0)},
    "your softmax normalizes over the whole matrix at once, but every row needs its own":
        {"soft": lambda s: s.flatten().softmax(0).reshape(s.shape)},
    "these are scores and not weights, because the softmax is missing": {"soft": lambda s: s},
    "these are scores and not weights, because the softmax and sqrt(d) are missing":
        {"scale": one, "soft": lambda s: s},
    "the exponential is only half of a softmax: divide each row by its sum":
        {"soft": lambda s: s.exp()},
    "these are logarithms of the weights: use softmax, not log_softmax":
        {"soft": lambda s: s.log_softmax(-1)},
    "a sigmoid treats each score separately, while the softmax makes each row sum to 1":
        {"soft": lambda s: s.sigmoid()},
    "queries and keys are swapped: row t belongs to query t": {"table": lambda q, k, v: k @ q.mT},
    "k is reshaped but should be transposed: swap its last two axes":
        {"table": lambda q, k, v: q @ k.reshape(*k.shape[:-2], k.shape[-1], -1)},
    "compares queries with values instead of keys": {"table": lambda q, k, v: q @ v.mT},
    "compares queries with queries instead of keys": {"table": lambda q, k, v: q @ q.mT},
    "compares keys with keys, but queries should be compared with keys":
        {"table": lambda q, k, v: k @ k.mT},
    "each row must be divided by its own sum: sum(-1, keepdim=True)":
        {"soft": lambda s: s.exp() / s.exp().sum(-1)},
    "scales queries and keys to length 1, but they should keep their lengths":
        {"table": lambda q, k, v: unit(q) @ unit(k).mT},
    "hides later tokens (a causal mask), but nothing should be hidden here":
        {"hide": lambda s, mask: s.masked_fill(torch.ones_like(s).triu(1) > 0, -math.inf)},
    "every token gets the same weight, so the scores are not used": {"scale": lambda q: 0},
}) | {
    "divides by sqrt(d) after the softmax, so that a row no longer sums to 1. "
    "Divide the scores instead":
        lambda q, k, v: weigh(q, k, v, scale=one) / math.sqrt(q.shape[-1]),
}  # fmt: skip
MASKS = variants(weigh, {  # under a mask
    "the mask is not used": {"hide": lambda s, mask: s},
    "the mask is inverted: True means that a query may attend to a key":
        {"hide": lambda s, mask: hide(s, ~mask)},
    "the mask is inverted: a query may attend to a key where it is True":
        {"hide": lambda s, mask: s.masked_fill(mask, -1e9)},
    "a score of 0 hides nothing, because e^0 = 1: fill with minus infinity":
        {"hide": lambda s, mask: s * mask},
    "adds the mask to the scores, where True and False are only 1 and 0: fill with minus infinity":
        {"hide": lambda s, mask: s + mask.to(s.dtype)},
    "the mask is transposed: a row shows which keys one query may attend to":
        {"hide": lambda s, mask: hide(s, mask.mT)},
    "only the keys that all queries may attend to are left, "
    "but each row of the mask is about one query":
        {"hide": lambda s, mask: hide(s, mask.all(-2, keepdim=True))},
    "only the keys that no query may attend to are hidden, "
    "but each row of the mask is about one query":
        {"hide": lambda s, mask: hide(s, mask.any(-2, keepdim=True))},
    "all queries share the first row of the mask, but each has a row of its own":
        {"hide": lambda s, mask: hide(s, mask[..., :1, :])},
    "your scores are not divided by sqrt(d)": {"scale": one},
    "your softmax normalizes over the queries. Apply it over the keys, dim=-1":
        {"soft": lambda s: s.softmax(-2)},
    "these are scores and not weights, because the softmax is missing": {"soft": lambda s: s},
    "makes every row with a hidden token NaN: its score needs minus infinity, -math.inf, and "
    "neither plus infinity nor NaN":
        {"hide": lambda s, mask: s.masked_fill(~mask, math.inf)},
}) | {
    "hides keys after the softmax, so that the rows no longer sum to 1. "
    "Hide their scores before it":
        lambda q, k, v, mask: weigh(q, k, v) * mask,
    "fills after the softmax, but the scores must be filled before it":
        lambda q, k, v, mask: hide(weigh(q, k, v), mask),
}  # fmt: skip
SCORES = variants(weigh, {  # returned beside the right output
    "the output is right, but these are scores: return the weights, after the softmax":
        {"soft": lambda s: s},
    "the output is right, but these are scores, without sqrt(d): return the weights, "
    "after the softmax": {"scale": one, "soft": lambda s: s},
})  # fmt: skip
OUTPUTS: dict[str, Function] = {  # from right weights w
    "averages with the transposed weights, but row t of the weights belongs to token t":
        lambda w, q, k, v: w.mT @ v,
    "averages the queries, but should average the values v": lambda w, q, k, v: w @ q,
    "averages the keys, but should average the values v": lambda w, q, k, v: w @ k,
    "returns v unchanged, so the weights are not used": lambda w, q, k, v: v,
    "takes the plain mean of v, so the weights are not used":
        lambda w, q, k, v: v.mean(-2, keepdim=True).expand(v.shape),
    "divides once too often: the output is weights @ v and nothing else":
        lambda w, q, k, v: w @ v / math.sqrt(q.shape[-1]),
    "adds v to the output, but the residual connection belongs to the block of notebook 04":
        lambda w, q, k, v: w @ v + v,
}  # fmt: skip
