"""Marks for the exercises of notebook 11."""

import copy
import math
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.checks import marks
from vit_helpers.checks.data import GLOBALS, mark_all
from vit_helpers.checks.marks import expect_tensor, slip
from vit_helpers.checks.training import as_number, leave_gradients, plain
from vit_helpers.scaling import multiply_adds, parameters, training_bytes, training_multiply_adds
from vit_helpers.vit import ViTConfig

# What the checks share

B16, S16, L16 = (ViTConfig.from_name(name) for name in ("B/16", "S/16", "L/16"))
SMALL = ViTConfig((24, 40), 4, 3, 10, 64, 2, 4)
AVERAGED = ViTConfig(32, 4, 1, 10, 96, 3, 3, mlp_ratio=2, class_token=False, pool="avg")
SEED = 496_8128  # one that no answer sets
HINTS = {  # what an error's message holds, and the way out
    "cannot assign to field": "a config is frozen. dataclasses.replace(config, ...) makes a new one",
    "an image size is": "image_size is a pair, and (H, W) * 2 is (H, W, H, W). Multiply each side",
    "'int' and 'str'": "sum() of a dictionary adds up its keys. sum(... .values()) is meant",
}


def call(answer, *given):
    """What an answer gives back; Slip when it leaves a trace: in what it was given, in seeds, in torch's modes"""
    torch.manual_seed(SEED)
    copies, before = copy.deepcopy(given), seeds()
    try:
        got = answer(*copies)
    except (FrozenInstanceError, TypeError) as error:
        for fragment, words in HINTS.items():
            slip(fragment in str(error), f"{marks.raised(error)}: {words}")
        raise
    slip(not alike(copies, given), "changes what it was given; make a new tensor, list or config")
    slip(seeds() != before, "sets a seed for everybody, torch's, numpy's or Python's; nothing here needs one")
    slip(not torch.is_grad_enabled(), "leaves gradients switched off for whoever comes next")
    return got


def seeds():
    """torch's seed, which drawing leaves as it is (a DataLoader draws), and numpy's and Python's generators"""
    return torch.initial_seed(), *(GLOBALS[name][0]() for name in ("numpy's", "Python's"))


def alike(one, two):
    """Whether things are the same, also tensors, and what lists hold of them"""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(alike, one, two))
    return one == two


def near(got, wanted, tolerance=1e-5):
    return math.isclose(got, wanted, rel_tol=tolerance)


def expect_number(got, wanted, slips, when, tolerance=1e-5, first=True):
    """Slip unless the number is right, with the words of the first mistake that gives it.

    slips: (words, number, ...);  first: False where an earlier try was right
    """
    if not near(got, wanted, tolerance):
        found = [f": {words}" for words, *made in slips if any(near(got, number, tolerance) for number in made)]
        found += [] if first else [". An earlier try was right: is a number, or a config, fixed in your code?"]
        slip(True, f"gives {tell(got)} {when}; it should give {tell(wanted)}" + "".join(found[:1]))


def tell(number):
    """A number for the reader: whole ones in full"""
    return f"{number:,.0f}" if float(number).is_integer() and abs(number) < 1e15 else f"{number:,.5g}"


def named(config):
    """A config in a few words"""
    H, W = config.image_size
    return f"{config.depth} blocks of width {config.embed_dim}, {H} x {W} pixels in patches of {config.patch_size}"


# One block

BLOCKS = [(197, 768, 3072), (50, 192, 1000), (17, 384, 384), (1, 768, 128)]  # T, D, M; D splits into many numbers of heads
FLOPS = "these are FLOPs: a multiply-add is one product and one sum, so there are half as many"
BIASES = "biases are counted; they are sums without a product"


def right_parts(T, D, M):
    """Multiply-adds of one block"""
    return {"qkv": T * D * 3 * D, "scores": T * T * D, "mixing": T * T * D, "output": T * D * D, "MLP": 2 * T * D * M}


