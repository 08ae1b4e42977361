"""Figures of notebook 07: every run, number and seed that is told is drawn, and curves grow in one place."""

import math
import sys
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch

from vit_helpers.plots import training
from vit_helpers.plots.training import LiveCurves, draw_calibration, draw_confusion, draw_runs


def history(epochs, accuracy=0.5):
    row = {"loss": 1.0, "val_loss": 1.1, "accuracy": accuracy, "val_accuracy": accuracy - 0.1, "num_classes": 4}
    return [row | {"epoch": epoch} for epoch in range(1, epochs + 1)]


def test_each_run_has_its_panel_with_chance():
    fig = draw_runs({"one": history(3), "two": history(5, 0.9)}, columns=3)
    one, two, none = fig.axes
    assert (one.get_title("left"), two.get_title("left")) == ("one", "two") and not none.axison
    seen, held_out, chance = two.lines
    assert list(seen.get_ydata()) == [0.9] * 5 and list(held_out.get_ydata()) == pytest.approx([0.8] * 5)
    assert list(chance.get_ydata()) == [0.25, 0.25]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["training", "validation", "guessing"]
    panel = draw_runs({"one": history(3)}, "loss").axes[0]
    assert list(panel.lines[1].get_ydata()) == [1.1] * 3 and panel.lines[2].get_ydata()[0] == pytest.approx(math.log(4))
    plt.close("all")


def test_confusion_shows_counts_and_colors_rows_by_share():
    counts = torch.tensor([[8, 2], [0, 0]])
    ax = draw_confusion(counts, ["a", "b"])
    assert {text.get_text() for text in ax.texts} == {"8", "2"}
    assert torch.allclose(torch.as_tensor(ax.images[0].get_array()), torch.tensor([[0.8, 0.2], [0, 0]]))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_calibration_averages_groups_from_least_to_most_sure():
    sure = torch.tensor([0.9, 0.5, 0.7, 0.3])
    right = torch.tensor([True, False, True, True])
    ax = draw_calibration(sure, right, groups=2)
    line = ax.lines[1]
    assert line.get_label() == "the model, 1/2 of the images each"
    assert list(line.get_xdata()) == pytest.approx([0.4, 0.8]) and list(line.get_ydata()) == pytest.approx([0.5, 1.0])


def test_live_curves_print_a_line_where_nothing_can_be_shown(capsys):
    live = LiveCurves(2)
    for row in history(2):
        live(row)
    assert capsys.readouterr().out.splitlines()[1] == "epoch 2 of 2: validation accuracy 0.400"


def test_live_curves_change_one_picture_in_place(monkeypatch):
    shown, changed = [], []

    class Place:
        def update(self, image, metadata):
            changed.append((image, metadata))

    def display(image, metadata, display_id):
        shown.append((image, metadata))
        return Place()

    now = iter([10.0, 10.0, 10.1, 11.0, 11.0, 11.1, 11.2])
    monkeypatch.setattr(training, "in_notebook", lambda: True)
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display, Image=lambda data, format: data))
    live = LiveCurves(4)
    for row in history(4):
        live(row)
    assert len(shown) == 1 and len(changed) == 2  # the second epoch came too soon, the last is drawn in any case
    assert "after 4 of 4 epochs" in changed[-1][1]["image/png"]["alt"]
    assert not plt.get_fignums()
