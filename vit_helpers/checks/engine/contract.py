"""What every good answer has to respect, whatever the exercise: types, states, gradients, devices, and errors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from vit_helpers.checks.engine.compare import (
    bounded,
    equal,
    expect_anew,
    expect_anywhere,
    expect_gradient,
)
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, short
from vit_helpers.checks.engine.traces import ask

RANDOM = "gives a different result when it is called again: is something in it random?"
ORDER = "gives a different result when the calls come in another order: is something kept between calls?"


def floats(given: Sequence[Any]) -> list[int]:
    """The places of floating-point tensors among arguments."""
    return [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.is_floating_point()]


def cast(given: Sequence[Any], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Arguments with every floating-point tensor changed."""
    return tuple(change(x) if i in floats(given) else x for i, x in enumerate(given))


def contract(exercise: Any, answer: Function) -> None:
    """Raise Mistake unless an answer keeps types, repeats itself, passes gradients and works on any device."""
    case = exercise.contract_case or exercise.cases()[0]
    given = case.draw()
    if exercise.observe is None and floats(given):
        when = exercise.when(*given)
        wide = cast(given, lambda x: x.double())
        exercise.try_case(answer, replace(case, when=f"{when} in float64"), wide)
        if exercise.large:
            big = cast(given, lambda x: exercise.large * x.double())
            exercise.try_case(
                answer,
                replace(case, when=f"{when} with numbers {exercise.large:g} times as large"),
                big,
            )
        first, again, other = (ask(answer, *x) for x in (given, given, case.draw()))
        reject_if(not equal(first, again), RANDOM)
        expect_anew(main(first), main(other))
        if exercise.differentiable:
            expect_gradients(exercise, answer, case.draw())
        try:
            expect_anywhere(answer, exercise.reference, *given)
        except (
            Mistake
        ) as mistake:  # numpy stays on the CPU, and is welcome where no gradient is asked for
            if exercise.differentiable or "numpy" not in str(mistake):
                raise
    asked = [
        (given, exercise.tried(exercise.reference, given))
        for given in (each.draw() for each in exercise.cases())
    ]
    for given, right in [*asked[::-1], *asked]:
        got = exercise.tried(answer, given)
        reject_if(
            got is None or not exercise.agree(got, exercise.right_for(got, right, given)), ORDER
        )


def main(got: Any) -> Any:
    """The first of several results."""
    return got[0] if isinstance(got, (tuple, list)) else got


def expect_gradients(exercise: Any, answer: Function, given: tuple[Any, ...]) -> None:
    """Raise Mistake unless the main result passes the right gradient to every input, each asked for alone."""
    for place in floats(given):
        alone = cast(given, lambda x: x.detach())
        source = alone[place].requires_grad_()
        right = main(exercise.reference(*alone))
        if right.requires_grad:
            expect_gradient(main(answer(*alone)), right, source)


@dataclass(frozen=True)
class Raises:
    """Arguments for which an answer has to raise an error; `words`: (result in words, *arguments) -> what to say else."""

    given: Sequence[tuple[Any, ...]]
    words: Callable[..., str]
    error: type[Exception] = ValueError

    def __call__(self, exercise: Any, answer: Function) -> None:
        """Raise Mistake unless the error is raised for all of them."""
        for given in self.given:
            try:
                got = bounded(answer(*given))  # a generator raises when it is asked
            except self.error:
                continue
            except NotImplementedError:
                raise
            except Exception as error:
                words = f"raises {type(error).__name__} {exercise.when(*given)}; it should be a {self.error.__name__}"
                raise Mistake(words) from error
            raise Mistake(self.words(short(got), *given))
