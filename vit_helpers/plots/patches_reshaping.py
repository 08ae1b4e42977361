"""Notebook 01: reshape, permute and reshape as numbered cells, side by side or moving.

Every stage is drawn in reading order, so cell k of it is number k of the tensor. Of four axes, the
first two are blocks and lines, and the last two are groups and cells. A reshape therefore opens or
closes gaps, and only a permute moves cells.
"""

from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.animation import LOOK, Frames, between, in_time
from vit_helpers.plots.canvas import arrow
from vit_helpers.plots.figure import Picture

GAP = 0.45  # between blocks and between groups, in cells
WIDTH, HEIGHT = 640, 372  # of a frame of the animation, in pixels
CELL, TOP, LEFT, RIGHT = (
    42,
    92,
    30,
    410,
)  # its cells: their side, and where they start before and after the permute
WIDE, TALL, LETTER = (
    9.0,
    8.0,
    0.092,
)  # inches: the width of the figure, the most for its cells, about that of a letter
SIDES = (
    0.34,
    0.32,
    0.3,
    0.28,
    0.26,
    0.24,
)  # of a cell, from the largest to the smallest that two digits fit into
SHADES = (0.18, 0.42)  # of patches, in turn; the one that is followed has the full color
PAUSE = 1.5  # after the followed patch has arrived; 1 is the time for which one patch moves
Size = tuple[int, int]


class TensorView(NamedTuple):
    """One tensor on the way from an image to its patches."""

    step: str  # what made it
    axes: str  # the names of its axes
    shape: tuple[int, ...]
    blocks: tuple[
        int, int, int, int
    ]  # how it is drawn: blocks, lines in each; groups, cells in each
    numbers: Tensor  # (H*W,), the pixels' numbers in reading order

    def index_of(self, pixel: int) -> list[int]:
        """Find where a pixel is in the tensor."""
        return [int(i) for i in np.unravel_index(self.numbers.tolist().index(pixel), self.shape)]

    def places(self) -> Tensor:
        """(H*W, 2): of each pixel the left and the top edge of its cell, in cells."""
        a, b, c, d = self.blocks
        block, line, group, cell = (
            axis.flatten()
            for axis in torch.meshgrid(*map(torch.arange, (a, b, c, d)), indexing="ij")
        )
        drawn = torch.stack([group * (d + GAP) + cell, block * (b + GAP) + line], dim=1)
        return drawn[self.numbers.argsort()]

    def extent(self) -> tuple[float, float]:
        """Width and height of what is drawn, in cells."""
        a, b, c, d = self.blocks
        return c * d + (c - 1) * GAP, a * b + (a - 1) * GAP


def stages(size: Size, patch_size: int) -> list[TensorView]:
    """Make the four tensors of `patchify` for an image with one channel.

    >>> [stage.shape for stage in stages((4, 6), 2)]
    [(4, 6), (2, 2, 3, 2), (2, 3, 2, 2), (6, 4)]
    """
    (H, W), P = size, patch_size
    if P < 1 or H % P or W % P:
        raise ValueError(f"an image of {H} x {W} pixels does not divide into patches of side {P}")
    rows, cols = H // P, W // P
    image = torch.arange(H * W)
    moved = image.reshape(rows, P, cols, P).permute(0, 2, 1, 3).flatten()
    split, cut, N = (rows, P, cols, P), (rows, cols, P, P), rows * cols
    return [
        TensorView("image", "(H, W)", (H, W), (1, H, 1, W), image),
        TensorView("reshape", "(rows, P, cols, P)", split, split, image),
        TensorView("permute", "(rows, cols, P, P)", cut, cut, moved),
        TensorView("reshape", "(N, P·P)", (N, P * P), (1, N, 1, P * P), moved),
    ]


def patch_of(pixel: int, size: Size, patch_size: int) -> int:
    """Find the number of the patch that holds a pixel

    >>> patch_of(15, (4, 6), 2)
    4
    """
    y, x = divmod(pixel, size[1])
    return y // patch_size * (size[1] // patch_size) + x // patch_size


def shaded(depth: float) -> tuple[float, ...]:
    """Mix the color of patches mixed with white."""
    return tuple(1 - depth * (1 - part) for part in to_rgb(style.PATCH))


