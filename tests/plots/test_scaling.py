"""Figures of notebook 11: one square a day, bars as long as their amounts, bits that are right."""

import struct

import matplotlib.pyplot as plt
import pytest
import torch
from figures import fits, overlaps
from matplotlib.colors import to_hex

from vit_helpers.plots import encoder, scaling, style
from vit_helpers.plots.scaling import (
    bits_of,
    draw_budget,
    draw_checkpointing,
    draw_cost_shares,
    draw_days,
    draw_formats,
    draw_measured_step,
    draw_memory,
    draw_step,
    shorten,
    stack_bars,
)

PARTS = {"MLP": 3.0, "qkv, output": 2.0, "scores, mixing": 1.0}
NEED = {"weights": 1.0, "gradients": 1.0, "optimizer": 2.0, "activations": 10.0}


def texts(fig):
    return [text.get_text() for text in fig.findobj(plt.Text) if text.get_text()]


def test_parts_of_the_model_have_the_colors_of_notebook_04():
    assert scaling.COLORS["scores, mixing"] == encoder.ATTENTION
    assert scaling.COLORS["MLP"] == encoder.MLP


@pytest.mark.parametrize("days", [680, 17, 18, 100])
def test_there_is_a_square_for_each_day(days):
    (ax,) = draw_days(days).figure.axes
    assert len(ax.patches) == days
    assert {to_hex(patch.get_facecolor()) for patch in ax.patches} == {"#ffffff"}
    assert len({patch.get_xy() for patch in ax.patches}) == days


def test_days_have_the_colors_of_what_they_went_to():
    picture = draw_days(680, {"MLP": 190.4, "qkv, output": 95, "scores, mixing": 9.1})
    colors = [to_hex(patch.get_facecolor()) for patch in picture.figure.axes[0].patches]
    assert colors[:190] == [to_hex(scaling.COLORS["MLP"])] * 190
    assert colors[285:294] == [to_hex(scaling.COLORS["scores, mixing"])] * 9
    assert colors[294:] == ["#ffffff"] * 386
    said = texts(picture.figure)
    assert "MLP\n190 days" in said and "scores, mixing: 9 days" in said
    assert "Arithmetic at the peak fills 43% of the days" in said
    assert "386" in picture.alt and fits(picture)


@pytest.mark.parametrize(("days", "scale"), [(2500, 1), (680, 0.4), (230, 0.3), (46, 0.06)])
def test_labels_of_days_never_overlap(days, scale):
    parts = {"MLP": 190 * scale, "qkv, output": 95 * scale, "scores, mixing": 9 * scale}
    picture = draw_days(days, parts)
    assert not overlaps(picture) and fits(picture)


def test_parts_that_need_more_days_than_there_are_raise():
    with pytest.raises(ValueError, match="the parts need 25 days, more than all 20"):
        draw_days(20, {"MLP": 25})


def test_the_backward_pass_is_drawn_twice_as_long():
    (ax,) = draw_step(blocks=4).figure.axes
    processor = [patch for patch in ax.patches if patch.get_y() == 1.1]
    widths = [patch.get_width() for patch in processor]
    assert widths[:4] == [1] * 4 and widths[4:8] == [2] * 4 and len(widths) == 9
    assert fits(draw_step())


@pytest.mark.parametrize("update", [0.001, 0.2])
def test_a_measured_step_is_drawn_to_scale(update):
    picture = draw_measured_step({"forward pass": 0.1, "backward pass": 0.2, "AdamW": update}, 0.15)
    (ax,) = picture.figure.axes
    widths = [bar.get_width() for bars in ax.containers for bar in bars]
    assert widths == pytest.approx([0.1, 0.2, update, 0.15])
    assert f"This step reached {0.15 / (0.3 + update):.0%} of the peak" in texts(picture.figure)
    assert f"AdamW, {1000 * update:.0f} ms" in texts(picture.figure)
    assert fits(picture)


