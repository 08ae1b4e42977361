"""Minutes of a page: its words, its lines and its exercises."""

import pytest
from folding import folded
from pages import FURTHER, REWRITTEN, name_of, read

from tools.page_length import exercise_minutes, format_minutes, reading_minutes

pytestmark = pytest.mark.repo


@folded("path", [*REWRITTEN, *FURTHER.values()], ids=name_of)
def test_the_card_gives_the_minutes_that_its_words_and_lines_take(path):
    book = read(path)
    text = format_minutes(reading_minutes(book), exercise_minutes(book))
    assert any(f"| your time | {text} |" in cell.source for cell in book.cells)
