"""Image files of every kind, good and bad: what a folder, shards and `predict` make of them."""

import dataclasses
import hashlib
import io
import os
import random
import shutil
import struct
import sys
import tempfile
import warnings
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vit_helpers.cli import main
from vit_helpers.data import Split, cache, load, reading, subset
from vit_helpers.data.folders import draw_exactly, folder
from vit_helpers.data.images import open_picture, square
from vit_helpers.data.reading import ImageFile, map_files
from vit_helpers.data.shards import write_shards, write_shards_of_folder
from vit_helpers.data.splits import mean_and_std

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


def save(path, number):
    """A PPM file, whose bytes, and so its split, are the same with every version of Pillow"""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    path.write_bytes(b"P6 6 6 255\n" + pixels.tobytes())
    return path


@pytest.fixture
def pets(tmp_path):
    """60 cats and 40 dogs"""
    for number in range(100):
        save(tmp_path / "pets" / ("cat" if number < 60 else "dog") / f"{number}.ppm", number)
    return tmp_path / "pets"


def spoil(pets, count=3):
    paths = sorted(pets.rglob("*.ppm"))[:count]
    for path in paths:
        path.write_bytes(b"no picture " + path.name.encode())
    return paths


def files_of(data):
    """The files that each split of a data set of `pets` was read from, by what they hold"""
    return {
        split: {tuple(row) for row in data.get_split(split).pixels.flatten(1).tolist()}
        for split in ("train", "validation", "test")
    }


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


def test_a_folder_named_like_an_image_is_passed_over_and_named(pets):
    save(pets / "cat" / "x.jpg" / "inside.ppm", 999)
    with pytest.warns(UserWarning, match=r"x\.jpg is a folder, not an image"):
        assert sum(folder(pets, 8).class_counts) == 101
    # predict looks at what is inside
    with pytest.raises(ValueError, match=r"x\.jpg is a folder, not a picture"):
        open_picture(pets / "cat" / "x.jpg")


