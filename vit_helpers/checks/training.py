"""The exercises of notebook 07: the schedule and the accuracy.

Steps are in training_steps.py, curves in training_curves.py.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import (
    as_number,
    first_wrong,
    leave_gradients,
    near,
    plain,
    restless,
    rounded,
)
from vit_helpers.checks.engine.report import Function, Mistake, reject_if
from vit_helpers.checks.training_adamw import ADAMW_STEP, check_adamw_step  # noqa: F401
from vit_helpers.checks.training_curves import check_reading  # noqa: F401
from vit_helpers.checks.training_steps import (  # noqa: F401
    FIXED,
    TRAIN_STEP,
    check_fixed,
    check_train_step,
)
from vit_helpers.training.recipe import warmup_cosine

# The schedule


def wave(x: float) -> float:
    """Return 0.5 * (1 + cos(pi * x)): from 1 at x = 0 to 0 at x = 1."""
    return 0.5 * (1 + math.cos(math.pi * x))


def schedule(
    step: int,
    total: int,
    warmup: int,
    rise: Function = warmup_cosine,
    fall: Function = warmup_cosine,
) -> float:
    """Give an answer with another warm-up, or with another fall after it."""
    return rise(step, total, warmup) if step < warmup else fall(step, total, warmup)


def waving(rule: Function, step: int, total: int, warmup: int) -> float:
    """Return another function of t, which goes from 0 to 1 after the warm-up."""
    return rule((step - warmup) / (total - warmup))


LOST = "the rise starts at 0, so the first step is lost: (step + 1) / warmup"
AFTER = "it begins where the warm-up ends, (step - warmup) / (total - warmup)"
RISES = {  # wrong warm-ups: at step s of T in all, of which w to warm up
    LOST: lambda s, T, w: s / w,
    LOST + ", without - 1": lambda s, T, w: s / (w - 1),
    LOST + ", not total": lambda s, T, w: s / T,
    "the rise ends a step late: (step + 1) / warmup reaches 1 in the last step of the warm-up":
        lambda s, T, w: (s + 1) / (w + 1),
    "the rise is divided by total, but it takes warmup steps": lambda s, T, w: (s + 1) / T,
    "the rise is not divided by warmup, but a factor is at most 1": lambda s, T, w: s + 1,
    "there is no rise: the factor is 1 from the first step on": lambda s, T, w: 1.0,
    "there is no rise: the cosine begins at step 0": lambda s, T, w: wave(s / T),
    "there is no rise: the cosine formula is used in the warm-up too":
        lambda s, T, w: wave((s - w) / (T - w)),
    "the factor is 0 during the warm-up: is // used instead of /?":
        lambda s, T, w: float((s + 1) // w),
    "the factor is 0 during all of the warm-up: is // used instead of /?": lambda s, T, w: 0.0,
    "the cosine is already applied during the warm-up; use only the rise there":
        lambda s, T, w: (s + 1) / w * wave(s / T),
    "the rise is a curve, but should be a straight line": lambda s, T, w: wave(1 - (s + 1) / w),
    "the rise is not straight: is something squared?": lambda s, T, w: ((s + 1) / w) ** 2,
    "the factor falls during the warm-up, but should rise": lambda s, T, w: 1 - s / w,
    "the factor falls to 0 during the warm-up, but should rise to 1":
        lambda s, T, w: 1 - (s + 1) / w,
}  # fmt: skip
FALLS = {  # wrong steps after the warm-up
    "the cosine is counted from step 0; " + AFTER: lambda s, T, w: wave(s / T),
    "the cosine is counted from step 0, past its end; " + AFTER: lambda s, T, w: wave(s / (T - w)),
    "the fall is divided by total, so it ends above 0: divide by total - warmup":
        lambda s, T, w: wave((s - w) / T),
    "the factor of the last step is 0, so that step is lost: use total - warmup, without - 1":
        lambda s, T, w: wave((s - w) / (T - w - 1)),
    "the factor of the last step is 0, but the fall reaches 0 only a step later":
        lambda s, T, w: wave((s - w) / max(1, T - w - 1)),
    "the fall begins a step early: use step - warmup, without + 1":
        lambda s, T, w: wave((s - w + 1) / (T - w)),
    "the fall begins a step late: use step - warmup, without - 1":
        lambda s, T, w: wave((s - w - 1) / (T - w)),
    "the fall is a straight line, counted from step 0, but should be half a cosine":
        lambda s, T, w: 1 - s / T,
    "the rise lasts a step too long: use step < warmup, not step <= warmup":
        lambda s, T, w: (s + 1) / w if s == w else warmup_cosine(s, T, w),
    "the rise goes on after the warm-up: is there an if?": lambda s, T, w: (s + 1) / w,
    "the rise goes on after the warm-up": lambda s, T, w: (s + 1) / w if w else 1.0,
}  # fmt: skip
WAVES = {  # the same, where t goes from 0 to 1 after the warm-up
    "the fall is a whole cosine, which rises again: use pi, not 2 * pi": lambda t: wave(2 * t),
    "the fall ends at 0.5: use pi, not pi / 2": lambda t: wave(t / 2),
    "that is a quarter of a cosine; half a cosine is 0.5 * (1 + cos(pi * ...))":
        lambda t: math.cos(math.pi / 2 * t),
    "the bare cosine falls to -1; 0.5 * (1 + cos) goes from 1 to 0": lambda t: 2 * wave(t) - 1,
    "the bare cosine is cut off at 0; 0.5 * (1 + cos) reaches 0 at the end":
        lambda t: max(0.0, 2 * wave(t) - 1),
    "the bare cosine without its sign rises again; 0.5 * (1 + cos) falls":
        lambda t: abs(2 * wave(t) - 1),
    "1 + cos goes from 2 to 0; the factor 0.5 is missing": lambda t: 2 * wave(t),
    "0.5 * cos goes from 0.5 to -0.5; the 1 + is missing": lambda t: wave(t) - 0.5,
    "parentheses are missing: 0.5 * (1 + cos), not 0.5 * 1 + cos": lambda t: 2 * wave(t) - 0.5,
    "parentheses are missing: 0.5 * (1 + cos), not 1 + 0.5 * cos": lambda t: 0.5 + wave(t),
    "1 - cos rises; 1 + cos falls": lambda t: 1 - wave(t),
    "that is a sine, but should be a cosine, which begins at its maximum": lambda t: wave(t - 0.5),
    "the fall is a straight line, but should be half a cosine": lambda t: 1 - t,
    "the factor stays at 1 after the warm-up: is the fall missing, or is // used instead of /?":
        lambda t: 1.0,
    "the factor is 0 after the warm-up, but should fall slowly": lambda t: 0.0,
    "the cosine takes radians: half a turn is pi, not 180": lambda t: wave(180 * t / math.pi),
    "pi is missing: the cosine falls to -1 within pi, not within 1": lambda t: wave(t / math.pi),
    "the cosine's value is squared": lambda t: wave(t) ** 2,
}  # fmt: skip


def share_of_total(step: int, total: int, warmup: int) -> float:
    """Take warmup for a share of all steps."""
    return warmup_cosine(step, total, warmup * total)


SIZES = [(100, 10), (37, 5), (10, 4)]  # total, warmup: what each mistake gives differs
EDGES = [(12, 0), (1, 0), (8, 1), (5, 4), (2, 1)]


def asked(total: int, warmup: int, steps: Sequence[int]) -> Case:
    """Make a case: the factors at some steps."""
    return Case(lambda: (total, warmup, steps))


def observe_shares(
    answer: Function, total: int, warmup: int, steps: Sequence[int]
) -> dict[str, Tensor]:
    """Observe the factors at these steps, one call for each."""
    of = f"for total = {total}, warmup = {warmup}"
    try:
        shares = [
            as_number(answer(s, total, warmup), f"at step {s} {of}", "a number from 0 to 1")
            for s in steps
        ]
    except ZeroDivisionError:
        end = (
            "divide by warmup only in the branch where step < warmup"
            if warmup == 0
            else "what is 0 there?"
        )
        raise Mistake(f"divides by 0 {of}: {end}") from None
    return {"share": torch.tensor(shares, dtype=torch.float32)}


def fixed_number(got: Tensor, total: int, warmup: int, steps: Sequence[int]) -> str | None:
    """Return the number of the first case that factors of another one belong to, or None."""
    first_total, first_warmup = SIZES[0]
    for name, known in (
        (f"total = {first_total}", (first_total, warmup)),
        (f"warmup = {first_warmup}", (total, first_warmup)),
    ):
        with suppress(ZeroDivisionError):
            shares = torch.tensor([warmup_cosine(step, *known) for step in steps])
            if known != (total, warmup) and near(got, shares.float()):
                return name
    return None


def odd_shares(
    got: Tensor, right: Tensor, total: int, warmup: int, steps: Sequence[int]
) -> str | None:
    """Say what is odd about a rise or fall that no mistake of the table leads to, or None."""
    if number := fixed_number(got, total, warmup, steps):
        return f"that belongs to {number}: is this number fixed in your code?"
    early = torch.tensor(steps) < warmup
    rise = steps[first_wrong(got, right)] < warmup
    shares, wanted = got[early == rise], right[early == rise]
    factor = shares[-1] / wanted[-1]
    multiple = factor > 0 and torch.allclose(shares, factor * wanted)
    if rise and multiple and (total, warmup) == SIZES[0]:
        return (
            f"every step of the warm-up gets {factor:.3g} times as much as it should; "
            "the last one should get 1"
        )
    if shares.min() < -1e-6 or shares.max() > 1 + 1e-6:
        return "a factor should be between 0 and 1"
    if not rise and shares[0] < 0.9:
        return (
            f"the factor jumps from 1 to {shares[0]:.3g} at the end of the warm-up, "
            "but the fall should begin at 1"
        )
    if not rise and (shares.diff() > 1e-6).any():
        return "the factor rises again during the fall, but half a cosine only falls"
    if not rise and shares[-1] > wanted[-1] + 0.01:
        return f"the fall ends at {shares[-1]:.3g}; it should end at {wanted[-1]:.3g}"
    return "is it rounded?" if rounded(shares, wanted) else None


def other_shares(got: Tensor, right: Tensor, total: int, warmup: int, steps: Sequence[int]) -> str:
    """Write the message about factors that are not odd in any known way."""
    if (total, warmup) == SIZES[0]:
        return "the rise is (step + 1) / warmup, the fall 0.5 * (1 + cos(pi * t))"
    return "right for total = {}, warmup = {}, but not here".format(*SIZES[0])


def schedule_says(
    part: str,
    got: Tensor,
    right: Tensor,
    message: str,
    total: int,
    warmup: int,
    steps: Sequence[int],
) -> str:
    """Write the message about a wrong factor."""
    i = first_wrong(got, right)
    return (
        f"gives {got[i]:.5g} at step {steps[i]} (total = {total}, warmup = {warmup}), "
        f"wanted {right[i]:.5g}: {message}"
    )


SCHEDULE = Exercise(
    name="schedule",
    reference=warmup_cosine,
    outcome=Outcome(close=near, observe=observe_shares),
    wording=Wording(
        when=lambda *args: "",
        says=schedule_says,
        odd=odd_shares,
        unknown=other_shares,
        fresh=(
            "gives different factors when the steps are called in another order: "
            "is something kept between calls?"
        ),
    ),
    ideas={
        "rises straight, from 1 / warmup to 1": [asked(T, w, range(w)) for T, w in SIZES],
        "then falls along half a cosine": [asked(T, w, range(w, T)) for T, w in SIZES],
        "right without warm-up, with one of 1 step, and with one that leaves a single step": [
            asked(T, w, range(T)) for T, w in EDGES
        ],
        "the factor depends on the step alone, in whatever order it is called": [
            *(asked(T, w, [s * 7 % T for s in range(T)]) for T, w in SIZES),
            expect_contract,
        ],
    },
    mistakes={message: partial(schedule, rise=rule) for message, rule in RISES.items()}
    | {message: partial(schedule, fall=rule) for message, rule in FALLS.items()}
    | {message: partial(schedule, fall=partial(waving, rule)) for message, rule in WAVES.items()}
    | {"warmup is multiplied by total, but it is already a number of steps": share_of_total},
)
check_schedule = SCHEDULE.check


# The accuracy


def hits(logits: Sequence[Tensor], labels: Sequence[Tensor]) -> list[int]:
    """Return how many predictions are correct in each batch."""
    return [int((x.argmax(1) == y).sum()) for x, y in zip(logits, labels, strict=True)]


def measuring(rule: Function) -> Function:
    """Make an answer that treats the model well.

    rule: (logits of every batch, labels of every batch) -> the number that is returned
    """

    @torch.no_grad()
    def answer(model: nn.Module, batches: Any) -> float:
        mode = model.training
        model.eval()
        logits, labels = zip(*((model(x), y) for x, y in batches), strict=True)
        model.train(mode)
        return float(rule(logits, labels))

    return answer


def counting(rule: Function) -> Function:
    """Make the same with the number of correct predictions in every batch, and its size."""
    return measuring(lambda x, y: rule(hits(x, y), list(map(len, y))))


def per_batch(right: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """Return the accuracy of each batch."""
    return [h / n for h, n in zip(right, sizes, strict=True)]


COUNTS = {  # wrong accuracies: h predictions are correct in batches of n images
    "that is the mean of the batches' accuracies, where a smaller last batch counts too much: "
    "count correct predictions":
        lambda h, n: fmean(per_batch(h, n)),
    "that is the mean of the batches' accuracies, in percent":
        lambda h, n: 100 * fmean(per_batch(h, n)),
    "that is the sum of the batches' accuracies: count correct predictions, divide by all images":
        lambda h, n: sum(per_batch(h, n)),
    "divided twice: a mean over images is already a fraction":
        lambda h, n: sum(per_batch(h, n)) / sum(n),
    "that is in percent: return a fraction from 0 to 1": lambda h, n: 100 * sum(h) / sum(n),
    "no prediction counts as correct: is // used instead of /, or is argmax missing?":
        lambda h, n: 0,
    "that is the number of correct predictions: divide by the number of images":
        lambda h, n: sum(h),
    "that is the fraction of wrong predictions": lambda h, n: 1 - sum(h) / sum(n),
    "that is the accuracy of the last batch alone": lambda h, n: h[-1] / n[-1],
    "that is the accuracy of the first batch alone: is return inside the loop?":
        lambda h, n: h[0] / n[0],
    "divided by the number of batches instead of the number of images":
        lambda h, n: sum(h) / len(n),
    "the last batch's correct predictions, divided by all images: is the sum reset each time?":
        lambda h, n: h[-1] / sum(n),
    "all correct predictions, divided by the size of the last batch": lambda h, n: sum(h) / n[-1],
    "all correct predictions, divided by the size of the first batch": lambda h, n: sum(h) / n[0],
    "every batch is counted as if it were as large as the first: count the images":
        lambda h, n: sum(h) / (len(n) * n[0]),
    "every batch is counted as if it were as large as the last: count the images":
        lambda h, n: sum(h) / (len(n) * n[-1]),
}  # fmt: skip
LOGITS = {  # the same from the logits and labels of every batch
    "argmax runs over the images, dim 0, but the classes are dim 1":
        lambda x, y: fmean(
            [float(i) for a, b in zip(x, y, strict=True) for i in (a.argmax(0) == b)]
        ),
    "argmax() without an axis gives one number for the whole batch, but the classes are dim 1":
        lambda x, y: fmean(
            [float(i) for a, b in zip(x, y, strict=True) for i in (a.argmax() == b)]
        ),
    "takes the smallest logit (argmin), but the prediction is the largest":
        lambda x, y: sum(hits([-a for a in x], y)) / len(torch.cat(y)),
    "that is the loss": lambda x, y: F.cross_entropy(torch.cat(x), torch.cat(y)),
    "that is the mean of the batches' losses": lambda x, y: fmean(map(F.cross_entropy, x, y)),
    "that is the mean probability of the correct class: count the correct predictions":
        lambda x, y: torch.cat(x).softmax(1).gather(1, torch.cat(y)[:, None]).mean(),
}  # fmt: skip


def graded(
    sizes: Sequence[int],
    right: Sequence[int],
    K: int,
    training: bool | None = None,
    once: bool = False,
) -> Case:
    """Make a model and batches with so many correct predictions each.

    training: the mode of a restless model
    """

    def draw() -> Arguments:
        model, batches = (plain if training is None else restless)(K).eval(), []
        for n, good in zip(sizes, right, strict=True):
            images = 2 * torch.randn(n, 1, 2, 3)
            labels = model(images).argmax(1)
            labels[good:] = (labels[good:] + 1 + torch.randint(K - 1, (n - good,))) % K
            batches.append((images, labels))
        if training is not None:
            leave_gradients(model)
            next(model.parameters()).requires_grad = False
        return model.train(bool(training)), batches, once

    how = (
        ""
        if training is None
        else f" and a model that came in {'training' if training else 'evaluation'} mode"
    )
    return Case(
        draw,
        f"for batches of {', '.join(map(str, sizes))} "
        f"images{' that come one by one' if once else how}",
    )


def observe_share(
    answer: Function, model: nn.Module, batches: list[Any], once: bool
) -> dict[str, float]:
    """Observe the accuracy that an answer returns, for an iterator where `once`.

    raises: Mistake if the model is called in a wrong way
    """
    asked, came = [], model.training

    def note(module: nn.Module, images: Any, logits: Tensor) -> None:
        training = any(part.training for part in module.modules())
        asked.append((training, logits.requires_grad))

    hook = model.register_forward_hook(note)
    try:
        got = answer(model, iter(batches) if once else batches)
    finally:
        hook.remove()
    learning = any(training for training, _ in asked)
    reject_if(
        learning,
        "calls the model in training mode, "
        "where dropout is active and statistics change: call model.eval() first",
    )
    mode = f"the model came in {'training' if came else 'evaluation'} mode"
    back = "in the other one: restore it with model.train(...)"
    reject_if(model.training != came, f"{mode}, but is left {back}")
    layers = any(m.training != came for m in model.modules())
    reject_if(layers, f"{mode}, and so does model.training say, but its layers are left {back}")
    graph = once and any(graph for _, graph in asked)
    reject_if(
        graph,
        "builds a graph for gradients, which an evaluation does not need: use torch.no_grad()",
    )
    return {"share": as_number(got, f"for {len(batches)} batches", "a fraction from 0 to 1")}


def odd_share(got: float, right: float, *args: Any) -> str | None:
    """Say what is odd about an accuracy with few digits."""
    return "is it rounded?" if rounded(torch.tensor(got), torch.tensor(right)) else None


ACCURACY = Exercise(
    name="accuracy",
    reference=counting(lambda h, n: sum(h) / sum(n)),
    outcome=Outcome(observe=observe_share),
    wording=Wording(
        when=lambda *args: "",
        says="gives {got:.6g} {when}, wanted {right:.6g}: {message}",
        odd=odd_share,
        unknown="count the images whose largest logit is that of the label",
    ),
    ideas={
        "the fraction of all images, whatever the size of the batches": [
            graded((5, 5), (1, 3), 5),
            graded((4, 4, 4), (1, 0, 4), 4),
            graded((6, 6, 1), (2, 4, 1), 5),
            graded((7, 7, 4), (7, 1, 3), 3),
            graded((9,), (4,), 10),
        ],
        "runs the model in evaluation mode, and restores the mode that it had": [
            graded((8, 8, 3), (5, 2, 3), 4, training) for training in (True, False)
        ],
        "changes nothing, computes no gradients, "
        "and works with batches that can be iterated only once": [
            graded((5, 5, 2), (3, 1, 2), 3, True, once=True)
        ],
    },
    mistakes={message: counting(rule) for message, rule in COUNTS.items()}
    | {message: measuring(rule) for message, rule in LOGITS.items()},
)
check_accuracy = ACCURACY.check
