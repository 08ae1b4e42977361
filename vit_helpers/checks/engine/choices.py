"""An exercise whose answer is a dictionary: a choice for each of several letters."""

from collections.abc import Callable, Collection
from typing import Any

from vit_helpers.checks.engine.report import report, short


def blank(entry: Any) -> bool:
    """Tell whether nothing was filled in."""
    return entry is None or entry is ... or str(entry).strip() in ("", "...")


def check_choices(
    name: str,
    answer: Any,
    letters: Collection[str],
    check_one: Callable[[str, Any], bool],
    thing: str = "run",
    example: str = '{"A": "...", "B": ...}',
) -> bool:
    """Check the choice for each letter, and print a line for each.

    check_one: (letter, entry) -> whether it is right, and prints the line
    thing    : what a letter stands for
    returns  : True when all are right, and no other letter is given
    """
    if answer is None or (isinstance(answer, dict) and all(map(blank, answer.values()))):
        return report(" ", name, "not written yet")
    if not isinstance(answer, dict):
        return report("x", name, f"got {short(answer)}; pass a dictionary, {example}")
    entries = {str(key).strip().upper(): value for key, value in answer.items()}
    others = [key for key in entries if key not in letters]
    for key in others:
        report("x", name, f"there is no {thing} {key}; the {thing}s are {', '.join(letters)}")
    right = [check_one(letter, entries.get(letter)) for letter in letters]
    return all(right) and not others
