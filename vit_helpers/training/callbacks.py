"""What `fit` calls before, after and between epochs and steps: reports, and what you write."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from vit_helpers.distributed import is_main_process
from vit_helpers.training.diagnosis import diagnose, known_of
from vit_helpers.training.measurements import Epoch, print_epoch
from vit_helpers.training.recipe import Recipe

LossFunction = Callable[[Any, Tensor], Tensor]  # (outputs, labels) -> mean over the batch


@dataclass
class Run:
    """A training run in progress, as callbacks see it.

    network: what the loop calls, the model or a wrapper around it
    steps  : how many there are in all epochs together
    loss_fn: None for cross-entropy with the recipe's label smoothing
    history: the epochs that are finished
    stop   : a callback sets it to end the training before the next epoch
    """

    model: nn.Module
    network: nn.Module
    recipe: Recipe
    optimizer: torch.optim.Optimizer
    schedule: LambdaLR
    steps: int
    loss_fn: LossFunction | None = None
    history: list[Epoch] = field(default_factory=list)
    stop: bool = False


class Callback:
    """Override what you need; `fit(..., callbacks=[...])` calls it."""

    def on_fit_start(self, run: Run) -> None:
        """Before the first epoch."""

    def on_step_end(self, run: Run, outputs: Any, labels: Tensor, loss: Tensor) -> None:
        """After each step: outputs, labels and loss are those before it.

        Of several processes each has its own slice of the batch.
        """

    def on_epoch_end(self, run: Run) -> None:
        """After each epoch: its measurements are run.history[-1]."""

    def on_fit_end(self, run: Run) -> None:
        """After the last epoch."""


class Report(Callback):
    """Prints a line for each epoch, and at the end a diagnosis, in the first of all processes.

    function: called with each `Epoch` instead; then there is no diagnosis
    known   : what the diagnosis need not ask for, see `diagnose`, besides what the recipe tells
    """

    def __init__(
        self, function: Callable[[Epoch], object] | None = None, known: Collection[str] = ()
    ) -> None:
        self.function, self.known = function, known

    def on_epoch_end(self, run: Run) -> None:
        if is_main_process():
            report = self.function or print_epoch
            report(run.history[-1])

    def on_fit_end(self, run: Run) -> None:
        if is_main_process() and self.function is None:
            print(diagnose(run.history, {*self.known, *known_of(run.recipe)}))
