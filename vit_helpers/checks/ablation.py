"""The exercises of notebook 10 about runs and their comparison.

Those about a search are in ablation_search.py.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from statistics import fmean, median, pstdev, stdev, variance
from typing import Any

from scipy.special import stdtrit

from vit_helpers.checks.ablation_search import (  # noqa: F401
    DRAW,
    HALVING,
    SCALE,
    check_draw_rates,
    check_halving,
    check_scale_rate,
)
from vit_helpers.checks.engine.compare import copy_of
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording, cases
from vit_helpers.checks.engine.learning import as_list, as_number
from vit_helpers.checks.engine.report import Function, reject_if, short, variants

# One change at a time

Settings = dict[str, Any]
USED = "changed after an earlier call"


def runs_of(baseline: Settings, options: Settings) -> list[Settings]:
    """Give the right answer."""
    changed = [{**baseline, name: value} for name, values in options.items() for value in values]
    return [dict(baseline), *(run for run in changed if run != baseline)]


def settings(baseline: Settings, options: Settings) -> Case:
    """Make a baseline and options.

    Equal values are different objects, so that a comparison with `is` fails.
    """
    return Case(lambda: tuple(json.loads(json.dumps([baseline, options]))))


def listed_runs(answer: Function, baseline: Settings, options: Settings) -> dict[str, list[Any]]:
    """Return the runs that an answer lists, sorted after the first.

    raises: Mistake if they share objects with the arguments or a call
    """
    copies = copy_of((baseline, options))
    got = as_list(answer(*copies), f"for {baseline} and {options}", "a list of settings")
    message = (
        f"changes the baseline: {baseline} is now {copies[0]}. Make a new dictionary for each run"
    )
    reject_if(copies[0] != baseline, message)
    reject_if(
        copies[1] != options,
        f"changes the options: {options} is now {copies[1]}. Read them without removing values",
    )
    for run in got:
        reject_if(
            not isinstance(run, dict),
            f"gives {short(run)} as a run; a run is a dictionary of settings",
        )
    reject_if(any(USED in run for run in got), "returns dictionaries from an earlier call")
    message = (
        "gives the baseline itself as a run, "
        "so changing that run would change the baseline too. Make a copy of it"
    )
    reject_if(any(run is copies[0] for run in got), message)
    runs = [dict(run) for run in got]
    for run in got:
        run[USED] = True
    return {"": runs[:1] + sorted(runs[1:], key=str)}


def becomes_zero(run: Settings, baseline: Settings) -> bool:
    """Tell whether a value of the baseline becomes 0 in a run."""
    return any(value == 0 != baseline.get(name) for name, value in run.items())


def other_runs(
    got: list[Settings], right: list[Settings], baseline: Settings, options: Settings
) -> str:
    """Say what is wrong with a list of runs."""
    for run in got:
        if missing := [name for name in baseline if name not in run]:
            return (
                f"the run {run} lacks {', '.join(missing)}: it should contain the baseline's "
                "settings with one changed"
            )
        changed = [name for name in run if name not in baseline or run[name] != baseline[name]]
        if len(changed) > 1:
            message = (
                "so you cannot tell which of them made the difference. "
                "Start each run from the baseline"
            )
            return (
                f"the run {run} changes {len(changed)} things at once "
                f"({', '.join(changed)}), {message}"
            )
    if got.count(baseline) > 1:
        return (
            f"the baseline {baseline} is run {got.count(baseline)} times: "
            "leave out values that the baseline already has"
        )
    if repeated := [run for i, run in enumerate(got) if run in got[:i]]:
        return f"the run {repeated[0]} is listed more than once"
    if baseline not in got:
        return f"the baseline {baseline} itself is missing, so there is nothing to compare with"
    if got[0] != baseline:
        return f"begins with {got[0]}, but the baseline should come first"
    if lost := [run for run in right if run not in got]:
        zeros = [run for run in right if becomes_zero(run, baseline)]
        others = ", and so are all others in which a value becomes 0: is 0 taken for no value?"
        return f"the run {lost[0]} is missing{others if lost == zeros and lost[1:] else ''}"
    return f"the run {[run for run in got if run not in right][:1]} was not asked for"


ONE = Exercise(
    name="one_at_a_time",
    reference=runs_of,
    outcome=Outcome(observe=listed_runs),
    wording=Wording(when="for {} and {}".format, says="{message}", unknown=other_runs),
    ideas={
        "the baseline first, then every change alone": [
            settings({"lr": 3e-3, "depth": 2}, {"lr": [1e-3, 1e-2], "depth": [1, 4]})
        ],
        "no run twice, and none for a value that the baseline already has": [
            settings(
                {"lr": 3e-3, "depth": 2, "pool": "cls"},
                {"depth": [1, 2, 4], "pool": ["avg", "cls"], "lr": [3e-3]},
            )
        ],
        "a value of 0 counts, and so does a setting that the baseline does not have": [
            settings({"dropout": 0.1}, {"dropout": [0.0, 0.1], "weight_decay": [0.0, 0.3]})
        ],
        "with nothing to change, only the baseline": [settings({"lr": 3e-3}, {})],
        "the two dictionaries stay as they were, and every run has its own": [
            settings({"lr": 3e-3, "depth": 2}, {"lr": [1e-3, 1e-2], "depth": [1, 4]})
        ],
    },
    mistakes={},  # `listed_runs` and `other_runs` tell what is wrong
)
check_one_at_a_time = ONE.check


# An interval


def error_of(values: Sequence[float], spread: Function = stdev) -> float:
    """Return the standard error of a mean."""
    return spread(values) / len(values) ** 0.5


def t_multiple(n: int) -> float:
    """Return how many standard errors a 95% interval reaches to each side, with n differences."""
    return float(stdtrit(n - 1, 0.975))


def interval(
    a: Sequence[float],
    b: Sequence[float],
    mean: Function = lambda a, b, d: fmean(d),
    error: Function = lambda a, b, d: error_of(d),
    multiple: Function = t_multiple,
) -> Arguments:
    """Give the right answer, or a wrong one with another rule for a part.

    d: the differences of b and a, seed by seed
    """
    d = [y - x for x, y in zip(a, b, strict=True)]
    middle, half = mean(a, b, d), multiple(len(d)) * error(a, b, d)
    return middle - half, middle + half


MEANS: Mapping[str, Function] = {
    "the sign is lost: keep that of the mean difference": lambda a, b, d: abs(fmean(d)),
    "the sign is reversed: subtract the baseline from the change": lambda a, b, d: -fmean(d),
    "that is the difference between the best seeds; use all seeds": lambda a, b, d: max(b) - max(a),
    "that is the largest difference; use the mean": lambda a, b, d: max(d),
    "that is the sum; divide by the number of seeds": lambda a, b, d: sum(d),
    "that is the mean of the change itself; subtract the baseline": lambda a, b, d: fmean(b),
    "that is a ratio; use the difference": lambda a, b, d: fmean(b) / fmean(a),
    "you divided by n - 1; a mean divides by n": lambda a, b, d: sum(d) / (len(d) - 1),
    "that is the median; use the mean": lambda a, b, d: median(d),
    "the signs are lost before averaging": lambda a, b, d: fmean(map(abs, d)),
    "it is around 0; it should be around the mean difference": lambda a, b, d: 0.0,
}  # fmt: skip
ERRORS: Mapping[str, Function] = {
    "it uses the standard deviation of the differences; divide it by the square root of n":
        lambda a, b, d: stdev(d),
    "the standard deviation should divide by n - 1, before you divide it by the square root of n":
        lambda a, b, d: error_of(d, pstdev),
    "it uses the standard deviation with n, and doesn't divide it by the square root of n":
        lambda a, b, d: pstdev(d),
    "you divided by n; the error falls with the square root of n":
        lambda a, b, d: stdev(d) / len(d),
    "not paired: the variances of both were added. Take the differences seed by seed, "
    "then their standard deviation":
        lambda a, b, d: math.hypot(error_of(a), error_of(b)),
    "not paired, and with n instead of n - 1":
        lambda a, b, d: math.hypot(error_of(a, pstdev), error_of(b, pstdev)),
    "not paired: it uses the error of the change alone": lambda a, b, d: error_of(b),
    "not paired: it uses the error of the baseline alone": lambda a, b, d: error_of(a),
    "it uses a variance; take its square root": lambda a, b, d: variance(d) / len(d),
    "n - 1 belongs only in the standard deviation: divide by sqrt(n)":
        lambda a, b, d: stdev(d) / (len(d) - 1) ** 0.5,
    "both lists were sorted, which breaks up the pairs: keep the order of the seeds":
        lambda a, b, d: error_of([y - x for x, y in zip(sorted(a), sorted(b), strict=True)]),
}  # fmt: skip
MULTIPLES: Mapping[str, Function] = {
    "that is one standard error; multiply it by t": lambda n: 1,
    "that is twice the standard error; with few runs, t is larger than 2": lambda n: 2,
    "that is 1.96 standard errors, as for a known error; with few runs, t is larger":
        lambda n: stdtrit(math.inf, 0.975),
    "2.78 is t for five runs; for another number of runs, t is another":
        lambda n: stdtrit(4, 0.975),
    "the mean difference has n - 1 degrees of freedom, not n": lambda n: stdtrit(n, 0.975),
    "pairs leave n - 1 degrees of freedom, not 2 * n - 2": lambda n: stdtrit(2 * n - 2, 0.975),
    "5% are left out on each side; it should be 2.5%, so ask t for 0.975":
        lambda n: stdtrit(n - 1, 0.95),
    "that is t for 0.025, which is negative: the low end is above the high one":
        lambda n: stdtrit(n - 1, 0.025),
    "that is half as far: the interval reaches t standard errors to each side":
        lambda n: t_multiple(n) / 2,
    "that is twice as far: the interval reaches t standard errors to each side":
        lambda n: 2 * t_multiple(n),
}  # fmt: skip
RULES = {"mean": MEANS, "error": ERRORS, "multiple": MULTIPLES}
# accuracies of the baseline and of a change, seed by seed; a lost sign shows in the second pair,
# and in the last two the best seed of one is the worst of the other
PAIRS = [
    ([0.80, 0.90, 0.85], [0.83, 0.92, 0.89]),
    ([0.90, 0.70, 0.80, 0.85], [0.86, 0.67, 0.77, 0.80]),
    ([0.90, 0.88], [0.93, 0.83]),
    ([0.81, 0.95, 0.90, 0.76, 0.88], [0.82, 0.99, 0.89, 0.80, 0.86]),
    ([0.80, 0.90, 0.85, 0.72], [0.93, 0.82, 0.85, 0.96]),
    ([0.91, 0.75, 0.84], [0.78, 0.94, 0.90]),
]


def observe_end(answer: Function, baseline: list[Any], changed: list[Any], name: str) -> Settings:
    """Return the middle of an answer's interval, or how far it reaches to each side.

    raises: Mistake unless the answer gives two numbers
    """
    when, copies = f"for {baseline} and {changed}", ([*baseline], [*changed])
    got = as_list(answer(*copies), when, "two numbers, low and high")
    message = "changes the lists it is given: .sort() works in place and breaks up the pairs"
    reject_if(copies != (baseline, changed), message)
    message = f"gives {len(got)} results {when}; it should give two, low and high"
    reject_if(len(got) != 2, message)
    low, high = (as_number(end, when) for end in got)
    return {name: (low + high) / 2 if name == "middle" else (high - low) / 2}


def interval_says(
    part: str, got: Any, right: Any, message: str, a: list[Any], b: list[Any], name: str
) -> str:
    """Write the message about the middle or the length."""
    verb = "has the middle" if name == "middle" else "reaches to each side"
    return f"the interval for {(a, b)} {verb} {got:.4f}; it should be {right:.4f}: {message}"


INTERVAL = Exercise(
    name="interval",
    reference=interval,
    outcome=Outcome(observe=observe_end, rtol=2e-3),  # t from a table has two digits
    wording=Wording(
        when=lambda a, b, name: f"for {a} and {b}",
        says=interval_says,
        unknown={
            "middle": "subtract the baseline from the change, seed by seed, and take the mean",
            "half": "t times the standard deviation of the differences, "
            "divided by the square root of their number",
        },
    ),
    ideas={
        "around the mean difference, with its sign": cases(*((*pair, "middle") for pair in PAIRS)),
        "t standard errors of the paired differences to each side": cases(
            *((*pair, "half") for pair in PAIRS)
        ),
    },
    mistakes=variants(
        interval,
        {message: {part: rule} for part, rules in RULES.items() for message, rule in rules.items()},
    ),
)
check_interval = INTERVAL.check


# Many comparisons

LEVEL = 0.05
P_VALUES = [
    [0.2, 0.01, 0.045, 0.02, 0.009],
    [0.015, 0.6, 0.0001, 0.042, 0.3, 0.0095],
    [0.001, 0.04, 0.03, 0.005],
    [0.012, 0.013, 0.026, 0.049],
    [0.03, 0.03, 0.03, 0.001, 0.9],
    [0.04, 0.02],
    [0.02, 0.06, 0.015],
    [0.049],
    [0.3, 0.7],
]


def step_down(p: Sequence[float], limit: Function, stop: bool = True) -> list[bool]:
    """Compare p-values, the smallest first, with limit(rank from 0, n); in the order of p.

    stop: whether none passes after the first that does not
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    small = [p[i] < limit(rank, len(p)) for rank, i in enumerate(order)]
    if stop and False in small:
        first = small.index(False)
        small[first:] = [False] * (len(p) - first)
    passes = dict(zip(order, small, strict=True))
    return [passes[i] for i in range(len(p))]


