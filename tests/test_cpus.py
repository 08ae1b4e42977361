"""Processors: how many are granted to this process."""

import os
from math import inf

import pytest

from vit_helpers import _cpus


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
