"""Pictures of positions: how alike every place's vector is to all others."""

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor

from vit_helpers.plots import style


def draw_similarity(
    similar: Tensor, grid: tuple[int, int], ax: Axes | None = None, title: str | None = None, low: float = -0.6
) -> tuple[Axes, AxesImage]:
    """A grid of small maps, one for each place of the grid: how similar its vector is to those of all places.

    similar: (N, N), at most 1;  grid: rows and columns of places;  low: what is drawn darkest
    returns: the axes, and what was drawn, for `color_bar`
    """
    ax = style.hide_axes(style.new_axes(ax, 5, 4), title)
    rows, cols = grid
    canvas = torch.full((rows * (rows + 1) - 1, cols * (cols + 1) - 1), float("nan"))  # white lines between the maps
    for n, one in enumerate(similar.detach().cpu()):
        r, c = divmod(n, cols)
        canvas[r * (rows + 1) :, c * (cols + 1) :][:rows, :cols] = one.reshape(grid)
    return ax, ax.imshow(canvas, cmap=style.VALUES, vmin=low, vmax=1, interpolation="nearest")


def draw_halo(halo: pd.DataFrame, ax: Axes | None = None, title: str | None = None) -> Axes:
    """A column for each way to train: a mark for each seed, for positions beside each other and for those far apart.

    halo: rows of a training, with the columns augmentation, beside and far
    """
    ax, ways = style.new_axes(ax, 9, 3.2), list(halo["augmentation"].unique())
    for kind, marker, color, aside in (("beside", "o", style.POSITION, -0.1), ("far", "^", style.KEY, 0.1)):
        ax.plot([ways.index(way) + aside for way in halo["augmentation"]], halo[kind], marker, color=color, label=kind)
    ax.axhline(0, color=style.LINE, linewidth=1)
    ax.set_xticks(range(len(ways)), ways)
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    return style.style_axes(ax, title, None, "mean cosine")
