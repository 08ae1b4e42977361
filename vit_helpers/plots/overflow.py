"""Faults of a figure: text outside the canvas, labels wider than bars, tick labels that touch."""

import warnings
from collections.abc import Iterator
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

TOLERANCE = 2.0  # pixels, at 100 dots an inch: a letter's box is a little larger than its ink
GAP = 1.0  # pixels between tick labels that do not touch


def warn_of_overflow(fig: Figure) -> None:
    """Warn of each fault of a figure, so that it fails a notebook's test."""
    for fault in overflow_faults(fig):
        warnings.warn(fault, stacklevel=4)


def overflow_faults(fig: Figure) -> list[str]:
    """Say what is wrong with a figure, a line for each fault; the list is empty if nothing is."""
    fig.draw_without_rendering()  # so that all places are those of the figure's own resolution
    return [*outside_canvas(fig), *wider_than_bars(fig), *touching_tick_labels(fig)]


def outside_canvas(fig: Figure) -> Iterator[str]:
    """Texts that leave the canvas, so that a part of them is cut off."""
    canvas = fig.bbox.padded(TOLERANCE)
    for text in visible_texts(fig):
        box = extent(text)
        if not (canvas.x0 <= box.x0 and box.x1 <= canvas.x1):
            yield f"{text.get_text()!r} is wider than the canvas leaves room for"
        if not (canvas.y0 <= box.y0 and box.y1 <= canvas.y1):
            yield f"{text.get_text()!r} is higher than the canvas leaves room for"


def wider_than_bars(fig: Figure) -> Iterator[str]:
    """Labels in the middle of a bar that stick out of it to the left or to the right."""
    for ax in fig.axes:
        bars = [bar for group in ax.containers if isinstance(group, BarContainer) for bar in group]
        areas = [bar.get_window_extent() for bar in bars]
        for text in filter(is_drawn, ax.texts):
            box = extent(text)
            middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
            around = [area for area in areas if area.contains(*middle)]
            if around and not any(holds_width(area, box) for area in around):
                yield f"{text.get_text()!r} is wider than its bar"


def holds_width(area: Bbox, box: Bbox) -> bool:
    """Whether a box does not stick out of an area to the left or to the right."""
    return area.x0 - TOLERANCE <= box.x0 and box.x1 <= area.x1 + TOLERANCE


def touching_tick_labels(fig: Figure) -> Iterator[str]:
    """Pairs of tick labels that touch: of one axis, or of two panels."""
    labels = [
        (axis, label.get_text(), extent(label).padded(GAP / 2))
        for ax in fig.axes
        for axis in shown_axes(ax)
        for label in axis_labels(axis)
    ]
    for (axis, text, box), (other_axis, other, other_box) in combinations(labels, 2):
        if (axis is other_axis or axis.axes is not other_axis.axes) and box.overlaps(other_box):
            where = "one axis" if axis is other_axis else "two panels"
            yield f"the tick labels {text!r} and {other!r} of {where} touch"


def visible_texts(fig: Figure) -> list[Text]:
    """All texts that are drawn: of the figure, its panels and legends, and of axes in sight."""
    of_axes = [
        text for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for text in axis.findobj(Text)
    ]
    left_out = {id(text) for text in of_axes}
    texts = [text for text in fig.findobj(Text) if id(text) not in left_out and is_drawn(text)]
    for ax in fig.axes:
        texts += tick_labels(ax)
        texts += [axis.label for axis in shown_axes(ax) if is_drawn(axis.label)]
    return texts


def tick_labels(ax: Axes) -> list[Text]:
    """The tick labels of a panel that are drawn: matplotlib keeps others, outside of its limits."""
    return [label for axis in shown_axes(ax) for label in axis_labels(axis)]


def axis_labels(axis: Axis) -> list[Text]:
    """The tick labels of one axis that are drawn."""
    labels = []
    low, high = sorted(axis.get_view_interval())
    margin = 1e-6 * (high - low)
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        if low - margin <= tick.get_loc() <= high + margin:
            labels += [text for text in (tick.label1, tick.label2) if is_drawn(text)]
    return labels


def shown_axes(ax: Axes) -> list[Axis]:
    """The x axis and the y axis of a panel, where they are drawn."""
    if not (ax.axison and ax.get_visible()):
        return []
    return [axis for axis in (ax.xaxis, ax.yaxis) if axis.get_visible()]


def is_drawn(text: Text) -> bool:
    """Whether a text is visible, and not empty."""
    panel = text.axes
    return bool(text.get_visible() and text.get_text().strip()) and (
        panel is None or panel.get_visible()
    )


def extent(text: Text) -> Bbox:
    """The box of a text in pixels, where it was drawn last; of an annotation without its arrow."""
    return Text.get_window_extent(text)
