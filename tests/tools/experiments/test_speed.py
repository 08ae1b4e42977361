"""The tool that measures speed-ups: its rows, on any machine, and rows that cannot run."""

import os
from pathlib import Path

import pandas as pd
import pytest
import torch

from tools import main as run_tool
from tools.experiments import measuring, speed
from tools.experiments.speed import CASES
from vit_helpers.results.speed import ratios_of
from vit_helpers.scaling import speedups, timing
from vit_helpers.vit import ViTConfig

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[3]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "SECONDS", 0.001)
    monkeypatch.setattr(measuring, "CONFIG", ViTConfig(32, 8, 3, 10, 64, 2, 1))
    monkeypatch.setattr(measuring.Bench, "batch", 4)
    monkeypatch.setattr(speed, "PHOTOS", ViTConfig(32, 8, 3, 10, 64, 1, 1))


def stored(path="runs/speed.csv"):
    return pd.read_csv(path, dtype={"also": str})


def test_the_stored_rows_are_those_of_the_tool():
    rows = stored(ROOT / "vit_helpers" / "results" / "speed.csv")
    assert list(rows.columns) == speed.COLUMNS and list(rows["row"].unique()) == list(CASES)


def test_the_rows_of_a_gpu_are_some_of_the_tool():
    rows = stored(ROOT / "vit_helpers" / "results" / "speed_gpu.csv")
    assert list(rows.columns) == speed.COLUMNS and set(rows["row"]) <= set(CASES)
    assert set(ratios_of("speed_gpu")) < set(ratios_of("speed"))
    assert all(low <= ratio <= high for ratio, low, high in ratios_of("speed_gpu").values())


@pytest.mark.parametrize(
    ("name", "count"),
    [("batch", 1), ("optimizer", 1), ("accumulation", 1), ("decoding", 2), ("quantized", 1)],
)
def test_rows_hold_before_and_after(tiny, capsys, name, count):
    assert run_tool(speed, [name, "--rounds", "2"]) == 0
    rows = stored()
    assert list(rows["row"]) == count * [name]
    assert (rows[["before_ms", "after_ms"]] > 0).all(axis=None)
    assert (rows["lowest"] <= rows["ratio"]).all() and (rows["ratio"] <= rows["highest"]).all()
    out = capsys.readouterr().out
    assert out.count(f"\n| {name} | ") == count
    assert out.endswith(f"rows: {Path('runs/speed.csv')}\n")


@pytest.mark.parametrize("units", [False, True], ids=["no units", "units"])
def test_bfloat16_units_are_hidden_where_there_are_some(tiny, monkeypatch, units):
    hidden = []
    monkeypatch.setattr(speedups, "bf16_units", lambda: units)
    monkeypatch.setattr(
        speed,
        "in_own_process",
        lambda *words: hidden.append(os.environ["ONEDNN_MAX_CPU_ISA"]) or [],
    )
    assert run_tool(speed, ["bf16", "--rounds", "1"]) == 0
    assert list(stored()["after"]) == ["bfloat16", "bfloat16, fused attention"]
    assert hidden == units * ["AVX512_CORE"] and "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_attention_is_measured_in_both_forms_and_left_as_it_was(tiny, monkeypatch):
    from vit_helpers import attention

    ours, asked = attention.use_fused_attention, []
    plain = attention.attention
    monkeypatch.setattr(attention, "attention", lambda *words: asked.append(1) or plain(*words))
    assert run_tool(speed, ["attention", "--rounds", "1"]) == 0
    rows = stored()
    assert attention.use_fused_attention is ours and asked
    assert (rows["before_mb"] > rows["after_mb"]).all()


def test_checkpointing_keeps_less(tiny):
    assert run_tool(speed, ["checkpointing", "--rounds", "1"]) == 0
    (row,) = stored().to_dict("records")
    assert row["before_mb"] > row["after_mb"]


@pytest.mark.skipif(not timing.can_measure_memory(), reason="needs Linux")
def test_a_limit_on_memory_binds(monkeypatch):
    import resource

    steps = []

    def train(*words):
        # 1 GB, more than is free inside this process, and never touched
        steps.append(torch.empty(250_000_000))
        return 1000.0

    monkeypatch.setattr(speed, "two_steps", train)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    grown, how = speed.growth(speed.DIGITS, 2, "1 process", 500)
    assert grown == 1000 and how.startswith(
        "fails, can't allocate memory: you tried to allocate 1000000000 bytes"
    )
    assert speed.growth(speed.DIGITS, 2, "1 process", 5000)[1] == "trains, and grows by 1000 MB"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("way", ["1 process", "recomputed blocks"])
def test_two_training_steps_are_taken(tiny, monkeypatch, way):
    taken = []
    monkeypatch.setattr(speed, "train_step", lambda *words: lambda: taken.append(1))
    assert speed.two_steps(measuring.CONFIG, 2, way) >= 0 and len(taken) == 2


def test_rows_of_memory_say_how_each_way_ends(tiny, monkeypatch):
    def ran(count, function, config, batch, way, allowed):
        assert os.environ["MALLOC_MMAP_THRESHOLD_"]
        return 100.0 / count, f"{count} at {allowed:.0f}"

    monkeypatch.setattr(speed, "in_processes", ran)
    assert run_tool(speed, ["memory"]) == 0
    rows = stored()
    assert list(rows["after"].str.partition(":")[0]) == [
        "2 processes, sharded",
        "recomputed blocks",
    ]
    assert list(rows["after_mb"]) == [50, 100] and rows["before"][0] == "1 process: 1 at 127"


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_compiling_starts_in_an_empty_folder(tiny, monkeypatch, kind):
    folders = []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(
        torch, "compile", lambda x: folders.append(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])) or x
    )
    row = speed.compiled(measuring.Bench("cpu", 1), kind)
    assert not folders[0].exists() and folders[0].name != "elsewhere"  # gone again
    assert row["start_s"] > 0 and "pa" in row["also"]


def test_photos_are_decoded_by_the_loader():
    epochs = speed.epochs(4 * speed.JPEG_FILES, speed.decode)
    assert list(epochs) == ["no workers", "2 workers", "2 persistent workers"]
    (batch,) = epochs["no workers"]()
    assert batch.shape == (8, 3, 224, 224) and batch.float().std() > 20


def test_what_cannot_run_says_so_and_the_rest_goes_on(tiny, monkeypatch, capsys):
    def broken(*words):
        raise RuntimeError("no compiler | here\nand a long story")

    monkeypatch.setattr(speed, "in_own_process", broken)
    assert run_tool(speed, ["compile", "accumulation", "--rounds", "1"]) == 0
    assert (
        "| compile |" + 11 * "  |" + " not measured: RuntimeError: no compiler / here |"
        in capsys.readouterr().out
    )
    assert list(stored()["row"]) == ["compile", "accumulation"]


def test_unknown_rows_are_named(capsys):
    assert run_tool(speed, ["accumulation", "warp"]) == 1
    assert f"unknown row 'warp', known: {', '.join(CASES)}" in capsys.readouterr().err


def test_one_thread_is_not_compared_with_itself(tiny, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert run_tool(speed, ["threads", "batch", "--rounds", "1", "--out", "a/b.csv"]) == 0
    (row,) = stored("a/b.csv").to_dict("records")
    assert row["row"] == "batch"
