"""Make a course for nbgrader from the notebooks' exercises, marked by our checks.

Writes a folder with nbgrader_config.py and, for each notebook, an assignment source/NAME/NAME.ipynb: each exercise with what
it needs from its notebook, the solution, which nbgrader removes for the students, and a locked cell that gives the points.
From there on nbgrader does the work, in that folder: `nbgrader generate_assignment NAME`, `nbgrader autograde NAME`,
`nbgrader generate_feedback NAME`. TEACHING.md says more.
"""

import argparse
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools import main
from tools.assignment import assignment, exercises
from tools.execute import ROOT, lessons

CONFIG = "nbgrader_config.py"
SETTINGS = (ROOT / "tools" / "static" / "nbgrader_config.txt").read_text(encoding="utf-8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="where to make the course: a new or an empty folder")
    parser.add_argument(
        "notebooks", nargs="*", metavar="NOTEBOOK", help="such as 03_attention (default: all whose exercises have solutions)"
    )


def run(args: argparse.Namespace) -> int:
    if find_spec("nbgrader") is None:
        raise ValueError('nbgrader is not installed: pip install -e ".[classroom]"')
    require_empty(args.folder)
    books = {name: assignment(name, *pair) for name, pair in chosen(args.notebooks).items()}
    make(args.folder, books)
    print(f"next, in {args.folder}: nbgrader generate_assignment {next(iter(books))}")
    return 0


def require_empty(folder: Path) -> None:
    """Raise ValueError unless the folder is new or empty."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    config = folder / CONFIG
    if config.is_file() and config.read_text(encoding="utf-8").startswith(SETTINGS.partition("\n")[0]):
        there = ", ".join(sorted(path.name for path in folder.glob("source/*")))
        more = "Go on in it with nbgrader generate_assignment, or name a new folder"
        raise ValueError(f"{folder} is already a course, of {there}. {more}")
    raise ValueError(f"{folder} is {'not empty' if folder.is_dir() else 'a file'}; wanted: a new or an empty folder")


def chosen(words: list[str]) -> dict[str, list[NotebookNode]]:
    """The notebooks of these names, or all that have solutions, each with its solutions."""
    paths = {path.stem: path for path in lessons()}
    pairs = {}
    for name in [Path(word).stem for word in words] or paths:
        if name not in paths:
            raise ValueError(f"no notebook {name}; there are {', '.join(paths)}")
        lesson, solutions = paths[name], paths[name].parent / "solutions" / paths[name].name
        if solutions.is_file() and exercises(nbformat.read(lesson, as_version=4)):
            pairs[name] = [nbformat.read(path, as_version=4) for path in (lesson, solutions)]
        elif words:
            raise ValueError(f"notebook {name} has no exercises with solutions worked out in {solutions.parent.name}/")
    return pairs


def make(folder: Path, books: dict[str, NotebookNode]) -> None:
    """Write a course, all of it or nothing, into a new or an empty folder."""
    try:
        for name, notebook in books.items():
            write(folder, name, notebook)
        (folder / CONFIG).write_text(SETTINGS.format(course=folder.resolve().name), encoding="utf-8")
    except BaseException:  # Ctrl-C too
        shutil.rmtree(folder / "source", ignore_errors=True)
        raise


def write(folder: Path, name: str, notebook: NotebookNode) -> None:
    """Store an assignment where nbgrader looks for it, and print what it contains."""
    path = folder / "source" / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    points = [cell.metadata.nbgrader.points for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    print(f"{path}: {len(points)} exercises, {sum(points)} points")


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
