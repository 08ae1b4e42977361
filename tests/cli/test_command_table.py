"""Every command on small data, in a table: what was tried, its exit status, and what it said."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from commands import command
from PIL import Image

from vit_helpers.training.presets import AUGMENT, MIRRORS, PRESETS, RunSettings, given_settings

OK, WRONG, USAGE = 0, 1, 2
RUN = ["train", "--epochs", "1", "--out", "new"]

PHOTOS = [*RUN, "--data", "folder:photos"]
TABLE = [  # words, exit status, what is printed: to stdout of 0, to stderr of others
    # settings
    ([*RUN, "--set", "depth=1", "--set", "lr=1e-3"], OK,
     r"8 x 8 pixels, gray\naugmentation affine \(images are not"),
    ([*RUN, "--set", "optimizer=muon"], OK,
     r"muon, learning rate 0\.003, cosine, 1 epoch, batches of 64"),
    ([*RUN, "--set", "network=cnn", "--set", "width=4"], OK,
     r"digits: .*; CNN, [\d,]+ parameters(.|\n)*only in the checkpoint, because"),
    ([*RUN, "--set", "norm=last"], OK,
     r"weights: +only in the checkpoint, because predict reads only ViTs with pre-norm blocks"),
    ([*RUN, "--set", "mix=mixup", "--set", "tta=true"], OK,
     r"affine, mixup(.|\n)*360 images, each averaged with its mirror image, with"),
    ([*RUN, "--set", "images=64", "--patience", "1"], OK,
     r"digits: 64 training images(.|\n)*weights of epoch 1; 95% interval 0\.\d+ to 0\.\d+"),
    ([*RUN, "--set", "images=64"], OK,
     r"\naccuracy of each class \(and its images\): 0: \d\.\d\d \(38\), 1: \d\.\d\d \(31\), "),
    (["train", "--out", "new", "--lr", "1e-20", "--set", "images=64", "--patience", "2"], OK,
     r"stopped early after epoch \d+: no better epoch in the last 2"),
    ([*RUN, "--augment", "flip_crop"], OK,
     r"augmentation flip_crop \(images are mirrored at random\)"),
    ([*RUN, "--image-size", "8"], OK, r"8 x 8 pixels"),
    ([*PHOTOS, "--image-size", "16"], OK,
     r"16 x 16 pixels, color\naugmentation crop \(images are not mirrored\)"),
    (PHOTOS, OK,
     r"64 x 64 pixels(.|\n)*predict with: python -m vit_helpers predict PICTURE --weights new"),
    ([*RUN, "--set", "depth"], WRONG, "expected NAME=VALUE, as in depth=4, got 'depth'"),
    ([*RUN, "--set", "=4"], WRONG, "expected NAME=VALUE"),
    ([*RUN, "--set", "learning_rate=1"], WRONG, "unknown setting learning_rate, known: .*lr"),
    ([*RUN, "--set", "lr=fast"], WRONG, "lr must be above 0 and finite, got 'fast'"),
    ([*RUN, "--set", "clip=true,false"], WRONG,
     "clip must be above 0 and finite, got 'true,false'"),
    ([*RUN, "--set", "depth=1.5"], WRONG, "depth must be a whole number, got 1.5"),
    ([*RUN, "--set", "tta=perhaps"], WRONG, "unknown tta 'perhaps', known: True, False"),
    ([*RUN, "--set", "patience=0"], WRONG, "patience must be at least 1, got 0"),
    ([*RUN, "--lr", "0.1", "--set", "lr=0.2"], WRONG, "lr is given twice: 0.1 and 0.2"),
    ([*RUN, "--augment", "mirror"], WRONG, "unknown augment 'mirror', known: affine, crop"),
    ([*RUN, "--image-size", "16"], WRONG,
     "images of digits have 8 x 8 pixels, not 16 x 16: only those of folder:PATH"),
    ([*PHOTOS, "--image-size", "20"], WRONG,
     "20 x 20 pixels does not divide into patches of side 8; sides that do are 1, 2, 4, 5, 10, 20"),
    ([*PHOTOS, "--set", "image_size=[16, 24]"], WRONG,
     "photos are cropped to a square, got the image size 16 x 24"),
    ([*RUN, "--seed", "99999999999999999999999"], WRONG,
     "seed must be at least -2\\^63 and below 2\\^64, got 9999"),
    ([*RUN, "--image-size", "0"], USAGE, "must be at least 1, got 0"),
    ([*RUN, "--tune", "most"], USAGE, "invalid choice: 'most'"),
    ([*RUN, "--learning-rate", "1"], USAGE,
     "usage: python -m vit_helpers train(.|\n)*unrecognized arguments"),
    (["train", "--resume", "old", "--set", "depth=3"], WRONG,
     "keeps its options, but these differ: depth .*; "
     "to train on with others, start a new run with --weights old"),
    (["train", "--resume", "old", "--data", "folder:moved"], OK, "test accuracy"),
    (["train", "--resume", "old", "--data", "folder:foreign"], WRONG,
     "the data have changed .*classes blue, red -> cat, dog"),
    ([*RUN, "--data", "photos"], WRONG, r"unknown data 'photos', .*; did you mean folder:photos\?"),
    ([*RUN, "--data", "photos", "--split", "exact"], WRONG,
     r"unknown data 'photos', .*; did you mean folder:photos\?"),
    ([*RUN, "--data", "digits", "--white", "255"], WRONG, "options for folder:PATH"),
    ([*RUN, "--white", "0"], USAGE, "must be above 0, got 0"),
    ([*RUN, "--data", "folder:iphone", "--image-size", "16"], OK,
     r"note: left out in iphone, because such files are not read: 2 \.heic; convert images among"),
    (["train", "--resume", "old", "--augment", "none"], WRONG,
     "these differ: augment crop -> none"),
    # predict
    (["predict", "photos/red/0.png", "--weights", "old"], OK,
     r" *[\d.]+%  (red|blue)\n *[\d.]+%  (red|blue)\nattention: 0-att"),
    (["predict", "photos/red/0.png", "--weights", "old/weights.safetensors", "--top", "1"], OK,
     r" *[\d.]+%  \w+\nattention"),
    (["predict", "photos", "--weights", "old", "--csv", "a/b.csv"], OK,
     r"( *[\d.]+%  \w+  photos/.*png\n){40}predictions: a/b\.csv"),
    (["predict", "photos/red/0.png", "photos/red", "--weights", "old"], OK,
     r"^( *[\d.]+%  \w+  photos/red/\d+\.png\n){20}$"),
    (["predict", "photos/red/0.png", "bad.png", "no.png", "--weights", "old"], WRONG,
     "2 of 3 images could not be read:\n  bad"),
    (["predict", "bad.png", "--weights", "old"], WRONG,
     "error: bad.png is damaged, or not an image"),
    (["predict", "empty", "--weights", "old"], WRONG, "no images in empty$"),
    (["predict", "iphone/blue/b.heic", "--weights", "old"], WRONG,
     r"b\.heic ends with \.heic, and .* JPEG or PNG$"),
    (["predict", "photos", "--weights", "old", "--out", "a.png"], WRONG,
     "figure of a single image, got 40 images: use --csv"),
    (["predict", "photos/red/0.png", "--weights", "old/checkpoint.pt"], WRONG,
     "a checkpoint to resume from; .* give old"),
    (["predict", "photos/red/0.png", "--weights", "photos"], WRONG,
     "photos has neither weights.safetensors, as a run"),
    (["predict", "--weights", "old"], USAGE, "required: PICTURE"),
    # evaluate
    (["evaluate", "old", "folder:photos"], OK,
     r"note: \d+ of 40 images are left out: old was tr(.|\n)*"
     r"accuracy \d\.\d{4} on \d+ images of folder:photos; 95% int"),
    (["evaluate", "old", "folder:others"], OK,
     r"on 10 images of folder:others(.|\n)*\nred +10 (.|\n)*confusion: others-conf"),
    (["evaluate", "old", "folder:mixed"], WRONG,
     "1 of 2 images could not be read:\n  mixed/red/bad.png"),
    (["evaluate", "old", "folder:divided"], OK,
     r"on 10 images of the test split of folder:divided"),
    (["evaluate", "old", "folder:training"], WRONG,
     r"1 of 41 images could not be read:\n  training/train/red/bad"),
    (["evaluate", "old", "folder:foreign"], WRONG,
     "old does not know the classes cat, dog; it knows blue, red"),
    (["evaluate", "old", "digits"], WRONG, "old does not know the classes 0, 1"),
    (["evaluate", "nobody", "digits"], WRONG, "unknown weights 'nobody'"),
    (["evaluate", "ours:masked", "digits"], WRONG, "ours:masked has no classification head"),
    # tables
    (["ablate", "bad.png"], WRONG, "bad.png is not valid TOML"),
    (["ablate", "tuned.toml"], WRONG,
     "baseline: a table trains from scratch, without the weights ours:seven"),
    (["ablate", "broken.toml"], WRONG,
     r"bad\.png is damaged, .*; remove it$"),
    (["ablate", "small.toml"], OK,
     r"baseline +1 +\d\.\d+ +NaN +\+0\.0000 +NaN (.|\n)*rows: small\.csv"),
]  # fmt: skip


def paint(file, channel, draw):
    pixels = draw.integers(0, 120, (20, 24, 3), dtype=np.uint8)
    pixels[..., channel] += 100
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Small folders, broken files, and a run in old/"""
    folder, draw = tmp_path_factory.mktemp("table"), np.random.default_rng(0)
    for i in range(20):
        paint(folder / "photos" / "red" / f"{i}.png", 0, draw)
        paint(folder / "photos" / "blue" / f"{i}.png", 2, draw)
        for color in ("red", "blue"):
            paint(folder / "both" / color / f"{i}.png", 0, draw)
        paint(folder / "foreign" / ("cat", "dog")[i % 2] / f"{i}.png", 1, draw)
    for i in range(10):
        paint(folder / "others" / "red" / f"{i}.png", 0, draw)
    paint(folder / "mixed" / "red" / "good.png", 0, draw)
    (folder / "moved").symlink_to(folder / "photos")
    (folder / "iphone").mkdir()
    for color in ("red", "blue"):
        shutil.copytree(folder / "photos" / color, folder / "iphone" / color)
    for name in ("a.HEIC", "b.heic", "._b.heic"):
        (folder / "iphone" / "blue" / name).touch()
    (folder / "divided").mkdir()
    (folder / "divided" / "Test").symlink_to(folder / "others")  # and no images to train on
    (folder / "training").mkdir()
    (folder / "training" / "train").symlink_to(folder / "both")
    (folder / "empty").mkdir()
    for bad in ("bad.png", "mixed/red/bad.png", "both/red/bad.png"):
        (folder / bad).write_bytes(b"\xff\xfe no image")
    (folder / "small.toml").write_text(
        "seeds = 1\n[baseline]\nepochs = 1\nimages = 64\npatience = 1\nimage_size = 8\n"
    )
    (folder / "broken.toml").write_text('data = "folder:both"\nseeds = 1\n[baseline]\nepochs = 1\n')
    (folder / "tuned.toml").write_text('seeds = 1\n[baseline]\nweights = "ours:seven"\n')
    done = command(
        "train",
        "--data",
        "folder:photos",
        "--epochs",
        2,
        "--image-size",
        16,
        "--out",
        "old",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("words", "status", "says"), TABLE, ids=[" ".join(row[0]) for row in TABLE]
)
def test_what_each_command_says(place, tmp_path, monkeypatch, words, status, says):
    # these take longest, and are tested where the run in old/ is made
    monkeypatch.setattr("vit_helpers.cli.train.draw_results", lambda *data: None)
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_counts", lambda *data: None)
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_mistakes", lambda *data: None)
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    done = command(*words, cwd=tmp_path)
    assert done.returncode == status, done
    assert re.search(says, done.stderr if status else done.stdout), done
    assert "Traceback" not in done.stderr and (status != WRONG or done.stderr.startswith("error: "))


