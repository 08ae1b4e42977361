"""Answers to the exercises of notebook 10.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

import itertools
import math
import random

import numpy as np
import torch
from scipy import stats

from check_cases import Program

# draw_rates


def own(seed):
    return torch.Generator().manual_seed(seed)


def by_numpy(n, low, high, seed):
    return np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(high), size=n))


def by_python(count, lowest, highest, start):
    dice = random.Random(start)
    return [math.exp(dice.uniform(math.log(lowest), math.log(highest))) for _ in range(count)]


def zigzag(x):
    """Exponents whose decades have their shares, and lower and upper halves are crowded in turn."""
    decade, rest = x.floor(), x - x.floor()
    return decade + (rest**2).where(decade % 2 == 0, 1 - rest**2)


DRAW = Program("""
def answer(n, low, high, seed):
    own = torch.Generator().manual_seed(seed)
    u = {{draw: torch.rand(n, generator=own, dtype=torch.float64)}}
    x = math.log10(low) + math.log10(high / low) * u
    return {{rates: 10**x}}
""", zigzag=zigzag)  # fmt: skip
DRAW_WRONG = DRAW.wrong("rates", {
    "n rates in a list or tensor":
        ["(10**x)[0].item()", "'rates'"],
    "gives one number": "10**x[0]", "rates that are numbers": "['a'] * n",
    "gives 201 rates": ["[*(10**x), 1]", "itertools.cycle(10**x)"],
    "that is the exponent": ["x", "x * math.log(10)"],
    "the logarithm and the power have different bases":
        ["torch.exp(x)", "10 ** (x * math.log(10))"],
    "a rate is a finite number": "low / (0 * u)", "which is above 0.1": "high * (high / low) ** u",
    "which is below 0.0001": "low * (low / high) ** u",
    "uniform, not log-uniform": "low + (high - low) * u",
    "each should contain a quarter, as": "low + (high - low) * u**0.25",
    "% of the rates are above the middle exponent":
        "(10 ** x.floor() * (1 + 9 * u.roll(1))).clamp(low, high)",
    "the eight halves of the powers of ten contain": "(10 ** zigzag(x)).clamp(low, high)",
    "crowded at the low end": "1 / (1 / low + (1 / high - 1 / low) * u)",
    "real exponents instead of whole ones": "(10 ** x.floor()).clamp(min=low)",
}) | DRAW.wrong("draw", {
    "draw a new one for each": "torch.rand(1, generator=own).repeat(n)",
    "a regular grid": "torch.linspace(0, 1, n)",
    "each should contain a quarter": "torch.rand(n, generator=own) ** 2",
    "no rate comes near 1e-05": "0.03 + 0.97 * torch.rand(n, generator=own)",
    "the same rates for every seed": "torch.rand(n, generator=torch.Generator())",
    "seed 0, but not with seed 3":
        "torch.rand(n, generator=own.manual_seed(seed or torch.seed() % 1000))",
    "for the seeds 0 and 1": "torch.rand(n, generator=own.manual_seed(seed or 1))",
    "for the seeds 2147483647 and 2147483646":
        "torch.rand(n, generator=own.manual_seed(min(seed, 1000)))",
    "when called again":
        ["torch.rand(n)", "torch.rand(n, generator=own.manual_seed(torch.seed() % 1000))"],
    "uses torch's global generator": "torch.manual_seed(seed) and torch.rand(n)",
    "uses numpy's global generator": "np.random.seed(seed) or np.random.rand(n)",
    "uses Python's global generator": "random.random() and torch.rand(n, generator=own)",
})  # fmt: skip

# scale_rate

SCALE = Program("""
def answer(lr, batch, new, rule):
    power, ratio = {"linear": 1, "sqrt": 0.5}.get(rule), new / batch
    if power is None:
        {{otherwise: raise ValueError(rule)}}
    return {{give: lr * ratio**power}}
