"""Notebook 11: days of training, one training step, arithmetic, memory, and shorter numbers."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from vit_helpers.plots import style
from vit_helpers.plots.canvas import fill_cell, frame, new_canvas, write
from vit_helpers.plots.encoder import ATTENTION, MLP, OTHER
from vit_helpers.plots.figure import Picture

COLORS = {  # of the parts of a block as in notebooks 04 and 05, and of what needs memory
    "MLP": MLP,
    "qkv, output": "#CFCBE3",
    "scores, mixing": ATTENTION,
    "weights": "#111111",
    "gradients": "#949494",
    "optimizer": "#D1D1D1",
    "activations": OTHER,
}
PASSES = {"forward pass": "#D9D9D9", "backward pass": "#949494", "AdamW": "#4D4D4D"}
WAITING = "below its peak, or waiting"
SHAPE = 17 / 40  # height of all days divided by their width
LETTER = 0.026  # of the height of all days, the width of a letter of their labels
CHARACTER = 0.092  # inches of a bar that a character of its number needs
FORMATS = {"float32": 23, "TF32": 10, "bfloat16": 7}  # bits of the fraction, after 1 + 8 others


def draw_days(days: int, parts: Mapping[str, float] | None = None) -> Picture:
    """Draw a square for each day of a training, in the colors of what the time went to.

    days  : of one processor
    parts : {part of a block: days at the processor's peak}; what is left stays white
    raises: ValueError if the parts need more days than there are
    """
    counts = {part: round(number) for part, number in (parts or {}).items()}
    kinds = [part for part, count in counts.items() for _ in range(count)]
    if len(kinds) > days:
        raise ValueError(f"the parts need {len(kinds):,} days, more than all {days:,}")
    high = max(1, round(math.sqrt(SHAPE * days)))
    columns, row = math.ceil(days / high), high / 17
    fig, ax = style.new_figure(9, 4.5 if parts else 3.7)
    for day in range(days):
        color = COLORS[kinds[day]] if day < len(kinds) else "white"
        corner = (day // high + 0.08, day % high + 0.08)
        edge = style.LINE if color == "white" else color
        ax.add_patch(square(corner, color, edge))
    ylim = (high + 1.5 * row, -2.6 * row) if parts else (high, 0)
    ax.set(xlim=(0, columns), ylim=ylim, aspect="equal")
    ax.set_axis_off()
    texts = counts | {WAITING: days - len(kinds)} if parts else {}
    label_days(ax, texts, columns, high)
    if parts:
        title = f"Arithmetic at the peak fills {len(kinds) / days:.0%} of the days"
        said = ", ".join(f"{part} {count}" for part, count in texts.items())
        alt = f"{days} squares, a day each, in groups: {said}."
    else:
        title = f"{days:,} days of one TPU core"
        alt = f"{days} white squares in {columns} columns, a day each."
    ax.set_title(title, loc="left", fontsize=style.TEXT_SIZE + 1, color=style.TEXT)
    return Picture(fig, "A square for each day that a processor needed for a training.", alt)


def square(corner: tuple[float, float], color: str, edge: str) -> Rectangle:
    """Make one day, a little smaller than its place."""
    return Rectangle(corner, 0.84, 0.84, facecolor=color, edgecolor=edge, linewidth=0.8)


def label_days(ax: Axes, counts: Mapping[str, int], columns: int, high: int) -> None:
    """Write what each group of days is above it, and below all squares where it is narrow."""
    start, row, narrow = 0, high / 17, {}
    for part, count in counts.items():
        amount = f"{count:,} day" if count == 1 else f"{count:,} days"
        middle = (start + count / 2) / high
        if count / high > LETTER * high * max(len(part), len(amount)):
            write(ax, middle, -1.3 * row, f"{part}\n{amount}")
        else:
            narrow[part] = (middle, f"{part}: {amount}")
        start += count
    lengths = {part: LETTER * high * len(text) + 2 * row for part, (_, text) in narrow.items()}
    left = 0.0
    for i, (part, (middle, text)) in enumerate(narrow.items()):
        room = columns - sum(list(lengths.values())[i:])  # to the left of this and what follows
        left = max(left, min(middle, room))
        color = COLORS.get(part, "white")
        look = {"markersize": 9, "color": color, "markeredgecolor": style.LINE}
        ax.plot(left, high + 0.9 * row, "s", **look)
        write(ax, left + 0.7 * row, high + 0.9 * row, text, ha="left")
        left += lengths[part]


def draw_step(blocks: int = 8) -> Picture:
    """Draw one training step from left to right: what each of three workers does."""
    fig, ax = style.new_figure(9, 2.2)
    forward, backward = float(blocks), 3.0 * blocks
    wait, end = 0.3 * blocks, 3.7 * blocks  # until the last gradients have arrived
    fill_cell(ax, (0, 2.1), (end, 0.8), style.MUTED)
    write(ax, end / 2, 2.5, "read and decode the images of the next batch", color="black")
    spans = {"forward pass": (0.0, forward), "backward pass": (forward, backward)}
    for name, (left, right) in spans.items():
        for x in np.arange(left, right - 1e-9, (right - left) / blocks):
            fill_cell(ax, (x, 1.1), ((right - left) / blocks, 0.8), PASSES[name])
        ground = {"facecolor": PASSES[name], "edgecolor": "none", "pad": 2}
        write(ax, (left + right) / 2, 1.5, name, color="black", bbox=ground)
    fill_cell(ax, (backward + wait, 1.1), (end - backward - wait, 0.8), PASSES["AdamW"])
    write(ax, (backward + wait + end) / 2, 1.5, "AdamW", color="white")
    bucket = (backward - forward) / 4  # the time after which a quarter of the gradients is there
    for i in range(4):
        width = 0.62 * bucket if i < 3 else wait
        fill_cell(ax, (forward + (i + 1) * bucket, 0.1), (width, 0.8), style.MUTED)
    write(ax, forward + bucket - 0.3, 0.5, "average the gradients", ha="right")
    ax.set(ylim=(0, 3), xlim=(0, end))
    style.style_axes(ax, "A step is as slow as the slowest of three workers", "time")
    ax.set_yticks([2.5, 1.5, 0.5], ["data loader", "processor", "network"])
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return Picture(
        fig,
        "One training step: the data loader, the processor and the network work side by side.",
        "Three rows of boxes along time. The data loader prepares the next batch all the while; "
        "the processor runs the forward pass, a backward pass twice as long, and AdamW; the "
        "network averages gradients while the backward pass still runs.",
    )


def draw_measured_step(seconds: Mapping[str, float], at_peak: float) -> Picture:
    """Draw how long the parts of a training step took, and what its products need at the peak.

    seconds: {"forward pass", "backward pass", "AdamW"};  at_peak: seconds
    """
    fig, ax = style.new_figure(9, 2.1)
    total, start = sum(seconds.values()), 0.0
    beside = {"va": "center", "fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
    for name, length in seconds.items():
        ax.barh(["measured"], length, left=start, color=PASSES[name], edgecolor="white")
        text = f"{name}, {1000 * length:.0f} ms"
        start += length
        if length > 0.02 * total + CHARACTER / 6 * len(f"{name}, 000 ms") * total:
            style.write_on(ax, start - length / 2, 0, text, PASSES[name])
        elif name == "AdamW":  # the last part, which has room beside it
            ax.text(start + 0.01 * total, 0, text, **beside)
    ax.barh(["at the peak"], at_peak, color="white", edgecolor=style.TEXT, hatch="//")
    ax.text(at_peak + 0.01 * total, 1, f"its matrix products, {1000 * at_peak:.0f} ms", **beside)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.18 * total)
    ax.xaxis.set_major_formatter(lambda value, _: f"{1000 * value:g}")
    title = f"This step reached {at_peak / total:.0%} of the peak"
    style.style_axes(ax, title, "milliseconds")
    told = ", ".join(f"{name} {1000 * length:.0f}" for name, length in seconds.items())
    return Picture(
        fig,
        "The time of a training step by its parts, and of its products at the processor's peak.",
        f"Milliseconds of a step as a bar: {told}. A bar below it, the matrix products at the "
        f"peak of this processor, is {1000 * at_peak:.0f} long.",
    )


def draw_cost_shares(rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw the shares of a block's arithmetic, a bar for each size of the image.

    rows: {name of the bar: {part of a block: multiply-adds}}
    """
    shares = {
        name: {part: 100 * amount / sum(parts.values()) for part, amount in parts.items()}
        for name, parts in rows.items()
    }
    fig, ax = style.new_figure(9, 1.5 + 0.5 * len(rows))
    stack_bars(ax, shares, 0)
    style.style_axes(ax, None, "share of a block's multiply-adds, %").set_xlim(0, 100)
    title_above_legend(ax, "Scores and mixing cost little, unless the image is large")
    told = ", ".join(f"{row['scores, mixing']:.0f}% in {name}" for name, row in shares.items())
    return Picture(
        fig,
        "The shares of three kinds of arithmetic in a block, for several sizes of the image.",
        f"A bar for each size of the image. Scores and mixing have {told}.",
    )


def stack_bars(ax: Axes, rows: Mapping[str, Mapping[str, float]], digits: int) -> None:
    """Draw a bar for each row, cut into its parts, each with its number where there is room.

    rows: {name of the row: {part: amount}};  digits: behind the point
    """
    left, names = dict.fromkeys(rows, 0.0), list(rows)
    longest = max(sum(parts.values()) for parts in rows.values())
    for part in next(iter(rows.values())):
        lengths = [rows[name][part] for name in names]
        bars = {"color": COLORS[part], "edgecolor": "white", "label": part}
        ax.barh(names, lengths, 0.72, list(left.values()), **bars)
        for y, (name, length) in enumerate(zip(names, lengths, strict=True)):
            text = f"{length:,.{digits}f}"
            if 6.5 * length / longest > CHARACTER * len(text) + 0.1:
                style.write_on(ax, left[name] + length / 2, y, text, COLORS[part])
            left[name] += length
    ax.invert_yaxis()
    place = {"loc": "lower left", "bbox_to_anchor": (-0.01, 0.98), "ncols": 4, "frameon": False}
    ax.legend(fontsize=style.TEXT_SIZE, **place)


def title_above_legend(ax: Axes, title: str) -> None:
    """Write a title above the legend of `stack_bars`."""
    ax.set_title(title, loc="left", fontsize=style.TEXT_SIZE + 1, color=style.TEXT, pad=32)


def stack_sums(
    ax: Axes, rows: Mapping[str, Mapping[str, float]], digits: int, title: str, unit: str
) -> str:
    """Draw the bars of `stack_bars` with a sum at each end, and return the sums as a text."""
    stack_bars(ax, rows, digits)
    sums = {name: sum(parts.values()) for name, parts in rows.items()}
    for y, total in enumerate(sums.values()):
        text = {"va": "center", "fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
        ax.text(total, y, f" {total:,.{digits}f} in all", **text)
    style.style_axes(ax, None, unit).set_xlim(0, 1.18 * max(sums.values()))
    title_above_legend(ax, title)
    return "; ".join(f"{name}: {total:.{digits}f}" for name, total in sums.items())


def draw_memory(need: Mapping[str, float], batch: int) -> Picture:
    """Draw what is in memory during a training step, as areas on top of each other.

    need : {"weights", "gradients", "optimizer", "activations"} in GiB
    batch: images
    """
    fig, ax = style.new_figure(9, 3.4)
    forward, backward, last = 1.0, 3.0, 3.4
    x = [0, forward, backward, last]
    heights = {
        "weights": [need["weights"]] * 4,
        "optimizer": [need["optimizer"]] * 4,
        "gradients": [0, 0, need["gradients"], need["gradients"]],
        "activations": [0, need["activations"], 0, 0],
    }
    below = np.zeros(4)
    places = {"weights": 1.7, "optimizer": 1.7, "gradients": 3.2, "activations": 1.05}
    for name, height in heights.items():
        top = below + height
        ax.fill_between(x, below, top, facecolor=COLORS[name], edgecolor="white", linewidth=1)
        share = 0.3 if name == "activations" else 0.5
        y = float(np.interp(places[name], x, below + share * np.array(height)))
        text = name if name == "gradients" else f"{name}, {need[name]:,.1f} GiB"
        if need[name] > 0.07 * (need["weights"] + need["optimizer"] + need["activations"]):
            style.write_on(ax, places[name], y, text, COLORS[name])
        below = top
    peak = float(below.max())
    if peak == below[1]:
        title = "Memory peaks between the two passes"
        write(ax, forward + 0.08, 1.02 * peak, f"peak: {peak:,.1f} GiB", ha="left")
    else:  # few activations, which is why the gradients at the end need more
        title = "Memory peaks after the backward pass"
        write(ax, backward - 0.08, 1.02 * peak, f"peak: {peak:,.1f} GiB", ha="right")
    ends = {"forward pass": 0.5, "backward pass": 2.0, "AdamW": 3.2}
    style.style_axes(ax, title, None, "GiB")
    ax.set(ylim=(0, 1.1 * peak), xlim=(0, last))
    ax.set_xticks(list(ends.values()), list(ends))
    for end in (forward, backward):
        ax.axvline(end, color=style.TEXT, linestyle=":", linewidth=1)
    ax.tick_params(axis="x", length=0)
    return Picture(
        fig,
        "What is in memory during a training step: weights, optimizer, gradients, activations.",
        f"Areas over time for a batch of {batch}. Activations rise to {need['activations']:.1f} "
        f"GiB in the forward pass and fall to 0 in the backward pass; the peak is {peak:.1f} GiB. "
        f"Weights and optimizer, {need['weights'] + need['optimizer']:.1f} GiB together, stay.",
    )


def draw_checkpointing(blocks: int, inputs: float, inside: float) -> Picture:
    """Draw the activations in memory during a step, kept and with blocks that are computed again.

    blocks: of the model;  inputs, inside: GiB of a block's input, and of all that it keeps
    """
    fig, axes = style.new_figure(9, 2.9, ncols=2, sharey=True, width_ratios=(3, 4))
    style.title_figure(fig, "Checkpointing keeps the inputs, and pays with a forward pass")
    kept = [(0.0, 0.0), (blocks, blocks * inside), (3 * blocks, 0.0)]
    again = [(0.0, 0.0), (float(blocks), blocks * inputs)]
    for block in range(blocks, 0, -1):  # backwards: compute one again, then go back through it
        start = blocks + 3 * (blocks - block)
        again += [(start + 1, block * inputs + inside), (start + 3, (block - 1) * inputs)]
    peaks = []
    for ax, points, title in zip(axes, (kept, again), ("keep all", "recompute"), strict=True):
        x, y = zip(*points, strict=True)
        ax.fill_between(x, y, facecolor=COLORS["activations"], linewidth=0)
        peaks.append(max(y))
        style.style_axes(ax, f"{title}: {max(y):.1f} GiB", "time", None)
        ax.set(xlim=(0, x[-1]), xticks=[])
        ax.axvline(blocks, color=style.TEXT, linestyle=":", linewidth=1)
        name = {"fontsize": style.TEXT_SIZE - 1, "color": style.TEXT, "va": "top"}
        ax.text(1.1 * blocks, 1.02 * peaks[0], "end of the forward pass", **name)
    axes[0].set_ylabel("activations, GiB", fontsize=style.TEXT_SIZE, color=style.TEXT)
    axes[0].set_ylim(0, 1.08 * peaks[0])
    return Picture(
        fig,
        "The activations in memory during a step, all kept, and with checkpointing.",
        f"Left: they rise to {peaks[0]:.1f} GiB and fall to 0. Right: they stay below "
        f"{peaks[1]:.1f} GiB, with a tooth for each of {blocks} blocks in a longer backward pass.",
    )


def draw_formats(number: float) -> Picture:
    """Draw the bits of a number in three formats, and the number that each of them holds."""
    (bits,) = struct.unpack(">I", struct.pack(">f", number))
    fig, ax = new_canvas(6.2, "Shorter numbers have the same range, and fewer digits")
    left, width, told = 2.6, 0.46, []
    for text, first, length in (("sign", 0, 1), ("exponent", 1, 8), ("fraction", 9, 23)):
        write(ax, left + width * (first + length / 2), 1.6, text)
    for row, (name, digits) in enumerate(FORMATS.items()):
        top, kept = 2.1 + 1.3 * row, 9 + digits
        value = shorten(bits, digits)
        pattern = f"{bits_of(value):032b}"[:kept]
        for i, bit in enumerate(pattern):
            ground = "white" if i > 8 else COLORS["optimizer"] if i else style.LINE
            fill_cell(ax, (left + i * width, top), (width, 0.9), ground)
            write(ax, left + (i + 0.5) * width, top + 0.45, bit, color="black")
        frame(ax, (left, top, kept * width, 0.9), style.TEXT, 1)
        write(ax, left - 0.2, top + 0.45, name, ha="right")
        write(ax, left + 33 * width, top + 0.45, f"{value:.6g}", ha="left")
        told.append(f"{name} {value:.6g}")
    return Picture(
        fig,
        "The bits of a number in three formats: sign, exponent, fraction.",
        f"Rows of zeros and ones, with 23, 10 and 7 bits of the fraction. {number:.6g} becomes: "
        f"{', '.join(told)}.",
    )


def shorten(bits: int, digits: int) -> float:
    """Round a float32, given as bits, to fewer bits of the fraction, halves to even.

    >>> shorten(bits_of(3.14159274), 7), shorten(bits_of(-1.001), 7)
    (3.140625, -1.0)
    """
    drop = 23 - digits
    if drop:
        half = (1 << (drop - 1)) - 1 + (bits >> drop & 1)
        bits = (bits + half) >> drop << drop
    (value,) = struct.unpack(">f", struct.pack(">I", bits))
    return float(value)


def bits_of(number: float) -> int:
    """Return the 32 bits of a number in float32, as a whole number."""
    (bits,) = struct.unpack(">I", struct.pack(">f", number))
    return int(bits)


def draw_budget(rows: Mapping[str, tuple[float, float, str]]) -> Picture:
    """Draw how much of what there is a training needs, a bar for each resource.

    rows: {resource: (what is needed, what there is, unit)}
    """
    fig, ax = style.new_figure(9, 1.3 + 0.5 * len(rows))
    percent = {name: 100 * need / there for name, (need, there, _) in rows.items()}
    limit = 1.75 * min(100.0, max(percent.values()))  # of the axis; longer bars end in an arrow
    told = []
    for y, (name, (need, there, unit)) in enumerate(rows.items()):
        scarce = percent[name] > 100
        length = min(percent[name], 0.72 * limit)
        look: Any = {"color": OTHER if scarce else style.LINE, "edgecolor": "white"}
        ax.barh(name, length, 0.7, hatch="//" if scarce else "", **look)
        cut = " (cut off here)" if percent[name] > length else ""
        text = f"{need:,.0f} of {there:,.0f} {unit}{cut}"
        beside = {"va": "center", "fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
        ax.text(length + 0.01 * limit, y, text, **beside)
        told.append(f"{name} {percent[name]:.0f}%")
    ax.axvline(100, color=style.TEXT, linewidth=1, linestyle=":")
    ax.set_xlim(0, limit)
    ax.set_xticks([0, 25, 50, 75, 100])
    ax.invert_yaxis()
    short_of = [name for name, share in percent.items() if share > 100]
    title = f"Scarce: {', '.join(short_of)}" if short_of else "Nothing is scarce"
    style.style_axes(ax, title, "share of what there is, %")
    return Picture(
        fig,
        "How much of the memory, the processors, the storage and the network a training needs.",
        f"A bar for each, as a share of what there is: {', '.join(told)}.",
    )
