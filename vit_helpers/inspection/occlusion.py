"""Occlusion: cover one patch after another, and see how much the prediction suffers."""

import torch


@torch.no_grad()
def occlusion(model, images, classes=None, fill=0.0):
    """How much a class's log-probability falls when a patch is covered (Zeiler and Fergus, arXiv 1311.2901, section 4.2).

    images : (B, C, H, W); classes: (B,), by default those that the model names
    fill   : the value that covers, in the units of the images (0 is the mean where they are normalised)
    returns: (B, rows, cols); a negative number says that the class gains when the patch is gone
    """
    P, (rows, cols) = model.config.patch_size, model.config.grid
    whole = model(images).log_softmax(dim=1)
    classes = whole.argmax(dim=1) if classes is None else classes
    falls = []
    for row in range(rows):
        for col in range(cols):
            covered = images.clone()
            covered[:, :, row * P : (row + 1) * P, col * P : (col + 1) * P] = fill
            fall = whole - model(covered).log_softmax(dim=1)
            falls.append(fall.gather(1, classes[:, None])[:, 0])
    return torch.stack(falls, dim=1).unflatten(1, (rows, cols))
