"""Downloads against a server that is honest, slow, cut short, lying, flaky or gone."""

import contextlib
import gc
import gzip
import hashlib
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep

import numpy as np
import pytest
import torch
from PIL import Image

from vit_helpers.data import downloads, load
from vit_helpers.data.downloads import DownloadError, data_folder, fetch, unpack

ROOT = Path(__file__).parents[2]

# requests leaves the socket of a failed answer to the garbage collector, which must not warn in
# another file
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BODY = bytes(range(256)) * 400
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        type(self).asked += 1
        kind = self.path.strip("/")
        flaky = kind == "flaky" and Handler.asked == 1
        self.send_response(500 if flaky or kind == "gone" else 200)
        body = BODY[::-1] if kind == "lying" else BODY
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        if kind == "cut":
            return
        if kind in ("stuck", "slow"):
            self.wfile.flush()
            sleep(3 if kind == "stuck" else 0.5)
        with contextlib.suppress(OSError):  # the other side may have left
            self.wfile.write(body[half:])

    def log_message(self, *anything):
        pass


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    gc.collect()


@pytest.fixture
def server(monkeypatch):
    # between two tries pooch waits a second or more
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    Handler.asked = 0
    one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=partial(one.serve_forever, poll_interval=0.01), daemon=True).start()
    yield f"http://127.0.0.1:{one.server_port}/"
    one.shutdown()
    one.server_close()


@pytest.mark.parametrize("kind", ["honest", "slow", "flaky"])
def test_a_file_comes_whole_and_is_brought_once(server, tmp_path, kind):
    path = tmp_path / "deep" / "file.bin"
    assert fetch(server + kind, path, SHA256) == path
    assert path.read_bytes() == BODY
    asked = Handler.asked
    assert fetch(server + kind, path, SHA256) == path and Handler.asked == asked
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["stuck", "cut", "lying", "gone"])
def test_a_file_that_does_not_come_right_leaves_nothing(server, tmp_path, kind):
    path = tmp_path / "file.bin"
    with pytest.raises(DownloadError) as error:
        fetch(server + kind, path, SHA256, timeout=0.5, tries=2)
    assert Handler.asked == 2
    assert not list(tmp_path.iterdir())
    words = str(error.value)
    assert all(
        part in words
        for part in (
            server + kind,
            "2 tries",
            str(path),
            SHA256,
            "VIT_HELPERS_DATA",
            'load("digits")',
        )
    )


def test_no_server_at_all(tmp_path):
    with pytest.raises(DownloadError, match=r"in 1 try, (.|\n)*By hand"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file.bin", SHA256, timeout=0.5, tries=1)


def test_a_wrong_file_of_that_name_is_named_and_not_touched(server, tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"mine")
    with pytest.raises(DownloadError, match="move it away"):
        fetch(server + "honest", path, SHA256)
    assert path.read_bytes() == b"mine" and Handler.asked == 0


@pytest.mark.processes
def test_two_processes_at_once_do_no_harm(server, tmp_path):
    path = tmp_path / "file.bin"
    arguments = (server + "slow", str(path), SHA256)
    code = f"from {fetch.__module__} import fetch; fetch(*{arguments!r})"
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert path.read_bytes() == BODY and list(tmp_path.iterdir()) == [path]


def test_the_folder_is_the_users_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("VIT_HELPERS_DATA", "~/vit")
    assert data_folder() == Path.home() / "vit"
    monkeypatch.delenv("VIT_HELPERS_DATA")
    assert data_folder().name == "vit_helpers" and data_folder().is_absolute()


def archive(path, *names):
    source = path.parent / "source"
    source.write_text("hello")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.write(source, name)
    else:
        with tarfile.open(path, "w:gz") as file:
            for name in names:
                file.add(source, name)
    source.unlink()
    return path


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_an_archive_is_unpacked_once(tmp_path, ending):
    path = archive(tmp_path / f"a.{ending}", "one.txt", "sub/two.txt")
    folder = unpack(path, tmp_path / "deep" / "new")
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.txt")) == [
        "one.txt",
        "sub/two.txt",
    ]
    path.unlink()
    assert unpack(path, folder) == folder  # it is there: the archive is not looked at again
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["../out.txt", "sub/../../out.txt"])
def test_nothing_is_written_outside_the_folder(tmp_path, ending, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    path = archive(tmp_path / f"a.{ending}", "one.txt", name)
    with contextlib.suppress(tarfile.OutsideDestinationError):  # of a zip, the rest is unpacked
        unpack(path, inside / "new")
    assert not list(tmp_path.rglob("out.txt"))


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>", b"", b"PK\x03\x04 and then nothing"])
def test_a_broken_archive_leaves_nothing(tmp_path, content):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(shutil.ReadError, match=r"a\.zip"):
        unpack(path, tmp_path / "new")
    assert list(tmp_path.iterdir()) == [path]


def picture(path, color, size=(30, 20), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path))
    return tmp_path


def idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


@pytest.fixture
def small_fashion(home, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 28, 28))
    raw = home / "FashionMNIST" / "raw"
    for name, array in zip(
        downloads.SOURCES["fashion_mnist"]["sha256"],
        (images, np.arange(30) % 10, images[:8], np.arange(8)),
        strict=True,
    ):
        idx(raw / name, array)
    # the small files have other sums
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    monkeypatch.setattr(downloads, "VALIDATION", 5)
    monkeypatch.setattr(downloads.with_validation, "__defaults__", (5,))
    return raw, images


def test_fashion_mnist_is_read_as_it_lies(small_fashion):
    _, images = small_fashion
    data = load("fashion_mnist")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [25, 5, 8]
    assert data.class_names[9] == "ankle boot" and data.train.images.shape[1:] == (1, 28, 28)
    assert torch.equal(data.test.images[:, 0], torch.tensor(images[:8]).float() / 255)
    both = torch.cat([data.train.images, data.validation.images]).flatten(1)
    # none is lost
    assert sorted(both.mean(1).tolist()) == pytest.approx(sorted(images.mean((1, 2)) / 255))


def test_the_sums_of_the_real_files_are_asked_for(home):
    raw = home / "FashionMNIST" / "raw"
    idx(raw / next(iter(downloads.SOURCES["fashion_mnist"]["sha256"])), np.zeros((3, 28, 28)))
    with pytest.raises(OSError, match="is not the file it should be"):
        load("fashion_mnist")


def test_cifar10_by_torchvisions_reader(home, monkeypatch):
    from torchvision.datasets import CIFAR10

    rng = np.random.default_rng(0)
    source = home / "source" / CIFAR10.base_folder
    source.mkdir(parents=True)
    written = {}
    for name in [*[f"data_batch_{i}" for i in range(1, 6)], "test_batch"]:
        written[name] = rng.integers(0, 256, (4, 3072)).astype(np.uint8)
        (source / name).write_bytes(pickle.dumps({"data": written[name], "labels": [0, 1, 2, 9]}))
    (source / "batches.meta").write_bytes(
        pickle.dumps({"label_names": [f"class {i}" for i in range(10)]})
    )
    with tarfile.open(home / CIFAR10.filename, "w:gz") as file:
        file.add(source, CIFAR10.base_folder)
    shutil.rmtree(home / "source")
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    monkeypatch.setattr(downloads.with_validation, "__defaults__", (5,))
    # of the real files' md5 sums
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    data = load("cifar10")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [15, 5, 4]
    assert data.class_names[9] == "class 9" and data.test.labels.tolist() == [0, 1, 2, 9]
    assert torch.equal(
        data.test.images, torch.tensor(written["test_batch"]).reshape(4, 3, 32, 32) / 255
    )


def test_pizza_steak_sushi(home, monkeypatch):
    source = home / "source"
    for split, count in (("train", 20), ("test", 3)):
        for i, name in enumerate(("pizza", "steak", "sushi")):
            for n in range(count):
                picture(
                    source / split / name / f"{n}.jpg",
                    (80 * i, 2 * n, 9 if split == "train" else 19),
                )
    with zipfile.ZipFile(home / "pizza_steak_sushi.zip", "w") as file:
        for path in source.rglob("*.jpg"):
            file.write(path, path.relative_to(source))
    monkeypatch.setattr(downloads, "fetch", lambda url, path, sha256: path)
    data = load("pizza_steak_sushi", image_size=16)
    assert data.class_names == ("pizza", "steak", "sushi") and data.image_size == (16, 16)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [15, 45, 9]
    assert torch.allclose(
        data.test.images[:, 0].mean((1, 2)), data.test.labels * 80 / 255, atol=0.03
    )
