"""Figures of notebook 11: bars as long as their amounts, lines through them."""

import pytest

from vit_helpers.plots.scaling import draw_growth, draw_stacks

ROWS = {"small": {"a": 1.0, "b": 3.0}, "large": {"a": 20.0, "b": 20.0}}


def test_pieces_lie_end_to_end():
    ax = draw_stacks(ROWS, "GiB", title="t")
    pieces = [(p.get_x(), p.get_width()) for bars in ax.containers for p in bars]
    assert pieces == [(0, 1), (0, 20), (1, 3), (20, 20)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["small", "large"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert {text.get_text() for text in ax.texts} == {"20", "3.0"}  # a piece without room for its number has none
    assert ax.get_xlabel() == "GiB" and ax.get_title(loc="left") == "t"


def test_shares_make_a_hundred():
    ax = draw_stacks(ROWS, share=True)
    assert [p.get_width() for bars in ax.containers for p in bars] == pytest.approx([25, 50, 75, 50])
    assert ax.get_xlim() == (0, 100)


def test_lines_go_through_the_amounts():
    ax = draw_growth([1, 10, 100], {"a": [1, 2, 3], "b": [1, 10, 100]}, "tokens", "G", mark=5)
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1, 2, 3], [1, 10, 100]]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert list(ax.lines[2].get_xdata()) == [5, 5]
