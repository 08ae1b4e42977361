"""A folder of images as a data set: its classes, its splits, and what is said of odd ones."""

import dataclasses
import hashlib
import os
import shutil
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import divide, files_of, save, spoil
from PIL import Image

from vit_helpers.cli import main
from vit_helpers.data import Split, load, subset
from vit_helpers.data.folders import draw_exactly, folder
from vit_helpers.data.images import open_picture
from vit_helpers.data.reading import ImageFile
from vit_helpers.data.shards import write_shards_of_folder
from vit_helpers.data.splits import mean_and_std


def picture(path, color, size=(30, 20), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)


# by name


# scattered digits


# Fashion-MNIST


# CIFAR-10 and pizza, steak, sushi


# folders


@pytest.fixture
def animals(tmp_path):
    for i in range(10):
        picture(tmp_path / "pets" / "cat" / f"{i}.png", (250, 10 * i, 0), (40, 20))
        picture(tmp_path / "pets" / "dog" / "deep" / f"{i}.JPG", (0, 10 * i, 250), (20, 50))
    return tmp_path / "pets"


def test_a_folder_of_classes_becomes_three_splits(animals):
    data = load(f"folder:{animals}", image_size=8, split="exact")
    assert data.class_names == ("cat", "dog") and data.name == "pets" and data.image_size == (8, 8)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [14, 3, 3]
    for split in (data.train, data.validation, data.test):
        blue = split.images[:, 2].mean((1, 2))
        assert torch.allclose(blue, split.labels * 250 / 255, atol=0.03)
    again = load(f"folder:{animals}", image_size=8, split="exact")
    assert torch.equal(data.test.images, again.test.images)


def test_splits_that_are_there_are_kept_apart(animals, tmp_path):
    whole = tmp_path / "splits"
    shutil.copytree(animals, whole / "train")
    shutil.copytree(animals, whole / "test")
    with pytest.warns(
        UserWarning,
        match=r"20 images are copies of images in other splits, "
        r"such as .*cat.0\.png and .*cat.0\.png",
    ):
        data = folder(whole, image_size=8, split="exact")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [17, 3, 20]
    shutil.copytree(animals, whole / "val")
    with pytest.warns(UserWarning, match="40 images are copies"):
        assert len(folder(whole, image_size=8).validation.labels) == 20
    shutil.move(whole / "test" / "dog", whole / "test" / "wolf")
    with pytest.raises(ValueError, match=r"test .*cat, wolf, .* cat, dog"):
        folder(whole, image_size=8)


def broken(animals):
    (animals / "cat" / "3.png").write_bytes(b"not a picture")


def cut(animals):
    path = animals / "dog" / "deep" / "3.JPG"
    noise = np.random.default_rng(0).integers(0, 256, (50, 50, 3)).astype(np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:1000])


def one_class(animals):
    shutil.rmtree(animals / "dog")


def no_images(animals):
    shutil.rmtree(animals / "dog")
    (animals / "dog").mkdir()
    (animals / "dog" / "notes.txt").write_text("woof")


def flat(animals):
    for path in animals.rglob("*.*"):
        shutil.move(path, animals)
    for name in ("cat", "dog"):
        shutil.rmtree(animals / name)


def two_pictures(animals):
    for path in [*sorted(animals.rglob("*.png"))[1:], *sorted(animals.rglob("*.JPG"))[1:]]:
        path.unlink()


def gone(animals):
    shutil.rmtree(animals)


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (broken, ValueError, r"cat.3\.png is damaged, or not an image"),
        (cut, ValueError, r"3\.JPG is damaged, or not an image"),
        (
            one_class,
            ValueError,
            "two folders, .*only cat",
        ),
        (no_images, ValueError, r"pets.dog, but 1 \.txt"),
        (flat, ValueError, "two folders, .*none"),
        (
            two_pictures,
            ValueError,
            "train split .*cat, dog: .*three",
        ),
        (gone, FileNotFoundError, "no folder at .*pets"),
    ],
)
def test_bad_folders_get_named(animals, spoil, kind, says):
    spoil(animals)
    with pytest.raises(kind, match=says):
        folder(animals, image_size=8, split="exact")


def test_too_many_images_for_memory_are_refused_before_they_are_read(animals):
    with pytest.raises(
        ValueError,
        match=r"20 images of 10000 x 10000 .* 5\.6 GiB .* 4 GiB",
    ):
        folder(animals, image_size=10000)


def test_images_that_are_all_one_color_are_refused(tmp_path):
    for name in "ab":
        for i in range(5):
            picture(tmp_path / "x" / name / f"{i}.png", (1, 2, 3), (8 + i, 8 if name == "a" else 9))
    with pytest.raises(ValueError, match="constant"):
        folder(tmp_path / "x", image_size=8, split="exact")


# Splits, and what can be sent to another process


def test_a_folder_named_like_an_image_is_passed_over_and_named(pets):
    save(pets / "cat" / "x.jpg" / "inside.ppm", 999)
    with pytest.warns(UserWarning, match=r"x\.jpg is a folder"):
        assert sum(folder(pets, 8).class_counts) == 101
    # predict looks at what is inside
    with pytest.raises(ValueError, match=r"x\.jpg is a folder"):
        open_picture(pets / "cat" / "x.jpg")


def test_a_folder_that_cannot_be_read_is_named(pets, monkeypatch):
    (pets / "cat" / "closed").mkdir()
    right = os.scandir

    def scandir(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return right(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ValueError, match=r"closed .*Permission denied"):
        folder(pets, 8)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_with_any_character_are_told_on_one_line(pets):
    bad = pets / "cat" / "two\nlines.jpg"
    bad.touch()
    with pytest.raises(ValueError, match=r"two\\nlines\.jpg' ") as caught:
        folder(pets, 8)
    assert "\n" not in str(caught.value)


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
    with pytest.raises(ValueError, match=f"(train|validation|test) .*wolf: {says}"):
        folder(pets, 6, split=how)
    for words in (["train", "--data"], ["shards"]):
        words = [
            *words,
            f"folder:{pets}",
            *([str(tmp_path / "new")] if words == ["shards"] else ["--out", str(tmp_path / "run")]),
        ]
        assert main([*words, "--split", how]) == 1
        assert "wolf: " in capsys.readouterr().err


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
        (("val", "test"), "divided .*test, val .* train"),
        (("testing", "Test"), "Test and .*testing .*test split"),
        (("train", "val", "valid"), "val and .*valid .*validation split"),
        (("Train", "training"), "Train and .*training .*train split"),
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
        with pytest.raises(ValueError, match=f"{name} .* train"):
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
