"""Measure what changes since 2020 are worth in small trainings: of the architecture and the recipe.

Each change of since_2020.toml is compared with the plain model, trained by the same number of
steps, and, where a step costs more or less, also by as many as fit into the same time (rounded to
whole epochs). The learning rate of each is chosen by the validation loss of a seed that is not
reported, among factors of 2, until the best has a worse neighbor on both sides. Every row has the
loss and the correct answers of 50 blocks of the test images (image i is in block i modulo 50), from
which `results/since_2020.py` computes errors over seeds and over images. Rows are kept in a CSV
file, and the same command goes on where it stopped.
"""

import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.ops import StochasticDepth
from torchvision.transforms import v2

from tools import main
from tools.experiments.measuring import add_out, find_or_measure, train_step
from vit_helpers.data import Data, load
from vit_helpers.results.since_2020 import BLOCKS, PLAIN
from vit_helpers.scaling.timing import benchmark_interleaved, processor
from vit_helpers.training import fit, set_seed
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import predict
from vit_helpers.training.presets import RunSettings, make_batches, make_network

DECLARED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TASKS, CHANGES = DECLARED["tasks"], DECLARED["changes"] | DECLARED["recipe"]
TUNING_SEED = 100
SCORES = ("loss", "accuracy", "losses", "correct")
OWN = (
    "load",
    "times",
    "drop_path",
    "rand_augment",
    "rate_of",
)  # what no setting of a run stands for


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--changes", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    add_out(parser, "since_2020.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    for task in args.tasks:
        costs = {name: cost(args.out, task, name) for name in DECLARED["changes"] if name != PLAIN}
        for change in args.changes:
            rate = choose_rate(args.out, task, CHANGES[change].get("rate_of", change))
            compared = {"steps": epochs_of(task, change)}
            if change in costs:
                compared["time"] = max(1, round(compared["steps"] / costs[change]))
            for equal, epochs in compared.items():
                if equal == "steps" or epochs != compared["steps"]:
                    for seed in range(args.seeds):
                        measure(args.out, task, change, equal, seed, rate, epochs)


def epochs_of(task: str, change: str) -> int:
    return int(TASKS[task]["epochs"] * CHANGES[change].get("times", 1))


def choose_rate(out: Path, task: str, change: str) -> float:
    """The rate with the lowest validation loss of the seed for tuning, found by going downhill."""
    epochs = epochs_of(task, change)

    def loss(power: int) -> float:
        rate = TASKS[task]["lr"] * 2.0**power
        return float(measure(out, task, change, "tuning", TUNING_SEED, rate, epochs)["loss"])

    best = min((-1, 0, 1), key=loss)
    while best != (best := min((best - 1, best, best + 1), key=loss)):
        pass
    return float(TASKS[task]["lr"] * 2.0**best)


def measure(
    out: Path, task: str, change: str, equal: str, seed: int, rate: float, epochs: int
) -> dict[str, Any]:
    """The row of a training; equal is "steps", "time", or "tuning" on the validation images."""
    case = {"task": task, "change": change, "equal": equal, "seed": seed, "lr": rate}
    return find_or_measure(out, lambda **_: train_once(task, change, seed, rate, epochs), **case)


def train_once(task: str, change: str, seed: int, rate: float, epochs: int) -> dict[str, Any]:
    """Train once; the test is on the validation images for the seed that chooses rates."""
    settings, data, model = prepare(task, change, seed, rate, epochs)
    batches = make_batches(data, settings)
    if CHANGES[change].get("rand_augment"):
        batches.steps.insert(0, rand_augment)
    average = Average(model, steps=len(batches))
    fit(model, batches, None, settings.recipe, callbacks=[average] if change == PLAIN else [])
    test = data.batches("validation" if seed == TUNING_SEED else "test", 500)
    row = {"epochs": epochs, **scores(model, test)}
    averaged = scores(average.model, test) if change == PLAIN else dict.fromkeys(SCORES, "")
    row |= {f"ema_{name}": value for name, value in averaged.items()}
    machine = f"{processor()}, 1 thread, torch {torch.__version__}"
    return row | {"machine": machine, "date": date.today().isoformat()}


