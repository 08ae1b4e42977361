"""Training: the loop, recipes and optimizers, checkpoints, diagnosis, several processes, and a CNN for comparison."""

from vit_helpers.training.loop import FlipTTA, Score, evaluate, fit, predict, print_epoch, set_seed
from vit_helpers.training.recipe import Recipe

__all__ = ["FlipTTA", "Recipe", "Score", "evaluate", "fit", "predict", "print_epoch", "set_seed"]
