"""An image and attention maps of its patches"""

import pytest
import torch


@pytest.fixture
def image():
    return torch.rand(1, 12, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def maps():
    own = torch.Generator().manual_seed(1)
    return [torch.rand(2, 3, 4, generator=own), torch.rand(2, 3, 4, generator=own) / 10]
