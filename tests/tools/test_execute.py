"""The setup cell, wherever a notebook is opened, and `tools.execute`: stable bytes, real costs."""

import ast
import json
import multiprocessing
import os
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import kernels
import nbformat
import pytest

from tools import execute
from tools import main as run_tool
from tools.execute import (
    MEASURED,
    METADATA,
    ROOT,
    TAG,
    all_notebooks,
    blur,
    hashes,
    measure,
    sanitize_rules,
    setup_source,
)

pytestmark = pytest.mark.dev

# The setup cell

FORGET = """import sys; from pathlib import Path
sys.path[:] = [p for p in sys.path if not p or not Path(p, 'vit_helpers').exists()]"""


def python(code, cwd, *paths):
    """Run code in a fresh process in a folder; vit_helpers is only there or at these paths."""
    forget = f"{FORGET} + {list(map(str, paths))}\n"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", forget + code], cwd=cwd, env=env, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A folder with the contents of the wheel, as pip would install it, and nothing else"""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
    )
    with zipfile.ZipFile(*folder.glob("*.whl")) as file:
        file.extractall(folder / "site")
    return folder / "site"


WHERE = "\nimport vit_helpers; print(vit_helpers.__file__)"


@pytest.mark.parametrize("folder", [".", "notebooks", "notebooks/further", "notebooks/solutions"])
def test_setup_finds_the_clone_without_installing(folder):
    done = python(f"{setup_source('')}\n{setup_source('')}{WHERE}", ROOT / folder)
    assert (
        ROOT / folder / done.stdout.strip()
    ).resolve() == ROOT / "vit_helpers" / "__init__.py", done.stderr


def test_setup_prefers_the_clone_of_the_notebook_to_an_installed_package(wheel):
    done = python(setup_source("") + WHERE, ROOT / "notebooks", wheel)
    assert done.stdout.strip() == str(ROOT / "vit_helpers" / "__init__.py"), done.stderr


def test_the_vit_without_libraries_finds_its_digits_in_the_wheel(wheel, tmp_path):
    code = (
        "from vit_helpers.microvit.microvit import read_digits\nprint(len(read_digits()['test']))"
    )
    done = python(code, tmp_path, wheel)
    assert done.stdout == "360\n", done.stderr
    assert (wheel / "vit_helpers" / "microvit" / "reference.txt").is_file()


def test_setup_finds_the_installed_package(wheel, tmp_path):
    for address in ("", "https://nowhere.invalid"):  # nothing is fetched
        done = python(setup_source(address) + WHERE, tmp_path, wheel)
        assert done.stdout.strip() == str(wheel / "vit_helpers" / "__init__.py"), done.stderr


def test_setup_says_what_to_do_when_nothing_is_there(tmp_path):
    done = python(setup_source(""), tmp_path)
    assert (
        "AssertionError: not found: run this in the repository or pip install vit_helpers"
        in done.stderr
    )


@pytest.mark.parametrize("address", ["", "https://github.com/a/b"])
@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "2")])
def test_setup_chooses_one_thread_before_torch_is_imported(monkeypatch, address, given, threads):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    first = "assert 'torch' not in sys.modules"
    count = f"{first}; import torch; print(torch.get_num_threads())"
    done = python(f"{setup_source(address)}\n{count}", ROOT)
    assert done.stdout.strip() == threads, done.stderr


def test_setup_is_short_and_fetches_the_package_by_its_address_and_tag_alone():
    local, published = (
        setup_source(address).splitlines() for address in ("", "https://github.com/a/b")
    )
    assert len(local) <= 9 and published[: len(local) - 1] == local[:-1]
    assert len(published) - len(local) + 1 <= 8
    text = "\n".join(published)
    assert f'"git+https://github.com/a/b@{TAG}"' in text and '"--no-deps"' in text
    assert not re.search(r'"-e"|editable|vit-helpers|"vit_helpers[^"]', text)


