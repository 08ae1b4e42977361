"""Answers to the exercises of notebook 04."""

import math
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch import nn

from check_cases import attention as attention_cases
from check_cases import each, having, module, written, zeros
from vit_helpers import encoder
from vit_helpers.attention import MultiHeadAttention
from vit_helpers.checks.multi_head import HEADS


def of(base, **changes):
    """A class with some of its parts changed."""
    return type("Answer", (base,), changes)


# layer norm


def torch_norm(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def by_hand(x, w, b, eps=1e-6, axes=-1, correction=0):
    mean = x.mean(axes, keepdim=True)
    return (x - mean) / (x.var(axes, keepdim=True, correction=correction) + eps) ** 0.5 * w + b


def by_loops(x, weight, bias, eps=1e-6):
    rows = []
    for token in x.reshape(-1, x.shape[-1]):
        mean = sum(token) / len(token)
        variance = sum((number - mean) ** 2 for number in token) / len(token)
        rows.append((token - mean) / torch.sqrt(variance + eps))
    return torch.stack(rows).reshape(x.shape) * weight + bias


def by_einops(tokens, gain, shift, epsilon=0.000001):
    mean = reduce(tokens, "... d -> ... 1", "mean")
    off = tokens - mean
    return off * torch.rsqrt(reduce(off**2, "... d -> ... 1", "mean") + epsilon) * gain + shift


def in_place(x, weight, bias, eps=1e-6):
    x = x.clone()
    x -= x.mean(-1, keepdim=True)
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt()).mul_(weight).add_(bias)


def by_groups(x, weight, bias, eps=1e-6):
    return F.group_norm(x.reshape(-1, x.shape[-1]), 1, weight, bias, eps).reshape(x.shape)


def center(x):
    return x - x.mean(-1, keepdim=True)


def std(x, correction=0):
    return x.std(-1, keepdim=True, correction=correction)


def unbiased(x):
    """x.var of torch, which warns for a single number"""
    return center(x).square().sum(-1, keepdim=True) / (x.shape[-1] - 1)


def root(x, eps):
    return (std(x) ** 2 + eps).sqrt()


def over(axes):
    """A norm over other axes, which depend on the number of axes."""
    return lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, axes(x.ndim))


