"""Trained models by name and from files: the logits of the libraries that they come from."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
import torchvision
from peers import timm, transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.pretrained.test_key_maps import google_arrays
from vit_helpers.data import photos
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import Preprocess, load_pretrained, load_weights, save_weights
from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.finetune import add_lora, merge_lora
from vit_helpers.pretrained.sources import OURS
from vit_helpers.training.presets import NormLastBlock
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture(scope="module")
def picture():
    pixels = (photos()["china"].permute(1, 2, 0) * 255).round().to(torch.uint8)
    return Image.fromarray(pixels.numpy())


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = ViT(
        ViTConfig.from_name("mini/4", image_size=(8, 12), in_chans=1, num_classes=3, mlp_ratio=2.0)
    ).eval()
    perturb(model, std=0.2)
    return model


GREY = Preprocess((8, 12), (8, 12), "bicubic", (0.3,), (0.2,))


# Our own files


def test_a_model_comes_back_whole(tmp_path, model):
    path = tmp_path / "new" / "mine.safetensors"
    save_weights(path, model, GREY, ("a", "b", "c"))
    kept = load_pretrained(str(path))
    assert kept.model.config == model.config and not kept.model.training
    assert kept.preprocess == GREY and kept.class_names == ("a", "b", "c")
    images = torch.randn(2, 1, 8, 12)
    assert torch.equal(kept.model(images), model(images))
    assert [p.name for p in path.parent.iterdir()] == ["mine.safetensors"]


def test_halves_come_back_as_float32(tmp_path, model):
    save_weights(tmp_path / "half.safetensors", model.half(), GREY, "abc")
    kept = load_weights(tmp_path / "half.safetensors")
    assert {p.dtype for p in kept.model.parameters()} == {torch.float32}


def test_lora_is_kept_when_merged(tmp_path, model):
    add_lora(model, rank=2)
    with pytest.raises(ValueError, match=r"not belong: blocks\.0\.attn\.qkv\.A"):
        save_weights(tmp_path / "lora.safetensors", model, GREY, "abc")
    assert not list(tmp_path.iterdir())
    save_weights(tmp_path / "lora.safetensors", merge_lora(model), GREY, "abc")
    assert load_weights(tmp_path / "lora.safetensors").model.config == model.config


def test_class_names_must_fit(tmp_path, model):
    with pytest.raises(ValueError, match="2 class names for 3 classes"):
        save_weights(tmp_path / "x.safetensors", model, GREY, "ab")


def test_bad_files_are_named(tmp_path, model):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no weights at .*bad\.safetensors"):
        load_pretrained(path)
    path.write_bytes(b"not a file of weights")
    with pytest.raises(ValueError, match="cut short, or not a safetensors file"):
        load_pretrained(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"names of no known layout, torchvision, timm, .*: x"):
        load_pretrained(path)
    save_weights(path, model, GREY, "abc")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut short"):
        load_pretrained(path)


def test_damage_anywhere_is_noticed(tmp_path, model):
    save_weights(path := tmp_path / "w.safetensors", model, GREY, "abc", {"epoch": "3"})
    content = path.read_bytes()
    for place in [
        *range(0, len(content), 9973),
        len(content) - 1,
        content.index(b"0.3"),
        content.index(b'epoch":"3') + 8,
    ]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"w\.safetensors"):
            load_weights(path)


def rewrite(path, **notes):
    """Other notes in a file of weights, without a checksum, as in most of `weights/`"""
    kept = {name: text for name, text in read_notes(path).items() if name != "sha256"}
    # no tensor may lie in the file any longer: Windows could not replace it
    save_file({name: w.clone() for name, w in load_file(path).items()}, path, kept | notes)


@pytest.mark.parametrize(
    "notes",
    [
        *({"preprocess": text} for text in ("3", "[]", "{}", '{"resize": 8}', "null", "{")),
        *({"preprocess": json.dumps(asdict(GREY) | other)} for other in (
            {"mean": [0.1] * 3, "std": [0.1] * 3}, {"mean": [], "std": []}, {"mean": ["a"]},
            {"crop": "8"}, {"resize": 0})),
        *({"class_names": text} for text in ("3", "[]", '["a", "b"]', "null")),
    ],
    ids=str,
)  # fmt: skip
def test_notes_of_another_kind_are_named(tmp_path, model, notes):
    save_weights(path := tmp_path / "w.safetensors", model, GREY, "abc")
    rewrite(path)
    assert load_weights(path).class_names == ("a", "b", "c")
    rewrite(path, **notes)
    with pytest.raises(ValueError, match=r"w\.safetensors describes another kind of model: "):
        load_weights(path)


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_named(tmp_path, kind, value):
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=3))
    model.norm.bias.data[3] = value
    if kind == "pth":
        torch.save(model.state_dict(), path := tmp_path / "w.pth")
    else:
        prepare = Preprocess(8, (8, 8), "bilinear", (0.3,), (0.2,))
        save_weights(path := tmp_path / "w.safetensors", model, prepare, "abc")
    with pytest.raises(ValueError, match=r"1 with infinity or NaN: norm\.bias"):
        load_pretrained(path)


def test_unknown_names_are_answered_with_the_known_ones():
    for name in ("vit_b_16", "keras:vit", "torchvision:"):
        with pytest.raises(
            ValueError, match=r"unknown weights .*known: torchvision:NAME, timm:NAME, .*PATH\.npz"
        ):
            load_pretrained(name)
    with pytest.raises(
        ValueError,
        match="unknown weights 'ours:nobody', known: ours:drawn, ours:eight, ours:masked, ",
    ):
        load_pretrained("ours:nobody")
    for name in (
        "torchvision:vit_b_17",
        "torchvision:ViT_B_16_Weights.IMAGENET",
        "torchvision:vit_b_16.IMAGENET1K_V1",
    ):
        with pytest.raises(ValueError, match="torchvision has no weights called"):
            load_pretrained(name)
    with pytest.raises(ValueError, match="are not the weights of a ViT"):
        load_pretrained("torchvision:resnet18")


@pytest.mark.parametrize(
    ("name", "classes"),
    [("scattered", 10), ("seven", 7), ("masked", 0), ("photos", 10), ("eight", 8)],
)
def test_models_of_this_series_load(name, classes):
    kept = load_pretrained(f"ours:{name}")
    assert (
        kept.preprocess.in_chans == kept.model.config.in_chans and len(kept.class_names) == classes
    )
    size = (OURS / f"{name}.safetensors").stat().st_size
    assert size < 2_500_000 if name in ("photos", "eight") else size < 600_000


def test_blocks_of_another_kind_are_refused(tmp_path, model):
    other = ViT(model.config, NormLastBlock)
    with pytest.raises(ValueError, match="blocks are NormLastBlock"):
        save_weights(tmp_path / "x.safetensors", other, GREY, "abc")


# torchvision


@pytest.fixture
def torchvisions(monkeypatch):
    """torchvision's vit_b_32 with random weights, as if they had been downloaded"""
    torch.manual_seed(0)
    twin = torchvision.models.vit_b_32(num_classes=1000).eval()
    perturb(twin)
    asked = {}

    def give(url, **options):
        asked.update(options, url=url)
        return twin.state_dict()

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", give)
    return twin, asked


