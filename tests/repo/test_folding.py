"""A folded test fails where one of its cases does, and its failure names every one that does."""

import re

import pytest
import torch
from folding import all_of, folded

pytestmark = pytest.mark.dev


def failure_of(test, **fixtures):
    with pytest.raises(pytest.fail.Exception) as failed:
        test(**fixtures)
    return str(failed.value).splitlines()


@folded("number", [1, 2, 3, 4], ids=lambda number: f"case {number}")
def odd(number):
    assert number % 2, f"{number} is even"


@folded(("a", "b"), {"x": 1, "y": 0}.items())
def truthy(b, a, more):
    assert b, a + more


@folded("value", ["1", "one"])
def a_number(value):
    int(value)


def test_every_offender_is_named_with_its_line_and_what_it_said():
    first, *others = failure_of(odd)
    assert first == "2 of 4 failed:"
    offenders = [line for line in others if not line.startswith("  ")]  # what follows is indented
    found = [
        re.fullmatch(r"(.+?): test_folding\.py:\d+: (.+)", line).groups() for line in offenders
    ]
    assert found == [("case 2", "2 is even"), ("case 4", "4 is even")]


def test_fixtures_and_several_values_reach_the_test():
    assert failure_of(truthy, more="!")[0] == "1 of 2 failed:"
    assert failure_of(truthy, more="!")[1].startswith("y, 0: test_folding.py:")
    assert "y!" in failure_of(truthy, more="!")[1]


def test_an_error_is_a_failure_with_its_kind():
    _, line = failure_of(a_number)
    assert line.startswith("one: ") and "ValueError(" in line


def test_each_of_folds_in_a_fold_is_named():
    @folded("outer", ["first", "second"])
    def test(outer):
        odd()

    names = [line.strip().partition(":")[0] for line in failure_of(test)]
    assert names.count("case 2") == names.count("case 4") == 2
    assert {"first", "second"} <= {*names}


def test_to_try_nothing_is_a_failure():
    def nothing():
        with all_of():
            pass

    assert failure_of(nothing) == failure_of(folded("x", [])(odd)) == ["nothing was tried"]


def test_a_skip_skips_and_an_interruption_interrupts():
    for error in (KeyboardInterrupt, pytest.skip.Exception):
        with pytest.raises(error), all_of() as attempt, attempt("one"):
            raise error


def test_every_attempt_has_the_same_random_numbers():
    drawn = []
    with all_of() as attempt:
        for number in range(2):
            with attempt(number):
                drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1]


@folded("number", [1, 2])
def test_pytest_gives_a_folded_test_its_fixtures(number, tmp_path):
    """As one test: both cases get the same folder"""
    (tmp_path / str(number)).touch()
    assert len([*tmp_path.iterdir()]) == number
