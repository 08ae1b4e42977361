"""The animation of notebook 04: the class token on the residual stream, and what is added to it.

All numbers are the model's. The token moves along the stream; at every branch a copy is read, and
what the branch adds to the token stays above it. Before the first block and after the last one
there are the probabilities that the head reads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.animation import (
    LOOK,
    Frames,
    as_image,
    between,
    draw_pixels,
    eased,
    in_time,
    palette_of,
)
from vit_helpers.plots.canvas import arrow, fill_cell, write
from vit_helpers.plots.images import draw_bars, draw_box

WIDTH, HEIGHT = 880, 400  # of a frame, in pixels, like all positions
IMAGE = (24, 62, 108, 108)  # left, top, width and height
BARS = ((40, 212, 92, 150), (768, 212, 92, 150))  # of the head, before and after
LINE, FIRST, LAST = 288, 168, 738  # height of the stream; from where to where
TOKEN, ADDED = (20, 128), (20, 84)  # width and height of columns: the token, and what is added
TOP, BOX = 118, (50, 30)  # of what was added; the boxes of the branches are above it
BRANCHES = {"attn": style.SERIES[0], "MLP": style.SERIES[1]}


class Followed(NamedTuple):
    """The class token on its way through L blocks of a ViT: all numbers of the animation."""

    image: Tensor  # (C, H, W), from 0 to 1
    tokens: Tensor  # (2 L + 1, D): before the first block, and after every branch
    before: Tensor  # (K,), the probabilities that the head reads before the first block
    after: Tensor  # (K,), and after the last
    class_names: tuple[str, ...]

    @property
    def added(self) -> Tensor:
        """(2 L, D): what the branches add, in turn attention and MLP."""
        return self.tokens.diff(dim=0)


@torch.no_grad()
def read_stream(pretrained: Any, image: Tensor) -> Followed:
    """Follow the class token of an image (C, H, W) through a model.

    pretrained: a model with a class token, its preprocessing and its classes' names
    """
    model, preprocess, names = pretrained
    pixels = preprocess.frame(image)
    x = model.embed(preprocess.normalize(pixels)[None])
    stages = [x]
    for block in model.blocks:
        half = x + block.attn(block.norm1(x))
        x = block(x)
        stages += [half, x]
    before, after = (model.head(model.norm(z[:, 0])).softmax(dim=-1)[0] for z in (stages[0], x))
    return Followed(pixels, torch.stack([z[0, 0] for z in stages]), before, after, tuple(names))


def moments(stream: Followed) -> list[tuple[str, float, float]]:
    """List the ideas: a caption, seconds of movement, seconds of rest after it."""
    count, best = len(stream.added), int(stream.after.argmax())
    writes = ("attention adds what the tokens know", "the MLP adds what it makes of that")
    wrote = [
        (f"Block {1 + i // 2}: {writes[i % 2]}", 0.8, 1.2 if i < 2 else 0.4) for i in range(count)
    ]
    return [
        ("At first, the class token is the same for every image", 0, 1.8),
        *wrote,
        (
            f"All that was added has stayed, and the head reads a {stream.class_names[best]}",
            0.8,
            3.6,
        ),
    ]


def station(i: int, count: int) -> float:
    """Where on the stream branch i of all adds to the token."""
    return FIRST + 44 + (LAST - FIRST - 66) * i / count


def draw_column(
    ax: Axes, values: Tensor, scale: float, box: Sequence[float], color: str, width: int = 1
) -> None:
    """Draw numbers (D,) as a column, blue below 0, red above, in a frame.

    scale: the number that has the full color
    """
    shade = ((values / scale + 1) / 2).clamp(0, 1).numpy()
    colors = torch.from_numpy(matplotlib.colormaps[style.SIGNED](shade)[:, :3])
    draw_pixels(ax, colors.T[..., None], box, color, width)


def draw_branch(ax: Axes, stream: Followed, i: int, progress: float) -> None:
    """Draw branch i: its box, and from it what it adds, when it has read the token.

    progress: from 0 to 1, through its moment
    """
    count = len(stream.added)
    x, (name, color) = station(i, count), list(BRANCHES.items())[i % 2]
    on = progress > 0
    tone = color if on else style.MUTED
    fill_cell(ax, (x - BOX[0] / 2, TOP - 44), BOX, tone)
    write(ax, x, TOP - 44 + BOX[1] / 2, name, color=style.ink_on(tone), fontsize=style.TEXT_SIZE)
    if 0.25 < progress <= 0.75:  # a copy is read
        arrow(ax, (x, LINE - TOKEN[1] / 2), (x, TOP - 10), color=color, zorder=1)
    if progress > 0.45:
        grown = eased((progress - 0.45) / 0.3)
        box = (x - ADDED[0] / 2, TOP, ADDED[0], max(1.0, ADDED[1] * grown))
        scale = float(stream.tokens.abs().quantile(0.98))
        draw_column(ax, stream.added[i], scale, box, color)
    if progress > 0.75:
        ax.add_patch(Circle((x, LINE - TOKEN[1] / 2 - 10), 7, facecolor="white", edgecolor=color))
        write(ax, x, LINE - TOKEN[1] / 2 - 9.5, "+", fontsize=style.TEXT_SIZE, zorder=5)


def draw_on_stream(ax: Axes, stream: Followed, done: Sequence[float]) -> None:
    """Draw the class token where it is, with the numbers that it has there.

    done: from 0 to 1, how far every branch is, and at last the way to the head
    """
    count = len(stream.added)
    ends = [(FIRST,), *((station(i, count),) for i in range(count)), (LAST - 26,)]
    x = float(between(ends, sum(min(1.0, part / 0.4) for part in done))[0])
    token = between(list(stream.tokens), sum(max(0.0, 4 * part - 3) for part in done[:-1]))
    scale = float(stream.tokens.abs().quantile(0.98))
    box = (x - TOKEN[0] / 2, LINE - TOKEN[1] / 2, *TOKEN)
    draw_column(ax, token, scale, box, style.CLASS_TOKEN, 2)


def draw_reading(figure: Figure, stream: Followed, after: bool, shown: float) -> None:
    """Draw ten bars: what the head reads before the blocks, or after them."""
    left, top, width, height = BARS[after]
    values = stream.after if after else stream.before
    place = (left / WIDTH, 1 - (top + height) / HEIGHT, width / WIDTH, height / HEIGHT)
    ax = figure.add_axes(place, facecolor="none")
    draw_bars(eased(shown) * values, stream.class_names, ax, chosen=int(values.argmax()))
    ax.set(xlim=(0, 1.5), xticks=(0, 1), xlabel="")
    ax.tick_params(labelsize=style.TEXT_SIZE - 2)
    ax.texts[0].set_visible(shown == 1)


def draw_moment(stream: Followed, number: int = -1, progress: float = 1.0) -> Figure:
    """Draw the frame at `progress` (from 0 to 1) through a moment; by default all is done."""
    captions = [caption for caption, _, _ in moments(stream)]
    number %= len(captions)
    done = [float(number > k) or progress * (number == k) for k in range(len(captions))]
    count, read = len(stream.added), done[-1]
    figure = Figure((WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
    with matplotlib.rc_context(LOOK):
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
        ax.set_axis_off()
        ax.text(24, 28, captions[number], va="center", fontsize=style.TEXT_SIZE + 4)
        left, top, wide, high = IMAGE
        digit = 1 - stream.image[0]
        place = {"extent": (left, left + wide, top + high, top), "aspect": "auto"}
        ax.imshow(digit, cmap="gray", vmin=0, vmax=1, interpolation="bicubic", **place)
        draw_box(ax, IMAGE, style.LINE)
        ax.plot([FIRST - 14, LAST], [LINE, LINE], color=style.LINE, linewidth=5, zorder=1)
        arrow(ax, (LAST - 4, LINE), (LAST + 14, LINE), color=style.LINE, mutation_scale=22)
        for i in range(count):
            draw_branch(ax, stream, i, done[1 + i])
        for i in range(0, count, 2):
            middle = (station(i, count) + station(i + 1, count)) / 2
            write(ax, middle, 376, f"block {1 + i // 2}", weight="bold")
        draw_on_stream(ax, stream, done[1:])
        write(ax, BARS[0][0] + 40, 196, "read before")
        draw_reading(figure, stream, False, 1.0)
        if read:
            write(ax, BARS[1][0] + 40, 196, "read after")
            draw_reading(figure, stream, True, max(0.0, 2 * read - 1))
    return figure


def draw_frame(stream: Followed, number: int, progress: float) -> Image.Image:
    """Draw what `draw_moment` draws, as an image of RGB pixels: WIDTH x HEIGHT."""
    return as_image(draw_moment(stream, number, progress))


def draw_frames(stream: Followed, step: float = 0.13) -> Frames:
    """Draw all frames of the animation, with their durations in milliseconds.

    step: seconds between frames while things move
    """
    pace = [(moving, rest) for _, moving, rest in moments(stream)]
    return in_time(pace, step, lambda number, progress: draw_frame(stream, number, progress))


def palette() -> Image.Image:
    """Make the few colors of all frames: those of roles, of signed numbers, and grays."""
    roles = style.CLASS_TOKEN, *BRANCHES.values()
    return palette_of(roles, grays=24, signed=17)
