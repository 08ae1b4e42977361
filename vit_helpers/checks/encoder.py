"""The exercises of notebook 04."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.attention import HEADS, MULTI_HEAD, multi_head, with_layers
from vit_helpers.checks.attention import readings as attention_readings
from vit_helpers.checks.compare import expect_steady
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
    reading_of,
    shapes,
)
from vit_helpers.checks.report import reject_if
from vit_helpers.encoder import MLP, Block

# Layer norm


def centered(x: Tensor, axes: int | tuple = -1) -> Tensor:
    return x - x.mean(axes, keepdim=True)


def spread(x: Tensor, eps: float, axes: int | tuple = -1, correction: int = 0) -> Tensor:
    return (x.var(axes, keepdim=True, correction=min(correction, x.shape[-1] - 1)) + eps).sqrt()


def normed(x: Tensor, w: Tensor, b: Tensor, eps: float = 1e-6, axes: int | tuple = -1) -> Tensor:
    return centered(x, axes) / spread(x, eps, axes) * w + b


def over(axes: Callable[[int], int | tuple]) -> Callable:
    """A whole wrong norm: over other axes, which depend on the number of axes."""
    return lambda x, w, b, eps=1e-6: normed(x, w, b, eps, axes(x.ndim))


NORMS = {
    "takes mean and variance over the tokens; they belong to each token alone, over the last axis": over(lambda n: -2),
    "takes mean and variance over the batch; that is batch norm. Each token has its own, over the last axis":
        over(lambda n: 0),
    "takes mean and variance over batch and tokens; that is batch norm. Each token has its own, over the last axis":
        over(lambda n: tuple(range(n - 1))),
    "takes one mean and variance for a whole image; each token has its own, over the last axis":
        over(lambda n: tuple(range(1, n)) if n > 2 else (0, 1)),
    "takes one mean and variance for all numbers at once; each token has its own, over the last axis":
        over(lambda n: tuple(range(n))),
    "divides by D - 1 in the variance; layer norm divides by D: unbiased=False or correction=0":
        lambda x, w, b, eps=1e-6: centered(x) / spread(x, eps, correction=1) * w + b,
    "divides by D - 1 in the variance, and eps stands outside the root":
        lambda x, w, b, eps=1e-6: centered(x) / (spread(x, 0, correction=1) + eps) * w + b,
    "eps stands outside the root; it is added to the variance, inside":
        lambda x, w, b, eps=1e-6: centered(x) / (spread(x, 0) + eps) * w + b,
    "eps is squared, missing or far too small; add it to the variance as it is, 1e-6 unless another is given":
        lambda x, w, b, eps=1e-6: normed(x, w, b, eps**2),
    "eps is not the one that was given, it is always 1e-6": lambda x, w, b, eps=1e-6: normed(x, w, b),
    "there is no eps: a token whose numbers are all equal has variance 0, and 0 / 0 gives NaN. Add eps inside the root":
        lambda x, w, b, eps=1e-6: normed(x, w, b, 0),
    "eps is 1e-5, torch's own default; use the one that was given": lambda x, w, b, eps=1e-6: normed(x, w, b, 1e-5),
    "divides by the variance; divide by its root": lambda x, w, b, eps=1e-6: centered(x) / spread(x, eps) ** 2 * w + b,
    "the mean is not subtracted": lambda x, w, b, eps=1e-6: x / spread(x, eps) * w + b,
    "the mean is not subtracted, and the mean square is divided out (that is RMSNorm)":
        lambda x, w, b, eps=1e-6: x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * w + b,
    "only the mean is subtracted; divide by the root of the variance too": lambda x, w, b, eps=1e-6: centered(x) * w + b,
    "multiplies by the root of the variance; divide by it":
        lambda x, w, b, eps=1e-6: centered(x) * spread(x, eps) * w + b,
    "scale and shift are missing: weight and bias are not used": lambda x, w, b, eps=1e-6: normed(x, 1, 0, eps),
    "weight and bias are not used, and eps is 1e-5, torch's own default": lambda x, w, b, eps=1e-6: normed(x, 1, 0, 1e-5),
    "the shift is missing: bias is not used": lambda x, w, b, eps=1e-6: normed(x, w, 0, eps),
    "the scale is missing: weight is not used": lambda x, w, b, eps=1e-6: normed(x, 1, b, eps),
    "scale and shift have changed places: multiply by weight, add bias": lambda x, w, b, eps=1e-6: normed(x, b, w, eps),
    "shifts before it scales: multiply by weight first, then add bias":
        lambda x, w, b, eps=1e-6: (normed(x, 1, 0, eps) + b) * w,
    "the bias is subtracted; add it": lambda x, w, b, eps=1e-6: normed(x, w, -b, eps),
    "scales by 1 + weight; the weight is the whole scale": lambda x, w, b, eps=1e-6: normed(x, 1 + w, b, eps),
    "brackets are missing around x - mean": lambda x, w, b, eps=1e-6: x - (x - centered(x)) / spread(x, eps) * w + b,
    "divides by a length, the root of a sum; it is of a mean":
        lambda x, w, b, eps=1e-6: F.normalize(centered(x), dim=-1) * w + b,
    "takes one variance for all numbers, not one a token":
        lambda x, w, b, eps=1e-6: centered(x) / (x.var(correction=0) + eps).sqrt() * w + b,
    "takes one mean for all numbers, not one a token": lambda x, w, b, eps=1e-6: (x - x.mean()) / spread(x, eps) * w + b,
    "takes x from the mean; take the mean from x": lambda x, w, b, eps=1e-6: normed(x, -w, b, eps),
    "divides by weight; multiply by it": lambda x, w, b, eps=1e-6: normed(x, 1 / w, b, eps),
    "gives x back as it came": lambda x, w, b, eps=1e-6: x,
}  # fmt: skip


def tokens(*shape: int, size: float = 1.0, eps: tuple = (), when: str = "") -> Case:
    """Tokens of different size and mean, a weight and a bias."""

    def draw() -> tuple:
        sizes = torch.linspace(0.5, 2, math.prod(shape[:-1])).reshape(*shape[:-1], 1)
        x = size * (sizes * torch.randn(shape) + 0.5 * sizes)
        return x, torch.randn(shape[-1]) + 2, torch.randn(shape[-1]), *eps

    return Case(draw, when)


LAYER_NORM = Exercise(
    name="layer_norm",
    reference=normed,
    says="{when}: {words}",
    unknown="the shape is right, the numbers are not: (x - mean) / sqrt(variance + eps)",
    hints={"must match the size": "Do lengths not fit? keepdim=True in mean and var keeps the axis, (..., 1)"},
    contract_case=tokens(2, 5, 6),
    ideas={
        "one image: each token by its own mean and variance, then scale and shift":
            [tokens(5, 4, when="for one image of 5 tokens, D = 4")],
        "a batch, with any axes in front": [tokens(*shape) for shape in ((2, 5, 4), (4, 4, 4), (3, 2, 5, 6), (5, 2, 4))],
        "eps inside the root: 1e-6 unless another is given, and no NaN": [
            *(tokens(3, 5, 8, size=size, when=f"for tokens {size:g} times as large") for size in (0.0, 1e-3)),
            tokens(2, 5, 8, eps=(0.5,), when="for eps = 0.5"),
            tokens(2, 5, 8, size=1e-3, eps=(1e-3,), when="for small tokens and eps = 0.001"),
        ],
        # with D = 1 the result is the bias; small numbers, because 1 / sqrt(eps) makes the rounding 1000 times as large
        "one token, D = 1, no batch axis, float64":
            [tokens(1, 1, 6), tokens(3, 1, size=0.01), tokens(7), tokens(1, 17, 64)],
        "gradients flow to x, weight and bias": [contract],
    },
    mistakes=NORMS,
)  # fmt: skip
check_layer_norm = LAYER_NORM.check


# The MLP


def identity(x: Tensor) -> Tensor:
    return x


def mlp(
    x: Tensor,
    *layers: Tensor,
    act: Callable = F.gelu,
    before: Callable = identity,
    after: Callable = identity,
    residual: int = 0,
) -> Tensor:
    """Linear, GELU, Linear; a mistake is another activation, or something before or after the layers."""
    w1, b1, w2, b2 = layers
    return after(F.linear(act(F.linear(before(x), w1, b1)), w2, b2)) + residual * x


MLPS = {
    words: partial(mlp, **changes)
    for words, changes in {
        "a GELU stands after the last layer too; nothing does, or the MLP could hardly subtract": {"after": F.gelu},
        "a ReLU stands after the last layer; nothing does": {"after": F.relu},
        "GELU stands after the last layer, not between the two": {"act": identity, "after": F.gelu},
        "GELU stands before the first layer, not between the two": {"act": identity, "before": F.gelu},
        "GELU stands before the first layer too; it stands between the two alone": {"before": F.gelu},
        "nothing stands between the layers: two Linears in a row are one; put a GELU there": {"act": identity},
        "has a ReLU where the paper has a GELU": {"act": F.relu},
        "has ReLU, and once more after the last layer; the paper has one GELU between": {"act": F.relu, "after": F.relu},
        "has the tanh form of GELU (that of flax), which differs a little; the exact one is wanted, nn.GELU()":
            {"act": partial(F.gelu, approximate="tanh")},
        "has x * sigmoid(1.702 x), a rough form of GELU; the exact one is wanted, nn.GELU()":
            {"act": lambda x: x * torch.sigmoid(1.702 * x)},
        "has a SiLU where the paper has a GELU": {"act": F.silu},
        "has a tanh where the paper has a GELU": {"act": torch.tanh},
        "has a sigmoid where the paper has a GELU": {"act": torch.sigmoid},
        "a leaky ReLU stands where the paper has a GELU": {"act": F.leaky_relu},
        "has Phi(x) alone; GELU is x * Phi(x)": {"act": torch.special.ndtr},
        "GELU is twice too large: the factor 1/2 is missing": {"act": lambda x: 2 * F.gelu(x)},
        "has erf(x) in GELU; it is erf(x / sqrt(2))": {"act": lambda x: x * (1 + torch.erf(x)) / 2},
        "adds its input; the residual belongs to the block": {"residual": 1},
        "norms its input; that belongs to the block": {"before": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-6)},
    }.items()
}  # fmt: skip


def with_sizes(
    width: Callable[[int, int], int] = lambda dim, hidden: hidden,
    bias: tuple[bool, ...] = (True, True, True),
    norm: bool = False,
    extra: int = 0,
    kept: slice = slice(None),
) -> type:
    """A whole wrong class: an MLP with other layers than asked, of which some are registered."""

    class Answer(nn.Module):
        def __init__(self, dim: int, hidden: int) -> None:
            super().__init__()
            widths = [dim, *[width(dim, hidden)] * (1 + extra), dim]
            self.norm = nn.LayerNorm(dim) if norm else nn.Identity()
            self.layers = [nn.Linear(*sizes) for sizes in zip(widths, widths[1:], bias, strict=False)]
            self.registered = nn.ModuleList(self.layers[kept])

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(x)
            for layer in self.layers[:-1]:
                x = F.gelu(layer(x))
            return self.layers[-1](x)

    return Answer


def affine(module: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Weight (out, in) and bias (out,) of every map in which a module holds both, nn.Linear or not, either way round."""
    for part in module.modules():
        own = [p.squeeze() for p in part.parameters(recurse=False)]
        for weight, bias in permutations(own, 2):
            if weight.ndim == 2 and bias.ndim == 1:
                yield from ((w, bias) for w in (weight, weight.T) if len(w) == len(bias))


