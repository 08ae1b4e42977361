"""The exercise of notebook 04 that builds the MLP of a block."""

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.modules import ModuleExercise, Reading
from vit_helpers.checks.engine.report import Function, reject_if, variants
from vit_helpers.encoder import MLP


def identity(x: Tensor) -> Tensor:
    return x


def mlp(
    x: Tensor,
    *layers: Tensor,
    act: Function = F.gelu,
    before: Function = identity,
    after: Function = identity,
    residual: int = 0,
) -> Tensor:
    """Apply Linear, GELU, Linear.

    A mistake is another activation, or something before or after the layers.
    """
    w1, b1, w2, b2 = layers
    return after(F.linear(act(F.linear(before(x), w1, b1)), w2, b2)) + residual * x


MLPS = variants(mlp, {
    "there is a GELU after the last layer too, so the MLP can hardly give negative numbers":
        {"after": F.gelu},
    "there is a ReLU after the last layer, but nothing should follow it": {"after": F.relu},
    "GELU comes after the last layer instead of between the two":
        {"act": identity, "after": F.gelu},
    "GELU comes before the first layer instead of between the two":
        {"act": identity, "before": F.gelu},
    "GELU comes before the first layer too, but it belongs only between the two":
        {"before": F.gelu},
    "there is no activation between the layers, "
    "and two linear layers in a row are one: put a GELU there": {"act": identity},
    "uses ReLU where the paper uses GELU": {"act": F.relu},
    "uses ReLU, and again after the last layer, but the paper uses one GELU between the two":
        {"act": F.relu, "after": F.relu},
    "uses the tanh form of GELU (as flax does), which differs a little; "
    "use the exact one, nn.GELU()":
        {"act": partial(F.gelu, approximate="tanh")},
    "uses x * sigmoid(1.702 x), an approximation of GELU; use the exact one, nn.GELU()":
        {"act": lambda x: x * torch.sigmoid(1.702 * x)},
    "uses SiLU where the paper uses GELU": {"act": F.silu},
    "uses tanh where the paper uses GELU": {"act": torch.tanh},
    "uses a sigmoid where the paper uses GELU": {"act": torch.sigmoid},
    "uses a leaky ReLU where the paper uses GELU": {"act": F.leaky_relu},
    "uses Phi(x) alone, but GELU is x * Phi(x)": {"act": torch.special.ndtr},
    "GELU is twice too large: the factor 1/2 is missing": {"act": lambda x: 2 * F.gelu(x)},
    "uses erf(x) in GELU, but it should be erf(x / sqrt(2))":
        {"act": lambda x: x * (1 + torch.erf(x)) / 2},
    "adds its input, but the residual connection belongs to the block": {"residual": 1},
    "normalizes its input, but the norm belongs to the block":
        {"before": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-6)},
})  # fmt: skip


def affine(module: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weight (out, in) and bias (out,) of every layer that has both, transposed or not.

    The layer may be any, not only nn.Linear.
    """
    for part in module.modules():
        own = [p.squeeze() for p in part.parameters(recurse=False)]
        for weight, bias in permutations(own, 2):
            if weight.ndim == 2 and bias.ndim == 1:
                yield from ((w, bias) for w in (weight, weight.T) if len(w) == len(bias))


def mlp_readings(module: nn.Module, dim: int, hidden: int) -> Iterator[Reading]:
    """Yield every way to read two layers of these widths: w1, b1, w2, b2."""
    for first, second in permutations(affine(module), 2):
        if first[0].shape == (hidden, dim) and second[0].shape == (dim, hidden):
            yield *first, *second


def tokens_alone(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module repeats itself in both modes, token by token.

    No token may change another one's result.
    """
    (sizes, shape), *_ = exercise.cases
    modules.expect_steady(*modules.made(answer, sizes, shape), shape)
    for size in (shape, (sizes[0],) * 3):
        module, x = modules.made(answer, sizes, size)
        other = x.clone()
        other[1, 3] += 1
        with torch.no_grad():
            moved = (modules.output(module.eval(), x) - modules.output(module, other)).abs().amax(
                -1
            ) > 1e-5
        moved[1, 3] = False
        reject_if(
            moved.any(),
            "a token's result changes when another token does, "
            "but the MLP processes each token separately",
        )


def two_layers(D: int, hidden: int) -> list[int]:
    return [D * hidden, hidden, hidden * D, D]


FEED_FORWARD_STRUCTURES: dict[str, Function] = {
    "the biases are missing": lambda D, hidden: [D * hidden, hidden * D],
    "the first layer has no bias": lambda D, hidden: [D * hidden, hidden * D, D],
    "the second layer has no bias": lambda D, hidden: [D * hidden, hidden, hidden * D],
    "only the first layer is registered; layers in a plain list are not":
        lambda D, hidden: [D * hidden, hidden],
    "only the second layer is registered; layers in a plain list are not":
        lambda D, hidden: [hidden * D, D],
    "that is one LayerNorm too many: it belongs to the block":
        lambda D, hidden: [*two_layers(D, hidden), 2 * D],
    "the hidden width is always 4 D, but it should be the one that is given":
        lambda D, hidden: two_layers(D, 4 * D),
    "the second argument is already the hidden width, so don't multiply it by 4":
        lambda D, hidden: two_layers(D, 4 * hidden),
    "the second argument is the hidden width itself, not a multiple of D":
        lambda D, hidden: two_layers(D, D * hidden),
    "that is one layer too many":
        lambda D, hidden: [*two_layers(D, hidden), hidden * hidden, hidden],
}  # fmt: skip
FEED_FORWARD = ModuleExercise(
    name="mlp",
    module=MLP,
    function=mlp,
    readings=mlp_readings,
    ideas={
        "(B, T, D) in, (B, T, D) out": [modules.shapes],
        "two layers with biases, D -> hidden -> D": [modules.parameters],
        "each token separately, with the same result at every call": [tokens_alone],
        "a GELU between the layers, and nothing after them": [modules.numbers],
        "the exact GELU, in float64 too": [modules.other_sizes],
        "gradients flow to the tokens and to every parameter": [modules.every_gradient],
    },
    mistakes=MLPS,
    structures=FEED_FORWARD_STRUCTURES,
    cases=[((6, 10), (2, 5, 6)), ((5, 20), (2, 5, 5)), ((8, 3), (1, 1, 8)), ((4, 4), (3, 4, 4))],
    count="2 D hidden + hidden + D",
    advice="count weights and biases of D -> hidden -> D",
    unknown="shapes and parameters are right, but the numbers are not: Linear, GELU, Linear",
    unread="its parameters are not those of two layers, D -> hidden and hidden -> D, each with a "
    "bias, so weights cannot be copied",
)
