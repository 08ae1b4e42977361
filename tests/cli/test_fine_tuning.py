"""`train --weights`: trained weights in every format and of every library, tuned in three ways."""

import re

import numpy as np
import pytest
import torch
import torchvision
from commands import command
from peers import mark_peers, timm, transformers
from PIL import Image
from safetensors.torch import save_file

from vit_helpers import ViT, ViTConfig
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights

pytestmark = [
    pytest.mark.usefixtures("no_figures"),
    pytest.mark.filterwarnings("ignore:.* has no description; assumed"),
    pytest.mark.filterwarnings("ignore:the names of the 5 classes .* are unknown"),
]
CONFIG = ViTConfig(16, 8, 3, 5, 64, 2, 4)


def torchvisions():
    return torchvision.models.VisionTransformer(16, 8, 2, 4, 64, 256, num_classes=5)


def timms():
    return timm.models.vision_transformer.VisionTransformer(
        16, 8, num_classes=5, embed_dim=64, depth=2, num_heads=4
    )


def huggingfaces():
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
    }
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_labels=5, **sizes)
    return transformers.ViTForImageClassification(config)


TWINS = {
    "torchvision": torchvisions,
    "timm": timms,
    "Hugging Face": huggingfaces,
    "this series": lambda: ViT(CONFIG),
}
WRAPPINGS = {
    "plain.pth": lambda state: state,
    "parallel.pt": lambda state: {f"module.{key}": value for key, value in state.items()},
    "lightning.ckpt": lambda state: {
        "epoch": 3,
        "state_dict": {f"model.{key}": value for key, value in state.items()},
    },
    "nested.bin": lambda state: {
        "model": {"state_dict": {f"module.backbone.{k}": w for k, w in state.items()}},
        "lr": 0.1,
    },
    "moco.pth.tar": lambda state: {"model": state, "optimizer": {"state": {}}},
    "half.pth": lambda state: {key: value.double() for key, value in state.items()},
    "plain.safetensors": None,
}


def twin(library):
    torch.manual_seed(0)
    model = TWINS[library]().eval()
    perturb(model, std=0.1)
    return model


def kept(model, path):
    """The model's weights in a file, wrapped as its name says"""
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(WRAPPINGS[path.name](state), path)
    return path


@pytest.mark.parametrize("name", WRAPPINGS)
@pytest.mark.parametrize("library", mark_peers(TWINS))
def test_files_of_every_library_give_its_logits(library, name, tmp_path):
    model = twin(library)
    ours = load_pretrained(kept(model, tmp_path / name))
    images = torch.randn(2, 3, 16, 16)
    theirs = model(images)
    assert largest_difference(ours.model(images), getattr(theirs, "logits", theirs)) < 1e-5
    assert ours.preprocess.crop == (16, 16) and len(ours.class_names) == 5
    assert ours.preprocess.mean[0] == (0.485 if library == "torchvision" else 0.5)


@pytest.mark.peers
def test_other_names_are_answered_with_the_nearest_layout(tmp_path):
    state = twin("timm").state_dict() | {
        "dist_token": torch.zeros(1, 1, 64),
        "head_dist.weight": torch.zeros(5, 64),
    }
    torch.save(state, path := tmp_path / "distilled.pth")
    with pytest.raises(
        ValueError,
        match=r"timm, .*2 of its 34 .*: dist",
    ):
        load_pretrained(path)
    torch.save(torchvision.models.resnet18().state_dict(), path)
    with pytest.raises(ValueError, match=r"torchvision, timm, .*conv1\.weight"):
        load_pretrained(path)


class Payload:
    def __reduce__(self):
        return print, ("code of the file ran",)


@pytest.mark.parametrize("content", [Payload(), {"state_dict": Payload()}, torch.nn.Linear(2, 2)])
def test_no_code_of_a_file_runs(tmp_path, capsys, content):
    torch.save(content, path := tmp_path / "evil.pth")
    with pytest.raises(ValueError, match=r"pickled objects.*state_dict"):
        load_pretrained(path)
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "truncated, damaged or not a file of weights"),
        (b"<html>", "truncated, damaged or not a file of weights"),
        ([1, 2], "type list"),
        ({"lr": 1}, "type dict"),
        ({"history": [], "recipe": {}, "model": {}}, "a checkpoint to resume from; .* give"),
    ],
)
def test_files_that_hold_no_weights_are_named(tmp_path, content, says):
    path = tmp_path / "bad.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=says):
        load_pretrained(path)


