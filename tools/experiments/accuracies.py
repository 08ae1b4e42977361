"""Test accuracies on the digits by 5-fold cross-validation.

Each of the 1,797 images is tested once by each seed.
The settings are those of `python -m tools.bench`, chosen on 1,437 of the same images. A model is
trained on four fifths and tested on the rest. The folds are drawn anew for each seed ("random"), or
they are five runs of consecutive images ("consecutive"), so that most of the sheets of a test fold
are not in training; the boundaries cut four of 14 sheets. Finished seeds are kept in a CSV file,
and the same command goes on where it stopped.
"""

import time
from argparse import ArgumentParser, Namespace
from datetime import date
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tools import main
from tools.bench import GOALS
from tools.experiments.measuring import add_out, find_or_measure
from vit_helpers.ablation.comparison import effect_of
from vit_helpers.ablation.rows import pack, unpack
from vit_helpers.data.digits import CLASS_NAMES, every_digit
from vit_helpers.data.splits import Data, subset
from vit_helpers.scaling.timing import processor
from vit_helpers.training import fit, predict, set_seed
from vit_helpers.training.presets import make_batches, make_network, preset, with_tta

FOLDS, KINDS = 5, ("random", "consecutive")


def add_arguments(parser: ArgumentParser) -> None:
    goals = [name for name in GOALS if name.startswith("digits")]
    parser.add_argument("--goals", nargs="+", choices=goals, default=goals, help="(default: all)")
    add_out(parser, "accuracies.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    print("about 0.7 hours of one thread, if nothing is stored yet", flush=True)
    for goal, kind, seed in product(args.goals, KINDS, range(args.seeds)):
        find_or_measure(args.out, cross_validate, goal=goal, folds=kind, seed=seed)
    table = summary(pd.read_csv(args.out)).to_string(float_format="{:.4f}".format)
    print(f"\n{table}\n\nrows: {args.out}")


def draw_folds(count: int, kind: str, seed: int) -> list[Tensor]:
    """The rows of each fold"""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator) if kind == "random" else torch.arange(count)
    return list(order.tensor_split(FOLDS))


def cross_validate(goal: str, folds: str, seed: int) -> dict[str, Any]:
    """Train one model for each fold, and test it on that fold."""
    settings = preset("digits", seed=seed, **GOALS[goal]["settings"])
    digits = every_digit()
    right, seconds = torch.zeros(len(digits), dtype=torch.bool), 0.0
    for rows in draw_folds(len(digits), folds, seed):
        rest = torch.ones(len(digits), dtype=torch.bool)
        rest[rows] = False
        train, test = subset(digits, rest), subset(digits, rows)
        data = Data.from_splits("digits", train, test, test, CLASS_NAMES)
        set_seed(seed)
        model, batches = make_network(data, settings), make_batches(data, settings)
        start = time.perf_counter()
        fit(model, batches, None, settings.recipe, callbacks=[])
        seconds += time.perf_counter() - start
        logits, labels = predict(with_tta(model, settings), data.batches("test", 512))
        right[rows] = logits.argmax(1) == labels
    row = {"accuracy": right.float().mean().item(), "seconds": seconds, "right": pack(right)}
    return row | {
        "machine": f"{processor()}, 1 thread, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy with the errors of seeds and of images, for each goal and kind of folds"""
    lines = {}
    for (goal, kind), group in rows.groupby(["goal", "folds"], sort=False):
        effect = effect_of(np.stack([unpack(text) for text in group["right"]])).row()
        lines[goal, kind] = {"n": len(group), **effect, "seconds": group["seconds"].mean() / FOLDS}
    names = {
        "n": "seeds",
        "difference": "accuracy",
        "seeds": "error due to seeds",
        "images": "error due to images",
    }
    return pd.DataFrame.from_dict(lines, orient="index").rename(columns=names)


if __name__ == "__main__":
    raise SystemExit(main())
