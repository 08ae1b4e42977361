"""Answers to the exercises of notebook 03."""

import math
from itertools import permutations

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import nn

from check_cases import each, having, module, written, zeros
from vit_helpers.attention import MultiHeadAttention, attention


def soft(scores, dim=-1):
    return torch.softmax(scores, dim=dim)


def scores(q, k):
    return torch.einsum("...td,...sd->...ts", q, k)


def scaled(q, k):
    return scores(q, k) * q.size(-1) ** -0.5


def both(weights, v):
    return torch.matmul(weights, v), weights


def root_of(n):
    return torch.tensor(float(n)).sqrt().item()


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
    return torch.stack(
        [sum(w * value for w, value in zip(row, v, strict=True)) for row in weights]
    ), weights


def by_einsum(queries, keys, values, scale=None):
    weights = torch.einsum("...td,...sd->...ts", queries, keys).mul(
        scale or queries.size(-1) ** -0.5
    )
    weights = torch.softmax(weights, dim=weights.ndim - 1)
    return [torch.einsum("...ts,...sd->...td", weights, values), weights]


def by_einops(q, k, v):
    weights = soft(einsum(q / math.sqrt(q.shape[-1]), k, "... t d, ... s d -> ... t s"))
    return einsum(weights, v, "... t s, ... s d -> ... t d"), weights


def by_stable_softmax(q, k, v):
    table = scaled(q, k)
    exps = (table - table.max()).exp()
    return both(exps / exps.sum(-1, keepdim=True), v)


def divides_in_place(q, k, v):
    q /= q.shape[-1] ** 0.5
    return both(soft(scores(q, k)), v)


def lower(q):
    return torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril()


def by_numpy(q, k, v):
    found, weights = attention(q.detach(), k.detach(), v.detach())
    return torch.from_numpy(found.numpy()), torch.from_numpy(weights.numpy())


def batch_mean(q, k, v):
    weights = soft(scaled(q, k))
    return both(weights.mean(0, keepdim=True).expand(weights.shape) if q.ndim > 2 else weights, v)


def with_dropout(q, k, v):
    weights = soft(scaled(q, k))
    return F.dropout(weights, 0.1) @ v, weights


def k_reshaped(q, k):
    return torch.matmul(q, k.contiguous().view(*k.shape[:-2], k.shape[-1], -1))


def right_weights(value):
    """Right weights with other values."""
    return lambda q, k, v: (value(soft(scaled(q, k)), q, k, v), soft(scaled(q, k)))


