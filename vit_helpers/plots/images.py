"""Images and grids of images, their patches, attention over an image, bars and color bars."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import PowerNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style


def draw_image(image: Tensor, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw one image, gray or color.  image: (C, H, W), from 0 to 1."""
    ax = style.hide_axes(style.new_axes(ax, 4, 4), title)
    gray = image.shape[0] == 1
    ax.imshow(
        image.detach().permute(1, 2, 0).cpu().clamp(0, 1),
        cmap="gray" if gray else None,
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    return ax


def draw_image_grid(
    images: Sequence[Tensor] | Tensor,
    titles: Sequence[str] | None = None,
    columns: int = 8,
    numbered: bool = False,
) -> Figure:
    """Draw many images side by side on a new figure.

    images  : (n, C, H, W), from 0 to 1;  titles: n texts
    numbered: write numbers at rows and columns, from 0
    """
    if titles and len(titles) != len(images):
        raise ValueError(f"{len(titles)} titles do not fit {len(images)} images")
    rows = -(-len(images) // columns)
    side = 9 / columns
    above = 0.15 + 0.2 * max(len(title.splitlines()) for title in titles) if titles else 0.05
    fig, axes = style.new_figure(9, rows * (side + above), nrows=rows, ncols=columns, squeeze=False)
    for i, ax in enumerate(axes.flat):
        style.hide_axes(ax)
        if i < len(images):
            draw_image(images[i], ax)
            ax.set_title(titles[i] if titles else "", fontsize=style.TEXT_SIZE, color=style.TEXT)
    if numbered:
        options = {"fontsize": style.TEXT_SIZE, "color": style.TEXT}
        for col, ax in enumerate(axes[0]):
            ax.set_title(f"column {col}", **options)
        for row, ax in enumerate(axes[:, 0]):
            ax.text(
                -0.1, 0.5, f"row {row}", ha="right", va="center", transform=ax.transAxes, **options
            )
    return fig


def name_row(ax: Axes, name: str, gap: float, **options: Any) -> None:
    """Write the name of a row of panels to the left of its first one.

    gap: between them, as a fraction of the panel's width;  options: of the text
    """
    where = {"transform": ax.transAxes, "ha": "right", "va": "center"}
    ax.text(-gap, 0.5, name, fontsize=style.TEXT_SIZE, **where | options)


def middle_square(photo: Tensor) -> Tensor:
    """The largest square in the middle of a photo: (C, H, W) -> (C, S, S)"""
    H, W = photo.shape[1:]
    side = min(H, W)
    top, left = (H - side) // 2, (W - side) // 2
    return photo[:, top : top + side, left : left + side]


def mark_wrong(fig: Figure, wrong: Sequence[bool]) -> None:
    """Mark each misclassified image of a grid by a cross before its title, and by a thick frame."""
    for ax, is_wrong in zip(fig.axes, wrong, strict=False):
        if is_wrong:
            first, *rest = ax.get_title().split("\n")
            ax.set_title(
                "\n".join([f"× {first}", *rest]),
                fontsize=style.TEXT_SIZE + 1,
                color=style.SERIES[2],
                weight="bold",
            )
            draw_box(
                ax,
                (0, 0, 1, 1),
                style.SERIES[2],
                linewidth=4,
                transform=ax.transAxes,
                clip_on=False,
            )


def draw_grid(ax: Axes, image_size: tuple[int, int], patch_size: int, color: str = "white") -> Axes:
    """Draw thin lines between the patches of an image.  image_size: (H, W) in pixels."""
    H, W = image_size
    for y in range(patch_size, H, patch_size):
        ax.axhline(y - 0.5, color=color, linewidth=1)
    for x in range(patch_size, W, patch_size):
        ax.axvline(x - 0.5, color=color, linewidth=1)
    return ax


def draw_over(
    image: Tensor,
    heat: Tensor,
    ax: Axes | None = None,
    title: str | None = None,
    top: float | None = None,
) -> tuple[Axes, AxesImage]:
    """Draw a map of magnitudes as a veil over an image in light gray.

    The opacity grows with the square root of the number, so that small ones can be seen beside
    large ones.

    image  : (C, H, W), from 0 to 1;  heat: (rows, cols), a number for each patch
    top    : the number drawn darkest
    returns: the axes, and what was drawn, for `color_bar`
    """
    H, W = image.shape[1:]
    extent = (-0.5, W - 0.5, H - 0.5, -0.5)
    ax = draw_image(0.5 + image.mean(dim=0, keepdim=True) / 2, ax, title)
    heat = heat.detach().cpu().float()
    scale = PowerNorm(0.5, 0, float(heat.max()) if top is None else top)
    return ax, ax.imshow(heat, cmap=style.VEIL, norm=scale, extent=extent, interpolation="nearest")


def draw_squares(
    image: Tensor,
    weights: Tensor,
    grid: tuple[int, int],
    ax: Axes | None = None,
    title: str | None = None,
    top: float = 1,
    alpha: float = 1,
) -> Axes:
    """Draw the attention weights of one query as squares on the patches of an image in gray.

    The area of a square is the weight.

    image: (C, H, W), from 0 to 1;  weights: (N,) of the patches;  grid: rows and columns of patches
    top  : the weight whose square fills its patch; larger ones are drawn no larger, as
           `square_key` says
    alpha: opacity of the squares; if the image shows through, small squares have no edge, which
           would hide them
    """
    ax = draw_image(0.5 + image.mean(dim=0, keepdim=True) / 2, ax, title)
    height, width = (size / count for size, count in zip(image.shape[1:], grid, strict=True))
    for i, weight in enumerate(weights.detach().flatten().tolist()):
        row, col = divmod(i, grid[1])
        side = min(max(weight, 0) / top, 1) ** 0.5
        corner = ((col + 0.5 - side / 2) * width - 0.5, (row + 0.5 - side / 2) * height - 0.5)
        edge = 0 if alpha < 1 and side < 0.35 else 0.8
        options = {
            "facecolor": to_rgba(style.SERIES[2], alpha),
            "edgecolor": "white",
            "linewidth": edge,
        }
        ax.add_patch(Rectangle(corner, side * width, side * height, **options))
    return ax


def square_key(fig: Figure, top: float = 1) -> None:
    """Explain below a figure what the areas of `draw_squares` mean."""
    full = f"{top:g} or more" if top < 1 else f"{top:g}"
    text = f"area of a square: attention weight (a square that fills its patch: {full})"
    fig.supxlabel(text, fontsize=style.TEXT_SIZE)


def draw_bars(
    values: Sequence[float] | Tensor,
    labels: Sequence[str],
    ax: Axes | None = None,
    title: str | None = None,
    chosen: int | None = None,
) -> Axes:
    """Draw a horizontal bar for each value from 0 to 1.

    chosen: the number of the bar that is darker and carries its value
    """
    ax = style.new_axes(ax, 4, 4)
    values = torch.as_tensor(values).tolist()
    colors = [style.SERIES[0] if i == chosen else style.LINE for i in range(len(values))]
    ax.barh(range(len(values)), values, color=colors)
    if chosen is not None:
        options = {"va": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
        ax.text(values[chosen] + 0.03, chosen, f"{values[chosen]:.2f}", **options)
    ax.set_yticks(range(len(values)), labels)
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    return style.style_axes(ax, title, "probability")


def draw_box(
    ax: Axes, box: tuple[float, float, float, float], color: str, **style: Any
) -> Rectangle:
    """Draw a rectangle without filling.

    box: (left, bottom, width, height) in the axes' data units
    """
    left, bottom, width, height = box
    return ax.add_patch(
        Rectangle((left, bottom), width, height, fill=False, edgecolor=color, **style)
    )


def color_bar(
    drawn: ScalarMappable,
    axes: Any,
    label: str,
    extend: Any = "neither",
    shrink: float = 0.8,
    location: Any = "right",
) -> Colorbar:
    """Draw a scale beside the axes that names what the colors mean.

    extend  : "min" or "max" where values run on beyond it
    shrink  : its length, as a fraction of the axes' height or width
    location: "right", "left" or "bottom"
    """
    fig = np.ravel(axes)[0].figure
    bar = fig.colorbar(drawn, ax=axes, shrink=shrink, extend=extend, location=location)
    bar.set_label(label, fontsize=style.TEXT_SIZE, color=style.TEXT)
    bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT)
    return bar
