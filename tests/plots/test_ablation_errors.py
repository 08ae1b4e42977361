"""Figures of errors and designs in notebook 10: intervals, pairs, thresholds and panels."""

import pandas as pd
import pytest
from figures import marks, spans, titles
from matplotlib.colors import same_color

from vit_helpers.plots import ablation_errors as errors

COLUMNS = ["difference", "low", "high", "p", "holm"]


LINES = {
    "harms": [-0.03, -0.04, -0.02, 0.001, 0.003],
    "breaks": [-0.5, -0.6, -0.4, 1e-9, 4e-9],
    "nothing": [0.001, -0.02, 0.022, 0.8, 0.8],
    "helps": [0.02, -0.1, 0.03, 0.02, 0.06],
}


EFFECTS = pd.DataFrame.from_dict(LINES, orient="index", columns=COLUMNS)


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
