"""Answers to the exercises of notebook 06.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

import random

import numpy as np
import torch
from torch.utils.data import random_split
from torchvision.transforms.functional import normalize as torchvision_normalize

from check_cases import Program
from vit_helpers.checks.data_cutmix import cutmix

# split


def own(seed):
    return torch.Generator().manual_seed(seed)


def by_slices(order, sizes):
    result = []
    for size in sizes:
        result.append(order[:size])
        order = order[size:]
    return result


def by_taking_away(n, sizes, seed):
    if sum(sizes) != n:
        raise ValueError(sizes)
    left, own = list(range(n)), random.Random(seed)
    for size in sizes:
        part = own.sample(left, size)
        yield torch.tensor(part, dtype=torch.long)
        left = [row for row in left if row not in part]


def by_masks(order, sizes):
    of_row = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))[order]
    return [(of_row == i).nonzero()[:, 0] for i in range(len(sizes))]


def first_at_random(order, sizes):
    """The first split at random, the others in the order in which the rows are stored."""
    rest = order[sizes[0] :].sort().values
    return [order[: sizes[0]], *rest.split(sizes[1:])]


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


def without_end(n, sizes, seed):
    while True:
        yield from SPLIT()(n, sizes, seed)


SPLIT = Program("""
def answer(n, sizes, seed):
    if sum(sizes) != n:
        {{otherwise: raise ValueError(f"{sizes} do not sum to {n}")}}
    s, g = list(sizes), own({{seed: seed}})
    order = torch.as_tensor({{order: torch.randperm(n, generator=g)}})
    parts = {{parts: list(order.split(s))}}
    return {{give: parts}}
