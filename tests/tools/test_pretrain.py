"""The tool that trains what is stored: its files, and the tools that start from them."""

import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from commands import command, main_status
from PIL import Image

from tools import main as run_tool
from tools import pretrain
from tools.experiments import localization, transfer, unfamiliar
from vit_helpers.ablation import unpack
from vit_helpers.data import load
from vit_helpers.pretrained import load_pretrained, load_weights
from vit_helpers.pretrained.calibration import load_familiarity
from vit_helpers.pretrained.files import read_notes
from vit_helpers.results.localization import unpack_scores

pytestmark = pytest.mark.dev


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
    folder = tmp_path_factory.mktemp("my photos")
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
        == f"python -m tools.pretrain photos --photos {shlex.quote(words[2])} --epochs 2 --seed 0"
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
    assert "ours:scattered" in capsys.readouterr().err


def weights(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)["model"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """What `pretrain` keeps, after a moment's training"""
    folder = tmp_path_factory.mktemp("pretrained")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        words = [
            "scattered",
            "seven",
            "masked",
            "--images",
            "60",
            "--epochs",
            "1",
            "--out",
            str(folder / "weights"),
        ]
        assert run_tool(pretrain, words) == 0
    return folder / "weights", said.getvalue()


@pytest.mark.dev
def test_pretrain_stores_three_kinds_of_models(pretrained):
    folder, said = pretrained
    kept = {
        name: load_weights(folder / f"{name}-0.safetensors")
        for name in ("scattered", "seven", "masked")
    }
    assert [len(one.class_names) for one in kept.values()] == [10, 7, 0]
    assert [one.preprocess.crop for one in kept.values()] == [(24, 24), (24, 24), (8, 8)]
    accuracies = re.findall(
        r"^0 minutes, accuracy: validation 0\.\d{4}, test (0\.\d{4})$", said, re.M
    )
    assert len(accuracies) == 2 and "mean squared error of hidden pixels" in said
    notes = {name: read_notes(folder / f"{name}-0.safetensors") for name in kept}
    assert [one.get("test accuracy") for one in notes.values()] == [*accuracies, None]
    for name, one in notes.items():
        images = "" if name == "masked" else "--images 60 "
        assert one["command"] == f"python -m tools.pretrain {name} {images}--epochs 1 --seed 0"
    data = load("scattered_digits", n=60)
    assert torch.allclose(
        kept["seven"].preprocess(data.test.images[0]), data.normalize(data.test.images)[0]
    )


@pytest.mark.dev
def test_localization_stores_and_prints_its_rows(pretrained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(localization, "IMAGES", 200)
    words = [str(pretrained[0] / "scattered-0.safetensors"), "--out", "kept/localization.csv"]
    assert run_tool(localization, words) == 0
    said, stored = (
        capsys.readouterr().out,
        Path("kept/localization.csv").read_text(encoding="utf-8"),
    )
    rows = pd.read_csv("kept/localization.csv")
    assert len(rows) == 5 + 5 + 7
    assert rows.groupby("model")["method"].count().to_dict() == {
        "none": 7,
        "trained": 5,
        "untrained": 5,
    }
    uniform = rows[rows["method"] == "uniform map"].iloc[0]
    assert uniform["inside"] == uniform["inside_other"] == 0.25
    assert (unpack_scores(uniform["rank"]) == 0.5).all() and len(
        unpack_scores(uniform["pointing_game_other"])
    ) == 40
    for method in rows["method"].unique():
        assert method in said
    for map_scored in (
        "\ntrained 0 rollout {'inside': ",
        "\nnone 0 uniform map {'inside': 0.25, 'inside_other': 0.25}",
    ):
        assert said.count(map_scored) == 1
    assert run_tool(localization, words) == 0  # nothing is left to do, and nothing is done twice
    assert "{'inside': " not in capsys.readouterr().out
    assert Path("kept/localization.csv").read_text(encoding="utf-8") == stored
    assert run_tool(localization, ["nobody.safetensors"]) == 1
    assert f"error: no weights at {Path.cwd() / 'nobody.safetensors'}" in capsys.readouterr().err


@pytest.mark.dev
def test_transfer_chooses_a_rate_for_each_way_and_continues(
    pretrained, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("vit_helpers.pretrained.sources.OURS", tmp_path)
    for name in ("seven", "masked"):
        shutil.copy(pretrained[0] / f"{name}-0.safetensors", tmp_path / f"{name}.safetensors")
    small = {"labels": [40], "augment": ["affine"], "pool": 100}
    tasks = {
        name: task | small | ({"images": 600} if "images" in task else {})
        for name, task in transfer.TASKS.items()
    }
    monkeypatch.setattr(
        transfer, "TASKS", {name: tasks[name] for name in ("new classes", "no labels before")}
    )
    monkeypatch.setattr(
        transfer, "SETTINGS", transfer.SETTINGS | {"steps": 2, "tuning_seeds": [100]}
    )
    transfer.data_of.cache_clear()
    out = tmp_path / "transfer.csv"
    assert run_tool(transfer, ["--seeds", "2", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("about 0.8 hours on one free core")
    assert re.search(
        r"^new classes +affine +40 +from scratch +0\.\d{1,3} +0\.\d{1,3} +0\.\d{1,3}$", said, re.M
    )
    rows = pd.read_csv(out)
    assert len(rows) == 2 * 4 * (3 + 2) and (rows["steps"] == 2).all()
    tested = rows[rows["split"] == "test"]
    assert (tested.groupby(["task", "way"])["lr"].nunique() == 1).all() and set(tested["seed"]) == {
        0,
        1,
    }
    assert all(abs(unpack(row.right).mean() - row.accuracy) < 1e-4 for row in rows.itertuples())
    trained = rows[rows["task"] == "new classes"].groupby("way")["trained"].first()
    assert (
        trained["probe"]
        == 3 * 65
        < trained["LoRA"]
        == 3 * 65 + 4 * 4 * (64 + 192)
        < trained["full"]
    )
    assert trained["full"] == trained["from scratch"]
    # as if stopped before the last run
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:-1]))
    assert run_tool(transfer, ["--seeds", "2", "--out", str(out)]) == 0
    again = pd.read_csv(out).drop(columns="seconds")
    assert again.equals(rows.drop(columns="seconds"))
    weights = shutil.copy(tmp_path / "seven.safetensors", tmp_path / "seven-3.safetensors")
    words = ["--tasks", "new classes", "--seeds", "1", "--pretrained", "3", "--out", str(out)]
    assert run_tool(transfer, [*words, "--weights", str(weights.parent)]) == 0
    added = pd.read_csv(out).iloc[len(rows) :]
    assert added["way"].tolist() == ["probe", "LoRA", "full"]  # from scratch has no such model
    assert set(added["pretrained"]) == {3} and set(rows["pretrained"]) == {0}
    first = tested[(tested["task"] == "new classes") & (tested["seed"] == 0)].iloc[1:]
    assert added["right"].tolist() == first["right"].tolist()  # the same weights, the same answers


def test_predict_classifies_a_picture_and_draws_its_attention(
    pretrained, tmp_path, monkeypatch, capsys
):
    weights = pretrained[0] / "scattered-0.safetensors"
    Image.fromarray((load("scattered_digits", n=60).test.images[0, 0] * 255).byte().numpy()).save(
        tmp_path / "mine.png"
    )
    done = command("predict", "mine.png", "--weights", weights, "--top", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shares = [float(x) for x in re.findall(r"^ *([\d.]+)%  \d$", done.stdout, re.M)]
    assert len(shares) == 3 and shares == sorted(shares, reverse=True)
    with Image.open(tmp_path / "mine-attention.png") as drawn:
        assert drawn.size == (1100, 400)
    monkeypatch.chdir(tmp_path)
    for picture, files, says in (
        ("nobody.png", weights, f"no picture at {tmp_path / 'nobody.png'}"),
        (weights, weights, "is damaged, or not an image"),
        ("mine.png", "vit_b_16", "unknown weights 'vit_b_16'"),
        (
            "mine.png",
            pretrained[0] / "masked-0.safetensors",
            "has no classification head, so it cannot predict classes",
        ),
    ):
        assert main_status("predict", str(picture), "--weights", str(files)) == 1
        assert says in capsys.readouterr().err
