"""Timing: which machine this is, how fast it multiplies, and how to compare the speed of several things fairly."""

import os
import platform
import sys
import time
from pathlib import Path

import torch


def machine():
    """One line: processor, CPUs, threads, and the versions that decide how fast torch is"""
    return (
        f"{processor()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}; Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor():
    """The name that the processor gives itself"""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def benchmark_interleaved(steps, rounds=7, seconds=0.4):
    """Seconds that each step takes, one number a round: in every round all take their turn, another one first each time.

    So a machine that slows down for a while slows all of them. A step is repeated for about `seconds` in a round, after
    two calls that warm it up.
    steps  : {name: function without arguments}
    returns: {name: [seconds of one call, ...]}, `rounds` numbers each; their median counts
    """
    repeats = {}
    for name, step in steps.items():
        step()
        step()
        repeats[name] = max(1, round(seconds / seconds_of(step)))
    taken, order = {name: [] for name in steps}, list(steps)
    for _ in range(rounds):
        for name in order:
            taken[name].append(seconds_of(steps[name], repeats[name]))
        order.append(order.pop(0))
    return taken


def seconds_of(step, repeats=1):
    """Mean seconds of a call; a GPU is waited for"""
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    synchronize()
    return (time.perf_counter() - start) / repeats


def synchronize():
    """Until a GPU, where there is one, has done all it was told to: calls only hand it work"""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matmul_peak(dtype=torch.float32, device="cpu", size=1024, seconds=0.3):
    """Multiply-adds a second of large square matrix products: what this machine can do at best, measured.

    size: side of the matrices; large enough that arithmetic, not memory, is what takes the time
    """
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    with torch.inference_mode():
        taken = benchmark_interleaved({"product": lambda: a @ b}, rounds=3, seconds=seconds)["product"]
    return size**3 / min(taken)


def can_measure_memory(device="cpu"):
    """Linux tells the memory of a process, and torch that of a GPU"""
    return device != "cpu" or sys.platform == "linux"


def reset_peak_memory(device="cpu"):
    """Bytes in use; the peak so far is forgotten"""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return process_memory("VmRSS")


def peak_memory(device="cpu"):
    """The most bytes in use since `reset_peak_memory`"""
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    return process_memory("VmHWM")  # not getrusage's: that one begins with the peak of the process that started this one


def process_memory(kind):
    """Bytes of this process, as Linux tells them: VmRSS now, VmHWM at the peak"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(kind))
