"""The training loop, for any classifier and any loss. What is not part of the loop attaches as a callback."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import PathLike
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from vit_helpers.distributed import full_tensor, is_main_process, mean_loss, wrap_ddp
from vit_helpers.training.callbacks import Callback, Report, Run
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.measurements import Batch, Epoch, TrainingSums, evaluate
from vit_helpers.training.recipe import Recipe

Device = str | torch.device
LossFunction = Callable[[Any, Tensor], Tensor]


class SizedBatches(Protocol):
    """(images, labels) batches that can be iterated repeatedly and counted"""

    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...


def set_seed(seed: int) -> None:
    """Seed torch's random generators, the only ones that the series uses; ValueError for more than 64 bits."""
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be at least -2^63 and below 2^64, got {seed}")
    torch.manual_seed(seed)


def fit(
    model: nn.Module, train: SizedBatches, validation: Iterable[Batch] | None, recipe: Recipe | None = None, *,
    device: Device = "cpu", loss_fn: LossFunction | None = None, callbacks: Sequence[Callback] = (),
    report: Callable[[Epoch], object] | None = None,
    checkpoint: str | PathLike[str] | None = None, resume: bool = False, about: dict[str, Any] | None = None,
) -> list[Epoch]:  # fmt: skip
    """Train a model and return its history, an `Epoch` for each pass over the training batches.

    validation: batches that are evaluated after every epoch; None for a model that is not a classifier
    loss_fn   : loss_fn(outputs, labels) -> mean over the batch; None: cross-entropy with the recipe's label smoothing
    callbacks : see `Callback`.  report makes a `Report`; checkpoint, resume and about make a `Checkpoint`
    raises    : FloatingPointError when loss or gradient is not finite; ValueError when there is no training batch, when
                `about` is not plain, or when resuming with another recipe or number of batches
    Where several processes train together (`distributed`), each gives its own slice of the batches.
    """
    if resume and checkpoint is None:
        raise ValueError("resume=True needs the checkpoint to resume from")
    recipe = recipe or Recipe()
    smoothing = recipe.label_smoothing if loss_fn is None else None
    run = start_run(model.to(device), recipe, steps=recipe.epochs * len(train))
    loss_fn = loss_fn or partial(mean_loss, label_smoothing=recipe.label_smoothing)
    kept = [] if checkpoint is None else [Checkpoint(checkpoint, resume, about)]
    attached = [*kept, *callbacks, Report(report)]
    for callback in attached:
        callback.on_fit_start(run)
    for epoch in range(len(run.history) + 1, recipe.epochs + 1):
        if run.stop:
            break
        if hasattr(train, "set_epoch"):  # a stream, whose order depends on the epoch
            train.set_epoch(epoch)
        hidden = None if is_main_process() else True  # None: where there is no terminal
        batches = tqdm(train, desc=f"epoch {epoch} of {recipe.epochs}", leave=False, disable=hidden)
        figures = train_epoch(run, batches, loss_fn, device, smoothing)
        score = (
            {}
            if validation is None
            else vars(evaluate(run.model, validation, device, recipe.label_smoothing))
        )
        run.history.append(
            Epoch(epoch, **figures, **{f"val_{name}": value for name, value in score.items()})
        )
        for callback in attached:
            callback.on_epoch_end(run)
    for callback in attached:
        callback.on_fit_end(run)
    return run.history


def train_epoch(
    run: Run,
    batches: Iterable[Batch],
    loss_fn: LossFunction,
    device: Device,
    label_smoothing: float | None = None,
) -> dict[str, Any]:
    """One pass over the training batches; returns its measurements for `Epoch`.  label_smoothing: see `TrainingSums`"""
    run.network.train()
    lr, sums = run.schedule.get_last_lr()[0], TrainingSums(label_smoothing)
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        run.optimizer.zero_grad()
        with torch.autocast(
            torch.device(device).type, torch.bfloat16, enabled=run.recipe.precision == "bfloat16"
        ):
            outputs = run.network(images)
        loss = loss_fn(outputs, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(run.model.parameters(), run.recipe.clip)
        check_finite(loss, norm, run)
        run.optimizer.step()
        run.schedule.step()
        sums.add(loss, outputs, labels)
    tokens = getattr(getattr(run.model, "config", None), "num_tokens", 0)
    return {"lr": lr, "tokens": tokens, **sums.means()}


def check_finite(loss: Tensor, norm: Tensor, run: Run) -> None:
    """FloatingPointError, with the usual causes, unless the loss and the norm of the gradient are finite numbers."""
    for name, value in (("loss", loss.item()), ("norm of the gradient", full_tensor(norm).item())):
        if not math.isfinite(value):
            step, epoch, lr = (
                run.schedule.last_epoch + 1,
                len(run.history) + 1,
                run.schedule.get_last_lr()[0],
            )
            raise FloatingPointError(
                f"the {name} is {value} at step {step} (epoch {epoch}, learning rate {lr:.2g}). Usual causes: too high a "
                "learning rate, no warm-up, pixels that are not normalized or contain NaN, a division by or a log of zero"
            )


def start_run(model: nn.Module, recipe: Recipe, steps: int) -> Run:
    """A run before its first step, with the optimizer and schedule of its recipe."""
    if not steps:
        raise ValueError("no batch to train on")
    optimizer = recipe.make_optimizer(model)
    schedule = LambdaLR(optimizer, partial(recipe.lr_factor, total=steps))
    return Run(model, wrap_ddp(model), recipe, optimizer, schedule, steps)
