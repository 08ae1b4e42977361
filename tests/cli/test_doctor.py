"""What `doctor` reports where something is wrong: every problem is made, and must be named."""

import ast
import json
import os
import re
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from vit_helpers.cli import COMMANDS, main
from vit_helpers.cli import doctor as checks
from vit_helpers.cli.doctor import CHECKS, Finding, find, print_wrapped

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(
    os.name == "nt", reason="scripts with a #! line, and what Linux tells, are not Windows'"
)


def doctor(folder, *words, **environment):
    """What the command does in a process of its own, with a HOME that can be written to"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder)} | environment
    words = [sys.executable, "-m", "vit_helpers", *words]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(autouse=True)
def own_folders(monkeypatch, tmp_path):
    """Whatever the caller's environment says of Jupyter's folders does not count here"""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def test_this_machine_is_well(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    starts = [re.match(r"(ok   ) (\S+) +\S|                ", line) for line in lines]
    assert all(starts)
    names = [match[2] for match in starts if match[2]]
    assert names == [check.__name__ for check in CHECKS]
    assert names == ["python", "packages", "pytorch", "threads", "kernel"]
    assert last == "5 checks: 0 bad, 0 worth knowing, 5 as they should be"


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
def test_a_torch_that_cannot_be_imported_is_reported(tmp_path, monkeypatch, torch_py, says):
    (tmp_path / "torch.py").write_text(torch_py)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    state, text, advice = find(checks.pytorch)
    assert state == "bad" and "install both again" in advice
    assert re.match("import torch, torchvision: " + says, text)


def test_the_command_itself_runs_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('broken')")
    done = doctor(tmp_path, "doctor")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search("^bad   pytorch +import torch, torchvision: .*broken", done.stdout, re.M)
    assert re.search("^bad   threads +could not be checked: ImportError: broken", done.stdout, re.M)
    for name in ("packages", "kernel"):
        assert re.search(f"^ok    {name} ", done.stdout, re.M)
    done = doctor(tmp_path, "--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^    {name}\s+\w", done.stdout, re.M)
    done = doctor(tmp_path, "train")
    assert done.returncode == 1 and done.stderr == "error: broken\n"


def test_old_pythons_are_named_and_can_read_what_names_them(monkeypatch):
    monkeypatch.setattr(checks.sys, "version_info", (3, 10, 2))
    state, _, advice = find(checks.python)
    assert state == "bad" and "install Python 3.11 or later" in advice
    for name in ("__init__", "__main__", "cli/__init__", "cli/parser", "cli/doctor"):
        code = (ROOT / "vit_helpers" / f"{name}.py").read_text(encoding="utf-8")
        ast.parse(code, feature_version=(3, 9))


def test_missing_and_old_packages_are_named(monkeypatch):
    installed = metadata.version

    def version(name):
        if name == "einops":
            raise metadata.PackageNotFoundError(name)
        return {"torch": "2.5.1+cpu", "anywidget": "0.8.1"}.get(name) or installed(name)

    monkeypatch.setattr(metadata, "version", version)
    state, text, advice = find(checks.packages)
    assert state == "bad" and len(text.split("; ")) == 3
    assert "torch 2.5.1+cpu does not fit, required is >=2.11" in text
    assert "einops is missing" in text
    assert "anywidget 0.8.1 does not fit, required is >=0.9" in text
    assert re.search(r'pip install .*"torch>=2.11".* "einops>=', advice) or re.search(
        r'pip install .*"einops>=.* "torch>=2.11"', advice
    )


def test_what_is_needed_is_read_from_both_places(tmp_path, monkeypatch):
    state, text, _ = find(checks.packages)
    assert state == "ok"
    assert {"jupyterlab", "torch", "safetensors"} <= {name.split()[0] for name in text.split(", ")}
    monkeypatch.setattr(checks, "ROOT", tmp_path)  # no repository: what pip knows is left
    installed = SimpleNamespace(requires=["torch>=2.6", 'pytest>=8; extra == "test"'])
    monkeypatch.setattr(metadata, "distributions", lambda name: [installed])
    assert find(checks.packages) == ("ok", f"torch {metadata.version('torch')}", "")


def test_a_gpu_that_cannot_be_used_is_reported(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA error: no kernel image is available\nmore")

    monkeypatch.setattr(checks, "last_line", lambda *words: "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", refuse)
    state, text, advice = find(checks.pytorch)
    assert (state, advice) == ("bad", "use --device cpu")
    assert text.endswith("sees a GPU, but cannot use it: CUDA error: no kernel image is available")


@pytest.mark.parametrize(
    ("count", "state", "advice"),
    [(1, "ok", ""), (4, "bad", "set OMP_NUM_THREADS=1 before Python starts")],
)
def test_a_container_with_fewer_cpus_than_it_shows_is_reported(monkeypatch, count, state, advice):
    monkeypatch.setattr(checks, "last_line", lambda *words: str(count))
    monkeypatch.setattr(checks, "count_cpus", lambda: 1.5)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    found, text, todo = find(checks.threads)
    assert (found, todo) == (state, advice)
    assert text.startswith(f"torch starts with {count}, on 8 CPUs, of which 1.5 may be used")


@pytest.mark.parametrize("automatic", [True, False])
def test_threads_are_those_of_a_kernel_and_not_of_this_command(monkeypatch, automatic):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("vit_helpers.cli.threads.automatic", automatic)
    environments = []
    monkeypatch.setattr(checks, "last_line", lambda *words: environments.append(words[2]) or "1")
    find(checks.threads)
    assert environments[0].get("OMP_NUM_THREADS") == (None if automatic else "1")


@posix
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo /elsewhere", ": /elsewhere"),
        ("echo no ipykernel >&2; exit 1", ": no ipykernel"),
        (None, "No such file"),
    ],
)
def test_a_kernel_of_another_environment_is_reported(tmp_path, monkeypatch, text, says):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    other = script(tmp_path / "python", text) if text else tmp_path / "gone"
    words = [str(other), "-m", "ipykernel_launcher"]
    spec.write_text(json.dumps({"argv": words, "display_name": "P", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    state, text, advice = find(checks.kernel)
    assert text.startswith(f"the kernel python3 is another Python's, {other}") and says in text
    assert state == "bad" and "ipykernel install --sys-prefix" in advice


@posix
def test_a_kernel_by_another_way_to_the_same_folder_is_well(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(sys.prefix)
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    python3 = tmp_path / "link" / Path(sys.executable).relative_to(sys.prefix)
    spec.write_text(json.dumps({"argv": [str(python3)], "display_name": "P", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert find(checks.kernel) == ("ok", "the kernel python3 runs in this environment", "")


def test_no_kernel_at_all_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ENV_JUPYTER_PATH", "SYSTEM_JUPYTER_PATH"):
        monkeypatch.setattr(f"jupyter_core.paths.{name}", [])
    monkeypatch.setitem(sys.modules, "ipykernel.kernelspec", None)
    state, text, advice = find(checks.kernel)
    assert state == "bad" and text.startswith("there is no kernel python3")
    assert "ipykernel install" in advice


def test_advice_can_be_pasted_where_the_path_has_a_space(tmp_path):
    code = (
        "import sys; sys.executable = '/my env/python'; "
        "from vit_helpers.cli.doctor import PIP; print(PIP)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip().removeprefix("& ") == '"/my env/python" -m pip install'


def test_an_error_in_a_check_is_a_finding():
    def stumbles():
        raise PermissionError(13, "Permission denied", "secret")

    def lacks():
        import vit_helpers.nothing  # noqa: F401

    state, text, _ = find(stumbles)
    assert state == "note" and "could not be checked: PermissionError" in text
    state, text, advice = find(lacks)
    assert state == "bad" and "No module named 'vit_helpers.nothing'" in text
    assert "pip install -r requirements.txt" in advice
    assert find(lambda: Finding("ok", "well")) == ("ok", "well", "")


def test_lines_are_short_and_indented(capsys):
    print_wrapped("note  thing ", "word " * 60)
    first, *others = capsys.readouterr().out.splitlines()
    assert len(first) <= 100 and others
    assert all(re.match(r" {12}word", line) and len(line) <= 100 for line in others)
