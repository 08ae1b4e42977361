"""Models since 2020 from transformers and timm: random weights, equal outputs."""

import json
from contextlib import nullcontext

import pytest
import torch
from peers import timm, transformers

from vit_helpers.parity import perturb
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.key_maps import rename
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.peers
SIZE = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2}
SIZE |= {"num_attention_heads": 4}
HALF = [0.5] * 3
DINOV3 = {**SIZE, "intermediate_size": 64, "num_register_tokens": 3}


def model_of(name, settings):
    """A model of transformers and its config, by the name before "Model" and "Config" """
    if not hasattr(transformers, f"{name}Model"):
        pytest.skip(f"this version of transformers has no {name}")
    config = getattr(transformers, f"{name}Config")(**settings)
    return getattr(transformers, f"{name}Model")(config)


def dinov3(**changes):
    return model_of("DINOv3ViT", DINOV3 | changes)


def siglip(**changes):
    return transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(**SIZE | {"intermediate_size": 64} | changes)
    )


def dinov2(**changes):
    return transformers.Dinov2Model(transformers.Dinov2Config(**SIZE, **changes))


OURS = {
    "DINOv2": dinov2,
    "DINOv2, gated": lambda: dinov2(use_swiglu_ffn=True),
    "DINOv2 with registers": lambda: model_of(
        "Dinov2WithRegisters", SIZE | {"num_register_tokens": 4}
    ),
    "DINOv3": dinov3,
    "DINOv3, gated": lambda: dinov3(use_gated_mlp=True, hidden_act="silu"),
    "DINOv3, another theta": lambda: dinov3(rope_theta=10.0),
    "SigLIP": siglip,
    "SigLIP, exact GELU": lambda: siglip(hidden_act="gelu"),
}


def processor(**changes):
    settings = {"size": {"height": 32, "width": 32}, "image_mean": HALF, "image_std": HALF}
    return transformers.ViTImageProcessor(**settings | changes)


def store(folder, make, settings=None):
    torch.manual_seed(0)
    model = make().eval()
    perturb(model, std=0.3)
    model.save_pretrained(folder)
    if settings is not None:
        processor(**settings).save_pretrained(folder)
    return model


def output(model, images):
    outputs = model(images)
    siglip = isinstance(model, transformers.SiglipVisionModel)
    return outputs.pooler_output if siglip else outputs.last_hidden_state[:, 0]


@pytest.mark.parametrize("make", OURS.values(), ids=OURS)
def test_models_of_transformers_give_equal_outputs_and_gradients(make, tmp_path):
    theirs = store(tmp_path, make, {})
    ours = load_pretrained(tmp_path).model
    images = torch.randn(2, 3, 32, 32)
    expected = output(theirs, images)
    assert expected.abs().max() > 0.1
    assert torch.allclose(ours(images), expected, atol=1e-4)
    weight = torch.randn_like(expected)
    (ours(images) * weight).sum().backward()
    (expected * weight).sum().backward()
    embeddings = getattr(theirs, "vision_model", theirs).embeddings
    patch = getattr(embeddings, "patch_embeddings", None) or embeddings.patch_embedding
    kernel = getattr(patch, "projection", patch).weight.grad.flatten(1)
    assert torch.allclose(ours.patch_embed.proj.weight.grad, kernel, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["DINOv2", "DINOv2 with registers", "DINOv3"])
def test_images_may_have_another_size_than_positions(name, tmp_path):
    theirs = store(tmp_path, OURS[name], {"size": {"height": 48, "width": 40}})
    ours = load_pretrained(tmp_path)
    assert ours.preprocess.crop == ours.model.config.image_size == (48, 40)
    images = torch.randn(2, 3, 48, 40)
    assert torch.allclose(ours.model(images), output(theirs, images), atol=1e-4)


def test_without_a_processor_imagenets_pixels_are_assumed(tmp_path):
    store(tmp_path, OURS["DINOv2"])
    with pytest.warns(UserWarning, match=r"assumed: mean 0.485/0.456/0.406"):
        loaded = load_pretrained(tmp_path)
    assert loaded.preprocess.crop == (32, 32) and loaded.class_names == ()


def test_a_head_that_reads_more_than_the_class_token_is_refused(tmp_path):
    config = transformers.Dinov2Config(**SIZE, num_labels=3)
    store(tmp_path, lambda: transformers.Dinov2ForImageClassification(config), {})
    with pytest.raises(ValueError, match=r"Dinov2ForImageClassification"):
        load_pretrained(tmp_path)


