"""Files of weights: whole, of equal bytes, and bad ones named."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import load_file, save_file

from vit_helpers.pretrained import Preprocess, load_pretrained, load_weights, save_weights
from vit_helpers.pretrained.files import Pretrained, read_notes
from vit_helpers.pretrained.finetune import add_lora, merge_lora
from vit_helpers.training.presets import NormLastBlock
from vit_helpers.vit import ViT, ViTConfig

GREY = Preprocess((8, 12), (8, 12), "bicubic", (0.3,), (0.2,))


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
    with pytest.raises(ValueError, match=r"2 .* 3 classes"):
        save_weights(tmp_path / "x.safetensors", model, GREY, "ab")


@pytest.mark.parametrize("name", ["config", "preprocess", "class_names", "sha256"])
def test_a_note_cannot_have_the_name_of_ours(tmp_path, model, name):
    with pytest.raises(ValueError, match=f"writes {name} itself"):
        save_weights(tmp_path / "x.safetensors", model, GREY, "abc", {"epoch": "3", name: "x"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["x.pth", "x.SAFETENSORS", "x"])
def test_another_ending_is_refused(tmp_path, model, file):
    with pytest.raises(ValueError, match=rf"unknown ending of .*{file} .*\.safetensors"):
        save_weights(tmp_path / file, model, GREY, "abc")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "the model has no classification head"),
        ({"pool": "none", "num_classes": 3}, r"\(B, K\), .* \(1, 7, 3\): .*pool"),
    ],
)
def test_a_model_without_probabilities_of_classes_is_named(changes, message):
    config = ViTConfig.from_name("mini/4", image_size=(8, 12), in_chans=1, **changes)
    names = tuple("abc"[: config.num_classes])
    with pytest.raises(ValueError, match=message):
        Pretrained(ViT(config).eval(), GREY, names).top(torch.zeros(1, 8, 12))


def test_bad_files_are_named(tmp_path, model):
    path = tmp_path / "bad.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no weights at .*bad\.safetensors"):
        load_pretrained(path)
    path.write_bytes(b"not a file of weights")
    with pytest.raises(ValueError, match="cut short"):
        load_pretrained(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"torchvision, timm, .*: x"):
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
    with pytest.raises(ValueError, match=r"w\.safetensors describes"):
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
    with pytest.raises(ValueError, match=r"1 with .*: norm\.bias"):
        load_pretrained(path)


def test_blocks_of_another_kind_are_refused(tmp_path, model):
    other = ViT(model.config, NormLastBlock)
    with pytest.raises(ValueError, match="NormLastBlock"):
        save_weights(tmp_path / "x.safetensors", other, GREY, "abc")


def test_equal_weights_are_equal_files(tmp_path, model):
    notes = {name: name for name in ("z", "seen", "epoch", "tta", "\u00fc", "a")}
    files = [tmp_path / f"{number}.safetensors" for number in range(5)]
    for file in files:
        save_weights(file, model, GREY, ("a", "\u732b", "\U0001f408"), notes)
    assert len({file.read_bytes() for file in files}) == 1
    assert read_notes(files[0]).items() >= notes.items()
    assert load_weights(files[0]).class_names == ("a", "\u732b", "\U0001f408")
    assert load_file(files[0]).keys() == model.state_dict().keys()
