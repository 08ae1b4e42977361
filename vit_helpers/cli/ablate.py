"""The work of `ablate`: the runs of a table are trained, and compared with its baseline."""

import math
from argparse import Namespace
from functools import partial

from vit_helpers._files import shown
from vit_helpers.ablation import Table, compare, run_table, summarize
from vit_helpers.cli.outputs import check_target, print_warnings_at_once
from vit_helpers.scaling.timing import processor

FORMATS = {
    **dict.fromkeys(("accuracy", "spread", "error"), "{:.4f}".format),
    **dict.fromkeys(("image error", "both errors", "p (Holm)"), "{:.4f}".format),
    **dict.fromkeys(("parameters", "multiply_adds"), "{:,}".format),
    "difference": "{:+.4f}".format,
    "seconds": "{:.1f}".format,
}
PAIRED = {"images": "image error", "both": "both errors", "holm": "p (Holm)"}


def run(args: Namespace) -> int:
    """Train the runs that are not in the CSV file yet, and print all; return the exit status."""
    out = args.out or args.table.with_suffix(".csv")
    check_target(out, "--out", inputs=[args.table])  # `run_table` knows its own files
    report = partial(print, flush=True)
    try:
        with print_warnings_at_once():
            runs = run_table(Table.read(args.table), out, report, args.workers, processor())
    except KeyboardInterrupt:
        print(f"\nstopped: finished runs are kept in {out}; the same command continues")
        return 130
    lines = summarize(runs).rename_axis(None)
    if len(lines) > 1 and runs["right"].ne("").all():
        lines = lines.join(compare(runs).rename(columns=PAIRED)[list(PAIRED.values())])
        # equal differences of a few seeds are chance, unless no image is answered otherwise
        lines.loc[(lines["error"] == 0) & (lines["image error"] > 0), "error"] = math.nan
    lines = lines.rename(index=shown)
    print(f"\n{lines.to_string(formatters=FORMATS)}\n\nrows: {out}")
    return 0
