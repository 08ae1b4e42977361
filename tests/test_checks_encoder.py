"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math
from types import MappingProxyType

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch import nn

from vit_helpers import encoder as room
from vit_helpers.attention import MultiHeadAttention
from vit_helpers.checks.encoder import check_block, check_block_parameters, check_layer_norm, check_mend, check_mlp


def not_written(*_):
    raise NotImplementedError


def of(base, **changes):
    """A class with some of its parts changed"""
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


def by_module(x, weight, bias, eps=1e-6):
    norm = nn.LayerNorm(x.shape[-1], eps=eps, elementwise_affine=False, dtype=x.dtype)
    return norm(x) * weight + bias


def in_place(x, weight, bias, eps=1e-6):
    x = x.clone()
    x -= x.mean(-1, keepdim=True)
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt()).mul_(weight).add_(bias)


def batch_norm(x, w, b, eps=1e-6):
    return by_hand(x, w, b, eps, tuple(range(x.ndim - 1)))


def writes(x, w, b, eps=1e-6):
    x -= x.mean(-1, keepdim=True)
    return by_hand(x, w, b, eps)


def centre(x):
    return x - x.mean(-1, keepdim=True)


def std(x, correction=0):
    return x.std(-1, keepdim=True, correction=correction)


NORM_RIGHT = [torch_norm, by_hand, by_loops, by_einops, by_module, in_place]
NORM_WRONG = [
    (not_written, "[ ] layer_norm: not written yet"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, correction=1), "divides by D - 1"),
    (lambda x, w, b, eps=1e-6: centre(x) / (std(x, 1) + eps) * w + b, "divides by D - 1"),
    (lambda x, w, b, eps=1e-6: centre(x) / (std(x) + eps) * w + b, "eps stands outside the root"),
    (lambda x, w, b, eps=1e-6: centre(x) / std(x) * w + b, "gives NaN"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, 1e-6), "not the one that was given"),
    (lambda x, w, b, eps=1e-5: by_hand(x, w, b, eps), "eps is 1e-5"),
    (lambda x, w, b, eps=1e-6: torch_norm(x, w, b, 1e-5), "eps is 1e-5"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps**2), "eps is squared"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, -2), "over the tokens"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, 0), "over the tokens"),
    (batch_norm, "over the tokens"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, -1 if x.ndim == 2 else 0), "over the batch"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, -1) if x.ndim == 2 else batch_norm(x, w, b, eps), "batch and tokens"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, (-2, -1)), "one mean and variance"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, tuple(range(x.ndim))), "one mean and variance"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps, 1), "for shape (2, 5, 4): takes mean and variance over the tokens"),
    (lambda x, w, b, eps=1e-6: centre(x) / (x.var(-1, keepdim=True, correction=0) + eps) * w + b, "divides by the variance"),
    (lambda x, w, b, eps=1e-6: x / (std(x) ** 2 + eps).sqrt() * w + b, "the mean is not subtracted"),
    (lambda x, w, b, eps=1e-6: F.rms_norm(x, w.shape, w, eps) + b, "RMSNorm"),
    (lambda x, w, b, eps=1e-6: centre(x) * w + b, "only the mean is subtracted"),
    (lambda x, w, b, eps=1e-6: by_hand(x, 1, 0, eps), "scale and shift are missing"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, 0, eps), "the shift is missing"),
    (lambda x, w, b, eps=1e-6: by_hand(x, 1, b, eps), "the scale is missing"),
    (lambda x, w, b, eps=1e-6: by_hand(x, b, w, eps), "changed places"),
    (lambda x, w, b, eps=1e-6: (by_hand(x, 1, b, eps)) * w, "shifts before it scales"),
    (lambda x, w, b, eps=1e-6: by_hand(x, 1 + w, b, eps), "1 + weight"),
    (lambda x, w, b, eps=1e-6: x, "gives x back"),
    (lambda x, w, b, eps=1e-6: x if x.shape[-1] == 1 else by_hand(x, w, b, eps), "gives x back"),
    (lambda x, w, b, eps=1e-6: (x - x.mean(-1)) / std(x), "keepdim=True"),
    (lambda x, w, b, eps=1e-6: (x - x.mean(-1)[:, None]) / (std(x) ** 2 + eps).sqrt() * w + b, "keepdim=True"),
    (lambda x, w, b, eps=1e-6: x @ x, "raises RuntimeError"),
    (lambda x, w, b, eps=1e-6: x - x.mean(-1, True) / (std(x) ** 2 + eps).sqrt() * w + b, "brackets are missing"),
    (lambda x, w, b, eps=1e-6: F.normalize(centre(x), dim=-1) * w + b, "the root of a sum"),
    (lambda x, w, b, eps=1e-6: centre(x) / (x.var(correction=0) + eps).sqrt() * w + b, "one variance for all"),
    (lambda x, w, b, eps=1e-6: (x - x.mean()) / (std(x) ** 2 + eps).sqrt() * w + b, "one mean for all"),
    (lambda x, w, b, eps=1e-6: by_hand(x, -w, b, eps), "take the mean from x"),
    (lambda x, w, b, eps=1e-6: by_hand(x, 1 / w, b, eps), "divides by weight"),
    (lambda x, w, b, eps=1e-6: nn.LayerNorm(x.shape[-1], dtype=x.dtype)(x), "weight and bias are not used, and eps"),
    (lambda x, w, b, eps=1e-6: (centre(x) / std(x)).nan_to_num() * w + b, "missing or far too small"),
    (lambda x, w, b, eps=1e-6: by_hand(x, nn.Parameter(w), b, eps), "no gradient flows back to weight"),
    (lambda x, w, b, eps=1e-6: torch.zeros_like(x), "the numbers are not"),
    (lambda x, w, b, eps=1e-6: by_hand(x.float(), w.float(), b.float(), eps), "keep the type"),
    (lambda x, w, b, eps=1e-6: by_hand(x.float(), w.float(), b.float(), eps).to(x.dtype), "loses digits"),
    (lambda x, w, b, eps=1e-6: by_hand(x.detach(), w, b, eps), "no gradient flows back"),
    (lambda x, w, b, eps=1e-6: (x - x.detach().mean(-1, keepdim=True)) / (std(x) ** 2 + eps) ** 0.5 * w + b, "gradient"),
    (torch.no_grad()(by_hand), "no gradient flows back"),
    (lambda x, w, b, eps=1e-6: F.dropout(by_hand(x, w, b, eps), 0.1), "[x] layer_norm"),
    (writes, "changes its input"),
    (lambda x, w, b, eps=1e-6: None, "does it end with return?"),
    (lambda x, w, b, eps=1e-6: by_hand(x, w, b, eps).mean(-1), "gives shape"),
    (lambda x, w, b: by_hand(x, w, b), "raises TypeError"),
    (torch.ones(3), "hand over the function"),
]


