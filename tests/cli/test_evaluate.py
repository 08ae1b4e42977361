"""The command `evaluate`: which images are tested, and what it says and stores of them."""

import csv
import os
import re
import shutil
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
import torch
from commands import command, stop_halfway, untrained
from image_files import fill
from PIL import Image

from vit_helpers.cli import evaluate
from vit_helpers.cli.outputs import draw_mistakes, has_mark
from vit_helpers.cli.seen import notes_of, seen_digests
from vit_helpers.data import load
from vit_helpers.pretrained import Preprocess
from vit_helpers.pretrained.files import load_weights, save_weights
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.usefixtures("no_evaluation_drawn")

# Which images are tested


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        (("bus", "train"), "on 20 images of folder"),  # classes
        (("bus", "Test", "Test/more"), "on 30 images of folder"),
        (("val/bus", "val/train", "test/bus", "test/train"), "on 20 images of the test split of"),
        (
            ("train/bus", "train/train", "test/bus", "test/train", "train", "test"),
            "on 20 images of the test split of",
        ),
    ],
)
def test_a_folder_is_one_of_splits_or_of_classes(tmp_path, folders, says):
    for number, name in enumerate(folders):
        fill(tmp_path / "x" / name, 10, 10 * number)
    untrained(tmp_path / "w.safetensors", "bus", "Test" if "Test" in folders else "train")
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert done.returncode == 0 and says in done.stdout, done


def test_of_a_test_split_beside_classes_both_readings_are_shown(tmp_path):
    for number, name in enumerate(("test/bus", "test/train", "bus", "train")):
        fill(tmp_path / "x" / name, 10, 10 * number)
    untrained(tmp_path / "w.safetensors", "bus", "train")
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert done.returncode == 1, done
    assert "if test, train are splits, move bus" in done.stderr


@pytest.mark.parametrize("split", ["exact", "hash"])
def test_no_image_is_tested_that_the_run_has_seen(tmp_path, split):
    """Not of a copy of the folder, nor when images were added, which draws exact splits again"""
    fill(tmp_path / "x" / "cat", 20)
    fill(tmp_path / "x" / "dog", 20, 20)
    small = [
        "--image-size",
        8,
        "--patch",
        8,
        "--size",
        "mini",
        "--set",
        "depth=1",
        "--epochs",
        1,
        "--no-cache",
    ]
    done = command(
        "train", "--data", "folder:x", "--split", split, *small, "--out", "run", cwd=tmp_path
    )
    accuracy, n = re.search(r"test accuracy ([\d.]+) on (\d+) images", done.stdout).groups()
    (tmp_path / "x").rename(tmp_path / "y")
    done = command("evaluate", "run", "folder:y", "--csv", "y.csv", cwd=tmp_path)
    note = f"note: {40 - int(n)} of 40 images are left out: run was trained or validated on them\n"
    assert done.returncode == 0 and done.stdout.startswith(
        f"{note}accuracy {accuracy} on {n} images of folder:y;"
    ), done
    answers = pd.read_csv(tmp_path / "y.csv")
    seen = seen_digests(notes_of(str(tmp_path / "run")), "run")
    files = sorted((tmp_path / "y").glob("*/*.ppm"))
    new = [file for file in files if sha256(file.read_bytes()).digest()[:4] not in seen]
    assert answers["picture"].tolist() == [str(file.relative_to(tmp_path)) for file in new]
    assert answers["true class"].tolist() == [file.parent.name for file in new]
    right = answers["true class"] == answers["predicted class"]
    assert f"{right.mean():.4f}" == accuracy
    fill(tmp_path / "y" / "dog", 10, 40)
    done = command("evaluate", "run/weights.safetensors", "folder:y", cwd=tmp_path)
    assert done.returncode == 0 and f"on {int(n) + 10} images of folder:y;" in done.stdout, done
    data = load(f"folder:{tmp_path / 'y'}", image_size=8)
    assert len(data.seen) == len(data.train) + len(data.validation)


