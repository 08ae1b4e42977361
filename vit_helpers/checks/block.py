"""The exercise of notebook 04 that puts attention, the MLP and two norms together as a block."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import permutations, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.modules import ModuleExercise, Reading
from vit_helpers.checks.engine.report import Function
from vit_helpers.checks.feed_forward import MLPS, identity, mlp, mlp_readings
from vit_helpers.checks.multi_head import HEADS, MULTI_HEAD, multi_head
from vit_helpers.checks.multi_head import readings as attention_readings
from vit_helpers.encoder import Block

# The ways through the parts


def right_way(x: Tensor, n: Function, a: Function, m: Function, f: Function) -> Tensor:
    """Compute equations 2 and 3: norms n and m, attention a, MLP f."""
    x = x + a(n(x))
    return x + f(m(x))


def then(rest: Function) -> Function:
    """Make an order of the parts that begins with equation 2.

    rest: what follows, from the result y, x, norm2 and the MLP
    """
    return lambda x, n, a, m, f: rest(x + a(n(x)), x, m, f)


def first(rest: Function) -> Function:
    """Make an order of the parts that ends with equation 3.

    rest: what precedes it, from x, norm1 and attention
    """
    return lambda x, n, a, m, f: (y := rest(x, n, a)) + f(m(y))


def norms_last(x: Tensor, n: Function, a: Function, m: Function, f: Function) -> Tensor:
    x = n(x + a(x))
    return m(x + f(x))


WAYS: dict[str, Function] = {
    "attention's result is never used, as in x + mlp(norm2(x)), "
    "so no token ever receives anything from another":
        first(lambda x, n, a: x),
    "the MLP's result is never used": then(lambda y, x, m, f: y),
    "there is no residual connection at all: add x to attention's result, "
    "and that sum to the MLP's result":
        lambda x, n, a, m, f: f(m(a(n(x)))),
    "there is no residual connection around attention: x + attn(norm1(x))":
        first(lambda x, n, a: a(n(x))),
    "there is no residual connection around the MLP: add what entered norm2":
        then(lambda y, x, m, f: f(m(y))),
    "the MLP's residual connection starts from the block's input, "
    "but should start from the x of equation 2":
        then(lambda y, x, m, f: x + f(m(y))),
    "attention and MLP both read the block's input, in parallel, "
    "but the MLP should read the x of equation 2":
        then(lambda y, x, m, f: y + f(m(x))),
    "the block's input is added once more at the end": then(lambda y, x, m, f: x + y + f(m(y))),
    "the norms come after the sums (post-norm), "
    "but in a ViT they come first (pre-norm): x + attn(norm1(x))": norms_last,
    "the norms come after attention and MLP, before the sums, "
    "but they should come first: x + attn(norm1(x))":
        lambda x, n, a, m, f: (y := x + n(a(x))) + m(f(y)),
    "the first norm comes after the sum, but it should come first: x + attn(norm1(x))":
        first(lambda x, n, a: n(x + a(x))),
    "the residual connections add normalized tokens: add x as it was before each norm":
        lambda x, n, a, m, f: (z := m(n(x) + a(n(x)))) + f(z),
    "the first residual connection adds normalized tokens: add x as it was before norm1":
        first(lambda x, n, a: n(x) + a(n(x))),
    "the second residual connection adds normalized tokens: add x as it was before norm2":
        then(lambda y, x, m, f: m(y) + f(m(y))),
    "one norm is used twice and the other never, but attention and MLP have a norm each":
        lambda x, n, a, m, f: right_way(x, n, a, n, f),
    "the MLP reads tokens that are not normalized: mlp(norm2(x))":
        then(lambda y, x, m, f: y + f(y)),
    "attention reads tokens that are not normalized: attn(norm1(x))":
        first(lambda x, n, a: x + a(x)),
    "only the queries are normalized, as in attn(norm1(x), x, x), "
    "but queries, keys and values all read norm1(x)":
        first(lambda x, n, a: x + a(torch.stack([n(x), x, x]))),
    "the queries are not normalized, but queries, keys and values all read norm1(x)":
        first(lambda x, n, a: x + a(torch.stack([x, n(x), n(x)]))),
    "the values are not normalized, but queries, keys and values all read norm1(x)":
        first(lambda x, n, a: x + a(torch.stack([n(x), n(x), x]))),
    "no norm is used": lambda x, n, a, m, f: right_way(x, identity, a, identity, f),
    "the MLP comes before attention, but attention should come first":
        lambda x, n, a, m, f: right_way(x, m, f, n, a),
    "the MLP reads only attention's result: first compute x = x + attn(norm1(x))":
        lambda x, n, a, m, f: x + f(m(a(n(x)))),
    "the MLP reads only attention's result, but it should read the sum":
        lambda x, n, a, m, f: x + a(n(x)) + f(m(a(n(x)))),
    "x is not added to attention's result, and the MLP reads x instead of the sum":
        lambda x, n, a, m, f: a(n(x)) + f(m(x)),
    "the second norm comes after the sum, but it should come first: x + mlp(norm2(x))":
        then(lambda y, x, m, f: m(y + f(y))),
    "the second norm comes after the MLP instead of first: x + mlp(norm2(x))":
        then(lambda y, x, m, f: y + m(f(y))),
    "the first norm comes after attention instead of first: x + attn(norm1(x))":
        first(lambda x, n, a: x + n(a(x))),
    "attention's result is subtracted instead of added": first(lambda x, n, a: x - a(n(x))),
    "the MLP's result is subtracted instead of added": then(lambda y, x, m, f: y - f(m(y))),
    "the second norm is applied to the result as well": then(lambda y, x, m, f: m(y + f(m(y)))),
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
    way: Function = right_way,
    eps: tuple[float, float] = (1e-6, 1e-6),
    attention: Function = multi_head,
    dense: Function = mlp,
) -> Tensor:
    """Return the block for given parameters.

    A mistake is another order, another eps, wrong attention or a wrong MLP.
    """
    n, m = (
        partial(F.layer_norm, normalized_shape=x.shape[-1:], weight=w, bias=b, eps=each)
        for (w, b), each in zip((reading[:2], reading[6:8]), eps, strict=True)
    )
    return way(x, n, lambda z: attention(z, *reading[2:6]), m, lambda z: dense(z, *reading[8:]))


def regrouped(x: Tensor, w: Tensor, b: Tensor, *proj: Tensor, heads: int) -> Tensor:
    """Return attention with another number of heads."""
    return multi_head(x, *(z.flatten(1, 2).unflatten(1, (heads, -1)) for z in (w, b)), *proj)


MAPS = (nn.Linear, nn.MultiheadAttention)


def norm_readings(module: nn.Module, dim: int) -> Iterator[Reading]:
    """Scale and shift of both norms, in every possible order; a torch LayerNorm names them.

    They may be the rows of one parameter.
    """
    pairs, loose = [], []
    for part in module.modules():
        parameters = [p.squeeze() for p in part.parameters(recurse=False)]
        own = [row for p in parameters for row in (p if p.shape in ((2, dim), (4, dim)) else [p])]
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


def block_readings(module: nn.Module, dim: int, heads: int) -> Iterator[Reading]:
    """Yield every way to read the block's parts.

    They are norm1's w and b, attention as for notebook 03, norm2's w and b, the MLP's layers.
    """
    maps = [part for part in module.modules() if isinstance(part, MAPS)]
    dense = {dim, 4 * dim}  # the widths of the MLP's layers
    parts = nn.ModuleList(
        p for p in maps if not (isinstance(p, nn.Linear) and set(p.weight.shape) == dense)
    )
    ways = (
        attention_readings(parts, dim, heads),
        mlp_readings(module, dim, 4 * dim),
        norm_readings(module, dim),
    )
    for attention, layers, norms in product(*ways):
        yield *norms[:2], *attention, *norms[2:], *layers


def exact(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module is right to the last digits of float64.

    It is tried with tiny tokens, too, where eps matters.
    """
    sizes, shape = exercise.cases[0]
    module, x = modules.made(answer, sizes, shape, torch.float64)
    for size in (1e-3, 1.0):
        modules.reading_of(exercise, answer, module, size * x, sizes)


