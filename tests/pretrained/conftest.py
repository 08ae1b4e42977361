"""A picture, and a small model as it is stored"""

import pytest
import torch
from PIL import Image

from vit_helpers.data import photos
from vit_helpers.parity import perturb
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = ViT(
        ViTConfig.from_name("mini/4", image_size=(8, 12), in_chans=1, num_classes=3, mlp_ratio=2.0)
    ).eval()
    perturb(model, std=0.2)
    return model


@pytest.fixture(scope="module")
def picture():
    pixels = (photos()["china"].permute(1, 2, 0) * 255).round().to(torch.uint8)
    return Image.fromarray(pixels.numpy())
