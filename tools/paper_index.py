"""Write the paper index: where each equation, table and section of the paper is built and tested.

Its one source is tools/paper_index.toml, which names places by what they contain: a heading and a
cell's first line, an object and a piece of its text, a test. Line numbers are looked up each time.
Where something is not found, or found twice, all such cases are reported and nothing is written.
"""

import argparse
import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tools import main
from tools.execute import ROOT

SOURCE = Path(__file__).with_name("paper_index.toml")
PAGE = ROOT / "notebooks" / "paper_index.md"
Entry = dict[str, Any]


def run(args: argparse.Namespace) -> None:
    PAGE.write_text(
        page(tomllib.loads(SOURCE.read_text(encoding="utf-8"))), encoding="utf-8", newline="\n"
    )
    print(f"written: {PAGE}")


def page(source: dict[str, Any]) -> str:
    """The text of the page from a source as in SOURCE.

    An entry has "paper" and "says", and lists of places to find under "notebook", "code" and
    "test", or says under "missing" why the part is not reproduced.

    raises: ValueError that names all places not found, or an entry that is not as above
    """
    entries, lost = [entry for group in source["groups"] for entry in group["entries"]], list[str]()
    parts = [
        source["start"].format(
            entries=len(entries), missing=sum("missing" in entry for entry in entries)
        )
    ]
    for group in source["groups"]:
        parts += [f"## {group['title']}", " ".join(group["says"].split())]
        for entry in group["entries"]:
            parts.append(paragraph(entry))
            if found := [
                f"- {kind}: {place}" for kind in FINDERS for place in places(entry, kind, lost)
            ]:
                parts.append("\n".join(found))
    if lost:
        raise ValueError("\n  ".join([f"{len(lost)} places of {SOURCE.name} not found", *lost]))
    return "\n\n".join(parts) + "\n"


def paragraph(entry: Entry) -> str:
    """What the paper says, and why it is not reproduced where it is not."""
    name = entry.get("paper", "an entry without a name")
    if wrong := sorted(
        {"paper", "says"} - entry.keys()
        | entry.keys() - {"paper", "says", "missing"} - FINDERS.keys()
    ):
        raise ValueError(f"{name}: missing or unknown: {', '.join(wrong)}")
    if "missing" not in entry and not (entry.get("code") and entry.get("test")):
        raise ValueError(
            f"{name}: say where its code and its test are, or under `missing` why there are none"
        )
    missing = f" *Not reproduced: {entry['missing']}.*" if "missing" in entry else ""
    return f"**{name}.** {' '.join(entry['says'].split())}{missing}"


def places(entry: Entry, kind: str, lost: list[str]) -> Iterator[str]:
    """An entry's places of a kind; what is not found is added to `lost`."""
    for place in entry.get(kind, []):
        try:
            yield FINDERS[kind](*place)
        except LookupError as error:
            lost.append(f"{entry['paper']}: {error}")


def in_notebook(name: str, heading: str, cell: str | None = None) -> str:
    """Link to a section of a notebook, and to the code cell in it whose first line is `cell`.

    name: as 03_attention, or further/03_attention for the further page
    """
    sections: list[tuple[str, list[str]]] = [
        ("", [])
    ]  # a heading, and the first lines of the code cells below it
    for each in json.loads(read(f"notebooks/{name}.ipynb"))["cells"]:
        if each["cell_type"] == "markdown":
            # a comment in code is no heading
            prose = re.sub(r"^```.*?^```", "", "".join(each["source"]), flags=re.S | re.M)
            sections += [(found, []) for found in re.findall(r"^#+ (.+)$", prose, re.M)]
        else:
            sections[-1][1].append("".join(each["source"][:1]).rstrip("\n"))
    cells = only(
        [cells for title, cells in sections if title == heading],
        f"the heading {heading!r} of {name}.ipynb",
    )
    if cell is not None:
        only(
            [line for line in cells if line == cell],
            f"the cell {cell!r} of {name}.ipynb, {heading!r}, among {cells}",
        )
    return f"[{name}]({name}.ipynb) › {heading}" + (f" › `{cell}`" if cell else "")


def in_code(module: str, name: str, text: str = "") -> str:
    """Link to an object of a module, and to its line that contains `text`; by default the first."""
    source = read(f"vit_helpers/{module}.py")
    lines, node = source.split("\n"), cast(Any, ast.parse(source))
    for part in name.split("."):  # a definition, or an assignment
        found = [
            child
            for child in node.body
            if re.match(rf" *(def |class )?{part}\b", lines[child.lineno - 1])
        ]
        node = only(found, f"{part} of {name} in {module}.py")
    inside = range(node.lineno, node.end_lineno + 1) if text else [node.lineno]
    number = only(
        [n for n in inside if text in lines[n - 1]], f"the line {text!r} of {name} in {module}.py"
    )
    shown = f": `{lines[number - 1].strip()}`" if text else ""
    return f"[`{module.replace('/', '.')}.{name}`](../vit_helpers/{module}.py#L{number}){shown}"


def in_tests(file: str, name: str) -> str:
    """Link to a test, in the words of its name."""
    lines = enumerate(read(f"tests/{file}.py").split("\n"), start=1)
    number = only(
        [n for n, line in lines if line.startswith(f"def {name}(")], f"the test {name} of {file}.py"
    )
    title = name.removeprefix("test_").replace("_", " ")
    return f"[{title}](../tests/{file}.py#L{number}) ({file}.py)"


FINDERS: dict[str, Callable[..., str]] = {
    "notebook": in_notebook,
    "code": in_code,
    "test": in_tests,
}


def only(found: list[Any], what: str) -> Any:
    """The one thing found; LookupError where there is none, or more than one."""
    if len(found) != 1:
        raise LookupError(f"{what}: {f'found {len(found)} times' if found else 'not found'}")
    return found[0]


def read(path: str) -> str:
    """The text of a file of the repository; LookupError where there is none."""
    if not (ROOT / path).is_file():
        raise LookupError(f"no file {path}")
    return (ROOT / path).read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
