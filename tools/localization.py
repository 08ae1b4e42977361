"""Score how well attention maps localize a digit, for models trained by `tools.pretrain scattered`.

Each model's maps are compared with the true bounding boxes of the test split, and so are those of an untrained model of
the same shape. The rows are saved in a CSV file.
"""

import statistics
import sys
from pathlib import Path

from tools import main, write_rows

IMAGES = 5000  # of the training split; the test split has a fifth as many
COLUMNS = ("model", "seed", "accuracy", "method", "inside", "pointing_game")


def add_arguments(parser):
    parser.add_argument("weights", nargs="+", type=Path, help="files that `tools.pretrain scattered` saved")
    parser.add_argument(
        "--out", type=Path, default=Path("localization.csv"), help="the CSV file (default: localization.csv)"
    )


def run(args):
    from vit_helpers.ablation import standard_deviation

    rows = []
    try:
        for seed, path in enumerate(args.weights):
            rows += score_file(seed, path)
            print(f"{path}: accuracy {rows[-1]['accuracy']:.3f}", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write_rows(args.out, COLUMNS, rows)
    print(f"\n{'model':10s} {'method':24s} inside box       pointing game")
    for model, method in dict.fromkeys((row["model"], row["method"]) for row in rows):
        same = [row for row in rows if (row["model"], row["method"]) == (model, method)]
        said = [
            f"{statistics.mean(x):.3f} ± {standard_deviation(x):.3f}"
            for x in ([row[key] for row in same] for key in COLUMNS[-2:])
        ]
        print(f"{model:10s} {method:24s} {'  '.join(said)}")
    print(f"\nrows: {args.out}")
    return 0


def score_file(seed, path):
    """The rows of one file: an untrained model of its shape, initialized with this seed, and the model itself."""
    from torch import nn

    from vit_helpers.data import Batches, load
    from vit_helpers.inspection.localization import localization_scores
    from vit_helpers.pretrained import load_weights
    from vit_helpers.training import evaluate, set_seed
    from vit_helpers.vit import ViT

    data, pretrained = load("scattered_digits", n=IMAGES), load_weights(path)
    if pretrained.class_names != data.class_names:
        raise ValueError(f"{path} does not name the ten digits, its classes: {', '.join(pretrained.class_names) or 'none'}")
    set_seed(seed)
    untrained, rows = ViT(pretrained.model.config), []
    nn.init.trunc_normal_(untrained.head.weight, std=0.02)  # with a head of zeros no class has a gradient
    for name, model in (("untrained", untrained), ("trained", pretrained.model)):
        accuracy = evaluate(model, Batches(data.test, 250, pretrained.preprocess.normalize)).accuracy
        for method, scores in localization_scores(model, data.test, pretrained.preprocess.normalize).items():
            rows.append({"model": name, "seed": seed, "accuracy": accuracy, "method": method} | scores)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
