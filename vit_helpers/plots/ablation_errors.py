"""Notebook 10, further: pairing, Holm's thresholds, forests, tuned rates, factorial designs."""

import statistics
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.ticker import LogLocator, NullLocator

from vit_helpers.plots import style
from vit_helpers.plots.ablation import BESIDE, REAL, WORDS, draw_interval, signed
from vit_helpers.plots.figure import Picture

MOST = 8  # lines of a forest; the others are in a table


def draw_pairing(paired: pd.Series, unpaired: pd.Series) -> Picture:
    """Draw the standard error in pairs against the one without, a dot for each change.

    paired, unpaired: standard errors as fractions, indexed by change
    """
    fig, ax = style.new_figure(9, 4.4)
    top = 100 * max(paired.max(), unpaired.max()) * 1.05
    ax.plot([0, top], [0, top], color=style.LINE, linewidth=1)
    smaller = paired < unpaired
    for chosen, mark, fill, name in (
        (smaller, "o", REAL, "smaller in pairs"),
        (~smaller, "s", "white", "not smaller"),
    ):
        x, y = 100 * unpaired[chosen], 100 * paired[chosen]
        ax.plot(x, y, mark, color=REAL, mfc=fill, ms=7, mew=1.5, label=f"{name}: {chosen.sum()}")
    title = f"Pairs make {smaller.sum()} of {len(paired)} errors smaller"
    style.style_axes(ax, title, "standard error without pairs (points)", "in pairs (points)")
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.legend(frameon=False, fontsize=style.TEXT_SIZE, loc="upper left")
    ratio = float((paired / unpaired).median())
    return Picture(
        fig,
        "The standard error in pairs against the one without, a dot for each change.",
        f"{len(paired)} dots for changes, {smaller.sum()} of them below the diagonal, where pairs "
        f"make the error smaller. The median of the ratio is {ratio:.2f}.",
    )


def draw_holm(effects: pd.DataFrame, least: float = 1e-6) -> Picture:
    """Draw the p-values of all changes in their order, the threshold 0.05, and that of Holm.

    effects: p and holm of each change;  least: smaller p-values are drawn here, as triangles
    """
    fig, ax = style.new_figure(9, 3.4)
    ranked = effects.sort_values("p")
    count, passed = len(ranked), int((ranked["holm"] < 0.05).sum())
    ranks, p = range(1, count + 1), ranked["p"].clip(lower=least).to_list()
    ax.plot(ranks, [0.05 / (count + 1 - rank) for rank in ranks], color=style.SERIES[0])
    ax.plot([1, count], [0.05, 0.05], color=style.LINE, linestyle="--")
    below = int((ranked["p"] < least).sum())
    ax.plot(ranks[:below], p[:below], "v", color=REAL, ms=8)
    ax.plot(ranks[below:passed], p[below:passed], "s", color=REAL)
    ax.plot(ranks[passed:], p[passed:], "o", color=style.LINE, mfc="white")
    ax.axvline(passed + 0.5, color=style.LINE, linestyle=":")
    ax.annotate("0.05", (count, 0.05), (8, 0), va="center", **BESIDE)
    middle = count // 2
    where = middle, 0.05 / (count + 1 - middle)
    ax.annotate("Holm's threshold", where, (0, -16), **BESIDE)
    if below:
        ax.annotate(f"{below} below {least:g}", (below, least), (10, 0), va="center", **BESIDE)
    ax.set_yscale("log")
    ax.set(ylim=(least / 3, 2), xlim=(0, count + 4))
    title = f"The first {passed} p-values are below Holm's threshold"
    style.style_axes(ax, title, f"rank of the p-value among {count}", "p-value")
    small = int((ranked["p"] < 0.05).sum())
    return Picture(
        fig,
        "The p-values of all changes in rising order, with the thresholds of two rules.",
        f"{count} p-values in rising order on a logarithmic axis. The first {passed} are below "
        f"Holm's threshold, which rises from {0.05 / count:.4f} to 0.05; {small} are below 0.05.",
    )


