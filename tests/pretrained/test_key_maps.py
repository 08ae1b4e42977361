"""The renaming itself; that renamed models are equal is tested in tests/test_vit.py."""

import numpy as np
import pytest
import torch
from peers import timm, transformers

from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import fill, from_google, from_huggingface, from_timm, from_torchvision
from vit_helpers.pretrained.key_maps import KEY_MAPS
from vit_helpers.vit import ViT, ViTConfig


def test_names_of_older_torchvision_files():
    state = {"encoder.layers.encoder_layer_11.mlp.linear_1.weight": torch.ones(8, 4)}
    assert list(from_torchvision(state)) == ["blocks.11.mlp.fc1.weight"]


def test_names_of_older_huggingface_files():
    layer = "vit.encoder.layer.0."
    attention = f"{layer}attention.attention."
    state = {
        f"{attention}query.weight": torch.full((2, 2), 0.0),
        f"{attention}key.weight": torch.full((2, 2), 1.0),
        f"{attention}value.weight": torch.full((2, 2), 2.0),
        f"{layer}attention.output.dense.bias": torch.ones(2),
    }
    renamed = from_huggingface(state)
    assert set(renamed) == {"blocks.0.attn.qkv.weight", "blocks.0.attn.proj.bias"}
    assert renamed["blocks.0.attn.qkv.weight"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.peers
def test_huggingfaces_pooler_is_the_pre_training_head():
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    twin = transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **sizes)).eval()
    perturb(twin, std=0.1)
    config = ViTConfig(8, 4, 3, 0, 16, 2, 2, representation_size=16, norm_eps=1e-12)
    ours = ViT(config).eval()
    ours.load_state_dict(from_huggingface(twin.state_dict()))
    images = torch.randn(2, 3, 8, 8)
    theirs = twin(images)
    assert largest_difference(ours(images), theirs.pooler_output) < 1e-5
    assert largest_difference(ours.forward_features(images), theirs.last_hidden_state) < 1e-5


def test_the_convolution_becomes_a_matrix():
    kernel = torch.randn(8, 3, 4, 4)
    renamed = from_timm({"patch_embed.proj.weight": kernel})
    assert torch.equal(renamed["patch_embed.proj.weight"], kernel.reshape(8, 48))


@pytest.mark.parametrize("rename", [from_torchvision, from_timm, from_huggingface])
def test_foreign_keys_are_named(rename):
    with pytest.raises(ValueError, match=r"1 of 1 keys .*: layer4.conv1.weight"):
        rename({"layer4.conv1.weight": torch.ones(1)})


@pytest.mark.parametrize("rename", [from_torchvision, from_timm, from_huggingface])
def test_what_is_no_state_dict_is_named(rename):
    with pytest.raises(TypeError, match=r"expected a state dict.* got Linear"):
        rename(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="an empty state dict"):
        rename({})


def test_a_missing_matrix_is_named():
    with pytest.raises(ValueError, match=r"not blocks\.3\.attn\.k\.bias"):
        from_huggingface(
            {
                "layers.3.attention.q_proj.bias": torch.ones(2),
                "layers.3.attention.v_proj.bias": torch.ones(2),
            }
        )


def test_every_rule_leads_to_a_name_of_ours():
    names = {
        key.rpartition(".")[0]
        for key in ViT(ViTConfig(8, 4, 3, 2, 16, 1, 2, representation_size=8)).state_dict()
    }
    targets = {new.format(i=0) for new in KEY_MAPS["Hugging Face"].values()} - {
        f"blocks.0.attn.{x}" for x in "qkv"
    }
    assert targets <= names | {"token_embed.cls_token", "token_embed.pos_embed"}


# Google's files


