"""Notebook 09: two models on eight images, what is copied and trained, LoRA, accuracies."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, write
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_box, draw_image

GRAYS = colormaps["gray"].resampled(48)  # few, so that smooth pictures stay small files
Look = dict[str, Any]
Interval = tuple[float, float, float]  # low, mean, high
FROZEN: Look = {"facecolor": style.MUTED, "edgecolor": style.LINE, "linewidth": 1}
TRAINED: Look = {"facecolor": style.SERIES[0], "edgecolor": style.TEXT, "linewidth": 1}
DROPPED: Look = {"facecolor": "white", "edgecolor": style.LINE, "linestyle": "--", "linewidth": 1.5}
NEW: Look = {"facecolor": "white", "edgecolor": style.SERIES[2], "hatch": "////", "linewidth": 1.5}
WAYS = {  # color and mark of each way of training
    "from scratch": (style.TEXT, "s"),
    "probe": (style.SERIES[1], "v"),
    "LoRA": (style.SERIES[2], "^"),
    "full": (style.SERIES[0], "o"),
}


def draw_question(data: Any, answers: Mapping[str, Any], names: Sequence[str]) -> Picture:
    """Draw the first eight validation images of some classes, and who classifies them correctly.

    data   : a data set;  names: of its classes that are drawn
    answers: {way: (n,) whether each validation image of these classes is classified correctly},
             of which training from scratch and full fine-tuning are drawn
    """
    split = data.filter_classes(*names).validation
    fig, axes = style.new_figure(9, 1.95, ncols=8)
    rows = {"from scratch": answers["from scratch"][:8], "fine-tuned": answers["full"][:8]}
    for i, ax in enumerate(axes):
        draw_image(1 - split.images[i], ax, f"a {names[split.labels[i]]}")
        ax.images[0].set(interpolation="bicubic", cmap=GRAYS)
        draw_box(ax, (0, 0, 1, 1), style.LINE, transform=ax.transAxes, clip_on=False)
        for row, right in enumerate(rows.values()):
            color = style.SERIES[0] if right[i] else style.SERIES[2]
            look = {"ha": "center", "va": "center", "color": color, "transform": ax.transAxes}
            size = style.TEXT_SIZE + 3
            ax.text(0.5, -0.2 - 0.27 * row, "✓" if right[i] else "×", fontsize=size, **look)
    for row, name in enumerate(rows):
        where = {"ha": "right", "va": "center", "transform": axes[0].transAxes}
        place = -0.2 - 0.27 * row
        axes[0].text(-0.1, place, name, fontsize=style.TEXT_SIZE, color=style.TEXT, **where)
    counts = [int(sum(right)) for right in rows.values()]
    style.title_figure(fig, f"{counts[0]} and {counts[1]} of 8 right, from the same 100 labels")
    return Picture(
        fig,
        "Eight digits among fragments, and whether each of two models classifies them correctly.",
        f"Eight images with a digit, 7, 8 or 9, among fragments of digits. The model from scratch "
        f"classifies {counts[0]} of them correctly, the fine-tuned one {counts[1]}.",
    )


def draw_transfer(model: Any, num_classes: int, rank: int) -> Picture:
    """Draw a pretrained model and those made from it: what each copies, adds and trains.

    model: a ViT;  rank: of LoRA, in the `qkv` layer of each block
    """
    fig, ax = style.new_figure(9, 5.2)
    depth = len(model.blocks)
    embeddings = "cls and positions" if model.config.class_token else "positions"
    parts = ["patch embedding", embeddings, *(f"block {i + 1}" for i in range(depth))]
    parts += ["final norm", "head"]
    top = len(parts)
    title = "Every way needs a new head; the rest is copied or new"
    style.hide_axes(ax, title).set(xlim=(0, 18), ylim=(-2.7, top + 1))
    copied = dict.fromkeys(parts, FROZEN)
    draw_stack(ax, 0.2, 3.6, copied | {"head": DROPPED}, [*parts[:-1], "old head, dropped"])
    write(ax, 2.0, top + 0.45, "pretrained", weight="bold")
    write(ax, 5.1, -0.6, "trained parameters:", ha="right")
    counts = count_trained(model, num_classes, rank)
    for i, (way, count) in enumerate(counts.items()):
        left = 5.6 + 3.15 * i
        body = (FROZEN, FROZEN, TRAINED, NEW)[i]
        draw_stack(ax, left, 1.5 if i == 1 else 2.2, dict.fromkeys(parts, body) | {"head": NEW})
        write(ax, left + 1.1, top + 0.45, way, weight="bold")
        write(ax, left + 1.1, -0.6, f"{count:,}")
        for block in range(2, 2 + depth) if i == 1 else ():
            draw_thin(ax, left + 1.56, block, "A" if block == 1 + depth else "")
            draw_thin(ax, left + 1.91, block, "B" if block == 1 + depth else "")
    arrow(ax, (4.0, 3.0), (5.4, 3.0), linewidth=2, shrinkA=2, shrinkB=2)
    write(ax, 4.68, 4.6, "copy\nall but\nthe head")
    key = ((0.2, FROZEN, "copied, frozen"), (6.3, TRAINED, "copied, trained"))
    for x, look, name in (*key, (12.2, NEW, "new, trained")):
        ax.add_patch(Rectangle((x, -2.45), 0.9, 0.65, **look))
        write(ax, x + 1.15, -2.12, name, ha="left")
    listed = ", ".join(f"{way} {count:,}" for way, count in counts.items())
    return Picture(
        fig,
        "A pretrained model as a stack of parts, and four models for a new task.",
        "A pretrained model as a stack of parts, and four models for a new task. A probe "
        "trains only a new head, LoRA also two thin matrices A and B in each block, full "
        f"fine-tuning all. From scratch, all is new. Trained parameters: {listed}.",
    )


def count_trained(model: Any, num_classes: int, rank: int) -> dict[str, int]:
    """Count the parameters that each way trains, with a new head for so many classes."""
    head = num_classes * (model.head.in_features + 1)
    old = sum(p.numel() for p in model.head.parameters())
    whole = sum(p.numel() for p in model.parameters()) - old + head
    thin = sum(rank * sum(block.attn.qkv.weight.shape) for block in model.blocks)
    return {"linear probe": head, "LoRA": head + thin, "full": whole, "from scratch": whole}


def draw_thin(ax: Axes, left: float, bottom: float, name: str) -> None:
    """Draw one of LoRA's two matrices beside a block, with its name above if it has one."""
    look = NEW | {"hatch": "//////"}
    ax.add_patch(Rectangle((left, bottom + 0.05), 0.32, 0.7, **look))
    write(ax, left + 0.16, bottom + 1.12, name)


