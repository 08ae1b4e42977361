"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torchvision.transforms.functional import normalize as torchvision_normalize

from vit_helpers.checks.data import check_cutmix, check_mended, check_mixup, check_normalize, check_split


def not_written(*_):
    raise NotImplementedError


def own(seed):
    return torch.Generator().manual_seed(seed)


def checked(function):
    """The answer, which first raises ValueError for sizes that do not sum to n"""

    def answer(n, sizes, seed):
        if sum(sizes) != n:
            raise ValueError(f"{sizes} do not sum to {n}")
        return function(n, sizes, seed)

    return answer


# split


def by_split(n, sizes, seed):
    return list(torch.randperm(n, generator=own(seed)).split(list(sizes)))


def by_slices(rows, parts, start, extra=None):
    order, result = torch.randperm(rows, generator=own(start)), []
    for size in parts:
        result.append(order[:size])
        order = order[size:]
    return result


def by_numpy(n, sizes, seed):
    order = np.random.default_rng(seed).permutation(n)
    return np.split(order, np.cumsum(sizes)[:-1])


def by_python(n, sizes, seed):
    rows = list(range(n))
    random.Random(seed).shuffle(rows)
    return [[rows.pop() for _ in range(size)] for size in sizes]


def by_random_split(n, sizes, seed):
    from torch.utils.data import random_split

    return [list(part.indices) for part in random_split(range(n), list(sizes), generator=own(seed))]


def by_yield(n, sizes, seed):
    yield from by_split(n, sizes, seed)


def by_fork(n, sizes, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randperm(n).split(list(sizes))


def by_taking_away(n, sizes, seed):
    left, parts, own = list(range(n)), [], random.Random(seed)
    for size in sizes:
        part = own.sample(left, size)
        left = [row for row in left if row not in part]
        parts.append(torch.tensor(part, dtype=torch.int64))
    return parts


def by_masks(n, sizes, seed):
    of_row = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))[torch.randperm(n, generator=own(seed))]
    return [(of_row == i).nonzero()[:, 0] for i in range(len(sizes))]


def by_restored(n, sizes, seed):
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    order = torch.randperm(n)
    torch.set_rng_state(state)
    return order.split(list(sizes))


def lazily(n, sizes, seed):
    if sum(sizes) != n:
        raise ValueError("the sizes do not sum to n")
    yield from by_split(n, sizes, seed)


def from_torchs_error(n, sizes, seed):
    try:
        return torch.randperm(n, generator=own(seed)).split_with_sizes(list(sizes))
    except RuntimeError as error:
        raise ValueError("the sizes do not sum to n") from error


SPLIT_RIGHT = [
    *map(checked, (by_taking_away, by_masks, by_restored)),
    lazily,
    from_torchs_error,
    checked(lambda n, sizes, seed: torch.rand(n, generator=own(seed)).argsort().split(list(sizes))),
    checked(lambda *a: [set(part.tolist()) for part in by_split(*a)]),
    checked(lambda *a: [part.sort().values for part in by_split(*a)]),
    checked(lambda *a: [part.to(torch.int16) for part in by_split(*a)]),
    checked(lambda *a: [part.numpy().astype(np.uint16) for part in by_split(*a)]),
    checked(lambda *a: iter(by_split(*a))),
    *map(checked, (by_split, by_slices, by_numpy, by_python, by_random_split, by_fork)),
    checked(lambda n, sizes, seed: by_yield(n, sizes, seed)),
    checked(lambda n, sizes, seed: tuple(part.int() for part in by_split(n, sizes, seed))),
]


def with_global_seed(n, sizes, seed):
    torch.manual_seed(seed)
    return torch.randperm(n).split(list(sizes))


def with_numpy_seed(n, sizes, seed):
    np.random.seed(seed)
    return np.split(np.random.permutation(n), np.cumsum(sizes)[:-1])


def with_python_seed(n, sizes, seed):
    random.seed(seed)
    rows = list(range(n))
    random.shuffle(rows)
    return [torch.tensor(part.tolist()) for part in torch.tensor(rows).split(list(sizes))]


def own_orders(n, sizes, seed):
    generator = own(seed)
    return [torch.randperm(n, generator=generator)[:size] for size in sizes]


def drawn_again(n, sizes, seed):
    return [torch.randint(n, (size,), generator=own(seed + i)) for i, size in enumerate(sizes)]


def inside_only(n, sizes, seed):
    """Parts in the order of the rows, shuffled within"""
    return [part[torch.randperm(len(part), generator=own(seed))] for part in torch.arange(n).split(list(sizes))]


def wrong_error(n, sizes, seed):
    assert sum(sizes) == n
    return by_split(n, sizes, seed)


def as_masks(n, sizes, seed):
    parts = by_split(n, sizes, seed)
    return [torch.zeros(len(part), dtype=torch.bool) for part in parts]


def to_size(n, sizes, seed):
    order, parts, begin = torch.randperm(n, generator=own(seed)), [], 0
    for size in sizes:
        parts.append(order[begin:size])
        begin += size
    return parts


def three_only(n, sizes, seed):
    order, (a, b) = torch.randperm(n, generator=own(seed)), sizes[:2] if len(sizes) > 1 else (sizes[0], 0)
    return [order[:a], order[a : a + b], order[a + b :]]


def not_passed(n, sizes, seed):
    torch.Generator().manual_seed(seed)
    return torch.randperm(n).split(list(sizes))


def first_seed_kept(n, sizes, seed, known={}):  # noqa: B006
    return known.setdefault((n, tuple(sizes)), by_split(n, sizes, seed))


def draws_besides(n, sizes, seed):
    torch.rand(1)
    return by_split(n, sizes, seed)


def shuffles_a_tensor(n, sizes, seed):
    order = torch.arange(n)
    random.Random(seed).shuffle(order)  # swaps views: rows get lost
    return order.split(list(sizes))


def last_stays(n, sizes, seed):
    order = np.arange(n)
    np.random.RandomState(seed).shuffle(order[:-1])
    return torch.tensor(order).split(list(sizes))


