"""The tool that measures speed-ups: its rows, on any machine, and what it does with a row that cannot run."""

import io
import math
import os
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from tools import main as run_tool
from tools import measuring, speed
from tools.speed import CASES
from vit_helpers.scaling import speedups, timing
from vit_helpers.vit import ViTConfig

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "SECONDS", 0.001)
    monkeypatch.setattr(measuring, "CONFIG", ViTConfig(32, 8, 3, 10, 64, 2, 1))
    monkeypatch.setattr(measuring.Bench, "batch", 4)
    monkeypatch.setattr(speed, "SIDES", (16, 32))


def stored(path="runs/speed.csv"):
    return pd.read_csv(path, dtype={"also": str})


def test_the_docstring_of_each_row_says_when_it_pays():
    assert all(case.__doc__.endswith(".") for case in CASES.values())


def test_the_stored_rows_are_those_of_the_tool():
    rows = stored(ROOT / "vit_helpers" / "results" / "speed.csv")
    assert list(rows.columns) == speed.COLUMNS and list(rows["row"].unique()) == list(CASES)


@pytest.mark.parametrize(
    ("name", "count"),
    [("batch", 2), ("optimizer", 1), ("accumulation", 1), ("channels-last", 1)],
)
def test_rows_hold_before_and_after(tiny, capsys, name, count):
    assert run_tool(speed, [name, "--rounds", "2"]) == 0
    rows = stored()
    assert list(rows["row"]) == count * [name]
    assert (rows[["before_ms", "after_ms"]] > 0).all(axis=None)
    assert (rows["lowest"] <= rows["ratio"]).all() and (rows["ratio"] <= rows["highest"]).all()
    out = capsys.readouterr().out
    assert out.count(f"\n| {name} | ") == count and f"\n- {name}: " in out
    assert out.endswith(f"rows: {Path('runs/speed.csv')}\n")


@pytest.mark.parametrize("units", [False, True], ids=["no units", "units"])
def test_rows_of_a_machine_with_and_without_bfloat16_units(tiny, monkeypatch, units):
    monkeypatch.setattr(speedups, "bf16_units", lambda: units)
    assert run_tool(speed, ["bf16", "--rounds", "1"]) == 0
    rows = stored().set_index("row")
    best = "bfloat16" if units else "float32"
    assert rows.loc["bf16", "also"] == f"best_precision: {best}"
    assert rows.loc["bf16", "after"] == "bfloat16, fused attention"


def test_attention_is_measured_in_both_forms_and_left_as_it_was(tiny, monkeypatch):
    from vit_helpers import attention

    ours, asked = attention.use_fused_attention, []
    plain = attention.attention
    monkeypatch.setattr(attention, "attention", lambda *words: asked.append(1) or plain(*words))
    assert run_tool(speed, ["attention", "--rounds", "1"]) == 0
    rows = stored()
    assert attention.use_fused_attention is ours and asked
    assert (rows["before_mb"] > rows["after_mb"]).all()


def test_checkpointing_tells_memory_twice(tiny, monkeypatch):
    monkeypatch.setattr(speed, "in_own_process", lambda function, *words: function(*words))
    assert run_tool(speed, ["checkpointing", "--rounds", "1"]) == 0
    (row,) = stored().to_dict("records")
    assert row["before_mb"] > row["after_mb"]
    assert ("the process grows by" in str(row["also"])) == timing.can_measure_memory()


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_compiling_starts_in_an_empty_folder(tiny, monkeypatch, kind):
    folders = []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(torch, "compile", lambda x: folders.append(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])) or x)
    row = speed.compiled(measuring.Bench("cpu", 1), kind)
    assert not folders[0].exists() and folders[0].name != "elsewhere"  # gone again
    assert row["start_s"] > 0 and "pa" in row["also"]


def test_what_is_quantized_is_smaller(tiny):
    assert run_tool(speed, ["quantized", "--rounds", "1"]) == 0
    rows = stored()
    assert list(rows["after"]) == ["int8"]
    sizes = rows["also"].str.extract(r"weights ([\d.]+) → ([\d.]+) MB").astype(float)
    assert (sizes[1] < 0.6 * sizes[0]).all()
    assert "accuracy of a trained model" in rows["also"][0]


def test_jpeg_files_are_decoded_by_the_loader():
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (255, 0, 0)).save(file, "JPEG")
    ((name, epoch),) = speed.load_with(3 * [file.getvalue()], 0, partial(speed.decode, side=16)).items()
    (batch,) = epoch()
    assert name == "DataLoader, 0 workers" and batch.shape == (3, 3, 16, 16)
    assert batch[:, 0].min() > 250 and batch[:, 1:].max() < 5


def test_what_cannot_run_says_so_and_the_rest_goes_on(tiny, monkeypatch, capsys):
    def broken(*words):
        raise RuntimeError("no compiler | here\nand a long story")

    monkeypatch.setattr(speed, "in_own_process", broken)
    assert run_tool(speed, ["compile", "accumulation", "--rounds", "1"]) == 0
    assert "| compile |" + 11 * "  |" + " not measured: RuntimeError: no compiler / here |" in capsys.readouterr().out
    assert list(stored()["row"]) == ["compile", "accumulation"]


def test_errors_of_a_process_of_its_own_come_back_as_words():
    with pytest.raises(RuntimeError, match=r"TypeError: .*unsupported operand"):
        measuring.with_threads(torch.get_num_threads(), lambda: 1 + "1")


def test_unknown_rows_are_named(capsys):
    assert run_tool(speed, ["accumulation", "warp"]) == 1
    assert f"unknown row 'warp', known: {', '.join(CASES)}" in capsys.readouterr().err


def test_one_thread_is_not_compared_with_itself(tiny, monkeypatch, capsys):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert run_tool(speed, ["threads", "--rounds", "1", "--out", "a/b.csv"]) == 0
    said = capsys.readouterr().out
    assert "| threads |" + 11 * "  |" + " not measured: ValueError: torch has one thread here |" in said
    (row,) = stored("a/b.csv").to_dict("records")
    assert row["row"] == "threads" and math.isnan(row["ratio"])
