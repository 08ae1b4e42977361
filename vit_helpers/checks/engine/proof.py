"""Which wrong answer of a table an answer is, as far as its results tell.

A cause is named only if it is known: the results agree in two tries, and differ in none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vit_helpers.checks.engine.compare import equal
from vit_helpers.checks.engine.report import Function

ENOUGH = 2  # tries that agree, before a cause is named
Alike = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Try:
    """One try of an answer; `got` is None where it raises an error."""

    args: tuple[Any, ...]
    got: Mapping[str, Any] | None
    right: Mapping[str, Any]


def tries(exercise: Any, answer: Function) -> list[Try]:
    """Try an answer in every case of an `Exercise`, twice where a case draws other arguments."""
    drawn: list[tuple[Any, ...]] = []
    for case in exercise.cases():
        for args in (case.draw(), case.draw()):
            if not drawn or not equal(args, drawn[-1]):
                drawn.append(args)
    return [
        Try(args, exercise.tried(answer, args), exercise.parts(exercise.reference, args))
        for args in drawn
    ]


def agreeing(
    exercise: Any, wrong: Function, part: str, seen: Sequence[Try], alike: Alike
) -> list[Any]:
    """Return the results that a wrong answer shares with the answer; none if one differs.

    Results that are right say nothing, nor do errors.
    """
    shared = []
    for one in seen:
        other = exercise.tried(wrong, one.args)
        if one.got is None or other is None or part not in one.right:
            continue
        if not alike(one.got[part], other[part]):
            return []
        if not alike(other[part], one.right[part]):
            shared.append(one.got[part])
    return shared


def same_shape(got: Any, other: Any) -> bool:
    """Tell whether two results are tensors of one shape."""
    return isinstance(got, Tensor) and isinstance(other, Tensor) and got.shape == other.shape


def known_by_numbers(
    exercise: Any, answer: Function, part: str, wrongs: Mapping[str, Function]
) -> str | None:
    """Return the message of the wrong answer that gives what an answer gives, if one is known.

    Of several, it is the one that agrees in the most tries, in all parts of the result if it can.
    """
    if not wrongs:
        return None
    seen = tries(exercise, answer)
    scores = {}
    for message, wrong in wrongs.items():
        shared = len(agreeing(exercise, wrong, part, seen, exercise.like))
        if shared >= ENOUGH:
            whole = sum(exercise.agree(one.got, exercise.tried(wrong, one.args)) for one in seen)
            scores[message] = (whole, shared)
    return max(scores, key=lambda message: scores[message]) if scores else None


def known_by_shape(
    exercise: Any, answer: Function, part: str, wrongs: Mapping[str, Function]
) -> str | None:
    """Return the message of the only wrong answer that gives the shapes an answer gives."""
    if not wrongs:
        return None
    seen = tries(exercise, answer)
    shapes = {
        message: {got.shape for got in agreeing(exercise, wrong, part, seen, same_shape)}
        for message, wrong in wrongs.items()
    }
    known = [message for message, found in shapes.items() if len(found) >= ENOUGH]
    return known[0] if len(known) == 1 else None
