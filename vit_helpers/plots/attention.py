"""Notebook 03: similar patches, scores without 1/√d, masks, heads, times, and two mistakes."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import (
    color_bar,
    draw_box,
    draw_image,
    draw_over,
    draw_squares,
    square_key,
)


def draw_similar_patches(
    photo: Tensor, weights: Tensor, picked: Mapping[str, tuple[int, int]], top: float = 0.014
) -> Picture:
    """Draw a photo with a few patches framed, and for each of them its weights over the photo.

    photo : (C, S, S), from 0 to 1;  weights: (N, N), row i holds those of patch i
    picked: {name: (row, column)} of at least two patches;  top: the weight that is drawn darkest
    """
    columns = round(len(weights) ** 0.5)
    P = photo.shape[-1] // columns
    maps = {name: weights[columns * row + col] for name, (row, col) in picked.items()}
    *alike, correlation = most_alike(maps)
    fig, axes = style.new_figure(9, 2.8, ncols=1 + len(picked))
    pair = " and ".join(alike)
    style.title_figure(fig, f"Raw pixels: {pair} get almost the same weights")
    draw_image(photo, axes[0], "query patches")
    options = {"fontsize": style.TEXT_SIZE + 1, "color": style.TEXT, "va": "center"}
    for (name, (row, col)), ax in zip(picked.items(), axes[1:], strict=True):
        heat = maps[name].reshape(columns, columns)
        _, drawn = draw_over(photo, heat, ax, f"similar to {name}", top=top)
        box = (P * col - 3.5, P * row - 3.5, P + 6, P + 6)  # a little larger than the patch
        for framed in (axes[0], ax):
            draw_box(framed, box, style.QUERY, linewidth=2, path_effects=style.HALO)
        text = axes[0].text(P * col + P + 7, P * row + P / 2, name, **options)
        text.set_path_effects(style.HALO)
    color_bar(drawn, axes, "weight\n(square-root scale)")
    return Picture(
        fig,
        "A photo with framed patches, and overlays on the patches whose pixels are similar.",
        f"A photo with framed patches, {', '.join(picked)}, and for each of them an overlay that "
        f"is darker on patches with more similar pixels. The overlays of {pair} mark almost the "
        f"same patches: their correlation is {correlation:.2f}.",
    )


def most_alike(maps: Mapping[str, Tensor]) -> tuple[str, str, float]:
    """Return the names of the two maps with the highest correlation, and that correlation."""
    correlations = torch.corrcoef(torch.stack(list(maps.values())))
    pairs = combinations(range(len(maps)), 2)
    first, second = max(pairs, key=lambda pair: correlations[pair].item())
    names = list(maps)
    return names[first], names[second], correlations[first, second].item()


def draw_saturation(scaling: pd.DataFrame) -> Picture:
    """Draw how scores, weights and gradients change with the width, with and without 1/√d.

    scaling: a row for each of ("with" or "without", d); columns "standard deviation" of the
             scores, "largest weight", and "mean" and "median" norm of the query gradient
    """
    fig, axes = style.new_figure(9, 3.8, ncols=3)
    style.title_figure(fig, "Without 1/√d, the softmax saturates as d grows")
    columns = {
        "standard deviation": ("Scores spread out", "standard deviation of scores"),
        "largest weight": ("One weight nears 1", "largest weight"),
        "mean": ("Half of the queries\nlose their gradient", "norm of query gradient"),
    }
    styles = (("without", style.SERIES[2], "o--", "s:"), ("with", style.SERIES[0], "o-", "s-."))
    for name, color, dash, dots in styles:
        part = scaling.loc[name]
        for ax, key in zip(axes, columns, strict=True):
            ax.plot(part.index, part[key], dash, color=color, label=f"{name} 1/√d, mean")
        label = f"{name}, median"
        axes[2].plot(part.index, part["median"], dots, color=color, mfc="white", label=label)
    widths = scaling.loc["with"].index.tolist()
    for ax, (title, unit) in zip(axes, columns.values(), strict=True):
        style.style_axes(ax, title, "width d", unit).loglog()
        ax.set_xticks(widths, map(str, widths))
        ax.minorticks_off()
    axes[0].set_yticks([1, 4, 16], ["1", "4", "16"])
    axes[1].set(yscale="linear", ylim=(0, 1))
    handles = axes[2].get_legend_handles_labels()
    fig.legend(*handles, loc="outside lower center", ncols=4, fontsize=11, frameon=False)
    first, last = (scaling.loc["without", d] for d in (widths[0], widths[-1]))
    keys = ("standard deviation", "largest weight", "median")
    grown = [f"{first[key]:.2g} to {last[key]:.2g}" for key in keys]
    return Picture(
        fig,
        "Scores, weights and gradients against the width, with and without division by its root.",
        f"From d = {widths[0]} to {widths[-1]} without the division, the standard deviation of "
        f"the scores grows from {grown[0]} and the mean of the largest weight from {grown[1]}, and "
        f"the median gradient falls from {grown[2]}; with the division, all lines are flat.",
    )


def draw_masked_weights(panels: Mapping[str, Tensor]) -> Picture:
    """Draw attention weights as squares with their numbers; a weight of zero is a cross.

    panels: {title: weights (T, T)}
    """
    fig, axes = style.new_figure(9, 4.0, ncols=len(panels), sharey=True)
    style.title_figure(fig, "A hidden key gets the weight 0 (×), and each row still sums to 1")
    for ax, (name, weights) in zip(axes, panels.items(), strict=True):
        drawn = ax.imshow(weights, cmap=style.VEIL, vmin=0, vmax=1)
        side = "query" if ax is axes[0] else None
        ticks = range(len(weights))
        style.style_axes(ax, name, "key", side).set(xticks=ticks, yticks=ticks)
        for (query, key), weight in enumerate_cells(weights):
            *color, alpha = drawn.to_rgba(weight)
            ink = style.ink_on([1 - alpha * (1 - part) for part in color])
            write_cell(ax, key, query, f"{weight:.2f}" if weight else "×", ink)
    T = len(next(iter(panels.values())))
    crosses = [f"{int((w == 0).sum())} for “{name}”" for name, w in panels.items()]
    return Picture(
        fig,
        "Attention weights under different masks, with a cross wherever a key is hidden.",
        f"Attention matrices of {T} by {T} weights with a cross for every hidden key: "
        f"{', '.join(crosses)}. In every row, the other weights sum to 1.",
    )


def draw_head_weights(
    images: Tensor, weights: Tensor, names: Sequence[str], query: int, top: float = 0.35
) -> Picture:
    """Draw what every head of a layer attends to, for the same query patch on each image.

    images: (B, C, S, S), from 0 to 1;  weights: (B, h, N), of the query for all patches
    names : of the images;  query: the number of the patch, which is framed
    top   : the weight whose square fills its patch
    """
    B, h, N = weights.shape
    side = round(N**0.5)
    P, size = images.shape[-1] // side, images.shape[-1]
    row, col = divmod(query, side)
    fig, axes = style.new_figure(9, 0.1 + 2 * B, nrows=B, ncols=1 + h, squeeze=False)
    style.title_figure(fig, "Weights differ from head to head, and from image to image")
    options = {"fontsize": style.TEXT_SIZE + 1, "color": style.TEXT, "ha": "left"}
    for line, name, image, of_image in zip(axes, names, images, weights, strict=True):
        draw_image(image, line[0])
        line[0].text(-0.275 * size, size / 2 - 0.2, f"a {name}", **options)
        for ax, of_head in zip(line[1:], of_image, strict=True):
            draw_squares(image, of_head, (side, side), ax, top=top)
        for ax in line:
            draw_box(ax, (P * col - 0.5, P * row - 0.5, P, P), style.QUERY, linewidth=3)
    titles = [f"query patch {query}", *(f"head {i + 1}" for i in range(h))]
    for ax, title in zip(axes[0], titles, strict=True):
        style.hide_axes(ax, title)
    square_key(fig, top=top)
    largest = [", ".join(map(str, of_image.argmax(dim=1).tolist())) for of_image in weights]
    where = [f"on the {name} at patches {at}" for name, at in zip(names, largest, strict=True)]
    return Picture(
        fig,
        "The attention weights of every head as squares, for one query patch on each image.",
        f"The weights of {h} heads as squares, for query patch {query} on a "
        f"{' and on a '.join(names)}. The largest weight of each head is {', and '.join(where)}.",
    )


def draw_times(lengths: Sequence[int], times: Sequence[float]) -> Picture:
    """Draw measured times against numbers of tokens, beside a line that is proportional to T².

    lengths: at least four, each twice the one before;  times: milliseconds
    """
    middle = len(lengths) // 2
    square = [times[middle] * (T / lengths[middle]) ** 2 for T in lengths]
    longer = f"{times[-1] / times[-4]:.0f} times as long"
    fig, ax = style.new_figure(5.5, 3.0)
    ax.loglog(lengths, times, "o-", color=style.SERIES[0])
    ax.loglog(lengths, square, "--", color=style.LINE)
    style.style_axes(ax, f"8 times the tokens take {longer}", "tokens T", "milliseconds, one head")
    options = {"fontsize": style.TEXT_SIZE, "color": style.TEXT}
    ax.text(0.88 * lengths[-2], 1.3 * times[-2], "measured", ha="right", va="bottom", **options)
    of_square = "64 times if\nproportional to T²"
    ax.text(0.59 * lengths[-2], square[-4], of_square, va="center", **options)
    ax.set_xticks(lengths, map(str, lengths))
    ax.minorticks_off()
    text = "Time against the number of tokens, next to a dashed line proportional to its square."
    return Picture(fig, text)  # times differ from run to run: the alt text must not


def draw_influence(changes: Mapping[str, Tensor]) -> Picture:
    """Draw which image's output changes when one image of a batch is changed.

    changes: {name of a layer: (B, B), 1 where the output of image i (row) changes with image j}
    """
    fig, axes = style.new_figure(9, 2.6, ncols=len(changes))
    counted = []
    for ax, (name, changed) in zip(axes, changes.items(), strict=True):
        title = f"{name} (dark: output changes)"
        draw_cells(ax, changed, (-0.2, 1.5), title, "changed image", "output of image")
        others = int(changed.sum() - changed.trace())
        counted.append(f"{name} changes {others} outputs of other images")
    return Picture(
        fig,
        "Which outputs of a batch change when one of its images is changed, for each layer.",
        f"Which output changes when one image of a batch changes, image by image: "
        f"{', '.join(counted)}. The diagonal is dark, since an image changes its own output.",
    )


def draw_head_rows(right: Tensor, wrong: Tensor) -> Picture:
    """Draw which token's numbers a head receives, from a split by transposing and by `view`.

    right, wrong: (T, d), each entry is the number of the token that it comes from
    """
    fig, axes = style.new_figure(9, 2.8, ncols=2)
    tokens = " and ".join(str(int(token)) for token in wrong.unique())
    titles = ("unflatten, transpose: row t is token t", f"view: only tokens {tokens}")
    for ax, table, title in zip(axes, (right, wrong), titles, strict=True):
        draw_cells(ax, table, (-1, 14), title, "component of head 1", "row of head 1")
        for (t, c), token in enumerate_cells(table):
            write_cell(ax, c + 0.5, t + 0.5, f"token {int(token)}", "black")
    rows = [", ".join(str(int(token)) for token in table[:, 0]) for table in (right, wrong)]
    return Picture(
        fig,
        "Which tokens the first head receives, from a correct split and from a single view.",
        f"What head 1 receives, row by row. Left, after transposing: tokens {rows[0]}. "
        f"Right, after a single view: tokens {rows[1]}.",
    )


def draw_cells(
    ax: Axes, table: Tensor, limits: tuple[float, float], title: str, x: str, y: str
) -> None:
    """Draw a table as gray cells with white edges, row 0 on top, rows and columns numbered."""
    low, high = limits
    ax.pcolormesh(table, cmap="Greys", vmin=low, vmax=high, edgecolor="white", linewidth=3)
    style.style_axes(ax, title, x, y)
    rows, columns = table.shape
    ax.set_xticks([i + 0.5 for i in range(columns)], range(columns))
    ax.set_yticks([i + 0.5 for i in range(rows)], range(rows))
    ax.invert_yaxis()


def enumerate_cells(table: Tensor) -> list[tuple[tuple[int, int], float]]:
    """Return ((row, column), number) for each cell of a table, row by row."""
    numbers = table.tolist()
    return [((i, j), x) for i, row in enumerate(numbers) for j, x in enumerate(row)]


def write_cell(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    """Write a small text around the middle of a cell."""
    ax.text(x, y, text, ha="center", va="center", fontsize=style.TEXT_SIZE - 1, color=color)
