"""Notebook 08: what a ViT attends to, heads and their distances, how well maps localize."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import (
    color_bar,
    draw_box,
    draw_grid,
    draw_image,
    draw_squares,
    square_key,
)

Query = tuple[int, int] | None  # (row, column) of a patch; None for the class token
TOP = (
    0.5  # the weight whose square fills its patch, so that squares can be compared between figures
)
ALPHA = 0.75  # of squares, through which the image is seen
OBJECT = style.SERIES[0]  # of the frame around an object
MARKS = (("o", style.SERIES[0]), ("s", style.SERIES[1]), ("D", style.SERIES[2]))


def draw_row_as_map(
    image: Tensor, weights: Tensor, grid: tuple[int, int], top: float = TOP
) -> Figure:
    """Draw what an attention map is: a row of the weights, folded into the grid of patches.

    The row is the class token's; it is laid out as a strip first.

    image: (C, H, W), from 0 to 1;  weights: (T, T) of one head, the class token first
    top  : the weight drawn darkest
    """
    rows, cols = grid
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
    draw_map(
        image,
        weights[0, 1:].unflatten(0, grid),
        folded,
        f"3. Tokens 1 to {T - 1}, folded into {rows} x {cols}",
        top,
    )
    H, W = image.shape[1:]
    draw_grid(folded, (H, W), W // cols)
    for row in range(rows):
        text = f"{1 + row * cols} to {(row + 1) * cols}"
        folded.text(
            -1.2,
            (row + 0.5) * H / rows - 0.5,
            text,
            ha="right",
            va="center",
            fontsize=style.TEXT_SIZE - 1,
        )
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
    return fig


def frame_query(ax: Axes, query: Query, patch_size: int) -> None:
    """Frame the patch that is the query."""
    if query is not None:
        (row, col), P = query, patch_size
        draw_box(
            ax,
            (col * P - 0.5, row * P - 0.5, P, P),
            style.QUERY,
            linewidth=2,
            path_effects=style.HALO,
        )


def frame_object(ax: Axes, box: Tensor) -> None:
    """Frame an object with dashes.  box: (4,), x, y, width and height in pixels."""
    x, y, width, height = box.tolist()  # pixel 0 is drawn from -0.5 to 0.5
    draw_box(
        ax,
        (x - 0.5, y - 0.5, width, height),
        OBJECT,
        linewidth=2,
        linestyle="--",
        path_effects=style.HALO,
    )


def draw_map(image: Tensor, heat: Tensor, ax: Axes, title: str | None, top: float) -> Axes:
    """Draw a map (rows, cols) as squares on the patches of an image, which is seen through them."""
    rows, cols = heat.shape
    return draw_squares(image, heat, (rows, cols), ax, title, top, ALPHA)


def draw_maps(
    images: Tensor,
    maps: Mapping[str, Tensor],
    boxes: Tensor,
    titles: Sequence[str] = (),
    top: float = TOP,
    name: str = "",
) -> Figure:
    """Draw a row of images for each kind of map, with the map as squares and the object's frame.

    images: (B, C, H, W);  maps: {name: (B, rows, cols)}, shares of a whole
    boxes : (B, 4);  titles: of the B columns
    top   : the share whose square fills its patch;  name: what the areas are
    """
    B = len(images)
    wide = len(maps) > 1  # with names of the rows, and a key of two lines
    side = min(8.2 / B, 1.75) if wide else 9 / B
    above = max((len(title.splitlines()) for title in titles), default=0)
    size = B * side + 0.3 * wide, len(maps) * side + 0.25 * above + 0.45 + 0.2 * wide
    fig, axes = style.new_figure(*size, nrows=len(maps), ncols=B, squeeze=False)
    fig.get_layout_engine().set(
        rect=(0, 0, 1, 0.98)
    )  # a title that `mark_wrong` enlarges reaches higher
    for line, (kind, each) in zip(axes, maps.items(), strict=True):
        for i, ax in enumerate(line):
            draw_map(images[i], each[i], ax, None, top)
            frame_object(ax, boxes[i])
        if len(maps) > 1:
            beside = {"transform": line[0].transAxes, "rotation": 90, "ha": "right", "va": "center"}
            line[0].text(-0.05, 0.5, kind, fontsize=style.TEXT_SIZE, color=style.TEXT, **beside)
    for ax, title in zip(axes[0], titles, strict=bool(titles)):
        ax.set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
    text = f"area of a square: {name} (a square that fills its patch: {top:g} or more)"
    text += ("\n" if wide else "; ") + "dashed: bounding box"
    fig.supxlabel(text, fontsize=style.TEXT_SIZE)
    return fig


def draw_heads(
    image: Tensor,
    maps: Sequence[Tensor],
    patch_size: int,
    notes: Sequence[Sequence[str]] | None = None,
    query: Query = None,
    top: float | None = None,
) -> Figure:
    """Draw all heads of all blocks on one figure and one scale, the weights as squares.

    maps : a list of L tensors (h, rows, cols)
    notes: for each block h texts, to stand over the maps
    top  : the weight whose square fills its patch; by default the largest of all
    """
    top = max(layer.max().item() for layer in maps) if top is None else top
    L, h = len(maps), len(maps[0])
    fig, axes = style.new_figure(8, L * (7 / h + 0.3) + 0.3, nrows=L, ncols=h, squeeze=False)
    for block, row in enumerate(axes):
        for head, ax in enumerate(row):
            texts = [f"head {head + 1}"] * (block == 0) + ([notes[block][head]] if notes else [])
            draw_map(image, maps[block][head], ax, ", ".join(texts) or None, top)
            frame_query(ax, query, patch_size)
        beside = {
            "transform": row[0].transAxes,
            "rotation": 90,
            "ha": "right",
            "va": "center",
            "color": style.TEXT,
        }
        row[0].text(
            -0.05, 0.5, f"block {block + 1}", fontsize=style.TEXT_SIZE, **beside
        )  # bare axes show no label
    square_key(fig, round(top, 2))
    return fig


def draw_distances(
    distances: Sequence[Sequence[float]] | Tensor, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the mean attention distance of each head of each block: a circle with the head's number.

    distances: (L, h), in pixels;  heads of a block that are close are drawn side by side
    """
    ax = style.new_axes(ax, 6.5, 3.6)
    for block, heads in enumerate(torch.as_tensor(distances).tolist(), start=1):
        for head, value in enumerate(heads):
            x = block + 0.14 * (head - (len(heads) - 1) / 2)
            ax.plot([x], [value], "o", color=style.SERIES[0], ms=15)
            ax.text(
                x,
                value,
                str(head + 1),
                ha="center",
                va="center_baseline",
                color="white",
                fontsize=style.TEXT_SIZE - 2,
            )
    ax.set_xticks(range(1, len(distances) + 1))
    ax.set_ylim(0, 1.15 * float(torch.as_tensor(distances).max()))
    return style.style_axes(ax, title, "block", "mean attention distance (pixels)")


