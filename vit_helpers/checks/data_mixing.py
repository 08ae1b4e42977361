"""The mixup of notebook 06, and what it shares with cutmix.

These are partners, labels that are mixed, and words for them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Contract, Exercise, Outcome, Wording
from vit_helpers.checks.engine.report import Function

# Blending

MIX_SIZES = [
    (6, 3, 5, 7, 4),
    (5, 1, 8, 8, 3),
    (1, 2, 4, 3, 2),
    (4, 4, 4, 4, 4),
    (7, 7, 7, 7, 10),
    (6, 3, 7, 5, 4),
]
LINED_UP = "Torch lines axes up from the last one: "


def partly(got: Tensor, right: Tensor, x: Tensor) -> str | None:
    """Say which images or channels were left out, where the others are right; else None."""
    for name, axis in (("image", 0), ("channel", 1)):
        wrong = [
            i for i in range(x.shape[axis]) if not same(got.select(axis, i), right.select(axis, i))
        ]
        for message, other in (("unchanged", x), ("black", torch.zeros_like(x))):
            if len(wrong) < x.shape[axis] and all(
                same(got.select(axis, i), other.select(axis, i)) for i in wrong
            ):
                numbers = ", ".join(map(str, wrong))
                return f"{message}: {name} {numbers}; the others are right"
    return None


def blend(x: Tensor, share: Tensor, partner: Tensor) -> Tensor:
    """Blend rows with those of their partners; share: of the same number of axes as x."""
    return share * x + (1 - share) * x[partner]


def hot(y: Tensor, K: int, x: Tensor) -> Tensor:
    """Return labels as rows of 0 and 1, of the images' type."""
    return F.one_hot(y, K).to(x.dtype)


def shares_along(axis: int) -> Function:
    """Make images where the shares run along another axis, if it is as long as the batch."""
    return lambda x, s, p: blend(x, s.transpose(0, axis) if x.shape[axis] == len(x) else s, p)


def blended_in_order(x: Tensor, s: Tensor, p: Tensor) -> Tensor:
    """Blend one image after the other, in place: later ones with images blended already."""
    x = x.clone()
    for i, j in enumerate(p.tolist()):
        x[i] = s[i] * x[i] + (1 - s[i]) * x[j]
    return x


