"""Marks for the exercises of notebook 06."""

import contextlib
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

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


def mark_all(name, answer, ideas):
    """Mark an answer, and put Python's and numpy's global generators back: marks.check sees to torch's"""
    kept = [(write, read()) for read, write, _ in GLOBALS.values()]
    try:
        return marks.check(name, answer, ideas)
    finally:
        for write, state in kept:
            write(state)


def what(got):
    """What came, in a few words: several things by their number, and no address"""
    if isinstance(got, (tuple, list)):
        return f"{len(got)} thing{'s' * (len(got) != 1)} in a {type(got).__name__}"
    text = marks.short(got)
    return f"a {type(got).__name__}" if isinstance(got, (Mapping, np.ndarray)) or " at 0x" in text else text


@contextlib.contextmanager
def lined_up(way_out):
    """Add a way out to torch's words on axes that do not match"""
    try:
        yield
    except RuntimeError as error:
        slip("must match the size of tensor" in str(error), f"{marks.raised(error)}. {way_out}")
        raise


def check_split(answer):
    """Mark a function (n, sizes, seed) -> a list of tensors of row numbers."""
    ideas = [
        ("as many parts as sizes, each of its size", split_sizes),
        ("every row is in exactly one part", split_complete),
        ("rows are divided at random, the same for the same seed", split_random),
        ("the generator is its own: no other seed moves the parts, and none is moved", split_own),
        ("raises ValueError where the sizes do not sum to n", split_errors),
    ]
    return mark_all("split", answer, ideas)


