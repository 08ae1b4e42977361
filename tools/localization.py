"""Score attention maps against the true bounding boxes, for models that `python -m tools.pretrain scattered` trained.

The maps of each model are scored on the test split, and beside them those of an untrained model of the same shape. The rows
are stored in a CSV file.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from tools import main
from tools.measuring import add_out, print_means, store
from vit_helpers.data import load
from vit_helpers.data.splits import Batches
from vit_helpers.inspection.localization import localization_scores
from vit_helpers.pretrained import load_weights
from vit_helpers.training import evaluate, set_seed
from vit_helpers.vit import ViT

IMAGES = 5000  # of the training split; the test split has a fifth as many


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("weights", nargs="+", type=Path, help="files that `pretrain scattered` wrote")
    add_out(parser, "localization.csv")


def run(args: Namespace) -> None:
    table = store((row for seed, path in enumerate(args.weights) for row in score_file(seed, path)), args.out)
    print_means(table, ["model", "method"], list(table.columns[4:]), args.out)  # the scores


def score_file(seed: int, path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file: for an untrained model of its shape, drawn from this seed, and for the model."""
    data, loaded = load("scattered_digits", n=IMAGES), load_weights(path)
    if loaded.class_names != data.class_names:
        raise ValueError(f"{path} does not name the ten digits, its classes: {', '.join(loaded.class_names) or 'none'}")
    set_seed(seed)
    untrained, normalize = ViT(loaded.model.config), loaded.preprocess.normalize
    nn.init.trunc_normal_(untrained.get_parameter("head.weight"), std=0.02)  # from a head of zeros no class has a gradient
    for name, model in (("untrained", untrained), ("trained", loaded.model)):
        accuracy = evaluate(model, Batches(data.test, 250, normalize)).accuracy
        for method, scores in localization_scores(model, data.test, normalize).items():
            yield {"model": name, "seed": seed, "accuracy": accuracy, "method": method} | scores


if __name__ == "__main__":
    raise SystemExit(main())
