"""The exercises of notebook 06: the split of the data.

Images are normalized in data_normalizing.py, mixed in data_mixing.py and data_cutmix.py.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_helpers.checks.data_cutmix import CUTMIX, check_cutmix  # noqa: F401
from vit_helpers.checks.data_mixing import MIX, check_mixup  # noqa: F401
from vit_helpers.checks.data_normalizing import (  # noqa: F401
    FIX,
    NORMALIZE,
    check_fixed,
    check_normalize,
)
from vit_helpers.checks.engine.compare import bounded, copy_of
from vit_helpers.checks.engine.contract import Raises
from vit_helpers.checks.engine.exercise import Exercise, Outcome, Wording, cases
from vit_helpers.checks.engine.report import Function, reject_if, short
from vit_helpers.checks.engine.traces import ask, generators_restored, restored

# Dividing

GENERATORS: dict[
    str, tuple[Function, Function]
] = {  # how a global generator is started, and asked for a number
    "torch's": (torch.manual_seed, lambda: torch.rand(()).item()),
    "Python's": (random.seed, random.random),
    "numpy's": (np.random.seed, np.random.rand),
}
LARGE = 2**31 - 1  # a large seed
SPLITS = [
    (20, (5, 3, 12), 0),
    (100, [50, 50], 7),
    (9, (9,), 1),
    (7, (0, 6, 1), 2),
    (1797, (360, 180, 1257), 0),
    (8, (4, 4), LARGE),
]


def what(got: Any) -> str:
    """Return what came, in a few words without an address."""
    text = short(got)
    return f"a {type(got).__name__}" if isinstance(got, Mapping) or " at 0x" in text else text


def as_parts(got: Any, sizes: Sequence[int], when: str) -> list[Tensor]:
    """Return the splits that an answer gave, as tensors of whole numbers.

    raises: Mistake where there are none, or another number
    """
    reject_if(got is None, f"returns nothing {when}: does it end with return?")
    bag = (
        isinstance(got, (Mapping, str))
        or not isinstance(got, Iterable)
        or (isinstance(got, Tensor) and got.ndim == 1)
    )
    reject_if(bag, f"gives {what(got)} {when}; it should give a list of splits")
    inner = (
        len(got) == 1
        and isinstance(got[0], (tuple, list))
        and len(sizes) > 1
        and len(got[0]) == len(sizes)
    )
    reject_if(
        inner, f"gives the list of splits inside another list {when}; take the outer brackets away"
    )
    flat = len(got) == sum(sizes) != len(sizes) and not any(isinstance(x, Iterable) for x in got)
    reject_if(flat, f"gives all rows in one list {when}; cut it into a list of splits")
    more = "too many" if len(got) > len(sizes) else len(got)
    reject_if(
        len(got) != len(sizes),
        f"gives {more} splits {when}; it should give {len(sizes)}, one for each size",
    )
    return [as_rows(part, when) for part in got]


def as_rows(part: Any, when: str) -> Tensor:
    """Return a split that an answer gave; Mistake unless it is a tensor of whole numbers."""
    subset = isinstance(part, torch.utils.data.Subset)
    way_out = "; its .indices are row numbers" if subset else ""
    message = f"gives {what(part)} as a split {when}; a split is a tensor of row numbers{way_out}"
    reject_if(not isinstance(part, Tensor), message)
    part = part if part.numel() else part.long()
    reject_if(
        part.ndim != 1,
        f"gives a split of shape {tuple(part.shape)} {when}; it should be a list of row numbers",
    )
    masks = f"gives a mask of True and False {when}; it should give row numbers. Use mask.nonzero()"
    reject_if(part.dtype == torch.bool, masks)
    reject_if(
        part.is_floating_point(),
        f"gives row numbers as {part.dtype} {when}; they should be whole numbers",
    )
    return part.cpu().long()


def divide(answer: Function, n: int, sizes: Sequence[int], seed: int) -> list[Tensor]:
    """Return the splits that an answer makes.

    The global generators are put back, whatever it did with them.
    """
    copies = copy_of(sizes)
    with generators_restored():
        got = bounded(answer(n, copies, seed))
    reject_if(copies != sizes, "changes the list of sizes that it is given; make a new one")
    return as_parts(got, sizes, f"for n = {n}, sizes {list(sizes)}, seed {seed}")


def complete(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless every row is in exactly one split."""
    for n, sizes, seed in SPLITS:
        rows = torch.cat(ask(partial(divide, answer), n, sizes, seed))
        reject_if(
            bool((rows < 0).any()), f"gives row {rows.min()} for n = {n}; rows are counted from 0"
        )
        reject_if(
            bool((rows >= n).any()), f"gives row {rows.max()} for n = {n}; the last row is n - 1"
        )
        twice = n - rows.unique().numel()
        once = "every row should be in exactly one"
        reject_if(twice, f"{twice} of {n} rows are in no split, others more than once: {once}")


def expect_steady(parts: Function) -> None:
    """Raise Mistake unless the same seed gives the same splits, also 0 and a large one.

    parts: (seed) -> the splits
    """
    again = "gives different splits when called again with"
    message = f"{again} the same seed: is a generator seeded with it, and passed to what draws?"
    reject_if(not alike(parts, 3, 3), message)
    message = f"{again} seed 0, but not with seed 3: is 0 taken for no seed?"
    reject_if(not alike(parts, 0, 0), message)
    message = f"{again} seed {LARGE}, but not with smaller ones"
    reject_if(not alike(parts, LARGE, LARGE), message)


