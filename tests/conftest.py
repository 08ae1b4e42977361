"""Two tests run side by side on two cores: one thread each, and none of them waits by spinning."""

import atexit
import gc
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

# until all tests are collected: what is imported stays, and looking through it takes seconds
gc.disable()

LONGEST = (  # collected first, so that none of them is left to one of two workers at the end
    "tests/checks/test_every_exercise.py",
    "tests/notebooks/test_jupyterlab.py",
    "tests/test_distributed.py",
    "notebooks/07_training.ipynb",
    "notebooks/11_scaling.ipynb",
    "notebooks/09_pretrained.ipynb",
    "notebooks/10_hyperparameters.ipynb",
    "notebooks/08_inspection.ipynb",
    "notebooks/04_encoder.ipynb",
    "notebooks/05_vit.ipynb",
    "notebooks/00_start_here.ipynb",
    "tests/cli/test_command_table.py",
    "tests/cli/test_train.py",
    "tests/microvit/test_microvit.py",
    "tests/tools/test_book.py",
    "tests/live/test_visit.py",
    "tests/live/test_tour.py",
    "tests/notebooks/test_pages.py",
    "tests/live/test_strip.py",
    "tests/tools/test_classroom.py",
    "tests/tools/test_publish.py",
)


ROOT = Path(__file__).parents[1]
MARKED = {  # markers of what is no file of tests
    ROOT / "tools": "dev",
    ROOT / "notebooks" / "further": "further",
    ROOT / "notebooks" / "solutions": "further",
}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by markers
def pytest_collection_modifyitems(items):
    """Mark examples in tools, and notebooks; longest files first, then notebooks in their order"""
    for item in items:
        for folder, marker in MARKED.items():
            if item.path.is_relative_to(folder):
                item.add_marker(marker)
    order = {name: number for number, name in enumerate(LONGEST)}

    def position(item):
        path = item.nodeid.partition("::")[0]
        return order.get(path, len(LONGEST) + (item.path.suffix != ".ipynb"))

    items.sort(key=position)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # libraries complain of what is left behind


@pytest.fixture(autouse=True, scope="session")
def skip_where_links_need_a_privilege():
    """Windows refuses links to most of its users: what needs one is skipped there."""
    link, denied = Path.symlink_to, 1314  # the number of this error

    def link_or_skip(self, *args, **options):
        try:
            link(self, *args, **options)
        except OSError as error:
            if getattr(error, "winerror", None) == denied:
                pytest.skip("Windows wants a privilege for links")
            raise

    with mock.patch.object(Path, "symlink_to", link_or_skip) if os.name == "nt" else nullcontext():
        yield


@pytest.fixture(autouse=True)
def seed():
    import torch

    # the CPU's: torch.manual_seed would first write down where it was called
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def no_cached_images(monkeypatch):
    """Leave the cache folder of whoever runs the tests as it is."""
    if cache := sys.modules.get("vit_helpers.data.cache"):
        monkeypatch.setattr(cache, "CACHE_BYTES", 0)


@pytest.fixture(scope="module")
def no_figures():
    """Trainings draw nothing, which takes longer than a few steps; cli/test_train.py does."""
    with mock.patch("vit_helpers.cli.train.draw_results"):
        yield


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="module")
def chromium():
    """A browser without a screen, for the tests of a file"""
    from browser import browser

    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def live_address(tmp_path_factory):
    """Where the live page is, as the command writes it, but without links to a repository"""
    from vit_helpers.live.page import live_page

    path = tmp_path_factory.mktemp("live") / "live.html"
    path.write_text(live_page(address=""), encoding="utf-8")
    return path.as_uri()
