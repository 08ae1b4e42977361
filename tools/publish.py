"""Write the repository's address on GitHub into notebooks and README.md: links to Colab and Kaggle, and what to clone.

For the day on which the repository has a public home. The address is kept in one place, pyproject.toml; from there it comes
into the first cell and the setup cell of every notebook, and between two comments of README.md. Nothing is sent anywhere.
Another OWNER/NAME moves it all; the same one again gives a new notebook what the others have. Links are to the branch main.
"""

import contextlib
import json
import re
import sys

from tools import main
from tools.execute import PROJECT, ROOT, all_notebooks, is_setup, setup_source

README = ROOT / "README.md"
GITHUB = "https://github.com/"
OWNER = r"(?=.{1,39}/)[A-Za-z0-9]+(-[A-Za-z0-9]+)*"  # the rules of github.com, for both
NAME = r"(?!\.{1,2}$)(?!.*\.(?i:git|wiki)$)[A-Za-z0-9._-]{1,100}"
LONGEST = 72  # characters of OWNER/NAME that leave the setup cell's line within the page

READERS = {  # where a notebook can be opened: by which address, and its badge
    "Colab": ("https://colab.research.google.com/github/", "https://colab.research.google.com/assets/colab-badge.svg"),
    "Kaggle": (f"https://kaggle.com/kernels/welcome?src={GITHUB}", "https://kaggle.com/static/images/open-in-kaggle.svg"),
}
LINKS = re.compile(rf" \| \[Open in ({'|'.join(READERS)})\]\(\S+\)")
FROM, TO = "<!-- publish writes from here -->\n", "<!-- to here -->\n"
BLOCK = re.compile(f"{FROM}.*?{TO}", re.DOTALL)
ENTRY = re.compile(r"^(?:# )?Repository = .*$", re.MULTILINE)
NO_ENTRY = '# Repository = ""  # `python -m tools.publish OWNER/NAME` writes the address here'


def add_arguments(parser):
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("repository", nargs="?", metavar="OWNER/NAME", help="the repository, as github.com calls it")
    what.add_argument("--undo", action="store_true", help="take the address out again: every file becomes what it was")


def run(args):
    if not PROJECT.is_file():
        print(f"error: publish works inside the repository; there is no {PROJECT}", file=sys.stderr)
        return 1
    try:
        changed = write("" if args.undo else address(args.repository))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in changed:
        print(f"{path.relative_to(ROOT).as_posix()}: written")
    if not changed:
        print("nothing to change")
    return 0


def address(repository):
    """The address of OWNER/NAME

    >>> address("a-b/c.d")
    'https://github.com/a-b/c.d'
    """
    if not re.fullmatch(f"{OWNER}/{NAME}", repository):
        raise ValueError(
            f"got {repository!r}, wanted OWNER/NAME alone, as in {GITHUB}OWNER/NAME: OWNER of letters and digits, single "
            "hyphens between them, 39 at most; NAME of letters, digits, '.', '_' and '-', 100 at most, without .git"
        )
    if len(repository) > LONGEST:
        raise ValueError(f"{repository!r} has {len(repository)} characters; the setup cell has room for {LONGEST}")
    return GITHUB + repository


def write(home):
    """Bring every file in line with an address ("" for none), all or none; returns the paths of those that changed"""
    texts = pages(home)
    before = {path: path.read_bytes() for path in texts}
    changed = [path for path, text in texts.items() if text.encode() != before[path]]
    done = []
    try:
        for path in changed:
            done.append(path)
            path.write_bytes(texts[path].encode())
    except BaseException:  # Ctrl-C too
        for path in done:
            with contextlib.suppress(OSError):  # one that could not be opened is as it was
                path.write_bytes(before[path])
        raise
    return changed


def pages(home):
    """What every file that speaks of the address has to say: {path: text}"""
    return {
        **{path: notebook_with(path, home) for path in all_notebooks()},
        README: with_once(README, BLOCK, FROM + welcome(home) + TO, "the two comments around what publish writes"),
        PROJECT: with_once(PROJECT, ENTRY, f'Repository = "{home}"' if home else NO_ENTRY, "a line for the Repository"),
    }


def notebook_with(path, home):
    """The text of a notebook with links in its first line, and the setup cell that fits"""
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.relative_to(ROOT).as_posix()} is no notebook: {error}") from None
    if [cell["cell_type"] for cell in book["cells"][:1]] != ["markdown"]:
        raise ValueError(f"{path.relative_to(ROOT).as_posix()} does not begin with a cell of prose, where links can stand")
    links = "".join(f" | [Open in {name}]({link})" for name, link in readers(home, path).items())
    line, newline, rest = "".join(book["cells"][0]["source"]).partition("\n")
    book["cells"][0]["source"] = (LINKS.sub("", line) + links + newline + rest).splitlines(keepends=True)
    for cell in filter(is_setup, book["cells"]):
        cell["source"] = setup_source(home).splitlines(keepends=True)
    return json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n"  # as nbformat writes it


def welcome(home):
    """What README.md says of where the series can be read, run and cloned"""
    if not home:
        return ""
    first = all_notebooks()[0]
    badges = " ".join(f"[![Open in {name}]({READERS[name][1]})]({link})" for name, link in readers(home, first).items())
    return f"""
In the browser, with nothing to install: {badges}

On your own machine, first fetch it:

```
git clone {home}
cd {home.rpartition("/")[2]}
```

"""


def readers(home, path):
    """Where the notebook at this path can be opened, by name: nowhere without an address"""
    page = f"{home.removeprefix(GITHUB)}/blob/main/{path.relative_to(ROOT).as_posix()}"
    return {name: lead + page for name, (lead, _) in READERS.items() if home}


def with_once(path, pattern, new, what):
    """The text of a file in which what matches the pattern is replaced; it must be there once"""
    text, times = pattern.subn(lambda _: new, path.read_text(encoding="utf-8"))
    if times != 1:
        raise ValueError(f"{path.name} should hold {what} once, and does {times} times")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
