"""Speed-ups: the same numbers as without them, the memory that the cost model foretells, and the command that measures."""

import csv
import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tools import main as run_tool
from tools import speed, speed_cases
from vit_helpers.scaling import activations, speedups
from vit_helpers.scaling.speedups import (
    accumulate,
    best_precision,
    break_even_steps,
    checkpoint_blocks,
    quantize,
    saved_activation_bytes,
)
from vit_helpers.vit import ViT, ViTConfig

ROOT = Path(__file__).parents[1]
CONFIG = ViTConfig(32, 4, 3, 10, 64, 3, 4)
B = 12


def model(**changes):
    vit = ViT(replace(CONFIG, **changes))
    nn.init.trunc_normal_(vit.head.weight, std=0.02)  # from a head of zeros the blocks have no gradient
    return vit


def images(count=B):
    return torch.randn(count, 3, 32, 32)


def labels(count=B):
    return torch.randint(10, (count,))


def gradients(vit):
    return {name: p.grad.clone() for name, p in vit.named_parameters()}


def close(ours, theirs):
    return all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in theirs)


@pytest.mark.parametrize("parts", [1, 2, 5, 7, B])  # 5 and 7 do not divide 12
def test_parts_add_up_to_the_big_batch(parts):
    vit, x, y = model(), images(), labels()
    loss = F.cross_entropy(vit(x), y)
    loss.backward()
    wanted = gradients(vit)
    said = accumulate(vit, x, y, parts)  # over the gradients that are there
    assert said == pytest.approx(loss.item(), abs=1e-6)
    assert close(gradients(vit), wanted)


def test_parts_add_up_for_shares_of_classes_too():
    vit, x, shares = model(), images(), torch.rand(B, 10).softmax(1)
    F.cross_entropy(vit(x), shares).backward()
    wanted = gradients(vit)
    accumulate(vit, x, shares, 5)
    assert close(gradients(vit), wanted)


@pytest.mark.parametrize("parts", [0, B + 1, -1])
def test_no_part_is_empty(parts):
    with pytest.raises(ValueError, match=f"a batch of 12 images has from 1 to 12 parts, got {parts}"):
        accumulate(model(), images(), labels(), parts)


def test_a_part_is_forgotten_before_the_next():
    vit, x, y = model(), images(), labels()
    whole, third = (saved_activation_bytes(lambda parts=parts: accumulate(vit, x, y, parts), vit) for parts in (1, 3))
    assert whole == pytest.approx(3 * third, rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.2}, {"dropout": 0.1, "attn_dropout": 0.1}, {"image_size": 16}])
def test_recomputed_gradients_are_the_same_to_the_bit(changes):
    vit, y = model(**changes), labels()
    x = torch.randn(B, 3, *vit.config.image_size)
    runs = []
    for recompute in (False, True):
        vit.zero_grad()
        torch.manual_seed(1)
        if recompute:
            with checkpoint_blocks(vit):
                loss = F.cross_entropy(vit(x), y)
            loss.backward()  # also after the context has ended
        else:
            loss = F.cross_entropy(vit(x), y)
            loss.backward()
        runs.append(({"loss": loss.detach()} | gradients(vit), torch.get_rng_state()))
    (plain, after), (again, after_again) = runs
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    assert torch.equal(after, after_again)


def test_recomputing_works_with_a_mask():
    vit, x, mask = model(), images(2), torch.rand(2, 65) > 0.3
    with checkpoint_blocks(vit):
        assert torch.equal(vit(x, mask), vit(x, mask))
        vit(x, mask).sum().backward()


def test_recomputing_leaves_no_trace():
    vit = model()
    names, forwards = list(vit.state_dict()), [block.forward for block in vit.blocks]
    with pytest.raises(KeyError), checkpoint_blocks(vit) as inside:
        assert inside is vit and list(vit.state_dict()) == names
        assert [block.forward for block in vit.blocks] != forwards
        with checkpoint_blocks(vit):
            vit(images(1))
        assert [block.forward for block in vit.blocks] != forwards
        raise KeyError
    assert [block.forward for block in vit.blocks] == forwards
    deepcopy(vit)
    with pytest.raises(TypeError, match="Linear has no blocks to run again"), checkpoint_blocks(nn.Linear(1, 1)):
        pass


def of_loss(config):
    return 4 * B * config.num_classes + 8 * B + 4  # shares of classes, labels, a weight


@pytest.mark.parametrize("depth", [1, 3])
def test_what_autograd_keeps_is_the_cost_models(depth):
    vit, x, y = model(depth=depth), images(), labels()
    counted = activations(vit.config)

    def step():
        F.cross_entropy(vit(x), y).backward()

    assert saved_activation_bytes(step, vit) == 4 * B * sum(counted.values()) + of_loss(vit.config)
    T, D = vit.config.num_tokens, vit.config.embed_dim
    blocks = depth * T * D  # their inputs
    last_norm = T * (D + 2)
    with checkpoint_blocks(vit):
        fewer = saved_activation_bytes(step, vit)
    assert fewer == 4 * B * (counted["projection"] + blocks + last_norm + counted["head"]) + of_loss(vit.config)


def test_nothing_is_kept_without_a_way_back():
    vit, x = model(), images()
    with torch.no_grad():
        assert saved_activation_bytes(lambda: vit(x), vit) == 0


