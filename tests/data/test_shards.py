import io
import json
import re
import socket
import tarfile
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random

import numpy as np
import pooch
import pytest
import torch
from torch import nn

from vit_helpers.data import Data, Split, load, shards, split_rows, subset
from vit_helpers.data import stream as streams
from vit_helpers.data.folders import folder
from vit_helpers.data.shards import BrokenShardError, write_shards, write_shards_of_folder
from vit_helpers.data.splits import SPLITS
from vit_helpers.data.stream import VERSION, Stream, cut_pieces, draw_from_buffer
from vit_helpers.training import fit
from vit_helpers.training.recipe import Recipe

N, PER_SHARD = 254, 40  # training images; in a shard: six are full, and one holds 14
SHARDS = {"test": 2, "train": 7, "validation": 2}
BATCH, STEPS = 12, 22


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*where):
        raise AssertionError(f"the network was asked for: {where}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def digits():
    return load("digits").filter_classes("3", "7")  # real ones, but few


@pytest.fixture(scope="module")
def written(digits, tmp_path_factory):
    return write_shards(digits, tmp_path_factory.mktemp("shards") / "digits", PER_SHARD)


@pytest.fixture
def broken(written, tmp_path):
    """A copy, to be broken"""
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in written.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def numbers(digits):
    """8-bit pixels of a training image -> its number"""
    pixels = (digits.train.images * 255).round()
    return {tuple(row): number for number, row in enumerate(pixels.flatten(1).int().tolist())}


def raw(images):
    return images * 255


def seen(batches, numbers):
    """The numbers of the training images that the batches hold, in order"""
    return [
        numbers[tuple(row)]
        for images, _ in batches
        for row in images.flatten(1).round().int().tolist()
    ]


# Written


def test_a_shard_is_a_tar_that_reads_at_a_glance(written, digits):
    names = sorted(file.name for file in written.iterdir())
    tests, trains, validations = (
        [f"{split}-{i:05d}.tar" for i in range(n)] for split, n in SHARDS.items()
    )
    assert names == ["index.json", *tests, *trains, *validations]
    with tarfile.open(written / "validation-00000.tar") as tar:
        assert tar.getnames()[:4] == ["000000.png", "000000.cls", "000001.png", "000001.cls"]
        assert (
            tar.extractfile("000001.cls").read() == str(digits.validation.labels[1].item()).encode()
        )
    index = json.loads((written / "index.json").read_text())
    assert [entry["images"] for entry in index["parts"]["train"]] == [40] * 6 + [14]
    assert index["class_names"] == list(digits.class_names) and index["mean"] == list(digits.mean)
    # nothing is left aside
    assert not [file for file in written.parent.iterdir() if file != written]


@pytest.mark.peers
def test_hugging_face_datasets_reads_the_shards(written, numbers, digits, monkeypatch, tmp_path):
    import datasets

    paths = [str(path) for path in sorted(written.glob("train-*.tar"))]
    stream = datasets.load_dataset(
        "webdataset", data_files=paths, split="train", streaming=True, cache_dir=str(tmp_path)
    )
    found = {int(sample["__key__"]): sample for sample in stream}
    assert sorted(found) == list(range(N))
    assert all(sample["cls"] == digits.train.labels[number] for number, sample in found.items())
    assert numbers[tuple(found[7]["png"].tobytes())] == 7


def test_training_images_are_mixed_once_and_for_all(written, tmp_path, digits):
    again = write_shards(digits, tmp_path / "again", PER_SHARD)
    assert all((again / file.name).read_bytes() == file.read_bytes() for file in written.iterdir())
    with tarfile.open(written / "train-00000.tar") as tar:
        keys = [int(name[:6]) for name in tar.getnames()[::2]]
    assert keys != sorted(keys) and max(keys) > 200


def test_nothing_is_written_over(written, digits, tmp_path):
    before = (written / "index.json").read_bytes()
    with pytest.raises(FileExistsError, match="already exists"):
        write_shards(digits, written)
    assert (written / "index.json").read_bytes() == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="file already exists"):
        write_shards(digits, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert len(Stream(write_shards(digits, tmp_path / "empty"), BATCH)) == STEPS


def test_a_write_that_stops_half_way_leaves_nothing(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("pooch.file_hash", lambda path: 1 / 0 if "test" in path.name else "")
    with pytest.raises(ZeroDivisionError):
        write_shards(digits, tmp_path / "new")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("channels", "scale", "says"),
    [
        (2, 1, "1 or 3 channels, got 2"),
        (1, 1.5, "from 0 to 1, got .* to 1.5"),
        (1, float("nan"), "got nan to nan"),
    ],
)
def test_images_that_are_no_8_bit_pngs_are_refused(channels, scale, says, tmp_path):
    images = torch.linspace(0, 1, 4 * channels * 9).view(4, channels, 3, 3)
    split = Split(images * scale, torch.tensor([0, 1, 0, 1]))
    data = Data("odd", split, split, split, ("a", "b"), (0.0,) * channels, (1.0,) * channels)
    with pytest.raises(ValueError, match=says):
        write_shards(data, tmp_path / "odd")
    assert not list(tmp_path.iterdir())


def test_labels_of_no_class_are_refused(digits, tmp_path):
    validation = replace(digits.validation, labels=digits.validation.labels + 1)
    with pytest.raises(ValueError, match="digits: the validation split has the label 2, expected"):
        write_shards(replace(digits, validation=validation), tmp_path / "odd")
    assert not list(tmp_path.iterdir())


def test_whole_numbers_of_numpy_are_whole_numbers(digits, tmp_path):
    assert len(Stream(write_shards(digits, tmp_path / "new", np.int64(40)), BATCH)) == STEPS


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"split": "exakt"}, ValueError, "unknown split 'exakt', known: hash, exact"),
        ({"image_size": 0}, ValueError, "image_size must be at least 1, got 0"),
        ({"image_size": "8"}, TypeError, "image_size must be a whole number, got '8'"),
        ({"image_size": 8.5}, TypeError, "image_size must be a whole number, got 8.5"),
        ({"white": -1}, ValueError, "white must be a number above 0, got -1"),
    ],
)
@pytest.mark.parametrize("load_folder", [folder, partial(write_shards_of_folder, folder="new")])
def test_wrong_options_of_a_folder_are_named_before_it_is_searched(
    load_folder, options, kind, says, tmp_path
):
    with pytest.raises(kind, match=says):
        load_folder(tmp_path / "nowhere", **options)