ATTENTION_RIGHT = [
    lambda q, k, v: both(soft(scores(q, k) / torch.sqrt(torch.tensor(q.shape[-1]))), v),
    by_loops,
    by_einsum,
    by_einops,
    lambda q, k, v: (F.scaled_dot_product_attention(q, k, v), soft(scaled(q, k)).detach()),
    lambda a, b, c: both(soft(scaled(a, b)), c),
    by_stable_softmax,
]
VALUES_WRONG = written("w, q, k, v", globals(), {
    "averages with the transposed weights": 'torch.einsum("...ts,...td->...sd", w, v)',
    "averages the queries": "torch.matmul(w, q)", "averages the keys": "torch.matmul(w, k)",
    "returns v unchanged": "v * 1",
    "takes the plain mean of v": "torch.full_like(w, 1 / w.shape[-1]) @ v",
    "divides once too often": "w @ (v / root_of(q.shape[-1]))",
    "the residual connection belongs to the block": "torch.add(v, w @ v)",
})  # fmt: skip
WEIGHTS_WRONG = written("q, k, v", globals(), {
    "not divided by sqrt(d)": "soft(scores(q, k))",
    "after the softmax": "soft(scores(q, k)) / q.shape[-1] ** 0.5",
    "divides the scores": "soft(scores(q / q.shape[-1], k))",
    "the square root of T": "soft(scores(q, k) / q.shape[-2] ** 0.5)",
    "multiplies the scores": "soft(scores(q, k) * q.shape[-1] ** 0.5)",
    "divides by sqrt(D), the width of all heads":
        "soft(scaled(q, k) / (q.shape[-3] if q.ndim > 3 else 1) ** 0.5)",
    "the wrong sign": "soft(scaled(-q, k))",
    "normalizes over the queries": "soft(scaled(q, k).mT).mT",
    "your softmax normalizes over the images": "soft(scaled(q, k), -3 if q.ndim > 2 else 1)",
    "these are scores and not weights, because the softmax is": "scaled(q, k)",
    "the softmax and sqrt(d) are missing": "scores(q, k)",
    "only half of a softmax": "torch.exp(scaled(q, k))",
    "log_softmax": "soft(scaled(q, k)).log()", "a sigmoid": "1 / (1 + (-scaled(q, k)).exp())",
    "compares queries with queries": "soft(scaled(q, q))",
    "scales queries and keys to length 1":
        "soft(scaled(q / q.norm(dim=-1, keepdim=True), F.normalize(k, dim=-1)))",
})  # fmt: skip
FUNCTION_WRONG = WEIGHTS_WRONG | written("q, k, v", globals(), {
    "queries and keys are swapped: row":
        "soft(scaled(q, k).mT)", "your softmax normalizes over the first": "soft(scaled(q, k), 0)",
    "the whole matrix at once": "soft(scaled(q, k).flatten(), 0).view_as(scaled(q, k))",
    "compares queries with values": "soft(scaled(q, v))",
    "compares keys with keys": "soft(scaled(k, k))",
    "hides later tokens": "attention(q, k, v, lower(q))[1]",
    "the scores are not used": "soft(scores(q, k) * 0)",
    "the first axis's length": "soft(scores(q, k) / len(q) ** 0.5)",
    "k is reshaped": "soft(k_reshaped(q, k) / q.shape[-1] ** 0.5)",
    "sum(-1, keepdim=True)": "torch.div(scaled(q, k).exp(), scaled(q, k).exp().sum(-1))",
    "the rows sum to 1, but": [
        "soft(k_reshaped(q, k))",
        "scaled(q, k) / scaled(q, k).sum(-1, keepdim=True)",
    ],
    "the rows don't": "soft(scaled(q, k)) ** 2",
})  # fmt: skip
ATTENTION_WRONG = each(right_weights, VALUES_WRONG)
ATTENTION_WRONG |= each(lambda w: lambda q, k, v: both(w(q, k, v), v), FUNCTION_WRONG)
ATTENTION_WRONG |= written("q, k, v", globals(), {
    "return two results": ["soft(scaled(q, k))", '{"values": v}'],
    " of 3 for": "(*attention(q, k, v), v)",
    "gives the weights first": "both(soft(scaled(q, k)), v)[::-1]",
    "k.transpose(-2, -1)":
        [
            "both(soft(q @ k.transpose(0, 1) / q.shape[-1] ** 0.5), v)",
            "both(soft(q @ k.T / q.shape[-1] ** 0.5), v)",
        ],
    "[-2, 1], but got 2). One image has only the axes T and d. Count axes from the end":
        "both(soft(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5), v)",
    "q.shape[-1] is d": "[T for B, T, d in [q.shape]]",
    "axes from the end: k.transpose(-2, -1)":
        "both(soft(q @ k.permute(0, 2, 1) / q.shape[-1] ** 0.5), v)",
    "with ... einsum takes any axes in front":
        'both(soft(torch.einsum("btd,bsd->bts", q, k) / q.shape[-1] ** 0.5), v)',
    "the output is right, but these are scores: return":
        "(soft(scaled(q, k)) @ v, scaled(q, k))",
    "the output is right, but these are scores, without": "(soft(scaled(q, k)) @ v, scores(q, k))",
    "but q k^T multiplies (T, d) by (d, T)":
        ["both(soft(q @ k / q.shape[-1] ** 0.5), v)", "both(soft(q * k / q.shape[-1] ** 0.5), v)"],
    "weights @ v, in this order": "(v @ soft(scaled(q, k)), soft(scaled(q, k)))",
    "torch.mm takes no axes in front": "both(soft(torch.mm(q, k.mT) / q.shape[-1] ** 0.5), v)",
    "torch.bmm takes three": "both(soft(torch.bmm(q, k.mT) / q.shape[-1] ** 0.5), v)",
    "raises TypeError: sqrt(): argument 'input' (position 1) must be Tensor, not int (for a plain":
        "both(soft(scores(q, k) / torch.sqrt(q.shape[-1])), v)",
    "(numpy and detach() pass no gradient on":
        "[torch.tensor(x.numpy()) for x in attention(q, k, v)]",
    "gives shape (1, 3)":
        "(torch.tensor([[6.65, 2.45, 0.90]]), torch.tensor([[0.665, 0.245, 0.090]]))",
}) | {
    "the output isn't weights @ v": right_weights(lambda w, q, k, v: w @ v + 1),
    "images mix":
        [lambda q, k, v: both(soft(scaled(q, k[:1] if q.ndim > 2 else k)), v), batch_mean],
    "is something in it random?": with_dropout,
    "no gradient flows back": [by_numpy, lambda q, k, v: both(soft(scaled(q, k)).detach(), v)],
    "changes its input": divides_in_place,
}  # fmt: skip

