"""The pictures and the animation of reshaping: cells are where `patchify` puts their numbers."""

from itertools import chain, combinations, groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image, ImageChops, ImageSequence, ImageStat

from tools.pictures import save_animation
from vit_helpers.patches import patchify
from vit_helpers.plots import patches_reshaping, style
from vit_helpers.plots.patches_reshaping import (
    HEIGHT,
    WIDTH,
    draw_moving,
    draw_reshaping,
    flights,
    moving_places,
    patch_of,
    stages,
)

STORED = Path(__file__).parents[2] / "images" / "01_patches" / "patchify.gif"


SIZES = [((4, 6), 2), ((6, 4), 2), ((6, 6), 3), ((8, 8), 2), ((3, 4), 1), ((4, 4), 2)]


each = pytest.mark.parametrize(("size", "P"), SIZES)


@each
def test_the_last_stage_is_what_patchify_returns(size, P):
    image = torch.arange(size[0] * size[1]).reshape(1, 1, *size)
    found = stages(size, P)
    assert torch.equal(found[-1].numbers.reshape(found[-1].shape), patchify(image, P)[0])
    assert torch.equal(found[0].numbers, image.flatten()) and torch.equal(
        found[1].numbers, image.flatten()
    )
    for stage in found:
        assert np.prod(stage.shape) == np.prod(stage.blocks) == image.numel()
        for pixel in (0, 5, image.numel() - 1):
            assert stage.numbers.reshape(stage.shape)[tuple(stage.index_of(pixel))] == pixel
    assert found[-1].index_of(5)[0] == patch_of(5, size, P)


@each
def test_cells_are_in_reading_order_and_apart(size, P):
    for stage in stages(size, P):
        places = stage.places().round(decimals=3)
        order = sorted(range(len(places)), key=lambda k: (places[k, 1].item(), places[k, 0].item()))
        assert order == stage.numbers.tolist()
        assert all((one - other).abs().max() > 0.99 for one, other in combinations(places, 2))
        assert (places.max(dim=0).values + 1).tolist() == pytest.approx(stage.extent(), abs=1e-2)


@each
def test_a_reshape_keeps_the_order_and_texts_are_whole(size, P):
    picture = draw_reshaping(size, P, pixel=5)
    fig = picture.figure
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in fig.axes[0].texts if text.get_text()]
    assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    said = [text.get_text() for text in fig.axes[0].texts]
    assert sum(text == "5" for text in said) == 4  # the pixel that is followed, once in each stage
    assert [f"5 at {stage.index_of(5)}" in said for stage in stages(size, P)] == [True] * 4
    assert all(str(stage.index_of(5)) in picture.alt for stage in stages(size, P))
    cells = [patch for patch in fig.axes[0].patches if isinstance(patch, Rectangle)]
    assert len([cell for cell in cells if to_hex(cell.get_edgecolor()) == style.TEXT]) == 4
    assert len([p for p in fig.axes[0].patches if isinstance(p, FancyArrowPatch)]) == 3


def test_what_cannot_be_drawn_is_said():
    for size, P, pixel, says in (
        ((4, 6), 4, 0, "4 x 6 pixels does not divide"),
        ((4, 6), 2, 24, "pixels 0 to 23, got 24"),
        ((20, 20), 5, 0, "take fewer pixels"),
    ):
        with pytest.raises(ValueError, match=says):
            draw_reshaping(size, P, pixel)


def test_cells_move_from_stage_to_stage():
    found = stages((4, 6), 2)
    for number in (1, 2, 3):
        start, end = (moving_places(found, number, progress, (4, 6), 2) for progress in (0, 1))
        assert torch.allclose(start, moving_places(found, number - 1, 1, (4, 6), 2))
        assert torch.allclose(end - end.amin(dim=0), found[number].places(), atol=1e-5)
    half = moving_places(found, 2, 0.5, (4, 6), 2)
    first, last = (moving_places(found, 2, progress, (4, 6), 2) for progress in (0, 1))
    assert torch.equal(half[[0, 1, 6, 7]], last[[0, 1, 6, 7]])  # patch 0 has arrived
    assert torch.equal(half[[16, 17, 22, 23]], first[[16, 17, 22, 23]])  # patch 5 has not left


