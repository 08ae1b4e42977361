"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math

import numpy as np
import pytest
import torch

from vit_helpers.checks.start_here import check_num_tokens

RIGHT = [
    lambda H, P: (H // P) ** 2 + 1,
    lambda H, P: H * H // (P * P) + 1,
    lambda image_size, patch_size, class_token=True: (image_size / patch_size) ** 2 + 1,
    lambda H, P: len([(r, c) for r in range(0, H, P) for c in range(0, H, P)]) + 1,
    lambda H, P: np.int64((H // P) ** 2 + 1),
    lambda H, P: torch.nn.functional.unfold(torch.zeros(1, 1, H, H), P, stride=P).shape[-1] + 1,
    lambda H, P: math.prod((H // P, H // P)) + 1,
]


def not_written(H, P):
    raise NotImplementedError


def asserts(H, P):
    assert H < P, "nonsense"


def endless(H, P):
    return endless(H, P)


WRONG = [
    (not_written, "[ ] num_tokens: not written yet"),
    (lambda H, P: (H // P) ** 2, "the class token is missing"),
    (lambda H, P: H // P, "that is one row of patches;"),
    (lambda H, P: H // P + 1, "one row of patches and the class token"),
    (lambda H, P: H * H, "counts pixels"),
    (lambda H, P: P * P, "pixels of one patch"),
    (lambda H, P: H * H // P + 1, "divide by P twice, then add 1"),
    (lambda H, P: 17, "the same for every size"),
    (lambda H, P: {(8, 2): 17, (224, 16): 197}.get((H, P), H - P), "count the patches along one side first"),
    (lambda H, P: None, "does it end with return?"),
    (lambda H, P: (H // P) ^ 2 + 1, "a square is written **"),
    (lambda H, P: ((H // P) ^ 2) + 1, "a square is written **"),
    (lambda H, P: "17", "gives '17'"),
    (lambda H, P: math.nan, "gives nan"),
    (lambda H, P: torch.zeros(3), "it should give a whole number"),
    (lambda H: 17, "raises TypeError"),
    (asserts, "raises AssertionError: nonsense"),
    (endless, "raises RecursionError"),
    (197, "got 197; hand over the function itself"),
    (None, "hand over the function itself"),
]


@pytest.mark.parametrize("answer", RIGHT)
def test_right_answers_pass(answer, capsys):
    assert check_num_tokens(answer) is True
    assert capsys.readouterr().out.startswith("[v]")


@pytest.mark.parametrize(("answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(answer, says, capsys):
    assert check_num_tokens(answer) is False
    out = capsys.readouterr().out
    assert says in out and out.count("\n") == 1
