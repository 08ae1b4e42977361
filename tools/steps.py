"""The steps that benchmarks time, the same for every model, fresh processes to run them in, and comparisons of two."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.scaling.speedups import saved_activation_bytes
from vit_helpers.scaling.timing import Step, benchmark_interleaved
from vit_helpers.vit import ViT, ViTConfig

CONFIG = ViTConfig(32, 4, 3, 10, 192, 6, 3)  # the model of most rows: 65 tokens, 2.7 million parameters
SECONDS = 0.3  # of a step in a round, at least one call
Size = int | None


def inference_step(
    model: nn.Module, images: Tensor, labels: Tensor | None = None, precision: str = "float32", size: Size = None
) -> Step:
    """A function that runs the images through the model, `size` at a time (default: all at once)."""

    def step() -> None:
        model.eval()
        with torch.inference_mode(), autocast(images, precision):
            for some in images.split(size or len(images)):
                model(some)

    return step


def train_step(
    model: nn.Module, images: Tensor, labels: Tensor, precision: str = "float32", size: Size = None, optimizer: Any = None
) -> Step:
    """A function that learns from the images, `size` at a time (default: all at once): cross entropy, AdamW."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = list(zip(images.split(size or len(images)), labels.split(size or len(images)), strict=True))

    def step() -> None:
        model.train()
        for some, their in batches:
            optimizer.zero_grad()
            with autocast(some, precision):
                output = model(some)
            logits = getattr(output, "logits", output)  # Hugging Face wraps them
            F.cross_entropy(logits.float(), their).backward()
            optimizer.step()

    return step


def random_images(config: ViTConfig, count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Images and labels, drawn from a normal and a uniform distribution."""
    images = torch.randn(count, config.in_chans, *config.image_size, device=device)
    return images, torch.randint(config.num_classes, (count,), device=device)


STEPS: dict[str, Callable[..., Step]] = {"inference": inference_step, "training": train_step}


def autocast(images: Tensor, precision: str) -> torch.autocast:
    """Matrix products in bfloat16 if that is the precision, as in `fit`."""
    return torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Torch uses this many threads inside a `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_own_process(function: Callable, *args: Any) -> Any:
    """What function(*args) returns in a fresh process, with as many threads as here; its error is a RuntimeError."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(with_threads, torch.get_num_threads(), function, *args).result()


def with_threads(count: int, function: Callable, *args: Any) -> Any:
    try:
        with num_threads(count):
            return function(*args)
    except Exception as error:  # some of torch's errors cannot be pickled
        raise RuntimeError(first_line(error)) from None


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
        nn.init.trunc_normal_(model.head.weight, std=0.02)
        return model.to(self.device)

    def images(self, count: int, config: ViTConfig | None = None) -> tuple[Tensor, Tensor]:
        """Random images and labels."""
        return random_images(config or CONFIG, count, self.device)

    def compare(self, case: str, before: tuple[str, Step], after: tuple[str, Step], **more: Any) -> dict:
        """A row: two steps, each with its name, measured in turn."""
        seconds = benchmark_interleaved({"before": before[1], "after": after[1]}, self.rounds, SECONDS)
        return row_of(case, before[0], seconds["before"], after[0], seconds["after"]) | more


def row_of(case: str, before: str, old: list[float], after: str, new: list[float]) -> dict:
    """A row, from the names and the seconds of each round of both."""
    seconds = pd.DataFrame({"old": old, "new": new})
    ratios, ms = seconds["old"] / seconds["new"], 1000 * seconds.median()
    times = {"case": case, "before": before, "before_ms": ms["old"], "after": after, "after_ms": ms["new"]}
    return times | {"ratio": ratios.median(), "lowest": ratios.min(), "highest": ratios.max()}


def inside(context: Callable[[], AbstractContextManager], step: Step) -> Step:
    """A step that runs in a context, a new one each time."""

    def run() -> None:
        with context():
            step()

    return run


def saved_mb(model: nn.Module, before: Step, after: Step) -> dict[str, float]:
    """What autograd keeps in each of two steps, in megabytes."""
    return {f"{name}_mb": saved_activation_bytes(step, model) / 1e6 for name, step in (("before", before), ("after", after))}


def images_per_second(row: dict, old: int, new: int) -> dict:
    """The row with the speeds of both, in words; old, new: how many images their steps take."""
    return row | {"also": f"{1000 * old / row['before_ms']:,.0f} → {1000 * new / row['after_ms']:,.0f} images/s"}
