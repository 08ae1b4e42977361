"""A data set in shards, read as a stream: only a buffer of encoded images is in memory."""

import random
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from vit_helpers._validate import check_choice, check_int
from vit_helpers.data.shards import (
    BrokenShardError,
    Entry,
    Sample,
    decode_sample,
    find_damage,
    fingerprint,
    read_index,
    read_shard,
)
from vit_helpers.data.splits import Batch, Mix, Transform, apply_steps, normalize
from vit_helpers.distributed import fork_rng, rank, world_size

T = TypeVar("T")
BUFFER = 1000  # encoded images in the shuffle buffer
VERSION = 2  # of the order of images
ORDER = (  # what the order of images depends on
    *("version", "seed", "buffer_size"),
    *("batch_size", "world_size", "shards"),
)


class Shards:
    """A data set in a folder of shards, to train on as on `Data`.

    raises: FileNotFoundError; ValueError if the index is damaged
    """

    def __init__(self, path: str | Path):
        index = read_index(path)
        self.folder = Path(path)
        self.splits: dict[str, list[Entry]] = index["parts"]
        self.name: str = index["name"]
        self.in_chans: int = index["in_chans"]
        height, width = index["image_size"]
        self.image_size: tuple[int, int] = (height, width)
        self.class_names: tuple[str, ...] = tuple(index["class_names"])
        self.class_counts: list[int] = index["class_counts"]
        self.mean: tuple[float, ...] = tuple(index["mean"])
        self.std: tuple[float, ...] = tuple(index["std"])
        self.white: float | None = index.get("white")

    def count(self, split: str) -> int:
        """Count the images of a split."""
        check_choice("split", split, self.splits)
        return sum(entry["images"] for entry in self.splits[split])

    def normalize(self, images: Tensor) -> Tensor:
        """Normalize by this data set's mean and std: (B, C, H, W) -> (B, C, H, W)"""
        return normalize(images, self.mean, self.std)

    def batches(
        self,
        split: str,
        batch_size: int,
        shuffle: bool = False,
        augment: Transform | None = None,
        mix: Mix | None = None,
    ) -> "Stream":
        """Return normalized batches of this process's slice of a split, see `Stream`.

        Torch's seed determines their order.
        """
        return Stream(
            self.folder,
            batch_size,
            split,
            buffer_size=BUFFER if shuffle else 0,
            seed=torch.initial_seed(),
            rank=rank(),
            world_size=world_size(),
            augment=augment,
            mix=mix,
        )


