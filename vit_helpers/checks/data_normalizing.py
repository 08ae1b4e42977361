"""The normalizing of notebook 06: images by numbers of their channels.

The planted mistake is about whose numbers they are.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.data_mixing import partly
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Case, Contract, Exercise, Outcome, Wording
from vit_helpers.checks.engine.report import Function

# Normalizing

EPS = [
    0.0,
    *(10.0**-k for k in (12, 10, 9, 8, 7, 6, 5)),
]  # what may be added to a deviation, or to its square


def per(x: Tensor, numbers: Any, axis: int = 1) -> Tensor:
    """Return numbers as a tensor that runs along one axis of x."""
    return torch.as_tensor(numbers, dtype=x.dtype, device=x.device).view(
        [-1 if i == axis else 1 for i in range(x.ndim)]
    )


def right_normalize(x: Tensor, mean: Any, std: Any, axis: int = 1) -> Tensor:
    return (x - per(x, mean, axis)) / per(x, std, axis)


def along(axis: int) -> Function:
    """Make a wrong answer: the numbers run along another axis.

    They do where it is as long as they are many, and along C elsewhere.
    """
    return lambda x, m, s: right_normalize(x, m, s, axis if x.shape[axis] == len(m) else 1)


def formula(wrong: Function) -> Function:
    """Make a wrong answer: another formula of images, means and deviations."""
    return lambda x, m, s: wrong(x, per(x, m), per(x, s))


def own_numbers(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return (x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)


def line(got: Tensor, x: Tensor) -> tuple[float, float] | None:
    """Return the (mean, std) by which numbers were normalized, as (x - mean) / std.

    returns: None where it was done in another way
    """
    x, got = x.flatten().double(), got.flatten().double()
    slope = ((x - x.mean()) * (got - got.mean())).sum() / ((x - x.mean()) ** 2).sum()
    wrong = (got - got.mean() - slope * (x - x.mean())).abs().max()
    if slope.abs() < 1e-6 or not wrong < 1e-4:
        return None
    return (x.mean() - got.mean() / slope).item(), (1 / slope).item()


def as_line(
    got: Tensor, right: Tensor, x: Tensor, mean: Sequence[float], std: Sequence[float]
) -> str:
    """Say what was left out, or done with the first channel that is wrong, in numbers."""

    def written(mean: float, std: float, digits: int = 3) -> str:
        return f"(x - {mean:.{digits}g}) / {std:.{digits}g}".replace("- -", "+ ")

    c = next(c for c in range(x.shape[1]) if not same(got[:, c], right[:, c]))
    if message := partly(got, right, x):
        return message
    if numbers := line(got[:, c], x[:, c]):
        for digits in range(3, 18):
            formula, wanted = written(*numbers, digits), written(mean[c], std[c], digits)
            if formula != wanted:
                return f"channel {c} becomes {formula}; it should become {wanted}"
        return f"channel {c} becomes something else; it should become {written(mean[c], std[c])}"
    at = (got[:, c] - right[:, c]).abs().nan_to_num(9).argmax()
    pixel, result, wanted = (f"{t[:, c].flatten()[at].item():.3g}" for t in (x, got, right))
    return (
        f"a pixel of {pixel} in channel {c} becomes {result}; it should become "
        f"{written(mean[c], std[c])} = {wanted}"
    )


def images_of(*shape: int) -> Case:
    """Make images with numbers below 0 and above 1, and numbers for their channels."""
    numbers = {
        1: ((0.3,), (0.4,)),
        2: ((0.5, 0.25), (0.125, 0.75)),
        3: ((0.5, 0.4, 0.3), (0.2, 0.3, 0.25)),
    }
    return Case(lambda: (1.5 * torch.randn(shape), *numbers[shape[1]]))


NORMALIZE_MISTAKES: dict[str, Function] = {
    "nothing was changed": lambda x, m, s: x,
    "subtracts the mean, but doesn't divide by std": formula(lambda x, m, s: x - m),
    "divides by std, but doesn't subtract the mean": formula(lambda x, m, s: x / s),
    "multiplies by std instead of dividing by it": formula(lambda x, m, s: (x - m) * s),
    "adds the mean instead of subtracting it": formula(lambda x, m, s: (x + m) / s),
    "divides only the mean by std; put x - mean in parentheses":
        formula(lambda x, m, s: x - m / s),
    "divides first and then subtracts the mean; do it the other way round":
        formula(lambda x, m, s: x / s - m),
    "divides by the square of std": formula(lambda x, m, s: (x - m) / s**2),
    "divides by the square root of std, but std is a standard deviation":
        formula(lambda x, m, s: (x - m) / s**0.5),
    "mean and std are swapped": formula(lambda x, m, s: (x - s) / m),
    "inverts the normalization, x * std + mean; here you need (x - mean) / std":
        formula(lambda x, m, s: x * s + m),
    "mean and std run along W, but belong to axis 1: view(-1, 1, 1)": along(3),
    "mean and std run along H, but belong to axis 1: view(-1, 1, 1)": along(2),
    "mean and std run along the batch, but belong to axis 1": along(0),
    "every channel gets the first channel's mean and std": lambda x, m, s: (x - m[0]) / s[0],
    "every channel gets the average mean and std, but each has its own":
        lambda x, m, s: (x - sum(m) / len(m)) / (sum(s) / len(s)),
    "computes mean and std from these images; use those that are passed in":
        lambda x, m, s: own_numbers(x, (0, 2, 3)),
    "normalizes each image by itself; use the mean and std that are passed in":
        lambda x, m, s: own_numbers(x, (1, 2, 3)),
    "normalizes each channel of each image by itself; use the mean and std passed in":
        lambda x, m, s: own_numbers(x, (2, 3)),
    "computes the standard deviation from these images; use the std that is passed in":
        formula(lambda x, m, s: (x - m) / x.std((0, 2, 3), keepdim=True)),
    "computes the mean from these images; use the one that is passed in":
        formula(lambda x, m, s: (x - x.mean((0, 2, 3), keepdim=True)) / s),
    "computes one mean and standard deviation of all pixels; "
    "use the C numbers that are passed in":
        lambda x, m, s: (x - x.mean()) / x.std(),
    "rescales to 0 .. 1 by the smallest and the largest pixel: use mean and std":
        lambda x, m, s: (x - x.min()) / (x.max() - x.min()),
    "scales the channels of each pixel to a vector of length 1, "
    "as F.normalize does: use mean and std":
        lambda x, m, s: F.normalize(x),
    "divides by 255 first, but the pixels are already from 0 to 1":
        formula(lambda x, m, s: (x / 255 - m) / s),
    "computes mean - x instead of x - mean": formula(lambda x, m, s: (m - x) / s),
    "mean and std are in the wrong order: channel 0 gets the last ones":
        lambda x, m, s: right_normalize(x, m[::-1], s[::-1]),
    "every channel gets the first mean, but each has its own":
        lambda x, m, s: (x - m[0]) / per(x, s),
    "every channel gets the first std, but each has its own":
        lambda x, m, s: (x - per(x, m)) / s[0],
    "divides twice": formula(lambda x, m, s: (x / s - m) / s),
    "the result is rounded to whole numbers": formula(lambda x, m, s: ((x - m) / s).round()),
    "values below 0 are lost, but about half of the values belong there":
        formula(lambda x, m, s: ((x - m) / s).clamp(min=0)),
    "the result stays between -1 and 1: was it clamped? The values may be larger":
        formula(lambda x, m, s: ((x - m) / s).clamp(-1, 1)),
    "moves axes with reshape, which mixes the pixels; use permute or movedim":
        lambda x, m, s: right_normalize(x.movedim(1, -1), m, s, 3).reshape(x.shape),
    "the result stays between 0 and 1: was it clamped? Half of the values belong below 0":
        formula(lambda x, m, s: ((x - m) / s).clamp(0, 1)),
}  # fmt: skip
NORMALIZE = Exercise(
    name="normalize",
    reference=right_normalize,
    outcome=Outcome(
        also=[
            partial(lambda change, x, m, s: right_normalize(x, m, [change(v) for v in s]), change)
            for eps in EPS
            for change in (lambda v, eps=eps: v + eps, lambda v, eps=eps: (v * v + eps) ** 0.5)
        ],
    ),
    wording=Wording(
        when=lambda x, m, s: f"for images of shape {tuple(x.shape)}",
        says="{when}: {message}",
        unknown=as_line,
        hints={
            "must match the size of tensor": "C numbers alone line up with the last axis, W; "
            "with the shape (C, 1, 1) they line up with the channels",
            "'Tensor' and 'tuple'": "Make a tensor of the numbers first: images.new_tensor(mean)",
        },
    ),
    contract=Contract(differentiable=False),
    ideas={
        "correct for color, gray and other numbers of channels": [
            images_of(4, 3, 5, 7),
            images_of(2, 1, 8, 6),
            images_of(1, 2, 1, 9),
            images_of(4, 3, 7, 5),
        ],
        "correct where B, C, H and W are equal": [images_of(3, 3, 3, 3), images_of(2, 2, 2, 2)],
        "keeps the dtype, and leaves its input unchanged": [expect_contract],
    },
    mistakes=NORMALIZE_MISTAKES,
)
check_normalize = NORMALIZE.check


# The planted mistake

mean_of, std_of = (partial(f, dim=(0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
SOURCES: Mapping[str, Function] = {  # the images that a mean and a deviation may come from
    "the training split's": lambda a, b: a,
    "the test split's": lambda a, b: b,
    "both splits'": lambda a, b: torch.cat([a, b]),
    "that of all channels together": lambda a, b: a.flatten(0, 1)[:, None],
    "the first image's": lambda a, b: a[:1],
}
TRAIN, TEST, BOTH, *_ = SOURCES.values()


def prepared(mean: Function = TRAIN, std: Function = TRAIN, spread: Function = std_of) -> Function:
    """Make an answer: both splits normalized by the mean and the deviation of some images."""
    return lambda a, b: tuple((x - mean_of(mean(a, b))) / spread(std(a, b)) for x in (a, b))


def parts_by(first: Function, second: Function) -> Function:
    """Make an answer: each part normalized by the numbers of some images."""
    return lambda a, b: (prepared(first, first)(a, b)[0], prepared(second, second)(a, b)[1])


OF_TRAINING = (
    "both splits get (x - mean) / std, with the training split's mean and std of each channel"
)


def sources(part: int, got: Tensor, right: Tensor, a: Tensor, b: Tensor) -> str:
    """Say whose mean and deviation a part was normalized by, in words."""
    x, name, more = (a, b)[part], ("training", "test")[part], "the average of the two splits'"
    lines = [line(got[:, c], x[:, c]) for c in range(x.shape[1])]
    if not all(lines):
        return (
            f"the {name} split is not (x - mean) / std with one mean and std "
            f"per channel; {OF_TRAINING}"
        )
    mean, std = (
        {message: f(source(a, b)) for message, source in SOURCES.items()} for f in (mean_of, std_of)
    )
    mean |= {f"{more} means": (mean_of(a) + mean_of(b)) / 2, "0": torch.zeros(1)}
    std |= {f"{more} deviations": (std_of(a) + std_of(b)) / 2, "1": torch.ones(1)}
    std["the square of the training split's, its variance"] = std_of(a) ** 2
    named = []
    for numbers, known in zip(zip(*lines, strict=True), (mean, std), strict=True):
        channels = torch.tensor(numbers)
        for message, values in known.items():
            if torch.allclose(values.flatten().float(), channels, atol=1e-3):
                named.append(message)
                break
        else:
            named.append(f"another number ({channels[0]:.3g} in channel 0)")
    return (
        f"the {name} split is normalized, but the mean is {named[0]}, "
        f"and std is {named[1]}; {OF_TRAINING}"
    )


def two_parts(C: int, H: int, W: int) -> Case:
    """Make training and test images whose means and deviations differ."""
    shift = torch.linspace(0.5, 1, C).view(C, 1, 1)
    return Case(
        lambda: (shift * (torch.randn(9, C, H, W) + 0.5), torch.randn(4, C, H, W) + 2 * shift)
    )


FIX_MISTAKES: dict[str, Function] = {
    "still the planted mistake: the test images influence the mean and the standard deviation":
        prepared(BOTH, BOTH),
    "the test split is normalized by its own mean and std, "
    "but should get those of the training split":
        parts_by(TRAIN, TEST),
    "both splits get the mean and std of the test split": prepared(TEST, TEST),
    "the test split still gets the mean and std of both splits": parts_by(TRAIN, BOTH),
    "the training split still gets the mean and std of both splits": parts_by(BOTH, TRAIN),
    "the test split is not normalized": lambda a, b: (prepared()(a, b)[0], b),
    f"the training split comes back as it was; {OF_TRAINING}":
        lambda a, b: (a, prepared()(a, b)[1]),
    "nothing is normalized": lambda a, b: (a, b),
    "all channels get one mean and std, but each channel has its own":
        lambda a, b: tuple((x - a.mean()) / a.std() for x in (a, b)),
    "every image is normalized by itself":
        lambda a, b: (own_numbers(a, (2, 3)), own_numbers(b, (2, 3))),
    "every image is normalized by itself, all channels together":
        lambda a, b: (own_numbers(a, (1, 2, 3)), own_numbers(b, (1, 2, 3))),
    "the mean is the training split's, but the standard deviation is still that of both splits":
        prepared(TRAIN, BOTH),
    "the standard deviation is the training split's, but the mean is still that of both splits":
        prepared(BOTH, TRAIN),
    "averages over the batch only: average over the pixels too, dim=(0, 2, 3)":
        lambda a, b: tuple((x - a.mean(0)) / a.std(0) for x in (a, b)),
}  # fmt: skip
FIX = Exercise(
    name="fixed",
    reference=prepared(),
    outcome=Outcome(
        also=[  # a deviation by n - 1, n or 2n - 1, and a small number beside it or its square
            prepared(
                std=lambda a, b, twice=twice: torch.cat([a] * twice),
                spread=partial(spread, eps=eps, less=less),
            )
            for twice, less in ((1, 1), (1, 0), (2, 1))
            for eps in EPS
            for spread in (
                lambda x, eps, less: x.std((0, 2, 3), keepdim=True, correction=less) + eps,
                lambda x, eps, less: (x.var((0, 2, 3), keepdim=True, correction=less) + eps) ** 0.5,
            )
        ],
        returns=("training split", "test split"),
    ),
    wording=Wording(
        when=lambda a, b: f"for training images of shape {tuple(a.shape)}",
        says="{message}",
        unknown={"training split": partial(sources, 0), "test split": partial(sources, 1)},
        hints={
            "must match the size of tensor": "With keepdim=True mean and std keep the shape "
            "(1, C, 1, 1), which lines up with the channels"
        },
    ),
    contract=Contract(differentiable=False),
    ideas={
        "the numbers come from the training split alone, for both splits": [
            two_parts(*size) for size in ((3, 4, 5), (1, 6, 3), (3, 3, 3), (3, 5, 4))
        ],
        "keeps float64, and leaves its inputs unchanged": [expect_contract],
    },
    mistakes=FIX_MISTAKES,
)
check_fixed = FIX.check