""", own=own, by_slices=by_slices, by_masks=by_masks,
    first_at_random=first_at_random, by_restored=by_restored, shuffled=shuffled,
    random_split=random_split,
    known={})  # fmt: skip
SPLIT_RIGHT = [
    from_torchs_error, by_taking_away, SPLIT(), SPLIT(parts="by_slices(order, s)"),
    SPLIT(parts="by_masks(order, s)"),
    SPLIT(order="by_restored(n, seed)"), SPLIT(order="torch.rand(n, generator=g).argsort()"),
    SPLIT(
        parts="list(map(torch.from_numpy, "
        "np.split(np.random.default_rng(seed).permutation(n), np.cumsum(s)[:-1])))"
    ),
    SPLIT(
        parts="[torch.tensor(list(part.indices), dtype=torch.long) "
        "for part in random_split(range(n), s, generator=g)]"
    ),
    SPLIT(give="[part.sort().values.to(torch.int16) for part in parts]"),
]  # fmt: skip
SPLIT_WRONG = SPLIT.wrong("parts", {
    "a split that begins at row a ends at a + size":
        "[order[sum(s[:i]) : size] for i, size in enumerate(s)]",
    "gives splits of [7, 7, 6]": "order.chunk(len(s))",
    "and so on": ["order.split(sorted(s))", "order.split(s)[::-1]"],
    "gives too many splits": "order.split(1)", "gives 2 splits": "order.split(s)[:-1]",
    "inside another list": "[order.split(s)]",
    "one for each size": "order.split(s + [0] * (3 - len(s)))",
    "all rows in one list": "order.tolist()",
    "a list of splits": "order",
    "its .indices are row numbers": "random_split(range(n), s, generator=g)",
    "are in no split, others more than once":
        "[torch.randperm(n, generator=own(seed + i))[:size] for i, size in enumerate(s)]",
    "does not shuffle the rows first":
        "[r[p.argsort()] for p, r in zip(order.split(s), torch.arange(n).split(s))]",
    "rows are never in the second split": "first_at_random(order, s)",
}) | SPLIT.wrong("give", {
    "gives a dict": "dict(enumerate(parts))", "does it end with return": "None",
    "they should be whole": "[p.float() for p in parts]",
    "a split is a tensor of row numbers": [
        "list(map(str, parts))", "list(map(len, parts))", "[part.tolist() for part in parts]",
        "[set(part.tolist()) for part in parts]", "[part.numpy() for part in parts]",
    ],
    "a mask of True and False":
        "[part > 0 for part in parts]",
    "it should be a list of row numbers": "[part[None] for part in parts]",
    "the last row is n - 1": "[part + 1 for part in parts]",
    "rows are counted from 0": "[part - 1 for part in parts]",
    "changes the list of sizes": "isinstance(sizes, list) and sizes.clear() or parts",
}) | SPLIT.wrong("order", {
    "are in no split, others more than once": "shuffled(n, random.Random(seed))",
    "does not shuffle the rows first": ["torch.arange(n)", "torch.arange(n).flip(0)"],
    "gives different splits when called again with the same seed": "torch.randperm(n)",
    "gives different splits when called again with seed 0":
        "torch.randperm(n, generator=g if seed else None)",
    "is the seed used":
        [
            "known.setdefault(n, torch.randperm(n, generator=g))",
            "torch.randperm(n, generator=torch.Generator())",
        ],
    "never in the first split": "shuffled(n, np.random.RandomState(seed), 1)",
    "row 0 is in the first split for": "F.pad(1 + torch.randperm(n - 1, generator=g), (1, 0))",
    "rows 1 apart land in the same split":
        "torch.arange(n).roll(int(torch.randint(n, (), generator=g)))",
    "uses torch's global generator": [
        "torch.manual_seed(seed) and torch.randperm(n)",
        "[torch.rand(1), torch.randperm(n, generator=g)][1]",
        "torch.randperm(n, generator=torch.manual_seed(seed))",
    ],
    "uses numpy's global generator": "np.random.seed(seed) or np.random.permutation(n)",
    "uses Python's global generator": "random.seed(seed) or random.sample(range(n), n)",
}) | SPLIT.wrong("seed", {
    "gives different splits when called again with the same seed":
        "seed + torch.initial_seed() % 1000",
    "seed 0, but not with seed 3": "seed or torch.initial_seed() % 1000",
    "for the seeds 0 and 1": "seed or 1",
    "for the seeds 2147483647 and 2147483646": "min(seed, 1000)",
    "gives 2 different divisions": "seed % 2", "gives 50 different divisions": "seed // 2",
}) | SPLIT.wrong("otherwise", {
    "which sum to 9; raise ValueError": "sizes = [*sizes[:-1], n - sum(sizes[:-1])]",
    "gives None": "return None",
    "instead of returning it": "return ValueError('no')",
    "it should be a ValueError": "assert False",
}) | {
    "; raise ValueError": SPLIT(otherwise="pass", parts="by_slices(order, s)"),
    "too many splits for n": without_end,
    "without parentheses after its name": 3,
}  # fmt: skip

# normalize


def in_place(images, mean, std):
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        images[:, c] = (images[:, c] - m) / s
    return images


NORMALIZE = Program("""
def answer(x, mean, std):
    m, s = (
        torch.tensor(numbers, dtype=x.dtype, device=x.device)[:, None, None]
        for numbers in (mean, std)
    )
    {{along: pass}}
    own_std, own_mean = torch.std_mean(x, (0, 2, 3), keepdim=True)
    y = {{formula: (x - m) / s}}
    return {{give: y}}
