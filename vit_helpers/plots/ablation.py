"""Pictures of tables of changes: what each gains or loses beside the noise, and what it costs."""

import statistics
from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from vit_helpers.plots import style

COLORS = (style.QUERY, style.CLASS_TOKEN, style.POSITION, style.VALUE, style.KEY)
MARKERS = ("o", "s", "^", "D", "v")


def draw_changes(
    changes: Mapping[str, Sequence[float]],
    intervals: Mapping[str, tuple[float, float]] | None = None,
    clear: Collection[str] = (),
    limits: tuple[float, float] = (-8, 4),
    texts: Mapping[str, str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A line for each change, the best on top: a dot for each seed, a bar at their mean, and the interval of the mean.

    changes  : {name: differences from the baseline, one a seed, as fractions}; drawn in points, hundredths of them; a single
               number is drawn as a mean without a dot
    intervals: {name: (low, high)}, as fractions
    clear    : names of those whose mean and interval are orange; the others are gray
    limits   : points at which the axis ends; what lies beyond is drawn as a triangle at the edge, a mean with its number
    texts    : {name: text at the right}, cost for example
    """
    ax = style.new_axes(ax, 9, 0.34 * len(changes) + 1.0)
    order = sorted(changes, key=lambda name: -statistics.mean(changes[name]))
    ax.axvline(0, color=style.LINE, linewidth=1)
    for y, name in enumerate(order):
        points, mean = [100 * x for x in changes[name]], 100 * statistics.mean(changes[name])
        color = style.CLASS_TOKEN if name in clear else style.LINE
        if name in (intervals or {}):
            low, high = (min(max(100 * x, limits[0]), limits[1]) for x in (intervals or {})[name])
            ax.plot([low, high], [y, y], color=color, linewidth=3, solid_capstyle="butt", zorder=1.5)
        draw_line(ax, y, points if len(points) > 1 else [], mean, limits, color)
        where = {"transform": ax.get_yaxis_transform(), "va": "center", "color": style.TEXT}
        ax.text(1.01, y, (texts or {}).get(name, ""), fontsize=style.TEXT_SIZE - 1, **where)
    ax.set_yticks(range(len(order)), order)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(*limits)
    return style.style_axes(ax, title, "points gained or lost")


def draw_line(ax: Axes, y: float, points: Sequence[float], mean: float, limits: tuple[float, float], color: str) -> None:
    """The dots and the mean of one change, or triangles at the edge"""
    low, high = limits
    for x in points:
        marker = "<" if x < low else ">" if x > high else "o"
        ax.plot(min(max(x, low), high), y, marker, color=style.PATCH, ms=6, clip_on=False)
    if low < mean < high:
        ax.plot(mean, y, "|", color=color, markersize=16, markeredgewidth=4)
        return
    left = mean < 0
    ax.plot(low if left else high, y, "<" if left else ">", color=color, markersize=10, clip_on=False)
    where = {"va": "bottom", "ha": "left" if left else "right", "textcoords": "offset points", "color": style.TEXT}
    ax.annotate(
        f"mean {mean:+.0f}", (low if left else high, y), (9 if left else -9, 1), fontsize=style.TEXT_SIZE - 1, **where
    )


def draw_halves(
    halves: Mapping[str, tuple[Sequence[float], Sequence[float]]], ax: Axes | None = None, title: str | None = None
) -> Axes:
    """All runs of a design in one line for each factor, divided by its level: circles below, squares above, bars for means.

    halves: {factor: (accuracies of the runs without it, of those with it)}
    """
    ax = style.new_axes(ax, 9, 0.62 * len(halves) + 1.0)
    low, high = style.SERIES[0], style.SERIES[2]
    for y, (without, have) in enumerate(halves.values()):
        label = ("without the setting", "with it") if y == 0 else (None, None)
        ax.plot(without, [y + 0.2] * len(without), "o", color=low, mfc="white", markersize=6, label=label[0])
        ax.plot(have, [y - 0.2] * len(have), "s", color=high, markersize=6, label=label[1])
        for half, where, color in ((without, y + 0.2, low), (have, y - 0.2, high)):
            ax.plot(statistics.mean(half), where, "|", color=color, markersize=18, markeredgewidth=4)
    ax.set_yticks(range(len(halves)), halves)
    ax.set_ylim(len(halves) - 0.5, -0.5)
    for y in range(1, len(halves)):
        ax.axhline(y - 0.5, color=style.MUTED, linewidth=1)
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
    return style.style_axes(ax, title, "validation accuracy")


def draw_against(
    series: Mapping[str, Mapping[float, Sequence[float]]],
    ax: Axes | None = None,
    title: str | None = None,
    x: str | None = None,
    y: str = "validation accuracy",
    names: Mapping[str, Mapping[float, str]] | None = None,
    ticks: Sequence[float] = (),
) -> Axes:
    """Lines over a logarithmic axis: a dot for each seed, joined by their means.

    series: {name: {place on the axis: accuracies, one a seed}};  names: {series: {place: a word beside its mean}}
    ticks : places with a number on the axis
    """
    ax = style.new_axes(ax, 9, 3.0)
    for i, (name, points) in enumerate(series.items()):
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        places = sorted(place for place in points if points[place])
        means = [statistics.mean(points[place]) for place in places]
        for place in places:
            ax.plot([place] * len(points[place]), points[place], marker, color=color, ms=4, linewidth=0)
        ax.plot(places, means, color=color, marker=marker, markersize=9, markerfacecolor="white", linewidth=2, label=name)
        for place, mean in zip(places, means, strict=True):
            word = (names or {}).get(name, {}).get(place, "")
            ax.annotate(word, (place, mean), (8, 6), textcoords="offset points", color=style.TEXT, fontsize=style.TEXT_SIZE)
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return style.style_axes(ax, title, x, y)


def draw_interaction(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]], levels: Sequence[str], x: str, y: str
) -> Figure:
    """Means of runs over the levels of one setting, joined for each level of another: parallel lines are no interaction.

    panels: {title: {level of the other setting: (low, mean, high) for each of `levels`}}
    """
    fig, axes = style.new_figure(9, 3.2, ncols=len(panels), sharey=True, squeeze=False)
    for ax, (title, series) in zip(axes.flat, panels.items(), strict=True):
        for i, (name, points) in enumerate(series.items()):
            places = [place + 0.08 * (i - (len(series) - 1) / 2) for place in range(len(levels))]
            means = [mean for _, mean, _ in points]
            bars = [[mean - low for low, mean, _ in points], [high - mean for _, mean, high in points]]
            look = {"color": style.SERIES[2 * i], "marker": MARKERS[i], "markersize": 8, "linewidth": 2, "capsize": 4}
            ax.errorbar(places, means, bars, label=name, **look)
        ax.set_xticks(range(len(levels)), levels)
        ax.set_xlim(-0.4, len(levels) - 0.6)
        style.style_axes(ax, title, x, y if ax is axes[0, 0] else "")
    axes[0, 0].legend(fontsize=style.TEXT_SIZE, frameon=False, loc="lower right")
    return fig


def draw_search(
    rates: Sequence[float],
    decays: Sequence[float],
    accuracies: Sequence[float],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Runs of a search as dots over learning rate and decay, both logarithmic, with their accuracy; brighter is better"""
    ax = style.new_axes(ax, 9, 3.2)
    ax.scatter(rates, decays, c=accuracies, cmap=style.VALUES, s=120)
    for rate, decay, accuracy in zip(rates, decays, accuracies, strict=True):
        words = {"textcoords": "offset points", "va": "center", "fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
        ax.annotate(f"{accuracy:.2f}", (rate, decay), (9, 0), **words)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.margins(0.12)
    return style.style_axes(ax, title, "learning rate", "weight decay")
