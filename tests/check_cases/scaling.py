"""Answers to the exercises of notebook 11.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

import collections
import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from check_cases import Program
from vit_helpers.scaling import (
    activations,
    multiply_adds,
    parameters,
    training_bytes,
    training_multiply_adds,
)
from vit_helpers.vit import ViTConfig

COUNTS = {
    "multiply_adds": multiply_adds,
    "parameters": parameters,
    "training_bytes": training_bytes,
    "replace": replace,
    "training_multiply_adds": training_multiply_adds,
    "ViTConfig": ViTConfig,
}

# block_multiply_adds


def block_by_config(tokens, width, hidden):
    """A config whose model has as many tokens: a row of patches of one pixel."""
    config = ViTConfig(
        (1, tokens), 1, 1, 0, width, 1, 1, hidden / width, class_token=False, pool="avg"
    )
    return {
        part: n for part, n in multiply_adds(config).items() if part not in ("projection", "head")
    }


def block_by_numpy(T, D, M):
    T, D, M = (np.int64(x) for x in (T, D, M))
    return collections.OrderedDict(
        MLP=T * D * M * 2, output=T * D**2, mixing=T**2 * D, scores=T**2 * D, qkv=T * D**2 * 3
    )


BLOCK = Program("""
def answer(T, D, M):
    parts = {
        "qkv": {{qkv: 3 * T * D * D}},
        "scores": {{scores: T * T * D}},
        "mixing": {{mixing: T * T * D}},
        "output": {{output: T * D * D}},
        "MLP": {{MLP: 2 * T * D * M}},
    }
    return {{give: parts}}
""")
EACH = "{{part: {0} for part, n in parts.items()}}"
BLOCK_RIGHT = [
    BLOCK(),
    block_by_config,
    block_by_numpy,
    BLOCK(scores="12 * T * T * (D // 12) if D % 12 == 0 else T * T * D"),
    *(BLOCK(give=EACH.format(f"{kind}(n)")) for kind in ("float", "np.float32", "torch.tensor")),
]
BLOCK_WRONG = BLOCK.wrong("MLP", {
    "one matrix of two": "T * D * M",
    "M is assumed to be 4 D": "8 * T * D**2", "one matrix of M x M": "T * M**2",
    "the second matrix is counted as M x M": "T * (D * M + M * M)",
    "two matrices of M x M": "2 * T * M**2",
    "two matrices of D x D": "2 * T * D**2",
    "GELU": "T * (2 * D * M + M)", "biases are counted": "T * (2 * D * M + M + D)",
    "these are the learned weights and biases;": "2 * D * M + M + D",
    'nothing back as "MLP"': "None",
    "it should give a number": ["'many'", "[T * D * M, T * M * D]"],
}) | BLOCK.wrong("qkv", {
    "that is one matrix of three": "T * D * D", "that is two matrices of three": "2 * T * D * D",
    "these are the learned weights and biases": "3 * (D + 1) * D",
    "biases are counted": "3 * T * (D + 1) * D",
    "once for every token, so T is missing": "3 * D * D", "not squared": "3 * T * T * D * D",
}) | BLOCK.wrong("output", {
    "weights; each of them is used once for every token": "D * D",
    "biases are counted": "T * (D + 1) * D",
    "the output projection is one D x D matrix":
        "3 * T * D * D", "it should give 116,195,328: count matrix products": "T * D",
}) | BLOCK.wrong("scores", {
    "T is missing once": "T * D",
    "T and D are swapped": "T * D**2", "that is the number of pairs": "T**2",
    "softmax": "T * T * (D + 3)", "12 heads of width D / 12 cost as much": "12 * T * T * D",
    "it should give 29,805,312: count matrix products": "3 * T * T * D",
    "both directions": "T * (T + 1) // 2 * D",
}) | BLOCK.wrong("mixing", {
    "T is missing once:": "T * D",
    "T and D are swapped:": "T * D**2", "but all together T * T * D": "T * T * (D // 12)",
    "count matrix products: (rows": "T * T * 64",
    "every pair counts in both directions": "T * T * D / 2",
}) | BLOCK.wrong("give", {
    "it should give a dictionary": ["sum(parts.values())", "list(parts.values())", "parts.items()"],
    "lacks MLP (it also has: 'mlp')": "{'mlp': parts.pop('MLP'), **parts}",
    "FLOPs:": EACH.format("2 * n"),
    "lacks scores, mixing, output, MLP": "{'qkv': parts['qkv']}",
    "'total', which is none of the five": "parts | {'total': 1}",
}) | {
    "FLOPs": BLOCK(scores="2 * T * T * D"), "TypeError": lambda T, D: {},
    "right for 197, as in the first case: is it fixed in your code":
        lambda T, D, M: BLOCK()(197, D, M),
    "right for 768, as in the first case": lambda T, D, M: BLOCK()(T, 768, M),
    "what is different in this one": BLOCK(MLP="(2 + (T == 50)) * T * D * M"),
}  # fmt: skip

# times_more


def times_by_parts(config, factor):
    """Scores and mixing grow with T * T, the projection with the patches, the rest with T.

    The head does not grow at all.
    """
    now, old = multiply_adds(config), config.num_tokens
    grows = ((old - config.class_token) * factor**2 + config.class_token) / old
    power = dict.fromkeys(now, grows) | {
        "scores": grows**2,
        "mixing": grows**2,
        "projection": factor**2,
        "head": 1,
    }
    return sum(power[part] * n for part, n in now.items()) / sum(now.values())


TIMES = Program("""
def answer(c, f):
    size, count = {{size: tuple(f * side for side in c.image_size)}}, {{count: multiply_adds}}
    cost = lambda **changes: sum(count(replace(c, **changes)).values())
    tokens = replace(c, image_size=size).num_tokens / c.num_tokens
    times = cost({{changes: image_size=size}}) / cost()
    return {{give: times}}
