"""Train the model of the live page, `ours:drawn`, and report how well it reads new strokes.

It is trained on drawn strokes (`strokes`), on scribbles, which have no correct answer, and on
handwritten digits of scikit-learn. The recipe was chosen on other strokes (`strokes_choosing`) and
other handwritten digits. The report is about strokes that share neither shapes nor code with those
(`strokes_frozen`), and about a third part of the digits.
"""

import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from tools import main
from tools.experiments import strokes_choosing, strokes_frozen
from tools.experiments.measuring import add_out, store
from tools.experiments.strokes import draw_digit, draw_scribble
from vit_helpers.data.augment import random_affine
from vit_helpers.data.digits import every_digit
from vit_helpers.data.splits import Batches, Split, mean_and_std
from vit_helpers.live.ink import reduce_ink
from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.pretrained.files import Pretrained
from vit_helpers.training import Report, fit, set_seed
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig

SETTINGS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# scikit-learn's 1,797 digits come from 14 copies of one sheet: the same sequence of about 130
# digits, each time in one hand
SHEETS = {"training": slice(0, 1157), "choosing": slice(1157, 1415), "frozen": slice(1415, 1797)}
COUNTS = {"choosing": 60, "frozen": 20}  # drawings of each digit, and of each kind
Drawing = tuple[Any, str, int]  # (H, W) from 0 to 1, the kind, the digit (-1: none)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--choosing", action="store_true", help="report on the strokes for choosing recipes"
    )
    parser.add_argument(
        "--weights", type=Path, default=Path("weights"), help="their folder (default: weights)"
    )
    add_out(parser, "drawn.csv", seeds=3)


def run(args: Namespace) -> None:
    drawings = drawings_for("choosing" if args.choosing else "frozen")
    table = store(
        (
            row
            for seed in range(args.seeds)
            for row in train_and_score(seed, drawings, args.weights)
        ),
        args.out,
    )
    digits, scribbles = table[table["digit"] >= 0], table[table["digit"] < 0]
    print("mean and standard deviation over the seeds; of digits, then of scribbles")
    for rows, column, by in (
        (digits, "accuracy", "kind"),
        (digits, "accuracy", "digit"),
        (digits, "confidence", "kind"),
        (scribbles, "confidence", "kind"),
    ):
        print(f"{column} by {by}\n{over_seeds(rows, by, column).to_string()}\n")
    print(f"rows: {args.out}")


def drawings_for(part: str) -> list[Drawing]:
    """All drawings for one purpose.

    choosing: to compare recipes: 60 strokes of each digit, 60 scribbles, two sheets of digits
    frozen  : to test the model: 20 strokes of each kind and digit, 200 scribbles, three sheets
    """
    count = COUNTS[part]
    strokes = (
        strokes_frozen.drawings(count)
        if part == "frozen"
        else strokes_choosing.drawings(SETTINGS[part], count)
    )
    return reduced(chain(handwriting(part), strokes))


