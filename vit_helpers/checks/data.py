"""Marks for the exercises of notebook 06."""

import random
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

from vit_helpers.checks import marks
from vit_helpers.checks.marks import differ, same, slip

# Dividing

GLOBALS = {  # how a global generator's state is read, put back and started anew
    "torch's": (
        lambda: torch.get_rng_state().tolist(),
        lambda x: torch.set_rng_state(torch.tensor(x).byte()),
        torch.manual_seed,
    ),
    "Python's": (random.getstate, random.setstate, random.seed),
    "numpy's": (lambda: numpy_state(np.random.get_state()), np.random.set_state, np.random.seed),
}
SPLITS = [(20, (5, 3, 12), 0), (100, [50, 50], 7), (9, (9,), 1), (7, (0, 6, 1), 2), (1797, (360, 180, 1257), 0)]


def numpy_state(state):
    """numpy's state with its numbers as a list: arrays are shortened when they are written out"""
    kind, numbers, *rest = state
    return (kind, numbers.tolist(), *rest)


def check_split(answer):
    """Mark a function (n, sizes, seed) -> a list of tensors of row numbers."""
    ideas = [
        ("as many parts as sizes, each of its size", split_sizes),
        ("every row is in exactly one part", split_complete),
        ("rows are divided at random, the same for the same seed", split_random),
        ("the generator is its own: no other seed moves the parts, and none is moved", split_own),
        ("raises ValueError where the sizes do not sum to n", split_errors),
    ]
    return marks.check("split", answer, ideas)


