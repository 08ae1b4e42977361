"""The ViTs of four libraries beside ours, all in the same shape."""

from collections import namedtuple
from importlib.util import find_spec

from torch import nn

from vit_helpers.vit import ViT, ViTConfig

Shape = namedtuple("Shape", "side patch channels width depth heads batch")
SHAPES = {
    "8 px/P2/D64/L2": Shape(8, 2, 1, 64, 2, 4, 64),
    "32 px/P4/D192/L6": Shape(32, 4, 3, 192, 6, 3, 32),
    "Ti/16": Shape(224, 16, 3, 192, 12, 3, 8),
    "B/16": Shape(224, 16, 3, 768, 12, 12, 4),
}
CLASSES = 10
MODULES = {  # what is imported for a ViT, the smallest part of each library
    "ours": "vit_helpers.vit",
    "torchvision": "torchvision.models.vision_transformer",
    "timm": "timm.models.vision_transformer",
    "Hugging Face": "transformers.models.vit.modeling_vit",
    "vit-pytorch": "vit_pytorch.vit",
}


def installed() -> list[str]:
    """The names of the libraries that are installed, ours first."""
    return [name for name, module in MODULES.items() if find_spec(module.partition(".")[0])]


def ours(s: Shape) -> nn.Module:
    return ViT(ViTConfig(s.side, s.patch, s.channels, CLASSES, s.width, s.depth, s.heads))


def torchvision_vit(s: Shape) -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(s.side, s.patch, s.depth, s.heads, s.width, 4 * s.width, num_classes=CLASSES)
    if s.channels != 3:  # torchvision's builder knows color images only
        model.conv_proj = nn.Conv2d(s.channels, s.width, s.patch, s.patch)
    return model


def timm_vit(s: Shape) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(s.side, s.patch, s.channels, CLASSES, embed_dim=s.width, depth=s.depth, num_heads=s.heads)


def huggingface_vit(s: Shape) -> nn.Module:
    from transformers.models.vit.configuration_vit import ViTConfig
    from transformers.models.vit.modeling_vit import ViTForImageClassification

    names = {"image_size": s.side, "patch_size": s.patch, "num_channels": s.channels, "num_labels": CLASSES}
    names |= {"hidden_size": s.width, "intermediate_size": 4 * s.width}
    return ViTForImageClassification(ViTConfig(**names, num_hidden_layers=s.depth, num_attention_heads=s.heads))


def lucidrains_vit(s: Shape) -> nn.Module:
    """As close as it can be built; `tools/libraries.py` says what still differs."""
    from vit_pytorch.vit import ViT

    names = {"image_size": s.side, "patch_size": s.patch, "channels": s.channels, "num_classes": CLASSES}
    names |= {"dim": s.width, "depth": s.depth, "heads": s.heads, "mlp_dim": 4 * s.width}
    model = ViT(**names, dim_head=s.width // s.heads)  # dim_head is 64 by default
    for attention, _ in model.transformer.layers if s.heads == 1 else ():  # it has no projection for one head
        attention.to_out = nn.Linear(s.width, s.width)
    return model


MAKERS = dict(zip(MODULES, (ours, torchvision_vit, timm_vit, huggingface_vit, lucidrains_vit), strict=True))
