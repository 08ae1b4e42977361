"""The steps of notebook 07: one on a batch (`train_step`), a pass over all batches (`fixed`)."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from vit_helpers.checks.engine.exercise import Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import (
    NO_GRAPH,
    OPTIMIZERS,
    at_once,
    by_batch,
    first_wrong,
    length_of,
    near,
    observe,
    problem,
    restless,
    rounded,
    taught_with,
)
from vit_helpers.checks.engine.report import Function, variants

# Ways to clip, right and wrong: each changes the gradients of a model


def whole_norm(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip the norm of the whole gradient, which is right."""
    clip_grad_norm_(model.parameters(), max_norm)


def unclipped(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Leave the gradients as they are."""


def each_value(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip every number alone."""
    clip_grad_value_(model.parameters(), max_norm)


def each_parameter(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip the norm of each parameter alone."""
    for parameter in model.parameters():
        clip_grad_norm_(parameter, max_norm)


def each_group(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip the norm of each of the optimizer's groups alone."""
    for group in optimizer.param_groups:
        clip_grad_norm_(group["params"], max_norm)


def first_group(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip the optimizer's first group only."""
    clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)


def norm_1(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Clip to norm 1, whatever max_norm is."""
    clip_grad_norm_(model.parameters(), 1.0)


def largest_number(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Take the largest number for the norm."""
    clip_grad_norm_(model.parameters(), max_norm, norm_type=math.inf)


def sum_of_numbers(model: nn.Module, optimizer: Any, max_norm: float) -> None:
    """Take the sum of absolute values for the norm."""
    clip_grad_norm_(model.parameters(), max_norm, norm_type=1)


def scaled(model: nn.Module, optimizer: Any, max_norm: float, power: int = 1) -> None:
    """Bring the gradient to length max_norm, also if it is shorter.

    power: 2 divides by the squared length
    """
    length = length_of([p.grad for p in model.parameters()]) ** power
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(max_norm / length)


# Whole answers, right and wrong


def plain_backward(loss: Tensor, max_norm: float) -> None:
    """Compute the gradients of the loss."""
    loss.backward()


def the_loss(loss: float, logits: Tensor, labels: Tensor, norm: float) -> float:
    """Return the loss, which is right."""
    return loss


def clamped_backward(loss: Tensor, max_norm: float) -> None:
    """Compute the gradients of a loss that is clamped at max_norm: 0 above it."""
    loss.clamp(max=max_norm).backward()


def step(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    optimizer: Any,
    max_norm: float,
    reset: str = "before",
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    backward: Callable[[Tensor, float], None] = plain_backward,
    clip: Callable[[nn.Module, Any, float], None] = whole_norm,
    give: Callable[[float, Tensor, Tensor, float], float] = the_loss,
) -> float:
    """Take one step on a batch and return its loss: the right answer, or a wrong one.

    reset: when gradients are set to zero: "before" the loss, "between" backward and step, "after"
           the step, or "never"
    loss : (logits, labels) -> the loss; backward: what is called with it and max_norm
    clip : what changes the gradients before the step
    give : (loss, logits, labels, norm of the gradient) -> the number that is returned
    """
    if reset == "before":
        optimizer.zero_grad()
    logits = model(images)
    value = loss(logits, labels)
    backward(value, max_norm)
    norm = length_of([p.grad for p in model.parameters()])
    if reset == "between":
        optimizer.zero_grad()
    clip(model, optimizer, max_norm)
    optimizer.step()
    if reset == "after":
        optimizer.zero_grad()
    return give(value.item(), logits, labels, norm)


def computed_again(
    model: nn.Module, images: Tensor, labels: Tensor, optimizer: Any, max_norm: float
) -> float:
    """Take the right step; return the loss after it."""
    step(model, images, labels, optimizer, max_norm)
    return F.cross_entropy(model(images), labels).item()


def squared_difference(numbers: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared difference from one-hot labels."""
    return F.mse_loss(numbers, F.one_hot(labels, numbers.shape[1]).float())


LOSSES: dict[str, Function] = {  # wrong losses of logits x and labels y
    "there is a softmax before the loss, but cross_entropy has its own and expects logits":
        lambda x, y: F.cross_entropy(x.softmax(1), y),
    "nll_loss expects logarithms of probabilities: use cross_entropy, which expects logits":
        lambda x, y: F.nll_loss(x.softmax(1), y),
    "the loss is the sum over the images, but should be their mean":
        lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "the loss has the wrong sign": lambda x, y: -F.cross_entropy(x, y),
    "the labels are smoothed: use them as they are":
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "the loss is a squared difference from the labels, but should be the cross-entropy":
        lambda x, y: squared_difference(x.softmax(1), y),
    "the loss is a squared difference of logits and labels, but should be the cross-entropy":
        squared_difference,
}  # fmt: skip
STEPS: dict[str, dict[str, Any]] = {  # what `step` does in another way
    "the gradient is that of the sum over the images, but should be that of their mean":
        {
            "loss": partial(F.cross_entropy, reduction="sum"),
            "give": lambda loss, logits, labels, norm: loss / len(labels),
        },
    "old gradients are not reset: backward adds to them. zero_grad belongs before backward":
        {"reset": "never"},
    "the gradients that came with the model count in the first step: "
    "call zero_grad before backward in every step, the first one too":
        {"reset": "after"},
    "zero_grad comes between backward and step, so the new gradient is lost before it is used":
        {"reset": "between"},
    "the gradient is not clipped when the step is taken: clip after backward and before step":
        {"clip": unclipped},
    "the loss is clamped at max_norm, and a clamped loss has no gradient: "
    "clip the gradient instead": {"backward": clamped_backward, "clip": unclipped},
    "every number is clipped alone, but clip_grad_norm_ limits the norm of the whole gradient":
        {"clip": each_value},
    "each parameter is clipped alone; limit the norm over all parameters together":
        {"clip": each_parameter},
    "each of the optimizer's groups is clipped alone; "
    "limit the norm over all parameters together": {"clip": each_group},
    "only the optimizer's first group is clipped; limit the norm over all parameters together":
        {"clip": first_group},
    "the gradient is clipped to norm 1, whatever max_norm is": {"clip": norm_1},
    "a gradient with a norm below max_norm is scaled up, but should be left as it is":
        {"clip": scaled},
    "the gradient is divided by its squared norm: is a square root missing?":
        {"clip": partial(scaled, power=2)},
    "the largest number is taken as the norm, "
    "but the norm is the square root of the sum of squares": {"clip": largest_number},
    "the sum of absolute values is taken as the norm, "
    "but it is the square root of the sum of squares": {"clip": sum_of_numbers},
}  # fmt: skip
NUMBERS: dict[str, Function] = {  # wrong numbers beside a right step
    "divided by the size of the batch twice: cross_entropy already returns the mean":
        lambda loss, logits, labels, norm: loss / len(labels),
    "that is the accuracy":
        lambda loss, logits, labels, norm: (logits.argmax(1) == labels).float().mean().item(),
    "that is the norm of the gradient": lambda loss, logits, labels, norm: norm,
}  # fmt: skip


# One step


def other_weights(
    got: Tensor,
    right: Tensor,
    start: nn.Module,
    batches: list[Any],
    optimizer: str,
    max_norm: float,
    _: Any,
) -> str:
    """Say something of weights that no known mistake gives."""
    when = taught_with(start, optimizer, max_norm)
    return f"{when}, the weights are not those of one optimizer step per batch"


def step_says(part: str, got: Tensor, right: Tensor, message: str, *args: Any) -> str:
    """Write the sentence about a wrong step."""
    if part == "weights":
        return message
    i = first_wrong(got, right)
    return f"gives {got[i]:.5g} as the loss, wanted {right[i]:.5g}: {message}"


SGD, ADAMW = OPTIMIZERS
# a norm that clips nothing, but is small enough that a gradient divided by it still counts
batch = partial(problem, max_norm=100.0, old=True)
LOSS_SIZES = [(10, 4), (3, 6), (3, 5), (10, 1)]  # classes, images
TRAIN_STEP = Exercise(
    name="train_step",
    reference=step,
    outcome=Outcome(close=near, observe=partial(observe, by_batch, step)),
    wording=Wording(
        when=lambda *args: "",
        says=step_says,
        unknown={
            "weights": other_weights,
            "loss": "it should be the cross-entropy of model(images) and labels",
        },
        hints=NO_GRAPH,
    ),
    ideas={
        "returns the loss of the batch, as a number": [
            problem(SGD, K, (n,), 100.0, compared=("loss",)) for K, n in LOSS_SIZES
        ],
        "resets old gradients and takes one step, with SGD and with AdamW": [
            batch(SGD),
            batch(ADAMW, 8),
        ],
        "clips the norm of the whole gradient before the step": [
            *(batch(SGD, max_norm=length) for length in (0.05, 0.5, 1.5, 100.0)),
            batch(ADAMW, max_norm=0.01),
        ],
        "calls the model once, in training mode, and leaves everything else as it was": [
            batch(name, max_norm=0.3, model=restless) for name in OPTIMIZERS
        ],
    },
    mistakes=variants(step, {message: {"loss": loss} for message, loss in LOSSES.items()})
    | variants(step, STEPS)
    | variants(step, {message: {"give": number} for message, number in NUMBERS.items()})
    | {"the loss is computed again after the step: return the one before it": computed_again},
)
check_train_step = TRAIN_STEP.check


# The planted mistakes


def sum_over_images(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the sum of the losses of all images."""
    return sum(loss * n for loss, n in zip(losses, sizes, strict=True))


def mean_over_images(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the mean loss over all images."""
    return sum_over_images(losses, sizes) / sum(sizes)


def mean_over_batches(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the mean of the batches' losses."""
    return sum(losses) / len(losses)


def epoch(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    optimizer: Any,
    reset: str = "before",
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    mean: Callable[[Sequence[float], Sequence[int]], float] = mean_over_images,
) -> float:
    """Take a step on every batch and return the mean loss: the right answer, or a wrong one.

    reset, loss: as in `step`; mean: (losses of the batches, their numbers of images) -> the mean
    """
    model.train()
    losses, sizes = [], []
    for images, labels in batches:
        value = step(
            model, images, labels, optimizer, math.inf, reset=reset, loss=loss, clip=unclipped
        )
        losses.append(value)
        sizes.append(len(labels))
    return mean(losses, sizes)


def loss_afterwards(model: nn.Module, batches: Any, optimizer: Any) -> float:
    """Change the weights as is right; return the loss of all images after the epoch."""
    batches = list(batches)
    epoch(model, batches, optimizer)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.no_grad():
        return F.cross_entropy(model(images), labels).item()


FIRST = (
    "the first mistake is still there: zero_grad is between backward and step, "
    "so nothing is learned"
)
MEANS: dict[str, Function] = {  # wrong means of the losses x of batches with n images
    "the second mistake is still there: a mean of batch means, in which a smaller last batch "
    "counts too much. Weight by len(labels)": mean_over_batches,
    "that is the loss of the last batch: return the mean over all images": lambda x, n: x[-1],
    "that is the loss of the first batch: is return inside the loop?": lambda x, n: x[0],
    "that is the smallest of the batches' losses: return the mean over all images":
        lambda x, n: min(x),
    "that is the sum of the batches' losses": lambda x, n: sum(x),
    "that is the sum over all images: divide by their number": sum_over_images,
    "weighted by size, but divided by the number of batches instead of the number of images":
        lambda x, n: sum_over_images(x, n) / len(x),
    "the batches' means, divided by the number of images: multiply each by len(labels) first":
        lambda x, n: sum(x) / sum(n),
    "weighted by size, but every batch is counted as if it were as large as the first":
        lambda x, n: sum_over_images(x, n) / (n[0] * len(n)),
    "weighted by size, but every batch is counted as if it were as large as the last":
        lambda x, n: sum_over_images(x, n) / (n[-1] * len(n)),
    "weighted by size, but divided by the size of the last batch":
        lambda x, n: sum_over_images(x, n) / n[-1],
    "every batch's loss is weighted by the last batch's size: weight inside the loop":
        lambda x, n: sum(x) * n[-1] / sum(n),
}  # fmt: skip
EPOCHS: dict[str, dict[str, Any]] = {  # what `epoch` does in another way
    FIRST: {"reset": "between"},
    f"{FIRST}. So is the second: look at the mean over all images": {
        "reset": "between",
        "mean": mean_over_batches,
    },
    "the gradients of all batches are added up: "
    "zero_grad belongs inside the loop, once per batch": {"reset": "never"},
}


def other_mean(got: Tensor, right: Tensor, *args: Any) -> str:
    """Say something of a mean loss that no known mistake gives."""
    if rounded(got, right):
        return "is it rounded?"
    return "the mean over all images is wanted, in which every image counts the same"


def epoch_says(
    part: str,
    got: Tensor,
    right: Tensor,
    message: str,
    start: nn.Module,
    batches: list[Any],
    *rest: Any,
) -> str:
    """Write the sentence about a wrong epoch."""
    if part == "weights":
        return message
    sizes = ", ".join(str(len(labels)) for _, labels in batches)
    return f"gives {got[0]:.5g} for batches of {sizes} images, wanted {right[0]:.5g}: {message}"


MEAN_SIZES = [(3, (6, 6, 2)), (5, (8, 8, 3)), (4, (5,)), (3, (2, 7))]  # classes, images by batch
FIXED = Exercise(
    name="fixed",
    reference=epoch,
    outcome=Outcome(close=near, observe=partial(observe, at_once, epoch)),
    wording=Wording(
        when=lambda *args: "",
        says=epoch_says,
        unknown={"weights": other_weights, "loss": other_mean},
        hints=NO_GRAPH,
    ),
    ideas={
        "every batch changes the weights by its own gradient": [
            problem(SGD, 3, (6, 6, 2), compared=("weights",)),
            problem(ADAMW, 7, (4, 4, 1), compared=("weights",)),
        ],
        "the loss is the mean over all images": [
            problem(SGD, K, sizes, compared=("loss",)) for K, sizes in MEAN_SIZES
        ],
        "trains in training mode, with batches that can be iterated only once, "
        "and leaves them as they were": [
            problem(ADAMW, model=restless, training=training) for training in (True, False)
        ],
    },
    mistakes=variants(epoch, EPOCHS)
    | {
        "the loss is computed after the epoch: "
        "return the mean of the losses during the epoch": loss_afterwards
    }
    | variants(epoch, {message: {"loss": loss} for message, loss in LOSSES.items()})
    | variants(epoch, {message: {"mean": mean} for message, mean in MEANS.items()}),
)
check_fixed = FIXED.check
