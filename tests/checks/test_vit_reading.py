"""The lines of timm's file: they are there, and every answer is told what its line does."""

import inspect
import itertools

import pytest
from check_cases.vit import EQUATIONS_RIGHT, EQUATIONS_WRONG
from peers import timm

from vit_helpers.checks.vit_reading import EQUATIONS, LINES, VERSION, check_equations, quote_timm

READ = {letter: line.equation for letter, line in LINES.items()}


def told(answer, capsys):
    right = check_equations(answer)
    return right, capsys.readouterr().out.splitlines()


@pytest.mark.peers
def test_the_lines_are_those_of_timm_in_its_order():
    if timm.__version__ != VERSION:
        pytest.skip(f"the lines are those of timm {VERSION}, here is {timm.__version__}")
    module = timm.models.vision_transformer
    text, last = inspect.getsource(module), 0
    for line in LINES.values():
        name, method = line.method.split(".")
        source = inspect.getsource(getattr(getattr(module, name), method))
        assert line.code in map(str.strip, source.splitlines()), line
        first = text.index(source)
        assert first >= last, line
        last = first


def test_the_quote_has_the_version_every_method_once_and_every_line():
    text = quote_timm()
    assert text.startswith(f"timm {VERSION}, ")
    for method in {line.method for line in LINES.values()}:
        assert text.count(f"in {method}:") == 1
    for letter, line in LINES.items():
        assert f"  {letter}  {line.code}" in text.splitlines()


def test_every_equation_has_a_line_and_some_lines_are_later():
    assert set(READ.values()) == EQUATIONS.keys()


@pytest.mark.parametrize("answer", EQUATIONS_RIGHT)
def test_right_answers_are_confirmed(answer, capsys):
    right, lines = told(answer, capsys)
    assert right is True and len(lines) == len(LINES)
    assert all(line.startswith("[v] equations: ") for line in lines)


@pytest.mark.parametrize(("says", "answer"), EQUATIONS_WRONG.items())
def test_wrong_answers_are_told_what_is_wrong(says, answer, capsys):
    right, lines = told(answer, capsys)
    assert right is False and any(says in line for line in lines), lines
    assert not all(line.startswith("[v]") for line in lines)


def test_every_wrong_equation_is_told_what_the_line_does(capsys):
    for letter, named in itertools.product(LINES, EQUATIONS):
        if named == READ[letter]:
            continue
        right, lines = told(READ | {letter: named}, capsys)
        (wrong,) = [line for line in lines if not line.startswith("[v]")]
        assert right is False and wrong.startswith(f"[x] equations: {letter}: ")
        assert EQUATIONS[named] in wrong and LINES[letter].does in wrong