def draw_cells(
    ax: Axes,
    places: Tensor,
    side: float,
    pixel: int,
    size: Size,
    patch_size: int,
    corner: tuple[float, float] = (0, 0),
    font: float = style.TEXT_SIZE,
    front: int | None = None,
) -> None:
    """Draw numbered pixels in the shade of their patch; one is framed, and its patch is darkest.

    places: (H*W, 2), in cells; side, corner: of a cell and of the picture, in the units of ax
    font  : the size of the numbers, in points
    front : the patch drawn on top of all others, if not that of the pixel
    """
    patches, columns = (
        [patch_of(k, size, patch_size) for k in range(len(places))],
        size[1] // patch_size,
    )
    ranks = [
        (patches[k] == front, patches[k] == patches[pixel], k == pixel) for k in range(len(places))
    ]
    for order, k in enumerate(sorted(range(len(places)), key=ranks.__getitem__)):
        row, col = divmod(patches[k], columns)
        ground = shaded(1 if patches[k] == patches[pixel] else SHADES[(row + col) % 2])
        x, y = (corner[i] + side * float(places[k, i]) for i in (0, 1))
        edge = (
            {"edgecolor": style.TEXT, "linewidth": 2.5}
            if k == pixel
            else {"edgecolor": "white", "linewidth": 1}
        )
        ax.add_patch(Rectangle((x, y), side, side, facecolor=ground, zorder=2 + order, **edge))
        options = {"ha": "center", "va": "center", "fontsize": font, "color": style.ink_on(ground)}
        ax.text(x + side / 2, y + side / 2, str(k), zorder=2.5 + order, **options)


def draw_reshaping(size: Size = (4, 6), patch_size: int = 2, pixel: int = 15) -> Picture:
    """Draw the four stages of `patchify`, with the shape and the place of one pixel below each.

    size  : (H, W) of an image with one channel;  pixel: the number of the pixel to follow
    raises: ValueError if P does not divide both sides, there is no such pixel, or the cells would
            be too small to read
    """
    views = stages(size, patch_size)
    if not 0 <= pixel < len(views[0].numbers):
        raise ValueError(
            f"an image of {size[0]} x {size[1]} has pixels 0 to {len(views[0].numbers) - 1}, "
            f"got {pixel}"
        )
    below = [
        (stage.axes, str(stage.shape), f"{pixel} at {stage.index_of(pixel)}") for stage in views
    ]
    least = [
        LETTER * max(map(len, texts)) for texts in below
    ]  # inches that the texts of a stage need
    room = WIDE - 0.2 - 3 * 0.35
    lines = max(stage.extent()[1] for stage in views)
    fits = [
        side
        for side in SIDES
        if sum(map(max, least, widths(views, side))) <= room and side * lines <= TALL
    ]
    if not fits:
        raise ValueError(
            f"{size[0]} x {size[1]} pixels with P = {patch_size} need cells too small to read: "
            "take fewer pixels"
        )
    side, tall = fits[0], fits[0] * lines
    font = style.TEXT_SIZE - (
        1 if len(views[0].numbers) > 10 else 0
    )  # two digits need more of a cell
    fig = Figure((WIDE, tall + 2), facecolor="white")
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, WIDE), ylim=(tall + 2, 0))
    ax.set_axis_off()
    title = f"Only the permute changes the order (follow pixel {pixel})"
    ax.text(0.1, 0.2, title, va="center", **words(1))
    wide = list(map(max, least, widths(views, side)))
    space, left, last = (WIDE - 0.2 - sum(wide)) / 3, 0.1, 0.0
    for stage, texts, width, room in zip(views, below, widths(views, side), wide, strict=True):
        middle = left + room / 2
        draw_cells(
            ax, stage.places(), side, pixel, size, patch_size, (middle - width / 2, 0.85), font
        )
        for y, text in zip(
            (0.62, *(1.15 + tall + 0.28 * i for i in range(3))), (stage.step, *texts), strict=True
        ):
            ax.text(
                middle,
                y,
                text,
                ha="center",
                va="center",
                weight="bold" if text == stage.step else "normal",
                **words(),
            )
        if last:
            y = 0.85 + side * views[0].extent()[1] / 2
            arrow(ax, (last + 0.08, y), (middle - width / 2 - 0.08, y))
        left, last = left + room + space, middle + width / 2
    indices = "; ".join(str(stage.index_of(pixel)) for stage in views)
    return Picture(
        fig,
        "An image as a table of numbers, after the split, after the permute and after the merge.",
        f"Tables of the numbers 0 to {len(views[0].numbers) - 1}: the image of {size[0]} x "
        f"{size[1]}; split by gaps into patches; permuted, so that the lines of a patch are side "
        f"by side; merged. Pixel {pixel} is at {indices}.",
    )


def widths(views: list[TensorView], side: float) -> list[float]:
    """Return the width of each stage in inches, for cells of this side."""
    return [side * stage.extent()[0] for stage in views]


