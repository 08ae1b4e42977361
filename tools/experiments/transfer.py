"""Measure what a pretrained model is worth for a task with few labels.

Photos: a model that `pretrain eight` trained on photos of eight classes learns to tell cats from
dogs. New classes: one that `pretrain seven` trained on 0 to 6 among clutter learns 7, 8 and 9. No
labels before: one that `pretrain masked` trained to reconstruct plain digits learns to classify
them. All four ways (from scratch, and from the pretrained model by a linear probe, LoRA or full
fine-tuning) have what transfer.toml says. Rates are chosen with the stored pretrained models, which
have seed 0. Reported runs store which test images they classified correctly. Finished runs are kept
in the CSV file, and the same command continues where it stopped.
"""

import time
import tomllib
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import date
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tools import main
from tools.experiments.measuring import add_out, find_or_measure, print_means
from vit_helpers.ablation.rows import pack
from vit_helpers.cli.train import pick_device
from vit_helpers.data import load
from vit_helpers.data.splits import Batches, Data, subset
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.finetune import add_lora, freeze, transfer_weights
from vit_helpers.scaling.speedups import best_precision
from vit_helpers.scaling.timing import processor
from vit_helpers.training import fit, predict, set_seed
from vit_helpers.training.presets import AUGMENT, RunSettings, load_data
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT

SETTINGS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TASKS: dict[str, dict[str, Any]] = SETTINGS["tasks"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which (default: all)"
    )
    parser.add_argument(
        "--photos",
        default="cifar10",
        help="cifar10, to be downloaded, or folder:PATH (default: cifar10)",
    )
    parser.add_argument(
        "--pretrained",
        nargs="+",
        type=int,
        default=[0],
        metavar="SEED",
        help="of the pretrained models; 0 is the stored one (default: 0)",
    )
    parser.add_argument(
        "--weights",
        type=Path,
        default=Path("weights"),
        help="where tools.pretrain wrote those of other seeds (default: weights)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where the models are trained (default: cpu)",
    )
    add_out(parser, "transfer.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    print(
        f"about {sum(TASKS[task]['hours'] for task in args.tasks):.1f} hours on one free core",
        flush=True,
    )
    train = partial(train_once, args.photos, args.weights, pick_device(args.device))
    for task in args.tasks:
        for augment, labels, way in product(
            *(TASKS[task][name] for name in ("augment", "labels", "rates"))
        ):
            key = {"task": task, "augment": augment, "labels": labels, "way": way}
            scores = dict.fromkeys(TASKS[task]["rates"][way], 0.0)
            for seed, lr in product(SETTINGS["tuning_seeds"], scores):
                scores[lr] += find_or_measure(
                    args.out, train, **key, split="validation", pretrained=0, seed=seed, lr=lr
                )["accuracy"]
            best = max(scores, key=scores.__getitem__)  # of equal ones, the lowest
            models = [0] if way == "from scratch" else args.pretrained
            for pretrained, seed in product(models, range(args.seeds)):
                find_or_measure(
                    args.out, train, **key, split="test", pretrained=pretrained, seed=seed, lr=best
                )
    table = pd.read_csv(args.out)
    print_means(
        table[table["split"] == "test"],
        ["task", "augment", "labels", "way"],
        ["accuracy"],
        args.out,
    )


@cache
def data_of(task: str, photos: str) -> Data:
    """The images of a task with their new labels.  photos: the data set of the task with photos"""
    about = TASKS[task]
    if about["data"] != "cifar10":
        return load(
            about["data"], **({"n": about["images"]} if "images" in about else {})
        ).filter_classes(*about["classes"])
    data = load_data(RunSettings.from_dict({"data": photos, "image_size": 32})).filter_classes(
        *about["classes"]
    )
    # folders are read class by class
    mixed = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    return replace(data, train=subset(data.train, mixed))


def train_once(
    photos: str,
    weights: Path,
    device: str,
    task: str,
    augment: str,
    labels: int,
    way: str,
    split: str,
    pretrained: int,
    seed: int,
    lr: float,
) -> dict[str, Any]:
    """One training with so many labels, and which images of a split it classifies correctly."""
    data, name = data_of(task, photos), TASKS[task]["weights"]
    source = load_pretrained(
        weights / f"{name}-{pretrained}.safetensors" if pretrained else f"ours:{name}"
    )
    normalize, num_classes = source.preprocess.normalize, len(data.class_names)
    # the same for every way
    order = torch.randperm(TASKS[task]["pool"], generator=torch.Generator().manual_seed(seed))
    split_of_labels, batch_size = subset(data.train, order[:labels]), SETTINGS["batch_size"]
    few = Batches(split_of_labels, batch_size, normalize, shuffle=True, augment=AUGMENT[augment])
    epochs = max(1, TASKS[task].get("steps", SETTINGS["steps"]) // len(few))
    # that of the pretraining
    precision = best_precision(device) if TASKS[task]["data"] == "cifar10" else "float32"
    recipe = Recipe(
        epochs=epochs,
        lr=lr,
        label_smoothing=0.0,
        precision=precision,
        **SETTINGS["optimizers"][way],
    )
    set_seed(seed)
    if way == "from scratch":
        model = ViT(replace(source.model.config, num_classes=num_classes))
    else:
        model = transfer_weights(source.model, num_classes=num_classes)
        model = (
            freeze(model) if way == "probe" else add_lora(model, rank=4) if way == "LoRA" else model
        )
    start = time.perf_counter()
    fit(model, few, None, recipe, device=device, callbacks=[])
    seconds = round(time.perf_counter() - start, 2)
    logits, labeled = predict(model, Batches(data.get_split(split), 500, normalize), device)
    right = logits.argmax(1) == labeled
    row: dict[str, Any] = {
        "accuracy": round(right.float().mean().item(), 4),
        "seconds": seconds,
        "steps": epochs * len(few),
    }
    row |= {
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "right": pack(right),
    }
    return row | {
        "machine": f"{hardware(device)}, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }


def hardware(device: str) -> str:
    """What trained a model"""
    return f"{processor()}, 1 thread" if device == "cpu" else torch.cuda.get_device_name()


if __name__ == "__main__":
    raise SystemExit(main())
