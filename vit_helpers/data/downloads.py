"""Data sets that are downloaded once, on request: Fashion-MNIST, CIFAR-10, and pizza, steak and sushi.

pooch downloads into a temporary file, checks its sha256 and renames it. An interruption, a second process or a wrong
answer of the server therefore leave nothing behind that could be taken for the file.
"""

import gzip
import os
import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch

from vit_helpers.data.folders import list_images, new_folder, read_files
from vit_helpers.data.splits import Data, Split, split_rows, subset

TIMEOUT = 20  # seconds without a byte
TRIES = 3
FASHION_URL = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"  # its authors' own
FASHION = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
FASHION_CLASSES = "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
PIZZA_URL = "https://github.com/mrdbourke/pytorch-deep-learning/raw/main/data/pizza_steak_sushi.zip"
PIZZA_SHA256 = "5e9596fcc939a32996e59bbed8ec690ae39203bbcbc08292a92d44e4c4a27652"  # of a copy, not yet of the original
FILES = {  # any of a data set's groups of files is enough
    "fashion_mnist": [[f"FashionMNIST/raw/{name}" for name in FASHION]],
    "cifar10": [["cifar-10-batches-py"], ["cifar10"], ["cifar-10-python.tar.gz"]],
    "pizza_steak_sushi": [["pizza_steak_sushi.zip"]],
}
VALIDATION = 5000  # training images of Fashion-MNIST and CIFAR-10 that are held out


class DownloadError(OSError):
    """A file could not be downloaded; the message says what was tried, and how to put the file there by hand"""


def is_downloaded(name: str) -> bool:
    """Whether `load(name)` finds its files on this machine and does not need to download them"""
    return name not in FILES or any(all((data_folder() / file).exists() for file in group) for group in FILES[name])


def fashion_mnist() -> Data:
    """Clothing, 28 x 28 gray: 55,000 images for training, 5,000 of the training files for validation, 10,000 for the test"""
    raw = data_folder() / "FashionMNIST" / "raw"
    files = [gzip.decompress(fetch(FASHION_URL + name, raw / name, sha256).read_bytes()) for name, sha256 in FASHION.items()]
    headers = (16, 8, 16, 8)  # bytes that say the shape
    arrays = [torch.frombuffer(bytearray(x), dtype=torch.uint8, offset=n) for x, n in zip(files, headers, strict=True)]
    train, test = (Split(arrays[i].view(-1, 1, 28, 28) / 255, arrays[i + 1].long()) for i in (0, 2))
    return with_validation("fashion_mnist", train, test, FASHION_CLASSES.split(", "))


def cifar10() -> Data:
    """Photos, 32 x 32 color: 45,000 for training, 5,000 of the training files for validation, 10,000 for the test"""
    from torchvision.datasets import CIFAR10

    root = data_folder()
    if not (root / CIFAR10.base_folder).is_dir():  # where torchvision unpacks it
        root = unpack(fetch(CIFAR_URL, root / CIFAR10.filename, CIFAR_SHA256), root / "cifar10")
    raw = [CIFAR10(root, train=train) for train in (True, False)]
    train, test = (Split(torch.tensor(x.data).permute(0, 3, 1, 2) / 255, torch.tensor(x.targets)) for x in raw)
    return with_validation("cifar10", train, test, raw[0].classes)


def pizza_steak_sushi(image_size: int = 64) -> Data:
    """Color photos of three dishes: 180 for training, 45 of the training folder for validation, 75 for the test

    image_size: side of the square that each photo is resized and cropped to, see `vit_helpers.data.folders.folder`
    """
    root = data_folder()
    unpacked = unpack(fetch(PIZZA_URL, root / "pizza_steak_sushi.zip", PIZZA_SHA256), root / "pizza_steak_sushi")
    (names, train_files), (_, test_files) = (list_images(unpacked / split) for split in ("train", "test"))
    train, test = read_files((train_files, test_files), image_size)
    return with_validation("pizza_steak_sushi", train, test, names, count=45)


def with_validation(name: str, train: Split, test: Split, class_names: Sequence[str], count: int = VALIDATION) -> Data:
    """`Data` whose validation split is `count` of the training images, the same ones every time"""
    validation, rest = (subset(train, rows) for rows in split_rows(len(train), count))
    return Data.from_splits(name, rest, validation, test, class_names)


def data_folder() -> Path:
    """The folder for downloads: $VIT_HELPERS_DATA, or one in the user's cache"""
    import pooch

    return Path(os.environ.get("VIT_HELPERS_DATA") or pooch.os_cache("vit_helpers")).expanduser()


def fetch(url: str, path: str | Path, sha256: str, timeout: float = TIMEOUT, tries: int = TRIES) -> Path:
    """Download a file, unless it is there already and correct, and return its path.

    sha256: of the correct file, in hexadecimal; timeout: seconds without a byte; tries: in total;  raises: `DownloadError`
    """
    import pooch

    path = Path(path)
    if path.exists():
        if (found := pooch.file_hash(path)) == sha256:
            return path
        about = f"{path} is not the file it should be (its sha256 is {found}, not {sha256})."
        raise DownloadError(f"{about} Nothing was changed: move it away to download it again.")
    files = pooch.create(path.parent, "", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=tries - 1)
    pooch.get_logger().setLevel("WARNING")
    try:
        files.fetch(path.name, downloader=pooch.HTTPDownloader(progressbar=True, timeout=timeout))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; pooch raises ValueError for a wrong hash
        raise DownloadError(
            f"could not download {url} in {tries} {'try' if tries == 1 else 'tries'}, the last error was "
            f"{type(error).__name__}: {str(error)[:300]}\n"
            f"By hand: put the file at {path} (sha256 {sha256}), or name a folder that has it in VIT_HELPERS_DATA.\n"
            'These work without a network: load("digits"), load("scattered_digits") and load("folder:PATH").'
        ) from error
    return path


def unpack(archive: str | Path, folder: str | Path) -> Path:
    """Unpack a zip or tar file into a new folder, completely or not at all; a folder that exists is returned as it is.

    raises: ValueError if the archive is broken, or if a name in it leads out of the folder
    """
    archive, folder = Path(archive), Path(folder)
    if folder.is_dir():
        return folder
    try:
        with new_folder(folder) as new:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as file:
                    if out := [name for name in file.namelist() if name.startswith("/") or ".." in Path(name).parts]:
                        raise zipfile.BadZipFile(repr(out[0]))  # it would be written to another place, in silence
                    file.extractall(new)
            else:
                shutil.unpack_archive(archive, new, filter="data")
    except (shutil.ReadError, zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} is broken, or has a name that leads out of its folder: {error}") from error
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster, and its folder is as good
            raise
    return folder
