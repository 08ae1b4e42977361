"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import nn

from vit_helpers import attention as room
from vit_helpers.checks.attention import check_attention, check_mask, check_mend, check_multi_head, check_split_heads


def soft(scores, dim=-1):
    return scores.softmax(dim)


def scores(q, k):
    return q @ k.transpose(-2, -1)


def scaled(q, k):
    return scores(q, k) / q.shape[-1] ** 0.5


def both(weights, v):
    return weights @ v, weights


def not_written(*_):
    raise NotImplementedError


def endless(*anything):
    return endless(*anything)


def noted(function):
    """The same answer, which writes its input over with zeros afterwards"""

    def answer(q, *rest):
        result = function(q, *rest)
        q.zero_()
        return result

    return answer


# attention


def by_loops(q, k, v):
    if q.ndim > 2:
        parts = [by_loops(*rows) for rows in zip(q, k, v, strict=True)]
        return torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts])
    rows = []
    for query in q:
        exps = torch.stack([torch.dot(query, key) / math.sqrt(len(query)) for key in k]).exp()
        rows.append(exps / exps.sum())
    weights = torch.stack(rows)
    return torch.stack([sum(w * value for w, value in zip(row, v, strict=True)) for row in weights]), weights


def by_einsum(queries, keys, values, scale=None):
    weights = torch.einsum("...td,...sd->...ts", queries, keys).mul(scale or queries.size(-1) ** -0.5)
    weights = torch.softmax(weights, dim=weights.ndim - 1)
    return [torch.einsum("...ts,...sd->...td", weights, values), weights]


def by_einops(q, k, v):
    weights = soft(einsum(q / math.sqrt(q.shape[-1]), k, "... t d, ... s d -> ... t s"))
    return einsum(weights, v, "... t s, ... s d -> ... t d"), weights


def by_torch(q, k, v):
    return F.scaled_dot_product_attention(q, k, v), soft(scaled(q, k)).detach()


def by_stable_softmax(q, k, v):
    table = scaled(q, k)
    exps = (table - table.max()).exp()
    return both(exps / exps.sum(-1, keepdim=True), v)


def by_tensor_root(q, k, v):
    return both(soft(scores(q, k) / torch.sqrt(torch.tensor(q.shape[-1]))), v)


ATTENTION_RIGHT = [
    by_tensor_root,
    room.attention,
    by_loops,
    by_einsum,
    by_einops,
    by_torch,
    lambda a, b, c: both(soft(scaled(a, b)), c),
    by_stable_softmax,
]


def in_float32(function):
    """The right answer, computed in float32 and turned back"""

    def answer(first, *rest):
        got = function(*(x.float() if torch.is_tensor(x) and x.is_floating_point() else x for x in (first, *rest)))
        return tuple(x.to(first.dtype) for x in got) if isinstance(got, tuple) else got.to(first.dtype)

    return answer


def first_kept(q, k, v, seen={}):  # noqa: B006
    """For every shape the result of the first call"""
    return seen.setdefault((q.shape, q.dtype), room.attention(q, k, v))


def divides_in_place(q, k, v):
    q /= q.shape[-1] ** 0.5
    return both(soft(scores(q, k)), v)


def other_sums(q, k, v):
    exps = scaled(q, k).exp()
    return both(exps / exps.sum(-1), v)


def lower(q):
    return torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril()


def detached(q, k, v):
    return both(soft(scaled(q, k)).detach(), v)


def by_numpy(q, k, v):
    values, weights = room.attention(q.detach(), k.detach(), v.detach())
    return torch.from_numpy(values.numpy()), torch.from_numpy(weights.numpy())


def first_image_only(q, k, v):
    return both(soft(scaled(q, k[:1] if q.ndim > 2 else k)), v)


def batch_mean(q, k, v):
    weights = soft(scaled(q, k))
    return both(weights.mean(0, keepdim=True).expand(weights.shape) if q.ndim > 2 else weights, v)


def with_dropout(q, k, v):
    weights = soft(scaled(q, k))
    return F.dropout(weights, 0.1) @ v, weights


def first_axes(q, k, v):
    return both(soft(q @ k.transpose(0, 1) / q.shape[-1] ** 0.5), v)


def memorised(q, k, v):
    return torch.tensor([[6.65, 2.45, 0.90]]), torch.tensor([[0.665, 0.245, 0.090]])


def root_of_width(q, k, v):
    D = q.shape[-1] * (q.shape[-3] if q.ndim == 4 else 1)
    return both(soft(scores(q, k) / D**0.5), v)


