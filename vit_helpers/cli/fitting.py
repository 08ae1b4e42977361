"""The training of a run: its weights are kept in its folder."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vit_helpers.cli.forecast import Forecast, weights_bytes
from vit_helpers.cli.head_features import cache_features
from vit_helpers.cli.run_folder import LAST_WEIGHTS
from vit_helpers.cli.seen import seen_notes
from vit_helpers.cli.trained_part import PartCheckpoint, fit_part
from vit_helpers.distributed import (
    broadcast,
    full_state_dict,
    is_main_process,
    load_full_state_dict,
    on_main,
    shard_batches,
)
from vit_helpers.pretrained.files import load_weights, read_notes, save_weights
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.pretrained.sources import RUN_WEIGHTS
from vit_helpers.training import Epoch, Report, fit
from vit_helpers.training.best import EarlyStopping, HistoryFile, KeepWeights, kept_epoch
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.presets import RunSettings
from vit_helpers.vit import ViT, ViTConfig


def fit_run(
    model: Any,
    batches: Any,
    data: Any,
    settings: RunSettings,
    out: Path,
    checkpoint: Checkpoint,
    device: str = "cpu",
) -> tuple[list[Epoch], int]:
    """Train the model of a run; its history and weights are kept in the folder `out`.

    batches   : of the training split
    checkpoint: writes the checkpoint, or resumes it first
    returns   : the history, and the epoch whose weights the model then has, see `kept_epoch`
    """
    batches = shard_batches(batches)
    validation = shard_batches(evaluation_batches(data, "validation"))
    network = model
    # `train` chose model, loss and preprocessing itself
    known = {"code", "weights"} if settings.weights else {"code"}
    callbacks = [
        checkpoint,
        EarlyStopping(settings.patience),
        HistoryFile(out / "history.csv"),
        Report(known=known),
    ]
    if features := cache_features(model, data, settings, validation, device):
        network, batches, validation = features.head, features.train, features.validation
        callbacks.append(features)
    part = isinstance(checkpoint, PartCheckpoint)
    early = settings.patience is not None
    callbacks.append(Forecast(out, data, weights_of(model, settings, part), part, early))
    train = partial(
        fit, network, batches, validation, settings.recipe, device=device, callbacks=callbacks
    )
    if not settings.keeps_weights:
        history = train()
        return history, len(history)
    save = partial(
        save_run,
        config=model.config,
        settings=settings,
        data=data,
        seen=seen_notes(data, settings),
    )
    if isinstance(checkpoint, PartCheckpoint):
        return fit_part(train, model, checkpoint, settings, save)
    callbacks.insert(0, KeepWeights(partial(save, out / RUN_WEIGHTS), settings.patience))
    history = train()
    return history, keep_weights(model, history, out, save, settings.patience)


def weights_of(model: Any, settings: RunSettings, part: bool) -> int:
    """Compute the bytes of the files of weights in the folder of a run, see `keep_weights`."""
    if not settings.keeps_weights:
        return 0
    return weights_bytes(model.config, 1 if part or settings.patience is None else 2)


def keep_weights(
    model: Any, history: Sequence[Epoch], out: Path, save: partial[None], patience: int | None
) -> int:
    """Put the weights of the kept epoch into the model; with patience, write the last ones, too.

    save   : `save_run` with all but the path, the weights and the epoch
    returns: the epoch whose weights the model then has: the last, if the kept ones are missing
    """
    kept, last, path = kept_epoch(history, patience), len(history), out / RUN_WEIGHTS
    weights = full_state_dict(model)
    if is_main_process():
        if patience is not None:
            save(out / LAST_WEIGHTS, weights, history[-1])
        if not path.exists() or read_notes(path).get("epoch") != str(kept):  # see `check_kept`
            save(path, weights, history[-1])
            kept = last
    kept = broadcast(kept)
    if kept != last:  # into the model in all processes, sharded or not
        state = on_main(lambda: load_weights(path).model.state_dict())
        load_full_state_dict(model, state)
    return kept


def save_run(
    path: Path,
    weights: dict[str, Tensor],
    epoch: Epoch,
    *,
    config: ViTConfig,
    settings: RunSettings,
    data: Any,
    seen: dict[str, str],
) -> None:
    """Save the weights of a run for `load_pretrained`.

    seen: `seen_notes`
    Notes in the file are for `check_kept` and `run_test`.
    """
    with torch.random.fork_rng(devices=[]):  # which the first weights of a model would change
        model = ViT(config)
    model.load_state_dict(weights)
    size, white = data.image_size, data.white
    preprocess = Preprocess(min(size), size, "bilinear", data.mean, data.std, white)
    notes = {
        "epoch": str(epoch.number),
        "validation loss": validation_loss(epoch),
        "tta": "yes" if settings.tta else "no",
        **seen,
    }
    save_weights(path, model, preprocess, data.class_names, notes)


def validation_loss(epoch: Epoch) -> str:
    """Write the validation loss of an epoch with all its digits, to tell epochs apart."""
    return repr(epoch.validation.loss if epoch.validation else math.nan)


def check_kept(path: Path, history: Sequence[Epoch], patience: int | None) -> str:
    """Return what to print if weights are missing that a resumed run may still need.

    raises: ValueError if a file is damaged, or would be overwritten
    """
    epoch = kept_epoch(history, patience)
    if not path.is_file():
        if patience is None:  # the next epoch writes it
            return ""
        return (
            f"note: {path} with the weights of epoch {epoch} is missing; "
            "without a better epoch, the last one is tested\n"
        )
    try:
        load_weights(path)
        notes = read_notes(path)
        kept, loss = notes.get("epoch", ""), notes.get("validation loss")
        losses = {str(row.number): validation_loss(row) for row in history}
        # an epoch that will be trained again
        later = kept in (str(len(history) + 1), str(len(history) + 2))
        if not later and (loss is None or losses.get(kept) != loss):
            raise ValueError(f"{path} does not have the weights of epoch {epoch} of this run")
    except ValueError as error:
        advice = "move the file elsewhere to continue without the weights of that epoch"
        raise ValueError(f"{error}: {advice}") from error
    return ""


def evaluation_batches(data: Any, split: str) -> Any:
    """Return the batches of a split in a test.

    Those of larger images are smaller, as their activations need more memory.
    """
    return data.batches(split, 512 if max(data.image_size) <= 64 else 64)
