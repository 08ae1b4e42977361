"""Measure how much slower training is on a crowded machine, for several choices of torch's threads.

Steps of a small training (digits, batches of 64) and of a medium one (32 pixels, width 192, batches
of 16) are timed alone, beside two busy loops, and beside two other trainings of the same size and
choice. Commands and notebooks choose one thread for the small one, and commands choose all
processors, passive, for the medium one. The cases of a round follow one another, so that what the
machine does meanwhile disturbs all of them alike. Run nothing else at the same time.

Examples:

    python -m tools.crowd
    python -m tools.crowd --rounds 1 --steps 20 --sizes small
"""

import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from tools import main
from vit_helpers._cpus import count_cpus
from vit_helpers.cli import positive_int

VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS")
STEPS = {"small": 120, "medium": 12}
COMPANIES = ("alone", "beside two busy loops", "beside two trainings")
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
BUSY_LOOP = [sys.executable, "-c", "while True: pass"]
ROOT = Path(__file__).parents[1]


def choices() -> dict[str, dict[str, str]]:
    """The environment of each choice of threads, by its name in the table."""
    cpus = max(1, int(count_cpus()))
    return {
        "torch's default": {},
        f"passive, {cpus} thread{'s' * (cpus > 1)}": PASSIVE | {"OMP_NUM_THREADS": str(cpus)},
        "passive, 1 thread": PASSIVE | {"OMP_NUM_THREADS": "1"},
    }


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rounds", type=positive_int, default=5, help="rounds of all cases (default: 5)"
    )
    parser.add_argument(
        "--steps", type=positive_int, help=f"steps that are timed (default: {STEPS})"
    )
    parser.add_argument(
        "--sizes", nargs="+", choices=STEPS, default=[*STEPS], help="trainings (default: both)"
    )
    parser.add_argument("--train", choices=STEPS, help="train on request, as this tool does itself")


def run(args: Namespace) -> None:
    if args.train:
        serve(args.train)
        return
    load = f", load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else ""
    print(f"{count_cpus():g} CPUs{load}\n", flush=True)
    rows = []
    for _ in range(args.rounds):
        for size in args.sizes:
            for choice, environment in choices().items():
                seconds = measure(size, args.steps or STEPS[size], environment)
                rows.append({"training": size, "threads": choice} | seconds)
                print(*rows[-1].values(), file=sys.stderr, flush=True)
    print(table(pd.DataFrame(rows)).to_string(index=False))


def measure(size: str, steps: int, environment: dict[str, str]) -> dict[str, float]:
    """Seconds of so many steps of one training in each company."""
    with ExitStack() as stack:
        trainings = [stack.enter_context(training(size, environment)) for _ in range(3)]
        for process in trainings:
            request(process, 2)  # the first steps take longer
        measured, *others = trainings
        seconds = {"alone": request(measured, steps)}
        with ended(subprocess.Popen(BUSY_LOOP)), ended(subprocess.Popen(BUSY_LOOP)):
            seconds["beside two busy loops"] = request(measured, steps)
        for other in others:
            send(other, 10**9)
        seconds["beside two trainings"] = request(measured, steps)
    return seconds


Process = subprocess.Popen[Any]


@contextmanager
def training(size: str, environment: dict[str, str]) -> Iterator[Process]:
    """A process that trains on request, and is killed at the end."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "tools.crowd", "--train", size]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, env=kept | environment, text=True, **pipes)
    with ended(process):
        yield process


@contextmanager
def ended(process: Process) -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.kill()


def send(process: Process, steps: int) -> None:
    assert process.stdin
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()


def request(process: Process, steps: int) -> float:
    """Seconds of so many steps in another process."""
    send(process, steps)
    assert process.stdout
    return float(process.stdout.readline())


def serve(size: str) -> None:
    """Train as many steps as each line of stdin says, print their seconds, and end with stdin."""
    step = prepare(size)
    parent = os.getppid()
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
            if os.getppid() != parent:
                return
        print(time.perf_counter() - start, flush=True)


def prepare(size: str) -> Callable[[], None]:
    """A function that trains one step."""
    import torch

    from tools.experiments.measuring import CONFIG, random_images, train_step
    from vit_helpers.training.presets import preset
    from vit_helpers.vit import ViT

    torch.manual_seed(0)
    settings = preset("digits")
    small = replace(settings.config, image_size=8, in_chans=1), settings.batch_size
    config, batch_size = {"small": small, "medium": (CONFIG, 16)}[size]
    return train_step(ViT(config), *random_images(config, batch_size))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Median and range of each case's seconds, and how many times as long as alone (medians)."""
    lines = []
    for (size, choice), group in rows.groupby(["training", "threads"], sort=False):
        line = {"training": size, "threads": choice}
        for company in COMPANIES:
            seconds = group[company]
            line[company] = f"{seconds.median():.1f} ({seconds.min():.1f} to {seconds.max():.1f})"
            if company != "alone":
                line[f"{company}: times"] = f"{seconds.median() / group['alone'].median():.1f}"
        lines.append(line)
    return pd.DataFrame(lines)


if __name__ == "__main__":
    sys.exit(main())
