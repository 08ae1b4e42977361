"""The stored scores of maps: ties, intervals over models and images, families."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from vit_helpers.ablation.comparison import effect_of
from vit_helpers.data import load
from vit_helpers.data.digits import find_digits, scatter
from vit_helpers.results import read_results
from vit_helpers.results.localization import (
    RIVALS,
    compare_methods,
    line_of,
    pack_scores,
    scores_of,
    summarize_scores,
    unpack_scores,
)


def test_packed_scores_keep_ties_of_36_patches():
    scores = torch.arange(37) / 36
    np.testing.assert_allclose(unpack_scores(pack_scores(scores)), scores, atol=1e-7)
    assert len(pack_scores(np.ones(1000))) < 40


def table(models=3, images=50, gain=0.4):
    rng, rows = np.random.default_rng(0), []
    for kind, seed in [
        *((k, s) for k in ("trained", "untrained") for s in range(models)),
        ("none", 0),
    ]:
        names = (
            ["brightness, blurred", "edges, blurred", "ink, blurred"]
            if kind == "none"
            else ["rollout"]
        )
        for name in names:
            low = gain if kind == "trained" else 0
            packed = [pack_scores(rng.uniform(low, low + 0.6, images)) for _ in range(4)]
            columns = ("pointing_game", "rank", "pointing_game_other", "rank_other")
            rows.append(
                {
                    "model": kind,
                    "seed": seed,
                    "method": name,
                    "inside": 0.5,
                    **dict(zip(columns, packed, strict=True)),
                }
            )
    return pd.DataFrame(rows)


def test_intervals_cover_models_and_images():
    rows = table()
    compared, ours = compare_methods(rows), scores_of(rows, "rollout", "rank")
    assert ours.shape == (3, 50) and len(compared) == 5 * 2
    effect = effect_of(ours - scores_of(rows, "ink, blurred", "rank", "none"))
    line = compared.loc[("ink, blurred", "rank", "rollout")]
    assert (line["low"], line["high"]) == pytest.approx(effect.interval()) and line[
        "mean"
    ] == pytest.approx(effect.difference)
    assert line["low"] > 0.2 and line["holm"] < 0.05 and (compared["holm"] >= compared["p"]).all()
    assert abs(compared.loc[("another box", "rank", "rollout"), "mean"]) < 0.1


def test_counting_digits_instead_of_images_changes_no_conclusion():
    """Notebook 08: with clusters, no end moves by more than 0.002, and no star changes."""
    plain = load("digits").test
    images = scatter(plain, 1000, 24, 12, 4, torch.Generator().manual_seed(5))  # of seed 1
    digits = find_digits(images, plain)
    assert len(digits.unique()) == 335
    independent, clustered = (
        compare_methods(read_results("localization"), clusters).loc[list(RIVALS)]
        for clusters in (None, digits)
    )
    moved = (clustered[["low", "high"]] - independent[["low", "high"]]).abs().max(axis=None)
    assert len(independent) == 30 and 0 < moved < 0.002
    assert ((independent["holm"] < 0.05) == (clustered["holm"] < 0.05)).all()


def test_families_are_corrected_on_their_own():
    compared = compare_methods(table(gain=0))
    rivals = compared.drop(index=["untrained", "another box"], level="against")
    # 3 rivals, 2 scores
    assert rivals["holm"].min() == pytest.approx(min(1, 6 * rivals["p"].min()))
    for name in ("untrained", "another box"):
        assert compared.loc[name, "holm"].min() == pytest.approx(
            min(1, 2 * compared.loc[name, "p"].min())
        )


def test_with_one_model_the_interval_covers_images_alone():
    values = np.random.default_rng(0).uniform(size=(1, 100))
    line, error = line_of(values), values.std(ddof=1) / 10
    assert line["models"] == 1 and line["high"] - line["low"] == pytest.approx(
        2 * 1.984 * error, rel=1e-3
    )
    clusters = np.arange(100) // 10  # ten of them
    line, error = line_of(values, clusters), effect_of(values, clusters).images
    assert line["high"] - line["low"] == pytest.approx(2 * 2.262 * error, rel=1e-3)
    summary = summarize_scores(table(models=1))
    assert summary.loc[("inside", "trained", "rollout"), "each"] == [0.5]
    assert math.isnan(summary.loc[("inside", "trained", "rollout"), "low"])
    with pytest.raises(ValueError, match="no rows of 'occlusion'"):
        scores_of(table(), "occlusion", "rank")


def test_both_tables_of_maps_are_of_the_same_models():
    """Where `localization.csv` and `maps.csv` score the same map, they agree on every image"""
    key = ["model", "seed", "method"]
    tables = [read_results(name).set_index(key) for name in ("localization", "maps")]
    both = tables[0].index.intersection(tables[1].index)
    assert len(both) == 4 * 5
    hits = [table.loc[both, "pointing_game"].tolist() for table in tables]
    assert hits[0] == hits[1]
