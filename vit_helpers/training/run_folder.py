"""The folder of a run: chosen, locked, and read again when the run goes on."""

import os
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vit_helpers.training.checkpoints import finished, load_checkpoint
from vit_helpers.training.distributed import all_reduce_sum, broadcast, is_main_process
from vit_helpers.training.presets import RunSettings


def choose_folder(out: Path | None, resume: Path | None, name: str, stack: ExitStack) -> tuple[Path, Path | None]:
    """The folder of a run, and the checkpoint to go on from: one asked for, or that of a run that torchrun restarted.

    out   : the folder, or None for the next free runs/NAME-1, -2, ...;  resume: the folder of a run to go on with, or None
    stack : until it closes, no other run can use the folder
    raises: ValueError when both are given, or the folder has a run already or is in use; OSError when it cannot be made
    """
    if resume and out:
        raise ValueError("--resume goes on in its own folder: leave --out away")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) and not (out or resume):
        raise ValueError("a run that torchrun may restart needs a folder of its own: give --out")
    folder: Any = None
    if is_main_process():
        try:
            folder = claim(out, resume, name, stack)
        except (ValueError, OSError) as error:
            folder = error
    if isinstance(folder := broadcast(folder), Exception):
        raise folder
    found, this = broadcast(find_checkpoint(folder)), launch()
    again = all_reduce_sum(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))) > 0  # each machine counts what it sees
    if resume:
        return folder, found or folder / "checkpoint.pt"
    if found and not (again and load_checkpoint(found)["about"].get("launch") == this):
        raise ValueError(f"{found} is there already: --resume {folder} goes on with it, another --out leaves it alone")
    return folder, found


def claim(out: Path | None, resume: Path | None, name: str, stack: ExitStack) -> Path:
    """Choose the folder of a run, create it, and lock it until `stack` closes; a new one that is empty then is removed."""
    if resume and not find_checkpoint(resume):
        return resume  # there is nothing to resume, and reading the checkpoint will say so
    given = resume or out
    new = given is None or not given.exists()
    folder = given or next_free(Path("runs"), name)
    folder.mkdir(parents=True, exist_ok=True)
    if new:
        stack.callback(remove, folder)
    lock = FileLock(folder / ".lock")  # the operating system releases it however the process ends
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is writing into {folder}: wait for it to end, or choose another --out") from None
    stack.callback(lock.release)
    stack.callback(remove, folder / ".lock")  # first; Windows removes no open file, there the library does it
    return folder


def next_free(parent: Path, name: str) -> Path:
    """Create the first of NAME-1, NAME-2, ... that does not exist, so that no two runs get the same one."""
    for number in count(1):
        with suppress(FileExistsError):
            (parent / f"{name}-{number}").mkdir(parents=True)
            break
    return parent / f"{name}-{number}"


def remove(path: Path) -> None:
    """Remove a file that is not in use, or a folder that is empty; leave any other."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() else path.unlink()


def launch() -> str | None:
    """A name for this start of torchrun, the same when it restarts its processes; None without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return broadcast(f"process {os.getppid()}" if name == "none" else name)


def find_checkpoint(folder: Path) -> Path | None:
    """The checkpoint in a run's folder, one file or a folder of parts; None when none was finished."""
    whole, parts = folder / "checkpoint.pt", folder / "checkpoint.shards"
    return whole if whole.exists() else parts if finished(parts) else None


def kept_settings(checkpoint: Path, given: dict[str, Any]) -> RunSettings:
    """The settings of a run from its checkpoint.

    raises: ValueError when one of the options `given` differs, or when the checkpoint does not contain settings
    """
    options = load_checkpoint(checkpoint)["about"].get("options")
    if options is None:
        raise ValueError(f"{checkpoint} was not made by this command: it does not contain its options")
    if "split" not in options and str(options.get("data")).startswith("folder:"):  # its test images would be trained on
        raise ValueError(f"{checkpoint} is of a version that divided folders otherwise: train anew, in another folder")
    settings = RunSettings.from_dict(options)
    size, _, patch = settings.model.partition("/")
    kept = settings.to_dict() | {"size": size, "patch": int(patch)}
    if changed := [f"{name} {kept.get(name)} -> {value}" for name, value in given.items() if kept.get(name) != value]:
        raise ValueError(f"a resumed run keeps its options, these differ: {', '.join(changed)}")
    return settings


def how_to_resume(folder: Path, cause: str) -> str:
    """What a stopped run leaves behind, and the command that goes on with it."""
    if (found := find_checkpoint(folder)) is None:
        return f"{cause} before the first epoch was finished: nothing to keep"
    done = len(load_checkpoint(found)["history"])
    return f"{cause}: {done} finished epochs are kept in {found}\ngo on with: python -m vit_helpers train --resume {folder}"
