"""Measure how to augment photos of one's own: the crop that is the default, and three others.

Every training has the settings that `train` would have for such photos (folder_runs.toml), except
for the augmentation. Within a case and seed, all four learn from the same photos and start from the
same weights. The last weights are evaluated on new photos, which decide nothing. `photos` was
chosen with `--choosing`, which has other seeds and other new photos. Finished trainings are kept in
a CSV file, and the same command goes on where it stopped.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torchvision.transforms import v2

from tools import main
from tools.experiments.folder_runs import CASES, add_cases, prepare
from tools.experiments.measuring import add_out, find_or_measure, markdown_table
from vit_helpers.data.augment import augment_photos, crop, mixup
from vit_helpers.scaling.timing import processor
from vit_helpers.training import evaluate, fit
from vit_helpers.training.presets import with_tta

PHOTOS = sorted(
    (name for name, case in CASES.items() if "photos" in case), key=lambda n: CASES[n]["photos"]
)
CHOOSING = 100  # the first seed of the trainings that choose


def per_image(*steps: v2.Transform) -> Callable[[Tensor], Tensor]:
    transform = v2.Compose(steps)
    return lambda images: torch.stack([transform(image) for image in images])


def resized(side: int, smallest: float) -> v2.Transform:
    return v2.RandomResizedCrop(side, scale=(smallest, 1.0))


def light(images: Tensor) -> Tensor:
    """A part of the image, resized, and other colors; not mirrored"""
    return per_image(resized(images.shape[3], 0.5), v2.ColorJitter(0.2, 0.2, 0.2))(images)


def strong(images: Tensor) -> Tensor:
    """As DeiT's, with mixup beside it"""
    return per_image(
        resized(images.shape[3], 0.25),
        v2.RandomHorizontalFlip(),
        v2.RandAugment(2, 9),
        v2.RandomErasing(0.25),
    )(images)


CANDIDATES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {  # True for mixup
    "crop": (crop, False),
    "light": (light, False),
    "photos": (augment_photos, False),
    "strong": (strong, True),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_cases(parser, PHOTOS)
    parser.add_argument(
        "--augment", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), help="which"
    )
    parser.add_argument("--choosing", action="store_true", help="other seeds, other new photos")
    parser.add_argument("--precision", default="float32", help="float32 (default) or bfloat16")
    add_out(parser, "photo_augmentation.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    first = CHOOSING if args.choosing else 0
    for seed, case, name in product(range(first, first + args.seeds), args.cases, args.augment):
        train = partial(train_once, args.photos, args.precision)
        find_or_measure(args.out, train, case=case, augment=name, seed=seed)
    print(markdown_table(summarize(pd.read_csv(args.out))))
    print(f"\nrows: {args.out}")


def train_once(photos: str, precision: str, case: str, augment: str, seed: int) -> dict[str, Any]:
    """One training, and the accuracy of its last weights on new photos."""
    settings, data, model = prepare(CASES[case], photos, seed, part=int(seed >= CHOOSING))
    transform, mixed = CANDIDATES[augment]
    mix = partial(mixup, num_classes=len(data.class_names)) if mixed else None
    batches = data.batches("train", settings.batch_size, shuffle=True, augment=transform, mix=mix)
    fit(model, batches, None, replace(settings.recipe, precision=precision), callbacks=[])
    score = evaluate(with_tta(model, settings), data.batches("test", 500))
    return {
        "train_images": len(data.train),
        "new_images": len(data.test),
        "accuracy": round(score.accuracy, 4),
        "precision": precision,
        "machine": f"{processor()}, 1 thread, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """For each case: mean accuracy with crops, and the others' difference from it (s.e.), points"""
    lines = []
    for case, rows in table.groupby("case", sort=False):
        accuracy = rows.pivot(index="seed", columns="augment", values="accuracy")
        accuracy = accuracy[[name for name in CANDIDATES if name in accuracy]]
        line = {"case": case, "seeds": len(accuracy), "crop": f"{accuracy['crop'].mean():.3f}"}
        for name in accuracy.columns.drop("crop"):
            effect = 100 * (accuracy[name] - accuracy["crop"])
            line[name] = f"{effect.mean():+.1f} ({effect.sem():.1f})"
        lines.append(line)
    return pd.DataFrame(lines)


if __name__ == "__main__":
    raise SystemExit(main())
