"""Every exercise against its own table, what people write, and what is wrong everywhere.

All answers to an exercise are one test, whose failure names those that fail. The readers' run tries
the right answers to all exercises, and the wrong ones to ten of different kinds; those to the
others are marked `long`.
"""

import functools
import importlib
import itertools
import pkgutil
import random
import re
import warnings

import check_cases
import numpy as np
import pytest
import torch
from folding import all_of
from torch import Tensor, nn

import vit_helpers.checks
from vit_helpers.checks.engine import compare
from vit_helpers.checks.engine.exercise import Exercise
from vit_helpers.checks.engine.modules import ModuleExercise
from vit_helpers.checks.vit_mistakes import PARTS

TOPICS = [info.name for info in pkgutil.iter_modules(check_cases.__path__)]
MODULES = {
    info.name: importlib.import_module(f"vit_helpers.checks.{info.name}")
    for info in pkgutil.iter_modules(vit_helpers.checks.__path__)
}
EXERCISES = {
    f"{topic}.{exercise.name}": exercise
    for topic, module in MODULES.items()
    for exercise in vars(module).values()
    if isinstance(exercise, (Exercise, ModuleExercise)) and topic in TOPICS
}
FUNCTIONS = {name: e for name, e in EXERCISES.items() if isinstance(e, Exercise)}


KINDS = (  # one exercise of each kind: the readers' run tries no wrong answers to the others
    "patches.patchify",  # a function of tensors that moves numbers
    "attention.attention",  # one that computes with them
    "data.mixup",  # one that draws
    "training.adamw_step",  # one without gradients
    "training.accuracy",  # one of a model and its batches
    "inspection.rollout",  # one of a list
    "ablation.interval",  # one of numbers
    "vit.shapes",  # one that gives shapes
    "embeddings.add_class_token",  # a module with a parameter of its own
    "encoder.mlp",  # a module made of layers
)


def mark_others(names):
    for name in names:
        yield pytest.param(name, marks=() if name in KINDS else pytest.mark.long)


def last_line(exercise, answer, capsys):
    """The last line that a check prints for a wrong answer; all before are right."""
    capsys.readouterr()  # what an answer before it left, if that failed
    verdict = exercise.check(answer)
    printed, err = capsys.readouterr()
    assert verdict is False, f"{verdict} instead of False, with {printed!r}"
    *before, last = printed.splitlines()
    assert not err and all(line.startswith("[v]") for line in before), printed + err
    return last


def expect(says, line):
    assert says in line, f"expected {says!r}, got {line!r}"


def expect_right(check, answer, capsys):
    capsys.readouterr()
    verdict = check(answer)
    assert verdict is True, f"expected True, got {verdict}, with {capsys.readouterr().out!r}"


def pattern(message):
    """A message as a pattern: arguments may stand where it has {0}, {1}, ..."""
    return ".*".join(map(re.escape, re.split(r"\{.*?\}", message)))


# 1. The tables


def test_the_reference_passes_and_its_ideas_are_printed(capsys):
    with all_of() as attempt:
        for name, exercise in EXERCISES.items():
            with attempt(name):
                capsys.readouterr()
                verdict = exercise.check(exercise.reference)
                printed = capsys.readouterr().out
                assert verdict is True, printed
                ideas = [f"[v] {exercise.name}: {idea}" for idea in exercise.ideas]
                assert printed.splitlines() == ideas


# each table once
OWN = list(
    {id(exercise.mistakes): name for name, exercise in reversed(EXERCISES.items())}.values()
)[::-1]


def wrong_answers(name):
    """Every whole wrong answer of an exercise's table by its message"""
    exercise = EXERCISES[name]
    return exercise.mistakes if isinstance(exercise, Exercise) else exercise.wrong_answers()


@pytest.mark.parametrize("name", mark_others(filter(wrong_answers, OWN)))
def test_each_wrong_answer_of_a_table_gets_its_own_message(name, capsys):
    with all_of() as attempt:
        for message, answer in wrong_answers(name).items():
            with attempt(f"{name}, the table's answer to {message!r}"):
                line = last_line(EXERCISES[name], answer, capsys)
                assert re.search(pattern(message) + "$", line), f"got {line!r}"