def draw_scores(table: pd.DataFrame, names: Mapping[str, str], rival: str) -> Figure:
    """Draw dots for the scores of methods and controls, a panel for each score.

    A bar behind the dots of the trained models is the 95% interval of their mean; a dashed line
    continues the rival upward.

    table: of `summarize_scores`;  names: {score: title};  rival: the control with a line
    """
    methods = list(table.xs("trained", level="model").index.unique("method"))
    controls = list(table.xs("none", level="model").index.unique("method"))
    lines = {name: y for y, name in enumerate(methods)} | {
        name: y for y, name in enumerate(controls, len(methods) + 1)
    }
    (mark, color), (_, other) = MARKS[0], MARKS[2]
    fig, axes = style.new_figure(9, 5.6, ncols=len(names), sharey=True)
    for ax, (score, title) in zip(axes, names.items(), strict=True):
        for kind, fill, shape in (("untrained", "none", "v"), ("trained", color, mark)):
            each = [
                (x, lines[name]) for name in methods for x in table.loc[(score, kind, name), "each"]
            ]
            options: dict[str, Any] = {
                "color": color,
                "mfc": fill,
                "mew": 0.8,
                "ms": 7,
                "alpha": 0.7,
            }
            ax.plot(*zip(*each, strict=True), shape, label=f"{kind} models", **options)
        for i, name in enumerate(methods):
            low, high = table.loc[(score, "trained", name), ["low", "high"]]
            options = {
                "color": color,
                "linewidth": 18,
                "alpha": 0.25,
                "solid_capstyle": "butt",
                "zorder": 1,
            }
            ax.plot(
                [low, high],
                2 * [lines[name]],
                label=None if i else "95% interval, trained",
                **options,
            )
        values = {name: table.loc[(score, "none", name), "mean"] for name in controls}
        ax.plot(
            list(values.values()),
            [lines[name] for name in values],
            "D",
            color=other,
            ms=7,
            label="no model",
        )
        at = values[rival]
        ax.plot(
            [at, at],
            [-0.5, lines[rival]],
            "--",
            color=other,
            linewidth=1.5,
            zorder=0,
            label=f"no model: {rival}",
        )
        style.style_axes(ax, title, "score")
        ax.set(
            xlim=(0, 1.04), ylim=(max(lines.values()) + 0.6, -0.6), xticks=[0, 0.25, 0.5, 0.75, 1]
        )
        ax.set_xticklabels(["0", ".25", ".5", ".75", "1"])
        ax.grid(axis="y", color=style.MUTED)
        ax.set_axisbelow(True)
    axes[0].set_yticks(list(lines.values()), list(lines))
    handles = axes[0].get_legend_handles_labels()
    fig.legend(
        *handles, loc="outside lower center", ncols=3, fontsize=style.TEXT_SIZE, frameon=False
    )
    return fig


