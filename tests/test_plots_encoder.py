"""Pictures of the encoder show the numbers that they are given, and stay on their canvas."""

import warnings

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import to_hex

from vit_helpers.encoder import MLP
from vit_helpers.plots import encoder_stacks as stacks
from vit_helpers.plots import style
from vit_helpers.plots.encoder import (
    ATTENTION,
    draw_answers,
    draw_block,
    draw_differences,
    draw_layer_norm,
    draw_lead,
    draw_mlp,
    draw_orders,
    draw_second_gelu,
    draw_stream,
    significant,
)


def texts(fig):
    return [t.get_text() for t in fig.findobj(plt.Text) if t.get_text()]


def inside(fig):
    """Whether all texts of a drawing are within the figure"""
    fig.canvas.draw()
    boxes = [t.get_window_extent() for t in fig.findobj(plt.Text) if t.get_text()]
    width, height = fig.get_size_inches() * fig.dpi
    return all(
        box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes
    )


def fits(picture):
    """Whether a picture is drawn without a warning of text that leaves its canvas or overlaps"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return bool(picture.image.data)


@pytest.mark.parametrize("shape", [(3, 4), (1, 2), (2, 5), (6, 3)])
def test_layer_norm_is_drawn_with_its_numbers(shape):
    tokens = torch.arange(shape[0] * shape[1]).reshape(shape).float()
    fig = draw_layer_norm(tokens).figure
    assert inside(fig)
    said = texts(fig)
    assert f"token {shape[0] - 1}" in said and f"(T, D) = {shape}" in said
    if shape == (3, 4):
        # each row's variance, and its first number normalized
        assert said.count("1.25") == 3 and said.count("-1.34") == 3


def test_small_numbers_keep_their_digits_and_zero_has_no_sign():
    said = texts(draw_layer_norm(torch.tensor([[0.001, 0.002, 0.003], [-7, -7, -7]])).figure)
    assert {"0.001", "0.002", "6.67e-7", "-0.77", "0.77"} <= set(said) and "-0" not in said
    assert significant(torch.tensor([-0.0, 1e-14, 160333.9])) == ["0", "0", "160334"]


@pytest.mark.parametrize("shape", [(2, 6), (4,), (2, 1)])
def test_layer_norm_has_room_for_a_few_numbers(shape):
    with pytest.raises(ValueError, match="2 to 5 numbers, got"):
        draw_layer_norm(torch.zeros(shape))
    with pytest.raises(ValueError, match="below 1000 to fit into their cells, got 2000"):
        draw_layer_norm(torch.tensor([[1.0, -2000]]))


def test_an_mlp_is_drawn_with_its_numbers():
    mlp = MLP(4, 16)
    token = torch.tensor([1.0, -2, 3, -4])
    fig = draw_mlp(token, mlp).figure
    said = texts(fig)
    assert inside(fig) and {"1", "-2", "3", "-4"} <= set(said)
    assert all(f"{number:.2f}" in said for number in mlp(token).tolist())
    assert said.count("(4D) = (16)") == 2 and said.count("(D) = (4)") == 2
    red, _, _, blue = (patch.get_facecolor() for patch in fig.axes[0].patches[:4])  # 1 and -4
    assert red[0] > red[2] and blue[2] > blue[0]


def test_whoever_is_ahead_somewhere_has_a_name_where_it_is_highest():
    answers = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.8, 0.2, 0.0]])
    picture = draw_answers(answers, "abc")
    names = {text.get_text(): text.get_position()[0] for text in picture.figure.axes[0].texts}
    assert names == {"a": 2, "b": 1} and fits(picture)


def test_a_stream_has_a_plus_for_every_branch():
    ax = draw_stream(
        [{"norm1": style.LINE, "attn": style.TEXT}, {"mlp": style.TEXT}], ends=("z", "z'")
    )
    said = sorted(t.get_text() for t in ax.texts if t.get_text())
    assert said == ["+", "+", "attn", "mlp", "norm1", "z", "z'"]


def test_norms_are_on_the_branches_or_on_the_stream():
    pre, post = draw_orders().figure.axes
    for ax, on_stream in ((pre, False), (post, True)):
        heights = {text.get_text(): text.get_position()[1] for text in ax.texts}
        assert (abs(heights["norm1"]) < 0.1) is (abs(heights["norm2"]) < 0.1) is on_stream
        assert heights["attn"] == heights["mlp"] == 1
        middles = {text.get_text(): text.get_position()[0] for text in ax.texts}
        first = ("attn", "norm1") if on_stream else ("norm1", "attn")
        assert middles[first[0]] < middles[first[1]] < middles["mlp"]
    assert fits(draw_orders()) and fits(draw_block())


def test_differences_are_lines_through_geometric_means():
    runs = {"a": torch.tensor([[1.0, 0.5], [1, 0.02]]), "b": torch.full((2, 2), 0.3)}
    fig = draw_differences(runs).figure
    first, second = fig.axes[0].lines
    assert first.get_ydata().tolist() == pytest.approx([1, 0.1])
    assert second.get_ydata().tolist() == pytest.approx([0.3, 0.3])
    assert [text.get_text() for text in fig.axes[0].texts] == ["a", "b"]


def test_additions_are_bars_of_attention_and_mlp_in_turn():
    picture = draw_lead([0.01, -0.5, 1, 2, -0.04], "9", "0")
    ax = picture.figure.axes[0]
    assert [bar.get_height() for bar in ax.patches] == [0.01, -0.5, 1, 2, -0.04]
    attention = [to_hex(bar.get_facecolor()) == ATTENTION for bar in ax.patches]
    assert attention == [False, True, False, True, False]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[0] == "start" and labels[-1] == "block 2\nMLP"
    assert [text.get_text() for text in ax.texts] == ["0.0", "-0.5", "+1.0", "+2.0", "0.0"]
    assert "they sum to 2.5" in picture.alt and fits(picture)


def test_a_second_gelu_leaves_nothing_below_its_minimum():
    added = torch.linspace(-4, 4, 1001)
    fig = draw_second_gelu(added, F.gelu(added)).figure
    for ax, low in zip(fig.axes, (-4, -0.25), strict=True):
        full = [bar.get_x() for bar in ax.patches if bar.get_height()]
        assert low - 0.1 < min(full) < low + 0.1


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
