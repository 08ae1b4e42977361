"""Notebook 08: photos with maps laid over them."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_box, draw_image, draw_over


def draw_photos(
    photos: Sequence[str], columns: Sequence[tuple[str, Tensor, Tensor | None]], top: float = 4
) -> Figure:
    """Draw a row for each photo: the images, and maps over them, all on one scale.

    A map is drawn where it is above its mean.

    Frames mark the five largest patches of each map, a thick one the largest.

    photos : the names of those that are drawn, the first ones
    columns: title, images (B, C, H, W), and maps (B, rows, cols), or None for the images alone
    top    : the multiple of a map's mean that is drawn darkest, and all above it
    """
    side = min(8.2 / len(columns), 1.8)
    size = side * len(columns) + 1.5, len(photos) * side + 0.4
    fig, axes = style.new_figure(*size, nrows=len(photos), ncols=len(columns), squeeze=False)
    for line, (title, images, maps) in zip(axes.T, columns, strict=True):
        line[0].set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
        for row, ax in enumerate(line):
            if maps is None:
                draw_image(images[row], ax)
            else:
                times = maps[row] / maps[row].mean()
                drawn = draw_over(images[row], (times - 1).clamp(0, top - 1), ax, top=top - 1)[1]
                frame_largest(ax, times, images[row].shape[1] // len(times))
    for row, name in enumerate(photos):
        beside = {
            "transform": axes[row, 0].transAxes,
            "rotation": 90,
            "ha": "right",
            "va": "center",
        }
        axes[row, 0].text(-0.05, 0.5, name, fontsize=style.TEXT_SIZE, color=style.TEXT, **beside)
    bar = color_bar(drawn, axes, "times the mean of a map\n(frames: its five largest)", "max")
    bar.set_ticks(range(int(top)), labels=[*range(1, int(top)), f"{top:g} or\nmore"])
    bar.ax.set_facecolor("0.85")  # as the images below the veil, on average
    return fig


def frame_largest(ax: Axes, heat: Tensor, patch_size: int) -> None:
    """Frame the five patches with the largest numbers, the largest thickly.  heat: (rows, cols)"""
    P, numbers = patch_size, heat.flatten().topk(min(5, heat.numel())).indices.tolist()
    for number, width in zip(numbers, (2.5, 1, 1, 1, 1), strict=False):
        row, col = divmod(number, heat.shape[1])
        draw_box(
            ax,
            (col * P - 0.5, row * P - 0.5, P, P),
            style.SERIES[0],
            linewidth=width,
            path_effects=style.HALO,
        )
