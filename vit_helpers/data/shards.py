"""Data larger than memory, written as shards: tar files, which stream.py reads.

A shard holds images in WebDataset's layout, which other tools can read: 000017.png beside
000017.cls, named by the row in the split. index.json beside the shards records how many images
each has, and its sha256.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pooch
import torch
from PIL import Image
from torch import Tensor

from vit_helpers._files import as_text, new_folder
from vit_helpers._validate import check_choice, check_int, to_2tuple
from vit_helpers.data.folders import check_options, check_splits, draw_splits, find_images
from vit_helpers.data.images import GrayRange
from vit_helpers.data.reading import (
    check_broken,
    check_grays,
    count_files,
    is_said,
    map_files,
    read_files,
    read_image,
)
from vit_helpers.data.splits import (
    SPLITS,
    Data,
    check_labels,
    check_std,
    count_values,
    mean_and_std_of_counts,
    split_rows,
)

INDEX = "index.json"
MODES = {1: "L", 3: "RGB"}  # channels -> PIL's mode

Entry = dict[str, Any]  # the index's record of a shard: file, images, bytes, sha256


class BrokenShardError(ValueError):
    """A shard or a sample in it is not what the index says; the message names both"""


class Sample(NamedTuple):
    """An image as it is in a shard.

    key  : its number in the split, as in 000017
    files: their bytes by extension, png and cls
    shard: for messages
    error: what is wrong, where it could not be read; then there are no key and no files
    """

    key: str
    files: dict[str, bytes]
    shard: str = ""
    error: str | None = None

    @property
    def name(self) -> str:
        """The sample, or all that is known of it, for messages"""
        return f"sample {self.key} of {self.shard}" if self.key else self.shard


def write_shards(data: Data, folder: str | Path, per_shard: int = 1000) -> Path:
    """Write a data set as shards, train-00000.tar and so on, with an index: whole or not at all.

    data     : pixels become 8-bit PNGs, so each value changes by at most 1/510; boxes are not
               stored
    folder   : must be new or empty; its path is returned
    per_shard: images in a shard; the last of a split may have fewer. For photos choose about
               100 MB per shard
    raises   : FileExistsError if the folder is not empty; ValueError for images that cannot be
               8-bit PNGs, and for labels that are not the number of a class

    Training images are written in random order, the same each time, so that no shard has images of
    a single class.
    """
    per_shard = check_int("per_shard", per_shard)
    with new_folder(Path(folder)) as new:
        entries = {}
        for name in SPLITS:
            split = data.get_split(name)
            check_labels(f"{data.name}: the {name} split", split.labels, len(data.class_names))
            rows = order_rows(name, len(split))
            pngs = map_files(to_png, [split.pixels[row] for row in rows], f"writing {name}")
            labels = split.labels[rows].tolist()
            entries[name] = write_split(name, rows, labels, pngs, new, per_shard)
        write_index(
            new,
            entries,
            name=data.name,
            image_size=data.image_size,
            class_names=data.class_names,
            mean=data.mean,
            std=data.std,
            white=data.white,
            class_counts=data.class_counts,
        )
    return Path(folder)


def write_shards_of_folder(
    source: str | Path,
    folder: str | Path,
    image_size: int = 64,
    per_shard: int = 1000,
    split: str = "hash",
    skip_broken: bool = False,
    white: float | None = None,
) -> Path:
    """Write a folder of images, with a folder for each class, with only a few in memory at a time.

    Splits, pixels, the other options and errors are those of `data.folders.folder`, which keeps all
    images in memory. Each file is read once. Its image waits as a PNG in a temporary file, as large
    as the shards, until all are read: their splits and order depend on all of them.
    """
    per_shard = check_int("per_shard", per_shard)
    image_size = check_options(image_size, split, white)
    source = Path(source)
    class_names, listing = find_images(source)

    def read(path: Path, white: float | None) -> tuple[bytes, bytes | GrayRange]:
        sha256, image = read_image(path, image_size, white)
        return sha256, image if isinstance(image, GrayRange) else to_png(torch.from_numpy(image))

    with new_folder(Path(folder)) as new, tempfile.TemporaryFile(dir=new.parent) as waiting:
        starts = [0]  # of each image in the temporary file, and the end of the last one

        def store(row: int, png: bytes) -> None:
            starts.append(starts[row] + waiting.write(png))

        def fetch(row: int) -> bytes:
            waiting.seek(starts[row])
            return waiting.read(starts[row + 1] - starts[row])

        reading = read_files(listing, read, store, white)
        check_broken(reading.errors, count_files(listing), skip_broken)
        files = draw_splits(reading.files, listing.keys(), split)
        check_splits(class_names, files, split)
        entries = {}
        for name, own in files.items():
            rows = order_rows(name, len(own))
            pngs = map(fetch, [own[row].row for row in rows])
            labels = [own[row].label for row in rows]
            entries[name] = write_split(name, rows, labels, pngs, new, per_shard)
        shape = (3, image_size, image_size)
        mean, std = measure_shards(new, entries["train"], len(class_names), shape)
        check_std(str(source), std)
        if not is_said(white, reading.white):
            check_grays(
                np.array(Image.open(io.BytesIO(fetch(row)))) for row in range(len(starts) - 1)
            )
        labels = [file.label for own in files.values() for file in own]
        write_index(
            new,
            entries,
            name=as_text(source.name),
            image_size=(image_size, image_size),
            class_names=class_names,
            mean=mean,
            std=std,
            white=reading.white,
            class_counts=torch.tensor(labels).bincount().tolist(),
        )
    return Path(folder)


def order_rows(split: str, n: int) -> list[int]:
    """Return the order in which n images of a split are written."""
    return split_rows(n)[0].tolist() if split == "train" else list(range(n))


def write_split(
    split: str,
    rows: Sequence[int],
    labels: Sequence[int],
    pngs: Iterable[bytes | Exception],
    folder: Path,
    per_shard: int,
) -> list[Entry]:
    """Write the images of a split as shards, and return their entries in the index.

    rows: the number of each image in the split;  labels, pngs: of the images, in the same order
    """
    entries = []
    images = iter(pngs)
    for number, start in enumerate(range(0, len(rows), per_shard)):
        path = folder / f"{split}-{number:05d}.tar"
        end = min(start + per_shard, len(rows))
        with tarfile.open(path, "w") as tar:
            for row, label in zip(rows[start:end], labels[start:end], strict=True):
                png = next(images)
                if isinstance(png, Exception):
                    raise png
                add_file(tar, f"{row:06d}.png", png)
                add_file(tar, f"{row:06d}.cls", str(label).encode())
        entry = {"file": path.name, "images": end - start, "bytes": path.stat().st_size}
        entries.append({**entry, "sha256": pooch.file_hash(path)})
    return entries


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file of this content to a tar file."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def measure_shards(
    folder: Path, entries: Iterable[Entry], class_count: int, shape: tuple[int, int, int]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute `mean_and_std` of the images in shards.  shape: (C, H, W) of each"""
    counts = torch.zeros(shape[0], 256, dtype=torch.float64)
    for entry in entries:
        for sample in read_shard(folder / entry["file"], 0, entry["images"]):
            _, image = decode_sample(sample, class_count, shape)
            counts += count_values(image[None])
    return mean_and_std_of_counts(counts)


