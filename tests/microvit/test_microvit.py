"""The ViT in plain Python computes what ours does, and learns to read the digits."""

import ast
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from tools import main as run_tool
from tools.experiments import microvit as experiment
from tools.experiments import microvit_reference
from vit_helpers.ablation.rows import unpack
from vit_helpers.data import load
from vit_helpers.microvit import microvit
from vit_helpers.parity import largest_difference
from vit_helpers.results import read_results

FILE = Path(microvit.__file__)
FOLDER = FILE.parent


@pytest.fixture(autouse=True)
def an_empty_tape():
    microvit.TAPE.clear()


def as_tensor(image):
    return torch.tensor(image, dtype=torch.float64).view(1, 1, 8, 8)


@pytest.mark.parametrize("depth", [1, 2])
def test_logits_and_gradients_are_those_of_the_vit(monkeypatch, depth):
    monkeypatch.setattr(microvit, "DEPTH", depth)
    random.seed(0)
    weights = microvit.make_weights()
    for rows in weights.values():  # no zero and no one, behind which a mistake could hide
        for value in (value for row in rows for value in row):
            value.data += random.gauss(0, 0.3)
    model = experiment.twin(weights)
    image, label = [random.random() for _ in range(64)], 3
    logits = microvit.vit(weights, image)
    loss = microvit.cross_entropy(logits, label)
    microvit.backward(loss)
    our_logits = model(as_tensor(image))
    our_loss = F.cross_entropy(our_logits, torch.tensor([label]))
    our_loss.backward()
    assert microvit.numbers(logits) == pytest.approx(our_logits[0].tolist(), abs=1e-10)
    assert loss.data == pytest.approx(our_loss.item(), abs=1e-10)
    gradients = experiment.state_dict(weights, "grad")
    for name, weight in model.named_parameters():
        assert largest_difference(gradients[name], weight.grad) < 1e-10, name
        assert weight.grad.abs().max() > 1e-3, name


def test_a_second_pass_adds_to_the_gradients_and_predicting_leaves_nothing(monkeypatch):
    weights, image = microvit_reference.fixed_weights(), [0.5] * 64
    for _ in range(2):
        microvit.predict(weights, image)
        assert not microvit.TAPE
        microvit.backward(microvit.cross_entropy(microvit.vit(weights, image), 1))
        assert not microvit.TAPE
    twice = weights["head"][0][-1].grad
    weights = microvit_reference.fixed_weights()
    microvit.backward(microvit.cross_entropy(microvit.vit(weights, image), 1))
    assert twice == pytest.approx(2 * weights["head"][0][-1].grad) and twice != 0


def test_adam_is_torchs():
    digits = microvit.read_digits()["train"][:1]
    weights = microvit_reference.fixed_weights()
    model = experiment.twin(weights)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.95))
    for step in range(1, 4):
        optimizer.param_groups[0]["lr"] = microvit.RATE * (1 - step / 4)
        optimizer.zero_grad()
        F.cross_entropy(model(as_tensor(digits[0][0])), torch.tensor([digits[0][1]])).backward()
        optimizer.step()
    microvit.train(weights, digits, steps=3)
    trained = experiment.state_dict(weights)
    for name, weight in model.named_parameters():
        assert largest_difference(trained[name], weight.detach()) < 1e-7, name


def test_what_chooses_the_rate_trains_the_same_model():
    random.seed(3)
    digits, weights = microvit.read_digits(), microvit.make_weights()
    microvit.train(weights, digits["train"], steps=5)
    answers = [microvit.predict(weights, image) for image, _ in digits["validation"]]
    same = experiment.train_twin("validation", f"ViT, rate {microvit.RATE}", 3, steps=5)
    assert answers == same.tolist() and len({*answers}) > 1


def test_it_imports_nothing_but_math_and_random():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert sorted(alias.name for node in found for alias in node.names) == ["math", "random"]
    assert not re.search(r"__import__|exec\(|eval\(", FILE.read_text(encoding="utf-8"))


def test_its_digits_are_those_of_the_series():
    for name, examples in microvit.read_digits().items():
        split = load("digits").get_split(name)
        assert [label for _, label in examples] == split.labels.tolist()
        pixels = torch.tensor([image for image, _ in examples])
        assert largest_difference(pixels, split.images.flatten(1)) == 0


def test_a_new_model_has_no_opinion_and_learns(capsys):
    random.seed(0)
    weights, examples = microvit.make_weights(), microvit.read_digits()["train"][:20]

    def mean_loss():
        losses = [microvit.cross_entropy(microvit.vit(weights, x), y).data for x, y in examples]
        microvit.TAPE.clear()
        return sum(losses) / len(losses)

    assert mean_loss() > 1.8
    microvit.train(weights, examples, steps=30)
    assert mean_loss() < 1
    assert capsys.readouterr().out == ""  # progress comes every 100 steps


