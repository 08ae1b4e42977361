"""Notebook 00: the whole model with the numbers of a real forward pass; heads."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import (
    draw_bars,
    draw_box,
    draw_grid,
    draw_image,
    draw_image_grid,
    draw_squares,
    mark_wrong,
    middle_square,
    name_row,
    square_key,
)

WIDTH, HEIGHT = 9.0, 4.85  # of the picture of the model, in inches, like every length in it
TOP, TALL = 1.12, 2.72  # where the row of pictures starts below the upper edge, and how tall it is
CLASS_ROW, SLIT = (
    0.26,
    0.06,
)  # the row of the class token is taller than the others, and stands a little apart
BARS = (
    TOP + CLASS_ROW + SLIT + 0.16
)  # where the bars of the classes start, below the word "softmax"
LEFT = {
    "image": 0.08,
    "patches": 1.43,
    "tokens": 3.40,
    "blocks": 4.50,
    "features": 6.46,
    "classes": 7.93,
}
WIDE = {
    "image": 1.0,
    "patches": 1.05,
    "tokens": 128 / style.DOTS,
    "blocks": 1.76,
    "features": 128 / style.DOTS,
    "classes": 0.98,
}
SPREAD = 3.0  # the scale of tokens and features runs from -SPREAD to SPREAD
STRONG = 0.25  # the attention weight that is drawn darkest
SIGNED = colormaps[style.SIGNED].resampled(25)  # a stored picture of 256 colors keeps all of them
VEIL = style.VEIL.resampled(16)


class Pass(NamedTuple):
    """What one image becomes on its way through a ViT with L blocks and a class token."""

    image: Tensor  # (C, H, W), from 0 to 1
    patches: Tensor  # (N, C*P*P)
    tokens: Tensor  # (T, D), what enters the first block
    weights: list[Tensor]  # L of (h, T, T)
    features: Tensor  # (T, D), what leaves the last norm
    probabilities: Tensor  # (K,)


def draw_model(
    stages: Pass,
    patch_size: int,
    class_names: Sequence[str],
    title: str = "",
    notes: Mapping[str, str] | None = None,
) -> Figure:
    """Draw one image on its way through a ViT, with the shape at every stage.

    notes: what to point at, by the name of a stage: "tokens" and "features" (their class token),
           "blocks", "classes"
    """
    fig = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    label(fig, 0.08, 0.2, title, ha="left", fontsize=style.TEXT_SIZE + 1)
    (C, H, W), (N, length), (T, D) = stages.image.shape, stages.patches.shape, stages.tokens.shape
    names = {
        "image": ("C, H, W", (C, H, W)),
        "patches": ("N, C·P·P", (N, length)),
        "tokens": ("T, D", (T, D)),
    }
    names |= {"features": ("T, D", (T, D)), "classes": ("K", (len(stages.probabilities),))}
    for name, (letters, shape) in names.items():
        write_shape(fig, name, letters, shape)
    square = (TALL - WIDE["image"]) / 2 + TOP
    draw_grid(
        draw_image(stages.image, axes(fig, "image", square, WIDE["image"])),
        (H, W),
        patch_size,
        style.PATCH,
    )
    draw_patches(
        axes(fig, "patches", square, WIDE["patches"]), stages.patches, C, patch_size, (H, W)
    )
    draw_tokens(fig, "tokens", stages.tokens)
    draw_blocks(fig, stages.weights)
    draw_tokens(fig, "features", stages.features)
    draw_probabilities(
        axes(fig, "classes", BARS, TOP + TALL - BARS), stages.probabilities, class_names
    )
    write_joints(fig, N)
    draw_scales(fig)
    for name, text in (notes or {}).items():
        point_at(fig, name, text, largest(stages.probabilities), len(stages.probabilities))
    return fig


def draw_digits(images: Tensor) -> Picture:
    """Draw digits twice: enlarged and smoothed, as people can read them, and as their pixels.

    images: (n, 1, H, W), from 0 to 1
    """
    fig, axes = style.new_figure(9, 2.75, nrows=2, ncols=len(images))
    style.title_figure(fig, "What you see, and what the model gets")
    for image, (upper, lower) in zip(images, axes.T, strict=True):
        draw_image(smooth(image), upper)
        draw_image(image, lower)
    return Picture(
        fig,
        "Handwritten digits in two rows: smoothed above, as coarse gray pixels below.",
        f"{len(images)} handwritten digits, smoothed in the upper row and easy to read; in the "
        f"lower row the same digits as {images.shape[2]} x {images.shape[3]} gray squares.",
    )


def smooth(image: Tensor, side: int = 96) -> Tensor:
    """An image enlarged for people to look at: (C, H, W) -> (C, side, side)"""
    large = F.interpolate(image[None], size=side, mode="bicubic", align_corners=False)
    return large[0].clamp(0, 1)


def draw_pass(stages: Pass, patch_size: int, title: str) -> Picture:
    """Draw one image on its way through a ViT, with the shape at every stage.

    title: what is to be seen; a stage is pointed at if its numbers are all equal or one stands out
    """
    names = [str(k) for k in range(len(stages.probabilities))]
    best = largest(stages.probabilities)
    if best is None:
        notes = {"tokens": "starts at 0", "classes": "all equal"}
    else:
        answer = f"{names[best]} gets\n{stages.probabilities[best]:.2f}"
        notes = {"tokens": "has learned\nnumbers", "classes": answer}
    fig = draw_model(stages, patch_size, names, title, notes)
    return Picture(
        fig,
        "A digit on its way through a ViT: patches, tokens, attention, features, bars of classes.",
        f"A digit is cut into {len(stages.patches)} patches, which become {len(stages.tokens)} "
        f"tokens with the class token. After {len(stages.weights)} blocks there are ten bars: "
        + ("all are equal." if best is None else f"that of {names[best]} is the longest."),
    )


def draw_history(history: Sequence[Any]) -> Picture:
    """Draw loss and accuracy of training and validation against the epoch: what `fit` returns."""
    last = history[-1].validation
    fig, (left, right) = style.new_figure(9, 3.1, ncols=2)
    style.title_figure(fig, f"Validation accuracy ends at {last.accuracy:.3f}")
    draw_measure(left, history, "loss", "loss (nats)")
    draw_measure(right, history, "accuracy", "accuracy (fraction of images)")
    left.axhline(math.log(10), color=style.LINE, linewidth=1)
    options = {"ha": "right", "va": "top", "fontsize": style.TEXT_SIZE}
    left.text(history[-1].number, math.log(10), "ln 10", **options)
    left.legend(fontsize=style.TEXT_SIZE, frameon=False, loc="center right")
    return Picture(
        fig,
        "Loss and accuracy of training and validation against the epoch.",
        f"The loss begins near ln 10 and falls. At the end, the validation loss is "
        f"{last.loss:.2f} and the validation accuracy {last.accuracy:.3f}.",
    )


def draw_measure(ax: Axes, history: Sequence[Any], name: str, unit: str) -> None:
    """Draw "loss" or "accuracy" of training (dashed) and validation, one point an epoch."""
    epochs = [epoch.number for epoch in history]
    training = [getattr(epoch.train, name) for epoch in history]
    validation = [getattr(epoch.validation, name) for epoch in history]
    ax.plot(epochs, training, "--", color=style.SERIES[2], label="training")
    ax.plot(epochs, validation, color=style.SERIES[0], label="validation")
    style.style_axes(ax, None, "epoch", unit)


def draw_hardest(images: Tensor, logits: Tensor, labels: Tensor, count: int = 8) -> Picture:
    """Draw the images to whose label a model gave the lowest probability, the hardest first.

    images: (n, 1, H, W), from 0 to 1;  logits: (n, K);  labels: (n,)
    """
    of_label = logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]
    rows = of_label.argsort()[:count]
    answers = logits.argmax(dim=1)
    titles = [f"{labels[i]} → {answers[i]}\n{of_label[i]:.2f}" for i in rows]
    wrong = [bool(answers[i] != labels[i]) for i in rows]
    fig = draw_image_grid([smooth(images[i]) for i in rows], titles)
    mark_wrong(fig, wrong)
    fig.set_figheight(fig.get_figheight() + 0.4)  # for a title above all of them
    style.title_figure(
        fig, "The hardest digits: label → the model's answer, and the label's probability"
    )
    return Picture(
        fig,
        "The test digits that were hardest for the model, with label, answer and probability.",
        f"{count} smoothed test digits. {sum(wrong)} of them are framed and crossed, because the "
        "model's answer is not their label.",
    )


def draw_photo(
    photo: Tensor, reduced: Tensor, patch_size: int, classes: Sequence[tuple[str, float]]
) -> Picture:
    """Draw a photo, the patches that a model gets of it, and the probabilities of the classes.

    photo  : (3, H, W), from 0 to 1;  reduced: (3, S, S), the square in its middle
    classes: pairs of name and probability, the most probable first
    """
    fig, (left, middle, right) = style.new_figure(9, 2.9, ncols=3, width_ratios=[1, 1, 1.2])
    names, probabilities = zip(*classes, strict=True)
    style.title_figure(fig, f"The most probable class is {names[0]}")
    draw_image(middle_square(photo), left, "the middle of the photo").set_anchor("N")
    count = (reduced.shape[1] // patch_size) ** 2
    title = f"{count} patches of {patch_size} x {patch_size}"
    size = (reduced.shape[1], reduced.shape[2])
    draw_grid(draw_image(reduced, middle, title), size, patch_size).set_anchor("N")
    draw_bars(probabilities, names, right, "probability", chosen=0)
    return Picture(
        fig,
        "A photo of a cat, the patches that the model gets, and a bar for each class.",
        f"The middle of a photo of a cat, this square cut into {count} patches, "
        f"and a bar for each of {len(names)} classes, of which {names[0]} has the longest.",
    )


def axes(fig: Figure, name: str, top: float, tall: float) -> Axes:
    """Make the axes of a stage, whose left end and width are known, from this height down."""
    return style.hide_axes(
        fig.add_axes(
            (LEFT[name] / WIDTH, 1 - (top + tall) / HEIGHT, WIDE[name] / WIDTH, tall / HEIGHT)
        )
    )


def label(fig: Figure, x: float, y: float, text: str, **options: Any) -> None:
    """Write a text whose middle is so many inches from the left and from the top."""
    smaller = {"fontsize": style.TEXT_SIZE - 1}
    write(fig, x / WIDTH, 1 - y / HEIGHT, text, **smaller | options)


def write_shape(fig: Figure, name: str, letters: str, shape: tuple[int, ...]) -> None:
    """Write the name of a stage, and its shape in letters and in numbers."""
    middle, numbers = LEFT[name] + WIDE[name] / 2, ", ".join(map(str, shape))
    label(fig, middle, 4.02, name, weight="bold")
    label(fig, middle, 4.24, f"({letters})")
    label(fig, middle, 4.46, f"({numbers})")


def draw_patches(
    ax: Axes, patches: Tensor, channels: int, patch_size: int, image_size: tuple[int, int]
) -> None:
    """Draw the patches, moved apart, in their places."""
    H, W = image_size
    P, gap = patch_size, 0.35 * patch_size
    for i, patch in enumerate(patches.detach().reshape(-1, channels, P, P)):
        row, col = divmod(i, W // P)
        x, y = col * (P + gap), row * (P + gap)
        draw_image(patch, ax)
        ax.images[-1].set_extent((x, x + P, y + P, y))
        draw_box(ax, (x, y, P, P), style.PATCH, linewidth=1)
    ax.set_xlim(-gap, (W // P) * (P + gap))
    ax.set_ylim((H // P) * (P + gap), -gap)


def draw_tokens(fig: Figure, name: str, tokens: Tensor) -> None:
    """Draw tokens as rows of colors: the class token in a row of its own, the patches below it."""
    below = TALL - CLASS_ROW - SLIT
    parts = (
        (tokens[:1], TOP, CLASS_ROW, style.CLASS_TOKEN),
        (tokens[1:], TOP + CLASS_ROW + SLIT, below, style.PATCH),
    )
    for rows, top, tall, color in parts:
        ax = axes(fig, name, top, tall)
        ax.imshow(
            rows, cmap=SIGNED, vmin=-SPREAD, vmax=SPREAD, aspect="auto", interpolation="nearest"
        )
        draw_box(ax, (-0.5, -0.5, rows.shape[1], len(rows)), color, linewidth=2, clip_on=False)


def draw_blocks(fig: Figure, weights: Sequence[Tensor]) -> None:
    """Draw the first and the last encoder block: attention, the mean of its heads, and the MLP."""
    shown = [(i, weights[i]) for i in sorted({0, len(weights) - 1})]
    ax = axes(fig, "blocks", TOP, TALL)
    wide, gap = (0.82, 0.12) if len(shown) > 1 else (WIDE["blocks"], 0)
    for number, (i, maps) in enumerate(shown):
        left = number * (wide + gap)
        corner = (left + 0.02, 0.02)
        options = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": "#F7F7F7"}
        ax.add_patch(
            FancyBboxPatch(
                corner, wide - 0.04, TALL - 0.04, edgecolor=style.TEXT, zorder=0, **options
            )
        )
        draw_block(fig, ax, left + wide / 2, f"block {i + 1}", maps.mean(dim=0))
    ax.set(xlim=(0, WIDE["blocks"]), ylim=(TALL, 0), aspect="auto")
    middle, hidden = LEFT["blocks"] + WIDE["blocks"] / 2, len(weights) - len(shown)
    label(fig, middle, 4.02, f"{len(weights)} block{'s' * (len(weights) > 1)}", weight="bold")
    if hidden:
        label(fig, middle, 4.24, f"({hidden} of them not shown)")


def draw_block(fig: Figure, ax: Axes, middle: float, name: str, weights: Tensor) -> None:
    """Draw a block: its attention weights (T, T), and an MLP, D to 4 D and back."""
    labels = (
        (0.2, name, "bold"),
        (0.46, "attention", "normal"),
        (1.58, "MLP", "normal"),
        (2.56, "D  4D  D", "normal"),
    )
    for y, text, weight in labels:
        label(fig, LEFT["blocks"] + middle, TOP + y, text, weight=weight)
    extent = (middle - 0.36, middle + 0.36, 1.34, 0.62)
    ax.imshow(weights, cmap=VEIL, vmin=0, vmax=STRONG, extent=extent, interpolation="nearest")
    draw_box(ax, (middle - 0.36, 0.62, 0.72, 0.72), style.LINE, linewidth=1)
    corners = [(-0.28, 1.99), (0, 1.74), (0.28, 1.99), (0.28, 2.17), (0, 2.42), (-0.28, 2.17)]
    ax.add_patch(
        Polygon([(middle + x, y) for x, y in corners], facecolor=style.MUTED, edgecolor="none")
    )
    for x, low, high in ((-0.28, 1.99, 2.17), (0, 1.74, 2.42), (0.28, 1.99, 2.17)):
        ax.plot([middle + x] * 2, [low, high], color=style.LINE, linewidth=5, solid_capstyle="butt")


def draw_probabilities(ax: Axes, probabilities: Tensor, class_names: Sequence[str]) -> None:
    """Draw a bar for each class from 0 to 1; the largest is darker, if there is one."""
    values = torch.as_tensor(probabilities).tolist()
    best = largest(probabilities)
    for i, value in enumerate(values):
        ax.barh(i, value, color=style.SERIES[0] if i == best else style.LINE, height=0.75)
        right = value > 0.6  # too long a bar for its value to stand behind it
        options = {
            "ha": "right" if right else "left",
            "va": "center",
            "fontsize": style.TEXT_SIZE - 1,
        }
        ax.text(
            value - 0.03 if right else value + 0.04,
            i,
            f"{value:.2f}",
            color="white" if right else style.TEXT,
            **options,
        )
        ax.text(
            -0.06,
            i,
            class_names[i],
            ha="right",
            va="center",
            fontsize=style.TEXT_SIZE - 1,
            color=style.TEXT,
        )
    ax.set_xlim(0, 1)
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.axvline(0, color=style.TEXT, linewidth=1)


def largest(values: Tensor) -> int | None:
    """Find the number of the largest value; None where all are equal

    >>> largest(torch.tensor([0.1, 0.9])), largest(torch.ones(3))
    (1, None)
    """
    return int(values.argmax()) if float(values.max() - values.min()) > 1e-6 else None


def write_joints(fig: Figure, N: int) -> None:
    """Write what happens between the stages, and which row belongs to which token."""
    middle, first, rows = TOP + TALL / 2 + 0.1, TOP + CLASS_ROW / 2, TALL - CLASS_ROW - SLIT
    connect(fig, 1.11 / WIDTH, 1.43 / WIDTH, 1 - middle / HEIGHT, "cut")
    connect(fig, 2.53 / WIDTH, 3.30 / WIDTH, 1 - middle / HEIGHT, "project")
    connect(fig, 4.31 / WIDTH, 4.50 / WIDTH, 1 - middle / HEIGHT)
    connect(fig, 6.27 / WIDTH, 6.44 / WIDTH, 1 - middle / HEIGHT)
    connect(fig, 7.37 / WIDTH, 7.80 / WIDTH, 1 - first / HEIGHT, "head")
    label(fig, 7.85, first, "logits", ha="left")
    label(fig, 7.85, first + 0.21, "↓ softmax", ha="left")
    label(fig, 3.33, first, "class token", ha="right")
    aside = min(0.5 / N, 0.125)  # of the way down: a single row has its label above the arrow
    for i, down in {0: aside, N - 1: 1 - aside if N > 1 else aside}.items():
        label(fig, 3.33, TOP + CLASS_ROW + SLIT + rows * down, f"patch {i}", ha="right")


def draw_scales(fig: Figure) -> None:
    """Draw what the colors mean: signed numbers of tokens and features, and attention weights."""
    both = (
        (2.1, SIGNED, -SPREAD, SPREAD, "tokens, features:"),
        (6.4, VEIL, 0, STRONG, "attention weights:"),
    )
    for left, colors, low, high, name in both:
        ax = fig.add_axes(
            (left / WIDTH, 0.08 / HEIGHT, 1.1 / WIDTH, 0.13 / HEIGHT), label="<colorbar>"
        )
        fig.colorbar(
            ScalarMappable(Normalize(low, high), colors), cax=ax, orientation="horizontal", ticks=[]
        )
        label(
            fig,
            left - 0.08,
            HEIGHT - 0.145,
            f"{name} {'≤ −' if low else ''}{abs(low):g}",
            ha="right",
        )
        label(fig, left + 1.18, HEIGHT - 0.145, f"≥ {high:g}", ha="left")


def point_at(fig: Figure, name: str, text: str, best: int | None = None, K: int = 1) -> None:
    """Write a remark above a stage, with an arrow down to its class token or first label.

    best: the bar, of K, to which the arrow leads instead
    """
    middle, end = LEFT[name] + WIDE[name] / 2, TOP
    if name == "classes":
        middle, end = LEFT[name] + 0.82, BARS + (TOP + TALL - BARS) * ((best or 0) + 0.1) / K
    label(fig, min(middle, WIDTH - 0.42), 0.62, text)
    ends = ((middle / WIDTH, 1 - 0.88 / HEIGHT), (middle / WIDTH, 1 - end / HEIGHT))
    arrow(fig, *ends, mutation_scale=11, zorder=1)


def connect(fig: Figure, left: float, right: float, height: float, text: str = "") -> None:
    """Draw a thin arrow from left to right, named above, in units of the figure."""
    options: dict[str, Any] = {
        "mutation_scale": 12,
        "color": style.LINE,
        "shrinkA": 2,
        "shrinkB": 2,
        "zorder": 1,
    }
    arrow(fig, (left, height), (right, height), **options)
    middle = (left + right) / 2
    write(fig, middle, height + 0.03, text, va="baseline", fontsize=style.TEXT_SIZE - 1)


def draw_heads(
    image: Tensor, rows: Mapping[str, Tensor], grid: tuple[int, int], top: float = 1
) -> Picture:
    """Draw the class token's weights in each head as squares, one row for each model.

    rows: {name of the model: (h, T) weights, token 0 is the class token}
    grid: rows and columns of patches
    """
    h = len(next(iter(rows.values())))
    fig, panels = style.new_figure(
        9, 0.9 + 2.05 * len(rows), nrows=len(rows), ncols=h, squeeze=False
    )
    for (name, weights), line in zip(rows.items(), panels, strict=True):
        for head, ax in enumerate(line):
            of_patches = weights[head, 1:]
            draw_squares(
                image,
                of_patches,
                grid,
                ax,
                f"head {head + 1}, largest {of_patches.max():.2f}",
                top=top,
            )
        name_row(line[0], name, 0.08, weight="bold")
    fig.get_layout_engine().set(h_pad=0.1)  # inches, so that the title stands apart from the panels
    maxima = torch.stack([weights[:, 1:].amax(dim=1) for weights in rows.values()])
    change = maxima.amax(dim=0) - maxima.amin(dim=0)
    style.title_figure(fig, f"Training changed head {change.argmax() + 1} most", x=0.01)
    square_key(fig, top)
    return Picture(
        fig,
        "A digit with squares on its patches, whose area is the weight that the class token gives.",
        f"A digit with squares on its patches for {h} heads, in rows for {' and '.join(rows)} "
        f"models; the largest weight on a patch is {maxima.max():.2f}.",
    )
