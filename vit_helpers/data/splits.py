"""What a data set is: three splits in memory, their mean and standard deviation, and batches of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vit_helpers._validate import check_choice, check_int

SPLITS = ("train", "validation", "test")

Batch = tuple[Tensor, Tensor]  # images and labels
Transform = Callable[[Tensor], Tensor]  # of a batch of images
Mix = Callable[
    [Tensor, Tensor], Batch
]  # images and labels -> images and labels of shape (B, K): mixup or cutmix


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split, their labels and, where they are known, the objects' bounding boxes; `len(split)` is n.

    images: (n, C, H, W), float32 from 0 to 1; labels: (n,), int64
    boxes : (n, 4), int64: x, y, width and height in pixels, where x, y is the top left corner; or None

    `images, labels = split` still works, because splits were pairs in the first edition.
    """

    images: Tensor
    labels: Tensor
    boxes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.images, self.labels))

    @property
    def pixels(self) -> Tensor:
        """The images as they are kept in memory: float32 from 0 to 1, or in a `ByteSplit` uint8 from 0 to 255"""
        return vars(self)["images"]


class ByteSplit(Split):
    """A split that keeps its images as bytes, in a quarter of the memory: `pixels`, (n, C, H, W), uint8 from 0 to 255.

    `images` converts all of them, each time that it is asked for; `Batches` converts a batch at a time.
    """

    def __init__(self, images: Tensor, labels: Tensor, boxes: Tensor | None = None):
        vars(self).update(images=images, labels=labels, boxes=boxes)

    @property
    def images(self) -> Tensor:
        """(n, C, H, W), float32 from 0 to 1"""
        return as_float(self.pixels)


def as_float(pixels: Tensor) -> Tensor:
    """Images from 0 to 1, where they are bytes"""
    return pixels / 255 if pixels.dtype == torch.uint8 else pixels


def subset(split: Split, rows: Tensor | slice) -> Split:
    """Some images of a split, with their labels and boxes; rows: indices, a mask or a slice.

    >>> subset(Split(torch.zeros(5, 1, 8, 8), torch.arange(5)), slice(3)).labels
    tensor([0, 1, 2])
    """
    return type(split)(
        split.pixels[rows], split.labels[rows], None if split.boxes is None else split.boxes[rows]
    )


@dataclass(frozen=True)
class Data:
    """A data set in memory: three splits that share no image, K class names, mean and std of each channel in training.

    seen: of a folder, the first bytes of the sha256 of each training and validation file, so that no test asks for it
    """

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seen: frozenset[bytes] = frozenset()

    @classmethod
    def from_splits(
        cls, name: str, train: Split, validation: Split, test: Split, class_names: Iterable[str]
    ) -> "Data":
        """A data set of three splits; ValueError if one is empty, or if a channel of the training split is constant"""
        if empty := [
            known
            for known, split in zip(SPLITS, (train, validation, test), strict=True)
            if not len(split)
        ]:
            raise ValueError(f"{name}: the {empty[0]} split has no images")
        mean, std = mean_and_std(train.pixels)
        check_std(name, std)
        return cls(name, train, validation, test, tuple(class_names), mean, std)

    @property
    def image_size(self) -> tuple[int, int]:
        """(H, W) in pixels"""
        return self.train.pixels.shape[2], self.train.pixels.shape[3]

    @property
    def in_chans(self) -> int:
        """C"""
        return self.train.pixels.shape[1]

    def get_split(self, split: str) -> Split:
        """A split by its name: "train", "validation" or "test"."""
        check_choice("split", split, SPLITS)
        return getattr(self, split)

    def count(self, split: str) -> int:
        """The number of images in a split"""
        return len(self.get_split(split))

    @property
    def class_counts(self) -> list[int]:
        """The number of images of each class, in all splits together"""
        labels = torch.cat([self.train.labels, self.validation.labels, self.test.labels])
        return labels.bincount(minlength=len(self.class_names)).tolist()

    def normalize(self, images: Tensor) -> Tensor:
        """`normalize` by this data set's mean and std: (B, C, H, W) -> (B, C, H, W)"""
        return normalize(images, self.mean, self.std)

    def filter_classes(self, *class_names: str) -> "Data":
        """The images of some classes, relabeled in this order; mean and std stay. ValueError: unknown or repeated names"""
        for name in class_names:
            check_choice(f"class of {self.name}", name, self.class_names)
        if len(set(class_names)) != len(class_names) or not class_names:
            raise ValueError(f"expected at least one class, and each only once, got {class_names}")
        new = torch.tensor(
            [class_names.index(name) if name in class_names else -1 for name in self.class_names]
        )
        splits: dict[str, Any] = {}
        for name in SPLITS:
            chosen = subset(self.get_split(name), new[self.get_split(name).labels] >= 0)
            splits[name] = type(chosen)(chosen.pixels, new[chosen.labels], chosen.boxes)
        return replace(self, class_names=class_names, **splits)

    def batches(
        self,
        split: str,
        batch_size: int,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ) -> "Batches":
        """Normalized batches of a split ("train", "validation" or "test"), see `Batches`."""
        return Batches(self.get_split(split), batch_size, self.normalize, shuffle, augment, mix)


