"""Notebook 10: a difference between two models and its errors, and forests of such differences."""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vit_helpers.plots import style
from vit_helpers.plots.ablation import IMAGES, SEEDS, SMALL, Array

SIGNS = LinearSegmentedColormap.from_list("signs", [style.SERIES[2], style.MUTED, style.SERIES[0]])
MARKS: dict[str, dict[str, Any]] = {  # of the legend
    "passes Holm's correction": {"color": style.SERIES[2], "marker": "s", "linewidth": 2},
    "does not": {"color": style.LINE, "marker": "o", "mfc": "white", "linewidth": 2},
    "standard error: seeds": {"color": SEEDS, "linewidth": 4},
    "images": {"color": IMAGES, "linewidth": 4},
}


def draw_experiment(
    baseline: Array,
    changed: Array,
    effect: Any,
    names: tuple[str, str],
    images: tuple[int, int] = (0, 40),
    title: str | None = None,
) -> Figure:
    """Draw how a difference and its errors come about.

    Two models for each seed answer every image; then their answers are averaged.

    baseline, changed: whether each model classifies each image correctly, (seeds, images) booleans
    effect           : of changed minus baseline; has difference, seeds, images, both, interval()
    names            : of the two models
    images           : the first that is drawn, and the first that is not
    """
    sizes = {"height_ratios": (1, 1, 1.25, 1.1), "width_ratios": (2.5, 1)}
    fig, axes = style.new_figure(9, 6.2, nrows=4, ncols=2, gridspec_kw=sizes)
    style.title_figure(fig, title)
    step, columns_drawn = changed.astype(int) - baseline.astype(int), slice(*images)
    titles = [f"{name} (dark: classified correctly)" for name in names]
    titles += ["Difference (+ only the change is correct, − only the baseline)"]
    strips = (
        (baseline, "Greys", (-0.15, 1.6)),
        (changed, "Greys", (-0.15, 1.6)),
        (step, SIGNS, (-1, 1)),
    )
    for (left, _), title, (cells, colors, (low, high)) in zip(axes, titles, strips, strict=False):
        left.pcolormesh(
            cells[:, columns_drawn],
            cmap=colors,
            vmin=low,
            vmax=high,
            edgecolor="white",
            linewidth=1,
        )
        left.set_yticks(
            [seed + 0.5 for seed in range(len(cells))],
            [f"seed {seed}" for seed in range(len(cells))],
        )
        style.style_axes(left, title).invert_yaxis()
        left.set_xticks([])
        left.spines[:].set_visible(False)
    for seed, image in zip(*step[:, columns_drawn].nonzero(), strict=True):
        sign = "+" if step[seed, columns_drawn][image] > 0 else "−"
        axes[2, 0].text(
            image + 0.5, seed + 0.52, sign, **SMALL | {"color": "white", "ha": "center"}
        )
    for (_, right), answers in zip(axes, (baseline, changed), strict=False):
        style.hide_axes(right, f"Accuracy on all {answers.shape[1]:,}")
        right.set(xlim=(0, 1), ylim=(len(answers), 0))
        for seed, accuracy in enumerate(answers.mean(1)):
            right.text(0.2, seed + 0.5, f"{100 * accuracy:.1f}%", **SMALL)
    draw_margins(axes[2:], step, effect, columns_drawn)
    return fig


def draw_margins(axes: Any, step: Array, effect: Any, some: slice) -> None:
    """Draw the means of rows and columns in `draw_experiment`, and the errors that they give."""
    (_, rows), (columns, result) = axes
    means, (low, high) = step[:, some].mean(0), effect.interval()
    rows.plot(
        100 * step.mean(1),
        [seed + 0.5 for seed in range(len(step))],
        "o",
        color=SEEDS,
        markersize=7,
    )
    style.style_axes(rows, f"Row means, all {step.shape[1]:,}", "points").set_ylim(len(step), 0)
    columns.bar([image + 0.5 for image in range(len(means))], means, color=IMAGES, width=0.8)
    columns.axhline(0, color=style.LINE, linewidth=1)
    columns.set(xlim=(0, len(means)), ylim=(-1.1, 1.1))
    columns.set_xticks([])
    label = f"validation images {some.start} to {some.stop - 1} of {step.shape[1]:,}"
    style.style_axes(columns, "Column means", label, f"mean of\n{len(step)} seeds")
    mean, errors = (
        100 * effect.difference,
        (("seeds", effect.seeds, SEEDS), ("images", effect.images, IMAGES)),
    )
    for ax in (rows, result):
        ax.axvline(0, color=style.LINE, linewidth=1)
        ax.set_yticks([])
        ax.set_xlim(100 * min(low, step.mean(1).min()) - 0.4, max(0, 100 * high) + 0.9)
    options = {"markersize": 7, "capsize": 6, "linewidth": 2}
    for y, (name, error, color) in enumerate(errors):
        result.errorbar(mean, y, xerr=100 * error, fmt="o", color=color, **options)
        result.text(mean + 100 * error + 0.25, y, f"{name} ±{100 * error:.2f}", **SMALL)
    result.errorbar(
        mean,
        2,
        xerr=[[mean - 100 * low], [100 * high - mean]],
        fmt="D",
        color=style.TEXT,
        **options,
    )
    result.text(100 * high + 0.25, 2, "95% interval", **SMALL)
    title = f"Mean of all: {mean:.1f}".replace("-", "−")
    style.style_axes(result, title, "difference in points").set_ylim(2.7, -0.7)


