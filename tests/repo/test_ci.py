"""`.ci/run` itself, run with stand-ins for its programs: what it calls, and what it ends with."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.dev,
    pytest.mark.skipif(sys.platform == "win32", reason="a script for bash on Linux and macOS"),
]
ROOT = Path(__file__).parents[2]

# Stands for every program: as `python3 -m venv .venv` it makes more of itself, and a call that
# contains $FAILS fails
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
if [ "$*" = "-m venv .venv" ]; then
    mkdir -p .venv/bin
    for name in pip pytest ruff mypy; do cp "$0" .venv/bin/$name; done
fi
case "${0##*/} $* " in *"$FAILS"*) exit 1;; esac
"""


def ci(folder, *words, fails="nothing"):
    """What `.ci/run` calls, a line for each call, and the status it ends with"""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    programs = folder / "programs"
    programs.mkdir()
    for name in ("python3", "chromium"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    calls = folder / "calls"
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "CALLS": str(calls),
        "FAILS": fails,
    }
    done = subprocess.run([folder / ".ci" / "run", *words], env=os.environ | environment)
    return calls.read_text().splitlines(), done.returncode


@pytest.mark.parametrize(("words", "again"), [([], [True, False]), (["weekly"], [True, True])])
def test_notebooks_run_again_core_pages_each_time_and_further_pages_each_week(
    tmp_path, words, again
):
    calls, status = ci(tmp_path, *words)
    pages = [call for call in calls if call.startswith(("pytest -p ", "pytest -m further "))]
    assert [" -p again " in call for call in pages] == again
    assert all(" -p no:kernels " in call for call in pages)
    assert any(call.startswith("pytest -m weekly ") for call in calls) is bool(words)
    assert status == 0


@pytest.mark.parametrize("words", [[], ["weekly"]])
def test_a_warning_fails_every_test(tmp_path, words):
    calls, _ = ci(tmp_path, *words)
    tests = [call for call in calls if call.startswith("pytest ")]
    assert len(tests) == 4 + len(words)
    assert all(" -W error " in call for call in tests)


@pytest.mark.parametrize(
    "fails",
    [
        "pytest -p ",
        "pytest -m further ",
        "pytest -m alone ",
        "pytest -m browser ",
        "pytest -m weekly ",
        "ruff check ",
        "ruff format ",
        "mypy ",
        "pip install ",
    ],
)
def test_whatever_fails_the_rest_runs_and_then_it_fails(tmp_path, fails):
    calls, status = ci(tmp_path, "weekly", fails=fails)
    assert status == 1
    assert calls[-1].startswith("pytest -m weekly ")
