"""Run notebooks from top to bottom and store their outputs in place.

The setup cell is brought up to date first, so that it is the same in every notebook. A notebook in which nothing changed
stays byte for byte as it was: an output that differs from the stored one only in what tests/nbval_sanitize.cfg blurs (times,
speeds) is left alone, and so is an image in a cell tagged nbval-ignore-output whose text says the same. Clear the outputs of
such a cell to have its image stored again.

Each line printed ends with what the notebook cost: seconds from the start of its kernel to the end, and the peak of its
memory. With --cards both are written into the table at the top of the notebook and into its row of README.md, and every
output is stored as it came, so that all times in a notebook are those of one run.
"""

import argparse
import configparser
import copy
import json
import re
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil  # comes with Jupyter
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools import main
from vit_helpers import __version__

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET = "application/vnd.jupyter.widget-view+json"
SETUP = """\
# @title Setup: find vit_helpers (run this first)
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path[:0] = [str(p) for p in Path.cwd().parents if (p / "vit_helpers" / "vit.py").is_file()]
"""
LOCAL = 'assert find_spec("vit_helpers"), "no vit_helpers: run this in the repository, or pip install that"'
ONLINE = """\
if not find_spec("vit_helpers"):  # on Colab or Kaggle: fetch it, and leave their torch as it is
    import subprocess

    url = "git+{address}@{tag}"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", url, "torchinfo", "einops"]
    subprocess.run(pip)
    assert find_spec("vit_helpers"), "pip says above why it failed; on Kaggle, is internet on?\""""
TAG = f"v{__version__}"  # what published notebooks install
CARD_ROW = re.compile(r"^\| time and memory \|.*\|$", re.MULTILINE)
MEASURED = re.compile(r"^\| time and memory \| (\S+ s), (\S+ GiB) \(measured .*\) \|$", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every notebook under notebooks/")
    parser.add_argument(
        "--cards",
        action="store_true",
        help="write time and memory into the notebook and into README.md, where they differ by more than a quarter from "
        "what is there; let nothing else run meanwhile (default: print them, write none)",
    )


def run(args: argparse.Namespace) -> int:
    notebooks = args.notebooks or all_notebooks()
    if missing := [str(path) for path in notebooks if not path.is_file()]:
        raise ValueError(f"no notebook at {', '.join(missing)}")
    if args.cards and (unlisted := [str(path) for path in notebooks if not is_listed(path)]):
        raise ValueError(f"no row with time and memory in README.md for {', '.join(unlisted)}")
    return max([not execute(path, args.cards) for path in notebooks], default=0)


def all_notebooks() -> list[Path]:
    """Every notebook and its solutions; not the copies that readers and JupyterLab keep in other folders."""
    return sorted(path for folder in ("", "solutions") for path in (ROOT / "notebooks" / folder).glob("[0-9]*.ipynb"))


def lessons() -> list[Path]:
    """The notebooks without their solutions."""
    return [path for path in all_notebooks() if path.parent.name != "solutions"]


def execute(path: Path, cards: bool = False) -> bool:
    """Run one notebook and store it, with `cards` also what it cost; False, and nothing stored, when that fails."""
    try:
        before = path.read_text(encoding="utf-8")
        old = nbformat.reads(before, as_version=4)
    except ValueError as error:
        print(f"{path}: not a notebook\n{error}", file=sys.stderr)
        return False
    new = copy.deepcopy(old)
    for cell in filter(is_setup, new.cells):
        cell.source = setup_source(home())
    options = {"timeout": 600, "kernel_name": "python3", "record_timing": False, "coalesce_streams": True}
    client = NotebookClient(new, resources={"metadata": {"path": str(path.parent)}}, **options)
    try:
        costs = measure(client.execute)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"{path}: failed, left as it was\n{error}", file=sys.stderr)
        return False
    if cards and card_of(new):
        write_costs(path, card_of(new), costs)
    after = store(new, new if cards else old)
    if after != before:
        path.write_text(after, encoding="utf-8", newline="\n")
    print(f"{path}: {'unchanged' if after == before else 'written'}, {', '.join(format_costs(costs))}")
    return True


def store(new: NotebookNode, old: NotebookNode) -> str:
    """The text of the file: metadata cut down, and the stored outputs where the new ones say the same."""
    rules = sanitize_rules()
    for number, (cell, before) in enumerate(zip(new.cells, old.cells, strict=True)):
        cell["id"] = f"cell-{number:03d}"
        if cell.cell_type == "code":
            for output in cell.outputs:
                output.pop("transient", None)
                output.get("data", {}).pop(WIDGET, None)  # stored, it would refer to sliders that no longer exist
            timed = "nbval-ignore-output" in cell.metadata.get("tags", [])  # its images may show times
            if blur(cell.outputs, rules, timed) == blur(before.outputs, rules, timed):
                cell.outputs = before.outputs
    new.metadata = METADATA
    new.nbformat, new.nbformat_minor = 4, 5
    nbformat.validate(new)
    return nbformat.writes(new) + "\n"


