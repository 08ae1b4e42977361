"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import itertools
import math
import random
import re
import statistics
from collections import defaultdict

import numpy as np
import pytest
import torch

from vit_helpers.checks.ablation import (
    check_compare,
    check_draw_rates,
    check_halving,
    check_one_at_a_time,
    check_pick,
    check_scale_rate,
)


def not_written(*_):
    raise NotImplementedError


# draw_rates


def own(seed):
    return torch.Generator().manual_seed(seed)


def uniform(n, seed):
    return torch.rand(n, generator=own(seed), dtype=torch.float64)


def by_torch(n, low, high, seed):
    return low * (high / low) ** uniform(n, seed)


def by_tens(n, low, high, seed):
    return 10 ** (math.log10(low) + (math.log10(high) - math.log10(low)) * torch.rand(n, generator=own(seed)))


def by_numpy(n, low, high, seed):
    return np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(high), size=n))


def by_python(count, lowest, highest, start):
    dice = random.Random(start)
    return [math.exp(dice.uniform(math.log(lowest), math.log(highest))) for _ in range(count)]


DRAW_RIGHT = [
    by_torch,
    by_tens,
    by_numpy,
    by_python,
    lambda n, low, high, seed: sorted(by_python(n, low, high, seed)),
    lambda n, low, high, seed: low * (high / low) ** ((torch.randperm(n, generator=own(seed)) + uniform(n, seed)) / n),
    lambda n, low, high, seed: tuple(high * (low / high) ** u for u in uniform(n, seed)),
    lambda n, low, high, seed: (x for x in by_torch(n, low, high, seed).tolist()),
]


def exponents(change):
    """An answer that goes wrong with the logarithms of the right rates"""
    return lambda n, low, high, seed: change(by_torch(n, low, high, seed).log10(), low, high)


def global_torch(n, low, high, seed):
    torch.manual_seed(seed)
    return low * (high / low) ** torch.rand(n)


def global_numpy(n, low, high, seed):
    np.random.seed(seed)
    return low * (high / low) ** np.random.rand(n)


DRAW_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda n, low, high, seed: by_torch(1, low, high, seed).item(), "a row of n rates"),
    (lambda n, low, high, seed: by_torch(1, low, high, seed)[0], "gives one number"),
    (lambda n, low, high, seed: by_torch(n + 1, low, high, seed), "gives 201 rates"),
    (lambda n, low, high, seed: ["a"] * n, "a row of numbers"),
    (exponents(lambda x, low, high: x), "that is the exponent"),
    (exponents(lambda x, low, high: x * math.log(10)), "that is the exponent"),
    (exponents(lambda x, low, high: x.exp()), "drawn with one logarithm, undone with another"),
    (exponents(lambda x, low, high: 10 ** (x * math.log(10))), "drawn with one logarithm, undone with another"),
    (lambda n, low, high, seed: math.log(low) + (math.log(high) - math.log(low)) * uniform(n, seed), "is the exponent"),
    (lambda n, low, high, seed: high * (high / low) ** uniform(n, seed), "which is above 0.1"),
    (lambda n, low, high, seed: low * (low / high) ** uniform(n, seed), "which is below 0.0001"),
    (lambda n, low, high, seed: low + (high - low) * uniform(n, seed), "uniform, not log-uniform"),
    (lambda n, low, high, seed: 1 / (1 / low + (1 / high - 1 / low) * uniform(n, seed)), "crowded at the low end"),
    (lambda n, low, high, seed: by_torch(1, low, high, seed).repeat(n), "draw a new one for each"),
    (lambda n, low, high, seed: torch.logspace(math.log10(low), math.log10(high), n), "an even grid"),
    (exponents(lambda x, low, high: 10 ** x.floor().clamp(min=math.log10(low))), "with a fraction, not whole ones"),
    (lambda n, low, high, seed: low * (high / low) ** uniform(n, seed) ** 2, "each should get a quarter"),
    (lambda n, low, high, seed: by_torch(n, low, high, 0), "the same rates for every seed"),
    (
        lambda n, low, high, seed: (
            low * (high / low) ** torch.rand(n, generator=torch.Generator().manual_seed(int(torch.seed() % 1000)))
        ),
        "when called again",
    ),
    (global_torch, "moves torch's global generator"),
    (global_numpy, "moves numpy's global generator"),
    (lambda n, low, high, seed: low * (high / low) ** (uniform(n, seed) + torch.rand(1)), "which is above"),
    (lambda n, low, high, seed: math.log(low) * n, "a row of n rates"),
]

