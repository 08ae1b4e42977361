"""What fails when cells and sections run again is seen, and everything else is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from again import faults, run
from jupyter_client.manager import run_kernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[2]


def notebook(*sources):
    """A notebook of these texts: Markdown where they begin with a heading"""
    new = {True: new_markdown_cell, False: new_code_cell}
    cells = [new[source.startswith("# ")](source) for source in sources]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "code":
            cell.execution_count = number
    return new_notebook(cells=cells)


@pytest.fixture(scope="module")
def kernel():
    with run_kernel() as client:
        yield client


def found_in(book, kernel):
    errors = [run(cell, kernel) for cell in book.cells if cell.cell_type == "code"]
    assert not any(errors), errors
    return [*faults(book, kernel)]


def test_a_cell_that_runs_only_once_is_seen(kernel):
    (fault,) = found_in(notebook("# T\n## A", "x = [1]", "x.pop()"), kernel)
    assert fault == "cell-2, run twice in place: IndexError: pop from empty list"


def test_a_section_that_a_later_one_breaks_is_seen_and_ends_there(kernel):
    a, b, c = ["# T\n## A", "x = 1"], ["# T\n## B", "assert x == 1, x", "x = []"], ["# T\n## C"]
    (fault,) = found_in(notebook(*a, *b, "x = 1", *c, "x = 2"), kernel)
    assert fault == "cell-3, 'B' run again: AssertionError: 2"


@pytest.mark.parametrize(("message", "count"), [("run section A first", 0), ("x is 2", 1)])
def test_a_section_may_say_what_to_run_first(kernel, message, count):
    a, b, c = ["# T\n## A", "x = 1"], ["# T\n## B", f"assert x == 1, {message!r}"], ["# T\n## C"]
    assert len(found_in(notebook(*a, *b, *c, "x = 2"), kernel)) == count


@pytest.mark.parametrize(("last", "status"), [("del x[0]", 1), ("x = x[:1]", 0)])
def test_with_the_plugin_pytest_runs_notebooks_again(tmp_path, last, status):
    nbformat.write(notebook("x = [1]", "# T\n## A", last), tmp_path / "0.ipynb")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    settings = ["-c", ROOT / "pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-n", "0", "-p", "again", "0.ipynb"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout
    assert f"{3 - status} passed" in done.stdout and ("cell-2, " in done.stdout) is bool(status)
