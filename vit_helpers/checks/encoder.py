"""Marks for the exercises of notebook 04."""

from functools import partial
from itertools import chain, islice, permutations, product

import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.checks import former_attention as attention
from vit_helpers.checks import marks
from vit_helpers.checks.marks import same, slip
from vit_helpers.encoder import MLP, Block

# Layer norm


def centred(x, axes=-1):
    return x - x.mean(axes, keepdim=True)


def spread(x, eps, axes=-1, correction=0):
    return (x.var(axes, keepdim=True, correction=min(correction, x.shape[-1] - 1)) + eps).sqrt()


def normed(x, w, b, eps, axes=-1):
    return centred(x, axes) / spread(x, eps, axes) * w + b


def torch_norm(x, w, b):
    return F.layer_norm(x, w.shape, w, b, 1e-6)


def every_image(x):
    """All axes but the first"""
    return tuple(range(1, x.ndim)) if x.ndim > 2 else (0, 1)


NORM_SLIPS = {  # what a wrong norm equals, and the idea that slipped
    "takes mean and variance over the tokens; they belong to each token alone, over the last axis": (
        lambda x, w, b, eps: normed(x, w, b, eps, -2)
    ),
    "takes mean and variance over the batch; that is batch norm. Each token has its own, over the last axis": (
        lambda x, w, b, eps: normed(x, w, b, eps, 0)
    ),
    "takes mean and variance over batch and tokens; that is batch norm. Each token has its own, over the last axis": (
        lambda x, w, b, eps: normed(x, w, b, eps, tuple(range(x.ndim - 1)))
    ),
    "takes one mean and variance for a whole image; each token has its own, over the last axis": (
        lambda x, w, b, eps: normed(x, w, b, eps, every_image(x))
    ),
    "takes one mean and variance for all numbers at once; each token has its own, over the last axis": (
        lambda x, w, b, eps: normed(x, w, b, eps, tuple(range(x.ndim)))
    ),
    "divides by D - 1 in the variance; layer norm divides by D: unbiased=False or correction=0": (
        lambda x, w, b, eps: centred(x) / spread(x, eps, correction=1) * w + b
    ),
    "divides by D - 1 in the variance, and eps stands outside the root": (
        lambda x, w, b, eps: centred(x) / (spread(x, 0, correction=1) + eps) * w + b
    ),
    "eps stands outside the root; it is added to the variance, inside": (
        lambda x, w, b, eps: centred(x) / (spread(x, 0) + eps) * w + b
    ),
    "eps is squared, missing or far too small; add it to the variance as it is, 1e-6 unless another is given": (
        lambda x, w, b, eps: normed(x, w, b, eps**2)
    ),
    "eps is not the one that was given, it is always 1e-6": lambda x, w, b, eps: normed(x, w, b, 1e-6),
    "there is no eps: add it to the variance, inside the root": lambda x, w, b, eps: normed(x, w, b, 0),
    "eps is 1e-5, torch's own default; use the one that was given": lambda x, w, b, eps: normed(x, w, b, 1e-5),
    "divides by the variance; divide by its root": lambda x, w, b, eps: centred(x) / spread(x, eps) ** 2 * w + b,
    "the mean is not subtracted": lambda x, w, b, eps: x / spread(x, eps) * w + b,
    "the mean is not subtracted, and the mean square is divided out (that is RMSNorm)": (
        lambda x, w, b, eps: x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * w + b
    ),
    "only the mean is subtracted; divide by the root of the variance too": lambda x, w, b, eps: centred(x) * w + b,
    "multiplies by the root of the variance; divide by it": lambda x, w, b, eps: centred(x) * spread(x, eps) * w + b,
    "scale and shift are missing: weight and bias are not used": lambda x, w, b, eps: normed(x, 1, 0, eps),
    "weight and bias are not used, and eps is 1e-5, torch's own default": lambda x, w, b, eps: normed(x, 1, 0, 1e-5),
    "the shift is missing: bias is not used": lambda x, w, b, eps: normed(x, w, 0, eps),
    "the scale is missing: weight is not used": lambda x, w, b, eps: normed(x, 1, b, eps),
    "scale and shift have changed places: multiply by weight, add bias": lambda x, w, b, eps: normed(x, b, w, eps),
    "shifts before it scales: multiply by weight first, then add bias": lambda x, w, b, eps: (normed(x, 1, 0, eps) + b) * w,
    "the bias is subtracted; add it": lambda x, w, b, eps: normed(x, w, -b, eps),
    "scales by 1 + weight; the weight is the whole scale": lambda x, w, b, eps: normed(x, 1 + w, b, eps),
    "brackets are missing around x - mean": lambda x, w, b, eps: x - (x - centred(x)) / spread(x, eps) * w + b,
    "divides by a length, the root of a sum; it is of a mean": lambda x, w, b, eps: F.normalize(centred(x), dim=-1) * w + b,
    "takes one variance for all numbers, not one a token": lambda x, w, b, eps: (
        centred(x) / (x.var(correction=0) + eps).sqrt() * w + b
    ),
    "takes one mean for all numbers, not one a token": lambda x, w, b, eps: (x - x.mean()) / spread(x, eps) * w + b,
    "takes x from the mean; take the mean from x": lambda x, w, b, eps: normed(x, -w, b, eps),
    "divides by weight; multiply by it": lambda x, w, b, eps: normed(x, 1 / w, b, eps),
    "gives x back as it came": lambda x, w, b, eps: x,
}


