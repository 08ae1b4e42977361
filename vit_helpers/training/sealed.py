"""Files that are complete or absent, and whose damage is noticed: written aside, sealed by a checksum, then renamed."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SEAL = hashlib.sha256().digest_size  # bytes of the comment at the end of a zip file, which `torch.save` leaves empty


class WriteError(OSError):
    """A file could not be written; the message says what is left."""


@contextmanager
def write_aside(path: Path, *leftovers: Path) -> Iterator[Path]:
    """A path beside a file to write to, which replaces the file at the end.

    raises: `WriteError` when that fails, KeyboardInterrupt on Ctrl-C; nothing is left then of the new file and `leftovers`
    """
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException as error:
        for left in (part, *leftovers):
            left.unlink(missing_ok=True)
        if isinstance(error.__context__, KeyboardInterrupt):  # torch raises a RuntimeError of its own meanwhile
            raise KeyboardInterrupt from error
        if not isinstance(error, OSError | RuntimeError):  # as when a disk is full, or gone
            raise
        kept = "whose previous version is unchanged" if path.exists() else "of which there is no previous version"
        raise WriteError(f"could not write {path}, {kept}: {error_cause(error)}") from error


def error_cause(error: BaseException) -> str:
    """What went wrong, in one line; torch's own errors about a full disk and pickled objects do not say it."""
    cause = error if isinstance(error, OSError) else error.__context__
    text = (cause.strerror if isinstance(cause, OSError) else None) or " ".join(str(error).split())
    if "weights_only" in text:  # torch recommends to run the code
        return "it contains pickled objects, which could run code"
    return "the disk is full, or is gone" if "inline_container" in text else text  # from another process it has no context


def save_sealed(path: Path, state: dict[str, Any]) -> None:
    """`torch.save`, with the sha256 of the file at its end, and all on the disk before this returns."""
    with path.open("w+b") as file:
        torch.save(state, file)
        file.seek(-2, os.SEEK_END)
        file.write(SEAL.to_bytes(2, "little"))  # the length of the zip file's comment
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(0, os.SEEK_END)
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())


def load_sealed(path: Path, version: int) -> Any:
    """What `save_sealed` wrote, with tensors on the CPU and without running code; raises many kinds of errors if damaged.

    version: a state whose "version" is lower was written without a seal; only the checksums inside its zip file are compared
    """
    file = io.BytesIO(content := path.read_bytes())
    sealed = hashlib.sha256(memoryview(content)[:-SEAL]).digest() == content[-SEAL:]
    if not sealed and zipfile.is_zipfile(file) and (damaged := zipfile.ZipFile(file).testzip()) is not None:
        raise ValueError(f"{damaged} has a different checksum")
    file.seek(0)
    state = torch.load(file, map_location="cpu", weights_only=True)
    if not sealed and isinstance(state, dict) and state.get("version", 1) >= version:
        raise ValueError("the file has a different checksum")
    return state


def tensor_digest(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    """The sha256 of tensors and texts by name, in the order of their names"""
    digest = hashlib.sha256(json.dumps(sorted(notes.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