def test_torchvisions_weights_by_name(torchvisions, picture):
    twin, asked = torchvisions
    kept = load_pretrained("torchvision:vit_b_32")
    assert asked["check_hash"] and asked["weights_only"] and "vit_b_32" in asked["url"]
    theirs = torchvision.models.ViT_B_32_Weights.IMAGENET1K_V1.transforms()
    pixels = theirs(picture)
    assert torch.allclose(kept.preprocess(picture), pixels, atol=1e-6)
    assert largest_difference(kept.model(pixels[None]), twin(pixels[None])) < 1e-5
    assert len(kept.class_names) == 1000 and kept.class_names[0] == "tench"
    top = kept.top(picture, 3)
    assert len(top) == 3 and top[0][1] >= top[1][1] and top[0][0] in kept.class_names


@pytest.mark.parametrize(
    "error", [OSError("no route"), RuntimeError('invalid hash value (expected "c867db91")')]
)
def test_no_network_and_wrong_hashes_are_told(monkeypatch, error):
    def fail(url, **options):
        raise error

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    with pytest.raises(
        OSError, match=r"could not get https://.*vit_b_16.*\nBy hand: .*load_pretrained\('ours:"
    ):
        load_pretrained("torchvision:vit_b_16")


# Preprocessing of all of torchvision's