""", in_place=in_place, torchvision_normalize=torchvision_normalize)  # fmt: skip
# another axis where all sides are equal
ALONG = "m, s = (m.view({0}), s.view({0})) if len({{*x.shape}}) == 1 else (m, s)"
OWN = "(x - x.mean({0}, keepdim=True)) / x.std({0}, keepdim=True)"
NORMALIZE_RIGHT = [
    NORMALIZE(), torchvision_normalize, *(NORMALIZE(formula=code) for code in (
        "(x - m) / (s + 1e-8)", "x * (1 / s) - m / s", "in_place(x.clone(), mean, std)",
        "(x.detach() - m) / s",
        "torch.cat([(image[None] - m) / s for image in x])",
        "F.batch_norm(x, m.flatten(), s.flatten() ** 2, eps=1e-12)",
        "((x.movedim(1, -1) - x.new_tensor(mean)) / x.new_tensor(std)).movedim(-1, 1)",
        "torch.from_numpy((x.numpy() - m.numpy()) / s.numpy())",
        "torch.vmap(lambda a, b, c: (a - b) / c, (1, 0, 0), 1)(x, m[:, 0, 0], s[:, 0, 0])",
    ))
]  # fmt: skip
NORMALIZE_WRONG = NORMALIZE.wrong("formula", {
    "images.new_tensor(mean)": "(x - mean) / std",
    "with the shape (C, 1, 1)": "(x - x.new_tensor(mean)) / x.new_tensor(std)",
    "is one a fixed number": "(x - m.view(3, 1, 1)) / s", "doesn't divide by std": "x - m",
    "doesn't subtract the mean": "x / s",
    "changes its input":
        ["in_place(x, mean, std)", "torchvision_normalize(x, mean, std, inplace=True)"],
    "nothing was changed": "x.clone()",
    "multiplies by std": "s * (x - m)", "adds the mean": "(m + x) / s",
    "in parentheses": "x - (m / s)",
    "the other way round": "x / s - m", "the square of std": "(x - m) / (s * s)",
    "divides by the square root of std": "(x - m) / s.sqrt()",
    "mean and std are swapped": "(x - s) / m",
    "inverts the normalization": "x * s + m",
    "the first channel's mean and std": "x.sub(mean[0]).div(std[0])",
    "the average mean and std": "(x - np.mean(mean)) / np.mean(std)",
    "computes mean and std from these": OWN.format("(0, 2, 3)"),
    "normalizes each image by itself": OWN.format("(1, 2, 3)"),
    "each channel of each image": OWN.format("(2, 3)"),
    "computes the standard deviation from these": "(x - m) / own_std",
    "computes the mean from these": "(x - own_mean) / s",
    "one mean and standard deviation of all pixels": OWN.format("(0, 1, 2, 3)"),
    "the smallest and the largest": "(x - x.amin()) / (x.amax() - x.amin())",
    "divides by 255": "(x / 255 - m) / s",
    "to a vector of length 1":
        "x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)",
    "computes mean - x instead of x - mean": "-(x - m) / s",
    "in the wrong order": "(x - m.flip(0)) / s.flip(0)", "the first mean": "(x - m[0]) / s",
    "the first std": "(x - m) / s[0]", "divides twice": "(x / s - m) / s",
    "channel 0 becomes (x - 0.5) / 0.21; it should become (x - 0.5) / 0.2": "(x - m) / (s + 0.01)",
    "channel 0 becomes (x - 0.5) / 0.2002; it should become (x - 0.5) / 0.2":
        "(x - m) / (s + 0.0002)",
}) | NORMALIZE.wrong("give", {
    " of 3 for": "[*y.unbind(1)]",
    " of 2 for": "(y, 0)", "gives shape (3, 4, 5, 7)": "y.transpose(0, 1)",
    "gives shape (4, 5, 7)": "y[:, -1]",
    "gives shape (3, 5, 7)": "y[0]", "a numpy array": "y.numpy()",
    "whole numbers":
        "torch.round(y)",
    "values below 0 are lost": "torch.relu(y)", "between -1 and 1": "F.hardtanh(y)",
    "between 0 and 1": "y.clamp(0, 1)",
    "which mixes the pixels": "y.movedim(1, 3).reshape(y.shape)",
    "unchanged: image 1, 2, 3": "torch.cat([y[:1], x[1:]])",
    "unchanged: channel 1, 2": "torch.cat([y[:, :1], x[:, 1:]], 1)",
    "black: image 0": "torch.cat([0 * x[:1], y[1:]])", "a pixel of": "y**3", "[x]": "y * 0.9995",
}) | {
    f"run along {axis}": NORMALIZE(along=ALONG.format(shape))
    for axis, shape in {"W": "-1", "H": "-1, 1", "the batch": "-1, 1, 1, 1"}.items()
}  # fmt: skip

# mixup

# in place of torch.lerp(y[p], y, t): shares t of the image itself, (B, 1), and rows y of 0 and 1
LABELS = {
    "only the image's own label counts": "y.clone()",
    "only the partner's label counts": "y.index_select(0, p)",
    "the shares are swapped": "torch.lerp(y, y[p], t)",
    "mixes half and half": "torch.lerp(y, y[p], 0.5)",
    "every row gets the first image's share": "t[0] * y + (1 - t[0]) * y[p]",
    "every row gets the mean share": "torch.lerp(y[p], y, t.mean())",
    "both labels count in full": "y[p] + y",
    "the label with the larger share gets everything":
        "F.one_hot(torch.lerp(y[p], y, t).argmax(1), K).to(y.dtype)",
    "partner is inverted": "torch.lerp(y[p.argsort()], y, t)",
    "their shares must be added": "written(y, [(y, t), (y[p], 1 - t)])",
    "their shares must be added, but here the first is lost": "written(y, [(y[p], 1 - t), (y, t)])",
    "the image's own label always gets the larger share":
        "torch.lerp(y[p], y, t.where(t > 0.5, 1 - t))",
    "share, not share[partner]": "torch.lerp(y[p], y, t[p])",
    "both labels get 1": "(y + y[p]).clamp(max=1)",
    "the same share as the image's own": "t * y + t * y[p]",
    "the partner's label counts in full": "y[p] + t * y",
    "the partner's label is missing": "y.mul(t)",
    "half of what they should be": "0.5 * torch.lerp(y[p], y, t)",
    "the logarithm was taken": "torch.log(torch.lerp(y[p], y, t))",
    "a softmax": "F.softmax(torch.lerp(y[p], y, t), -1)",
    "F.one_hot makes such rows": "torch.lerp(y[p], y, t).amax(1)",
    "F.one_hot(labels, num_classes)": "torch.lerp(y[p], y, t)[:, : labels.amax() + 1]",
    ", 10) as labels": "F.pad(torch.lerp(y[p], y, t), (0, 10 - K))",
    "by its pixels it should be": "0.9 * torch.lerp(y[p], y, t) + 0.1 / K",
    "gives torch.int64 as labels": "torch.lerp(y[p], y, t).round().long()",
    "gives torch.float32 as labels": "torch.lerp(y[p], y, t).float()",
    " of 2 as labels": "(y, y[p])",
}  # fmt: skip
BOTH = {  # in place of both results
    "return two results": ["both[0]", "dict(zip('ab', both))"],
    " of 3 for": "(*both, 0)", " of 1 for": "[both]",
    "gives the labels first": "both[::-1]", "a numpy array": "tuple(part.numpy() for part in both)",
    "changes its input":
        [
            "(x.copy_(both[0]), both[1])",
            "third.clamp_(max=0) is third and both",
            "(both, p.copy_(p.flip(0)))[0]",
        ],
}  # fmt: skip


def written(y, rows):
    """Shares written into a table one after the other."""
    table = torch.zeros_like(y)
    for some, share in rows:
        table.scatter_(1, some.argmax(1, keepdim=True), share)
    return table


def in_turn(x, s, p):
    x = x.clone()
    for i, j in enumerate(p):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


def blend_by_loop(x, y, K, share, partner):
    images, rows = [], torch.zeros(len(y), K, dtype=x.dtype)
    for i, j in enumerate(partner.tolist()):
        images.append(share[i] * x[i] + (1 - share[i]) * x[j])
        rows[i, y[i]] += share[i]
        rows[i, y[j]] += 1 - share[i]
    return [torch.stack(images), rows]


def blend_by_lerp(x, y, K, share, partner, spare=None):
    table = torch.zeros(len(y), K, dtype=x.dtype, device=x.device)
    table.scatter_add_(1, y[:, None], share[:, None]).scatter_add_(
        1, y[partner][:, None], 1 - share[:, None]
    )
    return torch.lerp(x[partner], x, share[:, None, None, None]), table


def blend_by_numpy(x, y, K, s, p):
    x, s, eye = x.numpy(), s.numpy(), np.eye(K)
    images = s[:, None, None, None] * x + (1 - s)[:, None, None, None] * x[p.numpy()]
    return torch.from_numpy(images), torch.from_numpy(
        s[:, None] * eye[y] + (1 - s)[:, None] * eye[y[p]]
    )


MIXUP = Program("""
def answer(x, labels, K, third, p):
    s, t, y = third.view(-1, 1, 1, 1), third[:, None], F.one_hot(labels, K).to(x.dtype)
    even = len({*x.shape}) == 1
    both = ({{images: torch.lerp(x[p], x, s)}}, {{labels: torch.lerp(y[p], y, t)}})
    return {{give: both}}
