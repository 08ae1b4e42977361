import copy

import pytest
import torch

from vit_helpers.embeddings import resize_positions
from vit_helpers.encoder import Block
from vit_helpers.parity import perturb
from vit_helpers.pretrained.finetune import (
    LoRA,
    add_lora,
    freeze,
    layerwise_lr_decay,
    merge_lora,
    transfer_weights,
)
from vit_helpers.training.optimizers import param_groups
from vit_helpers.training.presets import NormLastBlock
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = ViT(
        ViTConfig.from_name(
            "mini/4", image_size=(8, 12), in_chans=1, num_classes=10, representation_size=16
        )
    )
    perturb(model, std=0.2)
    return model.eval()


@pytest.fixture
def images():
    return torch.randn(3, 1, 8, 12, generator=torch.Generator().manual_seed(1))


# Carrying over


def test_new_classes_get_a_head_of_zeros_and_the_features_stay(model, images):
    new = transfer_weights(model, num_classes=4)
    assert (
        new(images).shape == (3, 4)
        and not new(images).any()
        and new.config.representation_size is None
    )
    assert torch.equal(new.forward_features(images), model.forward_features(images))
    assert model(images).shape == (3, 10) and not new.training
    new.blocks[0].mlp.fc1.weight.data.zero_()
    assert model.blocks[0].mlp.fc1.weight.any()  # the old one has weights of its own


@pytest.mark.parametrize("training", [True, False])
def test_the_new_model_is_in_the_mode_of_the_old_one(model, training):
    assert transfer_weights(model.train(training), num_classes=4).training is training
    assert transfer_weights(model).blocks[0].mlp.dropout.training is training


def test_no_change_gives_an_equal_model(model, images):
    assert torch.equal(transfer_weights(model)(images), model(images))
    assert transfer_weights(model, dropout=0.3).config.dropout == 0.3


def test_larger_images_get_interpolated_position_embeddings(model):
    new = transfer_weights(model, image_size=(16, 12))
    wanted = resize_positions(model.token_embed.pos_embed, (2, 3), (4, 3))
    assert torch.equal(new.token_embed.pos_embed, wanted) and new(
        torch.randn(1, 1, 16, 12)
    ).shape == (1, 10)
    assert torch.equal(new.head.weight, model.head.weight)


@pytest.mark.parametrize("positions", ["sincos", "none"])
def test_positions_that_are_not_learned_need_no_stretching(positions):
    old = ViT(
        ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=2, positions=positions)
    )
    assert transfer_weights(old, image_size=16)(torch.randn(1, 1, 16, 16)).shape == (1, 2)


class PostNormBlock(Block):
    def forward(self, x, mask=None):
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))


def test_custom_blocks_are_kept(images):
    config = ViTConfig.from_name("mini/4", image_size=(8, 12), in_chans=1, num_classes=10)
    model = ViT(config, PostNormBlock)
    perturb(model, std=0.2)
    new = transfer_weights(model)
    assert torch.equal(new(images), model(images)) and {type(block) for block in new.blocks} == {
        PostNormBlock
    }
    new.blocks[0].mlp.fc1.weight.data.zero_()
    assert model.blocks[0].mlp.fc1.weight.any()
    with pytest.raises(ValueError, match="dropout"):
        transfer_weights(model, dropout=0.1)


def test_what_cannot_change_is_named(model):
    with pytest.raises(ValueError, match="embed_dim, patch_size"):
        transfer_weights(model, patch_size=2, embed_dim=32)


# Freezing


def test_only_the_named_parts_learn(model):
    names = [name for name, p in freeze(model).named_parameters() if p.requires_grad]
    assert names == ["head.weight", "head.bias"]
    names = [
        name for name, p in freeze(model, ("head", "norm.")).named_parameters() if p.requires_grad
    ]
    assert names == ["norm.weight", "norm.bias", "head.weight", "head.bias"]


# LoRA


def test_lora_adds_nothing_at_first_and_a_product_later():
    linear = torch.nn.Linear(5, 7)
    lora, x = LoRA(copy.deepcopy(linear), rank=2, scale=3.0), torch.randn(4, 5)
    assert torch.equal(lora(x), linear(x))
    torch.nn.init.normal_(lora.B)
    wanted = x @ (linear.weight + 3 * lora.B @ lora.A).T + linear.bias
    assert torch.allclose(lora(x), wanted, atol=1e-5)
    assert torch.allclose(lora.merged()(x), wanted, atol=1e-5)
    assert [name for name, p in lora.named_parameters() if p.requires_grad] == ["A", "B"]


