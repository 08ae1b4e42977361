"""Figures of notebook 10: runs and differences are drawn where they belong."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import same_color

from vit_helpers.plots import ablation as plots
from vit_helpers.plots import ablation_errors as errors
from vit_helpers.plots import style

COLUMNS = ["difference", "low", "high", "p", "holm"]
LINES = {
    "harms": [-0.03, -0.04, -0.02, 0.001, 0.003],
    "breaks": [-0.5, -0.6, -0.4, 1e-9, 4e-9],
    "nothing": [0.001, -0.02, 0.022, 0.8, 0.8],
    "helps": [0.02, -0.1, 0.03, 0.02, 0.06],
}
EFFECTS = pd.DataFrame.from_dict(LINES, orient="index", columns=COLUMNS)
RUNS = pd.DataFrame(
    [
        (name, seed, accuracy)
        for name, values in {
            "baseline": [0.80, 0.82],
            "up": [0.81, 0.83],
            "once": [0.85, 0.81],
        }.items()
        for seed, accuracy in enumerate(values)
    ],
    columns=["change", "seed", "accuracy"],
)


def marks(ax, kinds="os"):
    """(x, y, mark) of the marks of some kinds, from top to bottom"""
    return [
        (round(float(x), 6), round(float(y), 6), line.get_marker())
        for line in ax.lines
        if line.get_marker() in kinds
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def spans(ax):
    """The ends of the intervals, from top to bottom"""
    return [
        [round(float(x), 6) for x in line.get_xdata()]
        for line in ax.lines
        if line.get_linewidth() == 3 and len(line.get_xdata()) == 2
    ]


def titles(picture):
    return [ax.get_title(loc="left").strip() for ax in picture.figure.axes]


def test_gains_are_differences_of_the_same_seed():
    gains = plots.gains_of(RUNS)
    assert gains.index.tolist() == ["up", "once"]
    assert gains.to_numpy() == pytest.approx(np.array([[1, 1], [5, -1]]))


def test_first_tries_are_drawn_alone_or_with_the_other_seeds():
    alone, both = (plots.draw_tries(RUNS, seeds).figure.axes[0] for seeds in (1, 2))
    assert marks(alone, "s") == [(1, 0, "s"), (5, 1, "s")] and not marks(alone, "o")
    assert marks(both, "o") == [(1, 0, "o"), (-1, 1, "o")]
    assert alone.get_xlim() == both.get_xlim()
    assert titles(plots.draw_tries(RUNS, 2)) == ["With two seeds, one of two always gains"]


def test_images_on_which_two_models_agree_are_not_drawn():
    images = torch.rand(5, 1, 4, 4)
    baseline = np.array([True, True, False, False, True])
    changed = np.array([True, False, True, False, False])
    fig = plots.draw_disagreements(images, baseline, changed).figure
    drawn = [ax.images[0].get_array() for ax in fig.axes if ax.images]
    for pixels, i in zip(drawn, (1, 4, 2), strict=True):
        assert np.allclose(pixels, 1 - images[i, 0])
    assert fig.get_suptitle() == "3 images tell the two models apart, 2 don't"


def test_margins_are_means_of_rows_and_columns():
    d = np.array([[1, 0, -1, 0], [-1, 0, -1, 0]])
    fig = plots.draw_margins(d, 0.01, 0.02, first=1, columns=3).figure
    table, rows, below, corner = fig.axes
    assert [text.get_text() for text in table.texts] == ["−", "−"]  # of images 1 to 3
    assert [x for x, *_ in marks(rows, "o")] == [0, -50]  # of all four
    assert [bar.get_height() for bar in below.patches] == [0, -1, 0]
    assert "1.00 points" in corner.texts[0].get_text()
    assert "2.00 points" in corner.texts[0].get_text()


def test_a_ranking_goes_from_the_worst_to_the_best_and_names_some():
    ax = plots.draw_ranking(EFFECTS, ["breaks", "helps"]).figure.axes[0]
    assert marks(ax) == [(0, -50, "s"), (1, -3, "s"), (2, 0.1, "o"), (3, 2, "o")]
    assert [text.get_text() for text in ax.texts] == ["breaks", "helps"]
    assert ax.get_title(loc="left").startswith("2 of 4 changes pass")


def test_rates_are_joined_by_their_means_and_the_best_is_filled():
    curves = {"a": {1e-2: [0.5, 0.7], 1e-3: [0.4]}, "b": {1e-3: [0.9], 1e-2: [0.3]}}
    ax = plots.draw_rates(curves).figure.axes[0]
    joined = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert [list(line.get_ydata()) for line in joined] == [
        pytest.approx([0.4, 0.6]),
        pytest.approx([0.9, 0.3]),
    ]
    best = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    assert best == [1e-2, 1e-3]
    assert [text.get_text() for text in ax.texts] == ["a", "b"] and ax.get_xscale() == "log"


def test_the_same_change_stands_together():
    lines = {"here": EFFECTS.loc["harms"], "there": EFFECTS.loc["nothing"]}
    ax = plots.draw_places({"crops": lines, "heads": lines}).figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "crops: here",
        "crops: there",
        "heads: here",
        "heads: there",
    ]
    assert [y for _, y, _ in marks(ax)] == [0, 1, 3, 4]
    assert [text.get_text() for text in ax.texts] == ["−3.0", "+0.1"] * 2


def test_the_verdict_shows_the_first_try_and_the_interval():
    effects = EFFECTS.loc[["harms", "nothing"]].set_axis(["up", "once"])
    ax = plots.draw_verdict(RUNS, effects).figure.axes[0]
    assert marks(ax, "x") == [(1, 0, "x"), (5, 1, "x")]
    assert marks(ax) == [(-3, 0, "s"), (0.1, 1, "o")]
    assert spans(ax) == [[-4, -2], [-2, 2.2]]
    assert ax.get_title(loc="left") == "One of the two is left: up"


def test_only_what_passes_is_a_full_square():
    ax = errors.draw_forest(EFFECTS, "t", {"helps": "twice the cost"}, "cost").figure.axes[0]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["helps", "nothing", "harms", "breaks"]
    assert marks(ax) == [(2, 0, "o"), (0.1, 1, "o"), (-3, 2, "s"), (-50, 3, "s")]
    assert spans(ax) == [[-10, 3], [-2, 2.2], [-4, -2], [-60, -40]]
    assert {text.get_text() for text in ax.texts} >= {"twice the cost", "cost"}
    filled = [line.get_markerfacecolor() for line in ax.lines if line.get_marker() in "os"]
    assert [same_color(color, "white") for color in filled] == [True, True, False, False]


def test_a_forest_has_the_eight_largest_lines():
    many = pd.concat([EFFECTS * (1 + i / 10) for i in range(3)])
    many.index = [f"{name} {i}" for i, name in enumerate(many.index)]
    ax = errors.draw_forest(many, "t").figure.axes[0]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(labels) == 8 and not any(name.startswith("nothing") for name in labels)


def test_errors_in_pairs_are_counted_below_the_diagonal():
    paired = pd.Series({"a": 0.001, "b": 0.004, "c": 0.002})
    picture = errors.draw_pairing(paired, pd.Series({"a": 0.002, "b": 0.003, "c": 0.003}))
    (ax,) = picture.figure.axes
    assert marks(ax, "o") == [(0.2, 0.1, "o"), (0.3, 0.2, "o")]
    assert marks(ax, "s") == [(0.3, 0.4, "s")]
    assert titles(picture) == ["Pairs make 2 of 3 errors smaller"]


def test_holms_threshold_rises_with_the_rank():
    ax = errors.draw_holm(EFFECTS).figure.axes[0]
    threshold, *_ = (list(line.get_ydata()) for line in ax.lines)
    assert threshold == pytest.approx([0.05 / 4, 0.05 / 3, 0.05 / 2, 0.05])
    assert marks(ax, "v") == [(1, 1e-6, "v")]  # what is off the scale
    assert marks(ax, "s") == [(2, 0.001, "s")] and [x for x, *_ in marks(ax, "o")] == [3, 4]


def test_a_cross_is_where_a_change_was_before_its_rate_was_tuned():
    ax = errors.draw_retuned({"harms": -0.09, "helps": 0.01}, EFFECTS).figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["helps", "harms"]
    assert marks(ax, "x") == [(1, 0, "x"), (-9, 1, "x")]
    assert {text.get_text() for text in ax.texts} >= {"+1.0 → +2.0", "−9.0 → −3.0"}
    (note,) = [text for text in ax.texts if "rate" in text.get_text()]
    assert note.xy == pytest.approx((-9, 1))  # at the one that moves most


def test_every_panel_has_all_runs_of_a_design():
    halves = {"a": ([0.5, 0.6], [0.7, 0.8]), "b": ([0.5, 0.7], [0.6, 0.8])}
    picture = errors.draw_halves(halves)
    for ax in picture.figure.axes:
        assert sorted(x for x, *_ in marks(ax)) == [0.5, 0.6, 0.7, 0.8]
        assert [label.get_text() for label in ax.get_yticklabels()] == ["without", "with"]
    assert titles(picture) == [
        "a: the mean moves by +20.0 points",
        "b: the mean moves by +10.0 points",
    ]


def test_main_effects_and_interactions_have_panels_of_their_own():
    effects = EFFECTS.assign(order=[1, 1, 2, 2]).set_axis(["a", "b", "a x b", "a x c = b x d"])
    picture = errors.draw_effects(effects)
    names = [[label.get_text() for label in ax.get_yticklabels()] for ax in picture.figure.axes]
    assert names == [["b", "a"], ["a x c *", "a x b"]]
    assert titles(picture) == [
        "Main effects: 2 of 2 pass",
        "The largest of 2 interactions: none passes",
    ]


def test_a_search_shows_each_run_with_its_accuracy():
    ax = errors.draw_search([1e-3, 1e-2], [0.1, 0.2], [0.91, 0.85]).figure.axes[0]
    assert marks(ax, "o") == [(1e-3, 0.1, "o"), (1e-2, 0.2, "o")]
    assert [text.get_text() for text in ax.texts] == ["0.910", "0.850"]
    sizes = [line.get_markersize() for line in ax.lines]
    assert sizes[0] > sizes[1] and ax.get_xscale() == ax.get_yscale() == "log"


@pytest.mark.parametrize("seeds", [1, 2])
def test_no_figure_tells_its_story_by_color_alone(seeds):
    assert style.color_only_pairs(plots.draw_tries(RUNS, seeds).figure) == []
