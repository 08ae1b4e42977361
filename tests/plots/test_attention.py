"""Pictures of attention in notebook 03: framed patches, maps, spreads and heads."""

import pandas as pd
import pytest
import torch
from matplotlib.text import Text

from vit_helpers.plots import attention


def shown_texts(picture):
    return [text.get_text() for text in picture.figure.findobj(Text) if text.get_text()]


PHOTO = torch.rand(3, 420, 630, generator=torch.Generator().manual_seed(0))
PLACES = {"sky": (4, 30), "roof": (11, 12), "tree": (26, 30)}
CORNERS = [(14 * col - 6, 14 * row - 6) for row, col in PLACES.values()]


def heats(axes):
    """The numbers that are drawn as colors in each panel"""
    return [ax.images[-1].get_array() for ax in axes]


def test_the_question_shows_the_framed_patch_alone():
    left, right = attention.draw_question(PHOTO, PLACES["roof"]).figure.axes
    assert left.patches[0].get_xy() == CORNERS[1]
    patch = PHOTO[:, 14 * 11 : 14 * 12, 14 * 12 : 14 * 13].permute(1, 2, 0)
    assert torch.tensor(right.images[0].get_array()).allclose(patch, atol=1e-5)


def test_similar_patches_are_framed_and_the_title_names_the_two_that_are_alike():
    maps = {name: torch.rand(30, 45) for name in PLACES}
    maps["tree"] = 0.5 * maps["roof"]
    picture = attention.draw_similarity(PHOTO, maps, PLACES)
    first, *others, _ = picture.figure.axes
    assert "Raw pixels: roof and tree find the same patches" in shown_texts(picture)
    assert "roof and tree are nearly the same: their correlation is 1.00" in picture.alt
    assert [box.get_xy() for box in first.patches] == CORNERS
    assert [ax.patches[0].get_xy() for ax in others] == CORNERS
    assert all(
        (heat == maps[name].numpy()).all() for heat, name in zip(heats(others), maps, strict=True)
    )


def test_every_block_has_the_map_of_every_place():
    blocks = {name: torch.rand(1350, 30, 45) for name in ("pixels", "after block 6")}
    two = {name: PLACES[name] for name in ("roof", "tree")}
    *panels, _ = attention.draw_blocks(PHOTO, blocks, two).figure.axes
    for line, (row, col) in zip((panels[:3], panels[3:]), two.values(), strict=True):
        assert [ax.patches[0].get_xy() for ax in line] == [(14 * col - 6, 14 * row - 6)] * 3
        drawn = heats(line[1:])
        wanted = [cosines[45 * row + col].numpy() for cosines in blocks.values()]
        assert all((heat == right).all() for heat, right in zip(drawn, wanted, strict=True))


def test_the_chosen_patch_is_framed_in_every_panel():
    similarity, weights = torch.rand(30, 45), torch.rand(30, 45)
    picture = attention.draw_patch(PHOTO, similarity, weights, PLACES["tree"])
    panels = picture.figure.axes[:3]
    assert [ax.patches[0].get_xy() for ax in panels] == [CORNERS[2]] * 3
    assert (heats(panels)[1] == similarity.numpy()).all()
    assert (heats(panels)[2] == weights.numpy()).all()


def test_the_spread_is_that_of_the_scores_with_and_without_the_division():
    scores_of = {d: d**0.5 * torch.randn(50, 17) for d in (4, 16, 64)}
    left, right = attention.draw_spread(scores_of).figure.axes
    raw, divided = (line.get_ydata() for line in left.lines)
    assert raw == pytest.approx([scores.std().item() for scores in scores_of.values()])
    assert divided == pytest.approx(
        [scores.std().item() / d**0.5 for d, scores in scores_of.items()]
    )
    largest = [scores.softmax(dim=-1).amax(dim=-1).mean().item() for scores in scores_of.values()]
    assert right.lines[0].get_ydata() == pytest.approx(largest)


