"""Training: one loop, written out.  Seeds, learning rate, evaluation.  Works for any classifier."""

import math
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm

from vit_helpers.checkpoints import load_checkpoint, make_room, restore, save_checkpoint
from vit_helpers.diagnosis import diagnose
from vit_helpers.parallel import first, full, gathered, in_step, mean_loss, total, world
from vit_helpers.recipe import Recipe


class Mirrored(nn.Module):
    """A trained classifier that looks twice, at the image and at its mirror image, and answers the mean.

    forward: (B, C, H, W) -> (B, K), logarithms of mean probabilities, to be used as logits
    """

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        one, two = self.model(images).softmax(dim=1), self.model(images.flip(3)).softmax(dim=1)
        return ((one + two) / 2).log()


class Score(NamedTuple):
    """loss: mean over images, in nats;  accuracy: share of images that are read right, from 0 to 1

    commonest: share of images that get the answer given most often; 1 means that all get the same
    """

    loss: float
    accuracy: float
    commonest: float


def set_seed(seed):
    """Start torch's random generators, on the CPU and every GPU, from this seed.  The series draws from no others."""
    torch.manual_seed(seed)


def fit(model, train, validation, recipe=None, *, device="cpu", report=None, checkpoint=None, resume=False, about=None):
    """Train a classifier; the history comes back, a dict an epoch (`print_epoch` names its units).

    train, validation: give (images, labels) batches each time they are iterated, and have a length
    report           : called with every row of the history; by default `print_epoch`, and a diagnosis in the end
    checkpoint       : a path; after every epoch all that is needed to go on is kept there, with `about`; where it ends in
                       ".shards" it is a folder, in which each of several processes writes its own part
    about            : plain values (numbers, texts, tuples, dicts) that say what was trained, kept with the checkpoint
    resume           : go on from that checkpoint, to the same end as a run that was never stopped (on CPU and CUDA)
    raises           : FloatingPointError when loss or gradient is not finite; ValueError when there is nothing to train
                       on, when `about` is not plain, or when resuming with another recipe or number of batches
    Where several processes train together (`vit_helpers.parallel`) each gives its share of the batches, and the first
    alone reports and writes.  Batches that have `set_epoch` are told which one comes.
    """
    recipe = recipe or Recipe()
    if not len(train):
        raise ValueError("no batch to train on")
    if checkpoint is not None:
        make_room(Path(checkpoint), recipe, about, resume)
    elif resume:
        raise ValueError("resume=True needs the checkpoint to go on from")
    steps = recipe.epochs * len(train)
    model.to(device)
    network = in_step(model)
    optimizer = recipe.make_optimizer(model)
    schedule = LambdaLR(optimizer, lambda step: recipe.share(step, steps))
    history = []
    if resume:
        history = restore(load_checkpoint(checkpoint), model, optimizer, schedule, recipe, steps)
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        if hasattr(train, "set_epoch"):
            train.set_epoch(epoch)  # a stream's order hangs on it
        row = {"epoch": epoch, "lr": schedule.get_last_lr()[0]}
        row |= train_epoch(network, train, optimizer, schedule, recipe, device, epoch)
        score = evaluate(model, validation, device, recipe.label_smoothing)
        row |= {"val_loss": score.loss, "val_accuracy": score.accuracy, "val_commonest": score.commonest}
        history.append(row)
        if checkpoint is not None:
            save_checkpoint(checkpoint, model, optimizer, schedule, recipe, steps, history, about)
        if first():
            (report or print_epoch)(row)
    if report is None and first():
        print(diagnose(history))
    return history


def train_epoch(model, batches, optimizer, schedule, recipe, device, epoch):
    """One pass over the training data: mean loss and accuracy as seen while learning, and speed.

    probabilities: whether all outputs were probabilities already, see `are_probabilities`
    """
    model.train()
    start = time.perf_counter()
    loss_sum = right = count = 0
    probabilities = True
    progress = {"desc": f"epoch {epoch} of {recipe.epochs}", "leave": False, "disable": None if first() else True}
    for images, labels in tqdm(batches, **progress):
        images, labels = images.to(device), labels.to(device)
        size = total(len(labels))  # of the batch, over all processes
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            logits = model(images)
        loss = mean_loss(logits.float(), labels, recipe.label_smoothing, size)
        value = total(loss.item()) / world()
        if not math.isfinite(value):
            raise FloatingPointError(not_finite("loss", value, schedule, epoch))
        loss.backward()
        length = full(torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip))
        if not torch.isfinite(length):
            raise FloatingPointError(not_finite("length of the gradient", length.item(), schedule, epoch))
        optimizer.step()
        schedule.step()
        loss_sum += value * size  # weigh by size: the last batch is smaller
        right += (logits.argmax(1) == whole(labels)).sum().item()
        count += size
        probabilities &= are_probabilities(logits)  # a tensor: nothing waits for it here
    measured = {"loss": loss_sum / count, "accuracy": total(right) / count, "num_classes": logits.shape[1]}
    measured["probabilities"] = total(int(probabilities)) == world()
    return measured | {"images_per_second": count / (time.perf_counter() - start)}


def are_probabilities(outputs):
    """Whether every row (B, K) is a probability distribution, up to the rounding of 16 bits, as after a softmax: a tensor"""
    return (outputs >= 0).all() & ((outputs.float().sum(1) - 1).abs() < 0.01).all()


def whole(labels):
    """One class an image, also where labels are shares of classes: (B,) or (B, K) -> (B,)"""
    return labels.argmax(1) if labels.ndim == 2 else labels


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
    """Loss and accuracy over all images of the batches, and of all processes, as `Score`."""
    logits, labels = map(gathered, predict(model, batches, device))
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    answers = logits.argmax(1)
    commonest = answers.bincount().max() / len(answers)
    return Score(loss.item(), (answers == labels).float().mean().item(), commonest.item())


def print_epoch(row):
    """One line of a history.  Loss in nats; training figures are those seen while learning, on augmented images."""
    print(
        f"epoch {row['epoch']:3d}  loss {row['loss']:.3f}  accuracy {row['accuracy']:.3f}  "
        f"validation loss {row['val_loss']:.3f}  accuracy {row['val_accuracy']:.3f}  "
        f"lr {row['lr']:.1e}  {row['images_per_second']:,.0f} images/s"
    )
