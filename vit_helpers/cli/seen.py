"""Which images a model has seen: known of a run on a folder, else unknown, and then that is said.

Images are known by the beginning of the sha256 of their files, so a copy that was saved anew is
another image.
"""

import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_helpers.data.reading import SHORT, find_sha256, map_files
from vit_helpers.data.registry import SOURCES
from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import find_file
from vit_helpers.training.presets import RunSettings

# Notes in a file of weights. Where one is missing, as in the files of others, it is unknown.
SEEN = "seen"  # the beginnings of all sha256s that are known
OTHERS = "other images"  # what else the model has seen: "none", or "unknown"
TRAINED_ON = "trained on"  # the only data set whose training split it has seen, if it has a name
NO_OTHERS = "none"


def notes_of(weights: str) -> dict[str, str]:
    """Read the notes of weights by their name; empty for those of others."""
    file = find_file(weights)
    return read_notes(file) if file.suffix == ".safetensors" else {}


def seen_notes(data: Any, settings: RunSettings) -> dict[str, str]:
    """Return the notes about what the model of a run has seen, also before it started."""
    earlier, digests = {OTHERS: NO_OTHERS, TRAINED_ON: settings.data}, b""
    if settings.weights:
        earlier = notes_of(settings.weights)
        digests = decode_seen(earlier, settings.weights)
    own = getattr(data, "seen", None)  # of shards it is unknown
    is_complete = own is not None and earlier.get(OTHERS) == NO_OTHERS
    notes = {
        SEEN: b64encode(b"".join(sorted(own or ())) + digests).decode(),
        OTHERS: NO_OTHERS if is_complete else "unknown",
    }
    source = SOURCES.get(settings.data)  # a path may have other images meanwhile
    if source and earlier.get(TRAINED_ON) == settings.data:
        notes[TRAINED_ON] = settings.data
    return notes


def decode_seen(notes: Mapping[str, str], name: str) -> bytes:
    """Return the beginnings of the sha256s that notes contain, one after another.

    notes : of the weights with this name
    raises: ValueError if the note is of another kind
    """
    try:
        return b64decode(notes.get(SEEN, ""), validate=True)
    except ValueError as error:
        raise ValueError(f"{name} has another kind of note of seen images: {error}") from error


def seen_digests(notes: Mapping[str, str], name: str) -> set[bytes]:
    """Return the beginnings of the sha256s that notes contain, see `decode_seen`."""
    seen = decode_seen(notes, name)
    return {seen[start : start + SHORT] for start in range(0, len(seen), SHORT)}


def leave_out_seen(files: Sequence[Path], notes: Mapping[str, str], name: str) -> list[Path]:
    """Return the files whose content was not seen in training; warn if that is not certain.

    notes : of the weights with this name
    raises: ValueError if there are none, or if the note of seen images is of another kind
    """
    known = seen_digests(notes, name)
    digests = map_files(find_sha256, files, "comparing")
    new = [
        file
        for file, digest in zip(files, digests, strict=True)
        if isinstance(digest, Exception) or digest[:SHORT] not in known
    ]
    if not new:
        raise ValueError(
            f"{name} was trained or validated on all of these {len(files):,} images: "
            "test it on other images"
        )
    if left := len(files) - len(new):
        warnings.warn(
            f"{left:,} of {len(files):,} images are left out: "
            f"{name} was trained or validated on them",
            stacklevel=2,
        )
    if notes.get(OTHERS) != NO_OTHERS:
        which = "which other images" if known else "which images"
        warnings.warn(
            f"it is unknown {which} {name} was trained on: these may be among them", stacklevel=2
        )
    return new


def warn_of_data_set(data: str, notes: Mapping[str, str], name: str) -> None:
    """Warn if weights may have seen the test split of a data set.

    data: its name, as for `load`;  notes: of the weights with this name
    """
    if notes.get(TRAINED_ON) != data:
        warnings.warn(
            f"it is unknown whether {name} was trained on images of the test split of {data}",
            stacklevel=2,
        )


def warn_of_start(data: Any, settings: RunSettings) -> None:
    """Warn if the weights that a run starts from have, or may have, seen images of its test."""
    if not settings.weights:
        return
    notes = notes_of(settings.weights)
    tested = getattr(data, "tested", None)
    if tested is None or notes.get(OTHERS) != NO_OTHERS:
        warn_of_data_set(settings.data, notes, settings.weights)
    if both := len(seen_digests(notes, settings.weights) & (tested or set())):
        warnings.warn(
            f"{both:,} of the {data.count('test'):,} test images are images that "
            f"{settings.weights} was trained or validated on: do not trust the test",
            stacklevel=2,
        )
