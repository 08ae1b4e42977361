"""Your own images: a folder with a folder for each class."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from vit_helpers.data.splits import Data, Split, split_rows

TRAIN, VALIDATION, TEST = ("train",), ("validation", "valid", "val"), ("test",)  # names of parts, where a folder has them
HELD_OUT = 0.15  # share of the images for a part that has no folder of its own
MOST = 4 * 2**30  # bytes in memory
WHITE = {"I": (255, 65535), "F": (1, 255)}  # what white may be in PIL's modes of 32 bits


class Files(NamedTuple):
    """Image files of a part, not read yet.  files: n paths;  labels: (n,), int64"""

    files: list
    labels: torch.Tensor


def folder(path, image_size=64):
    """Images of any size and mode, in a folder for each class, as `Data` in memory.

    path      : the folder. Holds the classes; or train/, and test/ and validation/ or val/, that hold them. What of the last
                two is not there is drawn from the images, the same each time: 15% each.
    image_size: side S of the square: shrunk or grown so that the shorter side is S, then cut to its middle; as RGB
    raises    : ValueError or FileNotFoundError, naming the folder or the file, when there are no images, less than two
                classes, a file that is no picture, or a part that comes out empty
    """
    names, parts = list_parts(path)
    return Data.of(Path(path).name, *read_files(parts, image_size), names)


def list_parts(path):
    """The class names of a folder, and its training, validation and test part as `Files`; no picture is read"""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"no folder at {path}")
    train = part_folder(path, TRAIN)
    names, files = list_images(train or path)
    parts = {}
    if train:
        for part, known in (("validation", VALIDATION), ("test", TEST)):
            if found := part_folder(path, known):
                others, parts[part] = list_images(found)
                if others != names:
                    raise ValueError(f"{found} has the classes {', '.join(others)}, the training part {', '.join(names)}")
    for part in ("validation", "test"):
        if part not in parts:
            parts[part], files = hold_out(files, path)
    return names, (files, parts["validation"], parts["test"])


def part_folder(path, names):
    """The folder of a part, or None"""
    return next((path / name for name in names if (path / name).is_dir()), None)


def hold_out(part, path):
    """Some of a part's files as a part of their own, and the rest"""
    n = len(part.files)
    count = round(HELD_OUT * n)
    if not 0 < count < n:
        raise ValueError(f"{path} has too few images to hold some out: {n}")
    return [Files([part.files[row] for row in rows.tolist()], part.labels[rows]) for rows in split_rows(n, count)]


def list_images(path):
    """The class names of a folder of classes, and all its image files"""
    classes = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(classes) < 2:
        found = f"only {classes[0].name}" if classes else "none"
        raise ValueError(f"{path} needs a folder for each of two classes or more, it has {found}")
    files = [image_files(one) for one in classes]
    if empty := [one.name for one, found in zip(classes, files, strict=True) if not found]:
        raise ValueError(f"no images in {', '.join(empty)} of {path}; image files end with {', '.join(endings())}")
    labels = torch.tensor([label for label, found in enumerate(files) for _ in found])
    return tuple(one.name for one in classes), Files([file for found in files for file in found], labels)


def read_files(parts, image_size):
    """The images of some parts, all in memory: `Files` -> a `Split` of (n, 3, S, S) each"""
    count = sum(len(part.files) for part in parts)
    if (size := count * 3 * image_size**2 * 4) > MOST:
        raise ValueError(
            f"{count:,} images of {image_size} x {image_size} pixels take {size / 2**30:.1f} GiB of memory; "
            "choose a smaller image_size, or write them as shards, which are read as a stream"
        )
    return [Split(torch.stack([read_image(file, image_size) for file in files]), labels) for files, labels in parts]


def read_images(path, image_size):
    """All images of a folder of classes: the class names, and a `Split` of (n, 3, S, S)"""
    names, files = list_images(path)
    return names, *read_files([files], image_size)


def endings():
    """What the names of image files end with"""
    from torchvision.datasets.folder import IMG_EXTENSIONS

    return IMG_EXTENSIONS


def image_files(path):
    """The image files under a folder, in order of their names"""
    return sorted(p for p in path.rglob("*") if p.suffix.lower() in endings() and not p.name.startswith("."))


def read_image(file, image_size):
    """One picture as RGB, its middle square: (3, S, S), from 0 to 1"""
    from torchvision.transforms import functional as TF

    small = TF.resize(open_picture(file), image_size, antialias=True)
    return TF.pil_to_tensor(TF.center_crop(small, image_size)) / 255


def open_picture(file):
    """Read an image file as an RGB PIL image with 8 bits per channel, rotated the way a viewer rotates it.

    Grayscale images with more than 8 bits are scaled to 8, as `gray_to_8_bits` says. Transparency is ignored: a
    transparent pixel keeps the color that is stored for it.
    raises: FileNotFoundError; ValueError when the file is broken or not an image, or when the range of its gray values
            cannot be known
    """
    from PIL import Image, ImageOps

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


def to_rgb(picture, mode=None):
    """A PIL image of any mode as RGB, 8 bits per channel.  mode: how to read its gray values, by default its own mode"""
    mode = mode or picture.mode
    if mode in WHITE or mode.startswith("I;16"):
        picture = gray_to_8_bits(picture, mode)
    elif mode in ("P", "La"):  # PIL warns about, or refuses, the direct way
        picture = picture.convert({"P": "RGBA", "La": "LA"}[mode])
    return picture.convert("RGB")


def gray_to_8_bits(picture, mode):
    """Scale gray values of 16 bits (modes I;16...), of 32-bit integers (I) or of floats (F) to 0..255, black to black.

    In 16 bits, white is 65535. The other two modes do not define white: integers up to 255 are read as 8-bit and others up
    to 65535 as 16-bit values; floats up to 1 are multiplied by 255, others up to 255 are left as they are.
    raises: ValueError for values outside these ranges
    """
    from PIL import Image

    values = np.asarray(picture).astype(np.float64)
    low, high = values.min(), values.max()
    white = next((white for white in WHITE.get(mode, (65535,)) if low >= 0 and high <= white), None)
    if white is None:  # also where values are NaN
        raise ValueError(f"gray values from {low:g} to {high:g} have no range that is known; save it with 8 or 16 bits")
    return Image.fromarray((values / white * 255).round().astype(np.uint8))
