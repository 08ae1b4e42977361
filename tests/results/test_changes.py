"""The stored changes of one recipe: their names, groups and costs, and the best first tries."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from vit_helpers.results.changes import (
    best_runs,
    budget,
    equally_expensive,
    read_changes,
    read_groups,
)

TABLES = ("hyperparameters", "rates", "photos", "longer", "new_seeds")


@pytest.mark.parametrize("table", TABLES)
def test_every_change_has_a_name_of_its_own_for_people(table):
    runs = read_changes(table)
    names = set(runs["change"])
    assert len(runs.drop_duplicates(["change", "settings"])) == len(names)
    assert not [name for name in names if re.search(r"\de-\d", name)]


def test_the_groups_hold_each_change_once():
    names = [name for group in read_groups().values() for name in group]
    runs = read_changes()
    assert sorted(names) == sorted(set(runs["change"]) - {"baseline"})


def test_a_budget_is_images_and_steps():
    settings = {"images": 5000, "repeat": 2, "epochs": 5}
    assert budget(settings) == (5000, 785)  # 157 batches of 64, the last one smaller
    assert budget(settings | {"batch_size": 16}) == (5000, 3125)
    assert budget({"images": 10000, "epochs": 5}) == (10000, 785)


def test_changes_of_images_and_steps_are_not_equally_expensive():
    runs = read_changes()
    equal = equally_expensive(runs)
    others = set(runs["change"]) - set(equal) - {"baseline"}
    sizes = {16, 256}
    for name in others:
        settings = json.loads(runs[runs["change"] == name]["settings"].iloc[0])
        changed = settings["images"] != 5000 or settings["epochs"] != 5
        assert changed or settings.get("batch_size") in sizes, name
    assert len(equal) == 35 and len(others) == 8


def test_the_best_are_those_of_the_first_seed():
    runs = best_runs(3)
    assert runs["change"].iloc[0] == "baseline" and runs["change"].nunique() == 4
    gains = runs.pivot(index="change", columns="seed", values="accuracy")
    order = [name for name in dict.fromkeys(runs["change"]) if name != "baseline"]
    assert np.diff(gains.loc[order, 0]).max() <= 0
    everything = read_changes()
    first = everything[everything["seed"] == 0].set_index("change")["accuracy"]
    rest = first[equally_expensive(everything)].drop(order)
    assert rest.max() <= gains.loc[order, 0].min()


def test_new_seeds_repeat_the_rows_of_the_large_table():
    columns = ["change", "seed", "accuracy", "right"]
    large, fresh = (read_changes(name)[columns] for name in ("hyperparameters", "new_seeds"))
    both = pd.merge(large, fresh, on=columns)
    assert len(both) == 10 and sorted(set(fresh["seed"])) == list(range(10))