def reduced(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Drawings of any size as the pixels (16, 16) that the model reads"""
    return [
        (reduce_ink(torch.as_tensor(ink).float().clamp(0, 1)), kind, digit)
        for ink, kind, digit in drawings
    ]


def over_seeds(table: pd.DataFrame, by: str, column: str) -> pd.DataFrame:
    """Mean and standard deviation over the seeds of a column's mean, for each value of another"""
    total = (
        table.assign(total=table[column] * table["images"])
        .groupby([by, "seed"], sort=False)[["total", "images"]]
        .sum()
    )
    return (
        (total["total"] / total["images"])
        .groupby(level=by, sort=False)
        .agg(["mean", "std"])
        .round(4)
    )


def train_and_score(seed: int, drawings: list[Drawing], folder: Path) -> Iterator[dict[str, Any]]:
    """Train with a seed, store the weights, and yield a row for every kind and digit."""
    trained = train(seed)
    save_weights(folder / f"drawn-{seed}.safetensors", trained.model.half(), *trained[1:])
    trained.model.float()  # with the rounded weights
    yield from ({"seed": seed} | row for row in score(trained, drawings))


def train(seed: int) -> Pretrained:
    """A model trained with this seed, which decides the drawings too"""
    set_seed(seed)
    images, targets = training_images(np.random.default_rng(seed), **SETTINGS["images"])
    set_seed(seed)  # again: however many drawings there are, a seed begins with the same weights
    preprocess = Preprocess((16, 16), (16, 16), "bicubic", *mean_and_std(images))
    batches = Batches(
        Split(images, targets), 128, preprocess.normalize, shuffle=True, augment=augment
    )
    model = ViT(ViTConfig(**SETTINGS["model"]))
    fit(
        model,
        batches,
        None,
        Recipe(**SETTINGS["recipe"]),
        callbacks=[Report(lambda epoch: print(f"seed {seed}", epoch, flush=True))],
    )
    return Pretrained(model.eval(), preprocess, tuple("0123456789"))


def augment(images: Tensor) -> Tensor:
    """Move images (B, 1, H, W) a little, with fainter ink, and one in five as coarse as 8 x 8"""
    moved = random_affine(images, degrees=3, scale=0.05) * torch.empty(
        len(images), 1, 1, 1
    ).uniform_(0.75, 1)
    return torch.where(
        torch.rand(len(images), 1, 1, 1) < 0.2,
        F.interpolate(F.avg_pool2d(moved, 2), scale_factor=2),
        moved,
    )


def training_images(
    rng: np.random.Generator, strokes: int, scribbles: int, digits: int
) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 16, 16) and targets (n, 10): a digit, or for a scribble all ten alike"""
    drawn = (draw_digit(SETTINGS["training"][str(i % 10)], rng) for i in range(strokes))
    canvases = chain(drawn, (draw_scribble(rng) for _ in range(scribbles)))
    written, labels = zip(*((ink, digit) for ink, _, digit in handwriting("training")), strict=True)
    rows = torch.randint(len(written), (digits,))
    inks = torch.stack(written)[rows]
    mixed = (
        old if i % 3 == 0 else new
        for i, (old, new) in enumerate(zip(inks, rewrite(inks), strict=True))
    )
    # first: small tensors between large ones fragment memory
    images = torch.empty(strokes + scribbles + digits, 1, 16, 16)
    for image, ink in zip(
        images, chain((torch.tensor(np.array(x)) / 255 for x in canvases), mixed), strict=True
    ):
        image[0] = reduce_ink(ink)
    targets = [F.one_hot(torch.arange(strokes) % 10, 10), torch.full((scribbles, 10), 0.1)]
    return images, torch.cat([*targets, F.one_hot(torch.tensor(labels)[rows], 10)])


def handwriting(part: str) -> Iterator[tuple[Tensor, str, int]]:
    """Digits of scikit-learn as drawings (8, 8), whole sheets of them"""
    digits, rows = every_digit(), SHEETS[part]
    for image, digit in zip(digits.images[rows, 0], digits.labels[rows].tolist(), strict=True):
        yield image, "handwriting", digit


def rewrite(inks: Tensor, side: int = 48) -> Tensor:
    """Handwritten digits as other hands and pens would have made them: (n, 8, 8) -> (n, 48, 48)

    Each gets its own slant, width, rotation and thickness; the thickness comes from the level at
    which gray becomes ink.
    """
    n, ranges = len(inks), ((-0.3, 0.3), (0.75, 1.35), (-12, 12), (0.2, 0.65), (3, 12))
    slant, width, degrees, level, sharpness = (torch.empty(n).uniform_(*ends) for ends in ranges)
    angle = torch.deg2rad(degrees)
    zero, cos, sin = torch.zeros(n), angle.cos(), angle.sin()
    affine = torch.stack([cos * width, sin + slant, zero, -sin * width, cos, zero], 1)
    large = F.interpolate(F.pad(inks[:, None], [3] * 4), size=side, mode="bicubic")
    grid = F.affine_grid(affine.view(n, 2, 3), list(large.shape), align_corners=False)
    moved = F.grid_sample(large, grid, align_corners=False)
    moved = moved / moved.amax((1, 2, 3), keepdim=True)
    sharp = torch.sigmoid((moved[:, 0] - level[:, None, None]) * sharpness[:, None, None])
    return torch.where(
        torch.rand(n, 1, 1) < 0.3, moved[:, 0].clamp(0, 1), sharp * (moved[:, 0] > 0.05)
    )


@torch.no_grad()
def score(trained: Pretrained, drawings: Iterable[Drawing]) -> Iterator[dict[str, Any]]:
    """For every kind and digit: how many there are and are read, mean largest probability"""
    pixels, kinds, digits = zip(*drawings, strict=True)
    images = torch.stack(pixels)[:, None]
    confidence, read = trained.model(trained.preprocess.normalize(images)).softmax(dim=1).max(dim=1)
    right = read == torch.tensor(digits)
    table = pd.DataFrame(
        {"kind": kinds, "digit": digits, "images": 1, "accuracy": right, "confidence": confidence}
    )
    means = table.groupby(["kind", "digit"], sort=False).agg(
        {"images": "sum", "accuracy": "mean", "confidence": "mean"}
    )
    yield from means.reset_index().to_dict("records")


if __name__ == "__main__":
    raise SystemExit(main())
