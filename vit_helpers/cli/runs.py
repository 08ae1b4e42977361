"""The data and the network of a run, from scratch or from trained weights, and the model that comes out of it."""

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.data import Data
from vit_helpers.distributed import (
    broadcast,
    full_state_dict,
    is_main_process,
    shard_batches,
    world_size,
)
from vit_helpers.pretrained.files import load_weights, read_notes, save_weights
from vit_helpers.pretrained.finetune import add_lora, freeze, merge_lora, transfer_weights
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.pretrained.sources import RUN_WEIGHTS, find_file, load_pretrained
from vit_helpers.training import Epoch, Report, fit
from vit_helpers.training.best import EarlyStopping, HistoryFile, KeepBest, best_epoch
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.presets import RunSettings, load_data, make_batches, make_network
from vit_helpers.vit import ViT, ViTConfig

LAST_WEIGHTS = "last.safetensors"


def load_run(settings: RunSettings, **options: Any) -> tuple[Any, nn.Module]:
    """The data set of a run and its network, which has a new head and the trained weights that the settings name, if any.

    Images get the size that the weights were trained with, unless the settings give another; in memory they are normalized
    by the mean and std of the weights.  options: of the data set's function
    """
    if settings.weights is None:
        data = load_data(settings, **options)
        return data, make_network(data, settings)
    pretrained = load_pretrained(settings.weights, settings.shape.get("num_heads"))
    if any(side % (P := pretrained.model.config.patch_size) for side in settings.image_size or ()):
        raise ValueError(
            f"the patches of {settings.weights} have side {P}: give an image size that is a multiple of it"
        )
    data = load_data(settings, pretrained.preprocess.crop, **options)
    if data.in_chans != (wanted := pretrained.preprocess.in_chans):
        have = f"those of {settings.data} have {data.in_chans}"
        raise ValueError(f"{settings.weights} needs images with {wanted} channels, {have}")
    if isinstance(data, Data):
        data = replace(data, mean=pretrained.preprocess.mean, std=pretrained.preprocess.std)
    changes = {
        name: settings.shape[name] for name in ("dropout", "attn_dropout") if name in settings.shape
    }
    changes |= {"num_classes": len(data.class_names), "image_size": data.image_size}
    model = transfer_weights(pretrained.model, **changes).train()
    if settings.tune != "full":
        model = freeze(model) if settings.tune == "head" else add_lora(model, settings.rank)
    return data, model


def save_run(
    path: Path, weights: dict[str, Tensor], epoch: Epoch, *, config: ViTConfig, settings: RunSettings, data: Any,
    seen: bytes | None,
) -> None:  # fmt: skip
    """Save the weights of a run, with LoRA merged, for `load_pretrained`, and notes for `check_best`, `count_confusions`."""
    with torch.random.fork_rng(
        devices=[]
    ):  # so that a run can continue with the same random numbers
        model = ViT(config)
        if settings.weights and settings.tune == "lora":
            add_lora(model, settings.rank)
    model.load_state_dict(weights)
    preprocess = Preprocess(min(data.image_size), data.image_size, "bilinear", data.mean, data.std)
    notes = {
        "epoch": str(epoch.number),
        "validation loss": validation_loss(epoch),
        "tta": "yes" if settings.tta else "no",
    }
    if seen is not None:
        notes["seen"] = b64encode(seen).decode()
    save_weights(path, merge_lora(model), preprocess, data.class_names, notes)


def seen_images(data: Any, settings: RunSettings) -> bytes | None:
    """What the sha256s of images begin with that a run has seen, and a run whose weights it starts from; None: unknown"""
    source = find_file(settings.weights) if settings.weights else Path()
    earlier = read_notes(source).get("seen") if source.suffix == ".safetensors" else None
    return (
        b"".join(sorted(data.seen)) + b64decode(earlier or "") if isinstance(data, Data) else None
    )


def validation_loss(epoch: Epoch) -> str:
    """Write the validation loss of an epoch with all its digits, to tell epochs apart."""
    return repr(epoch.validation.loss if epoch.validation else math.nan)


def check_best(path: Path, history: Sequence[Epoch]) -> str:
    """What to print if the best epoch's weights are missing; ValueError if a file is damaged, or would be overwritten."""
    epoch = best_epoch(history)
    if not path.is_file():
        return f"note: {path} with the weights of epoch {epoch} is missing; without a better epoch, the last one is tested\n"
    try:
        load_weights(path)
        losses = {str(row.number): validation_loss(row) for row in history}
        notes = read_notes(path)
        kept, loss = notes.get("epoch", ""), notes.get("validation loss")
        later = kept in (
            str(len(history) + 1),
            str(len(history) + 2),
        )  # an epoch that will be trained again
        if not later and (kept != str(epoch) if loss is None else losses.get(kept) != loss):
            raise ValueError(f"{path} does not have the weights of epoch {epoch} of this run")
    except ValueError as error:
        raise ValueError(
            f"{error}: move the file elsewhere to continue without the weights of that epoch"
        ) from error
    return ""


def fit_run(
    model: Any, data: Any, settings: RunSettings, out: Path, keep: Checkpoint, device: str = "cpu"
) -> tuple[list[Epoch], int]:
    """Train the model of a run; its history and weights, of the best and of the last epoch, are kept in the folder `out`.

    keep   : writes the checkpoint, or resumes it first
    returns: the history, and the epoch whose weights the model then has: the best if those are in a file, else the last
    """
    train, validation = (
        shard_batches(x)
        for x in (make_batches(data, settings), evaluation_batches(data, "validation"))
    )
    best = out / RUN_WEIGHTS
    after = [EarlyStopping(settings.patience), HistoryFile(out / "history.csv"), Report()]
    if not settings.keeps_weights:
        history = fit(
            model, train, validation, settings.recipe, device=device, callbacks=[keep, *after]
        )
        return history, len(history)
    save = partial(
        save_run,
        config=model.config,
        settings=settings,
        data=data,
        seen=seen_images(data, settings),
    )
    callbacks = [KeepBest(partial(save, best)), keep, *after]
    history = fit(model, train, validation, settings.recipe, device=device, callbacks=callbacks)
    epoch, last, weights = best_epoch(history), len(history), full_state_dict(model)
    if is_main_process():
        save(out / LAST_WEIGHTS, weights, history[-1])
        if not best.exists() or read_notes(best).get("epoch") != str(
            epoch
        ):  # see `check_best`, or of version 0.1
            save(best, weights, history[-1])
            epoch = last
    if (epoch := broadcast(epoch)) != last:  # into the model in all processes, sharded or not
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        kept: dict[str, Any] = load_weights(best).model.state_dict() if is_main_process() else {}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=world_size() > 1)
        set_model_state_dict(merge_lora(model), kept, options=options)
    return history, epoch


def evaluation_batches(data: Any, split: str) -> Any:
    """The batches of a split in a test: smaller ones of larger images, whose activations need more memory."""
    return data.batches(split, 512 if max(data.image_size) <= 64 else 64)
