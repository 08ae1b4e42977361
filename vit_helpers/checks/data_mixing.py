"""The mixing of notebook 06: `mixup` blends images with their partners, `cutmix` pastes boxes of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.compare import same
from vit_helpers.checks.contract import contract
from vit_helpers.checks.engine import Case, Exercise

# Blending

MIX_SIZES = [(6, 3, 5, 7, 4), (5, 1, 8, 8, 3), (1, 2, 4, 3, 2), (4, 4, 4, 4, 4), (7, 7, 7, 7, 10), (6, 3, 7, 5, 4)]
LINED_UP = "Torch lines axes up from the last one: "


def partly(got: Tensor, right: Tensor, x: Tensor) -> str | None:
    """Which images or channels were left out, where the others are right; None where it is not so."""
    for name, axis in (("image", 0), ("channel", 1)):
        out = [i for i in range(x.shape[axis]) if not same(got.select(axis, i), right.select(axis, i))]
        for words, kept in (("unchanged", x), ("black", torch.zeros_like(x))):
            if len(out) < x.shape[axis] and all(same(got.select(axis, i), kept.select(axis, i)) for i in out):
                numbers = ", ".join(map(str, out))
                return f"{words}: {name} {numbers}; the others are right. Was something left out, by a loop perhaps?"
    return None


def blend(x: Tensor, share: Tensor, partner: Tensor) -> Tensor:
    """Rows blended with those of their partners; share: of the same number of axes as x."""
    return share * x + (1 - share) * x[partner]


def hot(y: Tensor, K: int, x: Tensor) -> Tensor:
    """Labels as rows of 0 and 1, of the images' type."""
    return F.one_hot(y, K).to(x.dtype)


def shares_along(axis: int) -> Callable:
    """Images where the shares run along another axis, if it is as long as the batch."""
    return lambda x, s, p: blend(x, s.transpose(0, axis) if x.shape[axis] == len(x) else s, p)


def blended_in_order(x: Tensor, s: Tensor, p: Tensor) -> Tensor:
    """One image after the other, in place: later ones are blended with images that are blended already."""
    x = x.clone()
    for i, j in enumerate(p.tolist()):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


BLENDS = {  # wrong images; share: (B, 1, 1, 1)
    "the images come back unmixed": lambda x, s, p: x,
    "the partners come back unmixed": lambda x, s, p: x[p],
    "share goes to the partner; it says how much of the image itself is kept": lambda x, s, p: blend(x, 1 - s, p),
    "adds without 1 - share: the sum of both shares should be 1": lambda x, s, p: s * (x + x[p]),
    "the partner is added whole; it gets 1 - share": lambda x, s, p: s * x + x[p],
    "every image gets the first share; each has its own": lambda x, s, p: blend(x, s[:1], p),
    "every image gets the mean share; each has its own": lambda x, s, p: blend(x, s.mean(), p),
    "the partner is the next image; take images[partner]": lambda x, s, p: s * x + (1 - s) * x.roll(-1, 0),
    "the partner is the batch turned round; take images[partner]": lambda x, s, p: s * x + (1 - s) * x.flip(0),
    "the share runs along W; line it up with axis 0: view(-1, 1, 1, 1)": shares_along(3),
    "the share runs along H; line it up with axis 0": shares_along(2),
    "the share runs along the channels; line it up with axis 0": shares_along(1),
    "the partner is missing; it gets 1 - share": lambda x, s, p: s * x,
    "both are added whole; they share 1": lambda x, s, p: x + x[p],
    "half and half; each image has its own share": lambda x, s, p: (x + x[p]) / 2,
    "every image gets the same partner; take images[partner]": lambda x, s, p: blend(x, s, p[:1].expand_as(p)),
    "the larger share goes to the image itself, always; use share as it is":
        lambda x, s, p: blend(x, torch.maximum(s, 1 - s), p),
    "images are blended that were blended already: read from the images as they came": blended_in_order,
    "is rounded to whole numbers": lambda x, s, p: blend(x, s, p).round(),
    "the share of the partner is used: share, not share[partner]": lambda x, s, p: blend(x, s[p], p),
    "partner is used backwards: image i gets images[partner[i]]": lambda x, s, p: blend(x, s, p.argsort()),
}  # fmt: skip
SAME_CLASS = "where both labels are the same class, their shares must be added"
LABELS = {  # wrong labels from rows of 0 and 1; share: of the image itself, (B, 1)
    "the image's own label alone; the partner's has its share too": lambda y, s, p: y,
    "the partner's label alone; the image's own has its share too": lambda y, s, p: y[p],
    "the shares have changed places: the image's own label gets the share that was kept": lambda y, s, p: blend(y, 1 - s, p),
    "half and half; the labels follow the pixels": lambda y, s, p: (y + y[p]) / 2,
    "every row gets the first image's share": lambda y, s, p: blend(y, s[:1], p),
    "every row gets the mean share": lambda y, s, p: blend(y, s.mean(), p),
    "both labels are whole; they share 1": lambda y, s, p: y + y[p],
    "the larger share takes all; both labels keep theirs": lambda y, s, p: hot(blend(y, s, p).argmax(1), y.shape[1], y),
    "the partner is used backwards": lambda y, s, p: blend(y, s, p.argsort()),
    SAME_CLASS: lambda y, s, p: torch.where(y[p] > 0, 1 - s, s * y),
    f"{SAME_CLASS}; here the first is lost": lambda y, s, p: torch.where(y > 0, s, (1 - s) * y[p]),
    "the larger share goes to the image's own label, always": lambda y, s, p: blend(y, torch.maximum(s, 1 - s), p),
    "the share of the partner is used: share, not share[partner]": lambda y, s, p: blend(y, s[p], p),
    "both labels get 1 wherever they are; they share 1": lambda y, s, p: ((y + y[p]) > 0).to(y.dtype),
    "the partner's label gets the same share as the image's own; it gets 1 - share": lambda y, s, p: s * (y + y[p]),
    "the partner's label is whole; it gets 1 - share": lambda y, s, p: s * y + y[p],
    "the partner's label is missing": lambda y, s, p: s * y,
    "half of what they should be; the shares sum to 1 already": lambda y, s, p: blend(y, s, p) / 2,
    "goes through a logarithm; shares are wanted": lambda y, s, p: blend(y, s, p).log(),
    "goes through a softmax; shares are shares already": lambda y, s, p: blend(y, s, p).softmax(1),
}  # fmt: skip