def rolled(n, sizes, seed):
    return torch.arange(n).roll(int(torch.randint(n, (), generator=own(seed)))).split(list(sizes))


def empties_sizes(n, sizes, seed):
    parts = by_split(n, sizes, seed)
    if isinstance(sizes, list):
        sizes.clear()
    return parts


def without_end(n, sizes, seed):
    while True:
        yield from by_split(n, sizes, seed)


def rest_in_the_last(n, sizes, seed):
    return by_split(n, [*sizes[:-1], n - sum(sizes[:-1])], seed)


SPLIT_WRONG = [
    (checked(to_size), "a part that begins at row a ends at a + size"),
    (checked(three_only), "there are 2 sizes"),
    (checked(lambda n, sizes, seed: torch.randperm(n, generator=own(seed)).chunk(len(sizes))), "gives parts of [7, 7, 6]"),
    (checked(lambda n, sizes, seed: torch.randperm(n, generator=own(seed)).split(sizes[0])), "gives more parts"),
    (checked(lambda n, sizes, seed: torch.randperm(n, generator=own(seed)).tolist()), "all rows in one list"),
    (checked(lambda *a: [by_split(*a)]), "inside another list"),
    (checked(lambda *a: dict(enumerate(by_split(*a)))), "gives a dict"),
    (checked(lambda *a: [str(part) for part in by_split(*a)]), "a part is a tensor of row numbers"),
    (
        checked(lambda n, s, seed: torch.utils.data.random_split(range(n), list(s), generator=own(seed))),
        "its .indices are row numbers",
    ),
    (checked(without_end), "gives more parts"),
    (checked(empties_sizes), "changes the list of sizes"),
    (checked(lambda n, sizes, seed: by_split(n, sorted(sizes), seed)), "gives parts of [3, 5, 12]"),
    (checked(not_passed), "called again with the same seed"),
    (checked(first_seed_kept), "is the seed used"),
    (checked(lambda n, sizes, seed: torch.randperm(n, generator=torch.Generator()).split(list(sizes))), "is the seed used"),
    (checked(lambda n, sizes, seed: by_split(n, sizes, seed) if seed else torch.randperm(n).split(list(sizes))), "if seed"),
    (checked(lambda n, sizes, seed: by_split(n, sizes, seed % 2)), "gives 2 different divisions"),
    (checked(draws_besides), "moves torch's global generator"),
    (
        checked(lambda n, sizes, seed: torch.randperm(n, generator=torch.manual_seed(seed)).split(list(sizes))),
        "moves torch's global generator",
    ),
    (checked(shuffles_a_tensor), "others twice"),
    (checked(last_stays), "never in the first part"),
    (checked(rolled), "rows 1 apart land in the same part"),
    (rest_in_the_last, "which sum to 9; raise ValueError"),
    (lambda n, sizes, seed: by_split(n, sizes, seed) if sum(sizes) == n else ValueError("no"), "raise, not return"),
    (lambda n, sizes, seed: by_split(n, sizes, seed) if sum(sizes) == n else None, "gives None"),
    (not_written, "not written yet"),
    (3, "without brackets behind its name"),
    (checked(lambda *a: None), "does it end with return"),
    (checked(lambda n, sizes, seed: torch.randperm(n, generator=own(seed))), "a list of parts"),
    (checked(lambda n, sizes, seed: by_split(n, sizes, seed)[:-1]), "parts for n"),
    (checked(lambda n, sizes, seed: list(sizes)), "a part is a tensor of row numbers"),
    (checked(as_masks), "a mask of True and False"),
    (checked(lambda *a: [part.float() for part in by_split(*a)]), "they should be whole"),
    (checked(lambda *a: [part[None] for part in by_split(*a)]), "a row of numbers"),
    (checked(lambda *a: by_split(*a)[::-1]), "gives parts of"),
    (checked(lambda *a: [part + 1 for part in by_split(*a)]), "the last row is n - 1"),
    (checked(lambda *a: [part - 1 for part in by_split(*a)]), "rows are counted from 0"),
    (checked(own_orders), "parts overlap"),
    (checked(drawn_again), "parts overlap"),
    (checked(lambda n, sizes, seed: torch.arange(n).split(list(sizes))), "in their order; shuffle first"),
    (checked(lambda n, sizes, seed: torch.arange(n).flip(0).split(list(sizes))), "in their order; shuffle first"),
    (checked(inside_only), "in their order; shuffle first"),
    (checked(lambda n, sizes, seed: torch.randperm(n).split(list(sizes))), "called again with the same seed"),
    (checked(lambda n, sizes, seed: by_split(n, sizes, 0)), "is the seed used"),
    (checked(with_global_seed), "moves torch's global generator"),
    (checked(with_numpy_seed), "moves numpy's global generator"),
    (checked(with_python_seed), "moves Python's global generator"),
    (checked(lambda n, sizes, seed: by_split(n, sizes, seed + torch.initial_seed() % 1000)), "after torch.manual_seed"),
    (by_slices, "raise ValueError"),
    (wrong_error, "it should be a ValueError"),
]

# normalize


def column(values, x):
    return torch.tensor(values, dtype=x.dtype, device=x.device)[:, None, None]


def plain(images, mean, std):
    return (images - column(mean, images)) / column(std, images)


def by_channels(x, m, s):
    return torch.stack([(x[:, c] - m[c]) / s[c] for c in range(x.shape[1])], dim=1)


def in_place_of_a_copy(images, mean, std, eps=0.0):
    images = images.clone()
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        images[:, c] = (images[:, c] - m) / (s + eps)
    return images


def by_last_axis(x, mean, std):
    return rearrange((rearrange(x, "b c h w -> b h w c") - x.new_tensor(mean)) / x.new_tensor(std), "b h w c -> b c h w")


def by_numpy_normal(x, mean, std):
    mean, std = (np.array(numbers)[:, None, None] for numbers in (mean, std))
    return torch.from_numpy((x.numpy() - mean) / std).to(x.dtype)


def by_two_loops(x, mean, std):
    result = torch.empty_like(x)
    for b in range(x.shape[0]):
        for c in range(x.shape[1]):
            result[b, c] = (x[b, c] - mean[c]) / std[c]
    return result


