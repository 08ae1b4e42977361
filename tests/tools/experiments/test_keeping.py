"""Which weights of a training to keep: the rules, and a training of a moment."""

import pytest

from tools.experiments import keeping

pytestmark = pytest.mark.dev


@pytest.mark.parametrize("changes", [{}, {"weights": "ours:masked", "tune": "lora"}])
def test_a_training_is_evaluated_after_each_epoch(monkeypatch, changes):
    case = {"data": "digits", "images": 64, "epochs": 2, **changes}
    monkeypatch.setitem(keeping.CASES, "a moment", case)
    row = keeping.train_once("cifar10", "a moment", seed=0)
    assert row["train_images"] == 64 and row["new_images"] == 360
    for name in ("validation", "loss", "new"):
        assert len(row[name].split()) == 2
    assert all(0 <= float(x) <= 1 for h in keeping.HORIZONS for x in row[f"ema_{h}"].split())
