"""The training loop, for any classifier and any loss. The rest attaches as callbacks."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from vit_helpers.data.splits import Batch, SizedBatches
from vit_helpers.distributed import full_tensor, is_main_process, mean_loss, wrap_ddp
from vit_helpers.training.callbacks import Callback, LossFunction, Report, Run
from vit_helpers.training.evidence import CollectEvidence
from vit_helpers.training.measurements import Epoch, TrainingSums, evaluate
from vit_helpers.training.recipe import Recipe

Device = str | torch.device


def set_seed(seed: int) -> None:
    """Seed torch's random generators, the only ones that the series uses.

    raises: ValueError for more than 64 bits
    """
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be at least -2^63 and below 2^64, got {seed}")
    torch.manual_seed(seed)


def fit(
    model: nn.Module,
    train: SizedBatches,
    validation: Iterable[Batch] | None,
    recipe: Recipe | None = None,
    *,
    device: Device = "cpu",
    loss_fn: LossFunction | None = None,
    callbacks: Sequence[Callback] = (Report(),),
) -> list[Epoch]:
    """Train a model and return its history, an `Epoch` for each pass over the training batches.

    train     : batches, shuffled again in each epoch if they are to be; as `validation`, something
                that can be iterated over once for each epoch
    validation: batches that are evaluated after every epoch; None for a model that is no classifier
    loss_fn   : loss_fn(outputs, labels) -> mean over the batch; None: cross-entropy with the
                recipe's label smoothing
    callbacks : what is called between epochs and steps, in this order, as `Checkpoint`, or what you
                write (see `Callback`). Without them, `Report` prints each epoch and a diagnosis;
                [] is silent
    raises    : FloatingPointError when loss or gradient is not finite; ValueError when there is no
                training batch, or a label is that of no class; TypeError for batches that only one
                epoch could read, as a generator; what callbacks raise
    Where several processes train together (`distributed`), each gives its own slice of the batches.
    """
    recipe = recipe or Recipe()
    check_rereadable("training", train, recipe.epochs)
    check_rereadable("validation", validation, recipe.epochs)
    run = start_run(model.to(device), recipe, recipe.epochs * len(train), loss_fn)
    callbacks = [CollectEvidence(), *callbacks]
    for callback in callbacks:
        callback.on_fit_start(run)
    for number in range(len(run.history) + 1, recipe.epochs + 1):
        if run.stop:
            break
        if hasattr(train, "set_epoch"):  # a stream, whose order depends on the epoch
            train.set_epoch(number)
        batches = show_progress(train, f"epoch {number} of {recipe.epochs}")
        epoch = train_epoch(run, batches, device, callbacks)
        if validation is not None:
            seen = show_progress(validation, "validation")
            score = evaluate(run.model, seen, device, recipe.label_smoothing)
            epoch = replace(epoch, validation=score)
        run.history.append(epoch)
        for callback in callbacks:
            callback.on_epoch_end(run)
    for callback in callbacks:
        callback.on_fit_end(run)
    return run.history


def check_rereadable(name: str, batches: Iterable[Batch] | None, epochs: int) -> None:
    """Raise TypeError if the first of several epochs would use up the batches."""
    if epochs > 1 and isinstance(batches, Iterator):
        raise TypeError(
            f"each of {epochs} epochs reads the {name} batches, but a {type(batches).__name__} "
            "can be read only once: give a list of them, or `Batches`"
        )


def train_epoch(
    run: Run, batches: Iterable[Batch], device: Device, callbacks: Sequence[Callback] = ()
) -> Epoch:
    """Train on all batches once; returns the measurements, as yet without validation."""
    run.network.train()
    loss_fn = run.loss_fn or partial(mean_loss, label_smoothing=run.recipe.label_smoothing)
    kind, half = torch.device(device).type, run.recipe.precision == "bfloat16"
    lr = float(run.schedule.get_last_lr()[0])
    sums, start = TrainingSums(), time.perf_counter()
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        run.optimizer.zero_grad()
        with torch.autocast(kind, torch.bfloat16, enabled=half):
            outputs = run.network(images)
        loss = loss_fn(outputs, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(run.model.parameters(), run.recipe.clip)
        check_finite(loss, norm, run)
        run.optimizer.step()
        run.schedule.step()
        sums.add(loss, outputs, labels)
        for callback in callbacks:
            callback.on_step_end(run, outputs, labels, loss)
    seconds = time.perf_counter() - start
    score = sums.score()
    return Epoch(len(run.history) + 1, score, lr=lr, images_per_second=score.images / seconds)


def show_progress(batches: Iterable[Batch], title: str) -> Iterable[Batch]:
    """Return the batches, with a progress bar where the first process has a terminal."""
    disable = None if is_main_process() else True  # None: unless there is a terminal
    bar: Iterable[Batch] = tqdm(batches, desc=title, unit="step", leave=False, disable=disable)
    return bar


def check_finite(loss: Tensor, norm: Tensor, run: Run) -> None:
    """Raise FloatingPointError unless loss and norm of the gradient are finite numbers."""
    for name, value in (("loss", loss.item()), ("norm of the gradient", full_tensor(norm).item())):
        if not math.isfinite(value):
            step, epoch = run.schedule.last_epoch + 1, len(run.history) + 1
            lr = run.schedule.get_last_lr()[0]
            raise FloatingPointError(
                f"the {name} is {value} at step {step} (epoch {epoch}, learning rate {lr:.2g}). "
                "Usual causes: too high a learning rate, no warm-up, pixels that are not "
                "normalized or contain NaN, a division by or a log of zero"
            )


def start_run(
    model: nn.Module, recipe: Recipe, steps: int, loss_fn: LossFunction | None = None
) -> Run:
    """Prepare a run before its first step: the optimizer and schedule of its recipe."""
    if not steps:
        raise ValueError("no batch to train on")
    optimizer = recipe.make_optimizer(model)
    schedule = LambdaLR(optimizer, partial(recipe.lr_factor, total=steps))
    return Run(model, wrap_ddp(model), recipe, optimizer, schedule, steps, loss_fn)
