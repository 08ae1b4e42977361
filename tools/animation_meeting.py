"""The animation of notebook 03: one query meets every key, and brings back a weighted average.

The numbers are those of the page's example. The query moves from key to key; beside each key are
the products of their components, which add up to a score. At last every value goes into the output
on a ribbon that is as wide as its weight.
"""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.animation import LOOK, Frames, as_image, eased, in_time, palette_of
from vit_helpers.plots.canvas import fill_cell, frame, short, tint, write

WIDTH, HEIGHT = 904, 366  # of a frame, in pixels, like all positions
CELL = 33  # width and height of a cell
TOP, PITCH = 124, 86  # of the first key; from one key to the next
# left of the keys, the products, their sum, the score, the weight, the values, the output
KEYS, PRODUCTS, SUMS, SCORES, WEIGHTS, VALUES, OUTPUT = 66, 218, 368, 432, 502, 572, 744
WIDE, MEDIUM = 50, 38  # cells with decimals
THICK = 70  # height of a ribbon for a weight of 1
STRONG = 4.0  # a product that has the full color


class Meeting(NamedTuple):
    """One query and the keys and values of T tokens, with all that attention makes of them."""

    labels: Sequence[str]  # T
    name: str  # of the query's token
    query: Tensor  # (d,)
    keys: Tensor  # (T, d)
    values: Tensor  # (T, d)

    @property
    def products(self) -> Tensor:
        """(T, d): component by component."""
        return self.query * self.keys + 0.0  # never -0

    @property
    def scores(self) -> Tensor:
        """(T,): the sums of the products, divided by the root of d."""
        return self.products.sum(dim=1) / len(self.query) ** 0.5

    @property
    def weights(self) -> Tensor:
        """(T,)"""
        return self.scores.softmax(dim=0)

    @property
    def output(self) -> Tensor:
        """(d,)"""
        return self.weights @ self.values


def meeting_of(
    labels: Sequence[str], z: Tensor, matrices: dict[str, Tensor], row: int = 1
) -> Meeting:
    """Compute what meets: the query of one token, and all keys and values.

    z: (T, D);  matrices: {"q": (D, d), "k": (D, d), "v": (D, d)};  row: which token asks
    """
    queries, keys, values = (z @ matrices[role] for role in "qkv")
    return Meeting(labels, labels[row], queries[row], keys, values)


def moments(meeting: Meeting) -> list[tuple[str, float, float]]:
    """List the ideas: a caption, seconds of movement, seconds of rest after it."""
    root = short(len(meeting.query) ** 0.5)
    met = f"The query of {meeting.name} meets the key of {{}}: multiply, and add up"
    first, *others = meeting.labels
    return [
        (f"What is {meeting.name} looking for? Its query meets all keys", 0, 1.6),
        (met.format(first), 0.6, 1.4),
        *[(met.format(label), 0.9, 0.8) for label in others],
        (f"Divided by √d = {root}, the sums are the scores", 0.3, 1.0),
        ("The softmax turns them into weights that sum to 1", 0.3, 1.2),
        ("Each token gives its value, as much as its weight says", 0.8, 3.6),
    ]


def row_top(i: float) -> float:
    """Top of the key of token i."""
    return TOP + PITCH * i


def draw_row(
    ax: Axes, corner: tuple[float, float], numbers: Tensor, color: str, width: float = CELL
) -> None:
    """Draw a vector (n,) as cells in the color of its role, with a frame."""
    for i, number in enumerate(numbers.tolist()):
        x, y = corner[0] + width * i, corner[1]
        fill_cell(ax, (x, y), (width, CELL), tint(color, 0.25))
        size = style.TEXT_SIZE - (width == MEDIUM)  # three digits in a narrow cell
        write(ax, x + width / 2, y + CELL / 2 + 1, short(number), fontsize=size)
    frame(ax, (*corner, width * len(numbers), CELL), color)


def draw_products(ax: Axes, meeting: Meeting, i: int, shown: float) -> None:
    """Draw the products of the query and key i, red above and blue below 0, and their sum.

    shown: from 0 to 1; the products appear in turn, then their sum
    """
    products = meeting.products[i]
    count = len(products)
    colors = matplotlib.colormaps[style.SIGNED](0.5 + products.numpy() / 2 / STRONG * 0.8)
    for j, (number, color) in enumerate(zip(products.tolist(), colors, strict=True)):
        if shown * (count + 1) < j + 1:
            return
        x, y = PRODUCTS + CELL * j, row_top(i)
        fill_cell(ax, (x, y), (CELL, CELL), color[:3])
        write(ax, x + CELL / 2, y + CELL / 2 + 1, short(number), color=style.ink_on(color[:3]))
    frame(ax, (PRODUCTS, row_top(i), CELL * count, CELL), style.LINE, 1)
    if shown == 1:
        write(ax, SUMS - 8, row_top(i) + CELL / 2, "→", color=style.LINE)
        draw_row(ax, (SUMS + 8, row_top(i)), products.sum()[None], style.LINE)


