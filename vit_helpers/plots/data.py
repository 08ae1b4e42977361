"""Pictures of data sets: rows of images with names, and results of several seeds side by side."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_image


def draw_rows(
    rows: Mapping[str, Sequence[Tensor] | Tensor], texts: Mapping[str, Sequence[str]] | None = None, height: float = 1.15
) -> tuple[Figure, dict[str, list[Axes]]]:
    """Rows of images on a new figure; returns the figure and a dict of each row's axes.

    rows  : {name: images, each (C, H, W) from 0 to 1}; sizes may differ
    texts : {name: a text above each image of that row}, for some rows or all
    height: of a row, in inches
    """
    texts = texts or {}
    columns = max(len(images) for images in rows.values())
    fig, grid = style.new_figure(9, height * len(rows) + 0.25 * len(texts), nrows=len(rows), ncols=columns, squeeze=False)
    axes = {name: list(line) for name, line in zip(rows, grid, strict=True)}
    for name, line in axes.items():
        for i, ax in enumerate(line):
            style.hide_axes(ax)
            if i < len(rows[name]):
                draw_image(rows[name][i], ax)
                ax.set_title(texts[name][i] if name in texts else "", fontsize=style.TEXT_SIZE, color=style.TEXT)
        line[0].text(
            -0.1, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=style.TEXT_SIZE, color=style.TEXT
        )
    return fig, axes


def draw_dots(
    groups: Mapping[str, Sequence[float] | Tensor], ax: Axes | None = None, title: str | None = None, x: str | None = None
) -> Axes:
    """A line of dots for each group, one a seed, and a bar at their mean; equal numbers stand above each other.

    groups: {name: numbers}
    """
    ax = style.new_axes(ax, 9, 0.55 * len(groups) + 1)
    for y, values in enumerate(groups.values()):
        values = torch.as_tensor(values)
        heights = [y + 0.2 * step for step in stacked(values.tolist())]
        ax.plot(values, heights, "o", color=style.PATCH, markersize=7, label="one seed" if y == 0 else None)
        ax.plot(
            values.mean(), y, "|", color=style.CLASS_TOKEN, markersize=24, markeredgewidth=3, label=None if y else "mean"
        )
    ax.set_yticks(range(len(groups)), groups)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, markerscale=0.6, loc="center left", bbox_to_anchor=(1, 0.5))
    return style.style_axes(ax, title, x)


def stacked(values: Sequence[float]) -> list[float]:
    """How many places up or down each number stands, so that equal ones do not cover each other

    >>> stacked([1.0, 2.0, 1.0])
    [-0.5, 0.0, 0.5]
    """
    near = [round(value, 6) for value in values]
    return [near[:i].count(value) - (near.count(value) - 1) / 2 for i, value in enumerate(near)]
