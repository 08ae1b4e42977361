"""The folder of a run: picked, locked, and read again when the run is resumed."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from torch import nn

from vit_helpers._files import hold, make_parent, remove, tensor_digest
from vit_helpers.data import Data
from vit_helpers.data.registry import SOURCES
from vit_helpers.data.splits import SPLITS
from vit_helpers.distributed import (
    all_reduce_sum,
    broadcast,
    is_peer_failure,
    world_size,
)
from vit_helpers.training.checkpoints import describe_changes, load_checkpoint
from vit_helpers.training.presets import RunSettings, override

CHECKPOINT = "checkpoint.pt"
LAST_WEIGHTS = "last.safetensors"
RESULTS = (  # written beside them
    *("*.safetensors", "curves.png", "confusion.png", "mistakes.png"),
    *("classes.csv", "history.csv"),
)
WEIGHTS = "trained weights"
PIXELS = "pixels or labels of "  # and the name of a split: a digest in a fingerprint
# Of mean and standard deviation, which another number of threads may round differently
TOLERANCE = 1e-5


def choose_folder(
    out: Path | None, resume: Path | None, name: str, stack: ExitStack
) -> tuple[Path, Path | None]:
    """Choose the folder of a run, and the checkpoint that is in it, if any; in the main process.

    out   : the folder, or None for the next free runs/NAME-1, -2, ...
    resume: the folder of a run to continue, or its checkpoint; or None
    name  : of the run, see `run_name`
    stack : until it closes, no other run can use the folder
    raises: ValueError when both are given, for another file to resume, or when the folder is in use
            or has results without a checkpoint; OSError when nothing can be written there
    """
    if resume and out:
        raise ValueError("--resume continues in the folder of the run: leave out --out")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) and not (out or resume):
        raise ValueError("a run that torchrun may restart needs a folder of its own: give --out")
    if resume and resume.is_file():
        if resume.name != CHECKPOINT:
            raise ValueError(
                f"--resume takes the folder of a run, or its {CHECKPOINT}, but {resume} is "
                f"another file: give {resume.parent}"
            )
        resume = resume.parent
    if resume and not find_checkpoint(resume):  # nothing to resume, as reading it will say
        return resume, resume / CHECKPOINT
    folder = claim(resume or out, name, stack)
    checkpoint = find_checkpoint(folder)
    if checkpoint is None:
        refuse_old_results(folder)
    return folder, checkpoint


def run_name(data: str) -> str:
    """Return what a run is called by default: the name of its data set, or of the data's folder.

    >>> run_name("digits"), run_name("folder:my/photos/")
    ('digits', 'photos')
    """
    kind, _, path = data.partition(":")
    return Path(path).resolve().name if path else Path(kind).name


def claim(wanted: Path | None, name: str, stack: ExitStack, tries: int = 20) -> Path:
    """Pick a folder and lock it until `stack` closes.

    wanted: the folder, or None for the next free runs/NAME-1, -2, ...
    raises: ValueError when another run is using it, OSError when nothing can be written there
    """
    while True:
        try:
            folder = pick(wanted, name, stack)
            lock(folder, stack)
            return folder
        except OSError as error:
            tries -= 1
            if isinstance(error, (FileNotFoundError, FileExistsError)) and tries > 0:
                continue  # a run that ended has just removed the folder
            hint = "" if wanted else ": choose a folder with --out"
            reason = error.strerror or error
            raise OSError(
                f"no run can be stored in {wanted or Path.cwd()} ({reason}){hint}"
            ) from error


def pick(wanted: Path | None, name: str, stack: ExitStack) -> Path:
    """Create the folder that is wanted, or the next free one; removed again if it stays empty."""
    is_new = wanted is None or not wanted.exists()
    folder = wanted or next_free(Path("runs"), name)
    folder.mkdir(parents=True, exist_ok=True)
    if is_new:
        stack.callback(remove, folder)
    return folder


def lock(folder: Path, stack: ExitStack) -> None:
    """Keep other runs out of a folder until `stack` closes; raise OSError if it is not writable."""
    taken = f"another run is writing into {folder}: wait for it to end, or choose another --out"
    hold(folder / ".lock", taken, stack)
    make_parent(folder / CHECKPOINT)


def refuse_old_results(folder: Path) -> None:
    """Raise ValueError if a folder without a checkpoint has files that a run would replace."""
    for pattern in RESULTS:
        for path in folder.glob(pattern):
            raise ValueError(
                f"{path} already exists, but no checkpoint: nothing is overwritten, "
                "so choose another --out"
            )


def next_free(parent: Path, name: str) -> Path:
    """Create the first of NAME-1, NAME-2, ... that does not exist: no two runs get the same."""
    for number in count(1):
        with suppress(FileExistsError):
            (parent / f"{name}-{number}").mkdir(parents=True)
            break
    return parent / f"{name}-{number}"


def check_restarted(checkpoint: Path) -> None:
    """Raise ValueError unless torchrun has restarted the very run that wrote a checkpoint."""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    restarted = all_reduce_sum(restarts) > 0  # each machine counts what it sees
    if restarted and load_checkpoint(checkpoint)["about"].get("launch") == launch():
        return
    raise ValueError(
        f"{checkpoint} already exists: continue it with "
        f"--resume {shlex.quote(str(checkpoint.parent))}, or choose another --out"
    )


def launch() -> str | None:
    """Name this start of torchrun; the same after it restarts processes; None without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return broadcast(f"process {os.getppid()}" if name == "none" else name)


