"""The pages of the book before Sphinx reads them: README, notebooks and rooms, with links that lead from page to page."""

import base64
import os
import re
import shutil
from functools import partial
from hashlib import sha256
from pathlib import Path

from tools.execute import ROOT, all_notebooks, is_setup

README = ROOT / "README.md"
PACKAGE = ROOT / "vit_helpers" / "__init__.py"
SOLUTIONS, TESTS = ROOT / "notebooks" / "solutions" / "index.md", ROOT / "tests" / "index.md"  # pages of the book alone
BESIDE = (ROOT / "notebooks" / "paper_index.md", ROOT / "TEACHING.md")

LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)")
LEFT_OUT = re.compile(  # the theme has its own way from page to page; pictures of other hosts (badges) need a network
    r"^.*(\[Contents\]\(\S*README\.md\)|!\[[^]]*\]\(https?:).*\n*", re.MULTILINE
)
EXERCISE = re.compile(r"^done = (check_\w+)\(", re.MULTILINE)
SOLVED = re.compile(r"^assert (check_\w+)\(", re.MULTILINE)
SOLUTION = "``````{admonition} A solution\n:class: tip\n:collapsible: closed\n\n%s\n``````"

STYLE = """\
html { --pst-font-size-h1: 2rem; --pst-font-size-h2: 1.6rem; --pst-font-size-h3: 1.3rem; }
.bd-article { overflow-wrap: break-word; }
.bd-article code .pre { white-space: normal; }  /* a long name may break where the page is narrow */
.bd-content:not(:has(.bd-sidebar-secondary)) .bd-article-container { max-width: 100%; }  /* 100 columns of code */
details.admonition:not([open]) { padding-bottom: 0; }
details.admonition > summary { cursor: pointer; margin-bottom: 0; }
pre span:target { background: var(--pst-color-target); }
"""
ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" fill="#fff"/>
<path d="M1 1h6v6H1z" fill="#D55E00"/><path d="M9 1h6v6H9zM1 9h6v6H1zM9 9h6v6H9z" fill="#56B4E9"/></svg>
"""


def write_pages(folder, address):
    """Write what Sphinx reads, in folders like those of the repository.

    address: where the repository is published, for links to files that are no pages; "" before that
    """
    series, solutions = lessons(), [path for path in all_notebooks() if path.parent == SOLUTIONS.parent]
    beside = [path for path in BESIDE if path.is_file()]
    prose = [README, *beside, *series, *solutions]
    code = code_files(prose)
    tidy = partial(tidied, pages={*prose, *code}, address=address)

    texts = {path: tidy(path.read_text(encoding="utf-8"), path) for path in (README, *beside)}
    texts |= {path: notebook_page(path, tidy) for path in (*series, *solutions)}
    texts |= {path: code_page(path, code) for path in code}
    texts[SOLUTIONS] = "# Solutions" + contents(solutions)
    texts[TESTS] = "# Tests" + contents(path for path in code if path.parent == TESTS.parent)
    texts[README] += contents(series, "The notebooks") + contents([SOLUTIONS, *beside, PACKAGE, TESTS], "Beside them")
    lay_out(folder, texts, {"vit_helpers.css": STYLE, "favicon.svg": ICON})


def lay_out(folder, texts, static):
    """Write {path of a file: text of its page} and {name: text} of what all pages share to where Sphinx looks for them"""
    files = {page_name(path) + (".ipynb" if path.suffix == ".ipynb" else ".md"): text for path, text in texts.items()}
    for name, text in (files | {f"_static/{name}": text for name, text in static.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "images", folder / "images")


def lessons():
    """The notebooks without their solutions"""
    return [path for path in all_notebooks() if path.parent != SOLUTIONS.parent]


def page_name(path):
    """What Sphinx calls the page of a file

    >>> page_name(README), page_name(ROOT / "vit_helpers" / "attention.py")
    ('index', 'vit_helpers/attention')
    """
    return "index" if path == README else path.relative_to(ROOT).with_suffix("").as_posix()


def contents(paths, caption=None):
    """A list of pages: seen on the page, or with a caption only beside it; notebooks by the names that README gives them"""
    named = {target(link, README): words for words, link in LINK.findall(words_of(README)) if words[:2].isdigit()}
    options = f":caption: {caption}\n:hidden:" if caption else ":maxdepth: 1"
    lines = (f"{named[path]} </{page_name(path)}>" if path in named else f"/{page_name(path)}" for path in paths)
    return f"\n\n```{{toctree}}\n{options}\n\n" + "\n".join(lines) + "\n```\n"


def target(link, path):
    """The file that a link leads to from the file at `path`, for a folder its __init__.py; None outside of ROOT"""
    place = Path(os.path.normpath(path.parent / link.partition("#")[0]))
    inside = "://" not in link and not link.startswith("#") and place.is_relative_to(ROOT) and place.exists()
    return (place / "__init__.py" if (place / "__init__.py").is_file() else place) if inside else None


def tidied(text, path, pages, address):
    """Markdown of the file at `path`, for its page: links lead to pages, else to the repository, else nowhere"""

    def relinked(match):
        words, link = match.groups()
        place = target(link, path)
        if place in pages:
            suffix, anchor = ".ipynb" if place.suffix == ".ipynb" else ".md", re.sub("-L.*", "", link.partition("#")[2])
            return f"[{words}](/{page_name(place)}{suffix}{'#' if anchor else ''}{anchor})"
        if place:
            return f"[{words}]({address}/blob/main/{place.relative_to(ROOT).as_posix()})" if address else words
        return match.group()

    return LINK.sub(relinked, LEFT_OUT.sub("", text))


def code_files(prose):
    """The rooms, every other code file that the prose links to, and the __init__.py above them"""
    rooms = [path for path in PACKAGE.parent.rglob("*.py") if not {"checks", "commands", "__main__.py"} & {*path.parts}]
    linked = [target(link, path) for path in prose for _, link in LINK.findall(words_of(path))]
    found = {*rooms, *(path for path in linked if path and path.suffix == ".py")}
    return sorted(found | {path.with_name("__init__.py") for path in found if path.with_name("__init__.py").is_file()})


def words_of(path):
    """The Markdown of a file, be it a notebook or not"""
    import nbformat

    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def code_page(path, code):
    """The source of a file; that of a folder's __init__.py also lists the others"""
    is_folder = path.name == "__init__.py"
    page = f"# {path.parent.name if is_folder else path.name}\n\n``````python\n{path.read_text(encoding='utf-8')}\n``````\n"
    beside = {other for other in code if other.parent == path.parent} - {path}
    below = {other for other in code if other.parent.parent == path.parent and other.name == "__init__.py"}
    return page + contents(sorted(beside | below)) if is_folder else page


