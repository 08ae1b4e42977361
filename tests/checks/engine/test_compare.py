"""Numbers are compared with the tolerance of their type."""

import pytest
import torch

from vit_helpers.checks.engine import compare, report

THIRD = torch.tensor([1.0, 3.0], dtype=torch.float64) / 3


@pytest.mark.parametrize(
    ("got", "wanted", "right"),
    [
        (THIRD, THIRD + 1e-12, True),
        (THIRD, THIRD + 1e-8, False),
        (THIRD.float(), THIRD, True),  # mixed types: to the digits of the shorter one
        (THIRD, THIRD.float(), True),
        (THIRD.float(), THIRD.float() + 1e-6, True),
        (THIRD, THIRD[:1], False),
        (THIRD * torch.nan, THIRD * torch.nan, False),
    ],
)
def test_the_tolerance_follows_the_type(got, wanted, right):
    assert compare.same(got, wanted) == right
    assert compare.same(got, wanted, atol=1e-4) == (
        right or (got.shape == wanted.shape and not got.isnan().any())
    )


def test_lost_digits_have_words_of_their_own():
    compare.expect_digits(THIRD, THIRD)
    compare.expect_digits(THIRD, THIRD + 1)  # other numbers, not lost digits
    with pytest.raises(report.Mistake, match="loses digits"):
        compare.expect_digits(THIRD.float().double(), THIRD)
