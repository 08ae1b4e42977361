"""Write the repository's address on GitHub into notebooks (Colab, Kaggle) and README.md.

The address is kept in pyproject.toml. It also goes into CITATION.cff, between two comments of
README.md, and into the first cell and the setup cell of every notebook, which installs the package
at the tag of this version. Nothing is sent. Another OWNER/NAME moves it all; the same one again
gives a new notebook what the others have. Links are to the branch main. With the address of the
site that `tools.book` builds, the README's first pictures lead to the live page there, and without
it to notebooks.
"""

import argparse
import re
from pathlib import Path

import nbformat

from tools import main
from tools.execute import PROJECT, README, ROOT, STATIC, TAG, all_notebooks, is_setup, setup_source

GITHUB = "https://github.com/"
# the rules of github.com for OWNER/NAME
REPOSITORY = re.compile(
    r"(?=.{1,39}/)[A-Za-z0-9]+(-[A-Za-z0-9]+)*/"
    r"(?!\.{1,2}$)(?!.*\.(?i:git|wiki)$)[A-Za-z0-9._-]{1,100}"
)
READERS = {  # where a notebook can be opened: by which address, and its badge
    "Colab": (
        "https://colab.research.google.com/github/",
        "https://colab.research.google.com/assets/colab-badge.svg",
    ),
    "Kaggle": (
        f"https://kaggle.com/kernels/welcome?src={GITHUB}",
        "https://kaggle.com/static/images/open-in-kaggle.svg",
    ),
}
LINKS = re.compile(rf" \| \[Open in ({'|'.join(READERS)})\]\(\S+\)")
SITE = re.compile(r"https://[A-Za-z0-9.-]+(/[A-Za-z0-9._~-]+)*/?")
LEADS = {  # the README's first pictures, and where they lead without a site
    "live.png": "notebooks/00_start_here.ipynb",
    "roof.jpg": "notebooks/03_attention.ipynb",
    "cat.png": "notebooks/00_start_here.ipynb",
}
FROM, TO = "<!-- publish writes from here -->\n", "<!-- to here -->\n"
BLOCK = re.compile(f"{FROM}.*?{TO}", re.DOTALL)
ENTRY = re.compile(r"^(?:# )?Repository = .*$", re.MULTILINE)
CITATION = ROOT / "CITATION.cff"
CITED = re.compile(r"^(?:# )?repository-code: .*$", re.MULTILINE)
COMMAND = "# `python -m tools.publish OWNER/NAME` writes the address here"
NO_ENTRY = f'# Repository = ""  {COMMAND}'
NOT_CITED = f'# repository-code: ""  {COMMAND}'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "repository", nargs="?", metavar="OWNER/NAME", help="the repository, as github.com calls it"
    )
    what.add_argument(
        "--undo",
        action="store_true",
        help="take the address out again: every file becomes what it was",
    )
    parser.add_argument(
        "--site",
        metavar="URL",
        default="",
        help="where the site of tools.book can be read: the README's first pictures lead there",
    )


def run(args: argparse.Namespace) -> None:
    # all of them, before the first is written
    texts = pages("" if args.undo else address(args.repository), site_of(args))
    changed = [path for path, text in texts.items() if text.encode() != path.read_bytes()]
    for path in changed:  # stopped in between, the same command again finishes the work
        path.write_bytes(texts[path].encode())
    print(
        "\n".join(f"{path.relative_to(ROOT).as_posix()}: written" for path in changed)
        or "nothing to change"
    )
    if changed and not args.undo:
        print(f"next: commit, tag that {TAG}, and push both: the notebooks install from this tag")


def address(repository: str) -> str:
    """The address of OWNER/NAME; ValueError for anything else

    >>> address("a-b/c.d")
    'https://github.com/a-b/c.d'
    """
    if not REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"got {repository!r}, wanted OWNER/NAME alone, as in {GITHUB}OWNER/NAME, without .git"
        )
    return GITHUB + repository


def site_of(args: argparse.Namespace) -> str:
    """The address of the site, or ""; ValueError for what is no such address."""
    if args.site and args.undo:
        raise ValueError("--undo takes every address out, so --site can't be given with it")
    if args.site and not SITE.fullmatch(args.site):
        raise ValueError(f"got --site {args.site!r}, wanted an address that begins with https://")
    return str(args.site)


def pictures_lead(readme: str, site: str) -> str:
    """The README whose first pictures lead to the site, or to notebooks without one."""
    for name, notebook in LEADS.items():
        link = re.compile(rf"(\]\(images/README/{re.escape(name)}\)\]\()[^)]*\)")
        readme, count = link.subn(rf"\g<1>{site or notebook})", readme)
        if count != 1:
            raise ValueError(f"README.md should have one linked picture {name}, not {count}")
    return readme


def pages(home: str, site: str = "") -> dict[Path, str]:
    """What every file that contains an address should be; "" for none."""
    welcome, entry, cited = "", NO_ENTRY, NOT_CITED
    if home:
        links = links_to(home, all_notebooks()[0]).items()
        badges = " ".join(
            f"[![Open in {name}]({READERS[name][1]})]({link})" for name, link in links
        )
        welcome = (STATIC / "welcome.txt").read_text(encoding="utf-8")
        welcome = welcome.format(badges=badges, home=home, name=home.rpartition("/")[2])
        entry = f'Repository = "{home}"'
        cited = f'repository-code: "{home}"'
    texts = {path: notebook_with(path, home) for path in all_notebooks()}
    for path, pattern, new, what in (
        (README, BLOCK, FROM + welcome + TO, "the two comments around what publish writes"),
        (PROJECT, ENTRY, entry, "a line for the Repository"),
        (CITATION, CITED, cited, "a line for the repository-code"),
    ):
        before, *after = pattern.split(path.read_text(encoding="utf-8"))
        if len(after) != 1:
            raise ValueError(f"{path.name} should contain {what} once, not {len(after)} times")
        texts[path] = before + new + after[0]
    texts[README] = pictures_lead(texts[README], site)
    return texts


def notebook_with(path: Path, home: str) -> str:
    """The text of a notebook with links in its first line, and the setup cell that fits."""
    book = nbformat.read(path, as_version=4)
    links = "".join(
        f" | [Open in {reader}]({link})" for reader, link in links_to(home, path).items()
    )
    line, newline, rest = book.cells[0].source.partition("\n")
    book.cells[0].source = LINKS.sub("", line) + links + newline + rest
    for cell in filter(is_setup, book.cells):
        cell.source = setup_source(home)
    return nbformat.writes(book) + "\n"


def links_to(home: str, path: Path) -> dict[str, str]:
    """Where the notebook at this path can be opened, by name: nowhere without an address."""
    page = f"{home.removeprefix(GITHUB)}/blob/main/{path.relative_to(ROOT).as_posix()}"
    return {name: lead + page for name, (lead, _) in READERS.items() if home}


if __name__ == "__main__":
    raise SystemExit(main())
