"""Notebook 04: layer normalization, the MLP, the residual stream, and runs with their range."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, draw_table, new_canvas, short, write

DOTS = "ox^s"  # a mark for each group, so that they differ without color too
ATTENTION, MLP, OTHER = (
    style.SERIES
)  # the two branches of a block, and whatever is compared with them
WIDEST = 5  # numbers of a token that fit the picture of layer norm


def draw_layer_norm(tokens: Tensor, labels: Sequence[str], eps: float = 1e-6) -> Figure:
    """Draw tokens, the mean and the variance of each row, and the normalized tokens in cells.

    tokens: (T, D) with D from 2 to 5;  labels: T names
    raises: ValueError if they are not rows of 2 to 5 numbers, or too large for their cells
    """
    if tokens.ndim != 2 or not 2 <= tokens.shape[1] <= WIDEST:
        raise ValueError(f"tokens must be rows of 2 to {WIDEST} numbers, got {tuple(tokens.shape)}")
    if tokens.abs().max() >= 1000:
        raise ValueError(
            f"numbers must be below 1000 to fit into their cells, got {tokens.abs().max():g}"
        )
    (T, D), tokens = tokens.shape, tokens.double()
    mean, variance = (
        tokens.mean(dim=1, keepdim=True),
        tokens.var(dim=1, unbiased=False, keepdim=True),
    )
    fig, ax = new_canvas(
        T + 3.6,
        "Every row is normalized on its own: minus its mean, divided by its standard deviation",
    )
    top, left, width = 2.3, 2.0, {4: 1.6, WIDEST: 1.3}.get(D, 1.95)
    digits = 3 if D < 4 else 2
    cells: dict[str, Any] = {"width": width, "texts": significant(tokens, digits)}
    draw_table(
        ax, (left, top), tokens, style.LINE, "tokens", f"(T, D) = ({T}, {D})", labels, **cells
    )
    left += width * D + 1.3
    arrow(ax, (left - 1.1, top + T / 2), (left - 0.2, top + T / 2))
    for name, numbers in (("mean", mean), ("variance", variance)):
        draw_table(
            ax,
            (left, top),
            numbers,
            style.LINE,
            name,
            f"({T}, 1)",
            width=2,
            texts=significant(numbers),
        )
        left += 2.4
    left += 0.5
    arrow(ax, (left - 0.8, top + T / 2), (left - 0.1, top + T / 2))
    normalized = (tokens - mean) / (variance + eps).sqrt()
    cells |= {"texts": significant(normalized, digits), "grounds": signed(normalized)}
    draw_table(
        ax,
        (left, top),
        normalized,
        style.LINE,
        "normalized tokens",
        f"(T, D) = ({T}, {D})",
        **cells,
    )
    return fig


def significant(numbers: Tensor, digits: int = 3) -> list[str]:
    """Write numbers for cells: two digits behind the point, `digits` significant ones below 0.1.

    >>> significant(torch.tensor([2.0, 0.666, -0.0, 0.00123, -6.67e-7]))
    ['2', '0.67', '0', '0.00123', '-6.67e-7']
    """
    texts = []
    for number in numbers.flatten().tolist():
        small = f"{number:.{digits}g}".replace("e-0", "e-")
        large = f"{number:.0f}" if abs(number) >= 1000 else short(number)
        texts.append("0" if abs(number) < 1e-12 else small if abs(number) < 0.1 else large)
    return texts


def signed(numbers: Tensor) -> Tensor:
    """Find the colors of cells on the signed map from -2 to 2.

    numbers: (rows, columns);  returns: (rows, columns, 3)
    """
    return torch.from_numpy(colormaps[style.SIGNED]((numbers / 4 + 0.5).numpy())[..., :3])


def draw_mlp(token: Tensor, mlp: Any) -> Figure:
    """Draw one token on its way through an MLP, with all numbers in the cells.

    Positive ones are red, negative ones blue.

    token: (D,) with D = 4;  mlp: a module with `fc1`, `act` and `fc2`
    """
    hidden = mlp.fc1(token)
    after = mlp.act(hidden)
    steps = {
        "token $z$": (token, "(D) = ({})", "times $W_1$, plus $b_1$"),
        "hidden numbers $z W_1 + b_1$": (hidden, "(4D) = ({})", "GELU"),
        "after GELU": (after, "(4D) = ({})", "times $W_2$, plus $b_2$"),
        "output": (mlp.fc2(after), "(D) = ({})", ""),
    }
    fig, ax = new_canvas(
        13.6, "The MLP widens a token, applies GELU to each number, and narrows it again"
    )
    for i, (name, (row, shape, then)) in enumerate(steps.items()):
        numbers = row.detach()[None]
        width, top = 1.34, 2.0 + 3.2 * i
        left = 11 - width * len(row) / 2
        color = style.LINE if i in (0, 3) else MLP
        draw_table(
            ax,
            (left, top),
            numbers,
            color,
            name,
            shape.format(len(row)),
            width=width,
            grounds=signed(numbers),
        )
        if then:
            arrow(ax, (11 + 2.3, top + 1.2), (11 + 2.3, top + 2.4))
            write(ax, 11 + 2.7, top + 1.8, then, ha="left")
    return fig


def draw_stream(
    branches: Sequence[Mapping[str, str]],
    ax: Axes | None = None,
    title: str | None = None,
    ends: tuple[str, str] = ("in", "out"),
) -> Axes:
    """Draw a residual stream from left to right.

    Each branch leaves it, passes its boxes, and is added back.

    branches: a list of {name of a box: color}
    ends    : what the stream is called where it comes in and goes out
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 2.6), title)
    ax.set(xlim=(0, 10), ylim=(-0.55, 1.8))
    ax.plot([0.9, 9.35], [0, 0], color=style.TEXT, linewidth=5, solid_capstyle="butt", zorder=1)
    arrow(ax, (9.2, 0), (9.55, 0), linewidth=1.5, mutation_scale=24)
    for x, end, side in ((0.8, ends[0], "right"), (9.6, ends[1], "left")):
        ax.text(x, 0, end, ha=side, va="center", fontsize=style.TEXT_SIZE, color=style.TEXT)
    width = 8.2 / len(branches)
    for i, boxes in enumerate(branches):
        draw_branch(ax, boxes, 0.9 + i * width + 0.12 * width, 0.88 * width - 0.35)
    return ax


