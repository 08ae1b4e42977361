"""The animation of the README, frame by frame: a ViT classifies an image.

All numbers are given and drawn as they are; between two moments, positions and widths change
gradually.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_bars, draw_box

WIDTH, HEIGHT = (
    880,
    440,
)  # of a frame, in pixels, like all positions; boxes are left, top, width and height
LARGE, SMALL = (308, 62, 264, 264), (24, 62, 216, 216)  # the image, at first and then
EDGE, ROW, COLUMN, TALL = (
    24,
    338,
    360,
    64,
)  # left of the row; top of its patches; top and height of its tokens
STAGE = (430, 150, 24, 90)  # the class token when it attends
GAP = 5  # between the patches of the cut image
BARS = (650, 62, 180, 200)
DIM = 0.4  # brightness of a patch without attention, once the class token attends
KEY = 26  # height of what `add_key` writes below a frame
THICK = 40  # width of a line for a weight of 1
SIZE = style.TEXT_SIZE + 1  # of text, in points; captions are larger
LOOK = {
    "font.family": "DejaVu Sans",
    "font.size": SIZE,
    "text.color": style.TEXT,
    "axes.edgecolor": style.LINE,
}
Frames = list[tuple[Image.Image, int]]  # with their duration in milliseconds


class Reading(NamedTuple):
    """The forward pass of a ViT with L blocks on one image: all numbers of the animation."""

    image: Tensor  # (C, H, W), H = W, from 0 to 1
    patch_size: int
    tokens: list[
        Tensor
    ]  # L + 1 of (T, D), before the first block and after each; the class token is token 0
    weights: list[Tensor]  # L of (T,), the attention of the class token to each token
    fractions: list[float]  # L, the fraction of it inside the digit's bounding box
    probabilities: Tensor  # (K,)
    class_names: tuple[str, ...]


def read_pass(
    image: Tensor,
    patch_size: int,
    tokens: Sequence[Tensor],
    weights: Sequence[Tensor],
    box: Tensor,
    logits: Tensor,
    class_names: tuple[str, ...],
) -> Reading:
    """Collect what the animation shows of a forward pass with one image.

    tokens : before the first block and after each, L + 1 of (1, T, D)
    weights: L of (1, h, T, T);  logits: (1, K)
    box   : (4,), of the digit: x, y, width and height in pixels
    """
    (_, H, W), (x, y, width, height) = image.shape, box.tolist()
    rows = [
        block.detach().mean(dim=1)[0, 0] for block in weights
    ]  # of the class token, the mean over the heads
    maps = [
        row[1:].reshape(H // patch_size, W // patch_size) / patch_size**2 for row in rows
    ]  # per pixel
    pixels = [
        pixel_map.repeat_interleave(patch_size, 0).repeat_interleave(patch_size, 1)
        for pixel_map in maps
    ]
    fractions = [pixel_map[y : y + height, x : x + width].sum().item() for pixel_map in pixels]
    probabilities = logits.detach().softmax(dim=1)[0]
    return Reading(
        image,
        patch_size,
        [block[0] for block in tokens],
        rows,
        fractions,
        probabilities,
        class_names,
    )


def moments(reading: Reading) -> list[tuple[str, float, float]]:
    """List the ideas: question, patches, row, tokens, class token, each block, answer.

    returns: of each its caption, seconds of movement, seconds of rest after it
    """
    (T, D), best = reading.tokens[0].shape, int(reading.probabilities.argmax())
    return [
        ("Which digit is this, among fragments of others?", 0, 1.2),
        (f"Cut the image into {T - 1} patches", 0.4, 0.5),
        ("Arrange them as a sequence, like the words of a sentence", 1.3, 0.2),
        (f"Each becomes a token: {D} numbers for its content and position", 0.7, 0.8),
        ("A class token joins the sequence to collect the answer", 1.3, 0.2),
        *[
            ("In each block, the class token attends to all tokens", 0.4, 1.3)
            for _ in reading.weights
        ],
        (
            f"The model predicts a {reading.class_names[best]}, "
            f"with probability {reading.probabilities[best]:.2f}",
            0.4,
            2.6,
        ),
    ]


def draw_moment(reading: Reading, number: int = -1, progress: float = 1.0) -> Figure:
    """Draw the frame at `progress` (from 0 to 1) through a moment; by default all is done."""
    captions = [caption for caption, _, _ in moments(reading)]
    number %= len(captions)
    done = [float(number > k) or progress * (number == k) for k in range(1, len(captions))]
    (cut, row, made, joined), blocks, answered = done[:4], sum(done[4:-1]), done[-1]
    tokens = reading.tokens[
        int(blocks)
    ]  # those of a block are there when its attention has been shown
    weights = between([torch.zeros_like(reading.weights[0]), *reading.weights], blocks)
    figure = Figure((WIDTH / 100, HEIGHT / 100), dpi=100)
    with matplotlib.rc_context(LOOK):
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
        ax.set_axis_off()
        ax.text(EDGE, 28, captions[number], va="center", fontsize=SIZE + 3)
        bright = brightness(weights[1:], blocks)
        draw_patches(ax, reading.image, reading.patch_size, cut, row, bright)
        for i in range(1, len(tokens)):
            if (grown := eased(turn(made, i - 1, len(tokens) - 1))) > 0:
                draw_token(ax, tokens, i, (*slot(i, len(tokens)), TALL * grown), style.PATCH)
        if joined:  # the class token moves to the front of the row, and rises to attend
            left, *front = *slot(0, len(tokens)), TALL
            at = between([(left - 50, *front), (left, *front), STAGE], 2 * joined).tolist()
            draw_token(ax, tokens, 0, at, style.CLASS_TOKEN, 2)
        if blocks:
            draw_weights(ax, weights)
            block, (x, y, width, height) = math.ceil(blocks), STAGE
            ax.text(x + width + 12, y + height / 2, "class token", va="center")
            ax.text(
                x + width / 2,
                y - 58,
                f"block {block} of {len(reading.weights)}",
                ha="center",
                va="center",
                weight="bold",
            )
            share = f"{reading.fractions[block - 1]:.0%} of its attention is on the digit"
            ax.text(x + width / 2, y - 32, share, ha="center", va="center")
        if answered:
            draw_answer(figure, reading, answered)
    return figure


def add_key(figure: Figure) -> Figure:
    """Add a line below a frame that says what widths of lines and colors of tokens are."""
    total = HEIGHT + KEY
    figure.set_size_inches(WIDTH / 100, total / 100)
    for ax in figure.axes:
        x, y, width, height = ax.get_position().bounds
        ax.set_position((x, (y * HEIGHT + KEY) / total, width, height * HEIGHT / total))
    text = (
        "width of a line: attention weight; "
        "columns: numbers of the tokens, blue below 0, red above 0"
    )
    figure.text(
        EDGE / WIDTH, 14 / total, text, va="center", fontsize=style.TEXT_SIZE, color=style.TEXT
    )
    return figure


def draw_frame(reading: Reading, number: int, progress: float) -> Image.Image:
    """Draw what `draw_moment` draws, as an image of RGB pixels: WIDTH x HEIGHT."""
    return as_image(draw_moment(reading, number, progress))


def as_image(figure: Figure) -> Image.Image:
    """Draw a figure as an image of RGB pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def draw_frames(reading: Reading, step: float = 0.065) -> Frames:
    """Draw all frames of the animation, with their durations in milliseconds.

    step: seconds between frames while things move
    """
    pace = [(moving, rest) for _, moving, rest in moments(reading)]
    return in_time(pace, step, lambda number, progress: draw_frame(reading, number, progress))