# Read


def test_pixels_come_back_to_half_a_step_of_8_bits(written, digits):
    stream = Stream(written, BATCH, "validation", buffer_size=0, prepare=lambda images: images)
    images, labels = (torch.cat(values) for values in zip(*stream, strict=True))
    assert images.dtype == torch.float32 and labels.dtype == torch.int64
    assert (images - digits.validation.images).abs().max() <= 1 / 510 + 1e-6
    assert torch.equal(labels, digits.validation.labels)


def test_batches_are_normalized_as_those_in_memory(written, digits):
    stream = Stream(written, 44, "validation", buffer_size=0)
    ((images, _),) = stream
    ((wanted, _),) = digits.batches("validation", 44)
    assert (images - wanted).abs().max() <= 1 / 510 / min(digits.std) + 1e-5
    assert (stream.data.class_names, stream.data.image_size, stream.data.in_chans) == (
        digits.class_names,
        (8, 8),
        1,
    )


def test_color_photos_of_any_shape_come_back(tmp_path):
    images = torch.randint(256, (5, 3, 7, 12)) / 255
    split = Split(images, torch.tensor([0, 1, 1, 0, 1]))
    stream = Stream(
        write_shards(Data.from_splits("photos", split, split, split, "ab"), tmp_path / "x", 2),
        5,
        "test",
        buffer_size=0,
    )
    ((found, labels),) = stream
    assert torch.allclose(found, stream.data.normalize(images)) and torch.equal(
        labels, split.labels
    )


