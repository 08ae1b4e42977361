"""Marks for the exercises of notebook 07, and the five runs whose curves are read there."""

import copy
import math
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from vit_helpers.checks import marks
from vit_helpers.checks.marks import slip
from vit_helpers.checks.mysteries import FAULTS, RUNS
from vit_helpers.training.recipe import warmup_cosine


def as_number(got, when, kind="a number"):
    """What an answer gave, as a Python float; Slip when it is none"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    slip(callable(got), f"gives a function {when}; brackets are missing behind its name, as in loss.item()")
    odd = isinstance(got, (bool, str)) or (isinstance(got, torch.Tensor) and (got.numel() != 1 or got.is_complex()))
    slip(odd, f"gives {marks.short(got)} {when}; it should give {kind}")
    try:
        value = float(got.detach() if isinstance(got, torch.Tensor) else got)
    except (TypeError, ValueError):
        raise marks.Slip(f"gives {marks.short(got)} {when}; it should give {kind}") from None
    slip(math.isnan(value), f"gives nan {when}: a division of 0 by 0?")
    return value


def near(got, wanted):
    """Whether numbers are equal to five digits"""
    return math.isclose(got, wanted, rel_tol=1e-5, abs_tol=1e-5)


def rounded(got, wanted):
    """Whether numbers are right but for digits behind the point that are cut off"""
    pairs = list(zip(got, wanted, strict=True))
    return any(all(near(g, round(w, digits)) for g, w in pairs) for digits in range(4))


def first_match(rules, got, *given):
    """The words of the first rule that gives all the numbers that the answer gave; None when there is none

    got: a list of numbers; given: for each argument of a rule, a list as long
    """
    for words, rule in rules.items():
        try:
            if all(near(g, float(torch.as_tensor(rule(*each)).detach())) for g, *each in zip(got, *given, strict=True)):
                return words
        except (ArithmeticError, RuntimeError, IndexError):
            continue  # this slip needs other numbers
    return None


# The learning rate


def wave(x):
    """0.5 * (1 + cos(pi * x)): from 1 at x = 0 to 0 at x = 1"""
    return 0.5 * (1 + math.cos(math.pi * x))


LOST = "the rise starts at 0, so the first step is lost: (step + 1) / warmup"
AFTER = "it begins where the warm-up ends, (step - warmup) / (total - warmup)"
RISE_SLIPS = {  # the idea that slipped, and what follows from it at step s of T in all and w to warm up
    LOST: lambda s, T, w: s / w,
    LOST + ", without - 1": lambda s, T, w: s / (w - 1),
    LOST + ", not total": lambda s, T, w: s / T,
    "the rise ends a step late: (step + 1) / warmup is 1 in its last step": lambda s, T, w: (s + 1) / (w + 1),
    "the rise is divided by total; it takes warmup steps": lambda s, T, w: (s + 1) / T,
    "the rise is not divided by warmup: a share is at most 1": lambda s, T, w: s + 1,
    "there is no rise: the share is 1 from the first step on": lambda s, T, w: 1.0,
    "there is no rise: the cosine begins at step 0": lambda s, T, w: wave(s / T),
    "there is no rise: the cosine formula is used in the warm-up too": lambda s, T, w: wave((s - w) / (T - w)),
    "the share is 0 during the warm-up: // instead of /?": lambda s, T, w: float((s + 1) // w),
    "the share is 0 during all of the warm-up: // instead of /?": lambda s, T, w: 0.0,
    "the cosine is at work in the warm-up already; at first the rise alone": lambda s, T, w: (s + 1) / w * wave(s / T),
    "the rise is a curve; it should be straight": lambda s, T, w: wave(1 - (s + 1) / w),
    "the rise is bent: is something squared? It should be straight": lambda s, T, w: ((s + 1) / w) ** 2,
    "the warm-up falls; it should rise": lambda s, T, w: 1 - s / w,
    "the warm-up falls to 0; it should rise to 1": lambda s, T, w: 1 - (s + 1) / w,
}
FALL_SLIPS = {  # the same for the steps after the warm-up
    "the cosine is counted from step 0; " + AFTER: lambda s, T, w: wave(s / T),
    "the cosine is counted from step 0, past its end; " + AFTER: lambda s, T, w: wave(s / (T - w)),
    "the fall is divided by total, so it ends above 0; it takes total - warmup steps": lambda s, T, w: wave((s - w) / T),
    "the last step is lost, its share is 0: total - warmup, without - 1": lambda s, T, w: wave((s - w) / (T - w - 1)),
    "the fall begins a step early: step - warmup, without + 1": lambda s, T, w: wave((s - w + 1) / (T - w)),
    "the fall begins a step late: step - warmup, without - 1": lambda s, T, w: wave((s - w - 1) / (T - w)),
    "a straight fall, counted from step 0; it should be half a cosine": lambda s, T, w: 1 - s / T,
    "the rise goes on after the warm-up: is there an if?": lambda s, T, w: (s + 1) / w,
}
WAVE_SLIPS = {  # the same, where t goes from 0 to 1 after the warm-up
    "the fall is a whole cosine, which rises again: pi, not 2 * pi": lambda t: wave(2 * t),
    "the fall ends at 0.5: pi, not pi / 2": lambda t: wave(t / 2),
    "that is a quarter of a cosine; half a one is 0.5 * (1 + cos(pi * ...))": lambda t: math.cos(math.pi / 2 * t),
    "the bare cosine falls to -1; 0.5 * (1 + cos) goes from 1 to 0": lambda t: 2 * wave(t) - 1,
    "the bare cosine is cut off at 0; 0.5 * (1 + cos) reaches it at the end": lambda t: max(0.0, 2 * wave(t) - 1),
    "the bare cosine without its sign rises again; 0.5 * (1 + cos) falls": lambda t: abs(2 * wave(t) - 1),
    "1 + cos goes from 2 to 0; the factor 0.5 is missing": lambda t: 2 * wave(t),
    "0.5 * cos goes from 0.5 to -0.5; the 1 + is missing": lambda t: wave(t) - 0.5,
    "brackets: 0.5 * (1 + cos), not 0.5 * 1 + cos": lambda t: 2 * wave(t) - 0.5,
    "brackets: 0.5 * (1 + cos), not 1 + 0.5 * cos": lambda t: 0.5 + wave(t),
    "1 - cos rises; 1 + cos falls": lambda t: 1 - wave(t),
    "a sine; it should be a cosine, which begins at its highest": lambda t: wave(t - 0.5),
    "a straight fall; it should be half a cosine": lambda t: 1 - t,
    "the share stays at 1 after the warm-up: is the fall missing, or divided by //?": lambda t: 1.0,
    "the share is 0 after the warm-up; it falls slowly": lambda t: 0.0,
    "the cosine takes radians: half a turn is pi, not 180": lambda t: wave(180 * t / math.pi),
    "pi is missing: the cosine falls to -1 within pi, not within 1": lambda t: wave(t / math.pi),
    "the cosine's value is squared": lambda t: wave(t) ** 2,
}


FALL_SLIPS |= {words: lambda s, T, w, rule=rule: rule((s - w) / (T - w)) for words, rule in WAVE_SLIPS.items()}
SIZES = [(100, 10), (37, 5), (10, 4)]  # total, warmup: what each slip gives differs


def check_schedule(answer):
    """Mark a function (step, total, warmup) -> the share of the highest learning rate."""
    ideas = [
        ("rises straight, from 1 / warmup to 1", schedule_rise),
        ("then falls along half a cosine", schedule_fall),
        ("right without warm-up, with one of 1 step, and with one that leaves a single step", schedule_edges),
        ("the share follows from the step alone, in whatever order it is asked", schedule_order),
    ]
    return marks.check("schedule", answer, ideas)


def shares(answer, total, warmup):
    """The share at every step"""
    of = f"for total = {total}, warmup = {warmup}"
    return [as_number(answer(s, total, warmup), f"at step {s} {of}", "a number from 0 to 1") for s in range(total)]


def expect_shares(got, steps, total, warmup, rules):
    """Slip unless these steps have the right shares"""
    mine, right = [got[s] for s in steps], [warmup_cosine(s, total, warmup) for s in steps]
    i = next((i for i, pair in enumerate(zip(mine, right, strict=True)) if not near(*pair)), None)
    if i is None:
        return
    words = first_match(rules, mine, steps, [total] * len(steps), [warmup] * len(steps))
    words = words or (unlike_rise(mine, right) if steps[0] < warmup else unlike_fall(mine, right, warmup))
    if not words and (total, warmup) != SIZES[0]:
        words = "right for total = {}, warmup = {}: is a number fixed in your code?".format(*SIZES[0])
    given = f"{mine[i]:.5g} at step {steps[i]} (total = {total}, warmup = {warmup}), wanted {right[i]:.5g}"
    raise marks.Slip(f"gives {given}: {words or 'the rise is (step + 1) / warmup, the fall 0.5 * (1 + cos(pi * t))'}")


def unlike_rise(mine, right):
    """What is odd about a rise that follows no known rule, or None"""
    if min(mine) < 0 or max(mine) > 1 + 1e-6:
        return "a share is between 0 and 1"
    return "is it rounded?" if rounded(mine, right) else None


def unlike_fall(mine, right, warmup):
    """What is odd about a fall that follows no known rule, or None"""
    if warmup and near(mine[0], (warmup + 1) / warmup):
        return "the rise lasts a step too long: step < warmup, not step <= warmup"
    if min(mine) < -1e-6 or max(mine) > 1 + 1e-6:
        return "a share is between 0 and 1"
    if mine[0] < 0.9:
        return f"the share jumps from 1 to {mine[0]:.3g} at the end of the warm-up; the fall begins at 1"
    if any(b > a + 1e-6 for a, b in pairwise(mine)):
        return "the fall rises again on the way; it is half a cosine, once"
    if mine[-1] > right[-1] + 0.01:
        return f"the fall ends at {mine[-1]:.3g}; it should end at {right[-1]:.3g}"
    return unlike_rise(mine, right)


def expect_shared(got, total, warmup):
    """Slip when all is a multiple of the share"""
    right = [warmup_cosine(s, total, warmup) for s in range(total)]
    factor = got[warmup - 1]
    if near(factor, 1) or not factor or not all(near(g / factor, r) for g, r in zip(got, right, strict=True)):
        return
    words = "per cent; a share" if near(factor, 100) else "is it the rate itself? A share of it is asked, which"
    raise marks.Slip(f"gives {factor:.3g} times the share: {words} goes up to 1")


def schedule_rise(answer):
    for total, warmup in SIZES:
        got = shares(answer, total, warmup)
        expect_shared(got, total, warmup)
        expect_shares(got, range(warmup), total, warmup, RISE_SLIPS)


def schedule_fall(answer):
    for total, warmup in SIZES:
        expect_shares(shares(answer, total, warmup), range(warmup, total), total, warmup, FALL_SLIPS)


def schedule_edges(answer):
    for total, warmup in ((12, 0), (1, 0), (8, 1), (5, 4), (2, 1)):
        try:
            got = shares(answer, total, warmup)
        except ZeroDivisionError:
            end = "divide in the branch of the warm-up only, where step < warmup" if warmup == 0 else "what is 0 there?"
            raise marks.Slip(f"divides by 0 for total = {total}, warmup = {warmup}: {end}") from None
        for steps, rules in ((range(warmup), RISE_SLIPS), (range(warmup, total), FALL_SLIPS)):
            expect_shares(got, steps, total, warmup, rules)


def schedule_order(answer):
    asked = [(s, T, w) for T, w in SIZES for s in range(T)]
    for i in torch.randperm(len(asked)).tolist():
        got, wanted = as_number(answer(*asked[i]), "when asked again"), warmup_cosine(*asked[i])
        words = "gives another share when steps are asked in another order: is something kept between calls?"
        slip(not near(got, wanted), words)


# Small problems, and how a step goes


def plain(K):
    """A model that does the same in both modes"""
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, K))


def restless(K):
    """A model with dropout and with statistics: training and evaluation differ"""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.Dropout(0.4), nn.Tanh(), nn.Linear(12, K)
    )


def some_batches(K, sizes=(6, 5, 3)):
    return [(2 * torch.randn(n, 1, 2, 3), torch.randint(K, (n,))) for n in sizes]


OPTIMIZERS = {
    "SGD with momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1),
}


def leave_gradients(model):
    """Gradients such as an earlier batch leaves"""
    for i, p in enumerate(model.parameters()):
        p.grad = torch.linspace(-1, 2 + i, p.numel()).view_as(p)


def clip_each(s):
    for p in s.model.parameters():
        clip_grad_norm_([p], s.max_norm)


def stretch(s, power=1):
    """Bring the gradient's length to max_norm, also where it is shorter; power 2: by the square of the length"""
    length = sum(p.grad.square().sum() for p in s.model.parameters()).sqrt() ** power
    for p in s.model.parameters():
        p.grad *= s.max_norm / length


