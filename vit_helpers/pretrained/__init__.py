"""Other people's weights under our names, with the treatment of pictures that belongs to them; and our own, kept whole."""

from vit_helpers.pretrained.files import Pretrained, load_weights, save_weights
from vit_helpers.pretrained.key_maps import fill, from_google, from_huggingface, from_timm, from_torchvision
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.pretrained.sources import is_cached_by_torchvision, load_pretrained

__all__ = [
    "Preprocess",
    "Pretrained",
    "fill",
    "from_google",
    "from_huggingface",
    "from_timm",
    "from_torchvision",
    "is_cached_by_torchvision",
    "load_pretrained",
    "load_weights",
    "save_weights",
]
