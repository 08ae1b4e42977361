"""Notebook 03: self-attention step by step, with the numbers of every tensor in its cells."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
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
    short,
    write,
)
from vit_helpers.plots.figure import Picture

WEIGHTS = style.SERIES[2]


def read_example() -> tuple[list[str], Tensor, dict[str, Tensor]]:
    """Read the example of notebook 03, which its pictures and its widget share.

    returns: the names of T tokens, the tokens z, (T, D),
             and the matrices {"q": (D, d), "k": (D, d), "v": (D, d)}
    """
    path = Path(__file__).with_name("attention_example.json")
    example = json.loads(path.read_text(encoding="utf-8"))
    matrices = {role: torch.tensor(matrix).float() for role, matrix in example["W"].items()}
    return example["tokens"], torch.tensor(example["z"]).float(), matrices


def draw_projections(z: Tensor, maps: dict[str, Tensor], labels: Sequence[str]) -> Picture:
    """Draw tokens times three matrices: each number is a row of z times the column above it.

    One of them is framed and written out.

    z: (T, D);  maps: {"q": (D, d), "k": (D, d), "v": (D, d)};  labels: T names of tokens
    """
    T, D = z.shape
    d = maps["q"].shape[1]
    title = "Queries, keys and values are the tokens z times three matrices"
    fig, ax = new_canvas(D + T + 4.3, title)
    top = D + 3.1
    draw_table(ax, (2, top), z, style.PATCH, "tokens $z$", f"(T, D) = ({T}, {D})", labels)
    names = {"q": "queries", "k": "keys", "v": "values"}
    for i, (role, matrix) in enumerate(maps.items()):
        left = 7.6 + i * (d + 0.9)
        name = f"{names[role]} ${role} = z W_{role}$"
        draw_table(ax, (left, 2), matrix, style.LINE, f"$W_{role}$")
        draw_table(ax, (left, top), z @ matrix, ROLES[role], name, f"(T, d) = ({T}, {d})")
    arrow(ax, (6.2, top + T / 2), (7.4, top + T / 2))
    for box in ((2, top, D, 1), (7.6, 2, 1, D), (7.6, top, 1, 1)):
        frame(ax, box, style.TEXT, 3)
    first_product = product(z[0], maps["q"][:, 0])
    lines = (
        "each entry is a row of $z$",
        "times the column above it.",
        f"Framed: {labels[0]}'s row times",
        "the first column of $W_q$:",
        " ".join(first_product),
    )
    write_lines(ax, 0.2, 2.4, lines)
    name = labels[0]
    query, key = (listed(z[0] @ maps[role]) for role in "qk")
    return Picture(
        fig,
        "Tokens times three matrices give queries, keys and values, with all numbers in cells.",
        f"Tokens z, {T} rows of {D} numbers, times three {D} by {d} matrices: queries in blue, "
        f"keys in orange, values in pink. {name.capitalize()}'s query is {query} and its key is "
        f"{key}. Framed: {name}'s token, the first column of the matrix of the queries, and their "
        f"product {first_product[1].removeprefix('= ')}.",
    )


def draw_scores(q: Tensor, k: Tensor, labels: Sequence[str], row: int = 0) -> Picture:
    """Draw the scores: each query at its left times each key above it, then divided by √d.

    q, k: (T, d);  labels: T names of tokens;  row: the query whose row is framed
    """
    T, d = q.shape
    products = q @ k.T
    scores = products / d**0.5
    title = "Scores: the dot product of every query with every key, divided by √d"
    fig, ax = new_canvas(d + T + 5, title)
    top, width, shape = d + 3.8, 1.4, f"(T, T) = ({T}, {T})"
    above: dict[str, Any] = {"heads": labels, "width": width}
    draw_table(ax, (2, top), q, style.QUERY, "queries $q$", f"(T, d) = ({T}, {d})", labels)
    draw_table(ax, (7.4, 2.7), k.T, style.KEY, "keys as columns, $k^T$", **above)
    draw_table(ax, (7.4, top), products, name="$q k^T$", shape=shape, width=width)
    arrow(ax, (12, top + T / 2), (15.3, top + T / 2), f"divide by √{d}")
    draw_table(ax, (15.6, top), scores, name="scores", shape=shape, **above)
    for left, columns in ((2, d), (7.4, T * width), (15.6, T * width)):
        frame(ax, (left, top + row, columns, 1), style.QUERY, 3)
    lines = (f"{labels[row]}'s query and {labels[1]}'s key:", *product(q[row], k[1]))
    write_lines(ax, 12.6, 3.2, lines)
    return Picture(
        fig,
        "The dot products of queries and keys, divided by the root of their width, are the scores.",
        f"The queries times the keys as columns give a {T} by {T} table of dot products, which is "
        f"divided by {short(d**0.5)}. The row of {labels[row]}'s query is framed: "
        f"{listed(products[row])} and then {listed(scores[row])}.",
    )


def draw_softmax(scores: Tensor, labels: Sequence[str], row: int = 0) -> Picture:
    """Draw the softmax of each row: e to the scores, divided by the sum of the row.

    scores: (T, T);  labels: T names of tokens;  row: the query whose row is framed
    """
    T, width, top = len(scores), 1.4, 2.7
    powers = scores.exp()
    sums = powers.sum(dim=-1, keepdim=True)
    weights = powers / sums
    title = "Softmax: from scores to weights that are positive and sum to 1 in every row"
    fig, ax = new_canvas(T + 3.9, title)
    draw_table(ax, (2, top), scores, name="scores", labels=labels, heads=labels, width=width)
    arrow(ax, (6.4, top + T / 2), (7.5, top + T / 2))
    draw_table(ax, (7.7, top), powers, name="$e^{score}$", heads=labels, width=width)
    draw_table(ax, (12.3, top), sums, name="sum", width=width)
    arrow(ax, (13.9, top + T / 2), (16.1, top + T / 2), "divide")
    shape = f"A is (T, T) = ({T}, {T})"
    draw_weight_table(ax, (16.3, top), weights, shape, heads=labels, width=1.6)
    for left, columns in ((2, T * width), (7.7, T * width), (12.3, width), (16.3, 1.6 * T)):
        frame(ax, (left, top + row, columns, 1), style.QUERY, 3)
    return Picture(
        fig,
        "Scores, their exponentials, the sum of each row, and the weights that a softmax gives.",
        "The scores, their exponentials, the sum of each row, and the weights. "
        f"{labels[row].capitalize()}'s row: scores {listed(scores[row])}; "
        f"exponentials {listed(powers[row])}; sum {listed(sums[row])}; "
        f"weights {listed(weights[row], 3)}.",
    )


def draw_weighted_sum(weights: Tensor, v: Tensor, labels: Sequence[str], query: str) -> Picture:
    """Draw the output for one query: each value times its weight, added up along the arrows.

    weights: (T,) of one query;  v: (T, d);  labels: T names of tokens;  query: its token's name
    """
    T, d = v.shape
    width, scaled, output = 1.2, 5.2 + d, 8.1 + 2.2 * d
    title = f"The output for {query} is a weighted average of all values"
    fig, ax = new_canvas(1.7 * T + 2, title)
    middle = 2.1 + 0.85 * (T - 1)
    for i, (label, weight) in enumerate(zip(labels, weights.tolist(), strict=True)):
        top, value = 2.1 + 1.7 * i, v[i : i + 1]
        headings = ("values $v$", "values times weights") if i == 0 else ("", "")
        draw_table(ax, (2, top), value, style.VALUE, headings[0], labels=[label])
        arrow(ax, (2.2 + d, top + 0.5), (scaled - 0.2, top + 0.5), f"times {weight:.3f}")
        options: dict[str, Any] = {"width": width, "strength": weights[i].expand(1, d)}
        draw_table(ax, (scaled, top), weight * value, style.VALUE, headings[1], **options)
        arrow(ax, (scaled + d * width + 0.2, top + 0.5), (output - 0.2, middle + 0.5))
    write(ax, (scaled + d * width + output) / 2, 1.65, "add up", weight="bold")
    total, name = weights[None] @ v, f"output for {query}"
    draw_table(ax, (output, middle), total, style.VALUE, name, f"d = {d}", width=width)
    return Picture(
        fig,
        "Each value times its weight, and their sum, which is the output for one query.",
        f"The values of {', '.join(labels)}, multiplied by their weights, {listed(weights, 3)}; "
        f"the sum is the output for {query}: {listed(total[0])}.",
    )


def draw_all_steps(q: Tensor, k: Tensor, v: Tensor, labels: Sequence[str]) -> Figure:
    """Draw scores, weights and outputs below the queries, keys and values that lead to them.

    q, k, v: (T, d) each;  labels: T names of tokens
    """
    T, d = q.shape
    scores = q @ k.T / d**0.5
    weights = scores.softmax(dim=-1)
    title = "From queries, keys and values to outputs, with every number in its cell"
    fig, ax = new_canvas(2 * T + 6.2, title)
    top, below, width = 2.3, T + 5.6, 1.4
    lefts = (2, 8.7, 15.4)
    names = ("queries $q$", "keys $k$", "values $v$")
    for left, role, name, table in zip(lefts, "qkv", names, (q, k, v), strict=True):
        draw_table(ax, (left, top), table, ROLES[role], name, labels=labels)
    beside: dict[str, Any] = {"labels": labels, "width": width}
    name = f"scores $q k^T$ / √{d}"
    draw_table(ax, (2, below), scores, name=name, heads=labels, **beside)
    draw_weight_table(ax, (8.7, below), weights, heads=labels, **beside)
    draw_table(ax, (15.4, below), weights @ v, style.VALUE, "outputs $A v$", **beside)
    for left in (6.4, 13.1):
        arrow(ax, (left, below + T / 2), (left + 0.9, below + T / 2))
    middles, bottom = [left + d / 2 for left in lefts], top + T + 0.2
    arrow(ax, (middles[0], bottom), (middles[0], below - 1.8))
    arrow(ax, (middles[1], bottom), (middles[0] + 2.2, below - 1.6))
    arrow(ax, (middles[2], bottom), (middles[2], below - 0.9))
    return fig


def draw_multi_head(T: int, D: int, heads: int) -> Picture:
    """Draw the steps of multi-head attention from left to right, one row for each head.

    T: tokens;  D: their width, a multiple of `heads`
    """
    d, height = D // heads, T * UNIT + 1.6
    title = f"Each of {heads} heads has its own queries, keys and values with {d} components"
    fig, ax = new_canvas(heads * height + 3.2, title)
    middle = 1.8 + heads * height / 2
    columns = {"q": 6.0, "k": 7.8, "A": 10.4, "v": 12.6, "y": 15.2}
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(heads, T, T, generator=generator).mul(2).softmax(dim=-1)
    tokens, top = torch.ones(T, D), middle - T * UNIT / 2
    draw_blank(ax, (0.4, top), tokens, style.PATCH, "tokens", f"(T, D) = ({T}, {D})")
    for i in range(heads):
        top = 2.3 + i * height
        center = top + T * UNIT / 2
        ends = [columns[role] + d * UNIT / 2 for role in "qkv"]
        draw_bus(ax, (0.6 + D * UNIT, middle), ends, top + T * UNIT)
        for role, left in columns.items():
            draw_head_tensor(ax, (left, top), role, i, weights[i], d, is_last=i == heads - 1)
        arrow(ax, (9.2, center), (10.3, center))
        arrow(ax, (14.0, center), (15.1, center))
        arrow(ax, (16.6, center), (17.5, middle))
    below = f"({T}, {D})"
    draw_blank(ax, (17.7, middle - T * UNIT / 2), tokens, style.VALUE, "concatenated", below)
    return Picture(
        fig,
        "Multi-head attention from tokens through the attention of each head to concatenation.",
        f"Multi-head attention: tokens of {D} components lead to {heads} heads; each has its own "
        f"queries, keys and values of {d} components, its own {T} by {T} attention matrix and "
        f"output of {d} components; the outputs are concatenated.",
    )


def draw_head_tensor(
    ax: Axes,
    corner: tuple[float, float],
    role: str,
    head: int,
    weights: Tensor,
    d: int,
    is_last: bool,
) -> None:
    """Draw a tensor of one head in small cells; below those of the last head stands the shape.

    role: "q", "k", "v", "A" for the weights (T, T), or "y" for the output;  head: from 0
    """
    T, number = len(weights), head + 1
    left, top = corner
    color = WEIGHTS if role == "A" else ROLES.get(role, style.VALUE)
    name = f"$A_{number} v_{number}$" if role == "y" else f"${role}_{number}$"
    cells = weights if role == "A" else torch.ones(T, d)
    draw_blank(ax, corner, cells, color, name)
    if is_last:
        middle, bottom = left + cells.shape[1] * UNIT / 2, top + T * UNIT
        write(ax, middle, bottom + 1.1, "(T, T)" if role == "A" else "(T, d)")
        write(ax, middle, bottom + 1.85, f"({T}, {cells.shape[1]})")


def draw_weight_table(
    ax: Axes,
    corner: tuple[float, float],
    weights: Tensor,
    shape: str = "",
    labels: Sequence[str] = (),
    heads: Sequence[str] = (),
    width: float = 1.4,
) -> None:
    """Draw attention weights (T, T) with three digits, the larger ones in darker cells."""
    texts = (shape, labels, heads, width, 3)
    draw_table(ax, corner, weights, WEIGHTS, "weights $A$", *texts, strength=weights)


def write_lines(ax: Axes, left: float, top: float, lines: Sequence[str]) -> None:
    """Write lines of text below each other, the middle of the first one at `top`."""
    for i, line in enumerate(lines):
        write(ax, left, top + 0.8 * i, line, ha="left")


def listed(numbers: Tensor, digits: int = 2) -> str:
    """Write out a vector as the cells show it, for alt text.

    >>> listed(torch.tensor([2.0, 0.665]))
    '2, 0.67'
    """
    return ", ".join(short(number, digits) for number in numbers.tolist())
