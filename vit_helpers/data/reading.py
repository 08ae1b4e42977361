"""Many image files: each read once, by several threads, with a progress bar."""

import hashlib
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from vit_helpers._cpus import count_cpus
from vit_helpers.data.cache import ImageCache
from vit_helpers.data.images import (
    LEVELS,
    GrayRange,
    Pixels,
    choose_white,
    decode,
    measure_grays,
    read_bytes,
    square,
    warn_of_half,
    white_option,
)
from vit_helpers.data.splits import SPLITS, Split

T = TypeVar("T")
R = TypeVar("R")
THREADS = 8  # at most; more wait for Python's lock
NAMED = 10  # broken files in a message
SHORT = 4  # bytes of a sha256 by which a run knows the images that it has seen
SKIP = "--skip-broken of train and shards (in Python: skip_broken=True)"


class BrokenFilesError(ValueError):
    """Image files cannot be read.  plain: the message without the option to leave them out"""

    def __init__(self, message: str, plain: str) -> None:
        super().__init__(message, plain)
        self.plain = plain

    def __str__(self) -> str:
        return str(self.args[0])


class ImageFile(NamedTuple):
    """An image file that was read, the row of its image among all, its label, and its sha256.

    By the sha256 of their content splits are drawn and copies are found.
    """

    path: Path
    row: int
    label: int
    sha256: bytes


Listing = dict[str, list[tuple[Path, int]]]  # files with their labels, by split
Files = dict[str, list[ImageFile]]  # by split
FileError = ValueError | FileNotFoundError  # with a message that names the file


def map_files(
    function: Callable[[T], R], items: Sequence[T], title: str, threads: int | None = None
) -> Iterator[R | FileError]:
    """Yield what the function returns for each item, in order, or the error that names its file.

    title  : of the progress bar
    threads: how many work at a time; by default one for each CPU, 8 at most
    """

    def attempt(item: T) -> R | FileError:
        try:
            return function(item)
        except (ValueError, FileNotFoundError) as error:
            return error

    threads = threads or min(max(1, int(count_cpus())), THREADS)
    ahead = 2 * threads
    waiting = deque[Future[R | FileError]]()
    silent = not (sys.stderr and not sys.stderr.closed and sys.stderr.isatty())
    bar = tqdm(total=len(items), desc=title, unit="image", delay=1, leave=False, disable=silent)
    with bar, ThreadPoolExecutor(threads) as pool:
        try:
            for number in range(len(items) + ahead):
                if number < len(items):
                    waiting.append(pool.submit(attempt, items[number]))
                if number >= ahead:
                    yield waiting.popleft().result()
                    bar.update()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def find_sha256(path: Path) -> bytes:
    """Compute the sha256 of a file.

    raises: ValueError or FileNotFoundError, naming the file, if it cannot be read
    """
    return hashlib.sha256(read_bytes(path)).digest()


def read_image(
    path: Path, image_size: int, white: float | None, cache: ImageCache | None = None
) -> tuple[bytes, Pixels | GrayRange]:
    """Read an image file: its sha256, and its image as RGB, resized and center-cropped.

    white  : of an image with more than 8 bits; None if it is not known yet
    returns: the sha256 of the file; (3, S, S), uint8, from the cache if it is there; its gray
             values in place of the image where white has to be known first
    raises : ValueError or FileNotFoundError, naming the file, if that cannot be done
    """
    content = read_bytes(path)
    sha256 = hashlib.sha256(content).digest()
    pixels = cache.get(sha256) if cache else None
    if pixels is not None:
        return sha256, pixels
    grays = measure_grays(path, content) if white is None else None
    return sha256, grays or square(decode(content, path, white), image_size)


class FilesRead(NamedTuple):
    """What became of the files of a data set.

    files : those that could be read
    errors: they name the others
    white : what was read as white in gray images of more than 8 bits; None if there are none
    narrow: the number of images without such gray values, whose rows come first
    """

    files: Files
    errors: list[FileError]
    white: float | None
    narrow: int


