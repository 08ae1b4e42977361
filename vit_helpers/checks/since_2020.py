"""The exercises of notebook 12: LayerScale, the mean of patches, attention pooling, a gate's width.

Those about rotary positions are in since_2020_rotary.py.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.exercise import Case, Exercise, Wording, fixed
from vit_helpers.checks.engine.modules import ModuleExercise, Reading, build
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, variants
from vit_helpers.checks.since_2020_rotary import (  # noqa: F401
    ANGLES,
    ROTATE,
    check_rotary_angles,
    check_rotate,
)

# LayerScale

START = 1e-5


class SmallScale(nn.Module):
    """LayerScale with its usual start.  (B, T, D) -> (B, T, D)"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), START))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x


def starting_at(start: Function) -> type[nn.Module]:
    """A class whose weights start as `start` makes them of their number."""

    class Answer(SmallScale):
        def __init__(self, dim: int) -> None:
            super().__init__(dim)
            self.gamma = nn.Parameter(start(dim))

    return Answer


def gammas(module: nn.Module, dim: int) -> Iterator[Reading]:
    """Yield every parameter of D numbers."""
    for parameter in module.parameters():
        if parameter.numel() == dim:
            yield (parameter.flatten(),)


STARTS: dict[str, Function] = {
    "the weights start at 1, where a block changes its input as much as before": torch.ones,
    "the weights start at 0, where nothing but the weights themselves gets a gradient": torch.zeros,
    "the weights start at random, but all of them should start at 1e-5": lambda dim: (
        0.02 * torch.randn(dim)
    ),
}


