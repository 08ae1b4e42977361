"""Marks for the exercises of notebook 03."""

import math
from itertools import permutations

import torch
from torch import nn
from torch.nn.functional import normalize

from vit_helpers.attention import MultiHeadAttention, attention
from vit_helpers.checks import marks
from vit_helpers.checks.marks import differ, same, slip

# Functions: attention and its mask


def table(q, k):
    """Every query against every key, (..., T, T), not yet divided"""
    return q @ k.transpose(-2, -1)


def root(q):
    return math.sqrt(q.shape[-1])


WEIGHT_SLIPS = {  # what wrong weights equal, and the idea that slipped
    "the scores are not divided by sqrt(d) before the softmax": lambda q, k, v: table(q, k).softmax(-1),
    "divides by sqrt(d) after the softmax; divide the scores first, or a row no longer sums to 1": lambda q, k, v: (
        table(q, k).softmax(-1) / root(q)
    ),
    "divides by d; the scores are divided by its square root": lambda q, k, v: (table(q, k) / q.shape[-1]).softmax(-1),
    "divides by the root of T, the number of tokens; d is the last axis of q": lambda q, k, v: (
        table(q, k) / math.sqrt(q.shape[-2])
    ).softmax(-1),
    "divides by sqrt(D), the width of all heads together; d is the width of one head, the last axis of q": (
        lambda q, k, v: (table(q, k) / math.sqrt(q.shape[-1] * q.shape[-3])).softmax(-1)
    ),
    "multiplies the scores by sqrt(d); they are divided by it": lambda q, k, v: (table(q, k) * root(q)).softmax(-1),
    "the softmax runs over the queries: columns sum to 1; it belongs on the last axis, so that rows do": (
        lambda q, k, v: (table(q, k) / root(q)).softmax(-2)
    ),
    "the softmax runs over the images or heads; it belongs on the last axis, the keys": lambda q, k, v: (
        table(q, k) / root(q)
    ).softmax(0 if q.ndim < 4 else 1),
    "the softmax runs over the first axis; it belongs on the last one, the keys": lambda q, k, v: (
        table(q, k) / root(q)
    ).softmax(0),
    "the softmax runs over the whole table at once; every row has its own": lambda q, k, v: (
        (table(q, k) / root(q)).flatten().softmax(0).reshape(table(q, k).shape)
    ),
    "these are scores, not weights: the softmax is missing": lambda q, k, v: table(q, k) / root(q),
    "these are scores, not weights: the softmax and sqrt(d) are missing": lambda q, k, v: table(q, k),
    "e to the scores is only half of a softmax: divide each row by its sum": lambda q, k, v: (table(q, k) / root(q)).exp(),
    "these are logarithms of weights: softmax, not log_softmax": lambda q, k, v: (table(q, k) / root(q)).log_softmax(-1),
    "a sigmoid looks at each score alone; the softmax makes a row sum to 1": lambda q, k, v: (
        table(q, k) / root(q)
    ).sigmoid(),
    "queries and keys have changed places: row t belongs to query t": lambda q, k, v: (table(k, q) / root(q)).softmax(-1),
    "k is reshaped where it should be transposed: swap its last two axes": lambda q, k, v: (
        q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]) / root(q)
    ).softmax(-1),
    "compares queries with values; they are compared with keys": lambda q, k, v: (table(q, v) / root(q)).softmax(-1),
    "compares queries with queries; they are compared with keys": lambda q, k, v: (table(q, q) / root(q)).softmax(-1),
    "compares keys with keys; queries are compared with keys": lambda q, k, v: (table(k, k) / root(q)).softmax(-1),
    "each row must be divided by its own sum: sum(-1, keepdim=True)": lambda q, k, v: (
        (table(q, k) / root(q)).exp() / (table(q, k) / root(q)).exp().sum(-1)
    ),
    "compares directions alone; queries and keys keep their length": lambda q, k, v: (
        table(normalize(q, dim=-1), normalize(k, dim=-1)) / root(q)
    ).softmax(-1),
    "hides the tokens that come later; nothing is hidden here": lambda q, k, v: (
        (table(q, k) / root(q)).masked_fill(torch.ones_like(table(q, k)).triu(1) > 0, -math.inf).softmax(-1)
    ),
    "every token gets the same weight: the scores are not used": lambda q, k, v: torch.ones_like(table(q, k)) / q.shape[-2],
}
VALUE_SLIPS = {  # what wrong values equal when the weights are right
    "averages with the transposed weights; row t of the weights belongs to token t": lambda w, q, k, v: (
        w.transpose(-2, -1) @ v
    ),
    "averages the queries; what is handed over are the values v": lambda w, q, k, v: w @ q,
    "averages the keys; what is handed over are the values v": lambda w, q, k, v: w @ k,
    "gives v back as it came: the weights are not used": lambda w, q, k, v: v,
    "takes the plain mean of v: the weights are not used": lambda w, q, k, v: v.mean(-2, keepdim=True).expand(v.shape),
    "divides once too often: the values are weights @ v and nothing else": lambda w, q, k, v: w @ v / root(q),
}


