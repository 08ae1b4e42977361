"""The tools as a whole: listed in tools/README.md, each runs by its name."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from folding import folded

from tools import main as run_tool

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[2]
FILES = {
    ".".join(path.relative_to(ROOT / "tools").with_suffix("").parts): path.read_text(
        encoding="utf-8"
    )
    for path in (ROOT / "tools").rglob("[a-z]*.py")
}
TOOLS = sorted(name for name, text in FILES.items() if "\ndef run(" in text)


@pytest.mark.repo
def test_the_readme_has_a_line_for_each_tool_and_names_every_other_file():
    text = (ROOT / "tools" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([\w.]+)", text, re.M)) == TOOLS
    assert all(f"`{name}`" in text for name in FILES.keys() - set(TOOLS))


@folded("name", TOOLS)
def test_each_tool_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        run_tool(import_module(f"tools.{name}"), ["--help"])
    assert stop.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " ".join(ast.get_docstring(ast.parse(FILES[name])).split()) in out


@pytest.mark.parametrize(
    "name",
    [
        *("book", "execute", "paper_index", "pictures", "slides"),
        *(f"experiments.{name}" for name in ("halo", "libraries", "parity", "speed", "transfer")),
    ],
)
def test_each_tool_that_asks_for_nothing_runs_without_words(name, monkeypatch):
    tool = import_module(f"tools.{name}")
    monkeypatch.setattr(tool, "run", lambda args: 0)
    assert run_tool(tool, []) == 0


def test_a_tool_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "tools.publish", "nonsense"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.startswith(
        "error: got 'nonsense', wanted OWNER/NAME alone"
    )
