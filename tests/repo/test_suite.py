"""The suite's own settings: what it leaves out, starts with, and does not compare."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from folding import folded
from pages import name_of

from tests.conftest import LONGEST
from tools.execute import all_notebooks, blur, code_cells, sanitize_rules

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OPTIONS = PROJECT["tool"]["pytest"]["ini_options"]
MARKERS = {line.partition(":")[0] for line in OPTIONS["markers"]}


def test_the_longest_files_are_there():
    assert all((ROOT / path).is_file() for path in LONGEST)


def test_what_the_default_command_leaves_out_is_what_ci_adds():
    left_out = OPTIONS["addopts"][OPTIONS["addopts"].index("-m") + 1]
    assert set(left_out.removeprefix("not ").split(" and not ")) == MARKERS
    ran = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    added = re.findall(r'^ *\.venv/bin/pytest -m "([^"]*)"', ran, re.M)
    assert sorted(" or ".join(added).split(" or ")) == sorted(MARKERS)
    text = (ROOT / "tools" / "README.md").read_text(encoding="utf-8")
    assert all(f'pytest -m "{markers}"\n' in text for markers in added)


# What has no test file of its own name: where it is tested, and why there
ELSEWHERE = {
    "vit_helpers/__init__": ("repo/test_layout", "names that are imported when they are used"),
    "vit_helpers/cli/predictions": ("cli/test_predict", "what `predict` reads and says"),
    "vit_helpers/live/explorer": ("live/test_widget", "the parts are tested as widgets"),
    "vit_helpers/live/picker": ("live/test_widget", "the same"),
    "vit_helpers/plots/vit_attention": ("plots/test_vit", "one of the pictures of the model"),
    "vit_helpers/training/cnn": ("training/test_presets", "settings choose it"),
    "vit_helpers/training/evidence": ("training/test_diagnosis", "evidence is for the diagnosis"),
    "tools/experiments/microvit": ("microvit/test_microvit", "beside the file that it measures"),
    "tools/experiments/microvit_reference": ("microvit/test_microvit", "the same"),
    "tools/experiments/localization": ("tools/test_pretrain", "it starts from what that stores"),
    "tools/experiments/transfer": ("tools/test_pretrain", "the same"),
    "tools/experiments/strokes_choosing": (
        "tools/experiments/test_strokes",
        "all sets side by side",
    ),
}
# Tests every check, and with them the engine, by the answers in tests/check_cases
EXERCISES = "checks/test_every_exercise"


def modules_with_code():
    """Modules of the package and the tools that define functions or classes, from the root"""
    for folder in ("vit_helpers", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body):
                yield path.relative_to(ROOT).with_suffix("").as_posix()


def guessed(module):
    """Where a reader of a module looks for its tests; of a whole folder, under the folder's name"""
    folder, _, name = module.removeprefix("vit_helpers/").rpartition("/")
    name = folder if name == "__init__" else name.lstrip("_")
    return f"{folder}/test_{name}".lstrip("/")


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("vit_helpers/vit", "test_vit"),
        ("vit_helpers/_files", "test_files"),
        ("vit_helpers/data/images", "data/test_images"),
        ("vit_helpers/cli/__init__", "cli/test_cli"),
        ("tools/experiments/speed", "tools/experiments/test_speed"),
    ],
)
def test_a_test_file_is_guessed_from_its_module(module, file):
    assert guessed(module) == file


