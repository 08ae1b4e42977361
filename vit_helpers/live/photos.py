"""What the photos of the live page need: pictures, and tokens before and after the blocks.

The tokens are those of `results/photo_features.py`, rounded to multiples of `STEP` and compressed.
"""

import zlib
from base64 import b64encode
from typing import Any

import torch
from torch import Tensor

from vit_helpers.live.picker import encode_photo, view_data
from vit_helpers.results.photo_features import BLOCKS, PHOTOS, read_photo_features

LAYERS = {"before": 0, "after": max(BLOCKS)}  # the blocks after which the page compares tokens
STEP = 0.02  # of a token of length 1
ERROR = 0.04  # no cosine on the page differs by more from that of the stored tokens


def photos_data() -> dict[str, Any]:
    """Everything that photos.js draws: as in `view_data`, and of each photo its packed tokens.

    "photos": "name", "picture", and the tokens "before" and "after" as `pack_tokens` packs them
    """
    return {
        "photos": [
            {"name": name, "picture": encode_photo(name), **pack_photo(name)} for name in PHOTOS
        ],
        "step": STEP,
        **view_data(),
    }


def pack_photo(name: str) -> dict[str, str]:
    """The tokens of a photo, packed: {"before" or "after": base64}"""
    tokens = read_photo_features(name).tokens
    return {when: pack_tokens(tokens[block]) for when, block in LAYERS.items()}


def pack_tokens(tokens: Tensor) -> str:
    """Multiples of `STEP` as bytes, component by component, compressed: (N, m) -> base64"""
    values = (tokens / STEP).round().to(torch.int8)
    return b64encode(zlib.compress(values.T.contiguous().numpy().tobytes(), 9)).decode()
