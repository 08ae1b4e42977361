"""The drawing kit: tables of numbers, frames, arrows and texts, on a canvas of small cells."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style

COLUMNS = 22.0  # cells that fit side by side on a figure of 9 inches
UNIT = 0.33  # side of a cell without a number
ROLES = {"q": style.QUERY, "k": style.KEY, "v": style.VALUE}


def new_canvas(rows: float, title: str) -> tuple[Figure, Axes]:
    """Make a figure whose unit is the side of a small cell, counted from the top left corner.

    The title fills the first row.
    """
    fig = style.blank_figure(9, 9 * rows / COLUMNS)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, COLUMNS), ylim=(rows, 0))
    ax.set_axis_off()
    write(ax, 0.2, 0.6, title, ha="left", fontsize=style.TEXT_SIZE + 1)
    return fig, ax


def draw_table(
    ax: Axes,
    corner: tuple[float, float],
    numbers: Tensor,
    color: str = style.LINE,
    name: str = "",
    shape: str = "",
    labels: Sequence[str] = (),
    heads: Sequence[str] = (),
    width: float = 1,
    digits: int = 2,
    strength: Tensor | None = None,
    grounds: Tensor | None = None,
    texts: Sequence[str] = (),
) -> None:
    """Draw numbers, one cell each, with a name above, the shape below, labels at rows and columns.

    corner  : left and top;  numbers: (rows, columns);  width: of a cell
    digits  : behind the point, where there are any
    strength: how deep each cell is tinted, from 0 to 1
    grounds : (rows, columns, 3), the colors of cells instead
    texts   : what the cells show, row by row, instead of `short` numbers
    """
    left, top = corner
    rows, columns = numbers.shape
    for i in range(rows):
        for j in range(columns):
            depth = 0.25 if strength is None else 0.75 * float(strength[i, j])
            ground = tint(color, depth) if grounds is None else grounds[i, j].tolist()
            fill_cell(ax, (left + j * width, top + i), (width, 1), ground)
            text = texts[i * columns + j] if texts else short(float(numbers[i, j]), digits)
            write(ax, left + (j + 0.5) * width, top + i + 0.5, text, color=style.ink_on(ground))
    frame(ax, (left, top, columns * width, rows), color)
    middle = left + columns * width / 2
    write(ax, middle, top - (1.25 if heads else 0.45), name, weight="bold")
    write(ax, middle, top + rows + 0.45, shape)
    for i, label in enumerate(labels):
        write(ax, left - 0.2, top + i + 0.5, label, ha="right")
    for j, head in enumerate(heads):
        write(ax, left + (j + 0.5) * width, top - 0.45, head)


def draw_blank(
    ax: Axes,
    corner: tuple[float, float],
    depths: Tensor,
    color: str,
    name: str = "",
    below: str = "",
) -> None:
    """Draw a table in small cells without numbers.

    corner: left and top;  depths: (rows, columns), how deep cells are tinted, from 0 to 1
    """
    left, top = corner
    rows, columns = depths.shape
    for i in range(rows):
        for j in range(columns):
            ground = tint(color, float(depths[i, j]))
            fill_cell(ax, (left + j * UNIT, top + i * UNIT), (UNIT, UNIT), ground)
    frame(ax, (left, top, columns * UNIT, rows * UNIT), color, 1)
    write(ax, left + columns * UNIT / 2, top - 0.45, name, weight="bold")
    write(ax, left + columns * UNIT / 2, top + rows * UNIT + 0.45, below)


def draw_bus(ax: Axes, start: tuple[float, float], ends: Sequence[float], bottom: float) -> None:
    """Draw a line from `start` to below a row of tables, with an arrow up to each of them.

    ends: where the arrows are, from left to right;  bottom: of the tables
    """
    x, middle = start
    turn = (x + ends[0]) / 2
    y = bottom + 0.55
    ax.plot([x, turn, turn, ends[-1]], [middle, middle, y, y], color=style.TEXT, linewidth=1)
    for end in ends:
        arrow(ax, (end, y), (end, bottom + 0.05))


def tint(color: str, depth: float) -> list[float]:
    """Mix a color with white: depth 0 is white, 1 the color itself."""
    return [1 - depth * (1 - part) for part in to_rgb(color)]


def fill_cell(
    ax: Axes, corner: tuple[float, float], size: tuple[float, float], ground: Any
) -> None:
    """Draw a cell: its left and top, its width and height, and its color; the edge is white."""
    ax.add_patch(Rectangle(corner, *size, facecolor=ground, edgecolor="white"))


def frame(ax: Axes, box: tuple[float, float, float, float], color: str, width: float = 2) -> None:
    """Draw a frame around cells: left, top, columns, rows."""
    left, top, columns, rows = box
    ax.add_patch(
        Rectangle((left, top), columns, rows, fill=False, edgecolor=color, linewidth=width)
    )


def arrow(
    ax: Axes | Figure,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    **options: Any,
) -> FancyArrowPatch:
    """Draw an arrow in the units of axes or, from 0 to 1, of a figure; return it.

    text: written half a cell above its middle;  options: as for matplotlib's `FancyArrowPatch`
    """
    defaults = {
        "arrowstyle": "-|>",
        "mutation_scale": 10,
        "color": style.TEXT,
        "shrinkA": 0,
        "shrinkB": 0,
        "zorder": 3,
    }
    patch = FancyArrowPatch(start, end, **defaults | options)
    patch.set_transform(ax.transData if isinstance(ax, Axes) else ax.transFigure)
    ax.add_artist(patch)
    if text:
        write(ax, (start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 0.45, text)
    return patch


def write(ax: Axes | Figure, x: float, y: float, text: str, **options: Any) -> None:
    """Write a text around its middle, in the units of axes or, from 0 to 1, of a figure.

    options: as for matplotlib's `text`
    """
    defaults = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    ax.text(x, y, text, **defaults | options)


def product(left: Tensor, right: Tensor, digits: int = 2) -> tuple[str, str]:
    """Write out a dot product, and what it gives.

    left, right: (n,);  digits: behind the point, where there are any

    >>> product(Tensor([1, 2]), Tensor([3, 4]))
    ('1·3 + 2·4', '= 11')
    """
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    terms = " + ".join(f"{short(a, digits)}·{short(b, digits)}" for a, b in pairs)
    return terms, f"= {short(float(left @ right), digits)}"


def short(number: float, digits: int = 2) -> str:
    """Write a number that fits a cell: whole numbers without a point, others with a few digits.

    >>> short(-2.0), short(0.665), short(-0.5)
    ('-2', '0.67', '-0.50')
    """
    is_whole = abs(number - round(number)) < 5e-4
    return f"{number:.0f}" if is_whole else f"{number:.{digits}f}"
