"""Train a table of changes, one at a time, several seeds of each, and show which are larger than the noise.

The table is a TOML file: data, model, seeds, and what to change, as in

    data = "digits"
    model = "mini/2"
    seeds = 3
    [baseline]
    epochs = 10
    [changes]
    "no positions" = {positions = "none"}
    "learning rate 1e-3" = {lr = 1e-3}

Every finished run is written to the CSV file at once, with the images that it classified correctly; the same command
continues where it stopped. Accuracy is measured on the validation split. With "test = true" in the table, accuracy on the
test split is kept, too: report it, but base no choice on it.

The error of a difference is its standard error over the seeds. "image error" is that over the images, because another
sample would give a different one; "both errors" combines the two; and p is corrected for the number of changes (Holm).

Examples:

    python -m vit_helpers ablate changes.toml
    python -m vit_helpers ablate changes.toml --workers 2 --out runs/changes.csv
"""

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

from vit_helpers.cli import positive_int

FORMATS = {
    **dict.fromkeys(
        ("accuracy", "spread", "error", "image error", "both errors", "p (Holm)"), "{:.4f}".format
    ),
    **dict.fromkeys(("parameters", "multiply_adds"), "{:,}".format),
    **{"difference": "{:+.4f}".format, "seconds": "{:.1f}".format},
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("table", type=Path, help="the TOML file")
    parser.add_argument(
        "--workers",
        type=positive_int,
        default=1,
        help="runs at a time, one thread each (default: 1)",
    )
    parser.add_argument(
        "--out", type=Path, help="the CSV file (default: beside the table, with its name)"
    )


def run(args: Namespace) -> int:
    from vit_helpers.ablation import Table, compare, run_table, summarize
    from vit_helpers.cli.results import check_target
    from vit_helpers.scaling.timing import processor

    out = args.out or args.table.with_suffix(".csv")
    check_target(out, "--out", inputs=[args.table])  # `run_table` knows its own files
    try:
        runs = run_table(
            Table.read(args.table), out, partial(print, flush=True), args.workers, processor()
        )
    except KeyboardInterrupt:
        print(f"\nstopped: finished runs are kept in {out}; the same command continues")
        return 130
    lines = summarize(runs).rename_axis(None)
    if len(lines) > 1 and runs["right"].ne("").all():
        pairs = compare(runs).rename(
            columns={"images": "image error", "both": "both errors", "holm": "p (Holm)"}
        )
        lines = lines.join(pairs[["image error", "both errors", "p (Holm)"]])
    print(f"\n{lines.to_string(formatters=FORMATS)}\n\nrows: {out}")
    return 0
