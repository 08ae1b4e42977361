"""Measure what a pretrained model is worth for a task with few labels, several seeds of each.

New classes: a model that `pretrain seven` trained on 0 to 6 among clutter learns 7, 8 and 9. No labels before: a model that
`pretrain masked` trained to reconstruct plain digits learns to classify them. The same models are trained from scratch,
with a recipe that suits them, and more steps; on the digits also with the augmentation that the masked pretraining has.
"""

import time
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from tools import main
from tools.measuring import add_out, print_means, store
from vit_helpers.data import load
from vit_helpers.data.augment import random_affine
from vit_helpers.data.splits import Batches, Data, subset
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.finetune import add_lora, freeze, transfer_weights
from vit_helpers.training import evaluate, fit, set_seed
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT

SETTINGS = tomllib.loads(Path(__file__).with_name("static").joinpath("transfer.toml").read_text(encoding="utf-8"))
TASKS, STEPS = SETTINGS["tasks"], SETTINGS["steps"]
BATCH, IMAGES = 32, 10_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which (default: both)")
    add_out(parser, "transfer.csv", seeds=5)


def run(args: Namespace) -> None:
    table = store((row for task in args.tasks for row in train_all(task, args.seeds)), args.out)
    print_means(table, ["task", "labels", "way"], ["accuracy"], args.out)


def train_all(task: str, seeds: int) -> Iterator[dict[str, Any]]:
    name = TASKS[task]["data"]
    data = (load(name, n=IMAGES) if name == "scattered_digits" else load(name)).filter_classes(*TASKS[task]["classes"])
    for labels, way, seed in product(TASKS[task]["labels"], TASKS[task]["rates"], range(seeds)):
        yield {"task": task, "way": way, "labels": labels, "seed": seed} | train_once(task, way, labels, seed, data)


def train_once(task: str, way: str, labels: int, seed: int, data: Data) -> dict[str, float]:
    """One training with so many labels, drawn by the seed."""
    pretrained, num_classes = load_pretrained(f"ours:{TASKS[task]['weights']}"), len(data.class_names)
    normalize = pretrained.preprocess.normalize
    set_seed(seed)
    scratch, augment = way.startswith("from scratch"), random_affine if way.endswith(", augmented") else None
    if scratch:
        model = ViT(replace(pretrained.model.config, num_classes=num_classes))
    else:
        model = transfer_weights(pretrained.model, num_classes=num_classes)
        model = freeze(model) if way == "probe" else add_lora(model, rank=4) if way == "LoRA" else model
    drawn = torch.randperm(len(data.train.labels), generator=torch.Generator().manual_seed(seed))  # the same for every way
    batches = Batches(subset(data.train, drawn[:labels]), BATCH, normalize, shuffle=True, augment=augment)
    validation = Batches(subset(data.validation, torch.arange(10)), 10, normalize)  # few: `fit` evaluates it every epoch
    settings: dict[str, Any] = {"optimizer": "muon"} if scratch else {"token_lr_mult": 1.0}
    settings |= {"label_smoothing": 0.0, "lr": TASKS[task]["rates"][way], "epochs": max(1, round(STEPS[way] / len(batches)))}
    start = time.perf_counter()
    fit(model, batches, validation, Recipe(**settings), report=lambda row: None)
    seconds, trained = round(time.perf_counter() - start, 2), sum(p.numel() for p in model.parameters() if p.requires_grad)
    accuracy = evaluate(model, Batches(data.test, 500, normalize)).accuracy
    return {"accuracy": accuracy, "trained": trained, "seconds": seconds}


if __name__ == "__main__":
    raise SystemExit(main())
