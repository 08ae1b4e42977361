"""Whatever is ended from outside leaves no process behind: suites, notebooks, tools, commands."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "VIT_HELPERS_TEST_OF_LEFTOVERS"  # a variable of every process of a run
SECONDS = 15  # in which all processes of a run must have ended

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"), pytest.mark.dev]

CHILD = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True)
"""
WAIT = """
import pathlib, time
pathlib.Path("started").touch()
time.sleep(600)
"""
LOADER = """
import torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return torch.tensor(i)


loader = iter(torch.utils.data.DataLoader(Numbers(), num_workers=2))
next(loader)
"""


@pytest.fixture
def start(tmp_path):
    """Start a Python command in tmp_path, wait until it has made a file there, and return it"""
    token = f"{os.getpid()}-{time.monotonic_ns()}"
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment = kept | {TOKEN: token, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}

    def run(*words):
        command = [sys.executable, *map(str, words)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        run.process = subprocess.Popen(command, cwd=tmp_path, env=environment, **quiet)
        while not (tmp_path / "started").exists():
            assert run.process.poll() is None, "it ended by itself"
            time.sleep(0.1)
        return run.process

    run.left = lambda: find_processes(token)
    yield run
    for process in find_processes(token):
        process.kill()
    run.process.wait()


def find_processes(token):
    """All processes that have this token in their environment, but for those that have ended"""

    def has_token(process):
        try:
            return process.environ().get(TOKEN) == token and process.status() != "zombie"
        except psutil.Error:  # it has ended, or is another user's
            return False

    return [process for process in psutil.process_iter() if has_token(process)]


def assert_nothing_is_left(start):
    deadline = time.monotonic() + SECONDS
    while (left := start.left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, [process.cmdline() for process in left]


def write_notebook(path, *sources):
    cells = [nbformat.v4.new_code_cell(source, execution_count=1) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


PLUGIN = ["-c", ROOT / "pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider", "-q"]


@pytest.mark.parametrize(("workers", "end"), [(0, "SIGKILL"), (1, "SIGKILL"), (1, "SIGTERM")])
def test_a_suite_leaves_no_kernel_no_worker_and_nothing_that_they_started(
    start, tmp_path, workers, end
):
    notebook = write_notebook(tmp_path / "0.ipynb", CHILD, WAIT)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    suite = start("-m", "pytest", *PLUGIN, "-n", workers, notebook)
    assert len(start.left()) == 4 + workers  # pytest, the server, the kernel, its child
    suite.send_signal(signal.Signals[end])
    suite.wait()
    assert_nothing_is_left(start)


def test_a_worker_of_a_suite_that_is_killed_leaves_no_kernel(start, tmp_path):
    notebook = write_notebook(tmp_path / "0.ipynb", CHILD, WAIT)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    suite = start("-m", "pytest", *PLUGIN, "-n", 1, "--max-worker-restart", 0, notebook)
    (worker,) = psutil.Process(suite.pid).children()
    worker.kill()
    suite.wait()
    assert_nothing_is_left(start)


def test_a_notebook_that_is_executed_leaves_no_kernel(start, tmp_path):
    notebook = write_notebook(tmp_path / "0.ipynb", WAIT)
    tool = start("-m", "tools.execute", notebook)
    assert len(start.left()) >= 2
    tool.kill()
    tool.wait()
    assert_nothing_is_left(start)


def test_data_loaders_leave_no_worker(start):
    process = start("-c", LOADER + WAIT)
    assert len(start.left()) >= 3
    process.kill()
    process.wait()
    assert_nothing_is_left(start)