def alike(parts: Function, seed: int, other: int) -> bool:
    """Tell whether two seeds give the same splits."""
    return all(map(torch.equal, parts(seed), parts(other)))


def at_random(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless a seed gives one division, and 100 seeds give divisions at random."""
    n, sizes = 60, (15, 20, 25)
    parts = partial(ask, partial(divide, answer), n, sizes)
    first = {*parts(3)[0].tolist()}
    order = "does not shuffle the rows first, although files are often stored class by class"
    reject_if(first in ({*range(15)}, {*range(45, 60)}), order)
    expect_steady(parts)
    split_of = torch.zeros(100, n, dtype=torch.long)  # of each row, for each seed
    for seed in range(100):
        for number, rows in enumerate(parts(seed)):
            split_of[seed, rows] = number
    several = split_of.unique(dim=0).shape[0]
    few = f"gives {several} different divisions for 100 seeds; each seed should give its own"
    reject_if(several == 1, "gives the same splits for every seed: is the seed used?")
    reject_if(several < 20, few)
    for number, name in enumerate(("first", "second", "third")):
        expect_any_row(split_of == number, f"the {name} split", 100 * sizes[number] / n)
    for apart in range(1, n // 2):
        # by chance 0.34, give or take 0.01
        together = (split_of == split_of.roll(apart, 1)).float().mean()
        message = (
            f"rows {apart} apart land in the same split in {together:.0%} of all cases, "
            "where 34% are expected by chance"
        )
        reject_if(
            abs(together - 0.34) > 0.1,
            f"{message}; every order of the rows should be possible, as with torch.randperm",
        )
    reject_if(several < 90, few)
    for seed, other in ((0, 1), (LARGE, LARGE - 1)):
        message = f"gives the same splits for the seeds {seed} and {other}"
        reject_if(alike(parts, seed, other), message)


def expect_any_row(chosen: Tensor, name: str, percent: float) -> None:
    """Raise Mistake unless every row is in a split for some of 100 seeds, and for not too many.

    chosen : (100, n), whether a row is in the split for each seed
    percent: for how many seeds it should be
    """
    often = chosen.sum(0)
    row, never = int(often.argmax()), int((often == 0).sum())
    whatever = f"{never} of {len(often)} rows are never in {name}, whatever the seed"
    reject_if(never, f"{whatever}; shuffle all rows before you cut any split")
    message = (
        f"row {row} is in {name} for {often[row]} of 100 seeds; "
        f"by chance it would be {percent:.0f}: shuffle all rows"
    )
    reject_if(often[row] > percent + 30, message)


def own_generator(*args: Any, message: str) -> Function:
    """Make an idea: with these arguments no global generator is used or started.

    raises: Mistake when an answer does so; message: what comes of it
    """

    def trial(exercise: Exercise, answer: Function) -> None:
        for name, (start, draw) in GENERATORS.items():
            with restored():
                start(99)
                untouched = draw()
                start(99)
                bounded(answer(*args))
                moved = (
                    f"uses {name} global generator, so {message}. Create your own: "
                    "torch.Generator().manual_seed(seed)"
                )
                reject_if(draw() != untouched, moved)

    return trial


def no_sum(got: str, n: int, sizes: Sequence[int], seed: int) -> str:
    """Write the message for an answer that divides although the sizes do not sum to n."""
    if "Error(" in got:
        return f"returns {got} for n = {n}, sizes {sizes}; raise the error instead of returning it"
    return f"gives {got} for n = {n}, sizes {sizes}, which sum to {sum(sizes)}; raise ValueError"


def parts_of(
    n: int, sizes: Sequence[int], seed: int, end: Function = lambda begin, size: begin + size
) -> list[Tensor]:
    """Return a right division; a wrong one, where a split ends somewhere else."""
    if sum(sizes) != n:
        raise ValueError(f"sizes {sizes} do not sum to {n}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [order[sum(sizes[:i]) : end(sum(sizes[:i]), size)] for i, size in enumerate(sizes)]


SPLIT_MISTAKES: dict[str, Function] = {
    "a split that begins at row a ends at a + size, not at size":
        partial(parts_of, end=lambda begin, size: size),
}  # fmt: skip
SPLIT = Exercise(
    name="split",
    reference=parts_of,
    outcome=Outcome(
        observe=lambda answer, *args: {"": [len(part) for part in divide(answer, *args)]},
    ),
    wording=Wording(
        when=lambda n, sizes, seed: f"for n = {n}, sizes {sizes}",
        says="gives splits of {got} rows for the sizes {1}: {message}",
        unknown="the first split should have sizes[0] rows, the next one sizes[1], and so on",
    ),
    ideas={
        "one split for each size, with that many rows": cases(*SPLITS),
        "every row is in exactly one split": [complete],
        "rows are divided at random, and the same seed gives the same splits": [at_random],
        "has a generator of its own: no other seed changes the splits, and none is changed": [
            own_generator(50, (20, 30), 5, message="later code gets different random numbers")
        ],
        "raises ValueError if the sizes do not sum to n": [
            Raises([(10, sizes, 0) for sizes in ((5, 4), (5, 6), (11,))], no_sum)
        ],
    },
    mistakes=SPLIT_MISTAKES,
)
check_split = SPLIT.check