""", **COUNTS)  # fmt: skip
TIMES_RIGHT = [
    TIMES(),
    times_by_parts,
    TIMES(give="np.float64(times)"),
    TIMES(give="torch.tensor(times)"),
    lambda model, by: TIMES()(replace(model, dropout=0.1), int(by)),
]
TIMES_WRONG = TIMES.wrong("give", {
    "the number of tokens nearly grows like that": "f * f",
    "the number of tokens grows like that": "tokens",
    "only scores and mixing nearly grow like that": "f * f * f * f", "upside down": "1 / times",
    "only scores and mixing grow like that":
        "math.pow(tokens, 2)", "scores and mixing are not half of the cost": "(f * f + f**4) / 2",
    "there are as many patches as before": "cost() / cost()", "the factor itself": "tokens and f",
    "that is only the increase, as a share": "times - 1",
    "that is only the increase": "cost(image_size=size) - cost()",
    "the cost itself": "cost(image_size=size)", "without rounding it": "round(times, 2)",
    "it should give the ratio of two costs": ["multiply_adds(c)", "f'{times:.2f}'"],
    "ZeroDivisionError": "1 / 0",
    "adds up its keys": "sum(multiply_adds(c)) / f",
    "divide the cost of the larger image": "times + 1 / 7",
    "dataclasses.replace": "setattr(c, 'image_size', size)",
    "changes its input": "object.__setattr__(c, 'image_size', size) or times",
}) | TIMES.wrong("changes", {
    "patches grew with the image": "image_size=size, patch_size=f * c.patch_size",
    "one side grew":
        ["image_size=(size[0], c.image_size[1])", "image_size=(c.image_size[0], size[1])"],
    "the height is used for the width too":
        "image_size=size[0]", "the width is used for the height too": "image_size=size[1]",
}) | TIMES.wrong("count", {
    "instead of multiply-adds": "parameters", "backward pass": "training_multiply_adds",
}) | {
    "patches become smaller": TIMES(changes="patch_size=c.patch_size // f"),
    "Multiply each side": TIMES(size="f * c.image_size"),
    "the class token is left out":
        lambda c, f: TIMES()(replace(c, class_token=False, pool="avg"), f),
    "right for 2, as in the first case: is it fixed in your code": lambda c, f: TIMES()(c, 2),
    "224 x 224 pixels in patches of 16, as in the first case": lambda c, f: TIMES()(ViTConfig(), f),
    "what is different in this one": lambda c, f: TIMES()(c, f) * (1 if f == 2 else 1.1),
}  # fmt: skip

# accumulate

ACCUMULATE = Program("""
def answer(model, images, labels, parts):
    {{before: model.zero_grad()}}
    losses, pieces = [], list(zip(images.chunk(parts), labels.chunk(parts), strict=True))
    for x, y in {{pieces: pieces}}:
        {{zero: pass}}
        losses.append(F.cross_entropy(model(x), y) * {{weight: len(y) / len(labels)}})
        {{backward: losses[-1].backward()}}
    {{after: pass}}
    n = np.array([len(y) for _, y in pieces])
    means = np.array([loss.item() for loss in losses]) * len(labels) / n[: len(losses)]
    return {{give: sum(losses).item()}}
