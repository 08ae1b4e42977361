"""What maintainers and teachers run, each as `python -m tools.NAME` in the folder of the repository.  See README.md here."""

import argparse
import csv
import sys


def main(tool, words=None):
    """Run a tool: a module with a docstring, `add_arguments(parser)` and `run(args)` -> exit status.

    words: the arguments, by default those of the command line
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {tool.__spec__.name}",
        description=tool.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tool.add_arguments(parser)
    args = parser.parse_args(words)
    try:
        return tool.run(args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def write_rows(path, columns, rows):
    """Write dicts as a CSV file with these columns; its folder is created where it is missing"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
