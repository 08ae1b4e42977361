"""Figures of notebook 07: runs, counts and paths as they are, and curves that grow in one place."""

import math
import sys
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from figures import HISTORY

from vit_helpers.plots import training
from vit_helpers.plots.training import (
    LiveCurves,
    draw_calibration,
    draw_confusion,
    draw_curve,
    draw_curves,
    draw_loss,
    draw_runs,
    smoothed_loss,
)


def history(epochs, accuracy=0.5):
    row = {
        "loss": 1.0,
        "val_loss": 1.1,
        "accuracy": accuracy,
        "val_accuracy": accuracy - 0.1,
        "num_classes": 4,
    }
    return [row | {"epoch": epoch} for epoch in range(1, epochs + 1)]


def test_each_run_has_its_loss_above_its_accuracy():
    runs = {"one": history(3), "two": history(5, 0.9)}
    said = {"one": "stuck", "two": "healthy"}
    picture = draw_runs(runs, healthy=history(4, 0.7), verdicts=said, floors={"two": 1.2})
    fig = picture.figure
    assert [ax.get_title() for ax in fig.axes] == ["one", "two", "", ""]
    assert [ax.texts[0].get_text() for ax in fig.axes[:2]] == [
        "diagnose:\nstuck",
        "diagnose:\nhealthy",
    ]
    floor = fig.axes[1].lines[-1]
    assert fig.axes[1].texts[1].get_text() == "minimum: 1.20" and set(floor.get_ydata()) == {1.2}
    floor.remove()
    assert picture.alt.endswith("one 1.00 and 0.40; two 1.00 and 0.80.")
    for ax, key, uniform in ((fig.axes[1], "loss", math.log(4)), (fig.axes[3], "accuracy", 0.25)):
        ghost, seen, above, held_out, above_too, level = ax.lines
        assert list(ghost.get_ydata()) == pytest.approx(
            [row["val_" + key] for row in history(4, 0.7)]
        )
        assert list(seen.get_ydata()) == [row[key] for row in runs["two"]]
        assert list(held_out.get_ydata()) == [row["val_" + key] for row in runs["two"]]
        assert level.get_ydata()[0] == pytest.approx(uniform) and not len(above.get_xdata()) + len(
            above_too.get_xdata()
        )
    names = ["healthy run, validation", "training", "validation", "uniform prediction"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == names
    plt.close("all")


def test_a_loss_above_the_panel_is_marked():
    high = [row | {"loss": 9.0 if row["epoch"] < 3 else 1.0} for row in history(4)]
    ax = draw_runs({"high": high, "low": history(4)}).figure.axes[0]
    assert (
        list(ax.lines[1].get_xdata()) == [1, 2] and max(ax.lines[1].get_ydata()) < ax.get_ylim()[1]
    )
    plt.close("all")


def test_the_losses_fill_their_panels():
    tops = [
        draw_runs({"one": history(3)}, verdicts=said).figure.axes[0].get_ylim()[1]
        for said in (None, {"one": "fine"})
    ]
    # with a verdict there is room above the curves
    assert tops == pytest.approx([1.1 * math.log(4), 1.7 * math.log(4)])
    plt.close("all")


def test_confusion_shows_counts_and_colors_mistakes_by_their_share():
    counts = torch.tensor([[8, 2], [0, 0]])
    ax = draw_confusion(counts, ["a", "b"])
    assert {text.get_text() for text in ax.texts} == {"8", "2"}
    drawn = ax.images[0].get_array()
    # the diagonal would use up the scale
    assert drawn.mask.tolist() == [[True, False], [False, True]]
    assert drawn[0, 1] == pytest.approx(0.2) and drawn[1, 0] == 0
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0}
    assert {
        label.get_rotation() for label in draw_confusion(counts, ["pizza", "b"]).get_xticklabels()
    } == {45}


def test_calibration_averages_groups_from_least_to_most_confident():
    confidence = torch.tensor([0.9, 0.5, 0.7, 0.3])
    correct = torch.tensor([True, False, True, True])
    ax = draw_calibration(confidence, correct, groups=2)
    (points, _, (bars,)) = ax.containers[0]
    assert ax.containers[0].get_label() == "2 groups of images"
    assert list(points.get_xdata()) == pytest.approx([0.4, 0.8]) and list(
        points.get_ydata()
    ) == pytest.approx([0.5, 1.0])
    heights = [high - low for (_, low), (_, high) in bars.get_segments()]
    assert heights == pytest.approx([2 * (0.25 / 2) ** 0.5, 0])


# On the further page


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
    monkeypatch.setitem(
        sys.modules,
        "IPython.display",
        SimpleNamespace(display=display, Image=lambda data, format: data),
    )
    live = LiveCurves(4)
    for row in history(4):
        live(row)
    # the second epoch came too soon, the last is drawn in any case
    assert len(shown) == 1 and len(changed) == 2
    assert "after 4 of 4 epochs" in changed[-1][1]["image/png"]["alt"]
    assert not plt.get_fignums()


def test_curves_show_the_history_with_names_and_units():
    ax = draw_curve(HISTORY, "loss")
    assert list(ax.lines[1].get_ydata()) == [2.2, 1.1, pytest.approx(2.2 / 3)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "loss (nats)")
    assert [line.get_label() for line in ax.lines] == ["training", "validation"]
    assert len(draw_curves(HISTORY).axes) == 2
    assert draw_curve(HISTORY[:1], "loss").lines[0].get_marker() == "o"  # one point is seen too


@pytest.mark.parametrize("K", [2, 10, 1000])
def test_the_loss_of_a_uniform_prediction_and_the_lowest_are_marked(K):
    (ax,) = draw_loss(K, 0.1).figure.axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    (x, y), (at, floor) = ((line.get_xdata()[0], line.get_ydata()[0]) for line in dots)
    assert (x, y) == (pytest.approx(1 / K), pytest.approx(float(torch.tensor(K).log())))
    chances, target = torch.full((K,), (1 - at) / (K - 1)), torch.tensor(0)
    chances[0] = at
    wanted = torch.nn.functional.cross_entropy(chances.log(), target, label_smoothing=0.1)
    assert floor == pytest.approx(wanted.item(), rel=1e-4)
    assert all(
        floor <= smoothed_loss(torch.tensor(other), K, 0.1)
        for other in (0.1, 0.5, at - 0.01, (1 + at) / 2)
    )


def test_the_lowest_loss_possible_is_a_dotted_line():
    history = [
        {"epoch": i, "loss": 2 / i, "val_loss": 2 / i, "accuracy": 0.5, "val_accuracy": 0.5}
        for i in (1, 2, 3)
    ]
    (line,) = (one for one in draw_curves(history, 0.5).axes[0].lines if one.get_linestyle() == ":")
    assert set(line.get_ydata()) == {0.5} and line.get_label() == "lower bound: 0.50"
    assert not [one for one in draw_curves(history).axes[0].lines if one.get_linestyle() == ":"]
