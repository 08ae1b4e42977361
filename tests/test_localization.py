import pytest
import torch

from vit_helpers.data import load
from vit_helpers.inspection.localization import METHODS, fraction_inside, inside_boxes, localization_scores, pointing_game
from vit_helpers.vit import ViT, ViTConfig


def test_inside_are_the_pixels_of_the_place():
    mask = inside_boxes(torch.tensor([[2, 4, 8, 4]]), (12, 16))
    assert mask.shape == (1, 12, 16) and mask.sum() == 32 and mask[0, 4:8, 2:10].all()


def test_a_patch_half_inside_counts_half():
    maps = torch.zeros(1, 3, 4)
    maps[0, 1, 0] = 1
    assert fraction_inside(maps, torch.tensor([[2, 4, 8, 4]]), 4).item() == 0.5


def test_mass_inside():
    place = torch.tensor([[4, 4, 8, 4], [4, 4, 8, 4]])
    maps = torch.zeros(2, 3, 4)
    maps[0, 1, 1], maps[0, 0, 0], maps[0, 2, 2] = 3, 1, -5
    mass = fraction_inside(maps, place, 4)
    assert mass[0] == 0.75 and mass[1] == pytest.approx(2 / 12)  # an empty map is as good as an even one


def test_peak_inside():
    maps = torch.zeros(2, 3, 4)
    maps[0, 1, 2], maps[1, 2, 3] = 1, 1
    assert pointing_game(maps, torch.tensor([[8, 4, 4, 4]] * 2), 4).tolist() == [1, 0]
    two = torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert pointing_game(two, torch.tensor([[0, 0, 4, 8]]), 4).item() == 0.5


def test_an_even_map_has_the_place_s_share_of_the_picture():
    part = load("scattered_digits", n=50).train
    mass = fraction_inside(torch.ones(50, 6, 6), part.boxes, 4)
    assert torch.allclose(mass, torch.tensor(12 * 12 / 24**2))


# Methods


@pytest.fixture(scope="module")
def data():
    return load("scattered_digits", n=60)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=24, in_chans=1, num_classes=10))
    torch.nn.init.normal_(model.head.weight)
    return model


def test_every_method_gives_a_map_for_every_picture(data, model):
    for name, method in METHODS.items():
        maps = method(model, data.normalize(data.train.images[:7]), data.train.labels[:7])
        assert maps.shape == (7, 6, 6) and maps.isfinite().all() and not maps.requires_grad, name


def test_grades_are_means_over_all_pictures(data, model):
    grades = localization_scores(model, data.train, data.normalize, batch_size=25)
    assert list(grades) == list(METHODS)
    assert grades["even map"] == {"mass": pytest.approx(0.25), "hits": pytest.approx(0.25, abs=0.01)}
    for name, method in METHODS.items():
        maps = method(model, data.normalize(data.train.images), data.train.labels)
        assert grades[name]["mass"] == pytest.approx(fraction_inside(maps, data.train.boxes, 4).mean().item(), abs=1e-5)


def test_the_middle_map_is_blind_and_good_all_the_same(data, model):
    from vit_helpers.inspection.localization import center_map

    maps = center_map(model, data.train.images, None)
    assert maps.shape == (60, 6, 6) and maps[:, 2:4, 2:4].sum() == maps.sum() == 4 * 60
    many = load("scattered_digits", n=2000).train
    grades = localization_scores(model, many, data.normalize, {"middle map": center_map}, batch_size=500)
    assert grades["middle map"]["mass"] == pytest.approx(0.65, abs=0.03)  # frames begin at 0 to 12: most hold the middle


def test_a_method_that_knows_the_place_is_graded_full(data, model):
    def knows(model, images, classes):
        pixels = inside_boxes(data.train.boxes, (24, 24)).float()
        return torch.nn.functional.avg_pool2d(pixels, 4)

    grades = localization_scores(model, data.train, data.normalize, {"truth": knows}, batch_size=60)
    assert grades["truth"]["mass"] > 0.75 and grades["truth"]["hits"] == 1.0
