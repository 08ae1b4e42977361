"""Attention to be explored with sliders, where ipywidgets is installed; else one picture that stands still."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from vit_helpers.plots import style
from vit_helpers.plots.images import color_bar
from vit_helpers.plots.inspection import draw_look

Query = tuple[int, int] | None  # (row, column) of a patch, or None for the class token
Maps = Callable[[int, Query], Tensor]  # of a layer and a query: (B, h, rows, cols)

VIEW = "application/vnd.jupyter.widget-view+json"


def draw_choice(
    images: Tensor, maps: Maps, patch_size: int, image: int = 0, layer: int = 0, head: int = 0, query: Query = None
) -> Figure:
    """One map of many, by its numbers, which count from 0; returns the figure.

    images: (B, C, H, W), from 0 to 1;  maps(layer, query): what a token looks at, (B, h, rows, cols)
    query : (row, column) of the patch that asks; None for the class token
    """
    fig, ax = style.new_figure(5, 4)
    title = name_choice(layer, head, query)
    _, drawn = draw_look(images[image], maps(layer, query)[image], patch_size, head, query, ax, title)
    color_bar(drawn, ax, "attention weight")
    return fig


def name_choice(layer: int, head: int, query: Query) -> str:
    """Which map it is, with numbers that count from 1 for layer and head"""
    who = "class token" if query is None else f"patch {query}"
    return f"Layer {layer + 1}, head {head + 1}, asked by the {who}"


def tell_choice(maps: Maps, image: int = 0, layer: int = 0, head: int = 0, query: Query = None) -> str:
    """The alt text of that picture: where the token looks most"""
    weights = maps(layer, query)[image, head]
    row, col = divmod(weights.argmax().item(), weights.shape[1])
    where = f"row {row + 1}, column {col + 1} of {weights.shape[0]} x {weights.shape[1]}"
    return f"{name_choice(layer, head, query)}: most of its look, {weights.max():.0%}, goes to {where}."


def explore(images: Tensor, maps: Maps, patch_size: int, layers: int) -> None:
    """Sliders for image, layer, head and the patch that asks, drawn by `draw_choice`; where none can run, one picture.

    The picture travels with the sliders, so that a page that only shows what was stored has something to show.
    """
    from IPython.display import display

    alt = tell_choice(maps, layer=layers - 1)
    still, metadata = style.picture(draw_choice(images, maps, patch_size, layer=layers - 1), alt)
    data, _ = still._repr_mimebundle_()
    with suppress(ImportError):  # no ipywidgets: the picture alone
        moved = sliders(images, maps, patch_size, layers)
        data[VIEW] = {"version_major": 2, "version_minor": 0, "model_id": moved.model_id}
    display(data | {"text/plain": alt}, metadata=metadata, raw=True)


def sliders(images: Tensor, maps: Maps, patch_size: int, layers: int) -> Any:
    """The sliders and the picture that they draw, as ipywidgets has them"""
    from ipywidgets import Checkbox, IntSlider, interactive

    B, h, rows, cols = maps(0, (0, 0)).shape

    def show(image: int, layer: int, head: int, class_token: bool, row: int, col: int) -> None:
        query = None if class_token else (row - 1, col - 1)
        choice = (image - 1, layer - 1, head - 1, query)
        style.show(draw_choice(images, maps, patch_size, *choice), tell_choice(maps, *choice))

    def slider(n: int, start: int = 1) -> Any:
        return IntSlider(start, 1, n, continuous_update=False)

    moved = interactive(
        show,
        image=slider(B),
        layer=slider(layers, layers),
        head=slider(h),
        class_token=Checkbox(True, description="class token asks"),
        row=slider(rows),
        col=slider(cols),
    )
    if not hasattr(moved, "_repr_mimebundle_"):  # ipywidgets 7, as on Colab, would draw only once it is displayed by itself
        moved.update()
    return moved
