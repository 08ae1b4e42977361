"""One image file: read as RGB whatever its format, or refused with a message that names it."""

import math
import re
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, features

from vit_helpers._files import shown

Pixels = NDArray[np.uint8]
T = TypeVar("T", float, NDArray[np.float64])

WHITE = {"I": (255, 65535, 2**31 - 1), "F": (1, 255)}  # what white may be in PIL's modes of 32 bits
WHITE_16 = 65535  # in modes of 16 bits
LEVELS = 16  # gray values that have to be left of 256 when the range is guessed
BITS_PER_SAMPLE, PHOTOMETRIC = 258, 262  # tags of TIFF
SIXTEEN = ("PNG", "PPM")  # formats in which mode I means 16 bits
MAX_GIB = 2  # of an image file
MAX_PIXELS = 2**26  # of an image, as 8192 x 8192: a file of a few KB may claim billions
CHUNK = 2**20  # gray values that are scaled at a time
# where Pillow has been built with it
AVIF = (".avif",) if "avif" in features.modules and features.check_module("avif") else ()
IMAGE_ENDINGS = (  # of the formats of pictures that Pillow reads; of an animation the first frame
    *(".jpg", ".jpeg", ".png", ".jpe", ".jfif", ".apng", ".gif", ".bmp", ".dib", ".webp", *AVIF),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".tga", ".icb", ".vda", ".vst"),
    *(".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".ico", ".pcx", ".psd", ".qoi", ".sgi"),
)
UNREAD = {  # pictures that Pillow does not read by itself: of phones, of drawings, and raw ones
    *(".heic", ".heif", ".hif", ".avif", ".jxl", ".svg", ".arw", ".cr2", ".cr3", ".dng", ".nef"),
    *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".srw", ".x3f"),
}.difference(AVIF)


class GrayRange(NamedTuple):
    """The gray values, or colors, of an image with more than 8 bits.

    low, high: the lowest and the highest
    whites   : values that white may have, in ascending order
    source   : the name of the image, for messages
    kind     : "gray"; "color", of which the upper 8 bits are read; "declared", if the file says how
               many bits there are
    """

    low: float
    high: float
    whites: tuple[int, ...]
    source: str = "the image"
    kind: str = "gray"


