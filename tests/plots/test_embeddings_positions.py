"""Figures of positions in notebook 02: tables, waves, maps and columns."""

from itertools import chain

import pandas as pd
import pytest
import torch
from matplotlib.patches import FancyArrowPatch

from vit_helpers.embeddings import sincos_1d
from vit_helpers.plots import style
from vit_helpers.plots.embeddings_positions import (
    clearest_column,
    column_as_list,
    column_as_picture,
    draw_accuracies,
    draw_column,
    draw_forms,
    draw_halo,
    draw_learned,
    draw_models,
    draw_numbered_map,
    draw_similarity,
    draw_torn,
    draw_waves,
    frame_maps,
)

GRID = (6, 6)


def texts(axes):
    return [text.get_text() for text in axes.texts]


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


def test_similarity_is_drawn_in_its_places():
    similar = torch.arange(36.0).reshape(6, 6) / 36
    _, drawn = draw_similarity(similar, (2, 3))
    canvas = drawn.get_array()
    assert canvas.shape == (5, 11)
    assert (canvas[3:5, 4:7].data.flatten() == similar[4].numpy()).all()  # place 4: row 1, column 1
    assert canvas.mask[2].all() and canvas.mask[:, 3].all()
    with pytest.raises(RuntimeError):
        draw_similarity(similar, (3, 3))


def test_each_way_to_train_has_its_column():
    halo = pd.DataFrame(
        {
            "augmentation": ["shift", "none", "none"],
            "beside": [0.5, 0.2, 0.1],
            "far": [-0.1, 0.0, 0.0],
        }
    )
    drawn = draw_halo(halo, {"shift": "with shifts", "none": "without"})
    beside, far, _ = (ax := drawn.figure.axes[0]).lines
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["with shifts", "without"]
    assert (
        [round(x) for x in beside.get_xdata()] == [round(x) for x in far.get_xdata()] == [0, 1, 1]
    )
    assert list(beside.get_ydata()) == [0.5, 0.2, 0.1] and list(far.get_ydata()) == [-0.1, 0.0, 0.0]
    assert "with shifts 0.5 and -0.1; without 0.15 and 0.0" in drawn.alt
