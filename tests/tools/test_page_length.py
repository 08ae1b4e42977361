"""Minutes of a page: its words, its lines and its exercises."""

import pytest
from pages import FURTHER, REWRITTEN, read

from tools.page_length import exercise_minutes, format_minutes, reading_minutes

pytestmark = pytest.mark.repo


@pytest.mark.parametrize("path", [*REWRITTEN, *FURTHER.values()], ids=lambda path: str(path)[-30:])
def test_the_card_gives_the_minutes_that_its_words_and_lines_take(path):
    book = read(path)
    text = format_minutes(reading_minutes(book), exercise_minutes(book))
    assert any(f"| your time | {text} |" in cell.source for cell in book.cells)
