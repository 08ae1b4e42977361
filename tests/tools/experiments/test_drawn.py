"""The model of the live page: ink and pixels, training and test images, and how well it reads."""

import json
import statistics
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from tools import main as run_tool
from tools.experiments import drawn, strokes_frozen
from vit_helpers.live.ink import reduce_ink
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.sources import OURS
from vit_helpers.results import read_results

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[3]

# ink


def reduce_by_counting(ink, size):
    """The same rule without fractions: pixels are repeated until a cell has whole ones"""
    rows, columns = (np.flatnonzero((ink > 0.1).any(axis)) for axis in (1, 0))
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    side = max(bottom - top, right - left)
    fine = np.pad(np.kron(ink, np.ones((2 * size, 2 * size))), 2 * size * side)
    y, x = (
        (first + last - side) * size + 2 * size * side
        for first, last in ((top, bottom), (left, right))
    )
    square = fine[y : y + 2 * size * side, x : x + 2 * size * side]
    return square.reshape(size, 2 * side, size, 2 * side).mean((1, 3))


@pytest.mark.parametrize(
    ("shape", "size"), [((9, 14), 4), ((23, 7), 5), ((8, 8), 16), ((1, 1), 3), ((12, 30), 1)]
)
def test_every_cell_is_the_mean_over_its_area(shape, size):
    rng = np.random.default_rng(0)
    ink = rng.random(shape) * (rng.random(shape) < 0.3)
    ink[0, -1] = 0.7
    expected = torch.tensor(reduce_by_counting(ink, size)).float()
    assert torch.allclose(reduce_ink(torch.tensor(ink), size), expected, atol=1e-6)


# three hands that share nothing


def test_the_handwritten_digits_are_divided_between_whole_sheets():
    from sklearn.datasets import load_digits

    sequence = "".join(map(str, load_digits().target))
    rows = list(drawn.SHEETS.values())
    # every digit once
    assert [rows[0].start, *(rows.stop for rows in rows)] == [
        0,
        1157,
        1415,
        1797,
    ]
    for part in rows:  # each part begins where a hand begins the sheet anew
        assert sequence[part.start :].startswith(
            "01234567890123456789012345678909556509898417735100"
        )


# the stored model


@pytest.fixture(scope="module")
def stored():
    return load_pretrained("ours:drawn")


@pytest.fixture(scope="module")
def measured(stored):
    """The rows of the stored file, measured again"""
    return pd.DataFrame(drawn.score(stored, drawn.drawings_for("frozen")))


@pytest.fixture(scope="module")
def first(stored):
    """As many of them as are quickly drawn: the handwriting, and strokes of the first kind"""
    strokes = islice(strokes_frozen.drawings(drawn.COUNTS["frozen"]), 10 * drawn.COUNTS["frozen"])
    return pd.DataFrame(
        drawn.score(stored, drawn.reduced(chain(drawn.handwriting("frozen"), strokes)))
    )


@pytest.mark.parametrize("part", ["first", pytest.param("measured", marks=pytest.mark.long)])
def test_the_stored_file_has_the_stored_accuracy(part, request):
    measured, rows = request.getfixturevalue(part), read_results("drawn")
    rows = rows[rows["seed"] == 0].drop(columns="seed").reset_index(drop=True)
    rows = rows[: len(measured)] if part == "first" else rows
    assert measured[["kind", "digit", "images"]].equals(rows[["kind", "digit", "images"]])
    # one drawing of twenty may be on the edge
    assert (measured["accuracy"] - rows["accuracy"]).abs().max() <= 0.051
    assert (measured["accuracy"] * measured["images"]).sum() == pytest.approx(
        (rows["accuracy"] * rows["images"]).sum(), abs=4
    )
    assert (measured["confidence"] - rows["confidence"]).abs().max() < 0.01


def mean(rows, column="accuracy"):
    return (rows[column] * rows["images"]).sum() / rows["images"].sum()


def test_it_reads_what_others_draw_and_write(first):
    kinds = {kind: mean(rows) for kind, rows in first.groupby("kind")}
    assert kinds.keys() == {"handwriting", "plain"} and min(kinds.values()) >= 0.9, kinds


@pytest.mark.long
def test_it_reads_every_kind_of_drawing(measured):
    digits = measured[measured["digit"] >= 0]
    kinds = {kind: mean(rows) for kind, rows in digits.groupby("kind")}
    assert len(kinds) == len(strokes_frozen.KINDS) + 1 and min(kinds.values()) >= 0.85, kinds
    assert mean(digits[digits["kind"] != "handwriting"]) >= 0.9 and kinds["handwriting"] >= 0.9


