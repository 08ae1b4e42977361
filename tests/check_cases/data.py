"""Answers to the exercises of notebook 06."""

import random
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch.utils.data import random_split
from torchvision.transforms.functional import normalize as torchvision_normalize

from vit_helpers.checks.data_mixing import box_mask, cut, cutmix, holes, masked, mixup

# split


def own(seed):
    return torch.Generator().manual_seed(seed)


def checked(function):
    """The answer, which first raises ValueError for sizes that do not sum to n."""

    def answer(n, sizes, seed):
        if sum(sizes) != n:
            raise ValueError(f"{sizes} do not sum to {n}")
        return function(n, sizes, seed)

    return answer


def by_split(n, sizes, seed):
    return list(torch.randperm(n, generator=own(seed)).split(list(sizes)))


def changed(change):
    """Right parts, changed as told."""
    return checked(lambda *given: change(by_split(*given)))


def by_order(order):
    """The parts of another order: f(n, seed)."""
    return checked(lambda n, sizes, seed: torch.as_tensor(order(n, seed)).split(list(sizes)))


def by_slices(rows, parts, start, extra=None):
    order, result = torch.randperm(rows, generator=own(start)), []
    for size in parts:
        result.append(order[:size])
        order = order[size:]
    return result


def by_taking_away(n, sizes, seed):
    left, own = list(range(n)), random.Random(seed)
    for size in sizes:
        yield (part := own.sample(left, size))
        left = [row for row in left if row not in part]


def by_masks(n, sizes, seed):
    of_row = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))[torch.randperm(n, generator=own(seed))]
    return [(of_row == i).nonzero()[:, 0] for i in range(len(sizes))]


def by_restored(n, seed):
    state = torch.get_rng_state()
    order = torch.randperm(n, generator=torch.manual_seed(seed))
    torch.set_rng_state(state)
    return order


def from_torchs_error(n, sizes, seed):
    try:
        return torch.randperm(n, generator=own(seed)).split_with_sizes(list(sizes))
    except RuntimeError as error:
        raise ValueError("the sizes do not sum to n") from error


def shuffled(n, by, stay=0):
    """Rows shuffled in place; of a tensor Python swaps views, and rows get lost."""
    order = np.arange(n) if isinstance(by, np.random.RandomState) else torch.arange(n)
    by.shuffle(order[: n - stay])
    return order


def to_size(n, sizes, seed):
    order, parts, begin = torch.randperm(n, generator=own(seed)), [], 0
    for size in sizes:
        parts.append(order[begin:size])
        begin += size
    return parts


def without_end(n, sizes, seed):
    while True:
        yield from by_split(n, sizes, seed)


def wrong_error(n, sizes, seed):
    assert sum(sizes) == n
    return by_split(n, sizes, seed)


