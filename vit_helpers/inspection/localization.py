"""Localization scores: does a map highlight the place of the object?

A method is a function (model, images, classes) -> maps (B, rows, cols), larger where a patch
matters more to the prediction.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers._validate import check_choice
from vit_helpers.data.splits import Split, Transform
from vit_helpers.inspection.attention_maps import readout_map
from vit_helpers.inspection.features import occlusion
from vit_helpers.inspection.rollout import attention_gradients, gradient_rollout, rollout
from vit_helpers.vit import ViT, eval_mode

Method = Callable[[ViT, Tensor, Tensor], Tensor]


@torch.no_grad()
def attention_method(
    model: ViT, images: Tensor, classes: Tensor, combine: Callable[[list[Tensor]], Tensor]
) -> Tensor:
    """The map of what the head reads, once the attention of all layers is combined to (B, T, T)."""
    return readout_map(combine(model.attention_weights(images)), model.config)


def center_map(model: ViT, images: Tensor, classes: Tensor) -> Tensor:
    """The center baseline: 1 on the patches in the middle, 0 elsewhere, whatever the image."""
    above, left = ((side - 1) // 2 for side in model.config.grid)
    rows, cols = model.config.grid
    return F.pad(
        torch.ones(len(images), rows - 2 * above, cols - 2 * left), (left, left, above, above)
    )


def pixel_map(
    model: ViT, images: Tensor, classes: Tensor, kind: str, blurred: bool = True
) -> Tensor:
    """A control that sees only the pixels: their mean in each patch, or over 3 x 3 if blurred.

    At the border of a blurred map, the patches that are not there count as 0.

    kind  : "brightness" above the darkest pixel, "ink" (1 for every pixel above it), "edges"
            (length of the gradient)
    raises: ValueError for another kind
    """
    above = images - images.amin(dim=(1, 2, 3), keepdim=True)
    kinds = {
        "brightness": above,
        "ink": above > 0,
        "edges": torch.stack(torch.gradient(above, dim=(2, 3))).norm(dim=0),
    }
    check_choice("kind", kind, kinds)
    maps = F.avg_pool2d(kinds[kind].to(images.dtype).mean(dim=1), model.config.patch_size)
    return F.avg_pool2d(maps, 3, stride=1, padding=1) if blurred else maps


def ink_map(model: ViT, images: Tensor, classes: Tensor, width: float) -> Tensor:
    """A control: the ink of each patch, blurred by a Gaussian of so many patches' width.

    Unlike the blur of `pixel_map`, it needs not know how large the object is.

    width: its standard deviation, in patches
    """
    ink = pixel_map(model, images, classes, "ink", blurred=False)
    steps = (torch.arange(n, dtype=ink.dtype) for n in model.config.grid)
    down, across = ((-((x[:, None] - x) / width).square() / 2).exp() for x in steps)
    return down @ ink @ across


METHODS: dict[str, Method] = {
    "attention, first block": partial(
        attention_method, combine=lambda layers: layers[0].mean(dim=1)
    ),
    "attention, last block": partial(
        attention_method, combine=lambda layers: layers[-1].mean(dim=1)
    ),
    "rollout": partial(attention_method, combine=rollout),
    "gradient rollout": lambda model, images, classes: readout_map(
        gradient_rollout(*attention_gradients(model, images, classes)), model.config
    ),
    "occlusion": occlusion,
}
CONTROLS: dict[str, Method] = {  # of the model they know nothing but its grid
    "uniform map": lambda model, images, classes: torch.ones(len(images), *model.config.grid),
    "center map": center_map,
    "brightness": partial(pixel_map, kind="brightness", blurred=False),
    "edges": partial(pixel_map, kind="edges", blurred=False),
    **{
        f"{kind}, blurred": partial(pixel_map, kind=kind) for kind in ("brightness", "edges", "ink")
    },
}


def maps_of(
    method: Method, model: ViT, split: Split, normalize: Transform, batch_size: int = 250
) -> Tensor:
    """The maps of a split's images for their true classes: (n, rows, cols)"""
    batches = zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True)
    with eval_mode(model):
        return torch.cat([method(model, normalize(images), labels) for images, labels in batches])


def localization_scores(maps: Tensor, boxes: Tensor, patch_size: int) -> dict[str, Tensor]:
    """How well each map localizes an object, by the three measures below: a dict of (B,)"""
    measures = {"inside": fraction_inside, "pointing_game": pointing_game, "rank": rank_score}
    return {name: measure(maps, boxes, patch_size) for name, measure in measures.items()}


def fraction_inside(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """The fraction of each map inside a box (energy-based pointing game, arXiv 1910.01279): (B,).

    maps   : (B, rows, cols), one number for each patch; negative values count as 0
    boxes  : (B, 4), x, y, width and height in pixels; a patch that is half inside counts half
    returns: (B,); for a map that is 0 everywhere, the score of a uniform map
    """
    maps = maps.clamp(min=0)
    maps = maps.where(maps.sum(dim=(1, 2), keepdim=True) > 0, 1.0)
    return (maps * patches_inside(maps, boxes, patch_size)).sum(dim=(1, 2)) / maps.sum(dim=(1, 2))


def pointing_game(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """Whether the center of a map's largest patch is in the box: (B,), 1 or 0 (arXiv 1608.00507).

    Among several largest patches, the fraction of those inside counts.
    """
    P, (_, rows, cols) = patch_size, maps.shape
    centers = inside_boxes(boxes, (rows * P, cols * P))[
        :, P // 2 :: P, P // 2 :: P
    ]  # (B, rows, cols)
    peaks = maps == maps.amax(dim=(1, 2), keepdim=True)
    return (peaks & centers).sum(dim=(1, 2)) / peaks.sum(dim=(1, 2))


def rank_score(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """The probability that a pixel of the box exceeds one outside, ties half (ROC AUC): (B,).

    A pixel has the value of its patch, so a patch that is half inside counts half on either side.
    """
    inside, values = patches_inside(maps, boxes, patch_size).flatten(1), maps.flatten(1)
    larger = (
        values[:, :, None] - values[:, None]
    ).sign() / 2 + 0.5  # (B, N, N): 1, or 0.5 for a tie, or 0
    pairs = inside[:, :, None] * (1 - inside)[:, None]
    return (pairs * larger).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))


def patches_inside(maps: Tensor, boxes: Tensor, patch_size: int) -> Tensor:
    """How much of each patch is inside the box, from 0 to 1: (B, rows, cols)"""
    inside = inside_boxes(boxes, (maps.shape[1] * patch_size, maps.shape[2] * patch_size))
    return F.avg_pool2d(inside.to(maps.dtype), patch_size)


def inside_boxes(boxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Which pixels are inside each box: (B, 4) -> boolean (B, H, W)"""
    left, top, width, height = (side[:, None, None] for side in boxes.unbind(dim=1))
    y, x = torch.meshgrid(
        *(torch.arange(n, device=boxes.device) for n in image_size), indexing="ij"
    )
    return (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
