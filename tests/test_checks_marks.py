"""What all checks share: they never raise, leave no trace, and tell an answer not written from one that fails."""

import pytest
import torch
from torch import nn

from vit_helpers.checks.marks import check, short
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
        (raises(NotImplementedError("bicubic needs 4 axes")), "[x] x: works: raises NotImplementedError: bicubic"),
        (lambda: nn.Module()(torch.ones(1)), "[x] x: the module has no forward; check its name"),
        (raises(SystemExit(1)), "[x] x: works: raises SystemExit: 1"),
        (raises(UnwritableError()), "[x] x: works: raises UnwritableError: (no message)"),
        (3, "[x] x: got 3; hand over the function"),
        (Unwritable(), "[x] x: got a Unwritable; hand over"),
        (lambda: None, "[v] x: works"),
    ],
)
def test_marks(answer, says, capsys):
    assert check("x", answer, [("works", lambda answer: answer())]) == says.startswith("[v]")
    assert capsys.readouterr().out.startswith(says)


def test_a_long_value_is_shortened():
    assert len(short("a" * 1000)) == 60


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_a_right_answer_is_right_whatever_was_switched_off(switch):
    with switch():
        assert check_patchify(patchify) is True


def test_a_check_leaves_no_trace():
    def meddles(images, patch_size):
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        return patchify(images, patch_size)

    state = torch.get_rng_state()
    check_patchify(meddles)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), state)
