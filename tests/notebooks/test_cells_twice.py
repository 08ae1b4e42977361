"""Readers go back: every cell runs twice in place, and every section again after later ones."""

import copy
import re
import sys
from contextlib import nullcontext
from unittest import mock

import pytest
from kernels import LAUNCH, launch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from pages import name_of, read
from psutil import pid_exists

from tools.execute import ROOT, all_notebooks, code_cells

pytestmark = pytest.mark.twice

SECONDS = 600  # for a cell, while the machine is busy
ADVICE = re.compile(r"\brun\b.*\bfirst\b", re.IGNORECASE | re.DOTALL)


def faults(book, folder=ROOT / "notebooks"):
    """What fails in a notebook whose cells run twice, and then again by section; a line each."""
    client = NotebookClient(
        copy.deepcopy(book),
        resources={"metadata": {"path": str(folder)}},
        timeout=SECONDS,
        kernel_name="python3",
        shutdown_kernel="immediate",
    )
    forked = mock.patch(LAUNCH, launch) if sys.platform == "linux" else nullcontext()
    with forked, client.setup_kernel():
        return [*run_twice(client), *run_sections_again(client)]


def run_twice(client):
    """Run each cell and then the same cell again, from the first to the last."""
    for cell in code_cells(client.nb):
        for turn in ("first", "second"):
            if error := run_cell(client, cell):
                yield f"{cell.id}, {turn} run in place: {error.ename}: {error.evalue}"


def run_sections_again(client):
    """Run the last section once more, then the one before it, up to the first.

    An error ends its section. If it says what to run first, then it is no fault.
    """
    for heading, cells in reversed(code_by_section(client.nb)):
        for cell in cells:
            if error := run_cell(client, cell):
                if not ADVICE.search(error.evalue):
                    yield f"{cell.id}, {heading!r} run again: {error.ename}: {error.evalue}"
                break


def run_cell(client, cell):
    """The error of a cell, None where it runs or is meant to fail"""
    try:
        client.execute_cell(cell, client.nb.cells.index(cell))
    except CellExecutionError as error:
        return error


def code_by_section(book):
    """The code cells below each heading of level 2"""
    sections = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"^```.*?^```", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            sections += [(heading, []) for heading in re.findall(r"^## (.+)$", prose, re.MULTILINE)]
        elif sections:
            sections[-1][1].append(cell)
    return sections


@pytest.mark.parametrize("path", all_notebooks(), ids=name_of)
def test_cells_run_again(path):
    found = faults(read(path), path.parent)
    assert not found, "\n".join([name_of(path), *found])


def notebook(*sources):
    """A notebook of these texts: Markdown where they begin with a heading"""
    new = {True: new_markdown_cell, False: new_code_cell}
    cells = [new[source.startswith("# ")](source) for source in sources]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return new_notebook(cells=cells)


def test_a_cell_that_runs_only_once_is_seen():
    book = notebook("x = [1]", "x.pop()", "# T\n## B", "x.append(2)", "assert len(x) == 1")
    first, second, *rest = faults(book)
    assert first == "cell-1, second run in place: IndexError: pop from empty list"
    assert second.startswith("cell-4, first run in place: AssertionError")
    assert len(rest) == 2  # its second run, and its section


@pytest.mark.parametrize(("message", "count"), [("run section A first", 0), ("x is 2", 1)])
def test_a_section_may_say_what_to_run_first(message, count):
    a, b, c = ["# T\n## A", "x = 1"], ["# T\n## B", f"assert x == 1, {message!r}"], ["# T\n## C"]
    assert len(faults(notebook(*a, *b, *c, "x = 2"))) == count


def test_no_kernel_is_left_behind(tmp_path):
    file = tmp_path / "process"
    book = notebook(f"import os\nprint(os.getpid(), file=open({str(file)!r}, 'w'))", "1 / 0")
    assert len(faults(book)) == 2
    assert not pid_exists(int(file.read_text()))
