"""Figures of the filters of notebook 01: by hand and learned, and their maps."""

import numpy as np
import pytest
import torch

from vit_helpers.plots import style
from vit_helpers.plots.patches_filters import (
    SPREAD,
    TOP,
    draw_brightness,
    draw_by_hand,
    draw_components,
    draw_kernel,
    draw_maps,
)


def test_filters_by_hand_are_above_their_maps_on_one_scale():
    filters = dict(zip("abc", torch.randn(3, 3, 4, 4), strict=True))
    maps = torch.randn(3, 4, 5)
    axes = draw_by_hand(torch.rand(3, 16, 20), filters, maps).figure.axes
    assert [ax.get_title() for ax in axes[1:4]] == ["a", "b", "c"]
    for ax, values in zip(axes[5:8], maps, strict=True):
        assert np.array_equal(ax.images[0].get_array(), values)
    assert axes[5].images[0].get_clim() == (0, 1)
    assert [ax.images[0].get_clim() for ax in axes[6:8]] == [(-TOP, TOP)] * 2
    assert axes[8].get_ylabel() == "difference"


def test_maps_of_layers_are_comparable():
    layers = {
        name: (torch.randn(4, 3, 4, 4), scale * torch.randn(4, 5, 6) + scale)
        for name, scale in (("small", 1), ("large", 100))
    }
    axes = draw_maps(layers).figure.axes
    assert len(axes) == 2 * 2 * 4 + 1
    drawn = [ax.images[0] for ax in [*axes[4:8], *axes[12:16]]]
    assert {image.get_clim() for image in drawn} == {(-SPREAD, SPREAD)}
    assert {image.get_cmap().name for image in drawn} == {style.SIGNED}
    for image in drawn:
        values = np.asarray(image.get_array())
        assert values.mean() == pytest.approx(0, abs=1e-5)
        assert values.std(ddof=1) == pytest.approx(1, abs=1e-5)
    assert [text.get_text() for ax in axes for text in ax.texts] == [
        "small:\nfilters",
        "maps",
        "large:\nfilters",
        "maps",
    ]


def test_every_filter_is_counted_once_by_its_likeness_to_brightness():
    picture = draw_brightness({"a": torch.tensor([0.05, 0.95, 0.99]), "b": torch.tensor([0.5] * 3)})
    heights = [[bar.get_height() for bar in ax.patches] for ax in picture.figure.axes]
    assert heights == [[1, *[0] * 8, 2], [*[0] * 5, 3, *[0] * 4]]
    assert "a 2 of 3, b 0 of 3" in picture.alt
    assert len({ax.get_ylim() for ax in picture.figure.axes}) == 1


def test_a_weight_of_zero_is_gray():
    kernel = torch.zeros(3, 2, 2)
    kernel[0, 0, 0], kernel[1, 1, 1] = 2, -4
    shown = draw_kernel(kernel, style.new_axes(None)).images[0].get_array()
    assert shown[0, 1].tolist() == [0.5, 0.5, 0.5]
    assert shown[0, 0].tolist() == [0.75, 0.5, 0.5] and shown[1, 1].tolist() == [0.5, 0, 0.5]
    assert not draw_kernel(torch.zeros(3, 2, 2), style.new_axes(None)).images[0].get_array().std()


def test_components_are_drawn_in_their_order():
    components = torch.randn(5, 3, 4, 4)
    axes = draw_components(components, columns=4).figure.axes
    assert [len(ax.images) for ax in axes] == [1] * 5 + [0] * 3
    strongest = [component.abs().max() for component in components]
    for ax, component, top in zip(axes, components, strongest, strict=False):
        shown = torch.as_tensor(ax.images[0].get_array()).permute(2, 0, 1)
        assert torch.allclose(shown, 0.5 + component / top / 2, atol=1e-6)