ATTENTION_WRONG = [
    (not_written, "[ ] attention: not written yet"),
    (lambda q, k, v: both(soft(scores(q, k)), v), "not divided by sqrt(d)"),
    (lambda q, k, v: both(soft(scores(q, k)) / q.shape[-1] ** 0.5, v), "after the softmax"),
    (lambda q, k, v: both(soft(scores(q, k) / q.shape[-1]), v), "divides by d;"),
    (lambda q, k, v: both(soft(scores(q, k) / q.shape[-2] ** 0.5), v), "the root of T"),
    (lambda q, k, v: both(soft(scores(q, k) * q.shape[-1] ** 0.5), v), "multiplies the scores"),
    (root_of_width, "divides by sqrt(D), the width of all heads"),
    (lambda q, k, v: both(soft(scaled(q, k), -2), v), "runs over the queries"),
    (lambda q, k, v: both(soft(scaled(q, k), 0), v), "runs over the queries"),
    (lambda q, k, v: both(soft(scaled(q, k), 1), v), "runs over the queries"),
    (lambda q, k, v: both(soft(scaled(q, k), 1 if q.ndim < 4 else -1), v), "runs over the queries"),
    (lambda q, k, v: both(soft(scaled(q, k).flatten(), 0).view_as(scaled(q, k)), v), "the whole table at once"),
    (lambda q, k, v: both(scaled(q, k), v), "the softmax is missing"),
    (lambda q, k, v: both(scaled(q, k).exp(), v), "only half of a softmax"),
    (lambda q, k, v: both(scaled(q, k).log_softmax(-1), v), "log_softmax"),
    (lambda q, k, v: both(scaled(q, k).sigmoid(), v), "a sigmoid"),
    (lambda q, k, v: both(soft(scaled(k, q)), v), "have changed places"),
    (lambda q, k, v: both(soft(q @ k.reshape(*k.shape[:-2], k.shape[-1], -1)), v), "attention"),
    (
        lambda q, k, v: both(soft(q @ k.reshape(*k.shape[:-2], k.shape[-1], -1) / q.shape[-1] ** 0.5), v),
        "reshaped where it should be transposed",
    ),
    (lambda q, k, v: both(soft(scaled(q, v)), v), "compares queries with values"),
    (lambda q, k, v: both(soft(scaled(q, q)), v), "compares queries with queries"),
    (lambda q, k, v: both(torch.ones_like(scores(q, k)) / q.shape[-2], v), "the scores are not used"),
    (lambda q, k, v: (soft(scaled(q, k)).mT @ v, soft(scaled(q, k))), "averages with the transposed weights"),
    (lambda q, k, v: (soft(scaled(q, k)) @ q, soft(scaled(q, k))), "averages the queries"),
    (lambda q, k, v: (soft(scaled(q, k)) @ k, soft(scaled(q, k))), "averages the keys"),
    (lambda q, k, v: (v, soft(scaled(q, k))), "gives v back as it came"),
    (lambda q, k, v: soft(scaled(q, k)), "return two things"),
    (lambda q, k, v: soft(scaled(q, k)) @ v, "return two things"),
    (lambda q, k, v: both(soft(scaled(q, k)), v)[::-1], "gives the weights first"),
    (lambda q, k, v: None, "does it end with return?"),
    (first_axes, "k.transpose(-2, -1)"),
    (lambda q, k, v: both(soft(q @ k.T / q.shape[-1] ** 0.5), v), "k.transpose(-2, -1)"),
    (first_image_only, "images mix"),
    (batch_mean, "images mix"),
    (with_dropout, "[x] attention"),
    (detached, "no gradient flows back"),
    (torch.no_grad()(room.attention), "no gradient flows back"),
    (by_numpy, "no gradient flows back"),
    (lambda q, k, v: both(soft(scaled(q, k)).float(), v.float()), "keep the type that came in"),
    (noted(room.attention), "changes its input"),
    (divides_in_place, "changes its input"),
    (in_float32(room.attention), "loses digits"),
    (first_kept, "was the first one kept?"),
    (lambda q, k, v: [x * 1j for x in room.attention(q, k, v)], "gives complex numbers"),
    (lambda q, k, v: [torch.tensor(x.numpy()) for x in room.attention(q, k, v)], "(numpy passes no gradient on"),
    (lambda q, k, v: next(iter(())), "StopIteration (next() found nothing left)"),
    (other_sums, "sum(-1, keepdim=True)"),
    (lambda q, k, v: room.attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v), "compares directions alone"),
    (lambda q, k, v: room.attention(q, k, v, lower(q)), "hides the tokens that come later"),
    (memorised, "gives shape (1, 3)"),
    (lambda q: q, "raises TypeError"),
    (endless, "raises RecursionError"),
    (torch.ones(3, 3), "hand over the function"),
]


