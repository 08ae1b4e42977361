"""What changes since 2020 are worth: the stored trainings, and the experiment that made them."""

import numpy as np
import pandas as pd
import pytest

from vit_helpers.ablation.comparison import effect_of
from vit_helpers.results import read_results
from vit_helpers.results.since_2020 import AVERAGED, BLOCKS, compare_changes, with_averages

RUNS = read_results("since_2020")


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