def step_up(p: Sequence[float], limit: Function) -> list[bool]:
    """Let all p-values pass up to the largest that is below its limit."""
    small = [x for x, passes in zip(p, step_down(p, limit, stop=False), strict=True) if passes]
    return [x <= max(small, default=-1) for x in p]


def holm_limit(rank: int, n: int) -> float:
    """Return Holm's limit for the p-value of this rank, counted from 0."""
    return LEVEL / (n - rank)


def which_pass(p: Sequence[float]) -> list[bool]:
    """Give the right answer."""
    return step_down(p, holm_limit)


PASS_MISTAKES: dict[str, Function] = {
    "no correction: each is compared with 0.05": lambda p: [x < LEVEL for x in p],
    "that is Bonferroni's correction, which compares all with 0.05 / n":
        lambda p: [x < LEVEL / len(p) for x in p],
    "once one is too large, none after it passes":
        lambda p: step_down(p, holm_limit, stop=False),
    "it begins with the largest p-value; begin with the smallest, and stop where one is too large":
        lambda p: step_up(p, holm_limit),
    "the limits are those of Benjamini and Hochberg, 0.05 * rank / n":
        lambda p: step_up(p, lambda rank, n: LEVEL * (rank + 1) / n),
    "the limits are one rank late: the smallest is compared with 0.05 / n":
        lambda p: step_down(p, lambda rank, n: LEVEL / (n - rank + 1)),
    "the limits are one rank early: the smallest is compared with 0.05 / n":
        lambda p: step_down(p, lambda rank, n: LEVEL / max(n - rank - 1, 1)),
    "they are in the order of the sorted p-values; return them in the order of the list":
        lambda p: sorted(which_pass(p), reverse=True),
    "the p-values are not sorted first": lambda p: in_given_order(p),
    "True and False are exchanged: a small p-value passes":
        lambda p: [not passes for passes in which_pass(p)],
}  # fmt: skip


