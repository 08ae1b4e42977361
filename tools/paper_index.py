"""Write the paper index: where each equation, table, figure and section of the paper is built, shown and tested.

Its one source is tools/paper_index.toml, which names things by what they say: a heading and a cell's first
line, an object and a piece of its text, a test. Their lines are looked up anew each time, so that nothing in the source
changes when they move. Where something is gone, or stands there twice, all such cases are told and nothing is written.
"""

import ast
import json
import re
import sys
import tomllib
from functools import lru_cache
from pathlib import Path

from tools import main

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).with_name("paper_index.toml")
PAGE = ROOT / "notebooks" / "paper_index.md"
START = """\
[Contents](../README.md) | [Start here](00_start_here.ipynb)

# The paper, and where to find it here

The paper is Dosovitskiy et al., *An Image is Worth 16x16 Words*, \
[arXiv 2010.11929](https://arxiv.org/abs/2010.11929), version 2. This page goes through it: what each part says, the \
notebook that builds or shows it, the line of code, and the test that holds it. A link cannot lead to a cell of a notebook, \
so a cell is named by its section and its first line.

Not everything was repeated: of the {entries} entries below, {missing} say what was not, and why.

This page is written by `python -m tools.paper_index` from [paper_index.toml](../tools/paper_index.toml).
"""
WORDS = {"paper", "says", "missing"}  # keys of an entry that hold words; those of PLACES hold lists


def add_arguments(parser):
    """None: one source makes one page"""


def run(args):
    try:
        text = page(tomllib.loads(SOURCE.read_text(encoding="utf-8")))
    except (LookupError, ValueError) as error:
        print(f"error: {SOURCE.name}: {error}", file=sys.stderr)
        return 1
    same = PAGE.is_file() and PAGE.read_bytes() == text.encode()
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    print(f"{PAGE}: {'unchanged' if same else 'written'}")
    return 0


def page(source):
    """The text of the page.

    source: {"groups": [{"title", "says", "entries": [...]}]}; an entry has "paper" and "says", and lists of places to find
            under "notebook", "code" and "test", or says under "missing" why the part is not reproduced
    raises: LookupError that names all places not found; ValueError for an entry that is not as above
    """
    lost, parts = [], []
    for group in source["groups"]:
        parts += [f"## {group['title']}", in_one_line(group["says"])]
        for entry in group["entries"]:
            parts += [paragraph(entry), *places(entry, lost)]
    if lost:
        raise LookupError("\n  ".join([f"{len(lost)} of its places not found", *lost]))
    entries = [entry for group in source["groups"] for entry in group["entries"]]
    start = START.format(entries=len(entries), missing=sum("missing" in entry for entry in entries))
    return "\n\n".join([start.strip(), *parts]) + "\n"


def paragraph(entry):
    """What the paper says, and why it is not reproduced where it is not"""
    name = entry.get("paper", "an entry without a name")
    if wrong := sorted({"paper", "says"} - entry.keys() | entry.keys() - WORDS - PLACES.keys()):
        raise ValueError(f"{name}: missing or unknown: {', '.join(wrong)}")
    if "missing" not in entry and not (entry.get("code") and entry.get("test")):
        raise ValueError(f"{name}: say where its code and its test are, or under `missing` why there are none")
    missing = f" *Not reproduced: {entry['missing']}.*" if "missing" in entry else ""
    return f"**{name}.** {in_one_line(entry['says'])}{missing}"


def places(entry, lost):
    """The list of an entry's places, where it has any; what leads nowhere is added to `lost`"""
    lines = []
    for kind, find in PLACES.items():
        for place in entry.get(kind, []):
            try:
                lines.append(f"- {kind}: {find(*place)}")
            except LookupError as error:
                lost.append(f"{entry['paper']}: {error}")
    return ["\n".join(lines)] if lines else []


# Places: each finder takes the words of the source, and gives a link with what stands there


def in_notebook(name, heading, cell=None):
    """A section of a notebook, and of its code cells the one that begins with the line `cell`"""
    sections = [cells for title, cells in sections_of(ROOT / "notebooks" / f"{name}.ipynb") if title == heading]
    cells = only(sections, f"the heading {heading!r} of {name}.ipynb")
    link = f"[{name}]({name}.ipynb) › {heading}"
    if cell is None:
        return link
    only([line for line in cells if line == cell], f"the cell {cell!r} of {name}.ipynb, {heading!r}, among {cells}")
    return f"{link} › `{cell}`"


def in_code(room, name, text=None):
    """An object of a room, and of its lines the one that holds `text`; by default the first"""
    path = ROOT / "vit_helpers" / f"{room}.py"
    lines, node = read(path)
    for part in name.split("."):
        node = only([child for child in node.body if part in names_of(child)], f"{part} of {name} in {room}.py")
    inside = range(node.lineno, node.end_lineno + 1)
    numbers = [node.lineno] if text is None else [n for n in inside if text in lines[n - 1]]
    number = only(numbers, f"the line {text!r} of {name} in {room}.py")
    link = f"[`{room.replace('/', '.')}.{name}`](../vit_helpers/{room}.py#L{number})"
    return link if text is None else f"{link}: `{lines[number - 1].strip()}`"


def in_tests(file, name):
    """A test, in the words of its name"""
    _, tree = read(ROOT / "tests" / f"{file}.py")
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    node = only(tests, f"the test {name} of {file}.py")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../tests/{file}.py#L{node.lineno}) ({file}.py)"


PLACES = {"notebook": in_notebook, "code": in_code, "test": in_tests}


def only(found, what):
    """The one thing found; LookupError where there is none, or more than one"""
    if len(found) != 1:
        raise LookupError(f"{what}: {f'stands there {len(found)} times' if found else 'is not there'}")
    return found[0]


@lru_cache
def read(path):
    """The lines of a Python file, and its tree"""
    if not path.is_file():
        raise LookupError(f"no file {path.relative_to(ROOT)}")
    text = path.read_text(encoding="utf-8")
    return text.split("\n"), ast.parse(text)


def names_of(node):
    """The names that a statement gives to something"""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return {getattr(node, "name", None), *(target.id for target in targets if isinstance(target, ast.Name))}


@lru_cache
def sections_of(path):
    """The headings of a notebook, each with the first lines of the code cells up to the next heading"""
    if not path.is_file():
        raise LookupError(f"no notebook {path.relative_to(ROOT)}")
    sections = [("", [])]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)  # a comment in code is no heading
            sections += [(heading, []) for heading in re.findall(r"^#+ (.+)$", prose, re.M)]
        else:
            sections[-1][1].append(text.partition("\n")[0])
    return sections


def in_one_line(text):
    """A text of the source, where lines end anywhere"""
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
