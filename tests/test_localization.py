import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from vit_helpers.ablation.comparison import effect_of
from vit_helpers.data import load
from vit_helpers.data.digits import find_digits, scatter
from vit_helpers.inspection.localization import (
    CONTROLS,
    METHODS,
    center_map,
    fraction_inside,
    inside_boxes,
    localization_scores,
    maps_of,
    patches_inside,
    pixel_map,
    pointing_game,
    rank_score,
)
from vit_helpers.parity import perturb
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
from vit_helpers.vit import ViT, ViTConfig


def test_inside_are_the_pixels_of_the_box():
    mask = inside_boxes(torch.tensor([[2, 4, 8, 4]]), (12, 16))
    assert mask.shape == (1, 12, 16) and mask.sum() == 32 and mask[0, 4:8, 2:10].all()


def test_a_patch_half_inside_counts_half():
    maps = torch.zeros(1, 3, 4)
    maps[0, 1, 0] = 1
    assert fraction_inside(maps, torch.tensor([[2, 4, 8, 4]]), 4).item() == 0.5


def test_fraction_inside():
    box = torch.tensor([[4, 4, 8, 4], [4, 4, 8, 4]])
    maps = torch.zeros(2, 3, 4)
    maps[0, 1, 1], maps[0, 0, 0], maps[0, 2, 2] = 3, 1, -5
    inside = fraction_inside(maps, box, 4)
    # an empty map scores as a uniform one
    assert inside[0] == 0.75 and inside[1] == pytest.approx(2 / 12)


def test_pointing_game():
    maps = torch.zeros(2, 3, 4)
    maps[0, 1, 2], maps[1, 2, 3] = 1, 1
    assert pointing_game(maps, torch.tensor([[8, 4, 4, 4]] * 2), 4).tolist() == [1, 0]
    two = torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert pointing_game(two, torch.tensor([[0, 0, 4, 8]]), 4).item() == 0.5


@pytest.mark.parametrize(("box", "hit"), [((0, 0, 2, 2), 0), ((2, 2, 4, 4), 1)])
def test_the_center_of_a_patch_is_what_points(box, hit):
    """Of the first patch of 4 pixels: a box of its corner, and one of its other corner"""
    maps = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    assert pointing_game(maps, torch.tensor([box]), 4).item() == hit


def test_a_uniform_map_has_the_box_s_fraction_of_the_image():
    boxes = load("scattered_digits", n=50).train.boxes
    assert torch.allclose(
        fraction_inside(torch.ones(50, 6, 6), boxes, 4), torch.tensor(12 * 12 / 24**2)
    )


# Scores and sharpening


def random_maps(count=40, seed=0):
    own = torch.Generator().manual_seed(seed)
    return torch.rand(count, 6, 6, generator=own), load("scattered_digits", n=5 * count).test.boxes


def test_the_rank_score_is_the_area_under_the_roc_curve_of_the_pixels():
    maps, boxes = random_maps()
    maps[:10] = (4 * maps[:10]).floor()  # with ties
    pixels = maps.repeat_interleave(4, 1).repeat_interleave(4, 2)
    wanted = [
        roc_auc_score(m.flatten(), x.flatten())
        for m, x in zip(inside_boxes(boxes, (24, 24)), pixels, strict=True)
    ]
    torch.testing.assert_close(
        rank_score(maps, boxes, 4), torch.tensor(wanted, dtype=torch.float32)
    )


def test_the_rank_score_of_known_maps():
    box = torch.tensor([[0, 0, 8, 8]])
    truth = patches_inside(torch.zeros(1, 3, 4), box, 4)
    assert truth.sum() == 4 and rank_score(truth, box, 4) == 1 and rank_score(-truth, box, 4) == 0
    assert rank_score(torch.ones(1, 3, 4), box, 4) == 0.5
    half = torch.tensor([[2, 0, 4, 4]])  # half of two patches
    assert rank_score(
        patches_inside(torch.zeros(1, 1, 4), half, 4), half, 4
    ).item() == pytest.approx(5 / 6)


