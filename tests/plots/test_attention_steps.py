"""The steps of attention as tables show torch's numbers, and no text leaves its place."""

import re
from itertools import combinations

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vit_helpers.plots import attention_steps as steps
from vit_helpers.plots.canvas import product

LABELS = ["sky", "roof", "tree"]


Z = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]])


MAPS = dict(
    zip(
        "qkv",
        torch.randint(-2, 3, (3, 4, 4), generator=torch.Generator().manual_seed(0)).float(),
        strict=True,
    )
)


Q, K, V = (Z @ matrix for matrix in MAPS.values())


SCORES = Q @ K.T / 2


WEIGHTS, POWERS = SCORES.softmax(-1), SCORES.exp()


PICTURES = {
    "projections": (lambda: steps.draw_projections(Z, MAPS, LABELS), [Z, *MAPS.values(), Q, K, V]),
    "scores": (lambda: steps.draw_scores(Q, K, LABELS, 1), [Q, K.T, Q @ K.T, SCORES]),
    "softmax": (
        lambda: steps.draw_softmax(SCORES, LABELS),
        [SCORES, POWERS, POWERS.sum(-1), WEIGHTS],
    ),
    "weighted sum": (
        lambda: steps.draw_weighted_sum(WEIGHTS[0], V, LABELS, "sky"),
        [V, WEIGHTS[0, :, None] * V, WEIGHTS[0] @ V],
    ),
    "multi-head": (lambda: steps.draw_multi_head(5, 12, 3), []),
}


every = pytest.mark.parametrize("name", PICTURES)


@every
def test_all_numbers_are_in_the_cells(name):
    draw, tables = PICTURES[name]
    shown = [text.get_text() for text in draw().figure.axes[0].texts]
    numbers = [float(text) for text in shown if re.fullmatch(r"-?\d+(\.\d+)?", text)]
    wanted = [number for table in tables for number in table.flatten().tolist()]
    assert sorted(numbers) == pytest.approx(sorted(wanted), abs=0.006)


def test_the_product_that_is_written_out_is_framed():
    ax = PICTURES["projections"][0]().figure.axes[0]
    frames = [patch for patch in ax.patches if not patch.get_fill() and patch.get_linewidth() == 3]
    row, column, result = [patch.get_bbox().bounds for patch in frames]
    assert row[2:] == (4, 1) and column[2:] == (1, 4) and result[2:] == (1, 1)
    assert row[1] == result[1] and column[0] == result[0]  # beside it and above it
    assert " ".join(product(Z[0], MAPS["q"][:, 0])) in [text.get_text() for text in ax.texts]


@every
def test_texts_are_whole_and_apart(name):
    fig = PICTURES[name][0]().figure
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in fig.axes[0].texts if text.get_text()]
    assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_the_description_of_a_step_has_its_numbers():
    alt = steps.draw_softmax(torch.tensor([[2.0, 1, 0]] * 3), LABELS).alt
    assert "Sky's row: scores 2, 1, 0; exponentials 7.39, 2.72, 1; sum 11.11; weights 0.665" in alt
    alt = steps.draw_projections(Z, MAPS, LABELS).alt
    assert f"Sky's query is {steps.listed(Q[0])} and its key is {steps.listed(K[0])}" in alt
    alt = steps.draw_scores(Q, K, LABELS, 1).alt
    assert f"roof's query is framed: {steps.listed((Q @ K.T)[1])} and then" in alt
    alt = steps.draw_weighted_sum(WEIGHTS[0], V, LABELS, "sky").alt
    assert alt.endswith(f"the output for sky: {steps.listed(WEIGHTS[0] @ V)}.")
    assert "lead to 3 heads" in (alt := steps.draw_multi_head(5, 12, 3).alt) and "5 by 5" in alt
