"""Data sets that are downloaded once, on request (downloads.toml): clothing, photos and dishes.

pooch downloads into a temporary file, checks its sha256 and renames it, so that no other file is
ever taken for it.
"""

import gzip
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pooch
import torch

from vit_helpers._files import new_folder
from vit_helpers.data.cache import data_folder
from vit_helpers.data.folders import find_images, warn_of_copies
from vit_helpers.data.reading import make_splits, read_pixels
from vit_helpers.data.splits import Data, Split, split_rows, subset

SOURCES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
VALIDATION = 5000  # training images of Fashion-MNIST and CIFAR-10 that are held out


class DownloadError(OSError):
    """A file could not be downloaded.

    The message says what was tried, and how to put the file there by hand.
    """


def fashion_mnist() -> Data:
    """Load pieces of clothing, 28 x 28 gray.

    55,000 for training, 5,000 of the training files for validation, 10,000 for the test
    """
    folder = data_folder() / "FashionMNIST" / "raw"
    source = SOURCES["fashion_mnist"]
    arrays = []
    for name, sha256 in source["sha256"].items():
        file = fetch(source["url"] + name, folder / name, sha256)
        offset = 16 if "images" in name else 8  # bytes that say the shape
        content = bytearray(gzip.decompress(file.read_bytes()))
        arrays.append(torch.frombuffer(content, dtype=torch.uint8, offset=offset))
    images, labels, test_images, test_labels = arrays
    train = Split(images.view(-1, 1, 28, 28) / 255, labels.long())
    test = Split(test_images.view(-1, 1, 28, 28) / 255, test_labels.long())
    return with_validation("fashion_mnist", train, test, source["classes"])


def cifar10() -> Data:
    """Load photos, 32 x 32 color.

    45,000 for training, 5,000 of the training files for validation, 10,000 for the test
    """
    # imported here because it takes seconds, and importing this package does not wait for it
    from torchvision.datasets import CIFAR10

    root, source = data_folder(), SOURCES["cifar10"]
    if not (root / CIFAR10.base_folder).is_dir():  # where torchvision unpacks it
        archive = fetch(source["url"], root / CIFAR10.filename, source["sha256"])
        root = unpack(archive, root / "cifar10")
    files = CIFAR10(root, train=True), CIFAR10(root, train=False)
    train, test = (
        Split(torch.tensor(file.data).permute(0, 3, 1, 2) / 255, torch.tensor(file.targets))
        for file in files
    )
    return with_validation("cifar10", train, test, files[0].classes)


def pizza_steak_sushi(image_size: int = 64) -> Data:
    """Load color photos of three dishes: 180 for training, 45 for validation, 75 for the test.

    image_size: as for `folder`
    """
    root, source = data_folder(), SOURCES["pizza_steak_sushi"]
    archive = fetch(source["url"], root / "pizza_steak_sushi.zip", source["sha256"])
    class_names, listing = find_images(unpack(archive, root / "pizza_steak_sushi"))
    reading, pixels = read_pixels(listing, image_size)
    warn_of_copies(reading.files)
    train, _, test = make_splits(reading.files, pixels)
    return with_validation("pizza_steak_sushi", train, test, class_names, count=45)


def with_validation(
    name: str, train: Split, test: Split, class_names: Sequence[str], count: int = VALIDATION
) -> Data:
    """Make a data set whose validation split is `count` of the training images.

    They are the same ones every time.
    """
    validation, rest = (subset(train, rows) for rows in split_rows(len(train), count))
    return Data.from_splits(name, rest, validation, test, class_names)


def fetch(url: str, path: str | Path, sha256: str, timeout: float = 20, tries: int = 3) -> Path:
    """Download a file, unless it is there already with this sha256, and return its path.

    timeout: in seconds, of each answer
    raises : `DownloadError`, also if another file is there
    """
    path = Path(path)
    if path.exists():
        present = pooch.file_hash(path)
        if present == sha256:
            return path
        raise DownloadError(
            f"{path} is not the file it should be (its sha256 is {present}, not {sha256}). "
            "Nothing was changed: move it away to download it again."
        )
    files = pooch.create(
        path.parent,
        "",
        registry={path.name: sha256},
        urls={path.name: url},
        retry_if_failed=tries - 1,
    )
    pooch.get_logger().setLevel("WARNING")
    try:
        files.fetch(path.name, downloader=pooch.HTTPDownloader(progressbar=True, timeout=timeout))
    except (OSError, ValueError) as error:  # of requests; of pooch, for a wrong hash
        counted = "1 try" if tries == 1 else f"{tries} tries"
        raise DownloadError(
            f"could not download {url} in {counted}, the last error was "
            f"{type(error).__name__}: {str(error)[:300]}\n"
            f"By hand: put the file at {path} (sha256 {sha256}), "
            "or name a folder that has it in VIT_HELPERS_DATA.\n"
            'These work without a network: load("digits"), load("scattered_digits") '
            'and load("folder:PATH").'
        ) from error
    return path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive whose sha256 is known into a new folder, unless there is one."""
    if folder.is_dir():
        return folder
    try:
        with new_folder(folder) as new:
            if archive.suffix == ".zip":  # shutil leaves out names that lead out of the folder
                shutil.unpack_archive(archive, new)
            else:
                shutil.unpack_archive(archive, new, filter="data")
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster, and its folder is as good
            raise
    return folder
