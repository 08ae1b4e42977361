"""The pictures of a whole forward pass and of one head show every shape and number, and no text runs over another."""

import re
from itertools import combinations

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vit_helpers.plots import style
from vit_helpers.plots.vit import Stage, draw_head, draw_stages

C, P, N, D, T = 3, 2, 16, 6, 17
TOKENS = torch.randn(T, D, generator=torch.Generator().manual_seed(0))
ROWS = [
    [
        Stage("image", "C, H, W", torch.rand(C, 8, 8), "image"),
        Stage("patches", "N, C·P·P", torch.rand(N, C, P, P), "patches", "cut"),
        Stage("tokens", "T, D", TOKENS, before="project,\nclass token\nin front"),
        Stage("positions", "T, D", TOKENS, "positions", "+"),
        Stage("sum", "T, D", TOKENS, before="="),
    ],
    [
        Stage("first", "T, D", TOKENS, layer="block 1"),
        Stage("last", "T, D", TOKENS, layer="block 12", skip=True),
        Stage("normalized", "T, D", TOKENS, layer="norm"),
        Stage("class token", "D", TOKENS[0], "token", "row 0", width=0.6),
        Stage("logits", "K", torch.tensor([-0.65, 0.07, 0.84]), "logits", layer="head", width=4.4),
    ],
]
Q, K, V = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1))
Z = TOKENS[:4, :4]
WEIGHTS = (Q @ K.T / 2**0.5).softmax(-1)
PICTURES = {
    "stages": lambda: draw_stages(ROWS, "A title", 3, ["pagoda", "flower", "cat"]),
    "head": lambda: draw_head(Z, Q, K, V, ["class", "sky", "roof", "tree"]),
}
every = pytest.mark.parametrize("name", PICTURES)


def texts(fig):
    return [text for ax in fig.axes[:1] for text in ax.texts if text.get_text()]


@every
def test_texts_are_whole_and_apart(name):
    fig = PICTURES[name]()
    renderer = FigureCanvasAgg(fig).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in texts(fig)]
    assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_every_stage_has_its_name_and_shape_and_every_logit_its_class():
    said = [text.get_text() for text in texts(PICTURES["stages"]())]
    shapes = {"(3, 8, 8)", "(16, 12)", "(17, 6)", "(6)", "(3)", "(N, C·P·P)", "(T, D)", "(K)"}
    assert shapes | {"A title", "cut", "block 1", "block 12", "norm", "head", "…", "+", "="} <= set(said)
    assert {"pagoda", "-0.65", "flower", "0.07", "cat", "0.84"} <= set(said)


def test_tables_share_a_scale_with_zero_in_the_middle():
    ax = PICTURES["stages"]().axes[0]
    tables = [image for image in ax.images if image.get_array().ndim == 2]
    assert len(tables) == 7 and {image.get_clim() for image in tables} == {(-3, 3)}
    assert {image.get_cmap().name for image in tables} == {style.SIGNED}


def test_a_head_shows_all_its_numbers():
    found = [float(t.get_text()) for t in texts(PICTURES["head"]()) if re.fullmatch(r"-?\d+(\.\d+)?", t.get_text())]
    tables = (Z, Q, K, V, Q @ K.T / 2**0.5, WEIGHTS, WEIGHTS @ V)
    wanted = torch.cat([table.flatten() for table in tables]).tolist()
    assert sorted(found) == pytest.approx(sorted(wanted), abs=0.006)


def test_gray_images_and_unnamed_classes_can_be_drawn():
    rows = [[Stage("image", "C, H, W", torch.rand(1, 8, 8), "image"), Stage("logits", "K", torch.zeros(2), "logits")]]
    said = [text.get_text() for text in texts(draw_stages(rows, "gray", 1))]
    assert {"(1, 8, 8)", "class 0", "class 1", "0.00"} <= set(said)