def as_parts(got, sizes, when):
    """The parts that an answer gave, as tensors of whole numbers"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    got = list(got) if isinstance(got, Iterator) else got
    whole = isinstance(got, torch.Tensor) and got.ndim == 1
    slip(whole or not isinstance(got, Iterable), f"gives {marks.short(got)} {when}; it should give a list of parts")
    slip(len(got) != len(sizes), f"gives {len(got)} parts {when}; there are {len(sizes)} sizes")
    parts = []
    for part in got:
        slip(
            not isinstance(part, Iterable), f"gives {marks.short(part)} as a part {when}; a part is a tensor of row numbers"
        )
        part = torch.as_tensor(part if hasattr(part, "dtype") else list(part))
        part = part.long() if not part.numel() else part
        slip(part.ndim != 1, f"gives a part of shape {tuple(part.shape)} {when}; it should be a row of numbers")
        masks = part.dtype == torch.bool
        slip(masks, f"gives a mask of True and False {when}; it should give row numbers. nonzero() makes them of a mask")
        slip(part.is_floating_point(), f"gives row numbers as {part.dtype} {when}; they should be whole")
        parts.append(part.cpu())
    return parts


def divided(answer, n, sizes, seed):
    return as_parts(answer(n, sizes, seed), sizes, f"for n = {n}, sizes {list(sizes)}, seed {seed}")


def split_sizes(answer):
    for n, sizes, seed in SPLITS:
        got = [len(part) for part in divided(answer, n, sizes, seed)]
        slip(got != list(sizes), f"gives parts of {got} rows for the sizes {list(sizes)}")


def split_complete(answer):
    for n, sizes, seed in SPLITS:
        rows = torch.cat(divided(answer, n, sizes, seed))
        slip(bool((rows < 0).any()), f"gives row {rows.min()} for n = {n}; rows are counted from 0")
        slip(bool((rows >= n).any()), f"gives row {rows.max()} for n = {n}; the last row is n - 1")
        twice = n - rows.unique().numel()
        overlap = "parts overlap: draw one order of all n rows, and cut it"
        slip(twice > 0, f"{twice} of {n} rows are in no part, others twice; {overlap}")


def split_random(answer):
    n, sizes = 60, (20, 40)
    first, other = divided(answer, n, sizes, 3), divided(answer, n, sizes, 4)
    straight = [*torch.arange(n).split(list(sizes))]
    backwards = [*torch.arange(n).flip(0).split(list(sizes))]
    sets = [set(part.tolist()) for part in first]
    for kept in (straight, backwards):
        in_order = sets == [set(part.tolist()) for part in kept]
        slip(in_order, "divides the rows in their order; shuffle first: files are often stored class by class")
    again = divided(answer, n, sizes, 3)
    words = "gives other parts when called again with the same seed; is the generator started from it?"
    slip(not all(map(torch.equal, first, again)), words)
    slip(all(map(torch.equal, first, other)), "gives the same parts for every seed: is the seed used?")
    drawn = torch.zeros(n)
    for seed in range(100):
        drawn[divided(answer, n, sizes, seed)[0]] += 1
    never = int((drawn == 0).sum())
    slip(never > 0, f"{never} of {n} rows are never in the first part, whatever the seed; shuffle all rows")


def split_own(answer):
    n, sizes = 50, (20, 30)
    for name, (read, write, start) in GLOBALS.items():
        kept = read()
        try:
            start(99)
            before = str(read())
            divided(answer, n, sizes, 5)
            moved = before != str(read())
        finally:
            write(kept)
        words = f"moves {name} global generator: whoever draws next gets other numbers"
        slip(moved, f"{words}. Make one of your own, torch.Generator().manual_seed(seed)")
    torch.manual_seed(1)
    first = divided(answer, n, sizes, 5)
    torch.manual_seed(2)
    slip(
        not all(map(torch.equal, first, divided(answer, n, sizes, 5))), "gives other parts after torch.manual_seed elsewhere"
    )


def split_errors(answer):
    for n, sizes in ((10, (5, 4)), (10, (5, 6)), (10, (11,))):
        try:
            got = answer(n, sizes, 0)
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            slip(True, f"raises {type(error).__name__} for n = {n}, sizes {sizes}; it should be a ValueError")
        slip(True, f"gives {marks.short(got)} for n = {n}, sizes {sizes}, which sum to {sum(sizes)}; raise ValueError")


# Normalising


def per(x, numbers, axis=1):
    """Numbers as a tensor that runs along one axis of x"""
    shape = [1] * x.ndim
    shape[axis] = -1
    return torch.as_tensor(numbers, dtype=x.dtype, device=x.device).view(shape)


def right_normalize(x, mean, std):
    return (x - per(x, mean)) / per(x, std)


def own_numbers(x, axes):
    return (x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)


NORMAL_SLIPS = {  # what wrong images equal, and the idea that slipped
    "nothing was changed": lambda x, m, s: x,
    "the mean is taken away, but nothing is divided": lambda x, m, s: x - per(x, m),
    "divided, but the mean is not taken away": lambda x, m, s: x / per(x, s),
    "multiplies by std; it divides": lambda x, m, s: (x - per(x, m)) * per(x, s),
    "adds the mean; it is taken away": lambda x, m, s: (x + per(x, m)) / per(x, s),
    "divides first; take the mean away first: brackets": lambda x, m, s: x - per(x, m) / per(x, s),
    "divides, then takes the mean away; the other way round": lambda x, m, s: x / per(x, s) - per(x, m),
    "divides by the square of std": lambda x, m, s: (x - per(x, m)) / per(x, s) ** 2,
    "divides by the root of std; std is a standard deviation, not a variance": lambda x, m, s: (
        (x - per(x, m)) / per(x, s) ** 0.5
    ),
    "mean and std have changed places": lambda x, m, s: (x - per(x, s)) / per(x, m),
    "undoes a normalisation: x * std + mean": lambda x, m, s: x * per(x, s) + per(x, m),
    "the numbers run along W; lines them up with axis 1: view(-1, 1, 1)": lambda x, m, s: (x - per(x, m, 3)) / per(x, s, 3),
    "the numbers run along H; line them up with axis 1: view(-1, 1, 1)": lambda x, m, s: (x - per(x, m, 2)) / per(x, s, 2),
    "the numbers run along the batch; line them up with axis 1": lambda x, m, s: (x - per(x, m, 0)) / per(x, s, 0),
    "every channel gets the first channel's numbers": lambda x, m, s: (x - m[0]) / s[0],
    "every channel gets the same numbers, the average ones; each has its own": lambda x, m, s: (
        (x - sum(m) / len(m)) / (sum(s) / len(s))
    ),
    "computes numbers from these images; use those that are handed over": lambda x, m, s: own_numbers(x, (0, 2, 3)),
    "normalises each image by itself; use the numbers that are handed over": lambda x, m, s: own_numbers(x, (1, 2, 3)),
    "normalises each channel of each image by itself; use the numbers handed over": lambda x, m, s: own_numbers(x, (2, 3)),
    "stays within 0 and 1: was it clamped? Half of the values belong below 0": lambda x, m, s: right_normalize(
        x, m, s
    ).clamp(0, 1),
}
NUMBERS = {1: ((0.3,), (0.4,)), 2: ((0.5, 0.25), (0.125, 0.75)), 3: ((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))}


def check_normalize(answer):
    """Mark a function (images, mean, std) -> images of mean 0 and standard deviation 1."""
    shapes = [(4, 3, 5, 7), (2, 1, 8, 6), (1, 2, 1, 9)]
    ideas = [
        ("right for colour, grey and other numbers of channels", lambda answer: normal_values(answer, shapes)),
        ("right where B, C, H and W are equal", lambda answer: normal_values(answer, [(3, 3, 3, 3), (2, 2, 2, 2)])),
        ("keeps the type of the numbers, leaves its input as it was, and gradients flow", normal_manners),
    ]
    return marks.check("normalize", answer, ideas)


def normal_values(answer, shapes):
    for shape in shapes:
        images, (mean, std) = torch.rand(shape), NUMBERS[shape[1]]
        when = f"for images of shape {shape}"
        got = marks.untouched(lambda x, mean=mean, std=std: answer(x, mean, std), images)
        expect_close(got, right_normalize(images, mean, std), when, NORMAL_SLIPS, images, mean, std)


def expect_close(got, wanted, when, rules, *given):
    """Slip unless a tensor is the wanted one; name the rule that a wrong one follows"""
    marks.expect_tensor(got, wanted.shape, when)
    slip(got.dtype != wanted.dtype, f"gives {got.dtype} {when}; it should give {wanted.dtype}")
    if differ(got, wanted):
        raise marks.Slip(f"{when}: {first_match(rules, got, *given) or 'the values are not those of the formula'}")


def first_match(rules, got, *given):
    """The words of the first rule that gives what the answer gave; None when there is none"""
    for words, rule in rules.items():
        try:
            wrong = rule(*given)
        except (RuntimeError, IndexError):
            continue  # this slip needs other axes
        if same(got, wrong):
            return words
    return None


def normal_manners(answer):
    mean, std = NUMBERS[3]
    images = torch.rand(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    got, wanted = answer(images, mean, std), right_normalize(images, mean, std)
    expect_close(got, wanted, "in float64", NORMAL_SLIPS, images, mean, std)
    marks.expect_gradient(got, wanted, images)
    marks.expect_anew(got, answer(torch.rand_like(images), mean, std))
    marks.expect_anywhere(lambda x: answer(x, mean, std), lambda x: right_normalize(x, mean, std), images)


# Mixing


def four(share):
    return share.view(-1, 1, 1, 1)


def one_hot(labels, K, like):
    return F.one_hot(labels, K).to(like.dtype)


def mix_labels(labels, others, share, K):
    return share[:, None] * one_hot(labels, K, share) + (1 - share)[:, None] * one_hot(others, K, share)


def right_mixup(x, y, K, share, partner):
    share = share.to(x.dtype)
    return four(share) * x + (1 - four(share)) * x[partner], mix_labels(y, y[partner], share, K)


BLEND_SLIPS = {  # what wrong images equal
    "the images come back unmixed": lambda x, y, K, s, p: x,
    "the partners come back unmixed": lambda x, y, K, s, p: x[p],
    "share goes to the partner; it says how much of the image itself is kept": lambda x, y, K, s, p: right_mixup(
        x, y, K, 1 - s, p
    )[0],
    "adds without 1 - share: the sum of both shares should be 1": lambda x, y, K, s, p: four(s) * (x + x[p]),
    "the partner is added whole; it gets 1 - share": lambda x, y, K, s, p: four(s) * x + x[p],
    "every image gets the first share; each has its own": lambda x, y, K, s, p: right_mixup(x, y, K, s[:1].expand_as(s), p)[
        0
    ],
    "every image gets the mean share; each has its own": lambda x, y, K, s, p: right_mixup(
        x, y, K, s.mean().expand_as(s), p
    )[0],
    "the partner is the next image; take images[partner]": lambda x, y, K, s, p: right_mixup(
        x, y, K, s, p * 0 + next_row(p)
    )[0],
    "the partner is the batch turned round; take images[partner]": lambda x, y, K, s, p: right_mixup(
        x, y, K, s, torch.arange(len(p)).flip(0)
    )[0],
    "the share runs along W; line it up with axis 0: view(-1, 1, 1, 1)": lambda x, y, K, s, p: s * x + (1 - s) * x[p],
    "the share runs along H; line it up with axis 0": lambda x, y, K, s, p: s[:, None] * x + (1 - s[:, None]) * x[p],
    "the share runs along the channels; line it up with axis 0": lambda x, y, K, s, p: (
        s[:, None, None] * x + (1 - s[:, None, None]) * x[p]
    ),
    "the share of the partner is used: share, not share[partner]": lambda x, y, K, s, p: right_mixup(x, y, K, s[p], p)[0],
    "partner is used backwards: image i gets images[partner[i]]": lambda x, y, K, s, p: right_mixup(x, y, K, s, p.argsort())[
        0
    ],
}


def next_row(rows):
    return torch.arange(len(rows), device=rows.device).roll(-1)


LABEL_SLIPS = {  # what wrong labels equal, given the right share
    "the image's own label alone; the partner's has its share too": lambda y, K, s, p: one_hot(y, K, s),
    "the partner's label alone; the image's own has its share too": lambda y, K, s, p: one_hot(y[p], K, s),
    "the shares have changed places: the image's own label gets the share that was kept": lambda y, K, s, p: mix_labels(
        y, y[p], 1 - s, K
    ),
    "half and half; the labels follow the pixels": lambda y, K, s, p: mix_labels(y, y[p], s * 0 + 0.5, K),
    "every row gets the first image's share": lambda y, K, s, p: mix_labels(y, y[p], s[:1].expand_as(s), K),
    "every row gets the mean share": lambda y, K, s, p: mix_labels(y, y[p], s.mean().expand_as(s), K),
    "both labels are whole; they share 1": lambda y, K, s, p: one_hot(y, K, s) + one_hot(y[p], K, s),
    "the larger share takes all; both labels keep theirs": lambda y, K, s, p: one_hot(
        mix_labels(y, y[p], s, K).argmax(1), K, s
    ),
    "the partner is used backwards": lambda y, K, s, p: mix_labels(y, y[p.argsort()], s, K),
    "where both labels are the same class, their shares must be added": lambda y, K, s, p: overwritten(y, K, s, p),
    "where both labels are the same class, their shares must be added; here the first is lost": lambda y, K, s, p: (
        overwritten(y[p], K, 1 - s, p.argsort(), y)
    ),
    "goes through a softmax; shares are shares already": lambda y, K, s, p: mix_labels(y, y[p], s, K).softmax(1),
}


def overwritten(y, K, s, p, others=None):
    """Shares written one after the other: the second replaces the first where both name one class"""
    table, rows = torch.zeros(len(y), K, dtype=s.dtype), torch.arange(len(y))
    table[rows, y] = s
    table[rows, y[p] if others is None else others] = 1 - s
    return table


def batch(B, C, H, W, K, dtype=torch.float32):
    """Images, labels and partners: some of their own class, some of another, one its own partner where B is odd"""
    labels = torch.arange(B) % K
    labels[B // 2 :] = labels[B // 2 :].flip(0)
    return torch.rand(B, C, H, W, dtype=dtype), labels, torch.randperm(B)


MIX_SIZES = [(6, 3, 5, 7, 4), (5, 1, 8, 8, 3), (1, 2, 4, 3, 2), (4, 4, 4, 4, 4), (7, 7, 7, 7, 10)]  # B, C, H, W, K


def expect_mixed(got, wanted, when, image_rules, given, label_given):
    """Slip unless an answer gave the wanted images and labels"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    two = isinstance(got, (tuple, list)) and len(got) == 2
    slip(not two, f"gives {marks.short(got)} {when}; return two things: images, labels as shares")
    images, shares = got
    turned = isinstance(images, torch.Tensor) and images.shape == wanted[1].shape != wanted[0].shape
    slip(turned, "gives the labels first; return images, labels in this order")
    expect_close(images, wanted[0], f"images {when}", image_rules, *given)
    flat = isinstance(shares, torch.Tensor) and shares.shape == wanted[1].shape[:1]
    slip(flat, f"gives one number for each label {when}; labels are rows of K shares, F.one_hot makes such rows")
    marks.expect_tensor(shares, wanted[1].shape, f"as labels {when}")
    slip(not shares.is_floating_point(), f"gives labels of {shares.dtype} {when}; shares are fractions")
    if not same(shares.to(wanted[1].dtype), wanted[1]):
        words = first_match(LABEL_SLIPS, shares.to(wanted[1].dtype), *label_given)
        raise marks.Slip(f"labels {when}: {words or 'the shares are not those of the pixels'}")
    loses = wanted[1].dtype == torch.float64 and shares.dtype != torch.float64
    slip(loses, f"labels {when}: gives {shares.dtype}, and digits are lost; make the labels of the images' type")


