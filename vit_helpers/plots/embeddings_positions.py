"""Notebook 02: how similar position embeddings are, and what resizing does to them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow

Box = tuple[float, float, float, float]  # left, top, width, height


def draw_similarity(
    similar: Tensor,
    grid: tuple[int, int],
    ax: Axes | None = None,
    title: str | None = None,
    low: float = -0.6,
    cmap: Any = style.VALUES,
) -> tuple[Axes, AxesImage]:
    """Draw a grid of small maps: how similar the vector of each place is to those of all places.

    similar: (N, N), at most 1;  grid: rows and columns of places
    low    : the value of the lowest color;  cmap: `style.SIGNED` with low = -1 shows the sign
    returns: the axes, and what was drawn, for `color_bar`
    """
    ax = style.hide_axes(style.new_axes(ax, 5, 4), title)
    rows, cols = grid
    canvas = torch.full(
        (rows * (rows + 1) - 1, cols * (cols + 1) - 1), float("nan")
    )  # white lines between the maps
    for n, vector_map in enumerate(similar.detach().cpu()):
        r, c = divmod(n, cols)
        canvas[r * (rows + 1) :, c * (cols + 1) :][:rows, :cols] = vector_map.reshape(grid)
    return ax, ax.imshow(canvas, cmap=cmap, vmin=low, vmax=1, interpolation="nearest")


def frame_maps(ax: Axes, grid: tuple[int, int]) -> Axes:
    """Frame every small map of `draw_similarity` thinly, for color maps whose zero is white."""
    rows, cols = grid
    for r in range(rows):
        for c in range(cols):
            corner = (c * (cols + 1) - 0.5, r * (rows + 1) - 0.5)
            ax.add_patch(
                Rectangle(
                    corner,
                    cols,
                    rows,
                    fill=False,
                    edgecolor=style.LINE,
                    linewidth=0.8,
                    clip_on=False,
                )
            )
    return ax


def draw_halo(halo: pd.DataFrame, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw a column for each way to train, with marks for each seed.

    One mark is of positions beside each other, one of those far apart.

    halo: rows of a training, with the columns augmentation, beside and far
    """
    ax, ways = style.new_axes(ax, 9, 3.2), list(halo["augmentation"].unique())
    marks = (
        ("beside", "o", style.SERIES[0], -0.14, "neighbors"),
        ("far", "^", style.SERIES[1], 0.14, "more than 3 apart"),
    )
    trainings = halo.groupby("augmentation").cumcount()
    jitter = 0.022 * (
        trainings - trainings.max() / 2
    )  # side by side, so that equal values do not hide each other
    for kind, marker, color, aside, label in marks:
        x = halo["augmentation"].map(ways.index) + aside + jitter
        ax.plot(x, halo[kind], marker, color=color, label=label, markersize=5)
    ax.axhline(0, color=style.LINE, linewidth=1)
    ax.set_xticks(range(len(ways)), ways)
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    return style.style_axes(ax, title, None, "mean cosine similarity")


