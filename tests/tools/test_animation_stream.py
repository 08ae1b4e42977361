"""The animation of the stream: its tokens are the model's, and stay in their places."""

import numpy as np
import pytest
import torch

from tools import animation_meeting as meeting
from tools import animation_stream as stream
from tools.pictures import nine
from vit_helpers.data.digits import every_digit
from vit_helpers.inspection import token_layers
from vit_helpers.plots.attention_steps import read_example
from vit_helpers.pretrained import load_pretrained

pytestmark = pytest.mark.dev


def numbers(name):
    """What an animation of a notebook is drawn from"""
    if name == "03_attention/meeting":
        return meeting.meeting_of(*read_example())
    return stream.read_stream(load_pretrained("ours:drawn"), nine())


def test_the_class_token_is_the_models():
    pretrained = load_pretrained("ours:drawn")
    model, preprocess, _ = pretrained
    followed = numbers("04_encoder/stream")
    layers = token_layers(model, preprocess(nine())[None])
    assert torch.allclose(followed.tokens[::2], torch.stack(layers)[:, 0, 0], atol=1e-5)
    total = followed.tokens[0] + followed.added.sum(dim=0)
    assert torch.allclose(total, followed.tokens[-1], atol=1e-4)
    top = dict(pretrained.top(nine(), k=10))
    assert followed.after.tolist() == pytest.approx([top[str(i)] for i in range(10)], abs=1e-5)
    # before the blocks, any image's
    other = stream.read_stream(pretrained, every_digit().images[1416])
    assert torch.allclose(other.before, followed.before)
    assert torch.equal(other.tokens[0], followed.tokens[0])
    assert followed.before[9] < 0.1 < 0.9 < followed.after[9]


def test_what_is_added_stays_above_its_place():
    followed = numbers("04_encoder/stream")
    count = len(followed.added)
    early = np.asarray(stream.draw_frame(followed, 2, 1.0), int)
    late = np.asarray(stream.draw_frame(followed, count + 1, 1.0), int)
    x, top = round(stream.station(0, count)), stream.TOP
    column = slice(top + 4, top + stream.ADDED[1] - 4)
    assert np.array_equal(early[column, x - 6 : x + 6], late[column, x - 6 : x + 6])
    assert (late[column, x] < 250).any() and count == 8
