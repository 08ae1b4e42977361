"""The exercise of notebook 07 in which three failing runs are repaired, each by one change.

`python -m vit_helpers.checks.training_repairs` trains them on the digits, as they are and with each
change, three times each, and stores beside this file what they reached.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from vit_helpers.checks.engine.choices import blank, check_choices
from vit_helpers.checks.engine.report import report, short
from vit_helpers.data import load
from vit_helpers.training import fit
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig

KEPT = Path(__file__).with_suffix(".json")
SEEDS = range(3)
NO_CLIPPING = 1e9  # no gradient is so long
USUAL = Recipe(
    epochs=8,
    lr=3e-3,
    token_lr_mult=1,
    warmup=0,
    weight_decay=1e-4,
    label_smoothing=0,
    clip=NO_CLIPPING,
    optimizer="adam_l2",
    schedule="constant",
)
RUNS = {
    "F": replace(USUAL, weight_decay=0.3),
    "G": replace(USUAL, lr=1e-4),
    "H": replace(USUAL, lr=0.03),
}
CHANGES: dict[str, Callable[[Recipe], Recipe]] = {
    "a tenth of the learning rate": lambda recipe: replace(recipe, lr=recipe.lr / 10),
    "AdamW instead of Adam with L2": lambda recipe: replace(recipe, optimizer="adamw_all"),
    "clipping to a norm of 1": lambda recipe: replace(recipe, clip=1.0),
    "ten times the learning rate": lambda recipe: replace(recipe, lr=10 * recipe.lr),
    "twice as many epochs": lambda recipe: replace(recipe, epochs=2 * recipe.epochs),
    "warm-up in a fifth of the steps": lambda recipe: replace(recipe, warmup=0.2),
}
NOTHING = "nothing"  # the change that leaves a run as it is
WHY = {  # why a change isn't the repair of a run
    "F": {
        "a tenth of the learning rate":
            "The steps are shorter, but L2 has the same share in each of them",
        "clipping to a norm of 1":
            "It shortens the gradient of the loss, and L2 is added to that afterwards",
        "ten times the learning rate": "With longer steps, L2 wins even sooner",
        "twice as many epochs": "The loss already rises in the last epochs, and it goes on rising",
        "warm-up in a fifth of the steps":
            "It only concerns the first epochs, which aren't the bad ones",
    },
    "G": {
        "a tenth of the learning rate": "Both losses already fall too slowly",
        "AdamW instead of Adam with L2": "A decay so weak can be applied in either way",
        "clipping to a norm of 1": "Adam's steps hardly depend on the length of the gradient",
        "twice as many epochs": "The losses go on falling, but as slowly as before",
        "warm-up in a fifth of the steps": "It makes the first steps even shorter",
    },
    "H": {
        "AdamW instead of Adam with L2": "The decay is weak, and the steps are still far too long",
        "clipping to a norm of 1": "Adam's steps hardly depend on the length of the gradient",
        "ten times the learning rate": "The first steps already make the loss worse than ln 10",
        "twice as many epochs": "More steps that are too long don't lead far",
        "warm-up in a fifth of the steps": "Only the first steps are shorter, not those afterwards",
    },
}  # fmt: skip


# Training them


def train(recipe: Recipe, seed: int) -> list[dict[str, Any]]:
    """Train on the digits, and return the history as rows."""
    torch.manual_seed(seed)
    data = load("digits")
    model = ViT(ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10))
    batches = data.batches("train", 64, shuffle=True), data.batches("validation", 180)
    return [epoch.to_row() for epoch in fit(model, *batches, recipe, callbacks=[])]


def measure(recipe: Recipe) -> dict[str, Any]:
    """Train a run with and without each change.

    returns: the history of the run with the first seed, and the last validation accuracies with
             each change, one for each seed
    """
    shown = ("epoch", "loss", "accuracy", "num_classes", "val_loss", "val_accuracy")
    recipes = {NOTHING: recipe} | {name: change(recipe) for name, change in CHANGES.items()}
    runs = {name: [train(other, seed) for seed in SEEDS] for name, other in recipes.items()}
    history = [{key: row[key] for key in shown} for row in runs[NOTHING][0]]
    last = {name: [rows[-1]["val_accuracy"] for rows in seeds] for name, seeds in runs.items()}
    return {"history": history, "accuracies": last}


# The exercise


def measured() -> dict[str, dict[str, Any]]:
    """Return what is stored of each run: what `measure` returns."""
    return json.loads(KEPT.read_text(encoding="utf-8"))


def failing_runs() -> dict[str, list[dict[str, Any]]]:
    """Return the histories of the failing runs, {"F": rows, ...}, each of 8 epochs."""
    return {letter: run["history"] for letter, run in measured().items()}


def reached(letter: str, change: str) -> float:
    """Return the validation accuracy of a run with a change, the mean of the seeds."""
    return fmean(measured()[letter]["accuracies"][change])


def repair_of(letter: str) -> str:
    """Return the change with which a run becomes best."""
    return max(CHANGES, key=lambda change: reached(letter, change))


def check_repair(answer: Any) -> bool:
    """Check the repair of each run, {"F": one of CHANGES, ...}, and print a line for each.

    returns: True when all are right
    """
    example = '{"F": "...", "G": ...}'
    return check_choices("repair", answer, RUNS, check_one, example=example)


def check_one(letter: str, entry: Any) -> bool:
    """Print one line for one run; True when it is repaired."""
    if blank(entry):
        return report(" ", "repair", f"{letter}: no change is chosen yet")
    words = " ".join(entry.lower().split()) if isinstance(entry, str) else None
    change = next((name for name in CHANGES if name.lower() == words), None)
    if change is None:
        known = "; ".join(CHANGES)
        return report("x", "repair", f"{letter}: {short(entry)} is not one of the changes: {known}")
    before, after = reached(letter, NOTHING), reached(letter, change)
    effect = f"the mean validation accuracy becomes {after:.2f} instead of {before:.2f}"
    if change == repair_of(letter):
        return report("v", "repair", f"{letter}: {change}, right: {effect}")
    why = WHY[letter][change]
    return report("x", "repair", f"{letter}: not {change!r}: {effect}. {why}")


if __name__ == "__main__":
    results = {letter: measure(recipe) for letter, recipe in RUNS.items()}
    KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8", newline="\n")
