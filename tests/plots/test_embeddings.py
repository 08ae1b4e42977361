"""The pictures of notebook 02 show the numbers they are given, where these belong."""

import re

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vit_helpers.data.digits import cat
from vit_helpers.patches import patchify
from vit_helpers.plots import style
from vit_helpers.plots.embeddings import (
    draw_answers,
    draw_equation,
    draw_patch_similarity,
    draw_question,
    number_patches,
)

IMAGE = torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]])
PROJECTION = torch.tensor([[1.0, 0, 2], [0, 1, -1], [2, 1, 0], [1, -1, 0]])


def texts(axes):
    return [text.get_text() for text in axes.texts]


def equation():
    x, positions = patchify(IMAGE[None, None], 2)[0], torch.arange(15).reshape(5, 3) / 10
    return (
        draw_equation(IMAGE, x, PROJECTION, torch.tensor([0.5, 0, -0.5]), positions).figure,
        x,
        positions,
    )


def test_a_patch_has_its_number_in_its_middle():
    ax = number_patches(style.new_axes(None), (2, 3), 4)
    assert texts(ax) == ["0", "1", "2", "3", "4", "5"] and ax.texts[4].get_position() == (5.5, 5.5)
    assert texts(number_patches(style.new_axes(None), (1, 3), 4, [2, 0, 1])) == ["2", "0", "1"]


def test_equation_1_shows_every_number():
    fig, x, positions = equation()
    shown = [float(text) for text in texts(fig.axes[0]) if re.fullmatch(r"-?[\d.]+", text)]
    tokens = torch.cat([torch.tensor([[0.5, 0, -0.5]]), x @ PROJECTION])
    wanted = torch.cat(
        [part.flatten() for part in (IMAGE, x, PROJECTION, tokens, positions, tokens + positions)]
    )
    assert sorted(shown) == pytest.approx(sorted(wanted.tolist()), abs=0.05)
    assert f"2 + 0.3 = {2 + 0.3}" in texts(fig.axes[0])


def test_nothing_of_equation_1_overlaps_or_runs_over_the_edge():
    fig, *_ = equation()
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    boxes = [
        text.get_window_extent(canvas.get_renderer())
        for text in fig.axes[0].texts
        if text.get_text()
    ]
    assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert not [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])]


def test_equal_patches_are_named():
    x = patchify(IMAGE[None, None], 2)[0]
    drawn = draw_equation(IMAGE, x, PROJECTION, torch.zeros(3), torch.zeros(5, 3))
    assert "Equal patches, 0 and 3, have" in drawn.alt


def test_the_mosaic_has_the_squares_of_the_photo_in_other_places():
    photo, mosaic = (
        torch.from_numpy(ax.images[0].get_array().transpose(2, 0, 1).copy())
        for ax in draw_question(cat(), rows=4).figure.axes
    )
    squares, moved = (patchify(x[None], x.shape[-1] // 4)[0] for x in (photo, mosaic))
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(moved, squares[order]) and not torch.equal(moved, squares)


def test_answers_are_bars_and_the_title_names_the_model_that_does_not_see_the_shuffle():
    answers = {"with position embeddings": [0.9, 0.7], "without position embeddings": [0.8, 0.8]}
    fig = draw_answers([torch.rand(3, 4, 4)] * 2, answers).figure
    bars = [[bar.get_width() for bar in ax.patches] for ax in fig.axes[2:]]
    assert bars == [pytest.approx(values) for values in answers.values()]
    assert texts(fig.axes[2]) == ["0.900", "0.700"]
    assert fig.get_suptitle() == "Without position embeddings, the shuffle changes nothing"


def test_a_map_of_a_patch_names_all_patches_and_every_pair_is_a_dot():
    similar = {"pixels": torch.eye(6), "tokens": -torch.eye(6)}
    similar["pixels"][0, 1] = 0.5
    fig = draw_patch_similarity(torch.rand(3, 4, 6), 2, similar, 5).figure
    photo, *maps, pairs, _ = fig.axes
    assert texts(photo) == texts(maps[0]) == ["0", "1", "2", "3", "4", "5"]
    assert [ax.get_title("left") for ax in maps] == ["5, by pixels", "5, by tokens"]
    assert [ax.images[0].get_array()[1, 2] for ax in maps] == [1, -1]  # patch 5 with itself
    (dots,) = pairs.lines
    assert list(dots.get_xdata()) == [0.5] + [0] * 14 and list(dots.get_ydata()) == [0] * 15
