"""Notebook 10: differences and their errors, many comparisons, factorial designs, searches."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar

Array = Any  # of numpy
MARKERS = ("o", "s", "^", "D", "v")
SEEDS, IMAGES = style.SERIES[:2]  # the two errors, the same in every figure
SMALL: dict[str, Any] = {"va": "center", "color": style.TEXT, "fontsize": style.TEXT_SIZE - 1}


def draw_pairs(
    runs: Mapping[str, Sequence[float]],
    baseline: str = "baseline",
    titles: tuple[str, str] = ("", ""),
) -> Figure:
    """Draw accuracies of a baseline and of two changes, and the differences from the baseline.

    Lines join runs of the same seed.

    runs: {name: accuracies, one a seed}, in points at the right;  titles: of both panels
    """
    fig, (left, right) = style.new_figure(9, 3.2, ncols=2)
    order = [*(name for name in runs if name != baseline)]
    order.insert(1, baseline)
    for seed, line in enumerate(zip(*(runs[name] for name in order), strict=True)):
        options = {
            "color": style.SERIES[seed % 3],
            "linestyle": ("-", "--", ":")[seed // 2],
            "marker": MARKERS[seed % 5],
        }
        left.plot(
            range(len(order)), line, markersize=7, linewidth=1.5, label=f"seed {seed}", **options
        )
        for y, name in enumerate(name for name in order if name != baseline):
            step = 100 * (runs[name][seed] - runs[baseline][seed])
            right.plot(
                step,
                y - 0.2 + 0.1 * seed,
                marker=options["marker"],
                color=options["color"],
                markersize=7,
            )
    for y, name in enumerate(name for name in order if name != baseline):
        steps = [100 * (b - a) for a, b in zip(runs[baseline], runs[name], strict=True)]
        error = {
            "xerr": statistics.stdev(steps) / len(steps) ** 0.5,
            "color": style.TEXT,
            "capsize": 4,
            "linewidth": 2,
        }
        right.errorbar(statistics.mean(steps), y + 0.36, fmt="|", markersize=16, **error)
    left.set_xticks(range(len(order)), order)
    left.set_xlim(-0.3, len(order) - 0.7)
    left.legend(frameon=False, fontsize=style.TEXT_SIZE - 1, loc="lower left")
    right.axvline(0, color=style.LINE, linewidth=1, zorder=0)
    right.set_yticks(range(len(order) - 1), [name for name in order if name != baseline])
    right.set_ylim(len(order) - 1.4, -0.4)
    style.style_axes(left, titles[0], "lines join runs with the same seed", "validation accuracy")
    style.style_axes(
        right, titles[1], "change minus baseline, in points\n(bars: mean and standard error)"
    )
    return fig


def draw_ranking(effects: pd.DataFrame, title: str | None = None) -> Axes:
    """Draw every change from the worst to the best, as a dot with its 95% interval, in points.

    effects: difference, low and high of each change, as fractions
    """
    ax = style.new_axes(None, 9, 3.6)
    for x, change in enumerate(
        (100 * effects[["difference", "low", "high"]]).sort_values("difference").itertuples()
    ):
        contains = change.low <= 0 <= change.high
        color = style.LINE if contains else style.SERIES[2]
        ax.plot([x, x], [change.low, change.high], color=color, linewidth=3, solid_capstyle="butt")
        ax.plot(
            x,
            change.difference,
            "o" if contains else "s",
            color=color,
            mfc="white" if contains else color,
            ms=6,
        )
    ax.axhline(0, color=style.TEXT, linewidth=1)
    for marker, fill, color, label in (
        ("s", "full", style.SERIES[2], "does not contain 0"),
        ("o", "none", style.LINE, "contains 0"),
    ):
        ax.plot([], [], marker, fillstyle=fill, color=color, label=f"95% interval {label}")
    ax.legend(frameon=False, fontsize=style.TEXT_SIZE - 1, loc="lower right")
    ax.set_xticks([])
    ax.yaxis.set_major_locator(MaxNLocator(5))
    return style.style_axes(
        ax, title, f"{len(effects)} changes, from the worst to the best", "difference in points"
    )


def draw_holm(effects: pd.DataFrame, least: float = 1e-6, title: str | None = None) -> Axes:
    """Draw the p-values of all changes in their order, the threshold 0.05, and that of Holm.

    Holm's threshold rises with the rank.

    effects: p and holm of each change;  least: where smaller p-values are drawn, with their number
    """
    ax, ranked = style.new_axes(None, 9, 3.2), effects.sort_values("p")
    ranks = [rank + 1 for rank in range(len(ranked))]
    ax.plot(
        ranks,
        [0.05 / rank for rank in reversed(ranks)],
        color=style.SERIES[0],
        linewidth=2,
        label="Holm's threshold",
    )
    ax.axhline(0.05, color=style.LINE, linestyle="--", label="0.05")
    passed = int((ranked["holm"] < 0.05).sum())
    p, below = ranked["p"].to_list(), int((ranked["p"] < least).sum())
    ax.plot(ranks[below:passed], p[below:passed], "s", color=style.SERIES[2], label="passes")
    ax.plot(ranks[passed:], p[passed:], "o", color=style.LINE, mfc="white", label="does not")
    ax.axvline(passed + 0.5, color=style.LINE, linestyle=":")
    ax.text(passed + 0.9, 30 * least, f"{passed} of {len(ranks)} pass", **SMALL)
    for rank, value in zip(ranks[:below], p, strict=False):
        ax.plot(
            rank, least, "v", color=style.SERIES[2] if rank <= passed else style.LINE, markersize=9
        )
        ax.annotate(
            f"{value:.0e}, below the axis",
            (rank, least),
            (11, -2),
            textcoords="offset points",
            **SMALL,
        )
    ax.set_yscale("log")
    ax.set_ylim(least / 3, 2)
    ax.legend(frameon=False, fontsize=style.TEXT_SIZE - 1, loc="lower right", ncols=2)
    return style.style_axes(ax, title, f"rank of the p-value among {len(ranks)}", "p-value")


def draw_halves(
    halves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw all runs of a design in one line for each factor, divided by its level.

    Circles are one level, below; squares are the other, above; bars are means.

    halves: {factor: (accuracies of the runs without it, of those with it)}
    """
    ax = style.new_axes(ax, 9, 0.62 * len(halves) + 1.0)
    low, high = style.SERIES[0], style.SERIES[2]
    for y, (without, have) in enumerate(halves.values()):
        label = ("with the setting", "without it", "means") if y == 0 else (None,) * 3
        ax.plot(have, [y - 0.2] * len(have), "s", color=high, markersize=6, label=label[0])
        ax.plot(
            without,
            [y + 0.2] * len(without),
            "o",
            color=low,
            mfc="white",
            markersize=6,
            label=label[1],
        )
        ax.plot([], [], "|", color=style.TEXT, markersize=14, markeredgewidth=4, label=label[2])
        for half, height in ((without, y + 0.2), (have, y - 0.2)):  # behind the dots
            ax.plot(
                statistics.mean(half),
                height,
                "|",
                color=style.TEXT,
                markersize=19,
                markeredgewidth=4,
                zorder=1,
            )
    ax.set_yticks(range(len(halves)), halves)
    ax.set_ylim(len(halves) - 0.5, -0.5)
    for y in range(1, len(halves)):
        ax.axhline(y - 0.5, color=style.MUTED, linewidth=1)
    ax.legend(
        fontsize=style.TEXT_SIZE - 1,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(0, -0.1),
        ncols=3,
    )
    return style.style_axes(ax, title, "validation accuracy")