def test_a_table_of_predictions_has_a_row_for_each_image(place, tmp_path):
    command("predict", place / "photos", "--weights", place / "old", "--csv", "p.csv", cwd=tmp_path)
    table = pd.read_csv(tmp_path / "p.csv")
    assert (
        list(table.columns) == ["picture", "class", "probability", "p(blue)", "p(red)"]
        and len(table) == 40
    )
    assert (
        np.allclose(table[["p(blue)", "p(red)"]].sum(axis=1), 1)
        and (table["probability"] >= 0.5).all()
    )


def test_what_a_run_keeps(place):
    names = {
        "checkpoint.pt",
        "weights.safetensors",
        "history.csv",
        "curves.png",
        "confusion.png",
        "classes.csv",
    }
    kept = {path.name for path in (place / "old").iterdir()}
    assert names <= kept and "last.safetensors" not in kept
    assert len(pd.read_csv(place / "old" / "history.csv")) == 2


def test_fine_tuning_is_suggested_where_few_images_gave_a_poor_model(capsys):
    from pathlib import Path
    from types import SimpleNamespace

    from vit_helpers.cli.outputs import print_end

    few, many = (SimpleNamespace(in_chans=3, count=lambda split, n=n: n) for n in (200, 50_000))
    for data, settings, accuracy, said in (
        (few, RunSettings(), 0.8, True),
        (few, RunSettings(), 0.98, False),
        (many, RunSettings(), 0.8, False),
        (few, RunSettings(weights="ours:seven"), 0.8, False),
    ):
        print_end(Path("run folder"), data, settings, accuracy)
        out = capsys.readouterr().out
        assert ("add --weights torchvision:vit_b_16 --tune head" in out) == said
        assert "predict PICTURE --weights 'run folder'" in out