def try_mix(answer, right, rules, sizes, extra, dtype=torch.float32):
    """Compare an answer with the right one on batches; extra(B, H, W, dtype): what is handed over beside them"""
    for B, C, H, W, K in sizes:
        x, y, p = batch(B, C, H, W, K, dtype)
        third = extra(B, H, W, dtype)
        got = marks.untouched(lambda *a, K=K: answer(a[0], a[1], K, a[2], a[3]), x, y, third, p)
        wanted = right(x, y, K, third, p)
        share = third.to(dtype) if third.ndim == 1 else 1 - box_mask(x, third).to(dtype).mean((1, 2, 3))
        when = f"for B, C, H, W = {B}, {C}, {H}, {W} and K = {K}" + (" in float64" if dtype == torch.float64 else "")
        expect_mixed(got, wanted, when, rules, (x, y, K, third, p), (y, K, share, p))


def mix_manners(answer, right, rules, extra):
    try_mix(answer, right, rules, MIX_SIZES[:1], extra, torch.float64)
    x, y, p = batch(6, 3, 5, 7, 4)
    third = extra(6, 5, 7, x.dtype)
    x.requires_grad_()
    got, wanted = answer(x, y, 4, third, p), right(x, y, 4, third, p)
    marks.expect_gradient(got[0], wanted[0], x)
    marks.expect_anew(got[0], answer(torch.rand_like(x), y, 4, third, p)[0])
    marks.expect_anywhere(lambda *a: answer(a[0], a[1], 4, *a[2:]), lambda *a: right(a[0], a[1], 4, *a[2:]), x, y, third, p)


