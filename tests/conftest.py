"""Two tests run side by side on two cores: one thread each, and none of them waits by spinning."""

import atexit
import gc
import os
import sys
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

# until all tests are collected: what is imported stays, and looking through it takes seconds
gc.disable()

LONGEST = (  # collected first, so that none of them is left to one of two workers at the end
    "test_cells_twice.py",
    "test_checks_engine.py",
    "test_distributed.py",
    "test_execute.py",
    "07_training.ipynb",
    "11_scaling.ipynb",
    "09_pretrained.ipynb",
    "10_hyperparameters.ipynb",
    "test_commands.py",
    "08_inspection.ipynb",
    "04_encoder.ipynb",
    "05_vit.ipynb",
    "00_start_here.ipynb",
    "test_leftovers.py",
    "test_types.py",
    "test_jupyterlab.py",
    "test_classroom.py",
    "test_book.py",
    "test_pages.py",
)


def pytest_collection_modifyitems(items):
    """Longest files first, then the other notebooks; within a file the order stays"""
    order = {name: number for number, name in enumerate(LONGEST)}

    def position(item):
        return order.get(item.path.name, len(LONGEST) + (item.path.suffix != ".ipynb"))

    items.sort(key=position)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """Give each worker whole files, but the notebooks of the longest file one by one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if LONGEST[0] in nodeid else super()._split_scope(nodeid)

    return Scheduling(config, log)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # libraries complain of what is left behind


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
    """Trainings draw nothing, which takes longer than a few steps; test_commands.py tests it."""
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
