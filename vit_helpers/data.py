"""Data sets that need no network: real digits, real photos.  Splits, normalisation, augmentation, batches."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F

DIGITS_TEST, DIGITS_VALIDATION = 360, 180


class Split(NamedTuple):
    """images: (n, C, H, W), float32 from 0 to 1;  labels: (n,), int64"""

    images: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class Data:
    """A data set in memory, in three parts that share no image.

    train, validation, test: `Split`
    class_names            : K names
    mean, std              : a number per channel, computed from the training part alone
    """

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_size(self):
        """(H, W) in pixels"""
        return tuple(self.train.images.shape[2:])

    @property
    def in_chans(self):
        """C"""
        return self.train.images.shape[1]

    def normalize(self, images):
        """Shift and scale each channel to mean 0 and standard deviation 1: (B, C, H, W) -> (B, C, H, W)"""
        if images.shape[1] != len(self.mean):
            raise ValueError(f"{self.name} has {len(self.mean)} channels, the images have {images.shape[1]}")
        mean, std = (images.new_tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return (images - mean) / std

    def batches(self, part, batch_size, shuffle=False, augment=None):
        """Normalised batches of a part ("train", "validation", "test"), see `Batches`."""
        if part not in ("train", "validation", "test"):
            raise ValueError(f"unknown part {part!r}, known: train, validation, test")
        return Batches(getattr(self, part), batch_size, self.normalize, shuffle, augment)


class Batches:
    """What a DataLoader is for large data, for data that fits in memory: slices, with nothing to collate.

    Each pass yields (images, labels), (B, C, H, W) and (B,); the last batch may be smaller.
    Order and augmentation are drawn from torch's global generator, so one seed decides them all.

    prepare: applied to every batch of images; augment: applied before it, to images from 0 to 1
    """

    def __init__(self, split, batch_size, prepare=None, shuffle=False, augment=None):
        if batch_size < 1:
            raise ValueError(f"a batch holds at least 1 image, got batch_size={batch_size}")
        self.split, self.batch_size, self.shuffle = split, batch_size, shuffle
        self.steps = [step for step in (augment, prepare) if step]

    def __len__(self):
        return -(-len(self.split.labels) // self.batch_size)  # rounded up

    def __iter__(self):
        n = len(self.split.labels)
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for start in range(0, n, self.batch_size):
            rows = order[start : start + self.batch_size]
            images = self.split.images[rows]
            for step in self.steps:
                images = step(images)
            yield images, self.split.labels[rows]


def load(name):
    """A data set by name, as `Data`.

    "digits": 1,797 handwritten digits, 8 x 8 grey, from scikit-learn (UCI, Alpaydin and Kaynak 1998)
    raises  : ValueError for an unknown name, listing the known ones

    >>> data = load("digits")
    >>> data.train.images.shape, len(data.validation.labels), len(data.test.labels)
    (torch.Size([1257, 1, 8, 8]), 180, 360)
    """
    if name not in LOADERS:
        raise ValueError(f"unknown data {name!r}, known: {', '.join(LOADERS)}")
    return LOADERS[name]()


def digits():
    """scikit-learn's digits as `Data`, see `load`"""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 16  # grey values come as 0 .. 16
    labels = torch.tensor(raw.target, dtype=torch.int64)
    test, validation, train = split_rows(len(labels), DIGITS_TEST, DIGITS_VALIDATION)
    part = {
        name: Split(images[rows], labels[rows])
        for name, rows in (("train", train), ("validation", validation), ("test", test))
    }
    mean, std = mean_and_std(part["train"].images)
    return Data("digits", **part, class_names=tuple("0123456789"), mean=mean, std=std)


def split_rows(n, *sizes):
    """Row numbers 0 .. n - 1 in random order, cut into parts of the given sizes and the rest.

    The order comes from a generator of its own with a fixed seed: no seed set elsewhere moves it.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return order.split([*sizes, n - sum(sizes)])


def mean_and_std(images):
    """Of each channel, over all pixels of all images: (n, C, H, W) -> two tuples of C numbers"""
    axes = (0, 2, 3)
    return tuple(images.mean(axes).tolist()), tuple(images.std(axes).tolist())


def random_affine(images, degrees=10.0, scale=0.1, shift=0.5):
    """Turn, scale and shift every image by its own random amount; what comes in from outside is 0.

    images : (B, C, H, W), from 0 to 1
    degrees: largest turn; scale: largest change of size, 0.1 for 10%; shift: largest, in pixels, along each axis
    returns: (B, C, H, W), from 0 to 1
    raises : ValueError when scale is not from 0 up to 1: an image would be turned inside out
    """
    if not 0 <= scale < 1:
        raise ValueError(f"scale is a share from 0 up to 1, got {scale}")
    B, _, H, W = images.shape
    uniform = partial(torch.empty(B, device=images.device, dtype=images.dtype).uniform_, -1, 1)
    angle = torch.deg2rad(degrees * uniform())
    size = 1 + scale * uniform()
    dx, dy = shift * 2 / W * uniform(), shift * 2 / H * uniform()  # grid_sample measures a side as 2
    cos, sin = angle.cos() / size, angle.sin() / size
    theta = torch.stack([cos, -sin * H / W, dx, sin * W / H, cos, dy], dim=1).view(B, 2, 3)
    grid = F.affine_grid(theta, images.shape, align_corners=False)
    turned = F.grid_sample(images, grid, mode="bicubic", align_corners=False)  # bilinear would blur small pictures
    return turned.clamp(0, 1)  # bicubic overshoots at edges


def photos():
    """Two real colour photos, from scikit-learn: {"china": (3, 427, 640), "flower": (3, 427, 640)}, from 0 to 1."""
    from sklearn.datasets import load_sample_images

    raw = load_sample_images()
    names = [name.rpartition("/")[2].rpartition("\\")[2].removesuffix(".jpg") for name in raw.filenames]
    return {name: torch.tensor(image).permute(2, 0, 1) / 255 for name, image in zip(names, raw.images, strict=True)}


LOADERS = {"digits": digits}
