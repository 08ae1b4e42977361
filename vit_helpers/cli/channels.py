"""Weights of gray images adapted to color ones, and the reverse: gray pictures give equal logits.

Only the patch embedding has a number for each channel. What it computes of pixels from 0 to 1,
before they are normalized, says what its kernel and bias have to be for other channels.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vit_helpers._files import shown
from vit_helpers.pretrained.files import Pretrained, build_model
from vit_helpers.pretrained.preprocess import Preprocess

KINDS = {1: "gray", 3: "color"}
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in a gray value, as in PIL's convert("L")


def with_channels(pretrained: Pretrained, in_chans: int) -> Pretrained:
    """Adapt weights to gray images (1 channel) or to color images (3).

    A gray picture then gives the same logits in both forms; a color picture, if the weights are of
    gray images, what its gray values gave.
    raises: ValueError for other numbers of channels
    """
    model, old, class_names = pretrained
    if old.in_chans == in_chans:
        return pretrained
    new = preprocess_with_channels(old, in_chans)
    state = dict(model.state_dict())
    kernel, bias = state["patch_embed.proj.weight"], state["patch_embed.proj.bias"]
    raw = kernel.double().unflatten(1, (old.in_chans, -1)) / column(old.std)  # (D, C, P*P)
    offset = bias.double() - (raw * column(old.mean)).sum((1, 2))
    raw = raw.sum(1, keepdim=True) if in_chans == 1 else raw * column(LUMA)
    state["patch_embed.proj.weight"] = (raw * column(new.std)).flatten(1).to(kernel.dtype)
    state["patch_embed.proj.bias"] = (offset + (raw * column(new.mean)).sum((1, 2))).to(bias.dtype)
    adapted = build_model(replace(model.config, in_chans=in_chans), state, new)
    return Pretrained(adapted.eval(), new, class_names)


def preprocess_with_channels(preprocess: Preprocess, in_chans: int) -> Preprocess:
    """Return the preprocessing of adapted weights: each channel has the average mean and std.

    raises: ValueError for other numbers of channels than 1 and 3
    """
    old = preprocess.in_chans
    if old == in_chans:
        return preprocess
    if not {old, in_chans} <= KINDS.keys():
        raise ValueError(
            f"weights for images with {old} channels cannot be adapted to {in_chans}: "
            "only gray (1) and color (3) can become each other"
        )
    mean, std = ((sum(values) / old,) * in_chans for values in (preprocess.mean, preprocess.std))
    return replace(preprocess, mean=mean, std=std)


def warn_of_channels(name: str, old: int, new: int) -> None:
    """Warn if weights with this name, for `old` channels, are adapted to images with `new` ones."""
    if old != new:
        warnings.warn(
            f"{shown(name)} was trained on {KINDS[old]} images, these are {KINDS[new]}: its patch "
            "embedding is adapted, so that a gray picture gives the same outputs in both forms",
            stacklevel=2,
        )


def column(values: Sequence[float]) -> Tensor:
    """Return a number for each channel in a form that multiplies kernels: (C, 1)."""
    return torch.tensor(values, dtype=torch.float64)[:, None]
