"""The table `transfer.csv`: what a pretrained model is worth with few labels, run by run.

`right` says which images a run classified correctly. `pretrained` is the number of the pretrained
model that it started from: 0 for the one stored in `weights/`, others are the same pretraining from
another seed. Training from scratch starts from none, and its rows have 0.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vit_helpers.ablation import compare, effect_of, holm, unpack
from vit_helpers.ablation.comparison import Effect
from vit_helpers.results import read_results

WAYS = ("from scratch", "probe", "LoRA", "full")
Interval = tuple[float, float, float]  # low, mean, high


def runs_of(task: str, pretrained: int = 0) -> pd.DataFrame:
    """Read the reported runs of a task that started from one pretrained model, and from none.

    task  : "photos", "new classes" and others, as in `tools/experiments/transfer.toml`
    raises: ValueError if there are none
    """
    rows = rows_of(task, "test")
    if pretrained not in set(rows["pretrained"]):
        raise ValueError(f"no runs of {task!r} from pretrained model {pretrained}")
    return rows[(rows["pretrained"] == pretrained) | (rows["way"] == "from scratch")]


def count_pretrained(task: str) -> int:
    """Count the pretrained models that runs of a task started from."""
    return int(rows_of(task, "test")["pretrained"].nunique())


def rows_of(task: str, split: str) -> pd.DataFrame:
    """Read the rows of a task on a split; older tables have no column `pretrained`: all 0."""
    rows = read_results("transfer").query("split == @split and task == @task")
    number = rows.get("pretrained", pd.Series(0, rows.index))
    return rows.assign(pretrained=number.fillna(0).astype(int))


def intervals_of(
    runs: pd.DataFrame, clusters: npt.ArrayLike | None = None
) -> dict[str, dict[int, Interval]]:
    """Compute accuracies with 95% intervals that cover other seeds and other images.

    clusters: of the images, as in `effect_of`
    returns : {way: {number of labels: (low, mean, high)}}
    """
    found: dict[str, dict[int, Interval]] = {}
    for way in dict.fromkeys(runs["way"]):
        for labels, rows in runs[runs["way"] == way].groupby("labels"):
            effect = effect_of(rights_of(rows, way, labels), clusters)
            low, high = effect.interval()
            found.setdefault(way, {})[int(labels)] = (low, effect.difference, high)
    return found


def rights_of(runs: pd.DataFrame, way: str, labels: int) -> npt.NDArray[np.int64]:
    """Read which images were classified correctly: (n seeds, m images) of 0 and 1, by seed."""
    rows = runs[(runs["way"] == way) & (runs["labels"] == labels)].sort_values("seed")
    if rows.empty:
        raise ValueError(f"no runs of {way!r} with {labels:,} labels")
    return np.stack([unpack(text) for text in rows["right"]]).astype(int)


def differences_of(
    runs: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    clusters: npt.ArrayLike | None = None,
) -> pd.DataFrame:
    """Compare ways of training, paired by seed and by image, for each number of labels.

    pairs  : (way, other way); those without runs of both are left out
    returns: indexed by (way, other, labels), in the order of the pairs, what `compare` has; all
             rows are one family for Holm's correction
    """
    lines = []
    for labels, rows in runs.rename(columns={"way": "change"}).groupby("labels"):
        for way, other in pairs:
            if {way, other} <= set(rows["change"]):
                line = compare(rows, other, changes=[way], clusters=clusters).loc[way]
                lines.append({"way": way, "other": other, "labels": int(labels), **line})
    if not lines:
        return pd.DataFrame()
    table = pd.DataFrame(lines)
    table["holm"] = holm(table["p"])
    order = {pair: number for number, pair in enumerate(pairs)}
    rank = [order[pair] for pair in zip(table["way"], table["other"], strict=True)]
    table = table.assign(rank=rank).sort_values(["rank", "labels"], kind="stable")
    return table.drop(columns="rank").set_index(["way", "other", "labels"])


def over_models(
    differences: Sequence[npt.NDArray[Any]], clusters: npt.ArrayLike | None = None
) -> Effect:
    """Compute a mean difference whose error covers other pretrained models, too.

    differences: for each pretrained model, (n seeds, m images), with the same seeds and images
    clusters   : of the images, as in `effect_of`
    returns    : the effect of the mean over the models, to whose squared error that of the models
                 is added: the variance of their mean differences, divided by their number; df by
                 Satterthwaite's approximation. With one model, only what `effect_of` says
    """
    effect = effect_of(np.mean([np.asarray(d, dtype=float) for d in differences], axis=0), clusters)
    count = len(differences)
    if count == 1:
        return effect
    models = float(np.var([np.mean(d) for d in differences], ddof=1)) / count
    rest = effect.both**2
    terms = rest**2 / effect.df + models**2 / (count - 1)
    both = rest + models
    return replace(effect, both=math.sqrt(both), df=both**2 / terms if terms else math.inf)


def in_points(differences: pd.DataFrame) -> pd.DataFrame:
    """Write differences as texts in points, with their 95% intervals; * if Holm's p < 0.05.

    returns: a row for each pair of ways, a column for each number of labels
    """
    texts: dict[str, dict[str, str]] = {}
    for (way, other, labels), line in differences.iterrows():
        low, middle, high = (100 * line[name] for name in ("low", "difference", "high"))
        star = " *" if line["holm"] < 0.05 else ""
        text = f"{middle:.1f} ({low:.1f} to {high:.1f}){star}".replace("-", "−")
        texts.setdefault(f"{way} minus {other}", {})[f"{labels:,} labels"] = text
    return pd.DataFrame(texts).T.fillna("")


def as_table(intervals: dict[str, dict[int, Interval]]) -> pd.DataFrame:
    """Write intervals as texts: a row for each way, a column for each number of labels."""
    return pd.DataFrame(
        {
            way: {
                f"{labels:,} labels": f"{mean:.3f} ({low:.3f} to {high:.3f})"
                for labels, (low, mean, high) in found.items()
            }
            for way, found in intervals.items()
        }
    ).T.fillna("")


def answers_of(task: str, labels: int, seed: int = 100) -> dict[str, npt.NDArray[np.uint8]]:
    """Read which validation images each way classified correctly, at the rate chosen for it.

    The rate is chosen by the mean accuracy on these images; `seed` is one of those that chose.
    returns: {way: (images of the validation split,)}
    """
    rows = rows_of(task, "validation").query("labels == @labels and pretrained == 0")
    found = {}
    for way, tried in rows.groupby("way", sort=False):
        best = tried.groupby("lr")["accuracy"].mean().idxmax()
        (text,) = tried[(tried["lr"] == best) & (tried["seed"] == seed)]["right"]
        found[str(way)] = unpack(text)
    return found
