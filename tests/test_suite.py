"""The suite's own settings: what it leaves out, what it starts with, and what it does not compare."""

import re
import tomllib
from pathlib import Path

import pytest
from conftest import LONGEST

from tools.execute import blur, sanitize_rules

ROOT = Path(__file__).parents[1]
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
    "ini_options"
]
MARKERS = {line.partition(":")[0] for line in OPTIONS["markers"]}


def test_the_longest_files_are_there():
    files = {path.name for folder in ("tests", "notebooks") for path in (ROOT / folder).iterdir()}
    assert set(LONGEST) <= files


def test_what_the_default_command_leaves_out_is_what_ci_adds():
    left_out = OPTIONS["addopts"][OPTIONS["addopts"].index("-m") + 1]
    assert set(left_out.removeprefix("not ").split(" and not ")) == MARKERS
    added = re.search(r'pytest -m "(.*)"', (ROOT / ".ci" / "run").read_text(encoding="utf-8"))[1]
    assert set(added.split(" or ")) == MARKERS
    assert f'pytest -m "{added}"\n' in (ROOT / "tools" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("largest difference: 2.1e-06", "largest difference: 0", True),
        (
            "largest difference of logits: 2.1e-06, largest 8.9",
            "largest difference of logits: 3e-07, largest 8.9",
            True,
        ),
        (
            "largest difference: 2.1e-06, largest 8.9",
            "largest difference: 2.1e-06, largest 8.8",
            False,
        ),
        ("largest difference: 2.1e-06", "largest difference: nan", False),
        ("difference 0.018", "difference 0.019", False),
    ],
)
def test_of_differences_only_the_number_is_blurred(one, two, same):
    rules = sanitize_rules()
    blurred = [blur({"metadata": {}, "outputs": [{"text": text}]}, rules) for text in (one, two)]
    assert (blurred[0] == blurred[1]) is same
