import copy
import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_classifier import Classifier, batches, figures, problem, train

from vit_helpers._files import save_sealed
from vit_helpers.data import Batches
from vit_helpers.training import Recipe, fit
from vit_helpers.training.checkpoints import Checkpoint, load_checkpoint


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
    assert all(
        torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True)
    )
    one, two = (load_checkpoint(tmp_path / name) for name in ("whole.pt", "cut.pt"))
    assert torch.equal(one["random"]["cpu"], two["random"]["cpu"])


def test_a_checkpoint_cut_short_is_refused_and_the_one_before_is_there(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=3, checkpoint=path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        before = r"the one before it is .*\.previous: rename it to checkpoint.pt"
        with pytest.raises(ValueError, match=f"truncated or damaged; {before}"):
            load_checkpoint(path)
    assert len(load_checkpoint(path.with_name(path.name + ".previous"))["history"]) == 2
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the one before it is"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "error", [OSError("disk full"), RuntimeError("PytorchStreamWriter failed writing file")]
)
def test_a_write_that_fails_leaves_the_checkpoint_as_it_was(tmp_path, monkeypatch, error):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)

    def half(state, file):
        file.write(b"half")
        raise error

    # there was room when the run began
    monkeypatch.setattr("vit_helpers.training.checkpoints.prepare", lambda *rest: None)
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(
        OSError,
        match=f"checkpoint.pt, .*previous version.*: {error}",
    ):
        train(epochs=2, checkpoint=path)
    assert not list(tmp_path.glob("*.part")) and len(load_checkpoint(path)["history"]) == 2


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


@pytest.mark.parametrize("step", ["torch.save", "shutil.copyfile"])
def test_a_full_disk_is_named_and_leaves_the_last_checkpoint(tmp_path, monkeypatch, step):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)

    def full(*rest):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            if step == "torch.save":
                # torch's words, which hide the cause
                raise RuntimeError("unexpected pos 576 vs 534")

    monkeypatch.setattr("vit_helpers.training.checkpoints.make_parent", lambda path: None)
    monkeypatch.setattr(
        step, full if step != "torch.save" else lambda state, file: full() if file.name else None
    )
    monkeypatch.setattr("vit_helpers.training.checkpoints.prepare", lambda *rest: None)
    with pytest.raises(OSError, match=r"previous version.*: No space left on device$"):
        train(epochs=2, checkpoint=path)
    assert {file.name for file in tmp_path.iterdir()} == {"checkpoint.pt", "checkpoint.pt.previous"}
    assert len(load_checkpoint(path)["history"]) == 2
    if step == "torch.save":
        with pytest.raises(OSError, match=r"new\.pt: No space left on device$"):
            train(epochs=2, checkpoint=tmp_path / "new.pt")


@pytest.mark.parametrize("place", [Path("/proc"), Path("/dev/null/folder")])
def test_a_place_where_nothing_can_be_written_is_found_before_the_first_epoch(place):
    if not Path("/proc").is_dir():
        pytest.skip("needs a folder that refuses files even from root")
    with pytest.raises(OSError, match=r"/proc/checkpoint.pt cannot be written|Not a directory"):
        train(
            checkpoint=place / "checkpoint.pt",
            report=lambda row: pytest.fail("an epoch was trained"),
        )


def damage(data, at):
    """The bytes with one bit flipped"""
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_ctrl_c_while_a_file_is_written_is_ctrl_c(tmp_path):
    """torch raises a RuntimeError of its own then, whose context has the KeyboardInterrupt"""
    from vit_helpers._files import write_aside

    with pytest.raises(KeyboardInterrupt), write_aside(tmp_path / "x") as part:
        part.touch()
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("inline_container")
    assert not list(tmp_path.iterdir())


