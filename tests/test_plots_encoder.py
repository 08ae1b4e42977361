import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex

from vit_helpers.encoder import MLP
from vit_helpers.plots import style
from vit_helpers.plots.encoder import (
    ATTENTION,
    draw_branches,
    draw_layer_norm,
    draw_mlp,
    draw_normalizations,
    draw_runs_apart,
    draw_sizes,
    draw_spread,
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
    fig = draw_layer_norm(tokens, [f"token {t}" for t in range(shape[0])])
    assert inside(fig)
    said = texts(fig)
    assert f"token {shape[0] - 1}" in said and f"(T, D) = {shape}" in said
    if shape == (3, 4):
        # each row's variance, and its first number normalized
        assert said.count("1.25") == 3 and said.count("-1.34") == 3


def test_small_numbers_keep_their_digits_and_zero_has_no_sign():
    said = texts(
        draw_layer_norm(torch.tensor([[0.001, 0.002, 0.003], [-7, -7, -7]]), ["token 0", "token 1"])
    )
    assert {"0.001", "0.002", "6.67e-7", "-0.77", "0.77"} <= set(said) and "-0" not in said
    assert significant(torch.tensor([-0.0, 1e-14, 160333.9])) == ["0", "0", "160334"]


@pytest.mark.parametrize("shape", [(2, 6), (4,), (2, 1)])
def test_layer_norm_has_room_for_a_few_numbers(shape):
    with pytest.raises(ValueError, match="2 to 5 numbers, got"):
        draw_layer_norm(torch.zeros(shape), ["a", "b"])
    with pytest.raises(ValueError, match="below 1000 to fit into their cells, got 2000"):
        draw_layer_norm(torch.tensor([[1.0, -2000]]), ["a"])


def test_an_mlp_is_drawn_with_its_numbers():
    mlp = MLP(4, 16)
    token = torch.tensor([1.0, -2, 3, -4])
    fig = draw_mlp(token, mlp)
    said = texts(fig)
    assert inside(fig) and {"1", "-2", "3", "-4"} <= set(said)
    assert all(f"{number:.2f}" in said for number in mlp(token).tolist())
    assert said.count("(4D) = (16)") == 2 and said.count("(D) = (4)") == 2
    red, _, _, blue = (patch.get_facecolor() for patch in fig.axes[0].patches[:4])  # 1 and -4
    assert red[0] > red[2] and blue[2] > blue[0]


def test_one_point_gets_a_ring_and_a_cloud_does_not():
    cloud = torch.randn(2, 30, 8)
    fig = draw_normalizations({"cloud": cloud, "point": torch.nn.LayerNorm(8)(cloud)}, ["a", "b"])
    rings = [[line for line in ax.lines if line.get_markersize() == 18] for ax in fig.axes]
    assert [len(found) for found in rings] == [0, 1]
    assert rings[1][0].get_xydata()[0].tolist() == pytest.approx([0, 1], abs=1e-3)
    assert "all 60 tokens" in texts(fig)


def test_a_stream_has_a_plus_for_every_branch():
    ax = draw_stream(
        [{"norm1": style.LINE, "attn": style.TEXT}, {"mlp": style.TEXT}], ends=("z", "z'")
    )
    assert sorted(t.get_text() for t in ax.texts if t.get_text()) == [
        "+",
        "+",
        "attn",
        "mlp",
        "norm1",
        "z",
        "z'",
    ]


def test_the_spread_of_runs_is_a_band_around_their_geometric_mean():
    _, ax = style.new_figure()
    line = draw_spread([[1.0, 2.0], [4.0, 8.0]], ax, "runs", linewidth=3)
    assert line.get_ydata().tolist() == pytest.approx([2, 4]) and line.get_xdata().tolist() == [
        1,
        2,
    ]
    assert line.get_linewidth() == 3
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == 1 and band.max() == 8


def test_a_dot_is_at_the_mean_and_standard_deviation_of_a_token():
    ax = draw_sizes({"a": (torch.tensor([[0.0, 2], [1, 1]]), style.LINE)})
    assert ax.lines[0].get_xdata().tolist() == [1, 1] and ax.lines[0].get_ydata().tolist() == [1, 0]


def test_every_block_has_a_bar_for_attention_and_one_for_the_mlp():
    ax = draw_branches([5, 6, 7, 8])
    bars = sorted(
        (bar.get_x() + bar.get_width() / 2, bar.get_height(), to_hex(bar.get_facecolor()))
        for bar in ax.patches
    )
    assert [round(x) for x, _, _ in bars] == [1, 1, 2, 2] and [height for _, height, _ in bars] == [
        5,
        6,
        7,
        8,
    ]
    assert [color == ATTENTION for _, _, color in bars] == [True, False, True, False]


def test_equal_runs_are_drawn_side_by_side():
    _, ax = style.new_figure()
    draw_runs_apart(
        {6: [0.5, 0.5, 0.5], 3: [1, 1, 1]}, ax, 0.2, "runs", color=style.TEXT, marker="o"
    )
    assert [list(line.get_ydata()) for line in ax.lines] == [[1, 1, 1], [0.5, 0.5, 0.5]]
    for i, line in enumerate(ax.lines):
        assert len(set(line.get_xdata())) == 3 and line.get_xdata()[1] == pytest.approx(i + 0.2)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["3", "6"]
    assert ax.get_legend_handles_labels()[1] == ["runs"]