def as_parts(got, sizes, when):
    """The parts that an answer gave, as tensors of whole numbers"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    got = list(islice(got, len(sizes) + 1)) if isinstance(got, Iterator) else got
    whole = isinstance(got, torch.Tensor) and got.ndim == 1
    bag = whole or isinstance(got, (Mapping, str)) or not isinstance(got, Iterable)
    slip(bag, f"gives {what(got)} {when}; it should give a list of parts")
    inner = len(got) == 1 and isinstance(got[0], (tuple, list)) and len(sizes) > 1 and len(got[0]) == len(sizes)
    slip(inner, f"gives the list of parts inside another list {when}; take the outer brackets away")
    flat = len(got) == sum(sizes) != len(sizes) and not any(isinstance(x, Iterable) for x in got)
    slip(flat, f"gives all rows in one list {when}; cut it into a list of parts")
    more = "more" if len(got) > len(sizes) else len(got)
    slip(len(got) != len(sizes), f"gives {more} parts {when}; there are {len(sizes)} sizes")
    return [as_rows(part, when) for part in got]


def as_rows(part, when):
    """A part that an answer gave, as a tensor of whole numbers"""
    subset = isinstance(part, torch.utils.data.Subset)
    way_out = "; its .indices are row numbers" if subset else ""
    words = f"gives {what(part)} as a part {when}; a part is a tensor of row numbers{way_out}"
    slip(subset or isinstance(part, (str, Mapping)) or not isinstance(part, Iterable), words)
    try:
        part = torch.as_tensor(part if hasattr(part, "dtype") else list(part))
    except (TypeError, ValueError) as error:
        raise marks.Slip(words) from error
    part = part.long() if not part.numel() else part
    slip(part.ndim != 1, f"gives a part of shape {tuple(part.shape)} {when}; it should be a row of numbers")
    masks = part.dtype == torch.bool
    slip(masks, f"gives a mask of True and False {when}; it should give row numbers. nonzero() makes them of a mask")
    slip(part.is_floating_point(), f"gives row numbers as {part.dtype} {when}; they should be whole")
    return part.cpu().long()


def divided(answer, n, sizes, seed):
    given = type(sizes)(sizes)
    parts = as_parts(answer(n, given, seed), sizes, f"for n = {n}, sizes {list(sizes)}, seed {seed}")
    slip(given != sizes, "changes the list of sizes that it is given; make a new one")
    return parts


def split_sizes(answer):
    for n, sizes, seed in SPLITS:
        got = [len(part) for part in divided(answer, n, sizes, seed)]
        begins = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        ends = [max(0, min(size, n) - begin) for begin, size in zip(begins, sizes, strict=False)]
        words = f"gives parts of {got} rows for the sizes {list(sizes)}"
        slip(got != list(sizes) and got == ends, f"{words}; a part that begins at row a ends at a + size, not at size")
        slip(got != list(sizes), words)


def split_complete(answer):
    for n, sizes, seed in SPLITS:
        rows = torch.cat(divided(answer, n, sizes, seed))
        slip(bool((rows < 0).any()), f"gives row {rows.min()} for n = {n}; rows are counted from 0")
        slip(bool((rows >= n).any()), f"gives row {rows.max()} for n = {n}; the last row is n - 1")
        twice = n - rows.unique().numel()
        overlap = "parts overlap: draw one order of all n rows, and cut it"
        slip(twice > 0, f"{twice} of {n} rows are in no part, others twice; {overlap}")


def same_parts(one, two):
    return all(map(torch.equal, one, two))


def split_random(answer):
    n, sizes = 60, (20, 40)
    first = divided(answer, n, sizes, 3)
    straight = [*torch.arange(n).split(list(sizes))]
    backwards = [*torch.arange(n).flip(0).split(list(sizes))]
    sets = [set(part.tolist()) for part in first]
    for kept in (straight, backwards):
        in_order = sets == [set(part.tolist()) for part in kept]
        slip(in_order, "divides the rows in their order; shuffle first: files are often stored class by class")
    words = "gives other parts when called again with the same seed; is the generator started from it?"
    slip(not same_parts(first, divided(answer, n, sizes, 3)), words)
    zero = not same_parts(divided(answer, n, sizes, 0), divided(answer, n, sizes, 0))
    slip(zero, "gives other parts when called again with seed 0; 0 is a seed like any other, though `if seed` says no")
    chosen = torch.zeros(100, n)  # of each seed, 1 where a row is in the first part
    for seed in range(100):
        chosen[seed, divided(answer, n, sizes, seed)[0]] = 1
    several = chosen.unique(dim=0).shape[0]
    slip(several == 1, "gives the same parts for every seed: is the seed used?")
    slip(several < 20, f"gives {several} different divisions for 100 seeds; each seed has its own")
    often = chosen.sum(0)
    never = int((often == 0).sum())
    slip(never > 0, f"{never} of {n} rows are never in the first part, whatever the seed; shuffle all rows")
    row = int(often.argmax())
    one_sided = (
        f"row {row} is in the first part for {often[row]:.0f} of 100 seeds, by chance 33 are expected; shuffle all rows"
    )
    slip(often[row] > 70, one_sided)
    for apart in range(1, n // 2):
        together = (chosen == chosen.roll(apart, 1)).float().mean()  # by chance 0.55, give or take 0.01
        words = f"rows {apart} apart land in the same part in {together:.0%} of all cases, by chance 55% are expected"
        slip(abs(together - 0.55) > 0.1, f"{words}; every order of the rows should be possible, as with torch.randperm")
    slip(several < 90, f"gives {several} different divisions for 100 seeds; each seed has its own")


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
    for seed in (0, 5):
        torch.manual_seed(1)
        first = divided(answer, n, sizes, seed)
        torch.manual_seed(2)
        slip(not same_parts(first, divided(answer, n, sizes, seed)), "gives other parts after torch.manual_seed elsewhere")


def split_errors(answer):
    for n, sizes in ((10, (5, 4)), (10, (5, 6)), (10, (11,))):
        try:
            got = answer(n, sizes, 0)
            got = list(islice(got, 9)) if isinstance(got, Iterator) else got  # a generator raises when it is asked
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            slip(True, f"raises {type(error).__name__} for n = {n}, sizes {sizes}; it should be a ValueError")
        back = isinstance(got, BaseException)
        slip(back, f"gives {marks.short(got)} back for n = {n}, sizes {sizes}; an error is raised: raise, not return")
        slip(True, f"gives {marks.short(got)} for n = {n}, sizes {sizes}, which sum to {sum(sizes)}; raise ValueError")


# Normalising


def per(x, numbers, axis=1):
    """Numbers as a tensor that runs along one axis of x"""
    shape = [1] * x.ndim
    shape[axis] = -1
    return torch.as_tensor(numbers, dtype=x.dtype, device=x.device).view(shape)


def right_normalize(x, mean, std, axis=1):
    return (x - per(x, mean, axis)) / per(x, std, axis)


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
    "the numbers run along W; line them up with axis 1: view(-1, 1, 1)": lambda x, m, s: (x - per(x, m, 3)) / per(x, s, 3),
    "the numbers run along H; line them up with axis 1: view(-1, 1, 1)": lambda x, m, s: (x - per(x, m, 2)) / per(x, s, 2),
    "the numbers run along the batch; line them up with axis 1": lambda x, m, s: (x - per(x, m, 0)) / per(x, s, 0),
    "every channel gets the first channel's numbers": lambda x, m, s: (x - m[0]) / s[0],
    "every channel gets the same numbers, the average ones; each has its own": lambda x, m, s: (
        (x - sum(m) / len(m)) / (sum(s) / len(s))
    ),
    "computes numbers from these images; use those that are handed over": lambda x, m, s: own_numbers(x, (0, 2, 3)),
    "normalises each image by itself; use the numbers that are handed over": lambda x, m, s: own_numbers(x, (1, 2, 3)),
    "normalises each channel of each image by itself; use the numbers handed over": lambda x, m, s: own_numbers(x, (2, 3)),
    "computes the deviation from these images; use the std that is handed over": lambda x, m, s: (
        (x - per(x, m)) / x.std((0, 2, 3), keepdim=True)
    ),
    "computes the mean from these images; use the one that is handed over": lambda x, m, s: (
        (x - x.mean((0, 2, 3), keepdim=True)) / per(x, s)
    ),
    "computes one mean and deviation of all these pixels; use the C numbers that are handed over": lambda x, m, s: (
        (x - x.mean()) / x.std()
    ),
    "stretches to 0 .. 1 by the smallest and the largest pixel; use mean and std": lambda x, m, s: (
        (x - x.min()) / (x.max() - x.min())
    ),
    "makes each pixel's channels a vector of length 1; F.normalize is another thing": lambda x, m, s: F.normalize(x),
    "divides by 255 first; the images are from 0 to 1 already": lambda x, m, s: right_normalize(x / 255, m, s),
    "takes x away from the mean; it is x - mean": lambda x, m, s: -right_normalize(x, m, s),
    "the numbers are in the wrong order: channel 0 gets the last ones": lambda x, m, s: right_normalize(x, m[::-1], s[::-1]),
    "every channel gets the first mean; each has its own": lambda x, m, s: (x - m[0]) / per(x, s),
    "every channel gets the first std; each has its own": lambda x, m, s: (x - per(x, m)) / s[0],
    "divides twice": lambda x, m, s: (x / per(x, s) - per(x, m)) / per(x, s),
    "is rounded to whole numbers": lambda x, m, s: right_normalize(x, m, s).round(),
    "what is below 0 is lost; half of the values belong there": lambda x, m, s: right_normalize(x, m, s).clamp(min=0),
    "stays within -1 and 1: was it clamped? The values may be larger": lambda x, m, s: right_normalize(x, m, s).clamp(-1, 1),
    "axes are moved by reshape, which mixes the pixels; permute and movedim move axes": lambda x, m, s: right_normalize(
        x.movedim(1, -1), m, s, 3
    ).reshape(x.shape),
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
        ("keeps the type of the numbers, and its input as it was", normal_manners),
    ]
    return mark_all("normalize", answer, ideas)


ALONG_C = "C numbers alone line up with the last axis, W; with the shape (C, 1, 1) they line up with the channels"


def normal_values(answer, shapes):
    for shape in shapes:
        images, (mean, std) = torch.rand(shape), NUMBERS[shape[1]]
        with lined_up(ALONG_C):
            got = marks.untouched(lambda x, mean=mean, std=std: tried(answer, x, mean, std), images)
        expect_normal(got, images, mean, std, f"for images of shape {shape}")


def tried(answer, images, mean, std):
    """The answer's result; Slip with a way out where it takes tuples for tensors"""
    try:
        return answer(images, mean, std)
    except TypeError as error:
        tuples = "'Tensor' and 'tuple'" in str(error)
        slip(tuples, f"{marks.raised(error)}. Make a tensor of the numbers first: images.new_tensor(mean)")
        raise


