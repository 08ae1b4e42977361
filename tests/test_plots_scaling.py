"""Figures of notebook 11: bars as long as their amounts, lines through them, tables to scale."""

import numpy as np
import pytest

from vit_helpers.plots import encoder, scaling
from vit_helpers.plots.scaling import (
    draw_growth,
    draw_ratios,
    draw_roofline,
    draw_stacks,
    draw_training_step,
)
from vit_helpers.plots.scaling_distributed import draw_holdings, draw_ring

ROWS = {"small": {"a": 1.0, "b": 3.0}, "large": {"a": 20.0, "b": 20.0}}


def test_pieces_lie_end_to_end():
    ax = draw_stacks(ROWS, "GiB", title="t")
    pieces = [(p.get_x(), p.get_width()) for bars in ax.containers for p in bars]
    assert pieces == [(0, 1), (0, 20), (1, 3), (20, 20)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["small", "large"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    said = {text.get_text() for text in ax.texts}
    # the end has the number of a piece without room for it
    assert said == {"20.00", "3.00", " 1.00 + 3.00 = 4.0", " = 40.0"}
    assert ax.get_xlim()[1] > 40  # for the sum
    assert ax.get_xlabel() == "GiB" and ax.get_title(loc="left") == "t"


def test_more_pieces_than_colors_are_drawn():
    bars = draw_stacks({"one": {str(i): 1.0 for i in range(9)}}).patches
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == 9


def test_shares_make_a_hundred():
    ax = draw_stacks(ROWS, share=True)
    assert [p.get_width() for bars in ax.containers for p in bars] == pytest.approx(
        [25, 50, 75, 50]
    )
    assert ax.get_xlim() == (0, 100) and {text.get_text() for text in ax.texts} == {
        "25",
        "75",
        "50",
    }


def test_lines_go_through_the_amounts():
    ax = draw_growth([1, 10, 100], {"a": [1, 2, 3], "b": [1, 10, 100]}, "tokens", "G", mark=5)
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1, 2, 3], [1, 10, 100]]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert list(ax.lines[2].get_xdata()) == [5, 5] and "equal at\n5" in {
        text.get_text() for text in ax.texts
    }


def test_ratios_stand_on_the_side_where_they_belong():
    ax = draw_ratios({"fast": (2, 1.5, 2.5), "same": (1, 0.9, 1.1), "slow": (0.1, 0.09, 0.2)}, "t")
    ranges, dots = ax.lines[:-1:2], ax.lines[1:-1:2]
    assert [list(line.get_xdata()) for line in ranges] == [[1.5, 2.5], [0.9, 1.1], [0.09, 0.2]]
    assert [(line.get_xdata()[0], line.get_marker()) for line in dots] == [
        (2, "o"),
        (1, "D"),
        (0.1, "s"),
    ]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fast", "same", "slow"]
    assert {text.get_text() for text in ax.texts} == {"2.00", "1.00", "0.10"}
    low, high = ax.get_xlim()
    assert low < 0.09 * 0.8 and high > 2.5 * 1.2  # with room for the numbers


def test_parts_of_the_model_have_the_colors_of_notebook_04():
    assert (
        scaling.COLORS["scores, mixing"] == encoder.ATTENTION
        and scaling.COLORS["MLP"] == encoder.MLP
    )
    ax = draw_growth([1, 10], {"scores, mixing": [1, 2]}, "tokens")
    assert ax.lines[0].get_color() == encoder.ATTENTION


def test_holdings_have_a_key():
    whole, quarter = np.ones((4, 12), bool), np.tile(np.eye(4, dtype=bool), 3)
    axes = draw_holdings({"all": whole, "a part": quarter}, blocks=3, title="t")
    assert axes[0].figure.get_suptitle() == "t"
    assert [ax.get_title(loc="left") for ax in axes] == ["all", "a part"]
    held = [sum(patch.get_facecolor()[:3] != (1, 1, 1) for patch in ax.patches) for ax in axes]
    assert held == [48, 12]
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["1", "2", "3"]
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == [
        "weights held",
        "not held",
    ]


def test_memory_peaks_between_the_passes():
    need = {"weights": 1.0, "gradients": 1.0, "optimizer": 2.0, "activations": 10.0}
    lanes, memory = draw_training_step(need, blocks=3).axes
    assert [label.get_text() for label in lanes.get_yticklabels()] == [
        "data loader",
        "processor",
        "network",
    ]
    corners = [area.get_paths()[0].vertices for area in memory.collections]
    # weights, optimizer, activations; gradients come later
    assert max(vertices[:, 1].max() for vertices in corners) == 13
    assert {text.get_text() for text in memory.texts} >= {
        "activations, 10.00 GiB",
        "peak, 13.0 GiB",
    }
    # blocks forward, backward, AdamW
    assert len([patch for patch in lanes.patches if patch.get_y() == 1.1]) == 3 + 3 + 1


def test_the_roof_is_the_lower_of_two_limits():
    ax = draw_roofline({"sum": (0.1, 1e9), "product": (50, 9e10)}, bandwidth=1e10, peak=1e11)
    slope, level = (line.get_xydata() for line in ax.lines[:2])
    assert slope[1] == pytest.approx([10, 100]) and (level[:, 1] == 100).all()
    assert slope[0, 1] == pytest.approx(10 * slope[0, 0])
    assert [text.get_text() for text in ax.texts][:2] == ["sum", "product"]
    assert [text.get_text() for text in ax.texts][2:] == [
        "memory: 10 GB per second",
        "arithmetic: 100 GFLOPs per second",
    ]


def test_complete_sums_of_a_ring_are_colored():
    fig = draw_ring(
        {"start": [[1, 2], [10, 20]], "turn 1": [[1, 22], [11, 20]]}, totals=[11, 22], title="t"
    )
    colored = [[patch.get_facecolor()[:3] != (1, 1, 1) for patch in ax.patches] for ax in fig.axes]
    assert colored == [[False] * 4, [False, True, True, False]]
    assert [text.get_text() for text in fig.axes[1].texts] == ["1", "22", "11", "20"]
    assert fig.get_suptitle() == "t"
    assert [text.get_text() for text in fig.legends[0].get_texts()] == [
        "complete sum",
        "has just arrived",
    ]
