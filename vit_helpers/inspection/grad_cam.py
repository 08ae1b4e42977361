"""Maps made of gradients: Grad-CAM and LayerCAM at the tokens of a layer, and two at the pixels.

All of them ask for the gradient of a class's logit, and need no attention weights. `classes` (B,)
are by default those that the model predicts. Each raises ValueError if the logits are not (B, K).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers._validate import check_int
from vit_helpers.vit import ViT, check_logits, eval_mode


def layer_gradients(
    model: ViT, images: Tensor, classes: Tensor | None, layer: nn.Module
) -> tuple[Tensor, Tensor]:
    """The tokens that a layer outputs, and the gradients of the logits with respect to them.

    images : (B, C, H, W);  layer: one of the model's, whose output are all tokens
    returns: two of (B, T, D); with a class token as the readout, the gradient of all patch tokens
             is 0 after the attention of the last block, since no other layer mixes tokens
    """
    outputs: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _layer, _inputs, output: outputs.append(output))
    try:
        with torch.enable_grad(), eval_mode(model):
            logits = model(images.detach().requires_grad_())  # for frozen models, too
            chosen = class_logits(logits, classes)
            (gradients,) = torch.autograd.grad(chosen.sum(), outputs)
    finally:
        hook.remove()
    return outputs[0].detach(), gradients


def grad_cam(
    model: ViT, images: Tensor, classes: Tensor | None = None, layer: nn.Module | None = None
) -> Tensor:
    """Grad-CAM: features weighted by their mean gradient over the patches (arXiv 1610.02391, 3).

    layer  : by default the first norm of the last block, `model.blocks[-1].norm1`
    returns: (B, rows, cols), at least 0
    """
    tokens, gradients = patch_gradients(model, images, classes, layer)
    weights = gradients.mean(dim=1, keepdim=True)  # (B, 1, D)
    return (tokens * weights).sum(dim=2).clamp(min=0).unflatten(1, model.config.grid)


def layer_cam(
    model: ViT, images: Tensor, classes: Tensor | None = None, layer: nn.Module | None = None
) -> Tensor:
    """LayerCAM: every number weighted by its own gradient, if that is positive.

    (Jiang et al., IEEE Transactions on Image Processing 30, 2021.)  layer, returns: as `grad_cam`
    """
    tokens, gradients = patch_gradients(model, images, classes, layer)
    products = tokens * gradients.clamp(min=0)
    return products.sum(dim=2).clamp(min=0).unflatten(1, model.config.grid)


def patch_gradients(
    model: ViT, images: Tensor, classes: Tensor | None, layer: nn.Module | None
) -> tuple[Tensor, Tensor]:
    """`layer_gradients` of the patch tokens alone: two of (B, N, D)"""
    layer = model.blocks[-1].get_submodule("norm1") if layer is None else layer
    tokens, gradients = layer_gradients(model, images, classes, layer)
    extra = tokens.shape[1] - math.prod(model.config.grid)
    return tokens[:, extra:], gradients[:, extra:]


def pixel_gradients(model: ViT, images: Tensor, classes: Tensor | None = None) -> Tensor:
    """The mean size of the pixels' gradients in each patch (arXiv 1312.6034): (B, rows, cols)"""
    slopes = image_gradients(model, images, classes)
    return F.avg_pool2d(slopes.abs().amax(dim=1, keepdim=True), model.config.patch_size)[:, 0]


def integrated_gradients(
    model: ViT, images: Tensor, classes: Tensor | None = None, steps: int = 16
) -> Tensor:
    """Gradients summed on the way from a black image to this one (arXiv 1703.01365).

    With many steps, the sum of a map is the logit of the image less that of the black one.

    steps  : on the way, at their middles;  black: the darkest value of each image
    returns: (B, rows, cols)
    raises : TypeError or ValueError if the steps are not a whole number of at least 1
    """
    steps = check_int("steps", steps)
    with torch.no_grad(), eval_mode(model):
        classes = model(images).argmax(dim=1) if classes is None else classes
    black = images.amin(dim=(1, 2, 3), keepdim=True)
    way = [
        image_gradients(model, black + (images - black) * (step + 0.5) / steps, classes)
        for step in range(steps)
    ]
    shares = (images - black) * torch.stack(way).mean(dim=0)
    P = model.config.patch_size
    return P**2 * F.avg_pool2d(shares.sum(dim=1, keepdim=True), P)[:, 0]


def image_gradients(model: ViT, images: Tensor, classes: Tensor | None) -> Tensor:
    """The gradients of the classes' logits with respect to the pixels: (B, C, H, W)"""
    with torch.enable_grad(), eval_mode(model):
        images = images.detach().requires_grad_()
        return torch.autograd.grad(class_logits(model(images), classes).sum(), images)[0]


def class_logits(logits: Tensor, classes: Tensor | None) -> Tensor:
    """The logits of the classes, or the largest ones: (B, K) -> (B,)

    raises: ValueError for logits of another shape
    """
    check_logits(logits)
    classes = logits.argmax(dim=1) if classes is None else classes
    return logits.gather(1, classes[:, None])[:, 0]
