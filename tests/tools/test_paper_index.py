"""The paper index: the stored page is what the command writes, and its links are right."""

import copy
import re
import tomllib
from pathlib import Path

import nbformat
import pytest
from torch import nn

from tools import main as run_tool
from tools import paper_index
from vit_helpers.scaling import parameters, training_multiply_adds
from vit_helpers.training.optimizers import adamw
from vit_helpers.vit import ViTConfig

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "notebooks" / "paper_index.md").read_text(encoding="utf-8")
SOURCE = tomllib.loads(paper_index.SOURCE.read_text(encoding="utf-8"))
# words, path, line, what stands there
LINK = re.compile(r"\[`?([^]`]+)`?\]\(([^)#]+)(?:#L(\d+))?\)(?:: `([^`]*)`)?")
SAYS = [line for line in PAGE.splitlines() if line.startswith("**")]


def group(title):
    """The entries of the source under a title that begins so: what the paper says, by name"""
    entries = next(
        group["entries"] for group in SOURCE["groups"] if group["title"].startswith(title)
    )
    return {entry["paper"]: entry["says"] for entry in entries}


def numbers(text):
    """The numbers of a text in their order, but for those in names: L/16, JFT-300M, appendix B.1"""
    found = re.findall(r"(?<![\w./-])\d[\d,]*(?:\.\d+)?(?:e-\d+)?(?!\w)", text)
    return list(dict.fromkeys(float(number.replace(",", "")) for number in found))


# The page


def test_the_page_is_what_the_command_writes():
    assert paper_index.page(SOURCE) == PAGE, "something moved: run `python -m tools.paper_index`"


def test_a_second_run_changes_no_byte(monkeypatch, tmp_path, capsys):
    path = tmp_path / "page.md"
    monkeypatch.setattr(paper_index, "PAGE", path)
    for _ in range(2):
        assert run_tool(paper_index, []) == 0 and capsys.readouterr().out == f"written: {path}\n"
        assert path.read_bytes() == PAGE.encode()


def test_the_whole_paper_is_there():
    assert set(group("The equations")) == {f"Equation {n}" for n in range(1, 9)}
    assert set(group("Table 1")) == {"ViT-Base", "ViT-Large", "ViT-Huge"}
    numbered = {"Table": set(), "Figure": set()}
    for kind, *which in re.findall(r"(Table|Figure)s? (\d+)(?: (?:and|to) (\d+))?", PAGE):
        numbered[kind] |= {int(n) for n in which if n}
    assert numbered == {"Table": set(range(1, 10)), "Figure": set(range(1, 15))}
    named = set(re.findall(r"(?:[Ss]ection|[Aa]ppendix) ([\dA-D](?:\.\d+)*)", PAGE))
    sections = {"3.1", "3.2", *(f"4.{n}" for n in range(1, 7)), "A", "B.1", "B.1.1", "B.1.2", "C"}
    assert named == sections | {f"D.{n}" for n in range(1, 11)}


def test_every_link_leads_to_what_it_names():
    places = [link for link in LINK.findall(PAGE) if not link[1].startswith("https://")]
    assert all((ROOT / "notebooks" / path).is_file() for _, path, _, _ in places)
    lines = [link for link in places if link[2]]
    assert {path.partition("/")[2].partition("/")[0] for _, path, _, _ in lines} == {
        "tests",
        "vit_helpers",
    }
    for words, path, number, shown in lines:
        line = (ROOT / "notebooks" / path).read_text(encoding="utf-8").split("\n")[int(number) - 1]
        if path.startswith("../tests/"):
            assert line.startswith(f"def test_{words.replace(' ', '_')}("), (path, number)
        elif shown:
            assert line.strip() == shown, (path, number)
        else:
            assert re.match(rf"\s*(def|class) {words.rpartition('.')[2]}\b", line), (path, number)


def test_every_cell_named_is_a_cell_of_its_section():
    found = re.findall(
        r"^- notebook: \[([\w/]+)\]\(([\w/]+)\.ipynb\) › (.*?)(?: › `([^`]*)`)?$", PAGE, re.M
    )
    assert len(found) == PAGE.count("- notebook: ")
    for name, file, heading, first_line in found:
        assert name == file
        cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
        start = next(
            n
            for n, cell in enumerate(cells)
            if re.search(rf"^#+ {re.escape(heading)}$", cell.source, re.M)
        )
        after = [cell.source.split("\n")[0] for cell in cells[start:] if cell.cell_type == "code"]
        assert not first_line or first_line in after


