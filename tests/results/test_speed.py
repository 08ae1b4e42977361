"""The stored speed-ups: which changes are told."""

import pytest

from vit_helpers.results.speed import ratios_of

pytestmark = pytest.mark.dev


def test_changes_are_sorted_and_the_hidden_units_left_out():
    ratios = [ratio for ratio, _, _ in ratios_of("speed").values()]
    assert len(ratios) == 8 and ratios == sorted(ratios, reverse=True) and min(ratios) > 1
