"""Data too large for memory: shards, which are tar files, read as a stream.

A shard holds some hundreds of images in WebDataset's layout, 000017.png and 000017.cls side by side: `tar tf` shows what is
inside, and other tools read it. index.json beside the shards says how many images each holds, and what its bytes are.
"""

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import warnings
from collections import Counter
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import torch

from vit_helpers.data.parts import PARTS, Data, split_rows

INDEX = "index.json"
MODES = {1: "L", 3: "RGB"}  # channels -> what PIL calls such a picture
ORDER = ("seed", "shuffle", "batch_size", "world", "shards", "datasets")  # what the order of images hangs on


class BrokenShardError(ValueError):
    """A shard or a sample of it is not what the index says; the message names both"""


def write_shards(data, folder, per_shard=1000):
    """Write the three parts of a data set as shards, train-00000.tar and so on, with their index: all of it or nothing.

    data     : `Data`; pixels become 8-bit PNGs, so each value moves by 1/510 at most; places are not kept
    folder   : not there yet, or empty; its path comes back
    per_shard: images in a shard; the last of a part may hold fewer. For photos choose some 100 MB a shard
    raises   : FileExistsError when there is something in the folder; ValueError for images that are no 8-bit PNGs

    Training images are written in random order, the same each time: a folder read class by class would otherwise give
    shards of one class each. A sample is named by its number in its part.
    """
    folder = Path(folder)
    if per_shard < 1:
        raise ValueError(f"a shard holds at least 1 image, got per_shard={per_shard}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} is there already and not empty: shards are never written over, choose another folder"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    shards = aside / folder.name  # mkdtemp's own folder is closed to all but its owner
    try:
        shards.mkdir()
        index = {"name": data.name, "class_names": data.class_names, "mean": data.mean, "std": data.std}
        index |= {"in_chans": data.in_chans, "image_size": data.image_size}
        index["parts"] = {part: write_part(getattr(data, part), part, shards, per_shard) for part in PARTS}
        index["sha256"] = fingerprint(index)
        (shards / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        shards.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def write_part(split, part, folder, per_shard):
    """Write one part as shards: what the index says of each, a dict with file, images, bytes and sha256"""
    n = len(split.labels)
    rows = split_rows(n)[0] if part == "train" else torch.arange(n)
    entries = []
    for number, some in enumerate(rows.split(per_shard)):
        path = folder / f"{part}-{number:05d}.tar"
        with tarfile.open(path, "w") as tar:
            for row in some.tolist():
                add(tar, f"{row:06d}.png", to_png(split.images[row]))
                add(tar, f"{row:06d}.cls", str(split.labels[row].item()).encode())
        entries.append({"file": path.name, "images": len(some), "bytes": path.stat().st_size, "sha256": sha256(path)})
    return entries


def add(tar, name, content):
    """Put bytes into an open tar file under a name"""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def to_png(image):
    """(C, H, W), from 0 to 1 -> the bytes of an 8-bit PNG

    raises: ValueError when C is not 1 or 3, or when a value is not from 0 to 1
    """
    from PIL import Image

    if len(image) not in MODES:
        raise ValueError(f"shards hold images of 1 or 3 channels, got {len(image)}")
    low, high = image.min().item(), image.max().item()
    if not (low >= 0 and high <= 1):  # NaN is neither
        raise ValueError(f"shards hold pixels from 0 to 1, got {low:.3g} to {high:.3g}: write them before normalising")
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if len(image) == 1 else pixels).save(file, "png")
    return file.getvalue()


def from_png(content, shape):
    """The bytes of a picture -> (C, H, W), 0 to 255

    raises: ValueError when it cannot be decoded, or has another shape
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            pixels = torch.from_numpy(np.array(picture))
            mode = picture.mode
    except Exception as error:  # PIL raises many kinds here: OSError, SyntaxError, ValueError, struct.error, ...
        raise ValueError(f"its picture cannot be decoded: {error}") from error
    pixels = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    if tuple(pixels.shape) != shape or mode != MODES[shape[0]]:
        raise ValueError(f"its picture has the shape {tuple(pixels.shape)} and mode {mode}, the index says {shape}")
    return pixels


def sha256(path):
    """Of a file, in hexadecimal"""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(index):
    """The sha256 of what an index says, in hexadecimal: a count changed by a broken disk would hide images"""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def read_index(folder):
    """What `write_shards` says of its shards, as a dict.

    raises: FileNotFoundError when there is no index; ValueError when it is none, or is not as it was written
    """
    path = Path(folder) / INDEX
    if not path.is_file():
        raise FileNotFoundError(f"no {INDEX} in {folder}: a folder of shards is made by write_shards")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        kept = index.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is cut short, or no index of shards: {error!r}") from error
    if fingerprint(index) != kept:
        raise ValueError(f"{path} is damaged, or was changed by hand: its sha256 is not the one that it names")
    return index


def damage(path, entry, thorough):
    """What is wrong with a shard, in words, or None.  thorough: compare every byte, not the length alone"""
    if not path.is_file():
        return "there is no such file"
    if (size := path.stat().st_size) != entry["bytes"]:
        return f"it has {size:,} bytes, the index says {entry['bytes']:,}"
    if thorough and sha256(path) != entry["sha256"]:
        return "its bytes have changed since it was written (another sha256 than in the index)"
    return None


def read_pieces(pieces):
    """The samples of pieces of shards one after another: pairs of a name, and a dict with shard, key, png and cls, as bytes.

    pieces: (path, what the index says of the shard, first, last): samples first .. last - 1 of it
    Where a shard is broken, a dict with shard and error stands for each sample: damage never makes the stream shorter.
    """
    for path, entry, first, last in pieces:
        at = first
        try:
            error = damage(path, entry, thorough=True)
            for sample in () if error else read_shard(path, first, last):
                yield f"{path.name} {at}", {"shard": path.name, **sample}
                at += 1
            error = error or f"it holds {at} images, the index says {entry['images']}"
        except (OSError, tarfile.TarError) as problem:  # a disk that fails
            error = f"it cannot be read: {problem}"
        for missing in range(at, last):
            yield f"{path.name} {missing}", {"shard": path.name, "error": error}


def read_shard(path, first, last):
    """Samples first .. last - 1 of a whole shard, as dicts: key, and the bytes of each of its files by their ending"""
    with tarfile.open(path) as tar:
        for key, members in islice(groupby(tar, key=lambda member: member.name.partition(".")[0]), first, last):
            yield {"key": key} | {member.name.partition(".")[2]: tar.extractfile(member).read() for member in members}


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


class Stream:
    """Batches of one part of a folder of shards, read from disk while they are needed; for `fit`, as `Batches` is.

    Each pass yields (images, labels), (B, C, H, W) float32 and (B,) int64, in another order than the pass before. The order
    comes from `seed` and the number of the pass; augmentation draws from torch's global generator, as for `Batches`.

    folder    : made by `write_shards`; part: "train", "validation" or "test"
    batch_size: images in a batch of all ranks together; a rank gets its even share, rounded up at most
    shuffle   : how many encoded images wait in memory to be drawn from; ten shards at a time fill it, and the order of the
                shards is drawn anew for each pass. 0: all images in the order in which they were written
    rank,world: of this process, and how many there are
    prepare   : applied to every batch, in place of normalising by the mean and std of the index
    augment   : applied before it, to images from 0 to 1; mix: applied last, as for `Batches`
    on_broken : "raise": a `BrokenShardError` names shard and sample. "skip": a warning does, the images are missing from
                their batches, and `lost` counts them by cause, anew in each pass
    raises    : ValueError for a bad option; FileNotFoundError; ImportError without datasets; `BrokenShardError`

    The shards are laid end to end and cut into `world` parts with as many images each, give or take one: every image is
    read by one rank, whatever the number of shards, and only a shard that lies across a cut is opened by two. All ranks
    yield `len()` batches, so none waits for another for ever; the images are dealt evenly over them: 1,257 in batches of 64
    are 20 batches of 62 or 63. A rank may get batches of 0 images, where there are more ranks than images in a batch or a
    shard is lost. With one rank such a batch is left out.
    """

    normalize = Data.normalize

    def __init__(
        self, folder, batch_size, part="train", *, shuffle=1000, seed=0, rank=0, world=1,
        prepare=None, augment=None, mix=None, on_broken="raise",
    ):  # fmt: skip
        if batch_size < 1:
            raise ValueError(f"a batch holds at least 1 image, got batch_size={batch_size}")
        if not 0 <= rank < world:
            raise ValueError(f"ranks count from 0 to world - 1, got rank={rank}, world={world}")
        if shuffle < 0:
            raise ValueError(f"shuffle is a number of images, 0 or more, got {shuffle}")
        if on_broken not in ("raise", "skip"):
            raise ValueError(f'on_broken is "raise" or "skip", got {on_broken!r}')
        index = read_index(folder)
        if part not in index["parts"]:
            raise ValueError(f"unknown part {part!r}, known: {', '.join(index['parts'])}")
        self.datasets = hugging_face().__version__  # another one may draw in another order
        self.folder, self.part, self.entries = Path(folder), part, index["parts"][part]
        self.name, self.in_chans, self.image_size = index["name"], index["in_chans"], tuple(index["image_size"])
        self.class_names, self.mean, self.std = (tuple(index[key]) for key in ("class_names", "mean", "std"))
        self.batch_size, self.shuffle, self.seed, self.rank, self.world = batch_size, shuffle, seed, rank, world
        self.steps = [step for step in (augment, prepare or self.normalize) if step]
        self.mix, self.on_broken, self.lost = mix, on_broken, Counter()
        self.shards = fingerprint(self.entries)[:8]
        self.images = sum(entry["images"] for entry in self.entries)  # of all ranks, in a pass
        self.epoch, self.batch, self.resumed = 0, len(self), False  # as if a pass 0 were over
        for entry in self.entries:
            if on_broken == "raise" and (error := damage(self.folder / entry["file"], entry, thorough=False)):
                raise BrokenShardError(f"{entry['file']} in {folder} is broken: {error}")  # now, not after hours

    def __len__(self):
        return -(-self.images // self.batch_size)  # rounded up

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
        self.epoch, self.batch, self.resumed = state["epoch"], state["batch"], True

    def __iter__(self):
        if not self.resumed or self.batch == len(self):
            self.epoch, self.batch = self.epoch + 1, 0
        self.resumed, self.lost = False, Counter()
        first, last = self.bounds()
        ends = [(last - first) * k // len(self) for k in range(len(self) + 1)]
        samples = islice(self.samples(self.epoch), ends[self.batch], None)
        for batch in range(self.batch, len(self)):
            images, labels = self.decode(islice(samples, ends[batch + 1] - ends[batch]))
            self.batch = batch + 1  # before the yield: who asks for the state meanwhile has seen this batch
            if len(labels) or self.world > 1:
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
        order = np.random.default_rng([self.seed, epoch]).permutation(len(counts)) if self.shuffle else range(len(counts))
        pieces = [
            (self.folder / self.entries[i]["file"], self.entries[i], *ends)
            for i, *ends in cut(counts, order, *self.bounds())
        ]
        # not IterableDataset.from_generator: it leaves a lock file in the user's cache for every order of the pieces
        stream = hf.IterableDataset(hf.ExamplesIterable(read_pieces, {"pieces": pieces}))
        if self.shuffle:
            stream = stream.shuffle(generator=np.random.default_rng([self.seed, epoch, self.rank]), buffer_size=self.shuffle)
        return iter(stream)

    def decode(self, samples):
        """Samples -> images (B, C, H, W) from 0 to 1, and labels (B,), without those that are broken"""
        images, labels = [torch.zeros(0, self.in_chans, *self.image_size, dtype=torch.uint8)], []
        for sample in samples:
            try:
                label, image = self.read(sample)
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

    def read(self, sample):
        """One sample: its label, and its picture (C, H, W), 0 to 255

        raises: `BrokenShardError`, naming shard and sample
        """
        shard, key = f"{sample['shard']} in {self.folder}", sample.get("key")
        if "error" in sample:
            raise BrokenShardError(f"{shard} is broken: {sample['error']}")
        if gone := [end for end in ("png", "cls") if end not in sample]:
            raise BrokenShardError(f"sample {key} of {shard} is broken: there is no {key}.{gone[0]}")
        try:
            return self.to_label(sample["cls"]), from_png(sample["png"], (self.in_chans, *self.image_size))
        except ValueError as error:
            raise BrokenShardError(f"sample {key} of {shard} is broken: {error}") from error

    def to_label(self, content):
        """The bytes of a label -> its number

        raises: ValueError when it is no number, or none of a class
        """
        text = content.decode(errors="replace").strip()
        if not (text.isdecimal() and int(text) < len(self.class_names)):
            raise ValueError(f"its label is {text[:50]!r}, wanted is a number from 0 to {len(self.class_names) - 1}")
        return int(text)

    def finish(self, images, labels):
        """Augment, normalise and mix a batch; one of 0 images stays as it is"""
        if not len(labels):
            return images, labels
        for step in self.steps:
            images = step(images)
        return self.mix(images, labels) if self.mix else (images, labels)
