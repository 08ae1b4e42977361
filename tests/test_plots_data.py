"""Figures of notebook 06: every image and number that is told is drawn, with its name."""

import pytest
import torch
from matplotlib.colors import to_hex
from test_palette import contrast, pale

from vit_helpers.plots import style
from vit_helpers.plots.data import (
    draw_channels,
    draw_confusions,
    draw_dots,
    draw_hashes,
    draw_rows,
    draw_soft_labels,
)
from vit_helpers.plots.data_pipeline import draw_pipeline


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
    # the two stand above each other
    assert equal[0] < 1 < equal[1] and sum(equal) == pytest.approx(2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one seed", "mean"]


def test_dots_show_two_standard_errors_to_each_side_of_the_mean():
    ax = draw_dots({"a": [1.0, 3.0], "b": [2.0, 2.0]}, errors=[0.5, 0.25])
    spans = [bars.lines[2][0].get_segments()[0][:, 0].tolist() for bars in ax.containers]
    assert spans == [[1, 3], [1.5, 2.5]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "one seed",
        "mean",
        "± 2 standard\nerrors",
    ]


def test_channels_show_their_mean_and_one_standard_deviation():
    images = torch.rand(4, 3, 5, 6) * torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1)
    fig = draw_channels({"as loaded": images, "shifted": images - 1})
    assert len(fig.axes) == 6
    for c in range(3):
        mean, std = images[:, c].mean().item(), images[:, c].std().item()
        ax = fig.axes[2 * c]
        assert ax.texts[0].get_text() == f"mean {mean:.2f}, std {std:.2f}"
        assert ax.lines[0].get_xdata()[0] == pytest.approx(mean)
        band = ax.patches[0]
        assert (band.get_x(), band.get_width()) == (
            pytest.approx(mean - std),
            pytest.approx(2 * std),
        )


def test_hashes_frame_the_bits_that_differ():
    bits = torch.zeros(3, 4, 4, dtype=torch.bool)
    bits[1, 0, 2] = bits[2, 3] = True
    images = {name: torch.rand(3, 8, 8) for name in "abc"}
    fig = draw_hashes(images, torch.rand(3, 4, 4), bits)
    assert [ax.get_title() for ax in fig.axes[6:]] == ["64 bits", "distance 1", "distance 4"]
    # the first one is around the picture
    frames = [[patch.get_xy() for patch in ax.patches[1:]] for ax in fig.axes[6:]]
    assert frames == [[], [(1.5, -0.5)], [(-0.5, 2.5), (0.5, 2.5), (1.5, 2.5), (2.5, 2.5)]]


def test_confusion_matrices_have_one_scale_and_a_fraction_of_the_row_in_each_cell():
    tables = {"one": torch.tensor([[9, 1], [4, 0]]), "other": torch.tensor([[10, 0], [1, 3]])}
    fig = draw_confusions(tables, ["not 8", "8"])
    cells = [[text.get_text() for text in ax.texts] for ax in fig.axes]
    assert cells == [
        ["9\n90%", "1\n10%", "4\n100%", "0\n0%"],
        ["10\n100%", "0\n0%", "1\n25%", "3\n75%"],
    ]
    assert {ax.images[0].get_clim() for ax in fig.axes} == {(0, 1)} and not pale(fig)


def test_the_bar_of_a_soft_label_has_the_fractions_of_both_classes():
    images = {"image": torch.rand(3, 4, 4), "mixed": torch.rand(3, 4, 4)}
    fig = draw_soft_labels(images, torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["pagoda", "flower"])
    assert [ax.get_title() for ax in fig.axes[:2]] == ["image", "mixed"]
    for ax, first in zip(fig.axes[2:], (1.0, 0.25), strict=True):
        one, other, _ = ax.patches
        assert (one.get_width(), other.get_x(), other.get_width()) == (first, first, 1 - first)
        assert [text.get_text() for text in ax.texts] == [
            f"pagoda {first:.2f}",
            f"flower {1 - first:.2f}",
        ]


def test_the_pipeline_shows_its_stages_and_three_splits():
    photos = {"one": torch.rand(3, 427, 640), "two": torch.rand(3, 427, 640)}
    splits = [torch.rand(n, 1, 8, 8) for n in (1200, 20, 30)]
    fig = draw_pipeline(photos, splits)
    texts = [text.get_text() for text in fig.axes[0].texts]
    assert {"training: 1,200 images", "validation: 20 images", "test: 30 images", "two.jpg"} <= set(
        texts
    )
    assert min(contrast(text.get_color(), "white") for text in fig.axes[0].texts) > 4.5
    ends = [text.get_window_extent() for text in fig.axes[0].texts]
    assert all(
        box.x0 >= 0 and box.x1 <= fig.bbox.width and box.y0 >= 0 and box.y1 <= fig.bbox.height
        for box in ends
    )
    assert not {to_hex(patch.get_edgecolor()) for patch in fig.axes[0].patches} & {
        color.lower()
        for color in (
            style.CLASS_TOKEN,
            style.PATCH,
            style.POSITION,
            style.QUERY,
            style.KEY,
            style.VALUE,
        )
    }