# the MLP


class MLP(nn.Module):
    """A right answer with places to go wrong"""

    bias, out_bias, dropout = True, True, 0.0

    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim, bias=self.bias)
        self.fc2 = nn.Linear(hidden_dim, dim, bias=self.out_bias)
        self.drop = nn.Dropout(self.dropout)

    def act(self, x):
        return F.gelu(x)

    def before(self, x):
        return x

    def after(self, x):
        return self.drop(x)

    def forward(self, x):
        return self.after(self.fc2(self.act(self.fc1(self.before(x)))))


class Reversed(nn.Module):
    def __init__(self, width, inner, extra=None):
        super().__init__()
        self.out, self.into = nn.Linear(inner, width), nn.Linear(width, inner)

    def forward(self, tokens):
        hidden = F.linear(tokens, self.into.weight, self.into.bias)
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        return F.linear(hidden, self.out.weight, self.out.bias)


class TokenByToken(MLP):
    def forward(self, x):
        rows = [MLP.forward(self, token) for token in x.reshape(-1, x.shape[-1])]
        return torch.stack(rows).reshape(x.shape)


class Listed(MLP):
    def __init__(self, dim, hidden):
        nn.Module.__init__(self)
        self.layers = [nn.Linear(dim, hidden), nn.Linear(hidden, dim)]

    def forward(self, x):
        return self.layers[1](F.gelu(self.layers[0](x)))


class HalfListed(Listed):
    def __init__(self, dim, hidden):
        super().__init__(dim, hidden)
        self.first = self.layers[0]


