"""The exercises of notebook 10 about a search.

They scale and draw learning rates, and halve candidates successively.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.data import LARGE, own_generator
from vit_helpers.checks.engine.compare import copy_of, is_number
from vit_helpers.checks.engine.contract import Raises
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording, cases
from vit_helpers.checks.engine.learning import as_list, as_number, rounding
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, short
from vit_helpers.checks.engine.traces import ask, generators_restored

# A learning rate, scaled

FACTORS: Mapping[str, Function] = {"linear": lambda ratio: ratio, "sqrt": math.sqrt}
OTHER = {"linear": "sqrt", "sqrt": "linear"}
BATCHES = [
    (0.5, 64, 160),
    (3e-3, 64, 100),
    (3e-3, 4096, 64),
    (1e-3, 64, 256),
    (2e-3, 100, 25),
    (1e-3, 32, 32),
]


def scale(lr: float, batch: int, new_batch: int, rule: str) -> float:
    """Give the right answer."""
    if rule not in FACTORS:
        raise ValueError(rule)
    return lr * FACTORS[rule](new_batch / batch)


def by_factor(wrong: Function) -> Function:
    """Make a wrong answer, from lr, batch, new batch and the factor that rule makes of a ratio."""
    return lambda lr, batch, new, rule: wrong(lr, batch, new, FACTORS[rule])


def no_error(got: str, lr: float, batch: int, new_batch: int, rule: str) -> str:
    """Write the message for an answer that accepts any rule."""
    return (
        f"gives {got} for the rule {rule!r}, "
        "but a misspelled rule would go unnoticed: raise ValueError"
    )


SCALE_MISTAKES: dict[str, Function] = {
    "the ratio is upside down: a larger batch gets a larger rate":
        lambda lr, b, new, rule: scale(lr, new, b, rule),
    "that is what the other rule gives":
        lambda lr, b, new, rule: scale(lr, b, new, OTHER[rule]),
    "that is what the linear rule gives": lambda lr, b, new, rule: scale(lr, b, new, "linear"),
    "that is what the square-root rule gives": lambda lr, b, new, rule: scale(lr, b, new, "sqrt"),
    "that is only the factor: multiply lr by it": lambda lr, *args: scale(1, *args),
    "nothing was scaled": lambda lr, *args: lr,
    "takes the square root of lr too: take that of the ratio alone":
        lambda lr, b, new, rule: FACTORS[rule](lr * new / b),
    "the ratio is squared": lambda lr, b, new, rule: lr * (new / b) ** 2,
    "// rounds down to whole numbers: use /": by_factor(lambda lr, b, new, f: lr * f(new // b)),
    "multiplies by the new batch size: divide by the old one as well":
        by_factor(lambda lr, b, new, f: lr * f(new)),
    "divides by the old batch size: multiply by the new one as well":
        by_factor(lambda lr, b, new, f: lr / f(b)),
    "the ratio is squared and upside down": lambda lr, b, new, rule: lr * (b / new) ** 2,
    "adds the factor instead of multiplying by it":
        by_factor(lambda lr, b, new, f: lr + f(new / b)),
}  # fmt: skip
SCALE = Exercise(
    name="scale_rate",
    reference=scale,
    outcome=Outcome(rtol=1e-4),
    wording=Wording(
        when='for lr {:g}, batch {} to {}, rule "{}"'.format,
        says="gives {got:.3g} {when}; it should give {right:.3g}: {message}",
        odd=rounding,
        unknown="multiply lr by new_batch / batch, or by its square root",
    ),
    ideas={
        "the linear rule, for larger and smaller batches": cases(
            *((*sizes, "linear") for sizes in BATCHES)
        ),
        "the square-root rule, for larger and smaller batches": cases(
            *((*sizes, "sqrt") for sizes in BATCHES)
        ),
        "a ValueError for an unknown rule": [
            Raises([(1e-3, 64, 128, rule) for rule in ("cubic", "", "Linear rule")], no_error)
        ],
    },
    mistakes=SCALE_MISTAKES,
)
check_scale_rate = SCALE.check


# Rates, drawn

DECADES = (1e-5, 1e-1)  # four of them


def drawn(answer: Function, n: int, low: float, high: float, seed: int) -> list[float]:
    """Return the rates of an answer.

    The global generators are put back.

    raises: Mistake unless they are n numbers
    """
    when = f"for n = {n}, from {low:g} to {high:g}, seed {seed}"
    with generators_restored():
        got = as_list(answer(n, low, high, seed), when, "n rates in a list or tensor", most=n + 1)
    reject_if(len(got) != n, f"gives {len(got)} rates {when}")
    return [as_number(rate, when, "rates that are numbers") for rate in got]


def fills(values: Sequence[float], low: float, high: float) -> bool:
    """Tell whether many values lie within a range, and reach near to both of its ends."""
    near = 0.1 * (high - low)
    return low - 1e-4 <= min(values) < low + near and high - near < max(values) <= high + 1e-4


def inside(answer: Function, n: int, low: float, high: float, seed: int) -> dict[str, bool]:
    """Return True; Mistake where a rate is not between low and high."""
    rates, where = drawn(answer, n, low, high, seed), f"between {low:g} and {high:g}"
    least, most = min(rates), max(rates)
    endless = math.isinf(least) or math.isinf(most)
    reject_if(endless, f"gives {least:.3g} to {most:.3g} {where}: a rate is a finite number")
    if low * 0.9999 <= least and most <= high * 1.0001:
        return {"": True}
    tens, es = ([log(end) for end in (low, high)] for log in (math.log10, math.log))
    as_exponent = fills(rates, *tens) or fills(rates, *es)
    reject_if(
        as_exponent, f"gives {least:.2f} {where}: that is the exponent. Raise 10 (or e) to it"
    )
    logs = [math.log(max(rate, 1e-300)) for rate in rates]
    mixed = fills(logs, *tens) or fills(logs, *(math.log(10) * end for end in es))
    reject_if(mixed, f"gives {least:.3g} {where}: the logarithm and the power have different bases")
    start = "The exponent should lie between log(low) and log(high)"
    reject_if(most > high, f"gives {most:.3g}, which is above {high:g}. {start}")
    raise Mistake(f"gives {least:.3g}, which is below {low:g}. {start}")


def spread(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the rates are uniform in their exponent, and random."""
    rates = ask(partial(drawn, answer), 2000, *DECADES, 0)
    logs = sorted(map(math.log10, rates))
    few, gaps = len({f"{rate:.3g}" for rate in rates}), [b - a for a, b in pairwise(logs)]
    reject_if(few == 1, f"gives the rate {rates[0]:.3g} 2,000 times; draw a new one for each")
    reject_if(
        few < 100,
        f"only {few} different rates among 2,000: draw real exponents instead of whole ones",
    )
    reject_if(max(gaps) < 1.5 * fmean(gaps), "the rates are a regular grid; draw them at random")
    expect_even(rates, logs)
    for x, end in ((logs[0], -5), (logs[-1], -1)):
        reject_if(
            abs(x - end) > 0.1, f"no rate comes near {10.0**end:g}: the whole range should be used"
        )


