"""Build the series as a web site: the notebooks with their stored outputs, folded solutions, the code, and a search.

It takes half a minute and no network, neither to build nor to read: open index.html in the folder, or put the folder on any
web server. Any warning of Sphinx stops the build and leaves the folder as it was. Buttons that open a notebook on Colab
appear once the repository is published (`python -m tools.publish`).
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tools import main
from tools.book_pages import alt_texts, finish_page, write_pages
from tools.execute import ROOT, home

MARK = Path("_static", "vit_helpers.css")  # by this file a folder is known to be a book
NEEDED = ("myst_nb", "sphinx_book_theme", "sphinx-mathjax-offline")
SETTINGS = tomllib.loads((ROOT / "tools" / "static" / "sphinx.toml").read_text(encoding="utf-8"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/book"), help="default: build/book")


def run(args: argparse.Namespace) -> int:
    return put_into(args.folder, MARK, NEEDED, make_book)


def put_into(folder: Path, mark: Path, needed: tuple[str, ...], make: Callable[[Path, Path], None]) -> int:
    """Fill a folder with the site that `make(pages, site)` makes; its exit status.

    mark  : the file by which a folder is known to hold such a site already; any other that is not empty is left alone
    needed: modules without which it cannot be made
    """
    if missing := [name for name in needed if find_spec(name) is None]:
        raise ValueError(f"this needs {', '.join(missing)}, not found here: pip install -e '.[book]'")
    if folder.exists() and not (folder / mark).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} holds something else: empty it, or name another folder")
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch, "site")
        make(Path(scratch, "pages"), site)
        (folder / mark).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(site / mark, folder / mark)  # first: what is stopped from here on can be made again
        shutil.copytree(site, folder, dirs_exist_ok=True)
    print(f"written: {folder / 'index.html'}")
    return 0


def make_book(pages: Path, site: Path) -> None:
    """Write the pages, and the site from them; ValueError where Sphinx warns."""
    write_pages(pages, home())
    theme = SETTINGS["theme"] | (SETTINGS["buttons"] | {"repository_url": home()} if home() else {})
    run_sphinx(pages, site, "html", SETTINGS["book"] | {"html_theme_options": theme}, finish_page)


def run_sphinx(pages: Path, site: Path, builder: str, settings: dict, finish: Callable) -> None:
    """Make a site of all pages, each of which `finish(app, doctree, alt)` may change; ValueError where Sphinx warned."""
    from sphinx.application import Sphinx

    settings, doctrees = SETTINGS["all"] | settings, pages.with_name("doctrees")
    app = Sphinx(pages, None, site, doctrees, builder, settings, status=None, warningiserror=True)
    app.connect("doctree-read", partial(finish, alt=alt_texts()))
    app.build()
    if app.statuscode:
        raise ValueError("nothing was written: see the warnings above")


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