class Batches:
    """Batches of a split in memory: what `DataLoader` does, but by slicing tensors, so there is nothing to collate.

    Each pass yields (images, labels) of shapes (B, C, H, W) and (B,); the last batch may be smaller.
    Shuffling and augmentation use torch's global generator, so a single seed determines both.
    prepare: applied to each batch of images; augment: before it, to images from 0 to 1; mix: last, mixup or cutmix
    """

    def __init__(
        self, split: Split, batch_size: int, prepare: Transform | None = None, shuffle: bool = False,
        augment: Transform | None = None, mix: Mix | None = None,
    ):  # fmt: skip
        self.split, self.batch_size, self.shuffle, self.mix = (
            split,
            check_int("batch_size", batch_size),
            shuffle,
            mix,
        )
        self.steps = [step for step in (augment, prepare) if step]

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)  # rounded up

    def __iter__(self) -> Iterator[Batch]:
        n = len(self.split)
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for rows in (
            order.split(self.batch_size) if n else ()
        ):  # of no rows, split gives one empty piece
            yield apply_steps(
                as_float(self.split.pixels[rows]), self.split.labels[rows], self.steps, self.mix
            )


def apply_steps(images: Tensor, labels: Tensor, steps: list[Transform], mix: Mix | None) -> Batch:
    """A batch after every step on its images, and mixing"""
    for step in steps:
        images = step(images)
    return mix(images, labels) if mix else (images, labels)


def split_rows(n: int, *sizes: int) -> tuple[Tensor, ...]:
    """Row numbers 0 .. n - 1 in a random order, the same every time, divided into groups of the given sizes and the rest"""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return order.split([*sizes, n - sum(sizes)])


def sample_rows(labels: Tensor, count: int | None) -> Tensor:
    """The first `count` rows, None for all; of images sorted by class, as in a folder, random ones, always the same."""
    mixed = count is None or bool((labels.diff() < 0).any())
    return (torch.arange(len(labels)) if mixed else split_rows(len(labels))[0])[:count]


def normalize(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(images - mean) / std for each channel: (..., C, H, W) -> (..., C, H, W); ValueError for other numbers of channels"""
    if images.shape[-3] != len(mean):
        raise ValueError(
            f"mean and std are for {len(mean)} channels, but the images have {images.shape[-3]}"
        )
    return (images - images.new_tensor(mean).view(-1, 1, 1)) / images.new_tensor(std).view(-1, 1, 1)


def mean_and_std(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels, from 0 to 1: (n, C, H, W) -> two tuples of C numbers"""
    if images.dtype == torch.uint8:
        return mean_and_std_of_counts(
            sum(map(count_values, images.split(64)), torch.zeros(images.shape[1], 256))
        )
    return tuple(images.mean((0, 2, 3)).tolist()), tuple(images.std((0, 2, 3)).tolist())


def count_values(images: Tensor) -> Tensor:
    """How often each channel has each of the values 0 .. 255: (n, C, H, W), uint8 -> (C, 256), float64"""
    return torch.stack(
        [channel.flatten().bincount(minlength=256) for channel in images.transpose(0, 1)]
    ).double()


def mean_and_std_of_counts(counts: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """`mean_and_std` of the images whose values were counted: (C, 256) -> two tuples of C numbers"""
    n, values = counts[0].sum(), torch.arange(256, dtype=torch.float64) / 255
    mean = counts @ values / n
    std = ((counts * (values - mean[:, None]) ** 2).sum(1) / (n - 1)).sqrt()
    return tuple(mean.tolist()), tuple(std.tolist())


def check_std(name: str, std: tuple[float, ...]) -> None:
    """Raise ValueError if a channel is constant"""
    if not min(std) > 0:
        raise ValueError(
            f"{name}: a channel of the training images is constant (std {std}), so it cannot be normalized"
        )
