"""Answers that people write, beside those in the exercises' own tables.

Right ones are written in many ways, wrong ones are coded differently from the table's. There is a
file for each notebook:
    RIGHT = {exercise: [answers]}
    WRONG = {exercise: {part of the message: an answer or a list}}
What is wrong in the same way for every exercise (a seed set, an input changed, ...) is made in
checks/test_every_exercise.py.
"""

import copy
import itertools
import math
import random
import re

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

NAMES = {
    "copy": copy,
    "itertools": itertools,
    "math": math, "random": random, "np": np, "torch": torch, "F": F, "nn": nn,
    "rearrange": rearrange, "cos": math.cos, "pi": math.pi,
}  # fmt: skip


def flat(answers):
    """Single cases: (answer,) or (answer, part of the message)."""
    if isinstance(answers, list):
        return [(answer,) for answer in answers]
    return [(answer, says) for says, some in answers.items() for answer in as_list(some)]


def as_list(some):
    return some if isinstance(some, list) else [some]


class Answers(dict):
    """A table of answers.

    Joined by |, both tables keep their answers to the same message, where a dict would lose some.
    """

    def __or__(self, other):
        both = {
            says: [*as_list(self[says]), *as_list(other[says])]
            for says in self.keys() & other.keys()
        }
        return Answers({**self, **other, **both})

    def __ror__(self, other):
        return Answers(other) | self


def each(change, table):
    """A table with every answer, or every one of several, changed."""
    changed = {
        says: list(map(change, some)) if isinstance(some, list) else change(some)
        for says, some in table.items()
    }
    return Answers(changed)


class Program:
    """A right answer's text, in which {{name: code}} is a part that may be exchanged.

    program() is the right answer, program(name="other code") a wrong one. Statements have ; between
    them.
    """

    def __init__(self, text, **names):
        self.text, self.names = text, NAMES | names

    def __call__(self, **parts):
        def put(match):
            before, name, default = match.groups("")
            return before + parts.pop(name, default).replace(
                "; ", f"\n{before}" if before else "; "
            )

        text = re.sub(r"(^ +)?\{\{(\w+): (.*?)\}\}", put, self.text, flags=re.M)
        assert not parts, f"the program has no {parts}"
        names = dict(self.names)
        exec(text, names)
        return names["answer"]

    def wrong(self, part, table):
        """Answers from {part of the message: other code for this part}."""
        return each(lambda code: self(**{part: code}), table)


def written(arguments, names, table):
    """Make answers from {part of the message: an expression of the arguments, or several}.

    names: what else is in them
    """
    return each(lambda code: eval(f"lambda {arguments}: {code}", names), table)


def module(init, forward):
    """A module class from two functions."""

    class Made(nn.Module):
        def __init__(self, *sizes):
            super().__init__()
            self.sizes = sizes
            init(self, *sizes)

        def forward(self, x):
            return forward(self, x)

    return Made


def having(**parts):
    """A module's beginning: its parts, as functions of the sizes."""

    def init(self, *sizes):
        for name, make in parts.items():
            setattr(self, name, make(*sizes))

    return init


def zeros(*shape):
    return nn.Parameter(torch.zeros(*shape))
