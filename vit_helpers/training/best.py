"""The epoch whose weights a run keeps; early stopping; and the history as a table."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd
from torch import Tensor

from vit_helpers._files import write_aside
from vit_helpers.distributed import full_state_dict, is_main_process
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import Epoch, Score


def best_epoch(history: Sequence[Epoch]) -> int:
    """Return the number of the epoch with the highest validation accuracy.

    Of equal ones it is that with the lowest validation loss.
    raises: ValueError for no epochs, and for one without validation

    >>> scores = [Score(loss=1.0, accuracy=0.5), Score(loss=0.9, accuracy=0.5)]
    >>> best_epoch([Epoch(n, Score(2.0), score) for n, score in enumerate(scores, start=1)])
    2
    """
    if not history:
        raise ValueError("an empty history has no best epoch")
    return max(history, key=rank).number


def rank(epoch: Epoch) -> tuple[float, float]:
    """Return what is highest for the best epoch; raise ValueError without validation."""
    score: Score | None = epoch.validation
    if score is None:
        raise ValueError(
            f"epoch {epoch.number} has no validation, which tells the best epoch: "
            "give `fit` validation batches, or leave out patience"
        )
    return score.accuracy, -score.loss


def kept_epoch(history: Sequence[Epoch], patience: int | None) -> int:
    """Return the number of the epoch whose weights a run keeps: the last; with patience, the best.

    The epoch that is best on a small validation split is mostly a lucky one. In 50 trainings, whose
    learning rates fell to 0, no rule for choosing an epoch was better than the last
    (results/keeping.csv). A run that waits for a better epoch ends before its rate has fallen.
    patience: as for `EarlyStopping`
    raises  : ValueError for patience without validation
    """
    return len(history) if patience is None else best_epoch(history)


class KeepWeights(Callback):
    """Calls save(weights, epoch) in the main process after every epoch that is the one to keep.

    weights: the whole state dict, on the CPU.  Give it to `fit` before its `Checkpoint`, so that
    what a checkpoint counts as the kept epoch has been saved.
    patience: as for `kept_epoch`
    raises  : ValueError after the first epoch, for patience without validation
    """

    def __init__(
        self, save: Callable[[dict[str, Tensor], Epoch], object], patience: int | None = None
    ) -> None:
        self.save, self.patience = save, patience

    def on_epoch_end(self, run: Run) -> None:
        epoch = run.history[-1]
        if kept_epoch(run.history, self.patience) != epoch.number:
            return
        # in every process: a sharded model is gathered from all
        weights = full_state_dict(run.model)
        if is_main_process():
            self.save(weights, epoch)


class EarlyStopping(Callback):
    """Stops the training after `patience` epochs without a better one; None for never.

    Give it to `fit` after its `Checkpoint`, so that a run that was stopped stays so when it is
    resumed.
    raises: ValueError after the first epoch, for patience without validation
    """

    def __init__(self, patience: int | None) -> None:
        self.patience = patience

    def on_fit_start(self, run: Run) -> None:
        if self.patience is not None and run.history:
            run.stop = run.history[-1].number - best_epoch(run.history) >= self.patience

    on_epoch_end = on_fit_start


class HistoryFile(Callback):
    """Keeps the history as a CSV file, a row for each epoch, see `Epoch.to_row`."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch_end(self, run: Run) -> None:
        if is_main_process():
            with write_aside(self.path) as part:
                rows = [epoch.to_row() for epoch in run.history]
                pd.DataFrame(rows).to_csv(part, index=False)