def to_png(image: Tensor) -> bytes:
    """Encode an image as an 8-bit PNG.

    image : (C, H, W), C = 1 or 3, from 0 to 1, or uint8
    raises: ValueError for anything else
    """
    if len(image) not in MODES:
        raise ValueError(f"shards hold images of 1 or 3 channels, got {len(image)}")
    if image.dtype != torch.uint8:
        low, high = image.min().item(), image.max().item()
        if not (low >= 0 and high <= 1):  # false for NaN too
            raise ValueError(
                f"shards hold pixels from 0 to 1, got {low:.3g} to {high:.3g}: "
                "write them before normalizing"
            )
        image = (image * 255).round().to(torch.uint8)
    pixels = image.cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(file, "png")
    return file.getvalue()


def fingerprint(index: object) -> str:
    """Compute the sha256 of an index, in hexadecimal: a count changed by a disk would hide images.

    index: what JSON can hold
    """
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def write_index(
    folder: Path,
    entries: dict[str, list[Entry]],
    *,
    name: str,
    image_size: tuple[int, int],
    class_names: Sequence[str],
    class_counts: Sequence[int],
    mean: Sequence[float],
    std: Sequence[float],
    white: float | None,
) -> None:
    """Record in index.json what the shards of a folder hold."""
    index: dict[str, object] = {
        "name": name,
        "class_names": class_names,
        "mean": mean,
        "std": std,
        "white": white,
        "class_counts": class_counts,
        "in_chans": len(mean),
        "image_size": image_size,
        "parts": entries,
    }
    index["sha256"] = fingerprint(index)
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8", newline="\n")


