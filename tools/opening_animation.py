"""A ViT reads an image, as an animation: cut, laid in a row, made tokens, looked at layer by layer, named.

All numbers are given and drawn as they are; from one stop of the way to the next, places and widths change little by little.
Drawn with PIL, pixel by pixel: a hundred pictures take seconds, and a GIF of few colours stays small.
"""

import math
from functools import cache
from typing import NamedTuple

import matplotlib
import torch
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont

from vit_helpers.plots import style

WIDTH, HEIGHT = 880, 440  # all places are in these pixels: left, top, width, height
LARGE, SMALL = (308, 62, 264, 264), (24, 62, 216, 216)  # the image, at first and then
EDGE, ROW, COLUMN, TALL = 24, 338, 360, 64  # left of the row; top of its patches; top and height of its tokens
STAGE = (430, 150, 24, 90)  # the class token when it looks
BARS = (650, 62, 180, 220)
DIM = 0.3  # brightness of a patch that is not looked at
THICK = 40  # width of a line that carries all the weight
FINE = 2  # drawn so many times as large, and shrunk: smooth edges
STEP = 0.06  # seconds between two pictures that move


class Reading(NamedTuple):
    """What a ViT with L layers makes of one image: all the numbers that the animation shows.

    image  : (C, H, W), H = W, from 0 to 1;  patch_size: P
    tokens : L + 1 of (T, D), before the first layer and after each; the class token is token 0
    weights: L of (T,), how much the class token looks at each token
    shares : L numbers, how much of them lies on the digit
    probabilities: (K,);  class_names: K texts
    """

    image: torch.Tensor
    patch_size: int
    tokens: list
    weights: list
    shares: list
    probabilities: torch.Tensor
    class_names: tuple


class Moment(NamedTuple):
    """One idea: what is said, seconds of moving, seconds of rest after it"""

    caption: str
    moving: float
    rest: float


def moments(reading):
    """The ideas in their order: question, cut, row, tokens, class token, one for each layer, answer"""
    (T, D), L = reading.tokens[0].shape, len(reading.weights)
    best = int(reading.probabilities.argmax())
    looks = "Attention: which patches are worth looking at?"
    return [
        Moment("Which digit stands here, among scraps of others?", 0, 1.2),
        Moment(f"Cut the image into {T - 1} patches", 0.4, 0.5),
        Moment("Lay them in a row, like the words of a sentence", 1.3, 0.2),
        Moment(f"Each becomes a token: {D} numbers for what it shows, and where", 0.7, 0.8),
        Moment("A class token joins them, to gather the answer", 1.3, 0.2),
        *[Moment(looks, 0.4, 0.4) for _ in range(L - 1)],
        Moment(looks, 0.4, 0.6),
        Moment(f"It reads a {reading.class_names[best]}, with probability {reading.probabilities[best]:.2f}", 0.4, 2.6),
    ]


def draw_moment(reading, number, progress):
    """The picture of a moment, `progress` (from 0 to 1) of the way through it: WIDTH x HEIGHT, RGB"""
    said = moments(reading)
    cut, row, made, joined, *layers, answered = (float(number > k) or progress * (number == k) for k in range(1, len(said)))
    done = sum(layers)  # a layer's tokens are there when it has looked
    weights = between([torch.zeros_like(reading.weights[0]), *reading.weights], done)
    tokens = reading.tokens[int(done)]
    canvas = Canvas()
    canvas.words(EDGE, 28, said[number].caption, size=style.TEXT_SIZE + 4)
    if done:
        draw_looks(canvas, weights, reading.shares[math.ceil(done) - 1], f"layer {math.ceil(done)} of {len(layers)}")
    draw_patches(canvas, reading.image, reading.patch_size, cut, row, weights[1:])
    draw_tokens(canvas, tokens, made)
    if joined:
        draw_class_token(canvas, tokens, joined)
    if answered:
        draw_answer(canvas, reading, answered)
    return canvas.finished()


def between(stops, done):
    """The value after so many stops of a way, and a share of the next.  stops: tensors, or tuples of numbers"""
    k = max(0, min(int(done), len(stops) - 2))
    a, b = (torch.as_tensor(stop) for stop in stops[k : k + 2])
    return a + eased(done - k) * (b - a)


def eased(progress):
    """Slow at the start and at the end; what is beyond them stays there.  From 0 to 1"""
    p = min(1.0, max(0.0, progress))
    return p * p * (3 - 2 * p)


