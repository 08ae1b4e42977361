"""The cutmix of notebook 06: boxes of partners pasted into images."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.data_mixing import (
    LINED_UP,
    MIX,
    MIX_SIZES,
    PARTNERS,
    batch_of,
    blend,
    hot,
    mixed,
    wrong_labels,
)
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case
from vit_helpers.checks.engine.report import Function

# Cutting boxes


def close(got: Tensor, right: Tensor) -> bool:
    """Tell whether images or labels are right.

    Labels may be rounded to float32, as a share of the area is that torch divides from integers.
    """
    return same(got, right) or (got.ndim == 2 and same(got.float(), right.float()))


def within(places: Tensor, begin: Tensor, length: Tensor) -> Tensor:
    return (places >= begin) & (places < begin + length)


def box_mask(
    x: Tensor, boxes: Tensor, inside: Function = within, both: Function = torch.logical_and
) -> Tensor:
    """Return a mask (B, 1, H, W) that is True inside each image's box.

    A mistake is another rule for rows and columns, or to join them.
    """
    left, top, width, height = boxes.view(-1, 4, 1, 1, 1).unbind(1)
    row, column = (torch.arange(n, device=x.device) for n in x.shape[2:])
    return both(inside(row.view(-1, 1), top, height), inside(column, left, width))


def cut(x: Tensor, b: Tensor, p: Tensor, **rule: Function) -> Tensor:
    """Return images that show their partners inside of boxes."""
    return torch.where(box_mask(x, b, **rule), x[p], x)


def cutmix(
    x: Tensor,
    y: Tensor,
    K: int,
    b: Tensor,
    p: Tensor,
    images: Function = cut,
    labels: Function = blend,
    area: Function = lambda x, b: box_mask(x, b).to(x.dtype).mean((1, 2, 3)),
) -> tuple[Tensor, Tensor]:
    """Give the right answer; a mistake is other images or labels, or another share of the area."""
    return images(x, b, p), labels(hot(y, K, x), 1 - area(x, b)[:, None], p)


def holes(fill: Function, read: bool = False) -> Function:
    """Make wrong images, one after the other.

    fill: fill(hole, partner, the region of the hole)
    read: partners that are cut already
    """

    def answer(x: Tensor, b: Tensor, p: Tensor) -> Tensor:
        new = x.clone()
        for i, (left, top, width, height) in enumerate(b.tolist()):
            region = (slice(None), slice(top, top + height), slice(left, left + width))
            if new[i][region].numel():
                new[i][region] = fill(new[i][region], (new if read else x)[p[i]], region)
        return new

    return answer


def centered(boxes: Tensor) -> Tensor:
    """Return boxes whose left and top were taken for the center, moved inside at 0."""
    corners = (boxes[:, :2] - boxes[:, 2:] // 2).clamp(min=0)
    return torch.cat([corners, boxes[:, 2:]], 1)


def pushed_inside(b: Tensor, H: int, W: int) -> Tensor:
    """Return boxes moved to the left and up until they lie inside."""
    room = b.new_tensor([W, H]) - b[:, 2:]
    return torch.cat([torch.minimum(b[:, :2], room).clamp(min=0), b[:, 2:]], 1)


def masked(wrong: Function) -> Function:
    """Make wrong images from images, the right mask and partners."""
    return lambda x, b, p: wrong(x, box_mask(x, b), x[p])


CUTS: dict[str, Function] = {  # wrong images
    "the images come back uncut": lambda x, b, p: x,
    "the partners come back whole": lambda x, b, p: x[p],
    "inside and outside are swapped: the box comes from the partner":
        masked(lambda x, m, q: torch.where(m, x, q)),
    "left and top are swapped: left counts columns, along W":
        lambda x, b, p: cut(x, b[:, [1, 0, 2, 3]], p),
    "width and height are swapped": lambda x, b, p: cut(x, b[:, [0, 1, 3, 2]], p),
    "rows and columns are swapped: left and width belong to W":
        lambda x, b, p: cut(x, b[:, [1, 0, 3, 2]], p),
    "width and height are used as right and bottom, but the box ends at left + width":
        lambda x, b, p: cut(x, b, p, inside=lambda at, start, size: (at >= start) & (at < size)),
    "the box is a pixel too large: it ends before left + width":
        lambda x, b, p: cut(x, b + b.new_tensor([0, 0, 1, 1]), p),
    "the box is a pixel too small: it begins at left and top":
        lambda x, b, p: cut(x, b + b.new_tensor([1, 1, -1, -1]), p),
    "a pixel is in the box only if both its row and its column are: use and instead of or":
        lambda x, b, p: cut(x, b, p, both=torch.logical_or),
    "left and top are ignored, but the box begins there":
        lambda x, b, p: cut(x, b, p, inside=lambda at, begin, length: at < begin + length),
    "width and height are ignored, but the box ends at left + width":
        lambda x, b, p: cut(x, b, p, inside=lambda at, begin, length: at >= begin),
    "only the rows are checked, but the columns count too":
        lambda x, b, p: cut(x, b, p, both=lambda rows, columns: rows | (columns & False)),
    "only the columns are checked, but the rows count too":
        lambda x, b, p: cut(x, b, p, both=lambda rows, columns: columns | (rows & False)),
    "left and top are used as the center of the box, not as its corner":
        lambda x, b, p: cut(x, centered(b), p),
    "the box is moved until it fits, but it should stay where it is and end at the edge":
        lambda x, b, p: cut(x, pushed_inside(b, *x.shape[2:]), p),
    "the box shows the upper left corner of the partner, but should show the same place":
        holes(lambda hole, other, place: other[:, : hole.shape[1], : hole.shape[2]]),
    "the box shows the whole partner, shrunk, but should show the same place of it":
        holes(lambda hole, other, place: F.interpolate(other[None], size=tuple(hole.shape[1:]))[0]),
    "the box is half the partner, but should be the partner alone":
        masked(lambda x, m, q: torch.where(m, (x + q) / 2, x)),
    "the box is added to the image, but should replace what was there":
        masked(lambda x, m, q: x + q * m),
    "the box is filled with 1, but should show the partner":
        masked(lambda x, m, q: x.masked_fill(m, 1)),
    "outside the box everything is black, but the image should stay there":
        masked(lambda x, m, q: q * m),
    "every image gets the first box, but each has its own":
        lambda x, b, p: cut(x, b[:1].expand_as(b), p),
    "image i gets the box of its partner instead of its own": lambda x, b, p: cut(x, b[p], p),
    "the box is filled with 0, but should show the partner":
        masked(lambda x, m, q: x.masked_fill(m, 0)),
    "the pasted partners were changed before: take them from the original images":
        holes(lambda hole, other, place: other[place].clone(), read=True),
    "blends the whole images, but cutmix cuts a box":
        lambda x, b, p: blend(x, 1 - box_mask(x, b).to(x.dtype).mean((1, 2, 3), keepdim=True), p),
} | {
    message: lambda x, b, p, wrong=wrong: cut(x, b, wrong(p))
    for message, wrong in PARTNERS.items()
}  # fmt: skip
# the area beyond the edge counted in some way: f(left, top, width, height, H, W) -> pixels
AREAS = {
    "the labels follow width x height, but only what lies inside the image counts":
        lambda x, y, w, h, H, W: w * h,
    "the labels follow width x height, at most 1, but only what lies inside the image counts":
        lambda x, y, w, h, H, W: (w * h).clamp(max=H * W),
    "the labels follow the right edge, but not the lower one":
        lambda x, y, w, h, H, W: torch.minimum(w, W - x) * h,
    "the labels follow the lower edge, but not the right one":
        lambda x, y, w, h, H, W: w * torch.minimum(h, H - y),
    "width is limited to W and height to H, "
    "but a box that begins at left has at most W - left columns":
        lambda x, y, w, h, H, W: w.clamp(max=W) * h.clamp(max=H),
}  # fmt: skip


def area_by(pixels: Function) -> Function:
    """Make a wrong share of the area from a number of pixels."""
    return lambda x, b: (pixels(*b.unbind(1), *x.shape[2:]) / x[0, 0].numel()).to(x.dtype)


def rectangle(mask: Tensor) -> str:
    """Write a mask (H, W) in words, where it is a box."""
    rows, columns = (
        mask.any(1).nonzero().flatten().tolist(),
        mask.any(0).nonzero().flatten().tolist(),
    )
    if not rows:
        return "nowhere"
    solid = int(mask.sum()) == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    return (
        f"{'in' if solid else 'scattered over'} rows {rows[0]} to {rows[-1]}, "
        f"columns {columns[0]} to {columns[-1]}"
    )


def as_boxes(
    images: Tensor, right: Tensor, x: Tensor, y: Tensor, K: int, b: Tensor, p: Tensor
) -> str:
    """Say where the partner is in the first wrong image, and where it should."""
    i = next(i for i in range(len(x)) if not same(images[i], right[i]))
    here, there = (torch.isclose(images[i], other).all(0) for other in (x[i], x[p[i]]))
    box = "image {}, box left {}, top {}, width {}, height {}".format(i, *b[i].tolist())
    if neither := int((~here & ~there).sum()):
        return (
            f"{box}: {neither} pixels are neither the image's own nor, "
            "at the same place, its partner's"
        )
    return (
        f"{box}: the partner is {rectangle(there & ~here)}; "
        f"it should be {rectangle(box_mask(x, b)[i, 0])}"
    )


def inner_boxes(B: int, H: int, W: int) -> Tensor:
    """Return boxes that lie inside, of many forms."""
    width, height = torch.randint(1, W, (B,)), torch.randint(1, H, (B,))
    left, top = ((torch.rand(B) * (side - n + 1)).long() for side, n in ((W, width), (H, height)))
    return torch.stack([left, top, width, height], 1)


def edge_boxes(B: int, H: int, W: int) -> Tensor:
    """Return boxes over the edges.

    They reach over the right and the lower one; one is empty, one covers all, one is too wide
    alone.
    """
    boxes = [
        (W - 1, H - 2, 3, 4),
        (1, H - 1, 2, 5),
        (0, 1, W + 9, H + 5),
        (1, 1, 0, 2),
        (0, 0, W, H),
        (2, 0, W + 2, 2),
    ]
    return torch.tensor(boxes)[:B]


def next_one(labels: Tensor) -> Tensor:
    """Return partners of another class."""
    return torch.arange(len(labels)).roll(-1)


def half_black(size: Sequence[int]) -> Case:
    """Make images whose upper halves are all black, as pasted pixels often are."""
    case = batch_of(size, inner_boxes, next_one, "for images whose upper halves are black")

    def draw() -> Arguments:
        images, *rest = case.draw()
        images[:, :, : images.shape[2] // 2] = 0
        return images, *rest

    return replace(case, draw=draw)


def by_difference(x: Tensor, y: Tensor, K: int, b: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Let labels follow the share of the pixels that differ after the cut."""
    images = cut(x, b, p)
    return cutmix(x, y, K, b, p, area=lambda x, b: (images != x).any(1).to(x.dtype).mean((1, 2)))


