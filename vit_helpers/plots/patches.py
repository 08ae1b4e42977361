"""Pictures of patches: a row of them, the numbers that one of them holds, and what smaller ones cost."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter
from torch import Tensor

from vit_helpers.plots import style


def draw_row(patches: Tensor, channels: int, ax: Axes | None = None, title: str | None = None, gap: int = 2) -> Axes:
    """Patches side by side in one line.

    patches: (n, C*P*P), from 0 to 1, channel by channel;  gap: white pixels between them
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 1), title)
    pictures = patches.detach().cpu().reshape(len(patches), channels, -1)
    P = round(pictures.shape[2] ** 0.5)
    line = torch.ones(P, len(patches) * (P + gap) - gap, channels)
    for i, picture in enumerate(pictures):
        left = i * (P + gap)
        line[:, left : left + P] = picture.reshape(channels, P, P).permute(1, 2, 0)
    ax.imshow(line.clamp(0, 1).squeeze(2), cmap="gray" if channels == 1 else None, vmin=0, vmax=1)
    return ax


def draw_holding(image: Tensor, mask: Tensor, ax: Axes | None = None, title: str | None = None) -> Axes:
    """An image, dark wherever a patch does not hold its numbers.  image: (C, H, W), mask: (C, H, W), 1 where it does"""
    ax = style.hide_axes(style.new_axes(ax, 4, 3), title)
    lit = image * (0.2 + 0.8 * mask)
    ax.imshow(lit.detach().permute(1, 2, 0).cpu().clamp(0, 1))
    return ax


def draw_costs(
    sides: Sequence[int],
    costs: Mapping[str, tuple[Sequence[float], str, str, str]],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Lines over the patch side, both axes logarithmic, each with its name at its end.

    costs: {name: (values, color, line style, "bottom", "center" or "top": where the name stands)}
    """
    ax = style.style_axes(style.new_axes(ax), title, "patch side P (pixels)", "billion multiply-adds")
    words = {"textcoords": "offset points", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    for name, (values, color, dashes, side) in costs.items():
        ax.loglog(sides, values, dashes, color=color, marker="o", linewidth=2)
        ax.annotate(name, (sides[-1], values[-1]), (8, 0), va=side, **words)
    ax.set_xticks(sides)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_xaxis()
    return ax