@pytest.mark.parametrize(
    "name",
    [
        "ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1",
        "ViT_L_16_Weights.IMAGENET1K_V1",
        "ViT_H_14_Weights.IMAGENET1K_SWAG_LINEAR_V1",
    ],
)
def test_preprocessing_is_that_of_the_weights(name, picture):
    t = torchvision.models.get_weight(name).transforms()
    mine = Preprocess(t.resize_size[0], (t.crop_size[0],) * 2, t.interpolation.value, t.mean, t.std)
    assert torch.allclose(mine(picture), t(picture), atol=1e-6)
    tensor, (black, white) = (
        photos()["flower"],
        mine.normalize(torch.arange(2.0).view(2, 1, 1, 1).expand(2, 3, 1, 1)),
    )
    # torchvision lets bicubic overshoot
    assert torch.allclose(mine(tensor), t(tensor).clamp(black, white), atol=1e-6)


# timm


@pytest.fixture
def timms(monkeypatch):
    create = timm.create_model

    def make(name, **changes):
        torch.manual_seed(0)
        twin = create(name, **changes).eval()
        perturb(twin)
        monkeypatch.setattr("timm.create_model", lambda asked, pretrained: twin)
        return twin

    return make


@pytest.mark.peers
@pytest.mark.parametrize("name", ["vit_nobody", "vit_tiny_patch16_224.nobody"])
def test_names_that_timm_does_not_know_are_answered(name):
    with pytest.raises(ValueError, match=f"timm has no weights called {name}"):
        load_pretrained(f"timm:{name}")


@pytest.mark.peers
@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224.augreg_in21k_ft_in1k", "deit_tiny_patch16_224.fb_in1k"]
)
def test_timms_weights_by_name(timms, name, picture):
    twin = timms(name)
    kept = load_pretrained(f"timm:{name}")
    transform = timm.data.create_transform(
        **timm.data.resolve_model_data_config(twin), is_training=False
    )
    pixels = transform(picture)
    assert torch.allclose(kept.preprocess(picture), pixels, atol=1e-6)
    assert largest_difference(kept.model(pixels[None]), twin(pixels[None])) < 1e-5
    assert kept.class_names[0].startswith("tench")


@pytest.mark.peers
def test_what_is_not_the_papers_model_is_refused(timms):
    for name, says in (
        ("vit_tiny_patch16_224", None),
        ("deit_tiny_distilled_patch16_224", r"keys are not of a timm ViT: .*dist"),
        ("vit_base_patch16_clip_quickgelu_224", "keys are not of a timm ViT: .*norm_pre"),
    ):
        timms(name)
        if says:
            with pytest.raises(ValueError, match=says):
                load_pretrained(f"timm:{name}")
    timms("vit_tiny_patch16_224", act_layer="relu")
    with pytest.raises(ValueError, match=r"ReLU.* in its MLPs, but ours are gelu, gelu_tanh"):
        load_pretrained("timm:vit_tiny_patch16_224")


# Hugging Face, from folders as save_pretrained writes them

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
    with pytest.raises(ValueError, match=r"needs what is not implemented here: .*resample"):
        load_pretrained(f"huggingface:{tmp_path}")


@pytest.mark.peers
def test_huggingfaces_other_models_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "hidden_act": "relu"}))
    with pytest.raises(
        ValueError, match=r"needs what is not implemented here: hidden_act = 'relu'"
    ):
        load_pretrained(f"huggingface:{tmp_path}")
    with pytest.raises(OSError, match=r"could not get Hugging Face's .*nobody"):
        load_pretrained(f"huggingface:{tmp_path / 'nobody'}")


# Google


