"""Images, grids, maps over patches, squares and bars, as all figures draw them."""

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex

from vit_helpers.plots import style
from vit_helpers.plots.images import (
    color_bar,
    draw_bars,
    draw_grid,
    draw_image,
    draw_image_grid,
    draw_over,
    draw_squares,
    mark_wrong,
)


def test_an_image_is_drawn_where_told():
    _, ax = plt.subplots()
    picture = torch.rand(3, 4, 6)
    assert draw_image(picture, ax, "a title") is ax
    assert ax.images[0].get_array().shape == (4, 6, 3)
    assert ax.get_title(loc="left") == "a title"


def test_a_sheet_holds_every_image_and_its_title():
    fig = draw_image_grid(torch.rand(5, 1, 8, 8), ["a", "b", "c", "d", "e"], columns=3)
    assert sum(len(ax.images) for ax in fig.axes) == 5
    assert [ax.get_title() for ax in fig.axes] == ["a", "b", "c", "d", "e", ""]


def test_grid_lines_stand_between_patches():
    ax = draw_grid(draw_image(torch.rand(1, 8, 12)), (8, 12), 4)
    assert sorted(line.get_ydata()[0] for line in ax.lines[:1]) == [3.5]
    assert sorted(line.get_xdata()[0] for line in ax.lines[1:]) == [3.5, 7.5]


def test_attention_lies_over_its_patches_on_a_stated_scale():
    weights = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.0, 0.0]])
    ax, drawn = draw_over(torch.rand(1, 8, 12), weights, top=0.5)
    heat = drawn.get_array()
    # over the whole image
    assert heat.shape == (2, 3) and drawn.get_extent() == [-0.5, 11.5, 7.5, -0.5]
    assert heat[0, 1] == pytest.approx(0.2) and heat[1, 0] == pytest.approx(0.4)
    assert drawn.get_clim() == (0, 0.5)
    # half as dark at a quarter
    assert drawn.to_rgba(heat)[1, 2, 3] == 0 and drawn.norm(0.125) == pytest.approx(0.5)
    assert color_bar(drawn, ax, "weight").ax.get_ylabel() == "weight"


def test_the_area_of_a_square_is_the_weight():
    ax = draw_squares(
        torch.rand(1, 8, 12), torch.tensor([0.5, 0.125, 0.0, 0.9, 0.1, 0.2]), (2, 3), top=0.5
    )
    areas = [square.get_width() * square.get_height() for square in ax.patches]
    # patches of 4 x 4 pixels; none is larger than its patch
    assert areas == pytest.approx([16, 4, 0, 16, 3.2, 6.4])
    # in the middle of patch 1
    assert ax.patches[1].get_bbox().bounds == pytest.approx((4.5, 0.5, 2, 2))


def test_bars_stress_the_chosen_one():
    ax = draw_bars([0.2, 0.7, 0.1], ["a", "b", "c"], chosen=1)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.2, 0.7, 0.1])
    assert [to_hex(bar.get_facecolor()).upper() == style.SERIES[0] for bar in ax.patches] == [
        False,
        True,
        False,
    ]
    assert [text.get_text() for text in ax.texts] == ["0.70"]


def test_a_sheet_of_images_can_be_numbered_and_mistakes_marked():
    fig = draw_image_grid(torch.rand(16, 1, 8, 8), numbered=True)
    assert [ax.get_title() for ax in fig.axes[:8]] == [f"column {i}" for i in range(8)]
    assert [fig.axes[i].texts[0].get_text() for i in (0, 8)] == ["row 0", "row 1"]
    fig = draw_image_grid(torch.rand(3, 1, 8, 8), ["1 → 1", "9 → 5\n0.12", "2 → 2"])
    mark_wrong(fig, [False, True, False])
    assert [ax.get_title() for ax in fig.axes[:3]] == ["1 → 1", "× 9 → 5\n0.12", "2 → 2"]
    assert [len(ax.patches) for ax in fig.axes[:3]] == [0, 1, 0]
