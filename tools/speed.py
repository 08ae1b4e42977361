"""Measure ways to make training and inference faster or smaller on this machine, before and after in the same run.

Before and after take turns for several rounds. The median of the rounds' ratios counts, and beside it is their range; a
ratio of 2 means twice as fast. What cannot run here is reported, and the rest goes on. Let nothing else run meanwhile.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pandas as pd

from tools import main
from tools.measuring import Bench, markdown_table, significant, write_csv
from tools.speed_cases import CASES, measure
from vit_helpers.cli import positive_int, require_known
from vit_helpers.cli.train import pick_device
from vit_helpers.scaling.timing import machine

COLUMNS = ["row", "case", "before", "before_ms", "after", "after_ms", "ratio", "lowest", "highest"]
COLUMNS += ["before_mb", "after_mb", "start_s", "also", "machine"]  # MB that autograd keeps; seconds before the first step


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"what to measure: {', '.join(CASES)} (default: all)")
    parser.add_argument("--rounds", type=positive_int, default=5, help="rounds of each comparison (default: 5)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model runs (default: cpu)")
    parser.add_argument("--out", type=Path, default=Path("runs/speed.csv"), help="the CSV file (default: runs/speed.csv)")


def run(args: Namespace) -> int:
    require_known("row", args.rows, CASES)
    bench, rows, names = Bench(pick_device(args.device), args.rounds), [], list(dict.fromkeys(args.rows or CASES))
    for name in names:
        for row in measure(name, bench):
            rows.append(row | {"machine": machine()})
            write_csv(pd.DataFrame(rows, columns=COLUMNS), args.out)
            print(" ".join(filter(None, table_line(row).values())), file=sys.stderr, flush=True)
    print(f"{machine()}\n\n{markdown_table(pd.DataFrame(map(table_line, rows)))}\n\nWhen it pays:")
    print("\n".join(f"- {name}: {' '.join(str(CASES[name].__doc__).split())}" for name in names))
    print(f"\nrows: {args.out}")
    return 0


def table_line(row: dict[str, Any]) -> dict[str, str]:
    """A row as the printed table shows it."""
    notes = []
    if "before_mb" in row:
        notes.append(f"autograd keeps {row['before_mb']:,.1f} → {row['after_mb']:,.1f} MB")
    if "start_s" in row:
        notes.append(f"start-up {row['start_s']:.1f} s")
    notes += [row["also"]] if "also" in row else []
    line = {name: row.get(name, "") for name in ("row", "case", "before", "ms", "after", "ms ", "times as fast")}
    if "ratio" in row:
        line |= {"ms": significant(row["before_ms"]), "ms ": significant(row["after_ms"])}
        line["times as fast"] = f"{row['ratio']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
    return line | {"also": "; ".join(notes).replace("|", "/")}


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