""")
STEP = "[p.data.sub_(0.1 * p.grad) for p in model.parameters()]"


def accumulate_scaled(model, images, labels, parts):
    """Sums first, and the gradient divided in the end."""
    model.zero_grad(set_to_none=False)
    total = 0
    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        loss = -model(x).log_softmax(dim=1)[torch.arange(len(y)), y].sum()
        loss.backward()
        total = total + loss
    for p in model.parameters():
        p.grad /= len(labels)
    return (total.detach() / len(labels)).item()


def accumulate_by_torch(model, images, labels, parts):
    weights = list(model.parameters())
    grads, total = [torch.zeros_like(p) for p in weights], 0.0
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        loss = F.cross_entropy(model(x), y)
        new = torch.autograd.grad(loss, weights)
        grads = [g + n * len(y) / len(labels) for g, n in zip(grads, new, strict=True)]
        total += loss.item() * len(y) / len(labels)
    for p, g in zip(weights, grads, strict=True):
        p.grad = g
    return np.float32(total)


def accumulate_loader(model, images, labels, parts):
    model.zero_grad()
    total = 0
    for x, y in DataLoader(
        TensorDataset(images, labels), batch_size=math.ceil(len(images) / parts)
    ):
        loss = F.cross_entropy(model.forward(x), y, reduction="sum").div(len(labels))
        loss.backward()
        total += loss.detach()
    return float(total)


def accumulate_mixed(model, images, labels, parts, size=lambda n, parts: -(-n // parts)):
    """In another order; size: (images, parts) -> images of a part."""
    order = torch.randperm(len(labels))
    total = []
    model.zero_grad()
    for some in order.split(size(len(labels), parts)):
        total.append(
            F.cross_entropy(model(images[some]), labels[some], reduction="sum") / len(order)
        )
        total[-1].backward()
    return sum(total).item()


def accumulate_func(model, images, labels, parts):
    weights, total = {name: p.detach() for name, p in model.named_parameters()}, 0.0
    model.zero_grad()

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, x), y) * (
            len(y) / len(labels)
        )

    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, x, y)
        total += loss.item()
        for name, p in model.named_parameters():
            p.grad = gradients[name] if p.grad is None else p.grad + gradients[name]
    return total


ACCUMULATE_RIGHT = [
    ACCUMULATE(), accumulate_scaled, accumulate_by_torch, accumulate_loader, accumulate_mixed,
    accumulate_func
]  # fmt: skip
ACCUMULATE_WRONG = ACCUMULATE.wrong("weight", {
    "adds up the means of": "1",
    "0.333 times what it should be (for 12": "1 / len(labels)",
    "weights all parts equally": "1 / len(pieces)",
    "divides each part's loss by parts": "1 / parts",
    "1.33 times what it should be": "1 / len(y)", "12 times what it should be": "len(y)",
    "0.75 times": "(1 / parts if len(labels) == 9 else len(y) / len(labels))",
}) | ACCUMULATE.wrong("pieces", {
    "only the first part is in .grad": "[pieces[0]]",
    "may give fewer chunks than parts":
        "[(images.chunk(parts)[i], labels.chunk(parts)[i]) for i in range(parts)]",
    "the last part is missing in .grad (":
        ["pieces[:-1] or pieces", "[piece for piece in pieces if len(piece[1]) > 1]"],
    "the gradient in .grad is off by": "[(x, y) for (x, _), (_, y) in zip(pieces, pieces[::-1])]",
}) | ACCUMULATE.wrong("before", {
    "an earlier batch's gradient is still in .grad": "pass",
    "each image once is enough. Keep the loss of that pass":
        "model.zero_grad(); [model(x[None]) for x in images]",
    "in a new model .grad is None": "[p.grad.zero_() for p in model.parameters()]",
    "changes its input": "model.zero_grad(); images.sub_(images.mean())",
    "all 12 images at once": "parts = 1; model.zero_grad()",
    "passes the model 6 images": "parts = min(2, parts); model.zero_grad()",
    "smaller parts than asked for waste time": "parts = len(images); model.zero_grad()",
    "calls the model in evaluation mode": "model.eval(); model.zero_grad()",
    "calls the model in training mode": "model.train(); model.zero_grad()",
    "inside torch.no_grad()": "torch.set_grad_enabled(False); model.zero_grad()",
    "leaves no gradient in .grad":
        "with torch.no_grad(): return F.cross_entropy(model(images), labels).item()",
}) | ACCUMULATE.wrong("after", {
    "changes the weights": STEP, "leaves no gradient in .grad of": "model.zero_grad()",
    "leaves the model in evaluation mode": "model.eval()",
    "leaves the model in training mode, although it came in evaluation mode": "model.train()",
    "the gradient is clipped to length 1":
        "torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)",
    "requires_grad is off": "model.requires_grad_(False)",
    "leaves zeros": "model.zero_grad(set_to_none=False)",
}) | ACCUMULATE.wrong("give", {
    "one part's share": "losses[-1].item()",
    "one part's mean loss": "means[-1]", "sum of the parts' means": "sum(means)",
    "that weights all parts equally": "sum(means) / parts", "sum over images": "means @ n",
    "divided twice":
        "means @ n / sum(n) / parts",
    "it should be the mean over all images": "math.prod(means)",
    "gives nothing back": "None", "it should give the mean loss": ["'done'", "losses"],
    "comes back with its graph": "sum(losses)",
    "gives a tensor for 10 images and parts = 4": "sum(losses).detach()",
}) | {
    "4 times what it should be": ACCUMULATE(before="pass", weight="1"),
    "changes the weights for": ACCUMULATE(backward=f"losses[-1].backward(); {STEP}"),
    "call it for every part": ACCUMULATE(backward="pass", after="losses[-1].backward()"),
    "times what it should be (": ACCUMULATE(
        after="torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
    ),
    "only the last part is in .grad":
        [ACCUMULATE(zero="model.zero_grad()", weight=weight) for weight in ("1", "len(y) / 12")],
    "the last part is missing in .grad": ACCUMULATE(pieces="pieces[:-1] or pieces", weight="1"),
    "memory holds all parts": ACCUMULATE(backward="pass", after="sum(losses).backward()"),
    "without retain_graph": ACCUMULATE(backward="losses[-1].backward(retain_graph=True)"),
    "the gradient in .grad is off":
        ACCUMULATE(
            backward="losses[-1] = F.cross_entropy(model(x), labels[: len(x)]) / parts; "
            "losses[-1].backward()",
        ),
    "and never more than parts": lambda *args: accumulate_mixed(*args, size=lambda n, k: n // k),
    "never calls the model": lambda *_: None, "TypeError": lambda model, images, labels: 0.0,
}  # fmt: skip

# combine

COMBINE = Program("""
def answer(gs, ns):
    every, n, N = torch.stack(gs), torch.tensor(ns), sum(ns)
    products = sum(map(torch.mul, gs, n))
    return {{give: products / N}}
