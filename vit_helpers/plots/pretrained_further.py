"""Notebook 09, further: rates by layer, resized grids, other pretrained models, hidden patches."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import write
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box
from vit_helpers.plots.pretrained import WAYS, Interval

GRAYS = colormaps["gray"].resampled(48)  # few, so that smooth pictures stay small files


def draw_rates(factors: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the learning rate of each layer, as a fraction of the head's.

    factors: {name: one for the embedding, one for each block, 1 for the head}
    """
    fig, ax = style.new_figure(9, 3)
    looks = zip(cycle(style.SERIES), cycle("o^sD"), strict=False)
    for (name, values), (color, mark) in zip(factors.items(), looks, strict=False):
        ax.plot(range(len(values)), values, marker=mark, color=color)
        layer = round(0.62 * (len(values) - 1))
        write(ax, layer - 0.1, values[layer] + 0.12, name, ha="right", color=color)
    title = "The same decay slows the first layers of deep models more"
    style.style_axes(ax, title, "layer (0 is the embedding)", "rate / rate of the head")
    lowest = ", ".join(f"{name}: {values[0]:.2f}" for name, values in factors.items())
    return Picture(
        fig,
        "The learning rate of each layer as a fraction of the head's, for several models.",
        f"Curves that rise to 1 at the head. The embedding's fraction is, for {lowest}.",
    )


def draw_centers(old: int, new: Mapping[str, Sequence[float]]) -> Picture:
    """Draw where, on a row of learned positions, each position of a longer row is read.

    old: how many learned ones;  new: {library: the places, in units of old positions from 0}
    """
    fig, ax = style.new_figure(9, 0.8 * len(new) + 0.7)
    style.hide_axes(ax).set(xlim=(-3.2, old - 0.2), ylim=(-len(new) + 0.35, 1))
    count = len(next(iter(new.values())))
    style.title_figure(fig, f"Two ways to lay {count} new positions over {old} learned ones")
    for row, (name, places) in enumerate(new.items()):
        for i in range(old):
            corner = (i - 0.5, -row - 0.28)
            look = {"facecolor": style.MUTED, "edgecolor": style.LINE}
            ax.add_patch(Rectangle(corner, 1, 0.56, **look))
            write(ax, i, -row + 0.14, str(i + 1), color=style.LINE)
        ax.plot(places, [-row - 0.1] * len(places), "v", color=style.POSITION, markersize=9)
        write(ax, -0.75, -row, name, ha="right")
    return Picture(
        fig,
        "Rows of learned positions, and where libraries read the positions of a longer row.",
        f"Rows of {old} cells with {count} marks. "
        + "; ".join(
            f"{name.replace(chr(10), ' ')}: from {places[0]:.2f} to {places[-1]:.2f}"
            for name, places in new.items()
        )
        + ".",
    )


def draw_leads(leads: Mapping[str, Mapping[str, Mapping[int, Interval]]]) -> Picture:
    """Draw a lead in points against the number of labels, for several pretrained models.

    leads: {task: {pretrained model: {labels: (low, mean, high)}}}, the stored model first
    """
    color, marker = WAYS["full"]
    fig, axes = style.new_figure(9, 3.4, ncols=len(leads), squeeze=False)
    style.title_figure(fig, "Each pretrained model is ahead of training from scratch")
    ends = []
    for ax, (task, models) in zip(axes[0], leads.items(), strict=True):
        sizes = list(next(iter(models.values())))
        for i, points in enumerate(models.values()):
            for x, (low, mean, high) in enumerate(points.values()):
                place = x + 0.2 * (i - (len(models) - 1) / 2)
                ax.plot([place, place], [low, high], color=color, linewidth=2)
                fill = "white" if i else color
                ax.plot(place, mean, marker, color=color, markerfacecolor=fill, markersize=8)
        ax.axhline(0, color=style.LINE, linewidth=1)
        ax.set_xticks(range(len(sizes)), [f"{labels:,}" for labels in sizes])
        ax.set_xlim(-0.5, len(sizes) - 0.5)
        style.style_axes(ax, task, "labeled images", "full minus scratch (points)")
        means = [mean for points in models.values() for _, mean, _ in points.values()]
        ends.append(f"{task}, {len(models)} models: {min(means):.1f} to {max(means):.1f} points")
    axes[0, -1].set_ylabel("")
    lines = [
        line for models in leads.values() for points in models.values() for line in points.values()
    ]
    lowest = min(low for low, _, _ in lines)
    fig.supxlabel("● the stored model, ○ the same pretraining from other seeds", fontsize=12)
    return Picture(
        fig,
        "The lead of full fine-tuning over training from scratch, for several pretrained models.",
        f"Marks with intervals, the lowest end at {lowest:.1f}. " + "; ".join(ends) + ".",
    )