def mlp_readings(module: nn.Module, dim: int, hidden: int) -> Iterator[tuple]:
    """Every way to read two layers of these widths: w1, b1, w2, b2."""
    for one, two in permutations(affine(module), 2):
        if one[0].shape == (hidden, dim) and two[0].shape == (dim, hidden):
            yield *one, *two


def tokens_alone(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless a module repeats itself in both modes and reads every token alone."""
    (sizes, shape), *_ = exercise.cases
    expect_steady(*made(answer, sizes, shape), shape)
    for size in (shape, (sizes[0],) * 3):
        module, x = made(answer, sizes, size)
        other = x.clone()
        other[1, 3] += 1
        with torch.no_grad():
            moved = (output(module.eval(), x) - output(module, other)).abs().amax(-1) > 1e-5
        moved[1, 3] = False
        reject_if(moved.any(), "a token's result changes when another token does: the MLP reads every token alone")


FEED_FORWARD = ModuleExercise(
    name="mlp",
    module=MLP,
    function=mlp,
    readings=mlp_readings,
    ideas={
        "(B, T, D) in, (B, T, D) out": [shapes],
        "two layers with biases, D -> hidden -> D": [parameters],
        "every token alone, the same at every call": [tokens_alone],
        "a GELU between, nothing after": [numbers],
        "the exact GELU, float64 too": [other_sizes],
        "gradients flow to the tokens and to every parameter": [every_gradient],
    },
    mistakes=MLPS,
    structures={
        "the biases are missing": with_sizes(bias=(False, False)),
        "the first layer has no bias": with_sizes(bias=(False, True)),
        "the second layer has no bias": with_sizes(bias=(True, False)),
        "only the first layer is registered; layers in a plain list are not": with_sizes(kept=slice(0, 1)),
        "only the second layer is registered; layers in a plain list are not": with_sizes(kept=slice(1, 2)),
        "that is a LayerNorm too many; it belongs to the block": with_sizes(norm=True),
        "the hidden width is always 4 D; take the one that is given": with_sizes(lambda dim, hidden: 4 * dim),
        "the second argument is the hidden width itself, not a factor 4 less": with_sizes(lambda dim, hidden: 4 * hidden),
        "the second argument is the hidden width itself, not a factor on D": with_sizes(lambda dim, hidden: dim * hidden),
        "that is a layer too many": with_sizes(extra=1),
    },
    cases=[((6, 10), (2, 5, 6)), ((5, 20), (2, 5, 5)), ((8, 3), (1, 1, 8)), ((4, 4), (3, 4, 4))],
    count="2 D hidden + hidden + D",
    advice="count weights and biases of D -> hidden -> D",
    unknown="shapes and parameters are right, the numbers are not: Linear, GELU, Linear",
    unread="build it from nn.Linear layers with their own biases, so that weights can be copied",
)
check_mlp = FEED_FORWARD.check


# The block


def right_way(x: Tensor, n: Callable, a: Callable, m: Callable, f: Callable) -> Tensor:
    """Equations 2 and 3: norms n and m, attention a, MLP f."""
    x = x + a(n(x))
    return x + f(m(x))


def then(rest: Callable) -> Callable:
    """A way through the parts that begins with equation 2; rest: what it makes of the result y, of x, norm2 and the MLP."""
    return lambda x, n, a, m, f: rest(x + a(n(x)), x, m, f)


def first(rest: Callable) -> Callable:
    """A way through the parts that ends with equation 3; rest: what it makes of x, norm1 and attention before that."""
    return lambda x, n, a, m, f: (y := rest(x, n, a)) + f(m(y))


def norms_last(x: Tensor, n: Callable, a: Callable, m: Callable, f: Callable) -> Tensor:
    x = n(x + a(x))
    return m(x + f(x))


WAYS = {
    "the attention's result is never used: x + mlp(norm2(x)). No token ever sees another": first(lambda x, n, a: x),
    "the MLP's result is never used": then(lambda y, x, m, f: y),
    "there is no residual at all: add x to what attention gives, and that to what the MLP gives":
        lambda x, n, a, m, f: f(m(a(n(x)))),
    "there is no residual around attention: x + attn(norm1(x))": first(lambda x, n, a: a(n(x))),
    "there is no residual around the MLP: add what entered norm2": then(lambda y, x, m, f: f(m(y))),
    "the MLP's residual is the block's input; it is what attention left, x after equation 2":
        then(lambda y, x, m, f: x + f(m(y))),
    "attention and MLP both read the block's input, side by side; the MLP reads what attention left":
        then(lambda y, x, m, f: y + f(m(x))),
    "the block's input is added once more at the end": then(lambda y, x, m, f: x + y + f(m(y))),
    "the norms stand last, after the sums; in a ViT they stand first: x + attn(norm1(x))": norms_last,
    "the norms stand after attention and MLP, before the sums; they stand first: x + attn(norm1(x))":
        lambda x, n, a, m, f: (y := x + n(a(x))) + m(f(y)),
    "the first norm stands last, after the sum; it stands first: x + attn(norm1(x))": first(lambda x, n, a: n(x + a(x))),
    "the residual adds the normed tokens; add x as it was before its norm":
        lambda x, n, a, m, f: (z := m(n(x) + a(n(x)))) + f(z),
    "the first residual adds the normed tokens; add x as it was before norm1": first(lambda x, n, a: n(x) + a(n(x))),
    "the second residual adds the normed tokens; add x as it was before norm2": then(lambda y, x, m, f: m(y) + f(m(y))),
    "one norm is used twice, the other never: attention and MLP have a norm each":
        lambda x, n, a, m, f: right_way(x, n, a, n, f),
    "the MLP reads tokens that no norm has touched: mlp(norm2(x))": then(lambda y, x, m, f: y + f(y)),
    "attention reads tokens that no norm has touched: attn(norm1(x))": first(lambda x, n, a: x + a(x)),
    "no norm is used": lambda x, n, a, m, f: right_way(x, identity, a, identity, f),
    "the MLP comes before attention; attention comes first": lambda x, n, a, m, f: right_way(x, m, f, n, a),
    "the MLP reads attention's result alone; first x = x + attn(norm1(x))": lambda x, n, a, m, f: x + f(m(a(n(x)))),
    "the MLP reads attention's result alone; it reads the sum": lambda x, n, a, m, f: x + a(n(x)) + f(m(a(n(x)))),
    "x is not added to attention's result, and the MLP reads it instead": lambda x, n, a, m, f: a(n(x)) + f(m(x)),
    "the second norm stands last; it stands first: x + mlp(norm2(x))": then(lambda y, x, m, f: m(y + f(y))),
    "the second norm stands after the MLP, not first: x + mlp(norm2(x))": then(lambda y, x, m, f: y + m(f(y))),
    "the first norm stands after attention, not first: x + attn(norm1(x))": first(lambda x, n, a: x + n(a(x))),
    "attention's result is subtracted; add it": first(lambda x, n, a: x - a(n(x))),
    "the MLP's result is subtracted; add it": then(lambda y, x, m, f: y - f(m(y))),
    "the second norm is applied to the result too": then(lambda y, x, m, f: m(y + f(m(y)))),
}  # fmt: skip
EPS = {
    "the norms' eps is 1e-5, torch's own default": (1e-5, 1e-5),
    "norm1's eps is 1e-5, torch's own default": (1e-5, 1e-6),
    "norm2's eps is 1e-5, torch's own default": (1e-6, 1e-5),
    "the norms' eps is 1e-8": (1e-8, 1e-8),
    "the norms' eps is 1e-12": (1e-12, 1e-12),
    "the norms have no eps": (0.0, 0.0),
}


def block(
    x: Tensor,
    *reading: Tensor,
    way: Callable = right_way,
    eps: tuple[float, float] = (1e-6, 1e-6),
    attention: Callable = multi_head,
    dense: Callable = mlp,
) -> Tensor:
    """x through the parts of a reading; a mistake is another way, other eps, wrong attention or a wrong MLP."""
    n, m = (
        partial(F.layer_norm, normalized_shape=x.shape[-1:], weight=w, bias=b, eps=each)
        for (w, b), each in zip((reading[:2], reading[6:8]), eps, strict=True)
    )
    return way(x, n, lambda z: attention(z, *reading[2:6]), m, lambda z: dense(z, *reading[8:]))


def regrouped(x: Tensor, w: Tensor, b: Tensor, *proj: Tensor, heads: int) -> Tensor:
    """Attention with another number of heads."""
    return multi_head(x, *(z.flatten(1, 2).unflatten(1, (heads, -1)) for z in (w, b)), *proj)


MAPS = (nn.Linear, nn.MultiheadAttention)


def norm_readings(module: nn.Module) -> Iterator[tuple]:
    """Scale and shift of both norms, in each order that makes sense: a torch LayerNorm says which is which."""
    pairs, loose = [], []
    for part in module.modules():
        own = [p.squeeze() for p in part.parameters(recurse=False)]
        if isinstance(part, MAPS) or any(p.ndim > 1 for p in own):
            continue  # the vectors beside a matrix are biases
        if isinstance(part, nn.LayerNorm):
            pairs.append([own])
        elif len(own) == 2:
            pairs.append([own, own[::-1]])
        else:
            loose += own
    if len(pairs) == 2 and not loose:
        for one, two in product(*pairs):
            yield from ((*one, *two), (*two, *one))
    elif len(loose) == 4 and not pairs:
        yield from permutations(loose)


def block_readings(module: nn.Module, dim: int, heads: int) -> Iterator[tuple]:
    """Every way to read the block's parts: norm1's w and b, attention as for notebook 03, norm2's, the MLP's layers."""
    maps = [part for part in module.modules() if isinstance(part, MAPS)]
    dense = {dim, 4 * dim}  # the widths of the MLP's layers
    parts = nn.ModuleList(p for p in maps if not (isinstance(p, nn.Linear) and set(p.weight.shape) == dense))
    ways = attention_readings(parts, dim, heads), mlp_readings(module, dim, 4 * dim), norm_readings(module)
    for attention, layers, norms in product(*ways):
        yield *norms[:2], *attention, *norms[2:], *layers


def with_parts(attention: type = MULTI_HEAD.module, dense: type = MLP, ratio: int = 4, norms: int = 2) -> type:
    """A whole wrong class: a block of other parts, or with another number of norms."""

    class Answer(nn.Module):
        def __init__(self, dim: int, heads: int) -> None:
            super().__init__()
            self.attention, self.dense = attention(dim, heads), dense(dim, ratio * dim)
            self.norms = nn.ModuleList(nn.LayerNorm(dim, eps=1e-6) for _ in range(norms))

        def forward(self, x: Tensor) -> Tensor:
            return right_way(x, self.norms[0], self.attention, self.norms[-1], self.dense)

    return Answer


def no_part(*sizes: int) -> nn.Module:
    return nn.Identity()


def exact(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless a module is right to the last digits of float64, for tiny tokens too, where eps counts."""
    sizes, shape = exercise.cases[0]
    module, x = made(answer, sizes, shape, torch.float64)
    for size in (1e-3, 1.0):
        reading_of(exercise, module, size * x, sizes)


NO_BIAS = with_layers(qkv_bias=False, proj_bias=False)
BLOCK = ModuleExercise(
    name="block",
    module=Block,
    function=block,
    readings=block_readings,
    vectorized=True,
    ideas={
        "(B, T, D) in, (B, T, D) out": [shapes],
        "two norms, attention, an MLP: 12 D^2 + 13 D parameters": [parameters],
        "images do not mix, and two calls give the same": [apart],
        "the numbers of equations 2 and 3": [numbers],
        "eps 1e-6 and the exact GELU, float64 too": [exact],
        "any number of heads and tokens": [other_sizes],
        "gradients flow to the tokens and to every parameter": [every_gradient],
    },
    mistakes={words: partial(block, way=way) for words, way in WAYS.items()}
    | {f"the MLP: {words}": partial(block, dense=wrong) for words, wrong in MLPS.items()}
    | {f"{words}; the published models have 1e-6": partial(block, eps=eps) for words, eps in EPS.items()}
    | {
        "the norms stand last, after the sums; in a ViT they stand first: x + attn(norm1(x)). And the MLP has a ReLU where "
        "the paper has a GELU": partial(block, way=norms_last, dense=partial(mlp, act=F.relu))
    }
    | {f"attention: {words}": partial(block, attention=wrong) for words, wrong in HEADS.items()}
    | {
        f"attention has {n} heads: use the num_heads that is given": partial(block, attention=partial(regrouped, heads=n))
        for n in (2, 4, 6, 12)
    },
    structures={
        "one LayerNorm is missing, attention and MLP have a norm each; or both have no shift (RMSNorm?)":
            with_parts(norms=1),
        "that is a LayerNorm too many (the last one of a ViT stands after all blocks), or a LayerScale":
            with_parts(norms=3),
        "a LayerNorm and the output projection of attention are missing": with_parts(with_layers(proj=0), norms=1),
        "the output projection of attention is missing": with_parts(with_layers(proj=0)),
        "the MLP is missing; layers in a plain list are not registered": with_parts(dense=no_part),
        "attention is missing": with_parts(no_part),
        "the Linears have no biases": with_parts(NO_BIAS, with_sizes(bias=(False, False))),
        "the MLP's layers have no biases": with_parts(dense=with_sizes(bias=(False, False))),
        "queries, keys and values have no bias": with_parts(with_layers(qkv_bias=False)),
        "attention has no biases, or the norms are missing, or their scale and shift": with_parts(NO_BIAS),
    }
    | {f"the MLP's hidden width is {ratio} D; it is 4 D": with_parts(ratio=ratio) for ratio in (1, 2, 3, 8)},
    cases=MULTI_HEAD.cases,
    count="12 D^2 + 13 D",
    advice="4 D^2 + 4 D of attention, 8 D^2 + 5 D of the MLP, 2 D of each norm",
    unknown="shapes and parameters are right, the numbers are not: x = x + attn(norm1(x)), then x = x + mlp(norm2(x))",
    unread="build it from nn.Linear and nn.LayerNorm, so that weights can be copied",
)  # fmt: skip
check_block = BLOCK.check

FIX = BLOCK.renamed("mend", list(BLOCK.ideas))
check_mend = FIX.check


# The count


def count(parts: Callable[[float], tuple[float, float]], D: int, r: float = 4) -> float:
    """So many squares of the width and so many widths, both from mlp_ratio."""
    squares, widths = parts(r)
    return squares * D * D + widths * D


BLOCK_PARAMETERS = Exercise(
    name="block_parameters",
    reference=partial(count, lambda r: (4 + 2 * r, 9 + r)),
    when=lambda D, *ratio: f"for D = {D}" + "".join(f" and mlp_ratio {r}" for r in ratio),
    says="gives {got:,} {when}, it should give {right:,}: {words}",
    unknown="add up each layer's weights and biases; in Python a square is D**2, not D^2",
    depends="D and mlp_ratio",
    ideas={
        "any width D, B/16's 768 among them": [Case(partial(tuple, (D,))) for D in (100, 768, 1024, 1, 2, 7)],
        "other MLP widths":
            [Case(partial(tuple, sizes)) for sizes in ((8, 4), (8, 2), (64, 1), (768, 3), (10, 8), (16, 2.5))],
    },
    mistakes={
        words: partial(count, parts)
        for words, parts in {
            "that is right for mlp_ratio 4 only: use the one that is given": lambda r: (12, 13),
            "the MLP's first bias has mlp_ratio * D numbers": lambda r: (4 + 2 * r, 13),
            "the MLP's weights are 2 * mlp_ratio * D * D": lambda r: (12, 9 + r),
            "both weights of the MLP grow with mlp_ratio": lambda r: (8 + r, 9 + r),
            "the MLP's weights are (D, hidden) and (hidden, D)": lambda r: (4 + 2 * r * r, 9 + r),
            "the biases and the norms are missing": lambda r: (4 + 2 * r, 0),
            "the norms are missing, 2 D each, or the biases of attention, 4 D": lambda r: (4 + 2 * r, 5 + r),
            "2 D are missing: a block has two norms, each with a scale and a shift, 2 D": lambda r: (4 + 2 * r, 7 + r),
            "that is a norm too many: a block has two": lambda r: (4 + 2 * r, 11 + r),
            "the biases of all Linears are missing": lambda r: (4 + 2 * r, 4),
            "the MLP's biases are missing: hidden width and D": lambda r: (4 + 2 * r, 8),
            "the bias of the MLP's second layer is missing": lambda r: (4 + 2 * r, 8 + r),
            "the bias of the MLP's first layer is missing": lambda r: (4 + 2 * r, 9),
            "queries, keys and values have biases too, 3 D": lambda r: (4 + 2 * r, 6 + r),
            "the output projection of attention is missing": lambda r: (3 + 2 * r, 8 + r),
            "the MLP has two layers, of D * hidden weights each": lambda r: (4 + r, 9 + r),
            "that is attention alone": lambda r: (4, 4),
            "that is the MLP alone": lambda r: (2 * r, 1 + r),
            "the MLP is missing": lambda r: (4, 8),
            "attention is missing": lambda r: (2 * r, 5 + r),
        }.items()
    },
)  # fmt: skip
check_block_parameters = BLOCK_PARAMETERS.check