def test_a_folder_that_cannot_be_read_is_named(pets, monkeypatch):
    (pets / "cat" / "closed").mkdir()
    right = os.scandir

    def scandir(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return right(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ValueError, match="closed cannot be read: Permission denied"):
        folder(pets, 8)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_with_any_character_are_told_on_one_line(pets):
    bad = pets / "cat" / "two\nlines.jpg"
    bad.touch()
    with pytest.raises(ValueError, match=r"two\\nlines\.jpg' is damaged") as caught:
        folder(pets, 8)
    assert "\n" not in str(caught.value)


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


def test_bad_files_are_told_together_or_left_out(pets, tmp_path):
    paths = spoil(pets, 12)
    for read in (
        lambda **words: folder(pets, 8, **words),
        lambda **words: write_shards_of_folder(pets, tmp_path / "new", 8, **words),
    ):
        with pytest.raises(
            ValueError, match=r"^12 of 100 images cannot be read; remove them, or leave them out w"
        ) as caught:
            read()
        lines = str(caught.value).splitlines()
        assert len(lines) == 12 and lines[-1] == "  and 2 more"
        assert all(f"{path} is damaged" in str(caught.value) for path in paths[:3])
        with pytest.warns(UserWarning, match="12 of 100 images cannot be read and are left out:"):
            data = read(skip_broken=True)
    assert data == tmp_path / "new" and load(f"shards:{data}").class_counts == [48, 40]


def test_what_is_left_is_right(pets):
    whole = folder(pets, 6)
    spoil(pets)
    with pytest.warns(UserWarning, match="3 of 100 images"):
        rest = folder(pets, 6, skip_broken=True)
    assert rest.class_counts == [57, 40]
    before, after = files_of(whole), files_of(rest)
    assert all(after[split] <= before[split] for split in before)
    for split in (rest.train, rest.validation, rest.test):
        for pixels, label in zip(split.pixels, split.labels, strict=True):
            assert label == (
                tuple(pixels.flatten().tolist()) in {tuple(noise_of(n)) for n in range(60, 100)}
            )


def noise_of(number):
    return (
        np.random.default_rng(number)
        .integers(0, 256, (6, 6, 3))
        .astype(np.uint8)
        .transpose(2, 0, 1)
        .flatten()
        .tolist()
    )


# Each file once


OPENED, RECORDING = [], []


def record_opened(event, args):
    """Write down each file that Python opens, by whatever means, while `RECORDING` is not empty"""
    if RECORDING and event == "open":
        OPENED.append(args[0])


sys.addaudithook(record_opened)  # there is no way to remove it


@pytest.fixture
def opened():
    """A function that returns how often a call opens each file of a folder: {path: count}"""

    def count(folder, call):
        RECORDING.append(True)
        try:
            call()
        finally:
            RECORDING.clear()
            names = [str(name) for name in OPENED]
            OPENED.clear()
        return {str(path): names.count(str(path)) for path in folder.rglob("*") if path.is_file()}

    yield count
    RECORDING.clear()
    OPENED.clear()


@pytest.mark.parametrize(
    ("layout", "split"), [("classes", "hash"), ("classes", "exact"), ("splits", "hash")]
)
def test_each_image_file_is_opened_once(pets, tmp_path, opened, layout, split):
    path = divide(pets, one="train", two="val", three="test") if layout == "splits" else pets
    ways = {
        "in memory": lambda: load(f"folder:{path}", image_size=8, split=split),
        "as shards": lambda: write_shards_of_folder(path, tmp_path / "new", 8, split=split),
    }
    for way, call in ways.items():
        counts = opened(path, call)
        assert len(counts) == 100 and set(counts.values()) == {1}, way


def test_with_a_cache_each_image_file_is_opened_once(pets, cached, opened):
    for _ in range(2):
        counts = opened(pets, lambda: folder(pets, 6, cache=True))
        assert set(counts.values()) == {1}


def test_more_than_one_reading_is_noticed(pets, opened):
    counts = opened(pets, lambda: [path.read_bytes() for path in 2 * sorted(pets.rglob("*.ppm"))])
    assert set(counts.values()) == {2}


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_rows_are_reordered_in_place(n):
    pixels = np.arange(n * 3).reshape(n, 3)
    for seed in range(10):
        rows = np.random.default_rng(seed).permutation(n)
        wanted = pixels[rows]
        reordered = pixels.copy()
        reading.reorder(reordered, rows.tolist())
        assert np.array_equal(reordered, wanted)
    reading.reorder(pixels, list(range(n)))
    assert np.array_equal(pixels, np.arange(n * 3).reshape(n, 3))


@pytest.mark.parametrize("split", ["hash", "exact"])
def test_images_are_not_copied_when_they_are_divided(pets, split):
    """The pixels of the splits lie one behind the other, as they were read"""
    data = folder(pets, 6, split=split)
    ends = [part.pixels.data_ptr() + part.pixels.nbytes for part in (data.train, data.validation)]
    assert [data.validation.pixels.data_ptr(), data.test.pixels.data_ptr()] == ends


@pytest.mark.parametrize("split", ["hash", "exact"])
def test_shards_of_a_folder_with_broken_files_are_those_of_the_folder(pets, tmp_path, split):
    spoil(pets, 5)
    with pytest.warns(UserWarning, match="5 of 100 images cannot be read"):
        data = folder(pets, 8, split=split, skip_broken=True)
    with pytest.warns(UserWarning, match="5 of 100 images cannot be read"):
        path = write_shards_of_folder(pets, tmp_path / "one", 8, split=split, skip_broken=True)
    other = write_shards(data, tmp_path / "two")
    for file in other.glob("*.tar"):
        assert (path / file.name).read_bytes() == file.read_bytes()


# Splits


def test_an_image_keeps_its_split_when_others_come_and_copies_stay_together(pets):
    before = files_of(folder(pets, 6))
    for number in range(1000, 1060):
        save(pets / "dog" / f"{number}.ppm", number)
    shutil.copytree(pets / "cat", pets / "cat" / "again")
    after = folder(pets, 6)
    assert all(before[split] <= files for split, files in files_of(after).items())
    assert [len(split) for split in (after.train, after.validation, after.test)] == [154, 26, 40]
    places = files_of(after)
    assert not (
        places["train"] & places["test"]
        or places["train"] & places["validation"]
        or places["test"] & places["validation"]
    )


def test_the_hash_of_an_image_decides_where_it_goes(pets):
    wanted = {"train": 0, "validation": 0, "test": 0}
    for path in pets.rglob("*.ppm"):
        place = int(hashlib.sha256(path.read_bytes()).hexdigest()[:16], 16) / 2**64
        wanted["test" if place < 0.15 else "validation" if place < 0.3 else "train"] += 1
    data = folder(pets, 6)
    assert {split: data.count(split) for split in wanted} == wanted


def test_exact_shares_are_exact_in_each_class(pets):
    data = folder(pets, 6, split="exact")
    assert [
        split.labels.bincount().tolist() for split in (data.train, data.validation, data.test)
    ] == [
        [42, 28],
        [9, 6],
        [9, 6],
    ]
    shutil.copytree(pets / "dog", pets / "dog" / "again")
    places = files_of(folder(pets, 6, split="exact"))
    assert len(places["test"]) == 15 and not places["test"] & places["train"]


def test_copies_in_a_second_class_are_not_drawn_again():
    cats = [ImageFile(Path("cat"), 0, 0, bytes([number])) for number in range(40)]
    dogs = [ImageFile(Path("dog"), 0, 1, bytes([number])) for number in range(20, 60)]
    missing = ["test", "validation"]
    of_cats, drawn = draw_exactly(cats, missing), draw_exactly(cats + dogs, missing)
    assert drawn.items() >= of_cats.items() and len(drawn) == 60
    for split in missing:
        assert list(of_cats.values()).count(split) == 6 and list(drawn.values()).count(split) == 9


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("hash", "add images, or draw 15% of each class with --split exact"),
        ("exact", "each class needs at least three different images"),
    ],
)
def test_a_split_without_a_class_stops_the_run_and_names_the_way_out(
    pets, how, says, tmp_path, capsys
):
    for number in range(200, 202):
        save(pets / "wolf" / f"{number}.ppm", number)
    with pytest.raises(
        ValueError, match=f"the (train|validation|test) split has no images of wolf: {says}"
    ):
        folder(pets, 6, split=how)
    for words in (["train", "--data"], ["shards"]):
        words = [
            *words,
            f"folder:{pets}",
            *([str(tmp_path / "new")] if words == ["shards"] else ["--out", str(tmp_path / "run")]),
        ]
        assert main([*words, "--split", how]) == 1
        assert "split has no images of wolf: " in capsys.readouterr().err


