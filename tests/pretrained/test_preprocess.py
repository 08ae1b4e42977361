"""How images are prepared for weights: as their libraries do it."""

import pytest
import torch
import torchvision

from vit_helpers.data import photos
from vit_helpers.pretrained import Preprocess

GREY = Preprocess((8, 12), (8, 12), "bicubic", (0.3,), (0.2,))


@pytest.mark.parametrize(
    "name",
    [
        "ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1",
        "ViT_L_16_Weights.IMAGENET1K_V1",
        "ViT_H_14_Weights.IMAGENET1K_SWAG_LINEAR_V1",
    ],
)
def test_preprocessing_is_that_of_the_weights(name, picture):
    t = torchvision.models.get_weight(name).transforms()
    mine = Preprocess(t.resize_size[0], (t.crop_size[0],) * 2, t.interpolation.value, t.mean, t.std)
    assert torch.allclose(mine(picture), t(picture), atol=1e-6)
    tensor, (black, white) = (
        photos()["flower"],
        mine.normalize(torch.arange(2.0).view(2, 1, 1, 1).expand(2, 3, 1, 1)),
    )
    # torchvision lets bicubic overshoot
    assert torch.allclose(mine(tensor), t(tensor).clamp(black, white), atol=1e-6)


def test_pictures_of_any_mode_and_size(picture):
    for mode in ("L", "RGBA", "P", "CMYK"):
        assert GREY(picture.convert(mode)).shape == (1, 8, 12)
    wide = Preprocess(32, (24, 24), "bilinear", (0.5,) * 3, (0.5,) * 3)
    assert wide(picture.convert("P")).shape == (3, 24, 24) and wide(
        picture.resize((40, 300))
    ).shape == (3, 24, 24)
    with pytest.raises(ValueError, match=r"C = 1, got \(3, 9, 9\)"):
        GREY(torch.rand(3, 9, 9))


@pytest.mark.parametrize("step", [GREY, GREY.frame, GREY.normalize])
def test_integer_pixels_are_refused(step):
    with pytest.raises(TypeError, match=r"got torch\.uint8: scale them first"):
        step(torch.full((1, 9, 9), 200, dtype=torch.uint8))


@pytest.mark.parametrize(("fields", "says"), [
    ({"interpolation": "cubic"}, "unknown interpolation 'cubic', known: bilinear, bicubic"),
    ({"std": (0.0,)}, "std above 0"),
    ({"mean": (0.1, 0.2)}, "one number per channel"),
    ({"mean": (0.1, 0.2, 0.3), "std": (0.3, float("nan"), 0.2)}, "finite, .*nan"),
    ({"mean": (0.1, 0.2), "std": (0.3, float("inf"))}, "finite, .*inf"),
    ({"mean": (0.1, float("nan")), "std": (0.3, 0.2)}, "finite, .*nan"),
    ({"mean": (-float("inf"),)}, "finite, .*-inf"),
])  # fmt: skip
def test_a_wrong_description_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        Preprocess(
            **{
                "resize": 8,
                "crop": (8, 8),
                "interpolation": "bicubic",
                "mean": (0.3,),
                "std": (0.2,),
            }
            | fields
        )
