"""Two ways to do the same, before and after, timed in turn: the rows of `python -m tools.speed`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tools.steps import Step
from vit_helpers.scaling.speedups import saved_activation_bytes
from vit_helpers.scaling.timing import benchmark_interleaved
from vit_helpers.vit import ViT, ViTConfig

CONFIG = ViTConfig(32, 4, 3, 10, 192, 6, 3)  # the model of most rows: 65 tokens, 2.7 million parameters
SECONDS = 0.3  # of a step in a round, at least one call


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
        config = config or CONFIG
        images = torch.randn(count, config.in_chans, *config.image_size, device=self.device)
        return images, torch.randint(config.num_classes, (count,), device=self.device)

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
