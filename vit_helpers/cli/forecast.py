"""What a run will take, said once after its first steps: how long, and how much disk space."""

import shutil
import time
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from vit_helpers.data.splits import DataLike
from vit_helpers.distributed import is_main_process, world_size
from vit_helpers.scaling.cost import parameters
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.vit import ViTConfig

WAIT = 1.0  # seconds of steps after the first one, which is slower, before anything is said
FORWARD = 1 / 3  # of a step's work, of which the backward pass is twice as much


class Forecast(Callback):
    """Prints one line, in the first process: how long a run will take, and the size of its folder.

    Give it to `fit` after the `Checkpoint`, which may restore finished epochs. A run that is over
    before it can tell prints nothing.
    folder : of the run
    data   : how many images are validated after each epoch, and tested at the end
    weights: bytes of the files of weights that the folder gets beside the checkpoint
    part   : whether the checkpoint holds only what is trained, as it is and as it is kept
    early  : whether the run may stop before its last epoch
    """

    def __init__(self, folder: Path, data: DataLike, weights: int, part: bool, early: bool) -> None:
        self.folder, self.weights, self.part, self.early = folder, weights, part, early
        self.validation, self.test = data.count("validation"), data.count("test")
        self.steps, self.start, self.first, self.done = 0, 0.0, 0.0, False

    def on_fit_start(self, run: Run) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, run: Run, outputs: Any, labels: Tensor, loss: Tensor) -> None:
        if self.done or not is_main_process():
            return
        now = time.perf_counter()
        self.steps += 1
        if self.steps == 1:
            self.first = now
        elif now - self.first >= WAIT:
            per_step = (now - self.first) / (self.steps - 1)
            seconds = per_step * remaining_steps(
                run, len(labels) * world_size(), self.validation, self.test
            )
            tqdm.write(self.describe(run, now - self.start, seconds))  # above the progress bar
            self.done = True

    def describe(self, run: Run, past: float, left: float) -> str:
        """Say what the run takes; a resumed one, what the rest of it takes.

        past, left: seconds of this process
        """
        time_left = f"{duration(left)} more" if run.history else f"{duration(past + left)} in all"
        stored = self.weights + checkpoint_bytes(run, self.part)
        line = (
            f"expected: {'at most' if self.early else 'about'} {time_left}, "
            f"and {file_size(stored)} in {self.folder}"
        )
        needed = stored - sum(path.stat().st_size for path in self.folder.iterdir())
        free = shutil.disk_usage(self.folder).free
        return f"{line}, where only {file_size(free)} are free" if free < needed else line


def remaining_steps(run: Run, batch: int, validation: int, test: int) -> float:
    """Count the steps until the end of a run, validation and test included as parts of steps.

    batch           : images of a step
    validation, test: images after each epoch, and at the end
    """
    epochs = run.recipe.epochs - len(run.history)
    evaluated = epochs * validation + test
    return run.steps - run.schedule.last_epoch + FORWARD * evaluated / batch


def checkpoint_bytes(run: Run, part: bool) -> int:
    """Compute the bytes of the checkpoint, and of the one before it, after the first step.

    part: as for `Forecast`
    """
    trained = {name: w for name, w in run.model.named_parameters() if w.requires_grad}
    model = 2 * tensor_bytes(trained) if part else tensor_bytes(run.model.state_dict())
    return min(2, run.recipe.epochs) * (model + tensor_bytes(run.optimizer.state_dict()))


def weights_bytes(config: ViTConfig, files: int) -> int:
    """Compute the bytes of so many files of a model's weights."""
    return files * 4 * sum(parameters(config).values())


def tensor_bytes(values: Any) -> int:
    """Sum the bytes of all tensors in dicts in dicts; of a sharded tensor, of the whole.

    >>> import torch
    >>> tensor_bytes({"weights": torch.zeros(2, 3), "state": {0: {"step": torch.zeros(())}}})
    28
    """
    if isinstance(values, Tensor):
        return values.numel() * values.element_size()
    return sum(map(tensor_bytes, values.values())) if isinstance(values, dict) else 0


def duration(seconds: float) -> str:
    """Write how long something takes, in the largest unit that fits, and hours with their minutes.

    >>> [duration(seconds) for seconds in (0.2, 89, 1700, 7500)]
    ['1 s', '89 s', '28 min', '2 h 5 min']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def file_size(count: float) -> str:
    """Write how large files are.

    >>> [file_size(count) for count in (5_389_059, 2_750_000_000)]
    ['5.4 MB', '2.8 GB']
    """
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"