BLOCK_MISTAKES: Mapping[str, Function] = (
    {message: partial(block, way=way) for message, way in WAYS.items()}
    | {f"the MLP: {message}": partial(block, dense=wrong) for message, wrong in MLPS.items()}
    | {
        f"{message}; the published models use 1e-6": partial(block, eps=eps)
        for message, eps in EPS.items()
    }
    | {
        "the norms come after the sums (post-norm), but in a ViT they come first (pre-norm): "
        "x + attn(norm1(x)). And the "
        "MLP uses ReLU where the paper uses GELU":
            partial(block, way=norms_last, dense=partial(mlp, act=F.relu)),
    }
    | {f"attention: {message}": partial(block, attention=wrong) for message, wrong in HEADS.items()}
    | {
        f"attention has {n} heads, but should have the num_heads that is given": partial(
            block, attention=partial(regrouped, heads=n)
        )
        for n in (2, 4, 6, 12)
    }
)  # fmt: skip
BLOCK_STRUCTURES: dict[str, Function] = (
    {
        "one LayerNorm is missing, because attention and MLP have a norm each; "
        "or both have no shift (RMSNorm?)":
            modules.squares(12, 11),
        "that is one LayerNorm too many "
        "(the final one of a ViT comes after all blocks), or a LayerScale":
            modules.squares(12, 15),
        "a LayerNorm is missing, and one of attention's four D x D layers "
        "(queries, keys, values, output projection)": modules.squares(11, 10),
        "one of attention's four D x D layers is missing "
        "(queries, keys, values, output projection)": modules.squares(11, 12),
        "the MLP is missing; layers in a plain list are not registered": modules.squares(4, 8),
        "attention is missing": modules.squares(8, 9),
        "the linear layers have no biases": modules.squares(12, 4),
        "the MLP's layers have no biases": modules.squares(12, 8),
        "queries, keys and values have no bias": modules.squares(12, 10),
        "attention has no biases, or the norms are missing, or their scale and shift":
            modules.squares(12, 9),
    }
    | {
        f"the MLP's hidden width is {r} D, but it should be 4 D": modules.squares(4 + 2 * r, 9 + r)
        for r in (1, 2, 3, 8)
    }
)  # fmt: skip
BLOCK = ModuleExercise(
    name="block",
    module=Block,
    function=block,
    readings=block_readings,
    vectorized=True,
    ideas={
        "(B, T, D) in, (B, T, D) out": [modules.shapes],
        "two norms, attention, an MLP: 12 D^2 + 13 D parameters": [modules.parameters],
        "images don't mix, and two calls give the same result": [modules.apart],
        "the numbers of equations 2 and 3": [modules.numbers],
        "eps 1e-6 and the exact GELU, in float64 too": [exact],
        "any number of heads and tokens": [modules.other_sizes],
        "gradients flow to the tokens and to every parameter": [modules.every_gradient],
    },
    mistakes=BLOCK_MISTAKES,
    structures=BLOCK_STRUCTURES,
    cases=MULTI_HEAD.cases,
    count="12 D^2 + 13 D",
    advice="4 D^2 + 4 D of attention, 8 D^2 + 5 D of the MLP, 2 D of each norm",
    unknown=(
        "shapes and parameters are right, but the numbers are not: x = x + attn(norm1(x)), "
        "then x = x + mlp(norm2(x))"
    ),
    unread="its parameters are not those of nn.Linear and nn.LayerNorm layers, "
    "so weights cannot be copied",
)