def norm_case(*shape, size=1.0, dtype=torch.float32):
    """Tokens of different size and mean, a weight and a bias"""
    sizes = torch.linspace(0.5, 2, max(1, len(shape) and torch.Size(shape[:-1]).numel()), dtype=dtype).reshape(
        *shape[:-1], 1
    )
    x = size * (sizes * torch.randn(*shape, dtype=dtype) + 0.5 * sizes)
    return x, torch.randn(shape[-1], dtype=dtype) + 2, torch.randn(shape[-1], dtype=dtype)


def norm_right(answer, x, w, b, when, *eps):
    try:
        got = marks.untouched(answer, x, w, b, *eps)
    except RuntimeError as error:
        if "must match the size" not in str(error):
            raise
        raise marks.Slip(f"{when} lengths do not fit: keepdim=True in mean and var keeps the axis, (..., 1)") from error
    marks.expect_tensor(got, x.shape, when)
    slip(got.dtype != x.dtype, f"gives {got.dtype} for {x.dtype}; keep the type that came in")
    given = (x, w, b, *(eps or (1e-6,)))
    if marks.differ(got, normed(*given)):
        slip(
            bool(got.isnan().any()), f"gives NaN {when}: a token whose numbers are all equal has variance 0; add eps inside"
        )
        words = attention.first_match(NORM_SLIPS, got, *given)
        raise marks.Slip(f"{when}: {words or 'the shape is right, the numbers are not: (x - mean) / sqrt(variance + eps)'}")


def norm_one(answer):
    norm_right(answer, *norm_case(5, 4), "for one image of 5 tokens, D = 4")
    x = torch.tensor([[2.0, 4, 4, 6], [1, 1, 1, 5]])
    norm_right(answer, x, torch.ones(4), torch.zeros(4), "for weight 1 and bias 0")


def norm_batch(answer):
    for shape in ((2, 5, 4), (4, 4, 4), (3, 2, 5, 6)):
        norm_right(answer, *norm_case(*shape), f"for shape {shape}")


def norm_eps(answer):
    for size in (0.0, 1e-3):
        norm_right(answer, *norm_case(3, 5, 8, size=size), f"for tokens {size:g} times as large")
    norm_right(answer, *norm_case(2, 5, 8), "for eps = 0.5", 0.5)
    norm_right(answer, *norm_case(2, 5, 8, size=1e-3), "for small tokens and eps = 0.001", 1e-3)


def norm_sizes(answer):
    for shape in ((1, 1, 6), (3, 1), (7,), (1, 17, 64)):
        norm_right(answer, *norm_case(*shape), f"for shape {shape}")
    norm_right(answer, *norm_case(2, 5, 6, dtype=torch.float64), "in float64")


def norm_gradients(answer):
    for place in range(3):
        given = [z.requires_grad_(i == place) for i, z in enumerate(norm_case(2, 5, 6))]
        first, again = answer(*given), answer(*given)
        slip(not same(first, again), "gives another result at a second call: is something random in it?")
        marks.expect_anew(first, answer(given[0].flip(-1) * 2, *given[1:]))
        lost = not again.is_leaf and marks.gradient(again, given[place]) is None
        words = f"no gradient flows back to {('x', 'weight', 'bias')[place]}: was it detached, or put into a new layer?"
        slip(lost, f"gives the right numbers, but {words}")
        marks.expect_gradient(first, normed(*given, 1e-6), given[place])
    marks.expect_anywhere(answer, torch_norm, *norm_case(2, 5, 6))


