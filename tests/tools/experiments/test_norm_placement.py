"""The tool `norm_placement`: its variants and rows, and that stored ones can be measured again."""

import pandas as pd
import pytest
import torch

from tools import main as run_tool
from tools.experiments import norm_placement
from vit_helpers.encoder import Block
from vit_helpers.results import read_results

pytestmark = pytest.mark.dev


def test_the_variants_are_pre_norm_post_norm_and_no_sum():
    x = torch.randn(2, 5, 8)
    blocks = {name: make(8, 2) for name, make in norm_placement.BLOCKS.items()}
    assert type(blocks["pre-norm"]) is Block
    after = blocks["post-norm"](x)
    assert torch.allclose(after.mean(-1), torch.zeros(2, 5), atol=1e-5) and torch.allclose(
        after.var(-1, unbiased=False), torch.ones(2, 5), atol=1e-3
    )
    for block in blocks.values():
        for part in (block.attn.proj, block.mlp.fc2):
            torch.nn.init.zeros_(part.weight)
            torch.nn.init.zeros_(part.bias)
    assert torch.equal(blocks["pre-norm"](x), x) and not blocks["no residual"](x).any()


def test_it_runs_without_words(monkeypatch):
    monkeypatch.setattr(norm_placement, "run", lambda args: 0)
    assert run_tool(norm_placement, []) == 0


def test_it_stores_its_rows(tmp_path, monkeypatch, capsys):
    for name, value in {"DEPTHS": (1, 2), "DEEPEST_TRAINED": 1, "SEEDS": 1, "STEPS": 2}.items():
        monkeypatch.setattr(norm_placement, name, value)
    threads = torch.get_num_threads()
    try:
        assert run_tool(norm_placement, ["--out", str(tmp_path / "rows.csv")]) == 0
    finally:
        torch.set_num_threads(threads)
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert list(rows.columns) == list(read_results("norm_placement").columns)
    assert len(rows) == 3 * 2 + 3 * 3 and len(capsys.readouterr().err.splitlines()) == len(rows)
    untrained = rows["schedule"] == "untrained"
    assert rows.loc[untrained, ["first", "last"]].gt(0).all(axis=None)
    assert (
        rows.loc[~untrained, "loss"].gt(0).all()
        and rows.loc[~untrained, "accuracy"].between(0, 1).all()
    )


@pytest.mark.parametrize("block", norm_placement.BLOCKS)
def test_the_stored_gradients_can_be_measured_again(block):
    stored = (
        read_results("norm_placement")
        .set_index(["schedule", "block", "depth", "seed"])
        .sort_index()
    )
    row = norm_placement.measure("untrained", block, 3, 1)
    again = stored.loc[("untrained", block, 3, 1), ["first", "last"]]
    assert (row["first"], row["last"]) == pytest.approx(tuple(again), rel=1e-3)
