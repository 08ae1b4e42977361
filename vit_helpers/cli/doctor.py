"""Check this machine and report what will cause trouble: Python, packages, torch, memory, disk, data, Jupyter, network.

Prints a line for each finding: `ok`, `note` (worth knowing, but nothing fails) or `bad` (part of the series fails, or takes
many times as long; the line below says what to do). Nothing is changed. The exit status is 0 if nothing is bad.

Examples:

    python -m vit_helpers doctor
    python -m vit_helpers doctor > report.txt
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]  # the repository, or the folder that pip installed into
CGROUP = Path("/sys/fs/cgroup")  # where Linux says what a container may use
GIB = 2**30
BUSY = (
    25  # percent of the processor: with as much other work, threads begin to wait for one another
)
PATIENCE = 3  # seconds for a host to answer
PYTHON = (
    f'{"& " if os.name == "nt" else ""}"{sys.executable}"'
    if " " in sys.executable
    else sys.executable
)  # to paste
PIP = f"{PYTHON} -m pip install"
MEMORY = re.compile(
    r"\| time and memory \| \S+ s, (\S+) GiB"
)  # measured, in the first cells of a notebook


class Finding(NamedTuple):
    """The state of a thing, "ok", "note" or "bad", what was found, and what to do about it"""

    state: str
    what: str
    advice: str = ""


def finding(good: bool, what: str, advice: str = "", otherwise: str = "bad") -> Finding:
    return Finding("ok", what) if good else Finding(otherwise, what, advice)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--offline", action="store_true", help="do not try to reach the hosts of the downloads"
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="also print torch's own report of versions and hardware",
    )


def run(args: Namespace) -> int:
    states = []
    for check in CHECKS:
        for state, what, advice in (
            findings(check) if not (args.offline and check is network) else ()
        ):
            states.append(state)
            print_wrapped(f"{state:<5} {check.__name__:<10} ", what)
            if advice:
                print_wrapped(f"{'':<17}-> ", advice)
    if args.report and not import_error():
        from torch.utils.collect_env import get_pretty_env_info

        print(get_pretty_env_info())
    bad, notes = states.count("bad"), states.count("note")
    print(
        f"{len(states)} checks: {bad} bad, {notes} worth knowing, {len(states) - bad - notes} as they should be"
    )
    return 1 if bad else 0


def findings(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a check finds; an error in it is one more finding."""
    try:
        if check in WITH_TORCH and import_error():
            yield Finding("note", "not checked: this needs a torch that can be imported")
        else:
            yield from check()
    except ImportError as error:
        yield Finding("bad", f"could not be checked: {error}", f"{PIP} -r requirements.txt")
    except Exception as error:  # of any kind: the other checks go on
        yield Finding("note", f"could not be checked: {type(error).__name__}: {error}")


def print_wrapped(start: str, words: str) -> None:
    """Print in lines of at most 100 columns, indented below `start`."""
    print(
        textwrap.fill(
            words,
            100,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,
        )
    )


def python() -> Iterator[Finding]:
    """Its version, whether it has a virtual environment, which vit_helpers is imported, what stdout can write."""
    fits = sys.version_info >= (3, 11) and sys.maxsize > 2**32
    what = f"{platform.python_version()}, {platform.architecture()[0]}: {sys.executable}"
    yield finding(fits, what, "install Python 3.11 or later, 64 bit, from python.org")
    if sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
        yield Finding(
            "note", "no virtual environment: pip installs for everything that this Python runs"
        )
    homes = {
        Path(p).resolve() for p in sys.path if (Path(p) / "vit_helpers" / "__init__.py").is_file()
    }
    if others := ", ".join(map(str, homes - {ROOT})):
        yield Finding(
            "note",
            f"the vit_helpers in {ROOT} is used, but there are more: {others}",
            "uninstall the others",
        )
    written = "±×→".encode(sys.stdout.encoding or "ascii", "replace")
    yield finding(
        b"?" not in written,
        f"stdout writes {sys.stdout.encoding}",
        "set PYTHONUTF8=1: commands print ± and →",
    )


def packages() -> Iterator[Finding]:
    """The packages that a reader needs, and whether their versions are within the bounds."""
    from_pip = [
        line for one in metadata.distributions(name="vit_helpers") for line in one.requires or []
    ]
    found = []
    for need in requirements(read(ROOT / "requirements.txt").splitlines() or from_pip):
        try:
            found.append(f"{need.name} {metadata.version(need.name)}")
            if not need.specifier.contains(metadata.version(need.name), prereleases=True):
                yield Finding(
                    "bad",
                    f"{found.pop()} does not fit, required is {need.specifier}",
                    f'{PIP} "{need}"',
                )
        except metadata.PackageNotFoundError:
            yield Finding("bad", f"{need.name} is missing", f'{PIP} "{need}"')
    yield Finding("ok", ", ".join(found))


