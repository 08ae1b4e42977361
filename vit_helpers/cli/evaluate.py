"""The work of `evaluate`: a model is tested on other images."""

from argparse import Namespace
from pathlib import Path

from vit_helpers._files import expand_user, shown
from vit_helpers.cli.outputs import check_figure, draw_counts, print_warnings, report_broken
from vit_helpers.cli.precision import predict_in
from vit_helpers.cli.predictions import count_confusions
from vit_helpers.cli.scores import class_table
from vit_helpers.cli.threads import use_threads
from vit_helpers.pretrained import load_pretrained

CLASSES_SHOWN = 30  # at most are printed one by one


def run(args: Namespace) -> int:
    """Test the model, and print and draw the result; return the exit status."""
    with print_warnings():
        pretrained = load_pretrained(args.weights)
    names = pretrained.class_names
    if not names:
        raise ValueError(f"{args.weights} has no classification head, so it cannot predict classes")
    kind, _, path = args.data.partition(":")
    name = Path(path or args.data).resolve().name
    images = expand_user(path).rglob("*") if kind == "folder" else ()
    out = check_figure(args.out or Path(f"{name}-confusion.png"), inputs=images)
    use_threads(pretrained.model, batch_size=64)
    with print_warnings(), predict_in(args.precision, pretrained.model):
        counts, description, broken = count_confusions(
            args.weights, pretrained, args.data, args.white
        )
    n = int(counts.sum())
    if n == 0:
        raise ValueError(f"none of the {len(broken)} images of {args.data} could be read")
    table = class_table(counts, names)
    total, tested = table.iloc[-1], table[table["images"] > 0]
    print(
        f"accuracy {total['accuracy']:.4f} on {n:,} {description}; "
        f"95% interval {total['low']:.3f} to {total['high']:.3f}"
    )
    if len(tested) <= CLASSES_SHOWN + 1:
        print(tested.iloc[:-1].rename(index=shown).to_string(float_format="{:.3f}".format))
    draw_counts(out, counts, names)
    print(f"confusion: {out}")
    return report_broken(broken, n + len(broken))
