"""Pictures of training while it goes on, of several runs side by side, and of what a trained model gets wrong."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.curves import UNITS, Row, draw_curves

REDRAW = 0.5  # seconds between two pictures while a model trains


class LiveCurves:
    """Curves that grow while `fit` trains, in one place of the page: `fit(..., report=LiveCurves(epochs))`.

    epochs: how many there will be.  Outside a notebook each epoch prints a line instead.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs, self.drawn_at = epochs, 0.0
        self.history: list[Row] = []
        self.place: Any = None  # where IPython shows the picture

    def __call__(self, row: Row) -> None:
        self.history.append(row)
        if not in_notebook():
            print(f"epoch {row['epoch']} of {self.epochs}: validation accuracy {row['val_accuracy']:.3f}")
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
        """What the curves tell so far"""
        first, last = self.history[0], self.history[-1]
        ends = [f"{key} from {first['val_' + key]:.2f} to {last['val_' + key]:.2f}" for key in ("loss", "accuracy")]
        trained = f"in training they are {last['loss']:.2f} and {last['accuracy']:.2f}"
        return f"Curves after {len(self.history)} of {self.epochs} epochs, in validation {' and '.join(ends)}; {trained}."


def in_notebook() -> bool:
    """Whether pictures can be shown and changed in place: under Jupyter's kernel"""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")


def draw_runs(runs: Mapping[str, Sequence[Row]], key: str = "accuracy", columns: int = 3) -> Figure:
    """A panel for each run, epoch by epoch, on a new figure, which is returned.

    runs: {title: rows of `fit`};  key: "accuracy" or "loss"
    All panels share their axes; a loss above twice that of guessing lies outside
    """
    rows = -(-len(runs) // columns)
    fig, axes = style.new_figure(9, 2.1 * rows + 0.5, nrows=rows, ncols=columns, sharex=True, sharey=True, squeeze=False)
    for ax in axes.flat[len(runs) :]:
        ax.set_axis_off()
    for ax, (title, history) in zip(axes.flat, runs.items(), strict=False):
        K = history[0]["num_classes"]
        guessing, top = {"accuracy": (1 / K, 1.03), "loss": (math.log(K), 2 * math.log(K))}[key]
        epochs = [row["epoch"] for row in history]
        ax.plot(epochs, [row[key] for row in history], "--", color=style.CLASS_TOKEN, linewidth=2, label="training")
        ax.plot(epochs, [row["val_" + key] for row in history], color=style.QUERY, linewidth=2, label="validation")
        ax.axhline(guessing, color=style.TEXT, linewidth=1, linestyle=":", label="guessing")
        style.style_axes(ax, title).set_ylim(0, top)
    for ax in axes.flat[len(runs) - columns : len(runs)]:  # the lowest of each column
        ax.tick_params(labelbottom=True)
    axes[0, 0].xaxis.get_major_locator().set_params(integer=True)
    fig.supxlabel("epoch", fontsize=style.TEXT_SIZE, color=style.TEXT)
    fig.supylabel(UNITS[key], fontsize=style.TEXT_SIZE, color=style.TEXT)
    handles = axes[0, 0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside upper right", ncols=3, fontsize=style.TEXT_SIZE, frameon=False)
    return fig


def draw_confusion(counts: Tensor, names: Sequence[Any], ax: Axes | None = None, title: str | None = None) -> Axes:
    """How many images of each class (row) were given each answer (column).  counts: (K, K);  names: K texts"""
    ax = style.new_axes(ax, 7, 6)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    drawn = ax.imshow(shares, cmap=style.VALUES, vmin=0, vmax=1)
    for row, column in counts.nonzero().tolist():
        ink = style.ink_on(drawn.to_rgba(shares[row, column].item()))
        number = counts[row, column].item()
        ax.text(column, row, number, ha="center", va="center", fontsize=style.TEXT_SIZE - 1, color=ink)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right")
    ax.set_yticks(range(len(names)), names)
    return style.style_axes(ax, title, "answer of the model", "class of the image")


def draw_calibration(
    sure: Tensor, right: Tensor, ax: Axes | None = None, title: str | None = None, groups: int = 10
) -> Axes:
    """How often answers are right that the model is so and so sure of; a perfectly honest model lies on the gray line.

    sure  : (n,) the largest probability of each image;  right: (n,) whether its answer is right
    groups: how many of equal size, from least to most sure
    """
    ax = style.new_axes(ax, 5, 4)
    order = sure.argsort()
    parts = [(sure[rows].mean().item(), right[rows].float().mean().item()) for rows in order.tensor_split(groups)]
    share = "a tenth" if groups == 10 else f"1/{groups}"
    ax.plot([0, 1], [0, 1], color=style.LINE, label="as often right as it is sure")
    ax.plot(*zip(*parts, strict=True), "o-", color=style.QUERY, label=f"the model, {share} of the images each")
    lowest = min(min(pair) for pair in parts)
    ax.set_xlim(lowest - 0.05, 1.02)
    ax.set_ylim(lowest - 0.05, 1.02)
    ax.legend(fontsize=style.TEXT_SIZE - 1, frameon=False)
    return style.style_axes(ax, title, "how sure: largest probability", "share of right answers")