def divide(pets, **names):
    """Move the classes into folders of splits, each image into one of them"""
    for number, path in enumerate(sorted(pets.rglob("*.ppm"))):
        part = list(names.values())[number % len(names)]
        new = pets.with_name("divided") / part / path.parent.name / path.name
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
    return pets.with_name("divided")


@pytest.mark.parametrize(
    "names",
    [
        ("Train", "Test"),
        ("TRAINING", "testing"),
        ("training", "Eval"),
        ("train", "Validation"),
        ("Train", "dev"),
        ("train", "VAL"),
    ],
)
def test_splits_are_known_by_many_names_in_any_case(pets, names):
    data = folder(divide(pets, one=names[0], two=names[1]), 6, split="exact")
    assert data.class_names == ("cat", "dog")
    assert max(len(data.validation), len(data.test)) == 50


def test_classes_may_have_the_names_of_splits(tmp_path):
    for number, name in product(range(30), ("bus", "Test", "train")):
        save(tmp_path / "x" / name / f"{number}.ppm", 30 * len(name) + number)
    assert folder(tmp_path / "x", 6).class_names == ("Test", "bus", "train")
    shutil.rmtree(tmp_path / "x" / "Test")
    assert folder(tmp_path / "x", 6).class_names == ("bus", "train")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("val", "test"), "divided can be read in two ways: if test, val are splits, add .* train"),
        (("testing", "Test"), "Test and .*testing both have a name of the test split"),
        (("train", "val", "valid"), "val and .*valid both have a name of the validation split"),
        (("Train", "training"), "Train and .*training both have a name of the train split"),
    ],
)
def test_folders_of_splits_that_cannot_be_used_are_named(pets, names, says):
    with pytest.raises(ValueError, match=says):
        folder(divide(pets, **{name: name for name in names}), 6)