""")


def scaled_by_ifs(rate, old, new, way):
    if way == "linear":
        return rate / old * new
    if way == "sqrt":
        return torch.tensor(rate * math.sqrt(new) / math.sqrt(old))
    raise ValueError(way)


SCALE_WRONG = SCALE.wrong("give", {
    "it should give a number": "f'{lr}!'", "upside down": "lr / ratio**power",
    "what the other rule gives":
        "lr * ratio ** (0.5 / power)",
    "that is what the linear rule gives": "lr * ratio",
    "that is what the square-root rule gives": "lr * math.sqrt(ratio)",
    "only the factor":
        "ratio**power",
    "nothing was scaled": "lr", "takes the square root of lr too": "(lr * ratio) ** power",
    "the ratio is squared": "lr * ratio * ratio",
    "rounds down to whole numbers": "lr * (new // batch) ** power",
    "divide by the old one": "lr * new**power",
    "multiply by the new one": "lr / batch**power",
    "adds the factor instead of multiplying by it": "lr + ratio**power",
    "squared and upside down": "lr / ratio**2",
    "without rounding it": "round(lr * ratio**power, 4)",
    "or by its square root": "1.1 * lr * ratio**power",
}) | SCALE.wrong("otherwise", {
    'rule "cubic"; it should be a ValueError': "raise KeyError(rule)",
    "for the rule 'cubic', but a misspelled rule would go unnoticed: raise ValueError":
        ["power = 0.5", "return None"],
})  # fmt: skip

# one_at_a_time

ONE = Program("""
def answer(baseline, options):
    runs, run = {{first: [dict(baseline)]}}, dict(baseline)
    for name, values in {{options: options.items()}}:
        for value in values:
            if {{wanted: value != baseline.get(name)}}:
                {{add: runs.append(baseline | {name: value})}}
    return {{give: runs}}
""")


def one_as_generator(base, options):
    yield base.copy()
    for name in options:
        for value in options[name]:
            run = {**base}
            run[name] = value
            if run != base:
                yield run


def grid(baseline, options):
    return [
        {**baseline, **dict(zip(options, values, strict=True))}
        for values in itertools.product(*options.values())
    ]


def keeps(baseline, options, kept=[]):  # noqa: B006  that is the mistake
    kept.extend(run for run in ONE()(baseline, options) if run not in kept)
    return kept


ONE_WRONG = ONE.wrong("give", {
    "a list of settings": ["len(runs)", "dict(enumerate(runs))"],
    "a run is a dictionary": "list(map(str, runs))",
    "itself is missing": "runs[1:]",
    "the baseline should come first": "runs[::-1]", "is run 2 times": "runs * 2",
    "is listed more than once": "runs + runs[1:]",
    "was not asked for": "runs + [{**baseline, 'lr': 7}]",
}) | ONE.wrong("add", {
    "lacks depth: it should contain the baseline's": "runs.append({name: value} | {'lr': 3e-3})",
    "changes 2 things at once":
        ["run = run | {name: value}; runs.append(run)", "run[name] = value; runs.append(run)"],
    "changes the baseline": "baseline[name] = value; runs.append(dict(baseline))",
    "{'dropout': 0.0} is missing, and so are all others in which a value becomes 0":
        "value and runs.append(baseline | {name: value})",
    "} is missing":
        "runs = [r for r in runs if r.get(name) == baseline[name]] + [baseline | {name: value}]",
}) | ONE.wrong("wanted", {
    "leave out values that the baseline already has": ["True", "value is not baseline.get(name)"],
    "is 0 taken for no value": "value and value != baseline.get(name)",
}) | {
    "gives the baseline itself as a run": ONE(first="[baseline]"),
    "changes 2 things at once (lr, depth), so you cannot tell": grid,
    "changes the options": ONE(options="[options.popitem() for _ in range(len(options))]"),
    "returns dictionaries from an earlier call":
        [keeps, lambda b, o, kept={}: kept.setdefault(str((b, o)), ONE()(b, o))],
}  # fmt: skip

# interval

INTERVAL = Program("""
def answer(baseline, changed):
    a, b = np.array(baseline), np.array(changed)
    d, n = b - a, len(a)
    mean, error = {{mean: d.mean()}}, {{error: d.std(ddof=1) / n**0.5}}
    half = {{times: t.ppf(0.975, n - 1)}} * error
    return {{give: [mean - half, mean + half]}}