def draw_forest(
    effects: pd.DataFrame,
    title: str,
    texts: Mapping[str, str] | None = None,
    heading: str = "",
) -> Picture:
    """Draw the largest differences with their intervals, the best at the top, filled if they pass.

    effects: difference, low, high and holm of each change, as fractions
    texts  : {name: text at the right}, below a heading
    """
    largest = effects.reindex(effects["difference"].abs().nlargest(MOST).index)
    rows = largest.sort_values("difference", ascending=False)
    fig, ax = style.new_figure(9, 0.42 * len(rows) + 1.3)
    ax.axvline(0, color=style.TEXT, linewidth=1)
    for y, (name, row) in enumerate(rows.iterrows()):
        draw_interval(ax, y, row, bool(row["holm"] < 0.05))
        if texts:
            where = {"transform": ax.get_yaxis_transform(), "va": "center"}
            ax.text(1.02, y, texts.get(str(name), ""), **where, **WORDS)
    if heading:
        ax.text(1.02, -0.8, heading, transform=ax.get_yaxis_transform(), va="center", **WORDS)
    ax.set_yticks(range(len(rows)), rows.index)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    style.style_axes(ax, f"{title}\n" if heading else title, "gain in points, with 95% interval")
    points = 100 * rows["difference"]
    story = ", ".join(f"{name} {signed(points[name])}" for name in rows.index)
    return Picture(
        fig,
        "The largest differences from the baseline with their intervals, sorted.",
        f"Gains in points: {story}.",
    )


def draw_retuned(before: Mapping[str, float], tuned: pd.DataFrame) -> Picture:
    """Draw how far differences move when each change gets a learning rate of its own.

    before: {change: difference at the baseline's rate}, as fractions;  tuned: difference, low,
    high and holm of the same changes at rates of their own
    """
    moves = {
        name: abs(tuned["difference"][name] - old)
        for name, old in before.items()
        if name in tuned.index
    }
    shown = sorted(moves, key=moves.__getitem__, reverse=True)[:MOST]
    rows = tuned.loc[shown].sort_values("difference", ascending=False)
    fig, ax = style.new_figure(9, 0.45 * len(rows) + 1.3)
    ax.axvline(0, color=style.TEXT, linewidth=1)
    for y, (name, row) in enumerate(rows.iterrows()):
        old, new = 100 * before[str(name)], 100 * float(row["difference"])
        draw_interval(ax, y, row, bool(row["holm"] < 0.05))
        ax.plot(old, y, "x", color=style.TEXT, ms=9, mew=2)
        text = f"{signed(old)} → {signed(new)}"
        ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", **WORDS)
    where = 100 * before[shown[0]], rows.index.get_loc(shown[0])
    ax.annotate("at the baseline's rate", where, (-10, 0), ha="right", va="center", **BESIDE)
    ax.set_yticks(range(len(rows)), rows.index)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    title = f"The {len(rows)} changes that move most when they choose their rates"
    style.style_axes(ax, title, "gain in points, with 95% interval")
    story = ", ".join(
        f"{name} {signed(100 * before[str(name)])} to {signed(100 * row['difference'])}"
        for name, row in rows.iterrows()
    )
    return Picture(
        fig,
        "Differences at the baseline's learning rate, and at rates of their own with intervals.",
        f"Gains in points, before and after: {story}.",
    )


