"""The pictures of notebook 02 show the numbers they are given, where these belong."""

import re
from itertools import chain

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch

from vit_helpers.patches import patchify
from vit_helpers.plots import style
from vit_helpers.plots.embeddings import (
    draw_changes,
    draw_equation,
    draw_patch_similarity,
    number_patches,
)
from vit_helpers.plots.embeddings_positions import (
    clearest_column,
    column_as_list,
    column_as_picture,
    draw_accuracies,
    draw_column,
    draw_numbered_map,
    draw_similarity,
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
        draw_equation(IMAGE, x, PROJECTION, torch.tensor([0.5, 0, -0.5]), positions),
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


def test_a_map_of_a_patch_names_all_patches():
    similar = {"pixels": torch.eye(6), "tokens": -torch.eye(6)}
    photo, *maps, _ = draw_patch_similarity(torch.rand(3, 4, 6), 2, similar, [1, 5]).axes
    assert texts(photo) == texts(maps[0]) == ["0", "1", "2", "3", "4", "5"]
    assert [ax.get_title("left") for ax in maps] == [
        "patch 1 and the others",
        "patch 5 and the others",
        "",
        "",
    ]
    assert [ax.get_ylabel() for ax in maps] == ["pixels", "", "tokens", ""]
    # patch 1 with itself, and 5 with 1
    assert [ax.images[0].get_array()[0, 1] for ax in maps] == [1, 0, -1, 0]
    assert maps[0].images[0].get_clim() == (-1, 1)


def test_changes_are_dots_with_their_values():
    ax = draw_changes({"small": 1.3e-6, "large": 0.05}, title="Two", x="change")
    assert texts(ax) == [r"$1.3 \cdot 10^{-6}$", "0.05"] and ax.get_xscale() == "log"
    assert [line.get_xdata()[0] for line in ax.lines] == [1.3e-6, 0.05]


def test_changes_are_compared_with_a_dashed_line():
    ax = draw_changes({"small": 1.3e-6}, scale={"spread": 1.0})
    assert (
        texts(ax) == [r"$1.3 \cdot 10^{-6}$", "spread: 1.00"]
        and ax.lines[-1].get_linestyle() == "--"
    )
    assert list(ax.lines[-1].get_xdata()) == [1.0, 1.0] and ax.get_xlim()[1] > 1


def test_bars_are_means_and_dots_are_draws():
    ax = draw_accuracies({"one": [0.8], "three": [0.1, 0.2, 0.3]}, title="Bars")
    assert [round(bar.get_width(), 6) for bar in ax.patches] == [0.8, 0.2]
    assert texts(ax) == ["0.80", "0.20, mean of 3 draws (dots)"]
    assert list(ax.lines[0].get_xdata()) == [0.1, 0.2, 0.3] and len(ax.lines) == 1
    assert len(set(ax.lines[0].get_ydata())) == 3  # apart, even where values are equal


def test_bars_are_compared_with_a_dashed_line_that_has_a_name():
    ax = draw_accuracies({"one": [0.8], "two": [0.1]}, scale={"guess": 0.14})
    (line,) = (line for line in ax.lines if line.get_linestyle() == "--")
    assert list(line.get_xdata()) == [0.14, 0.14] and texts(ax) == ["0.80", "0.10", "guess: 0.14"]
    low, high = sorted(ax.get_ylim())
    # above the bars, which are whole
    assert low < ax.texts[-1].get_position()[1] < -0.325 and high > 1.325


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
