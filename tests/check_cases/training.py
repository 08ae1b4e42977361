"""Answers to the exercises of notebook 07.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

import copy
import itertools
import math

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from check_cases import Answers, Program, each
from vit_helpers.training import evaluate

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


def counting_by_itself():
    """As a scheduler object does."""
    calls = {}

    def answer(step, total, warmup):
        count = calls.setdefault((total, warmup), itertools.count())
        return by_hand(next(count) % total, total, warmup)

    return answer


def every_share(step, total, warmup):
    return [by_hand(i, total, warmup) for i in range(total)]


SCHEDULE = Program("""
def answer(s, T, w):
    {{begin: pass}}
    wave = lambda turns: 0.5 + 0.5 * cos(pi * turns)
    if s < w:
        return {{rise: (s + 1) / w}}
    t = (s - w) / (T - w)
    return {{fall: wave(t)}}
""")
RISES = {
    "so the first step is lost": "s / w",
    "(step + 1) / warmup, without - 1": "s / (w - 1)",
    "(step + 1) / warmup, not total": "s / T",
    "ends a step late": "(s + 1) / (w + 1)",
    "the rise is divided by total": "(s + 1) / T",
    "not divided by warmup": "s + 1",
    "no rise: the factor is 1": "1",
    "no rise: the cosine begins at step 0": "wave(s / T)",
    "formula is used in the warm-up": "wave((s - w) / (T - w))",
    "the factor is 0 during the warm-up": "(s + 1) // w",
    "0 during all of the warm-up": "s // w",
    "the cosine is already applied during": "(s + 1) / w * wave(s / T)",
    "is something squared": "((s + 1) / w) ** 2",
    "the rise is a curve": "0.5 * (1 - cos(pi * (s + 1) / w))",
    "the factor falls during the warm-up": "1 - s / w",
    "the factor falls to 0 during the warm-up": "1 - (s + 1) / w",
    "wanted 0.1: a factor should be between 0 and 1": "-(s + 1) / w",
    "the rise is (step + 1) / warmup": "math.exp(s - w)",
}
FALLS = {
    "counted from step 0; it begins where": "wave(s / T)",
    "counted from step 0, past its end": "wave(s / (T - w))",
    "divided by total, so it ends above 0": "wave((s - w) / T)",
    "the factor of the last step is 0": "wave((s - w) / (T - 1 - w))",
    "but the fall reaches 0 only a step later": "wave(min(1, (s - w) / max(1, T - 1 - w)))",
    "a step early": "wave((s - w + 1) / (T - w))",
    "a step late: use step - warmup": "wave((s - w - 1) / (T - w))",
    "counted from step 0, but": "1 - s / T",
    "the rise goes on after the warm-up: is there an if?": "(1 + s) / w",
    "the rise goes on": "(s + 1) / w if w else 1",
    "a step too long": "(s + 1) / w if s <= w else wave(t)",
    "the factor rises again during the fall": "wave((s - w) % (T // 2) / (T // 2))",
    "the fall ends at 0.37": "math.exp(-t)",
    "a whole cosine, which rises again": "wave(2 * t)", "ends at 0.5": "wave(t / 2)",
    "a quarter of a cosine": "cos(pi / 2 * t)", "the bare cosine falls to -1": "cos(pi * t)",
    "cut off at 0": "max(0, cos(pi * t))", "without its sign": "abs(cos(pi * t))",
    "the factor 0.5 is missing": "1 + cos(pi * t)", "the 1 + is missing": "0.5 * cos(pi * t)",
    "not 0.5 * 1 + cos": "0.5 * 1 + cos(pi * t)", "not 1 + 0.5 * cos": "1 + 0.5 * cos(pi * t)",
    "1 - cos rises": "0.5 * (1 - cos(pi * t))", "a sine": "0.5 * (1 + math.sin(pi * t))",
    "the fall is a straight line, but": "1 - t",
    "is the fall missing": "1", "the factor is 0 after": "0",
    "half a turn is pi, not 180": "0.5 * (1 + cos(180 * t))", "pi is missing": "0.5 * (1 + cos(t))",
    "the cosine's value is squared": "wave(t) ** 2", "jumps from 1 to 0.7": "0.7 - 0.7 * t",
    "a factor should be between 0 and 1": ["1 + t", "-t"],
    "the fall ends at 0.05": "max(0.05, wave(t))",
    "the fall 0.5": "0.01 + 0.99 * wave(t) - 0.01 * t",
}  # fmt: skip
SCHEDULE_WRONG = SCHEDULE.wrong("fall", FALLS) | SCHEDULE.wrong("rise", RISES) | {
    "got 0.5; pass the function": 0.5,
    "it should give a number from 0 to 1":
        [
            lambda *a: str(by_hand(*a)),
            every_share,
            lambda *a: torch.tensor(every_share(*a)),
            lambda *a: by_hand(*a) + 0j,
        ],
    "gives NaN": lambda *a: math.nan,
    "multiplied by total, but it is already a number of steps":
        [lambda s, T, w: by_hand(s, T, w * T), SCHEDULE(begin="w = w * T; s = s")],
    "every step of the warm-up gets 0.003 times as much": lambda *a: 3e-3 * by_hand(*a),
    "every step of the warm-up gets 100 times as much": lambda *a: 100 * by_hand(*a),
    "divides by 0 for total = 12, warmup = 0: divide by warmup only in the branch":
        SCHEDULE(begin="r = (s + 1) / w", rise="r"),
    "warmup = 0":
        [lambda s, T, w: by_hand(s, T, max(w, 1)), lambda s, T, w: by_hand(s, T, max(w, 2))],
    "is it rounded": lambda s, T, w: round(by_hand(s, T, w), 2),
    "that belongs to warmup = 10: is this number fixed in your code?":
        lambda s, T, w: by_hand(s, T, 10) if w > 1 else by_hand(s, T, w),
    "that belongs to total = 100: is this number fixed in your code?":
        lambda s, T, w: by_hand(s, 100, w),
    "right for total = 100, warmup = 10, but not here":
        lambda s, T, w: by_hand(s, T, w) ** (1 if T == 100 else 1.1),
    "is something kept between calls": counting_by_itself(),
}  # fmt: skip

# train_step


def by_closure(model, images, labels, optimizer, max_norm):
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.CrossEntropyLoss()(model(images), labels)
        loss.backward()
        clip_grad_norm_(list(model.parameters()), max_norm)
        return loss

    return optimizer.step(closure).item()


CLIPPING = {
    "clip_grad_norm_": clip_grad_norm_,
    "clip_grad_value_": clip_grad_value_,
    "evaluate": evaluate,
}
STEP = Program("""
def answer(model, images, labels, optimizer, max_norm):
    weights = list(model.parameters())
    groups = [group["params"] for group in optimizer.param_groups]
    {{acts: pass}}
    return {{give: loss.item()}}
