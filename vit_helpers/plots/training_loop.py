"""Notebook 07: the training loop as one picture, and what optimizers make of a gradient."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.images import draw_image

WIDTH, HEIGHT = (
    900,
    390,
)  # in hundredths of an inch, the unit of every length in the picture of the loop
SIZE = 11  # points
FORWARD, BACKWARD, UPDATE = style.SERIES[0], style.SERIES[2], style.TEXT
BOXES = (  # left, bottom, width, text, color of the edge; all are 60 high
    (170, 245, 116, "ViT with\nparameters $w$", FORWARD),
    (432, 245, 120, "loss\n(one number)", FORWARD),
    (430, 65, 124, "gradient $g$,\nshaped like $w$", BACKWARD),
    (314, 65, 88, "clipped,\nnorm $\\leq c$", BACKWARD),
    (170, 65, 116, "optimizer", UPDATE),
)
ARROWS = (  # the points that it passes, the number at its middle, its color
    (((128, 275), (168, 275)), 2, FORWARD),
    (((288, 275), (316, 275)), 2, FORWARD),
    (((408, 275), (430, 275)), 3, FORWARD),
    (((136, 363), (492, 363), (492, 307)), 3, FORWARD),
    (((492, 243), (492, 127)), 4, BACKWARD),
    (((428, 95), (404, 95)), 5, BACKWARD),
    (((312, 95), (288, 95)), 6, BACKWARD),
    (((228, 127), (228, 243)), 6, UPDATE),
    (((128, 95), (168, 95)), 7, UPDATE),
)
CODE = (  # number, line, color: the loop as it is written in section 2
    (None, "for images, labels in train:", UPDATE),
    (1, "optimizer.zero_grad()", BACKWARD),
    (2, "logits = model(images)", FORWARD),
    (3, "loss = F.cross_entropy(...)", FORWARD),
    (4, "loss.backward()", BACKWARD),
    (5, "clip_grad_norm_(...)", BACKWARD),
    (6, "optimizer.step()", UPDATE),
    (7, "schedule.step()", UPDATE),
    (None, "evaluate(model, validation)", UPDATE),
)

label = partial(write, fontsize=SIZE, linespacing=1.15)


def draw_loop(images: Tensor, labels: Sequence[int], factors: Sequence[float]) -> Figure:
    """Draw one training step as a circle from images to parameters, with the code of each arrow.

    images : (4, C, H, W), from 0 to 1, from a batch;  labels: their classes
    factors: the learning rate of each step of a training, divided by the highest
    """
    fig = style.blank_figure(WIDTH / 100, HEIGHT / 100)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    ax.set_axis_off()
    for i, image in enumerate(images):
        draw_image(image, inset(fig, 10 + 58 * (i % 2), 278 - 58 * (i // 2), 54, 54))
    label(ax, 68, 363, f"labels {', '.join(map(str, labels))}")
    label(ax, 68, 195, "images\n(B, C, H, W)")
    for x, y, width, text, color in BOXES:
        options = {
            "boxstyle": "round,pad=0,rounding_size=6",
            "facecolor": "white",
            "edgecolor": color,
            "linewidth": 1.6,
        }
        ax.add_patch(FancyBboxPatch((x, y), width, 60, **options))
        label(ax, x + width / 2, y + 30, text)
    for row in range(4):
        for column in range(10):
            options = {"facecolor": style.MUTED, "edgecolor": style.LINE, "linewidth": 0.5}
            ax.add_patch(Rectangle((318 + 8.8 * column, 255 + 10 * row), 8.8, 10, **options))
    label(ax, 362, 313, "logits")
    label(ax, 362, 237, "(B, K)")
    for points, number, color in ARROWS:
        draw_arrow(ax, points, number, color)
    label(ax, 476, 185, "backward\npass", ha="right", color=BACKWARD)
    label(ax, 244, 185, "new $w$", ha="left")
    draw_factors(fig, ax, factors)
    number_of(ax, 440, 44, 1, BACKWARD)
    label(ax, 454, 44, "first reset to 0", ha="left", color=BACKWARD)
    for i, (place, line, color) in enumerate(CODE):
        y = 363 - 41 * i
        label(ax, 638 if place else 604, y, line, ha="left", family="monospace", color=color)
        if place:
            number_of(ax, 618, y, place, color)
    label(ax, 604, 12, "after each epoch, on other images", ha="left")
    return fig


def inset(fig: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Make axes inside the picture of the loop."""
    return fig.add_axes((x / WIDTH, y / HEIGHT, width / WIDTH, height / HEIGHT))


