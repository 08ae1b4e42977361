"""A data set in shards, read as a stream: only a buffer of encoded images is in memory, however large the data set is."""

import random
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from vit_helpers._validate import check_choice, check_int
from vit_helpers.data.shards import (
    BrokenShardError,
    decode_sample,
    find_damage,
    fingerprint,
    read_index,
    read_shard,
)
from vit_helpers.data.splits import Batch, Mix, Transform, apply_steps, normalize
from vit_helpers.distributed import fork_rng, rank, world_size

BUFFER = 1000  # encoded images in the shuffle buffer
VERSION = 2  # of the order of images
ORDER = (
    "version",
    "seed",
    "buffer_size",
    "batch_size",
    "world_size",
    "shards",
)  # what the order of images depends on

Sample = dict[str, Any]  # name, key, png and cls; or name and error


class Shards:
    """A data set in a folder of shards, to train on as on `Data`; FileNotFoundError, ValueError if the index is damaged."""

    def __init__(self, path: str | Path):
        index = read_index(path)
        self.folder, self.splits = Path(path), index["parts"]
        self.name, self.in_chans = index["name"], index["in_chans"]
        names = ("image_size", "class_names", "mean", "std")
        self.image_size, self.class_names, self.mean, self.std = (
            tuple(index[name]) for name in names
        )
        self.class_counts: list[int] | None = index.get(
            "class_counts"
        )  # shards of 0.2 and before do not have it
        self.normalize = partial(normalize, mean=self.mean, std=self.std)

    def count(self, split: str) -> int:
        """The number of images in a split"""
        check_choice("split", split, self.splits)
        return sum(entry["images"] for entry in self.splits[split])

    def batches(
        self,
        split: str,
        batch_size: int,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ) -> "Stream":
        """Normalized batches of this process's slice of a split, see `Stream`.  Torch's seed determines their order."""
        return Stream(
            self.folder, batch_size, split, buffer_size=BUFFER if shuffle else 0, seed=torch.initial_seed(),
            rank=rank(), world_size=world_size(), augment=augment, mix=mix,
        )  # fmt: skip


