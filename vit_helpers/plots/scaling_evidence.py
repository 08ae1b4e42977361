"""Notebook 11, further: how costs grow, memory by batch, the roofline, measured speed-ups."""

import math
from collections.abc import Mapping

from matplotlib.lines import Line2D

from vit_helpers.plots import style
from vit_helpers.plots.encoder import ATTENTION, OTHER
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.scaling import stack_sums

REST = "all else in a block"
# Of a comparison: name, color and mark where it was always faster, where rounds do not agree, and
# where it was always slower
ROUNDS = {
    1: ("faster in every round", ATTENTION, "o"),
    0: ("sometimes faster, sometimes slower", style.LINE, "D"),
    -1: ("slower in every round", OTHER, "s"),
}
TICKS = {  # up to which ratio of the ends of the axis: ticks that do not touch
    3: (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.8, 2.2),
    12: (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7),
    math.inf: (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
}


def draw_growth(panels: Mapping[str, Mapping[int, tuple[float, float]]], mark: float) -> Picture:
    """Draw how two kinds of arithmetic grow, on logarithmic axes with equal scales.

    panels: {what grows: {its value: billions of (scores and mixing, everything else)}}
    mark  : where both are equal in the first panel
    """
    decades = [math.log(max(costs) / min(costs)) for costs in panels.values()]
    layout = {"ncols": len(panels), "sharey": True, "squeeze": False, "width_ratios": decades}
    fig, (axes,) = style.new_figure(9, 3.8, **layout)
    slopes = []
    for ax, (name, costs) in zip(axes, panels.items(), strict=True):
        x = list(costs)
        lines = dict(zip(("scores, mixing", REST), zip(*costs.values(), strict=True), strict=True))
        looks = (("-", ATTENTION, "top"), ("--", OTHER, "bottom"))
        for (part, y), (line, color, side) in zip(lines.items(), looks, strict=True):
            ax.plot(x, y, line, color=color, linewidth=2.5, label=part)
            slope = math.log(y[-1] / y[0]) / math.log(x[-1] / x[0])
            slopes.append(f"{name}, {part}: {slope:.0f}")
            middle = len(x) // (3 if side == "top" else 2)
            away = {"xytext": (8, -4) if side == "top" else (-8, 4), "va": side}
            away |= {"ha": "left" if side == "top" else "right", "textcoords": "offset points"}
            ax.annotate(f"slope {slope:.0f}", (x[middle], y[middle]), fontsize=12, **away)
        ax.loglog()
        ticks = x[:: -(-len(x) // 3)]
        ax.set_xticks(ticks, [f"{value:,}" for value in ticks], minor=False)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        ax.minorticks_off()
        style.style_axes(ax, None, name)
    axes[0].axvline(mark, color=style.LINE, linewidth=1, linestyle=":")
    beside = {"transform": axes[0].get_xaxis_transform(), "ha": "right", "va": "bottom"}
    axes[0].text(0.93 * mark, 0.02, f"equal at\n{mark:,}", fontsize=style.TEXT_SIZE - 1, **beside)
    axes[0].set_ylabel("multiply-adds (billions)", fontsize=style.TEXT_SIZE, color=style.TEXT)
    style.title_figure(fig, "With enough tokens, scores and mixing overtake the rest")
    handles = axes[0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    fig.legend(*handles, fontsize=style.TEXT_SIZE, **place)
    return Picture(
        fig,
        "How two kinds of arithmetic grow with tokens, width and blocks, on logarithmic axes.",
        f"Straight lines in {len(panels)} panels. Their slopes: {'; '.join(slopes)}. In the first "
        f"panel they meet at {mark:,}.",
    )


def draw_batches(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw what training needs, a bar for each model and batch, with the sum at its end.

    rows: {name: {"weights", "gradients", "optimizer", "activations"} in GiB}
    """
    fig, ax = style.new_figure(9, 1.3 + 0.42 * len(rows))
    told = stack_sums(
        ax, rows, 1, "Activations grow with the batch, the rest stays", "GiB in float32"
    )
    return Picture(
        fig,
        "The memory that training needs, in four parts, for two models and several batches.",
        f"Stacked bars, GiB in all: {told}.",
    )


def draw_roofline(
    points: Mapping[str, tuple[float, float]], bandwidth: float, peak: float
) -> Picture:
    """Draw measured operations below the two limits of a machine, on logarithmic axes.

    points   : {name: (FLOPs for each byte, FLOPs per second)}
    bandwidth: bytes per second;  peak: FLOPs per second
    """
    fig, ax = style.new_figure(9, 3.9)
    ridge = peak / bandwidth
    xs = [x for x, _ in points.values()]
    low, high = min(xs) / 2, max(4 * ridge, 3 * max(xs))
    bottom = min(low * bandwidth / 3, min(y for _, y in points.values()) / 3) / 1e9
    ax.plot([low, ridge], [low * bandwidth / 1e9, peak / 1e9], color=style.TEXT, linewidth=2)
    ax.plot([ridge, high], [peak / 1e9] * 2, "--", color=style.TEXT, linewidth=2)
    for i, (name, (x, y)) in enumerate(points.items()):
        ax.plot(x, y / 1e9, "s" if i < 1 else "o", color=ATTENTION, markersize=9)
        offset = {"xytext": (10, -12), "va": "top"} if i < 1 else {"xytext": (9, -10)}
        text = {"textcoords": "offset points", "fontsize": style.TEXT_SIZE - 1}
        ax.annotate(name, (x, y / 1e9), color=style.TEXT, **offset, **text)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, 2.6 * peak / 1e9))
    limits = {
        f"memory: {bandwidth / 1e9:,.0f} GB per second": (1.15 * low, "left"),
        f"arithmetic: {peak / 1e9:,.0f} GFLOPs per second": (high / 1.1, "right"),
    }
    for limit, (x, side) in limits.items():
        ax.text(x, 1.25 * peak / 1e9, limit, fontsize=style.TEXT_SIZE, va="bottom", ha=side)
    for axis, (start, end) in ((ax.xaxis, (low, high)), (ax.yaxis, ax.get_ylim())):
        ticks = [10.0**power for power in range(-3, 7) if start <= 10.0**power <= end]
        axis.set_ticks(ticks, [f"{tick:,g}" for tick in ticks])
    ax.minorticks_off()
    style.style_axes(
        ax, "Two limits: memory and arithmetic", "FLOPs for each byte moved", "GFLOPs per second"
    )
    told = ", ".join(f"{' '.join(name.split())} {y / 1e9:.0f}" for name, (_, y) in points.items())
    return Picture(
        fig,
        "Measured operations below a rising and a level line, the limits of memory and arithmetic.",
        f"A rising line that ends in a level one, and dots below both. GFLOPs per second: {told}.",
    )


def draw_ratios(rows: Mapping[str, tuple[float, float, float]], title: str) -> Picture:
    """Draw a mark a row on a logarithmic axis around 1, and its range over rounds.

    rows: {name of the row: (ratio, lowest, highest)}, from the top; discs where every round was
          faster, squares where every round was slower, gray diamonds where the rounds do not agree
    """
    fig, ax = style.new_figure(9, 1.5 + 0.32 * len(rows))
    for y, (ratio, lowest, highest) in enumerate(rows.values()):
        _, color, marker = ROUNDS[(lowest > 1) - (highest < 1)]
        ax.plot([lowest, highest], [y, y], color=color, linewidth=2)
        ax.plot(ratio, y, marker, color=color, markersize=8)
        text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
        at, aside, side = (lowest, -8, "right") if highest < 1 else (highest, 8, "left")
        options = {"textcoords": "offset points", "va": "center", "ha": side, "color": style.TEXT}
        ax.annotate(text, (at, y), (aside, 0), fontsize=style.TEXT_SIZE - 1, **options)
    ax.axvline(1, color=style.TEXT, linewidth=1)
    ax.set_xscale("log")
    low = min(lowest for _, lowest, _ in rows.values())
    high = max(highest for *_, highest in rows.values())
    span = max(high / low, 2) ** 0.14  # room for the numbers beside the outermost ranges
    low, high = low / span, high * span
    choices = next(ticks for most, ticks in TICKS.items() if high < most * low)
    ticks = [tick for tick in choices if low < tick < high]
    ax.set_xlim(low, high)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    marks = [
        Line2D([], [], ls="", color=color, marker=marker, label=name)
        for name, color, marker in ROUNDS.values()
    ]
    place = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    fig.legend(handles=marks, fontsize=style.TEXT_SIZE - 1, **place)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.6)
    style.style_axes(ax, title, "times as fast")
    first, *_, last = rows
    return Picture(
        fig,
        "How many times as fast each change makes a model, with the range over rounds.",
        f"Marks with ranges on a logarithmic axis, from {first} ({rows[first][0]:.2f}) to "
        f"{last} ({rows[last][0]:.2f}).",
    )
