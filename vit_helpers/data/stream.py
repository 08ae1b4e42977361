"""A data set in shards, read as a stream: in memory is a buffer of encoded images, whatever the size of the whole."""

import tarfile
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from vit_helpers.data.shards import BrokenShardError, damage, fingerprint, read_index, read_sample, read_shard
from vit_helpers.data.splits import Data
from vit_helpers.training.distributed import fork_rng, rank, world_size

BUFFER = 1000  # encoded images that wait to be drawn from
ORDER = ("seed", "buffer_size", "batch_size", "world", "shards", "datasets")  # what the order of images hangs on


class Shards:
    """A data set in shards, to train on as on `Data`; batches of a part are read from disk while they are needed.

    path  : folder made by `write_shards`
    raises: FileNotFoundError when there are no shards; ValueError when their index is damaged
    """

    normalize = Data.normalize

    def __init__(self, path):
        index = read_index(path)
        self.folder, self.parts = Path(path), index["parts"]
        self.name, self.in_chans, self.image_size = index["name"], index["in_chans"], tuple(index["image_size"])
        self.class_names, self.mean, self.std = (tuple(index[key]) for key in ("class_names", "mean", "std"))

    def entries(self, part):
        """What the index says of each shard of a part"""
        if part not in self.parts:
            raise ValueError(f"unknown part {part!r}, known: {', '.join(self.parts)}")
        return self.parts[part]

    def count(self, part):
        """How many images a part holds"""
        return sum(entry["images"] for entry in self.entries(part))

    def batches(self, part, batch_size, shuffle=False, augment=None, mix=None):
        """Normalised batches of what this process has of a part, see `Stream`.  Torch's seed decides their order."""
        order = {
            "buffer_size": BUFFER if shuffle else 0,
            "seed": torch.initial_seed(),
            "rank": rank(),
            "world": world_size(),
        }
        return Stream(self.folder, batch_size, part, **order, augment=augment, mix=mix)