@pytest.mark.peers
def test_googles_file_by_its_path(tmp_path):
    path = tmp_path / "Ti_16.npz"
    np.savez(path, **google_arrays())
    with pytest.warns(UserWarning, match="assumed: mean 0.5, std 0.5, .* to 16 x 16, 3 heads"):
        kept = load_pretrained(path)
    assert kept.model.config == ViTConfig(16, 4, 3, 5, 24, 2, 3)
    assert kept.class_names[4] == "class 4" and kept.preprocess.mean == (0.5, 0.5, 0.5)
    twin = timm.models.vision_transformer.VisionTransformer(
        16, 4, num_classes=5, embed_dim=24, depth=2, num_heads=3
    ).eval()
    twin.load_pretrained(str(path))
    images = torch.randn(3, 3, 16, 16)
    assert largest_difference(kept.model(images), twin(images)) < 1e-5


def test_a_file_that_is_no_npz_is_named(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **google_arrays())
    for content in (path.read_bytes()[:-200], b"<html>"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz is cut short, or not an npz file"):
            load_pretrained(path)
    with pytest.raises(FileNotFoundError):
        load_pretrained(tmp_path / "nobody.npz")


@pytest.mark.parametrize(
    "gone",
    [
        "embedding/kernel",
        "Transformer/encoderblock_1/MlpBlock_3/Dense_0/bias",
        "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel",
        "Transformer/posembed_input/pos_embedding",
    ],
)
def test_an_incomplete_file_is_named(tmp_path, gone):
    arrays = google_arrays()
    del arrays[gone]
    np.savez(tmp_path / "half.npz", **arrays)
    with pytest.raises(ValueError, match=r"incomplete|missing"):
        load_pretrained(tmp_path / "half.npz")


# Pictures


def test_pictures_of_any_mode_and_size(picture):
    for mode in ("L", "RGBA", "P", "CMYK"):
        assert GREY(picture.convert(mode)).shape == (1, 8, 12)
    wide = Preprocess(32, (24, 24), "bilinear", (0.5,) * 3, (0.5,) * 3)
    assert wide(picture.convert("P")).shape == (3, 24, 24) and wide(
        picture.resize((40, 300))
    ).shape == (3, 24, 24)
    with pytest.raises(ValueError, match=r"C = 1, got \(3, 9, 9\)"):
        GREY(torch.rand(3, 9, 9))


@pytest.mark.parametrize(("fields", "says"), [
    ({"interpolation": "cubic"}, "unknown interpolation 'cubic', known: bilinear, bicubic"),
    ({"std": (0.0,)}, "std above 0"),
    ({"mean": (0.1, 0.2)}, "one number per channel"),
])  # fmt: skip
def test_a_wrong_description_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        Preprocess(
            **{
                "resize": 8,
                "crop": (8, 8),
                "interpolation": "bicubic",
                "mean": (0.3,),
                "std": (0.2,),
            }
            | fields
        )


# Out of Python


# torch 2.11 warns of its own reading
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_torch_export_gives_equal_outputs_for_any_number_of_images(tmp_path, model):
    images = torch.randn(4, 1, 8, 12)
    program = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim("B")},))
    torch.export.save(program, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    for n in (2, 3, 4):
        assert torch.allclose(again(images[:n]), model(images[:n]), atol=1e-5)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # of onnxscript's making
def test_onnx_gives_equal_outputs(tmp_path, model):
    import onnxruntime

    images = torch.randn(4, 1, 8, 12)
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        model,
        (images,),
        path,
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("B")},),
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n in (2, 4):
        (logits,) = session.run(None, {session.get_inputs()[0].name: images[:n].numpy()})
        assert np.allclose(logits, model(images[:n]).detach(), atol=1e-5)


def test_equal_weights_are_equal_files(tmp_path, model):
    notes = {name: name for name in ("z", "seen", "epoch", "tta", "\u00fc", "a")}
    files = [tmp_path / f"{number}.safetensors" for number in range(5)]
    for file in files:
        save_weights(file, model, GREY, ("a", "\u732b", "\U0001f408"), notes)
    assert len({file.read_bytes() for file in files}) == 1
    assert read_notes(files[0]).items() >= notes.items()
    assert load_weights(files[0]).class_names == ("a", "\u732b", "\U0001f408")
    assert load_file(files[0]).keys() == model.state_dict().keys()
