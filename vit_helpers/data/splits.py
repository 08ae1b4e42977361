"""What a data set is: three parts in memory, their mean and spread, and batches of them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

PARTS = ("train", "validation", "test")


class Split(NamedTuple):
    """images: (n, C, H, W), float32 from 0 to 1;  labels: (n,), int64;  places: None, see `PlacedSplit`"""

    images: torch.Tensor
    labels: torch.Tensor
    places = None


class PlacedSplit(Split):
    """A `Split` that knows where in each image the thing is that its label names.

    places: (n, 4), int64: left, top, width and height in pixels
    """

    def __new__(cls, images, labels, places):
        split = super().__new__(cls, images, labels)
        split.places = places
        return split


def subset(split, rows):
    """Some images of a part, with their labels, and places where it has them: a part of the same kind"""
    images, labels = (values[rows] for values in split)
    return Split(images, labels) if split.places is None else PlacedSplit(images, labels, split.places[rows])


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

    @classmethod
    def of(cls, name, train, validation, test, class_names):
        """A data set of three parts; mean and std are computed.

        raises: ValueError when a part holds no image, or when a channel of the training part is the same everywhere
        """
        for part, split in zip(PARTS, (train, validation, test), strict=True):
            if not len(split.labels):
                raise ValueError(f"{name}: the {part} part holds no image")
        mean, std = mean_and_std(train.images)
        check_std(name, std)
        return cls(name, train, validation, test, tuple(class_names), mean, std)

    @property
    def image_size(self):
        """(H, W) in pixels"""
        return tuple(self.train.images.shape[2:])

    @property
    def in_chans(self):
        """C"""
        return self.train.images.shape[1]

    def count(self, part):
        """How many images a part holds"""
        return len(getattr(self, part).labels)

    def normalize(self, images):
        """Shift and scale each channel to mean 0 and standard deviation 1: (B, C, H, W) -> (B, C, H, W)"""
        if images.shape[1] != len(self.mean):
            raise ValueError(f"{self.name} has {len(self.mean)} channels, the images have {images.shape[1]}")
        mean, std = (images.new_tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return (images - mean) / std

    def only(self, *class_names):
        """The images of some classes alone, labels counted anew in the order given; mean and std stay those of the whole.

        raises: ValueError for a name that is no class, or given twice
        """
        if unknown := [name for name in class_names if name not in self.class_names]:
            raise ValueError(
                f"{self.name} has no class {', '.join(map(repr, unknown))}; it has {', '.join(self.class_names)}"
            )
        if len(set(class_names)) != len(class_names) or not class_names:
            raise ValueError(f"expected classes, each once, got {class_names}")
        new = torch.full((len(self.class_names),), -1)
        new[[self.class_names.index(name) for name in class_names]] = torch.arange(len(class_names))
        parts = {}
        for part in PARTS:
            split = getattr(self, part)
            chosen = subset(split, new[split.labels] >= 0)
            chosen.labels.copy_(new[chosen.labels])
            parts[part] = chosen
        return replace(self, class_names=class_names, **parts)

    def batches(self, part, batch_size, shuffle=False, augment=None, mix=None):
        """Normalised batches of a part ("train", "validation", "test"), see `Batches`."""
        if part not in PARTS:
            raise ValueError(f"unknown part {part!r}, known: {', '.join(PARTS)}")
        return Batches(getattr(self, part), batch_size, self.normalize, shuffle, augment, mix)


class Batches:
    """What a DataLoader is for large data, for data that fits in memory: slices, with nothing to collate.

    Each pass yields (images, labels), (B, C, H, W) and (B,); the last batch may be smaller.
    Order and augmentation are drawn from torch's global generator, so one seed decides them all.

    prepare: applied to every batch of images; augment: applied before it, to images from 0 to 1
    mix    : (images, labels) -> (images, labels as shares (B, K)), applied last: mixup or cutmix
    """

    def __init__(self, split, batch_size, prepare=None, shuffle=False, augment=None, mix=None):
        if batch_size < 1:
            raise ValueError(f"a batch holds at least 1 image, got batch_size={batch_size}")
        self.split, self.batch_size, self.shuffle, self.mix = split, batch_size, shuffle, mix
        self.steps = [step for step in (augment, prepare) if step]

    def __len__(self):
        return -(-len(self.split.labels) // self.batch_size)  # rounded up

    def __iter__(self):
        n = len(self.split.labels)
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for start in range(0, n, self.batch_size):
            rows = order[start : start + self.batch_size]
            images, labels = self.split.images[rows], self.split.labels[rows]
            for step in self.steps:
                images = step(images)
            yield self.mix(images, labels) if self.mix else (images, labels)


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


def check_std(name, std):
    """ValueError when a channel is the same everywhere"""
    if not min(std) > 0:
        raise ValueError(f"{name}: a channel of the training images is the same everywhere (std {std}): nothing to see")
