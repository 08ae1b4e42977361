"""The model of photographs: how it is trained and calibrated, its file, and what it predicts."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.cli.test_commands import main_status, run_tool
from tools import pretrain
from tools.experiments import transfer, unfamiliar
from vit_helpers.data import Batches, load, photos, subset
from vit_helpers.data.digits import cat
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.calibration import load_familiarity
from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import OURS
from vit_helpers.results import RESULTS, read_results
from vit_helpers.training import evaluate

STORED = OURS / "photos.safetensors"


def draw_colors(folder, names):
    """Images of the classes with these names, each brighter in other channels, in three splits"""
    rng = np.random.default_rng(0)
    for split in ("train", "validation", "test"):
        for kind, name in enumerate(names, 1):
            (folder / split / name).mkdir(parents=True)
            for number in range(8):
                pixels = rng.integers(0, 60, (32, 32, 3))
                pixels[:, :, [channel for channel in range(3) if kind >> channel & 1]] += 150
                Image.fromarray(pixels.astype(np.uint8)).save(
                    folder / split / name / f"{number}.png"
                )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of images in three colors, and the file of a model trained on them for a moment"""
    folder = tmp_path_factory.mktemp("photos")
    draw_colors(folder / "colors", ("blue", "green", "red"))
    words = [
        "photos",
        "--photos",
        f"folder:{folder / 'colors'}",
        "--epochs",
        "2",
        "--out",
        str(folder),
    ]
    assert run_tool(pretrain, words) == 0
    return folder, words


@pytest.mark.dev
def test_the_file_says_how_the_model_was_trained(trained):
    folder, words = trained
    file = folder / "photos-0.safetensors"
    notes, model = read_notes(file), load_pretrained(file)
    assert (
        notes["command"]
        == f"python -m tools.pretrain photos --photos {words[2]} --epochs 2 --seed 0"
    )
    assert {"minutes", "temperature", "validation accuracy", "test accuracy"} <= notes.keys()
    assert model.class_names == ("blue", "green", "red") and model.preprocess.resize == 32
    assert load_familiarity(file).means.shape == (3, 128)


@pytest.mark.dev
def test_an_interrupted_training_goes_on(trained, capsys):
    folder, words = trained
    before = load_pretrained(folder / "photos-0.safetensors").model.state_dict()
    assert run_tool(pretrain, [*words, "--resume"]) == 0
    assert "epoch" not in capsys.readouterr().out.split("accuracy")[0]  # nothing was left to train
    after = load_pretrained(folder / "photos-0.safetensors").model.state_dict()
    assert all(torch.equal(one, after[name]) for name, one in before.items())


@pytest.mark.dev
def test_a_model_that_never_saw_cats_and_dogs_learns_them_from_few_labels(
    tmp_path, monkeypatch, capsys
):
    draw_colors(tmp_path / "animals", ("cat", "dog", "frog", "horse"))
    photos = ["--photos", f"folder:{tmp_path / 'animals'}"]
    assert run_tool(pretrain, ["eight", *photos, "--epochs", "1", "--out", str(tmp_path)]) == 0
    (tmp_path / "eight-0.safetensors").rename(tmp_path / "eight.safetensors")
    monkeypatch.setattr("vit_helpers.pretrained.sources.OURS", tmp_path)
    assert load_pretrained("ours:eight").class_names == ("frog", "horse")
    small = {"labels": [12], "pool": 16}
    monkeypatch.setattr(transfer, "TASKS", {"photos": transfer.TASKS["photos"] | small})
    monkeypatch.setattr(
        transfer, "SETTINGS", transfer.SETTINGS | {"steps": 1, "tuning_seeds": [100]}
    )
    assert transfer.data_of("photos", photos[1]).class_names == ("cat", "dog")
    first = transfer.data_of("photos", photos[1]).train.labels[:8]
    # a folder is read class by class, so its images have to be mixed
    assert set(first.tolist()) == {0, 1}
    assert (
        run_tool(transfer, [*photos, "--seeds", "1", "--out", str(tmp_path / "transfer.csv")]) == 0
    )
    rows = pd.read_csv(tmp_path / "transfer.csv")
    assert len(rows) == 4 * (3 + 1) and set(rows["task"]) == {"photos"}
    assert "from scratch" in capsys.readouterr().out


def test_the_stored_model_without_cats_and_dogs_has_not_seen_them():
    notes, kept = read_notes(OURS / "eight.safetensors"), load_pretrained("ours:eight")
    every = load_pretrained("ours:photos").class_names
    assert kept.class_names == tuple(name for name in every if name not in ("cat", "dog"))
    assert (
        notes["command"] == "python -m tools.pretrain eight --photos folder:cifar10_jpeg --seed 0"
    )


