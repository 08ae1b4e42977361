"""Descriptions of foreign weights are obeyed or refused, and assumptions without one are said."""

import json

import pytest
import torch
import torchvision
from commands import command
from peers import timm, transformers
from PIL import Image
from torchvision.transforms._presets import ImageClassification

from tests.data.test_listing import draw
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import huggingface, load_pretrained
from vit_helpers.vit import ViT, ViTConfig

TINY = {
    "image_size": 32,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "patch_size": 8,
}
LABELS = {0: "hut", 1: "flower", 2: "lake"}
SQUARE = {"height": 32, "width": 32}


@pytest.fixture
def picture():
    torch.manual_seed(0)
    return Image.effect_mandelbrot((90, 60), (-3, -2.5, 2, 2.5), 100).convert("RGB")


def store(folder, kind="ViTForImageClassification", processor=None, **changes):
    """A model as save_pretrained stores it, whose random weights are not small"""
    torch.manual_seed(0)
    fields = TINY | {"num_labels": 3, "id2label": LABELS} | changes
    model = getattr(transformers, kind)(transformers.ViTConfig(**fields)).eval()
    perturb(model, std=0.3)
    model.save_pretrained(folder)
    if processor is not None:
        settings = {"size": SQUARE} | processor
        transformers.ViTImageProcessor(**settings).save_pretrained(folder)
    return model


@pytest.mark.peers
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rescale_factor": 1 / 127.5},
        {"rescale_factor": 1 / 127.5, "do_normalize": False},
        {"do_rescale": False},
        {"do_rescale": False, "do_normalize": False},
        {"do_normalize": False},
        {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.3, 0.2, 0.1], "resample": 3},
        {"size": 32},
        {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32},
        {"size": {"height": 40, "width": 36}, "do_center_crop": True, "crop_size": SQUARE},
        {"do_convert_rgb": True},
    ],
)
def test_the_preprocessing_of_a_folder_is_obeyed(tmp_path, picture, settings):
    """The scale of pixels was ignored: 506 off"""
    store(tmp_path, processor=settings)
    processor = transformers.ViTImageProcessor.from_pretrained(tmp_path)
    theirs = processor(picture, return_tensors="pt")
    preprocess = load_pretrained(tmp_path).preprocess
    difference = preprocess(picture) - theirs["pixel_values"][0]
    assert difference.abs().max() * max(preprocess.std) < 3 / 255


@pytest.mark.peers
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"size": {"shortest_edge": 32}}, r"needs what is not implemented here: size = .*shortest"),
        ({"size": {"shortest_edge": 30, "longest_edge": 32}}, "longest_edge"),
        ({"do_pad": True, "pad_size": SQUARE}, "do_pad = True"),
        ({"do_resize": False}, "do_resize = False"),
    ],
)
def test_a_preprocessing_that_is_not_ours_is_refused(tmp_path, settings, says):
    store(tmp_path, processor=settings)
    with pytest.raises(ValueError, match=says):
        load_pretrained(tmp_path)


@pytest.mark.peers
def test_a_setting_that_nobody_reads_is_noticed_by_what_it_does(tmp_path, monkeypatch):
    store(tmp_path, processor={"do_rescale": False})
    read = huggingface.preprocess_of_huggingface
    ignoring = lambda name, settings: read(name, settings | {"do_rescale": True})  # noqa: E731
    monkeypatch.setattr(huggingface, "preprocess_of_huggingface", ignoring)
    with pytest.raises(ValueError, match=r"\(3, 32, 32\)"):
        load_pretrained(tmp_path)


@pytest.mark.peers
def test_a_part_without_weights_is_noticed_by_what_it_does(monkeypatch):
    """Of weights alone, this model is the paper's"""
    twin = timm.create_model("vit_tiny_patch16_224")
    perturb(twin, std=0.3)
    monkeypatch.setattr("timm.create_model", lambda name, pretrained: twin)
    load_pretrained("timm:vit_tiny_patch16_224")
    twin.blocks[3].mlp.act = torch.nn.ReLU()
    with pytest.raises(ValueError, match=r"is not the paper's model: .* ours differ by up to"):
        load_pretrained("timm:vit_tiny_patch16_224")


@pytest.mark.peers
@pytest.mark.parametrize("field", ["test_input_size", "test_crop_pct", "label_offset"])
def test_a_field_of_timm_is_obeyed_or_refused(monkeypatch, field):
    twin = timm.create_model("vit_tiny_patch16_224")
    twin.pretrained_cfg = twin.pretrained_cfg | {field: (3, 288, 288) if "size" in field else 1}
    monkeypatch.setattr("timm.create_model", lambda name, pretrained: twin)
    with pytest.raises(ValueError, match=f"not implemented.*: {field}"):
        load_pretrained("timm:vit_tiny_patch16_224")


