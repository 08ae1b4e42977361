"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import collections
import math
import random
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vit_helpers.checks.scaling import (
    check_accumulate,
    check_block_multiply_adds,
    check_combine,
    check_largest_batch,
    check_times_more,
    check_training_days,
)
from vit_helpers.scaling import (
    activations,
    multiply_adds,
    parameters,
    training_bytes,
    training_multiply_adds,
)
from vit_helpers.vit import ViTConfig


def not_written(*_):
    raise NotImplementedError("your turn: replace this line")


# block_multiply_adds


def block_by_hand(T, D, M):
    return {"qkv": 3 * T * D * D, "scores": T * T * D, "mixing": T * T * D, "output": T * D * D, "MLP": 2 * T * D * M}


def block_by_room(tokens, width, hidden):
    """A config whose model has as many tokens: a row of patches of one pixel"""
    config = ViTConfig((1, tokens), 1, 1, 0, width, 1, 1, hidden / width, class_token=False, pool="avg")
    return {part: n for part, n in multiply_adds(config).items() if part not in ("projection", "head")}


def block_by_numpy(T, D, M):
    T, D, M = (np.int64(x) for x in (T, D, M))
    return collections.OrderedDict(MLP=T * D * M * 2, output=T * D**2, mixing=T**2 * D, scores=T**2 * D, qkv=T * D**2 * 3)


def block_by_heads(T, D, M, h=12):
    d = D // h
    return block_by_hand(T, D, M) | {"scores": h * T * T * d, "mixing": h * T * d * T}


BLOCK_RIGHT = [
    block_by_hand,
    block_by_room,
    block_by_numpy,
    block_by_heads,
    lambda T, D, M: {part: float(n) for part, n in block_by_hand(T, D, M).items()},
    lambda T, D, M: {part: torch.tensor(n) for part, n in block_by_hand(T, D, M).items()},
    lambda T, D, M: (
        {part: T * w for part, w in {"qkv": 3 * D**2, "scores": T * D, "mixing": T * D}.items()}
        | {"output": T * D**2, "MLP": T * M * 2 * D}
    ),
]


def block(**parts):
    """The right answer with some parts replaced"""
    return lambda T, D, M: block_by_hand(T, D, M) | {part: rule(T, D, M) for part, rule in parts.items()}


def one_block(count):
    return lambda T, D, M: {part: count(n) for part, n in block_by_hand(T, D, M).items()}