def imports():
    """[[module, name or None], ...]: all that the cells of all notebooks import"""
    found = set()
    for path in all_notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            for node in ast.walk(ast.parse(cell.source)) if cell.cell_type == "code" else ():
                if isinstance(node, ast.Import):
                    found |= {(alias.name, None) for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found |= {(node.module, alias.name) for alias in node.names}
    return sorted(found, key=str)


def resolve(wanted, folder, site):
    """Where the package is found in a folder, beside an installed one, and what is not found"""
    os.chdir(folder)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("tools", "vit_helpers")
    ]:
        del sys.modules[name]
    ours = [
        path for path in sys.path if any(Path(path, x).exists() for x in ("tools", "vit_helpers"))
    ]
    sys.path[:] = [*(path for path in sys.path if path and path not in ours), str(site)]
    lost = []
    for module, name in [*wanted, ("tools", None)]:
        try:
            if name and not hasattr(import_module(module), name):
                import_module(f"{module}.{name}")
            import_module(module)
        except ImportError as error:
            lost.append(str(error))
    return import_module("vit_helpers").__file__, lost


def test_every_import_of_every_notebook_is_in_the_wheel_and_tools_are_not(wheel, tmp_path):
    assert sum(module.startswith("vit_helpers") for module, _ in imports()) > 100
    with multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn").Pool(
        1
    ) as pool:
        found, lost = pool.apply(resolve, (imports(), tmp_path, wheel))
    assert (found, lost) == (
        str(wheel / "vit_helpers" / "__init__.py"),
        ["No module named 'tools'"],
    )


# Executing


@pytest.fixture(scope="module", autouse=True)
def no_other_kernels():
    """All processes that this one has started are measured: not the one that forks kernels."""
    kernels.pytest_unconfigure()


def small_notebook(path, *sources, **metadata):
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, metadata=metadata) for source in sources]
    )
    nbformat.write(book, path)
    return path


@pytest.fixture
def executed(capsys):
    """Run `tools.execute` with these words: its status, what it printed, and its errors"""

    def run(*words):
        status = run_tool(execute, [*map(str, words)])
        return status, *capsys.readouterr()

    return run


def test_it_writes_once_and_then_leaves_every_byte(tmp_path, executed):
    exercise = {"level": 2, "minutes": 10, "all_or_nothing": False}
    code = "import time; print(f'took {time.perf_counter()} s')"
    path = small_notebook(tmp_path / "0.ipynb", code, "1 + 1", exercise=exercise)
    assert "0.ipynb: written, " in executed(path)[1]
    first = path.read_bytes()
    book = json.loads(first)
    assert [cell["execution_count"] for cell in book["cells"]] == [1, 2]
    assert [cell["metadata"] for cell in book["cells"]] == [{"exercise": exercise}] * 2
    assert book["metadata"].keys() == METADATA.keys() | {"executed"} and b"timing" not in first
    assert "unchanged" in executed(path)[1]
    assert path.read_bytes() == first


def test_outputs_are_stored_together_or_not_at_all(tmp_path, executed):
    first = "import time; print(f'took {time.perf_counter()} s')"
    path = small_notebook(tmp_path / "0.ipynb", first, "import random; x = 1; print('two')")
    executed(path)
    took = nbformat.read(path, as_version=4).cells[0].outputs
    # the other cell: it prints the same
    path.write_text(path.read_text().replace("x = 1", "x = 2"))
    assert "0.ipynb: written" in executed(path)[1]
    assert nbformat.read(path, as_version=4).cells[0].outputs != took


PICTURE = "from IPython.display import Image; Image(b'one', format='png')"


def test_hashes_tell_what_was_changed_after_the_run(tmp_path, executed):
    path = small_notebook(tmp_path / "0.ipynb", "# setup", PICTURE, "print('three')", "x = 3 - 1")
    book = nbformat.read(path, as_version=4)
    book.cells[0].metadata["tags"] = ["setup"]
    nbformat.write(book, path)
    executed(path)
    text = path.read_text()
    changes = [
        ("b25l", "dHdv", {"outputs"}),
        ('"three\\n"', '"four\\n"', {"outputs"}),
        ("3 - 1", "4 - 2", {"code"}),
    ]
    for old, new, parts in [*changes, ("# @title Setup", "# published", set())]:
        assert text.count(old) == 1
        changed = nbformat.reads(text.replace(old, new), as_version=4)
        assert {
            name
            for name, value in hashes(changed).items()
            if value != changed.metadata.executed[name]
        } == parts


