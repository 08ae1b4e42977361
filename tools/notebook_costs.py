"""What a notebook costs, in seconds and memory: measured, and written into the notebook and into README.md."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil  # comes with Jupyter
from nbformat import NotebookNode

CARD_ROW = re.compile(r"^\| time and memory \|.*\|$", re.MULTILINE)
MEASURED = re.compile(r"^\| time and memory \| (\S+ s), (\S+ GiB) \(measured .*\) \|$", re.MULTILINE)


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
