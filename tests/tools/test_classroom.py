"""A course for nbgrader, from source to marks: what students are given, and what they get."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from folding import folded

from tools import classroom
from tools import main as run_tool
from tools.classroom import assignment
from vit_helpers.checks.engine import report
from vit_helpers.checks.patches import check_patchify
from vit_helpers.checks.training import check_reading

pytestmark = pytest.mark.classroom

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
TAUGHT = [
    path.stem
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    if (NOTEBOOKS / "solutions" / path.name).is_file()
]
ONE = "01_patches"

needs_nbgrader = pytest.mark.skipif(
    importlib.util.find_spec("nbgrader") is None,
    reason="no nbgrader here: the extra [classroom] brings it",
)
every = folded("name", TAUGHT)


def read(path):
    return nbformat.read(path, as_version=4)


def code(path):
    return [cell.source for cell in read(path).cells if cell.cell_type == "code"]


def book(folder, step, name):
    return folder / step / name / f"{name}.ipynb"


def graded(notebook):
    """The cells that nbgrader knows, by their names"""
    return {
        cell.metadata.nbgrader.grade_id: cell
        for cell in notebook.cells
        if "nbgrader" in cell.metadata
    }


# What `share` counts


@pytest.mark.parametrize(("right", "share"), [(3, 1), (2, 2 / 3), (0, 0)])
def test_a_share_counts_the_ideas_before_the_first_slip(right, share, capsys):
    def idea(number):
        def tried(answer):
            sys.stderr.write("a warning\n")
            report.reject_if(answer() <= number, "slipped")

        return str(number), tried

    def check(answer):
        return report.run_check("three", answer, [idea(number) for number in range(3)])

    assert report.share(check, lambda: right) == share
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.count("[v]") == right


def test_a_share_of_lines_that_are_no_row_of_ideas():
    runs = ["rate too high", "too few images", "nothing wrong", "labels shuffled", "rate too low"]
    assert report.share(check_reading, dict(zip("ABCDE", runs, strict=True))) == 1
    readings = dict(zip("ABCDE", [*runs[:3], "rate too low", ...], strict=True))
    assert report.share(check_reading, readings) == 3 / 5
    assert report.share(check_reading, dict.fromkeys("ABCDE", ...)) == 0


def test_nothing_is_gained_by_a_check_inside_an_answer():
    from vit_helpers.patches import patchify

    def sly(images, patch_size):
        check_patchify(patchify)
        return None

    assert report.share(check_patchify, sly) == 0
    assert report.share(check_patchify, 3) == 0


def test_an_interrupted_answer_gets_no_share():
    def endless(images, patch_size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.share(check_patchify, endless)


# All notebooks: what is released, and what it is worth


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Runs Python in a folder, in the environment, with Jupyter's folders away from the user's"""
    home = tmp_path_factory.mktemp("home")
    names = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "MPLCONFIGDIR",
    )
    scripts = sysconfig.get_path("scripts")  # nbgrader calls its alembic by name
    environment = os.environ | {name: str(home / name) for name in names}
    environment |= {
        "PATH": scripts + os.pathsep + os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }

    def run(*words, cwd):
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


def release_all(folder):
    """Release every assignment of a course; the marks of its solutions and of its stubs, without a
    kernel

    This file, run by itself, does it: nbgrader and torch are loaded once, in a process of their
    own.
    """
    from nbgrader.apps import NbGraderAPI
    from nbgrader.nbgraderformat import MetadataValidator
    from nbgrader.validator import Validator
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader(classroom.CONFIG, path=str(folder)).load_config()
    config.CourseDirectory.root = str(folder)
    nbgrader, found = NbGraderAPI(config=config), {}
    for name in TAUGHT:
        released = nbgrader.generate_assignment(name)
        assert released["success"], released["log"]
        books = [read(book(folder, step, name)) for step in ("source", "release")]
        for each in books:
            MetadataValidator().validate_nb(each)
        found[name] = [run_cells(each.cells) for each in books]
    return found, Validator().validate(str(book(folder, "source", ONE)))


