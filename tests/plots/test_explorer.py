"""What is drawn and told of the choice of a reader: one map, one reading."""

import pytest
import torch
from figures import areas

from vit_helpers.plots.explorer import draw_choice, draw_reading, tell_choice
from vit_helpers.plots.inspection import (
    TOP,
)


def of_block(maps):
    return lambda block, query: maps[block][None]


def test_the_choice_says_what_is_drawn(image, maps):
    fig = draw_choice(torch.stack([image, image]), of_block(maps), 4, block=1, head=0, query=(0, 2))
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert "Block 2, head 1\nquery: patch (0, 2)" in titles and {
        "images",
        "head 1",
        "head 2",
    } < set(titles)
    large = fig.axes[titles.index("Block 2, head 1\nquery: patch (0, 2)")]
    assert areas(large) == pytest.approx(
        [min(x / TOP, 1) for x in maps[1][0].flatten().tolist()], rel=1e-4
    )


def test_the_alt_text_of_one_map_tells_its_largest_weight(image, maps):
    weights = maps[1][0]
    row, col = divmod(weights.argmax().item(), weights.shape[1])
    said = tell_choice(of_block(maps), block=1)
    patch = f"the patch in row {row + 1}, column {col + 1}"
    assert f"the largest weight, {weights.max():.2f}, is on {patch}" in said


def test_a_reading_shows_drawing_pixels_and_a_bar_for_each_class():
    ink, pixels, shares = torch.zeros(30, 20), torch.rand(8, 8), torch.tensor([0.1, 0.7, 0.2])
    left, middle, right = draw_reading(ink, pixels, 4, shares, "abc").axes
    assert (left.images[0].get_array() == 1).all()  # paper is white
    torch.testing.assert_close(torch.tensor(middle.images[0].get_array()).reshape(8, 8), 1 - pixels)
    assert len(middle.lines) == 2  # one cut in each direction
    assert [bar.get_width() for bar in right.patches] == pytest.approx(shares.tolist())
    assert [label.get_text() for label in right.get_yticklabels()] == ["a", "b", "c"]