def test_the_vision_part_of_a_siglip_is_read(tmp_path):
    vision = SIZE | {"intermediate_size": 64}
    text = {"vocab_size": 9, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    text |= {"intermediate_size": 16, "max_position_embeddings": 5}
    config = transformers.SiglipConfig(vision_config=vision, text_config=text)
    theirs = store(tmp_path, lambda: transformers.SiglipModel(config), {})
    images = torch.randn(1, 3, 32, 32)
    expected = theirs.vision_model(images).pooler_output
    assert torch.allclose(load_pretrained(tmp_path).model(images), expected, atol=1e-4)


def test_what_a_config_does_not_say_of_its_weights_is_named(tmp_path):
    store(tmp_path, OURS["DINOv3"], {})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 2**20}))
    with pytest.raises(ValueError, match="hidden_size = 1048576"):
        load_pretrained(tmp_path)


def test_another_activation_is_refused(tmp_path):
    store(tmp_path, lambda: dinov2(hidden_act="relu"), {})
    with pytest.raises(ValueError, match="hidden_act = 'relu'"):
        load_pretrained(tmp_path)


# timm


TIMM = {
    "DINOv2": "vit_small_patch14_dinov2",
    "DINOv2, giant": "vit_giant_patch14_dinov2",
    "DINOv2 with registers": "vit_small_patch14_reg4_dinov2",
    "DINOv3": "vit_small_patch16_dinov3",
    "DINOv3 with biases": "vit_small_patch16_dinov3_qkvb",
    "DINOv3, gated": "vit_small_plus_patch16_dinov3_qkvb",
    "DeiT III": "deit3_small_patch16_224",
    "SigLIP": "vit_base_patch16_siglip_224",
}


def twin(name):
    """timm's model with two small blocks"""
    torch.manual_seed(0)
    size = {"img_size": 56 if "14" in name else 64, "depth": 2, "embed_dim": 48, "num_heads": 4}
    model = timm.create_model(name, **size).eval()
    model.pretrained_cfg = {**model.pretrained_cfg, "input_size": (3, *model.patch_embed.img_size)}
    perturb(model, std=0.1)
    return model


@pytest.mark.parametrize("name", TIMM.values(), ids=TIMM)
def test_models_of_timm_give_equal_outputs(name, monkeypatch):
    model = twin(name)
    monkeypatch.setattr("timm.is_model_pretrained", lambda name: True)
    monkeypatch.setattr("timm.create_model", lambda name, pretrained: model)
    unnamed = pytest.warns(UserWarning, match="unknown") if name.startswith("x") else nullcontext()
    with unnamed:
        ours = load_pretrained(f"timm:{name}")
    images = torch.randn(2, 3, *model.patch_embed.img_size)
    with torch.no_grad():
        expected = model(images)
        assert expected.abs().max() > 0.1
        assert torch.allclose(ours.model(images), expected, atol=1e-4)


LARGER = {
    "DINOv2-L/14": "vit_large_patch14_dinov2",
    "DINOv2-g/14": "vit_giant_patch14_dinov2",
    "DINOv2 with registers-g/14": "vit_giant_patch14_reg4_dinov2",
    "DINOv3-L/16": "vit_large_patch16_dinov3_qkvb",
    "DINOv3-H+/16": "vit_huge_plus_patch16_dinov3_qkvb",
    "DINOv3-7B/16": "vit_7b_patch16_dinov3",
    "DeiT III-H/14": "deit3_huge_patch14_224",
    "SigLIP-So400m/14": "vit_so400m_patch14_siglip_224",
}


@pytest.mark.parametrize("name", LARGER)
def test_larger_models_have_our_names_and_shapes(name):
    from vit_helpers.pretrained.assembly import fit_positions
    from vit_helpers.pretrained.sources import rename_timm

    with torch.device("meta"):
        theirs = timm.create_model(LARGER[name])
        ours = ViT(ViTConfig.from_name(name))
        size = theirs.patch_embed.img_size
        state = fit_positions(rename_timm(theirs), size, size, ours.config.patch_size, "timm")
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert shapes == {key: tuple(value.shape) for key, value in ours.state_dict().items()}


def test_a_mask_token_is_left_out():
    state = dinov2().state_dict()
    assert "embeddings.mask_token" in state
    assert not any("mask" in key for key in rename(state, "Hugging Face, DINOv2"))


def test_names_of_siglip_may_begin_with_vision_model():
    state = siglip().state_dict()
    older = {f"vision_model.{name.removeprefix('vision_model.')}": w for name, w in state.items()}
    ours = rename(older, "Hugging Face, SigLIP")
    assert ours.keys() == rename(state, "Hugging Face, SigLIP").keys()
