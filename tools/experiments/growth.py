"""Train a ViT and a CNN of equal cost on more and more images of Fashion-MNIST, each tuned.

Both spend as many multiply-adds on an image, to 2%. Both are tuned by the same twelve trials (four
learning rates, three decays, validation split), of which the best two are repeated with two more
seeds: at 1,000 images for up to 2,000, at 5,000, and at 20,000 for more. For each number of images
the passes are doubled until validation gains less than 0.2 points (mean of three seeds, above 5,000
images one), and those are the passes of all seeds. Finished runs are kept in a CSV file, with their
test accuracy, and the same command goes on where it stopped. `--tuned-at` is a control: it uses the
settings from one number of images for all of them, and trains only what differs. (Three seeds
cannot tell 0.2 points for certain.)
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from tools import main
from vit_helpers.ablation.comparison import line_of, paired
from vit_helpers.ablation.rows import read_runs
from vit_helpers.ablation.runs import fill_table, kept_rows
from vit_helpers.scaling.timing import processor
from vit_helpers.training.presets import RunSettings

NETWORKS: dict[str, dict[str, Any]] = {
    "ViT": {"network": "vit"},
    "CNN": {"network": "cnn", "width": 29},
}
SEEDS = {500: 5, 1000: 5, 2000: 5, 5000: 5, 20_000: 5, 55_000: 2}  # of each number of images
START = {500: 40, 1000: 40, 2000: 20, 5000: 20, 20_000: 20, 55_000: 10}  # passes that are doubled
# images of the trials
TUNED_AT = {
    500: 1000,
    1000: 1000,
    2000: 1000,
    5000: 5000,
    20_000: 20_000,
    55_000: 20_000,
}
TRIAL_PASSES = {1000: 40, 5000: 40, 20_000: 20}
EPOCHS, GAIN, MOST, FEW = 5, 0.002, 1280, 5000
TRIALS = [
    {"lr": lr, "weight_decay": decay}
    for lr in (1e-3, 3e-3, 1e-2, 3e-2)
    for decay in (0.05, 0.3, 1.0)
]
COMMON = {"data": "fashion_mnist", "model": "mini/7", "augment": "flip", "epochs": EPOCHS}


@dataclass(frozen=True)
class Trainer:
    """Trains what is not in the CSV file yet, or with `only_read` raises LookupError."""

    path: Path
    only_read: bool = False

    def rows(
        self, name: str, settings: dict[str, Any], seeds: Iterable[int]
    ) -> list[dict[str, Any]]:
        """The rows of a change, one for each seed"""
        runs = [
            (name, seed, RunSettings.from_dict({**COMMON, **settings, "seed": seed}))
            for seed in seeds
        ]
        if self.only_read and len(kept_rows(runs, self.path, test=True)) < len(runs):
            raise LookupError(name)
        return fill_table(runs, self.path, partial(print, flush=True), 1, True, processor())

    def score(self, name: str, settings: dict[str, Any], seeds: int = 1) -> float:
        """The mean validation accuracy of the first seeds"""
        return mean(row["accuracy"] for row in self.rows(name, settings, range(seeds)))


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("growth.csv"), help="the CSV file (default: growth.csv)"
    )
    parser.add_argument(
        "--images", type=int, nargs="+", choices=SEEDS, default=list(SEEDS), help="(default: all)"
    )
    parser.add_argument(
        "--tuned-at",
        type=int,
        choices=TRIAL_PASSES,
        help="use the settings of these trials everywhere",
    )
    parser.add_argument("--show", action="store_true", help="train nothing, show what is stored")


def run(args: Namespace) -> None:
    trainer, lines = Trainer(args.out, args.show), []
    print("about 6 hours of one thread, if nothing is stored yet")
    try:
        usual = {images: TUNED_AT[images] for images in args.images}
        used = {images: args.tuned_at or count for images, count in usual.items()}
        tuned = {count: tune(trainer, count) for count in sorted({*usual.values(), *used.values()})}
        for images in args.images:
            recipes, note = tuned[used[images]], f", tuned at {used[images]:,} images"
            others = [
                network for network in NETWORKS if recipes[network] != tuned[usual[images]][network]
            ]
            lines.append(compare_at(trainer, images, recipes, dict.fromkeys(others, note)))
    except LookupError as error:
        print(f"not trained yet: {error}")
    print(f"\n{pd.DataFrame(lines).to_string(index=False, float_format='{:.4f}'.format)}")
    rows = read_runs(args.out)
    hours = rows["seconds"].sum() / 3600
    print(f"\n{len(rows)} runs in {args.out}, {hours:.1f} hours of training, one thread each")


def tune(trainer: Trainer, images: int) -> dict[str, dict[str, Any]]:
    """For each network the better of two trials, by the mean validation accuracy of three seeds"""

    def score(trial: dict[str, Any], seeds: int = 1) -> float:
        name = f"{network}, trial at {images:,} images: "
        name += f"rate {trial['lr']:g}, decay {trial['weight_decay']:g}"
        settings = {**NETWORKS[network], "images": images, "repeat": TRIAL_PASSES[images] // EPOCHS}
        return trainer.score(name, settings | trial, seeds)

    best = {}
    for network in NETWORKS:
        best[network] = max(sorted(TRIALS, key=score)[-2:], key=partial(score, seeds=3))
        print(f"{network}, at {images:,} images: tuned to {best[network]}")
    return best


def run_of(
    network: str, images: int, passes: int, tuned: dict[str, Any], note: str
) -> tuple[str, dict[str, Any]]:
    """The name of a change, which ends with a note about its settings, and the settings"""
    name = f"{network}, {images:,} images, {passes} passes{note}"
    return name, {**NETWORKS[network], "images": images, "repeat": passes // EPOCHS, **tuned}


def long_enough(
    trainer: Trainer, network: str, images: int, tuned: dict[str, Any], note: str
) -> int:
    """The passes after which twice as many gain less than GAIN in validation, at most MOST"""
    seeds = min(3, SEEDS[images]) if images <= FEW else 1

    def score(passes: int) -> float:
        return trainer.score(*run_of(network, images, passes, tuned, note), seeds)

    passes = START[images]
    while 2 * passes <= MOST and score(passes) + GAIN <= score(2 * passes):
        passes *= 2
    return passes


def compare_at(
    trainer: Trainer, images: int, tuned: dict[str, Any], notes: dict[str, str]
) -> dict[str, Any]:
    """Train both networks on so many images, and compare them on the test split."""
    line, names = dict[str, Any](images=images), dict[str, str]()
    for network, recipe in tuned.items():
        note = notes.get(network, "")
        passes = long_enough(trainer, network, images, recipe, note)
        names[network], settings = run_of(network, images, passes, recipe, note)
        rows = pd.DataFrame(trainer.rows(names[network], settings, range(SEEDS[images])))
        means = rows[["train_accuracy", "accuracy", "test_accuracy"]].mean()
        short = dict(zip(("train", "validation", "test"), means, strict=True))
        line |= {
            f"{network} passes": passes,
            **{f"{network} {name}": value for name, value in short.items()},
        }
    gap = line_of(paired(read_runs(trainer.path), names["CNN"], names["ViT"], "test_right"))
    errors = {f"error of {name}": gap[name] for name in ("seeds", "images", "both")}
    return line | {
        "CNN less ViT, test": gap["difference"],
        **errors,
        "low": gap["low"],
        "high": gap["high"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
