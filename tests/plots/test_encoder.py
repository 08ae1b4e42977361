"""Pictures of the encoder show the numbers that they are given, and stay on their canvas."""

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from figures import fits
from matplotlib.colors import to_hex

from vit_helpers.encoder import MLP
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