NORM_WRONG = each(over, written("n", globals(), {
    "over the tokens": ["(-2,)", "-1 if n < 2 else n - 2"],
    "takes mean and variance over axis 1": "(1,)",
    "takes mean and variance over the batch": "(0,)",
    "over batch and tokens": "list(range(n))[:-1]",
    "one mean and variance for a whole image": "list(range(n))[1 if n > 2 else 0 :]",
    "one mean and variance for the last two axes": "[n - 1, n - 2]",
    "the numbers are not": ["-1 if n == 2 else 0", "-1 if n == 2 else tuple(range(n - 1))"],
    "Count the axis of the features from the end": "2",
    "one mean and variance for all numbers": "list(range(n))",
})) | written("x, w, b, eps=1e-6", globals(), {
    "divides by D - 1 in the variance, but": "center(x) / (unbiased(x) + eps).sqrt() * w + b",
    "divides by D - 1 in the variance, and eps": "center(x) / (unbiased(x).sqrt() + eps) * w + b",
    "and there is no eps": "center(x) / unbiased(x) ** 0.5 * w + b",
    "The norm is over the last axis alone":
        ["F.layer_norm(x, x.shape, w, b, eps)", "F.layer_norm(x, x.shape[1:], w, b, eps)"],
    "eps is outside the square root": "center(x) / (std(x) + eps) * w + b",
    "there is no eps": "center(x) / std(x) * w + b",
    "missing or far too small": "(center(x) / std(x)).nan_to_num() * w + b",
    "eps is always": "torch_norm(x, w, b)", "eps is squared": "by_hand(x, w, b, eps * eps)",
    "divides by the variance": "center(x) / (std(x) ** 2 + eps) * w + b",
    "the mean is not subtracted": "x / root(x, eps) * w + b",
    "RMSNorm": "F.rms_norm(x, w.shape, w, eps) + b",
    "only the mean is subtracted": "center(x) * w + b",
    "multiplies by the square": "center(x) * root(x, eps) * w + b",
    "scale and shift are missing": "F.layer_norm(x, x.shape[-1:], eps=eps)",
    "the shift is missing": "F.layer_norm(x, w.shape, w, eps=eps)",
    "the scale is missing": "F.layer_norm(x, w.shape, None, b, eps)",
    "shift are swapped": "torch_norm(x, b, w, eps)",
    "shifts before it scales": "by_hand(x, 1, b, eps) * w",
    "the bias is subtracted": "by_hand(x, w, 0, eps) - b",
    "1 + weight": "torch_norm(x, 1 + w, b, eps)",
    "returns x unchanged": "x.clone()",
    "keepdim=True":
        [
            "(x - x.mean(-1)) / std(x)",
            "(x - x.mean(-1)[:, None]) / root(x, eps) * w + b",
            "center(x) / root(x, eps) @ w + b",
        ],
    "torch has its own for tensors": "center(x) / math.sqrt(std(x)) * w + b",
    "raises RuntimeError": "x @ x",
    "parentheses are missing": "x - x.mean(-1, True) / root(x, eps) * w + b",
    "divides by a length": "center(x) / center(x).norm(dim=-1, keepdim=True) * w + b",
    "one variance for all": "center(x) / (x.std(correction=0) ** 2 + eps).sqrt() * w + b",
    "one mean for all": "(x - torch.mean(x)) / root(x, eps) * w + b",
    "subtracts x from": "-center(x) / root(x, eps) * w + b",
    "divides by weight": "by_hand(x, 1, 0, eps) / w + b",
    "weight and bias are not used, and eps": "nn.LayerNorm(x.shape[-1], dtype=x.dtype)(x)",
    "no gradient flows back": "by_hand(x, nn.Parameter(w), b, eps)",
    "gradient": "(x - x.detach().mean(-1, keepdim=True)) / root(x, eps) * w + b",
    "the numbers are not": [
        "by_hand(x, w, b, eps).abs()",
        "x if x.shape[-1] == 1 else by_hand(x, w, b, eps)",
    ],
    "[x] layer_norm": "F.dropout(by_hand(x, w, b, eps), 0.1)",
    "gives shape": "by_hand(x, w, b, eps).mean(-1)",
}) | {
    "eps is 1e-5": lambda x, w, b, eps=1e-6: torch_norm(x, w, b, 1e-5),
    "where none is given, but its default should be": [
        lambda x, w, b, eps=1e-5: by_hand(x, w, b, eps),
        lambda x, w, b, eps=1e-12: by_hand(x, w, b, eps),
    ],
}  # fmt: skip


# the MLP


class MLP(nn.Module):
    """A right answer with places to go wrong."""

    bias = out_bias = True
    act, before, after = F.gelu, nn.Identity(), nn.Identity()

    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim, bias=self.bias)
        self.fc2 = nn.Linear(hidden_dim, dim, bias=self.out_bias)

    def forward(self, x):
        cls = type(self)  # functions among a class's attributes would be methods of its objects
        return cls.after(self.fc2(cls.act(self.fc1(cls.before(x)))))


class Reversed(nn.Module):
    def __init__(self, width, inner, extra=None):
        super().__init__()
        self.out, self.into = nn.Linear(inner, width), nn.Linear(width, inner)

    def forward(self, tokens):
        hidden = F.linear(tokens, self.into.weight, self.into.bias)
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        return F.linear(hidden, self.out.weight, self.out.bias)


class Listed(MLP):
    place = None

    def __init__(self, dim, hidden):
        nn.Module.__init__(self)
        self.layers = [nn.Linear(dim, hidden), nn.Linear(hidden, dim)]
        if self.place is not None:
            self.own = self.layers[self.place]

    def forward(self, x):
        return self.layers[1](F.gelu(self.layers[0](x)))


def sequential(dim, hidden):
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, dim))


Formula = module(  # matrices as the formula has them, z W1 + b1
    having(
        w1=zeros,
        b1=lambda dim, hidden: zeros(1, hidden),
        w2=lambda dim, hidden: zeros(hidden, dim),
        b2=lambda dim, hidden: zeros(dim),
    ),
    lambda self, x: F.gelu(x @ self.w1 + self.b1) @ self.w2 + self.b2,
)
Convolved = module(
    having(
        fc1=lambda dim, hidden: nn.Conv1d(dim, hidden, 1),
        fc2=lambda dim, hidden: nn.Conv1d(hidden, dim, 1),
    ),
    lambda self, x: self.fc2(F.gelu(self.fc1(x.mT))).mT,
)