def test_shares_make_a_hundred():
    picture = draw_cost_shares({"224 px": PARTS, "2,048 px": {**PARTS, "scores, mixing": 5.0}})
    (ax,) = picture.figure.axes
    ends = [bar.get_x() + bar.get_width() for bar in ax.containers[-1]]
    assert ends == pytest.approx([100, 100])
    assert "17% in 224 px, 50% in 2,048 px" in picture.alt and fits(picture)


def test_pieces_lie_end_to_end():
    _, ax = style.new_figure()
    stack_bars(ax, {"small": NEED, "large": {name: 2 * x for name, x in NEED.items()}}, 1)
    pieces = [(bar.get_x(), bar.get_width()) for bars in ax.containers for bar in bars]
    assert pieces == [(0, 1), (0, 2), (1, 1), (2, 2), (2, 2), (4, 4), (4, 10), (8, 20)]
    # a piece without room has no number
    assert [text.get_text() for text in ax.texts] == ["2.0", "2.0", "2.0", "4.0", "10.0", "20.0"]


def test_memory_peaks_between_the_passes():
    picture = draw_memory(NEED, batch=3)
    (ax,) = picture.figure.axes
    corners = [area.get_paths()[0].vertices for area in ax.collections]
    # weights, optimizer, activations; gradients come later
    assert max(vertices[:, 1].max() for vertices in corners) == 13
    assert {"activations, 10.0 GiB", "peak: 13.0 GiB"} <= set(texts(picture.figure))
    assert "a batch of 3" in picture.alt and fits(picture)


def test_memory_peaks_after_the_backward_pass_when_gradients_need_more_than_activations():
    picture = draw_memory({**NEED, "activations": 0.5}, batch=1)
    (ax,) = picture.figure.axes
    assert ax.get_ylim()[1] > 4  # weights, optimizer and gradients
    assert "peak: 4.0 GiB" in texts(picture.figure)
    assert ax.get_title(loc="left") == "Memory peaks after the backward pass"
    assert "the peak is 4.0 GiB" in picture.alt and fits(picture)


def test_checkpointing_has_a_tooth_for_each_block():
    picture = draw_checkpointing(blocks=5, inputs=0.1, inside=2.0)
    kept, again = picture.figure.axes
    top = {ax: ax.collections[0].get_paths()[0].vertices for ax in (kept, again)}
    assert top[kept][:, 1].max() == 10
    assert top[again][:, 1].max() == pytest.approx(2.5)
    assert len({y for _, y in top[again].round(6).tolist() if y > 2}) == 5
    assert kept.get_xlim()[1] == 15 and again.get_xlim()[1] == 20  # three passes, and four
    assert fits(picture)


@pytest.mark.parametrize("number", [0.1, 1.0, -3.14159, 1e-20, 65504.0])
def test_bits_are_those_that_torch_stores(number):
    x = torch.tensor(number)
    assert shorten(bits_of(number), 7) == x.bfloat16().item()
    assert shorten(bits_of(number), 23) == x.item()
    cells = [
        text for text in draw_formats(number).figure.axes[0].texts if text.get_color() == "black"
    ]
    drawn = [text.get_text() for text in cells]
    pattern = f"{struct.unpack('>I', struct.pack('>f', number))[0]:032b}"
    assert "".join(drawn[:32]) == pattern
    assert len(drawn) == 32 + 19 + 16
    assert fits(draw_formats(number))


def test_what_is_scarce_is_named():
    rows = {"memory": (20, 80, "GiB"), "network": (200, 40, "ms")}
    picture = draw_budget(rows)
    (ax,) = picture.figure.axes
    assert "Scarce: network" in texts(picture.figure)
    assert "200 of 40 ms (cut off here)" in texts(picture.figure)
    assert ax.containers[0][0].get_width() == 25
    assert "Nothing is scarce" in texts(draw_budget({"memory": (20, 80, "GiB")}).figure)
    assert fits(picture)


@pytest.mark.parametrize("activations", [0.5, 10, 100, 4000])
def test_texts_of_memory_never_overlap(activations):
    picture = draw_memory({**NEED, "activations": activations}, batch=1)
    assert not overlaps(picture) and fits(picture)