def some_shares(B, H, W, dtype):
    return torch.linspace(0.1, 0.8, B, dtype=dtype)[torch.randperm(B)]


def edge_shares(B, H, W, dtype):
    return (torch.arange(B) % 2).to(dtype)


def check_mixup(answer):
    """Mark a function (images, labels, num_classes, share, partner) -> images, labels as shares."""
    rules = BLEND_SLIPS
    ideas = [
        ("images and labels of batches of all sizes", lambda a: try_mix(a, right_mixup, rules, MIX_SIZES, some_shares)),
        ("shares of 0 and 1", lambda a: try_mix(a, right_mixup, rules, MIX_SIZES[:2], edge_shares)),
        ("float64 stays, inputs stay, and gradients flow", lambda a: mix_manners(a, right_mixup, rules, some_shares)),
    ]
    return marks.check("mixup", answer, ideas)


def box_mask(x, boxes):
    """True inside each image's box: (B, 1, H, W)"""
    left, top, width, height = boxes.view(-1, 4, 1, 1, 1).unbind(1)
    row, column = (torch.arange(n, device=x.device) for n in x.shape[2:])
    row = row.view(-1, 1)
    return (row >= top) & (row < top + height) & (column >= left) & (column < left + width)


def right_cutmix(x, y, K, boxes, p):
    box = box_mask(x, boxes)
    kept = 1 - box.to(x.dtype).mean((1, 2, 3))
    return torch.where(box, x[p], x), mix_labels(y, y[p], kept, K)


