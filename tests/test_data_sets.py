"""Every way into data, with small files made here: what comes out, and errors about bad files."""

import copy
import gzip
import inspect
import math
import pickle
import shutil
import struct
import tarfile
import zipfile
from dataclasses import FrozenInstanceError, replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from vit_helpers.data import downloads, load, random_affine, subset
from vit_helpers.data.augment import mixup
from vit_helpers.data.digits import scatter
from vit_helpers.data.downloads import DownloadError
from vit_helpers.data.folders import find_images, folder
from vit_helpers.data.images import open_picture, to_rgb
from vit_helpers.data.reading import make_splits, read_pixels
from vit_helpers.data.registry import SOURCES
from vit_helpers.data.shards import BrokenShardError, write_shards, write_shards_of_folder
from vit_helpers.data.splits import Split
from vit_helpers.data.stream import Stream


def picture(path, color, size=(30, 20), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path))
    return tmp_path


# by name


def test_unknown_names_and_options_are_told_what_is_known():
    with pytest.raises(
        ValueError, match=r"unknown data 'mnist', known: digits, scattered_digits, .*folder:PATH"
    ):
        load("mnist")
    with pytest.raises(ValueError, match="unknown data 'folder:'"):
        load("folder:")
    with pytest.raises(TypeError, match="digits has no option image_size; its options: none"):
        load("digits", image_size=9)
    with pytest.raises(
        TypeError,
        match="folder has no option size; its options: image_size, split, skip_broken, cache",
    ):
        load("folder:/nowhere", size=9)


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_of_sources_knows_the_options_of_each(name):
    source = SOURCES[name]
    parameters = [*inspect.signature(source.load).parameters]
    assert parameters == ["path"] * source.takes_path + [*source.options]
    assert source.resizes == ("image_size" in parameters)


def test_a_path_belongs_to_the_name(tmp_path):
    with pytest.raises(TypeError, match="folder has no option path"):
        load(f"folder:{tmp_path}", path="elsewhere")
    for name in ("digits:", "digits:x", "folder", "shards", ":", ""):
        with pytest.raises(ValueError, match="unknown data"):
            load(name)


# scattered digits


def test_scattered_digits_hold_a_digit_where_they_say():
    plain = load("digits")
    data = load("scattered_digits", n=40, clutter=0)
    assert data.image_size == (24, 24) and data.in_chans == 1
    assert [len(split) for split in (data.train, data.validation, data.test)] == [40, 4, 8]
    for split, source in ((data.train, plain.train), (data.test, plain.test)):
        for image, label, (left, top, width, height) in zip(
            split.images, split.labels, split.boxes.tolist(), strict=True
        ):
            assert (width, height) == (12, 12)
            spot = image[:, top : top + height, left : left + width]
            assert image.count_nonzero() == spot.count_nonzero()  # nothing outside
            same_class = source.images[source.labels == label]
            large = torch.nn.functional.interpolate(
                same_class, size=12, mode="bicubic", antialias=True
            ).clamp(0, 1)
            assert (large - spot).abs().amax((1, 2, 3)).min() < 1e-6


def test_scattered_digits_are_strewn_everywhere_among_clutter():
    data = load("scattered_digits", n=300)
    left, top = data.train.boxes[:, 0], data.train.boxes[:, 1]
    assert left.min() == top.min() == 0 and left.max() == top.max() == 12
    bare = load("scattered_digits", n=300, clutter=0)
    assert data.train.images.sum() > 1.2 * bare.train.images.sum()
    assert len(data.train.labels.unique()) == 10


def test_scattered_digits_are_at_all_places_equally_often():
    boxes = load("scattered_digits", n=1300, clutter=0).train.boxes
    for axis in (0, 1):
        drawn = boxes[:, axis].bincount(minlength=13)
        assert len(drawn) == 13 and (drawn - 100).abs().max() < 5 * 10  # standard errors


def assert_equally_often(numbers, count):
    """Each of 0 .. count - 1 is drawn, equally often but for chance: 6 standard errors"""
    drawn, expected = numbers.bincount(minlength=count), len(numbers) / count
    assert len(drawn) == count and (drawn - expected).abs().max() < 6 * expected**0.5


