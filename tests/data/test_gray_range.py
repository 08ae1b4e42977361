"""What white is in gray images of more than 8 bits: one value for a data set, or asked for."""

import shutil
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from commands import command
from PIL import Image, TiffImagePlugin

from vit_helpers.data import load
from vit_helpers.data.cache import ImageCache
from vit_helpers.data.images import measure_grays, open_picture, warn_of_half
from vit_helpers.data.reading import read_pixels
from vit_helpers.data.shards import write_shards_of_folder
from vit_helpers.pretrained import load_pretrained

pytestmark = pytest.mark.usefixtures("no_figures")

KINDS = {"16": np.uint16, "32": np.int32, "float": np.float32}  # bits


def texture(number, striped, highest):
    """(16, 16), from 0 to `highest`: smooth or striped, with noise"""
    rng = np.random.default_rng(number)
    ramp = np.linspace(0, 1, 16)[:, None] * np.ones(16)
    pattern = np.arange(16) % 2 * np.ones((16, 1)) if striped else ramp
    return highest * (
        0.02 * pattern + 0.02 * rng.random((16, 16)) + 0.96 * (number % 3 == 0) * ramp
    )


def draw(folder, kind="16", highest=4095.0, count=30, ending="png"):
    """A folder of two classes; only every third image is bright"""
    for number in range(2 * count):
        path = folder / ("smooth", "striped")[number % 2] / f"{number}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = texture(number, number % 2, highest)
        values = values if kind == "float" else values.round()
        Image.fromarray(values.astype(KINDS[kind])).save(path)
    return folder


WORDS = ["--image-size", "16", "--patch", "4", "--split", "exact", "--epochs", "1"]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "folder:x", *WORDS],
        ["shards", "folder:x", "shards", "--image-size", "16", "--split", "exact"],
        ["predict", "x", "--weights", "ours:photos"],
    ],
)
def test_12_bits_in_16_are_asked_about_by_every_command(tmp_path, words):
    """They became 17 almost black grays, and the accuracy that of guessing"""
    draw(tmp_path / "x")
    run = command(*words, cwd=tmp_path)
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert (
        "60 images " in run.stderr
        and "(brightest: " in run.stderr
        and "12 bits, add --white 4095 (" in run.stderr
        and "white = 4095 under [baseline]" in run.stderr
    )
    assert command(*words, "--white", "4095", cwd=tmp_path).returncode == 0


def test_the_answer_keeps_all_grays_and_stays_with_the_weights(tmp_path):
    draw(tmp_path / "x")
    data = load(f"folder:{tmp_path / 'x'}", image_size=16, split="exact", white=4095)
    assert data.white == 4095 and data.train.pixels.unique().numel() > 100  # 17
    shards = write_shards_of_folder(tmp_path / "x", tmp_path / "y", 16, split="exact", white=4095)
    assert load(f"shards:{shards}").white == 4095
    words = ["train", "--data", "folder:x", "--white", "4095", "--out", "run", *WORDS]
    assert command(*words, cwd=tmp_path).returncode == 0
    assert load_pretrained(tmp_path / "run").preprocess.white == 4095
    assert command("train", "--resume", "run", cwd=tmp_path).returncode == 0
    dark = tmp_path / "x" / "smooth" / "2.png"  # alone it says nothing about white
    assert command("predict", dark, "--weights", "run", cwd=tmp_path).returncode == 0
    with pytest.raises(ValueError, match=r"2\.png.* --white 255 "):
        open_picture(dark)
    shutil.copytree(tmp_path / "x", tmp_path / "new" / "x")
    bright = np.full((16, 16), 60000, np.uint16)
    Image.fromarray(bright).save(tmp_path / "bright.png")
    run = command("predict", "bright.png", "--weights", "run", cwd=tmp_path)
    assert run.returncode == 1 and "60000 to 60000" in run.stderr and "4095" in run.stderr