def test_no_wrong_answer_of_a_table_warns():
    """The warning would stand above the message, and tell a reader of our own code."""
    with all_of() as attempt:
        for name, exercise in FUNCTIONS.items():
            with attempt(name), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for wrong in exercise.mistakes.values():
                    for case in (exercise.cases()[0], exercise.cases()[-1]):
                        exercise.tried(wrong, case.draw())
                assert not caught, caught[0].message


# 2. What people write


def written(kind):
    """{exercise: the cases that people wrote for it}; kind: "RIGHT" or "WRONG" answers"""
    return {
        f"{topic}.{name}": check_cases.flat(answers)
        for topic in TOPICS
        for name, answers in getattr(importlib.import_module(f"check_cases.{topic}"), kind).items()
    }


RIGHT, WRONG = written("RIGHT"), written("WRONG")


def check_of(name):
    topic, _, exercise = name.partition(".")
    return getattr(MODULES[topic], f"check_{exercise}")


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass_however_they_are_written(name, capsys):
    with all_of() as attempt:
        for number, (answer,) in enumerate(RIGHT[name]):
            with attempt(f"{name}, right answer {number}"):
                expect_right(check_of(name), answer, capsys)


@pytest.mark.filterwarnings("ignore:The use of")  # k.T of a batch
@pytest.mark.parametrize("name", mark_others(WRONG))
def test_wrong_answers_are_told_what_is_wrong(name, capsys):
    with all_of() as attempt:
        for number, (answer, says) in enumerate(WRONG[name]):
            with attempt(f"{name}, wrong answer {number}"):
                expect(says, last_line(EXERCISES[name], answer, capsys))


def code_of(thing):
    """Return what tells whether two answers are written in the same way.

    It is the code, and that of all that it encloses.
    """
    if isinstance(thing, functools.partial):
        return code_of(thing.func), [code_of(x) for x in (*thing.args, *thing.keywords.values())]
    if isinstance(thing, type):
        return [code_of(part) for part in vars(thing).values() if callable(part)]
    if code := getattr(thing, "__code__", None):
        constants = [getattr(x, "co_code", x) for x in code.co_consts]
        return (
            code.co_code,
            code.co_names,
            constants,
            [
                code_of(x)
                for cell in thing.__closure__ or ()
                if not isinstance(x := cell.cell_contents, type)
            ],
        )
    return repr(thing)


def unreached(name):
    """The messages of an exercise that no answer gets but those coded as in its table"""
    known = dict.fromkeys(getattr(EXERCISES[name], "structures", ())) | wrong_answers(name)
    known |= dict.fromkeys(PARTS) if name == "vit.vit" else {}
    return [
        message
        for message, mistake in known.items()
        if not any(
            says.strip(": ") in message and code_of(answer) != code_of(mistake)
            for answer, says in WRONG.get(name, ())
        )
    ]


def test_every_message_is_reached_by_an_answer_coded_differently():
    with all_of() as attempt:
        for name in OWN:
            with attempt(name):
                assert not unreached(name)


# 3. What is wrong everywhere


def then(after):
    """The right answer, and something that it leaves behind."""

    def cheat(right):
        def answer(*args):
            got = right(*args)
            after(*args)
            return got

        return answer

    return cheat


def raising(error):
    def cheat(right):
        def answer(*args):
            raise error

        return answer

    return cheat


def endless_generator(right):
    return lambda *args: itertools.repeat(right(*args))


def recursion(right):
    def answer(*args):
        return answer(*args)

    return answer


def overwrite(*args):
    """Change the first argument that can be changed."""
    for x in args:
        if isinstance(x, Tensor):
            with torch.no_grad():
                x += 1
            return
        if isinstance(x, (list, dict)):
            x.clear()
            return
        if isinstance(x, nn.Module):
            with torch.no_grad():
                next(x.parameters()).add_(1)
            return


ALWAYS = {  # part of the message: how the right answer goes wrong
    "not written yet": raising(NotImplementedError("your turn")),
    "does it end with return?": lambda right: lambda *args: None,
    "raises SystemExit": raising(SystemExit(1)),
    "raises TypeError": lambda right: lambda: None,
    "raises RecursionError": recursion,
    "": endless_generator,
    "sets a global seed": then(lambda *args: torch.manual_seed(0)),
    "sets a global seed (": then(lambda *args: np.random.seed(0)),
    "sets a global seed (torch's": then(lambda *args: random.seed(0)),
    "changes torch's default dtype": then(lambda *args: torch.set_default_dtype(torch.float64)),
    "leaves gradients switched off": then(lambda *args: torch.set_grad_enabled(False)),
}