def expect_even(rates: Sequence[float], logs: Sequence[float]) -> None:
    """Raise Mistake unless every power of ten has its share of the rates, and each half of it."""
    shares = [sum(decade <= x < decade + 1 for x in logs) / 2000 for decade in (-5, -4, -3, -2)]
    listed = ", ".join(f"{share:.2f}" for share in shares)
    span = f"from {DECADES[0]:g} to {DECADES[1]:g}"
    between = f"{span}, the four powers of ten contain {listed} of the rates"
    above = sum(rate > sum(DECADES) / 2 for rate in rates) / 2000
    message = f"uniform, not log-uniform: {between}. The exponent should be uniform, not the rate"
    reject_if(shares[3] > 0.8 and abs(above - 0.5) < 0.06, message)
    message = (
        f"crowded at the low end: {between}. Draw a uniform exponent and transform nothing else"
    )
    reject_if(shares[0] > 0.8, message)
    uneven = max(abs(share - 0.25) for share in shares) > 0.06
    even = "each should contain a quarter, as they do if the exponent is uniform"
    reject_if(uneven, f"{between}; {even}")
    halves = [sum(half <= 2 * x < half + 1 for x in logs) / 2000 for half in range(-10, -2)]
    upper = sum(halves[1::2])
    within = "within the powers of ten, as from 0.001 to 0.01,"
    half = f"{upper:.0%} of the rates are above the middle exponent, as above 0.00316"
    message = f"{within} {half}; it should be half of them, for the exponent should be uniform"
    reject_if(abs(upper - 0.5) > 0.06, message)
    listed = ", ".join(f"{share:.2f}" for share in halves)
    message = f"{span}, the eight halves of the powers of ten contain {listed} of the rates"
    reject_if(max(abs(x - 0.125) for x in halves) > 0.04, f"{message}; each should have an eighth")