@pytest.mark.parametrize("per_shard", [40, 100, 1000])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_rank_yields_as_many_batches_and_every_image_is_seen_once(
    digits, numbers, tmp_path, per_shard, world
):
    folder = write_shards(digits, tmp_path / "digits", per_shard)
    streams = [
        Stream(folder, BATCH, prepare=raw, rank=rank, world_size=world) for rank in range(world)
    ]
    for _ in range(2):
        ranks = [list(stream) for stream in streams]
        assert (
            [len(batches) for batches in ranks]
            == [STEPS] * world
            == [len(stream) for stream in streams]
        )
        sizes = [[len(labels) for _, labels in batches] for batches in ranks]
        assert all(max(some) <= -(-BATCH // world) and max(some) - min(some) <= 1 for some in sizes)
        assert sorted(number for batches in ranks for number in seen(batches, numbers)) == list(
            range(N)
        )
        for batches in ranks:
            labels = torch.cat([labels for _, labels in batches])
            assert torch.equal(labels, digits.train.labels[seen(batches, numbers)])


def test_more_ranks_than_images_in_a_batch_give_batches_of_none(written):
    streams = [Stream(written, 2, "validation", rank=rank, world_size=7) for rank in range(7)]
    ranks = [list(stream) for stream in streams]
    assert [len(batches) for batches in ranks] == [22] * 7
    assert sum(len(labels) for batches in ranks for _, labels in batches) == 44
    assert all(images.shape[1:] == (1, 8, 8) for batches in ranks for images, _ in batches)


def test_a_rank_opens_its_own_shards_and_those_at_its_ends(written, monkeypatch):
    opened, right = Counter(), streams.find_damage

    def counted(path, entry, thorough):
        opened.update([path.name] * thorough)
        return right(path, entry, thorough)

    monkeypatch.setattr(streams, "find_damage", counted)
    for rank in range(3):
        list(Stream(written, BATCH, rank=rank, world_size=3))
    assert sum(opened.values()) == 7 + 2  # two cuts between three ranks, each through a shard


def test_pieces_lie_end_to_end():
    counts, order = [4, 1, 5, 2], [2, 0, 3, 1]
    laid = [(shard, at) for shard in order for at in range(counts[shard])]
    for first in range(13):
        for last in range(first, 13):
            found = [
                (shard, at)
                for shard, start, stop in cut_pieces(counts, order, first, last)
                for at in range(start, stop)
            ]
            assert found == laid[first:last]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("buffer_size", [0, 1000])
@pytest.mark.parametrize("world", [1, 2])
def test_a_split_without_images_has_no_batches_as_in_memory(
    digits, tmp_path, split, buffer_size, world
):
    data = replace(digits, **{split: subset(digits.get_split(split), slice(0))})
    folder = write_shards(data, tmp_path / "digits")
    words = {"buffer_size": buffer_size, "rank": world - 1, "world_size": world}
    stream = Stream(folder, BATCH, split, **words)
    assert list(data.batches(split, BATCH)) == list(stream) == list(stream) == []
    stream.load_state_dict(stored(stream.state_dict()))
    assert list(stream) == [] and len(stream) == 0


def test_a_buffer_mixes_what_is_near_and_loses_nothing():
    orders = [list(draw_from_buffer(iter(range(9)), 4, Random(f"{seed}"))) for seed in range(500)]
    assert all(sorted(order) == list(range(9)) for order in orders)
    first = Counter(order[0] for order in orders)
    assert set(first) == {0, 1, 2, 3} and min(first.values()) > 80  # 125 each is expected
    assert {order[-1] for order in orders} == set(range(9))
    assert list(draw_from_buffer(iter("ab"), 1000, Random("1"))) in (["a", "b"], ["b", "a"])


def test_the_order_of_a_version_stays():
    order = draw_from_buffer(iter(range(9)), 4, Random("0 1 0"))
    assert list(order) == [1, 4, 0, 5, 7, 8, 2, 6, 3], (
        "a change of the order needs a new VERSION, or states resume wrongly"
    )
    assert VERSION == 2


def test_the_order_is_new_each_pass_and_follows_the_seed(written, numbers):
    def orders(seed):
        stream = Stream(written, BATCH, seed=seed, prepare=raw)
        return [seen(stream, numbers) for _ in range(2)]

    first, second = orders(0)
    assert first != second
    assert orders(0) == [first, second]
    assert orders(1)[0] not in (first, second)


def test_a_look_at_one_batch_takes_nothing_from_the_next_pass(written, numbers):
    stream = Stream(written, BATCH, prepare=raw)
    next(iter(stream))
    assert sorted(seen(stream, numbers)) == list(range(N))


def test_without_shuffling_images_come_as_they_were_written(written, numbers):
    stream = Stream(written, BATCH, buffer_size=0, prepare=raw)
    names = []
    for path in sorted(written.glob("train-*.tar")):
        with tarfile.open(path) as tar:
            names += tar.getnames()[::2]
    assert seen(stream, numbers) == [int(name[:6]) for name in names]


def test_augmentation_comes_first_and_mixing_last(written):
    def augment(images):
        assert images.min() >= 0 and images.max() <= 1
        return images * 0

    stream = Stream(
        written, BATCH, augment=augment, mix=lambda images, labels: (images + 1, labels)
    )
    images, _ = next(iter(stream))
    assert torch.allclose(images, stream.data.normalize(torch.zeros(1, 1, 8, 8)) + 1)


def test_ranks_draw_from_their_buffers_independently(digits, tmp_path):
    """Of one shard, whose first half is rank 0's, and the second half rank 1's"""
    half = N // 2
    folder = write_shards(digits, tmp_path / "digits", N)
    written_at = {number: row for row, number in enumerate(split_rows(N)[0].tolist())}
    pixels = (digits.train.images * 255).round().flatten(1).int().tolist()
    numbers = {tuple(image): number for number, image in enumerate(pixels)}
    patterns = []
    for rank in range(2):
        stream = Stream(folder, BATCH, rank=rank, world_size=2, prepare=raw)
        patterns.append([written_at[n] - rank * half for n in seen(stream, numbers)])
    assert [sorted(pattern) for pattern in patterns] == [[*range(half)]] * 2
    same = sum(a == b for a, b in zip(*patterns, strict=True))
    assert same < 10  # by chance, one


def test_memory_holds_a_buffer_and_not_the_split(digits, tmp_path, monkeypatch):
    folder = write_shards(digits, tmp_path / "digits", 20)
    alive = most = 0
    right = streams.read_shard

    def counted(*piece):
        nonlocal alive, most
        for sample in right(*piece):
            alive += 1
            most = max(most, alive)
            yield sample

    monkeypatch.setattr(streams, "read_shard", counted)
    for _, labels in Stream(folder, BATCH, buffer_size=100):
        alive -= len(labels)
    # the buffer, a batch, and the one to be swapped in
    assert alive == 0 and 100 <= most <= 100 + BATCH + 1


# Going on


@pytest.mark.parametrize("buffer_size", [0, 30, 1000])
@pytest.mark.parametrize("world", [1, 2])
def test_going_on_in_the_middle_loses_no_image_and_shows_none_twice(
    written, numbers, buffer_size, world
):
    before, after = [], []
    for rank in range(world):
        words = {"buffer_size": buffer_size, "rank": rank, "world_size": world, "prepare": raw}
        whole = Stream(written, BATCH, **words)
        list(whole)  # so that the second pass is cut, not the first
        passing = iter(whole)
        head = [next(passing) for _ in range(5)]
        state = whole.state_dict()
        tail = list(passing)
        other = Stream(written, BATCH, **words)
        other.load_state_dict(stored(state))
        rest = list(other)
        assert len(rest) == STEPS - 5
        assert all(
            torch.equal(a, b)
            for one, two in zip(rest, tail, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        before, after = before + seen(head, numbers), after + seen(rest, numbers)
        assert seen(other, numbers) == seen(whole, numbers)  # and so do the passes after it
    assert sorted(before + after) == list(range(N))


def listened(call):
    """What a call gives back, and the warnings that it gave"""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        return call(), [str(one.message) for one in heard]


def stored(state):
    """Through a file, which may hold nothing that could run code"""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_state_is_the_same_on_all_ranks_and_at_the_end_leads_to_the_next_pass(written, numbers):
    streams = [Stream(written, BATCH, rank=rank, world_size=2, prepare=raw) for rank in range(2)]
    fresh = streams[0].state_dict()
    first, _ = [list(stream) for stream in streams]
    assert streams[0].state_dict() == streams[1].state_dict()
    state = streams[0].state_dict()
    second = seen(streams[0], numbers)
    other = Stream(written, BATCH, rank=0, world_size=2, prepare=raw)
    other.load_state_dict(state)
    assert seen(other, numbers) == second
    other.load_state_dict(fresh)
    assert seen(other, numbers) == seen(first, numbers)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed 0 -> 1"),
        ({"buffer_size": 10}, "buffer_size 1000 -> 10"),
        ({"batch_size": 32}, "batch_size 12 -> 32"),
        ({"world_size": 2}, "world_size 1 -> 2"),
        ({"split": "test"}, "shards .* -> "),
    ],
)
def test_a_state_of_another_order_is_refused(written, change, says):
    state = Stream(written, BATCH).state_dict()
    with pytest.raises(ValueError, match=f"another order: {says}"):
        Stream(written, **{"batch_size": BATCH, **change}).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 3}, "version 3 -> 2"),
        ({"version": None, "datasets": "5.0", "world": 1}, "version None -> 2"),
    ],
)
def test_a_state_of_another_version_is_refused(written, change, says):
    stream = Stream(written, BATCH)
    with pytest.raises(ValueError, match=f"another order: {says}$"):
        stream.load_state_dict(stream.state_dict() | change)


