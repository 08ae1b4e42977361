"""Further pages: where they are, the way there and back, and what the core page says of them."""

import re

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
