"""Make slides of the notebooks, a deck each, from the stored outputs; offline, like the book.

A heading starts a slide, and so does every cell and every image; setup and solutions are left out.
What is longer than the screen scrolls. Space and the arrow keys go on, S opens the speaker's view,
F fills the screen, O shows all slides.
"""

import argparse
import copy
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell

from tools import main
from tools.book import LIVE, SETTINGS, contents, make_site, put_into, tidied
from tools.execute import home, is_setup, lessons

MARK = Path("_static", "slides.css")  # by this file a folder is known to hold slides
BREAK = "```{revealjs-break}\n:notitle:\n```\n\n"


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
            cell.source = text if text.startswith("#") else BREAK + text
            cells += [cell] if text.strip() else []
        elif not is_setup(cell):
            parts = [cell]
            if any(
                kind.startswith("image/")
                for output in cell.outputs
                for kind in output.get("data", {})
            ):
                parts.append(copy.deepcopy(cell))
                parts[1].id, parts[1].metadata, cell.outputs = (
                    f"{cell.id}-shown",
                    {"tags": ["remove-input"]},
                    [],
                )
            for part in parts:
                cells += [new_markdown_cell(BREAK, id=f"before-{part.id}"), part]
    book.cells = cells
    return nbformat.writes(book)


if __name__ == "__main__":
    raise SystemExit(main())
