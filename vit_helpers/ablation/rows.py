"""The file of a table of runs: a row for each run, with which images it classified correctly."""

import base64
import csv
import json
import math
from collections.abc import Callable, Sequence
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vit_helpers._files import from_cell, to_cell, write_aside

Row = dict[str, Any]
Kinds = dict[str, Callable[[str], Any]]  # of the columns of a CSV file, each with its type
MADE: Kinds = {"machine": str, "date": str}
COLUMNS: Kinds = {
    **{"change": str, "seed": int},
    **dict.fromkeys(("accuracy", "loss", "train_accuracy", "majority_share"), float),
    **{"parameters": int, "multiply_adds": int, "seconds": float, "settings": str, "right": str},
    **MADE,
}
TEST: Kinds = {  # before those of MADE, if a table asks for the test split
    "test_accuracy": lambda cell: float(cell or "nan"),
    "test_right": str,
}
WITH_TEST: Kinds = {**{name: COLUMNS[name] for name in COLUMNS if name not in MADE}, **TEST, **MADE}


def pack(right: Any) -> str:
    """Write which images were classified correctly, (n,) booleans, as a short text.

    It is base64 of the packed bits, after their number.

    >>> pack([True, False, True])
    '3:oA=='
    """
    bits = np.asarray(right, dtype=bool)
    return f"{len(bits)}:{base64.b64encode(np.packbits(bits).tobytes()).decode()}"


def unpack(text: str) -> Any:
    """Read what `pack` wrote: (n,) booleans; ValueError for any other text.

    >>> unpack("3:oA==").tolist()
    [True, False, True]
    """
    try:
        count, _, code = text.partition(":")
        bits = np.frombuffer(base64.b64decode(code, validate=True), np.uint8)
        if len(bits) != -(-int(count) // 8):
            raise ValueError(f"{len(bits)} bytes for {count} images")
        return np.unpackbits(bits, count=int(count)).astype(bool)
    except (ValueError, AttributeError):
        raise ValueError(
            f"not known which images were classified correctly: {text!r:.60}"
        ) from None


def read_runs(path: str | PathLike[str]) -> pd.DataFrame:
    """Read the rows of a CSV file of `run_table`, none if there is no file.

    raises: ValueError when a row is damaged, or for a file with other columns
    """
    try:
        text = Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not a table of this kind, but a file of another format: {error}"
        ) from error
    lines = list(csv.reader(StringIO(text)))
    columns = lines[0] if lines else list(COLUMNS)
    if columns not in (list(COLUMNS), list(WITH_TEST)):
        raise ValueError(
            f"{path} is not a table of this kind: its columns are {columns}, not {list(COLUMNS)}"
        )
    rows: list[Row] = []
    for number, cells in enumerate(lines[1:], start=1):
        try:
            row = {name: WITH_TEST[name](cell) for name, cell in zip(columns, cells, strict=True)}
            row["change"] = from_cell(row["change"])
            json.loads(row["settings"])
        except ValueError:
            raise ValueError(f"{path}: row {number} is damaged: {','.join(cells)}") from None
        rows.append(row)
    return frame(rows, "test_right" in columns)


def frame(rows: Sequence[Row], test: bool) -> pd.DataFrame:
    """Make a table of rows; what those without a test lack is empty."""
    names = list(WITH_TEST if test else COLUMNS)
    empty = {name: math.nan if name == "test_accuracy" else "" for name in names}
    return pd.DataFrame([{**empty, **row} for row in rows], columns=names)


def append_row(row: Row, path: Path, test: bool) -> None:
    """Add a row to a CSV file, which is replaced as a whole: a crash leaves the old or the new."""
    rows = frame([*read_runs(path).to_dict("records"), row], test)
    with write_aside(path) as part:
        rows.assign(change=rows["change"].map(to_cell)).to_csv(part, index=False)
