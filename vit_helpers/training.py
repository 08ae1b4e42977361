"""Training: one loop, written out.  Seeds, learning rate, evaluation.  Works for any classifier."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from vit_helpers.checkpoints import load_checkpoint, make_room, restore, save_checkpoint


@dataclass(frozen=True)
class Recipe:
    """How to train.  The defaults are for the digits, chosen without their test part.

    lr             : the highest learning rate, reached after the warm-up
    token_rate     : class token and positions learn at this many times lr: they start near 0 and have far to go
    warmup         : share of all steps in which the rate rises from 0, straight
    weight_decay   : pulls matrices towards 0 (AdamW: apart from the gradient); all else is left alone
    label_smoothing: share of the target that is spread over all classes
    clip           : longest gradient allowed, over all parameters together
    """

    epochs: int = 36
    lr: float = 3e-3
    token_rate: float = 10.0
    warmup: float = 0.1
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    clip: float = 1.0

    def __post_init__(self):
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int):
            raise TypeError(f"epochs must be a whole number, got {self.epochs!r}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        for name in ("lr", "token_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {getattr(self, name)}")
        for name in ("warmup", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share from 0 up to 1, got {getattr(self, name)}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more and finite, got {self.weight_decay}")


class Score(NamedTuple):
    """loss: mean over images, in nats;  accuracy: share of images from 0 to 1"""

    loss: float
    accuracy: float


def set_seed(seed):
    """Start torch's random generators, on the CPU and every GPU, from this seed.  The series draws from no others."""
    torch.manual_seed(seed)


def warmup_cosine(step, total, warmup):
    """The share of the highest learning rate to use at a step: a straight rise, then half a cosine down to 0.

    step: 0 .. total - 1; warmup: how many steps the rise takes

    >>> [round(warmup_cosine(step, total=10, warmup=4), 2) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def adamw(model, lr, weight_decay, token_rate=1.0):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101) that decays matrices only.

    Parameters are told apart by their shape: class token and positions are (1, T, D); a bias or a norm has one axis;
    the rest are matrices and kernels.  token_rate: the tokens' learning rate over lr.
    """
    tokens = [p for p in model.parameters() if p.ndim == 3 and p.shape[0] == 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    matrices = [p for p in model.parameters() if p.ndim > 1 and not (p.ndim == 3 and p.shape[0] == 1)]
    groups = [
        {"params": matrices, "lr": lr, "weight_decay": weight_decay},
        {"params": vectors, "lr": lr, "weight_decay": 0.0},
        {"params": tokens, "lr": token_rate * lr, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], fused=True)


def fit(model, train, validation, recipe=None, *, device="cpu", report=None, checkpoint=None, resume=False, about=None):
    """Train a classifier; the history comes back, a dict an epoch (`print_epoch` names its units).

    train, validation: give (images, labels) batches each time they are iterated, and have a length
    report           : called with every row of the history, `print_epoch` by default
    checkpoint       : a path; after every epoch all that is needed to go on is kept there, with `about`
    about            : plain values (numbers, texts, tuples, dicts) that say what was trained, kept with the checkpoint
    resume           : go on from that checkpoint, to the same end as a run that was never stopped (on CPU and CUDA)
    raises           : FloatingPointError when loss or gradient is not finite; ValueError when there is nothing to train
                       on, when `about` is not plain, or when resuming with another recipe or number of batches
    """
    recipe, report = recipe or Recipe(), report or print_epoch
    if not len(train):
        raise ValueError("no batch to train on")
    if checkpoint is not None:
        make_room(Path(checkpoint), recipe, about)
    elif resume:
        raise ValueError("resume=True needs the checkpoint to go on from")
    total = recipe.epochs * len(train)
    warmup = min(round(recipe.warmup * total), total - 1)
    model.to(device)
    optimizer = adamw(model, recipe.lr, recipe.weight_decay, recipe.token_rate)
    schedule = LambdaLR(optimizer, lambda step: warmup_cosine(step, total, warmup))
    history = []
    if resume:
        history = restore(load_checkpoint(checkpoint), model, optimizer, schedule, recipe, total)
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        row = {"epoch": epoch, "lr": schedule.get_last_lr()[0]}
        row |= train_epoch(model, train, optimizer, schedule, recipe, device, epoch)
        row["val_loss"], row["val_accuracy"] = evaluate(model, validation, device, recipe.label_smoothing)
        history.append(row)
        if checkpoint is not None:
            save_checkpoint(checkpoint, model, optimizer, schedule, recipe, total, history, about)
        report(row)
    return history


def train_epoch(model, batches, optimizer, schedule, recipe, device, epoch):
    """One pass over the training data: mean loss and accuracy as seen while learning, and speed."""
    model.train()
    start = time.perf_counter()
    loss_sum = right = count = 0
    for images, labels in tqdm(batches, desc=f"epoch {epoch} of {recipe.epochs}", leave=False, disable=None):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels, label_smoothing=recipe.label_smoothing)
        if not torch.isfinite(loss):
            raise FloatingPointError(not_finite("loss", loss.item(), schedule, epoch))
        loss.backward()
        length = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        if not torch.isfinite(length):
            raise FloatingPointError(not_finite("length of the gradient", length.item(), schedule, epoch))
        optimizer.step()
        schedule.step()
        loss_sum += loss.item() * len(labels)  # weigh by size: the last batch is smaller
        right += (logits.argmax(1) == labels).sum().item()
        count += len(labels)
    seconds = time.perf_counter() - start
    return {"loss": loss_sum / count, "accuracy": right / count, "images_per_second": count / seconds}


def not_finite(name, value, schedule, epoch):
    """The message of a run that stops: what is not finite, where, and the usual causes"""
    step, lr = schedule.last_epoch + 1, schedule.get_last_lr()[0]
    return (
        f"the {name} is {value} at step {step} (epoch {epoch}, learning rate {lr:.2g}). Usual causes: a learning rate that "
        "is too high or has no warm-up, pixels that are not normalised or hold NaN, a division by zero or a log of zero"
    )


@torch.no_grad()
def predict(model, batches, device="cpu"):
    """Logits (n, K) and labels (n,) of all batches, in order, on the CPU; dropout is off meanwhile."""
    was_training = model.training
    model.eval()
    pairs = [(model(images.to(device)).cpu(), labels.cpu()) for images, labels in batches]
    model.train(was_training)
    if not pairs:
        raise ValueError("no batch to predict")
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits), torch.cat(labels)


def evaluate(model, batches, device="cpu", label_smoothing=0.0):
    """Loss and accuracy over all images of the batches, as `Score`."""
    logits, labels = predict(model, batches, device)
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    return Score(loss.item(), (logits.argmax(1) == labels).float().mean().item())


def print_epoch(row):
    """One line of a history.  Loss in nats; training figures are those seen while learning, on augmented images."""
    print(
        f"epoch {row['epoch']:3d}  loss {row['loss']:.3f}  accuracy {row['accuracy']:.3f}  "
        f"validation loss {row['val_loss']:.3f}  accuracy {row['val_accuracy']:.3f}  "
        f"lr {row['lr']:.1e}  {row['images_per_second']:,.0f} images/s"
    )
