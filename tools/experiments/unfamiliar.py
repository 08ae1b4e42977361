"""Measure how sure a classifier of photos is of images that it should know, and of others.

Each row is about one kind of image: the mean largest probability, the share of images with one
above 0.9, the share that is farther from all classes than the limit in the file of weights, and for
photos of known classes the accuracy and the expected calibration error (the mean difference between
probability and accuracy over 15 bins, Guo et al., arXiv 1706.04599).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import v2

from tools import main
from tools.experiments.measuring import add_out, store
from vit_helpers.data import load, photos
from vit_helpers.pretrained import Pretrained, load_pretrained
from vit_helpers.pretrained.calibration import Familiarity, load_familiarity
from vit_helpers.training import set_seed
from vit_helpers.training.presets import RunSettings, load_data

COUNT = 500  # images of each made-up kind


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--weights", default="ours:photos", help="as for `load_pretrained` (default: ours:photos)"
    )
    parser.add_argument(
        "--photos",
        default="cifar10",
        help="their data set, as for `tools.pretrain` (default: cifar10)",
    )
    add_out(parser, "unfamiliar.csv")


def run(args: Namespace) -> None:
    pretrained, familiarity = load_pretrained(args.weights), load_familiarity(args.weights)
    if familiarity is None:
        raise ValueError(f"{args.weights} does not say which images are familiar")
    table = store(
        (measure(pretrained, familiarity, *kind) for kind in kinds(pretrained, args.photos)),
        args.out,
    )
    print(f"{table.round(3).to_string(index=False)}\n\nrows: {args.out}")


def kinds(pretrained: Pretrained, name: str) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """The name of each kind, images (n, 3, S, S) from 0 to 1, and labels of known classes"""
    set_seed(0)
    side = pretrained.preprocess.crop[0]
    enlarge = partial(F.interpolate, size=side, mode="bicubic", antialias=True)
    data = load_data(RunSettings(data=name, shape={"image_size": side}))
    for split in ("validation", "test"):
        yield split, data.get_split(split).images, data.get_split(split).labels
    crop = v2.RandomResizedCrop(side, scale=(0.3, 1.0), antialias=True)
    for photo, image in photos().items():
        yield photo, torch.stack([crop(image) for _ in range(COUNT // 5)]), None
    yield "digits", enlarge(load("digits").test.images).clamp(0, 1).expand(-1, 3, -1, -1), None
    yield "noise", torch.rand(COUNT, 3, side, side), None
    yield "smooth noise", enlarge(torch.rand(COUNT, 3, 5, 5)).clamp(0, 1), None
    yield "one color", torch.rand(COUNT, 3, 1, 1).expand(-1, -1, side, side), None
    yield "stripes", stripes(side), None


def stripes(side: int) -> Tensor:
    """Waves of random direction and length between two random colors: (COUNT, 3, side, side)"""
    x, y = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy")
    angle = torch.pi * torch.rand(COUNT)
    length = 3 + 13 * torch.rand(COUNT)
    first, second = torch.rand(2, COUNT, 3, 1, 1)
    across = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    wave = 0.5 + 0.5 * (2 * torch.pi * across / length[:, None, None]).sin()[:, None]
    return wave * first + (1 - wave) * second


@torch.no_grad()
def measure(
    pretrained: Pretrained,
    familiarity: Familiarity,
    kind: str,
    images: Tensor,
    labels: Tensor | None,
) -> dict[str, Any]:
    """A row of the table"""
    model, parts = pretrained.model, pretrained.preprocess.normalize(images).split(COUNT)
    features = torch.cat([model.pool(model.forward_features(x)) for x in parts])
    largest, predicted = model.head(features).softmax(dim=1).max(dim=1)
    row = {"kind": kind, "images": len(images), "probability": largest.mean().item()}
    row |= {"above 0.9": (largest > 0.9).float().mean().item()}
    row |= {
        "unfamiliar": (familiarity.distance(features) > familiarity.limit).float().mean().item()
    }
    right = torch.full_like(largest, torch.nan) if labels is None else (predicted == labels).float()
    errors = torch.zeros(15).index_add(
        0, (15 * largest).long().clamp(max=14), right - largest
    ) / len(images)
    return row | {"accuracy": right.mean().item(), "calibration error": errors.abs().sum().item()}


if __name__ == "__main__":
    raise SystemExit(main())
