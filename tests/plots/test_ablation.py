"""Figures of notebook 10: runs and differences are drawn where they belong."""

import numpy as np
import pandas as pd
import pytest
import torch
from figures import marks, spans, titles

from vit_helpers.plots import ablation as plots
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


@pytest.mark.parametrize("seeds", [1, 2])
def test_no_figure_tells_its_story_by_color_alone(seeds):
    assert style.color_only_pairs(plots.draw_tries(RUNS, seeds).figure) == []
