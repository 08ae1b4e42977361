"""A forward pass drawn from its numbers, stage by stage; one attention head with the numbers in its cells; lines; shares."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.attention import COLUMNS, ROLES, arrow, draw_table, frame, new_canvas, product, write

SIDE = 3.4  # height of a stage's picture, in cells of the canvas
PICTURES = ("image", "patches")  # kinds that keep their width
FRAMES = {"tokens": (style.CLASS_TOKEN, style.PATCH), "positions": (style.POSITION,)}  # of the first row, of the others


class Stage(NamedTuple):
    """One stage of a forward pass, and what leads to it.

    letters: its shape in letters, "T, D"; data: its numbers, whose shape is written beneath
    kind   : "image" (C, H, W); "patches" (N, C, P, P) of a square image; "tokens" (T, D), whose row 0 is the class token;
             "positions" (T, D); "token" (D,), one token on end; "logits" (K,)
    before : what is written over the arrow that leads here, or "+" or "=" in place of an arrow
    layer  : the name of a layer that is drawn as a box on that arrow;  skip: dots before it, for layers left out
    """

    name: str
    letters: str
    data: Tensor
    kind: str = "tokens"
    before: str = ""
    layer: str = ""
    skip: bool = False
    width: float = SIDE


def draw_stages(rows: Sequence[Sequence[Stage]], title: str, limit: float, classes: Sequence[str] = ()) -> Figure:
    """A forward pass in rows of stages; all tables on one scale, from -limit to limit with white for 0.

    classes: the names of the logits
    """
    height = 3.1 + (SIDE + 2.9) * len(rows)
    fig, ax = new_canvas(height, title)
    for number, stages in enumerate(rows):
        top = 2.2 + (SIDE + 2.9) * number
        gaps = [gap(stage) if place or number else 0.2 for place, stage in enumerate(stages)]
        fixed = sum(stage.width for stage in stages if stage.kind in PICTURES)
        stretch = (COLUMNS - 0.3 - sum(gaps) - fixed) / (sum(stage.width for stage in stages) - fixed)
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
                write(ax, left + width / 2, top + SIDE + 0.6 + 0.72 * line, text, weight="normal" if line else "bold")
            left += width
    draw_key(fig, ax, height - 0.75, limit)
    return fig


def gap(stage: Stage) -> float:
    """The width in cells of what leads to a stage"""
    if stage.before in ("+", "="):
        return 0.9
    return 0.5 + (1.9 if stage.layer else 0.27 * max(map(len, stage.before.split("\n")))) + 0.8 * stage.skip


def draw_step(ax: Axes, stage: Stage, left: float, right: float, top: float) -> None:
    """An arrow with its text, a sign, or an arrow through the box of a layer"""
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
    ax.text(center, middle, stage.layer, rotation=90, ha="center", va="center", fontsize=style.TEXT_SIZE, weight="bold")


def draw_stage(ax: Axes, stage: Stage, place: tuple[float, float, float], limit: float, classes: Sequence[str]) -> None:
    """The numbers of one stage as a picture; place: left, top, width"""
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
        put(ax, table, (left, top, width, SIDE), limit)
        first, *others = FRAMES.get(stage.kind, (style.CLASS_TOKEN,))
        row = SIDE / len(table) if others else 0
        for color in others:
            frame(ax, (left, top + row, width, SIDE - row), color)
        frame(ax, (left, top, width, row or SIDE), first, 2.5)


def put(ax: Axes, data: Tensor, box: tuple[float, float, float, float], limit: float | None = None) -> None:
    """An image (H, W, C), or a table of numbers on a scale, in a box: left, top, width, height"""
    left, top, width, height = box
    scale: dict[str, Any] = {} if limit is None else {"cmap": style.SIGNED, "vmin": -limit, "vmax": limit}
    if limit is None and data.shape[-1] == 1:
        data = data.expand(-1, -1, 3)
    view = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    ax.imshow(data, extent=(left, left + width, top + height, top), aspect="auto", interpolation="nearest", **scale)
    ax.set(**view)


def draw_logits(ax: Axes, logits: Tensor, place: tuple[float, float, float], classes: Sequence[str]) -> None:
    """A bar for each logit from the line of zero, with its class and its number above"""
    left, top, width = place
    step, zero = SIDE / len(logits), left + width / 2
    unit = width / 2 / max(float(logits.abs().max()), 1e-9)
    for k, value in enumerate(logits.tolist()):
        y = top + step * k
        write(ax, left, y + 0.3 * step, classes[k] if classes else f"class {k}", ha="left")
        write(ax, left + width, y + 0.3 * step, f"{value:.2f}", ha="right")
        bar = (min(zero, zero + unit * value), y + 0.6 * step)
        ax.add_patch(Rectangle(bar, abs(unit * value), 0.3 * step, facecolor=style.SERIES[0]))
        ax.plot([zero, zero], [y + 0.52 * step, y + 0.98 * step], color=style.TEXT, linewidth=1)


def draw_key(fig: Figure, ax: Axes, y: float, limit: float) -> None:
    """What the frames and the colors of the tables mean"""
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
    bar = fig.colorbar(scale, cax=where, orientation="horizontal", extend="both", ticks=[-limit, 0, limit])
    bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT, pad=1)


def draw_head(z: Tensor, q: Tensor, k: Tensor, v: Tensor, labels: Sequence[str], row: int = 0) -> Figure:
    """One attention head with all its numbers: tokens, queries, keys, values; scores, weights, outputs.

    z: (T, D), normalized; q, k, v: (T, d); labels: T names of tokens; row: the query whose row is framed
    """
    (T, D), d = z.shape, q.shape[1]
    width, top, low = 1.3, 2.6, T + 5.6
    scores = q @ k.T / d**0.5
    weights = scores.softmax(dim=-1)
    fig, ax = new_canvas(
        2 * T + 8.2, f"One head of a real block: D = {D} numbers in a token, d = {d} in a query, key or value"
    )
    draw_table(ax, (2.2, top), z, style.PATCH, "normalized tokens", f"(T, D) = ({T}, {D})", labels, width=width)
    arrow(ax, (2.5 + D * width, top + T / 2), (4.3 + D * width, top + T / 2), "project")
    for i, (role, table) in enumerate({"q": q, "k": k, "v": v}.items()):
        name = {"q": "queries", "k": "keys", "v": "values"}[role]
        corner = (4.6 + D * width + i * (d * width + 1.7), top)
        draw_table(ax, corner, table, ROLES[role], f"{name} ${role}$", f"(T, d) = ({T}, {d})", width=width)
    shape = f"(T, T) = ({T}, {T})"
    steps = 2.2 + T * width + 2.2
    draw_table(ax, (2.2, low), scores, style.LINE, "scores $q k^T$ / √d", shape, labels, labels, width)
    arrow(ax, (2.5 + T * width, low + T / 2), (steps - 0.2, low + T / 2), "softmax")
    draw_table(ax, (steps, low), weights, style.SERIES[2], "weights $A$", shape, (), labels, width, 2, weights)
    last = steps + T * width + 2
    arrow(ax, (last - 1.8, low + T / 2), (last - 0.2, low + T / 2), "$A v$")
    draw_table(ax, (last, low), weights @ v, style.VALUE, "output", f"(T, d) = ({T}, {d})", width=width)
    for left, columns, color in ((2.2, T, style.QUERY), (steps, T, style.QUERY), (last, d, style.QUERY)):
        frame(ax, (left, low + row, columns * width, 1), color, 3)
    frame(ax, (4.6 + D * width, top + row, d * width, 1), style.QUERY, 3)
    said = re.sub(r"·(-[\d.]+)", r"·(\1)", " ".join(product(weights[row], v[:, 0])))
    write(ax, 0.3, 2 * T + 7.5, f"first number of the framed output: {said}", ha="left")
    return fig


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
    for (part, color), hatch in zip(colors.items(), ("xx", "//", "\\\\", "", "--", ".."), strict=False):
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
    return style.style_axes(ax, title, "share of all parameters")
