"""Notebook 11: where a training step's time and memory go, and how costs grow."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vit_helpers.plots import style
from vit_helpers.plots.canvas import fill_cell, write
from vit_helpers.plots.encoder import ATTENTION, MLP, OTHER

KEPT, ONCE = (
    OTHER,
    ("#4D4D4D", "#8C8C8C", "#C4C4C4"),
)  # activations, which grow with the batch; what is there once
COLORS = {  # of the parts of a model as in notebooks 04 and 05, and of what needs memory
    **{
        "projection, head": style.LINE,
        "qkv, output": "#9C95C4",
        "scores, mixing": ATTENTION,
        "MLP": MLP,
    },
    **{
        "all else in a block": OTHER,
        "weights": ONCE[0],
        "gradients": ONCE[1],
        "optimizer": ONCE[2],
        "activations": KEPT,
    },
}
SERIES = (
    *style.SERIES[:2],
    style.LINE,
    style.SERIES[2],
    *ONCE[::2],
)  # of parts that have no color of their own
# Of a comparison: name, color and mark where it was always faster, where rounds do not agree, and
# where it was always slower
ROUNDS = {
    1: ("faster in every round", ATTENTION, "o"),
    0: ("sometimes faster, sometimes slower", style.LINE, "D"),
    -1: ("slower in every round", OTHER, "s"),
}


def draw_stacks(
    rows: Mapping[str, Mapping[str, float]],
    unit: str = "",
    share: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a bar a row, made of its parts laid end to end.

    rows : {name of the row: {part: amount, 0 or more}}; the same parts in every row
    unit : of the amounts, for the axis; share: every bar is 100 % long

    A sum is that of the rounded terms, with one digit less. Where a piece is too short for its
    number, all terms are at the end of the bar.
    """
    ax = style.new_axes(ax, 9, 1.3 + 0.48 * len(rows))
    names, parts = list(rows), list(next(iter(rows.values())))
    whole = {name: sum(amounts.values()) for name, amounts in rows.items()}
    scale = {name: 100 / whole[name] if share else 1 for name in names}
    longest = 100 if share else max(whole.values())
    left, unlabeled = dict.fromkeys(names, 0.0), set[str]()
    digits = 0 if share else 1 if longest >= 100 else 2
    for i, part in enumerate(parts):
        lengths = [rows[name][part] * scale[name] for name in names]
        color = COLORS.get(part, SERIES[i % len(SERIES)])
        hatch = style.HATCHES[(i + 2 * (i // len(SERIES))) % len(style.HATCHES)]
        ax.barh(
            names,
            lengths,
            0.72,
            list(left.values()),
            label=part,
            color=color,
            hatch=hatch,
            edgecolor="white",
        )
        for y, (name, length) in enumerate(zip(names, lengths, strict=True)):
            text = f"{length:.{digits}f}"
            if length > (0.008 + 0.0105 * len(text)) * longest:
                style.write_on(ax, left[name] + length / 2, y, text, color)
            else:
                unlabeled.add(name)
            left[name] += length
    ax.invert_yaxis()
    ax.set_xlim(0, longest if share else write_sums(rows, ax, digits, unlabeled))
    style.style_axes(ax, x="share of the whole, %" if share else unit)
    ax.legend(
        ncols=len(parts),
        fontsize=style.TEXT_SIZE - 1,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.98),
    )
    ax.set_title(title or "", loc="left", fontsize=style.TEXT_SIZE + 1, color=style.TEXT, pad=30)
    return ax


def write_sums(
    rows: Mapping[str, Mapping[str, float]], ax: Axes, digits: int, with_terms: Collection[str]
) -> float:
    """Write the sum of each row at the end of its bar, of some rows with its terms.

    returns: where the longest text ends
    """
    longest, ends = max(sum(amounts.values()) for amounts in rows.values()), []
    for y, (name, amounts) in enumerate(rows.items()):
        end, terms = sum(amounts.values()), [f"{amount:.{digits}f}" for amount in amounts.values()]
        total = f"= {sum(map(float, terms)):.{digits - 1}f}"  # as a reader adds them up
        text = f" {' + '.join(terms)} {total}" if name in with_terms else f" {total}"
        ax.text(end, y, text, va="center", fontsize=style.TEXT_SIZE - 1)
        ends.append(end + (0.01 + 0.0105 * len(text)) * longest)
    return max(longest, *ends)


def draw_growth(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    name: str,
    unit: str = "",
    title: str | None = None,
    mark: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how parts grow with something, both axes logarithmic, each line with its slope.

    x         : the values of what grows;  lines: {part: amounts}
    name, unit: of the axes;  mark: an x to be marked
    """
    ax = style.new_axes(ax, 6, 3.6)
    for i, (part, amounts) in enumerate(lines.items()):
        color = COLORS.get(part, SERIES[i % len(SERIES)])
        ax.plot(
            x,
            amounts,
            color=color,
            linewidth=2.5,
            linestyle=("-", "--", "-.", ":")[i % 4],
            label=part,
        )
        slope = math.log(amounts[-1] / amounts[0]) / math.log(x[-1] / x[0])
        aside = (8, -4) if i == 0 else (-8, 4)
        options: dict[str, Any] = {"va": "top"} if i == 0 else {"va": "bottom", "ha": "right"}
        options |= {
            "textcoords": "offset points",
            "fontsize": style.TEXT_SIZE - 1,
            "color": style.TEXT,
        }
        at = len(x) // (
            3 if i == 0 else 2
        )  # below the first line and above the others, where lines that cross leave space
        ax.annotate(f"slope {slope:.0f}", (x[at], amounts[at]), aside, **options)
    if mark:
        ax.axvline(mark, color=style.LINE, linewidth=1, linestyle=":")
        beside: dict[str, Any] = {
            "transform": ax.get_xaxis_transform(),
            "ha": "right",
            "va": "bottom",
        }
        ax.text(
            0.93 * mark,
            0.02,
            f"equal at\n{mark:,}",
            fontsize=style.TEXT_SIZE - 1,
            color=style.TEXT,
            **beside,
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ticks = x[:: -(-len(x) // 4)]  # four at most
    ax.set_xticks(ticks, [f"{value:,}" for value in ticks], minor=False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.minorticks_off()
    return style.style_axes(ax, title, name, unit)


def draw_ratios(
    rows: Mapping[str, tuple[float, float, float]],
    title: str | None = None,
    x: str = "times as fast",
    ax: Axes | None = None,
) -> Axes:
    """Draw a dot a row on a logarithmic axis with 1 in the middle, and its range over rounds.

    rows: {name of the row: (ratio, lowest, highest)}, from the top; discs where every round was
          faster, squares where every round was slower, gray diamonds where the rounds do not agree
    """
    ax = style.new_axes(ax, 9, 1.1 + 0.3 * len(rows))
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
    ax.margins(x=0.12)  # for the numbers beside the outermost ranges
    low, high = ax.get_xlim()
    choices = (
        (0.5, 0.7, 1, 1.5, 2, 3)
        if high < 10 * low
        else (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
    )
    ticks = [tick for tick in choices if low < tick < high]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    marks = [
        Line2D([], [], ls="", color=color, marker=marker, label=name)
        for name, color, marker in ROUNDS.values()
    ]
    ax.legend(handles=marks, fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower right")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    return style.style_axes(ax, title, x)


def draw_training_step(
    need: Mapping[str, float], blocks: int = 12, backward: float = 2, title: str | None = None
) -> Figure:
    """Draw one training step from left to right: what works at each moment, what is in memory.

    need    : {"weights", "gradients", "optimizer", "activations"} in GiB
    backward: times the forward pass; all to scale, but
          for the optimizer's step, the loader and the network, whose length depends on the machine
    """
    fig, (lanes, memory) = style.new_figure(9, 5.4, nrows=2, sharex=True, height_ratios=(1, 1.25))
    ends = {"forward": blocks, "backward": blocks * (1 + backward)}
    wait = 0.3 * blocks  # for the last gradients
    ends["step"] = ends["backward"] + wait + 0.4 * blocks
    shades = {"forward": "#D9D9D9", "backward": "#A6A6A6", "step": "#D9D9D9"}
    texts = {"forward": "forward pass", "backward": "backward pass, about twice as long"}
    texts["step"] = "AdamW"
    start = 0.0
    for name, end in ends.items():
        start += wait if name == "step" else 0
        for left in np.arange(start, end - 1e-9, (end - start) / (1 if name == "step" else blocks)):
            width = (end - start) / (1 if name == "step" else blocks)
            fill_cell(lanes, (left, 1.1), (width, 0.8), shades[name])
        ground = {"facecolor": shades[name], "edgecolor": "none", "pad": 2}
        write(lanes, (start + end) / 2, 1.5, texts[name], color="black", bbox=ground)
        start = end
    fill_cell(lanes, (0, 2.1), (ends["step"], 0.8), style.MUTED)
    write(
        lanes, ends["step"] / 2, 2.5, "read and decode the images of the next batch", color="black"
    )
    bucket = blocks * backward / 4  # the time after which a quarter of the gradients is there
    for i in range(4):
        left = ends["forward"] + (i + 1) * bucket
        width = 0.62 * bucket if i < 3 else wait
        fill_cell(lanes, (left, 0.1), (width, 0.8), ONCE[1])
    before = ends["forward"] + bucket - 0.4
    write(lanes, before, 0.5, "all-reduce of the gradients", ha="right", color="black")
    lanes.set(ylim=(0, 3), xlim=(0, ends["step"]))
    style.style_axes(lanes, title)
    lanes.set_yticks([2.5, 1.5, 0.5], ["data loader", "processor", "network"])
    lanes.spines[:].set_visible(False)
    lanes.tick_params(length=0, labelbottom=False)
    draw_memory(need, ends, memory)
    return fig


def draw_memory(need: Mapping[str, float], ends: Mapping[str, float], ax: Axes) -> None:
    """Draw what is in memory during a training step, as areas on top of each other."""
    forward, backward, last = ends.values()
    x = [0, forward, backward, last]
    heights = {
        "weights": [need["weights"]] * 4,
        "optimizer": [need["optimizer"]] * 4,
        "gradients": [0, 0, need["gradients"], need["gradients"]],
        "activations": [0, need["activations"], 0, 0],
    }
    below, middles = (
        np.zeros(4),
        {"weights": last / 2, "optimizer": last / 2, "activations": forward},
    )
    middles["gradients"] = (backward + last) / 2
    hatches = {"gradients": "//", "activations": ".."}  # as in draw_stacks
    for name, height in heights.items():
        top = below + height
        ax.fill_between(
            x,
            below,
            top,
            facecolor=COLORS[name],
            hatch=hatches.get(name),
            edgecolor="white",
            linewidth=0,
        )
        at = float(np.interp(middles[name], x, (below + top) / 2))
        if name == "activations":
            at = float(np.interp(middles[name], x, below + 0.4 * np.array(height)))
        style.write_on(ax, middles[name], at, f"{name}, {need[name]:.2f} GiB", COLORS[name])
        below = top
    peak, arrow = float(below[1]), {"arrowstyle": "-|>", "color": style.TEXT}
    aside = (forward + 1.5, peak)
    ax.annotate(
        f"peak, {peak:.1f} GiB",
        (forward, peak),
        aside,
        va="center",
        fontsize=style.TEXT_SIZE,
        arrowprops=arrow,
    )
    ax.set_ylim(0, 1.08 * float(below[1]))
    style.style_axes(
        ax, None, "time (the length of a pass follows from its multiply-adds)", "memory, GiB"
    )
    ax.set_xticks([])


def draw_roofline(
    points: Mapping[str, tuple[float, float]],
    bandwidth: float,
    peak: float,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measured operations below the two limits of a machine, on logarithmic axes.

    points   : {name: (FLOPs for each byte, FLOPs per second)}
    bandwidth: bytes per second;  peak: FLOPs per second
    """
    ax, ridge = style.new_axes(ax, 9, 3.9), peak / bandwidth
    low, high = (
        min(x for x, _ in points.values()) / 2,
        max(4 * ridge, 3 * max(x for x, _ in points.values())),
    )
    ax.plot([low, ridge], [low * bandwidth / 1e9, peak / 1e9], color=style.TEXT, linewidth=2)
    ax.plot([ridge, high], [peak / 1e9] * 2, color=style.TEXT, linewidth=2, linestyle="--")
    ax.fill_betweenx(
        [low * bandwidth / 1e9 / 3, 2.4 * peak / 1e9],
        low,
        ridge,
        color=style.MUTED,
        alpha=0.6,
        linewidth=0,
    )
    for i, (name, (x, y)) in enumerate(points.items()):
        ax.plot(x, y / 1e9, "os"[i < 1], color=OTHER if i < 1 else ATTENTION, markersize=9)
        offset = (
            {"xytext": (-4, -8), "va": "top"} if i < 1 else {"xytext": (9, -10)}
        )  # the first may have a neighbor at its right
        options = {
            "textcoords": "offset points",
            "fontsize": style.TEXT_SIZE - 1,
            "color": style.TEXT,
        }
        ax.annotate(name, (x, y / 1e9), **offset, **options)
    ax.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(low * bandwidth / 1e9 / 3, 2.4 * peak / 1e9),
    )
    limits = (
        f"memory: {bandwidth / 1e9:.0f} GB per second",
        f"arithmetic: {peak / 1e9:.0f} GFLOPs per second",
    )
    ax.text(low * 1.15, 1.3 * peak / 1e9, limits[0], fontsize=style.TEXT_SIZE, va="bottom")
    ax.text(
        high / 1.1, 1.3 * peak / 1e9, limits[1], fontsize=style.TEXT_SIZE, va="bottom", ha="right"
    )
    ticks = [t for t in (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000) if low <= t <= high]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ticks = [
        t
        for t in (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
        if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]
    ]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    return style.style_axes(
        ax, title, "arithmetic intensity (FLOPs for each byte moved)", "GFLOPs per second"
    )