def check_layer_norm(answer):
    """Mark a function (x, weight, bias, eps=1e-6) -> a tensor of x's shape.  Prints a line for each idea."""
    ideas = [
        ("one image: each token by its own mean and variance, then scale and shift", norm_one),
        ("a batch, with any axes in front", norm_batch),
        ("eps inside the root: 1e-6 unless another is given, and no NaN", norm_eps),
        ("one token, D = 1, no batch axis, float64", norm_sizes),
        ("gradients flow to x, weight and bias", norm_gradients),
    ]
    return marks.check("layer_norm", answer, ideas)


# The MLP


def mlp(x, w1, b1, w2, b2, act=F.gelu, before=lambda x: x, after=lambda x: x):
    return after(F.linear(act(F.linear(before(x), w1, b1)), w2, b2))


def quick(x):
    return x * torch.sigmoid(1.702 * x)


tanh_gelu = partial(F.gelu, approximate="tanh")
MLP_SLIPS = {
    "a GELU stands after the last layer too; nothing does, or the MLP could hardly subtract": {"after": F.gelu},
    "a ReLU stands after the last layer; nothing does": {"act": F.gelu, "after": F.relu},
    "GELU stands after the last layer, not between the two": {"act": lambda x: x, "after": F.gelu},
    "GELU stands before the first layer, not between the two": {"act": lambda x: x, "before": F.gelu},
    "nothing stands between the layers: two Linears in a row are one; put a GELU there": {"act": lambda x: x},
    "has a ReLU where the paper has a GELU": {"act": F.relu},
    "has ReLU, and once more after the last layer; the paper has one GELU between": {"act": F.relu, "after": F.relu},
    "has the tanh form of GELU (that of flax), which differs a little; the exact one is wanted, nn.GELU()": {
        "act": tanh_gelu
    },
    "has x * sigmoid(1.702 x), a rough form of GELU; the exact one is wanted, nn.GELU()": {"act": quick},
    "has a SiLU where the paper has a GELU": {"act": F.silu},
    "has a tanh where the paper has a GELU": {"act": torch.tanh},
    "has a sigmoid where the paper has a GELU": {"act": torch.sigmoid},
    "a leaky ReLU stands where the paper has a GELU": {"act": F.leaky_relu},
    "has Phi(x) alone; GELU is x * Phi(x)": {"act": torch.special.ndtr},
    "GELU is twice too large: the factor 1/2 is missing": {"act": lambda x: 2 * F.gelu(x)},
    "has erf(x) in GELU; it is erf(x / sqrt(2))": {"act": lambda x: x * (1 + torch.erf(x)) / 2},
    "GELU stands before the first layer too; it stands between the two alone": {"before": F.gelu},
}


def affine(module):
    """Weight (out, in) and bias (out,) of every map in which a module holds both, nn.Linear or not, either way round"""
    for part in module.modules():
        own = [p.squeeze() for p in part.parameters(recurse=False)]
        for weight, bias in permutations(own, 2):
            if weight.ndim == 2 and bias.ndim == 1:
                yield from ((w, bias) for w in (weight, weight.T) if len(w) == len(bias))


def mlp_layers(module, dim, hidden):
    """Every way to read two layers of these widths: w1, b1, w2, b2"""
    for one, two in permutations(affine(module), 2):
        if one[0].shape == (hidden, dim) and two[0].shape == (dim, hidden):
            yield *one, *two


def count_slip(module, wanted, formula, reasons, advice):
    """Slip unless the module has as many parameters as the formula says, and all in layers that can be read"""
    count = sum(p.numel() for p in module.parameters())
    slip(not count, "has no parameters: make the layers in __init__, as attributes or in nn.Sequential, no plain list")
    slip(count != wanted, f"has {count} parameters, it should have {formula} = {wanted}: {reasons.get(count, advice)}")


