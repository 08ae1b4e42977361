"""Why did it not learn?  The history of a run, read for the usual symptoms."""

import math
from collections.abc import Callable, Mapping, Sequence
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
    """
    if not history:
        raise ValueError("an empty history cannot be diagnosed")
    rows = [row if isinstance(row, Epoch) else Epoch.from_dict(row) for row in history]
    last = next((row for row in rows if not (math.isfinite(row.loss) and math.isfinite(row.val_loss))), rows[-1])
    best = min(rows, key=lambda row: row.val_loss)
    ln_k = math.log(max(last.num_classes, 1))
    least = math.log(math.e + max(last.num_classes, 1) - 1) - 1  # loss when the right output is 1 and all others are 0
    symptom, advice = next((symptom, advice) for symptom, (seen, advice) in SYMPTOMS.items() if seen(last))
    return Diagnosis(symptom, advice.format(last=last, best=best, ln_k=ln_k, least=least))


# Loss and accuracy cannot show a softmax before the loss for few classes: with 2 of them the loss stays above 0.31, where
# label smoothing alone can keep that of a healthy training. The outputs show it always. Rows that do not come from `fit`
# have no `probabilities`, and perhaps no `val_majority_share` (NaN), and never get the diagnosis.
SYMPTOMS: dict[str, tuple[Callable[[Epoch], bool], str]] = {  # name: test and advice, the most serious first
    "not finite": (
        lambda row: not (math.isfinite(row.loss) and math.isfinite(row.val_loss)),
        "the loss is {last.loss} in epoch {last.epoch}. Lower the learning rate or warm up, look for NaN in the pixels, for "
        "a division by zero or a log of zero",
    ),
    "softmax twice": (
        lambda row: row.probabilities,
        "every output of the model is a probability distribution already (nothing below 0, sum 1), and the loss applies a "
        "softmax of its own to it. It is {last.loss:.2f} and cannot fall below {least:.2f}. Remove the softmax at the end "
        "of the model, so that it returns logits",
    ),
    "constant prediction": (
        lambda row: row.val_majority_share >= CONSTANT,
        "{last.val_majority_share:.0%} of the validation images get one and the same class, so the accuracy, "
        "{last.val_accuracy:.2f}, is only that class's share. Is the decay L2 inside Adam (use AdamW)? Is the learning rate "
        "too high or without warm-up? Do the pixels reach the model, normalized?",
    ),
    "stuck at ln K": (
        lambda row: row.loss >= STUCK * math.log(row.num_classes),
        "the loss is {last.loss:.2f}; guessing among {last.num_classes} classes costs ln {last.num_classes} = {ln_k:.2f}. "
        "Do the labels belong to their images? Is there a softmax before the loss? Is the learning rate far too low or too "
        "high? Can the model overfit a single batch?",
    ),
    "overfitting": (
        lambda row: row.accuracy - row.val_accuracy >= GAP,
        "accuracy is {last.accuracy:.2f} in training and {last.val_accuracy:.2f} in validation, whose loss was lowest in "
        "epoch {best.epoch} of {last.epoch}. More images or augmentation, more decay, a smaller model, or fewer epochs",
    ),
    "underfitting": (
        lambda row: row.accuracy < POOR,
        "accuracy is {last.accuracy:.2f} even on the training images, {last.val_accuracy:.2f} in validation. More epochs, a "
        "larger model, a higher or a lower learning rate, less augmentation or less decay; are the pixels normalized?",
    ),
    "healthy": (
        lambda row: True,
        "accuracy {last.accuracy:.2f} in training and {last.val_accuracy:.2f} in validation: no usual fault",
    ),
}