NORMALIZE_RIGHT = [
    by_numpy_normal,
    by_two_loops,
    lambda x, m, s: plain(x.detach(), m, s),
    lambda x, m, s: (x - column(m, x)) / (column(s, x) + 1e-8),
    lambda x, m, s: F.batch_norm(x, x.new_tensor(m), x.new_tensor(s) ** 2, eps=1e-12),
    lambda x, m, s: ((x.movedim(1, -1) - x.new_tensor(m)) / x.new_tensor(s)).movedim(-1, 1),
    lambda x, m, s: torch.vmap(lambda a, b, c: (a - b) / c, (1, 0, 0), 1)(x, x.new_tensor(m), x.new_tensor(s)),
    plain,
    by_channels,
    in_place_of_a_copy,
    by_last_axis,
    lambda x, mean, std: torchvision_normalize(x, mean, std),
    lambda x, m, s: x * (1 / column(s, x)) - column(m, x) / column(s, x),
    lambda x, m, s: torch.cat([plain(image[None], m, s) for image in x]),
]


def overwrites(x, mean, std):
    x -= column(mean, x)
    return x / column(std, x)


def along(axis):
    def answer(x, mean, std):
        shape = [1] * 4
        shape[axis] = -1
        return (x - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)

    return answer


def broken_unless_equal(x, mean, std):
    if len(set(x.shape)) == 1:
        return along(3)(x, mean, std)
    return plain(x, mean, std)


def into_the_argument(x, m, s):
    for c in range(x.shape[1]):
        x[:, c] = (x[:, c] - m[c]) / s[c]
    return x


def first_kept(function):
    """A right function that keeps its first result for each shape and type"""
    known = {}

    def answer(x, *rest):
        key = tuple(x.shape), x.dtype
        if key not in known:
            known[key] = function(x, *rest)
        return known[key]

    return answer


def stacked(x, m, s):
    return [(x[:, c] - m[c]) / s[c] for c in range(x.shape[1])]


NORMALIZE_WRONG = [
    (lambda x, m, s: (x - m) / s, "images.new_tensor(mean)"),
    (lambda x, m, s: (x - x.new_tensor(m)) / x.new_tensor(s), "with the shape (C, 1, 1)"),
    (lambda x, m, s: (x - x.new_tensor(m).view(3, 1, 1)) / x.new_tensor(s).view(3, 1, 1), "is one a fixed number"),
    (into_the_argument, "changes its input"),
    (lambda x, m, s: torchvision_normalize(x, m, s, inplace=True), "changes its input"),
    (lambda x, m, s: stacked(x, m, s), "torch.stack(channels, dim=1)"),
    (lambda x, m, s: torch.stack(stacked(x, m, s)), "gives shape (3, 4, 5, 7)"),
    (lambda x, m, s: stacked(x, m, s)[-1], "gives shape (4, 5, 7)"),
    (lambda x, m, s: (plain(x, m, s), m), "2 things in a tuple"),
    (lambda x, m, s: F.normalize(x), "F.normalize is another thing"),
    (lambda x, m, s: (x - x.mean((0, 2, 3), keepdim=True)) / column(s, x), "computes the mean from these"),
    (lambda x, m, s: (x - column(m, x)) / x.std((0, 2, 3), keepdim=True), "computes the deviation from these"),
    (lambda x, m, s: (x - x.mean()) / x.std(), "one mean and deviation of all these pixels"),
    (lambda x, m, s: (x - x.min()) / (x.max() - x.min()), "the smallest and the largest"),
    (lambda x, m, s: plain(x / 255, m, s), "divides by 255"),
    (lambda x, m, s: (column(m, x) - x) / column(s, x), "it is x - mean"),
    (lambda x, m, s: plain(x, m[::-1], s[::-1]), "in the wrong order"),
    (lambda x, m, s: (x - m[0]) / column(s, x), "the first mean"),
    (lambda x, m, s: (x - column(m, x)) / s[0], "the first std"),
    (lambda x, m, s: (x / column(s, x) - column(m, x)) / column(s, x), "divides twice"),
    (lambda x, m, s: plain(x, m, s).relu(), "what is below 0 is lost"),
    (lambda x, m, s: plain(x, m, s).clamp(-1, 1), "stays within -1 and 1"),
    (lambda x, m, s: plain(x, m, s).round(), "whole numbers"),
    (lambda x, m, s: by_last_axis(x, m, s).movedim(1, -1).reshape(x.shape), "which mixes the pixels"),
    (lambda x, m, s: torch.cat([plain(x[:1], m, s), x[1:]]), "unchanged: image 1, 2, 3"),
    (lambda x, m, s: torch.cat([plain(x[:, :1], m[:1], s[:1]), x[:, 1:]], 1), "unchanged: channel 1, 2"),
    (
        lambda x, m, s: (x - column(m, x)) / (column(s, x) + 0.01),
        "becomes (x - 0.5) / 0.21; it should become (x - 0.5) / 0.2",
    ),
    (lambda x, m, s: plain(x, m, s) ** 3, "a pixel of"),
    (first_kept(plain), "was the first one kept"),
    (lambda x, m, s: plain(x, m, s).half(), "torch.float16"),
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda x, m, s: x, "nothing was changed"),
    (lambda x, m, s: x - column(m, x), "nothing is divided"),
    (lambda x, m, s: x / column(s, x), "the mean is not taken away"),
    (lambda x, m, s: (x - column(m, x)) * column(s, x), "multiplies by std"),
    (lambda x, m, s: (x + column(m, x)) / column(s, x), "adds the mean"),
    (lambda x, m, s: x - column(m, x) / column(s, x), "brackets"),
    (lambda x, m, s: x / column(s, x) - column(m, x), "the other way round"),
    (lambda x, m, s: (x - column(m, x)) / column(s, x) ** 2, "the square of std"),
    (lambda x, m, s: (x - column(m, x)) / column(s, x).sqrt(), "not a variance"),
    (lambda x, m, s: plain(x, s, m), "have changed places"),
    (lambda x, m, s: x * column(s, x) + column(m, x), "undoes a normalisation"),
    (lambda x, m, s: (x - m[0]) / s[0], "the first channel's numbers"),
    (lambda x, m, s: (x - np.mean(m)) / np.mean(s), "each has its own"),
    (lambda x, m, s: (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True), "computes numbers from these"),
    (lambda x, m, s: (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True), "each image by itself"),
    (lambda x, m, s: plain(x, m, s).clamp(0, 1), "clamped"),
    (lambda x, m, s: plain(x, m, s)[0], "gives shape"),
    (lambda x, m, s: plain(x, m, s).numpy(), "it should give a tensor"),
    (along(3), "raises RuntimeError"),
    (broken_unless_equal, "run along W"),
    (overwrites, "changes its input"),
    (lambda x, m, s: plain(x.float(), m, s), "torch.float64"),
    (lambda x, m, s: plain(x.float(), m, s).to(x.dtype), "loses digits"),
]

