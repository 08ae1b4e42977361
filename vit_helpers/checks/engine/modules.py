"""An exercise whose answer is a module class.

The reference is a function of the parameters, however they are stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import (
    NO_GRADIENT,
    expect_anew,
    expect_anywhere,
    expect_digits,
    expect_tensor,
    gradients,
    same,
)
from vit_helpers.checks.engine.proof import ENOUGH
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, run_check, short
from vit_helpers.checks.engine.traces import ask

Sizes = tuple[int, ...]
Reading = tuple[Tensor, ...]  # a learner's parameters in the order in which `function` takes them
Class = Callable[..., nn.Module]


@dataclass(frozen=True)
class ModuleExercise:
    """A module class to be written: what it computes, and how to find its parameters.

    module    : a right class; function: the same as a function, (x, *parameters) -> y
    readings  : (module, *sizes) -> every way in which an answer's parameters may be those of
                `function`
    ideas     : {what is right: functions of exercise and answer that raise `Mistake`}
    mistakes  : {message: a wrong `function`}, found by its numbers
    structures: {message: (*sizes) -> how many numbers each parameter of a wrong class has}, found
                by their sum
    stages    : {message: a whole wrong class}, where an exercise has other ways to find it
    cases     : pairs of arguments of the class and the shape of an input; the first for what is
                tried once
    """

    name: str
    module: type[nn.Module]
    function: Callable[..., Tensor]
    readings: Callable[..., Iterator[Reading]]
    ideas: Mapping[str, Sequence[Function]]
    mistakes: Mapping[str, Callable[..., Tensor]]
    structures: Mapping[str, Callable[..., Sequence[int]]]
    cases: Sequence[tuple[Sizes, Sizes]]
    count: str  # the number of parameters as a formula
    advice: str = ""  # for another number that no wrong class has
    unknown: str = "shapes and parameters are right, but the numbers are not"
    unread: str = "its layers cannot be recognized: build it from nn.Linear layers"
    stages: Mapping[str, Class] = field(default_factory=dict)
    # whether all readings are tried at once (torch.vmap): for parts with hundreds of readings
    vectorized: bool = False

    def check(self, answer: Any) -> bool:
        """Try an answer and print a line for each idea; True only when every idea is right."""

        def try_all(trials: Sequence[Function], answer: Any) -> None:
            for trial in trials:
                trial(self, answer)

        ideas = [(idea, partial(try_all, trials)) for idea, trials in self.ideas.items()]
        return run_check(self.name, answer, ideas)

    def renamed(self, name: str, ideas: Sequence[str]) -> "ModuleExercise":
        """Return the same exercise with another name and some of its ideas."""
        return replace(self, name=name, ideas={idea: self.ideas[idea] for idea in ideas})

    def wrong_class(self, function: Callable[..., Tensor]) -> type[nn.Module]:
        """Make a whole wrong answer: the right class with another function."""
        exercise = self

        class Answer(self.module):  # type: ignore[misc, name-defined]  # known only when it runs
            def __init__(self, *sizes: int) -> None:
                super().__init__(*sizes)
                self.sizes = sizes
                self.number = -1  # of the right reading; numbers may change later, not the order

            def forward(self, x: Tensor) -> Tensor:
                if self.number < 0:
                    self.number = self.find_reading(x)
                readings = exercise.readings(self, *self.sizes)
                return function(x, *next(islice(readings, self.number, None)))

            def find_reading(self, x: Tensor) -> int:
                right = super().forward(x)
                for number, reading in enumerate(exercise.readings(self, *self.sizes)):
                    if same(exercise.function(x, *reading), right, atol=1e-3):
                        return number
                raise ValueError(f"no reading of {self.sizes} gives what the right class gives")

        return Answer

    @property
    def reference(self) -> type[nn.Module]:
        """Give a right answer."""
        return self.module

    def wrong_answers(self) -> dict[str, Class]:
        """Return every whole wrong answer of the table by its message."""
        classes = {message: self.wrong_class(wrong) for message, wrong in self.mistakes.items()}
        return classes | dict(self.stages)


def squares(a: int, b: int) -> Callable[..., list[int]]:
    """Return the number of parameters, as `a` squares of the width plus `b` widths."""
    return lambda D, *sizes: [a * D * D, b * D]


def build(answer: Any, *sizes: int) -> nn.Module:
    """Make the learner's module, built from its sizes.

    raises: Mistake if the answer is not a class of modules
    """
    reject_if(
        isinstance(answer, nn.Module), "got a module that is already built; pass the class itself"
    )
    module = ask(answer, *sizes)
    if not isinstance(module, nn.Module):
        raise Mistake(f"gives {short(module)}; it should be an nn.Module")
    return module


def randomized(module: nn.Module, x: Tensor) -> nn.Module:
    """Make a module with new random parameters, none of them zero.

    Lazy ones are created by a first call.
    """
    with torch.no_grad():
        if any(nn.parameter.is_lazy(p) for p in module.parameters()):
            module(torch.zeros_like(x))
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * (p.shape[-1] ** -0.5 if p.ndim > 1 else 0.5))
    return module


def made(
    answer: Any, sizes: Sizes, shape: Sizes, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, Tensor]:
    """Return a learner's module with random parameters, and an input.

    The input has negative numbers and numbers above 1.
    """
    x = 1.5 * torch.randn(shape, dtype=dtype)
    return randomized(build(answer, *sizes), x.float()).to(dtype), x


def output(module: nn.Module, x: Tensor, when: str = "", shape: Sizes = ()) -> Tensor:
    """Return what a module gives.

    raises: Mistake unless it is one tensor of the input's type and shape, or of another `shape`
    """
    got, when = ask(module, x), when or f"for (B, T, D) = {tuple(x.shape)}"
    reject_if(
        isinstance(got, (tuple, list)),
        f"gives a {type(got).__name__} {when}; it should give one tensor",
    )
    expect_tensor(got, shape or x.shape, when)
    reject_if(got.dtype != x.dtype, f"gives {got.dtype} for {x.dtype}; keep the type that came in")
    return got


def right_shape(exercise: ModuleExercise, sizes: Sizes, x: Tensor) -> Sizes:
    """Return the shape that the right module gives."""
    return tuple(exercise.module(*sizes)(x.float()).shape)


def expect_steady(module: nn.Module, x: Tensor, shape: Sizes) -> None:
    """Raise Mistake unless a module repeats its result in both modes, and recomputes it.

    It must leave its input unchanged.
    """
    other, outputs = torch.randn_like(x), {}
    random = (
        "something is random inside forward. Is there dropout, or a layer that is created there?"
    )
    with torch.no_grad():
        for mode in ("evaluation", "training"):
            outputs[mode] = ask(module.train(mode == "training"), x)
            expect_tensor(outputs[mode], shape, f"in {mode} mode")
            reject_if(
                not same(outputs[mode], module(x)),
                f"gives a different result at a second call in {mode} mode: {random}",
            )
            expect_anew(outputs[mode], module(other))
    reject_if(
        not same(*outputs.values()),
        "gives different results in training mode and in evaluation mode",
    )


def shapes(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless a module gives tensors of the right shape, in both modes."""
    (sizes, shape), *_ = exercise.cases
    output(*made(answer, sizes, shape))
    module, x = made(answer, sizes, (1, shape[1] + 2, *shape[2:]))
    output(module.eval(), x)