@pytest.mark.parametrize("name", ["test", "train", "Val"])
def test_of_classes_beside_a_folder_of_a_split_both_readings_are_shown(pets, tmp_path, name):
    for path in (pets / "cat", pets / "dog"):
        shutil.copytree(path, pets / name / path.name)
    message = (
        f"pets can be read in two ways: if {name} are splits, move cat, dog elsewhere; "
        f"if ({name}, cat, dog|cat, dog, {name}) are classes, rename {name}"
    )
    with pytest.raises(ValueError, match=message):
        folder(pets, 6)
    with pytest.raises(ValueError, match=message):
        write_shards_of_folder(pets, tmp_path / "new", 6)
    for class_name in ("cat", "dog"):
        shutil.rmtree(pets / class_name)
    if name == "train":
        assert folder(pets, 6).class_counts == [60, 40]
    else:
        with pytest.raises(ValueError, match=f"if {name} are splits, add a folder named train"):
            folder(pets, 6)


@pytest.mark.parametrize("names", [("train", "test"), ("Training",)])
def test_of_images_in_folders_of_splits_without_classes_both_readings_are_shown(tmp_path, names):
    for name in names:
        save(tmp_path / "x" / name / "1.ppm", len(name))
    listed = ", ".join(sorted(names))
    with pytest.raises(ValueError, match=f"if {listed} are splits, put .* if {listed} are classes"):
        folder(tmp_path / "x", 6)


def test_a_class_may_be_called_train_beside_others_whatever_their_images_are_in(tmp_path):
    for number in range(30):
        save(tmp_path / "x" / "bus" / "red" / f"{number}.ppm", number)
        save(tmp_path / "x" / "train" / f"{number}.ppm", 30 + number)
    assert folder(tmp_path / "x", 6).class_names == ("bus", "train")


@pytest.mark.parametrize("beside", [None, "notes"])
def test_an_image_beside_the_classes_of_a_split_leaves_the_splits_as_they_are(
    pets, tmp_path, beside
):
    """Such folders were taken for classes, and val/ and test/ for nothing"""
    path = divide(pets, one="train", two="val", three="test")
    for part in path.iterdir():
        save(part / "cover.ppm", 700)
    if beside:  # without an image, so it is no class
        (path / beside).mkdir()
        (path / beside / "about.txt").touch()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        data, shards = (
            folder(path, 6),
            load(f"shards:{write_shards_of_folder(path, tmp_path / 'new', 6)}"),
        )
    said = sorted(str(one.message).replace(str(path), "here") for one in noted)[::2]
    assert said[:3] == [
        f"1 images in here/{part} itself are in none of its classes and are left out"
        for part in ("test", "train", "val")
    ]
    assert len(said) == (4 if beside else 3) and ("1 .txt" in said[-1]) == bool(beside)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [34, 33, 33]
    assert [shards.count(split) for split in ("train", "validation", "test")] == [34, 33, 33]


def test_some_images_of_a_folder_are_of_all_classes(pets):
    from vit_helpers.training.presets import RunSettings, make_batches

    data, settings = folder(pets, 6), RunSettings(augment="none")
    some = make_batches(data, settings.replace(images=20)).split
    assert sorted(set(some.labels.tolist())) == [0, 1] and len(some) == 20
    assert torch.equal(make_batches(data, settings.replace(images=20)).split.pixels, some.pixels)
    assert torch.equal(
        make_batches(data, settings.replace(repeat=2)).split.pixels[::2], data.train.pixels
    )
    mixed = subset(data.train, torch.randperm(len(data.train)))  # of others the first, as ever
    of_mixed = make_batches(
        dataclasses.replace(data, train=mixed), settings.replace(images=20)
    ).split
    assert torch.equal(of_mixed.pixels, mixed.pixels[:20])


