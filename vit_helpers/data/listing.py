"""Which files of a folder are images: all of them are found, and what is left out is said."""

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NoReturn

from vit_helpers._files import as_text, shown
from vit_helpers.data.images import IMAGE_ENDINGS

ENDINGS_SHOWN = 10  # of files that are left out, in a message
NO_ENDING = "without an ending"
CONVERT = "convert images among them to JPEG or PNG"


@dataclass
class Content:
    """What is in a folder, at any depth.

    images  : its image files, sorted by path
    left_out: the number of other visible files, by ending
    folders : the folders inside
    links   : links inside to folders that are read already, or that contain this one
    """

    images: list[Path] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    folders: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)

    def add(self, other: "Content") -> None:
        """Count what is in another folder, too."""
        self.images += other.images
        self.left_out += other.left_out
        self.folders += other.folders
        self.links += other.links


def subfolders(path: Path) -> list[Path]:
    """List the folders in a folder that are not hidden, by name."""
    inside = [
        entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    ]
    return sorted(inside, key=parts_of)


def parts_of(path: PurePath) -> tuple[str, ...]:
    """Return by what paths are sorted, so that classes have the same numbers on every system.

    Paths themselves are sorted on Windows as if all letters were small.

    >>> from pathlib import PureWindowsPath
    >>> [path.name for path in sorted(map(PureWindowsPath, ["b", "a", "C"]), key=parts_of)]
    ['C', 'a', 'b']
    """
    return path.parts


def is_image_name(name: str) -> bool:
    """Say whether a file of this name is taken for an image, by its ending."""
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def ending(name: str) -> str:
    """Return the ending of a file's name in lower case, for messages."""
    return Path(name).suffix.lower() or NO_ENDING


def identity(path: Path) -> tuple[int, int]:
    """Return what tells a folder from all others, whatever links lead to it."""
    status = path.stat()
    return status.st_dev, status.st_ino


def identities_above(path: Path) -> set[tuple[int, int]]:
    """Return the identities of the folders that a folder is in, by its own path and by links."""
    return {identity(parent) for parent in (*path.absolute().parents, *path.resolve().parents)}


def list_content(path: Path) -> Content:
    """List what is in a folder, at any depth.

    Links are followed, but no folder is read twice. What is hidden is passed over.
    raises: ValueError if a folder inside cannot be read
    """

    def refuse(error: OSError) -> NoReturn:
        raise ValueError(f"{shown(error.filename)} cannot be read: {error.strerror}") from error

    content = Content()
    read = identities_above(path) | {identity(path)}
    for root, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        inside = [Path(root, name) for name in sorted(folders) if not name.startswith(".")]
        folders.clear()
        # links last, so that a folder is read where it is, and not through a link beside it
        for folder in sorted(inside, key=Path.is_symlink):
            if identity(folder) in read:
                content.links.append(folder)
                continue
            read.add(identity(folder))
            folders.append(folder.name)
            content.folders.append(folder)
        content.images += [Path(root, name) for name in names if is_image_name(name)]
        content.left_out += count_others(names)
    content.images.sort(key=parts_of)
    return content


def count_others(names: Iterable[str]) -> Counter[str]:
    """Count the names of visible files that are not taken for images, by their endings."""
    visible = [name for name in names if not name.startswith(".")]
    return Counter(ending(name) for name in visible if not is_image_name(name))


def has_images(path: Path) -> bool:
    """Say whether there are image files in a folder, at any depth."""
    return bool(list_content(path).images)


def warn_of_left_out(path: Path, content: Content) -> None:
    """Warn of what is in a folder and not read, if there is anything: files by their endings."""
    for folder in content.folders:
        if is_image_name(folder.name):
            warnings.warn(f"{shown(folder)} is a folder, not an image", stacklevel=3)
    for link in content.links:
        warnings.warn(
            f"{shown(link)} is left out: it is a link to {shown(link.resolve())}, "
            "which is read already or contains it",
            stacklevel=3,
        )
    if content.left_out:
        warnings.warn(
            f"left out in {shown(path)}, because such files are not read: "
            f"{describe_endings(content.left_out)}; {CONVERT}",
            stacklevel=3,
        )


