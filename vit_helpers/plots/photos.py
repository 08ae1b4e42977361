"""Pictures of photos with maps laid over them."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_image, draw_over


def draw_photos(photos: Sequence[str], columns: Sequence[tuple[str, Tensor, Tensor | None]]) -> Figure:
    """A row for each photo: the images, and maps laid over them, where they are above their mean.

    photos : the names of those that are drawn, the first ones
    columns: title, images (B, C, H, W), and maps (B, rows, cols), or None for the images alone. The maps of a column have
             one scale, which its title names in multiples of the mean
    """
    side = 8.6 / len(columns)
    fig, axes = style.new_figure(8.6, len(photos) * side + 0.3, nrows=len(photos), ncols=len(columns))
    for line, (title, images, maps) in zip(axes.T, columns, strict=True):
        times = None if maps is None else (maps / maps.mean(dim=(1, 2), keepdim=True))[: len(photos)]
        for row, ax in enumerate(line):
            if times is None:
                draw_image(images[row], ax)
            else:
                draw_over(images[row], (times[row] - 1).clamp(min=0), ax, top=times.max().item() - 1)
        scale = "" if times is None else f"\n1 to {times.max():.2g} x mean"
        line[0].set_title(f"{title}{scale}", fontsize=style.TEXT_SIZE, color=style.TEXT)
    for row, name in enumerate(photos):
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
