"""Checkpoints: all that a run needs to be resumed, written so that no interruption loses it.

A file holds a dict: `model`, `optimizer`, `schedule`, `random` (the generators' states), `recipe`,
`total` (the steps of the whole run), `history` (a row per epoch) and `about` (what the caller wants
kept). Of several processes the first writes it and all read it. It holds whole tensors, also those
of a sharded model, so that any number of processes can resume from it, sharded or not.
"""

import io
import pickle
import shutil
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vit_helpers._files import (
    error_cause,
    load_sealed,
    make_parent,
    save_sealed,
    shown,
    write_aside,
)
from vit_helpers.distributed import (
    full_optimizer_state_dict,
    full_state_dict,
    is_main_process,
    load_full_optimizer_state_dict,
    load_full_state_dict,
    plain_name,
    plain_state_dict,
)
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import Epoch
from vit_helpers.training.recipe import Recipe

PARTS = ("model", "optimizer", "schedule", "random", "recipe", "total", "history", "about")

State = dict[str, Any]


class Checkpoint(Callback):
    """Keeps everything that is needed to resume, after every epoch.

    path  : the file
    resume: first continue from there, to the same result as a run that was never stopped (on CPU
            and CUDA)
    about : plain values (numbers, strings, tuples, dicts) that describe what is trained
    raises: ValueError for a folder in place of a file, `about` that is not plain, or a checkpoint
            of another recipe or number of batches; FileNotFoundError when there is nothing to
            resume; OSError when nothing can be written there
    """

    def __init__(
        self, path: str | PathLike[str], resume: bool = False, about: State | None = None
    ) -> None:
        self.path, self.resume, self.about = Path(path), resume, about

    def on_fit_start(self, run: Run) -> None:
        prepare(self.path, run.recipe, self.about)
        if self.resume:
            self.put_back(load_checkpoint(self.path), run)

    def on_epoch_end(self, run: Run) -> None:
        # in every process, since each has a part of a sharded model
        state = self.collect(run)
        if is_main_process():
            save_file(self.path, state)

    def put_back(self, state: State, run: Run) -> None:
        """Give a run the state of a file, see `restore`."""
        restore(state, run)

    def collect(self, run: Run) -> State:
        """Return the state of a run for the file."""
        return {
            "model": full_state_dict(run.model),
            "optimizer": full_optimizer_state_dict(run.optimizer),
            "schedule": run.schedule.state_dict(),
            "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()},
            "recipe": asdict(run.recipe),
            "total": run.steps,
            "history": [epoch.to_row() for epoch in run.history],
            "about": self.about or {},
        }


def prepare(path: Path, recipe: Recipe, about: State | None) -> None:
    """Make the folder, and raise before the first epoch if a checkpoint could not be read again."""
    if path.is_dir():
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


def save_file(path: Path, state: State) -> None:
    """Replace a checkpoint, which becomes `<name>.previous`, as a whole or not at all."""
    older = path.with_name(path.name + ".previous")
    copy = older.with_name(older.name + ".part")
    with write_aside(path, copy) as part:
        save_sealed(part, state)
        if path.exists():
            shutil.copyfile(path, copy)  # copied, not moved: there is a checkpoint at every moment
            copy.replace(older)


def load_checkpoint(path: str | PathLike[str]) -> State:
    """Read what `Checkpoint` wrote: a dict with tensors on the CPU and a history of `Epoch`s.

    raises: FileNotFoundError when there is none; ValueError when it is truncated, damaged or
            something else, naming the one before
    """
    file = Path(path)
    hint = hint_older(file)
    if not file.is_file():
        raise FileNotFoundError(f"no checkpoint at {shown(file.absolute())}{hint}")
    try:
        state = load_sealed(file)
    except Exception as error:  # torch raises many kinds: RuntimeError, EOFError, UnpicklingError
        raise ValueError(f"{file} is no checkpoint, or truncated or damaged{hint}") from error
    missing = [name for name in PARTS if not isinstance(state, dict) or name not in state]
    if missing:
        raise ValueError(
            f"{file} is not a checkpoint of this package: it lacks {', '.join(missing)}"
        )
    try:
        history = [Epoch.from_row(row) for row in state["history"]]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{file} has another kind of history: {error!r}{hint}") from error
    return state | {"history": history}


def restore(state: State, run: Run) -> None:
    """Put a checkpoint's state back into a run and into the random generators.

    raises: ValueError when the checkpoint was made with another recipe or number of steps, or with
            another model; the run's model is unchanged then
    """
    kept = state["recipe"] | {"total steps": state["total"]}
    if changed := describe_changes(kept, asdict(run.recipe) | {"total steps": run.steps}):
        raise ValueError(f"the checkpoint was made with a different recipe: {changed}")
    try:
        check_shapes(state["model"], run.model)
        load_full_optimizer_state_dict(run.optimizer, state["optimizer"])
        run.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"]["cpu"])
        torch.cuda.set_rng_state_all(state["random"]["cuda"][: torch.cuda.device_count()])
        load_full_state_dict(run.model, state["model"])  # last, when nothing else can fail
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint does not fit this run: {error_cause(error)}") from error
    run.history[:] = state["history"]


def check_shapes(weights: State, model: nn.Module) -> None:
    """Raise ValueError, naming the first, if weights have other names or shapes than a model's."""
    kept, wanted = (
        {plain_name(name): tuple(getattr(weight, "shape", ())) for name, weight in state.items()}
        for state in (weights, plain_state_dict(model))
    )
    different = [name for name in {**wanted, **kept} if kept.get(name) != wanted.get(name)]
    if different:
        name = different[0]
        raise ValueError(
            f"{len(different)} of its weights have other names or shapes than the model's, as "
            f"{name} {kept.get(name, 'none')} -> {wanted.get(name, 'none')}"
        )


def describe_changes(before: State, now: State) -> str:
    """Say what differs between two dicts; empty if nothing does.

    >>> describe_changes({"lr": 0.1, "epochs": 2}, {"lr": 0.2, "epochs": 2, "clip": 1.0})
    'lr 0.1 -> 0.2, clip none -> 1.0'
    """
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    return ", ".join(
        f"{name} {before.get(name, 'none')} -> {now.get(name, 'none')}" for name in names
    )


def hint_older(path: Path) -> str:
    """Say, at the end of an error message, how to continue from the checkpoint before, if any."""
    previous = path.with_name(path.name + ".previous")
    if not previous.exists():
        return ""
    return f"; the one before it is {previous}: rename it to {path.name} to continue from there"