def cut_with(change):
    """Images cut with changed boxes"""
    return lambda x, y, K, b, p: right_cutmix(x, y, K, change(b), p)[0]


def pasted_in_order(x, y, K, b, p):
    """One image after the other, in place: later ones copy boxes of images that are changed already"""
    x = x.clone()
    for i, (left, top, width, height) in enumerate(b.tolist()):
        x[i, :, top : top + height, left : left + width] = x[p[i], :, top : top + height, left : left + width]
    return x


CUT_SLIPS = {  # what wrong images equal
    "the images come back uncut": lambda x, y, K, b, p: x,
    "the partners come back whole": lambda x, y, K, b, p: x[p],
    "inside and outside have changed places: the box comes from the partner": lambda x, y, K, b, p: torch.where(
        box_mask(x, b), x, x[p]
    ),
    "left and top have changed places: left counts columns, along W": cut_with(lambda b: b[:, [1, 0, 2, 3]]),
    "width and height have changed places": cut_with(lambda b: b[:, [0, 1, 3, 2]]),
    "rows and columns have changed places: left and width belong to W": cut_with(lambda b: b[:, [1, 0, 3, 2]]),
    "width and height are taken for right and bottom; the box ends at left + width": cut_with(
        lambda b: torch.cat([b[:, :2], b[:, 2:] - b[:, :2]], 1)
    ),
    "the box is a pixel too large: it ends before left + width": cut_with(lambda b: b + torch.tensor([0, 0, 1, 1])),
    "the box is a pixel too small: it begins at left and top": cut_with(lambda b: b + torch.tensor([1, 1, -1, -1])),
    "every image gets the first box; each has its own": cut_with(lambda b: b[:1].expand_as(b)),
    "image i gets the box of its partner": lambda x, y, K, b, p: right_cutmix(x, y, K, b[p], p)[0],
    "the box is painted with 0; it shows the partner": lambda x, y, K, b, p: x.masked_fill(box_mask(x, b), 0),
    "partners are pasted that were changed already: take them from the images as they came": pasted_in_order,
    "partner is used backwards: image i gets images[partner[i]]": lambda x, y, K, b, p: right_cutmix(
        x, y, K, b, p.argsort()
    )[0],
    "blends the whole images; cutmix cuts a box": lambda x, y, K, b, p: right_mixup(
        x, y, K, 1 - box_mask(x, b).to(x.dtype).mean((1, 2, 3)), p
    )[0],
}


