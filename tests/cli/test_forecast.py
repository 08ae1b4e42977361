"""What a run says while it trains: bars with the time left, how long it takes, and disk space."""

import io
import math
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from commands import command
from small_classifier import Classifier, batches

from vit_helpers.cli import forecast
from vit_helpers.cli.forecast import Forecast
from vit_helpers.training import Recipe, fit
from vit_helpers.training.loop import start_run
from vit_helpers.training.measurements import Epoch, Score, print_epoch

RUN = ["train", "--epochs", "2", "--set", "images=256"]
LINE = re.compile(r"^expected: (?:about|at most) \d+ s in all, and ([\d.]+) MB in (\S+)$", re.M)


class Terminal(io.StringIO):
    """A stream that says it is a terminal"""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "titles"),
    [
        (Terminal, ["epoch 1 of 2", "validation", "epoch 2 of 2", "validation"]),
        (io.StringIO, []),
    ],
)
def test_epochs_and_validations_have_bars_with_the_time_left_on_a_terminal(
    monkeypatch, stream, titles
):
    monkeypatch.setattr(sys, "stderr", stream())
    fit(Classifier(), batches(), batches(), Recipe(epochs=2), callbacks=[])
    bars = r"\r([\w ]+): +0%\|[^\r]* 0/4 \[00:00<\?, \?step/s\]"
    assert re.findall(bars, sys.stderr.getvalue()) == titles
    assert (sys.stderr.getvalue() == "") == (titles == [])


@pytest.mark.parametrize(
    ("speed", "text"),
    [(1.24, "1.2"), (9.96, "10.0"), (10.4, "10"), (1234.5, "1,234"), (math.nan, "nan")],
)
def test_slow_training_has_its_speed_with_a_decimal(capsys, speed, text):
    print_epoch(Epoch(1, Score(1.0, 0.5), images_per_second=speed))
    assert capsys.readouterr().out.endswith(f"  {text} images/s\n")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The folder of a run whose weights are fine-tuned"""
    folder = tmp_path_factory.mktemp("start")
    assert command("train", "--epochs", "1", "--out", "old", cwd=folder).returncode == 0
    return folder / "old"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--epochs", "1"],
        ["--set", "optimizer=muon"],
        ["--set", "network=cnn"],
        ["--patience", "5"],
        ["--tune", "head"],
        ["--tune", "lora"],
    ],
)
def test_the_size_of_a_run_is_said_before_its_files_are_there(
    tmp_path, monkeypatch, start, options
):
    monkeypatch.setattr(forecast, "WAIT", 0.0)
    weights = ["--weights", start] if "--tune" in options else []
    done = command(*RUN, *options, *weights, "--out", "new", cwd=tmp_path)
    assert done.returncode == 0 and "\r" not in done.stdout + done.stderr
    (said,) = LINE.findall(done.stdout)
    assert done.stdout.index("expected") < done.stdout.index("epoch   1")
    large = [path for path in (tmp_path / "new").iterdir() if path.suffix not in (".png", ".csv")]
    stored = sum(path.stat().st_size for path in large) / 1e6
    assert said[1] == "new" and float(said[0]) == pytest.approx(stored, abs=0.12)


class Clock:
    """A clock that advances by a second each time it is read"""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        self.now += 1.0
        return self.now


class Photos:
    """A data set of which only the size is known: 40 images for validation, 80 for the test"""

    def count(self, split):
        return {"validation": 40, "test": 80}[split]


def forecast_of(folder, monkeypatch, capsys, early=False, finished=0):
    """What is said about 30 epochs of 4 steps, with 16 images and a second each"""
    monkeypatch.setattr(forecast, "time", Clock())
    run = start_run(Classifier(), Recipe(epochs=30), steps=120)
    run.history = [Epoch(number, Score(1.0)) for number in range(1, finished + 1)]
    run.schedule.last_epoch = 4 * finished
    callback = Forecast(folder, Photos(), weights=0, part=False, early=early)
    callback.on_fit_start(run)
    for _ in range(4):
        run.schedule.last_epoch += 1
        callback.on_step_end(run, None, torch.zeros(16), torch.zeros(()))
    return capsys.readouterr().out


def test_the_time_is_that_of_all_steps_validations_and_the_test(tmp_path, monkeypatch, capsys):
    said = forecast_of(tmp_path, monkeypatch, capsys)
    # 3 s are over, 118 steps are left, and a third of (30 * 40 + 80) / 16 steps
    assert said == f"expected: about 2 min in all, and 0.0 MB in {tmp_path}\n"  # once
    assert "at most 2 min in all" in forecast_of(tmp_path, monkeypatch, capsys, early=True)
    # 38 steps, and a third of (10 * 40 + 80) / 16
    assert "about 48 s more" in forecast_of(tmp_path, monkeypatch, capsys, finished=20)


@pytest.mark.parametrize(("free", "named"), [(200, True), (10**6, False)])
def test_a_disk_without_enough_space_is_named(tmp_path, monkeypatch, capsys, free, named):
    (tmp_path / "checkpoint.pt").write_bytes(bytes(100))  # space that the run has already
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    said = forecast_of(tmp_path, monkeypatch, capsys)
    assert ("0.0 MB are free" in said) == named


def test_a_run_that_is_over_at_once_says_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(forecast, "WAIT", math.inf)
    assert forecast_of(tmp_path, monkeypatch, capsys) == ""
