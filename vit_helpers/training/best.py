"""The best epoch of a run, whose weights are kept; early stopping where none follows; and the history as a table."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path

import pandas as pd
from torch import Tensor

from vit_helpers._files import write_aside
from vit_helpers.distributed import full_state_dict, is_main_process
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import Epoch


def best_epoch(history: Sequence[Epoch]) -> int:
    """The number of the epoch with the highest validation accuracy; of equal ones, that with the lowest validation loss.

    >>> best_epoch([Epoch(1, val_accuracy=0.5, val_loss=1.0), Epoch(2, val_accuracy=0.5, val_loss=0.9)])
    2
    """
    if not history:
        raise ValueError("an empty history has no best epoch")
    return max(history, key=lambda row: (row.val_accuracy, -row.val_loss)).epoch


class KeepBest(Callback):
    """Calls save(weights, epoch) in the main process after every epoch that is the best so far.

    weights: the whole state dict, on the CPU.  Give it to `fit` before its `Checkpoint`, so that what a checkpoint counts
    as the best epoch has been saved.
    """

    def __init__(self, save: Callable[[dict[str, Tensor], Epoch], object]) -> None:
        self.save = save

    def on_epoch_end(self, run: Run) -> None:
        if best_epoch(run.history) == run.history[-1].epoch:
            weights = full_state_dict(
                run.model
            )  # in every process: a sharded model is gathered from all
            if is_main_process():
                self.save(weights, run.history[-1])


class EarlyStopping(Callback):
    """Stops the training after `patience` epochs without a better one, see `best_epoch`; None for never.

    Give it to `fit` after its `Checkpoint`, so that a run that was stopped stays so when it is resumed.
    """

    def __init__(self, patience: int | None) -> None:
        self.patience = patience

    def on_fit_start(self, run: Run) -> None:
        if self.patience is not None and run.history:
            run.stop = run.history[-1].epoch - best_epoch(run.history) >= self.patience

    on_epoch_end = on_fit_start


class HistoryFile(Callback):
    """Keeps the history as a CSV file, a row for each epoch and a column for each field of `Epoch`."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch_end(self, run: Run) -> None:
        if is_main_process():
            with write_aside(self.path) as part:
                pd.DataFrame([asdict(row) for row in run.history]).to_csv(part, index=False)
