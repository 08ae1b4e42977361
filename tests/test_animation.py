"""The animation of the README: it draws the numbers it is given, and those are the model's."""

import math
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image, ImageChops, ImageSequence, ImageStat

from tools.pictures import DIGIT, read_digit, save_animation
from vit_helpers.data import load
from vit_helpers.plots import style
from vit_helpers.plots.animation import (
    BARS,
    COLUMN,
    DIM,
    HEIGHT,
    LARGE,
    ROW,
    SMALL,
    STAGE,
    TALL,
    THICK,
    WIDTH,
    Reading,
    draw_frame,
    draw_frames,
    draw_moment,
    moments,
    palette,
    slot,
)
from vit_helpers.plots.inspection_heads import draw_lines
from vit_helpers.pretrained import load_pretrained

STORED = Path(__file__).parents[1] / "images" / "00_start_here" / "reading.gif"
ORANGE = tuple(bytes.fromhex(style.CLASS_TOKEN[1:]))
# the moments of a model with two layers
CUT, ROWED, MADE, JOINED, FIRST, SECOND, ANSWERED = range(1, 8)


@pytest.fixture
def made_up():
    """A reading of an image of four patches, in which every number is known"""
    image = torch.linspace(0.2, 1, 64).reshape(1, 8, 8)
    tokens = [torch.randn(5, 8) for _ in range(3)]
    weights = [torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2]), torch.tensor([0.0, 0.0, 0.25, 0.0, 0.75])]
    return Reading(
        image,
        4,
        tokens,
        weights,
        [0.5, 0.875],
        torch.tensor([0.25, 0.6, 0.15]),
        ("cat", "dog", "hen"),
    )


@pytest.fixture(scope="module")
def real():
    return read_digit()


@pytest.fixture(scope="module")
def stored():
    with Image.open(STORED) as file:
        pictures = [
            (one.convert("RGB"), one.info["duration"]) for one in ImageSequence.Iterator(file)
        ]
        return pictures, file.info.get("loop")


def orange(picture, y, left=0, right=WIDTH):
    """Count the pixels of a line that have the class token's color, at edges at least half."""
    row = np.asarray(picture, int)[y, left:right]
    return int((np.abs(row - ORANGE).max(axis=-1) < 128).sum())


def test_the_words_tell_what_is_drawn(made_up):
    said = [caption for caption, _, _ in moments(made_up)]
    assert len(said) == 8 and said[FIRST] == said[SECOND]
    assert said[CUT] == "Cut the image into 4 patches" and "8 numbers" in said[MADE]
    assert said[-1] == "The model predicts a dog, with probability 0.60"


def test_at_first_there_is_the_image(made_up):
    picture = draw_frame(made_up, 0, 1.0)
    left, top, side, _ = LARGE
    for r, c in ((0, 0), (3, 4), (7, 7)):
        at = (left + round((c + 0.5) * side / 8), top + round((r + 0.5) * side / 8))
        assert picture.getpixel(at)[0] == pytest.approx(255 * made_up.image[0, r, c], abs=1)
    assert picture.getpixel((5, HEIGHT - 5)) == (255, 255, 255)


def test_the_row_holds_the_patches_in_their_order(made_up):
    picture = draw_frame(made_up, ROWED, 1.0)
    for i, corner in enumerate(((0, 0), (0, 4), (4, 0), (4, 4)), start=1):
        x, _, width = slot(i, 5)
        for r, c in ((1, 1), (2, 3)):
            at = (round(x + (c + 0.5) * width / 4), round(ROW + (r + 0.5) * width / 4))
            if at[1] < COLUMN:
                value = made_up.image[0, corner[0] + r, corner[1] + c]
                assert picture.getpixel(at)[0] == pytest.approx(255 * value, abs=1)


@pytest.mark.parametrize(("moment", "layer"), [(MADE, 0), (FIRST, 1), (SECOND, 2), (ANSWERED, 2)])
def test_tokens_are_those_of_the_layers_gone_through(made_up, moment, layer):
    picture, tokens = draw_frame(made_up, moment, 1.0), made_up.tokens[layer]
    top = tokens.abs().quantile(0.98)
    for i in range(1, 5):
        x, _, width = slot(i, 5)
        for k in range(8):
            got = picture.getpixel((round(x + width / 2), round(COLUMN + (k + 0.5) * TALL / 8)))
            wanted = matplotlib.colormaps[style.SIGNED](
                ((tokens[i, k] / top + 1) / 2).clamp(0, 1).item(), bytes=True
            )
            assert np.allclose(got, wanted[:3], atol=2)


