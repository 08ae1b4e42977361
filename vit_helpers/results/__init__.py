"""Stored results that the notebooks read; README.md says which command made each."""

from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent


def read_results(name: str) -> pd.DataFrame:
    """Read a stored table by its name, as in "growth" or "speed"; empty cells are NaN.

    raises: ValueError, which lists the names, if there is no such table
    """
    known = sorted(path.stem for path in RESULTS.glob("*.csv"))
    if name not in known:
        raise ValueError(f"unknown results {name!r}, known: {', '.join(known)}")
    path = RESULTS / f"{name}.csv"
    return pd.read_csv(
        path, keep_default_na=False, na_values=[""], float_precision="round_trip", encoding="utf-8"
    )
