"""The five runs whose curves notebook 07 asks about.

`python -m vit_helpers.checks.mysteries` trains them and stores their histories beside this file.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vit_helpers.data import load
from vit_helpers.data.splits import Split, subset
from vit_helpers.training import fit
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig

KEPT = Path(__file__).with_suffix(".json")
RUNS: dict[
    str, tuple[str, dict[str, Any]]
] = {  # letter: the fault, and what it changes: in the recipe, or of the images
    "A": ("rate too high", {"lr": 0.3, "warmup": 0.0}),
    "B": ("too few images", {"images": 60}),
    "C": ("nothing wrong", {}),
    "D": ("labels shuffled", {"shuffled": True}),
    "E": ("rate too low", {"lr": 1e-4}),
}
FAULTS = tuple(sorted(fault for fault, _ in RUNS.values()))


def mystery_runs() -> dict[str, list[dict[str, Any]]]:
    """Return five stored short runs on the digits, {"A": history, ...}, each with its fault.

    A history has the rows of what `fit` returns, without learning rate and speed. It has 6 epochs
    of 30 batches of 32 images.
    """
    return json.loads(KEPT.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Draws:
    """30 batches of 32 normalized images per epoch, drawn at random from a split."""

    split: Split
    normalize: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(len(self)):
            rows = torch.randint(len(self.split.labels), (32,))
            yield self.normalize(self.split.images[rows]), self.split.labels[rows]


def train_mysteries() -> dict[str, list[dict[str, Any]]]:
    """Return the same five, trained again."""
    return {letter: mystery_run(**change) for letter, (_, change) in RUNS.items()}


def mystery_run(
    images: int | None = None, shuffled: bool = False, **change: Any
) -> list[dict[str, Any]]:
    """Return one history."""
    torch.manual_seed(0)
    data = load("digits")
    train = subset(data.train, slice(images))
    if shuffled:
        train = replace(train, labels=train.labels[torch.randperm(len(train.labels))])
    model = ViT(ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10))
    settings: dict[str, Any] = {
        "epochs": 6,
        "lr": 2e-3,
        "schedule": "constant",
        "label_smoothing": 0.0,
    }
    batches = Draws(train, data.normalize), data.batches("validation", 180)
    history = fit(model, *batches, Recipe(**settings | change), callbacks=[])
    hidden = (
        "lr",
        "images_per_second",
        "probabilities",
    )  # they would reveal the fault, or depend on the machine
    return [
        {key: value for key, value in row.to_row().items() if key not in hidden} for row in history
    ]


if __name__ == "__main__":
    KEPT.write_text(json.dumps(train_mysteries(), indent=1) + "\n", encoding="utf-8", newline="\n")
