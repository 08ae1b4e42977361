"""The look of every figure: colours, text, and the one way a notebook shows a figure."""

import io

import matplotlib.pyplot as plt

# Okabe and Ito's colours, told apart by readers who see few colours; each idea keeps its own in all notebooks.
CLASS_TOKEN = "#D55E00"
PATCH = "#56B4E9"
POSITION = "#009E73"
QUERY = "#0072B2"
KEY = "#E69F00"
VALUE = "#CC79A7"
TEXT = "#222222"
LINE = "#999999"
VALUES = "cividis"  # the colour map of measured values
LARGE = 100_000  # bytes; a larger figure is stored as JPEG where that is smaller, so that notebooks stay small
TEXT_SIZE = 12  # points; at 100 dots an inch as large as the page's prose


def new_figure(width=9.0, height=3.0, **layout):
    """A figure and its axes: 9 inches at 100 dots an inch fill a page that is 900 pixels wide.

    layout: as for `matplotlib.pyplot.subplots`
    """
    return plt.subplots(figsize=(width, height), layout="constrained", facecolor="white", **layout)


def new_axes(ax, width=9.0, height=3.0):
    """The axes given, or those of a new figure"""
    return new_figure(width, height)[1] if ax is None else ax


def dress(ax, title=None, x=None, y=None):
    """Title at the left, names and units of the axes, text of the page's size; the axes come back."""
    ax.set_title(title or "", loc="left", fontsize=TEXT_SIZE + 1, color=TEXT)
    ax.set_xlabel(x or "", fontsize=TEXT_SIZE, color=TEXT)
    ax.set_ylabel(y or "", fontsize=TEXT_SIZE, color=TEXT)
    ax.tick_params(labelsize=TEXT_SIZE - 1, colors=TEXT)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def bare(ax, title=None):
    """Axes for a picture: a title, no ticks, no frame"""
    dress(ax, title).set_axis_off()
    return ax


def show(fig, alt):
    """Show a figure in a notebook as a picture with a text for those who do not see it, and close it.

    alt: one or two sentences that say what the picture shows
    """
    from IPython.display import display

    image, metadata = picture(fig, alt)
    display(image, metadata=metadata)


def picture(fig, alt):
    """What IPython's `display` takes: a closed figure's picture, and metadata with its alt text"""
    from IPython.display import Image

    if not alt.strip():
        raise ValueError("a figure needs alt text: say what it shows")
    plain = drawn(fig, "png")
    kind, data = "png", with_palette(plain)
    if len(plain) > LARGE and len(jpeg := drawn(fig, "jpeg", pil_kwargs={"quality": 90})) < len(data):  # photos
        kind, data = "jpeg", jpeg
    plt.close(fig)
    return Image(data, format=kind), {f"image/{kind}": {"alt": alt}}


def drawn(fig, kind, **options):
    """A figure as the bytes of a file, at 100 dots an inch"""
    file = io.BytesIO()
    fig.savefig(file, format=kind, dpi=100, **options)
    return file.getvalue()


def with_palette(png):
    """A PNG with a palette of 256 colours: a third of the bytes, and nothing in it about who wrote it"""
    from PIL import Image

    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(file, "png", optimize=True)
    return file.getvalue()
