"""What a data set is: three splits in memory, their mean and std, and batches of them."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from vit_helpers._validate import check_choice, check_floating, check_int

SPLITS = ("train", "validation", "test")

Batch = tuple[Tensor, Tensor]  # images and labels
Transform = Callable[[Tensor], Tensor]  # of a batch of images
Mix = Callable[[Tensor, Tensor], Batch]  # mixup or cutmix; the new labels have the shape (B, K)


class SizedBatches(Protocol):
    """Batches that are counted: `Batches` in memory, or a `Stream` from disk."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


class DataLike(Protocol):
    """What every data set can say and do: `Data` in memory, or `Shards` on disk."""

    @property
    def name(self) -> str: ...
    @property
    def image_size(self) -> tuple[int, int]: ...
    @property
    def in_chans(self) -> int: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def class_counts(self) -> list[int]: ...
    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...
    @property
    def white(self) -> float | None: ...

    def count(self, split: str) -> int: ...

    def normalize(self, images: Tensor) -> Tensor: ...

    def batches(
        self,
        split: str,
        batch_size: int,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ) -> SizedBatches: ...


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split, their labels and, where they are known, the objects' bounding boxes.

    pixels: (n, C, H, W), float32 from 0 to 1, or in a quarter of the memory uint8 from 0 to 255
    labels: (n,), int64
    boxes : (n, 4), int64: x, y, width and height in pixels, x and y of the top left corner; or None

    `len(split)` is n.
    """

    pixels: Tensor
    labels: Tensor
    boxes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> Tensor:
        """(n, C, H, W), float32 from 0 to 1; bytes are converted, all of them, at each call"""
        return as_float(self.pixels)


def as_float(pixels: Tensor) -> Tensor:
    """Convert images from 0 to 255 to images from 0 to 1, where they are bytes."""
    return pixels / 255 if pixels.dtype == torch.uint8 else pixels


def subset(split: Split, rows: Tensor | slice) -> Split:
    """Take some images of a split, with their labels and boxes; rows: indices, a mask or a slice.

    >>> subset(Split(torch.zeros(5, 1, 8, 8), torch.arange(5)), slice(3)).labels
    tensor([0, 1, 2])
    """
    boxes = None if split.boxes is None else split.boxes[rows]
    return Split(split.pixels[rows], split.labels[rows], boxes)


@dataclass(frozen=True)
class Data:
    """A data set in memory: three splits without a common image, and what training needs to know.

    class_names: K names; mean, std: of each channel over the training images
    seen       : of a folder, the first bytes of the sha256 of each training and validation file,
                 so that no test asks for it; None if it is unknown
    tested     : the same of each test file
    white      : the value that was read as white in gray images of more than 8 bits; None if there
                 are none, or if it is unknown
    """

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seen: frozenset[bytes] | None = None
    tested: frozenset[bytes] | None = None
    white: float | None = None

    @classmethod
    def from_splits(
        cls, name: str, train: Split, validation: Split, test: Split, class_names: Iterable[str]
    ) -> "Data":
        """Make a data set of three splits, with the mean and std of the first.

        raises: ValueError if a split is empty, if a label is not the number of a class, or if a
                channel of the training split is constant or has pixels that are not finite
        """
        class_names = tuple(class_names)
        for split_name, split in zip(SPLITS, (train, validation, test), strict=True):
            if not len(split):
                raise ValueError(f"{name}: the {split_name} split has no images")
            check_labels(f"{name}: the {split_name} split", split.labels, len(class_names))
        mean, std = mean_and_std(train.pixels)
        check_std(name, std)
        return cls(name, train, validation, test, class_names, mean, std)

    @property
    def image_size(self) -> tuple[int, int]:
        """(H, W) in pixels"""
        return self.train.pixels.shape[2], self.train.pixels.shape[3]

    @property
    def in_chans(self) -> int:
        """C"""
        return self.train.pixels.shape[1]

    def get_split(self, split: str) -> Split:
        """Return a split by its name: "train", "validation" or "test"."""
        check_choice("split", split, SPLITS)
        return getattr(self, split)

    def count(self, split: str) -> int:
        """Count the images of a split."""
        return len(self.get_split(split))

    @property
    def class_counts(self) -> list[int]:
        """The number of images of each class, in all splits together"""
        labels = torch.cat([self.train.labels, self.validation.labels, self.test.labels])
        return labels.bincount(minlength=len(self.class_names)).tolist()

    def normalize(self, images: Tensor) -> Tensor:
        """Normalize by this data set's mean and std: (B, C, H, W) -> (B, C, H, W)"""
        return normalize(images, self.mean, self.std)

    def filter_classes(self, *class_names: str) -> "Data":
        """Keep the images of some classes, relabeled in this order; mean and std stay.

        raises: ValueError for unknown or repeated names
        """
        for name in class_names:
            check_choice(f"class of {self.name}", name, self.class_names)
        if len(set(class_names)) != len(class_names) or not class_names:
            raise ValueError(f"expected at least one class, and each only once, got {class_names}")
        new_labels = torch.full((len(self.class_names),), -1)
        for new_label, name in enumerate(class_names):
            new_labels[self.class_names.index(name)] = new_label

        def keep(split: Split) -> Split:
            chosen = subset(split, new_labels[split.labels] >= 0)
            return replace(chosen, labels=new_labels[chosen.labels])

        return replace(
            self,
            class_names=class_names,
            train=keep(self.train),
            validation=keep(self.validation),
            test=keep(self.test),
        )

    def batches(
        self,
        split: str,
        batch_size: int,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ) -> "Batches":
        """Return normalized batches of a split ("train", "validation" or "test"), see `Batches`."""
        return Batches(self.get_split(split), batch_size, self.normalize, shuffle, augment, mix)


