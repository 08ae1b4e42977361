"""Training: the loop, recipes and optimizers, checkpoints, diagnosis, several processes, and a CNN for comparison."""

from vit_helpers.training.callbacks import Callback
from vit_helpers.training.loop import fit, set_seed
from vit_helpers.training.measurements import Epoch, FlipTTA, Score, evaluate, predict, print_epoch
from vit_helpers.training.recipe import Recipe

__all__ = [
    "Callback",
    "Epoch",
    "FlipTTA",
    "Recipe",
    "Score",
    "evaluate",
    "fit",
    "predict",
    "print_epoch",
    "set_seed",
]