def parameters(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless a module has as many parameters as the right one, in known layers."""
    (sizes, shape), *_ = exercise.cases
    module, right = made(answer, sizes, shape)[0], exercise.module(*sizes)
    count, wanted = (sum(p.numel() for p in m.parameters()) for m in (module, right))
    reject_if(
        not count,
        "has no parameters: create the layers in __init__, "
        "as attributes or in an nn.ModuleList, not in a plain list",
    )
    if count != wanted:
        message = known_structure(exercise, answer) or exercise.advice
        raise Mistake(
            f"should have {exercise.count} = {wanted} parameters for D = {sizes[0]}, "
            f"but has {count}: {message}"
        )
    reject_if(not any(True for _ in exercise.readings(module, *sizes)), exercise.unread)


def known_structure(exercise: ModuleExercise, answer: Any) -> str | None:
    """Return the message of the wrong class that has as many parameters for all sizes."""
    counts = {}
    for sizes, shape in exercise.cases:
        with suppress(Exception):
            module, _ = made(answer, sizes, shape)
            counts[sizes] = sum(p.numel() for p in module.parameters())
    for message, parts in exercise.structures.items():
        if len(counts) >= ENOUGH and all(sum(parts(*sizes)) == n for sizes, n in counts.items()):
            return message
    return None


def apart(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless a module repeats its result in both modes and mixes no images."""
    (sizes, shape), *_ = exercise.cases
    module, x = made(answer, sizes, (4, *shape[1:]))
    expect_steady(module, x, right_shape(exercise, sizes, x))
    module.eval()
    mixed = (
        "images mix: other images in the batch change image {}'s output. "
        "Which axis does attention run along?"
    )
    for image in (0, 3):
        other = torch.randn_like(x)
        other[image] = x[image]
        before, after, alone = (ask(module, batch) for batch in (x, other, x[image : image + 1]))
        reject_if(not same(before[image], after[image]), mixed.format(image))
        reject_if(
            not same(before[image], alone[0]),
            "an image alone gives a different result from the same image in a batch",
        )


def reading_of(
    exercise: ModuleExercise, answer: Any, module: nn.Module, x: Tensor, sizes: Sizes
) -> Reading:
    """Return the reading of the parameters under which a module, built by an answer, is right.

    raises: Mistake when there is none
    """
    readings = list(exercise.readings(module, *sizes))
    reject_if(
        not readings,
        f"for sizes {sizes} the layers have the wrong widths: is a fixed number in your code?",
    )
    got = output(module, x, shape=tuple(exercise.function(x, *readings[0]).shape))
    gives = giving(exercise, x, got, readings)
    for reading, right in gives(exercise.function):
        if agrees(got, right):
            return reading
    for message, wrong in exercise.mistakes.items():
        with suppress(RuntimeError, IndexError):  # some need other lengths
            found = some_agree(got, gives(wrong))
            reject_if(found and is_known(exercise, answer, wrong, module.training, x), message)
    for _, right in gives(exercise.function):
        expect_digits(got, right)
    raise Mistake(exercise.unknown)


def agrees(got: Tensor, right: Tensor) -> bool:
    """Tell whether what a module gave is what a function gives."""
    return same(got, right, 1e-9 if got.dtype == torch.float64 else 1e-4)


def some_agree(got: Tensor, results: Iterator[tuple[Reading, Tensor]]) -> bool:
    """Tell whether a module gave one of these results."""
    return any(agrees(got, result) for _, result in results)


def is_known(
    exercise: ModuleExercise,
    answer: Any,
    wrong: Callable[..., Tensor],
    training: bool,
    found: Tensor,
) -> bool:
    """Tell whether an answer gives what a wrong function gives: in two cases, against none.

    found: the input for which it did so; the others have its type, and numbers of its size
    """
    agreed = 1  # the case in which it was found
    for sizes, shape in exercise.cases:
        with suppress(RuntimeError, IndexError, ValueError, TypeError, Mistake):
            module, x = made(answer, sizes, shape, found.dtype)
            x *= found.abs().mean() / x.abs().mean()
            got = ask(module.train(training), x)
            gives = giving(exercise, x, got, list(exercise.readings(module, *sizes)))
            if got.isnan().any() or some_agree(got, gives(exercise.function)):
                continue  # a single token without itself, for example, says nothing
            if not some_agree(got, gives(wrong)):
                return False
            agreed += 1
    return agreed >= ENOUGH


def giving(
    exercise: ModuleExercise, x: Tensor, got: Tensor, readings: Sequence[Reading]
) -> Callable[[Callable[..., Tensor]], Iterator[tuple[Reading, Tensor]]]:
    """Return what yields the results of a function under each reading."""
    stacked = (
        [torch.stack(parts) for parts in zip(*readings, strict=True)] if exercise.vectorized else []
    )
    return partial(results, x, got, readings, stacked)


def results(
    x: Tensor,
    got: Tensor,
    readings: Sequence[Reading],
    stacked: Sequence[Tensor],
    function: Callable[..., Tensor],
) -> Iterator[tuple[Reading, Tensor]]:
    """Yield what a function gives under each reading.

    If all are tried at once, it is only the one nearest to the answer's result.
    """
    if not stacked:
        for reading in readings:
            with torch.no_grad():
                result = function(x, *reading)
            yield reading, result
        return
    with torch.no_grad():
        outputs = torch.vmap(lambda *reading: function(x, *reading))(*stacked)
        nearest = int((outputs - got).abs().flatten(1).amax(1).nan_to_num(torch.inf).argmin())
    yield readings[nearest], outputs[nearest]


def numbers(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless a module is right in both modes, for two inputs in turn."""
    sizes, shape = exercise.cases[0]
    for training in (True, False):
        module, x = made(answer, sizes, shape)
        for images in (x, torch.randn_like(x), x):
            reading_of(exercise, answer, module.train(training), images, sizes)


def other_sizes(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless a module is right for all sizes, in float64 and for large numbers."""
    for sizes, shape in exercise.cases[1:]:
        reading_of(exercise, answer, *made(answer, sizes, shape), sizes)
    sizes, shape = exercise.cases[0]
    module, x = made(answer, sizes, shape, torch.float64)
    for size in (1, 6):
        reading_of(exercise, answer, module, size * x, sizes)


def every_gradient(exercise: ModuleExercise, answer: Any) -> None:
    """Raise Mistake unless input and every parameter get the right gradient.

    Older gradients are there, and must not matter.
    """
    sizes, shape = exercise.cases[0]
    module, x = made(answer, sizes, shape)
    x.requires_grad_()
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    reading = reading_of(exercise, answer, module, x.detach(), sizes)
    names, sources = zip(("its input", x), *module.named_parameters(), strict=True)
    slopes, right_slopes = (
        gradients(y, list(sources)) for y in (module(x), exercise.function(x, *reading))
    )
    reject_if(slopes[0] is None, NO_GRADIENT)
    lost = [name for name, slope in zip(names, slopes, strict=True) if slope is None]
    reject_if(
        lost, f"no gradient reaches {', '.join(lost)}: is it used, and neither detached nor frozen?"
    )
    for name, slope, right_slope in zip(names, slopes, right_slopes, strict=True):
        wrong = f"gives the right numbers, but the wrong gradient for {name}"
        reject_if(not same(slope, right_slope, atol=1e-4), wrong)
    expect_anywhere(module, exercise.module(*sizes), x)