# mask


def fill(q, k, v, mask, number=-math.inf, keep=None):
    return both(soft(scaled(q, k).masked_fill(~mask if keep is None else keep, number)), v)


def mask_where(q, k, v, mask):
    return both(soft(torch.where(mask, scaled(q, k), torch.tensor(-torch.inf, dtype=q.dtype))), v)


def mask_bias(q, k, v, may_look):
    bias = q.new_zeros(may_look.shape).masked_fill(may_look.logical_not(), -math.inf)
    return both(soft(scaled(q, k) + bias), v)


def mask_renormalise(q, k, v, mask):
    weights = soft(scaled(q, k)) * mask
    return both(weights / weights.sum(-1, keepdim=True), v)


def mask_torch(q, k, v, m):
    return F.scaled_dot_product_attention(q, k, v, m), room.attention(q, k, v, m)[1]


def flips(q, k, v, mask):
    result = fill(q, k, v, mask)
    mask.logical_not_()
    return result


def square_masks_only(q, k, v, mask):
    return fill(q, k, v, mask if mask.ndim == 2 else mask.expand(2, 3, 5, 5).transpose(-2, -1))


MASK_RIGHT = [
    room.attention,
    fill,
    mask_where,
    mask_bias,
    mask_renormalise,
    mask_torch,
    lambda q, k, v, m: fill(q, k, v, m, -1e9),
    lambda q, k, v, m: fill(q, k, v, m, torch.finfo(q.dtype).min),
]
MASK_WRONG = [
    (not_written, "[ ] mask: not written yet"),
    (lambda q, k, v, m: room.attention(q, k, v), "the mask is not used"),
    (lambda q, k, v, m: fill(q, k, v, ~m), "turned round"),
    (lambda q, k, v, m: both(soft(scaled(q, k)) * m, v), "hides after the softmax"),
    (lambda q, k, v, m: both(soft(scaled(q, k)).masked_fill(~m, 0), v), "hides after the softmax"),
    (lambda q, k, v, m: both(soft(scaled(q, k)).masked_fill(~m, -math.inf), v), "fills after the softmax"),
    (in_float32(room.attention), "loses digits"),
    (lambda q, k, v, m: [x * 1j for x in room.attention(q, k, v, m)], "gives complex numbers"),
    (lambda q, k, v, m: fill(q, k, v, m, 0.0), "e^0 = 1"),
    (lambda q, k, v, m: both(soft(scaled(q, k) * m), v), "e^0 = 1"),
    (lambda q, k, v, m: both(soft(scaled(q, k) + m), v), "adds the mask"),
    (lambda q, k, v, m: fill(q, k, v, m, -4.0), "still gets weight"),
    (lambda q, k, v, m: fill(q, k, v, m, math.inf), "[x] mask"),
    (lambda q, k, v, m: fill(q, k, v, m.transpose(-2, -1)), "the mask is transposed"),
    (lambda q, k, v, m: both(soft(scores(q, k).masked_fill(~m, -math.inf)), v), "not divided by sqrt(d)"),
    (lambda q, k, v, m: both(soft(scaled(q, k) + (1 - m.float()) * -math.inf), v), "gives NaN"),
    (lambda q, k, v, m: (room.attention(q, k, v, m)[1] @ k, room.attention(q, k, v, m)[1]), "averages the keys"),
    (lambda q, k, v, m: both(soft(scaled(q, k).masked_fill(~m, -math.inf), -2), v), "[x] mask"),
    (square_masks_only, "for 2 images, 3 heads"),
    (flips, "changes its input"),
    (torch.no_grad()(room.attention), "no gradient flows back"),
    (lambda q, k, v, m: room.attention(q.detach(), k, v, m), "gradient"),
    (lambda q, k, v, m: room.attention(q, k, v, m)[0], "return two things"),
    (lambda q, k, v: room.attention(q, k, v), "raises TypeError"),
]


# heads


def split_loops(tokens, h):
    d = tokens.shape[2] // h
    return torch.stack([tokens[:, :, i * d : (i + 1) * d] for i in range(h)], dim=1)


