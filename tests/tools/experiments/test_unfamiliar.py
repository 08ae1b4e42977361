"""How sure the model of photos is of what it cannot know: a row for each kind of image."""

import re

import pytest

from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import OURS
from vit_helpers.results import RESULTS, read_results

pytestmark = pytest.mark.dev

STORED = OURS / "photos.safetensors"


def test_the_results_page_shows_the_stored_rows():
    page = (
        (RESULTS / "README.md")
        .read_text(encoding="utf-8")
        .partition("\n## Photos\n")[2]
        .partition("\n## ")[0]
    )
    shown = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    stored, notes = read_results("unfamiliar"), read_notes(STORED)
    for (words, *cells), row in zip(shown, stored.to_dict("records"), strict=True):
        numbers = [float(cell.replace(",", "")) for cell in cells]
        wanted = [row["images"], row["probability"], row["above 0.9"], row["unfamiliar"]]
        assert numbers == pytest.approx(wanted, abs=0.0051), words
        if row["accuracy"] == row["accuracy"]:
            found = [float(number) for number in re.findall(r"0\.\d{3}", words)]
            assert found == pytest.approx([row["accuracy"], row["calibration error"]], abs=0.00051)
    assert (
        f"test accuracy is {float(notes['test accuracy']):.3f} (" in page
        and f"took {notes['minutes']} minutes" in page
    )
