"""Answers that people write, beside those in the exercises' own tables: right ones written in many ways, wrong ones coded
differently from the table's.

A file for each notebook: RIGHT = {exercise: [answers]}, WRONG = {exercise: {part of the message: an answer or a list}}.
What is wrong in the same way for every exercise (a seed set, an input changed, ...) is made in test_checks_engine.py.
"""


def flat(answers):
    """Single cases: (answer,) or (answer, part of the message)."""
    if isinstance(answers, list):
        return [(answer,) for answer in answers]
    return [(answer, says) for says, some in answers.items() for answer in (some if isinstance(some, list) else [some])]