def open_picture(file: str | Path, white: float | None = None) -> Image.Image:
    """Read an image file, of an animation the first frame, rotated as an image viewer shows it.

    white  : the value of white, if it has more than 8 bits, see `to_rgb`
    returns: RGB
    raises : FileNotFoundError; ValueError when the file cannot be read, is broken or not an image,
             or when its gray values have no known range. Each message names the file
    """
    content = read_bytes(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL's, about images that it can read all the same
        return decode(content, file, white)


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
        message = f"no picture at {shown(path.absolute())}"
        if path.is_symlink():
            message += f": it is a link to {shown(path.readlink())}, which does not exist"
        raise FileNotFoundError(message) from None
    except OSError as error:
        raise ValueError(f"{shown(file)} cannot be read: {error.strerror or error}") from error


class _UnknownRangeError(ValueError):
    """The gray values of an image could mean more than one thing."""


class _TooLargeError(ValueError):
    """An image has too many pixels."""


def decode(content: bytes, file: str | Path, white: float | None = None) -> Image.Image:
    """Decode the content of an image file as RGB.  May be called in threads.

    white : as for `open_picture`
    raises: ValueError, naming the file, if it is broken
    """
    try:
        with Image.open(BytesIO(content)) as picture:
            check_pixels(picture.size)
            mode, bits = gray_mode(picture), declared_bits(picture)
            if has_wide_colors(picture):
                check_wide_colors(picture, white)
            ImageOps.exif_transpose(picture, in_place=True)
            return to_rgb(picture, mode, white, bits)
    except (_UnknownRangeError, _TooLargeError) as error:
        raise ValueError(f"{shown(file)}: {error}") from error
    except Exception as error:  # PIL raises many kinds: OSError, SyntaxError, struct.error, ...
        raise ValueError(f"{shown(file)} {tell_fault(Path(file), error)}") from error


def tell_fault(file: Path, error: Exception) -> str:
    """Say what is wrong with an image file that PIL could not decode."""
    ending = file.suffix.lower()
    if ending in UNREAD:
        return f"ends with {ending}, and such files are not read: convert it to JPEG or PNG"
    reason = shown(" ".join(str(error).split())[:200]) or type(error).__name__
    if isinstance(error, Image.UnidentifiedImageError):
        reason = "its format is unknown"
    return f"is damaged, or not an image: {reason}"


def check_pixels(size: tuple[int, int]) -> None:
    """Raise `_TooLargeError` for an image of more than `MAX_PIXELS`.  size: (W, H)"""
    width, height = size
    if width * height > MAX_PIXELS:
        raise _TooLargeError(
            f"it has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}: make it smaller"
        )


def measure_grays(file: Path, content: bytes | None = None) -> GrayRange | None:
    """Measure the gray values of an image file; None if it has 8 bits, or if it is broken.

    Of an image with 8 bits only the beginning is read.  May be called in threads.
    content: of the file, if it has been read
    """
    try:
        if content is None and not file.is_file():  # a pipe would be waited for
            return None
        with Image.open(file if content is None else BytesIO(content)) as picture:
            check_pixels(picture.size)
            mode, bits = gray_mode(picture), declared_bits(picture)
            if has_wide_colors(picture):
                return measure_wide_colors(picture, shown(file))
            if mode is None:
                return None
            values = np.asarray(picture)
            low, high = (scale_bits(float(value), bits) for value in (values.min(), values.max()))
    except Exception:  # of many kinds; whoever reads the image names the file
        return None
    kind = "gray" if bits == 16 else "declared"
    found = GrayRange(low, high, WHITE.get(mode, (WHITE_16,)), shown(file), kind)
    return found if found.low >= 0 and np.isfinite(found.high) else None


def gray_mode(picture: Image.Image) -> str | None:
    """Return the mode of a picture whose gray values have more than 8 bits; None for others."""
    if picture.mode == "I" and picture.format in SIXTEEN:
        return "I;16"
    return picture.mode if picture.mode in WHITE or picture.mode.startswith("I;16") else None


def has_wide_colors(picture: Image.Image) -> bool:
    """Say whether a file that was just opened has colors of 16 bits.

    Pillow reads the upper 8 of them, and of a gray image with alpha.
    """
    for codec, _, _, args in picture.tile[:1]:
        raw_mode = args[0] if isinstance(args, tuple) and args else args
        return bool(re.search("SGI16|;16[BLN]", f"{codec} {raw_mode}")) and not gray_mode(picture)
    return False


def measure_wide_colors(picture: Image.Image, source: str = "the image") -> GrayRange:
    """Measure colors of 16 bits as gray values are.  What is read as 0 may be up to 255."""
    extrema = picture.convert("RGB").getextrema()
    lows, highs = zip(*extrema, strict=True)
    high = max(255.0, 257.0 * max(highs))
    return GrayRange(257.0 * min(lows), high, (WHITE_16,), source, "color")


def check_wide_colors(picture: Image.Image, white: float | None) -> None:
    """Raise `_UnknownRangeError` if colors of 16 bits have another white than 65535.

    Too few of their bits are read for that.
    """
    if white is None:
        white = choose_white([measure_wide_colors(picture)])
    if white != WHITE_16:
        raise _UnknownRangeError(
            f"of colors of 16 bits the upper 8 are read, which needs white to be {WHITE_16}, "
            f"but it is {white:g}: save the image with 8 bits"
        )


def is_inverted(picture: Image.Image) -> bool:
    """Say whether 0 is white in a TIFF of gray values, which Pillow obeys for 8 bits alone."""
    return getattr(picture, "tag_v2", {}).get(PHOTOMETRIC) == 0


def declared_bits(picture: Image.Image) -> int:
    """Return how many bits the gray values of a file that was just opened have at most.

    TIFF may say that there are 12, which Pillow reads as 16.
    """
    tags = getattr(picture, "tag_v2", {}) if picture.mode.startswith("I;16") else {}
    return min(16, max(tags.get(BITS_PER_SAMPLE, (16,))))


def check_white(white: float | None) -> None:
    """Raise ValueError for what cannot be the value of white; None is for an unknown one."""
    if white is not None and not (isinstance(white, int | float) and white > 0):
        raise ValueError(f"white must be a number above 0, got {white!r}")


def is_dark(high: float, white: float) -> bool:
    """Say whether gray values up to `high` would become fewer than 16 of 256 grays.

    Black alone does not: it is black whatever white is.
    """
    return 0 < high * 256 / white < LEVELS


def choose_white(ranges: Sequence[GrayRange]) -> float:
    """Choose what white is in images with more than 8 bits, the same for all of a data set.

    It is the first value that white may have in each, and that no value exceeds.
    raises: ValueError if there is none, or if it would leave fewer than 16 grays
    """
    low, high = min(grays.low for grays in ranges), max(grays.high for grays in ranges)
    whites = [white for white in ranges[0].whites if all(white in r.whites for r in ranges)]
    white = next((white for white in whites if low >= 0 and high <= white), None)  # None for NaN
    if white is None:
        advice = f"save the images with 8 or 16 bits, or say what white is: {white_option('N')}"
        raise _UnknownRangeError(
            f"gray values from {low:g} to {high:g} have no known range; {advice}"
        )
    if is_dark(high, white):
        raise _UnknownRangeError(
            f"{tell_brightest(ranges)}: almost black if white is {white}. "
            f"{advise_white(ranges, white)}"
        )
    return white


def warn_of_half(ranges: Sequence[GrayRange], white: float) -> None:
    """Warn if no value is above half of the white that was found: the camera may have fewer bits.

    Values of 32 bits that fit into 8 and files that declare their bits are not doubted.
    """
    high = max(grays.high for grays in ranges)
    declared = any(grays.kind == "declared" for grays in ranges)
    if white >= WHITE_16 and 0 < high < white / 2 and not declared:
        warnings.warn(
            f"{tell_brightest(ranges)}; white is taken to be {white:.10g}. "
            f"{advise_white(ranges, white)}",
            stacklevel=3,
        )


def tell_brightest(ranges: Sequence[GrayRange]) -> str:
    """Say what the highest value of all images is, and in which."""
    brightest = max(ranges, key=lambda grays: grays.high)
    high = brightest.high
    none_above = f"no value above {f'{high:.0f}' if high >= 1000 else f'{high:g}'}"
    if len(ranges) == 1:
        return f"{brightest.source} has more than 8 bits but {none_above}"
    return (
        f"{len(ranges):,} images have more than 8 bits but {none_above} "
        f"(brightest: {brightest.source})"
    )


def advise_white(ranges: Sequence[GrayRange], white: float) -> str:
    """Say how to correct a white that leaves all images dark; colors have only one."""
    if any(grays.kind == "color" for grays in ranges):
        option = white_option(f"{white:.10g}")
        return f"Save them brighter, with 8 bits, or keep them so with {option}"
    high = max(grays.high for grays in ranges)
    bits = math.ceil(high).bit_length()
    tens = 10 ** (1 - math.floor(math.log10(high)))  # to round up to two digits
    likely = f"{2**bits - 1}" if white > 1 else f"{math.ceil(high * tens) / tens:g}"
    camera = f"the camera has {bits} bits" if 8 < bits <= 16 else f"{likely} is white"
    return f"If {camera}, add {white_option(likely)}"


def white_option(white: str) -> str:
    """Say how a value of white is given: to commands, in Python, and in a table of `ablate`.

    >>> white_option("4095")
    '--white 4095 (in Python: white=4095; for ablate: white = 4095 under [baseline])'
    """
    return (
        f"--white {white} (in Python: white={white}; for ablate: white = {white} under [baseline])"
    )


def to_rgb(
    picture: Image.Image, mode: str | None = None, white: float | None = None, bits: int = 16
) -> Image.Image:
    """Convert a PIL image of any mode to RGB, 8 bits per channel.

    Transparent images get a white background, as in a browser. Gray values of 16 bits (modes
    I;16...), 32-bit integers (I) and floats (F) are scaled to 0..255.

    mode  : how to read its gray values, by default its own mode
    white : their value of white, which should be that of the data set; by default it is chosen for
            this image alone: 65535 in 16 bits, else the first of 255, 65535 and the largest 32-bit
            integer, of floats the first of 1 and 255, that no value exceeds
    bits  : that values of 16 bits really have
    raises: ValueError for values outside these ranges, and where fewer than 16 grays would be left
            by a white that is not given
    """
    mode = mode or picture.mode
    if mode in WHITE or mode.startswith("I;16"):
        return gray_to_rgb(picture, WHITE.get(mode, (WHITE_16,)), white, bits)
    has_alpha = picture.getbands()[-1] in ("A", "a")
    if picture.info.get("transparency") is not None or picture.mode == "P" or has_alpha:
        layer = picture.convert("LA") if mode == "La" else picture
        background = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(background, layer.convert("RGBA"))
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def scale_bits(values: T, bits: int) -> T:
    """Scale values of this many bits, numbers or an array of them, to 16."""
    return values if bits == 16 else values * WHITE_16 / (2**bits - 1)


def gray_to_rgb(
    picture: Image.Image, whites: tuple[int, ...], white: float | None, bits: int
) -> Image.Image:
    """Scale wide gray values to 0..255.  whites: values that white may have, in ascending order"""
    values = np.asarray(picture)
    low, high = (scale_bits(float(value), bits) for value in (values.min(), values.max()))
    if white is None:
        white = choose_white([GrayRange(low, high, whites)])
    if not (low >= 0 and high <= white):  # as for NaN
        raise _UnknownRangeError(f"gray values from {low:g} to {high:g}, but white is {white:g}")
    gray = to_8_bits(values, white, bits)
    if is_inverted(picture):
        gray = 255 - gray
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):  # the one value that is
        gray[values == transparent] = 255
    return Image.fromarray(gray).convert("RGB")


def to_8_bits(values: NDArray[Any], white: float, bits: int) -> Pixels:
    """Scale values from 0 to white to 0..255, a few at a time: in float64 all take much memory.

    bits: that values of 16 bits really have
    """
    gray = np.empty(values.shape, np.uint8)
    flat, numbers = gray.reshape(-1), values.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        part = scale_bits(numbers[start : start + CHUNK].astype(np.float64), bits)
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
