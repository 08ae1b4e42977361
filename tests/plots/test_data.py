"""Figures of notebook 06: every image and number that is told is drawn, with its name."""

from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex

from tests.plots.test_palette import pale
from vit_helpers.plots import style
from vit_helpers.plots.data import (
    draw_augmented,
    draw_batches,
    draw_channels,
    draw_folds,
    draw_hands,
    draw_labels,
    draw_question,
    draw_reports,
    draw_rows,
)


def split_of(images, labels):
    return SimpleNamespace(images=images, labels=torch.tensor(labels))


def texts_of(ax):
    return [text.get_text() for text in ax.texts]


# The core page


def test_the_question_shows_new_images_above_what_is_looked_up_for_them():
    known = torch.rand(3, 1, 4, 4)
    new = (known[[2, 0]] + 0.01).clamp(0, 1)
    data = SimpleNamespace(train=split_of(known, [5, 6, 7]), validation=split_of(new, [7, 9]))
    picture = draw_question(data, rows=(0, 1))
    axes = picture.figure.axes
    assert [ax.get_title() for ax in axes] == ["", "", "so it is a 7", "so it is a 5"]
    shown = torch.tensor(axes[2].images[0].get_array().data)
    assert torch.equal(shown, 1 - known[2, 0])
    assert picture.figure.get_suptitle() == "1 of 2 answers are right, and all are looked up"
    assert "classes 7, 5" in picture.alt


def test_hands_show_four_of_each_class_from_each_sheet():
    labels, sheet = torch.tensor([1, 7]).repeat(12), torch.arange(3).repeat_interleave(8)
    images = torch.linspace(0, 1, 24).view(24, 1, 1, 1).expand(24, 1, 2, 2)
    picture = draw_hands(split_of(images, labels.tolist()), sheet, sheets=(0, 2))
    axes = picture.figure.axes
    values = [round(24 - float(ax.images[0].get_array()[0, 0]) * 23, 3) - 1 for ax in axes]
    assert values == [0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23]
    assert [text for ax in axes for text in texts_of(ax)] == ["sheet 0", "sheet 2"]
    title = "Within a sheet, most 1s look alike, and so do most 7s"
    assert picture.figure.get_suptitle() == title


FOLDS = {
    "random": {"images": (0.99, 0.985, 0.995), "sheets": (0.99, 0.975, 1.0)},
    "consecutive": {"images": (0.97, 0.965, 0.98), "sheets": (0.97, 0.96, 0.985)},
    "difference": {"images": (0.02, 0.01, 0.03), "sheets": (0.02, 0.005, 0.035)},
}


def test_folds_show_each_interval_with_its_mean():
    picture = draw_folds(FOLDS)
    left, right = picture.figure.axes
    assert texts_of(left) == ["0.990", "0.990", "0.970", "0.970"]
    assert texts_of(right) == ["0.020", "0.020"]
    spans = [tuple(line.get_xdata()) for line in left.lines[::2]]
    assert spans == [(0.985, 0.995), (0.975, 1.0), (0.965, 0.98), (0.96, 0.985)]
    assert left.get_title(loc="left") == "Sheets counted: intervals overlap"
    assert right.get_title(loc="left") == "The difference is above 0"
    assert "difference 0.020 (0.005 to 0.035)" in picture.alt


def test_folds_say_only_what_the_intervals_say():
    apart = FOLDS | {
        "consecutive": {"images": (0.97, 0.965, 0.98), "sheets": (0.96, 0.95, 0.97)},
        "difference": {"images": (0.02, 0.01, 0.03), "sheets": (0.02, -0.01, 0.05)},
    }
    titles = [ax.get_title(loc="left") for ax in draw_folds(apart).figure.axes]
    assert titles == ["Sheets counted: intervals are apart", "The difference may be 0"]