SPLIT_RIGHT = [
    split_loops,
    lambda x, h: x.view(x.shape[0], x.shape[1], h, -1).transpose(1, 2),
    lambda x, num_heads, copy=True: rearrange(x, "b t (h d) -> b h t d", h=num_heads).contiguous(),
    lambda x, h: torch.stack(x.chunk(h, dim=-1), 1),
    lambda x, h: x.unflatten(2, (h, -1)).permute(0, 2, 1, 3),
    lambda x, h: torch.cat([split_loops(image[None], h) for image in x]),
]
SPLIT_WRONG = [
    (not_written, "[ ] split_heads: not written yet"),
    (lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1), "a bare view or reshape mixes tokens"),
    (lambda x, h: x.unflatten(2, (h, -1)), "swap T and h"),
    (lambda x, h: x.unflatten(2, (-1, h)).permute(0, 3, 1, 2), "every h-th number"),
    (lambda x, h: x.unflatten(2, (-1, h)).transpose(1, 2), "h and d swapped"),
    (lambda x, h: split_loops(x, h).transpose(0, 1), "the heads stand before the images"),
    (lambda x, h: split_loops(x, h).mT, "the last two axes are swapped"),
    (lambda x, h: split_loops(x, h).flatten(0, 1), "have run into one axis"),
    (lambda x, h: x[:, None].expand(-1, h, -1, -1), "every head has the whole width D"),
    (lambda x, h: x.chunk(h, -1), "gives 3 things"),
    (lambda x, h: split_loops(x, h).flip(1), "the heads come in reverse order"),
    (lambda x, h: split_loops(x, h)[:, :1].repeat(1, h, 1, 1), "every head holds the same slice"),
    (lambda x, h: split_loops(x, 3), "[x] split_heads"),
    (lambda x, h: split_loops(x[:1], h), "gives shape (1, 3, 5, 4)"),
    (lambda x, h: torch.zeros(x.shape[0], h, x.shape[1], x.shape[2] // h), "the numbers are not"),
    (lambda x, h: split_loops(x, h).detach(), "no gradient flows back"),
    (lambda x, h: torch.tensor(np.array(split_loops(x.detach(), h))), "no gradient flows back"),
    (lambda x, h: split_loops(x, h).float(), "keep the type that came in"),
    (noted(split_loops), "changes its input"),
    (in_float32(split_loops), "loses digits"),
    (lambda x, h: split_loops(x, h) * 1j, "gives complex numbers"),
    (lambda x, h: None, "does it end with return?"),
]


# modules


class Base(nn.Module):
    """A right answer with places to go wrong"""

    bias, out_bias, proj_layer, dropout = True, True, True, 0.0

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.dim = num_heads, dim
        self.qkv = nn.Linear(dim, 3 * dim, bias=self.bias)
        if self.proj_layer:
            self.proj = nn.Linear(dim, dim, bias=self.out_bias)
        self.drop = nn.Dropout(self.dropout)

    def split(self, x):
        return split_loops(x, self.num_heads)

    def mix(self, q, k, v):
        return room.attention(q, k, v)[0]

    def merge(self, values):
        return values.transpose(1, 2).flatten(2)

    def project(self, x):
        return self.drop(self.proj(x))

    def forward(self, x):
        q, k, v = (self.split(z) for z in self.qkv(x).chunk(3, -1))
        return self.project(self.merge(self.mix(q, k, v)))


class Separate(nn.Module):
    def __init__(self, width, heads, bias=True):
        super().__init__()
        self.out = nn.Linear(width, width, bias)
        self.v, self.q, self.k = (nn.Linear(width, width, bias) for _ in range(3))
        self.heads = heads

    def forward(self, tokens):
        q, k, v = (rearrange(f(tokens), "b t (h d) -> b h t d", h=self.heads) for f in (self.q, self.k, self.v))
        return self.out(rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))


