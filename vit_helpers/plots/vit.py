"""Notebook 05: two models and their tests, a forward pass, losses, shares, differences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import COLUMNS, arrow, frame, new_canvas, write
from vit_helpers.plots.figure import Picture
from vit_helpers.plots.images import draw_image_grid

SIDE = 3.4  # height of a stage's picture, in cells of the canvas
PICTURES = ("image", "patches")  # kinds that keep their width
TESTS = (  # of the page's two models, both of which pass all but the last
    "gives logits of the right shape",
    "has the paper's number of parameters",
    "learns a batch of images",
    "gives the same logits as the other",
    "is the Vision Transformer",
)


class Stage(NamedTuple):
    """One stage of a forward pass, and what leads to it.

    letters: its shape in letters, "T, D"; data: its numbers, whose shape is written beneath
    kind   : "image" (C, H, W); "patches" (N, C, P, P) of a square image; "tokens" (T, D), whose
             row 0 is the class token; "token" (D,), one token on end; "logits" (K,)
    before : what is written over the arrow that leads here
    layer  : the name of a layer that is drawn as a box on that arrow
    """

    name: str
    letters: str
    data: Tensor
    kind: str = "tokens"
    before: str = ""
    layer: str = ""
    width: float = SIDE


def draw_question(photo: Tensor) -> Picture:
    """Draw a photo, two models, and the tests of this page: the last one is open.

    photo: (C, H, W), from 0 to 1
    """
    fig, ax = new_canvas(9.2, "Two models pass four tests, and one of them is wrong")
    rows, cols = photo.shape[1:]
    put(ax, photo.permute(1, 2, 0), (0.2, 3.6, 5, 5 * rows / cols))
    for column, name in ((17, "model A"), (20.2, "model B")):
        box = {"boxstyle": "round,pad=0.1", "facecolor": style.MUTED, "edgecolor": "none"}
        ax.add_patch(FancyBboxPatch((column - 1.35, 1.6), 2.7, 7.1, **box))
        write(ax, column, 2.2, name, weight="bold")
    for row, test in enumerate(TESTS):
        y = 3.5 + 1.15 * row
        write(ax, 6.2, y, test, ha="left")
        last = test == TESTS[-1]
        for column in (17, 20.2):
            write(ax, column, y, "?" if last else "yes", weight="bold" if last else "normal")
    for y in (2.8, 7.52):
        ax.plot([6.2, 21.6], [y, y], color=style.LINE, linewidth=1)
    return Picture(
        fig,
        "A photo and a table of five tests of model A and model B: both pass the first four. "
        "The last asks which is the Vision Transformer, and is open.",
    )


def draw_forward(
    photo: Tensor,
    patches: Tensor,
    tokens: Sequence[Tensor],
    features: Tensor,
    logits: Tensor,
    classes: Sequence[str] = (),
) -> Picture:
    """Draw one image on its way through a ViT, from its patches to its logits.

    photo    : (C, H, W), from 0 to 1, square; patches: (N, C, P, P)
    tokens   : (T, D) before the first block and after each of them; features: (T, D), normalized
    logits   : (K,); classes: their names
    """
    L = len(tokens) - 1
    before_blocks = [
        Stage("image", "C, H, W", photo, "image"),
        Stage("patches", "N, C·P·P", patches, "patches", "cut"),
        Stage("tokens, $z_0$", "T, D", tokens[0], before="(1) project,\nclass token,\npositions"),
    ]
    after = [
        Stage(f"tokens, $z_{{{L}}}$", "T, D", tokens[L], layer=f"(2, 3) {L} blocks"),
        Stage("normalized", "T, D", features, layer="(4) norm"),
        Stage("class token", "D", features[0], "token", "row 0", width=0.6),
        Stage("logits", "K", logits, "logits", layer="head", width=4.2),
    ]
    title = (
        f"A photo becomes {len(features)} tokens, passes through {L} blocks, "
        f"and ends as {len(logits)} logits"
    )
    bars = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(classes, logits.tolist(), strict=False)
    )
    return Picture(
        draw_stages([before_blocks, after], title, 3, classes),
        "A photo, its patches, its tokens before and after the blocks, and its logits, each with "
        "its shape; the steps carry the numbers of the equations.",
        f"A photo of a pagoda and its {len(patches)} patches; tables of {len(features)} tokens "
        f"before the blocks, after block {L} and after the norm; the class token; a bar for each "
        f"logit{': ' * bool(bars)}{bars}.",
    )


def draw_stages(
    rows: Sequence[Sequence[Stage]], title: str, limit: float, classes: Sequence[str] = ()
) -> Figure:
    """Draw a forward pass in rows of stages; tables share a scale with white for 0.

    classes: the names of the logits
    """
    height = 3.1 + (SIDE + 2.9) * len(rows)
    fig, ax = new_canvas(height, title)
    end = 0.0  # the middle of a row's last stage
    for number, stages in enumerate(rows):
        top = 2.2 + (SIDE + 2.9) * number
        gaps = [gap(stage) if place or number else 0.2 for place, stage in enumerate(stages)]
        fixed = sum(stage.width for stage in stages if stage.kind in PICTURES)
        stretch = (COLUMNS - 0.3 - sum(gaps) - fixed) / (
            sum(stage.width for stage in stages) - fixed
        )
        if number:
            draw_return(ax, end, top)
        left = 0.0
        for place, (stage, space) in enumerate(zip(stages, gaps, strict=True)):
            if place or number:
                draw_step(ax, stage, left, left + space, top)
            left += space
            width = stage.width * (1 if stage.kind in PICTURES else stretch)
            draw_stage(ax, stage, (left, top, width), limit, classes)
            sizes = (stage.data.flatten(1) if stage.kind == "patches" else stage.data).shape
            shape = ", ".join(str(n) for n in sizes)
            for line, text in enumerate((stage.name, f"({stage.letters})", f"({shape})")):
                write(
                    ax,
                    left + width / 2,
                    top + SIDE + 0.6 + 0.72 * line,
                    text,
                    weight="normal" if line else "bold",
                )
            left, end = left + width, left + width / 2
    draw_key(fig, ax, height - 0.75, limit)
    return fig


def draw_return(ax: Axes, start: float, top: float) -> None:
    """Draw a line from below a row's last stage to the left end of the next row.

    top: the height at which the pictures of the next row begin
    """
    ax.plot(
        [start, start, 0.1, 0.1],
        [top - 0.55, top - 0.25, top - 0.25, top + SIDE / 2],
        color=style.TEXT,
        linewidth=1,
    )


def gap(stage: Stage) -> float:
    """Return the width in cells of what leads to a stage."""
    return 0.5 + (1.9 if stage.layer else 0.27 * max(map(len, stage.before.split("\n"))))


def draw_step(ax: Axes, stage: Stage, left: float, right: float, top: float) -> None:
    """Draw an arrow with its text, or an arrow through the box of a layer."""
    middle = top + SIDE / 2
    lines = stage.before.split("\n")
    for line, text in enumerate(lines):
        write(ax, (left + right) / 2, middle - 0.5 - 0.72 * (len(lines) - 1 - line), text)
    if not stage.layer:
        arrow(ax, (left + 0.15, middle), (right - 0.15, middle))
        return
    center = (left + right) / 2
    arrow(ax, (left + 0.1, middle), (center - 0.6, middle))
    arrow(ax, (center + 0.6, middle), (right - 0.1, middle))
    box = {"boxstyle": "round,pad=0.1", "facecolor": style.MUTED, "edgecolor": style.TEXT}
    ax.add_patch(FancyBboxPatch((center - 0.45, top + 0.1), 0.9, SIDE - 0.2, **box))
    ax.text(
        center,
        middle,
        stage.layer,
        rotation=90,
        ha="center",
        va="center",
        fontsize=style.TEXT_SIZE,
        weight="bold",
    )


def draw_stage(
    ax: Axes, stage: Stage, place: tuple[float, float, float], limit: float, classes: Sequence[str]
) -> None:
    """Draw the numbers of one stage as a picture; place: left, top, width."""
    left, top, width = place
    data = stage.data.detach()
    if stage.kind == "logits":
        draw_logits(ax, data, place, classes)
    elif stage.kind in ("image", "patches"):
        pieces = data[None] if stage.kind == "image" else data
        n = round(len(pieces) ** 0.5)
        side = SIDE / (n + 0.25 * (n - 1))
        for i, piece in enumerate(pieces):
            x, y = left + 1.25 * side * (i % n), top + 1.25 * side * (i // n)
            put(ax, piece.permute(1, 2, 0).clamp(0, 1), (x, y, side, side))
            if n > 1:
                frame(ax, (x, y, side, side), style.PATCH, 1.5)
    else:
        table = data[:, None] if stage.kind == "token" else data
        put(ax, table, (left, top, width, SIDE), limit)
        row = SIDE / len(table) if stage.kind == "tokens" else SIDE
        if stage.kind == "tokens":
            frame(ax, (left, top + row, width, SIDE - row), style.PATCH)
        frame(ax, (left, top, width, row), style.CLASS_TOKEN, 2.5)


def put(
    ax: Axes, data: Tensor, box: tuple[float, float, float, float], limit: float | None = None
) -> None:
    """Draw an image (H, W, C) or a table of numbers in a box: left, top, width, height."""
    left, top, width, height = box
    scale: dict[str, Any] = (
        {} if limit is None else {"cmap": style.SIGNED, "vmin": -limit, "vmax": limit}
    )
    if limit is None and data.shape[-1] == 1:
        data = data.expand(-1, -1, 3)
    view = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    ax.imshow(
        data,
        extent=(left, left + width, top + height, top),
        aspect="auto",
        interpolation="nearest",
        **scale,
    )
    ax.set(**view)


def draw_logits(
    ax: Axes, logits: Tensor, place: tuple[float, float, float], classes: Sequence[str]
) -> None:
    """Draw a bar for each logit from the line of zero, with its class and its number above it."""
    left, top, width = place
    step, zero = (SIDE - 0.5) / len(logits), left + width / 2
    unit = width / 2 / max(float(logits.abs().max()), 1e-9)
    for k, value in enumerate(logits.tolist()):
        y = top + step * k
        write(ax, left, y + 0.3 * step, classes[k] if classes else f"class {k}", ha="left")
        write(ax, left + width, y + 0.3 * step, f"{value:.2f}", ha="right")
        bar = (min(zero, zero + unit * value), y + 0.6 * step)
        ax.add_patch(Rectangle(bar, abs(unit * value), 0.3 * step, facecolor=style.SERIES[0]))
        ax.plot([zero, zero], [y + 0.52 * step, y + 0.98 * step], color=style.TEXT, linewidth=1)
    write(ax, zero, top + SIDE - 0.22, "0")


def draw_key(fig: Figure, ax: Axes, y: float, limit: float) -> None:
    """Draw what the frames and the colors of the tables mean."""
    for left, color, text in (
        (0.3, style.CLASS_TOKEN, "class token"),
        (4.4, style.PATCH, "patches"),
    ):
        frame(ax, (left, y - 0.3, 0.6, 0.6), color)
        write(ax, left + 0.9, y, text, ha="left")
    write(ax, 17.3, y, "numbers in tables", ha="right")
    rows = ax.get_ylim()[0]
    scale = ScalarMappable(Normalize(-limit, limit), style.SIGNED)
    where = fig.add_axes((17.7 / COLUMNS, 1 - (y + 0.1) / rows, 3.7 / COLUMNS, 0.4 / rows))
    bar = fig.colorbar(
        scale, cax=where, orientation="horizontal", extend="both", ticks=[-limit, 0, limit]
    )
    bar.ax.tick_params(labelsize=style.TEXT_SIZE - 1, colors=style.TEXT, pad=1)


def draw_crops(crops: Tensor, classes: Sequence[str]) -> Picture:
    """Draw crops in a row, sorted by their classes; crop i has class i modulo their number.

    crops: (n, C, H, W), from 0 to 1;  classes: their names, "photo, half"
    """
    K = len(classes)
    order = [i for k in range(K) for i in range(k, len(crops), K)]
    titles = [classes[i % K].replace(", ", ",\n") for i in order]
    fig = draw_image_grid([crops[i] for i in order], titles, columns=len(order))
    return Picture(
        fig,
        "Crops of two photos, with the photo and the half that each was cut from.",
        f"{len(order)} small crops in a row, with their classes above: {'; '.join(classes)}.",
    )


def draw_fits(losses: Mapping[str, Sequence[float]], num_classes: int) -> Picture:
    """Draw the losses of several models that train on one batch, on a log scale.

    losses: {name: the loss of each step}
    """
    fig, ax = style.new_figure(8, 3)
    passed = [name for name, values in losses.items() if values[-1] < 0.01]
    looks = zip(losses.items(), ("-", "--", "-."), (10, -10, 0), strict=False)
    for number, ((name, values), dashes, shift) in enumerate(looks):
        color = style.SERIES[number]
        ax.semilogy(values, dashes, color=color, linewidth=4 if number == 0 else 2)
        write_at_end(ax, values, name, color, shift)
    draw_level(ax, math.log(num_classes), f"ln {num_classes}", len(next(iter(losses.values()))))
    ax.set_ylim(0.3 * min(map(min, losses.values())), 4)
    style.style_axes(
        ax, f"Two models fit the batch: {' and '.join(passed)}", "step", "loss (log scale)"
    )
    ends = "; ".join(f"{name} ends at {values[-1]:.2g}" for name, values in losses.items())
    return Picture(fig, f"The loss of {', '.join(losses)} on one batch.", f"Loss curves: {ends}.")


def write_at_end(
    ax: Axes, values: Sequence[float], text: str, color: str, shift: float = 0
) -> None:
    """Write a text beside the end of a line, raised by some points."""
    ax.annotate(
        text,
        (len(values) - 1, values[-1]),
        (8, shift),
        textcoords="offset points",
        va="center",
        color=color,
        fontsize=style.TEXT_SIZE,
    )


def draw_level(ax: Axes, y: float, text: str, right: float) -> None:
    """Draw a thin horizontal line with its name above its right end."""
    ax.axhline(y, color=style.LINE, linewidth=1)
    ax.text(right - 1, y, text, fontsize=style.TEXT_SIZE, va="bottom", ha="right")


def draw_memorized(
    losses: Mapping[str, Sequence[float]], accuracies: Mapping[str, Sequence[float]], chance: float
) -> Picture:
    """Draw one run for each kind of labels, and the accuracies of all runs on other images.

    losses: {kind: the loss of each step};  accuracies: {kind: one for each run}
    """
    fig, (left, right) = style.new_figure(9, 3, ncols=2, width_ratios=[1.3, 1])
    fig.get_layout_engine().set(wspace=0.12)  # keeps the names of lines and rows apart
    style.title_figure(fig, "Shuffled labels are memorized, and don't help with other crops")
    looks = zip(losses.items(), ("-", "--"), (-10, 10), strict=True)
    for number, ((kind, values), dashes, shift) in enumerate(looks):
        color = style.SERIES[2 * number]
        left.semilogy(values, dashes, color=color)
        write_at_end(left, values, kind, color, shift)
        found = accuracies[kind]
        heights = [number + 0.07 * (i - (len(found) - 1) / 2) for i in range(len(found))]
        right.plot(found, heights, "os"[number], color=color, alpha=0.6)
    left.set_ylim(0.3 * min(map(min, losses.values())), 4)
    style.style_axes(left, "One run each", "step", "loss (log scale)")
    style.style_axes(right, "All runs", "accuracy on other crops")
    right.axvline(chance, color=style.LINE, linestyle="--")
    right.text(chance + 0.02, 0.5, "chance", fontsize=style.TEXT_SIZE, va="center")
    right.set(xlim=(0, 1), ylim=(1.5, -0.5))
    right.set_yticks(range(len(losses)), list(losses))
    ranges = "; ".join(f"{k} {min(v):.2f} to {max(v):.2f}" for k, v in accuracies.items())
    return Picture(
        fig,
        "The loss on one batch with true and with shuffled labels, and the accuracies on others.",
        f"Both losses fall below 0.01. Accuracy on other crops: {ranges}; chance is {chance:.2f}.",
    )


def draw_agreement(
    panels: Mapping[str, tuple[Tensor, Tensor]], theirs: str = "torchvision's logit"
) -> Picture:
    """Draw the logits of one model against those of another, a panel for each comparison.

    panels: {title: (our logits, their logits)}, of one shape
    """
    fig, axes = style.new_figure(9, 3.9, ncols=len(panels), sharex=True, sharey=True)
    style.title_figure(fig, "The mistake shows only after every parameter was changed")
    limit = 1.1 * max(float(x.abs().max()) for pair in panels.values() for x in pair)
    found = {}
    for ax, (name, (ours, others)) in zip(axes, panels.items(), strict=True):
        ax.plot([-limit, limit], [-limit, limit], color=style.LINE, linewidth=1)
        ax.plot(others.flatten(), ours.flatten(), ".", color=style.SERIES[0], markersize=3)
        found[name] = float((ours - others).abs().max())
        style.style_axes(ax, name, theirs)
        ax.text(
            0.04, 0.96, f"largest difference\n{digits_of(found[name])}", va="top",
            transform=ax.transAxes, fontsize=style.TEXT_SIZE, color=style.TEXT,
        )  # fmt: skip
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axes[0].set_ylabel("our logit", fontsize=style.TEXT_SIZE, color=style.TEXT)
    said = "; ".join(f"{name}: {value:.1g}" for name, value in found.items())
    return Picture(
        fig,
        "Our logits against torchvision's, for a new and a perturbed model; only a perturbed model "
        "with a mistake leaves the diagonal.",
        f"Panels of dots near a diagonal. Largest differences: {said}.",
    )


def digits_of(number: float) -> str:
    """A number for a picture: as a power of ten where it is rounding error

    >>> digits_of(0.2617), digits_of(2.6e-6)
    ('0.26', 'below $10^{-5}$')
    """
    return f"{number:.2f}" if number >= 0.005 else f"below $10^{{{math.ceil(math.log10(number))}}}$"


def draw_growth(lengths: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the mean length of the tokens before the first block and after each of them.

    lengths: {name: values}; the first line grows
    """
    fig, ax = style.new_figure(8, 3)
    first = next(iter(lengths.values()))
    for (name, values), color, dashes in zip(
        lengths.items(), style.SERIES[::2], ("-", "--"), strict=True
    ):
        ax.plot(values, dashes, color=color)
        write_at_end(ax, values, f"{values[-1]:.0f}, {name}", color)
    ax.set_ylim(0)
    growth = first[-1] / first[0]
    title = f"After {len(first) - 1} untrained blocks, tokens are {growth:.1f} times as long"
    style.style_axes(ax, title, "blocks", "mean length of the tokens")
    return Picture(
        fig,
        "The mean length of the tokens against the number of blocks, with and without a norm.",
        f"The mean length of the tokens grows {growth:.1f}-fold over {len(first) - 1} blocks; "
        "after a norm it stays the same.",
    )