class Anew(MLP):
    def forward(self, x):
        return nn.Linear(x.shape[-1], x.shape[-1])(MLP.forward(self, x))


class Parameters(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2 * dim * hidden + hidden + dim))

    def forward(self, x):
        return x * self.w[0]


def sequential(dim, hidden):
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, dim))


class Formula(nn.Module):
    """Matrices as the formula has them, z W1 + b1"""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.zeros(dim, hidden)), nn.Parameter(torch.zeros(1, hidden))
        self.w2, self.b2 = nn.Parameter(torch.zeros(hidden, dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.gelu(x @ self.w1 + self.b1) @ self.w2 + self.b2


class Convolved(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv1d(dim, hidden, 1), nn.Conv1d(hidden, dim, 1)

    def forward(self, x):
        images, tokens, width = x.shape
        channels = x.reshape(images, tokens, width).transpose(1, 2)
        return self.fc2(F.gelu(self.fc1(channels))).transpose(1, 2)


def small_type(self, x):
    return F.gelu(x.float()).to(x.dtype)


MLP_RIGHT = [room.MLP, MLP, Reversed, TokenByToken, sequential, Formula, Convolved]
MLP_WRONG = [
    (of(MLP, forward=not_written), "not written yet"),
    (of(MLP, after=lambda self, x: F.gelu(x)), "after the last layer too"),
    (of(MLP, act=lambda self, x: x, after=lambda self, x: F.gelu(x)), "after the last layer, not between"),
    (of(MLP, act=lambda self, x: x, before=lambda self, x: F.gelu(x)), "before the first layer"),
    (of(MLP, act=lambda self, x: x), "nothing stands between the layers"),
    (of(MLP, act=lambda self, x: F.relu(x)), "has a ReLU"),
    (of(MLP, act=lambda self, x: F.relu(x), after=lambda self, x: F.relu(x)), "has ReLU, and once more"),
    (of(MLP, act=lambda self, x: F.gelu(x, approximate="tanh")), "the tanh form"),
    (of(MLP, act=lambda self, x: x * torch.sigmoid(1.702 * x)), "sigmoid(1.702 x)"),
    (of(MLP, act=lambda self, x: F.silu(x)), "SiLU"),
    (of(MLP, act=lambda self, x: torch.sigmoid(x)), "has a sigmoid"),
    (of(MLP, act=small_type), "loses digits"),
    (of(MLP, act=lambda self, x: (1 + torch.erf(x / 2**0.5)) / 2), "Phi(x) alone"),
    (of(MLP, act=lambda self, x: x * (1 + torch.erf(x / 2**0.5))), "the factor 1/2 is missing"),
    (of(MLP, act=lambda self, x: x * (1 + torch.erf(x)) / 2), "erf(x / sqrt(2))"),
    (of(MLP, before=lambda self, x: F.gelu(x)), "before the first layer too"),
    (lambda dim, hidden: MLP(dim, hidden).requires_grad_(False), "detached or frozen"),
    (of(MLP, forward=lambda self, x: x + MLP.forward(self, x)), "adds its input"),
    (of(MLP, before=lambda self, x: F.layer_norm(x, x.shape[-1:])), "norms its input"),
    (of(MLP, dropout=0.1), "in training mode"),
    (of(MLP, after=lambda self, x: F.dropout(x, 0.1)), "at a second call"),
    (of(MLP, act=lambda self, x: F.gelu(x) - F.gelu(x).mean(1, keepdim=True)), "reads every token alone"),
    (of(MLP, bias=False, out_bias=False), "the biases are missing"),
    (of(MLP, bias=False), "the first layer has no bias"),
    (of(MLP, out_bias=False), "the second layer has no bias"),
    (lambda dim, hidden: MLP(dim, 4 * dim), "always 4 D"),
    (lambda dim, ratio: MLP(dim, 4 * ratio), "hidden width itself, not a factor 4"),
    (lambda dim, ratio: MLP(dim, dim * ratio), "hidden width itself, not a factor on D"),
    (
        lambda dim, h: nn.Sequential(nn.Linear(dim, h), nn.GELU(), nn.Linear(h, h), nn.GELU(), nn.Linear(h, dim)),
        "a layer too many",
    ),
    (lambda dim, hidden: nn.Sequential(nn.LayerNorm(dim), MLP(dim, hidden)), "a LayerNorm too many"),
    (lambda dim, hidden: nn.Sequential(nn.Linear(dim, hidden), nn.GELU()), "gives shape"),
    (Listed, "no plain list"),
    (HalfListed, "only the first layer is registered"),
    (Parameters, "build it from nn.Linear"),
    (Anew, "at a second call"),
    (of(MLP, forward=lambda self, x: MLP.forward(self, x).detach()), "no gradient flows back"),
    (of(MLP, act=lambda self, x: F.gelu(x).detach()), "no gradient flows back"),
    (of(MLP, forward=lambda self, x: F.linear(F.gelu(self.fc1(x)), self.fc2.weight.detach(), self.fc2.bias)), "fc2.weight"),
    (of(MLP, forward=lambda self, x: None), "does it end with return?"),
    (of(MLP, forward=lambda self, x: MLP.forward(self, x.mul_(2))), "changes its input"),
    (MLP(6, 10), "hand over the class itself"),
    (lambda dim, hidden: 3, "it should be an nn.Module"),
    (lambda dim: MLP(dim, 4 * dim), "raises TypeError"),
]


# the block


class Block(nn.Module):
    """A right answer with places to go wrong"""

    ratio, eps = 4, 1e-6

    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=self.eps)
        self.attn = self.attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=self.eps)
        self.mlp = self.make_mlp(dim, self.ratio * dim)

    def attention(self, dim, num_heads):
        return MultiHeadAttention(dim, num_heads)

    def make_mlp(self, dim, hidden):
        return room.MLP(dim, hidden)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class OwnNorm(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.shift, self.gain = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return by_hand(x, self.gain, self.shift)


class OwnParts(nn.Module):
    """Queries, keys and values apart, norms by hand, layers in another order"""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.mlp = MLP(width, 4 * width)
        self.after, self.first = OwnNorm(width), OwnNorm(width)
        self.v, self.q, self.k, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, z):
        y = self.first(z)
        q, k, v = (rearrange(f(y), "b t (h d) -> b h t d", h=self.heads) for f in (self.q, self.k, self.v))
        middle = z + self.out(rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))
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
    """As published: torch's attention"""

    def attention(self, dim, num_heads):
        return nn.MultiheadAttention(dim, num_heads, batch_first=True)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Planted(Torch):
    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attn(y, y, y)
        return x + self.mlp(self.norm2(x))