def test_what_a_source_of_weights_has_seen_is_left_out_too(tmp_path):
    small = ["--image-size", 8, "--patch", 8, "--size", "mini", "--set", "depth=1"]
    for name, first in (("x", 0), ("y", 40)):
        fill(tmp_path / name / "cat", 20, first)
        fill(tmp_path / name / "dog", 20, first + 20)
    for words in (
        ["folder:x", *small, "--out", "a"],
        ["folder:y", "--weights", "a", "--tune", "head", "--out", "b"],
    ):
        done = command(
            "train", "--data", *words, "--split", "exact", "--epochs", 1, "--no-cache", cwd=tmp_path
        )
        assert done.returncode == 0, done
    for folder in ("x", "y"):
        done = command("evaluate", "b", f"folder:{folder}", cwd=tmp_path)
        assert done.stdout.startswith(
            "note: 34 of 40 images are left out: b was trained or validated on them"
        ), done
    untrained(tmp_path / "w.safetensors", "cat", "dog")  # as of an older version
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert done.stdout.startswith(
        "note: it is unknown which images w.safetensors was trained on: these may be"
    ), done


def test_a_run_that_has_seen_all_images_is_not_tested_on_them(tmp_path):
    fill(tmp_path / "x" / "cat", 4)
    seen = b"".join(
        sha256(file.read_bytes()).digest()[:4] for file in (tmp_path / "x" / "cat").iterdir()
    )
    untrained(tmp_path / "w.safetensors", "cat", "dog", seen=b64encode(seen).decode())
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert done.returncode == 1 and "all of these 4 images" in done.stderr


# What was predicted for each image


def always(path, answer, *names, **notes):
    """A model as it is saved by a run, which always gives this answer, with 0.9 or more"""
    untrained(path, *names, **notes)
    model, preprocess, names = load_weights(path)
    with torch.no_grad():
        model.head.weight.mul_(0.01)
        model.head.bias.copy_(5.0 * torch.eye(len(names))[names.index(answer)])
    save_weights(path, model, preprocess, names, notes)


def test_each_image_has_a_row_with_both_classes_and_the_probability(tmp_path):
    fill(tmp_path / "x" / "cat", 3)
    fill(tmp_path / "x" / "@dog", 2, 3)
    (tmp_path / "x" / "cat" / "bad.ppm").write_bytes(b"no image")
    untrained(tmp_path / "w.safetensors", "bird", "cat", "@dog")
    done = command("evaluate", "w.safetensors", "folder:x", "--csv", "a.csv", cwd=tmp_path)
    assert done.returncode == 1 and "1 of 6 images" in done.stderr, done
    command("predict", "x", "--weights", "w.safetensors", "--csv", "p.csv", cwd=tmp_path)
    answers, predictions = (pd.read_csv(tmp_path / name) for name in ("a.csv", "p.csv"))
    assert answers.columns.tolist() == ["picture", "true class", "predicted class", "probability"]
    files = [*(f"x/@dog/{n}.ppm" for n in (3, 4)), *(f"x/cat/{n}.ppm" for n in range(3))]
    assert answers["picture"].tolist() == [str(Path(file)) for file in files]
    # a ' before what a spreadsheet would compute
    assert answers["true class"].tolist() == ["'@dog"] * 2 + ["cat"] * 3
    for column, theirs in (("predicted class", "class"), ("probability", "probability")):
        assert answers[column].tolist() == predictions[theirs].tolist()


def test_answers_that_are_not_finished_leave_those_before(tmp_path, monkeypatch):
    fill(tmp_path / "x" / "cat", 2)
    untrained(tmp_path / "w.safetensors", "cat", "dog")
    words = ["evaluate", "w.safetensors", "folder:x", "--csv", "a.csv"]
    assert command(*words, cwd=tmp_path).returncode == 0
    files = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    monkeypatch.setattr(pd.DataFrame, "to_csv", stop_halfway)
    assert command(*words, cwd=tmp_path).returncode == 130
    assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == files


def test_names_of_images_are_no_formulas(tmp_path):
    fill(tmp_path / "=1+1", 2)
    fill(tmp_path / "cat", 2, 2)
    untrained(tmp_path / "w.safetensors", "=1+1", "cat")
    done = command("evaluate", "w.safetensors", "folder:.", "--csv", "a.csv", cwd=tmp_path)
    assert done.returncode == 0, done
    assert pd.read_csv(tmp_path / "a.csv")["picture"][0] == f"'{Path('=1+1', '0.ppm')}"