def draw_accuracies(
    panels: Mapping[str, Mapping[str, Mapping[int, Interval]]], floor: float | None = None
) -> Picture:
    """Draw test accuracies of several ways for numbers of labels, with intervals, in panels.

    panels: {title: {way: {labels: (low, mean, high)}}};  floor: the accuracy of a constant answer
    """
    fig, axes = style.new_figure(9, 3.6, ncols=len(panels), sharey=True, squeeze=False)
    for ax, (title, ways) in zip(axes[0], panels.items(), strict=True):
        for i, (way, points) in enumerate(ways.items()):
            color, marker = WAYS[way]
            places = [group + 0.16 * (i - (len(ways) - 1) / 2) for group in range(len(points))]
            for place, (low, _, high) in zip(places, points.values(), strict=True):
                ax.plot([place, place], [low, high], color=color, linewidth=2)
            means = [mean for _, mean, _ in points.values()]
            ax.plot(places, means, marker, color=color, markersize=8, label=way)
        ax.set_xticks(range(len(points)), [f"{labels:,}" for labels in points])
        ax.set_xlim(-0.5, len(points) - 0.5)
        if floor is not None:
            ax.axhline(floor, color=style.LINE, linestyle=":", label="a constant answer")
        style.style_axes(ax, title, "labeled images", "test accuracy")
    for ax in axes[0, 1:]:
        ax.set_ylabel("")
    look = {
        "ncols": 5,
        "fontsize": style.TEXT_SIZE,
        "frameon": False,
        "loc": "outside lower center",
    }
    fig.legend(*axes[0, 0].get_legend_handles_labels(), **look)
    said = [
        f"{title}: "
        + "; ".join(
            f"{way} " + ", ".join(f"{mean:.2f}" for _, mean, _ in points.values())
            for way, points in ways.items()
        )
        for title, ways in panels.items()
    ]
    return Picture(
        fig,
        "Test accuracy of several ways of training, for numbers of labeled images.",
        ". ".join(said) + ".",
    )


def draw_reconstructions(
    images: Tensor, hidden: Tensor, predicted: Tensor, patch_size: int
) -> Picture:
    """Draw images as ink on paper: what the encoder sees, what the decoder adds, the original.

    images, predicted: (n, H, W), from 0 to 1
    hidden           : (n, H / P, W / P), True where a patch is hidden
    """
    fig, axes = style.new_figure(9, 2.35 * len(images) + 0.3, nrows=len(images), ncols=4)
    style.title_figure(fig, "The decoder continues strokes, but blurs them")
    titles = ("seen", "with the prediction", "original", "squared errors")
    for line, image, covered, guess in zip(axes, images, hidden, predicted, strict=True):
        for ax, values in zip(line, (image, guess, image), strict=False):
            shown = style.hide_axes(ax).imshow(1 - values, cmap=GRAYS, vmin=0, vmax=1)
            shown.set_interpolation("bicubic")
            draw_box(ax, (0, 0, 1, 1), style.LINE, transform=ax.transAxes, clip_on=False)
        cover(line[0], covered, patch_size)
        write_errors(line[3], (guess - image).square(), covered, patch_size)
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
    return Picture(
        fig,
        "Digits with half of their patches hidden, with these predicted, and as they are.",
        f"{len(images)} digits in rows: with half of the patches covered, with the prediction in "
        "their place, whole, and the mean squared error of each hidden patch. Predictions continue "
        "strokes, but are gray.",
    )


def cover(ax: Axes, which: Tensor, patch_size: int) -> None:
    """Cover some patches of an image with a hatch.  which: (rows, cols), True: to cover."""
    for row, col in which.nonzero().tolist():
        corner = (col * patch_size - 0.5, row * patch_size - 0.5)
        look = {"facecolor": "white", "edgecolor": style.LINE, "hatch": "////", "linewidth": 0.5}
        ax.add_patch(Rectangle(corner, patch_size, patch_size, **look))


def write_errors(ax: Axes, errors: Tensor, which: Tensor, patch_size: int) -> None:
    """Write the mean error of each hidden patch into its place.  errors: (H, W)"""
    H, W = errors.shape
    style.hide_axes(ax).set(xlim=(-0.5, W - 0.5), ylim=(H - 0.5, -0.5), aspect="equal")
    rows, cols = which.shape
    means = errors.reshape(rows, patch_size, cols, patch_size).mean(dim=(1, 3))
    for row, col in which.nonzero().tolist():
        corner = (col * patch_size - 0.5, row * patch_size - 0.5)
        depth = float(means[row, col].clamp(0, 0.5))
        look = {"facecolor": to_rgba(style.SERIES[2], depth), "edgecolor": style.LINE}
        ax.add_patch(Rectangle(corner, patch_size, patch_size, **look))
        x, y = corner[0] + patch_size / 2, corner[1] + patch_size / 2
        write(ax, x, y, f"{float(means[row, col]):.2f}"[1:], fontsize=style.TEXT_SIZE - 1)