def first_match(rules, got, *given):
    """The words of the first rule that gives what the answer gave; None when there is none"""
    for words, rule in rules.items():
        try:
            wanted = rule(*given)
        except (RuntimeError, IndexError):
            continue  # this slip needs other axes
        if same(got.nan_to_num(nan=-7.0), wanted.nan_to_num(nan=-7.0)):  # an empty row: NaN in both
            return words
    return None


def qkv(*shape, dtype=torch.float32):
    """Three tables so different that no two are taken for one another"""
    return tuple(torch.randn(*shape, dtype=dtype) * size for size in (1.5, 1.2, 1.0))


def two_results(got, q, when):
    """The values and the weights that an answer gave, of the right shape"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    single = isinstance(got, torch.Tensor) or not isinstance(got, (tuple, list))
    slip(single, f"gives {marks.short(got)} {when}; return two things: values, weights")
    slip(len(got) != 2, f"gives {len(got)} things {when}; return two: values, weights")
    values, weights = got
    square = (*q.shape[:-1], q.shape[-2])
    swapped = all(isinstance(x, torch.Tensor) for x in got) and values.shape == square and weights.shape == q.shape
    slip(swapped and square != tuple(q.shape), "gives the weights first; return values, weights in this order")
    marks.expect_tensor(values, q.shape, f"as values {when}")
    marks.expect_tensor(weights, square, f"as weights {when}")
    return values, weights


def compare(answer, q, k, v, when, *mask, rules):
    """Slip unless values and weights are right; name the rule that the wrong ones follow"""
    values, weights = two_results(marks.untouched(answer, q, k, v, *mask), q, when)
    wanted, right = attention(q, k, v, *mask)
    slip(values.dtype != q.dtype, f"gives {values.dtype} for {q.dtype}; keep the type that came in")
    if differ(weights, right):
        words = first_match(rules, weights, q, k, v, *mask)
        if words is None:
            sums = same(weights.sum(-1), torch.ones_like(weights[..., 0]))
            words = "the rows sum to 1, but the scores are not q k^T / sqrt(d)" if sums else "the rows do not sum to 1"
        raise marks.Slip(f"weights {when}: {words}")
    if differ(values, wanted):
        words = first_match(VALUE_SLIPS, values, right, q, k, v) or "the weights are right, the values are not weights @ v"
        raise marks.Slip(f"values {when}: {words}")


def one_image(answer):
    compare(answer, *qkv(5, 3), "for one image, T = 5 and d = 3", rules=WEIGHT_SLIPS)


def a_batch(answer):
    q, k, v = qkv(4, 5, 3)
    batchwise(answer, q, k, v, "for a batch of 4 images")
    q, k, v = qkv(5, 5, 5)  # equal sides: axes that were swapped by mistake do not complain here
    batchwise(answer, q, k, v, "for a batch of 5 images, T = 5, d = 5")


def batchwise(answer, q, k, v, when, *mask):
    try:
        first, _ = two_results(answer(q, k, v, *mask), q, when)
    except (RuntimeError, IndexError, ValueError) as error:
        raise marks.Slip(
            f"right for one image, but {when} it raises {type(error).__name__}: {marks.first_line(error)}. "
            "Count axes from the end: the last two are T and d, k.transpose(-2, -1)"
        ) from error
    for kept in (0, len(q) - 1):
        others = torch.arange(len(q)) != kept
        k2, v2 = k.clone(), v.clone()
        k2[others], v2[others] = 2 * k[others], v[others] + 1
        second, _ = two_results(answer(q, k2, v2, *mask), q, when)
        slip(not same(first[kept], second[kept]), f"images mix {when}: changing the others changes image {kept}'s values")
    compare(answer, q, k, v, when, *mask, rules=WEIGHT_SLIPS)


def with_heads(answer):
    q, k, v = qkv(2, 3, 5, 4)
    batchwise(answer, q, k, v, "for 2 images with 3 heads, (B, h, T, d)")


def other_sizes(answer):
    for shape in ((1, 6), (7, 1), (1, 1, 1), (3, 2, 11, 5)):
        compare(answer, *qkv(*shape), f"for shape {shape}", rules=WEIGHT_SLIPS)
    q, k, v = qkv(2, 6, 4, dtype=torch.float64)  # the root of 4 is exact: torch.sqrt(torch.tensor(d)) is welcome
    compare(answer, q, k, v, "in float64", rules=WEIGHT_SLIPS)


def gradients_flow(answer, *mask):
    for place, name in enumerate("qkv"):
        given = [x.requires_grad_(name == letter) for x, letter in zip(qkv(2, 5, 3), "qkv", strict=True)]
        first, _ = two_results(answer(*given, *mask), given[0], "when a gradient is wanted")
        again, _ = two_results(answer(*given, *mask), given[0], "at a second call")
        slip(not same(first, again), "gives another result at a second call: is something random in it?")
        marks.expect_anew(first, two_results(answer(*(2 * x for x in given), *mask), given[0], "at a third call")[0])
        marks.expect_gradient(first, attention(*given, *mask)[0], given[place])
    marks.expect_anywhere(answer, attention, *qkv(2, 5, 3), *mask)


def check_attention(answer):
    """Mark a function (q, k, v) -> values, weights.  Prints a line for each idea."""
    ideas = [
        ("one image: every row a weighted average of the values", one_image),
        ("a batch: images do not mix", a_batch),
        ("several heads at once", with_heads),
        ("any number of tokens, any width, float64 too", other_sizes),
        ("gradients flow to q, k and v", gradients_flow),
    ]
    return marks.check("attention", answer, ideas)


def ratio(q, k):
    return table(q, k) / root(q)


MASK_SLIPS = {  # as WEIGHT_SLIPS, for weights under a mask
    "the mask is not used": lambda q, k, v, m: ratio(q, k).softmax(-1),
    "the mask is turned round: True means may be looked at": lambda q, k, v, m: (
        ratio(q, k).masked_fill(m, -math.inf).softmax(-1)
    ),
    "hides after the softmax, so the rows no longer sum to 1; hide the scores before it": lambda q, k, v, m: (
        ratio(q, k).softmax(-1) * m
    ),
    "fills after the softmax; the scores must be filled before it": lambda q, k, v, m: (
        ratio(q, k).softmax(-1).masked_fill(~m, -math.inf)
    ),
    "a score of 0 is no hiding place, e^0 = 1: fill with minus infinity": lambda q, k, v, m: (ratio(q, k) * m).softmax(-1),
    "adds the mask to the scores; True and False are only 1 and 0 there: fill with minus infinity": lambda q, k, v, m: (
        ratio(q, k) + m.to(q.dtype)
    ).softmax(-1),
    "the mask is transposed: a row says what one query may look at": lambda q, k, v, m: (
        ratio(q, k).masked_fill(~m.transpose(-2, -1), -math.inf).softmax(-1)
    ),
    "the scores are not divided by sqrt(d)": lambda q, k, v, m: table(q, k).masked_fill(~m, -math.inf).softmax(-1),
    "the softmax runs over the queries; it belongs on the last axis, the keys": lambda q, k, v, m: (
        ratio(q, k).masked_fill(~m, -math.inf).softmax(-2)
    ),
    "these are scores, not weights: the softmax is missing": lambda q, k, v, m: ratio(q, k).masked_fill(~m, -math.inf),
    "fills with plus infinity; what is hidden needs minus infinity": lambda q, k, v, m: (
        ratio(q, k).masked_fill(~m, math.inf).softmax(-1)
    ),
}


def some_mask(*shape):
    """A random mask that no transposing, shifting or turning round leaves as it is, with something to see in every row"""
    mask = torch.rand(*shape) < 0.5
    mask[..., 0] = True
    mask[..., -1, -1] = mask[..., -2, -1] = False
    mask[..., -1, 1] = True
    return mask


def hidden(answer, q, k, v, mask, when):
    """Hidden keys get no weight at all; then the numbers"""
    _, weights = two_results(marks.untouched(answer, q, k, v, mask), q, when)
    words = first_match(MASK_SLIPS, weights, q, k, v, mask)
    right = attention(q, k, v, mask)[1]
    slip(words is not None and not same(weights, right), f"weights {when}: {words}")
    slip(bool(weights.isnan().any()), f"gives NaN {when}: is a row all minus infinity, or 0 times infinity computed?")
    leak = weights.masked_select(~mask).abs().max()
    slip(bool(leak > 1e-6), f"a hidden token still gets weight {leak:.2g} {when}: fill its score with minus infinity")
    compare(answer, q, k, v, when, mask, rules=MASK_SLIPS)


def table_mask(answer):
    hidden(answer, *qkv(5, 3), some_mask(5, 5), "for one image with a (T, T) mask")


def causal_mask(answer):
    hidden(answer, *qkv(6, 4), torch.ones(6, 6, dtype=torch.bool).tril(), "when token t sees tokens 0 to t")


def key_mask(answer):
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], dtype=torch.bool)[:, None, None, :]
    hidden(answer, *qkv(2, 3, 5, 4), mask, "for 2 images, 3 heads and a (B, 1, 1, T) mask")
    hidden(answer, *qkv(4, 5, 3), some_mask(5, 5), "for a batch that shares one (T, T) mask")


def no_mask(answer):
    q, k, v = qkv(2, 5, 3)
    everything = torch.ones(5, 5, dtype=torch.bool)
    compare(answer, q, k, v, "when the mask hides nothing", everything, rules=WEIGHT_SLIPS)
    q, k, v = qkv(2, 5, 4, dtype=torch.float64)
    compare(answer, q, k, v, "in float64", some_mask(5, 5), rules=MASK_SLIPS)


def mask_gradients(answer):
    gradients_flow(answer, some_mask(5, 5))


def check_mask(answer):
    """Mark a function (q, k, v, mask) -> values, weights.  Prints a line for each idea."""
    ideas = [
        ("a hidden token gets weight 0, and the rows still sum to 1", table_mask),
        ("row t of the mask belongs to query t", causal_mask),
        ("masks for batches and heads broadcast", key_mask),
        ("a mask that hides nothing changes nothing, float64 too", no_mask),
        ("gradients flow past the mask", mask_gradients),
    ]
    return marks.check("mask", answer, ideas)


# Heads


def heads_of(x, h):
    """(B, T, D) -> (B, h, T, d)"""
    return x.unflatten(-1, (h, -1)).transpose(-3, -2)


SPLIT_SLIPS = {
    "a bare view or reshape mixes tokens: head 0 holds whole early tokens. First (B, T, h, d), then swap T and h": (
        lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)
    ),
    "head 0 takes every h-th number; a head's d numbers stand side by side, so the last axis opens as (h, d)": (
        lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)
    ),
    "the heads come in reverse order": lambda x, h: heads_of(x, h).flip(1),
    "every head holds the same slice": lambda x, h: heads_of(x, h)[:, :1].expand(-1, h, -1, -1),
    "the tokens come in reverse order": lambda x, h: heads_of(x, h).flip(2),
}
SHAPE_SLIPS = {
    "the heads still stand behind the tokens: swap T and h": lambda B, T, D, h: (B, T, h, D // h),
    "the heads stand before the images; batch first: (B, h, T, d)": lambda B, T, D, h: (h, B, T, D // h),
    "the last two axes are swapped: (B, h, T, d)": lambda B, T, D, h: (B, h, D // h, T),
    "that is h and d swapped: num_heads says how many, d = D / h how wide": lambda B, T, D, h: (B, D // h, T, h),
    "images and heads have run into one axis: keep (B, h, T, d)": lambda B, T, D, h: (B * h, T, D // h),
    "every head has the whole width D; it gets d = D / h of it": lambda B, T, D, h: (B, h, T, D),
}


def split_right(answer, B, T, D, h, dtype=torch.float32):
    x = torch.randn(B, T, D, dtype=dtype)
    got = marks.untouched(lambda tokens: answer(tokens, h), x)
    if isinstance(got, (list, tuple)):
        raise marks.Slip(f"gives {len(got)} things; one tensor (B, h, T, d) lets all heads be computed at once")
    if isinstance(got, torch.Tensor):
        for words, shape in SHAPE_SLIPS.items():
            wrong = shape(B, T, D, h)
            slip(
                tuple(got.shape) == wrong and wrong != (B, h, T, D // h),
                f"gives shape {wrong} for {h} heads; it should give {(B, h, T, D // h)}: {words}",
            )
    marks.expect_tensor(got, (B, h, T, D // h), f"for {(B, T, D)} and {h} heads")
    slip(got.dtype != dtype, f"gives {got.dtype} for {dtype}; keep the type that came in")
    if differ(got, heads_of(x, h)):
        words = first_match(SPLIT_SLIPS, got, x, h)
        raise marks.Slip(words or "the shape is right, the numbers are not: head i holds numbers i*d to (i+1)*d of a token")


def split_gradient(answer):
    x = torch.randn(2, 5, 12, requires_grad=True)
    marks.expect_gradient(answer(x, 3), heads_of(x, 3), x)
    marks.expect_anywhere(answer, heads_of, torch.randn(2, 5, 12), 3)


def check_split_heads(answer):
    """Mark a function (x, num_heads) -> (B, h, T, d).  Prints a line for each idea."""

    def one(answer):
        split_right(answer, 1, 5, 12, 3)

    def batch(answer):
        split_right(answer, 2, 5, 12, 3)
        split_right(answer, 4, 6, 16, 2)

    def odd(answer):
        for sizes in ((3, 1, 6, 2), (2, 7, 5, 1), (2, 3, 4, 4), (4, 4, 16, 4), (1, 17, 64, 8)):
            split_right(answer, *sizes)
        split_right(answer, 2, 5, 12, 4, torch.float64)

    ideas = [
        ("one image: a head holds d numbers of every token", one),
        ("a batch, and other numbers of heads", batch),
        ("one token, one head, d = 1, equal sides, float64", odd),
        ("gradients flow back", split_gradient),
    ]
    return marks.check("split_heads", answer, ideas)


# Modules


def build(answer, dim, heads):
    """The learner's module with every weight and bias drawn anew, so that none of them is zero"""
    slip(isinstance(answer, nn.Module), "got a module that is built already; hand over the class itself")
    module = answer(dim, heads)
    slip(not isinstance(module, nn.Module), f"gives {marks.short(module)}; it should be an nn.Module")
    with torch.no_grad():
        if any(nn.parameter.is_lazy(p) for p in module.parameters()):
            module(torch.zeros(1, 2, dim))  # lazy layers have their weights now
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * (p.shape[-1] ** -0.5 if p.ndim > 1 else 0.5))
    return module


