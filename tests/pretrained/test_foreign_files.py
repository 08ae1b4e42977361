"""Files from elsewhere: what names and shapes cannot tell is asked for, and odd ones are named."""

import argparse
import json
import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from peers import timm, transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from vit_helpers._files import save_sealed
from vit_helpers.cli import main
from vit_helpers.parity import perturb
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.pretrained.calibration import load_familiarity
from vit_helpers.pretrained.files import read_notes
from vit_helpers.training.checkpoints import PARTS, load_checkpoint
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.filterwarnings("ignore:.* has no description; assumed")
SIZE = {"embed_dim": 64, "depth": 1, "num_heads": 4}


def small_vit(image_size=16, **changes):
    torch.manual_seed(0)
    fields = {"patch_size": 8, "num_classes": 3, **SIZE, **changes}
    model = ViT(ViTConfig(image_size=image_size, **fields)).eval()
    perturb(model, std=0.2)
    return model


def small_timm():
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, num_classes=3, **SIZE
    )
    perturb(model, std=0.2)
    return model.eval()


def clone_all(state):
    """Tensors that no longer lie in their file, which Windows could not replace otherwise"""
    return {name: tensor.clone() for name, tensor in state.items()}


# Prefixes, averaged weights, objects beside tensors


def prefixed(prefix, state):
    return {prefix + name: value for name, value in state.items()}


EXTRA = {"criterion.weight": torch.ones(3), "n_averaged": torch.tensor(7)}
CASES = {
    "criterion": lambda state: {**prefixed("model.", state), **EXTRA},
    "averaged": lambda state: {**prefixed("module.", state), **EXTRA},
    "any name": lambda state: {**prefixed("student.net.", state), **EXTRA},
    "compiled": lambda state: {**prefixed("module._orig_mod.", state), **EXTRA},
    "head outside": lambda state: (
        {
            name if name.startswith("head") else f"backbone.{name}": value
            for name, value in {**state, **EXTRA}.items()
            if name not in EXTRA
        }
        | EXTRA
    ),
}


@pytest.mark.peers
@pytest.mark.parametrize("wrap", CASES.values(), ids=CASES)
def test_the_prefix_of_most_names_is_removed_and_the_rest_named(tmp_path, wrap):
    model, images = small_timm(), torch.randn(2, 3, 16, 16)
    torch.save({"state_dict": wrap(model.state_dict())}, path := tmp_path / "w.pth")
    with pytest.warns(UserWarning, match=r" 2 tensors .*: criterion.weight, n_av"):
        loaded = load_pretrained(path)
    with torch.no_grad():
        assert torch.allclose(loaded.model(images), model(images), atol=1e-5)


def test_names_of_compiled_blocks_are_plain(tmp_path):
    model, images = small_vit(), torch.randn(2, 3, 16, 16)
    state = {
        re.sub(r"^(blocks\.\d+)\.", r"\1._orig_mod.", name): value
        for name, value in model.state_dict().items()
    }
    torch.save(state, path := tmp_path / "w.pth")
    assert torch.equal(load_pretrained(path).model(images), model(images))


@pytest.mark.peers
def test_two_models_in_one_file_are_refused(tmp_path):
    state = small_timm().state_dict()
    torch.save({**prefixed("a.", state), **prefixed("b.", state)}, path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match="names of no known layout"):
        load_pretrained(path)


@pytest.mark.parametrize(
    ("plain", "averaged"),
    [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("student", "teacher")],
)
def test_averaged_weights_come_first_as_in_timm(tmp_path, plain, averaged):
    state = small_vit().state_dict()
    other = {name: value + 1 for name, value in state.items()}
    torch.save({plain: state, averaged: other}, path := tmp_path / "w.pth")
    with pytest.warns(UserWarning, match=f"{averaged}, .*read.* {plain}"):
        loaded = load_pretrained(path)
    assert torch.equal(loaded.model.head.bias, other["head.bias"])
    torch.save({plain: state, averaged: {"decay": 0.9}}, path)  # no weights
    assert torch.equal(load_pretrained(path).model.head.bias, state["head.bias"])


def test_plain_objects_beside_the_weights_are_ignored(tmp_path):
    state = small_vit().state_dict()
    beside = {
        "args": argparse.Namespace(lr=1.0, out=Path("runs"), names=["a"]),
        "best": np.float64(0.9),
        "epoch": np.int64(3),
        "counts": np.arange(3),
    }
    torch.save({"model": state, **beside}, path := tmp_path / "w.pth")
    assert torch.equal(load_pretrained(path).model.head.bias, state["head.bias"])


