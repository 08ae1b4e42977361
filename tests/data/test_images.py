"""Image files of every kind, good and bad: modes, sizes, ranges, and what cannot be read."""

import io
import math
import os
import random
import struct
import warnings
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import save
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from vit_helpers.cli import main
from vit_helpers.data import load, reading
from vit_helpers.data.folders import find_images, folder
from vit_helpers.data.images import open_picture, square, to_rgb
from vit_helpers.data.reading import make_splits, read_pixels
from vit_helpers.data.shards import write_shards_of_folder

FORMATS = {
    "JPEG": "RGB",
    "PNG": "RGBA",
    "GIF": "P",
    "BMP": "RGB",
    "TIFF": "RGB",
    "WEBP": "RGB",
    "PPM": "RGB",
    "JPEG2000": "RGB",
}
SIZE = 12


def noise(size=(SIZE, SIZE), seed=0):
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (*size, 3)).astype(np.uint8)
    )


def encoded(kind, mode="RGB", seed=0):
    file = io.BytesIO()
    noise(seed=seed).convert(mode).save(file, kind)
    return file.getvalue()


# What a file is


def bomb(path):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 20000, 20000, 1, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + bytes(4)
        + b"IDAT"
        + bytes(4)
    )


def header(path):
    content = bytearray(encoded("PNG"))
    content[16:29] = b"\0" * 13
    path.write_bytes(content)


def huge(path):
    path.touch()
    os.truncate(path, 20 * 2**30)  # on the disk it needs nothing


def denied(path, monkeypatch):
    save(path, 0)
    right = Path.read_bytes

    def read(self):
        if self.name == path.name:
            raise PermissionError(13, "Permission denied", str(self))
        return right(self)

    monkeypatch.setattr(Path, "read_bytes", read)


FAULTS = {
    "a bomb": (bomb, "is damaged, or not an image: Image size .* exceeds limit"),
    "a broken header": (header, "is damaged, or not an image: "),
    "no picture": (
        lambda path: path.write_bytes(b"no picture"),
        "is damaged, or not an image: its format is unknown",
    ),
    "nothing": (lambda path: path.touch(), "is damaged, or not an image: its format is unknown"),
    "cut": (lambda path: path.write_bytes(encoded("JPEG")[:300]), "is damaged, or not an image: "),
    "a link to nothing": (
        lambda path: path.symlink_to(path.with_name("gone")),
        "no picture at .*: it is a link to .*gone, which",
    ),
    "20 GiB": (huge, r"has 20\.0 GiB; an image file may have at most 2 GiB"),
    "a pipe": (lambda path: os.mkfifo(path), "is not a regular file"),
    "not allowed": (denied, "cannot be read: Permission denied"),
}


