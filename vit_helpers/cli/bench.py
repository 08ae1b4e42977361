"""Measure what the README claims, on this machine: import time, accuracy in a given time, and ours beside the peers.

With --peers: the time to import, to build, of inference and of a training step, and the memory of training, of ours and of
each library that is installed; the numbers of all rounds are kept as JSON, and printed as tables. Every model of a row has
the same shape; all are warmed up and take turns. Let nothing else run meanwhile.
"""

import json
import statistics
import sys
import time
from pathlib import Path

from tools.libraries import SHAPES, SHORT, fresh, markdown, measure, worth_while
from vit_helpers.cli import positive_int

LONG = {"model": "mini/7", "depth": 4, "num_heads": 8, "embed_dim": 64, "augment": "flip_crop", "epochs": 50}
GOALS = {  # data set, changes to its preset, what is wanted
    "digits-3s": ("digits", {"epochs": 8}, "97% in 3 s"),
    "digits": ("digits", {}, "99.0% in 10 s"),
    "digits-60s": ("digits", {"depth": 3, "dropout": 0.1, "epochs": 100}, "99.5% in 60 s"),
    "fashion": ("fashion_mnist", {}, "90% in 120 s"),
    "fashion-20min": ("fashion_mnist", LONG, "the best in 20 minutes"),
}
PARTS = ("import", *GOALS)
DEFAULT = ("import", "digits-3s", "digits", "digits-60s")  # those that need no download


def add_arguments(parser):
    parser.add_argument("parts", nargs="*", help=f"what to measure: {', '.join(PARTS)} (default: {', '.join(DEFAULT)})")
    parser.add_argument("--seeds", type=positive_int, default=5, help="how many trainings of each goal (default: 5)")
    parser.add_argument("--rounds", type=positive_int, default=7, help="rounds of each import and peers' row (default: 7)")
    parser.add_argument("--threads", type=positive_int, default=2, help="threads for torch (default: 2)")
    peers = parser.add_argument_group("beside the peers")
    peers.add_argument("--peers", action="store_true", help="measure ours beside the libraries that are installed")
    peers.add_argument("--shapes", nargs="+", default=list(SHAPES), help=f"of {', '.join(SHAPES)} (default: all of them)")
    peers.add_argument("--precision", nargs="+", choices=SHORT, help="default: those that the machine has units for")
    peers.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run (default: cpu)")
    peers.add_argument(
        "--json", type=Path, default=Path("runs/libraries.json"), help="keep it here (default: runs/libraries.json)"
    )
    peers.add_argument("--from", dest="stored", type=Path, help="print the tables of a JSON file, and measure nothing")


def run(args):
    try:
        if args.stored:
            print(markdown(json.loads(args.stored.read_text(encoding="utf-8"))))
        else:
            bench(args)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def bench(args):
    import torch

    from vit_helpers.scaling.timing import machine

    check_known("part", args.parts, PARTS)
    check_known("shape", args.shapes, SHAPES)
    torch.set_num_threads(args.threads)
    if args.peers:
        bench_peers(args)
    parts = args.parts or (() if args.peers else DEFAULT)
    if parts:
        print(machine() + "\n")
    if "import" in parts:
        bench_import(args.rounds)
    bench_goals({name: goal for name, goal in GOALS.items() if name in parts}, args.seeds)


def check_known(kind, names, known):
    """ValueError, listing the known names, when one is none of them"""
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown {kind} {', '.join(unknown)}, known: {', '.join(known)}")


def bench_peers(args):
    """Measure, keep, and print the tables; what is being done goes to stderr, so that stdout can be pasted"""
    from vit_helpers.cli.train import pick_device

    device = pick_device(args.device)
    results = measure(args.shapes, args.precision or worth_while(device), args.rounds, device, say_aside)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    say_aside(f"kept: {args.json}")
    print(markdown(results))


def say_aside(line):
    print(line, file=sys.stderr, flush=True)


def bench_import(rounds):
    """Time of an import in a fresh process, and how much of it is not torch's"""

    def seconds(before, statement):
        code = f"{before}\nimport time; t = time.perf_counter(); {statement}; taken = time.perf_counter() - t"
        return statistics.median(fresh(code, "taken") for _ in range(rounds))

    print(f"import (seconds, fresh process, median of {rounds})")
    print(f"  vit_helpers                      {seconds('', 'import vit_helpers'):.4f}")
    both = seconds("", "import torch"), seconds("import torch", "import vit_helpers.vit")
    print(f"  torch, then vit_helpers.vit      {both[0]:.3f} + {both[1]:.4f}\n")


def bench_goals(goals, seeds):
    """Train each goal's settings once a seed, and say how well the test part is read, and after how long"""
    import torch._dynamo  # torch loads it with the first optimiser: seconds that are no training  # noqa: F401

    from vit_helpers.data import load
    from vit_helpers.training.presets import preset

    for name, (data_name, changes, wanted) in goals.items():
        print(f"{name} ({wanted})")
        data = load(data_name)
        runs = []
        for seed in range(seeds):
            score, seconds = train_once(data, preset(data_name, **changes, seed=seed))
            runs.append((score.accuracy, seconds))
            print(f"  seed {seed}  test accuracy {score.accuracy:.4f}  training {seconds:.1f} s", flush=True)
        scores, times = zip(*runs, strict=True)
        spread = statistics.stdev(scores) if seeds > 1 else 0.0
        print(
            f"  mean    test accuracy {statistics.mean(scores):.4f}, standard deviation {spread:.4f}, "
            f"training {statistics.mean(times):.1f} s (longest {max(times):.1f} s)\n"
        )


def train_once(data, settings):
    """The score on the test split after training with these settings, and the seconds of training"""
    from vit_helpers.training import evaluate, fit, set_seed
    from vit_helpers.training.presets import make_batches, make_network, with_tta

    set_seed(settings.seed)
    model = make_network(data, settings)
    batches, validation = make_batches(data, settings), data.batches("validation", 512)
    start = time.perf_counter()
    fit(model, batches, validation, settings.recipe, report=lambda row: None)
    seconds = time.perf_counter() - start
    return evaluate(with_tta(model, settings), data.batches("test", 512)), seconds
