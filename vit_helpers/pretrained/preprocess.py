"""From a picture to the numbers that a model was trained on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preprocess:
    """Resize, cut out the middle, normalise: as the weights' own description says.

    resize       : pixels of the shorter side, the other in proportion; or (H, W), whatever the proportion
    crop         : (H, W) cut from the middle
    interpolation: "bilinear" or "bicubic", with antialiasing
    mean, std    : a number a channel, of pixels from 0 to 1

    preprocess(picture): a PIL picture of any mode, or a tensor (C, H, W) from 0 to 1 -> (C, *crop)
    raises: ValueError for a tensor with other channels

    >>> import torch
    >>> Preprocess(256, (224, 224), "bilinear", (0.5,) * 3, (0.5,) * 3)(torch.rand(3, 300, 400)).shape
    torch.Size([3, 224, 224])
    """

    resize: int | tuple[int, int]
    crop: tuple[int, int]
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self):
        for name in ("crop", "mean", "std"):  # lists, where they come from a file
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.resize, int):
            object.__setattr__(self, "resize", tuple(self.resize))
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"unknown interpolation {self.interpolation!r}, known: bilinear, bicubic")
        if len(self.mean) != len(self.std) or not min(self.std) > 0:
            raise ValueError(f"mean and std are a number a channel, std above 0; got {self.mean} and {self.std}")

    @property
    def in_chans(self):
        """C: 1 for grey, 3 for red, green and blue"""
        return len(self.mean)

    def __call__(self, picture):
        return self.normalize(self.frame(picture))

    def frame(self, picture):
        """What the model sees of a picture, to be drawn: (C, *crop), from 0 to 1"""
        import torch
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as TF

        if isinstance(picture, torch.Tensor):
            if picture.ndim != 3 or len(picture) != self.in_chans:
                raise ValueError(f"a picture is (C, H, W) with C = {self.in_chans}, got {tuple(picture.shape)}")
        else:
            picture = picture.convert("L" if self.in_chans == 1 else "RGB")
        resize = list(self.resize) if isinstance(self.resize, tuple) else self.resize
        picture = TF.resize(picture, resize, InterpolationMode(self.interpolation), antialias=True)
        picture = TF.center_crop(picture, list(self.crop))
        return picture if isinstance(picture, torch.Tensor) else TF.pil_to_tensor(picture) / 255

    def normalize(self, images):
        """Shift and scale each channel as in training: (..., C, H, W) -> (..., C, H, W)"""
        mean, std = (images.new_tensor(x).view(-1, 1, 1) for x in (self.mean, self.std))
        return (images - mean) / std