def test_github_and_myst_can_show_it():
    assert re.findall(r"^# .*$", PAGE, re.M) == ["# The paper, and where to find it here"]
    assert all(
        re.fullmatch(r"\*\*[^*]+\.\*\* [^*]+\.( \*Not reproduced: [^*]+\.\*)?", line)
        for line in SAYS
    )
    for line in PAGE.splitlines():
        assert line.count("$") % 2 == 0 and line.count("`") % 2 == 0
        for formula in re.findall(r"\$([^$]+)\$", line):
            # GitHub eats the stroke of \, and \{
            assert not re.search(r"\\[^\w\s]|^\s|\s$", formula), formula


def test_what_is_not_reproduced_says_why():
    entries = [entry for group in SOURCE["groups"] for entry in group["entries"]]
    without = [entry for entry in entries if "missing" in entry]
    assert len(SAYS) == len(entries) and PAGE.count("*Not reproduced: ") == len(without)
    assert f"of the {len(entries)} entries below, {len(without)} say what was not, and why" in PAGE
    assert all("missing" in entry or (entry["code"] and entry["test"]) for entry in entries)


# Its numbers


def test_table_1_is_the_codes():
    for name, patches in {"ViT-Base": (16, 32), "ViT-Large": (16, 32), "ViT-Huge": (14,)}.items():
        found = [
            int(number.replace(",", ""))
            for number in re.findall(r"\d(?:[\d,]*\d)?", group("Table 1")[name])
        ]
        for patch in patches:
            config = ViTConfig.from_name(f"{name[4]}/{patch}")
            mlp = config.embed_dim * config.mlp_ratio
            assert found[:4] == [config.depth, config.embed_dim, mlp, config.num_heads]
            assert found[4] == pytest.approx(sum(parameters(config).values()) / 1e6, rel=0.03)


def test_tables_3_and_4_are_those_of_notebook_10():
    page = ROOT / "notebooks" / "further" / "10_hyperparameters.ipynb"
    cells = nbformat.read(page, as_version=4).cells
    text = next(
        cell.source for cell in cells if "Table 3 is for training from scratch" in cell.source
    )
    for title, part in zip(("Table 3", "Table 4"), text.split("Table 4 is"), strict=True):
        # the last column is ours
        rows = [line.split("|")[1:-2] for line in part.splitlines() if line.startswith("| ")]
        theirs = {name.strip(): numbers("|".join(values)) for name, *values in rows}
        ours = {name.lower(): numbers(says) for name, says in group(title).items()}
        same = ours.keys() & theirs.keys()
        assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
        assert len(same) == {"Table 3": 6, "Table 4": 2}[title]


def test_betas_are_the_papers():
    (says,) = (says for name, says in group("Table 3").items() if name.startswith("Adam"))
    for groups in adamw(nn.Linear(2, 2), lr=1e-3, weight_decay=0.1).param_groups:
        assert list(groups["betas"]) == numbers(says)


def test_table_6_is_the_codes():
    says = group("Table 6")["ExaFLOPs"]
    rows = {
        name: int(number.replace(",", ""))
        for number, name in re.findall(r"([\d,]+) \(([BLH]/\d+)\)", says)
    }
    assert (
        list(rows) == ["B/32", "B/16", "L/32", "L/16", "H/14"]
        and "(L/16) for 7 epochs" in says
        and says.endswith("for 14.")
    )
    for name, published in rows.items():
        once = sum(training_multiply_adds(ViTConfig.from_name(name), fused=False).values())
        epochs = 14 if name == "H/14" else 7
        assert 2 * once * 303e6 * epochs / 1e18 == pytest.approx(published, rel=0.03)


def test_a_section_of_a_further_page_can_be_named():
    path = ROOT / "notebooks" / "further" / "03_attention.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    headings = [found for cell in cells for found in re.findall(r"^## (.+)$", cell.source, re.M)]
    link = paper_index.in_notebook("further/03_attention", headings[0])
    assert link == f"[further/03_attention](further/03_attention.ipynb) › {headings[0]}"


# A source that leads nowhere


