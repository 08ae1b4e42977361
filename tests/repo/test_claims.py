"""The claims that would be attacked first: five for each notebook.

Their commands, cells, tests and files exist.
"""

import re

import pandas as pd
import pytest
from folding import folded

from tools.execute import ROOT, lessons
from vit_helpers.cli import COMMANDS

pytestmark = pytest.mark.repo

TEXT = (ROOT / "vit_helpers" / "results" / "claims.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))


def rows(title):
    """The table of a section, without its head: a list of cells for each claim"""
    lines = [line for line in SECTIONS[title].splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines[2:]
    ]


def test_every_notebook_and_the_readme_have_a_section():
    assert [title[:2] for title in SECTIONS if title != "README"] == [
        path.stem[:2] for path in lessons()
    ]
    assert "README" in SECTIONS


@folded("title", SECTIONS)
def test_five_claims_each_with_its_support_seeds_effect_and_control(title):
    assert len(rows(title)) == 5
    for claim, support, *others in rows(title):
        assert claim.endswith(".") and len(others) == 3 and all(others)
        assert re.search(
            r"`python -m |[Nn]otebook \d\d|further/\d\d|`tests/|the same|stored rows", support
        ), support


def test_commands_files_and_tests_exist():
    for tool in re.findall(r"python -m tools\.([\w.]+\w)", TEXT):
        assert (ROOT / "tools" / f"{tool.replace('.', '/')}.py").is_file(), tool
    assert set(re.findall(r"python -m vit_helpers (\w+)", TEXT)) <= set(COMMANDS)
    for path in re.findall(r"`((?:tests|vit_helpers|tools)/[\w/.]+\.\w+)`", TEXT):
        assert (ROOT / path).is_file(), path
    for name in re.findall(r"`(?:results/)?(\w+\.(?:csv|json|txt|toml))`", TEXT):
        assert list((ROOT / "vit_helpers" / "results").glob(name)), name


def test_stored_results_are_described():
    described = (ROOT / "vit_helpers" / "results" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "vit_helpers" / "results").glob("*.csv"):
        assert f"`{path.name}`" in described, path


MACHINES = {
    path.name: table
    for path in sorted((ROOT / "vit_helpers" / "results").glob("*.csv"))
    if {"machine", "date"} <= {*(table := pd.read_csv(path)).columns}
}


@folded("name", MACHINES)
def test_the_day_and_the_processor_of_each_stored_row_are_said(name):
    text = (ROOT / "vit_helpers" / "results" / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| [^|]*`{name}`[^|]* \| .*", text, re.M)
    machines = " ".join(MACHINES[name]["machine"].unique())
    used = {maker for maker in ("EPYC", "Xeon", "H200") if maker in machines}
    assert used and not [maker for maker in used if maker not in row]
    assert not {*MACHINES[name]["date"].str[:10]} - {*re.findall(r"\d{4}-\d\d-\d\d", row)}
