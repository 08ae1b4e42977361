import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from small_classifier import Classifier, batches, figures, problem, silent, train

from vit_helpers.data import Batches
from vit_helpers.training import Recipe, fit
from vit_helpers.training.checkpoints import load_checkpoint


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_ends_bit_for_bit_like_one_never_stopped(tmp_path, stop):
    whole, history = train(checkpoint=tmp_path / "whole.pt")
    rows = []

    def stop_after(row):
        rows.append(row)
        if len(rows) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=tmp_path / "cut.pt", report=stop_after)
    torch.manual_seed(99)
    resumed, again = train(checkpoint=tmp_path / "cut.pt", resume=True)
    assert figures(again) == figures(history)
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True))
    one, two = (load_checkpoint(tmp_path / name) for name in ("whole.pt", "cut.pt"))
    assert torch.equal(one["random"]["cpu"], two["random"]["cpu"])


def test_a_checkpoint_cut_short_is_refused_and_the_one_before_is_there(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=3, checkpoint=path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            ValueError, match=r"truncated or damaged; the one before it is .*\.previous: rename it to checkpoint.pt"
        ):
            load_checkpoint(path)
    assert len(load_checkpoint(path.with_name(path.name + ".previous"))["history"]) == 2
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the one before it is"):
        load_checkpoint(path)


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("PytorchStreamWriter failed writing file")])
def test_a_write_that_fails_leaves_the_checkpoint_as_it_was(tmp_path, monkeypatch, error):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)

    def half(state, file):
        file.write_bytes(b"half")
        raise error

    monkeypatch.setattr("vit_helpers.training.checkpoints.prepare", lambda *rest: None)  # there was room when the run began
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match=str(error)):
        train(epochs=2, checkpoint=path)
    assert len(load_checkpoint(path)["history"]) == 2


@pytest.mark.parametrize("step", range(4))
def test_a_cut_between_any_two_steps_of_writing_leaves_a_checkpoint(tmp_path, monkeypatch, step):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    steps = []

    def cut(action):
        def stop_at_its_turn(*args, **kwargs):
            steps.append(action)
            if len(steps) == step + 1:
                raise KeyboardInterrupt
            return action(*args, **kwargs)

        return stop_at_its_turn

    monkeypatch.setattr("vit_helpers.training.checkpoints.prepare", lambda *rest: None)
    monkeypatch.setattr(torch, "save", cut(torch.save))
    monkeypatch.setattr("shutil.copyfile", cut(shutil.copyfile))
    monkeypatch.setattr(Path, "replace", cut(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        train(epochs=1, checkpoint=path)
    assert len(steps) == step + 1
    assert len(load_checkpoint(path)["history"]) == 2


def test_a_checkpoint_runs_no_code(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"history": [], "model": partial(print, "run")}, path)
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_checkpoint(path)


def test_another_file_is_no_checkpoint(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="is not a checkpoint of this training"):
        load_checkpoint(tmp_path / "other.pt")


def test_another_recipe_cannot_go_on(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match="another recipe: epochs 2 -> 3"):
        train(epochs=3, checkpoint=path, resume=True)
    with pytest.raises(ValueError, match="total steps 8 -> 14"):
        fit(
            Classifier(),
            Batches(problem(), 16),
            batches(),
            Recipe(epochs=2, lr=1e-2),
            checkpoint=path,
            resume=True,
            **silent,
        )


@pytest.mark.parametrize("about", [{"p": np.float64(1)}, {"p": Path("x")}])
def test_what_could_not_be_read_again_is_refused_before_the_first_epoch(tmp_path, about):
    with pytest.raises(ValueError, match="plain numbers and texts"):
        train(checkpoint=tmp_path / "checkpoint.pt", about=about)


VERSION_1 = {  # loss and validation loss of four epochs, which version 0.1 (commit 0dde123) was stopped in after two
    "adamw": [(1.089522, 1.036899), (1.004236, 0.985391), (0.984811, 0.960150), (0.962028, 0.955172)],
    "muon": [(1.097304, 1.078420), (1.053421, 1.055089), (1.057157, 1.044306), (1.046665, 1.042189)],
}


@pytest.mark.parametrize("optimizer", VERSION_1)
def test_a_run_of_version_1_goes_on_to_the_same_end(tmp_path, optimizer):
    kept = Path(__file__).with_name("data") / f"version1_{optimizer}.pt"
    path = Path(shutil.copy(kept, tmp_path))
    recipe = Recipe(epochs=4, lr=1e-2, token_lr_mult=3.0, optimizer=optimizer)
    state = load_checkpoint(path)
    assert state["about"] == {"options": {"seed": 3}} and state["recipe"]["token_lr_mult"] == 3.0
    assert [row.val_majority_share for row in state["history"]] == pytest.approx(
        [0.77, 0.74] if optimizer == "adamw" else [0.79, 0.85]
    )
    train = batches(shuffle=True, augment=lambda x: x + 0.1 * torch.randn_like(x))
    history = fit(Classifier(), train, batches(), recipe, checkpoint=path, resume=True, **silent)
    assert [row.epoch for row in history] == [1, 2, 3, 4]
    for row, (loss, val_loss) in zip(history, VERSION_1[optimizer], strict=True):
        assert (row.loss, row.val_loss) == pytest.approx((loss, val_loss), abs=1e-5)


def test_a_recipe_without_a_newer_field_has_its_default(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    state = torch.load(path, weights_only=True)
    del state["recipe"]["precision"], state["version"]
    torch.save(state, path)
    assert len(train(epochs=2, checkpoint=path, resume=True)[1]) == 2


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="is a folder; a checkpoint is a file"):
        train(checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_checkpoint(tmp_path)
