"""Notebook 04: what is on the residual stream, layer norm, the MLP, the block, two orders."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.canvas import arrow, draw_table, new_canvas, short, write
from vit_helpers.plots.figure import Picture

# the two branches of a block, and whatever is compared with them
ATTENTION, MLP, OTHER = style.SERIES
WIDEST = 5  # numbers of a token that fit the picture of layer norm
DIGITS = tuple("0123456789")


def draw_answers(answers: Tensor, names: Sequence[str] = DIGITS) -> Picture:
    """Draw the probabilities that the head reads from the class token, a column for each place.

    Every class that is ahead somewhere has a name and a line of its own.

    answers: (L + 1, K), before the first block and after each
    """
    answers = answers.detach()
    fig, ax = style.new_figure(9, 3.6)
    style.style_axes(ax, "The answer grows from block to block", None, "probability")
    *before, winner = answers.argmax(dim=1).tolist()
    leaders = [k for k in dict.fromkeys(before) if k != winner] + [winner]
    places = range(len(answers))
    for k in range(answers.shape[1]):
        if k not in leaders:
            ax.plot(places, answers[:, k], color=style.LINE, linewidth=1, alpha=0.6)
    lines = ("o-", "s--", "^:", "D-.")
    colors = (style.LINE, OTHER, MLP, ATTENTION)
    for i, k in enumerate(leaders):
        best = int(answers[:, k].argmax()) if i < len(leaders) - 1 else len(answers) - 1
        color = style.TEXT if i == len(leaders) - 1 else colors[i % 4]
        ax.plot(places, answers[:, k], lines[-1 - i % 4], color=color, linewidth=2.5)
        options = {"fontsize": style.TEXT_SIZE + 2, "weight": "bold", "color": style.TEXT}
        ax.text(best, float(answers[best, k]) + 0.05, names[k], ha="center", **options)
    ax.set_xticks(places, ["before the blocks", *(f"after block {i}" for i in places[1:])])
    ax.set(ylim=(0, 1.12), yticks=(0, 0.5, 1))
    story = ", ".join(f"{names[int(a.argmax())]} with {a.max():.2f}" for a in answers)
    return Picture(
        fig,
        "What the head reads from the class token before the blocks and after each of them.",
        f"The probabilities of the classes at each place. The largest, in turn: {story}.",
    )


def draw_block() -> Picture:
    """Draw the residual stream through one block: two branches that read it and add to it."""
    fig, ax = style.new_figure(9, 2.6)
    branches = [{"norm1": style.LINE, "attn": ATTENTION}, {"norm2": style.LINE, "mlp": MLP}]
    ends = (r"$\mathbf{z}_{\ell-1}$", r"$\mathbf{z}_\ell$")
    draw_stream(branches, ax, "Two branches read the residual stream and add to it", ends)
    for x, y, name in (
        (2.9, 1.48, "between tokens"),
        (7, 1.48, "each token alone"),
        (5, -0.42, r"$\mathbf{z}'_\ell$, (B, T, D)"),
        (0.85, -0.42, "(B, T, D)"),
        (9.45, -0.42, "(B, T, D)"),
    ):
        ax.text(x, y, name, ha="center", fontsize=style.TEXT_SIZE, color=style.TEXT)
    return Picture(
        fig,
        "A thick line, the residual stream, with two branches that leave it and are added back.",
        "A thick arrow from left to right, the residual stream, always of shape (B, T, D). A "
        "branch with norm1 and attn leaves it and is added back, then one with norm2 and mlp.",
    )


def draw_orders() -> Picture:
    """Draw a block with its norms on the branches, and one with its norms on the stream."""
    fig, axes = style.new_figure(9, 4.6, nrows=2)
    colors = {"attn": ATTENTION, "mlp": MLP}
    pre = [{f"norm{i + 1}": style.LINE, name: colors[name]} for i, name in enumerate(colors)]
    draw_stream(pre, axes[0], "Pre-norm: norms are on the branches, only additions on the stream")
    post = [{name: color} for name, color in colors.items()]
    title = "Post-norm: norms are on the stream, each rescales all that is on it"
    draw_stream(post, axes[1], title, norms=("norm1", "norm2"))
    return Picture(
        fig,
        "Two blocks: in pre-norm the norms are on the branches, in post-norm on the stream.",
        "Two residual streams as thick lines with attn and mlp on branches. Top, pre-norm: a norm "
        "comes first on each branch. Bottom, post-norm: a norm is on the stream after each plus.",
    )


def draw_differences(spreads: Mapping[str, Tensor]) -> Picture:
    """Draw how far the tokens of an image differ after each block, two stacks with their names.

    spreads: {name: (seeds, L + 1)}, as a share of the tokens' length
    """
    fig, ax = style.new_figure(9, 3.4)
    title = "Post-norm makes all tokens alike, pre-norm keeps them apart"
    style.style_axes(ax, title, "block", "how far tokens differ\n(share of their length)")
    ends = []
    for (name, values), line, color in zip(
        spreads.items(), ("-", "--"), (style.TEXT, OTHER), strict=True
    ):
        mean = values.log().mean(dim=0).exp()
        blocks = range(values.shape[1])
        ax.plot(blocks, mean, line, color=color, linewidth=2.5)
        low, high = values.amin(dim=0), values.amax(dim=0)
        ax.fill_between(blocks, low, high, color=color, alpha=0.2, linewidth=0)
        options = {"fontsize": style.TEXT_SIZE, "color": color, "va": "center"}
        ax.text(blocks[-1] + 0.4, float(mean[-1]), name, **options)
        ends.append(f"{name} ends at {mean[-1]:.2g}")
    last = values.shape[1] - 1
    ax.set(yscale="log", xlim=(0, last + 4), xticks=range(0, last + 1, 6))
    ax.set_yticks((0.001, 0.01, 0.1, 1), ("0.1%", "1%", "10%", "100%"))
    return Picture(
        fig,
        "How far tokens differ after each block of a new stack, with pre-norm and with post-norm.",
        f"How far the tokens of an image differ, block by block, on a log scale. Both lines start "
        f"near 1; {', '.join(ends)}. Bands show the range of {len(values)} seeds.",
    )


def draw_lead(adds: Sequence[float], winner: str, rival: str) -> Picture:
    """Draw what each addition gives to the logit of one class, less that of another.

    adds: of the stream as it enters, then of attention and MLP in turn
    """
    fig, ax = style.new_figure(9, 3.6)
    title = f"All additions together make it a {winner}"
    style.style_axes(ax, title, None, f"logit of {winner} less logit of {rival}")
    ax.axhline(0, color=style.TEXT, linewidth=1)
    kinds = [("start", style.LINE, "..")]
    kinds += [("attention", ATTENTION, ""), ("MLP", MLP, "//")] * (len(adds) // 2)
    for i, (value, (name, color, hatch)) in enumerate(zip(adds, kinds, strict=True)):
        ax.bar(i, value, 0.8, color=color, hatch=hatch, edgecolor="white")
        where = max(value, 0) + 0.04 * max(adds)
        options = {"ha": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
        ax.text(i, where, with_sign(value), **options)
        block = (i + 1) // 2
        kinds[i] = (f"block {block}\n{name}" if i else name, color, hatch)
    ax.set_xticks(range(len(adds)), [name for name, *_ in kinds])
    ax.set(ylim=(1.2 * min(0, *adds), 1.2 * max(adds)))
    return Picture(
        fig,
        "What every addition to the class token gives to the right class, less what it gives to "
        "a rival.",
        f"Bars of what each addition gives to {winner} less {rival}: "
        f"{', '.join(map(with_sign, adds))}; they sum to {sum(adds):.1f}.",
    )


def with_sign(value: float) -> str:
    """A number with its sign and one decimal, and without a sign if it rounds to 0.

    >>> with_sign(1.46), with_sign(-0.3), with_sign(-0.04)
    ('+1.5', '-0.3', '0.0')
    """
    return f"{value:+z.1f}".replace("+0.0", "0.0")


def draw_second_gelu(added: Tensor, bent: Tensor) -> Picture:
    """Draw the numbers that an MLP adds, and the same after another GELU, as histograms."""
    fig, axes = style.new_figure(9, 2.8, ncols=2, sharex=True, sharey=True)
    panels = {"Correct: both signs": added, "GELU last: nothing below -0.17": bent}
    edge = float(added.abs().quantile(0.999))
    bins = -0.17 + edge / 50 * torch.arange(-50, 51)  # one of them begins at the smallest GELU
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        ax.hist(values.flatten().numpy(), bins=bins.numpy(), color=MLP)
        y = "count (log scale)" if values is added else None
        style.style_axes(ax, title, "number that the MLP adds", y).set_yscale("log")
    axes[1].axvline(-0.17, color=style.TEXT, linestyle="--", linewidth=1)
    return Picture(
        fig,
        "Histograms of the numbers that an MLP adds, without and with a GELU after its last layer.",
        "Left, a mound with both signs. Right, its left half is squeezed into a spike just left of "
        f"0, bounded by a dashed line; the smallest number is {bent.min():.2f}.",
    )


def draw_layer_norm(tokens: Tensor, eps: float = 1e-6) -> Picture:
    """Draw tokens, the mean and the variance of each row, and the normalized tokens in cells.

    tokens: (T, D) with D from 2 to 5
    raises: ValueError if they are not rows of 2 to 5 numbers, or too large for their cells
    """
    if tokens.ndim != 2 or not 2 <= tokens.shape[1] <= WIDEST:
        raise ValueError(f"tokens must be rows of 2 to {WIDEST} numbers, got {tuple(tokens.shape)}")
    if tokens.abs().max() >= 1000:
        raise ValueError(
            f"numbers must be below 1000 to fit into their cells, got {tokens.abs().max():g}"
        )
    (T, D), tokens = tokens.shape, tokens.double()
    labels = [f"token {t}" for t in range(T)]
    mean = tokens.mean(dim=1, keepdim=True)
    variance = tokens.var(dim=1, unbiased=False, keepdim=True)
    fig, ax = new_canvas(
        T + 3.6,
        "Each row, less its mean, is divided by its standard deviation",
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
    rows = (", ".join(significant(row, digits)) for row in normalized)
    return Picture(
        fig,
        "Tokens, the mean and variance of each row, and the normalized tokens, in cells.",
        f"Tokens of {D} numbers, the mean and variance of each row, and the normalized tokens: "
        f"{'; '.join(rows)}.",
    )


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


def draw_mlp(token: Tensor, mlp: Any) -> Picture:
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
    fig, ax = new_canvas(13.6, "The MLP widens a token, applies GELU, and narrows it again")
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
    largest = int(hidden.argmax())
    return Picture(
        fig,
        "One token becomes four times as many hidden numbers, passes GELU, and is narrowed again.",
        f"A token of {len(token)} numbers becomes {len(hidden)} hidden numbers of both signs. "
        f"GELU turns the largest, {hidden[largest]:.2f}, into {after[largest]:.2f}, and what is "
        f"negative ends between {after.min():.2f} and 0. The output has {len(token)} again.",
    )


def draw_stream(
    branches: Sequence[Mapping[str, str]],
    ax: Axes | None = None,
    title: str | None = None,
    ends: tuple[str, str] = ("in", "out"),
    norms: Sequence[str] = (),
) -> Axes:
    """Draw a residual stream from left to right.

    Each branch leaves it, passes its boxes, and is added back.

    branches: a list of {name of a box: color}
    ends    : what the stream is called where it comes in and goes out
    norms   : names of boxes on the stream, one after each branch
    """
    ax = style.hide_axes(style.new_axes(ax, 9, 2.6), title)
    ax.set(xlim=(0, 10), ylim=(-0.55, 1.8))
    ax.plot([0.9, 9.35], [0, 0], color=style.TEXT, linewidth=5, solid_capstyle="butt", zorder=1)
    arrow(ax, (9.2, 0), (9.55, 0), linewidth=1.5, mutation_scale=24)
    for x, end, side in ((0.8, ends[0], "right"), (9.6, ends[1], "left")):
        ax.text(x, 0, end, ha=side, va="center", fontsize=style.TEXT_SIZE, color=style.TEXT)
    width = 8.2 / len(branches)
    for i, boxes in enumerate(branches):
        room = 1.25 if norms else 0
        left = 0.9 + i * width + 0.12 * width
        draw_branch(ax, boxes, left, 0.88 * width - 0.35 - room)
        if norms:
            draw_box_on(ax, (left + 0.88 * width - 1.2, -0.28), 0.95, norms[i], style.LINE)
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
        draw_box_on(ax, corner, 0.68 * step, name, color)


def draw_box_on(ax: Axes, corner: tuple[float, float], width: float, name: str, color: str) -> None:
    """Draw a white box with a name: its left and bottom, its width, the color of its edge."""
    box = {"boxstyle": "round,pad=0.02", "facecolor": "white", "edgecolor": color}
    ax.add_patch(FancyBboxPatch(corner, width, 0.56, linewidth=3, zorder=2, **box))
    options = {"ha": "center", "va": "center", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
    ax.text(corner[0] + width / 2, corner[1] + 0.28, name, zorder=3, **options)
