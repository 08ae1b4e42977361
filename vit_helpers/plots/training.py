"""Notebook 07: curves of a training run, live and afterwards; the loss; what a model gets wrong."""

import math
import time
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Protocol

import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture

REDRAW = 0.5  # seconds between two figures while a model trains
UNITS = {"loss": "loss (nats)", "accuracy": "accuracy (fraction of images)"}


class Epoch(Protocol):
    """The measurements of one epoch, as `fit` returns them."""

    def to_row(self) -> dict[str, Any]: ...


Row = Mapping[str, Any]  # the measurements of one epoch by name


def as_rows(history: Sequence[Epoch | Row]) -> list[Row]:
    """Return the measurements of each epoch by name, of epochs or of stored rows."""
    return [row if isinstance(row, Mapping) else row.to_row() for row in history]


def draw_curve(
    history: Sequence[Epoch | Row], key: str, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw training (dashed) and validation, one point an epoch.

    history: what `fit` returns, or rows of it;  key: "loss" or "accuracy"
    """
    ax, history = style.new_axes(ax, 6, 3.5), as_rows(history)
    epochs = [row["epoch"] for row in history]
    marker = "o" if len(epochs) < 3 else None  # a line needs two points to be seen
    ax.plot(
        epochs,
        [row[key] for row in history],
        "--",
        color=style.SERIES[2],
        marker=marker,
        label="training",
    )
    ax.plot(
        epochs,
        [row["val_" + key] for row in history],
        color=style.SERIES[0],
        marker=marker,
        label="validation",
    )
    ax.xaxis.get_major_locator().set_params(integer=True)  # there is no half an epoch
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False)
    return style.style_axes(ax, title, "epoch", UNITS[key])


def draw_curves(history: Sequence[Epoch | Row], floor: float | None = None) -> Figure:
    """Draw loss and accuracy side by side on a new figure.

    floor: the lowest loss possible, a dotted line
    """
    fig, (left, right) = style.new_figure(9, 3.4, ncols=2)
    history = as_rows(history)
    last = history[-1]
    draw_curve(history, "loss", left, f"Validation loss ends at {last['val_loss']:.3f}")
    if floor is not None:
        left.axhline(
            floor, linestyle=":", color=style.TEXT, linewidth=1.5, label=f"lower bound: {floor:.2f}"
        )
        left.legend(fontsize=style.TEXT_SIZE - 1, frameon=False)
    draw_curve(
        history, "accuracy", right, f"Validation accuracy ends at {last['val_accuracy']:.3f}"
    )
    return fig


def draw_loss(num_classes: int, smoothing: float) -> Picture:
    """Draw the cross-entropy of one image, against the probability of the correct class.

    All other classes are equally likely.

    smoothing: of the labels, for the second line; its lowest point and the uniform prediction
               are marked
    """
    fig, ax = style.new_figure(8, 3.4)
    K = num_classes
    probability = torch.linspace(0.02, 0.995, 200)
    for amount, color, dash in ((0.0, style.SERIES[0], "-"), (smoothing, style.SERIES[2], "--")):
        label = f"label smoothing {amount:g}" if amount else "no label smoothing"
        ax.plot(
            probability,
            smoothed_loss(probability, K, amount),
            dash,
            color=color,
            linewidth=2,
            label=label,
        )
    target = torch.tensor(1 - smoothing + smoothing / K)
    uniform = torch.tensor(1 / K)
    floor = float(smoothed_loss(target, K, smoothing))
    for at, height, text in (
        (uniform, float(-uniform.log()), f"uniform prediction: ln {K} = {-uniform.log():.2f}"),
        (target, floor, f"lowest, at {target:.2f}: {floor:.2f}"),
    ):
        ax.plot(float(at), height, "o", color=style.TEXT)
        left = float(at) < 0.5
        options = {
            "ha": "left" if left else "right",
            "fontsize": style.TEXT_SIZE,
            "color": style.TEXT,
        }
        ax.text(
            float(at) + (0.02 if left else 0.0), height + (0.05 if left else 0.5), text, **options
        )
    ax.set(xlim=(0, 1), ylim=(0, None))
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    title = f"With label smoothing, the loss cannot fall below {floor:.2f}"
    style.style_axes(ax, title, "probability of the correct class", UNITS["loss"])
    return Picture(
        fig,
        "The loss against the probability of the correct class, with and without label smoothing.",
        f"Two curves of the loss that meet at the uniform prediction, ln {K}. Without label "
        f"smoothing it falls to 0; with it, to {floor:.2f} at {target:.2f}, and rises again.",
    )


def smoothed_loss(probability: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """Compute the cross-entropy where all wrong classes share the rest equally.

    >>> smoothed_loss(torch.tensor([0.1, 0.91]), 10, 0.1)
    tensor([2.3026, 0.5003])
    """
    other = smoothing / num_classes  # the target of each wrong class
    wrong = ((1 - probability) / (num_classes - 1)).log()
    return -(1 - smoothing + other) * probability.log() - (num_classes - 1) * other * wrong


class LiveCurves:
    """Curves that grow while `fit` trains, in one output cell.

    Use them as `fit(..., callbacks=[Report(LiveCurves(epochs))])`.
    epochs: how many there will be.  Outside a notebook, each epoch prints a line instead.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs, self.drawn_at = epochs, 0.0
        self.history: list[Row] = []
        self.place: Any = None  # the output in which IPython shows the figure

    def __call__(self, epoch: Epoch | Row) -> None:
        (row,) = as_rows([epoch])
        self.history.append(row)
        if not in_notebook():
            print(
                f"epoch {row['epoch']} of {self.epochs}: "
                f"validation accuracy {row['val_accuracy']:.3f}"
            )
        elif row["epoch"] == self.epochs or time.monotonic() - self.drawn_at > REDRAW:
            self.draw()
            self.drawn_at = time.monotonic()

    def draw(self) -> None:
        from IPython.display import display

        fig = draw_curves(self.history)
        for ax in fig.axes:
            ax.set_xlim(0.5, self.epochs + 0.5)
        image, metadata = style.picture(fig, self.alt())
        if self.place is None:
            self.place = display(image, metadata=metadata, display_id=True)
        else:
            self.place.update(image, metadata=metadata)

    def alt(self) -> str:
        """The alt text of the curves so far."""
        first, last = self.history[0], self.history[-1]
        ends = [
            f"{key} from {first['val_' + key]:.2f} to {last['val_' + key]:.2f}"
            for key in ("loss", "accuracy")
        ]
        trained = f"training ends at {last['loss']:.2f} and {last['accuracy']:.2f}"
        done = f"{len(self.history)} of {self.epochs} epochs"
        ways = " and in ".join(ends)
        return f"Loss and accuracy after {done}: validation goes in {ways}, {trained}."


def in_notebook() -> bool:
    """Say whether figures can be updated in place, which takes Jupyter's kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


def draw_runs(
    runs: Mapping[str, Sequence[Epoch | Row]],
    healthy: Sequence[Epoch | Row] | None = None,
    verdicts: Mapping[str, str] | None = None,
    floors: Mapping[str, float] | None = None,
) -> Picture:
    """Draw for each run a column with its loss above its accuracy, epoch by epoch.

    runs    : {title: what `fit` returns, or rows of it}, two to six of them
    healthy : a run to compare with, whose validation is drawn in gray in every column
    verdicts: what is written into a run's upper panel, by its title
    floors  : the lowest loss that is possible in a run, by its title, a line in its upper panel
    A loss above twice that of a uniform prediction is a triangle at the upper edge.
    """
    rows_of = {title: as_rows(history) for title, history in runs.items()}
    healthy_rows = as_rows(healthy or ())
    every_row = [row for rows in (*rows_of.values(), healthy_rows) for row in rows]
    K = max(row["num_classes"] for row in every_row)
    uniform_loss = math.log(K)
    seen = [row[key] for row in every_row for key in ("loss", "val_loss")]
    highest = max(uniform_loss, *(loss for loss in seen if loss < math.inf))
    ceiling = min(
        2 * uniform_loss, (1.7 if verdicts else 1.1) * highest
    )  # verdicts stand above the curves
    shared = {"sharex": "col", "sharey": "row", "squeeze": False}
    fig, axes = style.new_figure(9, 4.8 if verdicts else 4.2, nrows=2, ncols=len(runs), **shared)
    for column, (title, history) in zip(axes.T, rows_of.items(), strict=True):
        epochs = [row["epoch"] for row in history]
        for ax, key, uniform, top in zip(
            column, UNITS, (math.log(K), 1 / K), (ceiling, 1.03), strict=True
        ):
            if healthy_rows:
                values = [row["val_" + key] for row in healthy_rows]
                ax.plot(
                    range(1, len(values) + 1),
                    values,
                    color="#BBBBBB",
                    linewidth=5,
                    label="healthy run, validation",
                )
            for name, prefix, dash, color in (
                ("training", "", "--", 2),
                ("validation", "val_", "-", 0),
            ):
                values = [row[prefix + key] for row in history]
                ax.plot(epochs, values, dash, color=style.SERIES[color], linewidth=2, label=name)
                above = [epoch for epoch, value in zip(epochs, values, strict=True) if value > top]
                ax.plot(
                    above, [0.97 * top] * len(above), "^", color=style.SERIES[color], markersize=7
                )
            ax.axhline(
                uniform, color=style.TEXT, linewidth=1, linestyle=":", label="uniform prediction"
            )
            style.style_axes(ax).set_ylim(0, top)
        column[0].set_title(title, fontsize=style.TEXT_SIZE, color=style.TEXT)
        if verdicts:
            options = {
                "ha": "right",
                "va": "top",
                "fontsize": style.TEXT_SIZE - 1,
                "color": style.TEXT,
            }
            said = "diagnose:\n" + fill(verdicts[title], 14)
            column[0].text(0.98, 0.98, said, transform=column[0].transAxes, **options)
        if floors and title in floors:
            draw_floor(column[0], floors[title], epochs[-1])
        column[1].set_xlabel("epoch", fontsize=style.TEXT_SIZE, color=style.TEXT)
        if len(epochs) <= 8:
            column[1].set_xticks(epochs)
    for ax, key in zip(axes[:, 0], UNITS, strict=True):
        ax.set_ylabel(key, fontsize=style.TEXT_SIZE, color=style.TEXT)
    name_lines(fig, axes)
    ends = "; ".join(describe_end(title, rows[-1]) for title, rows in rows_of.items())
    return Picture(
        fig,
        "The loss above the accuracy of each run, epoch by epoch, in training and validation.",
        f"A column for each run. The last training loss and validation accuracy: {ends}.",
    )


def describe_end(title: str, row: Row) -> str:
    """Say in words how a run ends."""
    name = " ".join(title.split())
    return f"{name} {row['loss']:.2f} and {row['val_accuracy']:.2f}"


def draw_floor(ax: Axes, floor: float, end: float) -> None:
    """Draw a line at the lowest loss possible, with its name below it."""
    ax.axhline(floor, color=style.SERIES[1], linewidth=2)
    options: dict[str, Any] = {"fontsize": style.TEXT_SIZE - 1, "ha": "right", "va": "top"}
    ax.text(end, floor - 0.03, f"minimum: {floor:.2f}", color=style.TEXT, **options)


def name_lines(fig: Figure, axes: Any) -> None:
    """Draw the legend of `draw_runs`: lines of its first panel, and triangles if there are some."""
    handles, names = axes[0, 0].get_legend_handles_labels()
    if any(
        line.get_marker() == "^" and len(line.get_xdata()) for ax in axes.flat for line in ax.lines
    ):
        handles.append(Line2D([], [], linestyle="", marker="^", color=style.TEXT))
        names.append("above the scale")
    options = {"ncols": 5, "columnspacing": 1, "fontsize": style.TEXT_SIZE - 1, "frameon": False}
    fig.legend(handles, names, loc="outside upper right", **options)


def draw_confusion(
    counts: Tensor, names: Sequence[Any], ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw how many images of each class (row) were given each prediction (column).

    Mistakes are colored by their share of the class.

    counts: (K, K);  names: K texts
    """
    ax = style.new_axes(ax, 7, 6)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    right = torch.eye(*shares.shape, dtype=torch.bool)
    mistakes = shares.masked_fill(right, torch.nan).numpy()
    colors = LinearSegmentedColormap.from_list("mistakes", ["white", style.SERIES[2]])
    colors = colors.with_extremes(bad=style.MUTED)  # for the diagonal, which would use up the scale
    drawn = ax.imshow(
        mistakes, cmap=colors, vmin=0, vmax=max(shares.masked_fill(right, 0).max().item(), 0.01)
    )
    for row, column in counts.nonzero().tolist():
        ink = style.ink_on(drawn.to_rgba(mistakes)[row, column])
        number = counts[row, column].item()
        ax.text(
            column, row, number, ha="center", va="center", fontsize=style.TEXT_SIZE - 1, color=ink
        )
    turned = {"rotation": 45, "ha": "right"} if max(len(str(name)) for name in names) > 3 else {}
    ax.set_xticks(range(len(names)), names, **turned)
    ax.set_yticks(range(len(names)), names)
    return style.style_axes(ax, title, "predicted class", "true class (color: fraction of its row)")


def draw_calibration(
    confidence: Tensor,
    correct: Tensor,
    ax: Axes | None = None,
    title: str | None = None,
    groups: int = 10,
) -> Axes:
    """Draw accuracy against confidence in groups of equal size.

    The points of a calibrated model are on the gray diagonal.

    confidence: (n,) the largest probability of each image;  correct: (n,) whether its prediction is
    groups    : how many, from least to most confident; a bar is one standard error of the
                group's accuracy
    """
    ax = style.new_axes(ax, 5, 4)
    parts = confidence.argsort().tensor_split(groups)
    mean = [confidence[part].mean().item() for part in parts]
    share = [correct[part].float().mean().item() for part in parts]
    error = [(p * (1 - p) / len(part)) ** 0.5 for p, part in zip(share, parts, strict=True)]
    ax.plot([0, 1], [0, 1], color=style.LINE, label="perfect calibration")
    label = f"{groups} groups of images"
    ax.errorbar(
        mean,
        share,
        error,
        fmt="o-",
        color=style.SERIES[0],
        linewidth=2,
        elinewidth=1.2,
        label=label,
    )
    lowest = min(min(mean), min(share))
    ax.set_xlim(lowest - 0.05, 1.02)
    ax.set_ylim(lowest - 0.05, 1.04)
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False, loc="lower right")
    return style.style_axes(ax, title, "confidence (largest probability)", "accuracy")