# mask


def fill(q, k, v, mask, number=-math.inf, keep=None):
    return both(soft(scaled(q, k).masked_fill(~mask if keep is None else keep, number)), v)


def mask_bias(q, k, v, may_look):
    bias = q.new_zeros(may_look.shape).masked_fill(may_look.logical_not(), -math.inf)
    return both(soft(scaled(q, k) + bias), v)


def mask_renormalize(q, k, v, mask):
    weights = soft(scaled(q, k)) * mask
    return both(weights / weights.sum(-1, keepdim=True), v)


def flips(q, k, v, mask):
    found = fill(q, k, v, mask)
    mask.logical_not_()
    return found


MASK_RIGHT = [
    fill,
    lambda q, k, v, mask: both(
        soft(torch.where(mask, scaled(q, k), torch.tensor(-torch.inf, dtype=q.dtype))), v
    ),
    mask_bias,
    mask_renormalize,
    lambda q, k, v, m: (F.scaled_dot_product_attention(q, k, v, m), attention(q, k, v, m)[1]),
    lambda q, k, v, m: fill(q, k, v, m, -1e9),
    lambda q, k, v, m: fill(q, k, v, m, torch.finfo(q.dtype).min),
]
MASK_WRONG = {
    says: lambda q, k, v, m, wrong=wrong: (
        wrong(attention(q, k, v, m)[1], q, k, v), attention(q, k, v, m)[1]
    )
    for says, wrong in VALUES_WRONG.items()
} | written("q, k, v, m", globals(), {
    "the mask is not used": "both(soft(scaled(q, k)), v)",
    "the mask is inverted": "fill(q, k, v, ~m)",
    "hides keys after": "both(soft(scaled(q, k)).masked_fill(~m, 0), v)",
    "fills after the softmax": "both(soft(scaled(q, k)).masked_fill(~m, -math.inf), v)",
    "e^0 = 1": "fill(q, k, v, m, 0.0)",
    "adds the mask": "both(soft(scaled(q, k) + m), v)",
    "still gets weight": [
        *(f"fill(q, k, v, m, -{number})" for number in (4, 20, 40, 60, 100)),
        "both(soft(scaled(q, k) - 1e9 * m), v)",
        "attention(q, k, v, lower(q))",
        "fill(q, k, v, m | torch.eye(m.shape[-1], dtype=torch.bool))",
    ],
    "a query may attend to a key where it is True": [
        "fill(q, k, v, m, -1e9, keep=m)",
        "fill(q, k, v, m == 0, torch.finfo(q.dtype).min)",
    ],
    "a token that is not hidden gets weight 0": [
        "fill(q, k, v, m.reshape(-1, m.shape[-1]).all(0))",
        "fill(q, k, v, m & (torch.ones_like(scores(q, k)).tril() > 0))",
    ],
    "the output is right, but these are scores: return":
        "(attention(q, k, v, m)[0], torch.where(m, scaled(q, k), -math.inf))",
    "the output is right, but these are scores, without":
        "(attention(q, k, v, m)[0], torch.where(m, scores(q, k), -math.inf))",
    "there are ~, & and |": "fill(q, k, v, m, keep=not m)",
    "when all scores are below zero: a hidden token, False in the mask, still":
        "fill(q, k, v, m, -60.0)",
    "that all queries may attend to": "fill(q, k, v, m.all(-2, keepdim=True))",
    "that no query may attend to": "attention(q, k, v, m.any(-2)[..., None, :])",
    "share the first row": "fill(q, k, v, m.narrow(-2, 0, 1))",
    "makes every row with a hidden token NaN":
        ["fill(q, k, v, m, math.inf)", "fill(q, k, v, m, math.nan)"],
    "the mask is transposed": "fill(q, k, v, m.transpose(-2, -1))",
    "not divided by sqrt(d)": "both(soft(torch.where(m, scores(q, k), -math.inf)), v)",
    "gives NaN": "both(soft(scaled(q, k) + (1 - m.float()) * -math.inf), v)",
    "your softmax normalizes over the queries":
        "both(soft(torch.where(m, scaled(q, k), -math.inf).mT).mT, v)",
    "the softmax is missing": "both(torch.where(m, scaled(q, k), -math.inf), v)",
    "for 2 images, 3 heads": "fill(q, k, v, m if m.ndim == 2 else m.expand(2, 3, 5, 5).mT)",
    "gradient": "attention(q.detach(), k, v, m)", "return two results": "attention(q, k, v, m)[0]",
}) | {
    "changes its input": flips,
}  # fmt: skip

