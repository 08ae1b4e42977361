"""Every notebook as it is stored: what a reader on the web, in JupyterLab and on Colab will see."""

import ast
import base64
import pkgutil
import re
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from folding import folded
from pages import REWRITTEN, name_of

from tools.execute import (
    MEASURED,
    METADATA,
    ROOT,
    WIDGET,
    all_notebooks,
    further_pages,
    hashes,
    home,
    lessons,
    setup_source,
    store,
)
from vit_helpers.plots.figure import check_text

pytestmark = pytest.mark.repo

COLUMNS = 100  # what a page of 900 pixels shows of a line of code

every = folded("path", all_notebooks(), ids=name_of)
each_page = folded("path", [*lessons(), *further_pages()], ids=name_of)
each_lesson = folded("path", lessons(), ids=name_of)


@cache
def read(path: Path):
    return nbformat.read(path, as_version=4)


def cells(path, kind):
    return [cell for cell in read(path).cells if cell.cell_type == kind]


def outputs(path):
    return [output for cell in cells(path, "code") for output in cell.outputs]


def test_there_are_notebooks():
    assert len(lessons()) >= 12 and len(all_notebooks()) >= 23


@every
def test_it_is_valid_small_and_written_as_execute_writes(path):
    text = path.read_text(encoding="utf-8")
    book = nbformat.reads(text, as_version=4)
    nbformat.validate(book)
    assert path.stat().st_size < 800_000
    assert book.metadata == METADATA | {
        "executed": hashes(book)
    }  # a kernelspec, no widgets, and the outputs of one run
    assert text == store(nbformat.reads(text, as_version=4), book)


def test_predictions_are_answered_by_numbers():
    texts = [
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for path in (*lessons(), *further_pages())
        for output in outputs(path)
    ]
    assert len(re.findall(r"\b(True|False)\b", "\n".join(texts))) <= 20


