"""How long a page is, and how many minutes it takes: for `execute --cards`, and for the tests."""

import re
from collections.abc import Iterable

from nbformat import NotebookNode

WORDS, LINES = 160, 15  # that one reads in a minute
CAPTION = re.compile(r"^> ?\*(?:Figure|Animation).*(?:\n>.*)*", re.MULTILINE)
NO_WORDS = re.compile(r"!\[[^]]*\]\([^)]*\)|<[^>]+>")  # pictures and HTML


def count_words(prose: str) -> int:
    r"""Count the words of Markdown, without captions and pictures.

    >>> count_words("Here is a figure.\n\n> *Figure: a digit.*\n\n![A digit](digit.png)")
    4
    """
    return len(NO_WORDS.sub("", CAPTION.sub("", prose)).split())


def count_lines(code: str) -> int:
    """Count the lines of code that are not blank."""
    return sum(bool(line.strip()) for line in code.splitlines())


def sources(cells: Iterable[NotebookNode], kind: str) -> list[str]:
    """The texts of the cells of a kind: "code" or "markdown"."""
    return [cell.source for cell in cells if cell.cell_type == kind]


def reading_minutes(book: NotebookNode) -> int:
    """Estimate the minutes for a page's words and code, without its exercises."""
    words = sum(map(count_words, sources(book.cells, "markdown")))
    lines = sum(map(count_lines, sources(book.cells, "code")))
    return round(words / WORDS + lines / LINES)


def exercise_minutes(book: NotebookNode) -> list[int]:
    """The minutes of each exercise of a page, from the metadata of the cells for its answers."""
    about = [cell.metadata.get("exercise") for cell in book.cells]
    return [exercise["minutes"] for exercise in about if exercise]


def format_minutes(reading: int, exercises: list[int]) -> str:
    """What a card says of the reader's time

    >>> format_minutes(21, [8, 15])
    'about 21 minutes to read and 23 for the exercises'
    >>> format_minutes(1, []), format_minutes(9, [8])
    ('about 1 minute to read', 'about 9 minutes to read and 8 for the exercise')
    """
    text = f"about {reading} minute{'s' * (reading != 1)} to read"
    if not exercises:
        return text
    return f"{text} and {sum(exercises)} for the exercise{'s' * (len(exercises) > 1)}"