SPLIT_RIGHT = [
    from_torchs_error,
    *map(checked, (by_split, by_slices, by_taking_away, by_masks)),
    *map(by_order, (by_restored, lambda n, seed: torch.rand(n, generator=own(seed)).argsort())),
    checked(lambda n, s, seed: np.split(np.random.default_rng(seed).permutation(n), np.cumsum(s)[:-1])),
    checked(lambda n, s, seed: [list(part.indices) for part in random_split(range(n), list(s), generator=own(seed))]),
    changed(lambda parts: [set(part.tolist()) for part in parts]),
    changed(lambda parts: [part.sort().values.to(torch.int16) for part in parts]),
    changed(lambda parts: [part.numpy().astype(np.uint16) for part in parts]),
]
SPLIT_WRONG = {
    "a part that begins at row a ends at a + size": checked(to_size),
    "gives parts of [7, 7, 6]": checked(lambda n, s, seed: torch.randperm(n, generator=own(seed)).chunk(len(s))),
    "and so on": [checked(lambda n, s, seed: by_split(n, sorted(s), seed)), changed(lambda parts: parts[::-1])],
    "gives more parts": [changed(lambda parts: torch.cat(parts).split(1)), checked(without_end)],
    "gives 2 parts": changed(lambda parts: parts[:-1]),
    "there are 2 sizes": checked(lambda n, s, seed: by_split(n, (*s, *[0] * (3 - len(s))), seed)),
    "all rows in one list": changed(lambda parts: torch.cat(parts).tolist()),
    "inside another list": changed(lambda parts: [parts]),
    "gives a dict": changed(lambda parts: dict(enumerate(parts))),
    "a list of parts": changed(torch.cat),
    "does it end with return": changed(lambda parts: None),
    "a part is a tensor of row numbers":
        [changed(lambda parts: [str(part) for part in parts]), changed(lambda parts: [len(part) for part in parts])],
    "its .indices are row numbers": checked(lambda n, s, seed: random_split(range(n), list(s), generator=own(seed))),
    "a mask of True and False": changed(lambda parts: [part > 0 for part in parts]),
    "they should be whole": changed(lambda parts: [part.float() for part in parts]),
    "a row of numbers": changed(lambda parts: [part[None] for part in parts]),
    "changes the list of sizes": checked(lambda n, s, seed: (by_split(n, s, seed), isinstance(s, list) and s.clear())[0]),
    "the last row is n - 1": changed(lambda parts: [part + 1 for part in parts]),
    "rows are counted from 0": changed(lambda parts: [part - 1 for part in parts]),
    "others twice": [
        by_order(lambda n, seed: shuffled(n, random.Random(seed))),
        checked(lambda n, s, seed: [torch.randperm(n, generator=own(seed + i))[:size] for i, size in enumerate(s)]),
    ],
    "in their order; shuffle first": [
        *map(by_order, (lambda n, seed: torch.arange(n), lambda n, seed: torch.arange(n).flip(0))),
        changed(lambda parts: [rows[part.argsort()] for part, rows in zip(parts, by_rows(parts), strict=True)]),
    ],
    "called again with the same seed; is the generator started from it?": [
        by_order(lambda n, seed: torch.randperm(n)),
        checked(lambda n, s, seed: by_split(n, s, seed + torch.initial_seed() % 1000)),
    ],
    "`if seed` says no": checked(lambda n, s, seed: by_split(n, s, seed) if seed else torch.randperm(n).split(list(s))),
    "is the seed used": [
        by_order(lambda n, seed, known={}: known.setdefault(n, torch.randperm(n, generator=own(seed)))),
        by_order(lambda n, seed: torch.randperm(n, generator=torch.Generator())),
    ],
    "gives 2 different divisions": checked(lambda n, s, seed: by_split(n, s, seed % 2)),
    "gives 50 different divisions": checked(lambda n, s, seed: by_split(n, s, seed // 2)),
    "never in the first part": by_order(lambda n, seed: shuffled(n, np.random.RandomState(seed), 1)),
    "row 0 is in the first part for":
        by_order(lambda n, seed: F.pad(1 + torch.randperm(n - 1, generator=own(seed)), (1, 0))),
    "rows 1 apart land in the same part":
        by_order(lambda n, seed: torch.arange(n).roll(int(torch.randint(n, (), generator=own(seed))))),
    "moves torch's global generator": [
        by_order(lambda n, seed: (torch.manual_seed(seed), torch.randperm(n))[1]),
        by_order(lambda n, seed: (torch.rand(1), torch.randperm(n, generator=own(seed)))[1]),
        by_order(lambda n, seed: torch.randperm(n, generator=torch.manual_seed(seed))),
    ],
    "moves numpy's global generator": by_order(lambda n, seed: (np.random.seed(seed), np.random.permutation(n))[1]),
    "moves Python's global generator": by_order(lambda n, seed: (random.seed(seed), random.sample(range(n), n))[1]),
    "which sum to 9; raise ValueError": lambda n, s, seed: by_split(n, [*s[:-1], n - sum(s[:-1])], seed),
    "raise, not return": lambda n, s, seed: by_split(n, s, seed) if sum(s) == n else ValueError("no"),
    "gives None": lambda n, s, seed: by_split(n, s, seed) if sum(s) == n else None,
    "; raise ValueError": by_slices,
    "it should be a ValueError": wrong_error,
    "without brackets behind its name": 3,
}  # fmt: skip


def by_rows(parts):
    return torch.arange(sum(map(len, parts))).split(list(map(len, parts)))


# normalize


def column(values, x):
    return torch.tensor(values, dtype=x.dtype, device=x.device)[:, None, None]


def plain(images, mean, std):
    return (images - column(mean, images)) / column(std, images)


def of_columns(function):
    """An answer from columns of numbers."""
    return lambda x, m, s: function(x, column(m, x), column(s, x))


def after(change):
    """The right images, changed afterwards."""
    return lambda x, m, s: change(torchvision_normalize(x, m, s))


def in_place(images, mean, std, eps=0.0):
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        images[:, c] = (images[:, c] - m) / (s + eps)
    return images


def by_last_axis(x, mean, std):
    return rearrange((rearrange(x, "b c h w -> b h w c") - x.new_tensor(mean)) / x.new_tensor(std), "b h w c -> b c h w")


def by_numpy(x, mean, std):
    mean, std = (np.array(numbers)[:, None, None] for numbers in (mean, std))
    return torch.from_numpy((x.numpy() - mean) / std).to(x.dtype)


def along(*shape):
    """Numbers along another axis where all sides are equal."""
    return lambda x, m, s: (
        (x - x.new_tensor(m).view(shape)) / x.new_tensor(s).view(shape) if len({*x.shape}) == 1 else plain(x, m, s)
    )


def by_own(x, axes):
    std, mean = torch.std_mean(x, axes, keepdim=True)
    return (x - mean) / std


NORMALIZE_RIGHT = [
    plain,
    by_last_axis,
    by_numpy,
    torchvision_normalize,
    lambda x, m, s: in_place(x.clone(), m, s),
    lambda x, m, s: plain(x.detach(), m, s),
    lambda x, m, s: torch.cat([plain(image[None], m, s) for image in x]),
    of_columns(lambda x, m, s: (x - m) / (s + 1e-8)),
    of_columns(lambda x, m, s: x * (1 / s) - m / s),
    lambda x, m, s: F.batch_norm(x, x.new_tensor(m), x.new_tensor(s) ** 2, eps=1e-12),
    lambda x, m, s: torch.vmap(lambda a, b, c: (a - b) / c, (1, 0, 0), 1)(x, x.new_tensor(m), x.new_tensor(s)),
]
NORMALIZE_WRONG = {
    "images.new_tensor(mean)": lambda x, m, s: (x - m) / s,
    "with the shape (C, 1, 1)": lambda x, m, s: (x - x.new_tensor(m)) / x.new_tensor(s),
    "is one a fixed number": lambda x, m, s: (x - x.new_tensor(m).view(3, 1, 1)) / x.new_tensor(s).view(3, 1, 1),
    "changes its input": [in_place, lambda x, m, s: torchvision_normalize(x, m, s, inplace=True)],
    "gives 3 things": after(lambda y: [*y.unbind(1)]),
    "gives 2 things": after(lambda y: (y, 0)),
    "gives shape (3, 4, 5, 7)": after(lambda y: y.transpose(0, 1)),
    "gives shape (4, 5, 7)": after(lambda y: y[:, -1]),
    "gives shape (3, 5, 7)": after(lambda y: y[0]),
    "a numpy array": after(torch.Tensor.numpy),
    "nothing was changed": lambda x, m, s: x.clone(),
    "nothing is divided": of_columns(lambda x, m, s: x - m),
    "the mean is not taken away": of_columns(lambda x, m, s: x / s),
    "multiplies by std": of_columns(lambda x, m, s: s * (x - m)),
    "adds the mean": of_columns(lambda x, m, s: (m + x) / s),
    "brackets": of_columns(lambda x, m, s: x - (m / s)),
    "the other way round": of_columns(lambda x, m, s: x / s - m),
    "the square of std": of_columns(lambda x, m, s: (x - m) / (s * s)),
    "not a variance": of_columns(lambda x, m, s: (x - m) / s.sqrt()),
    "mean and std have changed places": lambda x, m, s: plain(x, s, m),
    "undoes a normalisation": of_columns(lambda x, m, s: x * s + m),
    "run along W": along(-1),
    "run along H": along(-1, 1),
    "run along the batch": along(-1, 1, 1, 1),
    "the first channel's numbers": lambda x, m, s: x.sub(m[0]).div(s[0]),
    "the average ones": lambda x, m, s: (x - np.mean(m)) / np.mean(s),
    "computes numbers from these": lambda x, m, s: by_own(x, (0, 2, 3)),
    "normalises each image by itself": lambda x, m, s: by_own(x, (1, 2, 3)),
    "each channel of each image": lambda x, m, s: by_own(x, (2, 3)),
    "computes the deviation from these":
        of_columns(lambda x, m, s: (x - m) / rearrange(x, "b c h w -> c (b h w)").std(1)[:, None, None]),
    "computes the mean from these": of_columns(lambda x, m, s: (x - reduce(x, "b c h w -> c 1 1", "mean")) / s),
    "one mean and deviation of all these pixels": lambda x, m, s: by_own(x, (0, 1, 2, 3)),
    "the smallest and the largest": lambda x, m, s: (x - x.amin()) / (x.amax() - x.amin()),
    "F.normalize is another thing": lambda x, m, s: x / x.norm(dim=1, keepdim=True).clamp(min=1e-12),
    "divides by 255": lambda x, m, s: plain(x / 255, m, s),
    "it is x - mean": of_columns(lambda x, m, s: -(x - m) / s),
    "in the wrong order": lambda x, m, s: plain(x, m[::-1], s[::-1]),
    "the first mean": of_columns(lambda x, m, s: (x - m[0]) / s),
    "the first std": of_columns(lambda x, m, s: (x - m) / s[0]),
    "divides twice": of_columns(lambda x, m, s: (x / s - m) / s),
    "whole numbers": after(torch.round),
    "what is below 0 is lost": after(torch.relu),
    "stays within -1 and 1": after(F.hardtanh),
    "stays within 0 and 1": after(lambda y: y.clamp(0, 1)),
    "which mixes the pixels": after(lambda y: rearrange(y, "b c h w -> b (h w c)").reshape(y.shape)),
    "unchanged: image 1, 2, 3": lambda x, m, s: torch.cat([plain(x[:1], m, s), x[1:]]),
    "unchanged: channel 1, 2": lambda x, m, s: torch.cat([plain(x[:, :1], m[:1], s[:1]), x[:, 1:]], 1),
    "black: image 0": lambda x, m, s: torch.cat([0 * x[:1], plain(x[1:], m, s)]),
    "channel 0 becomes (x - 0.5) / 0.21; it should become (x - 0.5) / 0.2":
        of_columns(lambda x, m, s: (x - m) / (s + 0.01)),
    "a pixel of": after(lambda y: y**3),
    "[x]": lambda x, m, s: plain(x, m, s) * 0.9995,
}  # fmt: skip

# mixup


def hot(labels, K, x):
    return F.one_hot(labels, K).to(x.dtype)


def lerp(a, share, partner):
    return torch.lerp(a[partner], a, share)


def blend(images, labels, num_classes, share, partner):
    four, two = share.view(-1, 1, 1, 1), share[:, None]
    y = hot(labels, num_classes, images)
    return four * images + (1 - four) * images[partner], two * y + (1 - two) * y[partner]


def blend_by_loop(x, y, K, share, partner):
    images, rows = [], torch.zeros(len(y), K, dtype=x.dtype)
    for i, j in enumerate(partner.tolist()):
        images.append(share[i] * x[i] + (1 - share[i]) * x[j])
        rows[i, y[i]] += share[i]
        rows[i, y[j]] += 1 - share[i]
    return [torch.stack(images), rows]


def blend_by_lerp(x, y, K, share, partner, spare=None):
    table = torch.zeros(len(y), K, dtype=x.dtype, device=x.device)
    table.scatter_add_(1, y[:, None], share[:, None]).scatter_add_(1, y[partner][:, None], 1 - share[:, None])
    return torch.lerp(x[partner], x, share[:, None, None, None]), table


def blend_by_numpy(x, y, K, s, p):
    x, s, eye = x.numpy(), s.numpy(), np.eye(K)
    images = s[:, None, None, None] * x + (1 - s)[:, None, None, None] * x[p.numpy()]
    return torch.from_numpy(images), torch.from_numpy(s[:, None] * eye[y] + (1 - s)[:, None] * eye[y[p]])


def shares_along(*axes):
    """Shares along another axis where all sides are equal."""
    return lambda x, s, p: lerp(x, s.view(axes) if len({*x.shape}) == 1 else s, p)


def in_turn(x, s, p):
    x = x.clone()
    for i, j in enumerate(p):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


def written(first):
    """Shares written into a table one after the other; first: the partner's come first."""

    def labels(y, s, p):
        one, two = ((rows.argmax(1, keepdim=True), share) for rows, share in ((y, s), (y[p], 1 - s))[:: -1 if first else 1])
        return torch.zeros_like(y).scatter_(1, *one).scatter_(1, *two)

    return labels


BLENDS = {
    "come back unmixed": lambda x, s, p: x.clone(),
    "the partners come back unmixed": lambda x, s, p: x.index_select(0, p),
    "share goes to the partner": lambda x, s, p: torch.lerp(x, x[p], s),
    "without 1 - share": lambda x, s, p: s * x + s * x[p],
    "the partner is added whole": lambda x, s, p: x[p] + s * x,
    "every image gets the first share": lambda x, s, p: lerp(x, s[0], p),
    "every image gets the mean share": lambda x, s, p: lerp(x, reduce(s, "b c h w -> ", "mean"), p),
    "the next image": lambda x, s, p: lerp(x, s, torch.arange(len(p)).roll(-1)),
    "the batch turned round": lambda x, s, p: torch.lerp(x.flip(0), x, s),
    "the share runs along W": shares_along(-1),
    "the share runs along H": shares_along(-1, 1),
    "the share runs along the channels": shares_along(-1, 1, 1),
    "the partner is missing": lambda x, s, p: x.mul(s),
    "both are added whole": lambda x, s, p: x[p] + x,
    "half and half": lambda x, s, p: lerp(x, 0.5, p),
    "the same partner": lambda x, s, p: s * x + (1 - s) * x[p[0]],
    "the larger share goes to the image itself": lambda x, s, p: lerp(x, s.where(s > 0.5, 1 - s), p),
    "images are blended that were blended already": in_turn,
    "whole numbers": lambda x, s, p: lerp(x, s, p).round(),
    "the share of the partner is used: share": lambda x, s, p: lerp(x, s[p], p),
    "partner is used backwards": lambda x, s, p: lerp(x, s, torch.empty_like(p).scatter_(0, p, torch.arange(len(p)))),
    "of image 0 and": lambda x, s, p: s * x + (1 - s) ** 2 * x[p],
    "is no blend of images of this batch": lambda x, s, p: lerp(x, s, p) ** 2,
    "unchanged: image 5": lambda x, s, p: torch.cat([lerp(x, s, p)[:-1], x[-1:]]),
    "gives shape (12, 3, 5, 7)": lambda x, s, p: torch.cat([s * x, (1 - s) * x[p]]),
    "share needs the shape (B, 1, 1, 1)": lambda x, s, p: s[:, :, 0, 0] * x,
}
LABELS = {
    "the image's own label alone": lambda y, s, p: y.clone(),
    "the partner's label alone": lambda y, s, p: y.index_select(0, p),
    "the shares have changed places": lambda y, s, p: torch.lerp(y, y[p], s),
    "half and half; the labels": lambda y, s, p: torch.lerp(y, y[p], 0.5),
    "every row gets the first image's share": lambda y, s, p: s[0] * y + (1 - s[0]) * y[p],
    "every row gets the mean share": lambda y, s, p: torch.lerp(y[p], y, s.mean()),
    "both labels are whole": lambda y, s, p: y[p] + y,
    "the larger share takes all": lambda y, s, p: F.one_hot(lerp(y, s, p).argmax(1), y.shape[1]).to(y.dtype),
    "the partner is used backwards": lambda y, s, p: lerp(y, s, p.argsort()),
    "their shares must be added": written(first=False),
    "their shares must be added; here the first is lost": written(first=True),
    "the larger share goes to the image's own label": lambda y, s, p: lerp(y, s.where(s > 0.5, 1 - s), p),
    "share, not share[partner]": lambda y, s, p: lerp(y, s[p], p),
    "both labels get 1": lambda y, s, p: (y + y[p]).clamp(max=1),
    "the same share as the image's own": lambda y, s, p: s * y + s * y[p],
    "the partner's label is whole": lambda y, s, p: y[p] + s * y,
    "the partner's label is missing": lambda y, s, p: y.mul(s),
    "half of what they should be": lambda y, s, p: 0.5 * lerp(y, s, p),
    "a logarithm": lambda y, s, p: torch.log(lerp(y, s, p)),
    "a softmax": lambda y, s, p: F.softmax(lerp(y, s, p), -1),
    "F.one_hot makes such rows": lambda y, s, p: lerp(y, s, p).amax(1),
    "F.one_hot(labels, num_classes)": lambda y, s, p: lerp(y, s, p)[:, : y.argmax(1).amax() + 1],
    ", 10) as labels": lambda y, s, p: F.pad(lerp(y, s, p), (0, 10 - y.shape[1])),
    "by its pixels it should be": lambda y, s, p: 0.9 * lerp(y, s, p) + 0.1 / y.shape[1],
    "gives torch.int64 as labels": lambda y, s, p: lerp(y, s, p).round().long(),
    "gives torch.float32 as labels": lambda y, s, p: lerp(y, s, p).float(),
    "gives 2 things as labels": lambda y, s, p: (y, y[p]),
}


def both_of(right):
    """What may go wrong with two results."""
    return {
        "return two things": [lambda *given: right(*given)[0], lambda *given: dict(zip("ab", right(*given), strict=True))],
        "gives 3 things": lambda *given: (*right(*given), 0),
        "gives 1 things": lambda *given: [right(*given)],
        "gives the labels first": lambda *given: right(*given)[::-1],
        "a numpy array": lambda *given: tuple(part.numpy() for part in right(*given)),
        "changes its input": [
            lambda x, y, K, third, p: (x.copy_((made := right(x, y, K, third, p))[0]), made[1]),
            lambda x, y, K, third, p: right(x, y, K, third.clamp_(max=0), p),
            lambda x, y, K, third, p: right(x, y, K, third, p.copy_(p.flip(0))),
        ],
    }  # fmt: skip


MIXUP_RIGHT = [
    blend,
    blend_by_loop,
    blend_by_lerp,
    blend_by_numpy,
    partial(mixup, images=lambda x, s, p: x.clone().mul_(s).add_((1 - s) * x[p])),
    partial(mixup, images=lambda x, s, p: torch.vmap(torch.lerp)(x[p], x, s[:, 0, 0, 0])),
    partial(mixup, labels=lambda y, s, p: lerp(y, s, p).double()),
    lambda *given: (part.detach() for part in blend(*given)),
]
MIXUP_WRONG = both_of(blend) | {says: partial(mixup, images=wrong) for says, wrong in BLENDS.items()}
MIXUP_WRONG |= {says: partial(mixup, labels=wrong) for says, wrong in LABELS.items()}

# cutmix


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


def one_by_one(x, y, K, boxes, partner, extra=None):
    pairs = ((x[[i, j]], y[[i, j]], K, boxes[[i, i]], torch.tensor([1, 0])) for i, j in enumerate(partner.tolist()))
    return tuple(torch.cat([rows[:1] for rows in part]) for part in zip(*(cutmix(*pair) for pair in pairs), strict=True))


def boxed(change):
    """Images cut with other boxes: f(left and top, width and height, width and height of the images) -> both, as numbers."""

    def images(x, b, p):
        begin, size = change(b[:, :2], b[:, 2:], b.new_tensor([x.shape[3], x.shape[2]]))
        return cut(x, torch.cat([begin, size], 1), p)

    return images


def ruled(inside):
    """Images cut by another rule: f(places, begin, length)."""
    return lambda x, b, p: cut(x, b, p, inside=inside)


def read_again(x, b, p):
    images, mask = x.clone(), box_mask(x, b)
    for i, j in enumerate(p.tolist()):
        images[i] = torch.where(mask[i], images[j], images[i])
    return images


def areas(count):
    """Another share of the area: f(left, top, width, height, H, W) -> a number."""
    return lambda x, b: torch.tensor([count(*box, *x.shape[2:]) for box in b.tolist()], dtype=x.dtype)


def in_the_argument(x, y, K, b, p):
    labels = cutmix(x, y, K, b, p)[1]
    for i, (left, top, width, height) in enumerate(b.tolist()):
        box = (slice(None), slice(top, top + height), slice(left, left + width))
        x[i][box] = x[p[i]][box]
    return x, labels


def refuses_edges(x, y, K, b, p):
    if (b[:, 0] + b[:, 2] > x.shape[3]).any():
        raise ValueError("the box leaves the image")
    return cutmix(x, y, K, b, p)


ROWS, COLUMNS = torch.tensor([0, 1, 0, 1]), torch.tensor([1, 0, 1, 0])  # what is left of a box, the rest as wide as it gets
STRIPS = [lambda b: b * ROWS + 99 * torch.tensor([0, 0, 1, 0]), lambda b: b * COLUMNS + 99 * torch.tensor([0, 0, 0, 1])]
CUTS = {
    "come back uncut": lambda x, b, p: x.clone(),
    "come back whole": lambda x, b, p: x.index_select(0, p),
    "inside and outside have changed places": masked(lambda x, m, q: torch.where(~m, q, x)),
    "left and top have changed places": boxed(lambda begin, size, whole: (begin.flip(1), size)),
    "width and height have changed places": boxed(lambda begin, size, whole: (begin, size.flip(1))),
    "rows and columns have changed places": boxed(lambda begin, size, whole: (begin.flip(1), size.flip(1))),
    "taken for right and bottom": boxed(lambda begin, size, whole: (begin, (size - begin).clamp(min=0))),
    "a pixel too large": ruled(lambda at, begin, length: (at >= begin) & (at <= begin + length)),
    "a pixel too small": ruled(lambda at, begin, length: (at > begin) & (at < begin + length)),
    "and, not or": lambda x, b, p: torch.where(box_mask(x, STRIPS[0](b)) | box_mask(x, STRIPS[1](b)), x[p], x),
    "left and top are not minded": boxed(lambda begin, size, whole: (0 * begin, begin + size)),
    "width and height are not minded": boxed(lambda begin, size, whole: (begin, whole - begin)),
    "only the rows": lambda x, b, p: cut(x, STRIPS[0](b), p),
    "only the columns": lambda x, b, p: cut(x, STRIPS[1](b), p),
    "taken for the middle": boxed(lambda begin, size, whole: ((begin - size // 2).clamp(min=0), size)),
    "it stays where it is": boxed(lambda begin, size, whole: (begin.minimum(whole - size).clamp(min=0), size)),
    "upper left corner": holes(lambda hole, other, place: other[..., : len(hole[0]), : len(hole[0, 0])]),
    "made small": holes(lambda hole, other, place: F.interpolate(other[None], tuple(hole[0].shape)).squeeze(0)),
    "half the partner": masked(lambda x, m, q: torch.lerp(x, q, 0.5 * m)),
    "added to the image": masked(lambda x, m, q: x + q.masked_fill(~m, 0)),
    "painted with 1": holes(lambda hole, other, place: 1),
    "painted with 0": holes(lambda hole, other, place: 0),
    "outside the box all is black": masked(lambda x, m, q: q.masked_fill(~m, 0)),
    "the next image": lambda x, b, p: cut(x, b, torch.arange(len(p)).roll(-1)),
    "turned round": lambda x, b, p: cut(x, b, torch.arange(len(p)).flip(0)),
    "the same partner": lambda x, b, p: torch.where(box_mask(x, b), x[p[0]], x),
    "every image gets the first box": masked(lambda x, m, q: torch.where(m[:1], q, x)),
    "the box of its partner": lambda x, b, p: torch.where(box_mask(x, b)[p], x[p], x),
    "changed already": read_again,
    "used backwards: image i": lambda x, b, p: cut(x, b, torch.empty_like(p).scatter_(0, p, torch.arange(len(p)))),
    "blends the whole images":
        masked(lambda x, m, q: torch.lerp(x, q, reduce(m.to(x.dtype), "b c h w -> b c 1 1", "mean"))),
    "the partner stands": ruled(lambda at, begin, length: (at - begin).abs() <= length // 3),
    "neither the image's own nor": holes(lambda hole, other, place: hole.flip(2)),
    "unchanged: channel 1, 2": masked(lambda x, m, q: torch.cat([x[:, :1].where(~m, q[:, :1]), x[:, 1:]], 1)),
    "a mask gets (B, 1, H, W)": lambda x, b, p: x + b[:, :1] * x,
}  # fmt: skip
AREAS = {
    "[x] cutmix: labels for": lambda left, top, width, height, H, W: (width + height) / (W + H),
    "boxes over the edge: the labels follow width x height; count only":
        lambda left, top, width, height, H, W: width * height / (W * H),
    "cut off at 1": lambda left, top, width, height, H, W: min(1, width * height / (W * H)),
    "but not the lower one": lambda left, top, width, height, H, W: min(width, W - left) * height / (W * H),
    "but not the right one": lambda left, top, width, height, H, W: width * min(height, H - top) / (W * H),
    "width is cut to W and height to H": lambda left, top, width, height, H, W: min(width, W) * min(height, H) / (W * H),
}  # fmt: skip
CUTMIX_RIGHT = [
    cutmix,
    cut_by_loop,
    cut_by_product,
    one_by_one,
    partial(cutmix, labels=lambda y, s, p: lerp(y, s, p).double()),
]
CUTMIX_WRONG = both_of(cutmix) | {says: partial(cutmix, images=wrong) for says, wrong in CUTS.items()}
CUTMIX_WRONG |= {says: partial(cutmix, labels=wrong) for says, wrong in LABELS.items()}
CUTMIX_WRONG |= {says: partial(cutmix, area=areas(wrong)) for says, wrong in AREAS.items()}
CUTMIX_WRONG |= {
    "changes its input;": in_the_argument,
    "by what is covered: raises ValueError: the box leaves": refuses_edges,
}

# the planted mistake


def numbers(x):
    return x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)


def by(mean, std=None):
    """Both parts by other numbers: f(training part, test part) -> the mean, the deviation."""
    return lambda a, b: tuple((x - mean(a, b)) / std(a, b) for x in (a, b))


def mended(train_images, test_images):
    mean, std = numbers(train_images)
    return (train_images - mean) / std, (test_images - mean) / std


def planted(a, b):
    mean, std = numbers(torch.cat([a, b]))
    return (a - mean) / std, (b - mean) / std


def by_std_mean(a, b):
    std, mean = torch.std_mean(a, (0, 2, 3), keepdim=True)
    return ((x - mean) / std for x in (a, b))


def by_numpy_parts(a, b):
    mean, std = a.numpy().mean((0, 2, 3), keepdims=True), a.numpy().std((0, 2, 3), keepdims=True)
    return tuple(torch.from_numpy((x.numpy() - mean) / std) for x in (a, b))


def into_both(a, b):
    mean, std = numbers(a)
    return a.sub_(mean).div_(std), b.sub_(mean).div_(std)


MENDED_RIGHT = [
    mended,
    by_std_mean,
    by_numpy_parts,
    lambda a, b: tuple(x.detach() for x in mended(a, b)),
    by(lambda a, b: numbers(a)[0], lambda a, b: numbers(a)[1] + 1e-8),
    by(lambda a, b: numbers(a)[0], lambda a, b: (a.var((0, 2, 3), keepdim=True) + 1e-6).sqrt()),
    by(lambda a, b: numbers(a)[0], lambda a, b: numbers(torch.cat([a, a]))[1]),
    lambda a, b: tuple(F.batch_norm(x, a.mean((0, 2, 3)), a.var((0, 2, 3)), eps=1e-12) for x in (a, b)),
    lambda a, b, eps=0: [plain(x, a.mean((0, 2, 3)).tolist(), a.std((0, 2, 3)).tolist()) for x in (a, b)],
    lambda a, b: mended(a, torch.cat([a, b]))[1].split([len(a), len(b)]),
]
MENDED_WRONG = {
    "still the planted mistake": planted,
    "the test part is normalised by its own numbers": lambda a, b: (mended(a, b)[0], mended(b, b)[0]),
    "both parts get the numbers of the test part": lambda a, b: mended(b, a)[::-1],
    "test part still gets": lambda a, b: (mended(a, b)[0], planted(a, b)[1]),
    "training part still gets": lambda a, b: (planted(a, b)[0], mended(a, b)[1]),
    "the test part is not normalised": lambda a, b: (mended(a, b)[0], b.clone()),
    "nothing is normalised": lambda a, b: (a.clone(), b.clone()),
    "one mean for all channels": by(lambda a, b: a.mean(), lambda a, b: a.std()),
    "every image is normalised by itself": lambda a, b: tuple(by_own(x, (2, 3)) for x in (a, b)),
    "all channels together": lambda a, b: tuple(by_own(x, (1, 2, 3)) for x in (a, b)),
    "the deviation is still that of both": by(lambda a, b: numbers(a)[0], lambda a, b: numbers(torch.cat([a, b]))[1]),
    "the mean is still that of both": by(lambda a, b: numbers(torch.cat([a, b]))[0], lambda a, b: numbers(a)[1]),
    "averages over the batch only": by(lambda a, b: reduce(a, "b c h w -> c h w", "mean"), lambda a, b: a.std(dim=0)),
    "the training part's, the deviation the test part's":
        lambda a, b: (mended(a, b)[0], (b - numbers(a)[0]) / numbers(b)[1]),
    "the test part's, the deviation the training part's":
        lambda a, b: (mended(a, b)[0], (b - numbers(b)[0]) / numbers(a)[1]),
    "its variance": by(lambda a, b: numbers(a)[0], lambda a, b: a.var((0, 2, 3), keepdim=True)),
    "the mean is the first image's, the deviation the first image's":
        by(lambda a, b: numbers(a[:1])[0], lambda a, b: numbers(a[:1])[1]),
    "the average of the two parts' means":
        by(lambda a, b: (numbers(a)[0] + numbers(b)[0]) / 2, lambda a, b: numbers(a)[1]),
    "the average of the two parts' deviations":
        by(lambda a, b: numbers(a)[0], lambda a, b: (numbers(a)[1] + numbers(b)[1]) / 2),
    "the mean is that of all channels together": by(lambda a, b: a.mean(), lambda a, b: numbers(a)[1]),
    "the deviation that of all channels together": by(lambda a, b: numbers(a)[0], lambda a, b: a.std()),
    "another number (0.5 in channel 0)": by(lambda a, b: 0.5, lambda a, b: 0.5),
    "the deviation another number": by(lambda a, b: numbers(a)[0], lambda a, b: 1 / numbers(a)[1]),
    "the deviation 1;": by(lambda a, b: numbers(a)[0], lambda a, b: 1),
    "is not of the form": by(lambda a, b: a.mean((0, 1), keepdim=True), lambda a, b: a.std((0, 1), keepdim=True)),
    "the training part comes back as it was": lambda a, b: (a, mended(a, b)[1]),
    "With keepdim=True": by(lambda a, b: a.mean((0, 2, 3)), lambda a, b: a.std((0, 2, 3))),
    "return two things": [lambda a, b: torch.cat(mended(a, b)), lambda a, b: mended(a, b)[0]],
    "gives 3 things": lambda a, b: (*mended(a, b), a.mean()),
    "gives shape (9, 3, 4, 5) as test part": lambda a, b: mended(a, a),
    "gives the test part first": lambda a, b: mended(a, b)[::-1],
    "a numpy array": lambda a, b: tuple(x.numpy() for x in mended(a, b)),
    "changes its input": [into_both, lambda a, b: (a.copy_((made := mended(a, b))[0]), made[1])],
}  # fmt: skip

RIGHT = {"split": SPLIT_RIGHT, "normalize": NORMALIZE_RIGHT, "mixup": MIXUP_RIGHT, "cutmix": CUTMIX_RIGHT}
RIGHT["mended"] = MENDED_RIGHT
WRONG = {"split": SPLIT_WRONG, "normalize": NORMALIZE_WRONG, "mixup": MIXUP_WRONG, "cutmix": CUTMIX_WRONG}
WRONG["mended"] = MENDED_WRONG