def layers(module):
    """Weight and bias of every linear map, in the order they were made; nn.MultiheadAttention keeps three in one"""
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention) and part.in_proj_weight is not None:
            yield part.in_proj_weight, part.in_proj_bias
        elif isinstance(part, nn.Linear):
            yield part.weight, part.bias


def readings(module, dim, heads):
    """Every way to read the layers as queries, keys, values and output projection: w (3, h, d, D), b, proj

    The equations name no order for the 3D rows: of the axes q/k/v, h and d any may come first.
    """
    maps, sizes = list(layers(module)), {"k": 3, "h": heads, "d": dim // heads}
    for i, (weight, bias) in enumerate(maps):
        rest = [pair for j, pair in enumerate(maps) if j != i]
        if weight.shape != (dim, dim) or sum(len(w) for w, _ in rest) != 3 * dim:
            continue
        w, b = (torch.cat(parts) for parts in zip(*rest, strict=True))
        for order in permutations("khd"):
            axes = [order.index(name) for name in "khd"]
            one, two = (rows.unflatten(0, [sizes[name] for name in order]) for rows in (w, b))
            for roles in permutations(range(3)):
                yield one.permute(*axes, 3)[list(roles)], two.permute(axes)[list(roles)], weight, bias


def multi_head(x, w, b, weight, bias, slipped=None):
    """Equations 5 to 8 in one line each; `slipped` names one mistake to make on the way"""
    d, dim = w.shape[2:]
    if slipped == "one head":
        w, b = w.flatten(1, 2)[:, None], b.flatten(1, 2)[:, None]
    q, k, v = torch.einsum("btD,chdD->cbhtd", x, w) + b[:, None, :, None]
    if slipped == "among heads":
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
    k, v = {"one twice": (q, v), "no values": (k, k)}.get(slipped, (k, v))
    scores = q @ k.transpose(-2, -1)
    scale = {"no scale": 1.0, "after": 1.0, "sqrt(D)": dim**-0.5, "d": 1 / d}.get(slipped, q.shape[-1] ** -0.5)
    scores = scores * scale
    weights = scores if slipped == "no softmax" else scores.softmax({"axis": -2, "over heads": 1}.get(slipped, -1))
    if slipped == "after":
        weights = weights * d**-0.5
    values = weights @ v
    if slipped != "among heads":
        values = values.transpose(1, 2)
    if slipped == "interleaved":
        values = values.transpose(2, 3)
    values = values.flatten(2)
    return values if slipped == "no proj" else values @ weight.T + bias + (x if slipped == "residual" else 0)


MODULE_SLIPS = {
    "no scale": "the scores are not divided by sqrt(d) before the softmax",
    "after": "divides by sqrt(d) after the softmax; divide the scores first",
    "sqrt(D)": "divides by sqrt(D); d = D / h is the width of one head",
    "d": "divides by d; the scores are divided by its square root",
    "axis": "the softmax runs over the queries; it belongs on the last axis, the keys",
    "over heads": "the softmax runs over the heads; it belongs on the last axis, the keys",
    "no softmax": "the softmax is missing: scores are no weights",
    "one head": "all numbers are right for a single head: the width is never split into num_heads heads",
    "among heads": "the heads of one token attend to one another: swap T and h before attention, (B, h, T, d)",
    "interleaved": "the heads come back interleaved; in equation 8 they stand side by side: (B, T, h, d), then flatten(2)",
    "one twice": "queries are compared with queries, or keys with keys; queries are compared with keys",
    "no values": "averages the keys; what is handed over are the values v",
    "no proj": "the output projection is never applied",
    "residual": "adds its input; the residual belongs to the block of notebook 04",
}


def output(module, x, when="for (B, T, D)"):
    got = marks.untouched(module, x)
    slip(isinstance(got, (tuple, list)), f"gives {marks.short(type(got).__name__)} {when}; it should give one tensor")
    marks.expect_tensor(got, x.shape, f"{when} = {tuple(x.shape)}")
    return got


def module_shape(answer):
    output(build(answer, 12, 3), torch.randn(2, 5, 12))
    output(build(answer, 12, 3).eval(), torch.randn(1, 7, 12))


def images_apart(answer):
    marks.expect_steady(build(answer, 12, 3), torch.randn(2, 5, 12), (2, 5, 12))
    module, x = build(answer, 12, 3).eval(), torch.randn(4, 5, 12)
    for kept in (0, 3):
        other = torch.randn(4, 5, 12)
        other[kept] = x[kept]
        with torch.no_grad():
            before, after = (output(module, images)[kept] for images in (x, other))
            slip(
                not same(before, after),
                f"images mix: other images in the batch change image {kept}'s output. Which axis does attention run along?",
            )
            alone = output(module, x[kept : kept + 1])[0]
        slip(not same(before, alone), "an image alone gives another result than the same image in a batch")


MEETING_SLIPS = {  # whether the first token misses the last one, and whether the last one misses the first
    (
        True,
        True,
    ): "the tokens never meet: another token 6 leaves the output of token 0 as it was. Along which axis do scores run?",
    (True, False): "a token sees only earlier tokens and itself: a causal mask? In a ViT every token sees every other one",
    (False, True): "a token sees only later tokens and itself: a mask? In a ViT every token sees every other one",
}


def tokens_meet(answer):
    module, x = build(answer, 12, 3).eval(), torch.randn(2, 7, 12)
    order = torch.randperm(7)

    def misses(token, changed):
        other = x.clone()
        other[:, changed] += 3 * torch.randn(12)
        return same(before[:, token], output(module, other)[:, token], atol=1e-7)

    with torch.no_grad():
        before, moved = output(module, x), output(module, x[:, order])
        missing = misses(0, 6), misses(6, 0)
    slip(missing in MEETING_SLIPS, MEETING_SLIPS.get(missing))
    slip(
        not same(before[:, order], moved),
        "tokens are torn apart by a bare view: tokens in another order must give the same outputs in that order. "
        "Open D as (h, d), then swap T and h; swap back before you close it again",
    )


def parameters(answer):
    dim, heads, d = 12, 3, 4
    module = build(answer, dim, heads)
    count = sum(p.numel() for p in module.parameters())
    wanted = 4 * dim * dim + 4 * dim
    maps = list(layers(module))
    slip(not count, "has no parameters: make the Linears in __init__, as attributes or in an nn.ModuleList, no plain list")
    slip(
        any(w.shape[1] == d for w, _ in maps),
        "a head projects only its own slice of the token; in the paper every head reads all D numbers",
    )
    have = f"has {count} parameters for D = {dim}, it should have 4 D^2 + 4 D = {wanted}"
    reasons = {
        3 * dim * dim + 3 * dim: "the output projection is missing",
        3 * dim * dim: "the output projection and the biases are missing",
        4 * dim * dim: "the biases are missing",
        4 * dim * dim + dim: "queries, keys and values have no bias",
        4 * dim * dim + 3 * dim: "the output projection has no bias",
        dim * dim + dim: "only one of four D x D maps is registered; layers in a plain list are not, use nn.ModuleList",
        5 * dim * dim + 5 * dim: "that is one D x D map too many",
        wanted + 2 * dim: "that is a LayerNorm too many; it belongs to the block of notebook 04",
    }
    slip(count != wanted, f"{have}: {reasons.get(count, 'count the weights and biases of q, k, v and the projection')}")
    complete = sum(w.numel() for w, _ in maps) == 4 * dim * dim and all(b is not None for _, b in maps)
    slip(not complete, "build it from nn.Linear layers, so that weights can be copied")


def equal_to(module, x, dim, heads):
    """The reading of the layers under which the answer is right; Slip with the mistake when there is none"""
    got = output(module, x)
    found = list(readings(module, dim, heads))
    for reading in found:
        wanted = multi_head(x, *reading)
        if same(got, wanted, atol=1e-4):
            marks.expect_digits(got, wanted)
            return reading
    for slipped, words in MODULE_SLIPS.items():
        if any(same(got, multi_head(x, *reading, slipped), atol=1e-4) for reading in found):
            raise marks.Slip(words)
    raise marks.Slip("shapes and parameters are right, the numbers are not: softmax(q k^T / sqrt(d)) v, then the projection")


def numbers(answer):
    parameters(answer)
    for training in (True, False):
        module = build(answer, 12, 3).train(training)
        equal_to(module, torch.randn(2, 5, 12), 12, 3)


def other_shapes(answer):
    for B, T, dim, heads in ((1, 1, 8, 2), (3, 4, 6, 1), (2, 7, 5, 5), (4, 4, 16, 4), (2, 17, 24, 6)):
        equal_to(build(answer, dim, heads), torch.randn(B, T, dim), dim, heads)
    module, x = build(answer, 12, 3).double(), torch.randn(2, 5, 12, dtype=torch.float64)
    got = output(module, x, "in float64")
    slip(got.dtype != torch.float64, f"gives {got.dtype} for float64; keep the type that came in")
    equal_to(module, x, 12, 3)


def module_gradients(answer):
    module, x = build(answer, 12, 3), torch.randn(2, 5, 12, requires_grad=True)
    reading = equal_to(module, x, 12, 3)
    marks.expect_gradient(output(module, x), multi_head(x, *reading), x)
    unused = [name for name, p in module.named_parameters() if marks.gradient(output(module, x), p) is None]
    slip(bool(unused), f"no gradient reaches {', '.join(unused)}: is it used, and neither detached nor frozen?")
    marks.expect_anywhere(module, MultiHeadAttention(12, 3), x)


MODULE_IDEAS = [
    ("(B, T, D) in, (B, T, D) out", module_shape),
    ("images in a batch do not mix, in training and evaluation", images_apart),
    ("every token sees every token, whatever their order", tokens_meet),
    ("4 D^2 + 4 D parameters, and the numbers of equations 5 to 8", numbers),
    ("any number of heads and tokens, float64 too", other_shapes),
    ("gradients flow to the tokens and to every parameter", module_gradients),
]


def check_multi_head(answer):
    """Mark a class (dim, num_heads) whose forward maps (B, T, D) to (B, T, D).  Prints a line for each idea."""
    shape, apart, meet, *rest = MODULE_IDEAS
    count = ("heads that read the whole token, and an output projection", parameters)
    return marks.check("multi_head", answer, [shape, count, apart, meet, *rest])


def check_mend(answer):
    """Mark the mended class of the planted mistake, of the same form as `check_multi_head`'s."""
    return marks.check("mend", answer, MODULE_IDEAS)
