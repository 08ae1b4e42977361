"""What `python -m vit_helpers` can do, a file a command: `add_arguments(parser)` and `run(args)` -> exit status."""

import argparse
import csv


def whole_number(text):
    """The type of an option that counts something: 1 or more"""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def write_rows(path, kinds, rows):
    """Keep dicts as a CSV file with these columns; its folder is made where it is missing"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, kinds)
        writer.writeheader()
        writer.writerows(rows)
