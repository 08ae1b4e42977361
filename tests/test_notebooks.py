"""Every notebook as it lies in the repository: what a reader on the web, in JupyterLab and on Colab will meet."""

import ast
import base64
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from vit_helpers.commands.rerun import METADATA, SANITIZE, WIDGET, all_notebooks, blur, sanitize_rules, setup_source, store

ROOT = Path(__file__).parents[1]
NOTEBOOKS = all_notebooks()
COLUMNS = 100  # what a page of 900 pixels shows of a line of code

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def outputs(path):
    return [output for cell in cells(path, "code") for output in cell.outputs]


def test_there_are_notebooks():
    assert NOTEBOOKS


@every
def test_it_is_valid_small_and_written_as_rerun_writes(path):
    text = path.read_text(encoding="utf-8")
    book = nbformat.reads(text, as_version=4)
    nbformat.validate(book)
    assert path.stat().st_size < 500_000
    assert book.metadata == METADATA  # a kernelspec, and no widgets
    assert text == store(nbformat.reads(text, as_version=4), book)


@every
def test_every_cell_ran_in_order_without_error_or_warning(path):
    code = cells(path, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            assert output.get("name") != "stderr", cell.source
            if output.output_type == "error":
                assert "raises-exception" in cell.metadata.get("tags", []), cell.source


@every
def test_cells_are_plain_python_that_fits_the_page(path):
    for cell in cells(path, "code"):
        ast.parse(cell.source)  # so no %magics and no !commands
        lines = cell.source.splitlines()
        assert max(map(len, lines), default=0) <= COLUMNS, cell.source
        assert len([line for line in lines if line.strip()]) <= 25, cell.source


@every
def test_pictures_carry_alt_text(path):
    for output in outputs(path):
        for kind in ("image/png", "image/jpeg"):
            if kind in output.get("data", {}):
                assert output.metadata[kind]["alt"].strip()
                if kind == "image/png":
                    assert b"Software" not in base64.b64decode(output.data[kind])
        assert not {"image/svg+xml", "application/javascript", WIDGET} & set(output.get("data", {}))
    for cell in cells(path, "markdown"):
        assert all(alt.strip() for alt in re.findall(r"!\[([^]]*)\]", cell.source))


@every
def test_links_lead_somewhere(path):
    for cell in cells(path, "markdown"):
        for link in re.findall(r"\]\(([^)\s]+)\)", cell.source):
            assert link.startswith(("https://", "#")) or (path.parent / link.partition("#")[0]).exists(), link


@every
def test_one_title_and_no_heading_is_jumped(path):
    text = "\n".join(re.sub(r"```.*?```", "", cell.source, flags=re.S) for cell in cells(path, "markdown"))
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@every
def test_github_shows_the_prose(path):
    for cell in cells(path, "markdown"):
        assert not re.search(r"\\\(|\\\[|> \[!|```mermaid|<details|<script|attachment:", cell.source), cell.source
        for row in re.findall(r"^\|.*\|$", cell.source, re.M):
            assert all("|" not in maths for maths in re.findall(r"\$[^$]+\$", row)), row


@every
def test_the_setup_cell_is_the_same_everywhere(path):
    first, *rest = cells(path, "code")
    assert first.source == setup_source()
    assert first.metadata == {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": ["setup"]}
    assert not any("setup" in cell.metadata.get("tags", []) for cell in rest)


def run_setup(cwd, *paths):
    """The setup cell, twice, in a fresh process that knows the given paths but not the repository"""
    forget = f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}] + {list(map(str, paths))}\n"
    code = forget + setup_source() + "\n" + setup_source() + "\nimport vit_helpers; print(vit_helpers.__file__)"
    return subprocess.run([sys.executable, "-I", "-c", code], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("folder", [".", "notebooks", "tests"])
def test_the_setup_cell_works_in_the_repository(folder):
    done = run_setup(ROOT / folder)
    assert done.stdout.startswith(str(ROOT / "vit_helpers" / "__init__.py")), done.stderr


def test_the_setup_cell_works_with_the_package_installed(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "vit_helpers").symlink_to(ROOT / "vit_helpers")
    (tmp_path / "elsewhere").mkdir()
    done = run_setup(tmp_path / "elsewhere", tmp_path / "site")
    assert done.stdout.startswith(str(tmp_path / "site")), done.stderr


def test_the_setup_cell_says_what_to_do_when_nothing_is_there(tmp_path):
    done = run_setup(tmp_path)
    assert "no vit_helpers here: open this notebook inside the repository" in done.stderr


# The machinery itself


def small_notebook(path, *sources):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(book, path)
    return path


def rerun(path):
    return subprocess.run(
        [sys.executable, "-m", "vit_helpers", "rerun", str(path)], cwd=ROOT, capture_output=True, text=True
    )


def test_rerun_writes_once_and_then_leaves_every_byte(tmp_path):
    path = small_notebook(tmp_path / "0.ipynb", "import time; print(f'took {time.perf_counter()} s')", "1 + 1")
    assert "written" in rerun(path).stdout
    first = path.read_bytes()
    book = json.loads(first)
    assert [cell["execution_count"] for cell in book["cells"]] == [1, 2]
    assert book["metadata"] == METADATA and b"timing" not in first
    assert "unchanged" in rerun(path).stdout
    assert path.read_bytes() == first


def test_a_picture_of_what_was_measured_stays_with_its_table():
    def outputs(time, picture):
        return [{"text": f"took {time} s"}, {"data": {"image/png": picture, "text/plain": "Image"}}]

    rules = sanitize_rules(SANITIZE)
    assert blur(outputs(1.5, "a"), rules, measured=True) == blur(outputs(2.5, "b"), rules, measured=True)
    assert blur(outputs(1.5, "a"), rules) != blur(outputs(1.5, "b"), rules)


def test_rerun_leaves_a_notebook_that_fails_as_it_was(tmp_path):
    path = small_notebook(tmp_path / "0.ipynb", "1 / 0")
    before = path.read_bytes()
    done = rerun(path)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert path.read_bytes() == before
    assert rerun(tmp_path / "none.ipynb").returncode == 1


def test_only_times_speeds_and_memory_are_blurred():
    def same(one, two):
        rules = sanitize_rules(SANITIZE)
        return blur([{"text": one}], rules) == blur([{"text": two}], rules)

    assert same("40 epochs took 9.1 s, 1,200 images/s, 80 MiB", "40 epochs took 12 s, 980.5 images/s, 1,001 MiB")
    assert not same("40 epochs took 9.1 s", "41 epochs took 9.1 s")
    assert not same("accuracy 0.991", "accuracy 0.992")
    assert not same("16 squares", "17 squares")


def test_nbval_notices_a_changed_output(tmp_path):
    path = small_notebook(tmp_path / "0.ipynb", "print('one')")
    assert "written" in rerun(path).stdout
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "--nbval-current-env",
    ]
    assert subprocess.run([*words, path], cwd=tmp_path, capture_output=True).returncode == 0
    path.write_text(path.read_text().replace("one\\n", "two\\n"))
    assert subprocess.run([*words, path], cwd=tmp_path, capture_output=True).returncode == 1
