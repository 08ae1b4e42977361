"""Print the differences in the stored experiments, their errors (seeds, images, both), Holm's p.

changes  : every change of the large table against the baseline
rates    : the changes of size, batch and optimizer, each at the best of its learning rates,
           against the baseline at its best
factorial: main effects and interactions of the settings in which a preset differs from the baseline
confirm  : the largest interactions, each by four trainings of its own (a row "this and that"),
           and the whole preset
accuracy : the test accuracy of the preset on Fashion-MNIST
"""

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy as np
import pandas as pd

from tools import main
from vit_helpers._validate import check_choice
from vit_helpers.ablation import Table, compare, compare_best, effect_of, effects, holm
from vit_helpers.ablation.comparison import line_of, paired, right_answers
from vit_helpers.results import RESULTS, read_results

RATE = "3e-3"  # of the changes whose names give no other
POINTS = ("difference", "seeds", "images", "both", "low", "high")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "which", nargs="*", metavar="WHICH", default=list(SHOW), help="(default: all)"
    )


def run(args: Namespace) -> None:
    pd.set_option("display.width", 250, "display.max_colwidth", 120)
    for name in args.which:
        check_choice("experiment", name, SHOW)
        print(f"## {name}\n")
        SHOW[name]()


def show(table: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Print a table with differences in points, and what its runs were."""
    points = table.assign(**{name: 100 * table[name] for name in POINTS})
    formats: dict[str, Any] = dict.fromkeys(POINTS, "{:.2f}".format) | dict.fromkeys(
        ("p", "holm"), "{:.4f}".format
    )
    formats |= {"difference": "{:+.2f}".format, "discordant": "{:.3f}".format}
    print(points.to_string(formatters=formats))
    machines, days = (", ".join(sorted(set(runs[name]))) for name in ("machine", "date"))
    hours = runs["seconds"].sum() / 3600
    print(f"\nin points; {len(runs)} runs, {hours:.1f} hours, {machines}; {days}\n")


def show_changes() -> None:
    runs = read_results("hyperparameters")
    show(compare(runs), runs)


def show_rates() -> None:
    single, rates = read_results("hyperparameters"), read_results("rates")
    names = list(dict.fromkeys(change.partition(", rate ")[0] for change in rates["change"]))
    both = pd.concat([single, rates[rates["change"] != "baseline"]])
    candidates = {
        name: [c for c in both["change"].unique() if c.partition(", rate ")[0] == name]
        for name in names
    }
    show(
        compare_best(both, candidates),
        both[both["change"].isin([one for some in candidates.values() for one in some])],
    )
    accuracy = both.groupby("change")["accuracy"].mean()
    for name, some in candidates.items():
        means = [f"{one.partition(', rate ')[2] or RATE} {accuracy[one]:.4f}" for one in some]
        print(f"{name}: {', '.join(means)}")
    print()


def show_factorial() -> None:
    table, runs = Table.read(RESULTS / "factorial.toml"), read_results("factorial")
    all_effects = effects(runs, list(table.factors), table.generators)
    for order in (1, 2):
        rows = all_effects[all_effects["order"] == order]
        show(rows.reindex(rows["difference"].abs().sort_values(ascending=False).index), runs)
    top = runs.groupby("change")["accuracy"].mean().sort_values(ascending=False)
    print(f"baseline {top['baseline']:.4f}; best: {top.index[0]}: {top.iloc[0]:.4f}\n")


def show_confirm() -> None:
    runs = read_results("confirm")
    show(compare(runs), runs)
    beyond = {}
    for name in runs["change"].unique():
        first, _, second = name.partition(" and ")
        if second:
            alone = paired(runs, first) + paired(runs, second)
            beyond[f"{name}: beyond the sum"] = line_of(paired(runs, name) - alone)
    table = pd.DataFrame.from_dict(beyond, orient="index")
    show(table.assign(holm=holm(table["p"])), runs)


def show_accuracy() -> None:
    runs = read_results("accuracy_fashion_mnist")
    effect = effect_of(np.stack(list(right_answers(runs, "baseline", "test_right").values())))
    low, high = effect.interval()
    errors = f"error of seeds {effect.seeds:.4f}, of images {effect.images:.4f}"
    errors += f", of both {effect.both:.4f}"
    accuracy = f"{effect.difference:.4f} (95%: {low:.4f} to {high:.4f})"
    print(f"test accuracy {accuracy}; {errors}; {len(runs)} seeds\n")


SHOW = {
    f.__name__.removeprefix("show_"): f
    for f in (show_changes, show_rates, show_factorial, show_confirm, show_accuracy)
}


if __name__ == "__main__":
    raise SystemExit(main())
