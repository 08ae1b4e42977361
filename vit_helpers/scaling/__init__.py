"""Scaling up: what a ViT costs, how to measure its speed, and what makes it faster."""

from vit_helpers.scaling.cost import (
    kept_for_backward,
    multiply_adds,
    overtakes,
    parameters,
    training_bytes,
    training_multiply_adds,
)

__all__ = [
    "kept_for_backward",
    "multiply_adds",
    "overtakes",
    "parameters",
    "training_bytes",
    "training_multiply_adds",
]
