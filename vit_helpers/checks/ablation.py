"""Marks for the exercises of notebook 10."""

import copy
import math
import statistics
from collections.abc import Iterable
from itertools import pairwise

import torch

from vit_helpers.checks import marks
from vit_helpers.checks.data import GLOBALS
from vit_helpers.checks.marks import slip


def close(got, wanted):
    """Whether two numbers are the same to the digits of float32"""
    return math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-6)


def as_number(got, when, what="a number"):
    """The number that an answer gave: Python's, numpy's or a tensor of one"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    try:
        return float(got)
    except (TypeError, ValueError, RuntimeError):
        raise marks.Slip(f"gives {marks.short(got)} {when}; it should give {what}") from None


def as_list(got, when, what):
    """The things that an answer gave in a row, in whatever kind of row"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    slip(isinstance(got, str) or not isinstance(got, Iterable), f"gives {marks.short(got)} {when}; it should give {what}")
    slip(getattr(got, "ndim", 1) == 0, f"gives one number {when}; it should give {what}")
    return list(got)


# Learning rates, drawn

DECADES = (1e-5, 1e-1)  # four of them


def check_draw_rates(answer):
    """Mark a function (n, low, high, seed) -> n learning rates, log-uniform."""
    ideas = [
        ("n rates, all between low and high", rates_inside),
        ("every power of ten gets its share of the rates", rates_spread),
        ("the same rates for the same seed, others for another", rates_seeded),
        ("the generator is its own: no other seed moves the rates, and none is moved", rates_own),
    ]
    return marks.check("draw_rates", answer, ideas)


def drawn(answer, n, low, high, seed):
    """The rates of an answer, as Python's numbers"""
    when = f"for n = {n}, from {low:g} to {high:g}, seed {seed}"
    got = as_list(answer(n, low, high, seed), when, "a row of n rates")
    slip(len(got) != n, f"gives {len(got)} rates {when}")
    return [as_number(rate, when, "a row of numbers") for rate in got]


RANGES = ((200, 1e-4, 1e-1, 0), (1, 1e-3, 1e-2, 3), (5, 2e-5, 4e-2, 1), (50, 0.5, 200.0, 2))


def rates_inside(answer):
    for n, low, high, seed in RANGES:
        rates = drawn(answer, n, low, high, seed)
        least, most, where = min(rates), max(rates), f"between {low:g} and {high:g}"
        endless = [rate for rate in rates if not math.isfinite(rate)]
        slip(endless, f"gives {endless[:1]} {where}: is a logarithm taken of a negative number or of 0?")
        if low * 0.9999 <= least and most <= high * 1.0001:
            continue
        tens, es = (math.log10(low), math.log10(high)), (math.log(low), math.log(high))
        as_exponent = fills(rates, *tens) or fills(rates, *es)
        slip(as_exponent, f"gives {least:.2f} {where}: that is the exponent. The rate is 10 (or e) to its power")
        logs = [math.log(max(rate, 1e-300)) for rate in rates]
        mixed = fills(logs, *tens) or fills(logs, *(math.log(10) * end for end in es))
        slip(mixed, f"gives {least:.3g} {where}: the exponent was drawn with one logarithm, undone with another")
        start = "An exponent starts at log(low) and goes at most log(high) - log(low) further"
        slip(most > high, f"gives {most:.3g}, which is above {high:g}. {start}")
        slip(least < low, f"gives {least:.3g}, which is below {low:g}. {start}")


def fills(values, low, high):
    """Whether many values lie within a range, and reach near to both of its ends"""
    near = 0.1 * (high - low)
    return low - 1e-4 <= min(values) < low + near and high - near < max(values) <= high + 1e-4


