"""What tests of figures read from them: texts that fit, marks, the ends of intervals, titles."""

import warnings
from itertools import combinations

from vit_helpers.plots.overflow import extent, visible_texts

HISTORY = [
    {
        "epoch": e,
        "loss": 2 / e,
        "val_loss": 2.2 / e,
        "accuracy": 1 - 1 / e,
        "val_accuracy": 1 - 1.1 / e,
    }
    for e in (1, 2, 3)
]


def fits(picture):
    """Whether a picture is drawn without a warning of text that leaves its canvas or overlaps"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # pyparsing's are UserWarnings, too
        return bool(picture.image.data)


def overlaps(picture):
    """Pairs of texts of a picture that lie on top of each other"""
    figure = picture.figure
    figure.draw_without_rendering()
    boxes = [(text.get_text(), extent(text).padded(-1)) for text in visible_texts(figure)]
    return [(a, b) for (a, box), (b, other) in combinations(boxes, 2) if box.overlaps(other)]


def marks(ax, kinds="os"):
    """(x, y, mark) of the marks of some kinds, from top to bottom"""
    return [
        (round(float(x), 6), round(float(y), 6), line.get_marker())
        for line in ax.lines
        if line.get_marker() in kinds
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def spans(ax):
    """The ends of the intervals, from top to bottom"""
    return [
        [round(float(x), 6) for x in line.get_xdata()]
        for line in ax.lines
        if line.get_linewidth() == 3 and len(line.get_xdata()) == 2
    ]


def areas(ax):
    """Of the squares on the patches, as fractions of a patch of 4 x 4 pixels"""
    return [patch.get_width() * patch.get_height() / 16 for patch in ax.patches if patch.get_fill()]


def titles(picture):
    return [ax.get_title(loc="left").strip() for ax in picture.figure.axes]
