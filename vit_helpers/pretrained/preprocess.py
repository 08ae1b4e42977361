"""Preprocessing: from an image to the input that a model was trained on."""

import math
from dataclasses import dataclass

from PIL.Image import Image
from torch import Tensor

from vit_helpers._validate import check_choice, check_floating, to_2tuple
from vit_helpers.data.images import check_white, to_rgb
from vit_helpers.data.splits import normalize


@dataclass(frozen=True)
class Preprocess:
    """Resize, center-crop and normalize, as the description of the weights says.

    resize       : pixels of the shorter side, aspect ratio kept; or (H, W), aspect ratio not kept
    crop         : (H, W) of the center crop
    interpolation: "bilinear" or "bicubic", with antialiasing
    mean, std    : one number per channel, of pixels from 0 to 1
    white        : the value of white in gray images of more than 8 bits; None where it is unknown,
                   and then chosen for each image, see `to_rgb`

    preprocess(image): a PIL image of any mode (read as by `to_rgb`), or a tensor (C, H, W) from 0
                       to 1 -> (C, *crop)
    raises           : ValueError for a tensor with another number of channels; TypeError for one of
                       integers
    """

    resize: int | tuple[int, int]
    crop: tuple[int, int]
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: float | None = None

    def __post_init__(self) -> None:
        for name in ("resize", "crop", "mean", "std"):
            if isinstance(value := getattr(self, name), list):  # from a file
                object.__setattr__(self, name, tuple(value))
        to_2tuple(self.resize), to_2tuple(self.crop)
        check_choice("interpolation", self.interpolation, ("bilinear", "bicubic"))
        finite = all(-math.inf < value < math.inf for value in (*self.mean, *self.std))
        if not finite or len(self.mean) != len(self.std) or not min(self.std) > 0:
            raise ValueError(
                "mean and std must be one number per channel, finite, std above 0; "
                f"got {self.mean} and {self.std}"
            )
        check_white(self.white)

    @property
    def in_chans(self) -> int:
        """C: 1 for gray, 3 for color."""
        return len(self.mean)

    def __call__(self, image: Image | Tensor) -> Tensor:
        return self.normalize(self.frame(image))

    def frame(self, image: Image | Tensor) -> Tensor:
        """Cut out what the model sees, before normalization: (C, *crop), from 0 to 1."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as TF

        if isinstance(image, Tensor):
            if image.ndim != 3 or len(image) != self.in_chans:
                raise ValueError(
                    f"an image is (C, H, W) with C = {self.in_chans}, got {tuple(image.shape)}"
                )
            check_floating(image)
        else:
            image = to_rgb(image, white=self.white).convert("L" if self.in_chans == 1 else "RGB")
        _, *sides = TF.get_dimensions(image)
        longest = 100 * min(sides)
        if isinstance(self.resize, int) and longest < max(sides):  # all might fill the memory
            image = TF.center_crop(image, [min(side, longest) for side in sides])
        image = TF.resize(image, self.resize, InterpolationMode(self.interpolation), antialias=True)
        image = TF.center_crop(image, self.crop)
        if isinstance(image, Tensor):
            return image.clamp(0, 1)  # bicubic overshoots
        return TF.pil_to_tensor(image) / 255

    def normalize(self, images: Tensor) -> Tensor:
        """Subtract each channel's mean, divide by its std: (..., C, H, W) -> (..., C, H, W)."""
        return normalize(images, self.mean, self.std)