def run_cells(cells):
    """Run code cells one after another; what those gave that count"""
    space, found = {"__name__": "__main__"}, {}
    for cell in cells:
        if cell.cell_type != "code":
            continue
        counts, body = cell.metadata.get("nbgrader", {}).get("grade"), ast.parse(cell.source).body
        last = ast.Expression(body.pop().value) if counts else None
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(ast.Module(body, []), "<cell>", "exec"), space)
            if counts:
                found[cell.metadata.nbgrader.grade_id] = eval(
                    compile(last, "<cell>", "eval"), space
                )
    return found


@pytest.fixture(scope="module")
def course(tmp_path_factory, python):
    """A course of all notebooks, and what `release_all` found in it"""
    folder = tmp_path_factory.mktemp("all") / "course"
    assert run_tool(classroom, [str(folder)]) == 0
    done = python(__file__, folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder, *json.loads(done.stdout.splitlines()[-1])


def pages(name):
    """A core page and its further page, if it has one"""
    paths = [NOTEBOOKS / folder / f"{name}.ipynb" for folder in ("", "further")]
    return [path for path in paths if path.is_file()]


def asked(name):
    """The cells for the answers in the pages of a notebook, by the name of the check"""
    found = (
        (re.search(r"^done = check_(\w+)\(", source, re.M), source)
        for path in pages(name)
        for source in code(path)
    )
    return {done[1]: source for done, source in found if done}


@needs_nbgrader
@every
def test_every_solution_gets_all_points_and_every_stub_none(course, name):
    folder, found, _ = course
    cells = graded(read(book(folder, "source", name)))
    marks = {key: cell.metadata.nbgrader for key, cell in cells.items()}
    points = {key: mark.points for key, mark in marks.items() if mark.grade}
    assert found[name] == [points, dict.fromkeys(points, 0)]


@needs_nbgrader
@every
def test_every_exercise_is_there_with_the_stub_of_the_notebook(course, name):
    cells = graded(read(book(course[0], "release", name)))
    lesson = [cell for path in pages(name) for cell in read(path).cells]
    levels = [cell.metadata["exercise"]["level"] for cell in lesson if "exercise" in cell.metadata]
    assert [
        cell.metadata.nbgrader.points for cell in cells.values() if cell.metadata.nbgrader.grade
    ] == levels
    for key, source in asked(name).items():
        assert re.sub(r"\n+", "\n", cells[key].source) == re.sub(r"\n+", "\n", source)
        assert (
            cells[key].metadata.nbgrader.solution and cells[f"{key}-marks"].metadata.nbgrader.locked
        )
    assert len(cells) == 2 * len(asked(name))


def test_exercises_of_a_further_page_come_last_and_know_nothing_of_the_core_page():
    core, further = (
        [cell for cell in read(path).cells if "exercise" in cell.metadata]
        for path in pages("03_attention")
    )
    lesson, beyond, solutions = (
        read(NOTEBOOKS / folder / "03_attention.ipynb") for folder in ("", "further", "solutions")
    )
    names = [*graded(assignment("03_attention", [lesson, beyond], solutions))][::2]
    assert len(names) == len(core) + len(further) and further
    assert names[len(core) :] == [
        re.search(r"^done = check_(\w+)\(", cell.source, re.M)[1] for cell in further
    ]
    for page in (lesson, beyond):  # both use names that only their own cells define
        first = next(cell for cell in page.cells if "exercise" in cell.metadata)
        first.source = first.source.replace("\n\n\ndone", "\n\n\nprint(planted)\ndone")
        page.cells.insert(2, nbformat.v4.new_code_cell(f"planted = {len(page.cells)}"))
    text = "\n".join(cell.source for cell in assignment("03", [lesson, beyond], solutions).cells)
    assert len(re.findall(r"^planted = \d+$", text, re.M)) == 2


@needs_nbgrader
def test_nbgrader_finds_nothing_wrong_with_the_solutions(course):
    assert course[2] == {}


def lines(*sources):
    """The lines of some length, imports left out"""
    found = {line.strip() for source in sources for line in source.splitlines()}
    return {line for line in found if len(line) > 12 and not line.startswith(("import ", "from "))}


def definitions(*sources):
    """The functions and classes, as Python reads them"""
    kinds = ast.FunctionDef, ast.ClassDef
    return {
        ast.dump(node)
        for source in sources
        for node in ast.parse(source).body
        if isinstance(node, kinds)
    }


@needs_nbgrader
@every
def test_students_are_given_neither_solutions_nor_the_museum_of_wrong_answers(course, name):
    folder, *_ = course
    solutions, museum = (
        code(NOTEBOOKS / "solutions" / f"{name}.ipynb"),
        [*ROOT.glob("tests/checks/**/*.py"), *ROOT.glob("tests/check_cases/*.py")],
    )
    secret = lines(*solutions, *(path.read_text(encoding="utf-8") for path in museum))
    shown = [source for path in pages(name) for source in code(path)]
    secret = (secret - lines(*shown)) | definitions(*solutions)

    def seen(*sources):
        return (lines(*sources) | definitions(*sources)) & secret

    released = book(folder, "release", name)
    assert seen(*code(released)) == set()
    # nor in the prose
    assert lines(*(cell.source for cell in read(released).cells)) & secret == set()
    for key, cell in graded(read(book(folder, "source", name))).items():
        # who looks so finds every solution
        assert bool(seen(cell.source)) == cell.metadata.nbgrader.solution, key


@needs_nbgrader
def test_students_are_given_notebooks_only_and_those_without_outputs(course):
    folder, *_ = course
    files = sorted(
        path.relative_to(folder / "release")
        for path in (folder / "release").rglob("*")
        if path.is_file()
    )
    assert files == [Path(name, f"{name}.ipynb") for name in TAUGHT]
    for name in TAUGHT:
        text = book(folder, "release", name).read_text(encoding="utf-8")
        assert not re.search(r"solutions|worked out|SOLUTION|\.\./|tests/", text)
        assert not any(cell.get("outputs") for cell in read(book(folder, "release", name)).cells)


# One notebook: handed in, marked and given back

ANSWERS = {
    "half": {
        "num_patches": "def num_patches(H, W, P):\n    return (H // P) * (W // P)",  # and no error
        "patchify": "def patchify(images, P):\n"
        "    B, C, H, W = images.shape\n"
        "    return images.reshape(B, (H // P) * (W // P), -1)",  # only the shape is right
        "unpatchify": "def unpatchify(patches, patch_size, image_size):\n    return None",
        "fixed": "fixed = cut",  # as it was
    },
    "crashes": {
        "num_patches": "raise SystemExit",
        "unpatchify": "def unpatchify(patches, patch_size, image_size):\n"
        "    while True:\n"
        "        __import__('time').sleep(0.1)",
        "to_linear": "def to_linear(conv):\n    raise RuntimeError('no idea')",
    },
    "kills": {"patchify": "import os\n\nos._exit(1)"},
}


def solved(cell):
    """The worked solution in a cell of the source"""
    return re.search(r"### BEGIN SOLUTION\n(.*)\n### END SOLUTION", cell.source, re.S)[1]


def answer(notebook, **answers):
    """Write these answers in the places of the stubs"""
    for key, text in answers.items():
        cell = graded(notebook)[key]
        cell.source = re.sub(
            r"\n\n\ndef .*(?=\n\n\ndone)",
            lambda stub, text=text: "\n\n\n" + text,
            cell.source,
            flags=re.S,
        )


def hand_in(folder, student, notebook):
    path = folder / "submitted" / student / ONE / f"{ONE}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    return path.parent


def cheat(notebook, right):
    """Everything a student may try; the answer in a deleted cell's exercise is right"""
    cells = graded(notebook)
    answer(
        notebook,
        num_patches="from vit_helpers.checks import patches\n"
        "from vit_helpers.checks.engine import report\n\n"
        "patches.check_num_patches = report.run_check = lambda *a: 1\n"
        "report.try_idea = report.share = lambda *a: 1\n"
        "check_num_patches = _check = _share = print = num_patches = lambda *a: True",
        to_linear=right["to_linear"],
    )
    cells["num_patches"].source += "\n\ndone = True\nget_ipython().ast_node_interactivity = 'none'"
    cells["patchify-marks"].source = "2"
    cells["patchify-marks"].metadata.nbgrader.points = 200
    cells["unpatchify-marks"].metadata["tags"] = ["skip-execution"]
    notebook.cells.remove(cells["to_linear-marks"])
    cells["to_linear"].source += "\n\nget_ipython().ast_node_interactivity = 'all'"
    cells["fixed"].source += "\n\nget_ipython().display_formatter.active_types = []"
    cells["fixed-marks"].cell_type = "markdown"


EXPECTED = {  # num_patches, patchify, unpatchify, to_linear, fixed
    "right": [1, 2, 2, 2, 3],
    "half": [0.5, 0.5, 0, 0, 0],
    "crashes": [0, 2, 0, 0, 3],
    "cheats": [0, 0, 0, 2, 0],
    "empty": [0, 0, 0, 0, 0],
    "kills": [0, 0, 0, 0, 0],
}


@pytest.fixture(scope="module")
def marked(tmp_path_factory, python):
    """A course of one notebook that a class has handed in and nbgrader marked; and what it said"""
    folder = tmp_path_factory.mktemp("one") / "course"
    assert run_tool(classroom, [str(folder), ONE]) == 0
    # 10 s for the endless answer; the import of torch may take longer
    with (folder / classroom.CONFIG).open("a") as config:
        config.write(
            '\nc.Execute.timeout_func = lambda cell: 10 if "unpatchify)" in cell.source else 300\n'
        )
    done = python("-m", "nbgrader", "generate_assignment", ONE, cwd=folder)
    assert done.returncode == 0, done.stderr
    right = {
        key: solved(cell)
        for key, cell in graded(read(book(folder, "source", ONE))).items()
        if "-" not in key
    }
    for student in EXPECTED:
        notebook = read(book(folder, "release", ONE))
        kept = right if student in ("right", "crashes", "kills") else {}
        answer(notebook, **kept | ANSWERS.get(student, {}))
        if student == "crashes":
            notebook.cells[1].source = "raise RuntimeError('at the top')"
        if student == "cheats":
            cheat(notebook, right)
        beside = hand_in(folder, student, notebook)
        if student == "cheats":
            (beside / "vit_helpers" / "checks" / "engine").mkdir(parents=True)
            for name in (
                "torch.py",
                "vit_helpers/vit.py",
                "vit_helpers/__init__.py",
                "vit_helpers/checks/__init__.py",
                "vit_helpers/checks/engine/__init__.py",
            ):
                (beside / name).write_text("")
            for name in ("engine/report", "patches"):
                text = "def __getattr__(name):\n    return lambda *a: 1"
                (beside / "vit_helpers" / "checks" / f"{name}.py").write_text(text)
    return folder, python("-m", "nbgrader", "autograde", ONE, cwd=folder)


@pytest.fixture(scope="module")
def gradebook(marked):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{marked[0] / 'gradebook.db'}") as book:
        yield book


@needs_nbgrader
@pytest.mark.parametrize("student", EXPECTED)
def test_every_student_gets_the_marks(marked, gradebook, student):
    handed_in = gradebook.find_submission_notebook(ONE, ONE, student)
    found = {grade.name.removesuffix("-marks"): grade.score for grade in handed_in.grades}
    assert found == dict(zip(asked(ONE), EXPECTED[student], strict=True)), marked[1].stderr


@needs_nbgrader
def test_a_dead_kernel_costs_its_student_alone_and_is_named(marked, gradebook):
    folder, done = marked
    assert done.returncode != 0
    assert f"There was an error processing assignment '{ONE}' for student 'kills'" in done.stderr
    assert {path.parents[1].name for path in folder.glob("autograded/*/*/*.ipynb")} == {
        *EXPECTED
    } - {"kills"}
    flagged = {name for name in EXPECTED if gradebook.find_submission(ONE, name).needs_manual_grade}
    assert flagged == {"kills"}


@needs_nbgrader
def test_code_handed_in_beside_a_notebook_is_left_behind(marked):
    folder, _ = marked
    checks = folder / "submitted" / "cheats" / ONE / "vit_helpers" / "checks"
    assert (checks / "engine" / "report.py").is_file()
    assert [path.name for path in folder.glob("autograded/cheats/**/*") if path.is_file()] == [
        f"{ONE}.ipynb"
    ]


@needs_nbgrader
def test_feedback_shows_what_slipped_and_the_marks(marked, python):
    folder, _ = marked
    done = python("-m", "nbgrader", "generate_feedback", ONE, cwd=folder)
    assert done.returncode == 0, done.stderr
    pages = {
        path.parents[1].name: path.read_text(encoding="utf-8")
        for path in folder.glob("feedback/*/*/*.html")
    }
    assert pages.keys() == {*EXPECTED} - {"kills"}
    assert "Score: 1.0 / 10.0" in pages["half"] and "Score: 10.0 / 10.0" in pages["right"]
    assert "[x] patchify: " in pages["half"] and "[ ] to_linear: not written yet" in pages["half"]


# What the command refuses


def refused(capsys, *words):
    """What it says, when it makes nothing"""
    assert run_tool(classroom, [*map(str, words)]) == 1
    captured = capsys.readouterr()
    assert (
        captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1
    )
    return captured.err


@needs_nbgrader
def test_nothing_that_stands_already_is_touched(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "mine.txt"):
        assert f"{folder} already exists and is not empty: nothing is overwritten" in refused(
            capsys, folder
        )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@needs_nbgrader
def test_a_course_is_made_once_and_then_told_how_to_go_on(tmp_path, capsys):
    assert (
        run_tool(classroom, [str(tmp_path), str(NOTEBOOKS / "03_attention.ipynb"), "11_scaling"])
        == 0
    )
    out = capsys.readouterr().out
    assert f"{book(tmp_path, 'source', '03_attention')}: 5 exercises, 9 points\n" in out
    assert out.endswith(f"next, in {tmp_path}: nbgrader generate_assignment 03_attention\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(before) == 3
    assert "already exists and is not empty: nothing is overwritten" in refused(
        capsys, tmp_path, "04_encoder"
    )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@needs_nbgrader
@pytest.mark.parametrize("word", ["12_nothing", "00_start_here"])
def test_notebooks_without_exercises_are_refused(tmp_path, capsys, word):
    says = f"unknown notebook with solutions '{word}', known: 01_patches, 02_embeddings, "
    assert says in refused(capsys, tmp_path / "course", ONE, word)
    assert not (tmp_path / "course").exists()


@needs_nbgrader
def test_a_course_that_cannot_be_made_is_told_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert "course cannot be written: " in refused(capsys, tmp_path / "file" / "course", ONE)

    def stops(notebook, path):
        write(notebook, path)
        raise KeyboardInterrupt

    write = nbformat.write
    monkeypatch.setattr(nbformat, "write", stops)
    assert run_tool(classroom, [str(tmp_path / "course"), ONE]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    monkeypatch.setattr(nbformat, "write", write)
    assert run_tool(classroom, [str(tmp_path / "course"), ONE]) == 0


@needs_nbgrader
def test_all_or_nothing_is_read_from_the_metadata(tmp_path):
    lesson, solutions = (read(NOTEBOOKS / folder / f"{ONE}.ipynb") for folder in ("", "solutions"))
    for part in (False, True):
        for cell in lesson.cells:
            if "exercise" in cell.metadata:
                cell.metadata["exercise"] |= {"level": 3, "all_or_nothing": not part}
        cells = graded(assignment(ONE, [lesson], solutions)).values()
        worth = [cell.source.splitlines()[-1] for cell in cells if cell.metadata.nbgrader.grade]
        assert len(worth) == 5 and all(
            line.startswith("3 * ") and ("== 1" in line) is not part for line in worth
        )


def test_a_course_is_made_without_nbgrader_too(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    assert run_tool(classroom, [str(tmp_path), ONE]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {classroom.CONFIG, "source"}


if __name__ == "__main__":
    print(json.dumps(release_all(Path(sys.argv[1]))))
