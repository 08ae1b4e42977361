"""A small convolutional network, to compare a ViT with.  Works on images of any size and any number of channels."""

from itertools import pairwise

from torch import Tensor, nn


class CNN(nn.Module):
    """Three convolutions that halve the image, the mean over what is left, a linear layer.  (B, C, H, W) -> (B, K)

    width: channels after the first convolution; the second and third have 2 and 4 times as many

    >>> sum(p.numel() for p in CNN(in_chans=1, num_classes=10, width=34).parameters())
    106192
    """

    def __init__(self, in_chans: int, num_classes: int, width: int = 32) -> None:
        super().__init__()
        widths = (in_chans, width, 2 * width, 4 * width)
        self.stages = nn.Sequential(*(stage(*pair) for pair in pairwise(widths)))
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.stages(images).mean(dim=(2, 3)))


def stage(in_chans: int, out_chans: int) -> nn.Sequential:
    """(B, in_chans, H, W) -> (B, out_chans, H/2, W/2), rounded up"""
    return nn.Sequential(
        nn.Conv2d(in_chans, out_chans, kernel_size=3, stride=2, padding=1, bias=False),  # the norm has a bias
        nn.BatchNorm2d(out_chans),
        nn.ReLU(),
    )
