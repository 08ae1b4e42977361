"""Notebook 02: a shuffled photo and a model's answers, equation 1, patches and their tokens."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, draw_table, frame, new_canvas, product, short, write
from vit_helpers.plots.embeddings_positions import draw_numbered_map
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar, draw_bars, draw_grid, draw_image, middle_square


def draw_question(photo: Tensor, rows: int = 8, seed: int = 0) -> Picture:
    """Draw the middle of a photo cut into squares, and the same squares in random order.

    photo: (C, H, W), from 0 to 1;  rows: squares along each side
    """
    square = middle_square(photo)
    P = square.shape[-1] // rows
    square = square[None, :, : P * rows, : P * rows]
    size = (P * rows, P * rows)
    order = torch.randperm(rows**2, generator=torch.Generator().manual_seed(seed))
    squares = F.unfold(square, P, stride=P)[:, :, order]
    shuffled = F.fold(squares, size, P, stride=P)
    fig, axes = style.new_figure(8, 4, ncols=2)
    style.title_figure(fig, "The same squares, and only their places have changed")
    for ax, image, title in zip(
        axes, (square, shuffled), ("a photo", "its squares in random order"), strict=True
    ):
        draw_grid(draw_image(image[0], ax, title), size, P)
    return Picture(
        fig,
        "A photo of a cat cut into squares, and the same squares in random order.",
        f"The face of a cat, cut into {rows**2} squares, and a mosaic of the same squares in "
        "random order, in which the cat is hard to find.",
    )


def draw_answers(images: Sequence[Tensor], answers: Mapping[str, Sequence[float]]) -> Picture:
    """Draw a photo and its shuffled patches, and how probable a few models find one class.

    images : two of (C, H, W), from 0 to 1
    answers: {name of a model: a probability for each image}
    """
    fig, axes = style.new_figure(9, 2.6, ncols=2 + len(answers), width_ratios=[1, 1, 1.5, 1.5])
    same = next(name for name, values in answers.items() if max(values) - min(values) < 1e-3)
    style.title_figure(fig, f"{same.capitalize()}, the shuffle changes nothing")
    names = ("photo", "shuffled")
    for ax, image, name in zip(axes, images, names, strict=False):
        draw_image(image, ax, name)
    for ax, (name, values) in zip(axes[2:], answers.items(), strict=True):
        draw_bars(values, names, ax, name.replace("position ", "position\n"))
        for row, value in enumerate(values):
            ax.text(value - 0.03, row, f"{value:.3f}", ha="right", va="center", fontsize=11)
        ax.set_xlabel("probability of “cat”", fontsize=style.TEXT_SIZE)
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    pairs = [f"{name} {x:.3f} and {y:.3f}" for name, (x, y) in answers.items()]
    return Picture(
        fig,
        "A photo of a cat, its shuffled patches, and how probable each model finds a cat.",
        "A photo of a cat, its shuffled patches, and bars for the probability of a cat: "
        f"{', '.join(pairs)}.",
    )


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
    image: Tensor, patch_size: int, tables: Mapping[str, Tensor], patch: int
) -> Picture:
    """Draw the cosines of one patch with all patches, and all pairs of two tables of cosines.

    image : (C, H, W), from 0 to 1
    tables: {what was compared: its cosines, (N, N)}, two of them
    patch : the number of the patch that is framed
    """
    (H, W), P = image.shape[1:], patch_size
    numbers = [str(i) for i in range(H // P * (W // P))]
    fig, grid = style.new_figure(9, 6.2, nrows=2, ncols=2)
    axes = grid.flatten()
    style.title_figure(fig, "Similar patches become similar tokens, even with random weights")
    draw_grid(draw_image(image, axes[0], "the patches"), (H, W), P)
    number_patches(axes[0], (H // P, W // P), P)
    for ax, (name, similar) in zip(axes[1:3], tables.items(), strict=True):
        values = similar[patch].reshape(H // P, W // P)
        _, drawn = draw_numbered_map(values, ax, f"{patch}, by {name}", patch, numbers)
        style.hide_axes(ax, f"{patch}, by {name}")
    color_bar(drawn, axes[2], "cosine", location="bottom")
    pairs = torch.ones_like(similar, dtype=torch.bool).triu(1)
    x, y = (similar[pairs] for similar in tables.values())
    axes[3].plot(x, y, ".", color=style.SERIES[0], markersize=4)
    style.style_axes(axes[3], "all pairs", *(f"cosine of {name}" for name in tables))
    axes[3].set(xlim=(-1, 1), ylim=(-1, 1), xticks=[-1, 0, 1], yticks=[-1, 0, 1], aspect=1)
    correlation = torch.corrcoef(torch.stack([x, y]))[0, 1]
    return Picture(
        fig,
        "A photo with numbered patches, maps of the patches that resemble one of them, and a dot "
        "for every pair of patches.",
        f"Maps of the patches that resemble patch {patch}, by {' and by '.join(tables)}, look "
        f"alike. A dot for each pair of patches lies near the diagonal: correlation "
        f"{correlation:.3f}.",
    )


def draw_equation(
    image: Tensor, x: Tensor, projection: Tensor, class_token: Tensor, positions: Tensor
) -> Picture:
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
    equal = [f"{i} and {j}" for i, j in combinations(range(N), 2) if torch.equal(x[i], x[j])]
    return Picture(
        fig,
        "A small image, its patches, their tokens with the class token in front, the position "
        "embeddings, and the sum, with all numbers in cells.",
        f"An image, its {N} patches as rows of {pixels} numbers, the matrix E, the tokens with the "
        "class token in front, the position embeddings, and their sum. Equal patches, "
        f"{', '.join(equal)}, have equal tokens and different rows of the sum.",
    )