""", **CLIPPING)  # fmt: skip
EPOCH = Program("""
def answer(model, batches, optimizer):
    {{start: model.train()}}
    x, n, max_norm = [], [], 1.0
    for images, labels in batches:
        {{acts: pass}}
        x, n = np.append(x, loss.item()), np.append(n, len(labels))
    {{end: pass}}
    return {{mean: x @ n / n.sum()}}
""", **CLIPPING)  # fmt: skip
LINES = {
    "zero": "optimizer.zero_grad()",
    "forward": "logits = model(images)",
    "loss": "loss = F.cross_entropy(logits, labels)",
    "backward": "loss.backward()",
    "clip": "clip_grad_norm_(model.parameters(), max_norm)",
    "step": "optimizer.step()",
}
ALL = "zero; forward; loss; backward; clip; step"


def acted(acts):
    """Acts as statements: short names of lines, or lines."""
    return "; ".join(LINES.get(act, act) for act in acts.split("; "))


def step(acts=ALL, give="loss.item()"):
    return STEP(acts=acted(acts), give=give)


LOSSES = {
    "there is a softmax before the loss": "F.cross_entropy(logits.softmax(1), labels)",
    "nll_loss expects logarithms": "F.nll_loss(logits.softmax(1), labels)",
    "the loss is the sum over the images": "F.cross_entropy(logits, labels, reduction='sum')",
    "the wrong sign": "-F.cross_entropy(logits, labels)",
    "the labels are smoothed": "F.cross_entropy(logits, labels, label_smoothing=0.1)",
    "the loss is a squared difference from the labels":
        "(logits.softmax(1) - F.one_hot(labels, logits.shape[1])).square().mean()",
    "the loss is a squared difference of logits and labels":
        "(logits - F.one_hot(labels, logits.shape[1])).square().mean()",
}  # fmt: skip
CLIPS = {
    "every number is clipped alone": "clip_grad_value_(weights, max_norm)",
    "each parameter is clipped alone": "[clip_grad_norm_(p, max_norm) for p in weights]",
    "each of the optimizer's groups is clipped alone":
        "[clip_grad_norm_(group, max_norm) for group in groups]",
    "only the optimizer's first group is clipped": "clip_grad_norm_(groups[0], max_norm)",
    "with SGD with momentum and max_norm = 0.05":
        "clip_grad_norm_(model[1].parameters(), max_norm)",
    "whatever max_norm is": "clip_grad_norm_(weights, 1.0)",
    "the largest number is taken as the norm": "clip_grad_norm_(weights, max_norm, float('inf'))",
    "the sum of absolute values is taken as the norm": "clip_grad_norm_(weights, max_norm, 1)",
    "a gradient with a norm below max_norm is scaled up":
        "length = clip_grad_norm_(weights, 1e9); [p.grad.mul_(max_norm / length) for p in weights]",
    "divided by its squared norm":
        "length = clip_grad_norm_(weights, 1e9); "
        "[p.grad.mul_(max_norm / length**2) for p in weights]",
    "the norm of the gradient": "loss = clip_grad_norm_(weights, max_norm)",
}  # fmt: skip
ACTS = {
    "old gradients are not reset": "forward; loss; backward; clip; step",
    "count in the first step: call zero_grad before backward":
        ["forward; loss; backward; clip; step; zero",
            "optimizer.state and optimizer.zero_grad(); forward; loss; backward; clip; step"],
    "inside torch.no_grad() or torch.inference_mode()?":
        "zero; logits = torch.inference_mode()(model)(images); loss; backward; clip; step",
    "zero_grad comes between":
        ["forward; loss; backward; zero; clip; step", "forward; loss; backward; clip; zero; step"],
    "is loss.backward() missing": "zero; forward; loss; clip; step",
    "because optimizer.step() is never called": "zero; forward; loss; backward; clip",
    "no weight changes with SGD with momentum and max_norm = 0.05, because":
        "zero; forward; loss; backward; length = clip_grad_norm_(weights, max_norm); "
        "length < max_norm and optimizer.step()",
    "calls optimizer.step() 6 time": f"{ALL}; step",
    "calls backward() 6 time":
        "zero; forward; loss; loss.backward(retain_graph=True); backward; clip; step",
    "step comes before backward":
        ["forward; loss; step; zero; backward; clip", "zero; forward; loss; step; backward; clip"],
    "the model is trained in evaluation mode":
        [f"model.eval(); {ALL}", f"model.eval(); {ALL}; model.train()", f"{ALL}; model.eval()"],
    "not clipped when":
        ["zero; forward; loss; backward; step", "zero; clip; forward; loss; backward; step"],
    "clipped after the step": "zero; forward; loss; backward; step; clip",
    "with SGD with momentum and max_norm = 100, the weights are not those":
        "zero; forward; loss; (loss / max_norm).backward(); step",
    "not clipped when the step is taken":
        "zero; forward; loss; backward; step; "
        "[p.grad.mul_(0.9 * max_norm / 50) for p in weights if max_norm < 1]",
    "the loss is clamped": "zero; forward; loss; loss.clamp(max=max_norm).backward(); step",
    "the loss is computed again after the step": f"{ALL}; forward; loss",
    "sets a global seed": f"torch.manual_seed(0); {ALL}",
    "requires_grad is off": f"model[1].requires_grad_(False); {ALL}",
    "changes the optimizer's settings": f"{ALL}; optimizer.param_groups[0].update(lr=0.01)",
    "calls the model 6 times": f"forward; {ALL}",
    "changes its input": f"images.sub_(images.mean()); {ALL}",
    "the weights change": f"optimizer = torch.optim.SGD(weights, 0.1, 0.9); {ALL}",
    "the model copied": f"model = copy.deepcopy(model); {ALL}",
    "raises RuntimeError":
        f"zero; forward; loss = F.cross_entropy(logits, F.one_hot(labels).float()); {ALL}",
    "it should be the cross-entropy":
        "forward; loss = F.mse_loss(logits.argmax(1).float().requires_grad_(), "
        "labels.float()); backward; step",
}  # fmt: skip
GIVEN = {
    "divided by the size of the batch twice": "loss.item() / len(labels)",
    "that is the accuracy": "(logits.argmax(1) == labels).float().mean().item()",
    "comes back with its graph": "loss",
    "gives a tensor for a batch; it should give the loss as a number": "loss.detach()",
    "parentheses are missing after its name": "loss.item",
    "it should give the loss as a number": ["str(loss.item())", "(loss.item(), 0.5)"],
    "does it end with return": "None",
}
STEP_WRONG = each(step, ACTS) | each(lambda give: step(give=give), GIVEN)
STEP_WRONG |= each(lambda clip: step(ALL.replace("clip", clip)), CLIPS) | {
    says: step(ALL.replace("loss", f"loss = {loss}")) for says, loss in LOSSES.items()
} | {
    "was the first one kept": lambda *a: 1.0,
    "wanted":
        step(
            ALL.replace("loss", "loss = 6 * F.cross_entropy(logits, labels)", 1),
            "loss.item() / len(labels)",
        ),
    "the weights are not those of one optimizer step":
        step(
            ALL.replace("loss", "loss = 3 * F.cross_entropy(logits, labels)", 1), "loss.item() / 3",
        ),
    "the gradient is that of the sum over the images":
        step(
            ALL.replace("loss", f"loss = {LOSSES['the loss is the sum over the images']}", 1),
            "loss.item() / len(labels)",
        ),
}  # fmt: skip

# accuracy


def gathered(net, loader, *, device="cpu"):
    mode = net.training
    net.eval()
    with torch.inference_mode():
        pairs = [(net(x.to(device)).max(1).indices, y) for x, y in loader]
    if mode:
        net.train()
    answers, labels = map(torch.cat, zip(*pairs, strict=True))
    return (answers == labels).double().mean()


def by_a_copy(model, batches):
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    scores = [float(a == b) for x, y in batches for a, b in zip(twin(x).argmax(-1), y, strict=True)]
    return sum(scores) / len(scores)


ACCURACY = Program("""
def answer(model, batches):
    mode, x, y, h, n = model.training, [], [], [], []
    {{before: model.eval()}}
    with torch.set_grad_enabled({{grad: False}}):
        for images, labels in batches:
            logits = model(images)
            {{meanwhile: pass}}
            x, y, n = x + [logits], y + [labels], n + [len(labels)]
            h = h + [(logits.argmax(1) == labels).sum().item()]
    {{after: model.train(mode)}}
    every, labels, s, h, n = torch.cat(x), torch.cat(y), np.divide(h, n), np.array(h), np.array(n)
    return {{give: sum(h) / sum(n)}}
