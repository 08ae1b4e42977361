"""The ledger: sections of the second edition, claims and stored results have a place now."""

import json
import re
from pathlib import Path

import pytest
from folding import folded
from pages import headings, read

from tests.repo.test_claims import SECTIONS, rows
from tools.execute import ROOT, further_pages, lessons

pytestmark = pytest.mark.repo

LEDGER = ROOT / "notebooks" / "further" / "ledger.md"
SECOND_EDITION = json.loads(Path(__file__).with_name("second_edition.json").read_text("utf-8"))
RESULTS = ROOT / "vit_helpers" / "results"
PLACE = re.compile(r"\[[^]]+\]\(([^)\s]+)\) › (.+)")
GONE = re.compile(r"went: (\S+ ){4,}")  # and why, in five words or more


NEW = ("Sections of 12_since_2020",)  # of pages that the second edition did not have


def tables(text):
    """{heading: {what a row is about: where that is now}} of the ledger's tables"""
    found = {}
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        lines = [
            line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")
        ]
        assert {len(line) for line in lines[2:]} == (set() if title in NEW else {2}), title
        found[title] = dict(lines[2:])
        assert len(found[title]) == len(lines) - 2, f"{title}: a row twice"
    return found


TABLES = tables(LEDGER.read_text(encoding="utf-8"))


def lost_places(now):
    """What is not found of the places in a cell of the ledger: a page, or a heading on it"""
    if GONE.match(now + " "):
        return []
    lost = []
    for place in now.split("; "):
        found = PLACE.fullmatch(place)
        path = found and (LEDGER.parent / found[1]).resolve()
        if not (path and path.is_file() and found[2] in headings_of(path)):
            lost.append(place)
    return lost


def headings_of(path):
    if path.suffix == ".ipynb":
        return headings(read(path))
    return re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)


@folded("title", TABLES)
def test_every_place_is_there(title):
    assert [place for now in TABLES[title].values() for place in lost_places(now)] == []


@folded("name", SECOND_EDITION)
def test_every_section_of_the_second_edition_has_a_row(name):
    assert list(TABLES[f"Sections of {name}"]) == SECOND_EDITION[name]


def test_every_page_that_was_divided_is_in_the_ledger():
    assert {path.stem for path in further_pages()} <= SECOND_EDITION.keys()


@folded("name", ["the README", *SECOND_EDITION])
def test_every_claim_has_a_row(name):
    start = "README" if name == "the README" else name[:2]
    (title,) = (title for title in SECTIONS if title.startswith(start))
    assert list(TABLES[f"Claims about {name}"]) == [claim for claim, *_ in rows(title)]


def test_no_claim_and_no_stored_result_is_gone():
    titles = [title for title in TABLES if not title.startswith("Sections")]
    assert len(titles) == 2 + len(SECOND_EDITION)
    assert not [now for title in titles for now in TABLES[title].values() if GONE.match(now + " ")]


def shown_results():
    """The names of stored results that a page, the README, claims.md or the ledger shows"""
    pages = [cell.source for path in (*lessons(), *further_pages()) for cell in read(path).cells]
    by_name = "\n".join(re.findall(r"""["'](\w+)["']""", "\n".join(pages)))
    texts = [ROOT / "README.md", RESULTS / "claims.md", LEDGER]
    in_full = "\n".join([*pages, *(path.read_text(encoding="utf-8") for path in texts)])
    stored = [path for path in RESULTS.iterdir() if path.suffix in (".csv", ".json", ".txt")]
    return {path.name: path.stem in by_name.split("\n") or path.name in in_full for path in stored}


def test_every_stored_result_is_shown():
    shown = shown_results()
    assert len(shown) > 20 and [name for name, is_shown in shown.items() if not is_shown] == []


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        ("[03](../03_attention.ipynb) › Summary", 0),
        ("[03](../03_attention.ipynb) › Summary; [03](../03_attention.ipynb) › Nowhere", 1),
        ("[03](../03_nothing.ipynb) › Summary", 1),
        ("[results](../../vit_helpers/results/README.md) › Photos", 0),
        ("[results](../../vit_helpers/results/README.md) › No photos", 1),
        ("went: the same as what section 2 shows", 0),
        ("went: superfluous", 1),
        ("", 1),
    ],
)
def test_a_place_that_is_not_there_is_found(now, lost):
    assert len(lost_places(now)) == lost


def test_a_row_twice_and_a_torn_row_are_found():
    head = "## A\n| a | b |\n|---|---|\n"
    with pytest.raises(AssertionError, match="a row twice"):
        tables(head + "| x | y |\n| x | z |\n")
    with pytest.raises(AssertionError):
        tables(head + "| x |\n| x | z |\n")
