"""The commands as a person uses them."""

import contextlib
import io
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import torch
from PIL import Image

from tools import main as run_tool
from tools import pretrain
from tools.experiments import localization, transfer
from vit_helpers.ablation import unpack
from vit_helpers.cli import COMMANDS, main
from vit_helpers.cli.parser import parse
from vit_helpers.cli.run_folder import claim
from vit_helpers.data import load
from vit_helpers.pretrained import load_weights
from vit_helpers.pretrained.files import read_notes
from vit_helpers.results.localization import unpack_scores

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(*words, cwd):
    """A command in this process, as if typed in a folder: starting Python costs far more"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main_status(*map(str, words))
    return Done(status, out.getvalue(), err.getvalue())


def main_status(*words):
    """The exit status of a command, run in this process"""
    try:
        return main(list(words))
    except SystemExit as stop:  # argparse's way to end
        return stop.code


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
    assert again.returncode == 1 and "already exists: continue it with --resume" in again.stderr
    assert command("train", "--epochs", 1, cwd=folder).returncode == 0
    assert (folder / "runs" / "digits-2" / "checkpoint.pt").exists()
    assert (folder / "runs" / "digits-1" / "checkpoint.pt").read_bytes() == before


def start(*words, cwd):
    """A command under way, which writes into two files; forked where that is safe"""
    way = "forkserver" if sys.platform == "linux" else "spawn"  # on macOS a fork may crash
    ways = multiprocessing.get_context(way)
    if way == "forkserver":
        ways.set_forkserver_preload(["matplotlib.pyplot", "sklearn.datasets", "torch._dynamo"])
    run = ways.Process(
        target=say_into_files,
        args=(list(map(str, words)), cwd, said := Path(tempfile.mkdtemp(dir=cwd))),
    )
    run.start()
    run.out, run.err = said / "out", said / "err"
    return run


def say_into_files(words, cwd, said):
    """A command in the process that was started for it"""
    os.chdir(cwd)
    # a shell's background jobs are deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (said / "out").open("w", buffering=1) as out, (said / "err").open("w") as err:
        sys.stdout, sys.stderr = out, err
        sys.exit(main(words))


def ended(run):
    """The exit status of a command that was started, and what it said"""
    run.join(300)
    return Done(run.exitcode, run.out.read_text(), run.err.read_text())


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
            assert "another run is writing into long" in capsys.readouterr().err
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


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--data", "mnist"], 1, "unknown data 'mnist', known: digits"),
        (["--size", "XL"], 1, "unknown model 'XL/4', known: mini, Ti"),
        (["--patch", "3"], 1, "8 x 8 pixels does not divide into patches of side 3"),
        (["--epochs", "0"], 2, "must be at least 1, got 0"),
        (["--lr", "0"], 1, "lr must be above 0"),
        (["--device", "abacus"], 1, "no device 'abacus' on this machine, available: cpu"),
        (["--device", "meta"], 1, "no device 'meta' on this machine"),
        (["--epochs", "1e3"], 2, "invalid positive_int value: '1e3'"),
        (["--out", "file"], 1, "file"),
        (["--resume", "nowhere"], 1, "no checkpoint at {here}/nowhere/checkpoint.pt"),
        (["--resume", "a", "--out", "b"], 1, "leave out --out"),
        (["--lr", "1e30", "--epochs", "1"], 1, "the loss is nan at step"),
    ],
)
def test_bad_options_are_named(tmp_path, monkeypatch, capsys, words, status, says):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    assert main_status("train", *words) == status
    err = capsys.readouterr().err.replace("\\", "/")
    assert says.format(here=tmp_path.as_posix()) in err
    # no folder is left of a run that kept nothing
    assert {path.name for path in Path().rglob("*")} <= {"file", "runs"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(capsys, name):
    assert main_status("--help") == 0
    assert name in capsys.readouterr().out
    assert main_status(name, "--help") == 0
    options = re.split(r"\n  (?=-|\w)", capsys.readouterr().out.partition("options:")[2])[1:]
    assert options and all(len(option.split()) > 3 for option in options)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_two_examples_whose_options_exist(capsys, name):
    assert main_status(name, "--help") == 0
    examples = re.findall(rf"^    python -m vit_helpers ({name}.*)$", capsys.readouterr().out, re.M)
    assert len(examples) >= 2
    for example in examples:
        assert parse(shlex.split(example.partition(" > ")[0])).command == name


HELP = """
import sys
from vit_helpers.cli import main
try:
    main({words})
except SystemExit:
    pass
print([name for name in sorted(sys.modules) if name.partition(".")[0] in {names}])
"""


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_neither_torch_nor_a_command(words):
    code = HELP.format(words=words, names={"torch", "numpy", "pandas", "matplotlib", "vit_helpers"})
    words = [sys.executable, "-S", "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    imported = done.stdout.splitlines()[-1]
    assert imported == "['vit_helpers', 'vit_helpers.cli', 'vit_helpers.cli.parser']", done.stderr


def test_an_unknown_option_is_answered_with_those_of_the_command(capsys):
    assert main_status("train", "--learning-rate", "1") == 2
    assert re.search(
        r"usage: python -m vit_helpers train .*unrecognized arguments: --learning-rate 1",
        capsys.readouterr().err,
        re.S,
    )


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


STOP = """
import runpy
import sys


class Stop:
    def find_spec(self, name, *rest):
        if name == "vit_helpers.cli":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Stop())
runpy.run_module("vit_helpers", run_name="__main__")
"""


def test_ctrl_c_before_a_command_has_begun_is_one_word():
    done = subprocess.run([sys.executable, "-c", STOP], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nstopped\n")