# Broken


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = [
    (cut_short, r"it has [\d,]+ bytes, the index says"),
    (flip, "its bytes have changed since it was written"),
    (lambda path: path.unlink(), "there is no such file"),
]


@pytest.mark.parametrize(("harm", "says"), DAMAGE)
@pytest.mark.parametrize("buffer_size", [0, 1000])
def test_a_broken_shard_is_named(broken, harm, says, buffer_size):
    harm(broken / "train-00002.tar")
    with pytest.raises(BrokenShardError, match=rf"train-00002.tar in .*copy is broken: {says}"):
        list(Stream(broken, BATCH, buffer_size=buffer_size))


@pytest.mark.parametrize("harm", [cut_short, lambda path: path.unlink()])
def test_what_can_be_seen_at_once_is_said_at_once(broken, harm):
    harm(broken / "train-00006.tar")
    with pytest.raises(BrokenShardError, match=r"train-00006.tar"):
        Stream(broken, BATCH)


def test_damage_during_the_pass_is_seen_too(broken):
    stream = Stream(broken, BATCH)
    (broken / "train-00004.tar").unlink()
    with pytest.raises(BrokenShardError, match=r"train-00004.tar in .*no such file"):
        list(stream)


def test_a_disk_that_fails_is_named(broken, monkeypatch):
    def fail(*piece):
        raise OSError(5, "Input/output error")
        yield

    monkeypatch.setattr(streams, "read_shard", fail)
    with pytest.raises(BrokenShardError, match=r"train-0000\d.tar .*Input/output error"):
        list(Stream(broken, BATCH))


