"""Notebook 10: first tries and what is left of them, errors of a difference, many comparisons."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator, NullLocator

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box, draw_image, name_row

Array = Any  # of numpy
WORDS: dict[str, Any] = {"color": style.TEXT, "fontsize": style.TEXT_SIZE}
BESIDE: dict[str, Any] = {**WORDS, "textcoords": "offset points"}
LEADER = {"arrowstyle": "-", "relpos": (1, 0.3), "shrinkA": 1, "shrinkB": 1}  # label to mark
LOST, GAINED = style.SERIES[2], style.SERIES[0]  # by a change: images, and points
SIGNS = LinearSegmentedColormap.from_list("signs", [LOST, style.MUTED, GAINED])
REAL = style.SERIES[2]  # of what passes a correction
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def in_words(number: int) -> str:
    """Write a small number as a word.

    >>> in_words(8), in_words(12)
    ('eight', '12')
    """
    return COUNTS[number] if number < len(COUNTS) else str(number)


def signed(points: float) -> str:
    """Write a difference with its sign.

    >>> signed(0.86), signed(-3.78)
    ('+0.9', '−3.8')
    """
    return f"{points:+.1f}".replace("-", "−")


def gains_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Differences from the baseline in points: a row for each change, a column for each seed.

    runs: with columns change, seed and accuracy; the order of the changes is kept
    """
    table = runs.pivot(index="change", columns="seed", values="accuracy")
    names = [name for name in dict.fromkeys(runs["change"]) if name != "baseline"]
    return 100 * (table.loc[names] - table.loc["baseline"])


def draw_tries(runs: pd.DataFrame, seeds: int) -> Picture:
    """Draw by how much each change gains: with the first seed, and with further ones.

    runs : with columns change, seed and accuracy;  seeds: how many to draw
    """
    every = gains_of(runs)
    gains = every.iloc[:, :seeds]
    first, count = gains.iloc[:, 0], len(gains)
    fig, ax = style.new_figure(9, 0.42 * count + 1.2)
    ax.axvline(0, color=style.TEXT, linewidth=1)
    for y, (_, line) in enumerate(gains.iterrows()):
        ax.plot([0, first.iloc[y]], [y, y], color=style.LINE, linewidth=2)
        ax.plot(line.iloc[1:], [y] * (seeds - 1), "o", color=LOST, mfc="white", ms=8, mew=2)
        ax.plot(first.iloc[y], y, "s", color=GAINED, ms=10)
        if seeds == 1:
            ax.text(first.iloc[y] + 0.05, y, signed(first.iloc[y]), va="center", **WORDS)
    if seeds > 1:
        for x, name, color in ((first.iloc[0], "seed 0", GAINED), (-0.2, "other seeds", LOST)):
            ax.text(x, -0.62, name, ha="center", va="bottom", color=color, fontsize=style.TEXT_SIZE)
    always = int((gains > 0).all(axis=1).sum())
    title = f"With {in_words(seeds)} seeds, {in_words(always)} of {in_words(count)} always gains"
    if seeds == 1:
        title = f"{in_words(count).capitalize()} changes, each tried once, and all of them gain"
    style.style_axes(ax, title if seeds == 1 else f"{title}\n", "gain in points of accuracy")
    ax.set_yticks(range(count), gains.index)
    low, high = min(-0.1, every.min().min() - 0.1), every.max().max() + 0.2
    ax.set(ylim=(count - 0.4, -0.6), xlim=(low, high))  # the same for any number of seeds
    story = ", ".join(f"{name} {signed(line.mean())}" for name, line in gains.iterrows())
    return Picture(
        fig,
        "By how much each of several changes gains in single trainings, a line for each change.",
        f"{count} changes and their gains in points, each with {in_words(seeds)} "
        f"seed{'s' * (seeds > 1)}. Means: {story}.",
    )


def draw_disagreements(images: Any, baseline: Array, changed: Array) -> Picture:
    """Draw the images that one of two models classifies correctly and the other doesn't.

    images           : (B, 1, H, W) of digits, from 0 to 1
    baseline, changed: (B,) whether each model is correct
    """
    rows = {
        "lost by\nthe change": (baseline & ~changed, LOST),
        "gained by\nthe change": (changed & ~baseline, GAINED),
    }
    columns = max(int(chosen.sum()) for chosen, _ in rows.values())
    side = min(7.6 / columns, 1.2)
    size = columns * side + 1.3, 2 * side + 0.7
    fig, axes = style.new_figure(*size, nrows=2, ncols=columns, squeeze=False)
    for line, (name, (chosen, color)) in zip(axes, rows.items(), strict=True):
        for ax in line:
            ax.set_axis_off()
        for ax, image in zip(line, images[chosen], strict=False):
            draw_image(1 - image, ax).images[0].set_interpolation("bicubic")
            height, width = image.shape[1:]
            draw_box(ax, (-0.5, -0.5, width, height), color, linewidth=2, clip_on=False)
        page = {"facecolor": "white", "edgecolor": "none"}
        name_row(line[0], f"{name}: {chosen.sum()}", 0.15, color=style.TEXT, bbox=page)
    lost, gained = (int(chosen.sum()) for chosen, _ in rows.values())
    equal = len(baseline) - lost - gained
    title = f"{lost + gained} images tell the two models apart, {equal} don't"
    style.title_figure(fig, title)
    return Picture(
        fig,
        "The digits that only one of two models classifies correctly, in two rows.",
        f"Two rows of digits: {lost} that only the baseline classifies correctly, and {gained} "
        f"that only the changed model does. On {equal} others the two agree.",
    )


