"""Files: written whole or not at all, sealed by a checksum, locked; and their names in messages."""

import errno
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

# bytes of the comment at the end of a zip file, which `torch.save` leaves empty
SEAL = hashlib.sha256().digest_size

# with what a cell begins that spreadsheets compute, and a text that looks like one of `to_cell`
FORMULA = tuple("=+-@\t\r\n＝＋－＠'")


# the numbers of errors about a disk, a share of it or a file that cannot grow
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WriteError(OSError):
    """A file could not be written; the message says what is left."""


def as_text(name: str | Path) -> str:
    r"""Return a name or path as text, the same in every locale.

    Bytes that are not UTF-8 become \xff, which any file can hold.
    """
    try:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a text that names no file here
        return str(name)


def shown(text: str | Path) -> str:
    r"""Return a path or a name for a message: on one line, whatever characters it has.

    >>> print(shown("a cat.jpg"), shown("two\nlines.jpg"))
    a cat.jpg 'two\nlines.jpg'
    """
    return str(text) if str(text).isprintable() else repr(str(text))


def to_cell(text: str) -> str:
    """Return a text for a cell of a CSV file, which no spreadsheet then takes for a formula.

    >>> to_cell("=1+1"), to_cell("a=b"), from_cell(to_cell("=1+1"))
    ("'=1+1", 'a=b', '=1+1')
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def from_cell(cell: str) -> str:
    """Return the text of which `to_cell` made a cell."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def expand_user(path: str | Path) -> Path:
    """Replace ~ in a path by the home folder; ValueError if that of the named user is not known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{shown(path)}: {error}") from None


def make_parent(path: Path) -> None:
    """Create the folder that a result will be in.

    raises: OSError, naming the result, if nothing can be written there
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(4096))  # which a full disk refuses
    except OSError as error:
        reason = error.strerror
        if isinstance(error, FileExistsError):
            reason = f"{shown(path.parent)} is not a folder"
        raise OSError(f"{shown(path)} cannot be written: {reason}") from error


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a path beside a folder to write to, which becomes the folder at the end.

    raises: FileExistsError if the folder is not empty, `WriteError` when the disk is full
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} already exists and is not empty: nothing is overwritten, choose another"
        )
    make_parent(folder)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        new = Path(temporary) / folder.name  # the one above is closed to all but its owner
        new.mkdir()
        try:
            yield new
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise WriteError(f"could not write {shown(folder)}: {error_cause(error)}") from error
        if os.name == "nt" and folder.is_dir():  # which there does not make way, though empty
            folder.rmdir()
        try:
            new.rename(folder)
        except OSError as error:
            raise FileExistsError(
                f"{shown(folder)} appeared meanwhile; nothing is overwritten: {error.strerror}"
            ) from error


@contextmanager
def write_aside(path: Path, *leftovers: Path) -> Iterator[Path]:
    """Give a path beside a file to write to, which replaces the file at the end.

    raises: `WriteError` when that fails, KeyboardInterrupt on Ctrl-C; nothing is left then of the
            new file and of `leftovers`
    """
    part = path.with_name(path.name + ".part")
    try:
        yield part
        part.replace(path)
    except BaseException as error:
        for left in (part, *leftovers):
            left.unlink(missing_ok=True)
        if isinstance(error.__context__, KeyboardInterrupt):  # torch raises a RuntimeError
            raise KeyboardInterrupt from error
        if not isinstance(error, OSError | RuntimeError):  # as when a disk is full, or gone
            raise
        previous = ", whose previous version is unchanged" if path.exists() else ""
        raise WriteError(f"could not write {path}{previous}: {error_cause(error)}") from error


@contextmanager
def write_result(file: Path) -> Iterator[Path]:
    """Give a path to write a result to: one aside, which then replaces the file, or a device.

    raises: `WriteError`, naming the file, when that fails
    """
    if file.is_file() or not file.exists():
        with write_aside(file) as part:
            yield part
        return
    try:
        yield file  # as /dev/stdout
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WriteError(f"could not write {shown(file)}: {error_cause(error)}") from error


def error_cause(error: BaseException) -> str:
    """Say what went wrong, in one line.

    torch's own errors about a full disk and pickled objects do not say it.
    """
    cause = error if isinstance(error, OSError) else error.__context__
    text = " ".join(str(error).split())
    if isinstance(cause, OSError) and cause.strerror:
        text = cause.strerror
    if "weights_only" in text:  # torch recommends to run the code
        return "it contains pickled objects, which could run code"
    if "inline_container" in text:  # from another process, without its context
        return "the disk is full, or is gone"
    return text


def save_sealed(path: Path, state: dict[str, Any]) -> None:
    """Save with `torch.save`, with the sha256 of the file at its end.

    All is on the disk before this returns.
    """
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


def load_sealed(path: Path) -> Any:
    """Load what `save_sealed` wrote, with tensors on the CPU and without running code.

    raises: ValueError when the checksum differs; many kinds of errors when torch cannot read the
            file
    """
    content = path.read_bytes()
    if hashlib.sha256(memoryview(content)[:-SEAL]).digest() != content[-SEAL:]:
        raise ValueError("the file has a different checksum")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def tensor_digest(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    """Compute the sha256 of tensors and texts by name, in the order of their names."""
    digest = hashlib.sha256(json.dumps(sorted(notes.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hold(path: Path, taken: str, stack: ExitStack) -> None:
    """Create a lock file, and remove it when `stack` closes.

    raises: ValueError with the text `taken` if another process holds it
    """
    lock = FileLock(path)  # the operating system releases it however the process ends
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(taken) from None
    stack.callback(lock.release)
    # first, or another process could hold it; Windows removes no open file, there the library does
    stack.callback(remove, path)


def remove(path: Path) -> None:
    """Remove a file that is not in use, or a folder that is empty; leave any other."""
    with suppress(OSError):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