def draw_ribbons(ax: Axes, meeting: Meeting, grown: float) -> None:
    """Draw the way of every value into the output, as wide as its weight."""
    T, d = meeting.values.shape
    weights, middle = meeting.weights, row_top((T - 1) / 2) + CELL / 2
    left, right = VALUES + CELL * d + 2, OUTPUT - 2
    t = np.linspace(0, max(grown, 0.01), 30)
    x, bend = left + (right - left) * t, t * t * (3 - 2 * t)
    low = middle - THICK / 2
    shapes = []
    for i, weight in enumerate(weights.tolist()):
        start, end = row_top(i) + CELL / 2, low + THICK * weight / 2
        low += THICK * weight
        y, half = start + (end - start) * bend, THICK * weight / 2
        shapes.append(np.r_[np.c_[x, y - half], np.c_[x, y + half][::-1]])
    ax.add_collection(PolyCollection(shapes, facecolors=tint(style.VALUE, 0.8), linewidths=0))


def draw_heads(ax: Axes, done: Sequence[float]) -> None:
    """Write what the columns hold, each from when it holds something."""
    softmax, mixed = done[-2], done[-1]
    for x, text, seen in (
        (KEYS + 2 * CELL, "keys", True),
        (PRODUCTS + 2 * CELL, "products", done[1] > 0),
        (SUMS + 8 + CELL / 2, "sum", done[1] == 1),
        (SCORES + WIDE / 2, "score", done[-3] > 0),
        (WEIGHTS + WIDE / 2, "weight", softmax > 0),
        (VALUES + 2 * CELL, "values", mixed > 0),
    ):
        if seen:
            write(ax, x, 66, text, weight="bold")


def draw_query(figure: Figure, meeting: Meeting, met: Sequence[float]) -> None:
    """Draw the query above the key that it meets, or on its way there, in front of the others.

    met: from 0 to 1, how far the meeting with each key is
    """
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
    ax.set_axis_off()
    moved = sum(eased(min(1.0, part / 0.6)) for part in met[1:])
    y = row_top(moved) - CELL - 3
    draw_row(ax, (KEYS, y), meeting.query, style.QUERY)
    if moved == int(moved):  # on its way it would cover another name
        write(ax, KEYS - 10, y + CELL / 2, "query", ha="right", color=style.QUERY)


def draw_moment(meeting: Meeting, number: int = -1, progress: float = 1.0) -> Figure:
    """Draw the frame at `progress` (from 0 to 1) through a moment; by default all is done."""
    captions = [caption for caption, _, _ in moments(meeting)]
    number %= len(captions)
    done = [float(number > k) or progress * (number == k) for k in range(len(captions))]
    T, d = meeting.keys.shape
    met, (scored, weighed, mixed) = done[1 : T + 1], done[T + 1 :]
    figure = Figure((WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
    with matplotlib.rc_context(LOOK):
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
        ax.set_axis_off()
        ax.text(14, 26, captions[number], va="center", fontsize=style.TEXT_SIZE + 4)
        draw_heads(ax, done)
        for i, label in enumerate(meeting.labels):
            y = row_top(i)
            write(ax, KEYS - 10, y + CELL / 2, label, ha="right")
            draw_row(ax, (KEYS, y), meeting.keys[i], style.KEY)
            draw_products(ax, meeting, i, max(0.0, 2.5 * met[i] - 1.5) if i else met[i])
            if scored == 1:
                draw_row(ax, (SCORES, y), meeting.scores[i : i + 1], style.LINE, WIDE)
            if weighed == 1:
                draw_row(ax, (WEIGHTS, y), meeting.weights[i : i + 1], style.SERIES[2], WIDE)
            if mixed:
                draw_row(ax, (VALUES, y), meeting.values[i], style.VALUE)
        draw_query(figure, meeting, met)
        if mixed:
            draw_ribbons(ax, meeting, eased(mixed))
        if mixed == 1:
            y = row_top((T - 1) / 2)
            middle = OUTPUT + d * MEDIUM / 2
            write(ax, middle, y - 34, f"output\nfor {meeting.name}", weight="bold")
            draw_row(ax, (OUTPUT, y), meeting.output, style.VALUE, MEDIUM)
    return figure


def draw_frame(meeting: Meeting, number: int, progress: float) -> Image.Image:
    """Draw what `draw_moment` draws, as an image of RGB pixels: WIDTH x HEIGHT."""
    return as_image(draw_moment(meeting, number, progress))


def draw_frames(meeting: Meeting, step: float = 0.1) -> Frames:
    """Draw all frames of the animation, with their durations in milliseconds.

    step: seconds between frames while things move
    """
    pace = [(moving, rest) for _, moving, rest in moments(meeting)]
    return in_time(pace, step, lambda number, progress: draw_frame(meeting, number, progress))


def palette() -> Image.Image:
    """Make the few colors of all frames: those of roles, of signed numbers, and grays."""
    roles = style.QUERY, style.KEY, style.VALUE, style.SERIES[2], style.LINE
    return palette_of(roles, grays=16)