def test_one_patch_moves_at_a_time_and_the_followed_one_rests():
    found, steps = stages((4, 6), 2), [k / 300 for k in range(301)]
    moving = [
        [patch for patch, t in flights(found, step, (4, 6), 2, 15) if 0 < t < 1] for step in steps
    ]
    assert max(map(len, moving)) == 1 and [patch for (patch,) in filter(None, moving)] == sorted(
        chain(*moving)
    )
    longest = max(len(list(group)) for some, group in groupby(moving, bool) if not some)
    assert longest > 1.4 * sum(patch == [4] for patch in moving)  # the pause


def test_the_caption_names_the_step_while_cells_move_and_the_line_below_changes_when_they_have():
    caption, shapes = slice(0, 42), slice(42, 75)
    for number in (1, 2, 3):
        at = (number - 1,), (number, 0.01), (number, 0.9), (number,)
        before, first, during, after = (np.asarray(draw_moving(*moment)) for moment in at)
        assert np.array_equal(first[:75], during[:75]) and not np.array_equal(
            before[caption], first[caption]
        )
        assert np.array_equal(during[caption], after[caption]) and not np.array_equal(
            during[shapes], after[shapes]
        )


def test_the_patch_that_moves_covers_the_others():
    found = stages((4, 6), 2)
    for k in (3, 4, 5):  # patch 0 passes patches 1 and 2
        frame = np.asarray(draw_moving(2, k / 60))
        x, y = (
            ((patches_reshaping.CELL * moving_places(found, 2, k / 60, (4, 6), 2))[0].round() + 4)
            .int()
            .tolist()
        )
        assert frame[y, x].tolist() == pytest.approx(
            [255 * part for part in patches_reshaping.shaded(patches_reshaping.SHADES[0])], abs=2
        )


@pytest.fixture(scope="module")
def stored():
    with Image.open(STORED) as file:
        return [
            (one.convert("RGB"), one.info["duration"]) for one in ImageSequence.Iterator(file)
        ], file.info.get("loop")


@pytest.mark.dev  # another matplotlib sets letters a little differently
def test_the_stored_animation_is_small_opaque_and_what_the_code_draws(stored, tmp_path):
    pictures, loop = stored
    assert STORED.stat().st_size < 150_000 and loop == 0
    assert {one.size for one, _ in pictures} == {(WIDTH, HEIGHT)}
    assert 8000 < sum(time for _, time in pictures) < 18_000 and pictures[-1][1] > 2000
    corners = [(0, 0), (WIDTH - 1, 0), (0, HEIGHT - 1), (WIDTH - 1, HEIGHT - 1)]
    assert all(one.getpixel(at) == (255, 255, 255) for one, _ in pictures for at in corners)
    # it begins with the image, not with the result
    apart = ImageChops.difference(pictures[0][0].reduce(4), draw_moving(0).reduce(4))
    assert max(ImageStat.Stat(apart).mean) < 2
    assert ImageChops.difference(pictures[0][0], pictures[-1][0]).getbbox() is not None
    # its first and its last frame are those of any step
    drawn = patches_reshaping.draw_frames(step=0.5)
    for (shown, _), (frame, _) in ((pictures[0], drawn[0]), (pictures[-1], drawn[-1])):
        apart = ImageChops.difference(shown.reduce(4), frame.reduce(4))  # letters differ by a pixel
        assert max(ImageStat.Stat(apart).mean) < 2
    for name in ("a.gif", "b.gif"):
        save_animation(tmp_path / name, drawn, patches_reshaping.palette())
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()


def test_nothing_in_the_animation_flashes(stored):
    """Less than a quarter changes its brightness by a tenth or more at once (WCAG 2.3.1)."""
    for (before, _), (after, _) in pairwise(stored[0]):
        changed = (
            np.abs(np.asarray(before.convert("L"), int) - np.asarray(after.convert("L"), int)) > 25
        )
        assert changed.mean() < 0.25


def test_captions_fit_their_frame():
    for number in range(4):
        frame = np.asarray(draw_moving(number).convert("L"))
        assert frame[[0, -1]].min() == 255 and frame[:, [0, -1]].min() == 255