@pytest.mark.parametrize("tta", ["yes", "no"])
def test_images_that_are_no_files_are_named_by_split_and_number(tmp_path, tta):
    data = load("digits")
    names = data.class_names[::-1]  # the model's classes are in another order
    config = ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10)
    preprocess = Preprocess(8, (8, 8), "bilinear", data.mean, data.std)
    model = ViT(config)
    save_weights(tmp_path / "w.safetensors", model, preprocess, names, {"tta": tta})
    done = command("evaluate", "w.safetensors", "digits", "--csv", "a.csv", cwd=tmp_path)
    assert done.returncode == 0, done
    answers = pd.read_csv(tmp_path / "a.csv", dtype={"true class": str, "predicted class": str})
    assert answers["picture"].tolist() == [f"test {number}" for number in range(360)]
    assert answers["true class"].tolist() == [data.class_names[k] for k in data.test.labels]
    images = data.normalize(data.test.images)
    with torch.no_grad():
        probabilities = model.eval()(images).softmax(dim=1)
        if tta == "yes":
            probabilities = (probabilities + model(images.flip(3)).softmax(dim=1)) / 2
    best = probabilities.max(dim=1)
    assert answers["predicted class"].tolist() == [names[k] for k in best.indices]
    assert answers["probability"].to_numpy() == pytest.approx(best.values.numpy(), abs=1e-6)
    right = answers["true class"] == answers["predicted class"]
    assert f"accuracy {right.mean():.4f} on 360 images" in done.stdout


