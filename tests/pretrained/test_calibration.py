"""Calibration: temperatures, distances against scipy's, what weights say of familiar images."""

import json
import math

import pytest
import torch
from scipy.spatial.distance import mahalanobis

from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.pretrained.calibration import NOTE, Familiarity, fit_temperature, load_familiarity
from vit_helpers.vit import ViT, ViTConfig


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_the_temperature_that_labels_were_drawn_with_is_found(temperature):
    torch.manual_seed(0)
    logits = 3 * torch.randn(20_000, 5)
    labels = (logits / temperature).softmax(dim=1).multinomial(1)[:, 0]
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)


@pytest.fixture
def known():
    """Features and labels of three classes, with one covariance whose axes differ in length."""
    torch.manual_seed(1)
    labels = torch.arange(3000) % 3
    means = torch.tensor([[0.0, 0, 0, 0], [5, 0, 0, 0], [0, 5, 0, 0]])
    spread = torch.diag(torch.tensor([1.0, 0.5, 2, 0.1]))
    return means[labels] + torch.randn(3000, 4) @ spread, labels


def test_distances_are_those_of_scipy(known):
    features, labels = known
    familiarity = Familiarity.from_features(features, labels, features)
    means = torch.stack([features[labels == k].mean(dim=0) for k in range(3)])
    inverse = torch.linalg.inv((features - means[labels]).T.cov())
    for one, found in zip(features[:20], familiarity.distance(features[:20]), strict=True):
        assert found.item() == pytest.approx(
            min(mahalanobis(one, mean, inverse) for mean in means), rel=1e-3
        )


def test_the_limit_leaves_out_the_share_asked_for_and_what_is_far(known):
    features, labels = known
    familiarity = Familiarity.from_features(
        features[:2000], labels[:2000], features[2000:], share=0.9
    )
    assert (
        familiarity.distance(features[2000:]) > familiarity.limit
    ).float().mean() == pytest.approx(0.1, abs=0.002)
    # two standard deviations of a wide axis, and twenty of a narrow one
    near = torch.tensor([[0.0, 0, 4, 0]])
    far = torch.tensor([[0.0, 0, 0, 2]])
    assert familiarity.distance(near) < familiarity.limit < familiarity.distance(far)


def test_a_class_without_images_is_not_learned(known):
    features, labels = known
    apart = Familiarity.from_features(features, 2 * labels, features)  # none of 1 and 3
    together = Familiarity.from_features(features, labels, features)
    assert apart.limit == together.limit and torch.equal(apart.means, together.means)
    again = Familiarity.from_note(apart.to_note())
    assert again.means.shape == (3, 4) and again.limit == apart.limit


def test_a_limit_that_nothing_exceeds_is_refused(known):
    features, labels = known
    with pytest.raises(ValueError, match="got nan"):
        Familiarity.from_features(torch.zeros(6, 4), labels[:6], torch.zeros(6, 4))
    familiarity = Familiarity.from_features(features, labels, features)
    note = json.loads(familiarity.to_note()) | {"limit": math.nan}
    with pytest.raises(ValueError, match="got nan"):
        Familiarity.from_note(json.dumps(note))


def test_the_note_in_a_file_gives_the_same_distances(known, tmp_path):
    features, labels = known
    familiarity = Familiarity.from_features(features, labels, features)
    shape = {"embed_dim": 4, "num_heads": 1}  # as wide as the features
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, num_classes=3, **shape))
    preprocess = Preprocess(8, (8, 8), "bicubic", (0.5,) * 3, (0.5,) * 3)
    save_weights(
        tmp_path / "with.safetensors", model, preprocess, "abc", {NOTE: familiarity.to_note()}
    )
    save_weights(tmp_path / "without.safetensors", model, preprocess, "abc")
    again = load_familiarity(tmp_path / "with.safetensors")
    assert again.limit == familiarity.limit
    assert torch.allclose(
        again.distance(features), familiarity.distance(features), rtol=0.01, atol=0.01
    )
    assert load_familiarity(tmp_path / "without.safetensors") is None
    assert load_familiarity("torchvision:vit_b_16") is None