def home() -> str:
    """The public address of the repository, from pyproject.toml, the one place that holds it; "" before publication."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def setup_source(address: str) -> str:
    """The setup cell of every notebook of a repository with this public address, "" for none."""
    return SETUP + (ONLINE.format(address=address, tag=TAG) if address else LOCAL)


def is_setup(cell: dict) -> bool:
    """Whether this is the cell that finds vit_helpers."""
    return "setup" in cell["metadata"].get("tags", [])


def sanitize_rules() -> list[tuple[re.Pattern, str]]:
    """nbval's own file: what to look for, and what to put in its place."""
    config = configparser.RawConfigParser()
    config.read(SANITIZE)
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in config.sections()]


def blur(outputs: list, rules: list, timed: bool = False) -> list[str]:
    """Outputs as comparable text, without execution counts, and where they may show times without images."""
    texts = []
    for output in outputs:
        kept = {key: value for key, value in output.items() if key != "execution_count"}
        if timed and "data" in kept:
            kept["data"] = {kind: value for kind, value in kept["data"].items() if not kind.startswith("image/")}
        text = json.dumps(kept, sort_keys=True)
        for pattern, replacement in rules:
            text = pattern.sub(replacement, text)
        texts.append(text)
    return texts


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that `work()` took, and the peak memory in GiB of the processes it started, sampled ten times a second."""
    peaks, done = [0], threading.Event()

    def watch():
        while not done.wait(0.1):
            peaks.append(memory_of_children())

    watcher = threading.Thread(target=watch, daemon=True)
    start = time.perf_counter()
    watcher.start()
    try:
        work()
    finally:
        done.set()
        seconds = time.perf_counter() - start
        watcher.join()
    return seconds, max(peaks) / 2**30


def memory_of_children() -> int:
    """Bytes in use by the children of this process (a kernel), and by *their* children what they share with nobody.

    So no page counts twice, neither libraries nor what a fork shares, and this process does not count.
    """
    me, total = psutil.Process(), 0
    for process in me.children(recursive=True):
        try:
            total += process.memory_info().rss if process.ppid() == me.pid else process.memory_full_info().uss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def format_costs(costs: tuple[float, float]) -> tuple[str, str]:
    """Seconds and GiB, two digits of each: all that another run will repeat

    >>> format_costs((47.6, 1.234))
    ('48 s', '1.2 GiB')
    """
    return tuple(f"{float(f'{cost:.2g}'):g} {unit}" for cost, unit in zip(costs, ("s", "GiB"), strict=True))


def card_of(book: NotebookNode) -> NotebookNode | None:
    """The first cell of prose, where a table gives time and memory; None where it does not (solutions)."""
    first = next((cell for cell in book.cells if cell.cell_type == "markdown"), None)
    return first if first and CARD_ROW.search(first.source) else None


def write_costs(path: Path, card: NotebookNode, costs: tuple[float, float]) -> None:
    """Write the costs into the card, unless it is right within a quarter, and what the card says into README.md."""
    before = MEASURED.search(card.source)
    old = [float(words.split()[0]) for words in before.groups()] if before else [0, 0]
    if any(abs(cost - stored) > stored / 4 for cost, stored in zip(costs, old, strict=True)):
        row = f"| time and memory | {', '.join(format_costs(costs))} (measured with {threads_and_processor()}) |"
        card.source = CARD_ROW.sub(lambda _: row, card.source)
    readme, row = readme_row(path)
    text = readme.read_text(encoding="utf-8")
    time_and_memory = " | ".join(MEASURED.search(card.source).groups())
    if (after := row.sub(lambda found: f"{found[1]} {time_and_memory} |", text)) != text:
        readme.write_text(after, encoding="utf-8", newline="\n")
        print(f"{readme.name}: written")


def threads_and_processor() -> str:
    """What a kernel started here computes with, such as "2 threads, AMD EPYC 7B13"."""
    import torch

    from vit_helpers.scaling.timing import processor

    threads = torch.get_num_threads()
    name = re.sub(r"\((R|TM)\)|\b(CPU|Processor|\w+-Core)\b|@.*", " ", processor())  # says nothing more of it
    return f"{threads} thread{'s' if threads > 1 else ''}, {' '.join(name.split())}"


def readme_row(path: Path) -> tuple[Path, re.Pattern]:
    """README.md beside the folder of a notebook, and the pattern of its row there: its last two cells are the costs."""
    path = path.resolve()
    link = re.escape(f"({path.parent.name}/{path.name})")
    return path.parents[1] / "README.md", re.compile(rf"^(\|.*{link}.*\|)[^|\n]*\|[^|\n]*\|$", re.MULTILINE)


def is_listed(path: Path) -> bool:
    """Whether README.md has a row for the costs of this notebook; True for one without a card, which needs none."""
    if card_of(nbformat.read(path, as_version=4)) is None:
        return True
    readme, row = readme_row(path)
    return readme.is_file() and bool(row.search(readme.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
