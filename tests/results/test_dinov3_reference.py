"""The stored DINOv3: small, without zeros and ones; ours computes the same, and so does theirs."""

import pytest
import torch

from vit_helpers.parity import largest_difference
from vit_helpers.pretrained import fill
from vit_helpers.pretrained.key_maps import rename
from vit_helpers.results.dinov3_reference import REFERENCE, read_dinov3_reference
from vit_helpers.vit import ViT, ViTConfig

LAYOUT = "Hugging Face, DINOv3"


@pytest.fixture(scope="module")
def stored():
    return read_dinov3_reference()


def ours(stored):
    size = tuple(stored.images.shape[2:])
    options = {"positions": "rotary", "init_values": 1.0, "norm_eps": 1e-5, "pool": "none"}
    model = ViT(ViTConfig(image_size=size, num_classes=0, **options, **stored.config))
    fill(model, rename(stored.weights, LAYOUT))
    return model


def test_it_is_small_and_every_parameter_is_perturbed(stored):
    assert REFERENCE.stat().st_size < 300_000
    assert stored.weights.keys() == stored.gradients.keys()
    for name, weight in stored.weights.items():
        assert weight.std() > 0.1, name
        assert stored.gradients[name].abs().max() > 0.1, name


def test_ours_gives_its_tokens_and_gradients(stored):
    model = ours(stored)
    tokens = model(stored.images)
    assert stored.tokens.abs().max() > 1
    assert largest_difference(tokens, stored.tokens) < 1e-5
    (tokens * stored.slope).sum().backward()
    expected = rename(stored.gradients, LAYOUT)
    D = stored.config["embed_dim"]
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.clone()
        if name.endswith("qkv.bias"):
            assert gradient[D : 2 * D].abs().max() > 1  # theirs has no bias of the keys
            gradient[D : 2 * D] = 0
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-3), name