class Layer(nn.Module):
    options = MappingProxyType({})

    def __init__(self, dim, num_heads):
        super().__init__()
        options = {"dropout": 0.0, "activation": "gelu", "norm_first": True, "layer_norm_eps": 1e-6, **self.options}
        self.layer = nn.TransformerEncoderLayer(dim, num_heads, 4 * dim, batch_first=True, **options)

    def forward(self, x):
        return self.layer(x)


def way(function):
    """A block that goes through its parts in another way"""
    return of(Block, forward=lambda self, x: function(x, self.norm1, self.attn, self.norm2, self.mlp))


def with_mlp(**changes):
    return of(Block, make_mlp=lambda self, dim, hidden: of(MLP, **changes)(dim, hidden))


def normed_stream(x, n, a, m, f):
    x = n(x)
    x = x + a(x)
    x = m(x)
    return x + f(x)


def norm_last(x, n, a, m, f):
    x = n(x + a(x))
    return m(x + f(x))


def on(function):
    """What the function makes of x after equation 2, and of what came before"""
    return way(lambda x, n, a, m, f: function(x + a(n(x)), x, m, f))


class Apart(LooseNorms):
    """Nothing says which vector or map is which"""

    def attention(self, dim, num_heads):
        return Heads(dim, num_heads, [dim] * 3)


class Heads(nn.Module):
    """Maps for queries, keys and values of some widths, which together are 3 D; then an output projection"""

    def __init__(self, dim, num_heads, widths):
        super().__init__()
        self.maps, self.out = nn.ModuleList(nn.Linear(dim, width) for width in widths), nn.Linear(dim, dim)
        self.num_heads = num_heads

    def forward(self, x):
        rows = torch.cat([f(x) for f in self.maps], -1)
        q, k, v = rearrange(rows, "b t (k h d) -> k b h t d", k=3, h=self.num_heads)
        return self.out(rearrange(F.scaled_dot_product_attention(q, k, v), "b h t d -> b t (h d)"))


