"""The parts of notebooks: headings, what a link calls them, and which have a further page."""

import re
from functools import cache
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from tools.execute import further_pages, lessons

WAITING = set()  # core pages that have a further page and are not rewritten yet
FURTHER = {path.name: path for path in further_pages()}
PAIRS = [(path, FURTHER[path.name]) for path in lessons() if path.name in FURTHER]
REWRITTEN = [core for core, _ in PAIRS if core.stem not in WAITING]


class Section(NamedTuple):
    """A heading of level 2, and the Markdown below it."""

    heading: str
    text: str


@cache
def read(path):
    return nbformat.read(path, as_version=4)


def name_of(path):
    """The name of a core page; further/NAME for a further page, solutions/NAME for solutions"""
    return path.stem if path.parent.name == "notebooks" else f"{path.parent.name}/{path.stem}"


def prose(book: NotebookNode) -> str:
    """The Markdown of a notebook, without blocks of code: a comment there looks like a heading."""
    text = "\n\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(book: NotebookNode) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(book), re.MULTILINE)


def sections(book: NotebookNode) -> list[Section]:
    """The sections with a heading of level 2, but for the sources."""
    _, *parts = re.split(r"^## (.+)\n", prose(book), flags=re.MULTILINE)
    found = [Section(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return [section for section in found if not section.heading.startswith("Sources")]


def anchor(heading: str) -> str:
    """What a link calls a heading, in Jupyter and on GitHub; without formula and parenthesis."""
    if re.search(r"[$()]", heading):
        raise ValueError(f"no link can lead to {heading!r}: say it without formula and parenthesis")
    return re.sub(r"[`*]", "", heading).replace(" ", "-")


def anchors(book: NotebookNode) -> set[str]:
    """What links can lead to in a notebook."""
    return {anchor(heading) for heading in headings(book) if not re.search(r"[$()]", heading)}
