"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import copy
import itertools
import math
import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

from vit_helpers.checks.mysteries import FAULTS, RUNS, mystery_runs, train_mysteries
from vit_helpers.checks.training import (
    SPEAKS,
    check_accuracy,
    check_mended,
    check_reading,
    check_schedule,
    check_train_step,
)
from vit_helpers.training import evaluate
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.recipe import warmup_cosine


def not_written(*_):
    raise NotImplementedError("your turn")


# schedule


def by_hand(step, total, warmup):
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def by_square(i, n, w, floor=0.0):
    rise = (i + 1) / max(1, w)
    fall = math.cos(math.pi / 2 * max(0, i - w) / (n - w)) ** 2
    return min(rise, 1) * fall if i < w else fall


def by_linspace(step, total, warmup):
    rise = np.linspace(0, 1, warmup + 1)[1:]
    fall = 0.5 * (1 + np.cos(np.linspace(0, np.pi, total - warmup, endpoint=False)))
    return np.concatenate([rise, fall])[step]


def by_torch(step, total, warmup):
    step = torch.tensor(float(step))
    fall = 0.5 * (1 + torch.cos(torch.pi * (step - warmup) / (total - warmup)))
    return torch.where(step < warmup, (step + 1) / max(warmup, 1), fall)


def by_degrees(step, total, warmup):
    if warmup > step:
        return (1 + step) / warmup
    return 0.5 + 0.5 * math.cos(math.radians(180 * (step - warmup) / (total - warmup)))


def by_interpolation(step, total, warmup):
    turn = np.interp(step, [warmup, total], [0, math.pi])
    return np.interp(step + 1, [0, warmup], [0, 1]) if step < warmup else 0.5 * (1 + np.cos(turn))


SCHEDULE_RIGHT = [
    warmup_cosine,
    by_hand,
    by_square,
    by_linspace,
    by_torch,
    by_degrees,
    by_interpolation,
    lambda s, T, w: torch.tensor([by_hand(s, T, w)]),
    lambda s, T, w: np.float32(by_hand(s, T, w)),
    lambda s, T, w: torch.tensor(by_hand(s, T, w), requires_grad=True),
]


def rising(rule):
    """A wrong warm-up before the right fall"""
    return lambda s, T, w: rule(s, T, w) if s < w else by_hand(s, T, w)


def falling(rule):
    """The right warm-up before a wrong fall; t goes from 0 to 1"""
    return lambda s, T, w: by_hand(s, T, w) if s < w else rule((s - w) / (T - w), s, T, w)


def wave(t):
    return 0.5 * (1 + math.cos(math.pi * t))


def always_divides(s, T, w):
    rise = (s + 1) / w
    return rise if s < w else wave((s - w) / (T - w))


def counting():
    calls = {}

    def answer(step, total, warmup):
        """Counts by itself, as a scheduler object does"""
        count = calls.setdefault((total, warmup), itertools.count())
        return by_hand(next(count) % total, total, warmup)

    return answer


