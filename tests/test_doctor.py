"""What `doctor` reports of a machine where something is wrong: every problem is made, and must be named."""

import ast
import http.server
import io
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from vit_helpers.cli import COMMANDS, main
from vit_helpers.cli import doctor as checks
from vit_helpers.cli.doctor import CHECKS, WITH_TORCH, Finding, findings, print_wrapped
from vit_helpers.data import downloads
from vit_helpers.pretrained.sources import OURS

ROOT = Path(__file__).parents[1]
posix = pytest.mark.skipif(
    os.name == "nt", reason="scripts with a #! line, and what Linux tells, are not Windows'"
)


def doctor(folder, *words, **environment):
    """What the command does in a process of its own, with a HOME that can be written to"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder)} | environment
    words = [sys.executable, "-m", "vit_helpers", *words]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def found(check, state):
    """What a check finds in this state, and its advice: a text"""
    return "\n".join(f"{one.what} -> {one.advice}" for one in findings(check) if one.state == state)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(autouse=True)
def nobodys_folders(monkeypatch, tmp_path):
    """Whatever the caller's environment says of folders does not count here, nor does other work on this machine"""
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 3.0)
    kinds = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "PATH")
    for name in (
        "VIT_HELPERS_DATA",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        *(f"JUPYTER_{kind}" for kind in kinds),
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture
def a_file(tmp_path):
    """A path that can never become a folder, nor hold one: root too is refused"""
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file"


def test_this_machine_is_well(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor", "--offline"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    told = [re.match(r"(ok   |note ) (\S+) +\S|                 ", line) for line in lines]
    assert all(told)
    assert list(dict.fromkeys(match[2] for match in told if match[2])) == [
        c.__name__ for c in CHECKS if c.__name__ != "network"
    ]
    assert re.fullmatch(r"\d+ checks: 0 bad, \d+ worth knowing, \d+ as they should be", last)


def test_everything_wrong_at_once_is_reported(tmp_path, a_file, monkeypatch):
    data = tmp_path / "größe"
    data.write_text("no folder")
    for name, place in (
        ("HOME", a_file / "home"),
        ("VIT_HELPERS_DATA", data),
        ("JUPYTER_RUNTIME_DIR", a_file / "runtime"),
    ):
        monkeypatch.setenv(name, str(place))
    monkeypatch.setattr(checks, "import_error", lambda: "")  # takes longest, and is tried above
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["doctor", "--offline"]) == 1
    said = " ".join(sys.stdout.buffer.getvalue().decode("ascii").split())
    assert "bad disk home: nothing can be written to" in said
    assert "bad data downloads: nothing can be written to" in said and "gr\\xf6\\xdfe" in said
    assert "-> set VIT_HELPERS_DATA" in said
    assert "bad python stdout writes ascii" in said and "-> set PYTHONUTF8=1" in said
    assert "bad jupyter Jupyter's own files: nothing can be written to" in said


@pytest.mark.parametrize(
    ("torch_py", "says"),
    [
        (
            "raise ImportError('libcudnn.so.9: cannot open shared object file')",
            "ImportError: libcudnn.so.9: cannot open",
        ),
        (
            "raise ModuleNotFoundError(\"No module named 'torch'\")",
            "ModuleNotFoundError: No module named 'torch'",
        ),
        ("import os; os.abort()", r"status -?\d+"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_reported(tmp_path, torch_py, says):
    (tmp_path / "torch.py").write_text(torch_py)
    done = doctor(tmp_path, "doctor")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"^bad   pytorch +import torch, torchvision: " + says, done.stdout, re.M)
    assert len(
        re.findall("^note .*this needs a torch that can be imported", done.stdout, re.M)
    ) == len(WITH_TORCH)
    assert re.search("^ok    packages ", done.stdout, re.M) and re.search(
        "^ok    jupyter ", done.stdout, re.M
    )


def test_torchs_own_report_is_printed_on_request(monkeypatch, capsys):
    monkeypatch.setattr("vit_helpers.cli.doctor.CHECKS", ())
    monkeypatch.setattr("torch.utils.collect_env.get_pretty_env_info", lambda: "PyTorch version: 2")
    assert main(["doctor", "--report"]) == 0
    assert capsys.readouterr().out.startswith("PyTorch version: 2\n0 checks")


def test_a_broken_torch_does_not_hide_the_commands(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('broken')")
    done = doctor(tmp_path, "--help")
    assert done.returncode == 0
    assert [
        name for name in COMMANDS if not re.search(rf"^    {name}\s+\w", done.stdout, re.M)
    ] == []


def test_a_command_imports_no_other():
    code = """
import sys
from vit_helpers.cli import main
try:
    main(["train", "--help"])
except SystemExit:
    pass
print([name for name in sorted(sys.modules) if name.startswith("vit_helpers.cli.") or name == "torch"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "['vit_helpers.cli.reading', 'vit_helpers.cli.train']", (
        done.stderr
    )


def test_an_old_python_is_told_and_reads_what_tells_it(monkeypatch):
    monkeypatch.setattr(checks.sys, "version_info", (3, 10, 2))
    assert "install Python 3.11 or later" in found(checks.python, "bad")
    commands = [f"cli/{path.name}" for path in (ROOT / "vit_helpers" / "cli").glob("*.py")]
    for name in (
        "__init__.py",
        "__main__.py",
        *commands,
    ):  # the main file reads the docstring of each command
        ast.parse((ROOT / "vit_helpers" / name).read_text(encoding="utf-8"), feature_version=(3, 9))
    assert len(commands) > 6


def test_pip_without_a_place_of_its_own_is_reported(monkeypatch):
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert "no virtual environment" in found(checks.python, "note")


def test_a_second_vit_helpers_is_reported(tmp_path, monkeypatch):
    (tmp_path / "vit_helpers").mkdir()
    (tmp_path / "vit_helpers" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert f"there are more: {tmp_path.resolve()}" in found(checks.python, "note")


def test_missing_and_old_packages_are_named(monkeypatch):
    installed = metadata.version

    def version(name):
        if name == "einops":
            raise metadata.PackageNotFoundError(name)
        return {"torch": "2.5.1+cpu", "nbval": "0.12.0"}.get(name) or installed(name)

    monkeypatch.setattr(metadata, "version", version)
    told = found(checks.packages, "bad")
    assert (
        "torch 2.5.1+cpu does not fit, required is >=2.11 -> " in told
        and 'pip install "torch>=2.11"' in told
    )
    assert "einops is missing -> " in told and 'pip install "einops>=' in told
    assert "nbval 0.12.0 does not fit, required is <0.12,>=0.11" in told
    assert len(told.splitlines()) == 3
    assert "matplotlib" in found(checks.packages, "ok") and "einops" not in found(
        checks.packages, "ok"
    )


def test_what_is_needed_is_read_from_both_places(tmp_path, monkeypatch):
    assert {"jupyterlab", "torch", "safetensors"} <= {
        name.split()[0] for name in found(checks.packages, "ok").split(", ")
    }
    monkeypatch.setattr(checks, "ROOT", tmp_path)  # no repository: pip's word is left
    installed = SimpleNamespace(requires=["torch>=2.6", 'pytest>=8; extra == "test"'])
    monkeypatch.setattr(metadata, "distributions", lambda name: [installed])
    assert found(checks.packages, "ok") == f"torch {metadata.version('torch')} -> " and not found(
        checks.packages, "bad"
    )


def test_a_torchvision_of_another_torch_is_reported(monkeypatch):
    assert not found(checks.pytorch, "bad")
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy", "torch==2.0.1"])
    assert found(checks.pytorch, "bad").startswith("this torchvision belongs to torch ==2.0.1")


def test_a_gpu_that_cannot_be_used_is_reported(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA error: no kernel image is available\nmore")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", refuse)
    assert found(checks.pytorch, "bad").startswith(
        "torch sees a GPU, but cannot use it: CUDA error: no kernel image is a"
    )


@posix
def test_a_gpu_that_torch_does_not_see_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    folder = script(
        tmp_path / "nvidia-smi",
        "echo '| NVIDIA-SMI 570.86  Driver Version: 570.86.15  CUDA Version: 12.8 |'",
    ).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert "NVIDIA's driver 570.86.15, but torch sees no GPU" in found(checks.pytorch, "note")


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.max": "150000 100000"},
        {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"},
    ],
    ids=["version 2", "version 1"],
)
def test_a_container_with_fewer_cpus_than_it_shows_is_reported(tmp_path, monkeypatch, files):
    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    assert checks.container() == (float("inf"), float("inf"))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert checks.container()[0] == 1.5
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    told = found(checks.processor, "bad")
    assert "torch computes with 4 threads" in told and "on 8 CPUs, of which 1" in told
    assert told.endswith(": they wait for one another -> set OMP_NUM_THREADS=1")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert "of which 1" in found(checks.processor, "ok")


def test_no_limit_is_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert checks.container() == (float("inf"), float("inf"))


def test_the_narrowest_cgroup_counts(tmp_path, monkeypatch):
    read_any = checks.read

    def read(*paths):
        return (
            "3:cpu:/x\n0::/user/mine\n"
            if paths == (Path("/proc/self/cgroup"),)
            else read_any(*paths)
        )

    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    monkeypatch.setattr(checks, "read", read)
    (tmp_path / "user" / "mine").mkdir(parents=True)
    for folder, limit in (
        ("", "max 100000"),
        ("user", "200000 100000"),
        ("user/mine", "400000 100000"),
    ):
        (tmp_path / folder / "cpu.max").write_text(limit)
    assert checks.container()[0] == 2


def test_too_little_memory_names_the_notebooks(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=64 * 2**30))
    (tmp_path / "memory.max").write_text(str(2 * 2**30))
    assert found(checks.memory, "note").startswith(
        "2.0 GiB free, too little for 11_scaling -> close other programs"
    )
    (tmp_path / "memory.max").write_text(str(2**28))
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert f"too little for {', '.join(notebooks)} -> " in found(checks.memory, "bad")


@pytest.mark.parametrize(
    "files",
    [("memory.max", "memory.current", "memory.stat"),
     ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat")],
    ids=["version 2", "version 1"],
)  # fmt: skip
def test_memory_that_a_container_has_used_is_not_free(tmp_path, monkeypatch, files):
    monkeypatch.setattr(checks, "CGROUP", tmp_path)
    for name, text in zip(
        files, ("4000\n", "3900\n", "active_file 7\ninactive_file 500\n"), strict=True
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert checks.container()[1] == 600


def test_other_work_is_reported(monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 80.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert re.search("use 80% .* set OMP_WAIT_POLICY=PASSIVE", found(checks.processor, "note"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert found(checks.processor, "note").endswith("80% of the processor -> ")
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 3.0)
    assert "3%" in found(checks.processor, "ok")


@pytest.mark.parametrize(
    ("units", "state", "says"), [(True, "ok", "faster"), (False, "note", "several times slower")]
)
def test_units_for_bfloat16_are_reported(monkeypatch, units, state, says):
    monkeypatch.setattr("vit_helpers.scaling.speedups.bf16_units", lambda: units)
    assert says in found(checks.processor, state)


def test_a_full_disk_and_a_missing_temporary_folder_are_reported(tmp_path, a_file, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**8))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "temporary files: 0.1 GiB free" in found(checks.disk, "note")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(a_file))
    assert "temporary files: nothing can be written to" in found(checks.disk, "bad")


def test_data_sets_are_complete_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path / "data"))
    assert "available: digits, scattered_digits, the weights ours:scattered, " in found(
        checks.data, "ok"
    )
    assert (
        f"free in {tmp_path / 'data'}" in found(checks.data, "ok")
        and not (tmp_path / "data").exists()
    )
    first, *others = (
        tmp_path / "data" / name for name in downloads.SOURCES["fashion_mnist"]["here"][0]
    )
    first.parent.mkdir(parents=True)
    first.touch()
    assert "fashion_mnist" not in found(checks.data, "ok")
    for path in others:
        path.touch()
    assert "scattered_digits, fashion_mnist" in found(checks.data, "ok") and not found(
        checks.data, "note"
    )


def test_weights_that_are_missing_or_truncated(tmp_path, monkeypatch):
    monkeypatch.setattr("vit_helpers.pretrained.sources.OURS", tmp_path)
    shutil.copy(OURS / "masked.safetensors", tmp_path)
    (tmp_path / "seven.safetensors").write_bytes((OURS / "seven.safetensors").read_bytes()[:1000])
    said = found(checks.data, "bad")
    assert "unknown weights 'ours:scattered'" in said and "seven.safetensors is cut short" in said
    assert found(checks.data, "ok").endswith("scattered_digits, the weights ours:masked -> ")


def test_all_weights_of_the_series_are_checked():
    from tools.pretrain import SETTINGS

    assert all(f"ours:{name}" in found(checks.data, "ok") for name in [*SETTINGS, "drawn"])


@posix
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo /elsewhere", ": /elsewhere ->"),
        ("echo no ipykernel >&2; exit 1", ": no ipykernel ->"),
        (None, "No such file"),
    ],
)
def test_a_kernel_of_another_environment_is_reported(tmp_path, monkeypatch, text, says):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    other = script(tmp_path / "python", text) if text else tmp_path / "gone"
    spec.write_text(
        json.dumps(
            {
                "argv": [str(other), "-m", "ipykernel_launcher"],
                "display_name": "P",
                "language": "python",
            }
        )
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    told = found(checks.jupyter, "bad")
    assert told.startswith(f"the kernel python3 is another Python's, {other}") and says in told
    assert "ipykernel install --sys-prefix" in told


@posix
def test_a_kernel_by_another_way_to_the_same_folder_is_well(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(sys.prefix)
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    python3 = tmp_path / "link" / Path(sys.executable).relative_to(sys.prefix)
    spec.write_text(json.dumps({"argv": [str(python3)], "display_name": "P", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert "runs in this environment" in found(checks.jupyter, "ok")


def test_advice_can_be_pasted_where_the_path_has_a_space(tmp_path):
    code = "import sys; sys.executable = '/my env/python'; from vit_helpers.cli.doctor import PIP; print(PIP)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip().removeprefix("& ") == '"/my env/python" -m pip install'


def test_no_kernel_at_all_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ENV_JUPYTER_PATH", "SYSTEM_JUPYTER_PATH"):
        monkeypatch.setattr(f"jupyter_core.paths.{name}", [])
    monkeypatch.setitem(sys.modules, "ipykernel.kernelspec", None)
    assert found(checks.jupyter, "bad").startswith("there is no kernel python3")


class Refuses(http.server.BaseHTTPRequestHandler):
    """A host that answers, if only to say no"""

    def do_HEAD(self):
        self.send_error(403)

    def log_message(self, *args):
        pass


def test_hosts_that_answer_that_are_silent_and_that_are_not_there(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(checks, "PATIENCE", 2)
    with (
        http.server.HTTPServer(("127.0.0.1", 0), Refuses) as server,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()[1]
        ports = (server.server_port, silent.getsockname()[1], closed)
        for source, port in zip(downloads.SOURCES.values(), ports, strict=True):
            monkeypatch.setitem(source, "url", f"http://127.0.0.1:{port}/data.zip")
        hosts = list(findings(checks.network))
        server.shutdown()
    assert [one.state for one in hosts] == ["ok", "note", "note"]
    assert hosts[0].what == f"http://127.0.0.1:{ports[0]}/ answers"
    assert "no answer in 2 seconds" in hosts[1].what and "only downloads need it" in hosts[2].what
    assert re.search("refused", hosts[2].what, re.I)


@pytest.mark.parametrize(
    ("host", "proxy"),
    [("https://nowhere.invalid/", ""), ("http://example.org/", "http://proxy:notaport")],
)
def test_a_network_that_fails_is_a_note(monkeypatch, host, proxy):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    for source in downloads.SOURCES.values():
        monkeypatch.setitem(source, "url", f"{host}data.zip")
    (one,) = findings(checks.network)
    assert (
        one.state == "note"
        and one.what.startswith(f"{host} cannot be reached: ")
        and ("notaport" in one.what) == bool(proxy)
    )


def test_an_error_in_a_check_is_a_finding():
    def stumbles():
        yield Finding("ok", "so far")
        raise PermissionError(13, "Permission denied", "secret")

    def lacks():
        import vit_helpers.nothing  # noqa: F401

        yield

    assert [one.state for one in findings(stumbles)] == ["ok", "note"]
    assert "could not be checked: PermissionError" in found(stumbles, "note")
    said = found(lacks, "bad")
    assert (
        "No module named 'vit_helpers.nothing'" in said
        and "pip install -r requirements.txt" in said
    )


def test_lines_are_short_and_indented(capsys):
    print_wrapped("note  thing ", "word " * 60)
    first, *others = capsys.readouterr().out.splitlines()
    assert (
        len(first) <= 100
        and others
        and all(re.match(r" {12}word", line) and len(line) <= 100 for line in others)
    )