def rewrite(folder, change):
    """Write the third shard anew with other files in it, and the index as if it had been so"""
    path = folder / "train-00002.tar"
    with tarfile.open(path) as tar:
        files = [(member.name, tar.extractfile(member).read()) for member in tar]
    with tarfile.open(path, "w") as tar:
        for name, content in change(files):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    index = shards.read_index(folder)
    index["parts"]["train"][2] |= {"bytes": path.stat().st_size, "sha256": pooch.file_hash(path)}
    (folder / "index.json").write_text(json.dumps(index | {"sha256": shards.fingerprint(index)}))
    return files[10][0][:6]  # the name of its sixth sample


def with_file(ending, content):
    """Change the sixth sample of a shard"""
    at = 10 + (ending == "cls")
    return lambda files: [
        (name, content if i == at else old) for i, (name, old) in enumerate(files)
    ]


def without(at):
    return lambda files: files[:at] + files[at + 1 :]


SAMPLES = [
    (with_file("png", b"no picture"), "its image cannot be decoded"),
    (with_file("png", shards.to_png(torch.rand(1, 8, 8))[:60]), "its image cannot be decoded"),
    (with_file("png", b""), "its image cannot be decoded"),
    (
        with_file("png", shards.to_png(torch.rand(1, 8, 9))),
        r"its image has the shape \(1, 8, 9\) and mode L, the index says \(1, 8, 8\)",
    ),
    (
        with_file("png", shards.to_png(torch.rand(3, 8, 8))),
        r"its image has the shape \(3, 8, 8\) and mode RGB, the index",
    ),
    (with_file("cls", b"seven"), "its label is 'seven', expected a number from 0 to 1"),
    (with_file("cls", b"-1"), "its label is '-1', expected"),
    (with_file("cls", b"2"), "its label is '2', expected"),
    (with_file("cls", b"\xff"), "its label is .*, expected"),
    (without(10), r"there is no \d{6}.png"),
    (without(11), r"there is no \d{6}.cls"),
]


@pytest.mark.parametrize(("change", "says"), SAMPLES)
def test_a_broken_sample_is_named_or_passed_over(broken, numbers, change, says):
    key = rewrite(broken, change)
    with pytest.raises(
        BrokenShardError, match=f"sample {key} of train-00002.tar in .*copy is broken: {says}"
    ):
        list(Stream(broken, BATCH))
    stream = Stream(broken, BATCH, prepare=raw, on_broken="skip")
    batches, (first, second) = listened(lambda: list(stream))
    assert re.match(f"sample {key} of train-00002.tar .*: {says}.*; it is skipped", first)
    assert second == "1 of 254 images were lost in pass 1"
    assert len(batches) == STEPS
    assert sorted({*range(N)} - {*seen(batches, numbers)}) == [int(key)]


