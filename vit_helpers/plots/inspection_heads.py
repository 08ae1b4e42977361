"""Notebook 08, further: how far heads attend, what probes read, how maps of gradients score."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.animation import Reading, add_key, draw_moment
from vit_helpers.plots.figure import Picture


def draw_lines(reading: Reading) -> Picture:
    """Draw the attention of the class token in the last block as lines to all tokens."""
    return Picture(
        add_key(draw_moment(reading)),
        "A digit among fragments, cut into patches, with a row of tokens below, and lines from the "
        "class token to them.",
        "A digit among fragments, cut into patches, with a row of tokens below; the widest lines "
        "from the class token lead to patches of the digit. A line below them explains the widths "
        "and the colors.",
    )


def draw_distances(distances: Tensor, uniform: float) -> Picture:
    """Draw the mean attention distance of each head of each block: a circle with its number.

    distances: (L, h), in pixels;  heads of a block that are close are drawn side by side
    uniform  : the distance of a head with uniform weights, a dashed line
    """
    fig, ax = style.new_figure(9, 3.8)
    for block, heads in enumerate(distances.tolist(), start=1):
        for head, value in enumerate(heads):
            x = block + 0.14 * (head - (len(heads) - 1) / 2)
            ax.plot([x], [value], "o", color=style.SERIES[0], ms=17)
            options = {"ha": "center", "va": "center_baseline", "color": "white"}
            ax.text(x, value, str(head + 1), fontsize=style.TEXT_SIZE, **options)
    L = len(distances)
    ax.axhline(uniform, color=style.LINE, linestyle="--", zorder=0)
    options = {"color": style.TEXT, "va": "bottom", "ha": "left"}
    ax.text(L + 0.36, 1.01 * uniform, "uniform weights", fontsize=style.TEXT_SIZE, **options)
    highest = max(uniform, float(distances.max()))
    ax.set(xticks=range(1, L + 1), xlim=(0.6, L + 1), ylim=(0, 1.2 * highest))
    near = 1 + int(distances.amin(dim=1).argmin())
    far = 1 + int(distances.mean(dim=1).argmax())
    title = f"The nearest head is in block {near}; block {far} looks farthest on average"
    style.style_axes(ax, title, "block", "mean attention distance (pixels)")
    return Picture(
        fig,
        "The mean attention distance of every head as a numbered circle, block by block, beside "
        "that of uniform weights.",
        f"A numbered circle for each of {distances.shape[1]} heads in {L} blocks, from "
        f"{distances.min():.1f} to {distances.max():.1f} pixels, and a dashed line at "
        f"{uniform:.1f} pixels, the distance with uniform weights.",
    )


def draw_probes(shares: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the accuracy of probes after each block, a line for the class token and for patches.

    shares: {name: L accuracies}, the class token's first
    """
    fig, ax = style.new_figure(9, 3.6)
    first, second = shares
    ahead = all(a > b for a, b in zip(shares[first], shares[second], strict=True))
    title = f"The {first} is ahead after every block" if ahead else "Accuracy grows with depth"
    style.style_axes(ax, title, "after block", "accuracy of linear probes")
    for (name, values), form, color in zip(
        shares.items(), ("-o", "--s"), (style.CLASS_TOKEN, style.PATCH), strict=True
    ):
        places = range(1, len(values) + 1)
        ax.plot(places, values, form, color=color, linewidth=2.5, ms=8)
        ax.text(places[-1] + 0.08, values[-1], name, va="center", fontsize=style.TEXT_SIZE)
    ax.set(xlim=(0.9, len(values) + 0.9), ylim=(0, 1), xticks=places)
    ends = ", ".join(f"{name} from {v[0]:.2f} to {v[-1]:.2f}" for name, v in shares.items())
    return Picture(
        fig,
        "The accuracy of linear probes after each block, for the class token and for the mean of "
        "the patch tokens.",
        f"Two rising lines, the accuracy of linear probes after each block: {ends}.",
    )


def draw_norms(norms: Mapping[str, Tensor]) -> Picture:
    """Draw how long patch tokens are, a strip of dots with its median for each place.

    norms: {place: (n,)}
    """
    fig, ax = style.new_figure(9, 0.5 * len(norms) + 1.3)
    for y, values in enumerate(norms.values()):
        spread = 0.3 * (torch.arange(len(values)) % 11 / 5 - 1)
        ax.plot(values, y + spread, ".", color=style.SERIES[0], ms=2, alpha=0.4)
        ax.plot([values.median()] * 2, [y - 0.35, y + 0.35], color=style.TEXT, linewidth=3)
    ratio = max(float(values.max() / values.median()) for values in norms.values())
    title = f"No outliers: the largest norm is {ratio:.1f} times the median"
    style.style_axes(ax, title if ratio < 3 else "Norms of tokens", "norm of a patch token")
    ax.set_yticks(range(len(norms)), list(norms))
    ax.set(xlim=(0, None), ylim=(len(norms) - 0.5, -0.5))
    story = ", ".join(f"{name} {v.median():.1f} and {v.max():.1f}" for name, v in norms.items())
    return Picture(
        fig,
        "The norms of patch tokens as dots, with their median, before the blocks and after each.",
        f"Strips of dots, the norms of patch tokens, with a bar at each median. Median and "
        f"largest: {story}.",
    )