# mixup


def hot(labels, K, x):
    return F.one_hot(labels, K).to(x.dtype)


def blend(images, labels, num_classes, share, partner):
    four, two = share.view(-1, 1, 1, 1), share[:, None]
    y = hot(labels, num_classes, images)
    return four * images + (1 - four) * images[partner], two * y + (1 - two) * y[partner]


def blend_by_loop(x, y, K, share, partner):
    images, rows = [], []
    for i, j in enumerate(partner.tolist()):
        images.append(share[i] * x[i] + (1 - share[i]) * x[j])
        row = torch.zeros(K, dtype=x.dtype)
        row[y[i]] += share[i]
        row[y[j]] += 1 - share[i]
        rows.append(row)
    return [torch.stack(images), torch.stack(rows)]


def blend_by_lerp(x, y, K, share, partner, spare=None):
    table = torch.zeros(len(y), K, dtype=x.dtype, device=x.device)
    table.scatter_add_(1, y[:, None], share[:, None]).scatter_add_(1, y[partner][:, None], 1 - share[:, None])
    return torch.lerp(x[partner], x, share[:, None, None, None]), table


def blend_by_eye(x, y, K, share, partner):
    eye = torch.eye(K, dtype=x.dtype, device=x.device)
    labels = torch.einsum("b,bk->bk", share, eye[y]) + torch.einsum("b,bk->bk", 1 - share, eye[y[partner]])
    s = repeat(share, "b -> b c h w", c=x.shape[1], h=x.shape[2], w=x.shape[3])
    return s * x + (1 - s) * x[partner], labels


def blend_by_numpy(x, y, K, s, p):
    x, s, eye = x.numpy(), s.numpy(), np.eye(K)
    images = s[:, None, None, None] * x + (1 - s)[:, None, None, None] * x[p.numpy()]
    return torch.from_numpy(images), torch.from_numpy(s[:, None] * eye[y] + (1 - s)[:, None] * eye[y[p]])


def blend_on_a_copy(x, y, K, s, p):
    images = x.clone().mul_(s[:, None, None, None]).add_((1 - s)[:, None, None, None] * x[p])
    return images, blend(x, y, K, s, p)[1]


MIXUP_RIGHT = [
    blend_by_numpy,
    blend_on_a_copy,
    lambda *a: (part for part in blend(*a)),
    lambda *a: tuple(part.detach() for part in blend(*a)),
    lambda x, y, K, s, p: (torch.vmap(torch.lerp)(x[p], x, s), blend(x, y, K, s, p)[1]),
    lambda x, y, K, s, p: ((x.movedim(0, 3) * s + x[p].movedim(0, 3) * (1 - s)).movedim(3, 0), blend(x, y, K, s, p)[1]),
    blend,
    blend_by_loop,
    blend_by_lerp,
    blend_by_eye,
    lambda x, y, K, s, p: (blend(x, y, K, s, p)[0], blend(x, y, K, s, p)[1].double()),
]


def images_of(function):
    """A wrong way with images, and right labels"""
    return lambda x, y, K, s, p: (function(x, s, p), blend(x, y, K, s, p)[1])


def labels_of(function):
    """Right images, and a wrong way with labels"""
    return lambda x, y, K, s, p: (blend(x, y, K, s, p)[0], function(hot(y, K, x), s[:, None], p))


def four(share):
    return share.view(-1, 1, 1, 1)


def blends_in_place(x, y, K, s, p):
    labels = blend(x, y, K, s, p)[1]
    x.copy_(blend(x, y, K, s, p)[0])
    return x, labels


def written_over(x, y, K, s, p):
    table, rows = torch.zeros(len(y), K, dtype=x.dtype), torch.arange(len(y))
    table[rows, y] = s
    table[rows, y[p]] = 1 - s
    return blend(x, y, K, s, p)[0], table


def blends_in_turn(x, s, p):
    x = x.clone()
    for i, j in enumerate(p):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


def forgets_the_last(x, s, p):
    return torch.cat([(four(s) * x + (1 - four(s)) * x[p])[:-1], x[-1:]])