def draw_forest(
    effects: pd.DataFrame,
    passes: Collection[str] = (),
    limits: tuple[float, float] = (-8, 4),
    texts: Mapping[str, str] | None = None,
    before: Mapping[str, float] | None = None,
    heading: str = "",
    title: str | None = None,
) -> Axes:
    """Draw a line for each change, the best on top.

    It shows the mean difference, its 95% interval, and the standard errors within it.

    effects: difference, low, high, seeds and images of each change, as fractions; drawn in points,
             hundredths of them
    passes : names of those that pass a correction, which are drawn as full squares
    limits : points at which the axis ends; a mean beyond is a triangle at the edge with its number
    texts  : {name: text at the right}, below a heading
    before : {name: another difference}, a cross below the line
    """
    ax = style.new_axes(None, 9, (0.44 if before else 0.36) * len(effects) + 1.4)
    rows = (100 * effects[["difference", "low", "high", "seeds", "images"]]).sort_values(
        "difference", ascending=False
    )
    ax.axvline(0, color=style.LINE, linewidth=1)
    for y, (name, row) in enumerate(rows.iterrows()):
        draw_line(ax, y, row, limits, str(name) in passes, 0.2 if before else 0.26)
        if before and name in before:
            draw_cross(ax, y + 0.37, 100 * before[str(name)], limits)
        if before and y:
            ax.axhline(y - 0.5, color=style.MUTED, linewidth=1, zorder=0)
        where = {"transform": ax.get_yaxis_transform(), "va": "center", "color": style.TEXT}
        ax.text(1.01, y, (texts or {}).get(str(name), ""), fontsize=style.TEXT_SIZE - 1, **where)
    ax.text(1.01, -0.55, heading, fontsize=style.TEXT_SIZE - 1, **where)
    ax.set_yticks(range(len(rows)), rows.index)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(*limits)
    ax.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
    for label, options in MARKS.items():
        ax.plot([], [], label=label, **options)
    if before:
        ax.plot(
            [],
            [],
            "x",
            color=style.TEXT,
            markersize=6,
            markeredgewidth=2,
            label="at the baseline's rate",
        )
    figure: Any = ax.figure
    columns = 3 if before else 4
    figure.legend(
        frameon=False, fontsize=style.TEXT_SIZE - 1, loc="outside lower center", ncols=columns
    )
    return style.style_axes(ax, title, "difference from the baseline in points of accuracy")


def draw_line(
    ax: Axes,
    y: float,
    row: Mapping[str, float],
    limits: tuple[float, float],
    passes: bool,
    aside: float = 0.26,
) -> None:
    """Draw one change of a forest plot: its interval with the mean, and two errors.

    The error of the seeds is above the interval, that of the images below.

    limits: an interval that goes on beyond them ends in a triangle there
    aside : how far the errors are from the interval
    """
    left, right = limits
    color, mean = style.SERIES[2] if passes else style.LINE, row["difference"]
    ends = [min(max(x, left), right) for x in (row["low"], row["high"])]
    ax.plot(ends, [y, y], color=color, linewidth=2, solid_capstyle="butt")
    for x, inside, beyond in zip(
        ends, (row["low"] >= left, row["high"] <= right), "<>", strict=True
    ):
        if inside:
            ax.plot(x, y, "|", color=color, markersize=9, markeredgewidth=2)
        else:
            ax.plot(x, y, beyond, color=color, markersize=6, clip_on=False)
    for error, shade, side in ((row["seeds"], SEEDS, -aside), (row["images"], IMAGES, aside)):
        parts = [min(max(x, left), right) for x in (mean - error, mean + error)]
        ax.plot(parts, [y + side] * 2, color=shade, linewidth=4, solid_capstyle="butt")
    if left < mean < right:
        ax.plot(
            mean,
            y,
            "s" if passes else "o",
            color=color,
            mfc=color if passes else "white",
            markersize=7,
        )
        return
    edge = left if mean < 0 else right
    ax.plot(edge, y, "<" if mean < 0 else ">", color=color, markersize=10, clip_on=False)
    number_beside(ax, ends[1] if mean < 0 else ends[0], y, mean)


def draw_cross(ax: Axes, y: float, x: float, limits: tuple[float, float]) -> None:
    """Draw a cross at x, or at the edge with its number."""
    inside = limits[0] < x < limits[1]
    place = x if inside else limits[0] if x < 0 else limits[1]
    ax.plot(place, y, "x", color=style.TEXT, markersize=6, markeredgewidth=2, clip_on=False)
    if not inside:
        number_beside(ax, place, y, x)


def number_beside(ax: Axes, x: float, y: float, number: float) -> None:
    """Write the number of a mark at the edge of the axis, on the side where there is room."""
    aside, side = (10, "left") if number < 0 else (-10, "right")
    options: dict[str, Any] = {
        "va": "center",
        "ha": side,
        "textcoords": "offset points",
        "color": style.TEXT,
    }
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    text = f"{number:+.0f}".replace("-", "−")
    ax.annotate(text, (x, y), (aside, 0), fontsize=style.TEXT_SIZE - 1, bbox=ground, **options)
