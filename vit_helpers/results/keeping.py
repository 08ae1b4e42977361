"""Which weights of a training to keep, by rules that see its own small validation split only."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

HORIZONS = (1, 3)  # epochs that a moving average of the weights (EMA) reaches back


def keeping_effects(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The gain of each rule over the last weights, on new images, by case: {rule: Series}

    A gain is a difference of accuracies, and the mean over the seeds.
    table: as `read_results` reads "keeping"
    """
    kept = pd.DataFrame([choose(row) for _, row in table.iterrows()])
    gains = kept.drop(columns="last").sub(kept["last"], axis=0)
    means = gains.groupby(table["case"], sort=False).mean()
    return {rule: means[rule] for rule in means}


def best(validation: np.ndarray, loss: np.ndarray, images: int) -> int:
    """The epoch with the highest accuracy; of equal ones the lowest loss"""
    return int(np.lexsort((-loss, validation))[-1])


def last(validation: np.ndarray, loss: np.ndarray, images: int) -> int:
    return len(validation) - 1


def beyond_one_error(validation: np.ndarray, loss: np.ndarray, images: int) -> int:
    """The best epoch if it is ahead of the last by more than a standard error of so many images"""
    epoch = best(validation, loss, images)
    error = (validation[epoch] * (1 - validation[epoch]) / images) ** 0.5
    return epoch if validation[epoch] - validation[-1] > error else len(validation) - 1


def lowest_loss(validation: np.ndarray, loss: np.ndarray, images: int) -> int:
    return int(loss.argmin())


RULES: dict[str, Callable[[np.ndarray, np.ndarray, int], int]] = {
    "last": last,
    "best accuracy": best,
    "best beyond one error": beyond_one_error,
    "lowest loss": lowest_loss,
}


def choose(row: Any) -> dict[str, float]:
    """The accuracy on new images of what each rule keeps, for a row of the stored table."""
    numbers = {
        name: np.array([float(x) for x in str(row[name]).split()])
        for name in ("validation", "loss", "new", *(f"ema_{h}" for h in HORIZONS))
    }
    kept = {
        name: numbers["new"][rule(numbers["validation"], numbers["loss"], row["validation_images"])]
        for name, rule in RULES.items()
    }
    return kept | {
        f"average over {h} epoch{'s' * (h > 1)}": numbers[f"ema_{h}"][1] for h in HORIZONS
    }
