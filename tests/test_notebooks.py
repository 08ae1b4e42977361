"""Every notebook as it lies in the repository: what a reader on the web, in JupyterLab and on Colab will meet."""

import ast
import base64
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from tools import execute
from tools import main as run_tool
from tools.execute import (
    METADATA,
    SANITIZE,
    WIDGET,
    all_notebooks,
    blur,
    home,
    sanitize_rules,
    setup_source,
    store,
)
from tools.notebook_costs import MEASURED, measure, table_with

ROOT = Path(__file__).parents[1]
NOTEBOOKS = all_notebooks()
COLUMNS = 100  # what a page of 900 pixels shows of a line of code

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
lessons = pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name != "solutions"], ids=lambda path: path.stem)


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
    assert first.source == setup_source(home())
    assert first.metadata == {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": ["setup"]}
    assert not any("setup" in cell.metadata.get("tags", []) for cell in rest)


@lessons
def test_the_card_and_the_readme_give_the_cost_that_rerun_measured(path):
    card = MEASURED.search(cells(path, "markdown")[0].source)
    assert card, "run `python -m tools.execute --cards` while nothing else runs"
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in readme if line.startswith("|") and f"(notebooks/{path.name})" in line)
    seconds, memory = card.groups()
    assert f"| {seconds} | {memory} |" in row


def run_setup(cwd, *paths, address="https://nowhere.invalid"):
    """The setup cell, twice, in a fresh process that knows the given paths but not the repository"""
    forget = f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}] + {list(map(str, paths))}\n"
    cell = setup_source(address) + "\n"
    code = forget + cell + cell + "import vit_helpers; print(vit_helpers.__file__)"
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
    done = run_setup(tmp_path, address="")
    assert "no vit_helpers here: open this notebook inside the repository" in done.stderr


# The machinery itself


def small_notebook(path, *sources):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(book, path)
    return path


def rerun(*words):
    return subprocess.run(
        [sys.executable, "-m", "tools.execute", *map(str, words)], cwd=ROOT, capture_output=True, text=True
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


def test_rerun_goes_on_behind_what_fails(tmp_path):
    dies, fine = (
        small_notebook(tmp_path / f"{n}.ipynb", line) for n, line in enumerate(["import os; os._exit(1)", "print('one')"])
    )
    none = tmp_path / "2.ipynb"
    none.write_text("no JSON")
    before = dies.read_bytes(), none.read_bytes()
    done = rerun(dies, none, fine)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{dies}: failed, left as it was" in done.stderr and f"{none}: no notebook" in done.stderr
    assert f"{fine}: written" in done.stdout and (dies.read_bytes(), none.read_bytes()) == before


# What a notebook costs: measured always, written with --cards

CARD = """# A title

| what it costs | |
|---|---|
| time and memory | seconds, under 1 GB |
| download | nothing |
"""
README = """The [first](notebooks/0.ipynb) in prose.

| | you build |
|---|---|
| [zero](notebooks/0.ipynb) ([solutions](notebooks/solutions/0.ipynb)) | a \\| b |
| one | nothing yet |

| command |
|---|
| rerun |
"""


def small_series(folder, readme=README, card=CARD):
    """A notebook with a card that holds 300 MiB for half a second, and the README.md beside its folder"""
    (folder / "notebooks").mkdir()
    (folder / "README.md").write_text(readme)
    path = small_notebook(folder / "notebooks" / "0.ipynb", "import time", "x = b'x' * 300 * 2**20; time.sleep(0.5)")
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_markdown_cell(card))
    nbformat.write(book, path)
    return path


def bytes_of(path):
    return path.read_bytes(), path.parents[1].joinpath("README.md").read_bytes()


@pytest.fixture
def pretend(monkeypatch, capsys):
    """Rerun as if it had measured these costs, with no kernel: its status, and what it printed"""

    def run(*words, costs=(47.6, 1.234)):
        monkeypatch.setattr("tools.execute.measure", lambda work: costs)
        return run_tool(execute, [*map(str, words)]), "".join(capsys.readouterr())

    return run


