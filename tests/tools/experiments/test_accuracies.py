"""Accuracies of the digits by cross-validation: each digit is tested once."""

import pandas as pd
import pytest

from tools import main
from tools.experiments import accuracies
from vit_helpers.ablation.rows import unpack

pytestmark = pytest.mark.dev


def test_digits_are_each_tested_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(accuracies.GOALS["digits-3s"], "settings", {"epochs": 1, "depth": 1})
    for kind in accuracies.KINDS:
        rows = accuracies.draw_folds(1797, kind, 3)
        assert (
            sorted(row for fold in rows for row in fold.tolist()) == list(range(1797))
            and len(rows) == 5
        )
    assert accuracies.draw_folds(1797, "consecutive", 3)[1].tolist() == list(range(360, 720))
    words = ["--goals", "digits-3s", "--seeds", "2", "--out", str(tmp_path / "accuracies.csv")]
    assert main(accuracies, words) == 0
    rows = pd.read_csv(tmp_path / "accuracies.csv")
    assert len(rows) == 4 and all(
        unpack(row.right).mean() == pytest.approx(row.accuracy) for row in rows.itertuples()
    )
    said = capsys.readouterr().out
    monkeypatch.setattr(accuracies, "cross_validate", None)
    assert main(accuracies, words) == 0
    assert capsys.readouterr().out.partition("\n")[2] in said
