"""Checkpoints: everything that a run needs to be resumed, written so that an interruption at any moment does not lose it.

A file holds a dict: `version`, `model`, `optimizer`, `schedule`, `random` (the generators' states), `recipe`, `total` (the
steps of the whole run), `history` (a dict per epoch) and `about` (what the caller wants kept). A path that ends in
".shards" is a folder with a subfolder per epoch, into which each of several processes writes its own part (`sharded`).
"""

import io
import pickle
import shutil
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from vit_helpers._files import error_cause, load_sealed, make_parent, save_sealed, write_aside
from vit_helpers.distributed import is_main_process
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import Epoch
from vit_helpers.training.recipe import Recipe

SHARDS = ".shards"
VERSION = 3  # since 3 with a checksum; since 2 with a "version"
RENAMED = {"token_rate": "token_lr_mult"}  # fields of `Recipe`, since version 1

State = dict[str, Any]


class Checkpoint(Callback):
    """Keeps everything that is needed to resume, after every epoch.

    path  : a file, or a folder that ends in ".shards"
    resume: first continue from there, to the same result as a run that was never stopped (on CPU and CUDA)
    about : plain values (numbers, strings, tuples, dicts) that describe what is trained
    raises: ValueError for a path of the wrong kind, `about` that is not plain, or a checkpoint of another recipe or number
            of batches; FileNotFoundError when there is nothing to resume; OSError when nothing can be written there
    """

    def __init__(
        self, path: str | PathLike[str], resume: bool = False, about: State | None = None
    ) -> None:
        self.path, self.resume, self.about = Path(path), resume, about

    def on_fit_start(self, run: Run) -> None:
        prepare(self.path, run.recipe, self.about, self.resume)
        if self.resume:
            restore(load_checkpoint(self.path), run)

    def on_epoch_end(self, run: Run) -> None:
        state = {
            "version": VERSION,
            "schedule": run.schedule.state_dict(),
            "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()},
            "recipe": asdict(run.recipe),
            "total": run.steps,
            "history": [asdict(row) for row in run.history],
            "about": self.about or {},
        }
        if self.path.suffix == SHARDS:
            from vit_helpers.training.sharded import save_shards

            save_shards(self.path / f"epoch-{len(run.history):04d}", run, state)
            for old in finished(self.path)[:-2] if is_main_process() else ():
                shutil.rmtree(old)
        elif is_main_process():
            save_file(
                self.path,
                {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), **state},
            )


def prepare(path: Path, recipe: Recipe, about: State | None, resume: bool = False) -> None:
    """Make the folder, and raise before the first epoch, not after it, if a checkpoint could not be read again."""
    if path.suffix == SHARDS:
        if finished(path) and not resume:
            raise ValueError(f"{path} already contains a run: resume=True continues it")
        path.mkdir(parents=True, exist_ok=True)
    elif path.is_dir():
        raise ValueError(
            f"{path} is a folder; a checkpoint is a file, for example {path / 'checkpoint.pt'}"
        )
    plain = io.BytesIO()
    torch.save({"recipe": asdict(recipe), "about": about}, plain)
    plain.seek(0)
    try:
        torch.load(plain, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"recipe and about must contain only plain numbers and strings: {recipe}, {about!r}"
        ) from error
    if is_main_process():
        make_parent(path)


def finished(path: Path) -> list[Path]:
    """The complete checkpoints in a folder of parts, the oldest first."""
    return sorted(last.parent for last in path.glob("epoch-*[0-9]/.metadata"))


def save_file(path: Path, state: State) -> None:
    """Replace a checkpoint, which becomes `<name>.previous`; an interruption at any moment leaves it as it was."""
    older = path.with_name(path.name + ".previous")
    copy = older.with_name(older.name + ".part")
    with write_aside(path, copy) as part:
        save_sealed(part, state)
        if path.exists():
            shutil.copyfile(path, copy)  # copied, not moved: there is a checkpoint at every moment
            copy.replace(older)