def test_cards_measure_a_notebook_and_write_what_it_cost(tmp_path):
    path = small_series(tmp_path)
    code = [cell.source for cell in cells(path, "code")]
    done = rerun("--cards", path)
    seconds, memory = re.search(r"0.ipynb: written, (\S+ s), (\S+ GiB)\n", done.stdout).groups()
    assert 0.5 < float(seconds.removesuffix(" s")) < 100
    assert 0.3 < float(memory.removesuffix(" GiB")) < 0.6  # a kernel alone takes some 0.1 GiB

    assert [cell.source for cell in cells(path, "code")] == code
    card = MEASURED.search(cells(path, "markdown")[0].source)
    assert card.groups() == (seconds, memory)
    assert cells(path, "markdown")[0].source == CARD.replace("| time and memory | seconds, under 1 GB |", card.group())
    link = "[zero](notebooks/0.ipynb) ([solutions](notebooks/solutions/0.ipynb))"
    table = ["| | you build | time | memory |", "|---|---|---|---|", f"| {link} | a \\| b | {seconds} | {memory} |",
             "| one | nothing yet | | |"]  # fmt: skip
    lines = README.splitlines()
    assert (tmp_path / "README.md").read_text().splitlines() == [*lines[:2], *table, *lines[6:]]


def test_without_cards_the_cost_is_printed_and_not_written(tmp_path, pretend):
    path = small_series(tmp_path)
    assert pretend(path) == (0, f"{path}: written, 48 s, 1.2 GiB\n")
    assert cells(path, "markdown")[0].source == CARD
    assert (tmp_path / "README.md").read_text() == README
    before = bytes_of(path)
    assert pretend(path, costs=(99, 9)) == (0, f"{path}: unchanged, 99 s, 9 GiB\n")
    assert bytes_of(path) == before


def test_cards_that_are_right_within_a_quarter_keep_every_byte(tmp_path, pretend):
    path = small_series(tmp_path)
    assert pretend("--cards", path) == (0, f"README.md: written\n{path}: written, 48 s, 1.2 GiB\n")
    before = bytes_of(path)
    for same in [(47.6, 1.234), (59, 1.2), (37, 1.2), (48, 1.49), (48, 0.91)]:
        assert "0.ipynb: unchanged, " in pretend("--cards", path, costs=same)[1]
        assert bytes_of(path) == before
    for other in [(61, 1.2), (48, 1.7), (48, 1), (30, 1)]:
        assert "0.ipynb: written, " in pretend("--cards", path, costs=other)[1]


def test_a_readme_changed_by_hand_is_brought_back_to_the_card(tmp_path, pretend):
    path = small_series(tmp_path)
    pretend("--cards", path)
    before = bytes_of(path)
    readme = tmp_path / "README.md"
    readme.write_text(readme.read_text().replace("| 48 s |", "| 8 s |"))
    assert pretend("--cards", path, costs=(50, 1.3)) == (0, f"README.md: written\n{path}: unchanged, 50 s, 1.3 GiB\n")
    assert bytes_of(path) == before


def test_a_notebook_without_a_card_needs_no_readme(tmp_path, pretend):
    path = small_series(tmp_path, "nothing", card="# Solutions")
    assert pretend("--cards", path)[0] == 0
    assert cells(path, "markdown")[0].source == "# Solutions"
    assert (tmp_path / "README.md").read_text() == "nothing"


def test_cards_stop_where_the_readme_has_no_row_for_a_notebook(tmp_path, pretend):
    path = small_series(tmp_path, README.replace("[zero](notebooks/0.ipynb)", "zero"))
    before = bytes_of(path)
    assert pretend("--cards", path) == (1, f"error: no table in README.md links to {path}\n")
    assert bytes_of(path) == before
    (tmp_path / "README.md").unlink()
    assert pretend("--cards", path)[0] == 1


def test_a_row_of_the_readme_is_brought_up_to_date_in_its_columns():
    costs = {"time": "48 s", "memory": "1.2 GiB"}
    once = table_with(README, "(notebooks/0.ipynb)", costs)
    assert table_with(once, "(notebooks/0.ipynb)", costs) == once
    twice = table_with(once, "(notebooks/0.ipynb)", {"time": "9 s", "memory": "2 GiB"})
    assert twice == once.replace("| 48 s | 1.2 GiB |", "| 9 s | 2 GiB |")
    short_row = once.replace("| nothing yet | | |", "| nothing yet |")
    assert table_with(short_row, "(notebooks/0.ipynb)", costs) == once


BLOCK = "import os, subprocess, sys, time; x = b'x' * 300 * 2**20; "


@pytest.mark.parametrize(
    "code",
    [
        BLOCK + "time.sleep(0.5)",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])",
        pytest.param(
            BLOCK + "os.fork(); time.sleep(0.5)",
            marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
        ),
    ],
    ids=["its own", "of its child", "shared with its child"],
)
def test_memory_of_a_process_and_its_children_counts_once(code):
    words = [sys.executable, "-c", code, BLOCK + "time.sleep(0.5)"]
    seconds, memory = measure(lambda: subprocess.run(words, check=True))
    assert 0.5 < seconds < 30
    assert 300 < memory * 2**10 < 400