def draw_stack(
    ax: Axes, left: float, width: float, looks: Mapping[str, Look], names: Sequence[str] = ()
) -> None:
    """Draw the parts of a model above each other, the first at the bottom."""
    for y, look in enumerate(looks.values()):
        ax.add_patch(Rectangle((left, y), width, 0.8, **look))
        if names:
            write(ax, left + width / 2, y + 0.4, names[y])


def draw_lora(m: int, n: int, r: int) -> Picture:
    """Draw the frozen matrix W, (m, n), and, to the same scale, B (m, r), A (r, n) and B A."""
    fig, ax = style.new_figure(9, 3.9)
    style.title_figure(fig, f"{r * (m + n):,} numbers are trained beside {m * n:,} frozen ones")
    left, gap = 1.9 * n, 0.1 * n  # of B, and between a factor and the product
    product = left + r + gap
    style.hide_axes(ax).set(xlim=(-0.9 * n, 5.6 * n), ylim=(-0.28 * m, 1.16 * m), aspect="equal")
    ax.add_patch(Rectangle((0, 0), n, m, **FROZEN))
    ax.add_patch(Rectangle((left, 0), r, m, **NEW))
    ax.add_patch(Rectangle((product, m + gap), n, r, **NEW))
    ax.add_patch(Rectangle((product, 0), n, m, **DROPPED))
    write(ax, n / 2, m / 2, f"W\n{m} x {n}\nfrozen")
    write(ax, product + n / 2, m / 2, f"B A\nrank at\nmost {r}")
    write(ax, left + r / 2, -0.14 * m, f"B, {m} x {r}\nstarts at zero")
    write(ax, product + n + gap, m + gap + r / 2, f"A, {r} x {n}, starts random", ha="left")
    write(ax, -0.42 * n, m / 2, "y  =  (")
    write(ax, 1.42 * n, m / 2, "+   s")
    write(ax, product + n + 0.15 * n, m / 2, ")  x  +  b", ha="left")
    return Picture(
        fig,
        "LoRA drawn to scale: a large frozen matrix plus the product of two thin ones.",
        f"A frozen matrix W of {m} x {n}, plus s times the product of a tall thin matrix B, "
        f"{m} x {r}, which starts at zero, and a flat one A, {r} x {n}, which starts random. The "
        "product, with a dashed frame, has the shape of W.",
    )