@pytest.fixture
def short(monkeypatch):
    """Two steps of training, and three test digits"""
    train, digits = microvit.train, microvit.read_digits()
    monkeypatch.setattr(microvit, "train", lambda weights, known: train(weights, known, steps=2))
    monkeypatch.setattr(microvit, "read_digits", lambda: digits | {"test": digits["test"][:3]})
    return digits


def test_it_draws_a_digit_with_its_answer(short, capsys):
    microvit.main()
    said, *drawn, answer = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"It reads [0-3] of 3 new digits correctly \(\d\.\d{3}\)\.", said)
    image, label = short["test"][0]
    assert re.fullmatch(rf"This is a {label}, and it reads a \d\.", answer)
    assert [len(line) for line in drawn] == [16] * 8 and "".join(drawn).isascii()
    inks = " .:-=+*#%@"
    shades = [inks.index(letter) for line in drawn for letter in line[::2]]
    assert shades == [int(9.99 * pixel) for pixel in image] and max(shades) == 9


@pytest.mark.parametrize("path", [FILE, FOLDER / "__main__.py"], ids=["file", "module"])
def test_ctrl_c_is_one_word(path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(random, "seed", interrupt)
    with pytest.raises(SystemExit, match=r"^stopped$"):
        runpy.run_path(str(path), run_name="__main__")


def stored_reference():
    """{name: numbers} of the file that ports are compared with"""
    lines = (FOLDER / "reference.txt").read_text(encoding="ascii").splitlines()
    pairs = [line.split(": ") for line in lines if not line.startswith("#")]
    return {name: [float(number) for number in row.split()] for name, row in pairs}


def test_the_numbers_for_ports_are_what_the_file_computes():
    stored = stored_reference()
    computed = dict(microvit_reference.reference())
    assert list(stored) == list(computed)
    for name, row in computed.items():
        assert stored[name] == pytest.approx(row, rel=1e-8, abs=1e-13), name


def test_the_numbers_for_ports_are_what_our_vit_computes():
    stored, label = stored_reference(), load("digits").train.labels[:1]
    weights = microvit_reference.fixed_weights()
    model = experiment.twin(weights)
    image = as_tensor(stored["pixels"])
    tokens = model.embed(image)
    block = model.blocks[0]
    normed = block.norm1(tokens)
    q, k, v = (x[0].transpose(0, 1).flatten(1) for x in block.attn.heads(normed))
    attended = tokens + block.attn(normed)
    hidden = block.mlp.fc1(block.norm2(attended))
    logits = model(image)
    loss = F.cross_entropy(logits, label)
    loss.backward()
    rows = {
        "label": label,
        "class token": tokens[0, 0],
        "first patch's token": tokens[0, 1],
        "class token, norm1": normed[0, 0],
        "class token, query": q[0],
        "first patch, key": k[1],
        "first patch, value": v[1],
        "head 0, weights": block.attn.weights(normed)[0, 0, 0],
        "head 1, weights": block.attn.weights(normed)[0, 1, 0],
        "class token after attention": attended[0, 0],
        "hidden, before GELU": hidden[0, 0],
        "hidden, after GELU": F.gelu(hidden[0, 0]),
        "class token after the block": block(tokens)[0, 0],
        "logits": logits[0],
        "probabilities": logits[0].softmax(0),
        "loss": loss[None],
    }
    for name, row in rows.items():
        assert stored[name] == pytest.approx(row.tolist(), rel=1e-8), name
    fc1 = model.get_parameter("blocks.0.mlp.fc1.weight").grad
    bias = model.get_parameter("blocks.0.mlp.fc1.bias").grad
    wanted = [fc1[0, 0], bias[-1], torch.cat([fc1.flatten(), bias]).norm()]
    assert stored["gradient block0.fc1"] == pytest.approx([x.item() for x in wanted], rel=1e-8)


def test_single_precision_agrees_in_five_digits_and_another_gelu_does_not():
    stored = stored_reference()
    model = experiment.twin(microvit_reference.fixed_weights()).float()
    logits = model(as_tensor(stored["pixels"]).float())
    assert stored["logits"] == pytest.approx(logits[0].tolist(), rel=1e-5)
    hidden = torch.tensor(stored["hidden, before GELU"], dtype=torch.float64)
    tanh, exact = F.gelu(hidden, approximate="tanh"), torch.tensor(stored["hidden, after GELU"])
    assert ((tanh - exact) / exact).abs().max() > 1e-4


def test_the_command_writes_the_stored_numbers(tmp_path):
    path = tmp_path / "reference.txt"
    assert run_tool(microvit_reference, ["--out", str(path)]) == 0
    stored = (FOLDER / "reference.txt").read_text(encoding="ascii").splitlines()
    assert len(path.read_text(encoding="ascii").splitlines()) == len(stored)


def test_the_experiment_stores_a_row_for_each_training(tmp_path, monkeypatch, short, capsys):
    monkeypatch.setattr(experiment, "RATES", (microvit.RATE,))
    monkeypatch.setattr(experiment, "CHOOSING", (100,))
    monkeypatch.setattr(microvit, "read_digits", lambda: short)
    monkeypatch.setattr(experiment.train_twin, "__defaults__", (2,))
    for goal in ("digits-3s", "digits"):
        monkeypatch.setitem(experiment.GOALS[goal], "settings", {"epochs": 1, "depth": 1})
    path = tmp_path / "microvit.csv"
    assert run_tool(experiment, ["--seeds", "1", "--out", str(path)]) == 0
    rows, stored = pd.read_csv(path), read_results("microvit")
    assert list(rows.columns) == list(stored.columns) and len(rows) == 5
    assert set(rows["model"]) <= set(stored["model"])
    control = stored.query("model == 'nearest'")
    assert rows.query("model == 'nearest'")["right"].item() == control["right"].item()
    assert "rows: " in capsys.readouterr().out


def test_the_rate_was_chosen_on_validation_digits_with_seeds_of_their_own():
    rows = read_results("microvit")
    chosen = rows[rows["split"] == "validation"]
    tested = rows[rows["model"] == f"microvit, rate {microvit.RATE}"]
    assert chosen.groupby("model")["accuracy"].mean().idxmax() == f"ViT, rate {microvit.RATE}"
    assert {*tested["split"]} == {"test"}
    assert sorted(tested["seed"]) == [0, 1, 2, 3, 4] and not {*tested["seed"]} & {*chosen["seed"]}
    assert tested["accuracy"].min() >= 0.9


ROWS = {  # of the table in README.md: where each row is stored
    "this file": f"microvit, rate {microvit.RATE}",
    "our `ViT`, 8 passes": "digits-3s",
    "our `ViT`, 36 passes": "digits",
    "the nearest training digit": "nearest",
}


@pytest.mark.repo
def test_the_page_has_the_stored_accuracies():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    stored = read_results("microvit").query("split == 'test'")
    assert {*stored["model"]} == {*ROWS.values()}
    for words, model in ROWS.items():
        rows = stored[stored["model"] == model]
        right = [unpack(text).mean() for text in rows["right"]]
        assert right == pytest.approx(rows["accuracy"].to_list(), abs=1e-6)
        accuracy = rows["accuracy"]
        spread = f" ({min(right):.3f} to {max(right):.3f})" if len(rows) > 1 else ""
        line = f"| {words} | {accuracy.mean():.3f}{spread} | {len(rows)} | "
        line += f"{rows['seconds'].mean():.0f} |" if len(rows) > 1 else "less than 1 |"
        assert line in page, line
    for name in re.findall(r"`([^`\n]+)`", page.partition("## Porting")[2]):
        known = [*stored_reference(), "weights NAME", "gradient NAME", "block0.k"]
        known += ["reference.txt", "digits.txt", "make_weights", "0", "g", "train", "erf", "tanh"]
        assert name in known, name


def stored_tests():
    """The stored rows of the file's trainings, by their seeds"""
    rows = read_results("microvit").query("split == 'test'").set_index("seed")
    return rows[rows["model"] == f"microvit, rate {microvit.RATE}"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_it_reads_nine_in_ten_digits(seed):
    """Our ViT is trained in its place, in seconds: nearly all its answers are those stored."""
    answers = experiment.train_twin("test", f"ViT, rate {microvit.RATE}", seed)
    right = (answers == load("digits").test.labels).numpy()
    assert (right == unpack(stored_tests()["right"][seed])).mean() > 0.99
    assert right.mean() >= 0.9


@pytest.mark.long
def test_started_alone_it_prints_its_progress_and_a_digit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", FILE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("step 100 of ")
    accuracy = float(re.match(r"It reads .* correctly \((.*)\)\.", lines[-10])[1])
    assert accuracy == pytest.approx(stored_tests()["accuracy"][0], abs=0.01) and accuracy >= 0.9
    assert lines[-1].startswith("This is a ")
