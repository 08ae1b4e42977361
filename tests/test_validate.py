"""Sizes that people give: whole numbers, or pairs of them."""

import pytest

from vit_helpers._validate import to_2tuple


@pytest.mark.parametrize("size", [3.5, "32", (1, 2, 3), (8.0, 8), None, True])
def test_a_size_is_a_whole_number_or_a_pair(size):
    with pytest.raises(TypeError, match="whole number"):
        to_2tuple(size)
