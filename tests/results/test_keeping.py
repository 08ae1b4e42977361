"""The stored trainings of which weights to keep: the rules, and what they are worth."""

import pandas as pd
import pytest

from tools.experiments import keeping

pytestmark = pytest.mark.dev


ROW = {
    "case": "a case",
    "validation_images": 100,
    "validation": "0.50 0.62 0.60 0.60",
    "loss": "0.9 0.7 0.6 0.8",
    "new": "0.40 0.50 0.55 0.60",
    "ema_1": "0.61 0.58",
    "ema_3": "0.60 0.57",
}


def test_rules_choose_by_validation_and_are_scored_on_new_images():
    assert keeping.choose(ROW) == {
        "last": 0.60,
        "best accuracy": 0.50,
        "best beyond one error": 0.60,  # two images of a hundred are within an error
        "lowest loss": 0.55,
        "average over 1 epoch": 0.58,
        "average over 3 epochs": 0.57,
    }
    many = keeping.choose(ROW | {"validation_images": 10_000})
    assert many["best beyond one error"] == 0.50


def test_of_equal_accuracies_the_lowest_loss_is_the_best():
    row = ROW | {"validation": "0.60 0.60 0.60 0.50"}
    assert keeping.choose(row)["best accuracy"] == 0.55


def test_effects_are_differences_from_the_last_weights_in_points():
    other = ROW | {"new": "0.40 0.52 0.55 0.60"}
    (line,) = keeping.summarize(pd.DataFrame([ROW, other])).to_dict("records")
    assert line["seeds"] == 2 and line["last"] == "0.600"
    assert line["best accuracy"] == "-9.0 (1.0)" and line["lowest loss"] == "-5.0 (0.0)"