def turn(progress, i, n, share=0.35):
    """The progress of thing i of n that move one after another, each for this share of the time"""
    return (progress - (1 - share) * i / n) / share


def place(i, n):
    """Left edge and width of token i of n in the row"""
    pitch = (WIDTH - 2 * EDGE) / n
    return EDGE + i * pitch, pitch - 3


def draw_patches(canvas, image, P, cut, row, weights):
    """The image, cut; its patches fly into the row; a dim copy stays, bright where the class token looks.  weights: (N,)"""
    n, N = image.shape[1] // P, len(weights)
    left, top, side, _ = between([LARGE, SMALL], row / 0.4).tolist()
    gap, step = 5 * eased(cut), side / n
    bright = DIM + (1 - DIM) * weights / weights.max().clamp(min=1e-9)
    flying = []
    for i, (r, c) in enumerate((r, c) for r in range(n) for c in range(n)):
        pixels = image[:, r * P : (r + 1) * P, c * P : (c + 1) * P].permute(1, 2, 0)
        at = (left + c * step + gap / 2, top + r * step + gap / 2, step - gap, step - gap)
        flown = turn(row, i, N)
        canvas.picture(pixels * (bright[i] if flown > 0 else 1), at)
        if flown > 0:
            x, width = place(i + 1, N + 1)
            x, y, width, height = between([at, (x, ROW, width, width)], flown).tolist()
            flying.append((pixels, (x, y - 50 * math.sin(math.pi * eased(flown)), width, height)))
    for pixels, at in flying:
        canvas.picture(pixels, at)
        canvas.frame(at, style.PATCH)


def draw_tokens(canvas, tokens, made):
    """The patches' tokens, a number a line, growing beneath them"""
    T, top = len(tokens), tokens.abs().quantile(0.98)
    for i in range(1, T):
        if (grown := eased(turn(made, i - 1, T - 1))) > 0:
            x, width = place(i, T)
            canvas.column(tokens[i] / top, (x, COLUMN, width, TALL * grown), style.PATCH)


def draw_class_token(canvas, tokens, joined):
    """It comes to the front of the row, and rises from there to where it looks from; its place stays free"""
    x, width = place(0, len(tokens))
    come, rise = eased(joined / 0.3), (joined - 0.6) / 0.4
    front = (x - 50 * (1 - come), COLUMN, width, TALL)
    canvas.frame(front, style.CLASS_TOKEN)
    canvas.column(tokens[0] / tokens.abs().quantile(0.98), between([front, STAGE], rise).tolist(), style.CLASS_TOKEN, 2)
    if rise <= 0:
        canvas.words(EDGE, ROW - 16, "class token")
    elif rise >= 1:
        canvas.words(STAGE[0] + STAGE[2] + 12, STAGE[1] + STAGE[3] / 2, "class token")


def draw_looks(canvas, weights, share, layer):
    """A line from the class token to every token of the row, as wide as its weight; how much of it lies on the digit"""
    start = STAGE[0] + STAGE[2] / 2, STAGE[1] + STAGE[3]
    for i in weights.argsort().tolist():
        x, width = place(i, len(weights))
        canvas.line(start, (x + width / 2, ROW if i else COLUMN), THICK * weights[i].item(), style.CLASS_TOKEN)
    canvas.words(start[0], STAGE[1] - 58, layer, anchor="mm", bold=True)
    canvas.words(start[0], STAGE[1] - 32, f"{share:.0%} of its attention is on the digit", anchor="mm")


def draw_answer(canvas, reading, answered):
    """A bar a class, on a scale from 0 to 1"""
    left, top, width, height = BARS
    values = reading.probabilities.tolist()
    pitch, best = height / len(values), max(values)
    for i, value in enumerate(values):
        colour = style.CLASS_TOKEN if value == best else style.LINE
        y = top + i * pitch
        canvas.bar((left, y + 0.15 * pitch, width * value * eased(answered), 0.7 * pitch), colour)
        canvas.words(left - 10, y + pitch / 2, reading.class_names[i], anchor="rm", bold=value == best)
    for x, mark in ((left, "0"), (left + width / 2, "probability"), (left + width, "1")):
        canvas.words(x, top + height + 16, mark, anchor="mm")
        if mark != "probability":
            canvas.line((x, top), (x, top + height), 1, style.LINE)
    canvas.words(left - 55, STAGE[1] + STAGE[3] / 2, "→", size=style.TEXT_SIZE + 8, colour=style.LINE, anchor="mm")