def draw_numbered_map(
    values: Tensor,
    ax: Axes | None = None,
    title: str | None = None,
    place: int | None = None,
    texts: Sequence[str] | None = None,
) -> tuple[Axes, AxesImage]:
    """Draw a grid of cosines, in a small one with numbers, and a frame around one place.

    values: (rows, cols), from -1 to 1;  place: counted along the rows
    texts : for the cells, instead of the cosines
    returns: the axes, and what was drawn, for `color_bar`
    """
    ax = style.style_axes(style.new_axes(ax, 4, 4), title, "column", "row")
    drawn = ax.imshow(values.detach().cpu(), cmap=style.SIGNED, vmin=-1, vmax=1)
    rows, cols = values.shape
    small = max(rows, cols) <= 8
    for n, value in enumerate(values.flatten().tolist() if small else ()):
        text = f"{value:.1f}".replace("-0.0", "0.0") if texts is None else texts[n]
        ink = style.ink_on(drawn.to_rgba([value])[0])
        ax.text(
            n % cols,
            n // cols,
            text,
            color=ink,
            ha="center",
            va="center",
            fontsize=style.TEXT_SIZE - 1,
        )
    if place is not None:
        corner = (place % cols - 0.5, place // cols - 0.5)
        ax.add_patch(
            Rectangle(
                corner, 1, 1, fill=False, edgecolor="black", linewidth=2, path_effects=style.HALO
            )
        )
    if small:
        ax.set(xticks=range(cols), yticks=range(rows))
    return ax, drawn


def draw_accuracies(
    draws: dict[str, Sequence[float]],
    ax: Axes | None = None,
    title: str | None = None,
    scale: dict[str, float] | None = None,
) -> Axes:
    """Draw a bar for each way to classify the same images: the mean of its draws.

    Where there are several draws, each is a dot.

    draws: name of a bar, and accuracies from 0 to 1
    scale: name and accuracy of a dashed line to compare them with
    """
    ax = style.new_axes(ax, 9, 2.8)
    for row, values in enumerate(draws.values()):
        middle = sum(values) / len(values)
        note = f", mean of {len(values)} draws (dots)" if len(values) > 1 else ""
        ax.barh(row, middle, color=style.SERIES[0], height=0.65)
        if (
            len(values) > 1
        ):  # dots a little up and down, so that equal values do not hide each other
            rows = [row + 0.1 * (i - (len(values) - 1) / 2) for i in range(len(values))]
            ax.plot(values, rows, "o", color=style.SERIES[1], markersize=6, markeredgecolor="white")
        ax.text(
            max([middle, *values]) + 0.015,
            row,
            f"{middle:.2f}{note}",
            va="center",
            fontsize=style.TEXT_SIZE,
        )
    for name, value in (scale or {}).items():
        ax.axvline(value, color="white", linewidth=4)  # so that the dashes are seen on the bars
        ax.axvline(value, color=style.TEXT, linewidth=1.5, linestyle="--")
        ax.text(value + 0.015, -0.75, f"{name}: {value:.2f}", va="center", fontsize=style.TEXT_SIZE)
        ax.set_ylim(-1.1, len(draws) - 0.6)
    ax.set_yticks(range(len(draws)), list(draws))
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    return style.style_axes(ax, title, "validation accuracy")


def clearest_column(*panels: Tensor) -> tuple[int, int]:
    """Find the channel and the column whose palest cell has the strongest color in all panels.

    All its cells have the same sign.

    panels: (D, rows, cols) each
    """
    palest = [
        torch.maximum(panel.amin(dim=1), (-panel).amin(dim=1)) for panel in panels
    ]  # (D, cols) each
    channel, column = divmod(int(torch.stack(palest).amin(dim=0).argmax()), panels[0].shape[2])
    return channel, column


def column_as_picture(
    column: int, grid: tuple[int, int], new_grid: tuple[int, int]
) -> list[list[Box]]:
    """Find where a column's cells are after resizing the grid: boxes for each old row.

    >>> column_as_picture(1, (2, 2), (4, 4))
    [[(1.5, -0.5, 2.0, 2.0)], [(1.5, 1.5, 2.0, 2.0)]]
    """
    height, width = (new / old for new, old in zip(new_grid, grid, strict=True))
    return [[(column * width - 0.5, row * height - 0.5, width, height)] for row in range(grid[0])]


def column_as_list(
    column: int, grid: tuple[int, int], new_grid: tuple[int, int]
) -> list[list[Box]]:
    """Find where they are after stretching the list of all cells.

    A cell that runs over the end of a row has two boxes.

    >>> column_as_list(1, (2, 2), (3, 3))
    [[(1.75, -0.5, 0.75, 1.0), (-0.5, 0.5, 1.5, 1.0)], [(0.25, 1.5, 2.25, 1.0)]]
    """
    (rows, cols), (_, new_cols) = grid, new_grid
    length = new_grid[0] * new_cols / (rows * cols)
    pieces = []
    for row in range(rows):
        start, end = ((row * cols + column + i) * length for i in (0, 1))
        lines = range(int(start // new_cols), int(-(-end // new_cols)))
        spans = [
            (max(start, line * new_cols), min(end, (line + 1) * new_cols), line) for line in lines
        ]
        pieces.append([(a - line * new_cols - 0.5, line - 0.5, b - a, 1.0) for a, b, line in spans])
    return pieces


def draw_column(
    sheet: Tensor,
    pieces: list[list[Box]],
    limit: float,
    ax: Axes | None = None,
    title: str | None = None,
) -> tuple[Axes, AxesImage]:
    """Draw one channel of the position embeddings, a column's cells framed and joined by arrows.

    sheet : (rows, cols);  limit: the value of full color
    pieces: boxes for each cell of the column, from top to bottom
    returns: the axes, and what was drawn, for `color_bar`
    """
    ax = style.hide_axes(style.new_axes(ax, 4, 4), title)
    drawn = ax.imshow(
        sheet.detach().cpu(), cmap=style.SIGNED, vmin=-limit, vmax=limit, interpolation="nearest"
    )
    middles = []
    for boxes in pieces:
        for left, top, width, height in boxes:
            ax.add_patch(
                Rectangle((left, top), width, height, fill=False, edgecolor="black", linewidth=2)
            )
        left, top, width, height = max(
            boxes, key=lambda box: box[2]
        )  # the larger piece carries the number
        middles.append((left + width / 2, top + height / 2))
    for start, end in pairwise(middles):
        arrow(ax, start, end, color="black", shrinkA=8, shrinkB=8)
    for row, (x, y) in enumerate(middles):
        ground = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        ax.text(
            x, y, str(row), ha="center", va="center", fontsize=11, color=style.TEXT, bbox=ground
        )
    return ax, drawn
