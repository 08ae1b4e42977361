"""The parity tool, and its table beside the stored results."""

from pathlib import Path

import pandas as pd
import pytest

from tools import main as run_tool
from tools.experiments import parity

pytestmark = pytest.mark.peers
ROOT = Path(__file__).parents[3]
SMALL = "8 px/P2/D64/L2"


def test_it_writes_and_prints_what_it_found(tmp_path, capsys):
    assert run_tool(parity, [SMALL, "--out", str(tmp_path / "parity.csv")]) == 0
    rows = pd.read_csv(tmp_path / "parity.csv")
    assert list(rows["library"]) == ["torchvision", "timm", "Hugging Face"]
    assert rows["logits"].max() < 1e-5 and rows["gradients"].max() < 1e-4
    assert rows["largest logit"].min() > 0.1  # zeros would make any two models equal
    assert parity.markdown(rows) in capsys.readouterr().out


@pytest.mark.parametrize("name", ["blocks.1.mlp.fc2.bias", "token_embed.pos_embed", "norm.weight"])
def test_one_number_that_is_another_shows(monkeypatch, name):
    fill = parity.pretrained.fill

    def fill_wrongly(model, state_dict):
        fill(model, state_dict)
        model.state_dict()[name].view(-1)[0] += 0.1

    monkeypatch.setattr(parity.pretrained, "fill", fill_wrongly)
    row = parity.compare(SMALL, "timm")
    assert row["logits"] > 1e-4 and row["gradients"] > 1e-3


def test_a_size_that_fails_leaves_the_rows_before_it(tmp_path, monkeypatch):
    compare = parity.compare

    def fails(size, library):
        if library == "timm":
            raise KeyboardInterrupt
        return compare(size, library)

    monkeypatch.setattr(parity, "compare", fails)
    assert run_tool(parity, [SMALL, "--out", str(tmp_path / "parity.csv")]) == 130
    assert len((tmp_path / "parity.csv").read_text(encoding="utf-8").splitlines()) == 2


def test_a_folder_is_no_file(tmp_path, capsys):
    assert run_tool(parity, [SMALL, "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path} is a folder, wanted: a CSV file\n"


def test_unknown_sizes_are_named(capsys):
    assert run_tool(parity, ["XL/16"]) == 1
    assert "error: unknown size 'XL/16', known: 8 px/P2/D64/L2" in capsys.readouterr().err


def test_the_page_of_results_shows_the_stored_table():
    rows = pd.read_csv(ROOT / "vit_helpers" / "results" / "parity.csv")
    assert set(rows["model"]) == set(parity.SIZES)
    page = (ROOT / "vit_helpers" / "results" / "README.md").read_text(encoding="utf-8")
    assert parity.markdown(rows) in page
    least, most = rows["largest logit"].min(), rows["largest logit"].max()
    assert f"The largest logits are between {least:.2g} and {most:.2g}:" in page
    assert (rows["logits"] < 1e-5 * rows["largest logit"]).all()
