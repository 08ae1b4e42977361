"""Notebook 12: what changed since 2020, rotated pairs, poolings, and the parts of photos."""

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.ablation import draw_interval, signed
from vit_helpers.plots.attention import frame_patch, resize_photo
from vit_helpers.plots.canvas import arrow, fill_cell, frame, new_canvas, tint, write
from vit_helpers.plots.encoder import ATTENTION, MLP
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import color_bar, draw_image, draw_over

NEW = style.SERIES[2]  # the color of what is new since 2020
PLACES = ("registers", "rotary positions", "LayerScale", "pooling")


def draw_question(photo: Tensor, tokens: Tensor, grid: tuple[int, int]) -> Picture:
    """Draw a photo, and the first three principal components of a model's tokens as a color.

    photo: (C, H, W), from 0 to 1;  tokens: (N, components), the first ones first
    grid : rows and columns of patches
    """
    fig, axes = style.new_figure(9, 3.2, ncols=2)
    style.title_figure(fig, "A model of 22 million weights tells the parts of a photo apart")
    draw_image(resize_photo(photo), axes[0], "what you see")
    draw_image(as_colors(tokens, grid), axes[1], "its tokens, similar ones in similar colors")
    return Picture(
        fig,
        "A photo of a pagoda, and the same photo with a color for each patch's token.",
        f"A photo of a pagoda, and {grid[0]} x {grid[1]} patches in colors made of three "
        "principal components of their tokens: sky, pagoda and trees have a color each.",
    )


