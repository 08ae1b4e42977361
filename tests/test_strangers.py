"""Images, shards and tables of strangers: no memory on their word, and errors of one line."""

import hashlib
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vit_helpers.data import Data, Split
from vit_helpers.data.images import MAX_PIXELS, open_picture
from vit_helpers.data.shards import INDEX, fingerprint, read_index, write_shards
from vit_helpers.data.stream import Shards

resource = pytest.importorskip("resource", reason="memory can be limited on Unix alone")


@pytest.fixture
def limit_memory():
    """Grants so many MiB more than now, as address space, until the test ends"""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = resource.getrlimit(resource.RLIMIT_AS)
    yield lambda mib: resource.setrlimit(resource.RLIMIT_AS, (used + mib * 2**20, old[1]))
    resource.setrlimit(resource.RLIMIT_AS, old)


def zeros_png(width, height, bits):
    """A PNG of gray zeros, without its pixels ever in memory"""

    def chunk(kind, content):
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    pack = zlib.compressobj()
    row = bytes(1 + width * bits // 8)
    rows = b"".join(pack.compress(row) for _ in range(height)) + pack.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize("bits", [8, 16])
def test_an_image_of_many_pixels_is_refused_before_it_is_decoded(tmp_path, limit_memory, bits):
    (tmp_path / "bomb.png").write_bytes(zeros_png(13_000, 13_000, bits))
    limit_memory(200)
    with pytest.raises(ValueError, match=r"bomb\.png: it has 13,000 x 13,000 pixels, more than 67"):
        open_picture(tmp_path / "bomb.png")


def test_the_largest_image_of_16_bits_takes_little_memory(tmp_path, limit_memory):
    side = int(MAX_PIXELS**0.5)
    (tmp_path / "large.png").write_bytes(zeros_png(side, side, 16))
    limit_memory(1024)  # 64 bytes a pixel would be 4 GiB
    assert open_picture(tmp_path / "large.png").size == (side, side)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_gray_values_are_scaled_in_pieces_as_all_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("vit_helpers.data.images.CHUNK", 100)
    draw = np.random.default_rng(0)
    values = (draw.random((37, 23)) * (1 if kind is np.float32 else 65535)).astype(kind)
    values[0, 0] = 1 if kind is np.float32 else 65535
    Image.fromarray(values).save(tmp_path / "a.tiff")
    expected = (values.astype(np.float64) / values[0, 0] * 255).round()
    assert (np.asarray(open_picture(tmp_path / "a.tiff"))[..., 0] == expected).all()


# Shards


@pytest.fixture
def shards(tmp_path):
    """Twelve images of 4 x 4 pixels, as shards"""
    split = Split(torch.rand(12, 3, 4, 4), torch.arange(12) % 3)
    data = Data.from_splits("noise", split, split, split, ("a", "b", "c"))
    return write_shards(data, tmp_path / "shards")


def edit(folder, change):
    """Change the index as somebody who knows its format can: with a new sha256"""
    index = read_index(folder)
    change(index)
    index["sha256"] = fingerprint(index)
    (folder / INDEX).write_text(json.dumps(index))


EDITS = {
    "no mean": lambda index: index.pop("mean"),
    "mean of text": lambda index: index.update(mean="abc"),
    "mean of five": lambda index: index.update(mean=[0.5] * 5),
    "std of zero": lambda index: index.update(std=[0.1, 0.0, 0.1]),
    "size of one number": lambda index: index.update(image_size=4),
    "size below one": lambda index: index.update(image_size=[0, 4]),
    "seven channels": lambda index: index.update(in_chans=7),
    "no test split": lambda index: index["parts"].pop("test"),
    "parts in a list": lambda index: index.update(parts=[]),
    "images of text": lambda index: index["parts"]["train"][0].update(images="12"),
    "a count below one": lambda index: index["parts"]["train"][0].update(images=-3),
    "no name": lambda index: index.update(name=None),
    "classes of numbers": lambda index: index.update(class_names=[1, 2, 3]),
    "a count too few": lambda index: index.update(class_counts=[1, 2]),
    "another folder": lambda index: index["parts"]["train"][0].update(file="../secret.tar"),
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_an_edited_index_is_one_line_that_names_it(shards, change):
    assert Shards(shards).count("train") == 12
    edit(shards, change)
    with pytest.raises(ValueError, match=r"^[^\n]*index\.json does not describe shards: [^\n]*$"):
        Shards(shards)


def replace_shard(folder, content):
    """Another shard of test images in place of the first, with its size and sha256 in the index"""
    path = folder / "test-00000.tar"
    path.write_bytes(content)
    size, digest = len(content), hashlib.sha256(content).hexdigest()
    edit(folder, lambda index: index["parts"]["test"][0].update(bytes=size, sha256=digest))


def tar_of(png, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:
        for number in range(12):
            for ending, content in (("png", png), ("cls", b"1")):
                member = tarfile.TarInfo(f"{number:06d}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def sparse_tar():
    """A tar file of a few KB whose first file claims 8 GiB of zeros, as GNU's tar writes them"""
    member = tarfile.TarInfo("000000.png")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = b"%011o\0" % 2**33  # its size with the zeros
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(10240 - len(header))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: tar_of(zeros_png(9_000, 9_000, 8)), r"shape \(1, 9000, 9000\)"),
        (lambda: tar_of(bytes(2**20), "w:gz"), "cannot be read"),
        (sparse_tar, "sparse"),
    ],
    ids=["pixels", "compressed", "sparse"],
)
def test_a_shard_takes_no_memory_on_its_word(shards, limit_memory, content, says):
    replace_shard(shards, content())
    limit_memory(300)
    with pytest.raises(ValueError, match=says):
        list(Shards(shards).batches("test", 4))
