"""An exercise as data: what is right, what to try, and whole wrong answers with their messages.

A check compares an answer with the reference in every case, and names the wrong answer of the
table that gives the same, if the results prove it. The tests hand in the same table: each wrong
answer must get exactly its own message.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.engine.compare import (
    KEPT,
    equal,
    expect_digits,
    expect_tensor,
    is_float,
    is_number,
    same,
)
from vit_helpers.checks.engine.contract import RANDOM, expect_contract
from vit_helpers.checks.engine.proof import ENOUGH, known_by_numbers, known_by_shape, same_shape
from vit_helpers.checks.engine.report import (
    Function,
    Mistake,
    first_line,
    raised,
    reject_if,
    run_check,
    short,
    trying,
)
from vit_helpers.checks.engine.traces import ask

Arguments = tuple[Any, ...]  # the arguments of an answer
Parts = Mapping[str, Any]  # what an answer gives, by name; a single result has the name ""
COUNTS = ["no", "one", "two", "three", "four", "five", "six"]


@dataclass(frozen=True)
class Case:
    """Arguments to try.

    draw: makes them, with other values at every call
    when: the case in words, instead of the exercise's
    hint: advice for an answer that raises an error here
    """

    draw: Callable[[], Arguments]
    when: str = ""
    hint: str = ""


def cases(*tuples: Arguments) -> list[Case]:
    """Make a case of each tuple of arguments."""
    return [Case(partial(tuple, args)) for args in tuples]


def fixed(*args: Any) -> Case:
    """Make a case with the same arguments at every call."""
    return Case(lambda: args)


@dataclass(frozen=True)
class Outcome:
    """What an answer gives, and when it is right.

    returns : names of several results, in order; a single result needs none
    compared: the results that are compared, in this order; all if it is empty
    observe : (answer, *args) -> {name: what is compared}, if that is not what the answer returns
    also    : other whole right answers, whose numbers differ: a small eps, n instead of n - 1
    wider   : the results that may be float64 where float32 came in
    close   : (got, right) -> whether a tensor is right
    rtol    : how far a number may be off, as a share of it; 0: five digits, whole numbers exactly
    """

    returns: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    observe: Callable[..., Parts] | None = None
    also: Sequence[Function] = ()
    wider: tuple[str, ...] = ()
    close: Callable[[Any, Any], bool] = same
    rtol: float = 0.0


def shape_in_words(*args: Any) -> str:
    """Say for which shape of the first argument a result was asked."""
    return f"for shape {tuple(args[0].shape)}"


@dataclass(frozen=True)
class Wording:
    """What a learner reads about a wrong answer.

    when   : (*args) -> the arguments in words
    says   : the sentence about a wrong result, with {part}, {when}, {got}, {right}, {message} and
             {0}, {1}, ... for the arguments; or (part, got, right, message, *args) -> the sentence
    odd    : (got, right, *args) -> the message if a result that no mistake gives is odd, or None
    unknown: the message for any other result, or a function like `odd` that makes it, or one of
             the two for each name in `returns`
    kind   : what the result should be
    depends: on what a number depends, for the answer that gives the same everywhere
    fresh  : the message about numbers that are others at every call
    model  : what a module among the arguments is called
    hints  : {part of an error: the way out}
    """

    when: Callable[..., str] = shape_in_words
    says: str | Callable[..., str] = ""
    odd: Callable[..., str | None] | None = None
    unknown: str | Callable[..., str] | dict[str, Any] = (
        "the shape is right, but the numbers are not"
    )
    kind: str = "a number"
    depends: str = ""
    fresh: str = RANDOM
    model: str = "model"
    hints: Mapping[str, str] = field(default_factory=dict)

    def sentence(
        self, part: str, got: Any, right: Any, message: str, when: str, args: Arguments
    ) -> str:
        """Write the sentence about a wrong result."""
        if callable(self.says):
            return self.says(part, got, right, message, *args)
        usual = "gives {got} {when} instead of {right}: {message}"
        if isinstance(right, Tensor):
            usual = "{part} {when}: {message}"
        values = {"got": as_written(got), "right": as_written(right)}
        template = self.says or usual
        return template.format(*args, part=part, when=when, message=message, **values).strip()

    def about_unknown(self, part: str, got: Any, right: Any, args: Arguments) -> str:
        """Give the message about a result of which nothing better is known."""
        unknown = self.unknown[part] if isinstance(self.unknown, dict) else self.unknown
        return unknown if isinstance(unknown, str) else unknown(got, right, *args)


@dataclass(frozen=True)
class Contract:
    """What a good answer keeps, whatever its numbers are; `contract.expect_contract` tries it.

    case          : the arguments it is tried with, if not those of the first case
    differentiable: whether gradients have to flow
    large         : factor for inputs outside of the comfortable range; 0: such are not tried
    changes       : places of the arguments that an answer may change
    batch         : from how many axes on the first one holds images, which must not mix
    """

    case: Case | None = None
    differentiable: bool = True
    large: float = 10.0
    changes: tuple[int, ...] = ()
    batch: int = 99


@dataclass(frozen=True)
class Exercise:
    """A function to be written, and all that its check and the tests need to know about it.

    reference: a right answer
    ideas    : {what is right: cases, or functions of exercise and answer that raise `Mistake`};
               tried in this order. The contract is tried in the idea that holds
               `expect_contract`, or in the last
    mistakes : {message: a whole wrong answer}; one that gives what the answer gives is named, if
               two tries agree and none differs (`proof`). A message may hold {when}, and {0},
               {1}, ... for the arguments
    """

    name: str
    reference: Function
    ideas: Mapping[str, Sequence[Any]]
    mistakes: Mapping[str, Function]
    outcome: Outcome = Outcome()
    wording: Wording = Wording()
    contract: Contract = Contract()

    def check(self, answer: Any) -> bool:
        """Try an answer and print a line for each idea; True only when every idea is right."""
        trials = [(idea, partial(self.try_items, items)) for idea, items in self.plan().items()]
        return run_check(self.name, answer, trials)

    def plan(self) -> dict[str, list[Any]]:
        """List what is tried for each idea, the contract among it."""
        ideas = {idea: list(items) for idea, items in self.ideas.items()}
        if not any(expect_contract in items for items in ideas.values()):
            ideas[list(ideas)[-1]].append(expect_contract)
        return ideas

    def cases(self) -> list[Case]:
        """List all cases of all ideas."""
        return [item for items in self.ideas.values() for item in items if isinstance(item, Case)]

    # Trying an answer

    def try_items(self, items: Iterable[Any], answer: Function) -> None:
        """Try one idea: every case with two draws, then the first once more.

        raises: Mistake if the answer is wrong
        """
        tried: list[tuple[Case, Arguments]] = []
        for item in items:
            if not isinstance(item, Case):
                item(self, answer)
                continue
            for args in (item.draw(), item.draw()):
                if not tried or not equal(args, tried[-1][1]):
                    self.try_case(answer, item, args)
                    tried.append((item, args))
        if tried:
            self.try_case(answer, *tried[0])

    def try_case(self, answer: Function, case: Case, args: Arguments) -> None:
        """Raise Mistake unless an answer is right for these arguments."""
        when = case.when or self.wording.when(*args)
        right = self.parts(self.reference, args)
        try:
            with trying(when):
                got = self.formed(self.call(answer, args), right, when, answer, args)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            self.advise(error, case)
            raise
        right = self.right_for(got, right, args)
        for part in self.outcome.compared or right:
            if not self.is_right(got[part], right[part]):
                self.name_mistake(answer, case, args, part, got[part], right[part], when)

    def advise(self, error: Exception, case: Case) -> None:
        """Raise Mistake with the way out of an answer's error, if one is known."""
        self.give_hint(error)
        if case.hint and not isinstance(error, TypeError):
            error_in_words = f"raises {type(error).__name__}: {first_line(error)}"
            raise Mistake(case.hint.format(error=error_in_words)) from error

    def give_hint(self, error: Exception) -> None:
        """Raise Mistake with the exercise's own hint for an error, if it has one."""
        for fragment, hint in self.wording.hints.items():
            if fragment in str(error):
                raise Mistake(f"{raised(error).rstrip('.')}. {hint}") from error

    def try_form(self, answer: Function, args: Arguments) -> None:
        """Raise Mistake unless there are as many results as there should be, of the right form."""
        right, when = self.parts(self.reference, args), self.wording.when(*args)
        try:
            with trying(when):
                self.formed(self.call(answer, args), right, when, answer, args)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            self.give_hint(error)
            raise

    def call(self, answer: Function, args: Arguments) -> Any:
        """Return what an answer gives, or a dictionary if the exercise observes more than that."""
        observe = self.outcome.observe
        observed = partial(observe, answer) if observe else answer
        return ask(observed, *args, changes=self.contract.changes, model=self.wording.model)

    def parts(self, function: Function, args: Arguments) -> Parts:
        """Return what a right or wrong answer of ours gives, part by part."""
        got = self.call(function, args)
        if self.outcome.observe:
            return dict(got)
        if len(self.outcome.returns) > 1:
            return dict(zip(self.outcome.returns, got, strict=True))
        return {"": got}

    def tried(self, answer: Function, args: Arguments) -> Parts | None:
        """Return `parts`; None if an answer raises an error or gives another number of results."""
        with suppress(Exception):
            return self.parts(answer, args)
        return None

    # Comparing

    def is_right(self, got: Any, right: Any) -> bool:
        """Tell whether one part of a result is right."""
        return (
            self.outcome.close(got, right) if isinstance(right, Tensor) else self.like(got, right)
        )

    def right_for(self, got: Parts, right: Parts, args: Arguments) -> Parts:
        """Return the right result that an answer agrees with: the reference's, or another one's."""
        if not self.outcome.also or self.agree(got, right):
            return right
        others = (self.parts(answer, args) for answer in self.outcome.also)
        return next((other for other in others if self.agree(got, other)), right)

    def like(self, got: Any, other: Any) -> bool:
        """Tell whether an answer of ours gives this result, rounded as it may be."""
        if isinstance(got, Tensor) and isinstance(other, Tensor):
            if (got.dtype, other.dtype) == (torch.float64, torch.float32):
                got = got.float()
            return equal(got, other.to(got.dtype))
        if self.outcome.rtol and is_float(got) and is_float(other):
            return math.isclose(got, other, rel_tol=self.outcome.rtol)
        return equal(got, other)

    def agree(self, got: Parts | None, other: Parts | None) -> bool:
        """Tell whether two answers give the same, or both raise an error."""
        if got is None or other is None:
            return got is other
        return all(self.like(got[part], other[part]) for part in self.outcome.compared or other)

    # The form of a result

    def formed(
        self, got: Any, right: Parts, when: str, answer: Function, args: Arguments
    ) -> dict[str, Any]:
        """Return the parts of what an answer gave.

        raises: Mistake unless their number, types and shapes are those of the right ones
        """
        parts = self.separated(got, right, when)
        for part, wanted in right.items():
            name = f"as {part} {when}" if part else when
            if isinstance(wanted, Tensor):
                parts[part] = self.formed_tensor(parts[part], part, wanted, name, answer, args)
            elif is_number(wanted) or isinstance(wanted, float):
                self.expect_number(parts[part], wanted, name)
        return parts

    def separated(self, got: Any, right: Parts, when: str) -> dict[str, Any]:
        """Return the results by name; Mistake unless there are as many as there should be."""
        if self.outcome.observe:
            return dict(got)
        if len(self.outcome.returns) > 1:
            self.expect_several(got, right, when)
            return dict(zip(self.outcome.returns, got, strict=True))
        return {"": got}

    def expect_several(self, got: Any, right: Parts, when: str) -> None:
        """Raise Mistake unless an answer gives as many results as it should, in this order."""
        returns = self.outcome.returns
        names = ", ".join(returns)
        wish = f"{when}; return {COUNTS[len(returns)]} results: {names}"
        reject_if(got is None, f"gives nothing back {when}: does it end with return?")
        if isinstance(got, Tensor) or not isinstance(got, (tuple, list)):
            raise Mistake(f"gives {short(got)} {wish}")
        reject_if(len(got) != len(returns), f"gives a {type(got).__name__} of {len(got)} {wish}")
        wanted = [getattr(x, "shape", None) for x in right.values()]
        shapes = [getattr(x, "shape", None) for x in got]
        swapped = shapes == wanted[::-1] != wanted
        reject_if(swapped, f"gives the {returns[-1]} first; return {names} in this order")

    def formed_tensor(
        self, got: Any, part: str, wanted: Tensor, name: str, answer: Function, args: Arguments
    ) -> Tensor:
        """Return one part; Mistake unless it is a tensor of the right shape and type."""
        if isinstance(got, (tuple, list)):
            several = f"a {type(got).__name__} of {len(got)}"
            raise Mistake(f"gives {several} {name}; it should give one tensor")
        self.expect_shape(got, part, wanted, name, answer, args)
        expect_tensor(got, wanted.shape, name)
        keep = f"gives {got.dtype} for {wanted.dtype}; keep the type that came in"
        if part in self.outcome.wider:
            got = got.to(wanted.dtype) if got.dtype == torch.float64 else got
            keep = f"gives {got.dtype} {name}; it should give {wanted.dtype}"
        reject_if(got.dtype != wanted.dtype, keep)
        return got

    def expect_number(self, got: Any, wanted: Any, name: str) -> None:
        """Raise Mistake unless one part is a number, and a whole one where the right one is."""
        reject_if(got is None, "gives nothing back: does it end with return?")
        fits = is_number(got) if isinstance(wanted, int) else is_float(got)
        reject_if(not fits, f"gives {short(got)} {name}; it should give {self.wording.kind}")

    def expect_shape(
        self, got: Any, part: str, wanted: Tensor, name: str, answer: Function, args: Arguments
    ) -> None:
        """Raise a Mistake of its own for a shape that a wrong answer of the table gives, too."""
        if not isinstance(got, Tensor) or got.shape == wanted.shape:
            return
        message = self.explain(answer, args, part, got, known_by_numbers)
        message = message or self.explain(answer, args, part, got, known_by_shape)
        shapes = f"gives shape {tuple(got.shape)} {name}; it should give {tuple(wanted.shape)}"
        reject_if(message, f"{shapes}: {message}")

    # Naming what is wrong

    def name_mistake(
        self,
        answer: Function,
        case: Case,
        args: Arguments,
        part: str,
        got: Any,
        right: Any,
        when: str,
    ) -> None:
        """Raise Mistake with the message for a wrong result."""
        message = self.explain(answer, args, part, got, known_by_numbers)
        if not message and isinstance(got, Tensor):
            self.expect_own(answer, case, args, part, got, when)
        message = message or self.describe(answer, args, part, got, right)
        message = message.replace("{when}", when)
        raise Mistake(self.wording.sentence(part, got, right, message, when, args))

    def explain(
        self, answer: Function, args: Arguments, part: str, got: Any, known: Function
    ) -> str | None:
        """Return the message of the wrong answer that an answer is, if it is known to be one.

        known: `known_by_numbers` or `known_by_shape`
        """
        alike = self.like if known is known_by_numbers else same_shape
        matching = {}
        for message, wrong in self.mistakes.items():
            result = self.tried(wrong, args)
            if result is not None and alike(got, result[part]):
                matching[message] = wrong
        message = known(self, answer, part, matching)
        return message and message.format(*args, when="{when}")

    def describe(self, answer: Function, args: Arguments, part: str, got: Any, right: Any) -> str:
        """Return the message about a result that no mistake of the table gives."""
        odd = self.wording.odd(got, right, *args) if self.wording.odd else None
        if odd:
            return odd
        if isinstance(got, Tensor):
            expect_digits(got, right)
        if self.wording.depends and self.is_constant(answer):
            return f"the same for every size; it should depend on {self.wording.depends}"
        return self.wording.about_unknown(part, got, right, args)

    def is_constant(self, answer: Function) -> bool:
        """Tell whether an answer gives the same in all cases."""
        return len({str(self.tried(answer, case.draw())) for case in self.cases()}) == 1

    def is_kept(self, answer: Function, part: str) -> bool:
        """Tell whether an answer gives the same for all inputs of a case, where they differ."""
        alike = []
        for case in [*self.cases(), *self.cases()]:
            args, other = case.draw(), case.draw()
            right, other_right = self.parts(self.reference, args), self.parts(self.reference, other)
            got, other_got = self.tried(answer, args), self.tried(answer, other)
            if part in right and got and other_got and not equal(right[part], other_right[part]):
                alike.append(is_finite(got[part]) and equal(got[part], other_got[part]))
        return len(alike) >= ENOUGH and all(alike)

    def expect_own(
        self, answer: Function, case: Case, args: Arguments, part: str, got: Tensor, when: str
    ) -> None:
        """Raise Mistake if a result belongs to other inputs: it was kept, or images mix."""
        again = self.tried(answer, args)
        reject_if(again and not equal(got, again[part]), self.wording.fresh)
        reject_if(self.is_kept(answer, part), KEPT)
        if getattr(args[0], "ndim", 0) < self.contract.batch or not 1 < len(got) == len(args[0]):
            return
        for image in (0, len(got) - 1):
            mixed = self.tried(answer, tuple(others_changed(x, len(got), image) for x in args))
            change = f"changing the other images changes image {image}'s {part or 'result'}"
            moved = mixed and not same(mixed[part][image], got[image])
            reject_if(moved, f"images mix {when}: {change}")


def forms(exercise: Exercise, answer: Function, cases: Sequence[Case] = ()) -> None:
    """Raise Mistake unless results have the right form in every case; numbers may differ."""
    for case in cases or exercise.cases():
        exercise.try_form(answer, case.draw())


def as_written(value: Any) -> Any:
    """Return a number as a reader writes it, without a decimal point if it is whole."""
    return int(value) if is_number(value) else value


def is_finite(value: Any) -> bool:
    """Tell whether a result has no NaN and nothing infinite, which tell nothing of their inputs."""
    return not isinstance(value, Tensor) or bool(value.isfinite().all())


def others_changed(x: Any, length: int, row: int) -> Any:
    """Return a tensor with all rows of its first axis but one changed, if it has that many."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or len(x) != length:
        return x
    changed = 2 * x + 1
    changed[row] = x[row]
    return changed