def draw_halves(halves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Picture:
    """Draw all runs of a design once for each setting, divided by whether they have it.

    halves: {setting: (accuracies of the runs without it, of those with it)}
    """
    fig, axes = style.new_figure(9, 1.5 * len(halves) + 0.7, nrows=len(halves), sharex=True)
    for ax, (name, (without, have)) in zip(axes, halves.items(), strict=True):
        for y, half, color, mark, fill in (
            (1, without, style.SERIES[0], "o", "white"),
            (0, have, REAL, "s", REAL),
        ):
            ax.plot(half, [y] * len(half), mark, color=color, mfc=fill, ms=8, alpha=0.8)
            ax.plot(statistics.mean(half), y, "|", color=style.TEXT, ms=34, mew=3)
        gain = signed(100 * (statistics.mean(have) - statistics.mean(without)))
        style.style_axes(ax, f"{name}: the mean moves by {gain} points")
        ax.set_yticks([1, 0], ["without", "with"])
        ax.set_ylim(-0.6, 1.6)
    axes[-1].set_xlabel("validation accuracy", **WORDS)
    runs = sum(map(len, next(iter(halves.values()))))
    return Picture(
        fig,
        "All runs of a design, divided once by each of several settings, with the means.",
        f"The same {runs} accuracies, divided by {' and by '.join(halves)}: dots without it and "
        "squares with it, and a bar at the mean of each half.",
    )


def draw_effects(effects: pd.DataFrame) -> Picture:
    """Draw the main effects of a design, and the largest interactions, with their intervals.

    effects: difference, low, high, holm and order (1 or 2) of each effect, as fractions
    """
    parts = [effects[effects["order"] == order] for order in (1, 2)]
    parts = [part.reindex(part["difference"].abs().nlargest(MOST).index) for part in parts]
    counts = [len(part) for part in parts]
    size = 9, 0.4 * sum(counts) + 1.9
    fig, axes = style.new_figure(*size, nrows=2, sharex=True, height_ratios=counts)
    total = [effects[effects["order"] == order] for order in (1, 2)]
    real = [int((part["holm"] < 0.05).sum()) for part in total]
    titles = (
        f"Main effects: {real[0]} of {len(total[0])} pass",
        f"The largest of {len(total[1])} interactions: {real[1] or 'none'} passes",
    )
    for ax, part, title in zip(axes, parts, titles, strict=True):
        ax.axvline(0, color=style.TEXT, linewidth=1)
        for y, (_, row) in enumerate(part.iterrows()):
            draw_interval(ax, y, row, bool(row["holm"] < 0.05))
        ax.set_yticks(range(len(part)), [short_name(str(name)) for name in part.index])
        ax.set_ylim(len(part) - 0.4, -0.6)
        style.style_axes(ax, title)
    axes[-1].set_xlabel("effect in points (*: cannot be told from others)", **WORDS)
    best = parts[0].index[parts[0]["holm"] < 0.05]
    points = ", ".join(f"{name} {signed(100 * effects['difference'][name])}" for name in best)
    return Picture(
        fig,
        "Main effects of settings and the largest interactions, with their intervals.",
        f"{counts[0]} main effects and {counts[1]} interactions with intervals. Passing: {points}.",
    )


def short_name(name: str) -> str:
    """Name an effect by the first of those that it is confounded with.

    >>> short_name("a x b = c x d"), short_name("a")
    ('a x b *', 'a')
    """
    first, *others = name.split(" = ")
    return f"{first} *" if others else first


def draw_search(
    rates: Sequence[float], decays: Sequence[float], accuracies: Sequence[float]
) -> Picture:
    """Draw runs of a search as dots over learning rate and decay, both logarithmic.

    The larger a dot, the higher its rank; each has its accuracy beside it.
    """
    fig, ax = style.new_figure(9, 3.4)
    ranks = {x: rank for rank, x in enumerate(sorted(accuracies), 1)}
    for rate, decay, accuracy in zip(rates, decays, accuracies, strict=True):
        ax.plot(rate, decay, "o", color=REAL, ms=5 + 3 * ranks[accuracy])
        shift = 7 + 1.5 * ranks[accuracy]
        ax.annotate(f"{accuracy:.3f}", (rate, decay), (shift, 0), va="center", **BESIDE)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlim=(3e-4, 3.3e-2), ylim=(1e-3, 1))
    for axis, steps in ((ax.xaxis, (1, 3)), (ax.yaxis, (1,))):
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    style.style_axes(ax, "The larger the dot, the better", "learning rate", "weight decay")
    story = ", ".join(
        f"{rate:g} and {decay:g}: {accuracy:.3f}"
        for rate, decay, accuracy in zip(rates, decays, accuracies, strict=True)
    )
    return Picture(
        fig,
        "Runs of a search as dots over learning rate and weight decay, with their accuracies.",
        f"{len(rates)} dots with learning rate, weight decay and accuracy: {story}.",
    )
