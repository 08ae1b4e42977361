"""The exercises of notebook 06."""

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.compare import bounded, same
from vit_helpers.checks.contract import Raises, contract
from vit_helpers.checks.data_mixing import CUTMIX, MIX, check_cutmix, check_mixup, partly  # noqa: F401
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.report import Mistake, reject_if, short
from vit_helpers.checks.traces import ask, generators_restored, restored

# Dividing

GENERATORS: dict[str, tuple[Callable, Callable]] = {  # how a global generator is started, and asked for a number
    "torch's": (torch.manual_seed, lambda: torch.rand(()).item()),
    "Python's": (random.seed, random.random),
    "numpy's": (np.random.seed, np.random.rand),
}
SPLITS = [(20, (5, 3, 12), 0), (100, [50, 50], 7), (9, (9,), 1), (7, (0, 6, 1), 2), (1797, (360, 180, 1257), 0)]


def what(got: Any) -> str:
    """What came, in a few words without an address."""
    text = short(got)
    return f"a {type(got).__name__}" if isinstance(got, Mapping) or " at 0x" in text else text


def as_parts(got: Any, sizes: tuple | list, when: str) -> list[Tensor]:
    """The parts that an answer gave, as tensors of whole numbers; Mistake where there are none, or another number."""
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    bag = isinstance(got, (Mapping, str)) or not isinstance(got, Iterable) or (isinstance(got, Tensor) and got.ndim == 1)
    reject_if(bag, f"gives {what(got)} {when}; it should give a list of parts")
    inner = len(got) == 1 and isinstance(got[0], (tuple, list)) and len(sizes) > 1 and len(got[0]) == len(sizes)
    reject_if(inner, f"gives the list of parts inside another list {when}; take the outer brackets away")
    flat = len(got) == sum(sizes) != len(sizes) and not any(isinstance(x, Iterable) for x in got)
    reject_if(flat, f"gives all rows in one list {when}; cut it into a list of parts")
    more = "more" if len(got) > len(sizes) else len(got)
    reject_if(len(got) != len(sizes), f"gives {more} parts {when}; there are {len(sizes)} sizes")
    return [as_rows(part, when) for part in got]


def as_rows(part: Any, when: str) -> Tensor:
    """A part that an answer gave, as a tensor of whole numbers."""
    subset = isinstance(part, torch.utils.data.Subset)
    way_out = "; its .indices are row numbers" if subset else ""
    words = f"gives {what(part)} as a part {when}; a part is a tensor of row numbers{way_out}"
    reject_if(subset or isinstance(part, (str, Mapping)) or not isinstance(part, Iterable), words)
    try:
        part = torch.as_tensor(part if hasattr(part, "dtype") else list(part))
    except (TypeError, ValueError) as error:
        raise Mistake(words) from error
    part = part if part.numel() else part.long()
    reject_if(part.ndim != 1, f"gives a part of shape {tuple(part.shape)} {when}; it should be a row of numbers")
    masks = f"gives a mask of True and False {when}; it should give row numbers. nonzero() makes them of a mask"
    reject_if(part.dtype == torch.bool, masks)
    reject_if(part.is_floating_point(), f"gives row numbers as {part.dtype} {when}; they should be whole")
    return part.cpu().long()


def divide(answer: Callable, n: int, sizes: tuple | list, seed: int) -> list[Tensor]:
    """The parts that an answer makes; the global generators are put back, whatever it did with them."""
    given = type(sizes)(sizes)
    with generators_restored():
        got = bounded(answer(n, given, seed))
    reject_if(given != sizes, "changes the list of sizes that it is given; make a new one")
    return as_parts(got, sizes, f"for n = {n}, sizes {list(sizes)}, seed {seed}")