class WideNorms(Block):
    """Norms by hand, of shape (1, 1, D)"""

    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.norm1, self.norm2 = OwnNorm(1, 1, dim), OwnNorm(1, 1, dim)


def changed(change):
    """A block changed after it was built"""

    def build(dim, num_heads):
        block = Block(dim, num_heads)
        change(block)
        return block

    return build


class SharedNorm(Block):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.norm2 = self.norm1


class ThirdNorm(Block):
    def __init__(self, dim, num_heads):
        super().__init__(dim, num_heads)
        self.norm3 = nn.LayerNorm(dim)


class NoAttention(Block):
    def attention(self, dim, num_heads):
        return nn.Identity()


BLOCK_RIGHT = [
    room.Block,
    Block,
    OwnParts,
    LooseNorms,
    Torch,
    Layer,
    with_mlp(),
    lambda dim, h, eps=1e-6: room.Block(dim, h),
    Apart,
    WideNorms,
    of(Block, make_mlp=lambda self, dim, hidden: Formula(dim, hidden)),
    of(Block, attention=lambda self, dim, h: Heads(dim, h, [dim // h] * 3 * h)),
]
BLOCK_WRONG = [
    (of(Block, forward=not_written), "not written yet"),
    (Planted, "attention's result is never used"),
    (way(lambda x, n, a, m, f: x + a(n(x))), "the MLP's result is never used"),
    (way(lambda x, n, a, m, f: f(m(a(n(x))))), "no residual at all"),
    (way(lambda x, n, a, m, f: a(n(x)) + f(m(a(n(x))))), "no residual around attention"),
    (on(lambda y, x, m, f: f(m(y))), "no residual around the MLP"),
    (on(lambda y, x, m, f: x + f(m(y))), "the MLP's residual is the block's input"),
    (way(lambda x, n, a, m, f: x + a(n(x)) + f(m(x))), "side by side"),
    (on(lambda y, x, m, f: x + y + f(m(y))), "once more at the end"),
    (way(norm_last), "the norms stand last"),
    (of(Layer, options={"norm_first": False}), "the norms stand last"),
    (way(lambda x, n, a, m, f: (y := x + n(a(x))) + m(f(y))), "before the sums"),
    (way(lambda x, n, a, m, f: (y := n(x + a(x))) + f(m(y))), "the first norm stands last"),
    (way(normed_stream), "the residual adds the normed tokens"),
    (way(lambda x, n, a, m, f: (y := n(x) + a(n(x))) + f(m(y))), "the first residual adds"),
    (on(lambda y, x, m, f: m(y) + f(m(y))), "the second residual adds"),
    (way(lambda x, n, a, m, f: (y := x + a(n(x))) + f(n(y))), "one norm is used twice"),
    (on(lambda y, x, m, f: y + f(y)), "tokens that no norm has touched: mlp"),
    (way(lambda x, n, a, m, f: (y := x + a(x)) + f(m(y))), "tokens that no norm has touched: attn"),
    (way(lambda x, n, a, m, f: (y := x + a(x)) + f(y)), "no norm is used"),
    (way(lambda x, n, a, m, f: (y := x + f(n(x))) + a(m(y))), "the MLP comes before attention"),
    (on(lambda y, x, m, f: m(y + f(m(y)))), "applied to the result too"),
    (with_mlp(after=lambda self, x: F.gelu(x)), "after the last layer too"),
    (with_mlp(act=lambda self, x: F.relu(x)), "has a ReLU"),
    (of(Layer, options={"activation": "relu"}), "has a ReLU"),
    (with_mlp(act=lambda self, x: F.gelu(x, approximate="tanh")), "the tanh form"),
    (with_mlp(act=lambda self, x: x), "nothing stands between"),
    (of(Block, eps=1e-5), "eps is 1e-5"),
    (of(Layer, options={"layer_norm_eps": 1e-5}), "eps is 1e-5"),
    (of(Block, eps=1e-12), "eps is 1e-12"),
    (of(Layer, options={"dropout": 0.1}), "in training mode"),
    (way(lambda x, n, a, m, f: (y := x + F.dropout(a(n(x)), 0.1)) + f(m(y))), "at a second call"),
    (of(Torch, attention=lambda self, dim, h: nn.MultiheadAttention(dim, h)), "images mix"),
    (of(Block, attention=lambda self, dim, h: MultiHeadAttention(dim, 1)), "right for a single head"),
    (of(Block, ratio=2), "hidden width is 2 D"),
    (of(Block, ratio=1), "hidden width is 1 D"),
    (SharedNorm, "one LayerNorm is missing"),
    (ThirdNorm, "a LayerNorm too many"),
    (NoAttention, "attention is missing"),
    (of(Block, make_mlp=lambda self, dim, hidden: nn.Identity()), "the MLP is missing"),
    (with_mlp(bias=False, out_bias=False), "the MLP's layers have no biases"),
    (lambda dim, heads: nn.Identity(), "has no parameters"),
    (of(Block, forward=lambda self, x: Block.forward(self, x).detach()), "no gradient flows back"),
    (way(lambda x, n, a, m, f: (y := x + a(n(x).detach())) + f(m(y))), "gradient"),
    (way(lambda x, n, a, m, f: (y := x + a(n(x))) + f(m(y)).detach()), "gradient"),
    (way(lambda x, n, a, m, f: (y := x.detach() + a(n(x))) + f(m(y))), "another gradient for its input"),
    (way(lambda x, n, a, m, f: (x.mul_(1.5), Block)[0]), "changes its input"),
    (way(lambda x, n, a, m, f: None), "does it end with return?"),
    (way(lambda x, n, a, m, f: (x, a(n(x)))), "it should give one tensor"),
    (on(lambda y, x, m, f: (y + f(m(y)))[:, 0]), "gives shape"),
    (on(lambda y, x, m, f: y - f(m(y))), "the MLP's result is subtracted"),
    (way(lambda x, n, a, m, f: (y := x - a(n(x))) + f(m(y))), "attention's result is subtracted"),
    (way(lambda x, n, a, m, f: x + f(m(a(n(x))))), "first x = x + attn(norm1(x))"),
    (way(lambda x, n, a, m, f: a(n(x)) + f(m(x))), "x is not added to attention's result"),
    (way(lambda x, n, a, m, f: x + a(n(x)) + f(m(a(n(x))))), "it reads the sum"),
    (way(lambda x, n, a, m, f: (y := x + n(a(x))) + f(m(y))), "the first norm stands after attention"),
    (on(lambda y, x, m, f: m(y + f(y))), "the second norm stands last"),
    (on(lambda y, x, m, f: y + m(f(y))), "the second norm stands after the MLP"),
    (on(lambda y, x, m, f: y * f(m(y))), "the numbers are not"),
    (of(Layer, options={"norm_first": False, "activation": "relu"}), "And the MLP has a ReLU"),
    (of(Apart, make_mlp=lambda self, dim, hidden: of(MLP, act=lambda self, x: F.relu(x))(dim, hidden)), "has a ReLU"),
    (changed(lambda block: setattr(block.norm1, "eps", 1e-5)), "norm1's eps is 1e-5"),
    (changed(lambda block: setattr(block.norm2, "eps", 1e-5)), "norm2's eps is 1e-5"),
    (of(Block, eps=1e-8), "eps is 1e-8"),
    (changed(lambda block: block.norm1.requires_grad_(False)), "detached or frozen"),
    (of(Block, attention=lambda self, dim, h: MultiHeadAttention(dim, 12)), "attention has 12"),
    (of(Block, make_mlp=lambda self, dim, hidden: room.MLP(dim, 48)), "is a fixed number in your code?"),
    (Block(12, 3), "hand over the class itself"),
    (lambda dim, heads: 3, "it should be an nn.Module"),
]


# the count


def by_meta(dim, mlp_ratio=4):
    with torch.device("meta"):
        return sum(p.numel() for p in room.Block(dim, 1, mlp_ratio).parameters())


def by_parts(D, r=4):
    return 3 * D * (D + 1) + D * (D + 1) + D * r * D + r * D + r * D * D + D + 2 * D + 2 * D


COUNT_RIGHT = [
    by_meta,
    by_parts,
    lambda dim, mlp_ratio=4: (4 + 2 * mlp_ratio) * dim**2 + (9 + mlp_ratio) * dim,
    lambda D, mlp_ratio=4.0: float(by_parts(D, mlp_ratio)),
    lambda D, mlp_ratio=4: torch.tensor(by_parts(D, mlp_ratio), dtype=torch.float64),
]
COUNT_WRONG = [
    (not_written, "[ ] block_parameters: not written yet"),
    (lambda D, r=4: 7_087_872, "gives 7,087,872 for D = 100"),
    (lambda D, r=4: {100: 121_300, 768: 7_087_872, 1024: 12_596_224, 1: 25, 7: 679}.get(D, 0), "gives 0 for D = 2"),
    (lambda D, r=4: str(by_parts(D, r)), "it should give a number"),
    (lambda D, r=4: 10**400, "it should give a number"),
    (lambda D, r=4: 12 * D ^ 2 + 13 * D, "a square is D**2"),
    (lambda D, r=4: (4 + 2 * r) * D**2 + 13 * D, "first bias has mlp_ratio * D"),
    (lambda D, r=4: 12 * D**2 + (9 + r) * D, "2 * mlp_ratio * D * D"),
    (lambda D, r=4: (8 + r) * D**2 + (9 + r) * D, "both weights"),
    (lambda D, r=4: (4 + 2 * r * r) * D**2 + (9 + r) * D, "(hidden, D)"),
    (lambda D, r=4: 12 * D**2, "the biases and the norms are missing"),
    (lambda D, r=4: 12 * D**2 + 9 * D, "the norms are missing"),
    (lambda D, r=4: 12 * D**2 + 11 * D, "a block has two norms"),
    (lambda D, r=4: 12 * D**2 + 15 * D, "a norm too many"),
    (lambda D, r=4: 12 * D**2 + 4 * D, "the biases of all Linears are missing"),
    (lambda D, r=4: 12 * D**2 + 8 * D, "the MLP's biases"),
    (lambda D, r=4: 12 * D**2 + 10 * D, "3 D"),
    (lambda D, r=4: 8 * D**2 + 13 * D, "the MLP has two layers"),
    (lambda D, r=4: 11 * D**2 + 12 * D, "the output projection"),
    (lambda D, r=4: 4 * D**2 + 4 * D, "attention alone"),
    (lambda D, r=4: 8 * D**2 + 5 * D, "the MLP alone"),
    (lambda D, r=4: 12 * D**2 + 13 * D, "right for mlp_ratio 4 only"),
    (lambda D, r=4: 12 * D**2 + 13 * D + 1, "add up each layer"),
    (lambda D, r=4: None, "does it end with return?"),
    (lambda D, r=4: "12 D² + 13 D", "it should give a number"),
    (lambda D: 12 * D**2 + 13 * D, "raises TypeError"),
    (7_087_872, "hand over the function"),
]


def cases(*pairs):
    return [(check, *((entry,) if not isinstance(entry, tuple) else entry)) for check, list_ in pairs for entry in list_]


RIGHT = cases(
    (check_layer_norm, NORM_RIGHT),
    (check_mlp, MLP_RIGHT),
    (check_block, BLOCK_RIGHT),
    (check_mend, [Torch, Block, Layer]),
    (check_block_parameters, COUNT_RIGHT),
)
WRONG = cases(
    (check_layer_norm, NORM_WRONG),
    (check_mlp, MLP_WRONG),
    (check_block, BLOCK_WRONG),
    (check_mend, BLOCK_WRONG[:12]),
    (check_block_parameters, COUNT_WRONG),
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert says in last and not last.startswith("[v]")
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("seed", range(3))
def test_a_check_depends_on_no_seed_and_moves_none(seed, capsys):
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    assert check_layer_norm(torch_norm) and check_mlp(room.MLP) and check_block(room.Block)
    assert torch.equal(before, torch.get_rng_state())


def test_checks_work_where_gradients_are_off_and_the_default_type_is_another(capsys):
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert check_layer_norm(torch_norm) and check_mlp(room.MLP) and check_block(room.Block)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
