"""Augmentation of a batch, with random numbers for each image.

torchvision's v2 transforms draw them once for all images that they get.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers._validate import check_floating


def random_affine(
    images: Tensor, degrees: float = 10.0, scale: float = 0.1, shift: float = 0.5
) -> Tensor:
    """Rotate, scale and shift every image by its own random amount; pixels from outside are 0.

    images : (B, C, H, W), from 0 to 1, as the result
    degrees: largest rotation
    scale  : largest change of size, 0.1 for 10%
    shift  : largest shift along each axis, in pixels
    raises : ValueError if scale is not from 0 to below 1, since images would be turned inside out;
             TypeError for integer pixels
    """
    check_floating(images)
    if not 0 <= scale < 1:
        raise ValueError(f"scale must be at least 0 and below 1, got {scale}")
    B, _, H, W = images.shape
    uniform = partial(torch.empty(B, device=images.device, dtype=images.dtype).uniform_, -1, 1)
    angle = torch.deg2rad(degrees * uniform())
    size = 1 + scale * uniform()
    dx = shift * 2 / W * uniform()  # grid_sample measures a side as 2
    dy = shift * 2 / H * uniform()
    cos, sin = angle.cos() / size, angle.sin() / size
    theta = torch.stack([cos, -sin * H / W, dx, sin * W / H, cos, dy], dim=1).view(B, 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    # bilinear would blur small images; bicubic overshoots at edges
    moved = F.grid_sample(images, grid, mode="bicubic", align_corners=False)
    return moved.clamp(0, 1)


def random_flip(images: Tensor) -> Tensor:
    """Flip each image left to right with probability 1/2: (B, C, H, W) -> (B, C, H, W)"""
    flipped = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(flipped, images.flip(3), images)


def random_crop(images: Tensor, padding: int = 4) -> Tensor:
    """Pad each image with 0 on every side, and crop it at a random position to its old size.

    images : (B, C, H, W), as the result
    padding: pixels, 0 or more, which is also the largest shift
    raises : ValueError for a negative padding

    >>> random_crop(torch.ones(5, 3, 8, 8), padding=2).shape
    torch.Size([5, 3, 8, 8])
    """
    if padding < 0:
        raise ValueError(f"padding is a number of pixels, 0 or more, got {padding}")
    B, _, H, W = images.shape
    padded = F.pad(images, [padding] * 4)
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # views: (B, C, tops, lefts, H, W)
    top, left = torch.randint(2 * padding + 1, (2, B), device=images.device)
    return windows[torch.arange(B, device=images.device), :, top, left]


def random_erase(images: Tensor, share: float = 0.25, fill: float = 0.0) -> Tensor:
    """Fill a box of each image, at its own random position.

    Zhong et al., arXiv 1708.04896, with boxes of one size

    images: (B, C, H, W), as the result
    share : the box's fraction of the area, from 0 to 1
    fill  : the value inside
    raises: ValueError for another share
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is a fraction of the area, from 0 to 1, got {share}")
    return images.masked_fill(random_boxes(images, share), fill)


def random_boxes(images: Tensor, share: float) -> Tensor:
    """Draw a box in each image, with the image's aspect ratio and this fraction of its area.

    (B, C, H, W) -> (B, 1, H, W), True inside
    """
    B, _, H, W = images.shape
    height, width = round(H * share**0.5), round(W * share**0.5)
    top = torch.randint(H - height + 1, (B, 1, 1, 1), device=images.device)
    left = torch.randint(W - width + 1, (B, 1, 1, 1), device=images.device)
    y = torch.arange(H, device=images.device)[:, None]
    x = torch.arange(W, device=images.device)
    return (y >= top) & (y < top + height) & (x >= left) & (x < left + width)


def mixup(
    images: Tensor, labels: Tensor, num_classes: int, alpha: float = 0.2
) -> tuple[Tensor, Tensor]:
    """Blend each image with another of the batch, and their labels alike.

    Zhang et al., arXiv 1710.09412

    images : (B, C, H, W)
    labels : (B,)
    alpha  : of Beta(alpha, alpha), which the weight of each image is drawn from, 0.01 or more
    returns: images (B, C, H, W), and soft labels (B, K) whose rows sum to 1
    raises : ValueError for a smaller alpha; TypeError for integer pixels
    """
    weight = draw_weights(images, alpha)
    partner = torch.randperm(len(images), device=images.device)
    mixed = weight.view(-1, 1, 1, 1) * images + (1 - weight).view(-1, 1, 1, 1) * images[partner]
    return mixed, mix_labels(labels, labels[partner], weight, num_classes)


def cutmix(
    images: Tensor, labels: Tensor, num_classes: int, alpha: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Paste a box of another image of the batch into each; labels are weighted by area.

    Yun et al., arXiv 1905.04899

    Arguments, results and errors are those of `mixup`. Boxes have one size per batch and a
    position per image.
    """
    partner = torch.randperm(len(images), device=images.device)
    box = random_boxes(images, 1 - draw_weights(images, alpha)[0].item())
    covered = box.to(images.dtype).mean(dim=(1, 2, 3))  # after rounding to pixels
    mixed = torch.where(box, images[partner], images)
    return mixed, mix_labels(labels, labels[partner], 1 - covered, num_classes)


def draw_weights(images: Tensor, alpha: float) -> Tensor:
    """Draw the weight of each image in a mixture from Beta(alpha, alpha): (B, C, H, W) -> (B,)

    raises: ValueError for an alpha below 0.01; TypeError for integer pixels, whose weights were 0
    """
    check_floating(images)
    if not alpha >= 0.01:
        raise ValueError(
            f"alpha must be at least 0.01, got {alpha}: below, draws are lost in rounding"
        )
    return torch.distributions.Beta(alpha, alpha).sample(torch.Size([len(images)])).to(images)


def mix_labels(labels: Tensor, others: Tensor, weight: Tensor, num_classes: int) -> Tensor:
    """Mix two labels per image into soft labels: (B,), (B,), (B,) -> (B, K)"""
    own = F.one_hot(labels, num_classes).to(weight.dtype)
    other = F.one_hot(others, num_classes).to(weight.dtype)
    return weight[:, None] * own + (1 - weight)[:, None] * other


def flip_crop(images: Tensor) -> Tensor:
    """Mirror each image or not, and move it by up to 2 pixels: (B, C, H, W) -> (B, C, H, W)"""
    return random_crop(random_flip(images), padding=2)


def crop(images: Tensor) -> Tensor:
    """Move each image by up to a sixteenth of the side, at least 1 pixel, without mirroring it.

    (B, C, H, W) -> (B, C, H, W)
    """
    return random_crop(images, padding=max(1, images.shape[3] // 16))


def augment_photos(images: Tensor) -> Tensor:
    """Show a part of each photo, mirrored or not, in other colors, and erase a box of every fourth.

    torchvision's transforms, one image at a time. results/README.md says what they are worth.
    images: (B, C, H, W), from 0 to 1, with C 1 or 3, as the result
    """
    from torchvision.transforms import v2  # not above: it takes seconds

    change = v2.Compose(
        [
            v2.RandomResizedCrop(images.shape[2:], scale=(0.35, 1)),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
            v2.RandomErasing(p=0.25),
        ]
    )
    return torch.stack([change(image) for image in images])
