"""What all checks share: they never raise, leave no trace, and tell an answer not written from one that fails."""

import pytest
import torch
from torch import nn

from vit_helpers.attention import MultiHeadAttention, attention
from vit_helpers.checks import marks
from vit_helpers.checks.attention import check_attention, check_mask, check_mend, check_multi_head, check_split_heads
from vit_helpers.checks.embeddings import check_add_class_token, check_patch_embed, check_resize_positions, check_token_embed
from vit_helpers.checks.marks import check, short
from vit_helpers.checks.patches import check_mended, check_patchify, check_unpatchify
from vit_helpers.embeddings import PatchEmbed, TokenEmbed, resize_positions
from vit_helpers.patches import patchify, unpatchify


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
        (raises(StopIteration()), "[x] x: works: raises StopIteration (next() found nothing left)"),
        (lambda: next(iter([])), "[x] x: works: raises StopIteration (next() found nothing left)"),
        (lambda: torch.ones(1, requires_grad=True).mul_(2), "[x] x: works: raises RuntimeError: a leaf Variable"),
        (
            lambda: torch.ones(6).reshape(4),
            "[x] x: works: raises RuntimeError: shape '[4]' is invalid for input of size 6 (the",
        ),
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


def test_a_check_is_silent_beside_several_gpus(monkeypatch, recwarn):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check_patchify(patchify) is True and not recwarn.list


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
    assert marks.same(got, wanted) == right
    assert marks.same(got, wanted, atol=1e-4) == (right or (got.shape == wanted.shape and not got.isnan().any()))


def test_lost_digits_have_words_of_their_own():
    assert marks.differ(THIRD, THIRD) is False
    assert marks.differ(THIRD, THIRD + 1) is True
    with pytest.raises(marks.Slip, match="loses digits"):
        marks.differ(THIRD.float().double(), THIRD)


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
        (lambda self, x: x + torch.rand(3), "drawn at random inside forward"),
        (lambda self, x: nn.functional.dropout(x, 0.5, self.training), "in training mode"),
        (lambda self, x: x + self.training, "something else in training mode"),
        (lambda self, x: x * 0, "the same result for another input"),
        (keeps, "the same result for another input"),
        (lambda self, x: x[:1], "gives shape (1, 3) in evaluation mode"),
        (lambda self, x: x * 1j, "gives complex numbers"),
    ],
)
def test_modules_are_steady(change, says):
    x = torch.randn(2, 3)
    marks.expect_steady(Steady(), x, (2, 3))
    with pytest.raises(marks.Slip) as slip:
        marks.expect_steady(Steady(change), x, (2, 3))
    assert says in str(slip.value)


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
    """No accelerator here: torch's meta device stands for one, it has shapes and refuses tensors of the CPU"""
    x = torch.ones(2, 3)

    def words(answer, right=joined_there):
        with pytest.raises(marks.Slip) as slip:
            marks.expect_anywhere(answer, right, x)
        return str(slip.value)

    monkeypatch.setattr(marks, "accelerators", lambda: [torch.device("meta")])
    marks.expect_anywhere(joined_there, joined_there, x)
    marks.expect_anywhere(nn.Linear(3, 3), nn.Linear(3, 3), x)
    marks.expect_anywhere(joined, joined, x)  # where the right answer itself fails, nobody is to blame
    assert "for tensors on meta it raises RuntimeError" in words(joined)
    assert "device=x.device" in words(joined)
    assert "for tensors on meta it raises" in words(Plain(), nn.Linear(3, 3))
    assert "gives a tensor on cpu for tensors on meta" in words(lambda x: torch.zeros(2, 4))
    assert "gives a tensor on cpu for tensors on meta" in words(lambda x: (x, torch.zeros(2, 4)))
    monkeypatch.setattr(marks, "accelerators", list)
    marks.expect_anywhere(joined, joined_there, x)


def spoilt(right):
    """The right answer, which adds a tensor of the CPU"""

    def answer(*given):
        got = right(*given)
        first, *rest = got if isinstance(got, tuple) else [got]
        first = first + torch.zeros(first.shape, dtype=first.dtype)
        return (first, *rest) if rest else first

    return answer


class Spoilt(MultiHeadAttention):
    def forward(self, x):
        return spoilt(super().forward)(x)


class SpoiltEmbed(PatchEmbed):
    def __init__(self, P, C, D):
        super().__init__(1, 1, C * P * P, D)
        self.P = P

    def forward(self, x):
        return spoilt(self.proj)(patchify(x, self.P))


class SpoiltTokens(TokenEmbed):
    def __init__(self, *sizes):
        (*_, D), positions = sizes, "learned" if len(sizes) == 2 else "none"
        super().__init__((1, sizes[0]), D, positions=positions)

    def forward(self, x):
        return spoilt(super().forward)(x)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_patchify, spoilt(patchify)),
        (check_unpatchify, spoilt(unpatchify)),
        (check_mended, spoilt(lambda x, P: patchify(x, P).unflatten(2, (-1, P, P)))),
        (check_attention, spoilt(attention)),
        (check_mask, spoilt(attention)),
        (check_split_heads, spoilt(lambda x, h: x.unflatten(2, (h, -1)).transpose(1, 2))),
        (check_resize_positions, spoilt(resize_positions)),
        (check_multi_head, Spoilt),
        (check_mend, Spoilt),
        (check_patch_embed, SpoiltEmbed),
        (check_add_class_token, SpoiltTokens),
        (check_token_embed, SpoiltTokens),
    ],
)
def test_every_check_of_tensors_asks_for_the_device(check, answer, capsys, monkeypatch):
    monkeypatch.setattr(marks, "accelerators", list)
    assert check(answer), capsys.readouterr().out
    monkeypatch.setattr(marks, "accelerators", lambda: [torch.device("meta")])
    assert not check(answer)
    assert "right on the CPU, but for tensors on meta" in capsys.readouterr().out
