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
    runs: pd.DataFrame,
    task: str,
    changes: Sequence[str],
    equal: str,
    measure: str,
    baseline: str = PLAIN,
) -> pd.DataFrame:
    """Compare changes with a baseline, paired by seed and by block of test images.

    runs   : as `read_results` reads "since_2020"
    equal  : "steps", or "time"; where a step costs the same, both are the same trainings
    measure: "accuracy", a fraction, or "loss", the cross-entropy in nats
    returns: indexed by change: what `Effect.row` has, p, and holm, for these changes
    """
    reference = scores_of(runs, task, baseline, "steps", measure)
    lines = {}
    for change in changes:
        effect = effect_of(scores_of(runs, task, change, equal, measure) - reference)
        lines[change] = {**effect.row(), "p": effect.p}
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
    runs: pd.DataFrame, task: str, changes: Sequence[str], costs: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Write the differences from the plain model as text, with the errors of both in parentheses.

    costs  : as `read_results` reads "since_2020_costs", where the changes were measured in equal
             time, too
    returns: indexed by change: accuracy in points, and loss in nats; with costs also
             accuracy in equal time, and the time of a step, divided by the plain model's
    """
    columns = {
        "points": differences(runs, task, changes, "steps", "accuracy"),
        "loss": differences(runs, task, changes, "steps", "loss"),
    }
    if costs is not None:
        ratios = costs[costs["task"] == task].set_index("change")["ratio"]
        columns["points in equal time"] = differences(runs, task, changes, "time", "accuracy")
        columns["time of a step"] = [f"{ratios[change]:.2f}" for change in changes]
    return pd.DataFrame(columns, index=pd.Index(list(changes), name=task))


def differences(
    runs: pd.DataFrame, task: str, changes: Sequence[str], equal: str, measure: str
) -> list[str]:
    """Write each difference from the plain model with its error: points of accuracy, or nats."""
    effects = compare_changes(runs, task, changes, equal, measure)
    unit, digits = {"accuracy": (100, 1), "loss": (1, 2)}[measure]
    return [
        f"{unit * row['difference']:+z.{digits}f} ({unit * row['both']:.{digits}f})"
        for _, row in effects.iterrows()
    ]