def inner_boxes(B, H, W, dtype):
    """Boxes that lie inside, of many forms"""
    width, height = torch.randint(1, W, (B,)), torch.randint(1, H, (B,))
    left, top = ((torch.rand(B) * (side - n + 1)).long() for side, n in ((W, width), (H, height)))
    return torch.stack([left, top, width, height], 1)


def edge_boxes(B, H, W, dtype):
    """Boxes that reach over the right and the lower edge, an empty one, and one that covers all"""
    boxes = torch.tensor([[W - 1, H - 2, 3, 4], [1, H - 1, 2, 5], [0, 1, W + 9, H + 5], [1, 1, 0, 2], [0, 0, W, H]])
    return boxes.repeat(B, 1)[:B]


def check_cutmix(answer):
    """Mark a function (images, labels, num_classes, boxes, partner) -> images, labels as shares."""
    inside = [(6, 3, 5, 7, 4), (5, 1, 8, 8, 3), (2, 2, 4, 3, 2), (7, 7, 7, 7, 10)]
    ideas = [
        (
            "boxes that lie inside, in batches of all sizes",
            lambda a: try_mix(a, right_cutmix, CUT_SLIPS, inside, inner_boxes),
        ),
        ("boxes over the edge, empty ones and whole ones: labels by what is covered", cut_edges),
        ("float64 stays, inputs stay, and gradients flow", lambda a: mix_manners(a, right_cutmix, CUT_SLIPS, inner_boxes)),
    ]
    return marks.check("cutmix", answer, ideas)


def cut_edges(answer):
    for B, C, H, W, K in ((5, 3, 5, 7, 10), (5, 1, 8, 6, 5)):
        x, y, _ = batch(B, C, H, W, K)
        boxes, p = edge_boxes(B, H, W, x.dtype), next_row(y)  # partners of another class
        asked = boxes[:, 2] * boxes[:, 3] / (H * W)
        got = answer(x, y, K, boxes, p)
        full = isinstance(got, (tuple, list)) and len(got) == 2 and isinstance(got[1], torch.Tensor)
        if full and got[1].shape == (B, K):
            for words, area in {"": asked, ", cut off at 1": asked.clamp(max=1)}.items():
                wrong = mix_labels(y, y[p], 1 - area, K)
                beyond = f"the labels follow width x height{words}; count only what lies inside the image"
                slip(same(got[1].to(wrong.dtype), wrong), f"boxes over the edge: {beyond}")
        share = 1 - box_mask(x, boxes).to(x.dtype).mean((1, 2, 3))
        wanted, when = right_cutmix(x, y, K, boxes, p), f"for boxes over the edge of {H} x {W} pixels"
        expect_mixed(got, wanted, when, CUT_SLIPS, (x, y, K, boxes, p), (y, K, share, p))


# The planted mistake


def numbers_of(x):
    return x.mean((0, 2, 3)).tolist(), x.std((0, 2, 3)).tolist()


def pair(one, two):
    return lambda a, b: (right_normalize(a, *numbers_of(one(a, b))), right_normalize(b, *numbers_of(two(a, b))))


