"""Rows of a table in a file: kept whole, damaged ones named, read by everybody."""

from dataclasses import replace

import pandas as pd
import pytest

from vit_helpers.ablation import Table, read_runs, run_table

SMALL = Table(
    seeds=2,
    baseline={"epochs": 1, "images": 128, "embed_dim": 16, "depth": 1, "num_heads": 2},
    changes={"patch 4": {"patch_size": 4}, "norm last": {"norm": "last"}},
)


def test_a_crash_while_a_row_is_written_leaves_the_rows_before_it(tmp_path, monkeypatch):
    path, small = (
        tmp_path / "rows.csv",
        replace(SMALL, seeds=1, changes={"norm last": {"norm": "last"}}),
    )
    whole = run_table(small, path, lambda line: None)
    write_all = pd.DataFrame.to_csv

    def crash(rows, file, index):
        write_all(rows, file, index=index)
        file.write_bytes(file.read_bytes()[:-20])
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", crash)
    with pytest.raises(KeyboardInterrupt):
        run_table(
            replace(small, changes=small.changes | {"patch 4": {"patch_size": 4}}),
            path,
            lambda line: None,
        )
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]
    pd.testing.assert_frame_equal(read_runs(path), whole, check_exact=True)


def test_a_damaged_row_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    run_table(Table(seeds=2, baseline=SMALL.baseline), path, lambda line: None)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "baseline,0,0.5", lines[2]]) + "\n")
    with pytest.raises(ValueError, match=r"row 1 .*: baseline,0,0\.5"):
        read_runs(path)
