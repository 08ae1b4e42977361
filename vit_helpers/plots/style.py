"""The look of every figure: colors, text, and the one way a notebook shows a figure."""

import io
import warnings
from itertools import combinations
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from vit_helpers.plots.overflow import warn_of_overflow

# Okabe and Ito's colors, which color-blind readers can distinguish: each belongs to one role in
# all notebooks
CLASS_TOKEN = "#D55E00"
PATCH = "#56B4E9"
POSITION = "#009E73"
QUERY = "#0072B2"
KEY = "#E69F00"
VALUE = "#CC79A7"
TEXT = "#222222"
LINE = "#999999"
SERIES = ("#332288", "#999933", "#882255")  # what is compared and plays none of these roles
MUTED = "#E9E9E9"  # parts of a drawing that are not the subject of the page
VALUES = "cividis"  # the color map of magnitudes
SIGNED = "RdBu_r"  # the color map of numbers with a sign, with zero, white, in the middle
VEIL = LinearSegmentedColormap.from_list(
    "veil", [to_rgba(SERIES[2], 0), to_rgba(SERIES[2], 0.95)]
)  # attention over an image
# Of pieces laid end to end, so that they differ without color too
HATCHES = ("", "//", "", "..", "\\\\", "--", "xx")
HALO = [withStroke(linewidth=4, foreground="white")]  # makes a frame of 2 points visible anywhere
SHADES = 0.2  # what a print in gray keeps apart: a fifth of the way from black to white
DOTS = 144  # an inch, in the stored picture; shown at 100 an inch, it is sharp on any display
PHOTO = 20_000  # colors; a figure with more of them shows photos and is stored as JPEG
TEXT_SIZE = 12  # points; as large as the page's prose


class Encoded(NamedTuple):
    """A figure as an image."""

    kind: str  # "png" or "jpeg"
    data: bytes
    width: int  # at which it is shown, in pixels; there are 1.44 times as many


def blank_figure(width: float = 9.0, height: float = 3.0, **options: Any) -> Figure:
    """Make a white figure without axes that pyplot does not know, so nobody must close it.

    width, height: inches; 9 inches, shown at 100 dots an inch, fill a page of 900 pixels
    options      : as for `matplotlib.figure.Figure`
    """
    fig = Figure(figsize=(width, height), facecolor="white", **options)
    FigureCanvasAgg(fig)
    return fig


def new_figure(width: float = 9.0, height: float = 3.0, **layout: Any) -> tuple[Figure, Any]:
    """Make a `blank_figure` and its axes.

    layout: as for matplotlib's `Figure.subplots`
    """
    fig = blank_figure(width, height, layout="constrained")
    return fig, fig.subplots(**layout)


def new_axes(ax: Axes | None, width: float = 9.0, height: float = 3.0) -> Axes:
    """Return the axes given, or those of a new figure."""
    return new_figure(width, height)[1] if ax is None else ax


def title_figure(fig: Figure, title: str | None, x: float = 0.005) -> None:
    """Write a title at the left, above all panels of a figure."""
    fig.suptitle(title or "", x=x, ha="left", fontsize=TEXT_SIZE + 1, color=TEXT)


def style_axes(
    ax: Axes, title: str | None = None, x: str | None = None, y: str | None = None
) -> Axes:
    """Set a title at the left, names and units of the axes, and the page's text size."""
    ax.set_title(title or "", loc="left", fontsize=TEXT_SIZE + 1, color=TEXT)
    ax.set_xlabel(x or "", fontsize=TEXT_SIZE, color=TEXT)
    ax.set_ylabel(y or "", fontsize=TEXT_SIZE, color=TEXT)
    ax.tick_params(labelsize=TEXT_SIZE - 1, colors=TEXT)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def hide_axes(ax: Axes, title: str | None = None) -> Axes:
    """Make axes those of a picture: a title, no ticks, no frame."""
    style_axes(ax, title).set_axis_off()
    return ax


def show(fig: Any, alt: str) -> None:
    """Show a figure in a notebook as a picture with alt text, and close it.

    fig: a matplotlib figure, or a `Picture`
    alt: one or two sentences that say what the picture shows
    """
    from IPython.display import display

    image, metadata = picture(fig, alt)
    display(image, metadata=metadata)


