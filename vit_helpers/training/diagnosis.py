"""Why did it not learn?  The history of a run, read for the usual symptoms."""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
    symptom = next(symptom for symptom, seen in SYMPTOMS.items() if seen(last))
    return Diagnosis(symptom, ADVICE[symptom].format(last=last, best=best, ln_k=ln_k, least=least))


# Loss and accuracy cannot show a softmax before the loss for few classes: with 2 of them the loss stays above 0.31, where
# label smoothing alone can keep that of a healthy training. The outputs show it always. Rows that do not come from `fit`
# have no `probabilities`, and perhaps no `val_majority_share` (NaN), and never get the diagnosis.
SYMPTOMS: dict[str, Callable[[Epoch], bool]] = {  # the most serious first
    "not finite": lambda row: not (math.isfinite(row.loss) and math.isfinite(row.val_loss)),
    "softmax twice": lambda row: row.probabilities,
    "constant prediction": lambda row: row.val_majority_share >= CONSTANT,
    "stuck at ln K": lambda row: row.loss >= STUCK * math.log(row.num_classes),
    "overfitting": lambda row: row.accuracy - row.val_accuracy >= GAP,
    "underfitting": lambda row: row.accuracy < POOR,
    "healthy": lambda row: True,
}
ADVICE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))  # {symptom: what to try}
