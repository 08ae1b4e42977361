"""Figures of notebook 08 with photos: maps have their scales, filters and positions their maps."""

import pytest
import torch

from vit_helpers.plots.inspection_photos import (
    draw_controlled_maps,
    draw_filters,
    draw_photos,
    draw_positions,
)


@pytest.fixture
def maps():
    own = torch.Generator().manual_seed(1)
    return [torch.rand(2, 3, 4, generator=own), torch.rand(2, 3, 4, generator=own) / 10]


def test_photos_have_a_row_each_and_all_maps_one_scale():
    images, maps = torch.rand(2, 3, 8, 8), torch.tensor([[[1.0, 1], [1, 1]], [[1, 1], [1, 13]]])
    drawn = draw_photos(images, {"map": maps}, ["one", "two"], top=3).figure.axes
    assert [ax.get_title() for ax in drawn] == ["the photo", "map", "", ""]
    assert [ax.texts[0].get_text() for ax in drawn[::2]] == ["one", "two"]
    # 13 is 3.25 times the mean
    for ax, above in zip(drawn[1::2], ([[0, 0], [0, 0]], [[0, 0], [0, 2]]), strict=True):
        assert ax.images[1].get_array().tolist() == above and ax.images[1].get_clim() == (0, 2)
    assert [len(ax.images) for ax in drawn] == [1, 2, 1, 2]


def test_maps_and_their_controls_have_a_scale_each_that_is_written_above_them():
    photos = {"one": torch.rand(3, 80, 120), "two": torch.rand(3, 80, 120)}
    maps = {"rollout": [torch.tensor([[0.0, 0], [0, 8]]), torch.ones(2, 2), torch.ones(2, 2)]}
    maps["control"] = [torch.tensor([[0.0, 1.25], [1.25, 5]]), torch.tensor([[1.0, 1], [2, 0]])]
    picture = draw_controlled_maps(photos, maps, steps=2)
    axes = picture.figure.axes
    assert [ax.get_title() for ax in axes] == [
        *("one", "rollout\n4 x mean", "control\n3 x mean"),
        *("two", "1 x mean", "2 x mean"),
    ]
    assert [len(ax.images) for ax in axes] == [1, 2, 2, 1, 2, 2]
    clims = [ax.images[1].get_clim() for ax in axes if len(ax.images) > 1]
    assert clims == [(0, 8), (0, 5), (0, 1), (0, 2)]
    assert axes[2].images[1].get_array().tolist() == [[0, 1.25], [1.25, 5]]
    assert axes[5].images[1].get_array().tolist() == [[0.5, 0.5], [2, 0]]  # in two steps
    assert "4 and 1 times the mean" in picture.alt and len(picture.alt) <= 300


def test_filters_are_numbered_through_their_groups():
    patterns = torch.randn(5, 3, 4, 4)
    axes = draw_filters(patterns, {"smooth": 2, "fine": 3}, columns=3).figure.axes
    assert [ax.get_title() for ax in axes] == ["1", "2", "", "3", "4", "5"]
    assert [len(ax.images) for ax in axes] == [1, 1, 0, 1, 1, 1]
    shown = torch.tensor(axes[3].images[0].get_array())  # (P, P, C)
    wanted = 0.5 + 0.5 * patterns[2] / patterns[2].abs().max()
    torch.testing.assert_close(shown, wanted.permute(1, 2, 0))


def test_positions_have_a_map_each():
    similar = torch.linspace(-1, 1, 36).reshape(6, 6)
    ax, bar = draw_positions(similar, (2, 3)).figure.axes
    canvas = torch.tensor(ax.images[0].get_array().filled(float("nan")))
    torch.testing.assert_close(canvas[:2, :3].flatten(), similar[0])
    torch.testing.assert_close(canvas[3:5, 8:11].flatten(), similar[5])
    assert bar.get_ylabel() == "cosine similarity"
