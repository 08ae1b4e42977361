"""A small model that has learned nothing, and images for it"""

import pytest
import torch

from vit_helpers.parity import perturb
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture(
    scope="module", params=[(True, "cls"), (False, "avg")], ids=["class token", "no class token"]
)
def model(request):
    torch.manual_seed(0)
    token, pool = request.param
    model = ViT(
        ViTConfig.from_name(
            "mini/4",
            image_size=(12, 16),
            in_chans=1,
            num_classes=5,
            depth=3,
            class_token=token,
            pool=pool,
        )
    )
    perturb(model, std=0.2)
    return model.eval()


@pytest.fixture
def images():
    return torch.randn(2, 1, 12, 16, generator=torch.Generator().manual_seed(1))