def draw_branch(ax: Axes, boxes: Mapping[str, str], left: float, width: float) -> None:
    """Draw one branch: up from the stream, through its boxes, down to a plus."""
    right = left + width
    ax.plot([left, left, right], [0, 1, 1], color=style.TEXT, linewidth=1.5, zorder=1)
    arrow(ax, (right, 1.01), (right, 0.17), linewidth=1.5)
    ax.add_patch(
        Circle((right, 0), 0.17, facecolor="white", edgecolor=style.TEXT, linewidth=1.5, zorder=3)
    )
    ax.text(
        right,
        -0.01,
        "+",
        ha="center",
        va="center",
        fontsize=style.TEXT_SIZE + 4,
        color=style.TEXT,
        zorder=4,
    )
    step = width / len(boxes)
    for i, (name, color) in enumerate(boxes.items()):
        corner = (left + (i + 0.16) * step, 0.72)
        start = corner[0] - 0.25 * step * (i > 0) - 0.1
        arrow(ax, (start, 1), (corner[0], 1), linewidth=1.5)
        box = {
            "boxstyle": "round,pad=0.02",
            "facecolor": "white",
            "edgecolor": color,
            "linewidth": 3,
            "zorder": 2,
        }
        ax.add_patch(FancyBboxPatch(corner, 0.68 * step, 0.56, **box))
        options = {
            "ha": "center",
            "va": "center",
            "fontsize": style.TEXT_SIZE,
            "color": style.TEXT,
            "zorder": 3,
        }
        ax.text(left + (i + 0.5) * step, 1, name, **options)


