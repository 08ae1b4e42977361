"""Notebook 03: patches of photos, scores without 1/√d, masks, heads, times, two mistakes."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
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

STRONG = 0.05  # the attention weight on one of 1,350 patches that is drawn darkest


def draw_question(photo: Tensor, patch: tuple[int, int], patch_size: int = 14) -> Picture:
    """Draw a photo with one patch framed, and beside it all that the patch's token has seen.

    photo: (C, H, W), from 0 to 1;  patch: row and column in the grid of patches
    """
    photo = resize_photo(photo)
    fig, axes = style.new_figure(8, 2.8, ncols=2, width_ratios=[1.5, 1])
    style.title_figure(fig, "One patch alone doesn't show that it is a roof")
    draw_image(photo, axes[0], "what you see")
    frame_patch(axes[0], patch, patch_size)
    top, left = (patch_size * place for place in patch)
    pixels = photo[:, top : top + patch_size, left : left + patch_size]
    draw_image(pixels, axes[1], "what the roof token has seen")
    return Picture(
        fig,
        "A photo of a pagoda with a framed patch of its roof, and this patch enlarged.",
        "A photo of a pagoda under a bright sky, with a small frame around a patch of its roof, "
        f"and this patch enlarged: {patch_size} x {patch_size} pixels.",
    )


def draw_similarity(
    photo: Tensor, maps: Mapping[str, Tensor], places: Mapping[str, tuple[int, int]]
) -> Picture:
    """Draw a photo with a few patches framed, and how similar all patches are to each of them.

    photo : (C, H, W), from 0 to 1
    maps  : {name: (rows, columns)} of cosines;  places: {name: (row, column)} of the same patches
    """
    fig, axes = style.new_figure(9, 2.3, ncols=1 + len(maps))
    *alike, correlation = most_alike({name: heat.flatten() for name, heat in maps.items()})
    pair = " and ".join(alike)
    style.title_figure(fig, f"Raw pixels: {pair} find the same patches")
    draw_image(photo, axes[0], "the photo")
    for name, place in places.items():
        frame_patch(axes[0], place, name=name)
    for (name, heat), ax in zip(maps.items(), axes[1:], strict=True):
        drawn = draw_cosines(heat, ax, f"similar to {name}", photo.shape[1:])
        frame_patch(ax, places[name])
    color_bar(drawn, axes, "cosine similarity")
    return Picture(
        fig,
        "A photo with framed patches, and maps of the patches whose pixels are similar to each.",
        f"A photo of a pagoda with framed patches of {', '.join(maps)}, and a map for each. The "
        f"maps of {pair} are nearly the same: their correlation is {correlation:.2f}.",
    )


def draw_blocks(
    photo: Tensor, blocks: Mapping[str, Tensor], places: Mapping[str, tuple[int, int]]
) -> Picture:
    """Draw how similar all tokens are to those of a few patches, from the pixels to the last block.

    photo : (C, H, W), from 0 to 1
    blocks: {title: (N, rows, columns)} of cosines;  places: {name: (row, column)}, a line for each
    """
    fig, axes = style.new_figure(
        9, 0.5 + 1.15 * len(places), nrows=len(places), ncols=1 + len(blocks), squeeze=False
    )
    style.title_figure(fig, "Block by block, patches that looked alike become different")
    for line, (name, (row, col)) in zip(axes, places.items(), strict=True):
        draw_image(photo, line[0])
        frame_patch(line[0], (row, col), name=name)
        for cosines, ax in zip(blocks.values(), line[1:], strict=True):
            heat = cosines[row * cosines.shape[2] + col]
            drawn = draw_cosines(heat, ax, None, photo.shape[1:])
            frame_patch(ax, (row, col))
    for title, ax in zip(("the photo", *blocks), axes[0], strict=True):
        style.hide_axes(ax, title)
    color_bar(drawn, axes, "cosine similarity")
    names = " and ".join(places)
    return Picture(
        fig,
        "Maps of the tokens that are similar to a patch of roof and a patch of tree, by block.",
        f"A row of maps for {names} each, from the pixels to the tokens of later blocks.",
    )


def draw_patch(
    photo: Tensor, similarity: Tensor, attention: Tensor, place: tuple[int, int]
) -> Picture:
    """Draw a photo with one patch, what its token is similar to, and what one head attends to.

    photo: (C, H, W), from 0 to 1;  similarity, attention: (rows, columns)
    place: row and column of the patch
    """
    fig, axes = style.new_figure(9, 2.6, ncols=3)
    style.title_figure(fig, "Similar to is not the same as attends to")
    draw_image(photo, axes[0], "the chosen patch")
    cosines = draw_cosines(similarity, axes[1], "similar to", photo.shape[1:])
    _, weights = draw_over(photo, attention, axes[2], "attends to (one head)", top=STRONG)
    for ax in axes[:2]:
        frame_patch(ax, place)
    frame_patch(axes[2], place, color=style.QUERY)
    color_bar(cosines, axes[1], "cosine similarity", location="bottom")
    bar = color_bar(weights, axes[2], "weight", extend="max", location="bottom")
    bar.set_ticks([0, STRONG])
    return Picture(
        fig,
        "A photo with a framed patch, the tokens similar to its own, and what one head attends to.",
    )


def draw_spread(scores_of: Mapping[int, Tensor]) -> Picture:
    """Draw how the spread of random scores and the largest weight depend on the width.

    scores_of: {d: (queries, keys)}, dot products that are not divided
    """
    widths = list(scores_of)
    fig, (left, right) = style.new_figure(9, 3.1, ncols=2)
    style.title_figure(fig, "Without the division, wide vectors leave a single winner")
    for name, color, line, divide in (
        ("not divided", style.SERIES[2], "o--", False),
        ("divided by √d", style.SERIES[0], "o-", True),
    ):
        scores = [scores / d**0.5 if divide else scores for d, scores in scores_of.items()]
        spread = [each.std().item() for each in scores]
        largest = [each.softmax(dim=-1).amax(dim=-1).mean().item() for each in scores]
        left.plot(widths, spread, line, color=color)
        right.plot(widths, largest, line, color=color)
        for ax, values in ((left, spread), (right, largest)):
            text = ax.annotate(name, (widths[-2], values[-2]), (-6, 8), textcoords="offset points")
            text.set(ha="right", fontsize=style.TEXT_SIZE, color=color)
    style.style_axes(left, "The scores spread out", "width d", "standard deviation of scores")
    style.style_axes(right, "One weight nears 1", "width d", "largest of 17 weights, mean")
    left.set(xscale="log", yscale="log", yticks=[1, 4, 16], yticklabels=["1", "4", "16"])
    right.set(xscale="log", ylim=(0, 1.05))
    for ax in (left, right):
        ax.set_xticks(widths, [str(d) for d in widths])
        ax.minorticks_off()
    return Picture(
        fig,
        "The spread of random scores and the largest weight against the width, with and without "
        "the division.",
        f"Not divided, the standard deviation of random scores grows to {widths[-1] ** 0.5:.0f} at "
        f"d = {widths[-1]} and the largest weight nears 1; divided by √d, both lines are flat.",
    )


def most_alike(maps: Mapping[str, Tensor]) -> tuple[str, str, float]:
    """Return the names of the two maps with the highest correlation, and that correlation."""
    correlations = torch.corrcoef(torch.stack(list(maps.values())))
    pairs = combinations(range(len(maps)), 2)
    first, second = max(pairs, key=lambda pair: correlations[pair].item())
    names = list(maps)
    return names[first], names[second], correlations[first, second].item()


def resize_photo(photo: Tensor, size: tuple[int, int] = (420, 630)) -> Tensor:
    """A photo with as many pixels as the stored features belong to: (C, H, W) -> (C, 420, 630)"""
    return F.interpolate(photo[None], size=size, mode="bilinear", antialias=True)[0].clamp(0, 1)


def draw_cosines(heat: Tensor, ax: Axes, title: str | None, size: tuple[int, ...]) -> AxesImage:
    """Draw a map of cosines, (rows, columns), over the area of an image of this size in pixels."""
    style.hide_axes(ax, title)
    extent = (-0.5, size[1] - 0.5, size[0] - 0.5, -0.5)
    return ax.imshow(
        heat, cmap=style.SIGNED, vmin=-1, vmax=1, extent=extent, interpolation="nearest"
    )


def frame_patch(
    ax: Axes,
    place: tuple[int, int],
    patch_size: int = 14,
    name: str | None = None,
    color: str = style.TEXT,
) -> None:
    """Frame a patch, given by its row and column, a little larger than it is, and name it."""
    top, left = (patch_size * number for number in place)
    side = patch_size + 12
    draw_box(ax, (left - 6, top - 6, side, side), color, linewidth=2, path_effects=style.HALO)
    if name:
        options = {"fontsize": style.TEXT_SIZE, "color": style.TEXT, "va": "center"}
        text = ax.text(left + side, top + patch_size / 2, f" {name}", **options)
        text.set_path_effects(style.HALO)


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
    fig, axes = style.new_figure(7, 2.6, ncols=2)
    tokens = " and ".join(str(int(token)) for token in wrong.unique())
    titles = ("right: row t is token t", f"wrong: only tokens {tokens}")
    for ax, table, title in zip(axes, (right, wrong), titles, strict=True):
        draw_cells(ax, table, (-1, 14), title, "component of head 1", "row of head 1")
        for (t, c), token in enumerate_cells(table):
            write_cell(ax, c + 0.5, t + 0.5, str(int(token)), "black")
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
