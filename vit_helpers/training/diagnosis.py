"""Why did a model not learn?  The usual symptoms, found in the history of a run."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vit_helpers.training.measurements import Epoch

CONSTANT = 0.98  # fraction of the validation images that get one and the same prediction
FEW = 30  # validation images, which may get the same class by chance
RARE = 0.9  # share of a class beside which others are so rare that a healthy training may miss them
STUCK = 0.97  # of the way from the least loss to that of a constant prediction
ROOM = (
    0.1  # nats between these two, without which the loss cannot show whether anything was learned
)
CLOSE = 0.01  # how far, in proportion, a loss that sits at a logarithm may be from it
GAP = 0.1  # between training and validation accuracy
RISEN = 1.1  # times its lowest: a validation loss so high shows that a gap is not chance
POOR = 0.9  # training accuracy
ADVICE = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)  # {symptom: what to try}


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
             "stuck at ln(COUNT)" for another count that the run knows, "no better than guessing", "overfitting",
             "underfitting", "not validated" or "healthy"
    raises : ValueError when the history is empty

    Differences that chance alone could produce in a validation split of this size are not reported.
    """
    if not history:
        raise ValueError("an empty history cannot be diagnosed")
    rows = [row if isinstance(row, Epoch) else Epoch.from_dict(row) for row in history]
    last = next((row for row in rows if not_finite(row)), rows[-1])
    best = min(rows, key=lambda row: row.val_loss)
    K = max(last.num_classes, 1)
    least = math.log(math.e + K - 1) - 1  # loss when the right output is 1 and all others are 0
    count, value = stuck_count(rows) or ("", 0)
    guess, ln_k, ln = guess_loss(last), math.log(K), math.log(max(value, 1))
    shares = f", or {guess:.2f} by their shares" if 0 < guess < ln_k - 0.01 else ""
    words = {
        "last": last,
        "best": best,
        "count": count,
        "value": value,
        "ln": ln,
        "ln_k": ln_k,
        "shares": shares,
    }
    symptom = find_symptom(last, count, best.val_loss)
    return Diagnosis(symptom.format(count=count), ADVICE[symptom].format(least=least, **words))


def find_symptom(row: Epoch, count: str, lowest: float) -> str:
    """The most serious symptom, a key of diagnosis.toml.  count: see `stuck_count`; lowest: the lowest validation loss

    Loss and accuracy cannot show a softmax before the loss for few classes: with 2 of them the loss stays above 0.31, where
    label smoothing alone can keep that of a healthy training. The outputs always show it.
    """
    chance, largest = is_chance(row), row.val_largest_class
    gap = GAP + (margin(row.val_accuracy, row.val_images) if row.val_loss < RISEN * lowest else 0)
    if not_finite(row):
        return "not finite"
    if row.probabilities:
        return "softmax twice"
    if count not in ("", "classes"):
        return "stuck at ln({count})"
    unlearned = not row.val_images or (chance and (largest <= RARE or is_stuck(row)))
    few = (
        0 < row.val_images < FEW and row.accuracy >= POOR
    )  # what fits its training images is not constant
    if unlearned and row.val_majority_share >= CONSTANT > row.val_accuracy and not few:
        return "constant prediction"
    if is_stuck(row) or count == "classes":
        return "stuck at ln K"
    if row.val_images and chance and largest <= RARE and not row.accuracy >= POOR:
        return "no better than guessing"
    if row.accuracy - row.val_accuracy >= gap:
        return "overfitting"
    if (
        row.accuracy < POOR
        and not row.val_accuracy + margin(row.val_accuracy, row.val_images, 3) >= POOR
    ):
        return "underfitting"
    return "not validated" if math.isnan(row.val_accuracy) else "healthy"


def not_finite(row: Epoch) -> bool:
    """Whether a loss is not finite; a validation loss counts only if there was a validation, which has an accuracy."""
    return not math.isfinite(row.loss) or (
        not math.isfinite(row.val_loss) and not math.isnan(row.val_accuracy)
    )


def guess_loss(row: Epoch) -> float:
    """The lowest loss of a constant prediction; ln K if the class frequencies are unknown, 0 if it is not cross-entropy."""
    return row.guess_loss if row.batch_size else math.log(max(row.num_classes, 1))


def margin(share: float, images: int, errors: float = 2) -> float:
    """Two standard errors of a fraction of so many images; 0 if their number is unknown"""
    return errors * math.sqrt(share * (1 - share) / images) if images else 0.0


def is_chance(row: Epoch) -> bool:
    """Whether always predicting the most frequent class is as accurate in validation, within the error of so many images."""
    share = row.val_largest_class if row.val_images else 1 / max(row.num_classes, 1)
    return (
        row.val_accuracy <= share + margin(share, row.val_images)
        and not row.val_accuracy == 1 > share
    )


def is_stuck(row: Epoch) -> bool:
    """Whether the loss is that of a constant prediction, although lower is possible, and no validation accuracy is high"""
    guess, least = guess_loss(row), row.least_loss
    learned = row.val_accuracy >= POOR and not is_chance(row)
    untrained = (
        row.epoch == 1 and 0 < row.images <= row.batch_size
    )  # the loss of the first step is measured before it
    return (
        not untrained
        and guess - least >= ROOM
        and row.loss >= least + STUCK * (guess - least)
        and not learned
    )


def stuck_count(rows: Sequence[Epoch]) -> tuple[str, int] | None:
    """The count at whose logarithm a loss other than cross-entropy has been for three epochs, with its name, or None."""
    last = rows[-1]
    learned = last.val_accuracy > 0 and not is_chance(last)
    if len(rows) < 2 or not last.images or last.guess_loss or learned:
        return None
    size, full = last.batch_size, last.images // last.batch_size
    rest = last.images - full * size  # of the images, in a last batch that is smaller
    counts = {
        "classes": last.num_classes,
        "batch size": size,
        "tokens": last.tokens,
        "patches": last.tokens - 1,
    }
    counts |= {"training images": last.images, "validation images": last.val_images}
    for name, count in counts.items():
        log = math.log(max(count, 1))
        if name == "batch size":
            log = (full * size * log + rest * math.log(max(rest, 1))) / last.images
        if log > 0 and all(abs(row.loss - log) <= CLOSE * log for row in rows[-3:]):
            return name, count
    return None
