"""Notebook 01: the filters of a patch embedding, and what they measure on a photo."""

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar, draw_box, draw_image, name_row

SPREAD = 2.5  # standard deviations at which the colors of a map end
TOP = 0.3  # the difference between colors from 0 to 1 at which the colors of a map end


def draw_by_hand(photo: Tensor, filters: Mapping[str, Tensor], maps: Tensor) -> Picture:
    """Draw a photo, and filters made by hand above what they measure on its patches.

    photo  : (3, H, W), from 0 to 1
    filters: {name: (3, P, P)}; the first is a mean, the others are differences
    maps   : (filters, rows, cols), the filters' values on the patches
    """
    fig, axes = style.new_figure(
        9, 3.9, nrows=2, ncols=1 + len(filters), height_ratios=[1, 2.2], squeeze=False
    )
    style.title_figure(fig, "Each filter measures one thing in every patch")
    style.hide_axes(axes[0, 0])
    name_row(axes[0, 0], "three filters", -1)
    draw_image(photo, axes[1, 0])
    for ax, (name, kernel) in zip(axes[0, 1:], filters.items(), strict=True):
        draw_kernel(kernel, ax)
        ax.set_title(name, fontsize=style.TEXT_SIZE, color=style.TEXT)
    style.hide_axes(axes[1, 1]).imshow(maps[0], cmap="gray", vmin=0, vmax=1)
    for ax, values in zip(axes[1, 2:], maps[1:], strict=True):
        drawn = draw_map(values, ax, TOP)
    bar = color_bar(drawn, axes[1], "difference", extend="both")
    bar.set_ticks([-TOP, 0, TOP])
    return Picture(
        fig,
        "A photo of a pagoda, and filters above the maps of what they measure on its patches.",
        f"A photo of a pagoda, and filters above their maps: {', '.join(filters)}. The first map "
        "is a small gray pagoda. The second is red along the right sides of the tower and blue "
        "along the left ones. The third is blue in the sky, and red on walls and trees.",
    )


def draw_maps(layers: Mapping[str, tuple[Tensor, Tensor]]) -> Picture:
    """Draw filters of a few layers above what they measure on a photo.

    layers: {name: filters (n, 3, P, P), and their values on the patches (n, rows, cols)}
    """
    count = max(len(filters) for filters, _ in layers.values())
    fig, axes = style.new_figure(
        9, 2.3 * len(layers), nrows=2 * len(layers), ncols=count, squeeze=False
    )
    fig.get_layout_engine().set(rect=(0.01, 0, 0.99, 1))  # names of rows reach to the edge
    style.title_figure(fig, "Filters and their maps become different in training")
    for i, (name, (filters, maps)) in enumerate(layers.items()):
        upper, lower = axes[2 * i : 2 * i + 2]
        for ax, kernel in zip(upper, filters, strict=True):
            draw_kernel(kernel, ax)
        for ax, values in zip(lower, maps, strict=True):
            drawn = draw_map((values - values.mean()) / values.std(), ax, SPREAD)
        name_row(upper[0], f"{name}:\nfilters", 0.15)
        name_row(lower[0], "maps", 0.15)
    bar = color_bar(drawn, axes, "standard deviations from the mean", extend="both")
    bar.set_ticks([-SPREAD, 0, SPREAD])
    return Picture(
        fig,
        "Filters of a patch embedding, and the maps of what they measure on a photo of a pagoda, "
        "before and after training.",
        f"{count} filters and their maps for {' and '.join(layers)}. Before, most maps divide the "
        "photo into sky and everything else; after, more of them show lines or the edges of the "
        "tower.",
    )


def draw_brightness(layers: Mapping[str, Tensor]) -> Picture:
    """Draw for each layer how many filters measure little but brightness.

    layers: {name: (D,), correlation of each filter's values with the brightness, without sign}
    """
    fig, axes = style.new_figure(9, 2.6, ncols=len(layers))
    style.title_figure(fig, "Training leaves few filters that measure brightness")
    shares = []
    for ax, (name, values) in zip(axes, layers.items(), strict=True):
        ax.hist(values.tolist(), bins=10, range=(0, 1), color=style.SERIES[0], edgecolor="white")
        style.style_axes(ax, name, "correlation with brightness, without sign", "filters")
        ax.set(xlim=(0, 1), xticks=(0, 0.5, 1), ylim=(0, len(values) / 2))
        shares.append(f"{name} {int((values > 0.9).sum())} of {len(values)}")
    return Picture(
        fig,
        "How many filters of a patch embedding measure little but brightness, before and after "
        "training.",
        "Bars: how many filters have maps that correlate with the brightness, by the size of the "
        f"correlation. Above 0.9: {', '.join(shares)}.",
    )


def draw_components(components: Tensor, columns: int = 8) -> Picture:
    """Draw principal components of a model's filters.

    components: (n, 3, P, P), the most important first
    """
    rows = -(-len(components) // columns)
    fig, axes = style.new_figure(9, 0.4 + 1.12 * rows, nrows=rows, ncols=columns, squeeze=False)
    style.title_figure(fig, "A large model's filters are made of spots and stripes")
    for ax in axes.flat:
        style.hide_axes(ax)
    for ax, kernel in zip(axes.flat, components, strict=False):
        draw_kernel(kernel, ax)
    return Picture(
        fig,
        "Principal components of the patch filters of a large model, as small images.",
        f"{len(components)} principal components as small images of {components.shape[2]} x "
        f"{components.shape[3]} pixels: light and dark spots and stripes, mostly without color.",
    )


def draw_kernel(kernel: Tensor, ax: Axes) -> Axes:
    """Draw a filter as a small image, in which gray stands for a weight of 0.  kernel: (3, P, P)"""
    draw_image(0.5 + kernel / kernel.abs().max().clamp(min=1e-12) / 2, ax)
    P = kernel.shape[-1]
    draw_box(ax, (-0.5, -0.5, P, P), style.MUTED, linewidth=1, clip_on=False)
    return ax


def draw_map(values: Tensor, ax: Axes, top: float) -> AxesImage:
    """Draw one value for each patch.  values: (rows, cols);  top: the value drawn darkest"""
    options: dict[str, Any] = {"cmap": style.SIGNED, "vmin": -top, "vmax": top}
    return style.hide_axes(ax).imshow(torch.as_tensor(values).detach(), **options)
