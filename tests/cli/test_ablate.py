"""The command `ablate`: a declared table is run and summarized, and errors are one line."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from PIL import Image

from vit_helpers.ablation.rows import COLUMNS, pack
from vit_helpers.cli import main

TOML = """
data = "digits"
model = "mini/2"
seeds = 1
[baseline]
epochs = 1
images = 64
depth = 1
[changes]
"no positions" = {positions = "none"}
"""


def test_equal_differences_of_two_seeds_have_no_error(tmp_path, capsys, monkeypatch):
    rights = {"baseline": [[1, 0, 1, 1], [1, 1, 0, 1]], "up": [[1, 1, 1, 1], [1, 1, 1, 1]]}
    rights["same"] = rights["baseline"]
    row = {"parameters": 1, "multiply_adds": 1, "seconds": 1.0}
    rows = [
        {"change": name, "seed": seed, "accuracy": sum(own) / 4, "right": pack(own), **row}
        for name, both in rights.items()
        for seed, own in enumerate(both)
    ]
    monkeypatch.setattr("vit_helpers.cli.ablate.run_table", lambda *words: pd.DataFrame(rows))
    (tmp_path / "t.toml").write_text(TOML)
    assert main(["ablate", str(tmp_path / "t.toml")]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    error = lines["runs"].index("error") + 1
    assert lines["up"][error - 1] == "+0.2500" and lines["up"][error] == "NaN"
    assert lines["same"][error] == "0.0000"  # no image is answered otherwise


def test_the_command_runs_a_declared_table(tmp_path, capsys):
    def ablate(path):
        return main(["ablate", str(path)]), *capsys.readouterr()

    declared = tmp_path / "small.toml"
    declared.write_text(TOML)
    status, out, err = ablate(declared)
    assert status == 0, err
    assert "2 of 2: no positions, seed 0" in out and "+0.0000" in out
    with (tmp_path / "small.csv").open() as file:
        assert tuple(next(csv.reader(file))) == tuple(COLUMNS)
    declared.write_text(TOML.replace("positions =", "place ="))
    status, _, err = ablate(declared)
    assert status == 1 and "small.toml: no positions: unknown setting place" in err
    declared.write_text("data = ")
    assert "is not valid TOML" in ablate(declared)[2]
    assert "error: " in ablate(tmp_path / "none.toml")[2]


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_is_to_be_said_of_a_folder_is_a_note(tmp_path, workers):
    """It was a warning of Python's with a line of code, and one of each worker"""
    for number in range(20):
        path = tmp_path / "x" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    (tmp_path / "x" / "a" / "b.heic").touch()
    table = """data = "folder:x"\nmodel = "mini/4"\nseeds = 2
[baseline]\nimage_size = 8\nsplit = "exact"\nepochs = 1\ndepth = 1\n"""
    (tmp_path / "t.toml").write_text(table)
    words = [sys.executable, "-m", "vit_helpers", "ablate", "t.toml", "--workers", workers]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("note: left out in ") and done.stdout.count("note:") == 1
    assert "arning" not in done.stderr


@pytest.mark.processes
def test_no_worker_outlives_a_command_that_is_killed(tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(TOML.replace("seeds = 1", "seeds = 50").replace("epochs = 1", "epochs = 5"))
    words = [sys.executable, "-m", "vit_helpers", "ablate", path, "--workers", "2"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as command:
        assert "accuracy" in command.stdout.readline()  # so the workers train
        started = psutil.Process(command.pid).children(recursive=True)
        command.kill()
    assert len(started) >= 2 and not psutil.wait_procs(started, timeout=20)[1]


@pytest.mark.parametrize(
    ("text", "out", "says"),
    [
        ("changes = 3", None, "changes must be a table"),
        ("[changes]\nx = {lr = true}", None, "x: lr must be above 0 and finite, got True"),
        ("data = 5", None, "unknown data '5'"),
        ("model = 5", None, "baseline: unknown model '5'"),
        ("seeds = 1.5", None, "seeds must be a whole number"),
        ("seeds = 1", "picture.png", "picture.png is not a table of this kind"),
    ],
)
def test_a_table_that_makes_no_sense_is_one_line_with_its_file(
    tmp_path, monkeypatch, capsys, text, out, says
):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(text)
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(["ablate", "small.toml", *(["--out", out] if out else [])]) == 1
    err = capsys.readouterr().err
    assert (
        says in err
        and err.count("\n") == 1
        and ("data '5'" in says or (out or "small.toml") in err)
    )
