"""Looking inside a trained ViT: where its attention goes, what its tokens hold.  Everything here reads a model only.

Attention weights come from `model.attention_weights(images)`: for every layer (B, h, T, T), rows that sum to 1.
"""

import math

import torch

# Attention


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


def rollout(weights, residual=0.5):
    """Attention followed through the layers, each token keeping a share of itself on the way (arXiv 2005.00928, section 3).

    weights : the list that `attention_weights` gives, L of (B, h, T, T); heads count alike
    residual: the share that stays with a token in every layer, for the path around the attention
    returns : (B, T, T), rows of which sum to 1: how much of each token of the input is in each of the output

    >>> rollout([torch.full((1, 2, 3, 3), 1 / 3)] * 4).sum(dim=-1).allclose(torch.ones(3))
    True
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is a share from 0 to 1, got {residual}")
    eye = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    flow = eye.expand(len(weights[0]), -1, -1)
    for layer in weights:
        flow = (residual * eye + (1 - residual) * layer.mean(dim=1)) @ flow
    return flow


def attention_gradients(model, images, classes=None):
    """The attention weights of every layer, and how fast a class's logit would grow with each of them.

    images : (B, C, H, W); classes: (B,), by default those that the model names
    returns: two lists of L tensors (B, h, T, T)

    The gradient of weights W that mix values V into O = W V is that of O times V^T: so it is read at the output of the
    attention, whatever way torch takes to compute it, and no layer has to be changed for it.
    """
    entered, mixed = [], []  # what goes into each attention, and what its heads hand over

    def keep(into):
        def hook(module, args):
            into.append(args[0])

        return hook

    hooks = [block.attn.register_forward_pre_hook(keep(entered)) for block in model.blocks]
    hooks += [block.attn.proj.register_forward_pre_hook(keep(mixed)) for block in model.blocks]
    try:
        with torch.enable_grad():
            logits = model(images.detach().requires_grad_())  # so that a frozen model passes gradients too
            classes = logits.argmax(dim=1) if classes is None else classes
            slopes = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), mixed)
    finally:
        for hook in hooks:
            hook.remove()
    weights, gradients = [], []
    with torch.no_grad():
        for block, x, slope in zip(model.blocks, entered, slopes, strict=True):
            _, _, v = block.attn.heads(x)  # (B, h, T, d)
            per_head = slope.unflatten(2, (v.shape[1], -1)).transpose(1, 2)  # (B, h, T, d)
            weights.append(block.attn.weights(x))
            gradients.append(per_head @ v.transpose(-2, -1))
    return weights, gradients


def gradient_rollout(weights, gradients):
    """Rollout of those weights only that speak for a class (Chefer et al., arXiv 2103.15679, equations 5 and 6).

    weights, gradients: as `attention_gradients` gives them
    returns: (B, T, T) of relevance, 0 and up; rows do not sum to 1
    """
    eye = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    relevance = eye.expand(len(weights[0]), -1, -1)
    for layer, slope in zip(weights, gradients, strict=True):
        relevance = relevance + (layer * slope).clamp(min=0).mean(dim=1) @ relevance
    return relevance


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


# What the model has learned, without an image


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


# Tokens, layer by layer


@torch.no_grad()
def token_layers(model, images):
    """The tokens before the first block and after each: a list of L + 1 tensors (B, T, D), without the last norm"""
    x = model.embed(images)
    layers = [x]
    for block in model.blocks:
        layers.append(x := block(x))
    return layers


# Without attention


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