def has_weights(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless there is an nn.Parameter."""
    (sizes, _), *_ = exercise.cases
    reject_if(
        not any(True for _ in build(answer, *sizes).parameters()),
        "has no parameters: the optimizer only learns a tensor that is an nn.Parameter, and "
        "neither a plain tensor nor the product of a number and a parameter is one",
    )


def starts_small(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless every weight starts at 1e-5."""
    for (dim, *_), _ in exercise.cases:
        (gamma,) = next(gammas(build(answer, dim), dim), (None,))
        if gamma is None:
            raise Mistake(f"has no {dim} weights for D = {dim}: is a fixed number in your code?")
        for message, start in STARTS.items():
            if start in (torch.ones, torch.zeros):
                reject_if(torch.equal(gamma, start(dim)), message)
        _, again = build(answer, dim), next(gammas(build(answer, dim), dim))[0]
        reject_if(not torch.equal(gamma, again), list(STARTS)[-1])
        right = torch.allclose(gamma, torch.full((dim,), START), rtol=1e-3)
        reject_if(not right, f"the weights start at {gamma[0]:.2g}, but they should start at 1e-5")


LAYER_SCALES: dict[str, Function] = {
    "adds its input, but the residual connection belongs to the block": lambda x, g: x + g * x,
    "adds the weights, but they should multiply": lambda x, g: x + g,
    "divides by the weights, but they should multiply": lambda x, g: x / g,
    "multiplies by the same number for all D: gamma has a weight for each of them": lambda x, g: (
        g.mean() * x
    ),
    "the result is almost 0, whatever the weights are: multiply by gamma, and by nothing else": (
        lambda x, g: 1e-5 * x
    ),
}
LAYER_SCALE = ModuleExercise(
    name="layer_scale",
    module=SmallScale,
    function=lambda x, gamma: gamma * x,
    readings=gammas,
    ideas={
        "(B, T, D) in, (B, T, D) out": [modules.shapes],
        "a learned weight for each of the D numbers": [has_weights, modules.parameters],
        "every weight starts at 1e-5": [starts_small],
        "the weights multiply, token by token": [modules.apart, modules.numbers],
        "any width, in float64 too": [modules.other_sizes],
        "gradients flow to the tokens and to the weights": [modules.every_gradient],
    },
    mistakes=LAYER_SCALES,
    structures={
        "one weight for all, but each of the D numbers has its own": lambda D: [1],
        "a matrix mixes the D numbers, but each is only multiplied": lambda D: [D * D],
        "a linear layer mixes the D numbers, but each is only multiplied": lambda D: [D * D, D],
        "there is a bias too, but LayerScale only multiplies": lambda D: [D, D],
    },
    cases=[((6,), (2, 5, 6)), ((8,), (3, 4, 8)), ((5,), (2, 7, 5))],
    count="D",
    advice="each of the D numbers has one",
    stages={message: starting_at(start) for message, start in STARTS.items()},
)
check_layer_scale = LAYER_SCALE.check


# The mean of the patches


def mean_of(x: Tensor, registers: int, pick: Function = lambda T, R: slice(1 + R, T)) -> Tensor:
    """The mean of some tokens: `pick` says which, from the number of tokens and registers."""
    return x[:, pick(x.shape[1], registers)].mean(dim=1)


PATCH_MEAN_MISTAKES: dict[str, Function] = variants(mean_of, {
    "registers leak into the mean":
        {"pick": lambda T, R: slice(1, T)},
    "class token and registers leak into the mean: the patches begin at token 1 + R":
        {"pick": lambda T, R: slice(0, T)},
    "one register, or without registers the class token, leaks into the mean: "
    "the patches begin at token 1 + R":
        {"pick": lambda T, R: slice(R, T)},
    "the first patch is missing": {"pick": lambda T, R: slice(2 + R, T)},
    "the last patches are missing, but registers come before the patches":
        {"pick": lambda T, R: slice(1, T - R)},
    "that is the mean of the registers alone":
        {"pick": lambda T, R: slice(1, 1 + R)},
    "four registers are left out, whatever their number": {"pick": lambda T, R: slice(5, T)},
    "leaves out the last R tokens and the class token, but registers come before the patches "
    "(and x[:, 1:-0] is empty)":
        {"pick": lambda T, R: slice(1, -R)},
    "leaves out the last R tokens, but class token and registers come first "
    "(and x[:, :-0] is empty)":
        {"pick": lambda T, R: slice(0, -R)},
    "the last tokens are missing, but class token and registers come first":
        {"pick": lambda T, R: slice(0, T - R)},
    "that is the class token": {"pick": lambda T, R: slice(0, 1)},
    "the class token leaks into the mean": {"pick": lambda T, R: [0, *range(1 + R, T)]},
}) | {
    "that is the sum, not the mean": lambda x, R: x[:, 1 + R :].sum(dim=1),
    "divided by the number of all tokens instead of that of the patches":
        lambda x, R: x[:, 1 + R :].sum(dim=1) / x.shape[1],
    "the registers are left out of the sum, but still counted":
        lambda x, R: x[:, 1 + R :].sum(dim=1) / (x.shape[1] - 1),
    "the class token is left out of the sum, but still counted":
        lambda x, R: x[:, 1 + R :].sum(dim=1) / (x.shape[1] - R),
    "that is the mean over images, but each image has its own":
        lambda x, R: x[:, 1 + R :].mean(dim=(0, 1)).expand(len(x), -1),
}  # fmt: skip


def a_few(registers: int, patches: int) -> Case:
    return Case(lambda: (torch.randn(3, 1 + registers + patches, 6), registers))


PATCH_MEAN = Exercise(
    name="patch_mean",
    reference=mean_of,
    wording=Wording(
        when=lambda x, registers: f"for {x.shape[1]} tokens with {registers} registers"
    ),
    ideas={
        "without registers: all but the class token": [a_few(0, 9), a_few(0, 16)],
        "registers do not leak into the mean": [a_few(4, 9), a_few(2, 12), a_few(1, 4)],
    },
    mistakes=PATCH_MEAN_MISTAKES,
)
check_patch_mean = PATCH_MEAN.check


# Attention pooling


def pooled(
    x: Tensor,
    query: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    keys: Function = lambda x, w_k: x @ w_k,
    divide: Function = lambda D: D**0.5,
    weigh: Function = lambda scores: scores.softmax(dim=1),
    values: Function = lambda x, w_v: x @ w_v,
) -> Tensor:
    """One query for all images; a mistake is another step."""
    scores = keys(x, w_k) @ query / divide(x.shape[2])  # (B, T)
    return (weigh(scores)[:, :, None] * values(x, w_v)).sum(dim=1)  # (B, D)


POOL_MISTAKES: dict[str, Function] = variants(pooled, {
    "the softmax runs over the images, but it should run over the tokens of one image":
        {"weigh": lambda scores: scores.softmax(dim=0)},
    "the softmax is missing: weights are positive and sum to 1": {"weigh": lambda scores: scores},
    "that is the plain mean: the query has no influence":
        {"weigh": lambda scores: torch.full_like(scores, 1 / scores.shape[1])},
    "takes only the token with the highest score, where the softmax takes a mixture":
        {"weigh": lambda scores: (scores == scores.amax(dim=1, keepdim=True)).to(scores)},
    "the scores are not divided by the square root of D": {"divide": lambda D: 1},
    "the scores are divided by D instead of its square root": {"divide": lambda D: D},
    "the scores are multiplied by the square root of D instead of divided":
        {"divide": lambda D: D**-0.5},
    "the softmax runs over all images at once, but it should run over the tokens of each image":
        {"weigh": lambda scores: scores.flatten().softmax(dim=0).view_as(scores)},
    "the weights do not sum to 1: divide the exponentials by their sum": {"weigh": torch.exp},
    "the query is compared with the tokens themselves: multiply them by w_k first":
        {"keys": lambda x, w_k: x},
    "averages the tokens themselves: multiply them by w_v first": {"values": lambda x, w_v: x},
}) | {
    "keys and values are swapped": lambda x, query, w_k, w_v: pooled(x, query, w_v, w_k),
    "w_k acts transposed: multiply the tokens by it from the right, x @ w_k":
        lambda x, query, w_k, w_v: pooled(x, query, w_k.T, w_v),
    "w_v acts transposed: multiply the tokens by it from the right, x @ w_v":
        lambda x, query, w_k, w_v: pooled(x, query, w_k, w_v.T),
    "divides by the square root of D after the softmax, but it belongs before":
        lambda x, query, w_k, w_v: (
            pooled(x, query, w_k, w_v, divide=lambda D: 1) / x.shape[2] ** 0.5
        ),
    "divides by the square root of the number of tokens instead of that of D":
        lambda x, query, w_k, w_v: pooled(x, query, w_k, w_v, divide=lambda D: x.shape[1] ** 0.5),
    "the values are made by w_k, too: use w_v":
        lambda x, query, w_k, w_v: pooled(x, query, w_k, w_k),
    "the keys are made by w_v, too: use w_k":
        lambda x, query, w_k, w_v: pooled(x, query, w_v, w_v),
    "that is self-attention and a mean, but there is only one query, which is given":
        lambda x, query, w_k, w_v: (
            F.scaled_dot_product_attention(x, x @ w_k, x @ w_v).mean(dim=1)
        ),
    "multiplies by the transposed matrices": lambda x, query, w_k, w_v: (
        pooled(x, query, w_k.T, w_v.T)
    ),
    "the values are averaged twice: the weights sum to 1 already, so only sum":
        lambda x, query, w_k, w_v: pooled(x, query, w_k, w_v) / x.shape[1],
    "the query is multiplied by w_k, too, but only the tokens are":
        lambda x, query, w_k, w_v: pooled(x, query @ w_k, w_k, w_v),
    "adds the query to the result, but it only asks": lambda x, query, w_k, w_v: (
        query + pooled(x, query, w_k, w_v)
    ),
}  # fmt: skip


def asked(B: int, T: int, D: int) -> Case:
    """Make the tokens of B images, a query, and two matrices."""
    return Case(lambda: (torch.randn(B, T, D), *(torch.randn(*s) for s in ((D,), (D, D), (D, D)))))


ATTENTION_POOL = Exercise(
    name="attention_pool",
    reference=pooled,
    ideas={
        "one vector (B, D) for each image": [asked(2, 5, 4)],
        "weights of one query, for other sizes too": [asked(3, 7, 6), asked(4, 4, 4)],
    },
    mistakes=POOL_MISTAKES,
)
check_attention_pool = ATTENTION_POOL.check


# The hidden width of a gated MLP

GATE_WIDTH_MISTAKES: dict[str, Function] = {
    "that is the MLP's own width, with which three matrices have half as many weights again": (
        lambda hidden: hidden
    ),
    "that is half, but three matrices instead of two leave two thirds": lambda hidden: hidden // 2,
    "that is three halves: with more matrices, each has to be smaller": lambda hidden: (
        3 * hidden // 2
    ),
    "that is a third, as if the MLP had one matrix": lambda hidden: hidden // 3,
    "rounded up, but then there are more weights than in the MLP: round down": lambda hidden: (
        -(-2 * hidden // 3)
    ),
    "rounded to the nearest number, but that may be more weights than in the MLP: round down": (
        lambda hidden: (2 * hidden + 1) // 3
    ),
    "a third is rounded down before it is doubled: double the width first": lambda hidden: (
        2 * (hidden // 3)
    ),
    "rounded down to a multiple of 8, which libraries do for speed; here, only round down": (
        lambda hidden: 2 * hidden // 3 // 8 * 8
    ),
}
GATE_WIDTH = Exercise(
    name="gate_width",
    reference=lambda hidden: 2 * hidden // 3,
    wording=Wording(
        when="for an MLP of hidden width {}".format,
        says="gives {got} for an MLP of hidden width {0}; it should give {right}: {message}",
        unknown=lambda got, right, hidden: (
            f"three matrices of this width have {3 * got:,} D weights, the MLP's two "
            f"have {2 * hidden:,} D"
        ),
        kind="a whole number",
        depends="the MLP's hidden width",
    ),
    ideas={
        "two thirds of the MLP's width, rounded down": [fixed(3072), fixed(1536), fixed(64)],
        "other widths": [fixed(n) for n in (256, 512, 2048, 7, 4096)],
    },
    mistakes=GATE_WIDTH_MISTAKES,
)
check_gate_width = GATE_WIDTH.check
