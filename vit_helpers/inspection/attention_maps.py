"""Attention weights as maps over the patches, and how far each head attends.

The weights come from `model.attention_weights(images)`: for every layer (B, h, T, T), with rows
that sum to 1.
"""

import math

import torch
from torch import Tensor

from vit_helpers.vit import ViTConfig


def attention_map(
    weights: Tensor,
    grid: tuple[int, int],
    query: tuple[int, int] | None = None,
    registers: int = 0,
) -> Tensor:
    """The attention weights of one query token as a map over the patches, without other tokens.

    weights  : (B, h, T, T) or (B, T, T), of one layer or of a rollout; a class token, if there is
               one, is token 0
    grid     : rows and columns of patches
    query    : (row, column) of a patch; None for the class token
    registers: how many of them are among the tokens
    returns  : (B, h, rows, cols) or (B, rows, cols)
    raises   : ValueError if grid, query or registers do not fit the tokens
    """
    extra, (rows, cols) = prefix_tokens(weights.shape[-1], grid, registers), grid
    if query is None and extra == registers:
        raise ValueError(
            f"{rows * cols} tokens are only the patches, without a class token: "
            "pass query=(row, column)"
        )
    row, col = query or (0, 0)
    if not (0 <= row < rows and 0 <= col < cols):
        raise ValueError(f"no patch ({row}, {col}) in a grid of {rows} x {cols}")
    token = 0 if query is None else extra + row * cols + col
    return weights[..., token, extra:].unflatten(-1, grid)


def readout_map(weights: Tensor, config: ViTConfig) -> Tensor:
    """The map of what the head reads: of the class token, or else the mean of all patches.

    weights: (..., T, T), of one layer or of a rollout;  config: of the model that they are of
    returns: (..., rows, cols), without the weights on a class token and registers
    """
    extra = config.num_prefix_tokens
    queries = weights[..., :1, :] if reads_class_token(config) else weights[..., extra:, :]
    return queries.mean(dim=-2)[..., extra:].unflatten(-1, config.grid)


def reads_class_token(config: ViTConfig) -> bool:
    """Whether a head reads the class token, and neither the mean nor attention over all tokens."""
    return config.class_token and config.pool in ("cls", "none")


def prefix_tokens(T: int, grid: tuple[int, int], registers: int = 0) -> int:
    """Return how many of T tokens come before a grid's patches: a class token or not, registers.

    raises: ValueError if there are others
    """
    N = math.prod(grid)
    if T - N - registers not in (0, 1):
        among = f" and {registers} registers" if registers else " (give the number of registers)"
        raise ValueError(
            f"{T} tokens do not belong to a grid of {grid[0]} x {grid[1]} = {N} patches{among}"
        )
    return T - N


def entropy(weights: Tensor) -> Tensor:
    """The entropy of each row of attention, in nats, from 0 to ln T: (..., T, T) -> (..., T)"""
    return torch.special.entr(weights).sum(dim=-1)


def attention_distance(
    weights: Tensor, grid: tuple[int, int], patch_size: int, registers: int = 0
) -> Tensor:
    """The mean attention distance of each head, in pixels (appendix D.7): (B, h, T, T) -> (B, h).

    Distances between patch centers, weighted by attention and averaged over the query patches. A
    class token and registers are left out, and the weights among patches are renormalized.
    """
    extra = prefix_tokens(weights.shape[-1], grid, registers)
    among = weights[..., extra:, extra:]  # (B, h, N, N)
    among = among / among.sum(dim=-1, keepdim=True).clamp(
        min=torch.finfo(among.dtype).tiny
    )  # of none, the distance is 0
    sides = (torch.arange(n, dtype=weights.dtype, device=weights.device) for n in grid)
    centers = patch_size * torch.cartesian_prod(*sides)  # (N, 2), up to a shift
    return (among * torch.cdist(centers, centers)).sum(dim=-1).mean(dim=-1)
