"""Factorial designs: what is confounded with what, known designs, effects that are planted."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from vit_helpers.ablation import Table, effects
from vit_helpers.ablation.factorial import LETTERS, confounded, design, designed
from vit_helpers.ablation.rows import pack

EIGHT = ["F=ABC", "G=ABD", "H=-BCDE"]  # of results/factorial.toml


def columns(factors, generators):
    return np.array([list(run.values()) for run in design(factors, generators)])


@pytest.mark.parametrize(
    ("factors", "generators", "resolution"), [(3, ["C=AB"], 3), (4, ["D=ABC"], 4), (8, EIGHT, 4)]
)
def test_a_design_is_balanced_and_has_its_resolution(factors, generators, resolution):
    """Resolution IV: no main effect is confounded with another, or an interaction of two.

    Source: Box, Hunter and Hunter.
    """
    runs = columns(factors, generators)
    assert len(runs) == 2 ** (factors - len(generators)) == len(np.unique(runs, axis=0))
    assert (runs.T @ runs == len(runs) * np.eye(factors)).all() and not runs.sum(0).any()
    words = [some for size in range(1, factors + 1) for some in combinations(range(factors), size)]
    # products that no run changes
    same = [word for word in words if abs(runs[:, word].prod(1).sum()) == len(runs)]
    assert len(same) == 2 ** len(generators) - 1 and min(map(len, same)) == resolution


def test_confounded_effects_have_the_same_column_and_others_are_orthogonal():
    runs, groups = columns(8, EIGHT), list(confounded(design(8, EIGHT)).values())
    assert sum(map(len, groups)) == 8 + 28 and all(len(group) == 1 for group in groups[:8])
    column = {
        word: runs[:, [LETTERS.index(one) for one in word]].prod(1)
        for group in groups
        for word, _ in group
    }
    for group in groups:
        assert all((column[word] == sign * column[group[0][0]]).all() for word, sign in group)
    for one, other in combinations(groups, 2):
        assert column[one[0][0]] @ column[other[0][0]] == 0
    clear = {"".join(sorted(group[0][0])) for group in groups[8:] if len(group) == 1}
    assert clear == {"".join(pair) for pair in combinations("ABCDEFGH", 2) if {*pair} & {*"EH"}}


@pytest.mark.parametrize(
    "generators",
    [["D=AD"], ["AB=C"], ["D="], ["Q=AB"], ["D=AE"], ["C=AB", "D=AC"], ["D=AB", "D=AC"]],
)
def test_generators_that_make_no_sense(generators):
    with pytest.raises(ValueError, match=r"generator"):
        design(4, generators)


def test_a_table_declares_factors():
    factors = {"lr 1e-3": {"lr": 1e-3}, "patch 4": {"patch_size": 4}, "1 head": {"num_heads": 1}}
    table = Table(seeds=2, factors=factors, generators=["C=-AB"])
    # and the baseline
    assert list(table.changes) == ["patch 4, 1 head", "lr 1e-3, 1 head", "lr 1e-3, patch 4"]
    assert table.changes["lr 1e-3, patch 4"] == {"lr": 1e-3, "patch_size": 4}
    assert len(list(table.runs())) == 8
    assert dict(designed({}, [])) == {}


def test_planted_effects_are_found():
    """Accuracy 0.6, A adds 0.1, B takes 0.05, both together gain 0.08 more than the sum"""
    draw, rows = np.random.default_rng(0), []
    factors = ["A", "B", "C", "D"]
    for run in design(4, ["D=ABC"]):
        a, b = (run[one] == 1 for one in "AB")
        level = 0.6 + 0.1 * a - 0.05 * b + 0.08 * (a and b)
        name = ", ".join(one for one in factors if run[one] == 1) or "baseline"
        rows += [(name, seed, pack(draw.random(20_000) < level)) for seed in range(3)]
    found = effects(pd.DataFrame(rows, columns=["change", "seed", "right"]), factors, ["D=ABC"])
    assert list(found.index) == [
        "A",
        "B",
        "C",
        "D",
        "A x B = C x D",
        "A x C = B x D",
        "A x D = B x C",
    ]
    assert found.difference["A"] == pytest.approx(0.14, abs=0.005)  # on average over B
    assert found.difference["B"] == pytest.approx(-0.01, abs=0.005)
    assert found.difference["A x B = C x D"] == pytest.approx(0.08, abs=0.01)
    assert found.difference["C"] == pytest.approx(0, abs=0.005)
    real = ["A", "A x B = C x D"]
    assert (found.holm[real] < 1e-4).all() and (found.p.drop([*real, "B"]) > 0.01).all()
    assert (found.order.to_list(), found.low["A"] < 0.14 < found.high["A"]) == (
        [1] * 4 + [2] * 3,
        True,
    )
