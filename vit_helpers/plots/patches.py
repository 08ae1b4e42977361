"""Pictures of patches: a row of them, the numbers that one of them holds, and what smaller ones cost."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_box, draw_grid, draw_image

WORDS = {"fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}


def draw_row(
    patches: Tensor,
    channels: int,
    ax: Axes | None = None,
    title: str | None = None,
    gap: int = 2,
    first: int | None = None,
    framed: int | None = None,
) -> Axes:
    """Patches side by side in one line.

    patches: (n, C*P*P), from 0 to 1, channel by channel;  gap: white pixels between them
    first  : the number of the first one, if numbers are to be written below; framed: the number of one to frame
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 1), title)
    pictures = patches.detach().cpu().reshape(len(patches), channels, -1)
    P = round(pictures.shape[2] ** 0.5)
    line = torch.ones(P, len(patches) * (P + gap) - gap, channels)
    for i, picture in enumerate(pictures):
        left = i * (P + gap)
        line[:, left : left + P] = picture.reshape(channels, P, P).permute(1, 2, 0)
        if first is not None:
            ax.text(left + P / 2 - 0.5, P + 1, str(first + i), ha="center", va="top", **WORDS)
        if first is not None and first + i == framed:
            draw_box(ax, (left - 0.5, -0.5, P, P), style.PATCH, linewidth=3, clip_on=False)
    ax.imshow(line.clamp(0, 1).squeeze(2), cmap="gray" if channels == 1 else None, vmin=0, vmax=1)
    return ax


def draw_numbered(image: Tensor, patch_size: int, ax: Axes | None = None, framed: int | None = None) -> Axes:
    """An image under the grid of its patches, each with its number; rows and columns of the grid are on the axes.

    image: (C, H, W), from 0 to 1;  framed: the number of the patch to frame
    """
    (H, W), P = image.shape[1:], patch_size
    rows, cols = H // P, W // P
    ax = draw_grid(draw_image(image, style.new_axes(ax, 5, 4)), (H, W), P)
    ax.set_axis_on()
    ax.set(xticks=[P * (c + 0.5) - 0.5 for c in range(cols)], yticks=[P * (r + 0.5) - 0.5 for r in range(rows)])
    ax.set(xticklabels=range(cols), yticklabels=range(rows))
    ax.tick_params(length=0)
    for n in range(rows * cols):
        x, y = (P * (i + 0.5) - 0.5 for i in (n % cols, n // cols))
        ax.text(
            x, y, str(n), ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, **WORDS
        )
        if n == framed:
            draw_box(ax, (x - P / 2, y - P / 2, P, P), style.PATCH, linewidth=3, zorder=3)
    return ax


def draw_statistics(values: Tensor, titles: Sequence[str], top: float) -> Figure:
    """What three filters measure on every patch: one brightness, from 0 to 1, and two differences on a common signed scale.

    values: (3, rows, cols); titles: 3 texts; top: the difference drawn darkest, in either direction
    """
    fig, axes = style.new_figure(9, 2.9, ncols=3)
    for ax, title in zip(axes, titles, strict=True):
        style.hide_axes(ax, title)
    color_bar(axes[0].imshow(values[0], cmap="gray", vmin=0, vmax=1), axes[0], "brightness")
    for ax, map in zip(axes[1:], values[1:], strict=True):
        drawn = ax.imshow(map, cmap=style.SIGNED, vmin=-top, vmax=top)
    color_bar(drawn, list(axes[1:]), "difference", extend="both")
    return fig


def draw_holding(image: Tensor, mask: Tensor, ax: Axes | None = None, title: str | None = None) -> Axes:
    """The numbers of an image that a patch holds, and a dull gray elsewhere.  image: (C, H, W), mask: (C, H, W), 1 or 0"""
    gray = 0.35 + 0.4 * image.mean(dim=0, keepdim=True)
    return draw_image(torch.where(mask.any(dim=0), image * mask, gray), style.new_axes(ax, 4, 3), title)


def draw_costs(
    sides: Sequence[int],
    costs: Mapping[str, tuple[Sequence[float], str, str, str]],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Lines over the patch size, both axes logarithmic, each with its name at its end.

    costs: {name: (values, color, line style, "bottom", "center" or "top": where the name is)}
    """
    ax = style.style_axes(style.new_axes(ax), title, "patch size P (pixels)", "billion multiply-adds")
    words = {"textcoords": "offset points", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    for name, (values, color, dashes, side) in costs.items():
        ax.loglog(sides, values, dashes, color=color, marker="o", linewidth=2)
        ax.annotate(name, (sides[-1], values[-1]), (8, 0), va=side, **words)
    ax.set_xticks(sides)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_xaxis()
    return ax