def in_time(
    pace: Sequence[tuple[float, float]], step: float, draw: Callable[[int, float], Image.Image]
) -> Frames:
    """Draw the frames of moments, each with its seconds of movement and of rest after it.

    draw: (number, progress) -> frame
    """
    frames = []
    for number, (moving, rest) in enumerate(pace):
        steps = max(1, round(moving / step))
        for k in range(1, steps + 1):
            seconds = step * (moving > 0) + rest * (k == steps)
            frames.append((draw(number, k / steps), round(1000 * seconds)))
    return frames


def palette() -> Image.Image:
    """Make the few colors of all frames: grays, those of numbers, of roles, of the longest bar."""
    return palette_of((style.CLASS_TOKEN, style.PATCH, style.SERIES[0]), grays=24)


def palette_of(roles: Sequence[str], grays: int, signed: int = 11) -> Image.Image:
    """Make the few colors of an animation: grays, those of numbers with a sign, shades of roles.

    grays, signed: how many of each
    """
    shades = [(LinearSegmentedColormap.from_list("", ["white", color]), 5) for color in roles]
    maps = [(matplotlib.colormaps["gray"], grays), (matplotlib.colormaps[style.SIGNED], signed)]
    image = Image.new("P", (1, 1))
    image.putpalette(
        b"".join(
            colormap(np.linspace(0, 1, n), bytes=True)[:, :3].tobytes()
            for colormap, n in (*maps, *shades)
        )
    )
    return image


def between(values: Sequence[Any], done: float) -> Tensor:
    """Interpolate: the value after `done` of the steps between values, the last one in part.

    values: tensors, or tuples of numbers
    """
    k = max(0, min(int(done), len(values) - 2))
    a, b = (torch.as_tensor(value) for value in values[k : k + 2])
    return a + eased(done - k) * (b - a)


def eased(progress: float) -> float:
    """Progress, slow at the start and at the end, clipped to 0 and 1."""
    p = min(1.0, max(0.0, progress))
    return p * p * (3 - 2 * p)


def turn(progress: float, i: int, n: int) -> float:
    """Compute the progress of thing i of n; they move in turn, each for 35% of the time."""
    return (progress - 0.65 * i / n) / 0.35