# scale_rate

RULES = {"linear": lambda x: x, "sqrt": lambda x: x**0.5}


def scale(lr, batch, new_batch, rule):
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule}")
    return lr * RULES[rule](new_batch / batch)


def scale_by_ifs(rate, old, new, way):
    if way == "linear":
        return rate / old * new
    if way == "sqrt":
        return torch.tensor(rate * math.sqrt(new) / math.sqrt(old))
    raise ValueError(way)


SCALE_RIGHT = [scale, scale_by_ifs, lambda *a: np.float64(scale(*a))]


def scale_by(function):
    return lambda lr, b, new, rule: function(lr, b, new, RULES[rule])


SCALE_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: str(scale(*a)) + "!", "it should give a number"),
    (scale_by(lambda lr, b, new, f: lr * f(b / new)), "upside down"),
    (lambda lr, b, new, rule: scale(lr, b, new, {"linear": "sqrt", "sqrt": "linear"}[rule]), "what the other rule gives"),
    (lambda lr, b, new, rule: lr * new / b, '"sqrt".*what the other rule gives'),
    (lambda lr, b, new, rule: lr * (new / b) ** 0.5, '"linear".*what the other rule gives'),
    (scale_by(lambda lr, b, new, f: f(new / b)), "only the factor"),
    (lambda lr, b, new, rule: lr, "nothing was scaled"),
    (lambda lr, b, new, rule: lr * new / b if rule == "linear" else (lr * new / b) ** 0.5, "the root is taken of lr too"),
    (lambda lr, b, new, rule: lr * new / b if rule == "linear" else lr * (new / b) ** 2, "the ratio is squared"),
    (scale_by(lambda lr, b, new, f: lr * f(new // b)), "whole numbers"),
    (scale_by(lambda lr, b, new, f: lr * f(new)), "divide by the old one"),
    (scale_by(lambda lr, b, new, f: lr / f(b)), "multiply by the new one"),
    (scale_by(lambda lr, b, new, f: lr + f(new / b)), "multiply by it"),
    (
        lambda lr, b, new, rule: lr * (new / b if rule == "linear" else (new / b) ** 0.5),
        "for the rule 'cubic'.*raise ValueError",
    ),
    (lambda lr, b, new, rule: lr * RULES[rule](new / b), "raises KeyError for the rule"),
    (lambda lr, b, new, rule: scale(lr, b, new, rule) if rule in RULES else None, "raise ValueError"),
]

# one_at_a_time


def one(baseline, options):
    runs = [dict(baseline)]
    for name, values in options.items():
        runs += [baseline | {name: value} for value in values if value != baseline.get(name)]
    return runs


def one_as_generator(base, options):
    yield base.copy()
    for name in options:
        for value in options[name]:
            run = {**base}
            run[name] = value
            if run != base:
                yield run


def one_of_unchanged(baseline, options):
    return (baseline, *one(baseline, options)[1:][::-1])


ONE_RIGHT = [one, one_as_generator, one_of_unchanged]


def piled(baseline, options):
    runs, run = [dict(baseline)], dict(baseline)
    for name, values in options.items():
        for value in values:
            run = {**run, name: value}
            runs.append(run)
    return runs


def in_place(baseline, options):
    runs = [dict(baseline)]
    for name, values in options.items():
        for value in values:
            baseline[name] = value
            runs.append(dict(baseline))
    return runs


def one_dictionary(baseline, options):
    runs, run = [], dict(baseline)
    for name, values in options.items():
        for value in values:
            run[name] = value
            runs.append(run)
            run[name] = value
    return runs


def grid(baseline, options):
    return [{**baseline, **dict(zip(options, values, strict=True))} for values in itertools.product(*options.values())]


def last_only(baseline, options):
    return [dict(baseline)] + [{**baseline, name: values[-1]} for name, values in options.items()]


def truthy(baseline, options):
    return [dict(baseline)] + [
        {**baseline, name: value}
        for name, values in options.items()
        for value in values
        if value and value != baseline.get(name)
    ]


def popped(baseline, options):
    runs = [dict(baseline)]
    while options:
        name, values = options.popitem()
        runs += [{**baseline, name: value} for value in values if value != baseline.get(name)]
    return runs


KEPT = []


def keeps(baseline, options):
    KEPT.extend(run for run in one(baseline, options) if run not in KEPT)
    return KEPT


def cached(baseline, options, kept={}):  # noqa: B006  that is the mistake
    return kept.setdefault(str((baseline, options)), one(baseline, options))


ONE_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda *a: len(one(*a)), "a list of settings"),
    (lambda *a: dict(enumerate(one(*a))), "a run is a dictionary"),
    (lambda *a: [str(run) for run in one(*a)], "a run is a dictionary"),
    (lambda b, o: one(b, o)[1:], "the baseline .* itself is missing"),
    (lambda b, o: one(b, o)[::-1], "the baseline comes first"),
    (lambda b, o: [dict(b)] + [{n: v} for n, vs in o.items() for v in vs], "lacks depth: it should hold the baseline's"),
    (grid, "changes 2 things at once"),
    (piled, "changes 2 things at once"),
    (in_place, "changes the baseline"),
    (one_dictionary, "changes 2 things at once"),
    (lambda b, o: [dict(b)] + [{**b, n: v} for n, vs in o.items() for v in vs], "leave out values that it has already"),
    (last_only, "is missing"),
    (truthy, "0 taken for no value"),
    (popped, "changes the options"),
    (lambda b, o: one(b, o) * 2, "is run 2 times"),
    (lambda b, o: one(b, o) + one(b, o)[1:], "comes more than once"),
    (lambda b, o: [*one(b, o), {**b, "lr": 7}], "was not asked for"),
    (cached, "of an earlier call"),
]