def test_an_image_of_what_was_measured_stays_with_its_table():
    def cell(time, image, *tags):
        shown = [{"text": f"took {time} s"}, {"data": {"image/png": image, "text/plain": "Image"}}]
        return {"metadata": {"tags": tags}, "outputs": shown}

    rules = sanitize_rules()
    timed = "nbval-ignore-output"
    assert blur(cell(1.5, "a", timed), rules) == blur(cell(2.5, "b", timed), rules)
    assert blur(cell(1.5, "a"), rules) != blur(cell(1.5, "b"), rules)


def test_only_times_speeds_and_memory_are_blurred():
    def same(one, two):
        cells = ({"metadata": {}, "outputs": [{"text": text}]} for text in (one, two))
        return len({json.dumps(blur(cell, sanitize_rules())) for cell in cells}) == 1

    assert same(
        "40 epochs took 9.1 s, 1,200 images/s, 80 MiB",
        "40 epochs took 12 s, 980.5 images/s, 1,001 MiB",
    )
    assert not same("40 epochs took 9.1 s", "41 epochs took 9.1 s")
    assert not same("accuracy 0.991", "accuracy 0.992")
    assert not same("16 squares", "17 squares")


def test_a_notebook_that_fails_stays_as_it_was_and_the_next_one_runs(tmp_path, executed):
    lines = ["1 / 0", "import os; os._exit(1)", "print('one')"]
    *fail, fine = (small_notebook(tmp_path / f"{n}.ipynb", line) for n, line in enumerate(lines))
    fail.append(tmp_path / "no_json.ipynb")
    fail[-1].write_text("no JSON")
    before = [path.read_bytes() for path in fail]
    status, out, err = executed(*fail, fine)
    assert status == 1 and "Traceback" not in err.partition(str(fail[1]))[2]
    assert f"{fail[0]}: failed, left as it was" in err and "ZeroDivisionError" in err
    assert (
        f"{fail[1]}: failed, left as it was" in err
        and f"{fail[2]}: failed, left as it was\nNotebook does not" in err
    )
    assert f"{fine}: written" in out and [path.read_bytes() for path in fail] == before
    status, out, err = executed(tmp_path / "none.ipynb")
    assert (
        (status, out) == (1, "")
        and err.startswith("error: ")
        and str(tmp_path / "none.ipynb") in err
    )


def test_nbval_notices_a_changed_output(tmp_path, executed):
    path = small_notebook(tmp_path / "0.ipynb", "print('same')", "print('one')")
    assert executed(path)[0] == 0
    path.write_text(path.read_text().replace("one\\n", "two\\n"))
    words = [
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "--nbval-current-env",
        path,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout


# What a notebook costs: always measured, written with --cards

CARD = """# A title

| what it costs | |
|---|---|
| time and memory | seconds, under 1 GB |
| download | nothing |
"""
TIMED_CARD = CARD + "| your time | unknown |\n\n" + "word " * 1582
README = """The [first](notebooks/0.ipynb) in prose.

| [![one](images/0.png)](notebooks/0.ipynb) | [![two](images/1.png)](notebooks/1.ipynb) | |
|---|---|---|
| zero | one | two |

| | you build | time | memory |
|---|---|---|---|
| [zero](notebooks/0.ipynb) ([solutions](notebooks/solutions/0.ipynb)) | a \\| b | | |
| one | nothing yet | | |
"""


def small_series(folder, readme=README, card=CARD):
    """A notebook with a card that holds 300 MiB for half a second, beside a README.md"""
    (folder / "notebooks").mkdir()
    (folder / "README.md").write_text(readme)
    path = small_notebook(
        folder / "notebooks" / "0.ipynb", "import time", "x = b'x' * 300 * 2**20; time.sleep(0.5)"
    )
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_markdown_cell(card))
    nbformat.write(book, path)
    return path


def card_of(path):
    return nbformat.read(path, as_version=4).cells[0].source


def bytes_of(path):
    return path.read_bytes(), path.parents[1].joinpath("README.md").read_bytes()


