"""Notebook 01: rows of patches, the values in one of them, shifts, what smaller ones cost."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_box, draw_grid, draw_image

WORDS = {"fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}


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


def draw_statistics(
    image: Tensor, filters: Tensor, values: Tensor, titles: Sequence[str], top: float
) -> Figure:
    """Draw a photo, and three filters above what they measure on its patches.

    One measures brightness, the other two differences, on one scale.

    image : (3, H, W), from 0 to 1;  filters: (3, 3, P, P), equal along their columns
    values: (3, rows, cols)
    titles: 4 texts; top: the difference drawn darkest
    """
    fig, axes = style.new_figure(9, 3.9, nrows=2, ncols=4, height_ratios=[1, 2.0])
    fig.get_layout_engine().set(h_pad=0.1)
    style.hide_axes(axes[0, 0]).text(
        0, 0.5, "three filters,\nas they weight\nred, green, blue", va="center", **WORDS
    )
    draw_image(image, axes[1, 0], titles[0])
    for ax, filter, title in zip(axes[0, 1:], filters, titles[1:], strict=True):
        draw_filter(filter, float(filters.abs().max()), ax, title)
    gray = axes[1, 1].imshow(values[0], cmap="gray", vmin=0, vmax=1)
    for ax, map in zip(axes[1, 2:], values[1:], strict=True):
        drawn = ax.imshow(map, cmap=style.SIGNED, vmin=-top, vmax=top)
    for ax in axes[1]:
        style.hide_axes(ax, ax.get_title(loc="left")).set_anchor("NW")
    for shown, below, label, extend in (
        (gray, axes[1, 1:2], "brightness", "neither"),
        (drawn, axes[1, 2:], "difference", "both"),
    ):
        bar = color_bar(shown, below, label, extend=extend, location="bottom")
    bar.set_ticks([-top, 0, top])
    return fig


def draw_filter(filter: Tensor, limit: float, ax: Axes, title: str | None = None) -> Axes:
    """Draw a filter as one square of pixels for each channel.

    The weight is written on each run of equal columns.

    filter: (3, P, P), equal along its columns; limit: the weight drawn darkest
    """
    ax, P = style.hide_axes(ax, title), filter.shape[1]
    for i, (channel, name) in enumerate(zip(filter, "RGB", strict=True)):
        left = i * (P + 0.6)
        drawn = ax.pcolormesh(
            left + torch.arange(P + 1),
            torch.arange(P + 1),
            channel,
            cmap=style.SIGNED,
            vmin=-limit,
            vmax=limit,
            edgecolors=style.MUTED,
            linewidth=0.5,
        )
        ax.text(left + P / 2, -0.3, name, ha="center", va="bottom", **WORDS)
        weights, widths = channel[0].unique_consecutive(return_counts=True)
        for weight, width, end in zip(
            weights.tolist(), widths.tolist(), widths.cumsum(0).tolist(), strict=True
        ):
            color = drawn.to_rgba([weight])[0]
            ground = {"facecolor": color, "edgecolor": "none", "pad": 0.5}
            options = {
                "ha": "center",
                "va": "center",
                "rotation": 0 if width == P else 90,
                "fontsize": style.TEXT_SIZE - 1,
            }
            ax.text(
                left + end - width / 2,
                P / 2,
                fraction(weight),
                color=style.ink_on(color),
                bbox=ground,
                **options,
            )
    ax.set(xlim=(0, 3 * P + 1.2), ylim=(P, -1.6), aspect="equal", anchor="SW")
    return ax


def fraction(number: float) -> str:
    """Write a number as a fraction with a small denominator

    >>> fraction(1 / 48), fraction(-0.0416667), fraction(0)
    ('1/48', '−1/24', '0')
    """
    return str(Fraction(number).limit_denominator(1000)).replace("-", "−")


def draw_shifts(
    image: Tensor, width: int, patch_size: int, shifts: Sequence[int], place: tuple[int, int]
) -> Figure:
    """Draw windows of an image that start further and further to the right.

    Each has one patch framed, and enlarged below.

    image: (C, H, W), from 0 to 1;  width: of a window, in pixels
    place: row and column of the framed patch in the first window; in the others it follows the
           image by whole patches
    """
    fig, axes = style.new_figure(9, 5.2, nrows=2, ncols=len(shifts), height_ratios=[3, 2])
    P, (row, col) = patch_size, place
    cut = [
        image[:, P * row : P * (row + 1), shift + x : shift + x + P]
        for shift, x in framed_at(shifts, P, col)
    ]
    for i, ((shift, x), patch) in enumerate(zip(framed_at(shifts, P, col), cut, strict=True)):
        window = image[:, :, shift : shift + width]
        draw_grid(
            draw_image(window, axes[0, i], f"Window shifted by {shift} pixels"),
            (window.shape[1], width),
            P,
        )
        draw_box(axes[0, i], (x - 0.5, P * row - 0.5, P, P), style.PATCH, linewidth=3, zorder=3)
        n = row * (width // P) + x // P
        same = "same values" if torch.equal(patch, cut[0]) else "other values"
        draw_image(patch, axes[1, i], f"Patch {n}" + (f": {same}" if i else ""))
        draw_box(axes[1, i], (-0.5, -0.5, P, P), style.PATCH, linewidth=3, clip_on=False)
    return fig


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


def draw_costs(
    sides: Sequence[int],
    costs: Mapping[str, tuple[Sequence[float], str, str, str]],
    ax: Axes | None = None,
    title: str | None = None,
    marked: Sequence[int] = (),
) -> Axes:
    """Draw lines over the patch size, both axes logarithmic, each with its name at its end.

    costs : {name: (values, color, line style, "bottom", "center" or "top": where the name is)}
    marked: patch sizes of published models, from large to small
    """
    ax = style.style_axes(
        style.new_axes(ax), title, "patch size P (pixels)", "billion multiply-adds"
    )
    options = {"textcoords": "offset points", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    for name, (values, color, dashes, side) in costs.items():
        ax.loglog(sides, values, dashes, color=color, marker="o", linewidth=2)
        ax.annotate(name, (sides[-1], values[-1]), (8, 0), va=side, **options)
    for published in marked:
        ax.axvline(published, color=style.LINE, linewidth=1, zorder=1)
    if marked:
        text = "published models: P = " + ", ".join(map(str, marked))
        ax.annotate(
            text, (marked[-1], 1), (8, -4), xycoords=("data", "axes fraction"), va="top", **options
        )
    ax.set_xticks(sides)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.invert_xaxis()
    return ax