class Stream:
    """Batches of one part of a folder of shards, read from disk while they are needed; for `fit`, as `Batches` is.

    Each pass yields (images, labels), (B, C, H, W) float32 and (B,) int64, in another order than the pass before. The order
    comes from `seed` and the number of the pass; augmentation draws from torch's global generator, as for `Batches`;
    processes that train together (`vit_helpers.training.distributed`) draw each on its own.

    folder    : made by `write_shards`; part: "train", "validation" or "test"
    batch_size: images in a batch of all ranks together; a rank gets its even share, rounded up at most
    buffer_size: how many encoded images wait in memory to be drawn from; since `datasets` 5 ten shards at a time fill it.
                The order of the shards is drawn anew for each pass. 0: all images in the order in which they were written
    rank,world: of this process, and how many there are
    prepare   : applied to every batch, in place of normalising by the mean and std of the index
    augment   : applied before it, to images from 0 to 1; mix: applied last, as for `Batches`
    on_broken : "raise": a `BrokenShardError` names shard and sample. "skip": a warning does, the images are missing from
                their batches, and `lost` counts them by cause, anew in each pass
    raises    : ValueError for a bad option; FileNotFoundError; ImportError without datasets; `BrokenShardError`

    The shards are laid end to end and cut into `world_size` parts with as many images each, give or take one: every image is
    read by one rank, whatever the number of shards, and only a shard that lies across a cut is opened by two. All ranks
    yield `len()` batches, so none waits for another for ever; the images are dealt evenly over them: 1,257 in batches of 64
    are 20 batches of 62 or 63. A rank may get batches of 0 images, where there are more ranks than images in a batch or a
    shard is lost. With one rank such a batch is left out.
    """

    def __init__(
        self, folder, batch_size, part="train", *, buffer_size=BUFFER, seed=0, rank=0, world=1,
        prepare=None, augment=None, mix=None, on_broken="raise",
    ):  # fmt: skip
        if batch_size < 1:
            raise ValueError(f"a batch holds at least 1 image, got batch_size={batch_size}")
        if not 0 <= rank < world:
            raise ValueError(f"ranks count from 0 to world - 1, got rank={rank}, world={world}")
        if buffer_size < 0:
            raise ValueError(f"buffer_size is a number of images, 0 or more, got {buffer_size}")
        if on_broken not in ("raise", "skip"):
            raise ValueError(f'on_broken is "raise" or "skip", got {on_broken!r}')
        self.data = Shards(folder)
        self.entries, self.images = self.data.entries(part), self.data.count(part)  # of all ranks
        self.datasets = hugging_face().__version__  # another one may draw in another order
        self.shards = fingerprint(self.entries)[:8]
        self.batch_size, self.buffer_size, self.seed, self.rank, self.world = batch_size, buffer_size, seed, rank, world
        self.steps = [step for step in (augment, prepare or self.data.normalize) if step]
        self.mix, self.on_broken, self.lost = mix, on_broken, Counter()
        self.resumed = False  # in the middle of a pass
        self.set_epoch(1)
        for entry in self.entries:
            if on_broken == "raise" and (error := damage(self.data.folder / entry["file"], entry, thorough=False)):
                raise BrokenShardError(f"{entry['file']} in {folder} is broken: {error}")  # now, not after hours

    def __len__(self):
        return -(-self.images // self.batch_size)  # rounded up

    def set_epoch(self, epoch):
        """Make the next pass number `epoch` (1, 2, ...); one resumed in the middle by `load_state_dict` is left as it is"""
        if not self.resumed:
            self.epoch, self.batch = epoch - 1, len(self)  # as if the one before were over

    def state_dict(self):
        """Where this pass is, in plain numbers and texts: the same on every rank, after the batch yielded last"""
        return {"epoch": self.epoch, "batch": self.batch} | {name: getattr(self, name) for name in ORDER}

    def load_state_dict(self, state):
        """Go on from there: the next pass yields what the other one had not yielded yet, in the same order.

        What a buffer of `datasets` holds is not in its own state, and would be lost. So what has been seen is read once more
        and passed over; it is not decoded.

        raises: ValueError when the order would be another one: by seed, batch_size, world, shards, or version of datasets
        """
        changed = [
            f"{name} {state.get(name)} -> {getattr(self, name)}" for name in ORDER if state.get(name) != getattr(self, name)
        ]
        if changed:
            raise ValueError(f"the state is of a stream in another order: {', '.join(changed)}")
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.resumed = self.batch < len(self)

    def __iter__(self):
        if not self.resumed:
            self.epoch, self.batch = self.epoch + 1, 0
        self.resumed, self.lost = False, Counter()
        first, last = self.bounds()
        ends = [(last - first) * k // len(self) for k in range(len(self) + 1)]
        samples = islice(self.samples(self.epoch), ends[self.batch], None)
        for batch in range(self.batch, len(self)):
            images, labels = self.decode(islice(samples, ends[batch + 1] - ends[batch]))
            self.batch = batch + 1  # before the yield: who asks for the state meanwhile has seen this batch
            if len(labels) or self.world > 1:
                with fork_rng(self.epoch * len(self) + batch):
                    yield self.finish(images, labels)
        if self.lost:
            warnings.warn(f"{self.lost.total():,} of {last - first:,} images were lost in pass {self.epoch}", stacklevel=2)

    def bounds(self):
        """The images of this rank, counted over all shards: from, up to"""
        return self.images * self.rank // self.world, self.images * (self.rank + 1) // self.world

    def samples(self, epoch):
        """This rank's samples of one pass, in order, as `read_pieces` gives them"""
        hf = hugging_face().iterable_dataset
        counts = [entry["images"] for entry in self.entries]
        order = (
            np.random.default_rng([self.seed, epoch]).permutation(len(counts)) if self.buffer_size else range(len(counts))
        )
        pieces = [
            (self.data.folder / self.entries[i]["file"], self.entries[i], *ends)
            for i, *ends in cut(counts, order, *self.bounds())
        ]
        # not IterableDataset.from_generator: it leaves a lock file in the user's cache for every order of the pieces
        stream = hf.IterableDataset(hf.ExamplesIterable(read_pieces, {"pieces": pieces}))
        if self.buffer_size:
            stream = stream.shuffle(
                generator=np.random.default_rng([self.seed, epoch, self.rank]), buffer_size=self.buffer_size
            )
        return iter(stream)

    def decode(self, samples):
        """Samples -> images (B, C, H, W) from 0 to 1, and labels (B,), without those that are broken"""
        shape = self.data.in_chans, *self.data.image_size
        images, labels = [torch.zeros(0, *shape, dtype=torch.uint8)], []
        for sample in samples:
            try:
                label, image = decoded(sample, len(self.data.class_names), shape)
            except BrokenShardError as error:
                if self.on_broken == "raise":
                    raise
                if not self.lost[str(error)]:
                    warnings.warn(f"{error}; going on without", stacklevel=3)
                self.lost[str(error)] += 1
            else:
                images.append(image[None])
                labels.append(label)
        return torch.cat(images) / 255, torch.tensor(labels, dtype=torch.int64)

    def finish(self, images, labels):
        """Augment, normalise and mix a batch; one of 0 images stays as it is"""
        if not len(labels):
            return images, labels
        for step in self.steps:
            images = step(images)
        return self.mix(images, labels) if self.mix else (images, labels)


def decoded(sample, class_count, shape):
    """A sample of `read_pieces`: its label, and its picture (C, H, W), 0 to 255

    raises: `BrokenShardError`, naming shard and sample
    """
    if "error" in sample:
        raise BrokenShardError(f"{sample['shard']} is broken: {sample['error']}")
    try:
        return read_sample(sample, class_count, shape)
    except ValueError as error:
        raise BrokenShardError(f"sample {sample['key']} of {sample['shard']} is broken: {error}") from error


def read_pieces(pieces):
    """The samples of pieces of shards one after another: pairs of a name, and a dict with shard, key, png and cls, as bytes.

    pieces: (path, what the index says of the shard, first, last): samples first .. last - 1 of it
    Where a shard is broken, a dict with shard and error stands for each sample: damage never makes the stream shorter.
    """
    for path, entry, first, last in pieces:
        at, shard = first, f"{path.name} in {path.parent}"
        try:
            error = damage(path, entry, thorough=True)
            for sample in () if error else read_shard(path, first, last):
                yield f"{path.name} {at}", {"shard": shard, **sample}
                at += 1
            error = error or f"it holds {at} images, the index says {entry['images']}"
        except (OSError, tarfile.TarError) as problem:  # a disk that fails
            error = f"it cannot be read: {problem}"
        for missing in range(at, last):
            yield f"{path.name} {missing}", {"shard": shard, "error": error}


def cut(counts, order, first, last):
    """Images first .. last - 1 of shards laid end to end in some order, as pieces: (shard, first and last within it)

    >>> cut([3, 3, 3], order=[2, 0, 1], first=2, last=6)
    [(2, 2, 3), (0, 0, 3)]
    """
    pieces, start = [], 0
    for shard in order:
        inside = max(first - start, 0), min(last - start, counts[shard])
        if inside[0] < inside[1]:
            pieces.append((shard, *inside))
        start += counts[shard]
    return pieces


def hugging_face():
    """Hugging Face's datasets, which mixes the shards.

    raises: ImportError when it is not installed, saying how to
    """
    try:
        import datasets
        import datasets.iterable_dataset
    except ImportError as error:
        raise ImportError(
            "reading shards needs Hugging Face's datasets, which is not installed: pip install datasets"
        ) from error
    return datasets
