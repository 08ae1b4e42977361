"""Checkpoints in parts: each process writes its own, and any number of processes read them, without running any code.

torch's own reader unpickles what it finds, and that can run code of whoever wrote it.
"""

import logging
import pickle
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pooch
import torch
from torch.distributed.checkpoint import (
    DefaultLoadPlanner,
    FileSystemReader,
    state_dict_loader,
    state_dict_saver,
)
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from vit_helpers._files import WriteError, error_cause, save_sealed
from vit_helpers.distributed import barrier, broadcast, is_main_process, world_size
from vit_helpers.training.callbacks import Run

ALLOWED = {  # what torch pickles into the list of tensors: none of it runs code
    "torch.distributed.checkpoint.metadata": {
        *(
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "ChunkStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        ),
        *("TensorStorageMetadata", "TensorProperties", "BytesStorageMetadata"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {
        "Size",
        *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype)),
    },
    "pathlib": {"PosixPath", "WindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath"},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} does not belong in a checkpoint")
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _Unpickler(file).load()
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: Any, value: Any) -> None:
        plain = torch.load(
            value, weights_only=True
        )  # numbers and texts, which torch's planner would unpickle
        value.seek(0)
        value.truncate()
        torch.save(plain, value)
        value.seek(0)
        super().load_bytes(read_item, value)


def save_shards(folder: Path, run: Run, state: dict[str, Any]) -> None:
    """Write a checkpoint in parts, each process its own. The folder gets its name when it is complete."""
    part = folder.with_name(folder.name + ".part")
    if is_main_process():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    barrier()
    try:
        with plain_errors(WriteError, f"write {part}"):
            state_dict_saver.save(this_part(run), checkpoint_id=part, no_dist=world_size() == 1)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)  # it would fill the disk
        raise
    if is_main_process():
        save_sealed(part / "state.pt", {**state, "checksums": checksums(part.iterdir())})
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)


def load_shards(folder: Path, run: Run, expected: dict[str, str], hint: str) -> None:
    """Put back what `save_shards` wrote of weights and optimizer, in any number of processes.

    expected: the checksums of the files;  hint: the end of an error message about damage
    """
    if folder != broadcast(folder):
        raise ValueError(
            f"the latest checkpoint here is {folder}, but not in the first process: do both see one folder?"
        )
    there = (folder / name for name in expected if (folder / name).exists())
    found = broadcast(checksums(there) if is_main_process() else {})
    if damaged := [name for name, digest in expected.items() if found.get(name) != digest]:
        raise ValueError(f"the checkpoint {folder} is damaged in {', '.join(damaged)}{hint}")
    state = this_part(run)
    with plain_errors(ValueError, f"read {folder}", hint):
        state_dict_loader.load(
            state, storage_reader=_Reader(folder), planner=_Planner(), no_dist=world_size() == 1
        )
    set_state_dict(
        run.model,
        run.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )


def this_part(run: Run) -> dict[str, Any]:
    """This process's part of weights and optimizer."""
    return dict(zip(("model", "optimizer"), get_state_dict(run.model, run.optimizer), strict=True))


def checksums(paths: Iterable[Path]) -> dict[str, str]:
    """The sha256 of files by their names"""
    return {path.name: pooch.file_hash(path) for path in sorted(paths)}


@contextmanager
def plain_errors(kind: type[Exception], doing: str, hint: str = "") -> Iterator[None]:
    """Raise the cause where torch wraps what went wrong in any process into an error of its own, not even an Exception."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch would log a traceback beside the error that it raises
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "torch.distributed is", UserWarning
            )  # that one process works alone: it may
            yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
            raise KeyboardInterrupt from error
        raise kind(f"could not {doing}: {error_cause(causes[0])}{hint}") from error
    finally:
        logging.disable(level)
