"""Train models to find digits among clutter, and grade what maps of attention make of where they are.

For each seed the maps of an untrained and of a trained model are held against the true places of the test part. The rows
are kept in a CSV file.
"""

import csv
import statistics
from pathlib import Path

from vit_helpers.commands import whole_number

KINDS = ("model", "seed", "accuracy", "method", "mass", "hits")


def add_arguments(parser):
    parser.add_argument("--seeds", type=whole_number, default=5, help="how many models (default: 5)")
    parser.add_argument("--images", type=whole_number, default=5000, help="training images (default: 5000)")
    parser.add_argument("--epochs", type=whole_number, help="instead of the data set's own")
    parser.add_argument("--out", type=Path, default=Path("grades.csv"), help="the CSV file (default: grades.csv)")


def run(args):
    rows = []
    for seed in range(args.seeds):
        rows += grade_seed(seed, args.images, args.epochs)
        print(f"seed {seed}: accuracy {rows[-1]['accuracy']:.3f}", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, KINDS)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{'model':10s} {'method':24s} mass inside    peaks inside")
    for model, method in dict.fromkeys((row["model"], row["method"]) for row in rows):
        same = [row for row in rows if (row["model"], row["method"]) == (model, method)]
        said = [f"{statistics.mean(x):.3f} ± {spread(x):.3f}" for x in ([row[key] for row in same] for key in KINDS[-2:])]
        print(f"{model:10s} {method:24s} {'  '.join(said)}")
    print(f"\nrows: {args.out}")
    return 0


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def grade_seed(seed, images, epochs):
    """The rows of one seed: the same model before its training and after"""
    from vit_helpers.data import load
    from vit_helpers.grading import grade
    from vit_helpers.settings import make_batches, make_network, make_recipe, preset
    from vit_helpers.training import evaluate, fit, set_seed

    data = load("scattered_digits", n=images)
    settings = preset("scattered_digits") | ({"epochs": epochs} if epochs else {})
    set_seed(seed)
    model, rows = make_network(data, settings), []
    for name in ("untrained", "trained"):
        if name == "trained":
            batches, validation = make_batches(data, settings), data.batches("validation", 500)
            fit(model, batches, validation, make_recipe(settings), report=lambda row: None)
        accuracy = evaluate(model, data.batches("test", 500)).accuracy
        for method, grades in grade(model, data.test, data.normalize).items():
            rows.append({"model": name, "seed": seed, "accuracy": accuracy, "method": method} | grades)
    return rows
