"""Data larger than memory, written as shards: tar files, which stream.py reads.

A shard holds images in WebDataset's layout, which other tools can read: 000017.png beside 000017.cls, named by the row in
the split. index.json beside the shards records how many images each has, and its sha256.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vit_helpers._files import as_text, new_folder
from vit_helpers._validate import check_int
from vit_helpers.data.folders import check_splits, draw_splits, find_images
from vit_helpers.data.reading import ImageFile, check_broken, map_files, read_pixels
from vit_helpers.data.splits import (
    SPLITS,
    Data,
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


def write_shards(data: Data, folder: str | Path, per_shard: int = 1000) -> Path:
    """Write the three splits of a data set as shards, train-00000.tar and so on, with an index: completely or not at all.

    data     : pixels become 8-bit PNGs, so each value changes by at most 1/510; boxes are not stored
    folder   : must be new or empty; its path is returned
    per_shard: images in a shard; the last of a split may have fewer. For photos choose about 100 MB per shard
    raises   : FileExistsError if the folder is not empty; ValueError for images that cannot be 8-bit PNGs

    Training images are written in random order, the same each time, so that no shard has images of a single class.
    """
    with new_folder(Path(folder)) as new:
        pairs = [
            list(zip((one := data.get_split(split)).pixels, one.labels.tolist(), strict=True))
            for split in SPLITS
        ]
        entries, _, broken = write_splits(pairs, to_png, new, per_shard)
        if broken:
            raise broken[0]
        fields = {name: getattr(data, name) for name in ("name", "class_names", "mean", "std")}
        write_index(new, entries, data.image_size, class_counts=data.class_counts, **fields)
    return Path(folder)


def write_shards_of_folder(
    source: str | Path, folder: str | Path, image_size: int = 64, per_shard: int = 1000, split: str = "hash",
    skip_broken: bool = False,
) -> Path:  # fmt: skip
    """The same for a folder of images, with a folder for each class, keeping only a few images in memory at a time.

    Splits, pixels, the other options and errors are those of `data.folders.folder`, which keeps all images in memory.
    """
    source = Path(source)
    names, found = find_images(source)
    with new_folder(Path(folder)) as new:
        files, broken = draw_splits(found, split)
        pairs = [[(file, file.label) for file in files[name]] for name in SPLITS]
        check_splits(names, [[label for _, label in some] for some in pairs], split)

        def read(file: ImageFile) -> bytes:
            return to_png(torch.from_numpy(read_pixels(file, image_size)))

        entries, labels, errors = write_splits(pairs, read, new, per_shard)
        check_broken([*broken, *errors], sum(map(len, found.values())), skip_broken)
        check_splits(names, labels, split)
        values = torch.zeros(3, 256, dtype=torch.float64)
        for entry in entries["train"]:
            for sample in read_shard(new / entry["file"], 0, entry["images"]):
                values += count_values(
                    decode_sample(sample, len(names), (3, image_size, image_size))[1][None]
                )
        mean, std = mean_and_std_of_counts(values)
        check_std(str(source), std)
        counts = torch.tensor([label for some in labels for label in some]).bincount().tolist()
        fields = {
            "name": as_text(source.name),
            "class_names": names,
            "mean": mean,
            "std": std,
            "class_counts": counts,
        }
        write_index(new, entries, (image_size, image_size), **fields)
    return Path(folder)


def write_splits(
    splits: Sequence[Sequence[tuple[Any, int]]],
    read: Callable[[Any], bytes],
    folder: Path,
    per_shard: int,
) -> tuple[dict[str, list[Entry]], list[list[int]], list[Exception]]:
    """Write three splits of pairs (what `read` turns into a PNG, label); where it raises ValueError, the pair is left out

    returns: the index's entries; the labels of the images of each split; the errors
    """
    import pooch

    entries: dict[str, list[Entry]] = {name: [] for name in SPLITS}
    labels, broken = [list[int]() for _ in SPLITS], list[Exception]()
    for name, pairs, written in zip(SPLITS, splits, labels, strict=True):
        order = split_rows(len(pairs))[0] if name == "train" else torch.arange(len(pairs))
        files = map_files(read, [pairs[row][0] for row in order.tolist()], f"writing {name}")
        for number, rows in enumerate(order.split(check_int("per_shard", per_shard))):
            path, before = folder / f"{name}-{number:05d}.tar", len(written)
            with tarfile.open(path, "w") as tar:
                for row, png in zip(rows.tolist(), files, strict=False):
                    if isinstance(png, Exception):
                        broken.append(png)
                        continue
                    written.append(label := pairs[row][1])
                    for extension, content in {"png": png, "cls": str(label).encode()}.items():
                        member = tarfile.TarInfo(f"{row:06d}.{extension}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
            about = {
                "images": len(written) - before,
                "bytes": path.stat().st_size,
                "sha256": pooch.file_hash(path),
            }
            entries[name].append({"file": path.name, **about})
    return entries, labels, broken


def to_png(image: Tensor) -> bytes:
    """(C, H, W), C = 1 or 3, from 0 to 1, or uint8 -> the bytes of an 8-bit PNG; ValueError for anything else"""
    from torchvision.transforms.v2 import functional as TF

    if len(image) not in MODES:
        raise ValueError(f"shards hold images of 1 or 3 channels, got {len(image)}")
    if image.dtype != torch.uint8:
        low, high = image.min().item(), image.max().item()
        if not (low >= 0 and high <= 1):  # false for NaN too
            raise ValueError(
                f"shards hold pixels from 0 to 1, got {low:.3g} to {high:.3g}: write them before normalizing"
            )
        image = (image * 255).round().to(torch.uint8)
    file = io.BytesIO()
    TF.to_pil_image(image.cpu()).save(file, "png")
    return file.getvalue()


def fingerprint(index: Any) -> str:
    """The sha256 of an index, in hexadecimal: a count changed by a broken disk would hide images"""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def write_index(
    folder: Path, entries: dict[str, list[Entry]], image_size: tuple[int, int], **fields: Any
) -> None:
    """Record in index.json what the shards of a folder hold; fields: name, class_names, mean and std"""
    index = fields | {"in_chans": len(fields["mean"]), "image_size": image_size, "parts": entries}
    index["sha256"] = fingerprint(index)
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def read_index(folder: str | Path) -> dict[str, Any]:
    """The index that `write_shards` wrote; FileNotFoundError if there is none, ValueError if it has changed since"""
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
    return index


def find_damage(path: Path, entry: Entry, thorough: bool) -> str | None:
    """What is wrong with a shard, or None.  thorough: compare its sha256, not only its size"""
    import pooch

    if not path.is_file():
        return "there is no such file"
    if (size := path.stat().st_size) != entry["bytes"]:
        return f"it has {size:,} bytes, the index says {entry['bytes']:,}"
    if thorough and pooch.file_hash(path) != entry["sha256"]:
        return "its bytes have changed since it was written (its sha256 is not the index's)"
    return None


def read_shard(path: Path, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Samples first .. last - 1 of an intact shard, as dicts: key, and the bytes of each of its files by extension"""
    with tarfile.open(path) as tar:
        for key, members in islice(
            groupby(tar, key=lambda member: member.name.partition(".")[0]), first, last
        ):
            files = {member.name.partition(".")[2]: tar.extractfile(member) for member in members}
            yield {"key": key} | {
                extension: file.read() for extension, file in files.items() if file
            }


def decode_sample(
    sample: dict[str, Any], class_count: int, shape: tuple[int, ...]
) -> tuple[int, Tensor]:
    """A sample of `read_shard` -> its label and its image (C, H, W), 0 to 255; ValueError if a file is missing or wrong"""
    from torchvision.transforms.v2 import functional as TF

    if missing := [extension for extension in ("png", "cls") if extension not in sample]:
        raise ValueError(f"there is no {sample['key']}.{missing[0]}")
    text = sample["cls"].decode(errors="replace").strip()
    if not (text.isdecimal() and int(text) < class_count):
        raise ValueError(
            f"its label is {text[:50]!r}, expected a number from 0 to {class_count - 1}"
        )
    try:
        with Image.open(io.BytesIO(sample["png"])) as picture:
            image, mode = TF.pil_to_tensor(picture), picture.mode
    except (
        Exception
    ) as error:  # PIL raises many kinds here: OSError, SyntaxError, ValueError, struct.error, ...
        raise ValueError(f"its image cannot be decoded: {error}") from error
    if tuple(image.shape) != shape or mode != MODES[shape[0]]:
        raise ValueError(
            f"its image has the shape {tuple(image.shape)} and mode {mode}, the index says {shape}"
        )
    return int(text), image
