"""Training: loop, recipes, optimizers, callbacks, checkpoints, diagnosis, a CNN to compare with."""

from vit_helpers.training.callbacks import Callback, Report
from vit_helpers.training.loop import fit, set_seed
from vit_helpers.training.measurements import Epoch, FlipTTA, Score, evaluate, predict, print_epoch
from vit_helpers.training.recipe import Recipe

__all__ = [
    "Callback",
    "Epoch",
    "FlipTTA",
    "Recipe",
    "Report",
    "Score",
    "evaluate",
    "fit",
    "predict",
    "print_epoch",
    "set_seed",
]
