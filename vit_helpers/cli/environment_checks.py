"""What `doctor` looks at: a function a thing, which yields what it found and what to do about it."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]  # the repository, or the folder that pip installed into
CGROUP = Path("/sys/fs/cgroup")  # where Linux says what a container may use
GIB = 2**30
BUSY = 25  # percent of the processor: with as much other work, threads begin to wait for one another
PATIENCE = 3  # seconds for hosts to answer
PYTHON = f'{"& " if os.name == "nt" else ""}"{sys.executable}"' if " " in sys.executable else sys.executable  # to be pasted
PIP = f"{PYTHON} -m pip install"


class Finding(NamedTuple):
    """What was seen of a thing: "ok", "note" or "bad", in words, and what to do about it"""

    state: str
    what: str
    advice: str = ""


def python():
    """Its version, whether pip has a place of its own, and which vit_helpers is meant"""
    bits, wanted = 64 if sys.maxsize > 2**32 else 32, (3, 11)
    fine = sys.version_info >= wanted and bits == 64
    advice = "" if fine else f"take a Python of {'.'.join(map(str, wanted))} or later, 64 bit, from python.org"
    yield Finding("ok" if fine else "bad", f"{platform.python_version()}, {bits} bit: {sys.executable}", advice)
    if sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
        yield Finding("note", "no virtual environment: pip installs for all that this Python runs")
    homes = dict.fromkeys(Path(p).resolve() for p in sys.path if (Path(p) / "vit_helpers" / "__init__.py").is_file())
    if len(homes) > 1:
        others = ", ".join(str(home) for home in homes if home != ROOT)
        yield Finding("note", f"the vit_helpers in {ROOT} counts here, but there are more: {others}", "uninstall the others")


def packages():
    """Those that a reader needs, and their versions"""
    found = []
    for need in requirements():
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            yield Finding("bad", f"{need.name} is missing", f'{PIP} "{need}"')
            continue
        if need.specifier.contains(version, prereleases=True):
            found.append(f"{need.name} {version}")
        else:
            yield Finding("bad", f"{need.name} is {version}, wanted is {need.specifier}", f'{PIP} "{need}"')
    yield Finding("ok", ", ".join(found))


def requirements():
    """What must be there: by requirements.txt of the repository, and by the package's own word where pip installed it"""
    from packaging.requirements import Requirement

    lines = [line.partition("#")[0] for line in read(ROOT / "requirements.txt").splitlines()]
    with suppress(metadata.PackageNotFoundError):  # run from the repository alone, as the README's first command does
        lines += metadata.requires("vit_helpers") or []
    needs = [Requirement(line) for line in lines if line.strip()]
    return {str(need): need for need in needs if not need.marker or need.marker.evaluate({"extra": ""})}.values()


@cache
def import_trouble():
    """Why torch and torchvision cannot be imported, or "": tried in a process of its own, which may crash"""
    said = told_by(sys.executable, "import torch, torchvision; print('fine')")
    return "" if said == "fine" else said


def pytorch():
    """Whether it can be imported, what it was built for, and whether torchvision belongs to it"""
    if trouble := import_trouble():
        yield Finding("bad", f"import torch, torchvision: {trouble}", "install both anew, together, as pytorch.org says")
        return
    import torch
    from packaging.requirements import Requirement

    built = (
        f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}" if torch.version.hip else "CPUs"
    )
    yield Finding("ok", f"torch {torch.__version__}, built for {built}; torchvision {metadata.version('torchvision')}")
    for need in map(Requirement, metadata.requires("torchvision") or []):
        if need.name == "torch" and not need.specifier.contains(torch.__version__, prereleases=True):
            yield Finding("bad", f"this torchvision belongs to torch {need.specifier}", "install both anew, together")


def device():
    """A GPU is used where there is one that works"""
    import torch

    from vit_helpers.cli.train import pick_device

    kind = pick_device("auto")
    if kind == "cuda":
        try:
            torch.ones(1, device=kind).sum().item()
        except RuntimeError as error:  # torch is not built for this GPU, or others have taken all its memory
            yield Finding("bad", f"torch sees a GPU, but cannot use it: {str(error).partition(chr(10))[0]}", "--device cpu")
            return
        free, total = (size / GIB for size in torch.cuda.mem_get_info())
        yield Finding("ok", f"{torch.cuda.get_device_name()}, {free:.0f} of {total:.0f} GiB free")
    else:
        yield Finding("ok", "mps: Apple's GPU" if kind == "mps" else "no GPU, and none is needed")
    if kind == "cpu" and shutil.which("nvidia-smi"):
        yield Finding(
            "note", "there is nvidia-smi, but no GPU that torch can use", "look for a torch built for CUDA, a driver"
        )