def in_given_order(p: Sequence[float]) -> list[bool]:
    """Compare p-values with Holm's limits in the order in which they come, up to the first."""
    small = [x < holm_limit(rank, len(p)) for rank, x in enumerate(p)]
    return [all(small[: i + 1]) for i in range(len(p))]


def observe_passes(answer: Function, p: list[float]) -> dict[str, list[bool]]:
    """Return what passes; Mistake unless there is True or False for each p-value."""
    when, given = f"for {p}", [*p]
    got = as_list(answer(given), when, "a list of True and False")
    reject_if(given != p, "changes the list it is given; use sorted() instead of .sort()")
    truths = [item.item() if hasattr(item, "item") else item for item in got]
    odd = [item for item in truths if not isinstance(item, (bool, int)) or item not in (0, 1)]
    message = f"gives {short(odd[0]) if odd else ''} {when}; it should give True or False for each"
    reject_if(odd, message)
    message = f"gives {len(got)} results {when}; it should give one for each p-value"
    reject_if(len(got) != len(p), message)
    return {"": [bool(item) for item in truths]}


WHICH_PASS = Exercise(
    name="which_pass",
    reference=which_pass,
    outcome=Outcome(observe=observe_passes),
    wording=Wording(
        when=lambda p: f"for {p}",
        says="gives {got} {when} instead of {right}: {message}",
        unknown="sort them, compare the smallest with 0.05 / n, the next with 0.05 / (n - 1), "
        "and stop at the first that is too large",
    ),
    ideas={
        "the smallest first, each with its own limit, up to the first that is too large": cases(
            *((p,) for p in P_VALUES)
        ),
        "in the order of the list": cases(*((p[::-1],) for p in P_VALUES)),
    },
    mistakes=PASS_MISTAKES,
)
check_which_pass = WHICH_PASS.check


