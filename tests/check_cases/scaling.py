"""Answers to the exercises of notebook 11."""

import collections
import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from vit_helpers.scaling import activations, multiply_adds, parameters, training_bytes, training_multiply_adds
from vit_helpers.vit import ViTConfig

# block_multiply_adds


def block_by_hand(T, D, M):
    return {"qkv": 3 * T * D * D, "scores": T * T * D, "mixing": T * T * D, "output": T * D * D, "MLP": 2 * T * D * M}


def block_by_config(tokens, width, hidden):
    """A config whose model has as many tokens: a row of patches of one pixel."""
    config = ViTConfig((1, tokens), 1, 1, 0, width, 1, 1, hidden / width, class_token=False, pool="avg")
    return {part: n for part, n in multiply_adds(config).items() if part not in ("projection", "head")}


def block_by_numpy(T, D, M):
    T, D, M = (np.int64(x) for x in (T, D, M))
    return collections.OrderedDict(MLP=T * D * M * 2, output=T * D**2, mixing=T**2 * D, scores=T**2 * D, qkv=T * D**2 * 3)


def block(**parts):
    """The right answer with some parts replaced."""
    return lambda T, D, M: block_by_hand(T, D, M) | {part: rule(T, D, M) for part, rule in parts.items()}


def each(count):
    return lambda T, D, M: {part: count(n) for part, n in block_by_hand(T, D, M).items()}