def draw_margins(
    differences: Array, seeds: float, images: float, first: int, columns: int = 40
) -> Picture:
    """Draw a part of a table of differences, with the means of its rows and columns.

    differences  : (n seeds, m images) of -1, 0 and 1
    seeds, images: the standard errors that the means of all rows and of all columns give
    first        : the first image to be drawn;  columns: how many are
    """
    n, m = differences.shape
    part = differences[:, first : first + columns]
    ratios = {"height_ratios": (1.5, 1), "width_ratios": (3, 1)}
    fig, axes = style.new_figure(9, 3.9, nrows=2, ncols=2, gridspec_kw=ratios)
    (table, rows), (below, corner) = axes
    table.pcolormesh(part, cmap=SIGNS, vmin=-1, vmax=1, edgecolor="white", linewidth=1)
    for seed, image in zip(*part.nonzero(), strict=True):
        sign = "+" if part[seed, image] > 0 else "−"
        color = GAINED if part[seed, image] > 0 else LOST
        ground = {"facecolor": color, "edgecolor": "none", "pad": 0}
        where = {"ha": "center", "va": "center", "color": "white", "bbox": ground}
        table.text(image + 0.5, seed + 0.52, sign, fontsize=style.TEXT_SIZE, **where)
    names = [f"seed {seed}" for seed in range(n)]
    style.style_axes(table, "+ gained, − lost").set_yticks([seed + 0.5 for seed in range(n)], names)
    table.set(xticks=[], ylim=(n, 0))
    table.spines[:].set_visible(False)
    rows.plot(100 * differences.mean(1), [seed + 0.5 for seed in range(n)], "o", color=REAL, ms=8)
    style.style_axes(rows, "Row means", "points").set(yticks=[], ylim=(n, 0))
    means = part.mean(0)
    colors = [GAINED if mean > 0 else LOST for mean in means]
    below.bar([image + 0.5 for image in range(columns)], means, color=colors, width=0.8)
    below.axhline(0, color=style.LINE, linewidth=1)
    below.set(xlim=(0, columns), ylim=(-1.1, 1.1), xticks=[])
    label = f"validation images {first} to {first + columns - 1} of {m:,}"
    style.style_axes(below, "Column means", label)
    style.hide_axes(corner)
    text = f"error of the seeds:\n{100 * seeds:.2f} points\n\nof the images:\n"
    corner.text(0, 0.4, f"{text}{100 * images:.2f} points", va="center", **WORDS)
    style.title_figure(fig, "Rows show the luck of the seeds, columns that of the images")
    return Picture(
        fig,
        "A table of differences with a row for each seed and a column for each image, and its "
        "means.",
        f"A table with {n} rows for the seeds and {columns} columns for images, with plus, minus "
        f"or nothing in each cell; the means of rows and columns beside it. Their standard errors "
        f"are {100 * seeds:.2f} and {100 * images:.2f} points.",
    )


def draw_interval(ax: Axes, y: float, row: Any, passes: bool) -> None:
    """Draw a difference with its interval, in points: filled if it passes a correction.

    row: difference, low and high, as fractions
    """
    color = REAL if passes else style.LINE
    mean, low, high = (100 * float(row[name]) for name in ("difference", "low", "high"))
    ax.plot([low, high], [y, y], color=color, linewidth=3, solid_capstyle="butt")
    mark, fill = ("s", color) if passes else ("o", "white")
    ax.plot(mean, y, mark, color=color, mfc=fill, ms=9, mew=2)


def draw_ranking(effects: pd.DataFrame, named: Collection[str] = ()) -> Picture:
    """Draw every change from the worst to the best, with its 95% interval, in points.

    effects: difference, low, high and holm of each change, as fractions
    named  : the changes whose names are written beside them
    """
    fig, ax = style.new_figure(9, 3.9)
    ax.axhline(0, color=style.TEXT, linewidth=1)
    ranked = effects.sort_values("difference")
    passes = ranked["holm"] < 0.05
    for x, (name, row) in enumerate(ranked.iterrows()):
        color = REAL if passes[name] else style.LINE
        mean, low, high = (100 * row[column] for column in ("difference", "low", "high"))
        ax.plot([x, x], [low, high], color=color, linewidth=3, solid_capstyle="butt")
        mark, fill = ("s", color) if passes[name] else ("o", "white")
        ax.plot(x, mean, mark, color=color, mfc=fill, ms=6)
        if name in named:
            if x < len(ranked) / 2:
                ax.annotate(name, (x, mean), (9, -5), **BESIDE, ha="left", va="center")
            else:
                ax.annotate(name, (x, high), (-6, 8), **BESIDE, ha="right", arrowprops=LEADER)
    count, real = len(ranked), int(passes.sum())
    title = f"{real} of {count} changes pass Holm's correction (filled squares)"
    style.style_axes(ax, title, f"{count} changes, from the worst to the best", "gain in points")
    ax.set_xticks([])
    ax.yaxis.set_major_locator(MaxNLocator(5))
    gains = [name for name in ranked.index if passes[name] and ranked["difference"][name] > 0]
    return Picture(
        fig,
        "Differences from the baseline with their intervals, from the worst to the best change.",
        f"{count} changes with intervals, from {signed(100 * ranked['difference'].iloc[0])} to "
        f"{signed(100 * ranked['difference'].iloc[-1])} points. {real} pass the correction, among "
        f"them as gains: {'; '.join(gains)}.",
    )


