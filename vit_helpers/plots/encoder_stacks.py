"""Notebook 04, further: norms, GELU, the growing stream, deep stacks, first weights."""

from collections.abc import Mapping, Sequence

import pandas as pd
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, tint
from vit_helpers.plots.encoder import ATTENTION, MLP, OTHER
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar, draw_image

DOTS = "ox"  # a mark for each image, so that they differ without color, too


def draw_contrast(photo: Tensor, deviations: Tensor, normalized: Tensor) -> Picture:
    """Draw a photo, the standard deviation of each patch, and the photo with equal contrast.

    photo: (C, S, S), from 0 to 1;  deviations: (N, 1);  normalized: (N, C*P*P), the patches
    """
    side = round(len(deviations) ** 0.5)
    size = photo.shape[-1]
    fig, axes = style.new_figure(9, 2.9, ncols=3)
    draw_image(photo, axes[0], f"{len(deviations)} patches of a photo")
    ratio = float(deviations.max() / deviations.min())
    style.hide_axes(axes[1], f"Contrast differs {ratio:.0f}-fold")
    drawn = axes[1].imshow(deviations.reshape(side, side), cmap=style.VALUES, vmin=0, vmax=0.3)
    patch = size // side
    equalized = F.fold(0.5 + 0.2 * normalized.T[None], size, kernel_size=patch, stride=patch)
    draw_image(equalized[0], axes[2], "Layer norm equalizes it")
    color_bar(drawn, axes[1], "standard deviation")
    return Picture(
        fig,
        "A photo, the standard deviation of each of its patches, and the photo after layer norm.",
        f"A photo of a pagoda; the standard deviation of each patch, {ratio:.0f} times as large "
        "along the roofs as in the sky; and the photo with equal contrast in every patch.",
    )


def draw_normalizations(panels: Mapping[str, Tensor], names: Sequence[str]) -> Picture:
    """Draw a dot for each token at the mean and standard deviation of its numbers.

    Where all tokens are at one point, a ring and an arrow mark it.

    panels: {title: tokens of two images (2, T, D)};  names: of the images
    """
    fig, axes = style.new_figure(9, 3.0, ncols=len(panels), sharex=True, sharey=True, squeeze=False)
    points = []
    for ax, (title, tokens) in zip(axes[0], panels.items(), strict=True):
        style.style_axes(ax, title)
        mean, deviation = tokens.mean(dim=-1).detach(), tokens.std(dim=-1, unbiased=False).detach()
        for i, (name, color) in enumerate(zip(names, (style.TEXT, OTHER), strict=True)):
            options = {"color": color, "markersize": 4, "linewidth": 0, "label": name}
            ax.plot(mean[i], deviation[i], DOTS[i], **options)
        if max(mean.max() - mean.min(), deviation.max() - deviation.min()) < 0.05:
            mark_point(ax, (float(mean.mean()), float(deviation.mean())), mean.numel())
            points.append(title)
    axes[0, 0].legend(fontsize=style.TEXT_SIZE - 1, frameon=False, markerscale=1.5)
    axes[0, 0].set_ylabel("standard deviation", fontsize=style.TEXT_SIZE)
    fig.supxlabel("mean of the numbers of a token", fontsize=style.TEXT_SIZE)
    return Picture(
        fig,
        "Every token as a dot at the mean and standard deviation of its numbers, for each norm.",
        f"Dots for {mean.numel()} tokens in {len(panels)} panels. They are a cloud, but for one "
        f"ringed point in the panel “{' and '.join(points)}”.",
    )


def mark_point(ax: Axes, point: tuple[float, float], count: int) -> None:
    """Draw a ring around a point where many tokens are, and say how many."""
    ax.plot(*point, "o", markersize=18, fillstyle="none", color=style.TEXT)
    label_at = (point[0] + 0.1, 0.5 * point[1])
    ax.annotate(f"all {count} tokens", label_at, fontsize=style.TEXT_SIZE)
    arrow(ax, (label_at[0] + 0.5, label_at[1] + 0.1), point, shrinkA=2, shrinkB=11)


