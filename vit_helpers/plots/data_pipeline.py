"""Notebook 06: from image files to batches, and the splits that they are divided into."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.figure import Picture

WIDTH, HEIGHT = 900, 470  # in hundredths of an inch, the unit of every length below
SIDE = 88  # of a square image
ROW = 320  # the lower edge of the images in the upper row
BAND = 118  # the lower edge of the three splits
SIZE = 11  # points
STAGES = (  # middle, name, shape or values below
    (50, "image file", "bytes"),
    (207, "decoded", "(3, 427, 640), 0 to 255"),
    (372, "resized, cropped", "(C, H, W), 0 to 1"),
    (522, "augmented", "random"),
    (671, "normalized", "mean 0 (white), std 1\nlayers: channels"),
    (827, "batch", "(B, C, H, W)\nlayers: images"),
)
SPLITS = (  # left edge, width, name, what it is used for
    (14, 470, "training", "weights, mean and std\nof the normalization"),
    (530, 130, "validation", "decisions: settings,\nwhen to stop"),
    (706, 180, "test", "one accuracy,\nonce, at the end"),
)
COLORS = dict(
    zip(("validation", "test", "training"), style.SERIES, strict=True)
)  # as in all curves

label = partial(write, fontsize=SIZE)
link = partial(arrow, linewidth=1.6, mutation_scale=14)


def draw_pipeline(photos: Mapping[str, Tensor], data: Any) -> Picture:
    """Draw the stages of one image between its file and a batch, above the three splits.

    photos: {name: (3, H, W), from 0 to 1}; the last one is followed, all of them make the batch
    data  : a data set with the splits `train`, `validation` and `test`; a few images are drawn
    """
    splits = [split.images for split in (data.train, data.validation, data.test)]
    fig = style.blank_figure(WIDTH / 100, HEIGHT / 100)
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    ax.set_axis_off()
    draw_stages(ax, list(photos.values())[::-1], list(photos)[-1])
    for (left, width, name, use), images in zip(SPLITS, splits, strict=True):
        draw_split(ax, left, width, name, f"{name}: {len(images):,} images", use, images)
    for x in (484, 660):
        link(ax, (x + 3, BAND + 36), (x + 43, BAND + 36), arrowstyle="<->")
        ax.plot(x + 23, BAND + 36, "x", color=style.TEXT, markersize=17, markeredgewidth=3)
    label(ax, 450, 14, "×  two splits must not share copies of an image", va="bottom")
    dashed = {"color": COLORS["training"], "linestyle": "--"}
    link(ax, (452, BAND + 92), (452, ROW + 22), **dashed)
    label(ax, 444, 244, "training images only", ha="right", color=COLORS["training"])
    link(ax, (484, BAND + 92), (606, ROW + 12), **dashed)
    text = "mean and std of the training split,\nused to normalize all three splits"
    label(ax, 562, 244, text, ha="left", color=COLORS["training"])
    return Picture(
        fig,
        "The way of an image from its file into a batch, and three splits with what each is for.",
        "Above: one photo as a file, decoded, cropped, augmented, normalized, and stacked in a "
        "batch. Below: three splits with digits, what each is used for, and crossed-out arrows "
        "between them.",
    )


def draw_stages(ax: Axes, photos: Sequence[Tensor], name: str) -> None:
    """Draw the upper row: one image at each stage, with an arrow between them."""
    squares = [
        F.interpolate(photo[None, :, :, 106:533], size=64, mode="area")[0] for photo in photos
    ]
    moved = [F.pad(square.flip(2), (6, 0, 0, 4))[:, 4:, :64] for square in squares]
    mean, std = (f(dim=(1, 2), keepdim=True) for f in (photos[0].mean, photos[0].std))
    normal = [(image - mean) / std for image in moved]
    draw_file(ax, 14, f"{name}.jpg")
    paint(ax, photos[0], 128, ROW, 132 * 1.2, SIDE * 1.2)
    paint(ax, squares[0], 328, ROW, SIDE, SIDE)
    paint(ax, moved[0], 478, ROW, SIDE, SIDE)
    for i in (2, 1, 0):  # blue behind, red in front
        paint(ax, normal[0][i : i + 1], 620 + 10 * i, ROW + 10 * i, SIDE - 6, SIDE - 6, signed=True)
    for i in range(4, -1, -1):
        paint(
            ax,
            normal[i % len(normal)][:1],
            766 + 10 * i,
            ROW + 6 * i,
            SIDE - 6,
            SIDE - 6,
            signed=True,
        )
    for middle, title, below in STAGES:
        label(ax, middle, HEIGHT - 12, title, va="top", weight="bold")
        label(ax, middle, ROW - 9, below, va="top")
    for start, end in ((90, 124), (290, 322), (420, 472), (570, 614), (726, 761)):
        link(ax, (start, ROW + 44), (end, ROW + 44))


def draw_file(ax: Axes, left: float, name: str) -> None:
    """Draw a sheet of paper with a folded corner."""
    x, y, w, h, fold = left, ROW, 72, SIDE, 18
    ax.add_patch(
        Polygon(
            [(x, y), (x, y + h), (x + w - fold, y + h), (x + w, y + h - fold), (x + w, y)],
            fc="white",
            ec=style.TEXT,
        )
    )
    ax.add_patch(
        Polygon(
            [(x + w - fold, y + h), (x + w - fold, y + h - fold), (x + w, y + h - fold)],
            fc="white",
            ec=style.TEXT,
        )
    )
    for i, code in enumerate(("FF D8 FF", "E0 00 10", "4A 46 49")):  # how a JPEG file begins
        label(ax, x + w / 2, y + 43 - 15 * i, code, family="monospace", fontsize=9)
    label(ax, x + w / 2, y + 60, name, fontsize=SIZE - 1)


def draw_split(
    ax: Axes, left: float, width: float, name: str, title: str, use: str, images: Tensor
) -> None:
    """Draw a band with the first images of a split, its name above and its use below."""
    color, gap = COLORS[name], 6
    ax.add_patch(
        Rectangle((left, BAND), width, 72, facecolor=style.MUTED, edgecolor=color, linewidth=2)
    )
    count = int((width - gap) // 44)
    start = left + (width - 44 * count + gap) / 2
    for i in range(count):
        paint(ax, images[i], start + 44 * i, BAND + 17, 38, 38)
    label(ax, left + width / 2, BAND + 82, title, weight="bold")
    link(ax, (left + width / 2, BAND - 2), (left + width / 2, BAND - 30), color=color)
    label(ax, left + width / 2, BAND - 52, use)


def paint(
    ax: Axes, image: Tensor, x: float, y: float, width: float, height: float, signed: bool = False
) -> None:
    """Draw an image, or one channel with a sign, in a box of the axes, with a thin frame."""
    low, high = (-2.5, 2.5) if signed else (0, 1)
    options: dict[str, Any] = {
        "cmap": style.SIGNED if signed else "gray",
        "vmin": low,
        "vmax": high,
    }
    pixels = image[0] if image.shape[0] == 1 else image.permute(1, 2, 0)
    box = (x, x + width, y, y + height)
    order = 2 + len(ax.images) / 100  # later ones in front of earlier ones
    ax.imshow(pixels, extent=box, aspect="auto", interpolation="nearest", zorder=order, **options)
    ax.add_patch(
        Rectangle(
            (x, y), width, height, fill=False, edgecolor="white", linewidth=1, zorder=order + 0.001
        )
    )
    ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