@pytest.mark.parametrize(
    ("kind", "highest", "white"),
    [
        ("16", 65535, 65535),
        ("32", 255, 255),
        ("32", 65535, 65535),
        ("float", 1, 1),
        ("float", 255, 255),
    ],
)
def test_dark_images_have_the_white_of_the_bright_ones(tmp_path, kind, highest, white):
    """Each was scaled alone: a dark one in 0 to 255 became as bright as one from 0 to 1"""
    draw(tmp_path / "x", kind, highest, count=6, ending="tif")
    data = load(f"folder:{tmp_path / 'x'}", image_size=16, split="exact")
    assert data.white == white
    means = torch.cat([data.get_split(s).images.mean((1, 2, 3)) for s in ("train", "test")])
    assert means.min() < 0.05


@pytest.mark.parametrize(
    ("kind", "highest", "likely"),
    [
        ("16", 1023, 1023),
        ("16", 255, 255),
        ("16", 4000, 4095),
        ("32", 10, 15),
        ("32", 300, 511),
        ("float", 1.5, 3),
        ("float", 0.05, 0.05),
    ],
)
def test_a_white_that_leaves_few_grays_is_refused_for_every_depth(tmp_path, kind, highest, likely):
    draw(tmp_path / "x", kind, highest, count=3, ending="tif")
    with pytest.raises(ValueError, match=rf"6 images .* --white {likely:g} \(in Python"):
        load(f"folder:{tmp_path / 'x'}", image_size=16, split="exact")


def draw_flat(folder, highest, kind=np.uint16):
    """Gray ramps from 0 up to the highest value, by file"""
    for name, value in highest.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        ramp = np.linspace(0, value, 64).reshape(8, 8).astype(kind)
        Image.fromarray(ramp).save(folder / name)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "folder:x", *WORDS],
        ["shards", "folder:x", "shards", "--image-size", "16", "--split", "exact"],
        ["predict", "x", "--weights", "ours:photos"],
        ["evaluate", "ours:photos", "folder:y"],
    ],
)
def test_a_white_far_above_all_values_is_said_by_every_command(tmp_path, words):
    """14 bits lost three quarters of their brightness without a word"""
    draw(tmp_path / "x", highest=16320, count=6)
    (tmp_path / "y").mkdir()
    for own, known in (("smooth", "cat"), ("striped", "dog")):
        shutil.copytree(tmp_path / "x" / own, tmp_path / "y" / known)
    run = command(*words, cwd=tmp_path)
    (note,) = [line for line in run.stdout.splitlines() if "--white" in line]
    assert run.returncode == 0 and note.startswith("note: 12 images ")
    assert " 65535. " in note and " 14 bits, add --white 16383 (" in note
    assert "--white" not in command(*words, "--white", "16383", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("kind", "highest", "likely"),
    [
        (np.uint16, 32767, "32767"),
        (np.uint16, 32768, None),
        (np.int32, 2**29, "1073741823"),
        (np.int32, 100, None),  # of 255
        (np.float32, 0.3, None),
    ],
)
def test_only_a_full_depth_is_doubted(tmp_path, kind, highest, likely):
    draw_flat(tmp_path, {"x/a/0.tif": highest, "x/b/0.tif": highest / 2}, kind)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        read_pixels({"train": [(path, 0) for path in tmp_path.rglob("*.tif")]}, 8)
    assert [f"--white {likely} (" in str(one.message) for one in said] == [True] * bool(likely)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_black_is_black_whatever_white_is(tmp_path, kind):
    """It was asked about, with the answer "perhaps 0", which is refused"""
    Image.fromarray(np.zeros((4, 4), kind)).save(tmp_path / "x.tif")
    assert not np.array(open_picture(tmp_path / "x.tif")).any()


def test_floats_and_16_bits_have_no_common_white(tmp_path):
    draw(tmp_path / "x", "16", 65535, count=3)
    draw(tmp_path / "x", "float", 1, count=3, ending="tif")
    with pytest.raises(ValueError, match="have no known range"):
        load(f"folder:{tmp_path / 'x'}", image_size=16, split="exact")


