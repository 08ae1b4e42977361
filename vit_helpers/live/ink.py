"""From a drawing to the pixels that the model reads, made as the training digits were.

`ink.js` does the same in the browser.
"""

import torch
from torch import Tensor

from vit_helpers._validate import check_int

# fainter pixels do not extend the bounding box, so the soft edge of a stroke does not move it
FAINTEST = 0.1


def reduce_ink(ink: Tensor, size: int = 16) -> Tensor:
    """Reduce a drawing of any size to size x size cells, each with its fraction of ink.

    The bounding box of all pixels above 0.1 is extended to a square that has the box's longer side
    and the same center, and the square is divided into equal cells. The value of a cell is the mean
    of the ink over exactly its area, where a pixel that two cells share counts for each with the
    part that it covers, and everything outside the drawing is paper.

    ink    : (H, W), from 0 for paper to 1 for ink
    returns: (size, size), float32 from 0 to 1
    raises : TypeError if the ink is not floating point; ValueError for another number of axes, for
             NaN and numbers outside 0 to 1, and if there is no ink

    >>> drawing = torch.zeros(280, 280)
    >>> drawing[40:240, 130:150] = 1  # a vertical line of 200 x 20 pixels
    >>> reduce_ink(drawing, 4)[0]
    tensor([0.0000, 0.2000, 0.2000, 0.0000])
    """
    if not isinstance(ink, Tensor) or not ink.is_floating_point():
        raise TypeError(
            "ink is a floating-point tensor (H, W), "
            f"got {getattr(ink, 'dtype', type(ink).__name__)}"
        )
    if ink.ndim != 2:
        raise ValueError(f"ink has 2 axes (H, W), got {ink.ndim}: {tuple(ink.shape)}")
    if not ((ink >= 0) & (ink <= 1)).all():  # NaN is neither
        raise ValueError("ink must be numbers from 0 (paper) to 1 (ink), without NaN")
    size, dark = check_int("size", size), ink > FAINTEST
    if not dark.any():
        raise ValueError("the drawing is empty: no pixel has more than 0.1 of ink")
    spans = [
        (int(inked[0]), int(inked[-1]) + 1)
        for inked in (dark.any(1).nonzero(), dark.any(0).nonzero())
    ]
    side = max(last - first for first, last in spans)
    middles = [(first + last) / 2 for first, last in spans]
    rows, columns = (
        cell_weights(m - side / 2, side, size, n) for m, n in zip(middles, ink.shape, strict=True)
    )
    return (rows @ ink.double() @ columns.T).float()


def cell_weights(start: float, side: int, size: int, pixels: int) -> Tensor:
    """The fraction of each cell along one axis that each pixel covers: (size, pixels), float64

    start: where the first cell begins, in pixels, which may be negative; side: the length of all
           cells together
    """
    edges = start + side / size * torch.arange(size + 1, dtype=torch.float64)
    pixel = torch.arange(pixels, dtype=torch.float64)
    covered = torch.minimum(edges[1:, None], pixel + 1) - torch.maximum(edges[:-1, None], pixel)
    return covered.clamp(min=0) * (size / side)