def draw_spread(
    values: Tensor | Sequence[Sequence[float]], ax: Axes, label: str, **options: Any
) -> Line2D:
    """Draw a line through the geometric mean of runs, and a band from smallest to largest.

    values: (runs, points), all positive;  options: as for `plot`
    """
    values = torch.as_tensor(values).clamp(min=1e-12)
    points = range(1, values.shape[1] + 1)
    (line,) = ax.plot(
        points, values.log().mean(0).exp(), **{"label": label, "linewidth": 2} | options
    )
    low, high = values.amin(0), values.amax(0)
    ax.fill_between(points, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def draw_sizes(
    groups: Mapping[str, tuple[Tensor, str]], ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw a dot for every token: its mean and its standard deviation.

    groups: {name: (tokens (T, D), color)}
    """
    ax = style.style_axes(style.new_axes(ax, 4, 3), title)
    for (name, (tokens, color)), mark in zip(groups.items(), DOTS, strict=False):
        tokens = torch.as_tensor(tokens).detach()
        deviation = tokens.std(dim=-1, unbiased=False)
        ax.plot(
            tokens.mean(dim=-1), deviation, mark, color=color, markersize=4, linewidth=0, label=name
        )
    return ax


def draw_normalizations(panels: Mapping[str, Tensor], names: Sequence[str]) -> Figure:
    """Draw a panel for each way to normalize, on the same axes.

    Where all tokens are at one point, a ring and an arrow mark it.

    panels: {title: tokens of two images (2, T, D)};  names: of the images
    """
    fig, axes = style.new_figure(9, 3.0, ncols=len(panels), sharex=True, sharey=True, squeeze=False)
    for ax, (title, tokens) in zip(axes[0], panels.items(), strict=True):
        draw_sizes(
            dict(zip(names, zip(tokens, (style.TEXT, OTHER), strict=True), strict=True)), ax, title
        )
        mean, deviation = tokens.mean(dim=-1).detach(), tokens.std(dim=-1, unbiased=False).detach()
        if max(mean.max() - mean.min(), deviation.max() - deviation.min()) < 0.05:
            point = (float(mean.mean()), float(deviation.mean()))
            ax.plot(*point, "o", markersize=18, fillstyle="none", color=style.TEXT)
            label_at = (point[0] + 0.1, 0.5 * point[1])
            ax.annotate(f"all {mean.numel()} tokens", label_at, fontsize=style.TEXT_SIZE)
            arrow(ax, (label_at[0] + 0.5, label_at[1] + 0.1), point, shrinkA=2, shrinkB=11)
    axes[0, 0].legend(fontsize=style.TEXT_SIZE - 1, frameon=False, markerscale=1.5)
    axes[0, 0].set_ylabel("standard deviation", fontsize=style.TEXT_SIZE)
    fig.supxlabel("mean of the numbers of a token", fontsize=style.TEXT_SIZE)
    return fig


def draw_branches(values: Sequence[float], ax: Axes | None = None) -> Axes:
    """Draw two bars for each block, of its attention and of its MLP.

    values: of attention and MLP in turn
    """
    ax = style.new_axes(ax, 4, 3)
    blocks = range(1, len(values) // 2 + 1)
    for start, (name, color, hatch) in enumerate(
        (("attention", ATTENTION, ""), ("MLP", MLP, "//"))
    ):
        positions = [block + (start - 0.5) * 0.44 for block in blocks]
        ax.bar(
            positions,
            values[start::2],
            0.4,
            color=color,
            hatch=hatch,
            edgecolor="white",
            label=name,
        )
    ax.set_xticks(blocks)
    return ax


def draw_runs_apart(
    values: Mapping[int, Sequence[float]], ax: Axes, shift: float, label: str, **options: Any
) -> None:
    """Draw a dot for each run, side by side, so that runs with equal results are seen as several.

    values: {depth: a result for each run}, the depths evenly spaced from left to right
    shift : of this group, in steps
    """
    for i, (_, results) in enumerate(sorted(values.items())):
        middle = (len(results) - 1) / 2
        positions = [i + shift + 0.05 * (run - middle) for run in range(len(results))]
        ax.plot(
            positions, results, linestyle="none", markersize=5, label="" if i else label, **options
        )
    ax.set_xticks(range(len(values)), [str(depth) for depth in sorted(values)])