CUTMIX_MISTAKES: dict[str, Function] = (
    {
        f"images {{when}}: {message}": partial(cutmix, images=wrong)
        for message, wrong in CUTS.items()
    }
    | wrong_labels(cutmix)
    | {
        f"boxes over the edge: {message}": partial(cutmix, area=area_by(pixels))
        for message, pixels in AREAS.items()
    }
    | {
        "labels {when}: they follow the pixels that changed, but pixels that are equal in both "
        "images are covered, too": by_difference,
    }
)  # fmt: skip
CUTMIX = replace(
    MIX,
    name="cutmix",
    reference=cutmix,
    outcome=replace(MIX.outcome, close=close),
    wording=replace(
        MIX.wording,
        unknown=mixed(as_boxes),
        hints={
            "must match the size of tensor": LINED_UP
            + "with left as (B, 1, 1, 1), rows as (H, 1) and columns as (W) a mask "
            "gets (B, 1, H, W); a share of the area needs (B, 1) beside labels"
        },
    ),
    contract=replace(MIX.contract, large=10),  # pixels may be any numbers
    ideas={
        "boxes that lie inside, in batches of all sizes": [
            batch_of(size, inner_boxes)
            for size in [*MIX_SIZES[:2], (2, 1, 4, 3, 2), MIX_SIZES[4], MIX_SIZES[5]]
        ],
        "boxes over the edge, empty ones and whole ones: labels by what is covered": [
            batch_of(
                (6, C, H, W, K),
                edge_boxes,
                next_one,
                f"for boxes over the edge of {H} x {W} pixels",
            )
            for C, H, W, K in ((3, 5, 7, 10), (1, 8, 6, 5))
        ]
        + [half_black((5, 3, 8, 6, 4))],
        "keeps float64, and leaves its inputs unchanged": [expect_contract],
    },
    mistakes=CUTMIX_MISTAKES,
)
check_cutmix = CUTMIX.check