BLOCK_RIGHT = [
    block_by_hand,
    block_by_config,
    block_by_numpy,
    block(scores=lambda T, D, M, h=12: h * T * T * (D // h)),
    each(float),
    each(np.float32),
    each(torch.tensor),
]
BLOCK_WRONG = {
    "FLOPs": [each(lambda n: 2 * n), block(scores=lambda T, D, M: 2 * T * T * D, mixing=lambda T, D, M: 0)],
    "one map of three": block(qkv=lambda T, D, M: T * D * D),
    "two maps of three": block(qkv=lambda T, D, M: 2 * T * D * D),
    "weights: each of them works once a token, so T is missing":
        [block(qkv=lambda T, D, M: 3 * D * D), block(output=lambda T, D, M: D * D)],
    "these are the learned weights and biases":
        [block(qkv=lambda T, D, M: 3 * (D + 1) * D), block(MLP=lambda T, D, M: 2 * D * M + M + D)],
    "biases are counted": [
        block(qkv=lambda T, D, M: 3 * T * (D + 1) * D),
        block(output=lambda T, D, M: T * (D + 1) * D),
        block(MLP=lambda T, D, M: T * (2 * D * M + M + D)),
    ],
    "not squared": block(qkv=lambda T, D, M: 3 * T * T * D * D),
    "puts the heads together": block(output=lambda T, D, M: 3 * T * D * D),
    "it should give 116,195,328: products of matrices": block(output=lambda T, D, M: T * D),
    "one matrix of two": block(MLP=lambda T, D, M: T * D * M),
    "M is taken as 4 D": block(MLP=lambda T, D, M: 8 * T * D**2),
    "one matrix of M x M": block(MLP=lambda T, D, M: T * M**2),
    "second matrix is taken as M x M": block(MLP=lambda T, D, M: T * (D * M + M * M)),
    "two matrices of M x M": block(MLP=lambda T, D, M: 2 * T * M**2),
    "two matrices of D x D": block(MLP=lambda T, D, M: 2 * T * D**2),
    "GELU": block(MLP=lambda T, D, M: T * (2 * D * M + M)),
    "T is missing once": [block(scores=lambda T, D, M: T * D), block(mixing=lambda T, D, M: T * D)],
    "T and D are swapped": [block(scores=lambda T, D, M: T * D**2), block(mixing=lambda T, D, M: T * D**2)],
    "these are the pairs": block(scores=lambda T, D, M: T**2),
    "number of heads changes nothing":
        [block(scores=lambda T, D, M: 12 * T * T * D), block(mixing=lambda T, D, M: T * T * 64)],
    "softmax": block(scores=lambda T, D, M: T * T * (D + 3)),
    "both directions": [block(scores=lambda T, D, M: T * (T + 1) // 2 * D), block(mixing=lambda T, D, M: T * T * D / 2)],
    "fixed in your code": [lambda T, D, M: block_by_hand(197, D, M), lambda T, D, M: block_by_hand(T, 768, M)],
    "it should give a dictionary": [
        lambda T, D, M: sum(block_by_hand(T, D, M).values()),
        lambda T, D, M: list(block_by_hand(T, D, M).values()),
        lambda T, D, M: block_by_hand(T, D, M).items(),
    ],
    "lacks MLP (it has also: 'mlp')": lambda T, D, M: {"mlp": 1, "qkv": 1, "scores": 1, "mixing": 1, "output": 1},
    "lacks scores, mixing, output, MLP": lambda T, D, M: {"qkv": 3 * T * D * D},
    "'total', which is none of the five": block(total=lambda T, D, M: 1),
    "it should give a number": [block(MLP=lambda T, D, M: "many"), block(MLP=lambda T, D, M: [T * D * M, T * M * D])],
    'nothing back as "MLP"': block(MLP=lambda T, D, M: None),
    "TypeError": lambda T, D: {},
}  # fmt: skip

# times_more


def cost(config, count=multiply_adds, **changes):
    return sum(count(replace(config, **changes)).values())


def size(config, factor):
    return tuple(factor * side for side in config.image_size)


def tokens(config, factor):
    return replace(config, image_size=size(config, factor)).num_tokens / config.num_tokens


def times(config, factor, count=multiply_adds, **changes):
    return cost(config, count, **({"image_size": size(config, factor)} | changes)) / cost(config, count)


def times_by_parts(config, factor):
    """Scores and mixing grow with T * T, the projection with the patches, the head not at all, the rest with T."""
    now, old = multiply_adds(config), config.num_tokens
    grows = ((old - config.class_token) * factor**2 + config.class_token) / old
    power = dict.fromkeys(now, grows) | {"scores": grows**2, "mixing": grows**2, "projection": factor**2, "head": 1}
    return sum(power[part] * n for part, n in now.items()) / sum(now.values())


def times_frozen(config, factor):
    config.image_size = size(config, factor)


def times_forced(config, factor):
    before = cost(config)
    object.__setattr__(config, "image_size", size(config, factor))
    return cost(config) / before


TIMES_RIGHT = [
    times,
    times_by_parts,
    lambda config, factor: np.float64(times(config, factor)),
    lambda config, factor: torch.tensor(times(config, factor)),
    lambda model, by: times(replace(model, dropout=0.1), int(by)),
]
TIMES_WRONG = {
    "the tokens grow like that, nearly": lambda c, f: f * f,
    "the tokens grow like that;": tokens,
    "scores and mixing alone grow like that, nearly": lambda c, f: f * f * f * f,
    "scores and mixing alone grow like that;": lambda c, f: math.pow(tokens(c, f), 2),
    "no halves": lambda c, f: (f * f + f**4) / 2,
    "there are as many patches as before": lambda c, f: cost(c) / cost(c),
    "patches grew with the image": lambda c, f: times(c, f, patch_size=f * c.patch_size),
    "patches become smaller": lambda c, f: cost(c, patch_size=c.patch_size // f) / cost(c),
    "the factor itself": lambda c, f: tokens(c, f) and f,
    "one side grew": [
        lambda c, f: times(c, f, image_size=(f * c.image_size[0], c.image_size[1])),
        lambda c, f: times(c, f, image_size=(c.image_size[0], f * c.image_size[1])),
    ],
    "upside down": lambda c, f: cost(c) / cost(c, image_size=size(c, f)),
    "what is added, as a share": lambda c, f: times(c, f) - 1,
    "what is added; how many": lambda c, f: cost(c, image_size=size(c, f)) - cost(c),
    "the cost itself": lambda c, f: cost(c, image_size=size(c, f)),
    "the class token is left out": lambda c, f: times(replace(c, class_token=False, pool="avg"), f),
    "these are parameters": lambda c, f: times(c, f, parameters),
    "way back": lambda c, f: times(c, f, training_multiply_adds),
    "the height is taken for the width": lambda c, f: times(c, f, image_size=f * c.image_size[0]),
    "the width is taken for the height": lambda c, f: times(c, f, image_size=f * c.image_size[1]),
    "Multiply each side": lambda c, f: times(c, f, image_size=f * c.image_size),
    "leave the rounding": lambda c, f: round(times(c, f), 2),
    "fixed in your code": [lambda c, f: times(c, 2), lambda c, f: times(ViTConfig(), f)],
    "dataclasses.replace": times_frozen,
    "changes its input": times_forced,
    "it should give a number of times": [lambda c, f: multiply_adds(c), lambda c, f: f"{times(c, f):.2f}"],
    "adds up its keys": lambda c, f: sum(multiply_adds(c)) / f,
    "divide the cost of the larger image": lambda c, f: times(c, f) + 1 / 7,
    "ZeroDivisionError": lambda c, f: 1 / 0,
}

# accumulate


def accumulate(  # the right answer, and every way to leave it
    zero="before", weigh=lambda y, labels, parts: len(y) / len(labels), split=lambda x: x, after=lambda model, losses: None,
    inside=lambda model, losses: None, give=lambda losses, *_: sum(losses).item(), backward=True, retain=False,
):  # fmt: skip
    def answer(model, images, labels, parts):
        if zero == "before":
            model.zero_grad()
        losses = []
        for x, y in split(list(zip(images.chunk(parts), labels.chunk(parts), strict=True))):
            if zero == "inside":
                model.zero_grad()
            losses.append(F.cross_entropy(model(x), y) * weigh(y, labels, parts))
            if backward:
                losses[-1].backward(retain_graph=retain)
            inside(model, losses)
        if not backward:
            sum(losses).backward()
        after(model, losses)
        return give(losses, labels, parts)

    return answer


accumulate_weighed = accumulate()


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
    return total.detach() / len(labels)


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
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=math.ceil(len(images) / parts)):
        loss = F.cross_entropy(model.forward(x), y, reduction="sum").div(len(labels))
        loss.backward()
        total += loss.detach()
    return total


def accumulate_mixed(model, images, labels, parts):
    """In another order, and in smaller parts where it does not come out even."""
    order = torch.randperm(len(labels))
    total = []
    model.zero_grad()
    for some in order.split(len(labels) // parts):
        total.append(F.cross_entropy(model(images[some]), labels[some], reduction="sum") / len(order))
        total[-1].backward()
    return sum(total).item()


def accumulate_func(model, images, labels, parts):
    weights, total = {name: p.detach() for name, p in model.named_parameters()}, 0.0
    model.zero_grad()

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, x), y) * (len(y) / len(labels))

    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, x, y)
        total += loss.item()
        for name, p in model.named_parameters():
            p.grad = gradients[name] if p.grad is None else p.grad + gradients[name]
    return total


def step(model, losses):
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def means(count):
    """A loss from the mean losses of the parts."""

    def give(losses, labels, parts):
        sizes = [len(y) for y in labels.chunk(parts)]
        return count([loss.item() * len(labels) / n for loss, n in zip(losses, sizes, strict=True)], np.array(sizes), parts)

    return accumulate(give=give)


def with_anew(change):
    """The right answer, and something before it."""

    def answer(model, images, labels, parts):
        change(model, images, labels)
        return accumulate_weighed(model, images, labels, parts)

    return answer


def without_gradient(model, images, labels, parts):
    with torch.no_grad():
        return F.cross_entropy(model(images), labels).item()


def labels_whole(model, images, labels, parts):
    for x in images.chunk(parts):
        F.cross_entropy(model(x), labels[: len(x)]).div(parts).backward()


def in_evaluation(model, images, labels, parts):
    model.eval()
    result = accumulate_weighed(model, images, labels, parts)
    model.train()
    return result


def undivided(*_):
    return 1


ACCUMULATE_RIGHT = [
    accumulate_weighed,
    accumulate_scaled,
    accumulate_by_torch,
    accumulate_loader,
    accumulate_mixed,
    accumulate_func,
]
ACCUMULATE_WRONG = {
    "the gradient is about 4 times too long": [accumulate(weigh=undivided), accumulate(zero="never", weigh=undivided)],
    "adds up the means of": accumulate(weigh=undivided),
    "weighs all parts alike, though the last is smaller": [
        accumulate(weigh=lambda y, labels, parts: 1 / parts),
        accumulate(weigh=lambda y, labels, parts: 1 / len(labels.chunk(parts))),
    ],
    "0.333 times what it should be": accumulate(weigh=lambda y, labels, parts: 1 / len(labels)),
    "1.33 times what it should be": accumulate(weigh=lambda y, labels, parts: 1 / len(y)),
    "12 times what it should be": accumulate(weigh=lambda y, labels, parts: len(y)),
    "0.75 times": accumulate(weigh=lambda y, labels, parts: 1 / parts if len(labels) == 9 else len(y) / len(labels)),
    "only the last part is in .grad": [accumulate(zero="inside"), accumulate(zero="inside", weigh=undivided)],
    "only the first part is in .grad": accumulate(split=lambda pieces: [pieces[0]]),
    "an earlier batch's gradient is still in .grad": accumulate(zero="never"),
    "all 12 images at once": lambda model, images, labels, parts: accumulate_weighed(model, images, labels, 1),
    "passes the model 6 images at once": lambda model, *given: accumulate_weighed(model, *given[:2], min(2, given[2])),
    "parts smaller than asked": lambda model, images, labels, parts: accumulate_weighed(model, images, labels, len(images)),
    "each once is enough": with_anew(lambda model, images, labels: [model(x[None]) for x in images]),
    "memory holds all parts": accumulate(backward=False),
    "without retain_graph": accumulate(retain=True),
    "moves the weights": [accumulate(inside=step), accumulate(after=step)],
    "leaves no gradient in .grad": [accumulate(after=lambda model, losses: model.zero_grad()), without_gradient],
    "leaves zeros": accumulate(after=lambda model, losses: model.zero_grad(set_to_none=False)),
    "a fresh model's .grad is None": with_anew(lambda model, *_: [p.grad.zero_() for p in model.parameters()]),
    "the last part is missing": [
        accumulate(split=lambda pieces: pieces[:-1] or pieces),
        accumulate(split=lambda pieces: [p for p in pieces if len(p[1]) > 1]),
        accumulate(split=lambda pieces: pieces[:-1] or pieces, weigh=undivided),
    ],
    "has each part its own labels": [
        labels_whole,
        accumulate(split=lambda pieces: [(x, y) for (x, _), (_, y) in zip(pieces, pieces[::-1], strict=True)]),
    ],
    "one part's share": accumulate(give=lambda losses, *_: losses[-1].item()),
    "one part's mean loss": means(lambda means, sizes, parts: means[-1]),
    "sum of the parts' means": means(lambda means, sizes, parts: sum(means)),
    "weighs all parts alike; weigh by images": means(lambda means, sizes, parts: sum(means) / parts),
    "sum over images": means(lambda means, sizes, parts: means @ sizes),
    "divided twice": means(lambda means, sizes, parts: means @ sizes / sum(sizes) / parts),
    "counts as often as it has images": means(lambda means, sizes, parts: math.prod(means)),
    "gives nothing back": accumulate(give=lambda *_: None),
    "it should give the mean loss": [accumulate(give=lambda *_: "done"), accumulate(give=lambda losses, *_: losses)],
    "comes back with its graph": accumulate(give=lambda losses, *_: sum(losses)),
    "leaves the model in evaluation mode": accumulate(after=lambda model, losses: model.eval()),
    "passes the model in evaluation mode": in_evaluation,
    "changes its input": with_anew(lambda model, images, labels: images.sub_(images.mean())),
    "never calls the model": lambda *_: None,
    "TypeError": lambda model, images, labels: 0.0,
}

# combine


def combine_by_stack(gradients, counts):
    return torch.tensordot(torch.tensor(counts) / sum(counts), torch.stack(gradients), dims=1)


def combine_by_loop(grads, numbers):
    total = torch.zeros_like(grads[0])
    for g, n in zip(grads, numbers, strict=True):
        total += n * g
    return total / sum(numbers)


def combine_by_numpy(gradients, counts):
    return torch.from_numpy(np.average(np.stack(gradients), axis=0, weights=counts))


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


def products(gs, ns):
    return sum(map(torch.mul, gs, map(torch.tensor, ns)))


COMBINE_WRONG = {
    "the plain mean": [lambda gs, ns: torch.stack(gs).mean(0), lambda gs, ns: sum(gs) / sum(n > 0 for n in ns)],
    "gives shape ()": lambda gs, ns: torch.stack(gs).mean(),
    "adds the gradients up": lambda gs, ns: torch.stack(gs).sum(0),
    "divides by the number of processes": lambda gs, ns: products(gs, ns) / len(ns),
    "does not divide": products,
    "divides by the largest": lambda gs, ns: products(gs, ns) / max(ns),
    "divides twice": lambda gs, ns: products(gs, ns) / sum(ns) / len(ns),
    "divides each by its count": lambda gs, ns: sum(map(torch.div, gs, map(torch.tensor, ns))),
    "weighs by nothing": lambda gs, ns: torch.stack(gs).sum(0) / sum(ns),
    "ZeroDivisionError": lambda gs, ns: sum(g * n / sum(ns) * (n / n) for g, n in zip(gs, ns, strict=True)),
    "not finite": lambda gs, ns: products([g / n * n for g, n in zip(gs, ns, strict=True)], ns) / sum(ns),
    "weight of another": lambda gs, ns: products(gs[::-1], ns) / sum(ns),
    "gives zeros": lambda gs, ns: sum(g * (n // sum(ns)) for g, n in zip(gs, ns, strict=True)),
    "combines two processes only (": lambda gs, ns: products(gs[:2], ns[:2]) / sum(ns[:2]),
    "combines two processes only, though":
        [lambda gs, ns: (ns[0] * gs[0] + ns[1] * gs[1]) / sum(ns), lambda gs, ns: products(gs[:2], ns) / sum(ns)],
    "of the first process alone": [lambda gs, ns: next(iter(gs)), lambda gs, ns: gs[ns.index(max(ns))]],
    "of the last process alone": lambda gs, ns: gs[ns.index(min(ns))],
    "other numbers":
        [lambda gs, ns: torch.stack(gs).prod(0), lambda gs, ns: products(gs, ns) / torch.tensor(ns).float().mean()],
    "it should give one tensor": [
        lambda gs, ns: [g * n / sum(ns) for g, n in zip(gs, ns, strict=True)],
        lambda gs, ns: (products(gs, ns) / sum(ns)).flatten().tolist(),
    ],
    "gives shape (2, 2, 3)": lambda gs, ns: torch.stack([g * n / sum(ns) for g, n in zip(gs, ns, strict=True)]),
    "it should give a tensor": [
        lambda gs, ns: (products(gs, ns) / sum(ns)).numpy(),
        lambda gs, ns: float((products(gs, ns) / sum(ns)).sum()),
        lambda gs, ns: "gradient",
    ],
    "gives torch.float64 for torch.float32": combine_by_numpy,
    "changes its input": [combine_in_place, combine_popping],
    "TypeError": lambda gs: gs,
}  # fmt: skip

# largest_batch


def needs(config, batch, **how):
    return sum(training_bytes(config, batch, **how).values())


def batch_by_formula(config, gibibytes):
    return int(max(0, (gibibytes * 2**30 - needs(config, 0)) // training_bytes(config, 1)["activations"]))


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


def batch(copies=4, room=lambda g: g * 2**30, own=0, count=math.floor, least=0, **how):
    """The formula with something changed; own: numbers a parameter that are counted for every image."""

    def answer(config, gibibytes):
        needs = training_bytes(config, 1, **how)
        left = room(gibibytes) - copies * needs["weights"]
        return max(least, count(left / (needs["activations"] + own * needs["weights"])))

    return answer


def batch_doubled(config, gibibytes):
    batch = 1
    while needs(config, 2 * batch) <= gibibytes * 2**30:
        batch *= 2
    return batch


BATCH_RIGHT = [
    batch_by_formula,
    batch_by_loop(),
    batch_by_halves,
    batch_by_parts,
    *(lambda config, gibibytes, of=of: of(batch_by_formula(config, gibibytes)) for of in (float, np.int64, torch.tensor)),
]
BATCH_WRONG = {
    "2**30": batch(room=lambda g: g * 1e9),
    "it should give 206: subtract what is there once":
        [batch(room=lambda g: g * 1000 * 2**20), batch(count=lambda x: math.floor(x) // 8 * 8)],
    "one too many": [batch(count=math.ceil), batch_by_loop(ahead=0), batch(count=round)],
    "<= and not <": batch_by_loop(lambda need, room: need < room),
    "not all four numbers": [batch(copies=n) for n in (1, 2, 3)] + [batch(copies=3, optimizer="sgd")],
    "activations alone": batch(copies=0),
    "counted for every image": [batch(copies=4 - n, own=n) for n in (1, 2, 3, 4)],
    "That is 0 images": batch(least=-math.inf),
    "not even one image fits": [batch(least=1), lambda c, g: abs(batch(least=-math.inf)(c, g))],
    "it should give a whole number of images": [
        batch(count=float), lambda c, g: math.inf, lambda c, g: training_bytes(c, 1), lambda c, g: f"{batch()(c, g)} images"
    ],
    "power of two": batch_doubled,
    "fused=False": batch(fused=False),
    "bytes already": batch(room=lambda g: g * 2**28),
    "fixed in your code": [lambda c, g: batch()(ViTConfig(), g), lambda c, g: batch()(c, 24)],
    "adds up its keys": lambda c, g: sum(training_bytes(c, 1)) // g,
}  # fmt: skip

# training_days


def right_days(config, images, epochs, peak, share):
    flops = 2 * sum(training_multiply_adds(config).values()) * images * epochs
    return flops / (peak * share) / (24 * 60 * 60)


def days_by_three(config, images, epochs, peak, share):
    """Back costs twice as much as forward."""
    seconds_of_epoch = images * 6 * sum(multiply_adds(config).values()) / (share * peak)
    return epochs * seconds_of_epoch / 86400


def days(times):
    """The right number, times something that depends on all that was given."""
    return lambda *given: right_days(*given) * times(*given)


def of(numbers):
    """Days from some number of FLOPs an image."""
    return lambda c, n, e, p, s: numbers(c) * n * e / p / s / 86400


DAYS_RIGHT = [
    right_days,
    days_by_three,
    days(lambda *_: 1.01),
    lambda *given: torch.tensor(right_days(*given)),
    lambda *given: np.float32(right_days(*given)),
    of(lambda c: 2 * sum(training_multiply_adds(c, fused=False).values())),
]
DAYS_WRONG = {
    "multiply-adds over a peak in FLOPs": of(lambda c: sum(training_multiply_adds(c).values())),
    "twice too many": of(lambda c: 4 * sum(training_multiply_adds(c).values())),
    "the way forward alone is counted; back": of(lambda c: 2 * sum(multiply_adds(c).values())),
    "multiply-adds for FLOPs": of(lambda c: sum(multiply_adds(c).values())),
    "the way back alone": of(lambda c: 4 * sum(multiply_adds(c).values())),
    "counts the way back already": of(lambda c: 6 * sum(training_multiply_adds(c).values())),
    "the share is left out": days(lambda c, n, e, p, s: s),
    "multiplied by the share": days(lambda c, n, e, p, s: s * s),
    "seconds, minutes or hours": [days(lambda *_: 86400), days(lambda *_: 24), days(lambda *_: 1440)],
    "24 * 60 * 60": [days(lambda *_: 1 / 24), days(lambda *_: 60)],
    "one epoch": lambda c, n, e, p, s: right_days(c, n, 1, p, s),
    "one image an epoch": lambda c, n, e, p, s: right_days(c, 1, e, p, s),
    "one token an image": days(lambda c, n, e, p, s: c.num_tokens**-1),
    "once a token": of(lambda c: 6 * sum(parameters(c).values())),
    "scores and mixing": of(lambda c: 6 * sum(parameters(c).values()) * c.num_tokens),
    "upside down": lambda *given: right_days(*given) ** -1,
    "over those that the GPU reaches in a day": days(lambda *_: 1.1),
    "fixed in your code": [
        lambda c, n, e, p, s: right_days(c, n, 300, p, s),
        lambda c, n, e, p, s: right_days(c, n, e, 989e12, s),
        lambda c, n, e, p, s: right_days(c, 1_281_167, e, p, s),
        lambda c, n, e, p, s: right_days(ViTConfig(), n, e, p, s),
    ],
    "90 epochs, 0.3 of": lambda c, n, e, p, s: right_days(c, n, e, p, 0.45),
    "gives nan": lambda *given: math.nan,
    "it should give a number of days":
        [lambda *given: f"{right_days(*given):.1f} days", lambda *given: (right_days(*given), "days")],
    "TypeError": lambda c, n, e, p: 1,
}  # fmt: skip
RIGHT = {
    "block_multiply_adds": BLOCK_RIGHT,
    "times_more": TIMES_RIGHT,
    "accumulate": ACCUMULATE_RIGHT,
    "combine": [combine_by_stack, combine_by_loop, combine_by_shares, combine_some],
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
