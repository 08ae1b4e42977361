"""Your own images: a folder with a folder for each class, divided into splits by a hash of each image."""

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NoReturn

from vit_helpers._files import as_text, shown
from vit_helpers._validate import check_choice, check_int
from vit_helpers.data.images import IMAGE_ENDINGS
from vit_helpers.data.images import open_picture as open_picture
from vit_helpers.data.images import to_rgb as to_rgb
from vit_helpers.data.reading import (
    SHORT,
    ImageFile,
    cache_path,
    find_sha256,
    map_files,
    read_splits,
)
from vit_helpers.data.splits import SPLITS, Data

PARTS = {  # accepted names of a split's folder, in any case
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
HELD_OUT = 0.15  # fraction of the images for a split that has no folder
OTHER_IMAGES = {
    ".heic",
    ".heif",
    ".avif",
    ".jxl",
    ".svg",
    ".dng",
    ".cr2",
    ".nef",
    ".arw",
}  # which nothing here reads
MAX_BYTES = 4 * 2**30  # in memory

Found = dict[
    str, list[tuple[Path, int]]
]  # the image files of each split that has a folder, each with its label
Files = dict[str, list[ImageFile]]  # those of all three splits


def folder(
    path: str | Path, image_size: int = 64, split: str = "hash", skip_broken: bool = False, cache: bool = False,
    threads: int | None = None,
) -> Data:  # fmt: skip
    """Images of any size and mode, in a folder for each class, as `Data` that keeps them in memory as bytes.

    path       : the folder. It contains the classes, or train/, and test/ and validation/ or val/, which contain them
    image_size : side S of the square: resized so that the shorter side is S, then center-cropped; as RGB
    split      : how to draw a test or validation split that has no folder, 15% each. "hash": by a hash of each image's
                 content, so that no image changes its split when others are added; "exact": 15% of each class
    skip_broken: leave out image files that cannot be read, with a warning that names the first ten
    cache      : keep the pixels in the user's cache folder, 2 GiB at most, so that they are decoded only once
    threads    : how many read at a time; by default one for each CPU, 8 at most
    raises     : ValueError or FileNotFoundError, naming the folder or the files, if there are no images, fewer than
                 two classes, broken files, or a class that a split lacks

    Exact copies of an image are drawn into the same split. A warning names copies in folders of different splits or classes.
    """
    path = Path(path)
    check_choice("split", split, ("hash", "exact"))
    names, found = find_images(path)
    count = sum(map(len, found.values()))
    if (size := count * 3 * check_int("image_size", image_size) ** 2) > MAX_BYTES:
        raise ValueError(
            f"{count:,} images of {image_size} x {image_size} pixels need {size / 2**30:.1f} GiB of memory (limit: 4 GiB): "
            "choose a smaller image_size, or write them as shards, which are read as a stream (python -m vit_helpers shards)"
        )
    files, broken = draw_splits(found, split, threads)
    kept = cache_path(path, image_size) if cache else None
    train, validation, test = read_splits(
        list(files.values()), image_size, broken, skip_broken, kept, threads
    )
    check_splits(names, [one.labels.tolist() for one in (train, validation, test)], split)
    seen = frozenset(file.sha256[:SHORT] for file in files["train"] + files["validation"])
    return replace(Data.from_splits(as_text(path.name), train, validation, test, names), seen=seen)


def find_images(path: Path) -> tuple[tuple[str, ...], Found]:
    """The class names of a folder, and the image files of each split that has a folder; no file is opened"""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder at {shown(path)}")
    parts = find_parts(path)
    names, files = find_classes(parts.pop("train"))
    found = {"train": files}
    for split, part in parts.items():
        others, found[split] = find_classes(part)
        if others != names:
            raise ValueError(
                f"{part} has the classes {', '.join(others)}, but training has {', '.join(names)}"
            )
    return names, found


def find_parts(path: Path, needed: str = "train") -> dict[str, Path]:
    """The folder of each split that has one; a folder of classes is itself the folder of the training split.

    A class may be called "train": its folder contains images, while that of a split contains the same folders as others.
    needed: the split that must have a folder; without one, another than "train" leads to no folders at all
    raises: ValueError if two folders have names of the same split, or none that of the training split
    """
    inside = subfolders(path)
    named = {one: PARTS[one.name.lower()] for one in inside if one.name.lower() in PARTS}
    classes = [one.name for one in inside if one not in named]
    within = {one: {x.name for x in subfolders(one)} for one in named if subfolders(one)}
    alike = len(within) > 1 and set.intersection(*within.values())
    divided = needed in [named[one] for one in within] and (
        alike or not all(map(count_images, within))
    )
    if needed in named.values() and (divided or not classes):
        for one, two in combinations(named, 2):
            if named[one] == named[two]:
                raise ValueError(
                    f"{one} and {two} both have a name of the {named[one]} split: rename one of them"
                )
        if classes:
            unused, part = (
                ", ".join(map(shown, classes)),
                "training" if needed == "train" else needed,
            )
            warnings.warn(
                f"{shown(path)} has a folder for the {part} split, so {unused} beside it is ignored",
                stacklevel=2,
            )
        return {split: one for one, split in named.items()}
    if needed != "train":
        return {}
    if alone := [one.name for one in named if not classes or within.get(one, set()) & set(classes)]:
        raise ValueError(
            f"{shown(path)} has {', '.join(alone)}, but no folder named train with the classes to train on"
        )
    return {"train": path}


def subfolders(path: Path) -> list[Path]:
    """The folders in a folder that are not hidden, by name"""
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))


