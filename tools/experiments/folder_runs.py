"""Trainings with the settings that `train` would have for a folder of photos, and the like."""

import tomllib
from argparse import ArgumentParser
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vit_helpers.cli.fine_tuning import adapt, load_data_for, load_start, scale_lr
from vit_helpers.data import Data
from vit_helpers.data.splits import subset
from vit_helpers.training import set_seed
from vit_helpers.training.presets import RunSettings, load_data, make_network, preset

CASES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
NEW = 1000  # images that decide nothing


def add_cases(parser: ArgumentParser, cases: list[str]) -> None:
    """Add the options of a tool that trains on photos: --cases and --photos."""
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases, help="which")
    parser.add_argument(
        "--photos",
        default="cifar10",
        help="cifar10, to be downloaded, or folder:PATH (default: cifar10)",
    )


def prepare(
    case: dict[str, Any], photos: str, seed: int, part: int = 0
) -> tuple[RunSettings, Data, nn.Module]:
    """The settings of a case, its images as in `settings_and_data`, and the model to be trained."""
    settings, data = settings_and_data(case, photos, seed, part)
    set_seed(seed)
    if not settings.weights:
        return settings, data, make_network(data, settings)
    start = load_start(settings)
    model = adapt(start, data, settings)
    return scale_lr(settings, start.model.config.embed_dim), data, model


def settings_and_data(
    case: dict[str, Any], photos: str, seed: int, part: int = 0
) -> tuple[RunSettings, Data]:
    """What `train` would do with the images of a case, which a seed draws for it.

    part: which thousand of the test images are the new ones
    """
    case = dict(case)
    images, classes = case.pop("photos", None), case.pop("classes", None)
    # the preset of any folder, also where the photos are downloaded
    settings = preset(**{**case, "data": "folder:photos" if images else case["data"], "seed": seed})
    data = load_all(photos if images else settings.data, 32 if images else None, settings.weights)
    if classes:
        data = data.filter_classes(*classes)
    order = torch.Generator().manual_seed(seed)
    count = images or case.get("images") or len(data.train)
    train = torch.randperm(len(data.train), generator=order)
    held_out = torch.randperm(len(data.validation), generator=order)
    if images:  # as `folder` divides it, but for its test split
        train, held_out = train[: round(0.7 * count)], held_out[: round(0.15 * count)]
    new = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))
    return settings, replace(
        data,
        train=subset(data.train, train[:count]),
        validation=subset(data.validation, held_out),
        test=subset(data.test, new[part * NEW :][:NEW]),
    )


@lru_cache(maxsize=2)
def load_all(name: str, image_size: int | None, weights: str | None) -> Data:
    """All images of a data set, as the weights want them; read once, for many trainings."""
    shape = {"image_size": image_size} if image_size else {}
    source = RunSettings(data=name, shape=shape)
    if weights is None:
        return load_data(source)
    return load_data_for(load_start(RunSettings(weights=weights)), source)