def learn(loss):
    """An act that computes a loss from logits and labels"""
    return lambda s: setattr(s, "loss", loss(s.model(s.images), s.labels))


ACTS = {  # what may happen in a step; s: model, images, labels, optimizer, max_norm, loss
    "zero": lambda s: s.optimizer.zero_grad(),
    "loss": learn(F.cross_entropy),
    "softmax": learn(lambda x, y: F.cross_entropy(x.softmax(1), y)),
    "nll": learn(lambda x, y: F.nll_loss(x.softmax(1), y)),
    "sum": learn(lambda x, y: F.cross_entropy(x, y, reduction="sum")),
    "minus": learn(lambda x, y: -F.cross_entropy(x, y)),
    "squares": learn(lambda x, y: F.mse_loss(x.softmax(1), F.one_hot(y, x.shape[1]).float())),
    "differences": learn(lambda x, y: F.mse_loss(x, F.one_hot(y, x.shape[1]).float())),
    "backward": lambda s: s.loss.backward(),
    "step": lambda s: s.optimizer.step(),
    "clip": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm),
    "values": lambda s: clip_grad_value_(s.model.parameters(), s.max_norm),
    "each": clip_each,
    "stretch": stretch,
    "square": lambda s: stretch(s, 2),
    "one": lambda s: clip_grad_norm_(s.model.parameters(), 1.0),
    "largest": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm, norm_type=math.inf),
    "absolute": lambda s: clip_grad_norm_(s.model.parameters(), s.max_norm, norm_type=1),
}
RIGHT = "zero loss backward clip step"
LOSSES = {  # wrong losses, and the idea that slipped
    "softmax": "a softmax stands before the loss; cross_entropy has its own and takes logits",
    "nll": "nll_loss takes logarithms of shares; cross_entropy takes the logits as they are",
    "sum": "the loss is the sum over the images; it should be their mean",
    "minus": "the loss has the wrong sign",
    "squares": "squared differences from the labels; the loss should be the cross-entropy",
    "differences": "squared differences of the logits from the labels; the loss should be the cross-entropy",
}
UNCLIPPED = "zero loss backward step"
GRADIENT_SLIPS = {  # acts of a wrong step, and the idea that slipped
    "loss backward clip step": "old gradients are not forgotten: backward adds to them. zero_grad belongs before backward",
    "loss backward clip step zero": "zero_grad stands after the step; before backward, or older gradients are used too",
    "loss backward zero step": "zero_grad stands between backward and step, so the new gradient is lost before it is used",
} | {f"zero {loss} backward clip step": words for loss, words in LOSSES.items()}
CLIP_SLIPS = {
    UNCLIPPED: "the gradient is not clipped when the step is taken: clip after backward and before step",
    "zero loss backward values step": "single numbers are clipped; clip_grad_norm_ clips the length of the whole gradient",
    "zero loss backward each step": "each parameter is clipped alone; the length over all parameters together is meant",
    "zero loss backward one step": "the gradient is clipped to length 1, whatever max_norm is",
    "zero loss backward stretch step": "the gradient is stretched to the length max_norm where it is shorter; leave it then",
    "zero loss backward square step": "the gradient is divided by its squared length: is a root missing?",
    "zero loss backward largest step": "the largest number of the gradient is clipped; its length is the root of the sum of "
    "squares",
    "zero loss backward absolute step": "the sum of sizes is clipped; the length is the root of the sum of squares",
}

