"""Notebook 06: what is looked up, hands, folds, channels, augmentations, batches, reports."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box, draw_image, mark_wrong, name_row

CHANNELS = ("red", "green", "blue")
WORDS = {"fontsize": style.TEXT_SIZE, "color": style.TEXT}
# rows of the validation split, of five classes, whose nearest neighbors are by the same writer
ASKED = (103, 148, 154, 104, 62)
ARROW = {"arrowstyle": "-|>", "color": style.LINE, "linewidth": 2.5, "shrinkA": 6, "shrinkB": 7}
GRAYS = colormaps["gray"].resampled(48)  # few, so that smooth pictures stay small files
Interval = tuple[float, float, float]  # mean, low, high


def draw_question(data: Any, rows: Sequence[int] = ASKED) -> Picture:
    """Draw images of the validation split, and below each the training image nearest to it.

    data: a data set with the splits `train` and `validation`;  rows: of the validation split
    """
    asked, known = data.validation.images[list(rows)], data.train.images
    found = torch.cdist(asked.flatten(1), known.flatten(1)).argmin(dim=1)
    labels = data.train.labels[found].tolist()
    right = sum(
        label == data.validation.labels[row] for label, row in zip(labels, rows, strict=True)
    )
    fig, axes = draw_rows(
        {"new": 1 - asked, "looked up": 1 - known[found]},
        {"looked up": [f"so it is a {label}" for label in labels]},
        height=1.75,
        smooth=True,
    )
    for ax in (ax for line in axes.values() for ax in line):
        draw_frame(ax)
    title = f"{right} of {len(rows)} answers are right, and all are looked up"
    style.title_figure(fig, title)
    return Picture(
        fig,
        "New digits, and below each the most similar training image, whose label is the answer.",
        f"{len(rows)} handwritten digits, and below each the training image nearest to it, of the "
        f"classes {', '.join(map(str, labels))}. In each pair, the strokes look nearly the same.",
    )


def draw_hands(
    split: Any, sheet: Tensor, sheets: Sequence[int] = (3, 7, 13), classes: Sequence[int] = (1, 7)
) -> Picture:
    """Draw four images of each class from each of some sheets, a row for each sheet.

    split: with `images` (n, C, H, W) and `labels` (n,);  sheet: (n,), the sheet of each image
    """
    rows = {}
    for s in sheets:
        chosen = [((sheet == s) & (split.labels == c)).nonzero()[:4, 0] for c in classes]
        rows[f"sheet {s}"] = 1 - split.images[torch.cat(chosen)]
    fig, axes = draw_rows(rows, height=1.05, smooth=True)
    for ax in (ax for line in axes.values() for ax in line):
        draw_frame(ax)
    first, *others = classes
    rest = "".join(f", and so do most {c}s" for c in others)
    style.title_figure(fig, f"Within a sheet, most {first}s look alike{rest}")
    return Picture(
        fig,
        "Four digits of each of two classes from each of three sheets.",
        f"Four images each of the classes {' and '.join(map(str, classes))} from the sheets "
        f"{', '.join(map(str, sheets))}. Within a sheet most of them look alike, and between "
        "sheets they differ.",
    )


def draw_folds(intervals: Mapping[str, Mapping[str, Interval]]) -> Picture:
    """Draw two accuracies with two intervals each and, in a panel of its own, their difference.

    intervals: {name: {what is counted: (mean, low, high)}}; the last name is the difference
    """
    *models, difference = intervals
    fig, (left, right) = style.new_figure(9, 3.2, ncols=2, width_ratios=[1.5, 1])
    rows = [
        (f"{name},\n{counted} counted", intervals[name][counted])
        for name in models
        for counted in intervals[name]
    ]
    draw_intervals(left, rows)
    spans = [[intervals[name][counted] for name in models] for counted in intervals[models[0]]]
    *_, (one, other) = spans
    overlap = min(one[2], other[2]) > max(one[1], other[1])
    style.style_axes(
        left, f"Sheets counted: intervals {'overlap' if overlap else 'are apart'}", "accuracy"
    )
    rows = [(f"{counted}\ncounted", span) for counted, span in intervals[difference].items()]
    draw_intervals(right, rows)
    right.axvline(0, color=style.LINE, zorder=0)
    low = min(span[1] for _, span in rows)
    title = "The difference is above 0" if low > 0 else "The difference may be 0"
    style.style_axes(right, title, difference)
    last = list(intervals[difference])[-1]
    parts = [
        f"{name} {line[last][0]:.3f} ({line[last][1]:.3f} to {line[last][2]:.3f})"
        for name, line in intervals.items()
    ]
    return Picture(
        fig,
        "Accuracies with random and with consecutive folds and their difference, with intervals.",
        f"Dots at means, each with {len(intervals[difference])} intervals in rows of their own. "
        f"With {last} counted: {', '.join(parts)}.",
    )


def draw_intervals(ax: Axes, rows: Sequence[tuple[str, Interval]]) -> Axes:
    """Draw a dot with an interval and its number for each row.  rows: (name, (mean, low, high))"""
    for y, (_, (mean, low, high)) in enumerate(rows):
        ax.plot([low, high], [y, y], color=style.SERIES[2], linewidth=3, solid_capstyle="butt")
        ax.plot(mean, y, "o", color=style.SERIES[2], markersize=9)
        ax.text(mean, y - 0.22, f"{mean:.3f}", ha="center", va="bottom", **WORDS)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set_ylim(len(rows) - 0.6, -0.75)
    ax.locator_params(axis="x", nbins=5)
    return ax


def draw_channels(panels: Mapping[str, Tensor], bins: int = 30) -> Picture:
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
            name_mean_and_std(ax, mean, std, highest)
            style.style_axes(
                ax, title if c == 0 else "", "value of a pixel" if c == C - 1 else ""
            ).set_yticks([])
            if column == 0 and C > 1:
                ax.set_ylabel(CHANNELS[c], fontsize=style.TEXT_SIZE, color=style.TEXT)
    return Picture(
        fig,
        "Histograms of the pixels of each channel, with mean and standard deviation.",
        "Histograms of the pixels of each channel, with the mean as a line and a band of one "
        f"standard deviation on each side. Columns: {', '.join(panels)}.",
    )


def name_mean_and_std(ax: Axes, mean: float, std: float, top: float) -> None:
    """Write the mean to the left of its line, and std to the right, above an arrow of its length.

    top: of the histogram, above which both are written
    """
    options = {"va": "bottom", "fontsize": style.TEXT_SIZE - 1}
    text = f"mean {mean:.2f} ".replace("-0.00", "0.00")
    ax.text(mean, 1.06 * top, text, ha="right", color=style.SERIES[2], **options)
    ax.text(mean, 1.06 * top, f" std {std:.2f}", ha="left", color=style.TEXT, **options)
    arrow = {"arrowstyle": "<->", "color": style.TEXT, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (mean + std, 0.88 * top), (mean, 0.88 * top), arrowprops=arrow)


def draw_augmented(rows: Mapping[str, Sequence[Tensor]], names: Sequence[str]) -> Picture:
    """Draw versions of images, a row for each image and a column for each augmentation.

    rows: {name: images, each (C, H, W) from 0 to 1};  names: of the columns
    """
    fig, _ = draw_rows(rows, {next(iter(rows)): names}, height=1.45)
    return Picture(
        fig,
        "Photos, each in several augmented versions.",
        f"{' and '.join(rows)}, each in {len(names)} versions: {', '.join(names)}.",
    )


def draw_labels(
    views: Mapping[str, Tensor], predicted: Tensor, labels: Sequence[int] | Tensor
) -> Picture:
    """Draw a typical image of each class in several views, with predictions.

    Those that are not the label are marked.

    The image of each class is one that gets, in most views, what images of its class mostly get.

    views: {name: (n, 1, H, W)}, the first one unchanged;  predicted: (views, n);  labels: (n,)
    """
    labels = torch.as_tensor(labels)
    typical = []
    for c in labels.unique():
        rows = (labels == c).nonzero()[:, 0]
        usual = predicted[:, rows] == predicted[:, rows].mode(dim=1, keepdim=True).values
        typical.append(rows[usual.sum(dim=0).argmax()].item())
    texts = {
        name: list(map(str, line))
        for name, line in zip(views, predicted[:, typical].tolist(), strict=True)
    }
    fig, axes = draw_rows(
        {name: 1 - images[typical] for name, images in views.items()}, texts, 0.95, smooth=True
    )
    for ax in (ax for line in axes.values() for ax in line):
        draw_frame(ax)
    wrong = predicted[:, typical] != labels[typical]
    mark_wrong(fig, wrong.flatten().tolist())
    style.title_figure(fig, "Read as (cross and frame: another class than its label)")
    parts = [
        f"{name}: {', '.join(text for text, bad in zip(line, marks, strict=True) if not bad)}"
        for (name, line), marks in zip(texts.items(), wrong.tolist(), strict=True)
    ]
    return Picture(
        fig,
        "A typical digit of each class in several views, each with the class that is predicted.",
        f"A typical digit of each class in {len(views)} views, with predictions, and frames where "
        f"these are not the label. Read as their label, {'; '.join(parts)}.",
    )


def draw_batches(right: Tensor, sizes: Sequence[int]) -> Picture:
    """Draw how one set of predictions is cut into batches, with the accuracy of each batch.

    right: (n,), 1 for a correct prediction and 0 for a wrong one;  sizes: of batches
    """
    n = len(right)
    fig, ax = style.new_figure(9, 0.85 * len(sizes) + 1)
    style.style_axes(ax, "A small last batch counts as much as a large one", "image")
    parts = []
    for y, size in enumerate(sizes):
        batches = right.split(size)
        start = 0
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1 and len(batches) > 1
            color = style.SERIES[1] if last and len(batch) < size else style.MUTED
            edge = {"edgecolor": "white", "linewidth": 2 if len(batch) > 4 else 0}
            ax.add_patch(Rectangle((start, y), len(batch), 0.5, facecolor=color, **edge))
            ax.text(start + len(batch) / 2, y - 0.04, f"{batch.mean():.3f}", ha="center", **WORDS)
            for place in (batch == 0).nonzero()[:, 0].tolist():
                inside = min(2.5, len(batch) / 2)  # doesn't reach into the batch before
                x = start + max(place + 0.5, inside)
                ax.plot(x, y + 0.25, "x", color=style.TEXT, markersize=9, markeredgewidth=2.5)
            start += len(batch)
        mean = torch.stack([batch.mean() for batch in batches]).mean().item()
        ax.text(n + 12, y + 0.25, f"mean {mean:.3f}", va="center", weight="bold", **WORDS)
        parts.append(f"batches of {size}: {mean:.3f}")
    ax.set_yticks([y + 0.25 for y in range(len(sizes))], [f"batches of {size}" for size in sizes])
    ax.set(xlim=(0, n + 40), ylim=(len(sizes) - 0.35, -0.45), xticks=range(0, n + 1, 60))
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    return Picture(
        fig,
        "One set of predictions, cut into batches of several sizes, with the accuracy of each.",
        f"{n} predictions, of which {int((right == 0).sum())} are wrong, as bars cut into batches, "
        f"each with its accuracy. The means over the batches are, for {', '.join(parts)}.",
    )


def draw_reports(reports: Mapping[str, tuple[float, float]]) -> Picture:
    """Draw what is reported and what is true, a row with an arrow for each way to fool oneself.

    reports: {name: (true accuracy, reported accuracy)}, at most eight
    """
    fig, ax = style.new_figure(9, 0.72 * len(reports) + 1)
    high = sum(reported > true for true, reported in reports.values())
    title = f"{high} of {len(reports)} reports are too high"
    style.style_axes(ax, title, "accuracy")
    for y, (true, reported) in enumerate(reports.values()):
        ax.annotate("", (reported, y), (true, y), arrowprops=ARROW)
        ax.plot(true, y, "o", color=style.TEXT, markersize=10)
        ax.plot(
            reported,
            y,
            "D",
            color=style.SERIES[2],
            markersize=9,
            markerfacecolor="white",
            markeredgewidth=2.5,
        )
        ends = sorted(((true, "right"), (reported, "left")))
        sides = {"right": -0.004, "left": 0.004}
        for (value, _), side in zip(ends, sides, strict=True):
            ax.text(value + sides[side], y, f"{value:.3f}", ha=side, va="center", **WORDS)
    (true, reported), *_ = reports.values()
    for value, name, color in ((true, "true", style.TEXT), (reported, "reported", style.SERIES[2])):
        ax.text(
            value,
            -0.28,
            name,
            ha="center",
            va="bottom",
            weight="bold",
            color=color,
            fontsize=style.TEXT_SIZE,
        )
    values = [value for pair in reports.values() for value in pair]
    ax.set_yticks(range(len(reports)), list(reports))
    ax.set(ylim=(len(reports) - 0.5, -0.8), xlim=(min(values) - 0.025, 1.015))
    ax.set_xticks([tick for tick in ax.get_xticks() if min(values) - 0.025 < tick < 1.001])
    parts = [
        f"{name}: {true:.3f}, reported {report:.3f}" for name, (true, report) in reports.items()
    ]
    return Picture(
        fig,
        "What is true and what is reported, for each way to fool oneself.",
        f"Arrows from the true accuracy to the reported one. {'; '.join(parts)}.".replace(
            "\n", " "
        ),
    )


# Parts


def draw_rows(
    rows: Mapping[str, Sequence[Tensor] | Tensor],
    texts: Mapping[str, Sequence[str]] | None = None,
    height: float = 1.15,
    smooth: bool = False,
) -> tuple[Figure, dict[str, list[Axes]]]:
    """Draw rows of images on a new figure; returns the figure and a dict of each row's axes.

    rows  : {name: images, each (C, H, W) from 0 to 1}; sizes may differ
    texts : {name: a text above each image of that row}, for some rows or all
    height: of a row, in inches
    smooth: whether the pixels are blended into each other, so that small images can be read
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
                if smooth:
                    ax.images[0].set(interpolation="bicubic", cmap=GRAYS)
                ax.set_title(
                    texts[name][i] if name in texts else "",
                    fontsize=style.TEXT_SIZE,
                    color=style.TEXT,
                )
        name_row(line[0], name, 0.1, color=style.TEXT)
    return fig, axes


def draw_frame(ax: Axes) -> None:
    """Draw a thin line around an image."""
    options = {"linewidth": 1, "transform": ax.transAxes, "clip_on": False}
    draw_box(ax, (0, 0, 1, 1), style.LINE, **options)