def test_every_digit_is_scattered_equally_often():
    plain = Split(torch.rand(20, 1, 8, 8), torch.arange(20))
    generator = torch.Generator().manual_seed(0)
    assert_equally_often(scatter(plain, 1000, 12, 12, 0, generator).labels, 20)


def test_clutter_is_at_all_places_equally_often():
    """Of a black and a white digit, a piece of the white one, beside the black one"""
    plain = Split(
        torch.tensor([0.0, 1.0]).expand(8, 8, 2).permute(2, 0, 1)[:, None], torch.arange(2)
    )
    scattered = scatter(plain, 3000, 24, 12, 1, torch.Generator().manual_seed(0))
    images = scattered.images[scattered.labels == 0, 0]
    images = images[images.flatten(1).any(1)]
    for axis in (1, 2):
        assert_equally_often(images.any(axis).float().argmax(1), 24 - 6 + 1)


def test_scattered_digits_come_the_same_from_the_same_seed_and_more_begin_alike():
    one, more, other = (
        load("scattered_digits", **words) for words in ({"n": 20}, {"n": 50}, {"n": 20, "seed": 1})
    )
    torch.manual_seed(9)
    again = load("scattered_digits", n=20)
    assert torch.equal(one.train.images, again.train.images) and torch.equal(
        one.test.boxes, again.test.boxes
    )
    assert torch.equal(one.train.images, more.train.images[:20]) and torch.equal(
        one.train.labels, more.train.labels[:20]
    )
    assert not torch.equal(one.train.images, other.train.images)
    assert not torch.equal(one.train.labels[:2], one.validation.labels[:2]) or not torch.equal(
        one.train.images[:2], one.validation.images[:2]
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"digit_size": 30}, "30 pixels does not fit on a canvas of 24"),
        ({"n": 5}, "got 5"),
        ({"clutter": -1}, "got -1"),
    ],
)
def test_scattered_digits_that_cannot_be(words, says):
    with pytest.raises(ValueError, match=says):
        load("scattered_digits", **words)


# Fashion-MNIST


def idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


@pytest.fixture
def small_fashion(home, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 28, 28))
    raw = home / "FashionMNIST" / "raw"
    for name, array in zip(
        downloads.SOURCES["fashion_mnist"]["sha256"],
        (images, np.arange(30) % 10, images[:8], np.arange(8)),
        strict=True,
    ):
        idx(raw / name, array)
    # the small files have other sums
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    monkeypatch.setattr(downloads, "VALIDATION", 5)
    monkeypatch.setattr(downloads.with_validation, "__defaults__", (5,))
    return raw, images


def test_fashion_mnist_is_read_as_it_lies(small_fashion):
    _, images = small_fashion
    data = load("fashion_mnist")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [25, 5, 8]
    assert data.class_names[9] == "ankle boot" and data.train.images.shape[1:] == (1, 28, 28)
    assert torch.equal(data.test.images[:, 0], torch.tensor(images[:8]).float() / 255)
    both = torch.cat([data.train.images, data.validation.images]).flatten(1)
    # none is lost
    assert sorted(both.mean(1).tolist()) == pytest.approx(sorted(images.mean((1, 2)) / 255))


def test_the_sums_of_the_real_files_are_asked_for(home):
    raw = home / "FashionMNIST" / "raw"
    idx(raw / next(iter(downloads.SOURCES["fashion_mnist"]["sha256"])), np.zeros((3, 28, 28)))
    with pytest.raises(OSError, match="is not the file it should be"):
        load("fashion_mnist")


# CIFAR-10 and pizza, steak, sushi


def test_cifar10_by_torchvisions_reader(home, monkeypatch):
    from torchvision.datasets import CIFAR10

    rng = np.random.default_rng(0)
    source = home / "source" / CIFAR10.base_folder
    source.mkdir(parents=True)
    written = {}
    for name in [*[f"data_batch_{i}" for i in range(1, 6)], "test_batch"]:
        written[name] = rng.integers(0, 256, (4, 3072)).astype(np.uint8)
        (source / name).write_bytes(pickle.dumps({"data": written[name], "labels": [0, 1, 2, 9]}))
    (source / "batches.meta").write_bytes(
        pickle.dumps({"label_names": [f"class {i}" for i in range(10)]})
    )
    with tarfile.open(home / CIFAR10.filename, "w:gz") as file:
        file.add(source, CIFAR10.base_folder)
    shutil.rmtree(home / "source")
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    monkeypatch.setattr(downloads.with_validation, "__defaults__", (5,))
    # of the real files' md5 sums
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    data = load("cifar10")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [15, 5, 4]
    assert data.class_names[9] == "class 9" and data.test.labels.tolist() == [0, 1, 2, 9]
    assert torch.equal(
        data.test.images, torch.tensor(written["test_batch"]).reshape(4, 3, 32, 32) / 255
    )