""", written=written, in_turn=in_turn)  # fmt: skip
MIXUP_RIGHT = [
    MIXUP(), blend_by_loop, blend_by_lerp, blend_by_numpy,
    MIXUP(images="x.clone().mul_(s).add_((1 - s) * x[p])"),
    MIXUP(images="torch.vmap(torch.lerp)(x[p], x, third)"),
    MIXUP(labels="torch.lerp(y[p], y, t).double()"),
    MIXUP(give="(part.detach() for part in both)"),
]  # fmt: skip
MIXUP_WRONG = MIXUP.wrong("give", BOTH) | MIXUP.wrong("labels", LABELS) | MIXUP.wrong("images", {
    "come back unmixed": "x.clone()", "the partners come back unmixed": "x.index_select(0, p)",
    "the partner gets share": "torch.lerp(x, x[p], s)", "both images get share": "s * x + s * x[p]",
    "the partner is added in full": "x[p] + s * x",
    "every image gets the first share": "torch.lerp(x[p], x, s[0])",
    "every image gets the mean share": "torch.lerp(x[p], x, s.mean())",
    "the next image": "torch.lerp(x.roll(-1, 0), x, s)",
    "the batch in reverse order": "torch.lerp(x.flip(0), x, s)",
    "the partner is missing": "x.mul(s)",
    "share runs along W": "torch.lerp(x[p], x, third if even else s)",
    "share runs along H, but belongs to axis 0":
        "torch.lerp(x[p], x, third.view(-1, 1) if even else s)",
    "share runs along the channels": "torch.lerp(x[p], x, third.view(-1, 1, 1) if even else s)",
    "both images are added in full": "x[p] + x", "half and half": "torch.lerp(x[p], x, 0.5)",
    "the same partner": "s * x + (1 - s) * x[p[0]]",
    "the image itself always gets the larger share": "torch.lerp(x[p], x, s.where(s > 0.5, 1 - s))",
    "blends images that were already blended": "in_turn(x, s, p)",
    "whole numbers": "torch.lerp(x[p], x, s).round()",
    "the partner's share is used": "torch.lerp(x[p], x, s[p])",
    "of image 0 and": "s * x + (1 - s) ** 2 * x[p]",
    "partner is inverted: image i gets":
        "torch.lerp(x[torch.empty_like(p).scatter_(0, p, torch.arange(len(p)))], x, s)",
    "is not a blend of images of this batch": "torch.lerp(x[p], x, s) ** 2",
    "unchanged: image 5": "torch.cat([torch.lerp(x[p], x, s)[:-1], x[-1:]])",
    "gives shape (12, 3, 5, 7)": "torch.cat([s * x, (1 - s) * x[p]])",
    "share needs the shape (B, 1, 1, 1)": "t * x",
})  # fmt: skip

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


def one_by_one(x, y, K, boxes, partner, extra=None):
    pairs = (
        (x[[i, j]], y[[i, j]], K, boxes[[i, i]], torch.tensor([1, 0]))
        for i, j in enumerate(partner.tolist())
    )
    return tuple(
        torch.cat([rows[:1] for rows in part])
        for part in zip(*(cutmix(*pair) for pair in pairs), strict=True)
    )


def holes(fill, x, b, p, read=False):
    """Fill boxes one after the other.

    fill: (partner, its part in the box); read: from images that are cut already
    """
    new = x.clone()
    for i, (left, top, width, height) in enumerate(b.tolist()):
        box = (slice(None), slice(top, top + height), slice(left, left + width))
        if new[i][box].numel():
            other = (new if read else x)[p[i]]
            new[i][box] = fill(other, other[box])
    return new


def refuses_edges(x, y, K, b, p):
    if (b[:, 0] + b[:, 2] > x.shape[3]).any():
        raise ValueError("the box leaves the image")
    return cutmix(x, y, K, b, p)


CUTMIX = Program("""
def answer(x, labels, K, third, p):
    left, top, width, height = third.view(-1, 4, 1, 1, 1).unbind(1)
    H, W = x.shape[2:]
    row, col = torch.arange(H, device=x.device)[:, None], torch.arange(W, device=x.device)
    m = (row >= top) & (row < top + height) & (col >= left) & (col < left + width)
    t, y = 1 - {{area: m.to(x.dtype).mean((2, 3))}}, F.one_hot(labels, K).to(x.dtype)
    q = {{partner: x[p]}}
    {{boxes: pass}}
    rows = {{rows: (row >= top) & (row < top + height)}}
    cols = {{cols: (col >= left) & (col < left + width)}}
    m = rows & cols
    both = ({{images: torch.where(m, q, x)}}, {{labels: torch.lerp(y[p], y, t)}})
    return {{give: both}}