def mlp_parameters(answer, dim=6, hidden=10):
    module = attention.build(answer, dim, hidden)
    reasons = {
        2 * dim * hidden: "the biases are missing",
        2 * dim * hidden + dim: "the first layer has no bias",
        2 * dim * hidden + hidden: "the second layer has no bias",
        dim * hidden + hidden: "only the first layer is registered; layers in a plain list are not",
        dim * hidden + dim: "only the second layer is registered; layers in a plain list are not",
        2 * dim * hidden + hidden + 3 * dim: "that is a LayerNorm too many; it belongs to the block",
        2 * dim * 4 * dim + 5 * dim: "the hidden width is always 4 D; take the one that is given",
        2 * dim * 4 * hidden + 4 * hidden + dim: "the second argument is the hidden width itself, not a factor 4 less",
        2 * dim * dim * hidden + dim * hidden + dim: "the second argument is the hidden width itself, not a factor on D",
        2 * dim * hidden + hidden**2 + 2 * hidden + dim: "that is a layer too many",
    }
    advice = "count weights and biases of D -> hidden -> D"
    count_slip(module, 2 * dim * hidden + hidden + dim, "2 D hidden + hidden + D", reasons, advice)
    slip(
        not list(mlp_layers(module, dim, hidden)),
        "build it from nn.Linear layers with their own biases, so that weights can be copied",
    )


def mlp_equal(module, x, dim, hidden, atol=1e-4):
    """The reading of the layers under which the answer is right; Slip with the mistake when there is none"""
    got, found = attention.output(module, x), list(mlp_layers(module, dim, hidden))
    slip(got.dtype != x.dtype, f"gives {got.dtype} for {x.dtype}; keep the type that came in")
    for reading in found:
        if same(got, mlp(x, *reading), atol):
            return reading
        marks.expect_digits(got, mlp(x, *reading))
    for reading, (words, slipped) in product(found, MLP_SLIPS.items()):
        slip(same(got, mlp(x, *reading, **slipped), atol), words)
    for reading in found:
        slip(same(got, x + mlp(x, *reading), atol), "adds its input; the residual belongs to the block")
        slip(same(got, mlp(F.layer_norm(x, (dim,)), *reading), 1e-3), "norms its input; that belongs to the block")
    raise marks.Slip("shapes and parameters are right, the numbers are not: Linear, GELU, Linear")


def mlp_shape(answer):
    for shape in ((2, 5, 6), (1, 1, 6), (3, 4, 6)):
        attention.output(attention.build(answer, 6, 10), torch.randn(shape), "for tokens")


def tokens_alone(answer):
    marks.expect_steady(attention.build(answer, 6, 10), torch.randn(2, 5, 6), (2, 5, 6))
    for size in ((2, 5, 6), (6, 6, 6)):
        module, x = attention.build(answer, 6, 10).eval(), torch.randn(size)
        other = x.clone()
        other[1, 3] += 1
        with torch.no_grad():
            moved = (attention.output(module, x) - attention.output(module, other)).abs().amax(-1) > 1e-5
        moved[1, 3] = False
        slip(bool(moved.any()), "a token's result changes when another token does: the MLP reads every token alone")


def mlp_numbers(answer):
    for dim, hidden in ((6, 10), (5, 20), (8, 3), (4, 4)):
        for training in (True, False):
            module = attention.build(answer, dim, hidden).train(training)
            mlp_equal(module, 2 * torch.randn(2, 5, dim), dim, hidden)


def mlp_exact(answer):
    module = attention.build(answer, 6, 10).double()
    mlp_equal(module, 2 * torch.randn(2, 5, 6, dtype=torch.float64), 6, 10, atol=1e-9)


def all_gradients(output, sources):
    """The gradient of a fixed weighing of the output for each source, None where none flows"""
    learned = [source for source in sources if source.requires_grad]
    if not (output.requires_grad and learned):
        return [None] * len(sources)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    found = iter(torch.autograd.grad((output * weights).sum(), learned, allow_unused=True))
    return [next(found) if source.requires_grad else None for source in sources]


def every_gradient(module, got, wanted, x):
    """The gradient of the input and of every parameter equals that of the right answer"""
    names, parameters = zip(*module.named_parameters(), strict=True)
    sources = dict(
        zip(
            ("its input", *names),
            zip(*(all_gradients(y, (x, *parameters)) for y in (got, wanted)), strict=True),
            strict=True,
        )
    )
    lost = [name for name, (mine, _) in sources.items() if mine is None]
    slip(
        bool(lost),
        f"gives the right numbers, but no gradient flows back to {', '.join(lost)}: was something detached or frozen?",
    )
    for name, (mine, right) in sources.items():
        slip(not same(mine, right, atol=1e-4), f"gives the right numbers, but another gradient for {name} than it should")


