"""Measure what a pretrained model is worth for a task with few labels, several seeds of each.

Two tasks. New classes: a model that `pretrain seven` trained on 0 to 6 among clutter learns 7, 8 and 9. No labels before: a
model that `pretrain masked` trained to reconstruct plain digits learns to classify them. Beside both, the same model is
trained from scratch, with the same labels, a recipe that suits it, and more steps. On the digits both are also trained
with the augmentation that the masked pretraining has. The rows are stored in a CSV file.
"""

import time
import tomllib
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tools import main
from tools.measuring import mean_and_std, write_csv
from vit_helpers.cli import positive_int
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
    parser.add_argument("--seeds", type=positive_int, default=5, help="trainings of each kind (default: 5)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which (default: both)")
    parser.add_argument("--out", type=Path, default=Path("transfer.csv"), help="the CSV file (default: transfer.csv)")


def run(args: Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for task in args.tasks:
        name = TASKS[task]["data"]
        data = (load(name, n=IMAGES) if name == "scattered_digits" else load(name)).filter_classes(*TASKS[task]["classes"])
        for labels, way in product(TASKS[task]["labels"], TASKS[task]["rates"]):
            about = [{"task": task, "way": way, "labels": labels, "seed": seed} for seed in range(args.seeds)]
            rows += (each | train_once(**each, data=data) for each in about)
            accuracies = pd.DataFrame(rows[-args.seeds :])["accuracy"]
            print(f"{task:18s} {labels:5d} labels  {way:23s} {mean_and_std(accuracies)}", flush=True)
    write_csv(pd.DataFrame(rows), args.out)
    print(f"\nrows: {args.out}")


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
    seconds = round(time.perf_counter() - start, 2)
    accuracy = evaluate(model, Batches(data.test, 500, normalize)).accuracy
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {"accuracy": accuracy, "trained": trained, "seconds": seconds}


if __name__ == "__main__":
    raise SystemExit(main())