# compare


def compare(baseline, changed):
    steps = [b - a for a, b in zip(baseline, changed, strict=True)]
    mean, error = statistics.mean(steps), statistics.stdev(steps) / len(steps) ** 0.5
    return mean, error, abs(mean) > 2 * error


def by_tensors(one, two):
    steps = torch.tensor(two, dtype=torch.float64) - torch.tensor(one, dtype=torch.float64)
    error = steps.std() / len(steps) ** 0.5
    return steps.mean(), error, steps.mean().abs() > 2 * error


def by_arrays(one, two):
    steps = np.array(two) - np.array(one)
    error = steps.std(ddof=1) / np.sqrt(len(steps))
    return [steps.mean(), error, np.abs(steps.mean()) > 2 * error]


def by_hand(baseline, changed):
    n, total = len(baseline), 0
    steps = [changed[i] - baseline[i] for i in range(n)]
    mean = sum(steps) / n
    for step in steps:
        total += (step - mean) ** 2
    error = math.sqrt(total / (n - 1) / n)
    return mean, error, mean > 2 * error or mean < -2 * error


def in_float32(one, two):
    steps = torch.tensor(two) - torch.tensor(one)
    error = steps.std() / len(steps) ** 0.5
    return steps.mean().item(), error.item(), int(abs(steps.mean()) > 2 * error)


