"""Score the maps of models of `tools.pretrain scattered`, and of controls, by bounding boxes.

The 1,000 test images are drawn for this alone (`scattered_digits` with seed 1), and each map is
scored with the box of its own image and with that of another one. File S, counted from 0, must hold
the model of seed S; an untrained model of its shape is drawn from the same seed. Finished maps are
kept in a CSV file, and the same command goes on where it stopped. The rank score and the fraction
inside ask for the empty patches of a box as well. All of it takes minutes, not hours.
"""

from argparse import ArgumentParser, Namespace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tools import main
from tools.experiments.measuring import add_out, find_or_measure
from vit_helpers.ablation.rows import pack
from vit_helpers.data import Data, load
from vit_helpers.data.splits import Batches
from vit_helpers.inspection.localization import CONTROLS, METHODS, localization_scores, maps_of
from vit_helpers.pretrained import load_weights
from vit_helpers.results.localization import SCORES, compare_methods, pack_scores, summarize_scores
from vit_helpers.scaling.timing import processor
from vit_helpers.training import predict, set_seed
from vit_helpers.vit import ViT

IMAGES = 5000  # of the training split; the test split has a fifth as many


def add_arguments(parser: ArgumentParser) -> None:
    add_models(parser)
    add_out(parser, "localization.csv")


def add_models(parser: ArgumentParser) -> None:
    """Add an argument for the models that are scored."""
    parser.add_argument(
        "weights",
        nargs="+",
        type=Path,
        help="files that `pretrain scattered` wrote, of seeds 0, 1, 2 ...",
    )


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    data = load("scattered_digits", n=IMAGES, seed=1)
    cases = [*product(("trained", "untrained"), enumerate(args.weights), METHODS)]
    for kind, (seed, path), method in [
        *cases,
        *product(["none"], [(0, args.weights[0])], CONTROLS),
    ]:
        find_or_measure(
            args.out, partial(score_map, path, data), model=kind, seed=seed, method=method
        )
    stored = pd.read_csv(args.out)
    for table in (summarize_scores(stored).drop(columns="each"), compare_methods(stored)):
        print(f"\n{table.to_string(float_format='{:.3f}'.format)}")
    print(f"\nrows: {args.out}")


def score_map(path: Path, data: Data, model: str, seed: int, method: str) -> dict[str, Any]:
    """A map's scores: of the model in a file, of an untrained one of its shape, or of a control"""
    loaded, test = load_weights(path), data.test
    network, normalize = loaded.model, loaded.preprocess.normalize
    own: Any = test.boxes
    if model == "untrained":
        set_seed(seed)
        network = ViT(network.config)
        head = network.get_parameter("head.weight")
        torch.nn.init.normal_(head, std=0.02)  # from a head of zeros no class has a gradient
    logits, labels = predict(network, Batches(test, 250, normalize))
    right = pack(logits.argmax(dim=1) == labels)
    row: dict[str, Any] = {"right": right, "machine": processor(), "date": date.today().isoformat()}
    maps = maps_of((METHODS | CONTROLS)[method], network, test, normalize)
    for end, boxes in (("", own), ("_other", own.roll(1, 0))):
        found = localization_scores(maps, boxes, network.config.patch_size)
        row |= {f"inside{end}": round(found["inside"].mean().item(), 4)} | {
            s + end: pack_scores(found[s]) for s in SCORES
        }
    return row


if __name__ == "__main__":
    raise SystemExit(main())
