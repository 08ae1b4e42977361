"""Pictures of training: the history that `fit` returns, and the loss of a prediction."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vit_helpers.plots import style


class Epoch(Protocol):
    """The measurements of one epoch, as `fit` returns them."""

    def to_row(self) -> dict[str, Any]: ...


Row = Mapping[str, Any]  # the measurements of one epoch by name


UNITS = {"loss": "loss (nats)", "accuracy": "accuracy (fraction of images)"}


def as_rows(history: Sequence[Epoch | Row]) -> list[Row]:
    """Return the measurements of each epoch by name, of epochs or of stored rows."""
    return [row if isinstance(row, Mapping) else row.to_row() for row in history]


def draw_curve(
    history: Sequence[Epoch | Row], key: str, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Training (dashed) and validation, one point an epoch.

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
    """Loss and accuracy side by side on a new figure, which is returned.  floor: the lowest loss possible, a dotted line"""
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


def draw_loss(
    num_classes: int, smoothing: float, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """The cross-entropy of one image, against the probability of the correct class, where all others are equally likely.

    smoothing: of the labels, for the second line; its lowest point and the uniform prediction are marked
    """
    ax, K = style.new_axes(ax, 8, 3.4), num_classes
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
        look = {"ha": "left" if left else "right", "fontsize": style.TEXT_SIZE, "color": style.TEXT}
        ax.text(float(at) + (0.02 if left else 0.0), height + (0.05 if left else 0.5), text, **look)
    ax.set(xlim=(0, 1), ylim=(0, None))
    ax.legend(fontsize=style.TEXT_SIZE, frameon=False)
    return style.style_axes(ax, title, "probability of the correct class", UNITS["loss"])


def smoothed_loss(probability: torch.Tensor, num_classes: int, smoothing: float) -> torch.Tensor:
    """The cross-entropy where the correct class has this probability and the others share the rest equally

    >>> smoothed_loss(torch.tensor([0.1, 0.91]), 10, 0.1)
    tensor([2.3026, 0.5003])
    """
    other = smoothing / num_classes  # the target of each wrong class
    wrong = ((1 - probability) / (num_classes - 1)).log()
    return -(1 - smoothing + other) * probability.log() - (num_classes - 1) * other * wrong