def requirements(lines: Iterable[str]) -> list[Any]:
    """The requirements in lines of requirements.txt or of a package's metadata, without those of its extras."""
    from packaging.requirements import Requirement

    needs = [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]
    return [need for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]


@cache
def import_error() -> str:
    """Why torch and torchvision cannot be imported, or "": tried in a process of its own, which may crash."""
    return last_line(sys.executable, "import torch, torchvision; print()")


def last_line(executable: str, code: str, timeout: float = 120) -> str:
    """The last line that a Python prints when it runs this code, or that of its error."""
    try:
        done = subprocess.run(
            [executable, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout} seconds"
    except OSError as error:
        return str(error)
    line = (done.stderr if done.returncode else done.stdout).strip().rpartition("\n")[2]
    return line or (f"status {done.returncode}" if done.returncode else "")


def pytorch() -> Iterator[Finding]:
    """Whether it can be imported, whether torchvision belongs to it, and whether it can use the GPU if there is one."""
    if error := import_error():
        yield Finding(
            "bad",
            f"import torch, torchvision: {error}",
            "install both again, together, as pytorch.org says",
        )
        return
    import torch
    from torch.utils.collect_env import get_nvidia_driver_version, run

    yield Finding("ok", f"torch {torch.__version__}; torchvision {metadata.version('torchvision')}")
    for need in requirements(metadata.requires("torchvision") or []):
        if need.name == "torch" and not need.specifier.contains(
            torch.__version__, prereleases=True
        ):
            yield Finding(
                "bad",
                f"this torchvision belongs to torch {need.specifier}",
                "install both again, together",
            )
    try:
        if torch.cuda.is_available():
            torch.ones(1, device="cuda").sum().item()
            yield Finding("ok", f"{torch.cuda.get_device_name()} works")
        elif driver := get_nvidia_driver_version(run):
            yield Finding(
                "note",
                f"found NVIDIA's driver {driver}, but torch sees no GPU",
                "install torch built for CUDA",
            )
        else:
            yield Finding(
                "ok",
                "mps: Apple's GPU"
                if torch.backends.mps.is_available()
                else "no GPU, and none is needed",
            )
    except (
        RuntimeError
    ) as error:  # torch is not built for this GPU, or others have taken all its memory
        yield Finding(
            "bad",
            f"torch sees a GPU, but cannot use it: {str(error).partition(chr(10))[0]}",
            "use --device cpu",
        )


def processor() -> Iterator[Finding]:
    """Its bfloat16 units, threads (no more than the CPUs that a container may use, which shows them all), other work."""
    import psutil
    import torch

    from vit_helpers.scaling.speedups import best_precision

    units = best_precision() == "bfloat16"
    what = f"bfloat16 is {'faster' if units else 'several times slower'} than float32 here"
    yield finding(units, what, "use float32", otherwise="note")
    count, shown = torch.get_num_threads(), os.cpu_count() or 1
    usable = min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else shown, container()[0]
    )
    what = f"torch computes with {count} threads, on {shown} CPUs, of which {usable:g} may be used"
    what += ": they wait for one another" * (count > max(1, usable))
    yield finding(count <= max(1, usable), what, f"set OMP_NUM_THREADS={max(1, int(usable))}")
    busy = psutil.cpu_percent(interval=0.5)
    spin = count > 1 and os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE"
    advice = "threads wait by spinning, which may take all but a sixth of their speed: set OMP_WAIT_POLICY=PASSIVE"
    yield finding(
        busy < BUSY,
        f"other programs use {busy:.0f}% of the processor",
        advice * spin,
        otherwise="note",
    )


def memory() -> Iterator[Finding]:
    """What is free, compared with what the notebooks used; without the repository that is unknown."""
    import psutil

    pages = {
        path.stem: MEMORY.search(read(path))
        for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    }
    needs = {name: float(cost[1]) for name, cost in pages.items() if cost}
    free = min(psutil.virtual_memory().available, container()[1]) / GIB
    short = [name for name, need in needs.items() if need > free]
    what = (
        f", too little for {', '.join(short)}"
        if short
        else ", enough for every notebook" * bool(needs)
    )
    advice = "close other programs, and the kernels of other notebooks"
    yield finding(
        not short,
        f"{free:.1f} GiB free{what}",
        advice,
        "bad" if len(short) == len(needs) else "note",
    )


