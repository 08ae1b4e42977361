"""Your own images: a folder with a folder for each class."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from vit_helpers.data.splits import Data, Split, split_rows

FOLDERS = {"train": ("train",), "validation": ("validation", "valid", "val"), "test": ("test",)}  # accepted names
HELD_OUT = 0.15  # fraction of the images for a split that has no folder
MAX_BYTES = 4 * 2**30  # in memory
WHITE = {"I": (255, 65535), "F": (1, 255)}  # what white may be in PIL's modes of 32 bits

Files = list[tuple[Path, int]]  # the image files of a split, not read yet, each with its label


def folder(path: str | Path, image_size: int = 64) -> Data:
    """Images of any size and mode, in a folder for each class, as `Data` in memory.

    path      : the folder. It contains the classes, or train/, and test/ and validation/ or val/, which contain them. A
                missing validation split is 15% of the images, a missing test split 15% of the rest, always the same ones
    image_size: side S of the square: resized so that the shorter side is S, then center-cropped; as RGB
    raises    : ValueError or FileNotFoundError, naming the folder or file, if there are no images, less than two classes,
                a file that is no image, or an empty split
    """
    names, splits = list_splits(path)
    train, validation, test = read_files(splits, image_size)
    return Data.from_splits(Path(path).name, train, validation, test, names)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """The path beside a folder to write to, which becomes the folder at the end; FileExistsError if that is not empty"""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} already exists and is not empty: nothing is overwritten, choose another")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        new = Path(temporary) / folder.name  # the temporary folder itself is closed to all but its owner
        new.mkdir()
        yield new
        new.rename(folder)


def list_splits(path: str | Path) -> tuple[tuple[str, ...], list[Files]]:
    """The class names of a folder, and its training, validation and test files; no image is read"""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"no folder at {path}")
    own = {split: next((path / name for name in FOLDERS[split] if (path / name).is_dir()), None) for split in FOLDERS}
    names, files = list_images(own["train"] or path)
    held_out = []
    for there in (own["validation"], own["test"]):
        if own["train"] and there:
            others, found = list_images(there)
            if others != names:
                raise ValueError(f"{there} has the classes {', '.join(others)}, the training split {', '.join(names)}")
        else:
            n, count = len(files), round(HELD_OUT * len(files))
            if not 0 < count < n:
                raise ValueError(f"{path} has too few images to hold some out: {n}")
            found, files = ([files[row] for row in rows] for rows in split_rows(n, count))
        held_out.append(found)
    return names, [files, *held_out]


def list_images(path: Path) -> tuple[tuple[str, ...], Files]:
    """The class names of a folder of classes, and all image files inside, sorted by class and path"""
    from torchvision.datasets.folder import IMG_EXTENSIONS

    classes = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(classes) < 2:
        found = f"only {classes[0].name}" if classes else "none"
        raise ValueError(f"{path} needs a folder for each of two classes or more, it has {found}")
    files = [
        (file, label)
        for label, one in enumerate(classes)
        for file in sorted(one.rglob("*"))
        if file.suffix.lower() in IMG_EXTENSIONS and not file.name.startswith(".")
    ]
    labels = {label for _, label in files}
    if empty := ", ".join(one.name for label, one in enumerate(classes) if label not in labels):
        raise ValueError(f"no images in {empty} of {path}; image files end with {', '.join(IMG_EXTENSIONS)}")
    return tuple(one.name for one in classes), files


def read_files(splits: Sequence[Files], image_size: int) -> list[Split]:
    """The images of some splits in memory, a `Split` of (n, 3, S, S) for each; ValueError if they need more than 4 GiB"""
    count = sum(map(len, splits))
    if (size := count * 3 * image_size**2 * 4) > MAX_BYTES:
        raise ValueError(
            f"{count:,} images of {image_size} x {image_size} pixels need {size / 2**30:.1f} GiB of memory; "
            "choose a smaller image_size, or write them as shards, which are read as a stream"
        )
    images = [torch.stack([read_image(file, image_size) for file, _ in files]) for files in splits]
    return [Split(x, torch.tensor([label for _, label in files])) for x, files in zip(images, splits, strict=True)]


def read_image(file: Path, image_size: int) -> Tensor:
    """An image as RGB, resized and center-cropped: (3, S, S), from 0 to 1"""
    from torchvision.transforms.v2 import functional as TF

    small = TF.resize(open_picture(file), [image_size], antialias=True)
    return TF.pil_to_tensor(TF.center_crop(small, [image_size])) / 255


def open_picture(file: str | Path) -> Image.Image:
    """Read an image file as an RGB PIL image with 8 bits per channel, rotated the way a viewer rotates it.

    Transparency is ignored: a transparent pixel keeps the color that is stored for it. For more than 8 bits see `to_rgb`.
    raises: FileNotFoundError; ValueError when the file is broken or no image, or its gray values have no known range
    """
    if not Path(file).is_file():
        raise FileNotFoundError(f"no picture at {file}")
    try:
        with Image.open(file) as raw:
            sixteen = raw.mode == "I" and raw.format in ("PNG", "PPM")  # in these formats wide numbers are 16-bit
            return to_rgb(ImageOps.exif_transpose(raw), "I;16" if sixteen else None)
    except OSError as error:  # UnidentifiedImageError is one
        raise ValueError(f"{file} is broken, or no picture: {error}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def to_rgb(picture: Image.Image, mode: str | None = None) -> Image.Image:
    """A PIL image of any mode as RGB, 8 bits per channel.  mode: how to read its gray values, by default its own mode

    Gray values of 16 bits (modes I;16...), 32-bit integers (I) and floats (F) are scaled to 0..255, black to black. In 16
    bits, white is 65535. The other two modes do not define white: integers up to 255 are read as 8-bit and others up to
    65535 as 16-bit values; floats up to 1 are multiplied by 255, others up to 255 are left as they are.
    raises: ValueError for values outside these ranges
    """
    mode = mode or picture.mode
    if mode in WHITE or mode.startswith("I;16"):
        values = np.asarray(picture).astype(np.float64)
        low, high = np.min(values), np.max(values)
        white = next((white for white in WHITE.get(mode, (65535,)) if low >= 0 and high <= white), None)
        if white is None:  # also where values are NaN
            raise ValueError(f"gray values from {low:g} to {high:g} have no known range; save it with 8 or 16 bits")
        picture = Image.fromarray((values / white * 255).round().astype(np.uint8))
    elif mode in ("P", "La"):  # PIL warns about, or refuses, the direct way
        picture = picture.convert({"P": "RGBA", "La": "LA"}[mode])
    return picture.convert("RGB")
