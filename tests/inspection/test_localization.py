import pytest
import torch
from sklearn.metrics import roc_auc_score

from vit_helpers.data import load
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


def test_an_unknown_kind_of_pixels_is_named(model):
    with pytest.raises(ValueError, match="kind 'inkk', known: brightness, ink, edges"):
        pixel_map(model, torch.ones(1, 1, 24, 24), None, "inkk")


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
