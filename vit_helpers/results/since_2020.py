"""What changes since 2020 are worth in small trainings, with errors over seeds and images."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from vit_helpers.ablation.comparison import effect_of, holm

PLAIN = "plain"
AVERAGED = "average of the weights (EMA)"
BLOCKS = 50  # of the test images; image i is in block i modulo 50
TEST_IMAGES = {"scattered_digits": 1000, "fashion_mnist": 10_000}


def with_averages(runs: pd.DataFrame) -> pd.DataFrame:
    """Add what the moving average of the plain model's weights scores, as one more change."""
    plain = runs[(runs["change"] == PLAIN) & (runs["equal"] == "steps")]
    own = [name for name in runs if not name.startswith("ema_")]
    scores = {f"ema_{name}": name for name in ("loss", "accuracy", "losses", "correct")}
    averages = plain.drop(columns=list(scores.values())).rename(columns=scores)
    return pd.concat([runs[own], averages.assign(change=AVERAGED)[own]], ignore_index=True)


def compare_changes(
    runs: pd.DataFrame, task: str, changes: Sequence[str], equal: str, measure: str
) -> pd.DataFrame:
    """Compare changes with the plain model, paired by seed and by block of test images.

    runs   : as `read_results` reads "since_2020"
    equal  : "steps", or "time"; where a step costs the same, both are the same trainings
    measure: "accuracy", a fraction, or "loss", the cross-entropy in nats
    returns: indexed by change: what `Effect.row` has, mean, p, and holm, for these changes
    """
    plain = scores_of(runs, task, PLAIN, "steps", measure)
    lines = {}
    for change in changes:
        scores = scores_of(runs, task, change, equal, measure)
        effect = effect_of(scores - plain)
        lines[change] = {**effect.row(), "mean": scores.mean(), "p": effect.p}
    table = pd.DataFrame.from_dict(lines, orient="index").rename_axis("change")
    return table.assign(holm=holm(table["p"]))


def scores_of(
    runs: pd.DataFrame, task: str, change: str, equal: str, measure: str
) -> npt.NDArray[np.float64]:
    """Losses or accuracies of every block of test images, sorted by seed: (seeds, 50)

    raises: ValueError if there are none
    """
    chosen = runs[(runs["task"] == task) & (runs["change"] == change)]
    rows = chosen[chosen["equal"] == equal]
    if equal == "time" and rows.empty:  # a step costs as much as the plain model's
        rows = chosen[chosen["equal"] == "steps"]
    if rows.empty:
        raise ValueError(f"no runs of {change!r} on {task!r}")
    column = {"loss": "losses", "accuracy": "correct"}[measure]
    blocks = np.array([text.split() for text in rows.sort_values("seed")[column]], dtype=float)
    return blocks if measure == "loss" else blocks * BLOCKS / TEST_IMAGES[task]


def summarize(
    runs: pd.DataFrame, task: str, changes: Sequence[str], times: bool = True
) -> pd.DataFrame:
    """Write the differences from the plain model as text, with the errors of both in parentheses.

    times  : whether the changes were also trained in equal time
    returns: indexed by change: accuracy in points, at equal steps and in equal time, and loss
    """
    asked = [("steps", "accuracy", 100), ("time", "accuracy", 100), ("steps", "loss", 1)]
    names = ["points at equal steps", "points in equal time", "loss at equal steps"]
    columns = {}
    for name, (equal, measure, unit) in zip(names, asked, strict=True):
        if times or equal == "steps":
            effects = compare_changes(runs, task, changes, equal, measure)
            digits = 1 if measure == "accuracy" else 2
            columns[name] = [
                f"{signed(unit * row['difference'], digits)} ({unit * row['both']:.{digits}f})"
                for _, row in effects.iterrows()
            ]
    return pd.DataFrame(columns, index=pd.Index(list(changes), name=task))


def signed(number: float, digits: int) -> str:
    """Write a number with its sign, and zero without one.

    >>> signed(0.123, 1), signed(-2.3, 1), signed(-0.004, 2)
    ('+0.1', '-2.3', '0.00')
    """
    text = f"{number:+.{digits}f}"
    return text if float(text) else text[1:]