def draw_frames(panels: Mapping[str, Tensor]) -> Picture:
    """Draw a photo, and what is left of it after each preprocessing.

    panels: {title: (C, H, W)}, the photo first
    """
    widths = [panel.shape[2] / panel.shape[1] for panel in panels.values()]
    fig, axes = style.new_figure(9, 3.1, ncols=len(panels), width_ratios=widths)
    for ax, (name, panel) in zip(axes, panels.items(), strict=True):
        draw_image(panel, ax, name)
    return Picture(
        fig,
        "A photo, and what the preprocessing of several libraries leaves of it.",
        "A photo of a cat's face, larger than a square. "
        "Cropped, it loses its left and right sides; squeezed, the whole face is narrow.",
    )


def draw_ways(
    ways: Mapping[str, Mapping[int, Interval]],
    floor: tuple[float, str],
    longer: tuple[int, Interval, str] | None = None,
) -> Picture:
    """Draw test accuracies against the number of labels, with 95% intervals, names at the lines.

    ways  : {way: {labels: (low, mean, high)}}, a way by its name in `WAYS`
    floor : the accuracy of a constant answer, and its name
    longer: labels and interval of other runs from scratch, drawn hollow, and their name
    """
    fig, ax = style.new_figure(9, 4.2)
    sizes = list(next(iter(ways.values())))
    for i, (way, points) in enumerate(ways.items()):
        color, marker = WAYS[way]
        places = [labels * 1.035 ** (i - (len(ways) - 1) / 2) for labels in points]
        means = [mean for _, mean, _ in points.values()]
        ax.plot(places, means, color=color, marker=marker, markersize=8, linewidth=1.5)
        for place, (low, _, high) in zip(places, points.values(), strict=True):
            ax.plot([place, place], [low, high], color=color, linewidth=2)
        write(ax, 1.12 * sizes[-1], means[-1], way, ha="left", color=color)
    if longer:
        labels, (low, mean, high), name = longer
        color, marker = WAYS["from scratch"]
        place = 0.8 * labels  # beside the lines' ends
        ax.plot([place, place], [low, high], color=color, linewidth=2)
        ax.plot(place, mean, marker, markersize=8, markerfacecolor="white", color=color)
        level = ways["from scratch"][labels][1] - 0.02
        write(ax, 1.12 * sizes[-1], level, f"(□ {name})", ha="left", color=color)
    level, name = floor
    ax.axhline(level, color=style.LINE, linestyle=":")
    write(ax, sizes[0], level + 0.008, name, ha="left")
    ax.set_xscale("log")
    ax.set_xticks(sizes, [f"{labels:,}" for labels in sizes])
    ax.minorticks_off()
    ax.set_xlim(0.85 * sizes[0], 2.1 * sizes[-1])
    title = title_of(ways)
    style.style_axes(ax, title, "labeled images", "test accuracy")
    ends = "; ".join(
        f"{way} " + ", ".join(f"{mean:.2f}" for _, mean, _ in points.values())
        for way, points in ways.items()
    )
    return Picture(
        fig,
        "Test accuracy of four ways of training against the number of labeled images.",
        f"Lines with intervals at {', '.join(f'{labels:,}' for labels in sizes)} labels: {ends}.",
    )


def title_of(ways: Mapping[str, Mapping[int, Interval]]) -> str:
    """Say how many labels training from scratch needs for what full fine-tuning has with few."""
    few, *_, many = next(iter(ways.values()))
    full, scratch = ways["full"][few][1], ways["from scratch"][many][1]
    if abs(full - scratch) < 0.005:
        good = f"as good as from scratch with {many:,} in as many steps"
        return f"Fine-tuned with {few} labels, {good}"
    return f"Full fine-tuning gains {100 * (full - ways['from scratch'][few][1]):.0f} points"
