"""The command `shards`: what it writes, and what it says."""

import pytest
from image_files import save_noise
from torch import nn

from vit_helpers.cli import main
from vit_helpers.data import load
from vit_helpers.data.shards import write_shards
from vit_helpers.training import evaluate, fit, set_seed
from vit_helpers.training.presets import RunSettings, make_batches
from vit_helpers.training.recipe import Recipe

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(scope="module")
def digits():
    return load("digits").filter_classes("3", "7")  # real ones, but few


@pytest.fixture
def pets(tmp_path):
    return save_noise(tmp_path / "pets")


def test_the_command_writes_and_says_how_to_train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["shards", "digits", "kept/digits", "--per-shard", "500"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "            images  shards",
        "train         1257       3",
        "validation     180       1",
        "test           360       1",
        "train on them with: python -m vit_helpers train --data shards:kept/digits",
    ]
    set_seed(0)
    data = load("shards:kept/digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    train = make_batches(data, RunSettings())
    validation = data.batches("validation", 512)
    fit(model, train, validation, Recipe(epochs=3, lr=1e-2), callbacks=[])
    assert evaluate(model, data.batches("test", 512)).accuracy > 0.7


def test_a_folder_with_a_space_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["shards", "digits", "my digits"]) == 0
    assert capsys.readouterr().out.endswith(" train --data 'shards:my digits'\n")


def test_the_command_reads_a_folder_picture_by_picture(pets, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "vit_helpers.data.folders.read_pixels",
        lambda *words: pytest.fail("all pictures were asked for"),
    )
    assert (
        main(
            [
                "shards",
                f"folder:{pets}",
                str(tmp_path / "shards"),
                "--image-size",
                "8",
                "--split",
                "exact",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[1].split() == ["train", "14", "1"]
    assert load(f"shards:{tmp_path / 'shards'}").image_size == (8, 8)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mnist", "new"], "unknown data 'mnist', known: digits"),
        (["digits", "full"], "full already exists and is not empty"),
        (["folder:nowhere", "new"], "no folder at {here}/nowhere"),
        (["digits", "new", "--image-size", "8"], "digits has no option image_size"),
        (["shards:nowhere", "new"], "no index.json in nowhere"),
        (["shards:full", "new"], "shards:full is already written as shards"),
    ],
)
def test_the_command_names_what_is_wrong(words, says, digits, tmp_path, monkeypatch, capsys):
    write_shards(digits, tmp_path / "full")
    monkeypatch.chdir(tmp_path)
    assert main(["shards", *words]) == 1
    err = capsys.readouterr().err.replace("\\", "/")
    assert f"error: {says.format(here=tmp_path.as_posix())}" in err
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
