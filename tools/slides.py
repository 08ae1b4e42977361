"""Make slides of notebooks for a projector, a deck each, from the stored outputs; offline, like the book.

A heading starts a slide, and so do every cell and every picture; setup and solutions are left out. What is longer than the
screen scrolls. Space and the arrows go on, S opens the speaker's view, F fills the screen, O shows all slides.
"""

import copy
import sys
from functools import partial
from pathlib import Path

from tools import main
from tools.book import NEEDED, NOTEBOOKS, put_into, run_sphinx
from tools.book_pages import README, alt_texts, contents, finish_page, lay_out, lessons, tidied
from tools.execute import all_notebooks, home, is_setup

MARK = Path("_static", "slides.css")
BREAK = "```{revealjs-break}\n:notitle:\n```\n\n"
PICTURES_FIRST = ("image/png", "image/jpeg", "text/markdown", "text/plain")
SETTINGS = NOTEBOOKS | {
    "extensions": ["myst_nb", "sphinx_revealjs", "sphinx-mathjax-offline"],
    "nb_mime_priority_overrides": [("revealjs", kind, place) for place, kind in enumerate(PICTURES_FIRST)],
    "nb_render_text_lexer": "text",  # else reveal.js takes what was printed for code, and colours it
    "revealjs_style_theme": "white",
    "revealjs_static_path": ["_static"],
    "revealjs_css_files": ["revealjs/plugin/highlight/zenburn.css", MARK.name],
    "revealjs_script_conf": {
        "width": 1280,
        "height": 720,
        "margin": 0.04,
        "center": False,
        "hash": True,
        "transition": "none",
    },
    "revealjs_script_plugins": [
        {"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"},
        {"name": "RevealHighlight", "src": "revealjs/plugin/highlight/highlight.js"},
    ],
}
STYLE = """\
.reveal { font-size: 32px; }
.reveal .slides { text-align: left; }
.reveal .slides section { height: 100%; overflow-y: auto; }
.reveal h1, .reveal h2, .reveal h3 { font-size: 1.4em; text-transform: none; }
.reveal table { font-size: 0.85em; margin-left: 0; }
.reveal pre { width: 100%; margin: 0.3em 0; font-size: 0.6em; box-shadow: none; }
.reveal pre code { max-height: none; }
.reveal .cell_output pre code { background: #eee; color: #222; }
.reveal .cell_output img { width: 100%; height: 590px; margin: 0; object-fit: contain; }
.reveal mjx-container { font-size: 100% !important; }  /* MathJax makes it larger than the words: long equations were cut */
.reveal .hljs-comment { color: #a5c9a5; }  /* the theme's own green is too dark to read from afar */
"""


def add_arguments(parser):
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of them, without the solutions")
    parser.add_argument("--out", type=Path, default=Path("build/slides"), help="a folder (default: build/slides)")


def run(args):
    needed = (*NEEDED, "sphinx_revealjs")
    return put_into(args.out, MARK, needed, partial(make_decks, notebooks=args.notebooks))


def make_decks(pages, site, notebooks):
    """Write a deck for each notebook, and a first page that lists them; ValueError for a file that is none of ours"""
    ours = {path.resolve(): path for path in all_notebooks()}
    if unknown := [str(path) for path in notebooks if path.resolve() not in ours]:
        raise ValueError(f"no notebook of the series at {', '.join(unknown)}")
    decks = {path: deck(path) for path in [ours[path.resolve()] for path in notebooks] or lessons()}
    lay_out(pages, {README: "# Slides" + contents(decks)} | decks, {MARK.name: STYLE})
    run_sphinx(pages, site, "revealjs", SETTINGS, partial(finish_deck, alt=alt_texts()))


def deck(path):
    """A notebook without its setup, cut into slides"""
    import nbformat
    from nbformat.v4 import new_markdown_cell

    book, cells = nbformat.read(path, as_version=4), []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            text = tidied(cell.source, path, pages=(), address=home())
            cell.source = text if text.startswith("#") else BREAK + text
            cells += [cell] if text.strip() else []
        elif not is_setup(cell):
            for part in code_and_picture(cell):
                cells += [new_markdown_cell(BREAK, id=f"before-{part.id}"), part]
    book.cells = cells
    return nbformat.writes(book)


def code_and_picture(cell):
    """A cell that draws as two, the code and what it shows; any other as it is"""
    if not any(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {})):
        return [cell]
    shown = copy.deepcopy(cell)
    shown.id, shown.metadata, cell.outputs = f"{cell.id}-shown", {"tags": ["remove-input"]}, []
    return [cell, shown]


def finish_deck(app, doctree, alt):
    """Pictures get their words; blocks of code what sphinx-revealjs asks of each"""
    from docutils import nodes

    finish_page(app, doctree, alt)
    for block in doctree.findall(nodes.literal_block):
        block.setdefault("linenos", False)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
