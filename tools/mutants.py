"""Plant faults in copies of the package, one at a time, and see whether tests notice each.

The faults (mutants) are in mutants.toml, each with the tests that should fail. A mutant that
survives shows what no test looks at. Nothing in this folder is changed. The same tests run first
without any fault, because a test that fails anyway kills nothing. The exit status is 0 if all
mutants are killed, 1 if one survives or runs out of time, and 2 if one cannot be tried.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools import main
from vit_helpers.cli import positive_int

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
COPIED = ("vit_helpers", "tests", "tools", "pyproject.toml")  # what the tests of a module read
OURS = (ROOT, ROOT / "tests")  # on Python's path while the tests of this folder run
# each run of pytest forks, where that can be done, from a process that has imported what takes long
CONTEXT: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
PRELOADED = (
    *("pytest", "torch", "torchvision.transforms.v2", "pandas", "scipy.stats", "sklearn.datasets"),
    *("matplotlib.pyplot", "timm", "transformers"),
)
PASSED, FAILED = 0, 1  # exit statuses of pytest
KILLED, SURVIVED, TIMED_OUT, NOT_TRIED = "killed", "survived", "timed out", "cannot be tried"
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) \S*?([\w.]+(?:\[.*?\])?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A fault: in a file, the text `before`, which occurs there once, becomes `after`.

    why  : what would be wrong
    tests: names of test functions, or of whole files, which should see it
    """

    name: str
    file: str
    before: str
    after: str
    why: str
    tests: tuple[str, ...]

    def text(self, root: Path) -> str:
        """The whole text of the file with the fault; ValueError if `before` is not there once."""
        text = (root / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"its text occurs {count} times in {self.file}, not once")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Outcome:
    """What happened to a mutant: one of four results, and what explains it"""

    mutant: Mutant
    result: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.result:15}  {self.mutant.name}: {self.detail}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; by default all")
    parser.add_argument(
        "--parallel", type=positive_int, default=1, metavar="N", help="how many at a time"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, metavar="S", help="the longest for each (300)"
    )


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    CONTEXT.set_forkserver_preload(list(PRELOADED))
    return try_all(choose(read_mutants(LIST), args.names), ROOT, args.parallel, args.seconds)