def seeded(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the rates follow from the seed, also from 0 and a large one."""
    rates = partial(ask, partial(drawn, answer), 20, *DECADES)
    again = "gives different rates when called again with"
    message = f"{again} the same seed: is a generator seeded with it, and passed to what draws?"
    reject_if(rates(3) != rates(3), message)
    message = f"{again} seed 0, but not with seed 3: is 0 taken for no seed?"
    reject_if(rates(0) != rates(0), message)
    reject_if(rates(3) == rates(4), "gives the same rates for every seed: is the seed used?")
    for seed, other in ((0, 1), (LARGE, LARGE - 1)):
        message = f"gives the same rates for the seeds {seed} and {other}"
        reject_if(rates(seed) == rates(other), message)


def by_torch(n: int, low: float, high: float, seed: int) -> Tensor:
    """Give a right answer."""
    return low * (high / low) ** torch.rand(
        n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


DRAW = Exercise(
    name="draw_rates",
    reference=by_torch,
    outcome=Outcome(observe=inside),
    wording=Wording(when=lambda *args: ""),
    ideas={
        "n rates, all between low and high": cases(
            (200, 1e-4, 1e-1, 0), (1, 1e-3, 1e-2, 3), (5, 2e-5, 4e-2, 1), (50, 0.5, 200.0, 2)
        ),
        "every power of ten gets its share of the rates": [spread],
        "the same rates for the same seed, and others for another": [seeded],
        "a generator of its own: the global ones neither change the rates nor are changed": [
            own_generator(
                6, *DECADES, 5, message="the next training run would start from different weights"
            )
        ],
    },
    # rates are drawn at random, so none are compared: `inside` and `spread` tell what is wrong
    mistakes={},
)
check_draw_rates = DRAW.check


# Halving


class Trainer:
    """Stands in for the training and records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []

    def __call__(self, candidate: Any, epochs: int) -> float:
        message = (
            f"calls score with {short(candidate)}, but it takes a candidate and a number of epochs"
        )
        reject_if(not isinstance(candidate, dict), message)
        some = is_number(epochs) and epochs >= 1
        reject_if(
            not some, f"calls score for {short(epochs)} epochs, but they double after every round"
        )
        self.calls.append((epochs, candidate["name"]))
        message = (
            "never ends, or calls score more than 100 times for a few candidates: "
            "every round should shorten the list (half of 3 is 2, and half of 2 is 1)"
        )
        reject_if(len(self.calls) > 100, message)
        start, gain = candidate["curve"]
        return start + gain * math.log2(epochs)


def best_half(rated: Sequence[tuple[float, Any]]) -> list[Any]:
    """Return the candidates with the better half of the scores."""
    best = sorted(rated, key=lambda pair: pair[0], reverse=True)
    return [candidate for _, candidate in best[: (len(best) + 1) // 2]]


def by_all_rounds(rule: Function = lambda scores: scores[-1]) -> Function:
    """Make an answer; rule: (a candidate's scores, round by round) -> what is compared."""

    def answer(candidates: list[Any], score: Function, epochs: int) -> dict[str, Any]:
        scores: dict[int, list[float]] = {}
        while len(candidates) > 1:
            for candidate in candidates:
                scores.setdefault(id(candidate), []).append(score(candidate, epochs))
            candidates = best_half([(rule(scores[id(c)]), c) for c in candidates])
            epochs *= 2
        return candidates[0]

    return answer


right_halving = by_all_rounds()


def best_of_all(candidates: list[Any], score: Function, epochs: int) -> dict[str, Any]:
    """Train as is right, but return the candidate that had the best score in any round."""
    seen: list[tuple[float, Any]] = []

    def noted(candidate: Any, epochs: int) -> float:
        seen.append((score(candidate, epochs), candidate))
        return seen[-1][0]

    left = right_halving(candidates, noted, epochs)
    return max(seen, key=lambda pair: pair[0])[1] if seen else left


def overwriting(candidates: list[Any], score: Function, epochs: int) -> dict[str, Any]:
    """Keep one candidate for each score."""
    while len(candidates) > 1:
        rated = {score(candidate, epochs): candidate for candidate in candidates}
        best = sorted(rated, reverse=True)[: (len(candidates) + 1) // 2]
        candidates = [rated[rating] for rating in best]
        epochs *= 2
    return candidates[0]


def expect_untouched(copies: list[Any], same_ones: list[Any], candidates: list[Any]) -> None:
    """Raise Mistake if an answer has changed the list of candidates, or one of them.

    same_ones: what was in the list before
    """
    for copied, candidate in zip(same_ones, candidates, strict=True):
        reject_if(
            copied != candidate,
            f"writes into a candidate: {candidate} is now {copied}. Leave its settings as they are",
        )
    reject_if(copies != candidates, "changes the list of candidates; make a new list")


def played(answer: Function, candidates: list[Any], epochs: int, part: str) -> dict[str, Any]:
    """Observe the calls of the first round, or of all rounds, or the candidate that is left.

    Of all rounds, "counts" are the numbers of calls alone: which of equal ones go on is open.
    """
    copies, trainer = copy_of(candidates), Trainer()
    same_ones = list(copies)
    got = answer(copies, trainer, epochs)
    expect_untouched(copies, same_ones, candidates)
    nothing = "returns None: does it end with return?"
    never = "never calls score(candidate, epochs)"
    reject_if(
        not trainer.calls and len(candidates) > 1,
        f"{never}, and {nothing}" if got is None else never,
    )
    if part == "first":
        return {part: sorted(call for call in trainer.calls if call[0] == trainer.calls[0][0])}
    if part == "rounds":
        return {part: sorted(trainer.calls)}
    if part == "counts":
        return {part: sorted(Counter(epochs for epochs, _ in trainer.calls).items())}
    reject_if(got is None, nothing)
    many = ", not a list" if isinstance(got, (list, tuple)) else ""
    reject_if(
        not isinstance(got, dict), f"gives {short(got)}; it should give the candidate itself{many}"
    )
    reject_if(got not in same_ones, f"gives {got}, which is none of the candidates")
    reject_if(
        not any(got is candidate for candidate in same_ones),
        "gives a copy of a candidate; it should give the candidate itself",
    )
    return {part: got["name"]}


def first_round(
    got: list[Any], right: list[Any], candidates: list[Any], epochs: int, part: str
) -> str:
    """Say what is wrong with the calls of the first round."""
    n, began, lost = len(candidates), got[0][0], len(candidates) - len({*got})
    if began != epochs:
        doubled = ". Double them after a round, not before" if began == 2 * epochs else ""
        return f"the epochs of the first round are {began}; they should be {epochs}{doubled}"
    if lost:
        return f"the first round tries {n - lost} of {n} candidates; it should try all of them"
    again = "score each candidate once per round, and double the epochs after it"
    return f"{len(got)} runs of {epochs} epochs for {n} candidates: {again}"


def other_rounds(got: list[Any], right: list[Any], candidates: list[Any], *args: Any) -> str:
    """Say what is wrong with the calls of later rounds."""
    for epochs in sorted({e for e, _ in right}):
        names, wanted = ([name for e, name in calls if e == epochs] for calls in (got, right))
        if len(names) != len(wanted):
            return other_count(len(candidates), epochs, len(names), len(wanted))
        if names != wanted:
            return (
                f"of {len(candidates)} candidates, {', '.join(names)} go on, "
                f"but {', '.join(wanted)} have the best scores"
            )
    spent, asked = (sum(e for e, _ in calls) for calls in (got, right))
    return (
        f"spends {spent} epochs on {len(candidates)} candidates; "
        f"{asked} are enough. Stop when one is left"
    )


def other_count(n: int, epochs: int, got: int, wanted: int) -> str:
    """Say that the wrong number of n candidates is trained for so many epochs."""
    counts = f"of {n} candidates, {got} are trained for {epochs} epochs; it should be {wanted}"
    if not got:
        return f"{counts}. The epochs double after every round, until one candidate is left"
    return f"{counts}. The better half goes on (half of an odd number is rounded up)"


def other_counts(got: list[Any], right: list[Any], candidates: list[Any], *args: Any) -> str:
    """Say the same where some of the candidates have equal scores."""
    names = [(e, f"run {i}") for e, n in got for i in range(n)]
    wanted = [(e, f"run {i}") for e, n in right for i in range(n)]
    return f"with equal scores: {other_rounds(names, wanted, candidates)}"


CURVES = [  # of candidates: accuracy after one epoch, gain at every doubling
    [
        (0.50, 0.02),
        (0.60, 0.03),
        (0.55, 0.01),
        (0.58, 0.09),
        (0.40, 0.20),
        (0.56, 0.02),
        (0.52, 0.001),
        (0.54, 0.0),
    ],
    [(0.5, 0.01), (0.6, 0.0), (0.55, 0.08), (0.3, 0.28), (0.2, 0.0)],
    [(0.3, 0.0), (0.4, 0.0), (0.5, 0.0)],
]
FALLING = [  # some lead at first, and are behind later
    [(0.39, 0.05), (0.74, -0.12), (0.31, -0.01), (0.89, -0.19), (0.37, -0.01)],
    [(0.55, -0.04), (0.82, -0.15), (0.66, -0.14), (0.49, -0.01), (0.35, 0.02)],
]
EQUAL = [[(0.5, 0.2)] + [(0.5, 0.1)] * 4, [(0.4, 0.1)] * 6]


def field(curves: Sequence[Arguments], epochs: int, part: str) -> Case:
    """Make candidates with these curves, the epochs of the first round, and what is compared."""
    return Case(
        lambda: (
            [
                {"name": f"candidate {i}", "lr": 0.01 / (i + 1), "curve": curve}
                for i, curve in enumerate(curves)
            ],
            epochs,
            part,
        )
    )


HALVING_MISTAKES: dict[str, Function] = {
    "the scores of earlier rounds count too (their sum or mean), "
    "but only those of the same round are compared": by_all_rounds(sum),
    "the best score of any round counts, but only those of the same round are compared":
        by_all_rounds(max),
    "returns the candidate with the best score of any round; return the one that is left":
        best_of_all,
    "of candidates with equal scores, only one is kept: is the score the key of a dictionary?":
        overwriting,
}  # fmt: skip
HALVING = Exercise(
    name="halving",
    reference=right_halving,
    outcome=Outcome(observe=played),
    wording=Wording(
        when=lambda *args: "",
        says="{message}",
        unknown={
            "first": first_round,
            "rounds": other_rounds,
            "counts": other_counts,
            "winner": lambda got, right, *args: f"gives {got}, but {right} is left at the end",
        },
        hints={
            "missing 1 required positional argument: 'epochs'": "score takes a candidate and a "
            "number of epochs",
            "between instances of 'dict' and 'dict'": "With equal scores, sorting pairs compares "
            "the candidates. Give sorted a key",
            "unhashable type: 'dict'": "A candidate is a dictionary, which cannot be a key or be "
            "in a set: keep scores in a list, in the order of the candidates",
        },
    ),
    ideas={
        "every candidate is tried first, for as many epochs as asked": [
            field(curves, 2, "first") for curves in CURVES
        ],
        "the better half goes on, for twice as many epochs": [
            field(curves, 3, "rounds") for curves in CURVES + FALLING
        ],
        "the one that is left is returned": [
            field(curves, 3, "winner") for curves in CURVES + FALLING
        ],
        "equal scores, a single candidate, and the list as it was": [
            *(field(curves, 2, "counts") for curves in EQUAL),
            field(EQUAL[0], 2, "winner"),
            field([(0.5, 0.1)], 1, "winner"),
        ],
    },
    mistakes=HALVING_MISTAKES,
)
check_halving = HALVING.check