@pytest.fixture
def pretend(monkeypatch, executed):
    """Execute as if it had measured these costs, with no kernel: its status, and what it printed"""

    def run(*words, costs=(47.6, 1.234)):
        monkeypatch.setattr("tools.execute.measure", lambda work: costs)
        status, out, err = executed(*words)
        return status, out + err

    return run


def test_cards_measure_a_notebook_and_write_what_it_cost(tmp_path, executed):
    path = small_series(tmp_path)
    _, out, _ = executed("--cards", path)
    seconds, memory = re.search(r"0.ipynb: written, (\S+ s), (\S+ GiB)\n", out).groups()
    assert 0.5 < float(seconds.removesuffix(" s")) < 100
    assert 0.3 < float(memory.removesuffix(" GiB")) < 0.6  # a kernel alone needs some 0.1 GiB
    card = MEASURED.search(card_of(path))
    assert card.groups() == (seconds, memory)
    assert card_of(path) == CARD.replace("| time and memory | seconds, under 1 GB |", card.group())
    assert (tmp_path / "README.md").read_text() == README.replace(
        "b | | |", f"b | {seconds} | {memory} |"
    )


def test_without_cards_the_cost_is_printed_and_not_written(tmp_path, pretend):
    path = small_series(tmp_path)
    assert pretend(path) == (0, f"{path}: written, 48 s, 1.2 GiB\n")
    assert card_of(path) == CARD
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
    assert pretend("--cards", path, costs=(50, 1.3)) == (
        0,
        f"README.md: written\n{path}: unchanged, 50 s, 1.3 GiB\n",
    )
    assert bytes_of(path) == before


def test_a_notebook_without_a_card_needs_no_readme(tmp_path, pretend):
    path = small_series(tmp_path, "nothing", card="# Solutions")
    assert pretend("--cards", path)[0] == 0
    assert card_of(path) == "# Solutions"
    assert (tmp_path / "README.md").read_text() == "nothing"


def test_cards_are_written_before_the_readme_has_a_row_for_the_notebook(tmp_path, pretend):
    path = small_series(tmp_path, README.replace("[zero](notebooks/0.ipynb)", "zero"))
    readme = (tmp_path / "README.md").read_text()
    assert pretend("--cards", path) == (0, f"{path}: written, 48 s, 1.2 GiB\n")
    assert MEASURED.search(card_of(path)).groups() == ("48 s", "1.2 GiB")
    assert (tmp_path / "README.md").read_text() == readme


def test_cards_say_how_long_the_page_takes(tmp_path, pretend):
    readme = README.replace("a \\| b | | |", "a \\| b | 1+2 | | |")
    path = small_series(tmp_path, readme, TIMED_CARD)
    book = nbformat.read(path, as_version=4)
    book.cells[1].metadata["exercise"] = {"minutes": 8}
    nbformat.write(book, path)
    pretend("--cards", path)
    assert "| your time | about 10 minutes to read and 8 for the exercise |" in card_of(path)
    assert "| a \\| b | 10+8 | 48 s | 1.2 GiB |\n" in (tmp_path / "README.md").read_text()
    before = bytes_of(path)
    assert "0.ipynb: unchanged, " in pretend("--cards", path)[1]
    assert bytes_of(path) == before


def test_cards_of_a_further_page_are_in_the_page_alone(tmp_path, pretend):
    core = small_series(tmp_path)
    path = core.parent / "further" / "0.ipynb"
    path.parent.mkdir()
    path.write_bytes(core.read_bytes())
    assert pretend("--cards", path) == (0, f"{path}: written, 48 s, 1.2 GiB\n")
    assert MEASURED.search(card_of(path)).groups() == ("48 s", "1.2 GiB")
    assert card_of(core) == CARD and (tmp_path / "README.md").read_text() == README


def test_every_page_is_found_and_no_copy_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    names = ["1_a", "2_b", "further/1_a", "solutions/1_a", "mine/1_a", "further/mine/1_a"]
    for name in names:
        path = tmp_path / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folder = tmp_path / "notebooks"
    assert execute.all_notebooks() == [folder / f"{name}.ipynb" for name in names[:4]]
    assert execute.lessons() == execute.all_notebooks()[:2]
    assert [execute.is_further(path) for path in execute.all_notebooks()] == [0, 0, 1, 0]


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
