"""The folder of a run: chosen, locked, and read again when the run is resumed with the same data and weights."""

import hashlib
import json
import os
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
    is_main_process,
    is_peer_failure,
    world_size,
)
from vit_helpers.training.checkpoints import describe_changes, load_checkpoint
from vit_helpers.training.presets import RENAMED, RunSettings
from vit_helpers.vit import ViTConfig

CHECKPOINT = "checkpoint.pt"
RESULTS = (
    "*.safetensors",
    "curves.png",
    "confusion.png",
    "history.csv",
)  # what `train` writes beside them
WEIGHTS = "trained weights"
CLOSE = (
    1e-5  # of mean and standard deviation, which another number of threads may round differently
)


def choose_folder(
    out: Path | None, resume: Path | None, name: str, stack: ExitStack
) -> tuple[Path, Path | None]:
    """The folder of a run, and the checkpoint to resume: the one asked for, or that of a run that torchrun restarted.

    out   : the folder, or None for the next free runs/NAME-1, -2, ...;  resume: the folder of a run to continue, or None
    stack : until it closes, no other run can use the folder
    raises: ValueError when both are given, or the folder has a run or is in use; OSError when nothing can be written there
    """
    if resume and out:
        raise ValueError("--resume continues in the folder of the run: leave out --out")
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
    again = (
        all_reduce_sum(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))) > 0
    )  # each machine counts what it sees
    if resume:
        return folder, found or folder / CHECKPOINT
    if found and not (again and load_checkpoint(found)["about"].get("launch") == this):
        raise ValueError(
            f"{found} already exists: continue it with --resume {folder}, or choose another --out"
        )
    return folder, found


def claim(
    out: Path | None, resume: Path | None, name: str, stack: ExitStack, tries: int = 20
) -> Path:
    """Choose the folder of a run, create it, and lock it until `stack` closes; a new one that is empty then is removed."""
    if resume and resume.name == CHECKPOINT and resume.exists():
        resume = resume.parent
    if resume and not find_checkpoint(resume):
        return resume  # there is nothing to resume, and reading the checkpoint will say so
    given = resume or out
    new = given is None or not given.exists()
    try:
        folder = given or next_free(Path("runs"), name)
        folder.mkdir(parents=True, exist_ok=True)
        if new:
            stack.callback(remove, folder)
        hold(
            folder / ".lock",
            f"another run is writing into {folder}: wait for it to end, or choose another --out",
            stack,
        )
        make_parent(folder / CHECKPOINT)
    except OSError as error:
        if (
            isinstance(error, FileNotFoundError) and tries
        ):  # a run that ended has just removed the folder
            return claim(out, resume, name, stack, tries - 1)
        hint = "" if given else ": choose a folder with --out"
        raise OSError(
            f"no run can be stored in {given or Path.cwd()} ({error.strerror or error}){hint}"
        ) from error
    kept = (
        []
        if resume or find_checkpoint(folder)
        else [path for kind in RESULTS for path in folder.glob(kind)]
    )
    if kept:
        raise ValueError(
            f"{kept[0]} already exists, but no checkpoint: nothing is overwritten, so choose another --out"
        )
    return folder


def next_free(parent: Path, name: str) -> Path:
    """Create the first of NAME-1, NAME-2, ... that does not exist, so that no two runs get the same one."""
    for number in count(1):
        with suppress(FileExistsError):
            (parent / f"{name}-{number}").mkdir(parents=True)
            break
    return parent / f"{name}-{number}"


def launch() -> str | None:
    """A name for this start of torchrun, which stays the same when it restarts its processes; None without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return broadcast(f"process {os.getppid()}" if name == "none" else name)


def find_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a run's folder; None when none was finished."""
    path = folder / CHECKPOINT
    return path if path.exists() else None


def kept_settings(checkpoint: Path, about: Mapping[str, Any], given: dict[str, Any]) -> RunSettings:
    """The settings of a run from its checkpoint; ValueError if it contains none, or if `given` ones differ."""
    options = about.get("options")
    if not isinstance(options, dict) or not options.keys() & {"model", "size"}:  # of version 0.1
        raise ValueError(
            f"{checkpoint} was not written by the command train: it does not contain the options of a run"
        )
    if "split" not in options and str(options.get("data")).startswith(
        "folder:"
    ):  # its test images would be trained on
        raise ValueError(
            f"{checkpoint} is from a version that divided folders differently: train again, in another folder"
        )
    settings = RunSettings.from_dict(options)
    size, _, patch = settings.model.partition("/")
    usual = (
        {}
        if settings.weights
        else asdict(ViTConfig.from_name(settings.model, image_size=int(patch)))
    )
    by_data = dict.fromkeys(("image_size", "in_chans", "num_classes"))
    kept = usual | by_data | settings.to_dict() | {"size": size, "patch": int(patch)}
    given = {RENAMED.get(name, name): value for name, value in given.items()}
    names = [str(data).partition(":")[0] for data in (given.get("data"), settings.data)]
    sources = [SOURCES.get(name) for name in names]
    can_move = all(source is not None and source.takes_path for source in sources)
    moved = (
        {"data": given.pop("data")} if can_move else {}
    )  # a folder may be moved between two parts of a run
    if changed := describe_changes({name: kept.get(name) for name in given}, given):
        hint = f"to train on with others, start a new run with --weights {checkpoint.parent}"
        raise ValueError(f"a resumed run keeps its options, but these differ: {changed}; {hint}")
    if (source := settings.weights) and ":" not in source and not Path(source).exists():
        raise ValueError(
            f"the run was started with the weights {source}, without which it cannot continue: restore them"
        )
    return settings.replace(
        **moved
    )  # whether the images are the same is seen when they have been read