""")


def forget_gradients(model):
    for p in model.parameters():
        p.grad = None


SHARES = {
    "a smaller last batch counts too much": "s.mean()",
    "the batches' accuracies, in percent": "100 * s.mean()",
    "the sum of the batches' accuracies": "s.sum()", "divided twice": "s.sum() / n.sum()",
    "that is in percent": "100 * h.sum() / n.sum()",
    "no prediction counts as correct": "h.sum() // n.sum()",
    "no prediction counts as correct:": "sum(map(torch.equal, every, labels))",
    "argmax() without an axis":
        "sum((a.argmax() == b).sum().item() for a, b in zip(x, y)) / n.sum()",
    "count the images whose largest logit is that of":
        "sum((a.softmax(0).argmax(1) == b).sum().item() for a, b in zip(x, y)) / n.sum()",
    "the number of correct predictions": "h.sum()",
    "the fraction of wrong predictions": "1 - h.sum() / n.sum()",
    "the last batch alone": "s[-1]",
    "the first batch alone": "s[0]", "is the sum reset each time": "h[-1] / n.sum()",
    "divided by the number of batches": "h.sum() / len(n)",
    "by the size of the last batch": "h.sum() / n[-1]",
    "by the size of the first batch":
        "h.sum() / n[0]",
    "every batch is counted as if it were as large as the first": "h.sum() / (len(n) * n[0])",
    "every batch is counted as if it were as large as the last":
        "h.sum() / (len(n) * n[-1])", "is it rounded": "round(h.sum() / n.sum(), 2)",
    "count the images whose largest logit": "0.123",
    "that is the loss": "F.cross_entropy(every, labels).item()",
    "it should give a fraction": ["f'{s.mean():.1%}'", "every.argmax(1) == labels"],
    "does it end with return": "None",
    "the mean of the batches' losses":
        "np.mean([F.cross_entropy(a, b).item() for a, b in zip(x, y)])",
    "the smallest logit": "(every.argmin(1) == labels).float().mean()",
    "argmax runs over the images": "(torch.cat([a.argmax(0) for a in x]) == labels).float().mean()",
    "the mean probability of the correct class":
        "every.softmax(1)[range(len(labels)), labels].mean()",
}  # fmt: skip
ACCURACY_WRONG = ACCURACY.wrong("give", SHARES) | {
    "the first batch alone: is return":
        lambda model, batches: ACCURACY()(model, [next(iter(batches))]),
    "changes the gradients that": lambda m, b: (ACCURACY()(m, b), forget_gradients(m))[0],
    "changes the gradients":
        ACCURACY(grad="True", meanwhile="F.cross_entropy(logits, labels).backward()"),
    "builds a graph": ACCURACY(grad="True"),
    "changes its input": ACCURACY(meanwhile="images.sub_(1)"),
    "raises TypeError":
        [lambda m, b: ACCURACY()(m, b[:]), lambda m, b: ACCURACY()(m, b) + 0 * len(b)],
} | ACCURACY.wrong("before", {
    "calls the model in training mode":
        [
            "pass",
            "model.train()",
            "model.eval(); [m.train() for m in model if isinstance(m, torch.nn.BatchNorm1d)]",
        ],
    "changes the gradients that the": "model.eval(); model.zero_grad()",
    "requires_grad is off": "model.eval().requires_grad_(False)",
    "lets frozen parameters of the model learn": "model.eval().requires_grad_(True)",
}) | ACCURACY.wrong("after", {
    "came in training mode, but is left in the other one": "pass",
    "came in evaluation mode, but is left in the other one": "model.train()",
    "came in training mode, and so does model.training say, but its layers":
        "model.training = mode",
    "changes the numbers of the model": "model.train(mode); model[1].weight.data.mul_(0.9)",
})  # fmt: skip

# fixed


FOUR = "zero; forward; loss; backward; step"


def epoch(acts=FOUR, mean="x @ n / n.sum()", **parts):
    return EPOCH(acts=acted(acts), mean=mean, **parts)


MEANS = {
    "the second mistake is still there": "x.mean()",
    "the loss of the last batch": "x[-1]",
    "the loss of the first batch": "x[0]",
    "the smallest of the batches' losses": "np.sort(x)[0]",
    "the sum of the batches' losses": "x.sum()",
    "divide by their number": "x @ n",
    "divided by the number of batches": "x @ n / len(n)",
    "multiply each by len": "x.sum() / n.sum()",
    "every batch is counted as if it were as large as the first": "x @ n / (n[0] * len(n))",
    "every batch is counted as if it were as large as the last": "x @ n / (n[-1] * len(n))",
    "by the size of the last batch": "x @ n / n[-1]",
    "weight inside the loop": "x.sum() * n[-1] / n.sum()",
    "is it rounded": "round(x @ n / n.sum(), 2)",
    "does it end with return": "None",
    "it should give the mean loss": "list(x)",
}
EPOCHS = {
    "the first mistake is still there: zero_grad is between backward and step, "
    "so nothing is learned": "forward; loss; backward; zero; step",
    "zero_grad belongs inside the loop": "forward; loss; backward; step",
    "step comes before backward": [
        "zero; forward; loss; step; backward",
        "forward; loss; step; zero; backward",
    ],
    "because optimizer.step() is never called": "zero; forward; loss; backward",
    "is loss.backward() missing": "zero; forward; loss; step",
    "calls optimizer.step() 6 time": f"{FOUR}; step",
    "not those of one optimizer step": ALL,
    "changes the optimizer's settings": f"{FOUR}; optimizer.param_groups[0].update(lr=0.01)",
    "requires_grad is off": f"model[1].requires_grad_(False); {FOUR}",
    "calls the model 6 times for 3 batches": "zero; forward; loss; backward; forward; loss; step",
}
FIXED_WRONG = each(lambda mean: epoch(mean=mean), MEANS) | each(epoch, EPOCHS) | {
    says: epoch(FOUR.replace("loss", f"loss = {loss}", 1)) for says, loss in LOSSES.items()
} | {
    "So is the second": epoch("forward; loss; backward; zero; step", "x.mean()"),
    "zero_grad belongs inside the loop, once per batch":
        epoch("forward; loss; backward; step", start="model.train(); optimizer.zero_grad()"),
    "calls optimizer.step() 1 time":
        epoch(
            "forward; loss; backward",
            start="model.train(); optimizer.zero_grad()",
            end="optimizer.step()",
        ),
    "comes back with its graph": epoch(mean="loss"),
    "gives a tensor after an epoch": epoch(mean="torch.tensor(x @ n / n.sum())"),
    "adds up losses with their graphs": epoch(
        f"{FOUR}; total = total + loss * len(labels)",
        start="model.train(); total = 0",
        mean="total.item() / sum(n)",
    ),
    "computed after the epoch":
        epoch(start="batches = list(batches); model.train()", mean="evaluate(model, batches).loss"),
    "raises TypeError": epoch(start="print(len(batches))"),
    "evaluation mode": epoch(start="model.eval()"),
    "model.train() is missing": epoch(start="pass"),
    "leaves the model in evaluation mode": epoch(end="model.eval()"),
    "calls the model for 1 of 3":
        lambda model, batches, optimizer: epoch()(model, [next(iter(batches))], optimizer),
    "sets a global seed": epoch(start="model.train(); torch.manual_seed(0)"),
}  # fmt: skip

# adamw_step


def by_torch_itself(w, g, m, v, s, lr, betas, eps, decay):
    p = torch.nn.Parameter(w.clone())
    p.grad = g.clone()
    optimizer = torch.optim.AdamW([p], lr=lr, betas=betas, eps=eps, weight_decay=decay)
    optimizer.state[p] = {
        "step": torch.tensor(s - 1.0),
        "exp_avg": m.clone(),
        "exp_avg_sq": v.clone(),
    }
    optimizer.step()
    return p.detach(), optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]


@torch.no_grad()
def in_place_on_copies(w, g, m, v, s, lr, betas, eps, decay):
    w, m, v = w.clone(), m.clone(), v.clone()
    w.mul_(1 - lr * decay)
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    root = v.sqrt().div_(math.sqrt(1 - betas[1] ** s)).add_(eps)
    w.addcdiv_(m, root, value=-lr / (1 - betas[0] ** s))
    return [w, m, v]


ADAMW = Program("""
def answer(w, g, m, v, s, lr, betas, eps, decay):
    (b1, b2), old_m, old_v = betas, m, v
    {{before: pass}}
    m = {{mean: b1 * m + g * (1 - b1)}}
    v = {{square: b2 * v + g * g * (1 - b2)}}
    {{between: pass}}
    m_hat, v_hat = {{correct: m / (1 - b1**s), v / (1 - b2**s)}}
    update = {{divide: m_hat / (v_hat**0.5 + eps)}}
    new = {{move: w - lr * (update + decay * w)}}
    return {{give: new, m, v}}
