"""Figures of the training loop in notebook 07: lines, paths, schedules and repairs."""

import matplotlib.pyplot as plt
import pytest
import torch
from figures import fits

from vit_helpers.plots import training_loop
from vit_helpers.plots.training_loop import draw_loop, draw_paths


def texts(picture):
    return [text.get_text() for text in picture.figure.findobj(plt.Text) if text.get_text()]


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
