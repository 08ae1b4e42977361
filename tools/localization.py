"""Grade what maps of attention make of where a digit is, for models that `pretrain scattered` kept.

Each model's maps are held against the true places of the test part, and beside them those of an untrained model of the
same shape. The rows are kept in a CSV file.
"""

import statistics
import sys
from pathlib import Path

from tools import main, write_rows

IMAGES = 5000  # of the training part; the test part has a fifth as many
KINDS = ("model", "seed", "accuracy", "method", "mass", "hits")


def add_arguments(parser):
    parser.add_argument("weights", nargs="+", type=Path, help="files that `pretrain scattered` kept")
    parser.add_argument(
        "--out", type=Path, default=Path("localization.csv"), help="the CSV file (default: localization.csv)"
    )


def run(args):
    from vit_helpers.ablation import standard_deviation

    rows = []
    try:
        for seed, path in enumerate(args.weights):
            rows += grade_file(seed, path)
            print(f"{path}: accuracy {rows[-1]['accuracy']:.3f}", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write_rows(args.out, KINDS, rows)
    print(f"\n{'model':10s} {'method':24s} mass inside    peaks inside")
    for model, method in dict.fromkeys((row["model"], row["method"]) for row in rows):
        same = [row for row in rows if (row["model"], row["method"]) == (model, method)]
        said = [
            f"{statistics.mean(x):.3f} ± {standard_deviation(x):.3f}"
            for x in ([row[key] for row in same] for key in KINDS[-2:])
        ]
        print(f"{model:10s} {method:24s} {'  '.join(said)}")
    print(f"\nrows: {args.out}")
    return 0


def grade_file(seed, path):
    """The rows of one file: an untrained model of its shape, from this seed, and the model"""
    from torch import nn

    from vit_helpers.data import Batches, load
    from vit_helpers.inspection.localization import localization_scores
    from vit_helpers.pretrained import load_weights
    from vit_helpers.training import evaluate, set_seed
    from vit_helpers.vit import ViT

    data, kept = load("scattered_digits", n=IMAGES), load_weights(path)
    if kept.class_names != data.class_names:
        raise ValueError(f"{path} does not name the ten digits, its classes: {', '.join(kept.class_names) or 'none'}")
    set_seed(seed)
    untrained, rows = ViT(kept.model.config), []
    nn.init.trunc_normal_(untrained.head.weight, std=0.02)  # from a head of zeros no class has a gradient
    for name, model in (("untrained", untrained), ("trained", kept.model)):
        accuracy = evaluate(model, Batches(data.test, 250, kept.preprocess.normalize)).accuracy
        for method, grades in localization_scores(model, data.test, kept.preprocess.normalize).items():
            rows.append({"model": name, "seed": seed, "accuracy": accuracy, "method": method} | grades)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
