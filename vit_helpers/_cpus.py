"""How many processors a program may use: those of the machine, or what a container grants."""

import os
import re
from math import inf
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def count_cpus() -> float:
    """Count the processors that this process may use: those it is bound to, or its container's.

    >>> 0 < count_cpus() <= os.cpu_count()
    True
    """
    if hasattr(os, "process_cpu_count"):  # since Python 3.13; PYTHON_CPU_COUNT changes it
        bound = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):  # Linux
        bound = len(os.sched_getaffinity(0))
    else:
        bound = os.cpu_count()
    return min(bound or 1, read_quota())


def read_quota() -> float:
    """Read how many processors Linux's cgroups grant this process; infinity without a limit."""
    quotas = [inf]
    for line in read_text(OWN_CGROUPS).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = CGROUPS / controllers / name.lstrip("/")
        for place in (folder, *folder.parents):  # in a container its own group is the top
            if CGROUPS in (place, *place.parents):
                quotas.append(read_one_quota(place))
    return min(quotas)


def read_one_quota(folder: Path) -> float:
    """Read the quota of one cgroup: microseconds of all processors in each period."""
    text = read_text(folder / "cpu.max")  # version 2: "150000 100000", or "max 100000"
    if not text:
        quota, period = (read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        text = f"{quota} {period}"  # version 1: "-1" without a limit
    numbers = re.fullmatch(r"(\d+)\s+(\d+)\s*", text)
    return int(numbers[1]) / int(numbers[2]) if numbers else inf


def read_text(path: Path) -> str:
    """Read a small file, "" if that is not possible."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
