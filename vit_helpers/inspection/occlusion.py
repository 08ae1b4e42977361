"""Occlusion: cover one patch after another, and see how much the prediction suffers."""

import torch
from torch import Tensor

from vit_helpers.vit import ViT


@torch.no_grad()
def occlusion(model: ViT, images: Tensor, classes: Tensor | None = None, fill: float = 0.0) -> Tensor:
    """How much a class's log-probability falls if a patch is covered (Zeiler and Fergus, arXiv 1311.2901, section 4.2).

    images : (B, C, H, W); classes: (B,), by default those that the model predicts
    fill   : the value of covered pixels, in the units of the images (0 is the mean of normalized images)
    returns: (B, rows, cols); a negative number means that the class becomes more probable without the patch
    """
    P, (rows, cols) = model.config.patch_size, model.config.grid
    uncovered = model(images).log_softmax(dim=1)
    classes = uncovered.argmax(dim=1) if classes is None else classes
    falls = []
    for row in range(rows):
        for col in range(cols):
            covered = images.clone()
            covered[:, :, row * P : (row + 1) * P, col * P : (col + 1) * P] = fill
            fall = uncovered - model(covered).log_softmax(dim=1)
            falls.append(fall.gather(1, classes[:, None])[:, 0])
    return torch.stack(falls, dim=1).unflatten(1, (rows, cols))
