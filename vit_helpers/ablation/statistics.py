"""Which changes are larger than the noise: means, standard deviations and paired differences over seeds."""

import statistics
from collections.abc import Sequence

import pandas as pd


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per change, in the order in which they first appear.

    runs   : what `run_table` or `read_results` returns, with columns change, seed, accuracy, parameters, ...
    returns: indexed by change: runs (how many), accuracy (mean), spread (standard deviation), difference (mean over the
             seeds of change minus baseline), error (standard error of that difference), parameters, multiply_adds, seconds
             (mean). Spread and error are 0 for a single run; without a baseline of the same seed the difference is NaN

    >>> columns = {"change": ["baseline", "new"], "seed": 0, "accuracy": [0.5, 0.75], "seconds": 1.0}
    >>> summarize(pd.DataFrame(columns | {"parameters": 9, "multiply_adds": 9})).difference.to_list()
    [0.0, 0.25]
    """
    baseline = runs[runs["change"] == "baseline"].set_index("seed")["accuracy"]
    differences = runs["accuracy"] - runs["seed"].map(baseline)
    lines = (
        runs.assign(difference=differences)
        .groupby("change", sort=False)
        .agg(
            runs=("seed", "size"),
            accuracy=("accuracy", "mean"),
            spread=("accuracy", "std"),
            difference=("difference", "mean"),
            error=("difference", "sem"),
            parameters=("parameters", "first"),
            multiply_adds=("multiply_adds", "first"),
            seconds=("seconds", "mean"),
        )
    )
    lines["spread"] = lines["spread"].fillna(0.0)
    lines.loc[lines["difference"].notna(), "error"] = lines["error"].fillna(0.0)
    return lines


def standard_deviation(values: Sequence[float]) -> float:
    """Standard deviation; 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