# Picking


def best(score: Function, rows: list[Settings], key: str = "val_accuracy") -> str:
    """Return the change whose runs have the best score."""
    names = dict.fromkeys(row["change"] for row in rows)
    return max(names, key=lambda name: score([row[key] for row in rows if row["change"] == name]))


RUNS = {  # the runs of each change: (validation, test); every mistake picks a different one
    "first": [(0.85, 0.84), (0.86, 0.84), (0.85, 0.84)],
    "right": [(0.90, 0.85), (0.91, 0.86), (0.92, 0.85)],
    "lucky on the test": [(0.84, 0.99), (0.85, 0.80), (0.86, 0.79)],
    "best on the test": [(0.87, 0.93), (0.86, 0.94), (0.88, 0.93)],
    "lucky once": [(0.84, 0.84), (0.995, 0.85), (0.85, 0.84)],
    "even": [(0.905, 0.83), (0.905, 0.84), (0.905, 0.83)],
    "many seeds": [(0.86, 0.84)] * 5,
    "worst": [(0.70, 0.70), (0.71, 0.71), (0.70, 0.69)],
    "lucky in the middle": [(0.80, 0.82), (0.93, 0.83), (0.93, 0.81)],
    "lucky at first": [(0.96, 0.84), (0.80, 0.84), (0.81, 0.84)],
    "lucky at last": [(0.80, 0.84), (0.81, 0.84), (0.99, 0.84)],
    "rising": [(0.86, 0.84), (0.88, 0.84), (0.985, 0.84)],
}
OTHERS = {"depth 4": [(0.8, 0.9), (0.9, 0.9)], "depth 8": [(0.7, 0.95), (0.95, 0.95)]}


