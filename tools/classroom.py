"""Make a course for nbgrader from the notebooks' exercises, marked by our checks.

Writes a folder with nbgrader_config.py and, for each notebook, an assignment
source/NAME/NAME.ipynb: each exercise with what it needs from its notebook, the solution, which
nbgrader removes for the students, and a locked cell that gives the points. The exercises of a
further page come last in the assignment of its core page. Go on in that folder with `nbgrader
generate_assignment NAME`, `autograde` and `generate_feedback`. TEACHING.md says more.
"""

import argparse
import ast
import builtins
import re
import symtable
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import main
from tools.execute import METADATA, STATIC, further_pages, is_setup, lessons, solutions
from vit_helpers._files import new_folder
from vit_helpers._validate import check_choice

CONFIG = "nbgrader_config.py"
SOLUTIONS = {path.name: path for path in solutions()}
PAGES = {  # with exercises: a core page and its further page, if it has one
    lesson.stem: [lesson, *(page for page in further_pages() if page.name == lesson.name)]
    for lesson in lessons()
    if lesson.name in SOLUTIONS
}
FILES = ("nbgrader_config.txt", "assignment.md", "marks.txt")
SETTINGS, ABOUT, MARKS = ((STATIC / name).read_text(encoding="utf-8") for name in FILES)
COMMON = "import math\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, help="where to make the course: a new or an empty folder"
    )
    about = f"of {', '.join(PAGES)} (default: all, which are those whose exercises have solutions)"
    parser.add_argument(
        "notebooks", nargs="*", metavar="NOTEBOOK", type=lambda word: Path(word).stem, help=about
    )


def run(args: argparse.Namespace) -> None:
    for name in args.notebooks:
        check_choice("notebook with solutions", name, PAGES)
    chosen = args.notebooks or list(PAGES)
    books = {Path("source", name, f"{name}.ipynb"): read_assignment(name) for name in chosen}
    with new_folder(args.folder.absolute()) as new:
        for path, notebook in books.items():
            (new / path).parent.mkdir(parents=True)
            nbformat.write(notebook, new / path)
        (new / CONFIG).write_text(
            SETTINGS.format(course=args.folder.resolve().name), encoding="utf-8"
        )
    for path, notebook in books.items():
        points = [
            cell.metadata.nbgrader.points
            for cell in notebook.cells
            if cell.metadata.get("nbgrader", {}).get("grade")
        ]
        print(f"{args.folder / path}: {len(points)} exercises, {sum(points)} points")
    print(f"next, in {args.folder}: nbgrader generate_assignment {chosen[0]}")


def read_assignment(name: str) -> NotebookNode:
    """The assignment of a core page, from the files of the series."""
    paths = [*PAGES[name], SOLUTIONS[f"{name}.ipynb"]]
    *pages, worked = (nbformat.read(path, as_version=4) for path in paths)
    return assignment(name, pages, worked)


class Exercise(NamedTuple):
    """One exercise: its check, the name of the answer, and its cells up to the answer."""

    check: str
    answer: str
    level: int
    prose: str  # its first cell, from the heading on
    cells: list[NotebookNode]
    # the statements of the notebook up to its heading, without those of other answers
    before: list[str]


def exercises(lesson: NotebookNode) -> list[Exercise]:
    """The exercises of a notebook: from a heading to each cell with `exercise` in its metadata."""
    found, before = list[Exercise](), list[str]()
    for number, cell in enumerate(lesson.cells):
        if cell.cell_type == "markdown" and "### Exercise" in cell.source:
            heading, so_far, prose = (
                number,
                list(before),
                cell.source[cell.source.index("### Exercise") :],
            )
        elif "exercise" in cell.metadata:
            [(check, answer)] = re.findall(r"^done = (check_\w+)\((\w+)\)", cell.source, re.M)
            level = cell.metadata["exercise"]["level"]
            found.append(
                Exercise(check, answer, level, prose, lesson.cells[heading : number + 1], so_far)
            )
        elif cell.cell_type == "code" and not is_setup(cell):
            before += statements(cell.source)
    return found


def assignment(name: str, pages: list[NotebookNode], solutions: NotebookNode) -> NotebookNode:
    """Make a notebook for nbgrader's folder `source`, from pages and their solutions."""
    setup = next(cell.source for cell in pages[0].cells if is_setup(cell))
    cells = [
        new_markdown_cell(ABOUT.format(name=name).strip()),
        new_code_cell(setup),
        new_code_cell(COMMON),
    ]
    for each in pages:
        cells += exercise_cells(each, solutions)
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number:03d}"
    return new_notebook(cells=cells, metadata=METADATA)