@pytest.mark.dev
def test_a_row_for_each_kind_of_image(trained, monkeypatch, capsys):
    monkeypatch.setattr(unfamiliar, "COUNT", 20)
    folder, words = trained
    file, out = str(folder / "photos-0.safetensors"), folder / "unfamiliar.csv"
    assert run_tool(unfamiliar, ["--weights", file, "--photos", words[2], "--out", str(out)]) == 0
    rows = pd.read_csv(out, index_col="kind")
    assert (
        list(rows.index[:5]) == ["validation", "test", "china", "flower", "digits"]
        and "noise" in capsys.readouterr().out
    )
    assert rows["accuracy"].notna().sum() == 2 and rows.loc["validation", "unfamiliar"] < 0.1
    assert (
        run_tool(
            unfamiliar, ["--weights", "ours:scattered", "--photos", words[2], "--out", str(out)]
        )
        == 1
    )
    assert "ours:scattered does not say which images are familiar" in capsys.readouterr().err


def test_the_stored_file_is_small_and_complete():
    notes, (model, preprocess, names) = read_notes(STORED), load_pretrained("ours:photos")
    assert STORED.stat().st_size < 2.5e6
    assert sum(p.numel() for p in model.parameters()) == 1_205_642
    assert preprocess.crop == (32, 32) and len(names) == 10 and "cat" in names
    assert (
        notes["command"] == "python -m tools.pretrain photos --photos folder:cifar10_jpeg --seed 0"
    )
    assert float(notes["minutes"]) <= 100 and float(notes["test accuracy"]) > 0.83


def test_the_results_page_shows_the_stored_rows():
    page = (
        (RESULTS / "README.md")
        .read_text(encoding="utf-8")
        .partition("\n## Photos\n")[2]
        .partition("\n## ")[0]
    )
    shown = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    stored, notes = read_results("unfamiliar"), read_notes(STORED)
    for (words, *cells), row in zip(shown, stored.to_dict("records"), strict=True):
        numbers = [float(cell.replace(",", "")) for cell in cells]
        wanted = [row["images"], row["probability"], row["above 0.9"], row["unfamiliar"]]
        assert numbers == pytest.approx(wanted, abs=0.0051), words
        if row["accuracy"] == row["accuracy"]:
            found = [float(number) for number in re.findall(r"0\.\d{3}", words)]
            assert found == pytest.approx([row["accuracy"], row["calibration error"]], abs=0.00051)
    assert (
        f"test accuracy is {float(notes['test accuracy']):.3f} (" in page
        and f"took {notes['minutes']} minutes" in page
    )


def test_500_validation_images_are_classified():
    place = Path(os.environ.get("VIT_HELPERS_DATA", "")) / "cifar10_jpeg"
    if not (place / "train").is_dir():
        pytest.skip(
            "needs the photos that the model was trained on, "
            "as VIT_HELPERS_DATA/cifar10_jpeg/train/CLASS/*.jpg"
        )
    data = load(f"folder:{place}", image_size=32)
    hashes = [
        hashlib.sha256(image.numpy().tobytes()).hexdigest() for image in data.validation.pixels
    ]
    rows = torch.tensor(sorted(range(len(hashes)), key=hashes.__getitem__)[:500])
    model, preprocess, _ = load_pretrained("ours:photos")
    accuracy = evaluate(
        model, Batches(subset(data.validation, rows), 100, preprocess.normalize)
    ).accuracy
    stored = float(read_notes(STORED)["validation accuracy"])
    assert abs(accuracy - stored) < 3 * (stored * (1 - stored) / 500) ** 0.5


PROBABILITIES = {"cat": 0.852, "china": 0.007, "flower": 0.444}  # of the cat


def test_photos_have_the_same_probabilities_on_every_machine():
    pictures, model = {"cat": cat(), **photos()}, load_pretrained("ours:photos")
    for name, picture in pictures.items():
        found = dict(model.top(picture, 10))
        assert found["cat"] == pytest.approx(PROBABILITIES[name], abs=0.005), name


def test_predict_names_the_cat_and_draws_its_attention(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = Path(load.__code__.co_filename).parent / "cat.jpg"
    assert main_status("predict", str(file), "--weights", "ours:photos", "--top", "1") == 0
    said = capsys.readouterr().out
    assert re.fullmatch(r" *\d\d\.\d%  cat\nattention: cat-attention.png\n", said)
    with Image.open("cat-attention.png") as drawn:
        assert drawn.size == (1100, 400)


def test_predict_says_which_images_are_unfamiliar(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    noise = torch.randint(
        256, (32, 32, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    Image.fromarray(noise.numpy()).save("noise.png")
    assert main_status("predict", "noise.png", "--weights", "ours:photos") == 0
    assert (
        "note: this image is unusually far from every class that the model knows"
        in capsys.readouterr().out
    )
    Path("cat.jpg").write_bytes((Path(load.__code__.co_filename).parent / "cat.jpg").read_bytes())
    assert main_status("predict", "noise.png", "cat.jpg", "--weights", "ours:photos") == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["unusually far from every class" in line for line in lines] == [True, False]