def expect_normal(got, images, mean, std, when):
    """Slip unless images are normalised by these numbers; a small eps beside std is welcome"""
    listed = isinstance(got, (tuple, list)) and len(got) == images.shape[1]
    slip(listed, f"gives {what(got)} {when}; make one tensor of the channels: torch.stack(channels, dim=1)")
    wanted = right_normalize(images, mean, std)
    expect_form(got, wanted, when)
    if with_eps(got, images, mean, std):
        return
    marks.expect_digits(got, wanted)
    words = first_match(NORMAL_SLIPS, got, images, mean, std) or partly(got, wanted, images) or ""
    raise marks.Slip(f"{when}: {words or as_line(got, images, mean, std)}")


def with_eps(got, x, mean, std):
    """Whether an answer is normalised, perhaps with a small number added to std or to its square"""
    for eps in (0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
        if any(
            same(got, right_normalize(x, mean, s)) for s in ([v + eps for v in std], [(v * v + eps) ** 0.5 for v in std])
        ):
            return True
    return False


def expect_form(got, wanted, when):
    """Slip unless an answer gave a tensor of the wanted shape and type"""
    slip(isinstance(got, np.ndarray), f"gives a numpy array {when}; it should give a tensor: torch.from_numpy makes one")
    several = isinstance(got, (tuple, list, Iterator, Mapping))
    slip(several, f"gives {what(got)} {when}; it should give a tensor")
    marks.expect_tensor(got, wanted.shape, when)
    slip(got.dtype != wanted.dtype, f"gives {got.dtype} {when}; it should give {wanted.dtype}")


def partly(got, wanted, x):
    """Which images or channels were left out, where the others are right; None where it is not so"""
    for name, axis in (("image", 0), ("channel", 1)):
        three = list(zip(*(t.unbind(axis) for t in (got, wanted, x)), strict=True))
        left_out = [i for i, (mine, right, _) in enumerate(three) if not same(mine, right)]
        if len(left_out) == len(three):
            continue
        for words, kept in (("unchanged", x), ("black", torch.zeros_like(x))):
            if all(same(three[i][0], kept.select(axis, i)) for i in left_out):
                numbers = ", ".join(map(str, left_out))
                return f"{words}: {name} {numbers}; the others are right. Was something left out, by a loop perhaps?"
    return None


def line(got, x):
    """The (mean, std) by which numbers were normalised, as (x - mean) / std; None where it was done in another way"""
    x, got = x.flatten().double(), got.flatten().double()
    slope = ((x - x.mean()) * (got - got.mean())).sum() / ((x - x.mean()) ** 2).sum()
    wrong = (got - got.mean() - slope * (x - x.mean())).abs().max()
    if slope.abs() < 1e-6 or not wrong < 1e-4:
        return None
    return (x.mean() - got.mean() / slope).item(), (1 / slope).item()


def formula(mean, std):
    return f"(x - {mean:.3g}) / {std:.3g}".replace("- -", "+ ")


def as_line(got, x, mean, std):
    """What was done with the first channel that is wrong, in numbers"""
    wanted = right_normalize(x, mean, std)
    c = next(c for c in range(x.shape[1]) if not same(got[:, c], wanted[:, c]))
    found = line(got[:, c], x[:, c])
    if found:
        return f"channel {c} becomes {formula(*found)}; it should become {formula(mean[c], std[c])}"
    at = tuple((got[:, c] - wanted[:, c]).abs().nan_to_num(9).flatten().topk(1).indices.tolist())
    one, mine, right = (t[:, c].flatten()[at].item() for t in (x, got, wanted))
    return (
        f"a pixel of {one:.3g} in channel {c} becomes {mine:.3g}; it should become {formula(mean[c], std[c])} = {right:.3g}"
    )


def expect_anywhere(answer, right, *given):
    """As marks.expect_anywhere, but numpy is welcome, which stays on the CPU"""
    try:
        marks.expect_anywhere(answer, right, *given)
    except marks.Slip as words:
        if "numpy" not in str(words):
            raise


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
    images = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    got = marks.untouched(lambda x: answer(x, mean, std), images)
    expect_normal(got, images, mean, std, "in float64")
    marks.expect_anew(got, answer(torch.rand_like(images), mean, std))
    expect_anywhere(lambda x: answer(x, mean, std), lambda x: right_normalize(x, mean, std), images)


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


def blended_in_order(x, y, K, s, p):
    """One image after the other, in place: later ones are blended with images that are blended already"""
    x = x.clone()
    for i, j in enumerate(p.tolist()):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


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
    "the partner is missing; it gets 1 - share": lambda x, y, K, s, p: four(s) * x,
    "both are added whole; they share 1": lambda x, y, K, s, p: x + x[p],
    "half and half; each image has its own share": lambda x, y, K, s, p: (x + x[p]) / 2,
    "every image gets the same partner; take images[partner]": lambda x, y, K, s, p: four(s) * x + (1 - four(s)) * x[p[0]],
    "the larger share goes to the image itself, always; use share as it is": lambda x, y, K, s, p: right_mixup(
        x, y, K, torch.maximum(s, 1 - s), p
    )[0],
    "images are blended that were blended already: read from the images as they came": blended_in_order,
    "is rounded to whole numbers": lambda x, y, K, s, p: right_mixup(x, y, K, s, p)[0].round(),
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
    "the larger share goes to the image's own label, always": lambda y, K, s, p: mix_labels(
        y, y[p], torch.maximum(s, 1 - s), K
    ),
    "the share of the partner is used: share, not share[partner]": lambda y, K, s, p: mix_labels(y, y[p], s[p], K),
    "both labels get 1 wherever they are; they share 1": lambda y, K, s, p: mix_labels(y, y[p], s * 0 + 0.5, K).ceil(),
    "the partner's label gets the same share as the image's own; it gets 1 - share": lambda y, K, s, p: (
        s[:, None] * (one_hot(y, K, s) + one_hot(y[p], K, s))
    ),
    "the partner's label is whole; it gets 1 - share": lambda y, K, s, p: (
        s[:, None] * one_hot(y, K, s) + one_hot(y[p], K, s)
    ),
    "the partner's label is missing": lambda y, K, s, p: s[:, None] * one_hot(y, K, s),
    "half of what they should be; the shares sum to 1 already": lambda y, K, s, p: mix_labels(y, y[p], s, K) / 2,
    "goes through a logarithm; shares are wanted": lambda y, K, s, p: mix_labels(y, y[p], s, K).log(),
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


MIX_SIZES = [(6, 3, 5, 7, 4), (6, 3, 5, 7, 4), (5, 1, 8, 8, 3), (1, 2, 4, 3, 2), (4, 4, 4, 4, 4), (7, 7, 7, 7, 10)]
LINE_UP = {  # with what shape the third thing lines up with images and labels: B, C, H, W, K are as above
    1: "Torch lines axes up from the last one: share needs the shape (B, 1, 1, 1) beside images, (B, 1) beside labels",
    2: "Torch lines axes up from the last one: with left as (B, 1, 1, 1), rows as (H, 1) and columns as (W) a mask gets "
    "(B, 1, H, W); a share of the area needs (B, 1) beside labels",
}


def two_things(got, words):
    """An answer's two things, also from a generator; Slip when there are not two"""
    got = list(islice(got, 3)) if isinstance(got, Iterator) else got
    slip(not (isinstance(got, (tuple, list)) and len(got) == 2), f"gives {what(got)} {words}")
    return got


def expect_mixed(got, wanted, when, rules, seen, given, label_given):
    """Slip unless an answer gave the wanted images and labels; rules, seen: what wrong images equal, and look like"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    images, shares = two_things(got, f"{when}; return two things: images, labels as shares")
    turned = isinstance(images, torch.Tensor) and images.shape == wanted[1].shape != wanted[0].shape
    slip(turned, "gives the labels first; return images, labels in this order")
    expect_form(images, wanted[0], f"as images {when}")
    if differ(images, wanted[0]):
        words = first_match(rules, images, *given) or partly(images, wanted[0], given[0]) or seen(images, wanted[0], *given)
        raise marks.Slip(f"images {when}: {words}")
    expect_shares(shares, wanted[1], when, label_given)


def expect_shares(shares, wanted, when, given):
    """Slip unless an answer gave the wanted labels"""
    flat = isinstance(shares, torch.Tensor) and shares.shape == wanted.shape[:1]
    slip(flat, f"gives one number for each label {when}; labels are rows of K shares, F.one_hot makes such rows")
    apart = isinstance(shares, (tuple, list, Iterator, Mapping))
    slip(apart, f"gives {what(shares)} as labels {when}; labels are one tensor, a row of K shares for each image")
    if isinstance(shares, torch.Tensor) and shares.ndim == 2 and len(shares) == len(wanted):
        columns = f"gives labels with {shares.shape[1]} columns {when}; it should give K: F.one_hot(labels, num_classes)"
        slip(shares.shape[1] != wanted.shape[1], columns)
    marks.expect_tensor(shares, wanted.shape, f"as labels {when}")
    slip(not shares.is_floating_point(), f"gives labels of {shares.dtype} {when}; shares are fractions")
    lost = wanted.dtype == torch.float64 != shares.dtype and same(shares, wanted.float())
    slip(lost, f"labels {when}: gives {shares.dtype}, and digits are lost; make the labels of the images' type")
    mine = shares.to(wanted.dtype)
    if not same(mine, wanted):
        raise marks.Slip(f"labels {when}: {first_match(LABEL_SLIPS, mine, *given) or as_row(mine, wanted)}")


def as_row(mine, wanted):
    """The first row of labels that is wrong, and what it should be"""
    i = next(i for i in range(len(mine)) if not same(mine[i], wanted[i]))
    one, other = ([float(f"{x:.2g}") for x in row.tolist()] for row in (mine[i], wanted[i]))
    total = "" if same(mine[i].sum(), wanted[i].sum()) else f", and sums to {mine[i].sum():.2g}"
    return f"row {i} is {one}{total}; by its pixels it should be {other}"


def as_mixture(images, wanted, x, y, K, s, p):
    """Of which images of the batch the first wrong one is made, in numbers"""
    i = next(i for i in range(len(x)) if not same(images[i], wanted[i]))
    should = f"it should be {s[i]:.3g} of image {i} and {1 - s[i]:.3g} of image {p[i]}"
    basis = x.flatten(1).double().T
    parts = torch.linalg.lstsq(basis, images[i].flatten().double()[:, None]).solution
    if (basis @ parts - images[i].flatten().double()[:, None]).abs().max() > 1e-3:
        return f"image {i} is no blend of images of this batch; {should}"
    made = [f"{part:.3g} of image {j}" for j, part in enumerate(parts[:, 0].tolist()) if abs(part) > 1e-3]
    return f"image {i} is {' and '.join(made) or 'black'}; {should}"


def try_mix(answer, right, rules, sizes, extra, dtype=torch.float32):
    """Compare an answer with the right one on batches; extra(B, H, W, dtype): what is handed over beside them"""
    before = {}
    for B, C, H, W, K in sizes:
        x, y, p = batch(B, C, H, W, K, dtype)
        third = extra(B, H, W, dtype)
        with lined_up(LINE_UP[third.ndim]):
            got = marks.untouched(lambda *a, K=K: eager(answer(a[0], a[1], K, a[2], a[3])), x, y, third, p)
        kept = before.get((B, C, H, W, K))
        if kept is not None and isinstance(got, (tuple, list)) and len(got):
            marks.expect_anew(kept, got[0])
        when = f"for B, C, H, W = {B}, {C}, {H}, {W} and K = {K}" + (" in float64" if dtype == torch.float64 else "")
        expect_both(got, right, when, rules, x, y, K, third, p)
        before[B, C, H, W, K] = got[0]


def eager(got):
    """What a generator gives, a few things of it; anything else as it is"""
    return list(islice(got, 3)) if isinstance(got, Iterator) else got


def expect_both(got, right, when, rules, x, y, K, third, p):
    """Slip unless an answer gave the right images and labels for shares or boxes"""
    wanted = right(x, y, K, third, p)
    mix = third.ndim == 1
    share = third.to(x.dtype) if mix else 1 - box_mask(x, third).to(x.dtype).mean((1, 2, 3))
    seen = as_mixture if mix else as_boxes
    expect_mixed(got, wanted, when, rules, seen, (x, y, K, third, p), (y, K, share, p))


def mix_manners(answer, right, rules, extra):
    try_mix(answer, right, rules, MIX_SIZES[:2], extra, torch.float64)
    x, y, p = batch(6, 3, 5, 7, 4)
    third = extra(6, 5, 7, x.dtype)
    expect_anywhere(lambda *a: answer(a[0], a[1], 4, *a[2:]), lambda *a: right(a[0], a[1], 4, *a[2:]), x, y, third, p)


def some_shares(B, H, W, dtype):
    return torch.linspace(0.1, 0.8, B, dtype=dtype)[torch.randperm(B)]


def edge_shares(B, H, W, dtype):
    return (torch.arange(B) % 2).to(dtype)


def check_mixup(answer):
    """Mark a function (images, labels, num_classes, share, partner) -> images, labels as shares."""
    rules = BLEND_SLIPS
    ideas = [
        ("images and labels of batches of all sizes", lambda a: try_mix(a, right_mixup, rules, MIX_SIZES, some_shares)),
        ("shares of 0 and 1", lambda a: try_mix(a, right_mixup, rules, MIX_SIZES[1:3], edge_shares)),
        ("float64 stays, and inputs stay as they were", lambda a: mix_manners(a, right_mixup, rules, some_shares)),
    ]
    return mark_all("mixup", answer, ideas)


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


def box_by(inside, both=torch.logical_and):
    """Images cut by another rule: inside(places, begin, length) of rows and columns, joined by both"""

    def cut(x, y, K, b, p):
        left, top, width, height = b.view(-1, 4, 1, 1, 1).unbind(1)
        row, column = (torch.arange(n, device=x.device) for n in x.shape[2:])
        mask = both(inside(row.view(-1, 1), top, height), inside(column, left, width))
        return torch.where(mask, x[p], x)

    return cut


def within(places, begin, length):
    return (places >= begin) & (places < begin + length)


def corner(x, y, K, b, p):
    """The partner's upper left corner in the box"""
    x, source = x.clone(), x
    for i, (left, top, width, height) in enumerate(b.tolist()):
        hole = x[i, :, top : top + height, left : left + width]
        hole.copy_(source[p[i], :, : hole.shape[1], : hole.shape[2]])
    return x


def shrunk(x, y, K, b, p):
    """The whole partner, made as small as the box"""
    x, source = x.clone(), x
    for i, (left, top, width, height) in enumerate(b.tolist()):
        hole = x[i, :, top : top + height, left : left + width]
        if hole.numel():
            hole.copy_(F.interpolate(source[p[i]][None], size=tuple(hole.shape[1:]))[0])
    return x


def pushed_inside(b, H, W):
    """Boxes moved to the left and up until they lie inside"""
    left, top, width, height = b.unbind(1)
    return torch.stack(
        [torch.minimum(left, W - width).clamp(min=0), torch.minimum(top, H - height).clamp(min=0), width, height], 1
    )


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
    "rows or columns are enough; a pixel is in the box where both are: and, not or": box_by(within, torch.logical_or),
    "left and top are not minded: the box begins there": box_by(lambda at, begin, length: at < begin + length),
    "width and height are not minded: the box ends at left + width": box_by(lambda at, begin, length: at >= begin),
    "only the rows are minded; the box has columns too": box_by(within, lambda rows, columns: rows & (columns == columns)),
    "only the columns are minded; the box has rows too": box_by(within, lambda rows, columns: columns & (rows == rows)),
    "left and top are taken for the middle of the box": box_by(
        lambda at, begin, length: within(at, (begin - length // 2).clamp(min=0), length)
    ),
    "the box is moved until it lies inside; it stays where it is, and ends at the edge": lambda x, y, K, b, p: right_cutmix(
        x, y, K, pushed_inside(b, *x.shape[2:]), p
    )[0],
    "the box shows the upper left corner of the partner; it shows the same place": corner,
    "the box shows the whole partner, made small; it shows the same place of it": shrunk,
    "the box is half the partner; it is the partner alone": lambda x, y, K, b, p: torch.where(
        box_mask(x, b), (x + x[p]) / 2, x
    ),
    "the box is added to the image; it replaces what was there": lambda x, y, K, b, p: x + x[p] * box_mask(x, b),
    "the box is painted with 1; it shows the partner": lambda x, y, K, b, p: x.masked_fill(box_mask(x, b), 1),
    "outside the box all is black; the image stays there": lambda x, y, K, b, p: x[p] * box_mask(x, b),
    "the partner is the next image; take images[partner]": lambda x, y, K, b, p: right_cutmix(x, y, K, b, next_row(p))[0],
    "the partner is the batch turned round; take images[partner]": lambda x, y, K, b, p: torch.where(
        box_mask(x, b), x.flip(0), x
    ),
    "every image gets the same partner; take images[partner]": lambda x, y, K, b, p: torch.where(box_mask(x, b), x[p[0]], x),
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


def rectangle(mask):
    """A mask (H, W) in words, where it is a box"""
    rows, columns = mask.any(1).nonzero().flatten().tolist(), mask.any(0).nonzero().flatten().tolist()
    if not rows:
        return "nowhere"
    solid = int(mask.sum()) == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    around = "in rows" if solid else "scattered over rows"
    return f"{around} {rows[0]} to {rows[-1]}, columns {columns[0]} to {columns[-1]}"


def as_boxes(images, wanted, x, y, K, b, p):
    """Where the partner stands in the first wrong image, and where it should"""
    i = next(i for i in range(len(x)) if not same(images[i], wanted[i]))
    here, there = (torch.isclose(images[i], other).all(0) for other in (x[i], x[p[i]]))
    left, top, width, height = b[i].tolist()
    box = f"image {i}, box left {left}, top {top}, width {width}, height {height}"
    neither = int((~here & ~there).sum())
    if neither:
        return f"{box}: {neither} pixels are neither the image's own nor, at the same place, its partner's"
    return f"{box}: the partner stands {rectangle(there & ~here)}; it should stand {rectangle(box_mask(x, b)[i, 0])}"


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
    inside = [(6, 3, 5, 7, 4), (6, 3, 5, 7, 4), (5, 1, 8, 8, 3), (2, 2, 4, 3, 2), (7, 7, 7, 7, 10)]
    ideas = [
        (
            "boxes that lie inside, in batches of all sizes",
            lambda a: try_mix(a, right_cutmix, CUT_SLIPS, inside, inner_boxes),
        ),
        ("boxes over the edge, empty ones and whole ones: labels by what is covered", cut_edges),
        ("float64 stays, and inputs stay as they were", lambda a: mix_manners(a, right_cutmix, CUT_SLIPS, inner_boxes)),
    ]
    return mark_all("cutmix", answer, ideas)


AREAS = {  # the area beyond the edge counted in some way: f(boxes, H, W) -> pixels
    "the labels follow width x height; count only what lies inside the image": lambda b, H, W: b[:, 2] * b[:, 3],
    "the labels follow width x height, cut off at 1; count only what lies inside the image": lambda b, H, W: (
        b[:, 2] * b[:, 3]
    ).clamp(max=H * W),
    "the labels mind the right edge, but not the lower one": lambda b, H, W: torch.minimum(b[:, 2], W - b[:, 0]) * b[:, 3],
    "the labels mind the lower edge, but not the right one": lambda b, H, W: b[:, 2] * torch.minimum(b[:, 3], H - b[:, 1]),
    "width is cut to W and height to H; a box that begins at left ends at W, so W - left remain": lambda b, H, W: (
        b[:, 2].clamp(max=W) * b[:, 3].clamp(max=H)
    ),
}


def cut_edges(answer):
    for B, C, H, W, K in ((5, 3, 5, 7, 10), (5, 1, 8, 6, 5)):
        x, y, _ = batch(B, C, H, W, K)
        boxes, p = edge_boxes(B, H, W, x.dtype), next_row(y)  # partners of another class
        got = marks.untouched(lambda *a, K=K: eager(answer(a[0], a[1], K, a[2], a[3])), x, y, boxes, p)
        pair = isinstance(got, (tuple, list)) and len(got) == 2 and all(isinstance(part, torch.Tensor) for part in got)
        wanted = right_cutmix(x, y, K, boxes, p)
        if pair and got[1].shape == (B, K) and same(got[0], wanted[0]):
            for words, area in AREAS.items():
                wrong = mix_labels(y, y[p], 1 - area(boxes, H, W) / (H * W), K)
                slip(same(got[1].to(wrong.dtype), wrong), f"boxes over the edge: {words}")
        expect_both(got, right_cutmix, f"for boxes over the edge of {H} x {W} pixels", CUT_SLIPS, x, y, K, boxes, p)


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


MEANS = {  # where a mean may come from: f(train, test) -> a number for each channel
    "the training part's": lambda a, b: a.mean((0, 2, 3)),
    "the test part's": lambda a, b: b.mean((0, 2, 3)),
    "both parts'": lambda a, b: both(a, b).mean((0, 2, 3)),
    "the average of the two parts' means": lambda a, b: (a.mean((0, 2, 3)) + b.mean((0, 2, 3))) / 2,
    "that of all channels together": lambda a, b: a.mean().expand(a.shape[1]),
    "the first image's": lambda a, b: a[0].mean((1, 2)),
    "0": lambda a, b: torch.zeros(a.shape[1]),
}
SPREADS = {  # where a deviation may come from
    "the training part's": lambda a, b: a.std((0, 2, 3)),
    "the test part's": lambda a, b: b.std((0, 2, 3)),
    "both parts'": lambda a, b: both(a, b).std((0, 2, 3)),
    "the average of the two parts' deviations": lambda a, b: (a.std((0, 2, 3)) + b.std((0, 2, 3))) / 2,
    "that of all channels together": lambda a, b: a.std().expand(a.shape[1]),
    "the first image's": lambda a, b: a[0].std((1, 2)),
    "the square of the training part's, its variance": lambda a, b: a.var((0, 2, 3)),
    "1": lambda a, b: torch.ones(a.shape[1]),
}


def sources(got, x, train, test):
    """Whose mean and deviation a part was normalised by, in words; None where it was done in another way"""
    lines = [line(got[:, c], x[:, c]) for c in range(x.shape[1])]
    if not all(lines):
        return None
    named = []
    for numbers, known in zip(zip(*lines, strict=True), (MEANS, SPREADS), strict=True):
        numbers = torch.tensor(numbers)
        found = (words for words, rule in known.items() if torch.allclose(rule(train, test).float(), numbers, atol=1e-3))
        named.append(next(found, f"another number ({numbers[0]:.3g} in channel 0)"))
    return f"the mean is {named[0]}, the deviation {named[1]}"


def check_mended(answer):
    """Mark the mended function prepare(train_images, test_images) -> both parts, normalised."""
    ideas = [
        ("the numbers come from the training part alone, for both parts", mended_values),
        ("float64 stays, and inputs stay as they were", mended_manners),
    ]
    return mark_all("mended", answer, ideas)


OF_TRAINING = "both parts get (x - mean) / std, with the training part's mean and std of each channel"


def two_parts(answer, train, test, when):
    with lined_up("With keepdim=True mean and std keep the shape (1, C, 1, 1), which lines up with the channels"):
        got = marks.untouched(lambda a, b: eager(answer(a, b)), train, test)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    joined = isinstance(got, torch.Tensor) and len(got) == len(train) + len(test)
    slip(joined, f"gives both parts in one tensor {when}; return two things, the training part and the test part")
    got = two_things(got, f"{when}; return two things: both parts, normalised")
    mean, std = numbers_of(train)
    stds = [std, train.std((0, 2, 3), correction=0).tolist(), numbers_of(both(train, train))[1]]  # by n - 1, n: all welcome
    typed = all(isinstance(x, torch.Tensor) and x.dtype == y.dtype for x, y in zip(got, (train, test), strict=True))
    if typed and any(all(with_eps(x, y, mean, s) for x, y in zip(got, (train, test), strict=True)) for s in stds):
        return got
    slipped = next((words for words, rule in PREPARE_SLIPS.items() if all_same(got, rule(train, test))), None)
    if slipped:
        raise marks.Slip(slipped)
    for name, mine, x in zip(("training", "test"), got, (train, test), strict=True):
        array = f"gives a numpy array as {name} part {when}; it should give a tensor: torch.from_numpy makes one"
        slip(isinstance(mine, np.ndarray), array)
        marks.expect_tensor(mine, x.shape, f"as {name} part {when}")
        slip(mine.dtype != x.dtype, f"gives {mine.dtype} for {x.dtype} images; keep the type that came in")
        marks.expect_digits(mine, right_normalize(x, mean, std))
    for name, mine, x in zip(("training", "test"), got, (train, test), strict=True):
        if not any(with_eps(mine, x, mean, s) for s in stds):
            by = sources(mine, x, train, test)
            slip(same(mine, x), f"the {name} part comes back as it was; {OF_TRAINING}")
            words = f"is not of the form (x - mean) / std, one of each for a channel; {OF_TRAINING}"
            slip(True, f"the {name} part {f'is normalised, but {by}; {OF_TRAINING}' if by else words}")
    return got


def all_same(got, wrong):
    return all(isinstance(x, torch.Tensor) and x.dtype == y.dtype and same(x, y) for x, y in zip(got, wrong, strict=True))


def mended_values(answer):
    for C, H, W in ((3, 4, 5), (1, 6, 3), (3, 3, 3)):
        shift = torch.linspace(0.5, 1, C).view(C, 1, 1)
        train, test = torch.rand(9, C, H, W) * shift, torch.rand(4, C, H, W) + 2 * shift
        two_parts(answer, train, test, f"for training images of shape {tuple(train.shape)}")


def mended_manners(answer):
    train, test = torch.rand(5, 3, 4, 4, dtype=torch.float64), torch.rand(3, 3, 4, 4, dtype=torch.float64) + 1
    got = two_parts(answer, train, test, "in float64")
    again = eager(answer(torch.rand_like(train), test))
    marks.expect_anew(got[0], again[0])
