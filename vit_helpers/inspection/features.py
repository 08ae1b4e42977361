"""What a trained ViT has learned: its filters, its position embeddings, and its tokens layer by layer."""

import torch

from vit_helpers.inspection.attention_maps import class_tokens


def position_similarity(pos_embed, grid):
    """Cosine between the position of each patch and all others (paper, Figure 7 middle): (rows, cols, rows, cols)

    pos_embed: (1, T, D); a class token's position is left out
    """
    extra = class_tokens(pos_embed.transpose(1, 2), grid)
    unit = torch.nn.functional.normalize(pos_embed[0, extra:].detach(), dim=-1)
    return (unit @ unit.T).unflatten(1, tuple(grid)).unflatten(0, tuple(grid))


def filters(model, n):
    """The first n principal components of the projection of patches (paper, Figure 7 left): (n, C, P, P)

    The weight holds a filter of C*P*P numbers for each of the D outputs; its components are the patterns that the filters
    share, unit vectors in order of their share of the filters' variance.
    """
    weight = model.patch_embed.proj.weight.detach()  # (D, C*P*P)
    P, C = model.config.patch_size, model.config.in_chans
    if not 1 <= n <= min(weight.shape):
        raise ValueError(f"a projection of shape {tuple(weight.shape)} has 1 to {min(weight.shape)} components, got n = {n}")
    _, _, components = torch.linalg.svd(weight - weight.mean(dim=0), full_matrices=False)
    return components[:n].unflatten(1, (C, P, P))


@torch.no_grad()
def token_layers(model, images):
    """The tokens before the first block and after each: a list of L + 1 tensors (B, T, D), without the last norm"""
    x = model.embed(images)
    layers = [x]
    for block in model.blocks:
        layers.append(x := block(x))
    return layers
