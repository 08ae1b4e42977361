"""Notebook 01: a photo as a row of patches, hidden patches, shifts, what smaller ones cost."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import NullLocator, ScalarFormatter
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box, draw_grid, draw_image

WORDS = {"fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
PUBLISHED = (32, 16, 14, 8)  # patch sizes of published models: of the ViT paper, and of DINO
LINES = 4  # of a sequence of patches that is too long for one


def draw_question(
    photo: Tensor, size: tuple[int, int] = (96, 112), patch_size: int = 16
) -> Picture:
    """Draw a photo as people see it, and beside it the row of patches that a ViT gets.

    photo: (C, H, W), from 0 to 1;  size: (H, W) to which its left part is reduced
    """
    H, W = size
    photo = photo[:, :, : photo.shape[1] * W // H]
    reduced = F.interpolate(photo[None], size=size, mode="bicubic", antialias=True).clamp(0, 1)
    patches = F.unfold(reduced, patch_size, stride=patch_size)[0].mT
    fig = style.blank_figure(9, 3.3, layout="constrained")
    style.title_figure(fig, "The ViT gets the pieces, one after another")
    grid = fig.add_gridspec(LINES, 2, width_ratios=[1, 1.7])
    draw_image(photo, fig.add_subplot(grid[:, 0]), "what you see")
    lines = patches.chunk(LINES)
    for i, line in enumerate(lines):
        ax = draw_row(line, len(photo), fig.add_subplot(grid[i, 1]), gap=2)
        ax.set(xlim=(-0.5, len(lines[0]) * (patch_size + 2) - 2.5), anchor="W")
        if not i:
            style.hide_axes(ax, "what the ViT gets")
    return Picture(
        fig,
        "A photo of a pagoda, and the same photo cut into patches that stand in a row.",
        f"A photo of a pagoda between sky, lake and trees; beside it {len(patches)} small squares "
        f"cut out of it, in {len(lines)} lines, from which it is hard to recognize.",
    )


def draw_sequence(photo: Tensor, patches: Tensor, patch_size: int, framed: int) -> Picture:
    """Draw the patches of a photo in their places, and below as a sequence.

    photo : (C, H, W), from 0 to 1;  patches: (N, C*P*P) of the same photo
    framed: the number of the patch to frame
    """
    fig, axes = style.new_figure(9, 6, nrows=3, height_ratios=[7, 1, 1])
    rows, cols = (side // patch_size for side in photo.shape[1:])
    style.title_figure(fig, "Neighbors in a column are apart in the sequence")
    draw_numbered(photo, patch_size, axes[0], framed=framed)
    style.style_axes(axes[0], None, "column c of the grid", "row r")
    half = -(-len(patches) // 2)
    title = "the same patches as a sequence, which continues in the second line"
    draw_row(patches[:half], len(photo), axes[1], title, first=0, framed=framed)
    draw_row(patches[half:], len(photo), axes[2], first=half, framed=framed)
    return Picture(
        fig,
        "A photo under a grid of numbered patches, and below it the same patches in a sequence.",
        f"The photo under a grid of {rows} rows and {cols} columns, each patch with its number "
        f"from 0 to {len(patches) - 1}; below, the same patches side by side in that order. "
        f"Patch {framed}, in row {framed // cols}, column {framed % cols}, is framed.",
    )


def draw_hidden(hidden: Tensor, shuffled: Tensor) -> Picture:
    """Draw an image with some of its patches hidden, and with its patches in random order.

    hidden, shuffled: (C, H, W), from 0 to 1
    """
    fig, axes = style.new_figure(9, 3.9, ncols=2)
    style.title_figure(fig, "Each piece is intact, but what is left of the photo?")
    draw_image(hidden, axes[0], "some patches hidden")
    draw_image(shuffled, axes[1], "all patches, in random order")
    return Picture(
        fig,
        "A photo with some patches hidden, and the same photo with all patches in random order.",
        "A photo of a pagoda on which some patches are gray; and all of its patches in random "
        "order, a mosaic in which pieces of roof, sky and trees are scattered.",
    )


def draw_holders(photo: Tensor, masks: Mapping[str, Tensor]) -> Picture:
    """Draw which values of a photo are in a patch, for more than one way to cut it.

    photo: (C, H, W), from 0 to 1;  masks: {title: (C, H, W), 1 where a value is in the patch}
    """
    fig, axes = style.new_figure(9, 4, ncols=len(masks))
    style.title_figure(fig, "A single view makes a band of one color")
    held = []
    for ax, (title, mask) in zip(axes, masks.items(), strict=True):
        draw_holding(photo, mask, ax, title)
        channels, lines, columns = (axis.unique() for axis in mask.nonzero().T)
        color = f"{len(channels)} colors" if len(channels) > 1 else "one color"
        held.append(f"{title}: {len(lines)} lines, {len(columns)} columns, {color}")
    return Picture(
        fig,
        "What one patch contains, outlined on a photo in gray, for each way to cut it.",
        f"What one patch contains, outlined on the photo in gray. {'; '.join(held)}.",
    )


def draw_row(
    patches: Tensor,
    channels: int,
    ax: Axes | None = None,
    title: str | None = None,
    gap: int = 2,
    first: int | None = None,
    framed: int | None = None,
) -> Axes:
    """Draw patches side by side in one line.

    patches: (n, C*P*P), from 0 to 1, channel by channel;  gap: white pixels between them
    first  : the number of the first one, if numbers are to be written below
    framed : the number of one to frame
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 1), title)
    pictures = patches.detach().cpu().reshape(len(patches), channels, -1)
    P = round(pictures.shape[2] ** 0.5)
    line = torch.ones(P, len(patches) * (P + gap) - gap, channels)
    for i, picture in enumerate(pictures):
        left = i * (P + gap)
        line[:, left : left + P] = picture.reshape(channels, P, P).permute(1, 2, 0)
        if first is not None:
            ax.text(left + P / 2 - 0.5, P + 1, str(first + i), ha="center", va="top", **WORDS)
        if first is not None and first + i == framed:
            draw_box(ax, (left - 0.5, -0.5, P, P), style.PATCH, linewidth=3, clip_on=False)
    ax.imshow(line.clamp(0, 1).squeeze(2), cmap="gray" if channels == 1 else None, vmin=0, vmax=1)
    return ax