def number_of(ax: Axes, x: float, y: float, number: int, color: str) -> None:
    """Write the number of a line of code in a disk."""
    disk = {"boxstyle": "circle,pad=0.25", "facecolor": color, "edgecolor": "white"}
    label(
        ax, x, y, str(number), color="white", weight="bold", fontsize=SIZE - 1, zorder=5, bbox=disk
    )


def draw_arrow(ax: Axes, points: Sequence[tuple[float, float]], number: int, color: str) -> None:
    """Draw an arrow through some points, whose longest piece carries the number of a line of code.

    It is dashed in the backward pass.
    """
    dashes = "--" if color == BACKWARD else "-"
    *_, last, end = points
    ax.plot(*zip(*points[:-1], strict=True), color=color, linewidth=1.8, linestyle=dashes)
    options: dict[str, Any] = {
        "mutation_scale": 13,
        "linewidth": 1.8,
        "linestyle": dashes,
        "zorder": 1,
    }
    arrow(ax, last, end, color=color, **options)
    (x1, y1), (x2, y2) = points[0], points[1]
    up = (
        0 if abs(x1 - x2) < abs(y1 - y2) or len(points) > 2 else 17
    )  # beside a short arrow there is no place on it
    number_of(ax, (x1 + x2) / 2, (y1 + y2) / 2 + up, number, color)


def draw_factors(fig: Figure, ax: Axes, factors: Sequence[float]) -> None:
    """Draw the learning rate over the steps of a training, with a dot at one of them."""
    small = inset(fig, 14, 68, 108, 54)
    small.plot(factors, color=UPDATE, linewidth=1.6)
    now = len(factors) // 3
    small.plot(now, factors[now], "o", color=UPDATE)
    small.set(xticks=[], yticks=[], ylim=(0, 1.12))
    small.spines[["top", "right"]].set_visible(False)
    label(ax, 68, 140, "learning rate $\\eta$")
    label(ax, 68, 50, "step $s$")


def draw_paths(
    paths: Mapping[str, Tensor],
    curvature: tuple[float, float],
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw where optimizers go on the loss (a x² + b y²) / 2, over its contours.

    paths: {name: (steps, 2)};  curvature: a, b
    """
    ax = style.new_axes(ax, 5, 4.2)
    a, b = curvature
    x, y = torch.meshgrid(
        torch.linspace(-1.35, 0.75, 120), torch.linspace(-0.95, 1.15, 120), indexing="xy"
    )
    loss = (a * x**2 + b * y**2) / 2
    ax.contour(
        x, y, loss, levels=[0.01, 0.05, 0.2, 0.6, 1.4, 2.8, 5], colors="#CCCCCC", linewidths=0.8
    )
    styles = (
        ("o", ":", style.SERIES[1]),
        ("s", "--", style.SERIES[2]),
        ("^", "-", style.SERIES[0]),
    )
    for (name, path), (marker, dash, color) in zip(paths.items(), styles, strict=False):
        ax.plot(
            *path.T, dash, marker=marker, markersize=4.5, linewidth=1.5, color=color, label=name
        )
    ax.plot(0, 0, "*", color=style.TEXT, markersize=13)
    ax.text(0.07, 0.06, "minimum", fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
    ax.set_aspect("equal")  # so that equal steps in both weights are drawn at 45 degrees
    ax.legend(
        fontsize=style.TEXT_SIZE - 1,
        loc="upper right",
        handlelength=2.5,
        frameon=False,
        borderaxespad=0,
    )
    return style.style_axes(ax, title, "first weight", "second weight")


def draw_spectra(
    spectra: Mapping[str, Tensor], ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw singular values of some matrices, from the largest, on a logarithmic scale.

    spectra: {name: (n,)}
    """
    ax = style.new_axes(ax, 5, 3)
    styles = (("o", ":", style.SERIES[2]), ("^", "-", style.SERIES[0]))
    for (name, values), (marker, dash, color) in zip(spectra.items(), styles, strict=False):
        ax.semilogy(
            range(1, len(values) + 1),
            values,
            dash,
            marker=marker,
            markersize=3,
            color=color,
            label=name,
        )
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower left")
    return style.style_axes(ax, title, "rank, from the largest", "singular value")
