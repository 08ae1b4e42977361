"""Digits, scattered digits and photos: scikit-learn's, real, and where they are said to be."""

import pytest
import torch
from sklearn.datasets import load_digits

from vit_helpers.data import load, photos, subset
from vit_helpers.data.digits import find_digits, scatter
from vit_helpers.data.splits import Split


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
    with pytest.raises(ValueError, match=r"image 0 .* 3 digits"):
        find_digits(test, subset(digits.train, slice(3)))
    with pytest.raises(ValueError, match="boxes"):
        find_digits(digits.test, digits.test)


def test_scattered_digits_hold_a_digit_where_they_say():
    plain = load("digits")
    data = load("scattered_digits", n=40, clutter=0)
    assert data.image_size == (24, 24) and data.in_chans == 1
    assert [len(split) for split in (data.train, data.validation, data.test)] == [40, 4, 8]
    for split, source in ((data.train, plain.train), (data.test, plain.test)):
        for image, label, (left, top, width, height) in zip(
            split.images, split.labels, split.boxes.tolist(), strict=True
        ):
            assert (width, height) == (12, 12)
            spot = image[:, top : top + height, left : left + width]
            assert image.count_nonzero() == spot.count_nonzero()  # nothing outside
            same_class = source.images[source.labels == label]
            large = torch.nn.functional.interpolate(
                same_class, size=12, mode="bicubic", antialias=True
            ).clamp(0, 1)
            assert (large - spot).abs().amax((1, 2, 3)).min() < 1e-6


def test_scattered_digits_are_strewn_everywhere_among_clutter():
    data = load("scattered_digits", n=300)
    left, top = data.train.boxes[:, 0], data.train.boxes[:, 1]
    assert left.min() == top.min() == 0 and left.max() == top.max() == 12
    bare = load("scattered_digits", n=300, clutter=0)
    assert data.train.images.sum() > 1.2 * bare.train.images.sum()
    assert len(data.train.labels.unique()) == 10


def test_scattered_digits_are_at_all_places_equally_often():
    boxes = load("scattered_digits", n=1300, clutter=0).train.boxes
    for axis in (0, 1):
        drawn = boxes[:, axis].bincount(minlength=13)
        assert len(drawn) == 13 and (drawn - 100).abs().max() < 5 * 10  # standard errors


def assert_equally_often(numbers, count):
    """Each of 0 .. count - 1 is drawn, equally often but for chance: 6 standard errors"""
    drawn, expected = numbers.bincount(minlength=count), len(numbers) / count
    assert len(drawn) == count and (drawn - expected).abs().max() < 6 * expected**0.5


def test_every_digit_is_scattered_equally_often():
    plain = Split(torch.rand(20, 1, 8, 8), torch.arange(20))
    generator = torch.Generator().manual_seed(0)
    assert_equally_often(scatter(plain, 1000, 12, 12, 0, generator).labels, 20)


def test_clutter_is_at_all_places_equally_often():
    """Of a black and a white digit, a piece of the white one, beside the black one"""
    plain = Split(
        torch.tensor([0.0, 1.0]).expand(8, 8, 2).permute(2, 0, 1)[:, None], torch.arange(2)
    )
    scattered = scatter(plain, 3000, 24, 12, 1, torch.Generator().manual_seed(0))
    images = scattered.images[scattered.labels == 0, 0]
    images = images[images.flatten(1).any(1)]
    for axis in (1, 2):
        assert_equally_often(images.any(axis).float().argmax(1), 24 - 6 + 1)


def test_scattered_digits_come_the_same_from_the_same_seed_and_more_begin_alike():
    one, more, other = (
        load("scattered_digits", **words) for words in ({"n": 20}, {"n": 50}, {"n": 20, "seed": 1})
    )
    torch.manual_seed(9)
    again = load("scattered_digits", n=20)
    assert torch.equal(one.train.images, again.train.images) and torch.equal(
        one.test.boxes, again.test.boxes
    )
    assert torch.equal(one.train.images, more.train.images[:20]) and torch.equal(
        one.train.labels, more.train.labels[:20]
    )
    assert not torch.equal(one.train.images, other.train.images)
    assert not torch.equal(one.train.labels[:2], one.validation.labels[:2]) or not torch.equal(
        one.train.images[:2], one.validation.images[:2]
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"digit_size": 30}, "30 pixels does not fit on a canvas of 24"),
        ({"n": 5}, "got 5"),
        ({"clutter": -1}, "got -1"),
    ],
)
def test_scattered_digits_that_cannot_be(words, says):
    with pytest.raises(ValueError, match=says):
        load("scattered_digits", **words)
