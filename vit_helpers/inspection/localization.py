"""Localization scores: does a map highlight the place of the object?

A method is a function (model, images, classes) -> maps (B, rows, cols), larger where a patch matters more to the prediction.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from vit_helpers.data.splits import Split, Transform
from vit_helpers.inspection.attention_maps import attention_map
from vit_helpers.inspection.features import occlusion, token_layers
from vit_helpers.inspection.rollout import attention_gradients, gradient_rollout, rollout
from vit_helpers.vit import ViT, eval_mode

Method = Callable[[ViT, Tensor, Tensor], Tensor]


@torch.no_grad()
def attention_method(model: ViT, images: Tensor, classes: Tensor, combine: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """The map of the class token, after the attention of all layers, L of (B, h, T, T), has been combined to (B, T, T)."""
    return attention_map(combine(model.attention_weights(images)), model.config.grid)


def gradient_rollout_map(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    """Gradient rollout of the class token."""
    return attention_map(gradient_rollout(*attention_gradients(model, images, classes)), model.config.grid)


def center_map(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    """The center baseline: 1 on the patches in the middle, 0 elsewhere, whatever the image."""
    rows, cols = model.config.grid
    maps = torch.zeros(len(images), rows, cols)
    maps[:, (rows - 1) // 2 : rows // 2 + 1, (cols - 1) // 2 : cols // 2 + 1] = 1.0
    return maps


METHODS: dict[str, Method] = {
    "attention, first layer": partial(attention_method, combine=lambda layers: layers[0].mean(dim=1)),
    "attention, last layer": partial(attention_method, combine=lambda layers: layers[-1].mean(dim=1)),
    "rollout": partial(attention_method, combine=rollout),
    "gradient rollout": gradient_rollout_map,
    "occlusion": occlusion,
    "uniform map": lambda model, images, classes: torch.ones(len(images), *model.config.grid),
    "center map": center_map,
}


def localization_scores(
    model: ViT, split: Split, normalize: Transform, methods: Mapping[str, Method] = METHODS, batch_size: int = 250
) -> dict[str, dict[str, float]]:
    """How well each method localizes the objects of a split: the means of `fraction_inside` and `pointing_game`.

    split    : with bounding boxes, else ValueError; methods are asked about its labels
    normalize: turns its images into the model's input
    returns  : {method: {"inside": mean fraction of the map inside the box, "pointing_game": accuracy of the maximum}}
    """
    if split.boxes is None:
        raise ValueError("the split has no bounding boxes to compare maps with: use load('scattered_digits'), for example")
    P, scores = model.config.patch_size, {}
    for name, method in methods.items():
        batches = zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True)
        with eval_mode(model):
            maps = torch.cat([method(model, normalize(images), labels) for images, labels in batches])
        inside, hits = fraction_inside(maps, split.boxes, P), pointing_game(maps, split.boxes, P)
        scores[name] = {"inside": inside.mean().item(), "pointing_game": hits.mean().item()}
    return scores


def fraction_inside(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """The fraction of each map that is inside a box, from 0 to 1 (energy-based pointing game, arXiv 1910.01279).

    maps   : (B, rows, cols), one number for each patch; negative values count as 0
    boxes  : (B, 4), x, y, width and height in pixels; a patch that is half inside counts half
    returns: (B,); for a map that is 0 everywhere, the score of a uniform map
    """
    maps = maps.clamp(min=0)
    maps = maps.where(maps.sum(dim=(1, 2), keepdim=True) > 0, 1.0)
    pixels = maps.repeat_interleave(patch_size, 1).repeat_interleave(patch_size, 2)  # (B, H, W)
    _, H, W = pixels.shape
    return (pixels * inside_boxes(boxes, (H, W))).sum(dim=(1, 2)) / pixels.sum(dim=(1, 2))


def pointing_game(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """Whether the center of each map's largest patch is inside the box: (B,) of 1 and 0 (arXiv 1608.00507).

    Among several largest patches, the fraction of those inside counts.
    """
    P, (_, rows, cols) = patch_size, maps.shape
    centers = inside_boxes(boxes, (rows * P, cols * P))[:, P // 2 :: P, P // 2 :: P]  # (B, rows, cols)
    peaks = maps == maps.amax(dim=(1, 2), keepdim=True)
    return (peaks & centers).sum(dim=(1, 2)) / peaks.sum(dim=(1, 2))


@torch.no_grad()
def follow_class_token(model: ViT, image: Tensor, box: Tensor) -> tuple[list[Tensor], list[Tensor], list[float], Tensor]:
    """What the class token attends to in each of the L layers for one image, and what the model predicts from it.

    image  : (C, H, W), normalized as the model expects it;  box: (4,), x, y, width and height in pixels
    returns: the tokens before the first layer and after each, L + 1 of (T, D); the class token's attention weights, averaged
             over the heads, L of (T,); the fraction of them inside the box, L numbers; the classes' probabilities, (K,)
    """
    images = image[None]
    layers = [layer.mean(dim=1) for layer in model.attention_weights(images)]  # (1, T, T)
    maps = torch.cat([attention_map(layer, model.config.grid) for layer in layers])
    inside = fraction_inside(maps, box.expand(len(maps), 4), model.config.patch_size) * maps.sum(dim=(1, 2))
    tokens = [layer[0] for layer in token_layers(model, images)]
    with eval_mode(model):
        probabilities = model(images)[0].softmax(dim=0)
    return tokens, [layer[0, 0] for layer in layers], inside.tolist(), probabilities


def inside_boxes(boxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Which pixels are inside each box: (B, 4) -> boolean (B, H, W)"""
    left, top, width, height = (side[:, None, None] for side in boxes.unbind(dim=1))
    y, x = torch.meshgrid(*(torch.arange(n, device=boxes.device) for n in image_size), indexing="ij")
    return (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
