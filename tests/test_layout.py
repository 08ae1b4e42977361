"""The house keeps its order: who imports whom, what importing does, what is documented, what the README promises."""

import ast
import csv
import importlib
import inspect
import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.libraries import markdown

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vit_helpers"
ORDER = {  # a room may import these rooms of ours and no other
    "patches": set(),
    "embeddings": {"patches"},
    "attention": set(),
    "encoder": {"attention"},
    "vit": {"patches", "embeddings", "encoder"},
    "data": {"data", "parallel"},
    "parallel": set(),
    "checkpoints": {"parallel"},
    "muon": set(),
    "recipe": {"muon"},
    "diagnosis": set(),
    "training": {"checkpoints", "diagnosis", "parallel", "recipe"},
    "inspection": set(),
    "grading": {"inspection"},
    "pretrained": {"encoder", "pretrained", "vit"},
    "finetune": {"embeddings", "vit"},
    "masked": {"embeddings", "encoder", "patches", "recipe", "vit"},
    "scaling": set(),
    "timing": set(),
    "speedups": {"recipe"},
    "cnn": set(),
    "settings": {"cnn", "data", "encoder", "recipe", "training", "vit"},
    "ablation": {"data", "settings", "training"},
    "plots": {"plots"},
}
ROOMS = sorted(ORDER)


def modules(room):
    path = PACKAGE / f"{room}.py"
    return [path] if path.exists() else sorted((PACKAGE / room).glob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports by dots"
            names = [node.module]
        yield from (name.split(".") for name in names)


def test_every_room_stands_in_the_order():
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert found - {"__init__", "__main__", "commands", "checks"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_one_way(room):
    ours = {name[1] for path in modules(room) for name in imports(path) if name[0] == "vit_helpers"}
    assert ours <= ORDER[room]


@pytest.mark.parametrize("room", ROOMS)
def test_no_assert_stands_between_a_user_and_an_error(room):
    for path in modules(room):
        assert not [node.lineno for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)], path.name


def public(room):
    for path in modules(room):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        yield name, module
        for thing, value in vars(module).items():
            own = getattr(value, "__module__", None) == name
            if own and not thing.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
                yield f"{name}.{thing}", value


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_are_documented(room):
    assert not [name for name, thing in public(room) if not thing.__doc__]


def test_importing_runs_nothing():
    code = """
import random, sys
import torch, matplotlib
state = (random.getstate(), torch.get_rng_state().tolist(), torch.get_num_threads(), dict(matplotlib.rcParams))
import vit_helpers
assert len([m for m in sys.modules if m.startswith("vit_helpers")]) == 1
for room in {rooms}:
    __import__("vit_helpers." + room)
import vit_helpers.plots.style, vit_helpers.plots.images, vit_helpers.plots.curves, vit_helpers.plots.model
assert state == (random.getstate(), torch.get_rng_state().tolist(), torch.get_num_threads(), dict(matplotlib.rcParams))
assert "sklearn" not in sys.modules and "torchvision" not in sys.modules
print("quiet")
"""
    done = subprocess.run(
        [sys.executable, "-c", code.replace("{rooms}", repr(ROOMS))], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("quiet\n", "")


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]])
def test_lint(words):
    done = subprocess.run([sys.executable, "-m", "ruff", *words, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def requirements(lines):
    return dict(
        re.match(r"([\w-]+)(.*)", line.partition("#")[0].strip()).groups() for line in lines if re.match(r"\w", line)
    )


def test_both_lists_of_requirements_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readers = requirements((ROOT / "requirements.txt").read_text().splitlines())
    package = requirements(project["dependencies"])
    tests = requirements(project["optional-dependencies"]["test"])
    assert package.items() <= readers.items()
    assert all(readers[name] == bound for name, bound in tests.items() if name in readers)
    assert "<" not in readers["torch"] + readers["torchvision"]  # never reinstall the torch of a Colab machine


@pytest.mark.repo
def test_ci_runs_the_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    command = next(line for line in readme.splitlines() if line.endswith("bin/pytest"))
    assert any(line.startswith(command) for line in (ROOT / ".ci" / "run").read_text().splitlines())
    start = next(line for line in readme.splitlines() if line.endswith(" notebooks/00_start_here.ipynb"))
    assert start.startswith("python3 -m venv .venv && ")
    assert "--notebook-dir=." in start  # without it JupyterLab serves notebooks/ alone, and ../images is not found


@pytest.mark.repo
@pytest.mark.parametrize("path", [ROOT / "README.md", PACKAGE / "results" / "README.md"], ids=["first page", "tables"])
def test_links_and_pictures_of_a_readme_are_there(path):
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert not [link for link in links if not link.startswith("https://") and not (path.parent / link).exists()]
    assert all(alt.strip() for alt in re.findall(r"!\[([^]]*)\]", text))


def stored(table, key, **which):
    """Mean and standard deviation over the seeds of a stored table, as the README writes them"""
    with (PACKAGE / "results" / table).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if all(row[name] == value for name, value in which.items())]
    values = [float(row[key]) for row in rows]
    return statistics.mean(values), statistics.stdev(values)


@pytest.mark.repo
def test_figures_are_those_of_the_stored_tables():
    page = (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
    for task, labels in (("new classes", ("100", "1000")), ("no labels before", ("20", "100"))):
        for n in labels:
            ways = ("from scratch", "probe", "LoRA", "full")
            pairs = [stored("transfer.csv", "accuracy", task=task, way=way, labels=n) for way in ways]
            assert f"| {int(n):,} | " + " | ".join(f"{a:.3f} ± {b:.3f}" for a, b in pairs) + " |" in page
    center, _ = stored("localization.csv", "inside", model="trained", method="center map")
    assert f"{center:.2f} for the center baseline" in page
    for word, method in (("last layer", "attention, last layer"), ("rollout", "rollout"), ("gradient rollout",) * 2,
                         ("occlusion",) * 2):  # fmt: skip
        a, b = stored("localization.csv", "inside", model="trained", method=method)
        assert f"{word} {a:.2f} ± {b:.2f}" in page


@pytest.mark.repo
def test_speeds_are_those_of_the_stored_run():
    results = json.loads((PACKAGE / "results" / "libraries.json").read_text(encoding="utf-8"))
    assert markdown(results).strip() in (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
