"""What every good answer respects, whatever the exercise: types, gradients, devices, and errors."""

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
ORDER = (
    "gives a different result when the calls come in another order: "
    "is something kept between calls?"
)


def floats(args: Sequence[Any]) -> list[int]:
    """Return the places of floating-point tensors among arguments."""
    return [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.is_floating_point()]


def cast(args: Sequence[Any], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Return arguments with every floating-point tensor changed."""
    return tuple(change(x) if i in floats(args) else x for i, x in enumerate(args))


def expect_contract(exercise: Any, answer: Function) -> None:
    """Raise Mistake unless an answer keeps types, passes gradients, repeats itself on any device.

    exercise: an `Exercise`
    """
    case = exercise.contract.case or exercise.cases()[0]
    args = case.draw()
    if exercise.outcome.observe is None and floats(args):
        expect_types_and_sizes(exercise, answer, case, args)
        first, again, other = (ask(answer, *x) for x in (args, args, case.draw()))
        reject_if(not equal(first, again), RANDOM)
        expect_anew(main(first), main(other))
        if exercise.contract.differentiable:
            expect_gradients(exercise, answer, case.draw())
        expect_devices(exercise, answer, args)
    expect_any_order(exercise, answer)


def expect_types_and_sizes(
    exercise: Any, answer: Function, case: Any, args: tuple[Any, ...]
) -> None:
    """Raise Mistake unless an answer is right in float64, and for large numbers."""
    when = exercise.wording.when(*args)
    wide = cast(args, lambda x: x.double())
    exercise.try_case(answer, replace(case, when=f"{when} in float64"), wide)
    if large := exercise.contract.large:
        larger = f"{when} with numbers {large:g} times as large"
        big = cast(args, lambda x: large * x.double())
        exercise.try_case(answer, replace(case, when=larger), big)


def expect_devices(exercise: Any, answer: Function, args: tuple[Any, ...]) -> None:
    """Raise Mistake unless an answer works on an accelerator, where there is one.

    Numpy, which stays on the CPU, is welcome where no gradient is asked for.
    """
    try:
        expect_anywhere(answer, exercise.reference, *args)
    except Mistake as mistake:
        if exercise.contract.differentiable or "numpy" not in str(mistake):
            raise


def expect_any_order(exercise: Any, answer: Function) -> None:
    """Raise Mistake unless an answer is right for all cases in turn, backward and forward."""
    asked = []
    for case in exercise.cases():
        args = case.draw()
        asked.append((args, exercise.tried(exercise.reference, args)))
    for args, right in [*asked[::-1], *asked]:
        got = exercise.tried(answer, args)
        agrees = got is not None and exercise.agree(got, exercise.right_for(got, right, args))
        reject_if(not agrees, ORDER)


def main(got: Any) -> Any:
    """Return the first of several results."""
    return got[0] if isinstance(got, (tuple, list)) else got


def expect_gradients(exercise: Any, answer: Function, args: tuple[Any, ...]) -> None:
    """Raise Mistake unless the main result passes every input, asked alone, the right gradient."""
    for place in floats(args):
        alone = cast(args, lambda x: x.detach())
        source = alone[place].requires_grad_()
        right = main(exercise.reference(*alone))
        if right.requires_grad:
            expect_gradient(main(answer(*alone)), right, source)


@dataclass(frozen=True)
class Raises:
    """Arguments for which an answer has to raise an error.

    tries  : tuples of arguments
    message: (result in words, *args) -> what to say to an answer that raises no error
    """

    tries: Sequence[tuple[Any, ...]]
    message: Callable[..., str]
    error: type[Exception] = ValueError

    def __call__(self, exercise: Any, answer: Function) -> None:
        """Raise Mistake unless the error is raised for all of them."""
        for args in self.tries:
            try:
                got = bounded(answer(*args))  # a generator raises when it is asked
            except self.error:
                continue
            except Exception as error:
                if isinstance(error, NotImplementedError) and "your turn" in str(error):
                    raise
                when = exercise.wording.when(*args)
                wanted = f"it should be a {self.error.__name__}"
                raise Mistake(f"raises {type(error).__name__} {when}; {wanted}") from error
            raise Mistake(self.message(short(got), *args))