class Stream:
    """Batches of one split of a folder of shards, read from disk as they are needed; for `fit`, as `Batches` is.

    Each pass yields (images, labels), (B, C, H, W) float32 and (B,) int64, in an order that `seed` and its number determine.

    folder     : written by `write_shards`
    batch_size : images in a batch over all ranks; each rank gets an equal share, rounded up at most
    buffer_size: encoded images in memory to draw the next one from, with the shards in a new order in each pass;
                 0: no shuffling, so all images come in the order in which they were written
    rank       : of this process, of world_size processes
    prepare    : as for `Batches`, like augment and mix; by default normalizing by the index's mean and std
    on_broken  : "raise" a `BrokenShardError` that names shard and sample, or "skip": warn, leave the images out of their
                 batches, and count them by cause in `lost`, which starts anew in each pass
    raises     : ValueError for a bad option; FileNotFoundError; `BrokenShardError`

    The shards are concatenated and cut into `world_size` slices of equal size, give or take one image, one for each rank.
    All ranks yield `len()` batches, so none waits for another forever: 1,257 images in batches of 64 are 20 batches of 62
    or 63. With more ranks than images in a batch, or with a lost shard, some batches have 0 images.
    """

    def __init__(
        self, folder: str | Path, batch_size: int, split: str = "train", *, buffer_size: int = BUFFER, seed: int = 0,
        rank: int = 0, world_size: int = 1, prepare: Transform | None = None, augment: Transform | None = None,
        mix: Mix | None = None, on_broken: str = "raise",
    ):  # fmt: skip
        if not 0 <= rank < world_size:
            raise ValueError(
                f"ranks are 0 to world_size - 1, got rank={rank}, world_size={world_size}"
            )
        check_choice("on_broken", on_broken, ("raise", "skip"))
        self.data = Shards(folder)
        self.images = self.data.count(split)  # over all ranks
        self.entries = self.data.splits[split]
        self.version, self.shards = VERSION, fingerprint(self.entries)[:8]
        self.batch_size, self.buffer_size = (
            check_int("batch_size", batch_size),
            check_int("buffer_size", buffer_size, 0),
        )
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.first, self.last = (
            self.images * r // world_size for r in (rank, rank + 1)
        )  # of its slice, over all shards
        self.steps = [step for step in (augment, prepare or self.data.normalize) if step]
        self.lost: Counter[str] = Counter()
        self.mix, self.on_broken, self.resumed = (
            mix,
            on_broken,
            False,
        )  # resumed in the middle of a pass
        self.set_epoch(1)
        for entry in self.entries if on_broken == "raise" else ():  # now, rather than after hours
            if error := find_damage(self.data.folder / entry["file"], entry, thorough=False):
                raise BrokenShardError(f"{entry['file']} in {folder} is broken: {error}")

    def __len__(self) -> int:
        return -(-self.images // self.batch_size)  # rounded up

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass number `epoch` (1, 2, ...), unless `load_state_dict` has resumed one in the middle"""
        if not self.resumed:
            self.epoch, self.batch = epoch - 1, len(self)  # as if the previous one were complete

    def state_dict(self) -> dict[str, Any]:
        """The position in this pass as plain numbers and strings: the same on every rank, after the batch yielded last"""
        return {"epoch": self.epoch, "batch": self.batch} | {
            name: getattr(self, name) for name in ORDER
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there: the next pass yields what is left of the other one, in the same order.

        raises: ValueError if the order would differ: another seed, batch_size, world_size, shards, or version of this class
        """
        own = self.state_dict()
        if changed := [
            f"{name} {state.get(name)} -> {own[name]}"
            for name in ORDER
            if state.get(name) != own[name]
        ]:
            raise ValueError(
                f"the state belongs to a stream in another order: {', '.join(changed)}"
            )
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.resumed = self.batch < len(self)

    def __iter__(self) -> Iterator[Batch]:
        if not self.resumed:
            self.epoch, self.batch = self.epoch + 1, 0
        self.resumed, self.lost = False, Counter()
        count = self.last - self.first
        ends = [count * k // len(self) for k in range(len(self) + 1)]
        samples = islice(
            self.samples(self.epoch), ends[self.batch], None
        )  # those before are read again, but not decoded
        for batch in range(self.batch, len(self)):
            images, labels = self.decode(islice(samples, ends[batch + 1] - ends[batch]))
            self.batch = batch + 1  # before the yield, so that the state then includes this batch
            with fork_rng(self.epoch * len(self) + batch):
                if len(labels):
                    yield apply_steps(images, labels, self.steps, self.mix)
                elif self.world_size > 1:
                    yield images, labels
        if self.lost:
            warnings.warn(
                f"{self.lost.total():,} of {count:,} images were lost in pass {self.epoch}",
                stacklevel=2,
            )

    def samples(self, epoch: int) -> Iterator[Sample]:
        """This rank's samples of one pass, in order"""
        order = list(range(len(self.entries)))
        if self.buffer_size:
            order = shuffled(order, random.Random(f"{self.seed} {epoch}"))
        pieces = cut_pieces(
            [entry["images"] for entry in self.entries], order, self.first, self.last
        )
        samples = chain.from_iterable(self.read_piece(*piece) for piece in pieces)
        if not self.buffer_size:
            return samples
        return draw_from_buffer(
            samples, self.buffer_size, random.Random(f"{self.seed} {epoch} {self.rank}")
        )

    def read_piece(self, shard: int, first: int, last: int) -> Iterator[Sample]:
        """Samples first .. last - 1 of a shard; in place of a damaged one a dict with name and error, so none is left out"""
        entry, at = self.entries[shard], first
        path = self.data.folder / entry["file"]
        name = f"{path.name} in {path.parent}"
        try:
            error = find_damage(path, entry, thorough=True)
            for sample in () if error else read_shard(path, first, last):
                yield {"name": f"sample {sample['key']} of {name}", **sample}
                at += 1
            error = error or f"it has {at} images, the index says {entry['images']}"
        except (OSError, tarfile.TarError) as problem:  # a disk that fails
            error = f"it cannot be read: {problem}"
        yield from ({"name": name, "error": error} for _ in range(at, last))

    def decode(self, samples: Iterable[Sample]) -> Batch:
        """Samples -> images (B, C, H, W) from 0 to 1, and labels (B,), without the broken ones"""
        shape = self.data.in_chans, *self.data.image_size
        images, labels = [torch.zeros(0, *shape, dtype=torch.uint8)], []
        for sample in samples:
            try:
                if "error" in sample:
                    raise ValueError(sample["error"])
                label, image = decode_sample(sample, len(self.data.class_names), shape)
            except ValueError as error:
                broken = f"{sample['name']} is broken: {error}"
                if self.on_broken == "raise":
                    raise BrokenShardError(broken) from error
                if not self.lost[broken]:
                    warnings.warn(f"{broken}; it is skipped", stacklevel=3)
                self.lost[broken] += 1
            else:
                images.append(image[None])
                labels.append(label)
        return torch.cat(images) / 255, torch.tensor(labels, dtype=torch.int64)


def draw_from_buffer(
    samples: Iterator[Sample], buffer_size: int, generator: random.Random
) -> Iterator[Sample]:
    """All samples, each drawn at random from a buffer that is refilled in their order"""
    buffer = list(islice(samples, buffer_size))
    for sample in samples:
        at = int(generator.random() * buffer_size)
        buffer[at], sample = sample, buffer[at]
        yield sample
    yield from shuffled(buffer, generator)


def shuffled(items: list[Any], generator: random.Random) -> list[Any]:
    """The items in random order, by `random()` alone: the one method that gives the same numbers in every Python version"""
    return sorted(items, key=lambda _: generator.random())


def cut_pieces(
    counts: list[int], order: Iterable[int], first: int, last: int
) -> list[tuple[int, int, int]]:
    """Images first .. last - 1 of shards concatenated in some order, as pieces: (shard, first and last within it)

    >>> cut_pieces([3, 3, 3], order=[2, 0, 1], first=2, last=6)
    [(2, 2, 3), (0, 0, 3)]
    """
    pieces, start = [], 0
    for shard in order:
        inside = max(first - start, 0), min(last - start, counts[shard])
        if inside[0] < inside[1]:
            pieces.append((shard, *inside))
        start += counts[shard]
    return pieces