def draw_gelu(x: Tensor, gelu: Tensor, slope: Tensor) -> Picture:
    """Draw GELU and its slope beside those of ReLU, with GELU's minimum.  All: (n,)"""
    fig, axes = style.new_figure(9, 2.8, ncols=2)
    x, gelu, slope = (values.detach() for values in (x, gelu, slope))
    low = gelu.argmin()
    for ax, soft, hard in ((axes[0], gelu, F.relu(x)), (axes[1], slope, (x > 0).double())):
        ax.plot(x, hard, "--", color=style.LINE, linewidth=2, label="ReLU")
        ax.plot(x, soft, color=MLP, linewidth=2.5, label="GELU")
        ax.plot(x[low], soft[low], "o", color=style.TEXT, label="GELU's minimum")
    style.style_axes(axes[0], "GELU dips below zero", "x", "value")
    style.style_axes(axes[1], "Its slope has no jump", "x", "slope").set_xlim(-4, 3)
    axes[0].set(xlim=(-4, 3), ylim=(-0.4, 2))
    axes[0].legend(fontsize=style.TEXT_SIZE, frameon=False)
    return Picture(
        fig,
        "The curves of GELU and ReLU, and their slopes.",
        f"Left: GELU follows ReLU but dips to {gelu[low]:.2f} at x = {x[low]:.2f}. Right: its "
        "slope is slightly negative left of that point and rises smoothly, where ReLU's jumps.",
    )


def draw_growth(lengths: Tensor, added: Tensor, angles: Tensor) -> Picture:
    """Draw the length of the stream, what each branch adds to it, and how far that turns it.

    lengths: (runs, 2 L + 1);  added, angles: (runs, 2 L), of attention and MLP in turn; the bars
             are means, and marks on them are the runs
    """
    fig, axes = style.new_figure(9, 3.2, ncols=2)
    blocks = added.shape[1] // 2
    where = [i / 2 + 0.5 for i in range(2 * blocks + 1)]
    axes[0].plot(where, lengths.mean(dim=0), "o-", color=style.TEXT)
    end = float(lengths.mean(dim=0)[-1])
    text = {"fontsize": style.TEXT_SIZE, "color": style.TEXT, "ha": "right"}
    axes[0].text(where[-1] - 0.4, 0.95 * end, "the stream", **text)
    for ax, values in zip(axes, (added, angles), strict=True):
        for start, (name, color, hatch) in enumerate(
            (("attention", ATTENTION, ""), ("MLP", MLP, "//"))
        ):
            centers = [block + (start - 0.5) * 0.44 for block in range(1, blocks + 1)]
            bars = {"color": color, "hatch": hatch, "edgecolor": "white", "label": name}
            ax.bar(centers, values[:, start::2].mean(dim=0), 0.4, **bars)
            for run in values[:, start::2]:
                ax.plot(centers, run, "_", color=style.TEXT, markersize=9)
        ax.set_xticks(range(1, blocks + 1))
    style.style_axes(axes[0], "The residual stream grows", "block", "mean length of a token")
    style.style_axes(axes[1], "Later blocks turn the tokens less", "block", "mean angle (degrees)")
    axes[1].legend(fontsize=style.TEXT_SIZE - 1, frameon=False)
    start_length = float(lengths.mean(dim=0)[0])
    return Picture(
        fig,
        "The length of the stream and of what each branch adds, and the angles of the additions.",
        f"Left: for each of {blocks} blocks, bars of what attention and MLP add under a line, the "
        f"length of the stream, which climbs from {start_length:.0f} to {end:.0f}. Right: the "
        "angle by which an addition turns the tokens is smaller in the last block than in block 1.",
    )