def draw_numbered(
    image: Tensor, patch_size: int, ax: Axes | None = None, framed: int | None = None
) -> Axes:
    """Draw an image under the grid of its patches, each with its number.

    Rows and columns of the grid are on the axes.

    image: (C, H, W), from 0 to 1;  framed: the number of the patch to frame
    """
    (H, W), P = image.shape[1:], patch_size
    rows, cols = H // P, W // P
    ax = draw_grid(draw_image(image, style.new_axes(ax, 5, 4)), (H, W), P)
    ax.set_axis_on()
    ax.set(
        xticks=[P * (c + 0.5) - 0.5 for c in range(cols)],
        yticks=[P * (r + 0.5) - 0.5 for r in range(rows)],
    )
    ax.set(xticklabels=range(cols), yticklabels=range(rows))
    ax.tick_params(length=0)
    for n in range(rows * cols):
        x, y = (P * i - 0.5 for i in (n % cols, n // cols))
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        ax.text(x + P / 16, y + P / 16, str(n), ha="left", va="top", bbox=ground, **WORDS)
        if n == framed:
            draw_box(ax, (x, y, P, P), style.PATCH, linewidth=3, zorder=3)
    return ax


def draw_shifts(
    image: Tensor, width: int, patch_size: int, shifts: Sequence[int], place: tuple[int, int]
) -> Picture:
    """Draw windows of an image that start further and further to the right.

    Each has one patch framed, and enlarged below.

    image: (C, H, W), from 0 to 1;  width: of a window, in pixels
    place: row and column of the framed patch in the first window; in the others it follows the
           image by whole patches
    """
    fig, axes = style.new_figure(9, 4.6, nrows=2, ncols=len(shifts), height_ratios=[3, 2])
    style.title_figure(fig, "A shift moves the content inside a patch, or whole patches")
    P, (row, col) = patch_size, place
    kept = []
    for i, (shift, x) in enumerate(framed_at(shifts, P, col)):
        window = image[:, :, shift : shift + width]
        patch = window[:, P * row : P * (row + 1), x : x + P]
        draw_grid(draw_image(window, axes[0, i], f"shift {shift}"), (window.shape[1], width), P)
        draw_box(axes[0, i], (x - 0.5, P * row - 0.5, P, P), style.PATCH, linewidth=3, zorder=3)
        draw_image(patch, axes[1, i], f"patch {row * (width // P) + x // P}")
        draw_box(axes[1, i], (-0.5, -0.5, P, P), style.PATCH, linewidth=3, clip_on=False)
        first = image[:, P * row : P * (row + 1), P * col : P * (col + 1)]
        if i and torch.equal(patch, first):
            kept.append(shift)
    return Picture(
        fig,
        "Windows of a photo that start further and further to the right, each with a framed "
        "patch, and this patch enlarged.",
        f"The photo, shifted by {', '.join(map(str, shifts))} pixels, with one patch framed and "
        "enlarged below. It has the same values as without a shift only after "
        f"{', '.join(map(str, kept))} pixels, one place further left.",
    )


def framed_at(shifts: Sequence[int], patch_size: int, col: int) -> list[tuple[int, int]]:
    """List each shift, with the left edge of the framed patch in its window

    >>> framed_at((0, 8, 16), 16, 3)
    [(0, 48), (8, 48), (16, 32)]
    """
    return [(shift, patch_size * (col - shift // patch_size)) for shift in shifts]


def draw_holding(
    image: Tensor, mask: Tensor, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw the values of an image that a patch contains in pale colors, others in gray.

    image, mask: (C, H, W); the mask is 1 or 0
    """
    gray, held = 0.35 + 0.4 * image.mean(dim=0, keepdim=True), mask.any(dim=0)
    ax = draw_image(
        torch.where(held, 0.45 * image * mask + 0.55 * gray, gray), style.new_axes(ax, 4, 3), title
    )
    around = torch.nn.functional.pad(held, (1, 1, 1, 1))
    below, beside = around[1:, 1:-1] != around[:-1, 1:-1], around[1:-1, 1:] != around[1:-1, :-1]
    lines = [((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)) for y, x in below.nonzero().tolist()]
    lines += [((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)) for y, x in beside.nonzero().tolist()]
    options = {"colors": style.PATCH, "linewidths": 2.5, "capstyle": "projecting", "clip_on": False}
    ax.add_collection(LineCollection(lines, **options))
    return ax


def draw_costs(costs: Mapping[str, Sequence[float]], sides: Sequence[int]) -> Picture:
    """Draw lines over the patch size, both axes logarithmic, each with its name at its end.

    costs: {name: billion multiply-adds for each side};  sides: patch sizes, from large to small
    """
    fig, ax = style.new_figure(9, 3.8)
    title = "Halving P: linear layers cost 4x, attention 16x"
    style.style_axes(ax, title, "patch size P (pixels)", "billion multiply-adds")
    options = {"textcoords": "offset points", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    colors = (style.PATCH, style.SERIES[2], style.SERIES[0])
    for (name, values), color, line in zip(costs.items(), colors, (":", "--", "-"), strict=True):
        ax.loglog(sides, values, line, color=color, marker="o", linewidth=2)
        ax.annotate(name, (sides[-1], values[-1]), (8, 0), va="center", **options)
    for published in PUBLISHED:
        ax.axvline(published, color=style.LINE, linewidth=1, zorder=1)
    marked = f"published models: P = {', '.join(map(str, PUBLISHED))}"
    top = {"xycoords": ("data", "axes fraction"), "va": "top"}
    ax.annotate(marked, (PUBLISHED[-1], 1), (8, -4), **options, **top)
    ax.set_xticks(sides)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_xaxis()
    largest = [max(costs, key=lambda name: costs[name][i]) for i in range(len(sides))]
    return Picture(
        fig,
        "The cost of the parts of a ViT against the patch size, on logarithmic axes.",
        f"Multiply-adds of {', '.join(costs)} over P = {', '.join(map(str, sides))}, with the "
        f"patch sizes of published models marked. The largest part is, in this order: "
        f"{', '.join(largest)}.",
    )
