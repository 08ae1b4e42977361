"""The tools as a whole: listed in tools/README.md, each runs by its name, and the old commands name their new line."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools import main as run_tool
from vit_helpers.cli import COMMANDS, MOVED
from vit_helpers.cli import main as run_command

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tools").glob("[a-z]*.py")}
TOOLS = sorted(name for name, text in FILES.items() if "\ndef run(" in text)


@pytest.mark.repo
def test_the_readme_has_a_line_for_each_tool_and_names_every_other_file():
    text = (ROOT / "tools" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)", text, re.M)) == TOOLS
    assert all(f"`{name}`" in text for name in FILES.keys() - set(TOOLS))


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        run_tool(import_module(f"tools.{name}"), ["--help"])
    assert stop.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " ".join(ast.get_docstring(ast.parse(FILES[name])).split()) in out


@pytest.mark.parametrize(
    "name", ["book", "execute", "halo", "libraries", "paper_index", "parity", "pictures", "slides", "speed", "transfer"]
)
def test_each_tool_that_asks_for_nothing_runs_without_words(name, monkeypatch):
    tool = import_module(f"tools.{name}")
    monkeypatch.setattr(tool, "run", lambda args: 0)
    assert run_tool(tool, []) == 0


def test_a_tool_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "tools.publish", "nonsense"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: got 'nonsense', wanted OWNER/NAME alone")


@pytest.mark.parametrize("old", MOVED)
def test_a_moved_command_prints_its_new_line(old, capsys):
    assert MOVED[old] in TOOLS and old not in COMMANDS
    assert run_command([old, "--option", "word"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"run: python -m tools.{MOVED[old]} --option word\n")


@pytest.mark.repo
def test_the_changelog_lists_every_moved_command_and_modules_that_exist():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert all(f"`{old}`" in text and (f"`python -m tools.{new}`" in text or old == new) for old, new in MOVED.items())
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| `vit_helpers.")]
    modules = re.findall(r"`(vit_helpers\.[\w.]*\w)`", " ".join(rows))
    assert len(modules) > 5 and all(find_spec(name) for name in modules)