def draw_against(
    series: Mapping[str, Mapping[float, Sequence[float]]],
    ax: Axes | None = None,
    title: str | None = None,
    x: str | None = None,
    y: str = "validation accuracy",
    names: Mapping[str, Mapping[float, str]] | None = None,
    ticks: Sequence[float] = (),
    beside: float = 1,
    best: bool = False,
) -> Axes:
    """Draw lines over a logarithmic axis: a dot for each seed, joined by their means.

    series: {name: {place on the axis: accuracies, one a seed}}
    names : {series: {place: a word beside its mean}}
    ticks : places with a number on the axis
    beside: the dots are drawn at so many times their place
    best  : fill the mark of the highest mean of each line
    """
    ax = style.new_axes(ax, 9, 3.0)
    for i, (name, points) in enumerate(series.items()):
        color, marker = style.SERIES[i % len(style.SERIES)], MARKERS[i % len(MARKERS)]
        places = sorted(place for place in points if points[place])
        means = [statistics.mean(points[place]) for place in places]
        for place in places:
            ax.plot(
                [place * beside] * len(points[place]),
                points[place],
                marker,
                color=color,
                ms=4,
                linewidth=0,
            )
        ax.plot(
            places,
            means,
            color=color,
            marker=marker,
            markersize=9,
            markerfacecolor="white",
            linewidth=2,
            label=name,
        )
        if best:
            ax.plot(places[means.index(max(means))], max(means), marker, color=color, markersize=11)
        for place, mean in zip(places, means, strict=True):
            word = (names or {}).get(name, {}).get(place, "")
            ax.annotate(
                word,
                (place, mean),
                (8, 6),
                textcoords="offset points",
                color=style.TEXT,
                fontsize=style.TEXT_SIZE,
            )
    if best:
        ax.plot([], [], "o", color=style.LINE, markersize=11, label="best mean")
    if beside != 1:
        ax.plot([], [], ".", color=style.LINE, markersize=8, label="one seed")
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return style.style_axes(ax, title, x, y)


def draw_search(
    rates: Sequence[float],
    decays: Sequence[float],
    accuracies: Sequence[float],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw runs of a search as dots over learning rate and decay, both logarithmic.

    Each has its accuracy beside it; brighter is better.
    """
    ax = style.new_axes(ax, 9, 3.2)
    dots = ax.scatter(rates, decays, c=accuracies, cmap=style.VALUES, s=120)
    color_bar(dots, ax, "color and numbers:\nvalidation accuracy")
    for rate, decay, accuracy in zip(rates, decays, accuracies, strict=True):
        options = {
            "textcoords": "offset points",
            "va": "center",
            "fontsize": style.TEXT_SIZE - 1,
            "color": style.TEXT,
        }
        ax.annotate(f"{accuracy:.3f}", (rate, decay), (9, 0), **options)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.margins(0.12)
    for axis, steps in ((ax.xaxis, (1, 2, 5)), (ax.yaxis, (1,))):
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    return style.style_axes(ax, title, "learning rate", "weight decay")