def draw_stacks(stacks: Mapping[str, Mapping[str, Tensor]], title: str) -> Picture:
    """Draw a panel for each stack, with a line for each thing measured in every block.

    Lines are geometric means of runs, bands go from the smallest to the largest.

    stacks: {name: {what was measured: (runs, L), all positive}}
    """
    fig, axes = style.new_figure(9, 3.9, ncols=len(stacks), sharey=True, squeeze=False)
    style.title_figure(fig, title)
    looks = (("-", style.TEXT), ("--", ATTENTION), (":", OTHER))
    ends = []
    for ax, (name, measured) in zip(axes[0], stacks.items(), strict=True):
        style.style_axes(ax, name, "block")
        for (label, values), (line, color) in zip(measured.items(), looks, strict=False):
            values = values.clamp(min=1e-12)
            blocks = range(1, values.shape[1] + 1)
            mean = values.log().mean(dim=0).exp()
            ax.plot(blocks, mean, line, color=color, linewidth=2.5, label=label)
            low, high = values.amin(dim=0), values.amax(dim=0)
            ax.fill_between(blocks, low, high, color=color, alpha=0.2, linewidth=0)
            if label == next(iter(measured)):
                ends.append(f"{mean[-1]:.1g} for {' '.join(name.split())}")
        ax.set(yscale="log", xlim=(0, len(blocks) + 1), xticks=(1, len(blocks) // 2, len(blocks)))
        ax.set_yticks([10.0**power for power in range(-8, 3, 2)])
        ax.minorticks_off()
    handles = axes[0, 0].get_legend_handles_labels()
    fig.legend(
        *handles, loc="outside lower center", ncols=3, fontsize=style.TEXT_SIZE, frameon=False
    )
    return Picture(
        fig,
        "How far tokens differ in each block of a stack, and the gradients of its parts.",
        f"Panels for {len(stacks)} stacks on one log scale. How far tokens differ in the last "
        f"block: {', '.join(ends)}.",
    )


def draw_depth(gradients: pd.DataFrame) -> Picture:
    """Draw the gradient in the last block by depth, and how the ratio of two orders grows.

    gradients: a row for each (depth, seed), columns "pre-norm" and "post-norm"
    """
    fig, axes = style.new_figure(9, 3.5, ncols=2)
    depths = sorted(set(gradients.index.get_level_values("depth")))
    marks = {"pre-norm": ("o-", style.TEXT), "post-norm": ("s--", OTHER)}
    text = {"fontsize": style.TEXT_SIZE, "va": "center"}
    for name, (mark, color) in marks.items():
        table = gradients[name].unstack("seed")
        axes[0].plot(depths, table.prod(axis=1) ** (1 / table.shape[1]), mark, color=color)
        axes[0].plot(depths, table, mark[0], color=color, markersize=4, alpha=0.4)
        end = table.loc[depths[-1]].prod() ** (1 / table.shape[1])
        axes[0].text(depths[-1] * 1.12, end, name, color=color, **text)
    ratio = (gradients["post-norm"] / gradients["pre-norm"]).unstack("seed")
    growth = ratio / ratio.loc[depths[0]]
    axes[1].plot(depths, growth, color=style.LINE, linewidth=1)
    mean = growth.prod(axis=1) ** (1 / growth.shape[1])
    axes[1].plot(depths, mean, "D-", color=OTHER, linewidth=2.5)
    root = [(depth / depths[0]) ** 0.5 for depth in depths]
    axes[1].plot(depths, root, ":", color=style.TEXT, linewidth=2)
    axes[1].text(depths[-1] * 1.12, mean.iloc[-1], "ratio", color=OTHER, **text)
    axes[1].text(depths[-1] * 1.12, root[-1], "√L", **text)
    style.style_axes(axes[0], "Pre-norm's gradient shrinks", "blocks L", "gradient, last block")
    style.style_axes(axes[1], "The ratio grows faster than √L", "blocks L", "growth since 3 blocks")
    for ax in axes:
        ax.loglog()
        ax.set_xticks(depths, depths)
        ax.minorticks_off()
    axes[0].set_yticks((0.3, 1, 3), ("0.3", "1", "3"))
    axes[1].set_yticks((0.5, 1, 2, 4, 8), ("0.5", "1", "2", "4", "8"))
    axes[0].set_xlim(depths[0] * 0.85, depths[-1] * 3)
    axes[1].set_xlim(depths[0] * 0.85, depths[-1] * 1.8)
    return Picture(
        fig,
        "The gradient in the last block by depth, with pre-norm and post-norm, and their ratio.",
        "Left: from 3 to 48 blocks, pre-norm's gradient shrinks and post-norm's hardly changes. "
        f"Right: their ratio grows {mean.iloc[-1]:.0f}-fold on average of {growth.shape[1]} seeds, "
        f"above a dotted line for √L, which grows {root[-1]:.0f}-fold.",
    )


def draw_failures(counts: Mapping[str, pd.DataFrame], runs: int) -> Picture:
    """Draw how many of the runs failed, a tile for each kind of stack and depth.

    counts: {title: a row for each kind of stack, a column for each depth}
    """
    fig, axes = style.new_figure(9, 2.6, ncols=len(counts), sharey=True, squeeze=False)
    style.title_figure(fig, f"Failed trainings, out of {runs}: only pre-norm never fails")
    for ax, (title, table) in zip(axes[0], counts.items(), strict=True):
        rows = table.to_numpy().tolist()
        grounds = [[tint(OTHER, 0.95 * number / runs) for number in numbers] for numbers in rows]
        ax.imshow(grounds, aspect="auto")
        for row, numbers in enumerate(rows):
            for column, number in enumerate(numbers):
                options = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE}
                ink = style.ink_on(grounds[row][column])
                ax.text(column, row, number, color=ink, **options)
        style.style_axes(ax, title, "blocks")
        ax.set_xticks(range(table.shape[1]), table.columns)
        ax.set_yticks(range(table.shape[0]), table.index)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    told = [f"{title}: {int(table.to_numpy().sum())}" for title, table in counts.items()]
    return Picture(
        fig,
        "Tiles with the number of failed trainings, for each stack, depth and learning rate.",
        f"Tiles with the failed runs of {runs} by stack and depth. In all, {'; '.join(told)}. The "
        "row of pre-norm is 0 everywhere.",
    )


def draw_sorted_weights(weights: Mapping[str, Tensor]) -> Picture:
    """Draw the attention weights of a row, from the largest to the smallest, a panel for each.

    weights: {title: (T,)}, means over rows and runs
    """
    fig, axes = style.new_figure(9, 3.0, ncols=len(weights), sharey=True, squeeze=False)
    style.title_figure(fig, "With PyTorch's default, attention starts closer to uniform")
    for ax, (title, row) in zip(axes[0], weights.items(), strict=True):
        ax.bar(range(1, len(row) + 1), row, 1, color=ATTENTION, edgecolor="white", linewidth=0.3)
        ax.axhline(1 / len(row), color=style.TEXT, linestyle=":", linewidth=2)
        options = {"ha": "right", "va": "bottom", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
        ax.text(len(row), 1.05 / len(row), f"all equal: 1/{len(row)}", **options)
        y = "mean weight" if ax is axes[0, 0] else None
        style.style_axes(ax, title, "keys, from the largest weight down", y)
        ax.set(xlim=(0, len(row) + 1), xticks=(1, 20, 40, len(row)))
    largest = [f"{row[0]:.2f} with {title}" for title, row in weights.items()]
    return Picture(
        fig,
        "The attention weights of a new block, sorted, with two ways to draw its first weights.",
        f"Bars of the sorted attention weights of a row of {len(row)}, beside a dotted line where "
        f"all are equal. The largest weight is {' and '.join(largest)}.",
    )
