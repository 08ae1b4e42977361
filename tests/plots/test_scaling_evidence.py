"""Figures of what was measured for notebook 11: batches, growth, ratios and the roofline."""

import matplotlib.pyplot as plt
import pytest
from figures import fits

from vit_helpers.plots.scaling_distributed import (
    draw_sharded_memory,
)
from vit_helpers.plots.scaling_evidence import (
    draw_batches,
    draw_growth,
    draw_ratios,
    draw_roofline,
)

NEED = {"weights": 1.0, "gradients": 1.0, "optimizer": 2.0, "activations": 10.0}


def texts(fig):
    return [text.get_text() for text in fig.findobj(plt.Text) if text.get_text()]


@pytest.mark.parametrize("draw", [draw_sharded_memory, draw_batches])
def test_sums_are_at_the_ends_of_the_bars(draw):
    picture = draw({"one": NEED, "two": {**NEED, "activations": 1.0}})
    said = [text for text in texts(picture.figure) if text.endswith("in all")]
    assert [float(text.split()[0]) for text in said] == [14, 5]
    assert fits(picture)


def test_lines_of_growth_have_their_slopes():
    picture = draw_growth({"tokens": {1: (1, 10), 10: (100, 100), 100: (10000, 1000)}}, mark=10)
    (ax,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1, 100, 10000], [10, 100, 1000]]
    assert {"slope 2", "slope 1", "equal at\n10"} <= set(texts(picture.figure))
    assert list(ax.lines[2].get_xdata()) == [10, 10] and fits(picture)


def test_ratios_stand_on_the_side_where_they_belong():
    rows = {"fast": (2, 1.5, 2.5), "same": (1, 0.9, 1.1), "slow": (0.1, 0.09, 0.2)}
    picture = draw_ratios(rows, "t")
    (ax,) = picture.figure.axes
    ranges, marks = ax.lines[:-1:2], ax.lines[1:-1:2]
    assert [list(line.get_xdata()) for line in ranges] == [[1.5, 2.5], [0.9, 1.1], [0.09, 0.2]]
    assert [(line.get_xdata()[0], line.get_marker()) for line in marks] == [
        (2, "o"),
        (1, "D"),
        (0.1, "s"),
    ]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fast", "same", "slow"]
    low, high = ax.get_xlim()
    assert low < 0.09 * 0.8 and high > 2.5 * 1.2  # with room for the numbers
    assert fits(picture)


@pytest.mark.parametrize("high", [1.1, 1.5, 3, 10, 200])
def test_ratios_have_ticks_that_do_not_touch(high):
    picture = draw_ratios({"a": (high, high, high), "b": (0.8, 0.7, 0.9)}, "t")
    assert len(picture.figure.axes[0].get_xticks()) >= 3 and fits(picture)


def test_the_roof_is_the_lower_of_two_limits():
    points = {"sum": (0.1, 1e9), "product": (50, 9e10)}
    picture = draw_roofline(points, bandwidth=1e10, peak=1e11)
    (ax,) = picture.figure.axes
    slope, level = (line.get_xydata() for line in ax.lines[:2])
    assert slope[1] == pytest.approx([10, 100]) and (level[:, 1] == 100).all()
    assert slope[0, 1] == pytest.approx(10 * slope[0, 0])
    assert {
        "memory: 10 GB per second",
        "arithmetic: 100 GFLOPs per second",
        "sum",
        "product",
    } <= set(texts(picture.figure))
    assert fits(picture)