PARTNERS: dict[str, Function] = {  # wrong partners
    "the partner is the next image instead of images[partner]":
        lambda p: torch.arange(len(p)).roll(-1),
    "the partner is the batch in reverse order instead of images[partner]":
        lambda p: torch.arange(len(p)).flip(0),
    "every image gets the same partner instead of images[partner]": lambda p: p[:1].expand_as(p),
    "partner is inverted: image i gets images[partner[i]]": torch.argsort,
}  # fmt: skip
BLENDS: dict[str, Function] = {  # wrong images; share: (B, 1, 1, 1)
    "the images come back unmixed": lambda x, s, p: x,
    "the partners come back unmixed": lambda x, s, p: x[p],
    "the partner gets share, but share says how much of the image itself is kept":
        lambda x, s, p: blend(x, 1 - s, p),
    "both images get share, but the partner should get 1 - share": lambda x, s, p: s * (x + x[p]),
    "the partner is added in full, but should get 1 - share": lambda x, s, p: s * x + x[p],
    "every image gets the first share, but each has its own": lambda x, s, p: blend(x, s[:1], p),
    "every image gets the mean share, but each has its own": lambda x, s, p: blend(x, s.mean(), p),
    "share runs along W, but belongs to axis 0: view(-1, 1, 1, 1)": shares_along(3),
    "share runs along H, but belongs to axis 0": shares_along(2),
    "share runs along the channels, but belongs to axis 0": shares_along(1),
    "the partner is missing, but should get 1 - share": lambda x, s, p: s * x,
    "both images are added in full, but their shares should sum to 1": lambda x, s, p: x + x[p],
    "mixes half and half, but each image has its own share": lambda x, s, p: (x + x[p]) / 2,
    "the image itself always gets the larger share: use share as it is":
        lambda x, s, p: blend(x, torch.maximum(s, 1 - s), p),
    "blends images that were already blended: read from the original images": blended_in_order,
    "the result is rounded to whole numbers": lambda x, s, p: blend(x, s, p).round(),
    "the partner's share is used: share, not share[partner]": lambda x, s, p: blend(x, s[p], p),
} | {
    message: lambda x, s, p, wrong=wrong: blend(x, s, wrong(p))
    for message, wrong in PARTNERS.items()
}  # fmt: skip
SAME_CLASS = "where both labels are the same class, their shares must be added"
LABELS = {  # wrong labels from rows of 0 and 1; share: of the image itself, (B, 1)
    "only the image's own label counts, but the partner's has its share too": lambda y, s, p: y,
    "only the partner's label counts, but the image's own has its share too": lambda y, s, p: y[p],
    "the shares are swapped: the image's own label gets the share that was kept":
        lambda y, s, p: blend(y, 1 - s, p),
    "mixes half and half, but the labels should follow the pixels": lambda y, s, p: (y + y[p]) / 2,
    "every row gets the first image's share": lambda y, s, p: blend(y, s[:1], p),
    "every row gets the mean share": lambda y, s, p: blend(y, s.mean(), p),
    "both labels count in full, but their shares should sum to 1": lambda y, s, p: y + y[p],
    "the label with the larger share gets everything, but both should keep their shares":
        lambda y, s, p: hot(blend(y, s, p).argmax(1), y.shape[1], y),
    "partner is inverted": lambda y, s, p: blend(y, s, p.argsort()),
    SAME_CLASS: lambda y, s, p: torch.where(y[p] > 0, 1 - s, s * y),
    f"{SAME_CLASS}, but here the first is lost":
        lambda y, s, p: torch.where(y > 0, s, (1 - s) * y[p]),
    "the image's own label always gets the larger share":
        lambda y, s, p: blend(y, torch.maximum(s, 1 - s), p),
    "the partner's share is used: share, not share[partner]": lambda y, s, p: blend(y, s[p], p),
    "both labels get 1, but their shares should sum to 1":
        lambda y, s, p: ((y + y[p]) > 0).to(y.dtype),
    "the partner's label gets the same share as the image's own, but should get 1 - share":
        lambda y, s, p: s * (y + y[p]),
    "the partner's label counts in full, but should get 1 - share": lambda y, s, p: s * y + y[p],
    "the partner's label is missing": lambda y, s, p: s * y,
    "half of what they should be, because the shares already sum to 1":
        lambda y, s, p: blend(y, s, p) / 2,
    "the logarithm was taken: return the shares themselves": lambda y, s, p: blend(y, s, p).log(),
    "a softmax was applied, but the shares already sum to 1":
        lambda y, s, p: blend(y, s, p).softmax(1),
}  # fmt: skip


def mixup(
    x: Tensor,
    y: Tensor,
    K: int,
    share: Tensor,
    p: Tensor,
    images: Function = blend,
    labels: Function = blend,
) -> tuple[Tensor, Tensor]:
    """Give the right answer; a mistake is other images or labels."""
    share = share.to(x.dtype)
    return images(x, share.view(-1, 1, 1, 1), p), labels(hot(y, K, x), share[:, None], p)


def wrong_labels(right: Function) -> dict[str, Function]:
    """Return whole wrong answers, whose images are right.

    right: an answer that takes other `labels`
    """
    return {
        f"labels {{when}}: {message}": partial(right, labels=wrong)
        for message, wrong in LABELS.items()
    } | {
        "labels should be rows of K shares; F.one_hot makes such rows":
            partial(right, labels=lambda y, s, p: y.argmax(1)),
        "a row has K shares: F.one_hot(labels, num_classes)":
            lambda x, y, K, s, p: (right(x, y, K, s, p)[0], hot(y, int(y.max()) + 1, x)),
    }  # fmt: skip