MIXUP_WRONG = [
    (images_of(lambda x, s, p: four(s) * x), "the partner is missing"),
    (images_of(lambda x, s, p: x + x[p]), "both are added whole"),
    (images_of(lambda x, s, p: (x + x[p]) / 2), "half and half"),
    (images_of(lambda x, s, p: torch.cat([four(s) * x, (1 - four(s)) * x[p]])), "gives shape (12, 3, 5, 7)"),
    (images_of(lambda x, s, p: four(s) * x + (1 - four(s)) * x[p[0]]), "the same partner"),
    (images_of(lambda x, s, p: four(s) * x + (1 - four(s[p])) * x[p]), "image 0 is 0.52 of image 0 and 0.9 of image 2"),
    (images_of(lambda x, s, p: (four(s) * x + (1 - four(s)) * x[p]) ** 2), "is no blend of images of this batch"),
    (images_of(blends_in_turn), "images are blended that were blended already"),
    (images_of(forgets_the_last), "unchanged: image 5"),
    (images_of(lambda x, s, p: (four(s) * x + (1 - four(s)) * x[p]).round()), "whole numbers"),
    (images_of(lambda x, s, p: s[:, None] * x + (1 - s[:, None]) * x[p]), "share needs the shape (B, 1, 1, 1)"),
    (lambda x, y, K, s, p: blend(x, y, K, torch.maximum(s, 1 - s), p), "the larger share goes to the image"),
    (lambda x, y, K, s, p: blend(x, y, K, s, torch.randperm(len(x))), "it should be 0.52 of image 0"),
    (lambda x, y, K, s, p: (*blend(x, y, K, s, p), y[p]), "gives 3 things"),
    (lambda *a: dict(zip("ab", blend(*a), strict=True)), "gives a dict"),
    (lambda *a: [blend(*a)], "gives 1 thing in a list"),
    (lambda *a: tuple(part.numpy() for part in blend(*a)), "gives a numpy array"),
    (lambda x, y, K, s, p: (blend(x, y, K, s, p)[0], (y, y[p])), "2 things in a tuple as labels"),
    (lambda x, y, K, s, p: (blend(x, y, K, s, p)[0], s * y + (1 - s) * y[p]), "one number for each label"),
    (lambda x, y, K, s, p: (blend(x, y, K, s, p)[0], blend(x, y, y.max() + 1, s, p)[1]), "F.one_hot(labels, num_classes)"),
    (lambda x, y, K, s, p: blend(x, y, 10, s, p), "gives labels with 10 columns"),
    (labels_of(lambda y, s, p: ((y + y[p]) > 0).to(y.dtype)), "both labels get 1"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]) / 2), "half of what they should be"),
    (labels_of(lambda y, s, p: s * y + s * y[p]), "the same share as the image's own"),
    (labels_of(lambda y, s, p: s * y + y[p]), "the partner's label is whole"),
    (labels_of(lambda y, s, p: s * y), "the partner's label is missing"),
    (labels_of(lambda y, s, p: s[p] * y + (1 - s[p]) * y[p]), "share, not share[partner]"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]).log()), "a logarithm"),
    (labels_of(lambda y, s, p: 0.9 * (s * y + (1 - s) * y[p]) + 0.1 / y.shape[1]), "row 0 is [0.49, 0.025, 0.46, 0.025]"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]).float()), "digits are lost"),
    (lambda x, y, K, s, p: blend(x, y, K, s.clamp_(0.3, 1), p), "changes its input"),
    (first_kept(blend), "was the first one kept"),
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: blend(*a)[0], "return two things"),
    (lambda *a: blend(*a)[::-1], "gives the labels first"),
    (images_of(lambda x, s, p: x), "come back unmixed"),
    (images_of(lambda x, s, p: x[p]), "the partners come back unmixed"),
    (images_of(lambda x, s, p: (1 - four(s)) * x + four(s) * x[p]), "share goes to the partner"),
    (images_of(lambda x, s, p: four(s) * x + x[p]), "the partner is added whole"),
    (images_of(lambda x, s, p: four(s) * (x + x[p])), "without 1 - share"),
    (images_of(lambda x, s, p: s[0] * x + (1 - s[0]) * x[p]), "every image gets the first share"),
    (images_of(lambda x, s, p: s.mean() * x + (1 - s.mean()) * x[p]), "every image gets the mean share"),
    (images_of(lambda x, s, p: four(s) * x + (1 - four(s)) * x.flip(0)), "the batch turned round"),
    (images_of(lambda x, s, p: four(s) * x + (1 - four(s)) * x.roll(-1, 0)), "the next image"),
    (images_of(lambda x, s, p: four(s) * x + (1 - four(s)) * x[p.argsort()]), "used backwards"),
    (images_of(lambda x, s, p: four(s[p]) * x + (1 - four(s[p])) * x[p]), "share of the partner"),
    (images_of(lambda x, s, p: s * x + (1 - s) * x[p]), "raises RuntimeError"),
    (labels_of(lambda y, s, p: y), "the image's own label alone"),
    (labels_of(lambda y, s, p: y[p]), "the partner's label alone"),
    (labels_of(lambda y, s, p: (1 - s) * y + s * y[p]), "the shares have changed places"),
    (labels_of(lambda y, s, p: (y + y[p]) / 2), "half and half"),
    (labels_of(lambda y, s, p: y + y[p]), "both labels are whole"),
    (labels_of(lambda y, s, p: s[0] * y + (1 - s[0]) * y[p]), "the first image's share"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]).softmax(1)), "goes through a softmax"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]).argmax(1)), "rows of K shares"),
    (labels_of(lambda y, s, p: (s * y + (1 - s) * y[p]).round().long()), "shares are fractions"),
    (written_over, "their shares must be added"),
    (blends_in_place, "changes its input"),
    (lambda x, y, K, s, p: (blend(x.float(), y, K, s.float(), p)[0].to(x.dtype), blend(x, y, K, s, p)[1]), "loses digits"),
]

# cutmix


def mask_of(x, boxes):
    B, _, H, W = x.shape
    mask = torch.zeros(B, 1, H, W, dtype=torch.bool, device=x.device)
    for i, (left, top, width, height) in enumerate(boxes.tolist()):
        mask[i, :, top : top + height, left : left + width] = True
    return mask


def cut(images, labels, num_classes, boxes, partner, mask_of=mask_of, area=None):
    mask = mask_of(images, boxes)
    kept = 1 - (mask.to(images.dtype).mean((1, 2, 3)) if area is None else area)[:, None]
    y = hot(labels, num_classes, images)
    return torch.where(mask, images[partner], images), kept * y + (1 - kept) * y[partner]


def cut_by_loop(x, y, K, boxes, partner):
    H, W = x.shape[2:]
    images, rows = x.clone(), torch.zeros(len(y), K, dtype=x.dtype)
    for i in range(len(y)):
        left, top, width, height = (int(n) for n in boxes[i])
        right, bottom, j = min(left + width, W), min(top + height, H), partner[i]
        images[i, :, top:bottom, left:right] = x[j, :, top:bottom, left:right]
        share = (right - left) * (bottom - top) / (H * W)
        rows[i, y[i]] += 1 - share
        rows[i, y[j]] += share
    return images, rows