""", t=stats.t, norm=stats.norm)  # fmt: skip


def by_tensors(one, two):
    steps = torch.tensor(two, dtype=torch.float64) - torch.tensor(one, dtype=torch.float64)
    half = stats.t.isf(0.025, len(one) - 1) * steps.std() / len(steps) ** 0.5
    return torch.stack([steps.mean() - half, steps.mean() + half])


def in_float32(one, two):
    steps = torch.tensor(two) - torch.tensor(one)
    half = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78}[len(one) - 1] * steps.std() / len(one) ** 0.5
    return steps.mean().item() - half.item(), (steps.mean() + half).item()


def by_scipy(baseline, changed):
    steps = [changed[i] - baseline[i] for i in range(len(baseline))]
    return stats.t.interval(0.95, len(steps) - 1, np.mean(steps), stats.sem(steps))


def by_test(baseline, changed):
    return stats.ttest_rel(changed, baseline).confidence_interval(0.95)


INTERVAL_WRONG = INTERVAL.wrong("mean", {
    "the sign is lost: keep that of": "abs(d.mean())", "the sign is reversed": "(a - b).mean()",
    "the best seeds": "b.max() - a.max()",
    "the largest difference": "d.max()", "that is the sum": "d.sum()",
    "of the change itself": "b.mean()",
    "that is a ratio": "b.mean() / a.mean()", "a mean divides by n": "d.sum() / (n - 1)",
    "the median": "np.median(d)", "around 0": "0",
    "the signs are lost before": "abs(d).mean()", "it should give a number": "d",
    "seed by seed, and take the mean": "d.mean() + 1",
}) | INTERVAL.wrong("error", {
    "the standard deviation of the differences; divide it":
        "d.std(ddof=1)", "the standard deviation should divide by n - 1": "d.std() / n**0.5",
    "with n, and doesn't divide": "d.std()",
    "falls with the square root of n": "d.std(ddof=1) / n",
    "not paired, and with n": "((a.var() + b.var()) / n) ** 0.5",
    "not paired: the variances of both": "((a.var(ddof=1) + b.var(ddof=1)) / n) ** 0.5",
    "the error of the change alone": "b.std(ddof=1) / n**0.5",
    "the error of the baseline alone": "a.std(ddof=1) / n**0.5",
    "it uses a variance; take its square root": "d.var(ddof=1) / n",
    "n - 1 belongs only in the": "d.std(ddof=1) / (n - 1) ** 0.5",
    "divided by the square root of their number":
        ["0", "((a.var(ddof=1) + b.var(ddof=1) - 2 * abs(np.cov(a, b)[0, 1])) / n) ** 0.5"],
    "keep the order of the seeds": "(np.sort(b) - np.sort(a)).std(ddof=1) / n**0.5",
}) | INTERVAL.wrong("times", {
    "that is one standard error": "np.float64(1)", "that is twice the standard error": "+2.0",
    "as for a known error": ["1.96", "norm.ppf(0.975)"],
    "2.78 is t for five runs": ["2.78", "t.ppf(0.975, 4)"],
    "n - 1 degrees of freedom, not n": "t.ppf(0.975, df=n)",
    "not 2 * n - 2": "t.isf(0.025, 2 * (n - 1))",
    "so ask t for 0.975": "t.isf(0.05, n - 1)",
    "the low end is above the high one": "t.ppf(0.025, n - 1)",
    "half as far": "0.5 * t.ppf(0.975, n - 1)", "twice as far": "2 * t.ppf(0.975, n - 1)",
    "t times the standard deviation": ["3", "t.ppf(0.995, n - 1)"],
}) | INTERVAL.wrong("give", {
    "it should give two numbers, low and high": "mean", "gives 3 results": "[mean, half, error]",
    "gives 1 results": "[mean]",
    "the low end is above the high one": "[mean + half, mean - half]",
}) | {
    ".sort() works in place and breaks up the pairs": lambda a, b: a.sort() or by_scipy(a, b),
}  # fmt: skip

# which_pass

PASS = Program("""
def answer(p):
    n, passes = len(p), [False] * len(p)
    for rank, i in enumerate(np.argsort({{sort: p}})):
        if p[i] >= {{limit: 0.05 / (n - rank)}}:
            {{stop: break}}
        passes[i] = True
    return {{give: passes}}