def check_block_multiply_adds(answer):
    """Mark a function (T, D, M) -> the multiply-adds of one encoder block, {"qkv", "scores", "mixing", "output", "MLP"}."""
    ideas = [
        ("a dictionary with a number for each of the five parts", lambda a: [counted(a, *sizes) for sizes in BLOCKS]),
        ("qkv, output and MLP: each token through matrices", lambda a: expect_parts(a, "qkv", "output", "MLP")),
        ("scores and mixing: every token with every token", lambda a: expect_parts(a, "scores", "mixing")),
    ]
    return mark_all("block_multiply_adds", answer, ideas)


def counted(answer, T, D, M):
    """The five numbers of an answer, and for which sizes"""
    when = f"for T = {T}, D = {D}, M = {M}"
    got, right = call(answer, T, D, M), right_parts(T, D, M)
    wanted = ", ".join(f'"{part}"' for part in right)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    words = f"it should give a dictionary of {wanted}: one by one they show what grows with T"
    slip(not isinstance(got, Mapping), f"gives {marks.short(got)} {when}; {words}")
    missing = [part for part in right if part not in got]
    extra = ", ".join(marks.short(key) for key in got if key not in right)
    slip(missing, f"lacks {', '.join(missing)} (it has also: {extra or 'nothing else'}); the keys are {wanted}")
    slip(extra, f"has {extra}, which is none of the five: {wanted}")
    return {part: as_number(got[part], f'as "{part}" {when}') for part in right}, when


def expect_parts(answer, *parts):
    """Slip unless these parts are right at every size"""
    for T, D, M in BLOCKS:
        got, when = counted(answer, T, D, M)
        for part in parts:
            n = right_parts(T, D, M)[part]
            slips = pair_slips(n, T, D) if part in ("scores", "mixing") else token_slips(part, n, T, D, M)
            expect_number(got[part], n, slips, f'as "{part}" {when}', 1e-6, BLOCKS.index((T, D, M)) == 0)


def token_slips(part, n, T, D, M):
    """Mistakes with a part that takes every token by itself, and the numbers that follow"""
    own = {
        "qkv": [
            ("one map or two of three: queries, keys and values have one each", n / 3, n * 2 / 3),
            (BIASES, n + 3 * T * D),
        ],
        "output": [
            ("one map of D x D puts the heads together; three belong to qkv", 3 * n),
            (BIASES, n + T * D),
        ],
        "MLP": [
            ("one matrix of two: D to M, and M back to D", n / 2),
            ("M is taken as 4 D, whatever M is", 8 * T * D * D, 4 * T * D * D),
            ("a matrix of M x M or D x D is counted; the two are D x M and M x D",
             T * M * (D + M), 2 * T * M * M, 2 * T * D * D),
            (BIASES, n + T * (M + D)),
            ("GELU is counted; products of matrices only", n + T * M),
        ],
    }  # fmt: skip
    weights = "these are the learned weights: each of them works once a token, so T is missing"
    biases = n / T + {"qkv": 3 * D, "output": D, "MLP": M + D}[part]
    alone = "every token goes through alone here: T counts once, not squared"
    return [*own[part], (FLOPS, 2 * n), (weights, n / T, biases), (alone, n * T)]


def pair_slips(n, T, D):
    """Mistakes with scores or mixing, and the numbers that follow"""
    heads = (3, 4, 6, 8, 12, 16)
    return [
        (FLOPS, 2 * n),
        ("T is missing once: every token meets every token, T * T pairs", n / T),
        ("T and D are swapped: T * T pairs, and a sum of D products for each", T * D * D),
        ("these are the pairs; each is a sum of D products", T * T),
        ("every pair counts, in both directions, and a token meets itself too: T * T",
         *(n / 2 + i * T * D / 2 for i in (-1, 0, 1))),
        ("the number of heads changes nothing: h heads of width D / h do as much as one of width D, T * T * D",
         *(n * h for h in heads), *(n / h for h in heads)),
        ("softmax or the scale is counted; products of matrices only", *(n + i * T * T for i in range(1, 5))),
    ]  # fmt: skip


# Twice the resolution


def check_times_more(answer):
    """Mark a function (config, factor) -> how many times more multiply-adds an image of `factor` times the side costs."""
    ideas = [
        ("twice the side of B/16: more than 4 times, for attention grows faster", lambda a: try_times(a, B16, 2)),
        ("other models, images that are not square, other factors", times_others),
        ("no class token, and nothing grown", times_edges),
    ]
    return mark_all("times_more", answer, ideas)


