"""Figures of deep stacks in notebook 04: points, ratios, failures and weights."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import to_hex

from vit_helpers.plots import encoder_stacks as stacks
from vit_helpers.plots.encoder import (
    ATTENTION,
)


def texts(fig):
    return [t.get_text() for t in fig.findobj(plt.Text) if t.get_text()]


def test_one_point_gets_a_ring_and_a_cloud_does_not():
    cloud = torch.randn(2, 30, 8)
    panels = {"cloud": cloud, "point": torch.nn.LayerNorm(8)(cloud)}
    fig = stacks.draw_normalizations(panels, ["a", "b"]).figure
    rings = [[line for line in ax.lines if line.get_markersize() == 18] for ax in fig.axes]
    assert [len(found) for found in rings] == [0, 1]
    assert rings[1][0].get_xydata()[0].tolist() == pytest.approx([0, 1], abs=1e-3)
    assert "all 60 tokens" in texts(fig)
    dots = fig.axes[0].lines[0]
    assert dots.get_xdata().tolist() == pytest.approx(cloud[0].mean(-1).tolist())


def test_every_block_has_a_bar_for_attention_and_one_for_the_mlp():
    values = torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 10]])
    fig = stacks.draw_growth(torch.ones(2, 5), values, values).figure
    for ax in fig.axes:
        bars = sorted((bar.get_x() + bar.get_width() / 2, bar) for bar in ax.patches)
        assert [round(x) for x, _ in bars] == [1, 1, 2, 2]
        assert [bar.get_height() for _, bar in bars] == [6, 7, 8, 9]  # means
        colors = [to_hex(bar.get_facecolor()) == ATTENTION for _, bar in bars]
        assert colors == [True, False, True, False]


def test_stacks_have_a_panel_each_with_means_and_bands():
    runs = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    fig = stacks.draw_stacks({"one": {"a": runs, "b": 2 * runs}, "two": {"a": runs}}, "T").figure
    one, two = fig.axes
    assert [line.get_ydata().tolist() for line in one.lines] == [
        pytest.approx([2, 4]),
        pytest.approx([4, 8]),
    ]
    band = two.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == 1 and band.max() == 8


def test_depth_shows_how_the_ratio_grows_seed_by_seed():
    index = pd.MultiIndex.from_product([(3, 12), (0, 1)], names=["depth", "seed"])
    table = pd.DataFrame({"pre-norm": [1.0, 2, 1, 1], "post-norm": [1.0, 1, 4, 4.5]}, index=index)
    fig = stacks.draw_depth(table).figure
    *seeds, mean, root = fig.axes[1].lines
    assert [line.get_ydata()[-1] for line in seeds] == [4, 9]
    assert mean.get_ydata()[-1] == pytest.approx(6) and root.get_ydata()[-1] == 2


def test_failures_are_written_on_tiles():
    counts = pd.DataFrame([[0, 1], [2, 5]], index=["a", "b"], columns=[3, 6])
    picture = stacks.draw_failures({"rate": counts, "other": 0 * counts}, runs=5)
    first, second = picture.figure.axes
    assert [text.get_text() for text in first.texts] == ["0", "1", "2", "5"]
    assert {text.get_text() for text in second.texts} == {"0"}
    assert "rate: 8; other: 0" in picture.alt


def test_sorted_weights_are_bars_beside_equal_ones():
    fig = stacks.draw_sorted_weights({"a": torch.tensor([0.7, 0.2, 0.1])}).figure
    assert [bar.get_height() for bar in fig.axes[0].patches] == pytest.approx([0.7, 0.2, 0.1])
    assert fig.axes[0].lines[0].get_ydata()[0] == pytest.approx(1 / 3)


def test_contrast_and_gelu_are_drawn_as_they_are_given():
    photo, patches = torch.rand(3, 8, 8), torch.rand(4, 48)
    picture = stacks.draw_contrast(photo, torch.tensor([[0.1], [0.2], [0.3], [0.4]]), patches)
    assert picture.figure.axes[1].images[0].get_array().tolist() == [
        pytest.approx([0.1, 0.2]),
        pytest.approx([0.3, 0.4]),
    ]
    assert "Contrast differs 4-fold" in texts(picture.figure)
    x = torch.linspace(-3, 3, 601)
    left, _ = stacks.draw_gelu(x, F.gelu(x), torch.ones(601)).figure.axes
    assert left.lines[2].get_xdata()[0] == pytest.approx(-0.75, abs=0.01)  # the minimum