""", written=written, holes=holes)  # fmt: skip
INTO_CORNER = (
    "left, top = (n.minimum(side - long).clamp(min=0) for n, long, side in ((left, "
    "width, W), (top, height, H)))"
)
# whole numbers, whose quotient torch makes float32
COLUMNS, ROWS = "((left + width).clamp(max=W) - left)", "((top + height).clamp(max=H) - top)"
CUTMIX_RIGHT = [
    cutmix,
    CUTMIX(),
    cut_by_loop,
    one_by_one,
    CUTMIX(images="x * ~m + q * m", partner="x.index_select(0, p)"),
    CUTMIX(labels="torch.lerp(y[p], y, t).double()"),
    CUTMIX(area=f"({COLUMNS} * {ROWS} / (H * W))[:, 0, 0].to(x.dtype)"),
]
CUTMIX_WRONG = CUTMIX.wrong("give", BOTH) | CUTMIX.wrong("labels", LABELS)
CUTMIX_WRONG |= CUTMIX.wrong(
    "area",
    {
        "they follow the pixels that changed": (
            "(torch.where(m, x[p], x) != x).any(1, keepdim=True).to(x.dtype).mean((2, 3))"
        ),
    },
)
CUTMIX_WRONG |= CUTMIX.wrong("images", {
    "come back uncut": "x.clone()", "come back whole": "x.index_select(0, p)",
    "added to the image": "x + q.masked_fill(~m, 0)",
    "inside and outside are swapped": "torch.where(~m, q, x)",
    "a pixel is in the box only if both its row and its column are":
        "torch.where(rows | cols, q, x)", "only the rows": "torch.where(rows, q, x)",
    "only the columns": "torch.where(cols, q, x)",
    "upper left corner":
        "holes(lambda other, part: other[..., : part.shape[1], : part.shape[2]], x, third, p)",
    "shrunk":
        "holes(lambda other, part: F.interpolate(other[None], part.shape[1:])[0], x, third, p)",
    "half the partner": "torch.lerp(x, q, 0.5 * m)",
    "filled with 1": "holes(lambda *_: 1, x, third, p)",
    "filled with 0": "holes(lambda *_: 0, x, third, p)",
    "outside the box everything is black": "q.masked_fill(~m, 0)",
    "every image gets the first box": "torch.where(m[:1], q, x)",
    "the box of its partner": "torch.where(m[p], q, x)",
    "the pasted partners were changed before":
        "holes(lambda other, part: part.clone(), x, third, p, read=True)",
    "blends the whole images": "torch.lerp(x, q, m.to(x.dtype).mean((1, 2, 3), keepdim=True))",
    "neither the image's own nor": "holes(lambda other, part: part.flip(2), x, third, p)",
    "unchanged: channel 1, 2": "torch.cat([x[:, :1].where(~m, q[:, :1]), x[:, 1:]], 1)",
    "a mask gets (B, 1, H, W)": "x + third[:, :1] * x",
    "changes its input: argument 1, a tensor": "x.copy_(torch.where(m, q, x))",
}) | CUTMIX.wrong("partner", {
    "the next image": "x.roll(-1, 0)",
    "in reverse order": "x.flip(0)", "the same partner": "x[p[0]]",
    "partner is inverted: image i gets":
        "x[torch.empty_like(p).scatter_(0, p, torch.arange(len(p)))]",
}) | CUTMIX.wrong("boxes", {
    "left and top are swapped": "left, top = top, left",
    "width and height are swapped": "width, height = height, width",
    "rows and columns are swapped": "left, top, width, height = top, left, height, width",
    "used as right and bottom": "width, height = width - left, height - top",
    "used as the center":
        "left, top = (left - width // 2).clamp(min=0), (top - height // 2).clamp(min=0)",
    "the box is moved until it fits": INTO_CORNER,
    "left and top are ignored": "width, left = left + width, 0; height, top = top + height, 0",
    "width and height are ignored": "width, height = W, H",
    "a pixel too large": "width, height = width + 1, height + 1",
    "a pixel too small": "left, top, width, height = left + 1, top + 1, width - 1, height - 1",
}) | CUTMIX.wrong("area", {
    "labels for boxes over the edge of 5 x 7 pixels: row":
        "(width.minimum(W - left) * height.clamp(max=H) / (W * H))[:, 0, 0]",
    "[x] cutmix: labels for": "((width + height) / (W + H))[:, 0, 0]",
    "at most 1, but": "(width * height / (W * H)).clamp(max=1)[:, 0, 0]",
    "boxes over the edge: the labels follow width x height, but only":
        "(width * height / (W * H))[:, 0, 0]",
    "but not the lower one": "(width.minimum(W - left) * height / (W * H))[:, 0, 0]",
    "but not the right one": "(width * height.minimum(H - top) / (W * H))[:, 0, 0]",
    "width is limited to W and height to H":
        "(width.clamp(max=W) * height.clamp(max=H) / (W * H))[:, 0, 0]",
}) | {
    "the partner is":
        CUTMIX(cols="(col - left).abs() <= width // 3", rows="(row - top).abs() <= height // 3"),
    "by what is covered: raises ValueError: the box leaves": refuses_edges,
}  # fmt: skip

# the planted mistake

FIXED = Program("""
def answer(a, b):
    std, mean = torch.std_mean(a, (0, 2, 3), keepdim=True)
    std_b, mean_b = torch.std_mean(b, (0, 2, 3), keepdim=True)
    std_2, mean_2 = torch.std_mean(torch.cat([a, b]), (0, 2, 3), keepdim=True)
    {{numbers: pass}}
    both = tuple((x - mean) / std for x in (a, b))
    return {{give: both}}
