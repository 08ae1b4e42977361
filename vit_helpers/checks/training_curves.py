"""The exercise of notebook 07 in which five runs are diagnosed from their curves."""

from typing import Any

from vit_helpers.checks.engine.choices import blank, check_choices
from vit_helpers.checks.engine.report import report, short
from vit_helpers.checks.mysteries import FAULTS, RUNS

SPEAKS = {  # a fault: what its curves would show, and what the runs with another fault show instead
    "labels shuffled": (
        "validation stays at the level of a uniform prediction, "
        "with a loss of ln 10 = 2.3 and an accuracy of 0.1",
        {
            "nothing wrong": "here its accuracy rises above 0.8",
            "rate too high": "here its loss begins far above 2.3",
            "rate too low": "here its accuracy rises above 0.4",
            "too few images": "here its accuracy rises above 0.4",
        },
    ),
    "nothing wrong": (
        "training and validation both become good, and stay close together",
        {
            "labels shuffled": "here the accuracy of both stays near 0.1",
            "rate too high": "here the accuracy of both stays near 0.1",
            "rate too low": "here they are close, but both losses are far from good in the end",
            "too few images": "here training becomes perfect, and validation stays far behind",
        },
    ),
    "rate too high": (
        "the first steps move the weights far off, "
        "so the training loss begins far above the 2.3 of a uniform prediction",
        {
            "labels shuffled": "here it begins at 2.3 and stays",
            "nothing wrong": "here it begins below 2.3 and falls",
            "rate too low": "here it begins at 2.3 and falls",
            "too few images": "here it begins below 2.3 and falls to 0",
        },
    ),
    "rate too low": (
        "both losses fall together, slowly, and are still falling in the last epoch",
        {
            "labels shuffled": "here neither falls",
            "nothing wrong": "here both fall fast, to a fraction of where they began",
            "rate too high": "here both begin far above 2.3 and then fluctuate",
            "too few images":
                "here training is near 0 after half of the epochs, and validation rises",
        },
    ),
    "too few images": (
        "the training images are memorized, to an accuracy of 1, and validation stays far behind",
        {
            "labels shuffled": "here training stays near 0.1",
            "rate too high": "here training stays near 0.1",
            "nothing wrong": "here validation keeps up with training",
            "rate too low": "here validation keeps up with training, and neither comes near 1",
        },
    ),
}  # fmt: skip


def check_reading(answer: Any) -> bool:
    """Check the diagnosis of each run, {"A": one of FAULTS, ...}, and print a line for each.

    returns: True when all are right
    """
    return check_choices("reading", answer, RUNS, read_one)


def read_one(letter: str, entry: Any) -> bool:
    """Print one line for one run; True when it is right."""
    fault, _ = RUNS[letter]
    if blank(entry):
        return report(" ", "reading", f"{letter}: no fault is named yet")
    named = " ".join(entry.lower().split()) if isinstance(entry, str) else None
    if named not in FAULTS:
        return report(
            "x", "reading", f"{letter}: {short(entry)} is not one of the names: {', '.join(FAULTS)}"
        )
    if named == fault:
        return report("v", "reading", f"{letter}: {named}, right")
    would, here = SPEAKS[named]
    return report("x", "reading", f"{letter}: not {named!r}: there {would}; {here[fault]}")