""")


def passes_by_correction(p):
    corrected, most = {}, 0
    for rank, x in enumerate(sorted(p)):
        most = corrected[x] = max(most, corrected.get(x, 0), x * (len(p) - rank))
    return [corrected[x] < 0.05 for x in p]


def passes_by_numpy(p):
    p = np.array(p)
    order = p.argsort()
    small = p[order] < 0.05 / np.arange(len(p), 0, -1)
    passes = np.empty(len(p), bool)
    passes[order] = np.logical_and.accumulate(small)
    return passes


def passes_by_tensor(p):
    return torch.tensor(passes_by_numpy(p))


def by_rounds(p):
    """Take the smallest of those that are left."""
    left = list(range(len(p)))
    while left and p[min(left, key=p.__getitem__)] < 0.05 / len(left):
        left.remove(min(left, key=p.__getitem__))
    return [i not in left for i in range(len(p))]


def hochberg(p):
    passes, found = [False] * len(p), False
    for rank, i in enumerate(np.argsort(p)[::-1]):
        found = passes[i] = found or p[i] < 0.05 / (rank + 1)
    return passes


def benjamini(p):
    n = len(p)
    below = [rank for rank, x in enumerate(sorted(p), 1) if x <= 0.05 * rank / n]
    return [x <= sorted(p)[below[-1] - 1] for x in p] if below else [False] * n


PASS_WRONG = PASS.wrong("limit", {
    "no correction": "0.05", "that is Bonferroni's": "0.05 / n",
    "one rank late": "0.05 / (n + 1 - rank)", "one rank early": "0.05 / max(1, n - 1 - rank)",
    "sort them, compare the smallest with": ["0.01", "0.1 / (n - rank)"],
}) | PASS.wrong("stop", {
    "none after it passes": "continue",
}) | PASS.wrong("sort", {
    "are not sorted first": "range(n)",
}) | PASS.wrong("give", {
    "return them in the order of the list": "[*np.array(passes)[np.argsort(p)]]",
    "True and False are exchanged": "[not x for x in passes]",
    "it should give one for each p-value": ["passes[:-1]", "passes + [True]"],
    "a list of True and False": "sum(passes)",
    "it should give True or False for each": ["list(p)", "[str(x) for x in passes]"],
}) | {
    "begin with the smallest": hochberg,
    "Benjamini and Hochberg": benjamini,
    "use sorted() instead of .sort()": lambda p: p.sort() or PASS()(p),
}  # fmt: skip

# pick


def running(accuracies):
    mean = accuracies[0]
    for accuracy in accuracies[1:]:
        mean = 0.5 * mean + 0.5 * accuracy
    return mean


PICK = Program("""
def answer(rows):
    runs = {}
    for row in {{rows: rows}}:
        runs[row["change"]] = runs.get(row["change"], []) + [row[{{key: "val_accuracy"}}]]
    best = max(runs, key=lambda name: {{score: np.mean(runs[name])}})
    return {{give: best}}
