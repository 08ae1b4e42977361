"""What every good answer respects: each rule alone, with an answer that breaks nothing else."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from vit_helpers.checks.engine.compare import expect_gradient
from vit_helpers.checks.engine.contract import (
    expect_any_order,
    expect_gradients,
    expect_types_and_sizes,
)
from vit_helpers.checks.engine.report import Mistake


def exercise(reference, *cases):
    """As much of an exercise as these rules ask for"""
    return SimpleNamespace(
        reference=reference,
        cases=lambda: [SimpleNamespace(draw=lambda case=case: case) for case in cases],
        tried=lambda answer, args: answer(*args),
        right_for=lambda got, right, args: right,
        agree=lambda got, right: got == right,
    )


def test_an_answer_that_is_right_only_while_numbers_grow_depends_on_the_order():
    """As one that keeps a table, and makes it larger but never smaller"""

    def largest_so_far(x):
        nonlocal largest
        largest = max(largest, x)
        return largest

    largest = 0
    with pytest.raises(Mistake, match="order"):
        expect_any_order(exercise(lambda x: x, (1,), (2,), (3,)), largest_so_far)
    expect_any_order(exercise(lambda x: x, (1,), (2,), (3,)), lambda x: x)


@pytest.mark.parametrize("detached", range(3))
def test_the_gradient_of_every_argument_is_asked_for(detached):
    def answer(*args):
        a, b, c = (x.detach() if i == detached else x for i, x in enumerate(args))
        return a * b + c

    asked = exercise(lambda a, b, c: a * b + c)
    args = tuple(torch.rand(3, 4))
    with pytest.raises(Mistake, match="no gradient"):
        expect_gradients(asked, answer, args)
    expect_gradients(asked, asked.reference, args)


@pytest.mark.parametrize("factor", [0.99, 0.999, 1.001, 1.01])
def test_a_gradient_is_wrong_from_a_thousandth_on(factor):
    x = torch.rand(4, requires_grad=True)
    with pytest.raises(Mistake, match="wrong gradient"):
        expect_gradient(x.detach() + factor * (x - x.detach()), x * 1, x)
    expect_gradient(x.detach() + (x - x.detach()) * (1 + 1e-6), x * 1, x)


@dataclass(frozen=True)
class Case:
    when: str = ""


@pytest.mark.parametrize(("large", "numbers"), [(None, [1.5]), (10.0, [1.5, 15.0])])
def test_an_answer_is_asked_in_float64_and_for_large_numbers(large, numbers):
    asked, seen = exercise(None), list[torch.Tensor]()
    asked.wording = SimpleNamespace(when=lambda *args: "")
    asked.contract = SimpleNamespace(large=large)
    asked.try_case = lambda answer, case, args: seen.append(args[0])
    expect_types_and_sizes(asked, None, Case(), (torch.tensor(1.5), 4))
    assert [x.item() for x in seen] == numbers and {x.dtype for x in seen} == {torch.float64}
