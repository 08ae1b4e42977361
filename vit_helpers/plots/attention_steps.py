"""Notebook 03: self-attention step by step, with the numbers of every tensor in its cells."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import (
    ROLES,
    UNIT,
    arrow,
    draw_blank,
    draw_bus,
    draw_table,
    frame,
    new_canvas,
    product,
    write,
)


def read_example() -> tuple[list[str], Tensor, dict[str, Tensor]]:
    """The example of notebook 03, which its pictures and its widget share.

    returns: the names of T tokens, the tokens z, (T, D), and the matrices {"q": (D, d), "k": (D, d), "v": (D, d)}
    """
    example = json.loads(
        Path(__file__).with_name("attention_example.json").read_text(encoding="utf-8")
    )
    matrices = {role: torch.tensor(matrix).float() for role, matrix in example["W"].items()}
    return example["tokens"], torch.tensor(example["z"]).float(), matrices


def draw_projections(z: Tensor, maps: dict[str, Tensor], labels: Sequence[str]) -> Figure:
    """Tokens times three matrices: each number is a row of z times the column above it, and one of them is framed.

    z: (T, D); maps: {"q": (D, d), "k": (D, d), "v": (D, d)}; labels: T names of tokens
    """
    (T, D), d = z.shape, next(iter(maps.values())).shape[1]
    fig, ax = new_canvas(
        D + T + 4.3, "Steps 1 and 2: queries, keys and values are the tokens z times three matrices"
    )
    top = D + 3.1
    draw_table(ax, (2, top), z, style.PATCH, "tokens $z$", f"(T, D) = ({T}, {D})", labels)
    for i, (role, matrix) in enumerate(maps.items()):
        left = 7.6 + i * (d + 0.9)
        name = {"q": "queries", "k": "keys", "v": "values"}[role]
        draw_table(ax, (left, 2), matrix, style.LINE, f"$W_{role}$")
        draw_table(
            ax,
            (left, top),
            z @ matrix,
            ROLES[role],
            f"{name} ${role} = z W_{role}$",
            f"(T, d) = ({T}, {d})",
        )
    arrow(ax, (6.2, top + T / 2), (7.4, top + T / 2))
    for box in ((2, top, D, 1), (7.6, 2, 1, D), (7.6, top, 1, 1)):
        frame(ax, box, style.TEXT, 3)
    said = [
        "each entry is a row of $z$",
        "times the column above it.",
        f"Framed: {labels[0]}'s row times",
    ]
    for line, text in enumerate(
        (*said, "the first column of $W_q$:", " ".join(product(z[0], maps["q"][:, 0])))
    ):
        write(ax, 0.2, 2.4 + 0.8 * line, text, ha="left")
    return fig


def draw_scores(q: Tensor, k: Tensor, labels: Sequence[str], row: int = 0) -> Figure:
    """The table of scores: each query at its left times each key above it, then divided by √d.

    q, k: (T, d); row: the query whose row is framed
    """
    T, d = q.shape
    fig, ax = new_canvas(
        d + T + 5, "Step 3: scores, the dot product of every query with every key, divided by √d"
    )
    top, width = d + 3.8, 1.4
    draw_table(ax, (2, top), q, style.QUERY, "queries $q$", f"(T, d) = ({T}, {d})", labels)
    draw_table(ax, (7.4, 2.7), k.T, style.KEY, "keys as columns, $k^T$", heads=labels, width=width)
    draw_table(ax, (7.4, top), q @ k.T, name="$q k^T$", shape=f"(T, T) = ({T}, {T})", width=width)
    arrow(ax, (12, top + T / 2), (15.3, top + T / 2), f"divide by √{d}")
    draw_table(
        ax,
        (15.6, top),
        q @ k.T / d**0.5,
        name="scores",
        shape=f"(T, T) = ({T}, {T})",
        heads=labels,
        width=width,
    )
    for left, columns in ((2, d), (7.4, T * width), (15.6, T * width)):
        frame(ax, (left, top + row, columns, 1), style.QUERY, 3)
    said = (f"{labels[row]}'s query and {labels[1]}'s key:", *product(q[row], k[1]))
    for line, text in enumerate(said):
        write(ax, 12.6, 3.2 + 0.8 * line, text, ha="left")
    return fig


def draw_softmax(scores: Tensor, labels: Sequence[str], row: int = 0) -> Figure:
    """The softmax of each row: e to the scores, divided by the sum of the row.  scores: (T, T)"""
    T, width = len(scores), 1.4
    powers = scores.exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    fig, ax = new_canvas(
        T + 3.9,
        "Step 4: softmax, from scores to weights that are positive and sum to 1 in every row",
    )
    top = 2.7
    draw_table(ax, (2, top), scores, name="scores", labels=labels, heads=labels, width=width)
    arrow(ax, (6.4, top + T / 2), (7.5, top + T / 2))
    draw_table(ax, (7.7, top), powers, name="$e^{score}$", heads=labels, width=width)
    draw_table(ax, (12.3, top), powers.sum(dim=-1, keepdim=True), name="sum", width=width)
    arrow(ax, (13.9, top + T / 2), (16.1, top + T / 2), "divide")
    shape = f"A is (T, T) = ({T}, {T})"
    draw_table(
        ax, (16.3, top), weights, style.SERIES[2], "weights $A$", shape, (), labels, 1.6, 3, weights
    )
    for left, columns in ((2, T * width), (7.7, T * width), (12.3, width), (16.3, 1.6 * T)):
        frame(ax, (left, top + row, columns, 1), style.QUERY, 3)
    return fig


def draw_weighted_sum(weights: Tensor, v: Tensor, labels: Sequence[str], query: str) -> Figure:
    """The output for one query: each value times its weight, added up along the arrows.

    weights: (T,) of one query; v: (T, d); query: the name of its token
    """
    T, d = v.shape
    width, scaled, output = 1.2, 5.2 + d, 8.1 + 2.2 * d
    fig, ax = new_canvas(
        1.7 * T + 2, f"Step 5: the output for {query} is a weighted average of all values"
    )
    for i, (label, weight) in enumerate(zip(labels, weights.tolist(), strict=True)):
        top = 2.1 + 1.7 * i
        draw_table(ax, (2, top), v[i : i + 1], style.VALUE, "values $v$" * (i == 0), labels=[label])
        arrow(ax, (2.2 + d, top + 0.5), (scaled - 0.2, top + 0.5), f"times {weight:.3f}")
        strength = weights[i].expand(1, d)
        name = "values times weights" * (i == 0)
        draw_table(
            ax,
            (scaled, top),
            weight * v[i : i + 1],
            style.VALUE,
            name,
            width=width,
            strength=strength,
        )
        arrow(ax, (scaled + d * width + 0.2, top + 0.5), (output - 0.2, 2.6 + 0.85 * (T - 1)))
    write(ax, (scaled + d * width + output) / 2, 1.65, "add up", weight="bold")
    top = 2.1 + 0.85 * (T - 1)
    draw_table(
        ax,
        (output, top),
        weights[None] @ v,
        style.VALUE,
        f"output for {query}",
        f"d = {d}",
        width=width,
    )
    return fig


def draw_all_steps(q: Tensor, k: Tensor, v: Tensor, labels: Sequence[str]) -> Figure:
    """Steps 3 to 5 in one figure: scores, weights and outputs below the queries, keys and values that lead to them.

    q, k, v: (T, d) each; labels: T names of tokens
    """
    T, d = q.shape
    scores = q @ k.T / d**0.5
    weights = scores.softmax(dim=-1)
    fig, ax = new_canvas(
        2 * T + 6.2, "From queries, keys and values to outputs, with every number in its cell"
    )
    top, below, wide = 2.3, T + 5.6, 1.4
    for left, role, table in zip(
        (2, 8.7, 15.4), ("queries $q$", "keys $k$", "values $v$"), (q, k, v), strict=True
    ):
        draw_table(ax, (left, top), table, ROLES[role[-2]], role, labels=labels)
    draw_table(
        ax,
        (2, below),
        scores,
        name=f"scores $q k^T$ / √{d}",
        labels=labels,
        heads=labels,
        width=wide,
    )
    draw_table(
        ax,
        (8.7, below),
        weights,
        style.SERIES[2],
        "weights $A$",
        "",
        labels,
        labels,
        wide,
        3,
        weights,
    )
    draw_table(
        ax, (15.4, below), weights @ v, style.VALUE, "outputs $A v$", labels=labels, width=wide
    )
    for left in (6.4, 13.1):
        arrow(ax, (left, below + T / 2), (left + 0.9, below + T / 2))
    middles, bottom = [left + d / 2 for left in (2, 8.7, 15.4)], top + T + 0.2
    arrow(ax, (middles[0], bottom), (middles[0], below - 1.8))
    arrow(ax, (middles[1], bottom), (middles[0] + 2.2, below - 1.6))
    arrow(ax, (middles[2], bottom), (middles[2], below - 0.9))
    return fig


def draw_multi_head(T: int, D: int, heads: int) -> Figure:
    """The steps of multi-head attention from left to right, one row for each head, with shapes below the last row.

    T: tokens; D: their width, a multiple of `heads`
    """
    d, height = D // heads, T * UNIT + 1.6
    title = f"Each of {heads} heads has its own queries, keys and values with {d} components"
    fig, ax = new_canvas(heads * height + 3.2, title)
    middle = 1.8 + heads * height / 2
    columns = {"q": 6.0, "k": 7.8, "A": 10.4, "v": 12.6, "y": 15.2}
    weights = (
        torch.randn(heads, T, T, generator=torch.Generator().manual_seed(0)).mul(2).softmax(dim=-1)
    )
    draw_blank(
        ax,
        (0.4, middle - T * UNIT / 2),
        torch.ones(T, D),
        style.PATCH,
        "tokens",
        f"(T, D) = ({T}, {D})",
    )
    for i in range(heads):
        top, center = 2.3 + i * height, 2.3 + i * height + T * UNIT / 2
        draw_bus(
            ax,
            (0.6 + D * UNIT, middle),
            [columns[role] + d * UNIT / 2 for role in "qkv"],
            top + T * UNIT,
        )
        for role, left in columns.items():
            cells, color = (
                (weights[i], style.SERIES[2])
                if role == "A"
                else (torch.ones(T, d), ROLES.get(role, style.VALUE))
            )
            draw_blank(
                ax,
                (left, top),
                cells,
                color,
                f"${role}_{i + 1}$" if role != "y" else f"$A_{i + 1} v_{i + 1}$",
            )
            if i == heads - 1:
                write(
                    ax,
                    left + len(cells[0]) * UNIT / 2,
                    top + T * UNIT + 1.1,
                    "(T, T)" if role == "A" else "(T, d)",
                )
                write(
                    ax,
                    left + len(cells[0]) * UNIT / 2,
                    top + T * UNIT + 1.85,
                    f"({T}, {len(cells[0])})",
                )
        arrow(ax, (9.2, center), (10.3, center))
        arrow(ax, (14.0, center), (15.1, center))
        arrow(ax, (16.6, center), (17.5, middle))
    draw_blank(
        ax,
        (17.7, middle - T * UNIT / 2),
        torch.ones(T, D),
        style.VALUE,
        "concatenated",
        f"({T}, {D}), then $U_{{msa}}$",
    )
    return fig
