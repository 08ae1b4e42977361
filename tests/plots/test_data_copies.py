"""Figures of copies and labels in notebook 06: matches, divisions, gains and seeds."""

import pytest
import torch

from tests.plots.test_palette import pale
from vit_helpers.plots.data_copies import (
    draw_confusions,
    draw_divisions,
    draw_dots,
    draw_gains,
    draw_hashes,
    draw_matches,
    draw_mixtures,
    draw_scattered,
)


def test_scattered_digits_have_a_frame_where_the_box_is():
    boxes = torch.tensor([[1, 2, 3, 4], [0, 0, 2, 2]])
    picture = draw_scattered(torch.rand(2, 1, 8, 8), torch.tensor([3, 5]), boxes)
    axes = picture.figure.axes
    assert [ax.get_title() for ax in axes] == ["label 3", "label 5"]
    frames = [ax.patches[1] for ax in axes]  # the first one is around the picture
    assert [(f.get_xy(), f.get_width(), f.get_height()) for f in frames] == [
        ((0.5, 1.5), 3, 4),
        ((-0.5, -0.5), 2, 2),
    ]


def test_hashes_frame_the_bits_that_differ():
    bits = torch.zeros(3, 4, 4, dtype=torch.bool)
    bits[1, 0, 2] = bits[2, 3] = True
    images = {name: torch.rand(3, 8, 8) for name in "abc"}
    picture = draw_hashes(images, torch.rand(3, 4, 4), bits)
    fig = picture.figure
    assert [ax.get_title() for ax in fig.axes[6:]] == ["16 bits", "1 differs", "4 differ"]
    # the first one is around the picture
    frames = [[patch.get_xy() for patch in ax.patches[1:]] for ax in fig.axes[6:]]
    assert frames == [[], [(1.5, -0.5)], [(-0.5, 2.5), (0.5, 2.5), (1.5, 2.5), (2.5, 2.5)]]
    assert fig.get_suptitle() == "2 of 2 images differ from the first in at most 10 bits"
    assert "b 1, c 4" in picture.alt


def test_matches_say_what_each_is_and_how_similar():
    picture = draw_matches(
        torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4), ["cropped", "new"], [1, 9], [0.98, 0.9]
    )
    titles = [ax.get_title() for ax in picture.figure.axes]
    assert titles == ["cropped", "new", "1 bit,\ncorr. 0.98", "9 bits,\ncorr. 0.90"]
    assert picture.figure.get_suptitle() == "1 of the 2 most similar pairs are copies"


def test_confusion_matrices_have_one_scale_and_a_fraction_of_the_row_in_each_cell():
    tables = {"one": torch.tensor([[9, 1], [4, 0]]), "other": torch.tensor([[10, 0], [1, 3]])}
    fig = draw_confusions(tables, ["not 8", "8"]).figure
    cells = [[text.get_text() for text in ax.texts] for ax in fig.axes]
    assert cells == [
        ["9\n90%", "1\n10%", "4\n100%", "0\n0%"],
        ["10\n100%", "0\n0%", "1\n25%", "3\n75%"],
    ]
    assert {ax.images[0].get_clim() for ax in fig.axes} == {(0, 1)} and not pale(fig)


def test_gains_say_how_many_help_and_how_many_harm():
    gains = {
        name: torch.tensor([x - 0.01, x + 0.01])
        for name, x in zip("abc", (0.1, 0.0, -0.1), strict=True)
    }
    picture = draw_gains(gains, [0.02, 0.02, 0.02])
    (ax,) = picture.figure.axes
    assert ax.get_title(loc="left") == "Two errors or more above 0: 1 of 3, below: 1"
    assert "a +0.100, b +0.000, c -0.100" in picture.alt


def test_divisions_are_compared_with_a_line_at_the_mean_of_the_true_ones():
    accuracies = {"copied": torch.tensor([0.97, 0.99]), "unused": torch.tensor([0.95, 0.97])}
    picture = draw_divisions(accuracies, "unused")
    (ax,) = picture.figure.axes
    assert ax.lines[-1].get_xdata()[0] == pytest.approx(0.96)
    assert "copied 0.980, unused 0.960" in picture.alt


def test_the_bar_of_a_soft_label_has_the_fractions_of_both_classes():
    images = {"image": torch.rand(3, 4, 4), "mixed": torch.rand(3, 4, 4)}
    labels = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    fig = draw_mixtures(images, labels, ["pagoda", "flower"]).figure
    assert [ax.get_title() for ax in fig.axes[:2]] == ["image", "mixed"]
    for ax, first in zip(fig.axes[2:], (1.0, 0.25), strict=True):
        one, other, _ = ax.patches
        assert (one.get_width(), other.get_x(), other.get_width()) == (first, first, 1 - first)
        assert [text.get_text() for text in ax.texts] == [
            f"pagoda {first:.2f}",
            f"flower {1 - first:.2f}",
        ]


def test_dots_show_each_seed_and_the_mean():
    ax = draw_dots({"a": [1.0, 3.0], "b": [2.0, 2.0]}, title="t", x="share")
    dots, mean, *_ = ax.lines
    assert list(dots.get_xdata()) == [1, 3] and list(dots.get_ydata()) == [0, 0]
    assert mean.get_xdata()[0] == pytest.approx(2)
    equal = ax.lines[2].get_ydata()
    # the two stand above each other
    assert equal[0] < 1 < equal[1] and sum(equal) == pytest.approx(2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_dots_show_two_standard_errors_to_each_side_of_the_mean():
    ax = draw_dots({"a": [1.0, 3.0], "b": [2.0, 2.0]}, errors=[0.5, 0.25])
    spans = [bars.lines[2][0].get_segments()[0][:, 0].tolist() for bars in ax.containers]
    assert spans == [[1, 3], [1.5, 2.5]]