def draw_rates(curves: Mapping[str, Mapping[float, Sequence[float]]]) -> Picture:
    """Draw the mean accuracy against the learning rate, a line for each model, the best filled.

    curves: {name: {rate: accuracies, one a seed}}
    """
    fig, ax = style.new_figure(9, 3.4)
    best = {}
    ends = ("-", "--", ":")
    for i, (name, points) in enumerate(curves.items()):
        rates = sorted(points)
        means = [sum(points[rate]) / len(points[rate]) for rate in rates]
        color = style.SERIES[i % 3]
        options = {"color": color, "linestyle": ends[i % 3], "marker": "os^"[i % 3], "ms": 9}
        ax.plot(rates, means, mfc="white", linewidth=2, label=f"_{name}", **options)
        best[name] = rates[means.index(max(means))]
        ax.plot(best[name], max(means), marker="os^"[i % 3], color=color, ms=12)
        ax.annotate(name, (rates[-1], means[-1]), (10, 0), va="center", **BESIDE)
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ticks = (3e-4, 1e-3, 3e-3, 1e-2)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xlim(2.7e-4, 2.6e-2)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    title = "The wider the model, the smaller its best learning rate"
    style.style_axes(ax, title, "learning rate", "validation accuracy")
    story = ", ".join(f"{name} {rate:g}" for name, rate in best.items())
    return Picture(
        fig,
        "The accuracy against the learning rate for models of several widths.",
        f"A curve of accuracy against learning rate for each width. The best rates: {story}.",
    )


def draw_places(places: Mapping[str, Mapping[str, Any]]) -> Picture:
    """Draw what the same changes gain in several experiments, a group of lines for each change.

    places: {change: {experiment: difference, low, high and holm, as fractions}}
    """
    count = sum(map(len, places.values())) + len(places)
    fig, ax = style.new_figure(9, 0.4 * count + 1.0)
    ax.axvline(0, color=style.TEXT, linewidth=1)
    y, story = 0, []
    ticks = {}
    for change, lines in places.items():
        for name, row in lines.items():
            draw_interval(ax, y, row, row["holm"] < 0.05)
            ticks[y] = f"{change}: {name}"
            gain = signed(100 * row["difference"])
            ax.text(1.02, y, gain, transform=ax.get_yaxis_transform(), va="center", **WORDS)
            story.append(f"{change}, {name} {gain}")
            y += 1
        y += 1
    ax.set_yticks([*ticks], [*ticks.values()])
    ax.set_ylim(y - 1.4, -0.6)
    style.style_axes(
        ax, "The same change, in other experiments", "gain in points, with its 95% interval"
    )
    return Picture(
        fig,
        "What the same changes gain in several experiments, with intervals.",
        f"Gains in points: {'; '.join(story)}.",
    )


def draw_verdict(runs: pd.DataFrame, effects: pd.DataFrame) -> Picture:
    """Draw what each change gained at first, and its interval over all seeds and images.

    runs   : with columns change, seed and accuracy
    effects: difference, low, high and holm of these changes, as fractions
    """
    first = gains_of(runs).iloc[:, 0]
    fig, ax = style.new_figure(9, 0.45 * len(first) + 1.3)
    ax.axvline(0, color=style.TEXT, linewidth=1)
    passes = effects["holm"] < 0.05
    for y, name in enumerate(first.index):
        draw_interval(ax, y, effects.loc[name], passes[name])
        ax.plot(first[name], y, "x", color=style.TEXT, ms=10, mew=2.5)
    ax.annotate("first try", (first.iloc[0], 0), (8, 6), textcoords="offset points", **WORDS)
    ax.set_yticks(range(len(first)), first.index)
    ax.set_ylim(len(first) - 0.4, -0.7)
    real = [name for name in first.index if passes[name]]
    title = f"{in_words(len(real)).capitalize()} of the {in_words(len(first))} is left"
    names = " and ".join(real)
    style.style_axes(ax, f"{title}: {names}", "gain in points, with its 95% interval")
    story = ", ".join(
        f"{name} {signed(first[name])}, now {signed(100 * effects['difference'][name])}"
        for name in first.index
    )
    return Picture(
        fig,
        "The gain of each change in its first try, and its interval over all seeds and images.",
        f"First gain and mean gain in points: {story}. Passing: {names}.",
    )