EARLY = "step stands before backward: it uses the gradients that were there before"
SEEDED = "moves torch's global generator: set no seed, and draw nothing"
LEARNS_IN_EVALUATION = "the model is in evaluation mode while it learns: dropout is off, and statistics stand still"


def follow(acts, model, batches, optimizer, max_norm=1e6):
    """Take a step a batch, act by act: the losses"""
    losses = []
    for images, labels in batches:
        s = SimpleNamespace(model=model, images=images, labels=labels, optimizer=optimizer, max_norm=max_norm, loss=None)
        for act in acts.split():
            ACTS[act](s)
        losses.append(s.loss.item())
    return losses


def watch(model, optimizer):
    """A list that will hold what happens: "forward", "backward", "step", and "evaluation" before a forward in that mode"""
    events = []
    model.register_forward_pre_hook(lambda m, _: events.extend(["forward"] if m.training else ["evaluation", "forward"]))
    next(model.parameters()).register_post_accumulate_grad_hook(lambda _: events.append("backward"))
    optimizer.register_step_pre_hook(lambda *_: events.append("step"))
    return events


@contextmanager
def order_kept(events):
    """What torch says of a step between forward and backward, in words that tell so"""
    try:
        yield
    except RuntimeError as error:
        slip("modified by an inplace operation" in str(error) and events[-1:] == ["step"], EARLY)
        raise


