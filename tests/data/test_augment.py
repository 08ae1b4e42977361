"""Augmentation: what may change, what may not, and labels that follow the pixels."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torchvision.transforms import v2

from vit_helpers.data import load
from vit_helpers.data.augment import (
    augment_photos,
    crop,
    cutmix,
    draw_weights,
    mixup,
    random_affine,
    random_boxes,
    random_crop,
    random_erase,
    random_flip,
)

B, C, H, W, K = 64, 3, 10, 14, 5
ALL = [augment_photos, random_affine, random_crop, random_erase, random_flip]


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.rand(B, C, H, W)


@pytest.fixture
def labels():
    return torch.arange(B) % K


@pytest.mark.parametrize("augment", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_range_and_type_stay_and_the_input_is_not_touched(images, augment, dtype):
    given = images.to(dtype)
    kept = given.clone()
    changed = augment(given)
    assert changed.shape == given.shape and changed.dtype == dtype
    assert changed.min() >= 0 and changed.max() <= 1
    assert torch.equal(given, kept)


@pytest.mark.parametrize("augment", ALL)
def test_each_image_changes_by_its_own_amount_and_a_seed_decides(images, augment):
    same = images[:1].expand(B, C, H, W)
    torch.manual_seed(1)
    changed = augment(same)
    assert len(torch.unique(changed.flatten(1), dim=0)) > 1
    torch.manual_seed(1)
    assert torch.equal(augment(same), changed)


def test_a_flip_is_a_mirror_image_half_of_the_time(images):
    flipped = random_flip(images)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    assert (mirrored | (flipped == images).flatten(1).all(1)).all()
    assert 0.25 < mirrored.float().mean() < 0.75


def test_a_crop_is_a_window_of_the_padded_image(images):
    moved = random_crop(images, padding=2)
    padded = torch.nn.functional.pad(images, [2] * 4)
    windows = padded.unfold(2, H, 1).unfold(3, W, 1)  # (B, C, 5, 5, H, W)
    found = (windows == moved[:, :, None, None]).flatten(4).all(4).all(1)  # (B, 5, 5)
    assert found.flatten(1).any(1).all()
    assert found.any(0).sum() > 10  # many of the 25 places
    assert torch.equal(random_crop(images, padding=0), images)
    with pytest.raises(ValueError, match="-1"):
        random_crop(images, padding=-1)


def test_erasing_paints_a_box_of_the_asked_area(images):
    painted = random_erase(images + 1, share=0.25, fill=-1.0) == -1
    assert (painted.all(1) == painted.any(1)).all()  # the same box in every channel
    assert painted[:, 0].flatten(1).sum(1).unique().tolist() == [5 * 7]
    rows, columns = painted[:, 0].any(2).sum(1), painted[:, 0].any(1).sum(1)
    assert (rows == 5).all() and (columns == 7).all()
    assert (
        torch.equal(random_erase(images, share=0), images)
        and not random_erase(images, share=1).any()
    )
    with pytest.raises(ValueError, match=r"1\.5"):
        random_erase(images, share=1.5)


def assert_equally_often(places, count):
    """Each of `count` places is drawn, equally often but for chance: 5 standard errors."""
    drawn = places.unique(dim=0, return_counts=True)[1]
    expected = len(places) / count
    assert len(drawn) == count
    assert (drawn - expected).abs().max() < 5 * expected**0.5


def corners(mask):
    """(n, 1, H, W), True in a box -> its top left corners (n, 2)"""
    return torch.stack(
        [mask.any(3).float().argmax(2)[:, 0], mask.any(2).float().argmax(2)[:, 0]], dim=1
    )


def test_boxes_are_at_all_places_equally_often():
    boxes = random_boxes(torch.zeros(4000, 1, 5, 7), share=0.25)
    assert_equally_often(corners(boxes), (5 - 2 + 1) * (7 - 4 + 1))


def dots(n, size):
    """Images with one bright pixel in the middle"""
    images = torch.zeros(n, 1, size, size)
    images[:, :, size // 2, size // 2] = 1
    return images


def test_crops_are_at_all_places_equally_often():
    assert_equally_often(corners(random_crop(dots(4000, 9), padding=2) > 0), 5 * 5)


def test_half_of_the_images_are_mirrored():
    n = 4000
    one_sided = torch.tensor([1.0, 0.0]).expand(n, 1, 1, 2)
    mirrored = random_flip(one_sided)[:, 0, 0, 1].sum()
    assert abs(mirrored - n / 2) < 6 * (n / 4) ** 0.5  # standard errors


def test_a_quarter_of_photos_lose_a_box():
    n = 500
    erased = (augment_photos(torch.ones(n, 1, 8, 8)) == 0).flatten(1).any(1).sum()
    assert abs(erased - n / 4) < 6 * (n * 3 / 16) ** 0.5  # standard errors


def test_photos_show_at_least_35_percent_of_their_area(monkeypatch):
    """Of a photo whose colors are places, the range of each color tells what is shown"""
    for change in ("ColorJitter", "RandomErasing"):
        monkeypatch.setattr(v2, change, lambda **options: torch.nn.Identity())
    size, n = 32, 400
    y, x = torch.meshgrid(*[torch.arange(size) / (size - 1)] * 2, indexing="ij")
    shown = augment_photos(torch.stack([x, y, x]).expand(n, 3, size, size))
    sides = (shown.amax((2, 3)) - shown.amin((2, 3))) * (size - 1) + 1  # in pixels
    area = sides[:, 0] * sides[:, 1] / size**2
    assert 0.33 < area.min() < 0.4 and area.max() > 0.9  # sides are rounded to pixels


@pytest.mark.parametrize(("size", "shift"), [(8, 1), (16, 1), (32, 2), (64, 4)])
def test_photos_are_moved_by_up_to_a_sixteenth(size, shift):
    moved = corners(crop(dots(1000, size)) > 0) - size // 2
    assert moved.amin(0).tolist() == [-shift] * 2 and moved.amax(0).tolist() == [shift] * 2


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_weights_of_a_mixture_have_mean_and_variance_of_beta(alpha):
    n, variance = 4000, 1 / (8 * alpha + 4)
    weights = draw_weights(torch.zeros(n, 1, 1, 1), alpha)
    squares = (weights - 0.5).square()
    assert abs(weights.mean() - 0.5) < 6 * (variance / n) ** 0.5  # standard errors
    assert abs(squares.mean() - variance) < 6 * ((variance / 4 - variance**2) / n) ** 0.5


def test_mixup_mixes_labels_as_it_mixes_pixels(labels):
    # channel = label
    images = torch.nn.functional.one_hot(labels, K).float()[:, :, None, None].expand(B, K, H, W)
    mixed, soft = mixup(images, labels, K, alpha=1.0)
    assert soft.shape == (B, K) and torch.allclose(soft.sum(1), torch.ones(B))
    assert torch.allclose(mixed[:, :, 0, 0], soft, atol=1e-6)
    assert len(soft.max(1).values.unique()) > 10  # a share for each image


def test_cutmix_labels_share_by_area(labels):
    images = torch.nn.functional.one_hot(labels, K).float()[:, :, None, None].expand(B, K, H, W)
    for _ in range(5):
        mixed, soft = cutmix(images, labels, K)
        assert torch.allclose(mixed.mean((2, 3)), soft, atol=1e-6)
        assert torch.allclose(soft.sum(1), torch.ones(B))
        assert ((mixed == 0) | (mixed == 1)).all()  # cut, not blended


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixing_by_a_small_alpha_leaves_most_as_it_was(images, labels, mix):
    mixed, soft = mix(images, labels, K, alpha=0.01)
    assert mixed.shape == images.shape and soft.dtype == images.dtype
    assert soft.max(1).values.mean() > 0.9
    with pytest.raises(ValueError, match=r"0\.01, got 0"):
        mix(images, labels, K, alpha=0)


@pytest.mark.parametrize(
    "change",
    [
        random_affine,
        partial(mixup, labels=torch.arange(4), num_classes=4),
        partial(cutmix, labels=torch.arange(4), num_classes=4),
    ],
    ids=["random_affine", "mixup", "cutmix"],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_what_computes_new_pixels_refuses_integers(change, dtype):
    with pytest.raises(TypeError, match=f"got {dtype}: scale them first"):
        change(torch.ones(4, 3, 8, 8, dtype=dtype))


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_no_turn_no_shift_is_the_same_picture():
    images = torch.rand(3, 2, 7, 9)
    assert torch.allclose(random_affine(images, degrees=0, scale=0, shift=0), images, atol=1e-5)


def turns(monkeypatch, H, W, n=500, **amounts):
    """The matrices of n draws, from offsets in pixels of the new image to those of the old

    (n, 2, 2)
    """
    seen = []
    grid = F.affine_grid
    monkeypatch.setattr(
        F,
        "affine_grid",
        lambda theta, *rest, **words: seen.append(theta) or grid(theta, *rest, **words),
    )
    random_affine(torch.rand(n, 1, H, W), shift=0, **amounts)
    to_pixels = torch.diag(torch.tensor([W / 2, H / 2]))
    return to_pixels @ seen[0][:, :, :2] @ to_pixels.inverse()


def test_a_turn_is_a_turn_in_pixels_on_oblong_images_too(monkeypatch):
    matrices = turns(monkeypatch, 9, 21, degrees=10, scale=0)
    assert torch.allclose(matrices @ matrices.mT, torch.eye(2).expand(500, 2, 2), atol=1e-5)
    assert torch.allclose(torch.linalg.det(matrices), torch.ones(500), atol=1e-5)
    angles = torch.rad2deg(torch.atan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    assert -10 <= angles.min() < -9 and 9 < angles.max() <= 10


def test_a_change_of_size_is_the_same_along_both_axes(monkeypatch):
    matrices = turns(monkeypatch, 9, 21, degrees=0, scale=0.1)
    sizes = 1 / matrices[:, 0, 0]
    assert torch.allclose(matrices, torch.eye(2) / sizes[:, None, None], atol=1e-6)
    assert 0.9 <= sizes.min() < 0.91 and 1.09 < sizes.max() <= 1.1


def test_augmented_images_stay_sharp_and_from_0_to_1(digits):
    images = digits.train.images
    augmented = random_affine(images)
    assert augmented.min() == 0 and augmented.max() == 1
    assert augmented.std() > 0.9 * images.std()  # bilinear sampling would lose more
    assert random_affine(images.double()).dtype == torch.float64


def test_a_shift_is_measured_in_pixels():
    images = torch.zeros(200, 1, 11, 21)
    images[:, :, 5, 10] = 1.0
    shifted = random_affine(images, degrees=0, scale=0, shift=2)
    y = (shifted.sum((1, 3)) * torch.arange(11.0)).sum(1) / shifted.sum((1, 2, 3))
    x = (shifted.sum((1, 2)) * torch.arange(21.0)).sum(1) / shifted.sum((1, 2, 3))
    for moved in (y - 5, x - 10):
        assert 1.5 < moved.abs().max() < 2.5


def test_every_image_moves_by_its_own_amount(digits):
    same = digits.test.images[:1].expand(20, -1, -1, -1)
    assert len(random_affine(same).flatten(1).unique(dim=0)) == 20