@pytest.mark.parametrize("rank", [0, 6])
def test_a_rank_that_does_not_fit_is_named(rank):
    with pytest.raises(ValueError, match=rf"7 x 5 .* 5, got {rank}"):
        LoRA(torch.nn.Linear(5, 7), rank)


def test_a_model_with_lora_learns_few_numbers_and_merges_back(model, images):
    before, plain = model(images), {key: w.clone() for key, w in model.state_dict().items()}
    learns = sum(p.numel() for p in add_lora(model, rank=2).parameters() if p.requires_grad)
    assert learns == 2 * 2 * (64 + 192) + 10 * 16 + 10
    assert torch.equal(model(images), before)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # at the first step only B has a gradient
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2, 3])).backward()
        optimizer.step()
    after = model(images)
    assert not torch.allclose(after, before, atol=1e-3)
    merged = merge_lora(model)
    assert torch.allclose(merged(images), after, atol=1e-5)
    assert merged.state_dict().keys() == plain.keys()
    changed = {key for key, w in merged.state_dict().items() if not torch.equal(w, plain[key])}
    assert changed == {
        "blocks.0.attn.qkv.weight",
        "blocks.1.attn.qkv.weight",
        "head.weight",
        "head.bias",
    }


@pytest.mark.parametrize("rank", [0, 65, 1000, 2.5])
def test_a_rank_that_does_not_fit_changes_nothing(model, rank):
    with pytest.raises(ValueError, match=rf"192 x 64 is from 1 to 64, got {rank}"):
        add_lora(model, rank)
    assert all(p.requires_grad for p in model.parameters())
    assert not any(isinstance(module, LoRA) for module in model.modules())


def test_lora_is_added_once(model):
    freeze(add_lora(model, rank=2), ("norm",))
    with pytest.raises(ValueError, match="already has LoRA layers: merge_lora"):
        add_lora(model, rank=2)
    learns = [name for name, p in model.named_parameters() if p.requires_grad]
    assert learns == ["norm.weight", "norm.bias"]
    with pytest.raises(ValueError, match="already has LoRA layers"):
        LoRA(model.blocks[0].attn.qkv, rank=2)
    add_lora(merge_lora(model), rank=2)


# Rates by layer


def test_earlier_layers_learn_more_slowly(model):
    split = layerwise_lr_decay(model, param_groups(model, 1e-3, 0.1, 10.0), decay=0.5)
    rate, decays = {}, {}
    for group in split:
        for p in group["params"]:
            assert id(p) not in rate
            rate[id(p)], decays[id(p)] = group["lr"], group["weight_decay"]
    named = dict(model.named_parameters())
    assert rate.keys() == {id(p) for p in named.values()}

    def of(name):
        return rate[id(named[name])]

    assert of("head.weight") == of("norm.weight") == of("pre_logits.0.weight") == 1e-3
    assert (
        of("blocks.1.attn.qkv.weight") == of("blocks.1.norm1.bias") == 5e-4
        and of("blocks.0.mlp.fc1.weight") == 2.5e-4
    )
    assert of("patch_embed.proj.weight") == 1.25e-4 and of("token_embed.pos_embed") == 1.25e-3
    assert decays[id(named["head.bias"])] == 0 and decays[id(named["head.weight"])] == 0.1


def test_a_decay_of_one_changes_no_rate(model):
    assert {
        group["lr"] for group in layerwise_lr_decay(model, param_groups(model, 1e-3, 0.1, 1.0), 1.0)
    } == {1e-3}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("block", [Block, NormLastBlock])
@pytest.mark.parametrize("positions", ["learned", "sincos"])
def test_the_dtype_stays(dtype, block, positions):
    config = ViTConfig.from_name(
        "mini/4", image_size=8, in_chans=1, num_classes=3, depth=1, positions=positions
    )
    new = transfer_weights(ViT(config, block).to(dtype), num_classes=5, image_size=12)
    assert new(torch.randn(2, 1, 12, 12, dtype=dtype)).dtype == dtype