def mlp_gradients(answer):
    module, x = attention.build(answer, 6, 10), torch.randn(2, 5, 6, requires_grad=True)
    reading = mlp_equal(module, x, 6, 10)
    every_gradient(module, attention.output(module, x), mlp(x, *reading), x)
    marks.expect_anywhere(module, MLP(6, 10), x)


def check_mlp(answer):
    """Mark a class (dim, hidden_dim) whose forward maps (B, T, D) to (B, T, D).  Prints a line for each idea."""
    ideas = [
        ("(B, T, D) in, (B, T, D) out", mlp_shape),
        ("two layers with biases, D -> hidden -> D", mlp_parameters),
        ("every token alone, the same at every call", tokens_alone),
        ("a GELU between, nothing after", mlp_numbers),
        ("the exact GELU, float64 too", mlp_exact),
        ("gradients flow to the tokens and to every parameter", mlp_gradients),
    ]
    return marks.check("mlp", answer, ideas)


# The block


def then(rest):
    """A way through the parts that begins with equation 2; rest: what it makes of the result y, of x, norm2 and the MLP"""
    return lambda x, n, a, m, f: rest(x + a(n(x)), x, m, f)


BLOCK_SLIPS = {  # wrong ways through the parts: norms n and m, attention a, MLP f
    "the attention's result is never used: x + mlp(norm2(x)). No token ever sees another": (
        lambda x, n, a, m, f: x + f(m(x))
    ),
    "the MLP's result is never used": lambda x, n, a, m, f: x + a(n(x)),
    "there is no residual at all: add x to what attention gives, and that to what the MLP gives": (
        lambda x, n, a, m, f: f(m(a(n(x))))
    ),
    "there is no residual around attention: x + attn(norm1(x))": lambda x, n, a, m, f: a(n(x)) + f(m(a(n(x)))),
    "there is no residual around the MLP: add what entered norm2": then(lambda y, x, m, f: f(m(y))),
    "the MLP's residual is the block's input; it is what attention left, x after equation 2": then(
        lambda y, x, m, f: x + f(m(y))
    ),
    "attention and MLP both read the block's input, side by side; the MLP reads what attention left": (
        lambda x, n, a, m, f: x + a(n(x)) + f(m(x))
    ),
    "the block's input is added once more at the end": then(lambda y, x, m, f: x + y + f(m(y))),
    "the norms stand last, after the sums; in a ViT they stand first: x + attn(norm1(x))": (
        lambda x, n, a, m, f: m(n(x + a(x)) + f(n(x + a(x))))
    ),
    "the norms stand after attention and MLP, before the sums; they stand first: x + attn(norm1(x))": (
        lambda x, n, a, m, f: x + n(a(x)) + m(f(x + n(a(x))))
    ),
    "the first norm stands last, after the sum; it stands first: x + attn(norm1(x))": (
        lambda x, n, a, m, f: n(x + a(x)) + f(m(n(x + a(x))))
    ),
    "the residual adds the normed tokens; add x as it was before its norm": (
        lambda x, n, a, m, f: (y := n(x) + a(n(x))) is not None and m(y) + f(m(y))
    ),
    "the first residual adds the normed tokens; add x as it was before norm1": (
        lambda x, n, a, m, f: (y := n(x) + a(n(x))) is not None and y + f(m(y))
    ),
    "the second residual adds the normed tokens; add x as it was before norm2": then(lambda y, x, m, f: m(y) + f(m(y))),
    "one norm is used twice, the other never: attention and MLP have a norm each": (
        lambda x, n, a, m, f: x + a(n(x)) + f(n(x + a(n(x))))
    ),
    "the MLP reads tokens that no norm has touched: mlp(norm2(x))": then(lambda y, x, m, f: y + f(y)),
    "attention reads tokens that no norm has touched: attn(norm1(x))": lambda x, n, a, m, f: x + a(x) + f(m(x + a(x))),
    "no norm is used": lambda x, n, a, m, f: x + a(x) + f(x + a(x)),
    "the MLP comes before attention; attention comes first": lambda x, n, a, m, f: x + f(m(x)) + a(n(x + f(m(x)))),
    "the MLP reads attention's result alone; first x = x + attn(norm1(x))": lambda x, n, a, m, f: x + f(m(a(n(x)))),
    "the MLP reads attention's result alone; it reads the sum": lambda x, n, a, m, f: x + a(n(x)) + f(m(a(n(x)))),
    "x is not added to attention's result, and the MLP reads it instead": lambda x, n, a, m, f: a(n(x)) + f(m(x)),
    "the second norm stands last; it stands first: x + mlp(norm2(x))": then(lambda y, x, m, f: m(y + f(y))),
    "the second norm stands after the MLP, not first: x + mlp(norm2(x))": then(lambda y, x, m, f: y + m(f(y))),
    "the first norm stands after attention, not first: x + attn(norm1(x))": lambda x, n, a, m, f: (
        x + n(a(x)) + f(m(x + n(a(x))))
    ),
    "attention's result is subtracted; add it": lambda x, n, a, m, f: x - a(n(x)) + f(m(x - a(n(x)))),
    "the MLP's result is subtracted; add it": then(lambda y, x, m, f: y - f(m(y))),
    "the second norm is applied to the result too": then(lambda y, x, m, f: m(y + f(m(y)))),
}