""")
ADAMW_PARTS = {
    "mean": {
        "beta1 and 1 - beta1 are exchanged": "m + b1 * (g - m)",
        "counts in full, as in SGD's momentum": "g + b1 * m",
        "so m would only grow": "m + g * (1 - b1)",
        "that is the gradient of this step alone": "g.clone()",
        "it is still the old average": "m * 1",
        "the gradient is subtracted from the average": "b1 * m - g + b1 * g",
        "which is v's task": "b1 * m + g.square() * (1 - b1)",
        "beta2 stands where beta1 belongs": "b2 * m + g * (1 - b2)",
        "it should be a running average of the gradient": "(m + g) / 2",
    },
    "square": {
        "beta2 and 1 - beta2 are exchanged": "v + b2 * (g * g - v)",
        "the squared gradient counts in full": "g.square() + b2 * v",
        "so v would only grow": "v + g * g * (1 - b2)",
        "that is the squared gradient of this step alone": "g * g",
        "it is still the old average of the squares": "v * 1",
        "the gradient isn't squared": "b2 * v + g * (1 - b2)",
        "averages absolute values": "b2 * v + (g * g).sqrt() * (1 - b2)",
        "the gradient's share is squared": "b2 * v + (g * (1 - b2)).square()",
        "beta1 stands where beta2 belongs": "b1 * v + g * g * (1 - b1)",
        "but each weight has a v of its own": "b2 * v + g.pow(2).sum() / g.numel() * (1 - b2)",
        "averages the square of m": "b2 * v + m * m * (1 - b2)",
        "it should be a running average of the squared gradient": "(v + g * g) / 2",
    },
    "correct": {
        "there is no bias correction": "m, v * 1",
        "only m is corrected": "m / (1 - b1**s), v",
        "only v is corrected": "m, v / (1 - b2**s)",
        "as if it were the step before": "m / (1 - b1 ** (s - 1)), v / (1 - b2 ** (s - 1))",
        "as if it were the next step": "m / (1 - b1 ** (s + 1)), v / (1 - b2 ** (s + 1))",
        "where is the power?": "m / (1 - b1), v / (1 - b2)",
        "raised to the power s": "m / (1 - s * b1), v / (1 - s * b2)",
        "the correction multiplies": "m * (1 - b1**s), v * (1 - b2**s)",
        "exchanged in the correction": "m / (1 - b2**s), v / (1 - b1**s)",
        "corrected after its root was taken": "m / (1 - b1**s), v / (1 - b2**s) ** 2",
        "the step follows the gradient of this step": "g, v / (1 - b2**s)",
        "the step follows the old m": "old_m / (1 - b1**s), v / (1 - b2**s)",
        "divides by the root of the old v": "m / (1 - b1**s), old_v / (1 - b2**s)",
        "look at the correction, the division": "m / (1 + b1**s), v / (1 + b2**s)",
    },
    "divide": {
        "eps is inside the root": "m_hat / torch.sqrt(eps + v_hat)",
        "eps is missing": "m_hat * v_hat.rsqrt()",
        "the root is missing": "m_hat / (eps + v_hat)",
        "large gradients take even larger": "m_hat * (eps + torch.sqrt(v_hat))",
        "are parentheses missing?": "m_hat / torch.sqrt(v_hat) + eps",
        "as in SGD": "m_hat + 0",
        "is m divided by its own": "m_hat / m_hat.abs()",
        "eps is added before the correction":
            "m_hat * (1 - b2**s) ** 0.5 / (v.sqrt() + eps)",
        "by the size of the gradient, too": [
            "(m_hat + decay * w) / (v_hat**0.5 + eps) - decay * w",
        ],
    },
    "move": {
        "wrong sign": "w + lr * (update - decay * w)",
        "the step isn't multiplied by lr": "w - update - lr * decay * w",
        "the decay isn't multiplied by lr": "w - lr * update - decay * w",
        "multiplied by lr twice": "w - lr * update - lr * lr * decay * w",
        "the decay pulls away from 0": "w - lr * (update - decay * w)",
        "there is no weight decay": "w - update * lr",
        "the weights decay after the step":
            "(w - lr * update) - lr * decay * (w - lr * update)",
        "only the change of the weights": "-lr * (update + decay * w)",
        "the weights only decay": "w - lr * decay * w",
    },
    "give": {
        "m and v are exchanged in what is returned": "new, v, m",
        "the weights are returned last": "m, v, new",
        "would be corrected again": "new, m_hat, v_hat",
        "but the old m is returned": "new, old_m, v",
        "but the old v is returned": "new, m, old_v",
        "return three results: w, m, v": ["new", "(new, m)", "{'w': new, 'm': m, 'v': v}"],
        "it should give a tensor": "new, m, 0.1",
        "it should give (3, 5)": "new, m, v.mean(0)",
    },
}  # fmt: skip
ADAMW_WRONG = Answers(
    {
        "(L2)": ADAMW(before="g = g + decay * w; decay = 0"),
        "beta1 and beta2 are exchanged": ADAMW(before="b2, b1 = betas"),
        "changes its input": [
            ADAMW(before="m.mul_(b1)", mean="m.add_(g, alpha=1 - b1)"),
            ADAMW(move="w.sub_(lr * (update + decay * w))"),
        ],
    }
)
for part, table in ADAMW_PARTS.items():
    ADAMW_WRONG |= ADAMW.wrong(part, table)

RIGHT = {
    "adamw_step": [
        ADAMW(), by_torch_itself, in_place_on_copies,
        ADAMW(move="w * (1 - lr * decay) - lr * update", give="[new, m, v]"),
        ADAMW(
            mean="m.lerp(g, 1 - b1)", correct="m, v",
            divide="m / (1 - b1**s) / (v / (1 - b2**s)).sqrt().add(eps)",
        ),
        ADAMW(
            before="bias = [1 - torch.tensor(b, dtype=w.dtype) ** s for b in betas]",
            correct="m / bias[0], v / bias[1]",
        ),
    ],
    "schedule": [
        by_hand, by_square, by_linspace, by_torch,
        SCHEDULE(
            rise="np.interp(s + 1, [0, w], [0, 1])",
            fall="0.5 * (1 + np.cos(np.interp(s, [w, T], [0, pi])))",
        ),
        SCHEDULE(fall="0.5 + 0.5 * cos(math.radians(180 * t))"),
        lambda s, T, w: torch.tensor([by_hand(s, T, w)]),
        lambda s, T, w: np.float32(by_hand(s, T, w)),
        lambda s, T, w: torch.tensor(by_hand(s, T, w), requires_grad=True),
    ],
    "train_step": [
        step(), by_closure,
        step(
            "model.zero_grad(set_to_none=False); forward; loss = "
            "-logits.log_softmax(-1)[range(len(labels)), labels].mean()"
            "; backward; length = math.sqrt(sum(float((p.grad**2).sum()) for p in weights)); "
            "[p.grad.mul_(min(1, max_norm / length)) for p in weights]; step",
            "float(loss.detach())",
        ),
        step(
            "forward; loss = F.nll_loss(F.log_softmax(logits, 1), labels); "
            "found = torch.autograd.grad(loss, weights); "
            "scale = min(1, max_norm / torch.cat([g.flatten() for g in found]).norm().item()); "
            "[setattr(p, 'grad', g * scale) for p, g in zip(weights, "
            "found)]; step; model.zero_grad()",
            "np.float32(loss.item())",
        ),
        step(
            "model.train(); zero; forward; loss = F.cross_entropy(logits, F.one_hot(labels, "
            "logits.shape[1]).float()); "
            "backward; clip_grad_norm_(sum(groups, []), max_norm); step; zero",
            "round(loss.item(), 7)",
        ),
    ],
    "accuracy": [
        ACCURACY(), gathered, by_a_copy, lambda m, b: evaluate(m, b).accuracy,
        ACCURACY(
            before="modes = [m.training for m in model.modules()]; model.eval()",
            after="[setattr(m, 'training', was) for m, was in zip(model.modules(), modes)]",
            give="np.mean(np.argmax(every.numpy(), 1) == labels.numpy())",
        ),
        ACCURACY(
            before="model.training = False; model.eval()",
            give="torch.tensor(s) @ torch.tensor(n).double() / n.sum()",
        ),
        ACCURACY(give="(every.softmax(1).topk(1).indices[:, 0] == labels).float().mean()"),
    ],
    "fixed": [
        epoch(), epoch("forward; loss; backward; step; zero", "np.average(x, weights=n)"),
        epoch("forward; loss; zero; backward; step", "np.repeat(x, n.astype(int)).mean()"),
        epoch(
            "forward; each = F.cross_entropy(logits, labels, reduction='none'); "
            "model.zero_grad(); each.mean().backward()"
            "; step; losses += [each.detach()]; loss = each.mean()",
            "torch.cat(losses).mean().item()",
            start="mode, losses = model.training, []; model.train()", end="model.train(mode)",
        ),
    ],
}  # fmt: skip
WRONG = {
    "adamw_step": ADAMW_WRONG,
    "schedule": SCHEDULE_WRONG,
    "train_step": STEP_WRONG,
    "accuracy": ACCURACY_WRONG,
    "fixed": FIXED_WRONG,
}
