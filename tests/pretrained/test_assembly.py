"""A model is put together from a state dict: its config follows from shapes."""

import pytest

from vit_helpers import ViT, ViTConfig
from vit_helpers.pretrained import Preprocess
from vit_helpers.pretrained.sources import assemble

pytestmark = [
    pytest.mark.usefixtures("no_figures"),
    pytest.mark.filterwarnings("ignore:.* has no description; assumed"),
    pytest.mark.filterwarnings("ignore:the names of the 5 classes .* are unknown"),
]


def test_hidden_widths_are_not_rounded_down():
    """120 / 88 * 88 is 119.99999999999999"""
    state = ViT(ViTConfig(8, 8, 1, 2, 88, 1, 8, mlp_ratio=1.364)).state_dict()
    assert len(state["blocks.0.mlp.fc1.bias"]) == 120
    assert (
        assemble(
            "a file", state, 8, Preprocess(8, (8, 8), "bilinear", (0.5,), (0.5,)), ()
        ).model.config.mlp_ratio
        * 88
        >= 120
    )
