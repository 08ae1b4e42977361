import errno
import io
import pickle
import shutil
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from small_classifier import Classifier, batches, figures, problem, silent, train
from torch.distributed.checkpoint.api import CheckpointException

from vit_helpers._files import save_sealed
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
        with pytest.raises(
            ValueError,
            match=r"truncated or damaged; the one before it is .*\.previous: rename it to checkpoint.pt",
        ):
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

    monkeypatch.setattr(
        "vit_helpers.training.checkpoints.prepare", lambda *rest: None
    )  # there was room when the run began
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(
        OSError,
        match=f"could not write .*checkpoint.pt, whose previous version is unchanged: {error}",
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
                raise RuntimeError(
                    "unexpected pos 576 vs 534"
                )  # torch's words, which hide the cause

    monkeypatch.setattr("vit_helpers.training.checkpoints.make_parent", lambda path: None)
    monkeypatch.setattr(
        step, full if step != "torch.save" else lambda state, file: full() if file.name else None
    )
    monkeypatch.setattr("vit_helpers.training.checkpoints.prepare", lambda *rest: None)
    with pytest.raises(
        OSError, match=r"whose previous version is unchanged: No space left on device$"
    ):
        train(epochs=2, checkpoint=path)
    assert {file.name for file in tmp_path.iterdir()} == {"checkpoint.pt", "checkpoint.pt.previous"}
    assert len(load_checkpoint(path)["history"]) == 2
    if step == "torch.save":
        with pytest.raises(OSError, match="of which there is no previous version"):
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


def test_damage_to_the_weights_of_an_older_checkpoint_is_noticed(tmp_path):
    """It has no checksum of its own, but those of its zip file"""
    whole = Path(__file__).with_name("data").joinpath("version1_adamw.pt").read_bytes()
    path = tmp_path / "checkpoint.pt"
    with zipfile.ZipFile(io.BytesIO(whole)) as parts:
        tensors = [
            part for part in parts.infolist() if "/data/" in part.filename and part.file_size > 100
        ]
    assert tensors
    for part in tensors:
        path.write_bytes(damage(whole, part.header_offset + 200))
        with pytest.raises(ValueError, match="truncated or damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("lost", "says"),
    [(["model"], "it lacks: model"), (["optimizer", "random"], "optimizer, random")],
)
def test_a_checkpoint_without_what_is_needed_says_so(tmp_path, lost, says):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    state = {
        name: value
        for name, value in torch.load(path, weights_only=True).items()
        if name not in (*lost, "version")
    }
    torch.save(state, path)
    with pytest.raises(ValueError, match=says):
        train(epochs=2, checkpoint=path, resume=True)


def test_an_older_checkpoint_without_what_is_not_needed_goes_on(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    state = torch.load(path, weights_only=True)
    for name in ("version", "total", "about"):
        del state[name]
    del state["random"]["cuda"], state["recipe"]["schedule"]
    torch.save(state, path)
    assert load_checkpoint(path)["about"] == {}
    assert len(train(epochs=2, checkpoint=path, resume=True)[1]) == 2


def refused(path, change):
    """Change a checkpoint, seal it again, and return what is said when it is resumed"""
    train(epochs=2, checkpoint=path)
    state = torch.load(path, weights_only=True)
    change(state)
    save_sealed(path, state)
    with pytest.raises(ValueError, match=r"^the checkpoint does not fit this run: ") as error:
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


@pytest.mark.parametrize("context", [True, False])
def test_a_full_disk_is_named_for_a_sharded_checkpoint_too(tmp_path, monkeypatch, context):
    def full(*rest, **options):
        error = RuntimeError(
            "[enforce fail at inline_container.cc:671] . unexpected pos 704 vs 598"
        )  # torch's words
        error.__context__ = (
            OSError(errno.ENOSPC, "No space left on device") if context else None
        )  # not of other processes
        raise CheckpointException("write", {0: (error, None)})

    monkeypatch.setattr("torch.distributed.checkpoint.state_dict_saver.save", full)
    with pytest.raises(
        OSError, match=r"\.part: (No space left on device|the disk is full, or is gone)$"
    ):
        train(epochs=1, checkpoint=tmp_path / "run.shards")


class Evil:
    """Leaves a file where it is unpickled"""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Two epochs of one process, each in a folder"""
    path = tmp_path_factory.mktemp("sharded") / "run.shards"
    return path, train(epochs=2, checkpoint=path)


@pytest.mark.parametrize("place", ["metadata", "learning rate", "state", "weights"])
def test_a_sharded_checkpoint_runs_no_code(sharded, tmp_path, place, capsys):
    trace, path = tmp_path / "trace", shutil.copytree(sharded[0], tmp_path / "run.shards")
    folder = path / "epoch-0002"
    state = torch.load(folder / "state.pt", weights_only=True)
    del (
        state["checksums"],
        state["version"],
    )  # they would find the change, but whoever made it can make them too
    torch.save(state, folder / "state.pt")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    values = {index.fqn: where for index, where in metadata.storage_data.items()}
    if place == "metadata":
        metadata.planner_data = Evil(trace)
    elif place == "state":
        torch.save(state | {"about": Evil(trace)}, folder / "state.pt")
    else:
        start = "optimizer.param_groups" if place == "learning rate" else "model.token"
        where = next(where for name, where in values.items() if name.startswith(start))
        payload = io.BytesIO()
        torch.save(Evil(trace), payload)
        where.offset, where.length = (
            (folder / where.relative_path).stat().st_size,
            len(payload.getvalue()),
        )
        with (folder / where.relative_path).open("ab") as file:
            file.write(payload.getvalue())
    if place != "state":
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ValueError, match=r"could not read|truncated or damaged") as error:
        train(epochs=2, checkpoint=path, resume=True)
    assert (
        not trace.exists()
        and "\n" not in str(error.value)
        and "weights_only" not in str(error.value)
    )
    assert not capsys.readouterr().err  # torch logs a traceback


def test_sharded_checkpoints_go_on_those_of_older_versions_too(sharded, tmp_path):
    path = shutil.copytree(sharded[0], tmp_path / "run.shards")
    shutil.rmtree(path / "epoch-0002")
    file = path / "epoch-0001" / "state.pt"
    state = torch.load(file, weights_only=True)
    del state["checksums"]
    torch.save(state | {"version": 2}, file)
    model, history = train(epochs=2, checkpoint=path, resume=True)
    (whole, rows), two = sharded[1], model.state_dict()
    assert figures(history) == figures(rows)
    assert all(torch.equal(value, two[name]) for name, value in whole.state_dict().items())


def test_a_sharded_checkpoint_damaged_anywhere_is_refused_and_the_one_before_offered(
    sharded, tmp_path
):
    path = shutil.copytree(sharded[0], tmp_path / "run.shards")
    for file in sorted((path / "epoch-0002").iterdir()):
        whole = file.read_bytes()
        for at in (0, len(whole) // 3, len(whole) - 1):
            file.write_bytes(damage(whole, at))
            with pytest.raises(
                ValueError, match=r"damaged.*if it is damaged, remove .*2 to continue from .*1$"
            ):
                train(epochs=2, checkpoint=path, resume=True)
        file.write_bytes(whole)


def test_a_checkpoint_runs_no_code(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"history": [], "model": partial(print, "run")}, path)
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_checkpoint(path)


def test_another_file_is_no_checkpoint(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="is not a checkpoint of this package"):
        load_checkpoint(tmp_path / "other.pt")


def test_another_recipe_cannot_go_on(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match="a different recipe: epochs 2 -> 3"):
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
    with pytest.raises(ValueError, match="plain numbers and strings"):
        train(checkpoint=tmp_path / "checkpoint.pt", about=about)


VERSION_1 = {  # loss and validation loss of four epochs, which version 0.1 (commit 0dde123) was stopped in after two
    "adamw": [
        (1.089522, 1.036899),
        (1.004236, 0.985391),
        (0.984811, 0.960150),
        (0.962028, 0.955172),
    ],
    "muon": [
        (1.097304, 1.078420),
        (1.053421, 1.055089),
        (1.057157, 1.044306),
        (1.046665, 1.042189),
    ],
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