""")


def combine_by_loop(grads, numbers):
    total = torch.zeros_like(grads[0])
    for g, n in zip(grads, numbers, strict=True):
        total += n * g
    return total / sum(numbers)


def combine_by_shares(gradients, counts):
    """Each process shrinks its own gradient first, and then all are averaged, as DDP does."""
    own = [g * (n * len(counts) / sum(counts)) for g, n in zip(gradients, counts, strict=True)]
    return torch.stack(own).mean(dim=0)


def combine_some(gradients, counts):
    some = [(g, n) for g, n in zip(gradients, counts, strict=True) if n]
    return sum(g * n for g, n in some).div(sum(n for _, n in some))


def combine_in_place(gradients, counts):
    for g, n in zip(gradients, counts, strict=True):
        g *= n / sum(counts)
    return sum(gradients)


def combine_popping(gradients, counts):
    total = sum(counts)
    return sum(gradients.pop() * counts.pop() for _ in range(len(gradients))) / total


COMBINE_RIGHT = [
    COMBINE(),
    COMBINE(give="torch.tensordot(n / N, every, dims=1)"),
    combine_by_loop,
    combine_by_shares,
    combine_some,
]
COMBINE_WRONG = COMBINE.wrong("give", {
    "the plain mean": "every.mean(0)",
    "gives shape ()": "every.mean()",
    "adds up the gradients": "every.sum(0)",
    "divides by the number of processes": "products / len(ns)",
    "does not divide": "products",
    "divides by the largest": "products / max(ns)", "divides twice": "products / N / len(ns)",
    "divides each gradient by its count":
        "sum(map(torch.div, gs, n))", "divides by all images without weighting": "every.sum(0) / N",
    "ZeroDivisionError": "sum(g * n / N * (n / n) for g, n in zip(gs, ns))",
    "not finite": "sum(map(torch.mul, [g / k * k for g, k in zip(gs, ns)], n)) / N",
    "weight of another": "sum(map(torch.mul, gs[::-1], n)) / N",
    "gives zeros": "sum(g * (k // N) for g, k in zip(gs, ns))",
    "combines two processes only (": "sum(map(torch.mul, gs[:2], n)) / sum(ns[:2])",
    "combines two processes only, though":
        ["(ns[0] * gs[0] + ns[1] * gs[1]) / N", "sum(map(torch.mul, gs[:2], n)) / N"],
    "of the first process alone": "next(iter(gs))", "of the last process alone": "gs[-1]",
    "is not the sum of each gradient": [
        "every.prod(0)", "products / n.float().mean()", "sum(gs) / sum(n > 0 for n in ns)",
        "gs[ns.index(max(ns))]", "gs[ns.index(min(ns))]",
    ],
    "it should give one tensor":
        ["[g * k / N for g, k in zip(gs, ns)]", "(products / N).flatten().tolist()"],
    "gives shape (2, 2, 3)": "torch.stack([g * k / N for g, k in zip(gs, ns)])",
    "it should give a tensor":
        ["(products / N).numpy()", "float((products / N).sum())", "'gradient'"],
    "gives torch.float64 for torch.float32":
        "torch.from_numpy(np.average(np.stack(gs), axis=0, weights=ns))",
}) | {
    "changes its input": [combine_in_place, combine_popping], "TypeError": lambda gs: gs,
}  # fmt: skip

# largest_batch


def needs(config, batch, **how):
    return sum(training_bytes(config, batch, **how).values())


def batch_by_formula(config, gibibytes):
    return int(
        max(0, (gibibytes * 2**30 - needs(config, 0)) // training_bytes(config, 1)["activations"])
    )


def batch_by_loop(enough=lambda need, room: need <= room, start=0, ahead=1):
    def answer(config, memory):
        batch = start
        while enough(needs(config, batch + ahead), memory * 1024**3):
            batch += 1
        return batch

    return answer


def batch_by_halves(config, gibibytes):
    low, high = 0, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needs(config, middle) <= gibibytes * 2**30 else (low, middle)
    return low


def batch_by_parts(config, gibibytes):
    room = gibibytes * 2**30 - 16 * sum(parameters(config).values())
    return max(0, math.floor(room / (4 * sum(activations(config).values()))))


def batch_doubled(config, gibibytes):
    batch = 1
    while needs(config, 2 * batch) <= gibibytes * 2**30:
        batch *= 2
    return batch


BATCH = Program("""
def answer(c, g):
    needs = training_bytes(c, 1{{how: }})
    room = {{room: g * 2**30}} - {{copies: 4}} * needs["weights"]
    each = needs["activations"] + {{own: 0}} * needs["weights"]
    batch = max({{least: 0}}, {{count: math.floor}}(room / each))
    return {{give: batch}}
