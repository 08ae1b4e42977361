"""Equality that can fail: parameters without zeros and ones, and the largest difference."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def perturb(module: nn.Module, std: float = 0.02, seed: int = 0) -> None:
    """Add normal noise to every parameter, in place; the global random generator stays as it is.

    Half of a new ViT's parameter tensors are zeros (biases) or ones (scales of layer norms). Two
    models that differ only in how they use these give the same outputs, so a comparison of new
    models cannot see swapped norms or a missing bias.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        parameter.add_(noise.to(parameter), alpha=std)


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape; NaN if either contains NaN."""
    if ours.shape != theirs.shape:  # subtracting would broadcast
        raise ValueError(f"shapes differ: {tuple(ours.shape)} and {tuple(theirs.shape)}")
    return (ours - theirs).abs().max().item()
