"""The exercises of notebook 02 about positions that are fixed, and about resizing learned ones."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.engine.compare import expect_anywhere, expect_gradient, same
from vit_helpers.checks.engine.contract import Raises, expect_contract
from vit_helpers.checks.engine.exercise import Case, Exercise, Outcome, Wording, fixed, forms
from vit_helpers.checks.engine.report import Function, Mistake, raised, reject_if, variants
from vit_helpers.checks.projection import alike
from vit_helpers.embeddings import resize_positions, sincos_1d, sincos_positions

Grid = tuple[int, int]
Method = dict[str, Any]  # how to interpolate

# Sines and cosines


def waves(
    grid: Grid,
    dim: int,
    step: Callable[[int], float] = lambda m: 2 / m,
    base: float = 10000.0,
    first: int = 0,
) -> Tensor:
    """Return positions with another exponent for i, another base, or counted from `first`."""
    frequencies = base ** (-step(dim // 2) * torch.arange(dim // 4, dtype=torch.float64))
    angles = [
        torch.outer(torch.arange(length, dtype=torch.float64) + first, frequencies)
        for length in grid
    ]
    row, col = (torch.cat([each.sin(), each.cos()], dim=1) for each in angles)
    return torch.cat([row.repeat_interleave(grid[1], dim=0), col.repeat(grid[0], 1)], dim=1).float()


EXPONENTS: dict[str, Function] = {
    "-2i/D": lambda m: 1 / m,
    "-4i/m": lambda m: 4 / m,
    "-i/D": lambda m: 1 / (2 * m),
    "2i/m": lambda m: -2 / m,
    "-2i/(m-2)": lambda m: 2 / (m - 2),
}


def columns(change: Callable[[Tensor], Tensor]) -> Function:
    """Make the right positions with their columns (axis, wave, frequency) in another order."""
    return lambda grid, dim: change(sincos_positions(grid, dim).unflatten(1, (2, 2, -1))).flatten(1)


BOTH_WAVES = "Each axis has the sines and then the cosines of its angles"
FIRST_PLACE = {  # the numbers that a wrong answer holds for place (0, 0)
    (0.0,): f"position (0, 0) is all zeros, as if there were no cosines. {BOTH_WAVES}",
    (1.0,): f"position (0, 0) is all ones, as if there were no sines. {BOTH_WAVES}",
}


def observe_sincos(answer: Function, grid: Grid, dim: int) -> dict[str, Tensor]:
    """Observe positions as float32.

    raises: Mistake for those that learn, are whole numbers, or contain only one of the waves
    """
    got = answer(grid, dim)
    if not isinstance(got, Tensor) or got.is_complex():
        return {"": got}
    if got.ndim == 2 and len(got) == math.prod(grid):
        message = FIRST_PLACE.get(tuple(sorted(set(got[0].tolist()))))
        reject_if(message, message)
    reject_if(
        got.requires_grad,
        "is learned, but these positions are fixed, so use no nn.Parameter and no requires_grad",
    )
    whole = f"gives whole numbers ({got.dtype}), but sines and cosines are floats"
    reject_if(not got.is_floating_point(), whole)
    return {"": got.float()}


def odd_positions(got: Tensor, right: Tensor, grid: Grid, dim: int) -> str:
    """Write the message about numbers that no known mistake gives."""
    if set(got[0].tolist()) == {0.0, 2.0}:
        return (
            "adds row and column at full width, but they belong side by side, "
            "with half of the width each"
        )
    if not same(got[0].sort().values, right[0].sort().values):
        return "position (0, 0) should contain only sin 0 = 0 and cos 0 = 1, each D / 2 times"
    if same(got.sort(1).values, right.sort(1).values):
        return (
            "contains the right numbers in a different order: row before column, "
            "and in each half sines before cosines"
        )
    return f"gives the wrong numbers for grid {grid} and width {dim}"


SINCOS_MISTAKES: dict[str, Function] = (
    variants(waves, {
        f"the exponent is {name}, "
        "but the frequencies are 10000^(-2i/m) with i = 0, 1, 2, ... and m = D / 2":
            {"step": step}
        for name, step in EXPONENTS.items()
    } | {
        "the base is wrong, because it should be 10000": {"base": 1000.0},
        "positions are counted from 0, not from 1": {"first": 1},
    })
    | {
        "flatten the grid": lambda grid, dim: sincos_positions(grid, dim).unflatten(0, grid),
        "there is no batch axis here": lambda grid, dim: sincos_positions(grid, dim)[None],
        "there are only patches here, no class token":
            lambda grid, dim: F.pad(sincos_positions(grid, dim), (0, 0, 1, 0)),
        "rows and columns belong side by side: "
        "concatenate them along the width instead of adding them":
            lambda grid, dim: sincos_positions(grid, dim).unflatten(1, (2, -1)).sum(1),
        "each axis gets half of the width": lambda grid, dim: sincos_positions(grid, 2 * dim),
        "row and column are swapped: the first half of the width describes the row":
            columns(lambda x: x.flip(1)),
        "the positions go from top to bottom first, but patches go from left to right, then down":
            lambda grid, dim: (
                sincos_positions(grid, dim).unflatten(0, grid).transpose(0, 1).flatten(0, 1)
            ),
        "that is the one-dimensional form: "
        "the number of a patch alone gives neither row nor column":
            lambda grid, dim: sincos_1d(math.prod(grid), dim),
        "sines come first, then cosines": columns(lambda x: x.flip(2)),
        "sines and cosines alternate, but here all sines of an axis come first, then its cosines":
            columns(lambda x: x.mT),
    }
)  # fmt: skip
SINCOS = Exercise(
    name="sincos",
    reference=sincos_positions,
    outcome=Outcome(observe=observe_sincos),
    wording=Wording(
        when="for grid {} and width {}".format, says="{message}", unknown=odd_positions
    ),
    ideas={
        "gives (N, D) fixed floats": [forms],
        "contains sines and cosines of the row, then of the column": [
            fixed(*sizes)
            for sizes in (((3, 5), 8), ((4, 2), 16), ((1, 6), 12), ((7, 7), 64), ((2, 4), 16))
        ],
        "raises ValueError for a width that is not a multiple of 4": [
            Raises(
                [((2, 3), dim) for dim in (6, 10, 5, 7, 9)],
                lambda got, grid, dim: (
                    f"accepts width {dim}; "
                    "two axes with sines and cosines need a multiple of 4, so raise a ValueError"
                ),
            )
        ],
    },
    mistakes=SINCOS_MISTAKES,
)


# Resizing positions

METHODS = [
    {"mode": mode, "antialias": antialias, "align_corners": align}
    for mode in ("bicubic", "bilinear")
    for antialias in (True, False)
    for align in (False, True)
]


def resized(
    pos_embed: Tensor,
    grid: Grid,
    new_grid: Grid,
    method: Method | None = None,
    to: Function = lambda x, grid: x.mT.unflatten(2, grid),
    size: Function = lambda new_grid: new_grid,
    options: Function = lambda method: method,
    back: Function = lambda y: y.flatten(2).mT,
) -> Tensor:
    """Set the class token's position aside, resize the others, put it back.

    A mistake is another step in between.

    to: (1, N, D) -> an image (1, D, rows, cols); back: (1, D, rows', cols') -> (1, N', D)
    """
    extra = pos_embed.shape[1] - math.prod(grid)
    picture = F.interpolate(
        to(pos_embed[:, extra:], grid), size=size(new_grid), **options(method or METHODS[0])
    )
    return torch.cat([pos_embed[:, :extra], back(picture)], dim=1)


def filled(more: Callable[[Tensor, int], Tensor]) -> Function:
    """Make an answer: a list of positions, truncated or continued.

    more: (positions, a length) -> as many, or more
    """

    def answer(
        pos_embed: Tensor, grid: Grid, new_grid: Grid, method: Method | None = None
    ) -> Tensor:
        extra, length = pos_embed.shape[1] - math.prod(grid), math.prod(new_grid)
        return torch.cat(
            [pos_embed[:, :extra], more(pos_embed[:, extra:], length)[:, :length]], dim=1
        )

    return answer


NEAREST = "copies the nearest position, so that neighbors share one. Use bicubic interpolation"
RESIZED = {
    "repeats or truncates the list of positions; resize the grid instead":
        filled(lambda x, length: x.repeat(1, length, 1)),
    "truncates the list of positions or fills it with zeros; resize the grid instead":
        filled(lambda x, length: F.pad(x, (0, 0, 0, length))),
} | variants(resized, {
    "reshapes (1, N, D) to (1, D, rows, cols) without moving axes: reshape to "
    "(1, rows, cols, D), then permute":
        {"to": lambda x, grid: x.reshape(1, -1, *grid)},
    "returns from image to tokens with a reshape alone: use flatten(2), then transpose(1, 2)":
        {"back": lambda y: y.reshape(1, -1, y.shape[1])},
    "reads the new grid column by column, but patches go from left to right, then down":
        {"back": lambda y: y.mT.flatten(2).mT},
    "rows and columns are swapped": {"to": lambda x, grid: x.mT.unflatten(2, grid[::-1])},
    "rows and columns of the new grid are swapped": {"size": lambda new_grid: new_grid[::-1]},
    NEAREST: {"options": lambda method: {"mode": "nearest"}},
    f"{NEAREST} (that is nearest-exact)": {"options": lambda method: {"mode": "nearest-exact"}},
    "averages an area, so that neighbors share the mean. Use bicubic interpolation":
        {"options": lambda method: {"mode": "area"}},
    "resizes the positions as one long row, but they form a grid, so resize in two directions":
        {"to": lambda x, grid: x.mT, "size": math.prod,
         "options": lambda method: {"mode": "linear", "align_corners": method["align_corners"]}},
})  # fmt: skip


def observe_resized(answer: Function, *args: Any) -> dict[str, Tensor]:
    """Observe positions, right or wrong, as the first of the methods gives them.

    Each of eight is accepted, in float32 too.
    """
    got = answer(*args)
    every: list[Function] = [resized, *RESIZED.values()]
    if isinstance(got, Tensor) and not got.is_complex():
        for known in every:
            if any(alike(got, known(*args, method)) for method in METHODS):
                return {"": known(*args).to(got.dtype)}
    return {"": got}


def positions(grid: Grid, new_grid: Grid, extra: int) -> Case:
    """Make positions in float64, with a class token (extra 1) or without."""
    return Case(
        lambda: (torch.randn(1, extra + math.prod(grid), 6, dtype=torch.float64), grid, new_grid)
    )


def from_to(pos_embed: Tensor, grid: Grid, new_grid: Grid) -> str:
    """Write the arguments in words."""
    extra = pos_embed.shape[1] > math.prod(grid)
    return f"from {grid} to {new_grid} {'with' if extra else 'without'} a class token"


def every_form(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless results have the right form, with a class token and without."""
    errors: dict[bool, str] = {}  # with a class token, without: when an error is raised, and which
    for case in exercise.cases():
        args = case.draw()
        try:
            exercise.try_form(answer, args)
        except (RuntimeError, IndexError, ValueError, TypeError, AssertionError) as error:
            if isinstance(error, NotImplementedError):
                raise
            with_token = args[0].shape[1] > math.prod(args[1])
            errors.setdefault(with_token, f"{exercise.wording.when(*args)} it {raised(error)}")
    if len(errors) > 1:
        raise Mistake(next(iter(errors.values())))
    for with_token, error_in_words in errors.items():
        raise Mistake(
            f"has the right shape {'without' if with_token else 'with'} a class token, "
            f"but {error_in_words}. The number of positions tells whether there is a class token: "
            "rows * cols without one, one more with it"
        )


def class_token_kept(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the class token's position is unchanged, in row 0."""
    for case in exercise.cases():
        pos_embed, grid, new_grid = case.draw()
        if pos_embed.shape[1] > math.prod(grid):
            got = answer(pos_embed.clone(), grid, new_grid)
            reject_if(
                alike(got[:, -1], pos_embed[:, 0]),
                "the class token's position has moved to the end, but it should stay row 0",
            )
            message = (
                "the class token's position has changed, but it has no place in the image. "
                "Set it aside, and put it back"
            )
            reject_if(not alike(got[:, 0], pos_embed[:, 0]), message)


def as_tensors_go(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless learned positions keep their type and gradients.

    They stay as they are if the grid does.
    """
    for dtype in (torch.float32, torch.float64):
        pos_embed = torch.randn(1, 13, 6, dtype=dtype, requires_grad=True)
        still = alike(answer(pos_embed, (3, 4), (3, 4)), pos_embed)
        reject_if(not still, "changes the positions although the grid stays the same")
        got = answer(pos_embed, (3, 4), (5, 6))
        reject_if(got.dtype != dtype, f"turns {dtype} into {got.dtype}; keep the dtype")
        rights = (resized(pos_embed, (3, 4), (5, 6), method) for method in METHODS)
        right = next((right for right in rights if alike(got, right)), None)
        if right is None:
            raise Mistake(
                "gives different numbers than bicubic interpolation, "
                f"for learned positions of {dtype}"
            )
        expect_gradient(got, right, pos_embed)
    expect_anywhere(answer, resize_positions, torch.randn(1, 13, 6), (3, 4), (5, 6))


STRETCHES = [
    ((4, 4), (7, 7)),
    ((3, 5), (6, 4)),
    ((2, 6), (5, 9)),
    ((6, 4), (3, 2)),
    ((2, 6), (3, 4)),
]
RESIZE_POSITIONS_MISTAKES: dict[str, Function] = (
    {
        "the class token's position is missing":
            lambda pos, grid, new: resized(pos[:, -math.prod(grid) :], grid, new),
        "a class token has been added":
            lambda pos, grid, new: F.pad(
                resized(pos, grid, new), (0, 0, math.prod(grid) + 1 - pos.shape[1], 0)
            ),
        "keep the leading axis of length 1": lambda pos, grid, new: resized(pos, grid, new)[0],
        "leaves the positions as they are where the new grid has as many, but its rows and columns "
        "are others: resize it":
            lambda pos, grid, new: (
                pos if math.prod(grid) == math.prod(new) else resized(pos, grid, new)
            ),
        "turn the image back into a sequence of tokens":
            lambda pos, grid, new: (
                resized(pos[:, -math.prod(grid) :], grid, new).mT.unflatten(2, new)
            ),
    }
    | RESIZED
)  # fmt: skip
RESIZE_POSITIONS = Exercise(
    name="resize_positions",
    reference=resize_positions,
    outcome=Outcome(observe=observe_resized),
    wording=Wording(
        says="{message}",
        when=from_to,
        unknown=lambda got, right, *args: (
            f"gives different numbers than bicubic interpolation of the grid, {from_to(*args)}"
        ),
    ),
    ideas={
        "gives (1, T', D), with and without a class token": [every_form],
        "the class token keeps its position": [class_token_kept],
        "resizes in two directions, for non-square grids too": [
            positions(*grids, e) for grids in STRETCHES for e in (1, 0)
        ],
        "keeps the dtype, lets gradients through, leaves its input unchanged": [
            as_tensors_go,
            expect_contract,
        ],
        "raises ValueError when positions and grid do not fit": [
            Raises(
                [(torch.zeros(1, T, 6), (3, 4), (5, 6)) for T in (14, 11)],
                lambda got, pos_embed, *grids: (
                    f"accepts {pos_embed.shape[1]} positions for a 3 x 4 grid, "
                    "which has 12 or, with a class token, 13: "
                    "raise a ValueError"
                ),
            )
        ],
    },
    mistakes=RESIZE_POSITIONS_MISTAKES,
)