def test_channels_show_their_mean_and_one_standard_deviation():
    images = torch.rand(4, 3, 5, 6) * torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1)
    fig = draw_channels({"as loaded": images, "shifted": images - 1}).figure
    assert len(fig.axes) == 6
    for c in range(3):
        mean, std = images[:, c].mean().item(), images[:, c].std().item()
        ax = fig.axes[2 * c]
        assert [text.strip() for text in texts_of(ax)[:2]] == [f"mean {mean:.2f}", f"std {std:.2f}"]
        assert ax.texts[2].xy[0] - ax.texts[2].xyann[0] == pytest.approx(std)
        assert ax.lines[0].get_xdata()[0] == pytest.approx(mean)
        band = ax.patches[0]
        assert (band.get_x(), band.get_width()) == (
            pytest.approx(mean - std),
            pytest.approx(2 * std),
        )


def test_augmented_versions_have_their_names():
    rows = {"one": list(torch.rand(2, 3, 8, 8)), "other": list(torch.rand(2, 3, 8, 8))}
    picture = draw_augmented(rows, ["as loaded", "flip"])
    assert [ax.get_title() for ax in picture.figure.axes] == ["as loaded", "flip", "", ""]
    assert picture.alt == "one and other, each in 2 versions: as loaded, flip."


def test_labels_show_a_typical_digit_and_mark_wrong_answers():
    views = {"as loaded": torch.rand(4, 1, 4, 4), "mirrored": torch.rand(4, 1, 4, 4)}
    predicted = torch.tensor([[0, 0, 1, 1], [0, 5, 2, 2]])
    picture = draw_labels(views, predicted, [0, 0, 1, 1])
    assert [ax.get_title() for ax in picture.figure.axes] == ["0", "1", "0", "× 2"]
    assert "label, as loaded: 0, 1; mirrored: 0." in picture.alt


def test_batches_have_their_accuracy_and_the_row_its_mean():
    right = torch.tensor([1.0] * 9 + [0.0])
    picture = draw_batches(right, [9, 5])
    (ax,) = picture.figure.axes
    assert texts_of(ax) == ["1.000", "0.000", "mean 0.500", "1.000", "0.800", "mean 0.900"]
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert bars == [(0, 9), (9, 1), (0, 5), (5, 5)]
    colors = [to_hex(bar.get_facecolor()) for bar in ax.patches]
    assert [color == style.SERIES[1].lower() for color in colors] == [False, True, False, False]
    assert [line.get_xdata()[0] for line in ax.lines] == [9.5, 9.5]
    wrong = draw_batches(torch.tensor([1.0] * 9 + [0.0] + [1.0] * 9), [9]).figure.axes[0].lines
    assert [line.get_xdata()[0] for line in wrong] == [9 + 2.5]
    assert "batches of 9: 0.500" in picture.alt and "of which 1 are wrong" in picture.alt


def test_reports_show_both_ends_of_each_arrow():
    picture = draw_reports({"copies": (0.9, 0.98), "careful": (0.95, 0.95)})
    (ax,) = picture.figure.axes
    assert ax.get_title(loc="left") == "1 of 2 reports are too high"
    marks = [float(line.get_xdata()[0]) for line in ax.lines]
    assert marks == [0.9, 0.98, 0.95, 0.95]
    assert {"0.900", "0.980", "true", "reported"} <= set(texts_of(ax))
    assert "copies: 0.900, reported 0.980" in picture.alt and not pale(picture.figure)


def test_rows_hold_images_of_several_sizes_with_names_and_texts():
    rows = {"digits": torch.rand(2, 1, 8, 8), "photos": [torch.rand(3, 4, 6)]}
    fig, axes = draw_rows(rows, {"digits": ["1", "2"]})
    assert [len(line) for line in axes.values()] == [2, 2]
    assert axes["digits"][1].get_title() == "2" and axes["photos"][0].get_title() == ""
    assert axes["photos"][0].images[0].get_array().shape == (4, 6, 3)
    assert not axes["photos"][1].images
    assert {text.get_text() for ax in fig.axes for text in ax.texts} == {"digits", "photos"}


# The further page