def complete(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless every row is in exactly one part."""
    for n, sizes, seed in SPLITS:
        rows = torch.cat(ask(partial(divide, answer), n, sizes, seed))
        reject_if(bool((rows < 0).any()), f"gives row {rows.min()} for n = {n}; rows are counted from 0")
        reject_if(bool((rows >= n).any()), f"gives row {rows.max()} for n = {n}; the last row is n - 1")
        twice = n - rows.unique().numel()
        overlap = "parts overlap: draw one order of all n rows, and cut it"
        reject_if(twice, f"{twice} of {n} rows are in no part, others twice; {overlap}")


def at_random(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless a seed gives one division, and the divisions of 100 seeds look drawn at random."""
    n, sizes = 60, (20, 40)
    parts = partial(ask, partial(divide, answer), n, sizes)

    def steady(seed: int) -> bool:
        return all(map(torch.equal, parts(seed), parts(seed)))

    first, order = (
        {*parts(3)[0].tolist()},
        "divides the rows in their order; shuffle first: files are often stored class by ",
    )
    reject_if(first in ({*range(20)}, {*range(40, 60)}), order + "class")
    words = "gives other parts when called again with the same seed; is the generator started from it?"
    reject_if(not steady(3), words)
    words = "gives other parts when called again with seed 0; 0 is a seed like any other, though `if seed` says no"
    reject_if(not steady(0), words)
    chosen = torch.zeros(100, n)  # of each seed, 1 where a row is in the first part
    for seed in range(100):
        chosen[seed, parts(seed)[0]] = 1
    several = chosen.unique(dim=0).shape[0]
    reject_if(several == 1, "gives the same parts for every seed: is the seed used?")
    reject_if(several < 20, f"gives {several} different divisions for 100 seeds; each seed has its own")
    often = chosen.sum(0)
    row, never = int(often.argmax()), int((often == 0).sum())
    reject_if(never, f"{never} of {n} rows are never in the first part, whatever the seed; shuffle all rows")
    words = f"row {row} is in the first part for {often[row]:.0f} of 100 seeds, by chance 33 are expected; shuffle all rows"
    reject_if(often[row] > 70, words)
    for apart in range(1, n // 2):
        together = (chosen == chosen.roll(apart, 1)).float().mean()  # by chance 0.55, give or take 0.01
        words = f"rows {apart} apart land in the same part in {together:.0%} of all cases, by chance 55% are expected"
        reject_if(abs(together - 0.55) > 0.1, f"{words}; every order of the rows should be possible, as with torch.randperm")
    reject_if(several < 90, f"gives {several} different divisions for 100 seeds; each seed has its own")


def own_generator(*given: Any, words: str) -> Callable:
    """Mistake when an answer, called with these arguments, draws from a global generator, or starts one."""

    def trial(exercise: Exercise, answer: Callable) -> None:
        for name, (start, draw) in GENERATORS.items():
            with restored():
                start(99)
                untouched = draw()
                start(99)
                bounded(answer(*given))
                moved = f"moves {name} global generator: {words}. Make one of your own, torch.Generator().manual_seed(seed)"
                reject_if(draw() != untouched, moved)

    return trial


def no_sum(got: str, n: int, sizes: tuple, seed: int) -> str:
    """What to say to an answer that divides although the sizes do not sum to n."""
    if "Error(" in got:
        return f"gives {got} back for n = {n}, sizes {sizes}; an error is raised: raise, not return"
    return f"gives {got} for n = {n}, sizes {sizes}, which sum to {sum(sizes)}; raise ValueError"


def parts_of(n: int, sizes: tuple | list, seed: int, end: Callable = lambda begin, size: begin + size) -> list[Tensor]:
    """A right division; a wrong one, where a part ends somewhere else."""
    if sum(sizes) != n:
        raise ValueError(f"sizes {sizes} do not sum to {n}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [order[sum(sizes[:i]) : end(sum(sizes[:i]), size)] for i, size in enumerate(sizes)]


SPLIT = Exercise(
    name="split",
    reference=parts_of,
    observe=lambda answer, *given: {"": [len(part) for part in divide(answer, *given)]},
    when=lambda n, sizes, seed: f"for n = {n}, sizes {sizes}",
    says="gives parts of {got} rows for the sizes {1}: {words}",
    unknown="the first part has sizes[0] rows, the next one sizes[1], and so on",
    ideas={
        "as many parts as sizes, each of its size": [Case(partial(tuple, given)) for given in SPLITS],
        "every row is in exactly one part": [complete],
        "rows are divided at random, the same for the same seed": [at_random],
        "the generator is its own: no other seed moves the parts, and none is moved":
            [own_generator(50, (20, 30), 5, words="whoever draws next gets other numbers")],
        "raises ValueError where the sizes do not sum to n":
            [Raises([(10, sizes, 0) for sizes in ((5, 4), (5, 6), (11,))], no_sum)],
    },
    mistakes={
        "a part that begins at row a ends at a + size, not at size": partial(parts_of, end=lambda begin, size: size)
    },
)  # fmt: skip
check_split = SPLIT.check


# Normalizing

EPS = [0.0, *(10.0**-k for k in (12, 10, 9, 8, 7, 6, 5))]  # what may be added to a deviation, or to its square


def per(x: Tensor, numbers: Any, axis: int = 1) -> Tensor:
    """Numbers as a tensor that runs along one axis of x."""
    return torch.as_tensor(numbers, dtype=x.dtype, device=x.device).view([-1 if i == axis else 1 for i in range(x.ndim)])


def right_normalize(x: Tensor, mean: Any, std: Any, axis: int = 1) -> Tensor:
    return (x - per(x, mean, axis)) / per(x, std, axis)


def along(axis: int) -> Callable:
    """A wrong answer: the numbers run along another axis where it is as long as they are many, and along C elsewhere."""
    return lambda x, m, s: right_normalize(x, m, s, axis if x.shape[axis] == len(m) else 1)


def formula(wrong: Callable) -> Callable:
    """A wrong answer: another formula of images, means and deviations that run along the channels."""
    return lambda x, m, s: wrong(x, per(x, m), per(x, s))


def own_numbers(x: Tensor, axes: tuple) -> Tensor:
    return (x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)


def line(got: Tensor, x: Tensor) -> tuple[float, float] | None:
    """The (mean, std) by which numbers were normalized, as (x - mean) / std; None where it was done in another way."""
    x, got = x.flatten().double(), got.flatten().double()
    slope = ((x - x.mean()) * (got - got.mean())).sum() / ((x - x.mean()) ** 2).sum()
    wrong = (got - got.mean() - slope * (x - x.mean())).abs().max()
    if slope.abs() < 1e-6 or not wrong < 1e-4:
        return None
    return (x.mean() - got.mean() / slope).item(), (1 / slope).item()


def as_line(got: Tensor, right: Tensor, x: Tensor, mean: tuple, std: tuple) -> str:
    """What was left out, or done with the first channel that is wrong, in numbers."""

    def written(mean: float, std: float) -> str:
        return f"(x - {mean:.3g}) / {std:.3g}".replace("- -", "+ ")

    c = next(c for c in range(x.shape[1]) if not same(got[:, c], right[:, c]))
    should = f"it should become {written(mean[c], std[c])}"
    if words := partly(got, right, x):
        return words
    if found := line(got[:, c], x[:, c]):
        return f"channel {c} becomes {written(*found)}; {should}"
    at = (got[:, c] - right[:, c]).abs().nan_to_num(9).argmax()
    one, mine, wanted = (t[:, c].flatten()[at].item() for t in (x, got, right))
    return f"a pixel of {one:.3g} in channel {c} becomes {mine:.3g}; {should} = {wanted:.3g}"


def images_of(*shape: int) -> Case:
    """Images with numbers below 0 and above 1, and numbers for their channels."""
    numbers = {1: ((0.3,), (0.4,)), 2: ((0.5, 0.25), (0.125, 0.75)), 3: ((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))}
    return Case(lambda: (1.5 * torch.randn(shape), *numbers[shape[1]]))


NORMALIZE = Exercise(
    name="normalize",
    reference=right_normalize,
    also=[
        partial(lambda change, x, m, s: right_normalize(x, m, [change(v) for v in s]), change)
        for eps in EPS
        for change in (lambda v, eps=eps: v + eps, lambda v, eps=eps: (v * v + eps) ** 0.5)
    ],
    when=lambda x, m, s: f"for images of shape {tuple(x.shape)}",
    says="{when}: {words}",
    unknown=as_line,
    differentiable=False,
    hints={
        "must match the size of tensor":
            "C numbers alone line up with the last axis, W; with the shape (C, 1, 1) they line up with the channels",
        "'Tensor' and 'tuple'": "Make a tensor of the numbers first: images.new_tensor(mean)",
    },
    ideas={
        "right for colour, grey and other numbers of channels":
            [images_of(4, 3, 5, 7), images_of(2, 1, 8, 6), images_of(1, 2, 1, 9), images_of(4, 3, 7, 5)],
        "right where B, C, H and W are equal": [images_of(3, 3, 3, 3), images_of(2, 2, 2, 2)],
        "keeps the type of the numbers, and its input as it was": [contract],
    },
    mistakes={
        "nothing was changed": lambda x, m, s: x,
        "the mean is taken away, but nothing is divided": formula(lambda x, m, s: x - m),
        "divided, but the mean is not taken away": formula(lambda x, m, s: x / s),
        "multiplies by std; it divides": formula(lambda x, m, s: (x - m) * s),
        "adds the mean; it is taken away": formula(lambda x, m, s: (x + m) / s),
        "divides first; take the mean away first: brackets": formula(lambda x, m, s: x - m / s),
        "divides, then takes the mean away; the other way round": formula(lambda x, m, s: x / s - m),
        "divides by the square of std": formula(lambda x, m, s: (x - m) / s**2),
        "divides by the root of std; std is a standard deviation, not a variance": formula(lambda x, m, s: (x - m) / s**0.5),
        "mean and std have changed places": formula(lambda x, m, s: (x - s) / m),
        "undoes a normalisation: x * std + mean": formula(lambda x, m, s: x * s + m),
        "the numbers run along W; line them up with axis 1: view(-1, 1, 1)": along(3),
        "the numbers run along H; line them up with axis 1: view(-1, 1, 1)": along(2),
        "the numbers run along the batch; line them up with axis 1": along(0),
        "every channel gets the first channel's numbers": lambda x, m, s: (x - m[0]) / s[0],
        "every channel gets the same numbers, the average ones; each has its own":
            lambda x, m, s: (x - sum(m) / len(m)) / (sum(s) / len(s)),
        "computes numbers from these images; use those that are handed over": lambda x, m, s: own_numbers(x, (0, 2, 3)),
        "normalises each image by itself; use the numbers that are handed over": lambda x, m, s: own_numbers(x, (1, 2, 3)),
        "normalises each channel of each image by itself; use the numbers handed over":
            lambda x, m, s: own_numbers(x, (2, 3)),
        "computes the deviation from these images; use the std that is handed over":
            formula(lambda x, m, s: (x - m) / x.std((0, 2, 3), keepdim=True)),
        "computes the mean from these images; use the one that is handed over":
            formula(lambda x, m, s: (x - x.mean((0, 2, 3), keepdim=True)) / s),
        "computes one mean and deviation of all these pixels; use the C numbers that are handed over":
            lambda x, m, s: (x - x.mean()) / x.std(),
        "stretches to 0 .. 1 by the smallest and the largest pixel; use mean and std":
            lambda x, m, s: (x - x.min()) / (x.max() - x.min()),
        "makes each pixel's channels a vector of length 1; F.normalize is another thing": lambda x, m, s: F.normalize(x),
        "divides by 255 first; the images are from 0 to 1 already": formula(lambda x, m, s: (x / 255 - m) / s),
        "takes x away from the mean; it is x - mean": formula(lambda x, m, s: (m - x) / s),
        "the numbers are in the wrong order: channel 0 gets the last ones":
            lambda x, m, s: right_normalize(x, m[::-1], s[::-1]),
        "every channel gets the first mean; each has its own": lambda x, m, s: (x - m[0]) / per(x, s),
        "every channel gets the first std; each has its own": lambda x, m, s: (x - per(x, m)) / s[0],
        "divides twice": formula(lambda x, m, s: (x / s - m) / s),
        "is rounded to whole numbers": formula(lambda x, m, s: ((x - m) / s).round()),
        "what is below 0 is lost; half of the values belong there": formula(lambda x, m, s: ((x - m) / s).clamp(min=0)),
        "stays within -1 and 1: was it clamped? The values may be larger":
            formula(lambda x, m, s: ((x - m) / s).clamp(-1, 1)),
        "axes are moved by reshape, which mixes the pixels; permute and movedim move axes":
            lambda x, m, s: right_normalize(x.movedim(1, -1), m, s, 3).reshape(x.shape),
        "stays within 0 and 1: was it clamped? Half of the values belong below 0":
            formula(lambda x, m, s: ((x - m) / s).clamp(0, 1)),
    },
)  # fmt: skip
check_normalize = NORMALIZE.check


# The planted mistake


mean_of, std_of = (partial(f, dim=(0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
SOURCES = {  # the images that a mean and a deviation may come from
    "the training part's": lambda a, b: a,
    "the test part's": lambda a, b: b,
    "both parts'": lambda a, b: torch.cat([a, b]),
    "that of all channels together": lambda a, b: a.flatten(0, 1)[:, None],
    "the first image's": lambda a, b: a[:1],
}
TRAIN, TEST, BOTH, *_ = SOURCES.values()


def prepared(mean: Callable = TRAIN, std: Callable = TRAIN, spread: Callable = std_of) -> Callable:
    """Both parts normalized by the mean of some images and the deviation of some."""
    return lambda a, b: tuple((x - mean_of(mean(a, b))) / spread(std(a, b)) for x in (a, b))


def parts_by(first: Callable, second: Callable) -> Callable:
    """Each part normalized by the numbers of some images."""
    return lambda a, b: (prepared(first, first)(a, b)[0], prepared(second, second)(a, b)[1])


OF_TRAINING = "both parts get (x - mean) / std, with the training part's mean and std of each channel"


def sources(part: int, got: Tensor, right: Tensor, a: Tensor, b: Tensor) -> str:
    """Whose mean and deviation a part was normalized by, in words."""
    x, name, more = (a, b)[part], ("training", "test")[part], "the average of the two parts'"
    lines = [line(got[:, c], x[:, c]) for c in range(x.shape[1])]
    if not all(lines):
        return f"the {name} part is not of the form (x - mean) / std, one of each for a channel; {OF_TRAINING}"
    mean, std = ({words: f(source(a, b)) for words, source in SOURCES.items()} for f in (mean_of, std_of))
    mean |= {f"{more} means": (mean_of(a) + mean_of(b)) / 2, "0": torch.zeros(1)}
    std |= {f"{more} deviations": (std_of(a) + std_of(b)) / 2, "1": torch.ones(1)}
    std["the square of the training part's, its variance"] = std_of(a) ** 2
    named = []
    for numbers, known in zip(map(torch.tensor, zip(*lines, strict=True)), (mean, std), strict=True):
        found = (words for words, those in known.items() if torch.allclose(those.flatten().float(), numbers, atol=1e-3))
        named.append(next(found, f"another number ({numbers[0]:.3g} in channel 0)"))
    return f"the {name} part is normalised, but the mean is {named[0]}, the deviation {named[1]}; {OF_TRAINING}"


def two_parts(C: int, H: int, W: int) -> Case:
    """Training and test images whose means and deviations differ."""
    shift = torch.linspace(0.5, 1, C).view(C, 1, 1)
    return Case(lambda: (shift * (torch.randn(9, C, H, W) + 0.5), torch.randn(4, C, H, W) + 2 * shift))


FIX = Exercise(
    name="mended",
    reference=prepared(),
    also=[  # a deviation by n - 1, n or 2n - 1, and a small number beside it or its square
        prepared(std=lambda a, b, twice=twice: torch.cat([a] * twice), spread=partial(spread, eps=eps, less=less))
        for twice, less in ((1, 1), (1, 0), (2, 1))
        for eps in EPS
        for spread in (
            lambda x, eps, less: x.std((0, 2, 3), keepdim=True, correction=less) + eps,
            lambda x, eps, less: (x.var((0, 2, 3), keepdim=True, correction=less) + eps) ** 0.5,
        )
    ],
    returns=("training part", "test part"),
    when=lambda a, b: f"for training images of shape {tuple(a.shape)}",
    says="{words}",
    unknown={"training part": partial(sources, 0), "test part": partial(sources, 1)},
    differentiable=False,
    hints={
        "must match the size of tensor":
            "With keepdim=True mean and std keep the shape (1, C, 1, 1), which lines up with the channels"
    },
    ideas={
        "the numbers come from the training part alone, for both parts":
            [two_parts(*size) for size in ((3, 4, 5), (1, 6, 3), (3, 3, 3), (3, 5, 4))],
        "float64 stays, and inputs stay as they were": [contract],
    },
    mistakes={
        "still the planted mistake: the test images have a say in the mean and the deviation": prepared(BOTH, BOTH),
        "the test part is normalised by its own numbers; both parts get those of the training part": parts_by(TRAIN, TEST),
        "both parts get the numbers of the test part": prepared(TEST, TEST),
        "the test part still gets the numbers of both parts": parts_by(TRAIN, BOTH),
        "the training part still gets the numbers of both parts": parts_by(BOTH, TRAIN),
        "the test part is not normalised": lambda a, b: (prepared()(a, b)[0], b),
        f"the training part comes back as it was; {OF_TRAINING}": lambda a, b: (a, prepared()(a, b)[1]),
        "nothing is normalised": lambda a, b: (a, b),
        "one mean for all channels; each has its own, as it was":
            lambda a, b: tuple((x - a.mean()) / a.std() for x in (a, b)),
        "every image is normalised by itself": lambda a, b: (own_numbers(a, (2, 3)), own_numbers(b, (2, 3))),
        "every image is normalised by itself, all channels together":
            lambda a, b: (own_numbers(a, (1, 2, 3)), own_numbers(b, (1, 2, 3))),
        "the mean is the training part's, but the deviation is still that of both": prepared(TRAIN, BOTH),
        "the deviation is the training part's, but the mean is still that of both": prepared(BOTH, TRAIN),
        "averages over the batch only; over the pixels too, dim=(0, 2, 3)":
            lambda a, b: tuple((x - a.mean(0)) / a.std(0) for x in (a, b)),
    },
)  # fmt: skip
check_mended = FIX.check
