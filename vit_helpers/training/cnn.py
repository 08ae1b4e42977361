"""A small convolutional network, to compare a ViT with, for images of any channels."""

from itertools import pairwise

from torch import Tensor, nn


class CNN(nn.Module):
    """Three convolutions that halve the image, the mean over all positions, and a linear layer.

    forward: (B, C, H, W) -> (B, K)
    width: channels after the first convolution; the second and third have 2 and 4 times as many
    raises: ValueError in training, from batch norm, for a batch of one image of at most 8 x 8
            pixels: of that a single position is left, and one number has no variance

    >>> sum(p.numel() for p in CNN(in_chans=1, num_classes=10, width=34).parameters())
    106192
    """

    def __init__(self, in_chans: int, num_classes: int, width: int = 32) -> None:
        super().__init__()
        stages = (  # the norm has a bias, so the convolution needs none
            nn.Sequential(
                nn.Conv2d(n, m, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU()
            )
            for n, m in pairwise((in_chans, width, 2 * width, 4 * width))
        )
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.stages(images).mean(dim=(2, 3)))
