"""The command `predict`: runs, pictures and folders, and what cannot be read."""

import os
import re
from pathlib import Path

import pytest
import torch
from commands import command, main_status, untrained
from image_files import fill
from PIL import Image

from vit_helpers.data import load

pytestmark = pytest.mark.usefixtures("no_evaluation_drawn")


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


def test_a_folder_that_cannot_be_read_is_named_by_predict(tmp_path, monkeypatch):
    fill(tmp_path / "x" / "closed", 1)
    untrained(tmp_path / "w.safetensors", "cat", "dog")
    right = os.scandir

    def scandir(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return right(path)

    fill(tmp_path / "x", 2)
    monkeypatch.setattr(os, "scandir", scandir)
    done = command("predict", tmp_path / "x", "--weights", tmp_path / "w.safetensors", cwd=tmp_path)
    assert (
        done.returncode == 1 and "closed" in done.stderr and "Permission denied" in done.stderr
    ), done
