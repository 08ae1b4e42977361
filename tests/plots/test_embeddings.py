"""The pictures of notebook 02 show the numbers they are given, where these belong."""

import re
from itertools import chain

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch

from vit_helpers.data.digits import cat
from vit_helpers.embeddings import sincos_1d
from vit_helpers.patches import patchify
from vit_helpers.plots import style
from vit_helpers.plots.embeddings import (
    draw_answers,
    draw_equation,
    draw_patch_similarity,
    draw_question,
    number_patches,
)
from vit_helpers.plots.embeddings_positions import (
    clearest_column,
    column_as_list,
    column_as_picture,
    draw_accuracies,
    draw_column,
    draw_forms,
    draw_learned,
    draw_models,
    draw_numbered_map,
    draw_similarity,
    draw_torn,
    draw_waves,
    frame_maps,
)

GRID = (6, 6)
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


def test_learned_positions_are_drawn_for_each_time():
    tables = {"before": torch.eye(6), "after": torch.ones(6, 6)}
    first, second, _ = draw_learned(tables, (2, 3)).figure.axes
    assert [ax.get_title("left") for ax in (first, second)] == ["before", "after"]
    assert first.images[0].get_array()[0, 1] == 0 and second.images[0].get_array()[0, 1] == 1


def test_nine_places_of_each_model_are_named_by_row_and_column():
    places = [(r, c) for r in (0, 2, 4) for c in (1, 2, 3)]
    small = {place: torch.full((5, 5), 0.1 * i) for i, place in enumerate(places)}
    large = {place: -torch.full((7, 7), 0.1 * i) for i, place in enumerate(places)}
    fig = draw_models({"small": small, "large": large}).figure
    maps = [ax for ax in fig.axes if ax.get_xlabel().startswith("(")]
    assert [ax.get_xlabel() for ax in maps] == [f"({r}, {c})" for r, c in places] * 2
    assert [ax.images[0].get_array().shape for ax in maps[8:10]] == [(5, 5), (7, 7)]
    assert float(maps[3].images[0].get_array()[0, 0]) == pytest.approx(0.3)
    assert float(maps[12].images[0].get_array()[0, 0]) == pytest.approx(-0.3)


def test_waves_run_through_the_values_of_the_table():
    table = sincos_1d(36, 64)
    axes = draw_waves(table, (0, 3, 6, 10)).figure.axes
    for wave, strip, column in zip(axes[0:8:2], axes[1:8:2], (0, 3, 6, 10), strict=True):
        curve, dots = wave.lines
        assert dots.get_ydata().tolist() == table[:, column].tolist()
        assert strip.images[0].get_array()[0].tolist() == table[:, column].tolist()
        for position in (0, 35):  # the ends of the curve
            end = curve.get_ydata()[0 if position == 0 else -1]
            assert float(end) == pytest.approx(table[position, column].item(), abs=1e-5)


def test_both_forms_are_drawn_with_the_place_framed():
    forms = {"1-D": torch.zeros(2, 3), "2-D": torch.ones(2, 3)}
    first, second, _ = draw_forms(forms, 4).figure.axes
    assert [ax.get_title("left") for ax in (first, second)] == ["1-D", "2-D"]
    assert first.patches[0].get_xy() == (0.5, 0.5) and texts(second) == ["1.0"] * 6


def test_every_draw_is_a_dot_beside_the_line_of_guessing():
    draws = {"one": [0.8], "three": [0.1, 0.2, 0.3]}
    drawn = draw_accuracies(draws, guess=0.14)
    line, *dots = drawn.figure.axes[0].lines
    assert list(line.get_xdata()) == [0.14, 0.14] and line.get_linestyle() == "--"
    assert [list(row.get_xdata()) for row in dots] == list(draws.values())
    assert len(set(dots[1].get_ydata())) == 3  # apart, even where values are equal
    assert texts(drawn.figure.axes[0])[1:] == ["0.80", "0.20 (mean of 3 draws)"]


def test_sheets_share_the_scale_of_the_largest_number():
    pieces = column_as_picture(1, (2, 2), (4, 4))
    sheets = {"small": (torch.full((4, 4), 0.1), pieces), "large": (-torch.ones(4, 4), pieces)}
    first, second, _ = draw_torn(sheets).figure.axes
    assert first.images[0].get_clim() == second.images[0].get_clim() == (-1, 1)


def test_the_clearest_column_stands_out_in_every_panel():
    first, second = torch.zeros(3, 4, 5), torch.zeros(3, 4, 5)
    first[0, :, 1], first[2, :, 3], second[2, :, 3] = 2, 1, 1  # the first of them only in one panel
    assert clearest_column(first) == (0, 1) and clearest_column(first, second) == (2, 3)


def test_a_numbered_map_has_its_cosines_in_its_cells():
    values = torch.tensor([[1.0, -0.04], [-0.5, 0.26]])
    ax, drawn = draw_numbered_map(values, title="Map", place=2)
    assert texts(ax) == ["1.0", "0.0", "-0.5", "0.3"] and drawn.get_clim() == (-1, 1)
    assert ax.patches[0].get_xy() == (-0.5, 0.5)
    assert texts(draw_numbered_map(values, texts=list("abcd"))[0]) == list("abcd")
    assert not texts(draw_numbered_map(torch.zeros(9, 9))[0])


def test_signed_maps_are_framed():
    ax, drawn = draw_similarity(torch.zeros(6, 6), (2, 3), low=-1, cmap=style.SIGNED)
    assert drawn.get_clim() == (-1, 1) and len(frame_maps(ax, (2, 3)).patches) == 6


@pytest.mark.parametrize("column", range(6))
def test_a_stretched_list_keeps_the_area_of_a_column_and_tears_it(column):
    as_picture, as_list = (
        make(column, GRID, (8, 8)) for make in (column_as_picture, column_as_list)
    )
    areas = [
        sum(width * height for *_, width, height in chain(*pieces))
        for pieces in (as_picture, as_list)
    ]
    assert areas == pytest.approx([64 / 6, 64 / 6])
    assert len({round(left, 6) for ((left, *_),) in as_picture}) == 1
    assert len({round(boxes[0][0], 6) for boxes in as_list}) > 2
    assert all(left >= -0.5 and left + width <= 7.5 + 1e-6 for left, _, width, _ in chain(*as_list))
    assert column_as_list(column, GRID, GRID) == column_as_picture(column, GRID, GRID)


def test_the_cells_of_a_column_are_numbered_and_joined():
    ax, drawn = draw_column(torch.zeros(8, 8), column_as_list(1, GRID, (8, 8)), 0.5, title="Torn")
    assert texts(ax) == ["0", "1", "2", "3", "4", "5"]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 5 and len(ax.patches) == 8 + 5
    assert drawn.get_clim() == (-0.5, 0.5)
