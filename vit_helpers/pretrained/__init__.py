"""Pretrained weights of other libraries and our own, with their preprocessing, and fine-tuning."""

from vit_helpers.pretrained.files import Pretrained, load_weights, save_weights
from vit_helpers.pretrained.key_maps import (
    fill,
    from_google,
    from_huggingface,
    from_timm,
    from_torchvision,
)
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.pretrained.sources import load_pretrained, torchvision_cache_path

__all__ = [
    "Preprocess",
    "Pretrained",
    "fill",
    "from_google",
    "from_huggingface",
    "from_timm",
    "from_torchvision",
    "load_pretrained",
    "load_weights",
    "save_weights",
    "torchvision_cache_path",
]
