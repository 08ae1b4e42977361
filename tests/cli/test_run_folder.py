"""Runs share no folder, go on only as the same run, and say what they need."""

import contextlib
import io
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vit_helpers.cli import main
from vit_helpers.cli.run_folder import (
    check_restarted,
    check_same_data,
    claim,
    data_fingerprint,
    how_to_resume,
    kept_settings,
    run_name,
)
from vit_helpers.data import Split, load
from vit_helpers.data.shards import write_shards
from vit_helpers.pretrained import load_weights, save_weights
from vit_helpers.training import set_seed
from vit_helpers.training.checkpoints import load_checkpoint
from vit_helpers.training.presets import RunSettings, given_settings

pytestmark = pytest.mark.usefixtures("no_figures")
ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name == "nt", reason="streams and devices of POSIX")


def run(*words):
    """A command in this process: its exit status, stdout and stderr"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, words)))
    return status, out.getvalue(), err.getvalue()


# Folders


def claims(folder, out, times):
    """Claim a folder again and again; return how often two processes had it, and how often this"""
    os.chdir(folder)
    twice = had = 0
    for _ in range(times):
        with contextlib.suppress(ValueError), ExitStack() as stack:
            mine = claim(out, "digits", stack)
            had += 1
            try:
                (mine / "in use").mkdir()
            except FileExistsError:
                twice += 1
                continue
            time.sleep(0.001)
            (mine / "in use").rmdir()
    return twice, had


@pytest.mark.parametrize("out", [Path("mine"), None])
def test_no_two_processes_ever_have_the_same_folder(tmp_path, out):
    ways = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ways.Pool(4) as pool:
        found = pool.starmap(claims, [(tmp_path, out, 60)] * 4)
    assert [twice for twice, _ in found] == [0] * 4 and sum(had for _, had in found) > 0
    assert not [path for path in tmp_path.rglob("*") if path.name not in ("mine", "runs")]


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_a_folder_that_another_run_removes_meanwhile_is_made_again(tmp_path, monkeypatch, error):
    """`mkdir` finds a folder; when it looks whether that is one, the folder is gone"""
    make, failures = Path.mkdir, [error]

    def mkdir(path, *words, **options):
        if failures:
            raise failures.pop()
        make(path, *words, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with ExitStack() as stack:
        assert claim(tmp_path / "mine", "digits", stack).is_dir() and not failures


def test_results_without_a_checkpoint_are_not_overwritten(tmp_path):
    for name in ("weights.safetensors", "best.safetensors", "curves.png", "history.csv"):
        (tmp_path / name).mkdir()
        status, _, err = run("train", "--epochs", 1, "--out", tmp_path)
        assert status == 1 and f"{name} already exists" in err
        (tmp_path / name).rmdir()


@pytest.mark.parametrize("out", ["/proc/run", "/dev/null/run", "file"])
def test_a_place_where_nothing_can_be_written_is_named_before_data_are_read(
    tmp_path, monkeypatch, out
):
    if not Path("/proc").is_dir():
        pytest.skip("needs a folder that refuses files even from root")
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr("vit_helpers.data.load", lambda name: pytest.fail("data were read"))
    status, _, err = run("train", "--out", out)
    assert (
        status == 1
        and err.startswith(f"error: no run can be stored in {out} (")
        and err.count("\n") == 1
    )


def test_a_checkpoint_may_be_given_in_place_of_its_folder(tmp_path):
    assert run("train", "--epochs", 1, "--size", "mini", "--out", tmp_path / "run")[0] == 0
    status, out, err = run("train", "--resume", tmp_path / "run" / "checkpoint.pt")
    assert status == 0 and "test accuracy" in out, err
    status, _, err = run("train", "--resume", tmp_path / "run" / "weights.safetensors")
    assert status == 1 and err == (
        f"error: --resume takes the folder of a run, or its checkpoint.pt, but "
        f"{tmp_path / 'run' / 'weights.safetensors'} is another file: give {tmp_path / 'run'}\n"
    )


@pytest.mark.parametrize(
    ("data", "name"),
    [("digits", "digits"), ("folder:a/photos", "photos"), ("folder:a/photos/", "photos"),
     ("shards:..", "above"), ("folder:.", "here"), ("a/b", "b"), ("folder:", "folder")],
)  # fmt: skip
def test_a_run_is_called_by_its_data(tmp_path, monkeypatch, data, name):
    (tmp_path / "above" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above" / "here")
    assert run_name(data) == name


def test_a_seed_that_is_too_large_is_named(tmp_path):
    status, _, err = run("train", "--seed", 10**23, "--out", tmp_path / "run")
    assert status == 1 and "seed" in err and "Overflow" not in err
    set_seed(2**63)


# The same run or none


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A run on a folder of two classes, as it was after its second epoch of three"""
    home = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0)
    for name in ("ants", "bees"):
        (home / "data" / name).mkdir(parents=True)
        for number in range(50):
            Image.fromarray(noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
                home / "data" / name / f"{number}.png"
            )
    with contextlib.chdir(home):
        status, _, err = run("train", "--data", "folder:data", "--epochs", 3, "--out", "run")
        assert status == 0, err
        Path("run", "checkpoint.pt.previous").replace(Path("run", "checkpoint.pt"))
    return home


