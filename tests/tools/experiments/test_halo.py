"""The tool that measures how similar the position embeddings of neighboring patches are."""

import re
from dataclasses import replace

import pandas as pd
import pytest
import torch

from tools import main as run_tool
from tools.experiments import halo
from vit_helpers.data import load
from vit_helpers.data.splits import subset
from vit_helpers.results import read_results
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.dev


def test_it_stores_a_row_for_each_kind_and_seed(tmp_path, monkeypatch, capsys):
    data = load("digits")
    # three steps: the first moves only the head
    monkeypatch.setattr(
        halo, "load", lambda name: replace(data, train=subset(data.train, slice(130)))
    )
    monkeypatch.setattr(halo, "EPOCHS", 1)
    assert run_tool(halo, ["--seeds", "1", "--out", str(tmp_path / "halo.csv")]) == 0
    rows, stored = pd.read_csv(tmp_path / "halo.csv"), read_results("halo")
    assert list(rows.columns) == list(stored.columns)
    assert (
        list(rows["augmentation"])
        == list(stored["augmentation"].unique())
        == ["untrained", "none", "no shift", "shift"]
    )
    assert rows["beside"].nunique() == 4 and rows["accuracy"].between(0, 1).all()
    accuracy = f"{rows['accuracy'][2]:.3f}".rstrip("0")
    assert re.search(rf"^no shift +{accuracy}0* +NaN", capsys.readouterr().out, re.M)


def test_similarity_tells_neighbors_from_distant_patches():
    model = ViT(ViTConfig.from_name("mini/2", image_size=12, in_chans=1, num_classes=10))
    rows, cols = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    angles = torch.stack([rows, cols], dim=-1).reshape(36, 2) * 0.5  # half a radian a patch
    table = torch.cat([angles.cos(), angles.sin()], dim=1)
    with torch.no_grad():
        model.get_parameter("token_embed.pos_embed")[0, 1:] = 0
        model.get_parameter("token_embed.pos_embed")[0, 1:, :4] = table
    found = halo.similarity(model)
    assert found["beside"] == pytest.approx((1 + torch.tensor(0.5).cos().item()) / 2, abs=1e-5)
    assert found["far"] < 0.3


@pytest.mark.repo
def test_the_stored_rows_have_five_seeds_or_more_and_a_control():
    stored = read_results("halo")
    assert (stored.groupby("augmentation")["seed"].nunique() >= 5).all()
    assert (
        stored.loc[stored["augmentation"] == "untrained", ["beside", "far"]].abs().max(axis=None)
        < 0.05
    )