def words(larger: int = 0) -> dict[str, float | str]:
    """Return the options of a text, in points larger than usual."""
    return {"fontsize": style.TEXT_SIZE + larger, "color": style.TEXT}


CAPTIONS = (
    "An image of {H} x {W} pixels, numbered in reading order",
    "reshape: both sides are split, the order stays the same",
    "permute: the numbers of a patch become neighbors",
    "reshape: one line for each patch",
)


def draw_moving(
    number: int, progress: float = 1.0, size: Size = (4, 6), patch_size: int = 2, pixel: int = 15
) -> Image.Image:
    """Draw a frame of the animation, `progress` (from 0 to 1) on the way to a stage.

    A reshape happens where the cells are. In the permute, the patches fly to the right one after
    another. The caption names the step from its first frame on; below it are both shapes while
    cells move, and then the new tensor.
    """
    views = stages(size, patch_size)
    figure = Figure((WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
    with matplotlib.rc_context(LOOK):
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
        ax.set_axis_off()
        stage = views[number]
        ax.text(LEFT, 26, CAPTIONS[number].format(H=size[0], W=size[1]), va="center", **words(2))
        shape = f"{stage.axes} = {stage.shape},  pixel {pixel} at {stage.index_of(pixel)}"
        if number and progress < 1:
            shape = f"{views[number - 1].shape} → {stage.shape}"
        ax.text(LEFT, 58, shape, va="center", **words(1))
        if number > 1:
            draw_traces(ax, views[1])
        places = CELL * moving_places(views, number, progress, size, patch_size, pixel)
        flying = next(
            (
                patch
                for patch, step in flights(views, progress, size, patch_size, pixel)
                if 0 < step < 1
            ),
            None,
        )
        front = flying if number == 2 else None
        draw_cells(
            ax, places.round() / CELL, CELL, pixel, size, patch_size, front=front
        )  # whole pixels: a smaller file
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def draw_traces(ax: Axes, stage: TensorView) -> None:
    """Draw where the cells were before they moved: outlines with pale numbers."""
    options = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE, "color": style.LINE}
    for k, (x, y) in enumerate((CELL * stage.places() + torch.tensor([LEFT, TOP])).tolist()):
        ax.add_patch(Rectangle((x, y), CELL, CELL, facecolor="none", edgecolor=style.MUTED))
        ax.text(x + CELL / 2, y + CELL / 2, str(k), zorder=1.5, **options)


def moving_places(
    views: list[TensorView],
    number: int,
    progress: float,
    size: Size,
    patch_size: int,
    pixel: int = 15,
) -> Tensor:
    """(H*W, 2): where the cells of a frame are, in cells from its corner."""
    ends = [
        stage.places() + torch.tensor([LEFT if i < 2 else RIGHT, TOP]) / CELL
        for i, stage in enumerate(views)
    ]
    before, after = ends[max(0, number - 1)], ends[number]
    if number != 2:
        return between([before, after], progress)
    steps = dict(flights(views, progress, size, patch_size, pixel))
    moved = [
        between([a, b], steps[patch_of(k, size, patch_size)])
        for k, (a, b) in enumerate(zip(before, after, strict=True))
    ]
    return torch.stack(moved)


def flights(
    views: list[TensorView], progress: float, size: Size, patch_size: int, pixel: int
) -> list[tuple[int, float]]:
    """Compute how far each patch is in the permute, from 0 to 1, one after another.

    There is a pause after the patch of the pixel.
    """
    count, followed = views[-1].shape[0], patch_of(pixel, size, patch_size)
    time = progress * (count + PAUSE)
    return [
        (patch, min(max(time - patch - PAUSE * (patch > followed), 0.0), 1.0))
        for patch in range(count)
    ]


def draw_frames(step: float = 0.14) -> Frames:
    """Draw all frames of the animation with their duration in milliseconds.

    step: seconds between frames while things move
    """
    return in_time([(0, 2.0), (0.6, 1.8), (6.0, 1.6), (0.6, 3.5)], step, draw_moving)


def palette() -> Image.Image:
    """Make the few colors of all frames: text, shades of the patches, traces that they leave."""
    grounds = [(1.0, 1.0, 1.0), *(shaded(depth) for depth in (*SHADES, 1))]
    colors = [to_rgb(style.MUTED), to_rgb(style.TEXT), to_rgb(style.LINE)]
    colors += [tuple((1 - k / 4) * part for part in ground) for ground in grounds for k in range(5)]
    image = Image.new("P", (1, 1))
    image.putpalette([round(255 * part) for color in colors for part in color])
    return image