def slot(i: int, n: int) -> tuple[float, float, float]:
    """Left edge, top and width of token i of n in the row."""
    pitch = (WIDTH - 2 * EDGE) / n
    return EDGE + i * pitch, COLUMN, pitch - 3


def brightness(weights: Tensor, blocks: float) -> Tensor:
    """Compute how bright each patch (N,) of the image is: all of it, until the first block.

    weights: (N,), of the patches; the brightest has the largest
    """
    attended = DIM + (1 - DIM) * weights / weights.max().clamp(min=1e-9)
    return between([torch.ones_like(weights), attended], min(blocks, 1.0))


def draw_patches(ax: Axes, image: Tensor, P: int, cut: float, row: float, bright: Tensor) -> None:
    """Draw the image, cut; its patches fly into the row.

    A copy stays, each patch as bright as `bright` (N,) says.
    """
    n, N = image.shape[1] // P, len(bright)
    left, top, side, _ = box = between([LARGE, SMALL], row / 0.4).tolist()
    step, flown = side / n, torch.tensor([turn(row, i, N) for i in range(N)])
    draw_pixels(
        ax, image * bright.reshape(n, n).repeat_interleave(P, 0).repeat_interleave(P, 1), box
    )
    edges, lines = (
        [k * step for k in range(n + 1)],
        {"color": "white", "linewidth": 0.72 * GAP * eased(cut)},
    )
    ax.vlines([left + edge for edge in edges], top, top + side, **lines)
    ax.hlines([top + edge for edge in edges], left, left + side, **lines)
    patches = image.unfold(1, P, P).unfold(2, P, P).flatten(1, 2)  # (C, N, P, P)
    for i, patch in enumerate(patches.unbind(1)):
        if (progress := flown[i].item()) > 0:
            x, _, width = slot(i + 1, N + 1)
            start = left + i % n * step, top + i // n * step, step - GAP, step - GAP
            x, y, width, height = between([start, (x, ROW, width, width)], progress).tolist()
            draw_pixels(
                ax,
                patch,
                (x, y - 50 * math.sin(math.pi * eased(progress)), width, height),
                style.PATCH,
            )


def draw_token(
    ax: Axes, tokens: Tensor, i: int, box: Sequence[float], color: str, width: int = 1
) -> None:
    """Draw token i as a column of numbers, on the color scale of all tokens; white is 0."""
    values = (tokens[i] / tokens.abs().quantile(0.98) + 1) / 2
    colors = torch.from_numpy(matplotlib.colormaps[style.SIGNED](values.numpy())[:, :3])
    draw_pixels(ax, colors.T[..., None], box, color, width)


def draw_pixels(
    ax: Axes, pixels: Tensor, box: Sequence[float], color: str = "", width: int = 1
) -> None:
    """Draw colors or grays (C, H, W) from 0 to 1 as squares, in a frame if it has a color."""
    left, top, wide, high = (round(number) for number in box)
    extent = (left, left + max(1, wide), top + max(1, high), top)
    ax.imshow(
        pixels.expand(3, -1, -1).permute(1, 2, 0),
        extent=extent,
        aspect="auto",
        interpolation="nearest",
        zorder=2,
    )
    if color:
        draw_box(ax, (left, top, wide, high), color, linewidth=0.72 * width, zorder=2)


def draw_weights(ax: Axes, weights: Tensor) -> None:
    """Draw a line from the class token to every token of the row, as wide as its weight.

    Its own slot is empty.
    """
    slots, (left, top, width, height) = [slot(i, len(weights)) for i in range(len(weights))], STAGE
    draw_box(ax, (*slots[0], TALL), style.CLASS_TOKEN, linewidth=0.72)
    start = left + width / 2, top + height
    lines = [(start, (x + wide / 2, ROW if i else COLUMN)) for i, (x, _, wide) in enumerate(slots)]
    thick = (0.72 * THICK * weights).tolist()
    ax.add_collection(
        LineCollection(lines, linewidths=thick, colors=style.CLASS_TOKEN, capstyle="butt", zorder=1)
    )


def draw_answer(figure: Figure, reading: Reading, answered: float) -> None:
    """Draw a bar for each class from 0 to 1; the longest has its value when it has its length."""
    left, top, width, height = BARS
    ax = figure.add_axes(
        (left / WIDTH, 1 - (top + height) / HEIGHT, width / WIDTH, height / HEIGHT),
        facecolor="none",
    )
    draw_bars(
        eased(answered) * reading.probabilities,
        reading.class_names,
        ax,
        chosen=int(reading.probabilities.argmax()),
    )
    ax.texts[0].set_visible(answered == 1)
    ax.text(
        -0.3,
        0.4,
        "→",
        size=SIZE + 7,
        color=style.LINE,
        ha="center",
        va="center",
        transform=ax.transAxes,
    )
