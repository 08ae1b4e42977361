"""Maps graded against the truth: does what a method shows lie where the digit is?

A method is a function (model, images, classes) -> maps (B, rows, cols): how much each patch is said to matter.
"""

from functools import partial

import torch

from vit_helpers.inspection import attention_gradients, attention_map, gradient_rollout, occlusion, rollout

# Methods


@torch.no_grad()
def layer_attention(model, images, classes, layer):
    """What the class token looks at in one layer, the mean of its heads"""
    weights = model.attention_weights(images)[layer]
    return attention_map(weights, model.config.grid).mean(dim=1)


@torch.no_grad()
def rollout_map(model, images, classes):
    """What has reached the class token through all layers"""
    return attention_map(rollout(model.attention_weights(images)), model.config.grid)


def gradient_rollout_map(model, images, classes):
    """What has reached it and speaks for the class"""
    return attention_map(gradient_rollout(*attention_gradients(model, images, classes)), model.config.grid)


def uniform_map(model, images, classes):
    """Every patch alike: what a map is worth that knows nothing"""
    return torch.ones(len(images), *model.config.grid)


def center_map(model, images, classes):
    """All on the patches in the middle, whatever the image: the best that a map can do which is blind"""
    rows, cols = model.config.grid
    maps = torch.zeros(len(images), rows, cols)
    maps[:, (rows - 1) // 2 : rows // 2 + 1, (cols - 1) // 2 : cols // 2 + 1] = 1.0
    return maps


METHODS = {
    "attention, first layer": partial(layer_attention, layer=0),
    "attention, last layer": partial(layer_attention, layer=-1),
    "rollout": rollout_map,
    "gradient rollout": gradient_rollout_map,
    "occlusion": occlusion,
    "even map": uniform_map,
    "middle map": center_map,
}


def localization_scores(model, split, normalize, methods=METHODS, batch_size=250):
    """How well each method finds the digits of a split with boxes.

    split   : a `Split` with `boxes`; normalize: its images, as the model takes them
    returns : {method: {"mass": mean share of the map inside the digit's place, "hits": share of peaks inside}}
    """
    was_training, grades = model.training, {}
    model.eval()
    for name, method in methods.items():
        mass, hits = [], []
        for rows in torch.arange(len(split)).split(batch_size):
            maps = method(model, normalize(split.images[rows]), split.labels[rows])
            mass.append(fraction_inside(maps, split.boxes[rows], model.config.patch_size))
            hits.append(pointing_game(maps, split.boxes[rows], model.config.patch_size))
        grades[name] = {"mass": torch.cat(mass).mean().item(), "hits": torch.cat(hits).mean().item()}
    model.train(was_training)
    return grades


# Grades of one map each


def fraction_inside(maps, places, patch_size):
    """The share of each map that lies in a place: 1 for all of it.  Negative values count as 0.

    maps   : (B, rows, cols), a number a patch
    places : (B, 4), left, top, width and height in pixels; a patch half inside counts half
    returns: (B,); where a map is 0 everywhere, what an even map would have

    >>> maps = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> mass_inside(maps, torch.tensor([[0, 0, 4, 4]]), 4)
    tensor([0.5000])
    """
    maps = maps.clamp(min=0)
    maps = maps.where(maps.sum(dim=(1, 2), keepdim=True) > 0, 1.0)
    pixels = maps.repeat_interleave(patch_size, 1).repeat_interleave(patch_size, 2)  # (B, H, W)
    return (pixels * inside_boxes(places, pixels.shape[1:])).sum(dim=(1, 2)) / pixels.sum(dim=(1, 2))


def pointing_game(maps, places, patch_size):
    """Whether each map is largest at a patch whose centre lies in the place: (B,) of 1 and 0, shares where several are

    >>> peak_inside(torch.ones(1, 2, 2), torch.tensor([[0, 0, 4, 4]]), 4)
    tensor([0.2500])
    """
    P, (rows, cols) = patch_size, maps.shape[1:]
    centres = inside_boxes(places, (rows * P, cols * P))[:, P // 2 :: P, P // 2 :: P]  # (B, rows, cols)
    peaks = maps == maps.amax(dim=(1, 2), keepdim=True)
    return (peaks & centres).sum(dim=(1, 2)) / peaks.sum(dim=(1, 2))


def inside_boxes(places, image_size):
    """Which pixels lie in each place: (B, 4) -> boolean (B, H, W)"""
    left, top, width, height = (x[:, None, None] for x in places.unbind(dim=1))
    y, x = (torch.arange(n, device=places.device) for n in image_size)
    y = y[:, None]
    return (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
