"""What people give: sizes are whole numbers or pairs of them, pixels are floating point."""

import pytest
import torch

from vit_helpers._validate import check_floating, to_2tuple


@pytest.mark.parametrize("size", [3.5, "32", (1, 2, 3), (8.0, 8), None, True])
def test_a_size_is_a_whole_number_or_a_pair(size):
    with pytest.raises(TypeError, match="whole number"):
        to_2tuple(size)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_pixels_are_floating_point(dtype):
    for right in (torch.float16, torch.float32, torch.float64):
        check_floating(torch.ones(1, dtype=right))
    with pytest.raises(TypeError, match=f"got {dtype}: scale them first"):
        check_floating(torch.ones(1, dtype=dtype))