def mixup(
    x: Tensor, y: Tensor, K: int, share: Tensor, p: Tensor, images: Callable = blend, labels: Callable = blend
) -> tuple:
    """A right mixup; a wrong one with other images or labels."""
    share = share.to(x.dtype)
    return images(x, share.view(-1, 1, 1, 1), p), labels(hot(y, K, x), share[:, None], p)


def wrong_labels(right: Callable) -> dict[str, Callable]:
    """Whole wrong answers, whose images are right; `right`: an answer with other `labels`."""
    return {f"labels {{when}}: {words}": partial(right, labels=wrong) for words, wrong in LABELS.items()} | {
        "labels are rows of K shares, F.one_hot makes such rows": partial(right, labels=lambda y, s, p: y.argmax(1)),
        "a row has K shares: F.one_hot(labels, num_classes)":
            lambda x, y, K, s, p: (right(x, y, K, s, p)[0], hot(y, int(y.max()) + 1, x)),
    }  # fmt: skip


def as_mixture(images: Tensor, right: Tensor, x: Tensor, y: Tensor, K: int, s: Tensor, p: Tensor) -> str:
    """Of which images of the batch the first wrong one is made, in numbers."""
    i = next(i for i in range(len(x)) if not same(images[i], right[i]))
    should = f"it should be {s[i]:.3g} of image {i} and {1 - s[i]:.3g} of image {p[i]}"
    basis, made = x.flatten(1).double().T, images[i].flatten().double()[:, None]
    parts = torch.linalg.lstsq(basis, made).solution
    if (basis @ parts - made).abs().max() > 1e-3:
        return f"image {i} is no blend of images of this batch; {should}"
    named = [f"{part:.3g} of image {j}" for j, part in enumerate(parts[:, 0].tolist()) if abs(part) > 1e-3]
    return f"image {i} is {' and '.join(named) or 'black'}; {should}"


def as_row(got: Tensor, right: Tensor, *given: Any) -> str:
    """The first row of labels that is wrong, and what it should be."""
    i = next(i for i in range(len(got)) if not same(got[i], right[i]))
    one, other = ([float(f"{x:.2g}") for x in row.tolist()] for row in (got[i], right[i]))
    total = "" if same(got[i].sum(), right[i].sum()) else f", and sums to {got[i].sum():.2g}"
    return f"labels {{when}}: row {i} is {one}{total}; by its pixels it should be {other}"


