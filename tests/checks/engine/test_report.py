"""What all checks share: marks, shortened values, and answers that leave no trace."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from vit_helpers.checks.engine import compare, report
from vit_helpers.checks.engine.traces import generators_restored
from vit_helpers.checks.patches import check_patchify
from vit_helpers.patches import patchify


class Unwritable:
    def __repr__(self):
        raise ValueError("no words")


class UnwritableError(Exception):
    def __str__(self):
        raise ValueError("no words")


def raises(error):
    def answer(*args):
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raises(NotImplementedError()), "[ ] x: not written yet"),
        (raises(NotImplementedError("your turn: replace this line")), "[ ] x: not written yet"),
        (
            raises(NotImplementedError("bicubic needs 4 axes")),
            "[x] x: works: raises NotImplementedError: bicubic",
        ),
        (lambda: nn.Module()(torch.ones(1)), "[x] x: the module has no forward; check its name"),
        (raises(SystemExit(1)), "[x] x: works: raises SystemExit: 1"),
        (raises(UnwritableError()), "[x] x: works: raises UnwritableError: (no message)"),
        (raises(StopIteration()), "[x] x: works: raises StopIteration (next() found nothing left)"),
        (lambda: next(iter([])), "[x] x: works: raises StopIteration (next() found nothing left)"),
        (
            lambda: torch.ones(1, requires_grad=True).mul_(2),
            "[x] x: works: raises RuntimeError: a leaf Variable",
        ),
        (
            lambda: torch.ones(6).reshape(4),
            "[x] x: works: raises RuntimeError: shape '[4]' is invalid for input of size 6 (the",
        ),
        (
            lambda: torch.ones(2, 3, 4).transpose(1, 2).view(2, 12),
            "[x] x: works: raises RuntimeError: view size is not compatible with input tensor's "
            "size and stride (at least one dimension spans across two contiguous subspaces). "
            "(view cannot merge axes",
        ),
        (
            lambda: torch.ones(2) - (torch.ones(2), 0),
            "[x] x: works: raises TypeError: unsupported operand type(s) for -: 'Tensor' and "
            "'tuple' (a tuple is used like a tensor",
        ),
        (3, "[x] x: got 3; pass the function"),
        (Unwritable(), "[x] x: got a Unwritable; pass"),
        (lambda: None, "[v] x: works"),
    ],
)
def test_marks(answer, says, capsys):
    assert report.run_check("x", answer, [("works", lambda answer: answer())]) == says.startswith(
        "[v]"
    )
    assert capsys.readouterr().out.startswith(says)


def test_a_long_value_is_shortened():
    assert len(report.short("a" * 1000)) == 60


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_a_right_answer_is_right_whatever_was_switched_off(switch):
    with switch():
        assert check_patchify(patchify) is True


@pytest.mark.parametrize("right", [True, False])
def test_a_check_leaves_no_trace(right):
    def meddles(images, patch_size):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        return patchify(images, patch_size)

    state = torch.get_rng_state()
    assert check_patchify(patchify if right else meddles) is right
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_drawn_inside_changes_no_random_number_afterwards():
    def states():
        return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]

    before = states()
    with generators_restored():
        torch.rand(3), np.random.rand(3), random.random()
    assert states() == before


def test_a_share_is_the_part_of_the_ideas_that_are_right(capsys):
    assert report.share(check_patchify, patchify) == 1
    assert report.share(check_patchify, lambda images, patch_size: images) == 0


def test_a_check_is_silent_beside_several_gpus(monkeypatch, recwarn):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_patchify(patchify) is True and not recwarn.list


def joined(x):
    return torch.cat([x, torch.zeros(2, 1)], dim=1)


def joined_there(x):
    return torch.cat([x, torch.zeros(2, 1, device=x.device)], dim=1)


class Plain(nn.Module):
    """A table that is no buffer stays behind when the module moves"""

    def __init__(self):
        super().__init__()
        self.table = torch.ones(2, 3)

    def forward(self, x):
        return x + self.table


def test_answers_are_tried_on_an_accelerator_where_there_is_one(monkeypatch):
    """No accelerator here: torch's meta device stands for one.

    It has shapes and refuses tensors of the CPU.
    """
    x = torch.ones(2, 3)

    def message(answer, right=joined_there):
        with pytest.raises(report.Mistake) as mistake:
            compare.expect_anywhere(answer, right, x)
        return str(mistake.value)

    monkeypatch.setattr(compare, "accelerators", lambda: [torch.device("meta")])
    compare.expect_anywhere(joined_there, joined_there, x)
    compare.expect_anywhere(nn.Linear(3, 3), nn.Linear(3, 3), x)
    # where the right answer itself fails, nobody is to blame
    compare.expect_anywhere(joined, joined, x)
    assert "for tensors on meta it raises RuntimeError" in message(joined)
    assert "device=x.device" in message(joined)
    assert "for tensors on meta it raises" in message(Plain(), nn.Linear(3, 3))
    assert "gives a tensor on cpu for tensors on meta" in message(lambda x: torch.zeros(2, 4))
    assert "gives a tensor on cpu for tensors on meta" in message(lambda x: (x, torch.zeros(2, 4)))
    monkeypatch.setattr(compare, "accelerators", list)
    compare.expect_anywhere(joined, joined_there, x)