def notebook_page(path, tidy):
    """A notebook with its setup folded, and after each exercise a solution, folded too"""
    import nbformat
    from nbformat.v4 import new_markdown_cell

    book, answers, cells = nbformat.read(path, as_version=4), solutions_of(path, tidy), []
    for cell in book.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = tidy(cell.source, path)
        elif is_setup(cell):
            cell.metadata = {"tags": ["hide-input"], "mystnb": {"code_prompt_show": "Setup", "code_prompt_hide": "Setup"}}
        for name in EXERCISE.findall(cell.source):
            if name in answers:  # that of notebook 00 stands in its own text
                cells.append(new_markdown_cell(SOLUTION % answers[name], id=name.replace("_", "-")))
    book.cells = cells
    return nbformat.writes(book)


def solutions_of(path, tidy):
    """{name of an exercise's check: how to solve it, as Markdown}, from the solutions to the notebook at `path`"""
    import nbformat

    path = path.parent / "solutions" / path.name
    if not path.is_file():
        return {}
    cells = nbformat.read(path, as_version=4).cells
    shown = (tidy(c.source, path) if c.cell_type == "markdown" else f"```python\n{c.source}\n```" for c in cells)
    sections = re.split(r"^## .*\n", "\n\n".join(shown), flags=re.MULTILINE)
    return {name: section.strip() for section in sections for name in SOLVED.findall(section)}


def alt_texts():
    """{sha256 of a stored picture: what it shows}: MyST-NB names pictures so, and forgets the words"""
    import nbformat

    found = {}
    for path in all_notebooks():
        for output in (output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])):
            for kind, told in output.get("metadata", {}).items():
                if "alt" in told:
                    found[sha256(base64.b64decode(output.data[kind])).hexdigest()] = told["alt"]
    return found


def finish_page(app, doctree, alt):
    """Pictures get the words that tell what they show, lines of code a place that links can lead to (#L12, as on GitHub)"""
    from docutils import nodes

    for image in doctree.findall(nodes.image):
        image["alt"] = image.get("alt") or alt.get(Path(image["uri"]).stem, "")
    if app.env.docname.startswith(("vit_helpers/", "tests/")):
        slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
        for block in doctree.findall(nodes.literal_block):
            block["highlight_args"] = {"linespans": "L"}
            slugs |= {f"L{number}": (number, f"L-{number}", "") for number in range(1, block.rawsource.count("\n") + 2)}
