"""What changes since 2020 are worth: the stored trainings, and the experiment that made them."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tools.experiments import since_2020 as experiment
from vit_helpers.ablation.comparison import effect_of
from vit_helpers.results import read_results
from vit_helpers.results.since_2020 import AVERAGED, BLOCKS, compare_changes, with_averages

RUNS = read_results("since_2020")
COSTS = read_results("since_2020_costs")


def row_of(change, seed, right, loss, equal="steps"):
    losses = " ".join(f"{x:.4f}" for x in loss)
    correct = " ".join(f"{x:.0f}" for x in right)
    return {
        "task": "scattered_digits", "change": change, "equal": equal, "seed": seed,
        "loss": 0, "accuracy": 0, "losses": losses, "correct": correct,
        "ema_loss": 0, "ema_accuracy": 0, "ema_losses": losses, "ema_correct": correct,
    }  # fmt: skip


def test_a_difference_has_the_errors_of_ten():
    random = np.random.default_rng(0)
    right = {name: random.integers(0, 21, (5, BLOCKS)) for name in ("plain", "new")}
    rows = [row_of(n, s, right[n][s], random.random(BLOCKS)) for n in right for s in range(5)]
    runs = pd.DataFrame(rows[::-1])  # in any order
    found = compare_changes(runs, "scattered_digits", ["new"], "steps", "accuracy").loc["new"]
    wanted = effect_of((right["new"] - right["plain"]) / 20)
    assert found["difference"] == pytest.approx(wanted.difference)
    assert found["both"] == pytest.approx(wanted.both)
    backwards = compare_changes(
        runs, "scattered_digits", ["plain"], "steps", "accuracy", baseline="new"
    )
    assert backwards.loc["plain", "difference"] == pytest.approx(-wanted.difference)
    with pytest.raises(ValueError, match="no runs of 'other'"):
        compare_changes(runs, "scattered_digits", ["other"], "steps", "loss")


def test_equal_time_falls_back_on_equal_steps_only_where_there_is_nothing_else():
    ones, twos, threes = (np.full(BLOCKS, x) for x in (1, 2, 3))
    rows = [row_of("plain", s, ones, ones) for s in (0, 1)]
    rows += [row_of("new", s, ones, twos + s) for s in (0, 1)]
    runs = pd.DataFrame(rows)

    def difference(runs):
        found = compare_changes(runs, "scattered_digits", ["new"], "time", "loss")
        return found["difference"].item()

    assert difference(runs) == pytest.approx(1.5)
    rows += [row_of("new", s, ones, threes + s, "time") for s in (0, 1)]
    assert difference(pd.DataFrame(rows)) == pytest.approx(2.5)


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


def test_the_blocks_of_a_row_give_its_mean():
    reported = RUNS[RUNS["equal"] != "tuning"]
    for _, row in with_averages(reported).iterrows():
        losses = np.array(row["losses"].split(), dtype=float)
        right = np.array(row["correct"].split(), dtype=float)
        assert len(losses) == len(right) == BLOCKS
        assert losses.mean() == pytest.approx(row["loss"], abs=1e-4)
        images = 1000 if row["task"] == "scattered_digits" else 10_000
        assert right.sum() / images == pytest.approx(row["accuracy"], abs=1e-6)
    assert AVERAGED in set(with_averages(reported)["change"])


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