def google_arrays(D=24, h=3, L=2, P=4, C=3, T=17, K=5, hidden=96):
    """Random numbers in the shapes of google-research/vision_transformer's npz files"""
    own = np.random.default_rng(0)

    def draw(*shape):
        return (0.3 * own.standard_normal(shape)).astype(np.float32)

    arrays = {
        "cls": draw(1, 1, D),
        "embedding/kernel": draw(P, P, C, D),
        "embedding/bias": draw(D),
        "Transformer/posembed_input/pos_embedding": draw(1, T, D),
        "Transformer/encoder_norm/scale": draw(D),
        "Transformer/encoder_norm/bias": draw(D),
        "head/kernel": draw(D, K),
        "head/bias": draw(K),
    }
    for i in range(L):
        block = f"Transformer/encoderblock_{i}/"
        for name in ("LayerNorm_0", "LayerNorm_2"):
            arrays |= {f"{block}{name}/scale": draw(D), f"{block}{name}/bias": draw(D)}
        for name in ("query", "key", "value"):
            part = f"{block}MultiHeadDotProductAttention_1/{name}/"
            arrays |= {f"{part}kernel": draw(D, h, D // h), f"{part}bias": draw(h, D // h)}
        part = f"{block}MultiHeadDotProductAttention_1/out/"
        arrays |= {f"{part}kernel": draw(h, D // h, D), f"{part}bias": draw(D)}
        for name, n, m in (("Dense_0", D, hidden), ("Dense_1", hidden, D)):
            arrays |= {
                f"{block}MlpBlock_3/{name}/kernel": draw(n, m),
                f"{block}MlpBlock_3/{name}/bias": draw(m),
            }
    return arrays


@pytest.fixture
def google_model():
    return ViT(ViTConfig(16, 4, 3, 5, 24, 2, 3)).eval()


@pytest.mark.peers
def test_googles_weights_give_the_logits_that_timm_gives(tmp_path, google_model):
    """timm has a reader of its own for these files"""
    path = tmp_path / "weights.npz"
    np.savez(path, **google_arrays())
    sizes = {
        "img_size": 16,
        "patch_size": 4,
        "num_classes": 5,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 3,
    }
    twin = timm.models.vision_transformer.VisionTransformer(**sizes).eval()
    twin.load_pretrained(str(path))
    fill(google_model, from_google(dict(np.load(path))))
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert largest_difference(google_model(images), twin(images)) < 1e-5
    assert google_model(images).std() > 0.1


def test_foreign_arrays_are_named():
    with pytest.raises(ValueError, match=r"1 of 25 keys .*Google.*: conv_root\.weight"):
        from_google(google_arrays(L=1) | {"conv_root/kernel": np.ones((3, 3, 3, 8), np.float32)})
    with pytest.raises(TypeError, match=r"dict\(numpy\.load\(path\)\).* got str"):
        from_google("weights.npz")
    arrays = google_arrays(L=1)
    del arrays["Transformer/encoderblock_0/MultiHeadDotProductAttention_1/key/bias"]
    with pytest.raises(ValueError, match=r"not blocks\.0\.attn\.k\.bias"):
        from_google(arrays)


def test_every_rule_of_googles_leads_to_a_name_of_ours():
    names = {
        key.rpartition(".")[0]
        for key in ViT(ViTConfig(8, 4, 3, 2, 16, 1, 2, representation_size=8)).state_dict()
    }
    targets = {new.format(i=0) for new in KEY_MAPS["Google"].values()} - {
        f"blocks.0.attn.{x}" for x in "qkv"
    }
    assert targets <= names | {"token_embed.cls_token", "token_embed.pos_embed"}


# Into a model, all or nothing


def test_a_model_is_filled_wholly_or_not_at_all(google_model):
    right = from_google(google_arrays())
    before = {key: value.clone() for key, value in google_model.state_dict().items()}
    short = {key: value for key, value in right.items() if not key.startswith("blocks.1.")}
    cases = (
        (short, r"12 missing: blocks\.1\.attn\.proj\.bias, blocks\.1\.attn\.proj\.weight, "),
        (right | {"extra": torch.ones(1)}, r"1 that do not belong: extra"),
        (
            right | {"head.weight": torch.ones(7, 24)},
            r"1 of another shape: head\.weight expected \(5, 24\), found \(7, 24\)",
        ),
    )
    for state, says in cases:
        with pytest.raises(ValueError, match=says):
            fill(google_model, state)
        assert all(
            torch.equal(before[key], value) for key, value in google_model.state_dict().items()
        )
    fill(google_model, right)
    assert torch.equal(google_model.head.weight, right["head.weight"])
