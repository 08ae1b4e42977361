"""Attention weights as maps over the patches, and how far each head attends (paper, Figure 7 right and appendix D.7).

The weights come from `model.attention_weights(images)`: for every layer (B, h, T, T), rows that sum to 1.
"""

import math

import torch


def attention_map(weights, grid, query=None):
    """What one token looks at, as a picture over the patches.

    weights: (B, h, T, T) or (B, T, T), of one layer or of a rollout; a class token, where there is one, is token 0
    grid   : rows and columns of patches
    query  : (row, column) of a patch; None for the class token
    returns: (B, h, rows, cols) or (B, rows, cols): the weights themselves, so that what lies on the class token is missing
    raises : ValueError when the tokens are not those of the grid, when there is no class token to ask, or no such patch

    >>> weights = torch.full((1, 2, 5, 5), 1 / 5)
    >>> attention_map(weights, (2, 2)).shape
    torch.Size([1, 2, 2, 2])
    """
    extra = class_tokens(weights, grid)
    rows, cols = grid
    if query is None:
        if not extra:
            raise ValueError(f"{rows * cols} tokens are the patches alone, no class token: say query=(row, column)")
        token = 0
    else:
        row, col = query
        if not (0 <= row < rows and 0 <= col < cols):
            raise ValueError(f"no patch ({row}, {col}) in a grid of {rows} x {cols}")
        token = extra + row * cols + col
    return weights[..., token, extra:].unflatten(-1, tuple(grid))


def class_tokens(weights, grid):
    """1 where the tokens are a class token and the patches of a grid, 0 where they are the patches alone"""
    T, N = weights.shape[-1], math.prod(grid)
    if T not in (N, N + 1):
        raise ValueError(f"{T} tokens do not belong to a grid of {grid[0]} x {grid[1]} = {N} patches")
    return T - N


def entropy(weights):
    """How widely each token looks: from 0 (at one token) to ln T (at all alike), in nats.  (..., T, T) -> (..., T)

    >>> entropy(torch.full((3, 3), 1 / 3)).allclose(torch.tensor(3.0).log())
    True
    """
    return torch.special.entr(weights).sum(dim=-1)


def attention_distance(weights, grid, patch_size):
    """How far each head looks on average, in pixels (paper, Figure 7 right and appendix D.7).

    weights: (B, h, T, T) of one layer; a class token is left out, and the patches' weights sum to 1 again
    returns: (B, h), the mean over query patches of the distance between patch centres, weighted by attention

    >>> attention_distance(torch.eye(4)[None, None], (2, 2), 8)
    tensor([[0.]])
    """
    extra = class_tokens(weights, grid)
    among = weights[..., extra:, extra:]
    among = among / among.sum(dim=-1, keepdim=True)
    rows, cols = torch.meshgrid(*(torch.arange(n, dtype=weights.dtype, device=weights.device) for n in grid), indexing="ij")
    centres = patch_size * torch.stack([rows, cols], dim=-1).flatten(0, 1)  # (N, 2), but for a shift
    return (among * torch.cdist(centres, centres)).sum(dim=-1).mean(dim=-1)
