"""Make a course for nbgrader of the notebooks' exercises, marked by our checks.

Writes a folder with nbgrader_config.py and, for each notebook, an assignment source/NAME/NAME.ipynb: each exercise with what
it needs of its notebook, the solution, which nbgrader takes out for the students, and a locked cell that gives the points.
From there on nbgrader does the work, in that folder: `nbgrader generate_assignment NAME`, `nbgrader autograde NAME`,
`nbgrader generate_feedback NAME`. TEACHING.md says more.
"""

import importlib.util
import shutil
import sys
from pathlib import Path

from tools import main
from tools.assignment import assignment, exercises
from tools.execute import all_notebooks

CONFIG = "nbgrader_config.py"
SETTINGS = """# The settings of a course made by `python -m tools.classroom`, for nbgrader
from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = {course!r}

# An exercise keeps its own stub, above the solution. (An assignment of your own needs one in each cell, too.)
c.ClearSolutions.code_stub = {{"python": ""}}

# A cell that runs longer, in seconds, is interrupted, and the next one runs
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# No code handed in beside a notebook is kept: it could stand in for vit_helpers or torch
c.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "feedback", "*.py", "*.pyc", "*.pyd", "*.so"]

# A deleted cell of marks comes back
c.OverwriteCells.add_missing_cells = True


class Shown(NbGraderPreprocessor):
    # nbgrader gives all points to a cell of marks that shows no number: ours, which always shows one, then gets none

    def preprocess_cell(self, cell, resources, cell_index):
        ours = cell.metadata.get("nbgrader", {{}}).get("grade") and "_share(_check" in cell.source
        if ours and not any(output.output_type == "execute_result" for output in cell.outputs):
            cell.outputs.append(new_output("error", ename="NoMarks", evalue="this cell did not show its number"))
        return cell, resources


c.Autograde.autograde_preprocessors.insert(1, Shown)  # behind the one that runs the cells
"""


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="where to make the course: a new or an empty folder")
    parser.add_argument(
        "notebooks", nargs="*", metavar="NOTEBOOK", help="such as 03_attention (default: all whose exercises have solutions)"
    )


def run(args):
    try:
        if importlib.util.find_spec("nbgrader") is None:
            raise ValueError('nbgrader is not installed: pip install -e ".[classroom]"')
        refuse(args.folder)
        books = {name: assignment(name, *pair) for name, pair in chosen(args.notebooks).items()}
        make(args.folder, books)
    except (OSError, SyntaxError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"next, in {args.folder}: nbgrader generate_assignment {next(iter(books))}")
    return 0


def refuse(folder):
    """Raise ValueError where something stands already"""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; wanted: a new or an empty folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if (folder / CONFIG).is_file() and (folder / CONFIG).read_text(encoding="utf-8").startswith(SETTINGS.partition("\n")[0]):
        there = ", ".join(sorted(path.name for path in folder.glob("source/*")))
        raise ValueError(
            f"{folder} is a course already, of {there}. Go on in it with nbgrader generate_assignment, or name a new folder"
        )
    raise ValueError(f"{folder} is not empty; wanted: a new or an empty folder")


def chosen(words):
    """The notebooks of these names, or all that have solutions: a dictionary of pairs, lesson and solutions"""
    import nbformat

    paths = {path.stem: path for path in all_notebooks() if path.parent.name != "solutions"}
    pairs = {}
    for name in [Path(word).stem for word in words] or paths:
        if name not in paths:
            raise ValueError(f"no notebook {name}; there are {', '.join(paths) or 'none: use a clone of the repository'}")
        lesson, solutions = paths[name], paths[name].parent / "solutions" / paths[name].name
        if solutions.is_file() and exercises(nbformat.read(lesson, as_version=4)):
            pairs[name] = [nbformat.read(path, as_version=4) for path in (lesson, solutions)]
        elif words:
            raise ValueError(f"notebook {name} has no exercises with solutions worked out in {solutions.parent.name}/")
    if not pairs:
        raise ValueError("no notebooks here: use a clone of the repository")
    return pairs


def make(folder, books):
    """Write a course, whole or not at all, where nothing stands yet"""
    try:
        for name, notebook in books.items():
            write(folder, name, notebook)
        settings = SETTINGS.format(course=folder.resolve().name)
        (folder / CONFIG).write_text(settings, encoding="utf-8")
    except BaseException:  # Ctrl-C too
        shutil.rmtree(folder / "source", ignore_errors=True)
        raise


def write(folder, name, notebook):
    """Keep an assignment where nbgrader looks for it, and print what it holds"""
    import nbformat

    path = folder / "source" / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    points = [cell.metadata.nbgrader.points for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    print(f"{path}: {len(points)} exercises, {sum(points)} points")


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
