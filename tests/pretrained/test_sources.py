"""Trained models by name: the logits of the libraries that they come from."""

import numpy as np
import pytest
import torch
import torchvision
from peers import timm

from tests.pretrained.test_key_maps import google_arrays
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.assembly import explain_download
from vit_helpers.pretrained.sources import OURS
from vit_helpers.vit import ViTConfig

# Our own files


def test_unknown_names_are_answered_with_the_known_ones():
    for name in ("vit_b_16", "keras:vit", "torchvision:"):
        with pytest.raises(ValueError, match=r": torchvision:NAME, timm:NAME, .*PATH\.npz"):
            load_pretrained(name)
    with pytest.raises(
        ValueError,
        match=r"'ours:nobody'.*: ours:drawn, ours:eight, ours:masked, ",
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
    says = r"could not get https://.*vit_b_16.*\nBy hand: .*vit_b_16.*\n.*--weights ours:photos "
    with pytest.raises(OSError, match=says):
        load_pretrained("torchvision:vit_b_16")


@pytest.mark.parametrize(
    ("place", "is_there", "by_hand", "offline"),
    [("a/b.pth", False, True, True), ("", False, False, True), ("", True, False, False)],
)
def test_a_place_is_named_only_if_it_is_known(place, is_there, by_hand, offline):
    """timm and Hugging Face had "where timm keeps it" and "in a folder" """
    with (
        pytest.raises(OSError, match="could not get x: OSError: y") as failed,
        explain_download("x", place, is_there),
    ):
        raise OSError("y")
    said = str(failed.value)
    assert ("By hand: put the file at a/b.pth" in said) == ("By hand" in said) == by_hand
    assert ("--weights ours:photos" in said) == offline


# Preprocessing of all of torchvision's


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
    with pytest.raises(ValueError, match=f"timm .*{name}"):
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
    with pytest.raises(ValueError, match=r"ReLU.* gelu, gelu_tanh"):
        load_pretrained("timm:vit_tiny_patch16_224")


# Hugging Face, from folders as save_pretrained writes them


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
        with pytest.raises(ValueError, match=r"bad\.npz is cut short"):
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
