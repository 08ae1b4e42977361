"""Measure how similar the position embeddings of neighbors are, by how images move in training.

The model of notebook 02 is trained on digits of 12 x 12 pixels: without augmentation (none), with
the rotation and scaling of `random_affine` (no shift), and with its shift of up to 2 pixels as well
(shift). Each row holds the mean cosine between position embeddings one patch apart (beside) and
more than three apart (far). The control is the model before training.
"""

from argparse import ArgumentParser, Namespace
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from tools import main
from tools.experiments.measuring import add_out, print_means, store
from vit_helpers.data import Batches, Split, load, random_affine
from vit_helpers.inspection import position_similarity
from vit_helpers.training import Recipe, evaluate, fit, set_seed
from vit_helpers.vit import ViT, ViTConfig

EPOCHS = 12
AUGMENT = {
    "none": None,
    "no shift": partial(random_affine, shift=0.0),
    "shift": partial(random_affine, shift=2.0),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_out(parser, "halo.csv", seeds=10)


def run(args: Namespace) -> None:
    table = store(
        (train_once(*case) for case in product(("untrained", *AUGMENT), range(args.seeds))),
        args.out,
    )
    print_means(table, ["augmentation"], ["accuracy", "beside", "far"], args.out)


def train_once(kind: str, seed: int) -> dict[str, Any]:
    """Train one model, unless it is to stay untrained, and compare its position embeddings."""
    data = load("digits")
    resize = partial(F.interpolate, size=12, mode="bicubic", antialias=True)
    train, validation = (
        Split(resize(split.images).clamp(0, 1), split.labels)
        for split in (data.train, data.validation)
    )
    set_seed(seed)
    model = ViT(ViTConfig.from_name("mini/2", image_size=12, in_chans=1, num_classes=10))
    held_out = Batches(validation, 512, data.normalize)
    if kind in AUGMENT:
        batches = Batches(train, 64, data.normalize, shuffle=True, augment=AUGMENT[kind])
        fit(model, batches, held_out, Recipe(epochs=EPOCHS), callbacks=[])
    return {
        "augmentation": kind,
        "seed": seed,
        "accuracy": evaluate(model, held_out).accuracy,
    } | similarity(model)


def similarity(model: ViT) -> dict[str, float]:
    """Mean cosine between the position embeddings of patches, beside each other and far apart."""
    cosine = position_similarity(model.get_parameter("token_embed.pos_embed"), (6, 6)).reshape(
        36, 36
    )
    places = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))
    distance = torch.cdist(places, places)
    return {
        "beside": cosine[distance == 1].mean().item(),
        "far": cosine[distance > 3].mean().item(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
