"""TEACHING.md: what it names is there, and its minutes add up."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev

import nbformat
import pytest
import torch
from folding import folded

from tools.execute import further_pages, lessons
from vit_helpers.cli import COMMANDS
from vit_helpers.patches import patchify

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "TEACHING.md").read_text(encoding="utf-8")
NOTEBOOKS = {path.name[:2]: path for path in lessons()}
PAGES = {  # a core page and its further page, if it has one
    number: [path, *(page for page in further_pages() if page.name == path.name)]
    for number, path in NOTEBOOKS.items()
}
HEADINGS = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", TEXT, flags=re.S), re.M)
PARTS = ("Run live", "What goes wrong", "What students ask", "Who has understood", "On the board")

each = folded("number", NOTEBOOKS)


# The notebooks, as they are in the repository


@cache
def cells(number, kind):
    book = nbformat.read(NOTEBOOKS[number], as_version=4)
    return [cell.source for cell in book.cells if cell.cell_type == kind]


def sections(number):
    """The numbers of a notebook's sections"""
    return {int(n) for n in re.findall(r"^## (\d+)\. ", "\n".join(cells(number, "markdown")), re.M)}


@cache
def exercises(number):
    """{the name that an exercise's check prints: its minutes}, of core page and further page."""
    pages = [cell for path in PAGES[number] for cell in nbformat.read(path, as_version=4).cells]
    code = "\n".join(cell.source for cell in pages if cell.cell_type == "code")
    names = re.findall(r"^from (vit_helpers\.checks\.\w+) import", code, re.M)
    topics = [import_module(name) for name in sorted(set(names))]
    found = {}
    for cell in pages:
        if "exercise" in cell.metadata:
            name = re.search(r"^done = check_(\w+)\(", cell.source, re.M).group(1)
            check = next(
                getattr(topic, f"check_{name}")
                for topic in topics
                if hasattr(topic, f"check_{name}")
            )
            found[getattr(getattr(check, "__self__", None), "name", name)] = cell.metadata[
                "exercise"
            ]["minutes"]
    return found


# The text


def under(heading):
    """The text under a heading, up to the next one of any level"""
    return re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", TEXT, re.M | re.S).group(1)


def section(number):
    return under(next(heading for heading in HEADINGS if heading.startswith(f"{number} ")))


def rows(heading):
    """The rows of the first table under a heading, cell by cell"""
    table = [
        line.strip("|").split("|") for line in under(heading).splitlines() if line.startswith("|")
    ]
    assert len({len(row) for row in table}) == 1
    return [[cell.strip() for cell in row] for row in table[2:]]


def linked(text):
    """The numbers of the notebooks that a text links to"""
    return re.findall(r"\]\(notebooks/(\d\d)_\w+\.ipynb\)", text)


# 1. What is named is there


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)\s]+)\)", TEXT)
    inside = {link[1:] for link in links if link.startswith("#")}
    assert inside <= {slug(heading) for heading in HEADINGS}
    assert {slug(heading) for heading in HEADINGS if heading[:2] in NOTEBOOKS} <= inside
    files = [link for link in links if not link.startswith(("#", "https://"))]
    assert files and not [link for link in files if not (ROOT / link).exists()]
    assert all(
        called == number for called, number in re.findall(r"\[(\d\d)\]\(notebooks/(\d\d)_", TEXT)
    )


def test_commands_are_those_that_there_are():
    named = set(re.findall(r"python -m vit_helpers (\w+)", TEXT))
    assert named and named <= set(COMMANDS), f"no such command: {named - set(COMMANDS)}"


def numbers(text):
    """Numbers of sections: "section 3", "sections 1, 2 and 4", "sections 1 to 4 and 6" """
    for words in re.findall(r"\bsections? (\d+(?:(?:, | and | to )\d+)*)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", words):
            yield from range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("plan", ["One lecture", "One week", "One term"])
def test_a_plan_names_sections_and_exercises_that_its_notebooks_have(plan):
    for row in rows(plan):
        text, known = " ".join(row), linked(" ".join(row))
        assert set(numbers(text)) <= {n for number in known for n in sections(number)}, text
        named = set(re.findall(r"`(\w+)`", text)) - {"doctor"}
        assert named <= {name for number in known for name in exercises(number)}, text


# 2. The minutes


def test_the_lecture_lasts_as_long_as_it_says():
    spans = [tuple(map(int, row[0].split("-"))) for row in rows("One lecture")]
    starts, ends = zip(*spans, strict=True)
    assert starts == (0, *ends[:-1]) and all(start < end for start, end in spans)
    assert under("One lecture").lstrip().startswith(f"{ends[-1]} minutes")