SCHEDULE_WRONG = [
    (not_written, "not written yet"),
    (0.5, "without brackets behind its name"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: str(by_hand(*a)), "it should give a number"),
    (lambda s, T, w: [by_hand(i, T, w) for i in range(T)], "it should give a number from 0 to 1"),
    (lambda s, T, w: torch.tensor([by_hand(i, T, w) for i in range(T)]), "a tensor of shape"),
    (lambda *a: by_hand(*a) + 0j, "it should give a number"),
    (lambda *a: math.nan, "gives nan"),
    (rising(lambda s, T, w: s / w), "so the first step is lost"),
    (rising(lambda s, T, w: s / (w - 1)), "so the first step is lost.*without - 1"),
    (rising(lambda s, T, w: s / T), "so the first step is lost.*not total"),
    (rising(lambda s, T, w: (s + 1) / (w + 1)), "ends a step late"),
    (rising(lambda s, T, w: (s + 1) / T), "divided by total"),
    (rising(lambda s, T, w: s + 1), "not divided by warmup"),
    (rising(lambda s, T, w: 1), "there is no rise: the share is 1"),
    (lambda s, T, w: wave(s / T), "no rise: the cosine begins at step 0"),
    (lambda s, T, w: wave((s - w) / (T - w)), "no rise: the cosine formula is used in the warm-up"),
    (rising(lambda s, T, w: (s + 1) // w), "// instead of /"),
    (rising(lambda s, T, w: s // w), "0 during all of the warm-up"),
    (lambda s, T, w: min(1, (s + 1) / w) * wave(s / T), "the cosine is at work in the warm-up"),
    (rising(lambda s, T, w: 0.5 * (1 - math.cos(math.pi * (s + 1) / w))), "it should be straight"),
    (rising(lambda s, T, w: ((s + 1) / w) ** 2), "is something squared"),
    (rising(lambda s, T, w: 1 - s / w), "the warm-up falls"),
    (rising(lambda s, T, w: math.exp(s - w)), r"the rise is \(step \+ 1\) / warmup"),
    (rising(lambda s, T, w: -(s + 1) / w), "between 0 and 1"),
    (lambda *a: 3e-3 * by_hand(*a), "is it the rate itself"),
    (lambda *a: 100 * by_hand(*a), "per cent"),
    (falling(lambda t, s, T, w: wave(s / T)), r"counted from step 0; it begins where"),
    (falling(lambda t, s, T, w: wave(s / (T - w))), "counted from step 0, past its end"),
    (falling(lambda t, s, T, w: wave((s - w) / T)), "divided by total, so it ends above 0"),
    (falling(lambda t, s, T, w: wave((s - w) / (T - w - 1)) if T - w > 1 else 1), "the last step is lost"),
    (falling(lambda t, s, T, w: wave((s - w + 1) / (T - w))), "a step early"),
    (falling(lambda t, s, T, w: 1 - s / T), "a straight fall, counted from step 0"),
    (falling(lambda t, s, T, w: (s + 1) / w if w else 1), "the rise goes on"),
    (falling(lambda t, *a: wave(2 * t)), "a whole cosine, which rises again"),
    (falling(lambda t, *a: wave(t / 2)), "ends at 0.5"),
    (falling(lambda t, *a: math.cos(math.pi / 2 * t)), "a quarter of a cosine"),
    (falling(lambda t, *a: math.cos(math.pi * t)), "the bare cosine falls to -1"),
    (falling(lambda t, *a: max(0, math.cos(math.pi * t))), "cut off at 0"),
    (falling(lambda t, *a: abs(math.cos(math.pi * t))), "without its sign"),
    (falling(lambda t, *a: 1 + math.cos(math.pi * t)), "the factor 0.5 is missing"),
    (falling(lambda t, *a: 0.5 * math.cos(math.pi * t)), "the 1 \\+ is missing"),
    (falling(lambda t, *a: 0.5 * 1 + math.cos(math.pi * t)), "not 0.5 \\* 1 \\+ cos"),
    (falling(lambda t, *a: 1 + 0.5 * math.cos(math.pi * t)), "not 1 \\+ 0.5 \\* cos"),
    (falling(lambda t, *a: 0.5 * (1 - math.cos(math.pi * t))), "1 - cos rises"),
    (falling(lambda t, *a: 0.5 * (1 + math.sin(math.pi * t))), "a sine"),
    (falling(lambda t, *a: 1 - t), "a straight fall; it should be half a cosine"),
    (falling(lambda t, *a: 1.0), "is the fall missing"),
    (falling(lambda t, *a: 0), "the share is 0 after the warm-up"),
    (falling(lambda t, *a: 0.5 * (1 + math.cos(180 * t))), "half a turn is pi, not 180"),
    (falling(lambda t, *a: 0.5 * (1 + math.cos(t))), "pi is missing"),
    (falling(lambda t, *a: wave(t) ** 2), "squared"),
    (falling(lambda t, *a: 0.7 - 0.7 * t), "jumps from 1 to 0.7"),
    (falling(lambda t, *a: math.exp(-t)), "the fall ends at 0.37"),
    (falling(lambda t, *a: -t), "jumps from 1 to -0|between 0 and 1"),
    (falling(lambda t, *a: 1 + t), "between 0 and 1"),
    (falling(lambda t, *a: 0.01 + 0.99 * wave(t) - 0.01 * t), "the fall 0.5"),
    (always_divides, "divides by 0 for total = 12, warmup = 0: divide in the branch of the warm-up"),
    (lambda s, T, w: by_hand(s, T, w) if w else by_hand(s, T, 1), "warmup = 0"),
    (lambda s, T, w: by_hand(s, T, max(w, 2)), "warmup = 0|raises ZeroDivisionError|divides by 0"),
    (lambda s, T, w: (s + 1) / w if s <= w else by_hand(s, T, w), "a step too long"),
    (lambda s, T, w: round(by_hand(s, T, w), 2), "is it rounded"),
    (lambda s, T, w: by_hand(s, T, 10) if w > 1 else by_hand(s, T, w), "is a number fixed in your code"),
    (falling(lambda t, s, T, w: wave((s - w) % (T // 2) / (T // 2))), "rises again on the way"),
    (falling(lambda t, *a: max(0.05, wave(t))), "the fall ends at 0.05"),
    (counting(), "is something kept between calls"),
]

# train_step


def step_by_step(model, images, labels, optimizer, max_norm):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def clipped_by_hand(net, x, y, opt, longest, *, verbose=False):
    net.zero_grad(set_to_none=False)
    loss = -net(x).log_softmax(dim=-1)[torch.arange(len(y)), y].mean()
    loss.backward()
    length = math.sqrt(sum(float((p.grad**2).sum()) for p in net.parameters()))
    if length > longest:
        for p in net.parameters():
            p.grad.mul_(longest / length)
    opt.step()
    return loss.detach()


def by_closure(model, images, labels, optimizer, max_norm):
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.CrossEntropyLoss()(model(images), labels)
        loss.backward()
        clip_grad_norm_(list(model.parameters()), max_norm)
        return loss

    return optimizer.step(closure).item()


def by_autograd(model, images, labels, optimizer, max_norm):
    weights = list(model.parameters())
    loss = F.nll_loss(F.log_softmax(model(images), 1), labels)
    grads = torch.autograd.grad(loss, weights)
    scale = min(1.0, max_norm / torch.cat([g.flatten() for g in grads]).norm().item())
    for p, g in zip(weights, grads, strict=True):
        p.grad = g * scale
    optimizer.step()
    for p in weights:
        p.grad = None
    return np.float32(loss.item())


def with_one_hot(model, images, labels, optimizer, max_norm):
    model.train()
    for p in model.parameters():
        p.grad = None
    logits = model(images)
    loss = F.cross_entropy(logits, F.one_hot(labels, logits.shape[1]).float())
    loss.backward()
    clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return round(loss.item(), 7)


STEP_RIGHT = [step_by_step, clipped_by_hand, by_closure, by_autograd, with_one_hot]


def acting(acts, give=lambda loss: loss.item(), loss=F.cross_entropy):
    """A step made of these acts in this order"""

    def answer(model, images, labels, optimizer, max_norm):
        for act in acts.split():
            if act == "zero":
                optimizer.zero_grad()
            elif act == "loss":
                value = loss(model(images), labels)
            elif act == "backward":
                value.backward()
            elif act == "again":
                value.backward(retain_graph=True)
            elif act == "clip":
                clip_grad_norm_(model.parameters(), max_norm)
            elif act == "value":
                clip_grad_value_(model.parameters(), max_norm)
            elif act == "each":
                for p in model.parameters():
                    clip_grad_norm_(p, max_norm)
            elif act == "one":
                clip_grad_norm_(model.parameters(), 1.0)
            elif act == "inf":
                clip_grad_norm_(model.parameters(), max_norm, float("inf"))
            elif act == "l1":
                clip_grad_norm_(model.parameters(), max_norm, 1)
            elif act in ("stretch", "square"):
                length = clip_grad_norm_(model.parameters(), 1e9) ** (1 if act == "stretch" else 2)
                for p in model.parameters():
                    p.grad *= max_norm / length
            elif act == "step":
                optimizer.step()
            elif act == "eval":
                model.eval()
            elif act == "train":
                model.train()
            elif act == "seed":
                torch.manual_seed(0)
        return give(value)

    return answer


ALL = "zero loss backward clip step"


def anew(model, images, labels, optimizer, max_norm):
    step_by_step(model, images, labels, optimizer, max_norm)
    return F.cross_entropy(model(images), labels).item()


def own_optimizer(model, images, labels, optimizer, max_norm):
    return step_by_step(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), max_norm)


def asks_twice(model, images, labels, optimizer, max_norm):
    model(images)
    return step_by_step(model, images, labels, optimizer, max_norm)


def scales_in_place(model, images, labels, optimizer, max_norm):
    images -= images.mean()
    return step_by_step(model, images, labels, optimizer, max_norm)


def no_model(model, images, labels, optimizer, max_norm):
    return 1.0


def of_answers(model, images, labels, optimizer, max_norm):
    answers = model(images).argmax(1).float().requires_grad_()
    loss = F.mse_loss(answers, labels.float())
    loss.backward()
    optimizer.step()
    return loss.item()


def one_hot_by_itself(model, images, labels, optimizer, max_norm):
    return acting(ALL, loss=lambda x, y: F.cross_entropy(x, F.one_hot(y).float()))(
        model, images, labels, optimizer, max_norm
    )


def gives_accuracy(model, images, labels, optimizer, max_norm):
    share = (model(images).argmax(1) == labels).float().mean().item()
    step_by_step(model, images, labels, optimizer, max_norm)
    return share


def lowers_the_rate(model, images, labels, optimizer, max_norm):
    loss = step_by_step(model, images, labels, optimizer, max_norm)
    optimizer.param_groups[0]["lr"] *= 0.5
    return loss


def trains_a_copy(model, *rest):
    return step_by_step(copy.deepcopy(model), *rest)


def clips_one_layer(model, images, labels, optimizer, max_norm):
    loss = acting("zero loss backward")(model, images, labels, optimizer, max_norm)
    clip_grad_norm_(model[1].parameters(), max_norm)
    optimizer.step()
    return loss


def clips_the_loss(model, images, labels, optimizer, max_norm):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.clamp(max=max_norm).backward()
    optimizer.step()
    return loss.item()


def shuts_gradients_off(*a):
    loss = step_by_step(*a)
    torch.set_grad_enabled(False)
    return loss


def gives_length(model, images, labels, optimizer, max_norm):
    acting("zero loss backward")(model, images, labels, optimizer, max_norm)
    length = clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return length.item()


STEP_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: step_by_step(*a) and None, "does it end with return"),
    (acting(ALL, give=lambda loss: loss), "comes back with its graph"),
    (acting(ALL, give=lambda loss: str(loss.item())), "it should give the loss as a number"),
    (lambda *a: (step_by_step(*a), 0.5), "it should give the loss as a number"),
    (no_model, "it should be the cross-entropy"),
    (acting(ALL, loss=lambda x, y: F.cross_entropy(x.softmax(1), y)), "a softmax stands before the loss"),
    (acting(ALL, loss=lambda x, y: F.nll_loss(x.softmax(1), y)), "nll_loss takes logarithms"),
    (acting(ALL, loss=lambda x, y: F.cross_entropy(x, y, reduction="sum")), "the sum over the images"),
    (acting(ALL, loss=lambda x, y: -F.cross_entropy(x, y)), "the wrong sign"),
    (acting(ALL, loss=lambda x, y: F.mse_loss(x.softmax(1), F.one_hot(y, x.shape[1]).float())), "squared differences"),
    (acting(ALL, loss=lambda x, y: F.cross_entropy(x, y) / len(y)), "divided by the size of the batch twice"),
    (acting(ALL, loss=lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)), "it should be the cross-entropy"),
    (acting(ALL, loss=lambda x, y: F.cross_entropy(x, y, reduction="sum"), give=lambda x: x.item() / 6), "wanted"),
    (anew, "computed anew after the step"),
    (gives_accuracy, "the share of right answers"),
    (gives_length, "the length of the gradient"),
    (of_answers, "it should be the cross-entropy"),
    (one_hot_by_itself, "raises RuntimeError"),
    (scales_in_place, "changes its input"),
    (shuts_gradients_off, "leaves gradients switched off"),
    (acting("loss backward clip step"), "old gradients are not forgotten"),
    (acting("loss backward clip step zero"), "zero_grad stands after the step"),
    (acting("loss backward zero clip step"), "zero_grad stands between backward and step"),
    (acting("loss backward clip zero step"), "zero_grad stands between backward and step"),
    (acting("zero loss clip step"), "is loss.backward\\(\\) missing"),
    (acting("zero loss backward clip"), "optimizer.step\\(\\) is missing"),
    (acting("zero loss backward clip step step"), "takes 6 steps for 3 batches"),
    (acting("zero loss again backward clip step"), "calls backward 6 times for 3 batches"),
    (acting("loss step zero backward clip"), "step stands before backward"),
    (acting("zero loss step backward clip"), "step stands before backward"),
    (acting("eval " + ALL), "in evaluation mode while it learns"),
    (acting("eval " + ALL + " train"), "in evaluation mode while it learns"),
    (acting(ALL + " eval"), "in evaluation mode"),
    (own_optimizer, "is another one made inside"),
    (lowers_the_rate, "the weights are not those of one step of the optimizer"),
    (
        lambda *a: acting(ALL, loss=lambda x, y: 3 * F.cross_entropy(x, y), give=lambda x: x.item() / 3)(*a),
        "the weights are not those of one step of the optimizer",
    ),
    (
        lambda *a: acting(ALL, loss=lambda x, y: F.cross_entropy(x, y, reduction="sum"))(*a) / len(a[2]),
        "the loss is the sum over the images",
    ),
    (acting("zero loss backward step"), "not clipped when the step is taken"),
    (acting("zero clip loss backward step"), "not clipped when the step is taken"),
    (acting("zero loss backward step clip"), "clipped after the step"),
    (acting("zero loss backward value step"), "single numbers are clipped"),
    (acting("zero loss backward each step"), "each parameter is clipped alone"),
    (acting("zero loss backward one step"), "whatever max_norm is"),
    (acting("zero loss backward inf step"), "the largest number of the gradient"),
    (acting("zero loss backward l1 step"), "the sum of sizes is clipped"),
    (acting("zero loss backward stretch step"), "stretched to the length max_norm"),
    (acting("zero loss backward square step"), "divided by its squared length"),
    (trains_a_copy, "the model copied"),
    (clips_one_layer, "with SGD with momentum and max_norm = 0.05"),
    (clips_the_loss, "with SGD with momentum and max_norm = 0.05"),
    (acting(ALL, give=lambda loss: loss.item), "brackets are missing"),
    (acting("seed " + ALL), "moves torch's global generator"),
    (asks_twice, "asks the model 2 times a step"),
]

# accuracy


@torch.no_grad()
def counted(model, batches):
    was_training = model.training
    model.eval()
    right = count = 0
    for images, labels in batches:
        right += (model(images).argmax(dim=1) == labels).sum().item()
        count += len(labels)
    model.train(was_training)
    return right / count


def gathered(net, loader, *, device="cpu"):
    mode = net.training
    net.eval()
    with torch.inference_mode():
        pairs = [(net(x.to(device)).max(1).indices, y) for x, y in loader]
    if mode:
        net.train()
    answers, labels = map(torch.cat, zip(*pairs, strict=True))
    return (answers == labels).double().mean()


def by_numpy(model, batches):
    modes = {m: m.training for m in model.modules()}
    model.eval()
    right = []
    for x, y in batches:
        with torch.no_grad():
            right.extend(np.argmax(model(x).numpy(), 1) == y.numpy())
    for m, mode in modes.items():
        m.training = mode
    return np.mean(right)


def by_a_copy(model, batches):
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    scores = [float(a == b) for x, y in batches for a, b in zip(twin(x).argmax(-1), y, strict=True)]
    return sum(scores) / len(scores)


@torch.no_grad()
def weighed(model, batches):
    training, model.training = model.training, False
    model.eval()
    sums, n = 0.0, 0
    for x, y in batches:
        sums += (model(x).softmax(1).topk(1).indices[:, 0] == y).float().mean() * len(y)
        n += x.shape[0]
    model.train(training)
    return sums / n


ACCURACY_RIGHT = [counted, gathered, by_numpy, by_a_copy, weighed, lambda m, b: evaluate(m, b).accuracy]


def measuring(give, ask=lambda model, x: model(x)):
    """A well-behaved measure, wrong in what it gives from the logits and labels of every batch"""

    @torch.no_grad()
    def answer(model, batches):
        mode = model.training
        model.eval()
        pairs = [(ask(model, x), y) for x, y in batches]
        model.train(mode)
        return give(*map(list, zip(*pairs, strict=True)))

    return answer


def hits(x, y):
    return [(a.argmax(1) == b).sum().item() for a, b in zip(x, y, strict=True)]


def batch_shares(x, y):
    return [(a.argmax(1) == b).float().mean().item() for a, b in zip(x, y, strict=True)]


def n_of(y):
    return sum(map(len, y))


def moving(before=lambda m: m.eval(), after=lambda m, mode: m.train(mode), no_grad=True):
    """The right share, with other manners"""

    def answer(model, batches):
        mode = model.training
        before(model)
        with torch.set_grad_enabled(not no_grad):
            pairs = [(model(x).argmax(1), y) for x, y in batches]
        after(model, mode)
        answers, labels = map(torch.cat, zip(*pairs, strict=True))
        return (answers == labels).double().mean().item()

    return answer


def first_line_returns(model, batches):
    for x, y in batches:
        return measuring(lambda x, y: hits(x, y)[0] / len(y[0]))(model, [(x, y)])


def learns_meanwhile(model, batches):
    share = counted(model, batches)
    with torch.no_grad():
        next(model.parameters()).mul_(0.9)
    return share


def computes_gradients(model, batches):
    mode = model.training
    model.eval()
    right = n = 0
    for x, y in batches:
        logits = model(x)
        F.cross_entropy(logits, y).backward()
        right, n = right + (logits.argmax(1) == y).sum().item(), n + len(y)
    model.train(mode)
    return right / n


def normalises_in_place(model, batches):
    batches = list(batches)
    share = counted(model, batches)
    for x, _ in batches:
        x -= x.mean()
    return share


def leaves_grad_off(model, batches):
    torch.set_grad_enabled(False)
    return counted.__wrapped__(model, batches)


def freezes(model, batches):
    model.requires_grad_(False)
    return counted(model, batches)


ACCURACY_WRONG = [
    (not_written, "not written yet"),
    (lambda m, b: None, "does it end with return"),
    (measuring(lambda x, y: torch.cat(x).argmax(1) == torch.cat(y)), "it should give a share"),
    (measuring(lambda x, y: f"{sum(hits(x, y)) / n_of(y):.1%}"), "it should give a share"),
    (measuring(lambda x, y: np.mean(batch_shares(x, y))), "a smaller last batch counts too much"),
    (measuring(lambda x, y: 100 * np.mean(batch_shares(x, y))), "per cent"),
    (measuring(lambda x, y: sum(batch_shares(x, y))), "the sum of the batches' shares"),
    (measuring(lambda x, y: sum(batch_shares(x, y)) / n_of(y)), "divided twice"),
    (measuring(lambda x, y: 100 * sum(hits(x, y)) / n_of(y)), "per cent; a share"),
    (measuring(lambda x, y: sum(hits(x, y))), "the number of right answers"),
    (measuring(lambda x, y: 1 - sum(hits(x, y)) / n_of(y)), "the share of wrong answers"),
    (measuring(lambda x, y: batch_shares(x, y)[-1]), "the last batch alone"),
    (first_line_returns, "the first batch alone"),
    (measuring(lambda x, y: sum(hits(x, y)) / len(y)), "divided by the number of batches"),
    (measuring(lambda x, y: hits(x, y)[-1] / n_of(y)), "is the sum started anew"),
    (measuring(lambda x, y: sum(hits(x, y)) / len(y[-1])), "divided by the size of the last batch|the sum of the batches"),
    (measuring(lambda x, y: sum(hits(x, y)) / (len(y) * len(y[0]))), "counted as large as the first"),
    (measuring(lambda x, y: F.cross_entropy(torch.cat(x), torch.cat(y)).item()), "the loss"),
    (measuring(lambda x, y: round(sum(hits(x, y)) / n_of(y), 2)), "is it rounded"),
    (measuring(lambda x, y: sum(hits([-a for a in x], y)) / n_of(y)), "the smallest logit"),
    (
        measuring(lambda x, y: (torch.cat([a.argmax(0) for a in x]) == torch.cat(y)).double().mean()),
        "argmax runs over the images",
    ),
    (
        measuring(lambda x, y: torch.cat(x).softmax(1)[range(n_of(y)), torch.cat(y)].mean().item()),
        "the probability of the right class",
    ),
    (measuring(lambda x, y: 0.123), "count the images whose largest logit"),
    (moving(before=lambda m: None), "asks the model in training mode"),
    (moving(before=lambda m: m.train()), "asks the model in training mode"),
    (moving(after=lambda m, mode: None), "came in training mode and goes in the other one"),
    (moving(after=lambda m, mode: m.train()), "came in evaluation mode and goes in the other one"),
    (moving(no_grad=False), "builds a graph"),
    (learns_meanwhile, "changes the weights of the model"),
    (computes_gradients, "computes gradients"),
    (normalises_in_place, "writes into the images"),
    (leaves_grad_off, "leaves gradients switched off"),
    (freezes, "leaves weights that cannot learn"),
    (measuring(lambda x, y: sum(hits(x, y)) // n_of(y)), "divided by //"),
    (lambda m, b: (torch.manual_seed(0), counted(m, b))[1], "moves torch's global generator"),
    (lambda m, b: counted(m, b[:]), "raises TypeError"),
    (lambda m, b: counted(m, b) + 0 * len(b), "raises TypeError"),
]

# mended


def mended(model, batches, optimizer):
    model.train()
    loss_sum = count = 0
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        count += len(labels)
    return loss_sum / count


def zeroes_at_the_end(net, data, opt, log=None):
    net.train()
    losses, sizes = [], []
    for x, y in data:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
        sizes.append(len(y))
    return np.average(losses, weights=sizes)


def loss_of_every_image(model, batches, optimizer):
    was_training = model.training
    model.train()
    losses = []
    for images, labels in list(batches):
        each = F.cross_entropy(model(images), labels, reduction="none")
        model.zero_grad()
        each.mean().backward()
        optimizer.step()
        losses.append(each.detach())
    model.train(was_training)
    return torch.cat(losses).mean()


def zeroes_just_before(model, batches, optimizer):
    model.train(True)
    pairs = []
    for images, labels in batches:
        loss = torch.nn.CrossEntropyLoss()(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pairs += [loss.item()] * len(labels)
    return sum(pairs) / len(pairs)


MENDED_RIGHT = [mended, zeroes_at_the_end, loss_of_every_image, zeroes_just_before]


def epoch(acts="zero loss backward step", mean=lambda x, n: np.average(x, weights=n), loss=F.cross_entropy, mode="train"):
    """An epoch of these acts, with a mean of the losses and sizes of the batches"""

    def answer(model, batches, optimizer):
        getattr(model, mode)()
        losses, sizes = [], []
        step = acting(acts, give=lambda loss: loss, loss=loss)
        for images, labels in batches:
            value = step(model, images, labels, optimizer, 1.0)
            losses.append(value.item())
            sizes.append(len(labels))
        return mean(losses, sizes)

    return answer


def broken(model, batches, optimizer):
    """The function of the notebook"""
    model.train()
    losses = []
    for images, labels in batches:
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def zeroes_once(model, batches, optimizer):
    optimizer.zero_grad()
    return epoch("loss backward step")(model, batches, optimizer)


def one_step_an_epoch(model, batches, optimizer):
    model.train()
    optimizer.zero_grad()
    total = n = 0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        total, n = total + loss.item() * len(y), n + len(y)
    optimizer.step()
    return total / n


def keeps_graph(model, batches, optimizer):
    model.train()
    total = n = 0
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total, n = total + loss * len(y), n + len(y)
    return total / n


def computed_afterwards(model, batches, optimizer):
    batches = list(batches)
    mended(model, batches, optimizer)
    return evaluate(model, batches).loss


def left_in_evaluation(*a):
    loss = mended(*a)
    a[0].eval()
    return loss


def counts_first(model, batches, optimizer):
    n = len(batches)
    return mended(model, batches, optimizer) * n / n


def plain_mean(x, n):
    return sum(x) / len(x)


def total(x, n):
    return sum(a * b for a, b in zip(x, n, strict=True))


def returns_early(model, batches, optimizer):
    for batch in batches:
        return mended(model, [batch], optimizer)


def asks_for_loss_again(model, batches, optimizer):
    model.train()
    total = n = 0
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        total, n = total + F.cross_entropy(model(x), y).item() * len(y), n + len(y)
        optimizer.step()
    return total / n


MENDED_WRONG = [
    (not_written, "not written yet"),
    (broken, "the first slip is still there.*So is the second"),
    (epoch("loss backward zero step"), "the first slip is still there: (?!.*second)"),
    (epoch(mean=plain_mean), "the second slip is still there"),
    (zeroes_once, "zero_grad belongs inside the loop"),
    (epoch("loss backward step"), "zero_grad belongs inside the loop"),
    (epoch("zero loss step backward"), "step stands before backward"),
    (epoch("loss step zero backward"), "step stands before backward"),
    (epoch("zero loss backward"), "optimizer.step\\(\\) is missing"),
    (epoch("zero loss step"), "is loss.backward\\(\\) missing"),
    (epoch("zero loss backward step step"), "steps for 3 batches"),
    (one_step_an_epoch, "takes 1 steps for 3 batches"),
    (epoch(loss=lambda x, y: F.cross_entropy(x.softmax(1), y)), "a softmax stands before the loss"),
    (epoch(loss=lambda x, y: F.cross_entropy(x, y, reduction="sum")), "the sum over the images"),
    (epoch("zero loss backward clip step"), "not those of one step a batch"),
    (epoch(mean=lambda x, n: None), "does it end with return"),
    (epoch(mean=lambda x, n: x), "it should give the mean loss"),
    (epoch(mean=lambda x, n: x[-1]), "the last batch"),
    (epoch(mean=lambda x, n: sum(x)), "the sum of the batches' losses"),
    (epoch(mean=total), "divide by their number"),
    (epoch(mean=lambda x, n: total(x, n) / len(n)), "divided by the number of batches"),
    (epoch(mean=lambda x, n: sum(x) / sum(n)), "multiply each by len"),
    (epoch(mean=lambda x, n: total(x, n) / (n[0] * len(n))), "counted as large as the first"),
    (epoch(mean=lambda x, n: sum(x) * n[-1] / sum(n)), "weigh inside the loop"),
    (epoch(mean=lambda x, n: round(np.average(x, weights=n), 2)), "is it rounded"),
    (keeps_graph, "comes back with its graph"),
    (computed_afterwards, "computed after the epoch"),
    (counts_first, "raises TypeError"),
    (epoch(mode="eval"), "evaluation mode"),
    (lambda m, b, o: epoch(mode="parameters")(m, b, o), "model.train\\(\\) is missing"),
    (left_in_evaluation, "leaves the model in evaluation mode"),
    (returns_early, "does return stand inside the loop"),
    (lambda *a: (torch.manual_seed(0), mended(*a))[1], "moves torch's global generator"),
    (lambda m, b, o: (mended(m, b, o), o.param_groups[0].update(lr=0.01))[0], "changes the optimizer's settings"),
    (asks_for_loss_again, "asks the model 6 times for 3 batches"),
]


def cases(*pairs):
    return [(check, *(entry if isinstance(entry, tuple) else (entry,))) for check, list_ in pairs for entry in list_]


RIGHT = cases(
    (check_schedule, SCHEDULE_RIGHT),
    (check_train_step, STEP_RIGHT),
    (check_accuracy, ACCURACY_RIGHT),
    (check_mended, MENDED_RIGHT),
)
WRONG = cases(
    (check_schedule, SCHEDULE_WRONG),
    (check_train_step, STEP_WRONG),
    (check_accuracy, ACCURACY_WRONG),
    (check_mended, MENDED_WRONG),
)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True, capsys.readouterr().out
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert re.search(says, last) and not last.startswith("[v]"), last
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("seed", range(3))
def test_a_check_depends_on_no_seed_and_moves_none(seed, capsys):
    torch.manual_seed(seed)
    before = torch.get_rng_state(), random.getstate()
    assert check_schedule(by_hand) and check_train_step(step_by_step) and check_accuracy(counted) and check_mended(mended)
    assert torch.equal(before[0], torch.get_rng_state()) and random.getstate() == before[1]


def test_what_the_notebook_switched_off_is_no_hindrance(capsys):
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert check_schedule(by_torch) and check_train_step(step_by_step) and check_accuracy(counted)
            assert check_mended(mended) and not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore:The epoch parameter in")  # some torch warns of what its own SequentialLR does
@pytest.mark.parametrize("schedule", [by_hand, warmup_cosine])
def test_the_asked_schedule_is_the_one_that_torch_knows(schedule):
    """The rise and the fall of two schedulers of torch, one after the other"""
    total, warmup = 30, 6
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    rise = LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
    theirs = SequentialLR(optimizer, [rise, CosineAnnealingLR(optimizer, total - warmup)], [warmup])
    ours = LambdaLR(torch.optim.SGD([p], lr=1.0), lambda step: schedule(step, total, warmup))
    for _ in range(total):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), abs=1e-6)
        for scheduler in (theirs, ours):
            scheduler.optimizer.step()
            scheduler.step()


# Reading curves

READ = {letter: fault for letter, (fault, _) in RUNS.items()}


@pytest.fixture(scope="module")
def runs():
    return mystery_runs()


def rows(runs, fault, key):
    letter = next(letter for letter in RUNS if READ[letter] == fault)
    return [row[key] for row in runs[letter]]


def test_trained_again_the_faults_show_as_in_the_stored_runs(runs):
    """By comparing runs, with wide margins: the numbers of a diverging run differ from processor to processor"""
    again = train_mysteries()
    assert {letter: len(history) for letter, history in again.items()} == {letter: len(runs[letter]) for letter in runs}
    loss, val_loss, val_accuracy = (
        {fault: rows(again, fault, key) for fault in FAULTS} for key in ("loss", "val_loss", "val_accuracy")
    )
    healthy, *others = sorted(FAULTS, key="nothing wrong".__ne__)
    assert all(val_accuracy[healthy][-1] > val_accuracy[fault][-1] for fault in others)
    for fault in ("rate too high", "labels shuffled"):  # six epochs teach less than one of the healthy run
        assert max(val_accuracy[fault]) < val_accuracy[healthy][0]
    assert loss["rate too high"][0] > 2 * max(loss[fault][0] for fault in FAULTS if fault != "rate too high")
    slow = loss["rate too low"]
    assert slow == sorted(slow, reverse=True) and slow[-1] > 3 * loss[healthy][-1]
    gap = {fault: val_loss[fault][-1] - loss[fault][-1] for fault in FAULTS if fault != "rate too high"}
    assert max(gap, key=gap.get) == "too few images" and loss["too few images"][-1] < 0.1


def test_five_runs_with_five_faults_and_nothing_that_gives_them_away(runs):
    assert list(runs) == list("ABCDE") and sorted(READ.values()) == list(FAULTS) == sorted(FAULTS)
    assert all(READ[letter] != fault for letter, fault in zip("ABCDE", FAULTS, strict=True))
    for history in runs.values():
        assert [row["epoch"] for row in history] == list(range(1, 7))
        assert not {"lr", "images_per_second"} & history[0].keys()
        assert {"loss", "accuracy", "val_loss", "val_accuracy", "val_majority_share", "num_classes"} <= history[0].keys()
        assert diagnose(history).symptom


def test_rate_too_high(runs):
    loss = rows(runs, "rate too high", "loss")
    assert loss[0] > 5 and min(loss) > 2.2 and rows(runs, "rate too high", "val_loss")[0] > 2.8
    assert max(rows(runs, "rate too high", "accuracy")[1:] + rows(runs, "rate too high", "val_accuracy")[1:]) < 0.2


def test_rate_too_low(runs):
    loss, val_loss = (rows(runs, "rate too low", key) for key in ("loss", "val_loss"))
    assert loss == sorted(loss, reverse=True) and loss[0] < 2.35 and 1.7 < loss[-1] < 2.15
    assert val_loss[-1] < val_loss[-3] < val_loss[2] and max(abs(a - b) for a, b in zip(loss, val_loss, strict=True)) < 0.2
    for key in ("accuracy", "val_accuracy"):
        assert 0.4 < rows(runs, "rate too low", key)[-1] < 0.75


def test_labels_shuffled(runs):
    for key in ("loss", "val_loss"):
        assert all(2.2 < x < 2.5 for x in rows(runs, "labels shuffled", key))
    for key in ("accuracy", "val_accuracy"):
        assert max(rows(runs, "labels shuffled", key)) < 0.22


def test_too_few_images(runs):
    loss, val_loss = (rows(runs, "too few images", key) for key in ("loss", "val_loss"))
    accuracy, val_accuracy = (rows(runs, "too few images", key) for key in ("accuracy", "val_accuracy"))
    assert accuracy[-1] > 0.98 and loss[0] < 2.3 and loss[3] < 0.3 and loss[-1] < 0.1
    assert 0.4 < val_accuracy[-1] < 0.75 and val_loss[-1] > 1.3 and val_loss[-1] > min(val_loss) + 0.1


def test_nothing_wrong(runs):
    loss, val_loss = (rows(runs, "nothing wrong", key) for key in ("loss", "val_loss"))
    accuracy, val_accuracy = (rows(runs, "nothing wrong", key) for key in ("accuracy", "val_accuracy"))
    assert 1.9 < loss[0] < 2.3 and loss[-1] < 0.6 and val_loss[-1] < 0.7 and accuracy[-1] > 0.8 and val_accuracy[-1] > 0.8
    assert max(a - b for a, b in zip(accuracy, val_accuracy, strict=True)) < 0.12


def told(answer, capsys):
    right = check_reading(answer)
    return right, capsys.readouterr().out.splitlines()


def test_a_right_reading_is_confirmed(capsys):
    for answer in (READ, {k.lower(): f" {v.title()} " for k, v in READ.items()}, dict(reversed(READ.items()))):
        right, lines = told(answer, capsys)
        assert right is True and len(lines) == 5 and all(line.startswith("[v]") for line in lines)


def test_every_wrong_entry_is_told_what_speaks_against_it(capsys):
    for letter, fault in itertools.product("ABCDE", FAULTS):
        if fault == READ[letter]:
            continue
        right, lines = told(READ | {letter: fault}, capsys)
        wrong = [line for line in lines if not line.startswith("[v]")]
        assert right is False and len(lines) == 5 and len(wrong) == 1
        would, here = SPEAKS[fault]
        assert wrong[0].startswith(f"[x] reading: {letter}: not '{fault}'") and would in wrong[0]
        assert here[READ[letter]] in wrong[0] and "here" in wrong[0]
        assert READ[letter] not in wrong[0].replace(fault, "")


READINGS = [
    (None, ["not written yet"]),
    ({}, ["not written yet"]),
    (dict.fromkeys("ABCDE", ...), ["not written yet"]),
    (dict.fromkeys("ABCDE", "..."), ["not written yet"]),
    (dict.fromkeys("ABCDE"), ["not written yet"]),
    (list(READ.values()), ["hand over a dictionary"]),
    ("rate too high", ["hand over a dictionary"]),
    (not_written, ["hand over a dictionary"]),
    (READ | {"A": "learning rate"}, ["A: 'learning rate' is none of the names: labels shuffled, nothing wrong"]),
    (READ | {"A": 3}, ["A: 3 is none of the names"]),
    (READ | {"A": ["rate too high"]}, ["is none of the names"]),
    (READ | {"A": ...}, ["A: no fault is named yet"]),
    ({k: v for k, v in READ.items() if k != "D"}, ["D: no fault is named yet"]),
    (READ | {"F": "nothing wrong"}, ["there is no run F"]),
    (READ | {7: "nothing wrong"}, ["there is no run 7"]),
    (dict.fromkeys("ABCDE", "nothing wrong"), ["A: not", "B: not", "D: not", "E: not"]),
]


@pytest.mark.parametrize(("answer", "says"), READINGS)
def test_odd_readings(answer, says, capsys):
    right, lines = told(answer, capsys)
    wrong = [line for line in lines if not line.startswith("[v]")]
    assert right is False and len(wrong) == len(says)
    assert all(words in line for words, line in zip(says, wrong, strict=True)), wrong