class Batches:
    """Batches of a split in memory, by slicing tensors: a `DataLoader` with nothing to collate.

    Each pass yields (images, labels) of shapes (B, C, H, W) and (B,); the last batch may be
    smaller. Shuffling and augmentation use torch's global generator: one seed determines both.

    prepare: applied to each batch of images
    augment: applied before it, to images from 0 to 1
    mix    : applied last, mixup or cutmix
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        prepare: Transform | None = None,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ):
        self.split = split
        self.batch_size = check_int("batch_size", batch_size)
        self.shuffle = shuffle
        self.steps = [step for step in (augment, prepare) if step]
        self.mix = mix

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)  # rounded up

    def __iter__(self) -> Iterator[Batch]:
        n = len(self.split)
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for start in range(0, n, self.batch_size):
            rows = order[start : start + self.batch_size]
            images = as_float(self.split.pixels[rows])
            yield apply_steps(images, self.split.labels[rows], self.steps, self.mix)


def apply_steps(images: Tensor, labels: Tensor, steps: list[Transform], mix: Mix | None) -> Batch:
    """Apply every step to the images of a batch, then mix it."""
    for step in steps:
        images = step(images)
    return mix(images, labels) if mix else (images, labels)


def split_rows(n: int, *sizes: int) -> tuple[Tensor, ...]:
    """Divide rows 0 .. n - 1, in a random order, into groups of these sizes and the rest.

    The order is the same every time.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return order.split([*sizes, n - sum(sizes)])


def sample_rows(labels: Tensor, count: int | None) -> Tensor:
    """Choose the first `count` rows, None for all.

    Of images sorted by class, as in a folder, they are random ones, the same every time.
    """
    is_sorted = not (labels.diff() < 0).any()
    if count is not None and is_sorted:
        return split_rows(len(labels))[0][:count]
    return torch.arange(len(labels))[:count]


def normalize(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Compute (images - mean) / std for each channel: (..., C, H, W) -> (..., C, H, W).

    raises: ValueError for other numbers of channels; TypeError for integer pixels
    """
    check_floating(images)
    if images.shape[-3] != len(mean):
        raise ValueError(
            f"mean and std are for {len(mean)} channels, but the images have {images.shape[-3]}"
        )
    return (images - images.new_tensor(mean).view(-1, 1, 1)) / images.new_tensor(std).view(-1, 1, 1)


def mean_and_std(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute mean and standard deviation of each channel over all pixels, from 0 to 1.

    (n, C, H, W) -> two tuples of C numbers
    """
    if images.dtype == torch.uint8:
        counts = torch.zeros(images.shape[1], 256, dtype=torch.float64)
        for some_images in images.split(64):
            counts += count_values(some_images)
        return mean_and_std_of_counts(counts)
    return tuple(images.mean((0, 2, 3)).tolist()), tuple(images.std((0, 2, 3)).tolist())


def count_values(images: Tensor) -> Tensor:
    """Count the values 0 .. 255 of each channel: (n, C, H, W), uint8 -> (C, 256), float64"""
    channels = images.transpose(0, 1)
    return torch.stack([pixels.flatten().bincount(minlength=256) for pixels in channels]).double()


def mean_and_std_of_counts(counts: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute `mean_and_std` of counted values: (C, 256) -> two tuples of C numbers"""
    n, values = counts[0].sum(), torch.arange(256, dtype=torch.float64) / 255
    mean = counts @ values / n
    std = ((counts * (values - mean[:, None]) ** 2).sum(1) / (n - 1)).sqrt()
    return tuple(mean.tolist()), tuple(std.tolist())


def check_std(name: str, std: tuple[float, ...]) -> None:
    """Raise ValueError if the std of a channel is 0 or not finite."""
    if not all(value < math.inf for value in std):  # false for NaN too
        raise ValueError(
            f"{name}: the std of a channel of the training images is not finite (std {std}), "
            "so it cannot be normalized: look for pixels that are NaN or infinite"
        )
    if not min(std) > 0:
        raise ValueError(
            f"{name}: a channel of the training images is constant (std {std}), "
            "so it cannot be normalized"
        )


def check_labels(name: str, labels: Tensor, class_count: int) -> None:
    """Raise ValueError if a label is not one of 0 .. class_count - 1.  name: whose labels"""
    others = labels[(labels < 0) | (labels >= class_count)]
    if len(others):
        raise ValueError(
            f"{name} has the label {others[0].item()}, "
            f"expected 0 to {class_count - 1} for {class_count} classes"
        )
