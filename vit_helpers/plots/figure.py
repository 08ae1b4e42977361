"""The figure that a drawing function returns: as a cell's last line it shows itself, once."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from vit_helpers.plots import style

NUMBER = re.compile(r"(?<![A-Za-z\d])(?<![A-Za-z][-/])\d+(?:[.,]\d+)*")  # not the 2 of DINOv2


class Picture:
    """A finished figure with its description, which shows itself where it is a cell's last line.

    Assigned to a name it shows nothing; `display(picture)` shows it in the middle of a cell. Once
    shown, the matplotlib figure is freed, and what remains is the image.

    figure: made without pyplot, as by `style.new_figure`
    text  : one sentence that says what is drawn, always the same: it is what `repr` returns, what
            pages without images show, and what nbval compares. So it holds no measured numbers.
    alt   : one or two sentences for who cannot see the picture, with numbers; `text` if missing
    raises: ValueError if `text` is not one sentence without numbers, or `alt` is blank

    >>> fig, ax = style.new_figure(4, 3)
    >>> Picture(fig, "An empty plot.", "A plot with nothing from 0 to 1.")
    An empty plot.
    """

    def __init__(self, figure: Figure, text: str, alt: str | None = None) -> None:
        check_text(text)
        if alt is not None and not alt.strip():
            raise ValueError(f"alt is {alt!r}: a figure needs alt text that says what it shows")
        self.text = text
        self.alt = text if alt is None else alt
        self._figure: Figure | None = figure
        self._image: style.Encoded | None = None

    @property
    def figure(self) -> Figure:
        """The matplotlib figure, to change or to save it; RuntimeError once it was shown."""
        if self._figure is None:
            raise RuntimeError("this figure was shown and then freed: draw it again to change it")
        self._image = None  # whoever asks may change the figure
        return self._figure

    @property
    def image(self) -> style.Encoded:
        """The figure as it is, or as it was shown: its kind, its bytes, its width in pixels."""
        if self._image is None:
            self._image = style.encode(self.figure)
        return self._image

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the image and the text by MIME type, and the metadata: alt text and width.

        IPython calls it to show the object, and selects with `include` and `exclude` itself.
        """
        kind, data, width = self.image
        self._figure = None
        mime = f"image/{kind}"
        shown = {mime: base64.b64encode(data).decode(), "text/plain": self.text}
        return shown, {mime: {"alt": self.alt, "width": width}}

    def __getstate__(self) -> Mapping[str, Any]:
        """Return what copies and pickles hold: the image instead of the matplotlib figure."""
        return vars(self) | {"_figure": None, "_image": self.image}


def check_text(text: str) -> None:
    """Raise ValueError unless a text is one sentence in one line, without numbers.

    Digits that belong to a name are allowed: DINOv2, CIFAR-10, ViT-B/16.
    """
    if not re.fullmatch(r"\S.*\.", text):
        raise ValueError(f"the text is {text!r}: wanted is one line that ends with a period")
    numbers = NUMBER.findall(text)
    if numbers:
        raise ValueError(
            f"the text {text!r} has the numbers {', '.join(numbers)}: it must be the same "
            "wherever the notebook runs, so numbers belong into alt"
        )