def out_of_order(events, n, moved):
    """What is wrong with the events of n batches, in words; None when they are n times forward, backward, step"""
    count = {event: events.count(event) for event in ("forward", "backward", "step", "evaluation")}
    if not count["forward"]:
        return "the model is never asked: the loss should come from model(images)"
    if not count["step"] and moved:
        return "the weights move, but not by the optimizer that was handed over: is another one made inside?"
    if not count["step"]:
        return "no weight moves: optimizer.step() is missing"
    if count["evaluation"]:
        return LEARNS_IN_EVALUATION
    if not count["backward"]:
        return "no gradient reaches the weights: is loss.backward() missing, the model copied, or torch.no_grad() around it?"
    if count["forward"] < n:
        return f"asks the model {count['forward']} times for {n} batches: does return stand inside the loop?"
    if count["step"] != n:
        return f"takes {count['step']} steps for {n} batches; one for each"
    if count["backward"] != n:
        return f"calls backward {count['backward']} times for {n} batches; once for each"
    if events.index("step") < events.index("backward"):
        return EARLY
    return None


def alike(one, two):
    """Whether two models have the same weights and statistics"""
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    return all(torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4) for a, b in pairs)


def rehearse(acts, start, optimizer, batches, max_norm=1e6, left=False):
    """A copy of a model after these acts, and its losses"""
    model = copy.deepcopy(start)
    if left:
        leave_gradients(model)
    torch.manual_seed(1)
    return model, follow(acts, model, batches, OPTIMIZERS[optimizer](model), max_norm)


def explain(slips, events, model, start, optimizer, batches, *how, **left):
    """The idea that slipped where a model has other weights than it should, or None"""
    words = out_of_order(events, len(batches), not alike(model, start))
    acts = (a for a in slips if alike(model, rehearse(a, start, optimizer, batches, *how, **left)[0]))
    return words or slips.get(next(acts, None))


# One step


def check_train_step(answer):
    """Mark a function (model, images, labels, optimizer, max_norm) -> the loss, after one step."""
    ideas = [
        ("gives the loss of the batch, as a number", step_loss),
        ("forgets old gradients and takes one step, with SGD and with AdamW", step_weights),
        ("clips the length of the whole gradient before the step", step_clip),
        ("asks the model once, in training mode, and leaves everything else as it was", step_manners),
    ]
    return marks.check("train_step", answer, ideas)


def try_step(answer, model, images, labels, optimizer, max_norm):
    """The loss that one call of the answer gives, as a number"""
    got = marks.untouched(lambda x, y: answer(model, x, y, optimizer, max_norm), images, labels)
    slip(isinstance(got, torch.Tensor) and got.requires_grad, GRAPH)
    slip(not torch.is_grad_enabled(), "leaves gradients switched off for whoever comes next")
    return as_number(got, "for a batch", "the loss as a number")


GRAPH = "the loss comes back with its graph, which keeps the whole forward pass in memory; give loss.item()"
LOSS_SLIPS = {  # what a wrong loss equals, from the right one, the weights before and after, and the batch
    "the loss is computed anew after the step; give the one before it": lambda loss, a, b, x, y: F.cross_entropy(b(x), y),
    "divided by the size of the batch twice: cross_entropy gives the mean": lambda loss, a, b, x, y: loss / len(y),
    "that is the share of right answers": lambda loss, a, b, x, y: (a(x).argmax(1) == y).float().mean(),
    "that is the length of the gradient": lambda loss, a, b, x, y: gradient_length(loss, a),
} | {words: lambda loss, a, b, x, y, act=act: follow(act, a, [(x, y)], None)[0] for act, words in LOSSES.items()}