class HeadByHead(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(dim, 3 * dim // num_heads) for _ in range(num_heads))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(torch.cat([by_loops(*head(x).chunk(3, -1))[0] for head in self.heads], dim=-1))


class Torch(nn.Module):
    batch_first, options = True, {}

    def __init__(self, dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=self.batch_first, **self.options)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


class Planted(Torch):
    batch_first = False


class Turned(Planted):
    def forward(self, x):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class OneByOne(Planted):
    def forward(self, x):
        return torch.stack([self.attn(image, image, image)[0] for image in x])


def of(base=Base, **changes):
    """A class with some of its parts changed"""
    return type("Answer", (base,), changes)


class OwnBiases(Base):
    bias = False

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.b = nn.Parameter(torch.zeros(3 * dim))


class Lists(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(dim, dim // num_heads) for _ in range(num_heads)) for _ in range(3)
        )
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        heads = [room.attention(q(x), k(x), v(x))[0] for q, k, v in zip(self.q, self.k, self.v, strict=True)]
        return self.out(torch.cat(heads, dim=-1))


class Slices(nn.Module):
    """Published: a head reads and projects only its slice of the token, and nothing mixes the heads"""

    def __init__(self, dim, num_heads):
        super().__init__()
        d = dim // num_heads
        self.maps = nn.ModuleList(nn.ModuleList(nn.Linear(d, d) for _ in range(3)) for _ in range(num_heads))

    def forward(self, x):
        slices = x.chunk(len(self.maps), -1)
        parts = [room.attention(*(f(z) for f in head))[0] for head, z in zip(self.maps, slices, strict=True)]
        return torch.cat(parts, -1)


class PlainList(Base):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        del self.qkv
        self.maps = [nn.Linear(dim, dim) for _ in range(3)]

    def qkv(self, x):
        return torch.cat([f(x) for f in self.maps], -1)


class Anew(Base):
    def forward(self, x):
        return nn.Linear(self.dim, self.dim)(super().forward(x))


class Normed(Base):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return super().forward(self.norm(x))


def without_scale(self, q, k, v):
    return soft(scores(q, k)) @ v


def bare(self, x):
    return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


def bare_qkv(self, x):
    B, T, _ = x.shape
    q, k, v = self.qkv(x).reshape(3, B, self.num_heads, T, -1)
    return self.project(self.merge(self.mix(q, k, v)))


def rows(order, back="b h t d -> b t (h d)"):
    """The 3D rows of the first Linear in another order"""

    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), f"b t ({order}) -> k b h t d", k=3, h=self.num_heads)
        return self.project(rearrange(self.mix(q, k, v), back))

    return of(forward=forward)


class Lazy(Base):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.qkv, self.proj = nn.LazyLinear(3 * dim), nn.LazyLinear(dim)


class Frozen(Base):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.proj.requires_grad_(False)


def first_result(self, x):
    self.first = getattr(self, "first", None)
    if self.first is None:
        self.first = Base.forward(self, x)
    return self.first


class InFloat32(nn.Module):
    """Both maps and attention in float32, whatever comes"""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.inner = Base(dim, num_heads)

    def forward(self, x):
        weights = {name: p.float() for name, p in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, weights, (x.float(),)).to(x.dtype)


ROWS = [rows(" ".join(order)) for order in permutations("khd")]
MODULE_RIGHT = [room.MultiHeadAttention, Base, Separate, HeadByHead, Lists, Torch, Turned, OneByOne, Lazy, *ROWS]
SHARED_WRONG = [
    (OwnBiases, "build it from nn.Linear"),
    (of(forward=not_written), "not written yet"),
    (of(split=bare), "torn apart by a bare view"),
    (of(merge=lambda self, v: v.reshape(v.shape[0], v.shape[2], -1)), "torn apart by a bare view"),
    (of(forward=bare_qkv), "images mix"),
    (of(mix=without_scale), "not divided by sqrt(d)"),
    (of(mix=lambda self, q, k, v: soft(scores(q, k)) / q.shape[-1] ** 0.5 @ v), "after the softmax"),
    (of(mix=lambda self, q, k, v: soft(scores(q, k) / self.dim**0.5) @ v), "divides by sqrt(D)"),
    (of(mix=lambda self, q, k, v: soft(scaled(q, k), -2) @ v), "runs over the queries"),
    (of(mix=lambda self, q, k, v: v), "the tokens never meet"),
    (of(split=lambda self, x: x[:, None]), "right for a single head"),
    (
        of(split=lambda self, x: x.unflatten(2, (self.num_heads, -1)), merge=lambda self, v: v.flatten(2)),
        "the tokens never meet",
    ),
    (of(forward=lambda self, x: Base.forward(self, x) + x), "adds its input"),
    (of(dropout=0.1), "in training mode"),
    (of(forward=lambda self, x: Base.forward(self, x).detach()), "no gradient flows back"),
    (of(mix=lambda self, q, k, v: soft(scaled(q, k)).detach() @ v), "another gradient"),
    (of(forward=lambda self, x: Base.forward(self, x)[:, 0]), "gives shape"),
    (of(forward=lambda self, x: None), "does it end with return?"),
    (of(forward=lambda self, x: room.attention(*(self.split(z) for z in self.qkv(x).chunk(3, -1)))), "one tensor"),
    (Planted, "images mix"),
    (Base(12, 3), "hand over the class itself"),
    (rows("k h d", "b h t d -> b t (d h)"), "the heads come back interleaved"),
    (of(mix=lambda self, q, k, v: room.attention(q, k, v, lower(q))[0]), "a token sees only earlier tokens"),
    (of(mix=lambda self, q, k, v: room.attention(q, k, v, lower(q).mT)[0]), "a token sees only later tokens"),
    (of(mix=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), "only earlier tokens"),
    (of(mix=lambda self, q, k, v: room.attention(q, q, v)[0]), "queries are compared with queries"),
    (of(mix=lambda self, q, k, v: room.attention(q, k, k)[0]), "averages the keys"),
    (of(forward=lambda self, x: Base.forward(self, x.mul_(2))), "changes its input"),
    (of(forward=lambda self, x: x.copy_(Base.forward(self, x))), "changes its input"),
    (of(forward=first_result), "was the first one kept?"),
    (of(forward=lambda self, x: Base.forward(self, x) * 1j), "gives complex numbers"),
    (of(mix=lambda self, q, k, v: soft(scaled(q, k), 1) @ v), "runs over the heads"),
    (of(mix=lambda self, q, k, v: scaled(q, k) @ v), "the softmax is missing"),
    (of(forward=lambda self, x: Base.forward(self, F.layer_norm(x, x.shape[2:]))), "the numbers are not"),
    (InFloat32, "loses digits"),
    (Frozen, "no gradient reaches proj.weight"),
]
MULTI_HEAD_WRONG = [
    *SHARED_WRONG,
    (Slices, "projects only its own slice"),
    (of(proj_layer=False, project=lambda self, x: x), "the output projection is missing"),
    (of(project=lambda self, x: x), "the output projection is never applied"),
    (of(bias=False, out_bias=False), "the biases are missing"),
    (of(bias=False), "queries, keys and values have no bias"),
    (of(out_bias=False), "the output projection has no bias"),
    (PlainList, "layers in a plain list"),
    (Anew, "at a second call"),
    (Normed, "a LayerNorm too many"),
    (lambda dim, heads: nn.Identity(), "has no parameters"),
    (lambda dim, heads: 3, "it should be an nn.Module"),
    (lambda dim: Base(dim, 3), "raises TypeError"),
]
MEND_WRONG = [
    *SHARED_WRONG,
    (of(Planted, forward=lambda self, x: Torch.forward(self, x.transpose(0, 1))), "gives shape"),
    (of(Planted, forward=lambda self, x: Torch.forward(self, x).transpose(0, 1)), "gives shape"),
    (
        of(Planted, forward=lambda self, x: Torch.forward(self, x.reshape(x.shape[1], x.shape[0], -1)).reshape(x.shape)),
        "[x] mend",
    ),
    (of(Planted, forward=lambda self, x: self.attn(x[0], x[0], x[0])[0].expand(x.shape)), "images mix"),
    (of(Torch, forward=lambda self, x: self.attn(x, x, x)), "it should give one tensor"),
    (of(Torch, options={"bias": False}), "the biases are missing"),
    (of(Torch, options={"dropout": 0.1}), "in training mode"),
    (of(Torch, forward=lambda self, x: torch.cat([Torch.forward(self, t[:, None]) for t in x.unbind(1)], 1)), "never meet"),
]


def cases(*pairs):
    return [(check, *((entry,) if not isinstance(entry, tuple) else entry)) for check, list_ in pairs for entry in list_]


MODULE_CHECKS = ((check_multi_head, MODULE_RIGHT), (check_mend, MODULE_RIGHT))
RIGHT = cases((check_attention, ATTENTION_RIGHT), (check_mask, MASK_RIGHT), (check_split_heads, SPLIT_RIGHT), *MODULE_CHECKS)
WRONG = cases(
    (check_attention, ATTENTION_WRONG),
    (check_mask, MASK_WRONG),
    (check_split_heads, SPLIT_WRONG),
    (check_multi_head, MULTI_HEAD_WRONG),
    (check_mend, MEND_WRONG),
)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.filterwarnings("ignore:The use of")  # k.T of a batch
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
    assert check_attention(room.attention) and check_multi_head(room.MultiHeadAttention)
    assert torch.equal(before, torch.get_rng_state())
