"""Augmentation by the batch: every image changed by its own random amount, the label kept or mixed."""

from functools import partial

import torch
import torch.nn.functional as F


def random_affine(images, degrees=10.0, scale=0.1, shift=0.5):
    """Turn, scale and shift every image by its own random amount; what comes in from outside is 0.

    images : (B, C, H, W), from 0 to 1
    degrees: largest turn; scale: largest change of size, 0.1 for 10%; shift: largest, in pixels, along each axis
    returns: (B, C, H, W), from 0 to 1
    raises : ValueError when scale is not from 0 up to 1: an image would be turned inside out
    """
    if not 0 <= scale < 1:
        raise ValueError(f"scale is a share from 0 up to 1, got {scale}")
    B, _, H, W = images.shape
    uniform = partial(torch.empty(B, device=images.device, dtype=images.dtype).uniform_, -1, 1)
    angle = torch.deg2rad(degrees * uniform())
    size = 1 + scale * uniform()
    dx, dy = shift * 2 / W * uniform(), shift * 2 / H * uniform()  # grid_sample measures a side as 2
    cos, sin = angle.cos() / size, angle.sin() / size
    theta = torch.stack([cos, -sin * H / W, dx, sin * W / H, cos, dy], dim=1).view(B, 2, 3)
    grid = F.affine_grid(theta, images.shape, align_corners=False)
    turned = F.grid_sample(images, grid, mode="bicubic", align_corners=False)  # bilinear would blur small pictures
    return turned.clamp(0, 1)  # bicubic overshoots at edges


def random_flip(images):
    """Mirror each image left to right with chance one half: (B, C, H, W) -> (B, C, H, W)"""
    flipped = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(flipped, images.flip(3), images)


def random_crop(images, padding=4):
    """Pad each image with 0 on every side, and cut a window of the old size at its own random place.

    images : (B, C, H, W); padding: pixels, so that a picture moves by at most as many
    returns: (B, C, H, W)
    raises : ValueError when padding is below 0

    >>> random_crop(torch.ones(5, 3, 8, 8), padding=2).shape
    torch.Size([5, 3, 8, 8])
    """
    if padding < 0:
        raise ValueError(f"padding is a number of pixels, 0 or more, got {padding}")
    B, C, H, W = images.shape
    padded = F.pad(images, [padding] * 4)
    top, left = torch.randint(2 * padding + 1, (2, B, 1), device=images.device)
    rows = (top + torch.arange(H, device=images.device)).view(B, 1, H, 1)
    columns = (left + torch.arange(W, device=images.device)).view(B, 1, 1, W)
    one, channel = (
        torch.arange(B, device=images.device).view(B, 1, 1, 1),
        torch.arange(C, device=images.device).view(C, 1, 1),
    )
    return padded[one, channel, rows, columns]


def random_erase(images, share=0.25, fill=0.0):
    """Paint over a box of each image, at its own random place (Zhong et al., arXiv 1708.04896, with boxes of one size).

    images: (B, C, H, W); share: of the image's area; fill: the value painted
    raises: ValueError when share is not from 0 to 1
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is a part of the area, from 0 to 1, got {share}")
    return torch.where(random_boxes(images, share), torch.full_like(images, fill), images)


def random_boxes(images, share):
    """A box in each image, of the image's own form and this share of its area: (B, 1, H, W), True inside"""
    B, _, H, W = images.shape
    height, width = round(H * share**0.5), round(W * share**0.5)
    top = torch.randint(H - height + 1, (B, 1, 1, 1), device=images.device)
    left = torch.randint(W - width + 1, (B, 1, 1, 1), device=images.device)
    y = torch.arange(H, device=images.device).view(H, 1)
    x = torch.arange(W, device=images.device)
    return (y >= top) & (y < top + height) & (x >= left) & (x < left + width)


def mixup(images, labels, num_classes, alpha=0.2):
    """Blend each image with another of the batch, and their labels alike (Zhang et al., arXiv 1710.09412).

    images : (B, C, H, W); labels: (B,)
    alpha  : of the Beta distribution that the shares are drawn from; small: mostly near 0 or 1
    returns: images (B, C, H, W), and labels as shares (B, K), each row summing to 1
    raises : ValueError when alpha is below 0.01
    """
    share = shares(images, alpha)
    partner = torch.randperm(len(images), device=images.device)
    mixed = share.view(-1, 1, 1, 1) * images + (1 - share).view(-1, 1, 1, 1) * images[partner]
    return mixed, mix_labels(labels, labels[partner], share, num_classes)


def cutmix(images, labels, num_classes, alpha=1.0):
    """Put a box of another image of the batch into each; labels share by area (Yun et al., arXiv 1905.04899).

    images : (B, C, H, W); labels: (B,); alpha: as for `mixup`; one size of box for the batch, a place for each image
    returns: images (B, C, H, W), and labels as shares (B, K), each row summing to 1
    raises : ValueError when alpha is below 0.01
    """
    partner = torch.randperm(len(images), device=images.device)
    box = random_boxes(images, 1 - shares(images, alpha)[0].item())
    kept = 1 - box.to(images.dtype).mean(dim=(1, 2, 3))  # what the box really covers, after rounding to pixels
    return torch.where(box, images[partner], images), mix_labels(labels, labels[partner], kept, num_classes)


def shares(images, alpha):
    """How much of each image is kept, drawn from Beta(alpha, alpha): (B,)"""
    if not alpha >= 0.01:
        raise ValueError(f"alpha must be at least 0.01, got {alpha}: below, draws get lost in rounding")
    return torch.distributions.Beta(alpha, alpha).sample([len(images)]).to(images)


def mix_labels(labels, others, share, num_classes):
    """Two labels an image as shares: (B,), (B,), (B,) -> (B, K)"""
    one, two = (F.one_hot(x, num_classes).to(share.dtype) for x in (labels, others))
    return share[:, None] * one + (1 - share)[:, None] * two