def as_colors(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """The first three components of tokens as red, green and blue: (N, m) -> (3, 30 H, 30 W)"""
    parts = tokens[:, :3]
    low, high = (parts.quantile(q, dim=0) for q in (0.02, 0.98))
    parts = ((parts - low) / (high - low)).clamp(0, 1)
    return F.interpolate(parts.T.unflatten(1, grid)[None], scale_factor=14, mode="nearest")[0]


def draw_parts(photos: Mapping[str, tuple[Tensor, Tensor]], grid: tuple[int, int]) -> Picture:
    """Draw photos, and below each the first three components of its tokens as a color.

    photos: {name: (photo (C, H, W), tokens (N, components))}
    """
    fig, _ = style.new_figure(9, 4.5, nrows=2, ncols=len(photos))
    columns = zip(fig.axes[: len(photos)], fig.axes[len(photos) :], strict=True)
    style.title_figure(fig, "In each photo, patches of one part have similar colors")
    for (top, bottom), (photo, tokens) in zip(columns, photos.values(), strict=True):
        draw_image(resize_photo(photo), top)
        draw_image(as_colors(tokens, grid), bottom)
    names = ", ".join(photos)
    return Picture(
        fig,
        "Photos, and below them a color for each patch, made of components of its token.",
        f"Photos ({names}), and below each its patches in colors that three principal components "
        "of their tokens give: the parts of a photo have different colors.",
    )


def draw_changes(counts: Mapping[str, int] | None = None) -> Picture:
    """Draw the ViT of 2020 in gray, and in color the four places where something changed.

    counts: {place or "all the rest": parameters} that are written at the places
    """
    title = (
        "Four places where the ViT of 2020 was changed"
        if counts is None
        else "Almost all weights are in layers of 2020"
    )
    fig, ax = new_canvas(7.8 if counts is None else 8.6, title)
    draw_embedding(ax)
    draw_one_block(ax)
    for x, text in ((17.3, "norm"), (19.7, "pooling")):
        new = text in PLACES
        box(ax, (x, 3.5, 1.9, 1.3), text, NEW if new else style.LINE)
    for start, end in ((1.9, 2.7), (4.8, 5.7), (16.4, 17.3), (19.2, 19.7), (21.6, 21.95)):
        arrow(ax, (start, 4.15), (end, 4.15))
    labels = {
        "LayerScale": (14.2, 7.2, "1  LayerScale"),
        "registers": (4.9, 7.2, "2  registers"),
        "rotary positions": (9.6, 7.2, "3  rotary positions"),
        "pooling": (20.2, 7.2, "4  pooling"),
    }
    for name, (x, y, text) in labels.items():
        write(ax, x, y, text, color=NEW, weight="bold")
        if counts is not None:
            write(ax, x, y + 0.75, f"{counts[name]:,} weights", color=NEW)
    if counts is not None:
        write(ax, 11.6, 1.55, f"all the rest: {counts['all the rest']:,} weights")
    alt = "From left to right: an image, a projection, tokens with registers in color, a block "
    alt += "with rotated queries and keys and two LayerScales in color, a norm, and the pooling "
    alt += "in color."
    if counts is not None:
        alt += f" Weights: {', '.join(f'{name} {n:,}' for name, n in counts.items())}."
    return Picture(
        fig, "The Vision Transformer, with the four places in color that changed since it.", alt
    )


def box(ax: Axes, place: tuple[float, float, float, float], text: str, color: str) -> None:
    """Draw a box, left, top, width and height, with a text."""
    left, top, width, height = place
    fill_cell(ax, (left, top), (width, height), tint(color, 0.12))
    frame(ax, place, color, 1.5)
    write(ax, left + width / 2, top + height / 2, text)


def draw_embedding(ax: Axes) -> None:
    """Draw the image, the projection and the tokens."""
    box(ax, (0.2, 3.5, 1.7, 1.3), "image", style.LINE)
    box(ax, (2.7, 3.5, 2.1, 1.3), "patches,\nprojected", style.LINE)
    colors = [style.CLASS_TOKEN, *[NEW] * 3, *[style.PATCH] * 5]
    for row, color in enumerate(colors):
        fill_cell(ax, (5.8, 1.9 + 0.5 * row), (0.7, 0.5), color)
    frame(ax, (5.8, 2.4, 0.7, 1.5), style.TEXT, 1.5)
    ax.plot([6.55, 6.95, 6.95, 6.2], [3.3, 3.3, 6.4, 6.8], color=NEW, linewidth=1)


def draw_one_block(ax: Axes) -> None:
    """Draw a block: the stream with its two branches."""
    frame(ax, (7.4, 2.2, 9, 3.9), style.LINE, 1)
    write(ax, 8.2, 5.7, "block", color=style.TEXT)
    ax.plot([6.6, 16.4], [2.75, 2.75], color=style.TEXT, linewidth=2.5)
    for left, name, color in ((7.7, "attention", ATTENTION), (12.1, "MLP", MLP)):
        box(ax, (left + 0.15, 3.5, 2.25, 1.3), name, color)
        box(ax, (left + 2.6, 3.5, 1.1, 1.3), "γ", NEW)
        ax.plot([left + 1.2, left + 1.2], [2.75, 3.45], color=style.TEXT, linewidth=1)
        arrow(ax, (left + 3.15, 3.5), (left + 3.15, 2.8))
        ax.plot([left + 2.4, left + 2.6], [4.15, 4.15], color=style.TEXT, linewidth=1)
        ax.plot([left + 3.15, left + 3.15], [4.8, 6.4], color=NEW, linewidth=1)
    ax.plot([10.85, 15.25], [6.4, 6.4], color=NEW, linewidth=1)
    ax.plot([13.6, 13.9], [6.4, 6.8], color=NEW, linewidth=1)
    ax.plot([8.9, 8.9], [4.85, 6.8], color=NEW, linewidth=1)
    ax.plot([20.65, 20.65], [4.85, 6.8], color=NEW, linewidth=1)


def draw_scales(moved: Mapping[str, Sequence[float]], trained: Tensor) -> Picture:
    """Draw how far new blocks move tokens, and how large a trained model's LayerScale became.

    moved  : {name: after each block, as a share of the tokens' length}
    trained: mean absolute weight, (blocks, 2), after attention and after the MLP
    """
    fig, (left, right) = style.new_figure(9, 3.3, ncols=2)
    style.title_figure(fig, "New blocks change almost nothing, and training lets them grow")
    style.style_axes(left, "At the start", "blocks", "change of tokens\n(times their length)")
    for (name, shares), line in zip(moved.items(), ("--", "-"), strict=True):
        blocks = range(1, len(shares) + 1)
        left.plot(blocks, shares, line, color=style.TEXT, linewidth=2)
        label(left, len(shares), shares[-1], name, "right", (0, 9))
    left.set(yscale="log", ylim=(1e-6, 100), xlim=(0, len(shares) + 1))
    left.set_yticks([1e-5, 1e-3, 0.1, 10], ["1e-05", "0.001", "0.1", "10"])
    left.minorticks_off()
    style.style_axes(right, "After training", "block", "mean absolute weight\nof LayerScale")
    blocks = range(1, len(trained) + 1)
    for column, (name, line, color) in enumerate(
        (("after attention", "o-", ATTENTION), ("after the MLP", "s--", MLP))
    ):
        right.plot(blocks, trained[:, column], line, color=color, label=name)
    right.legend(fontsize=style.TEXT_SIZE, frameon=False)
    right.set(yscale="log", xticks=[1, 4, 8, 12], yticks=[0.1, 1, 10], ylim=(0.08, 12))
    right.set_yticklabels(["0.1", "1", "10"])
    ends = ", ".join(f"{name}: {shares[-1]:.1e}" for name, shares in moved.items())
    first, last = trained[0].mean(), trained[-1].mean()
    return Picture(
        fig,
        "How far new blocks move the tokens, with and without LayerScale, and its trained weights.",
        f"Left: the change of the tokens against the number of new blocks ({ends} at the end). "
        f"Right: the mean absolute trained weight grows from {first:.1f} in the first block to "
        f"{last:.1f} in the last.",
    )


def label(ax: Axes, x: float, y: float, text: str, ha: str, offset: tuple[float, float]) -> None:
    """Write the name of a line beside one of its points."""
    look = {"ha": ha, "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    ax.annotate(text, (x, y), offset, textcoords="offset points", **look)


def draw_registers(registers: int, patches: int = 9) -> Picture:
    """Draw which tokens attention mixes, and which of them an output reads."""
    fig, ax = new_canvas(6.6, "Registers take part in attention, and no output reads them")
    names = ["class token", *["register"] * registers, *["patch"] * patches]
    colors = {"class token": style.CLASS_TOKEN, "register": NEW, "patch": style.PATCH}
    left = 4.4
    rows = {2.2: "enter the blocks", 4.9: "leave them"}
    for top, text in rows.items():
        write(ax, left - 0.3, top + 0.5, text, ha="right")
        for number, name in enumerate(names):
            used = name != "register" or top < 3
            ground = colors[name] if used else "white"
            fill_cell(ax, (left + 1.2 * number, top), (1, 1), ground)
            frame(ax, (left + 1.2 * number, top, 1, 1), colors[name], 1.5)
            if not used:
                write(ax, left + 1.2 * number + 0.5, top + 0.5, "×")
    width = 1.2 * len(names) - 0.2
    box(ax, (left, 3.5, width, 0.9), "attention: every token with every token", style.LINE)
    for first, count, name in ((0, 1, "class\ntoken"), (1, registers, "registers"),
                               (1 + registers, patches, "patches")):  # fmt: skip
        x = left + 1.2 * (first + count / 2) - 0.1
        write(ax, x, 1.55, name.replace("\n", " ") if count > 1 else "class")
    return Picture(
        fig,
        "Class token, registers and patches enter the blocks, and registers are dropped at last.",
        f"A row of a class token, {registers} registers and {patches} patches enters the blocks, "
        "where attention mixes all of them. Of the row that leaves them, the registers are "
        "crossed out.",
    )


def draw_turning(query: Tensor, angles: Tensor, scores: Tensor) -> Picture:
    """Draw a query that is turned at each position, and its scores with keys that are turned, too.

    query: (2,);  angles: of the positions;  scores: (positions, positions), query by key
    """
    fig, (left, right) = style.new_figure(9, 3.6, ncols=2)
    style.title_figure(fig, "Scores along a diagonal are equal: only differences count")
    style.style_axes(left, "the same query at each position")
    for number, angle in enumerate(angles.tolist()):
        x, y = turn(query.tolist(), angle)
        options = {"length_includes_head": True, "head_width": 0.18, "color": style.QUERY}
        left.arrow(0, 0, x, y, width=0.03, **options)
        write_small(left, 1.16 * x, 1.16 * y, str(number))
    reach = 1.35 * query.norm().item()
    left.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    left.set_axis_off()
    limit = scores.abs().max().item()
    drawn = right.imshow(scores, cmap=style.SIGNED, vmin=-1.6 * limit, vmax=1.6 * limit)
    style.style_axes(right, "scores", "position of the key", "position of the query")
    ticks = range(len(scores))
    right.set(xticks=ticks, yticks=ticks)
    for row, of_row in enumerate(scores.tolist()):
        for column, score in enumerate(of_row):
            ink = style.ink_on(drawn.to_rgba(score))
            write_small(right, column, row, f"{score:.1f}", ink)
    return Picture(
        fig,
        "A query turned by an angle for each position, and the table of its scores with keys.",
        f"{len(scores)} arrows, each turned further than the one before, and a table of "
        f"{len(scores)} by {len(scores)} scores that are equal along every diagonal.",
    )


def turn(pair: Sequence[float], angle: float) -> tuple[float, float]:
    """Turn a point around 0, counterclockwise."""
    c, s = torch.tensor(angle).cos().item(), torch.tensor(angle).sin().item()
    return pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c


def write_small(ax: Axes, x: float, y: float, text: str, color: str = style.TEXT) -> None:
    """Write a text around a point."""
    look = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE - 1, "color": color}
    ax.text(x, y, text, **look)


def draw_score_maps(maps: Mapping[tuple[int, int], Tensor]) -> Picture:
    """Draw the scores of the same query at some places of a grid with the same key everywhere.

    maps: {(row, column) of the query: (rows, columns)}
    """
    fig, _ = style.new_figure(9, 3.3, ncols=len(maps))
    axes = fig.axes
    style.title_figure(fig, "The pattern of scores moves along with the query's place")
    heats = torch.stack(list(maps.values()))
    low, high = heats.min().item(), heats.max().item()
    colors = {"cmap": style.VALUES, "vmin": low, "vmax": high}
    if low < 0:  # zero in the middle
        colors = {"cmap": style.SIGNED, "vmin": -max(-low, high), "vmax": max(-low, high)}
    for ax, ((row, column), heat) in zip(axes, maps.items(), strict=True):
        drawn = ax.imshow(heat, **colors)
        ax.plot(column, row, "s", ms=9, mfc="none", mec=style.TEXT, mew=2)
        style.hide_axes(ax, f"row {row}, column {column}")
    color_bar(drawn, axes, "score")
    places = ", ".join(map(str, maps))
    return Picture(
        fig,
        "Scores of one query, at several places of a grid, with the same key at every patch.",
        f"Maps of scores for a query at {places}: each has the same pattern around the query's "
        "place, highest at the query itself.",
    )


def draw_pooling(
    photo: Tensor, weights: Mapping[str, Tensor], patch: tuple[int, int], top: float = 0.004
) -> Picture:
    """Draw how much of each patch enters the summary of a photo, in several ways to pool.

    photo  : (C, H, W), from 0 to 1;  weights: {way: (rows, columns)}
    patch  : row and column whose token is the query; top: the weight that is drawn darkest
    """
    photo = resize_photo(photo)
    fig, _ = style.new_figure(9, 2.8, ncols=len(weights))
    axes = fig.axes
    style.title_figure(fig, "The mean takes all patches equally, a query chooses")
    for ax, (name, heat) in zip(axes, weights.items(), strict=True):
        _, drawn = draw_over(photo, heat, ax, name, top=top)
    frame_patch(axes[-1], patch, color=style.QUERY)
    color_bar(drawn, axes, "weight", extend="max")
    most = {name: heat.max().item() for name, heat in weights.items()}
    return Picture(
        fig,
        "A photo in gray, and over it how much each patch contributes in several ways to pool.",
        "A photo with a veil for each way to pool; largest weight of a patch: "
        f"{', '.join(f'{name} {value:.4f}' for name, value in most.items())}.",
    )


def draw_largest(largest: Mapping[str, Sequence[float]], factors: Sequence[float]) -> Picture:
    """Draw the largest attention weight of a query, against the size of the layer's weights.

    largest: {"with QK-norm" or "without QK-norm": for each factor}
    """
    fig, ax = style.new_figure(5, 3.2)
    for (name, values), line in zip(largest.items(), ("--", "-"), strict=True):
        ax.plot(factors, values, line, color=style.TEXT, linewidth=2, marker="o")
        label(ax, factors[-1], values[-1], name, "right", (0, 9))
    title = "QK-norm: no single winner for large weights"
    style.style_axes(ax, title, "how many times as large the weights are", "largest weight, mean")
    ax.set(xscale="log", ylim=(0, 1.2))
    ax.set_xticks(factors, [f"{factor:g}" for factor in factors])
    ax.minorticks_off()
    ends = ", ".join(f"{name} {values[-1]:.2f}" for name, values in largest.items())
    return Picture(
        fig,
        "The largest attention weight against the size of the weights, with and without QK-norm.",
        f"Two lines over factors from {factors[0]:g} to {factors[-1]:g}; the largest weights at "
        f"the end: {ends}.",
    )


def draw_gains(tasks: Mapping[str, pd.DataFrame]) -> Picture:
    """Draw what each change gains in accuracy on several tasks, filled if it passes Holm.

    tasks: {name: difference, low, high and holm of each change, as fractions}, the same changes
    """
    names = list(next(iter(tasks.values())).index)
    size = 9, 0.45 * len(names) + 1.5
    fig, axes = style.new_figure(*size, ncols=len(tasks), sharey=True, squeeze=False)
    passed = [f"{(e['holm'] < 0.05).sum()} of {len(e)} on {task}" for task, e in tasks.items()]
    style.title_figure(fig, f"Beyond luck: {', '.join(passed)}")
    said = []
    for ax, (task, effects) in zip(axes[0], tasks.items(), strict=True):
        ax.axvline(0, color=style.TEXT, linewidth=1)
        for y, (_, row) in enumerate(effects.iterrows()):
            draw_interval(ax, y, row, bool(row["holm"] < 0.05))
        style.style_axes(ax, task, "gain in points, with 95% interval")
        gains = effects["difference"].sort_values()
        ends = [f"{gains.index[i]} ({signed(100 * gains.iloc[i])})" for i in (0, -1)]
        said.append(f"{task}, from {ends[0]} to {ends[1]}")
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].set_ylim(len(names) - 0.4, -0.6)
    return Picture(
        fig,
        "The gain in accuracy of each change on each task, with its interval.",
        f"Marks with intervals for {len(names)} changes. Gains in points: {'; '.join(said)}.",
    )
