"""The renaming itself; that renamed models are equal is tested in test_vit.py."""

import pytest
import torch
from transformers import ViTConfig as HFConfig
from transformers import ViTModel

from vit_helpers.pretrained import HUGGINGFACE, from_huggingface, from_timm, from_torchvision
from vit_helpers.vit import ViT, ViTConfig


def test_names_of_older_torchvision_files():
    state = {"encoder.layers.encoder_layer_11.mlp.linear_1.weight": torch.ones(8, 4)}
    assert list(from_torchvision(state)) == ["blocks.11.mlp.fc1.weight"]


def test_names_of_older_huggingface_files():
    layer = "vit.encoder.layer.0."
    state = {f"{layer}attention.attention.{name}.weight": torch.full((2, 2), float(i)) for i, name in enumerate(
        ("query", "key", "value"))} | {f"{layer}attention.output.dense.bias": torch.ones(2)}  # fmt: skip
    renamed = from_huggingface(state)
    assert set(renamed) == {"blocks.0.attn.qkv.weight", "blocks.0.attn.proj.bias"}
    assert renamed["blocks.0.attn.qkv.weight"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_huggingfaces_pooler_is_the_pre_training_head():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    twin = ViTModel(HFConfig(image_size=8, patch_size=4, **sizes)).eval()
    torch.nn.init.normal_(twin.embeddings.cls_token)
    config = ViTConfig(8, 4, 3, 0, 16, 2, 2, representation_size=16, norm_eps=1e-12)
    ours = ViT(config).eval()
    ours.load_state_dict(from_huggingface(twin.state_dict()))
    images = torch.randn(2, 3, 8, 8)
    theirs = twin(images)
    assert torch.allclose(ours(images), theirs.pooler_output, atol=1e-5)
    assert torch.allclose(ours.forward_features(images), theirs.last_hidden_state, atol=1e-5)


def test_the_convolution_becomes_a_matrix():
    kernel = torch.randn(8, 3, 4, 4)
    renamed = from_timm({"patch_embed.proj.weight": kernel})
    assert torch.equal(renamed["patch_embed.proj.weight"], kernel.reshape(8, 48))


@pytest.mark.parametrize("rename", [from_torchvision, from_timm, from_huggingface])
def test_foreign_keys_are_named(rename):
    with pytest.raises(ValueError, match=r"1 of 1 keys are not of a .* ViT: layer4.conv1.weight"):
        rename({"layer4.conv1.weight": torch.ones(1)})


@pytest.mark.parametrize("rename", [from_torchvision, from_timm, from_huggingface])
def test_what_is_no_state_dict_is_named(rename):
    with pytest.raises(TypeError, match=r"takes a state dict.* got Linear"):
        rename(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="an empty state dict"):
        rename({})


def test_a_missing_matrix_is_named():
    with pytest.raises(ValueError, match=r"blocks\.3\.attn\.k\.bias.* not: the file is incomplete"):
        from_huggingface({"layers.3.attention.q_proj.bias": torch.ones(2), "layers.3.attention.v_proj.bias": torch.ones(2)})


def test_every_rule_leads_to_a_name_of_ours():
    names = {key.rpartition(".")[0] for key in ViT(ViTConfig(8, 4, 3, 2, 16, 1, 2, representation_size=8)).state_dict()}
    targets = {new.format(i=0) for new in HUGGINGFACE.values()} - {f"blocks.0.attn.{x}" for x in "qkv"}
    assert targets <= names | {"token_embed.cls_token", "token_embed.pos_embed"}
