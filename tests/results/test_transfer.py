"""The stored runs with few labels, as notebook 09 reads them."""

import numpy as np
import pandas as pd
import pytest

from vit_helpers.ablation import effect_of
from vit_helpers.ablation.rows import pack
from vit_helpers.results import transfer
from vit_helpers.results.transfer import (
    answers_of,
    as_table,
    count_pretrained,
    differences_of,
    in_points,
    intervals_of,
    over_models,
    rights_of,
    runs_of,
)

RIGHT = {  # 3 seeds, 8 images
    "from scratch": ("10000001", "10000011", "11000001"),
    "full": ("11111101", "11011111", "11101101"),
    "probe": ("11110001", "11010011", "11100001"),
}


def a_table(pretrained=None):
    """Runs of a task of our own, with one number of labels; `pretrained` is a further column"""
    rows = []
    for way, answers in RIGHT.items():
        for seed, text in enumerate(answers):
            right = [int(digit) for digit in text]
            key = {"task": "ours", "labels": 10, "way": way, "split": "test", "seed": seed}
            rows.append(key | {"lr": 0.1, "accuracy": sum(right) / 8, "right": pack(right)})
    table = pd.DataFrame(rows)
    return table if pretrained is None else table.assign(pretrained=pretrained)


@pytest.fixture
def stored(monkeypatch):
    """Replace the stored table by another one."""

    def replace(table):
        monkeypatch.setattr(transfer, "read_results", lambda name: table)

    return replace


def test_a_table_without_the_column_has_one_pretrained_model(stored):
    stored(a_table())
    assert count_pretrained("ours") == 1
    assert set(runs_of("ours").pretrained) == {0} and len(runs_of("ours")) == 9


def test_from_scratch_belongs_to_every_pretrained_model(stored):
    first = a_table(pretrained=0)
    other = a_table(pretrained=1).query("way != 'from scratch'")
    stored(pd.concat([first, other]))
    assert count_pretrained("ours") == 2
    runs = runs_of("ours", pretrained=1)
    assert runs.groupby("way").pretrained.unique().map(list).to_dict() == {
        "from scratch": [0],
        "full": [1],
        "probe": [1],
    }
    assert set(runs_of("ours").pretrained) == {0}


def test_a_pretrained_model_or_a_task_without_runs_is_named(stored):
    stored(a_table())
    with pytest.raises(ValueError, match="'ours' from pretrained model 3"):
        runs_of("ours", pretrained=3)
    with pytest.raises(ValueError, match="no runs of 'theirs'"):
        runs_of("theirs")
    with pytest.raises(ValueError, match="'LoRA' with 10 labels"):
        rights_of(runs_of("ours"), "LoRA", 10)


def test_means_and_differences_are_those_of_the_answers(stored):
    stored(a_table())
    runs = runs_of("ours")
    low, mean, high = intervals_of(runs)["full"][10]
    assert mean == pytest.approx(20 / 24) and low < mean < high
    assert rights_of(runs, "full", 10).sum() == 20
    table = differences_of(runs, [("full", "from scratch"), ("full", "probe")])
    assert table.index.to_list() == [("full", "from scratch", 10), ("full", "probe", 10)]
    assert table.difference.to_list() == pytest.approx([(20 - 8) / 24, (20 - 14) / 24])
    assert (table.holm >= table.p).all() and table.holm.max() > table.p.max() - 1e-12


def test_texts_have_signs_and_stars(stored):
    stored(a_table())
    table = differences_of(runs_of("ours"), [("from scratch", "full"), ("probe", "full")])
    table["holm"] = [0.01, 0.2]
    texts = in_points(table)["10 labels"]
    assert texts["from scratch minus full"].startswith("−50.0 (−")
    assert texts["from scratch minus full"].endswith(") *")
    assert texts["probe minus full"].endswith(")")
    assert as_table({"full": {1000: (0.1, 0.25, 0.5)}}).loc["full", "1,000 labels"] == (
        "0.250 (0.100 to 0.500)"
    )


def test_answers_are_those_of_the_rate_with_the_best_mean(stored):
    rows = [
        {"way": "full", "seed": seed, "lr": lr, "accuracy": accuracy, "right": pack(right)}
        for seed, lr, accuracy, right in (
            (100, 0.1, 0.9, [0, 1]),
            (101, 0.1, 0.1, [0, 0]),
            (100, 0.2, 0.6, [1, 0]),
            (101, 0.2, 0.6, [1, 1]),
        )
    ]
    stored(pd.DataFrame(rows).assign(task="ours", labels=10, split="validation"))
    assert answers_of("ours", 10)["full"].tolist() == [1, 0]
    assert answers_of("ours", 10, seed=101)["full"].tolist() == [1, 1]


def test_the_stored_table_has_four_ways_and_five_seeds():
    runs = runs_of("photos")
    assert runs.groupby(["way", "labels"]).seed.nunique().unique().tolist() == [5]
    assert set(runs.way) == {"from scratch", "probe", "LoRA", "full"}


def test_other_pretrained_models_add_their_own_error():
    generator = np.random.default_rng(0)
    one = generator.integers(-1, 2, (5, 200)) + 0.0
    alone = over_models([one])
    assert alone == effect_of(one)
    same = over_models([one, one])  # no difference between the models, no error of theirs
    assert same.both == pytest.approx(alone.both) and same.difference == alone.difference
    apart = over_models([one, one + 0.4])
    assert apart.difference == pytest.approx(alone.difference + 0.2)
    assert apart.both**2 == pytest.approx(alone.both**2 + 0.4**2 / 2 / 2)
    assert 1 <= apart.df < 1.1  # nearly all of the error is that of two models
    low, high = apart.interval()
    assert high - low > 2 * 12 * 0.2 * 0.98
