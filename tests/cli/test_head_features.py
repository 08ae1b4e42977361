"""`train --tune head`: features of the frozen backbone are computed once, in a few views."""

import contextlib
import shutil
from pathlib import Path

import pytest
import torch
from commands import command

from vit_helpers import ViT, ViTConfig
from vit_helpers._files import tensor_digest
from vit_helpers.cli import head_features
from vit_helpers.cli.head_features import VIEWS, CachedFeatures, count_views
from vit_helpers.data import load
from vit_helpers.data.shards import write_shards
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import Preprocess, load_weights, save_weights
from vit_helpers.pretrained.files import load_tensors, read_notes
from vit_helpers.training.checkpoints import load_checkpoint
from vit_helpers.training.loop import start_run
from vit_helpers.training.presets import preset

pytestmark = pytest.mark.usefixtures("no_figures")
CONFIG = ViTConfig(8, 4, 1, 5, 32, 2, 4)
IMAGES = 150  # of training: five batches, of which the last is smaller
HEAD = ["--set", f"images={IMAGES}", "--weights", "start.safetensors", "--tune", "head"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a trained model of digits in it, and the digits as shards"""
    folder = tmp_path_factory.mktemp("head")
    torch.manual_seed(0)
    perturb(model := ViT(CONFIG), std=0.1)
    preprocess = Preprocess(8, (8, 8), "bilinear", (0.3,), (0.4,))
    save_weights(folder / "start.safetensors", model, preprocess, "abcde")
    write_shards(load("digits"), folder / "digits", 500)
    return folder


@pytest.fixture
def seen(monkeypatch):
    """How many images the backbone has seen, in a list of batches"""
    sizes, forward = [], ViT.forward_features

    def count(self, images, mask=None):
        sizes.append(len(images))
        return forward(self, images, mask)

    monkeypatch.setattr(ViT, "forward_features", count)
    return sizes


def train(home, out, *words):
    done = command("train", *HEAD, "--out", out, *words, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def content(file):
    """The notes and the tensors of a file, bit for bit"""
    return read_notes(file), tensor_digest(load_tensors(file), {})


def history(folder):
    return load_checkpoint(folder / "checkpoint.pt")["history"]


def prepare(settings, model=None):
    """Features for these settings, not yet computed, and the run that they are for"""
    data, model = load("digits"), model or ViT(CONFIG)
    features = CachedFeatures(model, data, settings, data.batches("validation", 64), "cpu", VIEWS)
    return features, start_run(features.head, settings.recipe, steps=1)


def settings(**changes):
    values = {"images": IMAGES, "batch_size": 32, "augment": "crop", "weights": "any"}
    return preset("digits", tune="head", **values | changes)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_view_trains_like_the_images_in_every_epoch(home, monkeypatch, precision):
    """In the same order and without augmentation: the same losses, and the same logits"""
    words = ["--augment", "none", "--epochs", 5, "--precision", precision]
    out = train(home, f"cached-{precision}", *words)
    assert "in one view" in out
    monkeypatch.setattr(head_features, "MEMORY", 0)
    out = train(home, f"anew-{precision}", *words)
    assert "each image is read once" not in out
    cached, anew = home / f"cached-{precision}", home / f"anew-{precision}"
    for one, other in zip(history(cached), history(anew), strict=True):
        assert one.train.loss == pytest.approx(other.train.loss, abs=1e-6)
        assert one.validation.loss == pytest.approx(other.validation.loss, abs=1e-6)
        assert one.validation.accuracy == other.validation.accuracy
        assert vars(one.evidence) == pytest.approx(vars(other.evidence), rel=1e-5)
    models = [load_weights(run / "weights.safetensors").model for run in (cached, anew)]
    images = load("digits").test.images
    assert largest_difference(*(model(images) for model in models)) < 1e-5
    assert models[0].head.weight.abs().max() > 1e-3


def test_the_backbone_sees_each_view_once(home, seen):
    data = load("digits")
    train(home, "counted", "--epochs", VIEWS + 3, "--augment", "crop")
    once = data.count("validation") + data.count("test")
    assert sum(seen) == VIEWS * IMAGES + once
    seen.clear()
    train(home, "short", "--epochs", 2, "--augment", "crop")
    assert sum(seen) == 2 * IMAGES + once
    seen.clear()
    assert command("train", "--resume", "counted", cwd=home).returncode == 0
    assert sum(seen) == data.count("test")  # no epoch is left to train


def test_views_differ_and_repeat():
    features, run = prepare(settings())
    features.on_fit_start(run)
    epochs = []
    for epoch in range(1, VIEWS + 2):
        features.train.set_epoch(epoch)
        rows, labels = map(torch.cat, zip(*features.train, strict=True))
        assert rows.shape == (IMAGES, CONFIG.embed_dim) and len(labels) == IMAGES
        epochs.append(rows[rows[:, 0].argsort()])  # each epoch has an order of its own
    assert torch.equal(epochs[0], epochs[VIEWS])
    for view in range(1, VIEWS):
        assert (epochs[0] - epochs[view]).abs().max() > 1e-3


def test_views_are_drawn_with_the_seed_of_the_run_alone():
    model = ViT(CONFIG)
    tables = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(tables))
        features, run = prepare(settings(seed=seed), model)
        before = torch.get_rng_state()
        features.on_fit_start(run)
        assert torch.equal(torch.get_rng_state(), before)
        tables.append([view.split.pixels for view in features.train.views])
    assert all(map(torch.equal, tables[0], tables[1]))
    assert not any(map(torch.equal, tables[0], tables[2]))


def test_features_are_those_of_the_frozen_model():
    """Also those of validation, although the model may be in training mode, with dropout"""
    features, run = prepare(settings(augment="none", dropout=0.5), model := ViT(CONFIG))
    perturb(model, std=0.1)
    model.token_embed.dropout.p = 0.5
    features.on_fit_start(run)
    first, second, *_ = (view.split.pixels for view in features.train.views)
    assert (first - second).abs().max() > 0.1 and model.training
    data = load("digits")
    images = data.normalize(data.validation.images)
    (view,) = features.validation.views
    expected = model.eval().forward_features(images)[:, 0]
    assert largest_difference(view.split.pixels, expected) < 1e-5
    assert torch.equal(view.split.labels, data.validation.labels)


def test_mixed_images_keep_their_soft_labels():
    features, run = prepare(settings(mix="mixup"))
    features.on_fit_start(run)
    _, labels = next(iter(features.train))
    assert labels.shape == (32, 10) and torch.allclose(labels.sum(1), torch.ones(32))
    # partners come from all classes, as the batches that are mixed are in a random order
    assert features.train.images.shuffle


def test_features_stay_within_their_memory(monkeypatch):
    data, numbers = load("digits"), 4 * (CONFIG.embed_dim + CONFIG.num_classes)
    assert count_views(settings(), CONFIG, data) == VIEWS
    assert count_views(settings(augment="none"), CONFIG, data) == 1
    assert count_views(settings(augment="none", dropout=0.1), CONFIG, data) == VIEWS
    assert count_views(settings(epochs=3), CONFIG, data) == 3
    for views in (0, 1, 2):
        room = numbers * (views * IMAGES + data.count("validation"))
        monkeypatch.setattr(head_features, "MEMORY", room)
        assert count_views(settings(), CONFIG, data) == views
        assert count_views(settings(repeat=2), CONFIG, data) == views // 2
        monkeypatch.setattr(head_features, "MEMORY", room - 1)
        assert count_views(settings(), CONFIG, data) == max(0, views - 1)


@pytest.mark.parametrize("words", [["--augment", "crop"], ["--data", "shards:digits"]])
def test_a_resumed_run_ends_bit_for_bit_like_one_never_stopped(home, tmp_path, words):
    copy = shutil.copytree(home, tmp_path / "copy")
    images = [] if "--data" in words else HEAD[:2]
    words = [*images, *HEAD[2:], *words, "--epochs", VIEWS + 2, "--out", "run"]
    assert command("train", *words, cwd=copy).returncode == 0
    whole = content(copy / "run" / "weights.safetensors")
    with contextlib.chdir(copy / "run"):
        Path("checkpoint.pt.previous").replace("checkpoint.pt")
        Path("weights.safetensors").unlink()
    assert command("train", "--resume", "run", cwd=copy).returncode == 0
    assert content(copy / "run" / "weights.safetensors") == whole


def test_an_error_leaves_the_model_in_training(monkeypatch):
    features, run = prepare(settings(), model := ViT(CONFIG))
    features.validation.images = [(torch.zeros(2, 1, 8, 9), torch.zeros(2))]
    with pytest.raises(ValueError, match="9"):
        features.on_fit_start(run)
    assert all(part.training for part in model.modules())
