"""Deletion: cover the patches that a map calls important, and see whether the answer survives."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vit_helpers.vit import ViT, check_logits, eval_mode


def cover_largest(images: Tensor, maps: Tensor, count: int, fill: float = 0.0) -> Tensor:
    """Cover the patches with the largest numbers of a map; of equal ones, the first.

    images: (B, C, H, W);  maps: (B, rows, cols);  count: of the patches;  fill: of their pixels
    """
    places = maps.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    hidden = (places < count).unflatten(1, maps.shape[1:])  # (B, rows, cols)
    height, width = (side // n for side, n in zip(images.shape[2:], maps.shape[1:], strict=True))
    pixels = hidden.repeat_interleave(height, 1).repeat_interleave(width, 2)
    return images.masked_fill(pixels[:, None], fill)


@torch.no_grad()
def survival(
    model: ViT, images: Tensor, maps: Tensor, counts: Sequence[int], fill: float = 0.0
) -> Tensor:
    """Whether the prediction stays the same when a map's largest patches are covered.

    It is a deletion curve (arXiv 1806.07421, 3.2) of predictions instead of probabilities, so it
    needs no labels: the mean over images begins at 1, and falls early if the map is right about
    what the model needs.

    images : (B, C, H, W);  maps: (B, rows, cols);  counts: of covered patches
    returns: (len(counts), B), 1 or 0
    raises : ValueError without counts, or if the model's logits are not (B, K)
    """
    if len(counts) == 0:
        raise ValueError(f"counts must name at least one number of patches, got {counts}")
    with eval_mode(model):
        answers = check_logits(model(images)).argmax(dim=1)
        covered = (cover_largest(images, maps, count, fill) for count in counts)
        return torch.stack([(model(x).argmax(dim=1) == answers).float() for x in covered])
