import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from vit_helpers.data import Batches, Split, load, photos, random_affine, split_rows, subset
from vit_helpers.data.digits import find_digits

FIRST_ROWS = [[362, 1568, 1440, 1761], [1748, 1500, 644, 170], [570, 1302, 297, 1575]]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_digits_are_scikit_learns_and_none_is_lost(digits):
    splits = (digits.train, digits.validation, digits.test)
    images = torch.cat([split.images for split in splits])
    raw = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    assert images.shape == (1797, 1, 8, 8)
    assert images.min() == 0 and images.max() == 1
    labels = torch.cat([split.labels for split in splits])
    distance = torch.cdist(images.flatten(1), raw.flatten(1))
    assert not distance.min(1).values.any() and not distance.min(0).values.any()
    # each picture kept its label
    assert labels.tolist() == load_digits().target[distance.argmin(1)].tolist()


def test_splits_share_no_image(digits):
    train, test = (digits.train.images.flatten(1), digits.test.images.flatten(1))
    assert torch.cdist(test, train).min() > 0


def test_splits_never_move():
    torch.manual_seed(1)
    first = [rows[:4].tolist() for rows in split_rows(1797, 360, 180)]
    torch.manual_seed(2)
    assert [rows[:4].tolist() for rows in split_rows(1797, 360, 180)] == first == FIRST_ROWS
    assert [len(rows) for rows in split_rows(1797, 360, 180)] == [360, 180, 1257]


def test_mean_and_std_are_of_the_training_split(digits):
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


def test_augmentation_comes_before_normalization(digits):
    seen = []
    batches = digits.batches("train", 64, augment=lambda images: seen.append(images) or images)
    normal, _ = next(iter(batches))
    assert torch.equal(normal, digits.normalize(seen[0]))
    assert seen[0].min() == 0


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


def test_photos_are_real_and_from_0_to_1():
    pictures = photos()
    assert set(pictures) == {"china", "flower"}
    for picture in pictures.values():
        assert picture.shape == (3, 427, 640)
        assert picture.min() >= 0 and 0.9 < picture.max() <= 1
    blue_sky = pictures["china"][:, :100].mean((1, 2))
    assert blue_sky[2] > blue_sky[0]  # upright, and the channels are red, green, blue
    red_flower = pictures["flower"][:, 150:250, 250:350].mean((1, 2))
    assert red_flower[0] > red_flower[2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: load("mnist"), "unknown data 'mnist', known: digits"),
        (
            lambda: load("digits").batches("dev", 8),
            "unknown split 'dev', known: train, validation, test",
        ),
        (
            lambda: random_affine(torch.zeros(1, 1, 8, 8), scale=1.0),
            "scale must be at least 0 and below 1, got 1.0",
        ),
        (
            lambda: load("digits").normalize(torch.zeros(1, 3, 8, 8)),
            "mean and std are for 1 channels, but the images",
        ),
        (lambda: load("digits").batches("test", 0), "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Some classes alone


def test_some_classes_alone_with_labels_counted_anew(digits):
    few = digits.filter_classes("7", "3")
    assert few.class_names == ("7", "3") and (few.mean, few.std) == (digits.mean, digits.std)
    for split, whole in (
        (few.train, digits.train),
        (few.validation, digits.validation),
        (few.test, digits.test),
    ):
        assert torch.equal(split.images, whole.images[(whole.labels == 7) | (whole.labels == 3)])
        assert torch.equal(
            split.labels, (whole.labels[(whole.labels == 7) | (whole.labels == 3)] == 3).long()
        )
    assert digits.train.labels.max() == 9  # the whole is as it was


def test_boxes_stay_with_their_images():
    data = load("scattered_digits", n=200)
    few = data.filter_classes(*"789")
    kept = data.train.labels >= 7
    assert torch.equal(few.train.boxes, data.train.boxes[kept]) and torch.equal(
        few.train.images, data.train.images[kept]
    )


def drawn_rows(digits, n, clutter, generator):
    """The rows of the digits, from random numbers drawn in the order in which `scatter` does"""
    limits = [digits, 7, 7, 19, 19] * clutter + [digits, 13, 13]
    draws = [[int(torch.randint(x, (), generator=generator)) for x in limits] for _ in range(n)]
    return [numbers[-3] for numbers in draws]


@pytest.mark.parametrize("clutter", [0, 4, 30])
def test_the_digit_of_every_scattered_image_is_found(digits, clutter):
    scattered = load("scattered_digits", n=200, clutter=clutter, seed=1)
    for number, name in enumerate(("train", "validation", "test")):
        split, plain = scattered.get_split(name), digits.get_split(name)
        rows = drawn_rows(
            len(plain), len(split), clutter, torch.Generator().manual_seed(3 + number)
        )
        assert find_digits(split, plain).tolist() == rows
        assert torch.equal(plain.labels[rows], split.labels)


def test_scattered_images_of_other_digits_are_an_error(digits):
    test = load("scattered_digits", n=20).test
    with pytest.raises(ValueError, match="image 0 was made from none of the 3 digits"):
        find_digits(test, subset(digits.train, slice(3)))
    with pytest.raises(ValueError, match="with their bounding boxes"):
        find_digits(digits.test, digits.test)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("7", "x"), "unknown class of digits 'x', known: 0, 1"),
        (("7", "7"), "each only once"),
        ((), "each only once"),
    ],
)
def test_classes_that_are_not_there_are_named(digits, names, says):
    with pytest.raises(ValueError, match=says):
        digits.filter_classes(*names)
