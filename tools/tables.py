"""Tables of results: stored as CSV, printed as Markdown, numbers in three significant digits."""

from pathlib import Path

import pandas as pd


def write_csv(rows: pd.DataFrame, path: Path) -> None:
    """Write the rows as a CSV file; its folder is created if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(path, index=False)


def markdown_table(rows: pd.DataFrame) -> str:
    """The rows as a Markdown table, cells as they are: pandas' own needs another package, and rounds their numbers."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (rows.columns, *rows.to_numpy())]
    return "\n".join([lines[0], "|" + "---|" * len(rows.columns), *lines[1:]])


def significant(number: float) -> str:
    """A number in three significant digits.

    >>> significant(24674.6), significant(98.765), significant(0.012345)
    ('24,700', '98.8', '0.0123')
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"


def mean_and_std(values: pd.Series) -> str:
    """Mean and standard deviation over the seeds, which is 0 for a single one.

    >>> mean_and_std(pd.Series([0.5, 0.6, 0.7]))
    '0.600 ± 0.100'
    """
    return f"{values.mean():.3f} ± {values.std() if len(values) > 1 else 0.0:.3f}"