COMPARE_RIGHT = [compare, by_tensors, by_arrays, by_hand, in_float32]


def steps(a, b):
    return [y - x for x, y in zip(a, b, strict=True)]


def with_mean(function):
    return lambda a, b: (function(a, b), *compare(a, b)[1:])


def with_error(function):
    return lambda a, b: (compare(a, b)[0], function(a, b), compare(a, b)[2])


def with_larger(function):
    return lambda a, b: (*compare(a, b)[:2], function(*compare(a, b)[:2]))


def sorts(baseline, changed):
    baseline.sort()
    changed.sort()
    return compare(baseline, changed)


COMPARE_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "does it end with return"),
    (lambda a, b: compare(a, b)[0], "three things"),
    (lambda a, b: compare(a, b)[:2], "gives 2 things"),
    (lambda a, b: (compare(a, b)[1], *compare(a, b)[::2]), "It goes difference, error"),
    (lambda a, b: (*compare(a, b)[:2], "yes"), "True or False"),
    (lambda a, b: (*compare(a, b)[:2], 2.5), "True or False"),
    (lambda a, b: (steps(a, b), *compare(a, b)[1:]), "it should give a number"),
    (sorts, "tears the pairs apart"),
    (with_mean(lambda a, b: -compare(a, b)[0]), "the sign is turned"),
    (with_mean(lambda a, b: max(b) - max(a)), "the best seeds"),
    (with_mean(lambda a, b: max(steps(a, b))), "the largest difference"),
    (with_mean(lambda a, b: sum(steps(a, b))), "that is the sum"),
    (with_mean(lambda a, b: statistics.mean(b)), "of the change itself"),
    (with_mean(lambda a, b: statistics.mean(b) / statistics.mean(a)), "that is a ratio"),
    (with_mean(lambda a, b: sum(steps(a, b)) / (len(a) - 1)), "a mean divides by n"),
    (with_mean(lambda a, b: abs(compare(a, b)[0])), "signs are lost"),
    (with_error(lambda a, b: statistics.stdev(steps(a, b))), "the spread of the differences"),
    (with_error(lambda a, b: np.std(steps(a, b)) / len(a) ** 0.5), "should be n - 1"),
    (with_error(lambda a, b: np.std(steps(a, b))), "without the root of n"),
    (with_error(lambda a, b: statistics.stdev(steps(a, b)) / len(a)), "falls with the root of n"),
    (with_error(lambda a, b: ((np.var(a, ddof=1) + np.var(b, ddof=1)) / len(a)) ** 0.5), "not paired: the spreads of both"),
    (with_error(lambda a, b: ((np.var(a) + np.var(b)) / len(a)) ** 0.5), "not paired, and with n"),
    (with_error(lambda a, b: statistics.stdev(b) / len(b) ** 0.5), "the error of the change alone"),
    (with_error(lambda a, b: statistics.stdev(b)), "the spread of the change alone"),
    (with_error(lambda a, b: statistics.variance(steps(a, b)) / len(a)), "that is a variance"),
    (with_error(lambda a, b: statistics.variance(steps(a, b))), "that is a variance"),
    (with_error(lambda a, b: 2 * compare(a, b)[1]), "the factor 2 belongs"),
    (with_larger(lambda mean, error: mean > 2 * error), r"compare abs\(difference\)"),
    (with_larger(lambda mean, error: abs(mean) > error), "twice the error, not once"),
    (with_larger(lambda mean, error: abs(mean) < 2 * error), "turned round"),
    (with_larger(lambda mean, error: True), "not once"),
    (with_larger(lambda mean, error: False), "called not larger"),
    (with_larger(lambda mean, error: abs(mean) > 4 * error), "called not larger"),
    (with_larger(lambda mean, error: abs(mean) / error > 2), "divides by an error of 0"),
    (with_larger(lambda mean, error: abs(mean) >= 2 * error), "called larger where nothing differs"),
]

# pick


