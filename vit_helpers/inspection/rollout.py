"""Attention rollout: attention followed through all layers, plain and weighted by the gradient of a class."""

import torch


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
