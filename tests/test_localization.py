from types import SimpleNamespace

import pytest
import torch

from vit_helpers.data import load
from vit_helpers.inspection.localization import METHODS, fraction_inside, inside_boxes, localization_scores, pointing_game
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
    assert inside[0] == 0.75 and inside[1] == pytest.approx(2 / 12)  # an empty map scores as a uniform one


def test_pointing_game():
    maps = torch.zeros(2, 3, 4)
    maps[0, 1, 2], maps[1, 2, 3] = 1, 1
    assert pointing_game(maps, torch.tensor([[8, 4, 4, 4]] * 2), 4).tolist() == [1, 0]
    two = torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert pointing_game(two, torch.tensor([[0, 0, 4, 8]]), 4).item() == 0.5


def test_a_uniform_map_has_the_box_s_fraction_of_the_image():
    boxes = load("scattered_digits", n=50).train.boxes
    assert torch.allclose(fraction_inside(torch.ones(50, 6, 6), boxes, 4), torch.tensor(12 * 12 / 24**2))


# Methods


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
    for name, method in METHODS.items():
        maps = method(model, data.normalize(data.train.images[:7]), data.train.labels[:7])
        assert maps.shape == (7, 6, 6) and maps.isfinite().all() and not maps.requires_grad, name


def test_scores_are_means_over_all_images(data, model):
    split = data.train
    scores = localization_scores(model, split, data.normalize, batch_size=25)
    assert list(scores) == list(METHODS)
    assert scores["uniform map"] == {"inside": pytest.approx(0.25), "pointing_game": pytest.approx(0.25, abs=0.01)}
    for name, method in METHODS.items():
        maps = method(model, data.normalize(split.images), split.labels)
        assert scores[name]["inside"] == pytest.approx(fraction_inside(maps, split.boxes, 4).mean().item(), abs=1e-5)
        hits = pointing_game(maps, split.boxes, 4).mean().item()
        assert scores[name]["pointing_game"] == pytest.approx(hits, abs=1e-5)


def test_a_split_without_boxes_is_named(model):
    split = SimpleNamespace(images=torch.rand(2, 1, 24, 24), labels=torch.tensor([0, 1]), boxes=None)
    with pytest.raises(ValueError, match="no bounding boxes"):
        localization_scores(model, split, lambda images: images)


def test_the_center_map_does_not_see_the_image_and_scores_well(data, model):
    from vit_helpers.inspection.localization import center_map

    maps = center_map(model, data.train.images, None)
    assert maps.shape == (60, 6, 6) and maps[:, 2:4, 2:4].sum() == maps.sum() == 4 * 60
    many = load("scattered_digits", n=2000).train
    scores = localization_scores(model, many, data.normalize, {"center map": center_map}, batch_size=500)
    assert scores["center map"]["inside"] == pytest.approx(0.65, abs=0.03)  # most boxes, from 0 to 12, contain the center


def test_a_method_that_knows_the_box_scores_best(data, model):
    split = data.train

    def knows(model, images, classes):
        pixels = inside_boxes(split.boxes, (24, 24)).float()
        return torch.nn.functional.avg_pool2d(pixels, 4)

    scores = localization_scores(model, split, data.normalize, {"truth": knows}, batch_size=60)
    assert scores["truth"]["inside"] > 0.75 and scores["truth"]["pointing_game"] == 1.0
