"""Processors: how many are granted, a command's threads, and the table of `tools.crowd`."""

import os
import subprocess
import sys
from math import inf
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tools import crowd
from tools import main as run_tool
from vit_helpers import _cpus
from vit_helpers.cli import threads
from vit_helpers.vit import ViT, ViTConfig

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Pretend that this process is in these groups, and that files below /sys/fs/cgroup say this"""

    def pretend(own, files):
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "own").write_text(own)
        monkeypatch.setattr(_cpus, "CGROUPS", tmp_path / "cgroup")
        monkeypatch.setattr(_cpus, "OWN_CGROUPS", tmp_path / "own")

    return pretend


QUOTA = {"cpu.cfs_quota_us": "250000\n", "cpu.cfs_period_us": "100000\n"}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux counts so")
@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),  # version 2, in a container
        ("0::/\n", {"cpu.max": "max 100000\n"}, inf),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "max 100000\n"}, 0.5),
        ("4:cpu,cpuacct:/docker/x\n", {f"cpu,cpuacct/{n}": t for n, t in QUOTA.items()}, 2.5),
        ("4:cpu:/a\n0::/\n", {f"cpu/a/{name}": text for name, text in QUOTA.items()}, 2.5),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, inf),
        ("5:memory:/\n", {"memory/cpu.max": "50000 100000\n"}, inf),
        ("", {}, inf),
    ],
)
def test_the_quota_of_a_container_is_read(cgroups, own, files, cpus):
    cgroups(own, files)
    assert _cpus.read_quota() == cpus
    assert _cpus.count_cpus() == min(cpus, len(os.sched_getaffinity(0)))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux binds processes")
def test_a_process_that_is_bound_to_a_processor_counts_one():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert _cpus.count_cpus() <= 1
    finally:
        os.sched_setaffinity(0, before)


SHOW = """
import os, runpy, sys
sys.argv = ["vit_helpers", "live", "--out", os.devnull]
try:
    runpy.run_module("vit_helpers", run_name="__main__")
except SystemExit:
    pass
import torch
print(torch.get_num_threads(), os.environ["OMP_WAIT_POLICY"])
"""


def show(code, **environment):
    """What code prints in a fresh process in which nothing is chosen but this"""
    kept = {name: value for name, value in os.environ.items() if name not in crowd.VARIABLES}
    environment = kept | {"PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.stdout.splitlines()[-1], done.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, "1 PASSIVE"),
        ({"OMP_NUM_THREADS": "2"}, "2 PASSIVE"),
        ({"MKL_NUM_THREADS": "2", "OMP_WAIT_POLICY": "ACTIVE"}, "2 ACTIVE"),
    ],
)
def test_a_command_starts_with_one_thread_unless_somebody_chose(environment, line):
    assert show(SHOW, **environment) == (line, "")


def test_importing_commands_chooses_nothing():
    code = "import vit_helpers.__main__, vit_helpers.cli.threads, os; print(sorted(os.environ))"
    names, _ = show(code)
    assert "OMP" not in names and "MKL" not in names


SMALL = ViTConfig.from_name("mini/2", image_size=8, in_chans=1)
LARGE = ViTConfig(image_size=32, patch_size=4, embed_dim=192, depth=6, num_heads=3)


@pytest.mark.parametrize(
    ("config", "batch_size", "automatic", "count"),
    [
        (SMALL, 64, True, 1),
        (LARGE, 16, True, 3),
        (LARGE, 1, True, 1),
        (LARGE, 16, False, 1),
    ],
)
def test_large_batches_get_all_processors_unless_somebody_chose(
    monkeypatch, config, batch_size, automatic, count
):
    chosen = [1]
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    monkeypatch.setattr(threads, "automatic", automatic)
    monkeypatch.setattr(threads, "count_cpus", lambda: 3.5)
    threads.use_threads(ViT(config), batch_size)
    assert chosen[-1] == count


# The table of how long trainings take beside others


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