def find_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a run's folder; None when none was finished."""
    path = folder / CHECKPOINT
    return path if path.exists() else None


def kept_settings(checkpoint: Path, about: Mapping[str, Any], given: dict[str, Any]) -> RunSettings:
    """Return the settings of a run from its checkpoint.

    given : settings of the command that resumes it; of a folder of images, which may have been
            moved, the new place is returned
    raises: ValueError if the checkpoint has no settings, or if the given ones differ
    """
    options = about.get("options")
    if not isinstance(options, dict) or "model" not in options:
        raise ValueError(
            f"{checkpoint} was not written by the command train: "
            "it does not contain the options of a run"
        )
    settings = RunSettings.from_dict(options)
    kept = settings.to_dict()
    if settings.weights is None and settings.network == "vit":
        by_data = dict.fromkeys(("image_size", "in_chans", "num_classes"))
        kept = {**asdict(settings.config), **by_data, **kept}
    moved = {}
    if is_place(settings.data) and is_place(given.get("data")):
        moved = {"data": given["data"]}  # whether the images are the same is seen later
        given = {name: value for name, value in given.items() if name != "data"}
    wanted = override(kept, given)
    names = [name for name in wanted if name in given or name == "model"]
    if changed := describe_changes(select(kept, names), select(wanted, names)):
        raise ValueError(
            f"a resumed run keeps its options, but these differ: {changed}; "
            "to train on with others, start a new run with "
            f"--weights {shlex.quote(str(checkpoint.parent))}, "
            "which has its weights, but a new optimizer and learning-rate schedule"
        )
    if (source := settings.weights) and ":" not in source and not Path(source).exists():
        raise ValueError(
            f"the run was started with the weights {source}, "
            "without which it cannot continue: restore them"
        )
    return settings.replace(**moved) if moved else settings


def is_place(data: str | None) -> bool:
    """Return whether the name of a data set has the path of a folder in it."""
    source = SOURCES.get(str(data).partition(":")[0])
    return source is not None and source.takes_path