def over_tensors(change, got):
    """A change of every tensor in a result."""
    if isinstance(got, Tensor):
        return change(got)
    return (
        type(got)(over_tensors(change, x) for x in got) if isinstance(got, (tuple, list)) else got
    )


def result(change):
    return lambda right: lambda *args: over_tensors(change, right(*args))


def inputs(change):
    """The right answer for other inputs: every floating-point tensor changed."""

    def changed(x):
        return change(x) if isinstance(x, Tensor) and x.is_floating_point() else x

    return lambda right: lambda *args: right(*map(changed, args))


def keeping(key):
    """The right answer, which keeps what it gave for a key."""

    def cheat(right):
        kept = {}

        def answer(*args):
            place = key(*args)
            if place not in kept:
                kept[place] = right(*args)
            return kept[place]

        return answer

    return cheat


def in_float32(right):
    def answer(*args):
        types = [x.dtype for x in args if isinstance(x, Tensor) and x.is_floating_point()]
        return over_tensors(lambda x: x.to(types[0]), inputs(lambda x: x.float())(right)(*args))

    return answer


def form(*args):
    return tuple((tuple(x.shape), x.dtype) if isinstance(x, Tensor) else str(x) for x in args)


def size(*args):
    return tuple((x.numel(), x.dtype) if isinstance(x, Tensor) else 0 for x in args)


TENSORS = {  # the same for functions of tensors
    "changes its input": then(overwrite),
    "gives complex numbers": result(lambda x: x * 1j),
    "gives torch.float64 for torch.float32": result(lambda x: x.double()),
    "gives torch.float32 for torch.float64": result(lambda x: x.float()),
    "gives torch.float16": result(lambda x: x.half()),
    "loses digits": in_float32,
    "": result(lambda x: x.clamp(min=0)),
    "[x]": result(lambda x: x + 1e-3 * torch.rand(x.shape, dtype=x.dtype)),
    "[x] ": keeping(lambda *args: 0),
    " ": keeping(form),
    "was the first one kept?": keeping(form),
    ": ": keeping(size),
}
REALS = {  # and of any real numbers
    "abs": inputs(lambda x: x.abs()),
    "clamp 0 1": inputs(lambda x: x.clamp(0, 1)),
    "clamp -8 8": inputs(lambda x: x.clamp(-8, 8)),
    "nan": result(lambda x: x * torch.nan),
}
GRADIENTS = {
    "no gradient flows back": result(lambda x: x.detach()),
    "no gradient flows back:": lambda right: torch.no_grad()(lambda *args: right(*args)),
    "the wrong gradient": result(lambda x: x.detach() + (x - x.detach()) * 2),
    "numpy": lambda right: (
        lambda *args: over_tensors(lambda x: torch.from_numpy(x.numpy()), right(*args))
    ),
}


def of_tensors(exercise):
    return exercise.outcome.observe is None and any(
        isinstance(x, Tensor) for x in exercise.cases()[0].draw()
    )


def cheats(exercise):
    """(part of the message, cheat): what is wrong in every answer to an exercise like this one"""
    yield from ALWAYS.items()
    if of_tensors(exercise):
        yield from TENSORS.items()
        if exercise.contract.large:
            yield from (("", cheat) for cheat in REALS.values())
        if exercise.contract.differentiable:
            yield from GRADIENTS.items()


def test_the_kinds_meet_every_cheat():
    every = [*ALWAYS.values(), *TENSORS.values(), *REALS.values(), *GRADIENTS.values()]
    met = {cheat for name in KINDS if name in FUNCTIONS for _, cheat in cheats(EXERCISES[name])}
    assert met == {*every} and {*KINDS} & {*ON_MODULES} and {*KINDS} <= {*OWN}


@pytest.mark.parametrize("name", mark_others(FUNCTIONS))
def test_what_is_wrong_everywhere_is_seen(name, capsys):
    exercise = EXERCISES[name]
    with all_of() as attempt:
        for number, (says, cheat) in enumerate(cheats(exercise)):
            with attempt(f"{name}, cheat {number} {says!r}"):
                line = last_line(exercise, cheat(exercise.reference), capsys)
                if says.startswith("sets a global seed") and "global generator" in line:
                    continue
                expect(says, line)


