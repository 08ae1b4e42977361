"""Comparison of trainings: differences with their standard errors, and multiple comparisons.

The errors are over seeds, over images, and over both.
"""

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
    """A mean difference of accuracies with its standard errors.

    seeds : over other seeds, on the same images
    images: over other images, or clusters of them, with the same trained models
    both  : over other seeds and other images
    df    : degrees of freedom of `both` (Satterthwaite's approximation)

    Those that one seed cannot give are NaN.
    """

    difference: float
    seeds: float
    images: float
    both: float
    df: float

    @property
    def p(self) -> float:
        """The probability of a difference at least as large, either way, if there were no effect.

        It is that of the t test with the error of `both`.
        """
        if self.both == 0:
            return float(self.difference == 0)
        return float(2 * stdtr(self.df, -abs(self.difference) / self.both))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Compute the confidence interval of the difference.

        It is that of the t distribution with `df` degrees of freedom.
        """
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.both
        return self.difference - half, self.difference + half

    def row(self) -> dict[str, Any]:
        """Return the columns of a table.

        They are difference, seeds, images and both, low and high (the 95% interval).
        """
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
    """Make an effect of the variances over seeds and over images.

    overlap: what both variances contain: that of each model on each image
    """
    both = max(seeds, images, seeds + images - overlap)
    terms = seeds**2 / df_seeds + images**2 / df_images if df_seeds else math.nan
    df = both**2 / terms if terms else math.inf
    return Effect(difference, math.sqrt(seeds), math.sqrt(images), math.sqrt(both), df)


def effect_of(differences: Array, clusters: npt.ArrayLike | None = None) -> Effect:
    """Compute the mean of differences with its standard errors.

    differences: (n seeds, m images), each whether one model is correct minus whether another is:
                 -1, 0 or 1
    clusters   : (m,) one label for each image; those with the same label may depend on each other,
                 such as digits by one writer. None if all images are independent
    raises     : ValueError for another shape, fewer than two images or clusters, or missing labels

    All errors are in the unit of the differences, so fractions of images. With G clusters and the
    mean difference of each image over the seeds, the squared error of the images is that of cluster
    sums (Liang and Zeger 1986):

        G / (G - 1) * (sum over clusters of (sum of its images' deviations from the mean)^2) / m^2

    For one seed and images that are independent, it is McNemar's. That of both is by two-way
    clustering (Cameron, Gelbach and Miller 2011): the variances over seeds and over clusters of
    images, minus what both contain.

    >>> effect_of([[1, 0, 0, 0], [0, 0, 1, 0]]).difference
    0.25
    """
    d = np.asarray(differences, dtype=float)
    if d.ndim != 2 or d.shape[0] < 1 or d.shape[1] < 2:
        raise ValueError(f"differences are (seeds, two images or more), got the shape {d.shape}")
    (n, m), mean = d.shape, d.mean()
    codes = number_clusters(clusters, m)
    count = int(codes.max()) + 1
    by_seed, by_image = d.mean(1), d.mean(0)
    images = sum_squares(by_image[None] - mean, codes) * count / (count - 1) / m**2
    if n == 1:
        return Effect(float(mean), math.nan, math.sqrt(images), math.nan, math.nan)
    rest = d - by_seed[:, None] - by_image + mean
    overlap = sum_squares(rest, codes) * count / ((n - 1) * (count - 1)) / (n * m**2)
    return combine(float(mean), by_seed.var(ddof=1) / n, images, overlap, n - 1, count - 1)


def number_clusters(clusters: npt.ArrayLike | None, images: int) -> Array:
    """Number the clusters of images from 0; without clusters, each image is its own: (m,)."""
    if clusters is None:
        return np.arange(images)
    labels = np.asarray(clusters)
    if labels.shape != (images,):
        raise ValueError(
            f"clusters need one label for each of {images} images, got the shape {labels.shape}"
        )
    codes, names = pd.factorize(labels)
    if (codes < 0).any():
        raise ValueError(f"{(codes < 0).sum()} of {images} images have no cluster (None or NaN)")
    if len(names) < 2:
        raise ValueError(f"all {images} images are in one cluster, but an error needs two or more")
    return codes


def sum_squares(deviations: Array, codes: Array) -> float:
    """Sum the squared sums of clusters, each row on its own: (n, m), (m,) -> a number."""
    return sum(float((np.bincount(codes, row) ** 2).sum()) for row in deviations)


def right_answers(runs: pd.DataFrame, change: str, column: str = "right") -> dict[int, Array]:
    """Read which images each run of a change classified correctly, by seed.

    column: "right" for the validation split, "test_right" for the test split
    """
    rows = runs[runs["change"] == change]
    return {seed: unpack(text) for seed, text in zip(rows["seed"], rows[column], strict=True)}


def paired(
    runs: pd.DataFrame, change: str, baseline: str = "baseline", column: str = "right"
) -> Array:
    """Subtract correct answers of the baseline from those of a change with the same seed.

    returns: (n seeds, m images) of -1, 0 and 1
    raises : ValueError if they have no seed in common
    """
    changed = right_answers(runs, change, column)
    reference = right_answers(runs, baseline, column)
    seeds = sorted(changed.keys() & reference.keys())
    if not seeds:
        raise ValueError(f"{change} and {baseline} have no seed in common")
    return np.stack([changed[seed].astype(int) - reference[seed] for seed in seeds])


def crossfit(candidates: Sequence[Array]) -> tuple[Array, Array]:
    """Take the answers of the best of several candidates, by cross-fitting.

    No answer evaluates a choice it took part in: for one seed, and for the even or the odd images,
    the best is the candidate with the highest accuracy on the other half of the images with the
    other seeds (if there are any).
    candidates: for each, which images were classified correctly: (n seeds, m images)
    returns   : (n, m) answers, and (n, 2) which candidate was chosen for each seed and half
    """
    rights = np.stack([np.asarray(answers, dtype=float) for answers in candidates])  # (c, n, m)
    _, n, m = rights.shape
    answers, chosen = np.empty((n, m)), np.empty((n, 2), dtype=int)
    for half in (0, 1):
        scores = rights[:, :, 1 - half :: 2].mean(2)  # (c, n), on the other half
        for seed in range(n):
            others = [other for other in range(n) if other != seed] or [seed]
            chosen[seed, half] = scores[:, others].mean(1).argmax()
            answers[seed, half::2] = rights[chosen[seed, half], seed, half::2]
    return answers, chosen


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons (Holm, 1979).

    If no effect is real, one of them is below 0.05 with probability 0.05 at most. NaN stays NaN
    and is not counted.

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
    clusters: npt.ArrayLike | None = None,
) -> pd.DataFrame:
    """Compare every change with the baseline, paired by seed and by image.

    runs    : what `run_table` returns
    changes : those to compare, None for all; they are one family for Holm
    clusters: of the images, as in `effect_of`
    returns : indexed by change: n (seeds), what `Effect.row` has, discordant (fraction with one
              correct answer), p, holm
    """
    if changes is None:
        changes = [name for name in dict.fromkeys(runs["change"]) if name != baseline]
    lines = [line_of(paired(runs, name, baseline, column), clusters) for name in changes]
    table = pd.DataFrame(lines, index=pd.Index(list(changes), name="change"))
    return table.assign(holm=holm(table["p"])) if len(table) else table


def compare_best(runs: pd.DataFrame, candidates: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Compare as `compare` does, where each side is the best of several candidates.

    candidates: {name: changes of which one is chosen as in `crossfit`}, also for "baseline"; they
                may be learning rates
    returns   : with the column chosen, which says how often each candidate was
    """
    changes = [change for group in candidates.values() for change in group]
    rights = {change: right_answers(runs, change) for change in changes}
    lines = {}
    for name in [name for name in candidates if name != "baseline"]:
        compared = [*candidates[name], *candidates["baseline"]]
        seeds = sorted(set.intersection(*(set(rights[change]) for change in compared)))
        if not seeds:
            raise ValueError(f"the candidates of {name} and baseline have no seed in common")
        stacks = {change: np.stack([rights[change][seed] for seed in seeds]) for change in compared}
        answers, choices = crossfit([stacks[change] for change in candidates[name]])
        reference, _ = crossfit([stacks[change] for change in candidates["baseline"]])
        counts = np.bincount(choices.ravel(), minlength=len(candidates[name]))
        shares = zip(candidates[name], counts / choices.size, strict=True)
        chosen = ", ".join(f"{change}: {share:.0%}" for change, share in shares if share)
        lines[name] = {**line_of(answers - reference), "chosen": chosen}
    table = pd.DataFrame.from_dict(lines, orient="index")
    return table.assign(holm=holm(table["p"])).rename_axis("change")


def line_of(differences: Array, clusters: npt.ArrayLike | None = None) -> dict[str, Any]:
    """Make a row of `compare` of differences (n seeds, m images)."""
    effect, discordant = effect_of(differences, clusters), float(np.abs(differences).mean())
    return {"n": len(differences), **effect.row(), "discordant": discordant, "p": effect.p}