def prepare(
    task: str, change: str, seed: int, rate: float, epochs: int
) -> tuple[RunSettings, Data, nn.Module]:
    """The settings of a training, its images, and its model as it starts."""
    changes = {**CHANGES[change], "lr": rate, "epochs": epochs, "seed": seed}
    if optimizers := DECLARED["optimizer"].get(change):
        changes["optimizer"] = optimizers[task]
    declared = {"data": task, **TASKS[task], **changes}
    settings = RunSettings.from_dict({name: x for name, x in declared.items() if name not in OWN})
    data = cast(Data, load(task, **TASKS[task].get("load", {})))
    set_seed(seed)
    model = make_network(data, settings)
    if share := CHANGES[change].get("drop_path"):
        add_stochastic_depth(model, share)
    return settings, data, model


def add_stochastic_depth(model: nn.Module, share: float) -> None:
    """Leave out branches of each image at random in training: from 0 to this share of the last's.

    Huang et al., arXiv 1603.09382, with shares that rise linearly, as in DeiT and timm
    """
    blocks = list(model.get_submodule("blocks").children())
    for number, block in enumerate(blocks):
        drop = StochasticDepth(share * number / (len(blocks) - 1), mode="row")
        for branch in ("attn", "mlp"):
            block.get_submodule(branch).register_forward_hook(
                lambda part, inputs, output, drop=drop: drop.train(part.training)(output)
            )


def rand_augment(images: Tensor) -> Tensor:
    """Change each image by two random operations (arXiv 1909.13719): (B, C, H, W), from 0 to 1."""
    change = v2.RandAugment(num_ops=2, magnitude=9)
    return torch.stack([change((255 * image).byte()) for image in images]).float() / 255


class Average(Callback):
    """A moving average of the weights (EMA) after each step, which reaches back an epoch."""

    def __init__(self, model: nn.Module, steps: int) -> None:
        self.model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(1 - 1 / steps))

    def on_step_end(self, run: Run, *_: Any) -> None:
        self.model.update_parameters(run.model)


def scores(model: nn.Module, batches: Any) -> dict[str, Any]:
    """Loss (nats) and accuracy, and for each block of images its mean loss and right answers."""
    logits, labels = predict(model, batches)
    loss = F.cross_entropy(logits, labels, reduction="none")
    right = (logits.argmax(1) == labels).float()
    blocks = [torch.arange(start, len(labels), BLOCKS) for start in range(BLOCKS)]
    return {
        "loss": round(loss.mean().item(), 5),
        "accuracy": right.mean().item(),
        "losses": " ".join(f"{loss[rows].mean():.4f}" for rows in blocks),
        "correct": " ".join(f"{right[rows].sum():.0f}" for rows in blocks),
    }


def cost(out: Path, task: str, change: str) -> float:
    """The measured time of a training step, divided by that of the plain model.

    The two take turns for 31 rounds; the median of their ratios
    """
    path = out.with_name(f"{out.stem}_costs.csv")
    row = find_or_measure(path, measure_cost, task=task, change=change)
    return float(row["ratio"])


def measure_cost(task: str, change: str) -> dict[str, Any]:
    steps: dict[str, Callable[[], None]] = {}
    for key, name in (("plain", PLAIN), ("changed", change)):
        settings, data, model = prepare(task, name, 0, 1e-4, 1)
        images, labels = next(iter(data.batches("train", settings.batch_size)))
        optimizer = settings.recipe.make_optimizer(model)
        steps[key] = train_step(model, images, labels, settings.recipe.precision, optimizer)
    taken = benchmark_interleaved(steps, rounds=31, seconds=0.1)
    ratios = [b / a for a, b in zip(taken["plain"], taken["changed"], strict=True)]
    machine = f"{processor()}, 1 thread, torch {torch.__version__}"
    return {
        "plain_ms": 1000 * median(taken["plain"]),
        "ratio": median(ratios),
        "low": sorted(ratios)[7],
        "high": sorted(ratios)[-8],
        "machine": machine,
    }


if __name__ == "__main__":
    raise SystemExit(main())