def expect_kept(batches, kept):
    """Slip when the answer wrote into images or labels"""
    equal = all(torch.equal(x, y) for one, two in zip(batches, kept, strict=True) for x, y in zip(one, two, strict=True))
    slip(not equal, "changes its input: writes into the images or labels")


def gradient_length(loss, model):
    return sum(g.square().sum() for g in torch.autograd.grad(loss, list(model.parameters()))).sqrt()


def step_loss(answer):
    for K, sizes in ((3, (6, 5)), (10, (4, 1))):
        for images, labels in some_batches(K, sizes):
            start = plain(K)
            model = copy.deepcopy(start)
            got = try_step(answer, model, images, labels, OPTIMIZERS["SGD with momentum"](model), 1e6)
            wanted = F.cross_entropy(start(images), labels)
            if near(got, wanted.item()):
                continue
            words = first_match(LOSS_SLIPS, [got], [wanted], [start], [model], [images], [labels])
            words = words or "it should be the cross-entropy of model(images) and labels"
            raise marks.Slip(f"gives {got:.5g} as the loss, wanted {wanted:.5g}: {words}")


def try_steps(answer, optimizer, max_norm, slips, K=3):
    """Slip unless the weights after three batches are right; gradients are left over from before"""
    start, batches = plain(K), some_batches(K)
    right = rehearse(RIGHT, start, optimizer, batches, max_norm, left=True)[0]
    model = copy.deepcopy(start)
    leave_gradients(model)
    used = OPTIMIZERS[optimizer](model)
    torch.manual_seed(1)
    events = watch(model, used)
    with order_kept(events):
        for batch in batches:
            try_step(answer, model, *batch, used, max_norm)
    if alike(model, right):
        return
    words = explain(slips, events, model, start, optimizer, batches, max_norm, left=True)
    if words == CLIP_SLIPS[UNCLIPPED] and gradients_shorter(model, max_norm):
        words = "the gradient is clipped after the step; the step before it took the whole length"
    unknown = f"with {optimizer} and max_norm = {max_norm:g}, the weights are not those of one step of the optimizer a batch"
    raise marks.Slip(words or unknown)


def gradients_shorter(model, max_norm):
    """Whether the gradients that lie there have been clipped"""
    lengths = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return bool(lengths) and 0 < torch.stack(lengths).norm() < 1.001 * max_norm


def step_weights(answer):
    for name in OPTIMIZERS:
        for K in (3, 8):
            try_steps(answer, name, 1e6, GRADIENT_SLIPS | CLIP_SLIPS, K)


def step_clip(answer):
    for max_norm in (0.05, 0.5, 1.5, 100.0):
        try_steps(answer, "SGD with momentum", max_norm, CLIP_SLIPS)
    try_steps(answer, "AdamW", 0.01, CLIP_SLIPS)


def step_manners(answer):
    start, batches = plain(3), some_batches(3)
    model, before = copy.deepcopy(start), torch.get_rng_state()
    try_step(answer, model, *batches[0], OPTIMIZERS["AdamW"](model), 1.0)
    slip(not torch.equal(before, torch.get_rng_state()), SEEDED)
    for name in OPTIMIZERS:
        start = restless(3)
        right, wanted = rehearse(RIGHT, start, name, batches, 0.3)
        model = copy.deepcopy(start)
        used = OPTIMIZERS[name](model)
        events = watch(model, used)
        torch.manual_seed(1)
        got = [try_step(answer, model, *batch, used, 0.3) for batch in batches]
        slip("evaluation" in events, LEARNS_IN_EVALUATION)
        slip(not model.training, "leaves the model in evaluation mode; it came in training mode")
        passes = events.count("forward")
        slip(passes > len(batches), f"asks the model {passes // len(batches)} times a step: keep the loss of the first time")
        wrong = not alike(model, right) or not all(map(near, got, wanted))
        slip(wrong, f"with {name} and a model that has dropout and statistics, the step is another one")


# The share of right answers

ACCURACY_SLIPS = {  # what a wrong share equals, from how many answers are right in each batch, and their sizes
    "the mean of the batches' shares: a smaller last batch counts too much. Count right answers, divide once": lambda h, n: (
        mean(per_batch(h, n))
    ),
    "the mean of the batches' shares, in per cent": lambda h, n: 100 * mean(per_batch(h, n)),
    "the sum of the batches' shares; count right answers, divide by the images": lambda h, n: sum(per_batch(h, n)),
    "divided twice: a mean over images is a share already": lambda h, n: sum(per_batch(h, n)) / sum(n),
    "per cent; a share goes from 0 to 1": lambda h, n: 100 * sum(h) / sum(n),
    "is it divided by //, or does nothing count as right, because argmax is missing?": lambda h, n: 0,
    "the number of right answers; divide by the number of images": lambda h, n: sum(h),
    "the share of wrong answers": lambda h, n: 1 - sum(h) / sum(n),
    "the last batch alone": lambda h, n: h[-1] / n[-1],
    "the first batch alone: does return stand inside the loop?": lambda h, n: h[0] / n[0],
    "divided by the number of batches; divide by the number of images": lambda h, n: sum(h) / len(n),
    "the last batch's right answers, divided by all images: is the sum started anew?": lambda h, n: h[-1] / sum(n),
    "all right answers, divided by the size of the last batch": lambda h, n: sum(h) / n[-1],
    "all right answers, divided by the size of the first batch": lambda h, n: sum(h) / n[0],
    "every batch is counted as large as the first; count the images": lambda h, n: sum(h) / (len(n) * n[0]),
    "every batch is counted as large as the last; count the images": lambda h, n: sum(h) / (len(n) * n[-1]),
}
ASKED_SLIPS = {  # the same, from the logits and labels of every batch
    "argmax runs over the images, dim 0; the classes are dim 1": lambda x, y: mean(
        [float(i) for a, b in zip(x, y, strict=True) for i in (a.argmax(0) == b)]
    ),
    "takes the smallest logit, argmin; the answer is the largest": lambda x, y: (
        sum(hits([-a for a in x], y)) / len(torch.cat(y))
    ),
    "that is the loss": lambda x, y: F.cross_entropy(torch.cat(x), torch.cat(y)),
    "that is the mean of the batches' losses": lambda x, y: mean(list(map(F.cross_entropy, x, y))),
    "the probability of the right class; count the answers that are right": lambda x, y: (
        torch.cat(x).softmax(1).gather(1, torch.cat(y)[:, None]).mean()
    ),
}