def right_block(x, n, a, m, f):
    x = x + a(n(x))
    return x + f(m(x))


MAPS = (nn.Linear, nn.MultiheadAttention)


def vectors(module):
    """Scale and shift of every norm, in each order that makes sense: a torch LayerNorm says which is which"""
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


def wide(part, dim):
    """Whether a Linear is one of the MLP's, between D and 4 D"""
    return isinstance(part, nn.Linear) and set(part.weight.shape) == {dim, 4 * dim}


def block_readings(module, dim, heads):
    """Every way to read the block's parts: norm1's w and b, attention as for notebook 03, norm2's, the MLP's layers"""
    parts = nn.ModuleList(p for p in module.modules() if isinstance(p, MAPS) and not wide(p, dim))
    for maps, layers, norms in product(
        attention.readings(parts, dim, heads), mlp_layers(module, dim, 4 * dim), vectors(module)
    ):
        yield *norms[:2], *maps, *norms[2:], *layers


def through(x, reading, way=right_block, eps=(1e-6, 1e-6), slipped=None, **mistake):
    """x through the parts of a reading in one way or another; `slipped` and `mistake` go to attention and MLP"""
    n, m = (
        partial(F.layer_norm, normalized_shape=x.shape[-1:], weight=w, bias=b, eps=each)
        for (w, b), each in zip((reading[:2], reading[6:8]), eps, strict=True)
    )
    a = partial(attention_of, maps=reading[2:6], slipped=slipped)
    return way(x, n, a, m, lambda z: mlp(z, *reading[8:], **mistake))


def attention_of(x, maps, slipped):
    return attention.multi_head(x, *maps, slipped)


def nearest(got, x, stacked, **mistake):
    """Of what all readings give, computed at once, the place and the numbers that come closest to the answer's"""
    with torch.no_grad():
        results = torch.vmap(lambda *reading: through(x, reading, **mistake))(*stacked)
        place = (results - got).abs().flatten(1).amax(1).nan_to_num(torch.inf).argmin()
    return place, results[place]


def block_mistakes():
    """All that can slip in a block, as words and what to change in `through`; the likeliest first"""
    eps = {
        "the norms' eps is 1e-5, torch's own default": (1e-5, 1e-5),
        "norm1's eps is 1e-5, torch's own default": (1e-5, 1e-6),
        "norm2's eps is 1e-5, torch's own default": (1e-6, 1e-5),
        "the norms' eps is 1e-8": (1e-8, 1e-8),
        "the norms' eps is 1e-12": (1e-12, 1e-12),
        "the norms have no eps": (0.0, 0.0),
    }
    last = "the norms stand last, after the sums; in a ViT they stand first: x + attn(norm1(x))"
    return chain(
        ((words, {"way": way}) for words, way in BLOCK_SLIPS.items()),
        ((f"the MLP: {words}", mistake) for words, mistake in MLP_SLIPS.items()),
        ((f"{words}; the published models have 1e-6", {"eps": pair}) for words, pair in eps.items()),
        [(f"{last}. And the MLP has a ReLU where the paper has a GELU", {"way": BLOCK_SLIPS[last], "act": F.relu})],
        ((f"attention: {words}", {"slipped": key}) for key, words in attention.MODULE_SLIPS.items()),
    )


