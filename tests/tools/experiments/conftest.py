"""A few photos for experiments that train on folders"""

import pytest
import torch

from tools.experiments import folder_runs
from vit_helpers.data.splits import Data, Split


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