""")
FIXED_RIGHT = [
    *(FIXED(numbers=code) for code in (
        "pass", "std = std + 1e-8", "std = (std**2 + 1e-6).sqrt()",
        "std = torch.cat([a, a]).std((0, 2, 3), keepdim=True)"
    )),
    *(FIXED(give=code) for code in (
        "(x for x in both)", "tuple(x.detach() for x in both)",
        "torch.cat(both).split([len(a), len(b)])",
        "tuple(F.batch_norm(x, a.mean((0, 2, 3)), a.var((0, 2, 3)), eps=1e-12) for x in (a, b))",
        "[torch.from_numpy((x.numpy() - mean.numpy()) / a.numpy().std((0, 2, 3), "
        "keepdims=True)) for x in (a, b)]",
    )),
    lambda a, b, eps=0: [
        torchvision_normalize(x, a.mean((0, 2, 3)).tolist(), a.std((0, 2, 3)).tolist())
        for x in (a, b)
    ],
]  # fmt: skip
FIXED_WRONG = FIXED.wrong("numbers", {
    "still the planted mistake": "mean, std = mean_2, std_2",
    "both splits get the mean and std of the test split": "mean, std = mean_b, std_b",
    "all channels get one mean and std": "mean, std = a.mean(), a.std()",
    "the standard deviation is still that of both": "std = std_2",
    "the mean is still that of both": "mean = mean_2",
    "averages over the batch only": "std, mean = torch.std_mean(a, 0)",
    "its variance": "std = std.square()", "and std is another number": "std = 1 / std",
    "and std is 1;": "std = 1",
    "the mean is the first image's, and std is the first image's":
        "std, mean = torch.std_mean(a[:1], (0, 2, 3), keepdim=True)",
    "the average of the two splits' means": "mean = (mean + mean_b) / 2",
    "another number (0.5 in channel 0)": "mean = std = 0.5",
    "the average of the two splits' deviations": "std = (std + std_b) / 2",
    "of all channels together, and": "mean = a.mean()",
    "and std is that of all channels together": "std = a.std()",
    "is not (x - mean) / std with": "std, mean = torch.std_mean(a, (0, 1), keepdim=True)",
    "With keepdim=True": "std, mean = torch.std_mean(a, (0, 2, 3))",
}) | FIXED.wrong("give", {
    "the test split is normalized by its own mean and std": "(both[0], (b - mean_b) / std_b)",
    "return two results": ["torch.cat(both)", "both[0]"],
    "test split still gets": "(both[0], (b - mean_2) / std_2)",
    "training split still gets": "((a - mean_2) / std_2, both[1])",
    "the test split is not normalized": "(both[0], b.clone())",
    "nothing is normalized": "(a.clone(), b.clone())",
    "every image is normalized by itself":
        "[(x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True) for x in (a, b)]",
    "all channels together":
        "[(x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True) for x in (a, b)]",
    "the training split's, and std is the test split's": "(both[0], (b - mean) / std_b)",
    "the test split's, and std is the training split's": "(both[0], (b - mean_b) / std)",
    "the training split comes back as it was": "(a, both[1])", " of 3 for": "(*both, mean)",
    "gives shape (9, 3, 4, 5) as test split": "(both[0], both[0])",
    "gives the test split first": "both[::-1]",
    "a numpy array": "tuple(x.numpy() for x in both)",
    "changes its input":
        ["(a.sub_(mean).div_(std), b.sub_(mean).div_(std))", "(a.copy_(both[0]), both[1])"],
})  # fmt: skip

RIGHT = {
    "split": SPLIT_RIGHT,
    "normalize": NORMALIZE_RIGHT,
    "mixup": MIXUP_RIGHT,
    "cutmix": CUTMIX_RIGHT,
    "fixed": FIXED_RIGHT,
}
WRONG = {
    "split": SPLIT_WRONG,
    "normalize": NORMALIZE_WRONG,
    "mixup": MIXUP_WRONG,
    "cutmix": CUTMIX_WRONG,
    "fixed": FIXED_WRONG,
}