@pytest.mark.parametrize("token", [1, 2, 3, 4])
@pytest.mark.parametrize("weight", [0.0, 0.02, 0.3, 0.8])
def test_a_line_is_as_wide_as_its_weight(made_up, token, weight):
    """Measured across, half-way down to the patch it leads to, where nothing else has its color"""
    weights = torch.zeros(5).index_fill(0, torch.tensor(token), weight)
    picture = draw_frame(made_up._replace(weights=[weights, weights]), SECOND, 1.0)
    x, _, width = slot(token, 5)
    start, down = STAGE[0] + STAGE[2] / 2, ROW - STAGE[1] - STAGE[3]
    across = x + width / 2 - start
    y, middle = STAGE[1] + STAGE[3] + down // 2, round(start + across / 2)
    wide = THICK * weight * math.hypot(across, down) / down
    assert orange(picture, y) == pytest.approx(wide, abs=3.5)
    if weight > 0.1:
        assert picture.getpixel((middle, y)) == ORANGE


def test_the_image_is_bright_where_the_class_token_looks(made_up):
    picture = draw_frame(made_up, SECOND, 1.0)
    left, top, side, _ = SMALL
    for (r, c), weight in zip(((1, 1), (1, 5), (5, 1), (5, 5)), (0, 0.25, 0, 0.75), strict=True):
        at = (left + round((c + 0.5) * side / 8), top + round((r + 0.5) * side / 8))
        bright = DIM + (1 - DIM) * weight / 0.75
        assert picture.getpixel(at)[0] == pytest.approx(
            255 * bright * made_up.image[0, r, c], abs=1
        )


@pytest.mark.parametrize("moment", [0, ROWED, MADE, JOINED])
def test_the_image_keeps_its_brightness_until_the_class_token_attends(made_up, moment):
    picture = draw_frame(made_up, moment, 1.0)
    left, top, side, _ = SMALL if moment else LARGE
    for r, c in ((1, 1), (1, 5), (5, 1), (5, 5)):
        at = (left + round((c + 0.5) * side / 8), top + round((r + 0.5) * side / 8))
        assert picture.getpixel(at)[0] == pytest.approx(255 * made_up.image[0, r, c], abs=1)


def test_every_block_rests_long_enough_to_be_read(made_up):
    rests = [rest for _, _, rest in moments(made_up)]
    assert min(rests[FIRST], rests[SECOND]) >= 1.3


def test_bars_are_as_long_as_the_probabilities(made_up):
    picture = draw_frame(made_up, ANSWERED, 1.0)
    left, top, width, height = BARS
    gray = tuple(bytes.fromhex(style.LINE[1:]))
    chosen = tuple(bytes.fromhex(style.SERIES[0][1:]))
    for i, (value, color) in enumerate(
        zip(made_up.probabilities.tolist(), (gray, chosen, gray), strict=True)
    ):
        y = round(top + (i + 0.25) * height / 3)
        long = sum(picture.getpixel((x, y)) == color for x in range(left + 1, left + width - 2))
        assert long == pytest.approx(round(width * value), abs=2)


def test_half_way_is_between(made_up):
    """A line grows from one layer's width to the next one's"""
    y, (x, _, width) = STAGE[1] + STAGE[3] + 40, slot(4, 5)
    middle = round(
        STAGE[0]
        + STAGE[2] / 2
        + (x + width / 2 - STAGE[0] - STAGE[2] / 2) * 40 / (ROW - STAGE[1] - STAGE[3])
    )
    counts = [
        orange(draw_frame(made_up, SECOND, p), y, middle - 30, middle + 200)
        for p in (0.01, 0.5, 1.0)
    ]
    assert counts[0] < counts[1] < counts[2]


def test_the_same_numbers_make_the_same_file(made_up, tmp_path):
    pictures = draw_frames(made_up, step=0.4)
    assert sum(time for _, time in pictures) == pytest.approx(
        1000 * sum(moving + rest for _, moving, rest in moments(made_up)), abs=1500
    )
    for name in ("a.gif", "b.gif"):
        save_animation(tmp_path / name, pictures, palette())
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as file:
        assert file.info["loop"] == 0 and 5 < file.n_frames <= len(pictures)
        file.seek(file.n_frames - 1)
        assert file.info["duration"] >= 2000
    assert len(draw_frames(made_up, step=0.2)) > len(pictures)