@pytest.mark.parametrize(
    ("tune", "images", "width", "said"),
    [
        ("full", 300, 8000, True),
        ("lora", 300, 8000, True),
        ("head", 300, 8000, False),
        ("full", 1200, 8000, False),
        ("full", 300, 800, False),
        (None, 300, 8000, False),
    ],
)
def test_the_head_alone_is_suggested_for_few_images_and_a_large_model(
    capsys, tune, images, width, said
):
    from torch import nn

    from vit_helpers import load
    from vit_helpers.cli.outputs import print_start

    changes = {"weights": "any", "tune": tune} if tune else {}
    settings = RunSettings.from_dict({"images": images, **changes})
    model = nn.Linear(width, width, device="meta")
    print_start(load("digits"), model, settings, "cpu")
    assert ("try --tune head first" in capsys.readouterr().out) == said


def test_every_setting_can_be_given_and_is_named_in_the_help(capsys):
    from commands import main_status

    known = RunSettings().to_dict()
    pairs = [f"{name}={str(value).lower()}" for name, value in known.items() if value is not None]
    assert RunSettings.from_dict(given_settings({}, pairs)) == RunSettings()
    assert main_status("train", "--help") == 0
    words = re.sub(r"[(),]", " ", capsys.readouterr().out).split()
    assert set(AUGMENT) <= set(words)


def test_folders_are_not_mirrored_unless_asked():
    assert PRESETS["folder"]["augment"] not in MIRRORS
    images = torch.zeros(64, 3, 32, 32)
    images[..., :4] = 1.0  # a bar at the left
    for name, augment in AUGMENT.items():
        torch.manual_seed(0)
        moved = augment(images) if augment else images
        right_of_left = (moved[..., 16:].sum((1, 2, 3)) > moved[..., :16].sum((1, 2, 3))).any()
        assert bool(right_of_left) == (name in MIRRORS), name


@pytest.mark.long
def test_a_folder_of_digits_is_learned_with_the_default_settings(tmp_path):
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        file = tmp_path / "digits" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
        side = (28, 64)[number % 2]
        picture.resize((side, side), Image.Resampling.BICUBIC).save(file)
    accuracies = []
    # rounding differs between CPUs and leads to other models, so a single one proves little
    for seed in ("0", "1", "2"):
        done = command("train", "--data", "folder:digits", "--seed", seed, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "healthy" in done.stdout
        accuracies.append(
            float(re.search(r"test accuracy ([\d.]+) on 2\d\d images", done.stdout)[1])
        )
    assert sum(accuracies) / 3 >= 0.97, accuracies
