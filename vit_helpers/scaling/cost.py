"""What a ViT costs, from its config alone: parameters, multiply-adds and memory, by component.

A multiply-add is one product and one sum; torch counts it as two FLOPs. Norms, softmax, GELU and
additions are left out: they use each number a few times, the matrix products below many times.
"""

import math

from vit_helpers._validate import check_choice
from vit_helpers.vit import ViTConfig

OPTIMIZER_STATES = {"adamw": 2, "sgd": 1}  # numbers that the optimizer keeps for each parameter


def parameters(config: ViTConfig) -> dict[str, int]:
    """Count the learned parameters by component.

    >>> sum(parameters(ViTConfig()).values())
    86567656
    """
    D, L, K = config.embed_dim, config.depth, config.num_classes
    M, hidden = hidden_dim(config), config.representation_size  # of the MLP; of the head
    layers = 3 if config.mlp_layer == "swiglu" else 2
    mlp = layers * D * M + (layers - 1) * M + D
    positions = math.prod(config.grid) + config.class_token if config.positions == "learned" else 0
    norm = 2 * D if config.norm_layer == "layernorm" else D
    scales = 2 * D if config.init_values is not None else 0  # LayerScale
    pool = D + 4 * (D + 1) * D + 2 * D + mlp if config.pool == "map" else 0
    return {
        "projection": (config.in_chans * config.patch_size**2 + 1) * D,
        "tokens": (config.num_prefix_tokens + positions) * D,
        "qkv": L * 3 * (D + 1) * D,
        "output": L * (D + 1) * D,
        "MLP": L * mlp,
        "norms": (2 * L + 1) * norm + L * (scales + 4 * config.head_dim * config.qk_norm),
        "head": pool + (hidden or D) * K + K + (hidden or 0) * (D + 1),
    }


def multiply_adds(config: ViTConfig) -> dict[str, int]:
    """Count the multiply-adds of one image in the forward pass, by component.

    The query of attention pooling is left out: it is computed once for a batch.

    >>> round(sum(multiply_adds(ViTConfig()).values()) / 1e9, 2)
    17.56
    """
    D, L, T, K = config.embed_dim, config.depth, config.num_tokens, config.num_classes
    hidden = config.representation_size  # of the head
    pooled = T if config.pool == "none" else 1  # tokens that the head is applied to
    mlp = (3 if config.mlp_layer == "swiglu" else 2) * D * hidden_dim(config)
    pool = (2 * T + 1) * D * D + 2 * T * D + mlp if config.pool == "map" else 0
    return {
        "projection": math.prod(config.grid) * config.in_chans * config.patch_size**2 * D,
        "qkv": L * T * D * 3 * D,
        "scores": L * T * T * D,
        "mixing": L * T * T * D,
        "output": L * T * D * D,
        "MLP": L * T * mlp,
        "head": pool + pooled * ((hidden or D) * K + (hidden or 0) * D),
    }


def training_multiply_adds(config: ViTConfig, fused: bool = True) -> dict[str, int]:
    """Count the multiply-adds of one image in training, forward and backward pass, by component.

    The backward pass computes two products for each one of the forward pass, for the gradients of
    its two factors; one for the projection, since the pixels need no gradient. Fused attention,
    which never stores its weights, computes the scores once more.
    """
    times = {"projection": 2, "scores": 4 if fused else 3}
    return {name: times.get(name, 3) * count for name, count in multiply_adds(config).items()}


def attention_crossover(config: ViTConfig) -> int:
    """Compute at how many tokens scores and mixing cost as much as the rest of a block.

    There 2 T^2 D = T (4 D^2 + 2 D M).

    >>> attention_crossover(ViTConfig())
    4608
    """
    return 2 * config.embed_dim + hidden_dim(config)


def activations(config: ViTConfig, fused: bool = True) -> dict[str, int]:
    """Count the numbers that autograd keeps of one image for the backward pass, by component.

    fused: attention that never stores its T x T weights. Plain attention (few tokens on a CPU) does

    Dropout and attention pooling are left out, and RMSNorm keeps more in some versions of torch.
    """
    D, L, T, h = config.embed_dim, config.depth, config.num_tokens, config.num_heads
    heads = 4 * D + h * (1 if fused else T)
    if config.qk_norm:
        heads += 3 * D + 4 * h
    elif config.positions == "rotary" and fused:
        heads += 3 * D
    hidden = (4 if config.mlp_layer == "swiglu" else 2) * hidden_dim(config)
    scaled = 0 if config.init_values is None else D  # the input of LayerScale
    return {
        "projection": math.prod(config.grid) * config.in_chans * config.patch_size**2,
        "norms": (2 * L + 1) * T * (D + 2),
        "qkv": L * T * D,
        "attention": L * T * (heads + scaled),
        "MLP": L * T * (D + hidden + scaled),
        "head": T * D if config.pool == "cls" else D,  # a view of one token keeps all of them
    }


def training_bytes(
    config: ViTConfig, batch: int, optimizer: str = "adamw", fused: bool = True
) -> dict[str, int]:
    """Count the bytes of memory of float32 training with a batch of images.

    optimizer: "adamw" or "sgd" (with momentum); ValueError for another
    returns  : {"weights", "gradients", "optimizer", "activations"}
    """
    check_choice("optimizer", optimizer, OPTIMIZER_STATES)
    weights = 4 * sum(parameters(config).values())
    return {
        "weights": weights,
        "gradients": weights,
        "optimizer": OPTIMIZER_STATES[optimizer] * weights,
        "activations": batch * 4 * sum(activations(config, fused).values()),
    }


def hidden_dim(config: ViTConfig) -> int:
    """Compute the hidden width of the MLP."""
    return int(config.embed_dim * config.mlp_ratio)
