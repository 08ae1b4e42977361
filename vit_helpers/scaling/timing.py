"""Timing: which machine this is, how fast it multiplies, and how to compare speeds fairly."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], Any]


def machine(device: str = "cpu") -> str:
    """Describe this machine in one line.

    It has the GPU if the device is one, processor, CPUs, threads, and the versions that decide how
    fast torch is.
    """
    gpu = f"{torch.cuda.get_device_name()}, " if device.startswith("cuda") else ""
    return (
        f"{gpu}{processor()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}; "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor() -> str:
    """Return the processor's name, as it reports it."""
    with suppress(OSError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        line = next(line for line in lines if line.startswith("model name"))
        return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def benchmark_interleaved(
    steps: Mapping[str, Step], rounds: int = 7, seconds: float = 0.4
) -> dict[str, list[float]]:
    """Measure the seconds of several steps, in rounds that each run all of them.

    Each round starts with another step. So a machine that slows down for a while slows all of them,
    which `torch.utils.benchmark` does not ensure. A step is repeated for about `seconds` in a
    round, after two warm-up calls.
    steps  : {name: function without arguments}
    returns: {name: [seconds of one call, ...]}, `rounds` numbers each; report their median
    """
    repeats = {}
    for name, step in steps.items():
        seconds_of(step, repeats=2)  # warm-up
        repeats[name] = max(1, round(seconds / seconds_of(step)))
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for _ in range(rounds):
        for name in order:
            taken[name].append(seconds_of(steps[name], repeats[name]))
        order.append(order.pop(0))
    return taken


def seconds_of(step: Step, repeats: int = 1) -> float:
    """Measure the mean seconds of a call, including the work that it queues on a GPU."""
    wait: Step = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    wait()
    return (time.perf_counter() - start) / repeats


def matmul_peak(
    dtype: torch.dtype = torch.float32, device: str = "cpu", size: int = 1024, seconds: float = 0.3
) -> float:
    """Measure the multiply-adds per second of square matrix products.

    It is what this machine can reach at best, if their side is large.
    """
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    with torch.inference_mode():
        taken = benchmark_interleaved({"product": lambda: a @ b}, rounds=3, seconds=seconds)
    return size**3 / min(taken["product"])


def can_measure_memory(device: str = "cpu") -> bool:
    """Say whether peak memory can be read: on Linux for a process, from torch for a GPU."""
    return device.startswith("cuda") or (device == "cpu" and sys.platform == "linux")


def reset_peak_memory(device: str = "cpu") -> int:
    """Reset the peak that `peak_memory` reports, and return the bytes in use."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    # glibc keeps freed memory, and later use of it would not count
    trim = libc_function("malloc_trim", int)
    trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return process_memory("VmRSS")


def peak_memory(device: str = "cpu") -> int:
    """Return the most bytes in use since `reset_peak_memory`."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    # psutil has no peak that can be reset; getrusage's starts with the parent's peak
    return process_memory("VmHWM")


@contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Make glibc return each freed tensor to the system at once, inside a `with`.

    So a process's peak is what was in use. Otherwise glibc raises its M_MMAP_THRESHOLD up to 32 MiB
    (man 3 mallopt), and the peak includes gaps of freed memory.
    """
    set_option = libc_function("mallopt", max)  # another libc has none, and needs none
    set_option(-3, 2**17)
    yield
    set_option(-3, 2**25)


def libc_function(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the C library, or `otherwise` where there is none, as on Windows."""
    if sys.platform == "win32":  # which gives no library for None
        return otherwise
    function: Callable[..., Any] = getattr(ctypes.CDLL(None), name, otherwise)
    return function


def process_memory(kind: str) -> int:
    """Read the bytes of this process according to Linux: "VmRSS" now, "VmHWM" at the peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(kind))
    return 1024 * int(line.split()[1])
