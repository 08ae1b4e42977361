"""Which files of a folder are images, and that what is left out is said, by every command."""

import os
import warnings
from itertools import product

import numpy as np
import pytest
from commands import command
from PIL import Image

from vit_helpers.data import load
from vit_helpers.data.images import IMAGE_ENDINGS
from vit_helpers.data.listing import find_files, list_classes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")


def draw(path, number, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def pets(tmp_path):
    """Ten cats and ten dogs"""
    for number in range(20):
        draw(tmp_path / "pets" / ("cat" if number < 10 else "dog") / f"{number}.png", number)
    return tmp_path / "pets"


def notes(function, *args):
    """What a function returns, and the texts of its warnings"""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(one.message) for one in noted]


# Formats of which Pillow reads no picture by itself, or that are no pictures
OTHERS = {
    *("BLP", "BUFR", "CUR", "DCX", "DDS", "EPS", "FITS", "FLI", "FTEX", "GBR", "GRIB", "HDF5"),
    *("ICNS", "IM", "IPTC", "MPEG", "MSP", "PCD", "PIXAR", "SUN", "WMF", "XBM", "XPM"),
}


def test_every_ending_that_pillow_reads_is_read_or_known_as_another():
    endings = Image.registered_extensions()
    read = {ending for ending, kind in endings.items() if kind in {*Image.OPEN} - OTHERS}
    assert read - set(IMAGE_ENDINGS) == {".avifs", ".bw", ".rgb", ".rgba"} & read


@pytest.mark.parametrize("ending", ["jfif", "jpe", "gif", "tga", "jp2", "pbm", "PNG"])
def test_pictures_of_other_endings_are_read(pets, ending):
    """In 0.2 sixty of seventy files of a class were left out without a word"""
    kind = {"jfif": "JPEG", "jpe": "JPEG"}.get(ending)
    for number in range(10):
        draw(pets / "dog" / f"{number}.{ending}", 100 + number, format=kind)
    assert list(map(len, list_classes(pets).values())) == [10, 20]
    assert load(f"folder:{pets}", image_size=8, split="exact").class_counts == [10, 20]


def test_what_is_left_out_is_counted_by_its_ending(pets):
    for name in ("a", "b", "c.txt", "d.TXT", "e.heic", ".hidden", ".thumbnails/f.png"):
        path = pets / "cat" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"?")
    (pets / "about.txt").touch()
    classes, said = notes(list_classes, pets)
    assert list(map(len, classes.values())) == [10, 10]
    (line,) = said
    assert "3 .txt, 2 without an ending, 1 .heic; convert" in line and "hidden" not in line


def test_a_name_of_odd_characters_is_shown_escaped(pets):
    (pets / "cat" / "x.\x1b[2K").touch()
    _, (line,) = notes(list_classes, pets)
    assert line.isprintable() and r"\x1b" in line


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "folder:split", "--epochs", "1", "--image-size", "16", "--patch", "8"],
        ["shards", "folder:split", "shards", "--image-size", "16"],
        ["predict", "pets", "--weights", "ours:photos"],
        ["evaluate", "ours:photos", "folder:pets"],
        ["evaluate", "ours:photos", "folder:split"],
    ],
)
def test_every_command_says_what_it_does_not_read(pets, tmp_path, words):
    for number, split in enumerate(("train", "val", "test")):
        for label, name in enumerate(("cat", "dog")):
            draw(tmp_path / "split" / split / name / "1.png", 60 + 2 * number + label)
    for folder in (pets / "cat", tmp_path / "split"):
        (folder / "a").touch()
        (folder / "b").touch()
    run = command(*words, cwd=tmp_path)
    assert run.returncode == 0 and "2 without an ending" in run.stdout, run.stderr


def test_links_in_classes_are_followed_and_loops_are_not(pets, tmp_path):
    for number in range(5):
        draw(tmp_path / "elsewhere" / f"{number}.png", 50 + number)
    (pets / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (pets / "cat" / "again").symlink_to(tmp_path / "elsewhere")
    (pets / "dog" / "up").symlink_to(pets)
    (pets / "dog" / "own").symlink_to(pets / "dog")
    (tmp_path / "elsewhere" / "loop").symlink_to(pets / "cat")
    classes, said = notes(list_classes, pets)
    assert list(map(len, classes.values())) == [15, 10]
    assert sorted(line.partition(" is left out")[0].rpartition("/")[2] for line in said) == [
        *("loop", "more", "own", "up"),
    ]
    files, _ = notes(find_files, pets)
    assert len(files) == 25


def test_a_copy_of_the_data_in_the_data_is_no_class(pets):
    for number in range(4):
        draw(pets / "backup" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    with pytest.raises(ValueError, match=r"backup .* cat, dog"):
        list_classes(pets)


def test_a_link_to_the_data_in_the_data_is_no_class(pets):
    (pets / "backup").symlink_to(pets)
    with pytest.raises(ValueError, match="backup is a link"):
        list_classes(pets)


def test_a_class_in_a_class_is_named(pets):
    draw(pets / "cat" / "old" / "dog" / "1.png", 70)
    _, (line,) = notes(list_classes, pets)
    assert "cat contains folders with the names of other classes, dog" in line


def test_splits_in_classes_are_named(pets):
    for name in ("cat", "dog"):
        for split in ("train", "test"):
            draw(pets / name / split / "1.png", 80)
    _, (line,) = notes(list_classes, pets)
    assert "each of the classes cat, dog contains the folders test, train" in line


def test_what_is_there_instead_of_images_is_said(pets, tmp_path):
    """Beside 33 endings of images, which are no help for a photo of a phone"""
    (pets / "cow").mkdir()
    (pets / "cow" / "1.heic").touch()
    with pytest.raises(ValueError, match=r"pets/cow, but 1 \.heic: .*JPEG or PNG$") as refused:
        list_classes(pets)
    assert ".jpg" not in str(refused.value)
    done = command("predict", "pets/cow", "--weights", "ours:photos", cwd=tmp_path)
    assert "pets/cow, but 1 .heic: " in done.stderr and ".jpg" not in done.stderr


def test_a_class_without_a_file_can_be_removed(pets):
    """The endings of images were named"""
    (pets / "cow").mkdir()
    with pytest.raises(ValueError, match=r"pets/cow: add images, or remove the folder$"):
        list_classes(pets)


def test_names_that_differ_only_in_case_are_noticed(pets, tmp_path):
    if (pets / "CAT").exists():
        pytest.skip("this file system does not tell them apart")
    draw(pets / "Dog" / "1.png", 90)
    classes, (line,) = notes(list_classes, pets)
    assert [*classes] == ["Dog", "cat", "dog"]
    assert "pets/Dog and " in line and "pets/dog differ only" in line and "cat" not in line


def test_a_way_to_divide_what_is_divided_is_noticed(tmp_path):
    """It had no effect, without a word"""
    for number, (split, name) in enumerate(product(("train", "val", "test"), ("cat", "dog"))):
        draw(tmp_path / split / name / "0.png", number)
    data = f"folder:{tmp_path}"
    with pytest.warns(UserWarning, match="exact.* has no effect"):
        assert len(load(data, image_size=8, split="exact").train) == 2
    assert len(load(data, image_size=8).train) == 2  # the default
