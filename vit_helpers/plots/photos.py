"""Pictures of photos with maps laid over them."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_image, draw_over


def draw_photos(photos: Sequence[str], columns: Sequence[tuple[str, Tensor, Tensor | None]]) -> Figure:
    """A row for each photo: the images, and maps laid over them, each on a scale of its own from its smallest value.

    photos: their names;  columns: title, images (B, C, H, W), and maps (B, rows, cols), or None for the images alone
    """
    side = 9 / len(columns)
    fig, axes = style.new_figure(9, len(photos) * side + 0.3, nrows=len(photos), ncols=len(columns))
    for row, name in enumerate(photos):
        for ax, (title, images, maps) in zip(axes[row], columns, strict=True):
            if maps is None:
                draw_image(images[row], ax)
            else:
                draw_over(images[row], maps[row] - maps[row].min(), ax)
            ax.set_title("" if row else title, fontsize=style.TEXT_SIZE, color=style.TEXT)
        beside = {"transform": axes[row, 0].transAxes, "rotation": 90, "ha": "right", "va": "center"}
        axes[row, 0].text(-0.05, 0.5, name, fontsize=style.TEXT_SIZE, color=style.TEXT, **beside)
    return fig


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
