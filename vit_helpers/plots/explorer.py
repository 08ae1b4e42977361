"""What the widgets of `vit_helpers.live` show first: a drawing's prediction, an attention map."""

from collections.abc import Callable, Sequence
from math import cos, radians, sin

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_box, draw_grid, draw_image, square_key
from vit_helpers.plots.inspection import TOP, draw_map, frame_query

Query = tuple[int, int] | None  # (row, column) of a patch, or None for the class token
Maps = Callable[[int, Query], Tensor]  # of a block and a query: (B, h, rows, cols)
LARGE = 2.1  # how many times as wide as the others the chosen map is drawn
ARCS = (
    (0.46, 0.31, 0.16, -150, 75),
    (0.46, 0.66, 0.19, -75, 155),
)  # of a drawn 3: center x, y, radius, angles in degrees
A_THREE = [
    [round(x + radius * cos(radians(angle)), 3), round(y + radius * sin(radians(angle)), 3)]
    for x, y, radius, first, last in ARCS
    for angle in range(first, last, 15)
]


def draw_choice(
    images: Tensor,
    maps: Maps,
    patch_size: int,
    image: int = 0,
    block: int = 0,
    head: int = 0,
    query: Query = None,
) -> Figure:
    """Draw one head of a block for an image, large, beside all images and all heads of the block.

    The chosen image and the chosen head are framed.

    images: (B, C, H, W), from 0 to 1
    maps  : of a block and a query: what that token attends to, (B, h, rows, cols)
    query : (row, column) of the query's patch; None for the class token
    block, head, image: numbers that count from 0
    """
    each = maps(block, query)[image]  # (h, rows, cols)
    count = max(len(images), len(each))
    tile = 9 / (LARGE + count)  # inches, with the gap beside it
    fig, axes = style.new_figure(
        9, 2 * tile + 1.25, nrows=2, ncols=1 + count, width_ratios=[LARGE] + [1] * count
    )
    spec = axes[0, 0].get_gridspec()
    for ax in axes[:, 0]:
        ax.remove()
    large = fig.add_subplot(spec[:, 0])
    title = name_choice(block, head, query).replace(", query", "\nquery")
    draw_map(images[image], each[head], large, title, TOP)
    frame_query(large, query, patch_size)
    for i, ax in enumerate(axes[0, 1:]):
        style.hide_axes(ax)
        if i < len(images):
            draw_image(images[i], ax, "images" if i == 0 else None)
            frame_chosen(ax, i == image)
    for i, ax in enumerate(axes[1, 1:]):
        style.hide_axes(ax)
        if i < len(each):
            draw_map(images[image], each[i], ax, f"head {i + 1}", TOP)
            frame_chosen(ax, i == head)
    square_key(fig, TOP)
    return fig


def frame_chosen(ax: Axes, chosen: bool) -> None:
    """Frame the axes of what is chosen."""
    if chosen:
        draw_box(ax, (0, 0, 1, 1), style.TEXT, linewidth=3, transform=ax.transAxes, clip_on=False)


def name_choice(block: int, head: int, query: Query) -> str:
    """Say which map it is, with numbers that count from 1 for block and head."""
    who = "class token" if query is None else f"patch {query}"
    return f"Block {block + 1}, head {head + 1}, query: {who}"


def tell_choice(
    maps: Maps, image: int = 0, block: int = 0, head: int = 0, query: Query = None
) -> str:
    """Write the alt text of that picture, with the largest weight and its place, counted from 1."""
    weights = maps(block, query)[image, head]
    row, col = divmod(weights.argmax().item(), weights.shape[1])
    position = f"row {row + 1}, column {col + 1} of {weights.shape[0]} x {weights.shape[1]}"
    name = name_choice(block, head, query)
    return f"{name}: the largest weight, {weights.max():.2f}, is on the patch in {position}."


def draw_reading(
    ink: Tensor, pixels: Tensor, patch_size: int, probabilities: Tensor, names: Sequence[str]
) -> Figure:
    """Draw a drawing, the pixels that the model gets, cut into patches, and a bar for each class.

    ink          : (H, W) and pixels: (S, S), from 0 for paper to 1 for ink
    probabilities: (K,);  names: of the K classes
    """
    fig, (left, middle, right) = style.new_figure(9, 3.1, ncols=3)
    draw_image(1 - ink[None], left, "a drawing")
    size = len(pixels)
    draw_grid(
        draw_image(1 - pixels[None], middle, f"its {size} x {size} pixels"),
        (size, size),
        patch_size,
        style.PATCH,
    )
    for ax in (left, middle):
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=style.LINE)
    bars = right.barh(range(len(names)), probabilities, color=style.SERIES[0])
    right.bar_label(
        bars, [f"{p:.2f}" for p in probabilities.tolist()], padding=3, fontsize=style.TEXT_SIZE - 1
    )
    style.style_axes(right, "probabilities")
    right.set(yticks=range(len(names)), yticklabels=names, xlim=(0, 1.2), xticks=[])
    right.spines.bottom.set_visible(False)
    right.invert_yaxis()
    return fig


def draw_stroke(points: list[list[float]], side: int = 280, pen: int = 22) -> Tensor:
    """Draw a line through points, from 0 to 1, with a round pen of this width in pixels.

    returns: (side, side), from 0 for paper to 1 for ink
    """
    ends = side * torch.tensor(points)
    start, along = ends[:-1], ends.diff(dim=0)
    pixels = torch.cartesian_prod(*2 * [torch.arange(side) + 0.5]).flip(
        1
    )  # (side * side, 2), x first
    part = ((pixels[:, None] - start) * along).sum(-1) / along.square().sum(
        -1
    )  # of the way to each next point
    nearest = start + part.clamp(0, 1)[..., None] * along
    distance = (pixels[:, None] - nearest).norm(dim=-1).amin(dim=1)
    return (pen / 2 + 0.5 - distance).clamp(0, 1).reshape(side, side)