def hits(logits, labels):
    """How many answers are right in each batch"""
    return [(x.argmax(1) == y).sum().item() for x, y in zip(logits, labels, strict=True)]


def per_batch(right, sizes):
    return [h / n for h, n in zip(right, sizes, strict=True)]


def mean(numbers):
    return sum(numbers) / len(numbers)


def check_accuracy(answer):
    """Mark a function (model, batches) -> the share of all images that are read right."""
    ideas = [
        ("the share of all images, whatever the size of the batches", accuracy_share),
        ("asks in evaluation mode, and gives the model back in the mode it came in", accuracy_mode),
        ("changes nothing, computes no gradients, and takes batches that can be run through once", accuracy_manners),
    ]
    return marks.check("accuracy", answer, ideas)


def graded(model, K, sizes, right):
    """Batches of which the model reads so many right each"""
    batches = []
    for n, good in zip(sizes, right, strict=True):
        images = 2 * torch.randn(n, 1, 2, 3)
        with torch.no_grad():
            labels = copy.deepcopy(model).eval()(images).argmax(1)
        labels[good:] = (labels[good:] + 1 + torch.randint(K - 1, (n - good,))) % K
        batches.append((images, labels))
    return batches


def ask_share(answer, model, batches, when, once=False):
    """The share that the answer gives, as a number; once: batches that can be run through once"""
    weights, kept = [p.detach().clone() for p in model.parameters()], copy.deepcopy(batches)
    drawn = torch.get_rng_state()
    got = answer(model, iter(batches) if once else batches)
    slip(isinstance(model[2], nn.Tanh) and not torch.equal(drawn, torch.get_rng_state()), SEEDED)
    expect_kept(batches, kept)
    changed = not all(map(torch.equal, model.parameters(), weights))
    slip(changed, "changes the weights of the model; measuring leaves it as it was")
    slip(not torch.is_grad_enabled(), "leaves gradients switched off for whoever comes next: with torch.no_grad(): ...")
    slip(not all(p.requires_grad for p in model.parameters()), "leaves weights that cannot learn: requires_grad is off")
    return as_number(got, when, "a share from 0 to 1")


def expect_shares_of_images(got, problems, when):
    """Slip unless every share is that of its model and batches; a rule that explains a wrong one explains all"""
    with torch.no_grad():
        logits = [[copy.deepcopy(model).eval()(x) for x, _ in batches] for model, batches in problems]
    labels = [[y for _, y in batches] for _, batches in problems]
    right = [hits(x, y) for x, y in zip(logits, labels, strict=True)]
    sizes = [[len(y) for y in ys] for ys in labels]
    wanted = [sum(h) / sum(n) for h, n in zip(right, sizes, strict=True)]
    wrong = next((i for i, pair in enumerate(zip(got, wanted, strict=True)) if not near(*pair)), None)
    if wrong is None:
        return
    words = first_match(ASKED_SLIPS, got, logits, labels) or first_match(ACCURACY_SLIPS, got, right, sizes)
    words = words or ("is it rounded?" if rounded(got, wanted) else "count the images whose largest logit is at the label")
    of = f"batches of {', '.join(map(str, sizes[wrong]))} images{when}"
    raise marks.Slip(f"gives {got[wrong]:.6g} for {of}, wanted {wanted[wrong]:.6g}: {words}")


def accuracy_share(answer):
    problems, got = [], []
    for K, sizes, right in ((5, (5, 5), (1, 3)), (5, (6, 6, 1), (2, 5, 0)), (3, (7, 7, 4), (7, 1, 3)), (10, (9,), (4,))):
        model = plain(K)
        batches = graded(model, K, sizes, right)
        try:
            got.append(ask_share(answer, model.eval(), batches, f"for {len(sizes)} batches"))
        except Exception:
            if got:
                expect_shares_of_images(got, problems, "")
            raise
        problems.append((model, batches))
    expect_shares_of_images(got, problems, "")


