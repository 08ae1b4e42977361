"""Build the series as a web site: live page, notebooks, folded solutions, the code, and a search.

In the table of contents, a further page stands under its core page. Where a notebook has stored the
picture of a widget, the site shows the widget itself, without a kernel. Neither building nor
reading needs a network: open index.html in the folder, or put the folder on any web server. Any
warning of Sphinx stops the build and leaves the folder as it was. Buttons for Colab appear once
`python -m tools.publish` was run.
"""

import argparse
import base64
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterable
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from nbformat.v4 import new_markdown_cell, new_output

from tools import main
from tools.execute import (
    README,
    ROOT,
    STATIC,
    all_notebooks,
    further_pages,
    home,
    is_further,
    is_setup,
    lessons,
    solutions,
)

MARK = Path("_static", "vit_helpers.css")  # by this file a folder is known to be a book
# for the slides too
NEEDED = (
    "myst_nb",
    "sphinx_book_theme",
    "sphinx-mathjax-offline",
    "sphinx_revealjs",
)
SETTINGS = tomllib.loads((STATIC / "sphinx.toml").read_text(encoding="utf-8"))
LIVE = ROOT / "vit_helpers" / "live" / "page.html"  # the first page of the site
PACKAGE = ROOT / "vit_helpers" / "__init__.py"
# pages of the book alone
SOLUTIONS, TESTS = (
    ROOT / "notebooks" / "solutions" / "index.md",
    ROOT / "tests" / "index.md",
)
READMES = [
    ROOT / folder / "README.md"
    for folder in ("vit_helpers", "vit_helpers/microvit", "vit_helpers/results", "tools")
]
BESIDE = (ROOT / "notebooks" / "paper_index.md", ROOT / "TEACHING.md", *READMES)

LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")
# the theme has its own navigation; images from other hosts (badges) need a network
LEFT_OUT = re.compile(r"^.*(\[Contents\]\(\S*README\.md\)|!\[[^]]*\]\(https?:).*\n*", re.MULTILINE)
PART = re.compile(r"^Explorer\(\"(\w+)\"", re.MULTILINE)  # a widget of this name
EXERCISE = re.compile(r"^done = (check_\w+)\(", re.MULTILINE)
SOLVED = re.compile(r"^assert (check_\w+)\(", re.MULTILINE)
SOLUTION = "``````{admonition} A solution\n:class: tip\n:collapsible: closed\n\n%s\n``````"
FOLDED = {
    "tags": ["hide-input"],
    "mystnb": {"code_prompt_show": "Setup", "code_prompt_hide": "Setup"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("build/book"), help="default: build/book"
    )


def run(args: argparse.Namespace) -> None:
    put_into(args.folder, MARK, make_book)


def put_into(folder: Path, mark: Path, make: Callable[[Path, Path], None]) -> None:
    """Fill a folder with the site that `make(pages, site)` makes.

    mark: the file by which a folder is known to hold such a site already; any other folder that is
          not empty is left alone
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(
            f"this needs {', '.join(missing)}, not found here: pip install -e '.[book]'"
        )
    if (
        folder.exists()
        and not (folder / mark).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise ValueError(f"{folder} holds something else: empty it, or name another folder")
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch, "site")
        make(Path(scratch, "pages"), site)
        shutil.copytree(site, folder, dirs_exist_ok=True)
    print(f"written: {folder / 'index.html'}")


def make_book(pages: Path, site: Path) -> None:
    """Write the site; links to files that are not pages lead to the published repository."""
    from vit_helpers.live.page import live_page

    address, answers = home(), solutions()
    beside = [path for path in BESIDE if path.is_file()]
    lesson_pages = sorted([*lessons(), *further_pages()], key=place_in_contents)
    prose = [README, *beside, *lesson_pages, *answers]
    code = code_files(prose)
    tidy = partial(tidied, pages={*prose, *code, LIVE}, address=address)

    texts = {path: tidy(path.read_text(encoding="utf-8"), path) for path in (README, *beside)}
    texts |= {path: notebook_page(path, tidy) for path in (*lesson_pages, *answers)}
    texts |= {path: code_page(path, code) for path in code}
    texts[SOLUTIONS] = "# Solutions" + contents(answers)
    texts[TESTS] = "# Tests" + contents(path for path in code if path.is_relative_to(TESTS.parent))
    texts[LIVE] = (STATIC / "live.md").read_text(encoding="utf-8")
    beside = [LIVE, SOLUTIONS, *beside, PACKAGE, TESTS]
    texts[README] += contents(lesson_pages, "The notebooks") + contents(beside, "Beside them")
    theme = SETTINGS["theme"] | (
        SETTINGS["buttons"] | {"repository_url": address} if address else {}
    )
    settings = SETTINGS["book"] | {"html_theme_options": theme}
    make_site(texts, pages, site, "html", settings, "vit_helpers.css", "favicon.svg")
    page = re.sub(
        r'<a data-notebook="(\w+)"', r'\g<0> href="notebooks/\1.html"', live_page(address="")
    )
    page = page.replace("<a data-series", f'<a data-series href="{page_name(README)}.html"')
    (site / "index.html").write_text(page, encoding="utf-8")


def make_site(
    texts: dict[Path, str],
    pages: Path,
    site: Path,
    builder: str,
    settings: dict[str, Any],
    *static: str,
) -> None:
    """Make a site of {path of a file: text of its page} and static files.

    pages : a folder for what Sphinx reads, like that of the repository
    raises: ValueError where Sphinx warns
    """
    from sphinx.application import Sphinx

    for path, text in texts.items():
        page = pages / page_file(path)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "images", pages / "images")
    (pages / "_static").mkdir()
    for name in static:
        shutil.copy(STATIC / name, pages / "_static")
    settings, doctrees = SETTINGS["all"] | settings, pages.with_name("doctrees")
    app = Sphinx(pages, None, site, doctrees, builder, settings, status=None, warningiserror=True)
    app.connect("doctree-read", partial(finish_page, alt=alt_texts()))
    app.build()
    if app.statuscode:
        raise ValueError("nothing was written: see the warnings above")


def page_name(path: Path) -> str:
    """What Sphinx calls the page of a file

    >>> page_name(LIVE), page_name(README), page_name(ROOT / "vit_helpers" / "attention.py")
    ('index', 'readme', 'vit_helpers/attention')
    """
    return {LIVE: "index", README: "readme"}.get(path) or path.relative_to(ROOT).with_suffix(
        ""
    ).as_posix()


def page_file(path: Path) -> str:
    """What Sphinx reads for the page of a file"""
    return page_name(path) + (".ipynb" if path.suffix == ".ipynb" else ".md")


def place_in_contents(path: Path) -> tuple[str, bool]:
    """By what the pages of notebooks are sorted: a further page comes after its core page."""
    return path.name, is_further(path)


def contents(paths: Iterable[Path], caption: str | None = None) -> str:
    """A list of pages, its caption only in the sidebar; README gives the notebooks' names."""
    named = {
        target(link, README): words
        for words, link in LINK.findall(markdown(README))
        if words[:2].isdigit()
    }
    named |= {
        path: f"{path.name[:2]} further: {named[core].partition(' ')[2]}"
        for path in further_pages()
        if (core := path.parents[1] / path.name) in named
    }
    options = f":caption: {caption}\n:hidden:" if caption else ":maxdepth: 1"
    lines = (
        f"{named[path]} </{page_name(path)}>" if path in named else f"/{page_name(path)}"
        for path in paths
    )
    return f"\n\n```{{toctree}}\n{options}\n\n" + "\n".join(lines) + "\n```\n"


def target(link: str, path: Path) -> Path | None:
    """The file that a link in a file leads to, of a folder its __init__.py; None outside ROOT."""
    if link.endswith("#the-live-page"):  # a section of a README for readers who don't have the page
        return LIVE
    found = Path(os.path.normpath(path.parent / link.partition("#")[0]))
    if (
        "://" in link
        or link.startswith("#")
        or not found.is_relative_to(ROOT)
        or not found.exists()
    ):
        return None
    return found / "__init__.py" if (found / "__init__.py").is_file() else found


def tidied(text: str, path: Path, pages: Collection[Path], address: str) -> str:
    """Markdown for a file's page: links lead to pages, else to the repository, else nowhere."""

    def relinked(match: re.Match[str]) -> str:
        words, link = match.groups()
        if (found := target(link, path)) is None:
            return match.group()
        if found in pages:
            return f"[{words}](/{page_file(found)}{anchor_of(link, found)})"
        return (
            f"[{words}]({address}/blob/main/{found.relative_to(ROOT).as_posix()})"
            if address
            else words
        )

    return LINK.sub(relinked, LEFT_OUT.sub("", text))


def anchor_of(link: str, page: Path) -> str:
    """The anchor of a link to a page, as Sphinx calls it: of a line of code, or of a heading.

    >>> anchor_of("03_attention.ipynb#2.-Masks:-why?", ROOT / "notebooks" / "03_attention.ipynb")
    '#2-masks-why'
    """
    anchor = link.partition("#")[2]
    if not anchor or page == LIVE:
        return ""
    if page.suffix == ".ipynb":  # Jupyter and GitHub keep all of a heading but its spaces
        return "#" + re.sub(r"[^\w-]", "", unquote(anchor).lower())
    return "#" + re.sub("-L.*", "", anchor)


def code_files(prose: Iterable[Path]) -> list[Path]:
    """The modules that notebooks teach or the prose links to, and the __init__.py above them."""
    taught = [
        path
        for path in PACKAGE.parent.rglob("*.py")
        if not {"checks", "cli", "__main__.py"} & {*path.parts}
    ]
    linked = [target(link, path) for path in prose for _, link in LINK.findall(markdown(path))]
    found = {*taught, *(path for path in linked if path and path.suffix == ".py")}
    return sorted(
        found
        | {
            path.with_name("__init__.py")
            for path in found
            if path.with_name("__init__.py").is_file()
        }
    )


def markdown(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    )


def code_page(path: Path, code: list[Path]) -> str:
    """The source of a file and of the table of its name; __init__.py lists the others."""
    is_folder = path.name == "__init__.py"
    page = f"# {path.parent.name if is_folder else path.name}\n"
    for file in filter(Path.is_file, (path, path.with_suffix(".toml"))):
        page += f"\n``````{file.suffix[1:]}\n{file.read_text(encoding='utf-8')}\n``````\n"
    below = [
        o
        for o in code
        if o.parent == path.parent or (o.parent.parent == path.parent and o.name == "__init__.py")
    ]
    return page + contents(other for other in below if other != path) if is_folder else page


def notebook_page(path: Path, tidy: Callable[[str, Path], str]) -> str:
    """A notebook with setup and solutions folded, and widgets instead of their pictures."""
    from vit_helpers.live import Explorer

    book, answers, cells = nbformat.read(path, as_version=4), solutions_of(path, tidy), []
    for cell in book.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = tidy(cell.source, path)
        elif is_setup(cell):
            cell.metadata = FOLDED
        for part in PART.findall(cell.source):
            cell.outputs = [new_output("display_data", {"text/html": Explorer(part).html()})]
        for name in EXERCISE.findall(cell.source):
            if name in answers:  # the answer to the exercise of notebook 00 is in its own text
                cells.append(new_markdown_cell(SOLUTION % answers[name], id=name.replace("_", "-")))
    book.cells = cells
    return nbformat.writes(book)


def solutions_of(path: Path, tidy: Callable[[str, Path], str]) -> dict[str, str]:
    """How to solve each exercise, {name of its check: Markdown}, from a notebook's solutions."""
    path = ROOT / "notebooks" / "solutions" / path.name
    if not path.is_file():
        return {}
    cells = nbformat.read(path, as_version=4).cells
    shown = (
        tidy(c.source, path) if c.cell_type == "markdown" else f"```python\n{c.source}\n```"
        for c in cells
    )
    sections = re.split(r"^## .*\n", "\n\n".join(shown), flags=re.MULTILINE)
    return {name: section.strip() for section in sections for name in SOLVED.findall(section)}


def alt_texts() -> dict[str, str]:
    """{sha256 of a stored image: its alt text}: MyST-NB names images so, and drops the text."""
    outputs = [
        o
        for path in all_notebooks()
        for c in nbformat.read(path, as_version=4).cells
        for o in c.get("outputs", [])
    ]
    images = [
        (o.data[kind], about) for o in outputs for kind, about in o.get("metadata", {}).items()
    ]
    return {
        sha256(base64.b64decode(data)).hexdigest(): about["alt"]
        for data, about in images
        if "alt" in about
    }


def finish_page(app: Any, doctree: Any, alt: dict[str, str]) -> None:
    """Give images their alt text, and lines of code an anchor (#L12, as on GitHub)."""
    from docutils import nodes

    for image in doctree.findall(nodes.image):
        image["alt"] = image.get("alt") or alt.get(Path(image["uri"]).stem, "")
    slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for block in doctree.findall(nodes.literal_block):
        block.setdefault("linenos", False)
        if app.env.docname.startswith(("vit_helpers/", "tests/")) and block["language"] == "py":
            block["highlight_args"] = {"linespans": "L"}
            slugs |= {
                f"L{number}": (number, f"L-{number}", "")
                for number in range(1, block.rawsource.count("\n") + 2)
            }


if __name__ == "__main__":
    raise SystemExit(main())
