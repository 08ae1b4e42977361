"""Decoded images, kept on the disk by the sha256 of their files: each is decoded only once."""

import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import PIL
import pooch

from vit_helpers._files import expand_user
from vit_helpers.data.images import Pixels

CACHE_BYTES = 2 * 2**30  # of all cached images together
FREE_BYTES = 2**30  # that a cache leaves on the disk, for the results of runs
ENTRY_BYTES = 36  # of the index for each image: its sha256 and crc32
VERSION = 2  # of what is made of an image file


def data_folder() -> Path:
    """Return the folder for downloads and cached images: $VIT_HELPERS_DATA, or the user's cache."""
    return expand_user(os.environ.get("VIT_HELPERS_DATA") or pooch.os_cache("vit_helpers"))


def cache_path(folder: Path, image_size: int) -> Path:
    """Return where the images of a folder are cached at one size.

    Another version of Pillow, which may decode some differently, has a cache of its own.
    """
    key = f"{folder.resolve()} {image_size} {VERSION} {PIL.__version__}"
    return data_folder() / "decoded" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]


class ImageCache:
    """The decoded images of a folder at one size, (3, S, S) each, by the sha256 of their files.

    Images of more than 8 bits are not among them: theirs depends on the rest of the folder.
    A file that is damaged, or cannot be written, is an empty cache.
    """

    def __init__(self, folder: Path, image_size: int):
        self.path = cache_path(folder, image_size)
        self.shape = (3, image_size, image_size)
        self.index: dict[bytes, tuple[int, int]] = {}  # sha256 -> (offset in the file, crc32)
        with suppress(Exception):  # of a damaged header numpy raises many kinds
            self.index = self.read_index()
            os.utime(self.path)  # the one used longest ago is removed first

    @property
    def image_bytes(self) -> int:
        """The size of an image in the file"""
        channels, height, width = self.shape
        return channels * height * width

    def read_index(self) -> dict[bytes, tuple[int, int]]:
        """Read where each image is in the file; raises many kinds of errors if it is damaged."""
        with self.path.open("rb") as file:
            index, first = np.load(file, allow_pickle=False), file.tell()
        return {
            bytes(entry["sha256"]): (first + row * self.image_bytes, int(entry["crc32"]))
            for row, entry in enumerate(index)
        }

    def get(self, sha256: bytes) -> Pixels | None:
        """Read an image, (3, S, S); None if it is not there or damaged.  May be called in threads.

        A damaged one is removed from the index, so that `write` replaces it.
        """
        if sha256 not in self.index:
            return None
        offset, crc32 = self.index[sha256]
        content = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(offset)
            content = file.read(self.image_bytes)
        if len(content) == self.image_bytes and zlib.crc32(content) == crc32:
            return np.frombuffer(content, np.uint8).reshape(self.shape)
        self.index.pop(sha256, None)
        return None

    def write(self, sha256s: Sequence[bytes], pixels: Pixels) -> None:
        """Write the images anew, if some of them are not there; nothing, where that is impossible.

        pixels: (n, 3, S, S), of n files
        """
        size = len(sha256s) * (self.image_bytes + ENTRY_BYTES) + 1024
        if size > CACHE_BYTES or self.index.keys() >= set(sha256s):
            return
        fields = [("sha256", "V32"), ("crc32", "<u4")]
        checksums = map(zlib.crc32, pixels)
        index = np.array(list(zip(sha256s, checksums, strict=True)), dtype=fields)
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
            make_room(self.path.parent, size)
            if shutil.disk_usage(self.path.parent).free < size + FREE_BYTES:
                return
            # readable by its owner alone; closed before it is renamed
            file = tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False)  # noqa: SIM115
            try:
                with file:  # closing it can fail too, on a full disk
                    np.save(file, index, allow_pickle=False)
                    for image in pixels:
                        file.write(image.data)
                Path(file.name).replace(self.path)
            finally:
                Path(file.name).unlink(missing_ok=True)


def make_room(folder: Path, size: int) -> None:
    """Remove the files used longest ago, until one of this size fits into the limit."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files:
        size += file.stat().st_size
        if size > CACHE_BYTES:
            file.unlink(missing_ok=True)
