"""Types: mypy agrees, and every public function says what it takes and returns."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from folding import folded

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[2]
MYPY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
FILES = {  # module: file
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("tools", "vit_helpers")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def mypy(*words):
    return subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True
    )


def test_mypy_finds_nothing():
    done = mypy()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"no issues found in {len(FILES)} source files\n")


def test_mypy_would_find_something(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from vit_helpers.patches import patchify\npatchify('a photo', 16)\n")
    assert (
        'Argument 1 to "patchify" has incompatible type "str"; expected "Tensor"'
        in mypy(str(wrong)).stdout
    )


def test_everything_of_ours_is_held_to_the_strict_rules():
    ours = [
        name
        for group in MYPY["overrides"]
        for name in group["module"]
        if name.startswith(("tools", "vit_helpers"))
    ]
    assert MYPY["strict"] and not ours


def untyped(code):
    """The public functions of a module that leave out a type, with the arguments that lack one"""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef) and (
            not node.name.startswith("_") or node.name == "__init__"
        ):
            given = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            bare = [
                a.arg for a in given if a and a.annotation is None and a.arg not in ("self", "cls")
            ]
            if bare or (node.returns is None and node.name != "__init__"):
                yield f"{node.name}({', '.join(bare)})"


@folded("module", FILES)
def test_public_functions_are_typed(module):
    assert not [*untyped(FILES[module].read_text(encoding="utf-8"))]


def test_a_function_without_types_is_found():
    code = "def f(x: int, y, *z) -> int: pass\ndef g(self, x: int): pass\ndef _h(x): pass"
    assert [*untyped(code)] == ["f(y, z)", "g()"]