def describe_run(
    data: Any, model: nn.Module, settings: RunSettings, resumed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a checkpoint says about its run.  resumed: the same of a run to resume; ValueError for other data or weights"""
    fingerprint = data_fingerprint(
        data, dropout=any(settings.shape.get(name) for name in ("dropout", "attn_dropout"))
    )
    if settings.weights is not None:
        blocks = {
            k: w
            for k, w in model.state_dict().items()
            if k.startswith("blocks.") and not k.endswith((".A", ".B"))
        }
        fingerprint[WEIGHTS] = tensor_digest(blocks, {})[
            :16
        ]  # of what they have bit for bit from their source
    if resumed is not None:
        check_same_data(resumed, fingerprint, data)
    about = {"options": settings.to_dict(), "launch": launch(), "data": fingerprint}
    return about | {"mean": data.mean, "std": data.std, "class_names": data.class_names}


def data_fingerprint(data: Any, dropout: bool = False) -> dict[str, Any]:
    """What determines the batches of a run: classes, counts, and a sha256 of each split's pixels and labels (or shards).

    dropout: whether the model uses it. Its random numbers depend on the number of processes, as the order of a stream does
    """
    found: dict[str, Any] = {"classes": ", ".join(data.class_names)}
    found |= {f"{split} images": data.count(split) for split in SPLITS}
    for split in SPLITS:
        digest = hashlib.sha256()
        if isinstance(data, Data):
            for tensor in (data.get_split(split).pixels, data.get_split(split).labels):
                for rows in tensor.split(1024):
                    digest.update(rows.contiguous().numpy())
        else:
            digest.update(json.dumps(data.splits[split], sort_keys=True).encode())
        found[f"pixels or labels of {split}"] = digest.hexdigest()[:16]
    return found | ({} if isinstance(data, Data) and not dropout else {"processes": world_size()})


def check_same_data(about: Mapping[str, Any], fingerprint: Mapping[str, Any], data: Any) -> None:
    """Raise ValueError that says what changed, if the data or weights of a checkpoint, by its `about`, are not these."""
    kept = dict(about.get("data", {}))
    if not kept and "class_names" in about:  # written by version 0.1
        kept = {"classes": ", ".join(about["class_names"])}
    now = {name: fingerprint.get(name, "none") for name in kept}  # older checkpoints have fewer
    for name in ("mean", "std"):
        if any(
            abs(x - y) > CLOSE
            for x, y in zip(about.get(name, ()), getattr(data, name), strict=False)
        ):
            kept[name], now[name] = about[name], getattr(data, name)
    if kept and (changed := describe_changes(kept, now)):
        what = "weights to fine-tune" if WEIGHTS in changed else "data"
        raise ValueError(
            f"the {what} have changed since the checkpoint was made: {changed}. A resumed run might be tested on "
            f"images that it was trained on: restore the {what}, or start a new run"
        )


def stop_cause(error: BaseException) -> str | None:
    """The beginning of the message about a run that was stopped but keeps what it has learned; None for other errors"""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, BrokenPipeError):
        return "stopped, because nobody reads the output anymore"
    if isinstance(error, OSError):
        return "stopped, because a file could not be written"
    return "stopped, because another process failed" if is_peer_failure(error) else None


def how_to_resume(folder: Path, cause: str) -> str:
    """What a stopped run leaves behind, and the command that continues it."""
    if (found := find_checkpoint(folder)) is None:
        (folder / "weights.safetensors").unlink(
            missing_ok=True
        )  # of an epoch whose checkpoint could not be written
        return f"{cause} before the first epoch was finished, so there is nothing to keep"
    kept = f"everything up to epoch {len(load_checkpoint(found)['history'])} is kept in {found}"
    return f"{cause}; {kept}\ncontinue with: python -m vit_helpers train --resume {folder}"
