"""The style of all figures: settings stay alone, the same bytes, the colors that were drawn."""

import io

import IPython.display
import matplotlib.pyplot as plt
import pytest
import torch
from figures import HISTORY

from vit_helpers.plots import style
from vit_helpers.plots.images import (
    draw_image_grid,
)
from vit_helpers.plots.training import draw_curves


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