def test_pizza_steak_sushi(home, monkeypatch):
    source = home / "source"
    for split, count in (("train", 20), ("test", 3)):
        for i, name in enumerate(("pizza", "steak", "sushi")):
            for n in range(count):
                picture(
                    source / split / name / f"{n}.jpg",
                    (80 * i, 2 * n, 9 if split == "train" else 19),
                )
    with zipfile.ZipFile(home / "pizza_steak_sushi.zip", "w") as file:
        for path in source.rglob("*.jpg"):
            file.write(path, path.relative_to(source))
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    data = load("pizza_steak_sushi", image_size=16)
    assert data.class_names == ("pizza", "steak", "sushi") and data.image_size == (16, 16)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [15, 45, 9]
    assert torch.allclose(
        data.test.images[:, 0].mean((1, 2)), data.test.labels * 80 / 255, atol=0.03
    )


# folders


@pytest.fixture
def pets(tmp_path):
    for i in range(10):
        picture(tmp_path / "pets" / "cat" / f"{i}.png", (250, 10 * i, 0), (40, 20))
        picture(tmp_path / "pets" / "dog" / "deep" / f"{i}.JPG", (0, 10 * i, 250), (20, 50))
    return tmp_path / "pets"


def test_a_folder_of_classes_becomes_three_splits(pets):
    data = load(f"folder:{pets}", image_size=8, split="exact")
    assert data.class_names == ("cat", "dog") and data.name == "pets" and data.image_size == (8, 8)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [14, 3, 3]
    for split in (data.train, data.validation, data.test):
        blue = split.images[:, 2].mean((1, 2))
        assert torch.allclose(blue, split.labels * 250 / 255, atol=0.03)
    again = load(f"folder:{pets}", image_size=8, split="exact")
    assert torch.equal(data.test.images, again.test.images)


def test_splits_that_are_there_are_kept_apart(pets, tmp_path):
    whole = tmp_path / "splits"
    shutil.copytree(pets, whole / "train")
    shutil.copytree(pets, whole / "test")
    with pytest.warns(
        UserWarning,
        match=r"20 images are copies of images in other splits, "
        r"such as .*cat.0\.png and .*cat.0\.png",
    ):
        data = folder(whole, image_size=8, split="exact")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [17, 3, 20]
    shutil.copytree(pets, whole / "val")
    with pytest.warns(UserWarning, match="40 images are copies"):
        assert len(folder(whole, image_size=8).validation.labels) == 20
    shutil.move(whole / "test" / "dog", whole / "test" / "wolf")
    with pytest.raises(
        ValueError, match=r"test has the classes cat, wolf, but training has cat, dog"
    ):
        folder(whole, image_size=8)


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
    with pytest.raises(ValueError, match=r"x\.tif: .*gray value.* say what white is"):
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


def broken(pets):
    (pets / "cat" / "3.png").write_bytes(b"not a picture")


def cut(pets):
    path = pets / "dog" / "deep" / "3.JPG"
    noise = np.random.default_rng(0).integers(0, 256, (50, 50, 3)).astype(np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:1000])


def one_class(pets):
    shutil.rmtree(pets / "dog")


def no_images(pets):
    shutil.rmtree(pets / "dog")
    (pets / "dog").mkdir()
    (pets / "dog" / "notes.txt").write_text("woof")


def flat(pets):
    for path in pets.rglob("*.*"):
        shutil.move(path, pets)
    for name in ("cat", "dog"):
        shutil.rmtree(pets / name)


def two_pictures(pets):
    for path in [*sorted(pets.rglob("*.png"))[1:], *sorted(pets.rglob("*.JPG"))[1:]]:
        path.unlink()


