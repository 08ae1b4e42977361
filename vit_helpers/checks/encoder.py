"""The exercises of notebook 04: layer norm and the count.

The MLP is in feed_forward.py, the block in block.py.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.block import BLOCK
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Contract, Exercise, Wording, fixed
from vit_helpers.checks.engine.report import Function, variants
from vit_helpers.checks.feed_forward import FEED_FORWARD

# Layer norm


def normed(
    x: Tensor,
    w: Tensor,
    b: Tensor,
    eps: float = 1e-6,
    *,
    axes: Callable[[int], Any] = lambda n: -1,
    correction: int = 0,
    eps_of: Callable[[float], float] = lambda eps: eps,
    divide: Callable[..., Tensor] = lambda x, c, v, eps: c / (v + eps).sqrt(),
    affine: Callable[..., Tensor] = lambda y, w, b: y * w + b,
) -> Tensor:
    """Compute layer norm.

    A mistake is another choice of axes, or another way to make y of x, x - mean, variance and eps.
    """
    axis = axes(x.ndim)
    c = x - x.mean(axis, keepdim=True)
    squares = c.square().sum(axis, keepdim=True)
    # of one number and with a correction it is 0 / 0, as x.var gives it with a warning
    v = squares / (x.numel() // squares.numel() - correction)
    return affine(divide(x, c, v, eps_of(eps)), w, b)


def outside(x: Tensor, c: Tensor, v: Tensor, eps: float) -> Tensor:
    return c / (v.sqrt() + eps)


def unused(y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return y


NORMS = variants(normed, {
    "takes mean and variance over the tokens, but each token has its own, over the last axis":
        {"axes": lambda n: -2},
    "takes mean and variance over axis 1, the tokens of a batch, but each token has its own, "
    "over the last axis": {"axes": lambda n: 1},
    "takes mean and variance over the batch, as batch norm does, "
    "but each token has its own, over the last axis":
        {"axes": lambda n: 0},
    "takes mean and variance over batch and tokens, as batch norm does, "
    "but each token has its own, over the last axis":
        {"axes": lambda n: tuple(range(n - 1))},
    "takes one mean and variance for a whole image, but each token has its own, over the last axis":
        {"axes": lambda n: tuple(range(1, n)) if n > 2 else (0, 1)},
    "takes one mean and variance for the last two axes, but each token has its own, "
    "over the last axis": {"axes": lambda n: (-2, -1)},
    "takes one mean and variance for all numbers at once, "
    "but each token has its own, over the last axis":
        {"axes": lambda n: tuple(range(n))},
    "divides by D - 1 in the variance, but layer norm divides by D: "
    "use unbiased=False or correction=0": {"correction": 1},
    "divides by D - 1 in the variance, and eps is outside the square root":
        {"correction": 1, "divide": outside},
    "divides by D - 1 in the variance (use unbiased=False or correction=0), and there is no eps":
        {"correction": 1, "eps_of": lambda eps: 0.0},
    "eps is outside the square root, but it must be added to the variance, inside":
        {"divide": outside},
    "eps is squared; add it to the variance as it is": {"eps_of": lambda eps: eps**2},
    "eps is missing or far too small; add it to the variance as it is, "
    "1e-6 unless another value is given":
        {"eps_of": lambda eps: 1e-20},
    "eps is always 1e-6 instead of the one that is given": {"eps_of": lambda eps: 1e-6},
    "there is no eps: a token whose numbers are all equal has variance 0, "
    "and 0 / 0 is NaN. Add eps inside the root":
        {"eps_of": lambda eps: 0.0},
    "eps is 1e-5, torch's own default; use the one that was given": {"eps_of": lambda eps: 1e-5},
    "divides by the variance instead of its square root":
        {"divide": lambda x, c, v, eps: c / (v + eps)},
    "the mean is not subtracted": {"divide": lambda x, c, v, eps: x / (v + eps).sqrt()},
    "the mean is not subtracted, and only the mean square is divided out (that is RMSNorm)":
        {"divide": lambda x, c, v, eps: x / (x.square().mean(-1, keepdim=True) + eps).sqrt()},
    "only the mean is subtracted; divide by the square root of the variance too":
        {"divide": lambda x, c, v, eps: c},
    "multiplies by the square root of the variance instead of dividing by it":
        {"divide": lambda x, c, v, eps: c * (v + eps).sqrt()},
    "scale and shift are missing: weight and bias are not used": {"affine": unused},
    "weight and bias are not used, and eps is 1e-5, torch's own default":
        {"affine": unused, "eps_of": lambda eps: 1e-5},
    "the shift is missing: bias is not used": {"affine": lambda y, w, b: y * w},
    "the scale is missing: weight is not used": {"affine": lambda y, w, b: y + b},
    "scale and shift are swapped: multiply by weight, add bias":
        {"affine": lambda y, w, b: y * b + w},
    "shifts before it scales, but it should multiply by weight first and then add bias":
        {"affine": lambda y, w, b: (y + b) * w},
    "the bias is subtracted instead of added": {"affine": lambda y, w, b: y * w - b},
    "scales by 1 + weight, but the weight is the whole scale":
        {"affine": lambda y, w, b: y * (1 + w) + b},
    "divides by a length, the square root of a sum, but the variance is a mean":
        {"divide": lambda x, c, v, eps: c / c.square().sum(-1, keepdim=True).sqrt()},
    "takes one variance for all numbers instead of one for each token":
        {"divide": lambda x, c, v, eps: c / (x.var(correction=0) + eps).sqrt()},
    "takes one mean for all numbers instead of one for each token":
        {"divide": lambda x, c, v, eps: (x - x.mean()) / (v + eps).sqrt()},
    "subtracts x from the mean instead of the mean from x": {"affine": lambda y, w, b: b - y * w},
    "divides by weight instead of multiplying by it": {"affine": lambda y, w, b: y / w + b},
    "returns x unchanged": {"divide": lambda x, c, v, eps: x, "affine": unused},
}) | {
    f"eps is {default} where none is given, but its default should be 1e-6":
        lambda x, w, b, eps=float(default): normed(x, w, b, eps)
    for default in ("1e-3", "1e-4", "1e-5", "1e-8", "1e-12")
} | {
    "parentheses are missing around x - mean":
        lambda x, w, b, eps=1e-6:
            x - x.mean(-1, True) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt() * w + b,
}  # fmt: skip


def tokens(*shape: int, size: float = 1.0, eps: tuple[float, ...] = (), when: str = "") -> Case:
    """Make tokens of different size and mean, a weight and a bias."""

    def draw() -> Arguments:
        sizes = torch.linspace(0.5, 2, math.prod(shape[:-1])).reshape(*shape[:-1], 1)
        x = size * (sizes * torch.randn(shape) + 0.5 * sizes)
        return x, torch.randn(shape[-1]) + 2, torch.randn(shape[-1]), *eps

    return Case(draw, when)


LAYER_NORM = Exercise(
    name="layer_norm",
    reference=normed,
    wording=Wording(
        says="{when}: {message}",
        unknown="the shape is right, but the numbers are not: (x - mean) / sqrt(variance + eps)",
        hints={
            "must match the size": "Compare the shapes: mean and variance are (..., 1) with "
            "keepdim=True, and weight and bias, (D,), work number by number",
            "Dimension out of range": "Count the axis of the features from the end: dim=-1",
            "normalized_shape": "The norm is over the last axis alone, so its shape is (D,)",
        },
    ),
    contract=Contract(case=tokens(2, 5, 6)),
    ideas={
        "one image: each token has its own mean and variance, then scale and shift": [
            tokens(5, 4, when="for one image of 5 tokens, D = 4")
        ],
        "a batch, with any axes in front": [
            tokens(*shape) for shape in ((2, 5, 4), (4, 4, 4), (3, 2, 5, 6), (5, 2, 4))
        ],
        "eps is inside the square root, 1e-6 unless another is given, and there is no NaN": [
            tokens(3, 5, 8, size=0.0, when="for tokens times 0"),
            tokens(3, 5, 8, size=1e-3, when="for tokens times 0.001"),
            tokens(2, 5, 8, eps=(0.5,), when="for eps = 0.5"),
            tokens(2, 5, 8, size=1e-3, eps=(1e-3,), when="for small tokens and eps = 0.001"),
        ],
        # with D = 1 the result is the bias; small numbers, because 1 / sqrt(eps) makes the
        # rounding 1000 times as large
        "one token, D = 1, no batch axis, float64": [
            tokens(1, 1, 6),
            tokens(3, 1, size=0.01),
            tokens(7),
            tokens(1, 17, 64),
        ],
        "gradients flow to x, weight and bias": [expect_contract],
    },
    mistakes=NORMS,
)
check_layer_norm = LAYER_NORM.check


# The MLP, the block and the planted mistake

FIX = BLOCK.renamed("fix", list(BLOCK.ideas))
check_mlp, check_block, check_fix = FEED_FORWARD.check, BLOCK.check, FIX.check

# The count


def count(parts: Callable[[float], tuple[float, float]], D: int, r: float = 4) -> float:
    """Return the number of parameters, as squares of the width plus widths, both from mlp_ratio."""
    squares, widths = parts(r)
    return squares * D * D + widths * D


def fixed_ratio(parts: Callable[[float], tuple[float, float]], D: int, r: float = 4) -> float:
    """Count parameters as if mlp_ratio were always 4."""
    return count(parts, D)


BLOCK_PARAMETERS_MISTAKES: dict[str, Function] = (
    {message: partial(count, parts) for message, parts in {
        "that is right only for mlp_ratio = 4: use the one that is given": lambda r: (12, 13),
        "the MLP's first bias has mlp_ratio * D numbers": lambda r: (4 + 2 * r, 13),
        "the MLP's weights are 2 * mlp_ratio * D * D": lambda r: (12, 9 + r),
        "both weights of the MLP grow with mlp_ratio": lambda r: (8 + r, 9 + r),
        "the MLP's weights are (D, hidden) and (hidden, D)": lambda r: (4 + 2 * r * r, 9 + r),
        "the biases and the norms are missing": lambda r: (4 + 2 * r, 0),
        "the norms are missing, 2 D each, or the biases of attention, 4 D":
            lambda r: (4 + 2 * r, 5 + r),
        "2 D are missing: a block has two norms, each with a scale and a shift, 2 D":
            lambda r: (4 + 2 * r, 7 + r),
        "that is one norm too many: a block has two": lambda r: (4 + 2 * r, 11 + r),
        "the biases of all Linears are missing": lambda r: (4 + 2 * r, 4),
        "the MLP's biases are missing: hidden width and D": lambda r: (4 + 2 * r, 8),
        "D are missing, as many as in one bias: attention has four of them, the MLP's output one":
            lambda r: (4 + 2 * r, 8 + r),
        "the bias of the MLP's first layer is missing": lambda r: (4 + 2 * r, 9),
        "3 D are missing, as many as the biases of queries, keys and values":
            lambda r: (4 + 2 * r, 6 + r),
        "the output projection of attention is missing": lambda r: (3 + 2 * r, 8 + r),
        "the MLP has two layers, of D * hidden weights each": lambda r: (4 + r, 9 + r),
        "that is attention alone": lambda r: (4, 4),
        "that is the MLP alone": lambda r: (2 * r, 1 + r),
        "the MLP is missing": lambda r: (4, 8),
        "attention is missing": lambda r: (2 * r, 5 + r),
    }.items()}
    | {
        f"{message}; and mlp_ratio is not used": partial(fixed_ratio, parts)
        for message, parts in {
            "the biases and the norms are missing": lambda r: (4 + 2 * r, 0),
            "the norms are missing": lambda r: (4 + 2 * r, 5 + r),
            "a norm is missing: a block has two": lambda r: (4 + 2 * r, 7 + r),
            "that is one norm too many": lambda r: (4 + 2 * r, 11 + r),
        }.items()
    }
    | {
        "in Python a square is D**2, while ^ means something else":
            lambda D, r=4: round((4 + 2 * r) * D) ^ round(2 + (9 + r) * D),
        "in Python a square is D**2, while ^ means something else; and mlp_ratio is not used":
            lambda D, r=4: 12 * D ^ (2 + 13 * D),
    }
)  # fmt: skip
BLOCK_PARAMETERS = Exercise(
    name="block_parameters",
    reference=partial(count, lambda r: (4 + 2 * r, 9 + r)),
    wording=Wording(
        when=lambda D, *ratio: f"for D = {D}" + "".join(f" and mlp_ratio {r}" for r in ratio),
        says="gives {got:,} {when}, it should give {right:,}: {message}",
        kind="a whole number",
        unknown="add up the weights and biases of each layer",
        depends="D and mlp_ratio",
    ),
    ideas={
        "any width D, including the 768 of B/16": [fixed(D) for D in (100, 768, 1024, 1, 2, 7)],
        "other MLP widths": [
            fixed(*sizes) for sizes in ((8, 4), (8, 2), (64, 1), (768, 3), (10, 8), (16, 2.5))
        ],
    },
    mistakes=BLOCK_PARAMETERS_MISTAKES,
)
check_block_parameters = BLOCK_PARAMETERS.check
