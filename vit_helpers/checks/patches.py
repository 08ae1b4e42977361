"""The exercises of notebook 01."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import Raises, expect_contract
from vit_helpers.checks.engine.exercise import (
    Arguments,
    Case,
    Contract,
    Exercise,
    Wording,
    fixed,
    forms,
)
from vit_helpers.checks.engine.report import Function, Mistake, first_line
from vit_helpers.checks.patch_weights import TO_LINEAR
from vit_helpers.patches import grid_size, patchify, unpatchify

# Counting


def side_left_over(got: str, H: int, W: int, P: int) -> str:
    """Write the message for an answer that counts patches although pixels are left over."""
    side = "H" if H % P else "W"
    message = (
        f"gives {got} for {H} x {W} pixels and P = {P}; "
        f"{side} is not a multiple of P, so raise a ValueError"
    )
    return f"{message}. Did you check both H and W?" if (H % P == 0) != (W % P == 0) else message


NUM_PATCHES_MISTAKES: dict[str, Function] = {
    "that adds rows and columns, but each row contains every column, so multiply":
        lambda H, W, P: H // P + W // P,
    "that is right for square images only: where is W?": lambda H, W, P: (H // P) ** 2,
    "that is right for square images only: where is H?": lambda H, W, P: (W // P) ** 2,
    "that is one column of patches; multiply by the number of columns": lambda H, W, P: H // P,
    "that is one row of patches; multiply by the number of rows": lambda H, W, P: W // P,
    "a patch covers P x P pixels, so divide by P twice": lambda H, W, P: H * W // P,
    "that counts pixels, not patches, so divide by the patch size twice": lambda H, W, P: H * W,
    "that counts the pixels of one patch": lambda H, W, P: P * P,
    "that counts the class token too, but N counts only patches":
        lambda H, W, P: (H // P) * (W // P) + 1,
    "a patch covers P x P pixels, not 2 x P": lambda H, W, P: H * W // (2 * P),
    "that is one row and one column too many": lambda H, W, P: (H // P + 1) * (W // P + 1),
}  # fmt: skip
NUM_PATCHES = Exercise(
    name="num_patches",
    reference=lambda H, W, P: grid_size((H, W), P)[0] * grid_size((H, W), P)[1],
    wording=Wording(
        when="for {} x {} pixels and P = {}".format,
        kind="one whole number",
        depends="H, W and P",
        unknown="N is the number of rows of patches times the number of columns",
    ),
    ideas={
        "right for square, wide and tall images": [
            fixed(*sizes)
            for sizes in [
                (224, 224, 16),
                (32, 48, 8),
                (48, 32, 8),
                (8, 8, 2),
                (10, 15, 5),
                (14, 28, 14),
                (6, 9, 1),
            ]
        ],
        "raises ValueError where pixels are left over": [
            Raises([(30, 32, 4), (32, 30, 4), (30, 30, 4), (5, 5, 10), (8, 18, 12)], side_left_over)
        ],
    },
    mistakes=NUM_PATCHES_MISTAKES,
)
check_num_patches = NUM_PATCHES.check


# Cutting

# (B, C, H, W), P: square, wide, tall and gray, odd numbers, a patch of one pixel, a patch that is
# the image, equal areas
SIZES: list[tuple[tuple[int, int, int, int], int]] = [
    ((2, 3, 8, 8), 2), ((2, 3, 8, 12), 4), ((1, 1, 6, 4), 2), ((3, 2, 9, 15), 3),
    ((2, 4, 5, 7), 1), ((2, 3, 4, 4), 4),
    ((2, 3, 12, 8), 4), ((2, 2, 2, 6), 2),
]  # fmt: skip
WIDE = SIZES[1]
SQUARES = [*((size, P) for size, P in SIZES if size[2] == size[3]), ((2, 3, 8, 8), WIDE[1])]
DO_NOT_FIT = [(30, 32), (32, 30), (30, 30), (2, 8), (8, 2), (2, 2)]  # H, W for P = 4
FORMS = [WIDE, *SIZES]  # for shapes: first one whose axes have lengths of their own


def images_of(size: tuple[int, ...], P: int, channels_last: bool = False) -> Case:
    """Make images with numbers below 0 and above 1; channels_last: their layout in memory."""

    def draw() -> Arguments:
        images = 1.5 * torch.randn(size)
        return images.contiguous(memory_format=torch.channels_last) if channels_last else images, P

    return Case(draw)


def raises_nothing(make: Callable[..., Case], exercise: Exercise, answer: Function) -> None:
    """Raise Mistake if an answer raises an error for wide images, though not for square ones.

    make: makes a case of a size; one of the square images has the same P
    """
    wide = make(*WIDE).draw()
    try:
        exercise.try_form(answer, wide)
    except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
        for square in SQUARES:
            exercise.try_form(answer, make(*square).draw())
        raise Mistake(
            f"has the right shape for square images, but {exercise.wording.when(*wide)} it raises "
            f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")
            + ". The grid has H / P rows and W / P columns"
        ) from error


def misplaced(got: Tensor, right: Tensor, *args: object) -> str:
    """Write the message about numbers that no known mistake gives."""
    if same(got.flatten().sort().values, right.flatten().sort().values):
        return "all the numbers are there, but in the wrong places"
    return "some numbers are lost, duplicated or changed"


def grid(images: Tensor, P: int) -> Tensor:
    """Return the image with separate axes for grid and patch: (B, C, rows, P, cols, P)."""
    return images.unflatten(3, (-1, P)).unflatten(2, (-1, P))


def rows_of(x: Tensor, images: Tensor, P: int) -> Tensor:
    """Reshape numbers to patches without reordering them."""
    return x.reshape(len(images), images.shape[2] // P * (images.shape[3] // P), -1)


def cut(*order: int) -> Function:
    """Make a wrong patchify by another permutation of the six axes."""
    return lambda x, P: rows_of(grid(x, P).permute(order), x, P)


def turned_grid(images: Tensor, P: int) -> Tensor:
    """Exchange rows and columns of the grid in the first reshape: right for square images."""
    B, C, H, W = images.shape
    return rows_of(images.reshape(B, C, W // P, P, H // P, P).permute(0, 2, 4, 1, 3, 5), images, P)


def by_channel(images: Tensor, P: int) -> Tensor:
    """Return the patches of every channel, (B, C, N, P*P)."""
    return patchify(images, P).unflatten(2, (images.shape[1], P * P)).transpose(1, 2)


PLACES = {  # the numbers in wrong places
    "patch 0 contains numbers from the top rows in the order of memory, "
    "but it should contain the top-left {1} x {1} "
    "square. Did you permute before the last reshape?": lambda x, P: rows_of(x, x, P),
    "the patches run from top to bottom, but should run from left to right first: "
    "put rows before cols":
        cut(0, 4, 2, 1, 3, 5),
    "inside a patch the channels come last, but should come first: "
    "all red numbers, then green, then blue":
        cut(0, 2, 4, 3, 5, 1),
    "inside a patch the channel comes between y and x, but should come first":
        cut(0, 2, 4, 3, 1, 5),
    "inside a patch the pixels run from top to bottom, but should run from left to right first":
        cut(0, 2, 4, 1, 5, 3),
    "a patch contains pixels that are far apart: "
    "in the first reshape H becomes (rows, P), not (P, rows)":
        lambda images, P: rows_of(
            images.unflatten(3, (P, -1)).unflatten(2, (P, -1)).permute(0, 3, 5, 1, 2, 4), images, P
        ),
    "a reshape swapped the axes (length, N), but it moves no numbers; use transpose(1, 2)":
        lambda x, P: rows_of(patchify(x, P).mT, x, P),
    "the last axes after the permute are not (C, P, P): the grid's axes "
    "(rows, cols) must come before them":
        cut(0, 1, 2, 4, 3, 5),
    "the permute leaves (rows, P, cols, P) as it was, "
    "but the two axes of length P must become neighbors":
        cut(0, 2, 1, 3, 4, 5),
    "the permute is the one that puts patches back, but here the grid's axes (rows, cols) must "
    "come first":
        cut(0, 3, 1, 4, 2, 5),
    "the image is mirrored: patches run from left to right, then from top to bottom":
        lambda x, P: patchify(x.flip(3), P),
    "the channels come in reverse order; leave them as the image has them":
        lambda x, P: patchify(x.flip(1), P),
    "the patches come in reverse order": lambda x, P: patchify(x, P).flip(1),
}  # fmt: skip
SHAPES = {  # the axes wrong
    "the last two axes are swapped (as unfold returns them); transpose them":
        lambda x, P: patchify(x, P).mT,
    "the rows and columns of the grid should be one axis of N patches":
        lambda x, P: patchify(x, P).unflatten(1, (-1, x.shape[3] // P)),
    "a last reshape is missing: merge (rows, cols) into N and (C, P, P) into one axis":
        lambda x, P: grid(x, P).permute(0, 2, 4, 1, 3, 5),
    "a last permute and reshape are missing": grid,
    "each patch should be flattened to a row of numbers":
        lambda x, P: patchify(x, P).unflatten(2, (-1, P, P)),
    "each patch should be flattened to a row of numbers, channel by channel":
        lambda x, P: patchify(x, P).unflatten(2, (-1, P, P)).movedim(2, -1),
    "the images of the batch were merged, but the first axis must stay B":
        lambda x, P: patchify(x, P).flatten(0, 1),
    "the images of the batch were merged, but the first axis must stay B, not 1":
        lambda x, P: patchify(x, P).flatten(0, 1)[None],
    "the batch axis is missing: every image of the batch must be cut":
        lambda x, P: patchify(x, P)[0],
    "only one image of the batch was cut": lambda x, P: patchify(x[:1], P),
    "every channel became separate patches, but all channels of a square belong to one patch":
        lambda x, P: by_channel(x, P).flatten(1, 2),
    "every channel became separate patches, (B, C, N, P*P), "
    "but all channels of a square belong to one patch": by_channel,
    "channels are missing: a patch contains all C of them": lambda x, P: patchify(x[:, :1], P),
    "B and N are swapped; the batch comes first": lambda x, P: patchify(x, P).transpose(0, 1),
    "only one patch is returned": lambda x, P: patchify(x, P)[:, 0],
}  # fmt: skip


def not_covered(got: str, x: Tensor, P: int) -> str:
    """Write the message for an answer that cuts patches although P does not divide the sides."""
    message = (
        f"gives {got} for {x.shape[2]} x {x.shape[3]} pixels and P = {P}: "
        "the patches do not cover the image exactly; "
    )
    return message + "raise an error if P does not divide H and W"


SQUARE_ONLY = (
    "right for square images only: in the first reshape H belongs to the rows and W to the columns"
)
PATCHIFY = Exercise(
    name="patchify",
    reference=patchify,
    wording=Wording(
        when=lambda images, P: f"for images of shape {tuple(images.shape)} and P = {P}",
        says="for images of {0.shape[2]} x {0.shape[3]} pixels and P = {1}: {message}",
        unknown=misplaced,
    ),
    contract=Contract(batch=4),
    ideas={
        "shape (B, N, C*P*P) for square, wide, tall and gray images": [
            partial(raises_nothing, images_of),
            partial(forms, cases=[images_of(*size) for size in FORMS]),
        ],
        "each row is one square patch, "
        "and the patches run from left to right, then from top to bottom": [
            images_of(*size, lie) for size in SIZES for lie in (False, True)
        ],
        "keeps the dtype, leaves its input unchanged, and lets gradients through": [
            expect_contract
        ],
        "raises an error on a 30 x 32 image, as it should": [
            Raises(
                [(torch.rand(1, 3, *size), 4) for size in DO_NOT_FIT],
                not_covered,
                Exception,
            )
        ],
    },
    mistakes=PLACES | {SQUARE_ONLY: turned_grid} | SHAPES,
)
check_patchify = PATCHIFY.check


# Putting back


def patches_of(size: tuple[int, int, int, int], P: int) -> Case:
    """Make patches of images with numbers below 0 and above 1."""
    return Case(lambda: (patchify(1.5 * torch.randn(size), P), P, size[2:]))


def of_patches(patches: Tensor, P: int, size: tuple[int, int]) -> str:
    """Write the arguments of unpatchify in words."""
    B, _, length = patches.shape
    return f"for patches of images of shape {(B, length // P**2, *size)} and P = {P}"


def fill(shape: str, *axes: int) -> Function:
    """Make a wrong unpatchify.

    shape: the order in which the axes of patches are split; axes: how they are permuted
    """

    def answer(p: Tensor, P: int, size: tuple[int, int]) -> Tensor:
        lengths = {
            "b": len(p),
            "r": size[0] // P,
            "c": size[1] // P,
            "k": p.shape[2] // (P * P),
            "p": P,
            "q": P,
        }
        return p.reshape([lengths[s] for s in shape]).permute(axes).reshape(len(p), -1, *size)

    return answer


UNPATCHIFY_MISTAKES: dict[str, Function] = {
    "the patches are written one after another as rows of pixels, "
    "but a permute has to separate their lines first":
        lambda p, P, s: p.reshape(len(p), -1, *s),
    "the patches are put back from top to bottom, but they were cut from left to right first":
        fill("bcrkpq", 0, 3, 2, 4, 1, 5),
    "inside a patch the channels are read as if they came last, but they come first":
        fill("brcpqk", 0, 5, 1, 3, 2, 4),
    "each patch is transposed: inside it y and x are swapped": fill("brckpq", 0, 3, 1, 5, 2, 4),
    "after the permute the axes are (P, rows) and (P, cols), "
    "but the grid's axis must come before the patch's":
        fill("brckpq", 0, 3, 4, 1, 5, 2),
    "right for square images only: the grid has H/P rows and W/P columns": lambda p, P, s: (
        p.reshape(len(p), s[1] // P, s[0] // P, -1, P, P)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(len(p), -1, *s)
    ),
    "rows and columns of the grid and of the patch do not alternate: "
    "the order is (C, rows, P, cols, P)":
        fill("brckpq", 0, 3, 1, 2, 4, 5),
    "the permute is the one that cuts patches, but here the channels must come second, "
    "before (rows, P, cols, P)":
        fill("brckpq", 0, 2, 4, 1, 3, 5),
    "a reshape swapped the axes of patches and of their numbers, "
    "but it moves no numbers; use transpose(1, 2)":
        lambda p, P, s: unpatchify(
            p.reshape(len(p), p.shape[2], -1).transpose(1, 2).contiguous(), P, s
        ),
    "the channels come second, not last": lambda p, P, s: unpatchify(p, P, s).movedim(1, -1),
    "the batch axis is missing": lambda p, P, s: unpatchify(p, P, s)[0],
    "only one image of the batch is returned": lambda p, P, s: unpatchify(p[:1], P, s),
    "a last reshape is missing: merge (rows, P) into H and (cols, P) into W":
        lambda p, P, s: grid(unpatchify(p, P, s), P),
    "the channel axis is missing": lambda p, P, s: unpatchify(p, P, s)[:, 0],
    "channels are missing; C is the length of a patch divided by P*P":
        lambda p, P, s: unpatchify(p, P, s)[:, :1],
    "H and W are swapped: the images are (B, C, H, W)":
        lambda p, P, s: unpatchify(p, P, s).mT,
}  # fmt: skip
UNPATCHIFY = Exercise(
    name="unpatchify",
    reference=unpatchify,
    wording=Wording(
        when=of_patches,
        says="for images of {2[0]} x {2[1]} pixels and P = {1}: {message}",
        unknown=misplaced,
        hints={
            "expected size of input's dimension": (
                "F.fold takes columns, (B, C*P*P, N): transpose the patches first"
            ),
            "'tuple' and 'int'": "image_size is a pair, (H, W)",
        },
    ),
    contract=Contract(batch=3),
    ideas={
        "shape (B, C, H, W) for square, wide, tall and gray images": [
            partial(raises_nothing, patches_of),
            partial(forms, cases=[patches_of(*size) for size in FORMS]),
        ],
        "every patch is back in its place, and every pixel in its patch": [
            patches_of(*size) for size in SIZES
        ],
        "keeps the dtype, leaves its input unchanged, and lets gradients through": [
            expect_contract
        ],
    },
    mistakes=UNPATCHIFY_MISTAKES,
)
check_unpatchify = UNPATCHIFY.check


# The planted mistake


def apart(function: Function) -> Function:
    """Make an answer with the patches as images: (B, N, C*P*P) -> (B, N, C, P, P)."""
    return lambda x, P: function(x, P).unflatten(2, (x.shape[1], P, P))


STILL = (
    "still the planted mistake, which is right for square images only. "
    "Does H or W give the number of rows?"
)
FIX = replace(
    PATCHIFY,
    name="fixed",
    reference=apart(patchify),
    ideas={
        "shape (B, N, C, P, P)": [partial(raises_nothing, images_of), forms],
        "right for square images, as before": [
            images_of(size, P) for size, P in SIZES if size[2] == size[3]
        ],
        "right for wide and tall images, gray and color": [
            images_of(size, P) for size, P in SIZES if size[2] != size[3]
        ],
        "keeps the dtype, leaves its input unchanged, and lets gradients through": [
            expect_contract
        ],
    },
    mistakes={STILL: apart(turned_grid)}
    | {message: apart(wrong) for message, wrong in PLACES.items()}
    | {"here the patches remain small images, so do not flatten them": patchify},
)
check_fixed, check_to_linear = FIX.check, TO_LINEAR.check
