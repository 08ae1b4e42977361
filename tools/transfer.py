"""Measure what a pre-trained model is worth to a task with few labels, several seeds of each.

Two tasks. New classes: a model that `pretrain seven` taught 0 to 6 among clutter learns 7, 8 and 9. No labels before: a
model that `pretrain masked` taught to paint plain digits learns to name them. Beside both: the same model from scratch, with
the same labels, a recipe that suits it, and more steps. The rows are kept in a CSV file.
"""

import statistics
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from tools import main, write_rows
from vit_helpers.cli import positive_int

TASKS = {  # weights of this series, data, classes to learn, numbers of labels
    "new classes": ("seven", "scattered_digits", "789", (100, 300, 1000)),
    "no labels before": ("masked", "digits", "0123456789", (20, 50, 100)),
}
WAYS = {"from scratch": 400, "probe": 200, "LoRA": 200, "full": 200}  # steps of each
RATES = {  # from a small search on the validation part: two or three rates, one number of labels, one or two other seeds;
    # where rates were level, one of them
    "new classes": {"from scratch": 3e-3, "probe": 3e-3, "LoRA": 3e-3, "full": 3e-4},
    "no labels before": {"from scratch": 3e-3, "probe": 1e-2, "LoRA": 3e-3, "full": 3e-3},
}
KINDS = ("task", "way", "labels", "seed", "accuracy", "trained", "seconds")
BATCH, IMAGES = 32, 10_000


def add_arguments(parser):
    parser.add_argument("--seeds", type=positive_int, default=5, help="trainings of each kind (default: 5)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which (default: both)")
    parser.add_argument("--out", type=Path, default=Path("transfer.csv"), help="the CSV file (default: transfer.csv)")


def run(args):
    try:
        rows = [row for task in args.tasks for row in measure(task, args.seeds)]
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write_rows(args.out, KINDS, rows)
    print(f"\nrows: {args.out}")
    return 0


def measure(task, seeds):
    """The rows of a task, told line by line: mean and standard deviation over the seeds"""
    from vit_helpers.ablation import standard_deviation

    for labels in TASKS[task][3]:
        for way in WAYS:
            rows = [one_run(task, way, labels, seed) for seed in range(seeds)]
            accuracy = [row["accuracy"] for row in rows]
            said = f"{statistics.mean(accuracy):.3f} ± {standard_deviation(accuracy):.3f}"
            print(f"{task:18s} {labels:5d} labels  {way:14s} {said}", flush=True)
            yield from rows


def one_run(task, way, labels, seed, split="test", **changes):
    """One training: as many labels as said, drawn by the seed; changes: of its recipe"""
    import torch

    from vit_helpers.data.splits import Batches, subset
    from vit_helpers.pretrained import load_pretrained
    from vit_helpers.training import evaluate, fit, set_seed
    from vit_helpers.training.recipe import Recipe

    weights, name, classes, _ = TASKS[task]
    data, kept = pictures(name).filter_classes(*classes), load_pretrained(f"ours:{weights}")
    set_seed(seed)
    model = prepare(kept.model, way, len(classes))
    drawn = torch.randperm(len(data.train.labels), generator=torch.Generator().manual_seed(seed))  # the same for every way
    few = subset(data.train, drawn[:labels])
    batches = Batches(few, BATCH, kept.preprocess.normalize, shuffle=True)
    glance = Batches(
        subset(data.validation, torch.arange(10)), 10, kept.preprocess.normalize
    )  # `fit` looks at it every epoch
    settings = {"label_smoothing": 0.0, "lr": RATES[task][way], "epochs": max(1, round(WAYS[way] / len(batches)))}
    settings |= {"optimizer": "muon"} if way == "from scratch" else {"token_lr_mult": 1.0}
    recipe = Recipe(**settings | changes)
    start = time.perf_counter()
    fit(model, batches, glance, recipe, report=lambda row: None)
    seconds = time.perf_counter() - start
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    score = evaluate(model, Batches(data.get_split(split), 500, kept.preprocess.normalize))
    row = {"task": task, "way": way, "labels": labels, "seed": seed, "accuracy": score.accuracy}
    return row | {"trained": trained, "seconds": round(seconds, 2)}


@cache
def pictures(name):
    """A data set, made once"""
    from vit_helpers.data import load

    return load(name, n=IMAGES) if name == "scattered_digits" else load(name)


def prepare(model, way, num_classes):
    """A model for the new classes, with only those parameters left to learn that the way has"""
    from vit_helpers.pretrained.finetune import add_lora, freeze, transfer_weights
    from vit_helpers.vit import ViT

    if way == "from scratch":
        return ViT(replace(model.config, num_classes=num_classes))
    new = transfer_weights(model, num_classes=num_classes)
    return {"full": lambda x: x, "probe": freeze, "LoRA": lambda x: add_lora(x, rank=4)}[way](new)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
