"""Recipes: how a model is trained, and the learning-rate schedules that a recipe names."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from vit_helpers._validate import check_choice, check_int, check_range
from vit_helpers.training.optimizers import OPTIMIZERS


def warmup_cosine(step: int, total: int, warmup: int) -> float:
    """Compute the factor on the highest learning rate at a step.

    It rises linearly to 1, then falls along half a cosine to 0.
    step: 0 .. total - 1;  warmup: how many steps the rise takes

    >>> [round(warmup_cosine(step, total=10, warmup=4), 2) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def warmup_linear(step: int, total: int, warmup: int) -> float:
    """Compute the factor as `warmup_cosine` does, but with a linear decay to 0.

    So the paper pretrains on JFT and ImageNet-21k (Table 3).
    """
    return (step + 1) / warmup if step < warmup else (total - step) / (total - warmup)


Schedule = Callable[[int, int, int], float]
SCHEDULES: dict[str, Schedule] = {
    "cosine": warmup_cosine,
    "linear": warmup_linear,
    "constant": lambda step, total, warmup: min(1.0, (step + 1) / max(1, warmup)),
}


@dataclass(frozen=True)
class Recipe:
    """How to train a model. The defaults are for the digits, chosen without their test split.

    epochs         : passes over the training split
    lr             : the highest learning rate, reached after the warm-up
    token_lr_mult  : factor on lr for the class token and the position embeddings, which start near
                     0 and have to grow
    warmup         : fraction of all steps in which the learning rate rises from 0, linearly
    weight_decay   : pulls matrices towards 0 (AdamW: decoupled from the gradient); all other
                     parameters do not decay
    label_smoothing: fraction of the target that is spread over all classes
    clip           : the largest gradient norm allowed, over all parameters together
    optimizer      : "adamw"; "muon", which needs fewer epochs; "sgd"; or, for comparisons,
                     "adam_l2", which many tutorials print; "adamw_all", which is that with
                     decoupled decay; "adam_coupled", which is "adamw" with L2
    schedule       : after the warm-up: "cosine", "linear" or "constant"
    precision      : "float32", or "bfloat16" for the matrix products (autocast), faster for large
                     models where a processor has units for it (`bf16_units`), slower elsewhere
    raises         : ValueError or TypeError naming the field that does not fit
    """

    epochs: int = 36
    lr: float = 3e-3
    token_lr_mult: float = 10.0
    warmup: float = 0.1
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    clip: float = 1.0
    optimizer: str = "adamw"
    schedule: str = "cosine"
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_int("epochs", self.epochs)
        for name in ("lr", "token_lr_mult", "clip"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 < value < math.inf
            ):
                raise ValueError(f"{name} must be above 0 and finite, got {value!r}")
        for name, below in (("warmup", 1), ("label_smoothing", 1), ("weight_decay", math.inf)):
            check_range(name, getattr(self, name), below)
        for name, known in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("precision", ("float32", "bfloat16")),
        ):
            check_choice(name, getattr(self, name), known)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimizer that this recipe names, for a model's parameters."""
        return OPTIMIZERS[self.optimizer](model, self.lr, self.weight_decay, self.token_lr_mult)

    def lr_factor(self, step: int, total: int) -> float:
        """Compute the factor on the highest learning rate at a step, 0 .. total - 1."""
        warmup = min(round(self.warmup * total), total - 1)
        return SCHEDULES[self.schedule](step, total, warmup)


def bf16_units() -> bool:
    """Say whether this machine's CPU has units for bfloat16 products (AVX512-BF16 or AMX).

    With them it is 2 to 3 times as fast as with float32.
    """
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
