"""Which images a model has seen: where that is unknown, `train` and `evaluate` say so."""

import shutil

import pytest
from commands import command
from PIL import Image

from tests.data.test_listing import draw
from vit_helpers.cli.seen import OTHERS, SEEN, TRAINED_ON, notes_of
from vit_helpers.data import load
from vit_helpers.pretrained import load_pretrained, save_weights

pytestmark = pytest.mark.usefixtures("no_figures")
SMALL = ["--image-size", "8", "--patch", "8", "--set", "depth=1", "--epochs", "1"]
UNKNOWN = "note: it is unknown which "
UNCERTAIN = "note: it is unknown whether "


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on a folder, on a named data set, on shards, and fine-tuned from each and from others"""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(60):
        path = folder / ("x" if number < 40 else "y") / ("cat", "dog")[number % 2]
        draw(path / f"{number}.png", number)
    shards = ["shards", "folder:x", "shards", "--image-size", "8", "--split", "exact"]
    assert command(*shards, cwd=folder).returncode == 0
    digits = ["--epochs", "1", "--set", "depth=1", "--set", "images=64"]
    tuned = ["--tune", "head", "--epochs", "1"]
    exact = ["--split", "exact"]
    for name, *words in (
        ("folder", "folder:x", *exact, *SMALL),
        ("digits", "digits", *digits),
        ("shards", "shards:shards", "--patch", "8", "--set", "depth=1", "--epochs", "1"),
        ("folder-tuned", "folder:y", *exact, "--weights", "folder", *tuned),
        ("digits-tuned", "digits", "--weights", "digits", *tuned),
        ("shards-tuned", "folder:y", *exact, "--weights", "shards", *tuned),
        ("ours-tuned", "folder:y", *exact, "--weights", "ours:eight", *tuned),
        ("twice-tuned", "folder:x", *exact, "--weights", "ours-tuned", *tuned),
    ):
        done = command("train", "--data", *words, "--out", name, cwd=folder)
        assert done.returncode == 0, done
        (folder / f"{name}.txt").write_text(done.stdout)
    return folder


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *(("folder", True), ("folder-tuned", True), ("digits", True), ("digits-tuned", True)),
        *(("shards", True), ("shards-tuned", False), ("ours-tuned", False)),
        ("twice-tuned", False),
    ],
)
def test_train_says_whether_its_test_may_have_been_seen(runs, name, known):
    """A run from ours:eight was tested on photos of which ours:eight had seen some"""
    assert (UNCERTAIN in (runs / f"{name}.txt").read_text()) != known


@pytest.mark.parametrize(
    ("name", "known"),
    [("folder", True), ("folder-tuned", True), ("shards", False), ("shards-tuned", False),
     ("ours-tuned", False), ("twice-tuned", False)],
)  # fmt: skip
def test_evaluate_says_whether_images_may_have_been_seen(runs, name, known):
    """Only of shards and of ours it did: of what was trained from them, nothing was said"""
    done = command("evaluate", name, "folder:x", cwd=runs)
    assert done.returncode == 0 and (UNKNOWN in done.stdout) != known, done


def test_images_of_a_named_data_set_may_have_been_seen(runs):
    """Training images of digits, saved as files, gave an accuracy of 0.93 without a note"""
    data = load("digits")
    for number in range(40):
        path = runs / "own" / data.class_names[data.train.labels[number]] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((data.train.images[number, 0] * 255).byte().numpy()).save(path)
    done = command("evaluate", "digits", "folder:own", cwd=runs)
    assert done.stdout.startswith(UNKNOWN + "images digits was trained on: these may be"), done
    done = command("evaluate", "digits", "digits", cwd=runs)
    assert done.stdout.startswith("accuracy"), done
    done = command("evaluate", "digits-tuned", "digits", cwd=runs)
    assert done.stdout.startswith("accuracy"), done
    save_weights(runs / "plain.safetensors", *load_pretrained(runs / "digits"))
    done = command("evaluate", "plain.safetensors", "digits", cwd=runs)
    assert done.stdout.startswith(UNCERTAIN + "plain.safetensors was trained on images"), done


def test_what_is_known_is_left_out_where_other_images_are_unknown(runs):
    done = command("evaluate", "twice-tuned", "folder:x", cwd=runs)
    assert done.stdout.startswith("note: 34 of 40 images are left out: twice-tuned was trained")
    assert UNKNOWN + "other images" in done.stdout
    known = len(notes_of(str(runs / "ours-tuned"))[SEEN])
    assert len(notes_of(str(runs / "twice-tuned"))[SEEN]) > known > 0


def test_a_test_split_that_the_start_has_seen_is_counted(runs):
    """The same images, whose splits are drawn again because some are added"""
    shutil.copytree(runs / "x", runs / "z")
    for number in range(60, 80):
        draw(runs / "z" / "cat" / f"{number}.png", number)
    words = ["--split", "exact", "--weights", "folder", "--tune", "head", "--epochs", "1"]
    done = command("train", "--data", "folder:z", *words, cwd=runs)
    assert "test images are images that folder" in done.stdout, done


def test_notes_say_what_is_known(runs):
    assert notes_of(str(runs / "folder"))[OTHERS] == "none"
    assert TRAINED_ON not in notes_of(str(runs / "folder"))
    notes = notes_of(str(runs / "digits"))
    assert (notes[OTHERS], notes[SEEN], notes[TRAINED_ON]) == ("unknown", "", "digits")