def draw_shares(
    shares: Mapping[str, Mapping[str, float]], colors: Mapping[str, str], least: float = 0.03
) -> Picture:
    """Draw a bar from 0 to 1 for each model, cut into its parts.

    Parts above the least carry their share, the last one beside it.

    shares: {model: {part: share}};  colors: {part: color}
    """
    fig, ax = style.new_figure(9, 2.9)
    left = dict.fromkeys(shares, 0.0)
    for (part, color), hatch in zip(colors.items(), ("xx", "//", "", "", "..", "--"), strict=False):
        lengths = [parts[part] for parts in shares.values()]
        bar = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
        ax.barh(list(shares), lengths, left=list(left.values()), label=part, **bar)
        for model, share in zip(shares, lengths, strict=True):
            if least < share < 0.06 and left[model] + share > 0.999:
                beside = {"va": "center", "fontsize": style.TEXT_SIZE - 1, "color": style.TEXT}
                ax.text(1.01, model, f"{share:.1%}", **beside)
            elif share > least:
                style.write_on(ax, left[model] + share / 2, model, f"{share:.0%}", color)
            left[model] += share
    legend = {"fontsize": style.TEXT_SIZE, "frameon": False, "ncols": 3, "loc": "upper center"}
    ax.legend(bbox_to_anchor=(0.5, -0.3), **legend)
    ax.set_xlim(0, 1)
    ax.invert_yaxis()
    title = "Two thirds of a large ViT are MLP, one third is attention"
    style.style_axes(ax, title, "share of all parameters")
    said = "; ".join(
        f"{model}: {largest} {parts[largest]:.0%}"
        for model, parts in shares.items()
        for largest in sorted(parts, key=lambda part: -parts[part])[:2]
    )
    return Picture(
        fig,
        "The share of each part in the parameters of four models.",
        f"Stacked bars. The two largest parts are {said}.",
    )


