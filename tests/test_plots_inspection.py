import matplotlib.pyplot as plt
import pytest
import torch

from vit_helpers.plots.explorer import draw_choice, draw_reading, tell_choice
from vit_helpers.plots.inspection import draw_distances, draw_heads, draw_look


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def image():
    return torch.rand(1, 12, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def maps():
    own = torch.Generator().manual_seed(1)
    return [torch.rand(2, 3, 4, generator=own), torch.rand(2, 3, 4, generator=own) / 10]


def test_a_look_is_drawn_in_its_place_and_its_patch_framed(image, maps):
    ax, drawn = draw_look(image, maps[0], 4, head=1, query=(2, 1))
    heat = drawn.get_array()
    assert heat.shape == (3, 4) and heat[0, 3] == pytest.approx(maps[0][1, 0, 3].item())
    assert drawn.get_clim() == (0, pytest.approx(maps[0].max().item()))
    (box,) = ax.patches
    assert box.get_bbox().bounds == (3.5, 7.5, 4, 4)
    assert not draw_look(image, maps[0], 4, head=0)[0].patches


def test_all_heads_of_all_layers_share_one_scale(image, maps):
    fig = draw_heads(image, maps, 4, notes=[["a", "b"], ["c", "d"]])
    drawn = [ax.images[-1] for ax in fig.axes if ax.images]
    assert len(drawn) == 4 and all(one.get_clim() == (0, pytest.approx(maps[0].max().item())) for one in drawn)
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in fig.axes if ax.images]
    assert titles == ["head 1, entropy a", "head 2, entropy b", "entropy c", "entropy d"]
    words = [text for ax in fig.axes for text in ax.texts]
    assert [text.get_text() for text in words] == ["layer 1", "layer 2"] and all(text.get_visible() for text in words)


def test_a_dot_for_every_head():
    ax = draw_distances(torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 6.0]]))
    dots = [tuple(line.get_xydata()[:, 1]) for line in ax.lines]
    assert dots == [(1, 2), (3, 4), (0.5, 6)] and ax.get_ylim()[0] == 0


def of_layer(maps):
    return lambda layer, query: maps[layer][None]


def test_the_choice_says_what_is_drawn(image, maps):
    fig = draw_choice(image[None], of_layer(maps), 4, layer=1, head=0, query=(0, 2))
    ax = fig.axes[0]
    assert "Layer 2, head 1, asked by the patch (0, 2)" in (ax.get_title(loc="left") or ax.get_title())


def test_the_alt_text_of_one_map_tells_its_largest_weight(image, maps):
    weights = maps[1][0]
    row, col = divmod(weights.argmax().item(), weights.shape[1])
    said = tell_choice(of_layer(maps), layer=1)
    assert f"the largest weight, {weights.max():.2f}, is on the patch in row {row + 1}, column {col + 1}" in said


def test_a_reading_shows_drawing_pixels_and_a_bar_for_each_class():
    ink, pixels, shares = torch.zeros(30, 20), torch.rand(8, 8), torch.tensor([0.1, 0.7, 0.2])
    left, middle, right = draw_reading(ink, pixels, 4, shares, "abc").axes
    assert (left.images[0].get_array() == 1).all()  # paper is white
    torch.testing.assert_close(torch.tensor(middle.images[0].get_array()).reshape(8, 8), 1 - pixels)
    assert len(middle.lines) == 2  # one cut in each direction
    assert [bar.get_width() for bar in right.patches] == pytest.approx(shares.tolist())
    assert [label.get_text() for label in right.get_yticklabels()] == ["a", "b", "c"]
