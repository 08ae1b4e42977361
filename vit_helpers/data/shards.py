"""Data too large for memory, written as shards: tar files, which stream.py reads.

A shard holds some hundreds of images in WebDataset's layout, 000017.png and 000017.cls side by side: `tar tf` shows what is
inside, and other tools read it. index.json beside the shards says how many images each holds, and what its bytes are.
"""

import hashlib
import io
import json
import math
import tarfile
import tempfile
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import pooch
import torch

from vit_helpers.data.folders import list_parts, read_image
from vit_helpers.data.splits import PARTS, check_std, split_rows

INDEX = "index.json"
MODES = {1: "L", 3: "RGB"}  # channels -> what PIL calls such a picture


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
    with new_folder(Path(folder)) as new:
        entries = write_parts([getattr(data, part) for part in PARTS], lambda image: image, new, per_shard)
        write_index(new, entries, data.name, data.class_names, data.mean, data.std, data.image_size)
    return Path(folder)


def write_shards_of_folder(source, folder, image_size=64, per_shard=1000):
    """The same for a folder of images, a folder for each class, of which one is in memory at a time.

    source, image_size: path and side of the squares; parts, order and pixels are those of `data.folders.folder`, which
                        holds all images in memory and names what it raises
    """
    names, parts = list_parts(source)
    with new_folder(Path(folder)) as new:
        entries = write_parts(parts, partial(read_image, image_size=image_size), new, per_shard)
        samples = (sample for entry in entries["train"] for sample in read_shard(new / entry["file"], 0, entry["images"]))
        mean, std = mean_and_std_of_each(from_png(sample["png"], (3, image_size, image_size)) for sample in samples)
        check_std(source, std)
        write_index(new, entries, Path(source).name, names, mean, std, (image_size, image_size))
    return Path(folder)


@contextmanager
def new_folder(folder):
    """A folder that comes to be as a whole or not at all: what is written to the path given here, beside it, is moved there

    raises: FileExistsError when there is something in the folder
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} is there already and not empty: shards are never written over, choose another folder"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as aside:
        new = Path(aside) / folder.name  # the temporary folder itself is closed to all but its owner
        new.mkdir()
        yield new
        new.rename(folder)


def write_parts(parts, read, folder, per_shard):
    """Write training, validation and test part as shards: what the index says of each, by the name of its part.

    parts: three pairs of n images, or of what `read` makes images (C, H, W) of one by one, and labels (n,)
    """
    if per_shard < 1:
        raise ValueError(f"a shard holds at least 1 image, got per_shard={per_shard}")
    return {name: write_part(*part, read, name, folder, per_shard) for name, part in zip(PARTS, parts, strict=True)}


def write_part(images, labels, read, part, folder, per_shard):
    """Write one part as shards: what the index says of each, a dict with file, images, bytes and sha256"""
    n = len(labels)
    rows = split_rows(n)[0] if part == "train" else torch.arange(n)
    entries = []
    for number, some in enumerate(rows.split(per_shard)):
        path = folder / f"{part}-{number:05d}.tar"
        with tarfile.open(path, "w") as tar:
            for row in some.tolist():
                add(tar, f"{row:06d}.png", to_png(read(images[row])))
                add(tar, f"{row:06d}.cls", str(labels[row].item()).encode())
        entries.append(
            {"file": path.name, "images": len(some), "bytes": path.stat().st_size, "sha256": pooch.file_hash(path)}
        )
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


def mean_and_std_of_each(images):
    """Of each channel, over images that come one at a time, (C, H, W), 0 to 255: two tuples, for pixels from 0 to 1"""
    n, total, squares = 0, 0, 0  # whole numbers: exact
    for image in images:
        pixels = image.flatten(1).long()
        n, total, squares = n + pixels.shape[1], total + pixels.sum(1), squares + pixels.square().sum(1)
    sums = list(zip(total.tolist(), squares.tolist(), strict=True))
    return tuple(t / n / 255 for t, _ in sums), tuple(math.sqrt((n * s - t**2) / (n * (n - 1))) / 255 for t, s in sums)


def fingerprint(index):
    """The sha256 of what an index says, in hexadecimal: a count changed by a broken disk would hide images"""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def write_index(folder, entries, name, class_names, mean, std, image_size):
    """Say in the folder what its shards hold"""
    index = {"name": name, "class_names": class_names, "mean": mean, "std": std, "in_chans": len(mean)}
    index |= {"image_size": image_size, "parts": entries}
    index["sha256"] = fingerprint(index)
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


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
    if thorough and pooch.file_hash(path) != entry["sha256"]:
        return "its bytes have changed since it was written (another sha256 than in the index)"
    return None


def read_shard(path, first, last):
    """Samples first .. last - 1 of a whole shard, as dicts: key, and the bytes of each of its files by their ending"""
    with tarfile.open(path) as tar:
        for key, members in islice(groupby(tar, key=lambda member: member.name.partition(".")[0]), first, last):
            yield {"key": key} | {member.name.partition(".")[2]: tar.extractfile(member).read() for member in members}


def read_sample(sample, class_count, shape):
    """A sample of `read_shard` -> its label, and its picture (C, H, W) of this shape, 0 to 255

    raises: ValueError when a file is missing, or is not what it should be
    """
    if gone := [end for end in ("png", "cls") if end not in sample]:
        raise ValueError(f"there is no {sample['key']}.{gone[0]}")
    return to_label(sample["cls"], class_count), from_png(sample["png"], shape)


def to_label(content, class_count):
    """The bytes of a label -> its number

    raises: ValueError when it is no number, or none of a class
    """
    text = content.decode(errors="replace").strip()
    if not (text.isdecimal() and int(text) < class_count):
        raise ValueError(f"its label is {text[:50]!r}, wanted is a number from 0 to {class_count - 1}")
    return int(text)
