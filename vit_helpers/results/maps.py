"""The table `maps.csv`: maps of gradients beside controls, and answers when patches are covered.

A row is a map with one model ("trained" or "untrained", with its seed), or a map that uses no model
(model "none"), whose patches are covered for the model of that seed. `pointing_game` holds the
scores of all images, `inside` and `rank` their means. `curve` holds the fraction of predictions
that stay the same with each of `COUNTS` patches covered, and `survived` the mean over `COUNTS` of
each image.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

COUNTS = tuple(range(7))  # of covered patches


def pack_curve(fractions: Iterable[Any]) -> str:
    """Numbers from 0 to 1 as a text, in thousandths.

    >>> pack_curve([1, 0.9125, 0.05])
    '1.000 0.912 0.050'
    """
    return " ".join(f"{float(x):.3f}" for x in fractions)


def curves_of(rows: pd.DataFrame, method: str) -> Any:
    """The deletion curves of a map, one for each model: (n models, counts)"""
    chosen = rows[(rows["method"] == method) & (rows["model"] != "untrained")].sort_values("seed")
    if chosen.empty or chosen["curve"].isna().any():
        raise ValueError(f"no curves of {method!r}")
    return np.stack([np.array(text.split(), dtype=float) for text in chosen["curve"]])
