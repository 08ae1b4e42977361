"""Fractional factorial designs of two levels: many settings changed at once, in few runs, so that interactions show."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from vit_helpers.ablation.errors import Array, combine, holm, right_answers

LETTERS = "ABCDEFGHJKLMNOP"  # I is the identity
Word = frozenset[str]


def parse(generators: Sequence[str]) -> list[tuple[str, Word, int]]:
    """Generators as in "F=-ABC": (letter, the letters whose product it is, sign)"""
    parsed = []
    for text in generators:
        letter, _, word = text.replace(" ", "").partition("=")
        letters = word.removeprefix("-")
        if letter not in LETTERS or len(letter) != 1 or not letters or not set(letters) <= set(LETTERS) - {letter}:
            raise ValueError(f'a generator is a letter and a product of others, as in "F=-ABC", got {text!r}')
        parsed.append((letter, Word(letters), -1 if word.startswith("-") else 1))
    return parsed


def design(factors: int, generators: Sequence[str] = ()) -> list[dict[str, int]]:
    """The runs of a design: for each, the level of every factor by its letter, -1 or 1.

    Factors without a generator take all combinations; the generators determine the others.

    >>> [run["C"] for run in design(3, ["C=AB"])]
    [1, -1, -1, 1]
    """
    letters, made = LETTERS[:factors], parse(generators)
    free = [letter for letter in letters if letter not in {letter for letter, _, _ in made}]
    if len(free) + len(made) != factors or not all(word <= set(free) for _, word, _ in made):
        raise ValueError(f"generators determine some of {letters} by the others, got {', '.join(generators)}")
    runs = []
    for levels in product((-1, 1), repeat=len(free)):
        run = dict(zip(free, levels, strict=True))
        run |= {letter: sign * prod(run[one] for one in word) for letter, word, sign in made}
        runs.append({letter: run[letter] for letter in letters})
    return runs


def words(generators: Sequence[str]) -> dict[Word, int]:
    """The defining relation: every product of letters that is the same in all runs, with its sign. The shortest of them
    has as many letters as the resolution of the design.

    >>> sorted("".join(sorted(word)) for word in words(["F=ABC", "G=ABD"]))
    ['ABCF', 'ABDG', 'CDFG']
    """
    made = [(word | {letter}, sign) for letter, word, sign in parse(generators)]
    found: dict[Word, int] = {}
    for size in range(1, len(made) + 1):
        for some in combinations(made, size):
            word: Word = Word()
            for one, _ in some:
                word ^= one
            found[word] = prod(sign for _, sign in some)
    return found


def confounded(factors: int, generators: Sequence[str]) -> list[list[tuple[Word, int]]]:
    """Main effects and interactions of two, in groups that no run tells apart, each with its sign relative to the first."""
    letters, relation = LETTERS[:factors], words(generators)
    effects = [Word(some) for size in (1, 2) for some in combinations(letters, size)]
    groups: list[list[tuple[Word, int]]] = []
    for effect in effects:
        for group in groups:
            if sign := relation.get(effect ^ group[0][0]):
                group.append((effect, sign))
                break
        else:
            groups.append([(effect, 1)])
    return groups


def designed(factors: Mapping[str, Mapping[str, Any]], generators: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The changes of a table: for each run of the design that has a factor at its high level, its name and settings."""
    if len(factors) > len(LETTERS):
        raise ValueError(f"at most {len(LETTERS)} factors, got {len(factors)}")
    for run in design(len(factors), generators):
        settings: dict[str, Any] = {}
        for given, level in zip(factors.values(), run.values(), strict=True):
            settings |= given if level == 1 else {}
        if name := name_of(run, list(factors)):
            yield name, settings


def name_of(run: Mapping[str, int], factors: Sequence[str]) -> str:
    """The factors that a run has at their high level, as in "width 96, depth 3"."""
    return ", ".join(name for name, level in zip(factors, run.values(), strict=True) if level == 1)


def effects(
    runs: pd.DataFrame, factors: Sequence[str], generators: Sequence[str] = (), column: str = "right"
) -> pd.DataFrame:
    """Main effects and interactions of two, with their errors, from the runs of a design and every seed that all have.

    A main effect is the mean accuracy at the high level less that at the low one. An interaction is how far the gain of two
    changes together is from the sum of their gains, on average over the levels of the others.
    returns: indexed by effect, with all that it is confounded with: order (1 or 2), then as `compare`; one family for Holm
    """
    plan = design(len(factors), generators)
    names = [name_of(run, factors) or "baseline" for run in plan]
    found = [right_answers(runs, name, column) for name in names]
    seeds = sorted(set.intersection(*(set(one) for one in found)))
    right = np.stack([np.stack([one[seed] for seed in seeds]) for one in found]).astype(float)  # (R, n, m)
    called = dict(zip(LETTERS, factors, strict=False))
    lines, index = [], []
    for group in confounded(len(factors), generators):
        signs = np.array([prod(run[letter] for letter in group[0][0]) for run in plan])
        index.append(" = ".join("-" * (sign < 0) + " x ".join(called[x] for x in sorted(word)) for word, sign in group))
        lines.append({"order": len(group[0][0]), **contrast(right, signs * 2 * len(group[0][0]) / len(plan))})
    table = pd.DataFrame(lines, index=pd.Index(index, name="effect"))
    return table.assign(holm=holm(table["p"]))


def contrast(right: Array, weights: Array) -> dict[str, float]:
    """A sum of weighted accuracies with its errors, from answers (R runs, n seeds, m images).

    The error of the seeds is pooled over all runs, less the mean difference between the seeds.
    """
    total, n, m = right.shape
    accuracy, square = right.mean(2), float((weights**2).sum())
    by_image = np.tensordot(weights, right.mean(1), 1)
    df = (total - 1) * (n - 1)
    rest = accuracy - accuracy.mean(1, keepdims=True) - accuracy.mean(0) + accuracy.mean()
    seeds = square / n * float((rest**2).sum()) / df if df else np.nan
    overlap = square / (n * m) * float(right.var(1, ddof=1).mean()) if n > 1 else np.nan
    effect = combine(float(by_image.mean()), seeds, float(by_image.var(ddof=1)) / m, overlap, df, m - 1)
    low, high = effect.interval()
    line = {"difference": effect.difference, "seeds": effect.seeds, "images": effect.images, "both": effect.both}
    return line | {"low": low, "high": high, "p": effect.p}
