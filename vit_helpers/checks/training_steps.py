"""The steps of notebook 07: one on a batch (`train_step`), and a pass over all batches (`fixed`)."""

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from vit_helpers.checks.engine.exercise import Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import (
    OPTIMIZERS,
    at_once,
    by_batch,
    first_wrong,
    has_statistics,
    length_of,
    near,
    observe,
    problem,
    restless,
    rounded,
)  # fmt: skip
from vit_helpers.checks.engine.report import Function

# Whole answers, right and wrong


def stretch(s: SimpleNamespace, power: int = 1) -> None:
    """Bring the gradient's length to max_norm, also where it is shorter; power 2: by the square of the length."""
    length = length_of([p.grad for p in s.model.parameters()]) ** power
    for p in s.model.parameters():
        p.grad *= s.max_norm / length


def clip_each(s: SimpleNamespace, parts: Sequence[Any]) -> None:
    """Clip the gradient of each part alone."""
    for part in parts:
        clip_grad_norm_(part, s.max_norm)


ACTS: Mapping[
    str, Function
] = {  # what may happen in a step; s: model, images, labels, optimizer, max_norm, criterion, loss
    "zero": lambda s: s.optimizer.zero_grad(),
    "loss": lambda s: setattr(s, "loss", s.criterion(s.model(s.images), s.labels)),
    "backward": lambda s: s.loss.backward(),
    "cut": lambda s: s.loss.clamp(max=s.max_norm).backward(),
    "step": lambda s: s.optimizer.step(),
    "clip": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm),
    "values": lambda s: clip_grad_value_(s.model.parameters(), s.max_norm),
    "each": lambda s: clip_each(s, list(s.model.parameters())),
    "groups": lambda s: clip_each(s, [group["params"] for group in s.optimizer.param_groups]),
    "group": lambda s: clip_each(s, [s.optimizer.param_groups[0]["params"]]),
    "stretch": stretch,
    "square": lambda s: stretch(s, 2),
    "one": lambda s: clip_grad_norm_(s.model.parameters(), 1.0),
    "largest": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm, norm_type=math.inf),
    "absolute": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm, norm_type=1),
}


def step(acts: str = "zero loss backward clip step", loss: Function = F.cross_entropy) -> Function:
    """An answer that does these acts in this order."""

    def answer(
        model: nn.Module, images: Tensor, labels: Tensor, optimizer: Any, max_norm: float
    ) -> float:
        s = SimpleNamespace(
            model=model,
            images=images,
            labels=labels,
            optimizer=optimizer,
            max_norm=max_norm,
            criterion=loss,
            loss=None,
        )
        for act in acts.split():
            ACTS[act](s)
        return s.loss.item()

    return answer


def giving(rule: Function) -> Function:
    """An answer that takes the right step and gives another number: (loss, model before, model after, images, labels)."""

    def answer(
        model: nn.Module, images: Tensor, labels: Tensor, optimizer: Any, max_norm: float
    ) -> float:
        before = copy.deepcopy(model)
        loss = step()(model, images, labels, optimizer, max_norm)
        return float(rule(loss, before, model, images, labels))

    return answer


