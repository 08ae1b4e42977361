"""Call an answer, notice what it leaves behind, and restore it.

It may change seeds, torch's switches, its arguments, and models.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import CHANGED, bounded, copy_of, unchanged
from vit_helpers.checks.engine.report import Function, reject_if

SEEDS = count(
    496_8128
    # another one for each call: what is drawn differs between calls, and no answer sets them
)
TWINS = [
    np.random.MT19937(0),
    np.random.MT19937(0),
]  # numpy's generator while an answer runs, and one that nobody uses
GRAD_OFF = "leaves gradients switched off for all code that follows"
DTYPE = (
    "changes torch's default dtype for all code that follows; pass dtype=... "
    "where a tensor is created"
)
FROZEN = "freezes the {model} that it is given, which should still learn: requires_grad is off"
UNFROZEN = "lets frozen parameters of the {model} learn: requires_grad is on, but was off"
SEEDED = "sets a global seed (torch's, numpy's or Python's), but nothing here needs one"


def state_of(model: nn.Module) -> dict[str, Any]:
    """Return everything in a model that an answer could change, by the message about it."""
    parameters = dict(model.named_parameters())
    return {
        "changes the numbers of the {model} that it is given": copy_of(dict(model.state_dict())),
        "leaves the {model} in another mode (training or evaluation) than before": [
            m.training for m in model.modules()
        ],
        "changes the gradients that the {model} had: .grad should stay as it was": {
            name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()
        },
        FROZEN: [p.requires_grad for p in parameters.values()],
    }


@contextmanager
def generators_restored() -> Iterator[Any]:
    """Restore torch's, numpy's and Python's generators afterwards; yields the state of Python's."""
    torch_state, numpy_generator, python_state = (
        torch.get_rng_state(),
        get_bit_generator(),
        random.getstate(),
    )
    set_bit_generator(spare())
    try:
        yield python_state
    finally:
        torch.set_rng_state(torch_state)
        set_bit_generator(
            spare() if numpy_generator is TWINS[0] else numpy_generator
        )  # within another call
        if random.getstate() != python_state:
            random.setstate(python_state)


def in_step() -> bool:
    """Tell whether numpy's generator was neither used nor seeded.

    Its twin then gives the same number, which is a fast test.
    """
    return bool(TWINS[0].random_raw() == TWINS[1].random_raw())


def spare() -> np.random.MT19937:
    """Return the generator for numpy while an answer runs, in the same state as its twin."""
    if not in_step():
        TWINS[:] = np.random.MT19937(0), np.random.MT19937(0)
    return TWINS[0]


@contextmanager
def restored() -> Iterator[Any]:
    """Restore the generators and torch's switches afterwards.

    Torch has a new seed in the meantime.
    """
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    with generators_restored() as python_state:
        # torch.manual_seed would write down where it was called
        torch.default_generator.manual_seed(next(SEEDS))
        try:
            yield python_state
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)


def changed_input(place: int, elements: list[Any], copied: Any, original: Any) -> str:
    """Say which argument an answer has changed, with the advice that fits it.

    elements: what a list held before the answer was asked
    """
    argument = f"{CHANGED}: argument {place + 1}, a {type(original).__name__.lower()}"
    if isinstance(original, Tensor):
        return f"{argument}; make a new tensor instead of writing into the old one"
    if not isinstance(original, list):
        return f"{argument}; leave it as it is"
    if [id(x) for x in copied] != [id(x) for x in elements]:
        return f"{argument}, has other elements than before, or in another order; make a new list"
    return f"{argument}, of which an element was changed in place; make a new one"


def ask(answer: Function, *args: Any, changes: tuple[int, ...] = (), model: str = "model") -> Any:
    """Return what an answer gives for copies of its arguments.

    changes: the places of arguments that may change
    model  : what a module among them is called in messages
    raises : Mistake if the answer leaves a trace
    """
    copies = [copy_of(x) for x in args]
    elements = [list(x) if isinstance(x, list) else [] for x in copies]
    states = [state_of(x) if isinstance(x, nn.Module) else {} for x in args]
    with restored() as python_state:
        seed = torch.initial_seed()  # torch's seed stays when numbers are drawn
        dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
        got = bounded(answer(*copies))
        reject_if(torch.get_default_dtype() != dtype, DTYPE)
        reject_if(torch.is_grad_enabled() != grad, GRAD_OFF)
        reject_if(
            torch.initial_seed() != seed or random.getstate() != python_state or not in_step(),
            SEEDED,
        )
    for i, (copied, original, state) in enumerate(zip(copies, args, states, strict=True)):
        if i in changes:
            continue
        if isinstance(original, nn.Module):
            for (message, now), old in zip(state_of(original).items(), state.values(), strict=True):
                if message == FROZEN and sum(now) > sum(old):
                    message = UNFROZEN
                reject_if(not unchanged(now, old), message.format(model=model))
        else:
            reject_if(
                not unchanged(copied, original), changed_input(i, elements[i], copied, original)
            )
    return got
