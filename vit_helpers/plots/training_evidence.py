"""Notebook 07, further: Muon, mistakes, calibration, a CNN, fixes, and which weights to keep."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_image
from vit_helpers.plots.training import draw_calibration, draw_confusion

NAME: dict[str, Any] = {"fontsize": style.TEXT_SIZE, "color": style.TEXT, "va": "center"}
LOOKS = (("o", "-", style.SERIES[0]), ("s", "--", style.SERIES[2]))  # of two series
Interval = tuple[float, float, float]  # mean, low, high


def draw_spectra(spectra: Mapping[str, Tensor]) -> Picture:
    """Draw the singular values of two matrices, from the largest, on a logarithmic scale.

    spectra: {name: (n,)}; the names are written at the lines
    """
    fig, ax = style.new_figure(9, 3.2)
    title = "Muon raises the small singular values"
    style.style_axes(ax, title, "rank, from the largest", "singular value")
    for (name, values), (marker, dash, color) in zip(spectra.items(), LOOKS, strict=True):
        ranks = range(1, len(values) + 1)
        ax.semilogy(ranks, values, dash, marker=marker, markersize=3, color=color)
        ax.text(1.02 * len(values), float(values[-1]), name, **NAME)
    ax.set_xlim(0, 1.35 * len(values))
    ends = "; ".join(f"{name}: {x[0]:.2g} to {x[-1]:.2g}" for name, x in spectra.items())
    return Picture(
        fig,
        "The singular values of a gradient and of Muon's step, from the largest to the smallest.",
        f"Two falling lines on a logarithmic scale, from the largest value down. {ends}.",
    )


def draw_mistakes(counts: Tensor, names: Sequence[str]) -> Picture:
    """Draw a confusion matrix, with its most frequent mistake in the title.

    counts: (K, K), images of each true class (row) by predicted class (column);  names: K texts
    """
    mistakes = counts - counts.diag().diag()
    true, predicted = divmod(int(mistakes.argmax()), len(counts))
    title = f"Most frequent mistake: {names[true]} classified as {names[predicted]}"
    ax = draw_confusion(counts, names, style.new_figure(6.5, 5.2)[1], title)
    fig: Any = ax.figure
    return Picture(
        fig,
        "How many images of each true class were assigned to each class.",
        f"Rows of true classes, columns of predicted classes, a count in each cell. The diagonal "
        f"is gray. {mistakes.max()} of the {mistakes.sum()} mistakes are {names[true]} taken for "
        f"{names[predicted]}.",
    )


def draw_hardest(images: Tensor, labels: Sequence[int], predictions: Sequence[int]) -> Picture:
    """Draw images large and smooth, each above the pixels that the model gets.

    images: (n, C, H, W), from 0 to 1, ink bright;  labels, predictions: of each
    """
    fig, axes = style.new_figure(9, 3.9, nrows=2, ncols=len(images), squeeze=False)
    style.title_figure(fig, "What you see, and what the model gets")
    for i, image in enumerate(images):
        smooth = draw_image(1 - image, axes[0, i], f"label {labels[i]}")
        smooth.images[0].set_interpolation("bicubic")
        draw_image(1 - image, axes[1, i], f"says {predictions[i]}")
    pairs = ", ".join(f"{a} as {b}" for a, b in zip(labels, predictions, strict=True))
    return Picture(
        fig,
        "The validation digits with the highest loss, as people see them and as pixels.",
        f"The {len(images)} digits with the highest loss, several of them smeared or unusually "
        f"shaped, with their labels and what the model says: {pairs}.",
    )


def draw_calibrations(models: Mapping[str, tuple[Tensor, Tensor]], groups: int) -> Picture:
    """Draw accuracy against confidence in groups of equal size, a panel for each model.

    models: {name: (confidence (n,), whether the prediction is correct (n,))}
    """
    fig, axes = style.new_figure(9, 3.8, ncols=len(models), sharey=True, squeeze=False)
    gaps = []
    for ax, (name, (confidence, correct)) in zip(axes[0], models.items(), strict=True):
        gap = float(correct.float().mean() - confidence.mean())
        gaps.append(f"{name}: accuracy less confidence {gap:+.2f} on average")
        draw_calibration(confidence, correct, ax, name, groups)
        ax.lines[1].set_markerfacecolor("white")  # so that two at the same place can be told
        ax.set(xlim=(0.5, 1.02), ylim=(0.5, 1.04))
        if ax is not axes[0, 0]:
            ax.get_legend().remove()
            ax.set_ylabel("")
    return Picture(
        fig,
        "Accuracy against confidence in groups of images, with and without label smoothing.",
        f"Points for {groups} groups of images beside the diagonal of perfect calibration. "
        f"{'; '.join(gaps)}.",
    )


def draw_by_size(accuracies: Mapping[str, Mapping[int, Sequence[float]]]) -> Picture:
    """Draw test accuracies against the number of training images, names at the lines.

    accuracies: {network: {training images: accuracies, one a seed}}; small marks are the seeds
    """
    fig, ax = style.new_figure(9, 3.4)
    style.style_axes(ax, "The CNN stays ahead", "training images", "test accuracy (fraction)")
    ends = []
    for (name, points), (marker, dash, color) in zip(accuracies.items(), LOOKS, strict=True):
        means = [sum(values) / len(values) for values in points.values()]
        ax.plot(list(points), means, dash, color=color, linewidth=2)
        for size, values in points.items():
            ax.plot([size] * len(values), values, marker, color=color, markersize=5)
        ax.text(1.15 * max(points), means[-1], name, **NAME)
        ends.append(f"{name} from {means[0]:.2f} to {means[-1]:.2f}")
    size_axis(ax, next(iter(accuracies.values())))
    return Picture(
        fig,
        "The test accuracy of a CNN and of a ViT against the number of training images.",
        f"Two rising lines over a logarithmic axis: {', '.join(ends)}.",
    )


def draw_cnn_lead(
    leads: Mapping[str, Mapping[int, Interval]], images_only: Collection[int] = ()
) -> Picture:
    """Draw the lead of a CNN against the number of training images, with 95% intervals.

    leads      : {how the ViT was tuned: {training images: (mean, low, high) in points}}, two
    images_only: sizes whose intervals are dotted, because they don't cover other seeds
    """
    fig, ax = style.new_figure(9, 3.6)
    style.style_axes(
        ax, "The CNN leads by 1 to 5 points", "training images", "CNN minus ViT\n(points)"
    )
    ax.axhline(0, color=style.LINE, linewidth=1)
    for i, (name, points) in enumerate(leads.items()):
        marker, _, color = LOOKS[i]
        for size, (mean, low, high) in points.items():
            place = size * (0.94, 1.06)[i]
            dash = ":" if size in images_only else "-"
            ax.plot([place, place], [low, high], dash, color=color, linewidth=2)
            filled = color if i == 0 else "white"
            ax.plot(place, mean, marker, color=color, markersize=8, markerfacecolor=filled)
        size = max(points) if i else sorted(points)[len(points) // 2]
        _, low, high = points[size]
        place, side = (0.9 * size, "left") if i == 0 else (size, "center")
        height = (low - 0.6, high + 0.45)[i]
        ax.text(place, height, name, ha=side, **NAME | {"color": color})
    size_axis(ax, next(iter(leads.values())))
    ax.set_ylim(-0.3, 6.3)
    first = next(iter(leads.values()))
    means = ", ".join(f"{mean:.2f} with {size:,}" for size, (mean, _, _) in first.items())
    return Picture(
        fig,
        "The lead of the CNN against the number of training images, with intervals.",
        f"Points with 95% intervals, all above 0. The lead in points is {means} images. With the "
        "ViT's settings from one other size it is smaller at the left and larger at the right.",
    )


def size_axis(ax: Axes, sizes: Collection[int]) -> None:
    """Make the axis of the number of images logarithmic, with a short name for each size."""
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(list(sizes), [f"{n:,}" if n < 1000 else f"{n // 1000}k" for n in sizes])
    ax.set_xlim(0.8 * min(sizes), 1.6 * max(sizes))


def draw_fixes(fixes: pd.DataFrame, title: str) -> Picture:
    """Draw the gain of each fix of a failing recipe, with its 95% interval, the best on top.

    fixes: difference, low and high of each fix, as fractions; drawn in points
    """
    points = 100 * fixes[["difference", "low", "high"]].sort_values("difference", ascending=False)
    fig, ax = style.new_figure(9, 0.4 * len(points) + 1.2)
    style.style_axes(ax, title, "gain in points of validation accuracy (95% interval)")
    ax.axvline(0, color=style.LINE, linewidth=1)
    for y, (mean, low, high) in enumerate(points.to_numpy()):
        ax.plot([low, high], [y, y], color=style.SERIES[0], linewidth=2)
        ax.plot(mean, y, "o", color=style.SERIES[0], markersize=8)
        ax.text(high + 1.5, y, with_sign(mean), **NAME)
    ax.set_yticks(range(len(points)), points.index)
    ax.set(ylim=(len(points) - 0.5, -0.5), xlim=(min(points.low.min(), 0) - 4, 100))
    gains = ", ".join(f"{name} {mean:.1f}" for name, mean in points.difference.items())
    return Picture(
        fig,
        "What each fix of a failing recipe gains in validation accuracy, with intervals.",
        f"A dot with a 95% interval for each of {len(points)} fixes. Gains in points: {gains}.",
    )


def with_sign(points: float) -> str:
    """A number with its sign and one decimal, and without a sign if it rounds to 0.

    >>> with_sign(6.66), with_sign(-0.7), with_sign(0.04)
    ('+6.7', '−0.7', '0.0')
    """
    return f"{points:+z.1f}".replace("+0.0", "0.0").replace("-", "−")


def draw_interaction(
    panels: Mapping[str, Mapping[str, Sequence[Interval]]],
    levels: Sequence[str],
    no_decay: Sequence[float],
) -> Picture:
    """Draw accuracies by what is decayed, joined for each way to decay it, a panel for each data.

    Parallel lines are no interaction.

    panels  : {data: {way to decay: (mean, low, high) for each of `levels`}}, two ways
    levels  : what is decayed
    no_decay: accuracy without decay, a dotted line in each panel
    """
    fig, axes = style.new_figure(9, 3.8, ncols=len(panels), sharey=True, squeeze=False)
    style.title_figure(fig, "Only decoupled decay works on all three data sets")
    for ax, (data, ways), height in zip(axes[0], panels.items(), no_decay, strict=True):
        style.style_axes(ax, data, None, "validation accuracy" if ax is axes[0, 0] else None)
        ax.axhline(height, color=style.TEXT, linestyle=":", linewidth=1.5)
        for i, (way, points) in enumerate(ways.items()):
            marker, dash, color = LOOKS[i]
            places = range(len(levels))
            ax.plot(places, [mean for mean, _, _ in points], dash, color=color, linewidth=2)
            for place, (mean, low, high) in zip(places, points, strict=True):
                ax.plot([place, place], [low, high], color=color, linewidth=4, alpha=0.5)
                ax.plot(place, mean, marker, color=color, markersize=8)
            if ax is axes[0, len(panels) // 2]:
                at = (0.5, points[0][0] + 0.08) if i == 0 else (0.4, points[0][0] + 0.1)
                ax.text(*at, way, ha=("center", "left")[i], **NAME)
        ax.set_xticks(range(len(levels)), levels)
        ax.set(xlim=(-0.4, len(levels) - 0.6), ylim=(0, 1.05))
    axes[0, -1].text(1.4, no_decay[-1] + 0.06, "no decay", ha="right", **NAME)
    said = "; ".join(
        f"{data}: {', '.join(f'{way} {p[0][0]:.2f} to {p[-1][0]:.2f}' for way, p in ways.items())}"
        for data, ways in panels.items()
    )
    return Picture(
        fig,
        "Accuracy by what is decayed and how, on three data sets, beside training without decay.",
        f"Two lines in a panel, from {' to '.join(' '.join(x.split()) for x in levels)}. {said}.",
    )


def draw_kept(gains: Mapping[str, Sequence[float]]) -> Picture:
    """Draw what each rule for keeping weights gains over the last ones, the mean over all kinds.

    gains: {rule: its gain in accuracy for each kind of training}, drawn in points
    """
    fig, ax = style.new_figure(9, 0.55 * len(gains) + 1.3)
    title = "No rule is clearly better than keeping the last weights"
    style.style_axes(ax, title, "accuracy on new images, less that of the last weights (points)")
    ax.axvline(0, color=style.LINE, linewidth=1)
    means = {rule: 100 * sum(values) / len(values) for rule, values in gains.items()}
    for y, (rule, values) in enumerate(gains.items()):
        points = [100 * value for value in values]
        ax.plot(points, [y] * len(points), "o", color=style.SERIES[0], markersize=5, alpha=0.5)
        ax.plot(means[rule], y, "d", color=style.SERIES[2], markersize=10)
        ax.text(1.1, y, f"mean {with_sign(means[rule])}", **NAME)
    ax.set_yticks(range(len(gains)), list(gains))
    ax.set(ylim=(len(gains) - 0.5, -0.5), xlim=(min(map(min, gains.values())) * 100 - 0.4, 2.2))
    said = ", ".join(f"{rule} {mean:+.1f}" for rule, mean in means.items())
    return Picture(
        fig,
        "What rules for keeping weights gain over the last weights, by kind of training.",
        f"A row for each rule, with a dot for each kind of training and a diamond for the mean. "
        f"Means in points: {said}.",
    )