def select(values: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the values with these names; None for those that are not there."""
    return {name: values.get(name) for name in names}


def describe_run(
    data: Any, start: nn.Module | None, settings: RunSettings, resumed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what a checkpoint says about its run.

    start  : the trained model that the run starts from, as it was loaded
    resumed: the same of a run to resume
    raises : ValueError if that had other data or weights
    """
    dropout = any(settings.shape.get(name) for name in ("dropout", "attn_dropout"))
    fingerprint = data_fingerprint(data, dropout)
    if start is not None:
        fingerprint[WEIGHTS] = tensor_digest(start.state_dict(), {})[:16]
    if resumed is not None:
        check_same_data(resumed, fingerprint, data)
    return {
        "options": settings.to_dict(),
        "launch": launch(),
        "data": fingerprint,
        "mean": data.mean,
        "std": data.std,
        "class_names": data.class_names,
    }


def data_fingerprint(data: Any, dropout: bool = False) -> dict[str, Any]:
    """Return what determines the batches of a run.

    That is classes, counts, and a sha256 of each split's pixels and labels (or shards).
    dropout: whether the model uses it. Its random numbers depend on the number of processes, as the
             order of a stream does
    """
    fingerprint: dict[str, Any] = {"classes": ", ".join(data.class_names)}
    for split in SPLITS:
        fingerprint[f"{split} images"] = data.count(split)
    for split in SPLITS:
        digest = hashlib.sha256()
        if isinstance(data, Data):
            for tensor in (data.get_split(split).pixels, data.get_split(split).labels):
                for rows in tensor.split(1024):
                    digest.update(rows.contiguous().numpy())
        else:
            digest.update(json.dumps(data.splits[split], sort_keys=True).encode())
        fingerprint[f"{PIXELS}{split}"] = digest.hexdigest()[:16]
    if dropout or not isinstance(data, Data):
        fingerprint["processes"] = world_size()
    return fingerprint


def check_same_data(about: Mapping[str, Any], fingerprint: Mapping[str, Any], data: Any) -> None:
    """Raise ValueError that says what changed, if data or weights are not those of a checkpoint.

    about: what the checkpoint says, see `describe_run`
    """
    what = "data"
    if about["data"].get(WEIGHTS) != fingerprint.get(WEIGHTS):
        what, changed = "weights to fine-tune", f"those of {about['options']['weights']}"
    elif not (changed := describe_data_changes(about, fingerprint, data)):
        return
    raise ValueError(
        f"the {what} have changed since the checkpoint was made: {changed}. A resumed run "
        f"might be tested on images that it was trained on: restore the {what}, "
        "or start a new run"
    )


def describe_data_changes(
    about: Mapping[str, Any], fingerprint: Mapping[str, Any], data: Any
) -> str:
    """Say what of the data has changed, in the words that help most; empty if nothing has.

    Names and counts, which explain the rest; else splits with other pixels; else mean and std.
    """
    kept, names = about["data"], dict.fromkeys([*about["data"], *fingerprint])
    plain = [name for name in names if not name.startswith(PIXELS)]
    if changed := describe_changes(select(kept, plain), select(fingerprint, plain)):
        return changed
    if splits := [name for name in names if kept.get(name) != fingerprint.get(name)]:
        return PIXELS + ", ".join(name.removeprefix(PIXELS) for name in splits)
    before, now = ({}, {})
    for name in ("mean", "std"):
        old, new = about[name], getattr(data, name)
        if any(abs(x - y) > TOLERANCE for x, y in zip(old, new, strict=False)):
            before[name], now[name] = (
                "/".join(f"{value:.5f}" for value in values) for values in (old, new)
            )
    return describe_changes(before, now)


def stop_cause(error: BaseException) -> str | None:
    """Begin the message about a run that was stopped but keeps what it has learned.

    returns: None for other errors
    """
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, BrokenPipeError):
        return "stopped, because nobody reads the output anymore"
    if isinstance(error, OSError):
        return "stopped, because a file could not be written"
    return "stopped, because another process failed" if is_peer_failure(error) else None


def how_to_resume(folder: Path, cause: str) -> str:
    """Say what a stopped run leaves behind, and which command continues it."""
    checkpoint = find_checkpoint(folder)
    if checkpoint is None:
        # of an epoch whose checkpoint could not be written
        (folder / "weights.safetensors").unlink(missing_ok=True)
        return f"{cause}; no epoch was finished, so there is nothing to keep"
    epochs = len(load_checkpoint(checkpoint)["history"])
    return (
        f"{cause}; everything up to epoch {epochs} is kept in {checkpoint}\n"
        f"continue with: python -m vit_helpers train --resume {shlex.quote(str(folder))}"
    )