def in_forward(cheat):
    """A cheat of functions as one of modules."""

    def wrong(right):
        class Answer(right):
            def __init__(self, *sizes):
                super().__init__(*sizes)
                self.answer = (cheat(super().forward),)

            def forward(self, x):
                return self.answer[0](x)

        return Answer

    return wrong


def kept_in_evaluation(right):
    class Answer(right):
        def forward(self, x):
            if self.training:
                return super().forward(x)
            self.kept = getattr(self, "kept", {})
            return self.kept.setdefault(x.shape, super().forward(x))

    return Answer


def dropping_out(right):
    class Answer(right):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x), 0.1, self.training)

    return Answer


SIZES = {
    exercise.reference: exercise.cases[0][0]
    for exercise in EXERCISES.values()
    if isinstance(exercise, ModuleExercise)
}
MODULE_CHEATS = {
    says: in_forward(cheat)
    for says, cheat in (ALWAYS | TENSORS | GRADIENTS).items()
    if says != "[x] "
}
MODULE_CHEATS |= {f"[x] {name}": in_forward(cheat) for name, cheat in REALS.items()}
MODULE_CHEATS |= {
    "[x]  ": kept_in_evaluation,
    "loses digits": in_forward(result(lambda x: x.float().to(x.dtype))),
    "in training mode": dropping_out,
    "something is random inside forward": in_forward(
        result(lambda x: nn.Linear(x.shape[-1], x.shape[-1]).to(x)(x))
    ),
    "it should give one tensor": in_forward(lambda right: lambda x: (right(x), x)),
    "gives shape": in_forward(result(lambda x: x[:1])),
    "it should be an nn.Module": lambda right: lambda *sizes: 3,
    "pass the class itself": lambda right: right(*SIZES[right]),
}
ON_MODULES = [name for name, exercise in EXERCISES.items() if isinstance(exercise, ModuleExercise)]


@pytest.mark.parametrize("name", mark_others(name for name in ON_MODULES if name in OWN))
def test_what_is_wrong_everywhere_is_seen_in_modules(name, capsys):
    exercise = EXERCISES[name]
    with all_of() as attempt:
        for says, cheat in MODULE_CHEATS.items():
            with attempt(f"{name}, cheat {says!r}"):
                line = last_line(exercise, cheat(exercise.reference), capsys)
                expect("" if says.startswith("[x]") else says, line)


def spoilt(right):
    """The right answer, which adds a tensor of the CPU."""
    return lambda *args: over_tensors(
        lambda x: x + torch.zeros(x.shape, dtype=x.dtype), right(*args)
    )


def spoilt_module(right):
    class Spoilt(right):
        def forward(self, x):
            return super().forward(x) + torch.zeros(1, dtype=x.dtype)

    return Spoilt


def test_answers_are_tried_on_an_accelerator_where_there_is_one(capsys, monkeypatch):
    """torch's meta device stands for one: it has shapes and refuses tensors of the CPU."""
    with all_of() as attempt:
        for name, exercise in EXERCISES.items():
            is_module = isinstance(exercise, ModuleExercise)
            if not (is_module or of_tensors(exercise)):
                continue
            spoil = spoilt_module if is_module else spoilt
            with attempt(name):
                monkeypatch.setattr(compare, "accelerators", list)
                expect_right(exercise.check, spoil(exercise.reference), capsys)
                monkeypatch.setattr(compare, "accelerators", lambda: [torch.device("meta")])
                line = last_line(exercise, spoil(exercise.reference), capsys)
                expect("right on the CPU, but for tensors on meta", line)


class Callable:
    """An object that is no plain function."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **more):
        return self.function(*args, **more)


WRAPPED = {
    "an object": Callable,
    "a partial": functools.partial,
    "with one more argument": lambda right: lambda *args, extra=None: right(*args),
}


def test_an_answer_may_be_any_object_that_can_be_called(capsys):
    with all_of() as attempt:
        for name, exercise in EXERCISES.items():
            for kind, wrap in WRAPPED.items():
                with attempt(f"{name}, {kind}"):
                    expect_right(exercise.check, wrap(exercise.reference), capsys)