def container() -> tuple[float, float]:
    """The CPUs, and the bytes beside those in use, that Linux's cgroups allow, which psutil does not read; or infinity."""
    name = re.search(r"^0::/?(.*)$", read(Path("/proc/self/cgroup")), re.M)
    own = CGROUP / (name[1] if name else "")
    cpus, left = [inf], [inf]
    for folder in (
        own,
        *own.parents,
        CGROUP / "cpu",
        CGROUP / "memory",
    ):  # the last two in version 1
        shares = re.match(
            r"(\d+)\s(\d+)",
            read(*(folder / f"cpu.{x}" for x in ("max", "cfs_quota_us", "cfs_period_us"))),
        )
        limit = read(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = read(folder / "memory.current", folder / "memory.usage_in_bytes")
        cached = re.search(
            r"^inactive_file (\d+)$", read(folder / "memory.stat"), re.M
        )  # freed when it is needed
        if shares:
            cpus.append(int(shares[1]) / int(shares[2]))
        if limit.strip().isdecimal():
            left.append(int(limit) - int(used or 0) + int(cached[1] if cached else 0))
    return min(cpus), min(left)


def read(*paths: Path) -> str:
    """The texts of files in a row, of those that can be read."""
    return "".join(path.read_text(encoding="utf-8") for path in paths if os.access(path, os.R_OK))


def disk() -> Iterator[Finding]:
    """Free space in the two folders that everything writes to."""
    yield room(
        "temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder with free space"
    )
    yield room("home", Path.home(), "set HOME to a folder that can be written to")


def room(name: str, folder: Path, advice: str) -> Finding:
    """Whether a folder can be written to and has a GiB free; if it does not exist, the next one above counts."""
    there = next(
        path for path in (folder, *folder.parents) if os.access(path, os.F_OK)
    )  # Path.exists may raise
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free / GIB
    except OSError as error:
        return Finding(
            "bad", f"{name}: nothing can be written to {folder}: {error.strerror}", advice
        )
    return finding(free > 1, f"{name}: {free:.1f} GiB free in {folder}", advice, otherwise="note")


def data() -> Iterator[Finding]:
    """The folder of downloads, which data sets are in it, and the small trained models of this series."""
    from vit_helpers.data.cache import data_folder
    from vit_helpers.data.downloads import SOURCES, is_downloaded
    from vit_helpers.pretrained.sources import load_ours

    yield room(
        "downloads", data_folder(), "set VIT_HELPERS_DATA to a folder that can be written to"
    )
    here = ["digits", "scattered_digits", *filter(is_downloaded, SOURCES)]
    for name in ("scattered", "seven", "masked", "drawn", "photos", "eight"):
        try:
            load_ours(name)
            here.append(f"the weights ours:{name}")
        except (ValueError, OSError) as error:
            yield Finding("bad", str(error), "restore the file: git checkout vit_helpers/weights")
    yield Finding("ok", f"available: {', '.join(here)}")


def jupyter() -> Iterator[Finding]:
    """Whether the notebooks' kernel runs in this environment."""
    from jupyter_client.kernelspec import NoSuchKernel
    from jupyter_client.manager import KernelManager
    from jupyter_core.paths import jupyter_runtime_dir

    yield room("Jupyter's own files", Path(jupyter_runtime_dir()), "set JUPYTER_RUNTIME_DIR")
    advice = f"{PIP} ipykernel, and then {PYTHON} -m ipykernel install --sys-prefix"
    try:
        executable = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
    except NoSuchKernel:
        yield Finding("bad", "there is no kernel python3, which the notebooks use", advice)
        return
    prefix = last_line(
        executable, "import os, sys, ipykernel; print(ascii(os.path.realpath(sys.prefix)))"
    )
    same = prefix == ascii(os.path.realpath(sys.prefix))
    what = "runs in this environment" if same else f"is another Python's, {executable}: {prefix}"
    yield finding(same, f"the kernel python3 {what}", advice)


def network() -> Iterator[Finding]:
    """Whether the hosts of the data sets answer, whatever they say; nothing else fails without them."""
    from vit_helpers.data.downloads import SOURCES

    for host in dict.fromkeys(
        "/".join(source["url"].split("/")[:3]) + "/" for source in SOURCES.values()
    ):
        # in a process of its own: looking up a name has no time-out
        code = "from urllib import error, request\ntry:\n    request.urlopen(request.Request({!r}, method='HEAD'))\n"
        error = last_line(
            sys.executable, code.format(host) + "except error.HTTPError:\n    pass", PATIENCE
        )
        what = (
            f"{host} cannot be reached: {error}; only downloads need it"
            if error
            else f"{host} answers"
        )
        yield finding(not error, what, otherwise="note")


WITH_TORCH = (processor, data, network)
CHECKS = (python, packages, pytorch, memory, disk, jupyter, *WITH_TORCH)
