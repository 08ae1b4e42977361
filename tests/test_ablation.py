"""A table of changes: what runs, what is kept, what is said of settings that nobody knows."""

import csv
from dataclasses import replace

import pytest

from vit_helpers.ablation import Table, read_rows, run_table, summarize
from vit_helpers.ablation.runs import KINDS
from vit_helpers.cli import main

SMALL = Table(
    seeds=2,
    baseline={"epochs": 1, "images": 128, "embed_dim": 16, "depth": 1, "num_heads": 2},
    changes={"patch 4": {"patch_size": 4}, "norm last": {"norm": "last"}},
)
TOML = """
data = "digits"
model = "mini/2"
seeds = 1
[baseline]
epochs = 1
images = 64
depth = 1
[changes]
"no positions" = {positions = "none"}
"""


def test_every_change_runs_with_every_seed_alone():
    runs = list(SMALL.runs())
    names = ["baseline", "patch 4", "norm last"]
    assert [(name, seed) for name, seed, _ in runs] == [(name, seed) for seed in (0, 1) for name in names]
    assert runs[1][2] == {**SMALL.baseline, "patch_size": 4} and "patch_size" not in runs[2][2]


def test_rows_are_kept_and_a_second_call_trains_nothing(tmp_path):
    said = []
    rows = run_table(SMALL, tmp_path / "deep" / "rows.csv", said.append)
    assert len(rows) == len(said) == 6 and said[1].startswith("2 of 6: patch 4, seed 0: accuracy 0.")
    kept = read_rows(tmp_path / "deep" / "rows.csv")
    assert [kept[row["change"], row["seed"]] for row in rows] == rows
    assert run_table(SMALL, tmp_path / "deep" / "rows.csv", said.append) == rows and len(said) == 6
    assert rows[0]["parameters"] == sum(
        n for n in (16 * 4 + 16, 18 * 16, 12 * 16**2 + 13 * 16, 2 * 16, 10 * 16 + 10)
    )  # projection, tokens, block, norm, head
    T, D = 17, 16
    assert rows[0]["multiply_adds"] == 16 * 4 * D + 12 * T * D**2 + 2 * T**2 * D + 10 * D


def test_a_table_goes_on_where_it_stopped_to_the_same_end(tmp_path):
    whole = run_table(SMALL, tmp_path / "whole.csv", lambda line: None)

    class Stop(Exception):  # noqa: N818
        pass

    def stop(line):
        if line.startswith("4 of"):
            raise Stop

    with pytest.raises(Stop):
        run_table(SMALL, tmp_path / "cut.csv", stop)
    assert len(read_rows(tmp_path / "cut.csv")) == 4
    said = []
    rest = run_table(SMALL, tmp_path / "cut.csv", said.append)
    assert len(said) == 2
    same = ("change", "seed", "accuracy", "loss", "parameters", "multiply_adds", "settings")
    assert [[row[key] for key in same] for row in rest] == [[row[key] for key in same] for row in whole]


def test_other_settings_or_another_file_are_not_mixed_in(tmp_path):
    path = tmp_path / "rows.csv"
    one = Table(seeds=1, baseline=SMALL.baseline)
    run_table(one, path, lambda line: None)
    with pytest.raises(ValueError, match="baseline, seed 0 with other settings"):
        run_table(replace(one, baseline=SMALL.baseline | {"lr": 0.1}), path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is no table of this kind"):
        run_table(one, path)


def test_a_summary_compares_seed_by_seed():
    def rows(name, *accuracies):
        rest = {"loss": 1.0, "parameters": 5, "multiply_adds": 7, "seconds": 2.0, "settings": ""}
        return [{"change": name, "seed": seed, "accuracy": a, **rest} for seed, a in enumerate(accuracies)]

    base, up, one = summarize(rows("baseline", 0.8, 0.9) + rows("up", 0.85, 0.95) + rows("one", 0.7))
    assert base["difference"] == 0 and base["spread"] == pytest.approx(0.0707, abs=1e-3)
    assert up["difference"] == pytest.approx(0.05) and up["error"] == pytest.approx(0)  # both seeds gained the same
    assert (one["runs"], one["spread"], one["error"]) == (1, 0.0, 0.0) and one["difference"] == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"changes": {"x": {"learning_rate": 1}}}, "x: unknown setting learning_rate, known: .*lr"),
        ({"baseline": {"epoch": 1}}, "baseline: unknown setting epoch"),
        ({"changes": {"x": 3}}, "x: expected settings"),
        ({"changes": {"baseline": {}}}, "call the change something else"),
        ({"seeds": 0}, "got 0"),
        ({"seeds": True}, "got True"),
    ],
)
def test_tables_that_make_no_sense(words, says):
    with pytest.raises(ValueError, match=says):
        Table(**words)


def test_the_command_runs_a_declared_table(tmp_path, capsys):
    def ablate(path):
        return main(["ablate", str(path)]), *capsys.readouterr()

    declared = tmp_path / "small.toml"
    declared.write_text(TOML)
    status, out, err = ablate(declared)
    assert status == 0, err
    assert "2 of 2: no positions, seed 0" in out and "+0.0000" in out
    with (tmp_path / "small.csv").open() as file:
        assert tuple(next(csv.reader(file))) == tuple(KINDS)
    declared.write_text(TOML.replace("positions =", "place ="))
    status, _, err = ablate(declared)
    assert status == 1 and err.startswith("error: no positions: unknown setting place")
    declared.write_text("data = ")
    assert "is no TOML" in ablate(declared)[2]
    assert "error: " in ablate(tmp_path / "none.toml")[2]
