import io

import IPython.display
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from vit_helpers.plots import style
from vit_helpers.plots.embeddings_positions import draw_halo, draw_similarity
from vit_helpers.plots.images import (
    color_bar,
    draw_bars,
    draw_grid,
    draw_image,
    draw_image_grid,
    draw_over,
    draw_squares,
)
from vit_helpers.plots.training import draw_curve, draw_curves
from vit_helpers.plots.vit import draw_shares

HISTORY = [
    {
        "epoch": e,
        "loss": 2 / e,
        "val_loss": 2.2 / e,
        "accuracy": 1 - 1 / e,
        "val_accuracy": 1 - 1.1 / e,
    }
    for e in (1, 2, 3)
]


def texts(fig):
    return [t.get_text() for t in fig.findobj(plt.Text) if t.get_text()]


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


def test_curves_show_the_history_with_names_and_units():
    ax = draw_curve(HISTORY, "loss")
    assert list(ax.lines[1].get_ydata()) == [2.2, 1.1, pytest.approx(2.2 / 3)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "loss (nats)")
    assert [line.get_label() for line in ax.lines] == ["training", "validation"]
    assert len(draw_curves(HISTORY).axes) == 2
    assert draw_curve(HISTORY[:1], "loss").lines[0].get_marker() == "o"  # one point is seen too


def test_importing_and_drawing_leave_the_settings_alone():
    before = dict(plt.rcParams)
    draw_curves(HISTORY)
    draw_image_grid(torch.rand(2, 1, 8, 8))
    assert dict(plt.rcParams) == before


def test_showing_gives_a_png_with_alt_text_and_the_same_bytes(monkeypatch):
    shown = []
    monkeypatch.setattr(
        IPython.display, "display", lambda image, metadata: shown.append((image.data, metadata))
    )
    for _ in range(2):
        style.show(draw_curves(HISTORY), "Two curves that fall.")
    assert shown[0] == shown[1]
    data, metadata = shown[0]
    assert data.startswith(b"\x89PNG") and b"Software" not in data
    assert metadata == {"image/png": {"alt": "Two curves that fall.", "width": 900}}
    assert not plt.get_fignums()
    with pytest.raises(ValueError, match="alt"):
        style.show(draw_curves(HISTORY), " ")


def test_a_stored_figure_has_the_colors_that_were_drawn():
    fig, (left, right) = plt.subplots(ncols=2)
    tints = plt.get_cmap("RdBu")(torch.linspace(0, 1, 200).reshape(2, 100).numpy())
    left.imshow(tints)  # many colors, of which each fills little
    left.set_yticks([])
    right.pcolormesh(torch.zeros(1, 1), cmap="gray")
    right.add_patch(plt.Rectangle((0.4, 0.4), 0.02, 0.02, color=style.CLASS_TOKEN))
    drawn = style.drawn(fig, "png")
    data, _ = style.picture(fig, "two pictures")
    one, other = (plt.imread(io.BytesIO(png))[..., :3] for png in (drawn, data.data))
    flat = (one[:-1, :-1] == one[1:, :-1]).all(-1) & (one[:-1, :-1] == one[:-1, 1:]).all(-1)
    assert flat.sum() > 100_000 and abs(one - other).max(-1)[:-1, :-1][flat].max() <= 10 / 255


def test_a_large_figure_is_shown_as_jpeg(monkeypatch):
    shown = []
    monkeypatch.setattr(
        IPython.display, "display", lambda image, metadata: shown.append((image.data, metadata))
    )
    for size in (4, 400):
        fig, ax = style.new_figure(5, 4)
        ax.imshow(torch.rand(size, size, 3, generator=torch.Generator().manual_seed(0)))
        style.show(fig, "Noise.")
    assert [list(metadata) for _, metadata in shown] == [["image/png"], ["image/jpeg"]]
    assert shown[1][0].startswith(b"\xff\xd8\xff") and shown[1][1] == {
        "image/jpeg": {"alt": "Noise.", "width": 500}
    }


def test_similarity_is_drawn_in_its_places():
    similar = torch.arange(36.0).reshape(6, 6) / 36
    _, drawn = draw_similarity(similar, (2, 3))
    canvas = drawn.get_array()
    assert canvas.shape == (5, 11)
    assert (canvas[3:5, 4:7].data.flatten() == similar[4].numpy()).all()  # place 4: row 1, column 1
    assert canvas.mask[2].all() and canvas.mask[:, 3].all()
    with pytest.raises(RuntimeError):
        draw_similarity(similar, (3, 3))


def test_each_way_to_train_has_its_column():
    halo = pd.DataFrame(
        {
            "augmentation": ["shift", "none", "none"],
            "beside": [0.5, 0.2, 0.1],
            "far": [-0.1, 0.0, 0.0],
        }
    )
    drawn = draw_halo(halo, {"shift": "with shifts", "none": "without"})
    beside, far, _ = (ax := drawn.figure.axes[0]).lines
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["with shifts", "without"]
    assert (
        [round(x) for x in beside.get_xdata()] == [round(x) for x in far.get_xdata()] == [0, 1, 1]
    )
    assert list(beside.get_ydata()) == [0.5, 0.2, 0.1] and list(far.get_ydata()) == [-0.1, 0.0, 0.0]
    assert "with shifts 0.5 and -0.1; without 0.15 and 0.0" in drawn.alt


def test_shares_fill_the_bar():
    (ax,) = draw_shares(
        {"B": {"a": 0.25, "b": 0.75}, "H": {"a": 0.01, "b": 0.99}},
        {"a": style.QUERY, "b": style.KEY},
    ).figure.axes
    assert [round(p.get_x() + p.get_width(), 6) for p in ax.patches] == [0.25, 0.01, 1, 1]
    assert {"25%", "75%", "99%"} <= set(texts(ax.figure)) and "1%" not in texts(ax.figure)
