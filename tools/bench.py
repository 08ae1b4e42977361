"""Measure what the README promises, on this machine: time to import, and accuracy after training.

Run nothing else at the same time. `python -m tools.experiments.libraries` compares the model with
those of other libraries.

Examples:

    python -m tools.bench
    python -m tools.bench digits --seeds 3 --threads 1
"""

import json
import statistics
import subprocess
import sys
import time
import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from tools import main
from vit_helpers._validate import check_choice
from vit_helpers.cli import positive_int

GOALS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
PARTS = ("import", *GOALS)
DEFAULT = ("import", "digits-3s", "digits", "digits-60s")  # those that need no download


def add_arguments(parser: ArgumentParser) -> None:
    about = f"what to measure: {', '.join(PARTS)} (default: {', '.join(DEFAULT)})"
    # choices would refuse none at all
    parser.add_argument("parts", nargs="*", metavar="PART", help=about)
    parser.add_argument(
        "--seeds", type=positive_int, default=5, help="training runs for each goal (default: 5)"
    )
    parser.add_argument(
        "--rounds", type=positive_int, default=7, help="rounds of each import (default: 7)"
    )
    parser.add_argument(
        "--threads", type=positive_int, default=2, help="threads for torch (default: 2)"
    )


def run(args: Namespace) -> None:
    for part in args.parts:
        check_choice("part", part, PARTS)
    import torch

    from vit_helpers.scaling.timing import machine

    torch.set_num_threads(args.threads)
    print(machine() + "\n")
    for part in dict.fromkeys(args.parts or DEFAULT):
        if part == "import":
            bench_import(args.rounds)
        else:
            bench_goal(part, args.seeds)


def bench_import(rounds: int) -> None:
    """Print the time of an import in a new process, and how much of it is not torch's."""

    def seconds(before: str, statement: str) -> float:
        now = "time.perf_counter()"
        code = f"{before}\nimport time; start = {now}; {statement}; end = {now}"
        return statistics.median(run_fresh(code, "end - start") for _ in range(rounds))

    print(f"import (seconds, new process, median of {rounds})")
    print(f"  vit_helpers                      {seconds('', 'import vit_helpers'):.4f}")
    both = seconds("", "import torch"), seconds("import torch", "import vit_helpers.vit")
    print(f"  torch, then vit_helpers.vit      {both[0]:.3f} + {both[1]:.4f}\n")


def run_fresh(code: str, answer: str) -> Any:
    """The value of an expression that JSON can represent, after some code in a new process."""
    words = [sys.executable, "-c", f"{code}\nimport json; print(json.dumps({answer}))"]
    return json.loads(
        subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )


def bench_goal(name: str, seeds: int) -> None:
    """Train a goal's settings once for each seed; print test accuracy and seconds of training."""
    # torch loads it with the first optimizer: seconds that are no training
    import torch._dynamo  # noqa: F401

    from vit_helpers.data import load
    from vit_helpers.training import evaluate, fit, set_seed
    from vit_helpers.training.presets import make_batches, make_network, preset, with_tta

    goal = GOALS[name]
    print(f"{name} ({goal['promise']})")
    data, accuracies, times = load(goal["data"]), [], []
    for seed in range(seeds):
        settings = preset(goal["data"], seed=seed, **goal["settings"])
        set_seed(seed)
        model, train = make_network(data, settings), make_batches(data, settings)
        start = time.perf_counter()
        fit(model, train, data.batches("validation", 512), settings.recipe, callbacks=[])
        times.append(time.perf_counter() - start)
        accuracies.append(evaluate(with_tta(model, settings), data.batches("test", 512)).accuracy)
        print(
            f"  seed {seed}  test accuracy {accuracies[-1]:.4f}  training {times[-1]:.1f} s",
            flush=True,
        )
    std = statistics.stdev(accuracies) if seeds > 1 else 0.0
    mean = statistics.mean(accuracies)
    print(f"  mean    test accuracy {mean:.4f}, standard deviation {std:.4f}, ", end="")
    print(f"training {statistics.mean(times):.1f} s (longest {max(times):.1f} s)\n")


if __name__ == "__main__":
    sys.exit(main())