def as_mixture(
    images: Tensor, right: Tensor, x: Tensor, y: Tensor, K: int, s: Tensor, p: Tensor
) -> str:
    """Say of which images of the batch the first wrong one is made, in numbers."""
    i = next(i for i in range(len(x)) if not same(images[i], right[i]))
    should = f"it should be {s[i]:.3g} of image {i} and {1 - s[i]:.3g} of image {p[i]}"
    basis, made = x.flatten(1).double().T, images[i].flatten().double()[:, None]
    parts = torch.linalg.lstsq(basis, made).solution
    if (basis @ parts - made).abs().max() > 1e-3:
        return f"image {i} is not a blend of images of this batch; {should}"
    named = [
        f"{part:.3g} of image {j}"
        for j, part in enumerate(parts[:, 0].tolist())
        if abs(part) > 1e-3
    ]
    return f"image {i} is {' and '.join(named) or 'black'}; {should}"


def as_row(got: Tensor, right: Tensor, *args: Any) -> str:
    """Write the first row of labels that is wrong, and what it should be."""
    i = next(i for i in range(len(got)) if not same(got[i], right[i]))
    one, other = ([float(f"{x:.2g}") for x in row.tolist()] for row in (got[i], right[i]))
    total = "" if same(got[i].sum(), right[i].sum()) else f", and sums to {got[i].sum():.2g}"
    return f"labels {{when}}: row {i} is {one}{total}; by its pixels it should be {other}"


def mixed(seen: Function) -> dict[str, Function]:
    """Write the message about wrong images and labels that no known mistake gives.

    seen: (got, right, images, ...) -> what the images look like
    """

    def about_images(got: Tensor, right: Tensor, x: Tensor, *more: Any) -> str:
        return f"images {{when}}: {partly(got, right, x) or seen(got, right, x, *more)}"

    return {"images": about_images, "labels": as_row}


def batch_of(
    size: Sequence[int],
    extra: Function,
    partner: Function = lambda y: torch.randperm(len(y)),
    when: str = "",
) -> Case:
    """Make images, labels, K, what `extra(B, H, W)` gives, and partners.

    Some partners are of the image's own class, some of another. Labels are others in every draw.
    """

    def draw() -> Arguments:
        B, C, H, W, K = size
        labels = torch.arange(B) % K
        labels[B // 2 :] = labels[B // 2 :].flip(0)
        labels = torch.randperm(min(B, K))[labels]
        return 1.5 * torch.randn(B, C, H, W), labels, K, extra(B, H, W), partner(labels)

    return Case(draw, when)


MIX = Exercise(
    name="mixup",
    reference=mixup,
    outcome=Outcome(returns=("images", "labels"), wider=("labels",)),
    wording=Wording(
        when=lambda x, y, K, *_: f"for B, C, H, W = {', '.join(map(str, x.shape))} and K = {K}",
        says="{message}",
        unknown=mixed(as_mixture),
        hints={
            "must match the size of tensor": LINED_UP
            + "share needs the shape (B, 1, 1, 1) beside images, (B, 1) beside labels"
        },
    ),
    contract=Contract(
        differentiable=False,
        large=0,  # shares lie between 0 and 1
    ),
    ideas={
        "images and labels of batches of all sizes": [
            batch_of(size, lambda B, H, W: torch.linspace(0.1, 0.8, B)[torch.randperm(B)])
            for size in MIX_SIZES
        ],
        "shares of 0 and 1": [
            batch_of(size, lambda B, H, W: (torch.arange(B) % 2).float()) for size in MIX_SIZES[:2]
        ],
        "keeps float64, and leaves its inputs unchanged": [expect_contract],
    },
    mistakes={
        f"images {{when}}: {message}": partial(mixup, images=wrong)
        for message, wrong in BLENDS.items()
    }
    | wrong_labels(mixup),
)
check_mixup = MIX.check
