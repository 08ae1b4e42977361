"""Figures of several processes in notebook 11: the ring, what each holds, and drift."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from figures import fits, overlaps
from matplotlib.colors import to_hex

from vit_helpers.plots import encoder
from vit_helpers.plots.scaling_distributed import (
    draw_drift,
    draw_holdings,
    draw_ring,
)


def texts(fig):
    return [text.get_text() for text in fig.findobj(plt.Text) if text.get_text()]


def ring_states():
    start = [[1, 2], [10, 20]]
    return [start, [[1, 22], [11, 20]], [[11, 22], [11, 22]]]


def test_complete_sums_of_a_ring_are_colored_and_arrows_lead_on():
    picture = draw_ring(ring_states(), totals=[11, 22])
    (ax,) = picture.figure.axes
    colored = [p for p in ax.patches if to_hex(p.get_facecolor()) == to_hex(encoder.ATTENTION)]
    assert len(colored) == 2 + 4
    arrows = [p for p in ax.patches if type(p).__name__ == "FancyArrowPatch"]
    assert len(arrows) == 2 * (2 + 1)  # one from each process, and the last one arrives at the top
    frames = [p for p in ax.patches if p.get_linewidth() == 2.5]
    assert len(frames) == 2 + 2  # what has just arrived
    assert fits(picture)


@pytest.mark.parametrize("processes", [3, 4, 5])
def test_a_ring_of_more_processes_goes_on_in_the_next_line(processes):
    pieces = 10 ** np.arange(processes)[:, None] * np.arange(1, processes + 1)
    states = [pieces.copy() for _ in range(2 * processes - 1)]
    picture = draw_ring(states, totals=pieces.sum(axis=0).tolist())
    names = [text for text in texts(picture.figure) if text == "process 0"]
    assert len(names) == {3: 1, 4: 3, 5: 5}[processes]
    assert not overlaps(picture) and fits(picture)


def test_drift_is_drawn_for_both():
    picture = draw_drift({"not averaged": [0.1, 0.5], "averaged": [0.0, 0.0]})
    (ax,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 0.5], [0, 0]]
    assert "not averaged: 0.5" in picture.alt and fits(picture)


def test_holdings_have_a_key():
    whole, quarter = np.ones((4, 12), bool), np.tile(np.eye(4, dtype=bool), 3)
    picture = draw_holdings({"all": whole, "a part": quarter}, blocks=3)
    axes = picture.figure.axes
    assert [ax.get_title(loc="left") for ax in axes] == ["all", "a part"]
    held = [sum(patch.get_facecolor()[:3] != (1, 1, 1) for patch in ax.patches) for ax in axes]
    assert held == [48, 12]
    key = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert key == ["weights held", "not held"] and fits(picture)
