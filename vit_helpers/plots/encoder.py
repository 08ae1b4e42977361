"""Pictures of what stands around attention: a stream with branches, and lines with their spread."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch
from torch import Tensor

from vit_helpers.plots import style

DOTS = "ox^s"  # a mark for each group, so that they differ without color too


def draw_stream(
    branches: Sequence[Mapping[str, str]],
    ax: Axes | None = None,
    title: str | None = None,
    ends: tuple[str, str] = ("in", "out"),
) -> Axes:
    """A stream from left to right; each branch leaves it, passes its boxes, and is added back.

    branches: a list of {name of a box: color};  ends: what the stream is called where it comes in and goes out
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 2.6), title)
    ax.set(xlim=(0, 10), ylim=(-0.55, 1.8))
    ax.plot([0.9, 9.1], [0, 0], color=style.TEXT, linewidth=5, solid_capstyle="butt", zorder=1)
    for x, end, side in ((0.8, ends[0], "right"), (9.2, ends[1], "left")):
        ax.text(x, 0, end, ha=side, va="center", fontsize=style.TEXT_SIZE, color=style.TEXT)
    width = 8.2 / len(branches)
    for i, boxes in enumerate(branches):
        draw_branch(ax, boxes, 0.9 + i * width + 0.12 * width, 0.88 * width - 0.35)
    return ax


def draw_branch(ax: Axes, boxes: Mapping[str, str], left: float, width: float) -> None:
    """One branch: up from the stream, through its boxes, down to a plus"""
    right = left + width
    thin = {"color": style.TEXT, "linewidth": 1.5, "zorder": 1}
    ax.plot([left, left, right], [0, 1, 1], **thin)
    ax.annotate("", (right, 0.17), (right, 1.01), arrowprops={"arrowstyle": "-|>", **thin})
    ax.add_patch(Circle((right, 0), 0.17, facecolor="white", edgecolor=style.TEXT, linewidth=1.5, zorder=3))
    ax.text(right, -0.01, "+", ha="center", va="center", fontsize=style.TEXT_SIZE + 4, color=style.TEXT, zorder=4)
    step = width / len(boxes)
    for i, (name, color) in enumerate(boxes.items()):
        corner = (left + (i + 0.16) * step, 0.72)
        box = {"boxstyle": "round,pad=0.02", "facecolor": "white", "edgecolor": color, "linewidth": 3, "zorder": 2}
        ax.add_patch(FancyBboxPatch(corner, 0.68 * step, 0.56, **box))
        where = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT, "zorder": 3}
        ax.text(left + (i + 0.5) * step, 1, name, **where)


def draw_spread(values: Tensor | Sequence[Sequence[float]], ax: Axes, label: str, **options: Any) -> Line2D:
    """A line through the geometric mean of several runs, and a band from the least to the largest.

    values: (runs, points), all positive;  options: as for `plot`
    """
    values = torch.as_tensor(values).clamp(min=1e-12)
    points = range(1, values.shape[1] + 1)
    (line,) = ax.plot(points, values.log().mean(0).exp(), label=label, linewidth=2, **options)
    low, high = values.amin(0), values.amax(0)
    ax.fill_between(points, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def draw_sizes(groups: Mapping[str, tuple[Tensor, str]], ax: Axes | None = None, title: str | None = None) -> Axes:
    """A dot for every token: its mean and its spread.  groups: {name: (tokens (T, D), color)}"""
    ax = style.style_axes(style.new_axes(ax, 4, 3), title, "mean of a token", "its spread")
    for (name, (tokens, color)), mark in zip(groups.items(), DOTS, strict=False):
        tokens = torch.as_tensor(tokens).detach()
        spread = tokens.std(dim=-1, unbiased=False)
        ax.plot(tokens.mean(dim=-1), spread, mark, color=color, markersize=4, linewidth=0, label=name)
    return ax


def draw_turns(values: Sequence[float], groups: Mapping[str, str], ax: Axes | None = None) -> Axes:
    """Bars numbered from 1, whose groups take turns.  groups: {name: color}"""
    ax = style.new_axes(ax, 4, 3)
    for start, (name, color) in enumerate(groups.items()):
        heights = values[start :: len(groups)]
        ax.bar(range(start + 1, len(values) + 1, len(groups)), heights, color=color, label=name)
    return ax