def picture(fig: Any, alt: str) -> tuple[Any, dict[str, Any]]:
    """Return the arguments of IPython's `display`: a closed figure's image, and its metadata.

    fig: a matplotlib figure, or a `Picture`;  alt: what the picture shows
    """
    from IPython.display import Image

    if not alt.strip():
        raise ValueError("a figure needs alt text that says what it shows")
    kind, data, width = encode(fig.figure)  # of a matplotlib figure, it is the figure itself
    plt.close(fig.figure)
    return Image(data, format=kind), {f"image/{kind}": {"alt": alt, "width": width}}


def encode(fig: Figure) -> Encoded:
    """Draw a figure as a PNG with a palette or, where a palette would not do, as a JPEG.

    returns: "png" or "jpeg", the bytes, and the width at which it is shown, in pixels
    """
    for name, other in color_only_pairs(fig):
        warnings.warn(
            f"{name!r} and {other!r} differ only by color: give one a marker, dashes or a hatch",
            stacklevel=3,
        )
    width = round(100 * fig.get_size_inches()[0])
    plain = drawn(fig, "png")
    warn_of_overflow(fig)
    if count_colors(plain) > PHOTO:
        return Encoded("jpeg", drawn(fig, "jpeg", pil_kwargs={"quality": 75}), width)
    return Encoded("png", with_palette(plain), width)


def color_only_pairs(fig: Figure) -> list[tuple[str, str]]:
    """List pairs of names that share axes and differ only by color: in gray they look alike."""
    pairs = []
    for ax in fig.axes:
        handles, names = ax.get_legend_handles_labels()
        marks = [
            handle[0] if isinstance(handle, tuple) else handle for handle in handles
        ]  # tuples: bars, lines with errors
        for (name, mark), (other, its_mark) in combinations(zip(names, marks, strict=True), 2):
            if (
                form(mark) == form(its_mark)
                and abs(shade(color_of(mark)) - shade(color_of(its_mark))) < SHADES
            ):
                pairs.append((name, other))
    return pairs


def form(mark: Any) -> list[str]:
    """Describe the look of a line, a dot or a bar apart from its color."""
    getters = ("get_linestyle", "get_marker", "get_hatch", "get_fill", "get_paths")
    return [
        type(mark).__name__,
        *(str(getattr(mark, get)()) for get in getters if hasattr(mark, get)),
    ]


def color_of(mark: Any) -> Any:
    """Find the color of a line, of a filled bar, or of the edge of another bar."""
    if hasattr(mark, "get_color"):
        return mark.get_color()
    return (
        mark.get_facecolor() if getattr(mark, "get_fill", lambda: True)() else mark.get_edgecolor()
    )


def shade(color: Any) -> float:
    """Find the gray with the luminance of a color, from 0 for black to 1 for white

    >>> round(shade("white"), 2), round(shade(QUERY), 2), round(shade(PATCH), 2)
    (1.0, 0.43, 0.67)
    """
    red, green, blue = (part**2.2 for part in to_rgb(color))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) ** (1 / 2.2)


def ink_on(color: Any) -> str:
    """Choose the color of text on a background: black or white, whichever has more contrast."""
    return "white" if shade(color) < 0.46 else "black"


def write_on(ax: Axes, x: float, y: float | str, text: str, color: str) -> None:
    """Write a text in the middle of an area of this color, readable over hatching, too."""
    ground = {"facecolor": color, "edgecolor": "none", "pad": 1.5}
    ax.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=TEXT_SIZE - 1,
        color=ink_on(color),
        bbox=ground,
    )


def drawn(fig: Figure, kind: str, **options: Any) -> bytes:
    """Draw a figure into the bytes of a file."""
    file = io.BytesIO()
    fig.savefig(file, format=kind, dpi=DOTS, **options)
    return file.getvalue()


def count_colors(png: bytes) -> int:
    """Count the colors of a picture."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    return len(image.getcolors(image.width * image.height) or ())


def with_palette(png: bytes) -> bytes:
    """Give a PNG a palette of 256 colors, for a quarter of the bytes, and drop its metadata.

    The palette covers the whole range of colors, because one that follows their frequency (median
    cut, Pillow's default)
    gives a color that fills only a few cells the value of another.
    """
    from PIL import Image

    file, image = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1).save(file, "png", optimize=True)
    return file.getvalue()