def describe_endings(left_out: Counter[str]) -> str:
    """List how many files have which ending, those of the most first."""
    counts = [f"{count:,} {ending}" for ending, count in left_out.most_common()]
    if len(counts) > ENDINGS_SHOWN:
        counts[ENDINGS_SHOWN:] = [f"files with {len(counts) - ENDINGS_SHOWN:,} other endings"]
    return ", ".join(map(shown, counts))


def no_images(path: Path, left_out: Counter[str], what_else: str = "") -> ValueError:
    """Make the error about a folder without images.

    left_out : the files that are there
    what_else: what can be done if there are none
    """
    if left_out:
        what_else = f", but {describe_endings(left_out)}: such files are not read; {CONVERT}"
    return ValueError(f"no images in {shown(path)}{what_else}")


def find_files(path: Path) -> list[Path]:
    """Find all image files under a folder, sorted; warn of other files.

    raises: ValueError if there are none
    """
    content = list_content(path)
    if not content.images:
        raise no_images(path, content.left_out)
    warn_of_left_out(path, content)
    return content.images


def warn_of_rest(path: Path, folders: Iterable[Content]) -> None:
    """Warn of what is not read in a folder of classes or splits.

    folders: the contents of those inside; what is in the folder itself is added
    """
    names = [entry.name for entry in path.iterdir() if not entry.is_dir()]
    whole = Content(left_out=count_others(names))
    for content in folders:
        whole.add(content)
    warn_of_left_out(path, whole)
    if stray := sum(map(is_image_name, names)):
        warnings.warn(
            f"{stray:,} images in {shown(path)} itself are in none of its classes and are left out",
            stacklevel=3,
        )


def list_classes(path: Path) -> dict[str, list[Path]]:
    """Find the classes of a folder, by name, and all image files inside each, sorted by path.

    Warns of what is left out, of folders inside classes that may be classes themselves, and of
    names that differ only in case.
    raises: ValueError for a class without images, and for one that is a copy of the data
    """
    folders = subfolders(path)
    contents = {as_text(folder.name): list_content(folder) for folder in folders}
    check_nesting(folders, contents)
    for folder, content in zip(folders, contents.values(), strict=True):
        if not content.images:
            raise no_images(folder, content.left_out, ": add images, or remove the folder")
    warn_of_case(folders)
    warn_of_rest(path, contents.values())
    return {name: content.images for name, content in contents.items()}


def check_nesting(folders: Iterable[Path], contents: Mapping[str, Content]) -> None:
    """Raise ValueError if a class is a copy of the data; warn if it seems to contain classes."""
    for folder, content in zip(folders, contents.values(), strict=True):
        if identity(folder) in identities_above(folder):
            raise ValueError(
                f"{shown(folder)} is a link to a folder that contains it: remove the link"
            )
        others = contents.keys() - {as_text(folder.name)}
        nested = sorted(others & {as_text(inner.name) for inner in content.folders})
        if len(nested) >= 2 and len(nested) == len(others):
            raise ValueError(
                f"{shown(folder)} contains folders with the names of all other classes, "
                f"{', '.join(map(shown, nested))}: if it is a copy of the data, move it elsewhere"
            )
        if nested:
            warnings.warn(
                f"{shown(folder)} contains folders with the names of other classes, "
                f"{', '.join(map(shown, nested))}: their images count as {shown(folder.name)}",
                stacklevel=4,
            )
    warn_of_layers(contents)


def warn_of_case(folders: Iterable[Path]) -> None:
    """Warn of classes whose names differ only in upper and lower case."""
    alike = dict[str, list[str]]()
    for folder in folders:
        alike.setdefault(folder.name.casefold(), []).append(shown(folder))
    for paths in alike.values():
        if len(paths) > 1:
            warnings.warn(
                f"{' and '.join(paths)} differ only in upper and lower case, but are "
                f"{len(paths)} classes: move their images into one folder if they are one",
                stacklevel=4,
            )


def warn_of_layers(contents: Mapping[str, Content]) -> None:
    """Warn if all classes contain folders of the same names, such as train and test."""
    inside = [{as_text(inner.name) for inner in content.folders} for content in contents.values()]
    shared = sorted(set.intersection(*inside)) if len(inside) > 1 else []
    if len(shared) >= 2:
        warnings.warn(
            f"each of the classes {', '.join(map(shown, contents))} contains the folders "
            f"{', '.join(map(shown, shared))}, which are read as one: are they the classes, or "
            "splits?",
            stacklevel=5,
        )
