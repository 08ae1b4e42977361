"""Notebook 06: rows of images, channels, hashes, soft labels, confusions, results of seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_box, draw_image, name_row

CHANNELS = ("red", "green", "blue")
WORDS = {"fontsize": style.TEXT_SIZE, "color": style.TEXT}
CORNER = {
    "ha": "right",
    "va": "top",
    "fontsize": style.TEXT_SIZE - 1,
    "color": style.TEXT,
}


def draw_rows(
    rows: Mapping[str, Sequence[Tensor] | Tensor],
    texts: Mapping[str, Sequence[str]] | None = None,
    height: float = 1.15,
) -> tuple[Figure, dict[str, list[Axes]]]:
    """Draw rows of images on a new figure; returns the figure and a dict of each row's axes.

    rows  : {name: images, each (C, H, W) from 0 to 1}; sizes may differ
    texts : {name: a text above each image of that row}, for some rows or all
    height: of a row, in inches
    """
    texts = texts or {}
    columns = max(len(images) for images in rows.values())
    fig, grid = style.new_figure(
        9, height * len(rows) + 0.25 * len(texts), nrows=len(rows), ncols=columns, squeeze=False
    )
    axes = {name: list(line) for name, line in zip(rows, grid, strict=True)}
    for name, line in axes.items():
        for i, ax in enumerate(line):
            style.hide_axes(ax)
            if i < len(rows[name]):
                draw_image(rows[name][i], ax)
                ax.set_title(
                    texts[name][i] if name in texts else "",
                    fontsize=style.TEXT_SIZE,
                    color=style.TEXT,
                )
        name_row(line[0], name, 0.1, color=style.TEXT)
    return fig, axes


def draw_dots(
    groups: Mapping[str, Sequence[float] | Tensor],
    ax: Axes | None = None,
    title: str | None = None,
    x: str | None = None,
    errors: Sequence[float] | Tensor = (),
) -> Axes:
    """Draw a line of dots for each group, one a seed, and a bar at their mean.

    Equal numbers stand above each other.

    groups: {name: numbers}
    errors: the standard error of each mean, of which two are drawn to each side of it
    """
    ax = style.new_axes(ax, 9, 0.55 * len(groups) + 1)
    for y, values in enumerate(groups.values()):
        values = torch.as_tensor(values)
        heights = [y + 0.2 * step for step in stacked(values.tolist())]
        ax.plot(
            values,
            heights,
            "o",
            color=style.SERIES[0],
            alpha=0.6,
            markersize=7,
            label="one seed" if y == 0 else None,
        )
        ax.plot(
            values.mean(),
            y,
            "|",
            color=style.SERIES[2],
            markersize=24,
            markeredgewidth=3,
            label=None if y else "mean",
        )
        if len(errors):
            bar = {
                "color": style.SERIES[2],
                "linewidth": 3,
                "capsize": 6,
                "capthick": 3,
                "fmt": "none",
            }
            ax.errorbar(
                values.mean(),
                y,
                xerr=2 * errors[y],
                label=None if y else "± 2 standard\nerrors",
                **bar,
            )
    ax.set_yticks(range(len(groups)), groups)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.legend(
        fontsize=style.TEXT_SIZE - 1,
        frameon=False,
        markerscale=0.6,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )
    return style.style_axes(ax, title, x)


def stacked(values: Sequence[float]) -> list[float]:
    """Find how many places up or down numbers stand, so that equal ones are all seen.

    >>> stacked([1.0, 2.0, 1.0])
    [-0.5, 0.0, 0.5]
    """
    near = [round(value, 6) for value in values]
    return [near[:i].count(value) - (near.count(value) - 1) / 2 for i, value in enumerate(near)]


def draw_channels(panels: Mapping[str, Tensor], bins: int = 30) -> Figure:
    """Draw histograms of the values of each channel, with mean and standard deviation.

    The mean is a line, one standard deviation on each side a band.

    panels: {title: images, (n, C, H, W)}, a column for each; the channels are the rows
    """
    C = next(iter(panels.values())).shape[1]
    fig, axes = style.new_figure(
        9, 1.0 * C + 0.7, nrows=C, ncols=len(panels), sharex="col", squeeze=False
    )
    for column, (title, images) in enumerate(panels.items()):
        for c in range(C):
            ax, values = axes[c, column], images[:, c].flatten()
            mean, std = values.mean().item(), values.std().item()
            ax.axvspan(
                mean - std, mean + std, ymax=1 / 1.4, color=style.SERIES[1], alpha=0.3, linewidth=0
            )
            highest = ax.hist(values.numpy(), bins=bins, color=style.SERIES[0])[0].max()
            ax.set_ylim(0, 1.4 * highest)  # the numbers stand above
            ax.axvline(mean, ymax=1 / 1.4, color=style.SERIES[2], linewidth=3)
            style.style_axes(
                ax, title if c == 0 else "", "value of a pixel" if c == C - 1 else ""
            ).set_yticks([])
            ax.text(
                0.99,
                0.98,
                f"mean {mean:.2f}, std {std:.2f}".replace("-0.00", "0.00"),
                transform=ax.transAxes,
                **CORNER,
            )
            if column == 0 and C > 1:
                ax.set_ylabel(CHANNELS[c], fontsize=style.TEXT_SIZE, color=style.TEXT)
    fig.supxlabel(
        "height: number of pixels, each panel on its own scale; line: mean; band: ± one std",
        fontsize=style.TEXT_SIZE,
    )
    return fig


def draw_hashes(images: Mapping[str, Tensor], cells: Tensor, bits: Tensor) -> Figure:
    """Draw images, and below each its cells and a bit for each cell.

    A bit is framed where it differs from that of the first image.

    images: {title: (C, H, W)};  cells: (n, g, g), from 0 to 1;  bits: (n, g, g)
    """
    n = len(images)
    fig, axes = style.new_figure(9, 3 * 8.2 / n + 0.75, nrows=3, ncols=n, squeeze=False)
    for column, (title, image) in enumerate(images.items()):
        different = bits[column] != bits[0]
        for ax, shown in zip(
            axes[:, column], (image, cells[column][None], bits[column][None].float()), strict=True
        ):
            draw_image(shown, ax)
            draw_box(
                ax, (0, 0, 1, 1), style.LINE, linewidth=1, transform=ax.transAxes, clip_on=False
            )
        axes[0, column].set_title(title, **WORDS)
        axes[2, column].set_title(
            f"distance {int(different.sum())}" if column else "64 bits", **WORDS
        )
        for y, x in different.nonzero().tolist():
            draw_box(
                axes[2, column],
                (x - 0.5, y - 0.5, 1, 1),
                style.SERIES[1],
                linewidth=3,
                clip_on=False,
            )
    for ax, name in zip(
        axes[:, 0], ("image", "8 x 8 cells", "hash: white\nif above\nthe mean"), strict=True
    ):
        ax.text(-0.1, 0.5, name, transform=ax.transAxes, ha="right", va="center", **WORDS)
    return fig


def draw_confusions(tables: Mapping[str, Tensor], class_names: Sequence[str]) -> Figure:
    """Draw confusion matrices side by side; each cell has its count and its fraction of the row.

    Mistakes are colored by that fraction on one scale from 0 to 1, so that colors can be compared
    between the matrices.
    tables: {title: (K, K)}, a row for each true class, a column for each predicted one
    """
    fig, axes = style.new_figure(9, 3.1, ncols=len(tables), squeeze=False)
    colors = LinearSegmentedColormap.from_list(
        "mistakes", ["white", style.SERIES[2]]
    ).with_extremes(bad=style.MUTED)
    for column, (title, counts) in enumerate(tables.items()):
        ax, places = axes[0, column], range(len(counts))
        fractions = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
        mistakes = fractions.masked_fill(
            torch.eye(len(counts), dtype=torch.bool), torch.nan
        ).numpy()
        drawn = ax.imshow(mistakes, cmap=colors, vmin=0, vmax=1)
        for y, x in np.ndindex(*counts.shape):
            cell, ink = (
                f"{counts[y, x]:,}\n{fractions[y, x]:.0%}",
                style.ink_on(drawn.to_rgba(mistakes)[y, x]),
            )
            ax.text(x, y, cell, ha="center", va="center", fontsize=style.TEXT_SIZE, color=ink)
        ax.set_xticks(places, class_names)
        ax.set_yticks(places, class_names)
        style.style_axes(
            ax, title, "predicted class", "" if column else "true class (% of its row)"
        )
    return fig


def draw_soft_labels(
    images: Mapping[str, Tensor], labels: Tensor, class_names: Sequence[str]
) -> Figure:
    """Draw images with a title, and below each its label as a bar from 0 to 1.

    The bar is cut into the weights of two classes.

    images: {title: (C, H, W)};  labels: (n, 2), rows that sum to 1
    """
    fig, axes = style.new_figure(
        9, 9 / len(images) + 1.0, nrows=2, ncols=len(images), height_ratios=[9 / len(images), 0.7]
    )
    for column, ((title, image), (first, second)) in enumerate(
        zip(images.items(), labels.tolist(), strict=True)
    ):
        draw_image(image, axes[0, column]).set_title(title, **WORDS)
        ax = style.hide_axes(axes[1, column])
        ax.set(xlim=(0, 1), ylim=(-2.2, 1))
        ax.add_patch(Rectangle((0, 0), first, 1, facecolor=style.SERIES[0], linewidth=0))
        ax.add_patch(
            Rectangle(
                (first, 0),
                second,
                1,
                facecolor=style.MUTED,
                hatch="//",
                edgecolor=style.LINE,
                linewidth=0,
            )
        )
        ax.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=style.TEXT, clip_on=False))
        for y, name, weight in zip((-0.3, -1.3), class_names, (first, second), strict=True):
            ax.text(0.5, y, f"{name} {weight:.2f}", ha="center", va="top", **WORDS)
    return fig
