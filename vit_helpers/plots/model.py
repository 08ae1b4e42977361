"""The whole model in one picture, drawn from the numbers of a real pass."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import draw_box, draw_grid, draw_image

BOTTOM, HEIGHT = 0.30, 0.50  # where the row of pictures stands on the figure


def draw_model(
    image: Tensor,
    patches: Tensor,
    tokens: Tensor,
    features: Tensor,
    probabilities: Tensor,
    patch_size: int,
    depth: int,
    class_names: Sequence[str],
    title: str | None = None,
) -> Figure:
    """One image on its way through a ViT, with the shape at every stop; returns the figure.

    image        : (C, H, W), from 0 to 1
    patches      : (N, C*P*P), the image cut up
    tokens       : (T, D), what enters the first block
    features     : (T, D), what leaves the last; probabilities: (K,)
    """
    fig = plt.figure(figsize=(9, 4.4), facecolor="white")
    C, H, W = image.shape
    (N, length), (T, D), K = patches.shape, tokens.shape, len(probabilities)
    fig.text(0.01, 0.985, title or "", fontsize=style.TEXT_SIZE + 1, color=style.TEXT, va="top")
    ax = stop(fig, 0.01, 0.14, "image", "C, H, W", (C, H, W))
    draw_grid(draw_image(image, ax), (H, W), patch_size, style.PATCH)
    draw_patches(stop(fig, 0.19, 0.14, "patches", "N, C·P·P", (N, length)), patches, C, patch_size, (H, W))
    draw_tokens(stop(fig, 0.41, 0.13, "tokens", "T, D", (T, D)), tokens)
    draw_blocks(stop(fig, 0.585, 0.11, f"{depth} blocks", "", ()), depth)
    draw_tokens(stop(fig, 0.735, 0.13, "features", "T, D", (T, D)), features)
    draw_probabilities(stop(fig, 0.925, 0.07, "classes", "K", (K,)), probabilities, class_names)
    middle, class_row = BOTTOM + HEIGHT / 2, BOTTOM + HEIGHT * (1 - 0.5 / T)
    arrow(fig, 0.152, 0.193, middle, "cut")
    arrow(fig, 0.335, 0.405, middle, "project")
    arrow(fig, 0.545, 0.58, middle)
    arrow(fig, 0.695, 0.73, middle)
    arrow(fig, 0.868, 0.9, class_row, "head")
    for y, text, color in ((0.9, "+ class token", style.CLASS_TOKEN), (0.825, "+ positions", style.POSITION)):
        edge = {"facecolor": "white", "edgecolor": color, "linewidth": 2, "pad": 2}  # text in a color is hard to read
        fig.text(0.475, y, text, ha="center", fontsize=style.TEXT_SIZE - 1, color=style.TEXT, bbox=edge)
    return fig


def stop(fig: Figure, left: float, width: float, name: str, letters: str, shape: tuple[int, ...]) -> Axes:
    """Axes of one stop on the way, its name and its shape in letters and numbers beneath"""
    ax = style.hide_axes(fig.add_axes([left, BOTTOM, width, HEIGHT]))
    numbers = ", ".join(str(n) for n in shape)
    for y, text, weight in (
        (0.24, name, "bold"),
        (0.17, f"({letters})" if letters else "", "normal"),
        (0.10, f"({numbers})" if shape else "", "normal"),
    ):
        fig.text(left + width / 2, y, text, ha="center", va="top", fontsize=style.TEXT_SIZE, color=style.TEXT, weight=weight)
    return ax


def draw_patches(ax: Axes, patches: Tensor, channels: int, patch_size: int, image_size: tuple[int, int]) -> None:
    """The patches, moved apart, in their places"""
    H, W = image_size
    P, gap = patch_size, 0.35 * patch_size
    for i, patch in enumerate(patches):
        row, col = divmod(i, W // P)
        picture = patch.reshape(channels, P, P).permute(1, 2, 0)
        x, y = col * (P + gap), row * (P + gap)
        ax.imshow(picture, cmap="gray" if channels == 1 else None, vmin=0, vmax=1, extent=(x, x + P, y + P, y))
        draw_box(ax, (x, y, P, P), style.PATCH, linewidth=1)
    ax.set_xlim(-gap, (W // P) * (P + gap))
    ax.set_ylim((H // P) * (P + gap), -gap)


def draw_tokens(ax: Axes, tokens: Tensor) -> None:
    """Tokens as rows of numbers; the class token is framed and tagged"""
    T, D = tokens.shape
    spread = tokens.abs().quantile(0.98)
    ax.imshow(tokens, cmap=style.VALUES, vmin=-spread, vmax=spread, aspect="auto", interpolation="nearest")
    draw_box(ax, (-0.5, -0.5, D, 1), style.CLASS_TOKEN, linewidth=2, clip_on=False)
    draw_box(ax, (-0.5, 0.5, D, T - 1), style.PATCH, linewidth=2, clip_on=False)


def draw_blocks(ax: Axes, depth: int) -> None:
    """A pile of encoder blocks, read from left to right"""
    shown = min(depth, 3)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    for i in range(shown):
        left = i * 0.9 / shown
        box = FancyBboxPatch(
            (left + 0.03, 0.06),
            0.9 / shown - 0.08,
            0.88,
            boxstyle="round,pad=0.02",
            facecolor="#eef3f8",
            edgecolor=style.QUERY,
        )
        ax.add_patch(box)
        ax.text(
            left + 0.45 / shown,
            0.5,
            "attention, MLP",
            rotation=90,
            ha="center",
            va="center",
            fontsize=style.TEXT_SIZE,
            color=style.TEXT,
        )


def draw_probabilities(ax: Axes, probabilities: Tensor, class_names: Sequence[str]) -> None:
    """A bar a class from 0 to 1, the likeliest in the class token's color with its value"""
    values = torch.as_tensor(probabilities).tolist()
    best = max(range(len(values)), key=values.__getitem__) if len(set(values)) > 1 else None
    for i, value in enumerate(values):
        color = style.CLASS_TOKEN if i == best else style.LINE
        ax.barh(i, value, color=color, height=0.7)
        ax.text(-0.08, i, class_names[i], ha="right", va="center", fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
    if best is not None:
        ax.text(1, best - 0.6, f"{values[best]:.2f}", ha="right", fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
    ax.set_xlim(0, 1)
    ax.set_ylim(len(values) - 0.5, -0.5)
    for x in (0, 1):
        ax.text(x, len(values) - 0.3, str(x), ha="center", va="top", fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
    ax.axvline(1, color=style.LINE, linewidth=0.5)
    ax.axvline(0, color=style.LINE, linewidth=1)


def arrow(fig: Figure, left: float, right: float, height: float, text: str = "") -> None:
    """A thin arrow from left to right, named above, in parts of the figure's width and height"""
    fig.add_artist(
        FancyArrowPatch(
            (left, height), (right, height), transform=fig.transFigure, arrowstyle="-|>", mutation_scale=12, color=style.LINE
        )
    )
    fig.text((left + right) / 2, height + 0.03, text, ha="center", fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
