"""Folders of Hugging Face: the logits of transformers, and refusals."""

import json

import pytest
import torch
from peers import transformers

from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import load_pretrained

TINY = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "patch_size": 8,
}


@pytest.mark.peers
@pytest.mark.parametrize("size", [{"height": 32, "width": 32}])
def test_huggingfaces_classifier_from_a_folder(tmp_path, picture, size):
    torch.manual_seed(0)
    labels = {0: "hut", 1: "flower", 2: "lake"}
    twin = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=32, num_labels=3, id2label=labels, **TINY)
    ).eval()
    perturb(twin, std=0.3)
    pictures = transformers.ViTImageProcessor(
        size=size, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]
    )
    for one in (twin, pictures):
        one.save_pretrained(tmp_path)
    kept = load_pretrained(f"huggingface:{tmp_path}")
    pixels = pictures(picture, return_tensors="pt")["pixel_values"]
    # theirs rounds to whole gray values on the way
    assert torch.allclose(kept.preprocess(picture), pixels[0], atol=0.03)
    assert largest_difference(kept.model(pixels), twin(pixels).logits) < 1e-5
    assert kept.class_names == ("hut", "flower", "lake") and kept.model.config.norm_eps == 1e-12


@pytest.mark.peers
def test_huggingfaces_model_without_a_head(tmp_path):
    twin = transformers.ViTModel(transformers.ViTConfig(image_size=32, **TINY)).eval()
    perturb(twin, std=0.1)
    for one in (twin, transformers.ViTImageProcessor(size={"height": 32, "width": 32})):
        one.save_pretrained(tmp_path)
    kept = load_pretrained(f"huggingface:{tmp_path}")
    images = torch.randn(2, 3, 32, 32)
    assert (
        largest_difference(kept.model(images), twin(images).pooler_output) < 1e-5
        and kept.class_names == ()
    )


@pytest.mark.peers
def test_huggingfaces_weights_that_are_not_there_are_named(tmp_path):
    twin = transformers.ViTModel(transformers.ViTConfig(image_size=32, **TINY))
    twin.config.architectures = ["ViTForImageClassification"]
    for one in (twin, transformers.ViTImageProcessor(size={"height": 32, "width": 32})):
        one.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["ViTForImageClassification"]})
    )
    with pytest.raises(ValueError, match=r"has no classifier\.bias, classifier\.weight"):
        load_pretrained(f"huggingface:{tmp_path}")


@pytest.mark.peers
def test_huggingfaces_model_without_a_pooler(tmp_path):
    twin = transformers.ViTModel(
        transformers.ViTConfig(image_size=32, **TINY), add_pooling_layer=False
    ).eval()
    perturb(twin, std=0.1)
    for one in (twin, transformers.ViTImageProcessor(size={"height": 32, "width": 32})):
        one.save_pretrained(tmp_path)
    kept, images = load_pretrained(f"huggingface:{tmp_path}"), torch.randn(2, 3, 32, 32)
    assert largest_difference(kept.model(images), twin(images).last_hidden_state[:, 0]) < 1e-5


@pytest.mark.peers
def test_a_preparation_that_we_do_not_know_is_refused(tmp_path):
    twin = transformers.ViTModel(transformers.ViTConfig(image_size=32, **TINY))
    for one in (twin, transformers.ViTImageProcessor(size={"height": 32, "width": 32}, resample=1)):
        one.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"resample"):
        load_pretrained(f"huggingface:{tmp_path}")


@pytest.mark.peers
def test_huggingfaces_other_models_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "hidden_act": "relu"}))
    with pytest.raises(ValueError, match=r"hidden_act = 'relu'"):
        load_pretrained(f"huggingface:{tmp_path}")
    with pytest.raises(OSError, match=r"Hugging Face.*nobody"):
        load_pretrained(f"huggingface:{tmp_path / 'nobody'}")