def gradient_length(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The length of the gradient of the loss."""
    return length_of(
        torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    )


LOSSES = {  # wrong losses
    "there is a softmax before the loss, but cross_entropy has its own and expects logits":
        lambda x, y: F.cross_entropy(x.softmax(1), y),
    "nll_loss expects logarithms of probabilities: use cross_entropy, which expects logits":
        lambda x, y: F.nll_loss(x.softmax(1), y),
    "the loss is the sum over the images, but should be their mean": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "the loss has the wrong sign": lambda x, y: -F.cross_entropy(x, y),
    "the labels are smoothed: use them as they are": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "the loss is a squared difference from the labels, but should be the cross-entropy":
        lambda x, y: F.mse_loss(x.softmax(1), F.one_hot(y, x.shape[1]).float()),
    "the loss is a squared difference of logits and labels, but should be the cross-entropy":
        lambda x, y: F.mse_loss(x, F.one_hot(y, x.shape[1]).float()),
}  # fmt: skip
STEPS = {  # acts of a wrong step
    "old gradients are not reset: backward adds to them. zero_grad belongs before backward": "loss backward clip step",
    "zero_grad comes after the step; call it before backward, or old gradients are used too": "loss backward clip step zero",
    "zero_grad comes between backward and step, so the new gradient is lost before it is used": "loss backward zero step",
    "the gradient is not clipped when the step is taken: clip after backward and before step": "zero loss backward step",
    "the loss is clamped at max_norm, and a clamped loss has no gradient: clip the gradient instead": "zero loss cut step",
} | {  # and of one that clips in another way
    message: f"zero loss backward {act} step" for message, act in {
        "every number is clipped alone, but clip_grad_norm_ limits the norm of the whole gradient": "values",
        "each parameter is clipped alone; limit the norm over all parameters together": "each",
        "each of the optimizer's groups is clipped alone; limit the norm over all parameters together": "groups",
        "only the optimizer's first group is clipped; limit the norm over all parameters together": "group",
        "the gradient is clipped to norm 1, whatever max_norm is": "one",
        "a gradient with a norm below max_norm is scaled up, but should be left as it is": "stretch",
        "the gradient is divided by its squared norm: is a square root missing?": "square",
        "the largest number is taken as the norm, but the norm is the square root of the sum of squares": "largest",
        "the sum of absolute values is taken as the norm, but it is the square root of the sum of squares": "absolute",
    }.items()
}  # fmt: skip
GIVEN = {  # wrong numbers beside a right step
    "the loss is computed again after the step: return the one before it": lambda loss, a, b, x, y: (
        F.cross_entropy(b(x), y)
    ),
    "divided by the size of the batch twice: cross_entropy already returns the mean": lambda loss, a, b, x, y: (
        loss / len(y)
    ),
    "that is the accuracy": lambda loss, a, b, x, y: (a(x).argmax(1) == y).float().mean(),
    "that is the norm of the gradient": lambda loss, a, b, x, y: gradient_length(a, x, y),
}


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
    """What to say of weights that no known mistake gives."""
    clipped = f" and max_norm = {max_norm:g}" if max_norm < math.inf else ""
    model = " and a model that has dropout and statistics" if has_statistics(start) else ""
    return f"with {optimizer}{clipped}{model}, the weights are not those of one optimizer step per batch"


def step_says(part: str, got: Tensor, right: Tensor, message: str, *args: Any) -> str:
    """The message about a wrong step."""
    i = first_wrong(got, right)
    return (
        message
        if part == "weights"
        else f"gives {got[i]:.5g} as the loss, wanted {right[i]:.5g}: {message}"
    )


SGD, ADAMW = OPTIMIZERS
batch = partial(problem, max_norm=1e6, old=True)
TRAIN_STEP = Exercise(
    name="train_step",
    reference=step(),
    outcome=Outcome(close=near, observe=partial(observe, by_batch, step())),
    wording=Wording(
        when=lambda *args: "",
        says=step_says,
        unknown={"weights": other_weights, "loss": "it should be the cross-entropy of model(images) and labels"},
    ),
    ideas={
        "returns the loss of the batch, as a number":
            [problem(SGD, K, (n,), 1e6, look=("loss",)) for K, n in ((10, 4), (3, 6), (3, 5), (10, 1))],
        "resets old gradients and takes one step, with SGD and with AdamW": [batch(SGD), batch(ADAMW, 8)],
        "clips the norm of the whole gradient before the step":
            [*(batch(SGD, max_norm=length) for length in (0.05, 0.5, 1.5, 100.0)), batch(ADAMW, max_norm=0.01)],
        "calls the model once, in training mode, and leaves everything else as it was":
            [batch(name, max_norm=0.3, model=restless) for name in OPTIMIZERS],
    },
    mistakes={message: step(loss=loss) for message, loss in LOSSES.items()}
    | {message: step(acts) for message, acts in STEPS.items()}
    | {message: giving(rule) for message, rule in GIVEN.items()},
)  # fmt: skip
check_train_step = TRAIN_STEP.check


# The planted mistakes


def weigh(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """The sum of the losses of all images."""
    return sum(loss * n for loss, n in zip(losses, sizes, strict=True))


def average(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """The mean loss over all images."""
    return weigh(losses, sizes) / sum(sizes)


def epoch(
    acts: str = "zero loss backward step",
    mean: Function = average,
    loss: Function = F.cross_entropy,
) -> Function:
    """An answer that does these acts for each batch and gives a mean of the losses."""
    one = step(acts, loss)

    def answer(model: nn.Module, batches: Any, optimizer: Any) -> float:
        model.train()
        losses, sizes = zip(
            *((one(model, x, y, optimizer, math.inf), len(y)) for x, y in batches), strict=True
        )
        return mean(losses, sizes)

    return answer


def loss_afterwards(model: nn.Module, batches: Any, optimizer: Any) -> float:
    """The right weights; the loss is that of all images after the epoch."""
    images, labels = zip(*(batches := list(batches)), strict=True)
    epoch()(model, batches, optimizer)
    with torch.no_grad():
        return F.cross_entropy(model(torch.cat(images)), torch.cat(labels)).item()


FIRST = "the first mistake is still there: zero_grad is between backward and step, so nothing is learned"
MEANS = {  # wrong means of the losses of batches with n images
    "the second mistake is still there: a mean of batch means, in which a smaller last batch counts too much. Weight by "
    "len(labels)": lambda x, n: sum(x) / len(x),
    "that is the loss of the last batch: return the mean over all images": lambda x, n: x[-1],
    "that is the loss of the first batch: is return inside the loop?": lambda x, n: x[0],
    "that is the smallest of the batches' losses: return the mean over all images": lambda x, n: min(x),
    "that is the sum of the batches' losses": lambda x, n: sum(x),
    "that is the sum over all images: divide by their number": weigh,
    "weighted by size, but divided by the number of batches instead of the number of images":
        lambda x, n: weigh(x, n) / len(x),
    "the batches' means, divided by the number of images: multiply each by len(labels) first": lambda x, n: sum(x) / sum(n),
    "weighted by size, but every batch is counted as if it were as large as the first":
        lambda x, n: weigh(x, n) / (n[0] * len(n)),
    "weighted by size, but every batch is counted as if it were as large as the last":
        lambda x, n: weigh(x, n) / (n[-1] * len(n)),
    "weighted by size, but divided by the size of the last batch": lambda x, n: weigh(x, n) / n[-1],
    "every batch's loss is weighted by the last batch's size: weight inside the loop": lambda x, n: sum(x) * n[-1] / sum(n),
}  # fmt: skip


def other_mean(got: Tensor, right: Tensor, *args: Any) -> str:
    """What to say of a mean loss that no known mistake gives."""
    return (
        "is it rounded?"
        if rounded(got, right)
        else "weight each batch's loss by len(labels), divide by all images"
    )


def epoch_says(
    part: str,
    got: Tensor,
    right: Tensor,
    message: str,
    start: nn.Module,
    batches: list[Any],
    *rest: Any,
) -> str:
    """The message about a wrong epoch."""
    sizes = ", ".join(str(len(labels)) for _, labels in batches)
    return (
        message
        if part == "weights"
        else f"gives {got[0]:.5g} for batches of {sizes} images, wanted {right[0]:.5g}: {message}"
    )


FIXED = Exercise(
    name="fixed",
    reference=epoch(),
    outcome=Outcome(close=near, observe=partial(observe, at_once, epoch())),
    wording=Wording(
        when=lambda *args: "",
        says=epoch_says,
        unknown={"weights": other_weights, "loss": other_mean},
    ),
    ideas={
        "every batch changes the weights by its own gradient":
            [problem(SGD, 3, (6, 6, 2), look=("weights",)), problem(ADAMW, 7, (4, 4, 1), look=("weights",))],
        "the loss is the mean over all images": [
            problem(SGD, K, sizes, look=("loss",))
            for K, sizes in ((3, (6, 6, 2)), (5, (8, 8, 3)), (4, (5,)), (3, (2, 7)))
        ],
        "trains in training mode, with batches that can be iterated only once, and leaves them as they were":
            [problem(ADAMW, model=restless, training=training) for training in (True, False)],
    },
    mistakes={
        FIRST: epoch("loss backward zero step"),
        f"{FIRST}. So is the second: look at the mean over all images":
            epoch("loss backward zero step", lambda x, n: sum(x) / len(x)),
        "the gradients of all batches are added up: zero_grad belongs inside the loop, once per batch":
            epoch("loss backward step"),
        "the loss is computed after the epoch: return the mean of the losses during the epoch": loss_afterwards,
    }
    | {message: epoch(loss=loss) for message, loss in LOSSES.items()}
    | {message: epoch(mean=mean) for message, mean in MEANS.items()},
)  # fmt: skip
check_fixed = FIXED.check
