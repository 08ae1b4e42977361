"""Run notebooks from top to bottom and store their outputs in place.

The setup cell is brought up to date first. All outputs of a notebook come from one run: they are
stored together, or not at all if its code is the same and its outputs differ from the stored ones
only in what tests/nbval_sanitize.cfg blurs (times, speeds) and in the images of cells tagged
nbval-ignore-output. Hashes of code and outputs in the notebook's metadata tell a test what was
changed later. Each line printed ends with seconds and peak memory of the notebook's kernel. With
--cards these are written into the table at the top of the notebook, with the reader's minutes and
the outputs of the same run. A core page also has them in its row of README.md.
"""

import argparse
import configparser
import copy
import hashlib
import json
import os
import re
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import psutil  # comes with Jupyter
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools import main
from tools.page_length import exercise_minutes, format_minutes, reading_minutes
from vit_helpers import __version__

ROOT = Path(__file__).parents[1]
PROJECT, README = ROOT / "pyproject.toml", ROOT / "README.md"
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
STATIC = ROOT / "tools" / "static"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
WIDGET = "application/vnd.jupyter.widget-view+json"
TAG = f"v{__version__}"  # what published notebooks install
CARD_ROW = re.compile(r"^\| time and memory \|.*\|$", re.MULTILINE)
TIME_ROW = re.compile(r"^\| your time \|.*\|$", re.MULTILINE)
Rule = tuple[re.Pattern[str], str]  # what to look for, and what to put in its place
MEASURED = re.compile(
    r"^\| time and memory \| (\S+ s), (\S+ GiB) \(measured .*\) \|$", re.MULTILINE
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "notebooks", nargs="*", type=Path, help="default: every notebook under notebooks/"
    )
    parser.add_argument(
        "--cards",
        action="store_true",
        help="also write minutes to read, and costs where a quarter off; run it alone",
    )


def run(args: argparse.Namespace) -> int:
    return max([not execute(path, args.cards) for path in args.notebooks or all_notebooks()])


def all_notebooks() -> list[Path]:
    """Every core page, further page and notebook with solutions; no copies in other folders."""
    return [*lessons(), *further_pages(), *solutions()]


def lessons() -> list[Path]:
    """The core pages."""
    return notebooks_in("")


def further_pages() -> list[Path]:
    """The pages that go beyond a core page, whose name they have."""
    return notebooks_in("further")


def solutions() -> list[Path]:
    """The solutions, which serve a core page and its further page."""
    return notebooks_in("solutions")


def notebooks_in(folder: str) -> list[Path]:
    """The notebooks of a folder of notebooks/."""
    return sorted((ROOT / "notebooks" / folder).glob("[0-9]*.ipynb"))


def is_further(path: Path) -> bool:
    """Whether a notebook is a further page."""
    return path.resolve().parent.name == "further"


def execute(path: Path, cards: bool = False) -> bool:
    """Run one notebook and store it, with `cards` also its costs; False if it fails."""
    options: dict[str, Any] = {
        "timeout": 600,
        "kernel_name": "python3",
        "record_timing": False,
        "coalesce_streams": True,
    }
    try:
        before = path.read_text(encoding="utf-8")
        old = nbformat.reads(before, as_version=4)
        new = copy.deepcopy(old)
        for cell in filter(is_setup, new.cells):
            cell.source = setup_source(home())
        costs = measure(
            NotebookClient(
                new, resources={"metadata": {"path": str(path.parent)}}, **options
            ).execute
        )
    except (
        ValueError,
        CellExecutionError,
        CellTimeoutError,
        DeadKernelError,
    ) as error:  # ValueError: not a notebook
        print(f"{path}: failed, left as it was\n{error}", file=sys.stderr)
        return False
    if cards and (card := card_of(new)):
        write_costs(path, new, card, costs)
    after = store(new, new if cards else old)
    if after != before:
        path.write_text(after, encoding="utf-8", newline="\n")
    print(f"{path}: {'unchanged' if after == before else 'written'}, {format_costs(costs)}")
    return True


def store(new: NotebookNode, old: NotebookNode) -> str:
    """The text of the file; all stored outputs are kept if the same code printed the same again."""
    rules = sanitize_rules()
    for number, cell in enumerate(new.cells):
        cell["id"] = f"cell-{number:03d}"
        for output in cell.get("outputs", []):
            output.pop("transient", None)
            # stored, it would refer to sliders that no longer exist
            output.get("data", {}).pop(WIDGET, None)
    same = old.metadata.get("executed", {}).get("code") == hashes(new)["code"]
    if same and [blur(cell, rules) for cell in code_cells(new)] == [
        blur(cell, rules) for cell in code_cells(old)
    ]:
        for cell, before in zip(code_cells(new), code_cells(old), strict=True):
            cell.outputs = before.outputs
    new.metadata = METADATA | {"executed": hashes(new)}
    new.nbformat, new.nbformat_minor = 4, 5
    nbformat.validate(new)
    return nbformat.writes(new) + "\n"