def test_saturation_is_drawn_at_every_width():
    index = pd.MultiIndex.from_product([["with", "without"], [16, 64, 256]])
    columns = ["standard deviation", "largest weight", "mean", "median"]
    table = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)).double() + 0.1
    scaling = pd.DataFrame(table.numpy(), index, columns)
    picture = attention.draw_saturation(scaling)
    for ax, key in zip(picture.figure.axes, columns, strict=False):
        drawn = {line.get_label(): line.get_ydata().tolist() for line in ax.get_lines()}
        for name in ("with", "without"):
            assert drawn[f"{name} 1/√d, mean"] == scaling.loc[name][key].tolist()
    assert drawn["without, median"] == scaling.loc["without"]["median"].tolist()
    first, last = (scaling.loc["without", d]["largest weight"] for d in (16, 256))
    assert f"largest weight from {first:.2g} to {last:.2g}" in picture.alt


def test_a_cross_stands_for_a_hidden_key():
    panels = {"none": torch.full((2, 2), 0.5), "causal": torch.tensor([[1.0, 0], [0.25, 0.75]])}
    picture = attention.draw_masked_weights(panels)
    cells = [[text.get_text() for text in ax.texts] for ax in picture.figure.axes]
    assert cells == [["0.50"] * 4, ["1.00", "×", "0.25", "0.75"]]
    assert "0 for “none”, 1 for “causal”" in picture.alt


def test_every_head_has_its_squares_and_the_query_its_frame():
    weights = torch.full((2, 3, 16), 0.1)
    weights[1, 2, 7] = 0.35
    images = torch.rand(2, 1, 8, 8)
    picture = attention.draw_head_weights(images, weights, "30", query=6)
    axes = picture.figure.axes
    titles = ["query patch 6", "head 1", "head 2", "head 3"]
    assert [ax.get_title(loc="left") for ax in axes] == titles + [""] * 4
    assert [ax.texts[0].get_text() for ax in (axes[0], axes[4])] == ["a 3", "a 0"]
    assert all(ax.patches[-1].get_bbox().bounds == (3.5, 1.5, 2, 2) for ax in axes)
    *squares, _ = axes[7].patches
    assert len(squares) == 16 and squares[7].get_width() == pytest.approx(2)  # fills its patch
    assert "on the 0 at patches 0, 0, 7." in picture.alt


def test_times_are_drawn_beside_the_square_of_the_length():
    lengths, times = [64, 128, 256, 512, 1024, 2048], [0.1, 0.2, 0.5, 1.0, 4.0, 20.0]
    picture = attention.draw_times(lengths, times)
    (ax,) = picture.figure.axes
    measured, square = (line.get_ydata() for line in ax.get_lines())
    assert measured.tolist() == times and square[3] == 1 and square[-1] == 16
    assert ax.get_title(loc="left") == "8 times the tokens take 40 times as long"
    assert picture.alt == picture.text  # the same on every machine


def test_the_influence_of_images_is_counted():
    changes = {"ours": torch.eye(4), "other": torch.ones(4, 4)}
    picture = attention.draw_influence(changes)
    assert "ours changes 0 outputs of other images, other changes 12" in picture.alt
    for ax, changed in zip(picture.figure.axes, changes.values(), strict=True):
        assert ax.collections[0].get_array().flatten().tolist() == changed.flatten().tolist()


def test_rows_of_a_head_say_their_tokens():
    right, wrong = (
        torch.arange(4).repeat(3, 1).T,
        torch.tensor([[0] * 3, [0] * 3, [1] * 3, [1] * 3]),
    )
    picture = attention.draw_head_rows(right, wrong)
    left, other = picture.figure.axes
    assert [text.get_text() for text in left.texts] == [str(t) for t in right.flatten().tolist()]
    assert other.get_title(loc="left") == "wrong: only tokens 0 and 1"
    assert picture.alt.endswith("tokens 0, 1, 2, 3. Right, after a single view: tokens 0, 0, 1, 1.")
