"""The work of `doctor`: what will cause trouble on this machine is found, and what to do is said.

What is checked is imported inside the checks: if it is missing, that is a finding.
"""

import os
import platform
import subprocess
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from vit_helpers._cpus import count_cpus
from vit_helpers.cli import threads as own_threads

ROOT = Path(__file__).parents[2]  # the repository, or the folder that pip installed into
PATIENCE = 120  # seconds for another Python to answer
CALL = "& " if os.name == "nt" else ""  # PowerShell's word before a path in quotes
PYTHON = f'{CALL}"{sys.executable}"' if " " in sys.executable else sys.executable  # to paste
PIP = f"{PYTHON} -m pip install"


class Finding(NamedTuple):
    """The state of a thing, "ok", "note" or "bad", what it is, and what to do about it"""

    state: str
    text: str
    advice: str = ""


def run(args: Namespace) -> int:
    """Print what each check finds; return 1 if anything is bad."""
    states = []
    for check in CHECKS:
        state, text, advice = find(check)
        states.append(state)
        print_wrapped(f"{state:<5} {check.__name__:<9} ", text)
        if advice:
            print_wrapped(f"{'':<16}-> ", advice)
    bad, notes = states.count("bad"), states.count("note")
    good = len(states) - bad - notes
    print(f"{len(states)} checks: {bad} bad, {notes} worth knowing, {good} as they should be")
    return 1 if bad else 0


def find(check: Callable[[], Finding]) -> Finding:
    """Return what a check finds; an error in it is a finding."""
    try:
        return check()
    except ImportError as error:
        return Finding("bad", f"could not be checked: {error}", f"{PIP} -r requirements.txt")
    except Exception as error:  # of any kind: the other checks go on
        return Finding("note", f"could not be checked: {type(error).__name__}: {error}")


def print_wrapped(start: str, text: str) -> None:
    """Print in lines of at most 100 columns, indented below `start`."""
    indent = " " * len(start)
    lines = textwrap.fill(
        text, 100, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )
    print(lines, flush=True)


def python() -> Finding:
    """Check the version of Python."""
    text = f"{platform.python_version()}, {platform.architecture()[0]}: {sys.executable}"
    if sys.version_info >= (3, 11) and sys.maxsize > 2**32:
        return Finding("ok", text)
    return Finding("bad", text, "install Python 3.11 or later, 64 bit, from python.org")


def packages() -> Finding:
    """Check whether the packages that a reader needs are there, in versions within the bounds."""
    installed, wrong, needed = [], [], []
    for need in requirements(required_lines()):
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            needed.append(f'"{need}"')
            continue
        if need.specifier.contains(version, prereleases=True):
            installed.append(f"{need.name} {version}")
        else:
            wrong.append(f"{need.name} {version} does not fit, required is {need.specifier}")
            needed.append(f'"{need}"')
    if wrong:
        return Finding("bad", "; ".join(wrong), f"{PIP} {' '.join(needed)}")
    return Finding("ok", ", ".join(installed))


def required_lines() -> list[str]:
    """List the requirements of a reader; without the repository, those of the installed package."""
    lines = read(ROOT / "requirements.txt").splitlines()
    if lines:
        return lines
    return [
        line
        for package in metadata.distributions(name="vit_helpers")
        for line in package.requires or []
    ]


def requirements(lines: Iterable[str]) -> list[Any]:
    """Parse lines of requirements.txt or of a package's metadata, without those of its extras."""
    from packaging.requirements import Requirement

    texts = [line.partition("#")[0].strip() for line in lines]
    needs = [Requirement(text) for text in texts if text]
    return [need for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]


def pytorch() -> Finding:
    """Check whether torch can be imported, and whether it can use the GPU if it sees one."""
    error = last_line(sys.executable, "import torch, torchvision; print()")  # which may crash
    if error:
        advice = "install both again, together, as pytorch.org says"
        return Finding("bad", f"import torch, torchvision: {error}", advice)
    import torch

    text = f"torch {torch.__version__}, torchvision {metadata.version('torchvision')}"
    if not torch.cuda.is_available():
        mps = torch.backends.mps.is_available()
        gpu = "Apple's GPU (mps)" if mps else "no GPU, and none is needed"
        return Finding("ok", f"{text}; {gpu}")
    try:
        torch.ones(1, device="cuda").sum().item()
    except RuntimeError as error:  # it is not built for this GPU, or others use all its memory
        reason = str(error).partition("\n")[0]
        return Finding("bad", f"{text} sees a GPU, but cannot use it: {reason}", "use --device cpu")
    return Finding("ok", f"{text}; {torch.cuda.get_device_name()} works")


def last_line(executable: str, code: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the last line that a Python prints when it runs this code, or that of its error."""
    try:
        done = subprocess.run(
            [executable, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} seconds"
    except OSError as error:
        return str(error)
    line = (done.stderr if done.returncode else done.stdout).strip().rpartition("\n")[2]
    if done.returncode and not line:
        return f"status {done.returncode}"
    return line


def threads() -> Finding:
    """Check that torch starts with no more threads than CPUs: a container may grant fewer."""
    environment = dict(os.environ)
    if own_threads.automatic:  # this command has chosen one thread, for itself alone
        del environment["OMP_NUM_THREADS"]
    code = "import torch; print(torch.get_num_threads())"
    count, cpus = last_line(sys.executable, code, environment), count_cpus()
    if not count.isdecimal():
        raise ImportError(count)
    text = f"torch starts with {count}, on {os.cpu_count()} CPUs, of which {cpus:g} may be used"
    if int(count) <= max(1, cpus):
        return Finding("ok", text)
    advice = f"set OMP_NUM_THREADS={max(1, int(cpus))} before Python starts"
    return Finding("bad", f"{text}: they wait for one another", advice)


def read(path: Path) -> str:
    """Return the text of a file, empty if it cannot be read."""
    return path.read_text(encoding="utf-8") if os.access(path, os.R_OK) else ""


def kernel() -> Finding:
    """Check whether the notebooks' kernel runs in this environment."""
    from jupyter_client.kernelspec import NoSuchKernel
    from jupyter_client.manager import KernelManager

    advice = f"{PIP} ipykernel, and then {PYTHON} -m ipykernel install --sys-prefix"
    try:
        executable = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
    except NoSuchKernel:
        return Finding("bad", "there is no kernel python3, which the notebooks use", advice)
    code = "import os, sys, ipykernel; print(ascii(os.path.realpath(sys.prefix)))"
    prefix = last_line(executable, code)
    if prefix == ascii(os.path.realpath(sys.prefix)):
        return Finding("ok", "the kernel python3 runs in this environment")
    text = f"the kernel python3 is another Python's, {executable}: {prefix}"
    return Finding("bad", text, advice)


CHECKS = (python, packages, pytorch, threads, kernel)
