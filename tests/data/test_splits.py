"""Splits and batches: no image in two of them, none lost, and copies that keep everything."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch

from vit_helpers.data import Batches, Data, Split, load, random_affine, split_rows, subset
from vit_helpers.data.augment import mixup
from vit_helpers.data.downloads import DownloadError
from vit_helpers.data.shards import BrokenShardError, write_shards
from vit_helpers.data.splits import SPLITS
from vit_helpers.data.stream import Stream

FIRST_ROWS = [[362, 1568, 1440, 1761], [1748, 1500, 644, 170], [570, 1302, 297, 1575]]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integers_are_not_normalized(digits, dtype):
    with pytest.raises(TypeError, match=f"got {dtype}: scale them first"):
        digits.normalize(torch.ones(2, 1, 8, 8, dtype=dtype))


def color_split(labels, channel=0, pixel=0.5):
    """Noise in three channels, with a pixel of one channel that is given"""
    images = torch.rand(len(labels), 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images[0, channel, 0, 0] = pixel
    return Split(images, torch.tensor(labels))


@pytest.mark.parametrize("pixel", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("channel", [0, 1, 2])
def test_pixels_that_are_not_finite_are_named(channel, pixel):
    split = color_split([0, 1], channel, pixel)
    with pytest.raises(ValueError, match=r"^noise: .* is not finite \(std .*nan.* NaN or infinite"):
        Data.from_splits("noise", split, split, split, "ab")


@pytest.mark.parametrize("label", [-1, 2, 9])
@pytest.mark.parametrize("place", range(3))
def test_a_label_of_no_class_is_named(place, label):
    splits = [color_split([0, 1])] * 3
    splits[place] = color_split([0, label])
    says = f"noise: the {SPLITS[place]} split has the label {label}, expected 0 to 1 for 2 classes"
    with pytest.raises(ValueError, match=says):
        Data.from_splits("noise", *splits, "ab")


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


def test_a_split_is_images_labels_and_boxes_where_they_are_known():
    plain, boxed = load("digits").test, load("scattered_digits", n=20).test
    assert (
        plain.boxes is None and boxed.boxes.shape == (4, 4) and (len(plain), len(boxed)) == (360, 4)
    )
    with pytest.raises(TypeError, match="unpack"):
        _images, _labels = boxed
    assert boxed.images is boxed.pixels  # floats are not copied
    for rows in (torch.tensor([2, 0]), torch.tensor([False, True, True, False]), slice(3)):
        some = subset(boxed, rows)
        assert all(
            torch.equal(getattr(some, name), getattr(boxed, name)[rows])
            for name in ("pixels", "images", "labels", "boxes")
        )
    assert torch.equal(replace(boxed, labels=boxed.labels + 1).boxes, boxed.boxes)
    with pytest.raises(FrozenInstanceError):
        boxed.boxes = None


def flatten(thing):
    """What an object holds, with tensors as lists, so that two can be compared"""
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: flatten(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [flatten(value) for value in thing]
    if callable(thing):
        return getattr(thing, "__name__", type(thing).__name__)
    return flatten(vars(thing)) if hasattr(thing, "__dict__") else thing


PUBLIC = {  # from scattered digits and the folder of their shards
    "Split": lambda data, shards: data.train,
    "Split without boxes": lambda data, shards: replace(data.test, boxes=None),
    "Data": lambda data, shards: data,
    "Batches": lambda data, shards: data.batches(
        "train", 4, shuffle=True, augment=random_affine, mix=partial(mixup, num_classes=10)
    ),
    "Shards": lambda data, shards: load(f"shards:{shards}"),
    "Stream": lambda data, shards: Stream(shards, 4, augment=random_affine),
}


@pytest.mark.parametrize("make", PUBLIC.values(), ids=PUBLIC)
@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]
)
def test_public_objects_can_be_copied_and_pickled(make, clone, tmp_path):
    data = load("scattered_digits", n=20)
    thing = make(data, write_shards(data, tmp_path / "shards", 8))
    other = clone(thing)
    assert type(other) is type(thing) and flatten(other) == flatten(thing)
    if hasattr(thing, "steps"):  # batches
        torch.manual_seed(0)
        first = flatten(list(thing))
        torch.manual_seed(0)
        assert flatten(list(other)) == first


@pytest.mark.parametrize("kind", [DownloadError, BrokenShardError])
def test_errors_can_be_pickled(kind):
    other = pickle.loads(pickle.dumps(kind("train-00001.tar is broken")))
    assert type(other) is kind and str(other) == "train-00001.tar is broken"