PAIRS = ((0, 2047), (4095, 16))  # of pixels


def test_the_bits_that_a_tiff_declares_are_obeyed(tmp_path):
    """Pillow reads 12 bits as 16"""
    packed = b"".join(bytes.fromhex(f"{first:03x}{second:03x}") for first, second in PAIRS)
    tags = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: len(packed)}
    entries = b"".join(struct.pack("<HHIHxx", tag, 3, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    start = struct.pack("<2sHI", b"II", 42, 8 + len(packed))
    (tmp_path / "x.tif").write_bytes(start + packed + directory)
    assert np.array(open_picture(tmp_path / "x.tif"))[0, :, 0].tolist() == [0, 127, 255, 1]
    grays = measure_grays(tmp_path / "x.tif")
    assert grays.high == 65535
    with warnings.catch_warnings(action="error"):
        warn_of_half([grays._replace(high=20000)], 65535)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_folder_of_8_bits_with_few_grays_is_asked_about(tmp_path, mode):
    """As a color PNG of 12 bits in 16 is, of which Pillow reads the upper 8"""
    rng = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "x" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 15, (8, 8), dtype=np.uint8)).convert(mode).save(path)
    with pytest.raises(ValueError, match="from 0 to 14 of 255, fewer than 16 values"):
        load(f"folder:{tmp_path / 'x'}", image_size=8, split="exact")
    with pytest.raises(ValueError, match="from 0 to 14 of 255, fewer than 16 values"):
        write_shards_of_folder(tmp_path / "x", tmp_path / "y", 8, split="exact")
    data = load(f"folder:{tmp_path / 'x'}", image_size=8, split="exact", white=255)
    assert data.train.pixels.max() == 14 and data.white is None


@pytest.mark.parametrize("white", [0, -1, float("nan")])
def test_a_white_that_is_none_is_refused(tmp_path, white):
    draw(tmp_path / "x", count=3)
    with pytest.raises(ValueError, match=r"white .* above 0"):
        load(f"folder:{tmp_path / 'x'}", white=white)


def test_images_with_another_white_than_in_training_are_noticed(tmp_path):
    """12 bits, by a model of 16"""
    draw(tmp_path / "x", highest=65535)
    assert command("train", "--data", "folder:x", "--out", "run", *WORDS, cwd=tmp_path).stdout
    draw(tmp_path / "y", count=3)
    note = "note: no gray value of these images is above 40"
    for words in (["predict", "y", "--weights", "run"], ["evaluate", "run", "folder:y"]):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 0 and note in done.stdout, done
        assert note not in command(*words, "--white", "4095", cwd=tmp_path).stdout


def test_the_cache_keeps_no_image_whose_white_depends_on_others(tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("vit_helpers.data.cache.CACHE_BYTES", 2**30)
    monkeypatch.setattr("vit_helpers.data.cache.FREE_BYTES", 0)
    path = draw(tmp_path / "x", "float", 1, count=6, ending="tif")
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (16, 16), dtype=np.uint8)
        Image.fromarray(pixels).save(path / "smooth" / f"{number}.png")
    options = {"image_size": 16, "split": "exact"}
    before = load(f"folder:{path}", **options, cache=True)
    assert before.white == 1 and len(ImageCache(path, 16).index) == 3
    Image.fromarray(texture(3, True, 255).astype(np.float32)).save(path / "striped" / "bright.tif")
    cached, plain = (load(f"folder:{path}", **options, cache=cache) for cache in (True, False))
    assert cached.white == 255 and torch.equal(cached.train.pixels, plain.train.pixels)


# Colors of 16 bits, of which Pillow reads the upper 8; and TIFFs in which 0 is white