def test_a_sample_that_is_not_there_at_all_is_missed(broken):
    rewrite(broken, lambda files: files[2:])
    with pytest.raises(BrokenShardError, match=r"train-00002.tar .* 39 .* 40"):
        list(Stream(broken, BATCH))


@pytest.mark.parametrize(("harm", "says"), DAMAGE)
@pytest.mark.parametrize("world", [1, 3])
def test_a_broken_shard_can_be_passed_over(broken, numbers, harm, says, world):
    with tarfile.open(broken / "train-00002.tar") as tar:
        gone = {int(name[:6]) for name in tar.getnames()}
    harm(broken / "train-00002.tar")
    streams = [
        Stream(broken, BATCH, prepare=raw, rank=rank, world_size=world, on_broken="skip")
        for rank in range(world)
    ]
    ranks, heard = listened(lambda: [list(stream) for stream in streams])
    assert re.match(f"train-00002.tar .*: {says}.*; it is skipped", heard[0])
    assert [len(batches) for batches in ranks] == [STEPS] * world
    assert sum(stream.lost.total() for stream in streams) == 40 == len(gone)
    assert sorted(number for batches in ranks for number in seen(batches, numbers)) == sorted(
        {*range(N)} - gone
    )


def test_going_on_works_beside_a_broken_shard(broken, numbers):
    flip(broken / "train-00002.tar")
    whole, other = (Stream(broken, BATCH, prepare=raw, on_broken="skip") for _ in range(2))
    head, _ = listened(lambda: list(islice(whole, 5)))
    other.load_state_dict(whole.state_dict())
    tail, _ = listened(lambda: list(other))
    found = seen(head + tail, numbers)
    assert len(found) == len(set(found)) == N - 40


def test_with_one_rank_a_batch_that_is_lost_as_a_whole_is_left_out(broken):
    flip(broken / "train-00002.tar")
    stream = Stream(broken, BATCH, buffer_size=0, on_broken="skip")
    sizes, heard = listened(lambda: [len(labels) for _, labels in stream])
    assert heard[-1] == "40 of 254 images were lost in pass 1"
    assert min(sizes) > 0 and sum(sizes) == N - 40 and len(sizes) == STEPS - 3


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_index_that_is_none_is_named(broken, content):
    (broken / "index.json").write_text(content)
    with pytest.raises(ValueError, match=r"index.json is cut short"):
        Stream(broken, BATCH)


def test_a_count_that_was_changed_is_noticed(broken):
    text = (broken / "index.json").read_text()
    (broken / "index.json").write_text(text.replace('"images": 40', '"images": 30', 1))
    with pytest.raises(ValueError, match=r"index.json is damaged"):
        Stream(broken, BATCH)


# Asked wrongly


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"rank": 2, "world_size": 2}, "got rank=2, world_size=2"),
        ({"buffer_size": -1}, "buffer_size must be at least 0, got -1"),
        ({"split": "dev"}, "split 'dev'.*: train, validation, test"),
        ({"on_broken": "ignore"}, "on_broken 'ignore'.*: raise, skip"),
    ],
)
def test_bad_options_are_named(written, words, says):
    with pytest.raises(ValueError, match=says):
        Stream(written, **{"batch_size": BATCH, **words})


def test_a_folder_without_shards_is_named(tmp_path, digits):
    with pytest.raises(
        FileNotFoundError,
        match=r"index.json .*`python -m vit_helpers shards`",
    ):
        Stream(tmp_path, BATCH)
    with pytest.raises(ValueError, match=r"per_shard .* 1, got 0"):
        write_shards(digits, tmp_path / "x", 0)


# Trained on


def test_fit_trains_on_a_stream(written):
    train, validation = Stream(written, BATCH), Stream(written, BATCH, "validation", buffer_size=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    history = fit(model, train, validation, Recipe(epochs=3, lr=1e-2), callbacks=[])
    assert train.state_dict()["epoch"] == 3
    assert history[-1].validation.accuracy > 0.6
    assert history[-1].train.loss < history[0].train.loss
