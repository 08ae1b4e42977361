"""Modules as answers: the same input gives the same output."""

import pytest
import torch
from torch import nn

from vit_helpers.checks.engine import modules, report


class Steady(nn.Module):
    """A right module, and places to go wrong"""

    def __init__(self, change=lambda self, x: x):
        super().__init__()
        self.change = change

    def forward(self, x):
        return 2 * self.change(self, x)


def keeps(self, x):
    self.first = getattr(self, "first", x)
    return self.first


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda self, x: x.add_(1), "changes its input"),
        (lambda self, x: x.add_(torch.rand(3)), "changes its input"),
        (lambda self, x: x + torch.rand(3), "something is random inside forward"),
        (lambda self, x: nn.functional.dropout(x, 0.5, self.training), "in training mode"),
        (lambda self, x: x + self.training, "different results in training mode"),
        (lambda self, x: x * 0, "the same result for another input"),
        (keeps, "the same result for another input"),
        (lambda self, x: x[:1], "gives shape (1, 3) in evaluation mode"),
        (lambda self, x: x * 1j, "gives complex numbers"),
    ],
)
def test_modules_are_steady(change, says):
    x = torch.randn(2, 3)
    modules.expect_steady(Steady(), x, (2, 3))
    with pytest.raises(report.Mistake) as mistake:
        modules.expect_steady(Steady(change), x, (2, 3))
    assert says in str(mistake.value)
