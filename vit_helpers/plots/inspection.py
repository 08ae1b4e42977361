"""Notebook 08: how a map is made, maps on images, how they score, what they leave when covered."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import (
    color_bar,
    draw_box,
    draw_grid,
    draw_image,
    draw_squares,
    name_row,
    square_key,
)

Query = tuple[int, int] | None  # (row, column) of a patch; None for the class token
TOP = (
    0.5  # the weight whose square fills its patch, so that squares can be compared between figures
)
ALPHA = 0.75  # of squares, through which the image is seen
OBJECT = style.SERIES[0]  # of the frame around an object
READS_MODEL, NO_MODEL = style.SERIES[2], style.SERIES[0]
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D")


@torch.no_grad()
def draw_question(pretrained: Any, data: Any, number: int) -> Picture:
    """Draw an image, a map that a trained model gives for it, and one that uses no model.

    The first is rollout, the second the ink of each patch with a Gaussian blur of one patch.

    pretrained: a model with a class token, its preprocessing and its classes' names
    data      : with a validation split;  number: of an image of it
    """
    model, preprocess, _ = pretrained
    image, (rows, cols) = data.validation.images[number], model.config.grid
    weights = model.attention_weights(preprocess.normalize(image[None]))
    eye = flow = torch.eye(weights[0].shape[-1])
    for layer in weights:
        flow = (eye + layer[0].mean(dim=0)) / 2 @ flow
    ink = (image[0] > 0).float().unflatten(1, (cols, -1)).unflatten(0, (rows, -1)).mean(dim=(1, 3))
    down, across = (
        (-((torch.arange(n)[:, None] - torch.arange(n)) ** 2) / 2).exp() for n in (rows, cols)
    )
    maps = {"Map A": flow[0, 1:].unflatten(0, (rows, cols)), "Map B": down @ ink @ across}
    fig, axes = style.new_figure(9, 3.7, ncols=3)
    style.title_figure(fig, "One map comes from a trained model, one from no model")
    draw_image(image, axes[0], "The image").images[0].set_interpolation("bicubic")
    shares = share(torch.stack([*maps.values()]))
    for ax, name, heat in zip(axes[1:], maps, shares, strict=True):
        draw_map(image, heat, ax, name, float(shares.max()))
    fig.supxlabel("area of a square: share of the map", fontsize=style.TEXT_SIZE)
    return Picture(
        fig,
        "An image with a digit among fragments, and two maps with large squares on the digit.",
        "A digit 3 among fragments of digits. Two maps of 6 by 6 squares lie over copies of it; "
        "in both, the largest squares are on the 3.",
    )


def draw_row_as_map(
    image: Tensor, weights: Tensor, grid: tuple[int, int] | None = None, top: float = TOP
) -> Picture:
    """Draw what an attention map is: a row of the weights, folded into the grid of patches.

    The row is the class token's; it is laid out as a strip first.

    image: (C, H, W), from 0 to 1;  weights: (T, T) of one head, the class token first
    grid : rows and columns of patches, by default of a square;  top: the weight drawn darkest
    """
    side = round((len(weights) - 1) ** 0.5)
    (rows, cols), weights = grid or (side, side), weights.detach()
    fig, axes = style.new_figure(
        9, 4.9, nrows=2, ncols=2, width_ratios=(1, 1), height_ratios=(0.13, 1)
    )
    spec = axes[0, 0].get_gridspec()
    for ax in axes[:, 0]:
        ax.remove()
    matrix, (strip, folded) = fig.add_subplot(spec[:, 0]), axes[:, 1]
    scale, T = PowerNorm(0.5, 0, top, clip=True), len(weights)
    drawn = matrix.imshow(weights, cmap=style.VEIL, norm=scale, interpolation="nearest")
    style.style_axes(
        matrix, f"1. One head: {T} x {T} weights", "key (token number)", "query (token number)"
    )
    draw_box(matrix, (-0.5, -0.5, T, 1), style.CLASS_TOKEN, linewidth=2.5, clip_on=False)
    extend = "max" if weights.max() > top else "neither"
    marks = [mark for mark in (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5) if mark <= top]
    color_bar(drawn, matrix, "attention weight", extend, location="left").set_ticks(
        marks, labels=[f"{x:g}" for x in marks]
    )
    strip.imshow(weights[:1], cmap=style.VEIL, norm=scale, aspect="auto", interpolation="nearest")
    style.style_axes(strip, "2. Row 0: the class token's weights")
    strip.set(yticks=[], xticks=range(1, T, cols))
    strip.spines[["top", "right"]].set_visible(True)
    for start in range(1, T, cols):
        strip.axvline(start - 0.5, color=style.LINE, linewidth=1)
    title = f"3. Tokens 1 to {T - 1}, folded into {rows} x {cols}"
    draw_map(image, weights[0, 1:].unflatten(0, (rows, cols)), folded, title, top)
    H, W = image.shape[1:]
    draw_grid(folded, (H, W), W // cols)
    for row in range(rows):
        text = f"{1 + row * cols} to {(row + 1) * cols}"
        where = (-1.2, (row + 0.5) * H / rows - 0.5)
        folded.text(*where, text, ha="right", va="center", fontsize=style.TEXT_SIZE - 1)
    options = {
        "arrowprops": {"arrowstyle": "-|>", "color": style.TEXT, "linewidth": 2},
        "annotation_clip": False,
    }
    arrow = matrix.annotate(
        "", (-0.8, 0), (T - 0.5, 0), xycoords=strip.transData, textcoords="data", **options
    )
    arrow.set_in_layout(False)
    down = strip.annotate(
        "", (0.98, 1), (0.98, 0), xycoords=folded.transAxes, textcoords="axes fraction", **options
    )
    down.set_in_layout(False)
    square_key(fig, top)
    return Picture(
        fig,
        "How a map is made: the attention weights of one head, the first row as a strip, and the "
        "strip folded into squares on the patches of an image.",
        f"How a map is made: the attention weights of one head, {T} by {T}, with the first row "
        f"framed; that row as a strip of {T} cells; and cells 1 to {T - 1} as squares on the "
        f"{rows} by {cols} patches of an image.",
    )


def frame_query(ax: Axes, query: Query, patch_size: int) -> None:
    """Frame the patch that is the query."""
    if query is not None:
        (row, col), P = query, patch_size
        corner = (col * P - 0.5, row * P - 0.5)
        draw_box(ax, (*corner, P, P), style.QUERY, linewidth=2, path_effects=style.HALO)


def frame_object(ax: Axes, box: Tensor) -> None:
    """Frame an object with dashes.  box: (4,), x, y, width and height in pixels."""
    x, y, width, height = box.tolist()  # pixel 0 is drawn from -0.5 to 0.5
    options = {"linewidth": 2, "linestyle": "--", "path_effects": style.HALO}
    draw_box(ax, (x - 0.5, y - 0.5, width, height), OBJECT, **options)


def draw_map(image: Tensor, heat: Tensor, ax: Axes, title: str | None, top: float) -> Axes:
    """Draw a map (rows, cols) as squares on the patches of an image, which is seen through them."""
    rows, cols = heat.shape
    ax = draw_squares(image, heat, (rows, cols), ax, title, top, ALPHA)
    ax.images[0].set_interpolation("bicubic")
    return ax


def share(maps: Tensor) -> Tensor:
    """Maps as shares of their sums, negative numbers as 0; a map of zeros stays one."""
    positive = maps.clamp(min=0)
    return positive / positive.sum(dim=(1, 2), keepdim=True).clamp(min=1e-12)


def draw_maps(
    images: Tensor,
    maps: Mapping[str, Tensor],
    boxes: Tensor,
    titles: Sequence[str] = (),
    top: float = TOP,
) -> Picture:
    """Draw a row of images for each kind of map, with the map as squares and the object's frame.

    Every map is drawn as shares of its sum, with negative numbers as 0.

    images: (B, C, H, W);  maps: {name: (B, rows, cols)};  boxes: (B, 4);  titles: of the B columns
    top   : the share whose square fills its patch
    """
    B = len(images)
    side = min(8.2 / B, 1.75)
    size = B * side + 0.3, len(maps) * (side - 0.05) + 0.25 * bool(titles) + 0.75
    fig, axes = style.new_figure(*size, nrows=len(maps), ncols=B, squeeze=False)
    empty = [name for name, heat in maps.items() if not heat.any()]
    flat = " ".join(empty[:1]).replace("\n", " ")
    title = f"{flat}: no map at all" if empty else "Each method draws a map of its own"
    style.title_figure(fig, title)
    for line, (kind, heat) in zip(axes, maps.items(), strict=True):
        for i, ax in enumerate(line):
            draw_map(images[i], share(heat)[i], ax, None, top)
            frame_object(ax, boxes[i])
        name_row(line[0], kind, 0.05, rotation=90)
    for ax, text in zip(axes[0], titles, strict=bool(titles)):
        ax.set_title(text, fontsize=style.TEXT_SIZE, color=style.TEXT)
    text = f"area of a square: share of the map (a square that fills its patch: {top:g} or more)\n"
    fig.supxlabel(f"{text}dashed: bounding box", fontsize=style.TEXT_SIZE)
    names = [name.replace("\n", " ") for name in maps]
    return Picture(
        fig,
        "Images with several kinds of maps as squares, one kind in each row, and the bounding box "
        "of the digit in dashes.",
        f"{B} images of digits among fragments with their bounding boxes, and maps as squares over "
        f"them, a row each: {', '.join(names)}."
        + (f" The row of {flat} has no squares." if empty else ""),
    )


def draw_heads(
    image: Tensor,
    maps: Sequence[Tensor],
    patch_size: int,
    names: Sequence[str],
    notes: Sequence[Sequence[str]] | None = None,
    query: Query = None,
    top: float = TOP,
) -> Picture:
    """Draw a map for each head as squares, a row of heads for each block.

    maps : a list of tensors (h, rows, cols), one for each row
    names: of the rows;  notes: for each row h texts, to stand over the maps
    query: the patch to frame;  top: the weight whose square fills its patch
    """
    L, h = len(maps), len(maps[0])
    fig, axes = style.new_figure(8.6, L * (7.6 / h + 0.3) + 0.7, nrows=L, ncols=h, squeeze=False)
    who = "Class token" if query is None else "Framed patch"
    style.title_figure(fig, f"{who} as query: every head has a map of its own")
    for row, (line, name) in enumerate(zip(axes, names, strict=True)):
        for head, ax in enumerate(line):
            texts = [f"head {head + 1}"] * (row == 0) + ([notes[row][head]] if notes else [])
            draw_map(image, maps[row][head], ax, None, top)
            ax.set_title(", ".join(texts), fontsize=style.TEXT_SIZE, color=style.TEXT)
            frame_query(ax, query, patch_size)
        name_row(line[0], name, 0.05, rotation=90)
    square_key(fig, round(top, 2))
    largest = max(float(rows.max()) for rows in maps)
    return Picture(
        fig,
        "The attention weights of several heads as squares on the same image.",
        f"{L * h} maps of the same image, {h} heads in each row ({', '.join(names)}). Each head "
        f"has its large squares in other places; the largest weight is {largest:.2f}.",
    )


def draw_forest(lines: Mapping[str, Mapping[str, Any]], controls: Sequence[str]) -> Picture:
    """Draw a score with its 95% interval for each kind of map, the best at the top.

    A line goes through the best control.

    lines   : {name: at least mean, low and high}
    controls: the names of those that use no model
    """
    best = max(controls, key=lambda name: float(lines[name]["mean"]))
    order = sorted(lines, key=lambda name: float(lines[name]["mean"]))
    lead = max(float(line["low"]) for name, line in lines.items() if name not in controls)
    fig, ax = style.new_figure(9, 0.42 * len(lines) + 1.3)
    rival = float(lines[best]["mean"])
    title = f"No map is clearly ahead of {best}" if lead <= rival else "Scores of maps"
    style.style_axes(ax, title, "pointing game (fraction of images)")
    ax.axvline(rival, color=NO_MODEL, linewidth=1.5, linestyle="--", zorder=0)
    for y, name in enumerate(order):
        line, uses = lines[name], name not in controls
        color, mark = (READS_MODEL, "o") if uses else (NO_MODEL, "D")
        ax.plot([line["low"], line["high"]], [y, y], color=color, linewidth=2.5)
        ax.plot(line["mean"], y, mark, color=color, mfc=color if uses else "white", ms=9, mew=2)
        near = float(line["low"]) < 0.3
        side = {"ha": "left" if near else "right", "va": "center", "color": color}
        where = float(line["high"]) + 0.012 if near else float(line["low"]) - 0.012
        ax.text(where, y, f"{name}  {line['mean']:.2f}", fontsize=style.TEXT_SIZE, **side)
    ax.set(xlim=(0, 1.02), ylim=(-0.6, len(order) - 0.4), yticks=[])
    ax.spines["left"].set_visible(False)
    story = ", ".join(f"{name} {lines[name]['mean']:.2f}" for name in order[::-1])
    return Picture(
        fig,
        "A score with its interval for each kind of map, with and without a model, sorted.",
        f"The pointing game of maps, with 95% intervals: {story}. Diamonds use no model.",
    )


def draw_deletion(
    counts: Sequence[int], curves: Mapping[str, Tensor], controls: Sequence[str]
) -> Picture:
    """Draw what fraction of predictions survive when a map's largest patches are covered.

    counts: of covered patches;  curves: {name: (models, counts)}, from 0 to 1
    controls: the names of those that use no model
    """
    fig, ax = style.new_figure(9, 4.6)
    means = {name: torch.as_tensor(curve).mean(dim=0) for name, curve in curves.items()}
    early = {name: float(mean[1:3].mean()) for name, mean in means.items()}
    order = sorted(means, key=early.__getitem__)
    title = f"Answers fall fastest in the order of {order[0]}"
    style.style_axes(ax, title, "covered patches", "answers that stay the same")
    looks = {}
    for color, uses in ((READS_MODEL, False), (NO_MODEL, True)):
        names = [name for name in order if (name in controls) is uses]
        for name, line, mark in zip(names, cycle(LINES), cycle(MARKS), strict=False):
            looks[name] = {"color": color, "linestyle": line, "marker": mark}
            ax.plot(counts, means[name], **looks[name], linewidth=2, ms=6)
    end = counts[-1]
    last = sorted(order, key=lambda name: float(means[name][-1]))
    for i, name in enumerate(last):  # a key at the right, in the order in which curves end
        options, y = looks[name], 0.05 + 0.11 * i
        color = options["color"]
        ax.plot([1.02 * end, 1.12 * end], [float(means[name][-1]), y], color=color, linewidth=0.8)
        ax.plot([1.12 * end, 1.22 * end], [y, y], **options, linewidth=2, ms=6, markevery=[1])
        ax.text(1.25 * end, y, name, va="center", fontsize=style.TEXT_SIZE, color=color)
    ax.set(xlim=(0, 1.7 * end), ylim=(0, 1.03), xticks=counts, yticks=(0, 0.25, 0.5, 0.75, 1))
    ax.xaxis.set_label_coords(0.3, -0.09)
    ax.spines["bottom"].set_bounds(0, end)
    story = ", ".join(f"{name} {means[name][1]:.2f}" for name in order)
    return Picture(
        fig,
        "The fraction of predictions that stay the same as more patches are covered, a curve for "
        "the order of each map.",
        f"Curves that fall from 1 as patches are covered. With one patch covered, what is left is: "
        f"{story}.",
    )


def draw_scaled_heads(
    image: Tensor, scales: Mapping[str, Tensor], tops: Sequence[float], labels: Sequence[str]
) -> Picture:
    """Draw an image, and the maps of the same heads on several scales, a row for each.

    image: (C, H, W), from 0 to 1;  scales: {name: (h, rows, cols)}
    tops : the numbers drawn darkest;  labels: of the color bars
    """
    h = len(next(iter(scales.values())))
    size = 9, 1.75 * len(scales) + 0.6
    fig, axes = style.new_figure(*size, nrows=len(scales), ncols=1 + h, squeeze=False)
    style.title_figure(fig, "On a scale of its own, even an untrained head looks sharp")
    for row, (line, (name, maps), top, label) in enumerate(
        zip(axes, scales.items(), tops, labels, strict=True)
    ):
        for head, ax in enumerate(line[1:]):
            scale = {"vmin": 0, "vmax": top, "interpolation": "nearest"}
            drawn = ax.imshow(maps[head], cmap=style.VEIL, **scale)
            style.style_axes(ax, f"head {head + 1}" if row == 0 else None).set(xticks=[], yticks=[])
            ax.spines[["top", "right"]].set_visible(True)
        line[1].set_ylabel(name, fontsize=style.TEXT_SIZE, color=style.TEXT)
        draw_image(image, line[0], "the image") if row == 0 else line[0].set_axis_off()
        color_bar(drawn, line, label, shrink=0.95)
    return Picture(
        fig,
        "The maps of the heads of an untrained model, first each on its own scale, then all on the "
        "scale of a trained model.",
        f"{h} heads of an untrained model. In the first row, each on its own scale, they show "
        "strong patterns; in the second row, on the scale of the trained model, they are faint.",
    )
