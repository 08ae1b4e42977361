"""Growth with more images: networks of equal cost, and a run that goes on where it stopped."""

from itertools import pairwise

import pytest

from tools import main
from tools.experiments import growth
from vit_helpers.ablation import read_runs
from vit_helpers.ablation.rows import unpack

pytestmark = pytest.mark.dev


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
