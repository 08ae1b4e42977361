"""The helper behind every proof of equality: a wrong model cannot hide behind it."""

import pytest
import torch
from torch import nn

from vit_helpers.parity import largest_difference, perturb
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ViT(
        ViTConfig(
            image_size=8,
            patch_size=2,
            in_chans=1,
            embed_dim=16,
            depth=2,
            num_heads=2,
            num_classes=3,
        )
    ).eval()


def test_no_number_of_any_parameter_stays_as_it_was(model):
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    perturb(model)
    for name, p in model.named_parameters():
        assert (p != before[name]).all(), name
        assert p.requires_grad and p.grad is None


def test_it_is_repeatable_and_leaves_the_global_generator_alone(model):
    twin = ViT(model.config)
    twin.load_state_dict(model.state_dict())
    state = torch.get_rng_state()
    perturb(model)
    torch.manual_seed(7)
    perturb(twin)
    torch.set_rng_state(state)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )
    perturb(model, seed=1)
    assert not any(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )


def test_it_keeps_dtype(model):
    perturb(model.double())
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_the_largest_difference_is_absolute_and_of_one_shape():
    assert largest_difference(torch.tensor([1.0, -5.0]), torch.tensor([1.5, -2.0])) == 3
    assert not largest_difference(torch.tensor([1.0, float("nan")]), torch.ones(2)) < 1e9
    with pytest.raises(ValueError, match=r"shapes differ: \(2,\) and \(1,\)"):
        largest_difference(torch.ones(2), torch.ones(1))


def test_a_new_model_hides_swapped_norms_and_a_perturbed_one_shows_them(model):
    nn.init.normal_(model.head.weight)
    images, found = torch.randn(2, 1, 8, 8), []
    for _ in range(2):
        logits = model(images)
        for block in model.blocks:
            block.norm1, block.norm2 = block.norm2, block.norm1
        found.append(largest_difference(logits, model(images)))
        perturb(model, std=0.1)
    assert found[0] == 0 and found[1] > 1e-3
