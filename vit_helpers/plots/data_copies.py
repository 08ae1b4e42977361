"""Notebook 06, further: scattered digits, hashes, matches, confusions, gains, mixed labels."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.data import WORDS, draw_frame, draw_rows
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box, draw_image

NEAR = 10  # bits: hashes that differ in no more may belong to copies


def draw_scattered(images: Tensor, labels: Tensor, boxes: Tensor) -> Picture:
    """Draw canvases with their labels, and a frame around the digit that the label names.

    images: (n, 1, H, W), from 0 to 1;  labels: (n,);  boxes: (n, 4), x, y, width and height
    """
    texts = {"": [f"label {label}" for label in labels.tolist()]}
    fig, axes = draw_rows({"": 1 - images}, texts, height=9 / len(images), smooth=True)
    for ax, (x, y, width, height) in zip(axes[""], boxes.tolist(), strict=True):
        draw_frame(ax)
        draw_box(ax, (x - 0.5, y - 0.5, width, height), style.SERIES[2], linewidth=3)
    style.title_figure(fig, "One digit in a frame, among fragments of others")
    return Picture(
        fig,
        "Canvases with one digit in a frame among fragments of other digits, and their labels.",
        f"{len(images)} canvases with the labels {', '.join(map(str, labels.tolist()))}. On each, "
        "a digit lies in a frame, its bounding box, among fragments of other digits.",
    )


def draw_hashes(images: Mapping[str, Tensor], cells: Tensor, bits: Tensor) -> Picture:
    """Draw images, and below each its cells and a bit for each cell.

    A bit is framed where it differs from that of the first image.

    images: {title: (C, H, W)};  cells: (n, g, g), from 0 to 1;  bits: (n, g, g)
    """
    n = len(images)
    fig, axes = style.new_figure(9, 3 * 8.2 / n + 1.1, nrows=3, ncols=n, squeeze=False)
    counts = [int((other != bits[0]).sum()) for other in bits]
    for column, (title, image) in enumerate(images.items()):
        for ax, shown in zip(
            axes[:, column], (image, cells[column][None], bits[column][None].float()), strict=True
        ):
            draw_image(shown, ax)
            draw_frame(ax)
        axes[0, column].set_title(title, **WORDS)
        verb = "differs" if counts[column] == 1 else "differ"
        below = f"{counts[column]} {verb}" if column else f"{bits[0].numel()} bits"
        axes[2, column].set_title(below, **WORDS)
        for y, x in (bits[column] != bits[0]).nonzero().tolist():
            draw_box(
                axes[2, column],
                (x - 0.5, y - 0.5, 1, 1),
                style.SERIES[1],
                linewidth=3,
                clip_on=False,
            )
    grid = f"{cells.shape[1]} x {cells.shape[2]} cells"
    for ax, name in zip(axes[:, 0], ("image", grid, "white: above\nthe mean"), strict=True):
        ax.text(-0.1, 0.5, name, transform=ax.transAxes, ha="right", va="center", **WORDS)
    near = sum(count <= NEAR for count in counts[1:])
    title = f"{near} of {n - 1} images differ from the first in at most {NEAR} bits"
    style.title_figure(fig, title)
    parts = [f"{title} {count}" for title, count in zip(images, counts, strict=True)][1:]
    return Picture(
        fig,
        "An image, changed copies and another image, each with its cells and its bits.",
        "Images, below each its gray cells and its bits, with frames where a bit differs from the "
        f"first image's. Differing bits: {', '.join(parts)}.".replace("\n", " "),
    )


def draw_matches(
    new: Tensor, known: Tensor, names: Sequence[str], bits: Sequence[int], similar: Sequence[float]
) -> Picture:
    """Draw images above what is most similar to each, in the order of their similarity.

    new, known: (n, C, H, W), from 0 to 1;  names: what each new image is
    bits      : in which each pair differs;  similar: the correlation of each pair
    """
    ends = [
        f"{count} bit{'' if count == 1 else 's'},\ncorr. {x:.2f}"
        for count, x in zip(bits, similar, strict=True)
    ]
    rows = {"validation": new, "training": known}
    fig, _ = draw_rows(rows, {"validation": names, "training": ends}, height=1.3)
    copies = sum(name != "new" for name in names)
    style.title_figure(fig, f"{copies} of the {len(names)} most similar pairs are copies")
    parts = [f"{name}: {x:.2f}" for name, x in zip(names, similar, strict=True)]
    return Picture(
        fig,
        "Validation tiles above the training tiles that are most similar, best pairs first.",
        f"{len(names)} validation tiles above their best candidates, with the bits that differ and "
        f"the correlation. {', '.join(parts)}.",
    )


def draw_confusions(tables: Mapping[str, Tensor], class_names: Sequence[str]) -> Picture:
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
    parts = [
        f"{title}: {' and '.join(str(line) for line in counts.tolist())}"
        for title, counts in tables.items()
    ]
    return Picture(
        fig,
        "Confusion matrices side by side, with counts and fractions of their rows.",
        f"Confusion matrices of the classes {', '.join(class_names)}. {'; '.join(parts)}.".replace(
            "\n", " "
        ),
    )


def draw_gains(gains: Mapping[str, Tensor], errors: Sequence[float]) -> Picture:
    """Draw how each augmentation changes the accuracy: a dot for a seed, a bar for their mean.

    gains : {name: (seeds,)}
    errors: the standard error of each mean, of which two are drawn to each side of it
    """
    marks = "change of the accuracy (dots: seeds; bar: mean, ± 2 standard errors)"
    means = [values.mean().item() for values in gains.values()]
    helps = [m - 2 * e > 0 for m, e in zip(means, errors, strict=True)]
    harms = [m + 2 * e < 0 for m, e in zip(means, errors, strict=True)]
    title = f"Two errors or more above 0: {sum(helps)} of {len(gains)}, below: {sum(harms)}"
    ax = draw_dots(gains, None, title, marks, errors)
    ax.axvline(0, color=style.LINE, zorder=0)
    parts = [f"{name} {m:+.3f}" for name, m in zip(gains, means, strict=True)]
    return Picture(
        ax.figure,
        "How each augmentation changes the accuracy, a dot for each seed, with means and errors.",
        f"Dots for {len(next(iter(gains.values())))} seeds, and bars of two standard errors to "
        f"each side of their mean: {', '.join(parts)}.",
    )


def draw_divisions(accuracies: Mapping[str, Tensor], true: str) -> Picture:
    """Draw accuracies of several seeds for each way to divide, and a line at the mean of the true.

    accuracies: {name: (seeds,)};  true: the name of those that the others are compared with
    """
    ax = draw_dots(
        accuracies, None, "Copies on both sides inflate the accuracy", "accuracy (bar: mean)"
    )
    middle = float(accuracies[true].mean())
    ax.axvline(middle, color=style.LINE, linestyle="--", zorder=0)
    parts = [f"{name} {values.mean():.3f}" for name, values in accuracies.items()]
    return Picture(
        ax.figure,
        "Accuracies if copies are made first, on unused digits, and if digits are divided first.",
        f"Dots for {len(accuracies[true])} seeds each, with their mean: {', '.join(parts)}. A "
        f"dashed line goes through the mean of {true}.",
    )


def draw_mixtures(
    images: Mapping[str, Tensor], labels: Tensor, class_names: Sequence[str]
) -> Picture:
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
    parts = [
        f"{title} {first:.2f}" for title, (first, _) in zip(images, labels.tolist(), strict=True)
    ]
    return Picture(
        fig,
        "Two images, blends of them, and each with a box of the other, above their labels as bars.",
        f"Images with a bar below each that shows its label. Weight of {class_names[0]}: "
        f"{', '.join(parts)}.",
    )


def draw_dots(
    groups: Mapping[str, Tensor],
    ax: Axes | None = None,
    title: str | None = None,
    x: str | None = None,
    errors: Sequence[float] = (),
) -> Axes:
    """Draw a line of dots for each group, one a seed, and a bar at their mean.

    Equal numbers stand above each other.

    groups: {name: (seeds,)}
    errors: the standard error of each mean, of which two are drawn to each side of it
    """
    ax = style.new_axes(ax, 9, 0.55 * len(groups) + 1)
    for y, values in enumerate(groups.values()):
        values = torch.as_tensor(values)
        heights = [y + 0.2 * step for step in stacked(values.tolist())]
        ax.plot(values, heights, "o", color=style.SERIES[0], alpha=0.6, markersize=7)
        bar = {"color": style.SERIES[2], "markersize": 24, "markeredgewidth": 3}
        ax.plot(values.mean(), y, "|", **bar)
        if len(errors):
            ends = {"linewidth": 3, "capsize": 6, "capthick": 3, "fmt": "none"}
            ax.errorbar(values.mean(), y, xerr=2 * errors[y], color=style.SERIES[2], **ends)
    ax.set_yticks(range(len(groups)), groups)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    return style.style_axes(ax, title, x)


def stacked(values: Sequence[float]) -> list[float]:
    """Find how many places up or down numbers stand, so that equal ones are all seen.

    >>> stacked([1.0, 2.0, 1.0])
    [-0.5, 0.0, 0.5]
    """
    near = [round(value, 6) for value in values]
    return [near[:i].count(value) - (near.count(value) - 1) / 2 for i, value in enumerate(near)]
