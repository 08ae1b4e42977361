"""Figures that only commands draw: the results of a test, and maps beside an image."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from torch import Tensor

from vit_helpers.cli.mistakes import Mistakes
from vit_helpers.cli.scores import confused_pairs, worst_classes
from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar, draw_image, draw_image_grid, draw_over
from vit_helpers.plots.training import draw_confusion

NAMED = 30  # classes, as many as have room for their names
LISTED = 15  # the worst of more classes, and the pairs that are confused most often
SIDE = 224  # pixels of an image in a figure, at least
COLUMN = 215  # pixels for the text above an image, four of which are 900 pixels wide
PIXELS = 100 / 72  # in a point


def draw_test(counts: Tensor, table: pd.DataFrame) -> Figure:
    """Draw the confusion matrix, and beside it the accuracy of each class with its interval.

    Of more than 30 classes, these are the pairs that are confused most often, and the worst
    classes.

    counts: (K, K), a row for each true class
    table : `class_table` of them
    """
    K = len(counts)
    height = 6.5 if K > NAMED else 3.9 + 0.3 * K
    fig, (left, right) = style.new_figure(2.2 * height, height, ncols=2)
    fig.get_layout_engine().set(w_pad=0.12)  # inches, also at the edges of the canvas
    n, correct = int(counts.sum()), int(counts.trace())
    if K > NAMED:
        title = f"Confused most often, of {n - correct:,} mistakes in {n:,} images"
        draw_pairs(confused_pairs(counts, table.index, LISTED), left, title)
        worst = worst_classes(table, LISTED)
        title = f"The {len(worst)} worst of {(table['images'] > 0).sum() - 1:,} classes"
        draw_class_accuracy(pd.concat([worst, table.iloc[-1:]]), right, title)
    else:
        title = f"{correct:,} of {n:,} images are classified correctly"
        draw_confusion(counts, [shorten(name) for name in table.index[:-1]], left, title)
        draw_class_accuracy(table, right, "Accuracy of each class")
    return fig


def draw_pairs(pairs: pd.DataFrame, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw a bar for each pair of classes, as long as the number of images that are confused.

    pairs: `confused_pairs`
    """
    ax = style.new_axes(ax, 6, 4)
    rows = list(pairs.itertuples(index=False, name=None))
    bars = ax.barh(range(len(rows)), pairs["images"], color=style.SERIES[2])
    texts = [f"{images:,} ({share:.0%})" for _, _, images, share in rows]
    ax.bar_label(bars, texts, padding=4, fontsize=style.TEXT_SIZE - 1, color=style.TEXT)
    names = [f"{shorten(true)} as {shorten(predicted)}" for true, predicted, _, _ in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.margins(x=0.15)
    ax.invert_yaxis()
    ax.xaxis.get_major_locator().set_params(integer=True)
    axes = "images (share of the true class)", "true class as predicted class"
    return style.style_axes(ax, title, *axes)


def draw_class_accuracy(
    table: pd.DataFrame, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Draw a dot for each class, and a line over its 95% interval.

    table: `class_table`, whose last row is that of all classes, the dotted line
    """
    ax = style.new_axes(ax, 6, 4)
    classes, total = table.iloc[:-1], table.iloc[-1]
    places = range(len(classes))
    ax.hlines(
        places, classes["low"], classes["high"], color=style.LINE, linewidth=3, label="95% interval"
    )
    ax.plot(classes["accuracy"], places, "o", color=style.SERIES[0], label="accuracy")
    ax.axvline(
        total["accuracy"],
        color=style.TEXT,
        linestyle=":",
        label=f"all classes: {total['accuracy']:.3f}",
    )
    names = zip(classes.index, classes["images"], strict=True)
    ax.set_yticks(places, [f"{shorten(name)} ({n:,})" for name, n in names])
    below = 0.8 + 0.05 * len(classes)  # rows, for the legend
    ax.set(xlim=(-0.02, 1.02), ylim=(len(classes) - 0.5 + below, -0.5))
    options = {"frameon": False, "ncols": 2, "columnspacing": 0.8, "handlelength": 1.2}
    ax.legend(fontsize=style.TEXT_SIZE - 2, loc="lower left", **options)
    return style.style_axes(
        ax, title, "accuracy (fraction of images)", "class (images in the test)"
    )


def draw_worst(
    mistakes: Mistakes, class_names: Sequence[str], wrong: int, pictures: Sequence[str] = ()
) -> Figure:
    """Draw the images of the worst mistakes, four in a row.

    wrong   : how many wrong answers there are
    pictures: the names of the images, where they have one
    """
    titles = []
    columns = [column.tolist() for column in mistakes.answers]
    for label, predicted, probability in zip(*columns, strict=True):
        answer = fit_width(class_names[predicted], f"{{}} ({probability:.1%})")
        titles.append(f"{answer}\n{fit_width(class_names[label], 'true: {}')}")
    if pictures:
        pairs = zip(titles, pictures, strict=True)
        titles = [f"{title}\n{fit_width(name, cut=shorten_start)}" for title, name in pairs]
    fig = draw_image_grid([enlarge(image) for image in mistakes.images], titles, columns=4)
    style.title_figure(
        fig,
        f"{len(titles)} of {wrong:,} wrong answers, the most confident first: "
        "predicted class (probability) and true class",
    )
    return fig


def enlarge(image: Tensor) -> Tensor:
    """Make an image smooth and so large that its pixels need not be seen: (C, H, W)"""
    H, W = image.shape[1:]
    factor = -(-SIDE // min(H, W))
    size = (factor * H, factor * W)
    return F.interpolate(image[None], size, mode="bicubic").clamp(0, 1)[0]


def shorten(name: str, length: int = 18) -> str:
    """Cut the name of a class to so many characters; matplotlib takes it for no formula."""
    text = " ".join(str(name).split())
    return (text if len(text) <= length else text[: length - 1] + "…").replace("$", r"\$")


def fit_width(name: str, form: str = "{}", cut: Callable[[str, int], str] = shorten) -> str:
    """Cut a name so that the text in which it is fits above an image of `draw_worst`."""
    font = FontProperties(size=style.TEXT_SIZE)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # which are drawn as boxes
        for length in range(40, 1, -1):
            text = form.format(cut(name, length))
            if TextPath((0, 0), text, prop=font).get_extents().width * PIXELS <= COLUMN:
                break
    return text


def shorten_start(name: str, length: int) -> str:
    """Cut the name of an image to so many characters, of which the last tell files apart."""
    return shorten(name if len(name) <= length else f"…{name[1 - length :]}", length)


def draw_beside(image: Tensor, title: str, maps: Mapping[str, Tensor], label: str) -> Figure:
    """Draw an image, and beside it each of the maps laid over it, with a scale of its own.

    image: (C, H, W), from 0 to 1
    maps : {title: (rows, cols)}
    label: what the colors mean
    """
    fig, (left, *others) = style.new_figure(11, 4, ncols=1 + len(maps))
    draw_image(image, left, title)
    for ax, (name, heat) in zip(others, maps.items(), strict=True):
        _, drawn = draw_over(image, heat, ax, name)
        color_bar(drawn, ax, label)
    return fig


def draw_look(
    image: Tensor,
    components: Tensor,
    attention: tuple[str, Tensor],
    similarity: Tensor,
    patch: tuple[int, int],
    block: int,
) -> Figure:
    """Draw a photo, and beside it what a model makes of its patches.

    image     : (C, H, W), from 0 to 1
    components: (rows, columns, 3) of the tokens after a block, see `principal_components`
    attention : whose, and the weights (rows, columns)
    similarity: (rows, columns), cosines with the token of a patch, (row, column)
    """
    queries, weights = attention
    rows, columns = weights.shape
    fig, axes = style.new_figure(11, 11 * rows / columns + 0.6, nrows=2, ncols=2)
    low, high = components.flatten(0, 1).quantile(torch.tensor([0.01, 0.99]), dim=0)
    colors = ((components - low) / (high - low).clamp(min=1e-12)).permute(2, 0, 1)
    panels = {
        "What the model sees": image,
        f"Three components of the tokens after block {block}": colors,
        f"Attention of {queries}, last block": weights[None] / weights.quantile(0.99),
        "Similarity to the patch with the cross": similarity[None],
    }
    for ax, (title, panel) in zip(axes.flat, panels.items(), strict=True):
        draw_image(panel, ax, title)
    cross = {"marker": "x", "color": "#00e5ff", "markersize": 9, "markeredgewidth": 2.5}
    for ax in (axes[0, 0], axes[1, 1]):
        x, y = (patch[1] + 0.5) / columns, 1 - (patch[0] + 0.5) / rows
        ax.plot(x, y, transform=ax.transAxes, **cross)
    return fig
