"""A plugin of pytest: readers go back, so every notebook runs again after its last cell.

The last section comes first, then the one before it, and each of their cells runs twice in place.
Use it with `-p again`, as `.ci/run` does.
"""

import re

import nbval.plugin
import pytest
from jupyter_client import BlockingKernelClient

SECONDS = 600  # for a cell, while the machine is busy
ADVICE = re.compile(r"\brun\b.*\bfirst\b", re.IGNORECASE | re.DOTALL)


class Again(pytest.Item):
    """What a notebook's other items leave behind runs once more, in their kernel."""

    def runtest(self):
        found = [*faults(self.parent.nb, self.parent.kernel.kc)]
        assert not found, "\n".join([self.nodeid, *found])

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}, again"


def pytest_configure():
    collect = nbval.plugin.IPyNbFile.collect

    def collect_again(file):
        yield from collect(file)
        yield Again.from_parent(file, name="again")

    nbval.plugin.IPyNbFile.collect = collect_again


def faults(book, kernel: BlockingKernelClient):
    """What fails in a notebook, whose cells have all run, when they run again; a line each.

    An error ends its section. If it says what to run first, then it is no fault.
    """
    for heading, cells in reversed(code_by_section(book)):
        for cell in cells:
            if error := run(cell, kernel):
                if not ADVICE.search(error):
                    yield f"{cell.id}, {heading!r} run again: {error}"
                break
            if error := run(cell, kernel):
                yield f"{cell.id}, run twice in place: {error}"


def run(cell, kernel: BlockingKernelClient):
    """The error of a cell, or "" """
    options = {"allow_stdin": False, "timeout": SECONDS, "output_hook": lambda message: None}
    reply = kernel.execute_interactive(cell.source, **options)["content"]
    return f"{reply['ename']}: {reply['evalue']}" if reply["status"] == "error" else ""


def code_by_section(book):
    """The code cells below each heading of level 2, and those before the first of them"""
    sections = [("", [])]
    for cell in book.cells:
        if cell.cell_type == "markdown":
            prose = re.sub(r"^```.*?^```", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            sections += [(heading, []) for heading in re.findall(r"^## (.+)$", prose, re.MULTILINE)]
        elif cell.cell_type == "code":
            sections[-1][1].append(cell)
    return sections