def block_equal(module, x, dim, heads, atol=1e-4):
    """The reading of the parts under which the answer is right; Slip with the mistake when there is none"""
    got = attention.output(module, x)
    slip(got.dtype != x.dtype, f"gives {got.dtype} for {x.dtype}; keep the type that came in")
    when, found = f"for D = {dim} and {heads} heads", list(block_readings(module, dim, heads))
    slip(not found, f"{when} the parts have other widths than D and 4 D; is a fixed number in your code?")
    stacked = [torch.stack(parts) for parts in zip(*found, strict=True)]
    place, right = nearest(got, x, stacked)
    if same(got, right, atol):
        return found[place]
    for words, mistake in block_mistakes():
        slip(same(got, nearest(got, x, stacked, **mistake)[1], atol), words)
    marks.expect_digits(got, right)
    for other in (n for n in range(1, dim + 1) if dim % n == 0):
        stacked = [torch.stack(parts) for parts in zip(*block_readings(module, dim, other), strict=True)]
        slip(same(got, nearest(got, x, stacked)[1], atol), f"{when} attention has {other}: use the num_heads that is given")
    raise marks.Slip(
        f"shapes and parameters are right {when}, the numbers are not: x = x + attn(norm1(x)), then x = x + mlp(norm2(x))"
    )


def block_shape(answer):
    attention.output(attention.build(answer, 12, 3), torch.randn(2, 5, 12))
    with torch.no_grad():
        attention.output(attention.build(answer, 12, 3).eval(), torch.randn(1, 7, 12))


def block_count(answer):
    dim, heads = 12, 3
    module = attention.build(answer, dim, heads)
    square, wanted = dim * dim, 12 * dim * dim + 13 * dim
    reasons = {
        wanted - 2 * dim: "one LayerNorm is missing, attention and MLP have a norm each; or both have no shift (RMSNorm?)",
        wanted + 2 * dim: "that is a LayerNorm too many (the last one of a ViT stands after all blocks), or a LayerScale",
        wanted - 2 * dim - square - dim: "a LayerNorm and the output projection of attention are missing",
        wanted - square - dim: "the output projection of attention is missing",
        wanted - 8 * square - 5 * dim: "the MLP is missing; layers in a plain list are not registered",
        wanted - 4 * square - 4 * dim: "attention is missing",
        wanted - 4 * dim - 5 * dim: "the Linears have no biases",
        wanted - 5 * dim: "the MLP's layers have no biases",
        wanted - 3 * dim: "queries, keys and values have no bias",
        wanted - 4 * dim: "attention has no biases, or the norms are missing, or their scale and shift",
    }
    for ratio in (1, 2, 3, 8):
        reasons[wanted + (ratio - 4) * (2 * square + dim)] = f"the MLP's hidden width is {ratio} D; it is 4 D"
    advice = "4 D^2 + 4 D of attention, 8 D^2 + 5 D of the MLP, 2 D of each norm"
    count_slip(module, wanted, "12 D^2 + 13 D", reasons, advice)
    slip(
        not list(islice(block_readings(module, dim, heads), 1)),
        "build it from nn.Linear and nn.LayerNorm, so that weights can be copied",
    )


def block_apart(answer):
    attention.images_apart(answer)


def block_numbers(answer):
    for training in (True, False):
        module = attention.build(answer, 12, 3).train(training)
        block_equal(module, 0.5 + torch.randn(2, 5, 12), 12, 3)


def block_exact(answer):
    for size in (1e-3, 1.0):
        module = attention.build(answer, 12, 3).double()
        block_equal(module, size * torch.randn(2, 5, 12, dtype=torch.float64), 12, 3, atol=1e-9)


def block_shapes(answer):
    for B, T, dim, heads in ((1, 1, 8, 2), (3, 4, 6, 1), (2, 7, 5, 5), (4, 4, 16, 4), (2, 17, 24, 6)):
        block_equal(attention.build(answer, dim, heads), torch.randn(B, T, dim), dim, heads)


def block_gradients(answer):
    module, x = attention.build(answer, 12, 3), torch.randn(2, 5, 12, requires_grad=True)
    reading = block_equal(module, x, 12, 3)
    every_gradient(module, attention.output(module, x), through(x, reading), x)
    marks.expect_anywhere(module, Block(12, 3), x)


BLOCK_IDEAS = [
    ("(B, T, D) in, (B, T, D) out", block_shape),
    ("two norms, attention, an MLP: 12 D^2 + 13 D parameters", block_count),
    ("images do not mix, and two calls give the same", block_apart),
    ("the numbers of equations 2 and 3", block_numbers),
    ("eps 1e-6 and the exact GELU, float64 too", block_exact),
    ("any number of heads and tokens", block_shapes),
    ("gradients flow to the tokens and to every parameter", block_gradients),
]


