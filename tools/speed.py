"""Measure ways to make training and answering faster or smaller on this machine, before and after in the same run.

Before and after take their turns, several rounds; the median counts, and beside it stands the range of the ratio over the
rounds. A ratio of 2 means twice as fast. What cannot run here says so, and the rest goes on. The rows are kept in a CSV
file. Let nothing else run meanwhile.
"""

import sys
from pathlib import Path

from tools import main, write_rows
from vit_helpers.cli import positive_int

ROWS = (
    "threads",
    "batch",
    "attention",
    "bf16",
    "channels-last",
    "optimiser",
    "compile",
    "accumulation",
    "checkpointing",
    "loader",
    "quantised",
    "latency",
    "peak",
)
KINDS = (
    *("row", "case", "before", "before_ms", "after", "after_ms", "ratio", "lowest", "highest"),
    *("before_mb", "after_mb", "start_s", "also"),  # megabytes that autograd keeps; seconds before the first answer
    "machine",
)


def add_arguments(parser):
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"what to measure: {', '.join(ROWS)} (default: all)")
    parser.add_argument("--rounds", type=positive_int, default=5, help="rounds of each comparison (default: 5)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model runs (default: cpu)")
    parser.add_argument("--out", type=Path, default=Path("runs/speed.csv"), help="the CSV file (default: runs/speed.csv)")


def run(args):
    if unknown := [name for name in args.rows if name not in ROWS]:
        print(f"error: unknown row {', '.join(unknown)}, known: {', '.join(ROWS)}", file=sys.stderr)
        return 1
    from tools.speed_cases import Bench, measure
    from vit_helpers.cli.train import pick_device
    from vit_helpers.scaling.timing import machine

    try:
        bench = Bench(pick_device(args.device), args.rounds)
        print(machine() + "\n\n| row | case | before | ms | after | ms | times as fast | also |\n" + "|---" * 8 + "|")
        lines, words = [], {}
        for name in dict.fromkeys(args.rows or ROWS):
            for line in measure(name, bench):
                print(said(line), flush=True)
                lines.append(line | {"machine": machine()})
            words[name] = when_it_pays(name)
        write_rows(args.out, KINDS, lines)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\nWhen it pays:\n" + "\n".join(f"- {name}: {text}" for name, text in words.items()))
    print(f"\nrows: {args.out}")
    return 0


def when_it_pays(name):
    """The words of a row: the docstring of the function that measures it"""
    from tools.speed_cases import MEASURES

    return " ".join(MEASURES[name].__doc__.split())


def said(line):
    """A row of the Markdown table"""
    if "ratio" not in line:
        return f"| {line['row']} | | | | | | | {line['also']} |"
    notes = []
    if "before_mb" in line:
        notes.append(f"autograd keeps {line['before_mb']:,.1f} → {line['after_mb']:,.1f} MB")
    if "start_s" in line:
        notes.append(f"start-up {line['start_s']:.1f} s")
    notes += [line["also"]] if line.get("also") else []
    ratio = f"{line['ratio']:.2f} ({line['lowest']:.2f} to {line['highest']:.2f})"
    times = [f"{line[key]:,.3g}" if line[key] < 100 else f"{line[key]:,.0f}" for key in ("before_ms", "after_ms")]
    cells = (line["row"], line["case"], line["before"], times[0], line["after"], times[1], ratio, "; ".join(notes))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