def rename_class():
    Path("data", "ants").rename(Path("data", "zants"))


def add_picture():
    shutil.copy(Path("data", "ants", "0.png"), Path("data", "ants", "new.png"))


def change_pixel():
    for path in Path("data", "bees").iterdir():
        with Image.open(path) as picture:
            picture.putpixel((0, 0), (0, 0, 0))
            picture.save(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (rename_class, ": classes ants, bees -> bees, zants. A resumed"),
        (add_picture, " images "),
        (change_pixel, " images "),  # which decide in which split they are
        (lambda: None, None),
    ],
)
def test_a_run_goes_on_with_the_same_data_alone(pictures, tmp_path, monkeypatch, change, says):
    monkeypatch.chdir(shutil.copytree(pictures, tmp_path / "copy"))
    change()
    status, out, err = run("train", "--resume", "run")
    if says:
        assert status == 1 and "the data have changed" in err and says in err
        assert not out and err.count("\n") == 1
        assert not re.search("[0-9a-f]{16}|mean", err)  # neither digests nor what follows from them
    else:
        assert status == 0 and "epoch   3" in out


def test_other_classes_and_another_mean_are_named():
    data = load("digits")
    fingerprint = data_fingerprint(data)
    about = {"data": fingerprint, "mean": data.mean, "std": data.std}
    check_same_data(about, fingerprint, data)
    other = fingerprint | {"classes": "9, 8"}
    with pytest.raises(ValueError, match=r"classes 9, 8 -> 0, 1"):
        check_same_data(about | {"data": other}, fingerprint, data)
    rolled = replace(data, test=Split(data.test.images, data.test.labels.roll(1)))
    with pytest.raises(ValueError, match=r"pixels or labels of test\b"):
        check_same_data(about, data_fingerprint(rolled), rolled)
    with pytest.raises(ValueError, match=r"mean 0\.\d{5} -> 0\.\d{5}"):
        check_same_data(about | {"mean": (data.mean[0] + 1e-3,)}, fingerprint, data)


def test_a_fingerprint_tells_labels_and_the_number_of_processes_that_a_stream_depends_on(
    tmp_path, monkeypatch
):
    data = load("digits")
    other = replace(data, test=Split(data.test.images, data.test.labels.roll(1)))
    one, two = data_fingerprint(data), data_fingerprint(other)
    assert [name for name in one if one[name] != two[name]] == ["pixels or labels of test"]
    assert data_fingerprint(load("digits")) == one and "processes" not in one
    assert data_fingerprint(data, dropout=True)["processes"] == 1
    shards = [
        load(f"shards:{write_shards(each, tmp_path / str(n))}")
        for n, each in enumerate((data, other))
    ]
    one, two = map(data_fingerprint, shards)
    assert [name for name in one if one[name] != two[name]] == ["pixels or labels of test"]
    monkeypatch.setattr("vit_helpers.cli.run_folder.world_size", lambda: 2)
    with pytest.raises(ValueError, match="processes 1 -> 2"):
        about = {"data": one, "mean": shards[0].mean, "std": shards[0].std}
        check_same_data(about, data_fingerprint(shards[0]), shards[0])