@pytest.mark.parametrize(
    ("device", "cpu_units", "cuda", "cuda_units", "wanted"),
    [
        ("cpu", False, False, False, "float32"),
        ("cpu", True, False, False, "bfloat16"),
        ("cpu", False, True, True, "float32"),
        ("cuda", True, False, False, "float32"),
        ("cuda", False, True, False, "float32"),
        ("cuda:0", False, True, True, "bfloat16"),
        ("mps", True, False, False, "float32"),
        (torch.device("cpu"), True, False, False, "bfloat16"),
    ],
)
def test_best_precision(monkeypatch, device, cpu_units, cuda, cuda_units, wanted):
    monkeypatch.setattr(speedups, "bf16_units", lambda: cpu_units)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: cuda_units)
    assert best_precision(device) == wanted


def test_eight_bits_say_nearly_the_same():
    pytest.importorskip("torch.ao.quantization")
    vit, x = model(num_classes=5), images()
    names = list(vit.state_dict())
    small = quantize(vit)
    with torch.no_grad():
        theirs, ours = vit(x), small(x)
    assert 0 < (ours - theirs).std() < 0.15 * theirs.std()
    assert vit.training and not small.training and list(vit.state_dict()) == names  # a copy
    assert speed_cases.file_mb(small) < 0.35 * speed_cases.file_mb(vit)


def test_when_a_start_has_paid():
    assert break_even_steps(10, 1.0, 0.75) == 40
    assert break_even_steps(10, 1.0, 2.0) == float("inf")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed_cases, "SECONDS", 0.001)
    monkeypatch.setattr(speed_cases, "CONFIG", ViTConfig(32, 8, 3, 10, 64, 2, 1))
    monkeypatch.setattr(speed_cases.Bench, "batch", 4)
    monkeypatch.setattr(speed_cases, "SIDES", (16, 32))
    monkeypatch.setattr(speed_cases, "WIDTHS", (64,))


def stored(path="runs/speed.csv"):
    with Path(path).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_names_of_rows():
    assert tuple(speed_cases.MEASURES) == speed.ROWS
    assert all(speed.when_it_pays(name).endswith(".") for name in speed.ROWS)


@pytest.mark.parametrize(
    ("name", "count"),
    [("bf16", 2), ("batch", 2), ("optimizer", 3), ("accumulation", 1), ("channels-last", 4), ("latency", 2), ("peak", 2)],
)
def test_rows_hold_before_and_after(tiny, capsys, name, count):
    assert run_tool(speed, [name, "--rounds", "2"]) == 0
    rows = stored()
    assert [row["row"] for row in rows] == count * [name]
    for row in rows:
        assert float(row["before_ms"]) > 0 and float(row["after_ms"]) > 0
        assert float(row["lowest"]) <= float(row["ratio"]) <= float(row["highest"])
    out = capsys.readouterr().out
    assert (
        out.count(f"\n| {name} | ") == count and f"\n- {name}: " in out and out.endswith(f"rows: {Path('runs/speed.csv')}\n")
    )


def test_attention_is_measured_in_both_forms_and_left_as_it_was(tiny, monkeypatch):
    from vit_helpers import attention

    ours, asked = attention.use_fused_attention, []
    plain = attention.attention
    monkeypatch.setattr(attention, "attention", lambda *words: asked.append(1) or plain(*words))
    assert run_tool(speed, ["attention", "--rounds", "1"]) == 0
    rows = stored()
    assert attention.use_fused_attention is ours and asked
    assert all(float(row["before_mb"]) > float(row["after_mb"]) for row in rows)


def test_checkpointing_tells_memory_twice(tiny, monkeypatch):
    monkeypatch.setattr(speed_cases, "in_own_process", lambda function, *words: function(*words))
    assert run_tool(speed, ["checkpointing", "--rounds", "1"]) == 0
    (row,) = stored()
    assert float(row["before_mb"]) > float(row["after_mb"])
    assert ("the process grows by" in row["also"]) == speed_cases.can_tell_memory()


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_compiling_starts_in_an_empty_folder(tiny, monkeypatch, kind):
    folders = []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(torch, "compile", lambda x: folders.append(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])) or x)
    row = speed_cases.compiled(speed_cases.Bench("cpu", 1), kind)
    assert not folders[0].exists() and folders[0].name != "elsewhere"  # gone again
    assert row["start_s"] > 0 and "pa" in row["also"]


def test_a_file_is_decoded_when_asked_for():
    files = speed_cases.Files(3, side=16)
    (picture, label), batch = files[2], next(iter(speed_cases.DataLoader(files, 3)))
    assert picture.shape == (3, 16, 16) and label == 2 and batch[0].shape == (3, 3, 16, 16)


def test_what_cannot_run_says_so_and_the_rest_goes_on(tiny, monkeypatch, capsys):
    def broken(*words):
        raise RuntimeError("no compiler | here\nand a long story")

    monkeypatch.setattr(speed_cases, "in_own_process", broken)
    assert run_tool(speed, ["compile", "latency", "--rounds", "1"]) == 0
    assert "| compile | | | | | | | not measured: RuntimeError: no compiler / here |" in capsys.readouterr().out
    assert [row["row"] for row in stored()] == ["compile", "latency", "latency"]


def test_errors_of_a_process_of_its_own_come_back_as_words():
    with pytest.raises(RuntimeError, match=r"TypeError: .*unsupported operand"):
        speed_cases.with_threads(torch.get_num_threads(), lambda: 1 + "1")


def test_unknown_rows_are_named(capsys):
    assert run_tool(speed, ["latency", "warp"]) == 1
    assert f"unknown row warp, known: {', '.join(speed.ROWS)}" in capsys.readouterr().err


def test_the_command_in_a_process_of_its_own(tmp_path):
    words = [sys.executable, "-m", "tools.speed", "threads", "--rounds", "1", "--out", "a/b.csv"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| threads | | | | | | | not measured: ValueError: torch has one thread here |" in done.stdout
    (row,) = stored(tmp_path / "a" / "b.csv")
    assert row["row"] == "threads" and row["ratio"] == ""
