"""Figures that only commands draw: the results of a test, and maps beside an image."""

from collections.abc import Mapping

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_image, draw_over
from vit_helpers.plots.training import draw_confusion

NAMED = 30  # classes, as many as have room for their names


def draw_test(counts: Tensor, table: pd.DataFrame) -> Figure:
    """Draw the confusion matrix, and beside it the accuracy of each class with its interval.

    counts: (K, K), a row for each true class
    table : `class_table` of them
    """
    K = len(counts)
    height = min(14.0, 3.5 + 0.3 * K)
    fig, (left, right) = style.new_figure(2.2 * height, height, ncols=2)
    names = [shorten(name) if K <= NAMED else "" for name in table.index[:-1]]
    draw_confusion(
        counts,
        names,
        left,
        f"{int(counts.trace()):,} of {int(counts.sum()):,} images are classified correctly",
    )
    draw_class_accuracy(table, right, "Accuracy of each class")
    return fig


def draw_class_accuracy(
    table: pd.DataFrame, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw a dot for each class, and a line over its 95% interval.

    table: `class_table`, whose last row is that of all classes, the dotted line
    """
    ax = style.new_axes(ax, 6, 4)
    classes, total = table.iloc[:-1], table.iloc[-1]
    places = range(len(classes))
    ax.hlines(
        places, classes["low"], classes["high"], color=style.LINE, linewidth=3, label="95% interval"
    )
    ax.plot(classes["accuracy"], places, "o", color=style.SERIES[0], label="accuracy")
    ax.axvline(
        total["accuracy"],
        color=style.TEXT,
        linestyle=":",
        label=f"all classes: {total['accuracy']:.3f}",
    )
    if len(classes) <= NAMED:
        names = zip(classes.index, classes["images"], strict=True)
        ax.set_yticks(places, [f"{shorten(name)} ({n:,})" for name, n in names])
    ax.set(xlim=(-0.02, 1.02), ylim=(len(classes) - 0.5, -0.5))
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower left")
    return style.style_axes(
        ax, title, "accuracy (fraction of images)", "class (images in the test)"
    )


def shorten(name: str, length: int = 18) -> str:
    """Cut the name of a class to so many characters; matplotlib takes it for no formula."""
    text = " ".join(str(name).split())
    return (text if len(text) <= length else text[: length - 1] + "…").replace("$", r"\$")


def draw_beside(image: Tensor, title: str, maps: Mapping[str, Tensor], label: str) -> Figure:
    """Draw an image, and beside it each of the maps laid over it, with a scale of its own.

    image: (C, H, W), from 0 to 1
    maps : {title: (rows, cols)}
    label: what the colors mean
    """
    fig, (left, *others) = style.new_figure(11, 4, ncols=1 + len(maps))
    draw_image(image, left, title)
    for ax, (name, heat) in zip(others, maps.items(), strict=True):
        _, drawn = draw_over(image, heat, ax, name)
        color_bar(drawn, ax, label)
    return fig


def draw_look(
    image: Tensor,
    components: Tensor,
    attention: Tensor,
    similarity: Tensor,
    patch: tuple[int, int],
    block: int,
) -> Figure:
    """Draw a photo, and beside it what a model makes of its patches.

    image     : (C, H, W), from 0 to 1
    components: (rows, columns, 3) of the tokens after a block, see `principal_components`
    attention : (rows, columns) of the class token
    similarity: (rows, columns), cosines with the token of a patch, (row, column)
    """
    rows, columns = attention.shape
    fig, axes = style.new_figure(11, 11 * rows / columns + 0.6, nrows=2, ncols=2)
    low, high = components.flatten(0, 1).quantile(torch.tensor([0.01, 0.99]), dim=0)
    colors = ((components - low) / (high - low).clamp(min=1e-12)).permute(2, 0, 1)
    panels = {
        "What the model sees": image,
        f"Three components of the tokens after block {block}": colors,
        "Attention of the class token, last block": attention[None] / attention.quantile(0.99),
        "Similarity to the patch with the cross": similarity[None],
    }
    for ax, (title, panel) in zip(axes.flat, panels.items(), strict=True):
        draw_image(panel, ax, title)
    cross = {"marker": "x", "color": "#00e5ff", "markersize": 9, "markeredgewidth": 2.5}
    for ax in (axes[0, 0], axes[1, 1]):
        x, y = (patch[1] + 0.5) / columns, 1 - (patch[0] + 0.5) / rows
        ax.plot(x, y, transform=ax.transAxes, **cross)
    return fig
