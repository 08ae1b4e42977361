"""Draw the images under images/ again: the forward pass of notebook 00, and the animation at the top of the README.

In the animation a ViT classifies an image, from patches to tokens to attention, layer by layer. All numbers are given and
drawn as they are; between two moments, positions and widths change gradually.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from tools import main
from tools.execute import ROOT
from vit_helpers.data import load, random_affine
from vit_helpers.inspection import attention_map, token_layers
from vit_helpers.inspection.localization import fraction_inside
from vit_helpers.patches import patchify
from vit_helpers.plots import style
from vit_helpers.plots.model import draw_model
from vit_helpers.pretrained import load_pretrained
from vit_helpers.training import fit, set_seed
from vit_helpers.vit import ViT, ViTConfig

DIGIT = 12  # of the test set: a 6 that the model classifies correctly, well apart from the clutter
WIDTH, HEIGHT = 880, 440  # of a frame, in pixels, like all positions; boxes are left, top, width and height
LARGE, SMALL = (308, 62, 264, 264), (24, 62, 216, 216)  # the image, at first and then
EDGE, ROW, COLUMN, TALL = 24, 338, 360, 64  # left of the row; top of its patches; top and height of its tokens
STAGE = (430, 150, 24, 90)  # the class token when it attends
BARS = (650, 62, 180, 220)
DIM = 0.3  # brightness of a patch without attention
THICK = 40  # width of a line for a weight of 1
SIZE = style.TEXT_SIZE + 1  # of captions, in points
STEP = 0.06  # seconds between two frames that move


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=ROOT / "images", help="folder for the images (default: images/)")


def run(args: argparse.Namespace) -> int:
    folder = args.out / "00_start_here"
    folder.mkdir(parents=True, exist_ok=True)
    draw_start_here().savefig(folder / "pass.png", dpi=100, metadata={"Software": None})
    print(folder / "pass.png")
    save_animation(folder / "reading.gif", draw_reading(read_digit()))
    print(folder / "reading.gif")
    return 0


def draw_start_here() -> Figure:
    """The forward pass of one digit through a ViT that was trained with the recipe of notebook 00: a figure."""
    data = load("digits")
    set_seed(0)
    model = ViT(config := ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10))
    train = data.batches("train", 64, shuffle=True, augment=random_affine)
    fit(model, train, data.batches("validation", 512), report=lambda row: None)
    model.eval()
    image = data.validation.images[:1]
    pixels = data.normalize(image)
    with torch.no_grad():
        stages = patchify(image, 2)[0], model.embed(pixels)[0], model.forward_features(pixels)[0]
        probabilities = model(pixels)[0].softmax(0)
    title = "A Vision Transformer reads a handwritten digit"
    return draw_model(image[0], *stages, probabilities, config.patch_size, config.depth, data.class_names, title)


class Reading(NamedTuple):
    """The forward pass of a ViT with L layers on one image: all the numbers that the animation shows."""

    image: Tensor  # (C, H, W), H = W, from 0 to 1
    patch_size: int
    tokens: list[Tensor]  # L + 1 of (T, D), before the first layer and after each; the class token is token 0
    weights: list[Tensor]  # L of (T,), the attention of the class token to each token
    fractions: list[float]  # L, the fraction of it inside the digit's bounding box
    probabilities: Tensor  # (K,)
    class_names: tuple[str, ...]


def read_digit() -> Reading:
    """The forward pass of the model of notebook 08 on one digit among clutter, from the test set."""
    stored, test = load_pretrained("ours:scattered"), load("scattered_digits", n=100).test
    image, box, model = test.images[DIGIT], test.boxes[DIGIT], stored.model
    pixels = stored.preprocess.normalize(image)[None]
    with torch.no_grad():
        weights = [layer.mean(dim=1) for layer in model.attention_weights(pixels)]  # over the heads
        probabilities = model(pixels)[0].softmax(0)
    maps = [attention_map(layer, model.config.grid) for layer in weights]
    inside = [fraction_inside(one, box[None], model.config.patch_size) for one in maps]  # of the attention to patches
    fractions = [(part * (1 - layer[:, 0, 0])).item() for part, layer in zip(inside, weights, strict=True)]  # of all
    tokens = [layer[0] for layer in token_layers(model, pixels)]
    weights = [layer[0, 0] for layer in weights]
    return Reading(image, model.config.patch_size, tokens, weights, fractions, probabilities, stored.class_names)


class Moment(NamedTuple):
    """One idea: its caption, seconds of movement, seconds of rest after it."""

    caption: str
    moving: float
    rest: float


def moments(reading: Reading) -> list[Moment]:
    """The ideas in their order: question, patches, row, tokens, class token, one for each layer, answer."""
    (T, D), best = reading.tokens[0].shape, int(reading.probabilities.argmax())
    attends = Moment("Attention: which patches are worth looking at?", 0.4, 0.4)
    return [
        Moment("Which digit stands here, among scraps of others?", 0, 1.2),
        Moment(f"Cut the image into {T - 1} patches", 0.4, 0.5),
        Moment("Lay them in a row, like the words of a sentence", 1.3, 0.2),
        Moment(f"Each becomes a token: {D} numbers for what it shows, and where", 0.7, 0.8),
        Moment("A class token joins them, to gather the answer", 1.3, 0.2),
        *[attends for _ in reading.weights[1:]],
        attends._replace(rest=0.6),
        Moment(f"It reads a {reading.class_names[best]}, with probability {reading.probabilities[best]:.2f}", 0.4, 2.6),
    ]


def draw_moment(reading: Reading, number: int, progress: float) -> Image.Image:
    """The frame at `progress` (from 0 to 1) through a moment: WIDTH x HEIGHT, RGB."""
    captions = [moment.caption for moment in moments(reading)]
    done = [float(number > k) or progress * (number == k) for k in range(1, len(captions))]
    (cut, row, made, joined), layers, answered = done[:4], sum(done[4:-1]), done[-1]
    tokens = reading.tokens[int(layers)]  # those of a layer are there when its attention has been shown
    weights = between([torch.zeros_like(reading.weights[0]), *reading.weights], layers)
    canvas = Canvas()
    canvas.words(EDGE, 28, captions[number], size=SIZE + 3)
    draw_patches(canvas, reading.image, reading.patch_size, cut, row, weights[1:])
    for i in range(1, len(tokens)):
        if (grown := eased(turn(made, i - 1, len(tokens) - 1))) > 0:
            canvas.column(tokens, i, (*slot(i, len(tokens)), TALL * grown), style.PATCH)
    if joined:
        draw_class_token(canvas, tokens, joined)
    if layers:
        layer = math.ceil(layers)
        draw_attention(canvas, weights, reading.fractions[layer - 1], f"layer {layer} of {len(reading.weights)}")
    if answered:
        draw_answer(canvas, reading, answered)
    canvas.pixels.draw()
    return Image.fromarray(np.asarray(canvas.pixels.buffer_rgba())).convert("RGB")


def between(values: Sequence[Any], done: float) -> Tensor:
    """The value after `done` of the steps between values (tensors, or tuples of numbers), the last one in part."""
    k = max(0, min(int(done), len(values) - 2))
    a, b = (torch.as_tensor(value) for value in values[k : k + 2])
    return a + eased(done - k) * (b - a)


def eased(progress: float) -> float:
    """Progress, slow at the start and at the end, clipped to 0 and 1."""
    p = min(1.0, max(0.0, progress))
    return p * p * (3 - 2 * p)


def turn(progress: float, i: int, n: int) -> float:
    """The progress of thing i of n that move one after another, each for 35% of the time."""
    return (progress - 0.65 * i / n) / 0.35


def slot(i: int, n: int) -> tuple[float, float, float]:
    """Left edge, top and width of token i of n in the row."""
    pitch = (WIDTH - 2 * EDGE) / n
    return EDGE + i * pitch, COLUMN, pitch - 3


def draw_patches(canvas: "Canvas", image: Tensor, P: int, cut: float, row: float, weights: Tensor) -> None:
    """The image, cut; its patches fly into the row; a dim copy stays, bright where weights (N,) are large."""
    n, N = image.shape[1] // P, len(weights)
    left, top, side, _ = between([LARGE, SMALL], row / 0.4).tolist()
    gap, step = 5 * eased(cut), side / n
    bright = DIM + (1 - DIM) * weights / weights.max().clamp(min=1e-9)
    for i in range(N):
        r, c = divmod(i, n)
        pixels = image[:, r * P : (r + 1) * P, c * P : (c + 1) * P].permute(1, 2, 0).expand(-1, -1, 3)
        at = (left + c * step + gap / 2, top + r * step + gap / 2, step - gap, step - gap)
        flown = turn(row, i, N)
        canvas.picture(pixels * (bright[i] if flown > 0 else 1), at)
        if flown > 0:
            x, _, width = slot(i + 1, N + 1)
            x, y, width, height = between([at, (x, ROW, width, width)], flown).tolist()
            box = (x, y - 50 * math.sin(math.pi * eased(flown)), width, height)
            canvas.picture(pixels, box, style.PATCH, zorder=3)


def draw_class_token(canvas: "Canvas", tokens: Tensor, joined: float) -> None:
    """It moves to the front of the row, and rises from there to where it attends from; its slot stays free."""
    x, _, width = slot(0, len(tokens))
    front, rise = (x - 50 * (1 - eased(joined / 0.3)), COLUMN, width, TALL), (joined - 0.6) / 0.4
    canvas.frame(front, style.CLASS_TOKEN)
    canvas.column(tokens, 0, between([front, STAGE], rise).tolist(), style.CLASS_TOKEN, 2)
    if rise <= 0:
        canvas.words(EDGE, ROW - 16, "class token")
    elif rise >= 1:
        canvas.words(STAGE[0] + STAGE[2] + 12, STAGE[1] + STAGE[3] / 2, "class token")


def draw_attention(canvas: "Canvas", weights: Tensor, fraction: float, layer: str) -> None:
    """A line from the class token to every token of the row, as wide as its weight; how much is on the digit."""
    start = STAGE[0] + STAGE[2] / 2, STAGE[1] + STAGE[3]
    for i in weights.argsort().tolist():
        x, _, width = slot(i, len(weights))
        canvas.line(start, (x + width / 2, ROW if i else COLUMN), THICK * weights[i].item(), style.CLASS_TOKEN)
    canvas.words(start[0], STAGE[1] - 58, layer, ha="center", weight="bold")
    canvas.words(start[0], STAGE[1] - 32, f"{fraction:.0%} of its attention is on the digit", ha="center")


def draw_answer(canvas: "Canvas", reading: Reading, answered: float) -> None:
    """A bar for each class, on a scale from 0 to 1."""
    left, top, width, height = BARS
    pitch, best = height / len(reading.probabilities), reading.probabilities.max()
    for i, value in enumerate(reading.probabilities):
        y, color = top + (i + 0.5) * pitch, style.CLASS_TOKEN if value == best else style.LINE
        canvas.axes.barh(y, width * value.item() * eased(answered), 0.7 * pitch, left=left, color=color)
        canvas.words(left - 10, y, reading.class_names[i], ha="right", weight="bold" if value == best else "normal")
    for x, mark in ((0.0, "0"), (0.5, "probability"), (1.0, "1")):
        canvas.words(left + x * width, top + height + 16, mark, ha="center")
        if x != 0.5:
            canvas.line((left + x * width, top), (left + x * width, top + height), 1, style.LINE)
    canvas.words(left - 55, STAGE[1] + STAGE[3] / 2, "→", size=SIZE + 7, color=style.LINE, ha="center")


class Canvas:
    """A white image to draw on, in pixels from the top left."""

    def __init__(self) -> None:
        self.pixels = FigureCanvasAgg(Figure((WIDTH / 100, HEIGHT / 100), dpi=100))
        self.axes = self.pixels.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0), autoscale_on=False)
        self.axes.set_axis_off()

    def picture(self, pixels: Tensor, box: Sequence[float], color: str = "", width: int = 1, zorder: int = 2) -> None:
        """Colors (H, W, 3) from 0 to 1 as squares, with a frame of this color if there is one."""
        left, top, wide, high = map(round, box)
        extent = (left, left + max(1, wide), top + max(1, high), top)
        self.axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest", zorder=zorder)
        if color:
            self.frame((left, top, wide, high), color, width, zorder)

    def column(self, tokens: Tensor, i: int, box: Sequence[float], color: str, width: int = 1) -> None:
        """Token i as a column of numbers in a frame, on the color scale of all tokens."""
        values = ((tokens[i] / tokens.abs().quantile(0.98) + 1) / 2).clamp(0, 1)
        self.picture(matplotlib.colormaps[style.VALUES](values.numpy())[:, None, :3], box, color, width, zorder=4)

    def frame(self, box: Sequence[float], color: str, width: int = 1, zorder: int = 4) -> None:
        self.axes.add_patch(Rectangle(box[:2], *box[2:], fill=False, color=color, linewidth=0.72 * width, zorder=zorder))

    def line(self, start: Sequence[float], end: Sequence[float], width: float, color: str) -> None:
        xs, ys = zip(start, end, strict=True)  # 72 points are 100 pixels
        self.axes.plot(xs, ys, color=color, linewidth=0.72 * width, solid_capstyle="butt", zorder=1)

    def words(self, x: float, y: float, text: str, size: float = SIZE, color: str = style.TEXT, **how: Any) -> None:
        """Text, its middle at this height, its left end here (or as `how` says)."""
        self.axes.text(x, y, text, fontsize=size, color=color, va="center", family="DejaVu Sans", zorder=5, **how)


def draw_reading(reading: Reading, step: float = STEP) -> list[tuple[Image.Image, int]]:
    """All frames of the animation with their duration in milliseconds.  step: seconds between frames while things move"""
    frames = []
    for number, moment in enumerate(moments(reading)):
        steps = max(1, round(moment.moving / step))
        for k in range(1, steps + 1):
            seconds = step * (moment.moving > 0) + moment.rest * (k == steps)
            frames.append((draw_moment(reading, number, k / steps), round(1000 * seconds)))
    return frames


def save_animation(path: Path, frames: list[tuple[Image.Image, int]]) -> None:
    """Store frames as a GIF that loops for ever, all with the same few colors: grays, those of numbers, of the drawing."""
    roles = [to_rgb(color) for color in (style.CLASS_TOKEN, style.PATCH, style.TEXT, style.LINE)]
    pale = [[1 - share * (1 - x) for x in color] for color in roles[:2] for share in (0.5, 0.25)]
    numbers = matplotlib.colormaps[style.VALUES](np.linspace(0, 1, 16))[:, :3]
    colors = np.concatenate([np.linspace(0, 1, 32)[:, None].repeat(3, axis=1), numbers, roles, pale])
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * colors).round().astype(np.uint8).tobytes())
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in frames]
    first.save(path, save_all=True, append_images=others, duration=[time for _, time in frames], loop=0)


if __name__ == "__main__":
    raise SystemExit(main())