def load_checkpoint(path: str | PathLike[str]) -> State:
    """What `Checkpoint` (or version 0.1) wrote, as a dict with tensors on the CPU; its history is a list of `Epoch`.

    Of a folder of parts it reads all but weights and optimizer, which `restore` finds in the folder "parts".
    raises: FileNotFoundError when there is none; ValueError when it is truncated or damaged, naming the one before
    """
    file, folders = Path(path), finished(Path(path))
    parts = {"parts": folders[-1]} if folders else {}
    hint = hint_older(parts.get("parts", file))
    file = folders[-1] / "state.pt" if folders else file
    if not file.is_file():
        raise FileNotFoundError(f"no checkpoint at {file}{hint}")
    try:
        state = load_sealed(file, VERSION)
    except (
        Exception
    ) as error:  # torch raises many kinds here: RuntimeError, EOFError, UnpicklingError, ...
        raise ValueError(f"the checkpoint {file} is truncated or damaged{hint}") from error
    if not isinstance(state, dict) or "history" not in state:
        raise ValueError(
            f"{file} is not a checkpoint of this package: {type(state).__name__} without a history"
        )
    recipe = {RENAMED.get(name, name): value for name, value in state.get("recipe", {}).items()}
    history = [Epoch.from_dict(row) for row in state["history"]]
    known = {
        "recipe": asdict(Recipe()) | recipe,
        "history": history,
        "about": state.get("about", {}),
    }
    return state | parts | known


def restore(state: State, run: Run) -> None:
    """Put a checkpoint's state back into the model, optimizer, schedule and history of a run, and the random generators.

    raises: ValueError when the checkpoint was made with another recipe or number of steps, or lacks what is needed
    """
    needed = (
        ("schedule", "random") if "parts" in state else ("model", "optimizer", "schedule", "random")
    )
    if missing := [name for name in needed if name not in state]:
        raise ValueError(
            f"no run can continue from this checkpoint, because it lacks: {', '.join(missing)}"
        )
    kept = state["recipe"] | {"total steps": state.get("total", run.steps)}
    if changed := describe_changes(kept, asdict(run.recipe) | {"total steps": run.steps}):
        raise ValueError(f"the checkpoint was made with a different recipe: {changed}")
    if "parts" in state:
        from vit_helpers.training.sharded import load_shards

        load_shards(state["parts"], run, state.get("checksums", {}), hint_older(state["parts"]))
    try:
        if "parts" not in state:
            run.model.load_state_dict(state["model"])
            run.optimizer.load_state_dict(state["optimizer"])
        run.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"]["cpu"])
        torch.cuda.set_rng_state_all(state["random"].get("cuda", [])[: torch.cuda.device_count()])
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint does not fit this run: {error_cause(error)}") from error
    run.history[:] = state["history"]


def describe_changes(kept: State, wanted: State) -> str:
    """What differs between two dicts; empty if nothing does

    >>> describe_changes({"lr": 0.1, "epochs": 2}, {"lr": 0.2, "epochs": 2, "clip": 1.0})
    'lr 0.1 -> 0.2, clip none -> 1.0'
    """
    changed = [
        name for name in dict.fromkeys([*kept, *wanted]) if kept.get(name) != wanted.get(name)
    ]
    return ", ".join(
        f"{name} {kept.get(name, 'none')} -> {wanted.get(name, 'none')}" for name in changed
    )


def hint_older(path: Path) -> str:
    """The end of an error message: how to continue from the checkpoint before this file or folder of parts, if any."""
    if older := [folder for folder in finished(path.parent) if folder < path]:
        return f"; if it is damaged, remove {path} to continue from {older[-1]}"
    before = path.with_name(path.name + ".previous")
    return (
        f"; the one before it is {before}: rename it to {path.name} to continue from there"
        if before.exists()
        else ""
    )