halves = module(
    having(
        one=lambda dim, hidden: nn.Linear(dim, hidden // 2),
        two=lambda dim, hidden: nn.Linear(dim, hidden - hidden // 2),
        out=lambda dim, hidden: nn.Linear(hidden, dim),
    ),
    lambda self, x: self.out(F.gelu(torch.cat([self.one(x), self.two(x)], -1))),
)


def gelu_too(x):
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def as_it_is(x):
    return x


# each key is the beginning of a message, so that it serves for the block, too
MLP_NUMBERS_WRONG = {
    "there is a GELU": of(MLP, after=gelu_too),
    "there is a ReLU": of(MLP, after=F.relu),
    "GELU comes after": of(MLP, act=as_it_is, after=gelu_too),
    "GELU comes before the first layer instead": of(MLP, act=as_it_is, before=gelu_too),
    "GELU comes before the first layer too": of(MLP, before=gelu_too),
    "there is no activation": of(MLP, act=as_it_is),
    "uses ReLU where": of(MLP, act=F.relu),
    "uses ReLU, and": of(MLP, act=F.relu, after=F.relu),
    "uses the tanh": of(MLP, act=nn.GELU(approximate="tanh")),
    "uses x *": of(MLP, act=lambda x: x / (1 + torch.exp(-1.702 * x))),
    "uses SiLU where": of(MLP, act=lambda x: x * x.sigmoid()),
    "uses tanh where": of(MLP, act=nn.Tanh()),
    "uses a sigmoid": of(MLP, act=nn.Sigmoid()),
    "uses a leaky ReLU": of(MLP, act=nn.LeakyReLU()),
    "uses Phi(x) alone": of(MLP, act=lambda x: (1 + torch.erf(x / 2**0.5)) / 2),
    "GELU is twice too large": of(MLP, act=lambda x: x * (1 + torch.erf(x / 2**0.5))),
    "uses erf(x) in": of(MLP, act=lambda x: (x + x * torch.erf(x)) * 0.5),
    "adds its input": of(MLP, forward=lambda self, x: x + MLP.forward(self, x)),
    "normalizes its input": of(
        MLP, before=lambda x: F.layer_norm(x, x.shape[-1:], None, None, 1e-6)
    ),
}
MLP_WRONG = MLP_NUMBERS_WRONG | written("dim, hidden", globals(), {
    "detached nor frozen": "MLP(dim, hidden).requires_grad_(False)",
    "always 4 D": "MLP(dim, 4 * dim)",
    "one LayerNorm too many": "nn.Sequential(nn.LayerNorm(dim), MLP(dim, hidden))",
    "gives shape": "nn.Sequential(nn.Linear(dim, hidden), nn.GELU())",
    "is a fixed number in your code?": "MLP(dim, 10)",
}) | {
    "processes each token separately":
        of(MLP, act=lambda x: F.gelu(x) - F.gelu(x).mean(1, keepdim=True)),
    "the biases are missing": of(MLP, bias=False, out_bias=False),
    "the first layer has no bias": of(MLP, bias=False),
    "the second layer has no bias": of(MLP, out_bias=False),
    "the second argument is already the hidden width": lambda dim, ratio: MLP(dim, 4 * ratio),
    "the second argument is the hidden width itself": lambda dim, ratio: MLP(dim, dim * ratio),
    "one layer too many":
        lambda dim, h: nn.Sequential(
            nn.Linear(dim, h), nn.GELU(), nn.Linear(h, h), nn.GELU(), nn.Linear(h, dim)
        ),
    "not in a plain list": Listed,
    "only the first layer is registered": of(Listed, place=0),
    "only the second layer is registered": of(Listed, place=1),
    "each with a bias, so weights cannot be copied": [module(
        having(w=lambda dim, hidden: zeros(2 * dim * hidden + hidden + dim)),
        lambda self, x: x * self.w[0]
    ), halves],
    "fc2.weight":
        of(
            MLP,
            forward=lambda self, x: F.linear(
                F.gelu(self.fc1(x)), self.fc2.weight.detach(), self.fc2.bias
            ),
        ),
}  # fmt: skip


# the block


class Block(nn.Module):
    """A right answer with places to go wrong."""

    ratio, eps, attention, make_mlp = 4, 1e-6, MultiHeadAttention, encoder.MLP

    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=self.eps)
        self.attn = type(self).attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=self.eps)
        self.mlp = type(self).make_mlp(dim, self.ratio * dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


OwnNorm = module(
    having(shift=zeros, gain=lambda *shape: nn.Parameter(torch.ones(shape))),
    lambda self, x: by_hand(x, self.gain, self.shift),
)


class OwnParts(nn.Module):
    """Queries, keys and values apart, norms by hand, layers in another order."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.mlp = MLP(width, 4 * width)
        self.after, self.first = OwnNorm(width), OwnNorm(width)
        self.attention = attention_cases.Separate(width, heads)

    def forward(self, z):
        middle = z + self.attention(self.first(z))
        return self.mlp(self.after(middle)) + middle


class LooseNorms(Block):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        del self.norm1, self.norm2
        for name in ("s1", "w1", "w2", "s2"):
            setattr(self, name, nn.Parameter(torch.zeros(dim)))

    def norm1(self, x):
        return torch_norm(x, self.w1, self.s1)

    def norm2(self, x):
        return torch_norm(x, self.w2, self.s2)


class Torch(Block):
    """As published: torch's attention."""

    attention = partial(nn.MultiheadAttention, batch_first=True)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Planted(Torch):
    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attn(y, y, y)
        return x + self.mlp(self.norm2(x))


class Cross(attention_cases.Separate):
    """Queries, keys and values of different tokens."""

    def forward(self, *tokens):
        q, k, v = (
            rearrange(f(x), "b t (h d) -> b h t d", h=self.heads)
            for f, x in zip((self.q, self.k, self.v), tokens, strict=True)
        )
        return self.out(rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))


