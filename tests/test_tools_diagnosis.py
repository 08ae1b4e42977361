"""The tool that plants faults: what it draws, that they are faults, what its table shows."""

import pandas as pd
import pytest
import torch

from tools import main as run_tool
from tools.experiments import diagnosis
from vit_helpers.results import read_results


def test_a_plan_has_shares_from_1_to_50_percent_and_is_drawn_from_its_seed():
    plans = [diagnosis.draw_plan(seed) for seed in range(200)]
    assert all(
        sum(plan.shares) == pytest.approx(1) and len(plan.shares) == len(plan.digits)
        for plan in plans
    )
    assert {len(plan.digits) for plan in plans} == set(range(2, 11))
    assert 0.01 <= min(min(plan.shares) for plan in plans) < 0.012 and plans[
        3
    ] == diagnosis.draw_plan(3)


def test_relabeling_changes_labels_and_not_their_counts():
    split = diagnosis.sources()[0]
    torch.manual_seed(0)
    other = diagnosis.relabel(split)
    assert torch.equal(other.labels.bincount(), split.labels.bincount()) and torch.equal(
        other.images, split.images
    )
    assert (other.labels == split.labels).float().mean() < 0.2


def test_it_trains_with_a_fault_and_without(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(diagnosis, "STEPS", 60)
    faults = ["black images", "places of other patches"]
    words = [
        "--seeds",
        "1",
        "--first",
        "0",
        "--fault",
        *faults,
        "--out",
        str(tmp_path / "rows.csv"),
    ]
    assert run_tool(diagnosis, words) == 0
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows["right"].all() and list(rows.columns) == list(read_results("diagnosis").columns)
    assert "black images" in capsys.readouterr().out


def test_the_stored_table_has_no_false_alarm_and_names_nine_of_ten_faults():
    rows = read_results("diagnosis")
    healthy, faults = rows[rows["fault"] == "none"], rows[rows["fault"] != "none"]
    assert len(healthy) == healthy["seed"].nunique() == 200 and set(healthy["symptom"]) == {
        "healthy"
    }
    assert set(healthy["classes"]) == set(range(2, 11)) and set(healthy["label_smoothing"]) == {
        0.0,
        0.1,
        0.2,
    }
    counts = faults.groupby("fault")["right"].agg(["sum", "count"])
    assert set(counts.index) == diagnosis.FAULTS.keys() - {"none"}
    assert (counts["count"] == 20).all() and counts["sum"].min() >= 18
