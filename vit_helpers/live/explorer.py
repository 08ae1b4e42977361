"""Parts of the live page in notebooks: draw, change queries, pick patches, explore heads."""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers._validate import check_choice, to_2tuple
from vit_helpers.data import load
from vit_helpers.inspection import attention_map
from vit_helpers.live.ink import reduce_ink
from vit_helpers.live.page import HERE, bundle
from vit_helpers.live.picker import ROOF, draw_roof, picker_data, tell_patch
from vit_helpers.plots import attention_steps, explorer, style
from vit_helpers.pretrained import load_pretrained
from vit_helpers.pretrained.sources import find_file
from vit_helpers.results.photo_features import read_photo_features

STYLES = ("photo.css", "widget.css")
VIEW = "application/vnd.jupyter.widget-view+json"
WEIGHTS = {"draw": "ours:drawn", "attend": "", "pick": "", "explore": "ours:scattered"}


class Explorer:
    """A part of the live page, shown as a widget if anywidget is installed, else as a picture.

    part   : "draw" a digit and see how it is read; "attend", the example of notebook 03 with
             queries and keys that can be changed; "pick" a patch of a photo and see what it is
             similar to and attends to; "explore" what any head attends to
    weights: of the ViT that "draw" and "explore" run, "ours:NAME" or a file of `save_weights`; it
             reads square gray images
    images : (n, 1, H, W) from 0 to 1, what "explore" shows; by default the first six test images of
             `scattered_digits`
    raises : ValueError for an unknown part
    """

    def __init__(
        self, part: str = "draw", weights: str | Path | None = None, images: Tensor | None = None
    ) -> None:
        check_choice("part", part, tuple(WEIGHTS))
        self.part, self.weights, self.images = part, weights or WEIGHTS[part], None
        if part == "explore":
            self.images = load("scattered_digits", n=30).test.images if images is None else images

    def data(self) -> dict[str, Any]:
        """What `mount` of widget.js builds the part from; FileNotFoundError without the weights."""
        if self.part == "attend":
            tokens, z, W = attention_steps.read_example()
            return {
                "part": self.part,
                "tokens": tokens,
                **{role: (z @ W[role]).tolist() for role in "qkv"},
            }
        if self.part == "pick":
            return {"part": self.part, **picker_data()}
        weights = find_file(self.weights).read_bytes()
        data = {"part": self.part, "weights": base64.b64encode(weights).decode()}
        if self.images is None:
            return data | {"strokes": [explorer.A_THREE]}
        return data | {
            "images": [[round(x, 3) for x in image.flatten().tolist()] for image in self.images]
        }

    @torch.no_grad()
    def still(self) -> tuple[Figure, str]:
        """The first state of the widget as a figure, and its alt text"""
        if self.part == "attend":
            tokens, z, W = attention_steps.read_example()
            alt = (
                f"Queries, keys, values, scores, weights and outputs of {len(tokens)} tokens, "
                "with all of their numbers."
            )
            return attention_steps.draw_all_steps(z @ W["q"], z @ W["k"], z @ W["v"], tokens), alt
        if self.part == "pick":
            return draw_roof().figure, tell_patch(read_photo_features("china"), ROOF)
        model, preprocess, names = load_pretrained(self.weights)
        if self.images is None:
            ink = explorer.draw_stroke(explorer.A_THREE)
            pixels = reduce_ink(ink, to_2tuple(model.config.image_size)[0])
            probabilities = model(preprocess.normalize(pixels[None, None])).softmax(dim=1)[0]
            best = int(probabilities.argmax())
            alt = (
                "A drawing of a 3, its pixels, and ten bars: "
                f"{names[best]} gets {probabilities[best]:.0%}."
            )
            return explorer.draw_reading(
                ink, pixels, model.config.patch_size, probabilities, names
            ), alt
        weights = model.attention_weights(preprocess.normalize(self.images))

        def maps(block: int, query: explorer.Query) -> Tensor:
            registers = model.config.reg_tokens
            return attention_map(weights[block], model.config.grid, query, registers)

        last = len(weights) - 1
        figure = explorer.draw_choice(self.images, maps, model.config.patch_size, block=last)
        return figure, explorer.tell_choice(maps, block=last)

    def _ipython_display_(self) -> None:
        """The picture together with the widget, for pages that only show stored outputs"""
        from IPython.display import display

        figure, alt = self.still()
        still, metadata = style.picture(figure, alt)
        data, _ = still._repr_mimebundle_()
        with suppress(ImportError):  # no anywidget: the picture alone
            data[VIEW] = {
                "version_major": 2,
                "version_minor": 1,
                "model_id": self.widget().model_id,
            }
        display(data | {"text/plain": alt}, metadata=metadata, raw=True)

    def widget(self) -> Any:
        """The widget itself, an `anywidget.AnyWidget`; ImportError without anywidget."""
        from anywidget import AnyWidget
        from traitlets import Dict

        fields = {
            "_esm": bundle("widget.js") + "\nexport default { render };\n",
            "_css": read_styles(),
        }
        return type("Part", (AnyWidget,), fields | {"data": Dict().tag(sync=True)})(
            data=self.data()
        )

    def html(self) -> str:
        """The same part for a page without a kernel, as in the book: element, style and script."""
        data = json.dumps(self.data()).replace("</", "<\\/")
        code = bundle("widget.js") + f'\nmount(document.getElementById("vit-{self.part}"), {data});'
        script = f'<script type="module">\n{code}\n</script>'
        return f'<div id="vit-{self.part}"></div>\n<style>{read_styles()}</style>\n{script}'


def read_styles() -> str:
    """The styles of all parts"""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in STYLES)
