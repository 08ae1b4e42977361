"""Figures of notebook 11: what something is made of, and how each part grows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from vit_helpers.plots import style

COLORS = (style.PATCH, style.KEY, style.QUERY, style.VALUE, style.POSITION, style.CLASS_TOKEN, style.LINE)
ROOM = 0.038  # share of the axis that a number needs


def draw_stacks(
    rows: Mapping[str, Mapping[str, float]],
    unit: str = "",
    share: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A bar a row, made of its parts laid end to end; returns the axes.

    rows : {name of the row: {part: amount, 0 or more}}; the same parts in every row
    unit : of the amounts, for the axis; share: every bar is 100 % long
    """
    ax = style.new_axes(ax, 9, 1.3 + 0.48 * len(rows))
    names, parts = list(rows), list(next(iter(rows.values())))
    whole = {name: sum(amounts.values()) for name, amounts in rows.items()}
    scale = {name: 100 / whole[name] if share else 1 for name in names}
    longest = 100 if share else max(whole.values())
    left = dict.fromkeys(names, 0.0)
    for i, part in enumerate(parts):
        lengths = [rows[name][part] * scale[name] for name in names]
        color, hatch = COLORS[i % len(COLORS)], style.HATCHES[(i + i // len(COLORS)) % len(style.HATCHES)]
        bar = {"color": color, "hatch": hatch, "edgecolor": "white"}
        ax.barh(names, lengths, 0.72, list(left.values()), label=part, **bar)
        for y, (name, length) in enumerate(zip(names, lengths, strict=True)):
            if length > ROOM * longest:
                text = f"{length:.0f}" if length >= 10 else f"{length:.1f}"
                style.write_on(ax, left[name] + length / 2, y, text, color)
            left[name] += length
    ax.invert_yaxis()
    ax.set_xlim(0, longest)
    style.style_axes(ax, x="share of the whole, %" if share else unit)
    ax.legend(ncols=len(parts), fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 0.98))
    ax.set_title(title or "", loc="left", fontsize=style.TEXT_SIZE + 1, color=style.TEXT, pad=30)
    return ax


def draw_growth(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    name: str,
    unit: str = "",
    title: str | None = None,
    mark: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How parts grow with something, both axes logarithmic, named lines, each with its slope; returns the axes.

    x: the values of what grows; lines: {part: amounts}; name, unit: of the axes; mark: an x to be marked
    """
    ax = style.new_axes(ax, 6, 3.6)
    for i, (part, amounts) in enumerate(lines.items()):
        color = COLORS[(1 + i) % len(COLORS)]
        ax.plot(x, amounts, color=color, linewidth=2.5, linestyle=("-", "--", "-.", ":")[i % 4], label=part)
        slope = math.log(amounts[-1] / amounts[0]) / math.log(x[-1] / x[0])
        aside = (8, -4) if i == 0 else (-8, 4)
        where: dict[str, Any] = {"va": "top"} if i == 0 else {"va": "bottom", "ha": "right"}
        where |= {"textcoords": "offset points", "fontsize": style.TEXT_SIZE - 2, "color": style.TEXT}
        ax.annotate(f"slope {slope:.1f}", (x[len(x) // 2], amounts[len(x) // 2]), aside, **where)
    if mark:
        ax.axvline(mark, color=style.LINE, linewidth=1, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ticks = x[:: -(-len(x) // 4)]  # four at most
    ax.set_xticks(ticks, [f"{value:,}" for value in ticks], minor=False)
    ax.minorticks_off()
    return style.style_axes(ax, title, name, unit)


def draw_ratios(
    rows: Mapping[str, tuple[float, float, float]],
    title: str | None = None,
    x: str = "times as fast",
    ax: Axes | None = None,
) -> Axes:
    """A dot a row on a logarithmic axis with 1 in the middle, and its range over the rounds; returns the axes.

    rows: {name of the row: (ratio, lowest, highest)}, drawn from the top; blue discs where every round was
          faster, orange squares where every round was slower, gray where they do not agree
    """
    ax = style.new_axes(ax, 9, 1.1 + 0.3 * len(rows))
    for y, (ratio, lowest, highest) in enumerate(rows.values()):
        color, marker = style.LINE, "D"
        if lowest > 1:
            color, marker = style.QUERY, "o"
        elif highest < 1:
            color, marker = style.CLASS_TOKEN, "s"
        ax.plot([lowest, highest], [y, y], color=color, linewidth=2)
        ax.plot(ratio, y, marker, color=color, markersize=8)
        text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
        ax.annotate(text, (highest, y), (8, 0), textcoords="offset points", va="center",
                    fontsize=style.TEXT_SIZE - 1, color=style.TEXT)  # fmt: skip
    ax.axvline(1, color=style.TEXT, linewidth=1)
    ax.set_xscale("log")
    ticks = [tick for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300) if ax.get_xlim()[0] < tick < ax.get_xlim()[1]]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    return style.style_axes(ax, title, x)


def draw_holdings(frames: Mapping[str, Any], blocks: int) -> Any:
    """Which parts of the weights each process holds, a picture a moment, side by side; returns the axes.

    frames: {title: boolean (processes, blocks * parts)}; the parts of a block stand side by side
    """
    _, axes = style.new_figure(9, 2.3, ncols=len(frames))
    colors = ListedColormap(["white", style.QUERY])
    for ax, (title, held) in zip(axes, frames.items(), strict=True):
        processes = len(held)
        ax.imshow(held, cmap=colors, vmin=0, vmax=1, aspect="auto", extent=(0, blocks, processes, 0))
        for x in range(1, blocks):
            ax.axvline(x, color=style.LINE, linewidth=2)
        for y in range(1, processes):
            ax.axhline(y, color=style.LINE, linewidth=0.5)
        ax.set_xticks([x + 0.5 for x in range(blocks)], range(1, blocks + 1))
        ax.set_yticks([y + 0.5 for y in range(processes)], range(processes))
        style.style_axes(ax, title, "block", "process" if ax is axes[0] else None)
        ax.tick_params(length=0)
        ax.spines[["top", "right"]].set_visible(True)
    return axes
