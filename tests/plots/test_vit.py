"""The pictures of notebook 05 show every shape and number, and no text runs over another."""

import re
from itertools import combinations

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vit_helpers.plots import style, vit
from vit_helpers.plots.vit import Stage, draw_differences, draw_forward, draw_shares, draw_stages
from vit_helpers.plots.vit_attention import draw_head

C, P, N, D, T = 3, 2, 16, 6, 17
TOKENS = torch.randn(T, D, generator=torch.Generator().manual_seed(0))
ROWS = [
    [
        Stage("image", "C, H, W", torch.rand(C, 8, 8), "image"),
        Stage("patches", "N, C·P·P", torch.rand(N, C, P, P), "patches", "cut"),
        Stage("tokens", "T, D", TOKENS, before="project,\nclass token\nin front"),
    ],
    [
        Stage("first", "T, D", TOKENS, layer="block 1"),
        Stage("last", "T, D", TOKENS, layer="block 12"),
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
    "head": lambda: (
        draw_head(
            Z, Q, K, V, ["class", "sky", "lake", "tree"], patches=torch.rand(3, 3, 4, 4)
        ).figure
    ),
    "forward": lambda: (
        draw_forward(
            torch.rand(C, 8, 8),
            torch.rand(N, C, P, P),
            [TOKENS] * 7,
            TOKENS,
            torch.tensor([-10.4, 0.84]),
        ).figure
    ),
    "question": lambda: vit.draw_question(torch.rand(C, 427, 640)).figure,
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
    assert shapes | {"A title", "cut", "block 1", "block 12", "norm", "head"} <= set(said)
    assert {"pagoda", "-0.65", "flower", "0.07", "cat", "0.84"} <= set(said)


def test_tables_share_a_scale_with_zero_in_the_middle():
    ax = PICTURES["stages"]().axes[0]
    tables = [image for image in ax.images if image.get_array().ndim == 2]
    assert [image.get_clim() for image in tables] == 5 * [(-3, 3)]
    assert {image.get_cmap().name for image in tables} == {style.SIGNED}


def test_a_head_shows_all_its_numbers():
    found = [
        float(t.get_text())
        for t in texts(PICTURES["head"]())
        if re.fullmatch(r"-?\d+(\.\d+)?", t.get_text())
    ]
    tables = (Z, Q, K, V, Q @ K.T / 2**0.5, WEIGHTS, WEIGHTS @ V)
    wanted = torch.cat([table.flatten() for table in tables]).tolist()
    assert sorted(found) == pytest.approx(sorted(wanted), abs=0.006)


def test_the_terms_of_a_written_output_give_its_number():
    (said,) = (text.get_text() for text in texts(PICTURES["head"]()) if "≈" in text.get_text())
    terms, result = said.split(": ")[1].split(" ≈ ")
    pairs = [pair.replace("(", "").replace(")", "").split("·") for pair in terms.split(" + ")]
    assert sum(float(weight) * float(value) for weight, value in pairs) == pytest.approx(
        float(result), abs=0.006
    )
    assert float(result) == pytest.approx(float(WEIGHTS[0] @ V[:, 0]), abs=0.005)


def test_gray_images_and_unnamed_classes_can_be_drawn():
    rows = [
        [
            Stage("image", "C, H, W", torch.rand(1, 8, 8), "image"),
            Stage("logits", "K", torch.zeros(2), "logits"),
        ]
    ]
    said = [text.get_text() for text in texts(draw_stages(rows, "gray", 1))]
    assert {"(1, 8, 8)", "class 0", "class 1", "0.00"} <= set(said)


def test_a_forward_pass_begins_with_the_image_and_ends_with_the_logits():
    said = [text.get_text() for text in texts(PICTURES["forward"]())]
    steps = {"(1) project,", "(2, 3) 6 blocks", "(4) norm", "head"}
    assert steps | {"image", "tokens, $z_{6}$", "class 0", "-10.40", "0.84"} <= set(said)
    assert "A photo becomes 17 tokens, passes through 6 blocks, and ends as 2 logits" in said


def test_a_head_draws_the_patches_beside_their_tokens_and_projects_three_times():
    fig = PICTURES["head"]()
    assert len(fig.axes[0].images) == 3
    assert [text.get_text() for text in texts(fig)].count("project") == 3


def test_both_models_pass_all_tests_but_the_last():
    said = [text.get_text() for text in texts(PICTURES["question"]())]
    assert {*vit.TESTS, "model A", "model B"} <= set(said)
    assert said.count("yes") == 2 * (len(vit.TESTS) - 1) and said.count("?") == 2


def test_a_small_last_share_is_written_beside_its_bar():
    picture = draw_shares(
        {"B": {"a": 0.966, "b": 0.034}, "H": {"a": 0.99, "b": 0.01}},
        {"a": style.QUERY, "b": style.KEY},
    )
    assert "B: a 97%; B: b 3%; H: a 99%; H: b 1%" in picture.alt
    (ax,) = picture.figure.axes
    assert [text.get_text() for text in ax.texts] == ["97%", "99%", "3.4%"]


def test_differences_above_the_bound_are_filled_and_tiny_ones_are_at_the_edge():
    picture = draw_differences(
        {"new": {"none": 1e-9, "one": 0.1}, "perturbed": {"none": 1e-9, "one": 1e-6}}, 1e-5
    )
    assert "new: 1 of 1; perturbed: 0 of 1" in picture.alt
    fig = picture.figure
    dots = [[line for line in ax.lines if line.get_marker() in "os"] for ax in fig.axes]
    assert [[line.get_marker() for line in lines] for lines in dots] == [["s", "o"], ["s", "s"]]
    assert dots[0][0].get_xdata()[0] == 1e-7 and dots[1][1].get_xdata()[0] == 1e-6
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["new", "perturbed"]
    assert [text.get_text() for text in fig.axes[0].texts] == ["missed", "caught"]
    title = "1 of 1 mistakes show in a new model, 0 in a perturbed one"
    assert fig.get_suptitle() == title


def test_models_that_fit_a_batch_are_named_in_the_title():
    losses = {"A": [1.4, 0.001], "B": [1.4, 0.002], "C": [1.4, 0.6]}
    picture = vit.draw_fits(losses, num_classes=4)
    (ax,) = picture.figure.axes
    assert ax.get_title(loc="left") == "Two models fit the batch: A and B"
    assert "A ends at 0.001; B ends at 0.002; C ends at 0.6" in picture.alt
    assert [line.get_ydata()[-1] for line in ax.lines[:3]] == [0.001, 0.002, 0.6]
    assert ax.lines[3].get_ydata()[0] == pytest.approx(1.386, abs=0.001)


def test_memorized_labels_show_every_run_and_the_range():
    picture = vit.draw_memorized(
        {"true": [1.4, 0.003], "shuffled": [1.4, 0.004]},
        {"true": [0.7, 0.75], "shuffled": [0.12, 0.43, 0.3]},
        chance=0.25,
    )
    assert "true 0.70 to 0.75; shuffled 0.12 to 0.43; chance is 0.25" in picture.alt
    _, right = picture.figure.axes
    assert [list(line.get_xdata()) for line in right.lines[:2]] == [[0.7, 0.75], [0.12, 0.43, 0.3]]


def test_equal_logits_lie_on_the_diagonal_and_others_have_their_difference():
    theirs = torch.tensor([[1.0, -2.0]])
    panels = {"same": (theirs + 2e-6, theirs), "other": (theirs + 0.25, theirs)}
    fig = vit.draw_agreement(panels).figure
    said = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert said == ["largest difference\nbelow $10^{-5}$", "largest difference\n0.25"]
    dots = fig.axes[1].lines[1]
    assert list(dots.get_xdata()) == [1, -2] and list(dots.get_ydata()) == [1.25, -1.75]


def test_crops_are_sorted_by_their_classes():
    picture = vit.draw_crops(torch.rand(4, 3, 8, 8), ["photo, left", "photo, right"])
    titles = [ax.get_title() for ax in picture.figure.axes]
    assert titles == ["photo,\nleft"] * 2 + ["photo,\nright"] * 2


def test_lines_of_lengths_start_at_0_and_carry_their_last_number():
    picture = vit.draw_growth({"stream": [10.0, 30.0], "after a norm": [12.0, 12.0]})
    (ax,) = picture.figure.axes
    assert ax.get_ylim()[0] == 0
    assert [text.get_text() for text in ax.texts] == ["30, stream", "12, after a norm"]
    assert ax.get_title(loc="left") == "After 1 untrained blocks, tokens are 3.0 times as long"


def test_shares_fill_the_bar():
    (ax,) = draw_shares(
        {"B": {"a": 0.25, "b": 0.75}, "H": {"a": 0.01, "b": 0.99}},
        {"a": style.QUERY, "b": style.KEY},
    ).figure.axes
    written = {t.get_text() for t in ax.figure.findobj(plt.Text)}
    assert [round(p.get_x() + p.get_width(), 6) for p in ax.patches] == [0.25, 0.01, 1, 1]
    assert {"25%", "75%", "99%"} <= written and "1%" not in written
