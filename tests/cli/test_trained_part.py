"""Runs with --tune head and lora store what they train; `weights.safetensors` alone is whole."""

import shutil

import pytest
import torch
from commands import command
from safetensors.torch import load_file

from tests.cli.test_head_features import content
from vit_helpers import ViT, ViTConfig
from vit_helpers._files import save_sealed
from vit_helpers.distributed import plain_state_dict
from vit_helpers.parity import perturb
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.training import Report
from vit_helpers.training.best import best_epoch
from vit_helpers.training.checkpoints import load_checkpoint

pytestmark = pytest.mark.usefixtures("no_figures")
TUNE = ("head", "lora")
CONFIG = ViTConfig(8, 2, 1, 5, 128, 2, 4)
WORDS = ["--set", "images=200", "--weights", "start.safetensors"]
WORDS += ["--lr", "0.1", "--set", "schedule=constant", "--epochs", 60]
WORDS += ["--patience", 3]  # which ends it after three epochs that are not the best


def how(tune):
    """The options to tune a part"""
    return ["--tune", tune, *(["--rank", 2] if tune == "lora" else [])]


def save_start(folder, std=0.1):
    torch.manual_seed(0)
    perturb(model := ViT(CONFIG), std=std)
    preprocess = Preprocess(8, (8, 8), "bilinear", (0.3,), (0.4,))
    save_weights(folder / "start.safetensors", model, preprocess, "abcde")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with weights to start from, and a run from them for each way to tune a part"""
    folder = tmp_path_factory.mktemp("part")
    save_start(folder)
    for tune in TUNE:
        words = [*how(tune), "--out", tune]
        done = command("train", *WORDS, *words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(home, tmp_path):
    return shutil.copytree(home, tmp_path / "copy")


def trained(tune):
    """The names of the weights that are trained"""
    names = {"head.weight", "head.bias"}
    if tune == "lora":
        names |= {f"blocks.{n}.attn.qkv.{matrix}" for n in (0, 1) for matrix in "AB"}
    return names


def size(path):
    return path.stat().st_size


@pytest.mark.parametrize("tune", TUNE)
def test_only_what_is_trained_is_stored_in_each_epoch(home, tune):
    run = home / tune
    state = load_checkpoint(run / "checkpoint.pt")
    last = load_file(run / "last.safetensors")
    assert state["model"].keys() == state["kept"].keys() == last.keys() == trained(tune)
    assert all(torch.equal(last[name], state["model"][name]) for name in last)
    small = ("checkpoint.pt", "checkpoint.pt.previous", "last.safetensors")
    assert sum(size(run / name) for name in small) < size(run / "weights.safetensors") / 5


@pytest.mark.parametrize("tune", TUNE)
def test_with_patience_the_whole_file_has_the_best_epoch_on_the_weights_of_the_start(home, tune):
    state = load_checkpoint(home / tune / "checkpoint.pt")
    history, best = state["history"], state["kept"]
    assert best_epoch(history) == len(history) - 3
    start = plain_state_dict(load_pretrained(home / "start.safetensors").model)
    whole = plain_state_dict(load_pretrained(home / tune).model)
    for name, weight in whole.items():
        expected = best.get(name, start.get(name))
        if tune == "lora" and name.endswith("qkv.weight"):
            layer = name.removesuffix("weight")
            expected = start[name] + best[f"{layer}B"] @ best[f"{layer}A"]
            assert not torch.equal(weight, start[name])
        assert torch.allclose(weight, expected, atol=1e-6), name
    assert not torch.equal(best["head.weight"], state["model"]["head.weight"])


@pytest.mark.parametrize("tune", TUNE)
def test_a_run_works_after_it_was_moved_and_its_start_is_gone(copy, tmp_path, tune):
    moved = shutil.move(copy / tune, tmp_path / "moved")
    shutil.rmtree(copy)
    done = command("evaluate", moved, "digits", "--out", "c.png", cwd=tmp_path)
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr
    words = ["--weights", moved, "--epochs", 1, "--set", "images=64", "--out", "next"]
    done = command("train", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = command("train", "--resume", moved, cwd=tmp_path)
    assert done.returncode == 1 and "cannot continue" in done.stderr


@pytest.mark.parametrize("tune", TUNE)
@pytest.mark.parametrize("name", ["patch_embed.proj.bias", "token_embed.pos_embed", "norm.weight"])
def test_no_run_goes_on_with_other_frozen_weights(copy, tune, name):
    start = load_pretrained(copy / "start.safetensors")
    start.model.get_parameter(name).data[..., 0] += 0.1
    save_weights(copy / "start.safetensors", *start)
    done = command("train", "--resume", tune, cwd=copy)
    assert done.returncode == 1, done.stdout
    assert "weights to fine-tune" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("tune", TUNE)
def test_a_resumed_run_ends_bit_for_bit_like_one_never_stopped(copy, tune):
    run = copy / tune
    names = ("weights.safetensors", "last.safetensors")
    whole = [content(run / name) for name in names]
    last = len(load_checkpoint(run / "checkpoint.pt")["history"])
    (run / "checkpoint.pt.previous").replace(run / "checkpoint.pt")
    for name in names:
        (run / name).unlink()
    done = command("train", "--resume", tune, cwd=copy)
    assert done.returncode == 0 and f"epoch {last:3d}" in done.stdout, done.stderr
    assert [content(run / name) for name in names] == whole


@pytest.mark.parametrize("tune", TUNE)
def test_a_stopped_run_leaves_a_whole_model_of_its_best_epoch(home, tmp_path, monkeypatch, tune):
    shutil.copy(home / "start.safetensors", tmp_path)
    report = Report.on_epoch_end

    def stop(self, run):
        report(self, run)
        if len(run.history) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Report, "on_epoch_end", stop)
    words = [*how(tune), "--out", "run"]
    done = command("train", *WORDS, *words, cwd=tmp_path)
    assert done.returncode == 130 and "epoch 3" in done.stdout
    best = load_checkpoint(tmp_path / "run" / "checkpoint.pt")["kept"]
    model = load_pretrained(tmp_path / "run").model
    assert torch.equal(model.head.weight, best["head.weight"])
    monkeypatch.undo()
    done = command("train", "--resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("weights.safetensors", "last.safetensors"):
        assert content(tmp_path / "run" / name) == content(home / tune / name)


@pytest.mark.parametrize("tune", TUNE)
def test_a_file_of_a_part_says_what_it_is(home, tmp_path, tune):
    file = home / tune / "last.safetensors"
    done = command("evaluate", file, "digits", "--out", "c.png", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"--tune {tune} trained" in done.stderr


@pytest.mark.parametrize("tune", TUNE)
def test_a_part_is_not_sharded(home, tune):
    words = [*how(tune), "--shard", "--out", "sharded"]
    done = command("train", *WORDS, *words, cwd=home)
    assert done.returncode == 1 and f"--tune {tune} does not train" in done.stderr


def test_a_checkpoint_of_other_weights_is_refused(copy):
    shutil.copy(copy / "lora" / "checkpoint.pt", copy / "whole.pt")
    state = torch.load(copy / "whole.pt", weights_only=True)
    state["model"]["norm.weight"] = torch.ones(128)
    save_sealed(copy / "lora" / "checkpoint.pt", state)
    done = command("train", "--resume", "lora", cwd=copy)
    assert done.returncode == 1 and "does not hold what this run trains" in done.stderr
