"""The pictures of notebook 01: cells are where `patchify` puts their numbers.

And no text runs over an edge or another.
"""

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
from vit_helpers.plots.patches import (
    draw_costs,
    draw_filter,
    draw_holding,
    draw_numbered,
    draw_row,
    draw_shifts,
    draw_statistics,
)
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

STORED = Path(__file__).parents[1] / "images" / "01_patches" / "patchify.gif"
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
    fig = draw_reshaping(size, P, pixel=5)
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in fig.axes[0].texts if text.get_text()]
    assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    said = [text.get_text() for text in fig.axes[0].texts]
    assert sum(text == "5" for text in said) == 4  # the pixel that is followed, once in each stage
    assert [f"5 at {stage.index_of(5)}" in said for stage in stages(size, P)] == [True] * 4
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


def test_the_stored_animation_is_small_opaque_and_what_the_code_draws(stored, tmp_path):
    pictures, loop = stored
    assert STORED.stat().st_size < 150_000 and loop == 0
    assert {one.size for one, _ in pictures} == {(WIDTH, HEIGHT)}
    assert 8000 < sum(time for _, time in pictures) < 18_000 and pictures[-1][1] > 2000
    corners = [(0, 0), (WIDTH - 1, 0), (0, HEIGHT - 1), (WIDTH - 1, HEIGHT - 1)]
    assert all(one.getpixel(at) == (255, 255, 255) for one, _ in pictures for at in corners)
    # the first frame is finished
    assert ImageChops.difference(pictures[0][0], pictures[-1][0]).getbbox() is None
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


def test_differences_share_a_scale_with_white_at_zero():
    fig = draw_statistics(
        torch.rand(3, 16, 20), torch.zeros(3, 3, 4, 4), torch.randn(3, 4, 5), "abcd", top=0.5
    )
    assert [ax.get_title(loc="left") for ax in fig.axes[:8]] == ["", "b", "c", "d", "a", "", "", ""]
    photo, gray, *signed = [ax.images[0] for ax in fig.axes[4:8]]
    assert photo.get_array().shape == (16, 20, 3)
    assert gray.get_clim() == (0, 1) and [one.get_clim() for one in signed] == [(-0.5, 0.5)] * 2
    assert {one.get_cmap().name for one in signed} == {style.SIGNED}
    # one unit for each bar
    assert [ax.get_xlabel() for ax in fig.axes[8:]] == ["brightness", "difference"]
    fig.draw_without_rendering()
    # below its maps
    for bar, maps in zip(fig.axes[8:], (fig.axes[5:6], fig.axes[6:8]), strict=True):
        box, boxes = bar.get_position(), [ax.get_position() for ax in maps]
        assert box.y1 < boxes[0].y0 and boxes[0].x0 <= box.x0 < box.x1 <= boxes[-1].x1
    # the photo is as high as the maps
    assert len({round(ax.get_position().y1, 3) for ax in fig.axes[4:8]}) == 1


def test_a_filter_shows_its_weights_for_each_channel():
    filter = torch.zeros(3, 4, 4)
    filter[0], filter[1, :, :2], filter[1, :, 2:] = 1 / 16, -1 / 24, 1 / 24
    ax = draw_filter(filter, 1 / 16, style.new_axes(None), "title")
    assert [text.get_text() for text in ax.texts] == ["R", "1/16", "G", "−1/24", "1/24", "B", "0"]
    weights = [text.get_position()[0] for text in ax.texts if text.get_text() not in "RGB"]
    assert weights == pytest.approx([2, 5.6, 7.6, 11.2])  # each in the middle of its columns
    assert [tuple(mesh.get_array().flatten()[[0, 3]]) for mesh in ax.collections] == [
        tuple(channel[0, [0, 3]].tolist()) for channel in filter
    ]
    assert {mesh.get_clim() for mesh in ax.collections} == {(-1 / 16, 1 / 16)}


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
    ax = draw_costs(
        (4, 2),
        {"flat": ((1, 1), "k", "-", "center"), "steep": ((1, 4), "k", "--", "top")},
        title="finding",
    )
    assert [text.get_text() for text in ax.texts] == ["flat", "steep"]
    assert [tuple(line.get_ydata()) for line in ax.lines] == [(1, 1), (1, 4)]
    assert ax.get_xlim()[0] > ax.get_xlim()[1]
    marked = draw_costs((4, 2), {"flat": ((1, 1), "k", "-", "center")}, marked=(4, 3))
    assert [line.get_xdata()[0] for line in marked.lines[1:]] == [4, 3]
    assert marked.texts[-1].get_text() == "published models: P = 4, 3"


def test_a_shift_by_a_patch_finds_it_again():
    image = torch.rand(3, 8, 16)
    fig = draw_shifts(image, 12, 4, (0, 2, 4), place=(1, 2))
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert titles[3:] == ["Patch 5", "Patch 5: other values", "Patch 4: same values"]
    assert [ax.patches[0].get_x() for ax in fig.axes[:3]] == [7.5, 7.5, 3.5]
    first, moved, last = (ax.images[0].get_array() for ax in fig.axes[3:])
    assert np.array_equal(first, last) and not np.array_equal(first, moved)
