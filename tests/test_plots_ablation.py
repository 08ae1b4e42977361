"""Figures of notebook 10: runs drawn where they belong, and numbers for what is off the axis."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from vit_helpers.plots import style
from vit_helpers.plots.ablation import (
    IMAGES,
    SEEDS,
    draw_against,
    draw_halves,
    draw_holm,
    draw_pairs,
    draw_ranking,
    draw_search,
)
from vit_helpers.plots.ablation_errors import draw_experiment, draw_forest

COLUMNS = ["difference", "low", "high", "seeds", "images", "p", "holm"]
LINES = {
    "harms": [-0.03, -0.04, -0.02, 0.004, 0.002, 0.001, 0.003],
    "breaks": [-0.5, -0.6, -0.4, 0.05, 0.01, 1e-9, 4e-9],
    "nothing": [0.001, -0.02, 0.022, 0.006, 0.007, 0.8, 0.8],
    "helps": [0.02, -0.1, 0.03, 0.003, 0.001, 0.02, 0.04],
}
EFFECTS = pd.DataFrame.from_dict(LINES, orient="index", columns=COLUMNS)


def spans(ax, color, width):
    """The ends of the horizontal lines of a color and a width"""
    found = [
        line
        for line in ax.lines
        if same_color(line.get_color(), color) and line.get_linewidth() == width
    ]
    return [
        [round(float(x), 9) for x in line.get_xdata()]
        for line in found
        if len(line.get_xdata()) == 2
    ]


def test_a_forest_is_in_order_and_has_intervals_and_both_errors():
    ax = draw_forest(
        EFFECTS,
        ["harms", "breaks"],
        (-8, 4),
        {"helps": "twice the cost"},
        heading="cost",
        title="t",
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "helps",
        "nothing",
        "harms",
        "breaks",
    ]
    assert spans(ax, SEEDS, 4)[:3] == [[1.7, 2.3], [-0.5, 0.7], [-3.4, -2.6]]
    assert spans(ax, IMAGES, 4)[:3] == [[1.9, 2.1], [-0.6, 0.8], [-3.2, -2.8]]
    assert spans(ax, style.LINE, 2) == [[-8, 3], [-2, 2.2]] and spans(ax, style.SERIES[2], 2)[
        0
    ] == [-4, -2]
    assert {text.get_text() for text in ax.texts} >= {"twice the cost", "cost", "−50"}


def test_only_what_passes_is_a_full_square_and_what_is_outside_a_triangle():
    ax = draw_forest(EFFECTS, ["harms", "breaks"], (-8, 4), before={"harms": 0.01})
    marks = {
        line.get_ydata()[0]: line
        for line in ax.lines
        if line.get_marker() in ("s", "o", "<") and len(line.get_xdata())
    }
    assert [marks[y].get_marker() for y in range(4)] == ["o", "o", "s", "<"]
    assert [marks[y].get_xdata()[0] for y in range(4)] == pytest.approx([2, 0.1, -3, -8])
    (cross,) = [line for line in ax.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (1, 2.37)  # below the line of its change


def test_what_goes_on_beyond_the_axis_is_marked():
    ax = draw_forest(EFFECTS, limits=(-8, 4), before={"harms": -0.09, "helps": 0.3})
    (cut,) = [line for line in ax.lines if line.get_marker() == "<" and line.get_ydata()[0] == 0]
    assert cut.get_xdata()[0] == -8  # of the interval of "helps", which begins at -10
    crosses = [line for line in ax.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in crosses] == [
        (4, 0.37),
        (-8, 2.37),
    ]
    assert {text.get_text() for text in ax.texts} >= {"+30", "−9"}


def test_an_experiment_shows_the_differences_and_their_means():
    baseline, changed = (
        np.array([[1, 1, 0, 0], [1, 0, 1, 0]], bool),
        np.array([[1, 0, 1, 0], [1, 0, 0, 0]], bool),
    )
    effect = SimpleNamespace(
        difference=-0.125, seeds=0.1, images=0.2, interval=lambda: (-0.5, 0.25)
    )
    fig = draw_experiment(baseline, changed, effect, ("a", "b"), images=(1, 4), title="t")
    signs = [text.get_text() for text in fig.axes[4].texts]
    # of images 1 to 3: seed 0 loses one and gains one, seed 1 loses one
    assert signs == ["−", "+", "−"]
    rows = next(line for line in fig.axes[5].lines if line.get_marker() == "o")
    assert list(rows.get_xdata()) == [0, -25]
    assert [bar.get_height() for bar in fig.axes[6].patches] == [-0.5, 0, 0]
    bars = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in fig.axes[7].containers]
    # seeds, images, interval
    assert bars == [pytest.approx(ends) for ends in ([-22.5, -2.5], [-32.5, 7.5], [-50, 25])]
    assert [bar.lines[0].get_color() for bar in fig.axes[7].containers[:2]] == [SEEDS, IMAGES]
    assert fig.axes[5].get_xlim()[1] > 25 and fig.get_suptitle() == "t"
    assert [text.get_text() for text in fig.axes[1].texts] == ["50.0%", "50.0%"]


def test_pairs_join_the_same_seed_and_show_differences():
    fig = draw_pairs(
        {"baseline": [0.5, 0.7], "up": [0.6, 0.9], "down": [0.4, 0.7]}, titles=("l", "r")
    )
    left, right = fig.axes
    assert [list(line.get_ydata()) for line in left.lines] == [[0.6, 0.5, 0.4], [0.9, 0.7, 0.7]]
    assert [label.get_text() for label in left.get_xticklabels()] == ["up", "baseline", "down"]
    assert sorted(line.get_xdata()[0] for line in right.lines[:4]) == pytest.approx(
        [-10, 0, 10, 20]
    )


def test_a_ranking_goes_from_the_worst_to_the_best():
    ax = draw_ranking(EFFECTS, "t")
    dots = [
        (line.get_ydata()[0], line.get_marker())
        for line in ax.lines
        if line.get_marker() in "os" and len(line.get_xdata())
    ]
    # a circle: the interval contains 0
    assert dots == [(-50, "s"), (-3, "s"), (pytest.approx(0.1), "o"), (2, "o")]


def test_holms_threshold_rises_with_the_rank():
    ax = draw_holm(EFFECTS)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines["Holm's threshold"] == pytest.approx([0.05 / 4, 0.05 / 3, 0.05 / 2, 0.05])
    assert lines["passes"] == [0.001, 0.02] and lines["does not"] == [0.8]
    # what is off the scale is drawn once, with its number
    (below,) = [line for line in ax.lines if line.get_marker() == "v"]
    assert (below.get_xdata()[0], below.get_ydata()[0]) == (1, 1e-6)
    assert "1e-09, below the axis" in {text.get_text() for text in ax.texts}


def test_every_line_has_all_runs_of_a_design():
    ax = draw_halves({"a": ([0.5, 0.6], [0.7, 0.8]), "b": ([0.5, 0.7], [0.6, 0.8])}, title="t")
    dots = [sorted(line.get_xdata()) for line in ax.lines if line.get_marker() in ("o", "s")]
    # with the setting above without it
    assert dots == [[0.7, 0.8], [0.5, 0.6], [0.6, 0.8], [0.5, 0.7]]
    means = [
        line.get_xdata()[0]
        for line in ax.lines
        if line.get_marker() == "|" and len(line.get_xdata())
    ]
    assert means == pytest.approx([0.55, 0.75, 0.6, 0.7])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_lines_join_the_means_over_a_logarithmic_axis():
    ax = draw_against(
        {"a": {1e-2: [0.5, 0.7], 1e-3: [0.4]}, "b": {1: []}},
        names={"a": {1e-2: "here"}},
        x="rate",
        ticks=[1e-3],
    )
    joined = next(line for line in ax.lines if line.get_label() == "a")
    assert list(joined.get_xdata()) == [1e-3, 1e-2] and list(joined.get_ydata()) == pytest.approx(
        [0.4, 0.6]
    )
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.001"]
    assert ax.get_xscale() == "log" and "here" in {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_seeds_can_be_beside_the_means_and_the_best_is_filled():
    ax = draw_against({"a": {1e-2: [0.5, 0.7], 1e-3: [0.4]}}, beside=1.1, best=True)
    dots = [(float(line.get_xdata()[0]), list(line.get_ydata())) for line in ax.lines[:2]]
    assert dots == [(pytest.approx(1.1e-3), [0.4]), (pytest.approx(1.1e-2), [0.5, 0.7])]
    (best,) = [line for line in ax.lines if line.get_markersize() == 11 and len(line.get_xdata())]
    assert (best.get_xdata()[0], best.get_ydata()[0]) == (1e-2, pytest.approx(0.6))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "a",
        "best mean",
        "one seed",
    ]
    assert style.color_only_pairs(ax.figure) == []


def test_a_search_shows_each_run_with_its_accuracy():
    ax = draw_search([1e-3, 1e-2], [0.1, 0.2], [0.91, 0.85], title="t")
    assert ax.collections[0].get_offsets().tolist() == [[1e-3, 0.1], [1e-2, 0.2]]
    assert [text.get_text() for text in ax.texts] == ["0.910", "0.850"]
    assert ax.get_xscale() == ax.get_yscale() == "log"
