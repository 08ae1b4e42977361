"""Two-level fractional factorial designs: many settings are changed together in few runs.

So interactions show, which changes one at a time cannot show.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from vit_helpers.ablation.comparison import Array, combine, holm, right_answers

LETTERS = "ABCDEFGHJKLMNOP"  # I is the identity
Run = dict[str, int]  # the level of every factor by its letter, -1 or 1
Words = list[tuple[tuple[str, ...], int]]  # products of letters, each with a sign


def design(factors: int, generators: Sequence[str] = ()) -> list[Run]:
    """List the runs of a design: for each, the level of every factor by its letter, -1 or 1.

    Factors without a generator have all combinations of levels; generators, as in "F=-ABC",
    determine the others.
    raises: ValueError if they do not

    >>> [run["C"] for run in design(3, ["C=AB"])]
    [1, -1, -1, 1]
    """
    letters = LETTERS[:factors]
    determined: dict[str, tuple[set[str], int]] = {}  # by which letters, and with which sign
    for generator in generators:
        letter, _, word = generator.replace(" ", "").partition("=")
        determined[letter] = set(word.removeprefix("-")), -1 if word.startswith("-") else 1
    free = [letter for letter in letters if letter not in determined]
    by_others = all(others and others <= set(free) for others, _ in determined.values())
    if len(free) + len(generators) != factors or not by_others:
        raise ValueError(
            f"generators determine some of {letters} by others, "
            f'as in "F=-ABC", got {", ".join(generators)}'
        )
    runs = []
    for levels in product((-1, 1), repeat=len(free)):
        run = dict(zip(free, levels, strict=True))
        for letter, (others, sign) in determined.items():
            run[letter] = sign * prod(run[other] for other in others)
        runs.append({letter: run[letter] for letter in letters})
    return runs


def confounded(runs: Sequence[Run]) -> dict[tuple[int, ...], Words]:
    """Group main effects and two-way interactions that are confounded.

    returns: {the level of the first in every run: its group}, each with its sign relative to the
             first
    """
    groups: dict[tuple[int, ...], Words] = {}
    for word in chain(combinations(runs[0], 1), combinations(runs[0], 2)):
        column = tuple(prod(run[letter] for letter in word) for run in runs)
        opposite = tuple(-level for level in column)
        if opposite in groups:
            groups[opposite].append((word, -1))
        else:
            groups.setdefault(column, []).append((word, 1))
    return groups


def designed(
    factors: Mapping[str, Mapping[str, Any]], generators: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the changes of a table: name and settings of the runs of a design.

    The run that has no factor at its high level is the baseline, and left out.
    """
    for run in design(len(factors), generators):
        levels = zip(factors.values(), run.values(), strict=True)
        changed: dict[str, Any] = {}
        for settings in [settings for settings, level in levels if level == 1]:
            changed |= settings
        if 1 in run.values():
            yield name_of(run, list(factors)), changed


def name_of(run: Mapping[str, int], factors: Sequence[str]) -> str:
    """Name the factors that are at their high level in a run, as in "width 96, depth 3"."""
    return ", ".join(name for name, level in zip(factors, run.values(), strict=True) if level == 1)


def effects(
    runs: pd.DataFrame, factors: Sequence[str], generators: Sequence[str] = ()
) -> pd.DataFrame:
    """Estimate main effects and two-way interactions with their errors.

    They are of the runs of a design, with the seeds that all of these have.

    A main effect is the mean accuracy at the high level minus that at the low one. An interaction
    is how far the joint gain of two changes is from the sum of their gains, on average over the
    levels of the others.
    returns: indexed by effect, with all that it is confounded with: order (1 or 2), then as
             `compare`; one family for Holm
    """
    plan = design(len(factors), generators)
    answers = [right_answers(runs, name_of(run, factors) or "baseline") for run in plan]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in answers)))
    stacked = np.stack([[by_seed[seed] for seed in seeds] for by_seed in answers])
    right = stacked.astype(float)  # (R, n, m)
    factor_of, lines = dict(zip(LETTERS, factors, strict=False)), {}
    for levels, group in confounded(plan).items():
        terms = [" x ".join(factor_of[letter] for letter in word) for word, _ in group]
        signs = ["-" if sign < 0 else "" for _, sign in group]
        name = " = ".join(sign + term for sign, term in zip(signs, terms, strict=True))
        order = len(group[0][0])
        lines[name] = {"order": order, **contrast(right, np.array(levels) * 2 * order / len(plan))}
    table = pd.DataFrame.from_dict(lines, orient="index").rename_axis("effect")
    return table.astype({"order": int}).assign(holm=holm(table["p"]))


def contrast(right: Array, weights: Array) -> dict[str, float]:
    """Sum weighted accuracies, with its errors, from answers (R runs, n seeds, m images).

    The error of the seeds is pooled over all runs, after the mean difference between the seeds is
    removed.
    """
    total, n, m = right.shape
    accuracy, square = right.mean(2), float((weights**2).sum())
    by_image = np.tensordot(weights, right.mean(1), 1)
    df = (total - 1) * (n - 1)
    rest = accuracy - accuracy.mean(1, keepdims=True) - accuracy.mean(0) + accuracy.mean()
    seeds = square / n * float((rest**2).sum()) / df if df else np.nan
    overlap = square / (n * m) * float(right.var(1, ddof=1).mean()) if n > 1 else np.nan
    effect = combine(
        float(by_image.mean()), seeds, float(by_image.var(ddof=1)) / m, overlap, df, m - 1
    )
    return {**effect.row(), "p": effect.p}
