"""Figures of what was measured for notebook 09: rates, centers, leads and reconstructions."""

import pytest
import torch
from matplotlib.text import Text

from vit_helpers.plots import style
from vit_helpers.plots.pretrained import (
    WAYS,
)
from vit_helpers.plots.pretrained_further import (
    draw_accuracies,
    draw_centers,
    draw_leads,
    draw_rates,
    draw_reconstructions,
)


def texts(fig):
    return [t.get_text() for t in fig.findobj(Text) if t.get_text()]


POINTS = {100: (0.4, 0.5, 0.55), 1000: (0.5, 0.6, 0.65)}


@pytest.mark.parametrize("names", [("one", "other"), ("one", "two", "three", "four", "five")])
def test_rates_have_a_line_a_model_with_its_name(names):
    factors = {name: [0.25 + i / 10, 0.5, 1] for i, name in enumerate(names)}
    fig = draw_rates(factors).figure
    assert set(names) <= set(texts(fig))
    lines = fig.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == list(factors.values())
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(names)


def test_centers_are_marked_where_they_are_read():
    picture = draw_centers(3, {"edges": [-0.25, 0.75, 1.75], "corners": [0, 1, 2]})
    lines = picture.figure.axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[-0.25, 0.75, 1.75], [0, 1, 2]]
    assert "edges: from -0.25 to 1.75; corners: from 0.00 to 2.00" in picture.alt


def test_leads_have_a_mark_for_each_pretrained_model_and_the_stored_one_is_filled():
    lead = {100: (1.0, 5.0, 9.0), 300: (4.0, 6.0, 8.0)}
    picture = draw_leads({"Photos": {"0": lead, "1": lead, "2": lead}, "Digits": {"0": lead}})
    photos, digits = picture.figure.axes
    marks = [[line for line in ax.lines if line.get_marker() == "o"] for ax in (photos, digits)]
    hollow = [[line.get_markerfacecolor() == "white" for line in found] for found in marks]
    assert hollow == [[False] * 2 + [True] * 4, [False] * 2]
    assert "Photos, 3 models: 5.0 to 6.0 points" in picture.alt


def test_accuracies_have_marks_that_need_no_color():
    panels = {"One": dict.fromkeys(WAYS, POINTS), "Other": dict.fromkeys(WAYS, POINTS)}
    fig = draw_accuracies(panels, 0.3).figure
    assert style.color_only_pairs(fig) == [] and len(fig.axes) == 2


def hatched(ax):
    return len([p for p in ax.patches if p.get_hatch()])


def test_reconstructions_cover_predict_and_write_errors():
    images, hidden = torch.rand(2, 8, 8) / 2, torch.zeros(2, 4, 4, dtype=torch.bool)
    hidden[0, 1, 2] = hidden[0, 3, 3] = hidden[1, 0, 0] = True
    fig = draw_reconstructions(images, hidden, images + 0.5, 2).figure
    first, second = fig.axes[:4], fig.axes[4:8]
    assert [hatched(line[0]) for line in (first, second)] == [2, 1]
    errors = [[t.get_text() for t in line[3].texts] for line in (first, second)]
    assert errors == [[".25", ".25"], [".25"]]