def read_index(folder: str | Path) -> dict[str, Any]:
    """Read the index that `write_shards` wrote.

    raises: FileNotFoundError if there is none; ValueError if it has changed since, or is not what
            `write_index` writes
    """
    path = Path(folder) / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"no {INDEX} in {folder}: a folder of shards is made by `python -m vit_helpers shards`"
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        written = index.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is cut short, or not an index of shards: {error!r}") from error
    if fingerprint(index) != written:
        raise ValueError(
            f"{path} is damaged, or was edited by hand: its sha256 is not the one it records"
        )
    try:
        check_index(index)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe shards: {error!r}") from error
    return index


def check_index(index: dict[str, Any]) -> None:
    """Raise one of several kinds of errors if an index is not of the form that is written."""
    sides, names = index["image_size"], index["class_names"]
    to_2tuple(tuple(sides))
    check_choice("number of channels", index["in_chans"], MODES)
    if not (isinstance(index["name"], str) and all(isinstance(name, str) for name in names)):
        raise ValueError("a name is not a text")
    if len(index["class_counts"]) != len(names):
        raise ValueError(f"{len(index['class_counts'])} counts of {len(names)} classes")
    for values in (index["mean"], index["std"]):
        if len(torch.tensor(values, dtype=torch.float32)) != index["in_chans"]:
            raise ValueError(f"{values} are not numbers for {index['in_chans']} channels")
    check_std("the index", tuple(index["std"]))
    for split in SPLITS:
        for entry in index["parts"][split]:
            check_int("images", entry["images"]), check_int("bytes", entry["bytes"])
            if Path(entry["file"]).name != entry["file"] or not isinstance(entry["sha256"], str):
                raise ValueError(f"{entry['file']!r} is not a file of this folder")


def find_damage(path: Path, entry: Entry, thorough: bool) -> str | None:
    """Say what is wrong with a shard, None if nothing is.

    thorough: compare its sha256, not only its size
    """
    if not path.is_file():
        return "there is no such file"
    size = path.stat().st_size
    if size != entry["bytes"]:
        return f"it has {size:,} bytes, the index says {entry['bytes']:,}"
    if thorough and pooch.file_hash(path) != entry["sha256"]:
        return "its bytes have changed since it was written (its sha256 is not the index's)"
    return None


def read_shard(path: Path, first: int, last: int) -> Iterator[Sample]:
    """Read samples first .. last - 1 of an intact shard."""
    with tarfile.open(path, "r:") as tar:  # no compressed one, which could be of any size
        samples = groupby(tar, key=lambda member: member.name.partition(".")[0])
        for key, members in islice(samples, first, last):
            files: dict[str, bytes] = {}
            for member in members:
                if member.issparse():  # which may claim any number of zeros
                    raise tarfile.ReadError(f"{member.name} is a sparse file")
                file = tar.extractfile(member)
                if file:
                    files[member.name.partition(".")[2]] = file.read()
            yield Sample(key, files)


def decode_sample(
    sample: Sample, class_count: int, shape: tuple[int, int, int]
) -> tuple[int, Tensor]:
    """Decode a sample: its label and its image (C, H, W), 0 to 255.

    shape : (C, H, W), as the index says
    raises: ValueError if a file is missing or wrong
    """
    for extension in ("png", "cls"):
        if extension not in sample.files:
            raise ValueError(f"there is no {sample.key}.{extension}")
    label = sample.files["cls"].decode(errors="replace").strip()
    if not (label.isdecimal() and int(label) < class_count):
        raise ValueError(
            f"its label is {label[:50]!r}, expected a number from 0 to {class_count - 1}"
        )
    try:
        with Image.open(io.BytesIO(sample.files["png"]), formats=["png"]) as picture:
            mode, size = picture.mode, (len(picture.getbands()), picture.height, picture.width)
            # others are not decoded, as they may have any number of pixels
            pixels = np.array(picture) if size == shape else np.empty(0)
    except Exception as error:  # PIL raises many kinds: OSError, SyntaxError, struct.error, ...
        raise ValueError(f"its image cannot be decoded: {error}") from error
    if size != shape or mode != MODES[shape[0]]:
        raise ValueError(f"its image has the shape {size} and mode {mode}, the index says {shape}")
    return int(label), torch.from_numpy(np.atleast_3d(pixels)).permute(2, 0, 1)
