"""Forest plots: a line for each change, with its difference from a baseline, the interval, and both of its errors."""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from vit_helpers.plots import style
from vit_helpers.plots.ablation import IMAGES, SEEDS

MARKS: dict[str, dict[str, Any]] = {  # of the legend
    "passes Holm's correction": {"color": style.SERIES[2], "marker": "s", "linewidth": 2},
    "does not": {"color": style.LINE, "marker": "o", "mfc": "white", "linewidth": 2},
    "standard error: seeds": {"color": SEEDS, "linewidth": 4},
    "images": {"color": IMAGES, "linewidth": 4},
}


def draw_forest(
    effects: pd.DataFrame,
    passes: Collection[str] = (),
    limits: tuple[float, float] = (-8, 4),
    texts: Mapping[str, str] | None = None,
    before: Mapping[str, float] | None = None,
    heading: str = "",
    title: str | None = None,
) -> Axes:
    """A line for each change, the best on top: the mean difference, its 95% interval, and the standard errors within it.

    effects: difference, low, high, seeds and images of each change, as fractions; drawn in points, hundredths of them
    passes : names of those that pass a correction, which are drawn as full squares
    limits : points at which the axis ends; a mean beyond is a triangle at the edge with its number
    texts  : {name: text at the right}, below a heading;  before: {name: another difference}, a cross below the line
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
    for label, look in MARKS.items():
        ax.plot([], [], label=label, **look)
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
    """One change of a forest plot: its interval with the mean, the error of the seeds above it, that of the images below.

    limits: an interval that goes on beyond them ends in a triangle there;  aside: how far the errors are from the interval
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
    """A cross at x, or at the edge with its number"""
    inside = limits[0] < x < limits[1]
    place = x if inside else limits[0] if x < 0 else limits[1]
    ax.plot(place, y, "x", color=style.TEXT, markersize=6, markeredgewidth=2, clip_on=False)
    if not inside:
        number_beside(ax, place, y, x)


def number_beside(ax: Axes, x: float, y: float, number: float) -> None:
    """The number of a mark at the edge of the axis, to the right of x at the left edge, and to its left at the right one"""
    aside, side = (10, "left") if number < 0 else (-10, "right")
    where: dict[str, Any] = {
        "va": "center",
        "ha": side,
        "textcoords": "offset points",
        "color": style.TEXT,
    }
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    text = f"{number:+.0f}".replace("-", "−")
    ax.annotate(text, (x, y), (aside, 0), fontsize=style.TEXT_SIZE - 1, bbox=ground, **where)
