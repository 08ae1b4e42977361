"""Figures of notebook 08 about heads and tokens: every number is drawn in its place."""

import pytest
import torch

from vit_helpers.plots import style
from vit_helpers.plots.inspection_heads import draw_distances, draw_norms, draw_probes


def test_a_numbered_circle_for_every_head():
    picture = draw_distances(torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 6.0]]), uniform=5)
    (ax,) = picture.figure.axes
    heights = [line.get_ydata()[0] for line in ax.lines]
    assert heights == pytest.approx([1, 2, 3, 4, 0.5, 6, 5]) and ax.get_ylim()[0] == 0
    assert [text.get_text() for text in ax.texts] == ["1", "2"] * 3 + ["uniform weights"]
    title = ax.get_title(loc="left")
    assert title == "The nearest head is in block 3; block 2 looks farthest on average"


def line(mean, half):
    return {"mean": mean, "low": mean - half, "high": mean + half}


def test_probes_and_norms_show_their_numbers():
    shares = {"class token": [0.2, 0.9], "patches": [0.3, 0.5]}
    (ax,) = draw_probes(shares).figure.axes
    assert [list(each.get_ydata()) for each in ax.lines] == list(shares.values())
    assert [each.get_color() for each in ax.lines] == [style.CLASS_TOKEN, style.PATCH]
    assert ax.get_title(loc="left") == "Accuracy grows with depth"
    ahead = draw_probes({"class token": [0.4, 0.9], "patches": [0.3, 0.5]}).figure.axes[0]
    assert ahead.get_title(loc="left") == "The class token is ahead after every block"
    norms = {"embeddings": torch.tensor([1.0, 2, 3]), "after block 1": torch.tensor([2.0, 4, 10])}
    (ax,) = draw_norms(norms).figure.axes
    dots, median = ax.lines[:2]
    assert list(dots.get_xdata()) == [1, 2, 3] and list(median.get_xdata()) == [2, 2]
    assert ax.get_title(loc="left") == "No outliers: the largest norm is 2.5 times the median"
