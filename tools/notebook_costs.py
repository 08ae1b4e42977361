"""What a notebook costs, in seconds and memory: measured, and written into its card and into README.md."""

import re
import threading
import time

CARD_ROW = re.compile(r"^\| time and memory \|.*\|$", re.MULTILINE)
MEASURED = re.compile(r"^\| time and memory \| (\S+ s), (\S+ GiB) \(measured .*\) \|$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def measure(work):
    """What `work()` costs in the processes that it starts.

    returns: seconds from its beginning to its end, and GiB of memory at their peak, looked at ten times a second
    """
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


def memory_of_children():
    """Bytes in use: all that lies in memory of this process's children (a kernel), and of *their* children what is
    theirs alone. So no page counts twice, neither libraries nor what a fork shares; and the rerun itself does not count.
    """
    import psutil  # comes with Jupyter

    me, total = psutil.Process(), 0
    for process in me.children(recursive=True):
        try:
            total += process.memory_info().rss if process.ppid() == me.pid else process.memory_full_info().uss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def in_words(costs):
    """Seconds and GiB, two digits of each: all that another run will give again

    >>> in_words((47.6, 1.234))
    ('48 s', '1.2 GiB')
    """
    return tuple(f"{float(f'{cost:.2g}'):g} {unit}" for cost, unit in zip(costs, ("s", "GiB"), strict=True))


def card_of(book):
    """The cell with the card of what a notebook costs, its first of prose; None where no row speaks of time and memory"""
    first = next((cell for cell in book.cells if cell.cell_type == "markdown"), None)
    return first if first and CARD_ROW.search(first.source) else None


def has_card(path):
    """Whether the notebook at this path has a card: solutions have none"""
    import nbformat

    return card_of(nbformat.read(path, as_version=4)) is not None


def card_with(text, costs):
    """The card's text with what was measured, unless what it says is right within a quarter"""
    if before := MEASURED.search(text):
        pairs = [(float(words.split()[0]), cost) for words, cost in zip(before.groups(), costs, strict=True)]
        if all(abs(cost - old) <= old / 4 for old, cost in pairs):
            return text
    row = f"| time and memory | {', '.join(in_words(costs))} (measured with {threads_and_processor()}) |"
    return CARD_ROW.sub(lambda _: row, text)


def threads_and_processor():
    """What a kernel started here computes with, in a few words"""
    import torch

    from vit_helpers.scaling.timing import processor

    threads = torch.get_num_threads()
    return f"{threads} thread{'s' if threads > 1 else ''}, {short(processor())}"


def short(name):
    """A processor's name without what says nothing more of it

    >>> short("AMD EPYC 7B13 64-Core Processor"), short("Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz")
    ('AMD EPYC 7B13', 'Intel Xeon E5-2673 v4')
    """
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor|\w+-Core)\b|@.*", " ", name).split())


def readme_and_link(path):
    """README.md beside the notebook's folder, and how it links to the notebook"""
    path = path.resolve()
    return path.parents[1] / "README.md", f"({path.parent.name}/{path.name})"


def is_listed(path):
    """Whether a table of README.md links to the notebook"""
    readme, link = readme_and_link(path)
    return readme.is_file() and table_of(readme.read_text(encoding="utf-8"), link) is not None


def list_in_readme(path, words):
    """Time and memory of a notebook, in words, into its row of README.md"""
    readme, link = readme_and_link(path)
    before = readme.read_text(encoding="utf-8")
    after = table_with(before, link, dict(zip(("time", "memory"), words, strict=True)))
    if after != before:
        readme.write_text(after, encoding="utf-8", newline="\n")
        print(f"{readme.name}: written")


def table_of(text, link):
    """Where in a text the first table stands that holds a link; None without one"""
    return next((table for table in TABLE.finditer(text) if link in table.group()), None)


def table_with(text, link, cells):
    r"""A text in which the row with a link has these cells, {column: what it says}; a column that is not there is added

    >>> print(table_with("| book |\n|---|\n| [one](1) |\n| two |\n", "(1)", {"time": "4 s"}), end="")
    | book | time |
    |---|---|
    | [one](1) | 4 s |
    | two | |
    """
    table = table_of(text, link)
    head, line, *rows = [re.split(r"(?<!\\)\|", row)[1:-1] for row in table.group().splitlines()]
    for name in cells:
        if f" {name} " not in head:
            head.append(f" {name} ")
            line.append("---")
    for row in rows:
        row += [" "] * (len(head) - len(row))
    row = next(row for row in rows if any(link in cell for cell in row))
    for name, cell in cells.items():
        row[head.index(f" {name} ")] = f" {cell} "
    lines = ["|".join(["", *row, ""]) + "\n" for row in (head, line, *rows)]
    return text[: table.start()] + "".join(lines) + text[table.end() :]