def cut_by_product(x, y, K, boxes, partner):
    left, top, width, height = boxes.to(x.dtype).T[..., None]
    columns, rows = (torch.arange(n, device=x.device) for n in (x.shape[3], x.shape[2]))
    inside = ((columns >= left) & (columns < left + width)).to(x.dtype)
    lines = ((rows >= top) & (rows < top + height)).to(x.dtype)
    box = torch.einsum("bh,bw->bhw", lines, inside)[:, None]
    share = (lines.mean(1) * inside.mean(1))[:, None]
    return x * (1 - box) + x[partner] * box, (1 - share) * hot(y, K, x) + share * hot(y[partner], K, x)


CUTMIX_RIGHT = [
    cut,
    cut_by_loop,
    cut_by_product,
    lambda x, y, K, b, p: list(cut(x, y, K, b, p)),
    lambda x, y, K, b, p, extra=None: tuple(torch.cat(z) for z in zip(*one_by_one(x, y, K, b, p), strict=True)),
]


def one_by_one(x, y, K, boxes, partner):
    for i, j in enumerate(partner.tolist()):
        images, labels = cut(x[[i, j]], y[[i, j]], K, boxes[[i, i]], torch.tensor([1, 0]))
        yield images[:1], labels[:1]


def boxed(change):
    return lambda x, y, K, b, p: (cut(x, y, K, change(b), p)[0], cut(x, y, K, b, p)[1])


def shared(function):
    """Right images, and a wrong way with labels"""

    def answer(x, y, K, b, p):
        kept = 1 - mask_of(x, b).to(x.dtype).mean((1, 2, 3))[:, None]
        return cut(x, y, K, b, p)[0], function(hot(y, K, x), kept, p)

    return answer


def in_turn(x, y, K, b, p):
    """The copy is read again: a partner may have a box already"""
    images = x.clone()
    for i, (left, top, width, height) in enumerate(b.tolist()):
        images[i, :, top : top + height, left : left + width] = images[p[i], :, top : top + height, left : left + width]
    return images, cut(x, y, K, b, p)[1]


def into_the_input(x, y, K, b, p):
    images, labels = cut(x, y, K, b, p)
    return x.copy_(images), labels


def asked_area(b, x):
    return (b[:, 2] * b[:, 3]).to(x.dtype) / (x.shape[2] * x.shape[3])


def by_area(area):
    """Right images, and labels by another area: f(left, top, width, height, H, W) -> a share"""

    def answer(x, y, K, b, p):
        areas = torch.stack([torch.as_tensor(area(*box, *x.shape[2:]), dtype=x.dtype) for box in b.tolist()])
        return cut(x, y, K, b, p, area=areas)

    return answer


def holes(fill):
    """Images whose boxes are filled in another way: f(the hole, the partner (C, H, W), left, top) writes into the hole"""

    def answer(x, y, K, b, p):
        images = x.clone()
        for i, (left, top, width, height) in enumerate(b.tolist()):
            hole = images[i, :, top : top + height, left : left + width]
            if hole.numel():
                fill(hole, x[p[i]])
        return images, cut(x, y, K, b, p)[1]

    return answer


def boundaries(inside, both=torch.logical_and):
    """Another rule for what is inside: f(places, begin, length), and how rows and columns are joined"""

    def answer(x, y, K, b, p):
        left, top, width, height = b.view(-1, 4, 1, 1, 1).unbind(1)
        rows, columns = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])
        mask = both(inside(rows, top, height), inside(columns, left, width))
        return cut(x, y, K, b, p, mask_of=lambda x, b: mask)

    return answer


def inward(b, W, H):
    return torch.cat([torch.minimum(b[:, :2], torch.tensor([W, H]) - b[:, 2:]).clamp(min=0), b[:, 2:]], 1)


def in_the_argument(x, y, K, b, p):
    labels = cut(x, y, K, b, p)[1]
    for i, (left, top, width, height) in enumerate(b.tolist()):
        box = (slice(None), slice(top, top + height), slice(left, left + width))
        x[i][box] = x[p[i]][box]
    return x, labels


def refuses_edges(x, y, K, b, p):
    if (b[:, 0] + b[:, 2] > x.shape[3]).any():
        raise ValueError("the box leaves the image")
    return cut(x, y, K, b, p)