def both(a, b):
    return torch.cat([a, b])


PREPARE_SLIPS = {  # what wrong pairs equal
    "still the planted mistake: the test images have a say in the mean and the deviation": pair(both, both),
    "the test part is normalised by its own numbers; both parts get those of the training part": pair(
        lambda a, b: a, lambda a, b: b
    ),
    "both parts get the numbers of the test part": pair(lambda a, b: b, lambda a, b: b),
    "the test part still gets the numbers of both parts": pair(lambda a, b: a, both),
    "the training part still gets the numbers of both parts": pair(both, lambda a, b: a),
    "the test part is not normalised": lambda a, b: (pair(lambda a, b: a, lambda a, b: a)(a, b)[0], b),
    "nothing is normalised": lambda a, b: (a, b),
    "one mean for all channels; each has its own, as it was": lambda a, b: tuple((x - a.mean()) / a.std() for x in (a, b)),
    "every image is normalised by itself": lambda a, b: (own_numbers(a, (2, 3)), own_numbers(b, (2, 3))),
    "every image is normalised by itself, all channels together": lambda a, b: (
        own_numbers(a, (1, 2, 3)), own_numbers(b, (1, 2, 3)),
    ),
    "the mean is the training part's, but the deviation is still that of both": lambda a, b: tuple(
        right_normalize(x, numbers_of(a)[0], numbers_of(both(a, b))[1]) for x in (a, b)
    ),
    "the deviation is the training part's, but the mean is still that of both": lambda a, b: tuple(
        right_normalize(x, numbers_of(both(a, b))[0], numbers_of(a)[1]) for x in (a, b)
    ),
    "gives the test part first; return training, test": lambda a, b: pair(lambda a, b: a, lambda a, b: a)(a, b)[::-1],
    "averages over the batch only; over the pixels too, dim=(0, 2, 3)": lambda a, b: tuple(
        (x - a.mean(0)) / a.std(0) for x in (a, b)
    ),
}  # fmt: skip


def check_mended(answer):
    """Mark the mended function prepare(train_images, test_images) -> both parts, normalised."""
    ideas = [
        ("the numbers come from the training part alone, for both parts", mended_values),
        ("float64 stays, and the inputs stay as they were", mended_manners),
    ]
    return marks.check("mended", answer, ideas)


def two_parts(answer, train, test, when):
    got = marks.untouched(answer, train, test)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    two = isinstance(got, (tuple, list)) and len(got) == 2
    slip(not two, f"gives {marks.short(got)} {when}; return two things: both parts, normalised")
    by_n = train.std((0, 2, 3), correction=0).tolist()  # divided by n, not n - 1: welcome too
    welcome = [
        tuple(right_normalize(x, numbers_of(train)[0], std) for x in (train, test)) for std in (numbers_of(train)[1], by_n)
    ]
    if any(all_same(got, right) for right in welcome):
        return
    slipped = next((words for words, rule in PREPARE_SLIPS.items() if all_same(got, rule(train, test))), None)
    if slipped:
        raise marks.Slip(slipped)
    for name, mine, x in zip(("training", "test"), got, (train, test), strict=True):
        marks.expect_tensor(mine, x.shape, f"as {name} part {when}")
        slip(mine.dtype != x.dtype, f"gives {mine.dtype} for {x.dtype} images; keep the type that came in")
    slip(True, "not (x - mean) / std, with the training part's mean and std of each channel, for both parts")


def all_same(got, wrong):
    return all(isinstance(x, torch.Tensor) and x.dtype == y.dtype and same(x, y) for x, y in zip(got, wrong, strict=True))


def mended_values(answer):
    for C, H, W in ((3, 4, 5), (1, 6, 3), (3, 3, 3)):
        shift = torch.linspace(0.5, 1, C).view(C, 1, 1)
        train, test = torch.rand(9, C, H, W) * shift, torch.rand(4, C, H, W) + 2 * shift
        two_parts(answer, train, test, f"for training images of shape {tuple(train.shape)}")


def mended_manners(answer):
    train, test = torch.rand(5, 3, 4, 4, dtype=torch.float64), torch.rand(3, 3, 4, 4, dtype=torch.float64) + 1
    two_parts(answer, train, test, "in float64")
    train.requires_grad_()
    got = answer(train, test)
    flows = got[0].requires_grad
    slip(not flows, "the numbers are right, but no gradient flows back: was something turned into numpy, or detached?")
