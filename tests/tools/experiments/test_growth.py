"""The tools of the experiments: small ones, whole; and that each goes on where it stopped."""

from itertools import pairwise

import pandas as pd
import pytest

from tools import main
from tools.experiments import accuracies, effects, growth
from vit_helpers.ablation import Table, read_runs, run_table
from vit_helpers.ablation.rows import unpack

pytestmark = pytest.mark.dev
SMALL = {"epochs": 1, "images": 100, "embed_dim": 16, "depth": 1, "num_heads": 2}


def test_networks_of_equal_cost_grow(tmp_path, monkeypatch, capsys):
    for name, value in {
        **{
            "COMMON": {"data": "digits", "model": "mini/4", "epochs": 1},
            "EPOCHS": 1,
            "TUNED_AT": {60: 100, 120: 100},
        },
        **{
            "SEEDS": {60: 2, 120: 1},
            "START": {60: 1, 120: 1},
            "MOST": 4,
            "TRIALS": growth.TRIALS[:2],
        },
        **{"TRIAL_PASSES": {100: 1}},
    }.items():
        monkeypatch.setattr(growth, name, value)
    words = ["--out", str(tmp_path / "growth.csv")]
    assert main(growth, words) == 0
    said = capsys.readouterr().out
    assert "ViT, at 100 images: tuned to {'lr': 0.001" in said and "CNN less ViT, test" in said
    rows = read_runs(tmp_path / "growth.csv")
    for network in ("ViT", "CNN"):
        doubled = rows[
            rows.change.str.startswith(f"{network}, 60 images") & (rows.seed == 0)
        ].accuracy.to_list()
        assert all(b - a >= growth.GAIN for a, b in pairwise(doubled[:-1]))
        assert len(doubled) == 3 or doubled[-1] - doubled[-2] < growth.GAIN
    assert (rows.test_right.map(unpack).map(len) == 360).all()
    monkeypatch.setattr("vit_helpers.ablation.runs.train_run", None)
    assert main(growth, [*words, "--show"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == said.splitlines()[-3:]
    lines = (tmp_path / "growth.csv").read_text().splitlines()
    # the ViT's trials, three seeds each
    (tmp_path / "growth.csv").write_text("\n".join(lines[: 1 + 2 * 3]) + "\n")
    assert main(growth, [*words, "--show"]) == 0
    assert "not trained yet: CNN, trial" in capsys.readouterr().out


def test_both_networks_cost_the_same():
    from vit_helpers.ablation.runs import work
    from vit_helpers.training.presets import RunSettings

    costs = [
        work(RunSettings.from_dict({"data": "digits", "model": "mini/2", **one}))
        for one in growth.NETWORKS.values()
    ]
    assert len(costs) == 2  # on Fashion-MNIST, which is not here: 1,795,968 and 1,762,910
    w = growth.NETWORKS["CNN"]["width"]
    convolutions = 9 * (14**2 * w + 7**2 * 2 * w**2 + 4**2 * 8 * w**2) + 40 * w
    assert convolutions == pytest.approx(1_795_968, rel=0.02)


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


def test_what_came_out_is_printed(tmp_path, monkeypatch, capsys):
    factors = {"width 32": {"embed_dim": 32}, "depth 2": {"depth": 2}}
    changes = {
        "1 head": {"num_heads": 1},
        "width 32": {"embed_dim": 32},
        "1 head and width 32": {"num_heads": 1, "embed_dim": 32},
    }
    slow = {"1 head, rate 1e-3": {"num_heads": 1, "lr": 1e-3}, "baseline, rate 1e-3": {"lr": 1e-3}}
    tables = {
        "hyperparameters": Table(seeds=2, baseline=SMALL, changes=changes),
        "rates": Table(seeds=2, baseline=SMALL, changes=slow),
        "factorial": Table(seeds=2, baseline=SMALL, factors=factors),
        "confirm": Table(seeds=2, baseline=SMALL, changes=changes),
        "accuracy_fashion_mnist": Table(seeds=2, test=True, baseline=SMALL),
    }
    for name, table in tables.items():
        run_table(table, tmp_path / f"{name}.csv", lambda line: None)
        named = (
            {"changes": table.changes, "factors": table.factors}
            if name == "factorial"
            else {"changes": table.changes}
        )
        text = "".join(
            f'[{part}."{change}"]\n'
            + "".join(f"{key} = {value}\n" for key, value in settings.items())
            for part, some in named.items()
            for change, settings in some.items()
        )
        (tmp_path / f"{name}.toml").write_text(text)
    for module in ("tools.experiments.effects", "vit_helpers.results"):
        monkeypatch.setattr(f"{module}.RESULTS", tmp_path)
    assert main(effects, []) == 0
    said = capsys.readouterr().out
    assert (
        "width 32 x depth 2" in said
        and "1 head and width 32: beyond the sum" in said
        and "test accuracy 0." in said
    )
    assert "1 head, rate 1e-3: " in said
    assert main(effects, ["grades"]) == 1
