"""The figures of commands: a test, its classes and the worst mistakes, with no text cut off."""

import re
from itertools import pairwise

import pytest
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from vit_helpers.cli.figures import draw_test, draw_worst, width_of
from vit_helpers.cli.mistakes import Answers, Mistakes
from vit_helpers.cli.scores import class_table
from vit_helpers.plots.overflow import overflow_faults


def test_the_table_and_the_picture():
    names = ["up $x_1$", "a name that is far too long to be drawn", "nobody"]
    counts = torch.tensor([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    table = class_table(counts, names)
    assert table.index.tolist() == [*names, "all classes"]
    assert table["images"].tolist() == [10, 10, 0, 20] and table["accuracy"].tolist()[:2] == [
        0.8,
        0.9,
    ]
    assert table["accuracy"].isna().tolist() == [False, False, True, False]
    left, right = draw_test(counts, table).axes
    assert left.get_title(loc="left") == "17 of 20 images are classified correctly"
    names = [text.get_text() for text in right.get_yticklabels()]
    assert names == [r"up \$x_1\$ (10)", "a name that is fa… (10)", "nobody (0)"]
    assert right.get_xticklabels()[-2].get_text() == "1.0"


@pytest.mark.parametrize("classes", [2, 3, 10, 30, 31, 200])
@pytest.mark.parametrize("name", ["{}", "{} of a long name"])
def test_no_text_of_the_picture_is_cut_off(classes, name):
    """The last tick of accuracies was 4 pixels from the edge; an axis of 2 classes left it"""
    counts = 30 * torch.eye(classes).long() + torch.randint(4, (classes, classes))
    names = [name.format(number) for number in range(classes)]
    figure = draw_test(counts, class_table(counts, names))
    faults = overflow_faults(figure)
    # tilted names, whose boxes overlap although the texts do not
    assert [fault for fault in faults if "of one axis touch" not in fault] == []
    (tick,) = [tick for tick in figure.axes[1].get_xticklabels() if tick.get_text() == "1.0"]
    assert tick.get_window_extent().x1 < figure.bbox.x1 - 8
    assert figure.bbox.width < 3000


NAMES = ["cat", "a name that is far too long $x_1$", "W" * 30]


@pytest.mark.parametrize("count", [1, 4, 12])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 224, 160)])
def test_the_picture_names_both_classes_the_probability_and_the_file(count, shape):
    labels, predictions = torch.arange(count) % 3, torch.arange(1, count + 1) % 3
    answers = Answers(labels, predictions, torch.linspace(0.999, 0.5, count))
    pictures = [f"a file whose name is longer than the image {n}.jpg" for n in range(count)]
    figure = draw_worst(Mistakes(torch.rand(count, *shape), answers), NAMES, 1234, pictures)
    assert overflow_faults(figure) == []
    assert figure.get_suptitle().startswith(f"{count} of 1,234 wrong answers")
    axes = [ax for ax in figure.axes if ax.images]
    assert len(axes) == count
    titles = [ax.get_title() for ax in axes]
    cut = r"a name that i.*… \(99\.9%\)\ntrue: cat"
    assert re.fullmatch(cut + r"\n….*er than the image 0\.jpg", titles[0])
    boxes = [ax.title.get_window_extent() for ax in axes[:4]]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert {ax.title.get_fontsize() for ax in axes} == {12}
    extents = [ax.get_window_extent() for ax in axes]  # in pixels of the file
    assert min(max(extent.width, extent.height) for extent in extents) >= 200
    unnamed = draw_worst(Mistakes(torch.rand(count, *shape), answers), NAMES, count)
    assert re.fullmatch(cut, unnamed.axes[0].get_title())


@pytest.mark.parametrize("text", ["i", "W" * 30, "Größe: 99.9% (jQ&@)", "…er than the image"])
def test_a_text_is_as_wide_as_matplotlib_says(text):
    path = TextPath((0, 0), text, prop=FontProperties(size=12))
    assert width_of(path) == pytest.approx(path.get_extents().width)
