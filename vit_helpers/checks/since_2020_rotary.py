"""The exercises of notebook 12 about rotary positions: turning pairs, and the angles of a grid."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.exercise import Case, Exercise, Outcome, Wording, fixed, forms
from vit_helpers.checks.engine.report import Function, reject_if, variants

Grid = tuple[int, int]

# Turning queries and keys


def turned(
    x: Tensor,
    angles: Tensor,
    turn: Function = lambda a, b, c, s: (a * c - b * s, a * s + b * c),
    split: Function = lambda x: x.chunk(2, dim=-1),
    join: Function = lambda a, b: torch.cat([a, b], dim=-1),
    first: Function = lambda T, N: T - N,
) -> Tensor:
    """Turn the pairs of the last N tokens; a mistake is another step.

    turn : (a, b, cos, sin) -> the turned pair
    split: (..., N, d) -> the first and the second number of each pair; join: its opposite
    first: (tokens, patches) -> the number of the first token that is turned
    """
    start, N = first(x.shape[-2], len(angles)), len(angles)
    head, body, tail = x[..., :start, :], x[..., start : start + N, :], x[..., start + N :, :]
    pairs = join(*turn(*split(body), angles.cos(), angles.sin()))
    return torch.cat([head, pairs, tail], dim=-2)


def turned_whole(x: Tensor, angles: Tensor) -> Tensor:
    """Turn as libraries do, with an angle for each of the d numbers: (..., T, d), (N, d)"""
    prefix, patches = x[..., : -len(angles), :], x[..., -len(angles) :, :]
    a, b = patches.chunk(2, dim=-1)
    return torch.cat([prefix, patches * angles.cos() + torch.cat([-b, a], -1) * angles.sin()], -2)


def neighbors(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0::2], x[..., 1::2]


def woven(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b], dim=-1).flatten(-2)


def tokens(prefix: int, N: int, d: int, heads: int = 2) -> Case:
    """Make tokens of some heads, `prefix` of them without an angle, and the angles of N patches."""
    return Case(lambda: (torch.randn(2, heads, prefix + N, d), 4 * torch.randn(N, d // 2)))


def prefix_in_words(x: Tensor, angles: Tensor) -> str:
    prefix = x.shape[-2] - len(angles)
    return f"for {x.shape[-2]} tokens, {prefix} of them before the patches"


ROTATE_MISTAKES: dict[str, Function] = variants(turned, {
    "the pairs are wrong: number i belongs to number i + d/2, not to its neighbor":
        {"split": neighbors, "join": woven},
    "the pairs are right, but they return in another order: the first numbers of all pairs "
    "come first, then the second":
        {"join": woven},
    "turns the other way: with an angle of 90 degrees, (3, 4) should become (-4, 3)":
        {"turn": lambda a, b, c, s: (a * c + b * s, b * c - a * s)},
    "both signs are plus, but a turn needs one minus: a cos - b sin":
        {"turn": lambda a, b, c, s: (a * c + b * s, a * s + b * c)},
    "both signs are minus, but the second number is a sin + b cos":
        {"turn": lambda a, b, c, s: (a * c - b * s, a * s - b * c)},
    "sine and cosine are swapped": {"turn": lambda a, b, c, s: (a * s - b * c, a * c + b * s)},
    "the two numbers of a pair have changed places: a cos - b sin comes first":
        {"turn": lambda a, b, c, s: (a * s + b * c, a * c - b * s)},
    "the second number of a pair is computed from the turned first one; "
    "keep the old one until both are done":
        {"turn": lambda a, b, c, s: (a * c - b * s, (a * c - b * s) * s + b * c)},
    "each number is only multiplied by its cosine: the sines are missing":
        {"turn": lambda a, b, c, s: (a * c, b * c)},
    "turns the first tokens, but the class token and registers have no place: "
    "leave them, and turn the last N":
        {"first": lambda T, N: 0},
    "leaves one token before the patches, but there may be more, or none: count them":
        {"first": lambda T, N: min(1, T - N)},
}) | {
    "the tokens before the patches are missing": lambda x, angles: (
        turned(x[..., x.shape[-2] - len(angles) :, :], angles)
    ),
    "the tokens before the patches have moved behind them": lambda x, angles: (
        turned(x, angles).roll(len(angles) - x.shape[-2], dims=-2)
    ),
    "the tokens before the patches have become 0: leave them as they are": lambda x, angles: (
        torch.cat([0 * x[..., : -len(angles), :], turned(x[..., -len(angles) :, :], angles)], -2)
    ),
    "the angles are treated as degrees, but they are radians, as cos and sin need them":
        lambda x, angles: turned(x, angles.deg2rad()),
    "nothing is turned": lambda x, angles: x.clone(),
    "angle i is repeated for neighbors, but it belongs to the numbers i and i + d/2":
        lambda x, angles: turned_whole(x, angles.repeat_interleave(2, dim=1)),
}  # fmt: skip
ROTATE = Exercise(
    name="rotate",
    reference=turned,
    wording=Wording(
        when=prefix_in_words,
        unknown="the shape is right, but the numbers are not: pair (a, b) becomes "
        "(a cos - b sin, a sin + b cos)",
        hints={
            "at non-singleton dimension 2": "Turn the last len(angles) tokens: the class token "
            "and registers, if there are any, come before them and have no angle",
            "at non-singleton dimension 3": "Each pair has one angle: cut the last axis, the d "
            "numbers of a head, into two halves",
        },
    ),
    ideas={
        "patches alone: number i of a head is turned with number i + d/2": [
            tokens(0, 6, 8),
            tokens(0, 5, 4),
        ],
        "tokens before the patches stay as they are": [
            tokens(3, 6, 8),
            tokens(1, 4, 12),
            tokens(5, 9, 4, heads=3),
        ],
    },
    mistakes=ROTATE_MISTAKES,
)
check_rotate = ROTATE.check


# The angles of a grid


def centers(n: int, other: int) -> Tensor:
    """The centers of n patches on an axis from -1 to 1; the other axis does not matter."""
    return (2 * torch.arange(n, dtype=torch.float64) + 1) / n - 1


def exponents(head_dim: int) -> Tensor:
    """What theta is raised to: 0, 4/d, 8/d, ..."""
    return torch.arange(head_dim // 4, dtype=torch.float64) * 4 / head_dim


def angles_of(
    grid: Grid,
    head_dim: int,
    place: Callable[[int, int], Tensor] = centers,
    power: Callable[[int], Tensor] = exponents,
    theta: float = 100.0,
    circle: float = 2 * math.pi,
    sign: int = -1,
) -> Tensor:
    """The angles with another place, exponent, theta or factor."""
    rows, cols = place(*grid), place(*grid[::-1])
    frequencies = circle * theta ** (sign * power(head_dim))
    by_row = torch.outer(rows, frequencies).repeat_interleave(grid[1], dim=0)
    by_col = torch.outer(cols, frequencies).repeat(grid[0], 1)
    return torch.cat([by_row, by_col], dim=1).float()


def halves(change: Callable[[Tensor], Tensor]) -> Function:
    """The right angles (N, 2, d/4), axis by axis, changed."""
    return lambda grid, head_dim: change(angles_of(grid, head_dim).unflatten(1, (2, -1))).flatten(1)


def one_row(grid: Grid, head_dim: int) -> Tensor:
    """The angles of patches that are counted from the first to the last, without rows."""
    N = math.prod(grid)
    return angles_of((N, 1), head_dim)[:, : head_dim // 4].repeat(1, 2)


def observe_angles(answer: Function, grid: Grid, head_dim: int) -> dict[str, Tensor]:
    """Observe angles as float32.

    raises: Mistake for those that learn
    """
    got = answer(grid, head_dim)
    if not isinstance(got, Tensor) or got.is_complex():
        return {"": got}
    reject_if(
        got.requires_grad, "is learned, but the angles are fixed: no nn.Parameter, no requires_grad"
    )
    return {"": got.float()}


def one_half(got: Any, right: Tensor, grid: Grid, head_dim: int) -> str | None:
    """Say which half of the angles is wrong, if the other one is right."""
    if not isinstance(got, Tensor):
        return None
    for name, other, half in (("row", "column", 1), ("column", "row", 0)):
        if same(got.chunk(2, dim=1)[1 - half], right.chunk(2, dim=1)[1 - half]):
            return f"the angles of the {name} are right, but those of the {other} are not"
    return None


ANGLES_MISTAKES: dict[str, Function] = variants(angles_of, {
    "counts rows and columns 0, 1, 2, ..., but places go from -1 to 1 on each axis, "
    "whatever the grid":
        {"place": lambda n, other: torch.arange(n, dtype=torch.float64)},
    "the first and the last patch are at -1 and 1, but their centers lie half a patch inside":
        {"place": lambda n, other: torch.linspace(-1, 1, n, dtype=torch.float64)},
    "places go from 0 to 1, but they should go from -1 to 1":
        {"place": lambda n, other: (torch.arange(n, dtype=torch.float64) + 0.5) / n},
    "takes the left or upper edge of each patch instead of its center":
        {"place": lambda n, other: 2 * torch.arange(n, dtype=torch.float64) / n - 1},
    "takes the right or lower edge of each patch instead of its center":
        {"place": lambda n, other: 2 * torch.arange(1, n + 1, dtype=torch.float64) / n - 1},
    "places go from 0 to 2: subtract 1":
        {"place": lambda n, other: centers(n, other) + 1},
    "places go from -1 to 0: multiply by 2 before 1 is subtracted":
        {"place": lambda n, other: (centers(n, other) - 1) / 2},
    "only 0.5 is divided by the number of patches: a pair of parentheses is missing":
        {"place": lambda n, other: 2 * torch.arange(n, dtype=torch.float64) + 0.5 / n - 1},
    "divides by n - 1, but each axis has n patches":
        {"place": lambda n, other: 2 * (torch.arange(n, dtype=torch.float64) + 0.5) / (n - 1) - 1},
    "rows and columns are divided by the same number, but each axis goes from -1 to 1":
        {"place": lambda n, other: centers(n, other) * n / max(n, other)},
    "rows are divided by the number of columns, and columns by that of rows: "
    "that is another grid's":
        {"place": lambda n, other:
            2 * (torch.arange(n, dtype=torch.float64) + 0.5) / other - 1},
    "2 pi is missing: the highest frequency is 2 pi": {"circle": 1.0},
    "pi instead of 2 pi": {"circle": math.pi},
    "theta is 10,000, as in language models, but it should be 100": {"theta": 10000.0},
    "the frequencies rise, but they should fall: divide by the power of theta": {"sign": 1},
    "the exponents are 2i/d, but each axis has only d/4 frequencies, so they are 4i/d":
        {"power": lambda d: exponents(d) / 2},
    "the exponents are i/d, but the last one has to be 1 - 4/d, so they are 4i/d":
        {"power": lambda d: exponents(d) / 4},
    "i begins at 1, but it should begin at 0, where the frequency is 2 pi":
        {"power": lambda d: exponents(d) + 4 / d},
    "360 instead of 2 pi: angles are radians, as cos and sin need them": {"circle": 360.0},
    "the last exponent is 1, but it should be 1 - 4/d":
        {"power": lambda d: torch.linspace(0, 1, d // 4, dtype=torch.float64)},
}) | {
    "row and column are swapped: the first half of the angles grows with the row":
        halves(lambda x: x.flip(1)),
    "row and column alternate, but all angles of the row come first, then those of the column":
        halves(lambda x: x.mT),
    "the patches go from top to bottom first, but they go from left to right, then down":
        lambda grid, head_dim: (
            angles_of(grid, head_dim).unflatten(0, grid).transpose(0, 1).flatten(0, 1)
        ),
    "row and column are swapped, in the order of the patches, too":
        lambda grid, head_dim: angles_of(grid[::-1], head_dim),
    "counts the patches one after the other, without rows: "
    "the number of a patch alone gives neither row nor column":
        one_row,
    "gives d angles a patch, but a pair needs one: d/2":
        lambda grid, head_dim: angles_of(grid, head_dim).repeat(1, 2),
    "only the patches of the grid have angles, not the class token":
        lambda grid, head_dim: torch.nn.functional.pad(angles_of(grid, head_dim), (0, 0, 1, 0)),
    "flatten the grid: (N, d/2)":
        lambda grid, head_dim: angles_of(grid, head_dim).unflatten(0, grid),
    "gives cosines: return the angles themselves":
        lambda grid, head_dim: angles_of(grid, head_dim).cos(),
    "gives d/4 angles a patch, but row and column have d/4 each: put them side by side":
        lambda grid, head_dim: angles_of(grid, head_dim).unflatten(1, (2, -1)).sum(1),
    "flatten the angles of row and column: (N, d/2)":
        lambda grid, head_dim: angles_of(grid, head_dim).unflatten(1, (2, -1)),
    "adds up the angles of row and column, but each has half of the pairs":
        lambda grid, head_dim: (
            angles_of(grid, head_dim).unflatten(1, (2, -1)).sum(1).repeat(1, 2)
        ),
}  # fmt: skip
ANGLES = Exercise(
    name="rotary_angles",
    reference=angles_of,
    outcome=Outcome(observe=observe_angles),
    wording=Wording(
        when="for grid {} and heads of width {}".format,
        says="{message}",
        odd=one_half,
        unknown="gives the wrong numbers: an angle is a place from -1 to 1, times 2 pi, "
        "divided by 100 to the power of 4i/d",
    ),
    ideas={
        "gives (N, d/2) fixed angles": [forms],
        "row, then column, at places from -1 to 1 and d/4 frequencies": [
            fixed(*sizes)
            for sizes in (((2, 3), 8), ((4, 6), 16), ((5, 2), 12), ((7, 7), 64), ((1, 4), 8))
        ],
    },
    mistakes=ANGLES_MISTAKES,
)
check_rotary_angles = ANGLES.check