def test_each_module_has_a_test_file_of_its_name_or_a_line_that_says_where_it_is_tested():
    tests = {
        path.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    modules = {*modules_with_code()}
    alone = {module for module in modules if guessed(module) not in tests}
    exercises = {module for module in alone if module.startswith("vit_helpers/checks/")}
    assert alone - exercises == ELSEWHERE.keys()
    assert {file for file, _ in ELSEWHERE.values()} | {EXERCISES} <= tests


def test_no_test_of_the_tools_belongs_to_the_readers_run():
    files = [*(ROOT / "tests" / "tools").rglob("test_*.py")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert len(files) > 30
    assert not [name for name, text in texts.items() if "\npytestmark = " not in text]


def test_folders_of_tests_are_those_of_the_code_and_beside_them_stand_tests_of_its_modules():
    files = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    folders = {path.parent.as_posix() for path in files} - {".", "notebooks", "repo"}
    assert all(
        (ROOT / "vit_helpers" / folder).is_dir() or (ROOT / folder).is_dir() for folder in folders
    )
    assert not {path.name for path in files if path.parent.as_posix() == "."} - {
        f"{guessed(module)}.py" for module in modules_with_code()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no kernel is forked")
@pytest.mark.parametrize(("words", "forked"), [([], True), (["-p", "no:kernels"], False)])
def test_kernels_are_forked_unless_ci_says_no(tmp_path, words, forked):
    """As `.ci/run` says it, with a worker of pytest-xdist; a forked kernel has imported torch"""
    source = f"import sys\nassert ('torch' in sys.modules) is {forked}"
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "0.ipynb")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    settings = ["-c", ROOT / "pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-n", "1", *words, "0.ipynb"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


# what Windows lacks
POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
POSIX_NAMES = {"fork", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice", "pidfd_open"}
POSIX_NAMES |= {"sched_getaffinity", "sched_setaffinity", "setsid", "statvfs", "uname", "SIGKILL"}


def run_on_import(tree):
    """The nodes of a module that run where it is imported, so not the bodies of functions"""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef):
            children = [*node.decorator_list, *node.args.defaults]
        elif isinstance(node, ast.Lambda):
            children = node.args.defaults
        waiting += children


def find_posix(code):
    """What a module needs of POSIX when it is imported"""
    for node in run_on_import(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & POSIX_MODULES
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX_MODULES:
            yield node.module
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal"):
            yield from {node.attr} & POSIX_NAMES


def test_every_file_can_be_imported_on_windows():
    folders = ("tests", "tools", "vit_helpers")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {path.name: [*find_posix(path.read_text(encoding="utf-8"))] for path in files}
    assert len(files) > 300 and not {name: uses for name, uses in found.items() if uses}


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("import resource", ["resource"]),
        ("FAULTS = {'a pipe': os.mkfifo}", ["mkfifo"]),
        ("def f(end=signal.SIGKILL): pass", ["SIGKILL"]),
        ("def f():\n    import resource\n    os.fork()\nx = lambda path: os.mkfifo(path)", []),
    ],
)
def test_what_windows_lacks_is_found_where_it_would_stop_an_import(code, uses):
    assert [*find_posix(code)] == uses


def blurred(text):
    return blur({"metadata": {}, "outputs": [{"text": text}]}, sanitize_rules())


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("largest difference: 2.1e-06", "largest difference: 0", True),
        (
            "largest difference of logits: 2.1e-06, largest 8.9",
            "largest difference of logits: 3e-07, largest 8.9",
            True,
        ),
        (
            "largest difference: 2.1e-06, largest 8.9",
            "largest difference: 2.1e-06, largest 8.8",
            False,
        ),
        ("largest difference: 2.1e-06", "largest difference: nan", False),
        ("difference 0.018", "difference 0.019", False),
    ],
)
def test_of_differences_only_the_number_is_blurred(first, second, same):
    assert (blurred(first) == blurred(second)) is same


NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")
ROUNDING = 1e-5  # float32 knows seven digits: of numbers near 1, what is smaller is rounding


def find_rounding(text, source=""):
    """Numbers in a text that another processor may print differently, unless the source says them.

    These are tiny numbers, and a zero with a sign or an exponent, as rounding leaves it.
    """

    def is_rounding(number):
        exact = "e" not in number.lower() and not number.startswith("-")
        return abs(float(number)) < ROUNDING and not (float(number) == 0 and exact)

    written = {*NUMBER.findall(source)}
    return [
        number for number in NUMBER.findall(text) if is_rounding(number) and number not in written
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("loss, difference: 5.4e-08", ["5.4e-08"]),
        ("difference 0.0000021, -1e-7", ["0.0000021", "-1e-7"]),
        ("0.0e+00 and -0.00", ["0.0e+00", "-0.00"]),
        ("0, 0.0, 1e-5, 0.000047, -0.5, 3 e-8, layer0e-8", []),
        ("with eps = 1e-6: 3e-6", ["3e-6"]),
    ],
)
def test_numbers_that_are_rounding_are_found(text, numbers):
    assert find_rounding(text, source='eps = 1e-6  # or "1e-12"') == numbers


def compared_texts(cell):
    """What nbval compares of a cell, after blurring, but for the names that checks print"""
    for output in cell.outputs:
        shown = {kind: text for kind, text in output.get("data", {}).items() if "text" in kind}
        for text in (output.get("text", ""), output.get("evalue", ""), *shown.values()):
            for pattern, replacement in sanitize_rules():
                text = pattern.sub(replacement, text)
            yield "\n".join(line for line in text.splitlines() if not line.startswith("[v] "))


@folded("path", all_notebooks(), ids=name_of)
def test_no_stored_output_that_is_compared_contains_rounding(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    compared = [
        cell for cell in cells if "nbval-ignore-output" not in cell.metadata.get("tags", [])
    ]
    found = {
        cell.id: numbers
        for cell in compared
        if (numbers := find_rounding("\n".join(compared_texts(cell)), cell.source))
    }
    assert not found, f"print a `largest difference`, which is blurred, and bound it: {found}"
