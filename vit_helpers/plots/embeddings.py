"""Notebook 02: equation 1, numbered patches, tokens with numbers, what a shuffle changes."""

from collections.abc import Sequence

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, draw_table, frame, new_canvas, product, short, write
from vit_helpers.plots.embeddings_positions import draw_numbered_map
from vit_helpers.plots.images import color_bar, draw_grid, draw_image


def number_patches(
    ax: Axes, grid: tuple[int, int], patch_size: int, numbers: Sequence[int] | None = None
) -> Axes:
    """Write its number, or the one given for it, in the middle of every patch of an image.

    grid: rows and columns of patches;  numbers: N of them, for patches that were moved
    """
    rows, cols = grid
    for place, number in enumerate(range(rows * cols) if numbers is None else numbers):
        row, col = divmod(place, cols)
        x, y = ((i + 0.5) * patch_size - 0.5 for i in (col, row))
        text = ax.text(
            x, y, str(number), ha="center", va="center", fontsize=style.TEXT_SIZE - 1, color="black"
        )
        text.set_path_effects(style.HALO)
    return ax


def draw_patch_similarity(
    image: Tensor, patch_size: int, tables: dict[str, Tensor], chosen: Sequence[int]
) -> Figure:
    """Draw, for a few patches, maps of their cosines with all patches.

    Each number in a map is that of the patch in its place.

    image : (C, H, W), from 0 to 1;  tables: {name of a row of maps: its cosines, (N, N)}
    chosen: numbers of patches
    """
    grid = (image.shape[1] // patch_size, image.shape[2] // patch_size)
    numbers = [str(i) for i in range(grid[0] * grid[1])]
    fig = style.blank_figure(9, 3.7, layout="constrained")
    title = "Similar patches become similar tokens, even with random weights"
    style.title_figure(fig, title)
    layout = [["image", *(f"{name} {patch}" for patch in chosen)] for name in tables]
    axes = fig.subplot_mosaic(layout, width_ratios=[1.5, *(1 for _ in chosen)])
    draw_grid(
        draw_image(image, axes["image"], "the patches"),
        (image.shape[1], image.shape[2]),
        patch_size,
    )
    number_patches(axes["image"], grid, patch_size)
    first = next(iter(tables.values()))
    for name, similar in tables.items():
        for patch in chosen:
            ax = axes[f"{name} {patch}"]
            above = f"patch {patch} and the others" if similar is first else None
            _, drawn = draw_numbered_map(similar[patch].reshape(grid), ax, above, patch, numbers)
            drawn.set_cmap(colormaps[style.SIGNED].resampled(21))  # the photo needs many colors
            ax.set_xlabel("")
            ax.set_ylabel(name if patch == chosen[0] else "", fontsize=style.TEXT_SIZE + 1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
    color_bar(drawn, list(axes.values()), "cosine")
    return fig


def draw_equation(
    image: Tensor, x: Tensor, projection: Tensor, class_token: Tensor, positions: Tensor
) -> Figure:
    """Draw equation 1 with its numbers.

    Patches are multiplied by E, the class token is put in front, position embeddings are added.

    image      : (H, W), of which x are the patches, (N, P*P);  projection: (P*P, D)
    class_token: (D,);  positions: (N + 1, D)
    """
    (N, pixels), D, width, side = x.shape, len(class_token), 1.2, round(x.shape[1] ** 0.5)
    tokens = x @ projection
    z0 = torch.cat([class_token[None], tokens]) + positions
    fig, ax = new_canvas(
        pixels + N + 6.6,
        "Equation 1 with numbers: two equal patches differ once positions are added",
    )
    left, top, middle, shape = 8.7, pixels + 4.5, pixels + 5.5 + N / 2, f"(T, D) = ({N + 1}, {D})"
    draw_table(
        ax,
        (2.2, 2.2),
        image,
        style.LINE,
        "image",
        f"(H, W) = ({len(image)}, {len(image[0])})",
        strength=image / 2,
    )
    for i in range(N):
        row, col = divmod(i, len(image[0]) // side)
        frame(ax, (2.2 + col * side, 2.2 + row * side, side, side), style.TEXT)
    names = [f"patch {i}" for i in range(N)]
    draw_table(
        ax,
        (2.2, top + 1),
        x,
        style.PATCH,
        "patches $x_p$",
        f"(N, P·P) = ({N}, {pixels})",
        names,
        strength=x / 2,
    )
    draw_table(
        ax,
        (left, 2.2),
        projection,
        style.LINE,
        "projection $E$",
        f"(P·P, D) = ({pixels}, {D})",
        width=width,
    )
    arrow(ax, (2.5 + pixels, middle), (left - 0.2, middle), "times E")
    write(ax, left - 0.2, top + 0.5, "class token", ha="right")
    for start, rows, name in (
        (left, (class_token[None], tokens), "tokens"),
        (left + 9, (z0[:1], z0[1:]), "result $z_0$"),
    ):
        draw_table(ax, (start, top), rows[0], style.CLASS_TOKEN, name, width=width, digits=1)
        draw_table(ax, (start, top + 1), rows[1], style.PATCH, "", shape, width=width, digits=1)
    draw_table(
        ax,
        (left + 4.5, top),
        positions,
        style.POSITION,
        "position embeddings",
        shape,
        width=width,
        digits=1,
    )
    for sign, x_sign in (("+", left + 4.05), ("=", left + 8.55)):
        write(ax, x_sign, middle, sign, weight="bold")
    numbers = (tokens[0, 0], positions[1, 0], z0[1, 0])
    first, position, total = (short(float(number), 1) for number in numbers)
    lines = (
        "first number of patch 0's token:",
        " ".join(product(x[0], projection[:, 0])),
        "after adding its position embedding:",
        f"{first} + {position} = {total}",
    )
    for line, text in enumerate(lines):
        write(ax, left + 4.5, 2.7 + 0.9 * line, text, ha="left")
    return fig


def draw_changes(
    changes: dict[str, float],
    ax: Axes | None = None,
    title: str | None = None,
    x: str = "",
    scale: dict[str, float] | None = None,
) -> Axes:
    """Draw a few numbers of very different sizes as dots on a logarithmic axis, with their values.

    changes: name of a row, and its number above 0;  x: what the numbers are
    scale  : name and value of a dashed line to compare them with
    """
    ax = style.style_axes(style.new_axes(ax, 6, 2.5), title, x)
    for row, value in enumerate(changes.values()):
        ax.plot(value, row, "o", color=style.SERIES[0], markersize=9)
        text = power_of_ten(value) if value < 0.01 else f"{value:.2f}"
        ax.annotate(
            text,
            (value, row),
            (9, 0),
            textcoords="offset points",
            va="center",
            fontsize=style.TEXT_SIZE,
        )
    for name, value in (scale or {}).items():
        ax.axvline(value, color=style.TEXT, linewidth=1.5, linestyle="--")
        offset = {"xytext": (-6, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
        ax.annotate(f"{name}: {value:.2f}", (value, -0.7), fontsize=style.TEXT_SIZE, **offset)
    ax.set_xscale("log")
    ax.set(ylim=(len(changes) - 0.4, -1.2 if scale else -0.6))
    ax.set_xlim(min(changes.values()) / 5, max([*changes.values(), *(scale or {}).values()]) * 50)
    ax.set_yticks(range(len(changes)), list(changes), fontsize=style.TEXT_SIZE)
    ax.grid(axis="y", color=style.MUTED)
    ax.set_axisbelow(True)
    return ax


def power_of_ten(number: float) -> str:
    r"""Write a number as a factor and a power of ten, for matplotlib

    >>> power_of_ten(1.42e-6)
    '$1.4 \\cdot 10^{-6}$'
    """
    factor, power = f"{number:.1e}".split("e")
    return rf"${factor} \cdot 10^{{{int(power)}}}$"
