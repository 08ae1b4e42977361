"""What tools that measure share: timed steps, fresh processes, comparisons, tables of results."""

import multiprocessing
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers._files import write_result
from vit_helpers._validate import to_2tuple
from vit_helpers.cli import positive_int
from vit_helpers.scaling.speedups import saved_activation_bytes
from vit_helpers.scaling.timing import Step, benchmark_interleaved
from vit_helpers.vit import ViT, ViTConfig

# the model of most rows of `speed`: 65 tokens, 2.7 million parameters
CONFIG = ViTConfig(32, 4, 3, 10, 192, 6, 3)
SECONDS = 0.3  # of a step in a round, at least one call


def inference_step(
    model: nn.Module, images: Tensor, labels: Tensor | None = None, precision: str = "float32"
) -> Step:
    """A function that runs the images through the model."""

    def step() -> None:
        model.eval()
        with (
            torch.inference_mode(),
            torch.autocast(images.device.type, torch.bfloat16, precision == "bfloat16"),
        ):
            model(images)

    return step


def train_step(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    precision: str = "float32",
    optimizer: Any = None,
) -> Step:
    """A function that learns from the images: cross entropy, AdamW."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        with torch.autocast(images.device.type, torch.bfloat16, precision == "bfloat16"):
            output = model(images)
        logits = getattr(output, "logits", output)  # Hugging Face wraps them
        F.cross_entropy(logits.float(), labels).backward()
        optimizer.step()

    return step


STEPS: dict[str, Callable[..., Step]] = {"inference": inference_step, "training": train_step}


def random_images(config: ViTConfig, count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Images and labels, drawn from a normal and a uniform distribution."""
    images = torch.randn(count, config.in_chans, *to_2tuple(config.image_size), device=device)
    return images, torch.randint(config.num_classes, (count,), device=device)


def in_processes(count: int, function: Callable[..., Any], *args: Any) -> Any:
    """What function(*args) returns in the first of so many fresh, connected processes."""
    threads = torch.get_num_threads() if count == 1 else 1
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool,
    ):
        parts = [
            pool.submit(in_one, r, count, str(Path(folder, "store")), threads, function, *args)
            for r in range(count)
        ]
        return next(part.result() for part in parts)


def in_one(
    rank: int, count: int, store: str, threads: int, function: Callable[..., Any], *args: Any
) -> Any:
    if count > 1:
        shared = dist.FileStore(store, count)
        dist.init_process_group("gloo", store=shared, rank=rank, world_size=count)
    return with_threads(threads, function, *args)


in_own_process = partial(in_processes, 1)


def with_threads(count: int, function: Callable[..., Any], *args: Any) -> Any:
    """What function(*args) returns with so many threads; its error is a RuntimeError."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return function(*args)
    except Exception as error:  # some of torch's errors cannot be pickled
        raise RuntimeError(first_line(error)) from None
    finally:
        torch.set_num_threads(before)


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:150]}"


@dataclass(frozen=True)
class Bench:
    """Where to measure, and how many rounds of each comparison"""

    device: str
    rounds: int

    @property
    def batch(self) -> int:
        """Images of a batch: enough to fill the device."""
        return 32 if self.device == "cpu" else 512

    def model(self, config: ViTConfig | None = None) -> ViT:
        """A model whose head is not zero, so that there is a gradient everywhere."""
        model = ViT(config or CONFIG)
        nn.init.normal_(model.get_parameter("head.weight"), std=0.02)
        return model.to(self.device)

    def images(
        self, count: int | None = None, config: ViTConfig | None = None
    ) -> tuple[Tensor, Tensor]:
        """Random images and labels, by default a batch."""
        return random_images(config or CONFIG, count or self.batch, self.device)

    def compare(
        self,
        case: str,
        steps: dict[str, Step],
        model: nn.Module | None = None,
        seconds: float | None = None,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """Rows of steps that are measured in turn, each compared with the one before it.

        model: to add what autograd keeps for it, in megabytes;  seconds: of a step in a round, 0
        for a single call
        """
        taken = pd.DataFrame(
            benchmark_interleaved(steps, self.rounds, SECONDS if seconds is None else seconds)
        )
        ms, rows = 1000 * taken.median(), []
        kept = {
            name: saved_activation_bytes(step, model) / 1e6
            for name, step in steps.items()
            if model is not None
        }
        for before, after in pairwise(steps):
            ratios = taken[before] / taken[after]
            row = {
                "case": case,
                "before": before,
                "before_ms": ms[before],
                "after": after,
                "after_ms": ms[after],
            }
            row |= {"ratio": ratios.median(), "lowest": ratios.min(), "highest": ratios.max()}
            rows.append(
                row | ({"before_mb": kept[before], "after_mb": kept[after]} if kept else {}) | more
            )
        return rows


def add_out(parser: ArgumentParser, name: str, seeds: int = 0) -> None:
    """Add the options of a tool that stores rows: --out and, for a tool that trains, --seeds."""
    if seeds:
        parser.add_argument(
            "--seeds",
            type=positive_int,
            default=seeds,
            help=f"trainings of each kind (default: {seeds})",
        )
    parser.add_argument(
        "--out", type=Path, default=Path(name), help=f"the CSV file (default: {name})"
    )


def store(
    rows: Iterable[dict[str, Any]], path: Path, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """The rows as a table, each printed to stderr and written when measured; not to a folder."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, wanted: a CSV file")
    path.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for row in rows:
        print(
            *(significant(x) if isinstance(x, float) else x for x in row.values()),
            file=sys.stderr,
            flush=True,
        )
        found.append(row)
        with write_result(path) as file:
            pd.DataFrame(found, columns=columns).to_csv(file, index=False)
    return pd.DataFrame(found, columns=columns)


def find_or_measure(
    path: Path, measure: Callable[..., dict[str, Any]], **case: Any
) -> dict[str, Any]:
    """The row of a case in a CSV file; if it has none, measure(**case), appended and printed."""
    same = " and ".join(f"{name} == {value!r}" for name, value in case.items())
    if path.exists() and not (known := pd.read_csv(path).query(same)).empty:
        return known.iloc[0].to_dict()
    row = case | measure(**case)
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
    print(
        *case.values(),
        {name: value for name, value in row.items() if isinstance(value, float)},
        flush=True,
    )
    return row


def print_means(table: pd.DataFrame, by: list[str], columns: list[str], path: Path) -> None:
    """Print mean, standard deviation and error of columns over seeds, and where the rows are."""
    means = table.groupby(by, sort=False)[columns].agg(["mean", "std", "sem"]).round(3)
    print("mean, standard deviation and standard error over the seeds")
    print(f"{means.to_string()}\n\nrows: {path}")


def markdown_table(rows: pd.DataFrame) -> str:
    """The rows as a Markdown table, cells as they are, which pandas' own would round."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (rows.columns, *rows.to_numpy())]
    return "\n".join([lines[0], "|" + "---|" * len(rows.columns), *lines[1:]])


def significant(number: float) -> str:
    """A number in three significant digits.

    >>> significant(24674.6), significant(98.765), significant(0.012345)
    ('24,700', '98.8', '0.0123')
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"
