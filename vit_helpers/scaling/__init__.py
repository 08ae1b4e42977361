"""Scaling up: what a ViT costs, how to measure its speed, and what makes it faster."""

from vit_helpers.scaling.cost import (
    activations,
    attention_crossover,
    multiply_adds,
    parameters,
    training_bytes,
    training_multiply_adds,
)

__all__ = [
    "activations",
    "attention_crossover",
    "multiply_adds",
    "parameters",
    "training_bytes",
    "training_multiply_adds",
]
