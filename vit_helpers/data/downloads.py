"""Data sets that are downloaded once, on request: Fashion-MNIST, CIFAR-10, and pizza, steak and sushi (downloads.toml).

pooch downloads into a temporary file, checks its sha256 and renames it, so that no other file is ever taken for it.
"""

import gzip
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vit_helpers._files import new_folder
from vit_helpers.data.folders import draw_splits, find_images
from vit_helpers.data.reading import data_folder, read_splits
from vit_helpers.data.splits import Data, Split, split_rows, subset

SOURCES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
VALIDATION = 5000  # training images of Fashion-MNIST and CIFAR-10 that are held out


class DownloadError(OSError):
    """A file could not be downloaded; the message says what was tried, and how to put the file there by hand"""


def is_downloaded(name: str) -> bool:
    """Whether `load(name)` finds its files on this machine and does not need to download them"""
    groups = SOURCES[name]["here"] if name in SOURCES else [[]]
    return any(all((data_folder() / file).exists() for file in group) for group in groups)


def fashion_mnist() -> Data:
    """Clothing, 28 x 28 gray: 55,000 images for training, 5,000 of the training files for validation, 10,000 for the test"""
    raw, source, arrays = data_folder() / "FashionMNIST" / "raw", SOURCES["fashion_mnist"], []
    for (name, sha256), header in zip(
        source["sha256"].items(), (16, 8, 16, 8), strict=True
    ):  # bytes that say the shape
        content = gzip.decompress(fetch(source["url"] + name, raw / name, sha256).read_bytes())
        arrays.append(torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header))
    train, test = (Split(arrays[i].view(-1, 1, 28, 28) / 255, arrays[i + 1].long()) for i in (0, 2))
    return with_validation("fashion_mnist", train, test, source["classes"])


def cifar10() -> Data:
    """Photos, 32 x 32 color: 45,000 for training, 5,000 of the training files for validation, 10,000 for the test"""
    from torchvision.datasets import CIFAR10

    root, source = data_folder(), SOURCES["cifar10"]
    if not (root / CIFAR10.base_folder).is_dir():  # where torchvision unpacks it
        root = unpack(
            fetch(source["url"], root / CIFAR10.filename, source["sha256"]), root / "cifar10"
        )
    raw = [CIFAR10(root, train=train) for train in (True, False)]
    train, test = (
        Split(torch.tensor(x.data).permute(0, 3, 1, 2) / 255, torch.tensor(x.targets)) for x in raw
    )
    return with_validation("cifar10", train, test, raw[0].classes)


def pizza_steak_sushi(image_size: int = 64) -> Data:
    """Color photos of three dishes: 180 for training, 45 for validation, 75 for the test;  image_size: as for `folder`"""
    root, source = data_folder(), SOURCES["pizza_steak_sushi"]
    archive = fetch(source["url"], root / "pizza_steak_sushi.zip", source["sha256"])
    names, found = find_images(unpack(archive, root / "pizza_steak_sushi"))
    files, broken = draw_splits(found | {"validation": []}, "hash")
    train, test = read_splits([files["train"], files["test"]], image_size, broken)
    return with_validation("pizza_steak_sushi", train, test, names, count=45)


def with_validation(
    name: str, train: Split, test: Split, class_names: Sequence[str], count: int = VALIDATION
) -> Data:
    """`Data` whose validation split is `count` of the training images, the same ones every time"""
    validation, rest = (subset(train, rows) for rows in split_rows(len(train), count))
    return Data.from_splits(name, rest, validation, test, class_names)


def fetch(url: str, path: str | Path, sha256: str, timeout: float = 20, tries: int = 3) -> Path:
    """Download a file, unless it is there already with this sha256, and return its path; raises `DownloadError`."""
    import pooch

    path = Path(path)
    if path.exists():
        if (found := pooch.file_hash(path)) == sha256:
            return path
        about = f"{path} is not the file it should be (its sha256 is {found}, not {sha256})"
        raise DownloadError(f"{about}. Nothing was changed: move it away to download it again.")
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
    except (
        OSError,
        ValueError,
    ) as error:  # requests' errors are OSErrors; pooch raises ValueError for a wrong hash
        raise DownloadError(
            f"could not download {url} in {tries} {'try' if tries == 1 else 'tries'}, the last error was "
            f"{type(error).__name__}: {str(error)[:300]}\n"
            f"By hand: put the file at {path} (sha256 {sha256}), or name a folder that has it in VIT_HELPERS_DATA.\n"
            'These work without a network: load("digits"), load("scattered_digits") and load("folder:PATH").'
        ) from error
    return path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive of `fetch`, whose sha256 is known, into a new folder, unless there is one"""
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
