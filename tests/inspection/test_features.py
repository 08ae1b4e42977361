"""Positions, filters, tokens and occlusion of a model whose answers are known."""

import pytest
import torch

from vit_helpers.inspection import (
    attention_gradients,
    filters,
    grad_cam,
    integrated_gradients,
    layer_cam,
    occlusion,
    pixel_gradients,
    position_similarity,
    survival,
    token_layers,
)
from vit_helpers.parity import perturb
from vit_helpers.vit import ViT, ViTConfig


def test_each_position_is_most_similar_to_itself(model):
    similar = position_similarity(model.token_embed.pos_embed, model.config.grid)
    assert similar.shape == (3, 4, 3, 4) and not similar.requires_grad
    pos = model.token_embed.pos_embed[0, -12:]
    assert torch.allclose(
        similar[1, 2, 2, 3], torch.cosine_similarity(pos[6], pos[11], dim=0), atol=1e-6
    )
    assert torch.allclose(similar.reshape(12, 12).diagonal(), torch.ones(12))


def test_filters_are_the_directions_in_which_the_projection_varies(model):
    weight = model.patch_embed.proj.weight
    with torch.no_grad():
        shapes = torch.zeros(2, 16)
        shapes[0, 3], shapes[1, 7] = 1, 1
        by = torch.randn(64, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor(
            [5.0, 1.0]
        )
        old = weight.clone()
        weight.copy_(by @ shapes)
        first, second = filters(model, 2)
        weight.copy_(old)
    assert (
        first.shape == (1, 4, 4)
        and first.flatten()[3].abs() > 0.99
        and second.flatten()[7].abs() > 0.99
    )
    with pytest.raises(ValueError, match=r"1 to 16 .*n = 17"):
        filters(model, 17)


def test_tokens_layer_by_layer(model, images):
    layers = token_layers(model, images)
    assert len(layers) == 4 and torch.equal(layers[0], model.embed(images))
    assert torch.allclose(model.norm(layers[-1]), model.forward_features(images))


def test_occlusion_finds_the_only_patch_that_counts():
    class Corner(torch.nn.Module):
        """Class 1 by what stands in patch (1, 2)"""

        config = ViTConfig.from_name("mini/4", image_size=(12, 16), in_chans=1, num_classes=2)

        def forward(self, images):
            ink = images[:, 0, 4:8, 8:12].sum(dim=(1, 2))
            return torch.stack([torch.zeros_like(ink), ink], dim=1)

    images = torch.ones(2, 1, 12, 16)
    falls = occlusion(Corner(), images)
    assert falls.shape == (2, 3, 4) and falls[0, 1, 2] > 0.5
    assert falls.flatten(1).count_nonzero(dim=1).tolist() == [1, 1] and images.min() == 1
    assert occlusion(Corner(), images, classes=torch.tensor([0, 0]))[0, 1, 2] < -1
    assert occlusion(Corner(), images, fill=1.0).abs().max() == 0


ANSWERS = {
    "occlusion": occlusion,
    "survival": lambda model, images: survival(model, images, torch.rand(2, 2, 2), [1]),
    "Grad-CAM": grad_cam,
    "LayerCAM": layer_cam,
    "pixel gradients": pixel_gradients,
    "integrated gradients": integrated_gradients,
    "gradients of attention": attention_gradients,
}


@pytest.mark.parametrize("look", ANSWERS.values(), ids=ANSWERS)
def test_a_model_that_answers_for_each_token_is_refused(look):
    config = ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=3, pool="none")
    with pytest.raises(ValueError, match=r"\(B, K\).* \(2, 5, 3\): .*pool=\"none\""):
        look(ViT(config), torch.randn(2, 1, 8, 8))


LOOKS = {
    "attention": lambda model, x: model.attention_weights(x),
    "tokens": token_layers,
    "gradients": lambda model, x: [each for both in attention_gradients(model, x) for each in both],
    "occlusion": lambda model, x: [occlusion(model, x)],
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_model_in_training_is_read_without_dropout_and_stays_in_training(look):
    torch.manual_seed(0)
    model = ViT(
        ViTConfig.from_name(
            "mini/4", image_size=8, in_chans=1, num_classes=3, dropout=0.3, attn_dropout=0.3
        )
    )
    perturb(model, std=0.2)
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    one, two = (look(model, torch.ones(2, 1, 8, 8)) for _ in range(2))
    assert (
        all(map(torch.equal, one, two)) and [module.training for module in model.modules()] == modes
    )
    assert all(map(torch.allclose, one, look(model.eval(), torch.ones(2, 1, 8, 8))))