def test_it_is_not_sure_about_new_scribbles(stored):
    rng = np.random.default_rng(1)
    inks = (
        (strokes_frozen.render(strokes_frozen.scribble(rng), "plain", rng), "scribble", -1)
        for _ in range(40)
    )
    (row,) = drawn.score(stored, drawn.reduced(inks))
    assert row["confidence"] < 0.5


@pytest.mark.long
def test_it_is_not_sure_about_scribbles(measured):
    scribbles = measured["digit"] < 0
    assert (
        mean(measured[scribbles], "confidence")
        < 0.5
        < 0.8
        < mean(measured[~scribbles], "confidence")
    )


def test_the_file_fits_the_page(stored):
    path = OURS / "drawn.safetensors"
    assert path.stat().st_size * 4 / 3 < 600_000  # as text in the page, which has 900 kB
    with safe_open(path, "pt") as file:
        names = file.keys()
        assert {str(file.get_tensor(key).dtype) for key in names} == {"torch.float16"}
        assert json.loads(file.metadata()["class_names"]) == list("0123456789")
    config = stored.model.config
    assert (config.image_size, config.patch_size, config.num_tokens) == ((16, 16), 4, 17)
    assert (
        stored.preprocess.crop == (16, 16)
        and 190_000 < sum(p.numel() for p in stored.model.parameters()) < 210_000
    )


def test_training_stores_weights_and_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(drawn.SETTINGS, "images", {"strokes": 60, "scribbles": 5, "digits": 10})
    monkeypatch.setitem(drawn.SETTINGS, "recipe", drawn.SETTINGS["recipe"] | {"epochs": 1})
    monkeypatch.setattr(drawn, "COUNTS", {"choosing": 3, "frozen": 1})
    words = ["--seeds", "1", "--weights", str(tmp_path), "--out", str(tmp_path / "drawn.csv")]
    assert run_tool(drawn, words) == 0
    rows, said = pd.read_csv(tmp_path / "drawn.csv"), capsys.readouterr().out
    assert list(rows.columns) == list(read_results("drawn").columns)
    assert rows[rows["kind"] == "wobbly"]["digit"].tolist() == list(range(10)) and "wobbly" in said
    again = load_pretrained(tmp_path / "drawn-0.safetensors")
    scores = pd.DataFrame(drawn.score(again, drawn.drawings_for("frozen")))
    assert scores["accuracy"].tolist() == pytest.approx(rows["accuracy"])
    assert run_tool(drawn, [*words, "--choosing"]) == 0
    assert {*pd.read_csv(tmp_path / "drawn.csv")["kind"]} == {"handwriting", "choosing", "scribble"}


def test_training_images_are_digits_and_scribbles_without_an_answer():
    images, targets = drawn.training_images(
        np.random.default_rng(0), strokes=20, scribbles=4, digits=6
    )
    assert images.shape == (30, 1, 16, 16) and images.min() >= 0 and images.max() <= 1
    assert targets[:20].argmax(1).tolist() == [*range(10)] * 2 and torch.equal(
        targets[20:24], torch.full((4, 10), 0.1)
    )
    assert (targets.sum(1) - 1).abs().max() < 1e-6 and (targets[24:].max(1).values == 1).all()
    assert images.flatten(1).sum(1).min() > 3  # each has ink
    again, _ = drawn.training_images(np.random.default_rng(0), strokes=20, scribbles=4, digits=6)
    assert torch.equal(images[:24], again[:24])


def figures(rows, **which):
    """Mean and standard deviation of the accuracy over seeds, as the page of results writes them"""
    for name, value in which.items():
        rows = rows[rows[name] == value]
    seeds = [mean(group) for _, group in rows.groupby("seed")]
    return f"{statistics.mean(seeds):.3f} ± {statistics.stdev(seeds):.3f}"


@pytest.mark.repo
def test_the_figures_in_prose_are_the_stored_ones():
    page = (ROOT / "vit_helpers" / "results" / "README.md").read_text(encoding="utf-8")
    rows = read_results("drawn")
    digits, scribbles = rows[rows["digit"] >= 0], rows[rows["digit"] < 0]
    strokes_alone = digits[digits["kind"] != "handwriting"]
    assert rows["seed"].nunique() >= 3 and f"| all strokes | {figures(strokes_alone)} |" in page
    for kind in digits["kind"].unique():
        assert f"| {kind} | {figures(digits, kind=kind)} |" in page
    assert f"| {' | '.join(figures(strokes_alone, digit=digit) for digit in range(10))} |" in page
    for text, group in (
        ("digits", strokes_alone),
        ("handwritten ones", digits[digits["kind"] == "handwriting"]),
    ):
        assert f"{mean(group, 'confidence'):.2f} for {text}" in page.replace("\n", " ")
    assert f"{mean(scribbles, 'confidence'):.2f} for scribbles" in page.replace("\n", " ")