def accuracy_mode(answer):
    model = restless(4)
    batches = graded(model, 4, (8, 8, 3), (5, 2, 3))
    events = watch(model, OPTIMIZERS["AdamW"](model))
    for training in (True, False):
        model.train(training)
        mode = "training" if training else "evaluation"
        got = ask_share(answer, model, batches, f"for a model that came in {mode} mode")
        asked = events.count("evaluation") < events.count("forward")
        slip(asked, "asks the model in training mode: dropout makes mistakes, and statistics move. model.eval() comes first")
        words = f"the model came in {mode} mode and goes in the other one: put model.training back with model.train(...)"
        slip(any(m.training != training for m in model.modules()), words)
        expect_shares_of_images([got], [(model, batches)], f" and a model that came in {mode} mode")


def accuracy_manners(answer):
    model, grown = restless(3), []
    batches = graded(model, 3, (5, 5, 2), (3, 1, 2))
    model.register_forward_hook(lambda m, x, out: grown.append(out.requires_grad))
    got = ask_share(answer, model, batches, "for an iterator over batches", once=True)
    slip(any(p.grad is not None for p in model.parameters()), "computes gradients; nothing is learned here")
    slip(any(grown), "builds a graph for gradients that nobody needs: with torch.no_grad(): ...")
    expect_shares_of_images([got], [(model, batches)], " that come one by one")


# The planted mistakes


def check_mended(answer):
    """Mark the mended function train_epoch(model, batches, optimizer) -> the mean loss over all images."""
    ideas = [
        ("every batch moves the weights by its own gradient", mended_weights),
        ("the loss is the mean over all images", mended_loss),
        ("learns in training mode, from batches that can be run through once, and leaves them as they were", mended_manners),
    ]
    return marks.check("mended", answer, ideas)


PLANTED = "loss backward zero step"
EPOCH_SLIPS = {
    PLANTED: "the first slip is still there: zero_grad stands between backward and step, so nothing is learned",
    "loss backward step": "the gradients of all batches are added up: zero_grad belongs inside the loop, once a batch",
} | {f"zero {loss} backward step": words for loss, words in LOSSES.items()}
MEAN_SLIPS = {  # what a wrong loss of an epoch equals, from the losses and sizes of the batches
    "the second slip is still there: a mean of batch means, in which a smaller last batch counts too much. Weigh by "
    "len(labels)": lambda x, n: mean(x),
    "the loss of the last batch; the mean over all images is asked": lambda x, n: x[-1],
    "the loss of the first batch: does return stand inside the loop?": lambda x, n: x[0],
    "the sum of the batches' losses": lambda x, n: sum(x),
    "the sum over all images; divide by their number": lambda x, n: weigh(x, n),
    "weighed by size, but divided by the number of batches; divide by the number of images": lambda x, n: (
        weigh(x, n) / len(x)
    ),
    "the batches' means, divided by the number of images: multiply each by len(labels) first": lambda x, n: sum(x) / sum(n),
    "weighed by size, but every batch is counted as large as the first": lambda x, n: weigh(x, n) / (n[0] * len(n)),
    "weighed by size, but every batch is counted as large as the last": lambda x, n: weigh(x, n) / (n[-1] * len(n)),
    "weighed by size, but divided by the size of the last batch": lambda x, n: weigh(x, n) / n[-1],
    "every batch's loss is weighed by the size of the last: weigh inside the loop": lambda x, n: sum(x) * n[-1] / sum(n),
}


def weigh(losses, sizes):
    return sum(loss * n for loss, n in zip(losses, sizes, strict=True))


def try_epoch(answer, model, batches, optimizer):
    """What the answer gives after an epoch, and what happened meanwhile"""
    used = OPTIMIZERS[optimizer](model)
    events = watch(model, used)
    torch.manual_seed(1)
    kept, drawn, settings = copy.deepcopy(batches), torch.get_rng_state(), settings_of(used)
    with order_kept(events):
        got = answer(model, iter(batches), used)
    expect_kept(batches, kept)
    slip(isinstance(model[2], nn.Tanh) and not torch.equal(drawn, torch.get_rng_state()), SEEDED)
    slip(
        settings_of(used) != settings, "changes the optimizer's settings, such as its learning rate; leave them as they are"
    )
    slip(not torch.is_grad_enabled(), "leaves gradients switched off for whoever comes next")
    return got, events


def settings_of(optimizer):
    return [{name: x for name, x in group.items() if name != "params"} for group in optimizer.param_groups]


def mended_weights(answer):
    for name in OPTIMIZERS:
        for K, sizes in ((3, (6, 6, 2)), (7, (4, 4, 4, 1))):
            start, batches = plain(K), some_batches(K, sizes)
            right, _ = rehearse("zero loss backward step", start, name, batches)
            model = copy.deepcopy(start)
            got, events = try_epoch(answer, model, batches, name)
            if alike(model, right):
                continue
            words = explain(EPOCH_SLIPS, events, model, start, name, batches)
            if words == EPOCH_SLIPS[PLANTED] and got is not None:
                losses = rehearse(PLANTED, start, name, batches)[1]
                both = near(as_number(got, "after an epoch"), mean(losses))
                words += ". So is the second: look at the mean over all images" if both else ""
            raise marks.Slip(words or f"with {name}, the weights after an epoch are not those of one step a batch")


