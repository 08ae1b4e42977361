"""The 43 changes of `hyperparameters.csv`: names as in the text, groups, and the best first tries.

Two changes are equally expensive if they see the same images in the same number of steps.
"""

import json
import math
import re
from typing import Any

import pandas as pd

from vit_helpers.results import RESULTS, read_results

NAMES = {  # of the stored tables, and in the text
    "norm last": "post-norm",
    "tokens at the same rate": "one learning rate",
    "turns, scales, shifts": "affine augmentation",
    "L2 0.05 inside Adam": "L2 inside Adam",
}
RATE = re.compile(r"(?<=rate )\S+$")  # at the end of a name


def in_text(name: str) -> str:
    """Name a change as in the text

    >>> in_text("norm last, rate 1.5e-3"), in_text("learning rate 1e-2"), in_text("8 heads")
    ('post-norm, rate 0.0015', 'learning rate 0.01', '8 heads')
    """
    change, separator, rate = name.partition(", rate ")
    name = f"{NAMES.get(change, change)}{separator}{rate}"
    return RATE.sub(lambda found: f"{float(found[0]):g}", name)


def read_changes(table: str = "hyperparameters") -> pd.DataFrame:
    """Read a stored table of runs, with the names of changes as in the text."""
    runs = read_results(table)
    return runs.assign(change=runs["change"].map(in_text))


def read_groups() -> dict[str, list[str]]:
    """Read which changes belong together: {a comment in the file: names of the changes below it}"""
    groups: dict[str, list[str]] = {}
    text = (RESULTS / "hyperparameters.toml").read_text(encoding="utf-8")
    for line in text.partition("[changes]")[2].splitlines():
        if line.startswith("# "):
            groups[line[2:]] = []
        elif line.startswith('"'):
            groups[[*groups][-1]].append(in_text(line.split('"')[1]))
    return groups


def equally_expensive(runs: pd.DataFrame) -> list[str]:
    """List the changes with the baseline's training images and number of steps."""
    first = runs.drop_duplicates("change").set_index("change")["settings"].map(json.loads)
    wanted = budget(first["baseline"])
    return [name for name in first.index if name != "baseline" and budget(first[name]) == wanted]


def budget(settings: dict[str, Any]) -> tuple[int, int]:
    """Count the training images of a run and its steps."""
    images = settings["images"] * settings.get("repeat", 1)  # in an epoch
    steps = math.ceil(images / settings.get("batch_size", 64)) * settings["epochs"]
    return settings["images"], steps


def best_runs(count: int, seed: int = 0) -> pd.DataFrame:
    """Read the baseline's runs, and those of the changes that gain most with one seed.

    count  : how many of the changes that are equally expensive, the best first
    returns: all runs of these, with all seeds
    """
    runs = read_changes()
    accuracy = runs[runs["seed"] == seed].set_index("change")["accuracy"]
    best = accuracy[equally_expensive(runs)].sort_values(ascending=False).index[:count]
    return pd.concat([runs[runs["change"] == name] for name in ("baseline", *best)])