def by_change(rows, key="val_accuracy"):
    groups = defaultdict(list)
    for row in rows:
        groups[row["change"]].append(row[key])
    return groups


def pick(rows):
    groups = by_change(rows)
    return max(groups, key=lambda name: statistics.mean(groups[name]))


def pick_by_loop(rows):
    best, name = -1, None
    for change in {row["change"] for row in rows}:
        values = torch.tensor([row["val_accuracy"] for row in rows if row["change"] == change])
        if values.mean() > best:
            best, name = values.mean(), change
    return name


def pick_by_groups(rows):
    rows = sorted(rows, key=lambda row: row["change"])
    means = {
        change: np.mean([row["val_accuracy"] for row in group])
        for change, group in itertools.groupby(rows, key=lambda row: row["change"])
    }
    return sorted(means, key=means.get)[-1]


PICK_RIGHT = [pick, pick_by_loop, pick_by_groups]


def best(function, key="val_accuracy"):
    def answer(rows):
        groups = by_change(rows, key)
        return max(groups, key=lambda name: function(groups[name]))

    return answer


def single(key):
    return lambda rows: max(rows, key=lambda row: row[key])["change"]


def sorts_rows(rows):
    rows.sort(key=lambda row: row["change"])
    return pick(rows)


def ungrouped(rows):
    """groupby of rows that are not sorted: the last piece of a change counts for it"""
    means = {}
    for change, group in itertools.groupby(sorted(rows, key=lambda row: row["seed"]), key=lambda row: row["change"]):
        means[change] = statistics.mean(row["val_accuracy"] for row in group)
    return max(means, key=means.get)


SEEN = []


def remembers(rows):
    SEEN.extend(rows)
    return pick(SEEN)


PICK_WRONG = [
    (not_written, "not written yet"),
    (lambda rows: None, "does it end with return"),
    (single("test_accuracy"), "still the planted mistake"),
    (single("val_accuracy"), "best single run, by luck"),
    (best(statistics.mean, "test_accuracy"), "the test part is for the end"),
    (best(min), "the best of the worst"),
    (best(sum), "Divide by their number"),
    (best(lambda x: -statistics.mean(x)), "max, not min"),
    (best(statistics.median), "its median is the best"),
    (lambda rows: rows[0]["change"], "stands in the first row"),
    (lambda rows: max(rows, key=lambda row: row["val_accuracy"]), "gives a whole row"),
    (lambda rows: max(map(statistics.mean, by_change(rows).values())), "not its accuracy"),
    (lambda rows: [pick(rows)], "the name of a change"),
    (lambda rows: "baseline", "no change of these rows"),
    (lambda rows: "right", "picks 'right' from other rows"),
    (ungrouped, "picks 'lucky"),
    (sorts_rows, "changes the rows"),
    (remembers, "was something kept"),
]

# halving


def halving(candidates, score, epochs):
    left = list(candidates)
    while len(left) > 1:
        left = sorted(left, key=lambda candidate: score(candidate, epochs), reverse=True)[: math.ceil(len(left) / 2)]
        epochs *= 2
    return left[0]


