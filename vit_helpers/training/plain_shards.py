"""Sharded checkpoints, read without running code of whoever wrote them. torch's own reader unpickles what it finds."""

import logging
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict_loader import load

ALLOWED = {  # what torch pickles into the list of tensors: none of it runs code
    "torch.distributed.checkpoint.metadata": {
        *("Metadata", "MetadataIndex", "StorageMeta", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"),
        *("TensorStorageMetadata", "TensorProperties", "BytesStorageMetadata"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))},
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
        plain = torch.load(value, weights_only=True)  # numbers and texts, which torch's planner would unpickle
        value.seek(0)
        value.truncate()
        torch.save(plain, value)
        value.seek(0)
        super().load_bytes(read_item, value)


def load_plain(state: dict[str, Any], folder: Path, no_dist: bool) -> None:
    """Fill a state dict from a sharded checkpoint; no_dist: in this process alone.  raises: torch's CheckpointException"""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch would log a traceback beside the error that it raises
    try:
        load(state, storage_reader=_Reader(folder), planner=_Planner(), no_dist=no_dist)
    finally:
        logging.disable(level)