@pytest.mark.parametrize("ending", [".HEIC", ".nef", ".txt"])
def test_a_picture_that_is_not_read_is_not_called_damaged(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    path.write_bytes(b"no picture for Pillow")
    with pytest.raises(ValueError, match=rf"x\{ending} ") as refused:
        open_picture(path)
    says = "is damaged" if ending == ".txt" else f"ends with {ending.lower()}, "
    assert says in str(refused.value)
    Image.new("RGB", (2, 2)).save(path, format="PNG")  # with another name than its format
    assert open_picture(path).size == (2, 2)


POSIX = {"20 GiB", "a pipe"}  # Windows has no such pipes, and takes room for empty space in a file


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_is_named_by_folder_shards_and_predict(
    fault, pets, tmp_path, monkeypatch, capsys
):
    if os.name == "nt" and fault in POSIX:
        pytest.skip("not on Windows")
    make, says = FAULTS[fault]
    bad = pets / "cat" / "a bad one.jpg"
    make(bad, monkeypatch) if make is denied else make(bad)
    for read in (
        lambda: open_picture(bad),
        lambda: folder(pets, 8),
        lambda: write_shards_of_folder(pets, tmp_path / "new", 8),
    ):
        with (
            warnings.catch_warnings(),
            pytest.raises((ValueError, FileNotFoundError), match=rf"a bad one\.jpg.*{says}|{says}"),
        ):
            read()
    assert main(["predict", str(bad), "--weights", "ours:seven"]) == 1
    assert main(["shards", f"folder:{pets}", str(tmp_path / "new")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert (
        len(said) == 2
        and all("a bad one.jpg" in line for line in said)
        and not (tmp_path / "new").exists()
    )


def test_mutations_of_valid_files_are_read_or_refused():
    good, draw, read = (
        {kind: encoded(kind, mode) for kind, mode in FORMATS.items()},
        random.Random(0),
        0,
    )
    for number in range(2000):
        content = bytearray(draw.choice(list(good.values())))
        for _ in range(draw.choice((1, 1, 2, 8))):
            place = draw.randrange(min(len(content), draw.choice((32, 64, len(content)))))
            content[place] = draw.choice((0, 255, 127, draw.randrange(256)))
        if number % 5 == 0:
            del content[draw.randrange(len(content)) :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                picture = reading.decode(bytes(content), "x.jpg")
            except ValueError as error:
                assert str(error).startswith("x.jpg") and "\n" not in str(error)
            else:
                assert picture.mode == "RGB"
                read += picture.size == (SIZE, SIZE)
    assert 200 < read < 1800


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    for name in ("x.gif", "x.webp", "x.png", "x.tiff"):
        frames[0].save(
            tmp_path / name,
            save_all=True,
            append_images=frames[1:],
            **({"lossless": True} if "webp" in name else {}),
        )
        assert open_picture(tmp_path / name).getpixel((4, 4)) == (255, 0, 0)


def test_a_transparent_gray_value_of_16_bits_is_white(tmp_path):
    Image.fromarray(np.array([[0, 500], [500, 65535]], np.uint16)).save(
        tmp_path / "x.png", transparency=500
    )
    assert np.array(open_picture(tmp_path / "x.png"))[:, :, 0].tolist() == [[0, 255], [255, 255]]


@pytest.mark.parametrize(
    "size", [(50, 37), (37, 50), (64, 64), (9, 31), (1, 500), (500, 1), (7, 7)]
)
def test_a_square_is_that_of_torchvision(size):
    from torchvision.transforms.v2 import functional as TF

    picture = noise(size[::-1])
    want = np.asarray(TF.center_crop(TF.resize(picture, [16], antialias=True), [16])).transpose(
        2, 0, 1
    )
    assert np.abs(square(picture, 16).astype(int) - want).max() <= 1


# Bad files together


# Each file once


# Splits


# In memory


# The cache


# The commands


def test_shards_count_their_classes(pets, tmp_path, capsys):
    from vit_helpers.cli.outputs import describe

    data = load(f"shards:{write_shards_of_folder(pets, tmp_path / 'new', 6)}")
    assert data.class_counts == [60, 40] and describe(data).startswith(
        "2 classes: cat (60), dog (40)\n"
    )
    data.class_counts, data.class_names = [5] * 12, tuple(f"{n}" for n in range(12))
    assert ", 9 (5), and 2 more\n" in describe(data)


@pytest.mark.parametrize("shape", [(1, 300_000), (300_000, 1)])
def test_of_a_thin_image_only_the_middle_is_resized(monkeypatch, shape):
    """Resized as a whole it would have 20 million pixels"""
    from vit_helpers.pretrained import Preprocess

    right, ramp = Image.Image.resize, np.linspace(0, 255, 300_000).astype(np.uint8).reshape(shape)

    def resize(self, size, *more):
        assert size[0] * size[1] < 10_000
        return right(self, size, *more)

    monkeypatch.setattr(Image.Image, "resize", resize)
    seen = Preprocess(8, (8, 8), "bicubic", (0.0,) * 3, (1.0,) * 3)(
        Image.fromarray(ramp).convert("RGB")
    )
    assert seen.mean() == pytest.approx(0.5, abs=0.01)


def test_what_a_model_gets_of_an_image_has_its_range_too():
    from vit_helpers.pretrained import Preprocess

    one = Preprocess(8, (8, 8), "bicubic", (0.0,) * 3, (1.0,) * 3)
    wide = Image.fromarray(np.full((9, 9), 2**15, np.uint16))
    assert one(wide).mean() == pytest.approx(0.5, abs=0.01)  # not white
    assert (one(Image.new("RGBA", (9, 9))) == 1).all()  # not black
    edges = one(torch.eye(16).expand(3, 16, 16))
    assert edges.min() >= 0 and edges.max() <= 1


def picture(path, color, size=(30, 20), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)


def test_any_mode_and_size_is_read_as_the_middle_of_an_rgb_square(tmp_path):
    path = tmp_path / "mixed"
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = (255, 0, 0)
    (path / "a").mkdir(parents=True)
    Image.fromarray(wide).save(path / "a" / "wide.png")
    Image.fromarray(wide).convert("P").save(path / "a" / "palette.gif.png")
    modes = {"L": 255, "RGBA": (255, 255, 255, 9), "CMYK": (0, 0, 0, 0), "1": 1, "LA": (255, 9)}
    for mode, white in modes.items():
        picture(path / "b" / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}", white, (12, 12), mode)
    picture(path / "c" / "black.png", (0, 0, 0))
    names, found = find_images(path)
    reading, pixels = read_pixels(found, 10)
    data, _, _ = make_splits(reading.files, pixels)
    every, labels = data.images, data.labels
    assert names == ("a", "b", "c") and len(labels) == 8
    red = torch.tensor([1.0, 0, 0]).view(3, 1, 1).expand(3, 10, 10)
    assert all(torch.allclose(image, red, atol=0.02) for image in every[labels == 0])
    assert torch.allclose(every[labels == 1], torch.ones(()), atol=0.02)


RAMP = np.tile(np.arange(0, 256, 17, dtype=np.uint8), (16, 1))  # 16 grays, black on the left


GRAYS, COLORS = (
    ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N", "I", "F"),
    ("CMYK", "YCbCr", "LAB", "HSV"),
)


MODES = (*GRAYS, *COLORS, "P", "PA", "RGB", "RGBX", "RGBA", "RGBa")


KEPT_AS = {
    "PNG": "1 L LA P RGB RGBA I;16",
    "TIFF": "PA CMYK YCbCr LAB I;16B I F",
    "JPEG2000": "I;16",
    "PPM": "I;16",
}


def ramp(mode):
    """A picture of `RAMP` as PIL has it in a mode"""
    gray = Image.fromarray(RAMP)
    if mode.startswith("I;16"):
        order = {"I;16B": ">u2", "I;16N": "=u2"}.get(mode, "<u2")
        return Image.frombytes(
            mode, (16, 16), (RAMP.astype(np.uint16) * 257).astype(order).tobytes()
        )
    if mode in ("I", "F"):
        return Image.fromarray(
            RAMP.astype(np.int32) * 257 if mode == "I" else RAMP.astype(np.float32) / 255
        )
    if mode in ("La", "RGBa", "PA"):
        return gray.convert({"La": "LA"}.get(mode, "RGBA")).convert(mode)
    if mode in ("1", "P"):
        return (
            gray.point(lambda v: 255 * (v > 127)).convert("1") if mode == "1" else gray.quantize(16)
        )
    return gray.convert("RGB").convert(mode)


def assert_is_ramp(image, mode, tolerance=2 / 255):
    """image: (3, 16, 16), from 0 to 1"""
    want = torch.from_numpy(RAMP).float() / 255
    assert (image - (want.round() if mode == "1" else want)).abs().max() <= tolerance


@pytest.mark.parametrize("mode", MODES)
def test_a_ramp_keeps_its_range_in_every_mode(mode):
    rgb = to_rgb(ramp(mode))
    assert rgb.mode == "RGB"
    assert_is_ramp(torch.from_numpy(np.array(rgb)).permute(2, 0, 1) / 255, mode)


@pytest.mark.parametrize(
    ("kind", "mode"), [(kind, mode) for kind, modes in KEPT_AS.items() for mode in modes.split()]
)
def test_folders_shards_and_predict_read_a_ramp_of_every_mode(tmp_path, kind, mode):
    for part, name in product(("train", "val", "test"), "ab"):
        # PIL tells formats apart by what is inside the file
        path = tmp_path / "x" / part / name / "1.png"
        path.parent.mkdir(parents=True)
        ramp(mode).save(path, kind)
        # no copies; what follows an image is not read
        path.write_bytes(path.read_bytes() + f"{part} {name}".encode())
    for image in load(f"folder:{tmp_path / 'x'}", image_size=16).test.images:
        assert_is_ramp(image, mode)
    assert_is_ramp(pil_to_tensor(open_picture(path)) / 255, mode)
    if mode == "I;16":
        data = load(f"shards:{write_shards_of_folder(tmp_path / 'x', tmp_path / 'y', 16)}")
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
        for images, _ in data.batches("test", 4):
            assert_is_ramp(images[0] * std + mean, mode)


@pytest.mark.parametrize(
    ("values", "white"),
    [
        ((0, 1, 255), 255),
        ((0, 1, 4096), 65535),
        ((0, 300, 65535), 65535),
        ((0, 2**30, 2**31 - 1), 2**31 - 1),
        ((0.0, 0.5, 1.0), 1),
        ((0.0, 1.5, 255.0), 255),
    ],
)
def test_the_range_of_wide_numbers_is_the_smallest_usual_one(values, white):
    array = np.array([values], dtype=np.float32 if isinstance(values[0], float) else np.int32)
    assert np.array(to_rgb(Image.fromarray(array)))[0, :, 0].tolist() == [
        round(255 * v / white) for v in values
    ]


@pytest.mark.parametrize(
    "values",
    [(-1, 3), (0, 65536), (0, 2**26), (-0.1, 1.0), (0.0, 300.0), (0.0, math.nan), (0.0, math.inf)],
)
def test_a_range_that_cannot_be_known_is_refused(tmp_path, values):
    array = np.array([values], dtype=np.float32 if isinstance(values[0], float) else np.int32)
    Image.fromarray(array).save(tmp_path / "x.tif")
    with pytest.raises(
        ValueError,
        match=r"x\.tif: .*--white (N|131071|134217727) ",
    ):
        open_picture(tmp_path / "x.tif")


def test_16_bits_are_16_bits_in_a_dark_picture_too(tmp_path):
    for name in ("x.png", "x.pgm", "x.tif"):
        Image.fromarray(np.full((2, 2), 257, np.uint16)).save(tmp_path / name)
        assert np.array(open_picture(tmp_path / name, white=65535)).max() == 1


@pytest.mark.parametrize("mode", ["LA", "RGBA", "P"])
@pytest.mark.parametrize("alpha", [0, 255])
def test_what_is_transparent_is_put_on_white(tmp_path, mode, alpha):
    clear = Image.new("RGBA", (4, 4), (90, 90, 90, alpha))
    if mode == "P":
        clear.convert("RGB").quantize(4).save(tmp_path / "x.png", transparency=bytes([alpha] * 4))
    else:
        clear.convert(mode).save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as kept:
        assert kept.mode == mode and kept.convert("RGBA").getpixel((0, 0))[3] == alpha
    assert open_picture(tmp_path / "x.png").getpixel((0, 0)) == (
        (90, 90, 90) if alpha else (255, 255, 255)
    )


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_16_bits_on_their_side_are_turned(tmp_path, mode):
    ramp(mode).save(tmp_path / "x.tif", tiffinfo={0x0112: 6})
    turned = pil_to_tensor(open_picture(tmp_path / "x.tif")) / 255
    assert_is_ramp(turned.transpose(1, 2), mode)


def test_a_photo_that_says_it_lies_on_its_side_is_turned(tmp_path):
    array = np.zeros((20, 20, 3), np.uint8)
    array[:10] = 255  # white on top
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    for name in "ab":
        (tmp_path / "x" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(array).save(tmp_path / "x" / name / f"{i}.jpg", exif=exif)
    _, found = find_images(tmp_path / "x")
    reading, pixels = read_pixels(found, 20)
    train, _, _ = make_splits(reading.files, pixels)
    image = train.images[0]
    assert image[:, :, 12:].mean() > 0.9 and image[:, :, :8].mean() < 0.1