def halving_by_recursion(candidates, score, epochs=1):
    if len(candidates) == 1:
        return candidates[0]
    scores = np.array([score(candidate, epochs) for candidate in candidates])
    best = np.argsort(-scores)[: -(-len(candidates) // 2)]
    return halving_by_recursion([candidates[i] for i in best], score, 2 * epochs)


HALVING_RIGHT = [halving, halving_by_recursion]


def halve(
    keep=lambda n: math.ceil(n / 2), grow=lambda e: 2 * e, sign=-1, stop=1, start=lambda e: e, give=lambda left: left[0]
):
    def answer(candidates, score, epochs):
        left, epochs = list(candidates), start(epochs)
        while len(left) > stop:
            left = sorted(left, key=lambda candidate: sign * score(candidate, epochs))[: keep(len(left))]
            epochs = grow(epochs)
        return give(left)

    return answer


def drains(candidates, score, epochs):
    while len(candidates) > 1:
        scores = [score(candidate, epochs) for candidate in candidates]
        for _ in range(len(candidates) // 2):
            worst = scores.index(min(scores))
            del scores[worst], candidates[worst]
        epochs *= 2
    return candidates[0]


def by_pairs(candidates, score, epochs):
    while len(candidates) > 1:
        pairs = sorted(((score(c, epochs), c) for c in candidates), reverse=True)
        candidates = [c for _, c in pairs[: (len(pairs) + 1) // 2]]
        epochs *= 2
    return candidates[0]


def once(candidates, score, epochs):
    return max(candidates, key=lambda candidate: score(candidate, epochs))


def scores_twice(candidates, score, epochs):
    while len(candidates) > 1:
        middle = sorted(score(c, epochs) for c in candidates)[len(candidates) // 2]
        candidates = [c for c in candidates if score(c, epochs) >= middle]
        epochs *= 2
    return candidates[0]


def final_run(candidates, score, epochs):
    best = halving(candidates, score, epochs)
    score(best, 64)
    return best


HALVING_WRONG = [
    (not_written, "not written yet"),
    (lambda *a: None, "never calls score"),
    (lambda candidates, score, epochs: halving(candidates, score, epochs) and None, "does it end with return"),
    (halve(start=lambda e: 2 * e), "begins with 4 epochs"),
    (halve(start=lambda e: 1), "begins with 1 epochs"),
    (lambda c, score, e: halving(c[1:], score, e), "1 of 8 candidates are not tried"),
    (halve(keep=lambda n: n), "never ends"),
    (halve(keep=lambda n: n // 2 + 1), "never ends"),
    (halve(keep=lambda n: n // 2), "Half of an odd number is rounded up"),
    (halve(keep=lambda n: max(1, n - 1)), "more than half"),
    (halve(sign=1), "go on; better were"),
    (halve(grow=lambda e: e), "double the epochs after a round"),
    (halve(grow=lambda e: e + 1), "it should be"),
    (halve(stop=2), "it should be 2"),
    (halve(give=lambda left: left), "not a list"),
    (halve(give=lambda left: left[0]["name"]), "the candidate itself"),
    (lambda c, score, e: halving(c, score, e) and c[0], "is left in the end"),
    (once, "Are the epochs doubled"),
    (scores_twice, "score each candidate once a round"),
    (final_run, "Stop when one is left"),
    (drains, "changes the list of candidates"),
    (by_pairs, "raises TypeError for equal scores"),
    (lambda c, score, e: halving(list(range(len(c))), score, e), "takes a candidate and epochs"),
]


def cases(*pairs):
    return [(check, *(entry if isinstance(entry, tuple) else (entry,))) for check, list_ in pairs for entry in list_]


RIGHT = cases(
    (check_draw_rates, DRAW_RIGHT),
    (check_scale_rate, SCALE_RIGHT),
    (check_one_at_a_time, ONE_RIGHT),
    (check_compare, COMPARE_RIGHT),
    (check_pick, PICK_RIGHT),
    (check_halving, HALVING_RIGHT),
)
WRONG = cases(
    (check_draw_rates, DRAW_WRONG),
    (check_scale_rate, SCALE_WRONG),
    (check_one_at_a_time, ONE_WRONG),
    (check_compare, COMPARE_WRONG),
    (check_pick, PICK_WRONG),
    (check_halving, HALVING_WRONG),
)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert re.search(says, last) and not last.startswith("[v]"), last
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("seed", range(3))
def test_a_check_depends_on_no_seed_and_moves_none(seed, capsys):
    torch.manual_seed(seed)
    random.seed(seed)
    before = torch.get_rng_state(), random.getstate()
    assert check_draw_rates(by_torch) and check_pick(pick) and check_compare(by_tensors) and check_halving(halving)
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
