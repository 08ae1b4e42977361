"""Measure how well the ViT in plain Python reads the digits, beside ours and nearest neighbors.

Its learning rate is chosen on the validation digits, with seeds that are not used again. Then it is
trained with five seeds and tested on the 360 test digits, as are two trainings of the series' own
ViT (the settings of `python -m tools.bench`). The control is the nearest training digit. Finished
rows are kept in a CSV file, and the same command goes on where it stopped.
"""

import random
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tools import main
from tools.bench import GOALS
from tools.experiments.measuring import add_out, find_or_measure
from vit_helpers.ablation.rows import pack
from vit_helpers.data import load
from vit_helpers.microvit import microvit
from vit_helpers.scaling.timing import processor
from vit_helpers.training import fit, predict, set_seed
from vit_helpers.training.presets import make_batches, make_network, preset, with_tta

RATES, CHOOSING = (0.01, 0.02, 0.005), (100,)  # seeds
CHOSEN = microvit.RATE


def add_arguments(parser: ArgumentParser) -> None:
    add_out(parser, "microvit.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    print("about 15 minutes of one thread, if nothing is stored yet", flush=True)
    for seed, rate in product(CHOOSING, RATES):
        measure(args.out, "validation", f"microvit, rate {rate}", seed, train_microvit)
    for seed in range(args.seeds):
        measure(args.out, "test", f"microvit, rate {CHOSEN}", seed, train_microvit)
        for goal in ("digits-3s", "digits"):
            measure(args.out, "test", goal, seed, train_ours)
    measure(args.out, "test", "nearest", 0, find_nearest)
    rows = pd.read_csv(args.out).groupby(["split", "model"])[["accuracy", "seconds"]]
    print(f"\n{rows.agg(['mean', 'min', 'max']).to_string()}\n\nrows: {args.out}")


def measure(
    path: Path, split: str, model: str, seed: int, answer: Callable[[str, str, int], Tensor]
) -> None:
    """Store whether each digit of a split is classified correctly, unless it is stored."""

    def row(split: str, model: str, seed: int) -> dict[str, Any]:
        start = time.process_time()
        right = answer(split, model, seed) == load("digits").get_split(split).labels
        seconds = time.process_time() - start
        where = f"{processor()}, 1 thread, torch {torch.__version__}"
        return {
            "accuracy": right.float().mean().item(),
            "seconds": seconds,
            "right": pack(right),
            "machine": where,
            "date": date.today().isoformat(),
        }

    find_or_measure(path, row, split=split, model=model, seed=seed)


def train_microvit(split: str, model: str, seed: int) -> Tensor:
    """The answers of the plain model, trained with this seed; its rate is the name's last word."""
    microvit.RATE = float(model.split()[-1])
    random.seed(seed)
    digits, weights = microvit.read_digits(), microvit.make_weights()
    microvit.train(weights, digits["train"])
    return torch.tensor([microvit.predict(weights, image) for image, _ in digits[split]])


def train_ours(split: str, goal: str, seed: int) -> Tensor:
    """The answers of the series' ViT, trained with a preset on the same digits."""
    data, settings = load("digits"), preset("digits", seed=seed, **GOALS[goal]["settings"])
    set_seed(seed)
    model = make_network(data, settings)
    fit(model, make_batches(data, settings), None, settings.recipe, callbacks=[])
    return predict(with_tta(model, settings), data.batches(split, 512))[0].argmax(1)


def find_nearest(split: str, model: str, seed: int) -> Tensor:
    """The label of the training digit whose pixels are most similar; nothing is learned."""
    data = load("digits")
    images, known = data.get_split(split).images.flatten(1), data.train.images.flatten(1)
    return data.train.labels[torch.cdist(images, known).argmin(1)]


if __name__ == "__main__":
    raise SystemExit(main())
