"""Score Grad-CAM and other maps of gradients, and cover patches in the order that maps give them.

The models, the 1,000 test images and the scores are those of `tools.experiments.localization`, and
scores are of maps for the true class. For the deletion curves, maps are for the class that a model
predicts: the patches with the largest numbers are covered, and the answer stays the same or not.
File S, counted from 0, must hold the model of seed S. Finished maps are kept in a CSV file, and the
same command goes on where it stopped. All of it takes minutes, not hours.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools import main
from tools.experiments.localization import IMAGES, add_models
from tools.experiments.measuring import add_out, find_or_measure
from vit_helpers.data import Data, load
from vit_helpers.data.splits import Batches
from vit_helpers.inspection import (
    grad_cam,
    integrated_gradients,
    layer_cam,
    pixel_gradients,
    survival,
)
from vit_helpers.inspection.localization import (
    METHODS,
    Method,
    ink_map,
    localization_scores,
    maps_of,
)
from vit_helpers.pretrained import load_weights
from vit_helpers.results.localization import pack_scores
from vit_helpers.results.maps import COUNTS, pack_curve
from vit_helpers.scaling.timing import processor
from vit_helpers.training import predict, set_seed
from vit_helpers.vit import ViT


def cam_at(block: int, norm: str) -> Method:
    """Grad-CAM at a norm of a block, counted from 1"""

    def method(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
        return grad_cam(model, images, classes, model.blocks[block - 1].get_submodule(norm))

    return method


def nearest_the_center(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    """Larger where a patch is nearer to the center, whatever the image"""
    rows, cols = ((torch.arange(n) - (n - 1) / 2).square() for n in model.config.grid)
    squares = rows[:, None] + cols
    return (squares.max() - squares).expand(len(images), -1, -1)


def random_map(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    """Random numbers, the same for the same images"""
    draws = torch.Generator().manual_seed(int(1000 * images.abs().sum().item()))
    return torch.rand(len(images), *model.config.grid, generator=draws)


CAM = "Grad-CAM, block 4"
OF_GRADIENTS: dict[str, Method] = {
    **{f"Grad-CAM, block {block}": cam_at(block, "norm1") for block in (4, 3, 2, 1)},
    **{f"Grad-CAM, norm2, block {block}": cam_at(block, "norm2") for block in (3, 2, 1)},
    "LayerCAM": layer_cam,
    "pixel gradients": pixel_gradients,
    "integrated gradients": partial(integrated_gradients, steps=8),
}
WITHOUT_MODEL: dict[str, Method] = {
    **{f"ink, Gaussian {width:g}": partial(ink_map, width=width) for width in (0.5, 1, 2)},
    "nearest the center": nearest_the_center,
    "random": random_map,
}
COVERED = [  # maps whose patches are covered
    *("attention, last block", "rollout", "gradient rollout", "occlusion", CAM, "LayerCAM"),
    *("pixel gradients", "integrated gradients", "ink, Gaussian 1", "nearest the center", "random"),
]
ALL = {**METHODS, **OF_GRADIENTS, **WITHOUT_MODEL}


def add_arguments(parser: ArgumentParser) -> None:
    add_models(parser)
    add_out(parser, "maps.csv")


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    data = load("scattered_digits", n=IMAGES, seed=1)
    for seed, path in enumerate(args.weights):
        trained = [name for name in ALL if name not in WITHOUT_MODEL and name in COVERED]
        trained += [name for name in OF_GRADIENTS if name not in trained]
        kinds = {"trained": trained, "none": WITHOUT_MODEL, "untrained": [CAM]}
        for model, method in [(kind, name) for kind, names in kinds.items() for name in names]:
            measure = partial(measure_map, path, data)
            find_or_measure(args.out, measure, model=model, seed=seed, method=method)
    print(f"\nrows: {args.out}")


def measure_map(path: Path, data: Data, model: str, seed: int, method: str) -> dict[str, Any]:
    """A map's scores by the boxes, and what is left of the predictions when patches are covered"""
    loaded, test = load_weights(path), data.test
    network, normalize = loaded.model, loaded.preprocess.normalize
    assert test.boxes is not None, "scattered digits have boxes"
    if model == "untrained":
        set_seed(seed)
        network = ViT(network.config)
        head = network.get_parameter("head.weight")
        torch.nn.init.normal_(head, std=0.02)  # from a head of zeros no class has a gradient
    maps = maps_of(ALL[method], network, test, normalize)
    found = localization_scores(maps, test.boxes, network.config.patch_size)
    row: dict[str, Any] = {
        "inside": round(found["inside"].mean().item(), 4),
        "rank": round(found["rank"].mean().item(), 4),
        "pointing_game": pack_scores(found["pointing_game"]),
        "curve": "",
        "survived": "",
    }
    if method in COVERED and model != "untrained":
        logits, _ = predict(network, Batches(test, 250, normalize))
        maps = maps_of(ALL[method], network, replace(test, labels=logits.argmax(dim=1)), normalize)
        kept = torch.cat(
            [
                survival(network, normalize(images), batch, COUNTS)
                for images, batch in zip(test.images.split(250), maps.split(250), strict=True)
            ],
            dim=1,
        )  # (counts, n)
        row |= {"curve": pack_curve(kept.mean(dim=1)), "survived": pack_scores(kept.mean(dim=0))}
    return row | {"machine": processor(), "date": date.today().isoformat()}


if __name__ == "__main__":
    raise SystemExit(main())
