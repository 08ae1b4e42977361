"""What maintainers and teachers run, each as `python -m tools.NAME` in the folder of the repository; see README.md here."""

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType


def main(tool: ModuleType, words: Sequence[str] | None = None) -> int:
    """Run a tool and return its exit status: a module with a docstring, `add_arguments(parser)` and `run(args)`.

    words: the arguments, by default those of the command line
    """
    about, name = tool.__doc__, tool.__spec__.name
    parser = argparse.ArgumentParser(f"python -m {name}", None, about, formatter_class=argparse.RawDescriptionHelpFormatter)
    tool.add_arguments(parser)
    args = parser.parse_args(words)
    try:
        return tool.run(args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[dict]) -> None:
    """Write dicts as a CSV file with these columns; its folder is created where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