def threads():
    """As many as there are CPUs to run them, of which a container may have fewer than it shows"""
    import torch

    count, shown = torch.get_num_threads(), os.cpu_count()
    usable = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else shown, cpu_limit())
    limit = f", of which {usable:g} may be used" if usable < shown else ""
    what, advice = f"torch computes with {count}, on {shown} CPUs{limit}", f"set OMP_NUM_THREADS={max(1, int(usable))}"
    if count > max(1, usable):
        yield Finding("bad", what + ": they wait for one another", advice)
    else:
        yield Finding("ok", what)
    told = os.environ.get("OMP_NUM_THREADS", "1")
    if not told.isdecimal() or int(told) > max(1, usable, count):
        yield Finding("note", f"OMP_NUM_THREADS={told} is no number that fits this machine", advice)


def load():
    """Other work on this machine"""
    import psutil
    import torch

    busy = psutil.cpu_percent(interval=0.5)
    if busy < BUSY:
        yield Finding("ok", f"other work takes {busy:.0f}% of the processor")
    else:
        spin = torch.get_num_threads() > 1 and os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE"
        advice = "threads wait by spinning, which may take all but a sixth of their speed: set OMP_WAIT_POLICY=PASSIVE"
        yield Finding("note", f"other work takes {busy:.0f}% of the processor: times vary", advice if spin else "")