def draw_differences(
    groups: Mapping[str, Mapping[str, float]], bound: float, least: float = 1e-7
) -> Picture:
    """Draw dots on a logarithmic scale: a row for each mistake, a panel for each model, a bound.

    groups: {title of a panel: {mistake: difference}}, of a new model, a perturbed one and any
            others, with the same mistakes, of which the first is none; differences below the least
            are at the left edge
    """
    names = list(next(iter(groups.values())))
    fig, axes = style.new_figure(9, 0.34 * len(names) + 1.6, ncols=len(groups), sharey=True)
    for ax, (name, differences) in zip(axes, groups.items(), strict=True):
        for y, value in enumerate(differences.values()):
            caught = value > bound
            look = {"markersize": 8, "markerfacecolor": style.SERIES[0] if caught else "white"}
            ax.plot(max(value, least), y, "o" if caught else "s", color=style.SERIES[0], **look)
        ax.axvline(bound, color=style.LINE, linestyle="--")
        for side, text, align in ((0.7, "missed", "right"), (1.4, "caught", "left")):
            word = {"fontsize": style.TEXT_SIZE - 1, "va": "center", "ha": align}
            ax.text(side * bound, -0.9, text, color=style.TEXT, **word)
        ax.set(xscale="log", xlim=(least / 3, 1), ylim=(len(names) - 0.5, -1.3))
        ticks = ("-5", "-3", "-1")
        labels = [f"≤ $10^{{{math.log10(least):.0f}}}$", *(f"$10^{{{n}}}$" for n in ticks)]
        ax.set_xticks([least, *(10.0 ** int(n) for n in ticks)], labels)
        ax.set_xticks([], minor=True)
        ax.set_yticks(range(len(names)), names)
        ax.grid(axis="y", color=style.MUTED)
        ax.set_axisbelow(True)
        style.style_axes(ax, name)
    counts = {
        name: sum(value > bound for value in differences.values())
        for name, differences in groups.items()
    }
    first, second, *_ = counts.values()
    total = len(names) - 1
    title = f"{first} of {total} mistakes show in a new model, {second} in a perturbed one"
    style.title_figure(fig, title, x=0.01)
    fig.supxlabel(
        "difference from the correct model, as a fraction of the largest logit",
        fontsize=style.TEXT_SIZE,
    )
    said = "; ".join(f"{name}: {number} of {total}" for name, number in counts.items())
    return Picture(
        fig,
        "How far each mistake moves the logits of a new model and of two perturbed ones, with the "
        "bound above which a comparison catches it.",
        f"Dots on a log scale, a row for each mistake. Caught are: {said}.",
    )