def crossed(inputs):
    """A block whose attention has three inputs, made of norm1(x) and x."""

    def forward(self, x):
        x = x + self.attn(*inputs(self.norm1(x), x))
        return x + self.mlp(self.norm2(x))

    return of(Block, attention=Cross, forward=forward)


class NormsInRows(Block):
    """Scale and shift of each norm, or of both, in one parameter."""

    rows = (0, 1), (0, 1)

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        del self.norm1, self.norm2
        self.norms = nn.ParameterList(zeros(len(rows), dim) for rows in self.rows)

    def norm1(self, x):
        return torch_norm(x, self.norms[0][0], self.norms[0][1])

    def norm2(self, x):
        return torch_norm(x, *self.norms[-1][-2:].flip(0))


class Layer(nn.Module):
    options = MappingProxyType({})

    def __init__(self, dim, num_heads):
        super().__init__()
        options = {
            "dropout": 0.0,
            "activation": "gelu",
            "norm_first": True,
            "layer_norm_eps": 1e-6,
            **self.options,
        }
        self.layer = nn.TransformerEncoderLayer(
            dim, num_heads, 4 * dim, batch_first=True, **options
        )

    def forward(self, x):
        return self.layer(x)


class Heads(nn.Module):
    """Maps for queries, keys and values of some widths, together 3 D; then a projection."""

    def __init__(self, dim, num_heads, *widths):
        super().__init__()
        widths = widths or [dim] * 3
        self.maps, self.out = (
            nn.ModuleList(nn.Linear(dim, width) for width in widths),
            nn.Linear(dim, dim),
        )
        self.num_heads = num_heads

    def forward(self, x):
        rows = torch.cat([f(x) for f in self.maps], -1)
        q, k, v = rearrange(rows, "b t (k h d) -> k b h t d", k=3, h=self.num_heads)
        return self.out(rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))


class Apart(LooseNorms):
    """Nothing says which vector or map is which."""

    attention = Heads


def way(function, base=Block):
    """A block that goes through its parts in another way."""
    return of(
        base, forward=lambda self, x: function(x, self.norm1, self.attn, self.norm2, self.mlp)
    )