def cpu_limit():
    """How many CPUs the cgroups of a container leave it; infinity where nothing says"""
    pairs = [read(folder / "cpu.max").split() for folder in cgroups()]
    pairs += [[read(CGROUP / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]]  # version 1
    return min((int(pair[0]) / int(pair[1]) for pair in pairs if pair and pair[0].isdecimal()), default=float("inf"))


def memory_left():
    """How many bytes the cgroups of a container leave free; infinity where nothing says"""
    files = [(folder, "memory.max", "memory.current") for folder in cgroups()]
    files += [(CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")]  # version 1
    left = []
    for folder, most, used in files:
        if (limit := read(folder / most).strip()).isdecimal():
            cached = re.search(r"^inactive_file (\d+)$", read(folder / "memory.stat"), re.M)  # given back when it is needed
            left.append(int(limit) - int(read(folder / used) or 0) + int(cached[1] if cached else 0))
    return min(left, default=float("inf"))


def cgroups():
    """The folder of this process's cgroup (version 2) and those around it: the narrowest limit counts"""
    own = next((line[3:] for line in read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), "")
    own = CGROUP / own.strip("/")
    return [folder for folder in (own, *own.parents) if folder.is_relative_to(CGROUP)]


def read(path):
    """The text of a file, "" where it cannot be read"""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def precision():
    """Whether bfloat16 pays, of which notebook 11 speaks"""
    import torch

    from vit_helpers.scaling.speedups import best_precision
    from vit_helpers.scaling.timing import processor

    what = f"{processor()}, vector units {torch.backends.cpu.get_cpu_capability()}"
    if best_precision() == "bfloat16":
        yield Finding("ok", f"{what}, with units for bfloat16: faster than float32")
    else:
        yield Finding("note", f"{what}, none for bfloat16: it runs, several times slower than float32", "stay with float32")


def memory():
    """What is free, held against what the notebooks took"""
    import psutil

    free, needs = min(psutil.virtual_memory().available, memory_left()) / GIB, notebooks_memory()
    if short := [name for name, need in needs.items() if need > free]:
        state = "bad" if len(short) == len(needs) else "note"
        what = f"{free:.1f} GiB free, too little for {', '.join(short)}"
        yield Finding(state, what, "close other programs, and the kernels of other notebooks")
    else:
        most = f"; the hungriest notebook took {max(needs.values()):g} GiB" if needs else ""
        yield Finding("ok", f"{free:.1f} GiB free{most}")


def notebooks_memory():
    """GiB that each notebook took, as its card says: {name: number}; empty where no notebooks lie beside the package"""
    from tools.notebook_costs import MEASURED

    needs = {}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        if found := MEASURED.search("\n".join("".join(cell["source"]) for cell in cells)):
            needs[path.stem] = float(found[2].split()[0])
    return needs


def disk():
    """Room in the two folders that everything writes to"""
    yield room("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that has room")
    yield room("home", Path.home(), "set HOME to a folder that can be written to: Jupyter and others keep files there")


def room(name, folder, advice):
    """Whether a folder can be written to and has a GiB free; one that is not there yet would be made in the next above"""
    # access, for Path.exists raises in a folder that may not be looked into
    there = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free / GIB
    except OSError as error:
        return Finding("bad", f"{name}: nothing can be written to {folder}: {error.strerror}", advice)
    return Finding(*("ok", "") if free > 1 else ("note", advice))._replace(what=f"{name}: {free:.1f} GiB free in {folder}")


def data():
    """The folder of downloads, and which data sets lie there"""
    from vit_helpers.data.downloads import FILES, data_folder, is_downloaded

    folder = data_folder()
    yield room("downloads", folder, "set VIT_HELPERS_DATA to a folder that can be written to")
    here = [name for name in FILES if is_downloaded(name)]
    yield Finding("ok", f"there: {', '.join(['digits', 'scattered_digits', *here])}")
    for name in FILES.keys() - set(here):
        if half := [path for group in FILES[name] for path in group if (folder / path).exists()]:
            yield Finding("note", f"{name} is half there: {', '.join(half)}", "load brings the rest")


def weights():
    """The small trained models of this series"""
    from tools.pretrain import SETTINGS
    from vit_helpers.pretrained.sources import load_ours

    read = []
    for name in SETTINGS:
        try:
            load_ours(name)
            read.append(f"ours:{name}")
        except (ValueError, OSError) as error:
            yield Finding("bad", str(error), "bring the file back: git checkout vit_helpers/weights")
    yield Finding("ok", f"can be read: {', '.join(read) or 'none'}")


def jupyter():
    """Whether the notebooks' kernel runs in this environment"""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    from jupyter_core.paths import jupyter_runtime_dir

    yield room("Jupyter's own files", Path(jupyter_runtime_dir()), "set JUPYTER_RUNTIME_DIR")
    advice = f"{PIP} ipykernel, and then {PYTHON} -m ipykernel install --sys-prefix"
    try:
        python3 = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Finding("bad", "no kernel is called python3, as the notebooks want it", advice)
        return
    if python3 in ("python", "python3", f"python3.{sys.version_info[1]}"):
        python3 = sys.executable  # as Jupyter takes it
    said = told_by(python3, "import os, sys, ipykernel; print(ascii(os.path.realpath(sys.prefix)))")
    if said == ascii(os.path.realpath(sys.prefix)):
        yield Finding("ok", "the kernel python3 runs in this environment")
    else:
        yield Finding("bad", f"the kernel python3 is another Python's, {python3}: {said}", advice)


def told_by(python3, code):
    """The last line that a Python prints when it runs this code, or that of its error"""
    try:
        done = subprocess.run([python3, "-c", code], capture_output=True, text=True, errors="replace", timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr if done.returncode else done.stdout).strip().rpartition("\n")[2] or f"status {done.returncode}"


def encoding():
    """Whether the signs that commands and checks print can be written"""
    known = sys.stdout.encoding or "ascii"
    try:
        "±×→".encode(known)
        yield Finding("ok", f"stdout writes {known}")
    except (UnicodeEncodeError, LookupError):
        yield Finding(
            "bad", f"stdout writes {known}, which lacks signs such as the arrow: commands fail", "set PYTHONUTF8=1"
        )


def tools():
    """git, and the browser that some tests drive"""
    for loss, *names in (
        ("updates of the series", "git"),
        ("tests in a browser, which are skipped", "chromium", "chromium-browser", "google-chrome"),
    ):
        path = next(filter(None, map(shutil.which, names)), None)
        yield Finding("ok", path) if path else Finding("note", f"no {names[0]} here: only {loss} need it")


def network():
    """Whether the hosts of the data sets answer: told only, nothing fails without them"""
    from urllib.parse import urlsplit

    from vit_helpers.data import downloads

    urls = map(urlsplit, (downloads.FASHION_URL, downloads.CIFAR_URL, downloads.PIZZA_URL))
    hosts = dict.fromkeys((f"{url.scheme}://{url.netloc}/" for url in urls), "no answer")
    # in threads that nobody waits for: looking up a name has no time-out of its own
    askers = [threading.Thread(target=ask, args=(host, hosts), daemon=True) for host in hosts]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(PATIENCE)
    for host, trouble in hosts.items():
        yield Finding("note", f"{host} {trouble}; only downloads need it") if trouble else Finding("ok", f"{host} answers")


def ask(host, hosts):
    """Write down what keeps a host from answering: "" when it answers, whatever it says"""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(host, method="HEAD"), timeout=PATIENCE):
            hosts[host] = ""
    except HTTPError as answer:
        answer.close()
        hosts[host] = ""
    except (OSError, HTTPException, ValueError) as error:  # the last two where a proxy's address is none
        hosts[host] = f"cannot be reached: {getattr(error, 'reason', error)}"


CHECKS = {
    "Python": python,
    "packages": packages,
    "PyTorch": pytorch,
    "device": device,
    "threads": threads,
    "load": load,
    "precision": precision,
    "memory": memory,
    "disk": disk,
    "data": data,
    "weights": weights,
    "Jupyter": jupyter,
    "text": encoding,
    "tools": tools,
    "network": network,
}
WITH_TORCH = {device, threads, load, precision, data, weights, network}
