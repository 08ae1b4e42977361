"""Trainings on folders: no new photo is shared by what chooses and what is reported."""

import pytest
import torch

from tools.experiments import folder_runs
from vit_helpers.data import Data, Split

pytestmark = pytest.mark.dev


@pytest.fixture
def few_photos(monkeypatch):
    """400 images of two classes in each split instead of CIFAR-10, read once"""
    torch.manual_seed(0)
    part = Split(torch.rand(400, 3, 32, 32), torch.arange(400) % 2)
    data = Data.from_splits("few", part, part, part, ["cat", "dog"])
    monkeypatch.setattr(folder_runs, "load_all", lambda *_: data)
    monkeypatch.setattr(folder_runs, "NEW", 150)
    case = {"photos": 20, "classes": ["dog", "cat"], "image_size": 32, "patch": 16, "epochs": 1}
    monkeypatch.setitem(folder_runs.CASES, "a moment", case)


def test_what_chooses_shares_no_new_photo_with_what_is_reported(few_photos):
    case = folder_runs.CASES["a moment"]
    parts = [
        {image.numpy().tobytes() for image in data.test.pixels}
        for part in (0, 1)
        for _, data in [folder_runs.settings_and_data(case, "cifar10", seed=0, part=part)]
    ]
    assert len(parts[0]) == len(parts[1]) == 150 and not parts[0] & parts[1]
