"""Recipes: everything that decides how a model is trained, and the optimisers and schedules that they name."""

import math
from dataclasses import dataclass

import torch

from vit_helpers.training.muon import Muon


def warmup_cosine(step, total, warmup):
    """The share of the highest learning rate to use at a step: a straight rise, then half a cosine down to 0.

    step: 0 .. total - 1; warmup: how many steps the rise takes

    >>> [round(warmup_cosine(step, total=10, warmup=4), 2) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def warmup_linear(step, total, warmup):
    """As `warmup_cosine`, with a straight fall to 0 (the paper's pre-training on JFT and ImageNet-21k, Table 3)"""
    return (step + 1) / warmup if step < warmup else (total - step) / (total - warmup)


def warmup_constant(step, total, warmup):
    """As `warmup_cosine`, without a fall"""
    return min(1.0, (step + 1) / max(1, warmup))


def adamw(model, lr, weight_decay, token_lr_mult=1.0):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) that decays matrices only.

    Parameters are told apart by their shape: class token and positions are (1, T, D); a bias or a norm has one axis;
    the rest are matrices and kernels.  token_lr_mult: the tokens' learning rate over lr.
    """
    return torch.optim.AdamW(param_groups(model, lr, weight_decay, token_lr_mult), fused=True)


def sgd(model, lr, weight_decay, token_lr_mult=1.0):
    """Plain steps with momentum 0.9, as in the paper's fine-tuning (Table 4); groups as for `adamw`"""
    return torch.optim.SGD(param_groups(model, lr, weight_decay, token_lr_mult), momentum=0.9)


def adam_l2(model, lr, weight_decay, token_lr_mult=1.0):
    """Adam with L2 in the gradient, on every parameter: what `torch.optim.Adam(weight_decay=...)` does.

    Not the decay of the paper, though published as that: Adam divides the L2 term by the gradient's size, so that it pulls
    hardest where the gradient is small.  token_lr_mult: must be 1, since all parameters are in one group
    """
    if token_lr_mult != 1:
        raise ValueError(f"adam_l2 treats all parameters alike: token_lr_mult must be 1, got {token_lr_mult}")
    return torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)


def muon(model, lr, weight_decay, token_lr_mult=1.0):
    """Muon for every matrix but the head's, AdamW as in `adamw` for all else"""
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and not name.startswith("head")]
    known = {id(p) for p in hidden}
    rest = param_groups(model, lr, weight_decay, token_lr_mult)
    for group in rest:
        group["params"] = [p for p in group["params"] if id(p) not in known]
    turned = {"params": hidden, "lr": lr, "weight_decay": weight_decay, "orthogonal": True}
    return Muon([group for group in [turned, *rest] if group["params"]])


def param_groups(model, lr, weight_decay, token_lr_mult):
    """Parameters with their learning rate and decay: matrices, vectors, tokens; the groups that are not empty"""
    tokens = [p for p in model.parameters() if p.ndim == 3 and p.shape[0] == 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    matrices = [p for p in model.parameters() if p.ndim > 1 and not (p.ndim == 3 and p.shape[0] == 1)]
    three = [
        {"params": matrices, "lr": lr, "weight_decay": weight_decay},
        {"params": vectors, "lr": lr, "weight_decay": 0.0},
        {"params": tokens, "lr": token_lr_mult * lr, "weight_decay": 0.0},
    ]
    return [group for group in three if group["params"]]


OPTIMIZERS = {"adamw": adamw, "adam_l2": adam_l2, "sgd": sgd, "muon": muon}
SCHEDULES = {"cosine": warmup_cosine, "linear": warmup_linear, "constant": warmup_constant}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Recipe:
    """How to train.  The defaults are for the digits, chosen without their test part.

    lr             : the highest learning rate, reached after the warm-up
    token_lr_mult     : class token and positions learn at this many times lr: they start near 0 and have far to go
    warmup         : share of all steps in which the rate rises from 0, straight
    weight_decay   : pulls matrices towards 0 (AdamW: apart from the gradient); all else is left alone
    label_smoothing: share of the target that is spread over all classes
    clip           : longest gradient allowed, over all parameters together
    optimizer      : "adamw"; "muon", which needs fewer epochs; "sgd"; or "adam_l2", which many tutorials print
    schedule       : after the warm-up: "cosine", "linear" or "constant"
    precision      : "float32", or "bfloat16" for the products (autocast), several times faster where a processor has units
                     for it (`bf16_units`), slower elsewhere
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

    def __post_init__(self):
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int):
            raise TypeError(f"epochs must be a whole number, got {self.epochs!r}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        for name in ("lr", "token_lr_mult", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {getattr(self, name)}")
        for name in ("warmup", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share from 0 up to 1, got {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more and finite, got {self.weight_decay}")
        for name, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}, known: {', '.join(known)}")

    def make_optimizer(self, model):
        """The optimiser that this recipe names, for a model's parameters"""
        return OPTIMIZERS[self.optimizer](model, self.lr, self.weight_decay, self.token_lr_mult)

    def share(self, step, total):
        """The share of the highest learning rate at a step, 0 .. total - 1"""
        warmup = min(round(self.warmup * total), total - 1)
        return SCHEDULES[self.schedule](step, total, warmup)


def bf16_units():
    """Whether this machine's CPU multiplies bfloat16 in units of its own (AVX512-BF16 or AMX): 2 to 3 times fp32's speed"""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
