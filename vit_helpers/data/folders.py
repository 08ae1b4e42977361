"""Your own images: a folder of classes, divided into splits by a hash of each image."""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from vit_helpers._files import as_text, shown
from vit_helpers._validate import check_choice, check_int
from vit_helpers.data.cache import ImageCache
from vit_helpers.data.images import check_white
from vit_helpers.data.listing import (
    has_images,
    list_classes,
    list_content,
    subfolders,
    warn_of_rest,
)
from vit_helpers.data.reading import (
    SHORT,
    Files,
    ImageFile,
    Listing,
    check_grays,
    count_files,
    is_said,
    make_splits,
    read_pixels,
)
from vit_helpers.data.splits import SPLITS, Data

SPLIT_NAMES = {  # accepted names of a split's folder, in any case
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
HELD_OUT = 0.15  # fraction of the images for a split that has no folder
MAX_GIB = 4  # of pixels in memory
EXACT = "--split exact of train and shards (in Python: split='exact')"


def folder(
    path: str | Path,
    image_size: int = 64,
    split: str = "hash",
    skip_broken: bool = False,
    cache: bool = False,
    threads: int | None = None,
    white: float | None = None,
) -> Data:
    """Load images of any size and mode, in a folder for each class, into memory, as bytes.

    path       : the folder. It contains the classes, or train/, and test/ and validation/ or val/,
                 which contain them
    image_size : side S of the square: resized so that the shorter side is S, then center-cropped;
                 as RGB
    split      : how to draw a test or validation split that has no folder, 15% each. "hash": by a
                 hash of each image's content, so that no image changes its split when others are
                 added; "exact": 15% of each class
    skip_broken: leave out image files that cannot be read, with a warning that names the first ten
    cache      : keep the pixels in the user's cache folder, 2 GiB at most, so that they are decoded
                 only once
    threads    : how many read at a time; by default one for each CPU, 8 at most
    white      : the value of white in gray images of more than 8 bits, as 4095 for 12 bits; by
                 default 65535 in 16 bits, and see `data.images.to_rgb` for more
    raises     : ValueError or FileNotFoundError, naming the folder or the files, if there are no
                 images, fewer than two classes, broken files, fewer than 16 gray values, a class
                 that a split lacks, or if the folder can be read in two ways

    Exact copies of an image are drawn into the same split. A warning names copies in folders of
    different splits or classes.
    """
    path = Path(path)
    image_size = check_options(image_size, split, white)
    class_names, listing = find_images(path)
    check_memory(count_files(listing), image_size)
    stored = ImageCache(path, image_size) if cache else None
    reading, pixels = read_pixels(listing, image_size, skip_broken, stored, threads, white)
    files = draw_splits(reading.files, listing.keys(), split)
    check_splits(class_names, files, split)
    train, validation, test = make_splits(files, pixels)
    seen, tested = (
        frozenset(file.sha256[:SHORT] for split in splits for file in files[split])
        for splits in (("train", "validation"), ("test",))
    )
    data = Data.from_splits(as_text(path.name), train, validation, test, class_names)
    if not is_said(white, reading.white):
        check_grays(pixels)
    return replace(data, seen=seen, tested=tested, white=reading.white)


def check_options(image_size: int, split: str, white: float | None) -> int:
    """Return the image size, numpy's integers as Python's int.

    The options are those of `folder`.
    raises: ValueError for an option that it does not have; TypeError for an image size that is not
            a whole number
    """
    check_choice("split", split, ("hash", "exact"))
    check_white(white)
    return check_int("image_size", image_size)


def check_memory(count: int, image_size: int) -> None:
    """Raise ValueError if so many square color images do not fit into the limit."""
    size = count * 3 * image_size**2 / 2**30
    if size > MAX_GIB:
        raise ValueError(
            f"{count:,} images of {image_size} x {image_size} pixels need {size:.1f} GiB of memory "
            f"(limit: {MAX_GIB} GiB): choose a smaller image_size, or write them as shards, which "
            "are read as a stream (python -m vit_helpers shards)"
        )


def find_images(path: Path) -> tuple[tuple[str, ...], Listing]:
    """Find the classes of a folder, and the image files of each split that has a folder.

    No file is opened.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"no folder at {shown(path.absolute())}")
    parts = find_parts(path)
    class_names, files = find_classes(parts.pop("train"))
    listing = {"train": files}
    for split, part in parts.items():
        names, listing[split] = find_classes(part)
        if names != class_names:
            raise ValueError(
                f"{part} has the classes {', '.join(names)}, "
                f"but training has {', '.join(class_names)}"
            )
    return class_names, listing


def find_parts(path: Path, needed: str = "train") -> dict[str, Path]:
    """Find the folder of each split; a folder of classes is itself that of the training split.

    A folder with a split's name (`SPLIT_NAMES`) is the split's if it contains folders, of classes;
    if it contains only images, or beside classes a single folder, it is a class.

    needed: a split that may have a folder in place of the training split
    raises: ValueError if the folder can be read in two ways, naming both, or if two folders have
            the name of the same split
    """
    folders = subfolders(path)
    named = [folder for folder in folders if folder.name.lower() in SPLIT_NAMES]
    classes = [folder for folder in folders if folder not in named and has_images(folder)]
    least = 2 if classes else 1  # folders in a split's, which could not have a single class
    divided = [folder for folder in named if len(subfolders(folder)) >= least]
    if not named or (classes and not divided):
        return {"train": path}
    if not divided:
        raise two_ways(path, named, named, "put their images into a folder for each class")
    parts = by_split(named)
    if classes:
        others = ", ".join(shown(folder.name) for folder in classes)
        raise two_ways(path, named, folders, f"move {others} elsewhere")
    if not {parts.get("train"), parts.get(needed)} & {*divided}:
        raise two_ways(path, named, named, f"add a folder named {needed} with the classes")
    warn_of_rest(path, [list_content(folder) for folder in folders if folder not in named])
    return parts


def two_ways(path: Path, splits: list[Path], classes: list[Path], change: str) -> ValueError:
    """Make the error about a folder whose subfolders may be splits or classes.

    change: what to do if they are splits
    """
    split_names = ", ".join(shown(folder.name) for folder in splits)
    class_names = ", ".join(shown(folder.name) for folder in classes)
    return ValueError(
        f"{shown(path)} can be read in two ways: if {split_names} are splits, {change}; "
        f"if {class_names} are classes, rename {split_names}, which are names of splits"
    )


def by_split(folders: Sequence[Path]) -> dict[str, Path]:
    """Sort folders with names of splits; ValueError if two have names of the same split."""
    parts: dict[str, Path] = {}
    for folder in folders:
        split = SPLIT_NAMES[folder.name.lower()]
        if split in parts:
            raise ValueError(
                f"{parts[split]} and {folder} both have a name of the {split} split: "
                "rename one of them"
            )
        parts[split] = folder
    return parts


def find_classes(path: Path) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Find the classes of a folder, and all image files inside, sorted by class and path."""
    folders = subfolders(path)
    if len(folders) < 2:
        present = f"only {shown(folders[0].name)}" if folders else "none"
        raise ValueError(
            f"{shown(path)} needs at least two folders, one for each class, but it has {present}"
        )
    classes = list_classes(path)
    labeled = [(file, label) for label, own in enumerate(classes.values()) for file in own]
    return tuple(classes), labeled


def draw_splits(files: Files, present: Collection[str], how: str) -> Files:
    """Draw the splits that have no folder from the training images.

    present: the splits that have a folder
    how    : "hash" or "exact", see `folder`
    """
    missing = [split for split in ("test", "validation") if split not in present]
    if how == "exact" and not missing:
        warnings.warn(f"{EXACT} has no effect: each split has a folder", stacklevel=3)
    drawn = {**files, "train": list[ImageFile]()}
    exact = draw_exactly(files["train"], missing) if how == "exact" else {}
    for file in files["train"]:
        split = exact.get(file.sha256) or draw_by_hash(file.sha256, missing)
        drawn[split].append(file)
    warn_of_copies(drawn)
    return drawn


def draw_by_hash(sha256: bytes, missing: Sequence[str]) -> str:
    """Draw the split of an image: below 0.15 test, below 0.30 validation, if they are missing."""
    fraction = int.from_bytes(sha256[:8], "big") / 2**64
    split = "train"
    if fraction < HELD_OUT:
        split = "test"
    elif fraction < 2 * HELD_OUT:
        split = "validation"
    return split if split in missing else "train"


def draw_exactly(files: Sequence[ImageFile], missing: Sequence[str]) -> dict[bytes, str]:
    """Draw the split of each sha256: 15% of each class, at least one image, for each missing one.

    Copies of an image in a second class are not drawn again.
    """
    drawn: dict[bytes, str] = {}
    for label in sorted({file.label for file in files}):
        before = len(drawn)
        images = sorted({file.sha256 for file in files if file.label == label} - drawn.keys())
        after = before + len(images)
        share = round(HELD_OUT * after) - round(HELD_OUT * before)  # so that rounding adds up
        share = max(1, share)
        for row, sha256 in enumerate(images):
            part = row // share
            drawn[sha256] = missing[part] if part < len(missing) else "train"
    return drawn


def warn_of_copies(files: Files) -> None:
    """Warn if copies of an image are in two splits or in two classes.

    In two splits, a test image may have been trained on.
    """
    first: dict[bytes, tuple[str, ImageFile]] = {}
    copies: dict[str, list[tuple[Path, Path]]] = {"splits": [], "classes": []}
    for split in SPLITS:
        for file in files[split]:
            other_split, other = first.setdefault(file.sha256, (split, file))
            if split != other_split:
                copies["splits"].append((other.path, file.path))
            if file.label != other.label:
                copies["classes"].append((other.path, file.path))
    for kind, pairs in copies.items():
        if pairs:
            example = " and ".join(map(shown, pairs[0]))
            warnings.warn(
                f"{len(pairs):,} images are copies of images in other {kind}, such as {example}",
                stacklevel=3,
            )


def check_splits(class_names: Sequence[str], files: Files, how: str) -> None:
    """Raise ValueError if a split lacks a class."""
    way_out = f"add images, or draw 15% of each class with {EXACT}"
    if how == "exact":
        way_out = "each class needs at least three different images"
    for split in SPLITS:
        labels = {file.label for file in files[split]}
        lacking = [shown(name) for label, name in enumerate(class_names) if label not in labels]
        if lacking:
            raise ValueError(f"the {split} split has no images of {', '.join(lacking)}: {way_out}")
