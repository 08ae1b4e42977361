"""The tool that plants faults: what it draws, that they are faults, what its table shows."""

from collections import Counter

import pandas as pd
import pytest
import torch

from tools import main as run_tool
from tools.experiments import diagnosis
from vit_helpers.data import Batches, subset
from vit_helpers.results import read_results
from vit_helpers.training import evaluate

pytestmark = pytest.mark.dev


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


def test_plans_have_small_validation_splits_and_runs_that_are_fine_tuned():
    plans = [diagnosis.draw_plan(seed) for seed in range(600)]
    small = [plan for plan in plans if plan.validation_images < 60]
    assert 150 < len(small) < 250 and min(plan.validation_images for plan in small) < 25
    starts = Counter(plan.start for plan in plans)
    assert starts.keys() == {"scratch", "full", "lora"}
    assert 250 < starts["scratch"] < 350 and min(starts.values()) > 100
    assert Counter(plan.start for plan in small)["lora"] > 20  # one does not decide the other


@pytest.mark.parametrize("start", ["full", "lora"])
def test_a_fine_tuned_run_starts_from_what_other_images_have_taught(start, monkeypatch):
    monkeypatch.setattr(diagnosis, "STEPS", 20)
    model = diagnosis.start_model(start, 4)
    assert model.head.weight.shape == (4, 64) and not model.head.weight.any()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    lora = {"head.weight", "head.bias", "blocks.0.attn.qkv.A", "blocks.0.attn.qkv.B"}
    assert (trained == lora) is (start == "lora")
    images, rest = (subset(diagnosis.sources()[0], rows) for rows in ROWS)
    scores = [
        evaluate(diagnosis.learned(), Batches(split, 512, PREPARE)) for split in (images, rest)
    ]
    assert min(score.accuracy for score in scores) > 0.9
    drawn = []
    monkeypatch.setattr(diagnosis, "draw_split", spy(diagnosis.draw_split, drawn))
    seed = next(s for s in range(99) if diagnosis.draw_plan(s).start == start)
    row = diagnosis.train("none", seed)
    assert row["start"] == start and torch.equal(drawn[0].images, rest.images)


ROWS = slice(diagnosis.OTHERS), slice(diagnosis.OTHERS, None)
PREPARE = diagnosis.FAULTS["none"].prepare


def spy(function, calls):
    """The function, whose first arguments are kept"""

    def call(first, *others):
        calls.append(first)
        return function(first, *others)

    return call


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
