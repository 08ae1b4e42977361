"""Runs that train a part of a model, its head or LoRA: only that part is stored in each epoch.

The rest is that of the weights which the run starts from. A checkpoint knows their hash, so a run
is resumed only with the same. `weights.safetensors` is whole, and needs no other file.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from vit_helpers._files import write_aside
from vit_helpers.cli.run_folder import LAST_WEIGHTS
from vit_helpers.distributed import full_state_dict, is_main_process, plain_name
from vit_helpers.pretrained.files import PART
from vit_helpers.pretrained.finetune import merge_lora
from vit_helpers.pretrained.sources import RUN_WEIGHTS
from vit_helpers.training import Epoch
from vit_helpers.training.best import kept_epoch
from vit_helpers.training.callbacks import Run
from vit_helpers.training.checkpoints import Checkpoint, State
from vit_helpers.training.presets import RunSettings
from vit_helpers.vit import ViT

Save = Callable[[Path, dict[str, Tensor], Epoch], None]


def trains_part(settings: RunSettings) -> bool:
    """Return whether a run trains only a part of the weights that it starts from."""
    return settings.weights is not None and settings.tune != "full"


class PartCheckpoint(Checkpoint):
    """Keeps what is trained, as it is now and as it was after the kept epoch, and nothing else.

    A run that it is to resume must have the same frozen weights, see `describe_run`.
    patience: as for `kept_epoch`
    kept    : that epoch, and the trained weights by name
    raises  : as `Checkpoint`; ValueError for patience without validation
    """

    kept: tuple[Epoch, dict[str, Tensor]] | None = None

    def __init__(
        self,
        path: str | PathLike[str],
        resume: bool = False,
        about: State | None = None,
        patience: int | None = None,
    ) -> None:
        super().__init__(path, resume, about)
        self.patience = patience

    def put_back(self, state: State, run: Run) -> None:
        if state["model"].keys() != trained_part(run.model).keys():
            raise ValueError(f"{self.path} does not hold what this run trains")
        history = state["history"]
        self.kept = history[kept_epoch(history, self.patience) - 1], state["kept"]
        super().put_back(state | {"model": full_state_dict(run.model) | state["model"]}, run)

    def collect(self, run: Run) -> State:
        part, epoch = trained_part(run.model), run.history[-1]
        if self.kept is None or kept_epoch(run.history, self.patience) == epoch.number:
            self.kept = epoch, {name: weight.clone() for name, weight in part.items()}
        return super().collect(run) | {"model": part, "kept": self.kept[1]}

    def keep_weights(self, model: ViT, save: Save) -> int:
        """Give the model its kept weights, with LoRA merged, and save the whole of it.

        returns: the epoch that they are of; 0, with nothing done, before the first has ended
        """
        if self.kept is None:
            return 0
        epoch, part = self.kept
        model.load_state_dict(part, strict=False)
        weights = full_state_dict(merge_lora(model))
        if is_main_process():
            save(self.path.with_name(RUN_WEIGHTS), weights, epoch)
        return epoch.number


def fit_part(
    train: Callable[[], list[Epoch]],
    model: ViT,
    checkpoint: PartCheckpoint,
    settings: RunSettings,
    save: Save,
) -> tuple[list[Epoch], int]:
    """Train a part of a model, and keep the whole model, with patience its last weights, too.

    The whole is written when the training ends, whether it was finished or stopped.
    save   : writes the weights of a whole model, those of an epoch, to a file
    returns: the history, and the epoch of the kept weights, which the model then has
    """
    try:
        history = train()
    except (KeyboardInterrupt, BrokenPipeError, FloatingPointError, RuntimeError):
        checkpoint.keep_weights(model, save)
        raise
    if is_main_process() and settings.patience is not None:
        notes = {PART: settings.tune, "epoch": str(len(history))}
        with write_aside(checkpoint.path.with_name(LAST_WEIGHTS)) as last:
            last.write_bytes(save_tensors(trained_part(model), notes))
    return history, checkpoint.keep_weights(model, save)


def trained_part(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that are trained, by name, on the CPU."""
    return {
        plain_name(name): weight.detach().cpu()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