def cost(config, count=multiply_adds):
    return sum(count(config).values())


def try_times(answer, config, factor):
    when = f"for factor {factor} and {named(config)}"
    got = as_number(call(answer, config, factor), when, "a number of times")
    H, W = config.image_size
    wanted = cost(replace(config, image_size=(factor * H, factor * W))) / cost(config)
    rounded = got != wanted and any(got == round(wanted, digits) for digits in range(1, 4))
    slip(rounded, f"gives {got} {when}, and should give {wanted:.5f}: leave the rounding to whoever prints it")
    expect_number(got, wanted, times_slips(config, factor), when, first=config == B16)


def times_slips(config, f):
    """Mistakes, and the numbers that follow"""
    (H, W), P = config.image_size, config.patch_size
    new = replace(config, image_size=(f * H, f * W))
    old_patches, new_patches = (replace(c, class_token=False, pool="avg") for c in (config, new))
    tokens = new.num_tokens / config.num_tokens

    def times(**changes):
        return cost(replace(config, **changes)) / cost(config)

    return [
        ("the patches grew with the image, so there are as many as before: leave patch_size alone", 1, times(
            image_size=(f * H, f * W), patch_size=f * P)),
        ("the patches become smaller here; the image is to become larger", times(patch_size=max(P // f, 1))),
        ("the tokens grow like that, nearly; scores and mixing grow with T * T", f**2, tokens),
        ("scores and mixing alone grow like that, nearly; the rest grows with T", f**4, tokens**2),
        ("each part grows by its own share of the whole, and the shares are no halves", (f**2 + f**4) / 2),
        ("that is the factor itself; the patches fill an area", f),
        ("one side grew; both do", times(image_size=(f * H, W)), times(image_size=(H, f * W))),
        ("one side is taken for the other: image_size is a pair (H, W)", times(image_size=f * H), times(image_size=f * W)),
        ("upside down: the larger image belongs above the line", cost(config) / cost(new)),
        ("that is what is added; how many times as much is asked", cost(new) / cost(config) - 1, cost(new) - cost(config)),
        ("that is the cost itself; divide by that of the smaller image", cost(new), 2 * cost(new)),
        ("the class token is left out", cost(new_patches) / cost(old_patches)),
        ("these are parameters; multiply-adds are asked", cost(new, parameters) / cost(config, parameters)),
        ("the way back is counted too; one image through the model is asked",
         cost(new, training_multiply_adds) / cost(config, training_multiply_adds)),
    ]  # fmt: skip


def times_others(answer):
    for config, factor in ((SMALL, 2), (SMALL, 3), (S16, 4), (L16, 2)):
        try_times(answer, config, factor)


def times_edges(answer):
    for config, factor in ((AVERAGED, 2), (AVERAGED, 4), (SMALL, 1)):
        try_times(answer, config, factor)


# A large batch, part by part


class Kept:
    """A tensor that autograd keeps for the way back"""

    def __init__(self, tensor):
        self.tensor = tensor


class Watched(nn.Module):
    """A small classifier that notes how many images it is passed, in which mode, and what is still kept of earlier passes"""

    def __init__(self):
        super().__init__()
        self.net = plain(3)
        self.passed, self.modes, self.left, self.kept = [], [], [], weakref.WeakSet()

    def forward(self, images):
        self.passed.append(len(images))
        self.modes.append(self.training)
        self.left.append(len(self.kept))
        return self.net(images)

    def keep(self, tensor):
        """Note a tensor that autograd keeps, as long as it does"""
        kept = Kept(tensor)
        self.kept.add(kept)
        return kept


def check_accumulate(answer):
    """Mark a function (model, images, labels, parts) -> the mean loss, its gradient in .grad, the model called by parts."""
    ideas = [
        ("equal parts: the gradient of the mean over all images", lambda a: try_gradient(a, (12, 4), (6, 1), (12, 2))),
        ("a smaller last part: every image counts the same", lambda a: try_gradient(a, (10, 4), (9, 4), (7, 2))),
        ("starts from zero, whatever an earlier batch left", lambda a: try_gradient(a, (12, 4), (10, 4), old=True)),
        ("one part at a time, its numbers given back before the next", accumulate_apart),
        ("the mean loss, and the model in the mode in which it came", accumulate_loss),
    ]
    return mark_all("accumulate", answer, ideas)


def problem(n, parts, old):
    """A model, a batch, and what else is known of a try; `old`: whether an earlier batch left its gradient"""
    t = SimpleNamespace(model=Watched(), images=2 * torch.randn(n, 1, 2, 3), labels=torch.randint(3, (n,)), parts=parts)
    t.chunks = list(zip(t.images.chunk(parts), t.labels.chunk(parts), strict=True))
    t.sizes, t.when = [len(labels) for _, labels in t.chunks], f"for {n} images and parts = {parts}"
    if old:
        leave_gradients(t.model)
    t.weights, t.old = flat(t.model.parameters()), flat(p.grad for p in t.model.parameters()) if old else None
    return t


def accumulated(answer, n, parts, old=False, watch=True):
    """All about one try: what was given, what came back, the model with its gradient; `watch`: and what autograd keeps"""
    t = problem(n, parts, old)
    try:
        with torch.autograd.graph.saved_tensors_hooks(t.model.keep, lambda kept: kept.tensor) if watch else nullcontext():
            t.got = call(lambda images, labels: answer(t.model, images, labels, parts), t.images, t.labels)
    except AttributeError as error:
        words = "a fresh model's .grad is None. model.zero_grad() copes with that"
        slip("NoneType" in str(error) and not old, f"{marks.raised(error)} {t.when}: {words}")
        raise
    except RuntimeError as error:
        if not watch or "saved tensor hooks" not in str(error):
            raise
        return accumulated(answer, n, parts, old, watch=False)  # torch.func does not let itself be watched
    slip(not t.model.passed, f"never calls the model {t.when}")
    moved = not torch.equal(t.weights, flat(t.model.parameters()))
    slip(moved, f"moves the weights {t.when}: only .grad is wanted, the step is left to whoever calls")
    return t


def flat(tensors):
    """All numbers of some tensors in a row"""
    return torch.cat([t.detach().flatten() for t in tensors])


def gradient(model, images, labels):
    """The gradient of the mean loss, in a row"""
    return flat(torch.autograd.grad(F.cross_entropy(model.net(images), labels), list(model.parameters())))


def off(got, wanted):
    """How far a gradient is from another, as a share of its length"""
    return ((got - wanted).norm() / wanted.norm()).item()


def multiple(got, wanted):
    """How many times another gradient this one is; 0 where it points elsewhere"""
    factor = (got @ wanted / (wanted @ wanted)).item()
    return factor if factor and off(got, factor * wanted) < 1e-4 else 0


def try_gradient(answer, *cases, old=False):
    """Slip unless .grad holds the gradient of the mean over all images.  cases: pairs (images, parts)"""
    for n, parts in cases:
        t = accumulated(answer, n, parts, old)
        none = [name for name, p in t.model.named_parameters() if p.grad is None]
        words = "is loss.backward() missing, or was zero_grad() called after it?"
        slip(none, f"leaves no gradient in .grad of {', '.join(none)} {t.when}: {words}")
        got, wanted = flat(p.grad for p in t.model.parameters()), gradient(t.model, t.images, t.labels)
        if not off(got, wanted) < 1e-5:
            slip(not got.any(), f"leaves zeros in .grad {t.when}: is zero_grad() called after backward()?")
            slip(not got.isfinite().all(), f"leaves numbers in .grad that are not finite {t.when}: is a part empty?")
            name_gradient(t, got, wanted)


def name_gradient(t, got, wanted):
    """Slip with words for a wrong gradient"""
    n, k, each = len(t.images), len(t.chunks), [gradient(t.model, *chunk) for chunk in t.chunks]
    total = sum(each)
    weigh = "weigh each mean loss by its number of images, divide by the number of all"
    slips = [(f"adds up the means of {k} parts: the gradient is about {k} times too long", total)] if k > 1 else []
    if k != t.parts:
        slips.append((f"divides by {t.parts}, though chunk made {k} parts: weigh by images instead", total / t.parts))
    slips.append((f"weighs all parts alike, though they hold {t.sizes} images: {weigh}", total / k))
    if t.old is not None:
        words = "an earlier batch's gradient is still in .grad: zero_grad() once, before the loop"
        slips += [(words, t.old + wanted), (words, t.old * t.sizes[0] / n + wanted), (words, t.old / k + wanted)]
    for words, wrong in slips:
        slip(off(got, wrong) < 1e-4, f"{words} ({t.when})")
    slip(k > 1 and multiple(got, each[-1]),
         f"only the last part is in .grad {t.when}: zero_grad() once, before the loop, for backward() adds up")  # fmt: skip
    slip(k > 1 and multiple(got, each[0]), f"only the first part is in .grad {t.when}: does return stand inside the loop?")
    missing = k > 1 and multiple(got, wanted - each[-1] * t.sizes[-1] / n)
    slip(missing, f"the last part is missing in .grad {t.when}; take it too, however small it is")
    factor = multiple(got, wanted)
    slip(factor, f"the gradient is {factor:.3g} times what it should be {t.when}: {weigh}")
    slip(True, f"another gradient in .grad {t.when}, off by {off(got, wanted):.0%}: has each part its own labels?")


def accumulate_apart(answer):
    for n, parts in ((12, 4), (10, 4), (14, 2)):
        t = accumulated(answer, n, parts)
        passed, most = t.model.passed, math.ceil(n / (n // parts))
        whole = "the gradient is right, but no memory is saved"
        slip(max(passed) == n, f"passes the model all {n} images at once {t.when}: {whole}")
        slip(max(passed) > t.sizes[0], f"passes the model {max(passed)} images at once {t.when}; {t.sizes[0]} are enough")
        words = "each once is enough. Keep the loss of its pass"
        slip(sum(passed) > n, f"passes the model {sum(passed)} images in all {t.when}: {words}")
        slip(len(passed) > most, f"calls the model {len(passed)} times {t.when}: parts smaller than asked waste time")
        words = "the gradient is right, but memory holds all parts. Call backward() in the loop, without retain_graph"
        slip(any(t.model.left), f"keeps the numbers of earlier parts when the next one comes {t.when}: {words}")


def accumulate_loss(answer):
    for n, parts in ((10, 4), (12, 4), (7, 2)):
        t = accumulated(answer, n, parts)
        words = "though it came in training mode: dropout would be off"
        slip(not all(t.model.modes), f"passes the model in evaluation mode, {words}")
        slip(not t.model.training, f"leaves the model in evaluation mode, {words}")
        losses = [F.cross_entropy(t.model.net(x), y).item() for x, y in t.chunks]
        by_size = [loss * size for loss, size in zip(losses, t.sizes, strict=True)]
        slips = [
            ("that is one part's share; add the parts up", losses[-1], losses[0], by_size[-1] / n),
            ("that is the sum of the parts' means", sum(losses)),
            ("that weighs all parts alike; weigh by images", sum(losses) / len(losses), sum(losses) / parts),
            ("that is the sum over images; divide by their number", sum(by_size)),
            ("that is divided twice", sum(by_size) / n / parts, sum(by_size) / n**2, sum(losses) / n),
        ]
        got = as_number(t.got, t.when, "the mean loss, a number")
        expect_number(got, sum(by_size) / n, slips, f"as the loss {t.when}")


# Two processes, one gradient


MANY = ((5, 1, 2, 4), (4,)), ((7,), (2, 2)), ((3, 3, 3), (3,))  # images of each process, shape of the gradient


def check_combine(answer):
    """Mark a function (gradients, counts) -> the gradient of the mean over the images of all processes."""
    ideas = [
        ("two processes: each weighs as much as it has images", lambda a: try_combine(a, ((6, 3), (2, 3)))),
        ("one process, or many, with equal counts too", lambda a: try_combine(a, *MANY)),
        ("a process without images changes nothing", lambda a: try_combine(a, ((4, 0, 3), (2, 3)), ((0, 5), (1,)))),
    ]
    return mark_all("combine", answer, ideas)


def try_combine(answer, *cases):
    for counts, shape in cases:
        gradients = [torch.randn(shape) if n else torch.zeros(shape) for n in counts]
        when = f"for processes with {', '.join(map(str, counts))} images"
        got = call(answer, gradients, list(counts))
        slip(isinstance(got, (list, tuple)), f"gives a {type(got).__name__} {when}; it should give one gradient for all")
        expect_tensor(got, shape, when)
        slip(not got.isfinite().all(), f"gives numbers that are not finite {when}: never divide by one process's own count")
        if not marks.same(got, weighed(gradients, counts) / sum(counts)):
            for words, *made in combine_slips(gradients, counts):
                slip(any(marks.same(got, wrong) for wrong in made), f"{words} ({when})")
            slip(True, f"gives other numbers {when} than each gradient times its share of the images, added up")


def weighed(gradients, weights):
    return sum(weight * g for weight, g in zip(weights, gradients, strict=True))


def combine_slips(gradients, counts):
    """Mistakes, and the gradients that follow"""
    k, n, by_count = len(counts), sum(counts), weighed(gradients, counts)
    shares = weighed(gradients, [1 / c if c else 0 for c in counts])
    return [
        ("takes the plain mean, where a process with few images weighs as much as one with many",
         sum(gradients) / k, sum(gradients) / sum(c > 0 for c in counts)),
        ("adds the gradients up; each is a mean, and the mean of them all is wanted", sum(gradients)),
        ("weighs by the counts, but divides by the number of processes; divide by that of all images", by_count / k),
        ("weighs by the counts, but does not divide; divide by the number of all images", by_count),
        ("weighs by the counts, but divides by the largest; divide by their sum", by_count / max(counts)),
        ("divides twice: by the images, and by the processes once more", by_count / n / k),
        ("divides by a count; each gradient is a mean already, so multiply by its count and divide by the sum of them",
         shares, shares / k, sum(gradients) / n),
        ("gives each process the weight of another: in which order are the counts?", weighed(gradients, counts[::-1]) / n),
        ("gives zeros: c // n leaves nothing, use /", torch.zeros_like(gradients[0])),
        ("combines two processes only", weighed(gradients[:2], counts[:2]) / n,
         weighed(gradients[:2], counts[:2]) / (sum(counts[:2]) or 1), sum(gradients[:2]) / 2),
        ("gives the gradient of one process", *gradients),
    ]  # fmt: skip


# The largest batch


def check_largest_batch(answer):
    """Mark a function (config, gibibytes) -> the most images that one training step can hold."""
    ideas = [
        ("weights, gradients and optimiser once, activations for each image", batch_usual),
        ("0 where not even one image fits", batch_none),
        ("what fits to the last byte fits, and with one byte less it does not", batch_exact),
    ]
    return mark_all("largest_batch", answer, ideas)


def try_batch(answer, config, gibibytes, also=""):
    needs = training_bytes(config, 1)
    weights, each = needs["weights"], needs["activations"]
    wanted = max(0, math.floor((gibibytes * 2**30 - 4 * weights) / each))
    when = f"for {named(config)} and {gibibytes:.6g} GiB{also}"
    got = as_number(call(answer, config, gibibytes), when, "a number of images")
    slip(got < 0, f"gives {tell(got)} {when}: weights, gradients and optimiser alone are too large. That is 0 images")
    slip(not got.is_integer(), f"gives {got:.6g} {when}; images are whole: //, or math.floor")
    slip(got and not wanted, f"gives {tell(got)} {when}, where not even one image fits beside the weights: 0 is wanted")
    expect_number(got, wanted, batch_slips(config, gibibytes, weights, each, wanted), when, 1e-9, gibibytes == 24)


def batch_slips(config, gibibytes, weights, each, wanted):
    """Mistakes, and the numbers that follow"""
    room = gibibytes * 2**30

    def images(room, copies, each=each):
        return (room - copies * weights) // each

    return [
        ("GB of 10^9 bytes are taken for GiB of 2**30", images(gibibytes * 1e9, 4)),
        ("one too few: what fits to the last byte fits, <= and not <", wanted - 1),
        ("one too many: is it rounded up, or does a loop stop one too late?", wanted + 1),
        ("not all four numbers a parameter are counted: weight, gradient, and two of AdamW's",
         *(images(room, i) for i in (1, 2, 3))),
        ("activations alone are counted; weights, gradients and optimiser take memory too", images(room, 0)),
        ("weights, gradients or optimiser are counted for every image; they are there once",
         *(images(room, 4 - i, each + i * weights) for i in (1, 2, 3, 4))),
        ("rounded down to a power of two; the largest batch is asked", 2 ** math.floor(math.log2(max(wanted, 1)))),
        ("with fused=False, attention that writes its weights down; leave the default",
         images(room, 4, training_bytes(config, 1, fused=False)["activations"])),
        ("multiplied by 4: training_bytes counts bytes already", images(room / 4, 4)),
    ]  # fmt: skip


def batch_usual(answer):
    for config, gibibytes in ((B16, 24), (S16, 8), (L16, 40), (SMALL, 0.5), (AVERAGED, 0.25)):
        try_batch(answer, config, gibibytes)


def batch_none(answer):
    for config, gibibytes in ((L16, 4), (B16, 1), (B16, 1.35)):
        try_batch(answer, config, gibibytes)


def batch_exact(answer):
    for config, batch in ((B16, 3), (S16, 10), (SMALL, 1), (SMALL, 0)):
        room = sum(training_bytes(config, batch).values())
        try_batch(answer, config, room / 2**30, f", to the byte what a batch of {batch} needs")
        try_batch(answer, config, (room - 1) / 2**30, f", a byte less than a batch of {batch} needs")


# Days


def check_training_days(answer):
    """Mark a function (config, images, epochs, peak, share) -> days that one GPU takes.  peak: FLOPs a second."""
    ideas = [
        ("B/16 on ImageNet-1k, 300 epochs", lambda a: try_days(a, B16, 1_281_167, 300, 989e12, 0.45)),
        ("other data, another GPU, another share of its peak", days_factors),
        ("other models", days_models),
    ]
    return mark_all("training_days", answer, ideas)


def try_days(answer, config, images, epochs, peak, share):
    when = f"for {images:,} images, {epochs} epochs, {share:g} of {peak:.3g} FLOPs a second, and {named(config)}"
    got = as_number(call(answer, config, images, epochs, peak, share), when, "a number of days")
    plain, wanted = (  # attention that writes its weights down, and fused: both are right
        2 * images * epochs * sum(training_multiply_adds(config, fused).values()) / (peak * share) / 86400
        for fused in (False, True)
    )
    weights = sum(parameters(config).values()) * config.num_tokens / cost(config)
    slips = [
        ("multiply-adds over a peak in FLOPs: a multiply-add is two of them", 1 / 2),
        ("twice too many: a multiply-add is 2 FLOPs, once", 2),
        ("the way forward alone is counted; back costs about twice as much again", 1 / 3),
        ("the way forward alone is counted, and multiply-adds for FLOPs", 1 / 6),
        ("the way back alone is counted; the way forward comes first", 2 / 3),
        ("three times too long: training_multiply_adds counts the way back already", 3),
        ("the share is left out: nobody reaches the peak", share),
        ("multiplied by the share; divide, for who reaches less takes longer", share**2),
        ("these are seconds, minutes or hours", 86400, 1440, 24),
        ("a day has 24 * 60 * 60 seconds", 1 / 24, 1 / 60, 60, 3600),
        ("that is for one epoch", 1 / epochs),
        ("that is for one image an epoch", 1 / images),
        ("parameters are counted; each of them works once a token", 1 / config.num_tokens, weights / config.num_tokens),
        ("parameters times tokens leave out scores and mixing", weights),
        ("upside down", 1 / wanted**2),
    ]
    if not near(got, plain, 0.02):
        slips = [(words, *(wanted * x for x in times)) for words, *times in slips]
        expect_number(got, wanted, slips, when, 0.02, first=epochs == 300)


def days_factors(answer):
    for case in ((1_281_167, 90, 312e12, 0.3), (14_000_000, 7, 989e12, 0.55), (60_000, 1, 15e12, 1.0)):
        try_days(answer, B16, *case)


def days_models(answer):
    for config in (S16, L16, replace(B16, image_size=384)):
        try_days(answer, config, 1_281_167, 30, 989e12, 0.35)
