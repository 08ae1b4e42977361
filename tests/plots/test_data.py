"""Figures of notebook 06: every image and number that is told is drawn, with its name."""

from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex

from tests.plots.test_palette import contrast, pale
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
from vit_helpers.plots.data_pipeline import draw_pipeline


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


def test_the_pipeline_shows_its_stages_and_three_splits():
    photos = {"one": torch.rand(3, 427, 640), "two": torch.rand(3, 427, 640)}
    train, validation, test = (split_of(torch.rand(n, 1, 8, 8), []) for n in (1200, 20, 30))
    data = SimpleNamespace(train=train, validation=validation, test=test)
    fig = draw_pipeline(photos, data).figure
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


# The further page


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
