"""Notebook 05: a forward pass from its numbers, lines, shares, differences on a log scale."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import COLUMNS, arrow, frame, new_canvas, write

SIDE = 3.4  # height of a stage's picture, in cells of the canvas
PICTURES = ("image", "patches")  # kinds that keep their width
FRAMES = {
    "tokens": (style.CLASS_TOKEN, style.PATCH),
    "positions": (style.POSITION,),
}  # of the first row, of the others


class Stage(NamedTuple):
    """One stage of a forward pass, and what leads to it.

    letters: its shape in letters, "T, D"; data: its numbers, whose shape is written beneath
    kind   : "image" (C, H, W); "patches" (N, C, P, P) of a square image; "tokens" (T, D), whose
             row 0 is the class token;
             "positions" (T, D); "token" (D,), one token on end; "logits" (K,)
    before : what is written over the arrow that leads here, or "+" or "=" in place of an arrow
    layer  : the name of a layer that is drawn as a box on that arrow
    skip   : dots before it, for layers left out
    times  : the factor by which its colors are stronger than those of the other tables
    """

    name: str
    letters: str
    data: Tensor
    kind: str = "tokens"
    before: str = ""
    layer: str = ""
    skip: bool = False
    width: float = SIDE
    times: float = 1


def draw_forward(
    photo: Tensor,
    patches: Tensor,
    positions: Tensor,
    tokens: Sequence[Tensor],
    features: Tensor,
    logits: Tensor,
    classes: Sequence[str] = (),
) -> Figure:
    """Draw one image on its way through a ViT, from its patches to its logits.

    photo    : (C, H, W), from 0 to 1, square; patches: (N, C, P, P); positions: (T, D)
    tokens   : (T, D) before the first block and after each of them; features: (T, D), normalized
    logits   : (K,); classes: their names
    """
    L = len(tokens) - 1
    before_blocks = [
        Stage("image", "C, H, W", photo, "image"),
        Stage("patches", "N, C·P·P", patches, "patches", "cut"),
        Stage("tokens", "T, D", tokens[0] - positions, before="project,\nclass token\nin front"),
        Stage("positions × 50", "T, D", positions, "positions", "+", times=50),
        Stage("sum, $z_0$", "T, D", tokens[0], before="="),
    ]
    through_blocks = [
        Stage("output, $z_1$", "T, D", tokens[1], layer="block 1"),
        Stage(f"output, $z_{{{L}}}$", "T, D", tokens[L], layer=f"block {L}", skip=True),
        Stage("normalized", "T, D", features, layer="norm"),
        Stage("class token", "D", features[0], "token", "row 0", width=0.6),
        Stage("logits", "K", logits, "logits", layer="head", width=5.2),
    ]
    title = (
        f"A photo becomes {len(features)} tokens, passes through {L} blocks, "
        f"and ends as {len(logits)} logits"
    )
    return draw_stages([before_blocks, through_blocks], title, 3, classes)


def draw_stages(
    rows: Sequence[Sequence[Stage]], title: str, limit: float, classes: Sequence[str] = ()
) -> Figure:
    """Draw a forward pass in rows of stages; tables share a scale with white for 0.

    classes: the names of the logits
    """
    height = 3.1 + (SIDE + 2.9) * len(rows)
    fig, ax = new_canvas(height, title)
    end = 0.0  # the middle of a row's last stage
    for number, stages in enumerate(rows):
        top = 2.2 + (SIDE + 2.9) * number
        gaps = [gap(stage) if place or number else 0.2 for place, stage in enumerate(stages)]
        fixed = sum(stage.width for stage in stages if stage.kind in PICTURES)
        stretch = (COLUMNS - 0.3 - sum(gaps) - fixed) / (
            sum(stage.width for stage in stages) - fixed
        )
        if number:
            draw_return(ax, end, top)
        left = 0.0
        for place, (stage, space) in enumerate(zip(stages, gaps, strict=True)):
            if place or number:
                draw_step(ax, stage, left, left + space, top)
            left += space
            width = stage.width * (1 if stage.kind in PICTURES else stretch)
            draw_stage(ax, stage, (left, top, width), limit, classes)
            sizes = (stage.data.flatten(1) if stage.kind == "patches" else stage.data).shape
            shape = ", ".join(str(n) for n in sizes)
            for line, text in enumerate((stage.name, f"({stage.letters})", f"({shape})")):
                write(
                    ax,
                    left + width / 2,
                    top + SIDE + 0.6 + 0.72 * line,
                    text,
                    weight="normal" if line else "bold",
                )
            left, end = left + width, left + width / 2
    draw_key(fig, ax, height - 0.75, limit)
    return fig


def draw_return(ax: Axes, start: float, top: float) -> None:
    """Draw a line from below a row's last stage to the left end of the next row.

    top: the height at which the pictures of the next row begin
    """
    ax.plot(
        [start, start, 0.1, 0.1],
        [top - 0.55, top - 0.25, top - 0.25, top + SIDE / 2],
        color=style.TEXT,
        linewidth=1,
    )


def gap(stage: Stage) -> float:
    """Return the width in cells of what leads to a stage."""
    if stage.before in ("+", "="):
        return 0.9
    return (
        0.5
        + (1.9 if stage.layer else 0.27 * max(map(len, stage.before.split("\n"))))
        + 0.8 * stage.skip
    )


def draw_step(ax: Axes, stage: Stage, left: float, right: float, top: float) -> None:
    """Draw an arrow with its text, a sign, or an arrow through the box of a layer."""
    middle = top + SIDE / 2
    if stage.before in ("+", "="):
        write(ax, (left + right) / 2, middle, stage.before, weight="bold")
        return
    if stage.skip:
        write(ax, left + 0.6, middle, "…", weight="bold")
        left += 0.8
    lines = stage.before.split("\n")
    for line, text in enumerate(lines):
        write(ax, (left + right) / 2, middle - 0.5 - 0.72 * (len(lines) - 1 - line), text)
    if not stage.layer:
        arrow(ax, (left + 0.15, middle), (right - 0.15, middle))
        return
    center = (left + right) / 2
    arrow(ax, (left + 0.1, middle), (center - 0.6, middle))
    arrow(ax, (center + 0.6, middle), (right - 0.1, middle))
    box = {"boxstyle": "round,pad=0.1", "facecolor": style.MUTED, "edgecolor": style.TEXT}
    ax.add_patch(FancyBboxPatch((center - 0.45, top + 0.1), 0.9, SIDE - 0.2, **box))
    ax.text(
        center,
        middle,
        stage.layer,
        rotation=90,
        ha="center",
        va="center",
        fontsize=style.TEXT_SIZE,
        weight="bold",
    )


def draw_stage(
    ax: Axes, stage: Stage, place: tuple[float, float, float], limit: float, classes: Sequence[str]
) -> None:
    """Draw the numbers of one stage as a picture; place: left, top, width."""
    left, top, width = place
    data = stage.data.detach()
    if stage.kind == "logits":
        draw_logits(ax, data, place, classes)
    elif stage.kind in ("image", "patches"):
        pieces = data[None] if stage.kind == "image" else data
        n = round(len(pieces) ** 0.5)
        side = SIDE / (n + 0.25 * (n - 1))
        for i, piece in enumerate(pieces):
            x, y = left + 1.25 * side * (i % n), top + 1.25 * side * (i // n)
            put(ax, piece.permute(1, 2, 0).clamp(0, 1), (x, y, side, side))
            if n > 1:
                frame(ax, (x, y, side, side), style.PATCH, 1.5)
    else:
        table = data[:, None] if stage.kind == "token" else data
        put(ax, table, (left, top, width, SIDE), limit / stage.times)
        first, *others = FRAMES.get(stage.kind, (style.CLASS_TOKEN,))
        row = SIDE / len(table) if others else 0
        for color in others:
            frame(ax, (left, top + row, width, SIDE - row), color)
        frame(ax, (left, top, width, row or SIDE), first, 2.5)


def put(
    ax: Axes, data: Tensor, box: tuple[float, float, float, float], limit: float | None = None
) -> None:
    """Draw an image (H, W, C) or a table of numbers in a box: left, top, width, height."""
    left, top, width, height = box
    scale: dict[str, Any] = (
        {} if limit is None else {"cmap": style.SIGNED, "vmin": -limit, "vmax": limit}
    )
    if limit is None and data.shape[-1] == 1:
        data = data.expand(-1, -1, 3)
    view = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    ax.imshow(
        data,
        extent=(left, left + width, top + height, top),
        aspect="auto",
        interpolation="nearest",
        **scale,
    )
    ax.set(**view)


def draw_logits(
    ax: Axes, logits: Tensor, place: tuple[float, float, float], classes: Sequence[str]
) -> None:
    """Draw a bar for each logit from the line of zero, with its class and its number above it."""
    left, top, width = place
    step, zero = (SIDE - 0.5) / len(logits), left + width / 2
    unit = width / 2 / max(float(logits.abs().max()), 1e-9)
    for k, value in enumerate(logits.tolist()):
        y = top + step * k
        write(ax, left, y + 0.3 * step, classes[k] if classes else f"class {k}", ha="left")
        write(ax, left + width, y + 0.3 * step, f"{value:.2f}", ha="right")
        bar = (min(zero, zero + unit * value), y + 0.6 * step)
        ax.add_patch(Rectangle(bar, abs(unit * value), 0.3 * step, facecolor=style.SERIES[0]))
        ax.plot([zero, zero], [y + 0.52 * step, y + 0.98 * step], color=style.TEXT, linewidth=1)
    write(ax, zero, top + SIDE - 0.22, "0")


def draw_key(fig: Figure, ax: Axes, y: float, limit: float) -> None:
    """Draw what the frames and the colors of the tables mean."""
    for left, color, text in (
        (0.3, style.CLASS_TOKEN, "class token"),
        (4.1, style.PATCH, "patches"),
        (7.3, style.POSITION, "position embeddings"),
    ):
        frame(ax, (left, y - 0.3, 0.6, 0.6), color)
        write(ax, left + 0.9, y, text, ha="left")
    write(ax, 17.3, y, "numbers in tables", ha="right")
    rows = ax.get_ylim()[0]
    scale = ScalarMappable(Normalize(-limit, limit), style.SIGNED)
    where = fig.add_axes((17.7 / COLUMNS, 1 - (y + 0.1) / rows, 3.7 / COLUMNS, 0.4 / rows))
    bar = fig.colorbar(
        scale, cax=where, orientation="horizontal", extend="both", ticks=[-limit, 0, limit]
    )
    bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT, pad=1)


def draw_lines(
    lines: Mapping[str, tuple[Any, str, str]],
    ax: Axes,
    title: str | None = None,
    x: str | None = None,
    y: str | None = None,
) -> Axes:
    """Draw lines over their places 0, 1, 2, ..., with names and last numbers at their ends.

    The axis begins at 0 if nothing is below.

    lines: {name: (values, color, line style)}
    """
    for name, (values, color, dashes) in lines.items():
        ax.plot(values, dashes, color=color)
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(
            f"{values[-1]:.0f}, {name}",
            (len(values) - 1, values[-1]),
            color=color,
            fontsize=style.TEXT_SIZE,
            **place,
        )
    if min(min(values) for values, *_ in lines.values()) >= 0:
        ax.set_ylim(0)
    return style.style_axes(ax, title, x, y)


def draw_shares(
    shares: Mapping[str, Mapping[str, float]],
    colors: Mapping[str, str],
    ax: Axes | None = None,
    title: str | None = None,
    least: float = 0.03,
) -> Axes:
    """Draw a bar from 0 to 1 for each whole, cut into its parts.

    Parts above the least carry their share, the last one beside it.

    shares: {whole: {part: share}};  colors: {part: color}
    """
    ax = style.new_axes(ax, 9, 2.7)
    left = dict.fromkeys(shares, 0.0)
    for (part, color), hatch in zip(colors.items(), ("xx", "//", "", "", "..", "--"), strict=False):
        lengths = [parts[part] for parts in shares.values()]
        bar = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
        ax.barh(list(shares), lengths, left=list(left.values()), label=part, **bar)
        for whole, share in zip(shares, lengths, strict=True):
            if share > least and share < 0.06 and left[whole] + share > 0.999:
                ax.text(
                    1.01,
                    whole,
                    f"{share:.1%}",
                    va="center",
                    fontsize=style.TEXT_SIZE - 1,
                    color=style.TEXT,
                )
            elif share > least:
                style.write_on(ax, left[whole] + share / 2, whole, f"{share:.0%}", color)
            left[whole] += share
    legend = {"fontsize": style.TEXT_SIZE, "frameon": False, "ncols": 3, "loc": "upper center"}
    ax.legend(bbox_to_anchor=(0.5, -0.3), **legend)
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    return style.style_axes(ax, title, "share of all parameters")


def draw_differences(
    groups: Mapping[str, Mapping[str, float]], bound: float, title: str, least: float = 1e-7
) -> Figure:
    """Draw dots on a logarithmic scale: a row for each name, a panel for each group, a bound.

    groups: {title of a panel: {name: difference}}, with the same names; differences below the
            least are at the left edge
    """
    names = list(next(iter(groups.values())))
    fig, axes = style.new_figure(9, 0.34 * len(names) + 1.6, ncols=len(groups), sharey=True)
    for ax, (name, differences) in zip(axes, groups.items(), strict=True):
        for y, value in enumerate(differences.values()):
            seen = value > bound
            fill = style.SERIES[0] if seen else "white"
            ax.plot(
                max(value, least),
                y,
                "o" if seen else "s",
                color=style.SERIES[0],
                markerfacecolor=fill,
                markersize=8,
            )
        ax.axvline(bound, color=style.LINE, linestyle="--")
        ax.text(
            1.3 * bound,
            -0.9,
            f"bound $10^{{{math.log10(bound):.0f}}}$",
            fontsize=style.TEXT_SIZE - 1,
            va="center",
        )
        ax.set(
            xscale="log",
            xlim=(least / 3, 1),
            ylim=(len(names) - 0.5, -1.3),
            xticks=[least, 1e-5, 1e-3, 1e-1],
        )
        ax.set_xticks([], minor=True)
        ax.set_yticks(range(len(names)), names)
        ax.grid(axis="y", color=style.MUTED)
        ax.set_axisbelow(True)
        style.style_axes(ax, name)
        ax.set_xticklabels(
            [f"≤ $10^{{{math.log10(least):.0f}}}$", "$10^{-5}$", "$10^{-3}$", "$10^{-1}$"]
        )
    style.title_figure(fig, title, x=0.01)
    fig.supxlabel(
        "difference from the correct model, as a fraction of the largest logit",
        fontsize=style.TEXT_SIZE,
    )
    return fig
