"""Trained weights as the start of a run: read, and adapted to the classes of its data."""

from dataclasses import replace
from typing import Any

from torch import nn

from vit_helpers.cli.channels import preprocess_with_channels, warn_of_channels, with_channels
from vit_helpers.data import Data
from vit_helpers.pretrained.files import Pretrained
from vit_helpers.pretrained.finetune import add_lora, freeze, transfer_weights
from vit_helpers.pretrained.sources import load_pretrained
from vit_helpers.training.presets import RunSettings, load_data

WIDTH = 768  # that the learning rates for fine-tuning in presets.toml are meant for


def load_start(settings: RunSettings) -> Pretrained:
    """Load the weights that the settings name.

    raises: ValueError if their patches do not divide the image size of the settings
    """
    pretrained = load_pretrained(settings.weights or "", settings.shape.get("num_heads"))
    patch = pretrained.model.config.patch_size
    if any(side % patch for side in settings.image_size or ()):
        raise ValueError(
            f"the patches of {settings.weights} have side {patch}: "
            "give an image size that is a multiple of it"
        )
    return pretrained


def load_data_for(pretrained: Pretrained, settings: RunSettings, **options: Any) -> Any:
    """Load the data set of a run, for the model that it starts from.

    Images get the size that the weights were trained with, unless the settings give another; in
    memory they are normalized by the mean and std of the weights. Warns if those are of gray images
    and these have color, or the reverse.
    options: as for `load_data`
    """
    data = load_data(settings, pretrained.preprocess.crop, **options)
    preprocess = preprocess_with_channels(pretrained.preprocess, data.in_chans)
    warn_of_channels(settings.weights or "", pretrained.preprocess.in_chans, data.in_chans)
    if not isinstance(data, Data):
        return data
    return replace(data, mean=preprocess.mean, std=preprocess.std)


def adapt(pretrained: Pretrained, data: Any, settings: RunSettings) -> nn.Module:
    """Make a model with a new head for the classes of the data, tuned as the settings say.

    It reads images with the channels of the data, see `with_channels`.
    """
    pretrained = with_channels(pretrained, data.in_chans)
    names = ("dropout", "attn_dropout")
    changes = {name: settings.shape[name] for name in names if name in settings.shape}
    changes |= {"num_classes": len(data.class_names), "image_size": data.image_size}
    model = transfer_weights(pretrained.model, **changes).train()
    if settings.tune == "head":
        return freeze(model)
    return add_lora(model, settings.rank) if settings.tune == "lora" else model


def scale_lr(settings: RunSettings, width: int) -> RunSettings:
    """Fit the learning rate of a preset to the width of a model: narrow ones take larger steps."""
    return settings.replace(lr=float(f"{settings.recipe.lr * WIDTH / width:.2g}"))
