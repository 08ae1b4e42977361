"""Pictures of training: the history that `fit` hands back."""

from collections.abc import Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vit_helpers.plots import style


class Row(Protocol):
    """The measurements of one epoch by name: a dict, or what `fit` returns."""

    def __getitem__(self, name: str, /) -> Any: ...


UNITS = {"loss": "loss (nats)", "accuracy": "accuracy (share of images)"}


def draw_curve(history: Sequence[Row], key: str, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Training (dashed) and validation, one point an epoch.

    history: rows of `fit`;  key: "loss" or "accuracy"
    """
    ax = style.new_axes(ax, 6, 3.5)
    epochs = [row["epoch"] for row in history]
    marker = "o" if len(epochs) < 3 else None  # a line needs two points to be seen
    ax.plot(epochs, [row[key] for row in history], "--", color=style.CLASS_TOKEN, marker=marker, label="training")
    ax.plot(epochs, [row["val_" + key] for row in history], color=style.QUERY, marker=marker, label="validation")
    ax.xaxis.get_major_locator().set_params(integer=True)  # there is no half an epoch
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False)
    return style.style_axes(ax, title, "epoch", UNITS[key])


def draw_curves(history: Sequence[Row]) -> Figure:
    """Loss and accuracy side by side on a new figure, which is returned."""
    fig, (left, right) = style.new_figure(9, 3.4, ncols=2)
    last = history[-1]
    draw_curve(history, "loss", left, f"Validation loss ends at {last['val_loss']:.2f}")
    draw_curve(history, "accuracy", right, f"Validation accuracy ends at {last['val_accuracy']:.3f}")
    return fig