@every
def test_every_cell_ran_in_order_without_error_or_warning(path):
    code = cells(path, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell.outputs:
            assert output.get("name") != "stderr", cell.source
            if output.output_type == "error":
                assert "raises-exception" in cell.metadata.get("tags", []), cell.source


@every
def test_cells_are_plain_python_that_fits_the_page(path):
    for cell in cells(path, "code"):
        ast.parse(cell.source)  # so no %magics and no !commands
        lines = cell.source.splitlines()
        assert max(map(len, lines), default=0) <= COLUMNS, cell.source
        assert len([line for line in lines if line.strip()]) <= 25, cell.source


def found_beside(source, folder):
    """What a cell imports or names of the repository beside the package: Colab has only that."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        yield from {name.partition(".")[0] for name in names} & {"tests", "tools"}
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and 1 < len(text) < COLUMNS and (folder / text).exists():
            yield text


@every
def test_cells_need_nothing_of_the_repository_but_the_package(path):
    for cell in cells(path, "code"):
        assert not [*found_beside(cell.source, path.parent)], cell.source


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tools.execute as t", ["tools"]),
        ("from tests.pages import read", ["tests"]),
        ("open('../README.md')", ["../README.md"]),
        ("import vit_helpers, torch\nprint('.', 'accuracy', open)", []),
    ],
)
def test_what_a_cell_needs_of_the_repository_is_found(source, found):
    assert [*found_beside(source, ROOT / "notebooks")] == found


def silent_asserts(source):
    """The asserts of a cell that don't say in words what went wrong."""
    asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [
        ast.unparse(node)
        for node in asserts
        if not (node.msg and re.search(r"[a-z] [a-z]", ast.unparse(node.msg)))
    ]


@every
def test_every_assert_says_what_went_wrong(path):
    assert [text for cell in cells(path, "code") for text in silent_asserts(cell.source)] == []


def test_an_assert_without_words_is_seen():
    assert silent_asserts("assert x") == ["assert x"]
    assert silent_asserts("if x:\n    assert y, z") == ["assert y, z"]
    assert not silent_asserts('assert x, f"{name} should be true"\nassert y, "run section 2 first"')


@every
def test_images_have_alt_text(path):
    for output in outputs(path):
        for kind in ("image/png", "image/jpeg"):
            if kind in output.get("data", {}):
                assert output.metadata[kind]["alt"].strip()
                if kind == "image/png":
                    assert b"Software" not in base64.b64decode(output.data[kind])
                if output.output_type == "execute_result":  # a `Picture`; `show` displays
                    check_text(output.data["text/plain"])
        assert not {"image/svg+xml", "application/javascript", WIDGET} & set(output.get("data", {}))
    for cell in cells(path, "markdown"):
        assert all(alt.strip() for alt in re.findall(r"!\[([^]]*)\]", cell.source))


@every
def test_links_lead_somewhere(path):
    for cell in cells(path, "markdown"):
        for link in re.findall(r"\]\(([^)\s]+)\)", cell.source):
            assert (
                link.startswith(("https://", "#"))
                or (path.parent / link.partition("#")[0]).exists()
            ), link


@every
def test_one_title_and_no_heading_level_is_skipped(path):
    text = "\n".join(
        re.sub(r"```.*?```", "", cell.source, flags=re.S) for cell in cells(path, "markdown")
    )
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@every
def test_github_shows_the_prose(path):
    for cell in cells(path, "markdown"):
        assert not re.search(
            r"\\\(|\\\[|> \[!|```mermaid|<details|<script|attachment:", cell.source
        ), cell.source
        for row in re.findall(r"^\|.*\|$", cell.source, re.M):
            assert all("|" not in math for math in re.findall(r"\$[^$]+\$", row)), row


@every
def test_the_setup_cell_is_the_same_everywhere(path):
    first, *rest = cells(path, "code")
    assert first.source == setup_source(home())
    assert first.metadata == {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["setup"],
    }
    assert not any("setup" in cell.metadata.get("tags", []) for cell in rest)


@every
def test_an_exercise_is_what_its_prose_says(path):
    """Level, minutes and marking are metadata of the answer's cell; the heading agrees."""
    prose, found = "", 0
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            prose = cell.source if "### Exercise" in cell.source else prose
            continue
        asked = re.search(r"^done = check_\w+\(\w+\)", cell.source, re.M)
        assert bool(asked) == ("exercise" in cell.metadata), cell.source
        if asked:
            about = cell.metadata["exercise"]
            heading = re.search(
                r"^### Exercise(?: \d+)?: (.+)\n+\*Level (\d) of 3, about (\d+) minutes\.\*",
                prose,
                re.M,
            )
            assert (str(about["level"]), str(about["minutes"])) == heading.groups()[1:]
            assert about["all_or_nothing"] is (
                "mistake" in heading[1]
            )  # the given code has some ideas right already
            assert about.keys() == {"level", "minutes", "all_or_nothing"}
            found += 1
    assert found == "\n".join(cell.source for cell in cells(path, "markdown")).count("### Exercise")


@pytest.mark.parametrize(
    "path", [path for path in lessons()[:6] if path not in REWRITTEN], ids=lambda path: path.stem
)
def test_it_opens_with_a_map_before_anything_is_explained(path):
    """Title, a sentence, setup, the map with this notebook's part in color; then goals, costs."""
    title, setup, opening, *_ = read(path).cells
    sentence = title.source.partition("# ")[2].partition("\n")[2].split("![")[0]
    assert setup.metadata.tags == ["setup"] and len(sentence.split()) <= 45 and "|" not in sentence
    assert "draw_overview(" in opening.source and any(
        "image/png" in output.data for output in opening.outputs
    )
    assert "| your time |" in cells(path, "markdown")[1].source


@each_page
def test_the_card_gives_the_measured_cost(path):
    card = MEASURED.search("\n".join(cell.source for cell in cells(path, "markdown")))
    assert card, "run `python -m tools.execute --cards` while nothing else runs"


@each_lesson
def test_the_readme_gives_the_measured_cost(path):
    card = MEASURED.search("\n".join(cell.source for cell in cells(path, "markdown")))
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    row = next(
        line for line in readme if re.match(rf"\| \[[^\]]*\]\(notebooks/{path.name}\)", line)
    )
    seconds, memory = card.groups()
    assert f"| {seconds} | {memory} |" in row


@each_lesson
def test_the_readme_gives_the_reader_s_minutes(path):
    row = re.search(
        rf"^\| \[[^\]]*\]\(notebooks/{re.escape(path.name)}\).*$",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.M,
    )[0]
    reading, exercises = re.search(r"\| (\d+)\+(\d+) \|", row).groups()
    metadata = [cell.metadata for cell in cells(path, "code")]
    assert int(exercises) == sum(
        about["exercise"]["minutes"] for about in metadata if "exercise" in about
    )
    prose = "\n".join(cell.source for cell in cells(path, "markdown"))
    if card := re.search(
        r"^\| your time \| about (\d+) minutes? to read(?:,? and (\d+) for the exercises?)? \|$",
        prose,
        re.M,
    ):
        assert card.groups("0") == (reading, exercises)
    else:
        assert "| your time |" not in prose, (
            "wanted: about N minutes to read, and M for the exercises"
        )


OURS = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "vit_helpers").rglob("*.py"))
]