def rates_spread(answer):
    low, high = DECADES
    rates = drawn(answer, 2000, low, high, 0)
    slip(len(set(rates)) == 1, f"gives the rate {rates[0]:.3g} 2,000 times; draw a new one for each")
    few = len({f"{rate:.3g}" for rate in rates})
    slip(few < 100, f"only {few} different rates among 2,000: draw exponents with a fraction, not whole ones")
    logs = sorted(math.log10(rate) for rate in rates)
    gaps = [b - a for a, b in pairwise(logs)]
    slip(max(gaps) < 1.5 * statistics.mean(gaps), "the rates are an even grid; draw them at random")
    shares = [sum(low * 10**i <= rate < low * 10 ** (i + 1) for rate in rates) / 2000 for i in range(4)]
    told = ", ".join(f"{share:.2f}" for share in shares)
    between = f"from {low:g} to {high:g}, the four powers of ten get the shares {told}"
    slip(shares[3] > 0.8, f"uniform, not log-uniform: {between}. Draw the exponent evenly, not the rate")
    slip(shares[0] > 0.8, f"crowded at the low end: {between}. Draw the exponent evenly; nothing else is to be bent")
    slip(
        max(abs(share - 0.25) for share in shares) > 0.06, f"{between}; each should get a quarter. Is the exponent uniform?"
    )
    for i, rate in enumerate((logs[0], logs[-1])):
        end = (low, high)[i]
        slip(abs(rate - math.log10(end)) > 0.1, f"no rate comes near {end:g}: the whole range should be used")


def rates_seeded(answer):
    first, again, other = (drawn(answer, 20, *DECADES, seed) for seed in (3, 3, 4))
    slip(first != again, "gives other rates when called again with the same seed; is the generator started from it?")
    slip(first == other, "gives the same rates for every seed: is the seed used?")


def rates_own(answer):
    for name, (read, write, start) in GLOBALS.items():
        kept = read()
        try:
            start(99)
            before = str(read())
            drawn(answer, 6, *DECADES, 5)
            moved = before != str(read())
        finally:
            write(kept)
        words = f"moves {name} global generator: the next training would start from other weights"
        slip(moved, f"{words}. Make one of your own, torch.Generator().manual_seed(seed)")
    torch.manual_seed(1)
    first = drawn(answer, 6, *DECADES, 5)
    torch.manual_seed(2)
    slip(first != drawn(answer, 6, *DECADES, 5), "gives other rates after torch.manual_seed elsewhere")


# Learning rates, scaled

