"""Figures of notebook 06: every image and number that is told is drawn, with its name."""

import pytest
import torch

from vit_helpers.plots.data import draw_dots, draw_rows


def test_rows_hold_images_of_several_sizes_with_names_and_texts():
    rows = {"digits": torch.rand(2, 1, 8, 8), "photos": [torch.rand(3, 4, 6)]}
    fig, axes = draw_rows(rows, {"digits": ["1", "2"]})
    assert [len(line) for line in axes.values()] == [2, 2]
    assert axes["digits"][1].get_title() == "2" and axes["photos"][0].get_title() == ""
    assert axes["photos"][0].images[0].get_array().shape == (4, 6, 3)
    assert not axes["photos"][1].images
    assert {text.get_text() for ax in fig.axes for text in ax.texts} == {"digits", "photos"}


def test_dots_show_each_seed_and_the_mean():
    ax = draw_dots({"a": [1.0, 3.0], "b": [2.0, 2.0]}, title="t", x="share")
    dots, mean, *_ = ax.lines
    assert list(dots.get_xdata()) == [1, 3] and list(dots.get_ydata()) == [0, 0]
    assert mean.get_xdata()[0] == pytest.approx(2)
    equal = ax.lines[2].get_ydata()
    assert equal[0] < 1 < equal[1] and sum(equal) == pytest.approx(2)  # the two stand above each other
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one seed", "mean"]
