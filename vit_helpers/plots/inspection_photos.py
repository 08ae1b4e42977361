"""Notebook 08, further: a model of photos, its filters, its positions, maps over photos."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.embeddings_positions import draw_similarity, frame_maps
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar, draw_image, draw_over, name_row


def draw_filters(patterns: Tensor, groups: Mapping[str, int], columns: int = 10) -> Picture:
    """Draw patterns of filters, a row or more for each group, with the group's name.

    patterns: (n, C, P, P), each scaled by its largest number;  groups: {name: how many}, in order
    """
    sizes = list(groups.values())
    fig = style.blank_figure(9, 1.15 * len(groups) + 0.6, layout="constrained")
    style.title_figure(fig, "The first patterns are smooth and colored, the next ones fine")
    axes = fig.subplots(len(groups), columns, squeeze=False)
    start = 0
    for line, (name, count) in zip(axes, groups.items(), strict=True):
        for i, ax in enumerate(line):
            style.hide_axes(ax)
            if i < count:
                pattern = patterns[start + i]
                draw_image(0.5 + 0.5 * pattern / pattern.abs().max(), ax)
                number = str(start + i + 1)
                ax.set_title(number, fontsize=style.TEXT_SIZE, color=style.TEXT)
        name_row(line[0], name, 0.15)
        start += count
    fig.supxlabel("gray: a weight of 0", fontsize=style.TEXT_SIZE)
    return Picture(
        fig,
        "The principal components of a model's patch filters, in groups.",
        f"{sum(sizes)} numbered patterns of a few pixels in {len(groups)} rows: "
        f"{'; '.join(name.replace(chr(10), ' ') for name in groups)}.",
    )


def draw_positions(similar: Tensor, grid: tuple[int, int]) -> Picture:
    """Draw how similar the position embeddings of all places are, a small map for each.

    similar: (N, N) of cosines;  grid: rows and columns of places
    """
    fig, ax = style.new_figure(7.6, 6)
    title = "Every position resembles its neighbors"
    _, drawn = draw_similarity(similar, grid, ax, title, low=-1, cmap=style.SIGNED)
    color_bar(drawn, frame_maps(ax, grid), "cosine similarity")
    return Picture(
        fig,
        "A small map for each position, of the cosine similarity of its embedding to all others.",
        f"{grid[0]} by {grid[1]} small maps, one for each position: each is darkest red at its own "
        "place and red around it, in the top and bottom rows along the whole row, and in the "
        "outer columns also at the mirrored position.",
    )


def draw_photos(
    images: Tensor, maps: Mapping[str, Tensor], names: Sequence[str], top: float = 4
) -> Picture:
    """Draw photos in a row each, alone and below maps that are all on one scale.

    A map is drawn where it is above its mean.

    images: (B, C, H, W);  maps: {name: (B, rows, cols)};  names: of the photos
    top   : the multiple of a map's mean that is drawn darkest, and all above it
    """
    count = len(maps) + 1
    fig, axes = style.new_figure(9, 3 * len(names) + 0.9, nrows=len(names), ncols=count)
    style.title_figure(fig, "Maps that may look convincing, and have no control")
    for row, name in enumerate(names):
        draw_image(images[row], axes[row, 0])
        name_row(axes[row, 0], name, 0.04, rotation=90)
        for ax, heat in zip(axes[row, 1:], maps.values(), strict=True):
            draw_veil(images[row], heat[row], ax, top)
    for ax, title in zip(axes[0], ("the photo", *maps), strict=True):
        ax.set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
    text = f"opacity: from the mean of a map (none) to {top:g} times the mean or more (full)"
    fig.supxlabel(text, fontsize=style.TEXT_SIZE)
    return Picture(
        fig,
        "Photos, and maps of a model laid over them.",
        f"Photos of {' and '.join(names)}, alone and below maps: {', '.join(maps)}. The maps are "
        "dark on parts of the objects, and also on places beside them.",
    )


def draw_veil(image: Tensor, heat: Tensor, ax: Axes, top: float) -> None:
    """Draw a map over a photo where it is above its mean.  heat: (rows, cols)"""
    times = heat / heat.mean()
    draw_over(image, (times - 1).clamp(0, top - 1), ax, top=top - 1)


def draw_controlled_maps(
    photos: Mapping[str, Tensor], maps: Mapping[str, Sequence[Tensor]], steps: int = 12
) -> Picture:
    """Draw photos, and beside each maps of a large model and their controls.

    Each map is on a scale of its own, and its largest number is written above it. Photos have few
    pixels and maps few shades, so that the figure takes little space.

    photos: {name: (C, H, W)};  maps: {name: (rows, cols) of each photo};  steps: of the opacity
    """
    size = {"nrows": len(photos), "ncols": len(maps) + 1, "squeeze": False}
    fig, axes = style.new_figure(9, 1.75 * len(photos) + 0.9, **size)
    style.title_figure(fig, "Rollout has one patch far above all others")
    for row, (name, photo) in enumerate(photos.items()):
        gray = photo.mean(dim=0, keepdim=True)[None]
        small = F.interpolate(gray, (34, 51), mode="bilinear", antialias=True)[0]
        draw_image(small, axes[row, 0]).set_title(name, fontsize=style.TEXT_SIZE)
        for ax, (kind, heats) in zip(axes[row, 1:], maps.items(), strict=True):
            heat = heats[row]
            shades = ((heat / heat.max()).sqrt() * steps).round() / steps
            draw_over(torch.ones(1, *heat.shape), heat.max() * shades.square(), ax)
            title = f"{heat.max() / heat.mean():.0f} x mean"
            title = title if row else f"{kind}\n{title}"
            ax.set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
    text = "above each map: its largest number; the darker, the larger (square root, from 0)"
    fig.supxlabel(text, fontsize=style.TEXT_SIZE)
    rollouts = [f"{h.max() / h.mean():.0f}" for h in maps.get("rollout", ())[: len(photos)]]
    return Picture(
        fig,
        "Photos, a row each, with maps of a large model and controls beside them.",
        f"Photos of {', '.join(photos)} with {len(maps)} maps each ({'; '.join(maps)}). The last "
        "block is dark on parts of the objects, edges on outlines. Of rollout a single patch is "
        f"dark, {' and '.join(rollouts)} times the mean.",
    )
