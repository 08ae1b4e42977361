"""The animation in which a query meets keys: ribbons, order and numbers are attention's."""

import numpy as np
import pytest
import torch

from tools import animation_meeting as meeting
from tools import animation_stream as stream
from tools.pictures import nine
from vit_helpers.attention import attention
from vit_helpers.plots import style
from vit_helpers.plots.attention_steps import read_example
from vit_helpers.pretrained import load_pretrained

pytestmark = pytest.mark.dev


def numbers(name):
    """What an animation of a notebook is drawn from"""
    if name == "03_attention/meeting":
        return meeting.meeting_of(*read_example())
    return stream.read_stream(load_pretrained("ours:drawn"), nine())


@pytest.mark.parametrize("row", [0, 1, 2])
def test_what_meets_is_attention(row):
    labels, z, matrices = read_example()
    q, k, v = (z @ matrices[role] for role in "qkv")
    output, weights = attention(q, k, v)
    met = meeting.meeting_of(labels, z, matrices, row)
    assert torch.allclose(met.weights, weights[row]) and torch.allclose(met.output, output[row])
    assert torch.allclose(met.products.sum(dim=1), k @ q[row]) and met.name == labels[row]
    assert "-0" not in [text.get_text() for text in meeting.draw_moment(met).axes[0].texts]


def test_a_ribbon_is_as_wide_as_its_weight():
    met = numbers("03_attention/meeting")
    frame = np.asarray(meeting.draw_frame(met, len(meeting.moments(met)) - 1, 1.0), int)
    pink = np.array([round(255 * part) for part in meeting.tint(style.VALUE, 0.8)])
    column = meeting.VALUES + 4 * meeting.CELL + 6  # just behind the values
    wide = [
        (np.abs(frame[y - 40 : y + 40, column] - pink).max(axis=-1) < 40).sum()
        for y in (round(meeting.row_top(i) + meeting.CELL / 2) for i in range(3))
    ]
    assert wide == pytest.approx((meeting.THICK * met.weights).tolist(), abs=2.5)


def test_the_query_goes_from_key_to_key():
    met = numbers("03_attention/meeting")
    blue = np.array(list(bytes.fromhex(style.QUERY[1:])))
    tops = []
    for number in (1, 2, 3):
        frame = np.asarray(meeting.draw_frame(met, number, 1.0), int)
        rows = (np.abs(frame[:, meeting.KEYS + 30] - blue).max(axis=-1) < 60).nonzero()[0]
        tops.append(rows.min())
    keys = [meeting.row_top(i) - meeting.CELL - 3 for i in range(3)]
    assert tops == pytest.approx(keys, abs=3)
