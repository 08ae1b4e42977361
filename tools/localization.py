"""Score the maps of models that `python -m tools.pretrain scattered` trained, and of controls, against bounding boxes.

The 1,000 test images are drawn for this alone (`scattered_digits` with seed 1), and each map is scored with the box of its
own image and with that of another one. File S, counted from 0, must hold the model of seed S; an untrained model of its
shape is drawn from the same seed. Finished models are kept in a CSV file, and the same command goes on where it stopped.
The rank score and the fraction inside ask for the empty patches of a box as well.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tools import main
from tools.measuring import add_out
from vit_helpers.ablation.rows import pack
from vit_helpers.data import Data, load
from vit_helpers.data.splits import Batches
from vit_helpers.inspection.localization import CONTROLS, METHODS, localization_scores, maps_of
from vit_helpers.pretrained import load_weights
from vit_helpers.results.localization import SCORES, compare_methods, pack_scores, summarize_scores
from vit_helpers.scaling.timing import processor
from vit_helpers.training import predict, set_seed
from vit_helpers.vit import ViT

IMAGES, MINUTES = 5000, 0.3  # of the training split, the test split has a fifth as many; for each model


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("weights", nargs="+", type=Path, help="files that `pretrain scattered` wrote, of seeds 0, 1, 2 ...")
    add_out(parser, "localization.csv")


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    models = [(kind, *file) for kind in ("trained", "untrained") for file in enumerate(args.weights)]
    done = set(pd.read_csv(args.out)[["model", "seed"]].itertuples(index=False, name=None)) if args.out.exists() else set()
    todo = [one for one in [*models, ("none", 0, args.weights[0])] if one[:2] not in done]
    print(f"{len(todo)} models to score, about {len(todo) * MINUTES / 60:.2f} hours", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    data = load("scattered_digits", n=IMAGES, seed=1)
    for one in todo:
        rows = pd.DataFrame(score_file(*one, data))  # all rows of a model at once
        rows.to_csv(args.out, mode="a", header=not args.out.exists(), index=False, float_format="%.4f")
        print(*one, flush=True)
    stored = pd.read_csv(args.out)
    for table in (summarize_scores(stored).drop(columns="each"), compare_methods(stored)):
        print(f"\n{table.to_string(float_format='{:.3f}'.format)}")
    print(f"\nrows: {args.out}")


def score_file(kind: str, seed: int, path: Path, data: Data) -> Iterator[dict[str, Any]]:
    """The rows of the model in a file, of an untrained one of its shape, or of the controls, which need neither"""
    loaded = load_weights(path)
    model, test, normalize = loaded.model, data.test, loaded.preprocess.normalize
    own: Any = test.boxes
    if kind == "untrained":
        set_seed(seed)
        model = ViT(model.config)
        head = model.get_parameter("head.weight")
        torch.nn.init.normal_(head, std=0.02)  # from a head of zeros no class has a gradient
    logits, labels = predict(model, Batches(test, 250, normalize))
    made = {"right": pack(logits.argmax(dim=1) == labels), "machine": processor(), "date": date.today().isoformat()}
    for method, draw in (CONTROLS if kind == "none" else METHODS).items():
        maps, row = maps_of(draw, model, test, normalize), {"model": kind, "seed": seed, "method": method, **made}
        for end, boxes in (("", own), ("_other", own.roll(1, 0))):
            found = localization_scores(maps, boxes, model.config.patch_size)
            row |= {f"inside{end}": found["inside"].mean().item()} | {s + end: pack_scores(found[s]) for s in SCORES}
        yield row


if __name__ == "__main__":
    raise SystemExit(main())