def code_cells(book: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def hashes(book: NotebookNode) -> dict[str, str]:
    """SHA-256 of a notebook's code (not the setup cell, which `publish` changes) and outputs."""
    sources = [cell.source for cell in code_cells(book) if not is_setup(cell)]
    parts = {"code": sources, "outputs": [cell.outputs for cell in code_cells(book)]}
    return {
        name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()
        for name, part in parts.items()
    }


def home() -> str:
    """The public address of the repository, which pyproject.toml holds; "" before publication."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def setup_source(address: str) -> str:
    """The setup cell of every notebook of a repository with this public address, "" for none."""
    text = (
        (STATIC / ("setup_published.txt" if address else "setup.txt"))
        .read_text(encoding="utf-8")
        .rstrip()
    )
    return text.format(address=address, tag=TAG)


def is_setup(cell: dict[str, Any]) -> bool:
    """Whether this is the cell that finds vit_helpers."""
    return "setup" in cell["metadata"].get("tags", [])


def sanitize_rules() -> list[Rule]:
    config = configparser.RawConfigParser()
    config.read(SANITIZE)
    return [
        (re.compile(config[name]["regex"]), config[name]["replace"]) for name in config.sections()
    ]


def blur(cell: dict[str, Any], rules: list[Rule]) -> list[str]:
    """A cell's outputs as comparable text, without counts, or images that may show times."""
    texts, timed = [], "nbval-ignore-output" in cell["metadata"].get("tags", [])
    for output in cell["outputs"]:
        data = {
            kind: value
            for kind, value in output.get("data", {}).items()
            if not (timed and kind.startswith("image/"))
        }
        texts.append(json.dumps({**output, "data": data, "execution_count": None}, sort_keys=True))
        for pattern, replacement in rules:
            texts[-1] = pattern.sub(replacement, texts[-1])
    return texts


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that `work()` took, and the peak memory in GiB of the processes that it started."""
    peaks, done, start = [0], threading.Event(), time.perf_counter()

    def watch() -> (
        None
    ):  # so that no page counts twice, a child's children count with what they share with nobody
        while not done.wait(0.1):
            total = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):  # it has ended meanwhile
                    ours = process.ppid() == os.getpid()
                    total += process.memory_info().rss if ours else process.memory_full_info().uss
            peaks.append(total)

    (watcher := threading.Thread(target=watch, daemon=True)).start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return time.perf_counter() - start, max(peaks) / 2**30


def format_costs(costs: tuple[float, float]) -> str:
    """Seconds and GiB, two digits of each: all that another run will repeat

    >>> format_costs((47.6, 1.234))
    '48 s, 1.2 GiB'
    """
    return ", ".join(
        f"{float(f'{cost:.2g}'):g} {unit}" for cost, unit in zip(costs, ("s", "GiB"), strict=True)
    )


def card_of(book: NotebookNode) -> NotebookNode | None:
    """The cell whose table gives time and memory; None where no cell does (solutions)."""
    return next(
        (
            cell
            for cell in book.cells
            if cell.cell_type == "markdown" and CARD_ROW.search(cell.source)
        ),
        None,
    )


def write_costs(
    path: Path, book: NotebookNode, card: NotebookNode, costs: tuple[float, float]
) -> None:
    """Write the costs into the card, unless it is right within a quarter, and the reader's minutes.

    What the card of a core page says also goes into README.md, the one beside the notebook's
    folder, where the last three cells of the notebook's row are the minutes and the costs.
    """
    from vit_helpers.scaling.timing import processor

    old = [
        float(words.split()[0]) for found in MEASURED.findall(card.source) for words in found
    ] or [0, 0]
    if any(abs(cost - stored) > stored / 4 for cost, stored in zip(costs, old, strict=True)):
        count = os.environ.get("OMP_NUM_THREADS", "1")  # else the setup cell chooses one
        threads = f"{count} thread{'s' * (count != '1')}"
        name = " ".join(
            re.sub(r"\((R|TM)\)|\b(CPU|Processor|\w+-Core)\b|@.*", " ", processor()).split()
        )
        row = f"| time and memory | {format_costs(costs)} (measured with {threads}, {name}) |"
        card.source = CARD_ROW.sub(lambda _: row, card.source)
    minutes = write_minutes(book, card)
    path = path.resolve()
    if is_further(path):
        return
    readme, link = path.parents[1] / "README.md", re.escape(f"({path.parent.name}/{path.name})")
    before = readme.read_text(encoding="utf-8")
    time_and_memory = " | ".join(MEASURED.findall(card.source)[0])
    row_start = rf"^(\|.*{link}.*\|)"
    after = re.sub(
        rf"{row_start}[^|\n]*\|[^|\n]*\|$", rf"\1 {time_and_memory} |", before, flags=re.MULTILINE
    )
    after = re.sub(
        rf"{row_start} \d+\+\d+ (\|[^|\n]*\|[^|\n]*\|)$",
        rf"\1 {minutes} \2",
        after,
        flags=re.MULTILINE,
    )
    if after != before:
        readme.write_text(after, encoding="utf-8", newline="\n")
        print(f"{readme.name}: written")


def write_minutes(book: NotebookNode, card: NotebookNode) -> str:
    """Write the reader's minutes into the card, whose own words count; return what README says."""
    exercises = exercise_minutes(book)
    for _ in range(2):  # the first time, the row may still have other words, and fewer
        row = f"| your time | {format_minutes(reading_minutes(book), exercises)} |"
        card.source = TIME_ROW.sub(row, card.source)
    return f"{reading_minutes(book)}+{sum(exercises)}"


if __name__ == "__main__":
    raise SystemExit(main())
