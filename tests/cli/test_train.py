"""The command `train` as a person uses it: runs, folders, Ctrl-C and resuming."""

import os
import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from commands import command, ended, main_status, start
from PIL import Image

from vit_helpers.cli.run_folder import claim
from vit_helpers.data import load


def weights(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)["model"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in a process of its own"""
    folder = tmp_path_factory.mktemp("trained")
    return folder, ended(start("train", "--epochs", 4, cwd=folder))


def test_train_with_hardly_an_option(trained):
    folder, done = trained
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (
        len(
            [
                line
                for line in lines
                if re.match(r"epoch +\d+  loss .* accuracy .* validation .* lr .* images/s$", line)
            ]
        )
        == 4
    )
    assert re.search(r"^test accuracy 0\.\d{4} on 360 images", done.stdout, re.M)
    for name in ("checkpoint.pt", "weights.safetensors", "curves.png"):
        assert (folder / "runs" / "digits-1" / name).stat().st_size > 10_000
        assert str(Path("runs", "digits-1", name)) in done.stdout


def test_a_second_run_leaves_the_first_alone(trained):
    folder, _ = trained
    before = (folder / "runs" / "digits-1" / "checkpoint.pt").read_bytes()
    again = command("train", "--epochs", 4, "--out", "runs/digits-1", cwd=folder)
    assert again.returncode == 1 and "--resume" in again.stderr
    assert command("train", "--epochs", 1, cwd=folder).returncode == 0
    assert (folder / "runs" / "digits-2" / "checkpoint.pt").exists()
    assert (folder / "runs" / "digits-1" / "checkpoint.pt").read_bytes() == before


def wait_for_epoch(run, epoch):
    while not (run.out.exists() and f"\nepoch   {epoch}" in run.out.read_text()):
        assert run.is_alive()
        time.sleep(0.05)


def test_runs_started_at_once_have_a_folder_each(tmp_path):
    runs = [start("train", "--epochs", 1, "--seed", seed, cwd=tmp_path) for seed in (0, 1)]
    said = [ended(run) for run in runs]
    assert [one.returncode for one in said] == [0, 0], said
    folders = [Path(re.search(r"^checkpoint: (.*)$", one.stdout, re.M)[1]).parent for one in said]
    assert {folder.name for folder in folders} == {"digits-1", "digits-2"}
    for seed, folder in enumerate(folders):
        kept = torch.load(tmp_path / folder / "checkpoint.pt", weights_only=True)
        assert kept["about"]["options"]["seed"] == seed
        assert {path.name for path in (tmp_path / folder).iterdir()} == {
            "checkpoint.pt",
            "weights.safetensors",
            "history.csv",
            "curves.png",
            "confusion.png",
            "mistakes.png",
            "classes.csv",
        }


def test_of_two_runs_started_at_once_with_the_same_out_one_is_refused(tmp_path):
    words = ["train", "--epochs", 1, "--out", "mine"]
    runs = [start(*words, "--seed", seed, cwd=tmp_path) for seed in (0, 1)]
    said = [ended(run) for run in runs]
    assert sorted(one.returncode for one in said) == [0, 1], said
    seed = [one.returncode for one in said].index(0)
    assert re.match(
        r"error: (another run is writing into mine|mine.checkpoint\.pt already exists)",
        said[1 - seed].stderr,
    )
    kept = torch.load(tmp_path / "mine" / "checkpoint.pt", weights_only=True)
    assert kept["about"]["options"]["seed"] == seed


def test_while_a_run_lasts_nobody_resumes_it_and_a_killed_one_can_be_resumed(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    long = start("train", "--epochs", 500, "--out", "long", cwd=tmp_path)
    try:
        wait_for_epoch(long, 1)
        for words in (["--resume", "long"], ["--out", "long"]):
            assert main_status("train", *words) == 1
            assert "long" in capsys.readouterr().err
        assert long.is_alive()
    finally:
        long.kill()
        long.join()
    with ExitStack() as stack:
        assert claim(Path("long"), "digits", stack) == Path("long")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process alone")
def test_ctrl_c_keeps_what_was_learned_and_resume_ends_the_same(trained):
    folder, _ = trained
    run = start("train", "--epochs", 4, "--out", "cut", cwd=folder)
    wait_for_epoch(run, 2)
    os.kill(run.pid, signal.SIGINT)
    status, out, err = ended(run)
    assert status == 130 and "Traceback" not in err
    assert re.search(r"stopped; everything up to epoch [23] is kept in cut/checkpoint.pt", out)
    assert "continue with: python -m vit_helpers train --resume cut" in out

    resumed = command("train", "--resume", "cut", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    whole, cut = weights(folder / "runs" / "digits-1"), weights(folder / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_resume_keeps_its_options(trained):
    folder, _ = trained
    other = command("train", "--resume", "runs/digits-1", "--lr", "0.1", cwd=folder)
    assert other.returncode == 1 and "these differ: lr 0.003 -> 0.1" in other.stderr


def test_what_the_run_looks_at(monkeypatch, tmp_path):
    """Training: shuffled and augmented.  Validation: as it is.  Test: once, after training."""
    from vit_helpers import training
    from vit_helpers.cli import fitting, scores
    from vit_helpers.data import load, random_affine

    seen, data = {}, load("digits")

    def fit(model, train, validation, *rest, **words):
        seen.update(train=train, validation=validation)
        assert "test" not in seen
        return [training.Epoch(1, training.Score(1, 1), training.Score(1, 1))]

    monkeypatch.setattr(fitting, "fit", fit)
    predict = scores.predict_with_mistakes
    monkeypatch.setattr(
        scores,
        "predict_with_mistakes",
        # what the progress bar goes through
        lambda model, bar, *rest: seen.update(test=bar.iterable) or predict(model, bar),
    )
    assert main_status("train", "--out", str(tmp_path / "run")) == 0
    assert all(torch.equal(seen[part].split.images, getattr(data, part).images) for part in seen)
    assert [seen[part].shuffle for part in seen] == [True, False, False]
    assert [random_affine in seen[part].steps for part in seen] == [True, False, False]


def test_predict_reads_what_train_kept(trained, tmp_path):
    data = load("digits")
    Image.fromarray((data.test.images[3, 0] * 255).byte().numpy()).resize((160, 160), 0).save(
        tmp_path / "large.png"
    )
    done = command(
        "predict",
        "large.png",
        "--weights",
        trained[0] / "runs/digits-1/weights.safetensors",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(rf" *[\d.]+%  {data.test.labels[3]}\n", done.stdout)
