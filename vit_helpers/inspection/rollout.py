"""Attention rollout: attention combined across layers, plain or weighted by gradients."""

from typing import Any

import torch
from torch import Tensor

from vit_helpers.inspection.grad_cam import class_logits
from vit_helpers.vit import ViT, eval_mode


def rollout(weights: list[Tensor], residual: float = 0.5) -> Tensor:
    """The product of all layers' attention, each mixed with the identity (arXiv 2005.00928).

    weights : from `model.attention_weights`, L of (B, h, T, T); heads are averaged
    residual: the share of the identity, from 0 to 1 (else ValueError), which stands for the
              residual connection
    returns : (B, T, T) with rows that sum to 1: how much of each input token is in each output
              token
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is a share from 0 to 1, got {residual}")
    eye = flow = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    for layer in weights:
        flow = (residual * eye + (1 - residual) * layer.mean(dim=1)) @ flow  # (B, T, T)
    return flow


def attention_gradients(
    model: ViT, images: Tensor, classes: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """All attention weights, and the gradients of a class's logit: two lists of L (B, h, T, T).

    images : (B, C, H, W); classes: (B,), by default those that the model predicts
    raises : ValueError if the model's logits are not (B, K)

    If O = A V, the gradient of the weights A is that of O times V^T, so this works with any
    implementation of attention.
    """
    entered: list[Tensor] = []  # the input of each attention layer
    mixed: list[
        Tensor
    ] = []  # the concatenated outputs of its heads, the input of its output projection
    layers: list[Any] = [block.attn for block in model.blocks]
    hooks = [
        layer.register_forward_pre_hook(lambda _, args: entered.append(args[0])) for layer in layers
    ]
    hooks += [
        layer.proj.register_forward_pre_hook(lambda _, args: mixed.append(args[0]))
        for layer in layers
    ]
    try:
        with torch.enable_grad(), eval_mode(model):
            logits = model(
                images.detach().requires_grad_()
            )  # so that gradients flow through a frozen model too
            slopes = torch.autograd.grad(class_logits(logits, classes).sum(), mixed)
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad():
        values = [
            layer.heads(x)[2] for layer, x in zip(layers, entered, strict=True)
        ]  # (B, h, T, d)
        outputs = [
            slope.unflatten(2, (v.shape[1], -1)).transpose(1, 2)
            for slope, v in zip(slopes, values, strict=True)
        ]
        gradients = [
            slope @ v.transpose(-2, -1) for slope, v in zip(outputs, values, strict=True)
        ]  # (B, h, T, T)
        return [layer.weights(x) for layer, x in zip(layers, entered, strict=True)], gradients


def gradient_rollout(weights: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """Rollout of the attention that raises a class's logit (arXiv 2103.15679, equations 5 and 6).

    weights, gradients: from `attention_gradients`
    returns: (B, T, T), relevance of at least 0; rows do not sum to 1
    """
    relevance = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    for layer, slope in zip(weights, gradients, strict=True):
        relevance = relevance + (layer * slope).clamp(min=0).mean(dim=1) @ relevance
    return relevance