def test_the_half_days_of_the_week_last_as_long_as_they_say():
    wanted = int(re.match(r"\s*Five half days of (\d+) minutes", under("One week")).group(1))
    days = {}
    for day, minutes, *_ in rows("One week"):
        days[int(day)] = days.get(int(day), 0) + int(minutes)
    assert days == dict.fromkeys(range(1, 6), wanted)


def listed(cell, known):
    """The exercises that a cell of the term's table names before their minutes, with their sum."""
    words, minutes = re.match(r"(.+?): (\d+)", cell).groups()
    names = re.findall(r"`(\w+)`", words)
    assert sum(known[name] for name in names) == int(minutes), cell
    return names


def test_the_term_divides_the_exercises_between_lab_and_home():
    *weeks, last = rows("One term")
    lab = int(re.search(r"and (\d+) of lab", under("One term")).group(1))
    assert [linked(row[1]) for row in weeks] == [[number] for number in NOTEBOOKS]
    assert [int(row[0]) for row in (*weeks, last)] == list(
        range(1, len(NOTEBOOKS) + 2)
    ) and not linked(last[1])
    for row, number in zip(weeks, NOTEBOOKS, strict=True):
        known = exercises(number)
        here, at_home = listed(row[3], known), listed(row[4], known)
        assert sorted(here + at_home) == sorted(known), row
        assert sum(known[name] for name in here) < lab / 2  # the rest is for reading and discussing


@each
def test_the_minutes_are_those_of_the_exercises(number):
    count, minutes = map(
        int, re.search(r"(\d+) exercises?, (\d+) minutes\.", section(number)).groups()
    )
    assert (count, minutes) == (len(exercises(number)), sum(exercises(number).values()))


# 3. A section for each notebook


@each
def test_a_notebook_has_its_section_with_five_parts(number):
    text = section(number)
    assert linked(text)[0] == number and text.lstrip().startswith("[Notebook](")
    assert re.findall(r"^\*\*([A-Z][a-z ]+)[.?]\*\*", text, re.M) == list(PARTS)
    _, _, wrong, asked, _, board = re.split(r"^\*\*[A-Z][a-z ]+[.?]\*\*", text, flags=re.M)
    mistakes = re.findall(r"^\| `(\w+)` \| .+ \| .+\? ", wrong, re.M)
    assert 3 <= len(mistakes) == wrong.count("\n| ") - 1 <= 5 and set(mistakes) <= set(
        exercises(number)
    )
    questions = re.findall(r"^\d\. (.+?)(?=^\d\. |\Z)", asked.strip() + "\n", re.M | re.S)
    assert 2 <= len(questions) <= 4
    for question in questions:
        words, answer = re.match(r"\*(.+?[?.])\*\s+(\S.+)", question, re.S).groups()
        assert len(words.split()) > 5 and 10 < len(answer.split()) < 90
    (drawing,) = re.findall(r"^```\n(.+?)^```$", board, re.M | re.S)
    assert 4 <= drawing.count("\n") <= 14 and max(map(len, drawing.splitlines())) <= 76
    assert drawing.isascii()  # every font and printer has it
    assert re.search(r"\w", board.partition("```")[0])  # explained in words too


# 4. Numbers on the board


def test_numbers_on_the_board_and_in_the_questions_are_right():
    patches = patchify(torch.arange(24).reshape(1, 1, 4, 6), 2)[0].tolist()
    assert all(f"patch {n} = {' '.join(map(str, patches[n]))}" in section("01") for n in (0, 4))

    _, n, length = patchify(torch.zeros(1, 3, 40, 64), 8).shape
    assert f"{n} patches of 3·8·8 = {length} numbers" in under("Grading and oral questions")
    n = patchify(torch.zeros(1, 1, 24, 56), 8).shape[1]
    assert f"a 24 x 56 image with patches of 8, which is {n + 1}." in section("00")

    runs = {"baseline": [0.80, 0.90, 0.85], "change": [0.83, 0.92, 0.89]}
    runs["difference"] = [b - a for a, b in zip(*runs.values(), strict=True)]
    short = {name: f"{stdev(run) / 3**0.5:.3f}" for name, run in runs.items()} | {
        "difference": "0.0058"
    }
    assert f"{stdev(runs['difference']) / 3**0.5:.4f}" == short["difference"]
    for name, run in runs.items():
        line = re.search(rf"^ {name} (.+)$", section("10"), re.M).group(1).split()
        written = [*(f"{x:.2f}" for x in run), f"{mean(run):.2f}", f"{stdev(run):.3f}", short[name]]
        assert line[:6] == [x.removeprefix("0") for x in written]
    apart = sum(stdev(runs[name]) ** 2 / 3 for name in ("baseline", "change")) ** 0.5
    assert f"without pairs: sqrt(.029^2 + .026^2) = {apart:.3f}".replace("= 0", "= ") in section(
        "10"
    )