def rows_of(changes: Settings, order: Function = lambda row: row["seed"], when: str = "") -> Case:
    """Make rows like those of the notebook, seed by seed or in another order."""
    rows = [
        {"change": name, "seed": seed, "val_accuracy": val, "test_accuracy": test}
        for name, runs in changes.items()
        for seed, (val, test) in enumerate(runs)
    ]
    return Case(lambda: ([dict(row) for row in sorted(rows, key=order)],), when)


def picked(answer: Function, rows: list[Settings]) -> dict[str, str]:
    """Return the name that an answer gives; Mistake for anything else."""
    copies = copy_of(rows)
    got = answer(copies)
    reject_if(
        copies != rows,
        "changes the rows it is given; make new ones, or use sorted() instead of .sort()",
    )
    reject_if(got is None, "returns None: does it end with return?")
    reject_if(
        isinstance(got, dict),
        'gives a whole row; it should give the name of a change, row["change"]',
    )
    reject_if(
        not isinstance(got, str),
        f"gives {short(got)}; it should give the name of a change, not its accuracy",
    )
    known = any(row["change"] == got for row in rows)
    reject_if(not known, f"picks {str(got)!r}, which is not a change of these rows")
    return {"": str(got)}


SCORES: Mapping[str, Function] = {  # wrong scores of a change's runs
    "it has the best single run, by luck. Take the mean over its seeds": max,
    "its worst run is better than the others' worst. Compare the means over the seeds": min,
    "its sum is the largest, because it has more runs. Divide by their number": sum,
    "its mean is the lowest: use max, not min": lambda runs: -fmean(runs),
    "its median is the best; use the mean": median,
    "its first run is the best, by luck. Take the mean over its seeds": lambda runs: runs[0],
    "its last run is the best: is only that one kept? Take the mean over its seeds":
        lambda runs: runs[-1],
    "its running mean (old + new) / 2 is the best, in which the last run counts as much as all "
    "before. Divide the sum by the number of runs":
        partial(reduce, lambda old, new: (old + new) / 2),
}  # fmt: skip
PICKS: dict[str, Function] = {
    "it is in the first row, and its mean is not the best": lambda rows: rows[0]["change"],
    "it has the best single run on the test split: still the planted mistake":
        partial(best, max, key="test_accuracy"),
    "it has the best mean on the test split. Decide by val_accuracy, "
    "since the test split is for the end":
        partial(best, fmean, key="test_accuracy"),
}  # fmt: skip


def backward(row: Settings) -> tuple[int, str]:
    """Return the key by which rows come in reverse order of the seeds."""
    return -row["seed"], row["change"]


def mixed(row: Settings) -> int:
    """Return the key by which rows come in mixed order."""
    return hash(row["val_accuracy"] * 1e4) % 7


PICK = Exercise(
    name="pick",
    reference=partial(best, fmean),
    outcome=Outcome(observe=picked),
    wording=Wording(
        when=lambda rows: "",
        says="picks {got!r}{when}: {message}",
        unknown="its mean of val_accuracy over the seeds is not the largest",
    ),
    ideas={
        "picks by the mean validation accuracy over the seeds": [rows_of(RUNS)],
        "the order of the rows does not matter": [
            rows_of(RUNS, lambda row: row["change"], " when the rows come change by change"),
            rows_of(RUNS, backward, " when the rows come in reverse order"),
            rows_of(RUNS, mixed, " when the rows come in mixed order"),
        ],
        "the rows stay as they were, and every call reads them again": [
            rows_of(OTHERS),
            rows_of({f"{name}0": runs for name, runs in OTHERS.items()}),
        ],
    },
    mistakes=PICKS | {message: partial(best, score) for message, score in SCORES.items()},
)
check_pick = PICK.check
