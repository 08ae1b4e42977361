"""A walk through a model, stop by stop, drawn from the numbers of a real pass; lines; shares of a whole."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_box, draw_image
from vit_helpers.plots.model import arrow, draw_patches

LEFT, RIGHT, GAP = 0.01, 0.99, 0.075  # of the figure's width; arrows stand in the gaps
ABOVE, PICTURE, BELOW, LINE = 0.5, 1.19, 0.78, 0.21  # inches: title, a row's pictures, what stands under, a line of it
COLORS = plt.get_cmap(style.VALUES, 10)  # few steps: a table of numbers then compresses to half the size


class Stop(NamedTuple):
    """One stop of a walk.

    letters: its shape in letters, "T, D"; data: its numbers, whose shape is printed beneath
    kind   : "image" (C, H, W); "patches" (N, C*P*P) of a square image; "bars" (K,); "weights" (h, T, T) from 0 up;
             else numbers of any sign, "tokens" (T, D), token 0 in its color, or "plain" (n, D), (D,) or (n, T, D)
    how    : what happened on the way here, over the arrow;  width: of its picture, over the others'
    """

    name: str
    letters: str
    data: torch.Tensor
    kind: str = "plain"
    how: str = ""
    width: float = 1.0


def draw_walk(rows: Sequence[Sequence[Stop]], title: str, spread: float, in_chans: int = 3) -> Figure:
    """Rows of stops, read as one reads a page; every number of tokens on one scale.  Returns the figure.

    rows: lists of `Stop`;  spread: the scale runs from -spread to spread
    """
    fig = plt.figure(figsize=(9, ABOVE + (PICTURE + BELOW) * len(rows)), facecolor="white")
    height = fig.get_figheight()
    fig.text(LEFT, 1 - 0.05 / height, title, fontsize=style.TEXT_SIZE + 1, color=style.TEXT, va="top")
    for number, stops in enumerate(rows):
        bottom = 1 - (ABOVE + (PICTURE + BELOW) * number + PICTURE) / height
        left = LEFT + GAP * bool(number)  # a later row begins with the arrow from the one before
        unit = (RIGHT - left - GAP * (len(stops) - 1)) / sum(stop.width for stop in stops)
        for place, stop in enumerate(stops):
            edges = (round(900 * x) / 900 for x in (left, unit * stop.width))  # whole pixels: sharp edges, a smaller file
            ax = style.hide_axes(fig.add_axes([next(edges), bottom, next(edges), PICTURE / height]))
            draw_stop(ax, stop, spread, in_chans)
            write_shape(fig, left + unit * stop.width / 2, bottom, stop)
            if place or number:
                arrow(fig, left - GAP + 0.004, left - 0.004, bottom + PICTURE / 2 / height, stop.how)
            left += unit * stop.width + GAP
    scale = ScalarMappable(Normalize(-spread, spread), COLORS)
    bar = fig.colorbar(scale, cax=fig.add_axes([0.72, 1 - 0.17 / height, 0.2, 0.1 / height]), orientation="horizontal")
    bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT)
    fig.text(
        0.71, 1 - 0.05 / height, "numbers of the tokens", fontsize=style.TEXT_SIZE, color=style.TEXT, ha="right", va="top"
    )
    return fig


def write_shape(fig: Figure, middle: float, bottom: float, stop: Stop) -> None:
    """Name, letters and numbers under a stop"""
    numbers = f"({', '.join(str(n) for n in stop.data.shape)})"
    for line, (text, weight) in enumerate(((stop.name, "bold"), (f"({stop.letters})", "normal"), (numbers, "normal"))):
        y = bottom - (0.05 + LINE * line) / fig.get_figheight()
        fig.text(middle, y, text, ha="center", va="top", fontsize=style.TEXT_SIZE, color=style.TEXT, weight=weight)


def draw_stop(ax: Axes, stop: Stop, spread: float, in_chans: int) -> None:
    """The numbers of one stop as a picture"""
    data = stop.data.detach()
    if stop.kind == "image":
        draw_image(data, ax)
    elif stop.kind == "patches":
        P = round((data.shape[1] / in_chans) ** 0.5)
        side = round(len(data) ** 0.5) * P
        draw_patches(ax, data.clamp(0, 1), in_chans, P, (side, side))
        ax.set_aspect("equal")
    elif stop.kind == "bars":
        ax.barh(range(len(data)), data, color=style.LINE)
        ax.axvline(0, color=style.TEXT, linewidth=1)
        for row, value in enumerate(data.tolist()):
            ax.text(0.1 if value < 0 else -0.1, row, f"{value:.2f}", ha="left" if value < 0 else "right", va="center",
                    fontsize=style.TEXT_SIZE - 3, color=style.TEXT)  # fmt: skip
        ax.set(xlim=(-1.2, 1.6), ylim=(len(data) - 0.4, -0.6))
    elif stop.kind == "weights":
        ax.imshow(side_by_side(data, round(data.shape[0] ** 0.5)), cmap=COLORS, vmin=0, vmax=data.quantile(0.99))
    else:
        table = data[:, None] if data.ndim == 1 else data
        table = side_by_side(table, 1) if table.ndim == 3 else table
        ax.imshow(table, cmap=COLORS, vmin=-spread, vmax=spread, aspect="auto", interpolation="nearest")
        if stop.kind == "tokens":
            draw_box(ax, (-0.5, -0.5, table.shape[1], 1), style.CLASS_TOKEN, linewidth=2, clip_on=False)


def side_by_side(tables: Tensor, rows: int) -> Tensor:
    """Several tables as one, with white lines between them: (n, a, b) in a grid of some rows"""
    gap = max(2, round(0.04 * tables.shape[2]))
    padded = torch.nn.functional.pad(tables, (0, gap, 0, gap if rows > 1 else 0), value=torch.nan)
    lines = padded.unflatten(0, (rows, -1)).permute(0, 2, 1, 3)
    return lines.flatten(2).flatten(0, 1)[:, :-gap]


def draw_lines(
    lines: Mapping[str, tuple[Any, str, str]], ax: Axes, title: str | None = None, x: str | None = None, y: str | None = None
) -> Axes:
    """Lines over their places 0, 1, 2, ..., named in a legend; the vertical axis begins at 0 where nothing is below.

    lines: {name: (values, color, line style)}
    """
    for name, (values, color, dashes) in lines.items():
        ax.plot(values, dashes, color=color, label=name)
    if min(min(values) for values, *_ in lines.values()) >= 0:
        ax.set_ylim(0)
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    return style.style_axes(ax, title, x, y)


def draw_shares(
    shares: Mapping[str, Mapping[str, float]],
    colors: Mapping[str, str],
    ax: Axes | None = None,
    title: str | None = None,
    least: float = 0.04,
) -> Axes:
    """A bar from 0 to 1 for each whole, cut into its parts; parts above the least carry their share.

    shares: {whole: {part: share}};  colors: {part: color}
    """
    ax = style.new_axes(ax, 9, 2.7)
    left = dict.fromkeys(shares, 0.0)
    for (part, color), hatch in zip(colors.items(), style.HATCHES, strict=False):
        lengths = [parts[part] for parts in shares.values()]
        bar = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
        ax.barh(list(shares), lengths, left=list(left.values()), label=part, **bar)
        for whole, share in zip(shares, lengths, strict=True):
            if share > least:
                style.write_on(ax, left[whole] + share / 2, whole, f"{share:.0%}", color)
            left[whole] += share
    legend = {"fontsize": style.TEXT_SIZE, "frameon": False, "ncols": 3, "loc": "upper center"}
    ax.legend(bbox_to_anchor=(0.5, -0.3), **legend)
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    return style.style_axes(ax, title, "share")
