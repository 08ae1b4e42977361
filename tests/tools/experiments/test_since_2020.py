"""The experiment on changes since 2020: its trainings, and what it changes in them."""

import pytest
import torch
from torch import nn

from tools.experiments import since_2020 as experiment
from vit_helpers.results import read_results

pytestmark = pytest.mark.dev

RUNS = read_results("since_2020")


COSTS = read_results("since_2020_costs")


@pytest.mark.parametrize("task", experiment.TASKS)
def test_every_change_was_trained_with_five_seeds_at_the_best_rate_of_another(task):
    for change, declared in experiment.CHANGES.items():
        runs = RUNS[(RUNS["task"] == task) & (RUNS["change"] == change)]
        steps = runs[runs["equal"] == "steps"]
        assert sorted(steps["seed"]) == [0, 1, 2, 3, 4], change
        tuned = RUNS[(RUNS["task"] == task) & (RUNS["equal"] == "tuning")]
        tuned = tuned[tuned["change"] == declared.get("rate_of", change)].set_index("lr")["loss"]
        (rate,) = set(runs[runs["equal"] != "tuning"]["lr"])
        assert rate == tuned.idxmin(), change
        assert tuned.index.min() < rate < tuned.index.max(), "the best has neighbors on both sides"
        assert set(steps["epochs"]) == {experiment.epochs_of(task, change)}
        assert not set(RUNS[RUNS["equal"] == "tuning"]["seed"]) & {0, 1, 2, 3, 4}


@pytest.mark.parametrize("task", experiment.TASKS)
def test_equal_time_is_that_of_the_measured_steps(task):
    for _, cost in COSTS[COSTS["task"] == task].iterrows():
        chosen = RUNS[(RUNS["task"] == task) & (RUNS["change"] == cost["change"])]
        steps = experiment.epochs_of(task, cost["change"])
        wanted = max(1, round(steps / cost["ratio"]))
        timed = chosen[chosen["equal"] == "time"]
        assert set(timed["epochs"]) == ({wanted} if wanted != steps else set()), cost["change"]


def test_stochastic_depth_leaves_out_whole_branches_of_single_images_in_training_only():
    _, _, model = experiment.prepare("scattered_digits", "stochastic depth 0.1", 0, 1e-3, 1)
    first, last = model.get_submodule("blocks.0"), model.get_submodule("blocks.1")
    x = torch.randn(4000, 5, 64)
    model.train()
    outputs = last.attn(x)
    dropped = (outputs == 0).flatten(1).all(dim=1)
    assert dropped.float().mean().item() == pytest.approx(0.1, abs=0.02)
    whole = last.eval().attn(x)
    torch.testing.assert_close(outputs[~dropped], whole[~dropped] / 0.9)
    assert not (first.train().attn(x) == 0).flatten(1).all(dim=1).any()


def test_rand_augment_changes_each_image_on_its_own():
    torch.manual_seed(0)
    image = torch.rand(1, 1, 24, 24).round(decimals=1)
    many = experiment.rand_augment(image.expand(20, -1, -1, -1))
    assert many.shape == (20, 1, 24, 24)
    assert many.min() >= 0
    assert many.max() <= 1
    assert len({tuple(one.flatten().tolist()) for one in many}) > 10


def test_the_average_reaches_back_an_epoch():
    model = nn.Linear(1, 1, bias=False)
    average = experiment.Average(model, steps=4)
    run = type("Run", (), {"model": model})()
    values = []
    for value in (1.0, 2.0, 3.0):
        model.weight.data.fill_(value)
        average.on_step_end(run)
        values.append(average.model.module.weight.item())
    assert values == pytest.approx([1, 1.25, 1.6875])