def test_copies_in_two_classes_are_told(pets):
    shutil.copy(pets / "cat" / "3.ppm", pets / "dog" / "3.ppm")
    with pytest.warns(
        UserWarning,
        match=r"1 images are copies of images in other classes, "
        r"such as .*cat.3\.ppm and .*dog.3\.ppm",
    ):
        folder(pets, 6)


# In memory


def test_bytes_are_a_quarter_and_become_what_floats_were(pets):
    data = folder(pets, 6)
    split = data.train
    assert split.pixels.dtype == torch.uint8 and split.pixels.is_contiguous()
    assert torch.equal(split.images, split.pixels / 255) and split.images.dtype == torch.float32
    plain = Split(split.images, split.labels)
    for one, two in zip(
        data.batches("train", 16),
        type(data)("x", plain, plain, plain, data.class_names, data.mean, data.std).batches(
            "train", 16
        ),
        strict=True,
    ):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert mean_and_std(split.pixels)[0] == pytest.approx(mean_and_std(split.images)[0], abs=1e-6)
    assert mean_and_std(split.pixels)[1] == pytest.approx(mean_and_std(split.images)[1], abs=1e-6)
    assert subset(split, slice(3)).pixels.dtype == torch.uint8
    only = data.filter_classes("dog")
    assert only.train.pixels.dtype == torch.uint8 and set(only.train.labels.tolist()) == {0}


def test_results_come_in_order_and_only_a_few_are_ahead():
    started, seen = [], []
    for result in map_files(lambda n: started.append(n) or n * n, list(range(50)), "", threads=3):
        seen.append(result)
        assert len(started) <= len(seen) + 6
    assert seen == [n * n for n in range(50)]

    def fail(n):
        raise (ValueError if n < 2 else KeyError)(n)

    results = map_files(fail, [0, 1, 2], "")
    assert [type(next(results)) for _ in range(2)] == [ValueError] * 2
    with pytest.raises(KeyError):
        next(results)


