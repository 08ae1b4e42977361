"""Train a table of changes, one at a time, several seeds of each, and say which are larger than the noise.

The table is a TOML file: data, model, seeds, and what to change, as in

    data = "digits"
    model = "mini/2"
    seeds = 3
    [baseline]
    epochs = 10
    [changes]
    "no positions" = {positions = "none"}
    "learning rate 1e-3" = {lr = 1e-3}

Every finished run is kept in the CSV file at once; the same command goes on where it stopped. Accuracy is that of the
validation part: the test part is not looked at.
"""

import sys
from functools import partial
from pathlib import Path

from vit_helpers.cli import positive_int


def add_arguments(parser):
    parser.add_argument("table", type=Path, help="the TOML file")
    parser.add_argument("--workers", type=positive_int, default=1, help="runs at a time, a thread each (default: 1)")
    parser.add_argument("--out", type=Path, help="the CSV file (default: beside the table, with its name)")


def run(args):
    from vit_helpers.ablation import Table, run_table, summarize

    out = args.out or args.table.with_suffix(".csv")
    try:
        rows = run_table(Table.read(args.table), out, partial(print, flush=True), args.workers)
    except (ValueError, TypeError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nstopped: finished runs are kept in {out}; the same command goes on")
        return 130
    print(f"\n{'change':24s} runs  accuracy  spread  difference (error)   parameters  multiply-adds  seconds")
    for line in summarize(rows):
        accuracy = f"{line['accuracy']:.4f}  {line['spread']:.4f}  {line['difference']:+.4f} ({line['error']:.4f})"
        cost = f"{line['parameters']:12,}  {line['multiply_adds']:13,}  {line['seconds']:7.1f}"
        print(f"{line['change']:24s} {line['runs']:4d}    {accuracy}   {cost}")
    print(f"\nrows: {out}")
    return 0