class Other:
    """An object that is not plain"""


def test_other_objects_are_named_with_a_way_out(tmp_path):
    torch.save({"model": small_vit().state_dict(), "config": Other()}, path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth .* could run code.*Other.*weights_only=False"):
        load_pretrained(path)


def test_one_of_several_files_is_named_as_such(tmp_path):
    save_file({"x": torch.ones(1)}, path := tmp_path / "model-00001-of-00006.safetensors")
    with pytest.raises(ValueError, match=f"one of 6 files .*{tmp_path}"):
        load_pretrained(path)


# Grids and channels


def test_a_grid_that_is_not_square_is_given(tmp_path):
    model = small_vit((16, 64))
    torch.save(model.state_dict(), path := tmp_path / "w.pth")
    assert load_pretrained(path, image_size=(16, 64)).model.config == model.config
    assert load_pretrained(path).model.config.grid == (4, 4)  # 16 patches: it cannot be known
    with pytest.raises(ValueError, match=r"16 patches of side 8, .*\(16, 32\)"):
        load_pretrained(path, image_size=(16, 32))
    with pytest.raises(ValueError, match="says how large"):
        load_pretrained("ours:seven", image_size=8)
    torch.save(small_vit((16, 24)).state_dict(), path)
    with pytest.raises(ValueError, match=r"6 patches, .* image_size=\(H, W\)"):
        load_pretrained(path)
    assert load_pretrained(path, image_size=(16, 24)).model.config.grid == (2, 3)


def test_positions_without_one_for_the_class_token_are_named(tmp_path):
    state = small_vit().state_dict()
    state["token_embed.pos_embed"] = state["token_embed.pos_embed"][:, 1:]
    torch.save(state, path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"4 patches .*class token"):
        load_pretrained(path)


def test_patches_of_neither_gray_nor_color_are_refused(tmp_path):
    torch.save(small_vit(in_chans=2).state_dict(), path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match="128 numbers"):
        load_pretrained(path)


def hugging_face(folder, size=(16, 16), **changes):
    torch.manual_seed(0)
    fields = {"image_size": 16, "patch_size": 8, "hidden_size": 64, "num_hidden_layers": 1}
    fields |= {"num_attention_heads": 4, "intermediate_size": 64, "num_labels": 3}
    config = transformers.ViTConfig(**fields | changes)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    height, width = size
    processor = transformers.ViTImageProcessor(size={"height": height, "width": width})
    processor.save_pretrained(folder)
    return folder


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.peers
def test_images_that_are_prepared_in_another_shape_are_refused(tmp_path):
    """Both have four patches, so all weights fit."""
    folder = hugging_face(tmp_path / "m", image_size=[8, 32])
    with pytest.raises(ValueError, match=r"\(8, 32\), .*\(16, 16"):
        load_pretrained(folder)


# Memory is not taken on a file's own word


@pytest.fixture
def little_memory():
    """Only 2 GiB more than now may be taken, as address space"""
    if sys.platform != "linux":
        pytest.skip("only Linux limits the memory of a process")
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


LIES = [
    {"depth": 10_000_000},
    {"embed_dim": 4_000_000},
    {"image_size": [8_000_000, 8_000_000]},
    {"patch_size": 1, "image_size": [65536, 65536]},
    {"representation_size": 10**12},
    {"num_classes": 10**12},
    {"mlp_ratio": 1e12},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("positions", ["learned", "sincos", "none"])
def test_a_description_takes_no_memory(tmp_path, little_memory, lie, positions):
    model = small_vit(positions=positions)
    path = tmp_path / "w.safetensors"
    save_weights(path, model, Preprocess(16, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3), "abc")
    notes = {name: text for name, text in read_notes(path).items() if name != "sha256"}
    size = lie.get("image_size", [16, 16])
    notes["config"] = json.dumps(asdict(model.config) | lie)
    notes["preprocess"] = json.dumps(
        json.loads(notes["preprocess"]) | {"resize": size, "crop": size}
    )
    save_file(clone_all(load_file(path)), path, notes)
    with pytest.raises(ValueError, match=r"w\.safetensors describes"):
        load_pretrained(path)


def test_a_preparation_takes_no_memory(tmp_path):
    path, model = tmp_path / "w.safetensors", small_vit()
    prepare = Preprocess(10**7, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3)
    with pytest.raises(ValueError, match="more than 8 times"):
        save_weights(path, model, prepare, "abc")
    save_weights(path, model, Preprocess(16, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3), "abc")
    notes = {name: text for name, text in read_notes(path).items() if name != "sha256"}
    notes |= {"preprocess": json.dumps(asdict(prepare))}
    save_file(clone_all(load_file(path)), path, notes)
    with pytest.raises(ValueError, match=r"w\.safetensors .* more than 8 times"):
        load_pretrained(path)


@pytest.mark.peers
@pytest.mark.parametrize(
    "lie",
    [{"num_hidden_layers": 10_000_000}, {"hidden_size": 4_000_000}, {"image_size": 8_000_000}],
    ids=str,
)
def test_a_folder_of_hugging_face_takes_no_memory(tmp_path, little_memory, lie):
    folder = hugging_face(tmp_path / "m")
    change(folder / "config.json", **lie)
    with pytest.raises(ValueError, match=re.escape(str(folder))):
        load_pretrained(folder)


# One line that names the file


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


ODD = {
    "weights cut short": truncate,
    "weights are text": lambda folder: (folder / "model.safetensors").write_text("<html>"),
    "no JSON": lambda folder: (folder / "config.json").write_text("{"),
    "a list": lambda folder: (folder / "config.json").write_text("[]"),
    "no layers": lambda folder: change(folder / "config.json", num_hidden_layers=None),
    "text for a number": lambda folder: change(folder / "config.json", hidden_size="wide"),
    "heads that do not divide": lambda folder: change(
        folder / "config.json", num_attention_heads=7
    ),
    "labels by other numbers": lambda folder: change(
        folder / "config.json", id2label={"5": "a", "6": "b", "7": "c"}
    ),
    "labels in a list": lambda folder: change(folder / "config.json", id2label=["a", "b", "c"]),
    "shortest edge": lambda folder: change(
        folder / "preprocessor_config.json", size={"shortest_edge": 16}
    ),
    "no size": lambda folder: change(folder / "preprocessor_config.json", size={}),
    "mean of text": lambda folder: change(folder / "preprocessor_config.json", image_mean="abc"),
    "mean of two": lambda folder: change(
        folder / "preprocessor_config.json", image_mean=[0.5, 0.5]
    ),
}


@pytest.mark.peers
@pytest.mark.parametrize("spoil", ODD.values(), ids=ODD)
def test_an_odd_folder_of_hugging_face_is_one_line_that_names_it(tmp_path, spoil):
    folder = hugging_face(tmp_path / "m")
    spoil(folder)
    with pytest.raises((ValueError, OSError), match=re.escape(str(folder))):
        load_pretrained(folder)


def test_every_number_is_finite(tmp_path):
    state = small_vit().state_dict()
    state["norm.weight"][0] = math.nan
    torch.save(state, path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth"):
        load_pretrained(path)


def test_weights_that_repeat_few_numbers_take_no_memory(tmp_path, little_memory):
    state = small_vit().state_dict()
    for name, shape in (("head.weight", (10**9, 64)), ("head.bias", (10**9,))):
        state[name] = torch.zeros(1).expand(shape)
    torch.save(state, path := tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth has [\d,]+ bytes, .*tensors"):
        load_pretrained(path)


def test_compressed_zeros_take_no_memory(tmp_path, little_memory):
    np.savez_compressed(path := tmp_path / "w.npz", zeros=np.zeros(10**7, np.float32))
    with pytest.raises(ValueError, match=r"w\.npz has [\d,]+ bytes, .* 40"):
        load_pretrained(path)


NOTES = ["x", "[]", "{}", '{"means": 3}', '{"means": "AAA", "whiten": "", "limit": 1}']
NOTES += ['{"means": "AAAAAA==", "whiten": "AAAAAA==", "limit": 1}', '{"means": "", "whiten": ""}']


@pytest.mark.parametrize("note", NOTES)
def test_an_odd_note_of_familiar_images_is_named(tmp_path, note):
    prepare = Preprocess(16, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3)
    path = tmp_path / "w.safetensors"
    save_weights(path, small_vit(), prepare, "abc", {"familiarity": note})
    with pytest.raises(ValueError, match=r"w\.safetensors .*familiarity"):
        load_familiarity(path)


def test_an_odd_history_in_a_checkpoint_is_named(tmp_path):
    for history in ("x", [3], [{}], 3, None):
        save_sealed(path := tmp_path / "k.pt", {**dict.fromkeys(PARTS), "history": history})
        with pytest.raises(ValueError, match=r"k\.pt .*history"):
            load_checkpoint(path)


@pytest.mark.parametrize("command", ["predict", "evaluate", "train"])
def test_commands_say_what_is_left_out_of_a_file(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    model = small_vit()
    state = {**prefixed("model.", model.state_dict()), **EXTRA}
    torch.save({"state_dict": state, "state_dict_ema": state}, "w.pth")
    for number in range(60):
        folder = Path("photos") / f"class {number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    words = {
        "predict": ["photos", "--weights", "w.pth"],
        "evaluate": ["w.pth", "folder:photos"],
        "train": ["--data", "folder:photos", "--split", "exact", "--weights", "w.pth"],
    }[command]
    assert main([command, *words, *(["--epochs", "1"] if command == "train" else [])]) == 0
    out = capsys.readouterr().out
    assert ": criterion.weight, n_ave" in out
    assert "averaged weights, state_dict_ema" in out


# What a file has beside the weights that are read, and what they are assumed to be


def test_what_the_output_is_taken_from_is_said(tmp_path):
    """A file of a model that averages its patches gave other outputs, without a word"""
    torch.save(small_vit(embed_dim=192, num_heads=3, pool="avg").state_dict(), tmp_path / "w.pth")
    with pytest.warns(UserWarning, match="output from the class token"):
        load_pretrained(tmp_path / "w.pth")
    torch.save(
        small_vit(embed_dim=192, num_heads=3, pool="avg", class_token=False).state_dict(),
        tmp_path / "w.pth",
    )
    with pytest.warns(UserWarning, match="output from the mean of the patches"):
        load_pretrained(tmp_path / "w.pth")


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ({"net": small_vit(depth=2).state_dict()}, "net"),
        ({"student": small_vit().state_dict()}, "student"),
        ({"head.weight": torch.ones(5, 64), "epoch": torch.tensor(3)}, "head.weight"),
    ],
)
def test_weights_beside_those_that_are_read_are_named(tmp_path, beside, named):
    """One of two models was taken, and nothing said of the other"""
    model = small_vit()
    torch.save({"model": model.state_dict(), **beside}, tmp_path / "w.pth")
    says = rf"has weights, model, which are read, and others, {named}, which are not"
    with pytest.warns(UserWarning, match=says):
        loaded = load_pretrained(tmp_path / "w.pth", num_heads=4)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(loaded.model(images), model(images))


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_quantized_weights_are_refused(tmp_path, ending):
    """Bytes from -128 to 127 were taken for weights"""
    state = {k: (w * 50).round().to(torch.int8) for k, w in small_vit().state_dict().items()}
    path = tmp_path / f"w.{ending}"
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    with pytest.raises(ValueError, match=r"quantized .*torch.int8"):
        load_pretrained(path, num_heads=4)


# What a message says


def test_another_pickle_protocol_is_named_with_a_way_out(tmp_path, recwarn):
    torch.save(small_vit().state_dict(), path := tmp_path / "w.pth", pickle_protocol=4)
    with pytest.raises(ValueError, match=r"w\.pth .*another pickle protocol.*weights_only=False"):
        load_pretrained(path)
    assert not recwarn.list


def test_a_layout_that_hardly_fits_is_nobodys(tmp_path):
    own = {"cls_token": torch.zeros(1, 1, 8), "pos_embedding": torch.zeros(1, 5, 8)}
    own |= {f"transformer.layers.0.{i}.norm.weight": torch.zeros(8) for i in range(3)}
    torch.save(own, path := tmp_path / "w.pth")  # as vit-pytorch's
    with pytest.raises(ValueError, match=r": pos_embedding"):
        load_pretrained(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit_l_32", r"\(did you mean torchvision:vit_l_32\?\)"),
        ("deit_tiny_patch16_224.fb_in1k", r"\(did you mean timm:deit_tiny_patch16_224.fb_in1k\?\)"),
        ("google/vit-base-patch16-224", r"\(did you mean huggingface:google/vit-base-patch16-22"),
        ("photos", r"\(did you mean ours:photos\?\)"),
        ("runs/mine", r"\(there is no \S+[/\\]runs[/\\]mine\)"),
        ("nobody", "^(?!.*(did you mean|there is no))"),
    ],
)
def test_what_may_be_meant_by_unknown_weights_is_said(name, says):
    with pytest.raises(ValueError, match=says) as error:
        load_pretrained(name)
    assert str(error.value).startswith(f"unknown weights '{name}'")
