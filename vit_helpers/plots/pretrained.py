"""Notebook 09: what is copied, new and trained; LoRA; resized positions; masks; few labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.images import color_bar, name_row

Look = dict[str, Any]
FROZEN: Look = {"facecolor": style.MUTED, "edgecolor": style.LINE, "linewidth": 1}
TRAINED: Look = {"facecolor": style.SERIES[0], "edgecolor": style.TEXT, "linewidth": 1}
DROPPED: Look = {"facecolor": "white", "edgecolor": style.LINE, "linestyle": "--", "linewidth": 1.5}
NEW: Look = {"facecolor": "white", "edgecolor": style.SERIES[2], "hatch": "////", "linewidth": 1.5}
PARTS = (
    "patch embedding",
    "[CLS], positions",
    "block 1",
    "block 2",
    "block 3",
    "block 4",
    "final norm",
    "head",
)
WAYS = {  # color and mark of each way of training
    "from scratch": (style.TEXT, "s"),
    "probe": (style.SERIES[1], "v"),
    "LoRA": (style.SERIES[2], "^"),
    "full": (style.SERIES[0], "o"),
}


def draw_transfer(trained: Mapping[str, int]) -> Figure:
    """Draw a pretrained model and those made from it: what each copies, adds and trains.

    trained: {way: number of trained parameters} for a linear probe, LoRA, full fine-tuning and
             training from scratch
    """
    fig, ax = style.new_figure(9, 5.0)
    title = "Every way needs a new head; they differ in what else they copy and train"
    style.hide_axes(ax, title).set(xlim=(0, 18), ylim=(-2.7, 9.0))
    draw_stack(
        ax,
        0.2,
        3.6,
        dict.fromkeys(PARTS, FROZEN) | {"head": DROPPED},
        (*PARTS[:-1], "old head, dropped"),
    )
    write(ax, 2.0, 8.45, "pretrained model", weight="bold")
    write(ax, 5.1, -0.55, "trained parameters:", ha="right")
    for i, (way, count) in enumerate(trained.items()):
        left = 5.6 + 3.15 * i
        body = (FROZEN, FROZEN, TRAINED, NEW)[i]
        styles = dict.fromkeys(PARTS, body) | {"head": NEW}
        draw_stack(ax, left, 1.5 if i == 1 else 2.2, styles)
        write(ax, left + 1.1, 8.45, way, weight="bold")
        write(ax, left + 1.1, -0.55, f"{count:,}")
        for block in (2, 3, 4, 5) if i == 1 else ():
            for x, name in ((1.56, "A"), (1.91, "B")):
                ax.add_patch(
                    Rectangle((left + x, block + 0.05), 0.32, 0.7, **NEW | {"hatch": "//////"})
                )
                write(ax, left + x + 0.16, 6.12, name)
    arrow(ax, (4.0, 3.0), (5.4, 3.0), linewidth=2, shrinkA=2, shrinkB=2)
    write(ax, 4.68, 4.4, "copy\nall but\nthe head")
    for x, options, name in (
        (0.2, FROZEN, "copied, stays as it was"),
        (6.3, TRAINED, "copied, then trained"),
        (12.2, NEW, "new, trained"),
    ):
        ax.add_patch(Rectangle((x, -2.45), 0.9, 0.6, **options))
        write(ax, x + 1.15, -2.15, name, ha="left")
    return fig


def draw_stack(
    ax: Axes, left: float, width: float, styles: Mapping[str, Look], names: Sequence[str] = ()
) -> None:
    """Draw the parts of a model above each other, the first at the bottom."""
    for y, options in enumerate(styles.values()):
        ax.add_patch(Rectangle((left, y), width, 0.8, **options))
        if names:
            write(ax, left + width / 2, y + 0.4, names[y])


def draw_lora(m: int, n: int, r: int) -> Figure:
    """Draw the frozen matrix W, (m, n), and, to the same scale, B (m, r) and A (r, n).

    The product of B and A has the shape of W.
    """
    fig, ax = style.new_figure(9, 4.2)
    title = f"LoRA of rank {r} trains {r * (m + n):,} numbers beside a frozen matrix of {m * n:,}"
    style.hide_axes(ax, title).set(
        xlim=(-0.55 * m, 2.3 * m), ylim=(-0.2 * m, 1.18 * m), aspect="equal", anchor="W"
    )
    left, gap = n + 0.5 * m, 0.05 * m  # of B, and between a factor and the product
    product = left + r + gap
    ax.add_patch(Rectangle((0, 0), n, m, **FROZEN))
    ax.add_patch(Rectangle((left, 0), r, m, **NEW))
    ax.add_patch(Rectangle((product, m + gap), n, r, **NEW))
    ax.add_patch(
        Rectangle(
            (product, 0),
            n,
            m,
            facecolor="white",
            edgecolor=NEW["edgecolor"],
            linestyle="--",
            linewidth=1.5,
        )
    )
    write(ax, n / 2, m / 2, f"W\n{m} x {n}\nfrozen")
    write(ax, product + n / 2, m / 2, f"B A\n{m} x {n}\nrank at\nmost {r}")
    write(ax, left + r / 2, -0.1 * m, f"B, {m} x {r}\nstarts at zero")
    write(ax, product + n + gap, m + gap + r / 2, f"A, {r} x {n}, starts random", ha="left")
    write(ax, -0.28 * m, m / 2, "y  =  (")
    write(ax, n + 0.25 * m, m / 2, "+   s")
    write(ax, product + n + 0.06 * m, m / 2, ")  x  +  b", ha="left")
    return fig


def draw_resized(learned: Tensor, resized: Mapping[str, Tensor]) -> Figure:
    """Draw one channel of the position embeddings, resized, and how libraries differ.

    The first library's is drawn as it is, the others minus it.

    learned: (rows, cols), before resizing;  resized: {library: (rows', cols')}
    """
    (first, basis), *others = resized.items()
    fig, axes = style.new_figure(9, 3.3, ncols=2 + len(others))
    title = "Four libraries interpolate the same position embeddings differently"
    style.title_figure(fig, title)
    top = float(max(learned.abs().max(), basis.abs().max()))
    panels = {
        f"learned, {learned.shape[0]} x {learned.shape[1]}": learned,
        f"{first}, {basis.shape[0]} x {basis.shape[1]}": basis,
    }
    for ax, (name, values) in zip(axes, panels.items(), strict=False):
        shown = style.hide_axes(ax, name).imshow(
            values.detach(), cmap=style.SIGNED, vmin=-top, vmax=top
        )
    gaps = {f"{name}\nminus {first}": (values - basis).detach() for name, values in others}
    most = float(max(gap.abs().max() for gap in gaps.values()))
    for ax, (name, values) in zip(axes[2:], gaps.items(), strict=True):
        apart = style.hide_axes(ax, name).imshow(values, cmap=style.SIGNED, vmin=-most, vmax=most)
    for drawn, group, label in (
        (shown, axes[:2], "value of one channel"),
        (apart, axes[2:], "difference in that channel"),
    ):
        bar = fig.colorbar(drawn, ax=list(group), location="bottom", shrink=0.7, aspect=25)
        bar.set_label(label, fontsize=style.TEXT_SIZE, color=style.TEXT)
        bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT)
    return fig


def draw_masking(image: Tensor, hidden: Tensor, predicted: Tensor, patch_size: int) -> Figure:
    """Draw what a masked autoencoder does with one image.

    It hides patches, encodes the rest, predicts the hidden ones, and compares.

    image, predicted: (H, W), from 0 to 1;  hidden: (H / P, W / P), True where a patch is hidden
    """
    fig, axes = style.new_figure(9, 2.3, ncols=5)
    titles = (
        "1. An image",
        "2. The encoder\nsees half of it",
        "3. The decoder\npredicts the rest",
        "4. The hidden\noriginals",
    )
    for ax, title, values in zip(axes, titles, (image, image, predicted, image), strict=False):
        style.hide_axes(ax, title).imshow(values, cmap="gray", vmin=0, vmax=1)
    shade_patches(axes[1], hidden, patch_size)
    frame_patches(axes[2], hidden, patch_size)
    shade_patches(axes[3], ~hidden, patch_size)
    covered = hidden.repeat_interleave(patch_size, 0).repeat_interleave(patch_size, 1)
    error = (predicted - image).square().where(covered, torch.nan)
    shown = style.hide_axes(axes[4], "5. The errors of\nthe prediction").imshow(
        error, cmap=style.VALUES, vmin=0
    )
    shade_patches(axes[4], ~hidden, patch_size)
    color_bar(shown, axes[4], "squared error", shrink=0.6)
    return fig


def shade_patches(ax: Axes, which: Tensor, patch_size: int) -> None:
    """Cover some patches of an image with a hatch.  which: (rows, cols), True: to cover."""
    for row, col in which.nonzero().tolist():
        corner = (col * patch_size - 0.5, row * patch_size - 0.5)
        ax.add_patch(
            Rectangle(
                corner,
                patch_size,
                patch_size,
                facecolor="white",
                edgecolor=style.LINE,
                hatch="////",
                linewidth=0.5,
            )
        )


def frame_patches(ax: Axes, which: Tensor, patch_size: int) -> None:
    """Frame some patches of an image.  which: (rows, cols), True for those to frame."""
    for row, col in which.nonzero().tolist():
        corner = (col * patch_size - 0.5, row * patch_size - 0.5)
        ax.add_patch(
            Rectangle(
                corner, patch_size, patch_size, fill=False, edgecolor=style.SERIES[1], linewidth=2
            )
        )


def draw_reconstructions(
    images: Tensor, hidden: Tensor, predicted: Tensor, patch_size: int, title: str | None = None
) -> Figure:
    """Draw images with hidden patches, with these predicted (framed), and whole: three rows.

    images, predicted: (n, H, W), from 0 to 1
    hidden           : (n, H / P, W / P), True where a patch is hidden
    """
    fig, axes = style.new_figure(9, 3.8, nrows=3, ncols=len(images))
    style.title_figure(fig, title)
    names = ("the encoder's\ninput", "hidden half\npredicted", "original")
    marks = (shade_patches, frame_patches, None)
    for name, line, row, mark in zip(names, axes, (images, predicted, images), marks, strict=True):
        for ax, image, chosen in zip(line, row, hidden, strict=True):
            style.hide_axes(ax).imshow(image, cmap="gray", vmin=0, vmax=1)
            if mark:
                mark(ax, chosen, patch_size)
        name_row(line[0], name, 0.15)
    return fig


def draw_ways(
    ways: Mapping[str, Mapping[str, tuple[float, float, float]]],
    ax: Axes | None = None,
    title: str | None = None,
    floor: float | None = None,
) -> Axes:
    """Draw accuracies of several ways of training, for numbers of labels, with intervals.

    ways : {way: {group: (low, mean, high)}}, a way by its name in `WAYS`
    floor: the accuracy of a constant answer
    """
    ax = style.new_axes(ax, 9, 3.4)
    for i, (way, groups) in enumerate(ways.items()):
        means = [mean for _, mean, _ in groups.values()]
        bars = [
            [mean - low for low, mean, _ in groups.values()],
            [high - mean for _, mean, high in groups.values()],
        ]
        places = [group + 0.16 * (i - (len(ways) - 1) / 2) for group in range(len(groups))]
        color, marker = WAYS[way]
        options = {
            "color": color,
            "marker": marker,
            "markersize": 8,
            "linestyle": "",
            "elinewidth": 2,
            "capsize": 4,
        }
        ax.errorbar(places, means, bars, label=way.replace("probe", "linear probe"), **options)
        ax.set_xticks(range(len(groups)), groups)
    if floor is not None:
        ax.axhline(floor, color=style.LINE, linestyle=":", label="most frequent training class")
    ax.set_xlim(-0.5, len(groups) - 0.5)
    return style.style_axes(ax, title, None, "test accuracy, 95% interval")
