"""What a ViT costs, from its config alone: parameters, multiply-adds and memory, part by part.

A multiply-add is one product and one sum; FLOPs as torch counts them are twice as many. Norms, softmax, GELU and sums are
left out: they touch each number a few times, the products below many times.
"""


def parameters(config):
    """Learned numbers by part: {"projection", "tokens", "qkv", "output", "MLP", "norms", "head"}

    >>> from vit_helpers.vit import ViTConfig
    >>> sum(parameters(ViTConfig()).values())
    86567656
    """
    c, D, L, M, T = letters(config)
    width, head = D, 0
    if c.representation_size is not None:
        width, head = c.representation_size, (D + 1) * c.representation_size
    return {
        "projection": (c.in_chans * c.patch_size**2 + 1) * D,
        "tokens": c.class_token * D + (T * D if c.positions == "learned" else 0),
        "qkv": L * 3 * (D + 1) * D,
        "output": L * (D + 1) * D,
        "MLP": L * (2 * D * M + M + D),
        "norms": (2 * L + 1) * 2 * D,
        "head": head + (width + 1) * c.num_classes,
    }


def multiply_adds(config):
    """Of one image through the model, by part: {"projection", "qkv", "scores", "mixing", "output", "MLP", "head"}

    >>> from vit_helpers.vit import ViTConfig
    >>> round(sum(multiply_adds(ViTConfig()).values()) / 1e9, 2)
    17.56
    """
    c, D, L, M, T = letters(config)
    width, head = D, 0
    if c.representation_size is not None:
        width, head = c.representation_size, D * c.representation_size
    read = T if c.pool == "none" else 1  # tokens that the head reads
    return {
        "projection": num_patches(c) * c.in_chans * c.patch_size**2 * D,
        "qkv": L * T * D * 3 * D,
        "scores": L * T * T * D,
        "mixing": L * T * T * D,
        "output": L * T * D * D,
        "MLP": L * T * 2 * D * M,
        "head": read * (head + width * c.num_classes),
    }


def training_multiply_adds(config, fused=True):
    """Of one image in training, by part: each product costs two more on the way back, for the gradients of its two factors.

    The projection costs one more only: nobody asks for the gradient of the pixels. Fused attention, which never writes its
    weights down, computes the scores once more.
    """
    times = {"projection": 2, "scores": 4 if fused else 3}
    return {part: times.get(part, 3) * count for part, count in multiply_adds(config).items()}


def attention_crossover(config):
    """The number of tokens at which scores and mixing, which grow with T^2, cost as much as all else in a block.

    2 T^2 D = T (4 D^2 + 2 D M), so T = 2 D + M: six times the width where the MLP has 4 D

    >>> from vit_helpers.vit import ViTConfig
    >>> overtakes(ViTConfig())
    4608
    """
    _, D, _, M, _ = letters(config)
    return 2 * D + M


def activations(config, fused=True):
    """Numbers that autograd keeps of one image until the way back, by part; without dropout.

    fused: attention that never writes its T x T weights down. Where it does (few tokens, on a CPU), it keeps them, and
           copies of queries, keys and values that the products asked for
    """
    c, D, L, M, T = letters(config)
    attention = T * (4 * D + c.num_heads) if fused else T * (4 * D + c.num_heads * T)
    return {
        "projection": num_patches(c) * c.in_chans * c.patch_size**2,
        "norms": (2 * L + 1) * T * (D + 2),
        "qkv": L * T * D,
        "attention": L * attention,
        "MLP": L * T * (D + 2 * M),
        "head": T * D if c.pool == "cls" else D,  # a view of one token keeps all of them
    }


def training_bytes(config, batch, optimizer="adamw", fused=True):
    """Bytes of memory in float32 training: weights, gradients, the optimiser's own numbers, what autograd keeps of a batch.

    optimizer: "adamw" keeps two numbers a parameter, "sgd" with momentum one
    """
    own = {"adamw": 2, "sgd": 1}
    if optimizer not in own:
        raise ValueError(f"unknown optimizer {optimizer!r}, known: {', '.join(own)}")
    n = 4 * sum(parameters(config).values())
    kept = 4 * batch * sum(activations(config, fused).values())
    return {"weights": n, "gradients": n, "optimiser": own[optimizer] * n, "activations": kept}


def num_patches(config):
    """N"""
    return config.num_tokens - config.class_token


def letters(config):
    """The config, and of it D, L, the MLP's hidden width, T"""
    return config, config.embed_dim, config.depth, int(config.embed_dim * config.mlp_ratio), config.num_tokens