def mended_loss(answer):
    for K, sizes in ((3, (6, 6, 2)), (5, (8, 8, 8, 3)), (4, (5,)), (3, (2, 7))):
        start, batches = plain(K), some_batches(K, sizes)
        model = copy.deepcopy(start)
        got, _ = try_epoch(answer, model, batches, "SGD with momentum")
        slip(isinstance(got, torch.Tensor) and got.requires_grad, GRAPH)
        got = as_number(got, "after an epoch", "the mean loss as a number")
        losses = rehearse("zero loss backward step", start, "SGD with momentum", batches)[1]
        wanted = weigh(losses, sizes) / sum(sizes)
        if near(got, wanted):
            continue
        with torch.no_grad():
            after = F.cross_entropy(model(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])).item()
        anew = "the loss is computed after the epoch; give the mean of those that were met on the way"
        words = first_match(MEAN_SLIPS, [got], [losses], [sizes])
        words = words or ("is it rounded?" if rounded([got], [wanted]) else None)
        words = words or (anew if near(got, after) else "weigh each batch's loss by len(labels), divide by all images")
        raise marks.Slip(f"gives {got:.5g} for batches of {', '.join(map(str, sizes))} images, wanted {wanted:.5g}: {words}")


def mended_manners(answer):
    for training in (True, False):
        start, batches = restless(3).train(), some_batches(3)
        right, losses = rehearse("zero loss backward step", start, "AdamW", batches)
        model = copy.deepcopy(start).train(training)
        got, events = try_epoch(answer, model, batches, "AdamW")
        came = "" if training else ". It came so: model.train() is missing"
        slip("evaluation" in events, LEARNS_IN_EVALUATION + came)
        slip(training and not model.training, "leaves the model in evaluation mode; it came in training mode")
        passes = events.count("forward")
        slip(passes > len(batches), f"asks the model {passes} times for {len(batches)} batches: once for each is enough")
        wanted = weigh(losses, [6, 5, 3]) / 14
        wrong = not alike(model, right) or not near(as_number(got, "after an epoch"), wanted)
        slip(wrong, "with a model that has dropout and statistics, the epoch is another one")


# Curves to read

SPEAKS = {  # a fault: what its curves would show, and what the runs with another fault show instead
    "labels shuffled": (
        "validation has nothing to gain and stays at guessing, a loss of ln 10 = 2.3 and an accuracy of 0.1",
        {
            "nothing wrong": "here its accuracy rises above 0.8", "rate too high": "here its loss begins far above 2.3",
            "rate too low": "here its accuracy rises above 0.4", "too few images": "here its accuracy rises above 0.4",
        },
    ),
    "nothing wrong": (
        "training and validation both become good, and stay close together",
        {
            "labels shuffled": "here the accuracy of both stays near 0.1",
            "rate too high": "here the accuracy of both stays near 0.1",
            "rate too low": "here they are close, but both losses are far from good in the end",
            "too few images": "here training becomes perfect, and validation stays far behind",
        },
    ),
    "rate too high": (
        "the first steps throw the weights far off, and the training loss begins far above the 2.3 of guessing",
        {
            "labels shuffled": "here it begins at 2.3 and stays", "nothing wrong": "here it begins below 2.3 and falls",
            "rate too low": "here it begins at 2.3 and falls", "too few images": "here it begins below 2.3 and falls to 0",
        },
    ),
    "rate too low": (
        "both losses fall together, slowly, and are falling still in the last epoch",
        {
            "labels shuffled": "here neither falls",
            "nothing wrong": "here both fall fast, to a fraction of where they began",
            "rate too high": "here both begin far above guessing, and then jump about",
            "too few images": "here training is near 0 after half of the epochs, and validation rises",
        },
    ),
    "too few images": (
        "the training images are learned by heart, to an accuracy of 1, and validation stays far behind",
        {
            "labels shuffled": "here training stays near 0.1", "rate too high": "here training stays near 0.1",
            "nothing wrong": "here validation keeps up with training",
            "rate too low": "here validation keeps up with training, and neither comes near 1",
        },
    ),
}  # fmt: skip


def check_reading(answer):
    """Mark what was read from the curves: {"A": one of FAULTS, ...}.  One line a run."""
    if answer is None or (isinstance(answer, dict) and all(blank(x) for x in answer.values())):
        return marks.mark(" ", "reading", "not written yet")
    if not isinstance(answer, dict):
        return marks.mark("x", "reading", f'got {marks.short(answer)}; hand over a dictionary, {{"A": "...", "B": ...}}')
    entries = {str(key).strip().upper(): value for key, value in answer.items()}
    for key in entries.keys() - RUNS.keys():
        marks.mark("x", "reading", f"there is no run {key}; the runs are {', '.join(RUNS)}")
    right = [read_one(letter, entries.get(letter)) for letter in RUNS]
    return all(right) and entries.keys() == RUNS.keys()


def blank(entry):
    return entry is None or entry is ... or (isinstance(entry, str) and entry.strip() in ("", "..."))


def read_one(letter, entry):
    """One line for one run; True when it is right"""
    fault, _ = RUNS[letter]
    if blank(entry):
        return marks.mark(" ", "reading", f"{letter}: no fault is named yet")
    named = " ".join(entry.lower().split()) if isinstance(entry, str) else None
    if named not in FAULTS:
        return marks.mark("x", "reading", f"{letter}: {marks.short(entry)} is none of the names: {', '.join(FAULTS)}")
    if named == fault:
        return marks.mark("v", "reading", f"{letter}: {named}, right")
    would, here = SPEAKS[named]
    return marks.mark("x", "reading", f"{letter}: not {named!r}: there {would}; {here[fault]}")
