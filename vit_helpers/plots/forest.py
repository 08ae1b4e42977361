"""Forest plots: a line for each change, with its difference from a baseline, the interval, and both of its errors."""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

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
    texts  : {name: text at the right}, below a heading;  before: {name: another difference}, drawn as a cross below the line
    """
    ax = style.new_axes(None, 9, 0.36 * len(effects) + 1.4)
    rows = (100 * effects[["difference", "low", "high", "seeds", "images"]]).sort_values("difference", ascending=False)
    ax.axvline(0, color=style.LINE, linewidth=1)
    for y, (name, row) in enumerate(rows.iterrows()):
        draw_line(ax, y, row, limits, str(name) in passes)
        if before and name in before:
            ax.plot(100 * before[str(name)], y + 0.45, "x", color=style.TEXT, markersize=6, markeredgewidth=2)
        where = {"transform": ax.get_yaxis_transform(), "va": "center", "color": style.TEXT}
        ax.text(1.01, y, (texts or {}).get(str(name), ""), fontsize=style.TEXT_SIZE - 1, **where)
    ax.text(1.01, -0.55, heading, fontsize=style.TEXT_SIZE - 1, **where)
    ax.set_yticks(range(len(rows)), rows.index)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(*limits)
    for label, look in MARKS.items():
        ax.plot([], [], label=label, **look)
    if before:
        ax.plot([], [], "x", color=style.TEXT, markersize=6, markeredgewidth=2, label="at the baseline's rate")
    figure: Any = ax.figure
    columns = 3 if before else 4
    figure.legend(frameon=False, fontsize=style.TEXT_SIZE - 1, loc="outside lower center", ncols=columns)
    return style.style_axes(ax, title, "difference from the baseline in points of accuracy")


def draw_line(ax: Axes, y: float, row: Mapping[str, float], limits: tuple[float, float], passes: bool) -> None:
    """One change of a forest plot: its interval with the mean, the error of the seeds above it, that of the images below."""
    left, right = limits
    color, mean = style.SERIES[2] if passes else style.LINE, row["difference"]
    ends = [min(max(x, left), right) for x in (row["low"], row["high"])]
    ax.plot(ends, [y, y], color=color, linewidth=2, solid_capstyle="butt")
    for x, inside in zip(ends, (row["low"] >= left, row["high"] <= right), strict=True):
        ax.plot(x, y, "|" if inside else "", color=color, markersize=9, markeredgewidth=2)
    for error, shade, side in ((row["seeds"], SEEDS, -0.26), (row["images"], IMAGES, 0.26)):
        parts = [min(max(x, left), right) for x in (mean - error, mean + error)]
        ax.plot(parts, [y + side] * 2, color=shade, linewidth=4, solid_capstyle="butt")
    if left < mean < right:
        ax.plot(mean, y, "s" if passes else "o", color=color, mfc=color if passes else "white", markersize=7)
        return
    below, edge = mean < 0, left if mean < 0 else right
    ax.plot(edge, y, "<" if below else ">", color=color, markersize=10, clip_on=False)
    where = {"va": "center", "ha": "left" if below else "right", "textcoords": "offset points", "color": style.TEXT}
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    ax.annotate(
        f"{mean:+.0f}".replace("-", "−"),
        (edge, y),
        (10 if below else -10, 0),
        fontsize=style.TEXT_SIZE - 1,
        bbox=ground,
        **where,
    )
