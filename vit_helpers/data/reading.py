"""Many image files: read by several threads, with a progress bar, and decoded only once, thanks to a cache."""

import hashlib
import os
import shutil
import sys
import tempfile
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import PIL
import torch

from vit_helpers._cpus import count_cpus
from vit_helpers._files import expand_user, shown
from vit_helpers.data.images import decode, read_bytes, square
from vit_helpers.data.splits import ByteSplit

T = TypeVar("T")
R = TypeVar("R")
THREADS = 8  # at most; more wait for Python's lock
CACHE_BYTES = 2 * 2**30  # of all cached images together
FREE_BYTES = 2**30  # that a cache leaves on the disk, for the results of runs
VERSION = 1  # of what is made of an image file
NAMED = 10  # broken files in a message
SHORT = 4  # bytes of a sha256 by which a run knows the images that it has seen
SKIP = "skip_broken (train and shards: --skip-broken)"


class ImageFile(NamedTuple):
    """An image file, its label, and the sha256 of its content, by which splits are drawn and copies are found"""

    path: Path
    label: int
    sha256: bytes


def map_files(
    function: Callable[[T], R], items: Sequence[T], about: str, threads: int | None = None
) -> Iterator[R | ValueError | FileNotFoundError]:
    """What the function returns for each item, in order, or the error, where it raises one that names a file."""
    from tqdm import tqdm

    def attempt(item: T) -> R | ValueError | FileNotFoundError:
        try:
            return function(item)
        except (ValueError, FileNotFoundError) as error:
            return error

    threads = threads or min(max(1, int(count_cpus())), THREADS)
    waiting = deque[Future[R | ValueError | FileNotFoundError]]()
    silent = not (sys.stderr and not sys.stderr.closed and sys.stderr.isatty())
    bar = tqdm(total=len(items), desc=about, unit="image", delay=1, leave=False, disable=silent)
    with bar, ThreadPoolExecutor(threads) as pool:
        try:
            for number in range(len(items) + 2 * threads):  # a few are read ahead
                if number < len(items):
                    waiting.append(pool.submit(attempt, items[number]))
                if number >= 2 * threads:
                    yield waiting.popleft().result()
                    bar.update()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def find_sha256(path: Path) -> bytes:
    """The sha256 of a file's content; ValueError or FileNotFoundError, naming the file, if it cannot be read"""
    return hashlib.sha256(read_bytes(path)).digest()


def read_pixels(file: ImageFile, image_size: int) -> Any:
    """An image as RGB, resized and center-cropped: (3, S, S), uint8; ValueError, naming the file, if that cannot be done"""
    content = read_bytes(file.path)
    if hashlib.sha256(content).digest() != file.sha256:
        raise ValueError(f"{shown(file.path)} was changed while the images were being read")
    return square(decode(content, file.path), image_size)


def check_broken(broken: Sequence[Exception], count: int, skip: bool) -> None:
    """Raise ValueError with the first ten of what is wrong with files, or warn if they are to be skipped.  count: of all"""
    if not broken:
        return
    if len(broken) == 1 and not skip:
        raise ValueError(f"{broken[0]}; remove it, or leave it out with {SKIP}")
    what = f"{len(broken):,} of {count:,} images cannot be read"
    some = "".join(f"\n  {one}" for one in broken[:NAMED])
    some += f"\n  and {len(broken) - NAMED:,} more" * (len(broken) > NAMED)
    if not skip:
        raise ValueError(f"{what}; remove them, or leave them out with {SKIP}:{some}")
    warnings.warn(f"{what} and are left out:{some}", stacklevel=3)


def read_splits(
    splits: Sequence[Sequence[ImageFile]], image_size: int, broken: Sequence[Exception] = (), skip_broken: bool = False,
    cache: Path | None = None, threads: int | None = None,
) -> list[ByteSplit]:  # fmt: skip
    """The images of some splits, (n, 3, S, S) each; ValueError if files are broken and not skipped.  broken: other files"""
    files = [file for some in splits for file in some]
    pixels, lost = (
        np.empty((len(files), 3, image_size, image_size), np.uint8),
        dict[int, Exception](),
    )
    missing = read_cache(cache, files, pixels) if cache else list(range(len(files)))
    results = map_files(
        lambda row: read_pixels(files[row], image_size), missing, "reading", threads
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        for row, result in zip(missing, results, strict=True):
            if isinstance(result, Exception):
                lost[row] = result
            else:
                pixels[row] = result
    if cache and len(missing) > len(lost):
        write_cache(
            cache, [(row, file.sha256) for row, file in enumerate(files) if row not in lost], pixels
        )
    check_broken([*broken, *lost.values()], len(files) + len(broken), skip_broken)
    labels, end, done = torch.tensor([file.label for file in files]), 0, []
    for some in splits:
        start, end = end, end + len(some)
        rows = [row for row in range(start, end) if row not in lost] if lost else slice(start, end)
        done.append(ByteSplit(torch.from_numpy(pixels[rows]), labels[rows]))
    return done


def data_folder() -> Path:
    """The folder for downloads and cached images: $VIT_HELPERS_DATA, or one in the user's cache"""
    import pooch

    return expand_user(os.environ.get("VIT_HELPERS_DATA") or pooch.os_cache("vit_helpers"))


def cache_path(folder: Path, image_size: int) -> Path:
    """Where the images of a folder at one size are cached; another Pillow version may decode some differently"""
    key = f"{folder.resolve()} {image_size} {VERSION} {PIL.__version__}"
    return data_folder() / "decoded" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]


def read_cache(path: Path, files: Sequence[ImageFile], pixels: Any) -> list[int]:
    """Copy the images of a cache file into their rows of `pixels`; the rows of those that it lacks or has damaged"""
    missing, size = set(range(len(files))), pixels[:1].nbytes
    with (
        suppress(Exception),
        path.open("rb") as file,
    ):  # of a damaged header numpy raises many kinds
        index, first = np.load(file, allow_pickle=False), file.tell()
        places = {bytes(sha256): place for place, sha256 in enumerate(index["sha256"])}
        for row, place in enumerate(places.get(one.sha256) for one in files):
            if place is not None:
                file.seek(first + place * size)
                if (
                    file.readinto(pixels[row].data) == size
                    and zlib.crc32(pixels[row]) == index[place]["crc32"]
                ):
                    missing.remove(row)
        os.utime(path)  # the one used longest ago is removed first
    return sorted(missing)


def write_cache(path: Path, rows: Sequence[tuple[int, bytes]], pixels: Any) -> None:
    """Write rows of `pixels`, each with its sha256, as a cache file; where that is not possible there will be none."""
    if (size := len(rows) * (pixels[:1].nbytes + 36) + 1024) > CACHE_BYTES:
        return
    kinds = [("sha256", "V32"), ("crc32", "<u4")]
    index = np.array([(sha256, zlib.crc32(pixels[row])) for row, sha256 in rows], dtype=kinds)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # it is written anew
        total = size
        for one in sorted(path.parent.iterdir(), key=lambda one: -one.stat().st_mtime):
            total += one.stat().st_size
            if total > CACHE_BYTES:  # those used longest ago are removed
                one.unlink(missing_ok=True)
        if shutil.disk_usage(path.parent).free < size + FREE_BYTES:
            return
        file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115  readable by its owner alone
        try:
            with file:  # closing it can fail too, on a full disk
                np.save(file, index, allow_pickle=False)
                for row, _ in rows:
                    file.write(pixels[row].data)
            Path(file.name).replace(path)
        finally:
            Path(file.name).unlink(missing_ok=True)
