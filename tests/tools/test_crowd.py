"""The tool that measures a crowded machine: its choices, and its table."""

import pandas as pd
import psutil
import pytest

from tools import crowd
from tools import main as run_tool
from vit_helpers import _cpus

pytestmark = pytest.mark.dev


@pytest.mark.dev
def test_the_choices_are_torchs_own_all_processors_and_one():
    own, passive, one = crowd.choices().values()
    assert own == {} and int(passive["OMP_NUM_THREADS"]) == max(1, int(_cpus.count_cpus()))
    assert one == {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.dev
def test_crowd_measures_a_choice_in_every_company_and_leaves_nothing(capsys, monkeypatch):
    before = psutil.Process().children()
    monkeypatch.setattr(crowd, "choices", lambda: {"one thread": {"OMP_NUM_THREADS": "1"}})
    assert run_tool(crowd, ["--rounds", "1", "--steps", "1", "--sizes", "small"]) == 0
    first, _, names, line = capsys.readouterr().out.splitlines()
    assert "CPUs, load" in first and all(company in names for company in crowd.COMPANIES)
    assert line.split()[:3] == ["small", "one", "thread"]
    assert psutil.Process().children() == before


@pytest.mark.dev
def test_the_table_gives_medians_ranges_and_ratios():
    company = dict.fromkeys(crowd.COMPANIES, 2.0)
    rows = [{"training": "small", "threads": "one"} | company for _ in range(3)]
    rows[0]["beside two trainings"], rows[1]["beside two trainings"] = 5.0, 9.0
    (line,) = crowd.table(pd.DataFrame(rows)).to_dict("records")
    assert line["alone"] == "2.0 (2.0 to 2.0)"
    assert line["beside two trainings"] == "5.0 (2.0 to 9.0)"
    assert line["beside two trainings: times"] == "2.5"
