"""Pictures of patches in notebook 01: rows, grids, sequences and what a patch holds."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import to_hex

from vit_helpers.patches import patchify
from vit_helpers.plots import style
from vit_helpers.plots.patches import (
    PUBLISHED,
    draw_costs,
    draw_hidden,
    draw_holders,
    draw_holding,
    draw_numbered,
    draw_question,
    draw_row,
    draw_sequence,
    draw_shifts,
)


def test_a_row_shows_patches_with_their_numbers():
    patches = torch.rand(3, 3 * 4)
    ax = draw_row(patches, 3, first=18, framed=19, title="three patches")
    assert [text.get_text() for text in ax.texts] == ["18", "19", "20"]
    (frame,) = ax.patches
    assert (
        frame.get_bbox().bounds == pytest.approx((3.5, -0.5, 2, 2))
        and to_hex(frame.get_edgecolor()).upper() == style.PATCH
    )
    shown = ax.images[0].get_array()
    assert shown.shape == (2, 10, 3)
    assert torch.allclose(
        torch.as_tensor(shown[:, 4:6]).permute(2, 0, 1).float(), patches[1].reshape(3, 2, 2)
    )
    assert not draw_row(patches, 3).texts


def test_numbers_are_in_their_patches():
    ax = draw_numbered(torch.rand(3, 8, 12), 4, framed=5)
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places == {str(n): (4 * (n % 3) - 0.25, 4 * (n // 3) - 0.25) for n in range(6)}
    assert ax.patches[0].get_bbox().bounds == pytest.approx((7.5, 3.5, 4, 4))


def test_the_question_shows_every_patch_once_and_of_one_size():
    photo = torch.rand(3, 40, 60)
    picture = draw_question(photo, size=(24, 28), patch_size=4)
    _, *lines = picture.figure.axes
    assert [ax.images[0].get_array().shape[1] for ax in lines] == [11 * 6 - 2] * 3 + [9 * 6 - 2]
    assert len({ax.get_xlim() for ax in lines}) == 1  # so the last, shorter line has no larger ones
    reduced = F.interpolate(photo[None, :, :, :46], size=(24, 28), mode="bicubic", antialias=True)
    first = torch.as_tensor(lines[0].images[0].get_array())[:4, :4].permute(2, 0, 1)
    assert torch.allclose(first, reduced[0, :, :4, :4].clamp(0, 1), atol=1e-6)
    assert "42 small squares" in picture.alt and "4 lines" in picture.alt


def test_the_sequence_continues_in_the_second_line():
    photo = torch.rand(3, 8, 12)
    picture = draw_sequence(photo, patchify(photo[None], 4)[0], 4, framed=4)
    numbered, *lines = picture.figure.axes
    texts = [[text.get_text() for text in ax.texts] for ax in lines]
    assert texts == [["0", "1", "2"], ["3", "4", "5"]]
    assert [len(ax.patches) for ax in (numbered, *lines)] == [1, 0, 1]  # the frames
    assert "2 rows and 3 columns" in picture.alt and "in row 1, column 1" in picture.alt


def test_hidden_and_shuffled_patches_are_side_by_side():
    both = torch.rand(2, 3, 8, 12)
    axes = draw_hidden(*both).figure.axes
    for ax, image in zip(axes, both, strict=True):
        assert np.array_equal(ax.images[0].get_array(), image.permute(1, 2, 0))


def test_each_way_to_cut_says_what_its_patch_holds():
    masks = torch.zeros(2, 3, 6, 6)
    masks[0, :, :2, :2], masks[1, 1, 3] = 1, 1
    picture = draw_holders(torch.rand(3, 6, 6), {"a": masks[0], "b": masks[1]})
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == ["a", "b"]
    assert "a: 2 lines, 2 columns, 3 colors; b: 1 lines, 6 columns, one color" in picture.alt


def test_what_a_patch_does_not_hold_is_gray():
    image, mask = torch.rand(3, 4, 4), torch.zeros(3, 4, 4)
    mask[1, :2] = 1
    ax = draw_holding(image, mask)
    shown = torch.as_tensor(ax.images[0].get_array()).permute(2, 0, 1)
    gray = 0.35 + 0.4 * image.mean(dim=0)
    assert torch.allclose(shown[1, :2], 0.45 * image[1, :2] + 0.55 * gray[:2]) and torch.allclose(
        shown[0, :2], 0.55 * gray[:2]
    )
    assert len(ax.collections[0].get_segments()) == 2 * (4 + 2)  # an outline around 4 x 2 pixels
    assert (shown[:, 2:] - 0.55).abs().max() <= 0.2 and torch.equal(shown[0, 2:], shown[2, 2:])


def test_costs_are_named_at_the_ends_of_their_lines():
    picture = draw_costs({"flat": [1, 1], "steep": [0.5, 4], "middle": [0.2, 2]}, sides=(4, 2))
    (ax,) = picture.figure.axes
    assert [text.get_text() for text in ax.texts[:3]] == ["flat", "steep", "middle"]
    assert [tuple(line.get_ydata()) for line in ax.lines[:3]] == [(1, 1), (0.5, 4), (0.2, 2)]
    assert ax.get_xlim()[0] > ax.get_xlim()[1]
    assert [line.get_xdata()[0] for line in ax.lines[3:]] == list(PUBLISHED)
    assert ax.texts[-1].get_text() == "published models: P = 32, 16, 14, 8"
    assert "The largest part is, in this order: flat, steep." in picture.alt


def test_a_shift_by_a_patch_finds_it_again():
    image = torch.rand(3, 8, 16)
    picture = draw_shifts(image, 12, 4, (0, 2, 4), place=(1, 2))
    axes = picture.figure.axes
    titles = [ax.get_title(loc="left") for ax in axes]
    assert titles == ["shift 0", "shift 2", "shift 4", "patch 5", "patch 5", "patch 4"]
    assert [ax.patches[0].get_x() for ax in axes[:3]] == [7.5, 7.5, 3.5]
    first, moved, last = (ax.images[0].get_array() for ax in axes[3:])
    assert np.array_equal(first, last) and not np.array_equal(first, moved)
    assert "only after 4 pixels" in picture.alt
