"""Make slides of the core pages for a projector, a deck each, from stored outputs; offline.

A heading starts a slide, and so does every cell and every image, which stands under the heading of
its section. Long prose is divided. Setup, solutions, captions and cells that only draw are left
out. Space and the arrow keys go on, S opens the speaker's view, F fills the screen, O shows all
slides.
"""

import argparse
import ast
import copy
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from tools import main
from tools.book import LIVE, SETTINGS, contents, make_site, put_into, tidied
from tools.execute import home, is_setup, lessons

MARK = Path("_static", "slides.css")  # by this file a folder is known to hold slides
BREAK = "```{revealjs-break}\n:notitle:\n```\n\n"
BREAK_WITH_HEADING = "```{revealjs-break}\n```\n\n"
FULL = 110  # words: more do not fit on a slide
CAPTION = "> *Figure:"  # it would stand on the slide after its figure
BLOCK = re.compile(r"(?:^(```+).*?^\1|.+?)(?:\n{2,}|\Z)", re.DOTALL | re.MULTILINE)  # or paragraph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("build/slides"), help="a folder (default: build/slides)"
    )


def run(args: argparse.Namespace) -> None:
    put_into(args.out, MARK, make_decks)


def make_decks(pages: Path, site: Path) -> None:
    """Write a deck for each notebook, and a first page that lists them."""
    decks = {path: deck(path) for path in lessons()}
    make_site(
        {LIVE: "# Slides" + contents(decks)} | decks,
        pages,
        site,
        "revealjs",
        SETTINGS["slides"],
        MARK.name,
    )


def deck(path: Path) -> str:
    """A notebook without its setup, cut into slides: of a cell that draws two, code and image."""
    book, cells = nbformat.read(path, as_version=4), []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            text = tidied(cell.source, path, pages=(), address=home())
            for number, part in enumerate(split_prose(text)):
                source = part if part.startswith("#") else BREAK + part
                cells.append(new_markdown_cell(source, id=f"{cell.id}-{number}"))
        elif not is_setup(cell):
            cells += code_slides(cell)
    book.cells = cells
    return nbformat.writes(book)


def split_prose(text: str) -> Iterator[str]:
    """Parts of a text that fit on slides: whole paragraphs, lists, tables, headings with text."""
    part = ""
    for block in (match[0] for match in BLOCK.finditer(text.strip())):
        if block.startswith(CAPTION):
            continue
        is_heading = block.startswith("#")
        only_heading = part.startswith("#") and "\n" not in part.strip()
        too_long = len((part + block).split()) > FULL and not only_heading
        if part and (is_heading or too_long):
            yield part.strip()
            part = ""
        part += block
    if part.strip():
        yield part.strip()


def code_slides(cell: NotebookNode) -> Iterator[NotebookNode]:
    """The slides of a code cell: its code, unless it only draws, and its image with a heading."""
    has_image = any(
        kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {})
    )
    shown = copy.deepcopy(cell)
    shown.id, shown.metadata = f"{cell.id}-shown", {"tags": ["remove-input"]}
    if has_image:
        cell.outputs = []
    if not (has_image and only_draws(cell.source)):
        yield new_markdown_cell(BREAK, id=f"before-{cell.id}")
        yield cell
    if has_image:
        yield new_markdown_cell(BREAK_WITH_HEADING, id=f"before-{shown.id}")
        yield shown


def only_draws(source: str) -> bool:
    r"""Whether code is one call of a function called draw_..., with nothing but imports before it

    >>> only_draws("from vit_helpers import plots\n\nplots.draw_scores(q, k)")
    True
    >>> only_draws("scores = q @ k.T\nplots.draw_scores(q, k)")
    False
    """
    *before, last = ast.parse(source).body or [ast.Pass()]
    if not all(isinstance(node, ast.Import | ast.ImportFrom) for node in before):
        return False
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        return False
    name = last.value.func
    called = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return called.startswith("draw_")


if __name__ == "__main__":
    raise SystemExit(main())