def is_image_name(name: str) -> bool:
    """Whether a file of this name is taken for an image, by its ending"""
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def count_images(path: Path) -> int:
    """How many image files are in a folder itself"""
    return sum(is_image_name(one.name) and not one.is_dir() for one in path.iterdir())


def find_classes(path: Path) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """The class names of a folder of classes, and all image files inside, sorted by class and path"""
    classes = subfolders(path)
    if len(classes) < 2:
        found = f"only {classes[0].name}" if classes else "none"
        raise ValueError(
            f"{shown(path)} needs at least two folders, one for each class, but it has {found}"
        )
    if stray := count_images(path):
        warnings.warn(
            f"{stray:,} images in {shown(path)} itself are in none of its classes and are left out",
            stacklevel=2,
        )
    files = [find_files(one) for one in classes]
    if empty := ", ".join(
        shown(one.name) for one, some in zip(classes, files, strict=True) if not some
    ):
        raise ValueError(
            f"no images in {empty} of {shown(path)}; image files end with {', '.join(IMAGE_ENDINGS)}"
        )
    return tuple(as_text(one.name) for one in classes), [
        (file, k) for k, some in enumerate(files) for file in some
    ]


def find_files(path: Path) -> list[Path]:
    """All image files under a folder, sorted; ValueError if a folder inside cannot be read"""

    def refuse(error: OSError) -> NoReturn:
        raise ValueError(f"{shown(error.filename)} cannot be read: {error.strerror}") from error

    files, others = [], Counter[str]()
    for root, folders, names in os.walk(path, onerror=refuse):
        files += [Path(root, name) for name in names if is_image_name(name)]
        others.update(
            end
            for name in names
            if (end := Path(name).suffix.lower()) in OTHER_IMAGES and name[0] != "."
        )
        for name in filter(is_image_name, folders):
            warnings.warn(f"{shown(Path(root, name))} is a folder, not an image", stacklevel=2)
    for end, count in others.items():
        what = f"left out in {shown(path)}: {count:,} with the ending {end}, which is not read"
        warnings.warn(f"{what}; convert them to JPEG or PNG", stacklevel=2)
    return sorted(files)


def draw_splits(
    found: Found, how: str, threads: int | None = None
) -> tuple[Files, list[Exception]]:
    """All three splits, with those that have no folder drawn from the training images; and what is wrong with other files"""
    files: Files = {split: [] for split in SPLITS}
    broken: list[Exception] = []
    every = [(split, *file) for split in SPLITS for file in found.get(split, ())]
    sums = map_files(find_sha256, [path for _, path, _ in every], "comparing", threads)
    for (split, path, label), sha256 in zip(every, sums, strict=True):
        if isinstance(sha256, Exception):
            broken.append(sha256)
        else:
            files[split].append(ImageFile(path, label, sha256))
    train, files["train"] = files["train"], []
    missing = [split for split in ("test", "validation") if split not in found]
    exact = draw_exactly(train, missing) if how == "exact" else {}
    for file in train:
        files[exact.get(file.sha256) or draw_by_hash(file.sha256, missing)].append(file)
    warn_of_copies(files)
    return files, broken


def draw_by_hash(sha256: bytes, missing: Sequence[str]) -> str:
    """The split of an image: below 0.15 test, below 0.30 validation, where these two are missing"""
    place = int.from_bytes(sha256[:8], "big") / 2**64
    split = "test" if place < HELD_OUT else "validation" if place < 2 * HELD_OUT else "train"
    return split if split in missing else "train"


def draw_exactly(files: Sequence[ImageFile], missing: Sequence[str]) -> dict[bytes, str]:
    """The split of each sha256: of each class 15%, but at least one image, for each split that is missing"""
    drawn: dict[bytes, str] = {}
    for label in sorted({file.label for file in files}):
        before = len(drawn)
        images = sorted({file.sha256 for file in files if file.label == label} - drawn.keys())
        share = max(
            1, round(HELD_OUT * (before + len(images))) - round(HELD_OUT * before)
        )  # so that rounding adds up
        for row, sha256 in enumerate(images):
            drawn[sha256] = missing[row // share] if row // share < len(missing) else "train"
    return drawn


def warn_of_copies(files: Files) -> None:
    """Warn if copies of an image are in two splits, so that a test image may have been trained on, or in two classes"""
    every = [(split, file) for split, some in files.items() for file in some]
    first = {file.sha256: (split, file) for split, file in reversed(every)}
    copies: dict[str, list[tuple[Path, Path]]] = {"splits": [], "classes": []}
    for split, file in every:
        other, one = first[file.sha256]
        copies["splits"] += [(one.path, file.path)] * (split != other)
        copies["classes"] += [(one.path, file.path)] * (file.label != one.label)
    for what, pairs in copies.items():
        if pairs:
            example = " and ".join(map(shown, pairs[0]))
            warnings.warn(
                f"{len(pairs):,} images are copies of images in other {what}, such as {example}",
                stacklevel=2,
            )


def check_splits(names: Sequence[str], labels: Sequence[Sequence[int]], how: str) -> None:
    """Raise ValueError if a split lacks a class.  labels: those of the images of each split"""
    for split, some in zip(SPLITS, labels, strict=True):
        if empty := ", ".join(shown(name) for label, name in enumerate(names) if label not in some):
            way_out = "add images, or draw 15% of each class with split='exact' (train and shards: --split exact)"
            way_out = (
                "each class needs at least three different images" if how == "exact" else way_out
            )
            raise ValueError(f"the {split} split has no images of {empty}: {way_out}")