def test_the_picture_of_mistakes_is_of_those_in_the_table(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(evaluate, "draw_mistakes", lambda *what: drawn.append(what))
    fill(tmp_path / "x" / "cat", 20)
    fill(tmp_path / "x" / "dog", 20, 20)
    untrained(tmp_path / "w.safetensors", "cat", "dog")
    words = ["folder:x", "--csv", "a.csv", "--out", "a.png"]
    done = command("evaluate", "w.safetensors", *words, cwd=tmp_path)
    assert done.returncode == 0, done
    table = pd.read_csv(tmp_path / "a.csv")
    wrong = table[table["true class"] != table["predicted class"]]
    worst = wrong.sort_values("probability", ascending=False, kind="stable").head(12)
    file, (images, answers), counts, names, pictures = drawn[0]
    assert file == Path("a-mistakes.png") and len(images) == len(worst) > 5
    assert pictures == [Path(picture).name for picture in worst["picture"]]
    assert [names[k] for k in answers.predictions] == worst["predicted class"].tolist()
    assert answers.probabilities.numpy() == pytest.approx(worst["probability"].to_numpy())
    _, preprocess, _ = load_weights(tmp_path / "w.safetensors")
    for image, picture in zip(images, worst["picture"], strict=True):
        assert torch.equal(image, preprocess.frame(Image.open(tmp_path / picture)))
    assert counts.sum() - counts.trace() == len(wrong)


def test_a_picture_of_mistakes_goes_when_there_are_none(tmp_path, monkeypatch):
    """That of an earlier model would be taken for this one's"""
    monkeypatch.setattr(evaluate, "draw_mistakes", draw_mistakes)
    fill(tmp_path / "x" / "cat", 2)
    always(tmp_path / "bad.safetensors", "dog", "cat", "dog")
    always(tmp_path / "good.safetensors", "cat", "cat", "dog")
    done = command("evaluate", "bad.safetensors", "folder:x", cwd=tmp_path)
    assert "accuracy 0.0000" in done.stdout and "\nmistakes: x-mistakes.png\n" in done.stdout, done
    assert has_mark(".png", (tmp_path / "x-mistakes.png").read_bytes())
    done = command("evaluate", "good.safetensors", "folder:x", cwd=tmp_path)
    assert "accuracy 1.0000" in done.stdout and "mistakes" not in done.stdout, done
    assert not (tmp_path / "x-mistakes.png").exists()


def test_of_uneven_classes_the_balanced_accuracy_is_said(tmp_path):
    fill(tmp_path / "x" / "cat", 9)
    fill(tmp_path / "x" / "dog", 1, 9)
    always(tmp_path / "w.safetensors", "cat", "cat", "dog")
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    says = "balanced accuracy 0.5000, the mean over the classes, which have 1 to 9 test images\n"
    assert "\naccuracy 0.9000 on 10 images" in done.stdout and says in done.stdout, done


def test_more_than_30_classes_are_a_table_in_a_file(tmp_path):
    names = [f"c{number:02}" for number in range(40)]
    for number, name in enumerate(names[:35]):
        fill(tmp_path / "x" / name, 2, 2 * number)
    always(tmp_path / "w.safetensors", "c07", *names)
    for _ in range(2):  # its own table is replaced
        done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
        assert done.returncode == 0, done
    assert "worst of 35 classes" in done.stdout
    assert re.search(r"\n +c00 +c07 +2 +1\.000\n", done.stdout), done.stdout
    assert done.stdout.count("\nc") == 10 + len(["confusion", "classes"])
    assert "\nclasses: x-classes.csv" in done.stdout
    rows = pd.read_csv(tmp_path / "x-classes.csv", index_col="class")
    assert rows.index.tolist() == [*names, "all classes"]
    assert rows.loc["c07", "accuracy"] == 1 and rows.loc["all classes", "images"] == 70
    (tmp_path / "x-classes.csv").write_text("class,weekday\n1a,Monday\n")
    done = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert done.returncode == 1 and "x-classes.csv" in done.stderr


# Names


@pytest.mark.skipif(os.name == "nt", reason="file names are no bytes there")
def test_names_that_are_not_utf_8_are_trained_on_tested_and_predicted(tmp_path):
    try:
        home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff"))
        fill(home / os.fsdecode(b"caf\xe9"), 20)
    except OSError:
        pytest.skip("this file system has no such names")
    fill(home / "日本", 20, 20)
    out, words = (
        Path(os.fsdecode(b"out\xff")),
        ["--data", f"folder:{home}", "--split", "exact", "--epochs", 1, "--no-cache"],
    )
    small = ["--image-size", 8, "--patch", 8, "--size", "mini", "--set", "depth=1"]
    done = command("train", *words, *small, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done
    assert load_weights(tmp_path / out / "weights.safetensors").class_names == (r"caf\xe9", "日本")
    done = command("evaluate", out, f"folder:{home}", cwd=tmp_path)
    assert done.returncode == 0 and "6 images of folder:" in done.stdout, done
    done = command(
        "predict", home, "--weights", out, "--csv", out.with_suffix(".csv"), cwd=tmp_path
    )
    assert done.returncode == 0, done
    with (tmp_path / out).with_suffix(".csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert (
        head[3:] == [r"p(caf\xe9)", "p(日本)"]
        and len(rows) == 40
        and rows[0][0].endswith(r"dir\xff/caf\xe9/0.ppm")
    )
    assert command("train", "--resume", out, "--no-cache", cwd=tmp_path).returncode == 0
    foreign = (tmp_path / out).with_suffix(".safetensors")
    shutil.copy(tmp_path / out / "weights.safetensors", foreign)
    assert (
        command("train", *words, "--weights", foreign, "--out", "b", cwd=tmp_path).returncode == 0
    )


# Results that cannot be written


# Results replace neither what a command reads nor what others wrote


def test_a_name_of_several_classes_is_refused(tmp_path):
    """An answer of the second one counted as wrong"""
    untrained(tmp_path / "w.safetensors", "crane", "dog", "crane")
    fill(tmp_path / "x" / "crane", 10)
    fill(tmp_path / "x" / "dog", 10, first=10)
    run = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert "several classes called crane" in run.stderr
    shutil.rmtree(tmp_path / "x" / "crane")
    run = command("evaluate", "w.safetensors", "folder:x", cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_a_white_beside_a_data_set_of_its_own_is_refused(tmp_path):
    untrained(tmp_path / "w.safetensors", *"0123456789")
    run = command("evaluate", "w.safetensors", "digits", "--white", "100", cwd=tmp_path)
    assert run.returncode == 1 and "--white is an option for folder:PATH, not for digits" in (
        run.stderr
    )
