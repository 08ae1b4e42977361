"""Pictures of positions: how alike every place's vector is to all others."""

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
