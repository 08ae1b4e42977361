"""The pictures of notebook 12 show what they are given, and their alt text is true of it."""

import pandas as pd
import pytest
import torch

from vit_helpers.plots import since_2020 as plots
from vit_helpers.plots.figure import Picture

GRID = (2, 3)
PHOTO = torch.rand(3, 8, 12)
COUNTS = {"registers": 12, "rotary positions": 0, "LayerScale": 3456, "pooling": 0}
GAINS = pd.DataFrame(
    {"difference": [0.02, -0.3], "low": [0.01, -0.35], "high": [0.03, -0.25], "holm": [0.1, 0.01]},
    index=["4 registers", "LayerScale 1e-5"],
)
PICTURES = {
    "question": lambda: plots.draw_question(PHOTO, torch.randn(6, 4), GRID),
    "parts": lambda: plots.draw_parts(dict.fromkeys("ab", (PHOTO, torch.randn(6, 4))), GRID),
    "changes": plots.draw_changes,
    "counts": lambda: plots.draw_changes(COUNTS | {"all the rest": 7_000_000_000}),
    "scales": lambda: plots.draw_scales(
        {"without": [0.1, 9.0], "with": [1e-5, 2e-5]}, torch.tensor([[0.2, 0.3], [4.0, 6.0]])
    ),
    "registers": lambda: plots.draw_registers(3),
    "turning": lambda: plots.draw_turning(
        torch.tensor([1.0, 0.0]), torch.arange(3.0), torch.eye(3)
    ),
    "maps": lambda: plots.draw_score_maps({(0, 1): torch.rand(2, 3), (1, 2): torch.rand(2, 3)}),
    "pooling": lambda: plots.draw_pooling(
        PHOTO, {"mean": torch.full((30, 45), 1 / 1350), "attention": torch.rand(30, 45)}, (3, 4)
    ),
    "gains": lambda: plots.draw_gains({"digits": GAINS, "clothes": -GAINS}),
    "largest": lambda: plots.draw_largest({"without": [0.1, 0.9], "with": [0.1, 0.2]}, (1, 16)),
}


def texts(picture):
    axes = picture.figure.axes
    return [text.get_text() for ax in axes for text in ax.texts if text.get_text()]


@pytest.mark.parametrize("name", PICTURES)
def test_each_is_a_picture_whose_texts_stay_on_the_canvas(name, recwarn):
    picture = PICTURES[name]()
    assert isinstance(picture, Picture) and 20 < len(picture.alt) <= 300
    assert picture.image.width == (500 if name == "largest" else 900)
    assert [str(w.message) for w in recwarn if w.category is UserWarning] == []


def test_the_places_have_the_numbers_of_their_sections_and_their_weights():
    written = texts(PICTURES["counts"]())
    for number, (name, count) in enumerate(COUNTS.items()):
        order = ["LayerScale", "registers", "rotary positions", "pooling"].index(name) + 1
        assert f"{order}  {name}" in written, number
        assert f"{count:,} weights" in written
    assert "all the rest: 7,000,000,000 weights" in written
    assert not any("weights" in text for text in texts(plots.draw_changes()))


def test_one_photo_one_place_and_one_way_to_pool_can_be_drawn():
    draw = {
        "parts": lambda: plots.draw_parts({"cat": (PHOTO, torch.randn(6, 4))}, GRID),
        "maps": lambda: plots.draw_score_maps({(0, 1): torch.rand(2, 3)}),
        "pooling": lambda: plots.draw_pooling(PHOTO, {"mean": torch.rand(30, 45)}, (3, 4)),
    }
    for name, make in draw.items():
        assert isinstance(make(), Picture), name


def test_similar_tokens_have_similar_colors():
    tokens = torch.tensor([[0.0, 0, 0], [1, 1, 1]]).repeat_interleave(3, dim=0)  # two rows
    colors = plots.as_colors(tokens + 0.01 * torch.randn(6, 3), GRID)
    assert colors.shape == (3, 28, 42)
    top, bottom = colors[:, :14], colors[:, 14:]
    assert top.max() < 0.2 and bottom.min() > 0.8


def test_as_many_registers_are_crossed_out_as_there_are():
    for registers in (1, 4):
        assert texts(plots.draw_registers(registers)).count("×") == registers


def test_arrows_turn_and_all_scores_are_written():
    assert plots.turn([1.0, 0.0], torch.pi / 2) == pytest.approx((0, 1), abs=1e-6)
    scores = torch.tensor([[1.5, -0.2], [0.3, 1.5]])
    written = texts(plots.draw_turning(torch.tensor([1.0, 0.0]), torch.arange(2.0), scores))
    assert {"1.5", "-0.2", "0.3", "0", "1"} <= set(written)
