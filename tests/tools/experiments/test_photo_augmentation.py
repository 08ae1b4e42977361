"""Which augmentation photos get: effects paired by seed, and a training of a moment."""

import pandas as pd
import pytest

from tools.experiments import photo_augmentation

pytestmark = pytest.mark.dev


def row(augment, seed, accuracy):
    return {"case": "a case", "augment": augment, "seed": seed, "accuracy": accuracy}


def test_effects_are_paired_by_seed_in_points():
    rows = [
        row("crop", 0, 0.5),
        row("crop", 1, 0.7),
        row("photos", 1, 0.73),
        row("photos", 0, 0.51),
    ]
    (line,) = photo_augmentation.summarize(pd.DataFrame(rows)).to_dict("records")
    assert line == {"case": "a case", "seeds": 2, "crop": "0.600", "photos": "+2.0 (1.0)"}


@pytest.mark.parametrize("augment", photo_augmentation.CANDIDATES)
def test_a_training_is_evaluated_on_new_photos(few_photos, augment):
    row = photo_augmentation.train_once("cifar10", "float32", "a moment", augment, seed=0)
    assert row["train_images"] == 14 and row["new_images"] == 150
    assert 0 <= row["accuracy"] <= 1
