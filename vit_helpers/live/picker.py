"""What the part "pick" of the widgets gets: three photos, and what a trained ViT makes of them.

`photo.js` computes both maps from it, as `PhotoFeatures` does in Python.
"""

import base64
import io
from typing import Any

import torch
from matplotlib import colormaps
from torch import Tensor

from vit_helpers.data import photos
from vit_helpers.data.digits import cat
from vit_helpers.plots import style
from vit_helpers.plots.attention import STRONG, draw_patch, resize_photo
from vit_helpers.plots.figure import Picture
from vit_helpers.results.photo_features import (
    GRID,
    PATCH_SIZE,
    PHOTOS,
    PhotoFeatures,
    patch_number,
    read_photo_features,
    to_8_bits,
)

BLOCK = 9  # after which tokens are compared
ROOF = (6, 16)  # row and column of the patch that is chosen at first


def picker_data() -> dict[str, Any]:
    """Everything that `showPick` of widget.js draws: the photos, the colors, the first patch.

    "photos": for each of the N = 30 x 45 patches "tokens" (N, 96), "q" and "k" (N + 1, 64), rounded
              to 8 bits, and "picture", a JPEG;  the rest as in `view_data`
    """
    return {
        "photos": [
            {"name": name, "picture": encode_photo(name), **encode_features(name)}
            for name in PHOTOS
        ],
        "block": BLOCK,
        "strong": STRONG,
        **view_data(),
    }


def view_data() -> dict[str, Any]:
    """What every view of the photos needs.  "colors": of cosines from -1 to 1, (256, 3)"""
    return {
        "grid": GRID,
        "patchSize": PATCH_SIZE,
        "patch": ROOF,
        "colors": colormaps[style.SIGNED](range(256), bytes=True)[:, :3].tolist(),
    }


def read_photo(name: str) -> Tensor:
    """One of the three photos, as large as its features need it: (3, 420, 630), from 0 to 1"""
    return resize_photo((photos() | {"cat": cat()})[name])


def encode_photo(name: str) -> str:
    """A photo as the address of an `<img>`: a JPEG in base64"""
    from PIL import Image

    file = io.BytesIO()
    pixels = (255 * read_photo(name)).round().to(torch.uint8).permute(1, 2, 0)
    Image.fromarray(pixels.numpy()).save(file, "JPEG", quality=75)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def encode_features(name: str) -> dict[str, dict[str, Any]]:
    """The stored numbers of a photo: {name: bytes in base64, and the scale of each column}"""
    features = read_photo_features(name)
    matrices = {"tokens": features.tokens[BLOCK], "q": features.q, "k": features.k}
    return {role: encode_matrix(matrix) for role, matrix in matrices.items()}


def encode_matrix(matrix: Tensor) -> dict[str, Any]:
    """A matrix (n, m) in 8 bits: n * m bytes in base64, row by row, and m scales"""
    values, scale = to_8_bits("matrix", matrix).values()
    encoded = base64.b64encode(values.numpy().tobytes()).decode()
    return {"values": encoded, "scale": scale.tolist()}


def draw_roof() -> Picture:
    """Draw what is shown first: both maps of the roof."""
    features = read_photo_features("china")
    maps = features.similarity(BLOCK, ROOF), features.attention()[patch_number(ROOF)]
    return draw_patch(read_photo("china"), *maps, ROOF)


def tell_patch(features: PhotoFeatures, patch: tuple[int, int]) -> str:
    """Say what one patch's token is similar to, and what the head attends to, with numbers.

    patch: row and column, from 0
    """
    cosines = features.similarity(BLOCK, patch).clone()
    weights = features.attention()[patch_number(patch)]
    cosines[patch] = -1  # to itself it is 1
    like, most = (divmod(heat.argmax().item(), GRID[1]) for heat in (cosines, weights))
    return (
        f"Patch {patch}: after block {BLOCK}, its token is most similar to that of patch {like}, "
        f"with a cosine of {cosines.max():.2f}. The head gives {weights[: patch[0]].sum():.0%} of "
        f"its weight to the rows above, and the most to patch {most}."
    )