BATCHES = [(0.5, 64, 160), (3e-3, 4096, 64), (1e-3, 64, 256), (2e-3, 100, 25), (1e-3, 32, 32)]
SCALES = {"linear": lambda ratio: ratio, "sqrt": math.sqrt}
SCALE_SLIPS = {  # what a wrong rate equals, from lr, batch, new batch and rule
    "upside down: a larger batch takes a larger rate": lambda lr, b, new, rule: lr * SCALES[rule](b / new),
    "this is what the other rule gives": lambda lr, b, new, rule: (
        lr * SCALES[{"linear": "sqrt", "sqrt": "linear"}[rule]](new / b)
    ),
    "that is only the factor; multiply lr by it": lambda lr, b, new, rule: SCALES[rule](new / b),
    "nothing was scaled": lambda lr, b, new, rule: lr,
    "the root is taken of lr too; only the ratio of the batches is under it": lambda lr, b, new, rule: (lr * new / b) ** 0.5,
    "the ratio is squared": lambda lr, b, new, rule: lr * (new / b) ** 2,
    "divides without a rest: // gives whole numbers, use /": lambda lr, b, new, rule: lr * SCALES[rule](new // b),
    "multiplies by the new batch; divide by the old one as well": lambda lr, b, new, rule: lr * SCALES[rule](new),
    "divides by the old batch; multiply by the new one as well": lambda lr, b, new, rule: lr / SCALES[rule](b),
    "the square rule was taken upside down": lambda lr, b, new, rule: lr * (b / new) ** 2,
    "adds the factor; multiply by it": lambda lr, b, new, rule: lr + SCALES[rule](new / b),
}


def check_scale_rate(answer):
    """Mark a function (lr, batch, new_batch, rule) -> the learning rate for the new batch."""
    ideas = [
        ("the linear rule, for larger and smaller batches", lambda answer: scaled(answer, "linear")),
        ("the square-root rule, for larger and smaller batches", lambda answer: scaled(answer, "sqrt")),
        ("raises ValueError for a rule that nobody knows", scale_errors),
    ]
    return marks.check("scale_rate", answer, ideas)


def scaled(answer, rule):
    for lr, batch, new in BATCHES:
        when = f'for lr {lr:g}, batch {batch} to {new}, rule "{rule}"'
        got, wanted = as_number(answer(lr, batch, new, rule), when), lr * SCALES[rule](new / batch)
        if not close(got / wanted, 1):
            words = next((words for words, wrong in SCALE_SLIPS.items() if close(got, wrong(lr, batch, new, rule))), None)
            raise marks.Slip(f"gives {got:.3g} {when}; it should give {wanted:.3g}" + (f": {words}" if words else ""))


def scale_errors(answer):
    for rule in ("cubic", "", "Linear rule"):
        try:
            got = answer(1e-3, 64, 128, rule)
        except NotImplementedError:
            raise
        except ValueError:
            continue
        except Exception as error:
            raise marks.Slip(f"raises {type(error).__name__} for the rule {rule!r}; it should be a ValueError") from error
        slip(True, f"gives {marks.short(got)} for the rule {rule!r}; a typing error would pass unseen: raise ValueError")


# One change at a time

OPTIONS = [
    ({"lr": 3e-3, "depth": 2}, {"lr": [1e-3, 1e-2], "depth": [1, 4]}),
    ({"lr": 3e-3, "depth": 2, "pool": "cls"}, {"depth": [1, 2, 4], "pool": ["avg", "cls"]}),
    ({"dropout": 0.1}, {"dropout": [0.0, 0.1], "weight_decay": [0.0, 0.3]}),
    ({"lr": 3e-3}, {}),
]


def right_runs(baseline, options):
    changed = [{**baseline, name: value} for name, values in options.items() for value in values]
    return [dict(baseline), *(run for run in changed if run != baseline)]


def check_one_at_a_time(answer):
    """Mark a function (baseline, options) -> a list of settings: the baseline, then one change in each."""
    ideas = [
        ("the baseline first, then every change alone", lambda answer: expect_runs(answer, *OPTIONS[0])),
        ("no run twice: what the baseline has already is no change", lambda answer: expect_runs(answer, *OPTIONS[1])),
        ("zeros are values too, and a new setting may be named", lambda answer: expect_runs(answer, *OPTIONS[2])),
        ("nothing to change: the baseline alone", lambda answer: expect_runs(answer, *OPTIONS[3])),
        ("leaves the two dictionaries as they were, and every run has one of its own", runs_manners),
    ]
    return marks.check("one_at_a_time", answer, ideas)


def listed(answer, baseline, options):
    """The runs that an answer gave, as dictionaries; Slip when it wrote into what it was given"""
    given = copy.deepcopy((baseline, options))
    got = as_list(answer(*given), f"for {baseline} and {options}", "a list of settings")
    slip(given[0] != baseline, f"changes the baseline: {baseline} is now {given[0]}. Make a new dictionary for every run")
    slip(given[1] != options, f"changes the options: {options} is now {given[1]}. Do not take values out of them")
    for run in got:
        slip(not isinstance(run, dict), f"gives {marks.short(run)} as a run; a run is a dictionary of settings")
    return got


def expect_runs(answer, baseline, options):
    got, wanted = listed(answer, baseline, options), right_runs(baseline, options)
    for run in got:
        missing = [name for name in baseline if name not in run]
        slip(missing, f"the run {run} lacks {', '.join(missing)}: it should hold the baseline's settings with one changed")
        changed = [name for name in run if name not in baseline or run[name] != baseline[name]]
        words = "so one cannot say which of them did it. Start each run from the baseline"
        slip(len(changed) > 1, f"the run {run} changes {len(changed)} things at once ({', '.join(changed)}), {words}")
    repeated = [run for i, run in enumerate(got) if run in got[:i]]
    of_baseline = baseline in repeated
    slip(of_baseline, f"the baseline {baseline} is run {got.count(baseline)} times: leave out values that it has already")
    slip(repeated, f"the run {repeated[:1]} comes more than once")
    slip(baseline not in got, f"the baseline {baseline} itself is missing: what would one compare with?")
    slip(got[0] != baseline, f"begins with {got[0]}; the baseline comes first")
    missing = [run for run in wanted if run not in got]
    slip(missing, f"the run {missing[:1]} is missing. Is a value of 0 taken for no value, or only the last one kept?")
    extra = [run for run in got if run not in wanted]
    slip(extra, f"the run {extra[:1]} was not asked for")


def runs_manners(answer):
    baseline, options = OPTIONS[0]
    first = listed(answer, baseline, options)
    slip(len({id(run) for run in first}) < len(first), "the same dictionary stands in the list twice; make one for each run")
    for run in first:
        run["lr"] = "written over"
    again = listed(answer, baseline, options)
    slip(again != right_runs(baseline, options) and len(again) != len(first), "keeps runs of an earlier call")
    slip(any(run.get("lr") == "written over" for run in again), "keeps dictionaries of an earlier call")


# Comparing

PAIRS = [  # accuracies of the baseline and of a change, seed by seed
    ([0.80, 0.90, 0.85], [0.83, 0.92, 0.89]),
    ([0.90, 0.70, 0.80, 0.85], [0.86, 0.67, 0.77, 0.80]),
    ([0.90, 0.88], [0.87, 0.93]),
    ([0.81, 0.95, 0.90, 0.76, 0.88], [0.82, 0.99, 0.89, 0.80, 0.86]),
]


def differences(baseline, changed):
    return [b - a for a, b in zip(baseline, changed, strict=True)]


def right_error(baseline, changed):
    return statistics.stdev(differences(baseline, changed)) / len(baseline) ** 0.5


MEAN_SLIPS = {  # the first pair has a positive mean, so that a lost sign is not seen there
    "signs are lost: take abs() of the mean, if at all, and only where it is compared with the error": lambda a, b: abs(
        statistics.mean(differences(a, b))
    ),
    "the sign is turned: the change minus the baseline": lambda a, b: statistics.mean(a) - statistics.mean(b),
    "that is the difference of the best seeds; take all of them": lambda a, b: max(b) - max(a),
    "that is the largest difference; take the mean": lambda a, b: max(differences(a, b)),
    "that is the sum; divide by the number of seeds": lambda a, b: sum(differences(a, b)),
    "that is the mean of the change itself; take the baseline away": lambda a, b: statistics.mean(b),
    "that is a ratio; take the difference": lambda a, b: statistics.mean(b) / statistics.mean(a),
    "divides by n - 1; a mean divides by n": lambda a, b: sum(differences(a, b)) / (len(a) - 1),
    "that is the median; take the mean": lambda a, b: statistics.median(differences(a, b)),
    "signs are lost before the mean is taken": lambda a, b: statistics.mean(map(abs, differences(a, b))),
}
ERROR_SLIPS = {
    "that is the spread of the differences; the error of their mean is smaller, by the root of n": lambda a, b: (
        statistics.stdev(differences(a, b))
    ),
    "n under the root of the spread should be n - 1 (and the root of n still divides it)": lambda a, b: (
        statistics.pstdev(differences(a, b)) / len(a) ** 0.5
    ),
    "that is the spread, with n instead of n - 1 and without the root of n": lambda a, b: statistics.pstdev(
        differences(a, b)
    ),
    "divides by n; the error falls with the root of n": lambda a, b: statistics.stdev(differences(a, b)) / len(a),
    "divides by n, and has n instead of n - 1 in the spread": lambda a, b: statistics.pstdev(differences(a, b)) / len(a),
    "not paired: the spreads of both were added. Take the differences seed by seed first, then their spread": lambda a, b: (
        ((statistics.variance(a) + statistics.variance(b)) / len(a)) ** 0.5
    ),
    "not paired, and with n instead of n - 1": lambda a, b: (
        ((statistics.pvariance(a) + statistics.pvariance(b)) / len(a)) ** 0.5
    ),
    "not paired: that is the error of the change alone": lambda a, b: statistics.stdev(b) / len(b) ** 0.5,
    "not paired: that is the error of the baseline alone": lambda a, b: statistics.stdev(a) / len(a) ** 0.5,
    "not paired: that is the spread of the change alone": lambda a, b: statistics.stdev(b),
    "not paired: that is the error of all accuracies in one heap": lambda a, b: (
        statistics.stdev([*a, *b]) / len([*a, *b]) ** 0.5
    ),
    "that is a variance; its root is the spread": lambda a, b: statistics.variance(differences(a, b)) / len(a),
    "that is a variance; take its root, and divide by the root of n": lambda a, b: statistics.variance(differences(a, b)),
    "that is twice the error; the factor 2 belongs to the comparison": lambda a, b: 2 * right_error(a, b),
    "divides by the root of n - 1 as well as by n - 1: once is enough": lambda a, b: (
        statistics.stdev(differences(a, b)) / (len(a) - 1) ** 0.5
    ),
}


def check_compare(answer):
    """Mark a function (baseline, changed) -> mean paired difference, its standard error, whether it exceeds twice that."""
    ideas = [
        ("the mean difference, with its sign", compare_mean),
        ("its standard error, from the differences seed by seed", compare_error),
        ("a difference of more than two errors is larger, upwards or downwards", compare_larger),
        ("also where all seeds agree, and where nothing differs", compare_edges),
    ]
    return marks.check("compare", answer, ideas)


def compared(answer, baseline, changed):
    """The three things that an answer gave, as two numbers and a truth"""
    when = f"for {baseline} and {changed}"
    given = [*baseline], [*changed]
    got = as_list(answer(*given), when, "three things: difference, error, and whether it is larger")
    slip(given != (baseline, changed), "changes the lists it is given: .sort() works in place, and tears the pairs apart")
    slip(len(got) != 3, f"gives {len(got)} things {when}; it should give difference, error, and whether it is larger")
    difference, error, larger = got
    return as_number(difference, when), as_number(error, when), as_truth(larger, when)


def as_truth(larger, when):
    """True or False, also numpy's or a tensor's"""
    slip(isinstance(larger, str) or larger is None, f"says {larger!r} {when}; it should say True or False")
    number = as_number(larger, when, "True or False")
    slip(number not in (0, 1), f"says {number:.3g} as the third thing {when}; it should be True or False")
    return bool(number)


def named(slips, got, baseline, changed):
    """The idea behind a wrong number, with a colon before it"""
    found = (words for words, wrong in slips.items() if close(got, wrong(baseline, changed)))
    return next((f": {words}" for words in found), "")


def compare_mean(answer):
    for pair in PAIRS:
        got, _, _ = compared(answer, *pair)
        wanted = statistics.mean(differences(*pair))
        words = named(MEAN_SLIPS, got, *pair)
        swapped = "error first? It goes difference, error, larger" if close(got, right_error(*pair)) else ""
        words = f": {swapped}" if swapped and not close(got, wanted) else words
        slip(not close(got, wanted), f"the difference for {pair} is {got:.4f}; it should be {wanted:.4f}{words}")


def compare_error(answer):
    for pair in PAIRS:
        _, got, _ = compared(answer, *pair)
        wanted, words = right_error(*pair), named(ERROR_SLIPS, got, *pair)
        slip(not close(got, wanted), f"the error for {pair} is {got:.4f}; it should be {wanted:.4f}{words}")


JUDGED = [  # as `PAIRS`: differences of 6, 3, 2.6, 1.4 and 1.1 errors, with the words for who is wrong there
    ([0.80, 0.90, 0.85], [0.83, 0.92, 0.89], ""),
    ([0.83, 0.92, 0.89], [0.80, 0.90, 0.85], "a change that harms is larger than the noise too: compare abs(difference)"),
    ([0.80, 0.80, 0.80, 0.80], [0.85, 0.82, 0.80, 0.85], "compare with twice the error, not with the spread or more"),
    ([0.80, 0.80, 0.80, 0.80], [0.85, 0.82, 0.80, 0.79], "twice the error, not once"),
    ([0.80, 0.80, 0.80, 0.80], [0.75, 0.78, 0.80, 0.81], "twice the error, not once"),
    ([0.90, 0.88], [0.87, 0.93], "it is smaller than its error: is the comparison turned round?"),
]


def compare_larger(answer):
    for baseline, changed, words in JUDGED:
        difference, error = statistics.mean(differences(baseline, changed)), right_error(baseline, changed)
        wanted = abs(difference) > 2 * error
        _, _, got = compared(answer, baseline, changed)
        told = (
            f"a difference of {difference:+.3f} with an error of {error:.3f} is called {'larger' if got else 'not larger'}"
        )
        turned = f"; {words}" if words else "; is the comparison turned round?"
        slip(got != wanted, told + turned)


def compare_edges(answer):
    steady, still = ([0.5, 0.75], [0.625, 0.875]), ([0.5, 0.75], [0.5, 0.75])
    try:
        _, _, larger = compared(answer, *steady)
        _, _, moved = compared(answer, *still)
    except ZeroDivisionError:
        raise marks.Slip("divides by an error of 0 where all seeds agree: compare abs(difference) with 2 * error") from None
    slip(not larger, "every seed gains 0.125, so the error is 0, and this is called not larger: any difference exceeds 0")
    slip(moved, "called larger where nothing differs at all: more than twice the error is >, not >=")


# Picking

PICKS = [  # for each change its runs: (validation, test)
    {
        "first": [(0.85, 0.84), (0.86, 0.84), (0.85, 0.84)],
        "right": [(0.90, 0.85), (0.91, 0.86), (0.92, 0.85)],
        "lucky on the test": [(0.84, 0.99), (0.85, 0.80), (0.86, 0.79)],
        "best on the test": [(0.87, 0.93), (0.86, 0.94), (0.88, 0.93)],
        "lucky once": [(0.98, 0.84), (0.84, 0.85), (0.85, 0.84)],
        "even": [(0.905, 0.83), (0.905, 0.84), (0.905, 0.83)],
        "many seeds": [(0.86, 0.84)] * 5,
        "worst": [(0.70, 0.70), (0.71, 0.71), (0.70, 0.69)],
        "lucky in the middle": [(0.80, 0.82), (0.93, 0.83), (0.93, 0.81)],
    }
]
PICK_SLIPS = {
    "first": "it stands in the first row, and its mean is not the best",
    "lucky on the test": "it has the best single run on the test part: still the planted mistake",
    "best on the test": "it has the best mean on the test part. Decide by val_accuracy: the test part is for the end",
    "lucky once": "it has the best single run, by luck. Take the mean over its seeds",
    "even": "its worst run is the best of the worst. That is careful, but asked is the best mean over the seeds",
    "many seeds": "its sum is the largest, because it has more runs. Divide by their number",
    "worst": "its mean is the lowest: max, not min",
    "lucky in the middle": "its median is the best; asked is the mean",
}


def check_pick(answer):
    """Mark a function rows -> the name of the change with the best mean validation accuracy."""
    ideas = [
        ("picks by the mean validation accuracy over the seeds", pick_right),
        ("in whatever order the rows come", pick_orders),
        ("leaves the rows as they were, and looks at them anew in every call", pick_manners),
    ]
    return marks.check("pick", answer, ideas)


def rows_of(changes):
    """Rows as those of the notebook, seed by seed"""
    rows = [
        {"change": name, "seed": seed, "val_accuracy": val, "test_accuracy": test}
        for name, runs in changes.items()
        for seed, (val, test) in enumerate(runs)
    ]
    return sorted(rows, key=lambda row: row["seed"])


def picked(answer, rows):
    got = answer([dict(row) for row in rows])
    slip(got is None, "gives nothing back: does it end with return?")
    if isinstance(got, dict):
        raise marks.Slip('gives a whole row; it should give the name of a change, row["change"]')
    slip(not isinstance(got, str), f"gives {marks.short(got)}; it should give the name of a change, not its accuracy")
    return got


def pick_right(answer):
    for changes in PICKS:
        got = picked(answer, rows_of(changes))
        slip(got not in changes, f"picks {got!r}, which is no change of these rows")
        slip(got != "right", f"picks {got!r}: {PICK_SLIPS.get(got)}")


def pick_orders(answer):
    rows = rows_of(PICKS[0])
    orders = {"change by change": sorted(rows, key=lambda row: row["change"]), "backwards": rows[::-1]}
    orders["mixed"] = [rows[i] for i in torch.randperm(len(rows)).tolist()]
    for name, order in orders.items():
        got = picked(answer, order)
        slip(got != "right", f"picks {got!r} when the rows come {name}: is each row counted for its own change?")


def pick_manners(answer):
    rows = rows_of({"depth 4": [(0.8, 0.9), (0.9, 0.9)], "depth 8": [(0.7, 0.95), (0.95, 0.95)]})
    kept = copy.deepcopy(rows)
    got = answer(rows)
    slip(rows != kept, "changes the rows it is given; make new ones, or sorted() instead of .sort()")
    slip(got != "depth 4", f"picks {marks.short(got)} from other rows, where depth 4 has the best mean: was something kept?")
    tenth = [{**row, "change": f"{row['change']}0"} for row in rows]
    slip(picked(answer, tenth) != "depth 40", "picks wrongly when the changes have other names")


# Halving


class Trainer:
    """What plays the training: it remembers every call"""

    def __init__(self):
        self.calls = []

    def __call__(self, candidate, epochs):
        slip(not isinstance(candidate, dict), f"calls score with {marks.short(candidate)}; it takes a candidate and epochs")
        self.calls.append((candidate["name"], epochs))
        slip(
            len(self.calls) > 100, "never ends: is the list made shorter in every round, half of 3 being 2 and of 2 being 1?"
        )
        start, gain = candidate["curve"]
        return start + gain * math.log2(epochs)


def candidates_of(*curves):
    return [{"name": f"candidate {i}", "curve": curve} for i, curve in enumerate(curves)]


FIELDS = [  # curves of candidates: accuracy after one epoch, gain at every doubling
    [(0.50, 0.02), (0.60, 0.03), (0.55, 0.01), (0.58, 0.09), (0.40, 0.20), (0.56, 0.02), (0.52, 0.001), (0.54, 0.0)],
    [(0.5, 0.01), (0.6, 0.0), (0.55, 0.08), (0.3, 0.28), (0.2, 0.0)],
    [(0.3, 0.0), (0.4, 0.0), (0.5, 0.0)],
]


def right_halving(candidates, score, epochs):
    while len(candidates) > 1:
        scores = [score(candidate, epochs) for candidate in candidates]
        order = sorted(range(len(candidates)), key=lambda i: -scores[i])
        candidates = [candidates[i] for i in order[: (len(candidates) + 1) // 2]]
        epochs *= 2
    return candidates[0]


def check_halving(answer):
    """Mark a function (candidates, score, epochs) -> the candidate that is left after halving again and again."""
    ideas = [
        ("every candidate is tried first, for as many epochs as asked", halving_first),
        ("the better half goes on, for twice as many epochs", halving_rounds),
        ("the one that is left is handed back", halving_winner),
        ("equal scores, a single candidate, and the list as it was", halving_manners),
    ]
    return marks.check("halving", answer, ideas)


def halved(answer, curves, epochs):
    """What an answer gave, what it tried, and what it should have tried"""
    right, trainer = Trainer(), Trainer()
    right_halving(candidates_of(*curves), right, epochs)
    got = answer(candidates_of(*curves), trainer, epochs)
    return got, trainer.calls, right.calls


def halving_first(answer):
    for curves in FIELDS:
        _, calls, _ = halved(answer, curves, 2)
        n = len(curves)
        slip(not calls, "never calls score(candidate, epochs)")
        began = calls[0][1]
        slip(began != 2, f"begins with {began} epochs; asked were 2. Double after a round, not before")
        first = [name for name, epochs in calls if epochs == 2]
        missing = n - len(set(first))
        slip(missing, f"{missing} of {n} candidates are not tried in the first round")
        again = "score each candidate once a round, and keep the number"
        slip(
            len(first) > n, f"{len(first)} runs of 2 epochs for {n} candidates: {again}, and double the epochs after a round"
        )


def halving_rounds(answer):
    for curves in FIELDS:
        _, calls, wanted = halved(answer, curves, 1)
        for epochs in dict.fromkeys(epochs for _, epochs in wanted):
            mine = sorted(name for name, e in calls if e == epochs)
            right = sorted(name for name, e in wanted if e == epochs)
            told = f"of {len(curves)} candidates, {len(mine)} are trained for {epochs} epochs; it should be {len(right)}"
            words = "" if mine else " Are the epochs doubled?"
            slip(len(mine) < len(right), f"{told}.{words} Half of an odd number is rounded up")
            slip(len(mine) > len(right), f"{told}. Is more than half kept (half of an odd number is rounded up)?")
            slip(mine != right, f"{told.partition(',')[0]}, {', '.join(mine)} go on; better were {', '.join(right)}")
        spent, asked = (sum(e for _, e in each) for each in (calls, wanted))
        slip(spent != asked, f"spends {spent} epochs on {len(curves)} candidates; {asked} are enough. Stop when one is left")


def halving_winner(answer):
    for curves in FIELDS:
        got, _, _ = halved(answer, curves, 1)
        wanted = right_halving(candidates_of(*curves), Trainer(), 1)
        slip(got is None, "gives nothing back: does it end with return?")
        slip(isinstance(got, (list, tuple)), f"gives {marks.short(got)}; it should give the candidate itself, not a list")
        slip(not isinstance(got, dict), f"gives {marks.short(got)}; it should give the candidate itself")
        slip(got != wanted, f"gives {got.get('name')}; {wanted['name']} is left in the end")


def halving_manners(answer):
    same = candidates_of((0.5, 0.1), (0.5, 0.1), (0.5, 0.1), (0.5, 0.1))
    kept = copy.deepcopy(same)
    try:
        got = answer(same, Trainer(), 1)
    except TypeError as error:
        words = "equal scores: sorting pairs compares candidates then, and dictionaries have no order. Give sorted a key"
        raise marks.Slip(f"raises TypeError for {words} ({marks.first_line(error)})") from error
    slip(same != kept, "changes the list of candidates; make a new one")
    slip(got not in kept, f"gives {marks.short(got)} where all are equal; any candidate would do")
    one = candidates_of((0.5, 0.1))
    slip(answer(one, Trainer(), 1) != one[0], "does not give back a single candidate")
