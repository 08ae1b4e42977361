"""Figures of notebook 07: runs, counts and paths as they are, and curves that grow in one place."""

import math
import sys
import warnings
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from vit_helpers.plots import training, training_evidence, training_loop
from vit_helpers.plots.training import LiveCurves, draw_calibration, draw_confusion, draw_runs
from vit_helpers.plots.training_loop import draw_loop, draw_paths


def texts(picture):
    return [text.get_text() for text in picture.figure.findobj(plt.Text) if text.get_text()]


def fits(picture):
    """Whether a picture is drawn without a warning of text that leaves its canvas or overlaps"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return bool(picture.image.data)


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


def test_the_loop_shows_the_batch_and_every_line():
    labels = [3, 1, 4, 1]
    fig = draw_loop(torch.rand(4, 1, 8, 8), labels).figure
    texts = [text.get_text() for text in fig.findobj(plt.Text)]
    assert "labels 3, 1, 4, 1" in texts and sum(len(ax.images) for ax in fig.axes) == 4
    for number in range(1, 8):
        assert texts.count(str(number)) >= 2  # at its line of code, and in the circle
    code = [line for number, line, _ in training_loop.CODE if number]
    assert [texts.index(line) for line in code] == sorted(texts.index(line) for line in code)
    curve = next(line for line in fig.findobj(plt.Line2D) if len(line.get_ydata()) == 80)
    assert list(curve.get_ydata())[:8] == [step / 8 for step in range(1, 9)]
    assert curve.get_ydata()[-1] < 0.01
    plt.close("all")


def test_a_case_has_a_line_for_each_value_that_it_takes():
    picture = training_loop.draw_case([0.5, 0.25, 0.25, 0.5])
    (ax,) = picture.figure.axes
    assert [line.get_ydata()[0] for line in ax.lines[:-1]] == [0.25, 0.5]
    assert list(ax.lines[-1].get_ydata()) == [0.5, 0.25, 0.25, 0.5]
    assert ax.get_title(loc="left") == "4 epochs, and only 2 values"
    assert {"0.2500", "0.5000"} <= {*texts(picture)} and fits(picture)


def test_paths_are_drawn_as_they_are():
    path = torch.tensor([[-1.0, 1.0], [-0.5, 0.2], [0.0, 0.0]])
    picture = draw_paths({"SGD": path, "Adam": path / 2}, (1, 25))
    first, second = picture.figure.axes
    assert torch.tensor(list(zip(*first.lines[0].get_data(), strict=True))).allclose(path)
    assert torch.tensor(list(zip(*second.lines[0].get_data(), strict=True))).allclose(path / 2)
    assert [ax.get_title(loc="left") for ax in (first, second)] == ["SGD", "Adam"]
    assert first.get_aspect() == 1  # equal steps in both weights are drawn at 45 degrees
    assert fits(picture)


def test_a_path_that_diverges_does_not_shrink_the_others():
    path = torch.tensor([[-1.2, 1.0], [0.0, -40.0]])
    picture = draw_paths({"SGD": path, "Adam": path / 40}, (1, 25))
    for ax in picture.figure.axes:
        assert ax.get_ylim() == pytest.approx((-0.95, 1.15))


def test_a_decayed_weight_is_drawn_with_the_optimizers_at_the_lines():
    decayed = {"AdamW": [1 - step / 4000 for step in range(1000)], "Adam": [0.5] * 1000}
    picture = training_loop.draw_decay(decayed, "a title")
    assert {"AdamW", "Adam", "a title"} <= {*texts(picture)}
    _, *lines = picture.figure.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == list(decayed.values())
    assert picture.alt.endswith("0.75 with AdamW, 0.50 with Adam.") and fits(picture)


def test_schedules_have_their_names_at_their_lines():
    factors = {"cosine": [0.5, 1, 0.5, 0.1], "linear": [0.5, 1, 0.6, 0.3], "constant": [1.0] * 4}
    picture = training_loop.draw_schedules(factors)
    lines = picture.figure.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == list(factors.values())
    assert {*factors} <= {*texts(picture)}


def test_a_repair_shows_each_seed_and_each_constant_prediction():
    runs = {"Adam": torch.full((3, 20), 0.4), "AdamW": torch.linspace(0.3, 0.9, 60).view(3, 20)}
    picture = training_loop.draw_repair(runs, {"always 3": 0.33, "always 8": 0.41})
    for ax, accuracies in zip(picture.figure.axes, runs.values(), strict=True):
        levels, seeds = ax.lines[:2], ax.lines[2:]
        assert [line.get_ydata()[0] for line in levels] == [0.33, 0.41]
        assert torch.tensor([list(line.get_ydata()) for line in seeds]).allclose(accuracies)
    assert "Adam: 0.40, 0.40, 0.40" in picture.alt and fits(picture)


def test_a_repair_leaves_out_no_seed():
    picture = training_loop.draw_repair({"Adam": torch.full((5, 20), 0.4)}, {"always 3": 0.33})
    assert len(picture.figure.axes[0].lines) == 1 + 5


# On the further page


def test_spectra_have_a_logarithmic_scale_and_names_at_their_lines():
    spectra = {"gradient": torch.tensor([1.0, 0.1]), "step": torch.tensor([1.0, 0.9])}
    picture = training_evidence.draw_spectra(spectra)
    (ax,) = picture.figure.axes
    assert ax.get_yscale() == "log" and list(ax.lines[0].get_xdata()) == [1, 2]
    assert {*spectra} <= {*texts(picture)} and fits(picture)


def test_the_most_frequent_mistake_is_in_the_title():
    counts = torch.tensor([[8, 1, 0], [3, 7, 0], [0, 2, 9]])
    picture = training_evidence.draw_mistakes(counts, ["a", "b", "c"])
    assert "Most frequent mistake: b classified as a" in texts(picture)
    assert "3 of the 6 mistakes" in picture.alt and fits(picture)


def test_hard_digits_are_shown_smooth_and_as_pixels():
    picture = training_evidence.draw_hardest(torch.rand(2, 1, 8, 8), [3, 4], [5, 6])
    top, bottom = picture.figure.axes[:2], picture.figure.axes[2:]
    assert [ax.images[0].get_interpolation() for ax in top] == ["bicubic"] * 2
    assert "bicubic" not in {ax.images[0].get_interpolation() for ax in bottom}
    assert {"label 3", "label 4", "says 5", "says 6"} <= {*texts(picture)} and fits(picture)


def test_each_calibrated_model_has_a_panel_with_its_mean_gap():
    models = {name: (torch.full((40,), 0.9), torch.ones(40)) for name in ("one", "other")}
    picture = training_evidence.draw_calibrations(models, groups=4)
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == ["one", "other"]
    assert "one: accuracy less confidence +0.10 on average" in picture.alt and fits(picture)


def test_accuracies_by_size_are_means_and_seeds():
    series = {"CNN": {500: [0.7, 0.9], 5000: [0.9]}, "ViT": {500: [0.6], 5000: [0.7]}}
    picture = training_evidence.draw_by_size(series)
    (ax,) = picture.figure.axes
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.8, 0.9])
    assert ax.get_xscale() == "log" and {"CNN", "ViT", "500", "5k"} <= {*texts(picture)}
    assert fits(picture)


def test_intervals_that_do_not_cover_other_seeds_are_dotted():
    leads = {"one": {500: (2, 1, 3), 5000: (3, 2, 4)}, "other": {500: (1, 0.5, 1.5)}}
    picture = training_evidence.draw_cnn_lead(leads, images_only=[5000])
    bars = [line for line in picture.figure.axes[0].lines[1:] if len(line.get_ydata()) == 2]
    assert [list(bar.get_ydata()) for bar in bars] == [[1, 3], [2, 4], [0.5, 1.5]]
    assert [bar.get_linestyle() for bar in bars] == ["-", ":", "-"]
    first, other = picture.figure.axes[0].lines[2], picture.figure.axes[0].lines[6]
    assert first.get_markerfacecolor() != "white" == other.get_markerfacecolor()


def test_fixes_are_drawn_from_the_best():
    fixes = pd.DataFrame(
        {"difference": [0.1, 0.5], "low": [0.0, 0.4], "high": [0.2, 0.6]}, index=["a", "b"]
    )
    picture = training_evidence.draw_fixes(fixes, "a title")
    (ax,) = picture.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "a"]
    assert list(ax.lines[1].get_xdata()) == pytest.approx([40, 60])
    assert {"+50.0", "+10.0", "a title"} <= {*texts(picture)} and fits(picture)


def test_lines_of_an_interaction_have_the_means_and_intervals_of_each_level():
    points = {"AdamW": [(0.8, 0.7, 0.9), (0.9, 0.8, 1.0)], "L2": [(0.1, 0.0, 0.2), (0.6, 0.5, 0.7)]}
    picture = training_evidence.draw_interaction({"digits": points}, ["all", "matrices"], [0.95])
    (ax,) = picture.figure.axes
    dotted, line, *_ = ax.lines
    assert set(dotted.get_ydata()) == {0.95} and list(line.get_ydata()) == [0.8, 0.9]
    assert {"AdamW", "L2", "no decay", "digits"} <= {*texts(picture)} and fits(picture)
    assert "digits: AdamW 0.80 to 0.90, L2 0.10 to 0.60" in picture.alt


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
