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

from vit_helpers.checks.compare import KEPT, equal, expect_digits, expect_tensor, is_number, same
from vit_helpers.checks.contract import RANDOM, contract
from vit_helpers.checks.report import Mistake, first_line, raised, reject_if, run_check, short
from vit_helpers.checks.traces import ask

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass(frozen=True)
class Case:
    """Arguments to try.

    draw: makes them, with other values at every call; when: the case in words, in place of the exercise's;
    hint: the way out for an answer that raises an error here
    """

    draw: Callable[[], tuple]
    when: str = ""
    hint: str = ""


def cases(*several: tuple) -> list[Case]:
    """A case for each tuple of arguments."""
    return [Case(partial(tuple, given)) for given in several]


@dataclass(frozen=True)
class Exercise:
    """A function to be written, and all that its check and the tests need to know of it.

    ideas    : {what is right: cases, or functions of exercise and answer that raise `Mistake`}; tried in this order.
               The traces of a good answer (`contract`) are tried in the idea that holds contract, or in the last
    mistakes : {message: a whole wrong answer}; of those that give what the answer gave, the one nearest to it in all cases
               is named. A message may hold {when}, and {0}, {1}, ... for the arguments, and so may `says`
    returns  : names of several results, in order; compared: the order in which they are compared
    when     : the arguments in words; says: the message about wrong numbers
    odd      : (got, right, *arguments) -> what is odd about a wrong result that no mistake gives, or None
    unknown  : words for any other wrong result, or a function as `odd`, or one of both for each name in `returns`
    observe  : what is compared, where it is not what the answer returns: (answer, *arguments) -> a dictionary
    also     : other whole right answers, whose numbers differ: a small eps, n in place of n - 1
    wider    : the results that may be float64 where float32 came in
    """

    name: str
    reference: Callable
    ideas: Mapping[str, Sequence[Any]]
    mistakes: Mapping[str, Callable]
    returns: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    when: Callable[..., str] = lambda *given: f"for shape {tuple(given[0].shape)}"
    says: str | Callable[..., str] = ""  # a function: (part, got, right, words, *arguments) -> the message
    odd: Callable[..., str | None] | None = None
    unknown: str | Callable[..., str] | dict[str, Any] = "the shape is right, the numbers are not"
    kind: str = "a number"
    depends: str = ""  # on what a number depends, for the answer that gives the same everywhere
    fresh: str = RANDOM  # for numbers that are others at every call
    whole: bool = False  # whether a mistake is named only when it gives the same as the answer in every case
    batch: int = 99  # from how many axes on the first one holds images, which must not mix
    differentiable: bool = True
    rtol: float = 0.0  # how far a number may be off, as a share of it; 0: five digits, and whole numbers exactly
    large: float = 10.0  # factor for inputs outside of the comfortable range
    model: str = "model"  # what a module among the arguments is called
    changes: tuple[int, ...] = ()  # places of arguments that an answer may change
    observe: Callable[..., Mapping[str, Any]] | None = None
    also: Sequence[Callable] = ()
    wider: tuple[str, ...] = ()
    contract_case: Case | None = None
    hints: Mapping[str, str] = field(default_factory=dict)  # part of an error: the way out

    def check(self, answer: Any) -> bool:
        """Try an answer and print a line for each idea; True only when every idea is right."""
        return run_check(self.name, answer, [(idea, partial(self.try_items, items)) for idea, items in self.plan().items()])

    def right_answer(self) -> Callable:
        """A right answer."""
        return self.reference

    def wrong_answers(self) -> dict[str, Callable]:
        """Every whole wrong answer of the table by its message."""
        return dict(self.mistakes)

    def plan(self) -> dict[str, list[Any]]:
        """The ideas with the contract among them."""
        ideas = {idea: list(items) for idea, items in self.ideas.items()}
        if not any(contract in items for items in ideas.values()):
            ideas[list(ideas)[-1]].append(contract)
        return ideas

    def cases(self) -> list[Case]:
        """All cases of all ideas."""
        return [item for items in self.ideas.values() for item in items if isinstance(item, Case)]

    def try_items(self, items: Iterable[Any], answer: Callable) -> None:
        """Try one idea: every case in two states, then the first once more; Mistake when the answer is wrong."""
        first = None
        for item in items:
            if not isinstance(item, Case):
                item(self, answer)
                continue
            given = item.draw()
            first = first or (item, given)
            self.try_case(answer, item, given)
            again = item.draw()
            if not equal(given, again):
                self.try_case(answer, item, again)
        if first:
            self.try_case(answer, *first)

    def try_case(self, answer: Callable, case: Case, given: tuple) -> None:
        """Mistake unless an answer is right for these arguments."""
        when = case.when or self.when(*given)
        right = self.outcome(self.reference, given)
        try:
            got = self.formed(self.asked(answer, given), right, when, answer, given)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            hint = next((words for fragment, words in self.hints.items() if fragment in str(error)), "")
            if hint:
                raise Mistake(f"{raised(error)}. {hint}") from error
            if case.hint and not isinstance(error, TypeError):
                raise Mistake(case.hint.format(error=f"raises {type(error).__name__}: {first_line(error)}")) from error
            raise
        right = self.right_for(got, right, given)
        for part in self.compared or right:
            if not self.right(got[part], right[part]):
                self.name_mistake(answer, case, given, part, got[part], right[part], when)

    def right_for(self, got: dict[str, Any], right: dict[str, Any], given: tuple) -> dict[str, Any]:
        """The right result that an answer agrees with: the reference's, or that of another right answer."""
        if not self.also or self.agree(got, right):
            return right
        return next((other for other in (self.outcome(each, given) for each in self.also) if self.agree(got, other)), right)

    def try_form(self, answer: Callable, given: tuple) -> None:
        """Mistake unless an answer gives things of the right number, type and shape, whatever numbers they hold."""
        right = self.outcome(self.reference, given)
        self.formed(self.asked(answer, given), right, self.when(*given), answer, given)

    def right(self, got: Any, wanted: Any) -> bool:
        """Whether one part of a result is right."""
        return same(got, wanted) if isinstance(wanted, Tensor) else self.like(got, wanted)

    def asked(self, answer: Callable, given: tuple) -> Any:
        """What an answer gives, as a dictionary where the exercise observes more than that."""
        return ask(partial(self.observe, answer) if self.observe else answer, *given, changes=self.changes, model=self.model)

    def outcome(self, function: Callable, given: tuple) -> dict[str, Any]:
        """What a right or wrong answer of ours gives, part by part."""
        got = self.asked(function, given)
        if self.observe:
            return dict(got)
        return dict(zip(self.returns, got, strict=True)) if len(self.returns) > 1 else {"": got}

    def formed(self, got: Any, right: dict, when: str, answer: Callable, given: tuple) -> dict[str, Any]:
        """The parts of what an answer gave; Mistake unless number, types and shapes are those of the right ones."""
        if self.observe:
            parts = dict(got)
        elif len(self.returns) > 1:
            parts = dict(zip(self.returns, self.several(got, right, when), strict=True))
        else:
            parts = {"": got}
        for part, wanted in right.items():
            name = f"as {part} {when}" if part else when
            if isinstance(wanted, Tensor):
                many = isinstance(parts[part], (tuple, list))
                reject_if(many, f"gives {len(parts[part]) if many else 0} things {name}; it should give one tensor")
                self.expect_shape(parts[part], part, wanted, name, answer, given)
                expect_tensor(parts[part], tuple(wanted.shape), name)
                if part in self.wider:
                    parts[part] = parts[part].to(wanted.dtype) if parts[part].dtype == torch.float64 else parts[part]
                    words = f"gives {parts[part].dtype} {name}; it should give {wanted.dtype}"
                    reject_if(parts[part].dtype != wanted.dtype, words)
                words = f"gives {parts[part].dtype} for {wanted.dtype}; keep the type that came in"
                reject_if(parts[part].dtype != wanted.dtype, words)
            elif is_number(wanted) or isinstance(wanted, float):
                reject_if(parts[part] is None, "gives nothing back: does it end with return?")
                odd = not is_number(parts[part]) if isinstance(wanted, int) else not is_float(parts[part])
                reject_if(odd, f"gives {short(parts[part])} {name}; it should give {self.kind}")
        return parts

    def several(self, got: Any, right: dict, when: str) -> Sequence[Any]:
        """The results of an answer that should give several; Mistake when there are not as many, in this order."""
        names, many = ", ".join(self.returns), NUMBERS[len(self.returns)]
        reject_if(got is None, f"gives nothing back {when}: does it end with return?")
        if isinstance(got, Tensor) or not isinstance(got, (tuple, list)):
            raise Mistake(f"gives {short(got)} {when}; return {many} things: {names}")
        reject_if(len(got) != len(self.returns), f"gives {len(got)} things {when}; return {many}: {names}")
        wanted = [getattr(x, "shape", None) for x in right.values()]
        turned = [getattr(x, "shape", None) for x in got] == wanted[::-1] != wanted
        reject_if(turned, f"gives the {self.returns[-1]} first; return {names} in this order")
        return got

    def expect_shape(self, got: Any, part: str, wanted: Tensor, name: str, answer: Callable, given: tuple) -> None:
        """Mistake with words of its own for the shape that a wrong answer of the table gives, too."""
        if not isinstance(got, Tensor) or got.shape == wanted.shape:
            return
        words = self.explain(answer, given, part, lambda theirs: isinstance(theirs, Tensor) and theirs.shape == got.shape)
        should = f"it should give {tuple(wanted.shape)}"
        reject_if(words, f"gives shape {tuple(got.shape)} {name}; {should}: {words}")

    def name_mistake(self, answer: Callable, case: Case, given: tuple, part: str, got: Any, right: Any, when: str) -> None:
        """Raise `Mistake` with the words for a wrong result."""
        words = self.explain(answer, given, part, lambda theirs: self.like(got, theirs))
        if not words and isinstance(got, Tensor):
            self.expect_own(answer, case, given, part, got, when)
        words = words or (self.odd(got, right, *given) if self.odd else None)
        if not words and isinstance(got, Tensor):
            expect_digits(got, right)
        if not words and self.depends and len({str(self.tried(answer, c.draw())) for c in self.cases()}) == 1:
            words = f"the same for every size; it should depend on {self.depends}"
        if not words:
            unknown = self.unknown[part] if isinstance(self.unknown, dict) else self.unknown
            words = unknown if isinstance(unknown, str) else unknown(got, right, *given)
        words = words.replace("{when}", when)
        if callable(self.says):
            raise Mistake(self.says(part, got, right, words, *given))
        says = self.says or (
            "{part} {when}: {words}" if isinstance(right, Tensor) else "gives {got} {when}, wanted {right}: {words}"
        )
        raise Mistake(says.format(*given, part=part, when=when, words=words, got=number(got), right=number(right)).strip())

    def expect_own(self, answer: Callable, case: Case, given: tuple, part: str, got: Tensor, when: str) -> None:
        """Mistake where a result belongs to other inputs: it was kept, or images of a batch mix."""
        again = self.tried(answer, given)
        reject_if(again and not equal(got, again[part]), self.fresh)
        theirs = None if equal(given, other := case.draw()) else self.tried(answer, other)
        reject_if(theirs and isinstance(theirs[part], Tensor) and same(got, theirs[part]), KEPT)
        if getattr(given[0], "ndim", 0) < self.batch or not 1 < len(got) == len(given[0]):
            return
        for kept in (0, len(got) - 1):
            mixed = self.tried(answer, tuple(others_changed(x, len(got), kept) for x in given))
            words = f"images mix {when}: changing the others changes image {kept}'s {part or 'result'}"
            reject_if(mixed and not same(mixed[part][kept], got[kept]), words)

    def like(self, got: Any, theirs: Any) -> bool:
        """Whether a wrong answer of ours gives this result, rounded as it may be."""
        if isinstance(got, Tensor) and isinstance(theirs, Tensor):
            got = got.float() if (got.dtype, theirs.dtype) == (torch.float64, torch.float32) else got
            return equal(got, theirs.to(got.dtype))
        if self.rtol and is_float(got) and is_float(theirs):
            return math.isclose(got, theirs, rel_tol=self.rtol)
        return equal(got, theirs)

    def explain(self, answer: Callable, given: tuple, part: str, matches: Callable[[Any], bool]) -> str | None:
        """The message of the wrong answer that gives what the answer gave; of several, the one nearest in all cases."""
        found = {}
        for words, wrong in self.mistakes.items():
            theirs = self.tried(wrong, given)
            if theirs is not None and matches(theirs[part]):
                found[words] = wrong
        if len(found) > 1 or (found and self.whole):
            cases = [case.draw() for case in self.cases()]
            mine = [self.tried(answer, each) for each in cases]
            scores = {
                words: sum(map(self.agree, mine, (self.tried(wrong, each) for each in cases)))
                for words, wrong in found.items()
            }
            found = {words: found[words] for words, score in scores.items() if score == max(scores.values())}
            if self.whole and max(scores.values()) < len(cases):
                return None
        return next((words.format(*given, when="{when}") for words in found), None)

    def agree(self, mine: dict | None, theirs: dict | None) -> bool:
        """Whether two answers give the same, or both raise an error."""
        if mine is None or theirs is None:
            return mine is theirs
        return all(self.like(mine[part], theirs[part]) for part in self.compared or theirs)

    def tried(self, answer: Callable, given: tuple) -> dict[str, Any] | None:
        """What an answer gives, part by part; None when it raises an error or gives another number of things."""
        with suppress(Exception):
            return self.outcome(answer, given)
        return None


def number(value: Any) -> Any:
    """A number for the reader: whole ones without a point."""
    return int(value) if is_number(value) else value


def is_float(value: Any) -> bool:
    """Whether a value is one number."""
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError, RuntimeError):
        return False


def others_changed(x: Any, length: int, kept: int) -> Any:
    """The same tensor with all rows of its first axis changed but one, where it has that many."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or len(x) != length:
        return x
    moved = 2 * x + 1
    moved[kept] = x[kept]
    return moved
