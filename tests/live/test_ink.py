"""Ink becomes pixels: means over cells, the same wherever and however large it is drawn."""

import pytest
import torch

from vit_helpers.live.ink import reduce_ink

pytestmark = pytest.mark.dev


def test_where_and_how_large_a_drawing_is_makes_no_difference():
    ink = torch.rand(20, 12)
    ink[0, 0] = ink[-1, -1] = 1
    pixels = reduce_ink(ink)
    moved, larger = torch.zeros(60, 50), torch.kron(ink, torch.ones(7, 7))
    moved[33:53, 5:17] = ink
    assert torch.allclose(reduce_ink(moved), pixels, atol=1e-6) and torch.allclose(
        reduce_ink(larger), pixels, atol=1e-6
    )
    # 12 x 20: 3.2 cells free on each side
    assert (pixels[:, [0, 1, 2, -3, -2, -1]] == 0).all() and (pixels[:, 4:12].sum() > 0)


def test_the_faint_edge_of_a_stroke_does_not_move_the_box():
    ink = torch.zeros(40, 40)
    ink[10:30, 18:22] = 1
    soft = ink.clone()
    soft[9, 18:22] = soft[30, 18:22] = 0.09
    assert torch.equal(reduce_ink(soft), reduce_ink(ink))
    soft[9, 18:22] = 0.2
    assert not torch.allclose(reduce_ink(soft), reduce_ink(ink), atol=0.01)


@pytest.mark.parametrize(
    ("ink", "error", "says"),
    [
        ([[1.0]], TypeError, r"ink is a floating-point tensor \(H, W\), got list"),
        (torch.ones(3, 3, dtype=torch.uint8), TypeError, "got torch.uint8"),
        (torch.ones(1, 3, 3), ValueError, r"ink has 2 axes \(H, W\), got 3: \(1, 3, 3\)"),
        (torch.full((3, 3), torch.nan), ValueError, "from 0 .* to 1 .*without NaN"),
        (torch.full((3, 3), 255.0), ValueError, "from 0 .* to 1 "),
        (torch.full((3, 3), 0.1), ValueError, "the drawing is empty"),
        (torch.zeros(0, 3), ValueError, "the drawing is empty"),
    ],
)
def test_what_is_no_drawing_is_refused(ink, error, says):
    with pytest.raises(error, match=says):
        reduce_ink(ink)
