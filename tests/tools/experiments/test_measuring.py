"""What everything that measures uses: steps in turn, and processes of their own."""

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from commands import stop_halfway

from tools.experiments import measuring

pytestmark = pytest.mark.dev


def test_each_step_is_compared_with_the_one_before():
    rows = measuring.Bench("cpu", 1).compare(
        "c", {"a": int, "b": float, "c": str}, seconds=0, start_s=3
    )
    assert [(row["before"], row["after"], row["start_s"]) for row in rows] == [
        ("a", "b", 3),
        ("b", "c", 3),
    ]
    assert rows[0]["after_ms"] == rows[1]["before_ms"]


def rank_and_sum(number):
    total = torch.tensor(float(number + dist.get_rank()))
    dist.all_reduce(total)
    return dist.get_rank(), total.item(), torch.get_num_threads()


def test_processes_are_connected():
    assert measuring.in_processes(2, rank_and_sum, 1) == (0, 3.0, 1)


def test_errors_of_a_process_of_its_own_come_back_as_words():
    with pytest.raises(RuntimeError, match=r"TypeError: .*unsupported operand"):
        measuring.with_threads(torch.get_num_threads(), lambda: 1 + "1")


def test_a_table_that_is_not_finished_leaves_the_one_before(tmp_path, monkeypatch):
    measuring.store([{"a": 1}], file := tmp_path / "rows.csv")
    monkeypatch.setattr(pd.DataFrame, "to_csv", stop_halfway)
    with pytest.raises(KeyboardInterrupt):
        measuring.store([{"a": 2}], file)
    assert list(tmp_path.iterdir()) == [file] and file.read_text() == "a\n1\n"
