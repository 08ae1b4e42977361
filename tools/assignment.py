"""An assignment for nbgrader: the exercises of one notebook, what they need of it, and the solutions beside it."""

import ast
import builtins
import re
import symtable
from typing import NamedTuple

from tools.execute import METADATA, is_setup

ABOUT = """# The exercises of notebook {name}

Read `{name}` of the series first. Where an exercise says *above*, it means there; the code it needs from there is here.

Write each answer where it says *your turn*, under the name that stands there, and run the cell: the check tells at once what
is right, and what slipped. An exercise of level 1 is worth 1 point, of level 2 two, of level 3 three. A check tries one idea
after another, and you get the share of the points that is right before the first slip. A mistake is found or not: there it
is all of the points or none. The cell behind each answer counts them. Leave it as it is: nbgrader puts it back."""
COMMON = """import math

import torch
import torch.nn.functional as F
from torch import nn"""
MARKS = """# The marks for {answer}, of {points}
import sys

for _name in [*sys.modules]:  # our package is read afresh, whatever was done to it above
    if _name.startswith("vit_helpers"):
        del sys.modules[_name]
from {module} import {check} as _check
from vit_helpers.checks.marks import share as _share

{worth}"""


class Exercise(NamedTuple):
    """What an exercise asks, and where: the cells from its heading to the one for the answer"""

    check: str
    answer: str
    cells: list
    before: list  # the statements of the notebook up to its heading, without those of other answers

    @property
    def prose(self):
        return self.cells[0].source[self.cells[0].source.index("### Exercise") :]

    @property
    def level(self):
        return int(re.search(r"Level (\d) of 3", self.prose)[1])

    @property
    def points(self):
        return f"{self.level} point{'s' * (self.level > 1)}"


def exercises(lesson):
    """The exercises of a notebook: all that stands between `### Exercise` and `done = check_x(answer)`"""
    found, before = [], []
    for number, cell in enumerate(lesson.cells):
        if cell.cell_type == "markdown":
            if "### Exercise" in cell.source:
                heading, so_far = number, list(before)
        elif done := re.search(r"^done = (check_\w+)\((\w+)\)", cell.source, re.M):
            found.append(Exercise(*done.groups(), lesson.cells[heading : number + 1], so_far))
        elif not is_setup(cell):
            before += statements(cell.source)
    return found


def assignment(name, lesson, solutions):
    """The notebook for nbgrader's folder `source`, from a notebook of the series and the one with its solutions"""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    setup = next(cell.source for cell in lesson.cells if is_setup(cell))
    cells = [new_markdown_cell(ABOUT.format(name=name)), new_code_cell(setup), new_code_cell(COMMON)]
    known = names(COMMON)[0]
    for exercise in exercises(lesson):
        prose = re.sub(r"(\*Level [^*]+)\.\*", rf"\1, {exercise.points}.*", exercise.prose)
        cells.append(new_markdown_cell(prose.removeprefix("#")))  # one level up, under the title
        if along := comes_along(exercise, known):
            cells.append(new_code_cell(page(along)))
        for cell in exercise.cells[1:-1]:
            cells.append((new_code_cell if cell.cell_type == "code" else new_markdown_cell)(cell.source))
        known |= names(page([*along, *code(exercise.cells)]))[0]
        grade_id = exercise.check.removeprefix("check_")
        cells.append(graded(new_code_cell(solved(exercise, solutions, known)), grade_id, solution=True))
        cells.append(graded(new_code_cell(marks(exercise)), f"{grade_id}-marks", grade=True, points=exercise.level))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number:03d}"
    return new_notebook(cells=cells, metadata=METADATA)


def graded(cell, grade_id, grade=False, solution=False, **points):
    """The cell as nbgrader knows it"""
    kind = {"grade": grade, "solution": solution, "locked": grade, "task": False}
    cell.metadata["nbgrader"] = kind | {"grade_id": grade_id, "schema_version": 3} | points
    return cell


def comes_along(exercise, known):
    """The statements that an exercise needs of its notebook: for its code, and to have what its prose names at hand"""
    _, wanted = names(page(code(exercise.cells)))
    tools = [text for text in exercise.before if re.match(r"import |from |def |class |@", text)]
    named = re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", exercise.prose)))
    wanted |= (names(page(tools))[0] & set(named)) - {exercise.answer}
    return needed(wanted - known, exercise.before, known)


def solved(exercise, solutions, known):
    """The cell of the answer: the stub, and the solution between nbgrader's marks

    What nbgrader puts between the marks for the students is nothing, by this course's settings, so they get the stub.
    """
    stub, done = re.split(r"^(?=done = )", exercise.cells[-1].source, flags=re.M)
    before = []
    for source in code(solutions.cells):
        if worked := re.search(rf"^assert {exercise.check}\((\w+)\)", source, re.M):
            own = re.sub(rf"from \S+ import {exercise.check}\n+", "", source[: worked.start()]).strip()
            alias = [] if worked[1] == exercise.answer else [f"{exercise.answer} = {worked[1]}"]
            solution = page([*needed(names(own)[1] - known, before, known), own, *alias])
            return "\n".join([stub.rstrip(), "", "### BEGIN SOLUTION", solution, "### END SOLUTION", done])
        before += statements(source)
    raise ValueError(f"no solution is worked out for {exercise.check}")


def marks(exercise):
    """The cell that gives the points; its last line is a number, which nbgrader takes for them"""
    module = re.search(rf"^from (\S+) import {exercise.check}$", "\n".join(code(exercise.cells)), re.M)[1]
    share = f"_share(_check, {exercise.answer})"
    if "mistake" in exercise.prose.partition("\n")[0]:  # a wrong answer has the ideas right that were right before
        share = f"({share} == 1)"
    return MARKS.format(module=module, worth=f"{exercise.level} * {share}", points=exercise.points, **exercise._asdict())


def code(cells):
    """The sources of code cells, without that of the setup cell"""
    return [cell.source for cell in cells if cell.cell_type == "code" and not is_setup(cell)]


def statements(source):
    """The statements of a cell, one text each"""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        first = min([node.lineno, *(line.lineno for line in getattr(node, "decorator_list", []))])
        yield "\n".join(lines[first - 1 : node.end_lineno])


def names(source):
    """The names that code binds for what comes after it, and those that it needs of what came before"""
    top = symtable.symtable(source, "cell", "exec")
    binds = {name.get_name() for name in top.get_symbols() if name.is_assigned() or name.is_imported()}
    needs, tables = set(), [top]
    for table in tables:
        tables += table.get_children()
        found = (name for name in table.get_symbols() if name.is_referenced() and (table is top or name.is_global()))
        needs.update(name.get_name() for name in found)
    return binds, needs - binds - set(dir(builtins))


def page(texts):
    """Pieces of code as one: two empty lines around those of several lines"""
    loose = "\n".join(f"\n\n{text}\n\n" if "\n" in text else text for text in texts)
    return re.sub(r"\n{3,}", "\n\n\n", loose).strip()


def needed(wanted, before, known):
    """Those of the statements before that bind the wanted names, and what these need in turn"""
    found = []
    for text in reversed(before):
        binds, needs = names(text)
        if binds & wanted:
            wanted = (wanted - binds) | (needs - known)
            found.insert(0, text)
    return found
