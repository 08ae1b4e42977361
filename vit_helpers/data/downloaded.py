"""Data sets that are downloaded once, on request: Fashion-MNIST, CIFAR-10, pizza, steak and sushi."""

import gzip

import torch

from vit_helpers.data.download import data_folder, fetch, unpack
from vit_helpers.data.folders import read_images
from vit_helpers.data.splits import Data, Split, split_rows

FASHION_URL = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"  # its authors' own
FASHION = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
FASHION_CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
PIZZA_URL = "https://github.com/mrdbourke/pytorch-deep-learning/raw/main/data/pizza_steak_sushi.zip"
# The sum of a copy of the archive: not yet held against the original.
PIZZA_SHA256 = "5e9596fcc939a32996e59bbed8ec690ae39203bbcbc08292a92d44e4c4a27652"
FILES = {  # of each data set, any of these groups is enough
    "fashion_mnist": [[f"FashionMNIST/raw/{name}" for name in FASHION]],
    "cifar10": [["cifar-10-batches-py"], ["cifar10"], ["cifar-10-python.tar.gz"]],
    "pizza_steak_sushi": [["pizza_steak_sushi.zip"]],
}
VALIDATION = 5000  # pictures that Fashion-MNIST and CIFAR-10 give from their training files


def is_downloaded(name):
    """Whether `load(name)` finds its files on this machine and need not download them"""
    return name not in FILES or any(all((data_folder() / file).exists() for file in group) for group in FILES[name])


def fashion_mnist():
    """Clothing, 28 x 28 grey, as `Data`: 55,000 to train on, 5,000 of the same file for validation, 10,000 for the test"""
    raw = data_folder() / "FashionMNIST" / "raw"
    for name, sha256 in FASHION.items():
        fetch(FASHION_URL + name, raw / name, sha256)
    files = [read_idx(raw / name) for name in FASHION]
    images, test_images = (x[:, None].float() / 255 for x in files[::2])
    labels, test_labels = (x.long() for x in files[1::2])
    return with_validation("fashion_mnist", images, labels, Split(test_images, test_labels), FASHION_CLASSES)


def cifar10():
    """Photos, 32 x 32 colour, as `Data`: 45,000 to train on, 5,000 of the same files for validation, 10,000 for the test"""
    from torchvision.datasets import CIFAR10

    root = data_folder()
    if not (root / CIFAR10.base_folder).is_dir():  # torchvision's own place
        root = unpack(fetch(CIFAR_URL, root / CIFAR10.filename, CIFAR_SHA256), root / "cifar10")
    train, test = (CIFAR10(root, train=train) for train in (True, False))
    images, test_images = (torch.tensor(x.data).permute(0, 3, 1, 2) / 255 for x in (train, test))
    labels, test_labels = (torch.tensor(x.targets) for x in (train, test))
    return with_validation("cifar10", images, labels, Split(test_images, test_labels), train.classes)


def pizza_steak_sushi(image_size=64):
    """Colour photos of three dishes, as `Data`: 180 to train on, 45 of the training folder for validation, 75 for the test

    image_size: side of the square that each photo is fitted to, see `vit_helpers.data.folders.folder`
    """
    root = data_folder()
    archive = fetch(PIZZA_URL, root / "pizza_steak_sushi.zip", PIZZA_SHA256)
    unpacked = unpack(archive, root / "pizza_steak_sushi")
    names, train = read_images(unpacked / "train", image_size)
    _, test = read_images(unpacked / "test", image_size)
    return with_validation("pizza_steak_sushi", *train, test, names, count=45)


def with_validation(name, images, labels, test, class_names, count=VALIDATION):
    """`Data` from training images and a test part: some of the training images, drawn once and for all, are held out"""
    held_out, kept = split_rows(len(labels), count)
    train, validation = (Split(images[rows], labels[rows]) for rows in (kept, held_out))
    return Data.of(name, train, validation, test, class_names)


def read_idx(path):
    """A file of the MNIST family as a tensor of bytes: a gzip of two zeros, a type, the number of axes, their lengths, data

    raises: ValueError when it is something else, or cut short
    """
    try:
        with gzip.open(path) as file:
            raw = bytearray(file.read())
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is no gzip file, or is cut short: {error}") from error
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path} holds no bytes in MNIST's format: it begins with {bytes(raw[:4])}")
    axes = raw[3]
    shape = [int.from_bytes(raw[4 * i : 4 * i + 4]) for i in range(1, axes + 1)]
    values = torch.frombuffer(raw, dtype=torch.uint8)[4 * (axes + 1) :]
    if len(values) != torch.tensor(shape).prod():
        raise ValueError(f"{path} says it holds {shape} numbers, but there are {len(values)}")
    return values.reshape(shape)
