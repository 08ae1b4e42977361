"""Threads of a command: one, unless somebody chose, and all for large batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import crowd
from vit_helpers.cli import threads
from vit_helpers.vit import ViT, ViTConfig

ROOT = Path(__file__).parents[2]


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
    code = "import vit_helpers.__main__, vit_helpers.cli.threads, os; print(*os.environ)"
    names, _ = show(code)
    assert not [name for name in names.split() if name.startswith(("OMP_", "MKL_"))]


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