BLOCK_WRONG = [
    (one_block(lambda n: 2 * n), "FLOPs"),
    (block(qkv=lambda T, D, M: T * D * D), "one map or two of three"),
    (block(qkv=lambda T, D, M: 2 * T * D * D), "one map or two of three"),
    (block(qkv=lambda T, D, M: 3 * D * D), '"qkv" for T = 197.*T is missing'),
    (block(qkv=lambda T, D, M: 3 * (D + 1) * D), "these are the learned weights"),
    (block(qkv=lambda T, D, M: 3 * T * (D + 1) * D), "biases"),
    (block(qkv=lambda T, D, M: 3 * T * T * D * D), "not squared"),
    (block(output=lambda T, D, M: T * (D + 1) * D), '"output".*biases'),
    (block(output=lambda T, D, M: 3 * T * D * D), "puts the heads together"),
    (block(output=lambda T, D, M: D * D), '"output".*T is missing'),
    (block(output=lambda T, D, M: T * D), '"output" for .* it should give 116,195,328$'),
    (block(MLP=lambda T, D, M: T * D * M), "one matrix of two"),
    (block(MLP=lambda T, D, M: 8 * T * D * D), "M is taken as 4 D"),
    (block(MLP=lambda T, D, M: T * (D * M + M * M)), "a matrix of M x M"),
    (block(MLP=lambda T, D, M: 2 * T * D * D), "a matrix of M x M or D x D"),
    (block(MLP=lambda T, D, M: T * (2 * D * M + M + D)), "biases"),
    (block(MLP=lambda T, D, M: 2 * D * M + M + D), "T is missing"),
    (block(MLP=lambda T, D, M: T * (2 * D * M + M)), "GELU"),
    (block(scores=lambda T, D, M: T * D), "T is missing once"),
    (block(scores=lambda T, D, M: T * D * D), "T and D are swapped"),
    (block(scores=lambda T, D, M: T * T), "these are the pairs"),
    (block(scores=lambda T, D, M: 12 * T * T * D), "number of heads changes nothing"),
    (block(scores=lambda T, D, M: T * T * 64), "number of heads changes nothing"),
    (block(scores=lambda T, D, M: T * T * (D + 3)), "softmax"),
    (block(scores=lambda T, D, M: 2 * T * T * D, mixing=lambda T, D, M: 0), '"scores".*FLOPs'),
    (block(scores=lambda T, D, M: T * (T + 1) // 2 * D), "both directions"),
    (block(mixing=lambda T, D, M: T * D), '"mixing".*T is missing once'),
    (block(mixing=lambda T, D, M: 16 * T * T * D), '"mixing".*number of heads'),
    (block(mixing=lambda T, D, M: T * D * D), '"mixing".*swapped'),
    (lambda T, D, M: block_by_hand(197, D, M), r'"qkv" for T = 50'),
    (lambda T, D, M: block_by_hand(T, 768, M), r'"qkv" for T = 50'),
    (lambda T, D, M: sum(block_by_hand(T, D, M).values()), "it should give a dictionary"),
    (lambda T, D, M: list(block_by_hand(T, D, M).values()), "it should give a dictionary"),
    (lambda T, D, M: block_by_hand(T, D, M).items(), "it should give a dictionary"),
    (lambda T, D, M: {k.lower(): n for k, n in block_by_hand(T, D, M).items()}, "lacks MLP.*'mlp'"),
    (lambda T, D, M: {"qkv": 3 * T * D * D}, "lacks scores, mixing, output, MLP"),
    (block(total=lambda T, D, M: 1), "'total'.*none of the five"),
    (block(MLP=lambda T, D, M: "many"), '"MLP".*it should give a number'),
    (block(MLP=lambda T, D, M: None), 'nothing back as "MLP"'),
    (block(MLP=lambda T, D, M: [T * D * M, T * M * D]), "it should give a number"),
    (lambda T, D: {}, "TypeError"),
]

# times_more


def times_by_room(config, factor):
    H, W = config.image_size
    big = replace(config, image_size=(factor * H, factor * W))
    return sum(multiply_adds(big).values()) / sum(multiply_adds(config).values())


def times_by_parts(config, factor):
    """Scores and mixing grow with T * T, the projection with the patches, the head not at all, the rest with T"""
    now, old = multiply_adds(config), config.num_tokens
    grows = ((old - config.class_token) * factor**2 + config.class_token) / old
    power = dict.fromkeys(now, grows) | {"scores": grows**2, "mixing": grows**2, "projection": factor**2, "head": 1}
    return sum(power[part] * n for part, n in now.items()) / sum(now.values())


TIMES_RIGHT = [
    times_by_room,
    times_by_parts,
    lambda config, factor: np.float64(times_by_room(config, factor)),
    lambda config, factor: torch.tensor(times_by_room(config, factor)),
    lambda model, by: times_by_room(replace(model, dropout=0.1), int(by)),
]


def cost(config, count=multiply_adds, **changes):
    return sum(count(replace(config, **changes)).values())


def size(config, factor):
    return tuple(factor * side for side in config.image_size)


def times_frozen(config, factor):
    before = cost(config)
    config.image_size = size(config, factor)
    return cost(config) / before


def times_forced(config, factor):
    before = cost(config)
    object.__setattr__(config, "image_size", size(config, factor))
    return cost(config) / before


def times_without(config, factor):
    config = replace(config, class_token=False, pool="avg")
    return times_by_room(config, factor)


TIMES_WRONG = [
    (lambda c, f: f**2, "the tokens grow like that.*T \\* T"),
    (lambda c, f: f**4, "scores and mixing alone"),
    (lambda c, f: (f**2 + f**4) / 2, "no halves"),
    (lambda c, f: 1, "as many as before"),
    (lambda c, f: cost(c, image_size=size(c, f), patch_size=f * c.patch_size) / cost(c), "patches grew with the image"),
    (lambda c, f: cost(c, patch_size=c.patch_size // f) / cost(c), "patches become smaller"),
    (lambda c, f: f, "the factor itself"),
    (lambda c, f: cost(c, image_size=(f * c.image_size[0], c.image_size[1])) / cost(c), "one side grew"),
    (lambda c, f: cost(c, image_size=(c.image_size[0], f * c.image_size[1])) / cost(c), "one side grew"),
    (lambda c, f: 1 / times_by_room(c, f), "upside down"),
    (lambda c, f: times_by_room(c, f) - 1, "what is added"),
    (lambda c, f: cost(c, image_size=size(c, f)) - cost(c), "what is added"),
    (lambda c, f: cost(c, image_size=size(c, f)), "the cost itself"),
    (lambda c, f: replace(c, image_size=size(c, f)).num_tokens / c.num_tokens, "the tokens grow like that"),
    (lambda c, f: (replace(c, image_size=size(c, f)).num_tokens / c.num_tokens) ** 2, "scores and mixing alone"),
    (times_without, "the class token is left out"),
    (lambda c, f: cost(c, parameters, image_size=size(c, f)) / cost(c, parameters), "parameters"),
    (lambda c, f: cost(c, training_multiply_adds, image_size=size(c, f)) / cost(c, training_multiply_adds), "way back"),
    (lambda c, f: cost(c, image_size=f * c.image_size[0]) / cost(c), r"24 x 40.*a pair \(H, W\)"),
    (lambda c, f: cost(c, image_size=f * c.image_size[1]) / cost(c), r"24 x 40.*a pair \(H, W\)"),
    (lambda c, f: cost(c, image_size=f * c.image_size) / cost(c), "Multiply each side"),
    (lambda c, f: round(times_by_room(c, f), 2), "leave the rounding"),
    (lambda c, f: times_by_room(c, 2), "for factor 3.*fixed in your code"),
    (lambda c, f: times_by_room(ViTConfig(), f), "for factor 2 and 2 blocks"),
    (times_frozen, "dataclasses.replace"),
    (times_forced, "changes what it was given"),
    (lambda c, f: multiply_adds(replace(c, image_size=size(c, f))), "it should give a number of times"),
    (lambda c, f: f"{times_by_room(c, f):.2f}", "it should give a number of times"),
    (lambda c, f: 1 / 0, "ZeroDivisionError"),
]

# accumulate


def accumulate_weighed(model, images, labels, parts):
    model.zero_grad()
    total = 0.0
    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        loss = F.cross_entropy(model(x), y) * len(y) / len(labels)
        loss.backward()
        total += loss.item()
    return total


def accumulate_sums(net, pictures, classes, pieces):
    for p in net.parameters():
        p.grad = None
    net.train()
    losses = []
    for i in torch.arange(len(classes)).chunk(pieces):
        losses.append(F.cross_entropy(net(pictures[i]), classes[i], reduction="sum") / len(classes))
        losses[-1].backward()
    return torch.stack(losses).sum().detach()


def accumulate_scaled(model, images, labels, parts):
    """Sums first, and the gradient divided in the end"""
    model.zero_grad(set_to_none=False)
    total = 0
    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        loss = -model(x).log_softmax(dim=1)[torch.arange(len(y)), y].sum()
        loss.backward()
        total = total + loss
    for p in model.parameters():
        p.grad /= len(labels)
    return total / len(labels)


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
    batches = torch.utils.data.TensorDataset(images, labels)
    model.zero_grad()
    total = 0
    for x, y in torch.utils.data.DataLoader(batches, batch_size=math.ceil(len(images) / parts)):
        loss = F.cross_entropy(model.forward(x), y, reduction="sum").div(len(labels))
        loss.backward()
        total += loss.detach()
    return total


def accumulate_mixed(model, images, labels, parts):
    """In another order, and in smaller parts where it does not come out even"""
    order = torch.randperm(len(labels))
    images, labels, parts, total = images[order], labels[order], images[order].split(len(labels) // parts), []
    model.zero_grad()
    for x in parts:
        y, labels = labels[: len(x)], labels[len(x) :]
        total.append(F.cross_entropy(model(x), y, reduction="sum") / len(order))
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


ACCUMULATE_RIGHT = [
    accumulate_weighed,
    accumulate_sums,
    accumulate_scaled,
    accumulate_by_torch,
    accumulate_loader,
    accumulate_mixed,
    accumulate_func,
]


def accumulate(  # the right answer, and every way to leave it
    zero="before", weigh=lambda y, labels, parts: len(y) / len(labels), split=None, inside=None, after=None, give=None,
    backward=True, retain=False,
):  # fmt: skip
    def answer(model, images, labels, parts):
        if zero == "before":
            model.zero_grad()
        losses, pieces = [], list(zip(images.chunk(parts), labels.chunk(parts), strict=True))
        for x, y in split(pieces) if split else pieces:
            if zero == "inside":
                model.zero_grad()
            losses.append(F.cross_entropy(model(x), y) * weigh(y, labels, parts))
            if backward:
                losses[-1].backward(retain_graph=retain)
            if inside:
                inside(model, losses)
        total = sum(losses) if retain or not backward else sum(loss.item() for loss in losses)
        if not backward:
            total.backward()
        if after:
            after(model, losses)
        return give(losses, labels, parts) if give else torch.as_tensor(total).item()

    return answer


def step(model, losses):
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def means(count):
    """Gives a loss from the mean losses of the parts"""

    def give(losses, labels, parts):
        sizes = [len(y) for y in labels.chunk(parts)]
        return count([loss.item() * len(labels) / n for loss, n in zip(losses, sizes, strict=True)], sizes, parts)

    return give


def weighed(numbers, sizes):
    return sum(x * n for x, n in zip(numbers, sizes, strict=True))


def whole_batch(model, images, labels, parts):
    model.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.item()


def zero_by_hand(model, images, labels, parts):
    for p in model.parameters():
        p.grad.zero_()
    return accumulate_weighed(model, images, labels, parts)


def loss_anew(model, images, labels, parts):
    """The loss of everything in a pass of its own"""
    accumulate_weighed(model, images, labels, parts)
    with torch.no_grad():
        return sum(F.cross_entropy(model(x), y, reduction="sum").item() for x, y in
                   zip(images.chunk(parts), labels.chunk(parts), strict=True)) / len(labels)  # fmt: skip


def one_by_one(model, images, labels, parts):
    return accumulate_weighed(model, images, labels, len(images))


def in_halves(model, images, labels, parts):
    return accumulate_weighed(model, images, labels, min(2, parts))


def no_gradients(model, images, labels, parts):
    model.zero_grad()
    with torch.no_grad():
        return F.cross_entropy(model(images), labels).item()


def first_return(model, images, labels, parts):
    model.zero_grad()
    for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
        loss = F.cross_entropy(model(x), y) * len(y) / len(labels)
        loss.backward()
        return loss.item()


def labels_whole(model, images, labels, parts):
    for x in images.chunk(parts):
        F.cross_entropy(model(x), labels[: len(x)]).div(parts).backward()
    return 0.0


def images_in_place(model, images, labels, parts):
    images -= images.mean()
    return accumulate_weighed(model, images, labels, parts)


def in_evaluation(model, images, labels, parts):
    model.eval()
    result = accumulate_weighed(model, images, labels, parts)
    model.train()
    return result


def undivided(*_):
    return 1


ACCUMULATE_WRONG = [
    (accumulate(weigh=undivided), "adds up the means of 4 parts.*4 times too long"),
    (accumulate(weigh=lambda y, labels, parts: 1 / parts), "weighs all parts alike, though they hold .3, 3, 3, 1"),
    (accumulate(weigh=lambda y, labels, parts: 1 / len(labels)), "0.333 times what it should be"),
    (accumulate(weigh=lambda y, labels, parts: 1 / len(y)), "1.33 times what it should be"),
    (accumulate(weigh=lambda y, labels, parts: len(y)), "12 times what it should be"),
    (accumulate(weigh=lambda y, labels, parts: 1 / len(labels.chunk(parts))), "weighs all parts alike"),
    (accumulate(weigh=lambda y, labels, parts: 1 / parts if len(labels) == 9 else len(y) / len(labels)),
     "divides by 4, though chunk made 3 parts"),
    (accumulate(zero="inside"), "only the last part is in .grad"),
    (accumulate(zero="inside", weigh=undivided), "only the last part is in .grad"),
    (first_return, "only the first part is in .grad"),
    (accumulate(zero="never"), "an earlier batch's gradient is still in .grad"),
    (accumulate(zero="never", weigh=undivided), "times too long"),
    (whole_batch, "all 12 images at once"),
    (in_halves, "passes the model 6 images at once"),
    (one_by_one, "parts smaller than asked"),
    (loss_anew, "each once is enough"),
    (accumulate(backward=False), "memory holds all parts"),
    (accumulate(retain=True), "without retain_graph"),
    (accumulate(inside=step), "moves the weights"),
    (accumulate(after=step), "moves the weights"),
    (accumulate(after=lambda model, losses: model.zero_grad()), "leaves no gradient in .grad"),
    (accumulate(after=lambda model, losses: model.zero_grad(set_to_none=False)), "leaves zeros"),
    (no_gradients, "leaves no gradient in .grad"),
    (zero_by_hand, "a fresh model's .grad is None"),
    (accumulate(split=lambda pieces: pieces[:-1] or pieces), "the last part is missing"),
    (accumulate(split=lambda pieces: [p for p in pieces if len(p[1]) > 1]), "the last part is missing"),
    (accumulate(split=lambda pieces: zip([x for x, _ in pieces], [y for _, y in pieces[::-1]], strict=True)),
     "has each part its own labels|Expected input batch_size"),
    (labels_whole, "has each part its own labels"),
    (accumulate(give=lambda losses, labels, parts: losses[-1].item()), "one part's share"),
    (accumulate(give=means(lambda means, sizes, parts: means[-1])), "one part's share"),
    (accumulate(give=means(lambda means, sizes, parts: sum(means))), "sum of the parts' means"),
    (accumulate(give=means(lambda means, sizes, parts: sum(means) / parts)), "weighs all parts alike"),
    (accumulate(give=means(lambda means, sizes, parts: weighed(means, sizes))), "sum over images"),
    (accumulate(give=means(lambda means, sizes, parts: weighed(means, sizes) / sum(sizes) / parts)), "divided twice"),
    (accumulate(give=lambda *_: None), "gives nothing back"),
    (accumulate(give=lambda *_: "done"), "it should give the mean loss"),
    (accumulate(give=lambda losses, *_: losses), "it should give the mean loss"),
    (accumulate(after=lambda model, losses: model.eval()), "leaves the model in evaluation mode"),
    (in_evaluation, "passes the model in evaluation mode"),
    (images_in_place, "changes what it was given"),
    (lambda *_: None, "never calls the model"),
    (lambda model, images, labels: 0.0, "TypeError"),
]  # fmt: skip

# combine


def combine_by_stack(gradients, counts):
    weights = torch.tensor(counts) / sum(counts)
    return torch.tensordot(weights, torch.stack(gradients), dims=1)


def combine_by_loop(grads, numbers):
    total = torch.zeros_like(grads[0])
    for g, n in zip(grads, numbers, strict=True):
        total += n * g
    return total / sum(numbers)


def combine_by_numpy(gradients, counts):
    return torch.from_numpy(np.average(np.stack(gradients), axis=0, weights=counts))


def combine_by_shares(gradients, counts):
    """Each process shrinks its own gradient first, and then all are averaged, as DDP does"""
    own = [g * (n * len(counts) / sum(counts)) for g, n in zip(gradients, counts, strict=True)]
    return torch.stack(own).mean(dim=0)


def combine_some(gradients, counts):
    some = [(g, n) for g, n in zip(gradients, counts, strict=True) if n]
    return sum(g * n for g, n in some).div(sum(n for _, n in some))


COMBINE_RIGHT = [combine_by_stack, combine_by_loop, combine_by_numpy, combine_by_shares, combine_some]


def combine_in_place(gradients, counts):
    for g, n in zip(gradients, counts, strict=True):
        g *= n / sum(counts)
    return sum(gradients)


def combine_popping(gradients, counts):
    total = sum(counts)
    return sum(gradients.pop() * counts.pop() for _ in range(len(gradients))) / total


def products(gradients, counts):
    return sum(n * g for g, n in zip(gradients, counts, strict=True))


COMBINE_WRONG = [
    (lambda gs, ns: sum(gs) / len(gs), "the plain mean"),
    (lambda gs, ns: sum(gs) / sum(n > 0 for n in ns), "the plain mean"),
    (lambda gs, ns: torch.stack(gs).mean(0), "the plain mean"),
    (lambda gs, ns: torch.stack(gs).mean(), r"shape \(\)"),
    (lambda gs, ns: sum(gs), "adds the gradients up"),
    (lambda gs, ns: products(gs, ns) / len(ns), "divides by the number of processes"),
    (products, "does not divide"),
    (lambda gs, ns: products(gs, ns) / max(ns), "divides by the largest"),
    (lambda gs, ns: products(gs, ns) / sum(ns) / len(ns), "divides twice"),
    (lambda gs, ns: sum(g / n for g, n in zip(gs, ns, strict=True)), "each gradient is a mean already"),
    (lambda gs, ns: sum(gs) / sum(ns), "each gradient is a mean already"),
    (lambda gs, ns: products(gs, ns) / torch.tensor(ns).float().mean(), "adds the|other numbers"),
    (lambda gs, ns: sum(g * n / sum(ns) * (n / n) for g, n in zip(gs, ns, strict=True)), "ZeroDivisionError"),
    (lambda gs, ns: sum(g * n / sum(ns) / torch.tensor(n / 1) * n for g, n in zip(gs, ns, strict=True)), "not finite"),
    (lambda gs, ns: products(gs, ns[::-1]) / sum(ns), "weight of another"),
    (lambda gs, ns: sum(g * (n // sum(ns)) for g, n in zip(gs, ns, strict=True)), "gives zeros"),
    (lambda gs, ns: products(gs[:2], ns[:2]) / sum(ns[:2]), "two processes only"),
    (lambda gs, ns: (ns[0] * gs[0] + ns[1] * gs[1]) / sum(ns), "two processes only"),
    (lambda gs, ns: gs[0], "gradient of one process"),
    (lambda gs, ns: gs[ns.index(max(ns))], "gradient of one process"),
    (lambda gs, ns: torch.stack(gs).median(0).values, "other numbers"),
    (lambda gs, ns: [g * n / sum(ns) for g, n in zip(gs, ns, strict=True)], "one gradient for all"),
    (lambda gs, ns: torch.stack([g * n / sum(ns) for g, n in zip(gs, ns, strict=True)]), "it should give"),
    (lambda gs, ns: (products(gs, ns) / sum(ns)).flatten().tolist(), "one gradient for all"),
    (lambda gs, ns: (products(gs, ns) / sum(ns)).numpy(), "it should give a tensor"),
    (lambda gs, ns: float((products(gs, ns) / sum(ns)).sum()), "it should give a tensor"),
    (combine_in_place, "changes what it was given"),
    (combine_popping, "changes what it was given"),
    (lambda gs, ns: "gradient", "it should give a tensor"),
    (lambda gs: gs, "TypeError"),
]  # fmt: skip

# largest_batch


def batch_by_formula(config, gibibytes):
    once = sum(training_bytes(config, 0).values())
    each = training_bytes(config, 1)["activations"]
    return int(max(0, (gibibytes * 2**30 - once) // each))


def batch_by_loop(config, memory):
    batch = 0
    while sum(training_bytes(config, batch + 1).values()) <= memory * 1024**3:
        batch += 1
    return batch


def batch_by_halves(config, gibibytes):
    low, high = 0, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        enough = sum(training_bytes(config, middle).values()) <= gibibytes * 2**30
        low, high = (middle, high) if enough else (low, middle)
    return low


def batch_by_parts(config, gibibytes):
    room = gibibytes * 2**30 - 16 * sum(parameters(config).values())
    return max(0, math.floor(room / (4 * sum(activations(config).values()))))


BATCH_RIGHT = [
    batch_by_formula,
    batch_by_loop,
    batch_by_halves,
    batch_by_parts,
    lambda config, gibibytes: float(batch_by_formula(config, gibibytes)),
    lambda config, gibibytes: np.int64(batch_by_formula(config, gibibytes)),
    lambda config, gibibytes: torch.tensor(batch_by_formula(config, gibibytes)),
]


def batch(copies=4, room=lambda g: g * 2**30, own=0, count=math.floor, least=0, **how):
    """The formula with something changed; own: numbers a parameter that are counted for every image"""

    def answer(config, gibibytes):
        needs = training_bytes(config, 1, **how)
        left = room(gibibytes) - copies * needs["weights"]
        return max(least, count(left / (needs["activations"] + own * needs["weights"])))

    return answer


def batch_too_late(config, gibibytes):
    batch = 0
    while sum(training_bytes(config, batch).values()) <= gibibytes * 2**30:
        batch += 1
    return batch


def batch_strict(config, gibibytes):
    batch = 0
    while sum(training_bytes(config, batch + 1).values()) < gibibytes * 2**30:
        batch += 1
    return batch


def batch_doubled(config, gibibytes):
    batch = 1
    while sum(training_bytes(config, 2 * batch).values()) <= gibibytes * 2**30:
        batch *= 2
    return batch


BATCH_WRONG = [
    (batch(room=lambda g: g * 1e9), r"2\*\*30"),
    (batch(room=lambda g: g * 1000 * 2**20), "it should give 206$"),
    (batch(count=math.ceil), "one too many"),
    (batch(count=round), "one too many|not even one"),
    (batch_too_late, "one too many"),
    (batch_strict, "one too few.*<="),
    (batch(copies=2), "not all four numbers"),
    (batch(copies=3), "not all four numbers"),
    (batch(copies=3, optimizer="sgd"), "not all four numbers"),
    (batch(copies=1), "not all four numbers"),
    (batch(copies=0), "activations alone"),
    (batch(copies=0, own=4), "counted for every image"),
    (batch(copies=3, own=1), "counted for every image"),
    (batch(copies=2, own=2), "counted for every image"),
    (batch(least=-math.inf), "That is 0 images"),
    (batch(least=1), "where not even one image fits"),
    (lambda c, g: abs(batch(least=-math.inf)(c, g)), "where not even one image fits"),
    (batch(count=float), "images are whole"),
    (batch(count=lambda x: round(x, 1)), "images are whole"),
    (batch_doubled, "power of two"),
    (batch(fused=False), "fused=False"),
    (batch(room=lambda g: g * 2**28), "bytes already"),
    (batch(count=lambda x: math.floor(x) // 8 * 8), "it should give 206$"),
    (lambda c, g: batch_by_formula(ViTConfig(), g), "blocks of width 384"),
    (lambda c, g: batch_by_formula(c, 24), "8 GiB.*fixed in your code"),
    (lambda c, g: math.inf, "images are whole"),
    (lambda c, g: training_bytes(c, batch_by_formula(c, g)), "it should give a number of images"),
    (lambda c, g: f"{batch_by_formula(c, g)} images", "it should give a number of images"),
    (lambda c, g: sum(training_bytes(c, 1)) // g, "adds up its keys"),
]

# training_days


def days_by_room(config, images, epochs, peak, share):
    flops = 2 * sum(training_multiply_adds(config).values()) * images * epochs
    return flops / (peak * share) / (24 * 60 * 60)


def days_by_three(config, images, epochs, peak, share):
    """Back costs twice as much as forward"""
    seconds_of_epoch = images * 6 * sum(multiply_adds(config).values()) / (share * peak)
    return epochs * seconds_of_epoch / 86400


def days(times):
    """The right number, times something that depends on all that was given"""
    return lambda *given: days_by_room(*given) * times(*given)


DAYS_RIGHT = [
    days_by_room,
    days_by_three,
    days(lambda *_: 1.01),
    lambda *given: torch.tensor(days_by_room(*given)),
    lambda *given: np.float32(days_by_room(*given)),
    lambda c, n, e, p, s: 2 * n * e * sum(training_multiply_adds(c, fused=False).values()) / p / s / 86400,
    lambda c, n, e, p, s: math.prod([2, n, e, 1 / p, 1 / s, 1 / 86400]) * sum(training_multiply_adds(c, False).values()),
]
DAYS_WRONG = [
    (days(lambda *_: 1 / 2), "multiply-adds over a peak in FLOPs"),
    (days(lambda *_: 2), "twice too many"),
    (lambda c, n, e, p, s: 2 * n * e * sum(multiply_adds(c).values()) / p / s / 86400, "the way forward alone"),
    (lambda c, n, e, p, s: n * e * sum(multiply_adds(c).values()) / p / s / 86400, "multiply-adds for FLOPs"),
    (days(lambda *_: 2 / 3), "the way back alone"),
    (days(lambda *_: 3), "counts the way back already"),
    (days(lambda c, n, e, p, s: s), "the share is left out"),
    (days(lambda c, n, e, p, s: s**2), "multiplied by the share"),
    (days(lambda *_: 86400), "seconds, minutes or hours"),
    (days(lambda *_: 24), "seconds, minutes or hours"),
    (days(lambda *_: 1440), "seconds, minutes or hours"),
    (days(lambda *_: 1 / 24), "24 . 60 . 60"),
    (days(lambda *_: 60), "24 . 60 . 60"),
    (days(lambda c, n, e, p, s: 1 / e), "one epoch"),
    (days(lambda c, n, e, p, s: 1 / n), "one image an epoch"),
    (lambda c, n, e, p, s: 6 * sum(parameters(c).values()) * n * e / p / s / 86400, "once a token"),
    (days(lambda c, n, e, p, s: 1 / c.num_tokens), "once a token"),
    (lambda c, n, e, p, s: 6 * sum(parameters(c).values()) * c.num_tokens * n * e / p / s / 86400, "scores and mixing"),
    (lambda *given: 1 / days_by_room(*given), "upside down"),
    (days(lambda *_: 1.1), "it should give 1.0582$"),
    (lambda c, n, e, p, s: days_by_room(c, n, 300, p, s), "90 epochs"),
    (lambda c, n, e, p, s: days_by_room(c, n, e, 989e12, s), "3.12e.14"),
    (lambda c, n, e, p, s: days_by_room(c, n, e, p, 0.45), "90 epochs, 0.3 of"),
    (lambda c, n, e, p, s: days_by_room(c, 1_281_167, e, p, s), "14,000,000 images"),
    (lambda c, n, e, p, s: days_by_room(ViTConfig(), n, e, p, s), "blocks of width 384"),
    (lambda *given: math.nan, "gives nan"),
    (lambda *given: f"{days_by_room(*given):.1f} days", "it should give a number of days"),
    (lambda *given: (days_by_room(*given), "days"), "it should give a number of days"),
    (lambda c, n, e, p: 1, "TypeError"),
]


def spoil(*given):
    """Write into a config, a list, or images"""
    if isinstance(given[0], torch.nn.Module):
        given[1].zero_()
    elif isinstance(given[0], list):
        given[0][0].zero_()
    else:
        object.__setattr__(given[0], "depth", 1)


SUSPECTS = [  # what any right answer may do beside
    (lambda *_: torch.manual_seed(0), "sets a seed for everybody"),
    (lambda *_: np.random.seed(0), "sets a seed for everybody"),
    (lambda *_: random.seed(0), "sets a seed for everybody"),
    (lambda *_: torch.set_grad_enabled(False), "leaves gradients switched off"),
    (spoil, "changes what it was given|AttributeError"),  # whole numbers cannot be changed
    (lambda *given: given[len(given)], "IndexError"),
    (lambda *_: sys.exit(), "SystemExit"),
]
MUSEUM = {
    check_block_multiply_adds: (BLOCK_RIGHT, BLOCK_WRONG),
    check_times_more: (TIMES_RIGHT, TIMES_WRONG),
    check_accumulate: (ACCUMULATE_RIGHT, ACCUMULATE_WRONG),
    check_combine: (COMBINE_RIGHT, COMBINE_WRONG),
    check_largest_batch: (BATCH_RIGHT, BATCH_WRONG),
    check_training_days: (DAYS_RIGHT, DAYS_WRONG),
}
RIGHT = [(check, answer) for check, (right, _) in MUSEUM.items() for answer in right]
WRONG = [(check, *pair) for check, (_, wrong) in MUSEUM.items() for pair in wrong]


def lines_of(capsys):
    """What a check printed, without what the answer printed"""
    return [line for line in capsys.readouterr().out.splitlines() if re.match(r"\[[ xv]\] \w+: ", line)]


@pytest.fixture(autouse=True)
def no_trace():
    """A check leaves random generators and modes as they were"""

    def state():
        numpy = np.random.get_state()[1].tolist()
        return torch.get_rng_state().tolist(), numpy, random.getstate(), torch.is_grad_enabled(), torch.get_default_dtype()

    before = state()
    yield
    assert state() == before


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = lines_of(capsys)
    assert len(lines) == (5 if check is check_accumulate else 3) and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = lines_of(capsys)
    assert last.startswith("[x]") and re.search(says, last), last
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("check", MUSEUM)
@pytest.mark.parametrize(("beside", "says"), SUSPECTS)
def test_right_answers_that_do_more_are_refused(check, beside, says, capsys):
    def answer(*given):
        result = MUSEUM[check][0][0](*given)
        beside(*given)
        return result

    assert check(answer) is False
    assert re.search(says, lines_of(capsys)[-1])


@pytest.mark.parametrize("check", MUSEUM)
@pytest.mark.parametrize(
    "written", [lambda result: print(result), lambda result: "text", lambda result: {}, lambda result: ()]
)
def test_answers_that_give_back_something_else(check, written, capsys):
    assert check(lambda *given: written(MUSEUM[check][0][0](*given))) is False
    last = lines_of(capsys)[-1]
    assert re.search("gives nothing back|it should give|lacks", last), last


@pytest.mark.parametrize("check", MUSEUM)
def test_not_written_yet(check, capsys):
    assert check(not_written) is False
    name = check.__name__.removeprefix("check_")
    assert capsys.readouterr().out == f"[ ] {name}: not written yet\n"


@pytest.mark.parametrize("check", MUSEUM)
@pytest.mark.parametrize("thing", [None, 3, "text", torch.ones(2)])
def test_what_is_no_function_is_refused(check, thing, capsys):
    assert check(thing) is False and "without brackets" in capsys.readouterr().out