def read_mutants(path: Path) -> list[Mutant]:
    """Read a list of mutants; ValueError if two have the same name."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    mutants = [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]
    counts = Counter(mutant.name for mutant in mutants)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"{path.name} has several mutants with the name {', '.join(twice)}")
    return mutants


def choose(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Keep the mutants with these names, all if there are none; ValueError for an unknown name."""
    if unknown := sorted({*names} - {mutant.name for mutant in mutants}):
        raise ValueError(f"no mutant is called {', '.join(unknown)}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def try_all(mutants: Sequence[Mutant], root: Path, parallel: int, seconds: float) -> int:
    """Run the tests without a fault, then try each mutant; prints what happens to each.

    returns: the exit status
    """
    start, counts = time.perf_counter(), Counter[str]()
    ready = list[tuple[Mutant, str, list[str]]]()
    for mutant in mutants:
        try:
            ready.append((mutant, mutant.text(root), find(mutant, root)))
        except (ValueError, OSError) as error:
            print(Outcome(mutant, NOT_TRIED, str(error)))
            counts[NOT_TRIED] += 1
    if not ready:
        return 2
    with copy_of(root) as folder:
        arguments = sorted({argument for _, _, own in ready for argument in own})
        # all of them together: each mutant has its own time
        status, output = run_tests(folder, arguments, seconds * len(mutants))
    if status != PASSED:
        print(f"{output}\nthe tests fail without a fault, so no mutant can be tried")
        return 2
    print(
        f"without a fault: {last_line(output)}", flush=True
    )  # a test that is skipped sees nothing
    with ThreadPoolExecutor(parallel) as pool:
        trials = [pool.submit(try_mutant, *trial, root, seconds) for trial in ready]
        try:
            for trial in trials:
                counts[trial.result().result] += 1
                print(trial.result(), flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C
    parts = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"{len(mutants)} mutants: {parts} ({time.perf_counter() - start:.0f} s)")
    return 2 if counts[NOT_TRIED] else int(counts[KILLED] < len(mutants))


def try_mutant(
    mutant: Mutant, text: str, arguments: Sequence[str], root: Path, seconds: float
) -> Outcome:
    """Run tests in a copy of the package where a mutant's file has this text."""
    with copy_of(root) as folder:
        path = folder / mutant.file
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()  # of the same size and second, it would be taken for the new one
        status, output = run_tests(folder, arguments, seconds)
    if status is None:
        return Outcome(mutant, TIMED_OUT, f"after {seconds:g} s")
    if status == FAILED:
        failure = FIRST_FAILURE.search(output)
        return Outcome(mutant, KILLED, failure[1] if failure else "")
    if status == PASSED:
        return Outcome(mutant, SURVIVED, mutant.why)
    return Outcome(mutant, NOT_TRIED, f"pytest ended with {status}: {last_line(output)}")


def find(mutant: Mutant, root: Path) -> list[str]:
    """Find where the tests of a mutant are, as arguments of pytest, with the module's examples.

    raises: ValueError if no file or function, or several, have the name of a test
    """
    arguments = [mutant.file] if ">>>" in (root / mutant.file).read_text(encoding="utf-8") else []
    for name in mutant.tests:
        is_file, texts = name.endswith(".py"), read_tests(root)
        places = [path for path in texts if path.name == name] if is_file else []
        places += [path for path, text in texts.items() if f"\ndef {name}(" in text]
        if len(places) != 1:
            raise ValueError(f"{len(places)} test files are or contain {name}, not one")
        place = places[0].relative_to(root).as_posix()
        arguments.append(place if is_file else f"{place}::{name}")
    if not arguments:
        raise ValueError("it names no tests, and its module has no examples")
    return arguments


@cache
def read_tests(root: Path) -> dict[Path, str]:
    """The text of each file of tests"""
    paths = sorted((root / "tests").rglob("test_*.py"))
    return {path: path.read_text(encoding="utf-8") for path in paths}


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A temporary copy of the package with its tests"""
    with TemporaryDirectory() as folder:
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, Path(folder, name))
            elif (root / name).exists():
                shutil.copy2(root / name, folder)
        yield Path(folder)


def run_tests(folder: Path, arguments: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run pytest in a copy up to the first failure; returns its exit status and what it printed.

    The status is None if it takes too long.
    """
    out = folder / "printed.txt"
    process = CONTEXT.Process(target=run_pytest, args=(folder, arguments, out))
    process.start()
    process.join(seconds)
    status = process.exitcode
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):  # what it has started, unless all of that has ended
            os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()
    return status, out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""


def run_pytest(folder: Path, arguments: Sequence[str], out: Path) -> None:
    """Run pytest in a copy, in a process of its own, which ends with pytest's exit status."""
    if hasattr(os, "setsid"):
        os.setsid()
    os.chdir(folder)
    with out.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    # the plugins of pytest, which no test of a module needs, take a second
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ |= {"PYTHONPATH": str(folder), **own}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path) not in OURS)]
    for name in [name for name in sys.modules if name.partition(".")[0] in COPIED]:
        del sys.modules[name]  # they are imported again, from the copy
    import pytest

    words = ["-o", "addopts=", "-p", "no:cacheprovider", "-x", "-q", "-m", "", "--doctest-modules"]
    raise SystemExit(pytest.main([*words, *arguments]))


def last_line(text: str) -> str:
    r"""The last line of what pytest prints, which counts the tests

    >>> last_line("..\n2 passed in 0.1s\n")
    '2 passed in 0.1s'
    """
    return text.strip().rpartition("\n")[2]


if __name__ == "__main__":
    raise SystemExit(main())
