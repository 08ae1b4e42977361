"""Further pages: where they are, the way there and back, and what the core page says of them."""

import ast
import builtins
import re
import symtable

import nbformat
import pytest
from folding import folded
from pages import FURTHER, PAIRS, anchor, anchors, headings, prose, read, sections

from tools.execute import ROOT, lessons

pytestmark = pytest.mark.repo

each_pair = folded(("core", "further"), PAIRS, ids=lambda core, further: core.stem)


def test_a_further_page_has_the_name_of_its_core_page():
    assert FURTHER.keys() <= {path.name for path in lessons()}
    assert not [*(ROOT / "notebooks" / "further").rglob("*/*.ipynb")]


@each_pair
def test_it_opens_and_ends_with_the_way_back(core, further):
    first, *_, last = read(further).cells
    way = re.compile(
        rf"\[Core page: [^]]+\]\(\.\./{core.name}\) \| \[Contents\]\(\.\./\.\./README\.md\)"
    )
    assert way.match(first.source.splitlines()[0])
    assert way.fullmatch(last.source.splitlines()[-1])
    title, *_ = headings(read(further))
    assert title.startswith("Further: ")


@each_pair
def test_a_section_begins_with_its_question(core, further):
    assert sections(read(further))
    for heading, text in sections(read(further)):
        assert "?" in heading + text.split("\n\n")[0] + text.split("\n\n")[1], heading


@each_pair
def test_the_core_page_ends_with_a_line_for_each_section(core, further):
    heading, text = sections(read(core))[-1]
    assert heading == "Further"
    wanted = [f"further/{core.name}#{anchor(s.heading)}" for s in sections(read(further))]
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    found = [re.findall(r"\]\((further/[^)\s]+)\)", line) for line in lines]
    assert found == [[link] for link in wanted]


def names_of(statement):
    """What a statement reads at once and what its functions read later, and what it defines"""
    table = symtable.symtable(ast.unparse(statement), "a statement", "exec")
    inner = [*table.get_children()]
    for child in inner:
        inner += child.get_children()
    reads = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    later = {s.get_name() for t in inner for s in t.get_symbols() if s.is_global()}
    defines = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    # a loop may read what it defines, an assignment may not
    return reads - (set() if isinstance(statement, ast.Assign) else defines), later, defines


def parts(book):
    """Of each section, and first of what stands before them: its number, Markdown and code"""
    number, text, code = None, "", ""
    for cell in book.cells:
        if cell.cell_type == "code":
            code += cell.source + "\n"
            continue
        for passage in re.split(r"^(?=## )", cell.source, flags=re.MULTILINE):
            if heading := re.match(r"## (\d+)\. ", passage):
                yield number, text, code
                number, text, code = int(heading[1]), "", ""
            text += passage
    yield number, text, code


def missing(book):
    """Names that a section needs of another, unless it says to run that one first"""
    (_, _, setup), *all_sections = parts(book)
    known = {None: {*dir(builtins)}}
    for number, text, code in [(None, "", setup), *all_sections]:
        here = {*known[None]}
        for numbers in re.findall(r"[Rr]un sections? ([\d, and]+) first", text):
            here = here.union(*(known[int(n)] for n in re.findall(r"\d+", numbers)))
        lacking, at_the_end = set(), set()
        for statement in ast.parse(code).body:
            reads, later, defines = names_of(statement)
            lacking |= reads - here
            at_the_end |= later
            here |= defines
        yield from (f"section {number}: {name}" for name in sorted(lacking | (at_the_end - here)))
        known[number] = here


@each_pair
def test_a_section_runs_after_the_setup_or_says_what_to_run_first(core, further):
    assert not [*missing(read(further))]


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("", "b = a", ["a"]),
        ("Run section 1 first.", "b = a", []),
        ("(Run sections 1 and 2 first.)", "b = a + d", []),
        ("", "a = a + 1", ["a"]),
        ("", "for a in range(3):\n    print(a)", []),
        ("", "def f(c):\n    return f(a + c + later)\nlater = 1", ["a"]),
        ("", "print(later)\nlater = 1", ["later"]),
        ("", "a = [a for a in range(c)]\nb = a", ["c"]),
        ("", "from math import pi\nb = pi + z", []),
    ],
)
def test_what_a_section_needs_of_another_is_found(text, code, found):
    markdown, cell = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    one = [markdown("# T"), cell("z = 0"), markdown("## 1. A?"), cell("a = c = z")]
    two = [markdown("## 2. B?"), cell("d = 2"), markdown(f"## 3. C?\n\n{text}"), cell(code)]
    book = nbformat.v4.new_notebook(cells=one + two)
    assert [*missing(book)] == [f"section 3: {name}" for name in found]


def test_links_to_a_section_lead_to_a_heading():
    files = [*(path for pair in PAIRS for path in pair), *lessons()]
    texts = {path: prose(read(path)) for path in files}
    for path in (ROOT / "README.md", ROOT / "TEACHING.md"):
        texts[path] = path.read_text(encoding="utf-8")
    links = 0
    for path, text in texts.items():
        for link, place in re.findall(r"\]\(([^)\s#]+\.ipynb)#([^)\s]+)\)", text):
            assert place in anchors(read((path.parent / link).resolve())), f"{path.name}: {place}"
            links += 1
    assert links >= len(PAIRS)


def test_a_heading_that_no_link_can_lead_to_is_refused():
    assert anchor("2. Masks: is `True` *hidden*?") == "2.-Masks:-is-True-hidden?"
    for heading in ("Why $d$?", "Masks (again)"):
        with pytest.raises(ValueError, match="say it without formula"):
            anchor(heading)


def test_teaching_leads_to_every_further_page():
    text = (ROOT / "TEACHING.md").read_text(encoding="utf-8")
    for core, further in PAIRS:
        line = next(
            line
            for line in text.splitlines()
            if line.startswith(f"[Notebook](notebooks/{core.name})")
        )
        assert f"[further](notebooks/further/{further.name})" in line
