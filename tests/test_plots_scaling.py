"""Figures of notebook 11: bars as long as their amounts, lines through them."""

import numpy as np
import pytest

from vit_helpers.plots.scaling import draw_growth, draw_holdings, draw_ratios, draw_stacks

ROWS = {"small": {"a": 1.0, "b": 3.0}, "large": {"a": 20.0, "b": 20.0}}


def test_pieces_lie_end_to_end():
    ax = draw_stacks(ROWS, "GiB", title="t")
    pieces = [(p.get_x(), p.get_width()) for bars in ax.containers for p in bars]
    assert pieces == [(0, 1), (0, 20), (1, 3), (20, 20)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["small", "large"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert {text.get_text() for text in ax.texts} == {"20", "3.0"}  # a piece without room for its number has none
    assert ax.get_xlabel() == "GiB" and ax.get_title(loc="left") == "t"


def test_more_pieces_than_colors_are_drawn():
    bars = draw_stacks({"one": {str(i): 1.0 for i in range(9)}}).patches
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == 9


def test_shares_make_a_hundred():
    ax = draw_stacks(ROWS, share=True)
    assert [p.get_width() for bars in ax.containers for p in bars] == pytest.approx([25, 50, 75, 50])
    assert ax.get_xlim() == (0, 100)


def test_lines_go_through_the_amounts():
    ax = draw_growth([1, 10, 100], {"a": [1, 2, 3], "b": [1, 10, 100]}, "tokens", "G", mark=5)
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1, 2, 3], [1, 10, 100]]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert list(ax.lines[2].get_xdata()) == [5, 5]


def test_ratios_stand_on_the_side_where_they_belong():
    ax = draw_ratios({"fast": (2, 1.5, 2.5), "same": (1, 0.9, 1.1), "slow": (0.1, 0.09, 0.2)}, "t")
    ranges, dots = ax.lines[:-1:2], ax.lines[1:-1:2]
    assert [list(line.get_xdata()) for line in ranges] == [[1.5, 2.5], [0.9, 1.1], [0.09, 0.2]]
    assert [(line.get_xdata()[0], line.get_marker()) for line in dots] == [(2, "o"), (1, "D"), (0.1, "s")]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fast", "same", "slow"]
    assert {text.get_text() for text in ax.texts} == {"2.00", "1.00", "0.10"}


def test_holdings_stand_side_by_side():
    whole, quarter = np.ones((4, 12), bool), np.tile(np.eye(4, dtype=bool), 3)
    axes = draw_holdings({"all": whole, "a part": quarter}, blocks=3)
    assert [ax.get_title(loc="left") for ax in axes] == ["all", "a part"]
    assert axes[1].images[0].get_array().sum() == 12
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["1", "2", "3"]
