"""Notebook 02: how similar position embeddings are, and what resizing does to them."""

from collections.abc import Mapping, Sequence
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
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar

MARKS = ("o", "^")

Box = tuple[float, float, float, float]  # left, top, width, height


def draw_learned(tables: Mapping[str, Tensor], grid: tuple[int, int]) -> Picture:
    """Draw how similar the position embeddings of all places are, before and after training.

    tables: {when: (N, N)} of cosines;  grid: rows and columns of places
    """
    fig, axes = style.new_figure(9, 4.5, ncols=len(tables), gridspec_kw={"wspace": 0.08})
    style.title_figure(fig, "In training, places that belong together become similar")
    for ax, (when, similar) in zip(axes, tables.items(), strict=True):
        _, drawn = draw_similarity(similar, grid, ax, when, low=-1, cmap=style.SIGNED)
        frame_maps(ax, grid)
    color_bar(drawn, axes, "cosine similarity")
    N = grid[0] * grid[1]
    return Picture(
        fig,
        "A small map for each place, of the places whose position embeddings are similar to its "
        "own, before and after training.",
        f"Two grids of {N} small maps. Before training, each map has one dark red cell on noise. "
        "After training, the cell is surrounded by red ones, and the red area moves from map to "
        "map.",
    )


def draw_models(models: Mapping[str, Mapping[tuple[int, int], Tensor]]) -> Picture:
    """Draw, for a few models, maps of the places that are similar to nine of them.

    models: {name: {(row, column): (rows, columns) of cosines}}, nine maps each, row by row
    """
    fig = style.blank_figure(9, 5.6, layout="constrained")
    style.title_figure(fig, "Ours has found the rows, the large model columns, too")
    parts = fig.subfigures(1, len(models), wspace=0.04)
    for part, (name, maps) in zip(parts, models.items(), strict=True):
        part.suptitle(name, fontsize=style.TEXT_SIZE + 1, color=style.TEXT)
        axes = part.subplots(3, 3)
        for ax, ((row, col), similar) in zip(axes.flat, maps.items(), strict=True):
            drawn = ax.imshow(similar, cmap=style.SIGNED, vmin=-1, vmax=1, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_color(style.LINE)
            ax.set_xlabel(f"({row}, {col})", fontsize=style.TEXT_SIZE, color=style.TEXT)
        color_bar(drawn, axes, "cosine similarity", location="bottom")
    return Picture(
        fig,
        "Nine maps for each of two models: the places whose position embeddings are similar to "
        "one place.",
        f"Nine maps each for {' and '.join(models)}. In the first, the red around an outer place "
        "reaches along its row and fades along its column; in the second, every place is the "
        "middle of a red cross, with fainter lines beside it.",
    )


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


def draw_halo(halo: pd.DataFrame, ways: Mapping[str, str]) -> Picture:
    """Draw a column for each way to train, with marks for each seed.

    One mark is of positions beside each other, one of those far apart.

    halo: rows of a training, with the columns augmentation, beside and far
    ways: {value of augmentation: its name below the column}
    """
    fig, ax = style.new_figure(9, 3.4)
    marks = {"beside": ("neighbors", -0.14), "far": ("more than 3 apart", 0.14)}
    trainings = halo.groupby("augmentation").cumcount()
    jitter = 0.022 * (trainings - trainings.max() / 2)  # so that equal values are side by side
    for (kind, (label, aside)), marker, color in zip(
        marks.items(), MARKS, style.SERIES, strict=False
    ):
        x = halo["augmentation"].map(list(ways).index) + aside + jitter
        ax.plot(x, halo[kind], marker, color=color, label=label, markersize=5)
    ax.axhline(0, color=style.LINE, linewidth=1)
    ax.set_xticks(range(len(ways)), list(ways.values()))
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    title = "Without shifts the halo is weaker, but it is there"
    style.style_axes(ax, title, None, "mean cosine similarity")
    means = halo.groupby("augmentation", sort=False)[list(marks)].mean().round(2) + 0.0  # no -0.0
    told = [
        f"{' '.join(name.split())} {means['beside'][way]} and {means['far'][way]}"
        for way, name in ways.items()
    ]
    return Picture(
        fig,
        "The mean cosine of neighbors and of distant places, for each way to train and each seed.",
        f"Cosines of neighbors, and of places more than 3 apart, mean of all seeds: "
        f"{'; '.join(told)}.",
    )


def draw_waves(table: Tensor, columns: Sequence[int] = (0, 3, 6, 10)) -> Picture:
    """Draw a few columns of sines as curves, each above its numbers as colors.

    table: (positions, m): m/2 sines, then m/2 cosines, from fast to slow
    """
    fig, axes = style.new_figure(
        9, 4.6, nrows=2 * len(columns), height_ratios=[2.2, 1] * len(columns), sharex=True
    )
    style.title_figure(fig, "Fast waves tell neighbors apart, slow ones distant positions")
    length, m = table.shape
    fine = torch.linspace(0, length - 1, 20 * length)
    for wave, strip, column in zip(axes[::2], axes[1::2], columns, strict=True):
        wave.plot(fine, (fine * 10000 ** (-2 * column / m)).sin(), color=style.LINE, linewidth=1)
        wave.plot(range(length), table[:, column], "o", color=style.SERIES[0], markersize=4)
        wave.set(ylim=(-1.3, 1.3), xlim=(-0.5, length - 0.5))
        style.hide_axes(wave)
        values = table[None, :, column]
        drawn = strip.imshow(values, aspect="auto", cmap=style.SIGNED, vmin=-1, vmax=1)
        style.style_axes(strip).set(yticks=[])
        strip.tick_params(bottom=strip is axes[-1])
        strip.set_ylabel(f"sine {column}", rotation=0, ha="right", va="center", fontsize=12)
    axes[-1].set_xlabel("position", fontsize=style.TEXT_SIZE)
    color_bar(drawn, axes, "value", shrink=0.6)
    return Picture(
        fig,
        "Sine waves from fast to slow, and the values that each gives to the positions, as colors.",
        f"Sines {', '.join(map(str, columns))} at {length} positions, each a curve of dots above a "
        "strip of colors: the first changes from red to blue every few positions, the last hardly "
        "at all.",
    )


def draw_forms(forms: Mapping[str, Tensor], place: int) -> Picture:
    """Draw the cosines of one place with all others, for two forms of position embeddings.

    forms: {title: (rows, columns)} of cosines;  place: counted along the rows
    """
    fig, axes = style.new_figure(9, 3.7, ncols=len(forms))
    style.title_figure(fig, "Only the 2-D form knows what is above and below")
    for ax, (title, values) in zip(axes, forms.items(), strict=True):
        _, drawn = draw_numbered_map(values, ax, title, place)
    color_bar(drawn, axes, "cosine, mean removed")
    return Picture(
        fig,
        "Maps of the cosines of one place with all others, for computed position embeddings in "
        "one and in two dimensions.",
        f"Maps of the cosines of place {place} with all others, for {' and '.join(forms)}: first "
        "similar places lie along the row, then in both directions.",
    )


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


def draw_accuracies(draws: Mapping[str, Sequence[float]], guess: float) -> Picture:
    """Draw a row of dots for each way to classify the same images, a dot for each draw.

    draws: {name of a row: accuracies from 0 to 1};  guess: that of always the same class
    """
    fig, ax = style.new_figure(9, 2.9)
    ax.axvline(guess, color=style.LINE, linewidth=1.5, linestyle="--")
    ax.text(guess + 0.01, -0.75, "always the most frequent class", va="center", fontsize=11)
    for row, values in enumerate(draws.values()):
        lift = [0.1 * (i - (len(values) - 1) / 2) for i in range(len(values))]  # equal ones apart
        ax.plot(values, [row + y for y in lift], "o", color=style.SERIES[0], markersize=7)
        middle = sum(values) / len(values)
        note = f" (mean of {len(values)} draws)" if len(values) > 1 else ""
        ax.text(max(values) + 0.02, row, f"{middle:.2f}{note}", va="center", fontsize=11)
    ax.set_yticks(range(len(draws)), list(draws))
    ax.set(xlim=(0, 1), ylim=(len(draws) - 0.5, -1.1))
    style.style_axes(ax, "Resizing as an image keeps most of the accuracy", "validation accuracy")
    means = [f"{name} {sum(values) / len(values):.2f}" for name, values in draws.items()]
    return Picture(
        fig,
        "Validation accuracies with position embeddings that were resized, stretched as a list, "
        "put in random order, or random.",
        f"Validation accuracies: {', '.join(means)}; always the most frequent class {guess:.2f}.",
    )


def draw_torn(panels: Mapping[str, tuple[Tensor, list[list[Box]]]]) -> Picture:
    """Draw one channel of position embeddings on a few grids, and where a column's cells are.

    panels: {title: (rows, columns) of numbers, and boxes for each cell of the column}
    """
    fig, axes = style.new_figure(9, 3.5, ncols=len(panels))
    style.title_figure(fig, "Resized as an image, a column stays a column")
    limit = max(sheet.abs().max().item() for sheet, _ in panels.values())
    for ax, (title, (sheet, pieces)) in zip(axes, panels.items(), strict=True):
        _, drawn = draw_column(sheet, pieces, limit, ax, title)
    color_bar(drawn, axes, "value")
    return Picture(
        fig,
        "One channel of the position embeddings on three grids, with the cells of one column "
        "framed and joined by arrows.",
        f"One channel on the grids {', '.join(panels)}: the framed cells are a column at first, "
        "still a column after resizing, and scattered over the stretched list.",
    )


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
