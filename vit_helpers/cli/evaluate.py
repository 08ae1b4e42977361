"""The work of `evaluate`: a model is tested on other images."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from torch import Tensor

from vit_helpers._files import expand_user, shown, write_result
from vit_helpers.cli.outputs import (
    check_figure,
    check_target,
    draw_counts,
    draw_mistakes,
    print_balanced,
    print_warnings,
    report_broken,
)
from vit_helpers.cli.precision import predict_in
from vit_helpers.cli.predictions import is_test_table, run_test
from vit_helpers.cli.scores import (
    class_table,
    confused_pairs,
    is_class_table,
    save_class_table,
    worst_classes,
)
from vit_helpers.cli.threads import use_threads
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.files import check_head

CLASSES_SHOWN = 30  # at most are printed one by one
LISTED = 10  # of more, so many of the worst, and of the pairs that are confused most often


class Outputs(NamedTuple):
    """The files of the results; classes: the table of more than 30 classes, else None."""

    confusion: Path
    mistakes: Path
    classes: Path | None
    answers: Path | None


def run(args: Namespace) -> int:
    """Test the model, and print and draw the result; return the exit status."""
    with print_warnings():
        pretrained = load_pretrained(args.weights)
    names = pretrained.class_names
    check_head(args.weights, names)
    if args.white and not args.data.startswith("folder:"):
        raise ValueError(f"--white is an option for folder:PATH, not for {args.data}")
    outputs = check_outputs(args, len(names))
    use_threads(pretrained.model, batch_size=64)
    with print_warnings(), predict_in(args.precision, pretrained.model):
        tested = run_test(args.weights, pretrained, args.data, args.white)
    n, broken = len(tested.pictures), tested.broken
    if n == 0:
        raise ValueError(f"none of the {len(broken)} images of {args.data} could be read")
    counts = tested.counts(len(names))
    table = class_table(counts, names)
    total = table.iloc[-1]
    print(
        f"accuracy {total['accuracy']:.4f} on {n:,} {tested.description}; "
        f"95% interval {total['low']:.3f} to {total['high']:.3f}"
    )
    print_balanced(table)
    print_tables(table, counts, names)
    draw_counts(outputs.confusion, counts, names)
    print(f"confusion: {outputs.confusion}")
    draw_mistakes(outputs.mistakes, tested.mistakes, counts, names, tested.worst_pictures())
    if outputs.mistakes.exists():
        print(f"mistakes: {outputs.mistakes}")
    if outputs.classes:
        save_class_table(table, outputs.classes)
        print(f"classes: {outputs.classes}")
    if outputs.answers:
        with write_result(outputs.answers) as file:
            tested.to_table(names).to_csv(file, index=False)
        print(f"answers: {outputs.answers}")
    return report_broken(broken, n + len(broken))


def check_outputs(args: Namespace, num_classes: int) -> Outputs:
    """Return the files of the results.

    raises: ValueError or OSError if one cannot be written, or if two would be the same
    """
    kind, _, path = args.data.partition(":")
    name = Path(path or args.data).resolve().name
    inputs = list(expand_user(path).rglob("*")) if kind == "folder" else []
    figure = args.out or Path(f"{name}-confusion.png")
    stem = figure.stem.removesuffix("-confusion")
    classes = figure.with_name(f"{stem}-classes.csv") if num_classes > CLASSES_SHOWN else None
    outputs = Outputs(figure, figure.with_stem(f"{stem}-mistakes"), classes, args.csv)
    check_figure(outputs.confusion, inputs=inputs)
    check_figure(outputs.mistakes, inputs=inputs)
    if classes:
        check_target(classes, "--out", is_class_table, inputs)
    if args.csv:
        check_target(args.csv, "--csv", is_test_table, inputs)
        if args.csv.resolve() in [file.resolve() for file in outputs[:3] if file]:
            raise ValueError(f"{args.csv} is another result, too: choose another name with --csv")
    return outputs


def print_tables(table: pd.DataFrame, counts: Tensor, names: Sequence[str]) -> None:
    """Print the accuracy of each class; of many, that of the worst, and what is confused.

    table: `class_table`;  counts: (K, K);  names: K texts
    """
    tested = table[table["images"] > 0].iloc[:-1]
    digits = "{:.3f}".format
    if len(tested) <= CLASSES_SHOWN:
        print(tested.rename(index=shown).to_string(float_format=digits))
        return
    print(f"the worst of {len(tested):,} classes, and the most frequent mistakes:")
    print(worst_classes(table, LISTED).rename(index=shown).to_string(float_format=digits))
    pairs = confused_pairs(counts, [shown(name) for name in names], LISTED)
    print(pairs.to_string(index=False, float_format=digits))
