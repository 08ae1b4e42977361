"""The tool that scores maps of gradients: its controls are what their names say."""

import pytest
import torch

from tools.experiments.maps import ALL, COVERED, nearest_the_center, random_map
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.dev


@pytest.fixture
def model():
    return ViT(ViTConfig(image_size=(12, 20), patch_size=4, in_chans=1, embed_dim=8, num_heads=1))


def test_the_control_of_the_center_is_largest_there_and_falls_to_the_corners(model):
    maps = nearest_the_center(model, torch.rand(2, 1, 12, 20), torch.zeros(2))
    assert maps.shape == (2, 3, 5) and torch.equal(maps[0], maps[1])
    assert maps[0].argmax() == 1 * 5 + 2
    assert maps[0].min() == maps[0, 0, 0] == maps[0, 2, 4] < maps[0, 1, 0]


def test_the_random_control_is_the_same_for_the_same_images(model):
    images = torch.rand(2, 1, 12, 20)
    first, again, other = (
        random_map(model, x, torch.zeros(2)) for x in (images, images.clone(), images / 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_what_is_covered_is_a_map_that_is_scored():
    assert set(COVERED) <= set(ALL) and len(set(COVERED)) == len(COVERED)
