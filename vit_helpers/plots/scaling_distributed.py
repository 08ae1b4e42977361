"""Notebook 11: what each process holds while gradients are averaged or a model is sharded."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from vit_helpers.plots import style
from vit_helpers.plots.encoder import ATTENTION


def draw_holdings(frames: Mapping[str, Any], blocks: int, title: str | None = None) -> Any:
    """Draw which parts of the weights each process holds, a panel for each moment.

    frames: {name: boolean (processes, blocks * parts)}; the parts of a block are neighbors
    """
    fig, axes = style.new_figure(9, 2.9, ncols=len(frames), sharey=True)
    style.title_figure(fig, title)
    for ax, (name, held) in zip(axes, frames.items(), strict=True):
        processes, parts = held.shape
        for (row, column), there in np.ndenumerate(np.asarray(held)):
            options = {
                "facecolor": ATTENTION if there else "white",
                "edgecolor": "white" if there else "#DDDDDD",
            }
            ax.add_patch(
                Rectangle(
                    (column * blocks / parts, row), blocks / parts, 1, linewidth=0.8, **options
                )
            )
        for x in range(blocks + 1):
            ax.axvline(x, color=style.TEXT, linewidth=1.5)
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
    fig.legend(
        handles=key, loc="outside lower center", ncols=2, frameon=False, fontsize=style.TEXT_SIZE
    )
    return axes


def draw_ring(
    states: Mapping[str, Any], totals: Sequence[float], title: str | None = None
) -> Figure:
    """Draw what each process holds after each turn of a ring all-reduce.

    Complete sums are colored, and what has changed since the state before is framed.

    states: {name: (processes, pieces) numbers}; totals: the sum of each piece over all processes
    """
    fig, axes = style.new_figure(9, 3.1, ncols=len(states), sharey=True)
    style.title_figure(fig, title)
    before = next(iter(states.values()))
    for ax, (name, state) in zip(axes, states.items(), strict=True):
        processes, pieces = np.shape(state)
        for (row, column), number in np.ndenumerate(np.asarray(state)):
            color = ATTENTION if number == totals[column] else "white"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=color, edgecolor=style.LINE))
            ink = style.ink_on(color)
            ax.text(
                column + 0.5,
                row + 0.5,
                f"{number:g}",
                ha="center",
                va="center",
                fontsize=style.TEXT_SIZE,
                color=ink,
            )
            if number != before[row][column]:
                left, right, top, bottom = column + 0.09, column + 0.91, row + 0.1, row + 0.9
                ax.plot(
                    [left, right, right, left, left],
                    [top, top, bottom, bottom, top],
                    color=ink,
                    linewidth=2,
                )
        before = state
        ax.set(xlim=(0, pieces), ylim=(processes, 0))
        ax.set_xticks([i + 0.5 for i in range(pieces)], range(pieces))
        ax.set_yticks([i + 0.5 for i in range(processes)], range(processes))
        style.style_axes(ax, name, "piece", "process" if ax is axes[0] else None)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    key = [Patch(facecolor=ATTENTION, label="complete sum")]
    key += [Patch(facecolor="white", edgecolor=style.TEXT, linewidth=2, label="has just arrived")]
    fig.legend(
        handles=key, loc="outside lower center", ncols=2, frameon=False, fontsize=style.TEXT_SIZE
    )
    return fig
