"""Notebook 05: one attention head with the numbers of all its tensors in their cells."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import (
    COLUMNS,
    ROLES,
    arrow,
    draw_table,
    frame,
    new_canvas,
    product,
    short,
    write,
)
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.vit import put


def draw_head(
    z: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    labels: Sequence[str],
    row: int = 0,
    patches: Tensor | None = None,
) -> Picture:
    """Draw one attention head with all its numbers, from tokens to outputs.

    z      : (T, D), normalized;  q, k, v: (T, d);  labels: T names of tokens
    row    : the query whose row is framed
    patches: (T - 1, C, P, P), from 0 to 1, drawn beside their tokens; the class token is in row 0
    """
    (T, D), d = z.shape, q.shape[1]
    width, top, low = 1.3, 3.4, T + 7.0
    title = (
        f"One head of a real block: D = {D} numbers in a token, d = {d} in a query, key or value"
    )
    fig, ax = new_canvas(2 * T + 9.5, title)
    first, shape = 0 if patches is None else 1, f"(T, D) = ({T}, {D})"
    draw_table(
        ax, (3.3, top + first), z[first:], style.PATCH, "", shape, labels[first:], width=width
    )
    draw_table(
        ax,
        (3.3, top),
        z[:first],
        style.CLASS_TOKEN,
        "normalized tokens",
        labels=labels[:first],
        width=width,
    )
    frame(ax, (3.3, top + row, D * width, 1), style.QUERY, 3)
    for i, patch in enumerate(() if patches is None else patches, start=1):
        put(ax, patch.permute(1, 2, 0).clamp(0, 1), (0.25, top + i + 0.05, 0.9, 0.9))
        frame(ax, (0.25, top + i + 0.05, 0.9, 0.9), style.PATCH, 1.5)
    corners = [5.4 + D * width + i * (d * width + 1.7) for i in range(3)]
    draw_forks(
        ax, (3.3 + D * width, top + T / 2), [left + d * width / 2 for left in corners], top - 0.85
    )
    for left, role, table in zip(corners, "qkv", (q, k, v), strict=True):
        name = {"q": "queries", "k": "keys", "v": "values"}[role]
        draw_table(
            ax,
            (left, top),
            table,
            ROLES[role],
            f"{name} ${role}$",
            f"(T, d) = ({T}, {d})",
            width=width,
        )
    frame(ax, (corners[0], top + row, d * width, 1), style.QUERY, 3)
    draw_weights(ax, (q @ k.T / d**0.5, v), labels, row, low, width)
    y, ends = top + T + 0.9, [left + d * width / 2 for left in corners]
    ax.plot([ends[0], ends[0]], [y, y + 0.4], color=style.TEXT, linewidth=1)
    ax.plot(
        [ends[1], ends[1], 2.2 + T * width / 2],
        [y, y + 0.4, y + 0.4],
        color=style.TEXT,
        linewidth=1,
    )
    arrow(ax, (2.2 + T * width / 2, y + 0.4), (2.2 + T * width / 2, low - 1.7))
    arrow(ax, (ends[2], y), (ends[2], low - 0.9))
    return Picture(
        fig,
        "One attention head with all its numbers: tokens, queries, keys, values, scores, weights, "
        "outputs.",
        f"{T} tokens of {D} numbers; queries, keys and values of {d} numbers each; a {T} by {T} "
        f"table of scores, one of weights, and the outputs. {labels[row].capitalize()}'s own row, "
        "its query, and its rows of scores, weights and outputs are framed.",
    )


def draw_forks(ax: Axes, start: tuple[float, float], ends: Sequence[float], y: float) -> None:
    """Draw a line from `start` up and along, with an arrow down to each of the ends at height y."""
    x, middle = start
    ax.plot(
        [x + 0.1, x + 0.6, x + 0.6, ends[-1]],
        [middle, middle, y - 0.9, y - 0.9],
        color=style.TEXT,
        linewidth=1,
    )
    for end in ends:
        arrow(ax, (end, y - 0.9), (end, y))
        write(ax, end - 0.2, y - 0.45, "project", ha="right")


def draw_weights(
    ax: Axes, head: tuple[Tensor, Tensor], labels: Sequence[str], row: int, low: float, width: float
) -> None:
    """Draw the second row of `draw_head`: scores, weights and outputs.

    One row is framed, and one output written out.

    head: scores (T, T) and values (T, d)
    low : the height at which the tables begin;  width: of a cell
    """
    scores, v = head
    (T, d), weights = v.shape, scores.softmax(dim=-1)
    shape, steps = f"(T, T) = ({T}, {T})", 2.2 + T * width + 2.2
    last = COLUMNS - 0.2 - d * width  # below the values
    draw_table(
        ax, (2.2, low), scores, style.LINE, "scores $q k^T$ / √d", shape, labels, labels, width
    )
    arrow(ax, (2.5 + T * width, low + T / 2), (steps - 0.2, low + T / 2), "softmax")
    draw_table(
        ax,
        (steps, low),
        weights,
        style.SERIES[2],
        "weights $A$",
        shape,
        (),
        labels,
        width,
        2,
        weights,
    )
    arrow(ax, (steps + T * width + 0.2, low + T / 2), (last - 0.2, low + T / 2), "$A v$")
    draw_table(
        ax, (last, low), weights @ v, style.VALUE, "output", f"(T, d) = ({T}, {d})", width=width
    )
    for left, columns in ((2.2, T), (steps, T), (last, d)):
        frame(ax, (left, low + row, columns * width, 1), style.QUERY, 3)
    terms, _ = product(weights[row], v[:, 0], 3)
    terms = re.sub(r"·(-[\d.]+)", r"·(\1)", terms)  # rounded, so their sum has one digit less
    write(
        ax,
        0.3,
        low + T + 1.85,
        f"first framed output: {terms} ≈ {short(float(weights[row] @ v[:, 0]))}",
        ha="left",
    )
