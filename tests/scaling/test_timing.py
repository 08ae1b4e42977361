"""Timing: every step takes its turn, and the numbers are seconds."""

import subprocess
import sys
import time

import pytest
import torch

from vit_helpers.scaling.timing import (
    benchmark_interleaved,
    can_measure_memory,
    freed_memory_returned,
    libc_function,
    machine,
    matmul_peak,
)


def test_all_take_their_turn_and_another_one_first():
    calls = []
    steps = {name: lambda name=name: (calls.append(name), time.sleep(0.01)) for name in "abc"}
    taken = benchmark_interleaved(steps, rounds=3, seconds=0.01)
    assert all(len(values) == 3 and min(values) >= 0.01 for values in taken.values())
    assert calls[-9:] == list("abcbcacab")


def test_a_step_counts_once_however_often_it_was_repeated():
    taken = benchmark_interleaved({"short": lambda: time.sleep(0.002)}, rounds=2, seconds=0.05)[
        "short"
    ]
    assert all(0.002 <= seconds < 0.02 for seconds in taken)


def test_the_machine_is_named():
    assert f"{torch.get_num_threads()} threads" in machine() and torch.__version__ in machine()


def test_the_gpu_is_named_where_it_is_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert machine("cuda:0") == f"a GPU, {machine()}"


def test_matrix_products_are_counted():
    assert 1e8 < matmul_peak(size=256, seconds=0.02) < 1e15


PEAKS = """
import torch
from vit_helpers.scaling.timing import peak_memory, reset_peak_memory
torch.ones(100_000_000)  # 400 MB, and gone
before = reset_peak_memory()
first = peak_memory() - before
torch.ones(50_000_000)
print(first, peak_memory() - before)
"""


def test_the_memory_of_no_other_device_than_a_cuda_one_is_promised():
    assert can_measure_memory("cuda:1") and not can_measure_memory("mps")


@pytest.mark.skipif(not can_measure_memory(), reason="only Linux tells the memory of a process")
def test_the_peak_is_that_since_the_last_look():
    """In a process of its own: here other tests left memory that may be freed, or used again."""
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True)
    first, second = map(int, done.stdout.split())
    assert first < 1e8 and 1.9e8 < second < 3e8, done


def test_where_there_is_no_c_library_nothing_is_asked_of_it(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr("ctypes.CDLL", lambda name: pytest.fail("Windows raises a TypeError"))
    with freed_memory_returned():
        assert libc_function("malloc_trim", int)(0) == 0
