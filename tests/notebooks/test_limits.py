"""Rewritten core pages and further pages keep to their limits; planted pages over each fail."""

import copy
import re

import limits
import pytest
from folding import folded
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pages import FURTHER, PAIRS, REWRITTEN, WAITING, name_of, read

pytestmark = pytest.mark.repo


@folded("path", REWRITTEN, ids=name_of)
def test_a_core_page_keeps_to_its_limits(path):
    assert [*limits.core_faults(read(path), path.stem[:2])] == []


@folded("path", FURTHER.values(), ids=name_of)
def test_a_further_page_keeps_to_its_limit(path):
    assert [*limits.further_faults(read(path))] == []


def test_pages_that_wait_are_pages_that_have_a_further_page():
    assert {core.stem for core, _ in PAIRS} >= WAITING


# A planted page


def picture():
    return new_output("display_data", {"image/png": "", "text/plain": "Figure"})


def good_page():
    """A page that is as long as it may be in every respect"""
    setup = new_code_cell("# @title Setup\n" + "import a\n" * 5, metadata={"tags": ["setup"]})
    return new_notebook(
        cells=[
            new_markdown_cell("# A page\n\nHow?"),
            setup,
            new_code_cell(
                "from plots import draw_question\n\ndraw_question()", outputs=[picture()]
            ),
            new_markdown_cell("word " * 246),
            new_code_cell("x = 1\n" * 6 + "draw_x(x)", outputs=[picture()]),
            new_markdown_cell("> *Figure: " + "caption " * 500 + "*\n\n" + "word " * 2750),
            new_code_cell("import a\n" * 20),
            new_code_cell("y = 1\n\n" * 6),
            new_code_cell("y = 1\n" * 6),
            new_code_cell("y = 1\n" * 8 + "fig = y\n" * 4),  # and the setup cell says @title
        ]
    )


def test_a_page_at_its_limits_passes():
    assert [*limits.core_faults(good_page(), "03")] == []
    assert sum(map(limits.count_words, limits.sources(good_page().cells, "markdown"))) == 3000


def add_words(book):
    book.cells[5].source += " word"


def add_line(book):
    book.cells[-1].source += "y = 1\n"


def add_imports(book):
    book.cells.insert(7, new_code_cell("import a\n" * 20))


def lengthen_cells(book):
    for cell in book.cells[-3:]:
        cell.source = "y = 1\n" * 7


def add_prop(book):
    book.cells[-2].source = 'y = 1\nx.set_title("x")\nax.plot()\n' * 2


def begin_with_code(book):
    book.cells[2].source = "x = 1\ndraw_question(x)"


def begin_without_picture(book):
    book.cells[2].outputs = []


def take_second_picture(book):
    book.cells[4].outputs = []


def add_words_before_second(book):
    book.cells[0].source += " Why?"
    book.cells[5].source = "word"


def add_line_before_second(book):
    book.cells[4].source = "x = 1\n" * 7 + "draw_x(x)"


FAULTS = [
    (add_words, "3001 words, at most 3000"),
    (add_line, "a cell of 13 lines, at most 12: y = 1"),
    (add_imports, "a cell of 20 lines, at most 12: import a"),
    (lengthen_cells, "cells of 7 lines (median), at most 6"),
    (add_prop, "9 of 59 lines draw, format or build tables, at most 10%"),
    (begin_with_code, "code before the first picture: x = 1"),
    (begin_without_picture, "code before the first picture: from plots import draw_question"),
    (take_second_picture, "1 pictures, at least 2"),
    (add_words_before_second, "251 words before the second picture, at most 250"),
    (add_line_before_second, "16 lines before the second picture, at most 15"),
]


@pytest.mark.parametrize(
    ("plant", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_page_over_a_limit_is_named(plant, message):
    book = copy.deepcopy(good_page())
    plant(book)
    assert message in [*limits.core_faults(book, "03")]


@pytest.mark.parametrize(
    ("number", "limit"), [("00", 2500), ("01", 3000), ("07", 3400), ("08", 3000), ("13", 3400)]
)
def test_a_page_may_have_as_many_words_as_its_number_allows(number, limit):
    book = good_page()
    book.cells[5].source = "word " * (limit - 250)
    assert [*limits.core_faults(book, number)] == []
    book.cells[5].source += "word"
    assert [*limits.core_faults(book, number)] == [f"{limit + 1} words, at most {limit}"]


def test_a_further_page_may_have_5000_words():
    book = new_notebook(cells=[new_markdown_cell("word " * 5000)])
    assert [*limits.further_faults(book)] == []
    book.cells[0].source += "word"
    assert [*limits.further_faults(book)] == ["5001 words, at most 5000"]


def test_a_picture_in_the_text_opens_a_page_and_a_badge_does_not():
    book = good_page()
    book.cells[2].outputs = []
    book.cells[0].source += "\n\n![A badge](https://badge.svg)"
    assert any(fault.startswith("code before") for fault in limits.core_faults(book, "03"))
    book.cells[0].source = re.sub(r"\(.*\)", "(images/a.gif)", book.cells[0].source)
    assert [*limits.core_faults(book, "03")] == []
