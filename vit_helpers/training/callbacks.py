"""What `fit` calls before, after and between epochs: reports, and whatever you write (for checkpoints see `checkpoints`)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vit_helpers.distributed import is_main_process
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.measurements import Epoch, print_epoch
from vit_helpers.training.recipe import Recipe


@dataclass
class Run:
    """A training run in progress, as callbacks see it.

    network: what the loop calls, the model or a wrapper around it;  steps: how many there are in all epochs together
    history: the epochs that are finished;  stop: a callback sets it to end the training before the next epoch
    """

    model: nn.Module
    network: nn.Module
    recipe: Recipe
    optimizer: torch.optim.Optimizer
    schedule: LambdaLR
    steps: int
    history: list[Epoch] = field(default_factory=list)
    stop: bool = False


class Callback:
    """Override what you need; `fit(..., callbacks=[...])` calls it."""

    def on_fit_start(self, run: Run) -> None:
        """Before the first epoch."""

    def on_epoch_end(self, run: Run) -> None:
        """After each epoch: its measurements are run.history[-1]."""

    def on_fit_end(self, run: Run) -> None:
        """After the last epoch."""


class Report(Callback):
    """Calls a function with each epoch's measurements; without one, prints a line per epoch and a diagnosis at the end."""

    def __init__(self, report: Callable[[Epoch], object] | None = None) -> None:
        self.report = report

    def on_epoch_end(self, run: Run) -> None:
        if is_main_process():  # of several processes only the first reports
            (self.report or print_epoch)(run.history[-1])

    def on_fit_end(self, run: Run) -> None:
        if is_main_process() and self.report is None:
            print(diagnose(run.history))