# heads


def split_loops(tokens, h):
    d = tokens.shape[2] // h
    return torch.stack([tokens[:, :, i * d : (i + 1) * d] for i in range(h)], dim=1)


def split_to(axes, opened="(h d)"):
    """Heads by einops."""
    return lambda x, h: rearrange(x, f"b t {opened} -> {axes}", h=h)


SPLIT_RIGHT = [
    split_loops,
    lambda x, h: x.view(x.shape[0], x.shape[1], h, -1).transpose(1, 2),
    lambda x, num_heads, copy=True: rearrange(x, "b t (h d) -> b h t d", h=num_heads).contiguous(),
    lambda x, h: torch.stack(x.chunk(h, dim=-1), 1),
    lambda x, h: x.unflatten(2, (h, -1)).permute(0, 2, 1, 3),
    lambda x, h: torch.cat([split_loops(image[None], h) for image in x]),
]
SPLIT_WRONG = written(
    "x, h",
    globals(),
    {
        "Cut the last axis into heads": "torch.stack(x.chunk(h, 1), 1)",
        "a single view or reshape mixes": "x.flatten(1).unflatten(1, (h, x.shape[1], -1))",
        "the heads come in reverse order": "torch.stack(x.chunk(h, -1)[::-1], 1)",
        "every head contains": "split_loops(x, h)[:, :1].repeat(1, h, 1, 1)",
        "the tokens come in reverse order": "split_loops(torch.stack(x.unbind(1)[::-1], 1), h)",
        "every head has the whole width D": "torch.stack([x] * h, 1)",
        "only one image of the batch was split": "split_loops(x, h).narrow(0, 0, 1)",
        " of 3 for": "x.chunk(h, -1)",
        "[x] split_heads": "split_loops(x, 3)",
        "was the first one kept?": "torch.zeros(x.shape[0], h, x.shape[1], x.shape[2] // h)",
        "head i has the components (i-1)*d to i*d": "split_loops(x, h).sort(-1).values",
    },
) | {
    "every h-th component": split_to("b h t d", "(d h)"),
    "swap T and h": split_to("b t h d"),
    "the heads come before": [split_to("h b t d"), lambda x, h: torch.stack(x.chunk(h, -1))],
    "images and tokens are swapped": split_to("t b h d"),
    "need an axis of their own": split_to("b (h t) d"),
    "the heads are on the last axis": split_to("b t d h"),
    "the images are cut, not the tokens": lambda x, h: torch.stack(x.split(-(-len(x) // h)), dim=1),
    "the last two axes are swapped": split_to("b h d t"),
    "h and d are swapped": split_to("b d t h", "(d h)"),
    "are merged into one axis": split_to("(b h) t d"),
}

# modules


class Base(nn.Module):
    """A right answer with places to go wrong."""

    bias, out_bias, proj_layer = True, True, True

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.dim = num_heads, dim
        self.qkv = nn.Linear(dim, 3 * dim, bias=self.bias)
        if self.proj_layer:
            self.proj = nn.Linear(dim, dim, bias=self.out_bias)

    def split(self, x):
        return split_loops(x, self.num_heads)

    def mix(self, q, k, v):
        return attention(q, k, v)[0]

    def merge(self, values):
        return values.transpose(1, 2).flatten(2)

    def project(self, x):
        return self.proj(x)

    def forward(self, x):
        q, k, v = (self.split(z) for z in self.qkv(x).chunk(3, -1))
        return self.project(self.merge(self.mix(q, k, v)))


class Separate(nn.Module):
    """Layers apart for queries, keys and values, which may be mixed."""

    def __init__(self, width, heads):
        super().__init__()
        self.v, self.out, self.k, self.q = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def mix(self, q, k, v):
        return q, k, v

    def forward(self, tokens, mask=None):
        q, k, v = (
            rearrange(f(tokens), "b t (h d) -> b h t d", h=self.heads)
            for f in (self.q, self.k, self.v)
        )
        return self.out(
            rearrange(F.scaled_dot_product_attention(*self.mix(q, k, v)), "b h t d -> b t (h d)")
        )


class HeadByHead(nn.Module):
    """Layers of its own for every head, one for queries, keys and values or three."""

    def __init__(self, dim, num_heads, bias=True, layers=1):
        super().__init__()
        width = 3 * dim // num_heads // layers
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(dim, width, bias=bias) for _ in range(layers))
            for _ in range(num_heads)
        )
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        heads = (torch.cat([layer(x) for layer in head], -1).chunk(3, -1) for head in self.heads)
        return self.proj(torch.cat([F.scaled_dot_product_attention(*qkv) for qkv in heads], dim=-1))


class Torch(nn.Module):
    batch_first, options = True, {}

    def __init__(self, dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(
            dim, num_heads, batch_first=self.batch_first, **self.options
        )

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


def of(base=Base, **changes):
    """A class with some of its parts changed."""
    return type("Answer", (base,), changes)


Planted = of(Torch, batch_first=False)
TURNED = [
    of(Planted, forward=lambda self, x: Torch.forward(self, x.transpose(0, 1)).transpose(0, 1)),
    of(
        Planted,
        forward=lambda self, x: torch.stack([self.attn(image, image, image)[0] for image in x]),
    ),
]


def mixing(weights):
    """A class that mixes its tokens with other weights."""
    return of(mix=lambda self, q, k, v: weights(q, k, v) @ v)


class Added(Separate):
    """Every head has an output projection of its own; the results are added, with one bias."""

    loose = True

    def __init__(self, width, heads):
        super().__init__(width, heads)
        del self.out
        self.outs = nn.ModuleList(
            nn.Linear(width // heads, width, bias=i == 0 and not self.loose) for i in range(heads)
        )
        if self.loose:
            self.bias = zeros(1, 1, width)

    def forward(self, tokens):
        q, k, v = (
            rearrange(f(tokens), "b t (h d) -> h b t d", h=self.heads)
            for f in (self.q, self.k, self.v)
        )
        heads = F.scaled_dot_product_attention(q, k, v)
        out = sum(layer(head) for layer, head in zip(self.outs, heads, strict=True))
        return out + self.bias if self.loose else out


class Shared(Separate):
    """The same layer for two of queries, keys and values, or for all three."""

    shared = "q"

    def __init__(self, width, heads):
        super().__init__(width, heads)
        for name in self.shared:
            setattr(self, name, self.k)


class WholeWidth(nn.Module):
    """Heads of the whole width, side by side or added."""

    def __init__(self, dim, num_heads, added=False):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(num_heads))
        self.added = added
        self.proj = nn.Linear(dim if added else num_heads * dim, dim)

    def forward(self, x):
        heads = [F.scaled_dot_product_attention(*qkv(x).chunk(3, -1)) for qkv in self.heads]
        return self.proj(sum(heads) if self.added else torch.cat(heads, -1))


def per_head(dim, num_heads):
    return nn.ModuleList(nn.Linear(dim, dim // num_heads) for _ in range(num_heads))


def by_lists(self, x):
    heads = [attention(q(x), k(x), v(x))[0] for q, k, v in zip(self.q, self.k, self.v, strict=True)]
    return self.out(torch.cat(heads, dim=-1))


def by_slices(self, x):
    """Published: a head reads and projects only its slice of the token; nothing mixes heads."""
    slices = x.chunk(len(self.maps), -1)
    return torch.cat(
        [attention(*(f(z) for f in head))[0] for head, z in zip(self.maps, slices, strict=True)], -1
    )


def slices(dim, num_heads):
    d = dim // num_heads
    return nn.ModuleList(nn.ModuleList(nn.Linear(d, d) for _ in range(3)) for _ in range(num_heads))


def by_axis_1(self, x):
    return attention(*(self.split(part) for part in self.qkv(x).chunk(3, 1)))[0]


class ProjectedHeads(Base):
    """The output projection works within a head, (d, d)."""

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.proj = nn.Linear(dim // num_heads, dim // num_heads)

    def merge(self, values):
        return super().merge(self.proj(values))

    def project(self, x):
        return x


class Uncalled(Base):
    def __init__(self, dim, num_heads):
        self.qkv = nn.Linear(dim, 3 * dim)


Lists = module(
    having(q=per_head, k=per_head, v=per_head, out=lambda dim, num_heads: nn.Linear(dim, dim)),
    by_lists,
)
Slices = module(having(maps=slices), by_slices)


class PlainList(Base):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        del self.qkv
        self.maps = [nn.Linear(dim, dim) for _ in range(3)]

    def qkv(self, x):
        return torch.cat([f(x) for f in self.maps], -1)


def with_part(**parts):
    """A class that has more parts: functions of the width."""

    def __init__(self, dim, num_heads):  # noqa: N807
        Base.__init__(self, dim, num_heads)
        for name, part in parts.items():
            setattr(self, name, part(dim))

    return of(__init__=__init__)


def bare_qkv(self, x):
    B, T, _ = x.shape
    q, k, v = self.qkv(x).reshape(3, B, self.num_heads, T, -1)
    return self.project(self.merge(self.mix(q, k, v)))


def rows(order, back="b h t d -> b t (h d)"):
    """The 3D rows of the first Linear in another order."""

    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), f"b t ({order}) -> k b h t d", k=3, h=self.num_heads)
        return self.project(rearrange(self.mix(q, k, v), back))

    return of(forward=forward)


Lazy = with_part(qkv=lambda dim: nn.LazyLinear(3 * dim), proj=nn.LazyLinear)


def after(change):
    """The right module's result, changed."""
    return of(forward=lambda self, x: change(self, x, Base.forward(self, x)))


ROWS = [rows(" ".join(order)) for order in permutations("khd")]
ADDED = [Added, of(Added, loose=False)]
MODULE_RIGHT = [Base, Separate, HeadByHead, Lists, Torch, *TURNED, Lazy, *ROWS, *ADDED]


def cut_as(cut):
    """The 3 D numbers of a token cut in another way."""

    def forward(self, x):
        q, k, v = cut(self.qkv(x))
        q, k, v = map(self.split, (q, k, v))
        return self.project(self.merge(self.mix(q, k, v)))

    return of(forward=forward)


ERRORS_WRONG = {  # an error tells what went wrong
    "T and h have to be swapped twice": [
        of(merge=lambda self, values: values.flatten(2)),
        of(split=lambda self, x: x.unflatten(2, (self.num_heads, -1))),
    ],
    "are these the attention weights": of(mix=lambda self, q, k, v: attention(q, k, v)[1]),
    "is multiplied by (B, h, T, d). Swap the last": mixing(lambda q, k, v: soft(q @ k)),
    "Axis 1 holds 3 heads in one tensor": [
        mixing(lambda q, k, v: soft(q @ k.transpose(1, 2))),
        mixing(lambda q, k, v: soft(q @ k.T)),
    ],
    "There are as many parts as images. Cut":
        [cut_as(lambda qkv: qkv.chunk(3)), cut_as(lambda qkv: qkv)],
    "got 1). Cut q, k and v along the last axis": cut_as(lambda qkv: qkv.split(12)),
    "'tuple' object has no attribute 'transpose' (a tuple is used like a tensor":
        of(mix=lambda self, q, k, v: attention(q, k, v)),
    "must be Tensor, not tuple (a tuple is used like a tensor":
        of(merge=lambda self, values: attention(values, values, values)),
    "two contiguous subspaces). (view cannot merge axes that a transpose or permute has moved. ": [
        of(split=lambda self, x: x.view(len(x), self.num_heads, x.shape[1], -1),
           merge=lambda self, v: v.transpose(1, 2).view(len(v), v.shape[2], -1)),
        of(merge=lambda self, v: v.transpose(1, 2).view(len(v), v.shape[2], -1)),
    ],
}  # fmt: skip
HEADS_WRONG = {says: w for says, w in WEIGHTS_WRONG.items() if "over the queries" not in says}
MODULE_WRONG = each(mixing, HEADS_WRONG) | each(mixing, written("q, k, v", globals(), {
    "each column of the weights sums to 1":
        ["soft(scaled(q, k).mT).mT", "soft(scaled(q, k)).mT"],
    "divides once too often": "soft(scaled(q, k)) / q.shape[-1] ** 0.5",
    "divides by T,": "soft(scores(q, k) / len(q[0, 0]))",
    "a token may not attend": "soft(scaled(q, k) - 1e9 * torch.eye(q.shape[-2], dtype=q.dtype))",
})) | {
    "adds v to": of(mix=lambda self, q, k, v: attention(q, k, v)[0].add(v)),
    "build it from nn.Linear": of(with_part(b=lambda dim: zeros(3 * dim)), bias=False),
    "a single view splits (B, T, D) into heads":
        of(split=lambda self, x: x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)),
    "a single view merges (B, h, T, d)":
        of(merge=lambda self, v: v.reshape(len(v), len(v[0][0]), -1)),
    "single views split into heads and merge them": of(
        split=lambda self, x: x.reshape(x.shape[0], self.num_heads, x.shape[1], -1),
        merge=lambda self, v: v.flatten(1).unflatten(1, (v.shape[2], -1)),
    ),
    "depends on the order of the tokens": after(lambda self, x, y: y + y.cumsum(1)),
    "h and d are swapped":
        of(split=lambda self, x: rearrange(x, "b t (h d) -> b h t d", d=self.num_heads)),
    "images mix": [of(forward=bare_qkv), Planted],
    "right for a single head": of(split=lambda self, x: x[:, None]),
    "the heads are interleaved": rows("k h d", "b h t d -> b t (d h)"),
    "the heads are concatenated in reverse":
        of(merge=lambda self, v: torch.cat(v.unbind(1)[::-1], -1)),
    "averages the keys": of(mix=lambda self, q, k, v: attention(q, k, k)[0]),
    "the output projection is never applied": of(project=lambda self, x: x),
    "the output projection's bias is never added":
        of(project=lambda self, x: F.linear(x, self.proj.weight)),
    "adds its input": after(lambda self, x, y: x + y),
    "the tokens exchange nothing:": [
        of(mix=lambda self, q, k, v: v),
        of(
            split=lambda self, x: x.unflatten(2, (self.num_heads, -1)),
            merge=lambda self, v: v.flatten(2),
        ),
    ],
    "the wrong gradient": of(mix=lambda self, q, k, v: soft(scaled(q, k)).detach() @ v),
    "a token attends only to earlier tokens and itself. Is there a causal mask?": [
        of(mix=lambda self, q, k, v: attention(q, k, v, lower(q))[0]),
        of(mix=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ],
    "a token attends only to later tokens":
        of(mix=lambda self, q, k, v: attention(q, k, v, lower(q).mT)[0]),
    "the numbers are not":
        of(forward=lambda self, x: Base.forward(self, F.layer_norm(x, x.shape[2:]))),
    "no gradient reaches proj.weight":
        with_part(proj=lambda dim: nn.Linear(dim, dim).requires_grad_(False)),
    "output projection) is missing":
        [of(Shared), of(proj_layer=False, project=lambda self, x: x)],
    "output projection) is missing, and so are the biases":
        of(proj_layer=False, project=lambda self, x: x, bias=False),
    "output projection) are missing": of(Shared, shared="qv"),
    "the whole width D, but they should have d = D / h numbers": WholeWidth,
    "side by side and not added up": lambda dim, h: WholeWidth(dim, h, added=True),
    ": the biases are missing": of(bias=False, out_bias=False),
    "queries, keys and values have no bias": of(bias=False),
    "the output projection has no bias": of(out_bias=False),
    "layers in a plain list": PlainList,
    "that is one D": with_part(more=lambda dim: nn.Linear(dim, dim)),
    "one LayerNorm too many": with_part(norm=nn.LayerNorm),
}  # fmt: skip
FIX_WRONG = MODULE_WRONG | {
    "B and T are swapped once": [
        of(Planted, forward=lambda self, x: Torch.forward(self, x.transpose(0, 1))),
        of(Planted, forward=lambda self, x: Torch.forward(self, x).transpose(0, 1)),
    ],
    "The last axis has to stay D":
        of(Planted, forward=lambda self, x: Torch.forward(self, x.mT).mT),
    "need the same order of B and T":
        of(Planted, forward=lambda self, x: self.attn(x.transpose(0, 1), x, x)[0].transpose(0, 1)),
    "nn.MultiheadAttention(...) itself":
        of(Planted, forward=lambda self, x: self.attn(x, x, x, batch_first=True)[0]),
    "(a tuple is used like a tensor": of(
        Planted,
        forward=lambda self, x: self.attn(*[x.transpose(0, 1)] * 3).transpose(0, 1),
    ),
    "cuts the same numbers anew":
        of(
            Planted,
            forward=lambda self, x: (
                Torch.forward(self, x.reshape(x.shape[1], x.shape[0], -1)).reshape(x.shape)
            ),
        ),
    "swapped twice": [
        of(Torch, forward=lambda self, x: Torch.forward(self, x.transpose(0, 1)).transpose(0, 1)),
        of(Torch, forward=lambda self, x: Torch.forward(self, x.swapaxes(0, 1)).swapaxes(0, 1)),
    ],
    "images mix":
        of(Planted, forward=lambda self, x: self.attn(x[0], x[0], x[0])[0].expand(x.shape)),
    "it should give one tensor": of(Torch, forward=lambda self, x: self.attn(x, x, x)),
    " the biases are missing": of(Torch, options={"bias": False}),
    "in training mode": of(Torch, options={"dropout": 0.1}),
    "the tokens exchange nothing":
        of(
            Torch,
            forward=lambda self, x: torch.cat(
                [Torch.forward(self, t[:, None]) for t in x.unbind(1)], 1
            ),
        ),
}  # fmt: skip
RIGHT = {
    "attention": ATTENTION_RIGHT,
    "mask": MASK_RIGHT,
    "split_heads": SPLIT_RIGHT,
    "fix": MODULE_RIGHT,
    "multi_head": [MultiHeadAttention, *MODULE_RIGHT],
}
WRONG = {
    "attention": ATTENTION_WRONG, "mask": MASK_WRONG, "split_heads": SPLIT_WRONG, "fix": FIX_WRONG,
    "multi_head": MODULE_WRONG
    | ERRORS_WRONG
    | {
        "a layer reads only d of the D components": [
            Slices,
            ProjectedHeads,
        ],
        "Concatenate the heads along": of(merge=lambda self, v: v.flatten(1, 2)),
        "Cut them along the last axis":
            of(forward=lambda self, x: self.proj(by_axis_1(self, x).transpose(1, 2).flatten(2))),
        "start __init__ with super()": Uncalled,
        "has no parameters": lambda dim, heads: nn.Identity(),
    },
}  # fmt: skip
