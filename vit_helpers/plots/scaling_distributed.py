"""Notebook 11: a ring that adds up gradients, and what each process holds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, fill_cell, frame, new_canvas, write
from vit_helpers.plots.encoder import ATTENTION
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.scaling import stack_sums

PITCH = 1.75  # from one row of cells to the next, so that arrows have room between them


def draw_ring(states: Sequence[Any], totals: Sequence[float]) -> Picture:
    """Draw which pieces processes hold in each turn of a ring, and what they send next.

    states: (processes, pieces) numbers, before the first turn and after each
    totals: of each piece, so that complete sums can be colored
    """
    n, tables = len(totals), [np.asarray(state) for state in states]
    side = max(1.0, 0.17 + 0.28 * len(f"{max(totals):g}"))  # of a cell
    in_line = min(len(states), max(1, int(19.7 / (side * n + 0.9))))
    height, lines = PITCH * n + 2.2, -(-len(states) // in_line)
    title = "Each process sends one piece a turn, always downwards"
    fig, ax = new_canvas(1.4 + height * lines, title)
    for turn, table in enumerate(tables):
        left, top = 2.6 + turn % in_line * 19.7 / in_line, 2.9 + turn // in_line * height
        kind = "start" if not turn else f"turn {turn}: {'add' if turn < n else 'replace'}"
        write(ax, left + side * n / 2, top - 1.15, kind)
        before = tables[turn - 1] if turn else table
        for (row, piece), number in np.ndenumerate(table):
            corner, done = (left + side * piece, top + PITCH * row), number == totals[piece]
            ground = ATTENTION if done else "white"
            fill_cell(ax, corner, (side, 1), ground)
            look = {"color": style.ink_on(ground), "bbox": {"fc": ground, "ec": "none", "pad": 0}}
            write(ax, corner[0] + side / 2, corner[1] + 0.5, f"{number:g}", **look)
            frame(ax, (*corner, side, 1), style.LINE, 0.8)
            if number != before[row, piece]:
                inner = (corner[0] + 0.07, corner[1] + 0.07, side - 0.14, 0.86)
                frame(ax, inner, style.ink_on(ground), 2.5)
        if turn < len(tables) - 1:
            send_down(ax, (left, top), [(process - turn) % n for process in range(n)], side)
        if turn % in_line == 0:
            for process in range(n):
                write(ax, 2.4, top + PITCH * process + 0.5, f"process {process}", ha="right")
    return Picture(
        fig,
        "The pieces that each process holds in every turn of a ring, with arrows for what is sent.",
        f"{len(tables)} tables of {n} processes by {n} pieces, with arrows from row to row. After "
        f"{n - 1} turns each process has one complete sum, in color, after {len(tables) - 1} all.",
    )


def send_down(ax: Axes, corner: tuple[float, float], pieces: Sequence[int], side: float) -> None:
    """Draw an arrow from each process to the next one; the last one's arrives at the first.

    corner: left and top of the table;  pieces: that each process sends;  side: of a cell
    """
    left, top = corner
    for process, piece in enumerate(pieces):
        x, y = left + side * (piece + 0.5), top + PITCH * process + 1
        arrow(ax, (x, y + 0.05), (x, y + PITCH - 1.05))
        if process == len(pieces) - 1:
            arrow(ax, (x, top - PITCH + 1.05), (x, top - 0.05))


def draw_drift(distances: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far the weights of two processes are apart after each step.

    distances: {"averaged" or "not averaged": after each step}
    """
    fig, ax = style.new_figure(9, 2.7)
    ends = []
    for (name, apart), line in zip(distances.items(), ("-", "--"), strict=True):
        steps = range(1, len(apart) + 1)
        ax.plot(steps, apart, line, color=style.TEXT, linewidth=2.5)
        text = {"va": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
        ax.text(len(apart) + 0.3, apart[-1], name, **text)
        ends.append(f"{name}: {apart[-1]:.1f}")
    ax.set_xlim(0.5, 1.22 * len(apart))
    ax.set_xticks(range(5, len(apart) + 1, 5))
    title = "Without averaging, the processes drift apart"
    style.style_axes(ax, title, "step", "distance of the weights")
    return Picture(
        fig,
        "The distance between the weights of two processes after each step.",
        f"Lines over {len(apart)} steps. Distances at the end: {'; '.join(ends)}.",
    )


def draw_holdings(frames: Mapping[str, Any], blocks: int) -> Picture:
    """Draw which parts of the weights each process holds, a panel for each moment.

    frames: {name: boolean (processes, blocks * parts)}; the parts of a block are neighbors
    """
    fig, axes = style.new_figure(9, 2.9, ncols=len(frames), sharey=True)
    style.title_figure(fig, "Sharded, a process holds a whole block only while it uses it")
    for ax, (name, held) in zip(axes, frames.items(), strict=True):
        processes, parts = held.shape
        for (row, column), there in np.ndenumerate(np.asarray(held)):
            width = blocks / parts
            look = {"edgecolor": "white" if there else "#DDDDDD", "linewidth": 0.8}
            color = ATTENTION if there else "white"
            ax.add_patch(Rectangle((column * width, row), width, 1, facecolor=color, **look))
        for x in range(blocks + 1):
            ax.axvline(x, color=style.TEXT, linewidth=1)
        ax.set(xlim=(0, blocks), ylim=(processes, 0))
        ax.set_xticks([x + 0.5 for x in range(blocks)], range(1, blocks + 1))
        ax.set_yticks([y + 0.5 for y in range(processes)], range(processes))
        style.style_axes(ax, name, "block", "process" if ax is axes[0] else None)
        ax.tick_params(length=0)
        ax.spines[["left", "bottom"]].set_visible(False)
    key = [
        Patch(facecolor=ATTENTION, label="weights held"),
        Patch(facecolor="white", edgecolor="#AAAAAA", label="not held"),
    ]
    place = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    fig.legend(handles=key, fontsize=style.TEXT_SIZE, **place)
    return Picture(
        fig,
        "The weights that each process holds: all of them, its own part, and a block in use.",
        f"{len(frames)} panels of {processes} processes by {blocks} blocks. {'; '.join(frames)}: "
        "in the first, all is held everywhere, in the second a part of each block, in the third "
        "also the whole of one block.",
    )


def draw_sharded_memory(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw what a GPU needs for training, a bar for each number of GPUs.

    rows: {name: {"weights", "gradients", "optimizer", "activations"} in GiB}
    """
    fig, ax = style.new_figure(9, 1.5 + 0.5 * len(rows))
    digits = 0 if max(sum(parts.values()) for parts in rows.values()) >= 100 else 1
    title = "Sharding divides all but the activations"
    told = stack_sums(ax, rows, digits, title, "GiB on each GPU")
    return Picture(
        fig,
        "What each GPU has to hold for a training that is sharded over several GPUs.",
        f"Stacked bars, GiB on each GPU: {told}. The activations are the same in all of them.",
    )
