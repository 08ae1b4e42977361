"""Test a trained model on other images, and show which classes it confuses.

For folder:PATH with a folder for each class, all images are used except those that the run was trained or validated on,
which are recognized by their content. For a folder that is divided into splits, and for other data sets, only the test split
is used. The model must know all classes.

Examples:

    python -m vit_helpers evaluate runs/mine folder:new_photos
    python -m vit_helpers evaluate runs/digits-1 digits --out digits.png
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

SHOWN = 30  # classes at most are printed one by one


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "weights",
        metavar="RUN",
        help="the folder of a run, or any weights that `train --weights` reads",
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder:PATH for images of your own, or the name of a data set"
    )
    parser.add_argument(
        "--out", type=Path, help="file for the figure (default: NAME-confusion.png)"
    )


def run(args: Namespace) -> int:
    from vit_helpers.cli.predictions import count_confusions
    from vit_helpers.cli.reading import print_warnings
    from vit_helpers.cli.results import check_target, draw_counts, report_broken
    from vit_helpers.cli.scores import class_table
    from vit_helpers.cli.threads import use_threads
    from vit_helpers.pretrained import load_pretrained

    pretrained = load_pretrained(args.weights)
    if not (names := pretrained.class_names):
        raise ValueError(f"{args.weights} has no classification head, so it cannot predict classes")
    out = check_target(
        args.out
        or Path(f"{Path(args.data.partition(':')[2] or args.data).resolve().name}-confusion.png")
    )
    use_threads(pretrained.model, batch_size=64)
    with print_warnings():
        counts, what, broken = count_confusions(args.weights, pretrained, args.data)
    if not (n := int(counts.sum())):
        raise ValueError(f"none of the {len(broken)} images of {args.data} could be read")
    table = class_table(counts, names)
    total, tested = table.iloc[-1], table[table["images"] > 0]
    print(
        f"accuracy {total['accuracy']:.4f} on {n:,} {what}; 95% interval {total['low']:.3f} to {total['high']:.3f}"
    )
    if len(tested) <= SHOWN + 1:
        print(tested.iloc[:-1].to_string(float_format="{:.3f}".format))
    draw_counts(out, counts, names)
    print(f"confusion: {out}")
    return report_broken(broken, n + len(broken))