def test_a_bit_flipped_anywhere_is_noticed_and_the_one_before_offered(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    whole = path.read_bytes()
    for at in (*range(0, len(whole), 499), *range(len(whole) - 60, len(whole))):
        path.write_bytes(damage(whole, at))
        with pytest.raises(
            ValueError, match=r"truncated or damaged; the one before it is .*\.previous: rename it"
        ):
            load_checkpoint(path)
    path.write_bytes(whole)
    assert len(load_checkpoint(path)["history"]) == 2


@pytest.mark.parametrize(
    ("lost", "says"),
    [(["model"], "it lacks model"), (["optimizer", "random"], "it lacks optimizer, random")],
)
def test_a_checkpoint_without_what_is_needed_says_so(tmp_path, lost, says):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    state = torch.load(path, weights_only=True)
    save_sealed(path, {name: value for name, value in state.items() if name not in lost})
    with pytest.raises(ValueError, match=says):
        train(epochs=2, checkpoint=path, resume=True)


def refused(path, change):
    """Change a checkpoint, seal it again, and return what is said when it is resumed"""
    train(epochs=2, checkpoint=path)
    state = torch.load(path, weights_only=True)
    change(state)
    save_sealed(path, state)
    with pytest.raises(ValueError, match=r"does not fit") as error:
        train(epochs=2, checkpoint=path, resume=True)
    return str(error.value)


CHANGES = {
    "weights of another shape": lambda state: state["model"].update(
        {next(iter(state["model"])): torch.zeros(2, 3)}
    ),
    "no optimizer": lambda state: state.update(optimizer={}),
    "no schedule": lambda state: state.update(schedule={}),
    "no generators": lambda state: state.update(random={}),
    "a list": lambda state: state.update(model=[]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_of_something_else_is_one_line(tmp_path, change):
    assert "\n" not in refused(tmp_path / "checkpoint.pt", change)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_model_that_cannot_go_on_keeps_its_weights(tmp_path, change):
    refused(path := tmp_path / "checkpoint.pt", change)
    before = copy.deepcopy(model := Classifier()).state_dict()
    callbacks = [Checkpoint(path, resume=True)]
    with pytest.raises(ValueError, match="does not fit"):
        fit(model, batches(), batches(), Recipe(epochs=2, lr=1e-2), callbacks=callbacks)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_checkpoint_of_another_model_names_what_differs(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    model = Classifier()
    model.layers[3] = torch.nn.Linear(16, 5)
    says = r"2 of its weights .*, as layers\.3\.weight \(3, 16\) -> \(5, 16\)$"
    callbacks = [Checkpoint(path, resume=True)]
    with pytest.raises(ValueError, match=says):
        fit(model, batches(), batches(), Recipe(epochs=2, lr=1e-2), callbacks=callbacks)


def test_a_checkpoint_runs_no_code(tmp_path):
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    train(epochs=1, checkpoint=path)
    state = torch.load(path, weights_only=True)
    save_sealed(path, state | {"about": Evil(trace)})  # whoever made it can make its checksum, too
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_checkpoint(path)
    assert not trace.exists()


class Evil:
    """Leaves a file where it is unpickled"""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_another_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "other.pt"
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"other\.pt"):
        load_checkpoint(path)
    for state in ({"weights": torch.zeros(2)}, [torch.zeros(2)]):
        save_sealed(path, state)
        with pytest.raises(ValueError, match="lacks model"):
            load_checkpoint(path)


def test_another_recipe_cannot_go_on(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match="epochs 2 -> 3"):
        train(epochs=3, checkpoint=path, resume=True)
    with pytest.raises(ValueError, match="total steps 8 -> 14"):
        again = [Checkpoint(path, resume=True)]
        recipe = Recipe(epochs=2, lr=1e-2)
        fit(Classifier(), Batches(problem(), 16), batches(), recipe, callbacks=again)


@pytest.mark.parametrize("about", [{"p": np.float64(1)}, {"p": Path("x")}])
def test_what_could_not_be_read_again_is_refused_before_the_first_epoch(tmp_path, about):
    with pytest.raises(ValueError, match="plain numbers and strings"):
        train(checkpoint=tmp_path / "checkpoint.pt", about=about)


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        train(checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_checkpoint(tmp_path)