def gone(pets):
    shutil.rmtree(pets)


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (broken, ValueError, r"cat.3\.png is damaged, or not an image"),
        (cut, ValueError, r"3\.JPG is damaged, or not an image"),
        (
            one_class,
            ValueError,
            "needs at least two folders, one for each class, but it has only cat",
        ),
        (no_images, ValueError, r"no images in dog of .*pets, but 1 \.txt; image files end with"),
        (flat, ValueError, "needs at least two folders, one for each class, but it has none"),
        (
            two_pictures,
            ValueError,
            "the train split has no images of cat, dog: "
            "each class needs at least three different images",
        ),
        (gone, FileNotFoundError, "no folder at .*pets"),
    ],
)
def test_bad_folders_get_named(pets, spoil, kind, says):
    spoil(pets)
    with pytest.raises(kind, match=says):
        folder(pets, image_size=8, split="exact")


def test_too_many_images_for_memory_are_refused_before_they_are_read(pets):
    with pytest.raises(
        ValueError,
        match=r"20 images of 10000 x 10000 pixels need 5\.6 GiB of memory \(limit: 4 GiB\)",
    ):
        folder(pets, image_size=10000)


def test_images_that_are_all_one_color_are_refused(tmp_path):
    for name in "ab":
        for i in range(5):
            picture(tmp_path / "x" / name / f"{i}.png", (1, 2, 3), (8 + i, 8 if name == "a" else 9))
    with pytest.raises(ValueError, match="constant"):
        folder(tmp_path / "x", image_size=8, split="exact")


# Splits, and what can be sent to another process


def test_a_split_is_images_labels_and_boxes_where_they_are_known():
    plain, boxed = load("digits").test, load("scattered_digits", n=20).test
    assert (
        plain.boxes is None and boxed.boxes.shape == (4, 4) and (len(plain), len(boxed)) == (360, 4)
    )
    with pytest.raises(TypeError, match="unpack"):
        _images, _labels = boxed
    assert boxed.images is boxed.pixels  # floats are not copied
    for rows in (torch.tensor([2, 0]), torch.tensor([False, True, True, False]), slice(3)):
        some = subset(boxed, rows)
        assert all(
            torch.equal(getattr(some, name), getattr(boxed, name)[rows])
            for name in ("pixels", "images", "labels", "boxes")
        )
    assert torch.equal(replace(boxed, labels=boxed.labels + 1).boxes, boxed.boxes)
    with pytest.raises(FrozenInstanceError):
        boxed.boxes = None


def flatten(thing):
    """What an object holds, with tensors as lists, so that two can be compared"""
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: flatten(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [flatten(value) for value in thing]
    if callable(thing):
        return getattr(thing, "__name__", type(thing).__name__)
    return flatten(vars(thing)) if hasattr(thing, "__dict__") else thing


PUBLIC = {  # from scattered digits and the folder of their shards
    "Split": lambda data, shards: data.train,
    "Split without boxes": lambda data, shards: replace(data.test, boxes=None),
    "Data": lambda data, shards: data,
    "Batches": lambda data, shards: data.batches(
        "train", 4, shuffle=True, augment=random_affine, mix=partial(mixup, num_classes=10)
    ),
    "Shards": lambda data, shards: load(f"shards:{shards}"),
    "Stream": lambda data, shards: Stream(shards, 4, augment=random_affine),
}


@pytest.mark.parametrize("make", PUBLIC.values(), ids=PUBLIC)
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]
)
def test_public_objects_can_be_copied_and_pickled(make, clone, tmp_path):
    data = load("scattered_digits", n=20)
    thing = make(data, write_shards(data, tmp_path / "shards", 8))
    other = clone(thing)
    assert type(other) is type(thing) and flatten(other) == flatten(thing)
    if hasattr(thing, "steps"):  # batches
        torch.manual_seed(0)
        first = flatten(list(thing))
        torch.manual_seed(0)
        assert flatten(list(other)) == first


@pytest.mark.parametrize("kind", [DownloadError, BrokenShardError])
def test_errors_can_be_pickled(kind):
    other = pickle.loads(pickle.dumps(kind("train-00001.tar is broken")))
    assert type(other) is kind and str(other) == "train-00001.tar is broken"
