"""How a difference and its errors come about, from the answers of two models to every image."""

from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from vit_helpers.plots import style
from vit_helpers.plots.ablation import IMAGES, SEEDS, SMALL, Array

SIGNS = LinearSegmentedColormap.from_list("signs", [style.SERIES[2], style.MUTED, style.SERIES[0]])


def draw_experiment(
    baseline: Array,
    changed: Array,
    effect: Any,
    names: tuple[str, str],
    images: tuple[int, int] = (0, 40),
    title: str | None = None,
) -> Figure:
    """How a difference and its errors come about: two models for each seed, every image, and what is averaged.

    baseline, changed: whether each model classifies each image correctly, (seeds, images) booleans
    effect           : of changed minus baseline, with difference, seeds, images, both and interval()
    names            : of the two models;  images: the first that is drawn, and the first that is not
    """
    sizes = {"height_ratios": (1, 1, 1.25, 1.1), "width_ratios": (2.5, 1)}
    fig, axes = style.new_figure(9, 6.2, nrows=4, ncols=2, gridspec_kw=sizes)
    fig.suptitle(title or "", x=0.005, ha="left", fontsize=style.TEXT_SIZE + 1, color=style.TEXT)
    step, some = changed.astype(int) - baseline.astype(int), slice(*images)
    titles = [f"{name} (dark: classified correctly)" for name in names]
    titles += ["Difference (+ only the change is correct, − only the baseline)"]
    strips = (
        (baseline, "Greys", (-0.15, 1.6)),
        (changed, "Greys", (-0.15, 1.6)),
        (step, SIGNS, (-1, 1)),
    )
    for (left, _), title, (cells, colors, (low, high)) in zip(axes, titles, strips, strict=False):
        left.pcolormesh(
            cells[:, some], cmap=colors, vmin=low, vmax=high, edgecolor="white", linewidth=1
        )
        left.set_yticks(
            [seed + 0.5 for seed in range(len(cells))],
            [f"seed {seed}" for seed in range(len(cells))],
        )
        style.style_axes(left, title).invert_yaxis()
        left.set_xticks([])
        left.spines[:].set_visible(False)
    for seed, image in zip(*step[:, some].nonzero(), strict=True):
        sign = "+" if step[seed, some][image] > 0 else "−"
        axes[2, 0].text(
            image + 0.5, seed + 0.52, sign, **SMALL | {"color": "white", "ha": "center"}
        )
    for (_, right), answers in zip(axes, (baseline, changed), strict=False):
        style.hide_axes(right, f"Accuracy on all {answers.shape[1]:,}")
        right.set(xlim=(0, 1), ylim=(len(answers), 0))
        for seed, accuracy in enumerate(answers.mean(1)):
            right.text(0.2, seed + 0.5, f"{100 * accuracy:.1f}%", **SMALL)
    draw_margins(axes[2:], step, effect, some)
    return fig


def draw_margins(axes: Any, step: Array, effect: Any, some: slice) -> None:
    """The means of the rows and of the columns of the differences in `draw_experiment`, and the errors that they give."""
    (_, rows), (columns, result) = axes
    means, (low, high) = step[:, some].mean(0), effect.interval()
    rows.plot(
        100 * step.mean(1),
        [seed + 0.5 for seed in range(len(step))],
        "o",
        color=SEEDS,
        markersize=7,
    )
    style.style_axes(rows, f"Row means, all {step.shape[1]:,}", "points").set_ylim(len(step), 0)
    columns.bar([image + 0.5 for image in range(len(means))], means, color=IMAGES, width=0.8)
    columns.axhline(0, color=style.LINE, linewidth=1)
    columns.set(xlim=(0, len(means)), ylim=(-1.1, 1.1))
    columns.set_xticks([])
    where = f"validation images {some.start} to {some.stop - 1} of {step.shape[1]:,}"
    style.style_axes(columns, "Column means", where, f"mean of\n{len(step)} seeds")
    mean, errors = (
        100 * effect.difference,
        (("seeds", effect.seeds, SEEDS), ("images", effect.images, IMAGES)),
    )
    for ax in (rows, result):
        ax.axvline(0, color=style.LINE, linewidth=1)
        ax.set_yticks([])
        ax.set_xlim(100 * min(low, step.mean(1).min()) - 0.4, max(0, 100 * high) + 0.9)
    look = {"markersize": 7, "capsize": 6, "linewidth": 2}
    for y, (name, error, color) in enumerate(errors):
        result.errorbar(mean, y, xerr=100 * error, fmt="o", color=color, **look)
        result.text(mean + 100 * error + 0.25, y, f"{name} ±{100 * error:.2f}", **SMALL)
    result.errorbar(
        mean, 2, xerr=[[mean - 100 * low], [100 * high - mean]], fmt="D", color=style.TEXT, **look
    )
    result.text(100 * high + 0.25, 2, "95% interval", **SMALL)
    title = f"Mean of all: {mean:.1f}".replace("-", "−")
    style.style_axes(result, title, "difference in points").set_ylim(2.7, -0.7)