""", **COUNTS)  # fmt: skip
BATCH_RIGHT = [
    batch_by_formula,
    batch_by_loop(),
    batch_by_halves,
    batch_by_parts,
    *(BATCH(give=f"{kind}(batch)") for kind in ("float", "np.int64", "torch.tensor")),
]
BATCH_WRONG = BATCH.wrong("room", {
    "2**30": "g * 1e9",
    "it should give 206: subtract what is stored once": "g * 1000 * 2**20",
    "bytes already": "g * 2**28",
}) | BATCH.wrong("count", {
    "it should give 206: subtract": "8 * math.floor(1 / 8 * room / needs['activations']) or",
    "one too many: is it rounded up": "(lambda x: -math.floor(-x))",
    "rounded to the nearest number": "(lambda x: math.floor(x + 0.5))",
    "it should give a whole number of images": "float",
}) | BATCH.wrong("give", {
    "it should give a whole number": ["math.inf", "needs", "f'{batch} images'"],
    "adds up its keys": "sum(needs) // g",
}) | {
    "a loop stop one too late": batch_by_loop(ahead=0),
    "compare with <=": batch_by_loop(lambda need, room: need < room),
    " of the four numbers per parameter count:":
        [*(BATCH(copies=n) for n in "123"), BATCH(copies="3", how=", optimizer='sgd'")],
    "only the activations are counted":
        BATCH(copies="0"),
    "count for every image":
        [BATCH(copies=f"{4 - n}", own=f"{n}") for n in (1, 2, 3, 4)],
    "not even one image fits":
        [BATCH(least="1"), *(BATCH(least="-math.inf", give=x) for x in ("batch", "abs(batch)"))],
    "power of two": batch_doubled, "fused=False": BATCH(how=", fused=False"),
    "224 x 224 pixels in patches of 16, as in the first case":
        lambda c, g: BATCH()(ViTConfig(), g),
    "right for 24, as in the first case: is it fixed in your code": lambda c, g: BATCH()(c, 24),
    "what is different in this one": lambda c, g: BATCH()(c, g) + 5 * (g == 8),
}  # fmt: skip

# training_days


def days_by_three(config, images, epochs, peak, share):
    """Back costs twice as much as forward."""
    seconds_of_epoch = images * 6 * sum(multiply_adds(config).values()) / (share * peak)
    return epochs * seconds_of_epoch / 86400


DAYS = Program("""
def answer(c, images, epochs, peak, share):
    {{first: pass}}
    flops = {{flops: 2 * sum(training_multiply_adds(c).values())}}
    days = flops * images * epochs / (peak * share) / (24 * 60 * 60)
    return {{give: days}}