RUN = ["train", "--size", "mini", "--set", "depth=1", "--set", "images=64"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Two runs on the digits, one fine-tuned from the other, after the first of two epochs"""
    home = tmp_path_factory.mktemp("tuned")
    with contextlib.chdir(home):
        assert run(*RUN, "--epochs", 1, "--out", "src")[0] == 0
        assert (
            run("train", "--set", "images=64", "--weights", "src", "--epochs", 2, "--out", "ft")[0]
            == 0
        )
        Path("ft", "checkpoint.pt.previous").replace(Path("ft", "checkpoint.pt"))
    return home


@pytest.mark.parametrize("what", ["other weights", "other mean", "gone", "same"])
def test_a_fine_tuned_run_goes_on_with_the_same_weights_alone(tuned, tmp_path, monkeypatch, what):
    monkeypatch.chdir(shutil.copytree(tuned, tmp_path / "copy"))
    kept = load_weights(source := Path("src", "weights.safetensors"))
    if what == "other weights":
        torch.nn.init.normal_(kept.model.blocks[0].mlp.fc1.bias)
    mean = (kept.preprocess.mean[0] + 0.1,) if what == "other mean" else kept.preprocess.mean
    save_weights(source, kept.model, replace(kept.preprocess, mean=mean), kept.class_names)
    if what == "gone":
        shutil.rmtree("src")
    status, out, err = run("train", "--resume", "ft")
    says = {
        "other weights": "the weights to fine-tune have changed since .* made: those of src. A",
        "other mean": "the data have changed .*: mean ",
    }
    says |= {
        "gone": "the run was started with the weights src, without which it cannot continue",
        "same": "^$",
    }
    assert (
        status == (what != "same") and re.search(says[what], err) and err.count("\n") == status
    ), err
    assert status or "epoch   2" in out


@pytest.mark.parametrize(
    "what", ["missing", "damaged", "of another run", "of another kind", "same"]
)
def test_weights_that_are_not_the_runs_are_said_and_not_overwritten(
    tuned, tmp_path, monkeypatch, what
):
    monkeypatch.chdir(shutil.copytree(tuned, tmp_path / "copy"))
    best = Path("ft", "weights.safetensors")
    if what == "missing":
        best.unlink()
    elif what == "damaged":
        content = bytearray(best.read_bytes())
        content[-1000] ^= 1
        best.write_bytes(content)
    elif what == "of another run":
        shutil.copy(Path("src", "weights.safetensors"), best)
    elif what == "of another kind":
        save_file({"x": torch.ones(1)}, best)
    before = best.read_bytes() if best.exists() else None
    status, out, err = run("train", "--resume", "ft")
    if what == "missing":
        assert status == 0 and "note" not in out and best.exists()  # the last are written anyway
    elif what == "same":
        assert status == 0 and "note" not in out
    else:
        assert (
            status == 1
            and "move the file elsewhere" in err
            and err.count("\n") == 1
            and best.read_bytes() == before
        )
        best.rename("elsewhere")
        assert run("train", "--resume", "ft")[0] == 0


def test_a_folder_whose_run_kept_nothing_can_be_used_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("vit_helpers.training.checkpoints.save_sealed", lambda *rest: 1 / 0)
        patch.setattr(
            "vit_helpers.training.checkpoints.save_file", Mock(side_effect=KeyboardInterrupt)
        )
        status, out, _ = run(*RUN, "--epochs", 1, "--out", tmp_path / "run")
    assert status == 130 and "nothing to keep" in out and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["tta=false", "dropout=0.0", "patch=2", "depth=1", "pool=cls"], True),
        (["patch_size=2"], True),
        (["patch=4"], False),
        (["tta=true"], False),
        (["dropout=0.1"], False),
        (["depth=2"], False),
        (["in_chans=3"], False),
    ],
)
def test_settings_that_are_given_again_are_compared_by_value(words, same):
    settings = RunSettings.from_dict({"model": "mini/2", "depth": 1})
    given = given_settings({"size": "mini"}, words)
    if same:
        assert kept_settings(Path("c.pt"), {"options": settings.to_dict()}, given) == settings
    else:
        with pytest.raises(ValueError, match="but these differ"):
            kept_settings(Path("c.pt"), {"options": settings.to_dict()}, given)


def other_settings(checkpoint):
    """Resume a run with another learning rate"""
    kept_settings(checkpoint, {"options": RunSettings().to_dict()}, {"lr": 0.1})


def stopped(checkpoint):
    """Stop a run after its first epoch, and raise what is printed"""
    checkpoint.parent.mkdir()
    shutil.copy("checkpoint.pt", checkpoint)
    raise ValueError(how_to_resume(checkpoint.parent, "stopped"))


@pytest.mark.parametrize(
    ("act", "option"),
    [(check_restarted, "--resume"), (other_settings, "--weights"), (stopped, "--resume")],
)
def test_a_folder_with_a_space_can_be_pasted(tuned, tmp_path, monkeypatch, act, option):
    monkeypatch.chdir(tmp_path)
    shutil.copy(tuned / "ft" / "checkpoint.pt", "checkpoint.pt")
    with pytest.raises(ValueError, match=f"{option} 'my photos-1'"):
        act(Path("my photos-1", "checkpoint.pt"))


@pytest.mark.parametrize("options", [None, [], {}, {"lr": 0.1}])
def test_options_without_a_model_are_no_runs(options):
    with pytest.raises(ValueError, match="command train"):
        kept_settings(Path("c.pt"), {"options": options}, {})


def test_a_resumed_run_leaves_out_broken_files_as_it_did(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(pictures, tmp_path / "copy"))
    Path("data", "ants", "bad.png").write_bytes(b"no image")
    words = ["--image-size", 8, "--patch", 4, "--set", "depth=1"]
    assert (
        run(
            "train", "--data", "folder:data", "--epochs", 1, *words, "--skip-broken", "--out", "new"
        )[0]
        == 0
    )
    status, _, err = run("train", "--resume", "new")
    assert status == 0, err


def test_a_full_disk_stops_a_run_with_one_line_and_says_how_to_go_on(tmp_path, monkeypatch):
    from vit_helpers.training import checkpoints

    epochs, save = [], checkpoints.save_sealed

    def full_after_one(path, state):
        epochs.append(len(state["history"]))
        if len(epochs) == 2:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(path, state)

    monkeypatch.setattr(checkpoints, "save_sealed", full_after_one)
    status, out, err = run("train", "--epochs", 3, "--out", tmp_path / "run")
    assert status == 1 and err.count("\n") == 1
    assert "checkpoint.pt" in err and "No space left on device" in err
    assert (
        f"everything up to epoch 1 is kept in {tmp_path / 'run' / 'checkpoint.pt'}\ncontinue with: "
        in out
    )
    kept = {path.name for path in (tmp_path / "run").iterdir()}
    assert kept == {"checkpoint.pt", "history.csv", "weights.safetensors"}
    assert len(load_checkpoint(tmp_path / "run" / "checkpoint.pt")["history"]) == 1


# Streams

COMMAND = """
import sys
from vit_helpers.cli import run_safely

def run(args):
    {what}

sys.exit(run_safely(run, None))
"""


def start(what, redirect="", **environment):
    """A command that does something, started by a shell"""
    code = COMMAND.replace("{what}", what)
    words = ["sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd="/tmp"
    )


@posix
def test_when_nobody_reads_any_more_a_command_ends_without_a_word():
    done = start("[print(line) for line in range(100_000)]")
    assert done.stdout.readline() == b"0\n"
    done.stdout.close()
    assert done.stderr.read() == b"" and done.wait() == 141
    done.stderr.close()


@posix
@pytest.mark.parametrize("end", ["", "sys.stdout.reconfigure(line_buffering=False); "])
def test_output_that_goes_to_a_full_disk_is_one_line_of_error(end):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    done = start(f"{end}print('result')", "> /dev/full")
    assert (
        done.communicate()[1] == b"error: [Errno 28] No space left on device\n"
        and done.returncode == 1
    )


@posix
def test_a_terminal_of_ascii_shows_any_name():
    done = start(
        r"print('ants \u8681 \udcff')", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert out == b"ants \\u8681 \\udcff\n"


def test_a_training_whose_reader_leaves_says_how_to_go_on(tmp_path):
    class Reader(io.StringIO):
        def write(self, text):
            if text.startswith("epoch   2"):
                raise BrokenPipeError(32, "Broken pipe")
            return super().write(text)

    err = io.StringIO()
    with contextlib.redirect_stdout(Reader()), contextlib.redirect_stderr(err):
        assert main(["train", "--epochs", "3", "--out", str(tmp_path / "run")]) == 141
    assert (
        "stopped, because nobody reads the output anymore; everything up to epoch 2 is kept"
        in err.getvalue()
    )
    assert f"train --resume {tmp_path / 'run'}" in err.getvalue() and "Errno" not in err.getvalue()
    assert (
        torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["history"][-1]["epoch"]
        == 2
    )


@posix
@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["predict", "photos", "--weights", "ours:photos", "--csv", "p.csv"], "p.csv"),
        (["predict", "photos", "--weights", "ours:photos", "--csv", "full"], "full"),
        (["shards", "digits", "shards"], "shards"),
        (["live", "--out", "page.html"], "page.html"),
    ],
)
def test_a_result_that_does_not_fit_on_the_disk_is_named(tmp_path, monkeypatch, words, file):
    import resource
    import signal

    monkeypatch.chdir(tmp_path)
    Path("full").symlink_to("/dev/full")
    Path("photos").mkdir()
    for number in range(40):  # whose table is larger than the limit
        Image.new("RGB", (8, 8)).save(f"photos/{number}.png")
    before = sorted(Path().iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        status, _, err = run(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1, err
    assert re.fullmatch(rf"error: could not write {file}: [A-Z][ a-z]+\n", err), err
    assert sorted(Path().iterdir()) == before
