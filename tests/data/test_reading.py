"""Image files, many: each opened once, broken ones told together, results in order."""

import sys

import numpy as np
import pytest
from image_files import divide, files_of, spoil

from vit_helpers.data import load, reading
from vit_helpers.data.folders import folder
from vit_helpers.data.reading import map_files
from vit_helpers.data.shards import write_shards, write_shards_of_folder


def test_bad_files_are_told_together_or_left_out(pets, tmp_path):
    paths = spoil(pets, 12)
    for read in (
        lambda **words: folder(pets, 8, **words),
        lambda **words: write_shards_of_folder(pets, tmp_path / "new", 8, **words),
    ):
        with pytest.raises(
            ValueError, match=r"^12 of 100 images cannot be read; remove them, or leave them out w"
        ) as caught:
            read()
        lines = str(caught.value).splitlines()
        assert len(lines) == 12 and lines[-1] == "  and 2 more"
        assert all(f"{path} is damaged" in str(caught.value) for path in paths[:3])
        with pytest.warns(UserWarning, match="12 of 100 images"):
            data = read(skip_broken=True)
    assert data == tmp_path / "new" and load(f"shards:{data}").class_counts == [48, 40]


def test_what_is_left_is_right(pets):
    whole = folder(pets, 6)
    spoil(pets)
    with pytest.warns(UserWarning, match="3 of 100 images"):
        rest = folder(pets, 6, skip_broken=True)
    assert rest.class_counts == [57, 40]
    before, after = files_of(whole), files_of(rest)
    assert all(after[split] <= before[split] for split in before)
    for split in (rest.train, rest.validation, rest.test):
        for pixels, label in zip(split.pixels, split.labels, strict=True):
            assert label == (
                tuple(pixels.flatten().tolist()) in {tuple(noise_of(n)) for n in range(60, 100)}
            )


def noise_of(number):
    return (
        np.random.default_rng(number)
        .integers(0, 256, (6, 6, 3))
        .astype(np.uint8)
        .transpose(2, 0, 1)
        .flatten()
        .tolist()
    )


OPENED, RECORDING = [], []


def record_opened(event, args):
    """Write down each file that Python opens, by whatever means, while `RECORDING` is not empty"""
    if RECORDING and event == "open":
        OPENED.append(args[0])


sys.addaudithook(record_opened)  # there is no way to remove it


@pytest.fixture
def opened():
    """A function that returns how often a call opens each file of a folder: {path: count}"""

    def count(folder, call):
        RECORDING.append(True)
        try:
            call()
        finally:
            RECORDING.clear()
            names = [str(name) for name in OPENED]
            OPENED.clear()
        return {str(path): names.count(str(path)) for path in folder.rglob("*") if path.is_file()}

    yield count
    RECORDING.clear()
    OPENED.clear()


@pytest.mark.parametrize(
    ("layout", "split"), [("classes", "hash"), ("classes", "exact"), ("splits", "hash")]
)
def test_each_image_file_is_opened_once(pets, tmp_path, opened, layout, split):
    path = divide(pets, one="train", two="val", three="test") if layout == "splits" else pets
    ways = {
        "in memory": lambda: load(f"folder:{path}", image_size=8, split=split),
        "as shards": lambda: write_shards_of_folder(path, tmp_path / "new", 8, split=split),
    }
    for way, call in ways.items():
        counts = opened(path, call)
        assert len(counts) == 100 and set(counts.values()) == {1}, way


def test_with_a_cache_each_image_file_is_opened_once(pets, cached, opened):
    for _ in range(2):
        counts = opened(pets, lambda: folder(pets, 6, cache=True))
        assert set(counts.values()) == {1}


def test_more_than_one_reading_is_noticed(pets, opened):
    counts = opened(pets, lambda: [path.read_bytes() for path in 2 * sorted(pets.rglob("*.ppm"))])
    assert set(counts.values()) == {2}


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_rows_are_reordered_in_place(n):
    pixels = np.arange(n * 3).reshape(n, 3)
    for seed in range(10):
        rows = np.random.default_rng(seed).permutation(n)
        wanted = pixels[rows]
        reordered = pixels.copy()
        reading.reorder(reordered, rows.tolist())
        assert np.array_equal(reordered, wanted)
    reading.reorder(pixels, list(range(n)))
    assert np.array_equal(pixels, np.arange(n * 3).reshape(n, 3))


@pytest.mark.parametrize("split", ["hash", "exact"])
def test_images_are_not_copied_when_they_are_divided(pets, split):
    """The pixels of the splits lie one behind the other, as they were read"""
    data = folder(pets, 6, split=split)
    ends = [part.pixels.data_ptr() + part.pixels.nbytes for part in (data.train, data.validation)]
    assert [data.validation.pixels.data_ptr(), data.test.pixels.data_ptr()] == ends


@pytest.mark.parametrize("split", ["hash", "exact"])
def test_shards_of_a_folder_with_broken_files_are_those_of_the_folder(pets, tmp_path, split):
    spoil(pets, 5)
    with pytest.warns(UserWarning, match="5 of 100 images"):
        data = folder(pets, 8, split=split, skip_broken=True)
    with pytest.warns(UserWarning, match="5 of 100 images"):
        path = write_shards_of_folder(pets, tmp_path / "one", 8, split=split, skip_broken=True)
    other = write_shards(data, tmp_path / "two")
    for file in other.glob("*.tar"):
        assert (path / file.name).read_bytes() == file.read_bytes()


def test_results_come_in_order_and_only_a_few_are_ahead():
    started, seen = [], []
    for result in map_files(lambda n: started.append(n) or n * n, list(range(50)), "", threads=3):
        seen.append(result)
        assert len(started) <= len(seen) + 6
    assert seen == [n * n for n in range(50)]

    def fail(n):
        raise (ValueError if n < 2 else KeyError)(n)

    results = map_files(fail, [0, 1, 2], "")
    assert [type(next(results)) for _ in range(2)] == [ValueError] * 2
    with pytest.raises(KeyError):
        next(results)
