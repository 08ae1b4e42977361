"""The pictures of notebook 01: cells are where `patchify` puts their numbers.

And no text runs over an edge or another.
"""

from itertools import chain, combinations, groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image, ImageChops, ImageSequence, ImageStat

from tools.pictures import save_animation
from vit_helpers.patches import patchify
from vit_helpers.plots import patches_reshaping, style
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
from vit_helpers.plots.patches_filters import (
    SPREAD,
    TOP,
    draw_brightness,
    draw_by_hand,
    draw_components,
    draw_kernel,
    draw_maps,
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


def test_filters_by_hand_are_above_their_maps_on_one_scale():
    filters = dict(zip("abc", torch.randn(3, 3, 4, 4), strict=True))
    maps = torch.randn(3, 4, 5)
    axes = draw_by_hand(torch.rand(3, 16, 20), filters, maps).figure.axes
    assert [ax.get_title() for ax in axes[1:4]] == ["a", "b", "c"]
    for ax, values in zip(axes[5:8], maps, strict=True):
        assert np.array_equal(ax.images[0].get_array(), values)
    assert axes[5].images[0].get_clim() == (0, 1)
    assert [ax.images[0].get_clim() for ax in axes[6:8]] == [(-TOP, TOP)] * 2
    assert axes[8].get_ylabel() == "difference"


def test_maps_of_layers_are_comparable():
    layers = {
        name: (torch.randn(4, 3, 4, 4), scale * torch.randn(4, 5, 6) + scale)
        for name, scale in (("small", 1), ("large", 100))
    }
    axes = draw_maps(layers).figure.axes
    assert len(axes) == 2 * 2 * 4 + 1
    drawn = [ax.images[0] for ax in [*axes[4:8], *axes[12:16]]]
    assert {image.get_clim() for image in drawn} == {(-SPREAD, SPREAD)}
    assert {image.get_cmap().name for image in drawn} == {style.SIGNED}
    for image in drawn:
        values = np.asarray(image.get_array())
        assert values.mean() == pytest.approx(0, abs=1e-5)
        assert values.std(ddof=1) == pytest.approx(1, abs=1e-5)
    assert [text.get_text() for ax in axes for text in ax.texts] == [
        "small:\nfilters",
        "maps",
        "large:\nfilters",
        "maps",
    ]


def test_every_filter_is_counted_once_by_its_likeness_to_brightness():
    picture = draw_brightness({"a": torch.tensor([0.05, 0.95, 0.99]), "b": torch.tensor([0.5] * 3)})
    heights = [[bar.get_height() for bar in ax.patches] for ax in picture.figure.axes]
    assert heights == [[1, *[0] * 8, 2], [*[0] * 5, 3, *[0] * 4]]
    assert "a 2 of 3, b 0 of 3" in picture.alt
    assert len({ax.get_ylim() for ax in picture.figure.axes}) == 1


def test_a_weight_of_zero_is_gray():
    kernel = torch.zeros(3, 2, 2)
    kernel[0, 0, 0], kernel[1, 1, 1] = 2, -4
    shown = draw_kernel(kernel, style.new_axes(None)).images[0].get_array()
    assert shown[0, 1].tolist() == [0.5, 0.5, 0.5]
    assert shown[0, 0].tolist() == [0.75, 0.5, 0.5] and shown[1, 1].tolist() == [0.5, 0, 0.5]
    assert not draw_kernel(torch.zeros(3, 2, 2), style.new_axes(None)).images[0].get_array().std()


def test_components_are_drawn_in_their_order():
    components = torch.randn(5, 3, 4, 4)
    axes = draw_components(components, columns=4).figure.axes
    assert [len(ax.images) for ax in axes] == [1] * 5 + [0] * 3
    strongest = [component.abs().max() for component in components]
    for ax, component, top in zip(axes, components, strongest, strict=False):
        shown = torch.as_tensor(ax.images[0].get_array()).permute(2, 0, 1)
        assert torch.allclose(shown, 0.5 + component / top / 2, atol=1e-6)


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
