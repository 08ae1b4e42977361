"""The three small pictures of the README, each a third of a page wide."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.attention import draw_cosines, frame_patch, resize_photo
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_bars, draw_grid, draw_image, middle_square

WIDTH, HEIGHT = 4.4, 2.4  # inches


def draw_drawn_digit(ink: Tensor, pixels: Tensor, probabilities: Tensor) -> Picture:
    """Draw what was drawn, what the model gets of it, and the bars of ten digits.

    ink: (H, W), from 0 to 1;  pixels: (S, S);  probabilities: (10,)
    """
    fig, (left, middle, right) = style.new_figure(WIDTH, HEIGHT, ncols=3)
    draw_image(1 - ink[None], left, "you draw")
    draw_grid(
        draw_image(1 - pixels[None], middle, "it gets"),
        (pixels.shape[0], pixels.shape[1]),
        4,
        style.PATCH,
    )
    best = int(probabilities.argmax())
    names = [str(digit) for digit in range(len(probabilities))]
    plain_bars(draw_bars(probabilities.tolist(), names, right, "it says", chosen=best))
    return Picture(fig, "A drawn digit, the pixels that the model gets, and ten bars.")


def draw_found(photo: Tensor, cosines: Tensor, place: tuple[int, int]) -> Picture:
    """Draw a photo with one framed patch, and which tokens are similar to its own.

    photo: (3, H, W), from 0 to 1;  cosines: (rows, columns);  place: row and column of the patch
    """
    photo = resize_photo(photo)
    fig, (left, right) = style.new_figure(WIDTH, HEIGHT, ncols=2)
    frame_patch(draw_image(photo, left, "a patch of roof"), place)
    draw_cosines(cosines, right, "what is similar", photo.shape[1:])
    frame_patch(right, place)
    return Picture(fig, "A photo with a framed patch, and the tokens that are similar to its own.")


def draw_classified(
    photo: Tensor, reduced: Tensor, patch_size: int, classes: Sequence[tuple[str, float]]
) -> Picture:
    """Draw a photo, the patches that a model gets of it, and the bars of its best classes.

    photo: (3, H, W), from 0 to 1;  reduced: (3, S, S);  classes: pairs of name and probability
    """
    fig, (left, middle, right) = style.new_figure(WIDTH, HEIGHT, ncols=3)
    draw_image(middle_square(photo), left, "your photo")
    size = (reduced.shape[1], reduced.shape[2])
    draw_grid(draw_image(reduced, middle, "it gets"), size, patch_size)
    names, probabilities = zip(*classes, strict=True)
    plain_bars(draw_bars(probabilities, names, right, "it says", chosen=0))
    return Picture(fig, "A photo, the patches that the model gets, and the bars of three classes.")


def plain_bars(ax: Axes) -> None:
    """Leave out the axis of probabilities, for which there is no room."""
    ax.set_xticks([])
    ax.set_xlabel("")