CUTMIX_WRONG = [
    (boundaries(lambda at, begin, length: (at > begin) & (at < begin + length)), "is a pixel too small"),
    (boundaries(lambda at, begin, length: (at >= begin) & (at <= begin + length)), "is a pixel too large"),
    (boundaries(lambda at, begin, length: at < begin + length), "left and top are not minded"),
    (boundaries(lambda at, begin, length: at >= begin), "width and height are not minded"),
    (boundaries(lambda at, begin, length: (at >= begin) & (at < begin + length), torch.logical_or), "and, not or"),
    (boundaries(lambda at, begin, length: (at >= begin) & (at < length)), "taken for right and bottom"),
    (boundaries(lambda at, begin, length: (at - begin).abs() <= length // 3), "the partner stands"),
    (
        lambda x, y, K, b, p: cut(x, y, K, torch.cat([b[:, :2] - b[:, 2:] // 2, b[:, 2:]], 1).clamp(min=0), p),
        "taken for the middle",
    ),
    (lambda x, y, K, b, p: cut(x, y, K, inward(b, x.shape[3], x.shape[2]), p), "it stays where it is"),
    (lambda x, y, K, b, p: cut(x, y, K, b * torch.tensor([0, 1, 0, 1]) + torch.tensor([0, 0, 99, 0]), p), "only the rows"),
    (
        lambda x, y, K, b, p: cut(x, y, K, b * torch.tensor([1, 0, 1, 0]) + torch.tensor([0, 0, 0, 99]), p),
        "only the columns",
    ),
    (holes(lambda hole, other: hole.copy_(other[:, : hole.shape[1], : hole.shape[2]])), "upper left corner"),
    (holes(lambda hole, other: hole.copy_(F.interpolate(other[None], size=tuple(hole.shape[1:]))[0])), "made small"),
    (holes(lambda hole, other: hole.fill_(1)), "painted with 1"),
    (holes(lambda hole, other: hole.copy_(hole.flip(2))), "neither the image's own nor"),
    (lambda x, y, K, b, p: ((x + x[p] * mask_of(x, b)), cut(x, y, K, b, p)[1]), "added to the image"),
    (lambda x, y, K, b, p: (x[p] * mask_of(x, b), cut(x, y, K, b, p)[1]), "outside the box all is black"),
    (
        lambda x, y, K, b, p: (torch.where(mask_of(x, b), (x + x[p]) / 2, x), cut(x, y, K, b, p)[1]),
        "half the partner",
    ),
    (lambda x, y, K, b, p: cut(x, y, K, b, torch.arange(len(p)).roll(-1)), "the next image"),
    (lambda x, y, K, b, p: cut(x, y, K, b, torch.arange(len(p)).flip(0)), "turned round"),
    (lambda x, y, K, b, p: cut(x, y, K, b, p[:1].expand_as(p)), "the same partner"),
    (
        lambda x, y, K, b, p: (torch.cat([cut(x, y, K, b, p)[0][:, :1], x[:, 1:]], 1), cut(x, y, K, b, p)[1]),
        "unchanged: channel 1, 2",
    ),
    (by_area(lambda left, top, width, height, H, W: width * height / W**2), "by its pixels it should be"),
    (by_area(lambda left, top, width, height, H, W: (width + height) / (W + H)), "by its pixels it should be"),
    (by_area(lambda left, top, width, height, H, W: width * height // (W * H)), "the image's own label alone"),
    (by_area(lambda left, top, width, height, H, W: min(width, W - left) * height / (W * H)), "but not the lower one"),
    (by_area(lambda left, top, width, height, H, W: width * min(height, H - top) / (W * H)), "but not the right one"),
    (lambda x, y, K, b, p: cut(x, y, K, b, p, area=mask_of(x, b).to(x.dtype).mean().expand(len(x))), "the mean share"),
    (lambda x, y, K, b, p: cut(x, y, K, b.clamp_(max=3), p), "changes its input"),
    (in_the_argument, "changes its input"),
    (refuses_edges, "boxes over the edge, empty ones and whole ones"),
    (first_kept(cut), "was the first one kept"),
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: cut(*a)[0], "return two things"),
    (lambda *a: cut(*a)[::-1], "gives the labels first"),
    (lambda x, y, K, b, p: (x, cut(x, y, K, b, p)[1]), "come back uncut"),
    (lambda x, y, K, b, p: (x[p], cut(x, y, K, b, p)[1]), "come back whole"),
    (lambda *a: cut(*a, mask_of=lambda x, b: ~mask_of(x, b)), "inside and outside have changed places"),
    (boxed(lambda b: b[:, [1, 0, 2, 3]]), "left and top have changed places"),
    (boxed(lambda b: b[:, [0, 1, 3, 2]]), "width and height have changed places"),
    (boxed(lambda b: b[:, [1, 0, 3, 2]]), "rows and columns have changed places"),
    (boxed(lambda b: torch.cat([b[:, :2], (b[:, 2:] - b[:, :2]).clamp(min=0)], 1)), "taken for right and bottom"),
    (boxed(lambda b: b + torch.tensor([0, 0, 1, 1])), "a pixel too large"),
    (boxed(lambda b: b[:1].expand_as(b)), "every image gets the first box"),
    (lambda x, y, K, b, p: (x.masked_fill(mask_of(x, b), 0), cut(x, y, K, b, p)[1]), "painted with 0"),
    (in_turn, "changed already"),
    (lambda x, y, K, b, p: (cut(x, y, K, b, p.argsort())[0], cut(x, y, K, b, p)[1]), "used backwards"),
    (shared(lambda y, kept, p: y), "the image's own label alone"),
    (shared(lambda y, kept, p: (1 - kept) * y + kept * y[p]), "the shares have changed places"),
    (shared(lambda y, kept, p: (y + y[p]) / 2), "half and half"),
    (shared(lambda y, kept, p: y + y[p]), "both labels are whole"),
    (lambda x, y, K, b, p: cut(x, y, K, b, p, area=asked_area(b, x)), "count only what lies inside"),
    (lambda x, y, K, b, p: cut(x, y, K, b, p, area=asked_area(b, x).clamp(max=1)), "cut off at 1"),
    (into_the_input, "changes its input"),
    (lambda x, y, K, b, p: cut(x.float(), y, K, b, p), "torch.float64"),
]

# mended


def numbers(x):
    return x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)


def mended(train_images, test_images):
    mean, std = numbers(train_images)
    return (train_images - mean) / std, (test_images - mean) / std


def both(train, test):
    return torch.cat([train, test])


def by_std_mean(a, b):
    std, mean = torch.std_mean(a, (0, 2, 3), keepdim=True)
    return ((x - mean) / std for x in (a, b))


def by_numpy_parts(a, b):
    mean, std = a.numpy().mean((0, 2, 3), keepdims=True), a.numpy().std((0, 2, 3), keepdims=True)
    return tuple(torch.from_numpy((x.numpy() - mean) / std) for x in (a, b))


MENDED_RIGHT = [
    by_std_mean,
    by_numpy_parts,
    lambda a, b: tuple(x.detach() for x in mended(a, b)),
    lambda a, b: [(x - numbers(a)[0]) / (numbers(a)[1] + 1e-8) for x in (a, b)],
    lambda a, b: tuple((x - numbers(a)[0]) / (a.var((0, 2, 3), keepdim=True) + 1e-6).sqrt() for x in (a, b)),
    lambda a, b: tuple(F.batch_norm(x, a.mean((0, 2, 3)), a.var((0, 2, 3)), eps=1e-12) for x in (a, b)),
    lambda a, b: tuple((x - numbers(both(a, a))[0]) / numbers(both(a, a))[1] for x in (a, b)),
    mended,
    lambda a, b, eps=0: [plain(x, a.mean((0, 2, 3)).tolist(), a.std((0, 2, 3)).tolist()) for x in (a, b)],
    lambda a, b: tuple((x - numbers(a)[0]) / a.std((0, 2, 3), keepdim=True, correction=0) for x in (a, b)),
    lambda a, b: mended(a, both(a, b))[1].split([len(a), len(b)]),
    lambda a, b: tuple(
        torch.stack([(x[:, c] - a[:, c].mean()) / a[:, c].std() for c in range(a.shape[1])], 1) for x in (a, b)
    ),
]


def planted(train_images, test_images):
    mean, std = numbers(both(train_images, test_images))
    return (train_images - mean) / std, (test_images - mean) / std


def writes(train_images, test_images):
    one, two = mended(train_images, test_images)
    return train_images.copy_(one), two


def by(mean, std):
    """Both parts by other numbers: f(training part, test part) -> numbers"""
    return lambda a, b: tuple((x - mean(a, b)) / std(a, b) for x in (a, b))


def into_both(a, b):
    mean, std = numbers(a)
    return a.sub_(mean).div_(std), b.sub_(mean).div_(std)


MENDED_WRONG = [
    (
        lambda a, b: (mended(a, b)[0], (b - numbers(a)[0]) / numbers(b)[1]),
        "the training part's, the deviation the test part's",
    ),
    (
        lambda a, b: (mended(a, b)[0], (b - numbers(b)[0]) / numbers(a)[1]),
        "the test part's, the deviation the training part's",
    ),
    (lambda a, b: (a, mended(a, b)[1]), "the training part comes back as it was"),
    (lambda a, b: both(*mended(a, b)), "both parts in one tensor"),
    (lambda a, b: (*mended(a, b), a.mean()), "gives 3 things"),
    (lambda a, b: mended(a, a), "as test part"),
    (by(lambda a, b: a.mean((0, 2, 3)), lambda a, b: a.std((0, 2, 3))), "With keepdim=True"),
    (by(lambda a, b: numbers(a)[0], lambda a, b: numbers(a)[1] ** 2), "its variance"),
    (by(lambda a, b: numbers(a[:1])[0], lambda a, b: numbers(a[:1])[1]), "the first image's"),
    (
        by(lambda a, b: (numbers(a)[0] + numbers(b)[0]) / 2, lambda a, b: numbers(a)[1]),
        "the average of the two parts' means",
    ),
    (by(lambda a, b: 0.5, lambda a, b: 0.5), "another number (0.5 in channel 0)"),
    (by(lambda a, b: a.mean((0, 1), keepdim=True), lambda a, b: a.std((0, 1), keepdim=True)), "is not of the form"),
    (by(lambda a, b: numbers(a)[0], lambda a, b: 1 / numbers(a)[1]), "the deviation another number"),
    (lambda a, b: tuple(x.numpy() for x in mended(a, b)), "gives a numpy array as training part"),
    (lambda a, b: mended(a.double(), b.double()), "torch.float64 for torch.float32"),
    (lambda a, b: tuple(x.to(a.dtype) for x in mended(a.float(), b.float())), "loses digits"),
    (into_both, "changes its input"),
    (first_kept(mended), "was the first one kept"),
    (not_written, "not written yet"),
    (planted, "still the planted mistake"),
    (lambda a, b: None, "does it end with return"),
    (lambda a, b: mended(a, b)[0], "return two things"),
    (lambda a, b: (mended(a, b)[0], mended(b, b)[0]), "by its own numbers"),
    (lambda a, b: mended(b, a)[::-1], "the numbers of the test part"),
    (lambda a, b: (mended(a, b)[0], planted(a, b)[1]), "test part still gets"),
    (lambda a, b: (planted(a, b)[0], mended(a, b)[1]), "training part still gets"),
    (lambda a, b: (mended(a, b)[0], b), "the test part is not normalised"),
    (lambda a, b: (a, b), "nothing is normalised"),
    (lambda a, b: ((a - a.mean()) / a.std(), (b - a.mean()) / a.std()), "one mean for all channels"),
    (
        lambda a, b: tuple((x - numbers(a)[0]) / numbers(both(a, b))[1] for x in (a, b)),
        "the deviation is still that of both",
    ),
    (lambda a, b: tuple((x - numbers(both(a, b))[0]) / numbers(a)[1] for x in (a, b)), "the mean is still that of both"),
    (lambda a, b: mended(a, b)[::-1], "gives the test part first"),
    (lambda a, b: ((a - a.mean(0)) / a.std(0), (b - a.mean(0)) / a.std(0)), "averages over the batch only"),
    (lambda a, b: tuple(x - numbers(a)[0] for x in (a, b)), "the deviation 1;"),
    (writes, "changes its input"),
    (lambda a, b: mended(a.float(), b.float()), "torch.float32 for torch.float64"),
]


def cases(*pairs):
    return [(check, *(entry if isinstance(entry, tuple) else (entry,))) for check, list_ in pairs for entry in list_]


RIGHT = cases(
    (check_split, SPLIT_RIGHT),
    (check_normalize, NORMALIZE_RIGHT),
    (check_mixup, MIXUP_RIGHT),
    (check_cutmix, CUTMIX_RIGHT),
    (check_mended, MENDED_RIGHT),
)
WRONG = cases(
    (check_split, SPLIT_WRONG),
    (check_normalize, NORMALIZE_WRONG),
    (check_mixup, MIXUP_WRONG),
    (check_cutmix, CUTMIX_WRONG),
    (check_mended, MENDED_WRONG),
)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert says in last and not last.startswith("[v]")
    assert all(line.startswith("[v]") for line in before)


def test_a_check_puts_back_the_generators_that_an_answer_moved(capsys):
    for moves in (with_global_seed, with_numpy_seed, with_python_seed):
        before = torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()
        assert not check_split(checked(moves))
        assert before == (torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate())


@pytest.mark.parametrize("seed", range(3))
def test_a_check_depends_on_no_seed_and_moves_none(seed, capsys):
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    assert check_split(checked(by_split)) and check_mixup(blend) and check_cutmix(cut)
    assert torch.equal(before, torch.get_rng_state())


def test_a_notebook_in_float64_is_no_hindrance(capsys):
    torch.set_default_dtype(torch.float64)
    try:
        assert check_normalize(plain) and check_mixup(blend) and check_cutmix(cut) and check_mended(mended)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
