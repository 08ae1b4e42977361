import pytest
import torch
from sklearn.datasets import load_digits

from vit_helpers.data import Batches, Split, load, photos, random_affine, split_rows


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_digits_are_scikit_learns_and_none_is_lost(digits):
    parts = (digits.train, digits.validation, digits.test)
    images = torch.cat([part.images for part in parts])
    raw = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    assert images.shape == (1797, 1, 8, 8)
    assert images.min() == 0 and images.max() == 1
    ours, theirs = (x.flatten(1).unique(dim=0, return_counts=True) for x in (images, raw))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_parts_share_no_picture(digits):
    train, test = (digits.train.images.flatten(1), digits.test.images.flatten(1))
    assert torch.cdist(test, train).min() > 0


def test_splits_never_move():
    torch.manual_seed(1)
    first = [rows[:4].tolist() for rows in split_rows(1797, 360, 180)]
    torch.manual_seed(2)
    assert [rows[:4].tolist() for rows in split_rows(1797, 360, 180)] == first
    assert [len(rows) for rows in split_rows(1797, 360, 180)] == [360, 180, 1257]


def test_mean_and_std_are_of_the_training_part(digits):
    normal = digits.normalize(digits.train.images)
    assert normal.mean().item() == pytest.approx(0, abs=1e-5)
    assert normal.std().item() == pytest.approx(1, abs=1e-5)


def test_batches_show_every_image_once_with_its_label():
    split = Split(torch.arange(10.0).view(10, 1, 1, 1), torch.arange(10))
    for shuffle in (False, True):
        batches = Batches(split, 4, shuffle=shuffle)
        seen = list(batches)
        assert len(batches) == len(seen) == 3
        assert [len(labels) for _, labels in seen] == [4, 4, 2]
        assert all(torch.equal(images.flatten(), labels.float()) for images, labels in seen)
        assert sorted(torch.cat([labels for _, labels in seen]).tolist()) == list(range(10))


def test_shuffling_follows_the_seed(digits):
    def order():
        return torch.cat([labels for _, labels in digits.batches("train", 100, shuffle=True)])

    torch.manual_seed(5)
    first, second = order(), order()
    torch.manual_seed(5)
    assert torch.equal(order(), first)
    assert not torch.equal(first, second)


def test_augmentation_comes_before_normalisation(digits):
    seen = []
    batches = digits.batches("train", 64, augment=lambda images: seen.append(images) or images)
    normal, _ = next(iter(batches))
    assert torch.equal(normal, digits.normalize(seen[0]))
    assert seen[0].min() == 0


def test_no_turn_no_shift_is_the_same_picture():
    images = torch.rand(3, 2, 7, 9)
    assert torch.allclose(random_affine(images, degrees=0, scale=0, shift=0), images, atol=1e-5)


def test_a_turn_keeps_the_middle_and_moves_the_rest():
    images = torch.zeros(50, 1, 9, 9)
    images[:, :, 4, 4] = 1.0
    turned = random_affine(images, degrees=90, scale=0, shift=0)
    assert torch.allclose(turned[:, :, 4, 4], torch.ones(50, 1), atol=1e-4)
    bar = torch.zeros(50, 1, 5, 9)
    bar[:, :, 2, :] = 1.0
    assert (random_affine(bar, degrees=90, scale=0, shift=0).flatten(1) - bar.flatten(1)).abs().sum(1).median() > 1


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


def test_photos_are_real_and_from_0_to_1():
    pictures = photos()
    assert set(pictures) == {"china", "flower"}
    for picture in pictures.values():
        assert picture.shape == (3, 427, 640)
        assert picture.min() >= 0 and 0.9 < picture.max() <= 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: load("mnist"), "unknown data 'mnist', known: digits"),
        (lambda: load("digits").batches("dev", 8), "unknown part 'dev', known: train, validation, test"),
        (lambda: load("digits").batches("test", 0), "at least 1 image, got batch_size=0"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