def test_another_preparation_of_torchvision_is_noticed(monkeypatch):
    weights = torchvision.models.ViT_B_32_Weights.DEFAULT
    torch.manual_seed(0)
    state = torchvision.models.vit_b_32().state_dict()
    monkeypatch.setattr(type(weights), "get_state_dict", lambda *args, **options: state)
    load_pretrained("torchvision:vit_b_32")
    call = ImageClassification.forward
    monkeypatch.setattr(ImageClassification, "forward", lambda *args: call(*args).flip(-1))
    with pytest.raises(ValueError, match=r"vit_b_32 .*not implemented"):
        load_pretrained("torchvision:vit_b_32")


@pytest.mark.peers
def test_a_folder_without_preprocessing_is_read_and_that_is_said(tmp_path):
    twin = store(tmp_path)
    with pytest.warns(UserWarning, match=r"no preprocessor_config.json; assumed: mean 0\.5, std"):
        kept = load_pretrained(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    assert largest_difference(kept.model(images), twin(images).logits) < 1e-5
    assert kept.preprocess.crop == (32, 32) and kept.preprocess.mean == (0.5, 0.5, 0.5)


@pytest.mark.peers
def test_a_file_is_described_by_the_config_beside_it(tmp_path):
    store(tmp_path, processor={"image_mean": [0.1, 0.2, 0.3]})
    kept = load_pretrained(tmp_path / "model.safetensors")
    assert kept.class_names == ("hut", "flower", "lake")
    assert kept.model.config.num_heads == 3 and kept.preprocess.mean == (0.1, 0.2, 0.3)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:.* has no description; assumed")
def test_a_config_of_another_kind_beside_a_file_is_named(tmp_path):
    store(tmp_path, hidden_size=192, num_attention_heads=3)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_tiny_patch8_32"}))
    with pytest.warns(UserWarning, match=r"config\.json .*not read"):
        load_pretrained(tmp_path / "model.safetensors")


@pytest.mark.peers
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"problem_type": "multi_label_classification"}, "its outputs are several labels"),
        ({"problem_type": "regression"}, "its outputs are numbers, and no classes"),
        ({"num_labels": 1, "id2label": {0: "age"}}, "its outputs are numbers"),
    ],
)
def test_a_head_that_gives_no_class_is_left_out(tmp_path, changes, says):
    """Its probabilities were printed as those of classes"""
    twin = store(tmp_path, processor={}, **changes)
    with pytest.warns(UserWarning, match=f"the head of .* is left out: {says}"):
        kept = load_pretrained(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    hidden = twin.vit(images).last_hidden_state[:, 0]
    assert kept.class_names == () and largest_difference(kept.model(images), hidden) < 1e-5


@pytest.mark.filterwarnings("ignore:.* has no description; assumed")
def test_a_file_with_a_single_output_has_no_classes(tmp_path):
    model = ViT(ViTConfig(16, 8, 3, 1, 192, 1, 3))
    torch.save(model.state_dict(), tmp_path / "age.pth")
    with pytest.warns(UserWarning, match=r"age\.pth is left out"):
        assert load_pretrained(tmp_path / "age.pth").class_names == ()


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:.* has no preprocessor_config")
def test_classes_without_names_are_told(tmp_path):
    store(tmp_path, id2label=None)
    with pytest.warns(UserWarning, match="3 classes .* LABEL_0"):
        load_pretrained(tmp_path)


ASSUMED = (
    "note: plain.pth has no description; assumed: mean 0.5, std 0.5, resized (bilinear) to "
    "16 x 16, 3 heads, exact GELU, norms with eps 1e-06, output from the class token, "
    "one of 3 unnamed classes\n"
)


def test_every_command_says_what_it_assumes_of_a_file(tmp_path):
    torch.save(ViT(ViTConfig(16, 8, 3, 3, 192, 1, 3)).state_dict(), tmp_path / "plain.pth")
    for number in range(20):
        draw(tmp_path / "pets" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    words = ["--weights", "plain.pth"]
    run = command("predict", "pets/cat/0.png", *words, cwd=tmp_path)
    assert run.stdout.startswith(ASSUMED)
    data = ["--data", "folder:pets", "--split", "exact", "--epochs", "1"]
    run = command("train", *data, *words, cwd=tmp_path)
    assert run.stdout.startswith(ASSUMED), run.stderr
    run = command("evaluate", "plain.pth", "folder:pets", cwd=tmp_path)
    assert run.stdout == ASSUMED
    assert "what its 3 classes are" in run.stderr


@pytest.mark.peers
def test_a_model_without_a_head_needs_no_names(tmp_path):
    store(tmp_path, "ViTModel", processor={})
    assert load_pretrained(tmp_path).class_names == ()


@pytest.mark.peers
def test_transformers_is_silent_about_a_folder(tmp_path, capfd):
    from transformers.utils import logging

    store(tmp_path, processor={}, kind="ViTModel")
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    capfd.readouterr()
    load_pretrained(tmp_path)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