def read_files(
    listing: Listing,
    read: Callable[[Path, float | None], tuple[bytes, T | GrayRange]],
    store: Callable[[int, T], None],
    white: float | None = None,
    threads: int | None = None,
) -> FilesRead:
    """Read each file once, and store what becomes of its image.

    Gray images of more than 8 bits are read again when all are known, because white is one value
    for all of them: an image that happens to be dark does not become brighter.
    read : a file and the value of white -> its sha256, and what is to be stored, or its gray values
           where white is None and matters; called in threads
    store: called in order with the row of the image, 0, 1, ..., and what `read` returned
    white: what white is said to be, see `choose_white`; if it is found, see `warn_of_half`
    """
    entries = [(split, path, label) for split in SPLITS for path, label in listing.get(split, ())]
    images: dict[int, ImageFile] = {}  # by the number of the entry, as the next two
    errors: dict[int, FileError] = {}
    ranges: dict[int, GrayRange] = {}

    def read_entries(numbers: Sequence[int], white: float | None) -> None:
        paths = [entries[number][1] for number in numbers]
        results = map_files(lambda path: read(path, white), paths, "reading", threads)
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, ValueError | FileNotFoundError):
                errors[number] = result
            elif isinstance(result[1], GrayRange):
                ranges[number] = result[1]
            else:
                _, path, label = entries[number]
                images[number] = ImageFile(path, len(images), label, result[0])
                store(images[number].row, result[1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        read_entries(range(len(entries)), None)
        narrow, grays = len(images), list(ranges.values())
        used = (white or choose_white(grays)) if grays else None
        read_entries(list(ranges), used)
    if used and not white:
        warn_of_half(grays, used)
    files: Files = {split: [] for split in SPLITS}
    for number in sorted(images):
        files[entries[number][0]].append(images[number])
    return FilesRead(files, [errors[number] for number in sorted(errors)], used, narrow)


def read_pixels(
    listing: Listing,
    image_size: int,
    skip_broken: bool = False,
    cache: ImageCache | None = None,
    threads: int | None = None,
    white: float | None = None,
) -> tuple[FilesRead, Pixels]:
    """Read the images of all files into memory.

    white  : see `read_files`
    returns: what was read; (n, 3, S, S), uint8, in whose rows the images are
    raises : ValueError if files are broken and not skipped, or if white is not known
    """
    count = count_files(listing)
    pixels = np.empty((count, 3, image_size, image_size), np.uint8)

    def read(path: Path, white: float | None) -> tuple[bytes, Pixels | GrayRange]:
        return read_image(path, image_size, white, cache)

    reading = read_files(listing, read, pixels.__setitem__, white, threads)
    pixels = pixels[: count - len(reading.errors)]
    if cache:
        files = sorted((file.row, file.sha256) for own in reading.files.values() for file in own)
        narrow = slice(reading.narrow)
        cache.write([sha256 for _, sha256 in files[narrow]], pixels[narrow])
    check_broken(reading.errors, count, skip_broken)
    return reading, pixels


def is_said(white: float | None, used: float | None) -> bool:
    """Return whether white is said, and not found; warn if it is said in vain.

    used: what was read as white; None if there was no need.  255 is what white is in 8 bits
    """
    if white is None or used is not None or white == 255:
        return white is not None
    warnings.warn(
        f"white is said to be {white:g}, but has no effect: no image has gray values of more "
        "than 8 bits",
        stacklevel=3,
    )
    return False


def check_grays(images: Iterable[Pixels]) -> None:
    """Raise ValueError if all images together have fewer than 16 gray values.

    images: 0 to 255, of any shape; only as many are taken as it needs
    """
    low, high = 255, 0
    for image in images:
        low, high = min(low, int(image.min())), max(high, int(image.max()))
        if high - low >= LEVELS - 1:
            return
    raise ValueError(
        f"the pixels of all images are from {low} to {high} of 255, fewer than {LEVELS} values: "
        "scale them in the files, or, if they have to be so, say that white is 255: "
        f"{white_option('255')}"
    )


def count_files(listing: Listing) -> int:
    """Count the files of all splits."""
    return sum(map(len, listing.values()))


def make_splits(files: Files, pixels: Pixels) -> list[Split]:
    """Make the three splits, whose images are views of `pixels`, (n, 3, S, S), reordered."""
    reorder(pixels, [file.row for split in SPLITS for file in files[split]])
    splits, end = [], 0
    for split in SPLITS:
        labels = torch.tensor([file.label for file in files[split]], dtype=torch.int64)
        start, end = end, end + len(labels)
        splits.append(Split(torch.from_numpy(pixels[start:end]), labels))
    return splits


def reorder(pixels: Pixels, rows: Sequence[int]) -> None:
    """Change the order of images to `pixels[rows]` in place: a second copy might not fit in memory.

    pixels: (n, ...); rows: each of 0 .. n - 1 once
    """
    sources = list(rows)
    for start in range(len(sources)):
        if sources[start] == start:
            continue
        first, row = pixels[start].copy(), start
        while sources[row] != start:  # along a cycle, until its first image is wanted
            source = sources[row]
            pixels[row], sources[row] = pixels[source], row
            row = source
        pixels[row], sources[row] = first, row


def check_broken(errors: Sequence[FileError], count: int, skip: bool = False) -> None:
    """Raise `BrokenFilesError` with the first ten faults of files, or warn if they are skipped.

    count: of all files
    """
    if not errors:
        return
    if len(errors) == 1 and not skip:
        plain = f"{errors[0]}; remove it"
        raise BrokenFilesError(f"{plain}, or leave it out with {SKIP}", plain)
    lines = "".join(f"\n  {error}" for error in errors[:NAMED])
    if len(errors) > NAMED:
        lines += f"\n  and {len(errors) - NAMED:,} more"
    message = f"{len(errors):,} of {count:,} images cannot be read"
    if not skip:
        plain = f"{message}; remove them"
        raise BrokenFilesError(
            f"{plain}, or leave them out with {SKIP}:{lines}", f"{plain}:{lines}"
        )
    warnings.warn(f"{message} and are left out:{lines}", stacklevel=3)
