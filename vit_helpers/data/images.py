"""One image file: read as RGB whatever its format, or refused with a message that names it."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from vit_helpers._files import shown

WHITE = {"I": (255, 65535, 2**31 - 1), "F": (1, 255)}  # what white may be in PIL's modes of 32 bits
LEVELS = 16  # gray values that have to be left of an image when its range is guessed
IMAGE_ENDINGS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)  # as torchvision's


def open_picture(file: str | Path) -> Image.Image:
    """Read an image file, of an animation the first frame, as `to_rgb` does, rotated as an image viewer shows it.

    raises: FileNotFoundError; ValueError when the file cannot be read, is broken or not an image, or when its gray values
            have no known range. Each message names the file
    """
    content = read_bytes(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        return decode(content, file)


def read_bytes(file: str | Path) -> bytes:
    """The content of a file; FileNotFoundError or ValueError, naming it, if there is none to be read"""
    try:
        size = Path(file).stat().st_size / 2**30
        if not Path(file).is_file():  # a pipe would be waited for
            kind = "a folder, not a picture" if Path(file).is_dir() else "not a regular file"
            raise ValueError(f"{shown(file)} is {kind}")
        if size > 2:
            raise ValueError(
                f"{shown(file)} has {size:.1f} GiB; an image file may have at most 2 GiB"
            )
        return Path(file).read_bytes()
    except FileNotFoundError:
        where = (
            f": it is a link to {shown(Path(file).readlink())}, which does not exist"
            if Path(file).is_symlink()
            else ""
        )
        raise FileNotFoundError(f"no picture at {shown(file)}{where}") from None
    except OSError as error:
        raise ValueError(f"{shown(file)} cannot be read: {error.strerror or error}") from error


def decode(content: bytes, file: str | Path) -> Image.Image:
    """The content of an image file as RGB; ValueError, naming the file, if it is broken.  May be called in threads."""
    try:
        with Image.open(BytesIO(content)) as raw:
            sixteen = raw.mode == "I" and raw.format in (
                "PNG",
                "PPM",
            )  # in these formats wide numbers are 16-bit
            ImageOps.exif_transpose(raw, in_place=True)
            return to_rgb(raw, "I;16" if sixteen else None)
    except Image.UnidentifiedImageError:
        raise ValueError(
            f"{shown(file)} is damaged, or not an image: its format is unknown"
        ) from None
    except Exception as error:  # PIL raises many kinds here: OSError, SyntaxError, DecompressionBombError, struct.error, ...
        reason = shown(" ".join(str(error).split())[:200]) or type(error).__name__
        what = "" if "no known range" in reason else " is damaged, or not an image"
        raise ValueError(f"{shown(file)}{what}: {reason}") from error


def to_rgb(picture: Image.Image, mode: str | None = None) -> Image.Image:
    """A PIL image of any mode as RGB, 8 bits per channel.  mode: how to read its gray values, by default its own mode

    Transparent images get a white background, as in a browser. Gray values of 16 bits (modes I;16...), 32-bit integers (I)
    and floats (F) are scaled to 0..255. In 16 bits, white is 65535. The other two modes do not define white, which is the
    first of 255, 65535 and the largest 32-bit integer, of floats the first of 1 and 255, that no value exceeds.
    raises: ValueError for values outside these ranges, and for integers of which fewer than 16 grays would be left
    """
    mode, clear = mode or picture.mode, picture.info.get("transparency")
    if mode in WHITE or mode.startswith("I;16"):
        values = np.asarray(picture).astype(np.float64)
        low, high = values.min(), values.max()
        white = next(
            (white for white in WHITE.get(mode, (65535,)) if low >= 0 and high <= white), None
        )
        if white is None or (
            white > 65535 and high * 256 / white < LEVELS
        ):  # also where values are NaN
            raise ValueError(
                f"gray values from {low:g} to {high:g} have no known range; save the image with 8 or 16 bits"
            )
        gray = (values / white * 255).round().astype(np.uint8)
        if isinstance(clear, int):  # the one value that is transparent
            gray[values == clear] = 255
        return Image.fromarray(gray).convert("RGB")
    if clear is not None or picture.mode == "P" or picture.getbands()[-1] in ("A", "a"):
        layer = picture.convert("LA").convert("RGBA") if mode == "La" else picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), layer)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def square(picture: Image.Image, side: int) -> Any:
    """An RGB image whose shorter side becomes `side` (bilinear, antialiased), center-cropped: (3, side, side), uint8"""
    old = np.array(
        picture.size
    )  # what is cropped away is not resized first: of 1 x 5000 pixels it would need 60 MB
    new = (side * old / old.min()).astype(int)
    start = np.round((new - side) / 2)  # as torchvision crops
    box = (*(start * old / new), *np.minimum((start + side) * old / new, old))
    small = picture.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return np.array(small).transpose(2, 0, 1)
