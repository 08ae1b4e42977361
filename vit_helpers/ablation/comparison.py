"""Standard errors of a difference between trainings, over seeds, over images and over both, and multiple comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr, stdtrit

from vit_helpers.ablation.rows import unpack

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Effect:
    """A mean difference of accuracies with its standard errors; NaN for those that one seed cannot give.

    seeds : over other seeds, on the same images
    images: over other images, with the same trained models
    both  : over other seeds and other images;  df: its degrees of freedom (Satterthwaite's approximation)
    """

    difference: float
    seeds: float
    images: float
    both: float
    df: float

    @property
    def p(self) -> float:
        """The probability of a difference at least as large, either way, if there were no effect (t test of `both`)"""
        if self.both == 0:
            return float(self.difference == 0)
        return float(2 * stdtr(self.df, -abs(self.difference) / self.both))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the difference, from the t distribution with `df` degrees of freedom"""
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.both
        return self.difference - half, self.difference + half

    def row(self) -> dict[str, Any]:
        """The columns of a table: difference, seeds, images and both, low and high (the 95% interval)"""
        low, high = self.interval()
        errors = {"seeds": self.seeds, "images": self.images, "both": self.both}
        return {"difference": self.difference, **errors, "low": low, "high": high}


def combine(
    difference: float,
    seeds: float,
    images: float,
    overlap: float,
    df_seeds: float,
    df_images: float,
) -> Effect:
    """An effect from the variances over seeds and over images, which share an `overlap`: each model on each image."""
    both = max(seeds, images, seeds + images - overlap)
    parts = seeds**2 / df_seeds + images**2 / df_images if df_seeds else math.nan
    df = both**2 / parts if parts else math.inf
    return Effect(difference, math.sqrt(seeds), math.sqrt(images), math.sqrt(both), df)


def effect_of(differences: Array) -> Effect:
    """The mean of differences (n seeds, m images), each whether one model is correct minus whether another is: -1, 0 or 1.

    For one seed, the error of the images is McNemar's. That of both is by two-way clustering (Cameron, Gelbach and Miller
    2011): the variances of seed means and of image means, minus what both contain.

    >>> effect_of([[1, 0, 0, 0], [0, 0, 1, 0]]).difference
    0.25
    """
    d = np.asarray(differences, dtype=float)
    (n, m), mean = d.shape, d.mean()
    by_seed, by_image = d.mean(1), d.mean(0)
    images = by_image.var(ddof=1) / m
    if n == 1:
        return Effect(float(mean), math.nan, math.sqrt(images), math.nan, math.nan)
    rest = d - by_seed[:, None] - by_image + mean
    overlap = (rest**2).sum() / ((n - 1) * (m - 1)) / (n * m)
    return combine(float(mean), by_seed.var(ddof=1) / n, images, overlap, n - 1, m - 1)


def right_answers(runs: pd.DataFrame, change: str, column: str = "right") -> dict[int, Array]:
    """Which images each run of a change classified correctly, by seed (column "right": validation, "test_right": test)"""
    rows = runs[runs["change"] == change]
    return {seed: unpack(text) for seed, text in zip(rows["seed"], rows[column], strict=True)}


def paired(
    runs: pd.DataFrame, change: str, baseline: str = "baseline", column: str = "right"
) -> Array:
    """Correct answers of a change minus those of the baseline with the same seed: (n seeds, m images) of -1, 0 and 1"""
    ours, theirs = (right_answers(runs, name, column) for name in (change, baseline))
    if not (seeds := sorted(ours.keys() & theirs.keys())):
        raise ValueError(f"{change} and {baseline} have no seed in common")
    return np.stack([ours[seed].astype(int) - theirs[seed] for seed in seeds])


def crossfit(candidates: Sequence[Array]) -> tuple[Array, Array]:
    """The answers of the best of several candidates, by cross-fitting: no answer evaluates a choice it took part in.

    For one seed, and for the even or the odd images, the best is the candidate with the highest accuracy on the other half
    of the images with the other seeds (if there are any).
    candidates: for each, which images were classified correctly: (n seeds, m images)
    returns   : (n, m) answers, and (n, 2) which candidate was chosen for each seed and half
    """
    rights = np.stack([np.asarray(one, dtype=float) for one in candidates])  # (c, n, m)
    _, n, m = rights.shape
    answers, chosen = np.empty((n, m)), np.empty((n, 2), dtype=int)
    for half in (0, 1):
        scores = rights[:, :, 1 - half :: 2].mean(2)  # (c, n), on the other half
        for seed in range(n):
            others = [one for one in range(n) if one != seed] or [seed]
            chosen[seed, half] = scores[:, others].mean(1).argmax()
            answers[seed, half::2] = rights[chosen[seed, half], seed, half::2]
    return answers, chosen


def holm(p: Sequence[float]) -> list[float]:
    """p-values after Holm's correction (1979): if no effect is real, one is below 0.05 with probability 0.05 at most.

    NaN stays NaN and is not counted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = pd.Series(np.asarray(p, dtype=float)).sort_values()  # NaN last
    corrected = values * (values.count() - np.arange(len(values)))
    return corrected.clip(upper=1).cummax().sort_index().to_list()


def compare(
    runs: pd.DataFrame,
    baseline: str = "baseline",
    column: str = "right",
    changes: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Every change compared with the baseline, paired by seed and by image; the changes are one family for Holm.

    runs   : what `run_table` returns;  changes: those to compare, None for all
    returns: indexed by change: n (seeds), what `Effect.row` has, discordant (fraction with one correct answer), p,
             holm
    """
    names = (
        [name for name in dict.fromkeys(runs["change"]) if name != baseline]
        if changes is None
        else list(changes)
    )
    lines = [line_of(paired(runs, name, baseline, column)) for name in names]
    table = pd.DataFrame(lines, index=pd.Index(names, name="change"))
    return table.assign(holm=holm(table["p"])) if len(table) else table


def compare_best(runs: pd.DataFrame, candidates: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """As `compare`, but each side is the best of several candidates, such as learning rates, chosen as in `crossfit`.

    candidates: {name: changes of which one is chosen}, also for "baseline";  chosen: how often each candidate was
    """
    rights = {one: right_answers(runs, one) for some in candidates.values() for one in some}
    lines = {}
    for name in [name for name in candidates if name != "baseline"]:
        seeds = sorted(
            set.intersection(
                *(set(rights[one]) for one in [*candidates[name], *candidates["baseline"]])
            )
        )
        if not seeds:
            raise ValueError(f"the candidates of {name} and baseline have no seed in common")
        ours, theirs = (
            crossfit([np.stack([rights[c][seed] for seed in seeds]) for c in candidates[x]])
            for x in (name, "baseline")
        )
        counts = np.bincount(ours[1].ravel(), minlength=len(candidates[name])) / ours[1].size
        chosen = ", ".join(
            f"{one}: {share:.0%}"
            for one, share in zip(candidates[name], counts, strict=True)
            if share
        )
        lines[name] = {**line_of(ours[0] - theirs[0]), "chosen": chosen}
    table = pd.DataFrame.from_dict(lines, orient="index")
    return table.assign(holm=holm(table["p"])).rename_axis("change")


def line_of(differences: Array) -> dict[str, Any]:
    """A row of `compare`, from differences (n seeds, m images)."""
    effect, discordant = effect_of(differences), float(np.abs(differences).mean())
    return {"n": len(differences), **effect.row(), "discordant": discordant, "p": effect.p}
