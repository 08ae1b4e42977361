"""Checkpoints: all that a training needs to go on, kept so that no cut at any moment loses it."""

import io
import pickle
import shutil
from dataclasses import asdict
from pathlib import Path

import torch

from vit_helpers.training.distributed import barrier, broadcast, is_main_process, load_sharded, save_sharded

SHARDS = ".shards"  # the ending of a folder that holds a checkpoint in parts, a folder an epoch


def make_room(path, recipe, about, resume=False):
    """See before the first epoch, not after it, that a checkpoint can be written here and read again"""
    if path.suffix == SHARDS:
        if finished(path) and not resume:
            raise ValueError(f"{path} holds a run already: resume=True goes on with it")
        path.mkdir(parents=True, exist_ok=True)
    elif path.is_dir():
        raise ValueError(f"{path} is a folder; a checkpoint is a file, say {path / 'checkpoint.pt'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    torch.save({"recipe": asdict(recipe), "about": about}, plain)
    try:
        torch.load(io.BytesIO(plain.getvalue()), weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"recipe and about must hold plain numbers and texts: {recipe}, {about!r}") from error


def save_checkpoint(path, model, optimizer, schedule, recipe, total, history, about=None):
    """Keep all that is needed to go on.  Written aside, then renamed: a cut leaves the file before as it was.

    The checkpoint before stays beside it, as `<name>.previous`.  total: steps of the whole run
    Of several processes the first writes; with a path that ends in ".shards" each writes its part into a folder there.
    """
    path = Path(path)
    state = {
        "schedule": schedule.state_dict(),
        "random": random_state(),
        "recipe": asdict(recipe),
        "total": total,
        "history": history,
        "about": about or {},
    }
    if path.suffix == SHARDS:
        save_shards(path / f"epoch-{len(history):04d}", model, optimizer, state)
    elif is_main_process():
        save_file(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **state})


def save_shards(folder, model, optimizer, state):
    """A checkpoint in parts; it counts when its last file is there, and only then older ones but one may go"""
    if is_main_process():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.save(state, folder / "state.pt")
    barrier()
    save_sharded(folder, model, optimizer)
    if is_main_process():
        for old in finished(folder.parent)[:-2]:
            shutil.rmtree(old)


def finished(path):
    """The checkpoints in a folder that were written to their end, the oldest first"""
    return sorted(last.parent for last in path.glob("epoch-*/.metadata"))


def save_file(path, state):
    """Written aside, then renamed"""
    try:
        torch.save(state, aside(path))
    except RuntimeError as error:  # torch's word for a disk that is full, or gone
        aside(path).unlink(missing_ok=True)
        raise OSError(f"could not write {aside(path)}, {path} is as it was: {error}") from error
    if path.exists():
        shutil.copyfile(path, aside(previous(path)))  # copied, not moved: at no moment is there no checkpoint
        aside(previous(path)).replace(previous(path))
    aside(path).replace(path)


def load_checkpoint(path):
    """What `save_checkpoint` kept, as a dict; tensors on the CPU, and nothing that could run code.

    raises: FileNotFoundError when there is none; ValueError when it is cut short or damaged, naming the one before
    """
    path = Path(path)
    if path.suffix == SHARDS:
        return load_shards(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}{where_previous(path)}")
    with path.open("rb") as file:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds here: RuntimeError, EOFError, UnpicklingError, ...
            raise ValueError(f"the checkpoint {path} is cut short or damaged{where_previous(path)}") from error
    if not isinstance(state, dict) or "history" not in state:
        raise ValueError(f"{path} is no checkpoint of this training: it holds {type(state).__name__} without a history")
    return state


def load_shards(path):
    """All but weights and optimiser, and under "parts" the folder where `restore` finds them"""
    if not finished(path):
        raise FileNotFoundError(f"no finished checkpoint in {path}")
    folder = finished(path)[-1]
    try:
        return torch.load(folder / "state.pt", weights_only=True) | {"parts": folder}
    except Exception as error:  # as for a file
        raise ValueError(f"{folder / 'state.pt'} is cut short or damaged{where_older(folder)}") from error


def restore(state, model, optimizer, schedule, recipe, total):
    """Put a checkpoint back into model, optimizer, schedule and random generators; its history comes back."""
    kept, wanted = state["recipe"] | {"total steps": state["total"]}, asdict(recipe) | {"total steps": total}
    changed = [f"{name} {kept[name]} -> {value}" for name, value in wanted.items() if kept[name] != value]
    if changed:
        raise ValueError(f"the checkpoint was made with another recipe: {', '.join(changed)}")
    if "parts" in state:
        restore_parts(state["parts"], model, optimizer)
    else:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    torch.set_rng_state(state["random"]["cpu"])
    if state["random"]["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random"]["cuda"][: torch.cuda.device_count()])
    return state["history"]


def restore_parts(folder, model, optimizer):
    """Put back weights and optimiser from all parts of the checkpoint that all processes agree on"""
    if folder != broadcast(folder):
        raise ValueError(f"this process sees another newest checkpoint than the first does: {folder}; is it shared?")
    try:
        load_sharded(folder, model, optimizer)
    except OSError as error:
        raise ValueError(f"{error}{where_older(folder)}") from error


def where_older(folder):
    """What to say of the checkpoint in parts before this one, if there is one"""
    older = [path for path in finished(folder.parent) if path < folder]
    return f"; if it is damaged, remove {folder} to go on from {older[-1]}" if older else ""


def random_state():
    """The state of torch's generators, CPU and CUDA"""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def previous(path):
    """Where the checkpoint before lies"""
    return path.with_name(path.name + ".previous")


def aside(path):
    """Where a file is written before it takes its name"""
    return path.with_name(path.name + ".part")


def where_previous(path):
    """What to say of the checkpoint before, if there is one"""
    return (
        f"; the one before it is {previous(path)}: rename it to {path.name} to go on from there"
        if previous(path).exists()
        else ""
    )