@pytest.mark.parametrize("power", [0.5, 2.0, 6.0])
def test_sharpening_changes_the_fraction_inside_and_no_other_score(power):
    """`power` is increasing on the values of these maps, so it keeps their order."""
    maps, boxes = random_maps()
    plain, sharp = (localization_scores(x, boxes, 4) for x in (maps, maps**power))
    assert torch.equal(plain["pointing_game"], sharp["pointing_game"]) and torch.equal(
        plain["rank"], sharp["rank"]
    )
    assert (plain["inside"] - sharp["inside"]).abs().mean() > 0.01
    shifted = localization_scores(3 * maps - 1, boxes, 4)  # negative values are no trouble either
    assert torch.equal(plain["rank"], shifted["rank"]) and torch.equal(
        plain["pointing_game"], shifted["pointing_game"]
    )


# Methods and controls


@pytest.fixture(scope="module")
def data():
    return load("scattered_digits", n=60)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=24, in_chans=1, num_classes=10))
    perturb(model, std=0.2)
    return model


def test_every_method_gives_a_map_for_every_image(data, model):
    for name, method in (METHODS | CONTROLS).items():
        maps = method(model, data.normalize(data.train.images[:7]), data.train.labels[:7])
        assert maps.shape == (7, 6, 6) and maps.isfinite().all() and not maps.requires_grad, name


def test_maps_of_a_split_are_those_of_its_images_and_labels(data, model):
    split = data.train
    for name in ("rollout", "gradient rollout", "occlusion"):
        at_once = METHODS[name](model, data.normalize(split.images), split.labels)
        torch.testing.assert_close(
            maps_of(METHODS[name], model, split, data.normalize, 25), at_once, msg=name
        )


def test_controls_need_no_model_and_no_class(data):
    class Grid:
        config = ViTConfig.from_name("mini/4", image_size=24, in_chans=1, num_classes=10)

    for name, method in CONTROLS.items():
        maps = method(Grid(), data.train.images, None)
        normalized = method(Grid(), data.normalize(data.train.images), None)
        scores, same = (localization_scores(x, data.train.boxes, 4) for x in (maps, normalized))
        # whichever the units of the pixels
        assert (scores["rank"] - same["rank"]).abs().max() < 0.01, name
    assert not CONTROLS.keys() & METHODS.keys()


def test_ink_counts_every_pixel_alike_and_edges_the_steps_between_them(model):
    images = torch.zeros(2, 1, 24, 24)
    images[0, 0, 8:12, 8:12], images[1, 0, 8:12, 8:12] = 0.2, 1.0
    images[1, 0, 4:8, 4:8] = 0.5
    ink = pixel_map(model, images, None, "ink", blurred=False)
    assert ink[0].sum() == ink[0, 2, 2] == 1 and ink[1].sum() == 2
    bright = pixel_map(model, images, None, "brightness", blurred=False)
    assert bright[1, 2, 2] == 1 and bright[1, 1, 1] == 0.5 and bright[0, 2, 2] == pytest.approx(0.2)
    assert pixel_map(model, images, None, "edges", blurred=False)[0, 2, 2] > 0
    assert pixel_map(model, torch.ones(1, 1, 24, 24), None, "edges").abs().max() == 0
    blurred = pixel_map(model, images, None, "ink")
    assert blurred[0, 1:4, 1:4].allclose(torch.tensor(1 / 9)) and blurred[0].count_nonzero() == 9


def test_the_center_map_does_not_see_the_image_and_scores_well(data, model):
    maps = center_map(model, data.train.images, None)
    assert maps.shape == (60, 6, 6) and maps[:, 2:4, 2:4].sum() == maps.sum() == 4 * 60
    many = load("scattered_digits", n=2000).train
    inside = fraction_inside(center_map(model, many.images, None), many.boxes, 4)
    # most boxes, from 0 to 12, contain the center
    assert inside.mean() == pytest.approx(0.65, abs=0.03)


def test_a_map_that_knows_the_box_scores_best(data):
    split = data.train
    scores = localization_scores(
        patches_inside(torch.zeros(60, 6, 6), split.boxes, 4), split.boxes, 4
    )
    assert (
        scores["inside"].mean() > 0.75
        and scores["pointing_game"].min() == 1
        and scores["rank"].min() > 0.9
    )


# The stored table


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
