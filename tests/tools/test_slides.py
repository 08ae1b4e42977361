"""The slides: cut at headings and between paragraphs, without code that only draws."""

import nbformat
import pytest

from tools import slides

pytestmark = pytest.mark.book


def test_prose_is_cut_into_slides_at_headings_and_between_paragraphs():
    paragraphs = [f"{name} " * 60 for name in ("one", "two", "three")]
    text = "\n\n".join(["## A", *paragraphs, "### B", "four", "```\nx\n\n" + "y\n" * 200 + "```"])
    parts = [" ".join(dict.fromkeys(part.split())) for part in slides.split_prose(text)]
    assert parts == ["## A one", "two", "three", "### B four", "``` x y"]
    assert [*slides.split_prose("")] == []
    assert [*slides.split_prose("> *Figure: four rows.*\n\nThe third is a ramp.")] == [
        "The third is a ramp."
    ]


def test_a_cell_that_only_draws_has_no_slide_for_its_code():
    image = nbformat.v4.new_output("display_data", {"image/png": "", "text/plain": "Figure"})
    text = nbformat.v4.new_output("stream", text="3")
    cases = {
        "import torch\n\nplots.draw_scores(\n    q, k\n)": 2,
        "draw_scores(q, k)": 2,
        "q = 1\nplots.draw_scores(q, k)": 4,
        "show(draw_scores(q, k))": 4,
        "plots.scores(q)": 4,
    }
    for source, count in cases.items():
        cell = nbformat.v4.new_code_cell(source, outputs=[image])
        parts = [*slides.code_slides(cell)]
        assert len(parts) == count, source
        heading, shown = parts[-2:]
        assert ":notitle:" not in heading.source  # so that the section's heading is repeated
        assert shown.outputs == [image] and shown.metadata.tags == ["remove-input"]
    printed = nbformat.v4.new_code_cell("draw_nothing(q)", outputs=[text])
    assert [*slides.code_slides(printed)][-1].outputs == [text]
