"""Pictures of what a ViT looks at: heads over an image, how far they look, how well maps find what they should."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_attention, draw_box, draw_image, draw_over


def draw_look(
    image: Tensor,
    maps: Tensor,
    patch_size: int,
    head: int,
    query: tuple[int, int] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    top: float | None = None,
) -> tuple[Axes, AxesImage]:
    """One head's map over the image, the patch that asks framed.

    image: (C, H, W), from 0 to 1; maps: (h, rows, cols) of one layer; head: which; query: (row, column), None: class token
    top  : the weight drawn brightest; by default the largest of all heads, so that heads can be compared
    returns: the axes, and what was drawn, for `color_bar`
    """
    top = maps.max().item() if top is None else top
    _, rows, cols = maps.shape
    ax, drawn = draw_attention(image, maps[head].flatten(), (rows, cols), ax, title, top)
    if query is not None:
        row, col = query
        P = patch_size
        draw_box(ax, (col * P - 0.5, row * P - 0.5, P, P), style.QUERY, linewidth=2, path_effects=style.HALO)
    return ax, drawn


def draw_heads(
    image: Tensor,
    maps: Sequence[Tensor],
    patch_size: int,
    notes: Sequence[Sequence[str]] | None = None,
    query: tuple[int, int] | None = None,
    top: float | None = None,
) -> Figure:
    """All heads of all layers on one figure and one scale; returns the figure.

    maps : a list of L tensors (h, rows, cols); notes: for each layer h texts, the entropies, to stand over the maps
    top  : the weight drawn brightest; by default the largest of all
    """
    top = max(layer.max().item() for layer in maps) if top is None else top
    L, h = len(maps), len(maps[0])
    fig, axes = style.new_figure(9, L * (9 / (h + 0.7) + 0.3), nrows=L, ncols=h, squeeze=False)
    for layer, row in enumerate(axes):
        for head, ax in enumerate(row):
            words = [f"head {head + 1}"] * (layer == 0) + ([f"entropy {notes[layer][head]}"] if notes else [])
            note = ", ".join(words) or None
            _, drawn = draw_look(image, maps[layer], patch_size, head, query, ax, note, top)
        beside = {"transform": row[0].transAxes, "rotation": 90, "ha": "right", "va": "center", "color": style.TEXT}
        row[0].text(-0.05, 0.5, f"layer {layer + 1}", fontsize=style.TEXT_SIZE, **beside)  # bare axes show no label
    color_bar(drawn, list(axes.flat), "attention weight")
    return fig


def draw_distances(distances: Sequence[Sequence[float]] | Tensor, ax: Axes | None = None, title: str | None = None) -> Axes:
    """How far each head of each layer looks: a dot a head.  distances: (L, h), in pixels"""
    ax = style.new_axes(ax, 6, 3)
    for layer, heads in enumerate(distances, start=1):
        ax.plot([layer] * len(heads), heads, "o", color=style.QUERY, ms=6)
    ax.set_xticks(range(1, len(distances) + 1))
    ax.set_ylim(bottom=0)
    style.style_axes(ax, title, "layer", "mean distance (pixels)")
    return ax


def draw_beside(image: Tensor, title: str, maps: Mapping[str, Tensor], label: str) -> Figure:
    """An image, and beside it each of the maps laid over it, with a scale of its own; returns the figure.

    image: (C, H, W), from 0 to 1;  maps: {title: (rows, cols)};  label: what the colors mean
    """
    fig, (left, *others) = style.new_figure(11, 4, ncols=1 + len(maps))
    draw_image(image, left, title)
    for ax, (name, heat) in zip(others, maps.items(), strict=True):
        _, drawn = draw_over(image, heat, ax, name)
        color_bar(drawn, ax, label)
    return fig