""", running=running)  # fmt: skip


def picked_by_numpy(rows):
    names = np.array([row["change"] for row in rows])
    values = np.array([row["val_accuracy"] for row in rows])
    changes = np.unique(names)
    return changes[np.argmax([values[names == change].mean() for change in changes])]


def picked_by_loop(rows):
    best, name = -1, None
    for change in {row["change"] for row in rows}:
        values = torch.tensor([row["val_accuracy"] for row in rows if row["change"] == change])
        if values.mean() > best:
            best, name = values.mean(), change
    return name


def picked_by_groups(rows, order=lambda row: row["change"]):
    """With another order the last piece of a change counts for it."""
    groups = itertools.groupby(sorted(rows, key=order), key=lambda row: row["change"])
    means = {change: np.mean([row["val_accuracy"] for row in group]) for change, group in groups}
    return sorted(means, key=means.get)[-1]


def picked_by_table(rows):
    """Every run of a change replaces the one before it."""
    table = {row["change"]: row["val_accuracy"] for row in rows}
    return max(table, key=table.get)


SEEN = []
PICK_WRONG = PICK.wrong("score", {
    "best single run, by luck": "max(runs[name])",
    "its worst run is better than the others' worst.": "min(runs[name])",
    "Divide by their number": "np.sum(runs[name])", "max, not min": "-np.mean(runs[name])",
    "its median is the best": "np.median(runs[name])", "its first run is the best": "runs[name][0]",
    "its last run is the best": "runs[name].pop()",
    "its running mean": "running(runs[name])",
    "its mean of val_accuracy": "np.mean(sorted(runs[name])[-2:])",
}) | PICK.wrong("give", {
    "is in the first row": "next(iter(runs))",
    "gives a whole row": "rows[0]", "not its accuracy": "max(runs[best])",
    "the name of a change": "[best]",
    "not a change of these rows": ["'baseline'", "'right'", "np.str_('right')"],
    "over the seeds is not the largest": "'first' if rows[0]['seed'] else best",
}) | {
    "still the planted mistake":
        lambda rows: max(rows, key=lambda row: row["test_accuracy"])["change"],
    "the test split is for the end": PICK(key='"test_accuracy"'),
    "only that one kept": [picked_by_table, PICK(score="runs[name][-1:]")],
    "picks 'lucky at last'":
        lambda rows: picked_by_groups(rows, order=lambda row: row["seed"]),
    "which is not a change of these rows": lambda rows: SEEN.extend(rows) or PICK()(SEEN),
    "changes the rows": PICK(rows="rows.sort(key=str) or rows"),
}  # fmt: skip

# halving

HALVING = Program("""
def answer(candidates, score, epochs):
    {{start: left = list(candidates)}}
    while len(left) > {{stop: 1}}:
        left = sorted(left, key=lambda candidate: {{key: -score(candidate, epochs)}})
        left = left[: {{keep: len(left) - len(left) // 2}}]
        epochs = {{epochs: 2 * epochs}}
    {{end: pass}}
    return {{give: left[0]}}
""")


def by_recursion(candidates, score, epochs=1):
    if len(candidates) == 1:
        return candidates[0]
    scores = np.array([score(candidate, epochs) for candidate in candidates])
    best = np.argsort(-scores)[: -(-len(candidates) // 2)]
    return by_recursion([candidates[i] for i in best], score, 2 * epochs)


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


def by_history(candidates, score, epochs, rule):
    """What is compared is made of a candidate's scores in all rounds."""
    left = [([], candidate) for candidate in candidates]
    while len(left) > 1:
        for scores, candidate in left:
            scores.append(score(candidate, epochs))
        left.sort(key=lambda pair: -rule(pair[0]))
        left, epochs = left[: (len(left) + 1) // 2], 2 * epochs
    return left[0][1]


def best_ever(candidates, score, epochs):
    left, top = candidates, (-1, candidates[0])
    while len(left) > 1:
        rated = [(score(candidate, epochs), i) for i, candidate in enumerate(left)]
        top = max(top, (max(rated)[0], left[max(rated)[1]]), key=lambda pair: pair[0])
        order = sorted(rated, key=lambda pair: -pair[0])[: (len(left) + 1) // 2]
        left, epochs = [left[i] for _, i in order], 2 * epochs
    return top[1]


def by_keys(candidates, score, epochs, key=lambda candidate, score: score):
    left = list(candidates)
    while len(left) > 1:
        rated = {}
        for candidate in left:
            result = score(candidate, epochs)
            rated[key(candidate, result)] = candidate
        left = [rated[result] for result in sorted(rated)[::-1][: (len(left) + 1) // 2]]
        epochs *= 2
    return left[0]


HALVING_WRONG = HALVING.wrong("keep", {
    "never ends": ["len(left)", "len(left) // 2 + 1"],
    "it should be 4. The better half": "max(1, len(left) - 1)",
    "are trained for 6 epochs; it should be 3. The better half goes on":
        "len(left) // 2",
}) | HALVING.wrong("start", {
    "Double them after a round, not before":
        "left, epochs = candidates, 2 * epochs",
    "the epochs of the first round are 1; they should be 2": "left, epochs = candidates, 1",
    "tries 7 of 8 candidates": "left = candidates[1:]",
    "takes a candidate": "left = list(range(len(candidates)))",
    "score each candidate once per round":
        "left = candidates; [score(candidate, epochs) for candidate in candidates]",
    "The epochs double after every round":
        "left = [max(candidates, key=lambda candidate: score(candidate, epochs))]",
}) | HALVING.wrong("give", {
    "does it end with return": "None",
    "not a list": "left", "the candidate itself": "left[0]['name']",
    "gives a copy of a candidate": "copy.deepcopy(left[0])",
    "which is none of the candidates": "left[0] | {'id': 0}",
    "is left at the end": "candidates[0]",
}) | {
    "never calls score": lambda candidates, score, epochs: candidates[0],
    "it should be 2": HALVING(stop="2"),
    "double the epochs after it":
        HALVING(epochs="epochs"), "it should be": HALVING(epochs="epochs + 1"),
    "have the best scores":
        [HALVING(key="score(candidate, epochs)"),
            HALVING(key="-score(candidate, epochs) / candidate.get('lr', 1)")],
    "0 are trained for 6 epochs; it should be 4. The epochs double": HALVING(epochs="epochs**2"),
    "but they double after every round": HALVING(epochs="epochs // 2"),
    "(their sum or mean)":
        [lambda *args: by_history(*args, np.mean), lambda *args: by_history(*args, sum)],
    "the best score of any round counts": lambda *args: by_history(*args, max),
    "with the best score of any round; return": best_ever,
    "is the score the key of a dictionary?": by_keys,
    "cannot be a key": lambda *args: by_keys(*args, key=lambda candidate, score: candidate),
    "writes into a candidate":
        HALVING(key="-candidate.setdefault(epochs, score(candidate, epochs))"),
    "changes the list of candidates; make a new list": HALVING(end="candidates.reverse()"),
    "Stop when one": HALVING(end="score(left[0], 64)"),
    "changes the list of candidates": drains, "With equal scores, sorting": by_pairs,
}  # fmt: skip

RIGHT = {
    "draw_rates": [
        DRAW(), by_numpy, by_python, lambda *args: sorted(by_python(*args)),
        DRAW(rates="tuple(high * (low / high) ** u)"),
        DRAW(draw="(torch.randperm(n, generator=own) + torch.rand(n, generator=own)) / n"),
        DRAW(rates="(r for r in 10**x)"),
    ],
    "scale_rate": [SCALE(), scaled_by_ifs, SCALE(give="np.float64(lr * ratio**power)")],
    "one_at_a_time": [ONE(), one_as_generator, ONE(give="(runs[0], *runs[:0:-1])")],
    "interval": [INTERVAL(), by_tensors, in_float32, by_scipy, by_test],
    "which_pass": [PASS(), passes_by_correction, passes_by_numpy, passes_by_tensor, by_rounds],
    "pick": [PICK(), picked_by_numpy, picked_by_loop, picked_by_groups],
    "halving": [HALVING(), by_recursion],
}  # fmt: skip
WRONG = {
    "draw_rates": DRAW_WRONG,
    "scale_rate": SCALE_WRONG,
    "one_at_a_time": ONE_WRONG,
    "interval": INTERVAL_WRONG,
    "which_pass": PASS_WRONG,
    "pick": PICK_WRONG,
    "halving": HALVING_WRONG,
}