def check_block(answer):
    """Mark a class (dim, num_heads) whose forward maps (B, T, D) to (B, T, D).  Prints a line for each idea."""
    return marks.check("block", answer, BLOCK_IDEAS)


def check_mend(answer):
    """Mark the mended class of the planted mistake, of the same form as `check_block`'s."""
    return marks.check("mend", answer, BLOCK_IDEAS)


# The count

COUNT_SLIPS = {  # the first four are right for mlp_ratio 4
    "that is right for mlp_ratio 4 only: use the one that is given": lambda D, r: 12 * D * D + 13 * D,
    "the MLP's first bias has mlp_ratio * D numbers": lambda D, r: (4 + 2 * r) * D * D + 13 * D,
    "the MLP's weights are 2 * mlp_ratio * D * D": lambda D, r: 12 * D * D + (9 + r) * D,
    "both weights of the MLP grow with mlp_ratio": lambda D, r: (8 + r) * D * D + (9 + r) * D,
    "the MLP's weights are (D, hidden) and (hidden, D)": lambda D, r: (4 + 2 * r * r) * D * D + (9 + r) * D,
    "the biases and the norms are missing": lambda D, r: (4 + 2 * r) * D * D,
    "the norms are missing, 2 D each": lambda D, r: (4 + 2 * r) * D * D + (5 + r) * D,
    "2 D are missing: a block has two norms, each with a scale and a shift, 2 D": lambda D, r: (
        (4 + 2 * r) * D * D + (7 + r) * D
    ),
    "that is a norm too many: a block has two": lambda D, r: (4 + 2 * r) * D * D + (11 + r) * D,
    "the biases of all Linears are missing": lambda D, r: (4 + 2 * r) * D * D + 4 * D,
    "the biases of attention are missing, 4 D": lambda D, r: (4 + 2 * r) * D * D + (5 + r) * D,
    "the MLP's biases are missing: hidden width and D": lambda D, r: (4 + 2 * r) * D * D + 8 * D,
    "the bias of the MLP's second layer is missing": lambda D, r: (4 + 2 * r) * D * D + (8 + r) * D,
    "the bias of the MLP's first layer is missing": lambda D, r: (4 + 2 * r) * D * D + 9 * D,
    "queries, keys and values have biases too, 3 D": lambda D, r: (4 + 2 * r) * D * D + (6 + r) * D,
    "the output projection of attention is missing": lambda D, r: (3 + 2 * r) * D * D + (8 + r) * D,
    "the MLP has two layers, of D * hidden weights each": lambda D, r: (4 + r) * D * D + (9 + r) * D,
    "that is attention alone": lambda D, r: 4 * D * D + 4 * D,
    "that is the MLP alone": lambda D, r: 2 * r * D * D + (r + 1) * D,
    "the MLP is missing": lambda D, r: 4 * D * D + 8 * D,
    "attention is missing": lambda D, r: 2 * r * D * D + (r + 5) * D,
}


def counted(answer, D, *ratio):
    r = ratio[0] if ratio else 4
    got, wanted = answer(D, *ratio), (4 + 2 * r) * D * D + (9 + r) * D
    when = f"for D = {D}" + (f" and mlp_ratio {r}" if ratio else "")
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    try:
        number = float(None if isinstance(got, (str, bytes)) else got)
    except (TypeError, ValueError, OverflowError) as error:
        raise marks.Slip(f"gives {marks.short(got)} {when}; it should give a number") from error
    if number != wanted:
        words = next(
            (words for words, rule in COUNT_SLIPS.items() if rule(D, r) == number),
            "add up each layer's weights and biases; in Python a square is D**2, not D^2",
        )
        raise marks.Slip(f"gives {number:,.0f} {when}, it should give {wanted:,.0f}: {words}")


def count_four(answer):
    for D in (100, 768, 1024, *range(1, 30)):
        counted(answer, D)


def count_ratio(answer):
    for D, r in ((8, 4), (8, 2), (64, 1), (768, 3), (10, 8), (16, 2.5), *product(range(2, 8), (1, 2, 3))):
        counted(answer, D, r)


def check_block_parameters(answer):
    """Mark a function (dim, mlp_ratio=4) -> how many parameters a block has.  Prints a line for each idea."""
    ideas = [("any width D, B/16's 768 among them", count_four), ("other MLP widths", count_ratio)]
    return marks.check("block_parameters", answer, ideas)
