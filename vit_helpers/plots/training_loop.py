"""Notebook 07: a failed run, the training loop, optimizers, schedules, and the run repaired."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.figure import Picture
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

NAME: dict[str, Any] = {
    "fontsize": style.TEXT_SIZE,
    "color": style.TEXT,
}  # of a line

label = partial(write, fontsize=SIZE, linespacing=1.15)


def draw_case(accuracies: Sequence[float]) -> Picture:
    """Draw the accuracy of a run after each epoch, with a dotted line at each value that it takes.

    accuracies: from 0 to 1, one for each epoch
    """
    fig, ax = style.new_figure(9, 3.2)
    values = sorted(set(accuracies))
    epochs = range(1, len(accuracies) + 1)
    title = f"{len(accuracies)} epochs, and only {len(values)} values"
    style.style_axes(ax, title, "epoch", "accuracy on the test photos")
    for value in values:
        ax.axhline(value, color=style.LINE, linestyle=":", linewidth=1.5)
        below = value == values[0]
        options = {"va": "top" if below else "bottom"}
        ax.text(epochs[-1] + 0.6, value - 0.02 * below, f"{value:.4f}", **options, **NAME)
    ax.plot(epochs, accuracies, "o-", color=style.TEXT, markersize=9, linewidth=1)
    ax.set(xlim=(0.5, epochs[-1] + 1.4), xticks=epochs, ylim=(0, 0.7))
    written = ", ".join(f"{accuracy:.4f}" for accuracy in accuracies)
    return Picture(
        fig,
        "The accuracy on the test photos after each epoch of a training run.",
        f"A dot for each epoch, joined by a thin line that jumps up and down between "
        f"{len(values)} dotted lines: {written}.",
    )


def draw_loop(images: Tensor, labels: Sequence[int]) -> Picture:
    """Draw one training step as a circle from images to parameters, with the code of each arrow.

    images: (4, C, H, W), from 0 to 1, from a batch;  labels: their classes
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
    draw_factors(fig, ax)
    number_of(ax, 440, 44, 1, BACKWARD)
    label(ax, 454, 44, "first reset to 0", ha="left", color=BACKWARD)
    for i, (place, line, color) in enumerate(CODE):
        y = 363 - 41 * i
        label(ax, 638 if place else 604, y, line, ha="left", family="monospace", color=color)
        if place:
            number_of(ax, 618, y, place, color)
    label(ax, 604, 12, "after each epoch, on other images", ha="left")
    return Picture(
        fig,
        "A training step as a circle, and the line of code for each of its arrows.",
        "A training step as a circle: images pass through the ViT to logits and a loss, the "
        "backward pass leads to the gradient, and the optimizer changes the parameters. Seven "
        "numbers lead from the arrows to lines of code.",
    )


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


def draw_factors(fig: Figure, ax: Axes) -> None:
    """Draw a learning rate that rises and falls over 80 steps, with a dot at one of them."""
    small = inset(fig, 14, 68, 108, 54)
    rise = [(step + 1) / 8 for step in range(8)]
    factors = rise + [0.5 * (1 + math.cos(math.pi * step / 72)) for step in range(72)]
    small.plot(factors, color=UPDATE, linewidth=1.6)
    now = len(factors) // 3
    small.plot(now, factors[now], "o", color=UPDATE)
    small.set(xticks=[], yticks=[], ylim=(0, 1.12))
    small.spines[["top", "right"]].set_visible(False)
    label(ax, 68, 140, "learning rate $\\eta$")
    label(ax, 68, 50, "step $s$")


def draw_paths(paths: Mapping[str, Tensor], curvature: tuple[float, float]) -> Picture:
    """Draw where optimizers go on the loss (a x² + b y²) / 2, a panel each, over its contours.

    paths: {name: (steps, 2)};  curvature: a, b
    """
    fig, axes = style.new_figure(9, 3.9, ncols=len(paths), sharex=True, sharey=True, squeeze=False)
    a, b = curvature
    x, y = torch.meshgrid(
        torch.linspace(-1.35, 0.75, 120), torch.linspace(-0.95, 1.15, 120), indexing="xy"
    )
    loss = (a * x**2 + b * y**2) / 2
    style.title_figure(fig, "SGD zigzags, momentum helps, and Adam starts diagonally")
    contours: dict[str, Any] = {"levels": [0.01, 0.05, 0.2, 0.6, 1.4, 2.8, 5], "colors": "#CCCCCC"}
    for ax, (name, path) in zip(axes[0], paths.items(), strict=True):
        ax.contour(x, y, loss, linewidths=0.8, **contours)
        ax.plot(*path.T, "o-", markersize=4.5, linewidth=1.2, color=style.SERIES[0])
        ax.plot(0, 0, "*", color=style.TEXT, markersize=13)
        ax.text(0.04, 0.08, "minimum", fontsize=style.TEXT_SIZE, color=style.TEXT)
        ax.set(xlim=(-1.35, 0.75), ylim=(-0.95, 1.15))  # a path that diverges leaves the picture
        ax.set_aspect("equal")  # so that equal steps in both weights are drawn at 45 degrees
        style.style_axes(ax, name, "first weight", "second weight" if ax is axes[0, 0] else None)
    ends = ", ".join(f"{name} at ({p[-1, 0]:.2f}, {p[-1, 1]:.2f})" for name, p in paths.items())
    return Picture(
        fig,
        "The paths of optimizers over the contours of a loss that is a long, narrow valley.",
        f"A valley, steep along the second weight and flat along the first, with the path of an "
        f"optimizer in each panel. After {len(path)} steps, from the same start, they are: {ends}.",
    )