def is_there(name):
    """Whether `patches.patchify`, `encoder.MLP.act` or `data.stream.Stream` exists."""
    first, *rest = name.split(".")
    for module in OURS:
        with suppress(AttributeError, ImportError):
            if module.endswith(f".{first}") and (
                found := pkgutil.resolve_name(f"{module}:{rest[0]}")
            ):
                return len(rest) == 1 or isinstance(found, type) or hasattr(found, rest[1])
    return False


@every
def test_names_of_the_package_in_prose_are_there(path):
    homes = {part for module in OURS for part in module.split(".")} - {
        "vit_helpers",
        "model",
    }  # a model is usually the learner's
    words = {
        word
        for cell in cells(path, "markdown")
        for word in re.findall(r"`([a-z_]+(?:\.\w+)+)`", cell.source)
    }
    assert not [word for word in words if word.partition(".")[0] in homes and not is_there(word)]


# Numbers in the text that no cell of their section prints: by section, and where they come from
ELSEWHERE = {
    "00_start_here, Further": "0.50",  # in the heading that it links to
    "further/00_start_here, 1": "0.50 0.50",  # where the core page's curve ends
    "further/00_start_here, 4": "0.05",  # the usual limit of p
    "further/00_start_here, 7": "0.91",  # 0.9 + 0.1/10, the target of label smoothing
    "further/02_embeddings, 8": "0.57",  # other values of "Your turn", tried by hand
    "further/03_attention, 2": "2.11 2.15",  # PyTorch's versions
    "04_encoder, 3": "1.16 1.02",  # in the figure
    "further/04_encoder, 10": "0.0056",  # 1/180
    "further/07_training, 2": "0.50",  # what notebook 00 prints
    "further/09_pretrained, 8": "0.376",  # of the digits' pixels
    "further/09_pretrained, 11": "0.92 0.26 0.26",  # from the course that is linked
    "10_hyperparameters, 1": "1.96 2.78",  # of the normal distribution, and of t with 4
    "10_hyperparameters, 6": "0.001 0.01 0.001 0.01 0.00316",  # of the exercise
    "further/10_hyperparameters, 9": "0.0003 0.004",  # the limits of the search
}


def sections(path):
    """(name, text, what its cells and those of the section before print) of each `##` section"""
    parts = [["", "", ""]]
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                if line.startswith("## "):
                    parts.append([line[3:].partition(".")[0].partition(" ")[0], "", ""])
                parts[-1][1] += line + "\n"
        else:
            said = [
                output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
                for output in cell.outputs
            ]
            parts[-1][2] += "\n".join([cell.source, *said]) + "\n"
    return [
        (name, text, before + printed)
        for (_, _, before), (name, text, printed) in pairwise([["", "", ""], *parts])
    ]


@each_page
def test_numbers_in_the_text_are_those_that_cells_print(path):
    """A page executed on another machine must not keep the numbers of the last one."""
    missing = {}
    for name, text, printed in sections(path):
        numbers = [
            float(x.replace(",", ""))
            for x in re.findall(r"(?<![\w.])\d[\d,]*\.?\d*(?:e-?\d+)?\b", printed)
        ]
        text = re.sub(
            r"\]\([^)]*\)|\$\$.*?\$\$|\$[^$]*\$|arXiv [\d.]+|`[^`]*`|^\|.*\|$",
            "",
            text,
            flags=re.S | re.M,
        )
        for number in re.findall(r"(?<![\w.,/-])\d[\d,]*\.\d\d+\b(?!\.\d)", text):
            places = len(number.partition(".")[2])
            shown = float(number.replace(",", ""))
            if (
                min((abs(x / scale - shown) for x in numbers for scale in (1, 100)), default=1)
                > 0.501 * 10**-places
            ):
                missing.setdefault(f"{name_of(path)}, {name}", []).append(number)
    asked = ("For", "Summary", "Sources")  # questions, answers, and runs with values of your own
    found = {
        name: " ".join(numbers)
        for name, numbers in missing.items()
        if name.partition(", ")[2] not in asked
    }
    assert found == {
        name: numbers for name, numbers in ELSEWHERE.items() if name.startswith(name_of(path))
    }
