"""What commands write: told before the work, never over what is read or somebody else's."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from commands import command, untrained
from image_files import fill
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from vit_helpers.cli.outputs import has_mark, print_end, save_figure
from vit_helpers.data import load
from vit_helpers.training.presets import RunSettings

pytestmark = pytest.mark.usefixtures("no_evaluation_drawn")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["evaluate", "w.safetensors", "folder:x", "--out", "a.txt"],
            "unknown ending of a.txt 'txt', known: .*png",
        ),
        (
            ["evaluate", "w.safetensors", "folder:x", "--out", "file/a.png"],
            "file/a.png cannot be written: file is not a f",
        ),
        (
            ["predict", "x/cat/0.ppm", "--weights", "w.safetensors", "--out", "a.txt"],
            "unknown ending of a.txt 'txt', known",
        ),
        (
            ["predict", "x", "--weights", "w.safetensors", "--csv", "file/a.csv"],
            "file/a.csv cannot be written: file is not",
        ),
        (
            ["predict", "x", "--weights", "w.safetensors", "--csv", "x"],
            "x cannot be written: it is a folder",
        ),
        (
            ["evaluate", "w.safetensors", "folder:x", "--csv", "file/a.csv"],
            "file/a.csv cannot be written: file is not",
        ),
        (
            ["predict", "x", "--weights", "w.safetensors", "--csv", "a.csv.gz"],
            "a.csv.gz would not be packed: leave out .gz in --csv",
        ),
        (
            ["evaluate", "w.safetensors", "folder:x", "--csv", "a.ZIP"],
            "a.ZIP would not be packed",
        ),
        (["ablate", "x.toml", "--out", "a.csv.xz"], "a.csv.xz would not be packed"),
        (
            ["ablate", "x.toml", "--out", "file/a.csv"],
            "file/a.csv cannot be written: file is not a folder",
        ),
        (["live", "--out", "file/a.html"], "file/a.html cannot be written: file is not a folder"),
        (["shards", "folder:x", "file/new"], "file/new cannot be written: file is not a folder"),
        pytest.param(
            ["shards", "folder:x", "/proc/new"],
            "/proc/new cannot be written: ",
            marks=pytest.mark.skipif(os.name == "nt", reason="there it could be made"),
        ),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(tmp_path, monkeypatch, words, says):
    fill(tmp_path / "x" / "cat", 3)
    fill(tmp_path / "x" / "dog", 3, 3)
    (tmp_path / "file").touch()
    untrained(tmp_path / "w.safetensors", "cat", "dog")
    (tmp_path / "x.toml").write_text("seeds = 1")
    for work in (
        "cli.predict.predict_files",
        "cli.predictions.predict_files",
        "data.shards.read_files",
        "cli.live.live_page",
    ):
        monkeypatch.setattr(f"vit_helpers.{work}", lambda *what: pytest.fail("worked"))
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: "), done
    assert re.search(says, done.stderr.replace("\\", "/")), done.stderr


def read_everything(folder):
    """The content of every file, by its name"""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def desk(tmp_path):
    """Photos, a model, and files that somebody wrote by hand, with links to some of them"""
    fill(tmp_path / "x" / "cat", 2)
    fill(tmp_path / "x" / "dog", 2, 2)
    fill(tmp_path, 1)
    (tmp_path / "0.ppm").rename(tmp_path / "own.png")
    shutil.copy(tmp_path / "own.png", tmp_path / "own-attention.png")
    shutil.copy(tmp_path / "own.png", tmp_path / "x-confusion.png")
    shutil.copy(tmp_path / "own.png", tmp_path / "theirs-mistakes.png")
    untrained(tmp_path / "w.safetensors", "cat", "dog")
    (tmp_path / "notes.csv").write_text("day,photos\n1,4\n")
    (tmp_path / "notes.html").write_text("<!doctype html>\n<title>Notes</title>\n")
    (tmp_path / "table.toml").write_text("seeds = 1\n")
    (tmp_path / "link.png").symlink_to("own.png")
    (tmp_path / "hard.png").hardlink_to(tmp_path / "own.png")
    (tmp_path / "other").symlink_to("x")
    return tmp_path


EVALUATE = ["evaluate", "w.safetensors", "folder:x", "--out", "r.png"]


PREDICT = ["predict", "own.png", "--weights", "w.safetensors"]


@pytest.mark.parametrize(
    "words",
    [
        [*PREDICT, "--out", "own.png"],
        [*PREDICT, "--out", "./x/../own.png"],
        [*PREDICT, "--out", "link.png"],
        [*PREDICT, "--out", "hard.png"],
        [*PREDICT, "--csv", "own.png"],
        [*PREDICT, "--csv", "notes.csv"],
        [*PREDICT, "--csv", "w.safetensors"],
        [*PREDICT, "--out", "r.png", "--csv", "r.png"],
        PREDICT,  # own-attention.png is not ours
        ["predict", "link.png", "--weights", "w.safetensors", "--out", "own.png"],
        ["predict", "own.png", "x", "--weights", "w.safetensors", "--csv", "x/cat/0.ppm"],
        ["predict", "other", "--weights", "w.safetensors", "--csv", "x/dog/3.ppm"],
        ["evaluate", "w.safetensors", "folder:x", "--out", "own.png"],
        ["evaluate", "w.safetensors", "folder:x"],  # nor is x-confusion.png
        ["evaluate", "w.safetensors", "folder:x", "--out", "theirs.png"],  # nor theirs-mistakes.png
        [*EVALUATE, "--csv", "own.png"],
        [*EVALUATE, "--csv", "notes.csv"],
        [*EVALUATE, "--csv", "w.safetensors"],
        [*EVALUATE, "--csv", "x/cat/0.ppm"],
        [*EVALUATE, "--csv", "r.png"],
        [*EVALUATE, "--csv", "./x/../r-mistakes.png"],
        ["ablate", "table.toml", "--out", "table.toml"],
        ["ablate", "table.toml", "--out", "notes.csv"],
        ["live", "--out", "notes.html"],
        ["live", "--out", "own.png"],
        ["shards", "folder:x", "x"],
    ],
    ids=" ".join,
)
def test_a_result_replaces_neither_what_is_read_nor_what_others_wrote(desk, words):
    before = read_everything(desk)
    done = command(*words, cwd=desk)
    assert done.returncode == 1 and done.stderr.startswith("error: "), done
    assert done.stderr.count("\n") == 1
    assert read_everything(desk) == before


def test_a_figure_that_is_read_again_is_not_replaced(desk):
    """Although the figure is ours"""
    assert command(*PREDICT, "--out", "r.png", cwd=desk).returncode == 0
    again = ["r.png", "--weights", "w.safetensors", "--out", "r.png"]
    before = read_everything(desk)
    done = command("predict", *again, cwd=desk)
    assert done.returncode == 1 and "r.png is read by this command" in done.stderr, done
    shutil.move(desk / "r.png", desk / "x" / "cat" / "r.png")
    done = command("evaluate", "w.safetensors", "folder:x", "--out", "x/cat/r.png", cwd=desk)
    assert done.returncode == 1 and "is read by this command" in done.stderr, done
    assert (desk / "x" / "cat" / "r.png").read_bytes() == before[desk / "r.png"]


def test_the_same_command_replaces_its_own_results(desk):
    words = ["--weights", "w.safetensors", "--out", "r.png", "--csv", "r.csv"]
    tables = []
    for picture in ("own.png", "own.png", "x/cat/1.ppm"):
        done = command("predict", picture, *words, cwd=desk)
        assert done.returncode == 0, done
        tables.append((desk / "r.csv").read_text())
    assert tables[0] == tables[1] != tables[2]
    for _ in range(2):
        done = command(*EVALUATE, "--csv", "a.csv", cwd=desk)
        assert done.returncode == 0 and (desk / "a.csv").exists(), done
    page = command("live", "--out", "page.html", cwd=desk)
    assert page.returncode == command("live", "--out", "page.html", cwd=desk).returncode == 0


UNMARKED = {"pgf", "raw", "rgba"}  # formats without a place for the mark: never replaced


@pytest.mark.parametrize("ending", FigureCanvasBase.get_supported_filetypes())
def test_figures_of_every_format_say_who_drew_them(tmp_path, ending):
    if ending == "pgf" and not shutil.which("xelatex"):
        pytest.skip("needs LaTeX")
    file = tmp_path / f"r.{ending}"
    save_figure(Figure(figsize=(1, 1)), file)
    assert has_mark(file.suffix, file.read_bytes()) == (ending not in UNMARKED)
    Figure(figsize=(1, 1)).savefig(file)
    assert not has_mark(file.suffix, file.read_bytes())


@pytest.mark.skipif(os.name == "nt", reason="devices of POSIX")
def test_a_table_can_go_to_a_device_and_a_figure_replaces_none(desk):
    (desk / "nowhere").symlink_to(os.devnull)  # a link: whatever goes wrong, the device stays
    done = command(*PREDICT, "--out", "r.png", "--csv", "nowhere", cwd=desk)
    assert done.returncode == 0 and (desk / "nowhere").is_symlink(), done
    os.mkfifo(desk / "pipe.png")
    done = command(*PREDICT, "--out", "pipe.png", cwd=desk)
    assert done.returncode == 1 and "pipe.png is no file" in done.stderr, done
    assert (desk / "pipe.png").is_fifo()


def test_rows_are_drawn_only_of_sorted_labels():
    from vit_helpers.data.splits import sample_rows

    assert sample_rows(torch.tensor([0, 1, 0, 1]), 2).tolist() == [0, 1]
    assert sample_rows(torch.arange(3), None).tolist() == [0, 1, 2]


@pytest.mark.parametrize("data", ["folder:my photos", "digits"])
def test_a_training_says_who_names_the_files_of_its_mistakes(tmp_path, monkeypatch, capsys, data):
    monkeypatch.chdir(tmp_path)
    Path("mistakes.png").touch()
    print_end(Path(), load("digits"), RunSettings(data=data), accuracy=0.9)
    said = "python -m vit_helpers evaluate . 'folder:my photos'\n"
    assert (said in capsys.readouterr().out) == (data != "digits")
