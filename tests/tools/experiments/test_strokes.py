"""The sets of strokes share no code and no shape."""

import ast
import inspect
import re
import tomllib
from itertools import combinations
from pathlib import Path

import pytest

from tools.experiments import drawn, strokes, strokes_choosing, strokes_frozen

pytestmark = pytest.mark.dev


def functions(module):
    """The functions of a module by their code, whatever their docstrings and names"""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.FunctionDef):
            yield ast.unparse(
                ast.Module([line for line in node.body if not isinstance(line, ast.Expr)], [])
            )


def test_the_sets_of_strokes_share_no_code_and_no_shape():
    modules = (strokes, strokes_choosing, strokes_frozen)
    assert not [
        one for one in modules if re.search(r"^ *(from|import) tools", inspect.getsource(one), re.M)
    ]
    for one, other in combinations(modules, 2):
        assert not {*functions(one)} & {*functions(other)}
    settings = tomllib.loads(Path(drawn.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for digit, ways in enumerate(strokes_frozen.SHAPES):
        frozen = {stroke.strip() for way in ways for stroke in way}
        assert len(ways) >= 3 and not frozen & {
            *settings["training"][str(digit)],
            *settings["choosing"][str(digit)],
        }
    assert "drawn.toml" not in inspect.getsource(strokes_frozen)
