"""An exercise as data: what is right, what to try, and whole wrong answers with the message that each deserves.

A check compares an answer with the reference in every case, and names the wrong answer of the table that gives the same.
The tests hand in the same table: each wrong answer must get exactly its own message.
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
from vit_helpers.checks.engine.contract import RANDOM, contract
from vit_helpers.checks.engine.report import (
    Function,
    Mistake,
    first_line,
    raised,
    reject_if,
    run_check,
    short,
)
from vit_helpers.checks.engine.traces import ask

Given = tuple[Any, ...]  # the arguments of an answer
Outcome = Mapping[str, Any]  # what an answer gives, part by part


@dataclass(frozen=True)
class Case:
    """Arguments to try.

    draw: makes them, with other values at every call; when: the case in words, instead of the exercise's;
    hint: advice for an answer that raises an error here
    """

    draw: Callable[[], Given]
    when: str = ""
    hint: str = ""


def cases(*several: Given) -> list[Case]:
    """A case for each tuple of arguments."""
    return [Case(partial(tuple, given)) for given in several]


@dataclass(frozen=True)
class Exercise:
    """A function to be written, and all that its check and the tests need to know about it.

    ideas    : {what is right: cases, or functions of exercise and answer that raise `Mistake`}; tried in this order.
               The traces of a good answer (`contract`) are tried in the idea that holds contract, or in the last
    mistakes : {message: a whole wrong answer}; of those that give what the answer gave, the one nearest to it in all cases
               is named. A message may hold {when}, and {0}, {1}, ... for the arguments, and so may `says`
    returns  : names of several results, in order; compared: the order in which they are compared
    when     : the arguments in words; says: the message about wrong numbers
    odd      : (got, right, *arguments) -> what is odd about a wrong result that no mistake gives, or None
    unknown  : words for any other wrong result, or a function as `odd`, or one of both for each name in `returns`
    observe  : what is compared, if that is not what the answer returns: (answer, *arguments) -> a dictionary
    also     : other whole right answers, whose numbers differ: a small eps, n instead of n - 1
    wider    : the results that may be float64 where float32 came in
    """

    name: str
    reference: Function
    ideas: Mapping[str, Sequence[Any]]
    mistakes: Mapping[str, Function]
    returns: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    when: Callable[..., str] = lambda *given: f"for shape {tuple(given[0].shape)}"
    says: str | Callable[..., str] = (
        ""  # a function: (part, got, right, words, *arguments) -> the message
    )
    odd: Callable[..., str | None] | None = None
    unknown: str | Callable[..., str] | dict[str, Any] = (
        "the shape is right, but the numbers are not"
    )
    kind: str = "a number"
    depends: str = ""  # on what a number depends, for the answer that gives the same everywhere
    fresh: str = RANDOM  # for numbers that are others at every call
    whole: bool = (
        False  # whether a mistake is named only when it gives the same as the answer in every case
    )
    batch: int = 99  # from how many axes on the first one holds images, which must not mix
    differentiable: bool = True
    rtol: float = 0.0  # how far a number may be off, as a share of it; 0: five digits, and whole numbers exactly
    large: float = 10.0  # factor for inputs outside of the comfortable range
    model: str = "model"  # what a module among the arguments is called
    changes: tuple[int, ...] = ()  # places of arguments that an answer may change
    observe: Callable[..., Outcome] | None = None
    also: Sequence[Function] = ()
    wider: tuple[str, ...] = ()
    contract_case: Case | None = None
    hints: Mapping[str, str] = field(default_factory=dict)  # part of an error: the way out

    def check(self, answer: Any) -> bool:
        """Try an answer and print a line for each idea; True only when every idea is right."""
        return run_check(
            self.name,
            answer,
            [(idea, partial(self.try_items, items)) for idea, items in self.plan().items()],
        )

    def plan(self) -> dict[str, list[Any]]:
        """The ideas with the contract among them."""
        ideas = {idea: list(items) for idea, items in self.ideas.items()}
        if not any(contract in items for items in ideas.values()):
            ideas[list(ideas)[-1]].append(contract)
        return ideas

    def cases(self) -> list[Case]:
        """All cases of all ideas."""
        return [item for items in self.ideas.values() for item in items if isinstance(item, Case)]

    def try_items(self, items: Iterable[Any], answer: Function) -> None:
        """Try one idea: every case with two draws, then the first once more; Mistake if the answer is wrong."""
        tried: list[tuple[Case, Given]] = []
        for item in items:
            if not isinstance(item, Case):
                item(self, answer)
                continue
            for given in (item.draw(), item.draw()):
                if not tried or not equal(given, tried[-1][1]):
                    self.try_case(answer, item, given)
                    tried.append((item, given))
        if tried:
            self.try_case(answer, *tried[0])

    def try_case(self, answer: Function, case: Case, given: Given) -> None:
        """Raise Mistake unless an answer is right for these arguments."""
        when = case.when or self.when(*given)
        right = self.outcome(self.reference, given)
        try:
            got = self.formed(self.asked(answer, given), right, when, answer, given)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            for hint in (words for fragment, words in self.hints.items() if fragment in str(error)):
                raise Mistake(f"{raised(error)}. {hint}") from error
            if case.hint and not isinstance(error, TypeError):
                raise Mistake(
                    case.hint.format(error=f"raises {type(error).__name__}: {first_line(error)}")
                ) from error
            raise
        right = self.right_for(got, right, given)
        for part in self.compared or right:
            if not self.right(got[part], right[part]):
                self.name_mistake(answer, case, given, part, got[part], right[part], when)

    def right_for(self, got: Outcome, right: Outcome, given: Given) -> Outcome:
        """The right result that an answer agrees with: the reference's, or that of another right answer."""
        others = (self.outcome(each, given) for each in self.also)
        return (
            next((each for each in (right, *others) if self.agree(got, each)), right)
            if self.also
            else right
        )

    def try_form(self, answer: Function, given: Given) -> None:
        """Raise Mistake unless an answer returns results of the right number, type and shape, whatever their numbers are."""
        right = self.outcome(self.reference, given)
        self.formed(self.asked(answer, given), right, self.when(*given), answer, given)

    def right(self, got: Any, wanted: Any) -> bool:
        """Whether one part of a result is right."""
        return same(got, wanted) if isinstance(wanted, Tensor) else self.like(got, wanted)

    def asked(self, answer: Function, given: Given) -> Any:
        """What an answer returns, or a dictionary if the exercise observes more than that."""
        return ask(
            partial(self.observe, answer) if self.observe else answer,
            *given,
            changes=self.changes,
            model=self.model,
        )

    def outcome(self, function: Function, given: Given) -> Outcome:
        """What a right or wrong answer of ours gives, part by part."""
        got = self.asked(function, given)
        if self.observe:
            return dict(got)
        return dict(zip(self.returns, got, strict=True)) if len(self.returns) > 1 else {"": got}

    def formed(
        self, got: Any, right: Outcome, when: str, answer: Function, given: Given
    ) -> Outcome:
        """The parts of what an answer gave; Mistake unless number, types and shapes are those of the right ones."""
        if self.observe:
            parts = dict(got)
        elif len(self.returns) > 1:
            parts = dict(zip(self.returns, self.several(got, right, when), strict=True))
        else:
            parts = {"": got}
        for part, wanted in right.items():
            name, x = f"as {part} {when}" if part else when, parts[part]
            if isinstance(wanted, Tensor):
                many = isinstance(x, (tuple, list))
                reject_if(
                    many,
                    f"gives a {type(x).__name__} of {len(x) if many else 0} {name}; it should give one tensor",
                )
                self.expect_shape(x, part, wanted, name, answer, given)
                expect_tensor(x, wanted.shape, name)
                if part in self.wider:
                    x = parts[part] = x.to(wanted.dtype) if x.dtype == torch.float64 else x
                    reject_if(
                        x.dtype != wanted.dtype,
                        f"gives {x.dtype} {name}; it should give {wanted.dtype}",
                    )
                reject_if(
                    x.dtype != wanted.dtype,
                    f"gives {x.dtype} for {wanted.dtype}; keep the type that came in",
                )
            elif is_number(wanted) or isinstance(wanted, float):
                reject_if(x is None, "gives nothing back: does it end with return?")
                fits = is_number(x) if isinstance(wanted, int) else is_float(x)
                reject_if(not fits, f"gives {short(x)} {name}; it should give {self.kind}")
        return parts

    def several(self, got: Any, right: Outcome, when: str) -> Sequence[Any]:
        """The results of an answer that should give several; Mistake when there are not as many, in this order."""
        names, many = (
            ", ".join(self.returns),
            ["two", "three", "four", "five", "six"][len(self.returns) - 2],
        )
        reject_if(got is None, f"gives nothing back {when}: does it end with return?")
        if isinstance(got, Tensor) or not isinstance(got, (tuple, list)):
            raise Mistake(f"gives {short(got)} {when}; return {many} results: {names}")
        words = f"gives a {type(got).__name__} of {len(got)} {when}; return {many} results: {names}"
        reject_if(len(got) != len(self.returns), words)
        wanted = [getattr(x, "shape", None) for x in right.values()]
        turned = [getattr(x, "shape", None) for x in got] == wanted[::-1] != wanted
        reject_if(turned, f"gives the {self.returns[-1]} first; return {names} in this order")
        return got

    def expect_shape(
        self, got: Any, part: str, wanted: Tensor, name: str, answer: Function, given: Given
    ) -> None:
        """A Mistake of its own for a shape that a wrong answer of the table gives, too."""
        if not isinstance(got, Tensor) or got.shape == wanted.shape:
            return
        words = self.explain(
            answer,
            given,
            part,
            lambda theirs: isinstance(theirs, Tensor) and theirs.shape == got.shape,
        )
        reject_if(
            words,
            f"gives shape {tuple(got.shape)} {name}; it should give {tuple(wanted.shape)}: {words}",
        )

    def name_mistake(
        self, answer: Function, case: Case, given: Given, part: str, got: Any, right: Any, when: str
    ) -> None:
        """Raise `Mistake` with the message for a wrong result."""
        words = self.explain(answer, given, part, lambda theirs: self.like(got, theirs))
        if not words and isinstance(got, Tensor):
            self.expect_own(answer, case, given, part, got, when)
        words = words or (self.odd(got, right, *given) if self.odd else None)
        if not words and isinstance(got, Tensor):
            expect_digits(got, right)
        if (
            not words
            and self.depends
            and len({str(self.tried(answer, c.draw())) for c in self.cases()}) == 1
        ):
            words = f"the same for every size; it should depend on {self.depends}"
        if not words:
            unknown = self.unknown[part] if isinstance(self.unknown, dict) else self.unknown
            words = unknown if isinstance(unknown, str) else unknown(got, right, *given)
        words = words.replace("{when}", when)
        if callable(self.says):
            raise Mistake(self.says(part, got, right, words, *given))
        usual = (
            "{part} {when}: {words}"
            if isinstance(right, Tensor)
            else "gives {got} {when} instead of {right}: {words}"
        )
        values = {
            "part": part,
            "when": when,
            "words": words,
            "got": number(got),
            "right": number(right),
        }
        raise Mistake((self.says or usual).format(*given, **values).strip())

    def expect_own(
        self, answer: Function, case: Case, given: Given, part: str, got: Tensor, when: str
    ) -> None:
        """Raise Mistake if a result belongs to other inputs, because it was kept or because images of a batch mix."""
        again = self.tried(answer, given)
        reject_if(again and not equal(got, again[part]), self.fresh)
        theirs = None if equal(given, other := case.draw()) else self.tried(answer, other)
        reject_if(theirs and isinstance(theirs[part], Tensor) and same(got, theirs[part]), KEPT)
        if getattr(given[0], "ndim", 0) < self.batch or not 1 < len(got) == len(given[0]):
            return
        for kept in (0, len(got) - 1):
            mixed = self.tried(answer, tuple(others_changed(x, len(got), kept) for x in given))
            words = f"images mix {when}: changing the other images changes image {kept}'s {part or 'result'}"
            reject_if(mixed and not same(mixed[part][kept], got[kept]), words)

    def like(self, got: Any, theirs: Any) -> bool:
        """Whether a wrong answer of ours gives this result, rounded as it may be."""
        if isinstance(got, Tensor) and isinstance(theirs, Tensor):
            got = (
                got.float() if (got.dtype, theirs.dtype) == (torch.float64, torch.float32) else got
            )
            return equal(got, theirs.to(got.dtype))
        if self.rtol and is_float(got) and is_float(theirs):
            return math.isclose(got, theirs, rel_tol=self.rtol)
        return equal(got, theirs)

    def explain(
        self, answer: Function, given: Given, part: str, matches: Callable[[Any], bool]
    ) -> str | None:
        """The message of the wrong answer that gives what the answer gave; of several, the one nearest in all cases."""
        found = {}
        for words, wrong in self.mistakes.items():
            theirs = self.tried(wrong, given)
            if theirs is not None and matches(theirs[part]):
                found[words] = wrong
        if len(found) > 1 or (found and self.whole):
            cases = [case.draw() for case in self.cases()]
            mine = [self.tried(answer, each) for each in cases]
            every = {
                words: [self.tried(wrong, each) for each in cases] for words, wrong in found.items()
            }
            scores = {
                words: sum(map(self.agree, mine, results)) for words, results in every.items()
            }
            best = max(scores.values())
            found = {words: found[words] for words, score in scores.items() if score == best}
            if self.whole and best < len(cases):
                return None
        return next((words.format(*given, when="{when}") for words in found), None)

    def agree(self, mine: Outcome | None, theirs: Outcome | None) -> bool:
        """Whether two answers give the same, or both raise an error."""
        if mine is None or theirs is None:
            return mine is theirs
        return all(self.like(mine[part], theirs[part]) for part in self.compared or theirs)

    def tried(self, answer: Function, given: Given) -> Outcome | None:
        """What an answer gives, part by part; None when it raises an error or gives another number of things."""
        with suppress(Exception):
            return self.outcome(answer, given)
        return None


def fixed(*given: Any) -> Case:
    """The same arguments at every call."""
    return Case(lambda: given)


def forms(exercise: Exercise, answer: Function, cases: Sequence[Case] = ()) -> None:
    """Raise Mistake unless an answer returns results of the right form in every case, whatever their numbers are."""
    for case in cases or exercise.cases():
        exercise.try_form(answer, case.draw())


def number(value: Any) -> Any:
    """A number for the reader, without a decimal point if it is whole."""
    return int(value) if is_number(value) else value


def others_changed(x: Any, length: int, kept: int) -> Any:
    """The same tensor with all rows of its first axis but one changed, if it has that many."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or len(x) != length:
        return x
    moved = 2 * x + 1
    moved[kept] = x[kept]
    return moved