def test_the_stored_file_holds_the_colors_of_all_figures(stored):
    found = np.array([color for _, color in stored[0][-1][0].getcolors()])
    for color in (style.CLASS_TOKEN, style.PATCH, style.TEXT, "#000000", "#ffffff"):
        assert np.abs(found - list(bytes.fromhex(color[1:]))).max(axis=1).min() <= 3


def test_the_numbers_are_the_models(real):
    kept, test = load_pretrained("ours:scattered"), load("scattered_digits", n=100).test
    pixels = kept.preprocess.normalize(test.images[DIGIT : DIGIT + 1])
    assert torch.equal(real.image, test.images[DIGIT])
    with torch.no_grad():
        assert torch.allclose(real.probabilities, kept.model(pixels)[0].softmax(0), atol=1e-6)
        assert real.class_names[real.probabilities.argmax()] == str(test.labels[DIGIT].item())
        x = kept.model.embed(pixels)
        for layer, block in enumerate(kept.model.blocks):  # the same, by hand
            assert torch.allclose(real.tokens[layer], x[0], atol=1e-5)
            q, k, _ = block.attn.heads(block.norm1(x))
            by_hand = (
                (q[0, :, 0:1] @ k[0].transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1).mean(0)[0]
            )
            assert torch.allclose(real.weights[layer], by_hand, atol=1e-5)
            assert real.weights[layer].sum().item() == pytest.approx(1)
            x = block(x)
    left, top, width, height = test.boxes[DIGIT].tolist()
    inside = torch.zeros(24, 24)
    inside[top : top + height, left : left + width] = 1
    # the share of each patch
    covered = inside.unfold(0, 4, 4).unfold(1, 4, 4).mean(dim=(2, 3)).flatten()
    for weights, share in zip(real.weights, real.fractions, strict=True):
        assert share == pytest.approx((weights[1:] * covered).sum().item(), abs=1e-5)
    assert real.fractions[0] < 0.5 < 0.8 < real.fractions[-1]  # what the animation is there to show


def test_the_stored_file_is_small_and_ends_with_a_rest(stored):
    pictures, loop = stored
    assert STORED.stat().st_size < 400_000
    assert (
        loop == 0 and len(pictures) > 60 and {one.size for one, _ in pictures} == {(WIDTH, HEIGHT)}
    )
    assert 8000 < sum(time for _, time in pictures) < 18_000 and pictures[-1][1] > 2000
    assert all(
        one.getpixel(at) == (255, 255, 255)
        for one, _ in pictures
        for at in ((2, 2), (WIDTH - 3, HEIGHT - 3))
    )


def test_the_stored_file_shows_the_models_numbers(real, stored):
    """Letters may differ by a version's pixels; lines, bars and patches may not"""
    pictures, said = stored[0], moments(real)
    for shown, number in ((pictures[0][0], 0), (pictures[-1][0], len(said) - 1)):
        apart = ImageChops.difference(shown.reduce(4), draw_frame(real, number, 1.0).reduce(4))
        assert max(ImageStat.Stat(apart).mean) < 3
    # would be noticed
    wrong = draw_frame(real._replace(probabilities=real.probabilities.roll(1)), number, 1.0)
    assert max(ImageStat.Stat(ImageChops.difference(shown.reduce(4), wrong.reduce(4))).mean) > 3


def test_nothing_flashes(stored):
    """Less than a quarter changes its brightness by a tenth or more at once (WCAG 2.3.1)."""
    for (before, _), (after, _) in pairwise(stored[0]):
        changed = (
            np.abs(np.asarray(before.convert("L"), int) - np.asarray(after.convert("L"), int)) > 25
        )
        assert changed.mean() < 0.25


def test_a_notebook_shows_the_last_frame_of_all(made_up, real):
    for reading in (made_up, real):
        canvas = FigureCanvasAgg(figure := draw_moment(reading))
        canvas.draw()
        last = draw_frame(reading, len(moments(reading)) - 1, 1.0)
        assert np.array_equal(np.asarray(canvas.buffer_rgba())[..., :3], np.asarray(last))
        said = [text.get_text() for text in figure.axes[0].texts]
        assert f"{reading.fractions[-1]:.0%} of its attention is on the digit" in said


def test_a_moment_becomes_a_picture_with_its_key(made_up):
    picture, plain = draw_lines(made_up), draw_moment(made_up)
    texts = {text.get_text() for text in picture.figure.texts}
    assert texts > {text.get_text() for text in plain.texts}  # and the key
