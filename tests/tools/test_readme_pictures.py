"""The small pictures of the README: they show the numbers that they are given."""

import pytest
import torch
from figures import fits

from tools.readme_pictures import HEIGHT, WIDTH, draw_classified, draw_drawn_digit, draw_found

pytestmark = pytest.mark.dev
GENERATOR = torch.Generator().manual_seed(0)
PHOTO = torch.rand(3, 28, 42, generator=GENERATOR)


PICTURES = {
    "digit": lambda: draw_drawn_digit(torch.rand(40, 40), torch.rand(8, 8), torch.full((10,), 0.1)),
    "found": lambda: draw_found(PHOTO, torch.rand(2, 3), (1, 2)),
    "classified": lambda: draw_classified(PHOTO, PHOTO[:, :8, :8], 4, [("a", 0.75), ("b", 0.25)]),
}


@pytest.mark.parametrize("name", PICTURES)
def test_each_is_a_third_of_a_page_and_nothing_leaves_it(name):
    picture = PICTURES[name]()
    assert picture.figure.get_size_inches().tolist() == [WIDTH, HEIGHT]
    assert fits(picture)


def test_bars_are_the_probabilities():
    ax = PICTURES["classified"]().figure.axes[-1]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert [bar.get_width() for bar in ax.patches] == [0.75, 0.25]