def broken(kind, place):
    """The source with one more place"""
    source = copy.deepcopy(SOURCE)
    source["groups"][0]["entries"][1][kind].append(place)
    return source


GONE = [
    (
        "notebook",
        ["further/03_attention", "5. Masks"],
        "the heading '5. Masks' of further/03_attention.ipynb: not found",
    ),
    ("notebook", ["12_future", "Look first"], "no file notebooks/12_future.ipynb"),
    (
        "notebook",
        ["04_encoder", "3. Residual"],
        "the heading '3. Residual' of 04_encoder.ipynb: not found",
    ),
    (
        "notebook",
        ["04_encoder", "Our block and PyTorch's", "class Own"],
        "the cell 'class Own' of .*: not found",
    ),
    ("notebook", ["05_vit", "4. The residual stream"], "the heading .* of 05_vit.ipynb: not found"),
    ("code", ["decoder", "Block"], "no file vit_helpers/decoder.py"),
    ("code", ["encoder", "Block.backward"], "backward of Block.backward in encoder.py: not found"),
    (
        "code",
        ["encoder", "Block.forward", "self.norm3"],
        "the line 'self.norm3' of Block.forward in .*: not found",
    ),
    ("code", ["encoder", "Block.forward", "x = x +"], "the line 'x = x .' of .*: found 2 times"),
    (
        "code",
        ["encoder", "MLP", "self.attn(self.norm1(x)"],
        "the line .* of MLP in encoder.py: not found",
    ),
    ("test", ["test_decoder", "test_it"], "no file tests/test_decoder.py"),
    ("test", ["test_encoder", "test_it"], "the test test_it of test_encoder.py: not found"),
    ("test", ["test_encoder", "torch_twin_"], "the test torch_twin_ of test_encoder.py: not found"),
]


@pytest.mark.parametrize(("kind", "place", "says"), GONE)
def test_what_is_gone_is_named(kind, place, says):
    with pytest.raises(
        ValueError, match=f"1 places of paper_index.toml not found\n  Equation 2: {says}"
    ):
        paper_index.page(broken(kind, place))


def test_the_command_tells_all_that_is_gone_and_writes_nothing(monkeypatch, tmp_path, capsys):
    path = tmp_path / "page.md"
    text = paper_index.SOURCE.read_text(encoding="utf-8")
    (tmp_path / "source.toml").write_text(
        text.replace("self.mlp(self.norm2(x))", "self.mlp(x)").replace(
            '"test_three_', '"test_four_'
        ),
        encoding="utf-8",
    )
    monkeypatch.setattr(paper_index, "SOURCE", tmp_path / "source.toml")
    monkeypatch.setattr(paper_index, "PAGE", path)
    assert run_tool(paper_index, []) == 1 and not path.exists()
    said = capsys.readouterr().err
    assert said.startswith(
        "error: 3 places of source.toml not found\n"
        "  Equation 3: the line 'self.mlp(x)' of Block.forward"
    )
    assert (
        "  Equation 6: the test test_four_tokens_on_paper" in said
        and "  Equation 7: the test test_four_" in said
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"test": []},
            "Equation 1: say where its code and its test are, "
            "or under `missing` why there are none",
        ),
        ({"tets": [["test_vit", "test_table_1"]]}, "Equation 1: missing or unknown: tets"),
    ],
)
def test_an_entry_that_is_none_is_named(changes, says):
    source = copy.deepcopy(SOURCE)
    source["groups"][0]["entries"][0] |= changes
    with pytest.raises(ValueError, match=says):
        paper_index.page(source)


def test_an_entry_without_words_is_named():
    source = copy.deepcopy(SOURCE)
    del source["groups"][0]["entries"][0]["says"]
    with pytest.raises(ValueError, match="Equation 1: missing or unknown: says"):
        paper_index.page(source)


def test_a_source_that_is_no_toml_is_an_error(monkeypatch, tmp_path, capsys):
    (tmp_path / "source.toml").write_text("[[groups")
    monkeypatch.setattr(paper_index, "SOURCE", tmp_path / "source.toml")
    monkeypatch.setattr(paper_index, "PAGE", tmp_path / "page.md")
    assert run_tool(paper_index, []) == 1 and not (tmp_path / "page.md").exists()
    assert re.match(r"error: Expected .* \(at .*\)$", capsys.readouterr().err)
