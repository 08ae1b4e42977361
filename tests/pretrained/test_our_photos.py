"""The stored model of photos: its file, what it has seen, and what it predicts."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from vit_helpers.data import Batches, load, photos, subset
from vit_helpers.data.digits import cat
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import OURS
from vit_helpers.training import evaluate

STORED = OURS / "photos.safetensors"


def test_the_stored_model_without_cats_and_dogs_has_not_seen_them():
    notes, kept = read_notes(OURS / "eight.safetensors"), load_pretrained("ours:eight")
    every = load_pretrained("ours:photos").class_names
    assert kept.class_names == tuple(name for name in every if name not in ("cat", "dog"))
    assert (
        notes["command"] == "python -m tools.pretrain eight --photos folder:cifar10_jpeg --seed 0"
    )


def test_the_stored_file_is_small_and_complete():
    notes, (model, preprocess, names) = read_notes(STORED), load_pretrained("ours:photos")
    assert STORED.stat().st_size < 2.5e6
    assert sum(p.numel() for p in model.parameters()) == 1_205_642
    assert preprocess.crop == (32, 32) and len(names) == 10 and "cat" in names
    assert (
        notes["command"] == "python -m tools.pretrain photos --photos folder:cifar10_jpeg --seed 0"
    )
    assert float(notes["minutes"]) <= 100 and float(notes["test accuracy"]) > 0.83


def test_500_validation_images_are_classified():
    place = Path(os.environ.get("VIT_HELPERS_DATA", "")) / "cifar10_jpeg"
    if not (place / "train").is_dir():
        pytest.skip(
            "needs the photos that the model was trained on, "
            "as VIT_HELPERS_DATA/cifar10_jpeg/train/CLASS/*.jpg"
        )
    data = load(f"folder:{place}", image_size=32)
    hashes = [
        hashlib.sha256(image.numpy().tobytes()).hexdigest() for image in data.validation.pixels
    ]
    rows = torch.tensor(sorted(range(len(hashes)), key=hashes.__getitem__)[:500])
    model, preprocess, _ = load_pretrained("ours:photos")
    accuracy = evaluate(
        model, Batches(subset(data.validation, rows), 100, preprocess.normalize)
    ).accuracy
    stored = float(read_notes(STORED)["validation accuracy"])
    assert abs(accuracy - stored) < 3 * (stored * (1 - stored) / 500) ** 0.5


PROBABILITIES = {"cat": 0.852, "china": 0.007, "flower": 0.444}  # of the cat


def test_photos_have_the_same_probabilities_on_every_machine():
    pictures, model = {"cat": cat(), **photos()}, load_pretrained("ours:photos")
    for name, picture in pictures.items():
        found = dict(model.top(picture, 10))
        assert found["cat"] == pytest.approx(PROBABILITIES[name], abs=0.005), name