def mixed(seen: Callable) -> dict[str, Callable]:
    """What to say of wrong images and labels that no known mistake gives; seen: of images, what they look like."""
    return {
        "images": lambda got, right, x, *more: f"images {{when}}: {partly(got, right, x) or seen(got, right, x, *more)}",
        "labels": as_row,
    }


def batch_of(size: tuple, extra: Callable, partner: Callable = lambda y: torch.randperm(len(y)), when: str = "") -> Case:
    """Images, labels, K, what `extra(B, H, W)` gives, and partners: some of their own class, some of another."""

    def draw() -> tuple:
        B, C, H, W, K = size
        labels = torch.arange(B) % K
        labels[B // 2 :] = labels[B // 2 :].flip(0)
        return 1.5 * torch.randn(B, C, H, W), labels, K, extra(B, H, W), partner(labels)

    return Case(draw, when)


MIX = Exercise(
    name="mixup",
    reference=mixup,
    returns=("images", "labels"),
    wider=("labels",),
    when=lambda x, y, K, *_: f"for B, C, H, W = {', '.join(map(str, x.shape))} and K = {K}",
    says="{words}",
    unknown=mixed(as_mixture),
    differentiable=False,
    large=0,  # shares lie between 0 and 1
    hints={
        "must match the size of tensor":
            LINED_UP + "share needs the shape (B, 1, 1, 1) beside images, (B, 1) beside labels"
    },
    ideas={
        "images and labels of batches of all sizes":
            [batch_of(size, lambda B, H, W: torch.linspace(0.1, 0.8, B)[torch.randperm(B)]) for size in MIX_SIZES],
        "shares of 0 and 1": [batch_of(size, lambda B, H, W: (torch.arange(B) % 2).float()) for size in MIX_SIZES[:2]],
        "float64 stays, and inputs stay as they were": [contract],
    },
    mistakes={f"images {{when}}: {words}": partial(mixup, images=wrong) for words, wrong in BLENDS.items()}
    | wrong_labels(mixup),
)  # fmt: skip
check_mixup = MIX.check


# Cutting boxes


def within(places: Tensor, begin: Tensor, length: Tensor) -> Tensor:
    return (places >= begin) & (places < begin + length)


def box_mask(x: Tensor, boxes: Tensor, inside: Callable = within, both: Callable = torch.logical_and) -> Tensor:
    """True inside each image's box, (B, 1, H, W); a wrong mask by another rule for rows and columns, or to join them."""
    left, top, width, height = boxes.view(-1, 4, 1, 1, 1).unbind(1)
    row, column = (torch.arange(n, device=x.device) for n in x.shape[2:])
    return both(inside(row.view(-1, 1), top, height), inside(column, left, width))


def cut(x: Tensor, b: Tensor, p: Tensor, **rule: Callable) -> Tensor:
    """Images that show their partners inside of boxes."""
    return torch.where(box_mask(x, b, **rule), x[p], x)


def cutmix(
    x: Tensor, y: Tensor, K: int, b: Tensor, p: Tensor,
    images: Callable = cut, labels: Callable = blend,
    area: Callable = lambda x, b: box_mask(x, b).to(x.dtype).mean((1, 2, 3)),
) -> tuple:  # fmt: skip
    """A right cutmix; a wrong one with other images or labels, or another share of the area."""
    return images(x, b, p), labels(hot(y, K, x), 1 - area(x, b)[:, None], p)


def holes(fill: Callable, read: bool = False) -> Callable:
    """Wrong images, one after the other: fill(hole, partner, the place of the hole); read: partners that are cut already."""

    def answer(x: Tensor, b: Tensor, p: Tensor) -> Tensor:
        new = x.clone()
        for i, (left, top, width, height) in enumerate(b.tolist()):
            place = (slice(None), slice(top, top + height), slice(left, left + width))
            if new[i][place].numel():
                new[i][place] = fill(new[i][place], (new if read else x)[p[i]], place)
        return new

    return answer


def pushed_inside(b: Tensor, H: int, W: int) -> Tensor:
    """Boxes moved to the left and up until they lie inside."""
    room = b.new_tensor([W, H]) - b[:, 2:]
    return torch.cat([torch.minimum(b[:, :2], room).clamp(min=0), b[:, 2:]], 1)


def masked(wrong: Callable) -> Callable:
    """Wrong images from images, the right mask and partners."""
    return lambda x, b, p: wrong(x, box_mask(x, b), x[p])


CUTS = {  # wrong images
    "the images come back uncut": lambda x, b, p: x,
    "the partners come back whole": lambda x, b, p: x[p],
    "inside and outside have changed places: the box comes from the partner": masked(lambda x, m, q: torch.where(m, x, q)),
    "left and top have changed places: left counts columns, along W": lambda x, b, p: cut(x, b[:, [1, 0, 2, 3]], p),
    "width and height have changed places": lambda x, b, p: cut(x, b[:, [0, 1, 3, 2]], p),
    "rows and columns have changed places: left and width belong to W": lambda x, b, p: cut(x, b[:, [1, 0, 3, 2]], p),
    "width and height are taken for right and bottom; the box ends at left + width":
        lambda x, b, p: cut(x, b, p, inside=lambda at, begin, length: (at >= begin) & (at < length)),
    "the box is a pixel too large: it ends before left + width": lambda x, b, p: cut(x, b + b.new_tensor([0, 0, 1, 1]), p),
    "the box is a pixel too small: it begins at left and top": lambda x, b, p: cut(x, b + b.new_tensor([1, 1, -1, -1]), p),
    "rows or columns are enough; a pixel is in the box where both are: and, not or":
        lambda x, b, p: cut(x, b, p, both=torch.logical_or),
    "left and top are not minded: the box begins there":
        lambda x, b, p: cut(x, b, p, inside=lambda at, begin, length: at < begin + length),
    "width and height are not minded: the box ends at left + width":
        lambda x, b, p: cut(x, b, p, inside=lambda at, begin, length: at >= begin),
    "only the rows are minded; the box has columns too":
        lambda x, b, p: cut(x, b, p, both=lambda rows, columns: rows | (columns & False)),
    "only the columns are minded; the box has rows too":
        lambda x, b, p: cut(x, b, p, both=lambda rows, columns: columns | (rows & False)),
    "left and top are taken for the middle of the box":
        lambda x, b, p: cut(x, torch.cat([(b[:, :2] - b[:, 2:] // 2).clamp(min=0), b[:, 2:]], 1), p),
    "the box is moved until it lies inside; it stays where it is, and ends at the edge":
        lambda x, b, p: cut(x, pushed_inside(b, *x.shape[2:]), p),
    "the box shows the upper left corner of the partner; it shows the same place":
        holes(lambda hole, other, place: other[:, : hole.shape[1], : hole.shape[2]]),
    "the box shows the whole partner, made small; it shows the same place of it":
        holes(lambda hole, other, place: F.interpolate(other[None], size=tuple(hole.shape[1:]))[0]),
    "the box is half the partner; it is the partner alone": masked(lambda x, m, q: torch.where(m, (x + q) / 2, x)),
    "the box is added to the image; it replaces what was there": masked(lambda x, m, q: x + q * m),
    "the box is painted with 1; it shows the partner": masked(lambda x, m, q: x.masked_fill(m, 1)),
    "outside the box all is black; the image stays there": masked(lambda x, m, q: q * m),
    "the partner is the next image; take images[partner]": masked(lambda x, m, q: torch.where(m, x.roll(-1, 0), x)),
    "the partner is the batch turned round; take images[partner]": masked(lambda x, m, q: torch.where(m, x.flip(0), x)),
    "every image gets the same partner; take images[partner]": lambda x, b, p: cut(x, b, p[:1].expand_as(p)),
    "every image gets the first box; each has its own": lambda x, b, p: cut(x, b[:1].expand_as(b), p),
    "image i gets the box of its partner": lambda x, b, p: cut(x, b[p], p),
    "the box is painted with 0; it shows the partner": masked(lambda x, m, q: x.masked_fill(m, 0)),
    "partners are pasted that were changed already: take them from the images as they came":
        holes(lambda hole, other, place: other[place].clone(), read=True),
    "partner is used backwards: image i gets images[partner[i]]": lambda x, b, p: cut(x, b, p.argsort()),
    "blends the whole images; cutmix cuts a box":
        lambda x, b, p: blend(x, 1 - box_mask(x, b).to(x.dtype).mean((1, 2, 3), keepdim=True), p),
}  # fmt: skip
AREAS = {  # the area beyond the edge counted in some way: f(left, top, width, height, H, W) -> pixels
    "the labels follow width x height; count only what lies inside the image": lambda x, y, w, h, H, W: w * h,
    "the labels follow width x height, cut off at 1; count only what lies inside the image":
        lambda x, y, w, h, H, W: (w * h).clamp(max=H * W),
    "the labels mind the right edge, but not the lower one": lambda x, y, w, h, H, W: torch.minimum(w, W - x) * h,
    "the labels mind the lower edge, but not the right one": lambda x, y, w, h, H, W: w * torch.minimum(h, H - y),
    "width is cut to W and height to H; a box that begins at left ends at W, so W - left remain":
        lambda x, y, w, h, H, W: w.clamp(max=W) * h.clamp(max=H),
}  # fmt: skip


def area_by(pixels: Callable) -> Callable:
    """A wrong share of the area from a number of pixels."""
    return lambda x, b: (pixels(*b.unbind(1), *x.shape[2:]) / x[0, 0].numel()).to(x.dtype)


def rectangle(mask: Tensor) -> str:
    """A mask (H, W) in words, where it is a box."""
    rows, columns = mask.any(1).nonzero().flatten().tolist(), mask.any(0).nonzero().flatten().tolist()
    if not rows:
        return "nowhere"
    solid = int(mask.sum()) == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    return f"{'in' if solid else 'scattered over'} rows {rows[0]} to {rows[-1]}, columns {columns[0]} to {columns[-1]}"


def as_boxes(images: Tensor, right: Tensor, x: Tensor, y: Tensor, K: int, b: Tensor, p: Tensor) -> str:
    """Where the partner stands in the first wrong image, and where it should."""
    i = next(i for i in range(len(x)) if not same(images[i], right[i]))
    here, there = (torch.isclose(images[i], other).all(0) for other in (x[i], x[p[i]]))
    box = "image {}, box left {}, top {}, width {}, height {}".format(i, *b[i].tolist())
    if neither := int((~here & ~there).sum()):
        return f"{box}: {neither} pixels are neither the image's own nor, at the same place, its partner's"
    return f"{box}: the partner stands {rectangle(there & ~here)}; it should stand {rectangle(box_mask(x, b)[i, 0])}"


def inner_boxes(B: int, H: int, W: int) -> Tensor:
    """Boxes that lie inside, of many forms."""
    width, height = torch.randint(1, W, (B,)), torch.randint(1, H, (B,))
    left, top = ((torch.rand(B) * (side - n + 1)).long() for side, n in ((W, width), (H, height)))
    return torch.stack([left, top, width, height], 1)


def edge_boxes(B: int, H: int, W: int) -> Tensor:
    """Boxes that reach over the right and the lower edge, an empty one, one that covers all, one that is too wide alone."""
    boxes = [(W - 1, H - 2, 3, 4), (1, H - 1, 2, 5), (0, 1, W + 9, H + 5), (1, 1, 0, 2), (0, 0, W, H), (2, 0, W + 2, 2)]
    return torch.tensor(boxes)[:B]


def next_one(labels: Tensor) -> Tensor:
    """Partners of another class."""
    return torch.arange(len(labels)).roll(-1)


CUTMIX = Exercise(
    name="cutmix",
    reference=cutmix,
    returns=MIX.returns,
    wider=MIX.wider,
    when=MIX.when,
    says=MIX.says,
    unknown=mixed(as_boxes),
    differentiable=False,
    hints={
        "must match the size of tensor":
            LINED_UP + "with left as (B, 1, 1, 1), rows as (H, 1) and columns as (W) a mask gets (B, 1, H, W); "
            "a share of the area needs (B, 1) beside labels"
    },
    ideas={
        "boxes that lie inside, in batches of all sizes":
            [batch_of(size, inner_boxes) for size in [*MIX_SIZES[:2], (2, 1, 4, 3, 2), MIX_SIZES[4], MIX_SIZES[5]]],
        "boxes over the edge, empty ones and whole ones: labels by what is covered": [
            batch_of((6, C, H, W, K), edge_boxes, next_one, f"for boxes over the edge of {H} x {W} pixels")
            for C, H, W, K in ((3, 5, 7, 10), (1, 8, 6, 5))
        ],
        "float64 stays, and inputs stay as they were": [contract],
    },
    mistakes={f"images {{when}}: {words}": partial(cutmix, images=wrong) for words, wrong in CUTS.items()}
    | wrong_labels(cutmix)
    | {f"boxes over the edge: {words}": partial(cutmix, area=area_by(pixels)) for words, pixels in AREAS.items()},
)  # fmt: skip
check_cutmix = CUTMIX.check
