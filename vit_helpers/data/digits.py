"""Data that ships with scikit-learn: digits, alone or among clutter, and two photos; and a cat.

scikit-learn is imported inside functions because it takes seconds, for which nobody should wait who
only imports this package.
"""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers._validate import check_int
from vit_helpers.data.images import open_picture
from vit_helpers.data.splits import Data, Split, split_rows, subset

DIGITS_TEST, DIGITS_VALIDATION = 360, 180
CLASS_NAMES = tuple("0123456789")


def every_digit() -> Split:
    """Load all digits in scikit-learn's order: those of the same sheet follow each other."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 16  # gray values are 0 .. 16
    return Split(images, torch.tensor(raw.target, dtype=torch.int64))


def digits() -> Data:
    """Load 1,797 handwritten digits, 8 x 8 gray.

    1,257 for training, 180 for validation, 360 for the test
    """
    all_digits = every_digit()
    rows = split_rows(len(all_digits), DIGITS_TEST, DIGITS_VALIDATION)
    test, validation, train = (subset(all_digits, part) for part in rows)
    return Data.from_splits("digits", train, validation, test, CLASS_NAMES)


def scattered_digits(
    n: int = 5000, image_size: int = 24, digit_size: int = 12, clutter: int = 4, seed: int = 0
) -> Data:
    """Draw handwritten digits at random positions on a larger canvas, among pieces of others.

    n         : training images; validation has a tenth and test a fifth as many, from digits that
                training does not use
    image_size: side of the canvas in pixels
    digit_size: side of the digit on it
    clutter   : the number of pieces, half as wide as the digit, that are cut from other digits and
                scattered around
    seed      : the same one gives the same images, and a larger n only appends more
    raises    : ValueError if the digit does not fit, or if there are too few images for three
                splits

    >>> data = scattered_digits(n=20)
    >>> data.train.images.shape, data.train.boxes.shape, len(data.test)
    (torch.Size([20, 1, 24, 24]), torch.Size([20, 4]), 4)
    """
    if not 2 <= digit_size <= image_size:
        raise ValueError(f"a digit of {digit_size} pixels does not fit on a canvas of {image_size}")
    n = check_int("n", n, least=10)
    clutter = check_int("clutter", clutter, least=0)
    plain = digits()
    splits = []
    for number, (split, count) in enumerate(
        [(plain.train, n), (plain.validation, n // 10), (plain.test, n // 5)]
    ):
        generator = torch.Generator().manual_seed(3 * seed + number)
        splits.append(scatter(split, count, image_size, digit_size, clutter, generator))
    train, validation, test = splits
    return Data.from_splits("scattered_digits", train, validation, test, CLASS_NAMES)


def scatter(
    split: Split, n: int, image_size: int, digit_size: int, clutter: int, generator: torch.Generator
) -> Split:
    """Draw n images, each of one digit of the split among clutter, with its bounding box."""
    large = enlarge(split.images, digit_size)
    piece_size = digit_size // 2
    images = torch.zeros(n, 1, image_size, image_size)
    labels = torch.zeros(n, dtype=torch.int64)
    boxes = torch.zeros(n, 4, dtype=torch.int64)

    def draw(below: int) -> int:
        return int(torch.randint(below, (), generator=generator))

    def draw_corner(inner: int, outer: int) -> tuple[int, int]:
        return draw(outer - inner + 1), draw(outer - inner + 1)

    def cut(image: Tensor, corner: tuple[int, int], size: int) -> Tensor:
        y, x = corner
        return image[y : y + size, x : x + size]

    for i, (canvas,) in enumerate(images):
        for _ in range(clutter):
            other = large[draw(len(large))]
            piece = cut(other, draw_corner(piece_size, digit_size), piece_size)
            target = cut(canvas, draw_corner(piece_size, image_size), piece_size)
            target.clamp_(min=piece)  # brighter wins
        row = draw(len(large))
        y, x = draw_corner(digit_size, image_size)
        cut(canvas, (y, x), digit_size).clamp_(min=large[row])
        labels[i] = split.labels[row]
        boxes[i] = torch.tensor([x, y, digit_size, digit_size])
    return Split(images, labels, boxes)


def enlarge(images: Tensor, size: int) -> Tensor:
    """Enlarge digits to the size that they have on a canvas: (n, 1, 8, 8) -> (n, size, size)."""
    large = F.interpolate(images, size=size, mode="bicubic", antialias=True)
    return large.clamp(0, 1)[:, 0]


def find_digits(scattered: Split, plain: Split) -> Tensor:
    """Find which digit each image was made from, so that images of the same one can be grouped.

    scattered: images that `scattered_digits` drew, with their boxes
    plain    : the split of `digits` from which it drew them
    returns  : (n,), row numbers of the plain split
    raises   : ValueError without boxes, or if an image was made from none of the digits
    """
    if scattered.boxes is None or not len(scattered):
        raise ValueError("scattered digits are images, at least one, with their bounding boxes")
    large = enlarge(plain.images, int(scattered.boxes[0, 2]))
    rows = torch.zeros(len(scattered), dtype=torch.int64)
    boxes = scattered.boxes.tolist()
    for i, ((canvas,), (x, y, width, height)) in enumerate(
        zip(scattered.images, boxes, strict=True)
    ):
        inside = canvas[y : y + height, x : x + width]
        # fragments only brighten pixels
        possible = (large <= inside).flatten(1).all(dim=1)
        if not possible.any():
            raise ValueError(f"image {i} was made from none of the {len(plain)} digits")
        equal = (large == inside).flatten(1).sum(dim=1)
        rows[i] = equal.where(possible, -1).argmax()
    return rows


def photos() -> dict[str, Tensor]:
    """Load two color photos: {"china": (3, 427, 640), "flower": (3, 427, 640)}, from 0 to 1."""
    from sklearn.datasets import load_sample_images

    raw = load_sample_images()
    pairs = zip(raw.filenames, raw.images, strict=True)
    return {Path(name).stem: torch.tensor(image).permute(2, 0, 1) / 255 for name, image in pairs}


def cat() -> Tensor:
    """Load a color photo of a cat: (3, 300, 451), from 0 to 1.

    It is by Stefan van der Walt (CC0); scikit-image calls it chelsea.
    """
    picture = open_picture(Path(__file__).with_name("cat.jpg"))
    return torch.tensor(np.array(picture)).permute(2, 0, 1) / 255
