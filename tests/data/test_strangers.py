"""Images, shards and tables of strangers: no memory on their word, and errors of one line."""

import csv
import hashlib
import io
import json
import os
import re
import shutil
import struct
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vit_helpers.ablation import Table, run_table
from vit_helpers.cli import main
from vit_helpers.data import Data, Split
from vit_helpers.data.images import MAX_PIXELS, open_picture
from vit_helpers.data.shards import INDEX, fingerprint, read_index, write_shards
from vit_helpers.data.stream import Shards
from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture
def limit_memory():
    """Grants so many MiB more than now, as address space, until the test ends"""
    if sys.platform != "linux":
        pytest.skip("only Linux limits the memory of a process")
    import resource

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
    with pytest.raises(ValueError, match=r"bomb\.png: .*13,000 x 13,000 .* 67"):
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
    with pytest.raises(ValueError, match=r"^[^\n]*index\.json [^\n]*$"):
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


# Names in what is printed and in tables

HOSTILE = "\r\x1b[2K 99.9%  safe\x1b]0;title\x07\u202e\nsecond line"
CONTROL = re.compile(r"[^\n -\ufffd]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile(tmp_path):
    """Weights with a hostile class name, two pictures with hostile names, and a folder of both"""
    if os.name == "nt":
        pytest.skip("Windows has no such names")
    torch.manual_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, num_classes=2))
    prepare = Preprocess(8, (8, 8), "bilinear", (0.5,) * 3, (0.5,) * 3)
    names = (HOSTILE, "=1+1")
    save_weights(tmp_path / "w.safetensors", model, prepare, names)
    for number, name in enumerate(names):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for picture in ("=x.png", "a" + HOSTILE.replace("/", "") + ".png"):
            Image.new("RGB", (8, 8), (number, 9, 9)).save(folder / picture)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "=x.png"],
        ["predict", "photos", "--csv", "out.csv"],
        ["predict", "photos/none" + HOSTILE],
        ["evaluate", "w.safetensors", "folder:photos", "--out", "c.png"],
        ["evaluate", "ours:seven", "folder:photos", "--out", "c.png"],
        ["train", "--data", "folder:photos", "--epochs", "1"],
        ["train", "--data", "folder:nowhere" + HOSTILE],
        ["shards", "folder:photos", "shards" + HOSTILE],
        ["ablate", "table.toml"],
    ],
    ids=lambda words: " ".join(words)[:30].partition("\r")[0],
)
def test_no_name_speaks_to_the_terminal(hostile, monkeypatch, capsys, words):
    monkeypatch.chdir(hostile)
    shutil.copy(next(Path("photos").glob("*/=x.png")), "=x.png")
    change = json.dumps(HOSTILE.replace("\x07", ""))
    Path("table.toml").write_text(
        f'data = "digits"\nseeds = 1\n[baseline]\nepochs = 1\nimages = 40\n'
        f"[changes]\n{change} = {{lr = 1e-4}}\n"
    )
    main([*words, *(["--weights", "w.safetensors"] if words[0] == "predict" else [])])
    done = capsys.readouterr()
    assert not CONTROL.findall(done.out + done.err), ascii(done.out + done.err)
    assert "\nsecond line" not in done.out + done.err


def test_cells_of_tables_are_no_formulas(hostile, monkeypatch):
    monkeypatch.chdir(hostile)
    for path in Path("photos").glob("*/*.png"):
        if path.name == "=x.png":
            shutil.copy(path, path.name)
    main(["predict", "=x.png", "photos", "--weights", "w.safetensors", "--csv", "out.csv"])
    with Path("out.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["picture", "class", "probability"]
    assert rows[0][0] == "'=x.png" and {row[1][:2] for row in rows} <= {"'=", "'\r"}


@pytest.mark.parametrize("name", ["=1+1", "@a", "+ mixup", "- dropout", "'=1", "'", "\tx", "plain"])
def test_changes_in_a_table_are_no_formulas_and_come_back(tmp_path, name):
    baseline = {"epochs": 1, "images": 40}
    table = Table(seeds=1, baseline=baseline, changes={name: {"lr": 1e-4}})
    path = tmp_path / "runs.csv"
    runs = run_table(table, path, report=lambda line: None)
    with path.open(newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)]
    assert not cells[2].startswith(tuple("=+-@\t"))
    again = run_table(table, path, report=lambda line: pytest.fail("it is trained again"))
    assert list(again["change"]) == list(runs["change"]) == ["baseline", name]