def chunk(kind, content):
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def save_png_16(path, values, color_type=2):
    """values: (H, W, bands) from 0 to 65535, which Pillow itself does not write"""
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def draw_colors(folder, highest, count=8, bands=3, color_type=2):
    rng = np.random.default_rng(0)
    for number in range(count):
        values = rng.integers(0, highest + 1, (8, 8, bands))
        values[0, 0], values[0, 1] = 0, highest
        values[..., 3:] = 65535  # opaque
        save_png_16(folder / "ab"[number % 2] / f"{number}.png", values, color_type)
    return f"folder:{folder}"


OPTIONS = {"image_size": 8, "split": "exact"}


@pytest.mark.parametrize(("bands", "color_type"), [(3, 2), (4, 6)])
@pytest.mark.parametrize("highest", [255, 1023, 4095])
def test_colors_of_few_bits_in_16_are_asked_about(tmp_path, highest, bands, color_type):
    """Those of 12 bits became 16 levels, almost black, without a word"""
    data = draw_colors(tmp_path / "x", highest, bands=bands, color_type=color_type)
    with pytest.raises(ValueError, match=r"8 images .* 8 bits, .* --white 65535 "):
        load(data, **OPTIONS)
    with pytest.raises(ValueError, match=r"8 images .* --white 65535 "):
        write_shards_of_folder(tmp_path / "x", tmp_path / "y", 8, split="exact")
    with pytest.raises(ValueError, match=r"a.0.png: .* --white 65535"):
        open_picture(tmp_path / "x" / "a" / "0.png")
    run = command("predict", "x", "--weights", "ours:photos", cwd=tmp_path)
    assert run.returncode == 1 and "--white 65535" in run.stderr
    with pytest.raises(ValueError, match=r"4095: .* 8 bits"):
        load(data, **OPTIONS, white=4095)  # it had no effect
    if highest > 255:  # of which nothing is left
        assert load(data, **OPTIONS, white=65535).train.pixels.max() == highest // 256


def test_colors_of_16_bits_are_read_as_before(tmp_path):
    data = load(draw_colors(tmp_path / "x", 65535), **OPTIONS)
    assert data.white == 65535 and data.train.pixels.max() == 255
    dark = np.full((8, 8, 3), 500)  # beside bright ones
    with pytest.warns(UserWarning, match=r"8 images .* 8 bits, .* --white 65535 "):
        load(draw_colors(tmp_path / "y", 16383), **OPTIONS)
    save_png_16(tmp_path / "x" / "a" / "dark.png", dark)
    assert load(f"folder:{tmp_path / 'x'}", **OPTIONS).white == 65535


@pytest.mark.parametrize(("kind", "highest"), [(np.uint16, 65535), (np.float32, 1.0)])
def test_a_tiff_in_which_0_is_white_is_inverted(tmp_path, kind, highest):
    """Pillow does that for 8 bits alone"""
    ramp = (np.linspace(0, 1, 256).reshape(16, 16) * highest).astype(kind)
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[262] = 0
    Image.fromarray(ramp).save(tmp_path / "plain.tif")
    Image.fromarray((highest - ramp).astype(kind)).save(tmp_path / "inverted.tif", tiffinfo=tags)
    plain, inverted = (
        np.array(open_picture(tmp_path / f"{name}.tif"), int) for name in ("plain", "inverted")
    )
    assert plain.max() == 255 and abs(plain - inverted).max() <= 1


def test_a_white_that_is_said_in_vain_is_noticed(tmp_path):
    """It also took the question about few grays away"""
    rng = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "x" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 15, (8, 8), dtype=np.uint8)).save(path)
    vain = "white is said to be 4095, but has no effect"
    with pytest.warns(UserWarning, match=vain), pytest.raises(ValueError, match="fewer than 16"):
        load(f"folder:{tmp_path / 'x'}", **OPTIONS, white=4095)
    words = ["predict", "x", "--weights", "ours:photos"]
    assert vain in command(*words, "--white", "4095", cwd=tmp_path).stdout
    assert "white" not in command(*words, cwd=tmp_path).stdout