def draw_differences(
    table: pd.DataFrame, names: Mapping[str, str], rivals: Sequence[str], limit: float = 0.2
) -> Figure:
    """Draw each method minus each rival, with its 95% interval: a panel for each score.

    Arrows mark what is off the scale.

    A mark is filled where the difference is significant, p < 0.05 after Holm's correction.

    table: of `compare_methods`;  names: {score: title};  limit: half the width of the scale
    """
    methods = list(table.index.unique("method"))
    fig, axes = style.new_figure(9, 4.2, ncols=len(names), sharey=True, squeeze=False)
    for ax, (score, title) in zip(axes[0], names.items(), strict=True):
        ax.axvline(0, color=style.LINE)
        for place, (rival, (mark, color)) in enumerate(zip(rivals, MARKS, strict=True)):
            rows = [table.loc[(rival, score, method)] for method in methods]
            y = [i + 0.24 * (place - 1) for i in range(len(methods))]
            for row, at in zip(rows, y, strict=True):
                ax.plot(
                    [max(row["low"], -limit), min(row["high"], limit)],
                    [at, at],
                    color=color,
                    linewidth=1.8,
                )
                if abs(row["mean"]) > limit:
                    ax.text(
                        -limit,
                        at,
                        f"◂ {row['mean']:+.2f}",
                        va="center",
                        fontsize=style.TEXT_SIZE - 2,
                        color=color,
                    )
                else:
                    fill = color if row["holm"] < 0.05 else "white"
                    ax.plot(row["mean"], at, mark, color=color, mfc=fill, mew=1.5, ms=7)
            ax.plot([], [], mark, color=color, mew=1.5, ms=7, label=f"minus {rival}")
        style.style_axes(ax, title, "method minus control")
        ax.set(xlim=(-limit, limit), ylim=(len(methods) - 0.5, -0.5))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:+.1f}" if abs(x) > 1e-9 else "0")
    axes[0, 0].set_yticks(range(len(methods)), methods)
    options: dict[str, Any] = {
        "ncols": 3,
        "fontsize": style.TEXT_SIZE,
        "title_fontsize": style.TEXT_SIZE,
        "frameon": False,
    }
    text = (
        "right of 0: the method is better; filled: significant (p < 0.05 after Holm's correction)"
    )
    fig.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", title=text, **options
    )
    return fig


def draw_scaled_heads(
    image: Tensor, scales: Mapping[str, Tensor], tops: Sequence[float], labels: Sequence[str]
) -> Figure:
    """Draw an image, and the maps of the same heads on several scales, a row for each.

    image: (C, H, W), from 0 to 1;  scales: {name: (h, rows, cols)}
    tops : the numbers drawn darkest;  labels: of the color bars
    """
    h = len(next(iter(scales.values())))
    fig, axes = style.new_figure(
        9, 1.75 * len(scales) + 0.3, nrows=len(scales), ncols=1 + h, squeeze=False
    )
    for row, (line, (name, maps), top, label) in enumerate(
        zip(axes, scales.items(), tops, labels, strict=True)
    ):
        for head, ax in enumerate(line[1:]):
            drawn = ax.imshow(
                maps[head], cmap=style.VEIL, vmin=0, vmax=top, interpolation="nearest"
            )
            style.style_axes(ax, f"head {head + 1}" if row == 0 else None).set(xticks=[], yticks=[])
            ax.spines[["top", "right"]].set_visible(True)
        line[1].set_ylabel(name, fontsize=style.TEXT_SIZE, color=style.TEXT)
        draw_image(image, line[0], "the image") if row == 0 else line[0].set_axis_off()
        color_bar(drawn, line, label, shrink=0.95)
    return fig


def draw_depth(
    image: Tensor,
    probabilities: Tensor,
    names: Sequence[str],
    shares: Mapping[str, Sequence[float]],
) -> Figure:
    """Draw how the class becomes readable: a probe's accuracy after each block.

    For one image, its probabilities are drawn, too.

    image: (C, H, W);  names: of the K classes
    probabilities: (L, K), of the probe after each block
    shares: accuracies of the class token and of the patch tokens, {name: L numbers}
    """
    L, K = probabilities.shape
    fig, (left, middle, right) = style.new_figure(9, 3.4, ncols=3, width_ratios=(1.15, 0.62, 1.7))
    for (kind, values), form, color in zip(
        shares.items(), ("-o", "--s"), (style.CLASS_TOKEN, style.PATCH), strict=True
    ):
        left.plot(range(1, L + 1), values, form, color=color, label=kind)
    style.style_axes(left, "The class token is ahead", "after block", "accuracy of linear probes")
    left.set(ylim=(0, 1), xticks=range(1, L + 1))
    left.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower right")
    draw_image(image, middle, "One image")
    drawn = right.imshow(probabilities, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    for row in range(L):
        for col in range(K):
            value = probabilities[row, col].item()
            ink = style.ink_on(drawn.to_rgba(value))
            right.text(
                col,
                row,
                f"{100 * value:.0f}",
                ha="center",
                va="center",
                fontsize=style.TEXT_SIZE - 2,
                color=ink,
            )
    style.style_axes(right, "Probabilities from probes (%)", "class", "after block")
    right.set(xticks=range(K), yticks=range(L))
    right.set_xticklabels(names)
    right.set_yticklabels(range(1, L + 1))
    return fig