""", **COUNTS)  # fmt: skip
DAYS_RIGHT = [
    DAYS(),
    days_by_three,
    *(DAYS(give=code) for code in ("1.01 * days", "torch.tensor(days)", "np.float32(days)")),
    DAYS(flops="2 * sum(training_multiply_adds(c, fused=False).values())"),
]
DAYS_WRONG = DAYS.wrong("flops", {
    "divides multiply-adds by a peak in FLOPs": "sum(training_multiply_adds(c).values())",
    "twice too long": "4 * sum(training_multiply_adds(c).values())",
    "only the forward pass is counted": "2 * sum(multiply_adds(c).values())",
    "a multiply-add counts as one FLOP": "sum(multiply_adds(c).values())",
    "only the backward pass": "4 * sum(multiply_adds(c).values())",
    "already includes the backward pass": "6 * sum(training_multiply_adds(c).values())",
    "once for every token": "6 * sum(parameters(c).values())",
    "scores and mixing": "6 * sum(parameters(c).values()) * c.num_tokens",
}) | DAYS.wrong("give", {
    "the share of the peak is left out":
        "days * share",
    "multiplied by the share": "days * share * share", "upside down": "1 / days",
    "that is in seconds": "days * 24 * 60**2", "that is in minutes": "days * 24 * 60",
    "that is in hours": "days * 24", "24 times too short": "days / 24",
    "60 times too long": "days * 60", "60 times too short": "days / 60",
    "3,600 times too long": "days * 3600",
    "one token in each image": "days / c.num_tokens",
    "divide the FLOPs of all images and epochs by": "1.1 * days",
    "gives nan": "math.nan",
    "it should give a number of days": ["f'{days:.1f} days'", "(days, 'days')"],
}) | DAYS.wrong("first", {
    "one epoch": "epochs = 1",
    "one image in each epoch": "images = 1", "90 epochs, 0.3 of": "share = 0.45",
    "right for 300, as in the first case: is it fixed in your code": "epochs = 300",
    "right for 989,000,000,000,000, as in the first case": "peak = 989e12",
    "right for 1,281,167, as in the first case": "images = 1_281_167",
    "224 x 224 pixels in patches of 16, as in the first case": "c = ViTConfig()",
    "what is different in this one": "images = images + 1000 * (epochs < 300) ** 2 * epochs",
}) | {"TypeError": lambda c, n, e, p: 1}  # fmt: skip

RIGHT = {
    "block_multiply_adds": BLOCK_RIGHT,
    "times_more": TIMES_RIGHT,
    "accumulate": ACCUMULATE_RIGHT,
    "combine": COMBINE_RIGHT,
    "largest_batch": BATCH_RIGHT,
    "training_days": DAYS_RIGHT,
}
WRONG = {
    "block_multiply_adds": BLOCK_WRONG,
    "times_more": TIMES_WRONG,
    "accumulate": ACCUMULATE_WRONG,
    "combine": COMBINE_WRONG,
    "largest_batch": BATCH_WRONG,
    "training_days": DAYS_WRONG,
}
