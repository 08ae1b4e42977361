"""The ViT in plain Python computes what ours does, and learns to read the digits."""

import ast
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from vit_helpers.data import load
from vit_helpers.microvit import microvit
from vit_helpers.parity import largest_difference
from vit_helpers.vit import ViT, ViTConfig

FILE = Path(microvit.__file__)
NAMES = {
    "norm1": "norm1",
    "norm2": "norm2",
    "proj": "attn.proj",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}


def twin(weights, depth, what="data"):
    """The weights of microvit, or their gradients, by the names of `ViT`: {name: tensor}"""
    rows = {
        name: torch.tensor([[getattr(x, what) for x in row] for row in matrix], dtype=torch.float64)
        for name, matrix in weights.items()
    }

    def layer(old, new):
        matrix = rows[old]
        return {f"{new}.weight": matrix[:, :-1], f"{new}.bias": matrix[:, -1]}

    state = layer("embed", "patch_embed.proj") | layer("head", "head")
    state |= {"token_embed.cls_token": rows["cls"][None]}
    state |= {"token_embed.pos_embed": rows["positions"][None]}
    state |= {"norm.weight": rows["norm"][0], "norm.bias": rows["norm"][1]}
    for i in range(depth):
        qkv = torch.cat([rows[f"{name}{i}"] for name in "qkv"])
        state |= {
            f"blocks.{i}.attn.qkv.weight": qkv[:, :-1],
            f"blocks.{i}.attn.qkv.bias": qkv[:, -1],
        }
        for old, new in NAMES.items():
            norm, name = rows[f"{old}{i}"], f"blocks.{i}.{new}"
            if old.startswith("norm"):
                state |= {f"{name}.weight": norm[0], f"{name}.bias": norm[1]}
            else:
                state |= layer(f"{old}{i}", name)
    return state


@pytest.fixture
def weights():
    random.seed(0)
    return microvit.make_weights()


@pytest.mark.parametrize("depth", [1, 2])
def test_logits_and_gradients_are_those_of_the_vit(monkeypatch, depth):
    monkeypatch.setattr(microvit, "DEPTH", depth)
    random.seed(0)
    weights = microvit.make_weights()
    for rows in weights.values():  # no zero and no one, behind which a mistake could hide
        for value in (value for row in rows for value in row):
            value.data += random.gauss(0, 0.3)
    size = {"embed_dim": microvit.DIM, "depth": depth, "num_heads": microvit.HEADS}
    size |= {"mlp_ratio": microvit.HIDDEN / microvit.DIM, "norm_eps": 1e-6}
    model = ViT(ViTConfig(8, microvit.PATCH, 1, 10, **size)).double()
    model.load_state_dict(twin(weights, depth), strict=True)
    image, label = [random.random() for _ in range(64)], 3
    logits = microvit.vit(weights, image)
    loss = microvit.cross_entropy(logits, label)
    microvit.backward(loss)
    theirs = model(torch.tensor(image, dtype=torch.float64).view(1, 1, 8, 8))
    their_loss = F.cross_entropy(theirs, torch.tensor([label]))
    their_loss.backward()
    assert microvit.numbers(logits) == pytest.approx(theirs[0].tolist(), abs=1e-10)
    assert loss.data == pytest.approx(their_loss.item(), abs=1e-10)
    gradients = twin(weights, depth, "grad")
    for name, weight in model.named_parameters():
        assert largest_difference(gradients[name], weight.grad) < 1e-10, name
        assert weight.grad.abs().max() > 1e-3, name


def test_it_imports_nothing_but_math_and_random():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert sorted(alias.name for node in found for alias in node.names) == ["math", "random"]


def test_its_digits_are_those_of_the_series():
    for name, examples in microvit.read_digits().items():
        split = load("digits").get_split(name)
        assert [label for _, label in examples] == split.labels.tolist()
        pixels = torch.tensor([image for image, _ in examples])
        assert largest_difference(pixels, split.images.flatten(1)) == 0


def test_a_new_model_has_no_opinion_and_learns(weights, capsys):
    examples = microvit.read_digits()["train"][:60]

    def mean_loss():
        losses = [microvit.cross_entropy(microvit.vit(weights, x), y).data for x, y in examples]
        return sum(losses) / len(losses)

    assert mean_loss() == pytest.approx(math.log(10), abs=0.8)
    microvit.train(weights, examples, steps=100)
    assert mean_loss() < 1
    assert "step 100 of 100: loss" in capsys.readouterr().out


def test_a_digit_is_drawn_as_eight_lines_of_text():
    image, _ = microvit.read_digits()["test"][0]
    lines = microvit.draw(image).split("\n")
    assert [len(line) for line in lines] == [16] * 8
    assert microvit.draw([0.0] * 64).strip() == ""
    assert set(microvit.draw([1.0] * 64)) == {"@", "\n"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_it_reads_nine_in_ten_digits(seed, capsys):
    random.seed(seed)
    digits, weights = microvit.read_digits(), microvit.make_weights()
    microvit.train(weights, digits["train"])
    right = [microvit.predict(weights, image) == label for image, label in digits["test"]]
    assert sum(right) / len(right) >= 0.9


@pytest.mark.long
def test_started_alone_it_prints_its_progress_and_a_digit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", FILE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("step 100 of ")
    assert lines[-10].startswith("It reads ")
    assert lines[-1].startswith("This is a ")