def exercise_cells(lesson: NotebookNode, solutions: NotebookNode) -> list[NotebookNode]:
    """The cells of all exercises of a page, which knows no names of other pages."""
    cells, known = list[NotebookNode](), names(COMMON)[0]
    for exercise in exercises(lesson):
        points = f"{exercise.level} point{'s' * (exercise.level > 1)}"
        prose = re.sub(r"(\*Level [^*]+)\.\*", rf"\1, {points}.*", exercise.prose)
        cells.append(new_markdown_cell(prose.removeprefix("#")))  # one level up, under the title
        if along := comes_along(exercise, known):
            cells.append(new_code_cell(page(along)))
        for cell in exercise.cells[1:-1]:
            cells.append(
                (new_code_cell if cell.cell_type == "code" else new_markdown_cell)(cell.source)
            )
        known |= names(page([*along, *code(exercise.cells)]))[0]
        grade_id = exercise.check.removeprefix("check_")
        cells.append(
            graded(new_code_cell(solved(exercise, solutions, known)), grade_id, solution=True)
        )
        cells.append(
            graded(
                new_code_cell(marks(exercise, points)),
                f"{grade_id}-marks",
                grade=True,
                points=exercise.level,
            )
        )
    return cells


def graded(
    cell: NotebookNode, grade_id: str, grade: bool = False, solution: bool = False, **points: int
) -> NotebookNode:
    kind = {"grade": grade, "solution": solution, "locked": grade, "task": False}
    cell.metadata["nbgrader"] = kind | {"grade_id": grade_id, "schema_version": 3} | points
    return cell


def comes_along(exercise: Exercise, known: set[str]) -> list[str]:
    """The statements that an exercise needs from its notebook, for its code and its prose."""
    _, wanted = names(page(code(exercise.cells)))
    tools = [text for text in exercise.before if re.match(r"import |from |def |class |@", text)]
    named = re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", exercise.prose)))
    wanted |= (names(page(tools))[0] & set(named)) - {exercise.answer}
    return needed(wanted - known, exercise.before, known)


def solved(exercise: Exercise, solutions: NotebookNode, known: set[str]) -> str:
    """The cell of the answer: the stub, and between nbgrader's marks the solution."""
    stub, done = re.split(r"^(?=done = )", exercise.cells[-1].source, flags=re.M)
    before: list[str] = []
    for source in code(solutions.cells):
        if worked := re.search(rf"^assert {exercise.check}\((\w+)\)", source, re.M):
            own = re.sub(
                rf"from \S+ import {exercise.check}\n+", "", source[: worked.start()]
            ).strip()
            alias = [] if worked[1] == exercise.answer else [f"{exercise.answer} = {worked[1]}"]
            solution = page([*needed(names(own)[1] - known, before, known), own, *alias])
            return "\n".join(
                [stub.rstrip(), "", "### BEGIN SOLUTION", solution, "### END SOLUTION", done]
            )
        before += statements(source)
    raise ValueError(f"no solution is worked out for {exercise.check}")


def marks(exercise: Exercise, points: str) -> str:
    """The cell that gives the points; its last line is a number, which nbgrader takes for them."""
    [module] = re.findall(
        rf"^from (\S+) import .*\b{exercise.check}\b", "\n".join(code(exercise.cells)), re.M
    )
    share = f"_share(_check, {exercise.answer})"
    if exercise.cells[-1].metadata["exercise"][
        "all_or_nothing"
    ]:  # the given code has some ideas right already
        share = f"({share} == 1)"
    return MARKS.format(
        module=module, worth=f"{exercise.level} * {share}", exercise=exercise, points=points
    ).rstrip()


def code(cells: Iterable[NotebookNode]) -> list[str]:
    """The sources of code cells, without that of the setup cell."""
    return [cell.source for cell in cells if cell.cell_type == "code" and not is_setup(cell)]


def statements(source: str) -> list[str]:
    """The statements of a cell, one text each."""
    lines, nodes = source.splitlines(), ast.parse(source).body
    starts = [
        min([node.lineno, *(line.lineno for line in getattr(node, "decorator_list", []))])
        for node in nodes
    ]
    return [
        "\n".join(lines[start - 1 : node.end_lineno])
        for start, node in zip(starts, nodes, strict=True)
    ]


def names(source: str) -> tuple[set[str], set[str]]:
    """The names that code binds for what comes after, and those that it needs from before."""
    top = symtable.symtable(source, "cell", "exec")
    binds = {
        name.get_name() for name in top.get_symbols() if name.is_assigned() or name.is_imported()
    }
    needs, tables = set[str](), [top]
    for table in tables:
        tables += table.get_children()
        found = (
            name
            for name in table.get_symbols()
            if name.is_referenced() and (table is top or name.is_global())
        )
        needs.update(name.get_name() for name in found)
    return binds, needs - binds - set(dir(builtins))


def page(texts: Iterable[str]) -> str:
    """Pieces of code as one: two empty lines around those of several lines."""
    loose = "\n".join(f"\n\n{text}\n\n" if "\n" in text else text for text in texts)
    return re.sub(r"\n{3,}", "\n\n\n", loose).strip()


def needed(wanted: set[str], before: list[str], known: set[str]) -> list[str]:
    """Those of the statements before that bind the wanted names, and what these need in turn."""
    found: list[str] = []
    for text in reversed(before):
        binds, needs = names(text)
        if binds & wanted:
            wanted = (wanted - binds) | (needs - known)
            found.insert(0, text)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