class Stream:
    """Batches of one split of a folder of shards, read from disk as `fit` needs them.

    Each pass yields (images, labels), (B, C, H, W) float32 and (B,) int64, in an order that `seed`
    and the number of the pass determine.

    folder     : written by `write_shards`
    batch_size : images in a batch over all ranks; each rank gets an equal share, rounded up at most
    buffer_size: encoded images in memory to draw the next one from, with the shards in a new order
                 in each pass; 0: no shuffling, so all images come in the order in which they were
                 written
    rank       : of this process, of world_size processes
    prepare    : as for `Batches`, like augment and mix; by default normalizing by the index's mean
                 and std
    on_broken  : "raise" a `BrokenShardError` that names shard and sample, or "skip": warn, leave
                 the images out of their batches, and count them by cause in `lost`, which starts
                 anew in each pass
    raises     : ValueError for a bad option; FileNotFoundError; `BrokenShardError`

    The shards are concatenated and cut into `world_size` slices of equal size, give or take one
    image, one for each rank. All ranks yield `len()` batches, so none waits for another forever:
    1,257 images in batches of 64 are 20 batches of 62 or 63. With more ranks than images in a
    batch, or with a lost shard, some batches have 0 images.
    """

    def __init__(
        self,
        folder: str | Path,
        batch_size: int,
        split: str = "train",
        *,
        buffer_size: int = BUFFER,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        prepare: Transform | None = None,
        augment: Transform | None = None,
        mix: Mix | None = None,
        on_broken: str = "raise",
    ):
        if not 0 <= rank < world_size:
            raise ValueError(
                f"ranks are 0 to world_size - 1, got rank={rank}, world_size={world_size}"
            )
        check_choice("on_broken", on_broken, ("raise", "skip"))
        self.data = Shards(folder)
        self.images = self.data.count(split)  # over all ranks
        self.entries = self.data.splits[split]
        self.version = VERSION
        self.shards = fingerprint(self.entries)[:8]
        self.batch_size = check_int("batch_size", batch_size)
        self.buffer_size = check_int("buffer_size", buffer_size, least=0)
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.first = self.images * rank // world_size  # of this rank's slice, over all shards
        self.last = self.images * (rank + 1) // world_size
        self.steps = [step for step in (augment, prepare or self.data.normalize) if step]
        self.mix = mix
        self.on_broken = on_broken
        self.lost: Counter[str] = Counter()
        self.resumed = False  # in the middle of a pass
        self.set_epoch(1)
        if on_broken == "raise":
            self.check_shards()

    def check_shards(self) -> None:
        """Raise `BrokenShardError` if a file has another size than it should: not hours later."""
        for entry in self.entries:
            error = find_damage(self.data.folder / entry["file"], entry, thorough=False)
            if error:
                raise BrokenShardError(f"{entry['file']} in {self.data.folder} is broken: {error}")

    def __len__(self) -> int:
        return -(-self.images // self.batch_size)  # rounded up

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass number `epoch` (1, 2, ...), unless one was resumed in the middle."""
        if not self.resumed:
            self.epoch, self.batch = epoch - 1, len(self)  # as if the previous one were complete

    def state_dict(self) -> dict[str, Any]:
        """Return the position in this pass, after the batch yielded last, the same on every rank.

        returns: plain numbers and strings
        """
        order = {name: getattr(self, name) for name in ORDER}
        return {"epoch": self.epoch, "batch": self.batch, **order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there: the next pass yields what is left of the other, in the same order.

        raises: ValueError if the order would differ: another seed, batch_size, world_size, shards,
                or version of this class
        """
        own = self.state_dict()
        changed = [
            f"{name} {state.get(name)} -> {own[name]}"
            for name in ORDER
            if state.get(name) != own[name]
        ]
        if changed:
            raise ValueError(
                f"the state belongs to a stream in another order: {', '.join(changed)}"
            )
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.resumed = self.batch < len(self)

    def __iter__(self) -> Iterator[Batch]:
        if not self.resumed:
            self.epoch, self.batch = self.epoch + 1, 0
        self.resumed = False
        self.lost = Counter()
        count = self.last - self.first
        ends = [0] + [count * k // len(self) for k in range(1, len(self) + 1)]  # len may be 0
        # of a resumed pass, the samples before are read again, but not decoded
        samples = islice(self.samples(self.epoch), ends[self.batch], None)
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
        """Yield this rank's samples of one pass, in order."""
        order = list(range(len(self.entries)))
        if self.buffer_size:
            order = shuffled(order, random.Random(f"{self.seed} {epoch}"))
        counts = [entry["images"] for entry in self.entries]
        pieces = cut_pieces(counts, order, self.first, self.last)
        samples = chain.from_iterable(self.read_piece(*piece) for piece in pieces)
        if not self.buffer_size:
            return samples
        generator = random.Random(f"{self.seed} {epoch} {self.rank}")
        return draw_from_buffer(samples, self.buffer_size, generator)

    def read_piece(self, shard: int, first: int, last: int) -> Iterator[Sample]:
        """Yield samples first .. last - 1 of a shard.

        In place of a damaged one comes a sample with an error, so that none is left out.
        """
        entry = self.entries[shard]
        path = self.data.folder / entry["file"]
        name = f"{path.name} in {path.parent}"
        next_sample = first
        try:
            error = find_damage(path, entry, thorough=True)
            if error is None:
                for sample in read_shard(path, first, last):
                    yield sample._replace(shard=name)
                    next_sample += 1
                error = f"it has {next_sample} images, the index says {entry['images']}"
        except (OSError, tarfile.TarError) as problem:  # a disk that fails
            error = f"it cannot be read: {problem}"
        for _ in range(next_sample, last):
            yield Sample("", {}, name, error)

    def decode(self, samples: Iterable[Sample]) -> Batch:
        """Decode samples: images (B, C, H, W) from 0 to 1, and labels (B,), without broken ones."""
        height, width = self.data.image_size
        shape = (self.data.in_chans, height, width)
        images, labels = [torch.zeros(0, *shape, dtype=torch.uint8)], list[int]()
        for sample in samples:
            try:
                if sample.error:
                    raise ValueError(sample.error)
                label, image = decode_sample(sample, len(self.data.class_names), shape)
            except ValueError as error:
                self.lose(f"{sample.name} is broken: {error}", error)
            else:
                images.append(image[None])
                labels.append(label)
        return torch.cat(images) / 255, torch.tensor(labels, dtype=torch.int64)

    def lose(self, message: str, error: ValueError) -> None:
        """Raise `BrokenShardError` for a sample, or count it as lost, with a warning once."""
        if self.on_broken == "raise":
            raise BrokenShardError(message) from error
        if not self.lost[message]:
            warnings.warn(f"{message}; it is skipped", stacklevel=4)
        self.lost[message] += 1


def draw_from_buffer(
    samples: Iterator[T], buffer_size: int, generator: random.Random
) -> Iterator[T]:
    """Yield all samples, each drawn at random from a buffer that is refilled in their order."""
    buffer = list(islice(samples, buffer_size))
    for sample in samples:
        row = int(generator.random() * buffer_size)
        drawn, buffer[row] = buffer[row], sample
        yield drawn
    yield from shuffled(buffer, generator)


def shuffled(items: list[T], generator: random.Random) -> list[T]:
    """Return the items in random order.

    It uses `random()` alone, the one method that gives the same numbers in every Python version.
    """
    return sorted(items, key=lambda _: generator.random())


def cut_pieces(
    counts: list[int], order: Iterable[int], first: int, last: int
) -> list[tuple[int, int, int]]:
    """Cut images first .. last - 1 of shards, concatenated in some order, into pieces.

    returns: (shard, first and last within it) of each

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