def test_what_a_file_cannot_tell_is_asked_for(tmp_path):
    model = ViT(ViTConfig(16, 8, 3, 5, 24, 1, 3))
    torch.save(model.state_dict(), path := tmp_path / "narrow.pth")
    with pytest.raises(ValueError, match=r"width 24 .*num_heads"):
        load_pretrained(path)
    assert load_pretrained(path, num_heads=3).model.config == model.config
    with pytest.raises(ValueError, match="says how many heads"):
        load_pretrained("ours:seven", num_heads=3)
    with pytest.raises(ValueError, match=r"weights\.safetensors"):
        load_pretrained(tmp_path)


def test_a_description_of_another_model_is_refused(tmp_path):
    save_file(
        {"x": torch.ones(1)},
        tmp_path / "a.safetensors",
        {"config": '{"layers": 3}', "preprocess": "{}", "class_names": "[]"},
    )
    with pytest.raises(ValueError, match="describes another kind of model"):
        load_pretrained(tmp_path / "a.safetensors")


# The command


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Noise, reddish or bluish: two classes of 30 pictures each"""
    folder, draw = tmp_path_factory.mktemp("fine") / "photos", np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (folder / name).mkdir(parents=True)
        for i in range(30):
            pixels = draw.integers(0, 120, (20, 24, 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


WAYS = [
    ("torchvision", "head"),
    ("timm", "lora"),
    ("Hugging Face", "full"),
    ("this series", "head"),
]


@pytest.mark.parametrize(("library", "tune"), mark_peers(WAYS))
def test_weights_of_every_library_are_fine_tuned_in_three_ways(photos, tmp_path, library, tune):
    model = twin(library)
    weights = kept(model, tmp_path / "parallel.pt")
    if library == "Hugging Face" and tune == "full":  # from a folder, as save_pretrained writes it
        weights = tmp_path / "folder"
        for one in (model, transformers.ViTImageProcessor(size={"height": 16, "width": 16})):
            one.save_pretrained(weights)
    words = [
        "--weights",
        weights,
        "--tune",
        tune,
        "--epochs",
        2,
        "--out",
        "run",
        "--rank",
        2 if tune == "lora" else None,
    ]
    words = words if tune == "lora" else words[:-2]
    done = command("train", "--data", f"folder:{photos}", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "16 x 16 pixels" in done.stdout and re.search(
        rf"\({tune}: [\d,]+ of them are trained\)", done.stdout
    )
    before, after = load_pretrained(weights).model, load_pretrained(tmp_path / "run").model
    changed = {
        name
        for name, w in after.state_dict().items()
        if not torch.equal(w, before.state_dict()[name])
    }
    changed -= {"head.weight", "head.bias"}
    assert {
        "full": len(changed) > 20,
        "head": not changed,
        "lora": changed == {f"blocks.{i}.attn.qkv.weight" for i in (0, 1)},
    }[tune], changed
    again = command("train", "--resume", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    test = re.compile("test accuracy .*")
    assert test.search(again.stdout)[0] == test.search(done.stdout)[0]


def test_weights_of_our_own_run_are_fine_tuned_at_another_size(photos, tmp_path):
    preprocess = Preprocess(16, (16, 16), "bilinear", (0.4,) * 3, (0.2,) * 3)
    save_weights(tmp_path / "run" / "weights.safetensors", twin("this series"), preprocess, "abcde")
    words = ["--weights", "run", "--image-size", 24, "--epochs", 1, "--out", "new"]
    done = command("train", "--data", f"folder:{photos}", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    new = load_pretrained(tmp_path / "new")
    assert (
        new.model.config.grid == (3, 3)
        and new.class_names == ("blue", "red")
        and new.preprocess.mean == (0.4,) * 3
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--weights", "nobody.pth"], r"no weights at \S+[/\\]nobody\.pth"),
        (
            ["--weights", "vit_b_16"],
            r"unknown weights 'vit_b_16' \(did you mean torchvision:vit_b_16\?\), known: torch",
        ),
        (["--weights", "plain.pth", "--size", "S"], "the weights plain.pth determine size"),
        (["--weights", "plain.pth", "--set", "depth=3"], "the weights plain.pth determine depth"),
        (["--weights", "plain.pth", "--set", "norm=last"], "the weights plain.pth determine norm"),
        (["--tune", "head"], "without weights"),
        (
            ["--weights", "plain.pth", "--image-size", "20"],
            "the patches of plain.pth have side 8: give an image size",
        ),
        (["--weights", "plain.pth", "--tune", "lora", "--rank", "65"], "from 1 to 64, got 65"),
    ],
)
def test_what_does_not_fit_is_one_line(photos, tmp_path, words, says):
    kept(twin("torchvision"), tmp_path / "plain.pth")
    done = command("train", "--data", f"folder:{photos}", *words, cwd=tmp_path)
    assert done.returncode == 1 and re.search(says, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