class Canvas:
    """A white picture to draw on, in pixels of the finished one"""

    def __init__(self):
        self.image = Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT), "white")
        self.pen = ImageDraw.Draw(self.image)

    def finished(self):
        """The picture in its own size"""
        return self.image.resize((WIDTH, HEIGHT), Image.Resampling.BOX)

    def corners(self, box):
        """Left, top, right and bottom of a box, in whole pixels: those of the finished picture, so that edges stay sharp"""
        left, top, width, height = box
        return [FINE * round(x) for x in (left, top, left + width, top + height)]

    def picture(self, pixels, box):
        """Numbers from 0 to 1 as squares, (H, W, C): grey or colour"""
        left, top, right, bottom = self.corners(box)
        values = (255 * pixels.clamp(0, 1)).round().byte().expand(-1, -1, 3).numpy()
        size = (max(1, right - left), max(1, bottom - top))
        self.image.paste(Image.fromarray(values).resize(size, Image.Resampling.NEAREST), (left, top))

    def column(self, token, box, colour, width=1):
        """A token as a column of numbers, from -1 to 1, in a frame"""
        values = matplotlib.colormaps[style.VALUES](((token + 1) / 2).clamp(0, 1).numpy())[:, None, :3]
        self.picture(torch.tensor(values), box)
        self.frame(box, colour, width)

    def frame(self, box, colour, width=1):
        """A rectangle without filling"""
        left, top, right, bottom = self.corners(box)
        self.pen.rectangle((left - 1, top - 1, max(left, right), max(top, bottom)), outline=colour, width=FINE * width)

    def bar(self, box, colour):
        """A rectangle, filled; its width is exact"""
        left, top, right, bottom = self.corners(box)
        right = left + round(FINE * box[2])
        if right > left:
            self.pen.rectangle((left, top, right - 1, bottom - 1), fill=colour)

    def line(self, start, end, width, colour):
        """From point to point; one thinner than half a pixel of the large picture is not there"""
        if wide := round(FINE * width):
            self.pen.line([(FINE * x, FINE * y) for x, y in (start, end)], fill=colour, width=wide)

    def words(self, x, y, text, size=style.TEXT_SIZE + 1, colour=style.TEXT, anchor="lm", bold=False):
        """Text at a place.  size: points, of which 72 are 100 pixels;  anchor: of PIL, "lm" is left and middle"""
        self.pen.text((FINE * x, FINE * y), text, colour, font(round(FINE * size / 0.72), bold), anchor)


@cache
def font(size, bold):
    """matplotlib's own font, which is there wherever matplotlib is"""
    path = findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal"))
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def draw_reading(reading, step=STEP):
    """All pictures of the animation: pairs (PIL picture, milliseconds that it stays).  step: seconds while things move"""
    pictures = []
    for number, moment in enumerate(moments(reading)):
        steps = max(1, round(moment.moving / step))
        for k in range(1, steps + 1):
            seconds = step * (moment.moving > 0) + moment.rest * (k == steps)
            pictures.append((draw_moment(reading, number, k / steps), round(1000 * seconds)))
    return pictures


def save_animation(path, pictures):
    """Keep pictures as a GIF that runs for ever, all in the same few colours"""
    first, *others = [one.quantize(palette=palette(), dither=Image.Dither.NONE) for one, _ in pictures]
    first.save(path, save_all=True, append_images=others, duration=[time for _, time in pictures], loop=0)


@cache
def palette():
    """The colours of the animation, held by a picture: greys, those of numbers, those of the drawing, also paler"""
    greys = [(x, x, x) for x in torch.linspace(0, 1, 32).tolist()]
    numbers = matplotlib.colormaps[style.VALUES](torch.linspace(0, 1, 40).numpy())[:, :3].tolist()
    drawn = [
        [1 - share * (1 - x) for x in to_rgb(colour)]
        for colour in (style.CLASS_TOKEN, style.PATCH)
        for share in (1, 0.75, 0.5, 0.25)
    ]
    colours = [*greys, *numbers, *drawn, to_rgb(style.TEXT), to_rgb(style.LINE)]
    holder = Image.new("P", (1, 1))
    holder.putpalette([round(255 * x) for colour in colours for x in colour])
    return holder
