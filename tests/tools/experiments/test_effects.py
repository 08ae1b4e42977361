"""What came out of the stored experiments is printed."""

import pytest

from tools import main
from tools.experiments import effects
from vit_helpers.ablation import Table, run_table

pytestmark = pytest.mark.dev


SMALL = {"epochs": 1, "images": 100, "embed_dim": 16, "depth": 1, "num_heads": 2}


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