def draw_decay(paths: Mapping[str, Sequence[float]], title: str) -> Picture:
    """Draw a weight over the steps of two optimizers that only decay it, names at the lines.

    paths: {name: the weight after each step}
    """
    fig, ax = style.new_figure(9, 3.0)
    style.style_axes(ax, title, "step", "weight")
    steps = max(map(len, paths.values()))
    ax.plot([0, steps], [0, 0], color=style.LINE, linewidth=1)
    looks = (("-", style.SERIES[0]), ("--", style.SERIES[2]))
    for (name, path), (dashes, color) in zip(paths.items(), looks, strict=True):
        ax.plot(range(1, len(path) + 1), path, dashes, color=color, linewidth=2.5)
        ax.text(1.02 * len(path), path[-1], name, va="center", **NAME)
    ax.set(xlim=(0, 1.3 * steps), ylim=(-0.1, 1.05), xticks=range(0, steps + 1, 250))
    ends = ", ".join(f"{path[-1]:.2f} with {name}" for name, path in paths.items())
    return Picture(
        fig,
        "A weight that only decays, over the steps of two optimizers.",
        f"Two lines that begin at 1. After {steps} steps, the weight is {ends}.",
    )


def draw_schedules(factors: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the factor on the learning rate over the steps of schedules, names at the lines.

    factors: {name: a factor for each step}, up to three schedules
    """
    fig, ax = style.new_figure(9, 2.9)
    title = "All of them warm up, and two of them fall to 0"
    style.style_axes(ax, title, "step $s$", "factor $f(s)$")
    looks = (("-", style.SERIES[0]), ("--", style.SERIES[2]), (":", style.TEXT))
    for (name, values), (dashes, color), at in zip(
        factors.items(), looks, (0.5, 0.7, 0.85), strict=False
    ):
        ax.plot(values, dashes, color=color, linewidth=2.5)
        step = round(at * len(values))
        ax.text(step + 2, values[step] + 0.04, name, **NAME)
    ax.set(ylim=(0, 1.2), yticks=(0, 0.5, 1))
    return Picture(
        fig,
        "The factor on the learning rate over the steps of a training run, for each schedule.",
        f"Lines for {', '.join(factors)}. They rise together in a straight line, then one falls "
        "along half a cosine, one in a straight line, and one stays at the top.",
    )


def draw_repair(runs: Mapping[str, Tensor], levels: Mapping[str, float]) -> Picture:
    """Draw the accuracy after each epoch, a panel for each optimizer and a line for each seed.

    runs  : {name of the optimizer: (seeds, epochs)}
    levels: {what a constant prediction says: its accuracy}, dotted lines
    """
    widths = [1.0] * (len(runs) - 1) + [1.37]  # an epoch is as long in all; names at the right
    options: dict[str, Any] = {"sharey": True, "squeeze": False, "width_ratios": widths}
    fig, axes = style.new_figure(9, 3.6, ncols=len(runs), **options)
    style.title_figure(fig, "One letter more, and the model no longer gives a single answer")
    looks = (("o-", style.SERIES[0]), ("s--", style.SERIES[2]), ("^:", style.TEXT))
    for ax, (name, accuracies) in zip(axes[0], runs.items(), strict=True):
        style.style_axes(ax, name, "epoch", "accuracy (fraction)" if ax is axes[0, 0] else None)
        epochs = range(1, accuracies.shape[1] + 1)
        for said, level in levels.items():
            ax.plot([0, epochs[-1]], [level, level], ":", color=style.LINE, linewidth=1.5)
            if ax is axes[0, -1]:
                ax.text(epochs[-1] + 1, level, said, va="center", **NAME)
        for values, (form, color) in zip(accuracies, cycle(looks), strict=False):
            ax.plot(epochs, values, form, color=color, markersize=5, linewidth=1.2)
        ax.set(ylim=(0, 1.03), xlim=(0, len(epochs) + 0.5), xticks=range(0, len(epochs) + 1, 5))
    axes[0, -1].set_xlim(0, 1.4 * len(epochs))
    ends = "; ".join(
        f"{name}: {', '.join(f'{x:.2f}' for x in values[:, -1])}" for name, values in runs.items()
    )
    return Picture(
        fig,
        "The accuracy after each epoch with both optimizers, a line for each seed.",
        f"Dotted lines mark constant predictions ({', '.join(levels)}). Last accuracies: {ends}.",
    )
