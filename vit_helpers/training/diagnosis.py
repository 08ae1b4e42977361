"""Why did it not learn?  The history of a run, read for the usual symptoms."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vit_helpers.training.measurements import Epoch

CONSTANT = 0.98  # fraction of the validation images that get one and the same prediction
STUCK = 0.97  # of ln K
GAP = 0.1  # between training and validation accuracy
POOR = 0.9  # training accuracy


class Diagnosis(NamedTuple):
    """symptom: a name;  advice: what was seen, and what to try"""

    symptom: str
    advice: str

    def __str__(self) -> str:
        return f"{self.symptom}: {self.advice}"


def diagnose(history: Sequence[Epoch | Mapping[str, Any]]) -> Diagnosis:
    """Name the symptom of a run from its history, the most serious first.

    history: what `fit` returns, or dicts with the same names
    returns: `Diagnosis`; its symptom is "not finite", "softmax twice", "constant prediction", "stuck at ln K",
             "overfitting", "underfitting" or "healthy"
    raises : ValueError when the history is empty

    >>> row = {"epoch": 1, "loss": 2.3, "val_loss": 2.3, "accuracy": 0.1, "val_accuracy": 0.1}
    >>> diagnose([row | {"val_majority_share": 1.0, "num_classes": 10}]).symptom
    'constant prediction'
    """
    if not history:
        raise ValueError("an empty history cannot be diagnosed")
    rows = [row if isinstance(row, Epoch) else Epoch.from_dict(row) for row in history]
    return next(found for symptom in SYMPTOMS if (found := symptom(rows)))


def not_finite(history: list[Epoch]) -> Diagnosis | None:
    """A loss that is NaN or infinite"""
    for row in history:
        if not (math.isfinite(row.loss) and math.isfinite(row.val_loss)):
            return Diagnosis(
                "not finite",
                f"the loss is {row.loss} in epoch {row.epoch}. Lower the learning rate or warm up, look for NaN in "
                "the pixels, for a division by zero or a log of zero",
            )
    return None


def softmax_twice(history: list[Epoch]) -> Diagnosis | None:
    """A model whose outputs are probabilities, in a loss that applies a softmax of its own.

    Loss and accuracy cannot show this for few classes: with 2 of them the loss stays above 0.31, where label smoothing alone
    can keep that of a healthy training. The outputs show it for any number of classes, label smoothing and accuracy. Rows
    without `probabilities`, which do not come from `fit`, never get this diagnosis.
    """
    last = history[-1]
    if not last.probabilities:
        return None
    least = math.log(math.e + last.num_classes - 1) - 1  # when the right output is 1 and all others are 0
    return Diagnosis(
        "softmax twice",
        "every output of the model is a probability distribution already (nothing below 0, sum 1), and the loss applies a "
        f"softmax of its own to it. It is {last.loss:.2f} and cannot fall below {least:.2f}. Remove the softmax at the "
        "end of the model, so that it returns logits",
    )


def constant_prediction(history: list[Epoch]) -> Diagnosis | None:
    """The same prediction for (nearly) every image"""
    last = history[-1]
    if not last.val_majority_share >= CONSTANT:  # nor where it was not measured
        return None
    return Diagnosis(
        "constant prediction",
        f"{last.val_majority_share:.0%} of the validation images get one and the same class, so the accuracy, "
        f"{last.val_accuracy:.2f}, is only that class's share. Is the decay L2 inside Adam (use AdamW)? Is the learning "
        "rate too high or without warm-up? Do the pixels reach the model, normalized?",
    )


def stuck(history: list[Epoch]) -> Diagnosis | None:
    """A training loss that never left that of a uniform prediction"""
    last = history[-1]
    K, ln_k = last.num_classes, math.log(last.num_classes)
    if last.loss < STUCK * ln_k:
        return None
    return Diagnosis(
        "stuck at ln K",
        f"the loss is {last.loss:.2f}; guessing among {K} classes costs ln {K} = {ln_k:.2f}. Do the labels belong to "
        "their images? Is there a softmax before the loss? Is the learning rate far too low or too high? Can the model "
        "overfit a single batch?",
    )


def overfitting(history: list[Epoch]) -> Diagnosis | None:
    """Training still improves where validation does not"""
    last, best = history[-1], min(history, key=lambda row: row.val_loss)
    if last.accuracy - last.val_accuracy < GAP:
        return None
    return Diagnosis(
        "overfitting",
        f"accuracy is {last.accuracy:.2f} in training and {last.val_accuracy:.2f} in validation, whose loss was "
        f"lowest in epoch {best.epoch} of {last.epoch}. More images or augmentation, more decay, a smaller model, "
        "or fewer epochs",
    )


def underfitting(history: list[Epoch]) -> Diagnosis | None:
    """Many mistakes on the training images, too"""
    last = history[-1]
    if last.accuracy >= POOR:
        return None
    return Diagnosis(
        "underfitting",
        f"accuracy is {last.accuracy:.2f} even on the training images, {last.val_accuracy:.2f} in validation. "
        "More epochs, a larger model, a higher or a lower learning rate, less augmentation or less decay; are the "
        "pixels normalized?",
    )


def healthy(history: list[Epoch]) -> Diagnosis | None:
    """None of the above"""
    last = history[-1]
    return Diagnosis(
        "healthy",
        f"accuracy {last.accuracy:.2f} in training and {last.val_accuracy:.2f} in validation: no usual fault",
    )


SYMPTOMS = (not_finite, softmax_twice, constant_prediction, stuck, overfitting, underfitting, healthy)
