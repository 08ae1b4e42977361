"""Data that comes with scikit-learn: real handwritten digits, alone or scattered among clutter, and two real photos."""

import torch
import torch.nn.functional as F

from vit_helpers.data.splits import Data, PlacedSplit, Split, split_rows

DIGITS_TEST, DIGITS_VALIDATION = 360, 180
TEN = tuple("0123456789")


def digits():
    """1,797 handwritten digits, 8 x 8 grey, as `Data`: 1,257 to train on, 180 for validation, 360 for the test"""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 16  # grey values come as 0 .. 16
    labels = torch.tensor(raw.target, dtype=torch.int64)
    test, validation, train = split_rows(len(labels), DIGITS_TEST, DIGITS_VALIDATION)
    train, validation, test = (Split(images[rows], labels[rows]) for rows in (train, validation, test))
    return Data.of("digits", train, validation, test, TEN)


def scattered_digits(n=5000, image_size=24, digit_size=12, clutter=4, seed=0):
    """Real digits at known random places on a larger dark canvas, among pieces of other digits, as `Data`.

    n         : training pictures; validation and test have a tenth and a fifth as many, of digits not seen in training
    image_size: side of the canvas; digit_size: side of the digit on it, in pixels
    clutter   : how many pieces, half as wide as the digit, are cut from other digits and strewn about
    returns   : `Data` whose parts have `places`: (n, 4), left, top, width and height of the digit, in pixels
    raises    : ValueError when the digit does not fit, or when there are too few pictures for three parts

    The same seed gives the same pictures, and more of them begin with the same ones.

    >>> data = scattered_digits(n=20)
    >>> data.train.images.shape, data.train.places.shape, len(data.test.labels)
    (torch.Size([20, 1, 24, 24]), torch.Size([20, 4]), 4)
    """
    if not 2 <= digit_size <= image_size:
        raise ValueError(f"a digit of {digit_size} pixels does not fit a canvas of {image_size}")
    if n < 10:
        raise ValueError(f"three parts need n of at least 10 training pictures, got {n}")
    if clutter < 0:
        raise ValueError(f"clutter is a number of pieces, 0 or more, got {clutter}")
    plain = digits()
    parts = [
        scatter(part, count, image_size, digit_size, clutter, torch.Generator().manual_seed(3 * seed + i))
        for i, (part, count) in enumerate(((plain.train, n), (plain.validation, n // 10), (plain.test, n // 5)))
    ]
    return Data.of("scattered_digits", *parts, TEN)


def scatter(split, n, image_size, digit_size, clutter, generator):
    """n pictures of single digits of a part among clutter, with their places: a `PlacedSplit`"""
    large = F.interpolate(split.images, size=digit_size, mode="bicubic", antialias=True).clamp(0, 1)[:, 0]
    piece = digit_size // 2
    images, labels = torch.zeros(n, 1, image_size, image_size), torch.zeros(n, dtype=torch.int64)
    places = torch.zeros(n, 4, dtype=torch.int64)

    def draw(below):
        return int(torch.randint(below, (), generator=generator))

    for i, (canvas,) in enumerate(images):
        for _ in range(clutter):
            other, y, x = large[draw(len(large))], draw(digit_size - piece + 1), draw(digit_size - piece + 1)
            paste(canvas, other[y : y + piece, x : x + piece], draw(image_size - piece + 1), draw(image_size - piece + 1))
        row, top, left = draw(len(large)), draw(image_size - digit_size + 1), draw(image_size - digit_size + 1)
        paste(canvas, large[row], top, left)
        labels[i] = split.labels[row]
        places[i] = torch.tensor([left, top, digit_size, digit_size])
    return PlacedSplit(images, labels, places)


def paste(canvas, picture, top, left):
    """Lay a picture on the canvas, in place; where both have ink, the brighter value stays"""
    H, W = picture.shape
    spot = canvas[top : top + H, left : left + W]
    torch.maximum(spot, picture, out=spot)


def photos():
    """Two real colour photos, from scikit-learn: {"china": (3, 427, 640), "flower": (3, 427, 640)}, from 0 to 1."""
    from sklearn.datasets import load_sample_images

    raw = load_sample_images()
    names = [name.rpartition("/")[2].rpartition("\\")[2].removesuffix(".jpg") for name in raw.filenames]
    return {name: torch.tensor(image).permute(2, 0, 1) / 255 for name, image in zip(names, raw.images, strict=True)}
