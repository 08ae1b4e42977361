"""One image file: read as RGB whatever its format, or refused with a message that names it."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vit_helpers._files import shown

Pixels = NDArray[np.uint8]

WHITE = {"I": (255, 65535, 2**31 - 1), "F": (1, 255)}  # what white may be in PIL's modes of 32 bits
WHITE_16 = 65535  # in modes of 16 bits
LEVELS = 16  # gray values that have to be left of an image when its range is guessed
SIXTEEN = ("PNG", "PPM")  # formats in which mode I means 16 bits
MAX_GIB = 2  # of an image file
MAX_PIXELS = 2**26  # of an image, as 8192 x 8192: a file of a few KB may claim billions
CHUNK = 2**20  # gray values that are scaled at a time
IMAGE_ENDINGS = (  # as torchvision's
    *(".jpg", ".jpeg", ".png", ".ppm", ".bmp"),
    *(".pgm", ".tif", ".tiff", ".webp"),
)


def open_picture(file: str | Path) -> Image.Image:
    """Read an image file, of an animation the first frame, rotated as an image viewer shows it.

    returns: RGB, see `to_rgb`
    raises : FileNotFoundError; ValueError when the file cannot be read, is broken or not an image,
             or when its gray values have no known range. Each message names the file
    """
    content = read_bytes(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        return decode(content, file)


def read_bytes(file: str | Path) -> bytes:
    """Read a file; FileNotFoundError or ValueError, naming it, if that cannot be done."""
    path = Path(file)
    try:
        size = path.stat().st_size / 2**30
        if path.is_dir():
            raise ValueError(f"{shown(file)} is a folder, not a picture")
        if not path.is_file():  # a pipe would be waited for
            raise ValueError(f"{shown(file)} is not a regular file")
        if size > MAX_GIB:
            raise ValueError(
                f"{shown(file)} has {size:.1f} GiB; an image file may have at most {MAX_GIB} GiB"
            )
        return path.read_bytes()
    except FileNotFoundError:
        message = f"no picture at {shown(file)}"
        if path.is_symlink():
            message += f": it is a link to {shown(path.readlink())}, which does not exist"
        raise FileNotFoundError(message) from None
    except OSError as error:
        raise ValueError(f"{shown(file)} cannot be read: {error.strerror or error}") from error


class _UnknownRangeError(ValueError):
    """The gray values of an image could mean more than one thing."""


class _TooLargeError(ValueError):
    """An image has too many pixels."""


def decode(content: bytes, file: str | Path) -> Image.Image:
    """Decode the content of an image file as RGB.  May be called in threads.

    raises: ValueError, naming the file, if it is broken
    """
    try:
        with Image.open(BytesIO(content)) as picture:
            check_pixels(picture.size)
            is_16_bit = picture.mode == "I" and picture.format in SIXTEEN
            ImageOps.exif_transpose(picture, in_place=True)
            return to_rgb(picture, "I;16" if is_16_bit else None)
    except (_UnknownRangeError, _TooLargeError) as error:
        raise ValueError(f"{shown(file)}: {error}") from error
    except Image.UnidentifiedImageError:
        message = "is damaged, or not an image: its format is unknown"
        raise ValueError(f"{shown(file)} {message}") from None
    except Exception as error:  # PIL raises many kinds: OSError, SyntaxError, struct.error, ...
        reason = shown(" ".join(str(error).split())[:200]) or type(error).__name__
        raise ValueError(f"{shown(file)} is damaged, or not an image: {reason}") from error


def check_pixels(size: tuple[int, int]) -> None:
    """Raise `_TooLargeError` for an image of more than `MAX_PIXELS`.  size: (W, H)"""
    width, height = size
    if width * height > MAX_PIXELS:
        raise _TooLargeError(
            f"it has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}: make it smaller"
        )


def to_rgb(picture: Image.Image, mode: str | None = None) -> Image.Image:
    """Convert a PIL image of any mode to RGB, 8 bits per channel.

    Transparent images get a white background, as in a browser. Gray values of 16 bits (modes
    I;16...), 32-bit integers (I) and floats (F) are scaled to 0..255. In 16 bits, white is 65535.
    The other two modes do not define white, which is the first of 255, 65535 and the largest
    32-bit integer, of floats the first of 1 and 255, that no value exceeds.

    mode  : how to read its gray values, by default its own mode
    raises: ValueError for values outside these ranges, and for integers of which fewer than
            16 grays would be left
    """
    mode = mode or picture.mode
    if mode in WHITE or mode.startswith("I;16"):
        return gray_to_rgb(picture, WHITE.get(mode, (WHITE_16,)))
    has_alpha = picture.getbands()[-1] in ("A", "a")
    if picture.info.get("transparency") is not None or picture.mode == "P" or has_alpha:
        layer = picture.convert("LA") if mode == "La" else picture
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, layer.convert("RGBA"))
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def gray_to_rgb(picture: Image.Image, whites: tuple[int, ...]) -> Image.Image:
    """Scale wide gray values to 0..255.  whites: values that white may have, in ascending order"""
    values = np.asarray(picture)
    low, high = float(values.min()), float(values.max())
    white = next((white for white in whites if low >= 0 and high <= white), None)  # None for NaN
    if white is None or (white > WHITE_16 and high * 256 / white < LEVELS):
        message = "have no known range; save the image with 8 or 16 bits"
        raise _UnknownRangeError(f"gray values from {low:g} to {high:g} {message}")
    gray = to_8_bits(values, white)
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):  # the one value that is
        gray[values == transparent] = 255
    return Image.fromarray(gray).convert("RGB")


def to_8_bits(values: NDArray[Any], white: float) -> Pixels:
    """Scale values from 0 to white to 0..255, a few at a time: in float64 all take much memory."""
    gray = np.empty(values.shape, np.uint8)
    flat, numbers = gray.reshape(-1), values.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        part = numbers[start : start + CHUNK].astype(np.float64)
        flat[start : start + CHUNK] = (part / white * 255).round()
    return gray


def square(picture: Image.Image, side: int) -> Pixels:
    """Resize the shorter side of an RGB image (bilinear, antialiased) and crop its center.

    returns: (3, side, side), uint8
    """
    # what is cropped away is not resized first: of 1 x 5000 pixels it would need 60 MB
    size = np.array(picture.size)
    resized = (side * size / size.min()).astype(int)
    start = np.round((resized - side) / 2)  # as torchvision crops
    end = np.minimum((start + side) * size / resized, size)
    box = (*(start * size / resized), *end)
    small = picture.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return np.array(small).transpose(2, 0, 1)