def on(function):
    """What the function makes of x after equation 2, and of what came before."""
    return way(lambda x, n, a, m, f: function(x + a(n(x)), x, m, f))


def till(function):
    """What the function makes of x, as the input of equation 3."""

    def forward(x, n, a, m, f):
        x = function(x, n, a)
        return f(m(x)) + x

    return way(forward)


def norm_last(x, n, a, m, f):
    x = n(x + a(x))
    return m(x + f(x))


def normed_stream(x, n, a, m, f):
    x = n(x)
    x = x + a(x)
    x = m(x)
    return x + f(x)


def changed(change):
    """A block changed after it was built."""

    def build(dim, num_heads):
        block = Block(dim, num_heads)
        change(block)
        return block

    return build


def width(block):
    return block.mlp.fc1.in_features


def set_eps(*names, eps=1e-5):
    return changed(lambda block: [setattr(getattr(block, name), "eps", eps) for name in names])


def no_part(*sizes):
    return nn.Identity()


NO_BIAS = attention_cases.of(bias=False, out_bias=False), of(MLP, bias=False, out_bias=False)
BLOCK_RIGHT = [
    encoder.Block, Block, OwnParts, LooseNorms, Torch, Layer, Apart,
    lambda dim, h, eps=1e-6: encoder.Block(dim, h),
    of(Block, make_mlp=MLP), of(Block, make_mlp=Formula),
    NormsInRows, of(NormsInRows, rows=[range(4)]),
    of(Block, attention=attention_cases.ADDED[1]),
    of(Block, attention=lambda dim, h: Heads(dim, h, *[dim // h] * 3 * h)),
    changed(
        lambda block: [
            setattr(block, name, OwnNorm(1, 1, width(block))) for name in ("norm1", "norm2")
        ],
    ),
]  # fmt: skip
WAYS_WRONG = each(way, written("x, n, a, m, f", globals(), {
    "the MLP's result is never used": "x + a(n(x))",
    "there is no residual connection around the": "f(m(x + a(n(x))))",
    "the MLP's residual": "f(m(x + a(n(x)))) + x", "in parallel": "x + a(n(x)) + f(m(x))",
    "once more at the end": "(y := x + a(n(x))) + f(m(y)) + x",
    "before the sums": "m(f(x + n(a(x)))) + x + n(a(x))",
    "the second residual": "f(m(x + a(n(x)))) + m(x + a(n(x)))",
    "one norm is used twice": "(y := x + a(n(x))) + f(n(y))",
    "not normalized: mlp": "(y := x + a(n(x))) + f(y)", "no norm is used": "(y := x + a(x)) + f(y)",
    "the MLP comes before attention": "(y := x + f(n(x))) + a(m(y))",
    "the second norm comes after the sum": "m((y := x + a(n(x))) + f(y))",
    "the second norm comes after the MLP": "(y := x + a(n(x))) + m(f(y))",
    "the MLP's result is subtracted": "(y := x + a(n(x))) - f(m(y))",
    "the second norm is": "m(f(m(x + a(n(x)))) + x + a(n(x)))",
})) | each(on, written("y, x, m, f", globals(), {
    "there is no residual connection at": "f(m(y - x))",
    "first compute x = x + attn(norm1(x))": "x + f(m(y - x))",
    "it should read the sum": "y + f(m(y - x))",
    "x is not added to attention's result": "y - x + f(m(x))",
})) | each(till, written("x, n, a", globals(), {
    "there is no residual connection around attention": "a(n(x))",
    "the first norm comes after the": "n(a(x) + x)",
    "the first residual": "a(n(x)) + n(x)", "not normalized: attn": "a(x) + x",
    "the first norm comes after attention": "n(a(x)) + x",
    "attention's result is subtracted": "x.sub(a(n(x)))",
})) | {
    "attention's result is never used": Planted,
    "only the queries are normalized": [
        crossed(lambda y, x: (y, x, x)),
        of(
            Torch,
            forward=lambda self, x: (
                (y := x + self.attn(self.norm1(x), x, x)[0]) + self.mlp(self.norm2(y))
            ),
        ),
    ],
    "the queries are not normalized": crossed(lambda y, x: (x, y, y)),
    "the values are not normalized": crossed(lambda y, x: (y, y, x)),
    "the norms come after the sums": [way(norm_last), of(Layer, options={"norm_first": False})],
    "the residual connections add normalized tokens": way(normed_stream),
}  # fmt: skip
BLOCK_WRONG = WAYS_WRONG | {
    f"the MLP: {says}": of(Block, make_mlp=cls) for says, cls in MLP_NUMBERS_WRONG.items()
}
BLOCK_WRONG |= {  # the museum of attention, inside a block
    says: of(Block, attention=(cls if isinstance(cls, list) else [cls])[-1])
    for says, cls in attention_cases.MODULE_WRONG.items()
    if any(says in message for message in HEADS)
}
BLOCK_WRONG |= {
    "uses ReLU where":
        [of(Layer, options={"activation": "relu"}), of(LooseNorms, make_mlp=of(MLP, act=F.relu))],
    "the norms' eps is 1e-5": [of(Block, eps=1e-5), of(Layer, options={"layer_norm_eps": 1e-5})],
    "norm1's eps is 1e-5": set_eps("norm1"),
    "norm2's eps is 1e-5": set_eps("norm2"),
    "eps is 1e-8": of(Block, eps=1e-8),
    "eps is 1e-12": of(Block, eps=1e-12),
    "the norms have no eps": set_eps("norm1", "norm2", eps=0.0),
    "And the MLP uses ReLU": of(Layer, options={"norm_first": False, "activation": "relu"}),
    "in training mode": of(Layer, options={"dropout": 0.1}),
    "images mix": of(Torch, attention=nn.MultiheadAttention),
    "right for a single head": of(Block, attention=lambda dim, h: MultiHeadAttention(dim, 1)),
    **{
        f"attention has {n} heads":
            of(Block, attention=lambda dim, h, n=n: MultiHeadAttention(dim, n))
        for n in (2, 4, 6, 12)
    },
    **{f"hidden width is {n} D": of(Block, ratio=n) for n in (1, 2, 3, 8)},
    "one LayerNorm is missing": changed(lambda block: setattr(block, "norm2", block.norm1)),
    "one LayerNorm too many":
        changed(lambda block: setattr(block, "norm3", nn.LayerNorm(width(block)))),
    "for +: 'Tensor' and 'tuple' (a tuple is used like a tensor": of(
        Torch, forward=lambda self, x: x + self.attn(x, x, x)
    ),
    "so weights cannot be copied": of(Block, attention=attention_cases.ADDED[0]),
    "a LayerNorm is missing, and one of attention's four D x D layers":
        changed(
            lambda block: (
                setattr(block, "norm2", block.norm1), setattr(block.attn, "proj", nn.Identity())
            ),
        ),
    "one of attention's four D x D layers is missing": [
        changed(lambda block: setattr(block.attn, "proj", nn.Identity())),
        of(Block, attention=attention_cases.Shared),
    ],
    "attention is missing": of(Block, attention=no_part),
    "the MLP is missing": of(Block, make_mlp=no_part),
    "the MLP's layers have no biases": of(Block, make_mlp=NO_BIAS[1]),
    "the linear layers have no biases": of(Block, attention=NO_BIAS[0], make_mlp=NO_BIAS[1]),
    "queries, keys and values have no bias": of(Block, attention=attention_cases.of(bias=False)),
    "attention has no biases": of(Block, attention=NO_BIAS[0]),
    "has no parameters": no_part,
    "gradient": [
        way(lambda x, n, a, m, f: (y := x + a(n(x).detach())) + f(m(y))),
        way(lambda x, n, a, m, f: (y := x + a(n(x))) + f(m(y)).detach()),
    ],
    "the wrong gradient for its input":
        way(lambda x, n, a, m, f: (y := x.detach() + a(n(x))) + f(m(y))),
    "gives shape": on(lambda y, x, m, f: (y + f(m(y)))[:, 0]),
    "the numbers are not": on(lambda y, x, m, f: y * f(m(y))),
    "detached nor frozen": changed(lambda block: block.norm1.requires_grad_(False)),
    "is a fixed number in your code?": of(Block, make_mlp=lambda dim, hidden: encoder.MLP(dim, 48)),
}  # fmt: skip

# the count


def by_meta(dim, mlp_ratio=4):
    with torch.device("meta"):
        return sum(p.numel() for p in encoder.Block(dim, 1, mlp_ratio).parameters())


def by_parts(D, r=4, qkv=3, proj=1, norms=2, biases=1):
    attention = (qkv + proj) * D * D + biases * (qkv + proj) * D
    return attention + D * r * D + r * D * D + biases * (r * D + D) + norms * 2 * D


COUNT_WRONG = written("D, r=4", globals(), {
    "gives 7,087,872 for D = 100, it should give 121,300: the same for every size": "7_087_872",
    "gives 0 for D = 2":
        "{100: 121_300, 768: 7_087_872, 1024: 12_596_224, 1: 25, 7: 679}.get(D, 0)",
    "it should give a whole number":
        ["str(by_parts(D, r))", '"12 D² + 13 D"', "by_parts(D, r) + 0.5"],
    "gives 10,000,": "10**400",
    "a square is D**2, while ^ means something else":
        "int(4 * D + 2 * r * D) ^ int(2 + 9 * D + r * D)",
    "and mlp_ratio is not used": "12 * D ^ 2 + 13 * D",
    "first bias has mlp_ratio * D": "by_parts(D, r) - r * D + 4 * D",
    "2 * mlp_ratio * D * D": "by_parts(D, 4) + (r - 4) * D",
    "both weights": "by_parts(D, r) - (r - 4) * D * D",
    "(hidden, D)": "by_parts(D, 0) + 2 * r * D * r * D + r * D",
    "the biases and the norms are missing": "by_parts(D, r, norms=0, biases=0)",
    "the biases and the norms are missing; and mlp_ratio is not used": "12 * D**2",
    "the norms are missing": "by_parts(D, r, norms=0)",
    "the norms are missing; and mlp_ratio is not used": "12 * D**2 + 9 * D",
    "a block has two norms": "by_parts(D, r, norms=1)",
    "a norm is missing: a block has two; and mlp_ratio is not used": "12 * D**2 + 11 * D",
    "one norm too many": "by_parts(D, r, norms=3)",
    "that is one norm too many; and mlp_ratio is not used": "12 * D**2 + 15 * D",
    "the biases of all Linears are missing": "by_parts(D, r, biases=0)",
    "the MLP's biases": "by_parts(D, r) - D - r * D",
    "as many as in one bias": "by_parts(D, r) - D",
    "the bias of the MLP's first layer": "by_parts(D, r) - r * D", "3 D": "by_parts(D, r) - 3 * D",
    "the MLP has two layers": "by_parts(D, r) - r * D * D",
    "the output projection": "by_parts(D, r, proj=0)",
    "that is attention alone": "by_parts(D, 0, norms=0) - D",
    "that is the MLP alone": "by_parts(D, r, 0, 0, 0)",
    "the MLP is missing": "by_parts(D, 0) - D", "attention is missing": "by_parts(D, r, 0, 0)",
    "that is right only": "by_parts(D)", "add up the weights": "12 * D**2 + 13 * D + 1",
})  # fmt: skip

RIGHT = {
    "layer_norm": [torch_norm, by_hand, by_loops, by_einops, in_place, by_groups],
    "mlp": [encoder.MLP, MLP, Reversed, sequential, Formula, Convolved],
    "block": BLOCK_RIGHT,
    "fix": [Torch, Block, Layer],
    "block_parameters": [
        by_meta,
        by_parts,
        lambda dim, mlp_ratio=4: (4 + 2 * mlp_ratio) * dim**2 + (9 + mlp_ratio) * dim,
        lambda D, mlp_ratio=4.0: float(by_parts(D, mlp_ratio)),
        lambda D, mlp_ratio=4: torch.tensor(by_parts(D, mlp_ratio), dtype=torch.float64),
    ],
}
WRONG = {
    "layer_norm": NORM_WRONG,
    "mlp": MLP_WRONG,
    "block": BLOCK_WRONG,
    "block_parameters": COUNT_WRONG,
    "fix": {says: BLOCK_WRONG[says] for says in list(WAYS_WRONG)[:6]}
    | {"images mix": BLOCK_WRONG["images mix"]},
}
