"""The pictures of notebook 00: the model with its numbers, heads, cuts, mistakes, the loss."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch

from vit_helpers.patches import patchify
from vit_helpers.plots import start_here as pictures
from vit_helpers.plots import style
from vit_helpers.plots.start_here import Pass, draw_heads, draw_model
from vit_helpers.training.measurements import Epoch, Score

NAMES = tuple("0123456789")


def stages(P=2, depth=2, chances=None):
    """A pass of random numbers through a model for images of 8 x 8 pixels and 10 classes"""
    N, image = (8 // P) ** 2, torch.rand(1, 8, 8)
    tokens, weights = torch.randn(2, N + 1, 64), torch.rand(depth, 4, N + 1, N + 1)
    chances = torch.full((10,), 0.1) if chances is None else torch.tensor(chances)
    return Pass(image, patchify(image[None], P)[0], tokens[0], [*weights], tokens[1], chances)


def texts(fig):
    return [
        text.get_text() for text in (*fig.texts, *(text for ax in fig.axes for text in ax.texts))
    ]


def of(fig, text):
    """The box of a text on the figure, in pixels"""
    (found,) = (
        one
        for one in (*fig.texts, *(t for ax in fig.axes for t in ax.texts))
        if one.get_text() == text
    )
    return found.get_window_extent(FigureCanvasAgg(fig).get_renderer())


def test_the_model_picture_tells_every_shape():
    drawn = stages(chances=[0.02] * 9 + [0.82])
    fig = draw_model(drawn, 2, NAMES, "finding")
    found = texts(fig)
    for text in (
        "finding",
        "(1, 8, 8)",
        "(16, 4)",
        "(17, 64)",
        "(10)",
        "(T, D)",
        "2 blocks",
        "class token",
        "patch 15",
        "0.82",
    ):
        assert text in found
    (bars,) = (ax for ax in fig.axes if len(ax.patches) == 10)
    assert [bar.get_width() for bar in bars.patches] == pytest.approx(drawn.probabilities.tolist())
    colors = [to_hex(bar.get_facecolor()) for bar in bars.patches]
    assert colors[9].upper() == style.SERIES[0] and len(set(colors[:9])) == 1
    pieces = [im.get_array().squeeze() for im in fig.axes[1].images]
    corners = [(im.get_extent()[0], im.get_extent()[3]) for im in fig.axes[1].images]
    assert len(pieces) == 16 and (pieces[5] == drawn.image[0, 2:4, 2:4].numpy()).all()
    # left to right, top to bottom
    assert corners == sorted(corners, key=lambda corner: (corner[1], corner[0]))
    assert len(set(corners)) == 16


def test_numbers_with_a_sign_share_a_scale_around_zero_that_is_written():
    fig = draw_model(stages(), 2, NAMES)
    tables = [
        im for ax in fig.axes for im in ax.images if im.get_array().shape in ((1, 64), (16, 64))
    ]
    assert len(tables) == 4 and {im.get_clim() for im in tables} == {(-3, 3)}
    # so that the stored picture keeps 256 colors
    assert [ax.get_label() for ax in fig.axes].count("<colorbar>") == 2
    assert {"tokens, features: ≤ −3", "≥ 3", "attention weights: 0", "≥ 0.25"} <= set(texts(fig))


def test_a_block_shows_its_attention_and_its_mlp():
    drawn = stages()
    fig = draw_model(drawn, 2, NAMES)
    tables = [im for ax in fig.axes for im in ax.images if im.get_array().shape == (17, 17)]
    for im, weights in zip(tables, drawn.weights, strict=True):
        assert torch.equal(
            torch.from_numpy(im.get_array().data), weights.mean(dim=0)
        ) and im.get_clim() == (0, 0.25)
    assert texts(fig).count("attention") == texts(fig).count("MLP") == 2


@pytest.mark.parametrize(("P", "depth"), [(4, 1), (8, 1), (1, 2), (2, 12)])
def test_other_models_are_drawn_as_they_are(P, depth):
    fig = draw_model(stages(P, depth), P, NAMES, notes={"tokens": "here"})
    N = (8 // P) ** 2
    found = texts(fig)
    assert {f"({N}, {P * P})", f"({N + 1}, 64)", f"patch {N - 1}", "here"} <= set(found)
    assert f"{depth} block{'s' * (depth > 1)}" in found and f"block {depth}" in found
    assert (f"({depth - 2} of them not shown)" in found) == (depth > 2)


def test_remarks_point_at_stages_and_cross_no_other_text():
    notes = {
        "tokens": "starts at 0, plus\nits position",
        "blocks": "random weights",
        "features": "a\nb",
        "classes": "4 gets\n0.99",
    }
    fig = draw_model(
        stages(chances=[0.001] * 4 + [0.991] + [0.001] * 5), 2, NAMES, "A title", notes
    )
    fig.canvas.draw()
    boxes = [
        of(fig, text)
        for text in (*notes.values(), "A title", "class token", "head", "logits", "↓ softmax")
    ]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert all(box.x0 >= 0 and box.x1 <= fig.bbox.width for box in boxes)
    assert len([one for one in fig.artists if isinstance(one, FancyArrowPatch)]) == 5 + len(notes)


def test_equal_values_have_no_largest():
    assert (
        pictures.largest(torch.full((10,), 0.1)) is None
        and pictures.largest(torch.tensor([0.2, 0.5, 0.3])) == 1
    )


def test_heads_are_compared_on_one_scale():
    rows = {"untrained": torch.full((4, 17), 1 / 17), "trained": torch.eye(17)[[3, 4, 5, 6]]}
    fig = draw_heads(torch.rand(1, 8, 8), rows, (4, 4)).figure
    assert [len(ax.patches) for ax in fig.axes] == [16] * 8
    small, large = fig.axes[0].patches[2].get_width(), fig.axes[4].patches[2].get_width()
    # a side is the root of its weight
    assert (small, large) == (pytest.approx(2 * (1 / 17) ** 0.5), 2)
    assert [ax.get_title(loc="left") for ax in fig.axes][3:5] == [
        "head 4, largest 0.06",
        "head 1, largest 1.00",
    ]
    assert {"untrained", "trained"} <= set(texts(fig))


def test_the_picture_of_a_pass_says_whether_all_classes_are_equal():
    equal = pictures.draw_pass(stages(), 2, "before")
    assert "all equal" in texts(equal.figure) and equal.alt.endswith("all are equal.")
    chances = [0.02] * 10
    chances[7] = 0.82
    other = pictures.draw_pass(stages(chances=chances), 2, "after")
    assert other.alt.endswith("that of 7 is the longest.")


def test_digits_are_drawn_smooth_and_as_they_are():
    images = torch.rand(3, 1, 8, 8)
    axes = pictures.draw_digits(images).figure.axes
    shown = [ax.images[0].get_array() for ax in axes]
    assert [picture.shape[:2] for picture in shown] == [(96, 96)] * 3 + [(8, 8)] * 3
    assert np.allclose(shown[3].squeeze(), images[0, 0])
    center = shown[0][6::12, 6::12].squeeze()  # the middle of what was one pixel
    assert np.corrcoef(center.flatten(), images[0, 0].flatten())[0, 1] > 0.95


def test_the_history_shows_both_splits_and_ln_10():
    history = [
        Epoch(i, Score(2.3 / i, 0.1 * i, 50), Score(2.2 / i, 0.12 * i, 20)) for i in (1, 2, 3)
    ]
    left, right = pictures.draw_history(history).figure.axes
    assert [line.get_label() for line in right.lines] == ["training", "validation"]
    assert right.lines[1].get_ydata() == pytest.approx([0.12, 0.24, 0.36])
    assert left.lines[2].get_ydata()[0] == pytest.approx(math.log(10))


def test_the_hardest_digits_come_first_and_mistakes_are_marked():
    labels = torch.arange(10)
    logits = 5 * torch.eye(10)
    logits[4] = 5 * torch.eye(10)[9]  # a 4 that is taken for a 9
    logits[6] *= 0.5  # right, and not sure
    fig = pictures.draw_hardest(torch.rand(10, 1, 8, 8), logits, labels, count=2).figure
    assert [ax.get_title().split("\n")[0] for ax in fig.axes[:2]] == [
        "× 4 → 9",
        "6 → 6",
    ]


def test_the_photo_has_as_many_patches_as_the_model():
    picture = pictures.draw_photo(
        torch.rand(3, 30, 45), torch.rand(3, 32, 32), 4, [("cat", 0.8), ("dog", 0.2)]
    )
    assert "64 patches of 4 x 4" in [ax.get_title(loc="left") for ax in picture.figure.axes]
    assert "cat has the longest" in picture.alt