# The cache


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The folder of the cache, and a function that reads a folder and counts the decoded images"""
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "CACHE_BYTES", 2 * 2**30)
    right, count = reading.decode, []
    monkeypatch.setattr(reading, "decode", lambda *words: count.append(1) or right(*words))

    def decoded(path, size=6):
        count.clear()
        data = folder(path, size, cache=True)
        assert (
            files_of(data) == files_of(folder_without(path, size))
            and data.class_counts == folder_without(path, size).class_counts
        )
        return len(count)

    def folder_without(path, size):
        with monkeypatch.context() as patch:
            patch.setattr(reading, "decode", right)
            return folder(path, size)

    return tmp_path / "cache" / "decoded", decoded


def test_a_second_run_decodes_nothing_and_new_images_alone(pets, cached):
    _, decoded = cached
    assert (decoded(pets), decoded(pets), decoded(pets, 7), decoded(pets)) == (100, 0, 100, 0)
    save(pets / "dog" / "new.ppm", 500)
    (pets / "cat" / "3.ppm").rename(pets / "cat" / "another name.ppm")
    assert (decoded(pets), decoded(pets)) == (1, 0)
    before = (pets / "cat" / "5.ppm").stat()
    save(pets / "cat" / "5.ppm", 501)  # another image of the same name, size and time
    os.utime(pets / "cat" / "5.ppm", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (decoded(pets), decoded(pets)) == (1, 0)


def test_a_damaged_cache_is_no_source_of_images(pets, cached):
    home, decoded = cached
    decoded(pets)
    (file,) = home.iterdir()
    good = file.read_bytes()
    for content, count in (
        (good[:-50], 1),
        (good[: len(good) // 2], range(30, 90)),
        (b"", 100),
        (b"\x93NUMPY" + bytes(99), 100),
        (good.replace(b"}", b"{", 1), 100),  # numpy raises a tokenize.TokenError
        (good.replace(b"'<u4'", b"'<u9'", 1), 100),
        (good.replace(b"crc32", b"crc33", 1), 100),
    ):
        file.write_bytes(content)
        assert decoded(pets) in ((count,) if isinstance(count, int) else count)
    file.write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
    assert (decoded(pets), decoded(pets)) == (1, 0)


def test_the_cache_keeps_its_size_and_what_was_used_last(pets, cached, monkeypatch):
    home, decoded = cached
    decoded(pets, 6)
    monkeypatch.setattr(cache, "CACHE_BYTES", 2 * next(home.iterdir()).stat().st_size + 5000)
    for size in (5, 4):
        decoded(pets, size)
    os.utime(cache.cache_path(pets, 5), (1, 1))
    decoded(pets, 7)
    assert sum(file.stat().st_size for file in home.iterdir()) <= cache.CACHE_BYTES
    assert (decoded(pets, 7), decoded(pets, 5)) == (0, 100)
    monkeypatch.setattr(cache, "CACHE_BYTES", 1000)
    assert (decoded(pets, 9), decoded(pets, 9)) == (100, 100)


def test_without_a_place_for_it_there_is_no_cache(pets, cached):
    home, decoded = cached
    home.parent.mkdir()
    home.touch()
    assert (decoded(pets), decoded(pets)) == (100, 100)


@pytest.mark.parametrize("free", [10_000, 2**40])
def test_a_disk_is_not_filled_by_the_cache(pets, cached, monkeypatch, free):
    home, decoded = cached
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(free, 0, free))
    right = tempfile.NamedTemporaryFile

    def full(**words):
        file = right(**words, buffering=512)
        file.write(b"x")
        os.close(file.fileno())
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert (decoded(pets), decoded(pets)) == (100, 100) and not list(home.iterdir())


def test_a_home_that_nobody_has_is_named(pets, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VIT_HELPERS_DATA", "~nobody-at-all/x")
    train, shards, new = ["train", "--image-size", "8", "--out"], ["shards"], str(tmp_path / "new")
    for words, data in ((train, pets), (train, "~nobody-at-all/x"), (shards, "~nobody-at-all/x")):
        assert (
            main(
                [*words, new, "--data", f"folder:{data}"]
                if words is train
                else [*words, f"folder:{data}", new]
            )
            == 1
        )
        assert capsys.readouterr().err.startswith("error: ~nobody-at-all/x: ")


# The commands


def test_train_says_what_it_trains_on(pets, tmp_path, cached, capsys):
    home, _ = cached
    spoil(pets, 2)
    words = [
        "train",
        "--data",
        f"folder:{pets}",
        "--epochs",
        "1",
        "--split",
        "exact",
        "--patch",
        "32",
    ]
    assert main([*words, "--no-cache", "--out", str(tmp_path / "run")]) == 1
    message = (
        "error: 2 of 100 images cannot be read; remove them, or leave them out with "
        "--skip-broken of train and shards (in Python: skip_broken=True)"
    )
    assert message in capsys.readouterr().err
    assert main([*words, "--skip-broken", "--no-cache", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert (
        said[0].startswith("note: 2 of 100 images cannot be read and are left out:")
        and not home.exists()
    )
    assert said[4:7] == [
        "2 classes: cat (58), dog (40)",
        "images: train 68 (69%), validation 15 (15%), test 15 (15%); 64 x 64 pixels, color",
        "augmentation crop (images are not mirrored); "
        "adamw, learning rate 0.003, cosine, 1 epoch, batches of 64",
    ]
    assert main(["train", "--resume", str(tmp_path / "run"), "--split", "hash"]) == 1
    assert "split exact -> hash" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "run"), "--skip-broken"]) == 0
    assert home.exists() and capsys.readouterr().out.splitlines()[4:7] == said[4:7]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "digits", "--skip-broken"],
        ["train", "--split", "exact"],
        ["shards", "digits", "x", "--skip-broken"],
    ],
)
def test_options_of_folders_are_not_taken_for_other_data(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    assert "folder:PATH" in capsys.readouterr().err


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
