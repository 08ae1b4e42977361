"""The table `localization.csv`: how well maps find the digits of 1,000 test images.

A row is a method with one model ("trained" or "untrained", with its seed), or a control (model
"none"). The columns `pointing_game` and `rank` hold the scores of all images, those that end in
`_other` with the box of another image.
"""

import base64
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from vit_helpers.ablation.comparison import effect_of, holm

SCORES = ("pointing_game", "rank")  # sharpening a map changes neither
RIVALS = (
    "brightness, blurred",
    "edges, blurred",
    "ink, blurred",
)  # the controls that every method is compared with
STEPS = 252  # of a packed score: a multiple of 36, so that ties among 36 patches are exact


def pack_scores(scores: Any) -> str:
    """Scores from 0 to 1 as a short text, rounded to steps of 1/252.

    >>> unpack_scores(pack_scores([0, 0.25, 1])).tolist()
    [0.0, 0.25, 1.0]
    """
    steps = np.rint(STEPS * np.asarray(scores, dtype=float)).astype(np.uint8)
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode()


def unpack_scores(text: str) -> Any:
    """Unpack what `pack_scores` made into a text: (n,) numbers from 0 to 1."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8) / STEPS


def scores_of(rows: pd.DataFrame, method: str, column: str, model: str = "trained") -> Any:
    """Collect the scores of each image by a method: (n models, m images)"""
    chosen = rows[(rows["model"] == model) & (rows["method"] == method)].sort_values("seed")
    if chosen.empty:
        raise ValueError(f"no rows of {method!r} with model {model!r}")
    return np.stack([unpack_scores(text) for text in chosen[column]])


def line_of(values: Any, clusters: Any = None) -> dict[str, Any]:
    """Compute the mean of (n models, m images), its 95% interval and its p-value.

    clusters: of the images, as in `effect_of`

    Interval and p-value cover other models and other images; with one model other images only,
    since nothing is known about other models.
    """
    effect = effect_of(values, clusters)
    if len(values) == 1:
        count = values.shape[1] if clusters is None else len(set(np.asarray(clusters).tolist()))
        effect = replace(effect, both=effect.images, df=count - 1)
    low, high = effect.interval()
    return {
        "mean": effect.difference,
        "low": low,
        "high": high,
        "p": effect.p,
        "models": len(values),
    }


def summarize_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the mean of each score, model and method, with its 95% interval.

    `each` is the mean of every single model.

    The fraction inside was not stored by image, so it has no interval.
    """
    lines = []
    for (model, method), group in rows.groupby(["model", "method"], sort=False):
        inside = group.sort_values("seed")["inside"]
        keys = {"model": model, "method": method}
        lines.append({"score": "inside", **keys, "mean": inside.mean(), "each": inside.to_list()})
        for score in SCORES:
            values = scores_of(rows, method, score, model)
            lines.append(
                {"score": score, **keys, **line_of(values), "each": values.mean(axis=1).tolist()}
            )
    return pd.DataFrame(lines).set_index(["score", "model", "method"]).drop(columns="p")


def compare_methods(rows: pd.DataFrame, clusters: Any = None) -> pd.DataFrame:
    """Compare each method of the trained models with rivals, no training, and another image's box.

    clusters: of the images, as in `effect_of`
    returns : for each of these, score and method what `line_of` has of the differences, paired by
              model and by image, and `holm`, the corrected p-value; all comparisons with rivals
              are one family, and so are the 10 of each other kind
    """
    lines = []
    for score in SCORES:
        for method in dict.fromkeys(rows.loc[rows["model"] == "trained", "method"]):
            ours = scores_of(rows, method, score)
            others = {rival: scores_of(rows, rival, score, "none") for rival in RIVALS}
            others["untrained"] = scores_of(rows, method, score, "untrained")
            others["another box"] = scores_of(rows, method, f"{score}_other")
            lines += [
                {
                    "against": against,
                    "score": score,
                    "method": method,
                    **line_of(ours - scores, clusters),
                }
                for against, scores in others.items()
            ]
    table = pd.DataFrame(lines).sort_values("against", kind="stable")
    family = table["against"].where(~table["against"].isin(RIVALS), "rivals")
    table["holm"] = table.groupby(family)["p"].transform(lambda p: holm(p.to_list()))
    return table.set_index(["against", "score", "method"])
