"""Figures of notebook 10: every run is drawn where it belongs, and what lies outside the axis is told."""

import pytest
from matplotlib.colors import same_color

from vit_helpers.plots import style
from vit_helpers.plots.ablation import draw_against, draw_changes, draw_halves, draw_interaction, draw_search

CHANGES = {"harms": [-0.03, -0.02], "nothing": [0.001, -0.003], "breaks": [-0.5, -0.4], "helps": [0.02, 0.04]}


def test_changes_stand_in_order_with_their_seeds():
    ax = draw_changes(CHANGES, texts={"helps": "twice the cost"}, title="t")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["helps", "nothing", "harms", "breaks"]
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    assert dots == [(2, 0), (4, 0), (pytest.approx(0.1), 1), (pytest.approx(-0.3), 1), (-3, 2), (-2, 2)]
    assert {text.get_text() for text in ax.texts} >= {"twice the cost", "mean -45"}


def test_what_lies_beyond_the_axis_stands_at_its_edge():
    ax = draw_changes({"breaks": [-0.5, -0.4], "one is out": [-0.01, -0.09]}, limits=(-8, 4))
    edge = [line for line in ax.lines if line.get_marker() == "<"]
    assert [line.get_xdata()[0] for line in edge] == [-8] * 4  # three runs and a mean
    assert [line.get_ydata()[0] for line in edge] == [0, 1, 1, 1]


def test_only_clear_changes_are_orange():
    ax = draw_changes(CHANGES, clear=["harms", "breaks", "helps"])
    bars = [line for line in ax.lines if line.get_marker() == "|"]
    orange = [same_color(line.get_color(), style.CLASS_TOKEN) for line in bars]
    assert orange == [True, False, True]
    edge = [line for line in ax.lines if line.get_marker() == "<"][-1]
    assert same_color(edge.get_color(), style.CLASS_TOKEN) and edge.get_ydata()[0] == 3


def test_intervals_are_drawn_in_points_and_end_at_the_axis():
    ax = draw_changes({"one": [0.01], "two": [-0.02, 0.0]}, {"one": (-0.5, 0.02), "two": (-0.03, 0.01)}, limits=(-8, 4))
    spans = [line for line in ax.lines if line.get_linewidth() == 3]
    assert [[round(x, 9) for x in line.get_xdata()] for line in spans] == [[-8, 2], [-3, 1]]
    assert sum(line.get_marker() == "o" for line in ax.lines) == 2  # a single number is a mean, not a seed


def test_every_line_has_all_runs_of_a_design():
    ax = draw_halves({"a": ([0.5, 0.6], [0.7, 0.8]), "b": ([0.5, 0.7], [0.6, 0.8])}, title="t")
    dots = [sorted(line.get_xdata()) for line in ax.lines if line.get_marker() in ("o", "s")]
    assert dots == [[0.5, 0.6], [0.7, 0.8], [0.5, 0.7], [0.6, 0.8]]
    means = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "|"]
    assert means == pytest.approx([0.55, 0.75, 0.6, 0.7])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_lines_join_the_means_over_a_logarithmic_axis():
    ax = draw_against(
        {"a": {1e-2: [0.5, 0.7], 1e-3: [0.4]}, "b": {1: []}}, names={"a": {1e-2: "here"}}, x="rate", ticks=[1e-3]
    )
    joined = next(line for line in ax.lines if line.get_label() == "a")
    assert list(joined.get_xdata()) == [1e-3, 1e-2] and list(joined.get_ydata()) == pytest.approx([0.4, 0.6])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.001"]
    assert ax.get_xscale() == "log" and "here" in {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_a_search_shows_each_run_with_its_accuracy():
    ax = draw_search([1e-3, 1e-2], [0.1, 0.2], [0.91, 0.85], title="t")
    assert ax.collections[0].get_offsets().tolist() == [[1e-3, 0.1], [1e-2, 0.2]]
    assert [text.get_text() for text in ax.texts] == ["0.91", "0.85"]
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_lines_of_an_interaction_have_the_means_and_intervals_of_each_level():
    panels = {"t": {"one": [(0.1, 0.2, 0.4), (0.5, 0.6, 0.7)], "other": [(0.8, 0.8, 0.8), (0.9, 0.9, 0.9)]}}
    fig = draw_interaction(panels, ["low", "high"], "x", "y")
    (ax,) = fig.axes
    lines = [(bars.get_label(), list(bars.lines[0].get_ydata()), bars.lines[2][0].get_segments()) for bars in ax.containers]
    assert [(name, means) for name, means, _ in lines] == [("one", [0.2, 0.6]), ("other", [0.8, 0.9])]
    assert [y for bar in lines[0][2] for _, y in bar] == pytest.approx([0.1, 0.4, 0.5, 0.7])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["low", "high"] and ax.get_ylabel() == "y"
